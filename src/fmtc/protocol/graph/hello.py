"""Phase `hello`: each client counts its rows and columns; the server agrees on scale and weights."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...client import ClientState, Ready, refuse_flat, refuse_unscaled, with_rows
from ...kernels.lift import RIDGE
from ...mixture.bounds import far_sizes
from ...mixture.steps import kept_rows
from ...privacy.protection import Protection
from ...server import ServerState, client_weights, set_aside, shared_width
from ...settings import Settings
from ...state import become
from ..base import Nothing, Phase, above, number
from ..mixture.state import Counted, MixtureServer
from .state import GraphServer


class Hello(Phase):
    """Who is there: sizes and the scale of the data."""

    name = "hello"
    doing = "describing its data"
    protect = Protection("Counts and one sum over all rows.")
    parallel = False

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Sizes of one client."""

        n_samples: int = number("number of rows", "Exactly that.", kind="count")
        n_features: int = number("number of columns", "Exactly that.", kind="count")
        sum_of_squares: float = number(
            "sum of squared entries of the rows, after centring where rows are centred; 0 where all rows are equal",
            "The total variance; for rows of 0 and 1 without centring, the number of ones. Two runs that differ by one "
            "row give that row's share by subtraction.", check=above(-1e-300),
        )  # fmt: skip
        n_clusters: int | None = number(
            "number of clusters", "How many of the concepts the silo has.", kind="count",
            when="where silos have numbers of their own", check=above(0),
        )  # fmt: skip

    def reply(self, client: ClientState, ask: Nothing, settings: Settings, round_no: int) -> tuple[Ready, Answer]:
        """Count."""
        refuse_unscaled(client, settings)
        ready = with_rows(with_own_number(client, settings), settings)
        n, d = ready.rows.shape
        k = None if settings.own_clusters is None else ready.k
        return ready, self.Answer(n_samples=n, n_features=d, sum_of_squares=energy(ready), n_clusters=k)

    def impossible(self, server: ServerState, answers: Mapping[str, Any], settings: Settings) -> dict[str, str]:
        """No rows, or more clusters than there are concepts."""
        most = settings.n_clusters
        empty = {cid: "is of no rows" for cid, answer in answers.items() if answer.n_samples < 1}
        return empty | {
            cid: f"asks for {answer.n_clusters} clusters, and there are {most} concepts"
            for cid, answer in answers.items()
            if (answer.n_clusters or 0) > most
        }

    def reduce(self, server: ServerState, answers: MutableMapping[str, Answer], settings: Settings) -> GraphServer:
        """Agree on features, scale and weights; Z = Y = 0 (Algorithm 1, initialisation)."""
        ids = tuple(sorted(answers))
        d, K, m = shared_width({cid: answers[cid].n_features for cid in ids}), settings.n_clusters, len(ids)
        refuse_flat([cid for cid in ids if answers[cid].sum_of_squares == 0])
        omega = client_weights(ids, server.weights)
        said = list(ids)
        if settings.solver.contains:
            sizes = np.array([answers[cid].sum_of_squares / answers[cid].n_samples for cid in ids])
            server, said = set_aside(server, ids, far_sizes(sizes))
        rows = sum(answers[cid].n_samples for cid in said)
        scale = float(np.sqrt(rows / sum(answers[cid].sum_of_squares for cid in said)))
        beta: float | None
        if settings.solver.rho is None:
            rho, beta = rho_of(server, settings, m), None
        else:
            rho, beta = settings.solver.rho, settings.beta
        zeros = np.zeros((d, K, m))
        return become(
            server, GraphServer, client_ids=ids, omega=omega, rho=rho, beta=beta, scale=scale, W=zeros, Z=zeros,
            Y=zeros, losses=np.zeros(m), before=rounds_before(server),
            clusters={cid: k for cid in ids if (k := answers[cid].n_clusters) is not None},
        )  # fmt: skip


def with_own_number(client: ClientState, settings: Settings) -> ClientState:
    """The client with as many clusters as its mixture has found concepts in its rows, where nobody has said how many.

    Only where the view is chosen on the way has there been a mixture.
    """
    if settings.own_clusters is None or client.k < settings.n_clusters or not isinstance(client, Counted):
        return client
    found = int(np.count_nonzero(kept_rows(client.counts[0])))
    return replace(client, k=int(np.clip(found, 1, client.X.shape[0] - 1)))


def rounds_before(server: ServerState) -> int | None:
    """Rounds of the mixture before those of the graph view, if there were any."""
    return server.mixture.rounds if isinstance(server, MixtureServer) else None


def energy(client: Ready) -> float:
    """Sum of squared entries of the rows; 0 where all rows are equal."""
    rows = client.rows
    is_flat = client.lift is not None and bool((rows.X[:1] == rows.X).all())  # lifted rows are not centred
    return 0.0 if is_flat else float(rows.sum_of_squares())


def rho_of(server: ServerState, settings: Settings, m: int) -> float:
    """Rho in normalised units: ridge = rho/(2 omega alpha) for a client of average weight."""
    return 2 * settings.alpha * (RIDGE if server.lifted else settings.solver.ridge) / m


HELLO = Hello()
