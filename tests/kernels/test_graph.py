import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.kernels import graph as graphs
from fmtc.kernels.graph import (
    MIN_WEIGHT,
    association,
    build_graph,
    graph_of,
    knn_affinity,
    normalized_laplacian,
    resolve_neighbors,
)
from fmtc.linalg import sparse as sparse_products
from fmtc.linalg.sparse import RowBlockMatrix, affine, csr


def brute_affinity(X, k, bandwidth=None):
    """Eq. 1 by double loop, for rows without equal distances."""
    n = len(X)
    D = np.array([[np.sqrt(((X[i] - X[j]) ** 2).sum()) for j in range(n)] for i in range(n)])
    near = [[j for j in np.argsort(D[i]) if j != i][:k] for i in range(n)]
    if bandwidth is None:
        bandwidth = np.mean([D[i, j] for i in range(n) for j in near[i]])
    A = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if j in near[i] or i in near[j]:
                A[i, j] = np.exp(-(D[i, j] ** 2) / (2 * bandwidth**2))
    return A


@pytest.mark.parametrize(  # columns: a tree and brute force inside scikit-learn
    ("n_neighbors", "bandwidth", "d"), [(1, None, 2), (1, 0.8, 30), (4, None, 30), (4, 0.8, 2), (11, None, 2)]
)
def test_affinity_is_eq_1(rng, n_neighbors, bandwidth, d):
    X = rng.normal(size=(25, d))
    A = knn_affinity(X, n_neighbors, bandwidth).toarray()
    expected = np.maximum(brute_affinity(X, n_neighbors, bandwidth), MIN_WEIGHT * (A > 0))
    assert_allclose(A, expected, rtol=1e-10, atol=1e-300)


def test_affinity_is_symmetric_without_loops_and_within_its_bounds(rng):
    A = knn_affinity(rng.normal(size=(80, 5)), 7)
    assert_array_equal(A.toarray(), A.T.toarray())
    assert_array_equal(A.diagonal(), 0)
    assert A.data.min() >= MIN_WEIGHT
    assert A.data.max() <= 1
    assert (np.diff(A.indptr) >= 7).all()  # every row keeps its own choices: OR, not AND
    assert np.diff(A.indptr).max() > 7


def test_a_wider_kernel_raises_every_weight(rng):
    X = rng.normal(size=(40, 3))
    narrow, wide = (knn_affinity(X, 5, bandwidth).data for bandwidth in (0.5, 1.0))
    assert (wide > narrow).all()


def test_automatic_bandwidth_follows_the_units_and_a_given_one_does_not(rng):
    X = rng.normal(size=(40, 3))
    assert_allclose(knn_affinity(1000 * X, 5).data, knn_affinity(X, 5).data, rtol=1e-10)
    assert_allclose(knn_affinity(1000 * X, 5, 700.0).data, knn_affinity(X, 5, 0.7).data, rtol=1e-10)
    assert knn_affinity(10 * X, 5, 0.7).data.mean() < 0.5 * knn_affinity(X, 5, 0.7).data.mean()


@pytest.mark.parametrize(
    ("n_neighbors", "n", "expected"),
    [("auto", 50, 10), ("auto", 400, 10), ("auto", 441, 11), ("auto", 2900, 27), ("auto", 6, 5), (3, 50, 3), (9, 5, 4)],
)
def test_number_of_neighbours(n_neighbors, n, expected):
    assert resolve_neighbors(n_neighbors, n) == expected


def test_automatic_neighbours_are_used(rng):
    X = rng.normal(size=(450, 3))
    assert np.diff(knn_affinity(X).indptr).min() == 11
    assert_array_equal(knn_affinity(X).toarray(), knn_affinity(X, 11).toarray())


@pytest.mark.parametrize("center", [0.0, 50.0])
def test_sparse_rows_give_the_graph_of_the_same_rows_dense(rng, center):
    X = rng.normal(size=(60, 40)) * (rng.random((60, 40)) < 0.3)
    X[:, 0] += center
    for kind in (sp.csr_array, sp.csr_matrix):
        assert_allclose(knn_affinity(kind(X), 6).toarray(), knn_affinity(X, 6).toarray(), rtol=1e-8, atol=1e-12)


def test_sparse_rows_are_never_made_dense(rng):
    n, d = 200, 100_000  # dense: 160 MB
    X = sp.random_array((n, d), density=2e-3, format="csr", rng=rng)
    tracemalloc.start()
    build_graph(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_duplicate_rows(rng):
    X = np.repeat(rng.normal(size=(4, 3)), 8, axis=0)  # more copies than neighbours
    graph = build_graph(X, 5)
    assert np.isfinite(graph.laplacian.data).all()
    assert_array_equal(graph.component_sizes, [8, 8, 8, 8])
    A = knn_affinity(X, 5)
    assert_array_equal(A.diagonal(), 0)
    assert_array_equal(A.data, 1)  # no distance between neighbours at all: any width gives weight 1
    A = knn_affinity(X, 10)  # copies weigh 1, others less
    assert_array_equal(np.sort(A.data)[-1], 1)
    assert A.data.min() < 1


def test_an_outlier_keeps_its_edges(rng):
    X = np.vstack([rng.normal(size=(40, 2)), [[1e6, 0.0]]])
    A = knn_affinity(X, 5, bandwidth=1.0)
    row = A[[40]].data
    assert_array_equal(row, MIN_WEIGHT)
    assert len(row) == 5
    graph = build_graph(X, 5, bandwidth=1.0)
    assert np.isfinite(graph.laplacian.data).all()
    assert_array_equal(graph.component_sizes, [41])


def test_laplacian_is_eq_2(rng):
    A = knn_affinity(rng.normal(size=(30, 4)), 5)
    D = np.diag(A.toarray().sum(axis=1) ** -0.5)
    assert_allclose(normalized_laplacian(A).toarray(), np.eye(30) - D @ A.toarray() @ D, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_laplacian_spectrum_and_null_vector(rng, dtype):
    X = rng.normal(size=(70, 3)).astype(dtype)
    graph = build_graph(X, 6)
    L = graph.laplacian
    eps = np.finfo(dtype).eps
    assert L.dtype == graph.degree.dtype == dtype
    assert_allclose(L.toarray(), L.T.toarray(), rtol=4 * eps)
    spectrum = np.linalg.eigvalsh(L.toarray().astype(float))
    assert spectrum.min() > -20 * eps
    assert spectrum.max() < 2 + 20 * eps
    assert_allclose(L @ np.sqrt(graph.degree), 0, atol=50 * eps)
    assert_allclose(graph.degree, knn_affinity(X, 6).sum(axis=1), rtol=10 * eps)


def test_an_even_cycle_reaches_eigenvalue_two():
    X = np.array([[0.0], [1.0]])  # one edge: bipartite
    assert_allclose(np.linalg.eigvalsh(build_graph(X).laplacian.toarray()), [0, 2], atol=1e-12)


def test_components_are_numbered_by_size(rng):
    place = np.array([0, 1, 1, 1, 2, 2] * 10)  # met in this order: 10, 30 and 20 rows
    X = 1000 * place[:, None] + rng.normal(size=(60, 2))
    graph = build_graph(X, 8)
    assert_array_equal(graph.component_sizes, [30, 20, 10])
    assert_array_equal(graph.component, np.array([2, 0, 1])[place])


def test_equal_components_are_numbered_as_they_come(rng):
    place = np.repeat([2, 0, 1], 12)
    graph = build_graph(1000 * place[:, None] + rng.normal(size=(36, 2)), 4)
    assert_array_equal(graph.component, np.repeat([0, 1, 2], 12))


def test_association_is_one_minus_the_normalised_cut(rng):
    A = knn_affinity(rng.normal(size=(30, 3)), 5)
    labels = rng.integers(3, size=30)
    dense = A.toarray()
    ncut = 0.0
    for c in range(3):
        inside = labels == c
        ncut += dense[np.ix_(inside, ~inside)].sum() / dense[inside].sum()
    assert_allclose(association(A, labels, 3), 1 - ncut / 3, rtol=1e-12)
    assert_allclose(association(A, labels, 4), (3 - ncut) / 4, rtol=1e-12)  # an empty cluster counts as 0
    assert_allclose(association(A, np.zeros(30, dtype=int), 1), 1, rtol=1e-12)


def test_association_of_components_is_one(rng):
    place = np.repeat([0, 1], 15)
    A = knn_affinity(1000 * place[:, None] + rng.normal(size=(30, 2)), 4)
    assert_allclose(association(A, place, 2), 1, rtol=1e-12)
    assert association(A, np.arange(30) % 2, 2) < 0.8


# ------------------------------------------------------------------------------------------------- empty sparse rows


def documents_with_empty_ones(rng, n=40, empty=(3, 17, 30)):
    X = np.where(rng.random((n, 25)) < 0.2, rng.random((n, 25)), 0.0)
    X[:, 0] += 0.01  # no other row is empty
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[list(empty)] = 0
    return sp.csr_array(X), np.array(empty)


def test_an_empty_sparse_row_is_nobodys_neighbour(rng):
    """Unlike as a point in space, where it is nearer to unit rows than they are to each other."""
    X, empty = documents_with_empty_ones(rng)
    full = np.setdiff1d(np.arange(X.shape[0]), empty)
    A = knn_affinity(X, 4, bandwidth=1.0)
    assert_array_equal(np.diff(A.indptr)[empty], 4)  # the neighbours it has itself, and no row that counts it
    assert A[empty][:, empty].nnz == 0
    assert_allclose(A[full][:, full].toarray(), knn_affinity(X[full], 4, bandwidth=1.0).toarray(), rtol=0, atol=1e-15)
    as_points = knn_affinity(X.toarray(), 4, bandwidth=1.0)
    assert np.diff(as_points.indptr)[empty].max() > 30


def test_mostly_empty_sparse_rows_still_give_a_graph(rng):
    X, _ = documents_with_empty_ones(rng, empty=range(37))
    A = knn_affinity(X, 4)
    assert (np.diff(A.indptr) >= 4).all()


def test_graph_of_given_weights(rng):
    X = 100.0 * np.repeat([0, 1], [12, 18])[:, None] + rng.normal(size=(30, 2))
    A = knn_affinity(X, 5)
    graph, same = graph_of(A), build_graph(X, 5)
    assert_array_equal(graph.laplacian.toarray(), normalized_laplacian(A).toarray())
    assert_array_equal(graph.degree, A.sum(axis=1))
    assert_array_equal(graph.component, same.component)
    assert_array_equal(graph.component_sizes, [18, 12])
    chain = sp.csr_array(np.diag([1.0, 0.0, 2.0], 1) + np.diag([1.0, 0.0, 2.0], -1))  # of no rows at all
    assert_array_equal(graph_of(chain).component, [0, 0, 1, 1])
    assert_allclose(np.linalg.eigvalsh(graph_of(chain).laplacian.toarray()), [0, 0, 2, 2], atol=1e-14)


def test_numbers_of_neighbours_take_four_bytes(rng):
    X, empty = documents_with_empty_ones(rng)
    full = np.setdiff1d(np.arange(X.shape[0]), empty)
    for rows in (X, X[full], X[full].toarray()):
        assert knn_affinity(rows, 4).indices.dtype == np.int32


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_an_edge_counts_less_where_one_row_alone_has_it(rng, kind):
    X = rng.normal(size=(60, 4))
    D = np.linalg.norm(X[:, None] - X, axis=2) + np.diag(np.full(60, np.inf))
    near = np.sort(D, axis=1)[:, [5]] >= D
    both, either = near & near.T, near | near.T
    full = knn_affinity(kind(X), 6).toarray()
    assert (both != either).sum() > 20
    for share in (0.25, 0.9):
        A = knn_affinity(kind(X), 6, nonmutual_weight=share).toarray()
        assert_allclose(A, np.where(both, full, share * full), rtol=1e-12)
        assert_array_equal(A != 0, either)
    assert knn_affinity(X.astype(np.float32), 6, nonmutual_weight=0.25).dtype == np.float32


def test_nonmutual_edges_hold_a_graph_together(rng):
    """Less weight, but no edge is lost: an outlier that nobody counts keeps its neighbours."""
    X = np.vstack([rng.normal(size=(40, 2)), [[50.0, 50.0]]])
    for share in (1.0, 0.01):
        graph = build_graph(X, 5, nonmutual_weight=share)
        assert len(graph.component_sizes) == 1
        assert (graph.degree > 0).all()


# -------------------------------------------------------------------------------------------- on PyTorch's tensors


@pytest.fixture
def tensor():
    import torch

    return torch.from_numpy


def scattered(rng, kind):
    """Rows without equal distances, but for the copies."""
    X = rng.normal(size=(150, 4))
    if kind == "parts":
        X += 100 * rng.permutation(np.repeat([0, 1, 2, 3], [20, 60, 50, 20]))[:, None]
    if kind == "outlier":
        X[7] = 1e5
    if kind == "copies":
        X[40:80] = X[0]
    if kind == "constant":
        X[:] = 0.1
    return X


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "dtype"), [("plain", np.float64), ("parts", np.float32), ("outlier", np.float64)])
@pytest.mark.parametrize(
    ("n_neighbors", "bandwidth", "nonmutual_weight"),
    [("auto", None, 0.25), (3, 0.8, 1.0), (3, 0.8, 0.25), (149, None, 1.0)],
)
def test_tensors_give_the_graph_of_the_same_rows(tensor, rng, kind, n_neighbors, bandwidth, nonmutual_weight, dtype):
    X = scattered(rng, kind).astype(dtype)
    eps = np.finfo(dtype).eps
    A = knn_affinity(tensor(X), n_neighbors, bandwidth, nonmutual_weight)
    B = knn_affinity(X, n_neighbors, bandwidth, nonmutual_weight)
    dense = A.to_dense().numpy()
    assert dense.dtype == dtype
    # the exponent, up to 27 where weights are not raised, has its own rounding
    assert_allclose(dense, B.toarray(), rtol=200 * eps)
    assert_array_equal(dense, dense.T)
    graph, same = graph_of(A), graph_of(B)
    assert_allclose(graph.laplacian.to_dense().numpy(), same.laplacian.toarray(), rtol=400 * eps, atol=4 * eps)
    assert_allclose(graph.degree.numpy(), same.degree, rtol=200 * eps)
    assert_array_equal(graph.component.numpy(), same.component)
    assert_array_equal(graph.component_sizes, same.component_sizes)
    assert isinstance(graph.component_sizes, np.ndarray)
    if kind == "parts" and n_neighbors == 3:
        assert len(graph.component_sizes) >= 4


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["copies", "constant"])
def test_tensors_with_copies_of_rows(tensor, rng, kind):
    """Which of the copies are neighbours is left to the search; what follows from them is not."""
    X = scattered(rng, kind)
    A = knn_affinity(tensor(X), 5).to_dense().numpy()
    B = knn_affinity(X, 5).toarray()
    assert_array_equal(A, A.T)
    assert_array_equal(np.diag(A), 0)
    assert ((A > 0).sum(axis=1) >= 5).all()
    if kind == "constant":
        assert_array_equal(A[A > 0], 1)
    else:
        others = np.r_[1:40, 80:150]
        alone = others[(B[others][:, np.r_[0, 40:80]] == 0).all(axis=1)]
        assert len(alone) > 50
        assert_allclose(A[np.ix_(alone, alone)], B[np.ix_(alone, alone)], rtol=1e-12)
    assert np.isfinite(graph_of(knn_affinity(tensor(X), 5)).laplacian.values().numpy()).all()


@pytest.mark.torch
@pytest.mark.parametrize("n", [2, 3, 400])
def test_components_of_a_long_chain_of_tensors(tensor, rng, n):
    """Numbers have to travel all along it, whatever the order of the rows."""
    order = rng.permutation(n)
    B = np.zeros((n, n))
    B[order[:-1], order[1:]] = B[order[1:], order[:-1]] = 1
    cut = n // 3  # two parts where there are rows enough
    if n > 3:
        B[order[cut], order[cut + 1]] = B[order[cut + 1], order[cut]] = 0
    stored = sp.csr_array(B + np.eye(n))
    stored.data[stored.indices == np.repeat(np.arange(n), np.diff(stored.indptr))] = 0  # diagonal of zeros, as stored
    A = csr(*map(tensor, (stored.data, stored.indices, stored.indptr)), (n, n))  # without PyTorch's first warnings
    graph, same = graph_of(A), graph_of(sp.csr_array(B))
    assert_array_equal(graph.component.numpy(), same.component)
    assert_allclose(graph.laplacian.to_dense().numpy(), same.laplacian.toarray(), rtol=1e-14)
    assert len(graph.component_sizes) == (2 if n > 3 else 1)


@pytest.mark.parametrize("sparse", [False, True])
def test_graphs_of_many_rows_are_in_an_order_of_their_own(rng, monkeypatch, sparse):
    place = rng.permutation(300)
    X = np.stack([np.cos(place / 48), np.sin(place / 48)], axis=1) + rng.normal(size=(300, 2)) / 100
    X = sp.csr_array(X) if sparse else X
    graph = build_graph(X, 6, nonmutual_weight=0.25)
    monkeypatch.setattr(graphs, "REORDER_FROM", 300)
    monkeypatch.setattr(sparse_products, "ROWS_PER_BLOCK", 70)
    other = build_graph(X, 6, nonmutual_weight=0.25)
    F = rng.normal(size=(300, 4))
    assert graph.order is None
    assert graph.to_graph_order(F) is graph.to_client_order(F) is F
    assert_array_equal(np.sort(other.order), np.arange(300))
    assert_array_equal(other.to_graph_order(F), F[other.order])
    assert_array_equal(other.to_client_order(other.to_graph_order(F)), F)
    assert_allclose(other.degree, graph.degree[other.order], rtol=1e-12)
    assert_array_equal(other.component, graph.component[other.order])
    assert isinstance(other.laplacian, RowBlockMatrix)
    assert_allclose(
        other.to_client_order(affine(other.laplacian, other.to_graph_order(F))), graph.laplacian @ F, atol=1e-12
    )

    def bandwidth(L):
        row, column = L.nonzero()
        return np.abs(row - column).max()

    assert bandwidth(sp.vstack([part for _, part in other.laplacian.blocks])) < 30 < 250 < bandwidth(graph.laplacian)


def test_few_rows_stay_as_they_came(rng, monkeypatch):
    monkeypatch.setattr(graphs, "REORDER_FROM", 61)
    assert build_graph(rng.normal(size=(60, 3)), 5).order is None


@pytest.mark.parametrize("parts", [2, 5, 10])
def test_components_have_the_same_numbers_in_any_order_of_the_graph(rng, monkeypatch, parts):
    """Those of one size stand as the client's rows do, however the graph is sorted."""
    X = rng.normal(size=(200, 2)) + 100 * (np.arange(200) % parts)[:, None]
    graph = build_graph(X, 5)
    assert_array_equal(graph.component, np.arange(200) % parts)
    monkeypatch.setattr(graphs, "REORDER_FROM", 1)
    ordered = build_graph(X, 5)
    assert_array_equal(ordered.component, graph.component[ordered.order])
