"""States of the mixture view: a client that reads its rows as a mixture, and the server with the common parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from ...linalg.arrays import HOST, to_device
from ...mixture import Cells
from ...mixture.steps import Common, Statistics
from ...models import Frame
from ...settings import Settings
from ..base import Array
from ..state import ClientState, Kept, ServerState, become
from .own import APART

# ------------------------------------------------------------------------------------------------------------ client


@dataclass(frozen=True, kw_only=True)
class Reading(ClientState):
    """A client that reads its rows in the coordinates of the mixture."""

    axes: Array | None  # d x r, of the coordinates; None: they are the columns
    origin: Array | None  # r, common mean of the coordinates, where columns have none
    cells: Cells


@dataclass(frozen=True, kw_only=True)
class Tallied(ClientState):
    """What a client needs to continue after a round: statistics of its last E-step, for each start still compared."""

    starts: Array  # s, their numbers
    counts: Array  # s x k
    sums: Array  # s x k x r
    tallies: Array  # s x k x l
    shifts: Array  # s x r


@dataclass(frozen=True, kw_only=True)
class Counted(Reading, Tallied):
    """A client that takes part in rounds."""


def counted(client: Reading, own: list[Statistics], starts: Array, round_no: int) -> Counted:
    """The client after an E-step of some starts."""
    kept = {"counts": "counts", "sums": "sums", "tallies": "levels", "shifts": "shift"}
    arrays = {name: np.array([getattr(one, of) for one in own]) for name, of in kept.items()}
    return become(client, Counted, starts=starts, round_no=round_no, **arrays)


@dataclass(frozen=True, kw_only=True)
class Concluded(Counted, Kept):
    """A client with its model."""


def category_levels(axes: Array | None, settings: Settings) -> tuple[int, ...]:
    """Levels of the categories of a mixture over columns; in principal axes they are numbers like all others."""
    return tuple(size for size in settings.levels if size) if axes is None else ()


def cells_of(client: ClientState, settings: Settings, axes: Array | None, origin: Array | None) -> Cells:
    """The rows as the mixture reads them: few columns as they are in X, scaled; many in a few principal axes."""
    frame = Frame.of(client.scaling, settings.levels, axes, origin)
    cells = frame.cells(client.X)
    if client.device == HOST or not cells.is_complete:
        return cells
    return Cells(to_device(np.asarray(cells.Z[:]), client.device), cells.codes, cells.levels)


# ------------------------------------------------------------------------------------------------------------ server


@dataclass(frozen=True)
class Seeds:
    """Moments of all rows, and where starts of the mixture are; coordinates of starts are numbers, then levels."""

    axes: Array | None  # d x r
    origin: Array | None  # r
    mean: Array  # p, of all rows
    within: Array  # p x p, covariance about the silos' own means
    total: Array  # p x p, covariance about the common mean
    size: float  # variance of a coordinate
    floor: Array | None  # r, least variance of coordinates of few values; 0 for others
    weights: Array  # s x p, coordinates that each start looks at
    centers: Array  # s x k x p
    turn: int = 0


@dataclass(frozen=True)
class Mixture:
    """Common parameters; the first axis of arrays counts starts that are still compared."""

    means: Array  # s x k x r
    covariance: Array  # s x r x r
    shares: Array  # s x k
    profiles: Array  # s x k x l
    spread: Array  # s x k
    drift: Array  # s
    size: float = 1.0  # variance of a coordinate
    keep: Array = field(default_factory=lambda: np.zeros(1, np.int64))  # s, numbers of the starts
    scores: Array = field(default_factory=lambda: np.zeros(1))  # s, of the last round
    rounds: int = 0
    settled: bool = False  # no further round is needed
    axes: Array | None = None  # d x r
    origin: Array | None = None  # r
    handicap: Array = field(default_factory=lambda: np.zeros(1))  # s, what a start's score must be better by, per row
    floor: Array | None = None  # r, least variance of coordinates of few values; 0 for others

    def common(self, start: int) -> Common:
        """Parameters of one start."""
        return common_of(self, start)

    @property
    def apart(self) -> Array:
        """The floor under which no coordinate varies with another one; (r,)."""
        none = np.zeros(self.means.shape[2])
        return np.maximum(none if self.floor is None else self.floor, np.finfo(float).tiny)

    def floor_of(self, start: int) -> Array | None:
        """The floor of one start."""
        return self.apart if self.keep[start] == APART else self.floor

    @property
    def ranking(self) -> Array:
        """Places of the starts, the best first, by the log-likelihood of a row.

        In principal axes it counts as if all concepts were equally common: the entropy of their shares is added. Rows
        far out make long tails there, and a start that spends concepts on a few of them, and leaves most rows to one
        concept, would be ahead of starts that tell the rows apart. For the same reason starts of the silos' own
        clusters, which may begin at such rows in any coordinates, are lower by what their shares are less even than
        those of the best other start.
        """
        scores, own = self.scores - self.handicap, self.keep < 0
        evenness = -(self.shares * np.log(np.maximum(self.shares, 1e-300))).sum(axis=1)
        if self.axes is not None:
            scores = scores + evenness
        elif own.any() and not own.all():
            best = evenness[~own][scores[~own].argmax()]
            scores = scores - np.where(own, np.maximum(best - evenness, 0.0), 0.0)
        return np.argsort(-scores, kind="stable")

    @property
    def leader(self) -> int:
        """Place of the best start."""
        return int(self.ranking[0])

    @property
    def order(self) -> Array:
        """The concept of the best start that takes each number, the largest first."""
        best = self.best(1)
        return np.lexsort((np.linalg.norm(best.means[0], axis=1), -best.shares[0]))

    def best(self, n: int) -> Mixture:
        """The n best starts, in their order."""
        if n >= len(self.keep):
            return self
        chosen = self.ranking[:n]
        return replace(self, **{name: getattr(self, name)[chosen] for name in STACKED})


PARAMETERS = tuple(f.name for f in fields(Common))
STACKED = (*PARAMETERS, "keep", "scores", "handicap")


def stacked(parts: list[Common]) -> dict[str, Any]:
    """Parameters of some starts, with the start as the first axis."""
    return {name: np.array([getattr(part, name) for part in parts]) for name in PARAMETERS}


def common_of(source: Any, start: int = 0) -> Common:
    """Parameters of one start, from a mixture or from a question, which leaves out what it has no use for."""
    found = {name: value[start] for name in PARAMETERS if (value := getattr(source, name, None)) is not None}
    profiles = found.pop("profiles", np.zeros((source.means.shape[1], 0)))
    return Common(profiles=profiles, drift=float(found.pop("drift", 0.0)), **found)


@dataclass(frozen=True, kw_only=True)
class InAxes(ServerState):
    """The server where columns are many: their principal axes."""

    axes: Array  # d x r
    origin: Array | None  # r


@dataclass(frozen=True, kw_only=True)
class Seeding(ServerState):
    """The server that looks for starts."""

    seeds: Seeds


@dataclass(frozen=True, kw_only=True)
class Mixing(ServerState):
    """The server of rounds of a mixture, over columns or over projections."""

    mixture: Mixture | None  # None: projections were clustered by k-means
    parts: Mapping[str, Array] = field(default_factory=dict)  # last sums of each client, one after another
    presence: Mapping[str, Array] = field(default_factory=dict)  # k by client, shares of rows; 0: few, or none
    influence: Array | None = None  # m x m, how far client s (row) moves when client t (column) is left out

    @property
    def kappa(self) -> Array | None:
        """Pooling strength of each concept of the mixture; None: there is no mixture."""
        return None if self.mixture is None else self.mixture.best(1).common(0).kappa


@dataclass(frozen=True, kw_only=True)
class MixtureServer(Mixing):
    """The server of the mixture view."""

    mixture: Mixture
