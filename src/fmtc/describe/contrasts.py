"""How the rows of a cluster differ from the other rows of their silo, feature by feature: numbers, and no words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from .features import Features
from .words import FEW

Array = np.ndarray

TOP = 5  # columns named for each cluster
BINS = 12
LEAST = 0.2  # standard deviations: a smaller difference is none
CANDIDATES = 5000  # columns of sparse rows that are looked at: those filled most often
BLOCK = 65_536  # rows at a time
SAMPLE = 200_000  # values of a column that its bins are taken from


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Of one silo, for each cluster and feature: mean inside and outside, and their difference in deviations; k x f."""

    sizes: Array  # k, rows
    inside: Array
    outside: Array
    effect: Array
    opposed: Array | bool = False  # where silos clearly differ in the direction

    @property
    def agreed(self) -> Array:
        """Where there is a direction, and numbers show it."""
        return (np.sign(self.inside - self.outside) == np.sign(self.effect)) & ~np.asarray(self.opposed)

    @classmethod
    def of_sums(cls, sizes: Array, known: Array, sums: Array, squares: Array, shift: Array) -> Contrasts:
        """From rows, and sums by cluster of values less `shift`, of shape (k, f)."""
        n, total = known.sum(axis=0), sums.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            inside, outside = sums / known, (total - sums) / (n - known)
            variance = squares.sum(axis=0) / n - np.square(total / n)
            noise = 1e-12 * (np.square(shift) + squares.sum(axis=0) / n)
            effect = np.where(variance > noise, (inside - outside) / np.sqrt(np.maximum(variance, noise)), 0.0)
        effect = np.where(np.isfinite(inside) & np.isfinite(outside), effect, np.nan)
        return cls(sizes, inside + shift, outside + shift, effect)

    @classmethod
    def averaged(cls, parts: Sequence[Contrasts], is_text: bool) -> Contrasts:
        """Over silos, weighted by the rows of the cluster there; silos with few of them do not count."""
        sizes, effect, inside, outside = (
            np.stack([getattr(part, name) for part in parts]) for name in ("sizes", "effect", "inside", "outside")
        )
        weight = np.where(np.isfinite(effect) & (sizes >= FEW)[:, :, None], sizes[:, :, None], 0.0)
        whole = weight.sum(axis=0)

        def mean(values: Array) -> Array:
            there = np.where(weight > 0, values, 0.0)
            return np.divide((weight * there).sum(axis=0), whole, out=np.full(whole.shape, np.nan), where=whole > 0)

        clear = effect
        if is_text:  # differences of shares in standard deviations
            p = (mean(inside) + mean(outside)) / 2
            gap = inside - outside
            clear = np.divide(gap, np.sqrt(p * (1 - p)), out=np.zeros_like(gap), where=(p > 0) & (p < 1))
        clear = np.where(np.abs(clear) >= np.stack([least(n)[:, None] for n in sizes]), clear, 0.0)
        opposed = np.asarray((clear > 0).any(axis=0) & (clear < 0).any(axis=0))
        return cls(sizes.sum(axis=0), mean(inside), mean(outside), mean(effect), opposed)


def least(sizes: Array) -> Array:
    """Of each cluster of a silo, the effect from which a column is told: beyond two standard errors."""
    rest = sizes.sum() - sizes
    with np.errstate(divide="ignore"):
        found = np.maximum(LEAST, 2 * np.sqrt(1 / sizes + 1 / rest))
    return np.where(sizes < FEW, np.inf, found)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns and the features made of them: a number is one, a category one for each level, a word one."""

    features: Features
    columns: Array  # f, number of the column of each feature
    level: Array  # f, level of a category, else -1

    @classmethod
    def of(cls, rows: Mapping[str, Any], features: Features) -> Table:
        """The features that are looked at: of many sparse columns those filled most often."""
        d, sparse = next(iter(rows.values())).shape[1], any(sp.issparse(X) for X in rows.values())
        columns = np.arange(d)
        if sparse and d > CANDIDATES:
            filled = sum(np.bincount(sp.csr_array(X).indices, minlength=d) for X in rows.values())
            columns = np.sort(np.argsort(-filled, kind="stable")[:CANDIDATES])
        sizes = [len(features.levels_of(j)) for j in columns.tolist()]
        level = np.concatenate([np.arange(size) if size else [-1] for size in sizes])
        return cls(features, np.repeat(columns, [size or 1 for size in sizes]), level)

    def contrasts(self, X: Any, y: Array, k: int) -> Contrasts:
        """Each cluster against the other rows of the silo; NaN where either side has no known cell."""
        if sp.issparse(X):
            return self._sparse_contrasts(X, y, k)
        f, sizes = len(self.columns), np.bincount(y, minlength=k)
        known, sums, squares = np.zeros((k, f)), np.zeros((k, f)), np.zeros((k, f))
        numbers = self.level < 0
        filled = np.maximum((~np.isnan(X)).sum(axis=0), 1)
        centre = np.nansum(X, axis=0, dtype=np.float64) / filled
        for begin in range(0, len(y), BLOCK):
            block = np.asarray(X[begin : begin + BLOCK], dtype=np.float64)
            H = sp.csr_array((np.ones(len(block)), (y[begin : begin + BLOCK], np.arange(len(block)))), (k, len(block)))
            values = np.empty((len(block), f))
            values[:, numbers] = (block - centre)[:, self.columns[numbers]]
            for i in np.flatnonzero(~numbers):
                codes = block[:, self.columns[i]]
                values[:, i] = np.where(np.isfinite(codes), codes == self.level[i], np.nan)
            there = np.isfinite(values)
            values = np.where(there, values, 0.0)
            known += H @ there.astype(np.float64)
            sums += H @ values
            squares += H @ np.square(values)
        return Contrasts.of_sums(sizes, known, sums, squares, np.where(numbers, centre[self.columns], 0.0))

    def _sparse_contrasts(self, X: Any, y: Array, k: int) -> Contrasts:
        X = sp.csr_array(X)[:, self.columns]
        n = np.bincount(y, minlength=k)
        H = sp.csr_array((np.ones(len(y)), (y, np.arange(len(y)))), (k, len(y)))
        sums = np.asarray((H @ X).todense(), dtype=np.float64)
        if not self.features.is_text:
            squares = np.asarray((H @ X.multiply(X)).todense(), dtype=np.float64)
            known = np.repeat(n[:, None], sums.shape[1], axis=1)
            found = Contrasts.of_sums(n, known, sums, squares, np.zeros(sums.shape[1]))
            rare = np.bincount(X.indices, minlength=X.shape[1]) < FEW
            return replace(found, effect=np.where(rare, 0.0, found.effect))
        filled = sp.csr_array((np.ones(X.nnz), X.indices, X.indptr), X.shape)
        there = np.asarray((H @ filled).todense())
        rest = n.sum() - n
        with np.errstate(invalid="ignore", divide="ignore"):
            inside, outside = there / n[:, None], (there.sum(axis=0) - there) / rest[:, None]
            effect = sums / n[:, None] - (sums.sum(axis=0) - sums) / rest[:, None]
        return Contrasts(n, inside, outside, effect)

    def picked(self, found: Contrasts) -> list[list[int]]:
        """For each cluster the features that set it apart, strongest first; of a category one level."""
        picks = []
        for j, smallest in enumerate(least(found.sizes).tolist()):
            effect = np.nan_to_num(found.effect[j])
            if self.features.is_text:
                usable = (effect > 0) & found.agreed[j] & np.isfinite(smallest)
            else:
                usable = np.abs(effect) >= smallest
            gap = np.abs(np.nan_to_num(found.inside[j] - found.outside[j]))
            gap = np.where(self.level >= 0, gap, np.abs(effect))
            gap = gap * (1 + 1e-6 * (effect > 0))  # of two levels, the one that the cluster has more of
            best: dict[int, int] = {}
            for i in np.flatnonzero(usable).tolist():
                column = int(self.columns[i])
                if column not in best or gap[i] > gap[best[column]]:
                    best[column] = i
            picks.append(sorted(best.values(), key=lambda i: -abs(effect[i]))[:TOP])
        return picks

    def edges(self, rows: Mapping[str, Any], columns: Sequence[int]) -> dict[int, Array]:
        """Edges of the bins of these columns, the same for all silos; a category has a bin for each level."""
        sizes = {j: len(self.features.levels_of(j)) for j in columns}
        return {
            j: np.arange(size + 1) - 0.5 if size else _edges([_values(X, j) for X in rows.values()])
            for j, size in sizes.items()
        }


def counted(X: Any, y: Array, k: int, edges: Mapping[int, Array]) -> dict[int, Array]:
    """Rows of each cluster in each bin of some columns; k x bins."""
    found = {}
    for j, ends in edges.items():
        values, size = _values(X, j), len(ends) - 1
        there = np.isfinite(values)
        bins = np.searchsorted(ends[1:-1], values[there], side="right")
        found[j] = np.bincount(y[there] * size + bins, minlength=k * size).reshape(k, size)
    return found


def _values(X: Any, column: int) -> Array:
    """One column, in double precision."""
    return np.asarray(X[:, [column]].todense()).ravel() if sp.issparse(X) else np.asarray(X[:, column], dtype=float)


def _edges(parts: Sequence[Array]) -> Array:
    """Bins of equal width between the 1st and the 99th percentile; one for each value where there are few."""
    step = max(1, sum(map(len, parts)) // SAMPLE)
    values = np.concatenate([part[::step] for part in parts])
    values = values[np.isfinite(values)]
    different = np.unique(values)
    if len(different) < 2:
        middle = float(different[0]) if len(different) else 0.0
        return np.array([middle - 0.5, middle + 0.5])
    if len(different) <= BINS:
        middles = (different[1:] + different[:-1]) / 2
        return np.concatenate([[different[0]], middles, [different[-1]]])
    low, high = np.quantile(values, [0.01, 0.99])
    if high - low <= 0:  # nearly all are equal
        low, high = different[0], different[-1]
    return np.linspace(low, high, BINS + 1)


__all__ = ["Contrasts", "Table", "counted"]
