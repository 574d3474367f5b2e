"""Rules before a release: what they find, what they change, and what the outbox makes of it."""

import json
import warnings
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.questions import settle_answer

from fmtc.errors import FileError, TrustError, WithheldError
from fmtc.kernels.projection import RidgeFactors
from fmtc.mixture import Cells
from fmtc.mixture.bounds import impossible_steps, impossible_sums
from fmtc.mixture.pooling import Pool
from fmtc.mixture.steps import Common, Statistics
from fmtc.privacy.ledger import MemoryLedger
from fmtc.privacy.outbox import Outbox
from fmtc.privacy.rules import QUIET, TRACE, Policy, Rules
from fmtc.protocol.base import Message
from fmtc.protocol.graph.finish import FINISH, SETTLE, Finish
from fmtc.protocol.graph.opening import MEET
from fmtc.protocol.graph.round import ROUND
from fmtc.protocol.method import view_method
from fmtc.protocol.mixture.em import EM, Ask, _unpacked, one_round
from fmtc.protocol.mixture.opening import COORDINATES, SEED
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

OMIT = Policy(small_cluster="omit")


def ruled(transport, policy):
    """The transport, whose clients have a policy."""
    for node in transport.nodes.values():
        node.outbox.rules = Rules(policy)
    return transport


def clustered(rng, sizes, k=None):
    """A client at the end of the graph view: rows of unit length in clusters of these sizes, and their centres."""
    k = k or len(sizes)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    E = np.eye(k)[labels] + 0.1 * rng.normal(size=(len(labels), k))
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    centers = np.eye(k)
    for cluster in range(len(sizes)):
        mean = E[labels == cluster].mean(axis=0)
        centers[cluster] = mean / np.linalg.norm(mean)
    return SimpleNamespace(own=SimpleNamespace(E=E, labels=labels, model=SimpleNamespace(centers=centers)))


def seeded(*counts):
    return SEED.Answer(counts=np.array([counts], float), sums=np.arange(3.0 * len(counts)).reshape(1, -1, 3) + 1)


# ----------------------------------------------------------------------------------------------------------- centres


def test_a_centre_of_one_row_never_leaves(rng):
    client = clustered(rng, [20, 9, 1])
    answer = FINISH.Answer(centers=client.own.model.centers)
    for policy in (QUIET, Policy(), Policy(small_cluster="off")):
        sent = Rules(policy).protect(FINISH, answer, client).centers
        assert_array_equal(sent[:2], answer.centers[:2])
        gaps = np.linalg.norm(client.own.E - sent[2], axis=1)
        assert gaps.min() > 1e-3  # not a row
        assert np.linalg.norm(sent[2]) == pytest.approx(1)
        assert sent[2].argmax() == answer.centers[2].argmax() or sent[2] @ answer.centers[2] > 0.5  # still near


def test_a_phase_keeps_its_rule_under_another_name(rng):
    class Renamed(Finish):
        name = "labels"

    client = clustered(rng, [20, 9, 1])
    answer = Renamed.Answer(centers=client.own.model.centers)
    assert not np.allclose(Rules().protect(Renamed(), answer, client).centers[2], answer.centers[2])


def test_nor_does_one_before_the_rounds_where_silos_lack_concepts(rng, play):
    settings = Settings(3, view="graph", scale="none", max_iter=2, clusters_per_silo={"a": 3, "b": 2})
    game = play(outlier_federation(rng), settings)
    for name in ("hello", "prepare"):
        game.phase(name)
    answer = game.ask("meet")["a"]
    own, sent = game.clients["a"].own, Rules().protect(MEET, answer, game.clients["a"]).centers
    assert np.bincount(own.labels, minlength=3).min() == 1
    for cluster, rows in enumerate(np.bincount(own.labels, minlength=3)):
        assert np.allclose(sent[cluster], own.model.centers[cluster]) == (rows > 1)


def test_it_is_the_mean_direction_of_the_rows_nearest_to_it(rng):
    client = clustered(rng, [20, 9, 3])
    sent = Rules(OMIT).protect(FINISH, FINISH.Answer(centers=client.own.model.centers), client).centers
    near = np.argsort(-(client.own.E @ client.own.model.centers[2]))[:5]
    mean = client.own.E[near].mean(axis=0)
    assert_allclose(sent[2], mean / np.linalg.norm(mean))


@pytest.mark.parametrize("policy", [QUIET, Policy(), OMIT])
def test_nothing_changes_where_all_clusters_are_large(rng, policy):
    """The same object: not a bit is different."""
    client = clustered(rng, [20, 9, 5])
    answer, sums, settled = FINISH.Answer(centers=client.own.model.centers), seeded(20, 9, 5), settle_answer()
    settled = replace(settled, counts=np.full_like(settled.counts, 5.0))
    rules = Rules(policy)
    assert rules.protect(FINISH, answer, client) is answer
    assert rules.protect(SEED, sums, client) is sums
    assert rules.protect(EM, settled, client) is settled
    assert rules.protect(ROUND, answer, client) is answer


def outlier_federation(rng):
    """Two silos of two groups; the first has one row far from all."""
    blobs = [np.vstack([rng.normal(m, 0.3, (15, 4)) for m in (0, 4)]) for _ in range(2)]
    return {"a": np.vstack([blobs[0], [[0, 30, 0, 0]]]), "b": blobs[1]}


# -------------------------------------------------------------------------------------------------------------- sums


def test_rows_of_small_clusters_are_counted_with_the_nearest():
    answer = SEED.Answer(
        counts=np.array([[20.0, 4.0, 0.0, 7.0]]), sums=np.array([[[0.0], [36.0], [0.0], [70.0]]])
    )  # means 0, 9, none, 10
    sent = Rules(OMIT).protect(SEED, answer, None)
    assert_array_equal(sent.counts, [[20, 0, 0, 11]])
    assert_array_equal(sent.sums[0, :, 0], [0, 0, 0, 106])
    assert impossible_steps(sent.counts, sent.sums, 31, np.full((1, 1), 2000.0)) is None  # the server believes it


def mixture_answer(rng, sizes, levels=()):
    """A real answer of a round of the mixture to rows in well separated groups, the question, and the rows."""
    k, r, q = len(sizes), 3, len(levels)
    centers = 20 * np.eye(k, r) + 5
    Z = np.vstack([c + rng.normal(size=(n, r)) for c, n in zip(centers, sizes, strict=True)])
    codes = np.column_stack([rng.integers(size, size=len(Z)) for size in levels]) if q else np.zeros((len(Z), 0), int)
    ask = Ask(
        keep=np.zeros(1, int), means=centers[None], covariance=np.eye(r)[None], shares=np.full((1, k), 1 / k),
        spread=np.full((1, k), 0.01), drift=np.zeros(1),
        profiles=np.hstack([np.full((k, size), 1 / size) for size in levels])[None] if q else None,
    )  # fmt: skip
    before = [Statistics(np.zeros(k), np.zeros((k, r)), np.zeros((k, sum(levels))), np.zeros(r))]
    cells = Cells(Z, codes, tuple(levels))
    _, answer = one_round(cells, ask, before, Pool())
    return ask, answer, cells


def common_parameters(ask, levels=()):
    profiles = np.zeros((3, 0)) if ask.profiles is None else ask.profiles[0]
    return Common(ask.means[0], ask.shares[0], profiles, ask.covariance[0], ask.spread[0], 0.0)


@pytest.mark.parametrize("levels", [(), (2, 3)], ids=["numbers", "categories"])
def test_a_concept_that_is_omitted_is_counted_with_the_nearest(rng, levels):
    """The sums are those of the same rows in a coarser division: the server finds nothing wrong with them."""
    ask, answer, cells = mixture_answer(rng, [40, 30, 2], levels)
    sent = Rules(OMIT).protect(EM, answer, SimpleNamespace(cells=cells))
    common, sums = common_parameters(ask), _unpacked(sent)[0]
    assert impossible_sums(_unpacked(answer)[0], common, levels, (72,)) is None
    assert impossible_sums(sums, common, levels, (72,)) is None
    assert_allclose(sums.counts.sum(), 72)
    assert sums.counts[2] == pytest.approx(TRACE)
    t = int(sums.counts.argmax()) if sums.counts[0] > 41 else 1
    rest = 1 - t
    assert_allclose(sums.means[rest], answer.means[0, rest])  # the other one is as it was
    rows = np.vstack([cells.Z[:40], cells.Z[70:]] if t == 0 else [cells.Z[40:]])
    assert_allclose(sums.means[t] / sums.weights[t], rows.mean(axis=0), atol=1e-4)
    assert np.abs(sums.means[2] / sums.weights[2] - cells.Z[70:]).max(axis=1).min() > 1  # no row, nor their mean
    whole = (cells.Z - cells.Z.mean(axis=0)).T @ (cells.Z - cells.Z.mean(axis=0))
    means, n = sums.means / sums.weights[:, None], sums.counts
    within = sums.scatter - (means.T * sums.weights) @ means
    between = ((means - cells.Z.mean(axis=0)).T * n) @ (means - cells.Z.mean(axis=0))
    assert_allclose(within + between, whole, rtol=1e-4, atol=1e-2)  # as for any division of rows
    if levels:
        t_rows = sums.level_weights[t] / (1 - sums.level_weights[t] * 0.01)
        assert_allclose(t_rows, len(rows), rtol=1e-6)
        assert not sums.levels[2].any()


def test_all_clusters_may_be_small_but_not_the_silo(rng):
    _, answer, _ = mixture_answer(rng, [3, 2, 4])
    sent = Rules(OMIT).protect(SETTLE, answer, None)
    assert (sent.counts > 5 - 3 * TRACE).sum() == 1
    assert sent.counts.sum() == pytest.approx(9)
    with pytest.raises(TrustError, match="nothing would be left"):
        Rules(Policy(small_cluster="omit", min_cluster=10)).protect(SETTLE, answer, None)


@pytest.mark.parametrize("view", ["mixture", "graph"])
def test_a_silo_that_omits_is_not_set_aside(rng, view):
    """Sums that no rows can give are refused by the server; those of a silo with rules are none of these."""
    data = {name: np.vstack([rng.normal(m, 0.5, (n, 4)) for m, n in ((0, 20), (5, 15), (9, 2))]) for name in "abc"}
    settings = Settings(3, view=view, scale="none", max_iter=5)
    transport = ruled(LocalTransport(data, settings, method=view_method(view)), replace(QUIET, small_cluster="omit"))
    result = run(transport, settings, method=view_method(view))
    assert sorted(transport.results()) == ["a", "b", "c"]
    assert not result.missing
    assert not any(record.missing for record in result.history)


# ---------------------------------------------------------------------------------------------------------- findings


def test_small_clusters_are_found(rng):
    rules = Rules(Policy())
    assert [found.rule for found in rules.check(SEED, seeded(20, 4, 0.1), None)] == ["small cluster"]
    assert rules.check(SEED, seeded(20, 5, 0.1), None) == []
    (found,) = rules.check(FINISH, None, clustered(rng, [20, 3]))
    assert "the smallest 3:" in found.sentence
    assert rules.check(FINISH, None, clustered(rng, [20, 6])) == []
    assert rules.check(SEED, seeded(20, 4), None) and not Rules(QUIET).check(SEED, seeded(20, 4), None)


def stated(X, W=None, ridge=0.01):
    factors = RidgeFactors(X, ridge)
    F = X[:, :2] + 0.3 * np.random.default_rng(1).normal(size=(len(X), 2))
    return SimpleNamespace(X=X, rows=factors.X, factors=factors, F=F, W=factors.solve(F, np.zeros((X.shape[1], 2))))


def test_few_rows_for_many_columns_are_found(rng):
    rules = Rules(Policy(dominance="off"))
    (found,) = rules.check(ROUND, None, stated(rng.normal(size=(20, 8))))
    assert (found.rule, found.action) == ("few rows", "warn")
    assert "span" not in found.sentence
    assert "span" in rules.check(COORDINATES, None, stated(rng.normal(size=(7, 8))))[0].sentence
    assert rules.check(ROUND, None, stated(rng.normal(size=(24, 8)))) == []
    assert rules.check(ROUND, None, stated(rng.normal(size=(7, 8))), first=False) == []


def test_a_record_that_dominates_is_held_and_one_that_stands_out_is_told(rng):
    calm = rng.normal(size=(400, 3))
    rules = Rules(Policy())
    assert rules.check(ROUND, None, stated(calm)) == []
    loud = np.vstack([calm, [[300.0, 0, 0]]])
    (found,) = rules.check(ROUND, None, stated(loud))
    assert (found.rule, found.action) == ("dominance", "ask")
    assert "at fixed embedding" in found.sentence
    middle = stated(np.vstack([calm, [[12.0, 0, 0]]]))
    middle.own = clustered(rng, [200, 201]).own
    assert [one.action for one in rules.check(FINISH, None, middle)] == ["warn"]
    assert [one.action for one in Rules(Policy(dominance="refuse")).check(ROUND, None, stated(loud))] == ["refuse"]


# ------------------------------------------------------------------------------------------------------------ policy


def test_a_policy_goes_through_a_file(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text('min_cluster = 8\nsmall_cluster = "ask"\ninfluence = [0.01, 0.02]\n')
    policy = Policy.read(path)
    assert policy == Policy(min_cluster=8, small_cluster="ask", influence=(0.01, 0.02))
    assert Policy.from_dict(json.loads(json.dumps(asdict(policy)))) == policy
    assert policy.asks and not Policy(dominance="warn").asks


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('few_row = "warn"', "did you mean 'few_rows'"),
        ('dominance = "omit"', "'off', 'warn', 'ask', 'refuse'"),
        ("min_cluster = 0", "at least 1"),
        ("min_cluster = 2.5", "whole number"),
        ("leverage = [0.5, 0.2]", "lower one first"),
        ("rows_per_column = -1", "at least 0"),
        ("min_cluster = ", "is no policy"),
        ("min_cluster = " + 9999 * "[", "is no policy: it is nested too deeply"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_one_sentence(tmp_path, text, word):
    (tmp_path / "rules.toml").write_text(text)
    with pytest.raises(FileError, match=word):
        Policy.read(tmp_path / "rules.toml")
    with pytest.raises(FileError, match="is missing"):
        Policy.read(tmp_path / "none.toml")


# ------------------------------------------------------------------------------------------------------- in the outbox

ASK = Message("seed", SEED.Ask(centers=np.zeros((1, 2, 3)), weights=np.ones((1, 3))))


def release(outbox, answer, turn=0):
    return outbox.release(SEED, replace(ASK, turn=turn), answer, {"k": 2}, Settings(2))


def test_a_warning_is_said_once_and_stands_in_the_ledger():
    outbox = Outbox(MemoryLedger(), "a", "run1", rules=Rules(Policy()))
    with pytest.warns(UserWarning, match="fewer than 5 rows"):
        release(outbox, seeded(20, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release(outbox, seeded(20, 2), turn=1)
        release(outbox, seeded(20, 9), turn=2)
    assert [line.get("rules") for line in outbox.ledger.lines()] == [["small cluster"], ["small cluster"], None]


def test_what_is_refused_does_not_leave_and_leaves_no_line():
    outbox = Outbox(MemoryLedger(), "a", "run1", rules=Rules(Policy(small_cluster="refuse")))
    with pytest.raises(TrustError, match="'a' does not answer"):
        release(outbox, seeded(20, 3))
    assert outbox.ledger.lines() == []
    release(outbox, seeded(20, 9))
    assert len(outbox.ledger.lines()) == 1


@pytest.mark.filterwarnings("ignore:before an answer left")
def test_a_person_is_asked_where_a_rule_holds_and_told_why():
    asked = []

    def person(shown):
        asked.append(shown)
        return len(asked) > 1

    outbox = Outbox(MemoryLedger(), "a", "run1", rules=Rules(Policy(small_cluster="ask"), person))
    release(outbox, seeded(20, 9))  # nothing to ask about
    with pytest.raises(WithheldError):
        release(outbox, seeded(20, 3), turn=1)  # though it is not the first of its phase
    release(outbox, seeded(20, 3), turn=1)
    release(outbox, seeded(20, 2), turn=2)  # was approved
    assert [shown["phase"] for shown in asked] == ["seed", "seed"]
    assert "fewer than 5 rows" in asked[0]["why"][0]
    assert len(outbox.ledger.lines()) == 3


@pytest.mark.filterwarnings("ignore:before an answer left")
def test_where_nobody_can_be_asked_it_does_not_leave():
    outbox = Outbox(MemoryLedger(), "a", "run1", rules=Rules(Policy(small_cluster="ask")))
    with pytest.raises(WithheldError, match="nobody to ask"):
        release(outbox, seeded(20, 3))
    assert outbox.ledger.lines() == []


def test_omitted_sums_are_what_the_ledger_has_and_the_server_gets():
    outbox = Outbox(MemoryLedger(), "a", "run1", rules=Rules(OMIT))
    sent = release(outbox, seeded(20, 3))
    assert_array_equal(sent.counts, [[23, 0]])
    assert release(outbox, seeded(20, 3)).counts[0, 1] == 0  # asked again
    assert [line["kind"] for line in outbox.ledger.lines()] == ["release", "replay"]


def test_rules_of_a_run_in_this_process(rng):
    settings = Settings(3, view="graph", scale="none", max_iter=3)
    data = outlier_federation(rng)
    plain = LocalTransport(data, settings)
    run(plain, settings)  # quiet: warnings are errors here
    transport = ruled(LocalTransport(data, settings), Policy(small_cluster="off", dominance="warn"))
    with pytest.warns(UserWarning, match="at fixed embedding"):
        run(transport, settings)
    spoken = {rule for line in transport.ledgers["a"].lines() for rule in line.get("rules", ())}
    assert "dominance" in spoken
    assert_array_equal(transport.results()["a"].labels, plain.results()["a"].labels)  # a warning changes nothing
