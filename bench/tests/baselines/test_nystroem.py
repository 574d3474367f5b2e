"""New rows of a spectral embedding."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.kernels.embedding import spectral_start
from fmtc.kernels.graph import MIN_WEIGHT, graph_of, knn_affinity
from fmtc_bench.baselines.base import SpectralGraph
from fmtc_bench.baselines.nystroem import cross_affinity, nystroem


def documents_with_empty_ones(rng, n=40, empty=(3, 17, 30)):
    X = np.where(rng.random((n, 25)) < 0.2, rng.random((n, 25)), 0.0)
    X[:, 0] += 0.01  # no other row is empty
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[list(empty)] = 0
    return sp.csr_array(X), np.array(empty)


@pytest.mark.parametrize("d", [2, 30])
def test_new_rows_weigh_their_nearest_rows_by_eq_1(rng, d):
    X, new = rng.normal(size=(25, d)), rng.normal(size=(7, d))
    B = cross_affinity(new, X, 4, 0.9)
    assert B.shape == (7, 25)
    distance = np.linalg.norm(new[:, None] - X, axis=2)
    near = distance <= np.sort(distance, axis=1)[:, [3]]
    expected = np.maximum(np.where(near, np.exp(-(distance**2) / (2 * 0.9**2)), 0), MIN_WEIGHT * near)
    assert_allclose(B.toarray(), expected, rtol=1e-10)


def test_a_row_that_comes_again_counts_its_twin(rng):
    X = rng.normal(size=(25, 3))
    B = cross_affinity(X, X, 4, 0.9).toarray()
    assert_allclose(np.diag(B), 1, rtol=1e-12)
    others = cross_affinity(X, X, 5, 0.9).toarray() - np.eye(25)  # one place goes to the twin
    own = knn_affinity(X, 4, 0.9).toarray()
    assert_allclose(np.maximum(others, others.T), own, rtol=1e-7, atol=1e-12)


def test_new_rows_may_be_few_sparse_single_or_ask_for_too_many_neighbours(rng):
    X, new = rng.normal(size=(12, 6)) * (rng.random((12, 6)) < 0.7), rng.normal(size=(3, 6))
    B = cross_affinity(new, X, 50, 1.0)
    assert_array_equal(np.diff(B.indptr), 11)
    assert_array_equal(np.diff(cross_affinity(new, X, "auto", 1.0).indptr), 10)
    sparse = cross_affinity(sp.csr_array(new), sp.csr_array(X), 50, 1.0)
    assert_allclose(sparse.toarray(), B.toarray(), rtol=1e-7)
    single = cross_affinity(new.astype(np.float32), X.astype(np.float32), 50, 1.0)
    assert single.dtype == np.float32
    assert_allclose(single.toarray(), B.toarray(), rtol=1e-4)


def test_an_empty_sparse_row_is_no_neighbour_of_new_rows(rng):
    X, empty = documents_with_empty_ones(rng)
    new = X[[0, 5, *empty]]
    B = cross_affinity(new, X, 4, 1.0)
    assert_array_equal(np.diff(B.indptr), 4)  # an empty new row has neighbours as well
    assert B[:, empty].nnz == 0
    full = np.setdiff1d(np.arange(X.shape[0]), empty)
    assert_allclose(B[:, full].toarray(), cross_affinity(new, X[full], 4, 1.0).toarray(), rtol=0, atol=1e-15)


def test_nystroem_puts_new_rows_beside_their_neighbours(rng):
    place = np.arange(60) % 3
    X = 5.0 * np.eye(3)[place] + rng.normal(size=(60, 3))
    known = SpectralGraph.of(X, 8)
    graph = known.graph
    F = spectral_start(graph, 3, np.random.default_rng(0))
    new = 5.0 * np.eye(3)[place] + rng.normal(size=(60, 3))
    G = nystroem(cross_affinity(new, X, 8, known.bandwidth), graph.degree, F, np.diag(F.T @ (graph.laplacian @ F)))
    centers = np.stack([F[place == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(G[:, None] - centers, axis=2).argmin(axis=1)
    assert (nearest == place).mean() > 0.95


def test_nystroem_neither_blows_up_nor_turns_round_what_it_cannot_continue(rng):
    A = knn_affinity(rng.normal(size=(20, 2)), 4)
    F, eigenvalues = (
        np.tile(np.linalg.qr(rng.normal(size=(20, 1)))[0], 7),
        np.array([0.0, 0.5, 0.9, 0.99, 1.0, 1 + 1e-8, 1.3]),
    )
    G = nystroem(A, A.sum(axis=1), F, eigenvalues)
    assert np.abs(G[:, 0]).max() > 0.01
    assert_allclose(G, G[:, :1] * [1, 2, 10, 10, 10, 10, 10], rtol=1e-10)
    assert_array_equal(eigenvalues, [0.0, 0.5, 0.9, 0.99, 1.0, 1 + 1e-8, 1.3])


def test_nystroem_in_single_precision(rng):
    A = knn_affinity(rng.normal(size=(40, 3)), 6)
    graph = graph_of(A)
    F = spectral_start(graph, 3, np.random.default_rng(0))
    lam = np.diag(F.T @ (graph.laplacian @ F))
    single = nystroem(*(each.astype(np.float32) for each in (A, graph.degree, F, lam)))
    assert single.dtype == np.float32
    assert_allclose(single, F, atol=1e-5)
