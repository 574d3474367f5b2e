"""FedSpectral+ for clients with rows of their own: one spectral embedding over common anchors."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fmtc.linalg.threads import one_thread
from fmtc.privacy.protection import Protection
from fmtc.protocol.base import REPEATS, Content, Nothing, Phase, above, array
from fmtc.protocol.state import RoundReport, stream
from fmtc.runtime.driver import RoundRecord

from .anchors import AGREE_ON_ANCHORS, AnchorClient, Anchors, AnchorServer, AnchorSettings
from .base import (
    Array,
    Baseline,
    Data,
    FederatedMethod,
    LoopPhase,
    check_number,
    check_whole,
    count,
    in_order,
    no_more_than,
    required,
    run_locally,
    seed_of,
    unit_rows,
)
from .fed_kmeans import SERVER, FedKMeansSettings, NumberedCenters, first_centers, merge, shareable

EPS = 1e-8  # eigenvalues below are zero


# ------------------------------------------------------------------------------------------------ the power iteration


@dataclass(frozen=True)
class Subspace:
    """Leading eigenvectors of a positive semi-definite matrix that is known by its products alone, on the way."""

    V: Array  # n x e, orthonormal: to be multiplied next
    Q: Array | None = None  # the one before
    Y: Array | None = None  # the matrix times Q

    @classmethod
    def start(cls, n: int, e: int, seed: int) -> Subspace:
        """Random orthonormal columns."""
        with one_thread("blas"):
            return cls(np.linalg.qr(stream(seed, SERVER, "start").normal(size=(n, e))).Q)

    def step(self, Y: Array, largest: float) -> tuple[Subspace, RoundReport]:
        """The next subspace, given the matrix times V.

        The report has ``Tr(Qᵀ(largest I - M)Q)`` as objective, where M is the matrix and `largest` bounds its
        eigenvalues, and ``||V Vᵀ - Q Qᵀ||``, how far the subspace has moved, as primal residual.
        """
        Q, V = self.V, np.linalg.qr(Y).Q
        moved = float(np.sqrt(2) * np.linalg.norm(V - Q @ (Q.T @ V)))
        objective = largest * Q.shape[1] - float(np.sum(Q * Y))
        return Subspace(V, Q, Y), RoundReport(objective=objective, primal_residual=moved)

    def eigenvectors(self) -> tuple[Array, Array]:
        """Approximate eigenvectors and eigenvalues, largest first, by a Rayleigh-Ritz step; (n, e), (e,)."""
        Q, Y = required(self, "Q", "Y")
        with one_thread("blas"):
            H = Q.T @ Y
            values, R = np.linalg.eigh((H + H.T) / 2)
            return Q @ R[:, ::-1], values[::-1]


def root_inverse(x: Array) -> Array:
    """1/sqrt(x), 0 where x is 0."""
    return np.divide(1, np.sqrt(x), out=np.zeros_like(x), where=x > 0)


# ------------------------------------------------------------------------------------------------- FedSpectral+: states


@dataclass(frozen=True)
class FedSpectralSettings(AnchorSettings):
    """What decides a run of `FedSpectral` besides the data; the names are those of its parameters."""

    anchors_per_cluster: ClassVar[int] = 50

    max_iter: int = 500
    tol: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(max_iter=self.max_iter)
        check_number(tol=self.tol)

    @property
    def kmeans(self) -> FedKMeansSettings:
        """Settings of the federated k-means that labels the rows."""
        return FedKMeansSettings(self.n_clusters, self.seed, local_iters=10, n_init=self.n_init)


@dataclass(frozen=True)
class AnchorSpectralModel:
    """Rows to weights of anchors, to the embedding, to the nearest centre there."""

    anchors: Anchors
    map: Array  # a x e
    clusters: NumberedCenters

    def embed(self, X: Any) -> Array:
        """Rows of the common spectral embedding, of length 1; (n, d) -> (n, e)."""
        return unit_rows(self.anchors.weights(X) @ self.map)

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        return self.clusters.assign(self.embed(X))


@dataclass(frozen=True)
class SpectralClient(AnchorClient):
    """One client of `FedSpectral` between messages."""

    map: Array | None = None  # a x e
    U: Array | None = None  # n x e, rows of the embedding, of length 1


@dataclass(frozen=True)
class SpectralServer(AnchorServer):
    """The server of `FedSpectral` between messages."""

    scale: Array | None = None  # a, one over the root of the weight that each anchor has
    subspace: Subspace | None = None
    means: Array | None = None  # at most k x e, common centres in the embedding
    merges: int = 0  # times these were merged
    moved: float = 0.0  # how far they moved in the last


# ------------------------------------------------------------------------------------------------- FedSpectral+: phases


class Mass(Phase):
    """How much weight of its rows each anchor has; the server starts the power iteration."""

    name = "mass"
    protect = Protection("Sums over all rows.")
    doing = "summing the weights of the anchors"

    class Answer(Content):
        """Sums of one client."""

        mass: Array = array(
            "a", "sum over rows of the weight of each anchor",
            "Roughly how many of the client's rows lie near each anchor; they add up to the number of rows.",
            check=above(-1e-300),
        )  # fmt: skip

    def reply(
        self, client: SpectralClient, ask: Nothing, settings: FedSpectralSettings, round_no: int
    ) -> tuple[SpectralClient, Answer]:
        """Column sums of B."""
        (B,) = required(client, "B")
        return client, self.Answer(mass=B.sum(axis=0))

    def reduce(
        self, server: SpectralServer, answers: MutableMapping[str, Answer], settings: FedSpectralSettings
    ) -> SpectralServer:
        """The scale of each anchor, and where the power iteration starts."""
        mass: Array = sum(answer.mass for answer in in_order(server, answers))
        subspace = Subspace.start(len(mass), min(settings.n_clusters, len(mass)), settings.seed)
        return replace(server, scale=root_inverse(mass), subspace=subspace)


class Round(LoopPhase):
    """One step of the power iteration on the anchors' side. A client that does not answer is left out of the step."""

    name = "round"
    protect = Protection("A product of sums over all rows.", few_rows=True)
    doing = "in a round"

    class Ask(Content):
        """Basis of the subspace."""

        basis: Array = array(
            "a e", "diag(lam)^-1/2 V, the basis of the subspace so far", "How the anchors of all clients group."
        )

    class Answer(Content):
        """Product of one client."""

        product: Array = array(
            "a e", "BᵀB times the basis, B the weights that tie rows to anchors",
            "How strongly the client's rows link each group of anchors to each anchor. A few rounds with different "
            "bases tell all of BᵀB: how many rows lie between any two anchors.",
        )  # fmt: skip

    def asks(self, server: SpectralServer, settings: FedSpectralSettings) -> dict[str, Any]:
        """The same basis for everyone."""
        scale, subspace = required(server, "scale", "subspace")
        return dict.fromkeys(server.client_ids, self.Ask(basis=np.ascontiguousarray(scale[:, None] * subspace.V)))

    def reply(
        self, client: SpectralClient, ask: Ask, settings: FedSpectralSettings, round_no: int
    ) -> tuple[SpectralClient, Answer]:
        """Two sparse products."""
        (B,) = required(client, "B")
        return replace(client, round_no=round_no), self.Answer(product=B.T @ (B @ ask.basis))

    def reduce(
        self, server: SpectralServer, answers: MutableMapping[str, Answer], settings: FedSpectralSettings
    ) -> tuple[SpectralServer, RoundReport]:
        """The next subspace."""
        scale, subspace = required(server, "scale", "subspace")
        product: Array = sum(answer.product for answer in in_order(server, answers))
        subspace, report = subspace.step(scale[:, None] * product, 1.0)
        return replace(server, subspace=subspace, round_no=server.round_no + 1), report


class Embed(Phase):
    """The map from weights of anchors to the embedding, to all clients."""

    name = "embed"
    doing = "embedding its rows"

    class Ask(Content):
        """The map."""

        basis: Array = array(
            "a e", "map from weights of anchors to the embedding", "How the anchors of all clients group."
        )

    def asks(self, server: SpectralServer, settings: FedSpectralSettings) -> dict[str, Any]:
        """The same map for everyone."""
        scale, subspace = required(server, "scale", "subspace")
        vectors, values = subspace.eigenvectors()
        inverse = root_inverse(np.where(values > EPS, values, 0))
        basis = np.ascontiguousarray(scale[:, None] * vectors * inverse)
        return dict.fromkeys(server.client_ids, self.Ask(basis=basis))

    def reply(
        self, client: SpectralClient, ask: Ask, settings: FedSpectralSettings, round_no: int
    ) -> tuple[SpectralClient, Nothing]:
        """Its rows of the embedding, normalised."""
        (B,) = required(client, "B")
        return replace(client, map=ask.basis, U=unit_rows(B @ ask.basis)), Nothing()


class MeansAnswer(Content):
    """Centres of one client in the embedding."""

    centers: Array = array(
        "g e", "means of at least two rows of the client's embedding each", "Where the client's groups of rows lie in "
        "the embedding; rows that are the mean of few tell roughly which anchors they are near.",
        check=no_more_than("k"),
    )  # fmt: skip
    counts: Array = array(
        "g", "number of rows that each centre is the mean of", "The sizes of the client's groups, exactly.",
        kind="int", check=above(1),
    )  # fmt: skip


class MeansAsk(Content):
    """Common centres in the embedding."""

    centers: Array = array(
        "c e", "common centres in the embedding, at most k", "Where the groups of all clients together lie.",
        check=no_more_than("k"),
    )  # fmt: skip


def _ask_all(server: SpectralServer) -> dict[str, Any]:
    """The same centres for everyone."""
    (means,) = required(server, "means")
    return dict.fromkeys(server.client_ids, MeansAsk(centers=means))


class _Means(Phase):
    """Centres of all clients in the embedding, merged by the server."""

    protect = Protection("Means of at least `min_count` rows each.")
    Answer = MeansAnswer

    def reduce(
        self, server: SpectralServer, answers: MutableMapping[str, MeansAnswer], settings: FedSpectralSettings
    ) -> SpectralServer:
        """The next common centres."""
        merged = merge(in_order(server, answers), server.means, server.merges, settings.kmeans)
        return replace(server, means=merged.centers, merges=server.merges + 1, moved=merged.moved)


class StartMeans(_Means):
    """Each client's first centres in the embedding, by k-means++ on its own rows."""

    name = "start"
    doing = "finding its first centres"

    def reply(
        self, client: SpectralClient, ask: Nothing, settings: FedSpectralSettings, round_no: int
    ) -> tuple[SpectralClient, MeansAnswer]:
        """Centres of its own, a few steps from those of k-means++."""
        (U,), rules = required(client, "U"), settings.kmeans
        C = first_centers(U, rules.n_clusters, seed_of(rules.seed, client.client_id, "start"))
        return client, MeansAnswer(**shareable(U, C, rules.local_iters, rules.min_count))


class StepMeans(_Means):
    """Lloyd's algorithm at the clients from the common centres; the server clusters the centres they send."""

    name = "lloyd"
    doing = "moving its centres"
    Ask = MeansAsk

    def times(self, server: SpectralServer, settings: FedSpectralSettings) -> int:
        """Until the centres settle."""
        steps = server.merges - 1  # so far
        return steps if steps and server.moved < settings.kmeans.tol else settings.kmeans.n_rounds

    def limit(self, settings: FedSpectralSettings) -> int:
        """As often as a run needs, should its end be repeated."""
        return REPEATS * settings.kmeans.n_rounds

    def asks(self, server: SpectralServer, settings: FedSpectralSettings) -> dict[str, Any]:
        """The common centres so far."""
        return _ask_all(server)

    def reply(
        self, client: SpectralClient, ask: MeansAsk, settings: FedSpectralSettings, round_no: int
    ) -> tuple[SpectralClient, MeansAnswer]:
        """Centres of its own, a few steps from the common ones."""
        (U,), rules = required(client, "U"), settings.kmeans
        return client, MeansAnswer(**shareable(U, ask.centers, rules.local_iters, rules.min_count))


class Finish(Phase):
    """Rows take the nearest centre."""

    name = "finish"
    doing = "assigning its rows"
    Ask = MeansAsk

    def asks(self, server: SpectralServer, settings: FedSpectralSettings) -> dict[str, Any]:
        """The common centres so far."""
        return _ask_all(server)

    def reply(
        self, client: SpectralClient, ask: MeansAsk, settings: FedSpectralSettings, round_no: int
    ) -> tuple[SpectralClient, Nothing]:
        """Labels by the common centres."""
        U, anchors, basis = required(client, "U", "anchors", "map")
        clusters = NumberedCenters(ask.centers, np.arange(len(ask.centers)))
        model = AnchorSpectralModel(anchors, basis, clusters)
        return replace(client, model=model, labels=clusters.assign(U)), Nothing()


class FederatedSpectral(FederatedMethod):
    """FedSpectral+ over common anchors: the phases of a run.

    centers    each client's centres; the server makes anchors of them
    distances  how far rows are from the anchors; the server sets the width of the weights
    weights    each client ties its rows to the anchors
    mass       how much weight each anchor has
    round      one step of a power iteration on the anchors' side               until the subspace settles
    embed      each client's rows of the common embedding
    start      first centres in the embedding; the server merges them
    lloyd      centres after some steps from the common ones; the server merges them    until the centres settle
    finish     rows take the nearest centre
    """

    name = "fed-spectral-plus"
    opening = (*AGREE_ON_ANCHORS, Mass())
    loop = Round()
    closing = (Embed(), StartMeans(), StepMeans(), Finish())
    settings_type, model_types = FedSpectralSettings, (AnchorSpectralModel,)
    client_type, server_type = SpectralClient, SpectralServer
    changeable = ("max_iter", "tol", "n_init")

    def sizes(self, client: SpectralClient, settings: FedSpectralSettings) -> dict[str, int]:
        """Features (d) and clusters (k); once they are known, anchors (a) and columns of the embedding (e)."""
        known = super().sizes(client, settings)
        if client.anchors is not None:
            a = client.anchors.points.shape[0]
            known |= {"a": a, "e": min(settings.n_clusters, a)}
        return known

    def converged(self, history: Sequence[RoundRecord], settings: FedSpectralSettings) -> str | None:
        """The subspace has moved by less than `tol`."""
        if not history[-1].primal_residual < settings.tol:
            return None
        return f"the subspace moved by less than tol={settings.tol:g} in round {history[-1].round_no}"

    def common(self, server: SpectralServer) -> dict[str, Array]:
        """The anchors, a x d, and the centres in the embedding, at most k x e."""
        anchors, means = required(server, "anchors", "means")
        return {"anchors": anchors, "centers": means}


METHOD = FederatedSpectral()


@dataclass(repr=False, eq=False, kw_only=True)
class FedSpectral(Baseline):
    """FedSpectral+ (Thakkar and Joshi 2023) for clients with rows of their own: one spectral embedding over anchors.

    Row-stochastic weights B_t tie the rows of client t to the nearest of a common anchors. The graph
    ``S = B diag(lam)^-1 Bᵀ`` over the rows of all clients, with ``lam = sum_t B_tᵀ1``, has unit degrees; its leading
    eigenvectors come from a power iteration on the anchors' side, ``V <- qr(sum_t diag(lam)^-1/2 B_tᵀB_t
    diag(lam)^-1/2 V)``. Each client keeps its rows of the embedding ``B_t diag(lam)^-1/2 V diag(w)^-1/2``, normalised,
    and federated k-means labels them. New rows are labelled in the same way.

    Provenance: in spirit. The published method has one set of nodes and spreads its edges over clients (there
    is no public code). Clients with different rows share no node, so the
    anchors, which join their graphs, are ours.

    Parameters
    ----------
    n_clusters : int
    n_anchors : int or "auto"
        Largest number of anchors; ``"auto"`` is 50 for each cluster. They are made of the centres that clients send:
        from each client at most half as many as it has rows, each the mean of at least two.
    n_nearest : int
        Anchors that a row is tied to.
    bandwidth_scale : float
        Width of the weights as a multiple of the mean distance to those anchors, over all clients.
    max_iter : int
        Largest number of steps of the power iteration.
    tol : float
        Stop when the subspace moves by less.
    n_init : int
        Restarts of the server's k-means.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    anchors_ : ndarray of shape (n_anchors, n_features)
    eigenvalues_ : ndarray of shape (n_clusters,)
        Of the common graph S, largest first; the first is 1.
    n_iter_ : int
        Steps of the power iteration.
    history_ : list of float
        How far the subspace moved in each step.
    bytes_up_, bytes_down_, n_rounds_ : int
        What was sent, and in how many exchanges.

    Examples
    --------
    >>> from fmtc_bench.baselines import FedSpectral
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> model = FedSpectral(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    >>> float(model.eigenvalues_[0].round(6))
    1.0
    """

    n_anchors: int | str = "auto"
    n_nearest: int = 5
    bandwidth_scale: float = 1.0
    max_iter: int = 500
    tol: float = 1e-6
    n_init: int = 10

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, AnchorSpectralModel], Mapping[str, Array]]:
        result, transport = run_locally(METHOD, FedSpectralSettings.of(self, seed), data)
        self.anchors_ = result.server.anchors
        _, self.eigenvalues_ = result.server.subspace.eigenvectors()
        self.history_ = [record.primal_residual for record in result.history]
        self.n_iter_ = len(self.history_)
        count(self, transport)
        return transport.outcome()
