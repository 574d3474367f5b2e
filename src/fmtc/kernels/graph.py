"""Neighbourhood graph of one client (Eq. 1-2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import Array, cast, double, is_tensor, namespace, row_blocks, to_numpy
from ..linalg.neighbors import EXACT_UP_TO, nearest_neighbors
from ..linalg.sparse import DeterministicCsr, RowBlockMatrix, csr

# The Gaussian weights of a far outlier underflow. They are raised to this, so that no vertex loses its last edge.
MIN_WEIGHT = 1e-12
BLOCK = 65_536  # rows scaled at a time
REORDER_FROM = 30_000  # rows; with fewer, an embedding fits in the cache in any order


@dataclass(frozen=True)
class Graph:
    """What the spectral steps need to know about a client's graph. Its rows may have an order of their own."""

    laplacian: Any  # n x n, symmetric normalised, sparse; for `affine`
    degree: Array  # n
    component: Array  # n, number of the connected component of each row, largest component first
    order: Array | None = None  # n, the client's row that is first, second, ... in the graph; None: the same order

    def to_graph_order(self, A: Array) -> Array:
        """Rows in the client's order, rearranged to the order of the graph; (n, k) -> (n, k)."""
        return A if self.order is None else A[self.order]

    def to_client_order(self, A: Array) -> Array:
        """Rows in the order of the graph, rearranged to the client's order; (n, k) -> (n, k)."""
        if self.order is None:
            return A
        back = np.empty_like(A)
        back[self.order] = A
        return back

    @property
    def component_sizes(self) -> np.ndarray:
        """Number of rows of each connected component, largest first."""
        return to_numpy(namespace(self.component).bincount(self.component))


def resolve_neighbors(n_neighbors: int | str, n: int) -> int:
    """Number of neighbours for n rows: ``"auto"`` is sqrt(n)/2, but 10 to 30; never more than n - 1."""
    wanted = min(max(10, ceil(sqrt(n) / 2)), 30) if n_neighbors == "auto" else int(n_neighbors)
    return min(wanted, n - 1)


def knn_affinity(
    X: Any, n_neighbors: int | str = "auto", bandwidth: float | None = None, nonmutual_weight: float = 1.0
) -> sp.csr_array:
    """Gaussian weights on the k-nearest-neighbour graph; an edge joins two rows if either is a neighbour (Eq. 1).

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
        Rows of one client; sparse input stays sparse.
    n_neighbors : int or "auto"
        Neighbours of each row, without the row itself.
    bandwidth : float, optional
        The kernel's sigma, in the units of X. If omitted, the mean distance over the neighbour pairs.
    nonmutual_weight : float
        Factor on the weight of an edge between two rows when only one of them counts the other among its neighbours.
        1 is the paper's graph. A smaller factor keeps hubs (rows that are near to many others) from linking everything.

    Returns
    -------
    csr_array of shape (n, n)
        Symmetric, zero diagonal, entries in [1e-12 nonmutual_weight, 1].
    """
    distance, neighbor = graph_neighbors(X, resolve_neighbors(n_neighbors, X.shape[0]))
    weight = cast(gaussian(distance, mean_distance(distance) if bandwidth is None else bandwidth), X.dtype)
    del distance
    return symmetrized(weight, neighbor, nonmutual_weight)


def mean_distance(distance: Array) -> float:
    """The width of weights where none is given; 1 if all rows are equal, since any width then gives weight 1."""
    return float(double(distance).mean()) or 1.0


def gaussian(distance: Array, bandwidth: float) -> Array:
    """Weights of pairs of rows (Eq. 1)."""
    return namespace(distance).exp(-0.5 * (distance / bandwidth) ** 2).clip(MIN_WEIGHT)


def symmetrized(weight: Array, neighbor: Array, nonmutual_weight: float) -> Any:
    """Symmetric graph of directed pairs; a pair without the reverse direction is multiplied by `nonmutual_weight`."""
    if is_tensor(weight):
        return _symmetrized_on_device(weight, neighbor, nonmutual_weight)
    n, k = weight.shape
    begins = np.arange(0, n * k + 1, k, dtype=neighbor.dtype)
    directed = sp.csr_array((weight.ravel(), neighbor.ravel(), begins), shape=(n, n))
    reverse = directed.T.tocsr()
    if nonmutual_weight == 1:
        return sp.csr_array(directed.maximum(reverse))
    both = directed.minimum(reverse)  # zero for a pair with one direction only
    either = directed.maximum(reverse)
    del directed, reverse
    either.data *= nonmutual_weight
    both.data *= 1 - nonmutual_weight
    return sp.csr_array(either + both)


def _symmetrized_on_device(weight: Array, neighbor: Array, nonmutual_weight: float) -> Any:
    """The same by sorting pairs; stores the diagonal, with zeros, for the Laplacian to fill."""
    xp, (n, k) = namespace(weight), weight.shape
    rows = xp.arange(n, device=weight.device)
    pair = (rows[:, None] * n + neighbor).ravel()
    back = (neighbor * n + rows[:, None]).ravel()
    order = xp.argsort(pair)
    place = xp.searchsorted(pair[order], back).clip(max=n * k - 1)
    mutual = pair[order][place] == back
    weight = weight.ravel()
    twin = weight[order][place]
    both = nonmutual_weight * xp.maximum(weight, twin) + (1 - nonmutual_weight) * xp.minimum(weight, twin)
    weight = xp.where(mutual, both, nonmutual_weight * weight)
    pair = xp.concatenate([pair, back[~mutual], rows * (n + 1)])
    weight = xp.concatenate([weight, weight[~mutual], xp.zeros(n, dtype=weight.dtype, device=weight.device)])
    pair, order = xp.sort(pair)
    begins = xp.searchsorted(pair, xp.arange(n + 1, device=weight.device) * n)
    return csr(weight[order], pair % n, begins, (n, n))


def graph_neighbors(X: Any, k: int) -> tuple[Array, Array]:
    """Distances and numbers of the k nearest other rows of each row.

    A sparse row without entries is no row's neighbour: it is nearer to all documents than they are to each other, and
    would link them all (docs/paper.md#graph). It still has neighbours itself.
    """
    if is_tensor(X):
        return nearest_neighbors(X, k)
    n = X.shape[0]
    index_type = sp.get_index_dtype(maxval=(2 * k + 1) * n)  # the smallest that can count all entries of the graph
    empty = np.diff(X.indptr) == 0 if sp.issparse(X) else np.zeros(n, bool)
    full = np.flatnonzero(~empty)
    if not empty.any() or len(full) <= k:
        distance, neighbor = nearest_neighbors(X, k)
        return distance, neighbor.astype(index_type, copy=False)
    distance, neighbor = np.empty((n, k), dtype=X.dtype), np.empty((n, k), dtype=index_type)
    for rows, found in (
        (full, nearest_neighbors(X[full], k)),
        (empty, nearest_neighbors(X[full], k, X[np.flatnonzero(empty)])),
    ):
        distance[rows], neighbor[rows] = found[0], full[found[1]]
    return distance, neighbor


def normalized_laplacian(affinity: Any) -> Any:
    """Symmetric normalised Laplacian I - D^-1/2 A D^-1/2, sparse (Eq. 2)."""
    scale = 1 / degrees(affinity) ** 0.5
    if is_tensor(affinity):  # the diagonal is stored, with zeros
        xp, column = namespace(affinity), affinity.col_indices()
        row = _row_numbers(affinity)
        value = xp.where(row == column, 1 - affinity.values(), -affinity.values() * scale[row] * scale[column])
        return csr(value, column, affinity.crow_indices(), tuple(affinity.shape))
    n, begins = affinity.shape[0], affinity.indptr
    value = affinity.data * scale[affinity.indices]
    for b in row_blocks(n, BLOCK):
        value[begins[b.start] : begins[b.stop]] *= np.repeat(scale[b], np.diff(begins[b.start : b.stop + 1]))
    S = sp.csr_array((value, affinity.indices, begins), shape=affinity.shape)
    number = np.arange(n + 1, dtype=affinity.indices.dtype)
    return sp.csr_array((np.ones(n, dtype=affinity.dtype), number[:-1], number), shape=S.shape) - S


def degrees(affinity: Any) -> Array:
    """Sum of each row's weights; shape (n,)."""
    if not is_tensor(affinity):
        return affinity.sum(axis=1)
    values = affinity.values()
    one = namespace(values).ones((affinity.shape[0], 1), dtype=values.dtype, device=values.device)
    return (DeterministicCsr(affinity) @ one)[:, 0]


def _row_numbers(matrix: Any) -> Array:
    """Row of each stored entry of a sparse tensor."""
    begins = matrix.crow_indices()
    return namespace(begins).repeat_interleave(begins.diff())


def build_graph(
    X: Any, n_neighbors: int | str = "auto", bandwidth: float | None = None, nonmutual_weight: float = 1.0
) -> Graph:
    """Affinity, Laplacian and connected components of one client's rows (Eq. 1-2).

    A large graph is reordered so that neighbours are close to each other: a product with the Laplacian then finds most
    of what it needs in the cache. It is also cut into blocks of rows, so that a product can use several cores.
    """
    affinity = knn_affinity(X, n_neighbors, bandwidth, nonmutual_weight=nonmutual_weight)
    if is_tensor(affinity):
        graph = graph_of(affinity)
        return replace(graph, laplacian=DeterministicCsr(graph.laplacian))
    if affinity.shape[0] < REORDER_FROM:
        return graph_of(affinity)
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    component = _components(affinity)  # numbered in the client's order, which is the same on every machine
    order = reverse_cuthill_mckee(affinity, symmetric_mode=True)
    affinity = affinity[order]  # rows, then columns: there are never three copies at a time
    affinity = affinity[:, order]
    affinity.sort_indices()
    graph = graph_of(affinity, component[order])
    return replace(graph, laplacian=RowBlockMatrix(graph.laplacian), order=order)


def graph_of(affinity: Any, component: Array | None = None) -> Graph:
    """Laplacian and connected components of a graph given by its weights (Eq. 2); `component` if it is known."""
    if component is None:
        component = _components(affinity)
    xp = namespace(component)
    by_size = xp.argsort(-xp.bincount(component), stable=True)  # ties: the component that comes first
    return Graph(normalized_laplacian(affinity), degrees(affinity), xp.argsort(by_size)[component])


def _components(affinity: Any) -> Array:
    """Number of each row's connected component, in the order of their first rows; shape (n,)."""
    if is_tensor(affinity):
        return _components_on_device(affinity)
    from scipy.sparse.csgraph import connected_components

    return connected_components(affinity, directed=False)[1]


def _components_on_device(affinity: Any) -> Array:
    """`_components` of a tensor.

    Every row takes the smallest number of itself and its neighbours, then the number of that row, until nothing
    changes.
    """
    xp, row, column = namespace(affinity), _row_numbers(affinity), affinity.col_indices().long()
    number = xp.arange(affinity.shape[0], device=column.device)
    while True:
        least = number.scatter_reduce(0, row, number[column], "amin")
        least = least[least]
        if xp.equal(least, number):
            return xp.unique(number, return_inverse=True)[1]
        number = least


def association(affinity: sp.csr_array, labels: Array, n_clusters: int) -> float:
    """Mean over clusters of the share of a cluster's edge weight that stays inside it; 1 - Ncut/k.

    An empty cluster counts as 0, so that one cluster with all rows gets no high score.
    """
    H = sp.csr_array((np.ones(len(labels)), (np.arange(len(labels)), labels)), shape=(len(labels), n_clusters))
    inside = (H.multiply(affinity @ H)).sum(axis=0)
    volume = H.T @ affinity.sum(axis=1)
    return float(np.mean(np.divide(inside, volume, out=np.zeros(n_clusters), where=volume > 0)))


def estimate_memory(
    n_samples: int,
    n_features: int,
    n_clusters: int = 8,
    *,
    n_silos: int = 1,
    n_neighbors: int | str = "auto",
    dtype: Any = np.float64,
) -> int:
    """Bytes that a fit of dense rows takes at its peak, the rows themselves included.

    Good to a fifth or so. What decides is the number of entries in the graph, about 1.75 times rows times neighbours, a
    little more or less as rows agree on who is near; never rows times rows. With `n_jobs` the working space of a silo
    is there as many times.

    Parameters
    ----------
    n_samples : int
        Rows of each silo.
    n_features, n_clusters : int
    n_silos : int
        Silos in one process, worked on one after the other.
    n_neighbors : int or "auto"
    dtype : float64 or float32

    Returns
    -------
    int

    Examples
    --------
    Ten silos of 100,000 rows with 64 columns, in gigabytes:

    >>> from fmtc.kernels.graph import estimate_memory
    >>> round(estimate_memory(100_000, 64, 10, n_silos=10, dtype="float32") / 1e9, 1)
    0.8
    """
    size, n, d, k = np.dtype(dtype).itemsize, n_samples, n_features, n_clusters
    pairs = n * resolve_neighbors(n_neighbors, n)
    laplacian = (1.75 * pairs + n) * (size + 4)
    found = pairs * (size + 8)
    search = found + (n * (8 * d + 150) + pairs * 9 if n > EXACT_UP_TO else pairs * size)
    joining = pairs * (4.6 * (size + 4) + size)
    start = laplacian + 5 * n * (k + max(4, k // 2)) * 8
    rounds = laplacian + 7 * n * k * size
    kept = laplacian + n * (size * (d + k) + 8)  # of a silo at rest: rows, embedding, labels
    working = max(search, joining, 2.2 * laplacian, start, rounds) - laplacian
    return int(n_silos * kept + working)
