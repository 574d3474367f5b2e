"""Cluster centres on the unit sphere: those of one client, common ones of all, and which of the two suit a client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from sklearn.cluster import KMeans

from ..linalg.arrays import Array, cast, double, inner, like, namespace, to_numpy

SAMPLE = 4_000  # rows that k-means is started on again and again, if 40 a cluster; all of them count in the end
LLOYD_STEPS = 30  # over all rows at most


def norms(Y: Array) -> Array:
    """Norm of each row, 1 for a zero row, which then stays zero; (n, k) -> (n, 1)."""
    norm = namespace(Y).einsum("ij,ij->i", double(Y), double(Y)) ** 0.5
    norm[norm == 0] = 1
    return cast(norm[:, None], Y.dtype)


def unit_centers(E: Array, k: int, n_init: int, seed: int) -> Array:
    """k-means of rows of unit norm, centres brought to unit norm: the nearest has the largest cosine; (n, k) -> (k, k).

    Restarts are made on 4,000 rows, or 40 for each centre, and the best of them goes on with all. Rows of zeros have
    no direction: a centre spent on them could win no other row. Where there are no more different rows than centres,
    the rows are the centres and the last one is repeated.
    """
    E = E[(E != 0).any(axis=1)]
    n = len(E)
    size = min(n, max(SAMPLE, 40 * k))
    some = to_numpy(E if size == n else E[np.sort(np.random.default_rng(seed).choice(n, size, replace=False))])
    first = _different(some[: 4 * k])
    if len(first) <= k:  # few rows tell that there are enough; that there are not, all
        first = _different(some)
    if len(first) == 0:
        return like(np.eye(k, E.shape[1]), E)
    if len(first) <= k:
        return like(some[first[np.minimum(np.arange(k), len(first) - 1)]], E)
    centers = like(KMeans(k, n_init=n_init, random_state=seed).fit(some).cluster_centers_, E)
    if size < n:
        centers = _lloyd(E, centers)
    return centers / norms(centers)


def _different(E: np.ndarray) -> np.ndarray:
    """Where each row that differs from the others, up to rounding, comes first; (n, k) -> (at most n,)."""
    return np.unique(E.round(np.finfo(E.dtype).precision - 3), axis=0, return_index=True)[1]


def _lloyd(E: Array, centers: Array) -> Array:
    """Steps of k-means over all rows, until centres move by less than one part in ten thousand."""
    for _ in range(LLOYD_STEPS):
        before = centers
        labels = (E @ centers.T - (centers * centers).sum(axis=1) / 2).argmax(axis=1)
        sums, sizes = _sums(E, labels, len(centers))
        centers = cast(namespace(E).where(sizes[:, None] > 0, sums / sizes.clip(1)[:, None], double(before)), E.dtype)
        if float(((centers - before) ** 2).sum()) <= 1e-8 * float((centers**2).sum()):
            break
    return centers


def common_start(matched: Sequence[np.ndarray]) -> np.ndarray:
    """Mean direction of the centres that carry the same number at all clients; m arrays (k, k) -> (k, k)."""
    mean = np.mean([np.asarray(C, dtype=np.float64) for C in matched], axis=0)
    return mean / norms(mean)


def cluster_sums(E: Array, centers: Array) -> Array:
    """Sum of the rows nearest to each centre, over the number of rows; (n, k), (k, k) -> (k, k)."""
    return _sums(E, (E @ centers.T).argmax(axis=1), len(centers))[0] / len(E)


def common_step(centers: np.ndarray, sums: Iterable[np.ndarray]) -> np.ndarray:
    """One step of k-means over the rows of all clients, each client counted alike; (k, k) -> (k, k).

    A centre that no row is nearest to stays where it is.
    """
    total = np.sum([np.asarray(S, dtype=np.float64) for S in sums], axis=0)
    return np.where(total.any(axis=1, keepdims=True), total / norms(total), centers)


def distance(E: Array, centers: Array) -> float:
    """Mean of 1 - cosine to the nearest centre; (n, k), (k, k) -> number."""
    return 1 - float(double(namespace(E).amax(E @ centers.T, axis=1)).mean())


def distance_left_out(E: Array, labels: Array, k: int) -> float:
    """The same to centres of a client's own, each row compared with centres that it had no part in.

    A centre is the mean of the rows that carry its label, less the row itself: a cluster of one row is no centre for
    that row. Labels are not found anew without the row, so own centres still come off a little too well.
    """
    xp = namespace(E)
    sums, sizes = _sums(E, labels, k)
    cosine = xp.where(sizes > 0, double(E) @ (sums / norms(sums)).T, -1.0)
    others = sums[labels] - double(E)
    own = xp.where(sizes[labels] > 1, xp.einsum("ij,ij->i", double(E), others / norms(others)), -1.0)
    cosine[labels[:, None] == like(np.arange(k), labels)] = own
    return 1 - float(xp.amax(cosine, axis=1).mean())


def _sums(E: Array, labels: Array, k: int) -> tuple[Array, Array]:
    """Sum and number of the rows of each label, in double precision; (n, q), (n,) -> (k, q), (k,)."""
    belongs = double(labels[:, None] == like(np.arange(k), labels))
    return inner(belongs, double(E)), belongs.sum(axis=0)
