"""A silo's own clusters, as a start of its mixture: k-means of its rows, each cluster by the nearest common one."""

from __future__ import annotations

import warnings

import numpy as np

from ...kernels.alignment import same_place
from ...mixture import Cells, Personal
from ...mixture.cells import level_parts
from ...mixture.starts import CATEGORY_WEIGHT, filled
from ...mixture.steps import SMALLEST_SHARE, Common
from ..base import Array

OWN, APART = -1, -2  # numbers of starts that only silos can make; in the second, columns vary by themselves


def own_start(cells: Cells, common: Common, k: int, n_init: int, seed: int) -> Personal:
    """k-means of a silo's rows, in coordinates in which the common clusters are round.

    Parameters
    ----------
    cells : Cells
        n rows.
    common : Common
        K clusters in r coordinates: their shape, and where their numbers are.
    k : int
        Clusters of the silo, at most K.
    n_init : int
        Restarts, from centres drawn by k-means++.
    seed : int

    Returns
    -------
    Personal
        Means of the K clusters, their shares and profiles; of those that the silo lacks, the common ones with next to
        no share.
    """
    from sklearn.cluster import KMeans

    K, r = common.means.shape
    rows = np.vstack([block for _, block in filled(cells)])
    half = np.linalg.inv(np.linalg.cholesky(common.covariance)).T
    frame = np.hstack([common.means @ half, CATEGORY_WEIGHT * common.profiles])
    round_rows = np.hstack([rows[:, :r] @ half, rows[:, r:]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer different rows than clusters: some stay empty
        found = KMeans(min(k, cells.n), n_init=n_init, random_state=seed).fit(round_rows)
    # the largest product with -|b|²/2 beside b, and 1 beside a, is the smallest distance of a and b
    centers = np.hstack([found.cluster_centers_, np.ones((len(found.cluster_centers_), 1))])
    numbers = same_place(np.hstack([frame, -0.5 * (frame**2).sum(axis=1)[:, None]]), centers)
    belongs = np.eye(K)[numbers[found.labels_]]
    counts, sums = belongs.sum(axis=0), belongs.T @ rows
    there = counts[:, None] > 0
    means = np.where(there, sums[:, :r] / np.maximum(counts, 1)[:, None], common.means)
    shares = np.where(there[:, 0], counts / cells.n, SMALLEST_SHARE)
    return Personal(means, shares, _profiles(sums[:, r:] / CATEGORY_WEIGHT, common, cells.levels))


def _profiles(counts: Array, common: Common, levels: tuple[int, ...]) -> Array:
    """Shares of the levels in each cluster, with one row of the common ones; (K, l) -> (K, l)."""
    profiles = common.profiles.copy()
    for part in level_parts(levels):
        rows = counts[:, part].sum(axis=1, keepdims=True)
        profiles[:, part] = (counts[:, part] + common.profiles[:, part]) / (rows + 1)
    return profiles


__all__ = ["APART", "OWN", "own_start"]
