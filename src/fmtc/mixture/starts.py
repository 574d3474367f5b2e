"""Starts of the mixture from sums alone: centres drawn from a Gaussian, a few steps of k-means, the best ones kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError
from ..linalg.arrays import row_blocks, to_numpy
from .cells import BLOCK, Cells, level_parts
from .steps import Common, Statistics

Array = np.ndarray

CATEGORY_WEIGHT = 0.7  # of an indicator of a level beside numbers of variance 1: two rows that differ are 1 apart
FIRST_SPREAD, FIRST_DRIFT = 0.1, 1.0


@dataclass(frozen=True)
class Shape:
    """Sums over the filled cells of a silo, in coordinates of starts (numbers, then weighted indicators of levels)."""

    mean: Array  # p
    fourths: Array  # p, sums of fourth powers
    within: Array  # p x p, products of deviations from the silo's mean
    between: Array  # p x p, the mean's own products times the number of rows


FEW_VALUES = 10  # different values of a coordinate that is a scale or a code: a Gaussian is no model of it
LOOK = 1000  # rows that are enough to see that values are many, in most columns


def has_many_values(cells: Cells) -> Array:
    """Which coordinates have more than ten different values, or a third as many as filled cells; (p,), 1 or 0.

    Levels of categories count as many: they have a model of their own.
    """
    many = np.ones(cells.r + sum(cells.levels))
    for j in range(cells.r):
        many[j] = _are_many(cells.Z[:LOOK, j]) or (cells.n > LOOK and _are_many(cells.Z[:, j]))
    return many


def _are_many(column: Any) -> bool:
    known = to_numpy(column)
    known = known[~np.isnan(known)]
    return len(np.unique(known)) > min(FEW_VALUES, len(known) / 3)


def filled(cells: Cells) -> Iterator[tuple[slice, Array]]:
    """Rows in coordinates of starts, a block at a time: missing numbers 0, the overall mean; missing levels 0."""
    for b in row_blocks(cells.n, BLOCK):
        numbers = np.nan_to_num(to_numpy(cells.Z[b]), nan=0.0)
        if not cells.levels:
            yield b, numbers
            continue
        indicators = np.zeros((len(numbers), sum(cells.levels)))
        for c, part in enumerate(level_parts(cells.levels)):
            codes = cells.codes[b, c]
            there = np.flatnonzero(codes >= 0)
            indicators[there, codes[there] + part.start] = CATEGORY_WEIGHT
        yield b, np.hstack([numbers, indicators])


def shape(cells: Cells) -> Shape:
    """First and second moments of a silo's rows."""
    p = cells.r + sum(cells.levels)
    total, fourths, products = np.zeros(p), np.zeros(p), np.zeros((p, p))
    for _, block in filled(cells):
        total += block.sum(axis=0)
        with np.errstate(over="ignore"):
            fourths += (block**4).sum(axis=0)
        products += block.T @ block
    if not np.isfinite(fourths).all():
        raise DataError("some values are too large for their fourth power to be computed: rescale the columns")
    mean = total / cells.n
    between = cells.n * np.outer(mean, mean)
    return Shape(mean, fourths, products - between, between)


def draw(covariance: Array, mean: Array, n_starts: int, k: int, rng: np.random.Generator) -> Array:
    """Centres from a Gaussian with the moments of the rows; (n_starts, k, p)."""
    lam, V = np.linalg.eigh(covariance)
    half = V * np.sqrt(np.maximum(lam, 0))
    return mean + rng.normal(size=(n_starts, k, len(mean))) @ half.T


def is_centred(start: int) -> bool:
    """Whether a start compares rows with their own silo's mean: every second one does."""
    return start % 2 == 1


FLAT = (1.1, 2.3)  # kurtosis of coordinates that may hold groups of their own: 3 is normal, 1.8 uniform, 1 two-valued


def flat_coordinates(fourths: Array, n: int, mean: Array, total: Array, r: int, most: int) -> Array:
    """Coordinates of numbers that are flatter than a Gaussian, as groups make them; the flattest first.

    Parameters
    ----------
    fourths, mean, total
        Moments of all rows, about the common mean.
    n, r, most : int
        Rows, coordinates of numbers, and how many to name.
    """
    variance = np.diag(total)[:r] + mean[:r] ** 2
    live = variance**2 > 0  # else a constant, of which rounding has left next to nothing
    kurtosis = np.full(r, np.inf)
    kurtosis[live] = fourths[:r][live] / n / variance[live] ** 2
    flat = np.flatnonzero((kurtosis > FLAT[0]) & (kurtosis < FLAT[1]))
    return flat[np.argsort(kurtosis[flat], kind="stable")][:most]


def along(column: int, covariance: Array, mean: Array, k: int) -> Array:
    """Centres at even quantiles of one coordinate, the mean in all others; (k, p)."""
    from scipy.special import ndtri

    centers = np.tile(mean, (k, 1))
    centers[:, column] += np.sqrt(covariance[column, column]) * ndtri((np.arange(k) + 0.5) / k)
    return centers


def assign_sums(cells: Cells, centers: Array, origins: Array, weights: Array) -> tuple[Array, Array]:
    """Rows nearest to each centre, and their sums, for several starts.

    Parameters
    ----------
    cells : Cells
    centers : ndarray of shape (S, k, p)
    origins : ndarray of shape (S, p)
        What is subtracted from the rows first.
    weights : ndarray of shape (S, p)
        Of the coordinates in distances; 0 looks away from one.

    Returns
    -------
    counts : ndarray of shape (S, k)
    sums : ndarray of shape (S, k, p)
        Of the rows as they are compared, less the origin.
    """
    S, k, p = centers.shape
    counts, sums = np.zeros((S, k)), np.zeros((S, k, p))
    for _, block in filled(cells):
        for s in range(S):
            rows = block - origins[s]
            weighted = centers[s] * weights[s]
            nearest = (rows @ weighted.T - 0.5 * (centers[s] * weighted).sum(axis=1)).argmax(axis=1)
            one = np.zeros((len(rows), k))
            one[np.arange(len(rows)), nearest] = 1
            counts[s] += one.sum(axis=0)
            sums[s] += one.T @ rows
    return counts, sums


def first_statistics(counts: Array, sums: Array, origin: Array, r: int) -> Statistics:
    """A silo's statistics before the first E-step, from its rows nearest to each centre."""
    absolute = sums + counts[:, None] * origin
    return Statistics(
        counts, np.ascontiguousarray(absolute[:, :r]), np.maximum(absolute[:, r:], 0) / CATEGORY_WEIGHT, origin[:r]
    )


def moved(centers: Array, counts: Array, sums: Array, fresh: Array) -> Array:
    """Centres after a step of k-means; one that no row is nearest to is drawn anew."""
    return np.where(counts[..., None] > 0, sums / np.maximum(counts, 1)[..., None], fresh)


def first_common(
    counts: Array, sums: Array, covariance: Array, r: int, levels: tuple[int, ...], profile: Array
) -> Common:
    """Common parameters before the first E-step, from the last step of k-means of one start.

    Parameters
    ----------
    counts, sums : ndarrays of shape (k,) and (k, p)
        Over all silos.
    covariance : ndarray of shape (p, p)
        Of the rows as they were compared.
    r : int
        How many of the p coordinates are numbers.
    levels : tuple of int
    profile : ndarray of shape (L,)
        Overall shares of the levels.
    """
    n = counts.sum()
    means = sums / np.maximum(counts, 1)[:, None]
    scatter = covariance[:r, :r] - (means[:, :r].T * (counts / n)) @ means[:, :r]
    size = float(np.trace(covariance[:r, :r])) / max(r, 1) or 1.0  # numbers that are constant have no size
    profiles = np.tile(profile, (len(counts), 1)) if levels else np.zeros((len(counts), 0))
    within = (scatter + scatter.T) / 2
    lam, V = np.linalg.eigh(within) if r else (np.zeros(0), within)
    if lam.min(initial=0) < -0.005 * size:  # moments and clusters are not of the same rows: a silo was left out between
        within = (V * np.maximum(lam, 0)) @ V.T
    return Common(
        np.ascontiguousarray(means[:, :r]), (counts + 1) / (n + len(counts)), profiles,
        within + 0.01 * size * np.eye(r), np.full(len(counts), FIRST_SPREAD), FIRST_DRIFT,
    )  # fmt: skip
