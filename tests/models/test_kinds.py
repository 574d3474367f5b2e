"""Every kind of model answers the same questions: of new rows, of its clusters, of itself."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from tests.views import FEW, graph_view

from fmtc import FMTC
from fmtc.errors import InputError, NotFiniteError
from fmtc.models import KINDS, AnchorModel, GraphModel, base, project
from fmtc.settings import Settings


@pytest.fixture
def fitted(make_federation, play):
    """Clients after a short run, with the data they were fitted on."""
    data = make_federation(n=(50, 70, 90), distance=4.0)
    game = play(data, Settings(n_clusters=3, n_neighbors=20, final="kmeans")).open().rounds(4)
    for name in ("finish", "number"):
        game.phase(name)
    return game.clients, data


def test_assigning_training_rows_gives_their_labels(fitted):
    clients, data = fitted
    for cid, X in data.items():
        assert_array_equal(clients[cid].model.assign(X), clients[cid].labels)
        assert_array_equal(np.unique(clients[cid].labels), [0, 1, 2])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_memberships_sum_to_one_and_agree_with_the_labels(fitted, rng, dtype):
    clients, data = fitted
    model = clients["a"].model
    model = GraphModel(model.W.astype(dtype), model.centers.astype(dtype), model.spread, model.mean.astype(dtype))
    X = np.vstack([data["a"], 10 * rng.normal(size=(300, 6)), model.mean[None]]).astype(dtype)
    P = model.probabilities(X)
    assert P.dtype == dtype
    assert (P >= 0).all()
    assert_allclose(P.sum(axis=1), 1, rtol=10 * np.finfo(dtype).eps)
    assert_array_equal(P.argmax(axis=1), model.assign(X))


def test_memberships_are_those_of_round_gaussians(fitted):
    clients, data = fitted
    model = clients["b"].model
    E = project(data["b"], model.W, model.mean)
    variance = model.spread / 3  # per coordinate
    density = np.exp(-np.square(E[:, None] - model.centers).sum(axis=2) / (2 * variance))
    assert_allclose(model.probabilities(data["b"]), density / density.sum(axis=1, keepdims=True), atol=1e-12)


def test_memberships_of_a_client_without_spread():
    model = GraphModel(np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0]]), 0.0, None)
    P = model.probabilities(np.array([[2.0, 0.0], [0.1, 0.3], [1.0, 1.0]]))
    assert_allclose(P, [[1, 0], [0, 1], [0.5, 0.5]], atol=1e-12)


def test_new_rows_are_projected_row_by_row(rng):
    W, mean = rng.normal(size=(5, 3)), rng.normal(size=5)
    X = rng.normal(size=(20, 5))
    E = project(X, W, mean)
    assert_allclose(np.linalg.norm(E, axis=1), 1, rtol=1e-12)
    assert_allclose(project(mean + 7 * (X - mean), W, mean), E, atol=1e-12)  # only the direction counts
    assert_allclose(project(sp.csr_array(X), W, mean), E, atol=1e-12)
    assert_array_equal(project(mean[None], W, mean), np.zeros((1, 3)))  # a row at the mean has none
    assert_allclose(np.vstack([project(X[[i]], W, mean) for i in range(20)]), E, atol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("answer", ["assign", "probabilities"])
def test_rows_that_are_not_finite_are_refused(rng, answer, bad):
    model = GraphModel(rng.normal(size=(4, 2)), np.eye(2), 0.1, None)
    X = rng.normal(size=(9, 4))
    X[3, 1] = bad
    with pytest.raises(NotFiniteError):
        getattr(model, answer)(X)


@pytest.mark.parametrize("answer", ["assign", "probabilities", "transform"])
def test_answers_do_not_depend_on_the_size_of_a_block(monkeypatch, rng, answer):
    X = rng.normal(size=(53, 4))
    model = graph_view(3, random_state=0, max_iter=3).fit(X)._models["all"]
    whole = getattr(model, answer)(X)
    monkeypatch.setattr(base, "BLOCK", 7)
    assert_allclose(getattr(model, answer)(X), whole, rtol=0, atol=1e-13)


def test_rows_are_measured_in_the_units_of_the_model(rng):
    X = rng.normal(size=(9, 4))
    plain = GraphModel(np.eye(4), np.eye(4), 0.1, None)
    assert plain.scaled(X) is X
    scaled = GraphModel(np.eye(4), np.eye(4), 0.1, None, np.array([2.0, 4.0, 1.0, 0.5]))
    assert_allclose(scaled.scaled(X), X / [2.0, 4.0, 1.0, 0.5])
    words = GraphModel(np.eye(4), np.eye(4), 0.1, None, np.array([2.0, 4.0]), np.array([0, 3]))
    E = X[:, [0, 3]] / [2.0, 4.0]
    assert_allclose(words.scaled(X), E / np.linalg.norm(E, axis=1, keepdims=True))


# ------------------------------------------------------------------------------------------------- all kinds of model

PUBLIC = AnchorModel(
    np.full(4, -10.0), np.full(4, 10.0), None, np.zeros(4), 1.0, np.eye(4), 1.0, 0.2 * np.eye(4)[:3], np.arange(3), 3,
    0.05,
)  # fmt: skip
FITTED = {
    "graph": graph_view(3, random_state=0),
    "graph, unit centres": graph_view(3, random_state=0, final="kmeans"),
    "mixture": FMTC(3, view="mixture", random_state=0, mixture=FEW),
    "anchors": PUBLIC,
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return {name: np.repeat(4 * np.eye(4)[:3], 30, axis=0) + rng.normal(size=(90, 4)) for name in "ab"}


@pytest.fixture(scope="module", params=FITTED)
def model(request, rows):
    """A model of each kind, with three clusters of four columns."""
    found = FITTED[request.param]
    return found if isinstance(found, AnchorModel) else found.fit(rows)._models["a"]


def test_there_is_a_fit_for_every_kind():
    assert {name.partition(",")[0] for name in FITTED} == set(KINDS)


def test_answers_of_one_model_agree(model, rows):
    X = rows["a"]
    labels = model.assign(X)
    assert set(labels) == {0, 1, 2} and model.k == 3
    assert_array_equal(model.scores(X).argmax(axis=1), labels)
    assert_array_equal(model.probabilities(X).argmax(axis=1), labels)
    assert_allclose(model.probabilities(X).sum(axis=1), 1)
    assert model.transform(X).shape == (90, 3) and len(model.plotted(X)) == 90
    assert_allclose(np.vstack([model.scores(X[[i]]) for i in range(5)]), model.scores(X[:5]), atol=1e-9)


def test_a_model_knows_which_columns_and_clusters_it_fits(model):
    assert model.fits(4, 3)
    assert not model.fits(5, 3) and not model.fits(4, 2)


def test_other_numbers_are_the_same_clusters(model, rows):
    order = np.array([2, 0, 1])
    X, other = rows["a"], model.renumbered(order)
    assert other.fits(4, 3)
    assert_array_equal(order[other.assign(X)], model.assign(X))
    assert_allclose(other.probabilities(X), model.probabilities(X)[:, order], atol=1e-12)
    assert_allclose(other.member(None).signatures, model.member(None).signatures[order], atol=1e-12)


def test_a_concept_that_is_lacking_gets_no_row(model, rows):
    if model.is_public:
        pytest.skip("public clusters are there for all")
    wider = model.renumbered(np.array([0, -1, 1, 2]))
    labels, P = wider.assign(rows["a"]), wider.probabilities(rows["a"])
    assert_array_equal(np.array([0, 2, 3])[model.assign(rows["a"])], labels)
    assert (P[:, 1] == 0).all()
    assert wider.member(None).presence[1] == 0


def test_what_columns_say_adds_up_to_the_margin(model, rows):
    x = rows["b"][[0]]
    parts = model.parts(x, 0, 1)
    if parts is None:
        assert model.is_public
        return
    scores = model.scores(x)[0]
    assert parts.start + parts.contributions.sum() == pytest.approx(scores[0] - scores[1], abs=1e-9)


def test_only_models_that_saw_their_own_rows_are_calibrated(model, rows):
    with pytest.raises(InputError, match="private runs" if model.is_public else "is not calibrated"):
        model.confidence(rows["a"])
    if not model.is_public:
        found = model.row_scores(rows["a"])
        assert found.odds.shape == found.density.shape == (90,)
