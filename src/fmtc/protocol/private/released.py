"""What the server makes of the noisy sums: mean, radius, coordinates, anchors and their clusters. All post-processing.

Every function takes a released sum and the standard deviation of the noise in it, and costs no privacy. Randomness
comes from the seed of the run, which is public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from sklearn.cluster import KMeans

from ...kernels.records import Public
from ..base import Array
from .stages import BINS, HALF

WHITENING = 0.5  # of small axes, which are stretched: 1 would make all of them equal
EDGE = 1.2  # an eigenvalue above so many times the largest of pure noise counts as signal
LEAST_COORDINATES, MOST_COORDINATES = 2, 8  # at least; at most, or one for each cluster if those are more
ROWS_A_LINK = 12  # an anchor is worth so many standard deviations of the noise of a link in rows
FEWEST, MOST = 3, 8  # anchors for each cluster
MOST_WITHOUT_NOISE = 16  # the same, where there is no noise
NEAR = 8  # anchors whose links are believed more readily
FLOOR = 0.1  # of the mean link between anchors, added everywhere: noise alone forms no island
FEW_LINKS = 0.15  # below so many rows with a clear link, for each row, anchors are clustered by where they lie
DRAWS = 4000  # of the released Gaussian, from which anchors start
STARTS = 20  # of k-means
MIXTURE_STARTS = 4  # anchors for each component, of which a mixture starts
LEAST_VARIANCE = 0.01  # of a mixture in any direction, for each of the mean variance of all rows


def read_mean(public: Public, total: Array) -> tuple[Public, float]:
    """The pooled mean in the unit ball, and the number of rows; noise may make either impossible, so both are cut."""
    n = max(float(total[-1]), 1.0)
    mean = total[:-1] / n
    norm = float(np.linalg.norm(mean))
    return replace(public, mean=mean / max(norm, 1.0)), n


def read_radius(public: Public, total: Array) -> Public:
    """The median length of a row about the mean: the middle of the bin in which half of the rows are passed."""
    counts = np.maximum(total, 0)[::-1]  # from short to long
    passed = np.cumsum(counts)
    place = int(np.searchsorted(passed, passed[-1] / 2)) if passed[-1] > 0 else BINS - 3
    b = BINS - 1 - min(place, BINS - 1)
    return replace(public, radius=float(2 * 2 ** (-(b + 0.5) / 2)))


def unpacked(total: Array, d: int) -> Array:
    """The matrix whose triangle the stage `gram` released."""
    G = np.zeros((d, d))
    lower, column = np.tril_indices(d)
    G[lower, column] = total / np.where(lower == column, 1.0, sqrt(2))
    return G + np.tril(G, -1).T


def read_gram(public: Public, total: Array, n: float, sd: float, k: int) -> tuple[Public, Array]:
    """Coordinates in which the anchors live: leading axes of the released Gram matrix, small ones stretched.

    Returns
    -------
    public : Public
        With `basis` and `size`.
    variances : array of shape (r,)
        Of the coordinates before they are shortened, for the start of the anchors.
    """
    d = len(public.mean)
    values, U = np.linalg.eigh(unpacked(total, d))
    values, U = values[::-1], U[:, ::-1]
    edge = EDGE * sd * sqrt(2 * d)
    r = int(np.clip(np.count_nonzero(values > edge), min(LEAST_COORDINATES, d), min(max(k, MOST_COORDINATES), d)))
    signal = np.maximum(values[:r], max(edge, 1e-9 * abs(values[0]), 1e-300))
    stretch = (signal[0] / signal) ** (WHITENING / 2)
    U = U[:, :r] * np.where(np.abs(U[:, :r]).max(axis=0) == U[:, :r].max(axis=0), 1.0, -1.0)  # signs do not flip
    variances = signal * stretch**2 / n
    return replace(public, basis=U * stretch, size=float(sqrt(variances.sum()))), variances


def number_of_anchors(n: float, link_sd: float, k: int) -> int:
    """As many anchors as noise allows: 3 to 8 for each cluster."""
    if not link_sd:
        return MOST_WITHOUT_NOISE * k
    return int(np.clip(n / (ROWS_A_LINK * link_sd), FEWEST * k, MOST * k))


def first_anchors(variances: Array, size: float, K: int, seed: int) -> Array:
    """Anchors spread as the released covariance says: k-means centres of many draws from that Gaussian.

    Single draws lie anywhere, and how good a run becomes then depends on its seed; centres of many draws cover the
    Gaussian evenly.
    """
    rng = np.random.default_rng([seed, 1])
    E = rng.normal(size=(DRAWS, len(variances))) * np.sqrt(variances)
    E /= np.maximum(np.linalg.norm(E, axis=1, keepdims=True), size)
    return weighted_kmeans(E, np.ones(DRAWS), K, seed, starts=1)[0]


@dataclass(frozen=True)
class Cells:
    """A released step of k-means."""

    centers: Array  # K x r
    counts: Array  # K
    lives: Array  # K, of bool: more rows than noise would give


def read_cells(total: Array, centers: Array, sd: float) -> Cells:
    """Means of the rows of each anchor; an anchor without rows that stand out of the noise stays where it was."""
    K, r = centers.shape
    cells = total.reshape(K, r + 1)
    counts = cells[:, r] / HALF
    lives = counts > max(2.0, 2 * sd / HALF)
    found = np.where(lives[:, None], cells[:, :r] / np.maximum(counts, 1.0)[:, None], centers)
    norm = np.linalg.norm(found, axis=1, keepdims=True)
    return Cells(found / np.maximum(norm, 1.0), np.maximum(counts, 0), lives)


def revived(cells: Cells, seed: int) -> Array:
    """Centres for the next step: dead anchors move beside the fullest ones."""
    centers, rng = cells.centers.copy(), np.random.default_rng([seed, 2])
    counts = np.where(cells.lives, cells.counts, 0.0)
    spread = float(np.median(np.linalg.norm(centers - centers.mean(axis=0), axis=1)))
    for dead in np.flatnonzero(~cells.lives):
        full = int(counts.argmax())
        centers[dead] = centers[full] + 0.1 * spread * rng.normal(size=centers.shape[1]) / sqrt(centers.shape[1])
        counts[full] /= 2
        counts[dead] = counts[full]
    return centers


def weighted_kmeans(E: Array, weight: Array, k: int, seed: int, starts: int = STARTS) -> tuple[Array, Array]:
    """Centres and labels of weighted points; as many clusters as there are different points, at most."""
    k = min(k, len(np.unique(E, axis=0)))
    found = KMeans(k, n_init=starts, random_state=seed).fit(E, sample_weight=np.maximum(weight, 1e-9))
    return found.cluster_centers_, found.labels_


def links_matrix(total: Array, K: int) -> Array:
    """The released links as a symmetric matrix with an empty diagonal; (K (K - 1)/2,) -> (K, K)."""
    A = np.zeros((K, K))
    above, below = np.tril_indices(K, -1)
    A[above, below] = total
    return A + A.T


def clear_links(A: Array, centers: Array, sd: float) -> Array:
    """Links that stand out of the noise: by 1 standard deviation between near anchors, by 3 between others.

    Rows rarely lie between anchors that have many others nearer to them, so that such a link needs more evidence.
    """
    K = len(A)
    gap = ((centers[:, None] - centers) ** 2).sum(axis=2)
    np.fill_diagonal(gap, np.inf)
    rank = gap.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") < NEAR
    found = np.maximum(A - np.where(rank | rank.T, 1.0, 3.0) * sd, 0.0)
    found[np.arange(K), np.arange(K)] = 0.0
    return found


def clusters_of_anchors(cells: Cells, links: Array, sd: float, n: float, k: int, seed: int) -> Array:
    """Cluster of each anchor, by spectral clustering of the links; the largest cluster has number 0.

    Dead anchors take the cluster of the nearest living one. If few rows have a clear link, where the anchors lie
    decides instead.
    """
    alive = np.flatnonzero(cells.lives)
    if len(alive) < 2:
        alive = np.arange(len(cells.counts))
    C, counts = cells.centers[alive], cells.counts[alive]
    A = clear_links(links_matrix(links, len(cells.counts))[np.ix_(alive, alive)], C, sd)
    if len(alive) <= k:
        found = np.arange(len(alive))
    elif A.sum() / 2 < FEW_LINKS * n:
        found = weighted_kmeans(C, counts, k, seed)[1]
    else:
        A = A + FLOOR * A.sum() / len(alive) ** 2
        degree = 1 / np.sqrt(A.sum(axis=1))
        F = np.linalg.eigh(degree[:, None] * A * degree)[1][:, -k:]
        F /= np.maximum(np.linalg.norm(F, axis=1, keepdims=True), 1e-12)
        found = weighted_kmeans(F, counts, k, seed)[1]
    labels = np.empty(len(cells.counts), np.int64)
    labels[alive] = found
    dead = np.setdiff1d(np.arange(len(labels)), alive)
    if len(dead):
        gap = ((cells.centers[dead][:, None] - C) ** 2).sum(axis=2)
        labels[dead] = found[gap.argmin(axis=1)]
    size = np.bincount(labels, weights=np.where(cells.lives, cells.counts, 0), minlength=k)
    order = np.argsort(-size, kind="stable")
    return np.argsort(order)[labels]


# ---------------------------------------------------------------------------------------------------------- mixture


def first_mixture(public: Public, cells: Cells, second: Array, n: float, k: int, seed: int) -> Public:
    """A start for the mixture: weighted k-means of the cells of one step with several anchors for each component."""
    lives = cells.lives if cells.lives.sum() >= k else np.ones_like(cells.lives)
    C, counts = cells.centers[lives], cells.counts[lives]
    means, labels = weighted_kmeans(C, counts, k, seed)
    if len(means) < k:
        means = np.vstack([means, np.zeros((k - len(means), means.shape[1]))])
    return _mixture(public, means, np.bincount(labels, weights=counts, minlength=k), second, n)


def next_mixture(public: Public, cells: Cells, second: Array, n: float, sd: float) -> Public:
    """The mixture after one released step, the largest component first; one without rows keeps a count of noise."""
    found = _mixture(public, cells.centers, np.maximum(cells.counts, 2 * sd), second, n)
    order = np.argsort(-found.shares, kind="stable")
    return replace(found, centers=found.centers[order], shares=found.shares[order])


def _mixture(public: Public, means: Array, counts: Array, second: Array, n: float) -> Public:
    """One shape for all components: what the released second moments leave for rows about the means costs nothing."""
    counts = np.maximum(counts, 1.0)
    shares = counts / counts.sum()
    within = np.diag(second) - (means.T * shares) @ means
    values, U = np.linalg.eigh((within + within.T) / 2)
    values = np.maximum(values, LEAST_VARIANCE * second.mean())
    return replace(public, centers=means, precision=(U / values) @ U.T, shares=shares)
