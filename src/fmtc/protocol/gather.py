"""Phase `gather`: one step of k-means over the rows of all clients; clients send sums."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Any

from ..client import ClientState
from ..kernels.centers import cluster_sums, shared_step
from ..linalg.arrays import to_device_of, to_numpy
from ..server import ServerState
from ..settings import Settings
from .base import REPEATS, Array, Phase, array, required

GATHER_STEPS = 3  # steps of k-means over the rows of all clients


class Gather(Phase):
    """Sums of the projections nearest to each shared centre."""

    name = "gather"
    doing = "looking for shared centres"
    pure = True

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Shared centres so far."""

        centers: Array = array(
            "k k", "shared centres: first the mean of everybody's, then steps of k-means over the rows of all",
            "The mean directions of everybody's clusters, and which concepts others have that the client lacks. With "
            "two clients, **the other's centres exactly**; see [Centres](#centres).",
        )  # fmt: skip

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Sums of one client."""

        sums: Array = array(
            "k k", "for each shared centre, the sum of the normalised projections nearest to it, over n_samples",
            "Roughly which share of the rows each cluster has; of a cluster of one row, or of a row that changes its "
            "cluster between two questions, its normalised projection; see [Centres](#centres).",
        )  # fmt: skip

    def times(self, server: ServerState, settings: Settings) -> int:
        """A few steps, where clients share centres."""
        return 0 if server.centers is None else GATHER_STEPS

    def limit(self, settings: Settings) -> int:
        """Differences of sums can single out a row: no more questions than a run needs, restarts included."""
        return REPEATS * GATHER_STEPS if settings.solver.shares_centers else 0

    def asks(self, server: ServerState, settings: Settings) -> dict[str, Any]:
        """The same centres for everyone."""
        (centers,) = required(server, "centers")
        return dict.fromkeys(server.orders, self.Ask(centers=centers))

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[ClientState, Answer]:
        """Sum up the projections nearest to each centre."""
        (own,) = required(client, "own")
        return client, self.Answer(sums=to_numpy(cluster_sums(own.E, to_device_of(ask.centers, own.E))))

    def reduce(self, server: ServerState, answers: MutableMapping[str, Answer], settings: Settings) -> ServerState:
        """Shared centres after a step of k-means over the rows of all clients that answered."""
        (centers,) = required(server, "centers")
        return replace(server, centers=shared_step(centers, [answers[cid].sums for cid in sorted(answers)]))


GATHER = Gather()
