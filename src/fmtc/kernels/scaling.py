"""Columns in common units: categories as numbers; moments that add up over clients, and the scaling they give."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import DataError
from ..linalg.arrays import row_blocks

Array = np.ndarray

BLOCK = 4096  # rows scaled at a time


# ------------------------------------------------------------------------- categories: an indicator for each level


def expanded_width(levels: tuple[int, ...], d: int) -> int:
    """Number of columns after `expanded`."""
    return sum(size or 1 for size in levels) if any(levels) else d


def indicators(levels: tuple[int, ...], d: int) -> Array:
    """Which of the expanded columns are indicators; shape (d',)."""
    if not any(levels):
        return np.zeros(d, bool)
    numbers = sum(size == 0 for size in levels)
    return np.arange(expanded_width(levels, d)) >= numbers


def expanded(X: Any, levels: tuple[int, ...]) -> Any:
    """Numbers as they are, then 0 or 1 for each level of each category; a missing category is 0 everywhere.

    Parameters
    ----------
    X : array of shape (n, d)
        Categories as codes 0, 1, ...; NaN where a cell is missing.
    levels : tuple of int
        Levels of each column, 0 for numbers; () if all columns are numbers.

    Returns
    -------
    array of shape (n, d')
        X itself if there are no categories.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.scaling import expanded
    >>> expanded(np.array([[1.0, 7.5], [0.0, np.nan]]), levels=(2, 0))
    array([[7.5, 0. , 1. ],
           [nan, 1. , 0. ]])
    """
    if not any(levels):
        return X
    parts = [X[:, [j for j, size in enumerate(levels) if size == 0]]]
    for j, size in enumerate(levels):
        if size:
            parts.append((X[:, j, None] == np.arange(size)).astype(X.dtype))  # NaN equals nothing
    return np.hstack(parts)


def codes(X: Array, levels: tuple[int, ...]) -> Array:
    """Levels of the categories of each row, -1 where they are missing; (n, d) -> (n, categories)."""
    columns = [j for j, size in enumerate(levels) if size]
    found = X[:, columns]
    sizes = np.array([levels[j] for j in columns])
    known = np.isfinite(found) & (found >= 0) & (found < sizes)
    return np.where(known, np.nan_to_num(found, nan=-1.0, posinf=-1.0, neginf=-1.0), -1).astype(np.int64)


# ----------------------------------------------------------------------------------------------------------- units


@dataclass(frozen=True)
class Moments:
    """Sums over a client's rows, column by column; sparse rows have no means, and squares about zero."""

    n: int
    means: Array | None  # d
    squares: Array  # d, sum of squared deviations from the means
    counts: Array | None = None  # d, filled cells; None: all are

    @property
    def variances(self) -> Array:
        """Variance of each column; mean square, of sparse rows; shape (d,)."""
        return self.squares / np.maximum(self.n if self.counts is None else self.counts, 1)


@dataclass(frozen=True)
class Scaling:
    """(x - shift)/stretch for each column: how rows are scaled, and how a model takes the scaling in.

    With `keep`, only those columns stay, and rows are then scaled to unit length.
    """

    stretch: Array  # d, above 0
    shift: Array | None = None  # d; None: zeros stay zeros
    keep: Array | None = None  # d, numbers of the columns to keep, in order; None: all

    @property
    def is_shift(self) -> bool:
        """Whether columns keep their units, and only begin at another place."""
        return self.keep is None and self.shift is not None and bool((self.stretch == 1).all())

    def apply(self, X: Any) -> Any:
        """A scaled copy of the rows, in their precision and storage; a missing number counts as the mean, 0."""
        if sp.issparse(X):
            if self.shift is not None:
                raise ValueError("sparse rows cannot be shifted: they would no longer be sparse")
            S = X.copy() if self.keep is None else X[:, self.keep]
            S.data /= self.stretch[S.indices]
            if self.keep is not None:
                S.data /= np.repeat(_lengths(_squares(S)), np.diff(S.indptr))
            return S
        S = np.empty((X.shape[0], len(self.stretch)), X.dtype)
        for rows in row_blocks(len(X), BLOCK):  # in double precision: single may lose deviations from an offset
            block = kept_columns(X[rows], self.keep)
            block = (block if self.shift is None else block - self.shift) / self.stretch
            if np.isnan(block.sum()):
                np.nan_to_num(block, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)
            S[rows] = block if self.keep is None else block / _lengths(block**2)[:, None]
        return S

    def fold(self, W: Array, mean: Array | None) -> tuple[Array, Array | None]:
        """Projection and mean for unscaled rows, from those for scaled rows; (d, k), (d,) -> (d, k), (d,).

        ``((x - shift)/stretch - mean) W = (x - (shift + stretch mean)) (W/stretch)``.
        """
        raw = (W / self.stretch[:, None]).astype(W.dtype)
        if mean is None and self.shift is None:
            return raw, None
        centre = (0.0 if self.shift is None else self.shift) + (0.0 if mean is None else self.stretch * mean)
        return raw, np.asarray(centre).astype(W.dtype)


def shiftable(X: Any, shift: Array | None) -> Any:
    """The rows; sparse ones are made dense where there is a shift, which leaves no zero a zero."""
    return X.toarray() if sp.issparse(X) and shift is not None else X


def kept_columns(X: Any, keep: Array | None) -> Any:
    """The columns with these numbers, or all of them for None; X may be sparse."""
    return X if keep is None else X[:, keep]


def _squares(X: Any) -> sp.csr_array:
    """Squared entries of sparse rows in double precision; shares the index arrays of X."""
    return sp.csr_array((np.square(X.data, dtype=np.float64), X.indices, X.indptr), shape=X.shape)


def _lengths(squares: Any) -> Array:
    """Norm of each row from its squared entries, 1 for a zero row; (n, d) -> (n,)."""
    lengths = np.sqrt(np.ravel(squares.sum(axis=1)))
    lengths[lengths == 0] = 1
    return lengths


def moments(X: Any) -> Moments:
    """Moments of one client's rows, in double precision, without a second copy of them."""
    n = X.shape[0]
    if sp.issparse(X):
        return Moments(n, None, np.ravel(_squares(X).sum(axis=0)))
    if np.isnan(X.sum(dtype=np.float64)) and np.isnan(X).any():
        return _filled_moments(X)
    first = X[0].astype(np.float64)  # deviations from a row are exactly 0 where a column is constant
    blocks = (_deviations(X[rows] - first) for rows in row_blocks(n, BLOCK))
    whole = reduce(_merged, blocks)
    assert whole.means is not None
    return Moments(n, first + whole.means, whole.squares)


def _filled_moments(X: Array) -> Moments:
    """Moments of the filled cells of each column; 0 for a column without any."""
    filled = ~np.isnan(X)
    counts = np.count_nonzero(filled, axis=0)
    first = X[filled.argmax(axis=0), np.arange(X.shape[1])].astype(np.float64)
    first[counts == 0] = 0.0
    gaps = np.where(filled, X - first, 0.0)
    means = gaps.sum(axis=0) / np.maximum(counts, 1)
    squares = np.square(np.where(filled, gaps - means, 0.0)).sum(axis=0)
    return Moments(len(X), first + means, squares, counts)


def _deviations(block: Array) -> Moments:
    means = block.mean(axis=0)
    return Moments(len(block), means, np.square(block - means).sum(axis=0))


def _merged(a: Moments, b: Moments) -> Moments:
    """Moments of the rows of both (Chan, Golub and LeVeque, 1983), without differences of large squares."""
    assert a.means is not None and b.means is not None
    n, gap = a.n + b.n, b.means - a.means
    if a.counts is None and b.counts is None:
        return Moments(n, a.means + gap * (b.n / n), a.squares + b.squares + gap**2 * (a.n * b.n / n))
    counts = [np.full(len(gap), m.n) if m.counts is None else m.counts for m in (a, b)]
    total = counts[0] + counts[1]
    share = counts[1] / np.maximum(total, 1)
    return Moments(n, a.means + gap * share, a.squares + b.squares + gap**2 * counts[0] * share, total)


def pool(parts: Iterable[Moments]) -> Moments:
    """Moments of the rows of all clients together; about zero if the rows of any client are sparse."""
    parts = list(parts)
    if any(part.means is None for part in parts):
        about_zero = (p.squares if p.means is None else p.squares + p.n * p.means**2 for p in parts)
        return Moments(sum(p.n for p in parts), None, sum(about_zero, np.zeros_like(parts[0].squares)))
    return reduce(_merged, parts)


# Chosen on pictures and sensors: common units lift Yale from 61 to 66 % and UTD-MHAD from 91 to 94 %, and images with a
# blank page are better off without.
FEW_COLUMNS = 50  # a table with no more columns holds measures of different things, unless its rows have length 1
MANY_ZEROS = 0.2  # share of zeros from which rows without a negative number are taken for counts, or for ink
ONE_UNIT = 10.0  # of such columns, the largest standard deviation is at most so many times the median
SAMPLE = 500  # rows that are looked at


def in_one_unit(X: Any) -> bool:
    """Whether columns share a unit that means something: rows of length 1, counts, or ink on a blank page.

    Counts and ink are many columns without a negative number, in which many cells are 0 and no column varies far more
    than most. To give a column that is seldom filled the weight of the others would make noise of it.
    """
    some = X[:SAMPLE].toarray() if sp.issparse(X) else X[:SAMPLE]
    if np.allclose(np.square(some, dtype=np.float64).sum(axis=1), 1, atol=1e-6):
        return True
    if X.shape[1] <= FEW_COLUMNS or (some < 0).any() or float((some == 0).mean()) < MANY_ZEROS:
        return False
    varied = np.sqrt(moments(some).variances)
    varied = varied[varied > 0]
    return len(varied) == 0 or bool(varied.max() <= ONE_UNIT * float(np.median(varied)))


FAR = 1e5  # ranges of all other values of a column, at which a row decides the clusters alone


def far_row(X: Array) -> tuple[int, int] | None:
    """Row and column of a value so far from all others that it alone decides the clusters; X is n x d.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.scaling import far_row
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> X[7, 1] = 1e15
    >>> far_row(X)
    (7, 1)
    """
    if len(X) < 10 or not X.shape[1]:
        return None
    some = X[:: max(1, len(X) // SAMPLE)].astype(np.float64)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns without a value
        quantiles = np.nanpercentile if np.isnan(some).any() else np.percentile  # the latter takes a tenth of the time
        low, middle, high = quantiles(some, (5, 50, 95), axis=0)
        away = np.fmax(np.fmax.reduce(X, axis=0) - middle, middle - np.fmin.reduce(X, axis=0))
        for column in np.flatnonzero(away > FAR * (high - low)).tolist():
            rows = X[:, column].astype(np.float64)
            worst = int(np.nanargmax(np.abs(rows - middle[column])))
            rest = np.delete(rows, worst)
            rest = rest[np.isfinite(rest)]
            if len(rest) >= 9 and 0 < np.ptp(rest) < abs(rows[worst] - middle[column]) / FAR:
                return worst, column
    return None


def standardize(rows: Moments, levels: tuple[int, ...] = ()) -> Scaling:
    """Mean 0 and standard deviation 1 for each column; root mean square 1 for sparse rows.

    A column counts as constant, and is divided by 1, if its variance is within the rounding error of a constant (the
    rule of scikit-learn's `StandardScaler`). Indicators of levels are shifted only.
    """
    variance = rows.variances
    means, eps = (0.0 if rows.means is None else rows.means), np.finfo(np.float64).eps
    constant = variance <= rows.n * eps * variance + (rows.n * eps * means) ** 2
    constant |= indicators(levels, len(variance))
    return Scaling(np.where(constant, 1.0, np.sqrt(variance)), rows.means)


def document_counts(X: Any) -> Array:
    """Number of rows with a nonzero entry in each column; shape (d,)."""
    if sp.issparse(X):
        return np.bincount(X.indices[X.data != 0], minlength=X.shape[1])
    return np.count_nonzero(X, axis=0)


def tfidf(n: int, counts: Array, max_features: int) -> Scaling:
    """Weights of words by how rare they are, for columns that are neither too rare nor too common.

    A column that occurs in `counts` of all n documents is multiplied by ``idf = ln((1 + n)/(1 + counts)) + 1``, as in
    scikit-learn's `TfidfTransformer`. Of the columns in at least two and at most half of the documents, the
    `max_features` most frequent are kept; of equally frequent ones, the first.
    """
    fit = np.flatnonzero((counts >= 2) & (counts <= n / 2))
    if len(fit) == 0:
        raise DataError(
            f"no word is left: none of the {len(counts)} columns occurs in at least 2 and at most half of the {n} "
            "documents. Add documents, or check how they were read."
        )
    keep = np.sort(fit[np.argsort(-counts[fit], kind="stable")[:max_features]])
    idf = np.log((1 + n) / (1 + counts[keep])) + 1
    return Scaling(1 / idf, keep=keep)
