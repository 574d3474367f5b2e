"""privacy="sums": the server sees sums only, and comes to what it comes to in the clear."""

import warnings
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from tests.views import FEW

import fmtc.protocol.sums.graph as subspace
from fmtc import FMTC, Graph, load
from fmtc.errors import DataError, InputError, TrustError
from fmtc.kernels.couplings.subspace import directions, directions_from_sketch
from fmtc.linalg import fixed
from fmtc.protocol.base import Failure, Nothing
from fmtc.protocol.method import METHODS, method_of, view_method
from fmtc.protocol.sums.cards import CARDS, ROSTER
from fmtc.protocol.sums.masking import Masked, Masking
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings, by_view


def blobs(m=3, n=40, d=6, k=3, seed=0):
    rng = np.random.default_rng(seed)
    centers = 3 * rng.normal(size=(k, d))
    return {f"silo {t}": centers[rng.integers(k, size=n)] + rng.normal(size=(n, d)) for t in range(m)}


def digits(m=4, n=120):
    X = load_digits().data
    order = np.random.default_rng(0).permutation(len(X))
    return {f"s{t}": X[order[t::m][:n]] for t in range(m)}


class Tap(LocalTransport):
    """The local transport, with a copy of every answer that the server gets, and of labels before common centres."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.heard = []  # (message, answers) of every exchange
        self.before = {}
        self.contexts = {}  # by client and place of the question: what its answer was masked with
        for cid, keys in self.keys.items():
            keys.seal = partial(self._seal, cid, keys.seal)

    def _seal(self, cid, seal, phase, message, answer, settings, context=""):
        self.contexts[cid, message.key] = context
        return seal(phase, message, answer, settings, context)

    def exchange(self, messages):
        replies = super().exchange(messages)
        self.heard.append((dict(messages), dict(replies.answers)))
        if next(iter(messages.values())).phase == "finish":
            self.before = {cid: node.client.own.labels for cid, node in self.nodes.items()}
        return replies


def fitted(data, privacy, **options):
    given = {"n_clusters": 3, "coupling": "subspace", "max_iter": 6, "random_state": 0, "n_init": 2, **options}
    model = FMTC(**by_view(given), privacy=privacy)
    settings = model._settings()
    method = view_method(settings.view, settings.privacy)
    transport = Tap(data, settings, method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transport, run(transport, settings, method=method)


# --------------------------------------------------------------------------------------------------------------- parity


def test_projections_and_labels_are_those_of_the_clear_run():
    data = digits()
    ours, theirs = (
        fitted(data, privacy, n_clusters=10, view="graph", tol=0, max_iter=8)[0] for privacy in ("sums", None)
    )
    for cid in data:
        W, V = ours.clients[cid].W, theirs.clients[cid].W
        assert np.abs(W @ W.T - V @ V.T).max() < 1e-9 * np.abs(V @ V.T).max()
        assert adjusted_rand_score(ours.before[cid], theirs.before[cid]) == 1


def test_directions_from_a_sketch_are_those_of_the_sum():
    rng = np.random.default_rng(0)
    T = rng.normal(size=(200, 12)) * np.geomspace(1, 1e-3, 12)
    omega = subspace.omega(200, 20, seed=5)
    _, s, none = directions(T @ T.T)
    V, r, too = directions_from_sketch(T @ (T.T @ omega), omega)
    assert max(none, too) < 1e-9
    assert_allclose(r, s[:12], rtol=1e-8)
    assert_allclose(V @ np.diag(r**2) @ V.T, T @ T.T, atol=1e-12)
    assert s[12:].max() < 1e-6


def test_a_narrow_sum_is_sketched_and_comes_to_the_same():
    data = {cid: np.hstack([X, np.random.default_rng(1).normal(size=(len(X), 74))]) for cid, X in blobs().items()}
    wide, _ = fitted(data, "sums", view="graph", max_iter=8, tol=0, scale="none")
    clear, _ = fitted(data, None, view="graph", max_iter=8, tol=0, scale="none")
    sizes = {len(a.words) for messages, answers in wide.heard for a in answers.values()
             if next(iter(messages.values())).phase == "round"}  # fmt: skip
    assert sizes == {80 * (3 * 3 + 8) + 6 + 1}
    for cid in data:
        ours, theirs = wide.clients[cid].W, clear.clients[cid].W
        assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-9 * np.abs(theirs @ theirs.T).max())


@pytest.mark.parametrize("holes", [False, True])
def test_a_mixture_of_sums_is_the_mixture(holes):
    data = blobs()
    if holes:
        rng = np.random.default_rng(3)
        data = {cid: np.where(rng.random(X.shape) < 0.2, np.nan, X) for cid, X in data.items()}
    ours, theirs = (fitted(data, privacy, view="mixture")[0] for privacy in ("sums", None))
    for cid in data:
        assert_array_equal(ours.results()[cid].labels, theirs.results()[cid].labels)
        assert_allclose(ours.results()[cid].model.means, theirs.results()[cid].model.means, atol=1e-6)


def test_categories_and_sparse_rows_are_summed_too():
    import polars as pl

    rng = np.random.default_rng(0)
    frames = {
        cid: pl.DataFrame({"x": X[:, 0], "y": X[:, 1], "kind": rng.choice(["u", "v"], len(X))})
        for cid, X in blobs().items()
    }
    clear = FMTC(3, random_state=0, mixture=FEW).fit(frames)
    ours = FMTC(3, random_state=0, privacy="sums", mixture=FEW).fit(frames)
    assert adjusted_rand_score(clear.labels_, ours.labels_) > 0.99
    words = {cid: sp.csr_array(rng.poisson(0.4, size=(40, 90)).astype(float)) for cid in frames}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (
            len(FMTC(3, random_state=0, privacy="sums", scale="tfidf", max_iter=3, mixture=FEW).fit(words).labels_)
            == 120
        )


def test_auto_takes_the_same_view():
    for data in (blobs(), digits(3, 60)):
        ours, theirs = (fitted(data, privacy, view="auto", max_iter=4) for privacy in ("sums", None))
        assert ours[1].server.view == theirs[1].server.view
        assert ours[1].server.why == theirs[1].server.why


def test_numbers_mean_the_same_everywhere():
    data = blobs(m=5, n=60)
    model = FMTC(3, view="graph", scale="global", random_state=0, privacy="sums").fit(data)
    rows = next(iter(data.values()))
    labels = [model.predict(rows, silos=cid) for cid in data]
    assert min(np.mean(labels[0] == other) for other in labels) > 0.95


def test_the_same_seed_gives_the_same_model_though_masks_differ():
    data = blobs()
    one, two = (fitted(data, "sums", view="graph", max_iter=4) for _ in range(2))
    for cid in data:
        assert_array_equal(one[0].results()[cid].model.W, two[0].results()[cid].model.W)
        assert_array_equal(one[0].results()[cid].labels, two[0].results()[cid].labels)
    words = [
        [answer.words for _, answers in tap.heard for answer in answers.values() if isinstance(answer, Masked)]
        for tap, _ in (one, two)
    ]
    assert all((a != b).any() for a, b in zip(*words, strict=True))


# ----------------------------------------------------------------------------------------------- what the server sees


@pytest.mark.parametrize("name", [name for name in METHODS if name.endswith("-sums")])
def test_nothing_of_a_single_client_is_declared(name):
    method = method_of(name)
    assert method.masks
    for phase in method.phases:
        assert isinstance(phase, Masking) or phase in (CARDS, ROSTER) or not fields(phase.Answer), phase.name


@pytest.mark.parametrize("view", ["graph", "mixture"])
def test_the_transcript_opens_only_with_the_keys_of_all_others(view):
    data = blobs(m=4)
    tap, result = fitted(data, "sums", view=view, max_iter=3)
    names = sorted(data)
    victim, _, *others = names
    seen = 0
    for messages, answers in tap.heard:
        phase = tap.method.phase(next(iter(messages.values())).phase)
        for answer in answers.values():
            assert isinstance(answer, Masked | Nothing | CARDS.Answer | ROSTER.Answer | Failure)
        if not isinstance(phase, Masking):
            continue
        seen += 1
        message = messages[victim]
        limbs = phase.inner.limbs
        true = opened_by(tap, victim, message, answers[victim], limbs, names)
        assert np.abs(true[:-1]).max() < 1e12 * 2.0**phase.inner.fraction  # everybody else's keys: it is open
        assert true[-1] == 1
        closed = opened_by(tap, victim, message, answers[victim], limbs, others)  # all keys but one
        assert closed[-1] != 1
        half = 2.0 ** (64 * limbs - 1)
        if len(closed) > 50:  # uniform over the whole range
            assert np.abs(closed).mean() == pytest.approx(half / 2, rel=0.5)
            assert abs(np.corrcoef(true, closed)[0, 1]) < 0.5
    assert seen > 10
    W = getattr(tap.clients[victim], "W", None)
    for array in arrays_of(result.server):
        if W is not None and array.shape[:2] == W.shape:
            assert np.abs(array.reshape(*W.shape, -1)[..., 0] - W).max() > 1e-3 * np.abs(W).max()


def opened_by(tap, victim, message, answer, limbs, helpers):
    """The victim's words less the masks that it shares with the helpers, who hand over what they know."""
    words = answer.words.reshape(-1, limbs)
    keys = tap.keys[victim]
    known = {other: tap.keys[other].secrets[victim] for other in helpers if other != victim}
    from fmtc.privacy.keys import mask
    from fmtc.protocol.base import value_digest

    context = tap.contexts[victim, message.key]
    label = (message.phase, str(message.round_no), str(message.turn), value_digest(message.asked + context))
    zeros = np.zeros_like(words)
    masks = mask(zeros, victim, known, keys.run_id, keys.roster, label)
    return fixed.decode(fixed.added(words, fixed.negated(masks)), 0)


def arrays_of(state):
    for f in fields(state):
        value = getattr(state, f.name)
        if isinstance(value, np.ndarray):
            yield value


# ------------------------------------------------------------------------------------------------------------ refusals


def test_what_cannot_be_summed_is_refused_with_a_sentence():
    with pytest.raises(InputError, match="at least 3 silos"):
        FMTC(3, privacy="sums").fit(blobs(m=2))
    with pytest.raises(InputError, match="silo_weights"):
        FMTC(3, privacy="sums").fit(blobs(), silo_weights={f"silo {t}": t + 1 for t in range(3)})
    with pytest.raises(ValueError, match="sums"):
        FMTC(3, privacy="secret").fit(blobs())
    with pytest.raises(ValueError, match="average"):
        FMTC(3, privacy="sums", graph=Graph(coupling="average")).fit(blobs())
    with pytest.raises(ValueError, match="subspace"):
        FMTC.as_published(3, privacy="sums").fit(blobs())
    assert FMTC(3, privacy="sums")._settings().coupling == "subspace"


def test_a_client_less_is_refused_before_anything_leaves():
    model = FMTC(3, privacy="sums", random_state=0, mixture=FEW)
    settings = model._settings()
    method = view_method(settings.view, settings.privacy)
    transport = LocalTransport(blobs(m=4), settings, method=method)
    with pytest.raises(TrustError, match="difference of two sums"):
        run(transport, settings, method=method, min_clients=3)
    assert not any(ledger.lines() for ledger in transport.ledgers.values())


def test_rows_that_are_all_equal_stay_at_home():
    data = blobs() | {"flat": np.ones((40, 6))}
    with pytest.raises(DataError, match="constant in silo 'flat'"):
        FMTC(3, view="graph", scale="none", privacy="sums").fit(data)


def test_other_columns_are_noticed_in_the_sum():
    data = blobs()
    settings = replace(Settings(n_clusters=3, view="mixture", scale="auto", privacy="sums"))
    method = view_method("mixture", "sums")
    transport = LocalTransport(data | {"silo 1": data["silo 1"][:, :5]}, settings, method=method)
    with pytest.raises(DataError, match="disagree on the columns"):
        run(transport, settings, method=method)


def test_a_sum_that_no_projections_can_give_ends_the_run():
    """One silo that sends noise; whose it was cannot be said."""
    settings = FMTC(3, view="graph", privacy="sums", random_state=0)._settings()
    method = view_method("graph", "sums")
    transport = LocalTransport(blobs(), settings, method=method)
    keys, rng = transport.keys["silo 1"], np.random.default_rng(0)
    seal = keys.seal

    def noisy(phase, message, answer, settings, context=""):
        if phase.name == "round":
            answer = replace(answer, gram=100 * rng.normal(size=answer.gram.shape))
        return seal(phase, message, answer, settings, context)

    keys.seal = noisy
    with pytest.raises(TrustError, match="no honest answer"):
        run(transport, settings, method=method)


def test_an_answer_that_changes_under_its_mask_does_not_leave():
    data = blobs()
    tap, _ = fitted(data, "sums", view="mixture", max_iter=2)
    messages = next(messages for messages, _ in tap.heard if next(iter(messages.values())).phase == "coordinates")
    node, message = tap.nodes["silo 0"], messages["silo 0"]
    node.client = replace(node.client, X=node.client.X + 1.0)
    with pytest.raises(TrustError, match="same mask"):
        node.answer(message)


# ------------------------------------------------------------------------------------------------------------- resume


@pytest.mark.parametrize("view", ["graph", "mixture"])
def test_a_run_resumes_from_its_checkpoint(tmp_path, view):
    data, options = blobs(), {"view": view, "privacy": "sums", "random_state": 0, "tol": 0, "mixture": FEW}
    whole = FMTC(3, **by_view({"max_iter": 4} | options)).fit(data)
    FMTC(3, **by_view({"max_iter": 2} | options)).fit(data, checkpoint=tmp_path / "c")
    resumed = FMTC(3, **by_view({"max_iter": 4} | options)).fit(data, checkpoint=tmp_path / "c", resume=True)
    assert_array_equal(resumed.labels_, whole.labels_)
    keys = next((tmp_path / "c").rglob("keys.json"))
    assert keys.stat().st_mode & 0o077 == 0


def test_models_of_sums_save_load_and_predict(tmp_path):
    data = blobs()
    rows = data["silo 0"]
    for view in ("graph", "mixture"):
        model = FMTC(3, view=view, privacy="sums", random_state=0, mixture=FEW).fit(data)
        again = load(model.save(tmp_path / view))
        assert again.privacy == "sums"
        assert_array_equal(again.predict(rows, silos="silo 0"), model.predict(rows, silos="silo 0"))
