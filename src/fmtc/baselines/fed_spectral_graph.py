"""FedSpectral+ as published: one set of nodes, the edges spread over clients."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state

from ..linalg.threads import one_thread
from ..privacy.rules import Protection
from ..protocol.base import Nothing, Phase, above, array, required
from ..runtime.driver import RoundRecord
from ..server import RoundReport
from .base import (
    Array,
    FederatedMethod,
    LoopPhase,
    MethodSettings,
    check_number,
    check_whole,
    count,
    in_order,
    kmeans,
    run_locally,
    same_samples,
    seed_of,
    unit_rows,
)
from .fed_kmeans import SERVER
from .fed_spectral import Subspace, root_inverse, subspace_settled


@dataclass(frozen=True)
class SpectralGraphSettings(MethodSettings):
    """What decides a run of `FedSpectralGraph` besides the data; the names are those of its parameters."""

    max_iter: int = 500
    tol: float = 1e-6
    n_init: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(max_iter=self.max_iter, n_init=self.n_init)
        check_number(tol=self.tol)


@dataclass(frozen=True)
class EdgesClient:
    """One client that holds some edges."""

    client_id: str
    X: Any  # n x n, weights
    round_no: int = 0
    model: None = None


@dataclass(frozen=True)
class NodesServer:
    """The server of `FedSpectralGraph` between messages."""

    client_ids: tuple[str, ...]
    round_no: int = 0
    scale: Array | None = None  # n, one over the root of the degree of each node
    subspace: Subspace | None = None


class Degree(Phase):
    """The degree of each node, from the edges of all clients."""

    name = "degree"
    protect = Protection("A method to compare with: edges are not protected.")
    doing = "summing its edges"

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Sums of one client."""

        degree: Array = array(
            "n", "sum of the weights of the client's edges at each node", "Which nodes the client has edges at.",
            check=above(-1e-300),
        )  # fmt: skip

    def reply(
        self, client: EdgesClient, ask: Nothing, settings: SpectralGraphSettings, round_no: int
    ) -> tuple[EdgesClient, Answer]:
        """Row sums."""
        return client, self.Answer(degree=client.X.sum(axis=1))

    def reduce(
        self, server: NodesServer, answers: MutableMapping[str, Answer], settings: SpectralGraphSettings
    ) -> NodesServer:
        """The scale of each node, and where the power iteration starts."""
        degree: Array = sum(answer.degree for answer in in_order(server, answers))
        subspace = Subspace.start(len(degree), settings.n_clusters, settings.seed)
        return replace(server, scale=root_inverse(degree), subspace=subspace)


class EdgesRound(LoopPhase):
    """One step of the power iteration. A client that does not answer is left out of the step."""

    name = "round"
    protect = Protection("A method to compare with: edges are not protected.", few_rows=True)
    doing = "in a round"

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Basis of the subspace."""

        basis: Array = array("n k", "D^-1/2 Q, the basis of the subspace so far", "How the nodes group.")

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Product of one client."""

        product: Array = array(
            "n k", "the client's weights times the basis",
            "For each node, sums over its neighbours: the edges of a node that has few, in enough rounds all edges.",
        )  # fmt: skip

    def asks(self, server: NodesServer, settings: SpectralGraphSettings) -> dict[str, Any]:
        """The same basis for everyone."""
        scale, subspace = required(server, "scale", "subspace")
        return dict.fromkeys(server.client_ids, self.Ask(basis=np.ascontiguousarray(scale[:, None] * subspace.V)))

    def reply(
        self, client: EdgesClient, ask: Ask, settings: SpectralGraphSettings, round_no: int
    ) -> tuple[EdgesClient, Answer]:
        """One sparse product."""
        return replace(client, round_no=round_no), self.Answer(product=client.X @ ask.basis)

    def reduce(
        self, server: NodesServer, answers: MutableMapping[str, Answer], settings: SpectralGraphSettings
    ) -> tuple[NodesServer, RoundReport]:
        """The next subspace of S + I."""
        scale, subspace = required(server, "scale", "subspace")
        product: Array = sum(answer.product for answer in in_order(server, answers))
        subspace, report = subspace.step(subspace.V + scale[:, None] * product, 2.0)
        return replace(server, subspace=subspace, round_no=server.round_no + 1), report


class FederatedEdges(FederatedMethod):
    """FedSpectral+ as published: the phases of a run. The server clusters the nodes when it has ended.

    degree  the degree of each node
    round   one step of a power iteration         until the subspace settles
    """

    name = "fed-spectral-graph"
    opening = (Degree(),)
    loop = EdgesRound()
    settings_type = SpectralGraphSettings
    client_type, server_type = EdgesClient, NodesServer
    changeable = ("max_iter", "tol", "n_init")

    def sizes(self, client: EdgesClient, settings: SpectralGraphSettings) -> dict[str, int]:
        """Nodes (n) and clusters (k)."""
        return {"n": client.X.shape[0], "k": settings.n_clusters}

    def converged(self, history: Sequence[RoundRecord], settings: SpectralGraphSettings) -> str | None:
        """The subspace has moved by less than `tol`."""
        return subspace_settled(history, settings)


METHOD = FederatedEdges()


class FedSpectralGraph(ClusterMixin, BaseEstimator):
    """FedSpectral+ (Thakkar and Joshi 2023) as published: one set of nodes, the edges spread over clients.

    The leading eigenvectors of ``S + I``, ``S = D^-1/2 (sum_t A_t) D^-1/2``, by a power iteration to which client t
    contributes products with its own weights A_t alone; then k-means on the normalised rows at the server. What
    clients send has a row for each node. There are no features, so there is no `predict`.

    Clients whose nodes are disjoint share no edge: with as many clusters as clients, the clusters are the clients.

    Provenance: from the abstract, without public code; the shift by I, which makes the leading eigenvalues the largest
    and not those of largest size, and the final Rayleigh-Ritz step are ours.

    Parameters
    ----------
    n_clusters : int
    max_iter : int
    tol : float
        Stop when the subspace moves by less.
    n_init : int
        Restarts of k-means.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    labels_ : ndarray of shape (n_nodes,)
    embedding_ : ndarray of shape (n_nodes, n_clusters)
    eigenvalues_ : ndarray of shape (n_clusters,)
        Of S, largest first.
    n_iter_ : int
    history_ : list of float
        How far the subspace moved in each step.
    bytes_up_, bytes_down_, n_rounds_ : int
        What was sent, and in how many exchanges.

    Examples
    --------
    Two pairs of nodes; each client knows one edge.

    >>> import numpy as np
    >>> from fmtc.baselines import FedSpectralGraph
    >>> one, two = np.zeros((4, 4)), np.zeros((4, 4))
    >>> one[0, 1] = one[1, 0] = two[2, 3] = two[3, 2] = 1
    >>> labels = FedSpectralGraph(2, random_state=0).fit_predict({"one": one, "two": two})
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        max_iter: int = 500,
        tol: float = 1e-6,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, affinities: Mapping[Any, Any], y: Any = None) -> Self:
        """Cluster the nodes.

        Parameters
        ----------
        affinities : mapping of client to array or sparse array of shape (n_nodes, n_nodes)
            Symmetric weights of the edges that a client knows, none below 0.
        y : ignored

        Returns
        -------
        self
        """
        SpectralGraphSettings.of(self, 0)  # wrong parameters are named before wrong data
        data = same_samples(affinities, "affinities")
        for cid, A in data.items():
            if A.shape[0] != A.shape[1] or A.min() < 0 or abs(A - A.T).max() > 1e-10 * abs(A).max():
                raise ValueError(f"client {cid!r} must hold a symmetric square array of weights, none below 0")
        n, k = next(iter(data.values())).shape[0], self.n_clusters
        if n < k:
            raise ValueError(f"n_clusters={k} needs as many nodes, got {n}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with one_thread("blas"), one_thread("openmp"):
            result, transport = run_locally(METHOD, SpectralGraphSettings.of(self, seed), data)
            self.embedding_, values = result.server.subspace.eigenvectors()
            seed = seed_of(seed, SERVER, "kmeans")
            _, self.labels_ = kmeans(unit_rows(self.embedding_), k, seed, n_init=self.n_init)
        self.eigenvalues_ = values - 1
        self.history_ = [record.primal_residual for record in result.history]
        self.n_iter_ = len(self.history_)
        count(self, transport)
        return self
