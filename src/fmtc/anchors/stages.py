"""What private anchors release: sums over records whose contributions have a bounded length, whatever the server sends.

A stage is a function φ from one record and the public state to a vector. A client releases the sum of φ over its rows.
The guarantee rests on one fact about each stage: the length of φ never exceeds `Stage.sensitivity`, for any row and any
public state. The reasons are given at each function.

Rows are numbers; a column of numbers lies within public bounds and is clipped to them, a category is the number of one
of its public levels. A missing number counts as the middle of its bounds, a missing or unknown level as no level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from ..errors import DataError, RefusedError

Array = np.ndarray

BINS = 18  # of the radius, half an octave each; the first one holds the longest rows
HALF = 0.5  # what a record adds to the count of its anchor: little, because counts need less precision than sums
BLOCK = 8192  # rows whose contributions are in memory at a time


@dataclass(frozen=True)
class Box:
    """Public bounds of the columns, and which of them are categories.

    Parameters
    ----------
    low, high : array of shape (d',)
        Bounds of the columns that are numbers, in their order.
    levels : tuple of int
        Levels of each column, 0 for numbers; () if all columns are numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.anchors import Box
    >>> box = Box.of((0, 10), n_columns=2)
    >>> box.unit(np.array([[5.0, 10.0], [-3.0, np.nan]]))
    array([[ 0.        ,  0.70710678],
           [-0.70710678,  0.        ]])
    """

    low: Array
    high: Array
    levels: tuple[int, ...] = ()

    @classmethod
    def of(cls, bounds: Any, n_columns: int, levels: tuple[int, ...] = ()) -> Box:
        """A box from a pair of numbers, or from two sequences with one number for each column of numbers."""
        numbers = sum(size == 0 for size in levels) if any(levels) else n_columns
        low, high = (np.asarray(side, dtype=np.float64) for side in bounds)
        if low.ndim and low.shape != (numbers,) and low.shape == (n_columns,) and any(levels):
            keep = [j for j, size in enumerate(levels) if not size]  # one pair for every column: categories need none
            low, high = low[keep], high[keep]
        if low.shape != high.shape or low.shape not in ((), (numbers,)):
            sizes = " and ".join(str(side.size) for side in (low, high))
            raise DataError(f"bounds have {sizes} numbers, but there are {numbers} columns of numbers")
        low, high = np.broadcast_to(low, numbers), np.broadcast_to(high, numbers)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise DataError("bounds must be finite, and the lower below the upper one in every column")
        return cls(low, high, levels if any(levels) else ())

    @property
    def width(self) -> int:
        """Columns of `unit`: numbers, then one for each level."""
        return len(self.low) + sum(self.levels)

    def unit(self, X: Array) -> Array:
        """Rows in the unit ball; (n, D) -> (n, d).

        A number becomes (x - middle)/half the range, clipped to [-1, 1]; a category an indicator of its level. Each
        column of X adds at most 1 to the squared length, so that a division by sqrt(D) gives a length of at most 1.
        """
        X = np.asarray(X)
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = X[:, [j for j, size in enumerate(self.levels) if not size]] if self.levels else X
            half = (self.high / 2 - self.low / 2).astype(np.float64)
            Z = (numbers - (self.low / 2 + self.high / 2)) / np.maximum(half, np.finfo(np.float64).tiny)
        parts = [np.clip(np.nan_to_num(Z, nan=0.0, posinf=1.0, neginf=-1.0), -1, 1)]
        parts += [(X[:, [j]] == np.arange(size)).astype(np.float64) for j, size in enumerate(self.levels) if size]
        return np.hstack(parts) / sqrt(max(X.shape[1], 1))


@dataclass(frozen=True)
class Public:
    """What the server has made of the stages so far; everybody may see it. A client trusts none of it."""

    box: Box
    mean: Array | None = None  # d
    radius: float = 0.0
    basis: Array | None = None  # d x r, from centred rows to coordinates
    size: float = 0.0  # length of coordinates that becomes 1, at least
    centers: Array | None = None  # K x r: anchors, or means of the clusters of a mixture
    precision: Array | None = None  # r x r, of a mixture
    shares: Array | None = None  # K, of a mixture

    def check(self, *names: str) -> None:
        """Raise `RefusedError` unless the named arrays are there, finite and of shapes that fit each other."""
        d = self.box.width
        shapes: dict[str, tuple[int | None, ...]] = {
            "mean": (d,), "basis": (d, None), "centers": (None, None), "precision": (None, None), "shares": (None,),
        }  # fmt: skip
        for name in names:
            value = np.asarray(getattr(self, name), dtype=np.float64)
            wanted = shapes.get(name, ())
            fits = len(wanted) == value.ndim and all(w in (None, s) for w, s in zip(wanted, value.shape, strict=True))
            if not fits or not np.isfinite(value).all():
                raise RefusedError(f"the public {name} is missing, not finite, or has another shape than it should")
            if name in ("radius", "size") and not value > 0:
                raise RefusedError(f"the public {name} is not above 0")
        r = None if self.basis is None else self.basis.shape[1]
        K = None if self.centers is None else len(self.centers)
        wrong = ("centers" in names and (self.centers.shape[1] != r or not K)) or (  # type: ignore[union-attr]
            "precision" in names and (self.precision.shape != (r, r) or self.shares.shape != (K,))  # type: ignore[union-attr]
        )
        if wrong:
            raise RefusedError("the public centers have another number of coordinates than the public basis")


# ---------------------------------------------------------------------------------------------- rows in coordinates


def _shortened(Z: Array, least: float) -> Array:
    """Rows divided by their length, or by `least` where that is more: of length at most 1, NaN never.

    Rows are divided by their largest entry first, so that no square overflows, and a last factor of 1 - 1e-12 keeps
    rounding from making them longer than 1.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        Z = np.nan_to_num(Z, nan=0.0, posinf=np.finfo(np.float64).max, neginf=-np.finfo(np.float64).max)
        peak = np.abs(Z).max(axis=1, keepdims=True, initial=0)
        Z = Z / np.maximum(peak, np.finfo(np.float64).tiny)
        norm = np.linalg.norm(Z, axis=1, keepdims=True)  # between 1 and sqrt(d), or 0
        longest = np.maximum(norm, least / np.maximum(peak, np.finfo(np.float64).tiny))
        return np.where(peak > 0, Z / np.maximum(longest, 1.0) * (1 - 1e-12), 0.0)


def centred(X: Array, public: Public) -> Array:
    """Rows about the public mean, those beyond the radius at length 1; (n, D) -> (n, d), length at most 1."""
    return _shortened(public.box.unit(X) - public.mean, public.radius)


def coordinates(X: Array, public: Public) -> Array:
    """Rows in the few coordinates of the public basis; (n, D) -> (n, r), length at most 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _shortened(centred(X, public) @ public.basis, public.size)


def nearest(E: Array, centers: Array, n: int) -> Array:
    """The n nearest centres of each row, the nearest first; ties go to the lower number; (m, r) -> (m, n)."""
    with np.errstate(over="ignore", invalid="ignore"):
        scale = max(1.0, float(np.abs(centers).max(initial=0)))
        C = centers / scale  # of any size, squares do not overflow
        gap = (C * C).sum(axis=1) - 2 * (E / scale) @ C.T
    if n == 1:
        return gap.argmin(axis=1)[:, None]
    first = gap.argmin(axis=1)
    rows = np.arange(len(gap))
    gap[rows, first] = np.inf
    return np.column_stack([first, gap.argmin(axis=1)])


# --------------------------------------------------------------------------------------------------------- stages


@dataclass(frozen=True)
class Stage:
    """One release: what a record adds, how long that is at most, and which share of the budget it takes.

    ``phi(X, public)`` gives the contributions of rows as a matrix of one row each; `total` their sum.
    """

    name: str
    share: float  # of mu squared
    sensitivity: float  # no record's contribution is longer, whatever its cells and the public state are
    needs: tuple[str, ...]  # of the public state
    phi: Callable[[Array, Public], Array]
    numbers: Callable[[Public], int]  # how many it releases

    def contributions(self, X: Array, public: Public) -> Array:
        """What each record adds; (n, D) -> (n, numbers)."""
        public.check(*self.needs)
        return self.phi(np.asarray(X), public)

    def total(self, X: Array, public: Public) -> Array:
        """The sum over records, computed in blocks; (n, D) -> (numbers,)."""
        public.check(*self.needs)
        X, found = np.asarray(X), np.zeros(self.numbers(public))
        for begin in range(0, len(X), BLOCK):
            found += _TOTALS.get(self.phi, _added)(self.phi, X[begin : begin + BLOCK], public)
        return found


def _added(phi: Callable[[Array, Public], Array], X: Array, public: Public) -> Array:
    total: Array = phi(X, public).sum(axis=0)
    return total


def mean_of(X: Array, public: Public) -> Array:
    """The row in the unit ball, and 1: length at most sqrt(1 + 1)."""
    return np.column_stack([public.box.unit(X), np.ones(len(X))])


def radius_of(X: Array, public: Public) -> Array:
    """1 in the bin of the length about the mean: length 1. Bin b ends at 2 * 2^(-b/2)."""
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.linalg.norm(public.box.unit(X) - public.mean, axis=1)
    length = np.nan_to_num(length, nan=0.0, posinf=2.0)
    bins = np.clip(np.floor(-2 * np.log2(np.maximum(length, 1e-300) / 2)), 0, BINS - 1).astype(np.int64)
    return _one_hot(bins, BINS)


def gram_of(X: Array, public: Public) -> Array:
    """The triangle of y y', entries off the diagonal times sqrt 2: its length is that of the matrix, |y|² <= 1."""
    Y = centred(X, public)
    lower, column = np.tril_indices(Y.shape[1])
    return Y[:, lower] * Y[:, column] * np.where(lower == column, 1.0, sqrt(2))


def _gram_total(_: Any, X: Array, public: Public) -> Array:
    Y = centred(X, public)
    G = Y.T @ Y
    lower, column = np.tril_indices(len(G))
    total: Array = G[lower, column] * np.where(lower == column, 1.0, sqrt(2))
    return total


def anchor_of(X: Array, public: Public) -> Array:
    """Coordinates and 1/2 into the row of the nearest anchor: |e|² + 1/4 <= 1.25."""
    E = coordinates(X, public)
    K, r = _centers(public).shape
    near = nearest(E, _centers(public), 1)[:, 0]
    found = np.zeros((len(E), K, r + 1))
    found[np.arange(len(E)), near, :r] = E
    found[np.arange(len(E)), near, r] = HALF
    return found.reshape(len(E), -1)


def _anchor_total(_: Any, X: Array, public: Public) -> Array:
    E = coordinates(X, public)
    one = _one_hot(nearest(E, _centers(public), 1)[:, 0], len(_centers(public)))
    return np.column_stack([one.T @ E, HALF * one.sum(axis=0)]).ravel()


def link_of(X: Array, public: Public) -> Array:
    """1 in the cell of the two nearest anchors: length 1; nothing if there is one anchor only."""
    K = len(_centers(public))
    if K < 2:
        return np.zeros((len(X), 0))
    return _one_hot(_cells_of_links(X, public), K * (K - 1) // 2)


def _link_total(_: Any, X: Array, public: Public) -> Array:
    K = len(_centers(public))
    return np.bincount(_cells_of_links(X, public), minlength=K * (K - 1) // 2).astype(np.float64)


def _cells_of_links(X: Array, public: Public) -> Array:
    pair = np.sort(nearest(coordinates(X, public), _centers(public), 2), axis=1)
    below, above = pair[:, 0], pair[:, 1]
    cell: Array = above * (above - 1) // 2 + below
    return cell


def mixture_of(X: Array, public: Public) -> Array:
    """Posterior times coordinates, and posterior/2: |γ|² (|e|² + 1/4) <= 1.25, since posteriors sum to 1."""
    E = coordinates(X, public)
    P = posterior(E, public)
    return (P[:, :, None] * np.column_stack([E, np.full(len(E), HALF)])[:, None, :]).reshape(len(E), -1)


def _mixture_total(_: Any, X: Array, public: Public) -> Array:
    E = coordinates(X, public)
    P = posterior(E, public)
    return np.column_stack([P.T @ E, HALF * P.sum(axis=0)]).ravel()


def posterior(E: Array, public: Public) -> Array:
    """Probability of each component of a mixture with one shape for all; rows sum to 1, whatever the state."""
    assert public.precision is not None and public.shares is not None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        V = public.precision @ _centers(public).T
        score = E @ V - 0.5 * (_centers(public).T * V).sum(axis=0) + np.log(np.maximum(public.shares, 1e-300))
        score = np.nan_to_num(score, nan=-1e300, posinf=1e300, neginf=-1e300)
        P = np.exp(np.maximum(score - score.max(axis=1, keepdims=True), -700.0))
    return P / P.sum(axis=1, keepdims=True) * (1 - 1e-12)


def _one_hot(place: Array, size: int) -> Array:
    found = np.zeros((len(place), size))
    found[np.arange(len(place)), place] = 1
    return found


def _centers(public: Public) -> Array:
    assert public.centers is not None
    return public.centers


_TOTALS: dict[Any, Any] = {  # the same sums with less memory
    gram_of: _gram_total, anchor_of: _anchor_total, link_of: _link_total, mixture_of: _mixture_total,
}  # fmt: skip
_CELLS = ("mean", "radius", "basis", "size", "centers")


def _cells(public: Public) -> int:
    K, r = _centers(public).shape
    return K * (r + 1)


def _anchor_stage(name: str, share: float) -> Stage:
    return Stage(name, share, sqrt(1.25), _CELLS, anchor_of, _cells)


STAGES: tuple[Stage, ...] = (
    Stage("mean", 0.04, sqrt(2), (), mean_of, lambda public: public.box.width + 1),
    Stage("radius", 0.02, 1.0, ("mean",), radius_of, lambda public: BINS),
    Stage("gram", 0.20, 1.0, ("mean", "radius"), gram_of, lambda p: p.box.width * (p.box.width + 1) // 2),
    _anchor_stage("anchors1", 0.115),
    _anchor_stage("anchors2", 0.115),
    _anchor_stage("anchors3", 0.23),
    Stage("links", 0.28, 1.0, _CELLS, link_of, lambda p: len(_centers(p)) * (len(_centers(p)) - 1) // 2),
)

EM_STEPS = 3  # of the private mixture


def _mixture_stage(name: str, share: float) -> Stage:
    return Stage(name, share, sqrt(1.25), (*_CELLS, "precision", "shares"), mixture_of, _cells)


MIXTURE_STAGES: tuple[Stage, ...] = (
    *(stage for stage in STAGES[:3]),
    _anchor_stage("anchors1", 0.24),
    *(_mixture_stage(f"mixture{step}", 0.5 / EM_STEPS) for step in range(1, EM_STEPS + 1)),
)


__all__ = ["BINS", "HALF", "MIXTURE_STAGES", "STAGES", "Box", "Public", "Stage", "centred", "coordinates", "nearest"]
