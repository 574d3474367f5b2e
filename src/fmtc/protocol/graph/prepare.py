"""Phase `prepare`: each client makes its graph, its spectral start and the factor of its data, once per run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...client import ClientState, refuse_unscaled, stream, with_rows
from ...errors import RefusedError
from ...kernels.embedding import largest_eigenvalue, spectral_start
from ...kernels.graph import Graph, build_graph
from ...kernels.projection import RidgeFactors
from ...linalg.arrays import asarray_like
from ...settings import Settings
from ...state import become
from ..base import Array, Nothing, Phase, above, number
from .state import Embedded, Prepared, Scaled


class Prepare(Phase):
    """The common scale, and each client's own ridge."""

    name = "prepare"
    doing = "preparing its graph"
    persists = True
    rebuilds = True
    threads = True

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Units of the run."""

        scale: float = number(
            "common factor that gives the rows mean squared norm 1",
            "The mean squared norm of all rows; with two clients, one equation about the other's `n_samples` and "
            "`sum_of_squares`.", check=above(0),
        )  # fmt: skip
        ridge: float = number(
            "rho/(2 omega alpha), the weight of the anchor for this client",
            "Its own weight times the number of clients, where weights are set.", check=above(0),
        )  # fmt: skip
        n_clusters: int | None = number(
            "its number of clusters, as it has said in `hello`", "Nothing new.", kind="count",
            when="where silos have numbers of their own", check=above(0),
        )  # fmt: skip

    def asks(self, server: Scaled, settings: Settings) -> dict[str, Any]:
        """The common scale and the client's own ridge."""
        ridge = server.rho / (2 * server.omega * settings.alpha)
        return {
            cid: self.Ask(scale=server.scale, ridge=float(r), n_clusters=server.clusters.get(cid))
            for cid, r in zip(server.client_ids, ridge, strict=True)
        }

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[Prepared, Nothing]:
        """Graph, spectral start and factor of the data."""
        if ask.n_clusters is not None:  # a client that was started again does not know what its mixture found
            if not ask.n_clusters <= min(settings.n_clusters, client.X.shape[0] - 1):
                raise RefusedError(f"prepare: {ask.n_clusters} clusters are more than there can be")
            client = replace(client, k=ask.n_clusters)
        solver, k, cid = settings.solver, client.k, client.client_id
        refuse_unscaled(client, settings)
        ready = with_rows(client, settings)
        rows = ready.rows
        graph: Graph | None = getattr(client, "graph", None)
        if graph is None:
            graph = build_graph(rows.X, solver.n_neighbors, solver.bandwidth, solver.nonmutual_weight)
            if len(sizes := graph.component_sizes) > 1 and not client.on_trial:
                warnings.warn(_components_message(cid, sizes, k), UserWarning, stacklevel=2)
        # Working on X/sqrt(n) is the same as scaling F by sqrt(n): a client's size no longer decides
        # (docs/paper.md#scales).
        gamma = ask.scale / np.sqrt(rows.shape[0]) if solver.rho is None else 1.0
        rows = replace(rows, gamma=float(gamma))
        factors = RidgeFactors(rows, ask.ridge)
        begun: dict[str, Any] = {}  # what a client has that continues after a round
        if not isinstance(client, Embedded):
            F = spectral_start(graph, k, stream(settings.seed, cid, "start"))
            nothing = asarray_like(np.zeros((rows.shape[1], k)), F)
            begun = {"F": F, "W": nothing, "anchor": nothing}
        eta = solver.step_size
        if eta is None and solver.accelerate:
            eta = 1 / (largest_eigenvalue(graph, stream(settings.seed, cid, "bound")) + settings.alpha)
        found = {"scaling": ready.scaling, "rows": rows, "graph": graph, "factors": factors, "eta": eta}
        return become(client, Prepared, **found, **begun), Nothing()


def _components_message(client_id: str, sizes: Array, k: int) -> str:
    shown = ", ".join(map(str, sizes[:8])) + (", ..." if len(sizes) > 8 else "")
    effect = (
        f"Each part gets a direction of its own before any is divided: {len(sizes)} of the {k} clusters start as parts"
        if len(sizes) <= k
        else f"With more parts than clusters ({k}), only the {k} largest parts shape the embedding"
    )
    return (
        f"the neighbour graph of client {client_id!r} has {len(sizes)} unconnected parts, of {shown} rows. "
        f"{effect}. If that is not what the data mean, raise solver.n_neighbors."
    )


PREPARE = Prepare()
