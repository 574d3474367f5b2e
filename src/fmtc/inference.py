"""What a client keeps for good, and what it says of new rows: projection, label, probabilities. No training row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from .anchors.stages import Box, Public, coordinates
from .errors import NotFiniteError
from .kernels.centers import row_norms
from .kernels.encoding import codes, expanded, expanded_width
from .kernels.lift import Lift
from .kernels.projection import Rows
from .kernels.ranks import Calibration
from .kernels.scaling import Scaling, kept_columns, shiftable
from .linalg.arrays import double, is_tensor, namespace, to_device_of, to_numpy
from .mixture.cells import Cells, Scaled, posteriors
from .mixture.steps import SMALLEST_SHARE, Personal, log_shares, row_distances, row_scores

Array = np.ndarray

LATER = {"optional": True}  # of a field that older files of models do not have: it then has its default
BLOCK = 8_192  # new rows projected at a time: what is made on the way stays in cache, and is worth a thread


@dataclass(frozen=True)
class GraphModel:
    """What a client keeps for good of the graph view: enough to label new rows as they come, and no training row."""

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

    def numbers(self, X: Any) -> Any:
        """New rows as columns of numbers: categories expanded, missing numbers filled."""
        if self.levels is not None:
            X = expanded(X, _levels(self.levels))
        if self.fill is None or sp.issparse(X) or is_tensor(X) or np.isfinite(_total(X)):
            return X
        return np.where(np.isnan(X), self.fill.astype(X.dtype), X)

    def design(self, X: Any) -> Any:
        """New rows as the columns that W takes."""
        X = self.numbers(X)
        if self.lift is None:
            return X
        assert self.stretch is not None
        if not is_tensor(X) and not np.isfinite(_total(X)) and not np.isfinite(X).all():
            raise NotFiniteError("the rows hold NaN, infinity, or values too large for their number format")
        return self.lift.apply(Scaling(self.stretch, self.fill).apply(shiftable(X, self.fill)))

    def scaled(self, X: Any) -> Any:
        """New rows in the units of the graph: distances between them are those that it was made of."""
        X = self.design(X)
        return X if self.stretch is None or self.lift is not None else Scaling(self.stretch, keep=self.keep).apply(X)

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.centers)

    @property
    def log_shares(self) -> Array:
        """Of clusters, minus infinity for concepts that the client lacks; zero where clusters are equally likely."""
        if self.shares is None or self.precision is None:
            lacks = np.zeros(self.k, bool) if self.shares is None else self.shares == 0
            return np.where(lacks, -np.inf, 0.0)
        return log_shares(self.shares)

    @property
    def personal(self) -> Personal:
        """Its clusters as the E-step takes them; equal shares where k-means forms them."""
        shares = np.full(self.k, 1 / self.k) if self.shares is None else np.maximum(self.shares, SMALLEST_SHARE)
        return Personal(to_numpy(double(self.centers)), shares, np.zeros((self.k, 0)))

    @property
    def lacks(self) -> Array | None:
        """Concepts that the client lacks; None: it has all."""
        return None if self.shares is None or self.shares.all() else self.shares == 0

    def fits(self, d: int, k: int) -> bool:
        """Whether the arrays have the shapes that d columns and k clusters need."""
        levels = _levels(self.levels)
        width = expanded_width(levels, d)
        if self.keep is not None:
            if self.keep.dtype.kind != "i" or ((self.keep < 0) | (self.keep >= d)).any():
                return False
            width = len(self.keep)
        columns = (self.stretch,) if self.lift is not None else (self.mean, self.stretch)
        q = self.centers.shape[1] if self.centers.ndim == 2 else 0
        rows = width
        if self.lift is not None:
            if self.lift.frequencies.shape[0] != width or self.stretch is None or self.fill is None:
                return False
            rows = self.lift.n_features
        return (
            self.W.shape == (rows, q)
            and self.centers.shape == (k, q)
            and all(array is None or array.shape == (width,) for array in columns)
            and (self.fill is None or self.fill.shape == (expanded_width(levels, d),))
            and (not levels or len(levels) == d)
            and (self.precision is None or (self.precision.shape == (q, q) and self.shares is not None))
            and (self.shares is None or self.shares.shape == (k,))
            and (self.calibration is None or self.calibration.is_sound)
        )


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
    def of(
        cls, d: int, scaling: Scaling | None, levels: tuple[int, ...], axes: Array | None, origin: Array | None
    ) -> Frame:
        """The frame of a run."""
        units = Scaling(np.ones(d)) if scaling is None else scaling
        codes_ = np.array(levels, np.int64) if any(levels) else None
        return cls(None if scaling is None else units.stretch, units.shift, units.keep, codes_, axes, origin)

    def cells(self, X: Any) -> Cells:
        """Rows as the mixture reads them."""
        n, d = X.shape
        levels = _levels(self.levels)
        if self.axes is not None:
            Z = np.empty((n, self.axes.shape[1]))
            step = n if sp.issparse(X) and self.shift is None else BLOCK
            for begin in range(0, n, max(step, 1)):
                rows = shiftable(expanded(X[begin : begin + step], levels), self.shift)
                if self.stretch is not None:
                    rows = Scaling(self.stretch, self.shift, self.keep).apply(rows)
                elif not sp.issparse(rows):
                    rows = np.nan_to_num(rows)
                Z[begin : begin + step] = rows @ self.axes
            return Cells(Z if self.origin is None else Z - self.origin, np.zeros((n, 0), np.int64))
        numbers = np.array([j for j in range(d) if not (levels and levels[j])], dtype=np.int64)
        r = len(numbers)
        shift = np.zeros(r) if self.shift is None else self.shift[:r]
        stretch = np.ones(r) if self.stretch is None else self.stretch[:r]
        found = codes(X, levels) if any(levels) else np.zeros((n, 0), np.int64)
        return Cells(Scaled(X, None if r == d else numbers, shift, stretch), found, tuple(s for s in levels if s))


@dataclass(frozen=True)
class MixtureModel:
    """What a client keeps for good of the mixture view."""

    frame: Frame
    means: Array  # k x r
    covariance: Array  # r x r
    shares: Array  # k
    profiles: Array  # k x l, shares of the levels of categories
    calibration: Calibration | None = field(default=None, metadata=LATER)  # of scores of new rows

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.means)

    def fits(self, d: int, k: int) -> bool:
        """Whether the arrays have the shapes that d columns and k clusters need."""
        frame, levels = self.frame, _levels(self.frame.levels)
        width = expanded_width(levels, d) if frame.keep is None else len(frame.keep)
        r = width - sum(levels) if frame.axes is None else frame.axes.shape[1]
        sizes = 0 if frame.axes is not None else sum(levels)
        return (
            self.means.shape == (k, r)
            and self.covariance.shape == (r, r)
            and self.shares.shape == (k,)
            and self.profiles.shape == (k, sizes)
            and (not levels or len(levels) == d)
            and (frame.axes is None or frame.axes.shape[0] == width)
            and all(array is None or array.shape == (width,) for array in (frame.stretch, frame.shift))
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
    def log_shares(self) -> Array:
        """Minus infinity for concepts that the client lacks."""
        return log_shares(self.shares)

    def scaled(self, X: Any) -> Any:
        """New rows as columns of numbers in the units of the model, for distances between rows; missing ones 0."""
        levels = _levels(self.frame.levels)
        X = shiftable(expanded(X, levels), self.frame.shift)
        if self.frame.stretch is not None:
            return Scaling(self.frame.stretch, self.frame.shift, self.frame.keep).apply(X)
        return X if sp.issparse(X) else np.nan_to_num(X)

    def scores(self, X: Any) -> Array:
        """Log of share times density of each cluster, up to what is the same for all clusters; (n, d) -> (n, k)."""
        return self._scored(X)[0]

    def _scored(self, X: Any) -> tuple[Array, Array]:
        """Scores of rows, minus infinity for concepts that the client lacks, and their constants."""
        own = Personal(self.means, np.where(self.lacks, 1.0, self.shares), self.profiles)
        scores, constant = _scores(self.frame, X, own, self.covariance)
        scores[:, self.lacks] = -np.inf
        return scores, constant

    def log_density(self, X: Any) -> Array:
        """Log-density of each row, that of its filled cells; (n, d) -> (n,)."""
        scores, constant = self._scored(X)
        return posteriors(scores)[1] + constant

    def log_likelihood(self, X: Any) -> float:
        """Log-likelihood of rows over columns, in the units of X: of the filled cells."""
        levels, stretch = _levels(self.frame.levels), self.frame.stretch
        numbers = [j for j in range(X.shape[1]) if not (levels and levels[j])]
        filled = np.full(len(numbers), X.shape[0]) if sp.issparse(X) else (~np.isnan(X[:, numbers])).sum(axis=0)
        units = 0.0 if stretch is None else float(filled @ np.log(stretch[: len(numbers)]))
        return float(self.log_density(X).sum()) - units

    @property
    def centers(self) -> Array:
        """Centres in the units of X, categories as shares of their levels; (k, d)."""
        frame, means = self.frame, self.means
        if frame.axes is not None:
            means = (means if frame.origin is None else means + frame.origin) @ frame.axes.T
        means = np.hstack([means, self.profiles])
        r = means.shape[1] - self.profiles.shape[1]
        stretch = np.ones(r) if frame.stretch is None else frame.stretch[:r]
        shift = np.zeros(r) if frame.shift is None else frame.shift[:r]
        means[:, :r] = means[:, :r] * stretch + shift
        return means

    def gaps(self, X: Any) -> Array:
        """Distance of each row to each cluster in units of its shape, from the filled numbers; (n, d) -> (n, k)."""
        flat = Personal(self.means, np.ones(self.k), np.ones_like(self.profiles))
        scores, constant = _scores(self.frame, X, flat, self.covariance, normalized=False)
        return np.sqrt(np.maximum(-2 * (scores + constant[:, None]), 0))

    def rounded(self, X: Any) -> Array:
        """Rows in coordinates in which clusters are round, then their categories as 0 and 1; (n, d) -> (n, r + l).

        A missing number is put at the mean of the clusters, a missing category at no level.
        """
        cells = _checked_cells(self.frame, X)
        Z = np.asarray(cells.Z[:], dtype=np.float64)
        Z = np.where(np.isnan(Z), self.shares @ self.means, Z)
        Z = solve_triangular(np.linalg.cholesky(self.covariance), Z.T, lower=True).T
        codes = [cells.codes[:, [c]] == np.arange(size) for c, size in enumerate(cells.levels)]
        return np.hstack([Z, *codes])

    def distances(self, X: Any) -> tuple[Array, Array]:
        """Squared distance of each row to the nearest cluster, in units of its shape, and the row's filled numbers."""
        with np.errstate(invalid="ignore", over="ignore"):  # `_finite` says it better
            own = Personal(self.means[~self.lacks], self.shares[~self.lacks], self.profiles[~self.lacks])
            distance, filled = row_distances(_checked_cells(self.frame, X), own, self.covariance)
            return _finite(distance), filled


@dataclass(frozen=True)
class AnchorModel:
    """What a client keeps for good of a private run: the public coordinates, anchors in them, and their clusters."""

    low: Array  # bounds of the columns that are numbers
    high: Array
    levels: Array | None  # of each column of X, 0 for numbers; None: all columns are numbers
    mean: Array  # d, of rows in the unit ball
    radius: float  # rows beyond it are taken to it
    basis: Array  # d x r
    size: float  # the same for coordinates
    anchors: Array  # K x r
    clusters: Array  # K, cluster of each anchor
    count: int  # clusters
    width: float  # of an anchor: root mean square distance of the client's rows to the nearest one
    precision: Array | None = None  # r x r: of a mixture with one shape, of which the anchors are the means
    shares: Array | None = None  # K, of a mixture

    @property
    def k(self) -> int:
        """Number of clusters."""
        return self.count

    @property
    def public(self) -> Public:
        """The public state, as the stages have it."""
        box = Box(self.low, self.high, _levels(self.levels))
        shape = {"precision": self.precision, "shares": self.shares}
        return Public(box, self.mean, self.radius, self.basis, self.size, self.anchors, **shape)

    def fits(self, d: int, k: int) -> bool:
        """Whether the arrays have the shapes that d columns and k clusters need."""
        levels = _levels(self.levels)
        numbers = sum(size == 0 for size in levels) if levels else d
        K, r = self.anchors.shape
        return (
            k == self.count
            and (not levels or len(levels) == d)
            and self.low.shape == self.high.shape == (numbers,)
            and self.mean.shape == (numbers + sum(levels),)
            and self.basis.shape == (len(self.mean), r)
            and self.clusters.shape == (K,)
            and self.clusters.dtype.kind == "i"
            and bool(((self.clusters >= 0) & (self.clusters < k)).all())
            and (self.precision is None or (self.precision.shape == (r, r) and self.shares is not None))
            and (self.shares is None or self.shares.shape == (K,))
        )

    @property
    def signatures(self) -> Array:
        """How the anchors of each cluster lie along the columns, half their range being 1; (k, d)."""
        middle = np.zeros((self.k, self.anchors.shape[1]))
        for cluster in range(self.k):
            own = self.clusters == cluster
            if own.any():
                middle[cluster] = self.anchors[own].mean(axis=0)
        columns = len(self.levels) if self.levels is not None else len(self.low)
        found: Array = middle * self.size @ np.linalg.pinv(self.basis) * (self.radius * columns**0.5)
        return found

    @property
    def centers(self) -> Array:
        """About where clusters lie, in the units of X, categories as shares of their levels; (k, d)."""
        columns = len(self.levels) if self.levels is not None else len(self.low)
        unit = self.signatures + self.mean * columns**0.5
        numbers = len(self.low)
        middle, half = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
        return np.hstack([np.clip(unit[:, :numbers], -1, 1) * half + middle, np.clip(unit[:, numbers:], 0, 1)])

    def scaled(self, X: Any) -> Any:
        """New rows in the unit ball: distances between them are those that neighbours are found with."""
        return self.public.box.unit(_dense(X))

    def coordinates(self, X: Any) -> Array:
        """New rows in the public coordinates; (n, d) -> (n, r)."""
        return coordinates(_dense(X), self.public)

    def gaps(self, X: Any) -> Array:
        """Distance of each row to the nearest anchor of each cluster; 4, more than there is, to a cluster without."""
        return np.sqrt(self._squares(X))

    def _squares(self, X: Any) -> Array:
        E = self.coordinates(X)
        if self.precision is None:
            gap = (E * E).sum(axis=1)[:, None] + (self.anchors**2).sum(axis=1) - 2 * E @ self.anchors.T
        else:
            V = self.precision @ self.anchors.T
            gap = (E @ self.precision * E).sum(axis=1)[:, None] + (self.anchors.T * V).sum(axis=0) - 2 * E @ V
        found = np.full((len(E), self.k), NO_ANCHOR)
        for cluster in range(self.k):
            own = self.clusters == cluster
            if own.any():
                found[:, cluster] = np.maximum(gap[:, own].min(axis=1), 0.0)
        return found

    def scores(self, X: Any) -> Array:
        """Log of what `memberships` normalises; the nearest anchor's cluster has the largest; (n, d) -> (n, k)."""
        squares = self._squares(X)
        return -0.5 * squares / self.width**2 if self.precision is None else self.log_shares - 0.5 * squares

    @property
    def log_shares(self) -> Array:
        """Of the clusters of a mixture; (k,)."""
        assert self.shares is not None
        shares = np.zeros(self.k)
        np.add.at(shares, self.clusters, self.shares)
        return np.log(np.maximum(shares, 1e-12))


NO_ANCHOR = 16.0  # squared distance to a cluster without an anchor: more than any in the unit ball

ClientModel = GraphModel | MixtureModel | AnchorModel


def _dense(X: Any) -> Array:
    """Rows of a private model: dense, and finite but for missing cells."""
    rows = X.toarray() if sp.issparse(X) else np.asarray(X)
    if np.isinf(rows).any():
        raise NotFiniteError("the rows hold infinity, or values too large for their number format")
    return rows


def _total(X: Array) -> float:
    """Sum of all entries: not finite if one of them is not, or if it is too large."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(X.sum(dtype=np.float64))


def _levels(levels: Array | None) -> tuple[int, ...]:
    return () if levels is None else tuple(int(size) for size in levels)


def _checked_cells(frame: Frame, X: Any) -> Cells:
    entries = X.data if sp.issparse(X) else X
    if np.isinf(entries).any():
        raise NotFiniteError("the rows hold infinity, or values too large for their number format")
    return frame.cells(X)


def _scores(frame: Frame, X: Any, own: Personal, covariance: Array, *, normalized: bool = True) -> tuple[Array, Array]:
    """Scores of new rows and the constants that belong to them, see `row_scores`; an error if numbers overflow."""
    with np.errstate(invalid="ignore", over="ignore"):  # `_finite` says it better
        scores, constant = row_scores(_checked_cells(frame, X), own, covariance, normalized=normalized)
        return _finite(scores), _finite(constant)


def _probabilities(scores: Array, dtype: Any, scale: Array | float = 1.0) -> Array:
    """Softmax of each row over its scale; the cluster with the largest score, which `assign` takes, has the most."""
    P = posteriors(scores / scale)[0].astype(dtype)
    label = scores.argmax(axis=1)[:, None]
    most = np.take_along_axis(P, label, axis=1)
    tied = most == P
    np.put_along_axis(tied, label, False, axis=1)
    return np.where(tied, np.nextafter(most, P.dtype.type(0)), P)


def _finite(Y: Array) -> Array:
    """The same projections, or an error: NaN and infinity in a row show in every column of its projection."""
    if not np.isfinite(float(Y.sum())) and not namespace(Y).isfinite(Y).all():  # the sum alone may just be too large
        raise NotFiniteError("the rows hold NaN, infinity, or values too large for their number format")
    return Y


def _blockwise(X: Any, keep: Array | None, answer: Callable[[Any], Array]) -> Array:
    """Answer for all rows, a block at a time; sparse rows are few bytes each and go in one block."""
    n = X.shape[0]
    with np.errstate(invalid="ignore", over="ignore"):  # `_finite` says it better
        if sp.issparse(X) or is_tensor(X) or n <= BLOCK:
            return answer(kept_columns(X, keep))
        return np.concatenate([answer(kept_columns(X[b : b + BLOCK], keep)) for b in range(0, n, BLOCK)])


def project(X: Any, W: Array, mean: Array | None, keep: Array | None = None) -> Array:
    """Normalised rows of (X - mean) W: the space the centres live in; (n, d), (d, k) -> (n, k)."""

    W, mean = to_device_of(W, X), None if mean is None else to_device_of(mean, X)

    def answer(block: Any) -> Array:
        Y = _finite(Rows(block, mean) @ W)
        return Y / row_norms(Y)

    return _blockwise(X, keep, answer)


def assign(X: Any, model: ClientModel) -> Array:
    """Cluster of each new row; (n, d) -> (n,). Row by row: no batch effect.

    Mixture: the cluster with the largest posterior. Anchors: the cluster of the nearest one. Graph with unit centres:
    project, normalise, nearest centre. These have unit norm, so the nearest one has the largest product with the row,
    whatever the row's own norm: one product with the d x k matrix W Cᵀ decides.
    """
    if isinstance(model, MixtureModel | AnchorModel):
        return model.scores(X).argmax(axis=1)
    X = model.design(X)
    if model.precision is not None:
        scorer = _cluster_scorer(X, model)
        return _blockwise(X, model.keep, lambda block: scorer(block)[0].argmax(axis=1))
    V = to_device_of(model.W @ model.centers.T, X)
    mean = None if model.mean is None else to_device_of(model.mean, X)
    if model.lacks is None:
        return _blockwise(X, model.keep, lambda block: _finite(Rows(block, mean) @ V).argmax(axis=1))
    allowed = to_device_of(model.log_shares, X)
    return _blockwise(X, model.keep, lambda block: (_finite(Rows(block, mean) @ V) + allowed).argmax(axis=1))


def transformed(X: Any, model: ClientModel) -> Array:
    """Normalised projections; of a mixture or of anchors, distances to the clusters; (n, d) -> (n, k)."""
    if isinstance(model, MixtureModel | AnchorModel):
        return model.gaps(X).astype(X.dtype, copy=False)
    return project(model.design(X), model.W, model.mean, model.keep)


def plotted(X: Any, model: ClientModel) -> Array:
    """Rows in the space that tells clusters apart, for pictures: normalised projections; of a mixture, `rounded`."""
    if isinstance(model, AnchorModel):
        return model.coordinates(X)
    return model.rounded(X) if isinstance(model, MixtureModel) else transformed(X, model)


def outliers(X: Any, model: MixtureModel, level: float) -> Array:
    """Rows further from every cluster than all but a share `level` of a Gaussian's rows; (n, d) -> (n,) of bool."""
    from scipy.stats import chi2

    distance, filled = model.distances(X)
    return distance > chi2.isf(level, np.maximum(filled, 1))


def _cluster_scorer(X: Any, model: GraphModel) -> Callable[[Any], tuple[Array, Array]]:
    """Function of blocks of X: log of share times density of each cluster, times |y|, and (y, |y|), y the projection.

    The density is that of y / |y|, up to a constant of the row. Times |y|, its log is linear in (y, |y|): one product
    more, of k columns, gives it; (n, d) -> (n, k), (n, k + 1).
    """
    assert model.precision is not None and model.shares is not None
    V = model.precision @ model.centers.T.astype(np.float64)
    c = model.log_shares - 0.5 * (model.centers.T * V).sum(axis=0)
    W = to_device_of(np.pad(model.W, ((0, 0), (0, 1))), X)  # one more column, for the norm
    mean = None if model.mean is None else to_device_of(model.mean, X)
    Vc = np.vstack([V, c])

    def scores(block: Any) -> tuple[Array, Array]:
        Y = double(Rows(block, mean) @ W)
        Y[:, -1:] = _finite(row_norms(Y))
        return Y @ to_device_of(Vc, Y), Y

    return scores


def memberships(X: Any, model: ClientModel) -> Array:
    """Probability of each cluster; (n, d) -> (n, k).

    With unit centres, as if clusters were equally likely round Gaussians: their common variance per coordinate is the
    training rows' mean squared distance to their centre over k.
    """
    if isinstance(model, MixtureModel | AnchorModel):
        return _probabilities(model.scores(X), X.dtype)
    X = model.design(X)
    if model.precision is not None:
        scorer = _cluster_scorer(X, model)

        def of_mixture(block: Any) -> Array:
            scaled, Y = scorer(block)
            return _probabilities(scaled, model.W.dtype, Y[:, -1:])

        return _blockwise(X, model.keep, of_mixture)
    V, allowed = model.W @ model.centers.T, model.log_shares
    variance = max(model.spread / np.isfinite(allowed).sum(), 1e-12)

    def answer(block: Any) -> Array:
        rows = Rows(block, model.mean)
        score = (rows @ V).astype(np.float64) + allowed  # cosine to each centre, times the row's norm
        gap = (score - score.max(axis=1, keepdims=True)) / row_norms(_finite(rows @ model.W))
        # of two centres as near as numbers can tell, the one that `assign` takes has more
        tie = 1 - 4 * float(np.finfo(V.dtype).eps)
        P = np.where(gap == 0, 1.0, np.minimum(np.exp(gap / variance), tie))
        return (P / P.sum(axis=1, keepdims=True)).astype(V.dtype, copy=False)

    return _blockwise(X, model.keep, answer)


def raw_scores(X: Any, model: GraphModel | MixtureModel) -> tuple[Array, Array, Array | None]:
    """Score of each cluster, log-density and log of the length of the projection; (n, d) -> (n, k), (n,), (n,).

    In the graph view, scores and density are of the direction alone. With unit centres scores are cosines, and the
    largest stands for a density. The mixture view has no length.
    """
    if isinstance(model, MixtureModel):
        scores, constant = model._scored(X)
        return scores, posteriors(scores)[1] + constant, None
    X = model.design(X)
    lacks = np.zeros(model.k, bool) if model.shares is None else model.shares <= 0

    def of_unit_centers(block: Any) -> Array:
        Y = to_numpy(double(_finite(Rows(block, mean) @ W)))
        norm = row_norms(Y)
        scores = np.where(lacks, -np.inf, Y / norm @ model.centers.T.astype(np.float64))
        return np.column_stack([scores, scores.max(axis=1), np.log(norm)])

    def of_mixture(block: Any) -> Array:
        scaled, Y = map(to_numpy, scorer(block))
        scores, Z = scaled / Y[:, -1:], Y[:, :-1] / Y[:, -1:]
        density = posteriors(scores)[1] - 0.5 * np.einsum("ij,ij->i", Z @ precision, Z)
        return np.column_stack([scores, density, np.log(Y[:, -1])])

    if (precision := model.precision) is None:
        W, mean = to_device_of(model.W, X), None if model.mean is None else to_device_of(model.mean, X)
        found = _blockwise(X, model.keep, of_unit_centers)
    else:
        scorer = _cluster_scorer(X, model)
        found = _blockwise(X, model.keep, of_mixture)
    return found[:, :-2], found[:, -2], found[:, -1]


__all__ = [
    "AnchorModel",
    "ClientModel",
    "Frame",
    "GraphModel",
    "MixtureModel",
    "assign",
    "memberships",
    "plotted",
    "project",
    "raw_scores",
]
