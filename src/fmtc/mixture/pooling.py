"""The server's part of a round: common parameters, and how much silos share, from sums over silos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from .cells import level_parts
from .steps import Common, Sums, freedom

Array = np.ndarray

SPREAD = (1e-3, 10.0)  # b_j: from silos that share a concept to silos that have little in common
DRIFT = (1e-4, 100.0)  # b_0
# Chosen on mammography and on displays of seven segments, where a concept could keep to one value.
LEAST = 0.5  # of the variance of all rows: what concepts vary by in a coordinate of few values
SMOOTHING = 1.0  # rows of the overall profile of a category that each concept gets


@dataclass(frozen=True)
class Pool:
    """How silos are pooled: what is estimated, and what is given.

    Parameters
    ----------
    spread, drift : float, optional
        b = 1/kappa of all concepts, and b_0 of the silos' shifts. None estimates them.
    concentration : float
        Rows of the common shares that each silo's own shares get; infinity gives all silos the same shares.
    even : bool
        Common shares stay 1/k.
    lean : bool
        Silos drop concepts that too few of their rows speak for, see `personal`.
    shrinkage : float
        Rows of a round covariance that Σ gets, as a fraction of all rows.
    """

    spread: float | None = None
    drift: float | None = None
    concentration: float = 5.0
    even: bool = False
    lean: bool = False
    shrinkage: float = 0.01


def weighted(sums: Sums, weight: float) -> Sums:
    """A silo's sums as if each of its rows was there `weight` times, its own parameters as they are."""
    return sums if weight == 1 else Sums(**{f.name: weight * getattr(sums, f.name) for f in fields(Sums)})


def added(parts: Iterable[Sums]) -> Sums:
    """Sums over silos, in the order given."""
    return reduce(lambda a, b: Sums(**{f.name: getattr(a, f.name) + getattr(b, f.name) for f in fields(Sums)}), parts)


def pulls(parts: Sequence[Sums], common: Common) -> Array:
    """Who pulls whom: how far the means of silo s move when silo t is left out, in units of the common covariance.

    Parameters
    ----------
    parts : sequence of m Sums
    common : Common
        That they were computed with.

    Returns
    -------
    ndarray of shape (m, m)
        Row s, column t; root mean square over the rows of s, 0 on the diagonal.
    """
    counts, W = (np.array([getattr(part, name) for part in parts]) for name in ("counts", "weights"))
    means = np.array([part.means for part in parts])
    total, rest = W.sum(axis=0), W.sum(axis=0) - W  # k and m x k
    left = np.where((rest > 1e-10)[:, :, None], (means.sum(axis=0) - means) / np.maximum(rest, 1e-300)[:, :, None], 0.0)
    gap = np.where((rest > 1e-10)[:, :, None], left - means.sum(axis=0) / np.maximum(total, 1e-300)[:, None], 0.0)
    moved = np.einsum("tjr,rs,tjs->tj", gap, np.linalg.inv(common.covariance), gap)
    b = np.minimum(common.spread, 1e12)
    shrink = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300) / (1 + counts * b) ** 2
    found = np.sqrt(np.maximum(shrink @ moved.T, 0))
    np.fill_diagonal(found, 0.0)
    return found


def free_numbers(counts: Array, common: Common, levels: tuple[int, ...]) -> float:
    """Free numbers in the silos' means and profiles and in Σ, for an information criterion; shares are not counted.

    A silo's mean of concept j, ``(n_tj x̄_tj + κ_j (μ_j + δ_t))/(n_tj + κ_j)``, follows its own rows by the factor
    ``n_tj/(n_tj + κ_j)`` and its part in the common mean and in its shift by the rest: the sum of these factors is the
    effective number of means, from one for all silos (κ infinite) to one for each (κ = 0). A zero in Σ is not counted.

    Parameters
    ----------
    counts : ndarray of shape (m, k)
        Rows of each concept in each silo; concepts without rows have no mean.
    common : Common
    levels : tuple of int
        Levels of the categories.

    Examples
    --------
    Two concepts in three coordinates: 6 numbers in their means, 6 in Σ, whatever the pooling of a single silo.

    >>> import numpy as np
    >>> from fmtc.mixture.steps import Common
    >>> from fmtc.mixture.pooling import free_numbers
    >>> common = Common(np.zeros((2, 3)), np.full(2, 0.5), np.zeros((2, 0)), np.ones((3, 3)), np.ones(2), 0.0)
    >>> free_numbers(np.array([[20.0, 30.0]]), common, ())
    12.0
    """
    b, b0, r = np.minimum(common.spread, 1e12), common.drift, common.means.shape[1]
    own = counts * b / (1 + counts * b)
    w = counts / (1 + counts * b)
    part = (1 - own) * w / np.maximum(w.sum(axis=0), 1e-300)  # of the common mean
    found = freedom(r, levels) * float((own + part).sum()) + int(np.count_nonzero(np.triu(common.covariance)))
    if b0 > 0 and len(counts) > 1:
        found += r * float(((1 - own) * w / (w.sum(axis=1, keepdims=True) + 1 / b0)).sum())
    return found


def floored(covariance: Array, floor: Array | None) -> Array:
    """A covariance in which coordinates of few values stand apart.

    Scales, counts and codes of a few values are no bell curves. A concept that keeps to one value would have no
    variance there, and a likelihood without bound; what a few values have in common with other columns is not linear.

    Parameters
    ----------
    covariance : ndarray of shape (r, r)
    floor : ndarray of shape (r,), optional
        Least variance of a coordinate of few values, which then varies with no other; 0 for all others.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.mixture.pooling import floored
    >>> floored(np.array([[1.0, 0.2], [0.2, 0.1]]), np.array([0.0, 0.5]))
    array([[1. , 0. ],
           [0. , 0.5]])
    """
    if floor is None or not (floor > 0).any():
        return covariance
    few = floor > 0
    apart = np.where(few[:, None] | few, 0.0, covariance)
    np.fill_diagonal(apart, np.maximum(np.diag(covariance), floor))
    return apart


def pooled(
    common: Common, sums: Sums, pool: Pool, levels: tuple[int, ...], size: float, n_silos: int,
    floor: Array | None = None,
) -> Common:  # fmt: skip
    """Common parameters after a round: the M-step of all silos together, the silos' own means taken out.

    Parameters
    ----------
    common : Common
        Before the round.
    sums : Sums
        Over silos.
    pool : Pool
    levels : tuple of int
        Levels of the categories.
    size : float
        Variance of a coordinate, for the round covariance that Σ is drawn towards.
    n_silos : int
    floor : ndarray of shape (r,), optional
        As `floored` takes it.

    Returns
    -------
    Common
    """
    n, (k, r) = float(sums.counts.sum()), common.means.shape
    nu = pool.shrinkage * n
    covariance = floored((sums.within(common) + nu * size * np.eye(r)) / (n + nu), floor)
    shares = np.full(k, 1 / k) if pool.even else np.maximum(sums.counts, 0) / n
    spread, drift = common.spread, common.drift
    if n_silos > 1:
        if pool.spread is None:
            spread = _spread(sums)
        if pool.drift is None and sums.drift[1] > 0:
            drift = float(np.clip(sums.drift[0] / sums.drift[1], *DRIFT))
    means, covariance = sums.mean_rows(common), (covariance + covariance.T) / 2
    return Common(means, shares, _profiles(sums, levels), covariance, spread, drift)


def _spread(sums: Sums) -> Array:
    """How far apart silos hold each concept, b_j: its silos' evidence joined with that of an average concept."""
    numerator, denominator = sums.spread
    known = denominator * (1 / np.maximum(sums.weights, 1e-12))  # the common mean was estimated from the same silos
    numerator = numerator + np.where(denominator > 0, known, 0.0)
    typical = max(float(numerator.sum()) / max(float(denominator.sum()), 1e-300), SPREAD[0])
    extra = float(denominator.mean())
    return np.clip((numerator + typical * extra) / np.maximum(denominator + extra, 1e-300), *SPREAD)


def _profiles(sums: Sums, levels: tuple[int, ...]) -> Array:
    """Shares of the levels of each category in each concept, smoothed by those of all concepts."""
    profiles = np.empty_like(sums.levels)
    for c, part in enumerate(level_parts(levels)):
        overall = sums.levels[:, part].sum(axis=0) + 0.5
        overall = overall / overall.sum()
        weight = sums.level_weights[:, c, None]
        profiles[:, part] = (sums.levels[:, part] + SMOOTHING * overall) / (weight + SMOOTHING)
    return profiles
