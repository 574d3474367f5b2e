"""Neighbourhood graph of one client (Eq. 1-2)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors

Array = np.ndarray

# A far outlier's Gaussian weights underflow; below this they are raised, so that no vertex loses its last edge.
MIN_WEIGHT = 1e-12


@dataclass(frozen=True)
class Graph:
    """What the spectral steps need to know of a client's graph."""

    laplacian: sp.csr_array  # n x n, symmetric normalised
    degree: Array  # n
    component: Array  # n, number of the connected component of each row, largest component first

    @property
    def component_sizes(self) -> Array:
        """Rows of each connected component, largest first."""
        return np.bincount(self.component)


def resolve_neighbors(n_neighbors: int | str, n: int) -> int:
    """Number of neighbours for n rows: ``"auto"`` is max(10, sqrt(n)/2); never more than n - 1."""
    wanted = max(10, ceil(sqrt(n) / 2)) if n_neighbors == "auto" else int(n_neighbors)
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
    n = X.shape[0]
    k = resolve_neighbors(n_neighbors, n)
    distance, neighbor = _neighbors(X, k)
    if bandwidth is None:
        bandwidth = stretch * float(distance.mean(dtype=np.float64)) or 1.0  # all rows equal: any width gives weight 1
    directed = _gaussian(distance, neighbor, bandwidth, X)
    if one_sided != 1:
        mutual = directed.minimum(directed.T)  # few entries, and none where there is one direction only
        mutual.data *= 1 - one_sided
        directed.data *= one_sided
        directed = directed + mutual
    return sp.csr_array(directed.maximum(directed.T)), bandwidth


def cross_affinity(X_new: Any, X: Any, n_neighbors: int | str, bandwidth: float) -> sp.csr_array:
    """Gaussian weights of new rows to their nearest rows among X; (n_new, d), (n, d) -> (n_new, n)."""
    k = resolve_neighbors(n_neighbors, X.shape[0])
    return _gaussian(*_neighbors(X, k, X_new), bandwidth, X)


def _gaussian(distance: Array, neighbor: Array, bandwidth: float, X: Any) -> sp.csr_array:
    """Weight of each pair of neighbours among the rows of X, in their precision; (rows, k) -> (rows, n)."""
    rows, k = distance.shape
    weight = np.maximum(np.exp(-0.5 * (distance / bandwidth) ** 2), MIN_WEIGHT).astype(X.dtype, copy=False)
    return sp.csr_array((weight.ravel(), neighbor.ravel(), np.arange(0, rows * k + 1, k)), shape=(rows, X.shape[0]))


def _neighbors(X: Any, k: int, X_new: Any = None) -> tuple[Array, Array]:
    """Distances of new rows to the k nearest rows and their numbers; of each row to the k nearest others if left out.

    A sparse row without entries is nobody's neighbour: it is nearer to all documents than they are to each other, and
    would join them all (docs/paper.md#graph). It still has neighbours itself.
    """
    if sp.issparse(X):
        empty = np.diff(X.indptr) == 0
        full = np.flatnonzero(~empty)
        if empty.any() and len(full) > k:
            search = NearestNeighbors(n_neighbors=k).fit(X[full])
            if X_new is not None:
                distance, neighbor = search.kneighbors(X_new)
                return distance, full[neighbor]
            distance, neighbor = np.empty((len(empty), k), dtype=X.dtype), np.empty((len(empty), k), dtype=np.int64)
            distance[full], neighbor[full] = search.kneighbors()
            distance[empty], neighbor[empty] = search.kneighbors(X[np.flatnonzero(empty)])
            return distance, full[neighbor]
    return NearestNeighbors(n_neighbors=k).fit(X).kneighbors(X_new)


def normalized_laplacian(affinity: sp.csr_array) -> sp.csr_array:
    """Symmetric normalised Laplacian I - D^-1/2 A D^-1/2, sparse (Eq. 2)."""
    degree = affinity.sum(axis=1)
    scale = 1 / np.sqrt(degree)
    D = sp.dia_array((scale[None, :], [0]), shape=affinity.shape)
    eye = sp.eye_array(affinity.shape[0], dtype=affinity.dtype, format="csr")
    return sp.csr_array(eye - D @ affinity @ D)


def build_graph(
    X: Any, n_neighbors: int | str = "auto", bandwidth: float | None = None, one_sided: float = 1.0
) -> Graph:
    """Affinity, Laplacian and connected components of one client's rows (Eq. 1-2)."""
    return graph_of(knn_affinity(X, n_neighbors, bandwidth, one_sided=one_sided))


def graph_of(affinity: sp.csr_array) -> Graph:
    """Laplacian and connected components of a graph given by its weights (Eq. 2)."""
    _, component = connected_components(affinity, directed=False)
    by_size = np.argsort(-np.bincount(component), kind="stable")  # ties: the component seen first
    return Graph(normalized_laplacian(affinity), affinity.sum(axis=1), np.argsort(by_size)[component])


def association(affinity: sp.csr_array, labels: Array, n_clusters: int) -> float:
    """Mean over clusters of the share of a cluster's edge weight that stays inside it; 1 - Ncut/k.

    An empty cluster counts as 0, so that putting all rows in one cluster does not pay.
    """
    H = sp.csr_array((np.ones(len(labels)), (np.arange(len(labels)), labels)), shape=(len(labels), n_clusters))
    inside = (H.multiply(affinity @ H)).sum(axis=0)
    volume = H.T @ affinity.sum(axis=1)
    return float(np.mean(np.divide(inside, volume, out=np.zeros(n_clusters), where=volume > 0)))
