"""The mixture view's model of a silo: Gaussians of one shape over columns, and shares of the levels of categories."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from ..kernels.ranks import Calibration, RowScores
from ..kernels.scaling import Scaling, codes, expanded, expanded_width, shiftable
from ..mixture.cells import Cells, Scaled, level_parts, posteriors
from ..mixture.steps import Personal, log_shares, row_scores
from . import base
from .base import LATER, ClientModel, Drawn, Member, Parts, Presence, Steps, Units

Array = np.ndarray

EVEN = 2.0  # one over the standard deviation of a level that half of the rows have


@dataclass(frozen=True)
class Frame:
    """Common coordinates of the mixture: which columns are numbers, how they are scaled, and principal axes if many."""

    stretch: Array | None  # d, of expanded columns
    shift: Array | None  # d
    keep: Array | None = None  # d, columns that are kept; rows then have unit length
    levels: Array | None = None  # of each column of X, 0 for numbers; None: all columns are numbers
    axes: Array | None = None  # d x r; None: the coordinates are the columns that are numbers
    origin: Array | None = None  # r, subtracted from coordinates

    @classmethod
    def of(cls, scaling: Scaling | None, levels: tuple[int, ...], axes: Array | None, origin: Array | None) -> Frame:
        """The frame of a run."""
        sizes = np.array(levels, np.int64) if any(levels) else None
        if scaling is None:
            return cls(None, None, None, sizes, axes, origin)
        return cls(scaling.stretch, scaling.shift, scaling.keep, sizes, axes, origin)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Levels of each column; empty where all columns are numbers."""
        return base.sizes_of(self.levels)

    def units(self, r: int) -> tuple[Array, Array]:
        """Stretch and shift of the first r expanded columns; 1 and 0 where they have units of their own."""
        stretch = np.ones(r) if self.stretch is None else self.stretch[:r]
        return stretch, np.zeros(r) if self.shift is None else self.shift[:r]

    def cells(self, X: Any) -> Cells:
        """Rows as the mixture reads them."""
        (n, d), levels = X.shape, self.sizes
        if self.axes is not None:
            Z = base.blockwise(X, None, lambda block: self.scaled(block) @ self.axes)
            return Cells(Z if self.origin is None else Z - self.origin, np.zeros((n, 0), np.int64))
        numbers = np.array([j for j in range(d) if not (levels and levels[j])], dtype=np.int64)
        stretch, shift = self.units(len(numbers))
        found = codes(X, levels) if any(levels) else np.zeros((n, 0), np.int64)
        every = len(numbers) == d
        return Cells(Scaled(X, None if every else numbers, shift, stretch), found, tuple(s for s in levels if s))

    def scaled(self, X: Any) -> Any:
        """Rows as columns of numbers in the units of the mixture; missing ones 0."""
        X = shiftable(expanded(X, self.sizes), self.shift)
        if self.stretch is not None:
            return Scaling(self.stretch, self.shift, self.keep).apply(X)
        return X if sp.issparse(X) else np.nan_to_num(X)

    def onnx(self, w: Any, rows: str, r: int | None = None) -> str:
        """Operators that bring the first r expanded columns to the units of the mixture."""
        rows = rows if self.shift is None else w("Sub", rows, w.numbers(self.shift[:r]))
        return rows if self.stretch is None else w("Div", rows, w.numbers(self.stretch[:r]))


@dataclass(frozen=True)
class MixtureModel(ClientModel):
    """What a client keeps for good of the mixture view."""

    kind: ClassVar[str] = "mixture"

    frame: Frame
    means: Array  # k x r
    covariance: Array  # r x r
    shares: Array  # k
    profiles: Array  # k x l, shares of the levels of categories
    calibration: Calibration | None = field(default=None, metadata=LATER)  # of scores of new rows

    # ------------------------------------------------------------------------------------------------ itself

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.means)

    @property
    def units(self) -> Units:
        """What it does to columns."""
        frame = self.frame
        scaling = None if frame.stretch is None else Scaling(frame.stretch, frame.shift, frame.keep)
        return Units(scaling=scaling, axes=frame.axes, origin=frame.origin)

    @property
    def holds_words(self) -> bool:
        """Whether the columns are like words: weighed as these are, or sparse, so that most rows lack each."""
        return self.frame.keep is not None or (self.frame.axes is not None and self.frame.shift is None)

    def fits(self, d: int, k: int) -> bool:
        """Whether the arrays have the shapes that d columns and k clusters need."""
        frame, levels = self.frame, self.frame.sizes
        width = expanded_width(levels, d) if frame.keep is None else len(frame.keep)
        r, sizes = (width - sum(levels), sum(levels)) if frame.axes is None else (frame.axes.shape[1], 0)
        ends = width if frame.axes is None else len(frame.axes)
        return (
            base.have_shapes(self, means=(k, r), covariance=(r, r), shares=(k,), profiles=(k, sizes))
            and base.have_shapes(frame, stretch=(width,), shift=(width,))
            and ends == width
            and (not levels or len(levels) == d)
            and (self.calibration is None or self.calibration.is_sound)
        )

    @property
    def personal(self) -> Personal:
        """Parameters as the E-step takes them."""
        return Personal(self.means, self.shares, self.profiles)

    @property
    def lacks(self) -> Array:
        """Concepts that the client lacks; no row is theirs."""
        return self.shares == 0

    @property
    def centers(self) -> Array:
        """Centres in the units of X, categories as shares of their levels; (k, d)."""
        frame, means = self.frame, self.means
        if frame.axes is not None:
            means = (means if frame.origin is None else means + frame.origin) @ frame.axes.T
        stretch, shift = frame.units(means.shape[1])
        return np.hstack([means * stretch + shift, self.profiles])

    def renumbered(self, order: Array) -> MixtureModel:
        """The same with other numbers: cluster ``order[j]`` takes number j, and -1 is a concept that it lacks."""
        return replace(
            self, means=base.taken(self.means, order), shares=base.taken(self.shares, order),
            profiles=base.taken(self.profiles, order, missing=1),
        )  # fmt: skip

    # ---------------------------------------------------------------------------------------------- new rows

    def scaled(self, X: Any) -> Any:
        """New rows as columns of numbers in the units of the model, for distances between rows; missing ones 0."""
        return self.frame.scaled(X)

    def scores(self, X: Any) -> Array:
        """Log of share times density of each cluster, up to what is the same for all clusters; (n, d) -> (n, k)."""
        return self._scored(X)[0]

    def row_scores(self, X: Any) -> RowScores:
        """Scores and log-density; there is no length."""
        scores, constant = self._scored(X)
        return base.as_row_scores(scores, posteriors(scores)[1] + constant)

    def transform(self, X: Any) -> Array:
        """Distance of each row to each cluster in units of its shape, from the filled numbers; (n, d) -> (n, k)."""
        return np.sqrt(self._distances(X)).astype(X.dtype, copy=False)

    def plotted(self, X: Any) -> Array:
        """Rows in coordinates in which clusters are round, then their categories as 0 and 1; (n, d) -> (n, r + l).

        A missing number is put at the mean of the clusters, a missing category at no level.
        """
        cells = self._cells(X)
        Z = np.asarray(cells.Z[:], dtype=np.float64)
        Z = np.where(np.isnan(Z), self.shares @ self.means, Z)
        Z = solve_triangular(np.linalg.cholesky(self.covariance), Z.T, lower=True).T
        return np.hstack([Z, *(cells.codes[:, [c]] == np.arange(size) for c, size in enumerate(cells.levels))])

    def log_likelihood(self, X: Any) -> float:
        """Log-likelihood of rows over columns, in the units of X: of the filled cells."""
        levels, stretch = self.frame.sizes, self.frame.stretch
        numbers = [j for j in range(X.shape[1]) if not (levels and levels[j])]
        filled = np.full(len(numbers), X.shape[0]) if sp.issparse(X) else (~np.isnan(X[:, numbers])).sum(axis=0)
        units = 0.0 if stretch is None else float(filled @ np.log(stretch[: len(numbers)]))
        return float(self.row_scores(X).density.sum()) - units

    def outliers(self, X: Any, level: float) -> Array:
        """Rows further from every cluster than all but a share `level` of a Gaussian's rows; (n, d) -> (n,) of bool."""
        from scipy.stats import chi2

        nearest = self._distances(X)[:, ~self.lacks].min(axis=1)
        filled = (~np.isnan(self._cells(X).Z[:])).sum(axis=1)
        return nearest > chi2.isf(level, np.maximum(filled, 1))

    def _distances(self, X: Any) -> Array:
        """Squared Mahalanobis distance of the filled numbers of each row to each mean; (n, d) -> (n, k)."""
        flat = Personal(self.means, np.ones(self.k), np.ones_like(self.profiles))
        scores, constant = self._log_densities(X, flat, normalized=False)
        return np.maximum(-2 * (scores + constant[:, None]), 0)

    def _cells(self, X: Any) -> Cells:
        return self.frame.cells(base.without_infinity(X))

    def _scored(self, X: Any) -> tuple[Array, Array]:
        """Scores of rows, minus infinity for concepts that the client lacks, and their constants."""
        own = Personal(self.means, np.where(self.lacks, 1.0, self.shares), self.profiles)
        scores, constant = self._log_densities(X, own)
        scores[:, self.lacks] = -np.inf
        return scores, constant

    def _log_densities(self, X: Any, own: Personal, *, normalized: bool = True) -> tuple[Array, Array]:
        """Scores of new rows and the constants that belong to them, see `row_scores`; an error if numbers overflow."""
        with np.errstate(invalid="ignore", over="ignore"):  # `finite` says it better
            scores, constant = row_scores(self._cells(X), own, self.covariance, normalized=normalized)
            return base.finite(scores), base.finite(constant)

    # ----------------------------------------------------------------------------------------- what clusters are

    def member(self, presence: Presence | None) -> Member:
        """Means less the silo's mean, in common standard deviations within clusters, then differences of profiles.

        In principal axes: as columns in the units of the run.
        """
        weights, centers, axes = base.weights_of(presence, self.shares, self.k), self.centers, self.frame.axes
        away, spread = self.means - weights @ self.means, np.sqrt(np.maximum(np.diag(self.covariance), 1e-300))
        profiles = EVEN * (self.profiles - weights @ self.profiles)
        found = np.hstack([away / spread, profiles]) if axes is None else away @ axes.T
        return Member(found, self.columns(found.shape[1]), self.presence(presence), centers - weights @ centers)

    def directions(self) -> tuple[Array, Array]:
        """Centres less that of all rows, in common units."""
        centers, d = self.centers, self.centers.shape[1]
        return (centers - self.shares @ centers) / self.frame.units(d)[0], self.columns(d)

    # -------------------------------------------------------------------------------------- why a row is in its own

    def parts(self, x: Any, first: int, second: int) -> Parts | None:
        """What each feature adds to the margin, missing ones nothing."""
        start = float(np.log(self.shares[first]) - np.log(self.shares[second]))
        gap, middle = self.means[first] - self.means[second], (self.means[first] + self.means[second]) / 2
        frame = self.frame
        if frame.axes is not None:
            row, v = base.dense_row(self.scaled(x)), np.linalg.solve(self.covariance, gap)
            origin = 0.0 if frame.origin is None else frame.origin
            start -= float((origin + middle) @ v)
            return Parts(self.columns(len(row)), row * (frame.axes @ v), start)
        cells, z, V = self._weights(x)
        parts = np.zeros(len(z) + self.profiles.shape[1])
        parts[: len(z)] = np.where(np.isnan(z), 0.0, (V[:, first] - V[:, second]) * (z - middle))
        for code, part in zip(cells.codes[0].tolist(), level_parts(cells.levels), strict=True):
            if code >= 0:
                at = part.start + code
                parts[len(z) + at] = np.log(self.profiles[first, at] / self.profiles[second, at])
        return Parts(np.arange(len(parts)), parts, start)

    def borders(self, x: Any, first: int) -> Steps | None:
        """Steps from the first cluster to the next, for columns that are numbers: scores are linear in each."""
        frame = self.frame
        if frame.axes is not None:
            return None
        scores, (_, z, V) = self.scores(x)[0], self._weights(x)
        others = np.flatnonzero(np.arange(self.k) != first)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = -(scores[first] - scores[others]) / (V[:, [first]] - V[:, others])
        steps = np.where(np.isfinite(steps), steps, np.inf)
        nearest = steps[np.arange(len(z)), np.abs(steps).argmin(axis=1)]
        return Steps(np.arange(len(z)), nearest * frame.units(len(z))[0])

    def _weights(self, x: Any) -> tuple[Cells, Array, Array]:
        """Cells of a row, its numbers, and their weights in the score of each cluster, 0 where missing; (r, k)."""
        cells = self.frame.cells(x)
        z = np.asarray(cells.Z[:], dtype=np.float64)[0]
        V, seen = np.zeros((len(z), self.k)), np.flatnonzero(np.isfinite(z))
        V[seen] = np.linalg.solve(self.covariance[np.ix_(seen, seen)], self.means[:, seen].T)
        return cells, z, V

    @property
    def spreads(self) -> Array | None:
        """Standard deviations within clusters; of many columns, over all rows."""
        frame = self.frame
        if frame.axes is None:
            wide = np.sqrt(np.diag(self.covariance))
            return wide if frame.keep is not None else wide * frame.units(len(wide))[0]
        return frame.stretch if frame.keep is None else None

    # ------------------------------------------------------------------------------------------------------ ONNX

    def onnx(self, w: Any, X: str) -> Drawn:
        """Log of share times density of each cluster but for a row's constant."""
        frame, levels = self.frame, self.frame.sizes
        precision, shares = np.linalg.inv(self.covariance), log_shares(self.shares)
        precision = (precision + precision.T) / 2
        if frame.axes is not None:
            missing = "NaN is a missing number: it counts as the mean of its column; a missing category is no level"
            Z = w("MatMul", self._onnx_rows(w, w.expanded(X, levels)), w.numbers(frame.axes))
            if frame.origin is not None:
                Z = w("Sub", Z, w.numbers(frame.origin))
            columns = "features" if frame.keep is not None else len(levels) or len(frame.axes)
            return Drawn(w.linear_scores(Z, self.means, precision, shares), columns, missing, levels)
        r = self.means.shape[1]
        shape = w("Concat", w("Shape", X, start=0, end=1), w.integers([self.k]), axis=0)
        scores = w("Expand", w.numbers(shares[None]), shape)
        if r:
            numbers = [j for j, size in enumerate(levels) if not size]
            Z = w("Gather", X, w.integers(numbers), axis=1) if any(levels) else X
            Z = frame.onnx(w, Z, r)
            whole = w.linear_scores(Z, self.means, precision, np.zeros(self.k))
            scores = w("Add", scores, w.with_missing(Z, whole, self.means, self.covariance))
        if any(levels):
            scores = w("Add", scores, w.category_scores(X, levels, self.profiles))
        missing = "NaN is a missing cell: the answer comes from the other cells of the row"
        return Drawn(scores, len(levels) or r, missing, levels)

    def _onnx_rows(self, w: Any, rows: str) -> str:
        """`scaled` rows."""
        frame = self.frame
        if frame.keep is not None:
            rows = w("Gather", rows, w.integers(frame.keep), axis=1)
        rows = frame.onnx(w, rows)
        rows = w("Where", w("IsNaN", rows), w.numbers(0.0), rows)
        return rows if frame.keep is None else w.unit_rows(rows)


__all__ = ["Frame", "MixtureModel"]
