"""FMTC, the graph view: the phases of a run in their order.

moments  each client sums up its columns                     only where all clients scale columns alike
rescale  columns take the common units
hello    each client counts its rows
prepare  graph, spectral start, factor of the data
meet     which clusters are the same                         only where clients lack concepts
round    W-step and F-step, then consensus and dual step     until the residuals are small (Algorithm 1)
finish   k-means in the common frame
settle   a mixture over the projections of all clients        until the likelihood hardly changes
number   clusters take the common numbers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...describe import Atlas
from ...models import GraphModel
from ...settings import Settings
from ..base import Phase, Weights
from ..method import Method
from ..outcome import server_atlas
from ..state import ClientState, ServerState, become, client_weights, noted, open_client, width
from ..units import MOMENTS, RESCALE
from .finish import FINISH, SETTLE
from .number import NUMBER
from .opening import HELLO, MEET, PREPARE, PROPOSE
from .round import ROUND
from .state import Embedded, Prepared


class GraphView(Method):
    """Federated multi-task clustering of neighbour graphs (the paper)."""

    name = "fmtc"
    opening: tuple[Phase, ...] = (MOMENTS, RESCALE, HELLO, PREPARE, MEET)
    loop: Phase = ROUND
    closing: tuple[Phase, ...] = (FINISH, SETTLE, NUMBER)
    settings_type: type = Settings
    model_types: tuple[type, ...] = (GraphModel,)
    saved: tuple[str, ...] = ("F", "W", "anchor", "T", "Z")
    changeable: tuple[str, ...] = (
        "max_iter", "tol", "n_init", "labels_from", "final", "kappa", "calibrate",
    )  # fmt: skip
    view: str | None = "graph"  # None: to be decided on the way

    def open_client(self, client_id: str, X: Any, settings: Settings, device: str) -> ClientState:
        """A client at rest, its rows checked."""
        return open_client(client_id, X, settings, device)

    def open_server(self, client_ids: Sequence[str], settings: Settings, weights: Weights) -> ServerState:
        """The server before the first message."""
        ids = tuple(sorted(client_ids))
        if weights is not None:
            client_weights(ids, weights)  # refuses those that no run can use, before anybody is asked
        return ServerState(ids, weights, view=self.view)

    def without(self, server: ServerState, absent: set[str]) -> ServerState:
        """The server without some clients, before the first round is done."""
        return server if absent.isdisjoint(server.client_ids) else server.without(absent)  # without copies

    def restored(self, client: ClientState, round_no: int, arrays: Mapping[str, Any]) -> Embedded:
        """The client as it was after a round; it has a graph if it had one."""
        kind = Prepared if isinstance(client, Prepared) else Embedded
        return become(client, kind, round_no=round_no, **arrays)

    def held(self, server: ServerState, client_ids: Iterable[str]) -> ServerState:
        """The server, which remembers whose answers were dropped."""
        return replace(server, held=noted(server.held, client_ids))

    def ended(self, server: ServerState, history: Sequence[Any]) -> ServerState:
        """The server after a run: whom it capped in less than half of the rounds, and not in the last, is not held."""
        capped = [{*one.capped, *one.odd} for one in history]
        last = set(server.aside).union(*capped[-1:])
        few = {cid for cid in server.held if 0 < sum(cid in some for some in capped) < len(capped) / 2} - last
        return replace(server, held=tuple(cid for cid in server.held if cid not in few))

    def sizes(self, client: ClientState, settings: Settings) -> dict[str, int]:
        """Columns as they came (D) and as they are computed with (d), clusters (k), concepts (K)."""
        return {"D": client.X.shape[1], "d": width(client, settings), "k": client.k, "K": settings.n_clusters}

    def known_sizes(self, client_id: str, settings: Settings) -> dict[str, int]:
        """Clusters of a client and concepts of all; clients that have numbers of their own tell them in `hello`."""
        known = {"K": settings.n_clusters}
        return known if settings.clusters_per_silo is not None else known | {"k": settings.n_clusters}

    def stop_reason(self, history: Sequence[Any], settings: Settings) -> tuple[bool, str] | None:
        """Both residuals below `tol`, or `max_iter` rounds."""
        if not history:
            return None
        last, tol = history[-1], settings.tol
        if max(last.primal_residual, last.dual_residual) < tol:
            return True, f"primal and dual residuals below tol={tol:g} after {len(history)} rounds"
        if len(history) >= settings.max_iter:
            return False, (
                f"max_iter={settings.max_iter} rounds done; residuals {last.primal_residual:.1e} (primal) and "
                f"{last.dual_residual:.1e} (dual), tol={tol:g}"
            )
        return None

    def common(self, server: Any) -> dict[str, Any]:
        """The consensus Z, d x k x m, and the pooling strength of each concept where a mixture forms the clusters."""
        return {"consensus": server.Z} | known(kappa=server.kappa, influence=server.influence)

    def atlas(self, server: ServerState, settings: Settings) -> Atlas | None:
        """The concepts by numbers of columns; of sums, those of all clients together."""
        return server_atlas(server, settings)


def known(**arrays: Any) -> dict[str, Any]:
    """Those of some arrays that there are."""
    return {name: array for name, array in arrays.items() if array is not None}


class Proposal(GraphView):
    """How many concepts there are, where clients know their own clusters only; no rounds, and no models."""

    name = "fmtc-proposal"
    opening = (MOMENTS, RESCALE, HELLO, PREPARE, PROPOSE)
    closing = ()
    loops: tuple[Phase, ...] = ()

    def common(self, server: Any) -> dict[str, Any]:
        """Nothing: there are no rounds."""
        return {}


METHOD, PROPOSAL = GraphView(), Proposal()
