"""New rows: projection, label, probabilities."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from tests.views import graph_view

from fmtc import Settings, inference
from fmtc.inference import GraphModel, NotFiniteError, assign, memberships, project


@pytest.fixture
def fitted(make_federation, play):
    """Clients after a short run, with the data they were fitted on."""
    data = make_federation(n=(50, 70, 90), distance=4.0)
    game = play(data, Settings.of(n_clusters=3, n_neighbors=20, final="kmeans")).open().rounds(4)
    for name in ("finish", "number"):
        game.phase(name)
    return game.clients, data


def test_assigning_training_rows_gives_their_labels(fitted):
    clients, data = fitted
    for cid, X in data.items():
        assert_array_equal(assign(X, clients[cid].model), clients[cid].labels)
        assert_array_equal(np.unique(clients[cid].labels), [0, 1, 2])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_memberships_sum_to_one_and_agree_with_the_labels(fitted, rng, dtype):
    clients, data = fitted
    model = clients["a"].model
    model = GraphModel(model.W.astype(dtype), model.centers.astype(dtype), model.spread, model.mean.astype(dtype))
    X = np.vstack([data["a"], 10 * rng.normal(size=(300, 6)), model.mean[None]]).astype(dtype)
    P = memberships(X, model)
    assert P.dtype == dtype
    assert (P >= 0).all()
    assert_allclose(P.sum(axis=1), 1, rtol=10 * np.finfo(dtype).eps)
    assert_array_equal(P.argmax(axis=1), assign(X, model))


def test_memberships_are_those_of_round_gaussians(fitted):
    clients, data = fitted
    model = clients["b"].model
    E = project(data["b"], model.W, model.mean)
    variance = model.spread / 3  # per coordinate
    density = np.exp(-np.square(E[:, None] - model.centers).sum(axis=2) / (2 * variance))
    assert_allclose(memberships(data["b"], model), density / density.sum(axis=1, keepdims=True), atol=1e-12)


def test_memberships_of_a_client_without_spread():
    model = GraphModel(np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0]]), 0.0, None)
    P = memberships(np.array([[2.0, 0.0], [0.1, 0.3], [1.0, 1.0]]), model)
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
@pytest.mark.parametrize("answer", [assign, memberships])
def test_rows_that_are_not_finite_are_refused(rng, answer, bad):
    model = GraphModel(rng.normal(size=(4, 2)), np.eye(2), 0.1, None)
    X = rng.normal(size=(9, 4))
    X[3, 1] = bad
    with pytest.raises(NotFiniteError):
        answer(X, model)


@pytest.mark.parametrize("answer", [assign, memberships, lambda X, model: project(X, model.W, model.mean)])
def test_answers_do_not_depend_on_the_size_of_a_block(monkeypatch, rng, answer):
    X = rng.normal(size=(53, 4))
    model = graph_view(3, random_state=0, max_iter=3).fit(X)._models["all"]
    whole = answer(X, model)
    monkeypatch.setattr(inference, "BLOCK", 7)
    assert_allclose(answer(X, model), whole, rtol=0, atol=1e-13)


def test_rows_are_measured_in_the_units_of_the_model(rng):
    X = rng.normal(size=(9, 4))
    plain = GraphModel(np.eye(4), np.eye(4), 0.1, None)
    assert plain.scaled(X) is X
    scaled = GraphModel(np.eye(4), np.eye(4), 0.1, None, np.array([2.0, 4.0, 1.0, 0.5]))
    assert_allclose(scaled.scaled(X), X / [2.0, 4.0, 1.0, 0.5])
    words = GraphModel(np.eye(4), np.eye(4), 0.1, None, np.array([2.0, 4.0]), np.array([0, 3]))
    E = X[:, [0, 3]] / [2.0, 4.0]
    assert_allclose(words.scaled(X), E / np.linalg.norm(E, axis=1, keepdims=True))
