"""How a run of the graph view begins: phases `hello`, `prepare` and `meet`.

hello    each client counts its rows and columns; the server agrees on scale and weights
prepare  each client makes its graph, its spectral start and the factor of its data, once per run
meet     which clusters of which clients are the same, before the rounds, where clients may lack concepts
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import RefusedError
from ...kernels.alignment import match_concepts, nearest_orthogonal, numbers_of, propose_concepts
from ...kernels.centers import row_norms, unit_centers
from ...kernels.embedding import largest_eigenvalue, spectral_start
from ...kernels.graph import Graph, build_graph
from ...kernels.lift import RIDGE
from ...kernels.projection import RidgeFactors
from ...linalg.arrays import asarray_like, to_numpy
from ...mixture.bounds import far_sizes
from ...mixture.steps import kept_rows
from ...models import GraphModel
from ...privacy.protection import Protection
from ...privacy.rules import Centres
from ...settings import Settings
from ..base import Answers, Array, Content, Nothing, Phase, above, array, number
from ..mixture.state import Counted, MixtureServer
from ..state import (
    ClientState,
    Ready,
    ServerState,
    become,
    client_weights,
    refuse_flat,
    set_aside,
    shared_width,
    stream,
    with_rows,
)
from .finish import by_size, not_of_unit_length
from .round import ROUND, one_pass
from .state import Clustered, Embedded, GraphServer, Prepared, Proposed, Scaled, prepared

# ---------------------------------------------------------------------------------------------------------------- hello


class Hello(Phase):
    """Who is there: sizes and the scale of the data."""

    name = "hello"
    doing = "describing its data"
    protect = Protection("Counts and one sum over all rows.")
    parallel = False

    class Answer(Content):
        """Sizes of one client."""

        n_samples: int = number("number of rows", "Exactly that.", kind="count")
        n_features: int = number("number of columns", "Exactly that.", kind="count")
        sum_of_squares: float = number(
            "sum of squared entries of the rows, after centring where rows are centred; 0 where all rows are equal",
            "The total variance; for rows of 0 and 1 without centring, the number of ones. Two runs that differ by one "
            "row give that row's share by subtraction.", check=above(-1e-300),
        )  # fmt: skip
        n_clusters: int | None = number(
            "number of clusters", "How many of the clusters of all silos it has.", kind="count",
            when="where silos have numbers of their own", check=above(0),
        )  # fmt: skip

    def reply(self, client: ClientState, ask: Nothing, settings: Settings, round_no: int) -> tuple[Ready, Answer]:
        """Count."""
        ready = with_rows(with_own_number(client, settings), settings)
        n, d = ready.rows.shape
        k = None if settings.clusters_per_silo is None else ready.k
        return ready, self.Answer(n_samples=n, n_features=d, sum_of_squares=energy(ready), n_clusters=k)

    def impossible(self, server: ServerState, client_id: str, answer: Any, settings: Settings) -> str | None:
        """No rows, or more clusters than there are concepts."""
        if (answer.n_clusters or 0) > settings.n_clusters:
            return f"asks for {answer.n_clusters} clusters, and all silos together have {settings.n_clusters}"
        return "is of no rows" if answer.n_samples < 1 else None

    def reduce(self, server: ServerState, answers: Answers, settings: Settings) -> GraphServer:
        """Agree on features, scale and weights; Z = Y = 0 (Algorithm 1, initialisation)."""
        ids = tuple(sorted(answers))
        d, K, m = shared_width({cid: answers[cid].n_features for cid in ids}), settings.n_clusters, len(ids)
        refuse_flat([cid for cid in ids if answers[cid].sum_of_squares == 0])
        omega = client_weights(ids, server.weights)
        said = list(ids)
        if settings.contains:
            sizes = np.array([answers[cid].sum_of_squares / answers[cid].n_samples for cid in ids])
            server, said = set_aside(server, ids, far_sizes(sizes))
        rows = sum(answers[cid].n_samples for cid in said)
        scale = float(np.sqrt(rows / sum(answers[cid].sum_of_squares for cid in said)))
        rho, beta = (rho_of(server, settings, m), None) if settings.rho is None else (settings.rho, settings.beta)
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
    if settings.clusters_per_silo is None or client.k < settings.n_clusters or not isinstance(client, Counted):
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
    return 2 * settings.alpha * (RIDGE if server.lifted else settings.ridge) / m


HELLO = Hello()


# -------------------------------------------------------------------------------------------------------------- prepare


class Prepare(Phase):
    """The common scale, and each client's own ridge."""

    name = "prepare"
    doing = "preparing its graph"
    persists = True
    rebuilds = True
    threads = True

    class Ask(Content):
        """Units of the run."""

        scale: float = number(
            "common factor that gives the rows mean squared norm 1",
            "The mean squared norm of all rows; with two silos, one equation about the other's `n_samples` and "
            "`sum_of_squares`.", check=above(0),
        )  # fmt: skip
        ridge: float = number(
            "rho/(2 omega alpha), the weight of the anchor for this silo",
            "Its own weight times the number of silos, where weights are set.", check=above(0),
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
        k, cid = client.k, client.client_id
        ready = with_rows(client, settings)
        rows = ready.rows
        graph: Graph | None = getattr(client, "graph", None)
        if graph is None:
            graph = build_graph(rows.X, settings.n_neighbors, settings.bandwidth, settings.nonmutual_weight)
            if len(sizes := graph.component_sizes) > 1 and not client.on_trial:
                warnings.warn(_components_message(cid, sizes, k), UserWarning, stacklevel=2)
        # Working on X/sqrt(n) is the same as scaling F by sqrt(n): a client's size no longer decides
        # (docs/paper.md#scales).
        gamma = ask.scale / np.sqrt(rows.shape[0]) if settings.rho is None else 1.0
        rows = replace(rows, gamma=float(gamma))
        factors = RidgeFactors(rows, ask.ridge)
        begun: dict[str, Any] = {}  # what a client has that continues after a round
        if not isinstance(client, Embedded):
            F = spectral_start(graph, k, stream(settings.seed, cid, "start"))
            nothing = asarray_like(np.zeros((rows.shape[1], k)), F)
            begun = {"F": F, "W": nothing, "anchor": nothing}
        eta = settings.step_size
        if eta is None and settings.accelerate:
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
        f"the neighbour graph of silo {client_id!r} has {len(sizes)} unconnected parts, of {shown} rows. "
        f"{effect}. If that is not what the data mean, raise n_neighbors."
    )


PREPARE = Prepare()


# ----------------------------------------------------------------------------------------------------------------- meet


PASSES = 3  # over projection and embedding, before clusters are compared


class Meet(Phase):
    """Clusters of each client alone."""

    name = "meet"
    doing = "finding clusters to compare"
    protect = Centres("No centre is one row; the policy says what becomes of small clusters.")
    persists = True

    class Answer(Content):
        """Projection and centres of one client."""

        W: Array = array("d k", "the projection, learnt alone", "As `W` in `round`.")
        centers: Array = array(
            "k k", "cluster centres among normalised projections, largest cluster first", "As `centers` in `finish`."
        )

    def times(self, server: GraphServer, settings: Settings) -> int:
        """Once, where a client has fewer clusters than there are concepts."""
        return int(any(k < settings.n_clusters for k in server.clusters.values()))

    def reply(self, client: Any, ask: Nothing, settings: Settings, round_no: int) -> tuple[Clustered, Answer]:
        """A few passes without an anchor, then k-means on the normalised rows of X W."""
        client = prepared(client)
        nothing = np.zeros((client.rows.shape[1], client.k))
        for done in range(PASSES):
            client, _, _ = one_pass(client, nothing, settings, done + 1)
        E = client.rows @ client.W
        E = E / row_norms(E)
        seed = int(stream(settings.seed, client.client_id, "meet").integers(2**31))
        found = unit_centers(E, client.k, settings.n_init, seed)
        W = np.ascontiguousarray(to_numpy(client.W))
        own = by_size(E, GraphModel(W, to_numpy(found), 0.0, None), (E @ found.T).argmax(axis=1), W)
        return become(client, Clustered, own=own), self.Answer(W=W, centers=own.model.centers)

    def impossible(self, server: Any, client_id: str, answer: Any, settings: Settings) -> str | None:
        """Another number of clusters than before, or centres that are not of length 1."""
        return not_of_unit_length(answer) or ROUND.impossible(server, client_id, answer, settings)

    def reduce(self, server: GraphServer, answers: Answers, settings: Settings) -> GraphServer:
        """Match clusters to concepts; the axes of each client become those of its concepts."""
        ids = [cid for cid in server.client_ids if cid in answers]
        signatures = [answers[cid].centers @ answers[cid].W.T for cid in ids]
        orders = match_concepts(signatures, settings.n_clusters, settings.seed)
        has, rotations = np.zeros((settings.n_clusters, len(server.client_ids)), bool), {}
        for cid, order in zip(ids, orders, strict=True):
            has[:, server.client_ids.index(cid)] = order >= 0
            axes = nearest_orthogonal(np.asarray(answers[cid].centers, dtype=np.float64).T)
            columns = np.argsort(numbers_of(order))  # in the order of concepts
            rotations[cid] = np.ascontiguousarray(axes[:, columns])
        return replace(server, has=has, rotations=rotations)


class Propose(Meet):
    """How many concepts there may be, from the clusters of each client alone."""

    def times(self, server: GraphServer, settings: Settings) -> int:
        """Once."""
        return 1

    def reduce(self, server: GraphServer, answers: Answers, settings: Settings) -> Proposed:
        """Count groups of clusters that are alike."""
        found = propose_concepts([answer.centers @ answer.W.T for _, answer in sorted(answers.items())])
        return become(server, Proposed, proposed=max(found, *server.clusters.values()))


MEET, PROPOSE = Meet(), Propose()
