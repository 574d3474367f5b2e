"""The rows of a silo as the mixture reads them: numbers with holes, categories as codes, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, pairwise
from operator import add
from typing import Any

import numpy as np

from ..linalg.arrays import asarray_like, is_tensor, namespace, row_blocks, to_numpy

Array = Any  # NumPy, or a tensor where all cells are filled

BLOCK, DEVICE_BLOCK = 8192, 2**18  # rows worked on at a time; a device is kept waiting by small blocks
# With these two, fits of small tables with holes take two thirds of the time that they took pattern by pattern.
ALIKE = 20  # rows with the same missing cells from which they are worked on by themselves
TOGETHER = 256  # rows up to which those with fewer and with more missing cells are worked on together


@dataclass(frozen=True, eq=False)
class Scaled:
    """Columns of X as (x - shift)/stretch, computed a block at a time: X is not copied."""

    X: Array  # n x d
    columns: Array | None  # r, numbers of the columns; None: all
    shift: Array  # r
    stretch: Array  # r

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and coordinates."""
        return self.X.shape[0], len(self.stretch)

    def __getitem__(self, where: Any) -> Array:
        """Some rows, or with a pair of row and column numbers some cells, in double precision."""
        rows, chosen = where if isinstance(where, tuple) else (where, None)
        if chosen is None:
            block = self.X[rows] if self.columns is None else self.X[rows][:, self.columns]
            return (block - self.shift) / self.stretch
        block = self.X[rows, chosen if self.columns is None else self.columns[chosen]]
        return (block - self.shift[chosen]) / self.stretch[chosen]


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers and categories of some rows.

    Parameters
    ----------
    Z : array of shape (n, r)
        Numbers in common coordinates, NaN where a cell is missing. A tensor has no missing cells.
    codes : ndarray of int of shape (n, c)
        Level of each category, -1 where it is missing.
    levels : tuple of int
        Number of levels of each category.
    """

    Z: Array
    codes: np.ndarray
    levels: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.Z.shape[0])

    @property
    def r(self) -> int:
        """Number of coordinates."""
        return int(self.Z.shape[1])

    @cached_property
    def patterns(self) -> tuple[tuple[np.ndarray | None, np.ndarray], ...]:
        """Rows that have the same cells filled: their numbers (None: all rows), and the filled coordinates."""
        every = np.arange(self.r)
        if is_tensor(self.Z):
            return ((None, every),)
        filled = np.empty((self.n, (self.r + 7) // 8), np.uint8)
        whole = True
        for b in row_blocks(self.n, BLOCK):
            seen = ~np.isnan(self.Z[b])
            whole = whole and bool(seen.all())
            filled[b] = np.packbits(seen, axis=1)
        if whole or not self.n:
            return ((None, every),)
        kinds, which = np.unique(filled, axis=0, return_inverse=True)
        order = np.argsort(which.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(which.ravel(), minlength=len(kinds)))
        masks = np.unpackbits(kinds, axis=1, count=self.r).astype(bool)
        return tuple((rows, np.flatnonzero(mask)) for rows, mask in zip(np.split(order, ends[:-1]), masks, strict=True))

    @cached_property
    def never(self) -> np.ndarray:
        """Coordinates that no row has."""
        seen = np.zeros(self.r, bool)
        for _, filled in self.patterns:
            seen[filled] = True
        return np.flatnonzero(~seen)

    @cached_property
    def is_complete(self) -> bool:
        """Whether no number is missing."""
        return self.patterns[0][0] is None

    @cached_property
    def large_patterns(self) -> tuple[tuple[np.ndarray | None, np.ndarray], ...]:
        """Those of `patterns` that have no missing cell, or enough rows to be worked on by themselves."""
        return tuple(
            (rows, seen) for rows, seen in self.patterns if rows is None or len(rows) >= ALIKE or len(seen) == self.r
        )

    @cached_property
    def scattered(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """The rows of all other patterns, by about the number of their missing cells: (n,) and (n, h), the cells.

        Rows with fewer missing cells than h fill up with r, the number of no coordinate.
        """
        found = [
            (rows, np.delete(np.arange(self.r), seen))
            for rows, seen in self.patterns
            if rows is not None and len(rows) < ALIKE and len(seen) < self.r
        ]
        groups: list[list[tuple[np.ndarray, np.ndarray]]] = []
        size = least = most = 0
        for rows, hidden in sorted(found, key=lambda pattern: len(pattern[1])):
            h = len(hidden)
            if not groups or (h > most and (size >= TOGETHER or h > max(8, 2 * least))):
                groups.append([])
                size, least = 0, h
            groups[-1].append((rows, hidden))
            size, most = size + len(rows), h
        return tuple((np.concatenate([rows for rows, _ in some]), self._filled_up(some)) for some in groups)

    def _filled_up(self, some: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        most = max(len(hidden) for _, hidden in some)
        each = [np.pad(hidden, (0, most - len(hidden)), constant_values=self.r) for _, hidden in some]
        return np.repeat(each, [len(rows) for rows, _ in some], axis=0)

    @cached_property
    def products(self) -> tuple[np.ndarray, ...]:
        """For each large pattern, sums of products of its filled coordinates: they do not change from step to step."""
        found = []
        for rows, seen in self.large_patterns:
            total = np.zeros((len(seen), len(seen)))
            for _, block in self.blocks(rows, seen):
                total += to_numpy(block.T @ block)
            found.append(total)
        return tuple(found)

    def blocks(self, rows: np.ndarray | None, seen: np.ndarray) -> Iterator[tuple[Any, Array]]:
        """Row numbers and filled coordinates of the rows of a pattern, a block at a time."""
        if rows is None:
            for b in row_blocks(self.n, DEVICE_BLOCK if is_tensor(self.Z) else BLOCK):
                yield b, self.Z[b]
            return
        for b in row_blocks(len(rows), BLOCK):
            yield rows[b], self.Z[np.ix_(rows[b], seen)]

    def take(self, rows: np.ndarray) -> Cells:
        """Some of the rows."""
        return Cells(self.Z[rows], self.codes[rows], self.levels)

    def with_categories(self, scores: Array, rows: Any, profiles: np.ndarray) -> Array:
        """Scores of some rows plus the log-probability of their categories; (n, k), (k, L) -> (n, k)."""
        if not self.levels:
            return scores
        log = np.vstack([np.log(profiles).T, np.zeros((1, len(profiles)))])  # a missing category says nothing
        codes = self.codes[rows]
        places = np.where(codes < 0, len(log) - 1, codes + [part.start for part in level_parts(self.levels)])
        return scores + asarray_like(reduce(add, (log[place] for place in places.T)), scores)

    def category_counts(self, rows: Any, q: np.ndarray) -> np.ndarray:
        """Responsibilities summed over the rows of each level; (n, k) -> (k, L)."""
        counts = np.zeros((q.shape[1], sum(self.levels)))
        for c, part in enumerate(level_parts(self.levels)):
            codes = self.codes[rows, c]
            there = codes >= 0
            for j in range(q.shape[1]):
                counts[j, part] = np.bincount(codes[there], weights=q[there, j], minlength=self.levels[c])
        return counts


def level_parts(levels: tuple[int, ...]) -> list[slice]:
    """Where the levels of each category stand among those of all."""
    return [slice(begin, end) for begin, end in pairwise((0, *accumulate(levels)))]


def posteriors(scores: Array) -> tuple[Array, Array]:
    """Softmax of each row, and the logarithm of the sum it was divided by; (n, k) -> (n, k), (n,)."""
    xp = namespace(scores)
    top = scores.max(axis=1)
    top = top.values if is_tensor(scores) else top
    q = xp.exp(scores - top[:, None])
    total = q.sum(axis=1)
    return q / total[:, None], top + xp.log(total)
