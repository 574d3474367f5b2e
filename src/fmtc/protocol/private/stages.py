"""What private anchors release: sums over records whose contributions have a bounded length, whatever the server sends.

A stage is a sum over records, given the public state: a client releases that of its rows. The guarantee rests on one
fact about each stage: what a single record adds is never longer than `Stage.sensitivity`, for any row and any public
state. The reasons are given at each function.

What is done to rows first is in `fmtc.kernels.records`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ...kernels.records import Public, centred, coordinates, nearest
from ..base import Array

BINS = 18  # of the radius, half an octave each; the first one holds the longest rows
HALF = 0.5  # what a record adds to the count of its anchor: little, because counts need less precision than sums
BLOCK = 8192  # rows whose contributions are in memory at a time


# --------------------------------------------------------------------------------------------------------- stages


@dataclass(frozen=True)
class Stage:
    """One release: what a record adds, how long that is at most, and which share of the budget it takes.

    ``added(X, public)`` gives the sum of what some rows add; `total` that of any number of rows.
    """

    name: str
    share: float  # of mu squared
    sensitivity: float  # no record's contribution is longer, whatever its cells and the public state are
    needs: tuple[str, ...]  # of the public state
    added: Callable[[Array, Public], Array]
    numbers: Callable[[Public], int]  # how many it releases

    def contributions(self, X: Array, public: Public) -> Array:
        """What each record adds by itself; (n, D) -> (n, numbers)."""
        return np.array([self.total(row[None], public) for row in np.asarray(X)])

    def total(self, X: Array, public: Public) -> Array:
        """The sum over records, computed in blocks; (n, D) -> (numbers,)."""
        public.check(*self.needs)
        X, found = np.asarray(X), np.zeros(self.numbers(public))
        for begin in range(0, len(X), BLOCK):
            found += self.added(X[begin : begin + BLOCK], public)
        return found


def mean_of(X: Array, public: Public) -> Array:
    """The row in the unit ball, and 1: length at most sqrt(1 + 1)."""
    return np.column_stack([public.box.unit(X), np.ones(len(X))]).sum(axis=0)


def radius_of(X: Array, public: Public) -> Array:
    """1 in the bin of the length about the mean: length 1. Bin b ends at 2 * 2^(-b/2)."""
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.linalg.norm(public.box.unit(X) - public.mean, axis=1)
    length = np.nan_to_num(length, nan=0.0, posinf=2.0)
    bins = np.clip(np.floor(-2 * np.log2(np.maximum(length, 1e-300) / 2)), 0, BINS - 1).astype(np.int64)
    return np.bincount(bins, minlength=BINS).astype(np.float64)


def gram_of(X: Array, public: Public) -> Array:
    """The triangle of y y', entries off the diagonal times sqrt 2: its length is that of the matrix, |y|² <= 1."""
    Y = centred(X, public)
    G = Y.T @ Y
    lower, column = np.tril_indices(len(G))
    return G[lower, column] * np.where(lower == column, 1.0, sqrt(2))


def anchor_of(X: Array, public: Public) -> Array:
    """Coordinates and 1/2 into the row of the nearest anchor: |e|² + 1/4 <= 1.25."""
    E = coordinates(X, public)
    one = np.zeros((len(E), len(public.centers)))
    one[np.arange(len(E)), nearest(E, public.centers, 1)[:, 0]] = 1
    return np.column_stack([one.T @ E, HALF * one.sum(axis=0)]).ravel()


def link_of(X: Array, public: Public) -> Array:
    """1 in the cell of the two nearest anchors: length 1; nothing if there is one anchor only."""
    K = len(public.centers)
    if K < 2:
        return np.zeros(0)
    pair = np.sort(nearest(coordinates(X, public), public.centers, 2), axis=1)
    below, above = pair[:, 0], pair[:, 1]
    return np.bincount(above * (above - 1) // 2 + below, minlength=K * (K - 1) // 2).astype(np.float64)


def mixture_of(X: Array, public: Public) -> Array:
    """Posterior times coordinates, and posterior/2: |γ|² (|e|² + 1/4) <= 1.25, since posteriors sum to 1."""
    E = coordinates(X, public)
    P = posterior(E, public)
    return np.column_stack([P.T @ E, HALF * P.sum(axis=0)]).ravel()


def posterior(E: Array, public: Public) -> Array:
    """Probability of each component of a mixture with one shape for all; rows sum to 1, whatever the state."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        V = public.precision @ public.centers.T
        score = E @ V - 0.5 * (public.centers.T * V).sum(axis=0) + np.log(np.maximum(public.shares, 1e-300))
        score = np.nan_to_num(score, nan=-1e300, posinf=1e300, neginf=-1e300)
        P = np.exp(np.maximum(score - score.max(axis=1, keepdims=True), -700.0))
    return P / P.sum(axis=1, keepdims=True) * (1 - 1e-12)


_CELLS = ("mean", "radius", "basis", "size", "centers")


def _cells(public: Public) -> int:
    K, r = public.centers.shape
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
    Stage("links", 0.28, 1.0, _CELLS, link_of, lambda p: len(p.centers) * (len(p.centers) - 1) // 2),
)

EM_STEPS = 3  # of the private mixture


def _mixture_stage(name: str, share: float) -> Stage:
    return Stage(name, share, sqrt(1.25), (*_CELLS, "precision", "shares"), mixture_of, _cells)


MIXTURE_STAGES: tuple[Stage, ...] = (
    *STAGES[:3],
    _anchor_stage("anchors1", 0.24),
    *(_mixture_stage(f"mixture{step}", 0.5 / EM_STEPS) for step in range(1, EM_STEPS + 1)),
)
