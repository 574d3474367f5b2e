"""States of the graph view: a client from its graph to its clusters, and the server with the stacks W, Z and Y."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np

from ...kernels.graph import Graph
from ...kernels.projection import RidgeFactors
from ...linalg.arrays import asarray_like
from ...linalg.stacks import Workspace
from ...mixture import Cells
from ...mixture.steps import Statistics
from ...models import GraphModel
from ...settings import Settings
from ..base import Array
from ..mixture.state import Mixing
from ..state import ClientState, Kept, Ready, ServerState, become, reached, with_rows

# ------------------------------------------------------------------------------------------------------------ client


@dataclass(frozen=True, kw_only=True)
class Embedded(ClientState):
    """What a client needs to continue after a round, its graph left out."""

    F: Array  # n x k
    W: Array  # d x k; zeros before the first round
    anchor: Array  # d x k, what W was last drawn towards: all that the others have to say about it
    T: Array | None = None  # d x k, W and the dual of the last round, where the client takes the consensus step itself
    Z: Array | None = None  # d x k, its slice of the consensus before that


@dataclass(frozen=True, kw_only=True)
class Graphed(Ready):
    """A client with its graph."""

    graph: Graph


@dataclass(frozen=True, kw_only=True)
class Placed(Ready, Embedded):
    """A client whose projections can be computed."""


@dataclass(frozen=True, kw_only=True)
class Prepared(Graphed, Placed):
    """A client that takes part in rounds."""

    factors: RidgeFactors
    eta: float | None  # step size of the embedding


@dataclass(frozen=True)
class Clusters:
    """A client's own clusters, from k-means until they take the common numbers."""

    E: Array  # n x k, normalised projections (or rows of F, for a run as published)
    model: GraphModel
    labels: Array  # n
    cells: Cells | None = None  # E as the mixture reads it
    before: Statistics | None = None  # of the mixture's last round but one
    statistics: Statistics | None = None  # of the last
    step: int = 0  # which round that was
    axes: Array | None = None  # k x K, from axes of its own to those of concepts, which E and the model then have


@dataclass(frozen=True, kw_only=True)
class Past(Placed):
    """A client after the rounds; what it had prepared is not there if it failed to prepare again in a resumed run."""

    graph: Graph | None = None
    factors: RidgeFactors | None = None
    eta: float | None = None


@dataclass(frozen=True, kw_only=True)
class Clustered(Past):
    """A client with clusters of its own."""

    own: Clusters


@dataclass(frozen=True, kw_only=True)
class Numbered(Past, Kept):
    """A client with its model, and what its graph says of the labels."""

    agreement: float | None = None  # of the labels with those of the embedding; see `protocol.graph.number`
    misses: bool = False  # whether the graph has clear parts that the labels do not follow


def placed(client: Any, settings: Settings) -> Placed:
    """The client with its projection and its rows."""
    client = reached(client, Embedded)
    if isinstance(client, Placed):
        return client
    ready = with_rows(client, settings)
    return become(client, Placed, scaling=ready.scaling, rows=ready.rows)


def prepared(client: Any) -> Prepared:
    """The client as it takes part in rounds; without what came after the last one."""
    if isinstance(client, Past) and client.graph is not None:
        return become(client, Prepared)
    return reached(client, Prepared)


Part = TypeVar("Part", bound=Embedded)


def rotated(client: Part, rotation: Array | None) -> Part:
    """The client in the common frame; the local terms do not change under (F R, W R)."""
    if rotation is None:
        return client
    R = asarray_like(rotation, client.F)
    return replace(client, F=client.F @ R, W=client.W @ R, anchor=client.anchor @ R)


# ------------------------------------------------------------------------------------------------------------ server


@dataclass(frozen=True, kw_only=True)
class Scaled(ServerState):
    """The server once clients have said how many rows they have."""

    omega: Array  # m, sums to 1
    rho: float
    beta: float | None  # in the units of Eq. 18; None until the first stack gives a relative beta its scale
    scale: float  # gives the rows of all clients mean squared norm 1
    clusters: Mapping[str, int] = field(default_factory=dict)  # of clients that have a number of their own
    before: int | None = None  # rounds of the mixture before these, where the view was chosen on the way


@dataclass(frozen=True, kw_only=True)
class GraphServer(Scaled):
    """The server of rounds; slice t of every stack belongs to ``client_ids[t]``."""

    W: Array  # d x K x m; columns of a concept that a client lacks are zero
    Z: Array
    Y: Array
    losses: Array  # m, last local objectives
    has: Array | None = None  # K x m, bool: which concepts each client has; None: all have all
    rotations: Mapping[str, Array] = field(default_factory=dict)  # not yet confirmed by an answer
    workspace: Workspace = field(
        default_factory=Workspace, compare=False, repr=False, metadata={"saved": False}
    )  # owns the memory of W and Y from the first round on

    def without(self, absent: set[str]) -> Self:
        """The server of the remaining clients."""
        stay = [t for t, cid in enumerate(self.client_ids) if cid not in absent]
        names = ("omega", "W", "Z", "Y", "losses", *(["has"] if self.has is not None else []))
        return replace(super().without(absent), **{name: getattr(self, name)[..., stay] for name in names})

    def columns_of(self, t: int) -> Any:
        """Columns of client t in every stack: those of the concepts it has; an index."""
        return slice(None) if self.has is None else np.flatnonzero(self.has[:, t])


@dataclass(frozen=True, kw_only=True)
class Proposed(GraphServer):
    """The server that was asked how many concepts there are."""

    proposed: int  # concepts that there may be


@dataclass(frozen=True, kw_only=True)
class Finished(GraphServer, Mixing):
    """The server after the rounds: it knows which clusters are the same."""

    orders: Mapping[str, Array]  # cluster of a client that takes each number; -1: none
    centers: Mapping[str, Array]  # k x k by client, in the common order

    @property
    def numbers(self) -> Mapping[str, Mapping[str, Any]]:
        """What each client is told of the common numbers of its clusters."""
        partial = None if self.has is None else True
        return {cid: {"order": order, "partial": partial} for cid, order in self.orders.items()}
