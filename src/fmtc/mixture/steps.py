"""One round at a silo: its own parameters from the common ones, the E-step, and the sums that leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..linalg.arrays import asarray_like, row_blocks, to_numpy
from .cells import BLOCK, Cells, level_parts, posteriors

Array = np.ndarray

HALF_A_ROW = 0.5  # what a concept's rows count less by where silos may lack some: `kept_rows`
SMALLEST_SHARE = 1e-12  # of a concept that a silo lacks
LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Personal:
    """Parameters of one silo."""

    means: Array  # k x r
    shares: Array  # k
    profiles: Array  # k x L, shares of the levels of all categories, one after the other


@dataclass(frozen=True)
class Common(Personal):
    """What all silos share: what a silo would have that follows the others in all, and how far silos may be apart.

    Parameters
    ----------
    means, shares, profiles
        As in `Personal`.
    covariance : ndarray of shape (r, r)
    spread : ndarray of shape (k,)
        b_j = 1/kappa_j: variance of the silos' means about the common one, in units of the covariance.
    drift : float
        b_0: the same for the shift of a silo as a whole; 0 keeps silos from shifting.
    """

    covariance: Array
    spread: Array
    drift: float

    @property
    def kappa(self) -> Array:
        """Pooling strength of each concept; infinity: the same means for all."""
        with np.errstate(divide="ignore"):
            return np.divide(1.0, self.spread)

    @property
    def finite(self) -> Array:
        """b_j, and 0 in place of infinity; (k,)."""
        return np.where(np.isinf(self.spread), 0.0, self.spread)

    def weights(self, counts: Array) -> Array:
        """w_j = 1/(1/n_j + b_j), of a silo's mean in the common one; 0 where silos have nothing in common; (k,)."""
        return np.where(np.isinf(self.spread), 0.0, counts / (1 + counts * self.finite))

    def ordered(self, order: Array) -> Common:
        """The same with concepts in another order."""
        return replace(
            self, means=self.means[order], shares=self.shares[order], profiles=self.profiles[order],
            spread=self.spread[order],
        )  # fmt: skip


@dataclass(frozen=True)
class Statistics:
    """What a silo keeps of an E-step: its own sums, from which the next common parameters make its own."""

    counts: Array  # k
    sums: Array  # k x r
    levels: Array  # k x L, counts of the levels of categories
    shift: Array  # r, δ_t


@dataclass(frozen=True)
class Sums:
    """What leaves a silo after an E-step. The server adds these up over silos and needs nothing else.

    With n_j the rows of concept j, x̄_j their mean less the silo's shift, and ``w_j = 1/(1/n_j + b_j)``:
    """

    counts: Array  # k, n_j
    weights: Array  # k, w_j
    means: Array  # k x r, w_j x̄_j
    scatter: Array  # r x r, within concepts about x̄_j, plus w_j x̄_j x̄_jᵀ and δδᵀ/b_0
    level_weights: Array  # k x c, as `weights`, of rows that have the category
    levels: Array  # k x L, those weights times the shares of the levels
    spread: Array  # 2 x k, numerator and denominator of the estimate of b_j
    drift: Array  # 2, the same of b_0
    score: Array  # 3: log-likelihood less penalties; its part that integrates over the silo's own means; rows

    def mean_rows(self, common: Common) -> Array:
        """x̄_j; the common means for concepts without rows; (k, r)."""
        W = self.weights
        return np.where((W > 1e-10)[:, None], self.means / np.maximum(W, 1e-300)[:, None], common.means)

    def within(self, common: Common) -> Array:
        """Scatter within concepts about their mean rows; (r, r)."""
        means = self.mean_rows(common)
        return self.scatter - (means.T * self.weights) @ means


def packed(sums: Sums) -> Array:
    """All numbers of a silo's sums, one field after the other."""
    return np.concatenate([getattr(sums, f.name).ravel() for f in fields(Sums)])


def unpacked(numbers: Array, k: int, r: int, levels: tuple[int, ...]) -> Sums:
    """Undo `packed`, for k concepts in r coordinates, and categories with these levels."""
    c, L = len(levels), sum(levels)
    shapes = ((k,), (k,), (k, r), (r, r), (k, c), (k, L), (2, k), (2,), (3,))
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    if len(numbers) != ends[-1]:
        raise ValueError(f"{len(numbers)} numbers are not the sums of {k} concepts in {r} coordinates")
    return Sums(*(numbers[a:b].reshape(shape) for a, b, shape in zip(ends, ends[1:], shapes, strict=False)))


def log_shares(shares: Array) -> Array:
    """Minus infinity for concepts that a silo lacks for good."""
    with np.errstate(divide="ignore"):
        return np.log(shares)


def kept_rows(counts: Array) -> Array:
    """Rows of each concept, less half a row; 0: the silo lacks it; (k,) -> (k,).

    Where nothing is known about shares, ``exp E log π_j`` is proportional to ``exp ψ(n_j)``, which is about n_j - 1/2.
    On sixteen overlapping Gaussians in five silos a quarter is as good, and a whole row loses two points.
    """
    return np.maximum(counts - HALF_A_ROW, 0.0)


def personal(
    common: Common, own: Statistics, levels: tuple[int, ...], concentration: float, never: Array | None = None,
    *, lean: bool = False,
) -> Personal:  # fmt: skip
    """A silo's own parameters: its sums, drawn towards the common ones as far as they are few.

    ``μ_tj = (s_tj + κ_j (μ_j + δ_t))/(n_tj + κ_j)``, and the same for shares and profiles. Coordinates that the silo
    has `never` measured follow the others as they do in the common covariance.

    `lean` shares are ``π_tj ∝ max(n_tj - 1/2, 0)``: a concept that not half a row speaks for goes, and the silo lacks
    it. With more than half a row, small concepts that lie close to large ones lose them their rows, step by step:
    docs/explanation/concepts.md.
    """
    b, target = common.finite, common.means + own.shift
    # (s b + target)/(n b + 1) is the same, and holds for b = 0 and, where there are rows, for b = infinity
    means = np.where(
        np.isinf(common.spread)[:, None],
        own.sums / np.maximum(own.counts, 1e-300)[:, None],
        (own.sums * b[:, None] + target) / (own.counts * b + 1)[:, None],
    )
    if never is not None and len(never):
        seen = np.setdiff1d(np.arange(means.shape[1]), never)
        S = common.covariance
        means[:, never] = common.means[:, never]
        if len(seen):
            away = means[:, seen] - common.means[:, seen]
            means[:, never] += away @ np.linalg.solve(S[np.ix_(seen, seen)], S[np.ix_(seen, never)])
    if np.isinf(concentration):
        shares = common.shares
    else:
        shares = (own.counts + concentration * common.shares) / (own.counts.sum() + concentration)
    if lean:
        kept = kept_rows(own.counts)
        shares = kept / kept.sum() if kept.any() else shares
    profiles, bj = np.empty_like(common.profiles), np.minimum(common.spread, 1e12)[:, None]
    for part in level_parts(levels):
        counts = own.levels[:, part]
        profiles[:, part] = (counts * bj + common.profiles[:, part]) / (counts.sum(axis=1, keepdims=True) * bj + 1)
    return Personal(means, np.maximum(shares, SMALLEST_SHARE), profiles)


# ------------------------------------------------------------------------------------------------------------ E-step


@dataclass(frozen=True)
class Expected:
    """Sums of an E-step, and the log-likelihood of the rows."""

    counts: Array  # k
    sums: Array  # k x r
    second: Array  # r x r, expected products of all rows
    levels: Array  # k x L
    log_likelihood: float


def e_step(cells: Cells, own: Personal, covariance: Array) -> Expected:
    """Responsibilities and what they sum up to; no row's own number is kept.

    Where cells are missing, sums hold their expectations given the filled cells of the row, concept by concept, and
    products their conditional covariances: exact EM, not imputation.
    """
    k, r = own.means.shape
    counts, sums, levels = np.zeros(k), np.zeros((k, r)), np.zeros((k, sum(cells.levels)))
    second, log_likelihood = np.zeros((r, r)), 0.0
    for (rows, seen), products in zip(cells.large_patterns, cells.products, strict=True):
        part = _scores(own, covariance, seen)
        n, s = np.zeros(k), np.zeros((k, len(seen)))
        for where, block in cells.blocks(rows, seen):
            q, log_sum = posteriors(_score_block(cells, where, block, part, own))
            log_likelihood += float(log_sum.sum())
            n += to_numpy(q.sum(axis=0))
            s += to_numpy(q.T @ block)
            if cells.levels:
                levels += cells.category_counts(where, to_numpy(q))
        n_rows = cells.n if rows is None else len(rows)
        log_likelihood -= 0.5 * (
            float((part.precision * products).sum()) + n_rows * (len(seen) * LOG_2PI + part.log_det)
        )
        counts += n
        if len(seen) == r:
            sums += s
            second += products
        else:
            _add_expected(sums, second, n, s, products, own.means, covariance, seen)
    for rest in completed(cells, own.means, covariance):
        q, log_sum = posteriors(_filled_scores(cells, rest, own))
        log_likelihood += float(log_sum.sum()) - 0.5 * float((rest.log_det + (r - rest.n_hidden) * LOG_2PI).sum())
        n = q.sum(axis=0)
        counts += n
        if cells.levels:
            levels += cells.category_counts(rest.rows, q)
        weighted = q.T[:, :, None] * rest.deviations
        s = weighted.sum(axis=1)[:, :r]
        sums += s + n[:, None] * own.means
        cross = own.means.T @ s
        spread = weighted.reshape(-1, r + 1).T @ rest.deviations.reshape(-1, r + 1) + rest.added_covariance()
        second += spread[:r, :r] + cross + cross.T + (own.means.T * n) @ own.means
    return Expected(counts, sums, second, levels, log_likelihood)


def _filled_scores(cells: Cells, part: Filled, own: Personal) -> Array:
    """Log of share times density of each concept, less a row's own constant; (b, k)."""
    return cells.with_categories(log_shares(own.shares) - 0.5 * part.distances, part.rows, own.profiles)


@dataclass(frozen=True)
class _Linear:
    """Scores of rows with the same filled cells: x V + c, up to what is the same for all concepts."""

    V: Array  # filled x k
    c: Array  # k
    precision: Array  # filled x filled
    log_det: float


def _scores(own: Personal, covariance: Array, seen: Array) -> _Linear:
    S, M = covariance[np.ix_(seen, seen)], own.means[:, seen]
    if len(seen) == 0:
        return _Linear(np.zeros((0, len(M))), log_shares(own.shares), np.zeros((0, 0)), 0.0)
    L = np.linalg.cholesky(S)
    half = np.linalg.inv(L)
    precision = half.T @ half
    V = precision @ M.T
    return _Linear(
        V, log_shares(own.shares) - 0.5 * (M.T * V).sum(axis=0), precision, 2 * float(np.log(np.diag(L)).sum())
    )


def _score_block(cells: Cells, where: Any, block: Any, part: _Linear, own: Personal) -> Any:
    """Log of share times density of each concept, less a row's own constant; (b, seen) -> (b, k)."""
    scores = block @ asarray_like(part.V, block) + asarray_like(part.c, block)
    return cells.with_categories(scores, where, own.profiles)


def row_scores(cells: Cells, own: Personal, covariance: Array, *, normalized: bool = True) -> tuple[Array, Array]:
    """Scores of each row, and the constant that makes them log-densities times shares; (n, k), (n,).

    Without `normalized`, the constant leaves out what does not depend on the row.
    """
    scores, constant = np.empty((cells.n, len(own.means))), np.empty(cells.n)
    for rows, seen in cells.large_patterns:
        part = _scores(own, covariance, seen)
        for where, block in cells.blocks(rows, seen):
            scores[where] = to_numpy(_score_block(cells, where, block, part, own))
            block = to_numpy(block)
            level = len(seen) * LOG_2PI + part.log_det if normalized else 0.0
            constant[where] = -0.5 * (((block @ part.precision) * block).sum(axis=1) + level)
    for rest in completed(cells, own.means, covariance):
        scores[rest.rows] = _filled_scores(cells, rest, own)
        level = (cells.r - rest.n_hidden) * LOG_2PI + rest.log_det if normalized else 0.0
        constant[rest.rows] = -0.5 * level
    return scores, constant


def _add_expected(
    sums: Array, second: Array, n: Array, s: Array, products: Array, means: Array, covariance: Array, seen: Array
) -> None:
    """Add the expectations of rows with missing cells: x̂_j = G x + c_j, with G the regression on the filled cells."""
    r = len(covariance)
    hidden = np.setdiff1d(np.arange(r), seen)
    S = covariance[np.ix_(seen, seen)]
    B = np.linalg.solve(S, covariance[np.ix_(seen, hidden)]).T if len(seen) else np.zeros((r, 0))
    G = np.zeros((r, len(seen)))
    G[seen, np.arange(len(seen))] = 1
    G[hidden] = B
    c = np.zeros((len(means), r))
    c[:, hidden] = means[:, hidden] - means[:, seen] @ B.T
    sums += s @ G.T + n[:, None] * c
    cross = G @ (s.T @ c)
    second += G @ products @ G.T + cross + cross.T + (c * n[:, None]).T @ c
    second[np.ix_(hidden, hidden)] += n.sum() * (
        covariance[np.ix_(hidden, hidden)] - B @ covariance[np.ix_(seen, hidden)]
    )


# ----------------------------------------------------------------------- rows that hardly share their missing cells
#
# Many rows at a time, not pattern by pattern.
#
# With K the inverse of the covariance, h the missing cells of a row and v its deviation from a mean with 0 in h: the
# missing cells have covariance ``C = (K_hh)⁻¹`` given the others and the expected deviation ``-C (K v)_h``, and the
# distance of the filled cells is ``vᵀKv - (Kv)_hᵀ C (Kv)_h``. Only matrices as small as h are inverted.
#
# Rows with a few missing cells more or less are worked on together: K gets one more coordinate, of which nobody knows
# anything and on which nothing depends, and shorter lists of missing cells are filled up with it.


@dataclass(frozen=True)
class Filled:
    """Rows with about as many missing cells as each other, completed under each concept.

    Parameters
    ----------
    rows : ndarray of int of shape (b,)
    hidden : ndarray of int of shape (b, h)
        Their missing coordinates; r, the number of no coordinate, after those of a row with fewer.
    n_hidden : ndarray of int of shape (b,)
        How many are missing.
    deviations : ndarray of shape (k, b, r + 1)
        From the mean of each concept, expected ones in missing cells; 0 in the coordinate that fills up.
    covariance : ndarray of shape (b, h, h)
        Of the missing cells, given the others.
    distances : ndarray of shape (b, k)
        Squared Mahalanobis distances of the filled cells.
    log_det : ndarray of shape (b,)
        Of the covariance of the filled cells.
    """

    rows: Array
    hidden: Array
    n_hidden: Array
    deviations: Array
    covariance: Array
    distances: Array
    log_det: Array

    def added_covariance(self) -> Array:
        """Covariances of the missing cells of all rows, each at its coordinates; (r + 1, r + 1)."""
        size = self.deviations.shape[2]
        at = self.hidden[:, :, None] * size + self.hidden[:, None, :]
        return np.bincount(at.ravel(), self.covariance.ravel(), minlength=size**2).reshape(size, size)


def completed(cells: Cells, means: Array, covariance: Array) -> Iterator[Filled]:
    """The rows of `cells.scattered`, a block at a time."""
    if not cells.scattered:
        return
    r = len(covariance)
    K = np.zeros((r + 1, r + 1))
    K[:r, :r] = np.linalg.inv(covariance)
    K = (K + K.T) / 2
    log_det = float(np.linalg.slogdet(covariance)[1])
    for rows, hidden in cells.scattered:
        for b in row_blocks(len(rows), BLOCK):
            yield _completed(cells, rows[b], hidden[b], means, K, log_det)


def _completed(cells: Cells, rows: Array, hidden: Array, means: Array, K: Array, log_det: float) -> Filled:
    k, r = means.shape
    V = np.zeros((k, len(rows), r + 1))
    np.subtract(np.asarray(cells.Z[rows], dtype=np.float64), means[:, None], out=V[:, :, :r])
    at = np.arange(len(rows))[:, None]
    V[:, at, hidden] = 0.0
    KV = V @ K
    K_hh = K[hidden[:, :, None], hidden[:, None, :]]
    spare = hidden == r
    each = np.arange(hidden.shape[1])
    K_hh[:, each, each] += spare  # a unit matrix beside that of the missing cells
    C = np.linalg.inv(K_hh)
    wanted = KV[:, at, hidden]  # k x b x h
    expected = np.einsum("bgh,kbh->kbg", C, wanted)
    distances = np.einsum("kbr,kbr->bk", V, KV) - np.einsum("kbh,kbh->bk", wanted, expected)
    V[:, at, hidden] = -expected
    n_hidden = hidden.shape[1] - spare.sum(axis=1)
    return Filled(rows, hidden, n_hidden, V, C, np.maximum(distances, 0.0), log_det + np.linalg.slogdet(K_hh)[1])


# -------------------------------------------------------------------------------------------------- what leaves a silo


def summed(
    common: Common, before: Statistics, own: Personal, found: Expected, levels: tuple[int, ...], n_rows: int
) -> tuple[Statistics, Sums]:
    """The silo's new statistics, its shift included, and the sums for the server."""
    n, b0 = found.counts, common.drift
    precision = np.linalg.inv(common.covariance)
    k, r = found.sums.shape
    score = _score(common, before, own, found, precision, levels)
    there = np.maximum(n, 1e-300)
    means = found.sums / there[:, None]
    w = common.weights(n)
    if b0 > 0 and w.sum() > 0:
        shift = (w[:, None] * (means - common.means)).sum(axis=0) / (w.sum() + 1 / b0)
    else:
        shift = np.zeros(r)
    means = np.where(n[:, None] > 1e-10, means - shift, common.means)
    within = found.second - (found.sums.T / there) @ found.sums
    scatter = within + (means.T * w) @ means + (np.outer(shift, shift) / b0 if b0 > 0 else 0.0)
    level_weights, profiles = np.zeros((k, len(levels))), np.zeros_like(found.levels)
    for c, part in enumerate(level_parts(levels)):
        total = found.levels[:, part].sum(axis=1)
        level_weights[:, c] = total / (1 + total * common.finite)
        profiles[:, part] = found.levels[:, part] * (level_weights[:, c] / np.maximum(total, 1e-300))[:, None]
    statistics = Statistics(n, found.sums, found.levels, shift)
    spread, drift = _moments(common, found, means, w, shift, precision, levels)
    sums = Sums(n, w, means * w[:, None], (scatter + scatter.T) / 2, level_weights, profiles, spread, drift,
                np.array([*score, n_rows], dtype=float))  # fmt: skip
    return statistics, sums


def freedom(r: int, levels: tuple[int, ...]) -> int:
    """Free numbers in a concept's mean and profile."""
    return r + sum(size - 1 for size in levels)


def _score(
    common: Common, before: Statistics, own: Personal, found: Expected, precision: Array, levels: tuple[int, ...]
) -> tuple[float, float]:
    """Log-likelihood of the rows less the penalties of the silo's own means and shift; and what integrating adds."""
    b, b0, n = common.spread, common.drift, found.counts
    r = len(common.covariance)
    finite = (b > 0) & np.isfinite(b)
    gap = own.means - common.means - before.shift
    norms = np.einsum("jr,rs,js->j", gap, precision, gap)
    penalty = 0.5 * float((norms[finite] / b[finite]).sum())
    if b0 > 0:
        penalty += 0.5 * float(before.shift @ precision @ before.shift) / b0
    w = n / (1 + n * common.finite)
    occam = 0.5 * freedom(r, levels) * float(np.log1p(n * common.finite).sum())
    occam += 0.5 * r * float(np.log1p(w.sum() * b0))
    return found.log_likelihood - penalty, found.log_likelihood - penalty - occam


def _moments(
    common: Common, found: Expected, means: Array, w: Array, shift: Array, precision: Array, levels: tuple[int, ...]
) -> tuple[Array, Array]:
    """A silo's part in the estimates of b_j and b_0: Fisher scoring of the variance of means about the common ones.

    A silo's mean of concept j has variance ``v = 1/n + b_j`` about the common one in each of r coordinates (as has,
    in units of its own spread, each share of a level), so that ``Σ (d²/r - 1/n)/v² / Σ 1/v²`` over silos estimates b_j.
    """
    n, b0 = found.counts, common.drift
    r = len(shift)
    gap = means - common.means
    distance = np.einsum("jr,rs,js->j", gap, precision, gap)
    for part in level_parts(levels):
        total = found.levels[:, part].sum(axis=1)
        rate, own = common.profiles[:, part], found.levels[:, part] / np.maximum(total, 1e-300)[:, None]
        distance += np.where(total > 0.5, ((own - rate) ** 2 / rate).sum(axis=1), 0.0)
    there = n > 0.5
    v = 1 / np.maximum(n, 1e-3) + common.finite
    weight = np.where(there, v**-2, 0.0)
    spread = np.array([weight * (distance / freedom(r, levels) - 1 / np.maximum(n, 1e-3)), weight])
    total = w.sum()
    if not (b0 > 0 and total > 0 and r > 0):  # a table of categories alone has no mean that could be shifted
        return spread, np.zeros(2)
    v0 = 1 / total + b0
    unshrunk = float(shift @ precision @ shift) * (v0 / b0) ** 2
    return spread, np.array([(unshrunk / r - 1 / total) / v0**2, 1 / v0**2])
