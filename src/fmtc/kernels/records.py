"""Records in public coordinates: what private runs do to rows before they are summed, whatever the server sends.

Rows are numbers; a column of numbers lies within public bounds and is clipped to them, a category is the number of one
of its public levels. A missing number counts as the middle of its bounds, a missing or unknown level as no level.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from ..errors import DataError, RefusedError
from .scaling import expanded

Array = np.ndarray


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
    >>> from fmtc.kernels.records import Box
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
        if low.shape == (n_columns,) != (numbers,):  # one pair for every column: categories need none
            low, high = (side[np.array(levels) == 0] for side in (low, high))
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
        numbers, levels = np.split(expanded(X, self.levels), [len(self.low)], axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            half = (self.high / 2 - self.low / 2).astype(np.float64)
            Z = (numbers - (self.low / 2 + self.high / 2)) / np.maximum(half, np.finfo(np.float64).tiny)
        Z = np.clip(np.nan_to_num(Z, nan=0.0, posinf=1.0, neginf=-1.0), -1, 1)
        return np.hstack([Z, levels]) / sqrt(max(X.shape[1], 1))


@dataclass(frozen=True)
class Public:
    """What the server has made of the stages so far; everybody may see it. A client trusts none of it."""

    box: Box
    mean: Any = None  # d; this and what follows: None before its stage
    radius: float = 0.0
    basis: Any = None  # d x r, from centred rows to coordinates
    size: float = 0.0  # length of coordinates that becomes 1, at least
    centers: Any = None  # K x r: anchors, or means of the clusters of a mixture
    precision: Any = None  # r x r, of a mixture
    shares: Any = None  # K, of a mixture

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
        if "centers" in names and not self._belong_together("precision" in names):
            raise RefusedError("the public centers have another number of coordinates than the public basis")

    def _belong_together(self, is_mixture: bool) -> bool:
        """Whether centres, and what else there is of a mixture, are in the coordinates of the basis."""
        K, r = self.centers.shape
        if not K or self.basis is None or self.basis.shape[1] != r:
            return False
        shapes = [None if part is None else part.shape for part in (self.precision, self.shares)]
        return not is_mixture or shapes == [(r, r), (K,)]


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
    first = gap.argmin(axis=1)
    if n == 1:
        return first[:, None]
    gap[np.arange(len(gap)), first] = np.inf
    return np.column_stack([first, gap.argmin(axis=1)])
