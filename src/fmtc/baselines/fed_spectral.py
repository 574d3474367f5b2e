"""FedSpectral+: over common anchors for clients with rows of their own, and as published over one set of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array, check_random_state

from ..client import stream
from ..clients import is_mapping
from ..linalg.threads import one_thread
from ..runtime.local import LocalTransport
from .base import (
    Array,
    Baseline,
    Data,
    Talk,
    check_count_or_auto,
    check_number,
    check_positive,
    check_whole,
    kmeans,
    note,
    seed_of,
    unit_rows,
    unknown,
)
from .fed_kmeans import (
    MIN_COUNT,
    SERVER,
    CentersClient,
    CentersDown,
    CentersRules,
    NumberedCenters,
    centers_reply,
    federated_kmeans,
    first_centers,
    lloyd,
    merge_centers,
    pooled,
)

EPS = 1e-8  # eigenvalues below are zero
ANCHOR_ITERATIONS = 50  # Lloyd steps for the centres that anchors are made of


# ------------------------------------------------------------------------------------------------------ anchors


@dataclass(frozen=True)
class AnchorUp:
    """Everything a client says while anchors are agreed on."""

    centers: Array | None = None  # centers: at most n_centers x d, means of at least two rows each
    counts: Array | None = None  # centers: how many rows
    distance: float | None = None  # distances: sum over rows of the distances to the nearest anchors
    n_distances: int | None = None  # distances: how many were summed


@dataclass(frozen=True)
class AnchorDown:
    """Everything the server says while anchors are agreed on."""

    phase: str  # centers, distances, weights
    n_centers: int | None = None  # centers: how many are wanted at most
    anchors: Array | None = None  # distances: a x d
    width: float | None = None  # weights: of the Gaussian, one for all


@dataclass(frozen=True)
class Anchors:
    """Anchors and how rows are tied to them."""

    points: Any  # a x d
    n_nearest: int
    width: float

    def nearest(self, X: Any) -> tuple[Array, Array]:
        """Distances to the nearest anchors and their numbers; (n, r) each."""
        r = min(self.n_nearest, self.points.shape[0])
        return NearestNeighbors(n_neighbors=r, algorithm="brute").fit(self.points).kneighbors(X)

    def weights(self, X: Any, near: tuple[Array, Array] | None = None) -> sp.csr_array:
        """Gaussian weights of the nearest anchors, rows sum to 1; (n, d) -> (n, a)."""
        distance, neighbor = self.nearest(X) if near is None else near
        n, r = distance.shape
        far = np.square(distance / self.width)
        weight = np.exp(-0.5 * (far - far[:, :1]))  # relative to the nearest: a far row keeps its weights
        weight /= weight.sum(axis=1, keepdims=True)
        shape = (n, self.points.shape[0])
        return sp.csr_array((weight.ravel(), neighbor.ravel(), np.arange(0, n * r + 1, r)), shape=shape)


@dataclass(frozen=True)
class AnchorClient:
    """One client that ties its rows to anchors."""

    client_id: str
    X: Any  # n x d
    anchors: Anchors | None = None
    near: tuple[Array, Array] | None = None  # distances and numbers of the nearest anchors, n x r
    B: sp.csr_array | None = None  # n x a, rows sum to 1


def anchor_reply(client: Any, message: AnchorDown, rules: Any) -> tuple[Any, AnchorUp]:
    """Answer of a client while anchors are agreed on."""
    if message.phase not in ("centers", "distances", "weights"):
        raise unknown(message.phase)
    X = client.X
    if message.phase == "centers":
        assert message.n_centers is not None
        wanted = max(1, min(message.n_centers, X.shape[0] // 2))
        seed = seed_of(rules.seed, client.client_id, "anchors")
        own, counts = lloyd(X, first_centers(X, wanted, seed), ANCHOR_ITERATIONS)
        kept = counts >= MIN_COUNT
        return client, AnchorUp(own.centers[kept], counts[kept])
    if message.phase == "distances":
        assert message.anchors is not None
        anchors = Anchors(message.anchors, rules.n_nearest, 1.0)
        near = anchors.nearest(X)
        up = AnchorUp(distance=float(near[0].sum(dtype=np.float64)), n_distances=near[0].size)
        return replace(client, anchors=anchors, near=near), up
    assert message.width is not None and client.anchors is not None
    anchors = replace(client.anchors, width=message.width)
    return replace(client, anchors=anchors, B=anchors.weights(X, client.near), near=None), AnchorUp()


def agree_on_anchors(talk: Talk, k: int, n_anchors: int | str, scale: float, seed: int) -> tuple[Array, Array, Array]:
    """Anchors for all, known to all with one width: (a, d), and the centres and counts they were made of."""
    wanted = 10 * k if n_anchors == "auto" else int(n_anchors)
    each = max(2 * k, ceil(2 * wanted / len(talk.client_ids)))
    centers, counts = pooled(talk.ask_all(AnchorDown("centers", n_centers=each)))
    points, place = np.unique(centers, axis=0, return_inverse=True)
    weight = np.bincount(place.ravel(), weights=counts)
    if len(points) > wanted:
        points, _ = merge_centers(points, weight, wanted, seed_of(seed, SERVER, "anchors"), 1)
    answers = talk.ask_all(AnchorDown("distances", anchors=points)).values()
    mean = sum(up.distance for up in answers) / sum(up.n_distances for up in answers)
    talk.ask_all(AnchorDown("weights", width=scale * mean or 1.0))
    return points, centers, counts


def check_anchors(n_anchors: Any, n_nearest: Any, bandwidth_scale: Any, n_init: Any) -> None:
    """Refuse settings of anchors that cannot be."""
    check_count_or_auto(n_anchors=n_anchors)
    check_whole(n_nearest=n_nearest, n_init=n_init)
    check_positive(bandwidth_scale=bandwidth_scale)


# ------------------------------------------------------------------------------------------------- FedSpectral+


@dataclass(frozen=True)
class SpectralUp:
    """Everything a client of `FedSpectral` says besides anchors and k-means."""

    mass: Array | None = None  # mass: a, how much weight of its rows each anchor has
    product: Array | None = None  # round: a x k, BᵀB times what was sent


@dataclass(frozen=True)
class SpectralDown:
    """Everything the server of `FedSpectral` says besides anchors and k-means."""

    phase: str  # mass, round, embed
    basis: Array | None = None  # round: a x k; embed: a x k, from weights of anchors to the embedding


@dataclass(frozen=True)
class SpectralRules:
    """What server and clients of `FedSpectral` agree on."""

    seed: int
    n_nearest: int
    clusters: CentersRules


@dataclass(frozen=True)
class SpectralClient(AnchorClient):
    """One client of `FedSpectral`; its embedding is the rows of a client of federated k-means."""

    map: Array | None = None  # a x k
    clusters: CentersClient | None = None


def spectral_reply(client: SpectralClient, message: Any, rules: SpectralRules) -> tuple[SpectralClient, Any]:
    """Answer of a client of `FedSpectral`."""
    if isinstance(message, AnchorDown):
        return anchor_reply(client, message, rules)
    if isinstance(message, CentersDown):
        assert client.clusters is not None
        clusters, up = centers_reply(client.clusters, message, rules.clusters)
        return replace(client, clusters=clusters), up
    if message.phase not in ("mass", "round", "embed"):
        raise unknown(message.phase)
    B = client.B
    assert B is not None
    if message.phase == "mass":
        return client, SpectralUp(mass=B.sum(axis=0))
    if message.phase == "round":
        return client, SpectralUp(product=B.T @ (B @ message.basis))
    U = unit_rows(B @ message.basis)
    return replace(client, map=message.basis, clusters=CentersClient(client.client_id, U)), SpectralUp()


@dataclass(frozen=True)
class AnchorSpectralModel:
    """Rows to weights of anchors, to the embedding, to the nearest centre there."""

    anchors: Anchors
    map: Array  # a x k
    clusters: NumberedCenters

    def embed(self, X: Any) -> Array:
        """Rows of the common spectral embedding, of length 1; (n, d) -> (n, k)."""
        return unit_rows(self.anchors.weights(X) @ self.map)

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        return self.clusters.assign(self.embed(X))


class Subspace(NamedTuple):
    """Leading eigenvectors, (n, k), their eigenvalues, and how far the subspace moved in each step."""

    vectors: Array
    values: Array
    history: list[float]


def power_iteration(multiply: Callable[[Array], Array], Q: Array, max_iter: int, tol: float) -> Subspace:
    """Leading eigenvectors of a positive semi-definite matrix that is known by its products alone.

    Starts from orthonormal Q, (n, k); ends when ``||Q_new Q_newᵀ - Q Qᵀ|| < tol``, with a Rayleigh-Ritz step.
    """
    history: list[float] = []
    while True:
        Y = multiply(Q)
        Q_new = np.linalg.qr(Y).Q
        history.append(float(np.sqrt(2) * np.linalg.norm(Q_new - Q @ (Q.T @ Q_new))))
        if history[-1] < tol or len(history) == max_iter:
            break
        Q = Q_new
    H = Q.T @ Y
    values, R = np.linalg.eigh((H + H.T) / 2)
    return Subspace(Q @ R[:, ::-1], values[::-1], history)


def _start(n: int, k: int, seed: int) -> Array:
    return np.linalg.qr(stream(seed, SERVER, "start").normal(size=(n, k))).Q


def root_inverse(x: Array) -> Array:
    """1/sqrt(x), 0 where x is 0."""
    return np.divide(1, np.sqrt(x), out=np.zeros_like(x), where=x > 0)


class FedSpectral(Baseline):
    """FedSpectral+ (Thakkar and Joshi 2023) for clients with rows of their own: one spectral embedding over anchors.

    Row-stochastic weights B_t tie the rows of client t to the nearest of a common anchors. The graph
    ``S = B diag(lam)^-1 Bᵀ`` over the rows of all clients, with ``lam = sum_t B_tᵀ1``, has unit degrees; its leading
    eigenvectors come from a power iteration on the anchors' side, ``V <- qr(sum_t diag(lam)^-1/2 B_tᵀB_t
    diag(lam)^-1/2 V)``. Each client keeps its rows of the embedding ``B_t diag(lam)^-1/2 V diag(w)^-1/2``, normalised,
    and federated k-means labels them. New rows take the same way.

    Provenance: in spirit. The published method has one set of nodes and spreads its edges over clients (that is
    `FedSpectralGraph`, after the abstract; there is no public code). Clients with different rows share no node, so the
    anchors, which join their graphs, are ours.

    Parameters
    ----------
    n_clusters : int
    n_anchors : int or "auto"
        Anchors at most; ``"auto"`` is 10 for each cluster. They are made of the centres that clients send, at most
        half as many as a client has rows and each of at least two rows.
    n_nearest : int
        Anchors that a row is tied to.
    bandwidth_scale : float
        Width of the weights as a multiple of the mean distance to those anchors, over all clients.
    max_iter : int
        Steps of the power iteration at most.
    tol : float
        Stop when the subspace moves less.
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
    >>> from fmtc.baselines import FedSpectral
    >>> from fmtc.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> model = FedSpectral(data.n_clusters, random_state=0).fit(data.X, clients=data.clients)
    >>> float(model.eigenvalues_[0].round(6))
    1.0
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_anchors: int | str = "auto",
        n_nearest: int = 5,
        bandwidth_scale: float = 1.0,
        max_iter: int = 500,
        tol: float = 1e-6,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.n_anchors = n_anchors
        self.n_nearest = n_nearest
        self.bandwidth_scale = bandwidth_scale
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, AnchorSpectralModel], Mapping[str, Array]]:
        check_anchors(self.n_anchors, self.n_nearest, self.bandwidth_scale, self.n_init)
        check_whole(max_iter=self.max_iter)
        check_number(tol=self.tol)
        rules = SpectralRules(
            seed, self.n_nearest, CentersRules(self.n_clusters, seed, local_iters=10, n_init=self.n_init)
        )
        transport = LocalTransport(
            data, rules, open_client=lambda cid, X, _: SpectralClient(cid, X), client_reply=spectral_reply
        )
        talk = Talk(transport)
        self.anchors_, *_ = agree_on_anchors(talk, self.n_clusters, self.n_anchors, self.bandwidth_scale, seed)
        mass = sum(up.mass for up in talk.ask_all(SpectralDown("mass")).values())
        scale = root_inverse(mass)[:, None]

        def multiply(V: Array) -> Array:
            answers = talk.ask_all(SpectralDown("round", scale * V)).values()
            return scale * sum(up.product for up in answers)

        V = _start(len(scale), min(self.n_clusters, len(scale)), seed)
        found = power_iteration(multiply, V, self.max_iter, self.tol)
        inverse = root_inverse(np.where(found.values > EPS, found.values, 0))
        talk.ask_all(SpectralDown("embed", scale * found.vectors * inverse))
        federated_kmeans(talk, rules.clusters)
        self.eigenvalues_, self.history_, self.n_iter_ = found.values, found.history, len(found.history)
        note(self, talk)
        clients = transport.clients
        models = {cid: AnchorSpectralModel(c.anchors, c.map, c.clusters.model) for cid, c in clients.items()}
        return models, {cid: c.clusters.labels for cid, c in clients.items()}


# --------------------------------------------------------------------------------- FedSpectral+ on one set of nodes


@dataclass(frozen=True)
class EdgesUp:
    """Everything a client of `FedSpectralGraph` says: it has a row for each node."""

    degree: Array | None = None  # degree: n
    product: Array | None = None  # round: n x k, its weights times what was sent


@dataclass(frozen=True)
class EdgesDown:
    """Everything the server of `FedSpectralGraph` says."""

    phase: str  # degree, round
    basis: Array | None = None  # round: n x k


def edges_reply(affinity: sp.csr_array, message: EdgesDown, rules: None) -> tuple[sp.csr_array, EdgesUp]:
    """Answer of a client that holds some edges."""
    if message.phase not in ("degree", "round"):
        raise unknown(message.phase)
    if message.phase == "degree":
        return affinity, EdgesUp(degree=affinity.sum(axis=1))
    return affinity, EdgesUp(product=affinity @ message.basis)


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
        Stop when the subspace moves less.
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
        check_whole(n_clusters=self.n_clusters, max_iter=self.max_iter, n_init=self.n_init)
        check_number(tol=self.tol)
        data = same_samples(affinities, "affinities")
        for cid, A in data.items():
            if A.shape[0] != A.shape[1] or A.min() < 0 or abs(A - A.T).max() > 1e-10 * abs(A).max():
                raise ValueError(f"client {cid!r} must hold a symmetric square array of weights, none below 0")
        n, k = next(iter(data.values())).shape[0], self.n_clusters
        if n < k:
            raise ValueError(f"n_clusters={k} needs as many nodes, got {n}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        talk = Talk(LocalTransport(data, None, open_client=lambda _, A, __: A, client_reply=edges_reply))
        with one_thread("blas"), one_thread("openmp"):
            scale = root_inverse(sum(up.degree for up in talk.ask_all(EdgesDown("degree")).values()))[:, None]

            def multiply(Q: Array) -> Array:
                answers = talk.ask_all(EdgesDown("round", scale * Q)).values()
                return Q + scale * sum(up.product for up in answers)

            found = power_iteration(multiply, _start(n, k, seed), self.max_iter, self.tol)
            _, self.labels_ = kmeans(unit_rows(found.vectors), k, seed_of(seed, SERVER, "kmeans"), n_init=self.n_init)
        self.embedding_, self.eigenvalues_ = found.vectors, found.values - 1
        self.history_, self.n_iter_ = found.history, len(found.history)
        note(self, talk)
        return self


def same_samples(X: Any, name: str) -> dict[str, Any]:
    """Arrays over the same samples, one for each client, checked, by sorted name."""
    if not is_mapping(X) or not X:
        raise TypeError(f"{name} must be a mapping of at least one client to an array, got {type(X).__name__}")
    data = {str(cid): check_array(Xt, accept_sparse="csr", dtype=np.float64) for cid, Xt in X.items()}
    if len(data) < len(X):
        raise ValueError(f"names of clients in {name} must differ when written out, got {list(X)}")
    if len({Xt.shape[0] for Xt in data.values()}) > 1:
        sizes = ", ".join(f"{cid!r} has {Xt.shape[0]}" for cid, Xt in data.items())
        raise ValueError(f"all clients must hold the same samples, one row for each: {sizes}")
    return dict(sorted(data.items()))
