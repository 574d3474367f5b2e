"""Cluster centres on the unit sphere, by k-means of one client."""

from __future__ import annotations

import numpy as np

from ..linalg.arrays import Array, asarray_like, cast, double, inner_products, namespace, to_numpy

KMEANS_SAMPLE = 4_000  # rows for the restarts of k-means, or 40 per cluster if that is more; the last steps use all
LLOYD_STEPS = 30  # over all rows, at most


def row_norms(Y: Array) -> Array:
    """Norm of each row, 1 for a zero row, so that a division leaves it zero; (n, k) -> (n, 1)."""
    norm = namespace(Y).einsum("ij,ij->i", double(Y), double(Y)) ** 0.5
    norm[norm == 0] = 1
    return cast(norm[:, None], Y.dtype)


def unit_centers(E: Array, k: int, n_init: int, seed: int) -> Array:
    """k-means of rows of unit norm, centres scaled to unit norm: the nearest has the largest cosine; (n, k) -> (k, k).

    The restarts use at most 4,000 rows, or 40 per centre; the best of them continues with all rows. Zero rows are left
    out: they have no direction, and a centre at zero could win no other row. If there are no more distinct rows than
    centres, the rows are the centres and the last one is repeated.
    """
    E = E[(E != 0).any(axis=1)]
    n = len(E)
    size = min(n, max(KMEANS_SAMPLE, 40 * k))
    some = to_numpy(E if size == n else E[np.sort(np.random.default_rng(seed).choice(n, size, replace=False))])
    first = _distinct_rows(some[: 4 * k])
    if len(first) <= k:  # a few rows can show that there are enough distinct ones; only all can show the opposite
        first = _distinct_rows(some)
    if len(first) == 0:
        return asarray_like(np.eye(k, E.shape[1]), E)
    if len(first) <= k:
        return asarray_like(some[first[np.minimum(np.arange(k), len(first) - 1)]], E)
    from sklearn.cluster import KMeans

    centers = asarray_like(KMeans(k, n_init=n_init, random_state=seed).fit(some).cluster_centers_, E)
    if size < n:
        centers = _lloyd(E, centers)
    return centers / row_norms(centers)


def _distinct_rows(E: np.ndarray) -> np.ndarray:
    """Index of the first of each group of rows that are equal up to rounding; (n, k) -> (at most n,)."""
    return np.unique(E.round(np.finfo(E.dtype).precision - 3), axis=0, return_index=True)[1]


def _lloyd(E: Array, centers: Array) -> Array:
    """Steps of k-means over all rows, until the centres move by less than one part in ten thousand."""
    for _ in range(LLOYD_STEPS):
        before = centers
        labels = (E @ centers.T - (centers * centers).sum(axis=1) / 2).argmax(axis=1)
        sums, sizes = _label_sums(E, labels, len(centers))
        centers = cast(namespace(E).where(sizes[:, None] > 0, sums / sizes.clip(1)[:, None], double(before)), E.dtype)
        if float(((centers - before) ** 2).sum()) <= 1e-8 * float((centers**2).sum()):
            break
    return centers


def _label_sums(E: Array, labels: Array, k: int) -> tuple[Array, Array]:
    """Sum and number of the rows with each label, in double precision; (n, q), (n,) -> (k, q), (k,)."""
    belongs = double(labels[:, None] == asarray_like(np.arange(k), labels))
    return inner_products(belongs, double(E)), belongs.sum(axis=0)
