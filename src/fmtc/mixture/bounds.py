"""What a silo's sums can be: what no rows can give is refused, what lies far beyond the other silos' is made smaller.

All functions take what single silos said, before it is added up. Honest sums pass through unchanged, bit for bit: the
limits lie well beyond what silos of very different kinds of data say about each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .cells import level_parts
from .steps import Common, Sums, freedom

Array = np.ndarray

FEWEST = 3  # silos: of two that differ, nobody can say which is the odd one
ROUNDING = 1e-6  # relative error of sums that are computed in two ways
FAR = 30.0  # squared distance of a silo's means from the common ones, in medians of the silos
WIDE = 10.0  # size of a silo's scatter per row, in medians
APART = 2.0  # squared distance of a silo's means, in that of the two common ones furthest apart: beyond, it is wild
FEW = 0.25  # of the silos may be beyond a limit without being named, if they are not wild
DRIFTS = 200.0  # a silo's part in the estimate of shifts, in medians, which count as at least 1
SCORES = 20.0  # log-likelihood of a row and coordinate, from the median
AWAY, SPREAD = 5.0, 10.0  # means of columns, in deviations of the median silo; variances, in medians
SQUARES = 30.0  # size of a silo's rows, in medians


# ------------------------------------------------------------------------------------------- what no rows can give


def impossible_sums(sums: Sums, common: Common, levels: tuple[int, ...], n_rows: tuple[int, ...] = ()) -> str | None:
    """What is wrong with the sums of a round, or None.

    Parameters
    ----------
    sums : Sums
        Of one silo.
    common : Common
        That they were computed with.
    levels : tuple of int
    n_rows : tuple of int
        Numbers of rows that the silo may have; (): any.
    """
    n, rows = sums.counts, float(sums.score[2])
    if not rows >= 1 or (n_rows and rows not in n_rows):
        return f"is of {rows:g} rows, and the silo has said that it has {' or '.join(map(str, n_rows)) or 'some'}"
    if n.min() < 0 or abs(float(n.sum()) - rows) > ROUNDING * rows:
        return f"has counts of concepts that are not those of {rows:g} rows"
    if not _close(sums.weights, common.weights(n)):
        return "has weights that do not follow from its counts"
    if not _scatters(sums.scatter, sums.scatter) or not _scatters(sums.within(common), sums.scatter):
        return "has a scatter that is not positive semi-definite, as that of any rows is"
    for c, where in enumerate(level_parts(levels) if sums.levels.shape[1] else ()):
        part, weight = sums.levels[:, where], sums.level_weights[:, c]
        if part.min() < 0 or not _close(part.sum(axis=1), weight) or (weight > n * (1 + ROUNDING)).any():
            return "has shares of levels that do not add up"
    return None


def impossible_moments(n: int, sums: Array, within: Array, fourths: Array, between: Array) -> str | None:
    """What is wrong with first and second moments of n rows, or None."""
    if n < 1:
        return "is of no rows"
    if not _close(between, np.outer(sums, sums) / n):
        return "has a mean that differs between its parts"
    if not _scatters(within, within + between):
        return "has products of deviations that are not positive semi-definite, as those of any rows are"
    squares = np.diag(within) + np.diag(between)
    if (fourths < squares**2 / n * (1 - ROUNDING)).any():
        return "has fourth powers that are too small for its squares"
    return None


def impossible_steps(counts: Array, sums: Array, n: int, squares: Array) -> str | None:
    """What is wrong with a silo's rows nearest to each centre, or None.

    Parameters
    ----------
    counts : ndarray of shape (s, k)
    sums : ndarray of shape (s, k, p)
    n : int
        Its rows.
    squares : ndarray of shape (s, p)
        Sums of squares of its rows, which no division into clusters can exceed.
    """
    whole = counts.sum(axis=1)
    if counts.min() < 0 or (np.abs(counts - np.round(counts)) > ROUNDING).any() or (whole != whole[0]).any():
        return "has counts that are not numbers of rows"
    if whole[0] > n:
        return f"counts {whole[0]:g} rows, and the silo has said that it has {n}"
    if np.abs(sums[counts == 0]).max(initial=0) > 0:
        return "has sums of no rows"
    between = (sums**2 / np.maximum(counts, 1)[..., None]).sum(axis=1)
    if (between > squares * (1 + ROUNDING) + ROUNDING * squares.max()).any():
        return "has clusters that lie further apart than the rows it has told of"
    return None


def impossible_products(basis: Array, products: Array) -> str | None:
    """What is wrong with a covariance times a basis, or None; (d, r), (d, r)."""
    inner = basis.T @ products
    size = float(np.abs(inner).max(initial=0))
    if np.abs(inner - inner.T).max(initial=0) > 1e-4 * size or not _scatters(inner, inner):
        return "is not a covariance times the basis"
    return None


def _close(a: Array, b: Array) -> bool:
    return bool((np.abs(a - b) <= ROUNDING * (np.abs(b) + np.abs(b).max(initial=0)) + 1e-300).all())


def _scatters(part: Array, whole: Array) -> bool:
    """Whether a part of some sums of squares has no negative eigenvalue, but for rounding."""
    if not part.size:
        return True
    if not (np.isfinite(part).all() and np.isfinite(np.trace(whole))):
        return False
    return bool(np.linalg.eigvalsh((part + part.T) / 2)[0] >= -1e-5 * max(float(np.trace(whole)), 0.0))


# ------------------------------------------------------------------------------------- what lies far beyond the others


def limited(
    parts: Sequence[Sums], common: Common, levels: tuple[int, ...] = (), *, far_at: float = FAR, wide_at: float = WIDE
) -> tuple[list[Sums], Array]:
    """Sums of silos, those far beyond the others' made smaller, and which silos somebody should look at.

    A silo's means are drawn to the common ones until their squared distances, summed over its concepts with their
    weights, are at most `far_at` times the median silo's. The scatter of its rows about its means is at most `wide_at`
    times the median per row.

    Some of these silos are honest: an unlucky start has split one concept and joined two others. The more silos there
    are, the likelier is one of them, and the further off it seems, because distances are in units of the spread of all
    silos' means. They differ from wild ones in that what they take for a concept lies among the common ones. So if at
    most one silo in four is beyond a limit (or one of three), those whose means, scatter and score are within what the
    distances between common concepts explain are drawn nearer like the others, but not named.

    Parameters
    ----------
    parts : sequence of m Sums
        Of single silos.
    common : Common
        That they were computed with.
    levels : tuple of int
        Levels of the categories.
    far_at, wide_at : float
        Limits of distances and scatter, in those of the median silo.

    Returns
    -------
    list of m Sums
        Those that were within all limits are the same objects.
    ndarray of bool of shape (m,)
        Silos whose sums were made smaller and are wild, or too many; none of fewer than three.
    """
    found, touched = list(parts), np.zeros(len(parts), bool)
    if len(parts) < FEWEST:
        return found, touched
    precision = np.linalg.inv(common.covariance)
    k, r = common.means.shape
    numbers = max(r, 1)  # a table of categories alone has none, and nothing that could lie far
    far, wide, drifts, rows, weights = np.array([_measured(sums, common, precision) for sums in parts]).T
    far, wide = far / (k * numbers), wide / (rows * numbers)
    scores = np.array([sums.score[:2] / sums.score[2] for sums in parts])
    middle, reach = np.median(scores, axis=0), SCORES * freedom(r, levels)
    low = (middle - scores).max(axis=1)
    farthest, widest = far_at * max(float(np.median(far)), 1.0), wide_at * float(np.median(wide))
    drifted = DRIFTS * max(float(np.median(drifts)), 1.0)
    far_off = (far > farthest) | ((wide > widest) & (widest > 0))
    beyond = far_off | (low > reach)
    # what a row loses in the place of another concept, and its part in what the silo's means lose there
    apart = APART * _widest_gap(common.means, precision)
    b = common.spread[(common.spread > 0) & np.isfinite(common.spread)]
    lost = 0.5 * apart * (1 + float((1 / b).sum()) / rows)
    tame = (far <= weights * apart / (k * numbers)) & (wide <= apart / numbers) & (low <= reach + lost)
    few = np.count_nonzero(beyond) <= max(1.0, FEW * len(parts))
    touched = beyond & ~(few & tame) | (drifts > drifted) | (scores - middle > reach).any(axis=1)
    for t, sums in enumerate(parts):
        if far_off[t]:
            nearer = np.sqrt(min(1.0, farthest / far[t])) if far[t] > farthest else 1.0
            sums = _drawn_nearer(sums, common, nearer, widest / wide[t] if wide[t] > widest > 0 else 1.0)
        if drifts[t] > drifted:
            sums = replace(sums, drift=np.array([drifted * sums.drift[1], sums.drift[1]]))
        if (np.abs(scores[t] - middle) > reach).any():
            within = np.clip(scores[t], middle - reach, middle + reach)
            sums = replace(sums, score=np.array([*(rows[t] * within), rows[t]]))
        found[t] = sums
    return found, touched


def _measured(sums: Sums, common: Common, precision: Array) -> tuple[float, ...]:
    """How far a silo's means lie, how wide its rows, how far it has shifted; its rows and the sum of its weights."""
    gap = sums.mean_rows(common) - common.means
    return (
        float(sums.weights @ np.einsum("jr,rs,js->j", gap, precision, gap)),
        float((precision * sums.within(common)).sum()),
        float(sums.drift[0] / sums.drift[1]) if sums.drift[1] > 0 else 0.0,
        float(sums.score[2]),
        float(sums.weights.sum()),
    )


def _drawn_nearer(sums: Sums, common: Common, nearer: float, smaller: float) -> Sums:
    """A silo's sums with its means nearer to the common ones, and a smaller scatter of its rows about them."""
    means = common.means + nearer * (sums.mean_rows(common) - common.means)
    scatter = smaller * sums.within(common) + (means.T * sums.weights) @ means
    spread = np.array([nearer**2 * sums.spread[0], sums.spread[1]])
    return replace(sums, means=means * sums.weights[:, None], scatter=(scatter + scatter.T) / 2, spread=spread)


def _widest_gap(means: Array, precision: Array) -> float:
    """Largest squared distance between two concepts; (k, r), (r, r)."""
    products = means @ precision @ means.T
    sizes = np.diag(products)
    return float((sizes[:, None] + sizes - 2 * products).max())


def far_columns(means: Array, variances: Array, levels: tuple[int, ...] = ()) -> Array:
    """Which silos' columns are far beyond the others'; they should have no part in what all silos agree on.

    A silo is judged by its median column, among those of numbers where there are any: in real tables one column may be
    wild in one silo. Far means that half of its column means lie more than 5 deviations of the median silo away from
    the median, or that half of its variances are more than 10 times the median silo's.

    Parameters
    ----------
    means, variances : ndarrays of shape (m, d)
        Of each silo; NaN where it has no value. Columns of numbers come first.
    levels : tuple of int
        Levels of the categories.

    Returns
    -------
    ndarray of bool of shape (m,)
        Never all silos, and none of fewer than three.
    """
    far = np.zeros(len(means), bool)
    if len(means) < FEWEST:
        return far
    if r := means.shape[1] - sum(levels):
        means, variances = means[:, :r], variances[:, :r]
    with np.errstate(over="ignore"):
        middle = _median(means)
        size = _median(variances + (means - middle) ** 2)
        live = size > 0
        if not live.any():
            return far
        away = _median((np.abs(means - middle)[:, live] / np.sqrt(size[live])).T)
        wide = _median((variances[:, live] / size[live]).T)
        found = (away > AWAY) | (wide > SPREAD)
    return found if not found.all() else far


def _median(values: Array) -> Array:
    """Median over silos of each column, those without a value left out; 0 where nobody has one."""
    nobody = np.isnan(values).all(axis=0)
    return np.nanmedian(np.where(nobody, 0.0, values), axis=0)


def far_sizes(sizes: Array, most: float = SQUARES) -> Array:
    """Which silos' numbers are more than so many times the median; (m,) -> (m,), none of fewer than three."""
    limit = most * float(np.median(sizes))
    return (sizes > limit) & (len(sizes) >= FEWEST) & (limit > 0)
