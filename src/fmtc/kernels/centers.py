"""Cluster centres on the unit sphere: those of one client, common ones of all, and which of the two suit a client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from sklearn.cluster import KMeans

Array = np.ndarray


def norms(Y: Array) -> Array:
    """Norm of each row, 1 for a zero row, which then stays zero; (n, k) -> (n, 1)."""
    norm = np.sqrt(np.einsum("ij,ij->i", Y, Y, dtype=np.float64))[:, None].astype(Y.dtype, copy=False)
    norm[norm == 0] = 1
    return norm


def unit_centers(E: Array, k: int, n_init: int, seed: int) -> Array:
    """k-means of rows of unit norm, centres brought to unit norm: the nearest has the largest cosine; (n, k) -> (k, k).

    Rows of zeros have no direction: a centre spent on them could win no other row. Where there are no more different
    rows than centres, the rows are the centres and the last one is repeated.
    """
    E = E[E.any(axis=1)]
    _, first = np.unique(E.round(np.finfo(E.dtype).precision - 3), axis=0, return_index=True)  # equal up to rounding
    if len(first) == 0:
        return np.eye(k, E.shape[1], dtype=E.dtype)
    if len(first) <= k:
        return E[first[np.minimum(np.arange(k), len(first) - 1)]]
    centers = KMeans(k, n_init=n_init, random_state=seed).fit(E).cluster_centers_
    return centers / norms(centers)


def common_start(matched: Sequence[Array]) -> Array:
    """Mean direction of the centres that carry the same number at all clients; m arrays (k, k) -> (k, k)."""
    mean = np.mean([np.asarray(C, dtype=np.float64) for C in matched], axis=0)
    return mean / norms(mean)


def cluster_sums(E: Array, centers: Array) -> Array:
    """Sum of the rows nearest to each centre, over the number of rows; (n, k), (k, k) -> (k, k)."""
    return _sums(E, (E @ centers.T).argmax(axis=1), len(centers)) / len(E)


def common_step(centers: Array, sums: Iterable[Array]) -> Array:
    """One step of k-means over the rows of all clients, each client counted alike; (k, k) -> (k, k).

    A centre that no row is nearest to stays where it is.
    """
    total = np.sum([np.asarray(S, dtype=np.float64) for S in sums], axis=0)
    return np.where(total.any(axis=1, keepdims=True), total / norms(total), centers)


def distance(E: Array, centers: Array) -> float:
    """Mean of 1 - cosine to the nearest centre; (n, k), (k, k) -> number."""
    return float(1 - (E @ centers.T).max(axis=1).mean(dtype=np.float64))


def distance_left_out(E: Array, labels: Array, k: int) -> float:
    """The same to centres of a client's own, each row compared with centres that it had no part in.

    A centre is the mean of the rows that carry its label, less the row itself: a cluster of one row is no centre for
    that row. Labels are not found anew without the row, so own centres still come off a little too well.
    """
    sums, sizes = _sums(E, labels, k), np.bincount(labels, minlength=k)
    cosine = np.where(sizes > 0, E @ (sums / norms(sums)).T, -1)
    others = sums[labels] - E
    own = np.einsum("ij,ij->i", E, others / norms(others))
    cosine[np.arange(len(E)), labels] = np.where(sizes[labels] > 1, own, -1)
    return float(1 - cosine.max(axis=1).mean(dtype=np.float64))


def _sums(E: Array, labels: Array, k: int) -> Array:
    """Sum of the rows of each label, in double precision; (n, q), (n,) -> (k, q)."""
    return np.stack([np.bincount(labels, weights=column, minlength=k) for column in E.T], axis=1)
