"""Cluster centres on the unit sphere, by k-means of one client."""

from __future__ import annotations

import numpy as np

from ..linalg.arrays import Array, asarray_like, cast, double, inner_products, is_tensor, namespace, to_numpy

KMEANS_SAMPLE = 4_000  # rows for the restarts of k-means, or 40 per cluster if that is more; the last steps use all
LLOYD_STEPS = 30  # over all rows, at most
RESTART_STEPS, LOOK_EVERY = 300, 8  # of the restarts on a device, at most; how often it is asked if they ended


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
    sample = E if size == n else E[np.sort(np.random.default_rng(seed).choice(n, size, replace=False))]
    some = to_numpy(sample)
    first = _distinct_rows(some[: 4 * k])
    if len(first) <= k:  # a few rows can show that there are enough distinct ones; only all can show the opposite
        first = _distinct_rows(some)
    if len(first) == 0:
        return asarray_like(np.eye(k, E.shape[1]), E)
    if len(first) <= k:
        return asarray_like(some[first[np.minimum(np.arange(k), len(first) - 1)]], E)
    centers = _restarts_at_once(sample, k, n_init, seed) if is_tensor(E) else None
    if centers is None:
        from sklearn.cluster import KMeans

        centers = asarray_like(KMeans(k, n_init=n_init, random_state=seed).fit(some).cluster_centers_, E)
    if size < n:
        centers = _lloyd(E, centers)
    return centers / row_norms(centers)


def _restarts_at_once(E: Array, k: int, n_init: int, seed: int) -> Array | None:
    """k-means with several starts as scikit-learn does it, with the same random numbers, but all starts at a time.

    Every step is a few products, so a device takes hardly longer for ten starts than for one. None if a cluster becomes
    empty: scikit-learn knows what to do then.
    """
    xp, n, R = namespace(E), len(E), n_init
    X = double(E) - double(E).mean(axis=0)
    squares, trials = xp.einsum("ij,ij->i", X, X), 2 + int(np.log(k))
    random = np.random.RandomState(seed).random_sample((R, 1 + (k - 1) * trials))
    row_type = squares.argmax()  # an integer of the library
    start, first = asarray_like(np.arange(R), row_type), asarray_like((n * random[:, 0]).astype(np.int64), row_type)
    random = asarray_like(random, X)

    def gaps(C: Array) -> Array:
        """Squared distances to centres; (R, j, q) -> (R, j, n)."""
        return (squares + (C * C).sum(axis=2)[:, :, None] - 2 * (C @ X.T)).clip(min=0)

    # k-means++: of a few rows, drawn with weights that are squared distances, the one that lowers their sum most
    C = X[first][:, None]
    near = gaps(C)[:, 0]
    for j in range(1, k):
        reached = xp.cumsum(near, axis=1)
        drawn = random[:, 1 + (j - 1) * trials : 1 + j * trials] * reached[:, -1:]
        rows = (reached[:, None] < drawn[:, :, None]).sum(axis=2).clip(max=n - 1)
        left = xp.minimum(near[:, None], gaps(X[rows]))
        best = left.sum(axis=2).argmin(axis=1)
        near, C = left[start, best], xp.concatenate([C, X[rows[start, best]][:, None]], axis=1)

    # Lloyd's steps of every start, until its labels or nearly its centres stay; an empty cluster has centre NaN
    with_one = xp.concatenate([X, xp.ones_like(X[:, :1])], axis=1)
    enough, number = 1e-4 * squares.mean() / X.shape[1], asarray_like(np.arange(k), row_type)[None, :, None]
    labels, ended = first[:, None] - n, start < 0
    for step in range(RESTART_STEPS):
        before, labels = labels, (C @ X.T - 0.5 * (C * C).sum(axis=2)[:, :, None]).argmax(axis=1)
        sums = double(labels[:, None] == number) @ with_one
        with np.errstate(invalid="ignore"):
            means = sums[:, :, :-1] / sums[:, :, -1:]
        stays = (labels == before).all(axis=1) | (((means - C) ** 2).sum(axis=2).sum(axis=1) <= enough)
        C, ended = xp.where(ended[:, None, None], C, means), ended | stays
        if step % LOOK_EVERY == LOOK_EVERY - 1 and bool(ended.all()):
            break
    if not bool(xp.isfinite(C).all()):
        return None
    best = xp.amin(gaps(C), axis=1).sum(axis=1).argmin()
    return asarray_like(C[best] + double(E).mean(axis=0), E)


def _distinct_rows(E: np.ndarray) -> np.ndarray:
    """Index of the first of each group of rows that are equal up to rounding; (n, k) -> (at most n,)."""
    return np.unique(E.round(np.finfo(E.dtype).precision - 3), axis=0, return_index=True)[1]


def _lloyd(E: Array, centers: Array) -> Array:
    """Steps of k-means over all rows, until the centres move by less than one part in ten thousand."""
    for _ in range(LLOYD_STEPS):
        before = centers
        labels = (E @ centers.T - (centers * centers).sum(axis=1) / 2).argmax(axis=1)
        sums, sizes = label_sums(E, labels, len(centers))
        centers = cast(namespace(E).where(sizes[:, None] > 0, sums / sizes.clip(1)[:, None], double(before)), E.dtype)
        if float(((centers - before) ** 2).sum()) <= 1e-8 * float((centers**2).sum()):
            break
    return centers


def label_sums(E: Array, labels: Array, k: int) -> tuple[Array, Array]:
    """Sum and number of the rows with each label, in double precision; (n, q), (n,) -> (k, q), (k,)."""
    belongs = double(labels[:, None] == asarray_like(np.arange(k), labels))
    return inner_products(belongs, double(E)), belongs.sum(axis=0)
