"""Neighbourhood graph of one client (Eq. 1-2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from ..linalg.arrays import Array, Steady, Striped, cast, csr, double, is_tensor, namespace, to_numpy
from ..linalg.neighbors import nearest

# A far outlier's Gaussian weights underflow; below this they are raised, so that no vertex loses its last edge.
MIN_WEIGHT = 1e-12
BLOCK = 65_536  # rows scaled at a time
ORDER_FROM = 30_000  # rows; with fewer, an embedding is in the cache whatever their order


@dataclass(frozen=True)
class Graph:
    """What the spectral steps need to know of a client's graph."""

    laplacian: Any  # n x n, symmetric normalised, sparse; for `affine`
    degree: Array  # n
    component: Array  # n, number of the connected component of each row, largest component first
    order: Array | None = None  # n, the client's row that is first, second, ... in all these; None: as they came

    def arranged(self, A: Array) -> Array:
        """Rows of the client in the order of the graph; (n, k) -> (n, k)."""
        return A if self.order is None else A[self.order]

    def as_they_came(self, A: Array) -> Array:
        """Rows in the order of the graph in the client's own; (n, k) -> (n, k)."""
        if self.order is None:
            return A
        back = np.empty_like(A)
        back[self.order] = A
        return back

    @property
    def component_sizes(self) -> np.ndarray:
        """Rows of each connected component, largest first."""
        return to_numpy(namespace(self.component).bincount(self.component))


def resolve_neighbors(n_neighbors: int | str, n: int) -> int:
    """Number of neighbours for n rows: ``"auto"`` is sqrt(n)/2, between 10 and 30; never more than n - 1."""
    wanted = min(max(10, ceil(sqrt(n) / 2)), 30) if n_neighbors == "auto" else int(n_neighbors)
    return min(wanted, n - 1)


def knn_affinity(
    X: Any,
    n_neighbors: int | str = "auto",
    bandwidth: float | None = None,
    *,
    stretch: float = 1.0,
    one_sided: float = 1.0,
) -> sp.csr_array:
    """Gaussian weights on the k-nearest-neighbour graph, rows joined when either counts the other (Eq. 1).

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
        Rows of one client; sparse input stays sparse.
    n_neighbors : int or "auto"
        Neighbours of each row, the row itself not counted.
    bandwidth : float, optional
        The kernel's sigma, in the units of X. Left out, it is the mean distance over the neighbour pairs.
    stretch : float
        Times which the mean distance is taken.
    one_sided : float
        Times which an edge is taken where one of two rows counts the other and not the other way round: 1 in the
        paper. Less keeps rows that are near to everybody from joining everything.

    Returns
    -------
    csr_array of shape (n, n)
        Symmetric, zero diagonal, entries in [1e-12 one_sided, 1].
    """
    return knn_weights(X, n_neighbors, bandwidth, stretch, one_sided)[0]


def knn_weights(
    X: Any,
    n_neighbors: int | str = "auto",
    bandwidth: float | None = None,
    stretch: float = 1.0,
    one_sided: float = 1.0,
) -> tuple[sp.csr_array, float]:
    """`knn_affinity`, and the bandwidth it took."""
    k = resolve_neighbors(n_neighbors, X.shape[0])
    distance, neighbor = _neighbors(X, k)
    if bandwidth is None:
        bandwidth = stretch * float(double(distance).mean()) or 1.0  # all rows equal: any width gives weight 1
    weight = _gaussian(distance, bandwidth, X)
    del distance
    return (_joined_on_device if is_tensor(X) else _joined)(weight, neighbor, one_sided), bandwidth


def _joined(weight: np.ndarray, neighbor: np.ndarray, one_sided: float) -> sp.csr_array:
    """Symmetric graph of directed pairs; those that have one direction only are taken `one_sided` times."""
    directed = _rows_of(weight, neighbor, len(weight))
    back = directed.T.tocsr()
    if one_sided == 1:
        return sp.csr_array(directed.maximum(back))
    both = directed.minimum(back)  # nothing where there is one direction only
    either = directed.maximum(back)
    del directed, back
    either.data *= one_sided
    both.data *= 1 - one_sided
    return sp.csr_array(either + both)


def _joined_on_device(weight: Array, neighbor: Array, one_sided: float) -> Any:
    """The same by sorting pairs; the diagonal is there, with zeros, for the Laplacian to fill."""
    xp, (n, k) = namespace(weight), weight.shape
    rows = xp.arange(n, device=weight.device)
    pair = (rows[:, None] * n + neighbor).ravel()
    back = (neighbor * n + rows[:, None]).ravel()
    order = xp.argsort(pair)
    place = xp.searchsorted(pair[order], back).clip(max=n * k - 1)
    mutual = pair[order][place] == back
    weight = weight.ravel()
    twin = weight[order][place]
    weight = xp.where(mutual, one_sided * xp.maximum(weight, twin) + (1 - one_sided) * xp.minimum(weight, twin),
                      one_sided * weight)  # fmt: skip
    pair = xp.concatenate([pair, back[~mutual], rows * (n + 1)])
    weight = xp.concatenate([weight, weight[~mutual], xp.zeros(n, dtype=weight.dtype, device=weight.device)])
    pair, order = xp.sort(pair)
    begins = xp.searchsorted(pair, xp.arange(n + 1, device=weight.device) * n)
    return csr(weight[order], pair % n, begins, (n, n))


def cross_affinity(X_new: Any, X: Any, n_neighbors: int | str, bandwidth: float) -> sp.csr_array:
    """Gaussian weights of new rows to their nearest rows among X; (n_new, d), (n, d) -> (n_new, n)."""
    distance, neighbor = _neighbors(X, resolve_neighbors(n_neighbors, X.shape[0]), X_new)
    return _rows_of(_gaussian(distance, bandwidth, X), neighbor, X.shape[0])


def _gaussian(distance: Array, bandwidth: float, X: Any) -> Array:
    """Weight of each pair of neighbours, in the precision of X; (rows, k) -> (rows, k)."""
    return cast(namespace(distance).exp(-0.5 * (distance / bandwidth) ** 2).clip(MIN_WEIGHT), X.dtype)


def _rows_of(weight: np.ndarray, neighbor: np.ndarray, n: int) -> sp.csr_array:
    """Weights as rows of a sparse matrix with n columns, in the numbers of the neighbours."""
    rows, k = weight.shape
    begins = np.arange(0, rows * k + 1, k, dtype=neighbor.dtype)
    return sp.csr_array((weight.ravel(), neighbor.ravel(), begins), shape=(rows, n))


def _neighbors(X: Any, k: int, X_new: Any = None) -> tuple[Array, Array]:
    """Distances of new rows to the k nearest rows and their numbers; of each row to the k nearest others if left out.

    A sparse row without entries is nobody's neighbour: it is nearer to all documents than they are to each other, and
    would join them all (docs/paper.md#graph). It still has neighbours itself.
    """
    n, asked = X.shape[0], (X if X_new is None else X_new).shape[0]
    # as few bytes as will do for all entries of the graph
    index_type = None if is_tensor(X) else sp.get_index_dtype(maxval=(2 * k + 1) * max(n, asked))
    if sp.issparse(X):
        empty = np.diff(X.indptr) == 0
        full = np.flatnonzero(~empty).astype(index_type)
        if empty.any() and len(full) > k:
            others = X[full]
            if X_new is not None:
                distance, neighbor = nearest(others, k, X_new)
                return distance, full[neighbor]
            distance, neighbor = np.empty((n, k), dtype=X.dtype), np.empty((n, k), dtype=index_type)
            for rows, found in ((full, nearest(others, k)), (empty, nearest(others, k, X[np.flatnonzero(empty)]))):
                distance[rows], neighbor[rows] = found[0], full[found[1]]
            return distance, neighbor
    distance, neighbor = nearest(X, k, X_new)
    return distance, neighbor if index_type is None else neighbor.astype(index_type, copy=False)


def normalized_laplacian(affinity: Any) -> Any:
    """Symmetric normalised Laplacian I - D^-1/2 A D^-1/2, sparse (Eq. 2)."""
    scale = 1 / degrees(affinity) ** 0.5
    if is_tensor(affinity):  # its diagonal is stored, with zeros
        xp, column = namespace(affinity), affinity.col_indices()
        row = _row_numbers(affinity)
        value = xp.where(row == column, 1 - affinity.values(), -affinity.values() * scale[row] * scale[column])
        return csr(value, column, affinity.crow_indices(), tuple(affinity.shape))
    n, begins = affinity.shape[0], affinity.indptr
    value = affinity.data * scale[affinity.indices]
    for row in range(0, n, BLOCK):
        end = min(row + BLOCK, n)
        value[begins[row] : begins[end]] *= np.repeat(scale[row:end], np.diff(begins[row : end + 1]))
    S = sp.csr_array((value, affinity.indices, begins), shape=affinity.shape)
    number = np.arange(n + 1, dtype=affinity.indices.dtype)
    return sp.csr_array((np.ones(n, dtype=affinity.dtype), number[:-1], number), shape=S.shape) - S


def degrees(affinity: Any) -> Array:
    """Sum of each row's weights; shape (n,)."""
    if not is_tensor(affinity):
        return affinity.sum(axis=1)
    values = affinity.values()
    one = namespace(values).ones((affinity.shape[0], 1), dtype=values.dtype, device=values.device)
    return (Steady(affinity) @ one)[:, 0]


def _row_numbers(matrix: Any) -> Array:
    """Row of each stored entry of a sparse tensor."""
    begins = matrix.crow_indices()
    return namespace(begins).repeat_interleave(begins.diff())


def build_graph(
    X: Any, n_neighbors: int | str = "auto", bandwidth: float | None = None, one_sided: float = 1.0
) -> Graph:
    """Affinity, Laplacian and connected components of one client's rows (Eq. 1-2).

    Where they are many, in an order in which neighbours are near each other, so that what a product with the Laplacian
    needs next is mostly in the cache, and such that the product can take several cores.
    """
    affinity = knn_affinity(X, n_neighbors, bandwidth, one_sided=one_sided)
    if is_tensor(affinity):
        graph = graph_of(affinity)
        return replace(graph, laplacian=Steady(graph.laplacian))
    if affinity.shape[0] < ORDER_FROM:
        return graph_of(affinity)
    component = _components(affinity)  # in the order of the client's rows, which is the same on every machine
    order = reverse_cuthill_mckee(affinity, symmetric_mode=True)
    affinity = affinity[order]  # one after the other: there are never three of them
    affinity = affinity[:, order]
    affinity.sort_indices()
    graph = graph_of(affinity, component[order])
    return replace(graph, laplacian=Striped(graph.laplacian), order=order)


def graph_of(affinity: Any, component: Array | None = None) -> Graph:
    """Laplacian and connected components of a graph given by its weights (Eq. 2), and by its components if known."""
    if component is None:
        component = _components(affinity)
    xp = namespace(component)
    by_size = xp.argsort(-xp.bincount(component), stable=True)  # ties: the component seen first
    return Graph(normalized_laplacian(affinity), degrees(affinity), xp.argsort(by_size)[component])


def _components(affinity: Any) -> Array:
    """Number of each row's connected component, in the order in which they are first seen; shape (n,)."""
    if is_tensor(affinity):
        return _components_on_device(affinity)
    return connected_components(affinity, directed=False)[1]


def _components_on_device(affinity: Any) -> Array:
    """`_components` of a tensor.

    Every row takes the smallest number among itself and its neighbours, then that row's number, until nothing changes.
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

    An empty cluster counts as 0, so that putting all rows in one cluster does not pay.
    """
    H = sp.csr_array((np.ones(len(labels)), (np.arange(len(labels)), labels)), shape=(len(labels), n_clusters))
    inside = (H.multiply(affinity @ H)).sum(axis=0)
    volume = H.T @ affinity.sum(axis=1)
    return float(np.mean(np.divide(inside, volume, out=np.zeros(n_clusters), where=volume > 0)))
