"""A silo's model of a private run: the public coordinates, anchors in them, and their clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ..kernels.alignment import numbers_of
from ..kernels.records import Box, Public, coordinates
from . import base
from .base import ClientModel, Drawn, Member, Presence

Array = np.ndarray

NO_ANCHOR = 16.0  # squared distance to a cluster without an anchor: more than any in the unit ball


@dataclass(frozen=True)
class AnchorModel(ClientModel):
    """What a client keeps for good of a private run; a row has the cluster of the nearest anchor."""

    kind: ClassVar[str] = "anchors"
    is_public: ClassVar[bool] = True
    rescales: ClassVar[bool] = True  # by the bounds of columns
    holds_words: ClassVar[bool] = False
    why_final: ClassVar[str] = "each step of a private run would spend privacy; start a new run"

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
        box = Box(self.low, self.high, base.sizes_of(self.levels))
        shape = {"precision": self.precision, "shares": self.shares}
        return Public(box, self.mean, self.radius, self.basis, self.size, self.anchors, **shape)

    def fits(self, d: int, k: int) -> bool:
        """Whether the arrays have the shapes that d columns and k clusters need."""
        levels = base.sizes_of(self.levels)
        numbers = sum(size == 0 for size in levels) if levels else d
        K, r = self.anchors.shape
        return (
            k == self.count
            and (not levels or len(levels) == d)
            and base.have_shapes(self, low=(numbers,), high=(numbers,), mean=(numbers + sum(levels),))
            and base.have_shapes(self, basis=(len(self.mean), r), clusters=(K,), precision=(r, r), shares=(K,))
            and base.are_columns(self.clusters, k)
            and (self.precision is None or self.shares is not None)
        )

    def renumbered(self, order: Array) -> AnchorModel:
        """The same with other numbers; no cluster that has an anchor may be lacking."""
        return replace(self, clusters=numbers_of(order)[self.clusters])

    @property
    def _columns(self) -> int:
        return len(self.low) if self.levels is None else len(self.levels)

    @property
    def usual(self) -> Array:
        """The middle between the bounds."""
        return self.low / 2 + self.high / 2

    @property
    def _half(self) -> Array:
        return self.high / 2 - self.low / 2

    @property
    def spreads(self) -> Array:
        """A quarter of the range between the bounds."""
        return (self.high - self.low) / 4

    @property
    def _metric(self) -> Array:
        """What squared distances are taken in; r x r."""
        return np.eye(self.anchors.shape[1]) if self.precision is None else self.precision

    @property
    def log_shares(self) -> Array:
        """Of the clusters of a mixture; (k,)."""
        return np.log(np.maximum(np.bincount(self.clusters, self.shares, self.k), 1e-12))

    # ---------------------------------------------------------------------------------------------- new rows

    def scaled(self, X: Any) -> Any:
        """New rows in the unit ball: distances between them are those that neighbours are found with."""
        return self.public.box.unit(_dense(X))

    def coordinates(self, X: Any) -> Array:
        """New rows in the public coordinates; (n, d) -> (n, r)."""
        return coordinates(_dense(X), self.public)

    plotted = coordinates

    def transform(self, X: Any) -> Array:
        """Distance of each row to the nearest anchor of each cluster; 4, more than there is, to a cluster without."""
        return np.sqrt(self._squares(X)).astype(X.dtype, copy=False)

    def scores(self, X: Any) -> Array:
        """Log of what `probabilities` normalises; the nearest anchor's cluster has the largest; (n, d) -> (n, k)."""
        squares = self._squares(X)
        return -0.5 * squares / self.width**2 if self.precision is None else self.log_shares - 0.5 * squares

    def _squares(self, X: Any) -> Array:
        E, precision = self.coordinates(X), self._metric
        V = precision @ self.anchors.T
        gap = (E @ precision * E).sum(axis=1)[:, None] + (self.anchors.T * V).sum(axis=0) - 2 * E @ V
        found = np.full((len(E), self.k), NO_ANCHOR)
        for cluster in np.unique(self.clusters):
            found[:, cluster] = np.maximum(gap[:, self.clusters == cluster].min(axis=1), 0.0)
        return found

    # ----------------------------------------------------------------------------------------- what clusters are

    @property
    def signatures(self) -> Array:
        """How the anchors of each cluster lie along the columns, half their range being 1; (k, d)."""
        middle = np.zeros((self.k, self.anchors.shape[1]))
        for cluster in np.unique(self.clusters):
            middle[cluster] = self.anchors[self.clusters == cluster].mean(axis=0)
        return middle * self.size @ np.linalg.pinv(self.basis) * (self.radius * self._columns**0.5)

    @property
    def centers(self) -> Array:
        """About where clusters lie, in the units of X, categories as shares of their levels; (k, d)."""
        unit, numbers = self.signatures + self.mean * self._columns**0.5, len(self.low)
        return np.hstack(
            [np.clip(unit[:, :numbers], -1, 1) * self._half + self.usual, np.clip(unit[:, numbers:], 0, 1)]
        )

    def member(self, presence: Presence | None) -> Member:
        """Where the public clusters lie along the features; who has how much of them is not known."""
        signatures, centers = self.signatures, self.centers
        features = np.arange(signatures.shape[1])
        return Member(signatures - signatures.mean(axis=0), features, None, centers - centers.mean(axis=0))

    def directions(self) -> tuple[Array, Array]:
        """How the anchors of each cluster lie along the columns, half their range being 1."""
        return self.signatures, np.arange(len(self.mean))

    # ------------------------------------------------------------------------------------------------------ ONNX

    def onnx(self, w: Any, X: str) -> Drawn:
        """Minus half the squared distance to the nearest anchor of each cluster, in units of its width."""
        levels = base.sizes_of(self.levels)
        E = self._onnx_coordinates(w, X, levels)
        precision = self._metric
        V = precision @ self.anchors.T
        own = w("ReduceSum", w("Mul", w("MatMul", E, w.numbers(precision)), E), w.integers([1]), keepdims=1)
        gap = w("Add", w("Sub", own, w("MatMul", E, w.numbers(2 * V))), w.numbers((self.anchors.T * V).sum(axis=0)))
        each = []
        for cluster in range(self.k):
            mine = np.flatnonzero(self.clusters == cluster)
            if len(mine):
                near = w("ReduceMin", w("Gather", gap, w.integers(mine), axis=1), axes=[1], keepdims=1)
                each.append(w("Max", near, w.numbers(0.0)))
            else:
                each.append(w("Add", w("Mul", own, w.numbers(0.0)), w.numbers(NO_ANCHOR)))
        squares = w("Concat", *each, axis=1)
        if self.precision is None:
            scores = w("Mul", squares, w.numbers(-0.5 / self.width**2))
        else:
            scores = w("Add", w("Mul", squares, w.numbers(-0.5)), w.numbers(self.log_shares))
        zeros = w("Mul", w("Where", w("IsNaN", X), w.numbers(0.0), X), w.numbers(0.0))  # NaN where a cell is infinite
        scores = w("Add", scores, w("ReduceSum", zeros, w.integers([1]), keepdims=1))
        missing = "NaN is a missing number: it counts as the middle of its bounds; a missing category is no level"
        return Drawn(scores, self._columns, missing, levels)

    def _onnx_coordinates(self, w: Any, X: str, levels: tuple[int, ...]) -> str:
        """`coordinates` of rows."""
        numbers = w("Gather", X, w.integers([j for j, size in enumerate(levels) if not size]), axis=1) if levels else X
        Z = w("Div", w("Sub", numbers, w.numbers(self.usual)), w.numbers(self._half))
        Z = w("Clip", w("Where", w("IsNaN", Z), w.numbers(0.0), Z), w.numbers(-1.0), w.numbers(1.0))
        Z = w("Concat", Z, w.indicators(X, levels), axis=1) if any(levels) else Z
        Z = w("Sub", w("Mul", Z, w.numbers(self._columns**-0.5)), w.numbers(self.mean))
        Y = w("Div", Z, w("Max", w("ReduceL2", Z, axes=[1], keepdims=1), w.numbers(self.radius)))
        E = w("MatMul", Y, w.numbers(self.basis))
        return w("Div", E, w("Max", w("ReduceL2", E, axes=[1], keepdims=1), w.numbers(self.size)))


def _dense(X: Any) -> Array:
    """Rows of a private model: dense, and finite but for missing cells."""
    return base.without_infinity(X.toarray() if sp.issparse(X) else np.asarray(X))


__all__ = ["AnchorModel"]
