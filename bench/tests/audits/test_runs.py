"""Audits of whole runs: the tap sees what leaves, attacks find what leaks, and broken noise is caught.

Noise of private runs comes from the operating system and has no seed. Tests that use it leave margins of more than six
standard errors, or run the audit at a confidence of 1 - 1e-7: they fail by chance less than once in a million runs.
Tests that break the noise replace it by seeded noise, and do not depend on chance at all.
"""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc import Privacy
from fmtc.errors import DataError
from fmtc.kernels.projection import RidgeFactors
from fmtc.privacy.keys import Keys
from fmtc.protocol.base import pack, value_digest
from fmtc.protocol.method import view_method
from fmtc.protocol.private import view as private
from fmtc.settings import Settings
from fmtc_bench.audits.attacker import statistics
from fmtc_bench.audits.runs import audit_canary, audit_influence, audit_members, audit_span
from fmtc_bench.audits.tap import UNPLANNED, PrivateStages, tapped_run

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

GRAPH = Settings(2, view="graph", scale="none", max_iter=3, tol=0)
MIXTURE = Settings(2, view="mixture", scale="none", max_iter=1, n_init=1)
SUMS = replace(GRAPH, coupling="subspace", privacy="sums")
PRIVATE = Settings(2, privacy=Privacy(epsilon=8, bounds=(-4, 4), method="anchors"))


def rows(rng, n=24, d=8, silos=3):
    return {name: rng.normal(size=(n, d)) for name in "abcdefghij"[:silos]}


# ---------------------------------------------------------------------------------------------------------------- tap


def test_the_tap_has_what_the_ledger_has(rng):
    data = rows(rng)
    tap, result = tapped_run(data, GRAPH, view_method("graph"))
    assert result.converged is not None
    for cid, ledger in tap.transport.ledgers.items():
        left = [
            (one.phase, one.round_no, [value_digest(v) for v in pack(one.answers[cid]).values()]) for one in tap.passed
        ]
        lines = [(x["phase"], x["round"], [field["sha256"] for field in x["fields"]]) for x in ledger.lines()]
        assert left == lines


def test_under_sums_the_tap_has_the_total_that_the_server_opens_and_no_matrix(rng):
    data = rows(rng)
    tap, _ = tapped_run(data, SUMS, view_method("graph", "sums"), until="frame")
    first = tap.of("round")[0]
    assert not any(hasattr(answer, "W") for answer in first.answers.values())
    W = {cid: state.T for cid, state in tap.of("round")[1].before.items()}  # T = W in the first round
    G = sum(part @ part.T for part in W.values())
    assert_allclose(first.total.gram, G[np.triu_indices(8)], atol=1e-9)


def test_a_run_ends_before_the_phase_that_is_named(rng):
    tap, result = tapped_run(rows(rng), GRAPH, view_method("graph"), until="finish")
    assert result is None
    assert tap.passed[-1].phase == "round"


# ------------------------------------------------------------------------------------------------------------ members


@pytest.mark.parametrize("settings", [GRAPH, SUMS, MIXTURE], ids=["plain", "sums", "mixture"])
def test_a_small_silo_gives_its_members_away(rng, settings):
    """Without noise the attack finds members, under sums as well: a sum hides whose record it is, not whether."""
    found = audit_members(rows(rng, d=12), settings, "a", runs=32)
    assert found.attack.auc.low > 0.52
    assert (found.rows, found.clients, found.epsilon, found.broken) == (24, 3, None, False)
    assert ("totals" in found.mode) == (settings.privacy == "sums")


def test_private_sums_do_not(rng):
    """960 pairs give a standard error of 0.02, of records and runs resampled; 0.15 is seven of them."""
    settings = replace(PRIVATE, privacy=replace(PRIVATE.privacy, epsilon=1))
    found = audit_members(rows(rng, n=30, d=3), settings, "a", runs=32)
    assert abs(found.attack.auc.value - 0.5) < 0.15
    assert found.attack.epsilon_at_least <= 1
    assert not found.broken
    assert found.epsilon == 1
    noiseless = replace(PRIVATE, privacy=replace(PRIVATE.privacy, epsilon=float("inf")))
    assert audit_members(rows(rng, n=30, d=3), noiseless, "a", runs=24).attack.auc.low > 0.6


def test_a_claim_without_noise_is_broken(rng, monkeypatch):
    for phase in private.MASKED.values():
        monkeypatch.setattr(phase, "noise", lambda ask, settings: {"total": 1e-9})
    settings = replace(PRIVATE, privacy=replace(PRIVATE.privacy, epsilon=0.5))
    found = audit_members(rows(rng, n=30, d=6), settings, "a", runs=40)
    assert found.attack.epsilon_at_least > 0.5
    assert found.broken


def test_other_rows_than_those_of_the_target_do_not_matter_to_what_is_read(rng):
    """The attacker reads messages and public units; its numbers are the same if the target's state lost its rows."""
    data = rows(rng)
    tap, _ = tapped_run(data, GRAPH, view_method("graph"), until="finish")
    state = tap.clients["a"]
    blind = replace(state, X=np.zeros((3, 8)), rows=None, F=None, W=None, factors=None, graph=None)
    X = rng.normal(size=(5, 8))
    assert_array_equal(statistics(tap.passed, state, X, GRAPH, "a"), statistics(tap.passed, blind, X, GRAPH, "a"))


def test_rows_too_few_for_shadow_runs_are_refused(rng):
    with pytest.raises(DataError, match="need at least 12"):
        audit_members(rows(rng, n=8), GRAPH, "a")
    with pytest.raises(DataError, match="at least 8"):
        audit_members(rows(rng), GRAPH, "a", runs=4)


# ------------------------------------------------------------------------------------------------------------- canary


def seeded(share=1.0):
    """Noise of the right law, or of a share of it, from a seed."""
    rng = np.random.default_rng(5)
    return lambda sd, size: np.rint(rng.normal(0, share * sd, size)).astype(np.int64)


CLAIM = Privacy(epsilon=12, delta=1e-5, method="anchors", colluding=0)  # few runs tell much where little noise is due


def test_the_right_noise_passes():
    found = audit_canary(CLAIM, runs=120, noise=seeded())
    assert not found.caught
    assert found.epsilon_at_least > 5  # and the canary is not blind: the corner adds nearly what is allowed


def test_the_noise_of_the_product_passes():
    found = audit_canary(CLAIM, runs=24, confidence=1 - 1e-7)
    assert not found.caught
    assert found.auc > 0.6


@pytest.mark.parametrize("share", [0.0, 0.5], ids=["off", "halved"])
def test_too_little_noise_is_caught(share):
    found = audit_canary(CLAIM, runs=64, noise=seeded(share))
    assert found.caught
    assert found.epsilon_at_least > found.epsilon


def test_a_sensitivity_that_is_too_small_is_caught(monkeypatch):
    for phase in (private.MEAN, private.RADIUS, private.GRAM, *private.ANCHORS, private.LINKS):
        monkeypatch.setattr(phase, "stage", replace(phase.stage, sensitivity=phase.stage.sensitivity / 2))
    assert audit_canary(CLAIM, runs=64, noise=seeded()).caught


def test_the_stages_are_those_of_a_run(rng, monkeypatch):
    """Without noise, what the audit releases is to the last bit what a tapped run sends."""
    data = {name: rng.uniform(0.3, 0.7, (20, 2)) for name in "abc"}
    settings, seal = Settings(2, privacy=Privacy(epsilon=8, bounds=(0, 1), method="anchors")), Keys.seal
    silent = {"noise": lambda sd, size: np.zeros(size, np.int64)}
    monkeypatch.setattr(Keys, "seal", lambda self, *args, **options: seal(self, *args, **{**options, **silent}))
    seen = PrivateStages(data, np.ones(2), settings)(False, 0)
    tap, _ = tapped_run(data, settings, UNPLANNED, until="home")
    totals = {one.phase: one.total.total for one in tap.passed if one.total is not None}
    assert list(totals) == [one.stage for one in seen]
    for one in seen:
        assert_array_equal(one.released, totals[one.stage])
        assert_allclose(one.others, one.released, atol=1e-5)  # rounding to the grid


# ------------------------------------------------------------------------------------------------- influence and span


def test_influence_is_that_of_a_refit_at_fixed_embedding(rng):
    data = rows(rng, n=30, d=5)
    data["b"][7] *= 20
    told = [one for one in audit_influence(data, GRAPH) if one.client == "b"]
    assert [one.round_no for one in told] == [1, 3]
    tap, _ = tapped_run(data, GRAPH, view_method("graph"), until="finish")
    first = tap.of("round")[0]
    state, W = first.before["b"], first.answers["b"].W
    M, F, ridge = (state.factors.X.T @ np.eye(30)).T, state.F, state.factors.ridge
    change = []
    for i in range(30):
        rest = np.delete(np.arange(30), i)
        change.append(np.linalg.norm(RidgeFactors(M[rest], ridge).solve(F[rest], np.zeros((5, 2))) - W))
    assert told[0].largest == pytest.approx(max(change) / np.linalg.norm(W), rel=1e-6)
    assert told[0].top_row == np.argmax(change)
    assert told[0].leverage > 0.5
    assert told[0].q99 <= told[0].largest


def test_the_span_of_few_rows_is_known_and_that_of_many_is_everything(rng):
    data = {"few": rng.normal(size=(10, 30)), "sparse": sp.csr_array(rng.normal(size=(9, 30)))}
    found = audit_span({"few": data["few"], "other": rng.normal(size=(12, 30))}, replace(GRAPH, max_iter=8))
    assert found["few"].exact
    assert found["few"].rank == 9  # centred
    assert audit_span({"a": data["sparse"], "b": data["sparse"] * 2}, replace(GRAPH, max_iter=8))["a"].rank == 9
    assert not audit_span(rows(rng, n=30, d=5), GRAPH)["a"].exact


def test_the_mixture_sends_no_projection_to_audit(rng):
    with pytest.raises(DataError, match="sends no projection"):
        audit_influence(rows(rng), MIXTURE)


def test_in_a_run_no_centre_that_leaves_is_a_row(rng):
    """The first silo has one row far from all."""
    blobs = [np.vstack([rng.normal(m, 0.3, (15, 4)) for m in (0, 4)]) for _ in range(2)]
    data = {"a": np.vstack([blobs[0], [[0, 30, 0, 0]]]), "b": blobs[1]}
    settings = Settings(3, view="graph", scale="none", max_iter=3)
    tap, _ = tapped_run(data, settings, view_method("graph"), until="settle")
    (finish,) = tap.of("finish")
    own = tap.clients["a"].own
    assert np.bincount(own.labels, minlength=3).min() == 1  # the row that is alone
    assert np.linalg.norm(own.E[:, None] - own.model.centers, axis=2).min(axis=0).min() < 1e-9  # its centre at home
    gaps = np.linalg.norm(own.E[:, None] - finish.answers["a"].centers, axis=2)
    assert gaps.min(axis=0).min() > 1e-6
