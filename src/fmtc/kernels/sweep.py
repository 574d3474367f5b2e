"""Evidence on the number of clusters: parts, eigengaps, models of many widths from one decomposition, agreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .centers import row_norms, unit_centers
from .graph import knn_affinity, resolve_neighbors
from .lift import MIN_SHARE

Array = np.ndarray

SMALLEST_AGREED = 3  # clusters from which agreement is compared: halves of the rows are found again nearly everywhere


def large_parts(X: Any, n_neighbors: int | str = "auto") -> int:
    """Number of large parts that the rows fall into; 1 if most rows are in none. (n, d) -> int.

    Two rows are joined if each is among the nearest neighbours of the other. A part is large if it has more rows than
    one row has neighbours, and at least a quarter of an equal share of all large parts, as for the shapes that `lift`
    looks for: a few outliers are no part. No labels were used to choose this rule.

    Examples
    --------
    Two lines of 40 points each, and one point far from both:

    >>> import numpy as np
    >>> from fmtc.kernels.sweep import large_parts
    >>> line = np.column_stack([np.arange(40.0), np.zeros(40)])
    >>> large_parts(np.vstack([line, line + [0, 30], [[99.0, 99.0]]]))
    2
    """
    from scipy.sparse.csgraph import connected_components

    mutual = knn_affinity(X, n_neighbors, nonmutual_weight=0.0)
    mutual.eliminate_zeros()
    sizes = np.bincount(connected_components(mutual, directed=False)[1])
    sizes = sizes[sizes > resolve_neighbors(n_neighbors, X.shape[0])]
    while len(sizes) and (small := sizes < MIN_SHARE * sizes.mean()).any():
        sizes = sizes[~small]
    return len(sizes) if 2 * sizes.sum() > X.shape[0] else 1


def pooled_gap(eigenvalues: Array, ks: Sequence[int]) -> Array:
    """Step between eigenvalue k and k + 1 of each client's Laplacian; (m, e), v numbers -> (m, v).

    Parameters
    ----------
    eigenvalues : array of shape (m, e)
        The lowest of each client, ascending; e is above all of `ks`.
    ks : sequence of int
        Numbers of clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.sweep import pooled_gap
    >>> pooled_gap(np.array([[0.0, 0.25, 1.0]]), [1, 2])
    array([[0.25, 0.75]])
    """
    k = np.asarray(ks)
    return eigenvalues[:, k] - eigenvalues[:, k - 1]


def widths(ks: Sequence[int]) -> list[slice]:
    """Where the centres of each number of clusters stand in one flat array: k x k numbers, one k after the other."""
    ends = np.cumsum([0, *(k * k for k in ks)]).tolist()
    return [slice(ends[i], ends[i + 1]) for i in range(len(ks))]


def directions(P: Array, k: int) -> Array:
    """Projections to the first k columns, at unit norm; (n, e) -> (n, k)."""
    E = np.ascontiguousarray(P[:, :k])
    return E / row_norms(E)


@dataclass(frozen=True)
class Sweep:
    """Clusters of one client for many numbers of clusters."""

    P: Array  # n x e, projections
    ks: tuple[int, ...]
    labels: Array  # v x n
    centers: Array  # flat, see `widths`

    def parts(self) -> list[tuple[Array, Array, Array]]:
        """For each number of clusters: directions of rows (n, k), labels (n,) and centres (k, k)."""
        found = zip(self.ks, self.labels, widths(self.ks), strict=True)
        return [(directions(self.P, k), y, self.centers[place].reshape(k, k)) for k, y, place in found]


def sweep(P: Array, ks: Sequence[int], n_init: int, seed: int) -> Sweep:
    """k-means of projected rows for each k; the model of width k is the first k columns of one projection.

    Parameters
    ----------
    P : array of shape (n, e)
        Projected rows, X W; the column of the lowest eigenvalue first.
    ks : sequence of int
    n_init : int
        Restarts of k-means.
    seed : int
    """
    labels, centers = [], []
    for k in ks:
        E = directions(P, k)
        C = unit_centers(E, k, n_init, seed)
        labels.append((E @ C.T).argmax(axis=1))
        centers.append(C.ravel())
    return Sweep(P, tuple(ks), np.array(labels), np.concatenate(centers))


def agreement(own: Sweep, X: Any, W: Array, centers: Array) -> Array:
    """Adjusted Rand index, for each k, of a client's own labels and those that another client's model gives its rows.

    Parameters
    ----------
    own : Sweep
    X : array or `Rows` of shape (n, d)
        The client's rows, in the units that all clients share.
    W : array of shape (d, e)
        Projection of the other client.
    centers : array
        Of the other client, flat.

    Returns
    -------
    array of shape (v,)
    """
    P = X @ W
    found = [
        (directions(P, k) @ centers[place].reshape(k, k).T).argmax(axis=1)
        for k, place in zip(own.ks, widths(own.ks), strict=True)
    ]
    return np.array([adjusted_rand(a, b) for a, b in zip(own.labels, found, strict=True)])


def adjusted_rand(a: Array, b: Array) -> float:
    """Adjusted Rand index of two labellings with numbers from 0; 1 where both are one cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.sweep import adjusted_rand
    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    width = int(b.max()) + 1
    table = np.bincount(a * width + b, minlength=(int(a.max()) + 1) * width).reshape(-1, width).astype(np.float64)

    def pairs(counts: Array) -> float:
        return float((counts * (counts - 1)).sum() / 2)

    both, first, second, all_ = (
        pairs(table),
        pairs(table.sum(axis=1)),
        pairs(table.sum(axis=0)),
        pairs(np.array(len(a))),
    )
    chance = first * second / all_ if all_ else 0.0
    most = (first + second) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)
