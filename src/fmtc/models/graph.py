"""The graph view's model of a silo: a projection, and clusters among projected rows of length 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ..kernels.centers import row_norms
from ..kernels.lift import Lift
from ..kernels.projection import Rows
from ..kernels.ranks import Calibration, RowScores
from ..kernels.scaling import Scaling, expanded, expanded_width, shiftable
from ..linalg.arrays import double, is_tensor, to_device_of, to_numpy
from ..mixture.cells import posteriors
from ..mixture.steps import SMALLEST_SHARE, Personal, log_shares
from . import base
from .base import LATER, ClientModel, Drawn, Member, Parts, Presence, Steps, Units

Array = np.ndarray


@dataclass(frozen=True)
class GraphModel(ClientModel):
    """What a client keeps for good of the graph view: enough to label new rows as they come, and no training row.

    With unit centres, the nearest one has the largest product with a projected row. Probabilities are then those of
    equally likely round Gaussians, whose common variance per coordinate is the training rows' mean squared distance to
    their centre over k.
    """

    kind: ClassVar[str] = "graph"

    W: Array  # d x k, in the units of the rows as they came, categories expanded
    centers: Array  # k x k, row j the centre of cluster j among normalised projections
    spread: float  # mean squared distance of a training row to its centre
    mean: Array | None  # d, subtracted from rows first; None where rows are not centred
    stretch: Array | None = None  # d, what columns were divided by; W has it inside, distances between rows need it
    keep: Array | None = None  # d, numbers of the columns of a row that the model looks at; None: all
    fill: Array | None = None  # d, what takes the place of a missing number; None: there may be none
    precision: Array | None = None  # k x k, inverse covariance of clusters; None: the nearest unit centre wins
    shares: Array | None = None  # k, of clusters; 0 for a concept that the client lacks. With `precision`, or such
    levels: Array | None = None  # of each column, 0 for numbers; None: all columns are numbers
    lift: Lift | None = None  # from scaled columns to those that W takes; None: W takes columns as they come
    calibration: Calibration | None = field(default=None, metadata=LATER)  # of scores of new rows

    # ------------------------------------------------------------------------------------------------ itself

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.centers)

    @property
    def units(self) -> Units:
        """What it does to columns."""
        scaling = None if self.stretch is None else Scaling(self.stretch, self.fill, self.keep)
        return Units(scaling=scaling, lift=self.lift)

    @property
    def why_final(self) -> str:
        """Where the silo lacks concepts, the axes are its own."""
        has_all = self.shares is None or self.shares.all()
        return "" if has_all else 'in the graph view it lacks clusters; fit again, or with view="mixture"'

    @property
    def holds_words(self) -> bool:
        """Whether the columns are like words: weighed as these are, or sparse, so that most rows lack each."""
        return self.keep is not None or (self.fill is None and self.mean is None and self.lift is None)

    @property
    def personal(self) -> Personal:
        """Its clusters as the E-step takes them; equal shares where k-means forms them."""
        shares = np.full(self.k, 1 / self.k) if self.shares is None else np.maximum(self.shares, SMALLEST_SHARE)
        return Personal(to_numpy(double(self.centers)), shares, np.zeros((self.k, 0)))

    @property
    def log_shares(self) -> Array:
        """Of clusters, minus infinity for concepts that the client lacks; zero where clusters are equally likely."""
        if self.shares is None:
            return np.zeros(self.k)
        return np.where(self.shares > 0, 0.0, -np.inf) if self.precision is None else log_shares(self.shares)

    def fits(self, d: int, k: int) -> bool:
        """Whether the arrays have the shapes that d columns and k clusters need."""
        levels, lift = base.sizes_of(self.levels), self.lift
        whole = expanded_width(levels, d)
        width, q = whole if self.keep is None else len(self.keep), self.centers.shape[-1]
        if lift is not None and (lift.frequencies.shape[0] != width or self.stretch is None or self.fill is None):
            return False
        rows = width if lift is None else lift.n_features
        return (
            base.are_columns(self.keep, d)
            and base.have_shapes(self, W=(rows, q), centers=(k, q), stretch=(width,), fill=(whole,))
            and base.have_shapes(self, mean=(rows,), precision=(q, q), shares=(k,))
            and (not levels or len(levels) == d)
            and (self.precision is None or self.shares is not None)
            and (self.calibration is None or self.calibration.is_sound)
        )

    def renumbered(self, order: Array) -> GraphModel:
        """The same with other numbers: cluster ``order[j]`` takes number j, and -1 is a concept that it lacks."""
        shares = self.shares
        if shares is None and (order < 0).any():
            shares = np.full(self.k, 1 / self.k)
        return replace(
            self, centers=base.taken(self.centers, order), shares=None if shares is None else base.taken(shares, order)
        )

    # ---------------------------------------------------------------------------------------------- new rows

    def design(self, X: Any) -> Any:
        """New rows as the columns that W takes: categories expanded, missing numbers filled, then lifted."""
        X = expanded(X, base.sizes_of(self.levels))
        if self.fill is not None and not sp.issparse(X) and not is_tensor(X) and np.isnan(X).any():
            X = np.where(np.isnan(X), self.fill.astype(X.dtype), X)
        if self.lift is None:
            return X
        assert self.stretch is not None
        return self.lift.apply(Scaling(self.stretch, self.fill).apply(base.finite(shiftable(X, self.fill))))

    def scaled(self, X: Any) -> Any:
        """New rows in the units of the graph: distances between them are those that it was made of."""
        X = self.design(X)
        return X if self.stretch is None or self.lift is not None else Scaling(self.stretch, keep=self.keep).apply(X)

    def transform(self, X: Any) -> Array:
        """Normalised projections; (n, d) -> (n, k)."""
        return project(self.design(X), self.W, self.mean, self.keep)

    def assign(self, X: Any) -> Array:
        """Cluster of each new row; (n, d) -> (n,)."""
        return self._answered(X, lambda scores, Y: to_numpy(scores.argmax(axis=1)))

    def probabilities(self, X: Any) -> Array:
        """Probability of each cluster; (n, d) -> (n, k)."""

        def answer(scores: Any, Y: Any) -> Array:
            return base.softmax(to_numpy(scores), self.W.dtype, to_numpy(Y)[:, -1:] * self._variance)

        return self._answered(X, answer)

    def scores(self, X: Any) -> Array:
        """Log of share times density of each cluster, of the direction alone; with unit centres, the cosine to each."""
        return self._scored(X.astype(np.float64))[0]

    def row_scores(self, X: Any) -> RowScores:
        """Scores and density of the direction, and log of the length; with unit centres the largest cosine is both."""
        scores, Z, length = self._scored(X)
        if self.precision is None:
            return base.as_row_scores(scores, scores.max(axis=1), np.log(length))
        density = posteriors(scores)[1] - 0.5 * np.einsum("ij,ij->i", Z @ self.precision, Z)
        return base.as_row_scores(scores, density, np.log(length))

    @property
    def low_only(self) -> bool:
        """Whether rows are not centred, so that 0 is what the model knows least."""
        return self.mean is None

    @property
    def _variance(self) -> float:
        """What scores are divided by for log-probabilities: with unit centres, the variance of a coordinate."""
        return 1.0 if self.precision is not None else max(self.spread / np.isfinite(self.log_shares).sum(), 1e-12)

    def _scored(self, X: Any) -> tuple[Array, Array, Array]:
        """Score of each cluster, projections at length 1 and the lengths that they had; (n, k), (n, k), (n,)."""
        found = self._answered(X, lambda scores, Y: np.hstack([to_numpy(scores), to_numpy(Y)]))
        norm = found[:, -1:]
        return found[:, : self.k] / norm, found[:, self.k : -1] / norm, norm[:, 0]

    def _answered(self, X: Any, answer: Callable[[Any, Any], Array]) -> Array:
        """Answer for all rows from their scores times |y|, and from (y, |y|), y the projection; (n, k), (n, k + 1).

        Times |y|, scores are linear in (y, |y|): one more product, of k + 1 columns, gives them.
        """
        X, Vc = self.design(X), np.vstack(self._linear())
        W = to_device_of(np.pad(self.W, ((0, 0), (0, 1))), X)  # one more column, for the norm
        mean = None if self.mean is None else to_device_of(self.mean, X)

        def of_block(block: Any) -> Array:
            Y = double(Rows(block, mean) @ W)
            Y[:, -1:] = base.finite(row_norms(Y))
            return answer(Y @ to_device_of(Vc, Y), Y)

        return base.blockwise(X, self.keep, of_block)

    def _linear(self) -> tuple[Array, Array]:
        """V and c: scores of a projection y of length 1 are y V + c, but for what all clusters share."""
        C = self.centers.T.astype(np.float64)
        if self.precision is None:
            return C, self.log_shares
        V = self.precision @ C
        return V, self.log_shares - 0.5 * (self.centers.T * V).sum(axis=0)

    # ----------------------------------------------------------------------------------------- what clusters are

    def member(self, presence: Presence | None) -> Member:
        """Where its concepts lie along the features."""
        centers = self.centers.astype(np.float64)
        away = centers - base.weights_of(presence, self.shares, self.k) @ centers
        found = away @ self.W.T.astype(np.float64)  # W_t (c_tj - c̄_t), c̄_t the weighted mean of the centres
        if self.stretch is not None and self.lift is None:
            found = found * self.stretch
        return Member(found, self.columns(found.shape[1]), self.presence(presence))

    def directions(self) -> tuple[Array, Array]:
        """W c of each cluster in the units of the graph; along no column where these were lifted."""
        if self.lift is not None:
            return np.zeros((self.k, 0)), np.arange(0)
        found = self.centers @ self.W.T
        return found if self.stretch is None else found * self.stretch, self.columns(len(self.W))

    # -------------------------------------------------------------------------------------- why a row is in its own

    def parts(self, x: Any, first: int, second: int) -> Parts | None:
        """What each feature adds to the margin: ``dev V / |dev W| + c`` is a sum over columns."""
        if self.lift is not None:
            return None
        dev, V, c = self._deviation(x)
        norm = max(float(np.linalg.norm(dev @ self.W)), 1e-300)
        contributions = dev * (V[:, first] - V[:, second]) / norm
        return Parts(self.columns(len(dev)), contributions, float(c[first] - c[second]))

    def borders(self, x: Any, first: int) -> Steps | None:
        """Steps from the first cluster to the next.

        With z the projection and w that of one unit of the feature: (z + t w)·v + c ||z + t w|| = 0, a quadratic in t.
        """
        if self.lift is not None:
            return None
        dev, V, c = self._deviation(x)
        z, W = dev @ self.W, np.asarray(self.W, dtype=np.float64)
        features = self.columns(len(dev))
        others = np.flatnonzero(np.isfinite(c) & (np.arange(self.k) != first))
        if not len(others):
            return Steps(features, np.full(len(features), np.inf))
        A = (dev @ V)[first] - (dev @ V)[others]  # others
        B = V[:, [first]] - V[:, others]  # f x others
        C = c[first] - c[others]
        P, Q, R = float(z @ z), (W @ z)[:, None], (W * W).sum(axis=1)[:, None]
        a, b, e = B**2 - C**2 * R, A * B - C**2 * Q, A**2 - C**2 * P
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            root = b**2 - a * e
            root = np.sqrt(np.where(np.abs(root) <= 1e-9 * b**2, 0.0, root))  # a double one where no constant differs
            linear = np.where(np.abs(a) <= 1e-14 * (B**2 + C**2 * R), -e / (2 * b), np.nan)
            steps = np.stack([(-b + root) / a, (-b - root) / a, linear])
            length = np.sqrt(P + 2 * Q * steps + R * steps**2)
            left = np.abs(A + B * steps + C * length) <= 1e-6 * (np.abs(A) + np.abs(B * steps) + np.abs(C) * length)
        steps = np.where(np.isfinite(steps) & left, steps, np.inf).transpose(1, 0, 2).reshape(len(features), -1)
        return Steps(features, steps[np.arange(len(steps)), np.abs(steps).argmin(axis=1)])

    def _deviation(self, x: Any) -> tuple[Array, Array, Array]:
        """Deviations of a row, weights and constants of its columns: scores are ``dev V / |dev W| + c``."""
        dev = base.dense_row(self.design(x))
        dev = dev if self.keep is None else dev[self.keep]
        V, c = self._linear()
        return dev if self.mean is None else dev - self.mean, np.asarray(self.W @ V), c

    @property
    def spreads(self) -> Array | None:
        """What columns were divided by."""
        return self.stretch if self.keep is None else None

    @property
    def usual(self) -> Array | None:
        """Means of the columns."""
        return self.fill

    # ------------------------------------------------------------------------------------------------------ ONNX

    def onnx(self, w: Any, X: str) -> Drawn:
        """Logarithm of the probabilities but for a row's constant."""
        levels, keep, fill, lift = base.sizes_of(self.levels), self.keep, self.fill, self.lift
        columns: int | str = len(levels) or (len(self.W) if lift is None else len(lift.frequencies))
        missing = "no cell may be missing"
        if fill is not None:
            missing = "NaN is a missing number: it counts as the mean of its column; a missing category is no level"
        rows = w.expanded(X, levels)
        if keep is not None:
            rows = w("Gather", rows, w.integers(keep), axis=1)
            columns = "features" if fill is None else len(fill)
            fill = None if fill is None else fill[keep]
        if fill is not None:
            rows = w("Where", w("IsNaN", rows), w.numbers(fill), rows)
        if lift is not None:
            rows = w("Div", w("Sub", rows, w.numbers(fill)), w.numbers(self.stretch))
            phase = w("MatMul", w("Sub", rows, w.numbers(lift.shift)), w.numbers(lift.frequencies))
            half = w.numbers(np.sqrt(lift.frequencies.shape[1]))
            rows = w("Div", w("Concat", w("Cos", phase), w("Sin", phase), axis=1), half)
        if self.mean is not None:
            rows = w("Sub", rows, w.numbers(self.mean))
        unit = w.unit_rows(w("MatMul", rows, w.numbers(self.W)))
        V, c = self._linear()
        scores = w("Add", w("MatMul", unit, w.numbers(V / self._variance)), w.numbers(c))
        return Drawn(scores, columns, missing, levels)


def project(X: Any, W: Array, mean: Array | None, keep: Array | None = None) -> Array:
    """Normalised rows of (X - mean) W: the space the centres live in; (n, d), (d, k) -> (n, k)."""
    W, mean = to_device_of(W, X), None if mean is None else to_device_of(mean, X)

    def answer(block: Any) -> Array:
        Y = base.finite(Rows(block, mean) @ W)
        return Y / row_norms(Y)

    return base.blockwise(X, keep, answer)


__all__ = ["GraphModel", "project"]
