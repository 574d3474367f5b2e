"""Federated rivals: Fed-kmeans, FedSpectral+ and SFOMVC, each over messages that are listed and counted.

Every method has a pair of small dataclasses, one for what a client says and one for what it is told. Nothing else
leaves a client. `FedSpectral` and `SFOMVC` first agree on anchors (`AnchorUp`, `AnchorDown`); `FedSpectral` ends with
federated k-means (`CentersUp`, `CentersDown`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import ceil, isfinite
from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from ..clients import is_mapping
from ..kernels.alignment import match_clusters
from ..kernels.consensus import tsvt, update_dual
from ..kernels.embedding import nearest_orthonormal
from ..runtime.driver import one_thread
from ..runtime.local import LocalTransport
from ..steps import stream
from .base import Array, Baseline, Data, Talk, kmeans, seed_of, unit_rows

SERVER = "the server"  # whose random streams the server draws from
MIN_COUNT = 2  # a centre of fewer rows than this is a row: it stays at home
EPS = 1e-8  # smoothing of the row norms of P
ANCHOR_ITERATIONS = 50  # Lloyd steps for the centres that anchors are made of


def _check_whole(**values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def _check_number(least: float = 0.0, **values: Any) -> None:
    for name, value in values.items():
        if not _is_number(value) or value < least:
            raise ValueError(f"{name} must be a finite number of at least {least:g}, got {value!r}")


def _check_positive(most: float = np.inf, **values: Any) -> None:
    for name, value in values.items():
        if not _is_number(value) or not 0 < value <= most:
            limit = "" if most == np.inf else f" and at most {most:g}"
            raise ValueError(f"{name} must be a finite number above 0{limit}, got {value!r}")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)


def _note(estimator: Any, talk: Talk) -> None:
    """What was said in a fit, for the user to see."""
    estimator.bytes_up_, estimator.bytes_down_, estimator.n_rounds_ = talk.bytes_up, talk.bytes_down, talk.rounds


# ------------------------------------------------------------------------------------------- federated k-means


@dataclass(frozen=True)
class CentersUp:
    """Everything a client says in federated k-means."""

    centers: Array | None = None  # start, round: at most k x d, means of at least `min_count` rows each
    counts: Array | None = None  # start, round: how many rows


@dataclass(frozen=True)
class CentersDown:
    """Everything the server says in federated k-means."""

    phase: str  # start, round, finish
    centers: Array | None = None  # round, finish: k x d


@dataclass(frozen=True)
class CentersRules:
    """What server and clients of federated k-means agree on."""

    n_clusters: int
    seed: int
    n_rounds: int = 10
    local_iters: int = 1
    personalised: bool = False
    min_count: int = MIN_COUNT
    n_init: int = 10
    tol: float = 1e-6


@dataclass(frozen=True)
class NumberedCenters:
    """Centres of one client and the common numbers of their clusters."""

    centers: Array  # k_t x d
    numbers: Array  # k_t

    def assign(self, X: Any) -> Array:
        """Common number of the nearest centre of each row; (n, d) -> (n,)."""
        return self.numbers[pairwise_distances_argmin(X, self.centers)]


@dataclass(frozen=True)
class CentersClient:
    """One client of federated k-means between messages."""

    client_id: str
    X: Any  # n x d
    model: NumberedCenters | None = None
    labels: Array | None = None  # n


def centers_reply(client: CentersClient, message: CentersDown, rules: CentersRules) -> tuple[CentersClient, CentersUp]:
    """Answer of a client in federated k-means."""
    X, C = client.X, message.centers
    if message.phase == "start":
        C = _first_centers(X, rules.n_clusters, seed_of(rules.seed, client.client_id, "start"))
    assert C is not None
    if message.phase == "finish":
        model = _lloyd(X, C, rules.local_iters)[0] if rules.personalised else NumberedCenters(C, np.arange(len(C)))
        return replace(client, model=model, labels=model.assign(X)), CentersUp()
    own, counts = _lloyd(X, C, rules.local_iters)
    kept = counts >= rules.min_count
    return client, CentersUp(own.centers[kept], counts[kept])


def _first_centers(X: Any, k: int, seed: int) -> Array:
    return kmeans_plusplus(X, min(k, X.shape[0]), random_state=seed)[0]


def _lloyd(X: Any, C: Array, n_iter: int) -> tuple[NumberedCenters, Array]:
    """Centres after some steps of Lloyd's, each the mean of as many rows as the count beside it says.

    Not the count of those nearest to the new centre: it may be two where the centre is a single row.
    """
    numbers, labels = np.unique(pairwise_distances_argmin(X, C), return_inverse=True)
    if n_iter > 1:
        solver = KMeans(len(numbers), init=C[numbers], n_init=1, max_iter=n_iter - 1, tol=0, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # few steps, or rows that are equal
            labels = solver.fit(X).labels_
    n, counts = X.shape[0], np.bincount(labels, minlength=len(numbers))
    member = sp.csr_array((np.ones(n, X.dtype), labels, np.arange(n + 1)), shape=(n, len(numbers)))
    sums = member.T @ X
    filled = counts > 0
    means = (sums.toarray() if sp.issparse(sums) else sums)[filled] / counts[filled, None].astype(X.dtype)
    return NumberedCenters(means, numbers[filled]), counts[filled]


def pooled(answers: Mapping[str, Any]) -> tuple[Array, Array]:
    """Centres of all clients and their counts; (c, d), (c,)."""
    centers = np.concatenate([answer.centers for answer in answers.values()])
    if not len(centers):
        raise ValueError(
            "no client has a cluster large enough to tell of: all have too few rows for so many clusters. "
            "Ask for fewer clusters, or allow smaller ones with min_count where the method has it."
        )
    return centers, np.concatenate([answer.counts for answer in answers.values()])


def merge_centers(centers: Array, counts: Array, k: int, seed: int, n_init: int) -> tuple[Array, float]:
    """Minimise ``sum_j S_j min_i ||c_j - C_i||²`` over k centres C: weighted k-means; (k, d) and the value."""
    merged, nearest = kmeans(centers, k, seed, n_init=n_init, sample_weight=counts.astype(centers.dtype))
    cost = counts @ np.square(centers - merged.centers[nearest]).sum(axis=1)
    return merged.centers, float(cost)


def _movement(before: Array, after: Array) -> float:
    """How far the centre went that went farthest, matched one to one."""
    if before.shape != after.shape:
        return np.inf
    distance = np.linalg.norm(before[:, None, :] - after[None, :, :], axis=2)
    return float(distance[linear_sum_assignment(distance)].max())


def federated_kmeans(talk: Talk, rules: CentersRules) -> tuple[Array, list[float]]:
    """Run the rounds: common centres, and the server's objective after each time it merged."""
    history: list[float] = []

    def merge(answers: Mapping[str, CentersUp]) -> Array:
        seed = seed_of(rules.seed, SERVER, f"merge {len(history)}")
        C, cost = merge_centers(*pooled(answers), rules.n_clusters, seed, rules.n_init)
        history.append(cost)
        return C

    C = merge(talk.ask_all(CentersDown("start")))
    for _ in range(rules.n_rounds):
        before, C = C, merge(talk.ask_all(CentersDown("round", C)))
        if _movement(before, C) < rules.tol:
            break
    talk.ask_all(CentersDown("finish", C))
    return C, history


class FedKMeans(Baseline):
    """Federated k-means (Garst and Reinders 2023): clients send centres and counts, the server clusters those.

    The server minimises ``sum_j S_j min_i ||c_j - C_i||²`` over k centres C, where c_j are the centres that clients
    sent and S_j how many rows they stand for. Clients go on from C, without the centres that none of their rows is
    nearest to. Rows belong to the nearest common centre. Where clients differ by a large offset the common centres
    tell clients apart, not clusters: `KMeansAlone` is then the better control.

    Provenance: from the paper and its reference code, read and not copied. Restarts of the server, the stop rule and
    `personalised` are ours.

    Parameters
    ----------
    n_clusters : int
    n_rounds : int
        Rounds at most, after the start.
    local_iters : int
        Steps of Lloyd's at a client in each round.
    personalised : bool
        Label the rows of a client by centres of its own, `local_iters` steps from the common ones.
    min_count : int
        A centre of fewer rows stays at the client.
    n_init : int
        Restarts of the server's k-means, the best of which counts.
    tol : float
        Stop when no common centre moves farther.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The common centres.
    n_iter_ : int
        Rounds after the start.
    history_ : list of float
        The server's objective: after the start, then after each round.
    bytes_up_, bytes_down_, n_rounds_ : int
        What was sent, and in how many exchanges.

    Examples
    --------
    >>> from fmtc.baselines import FedKMeans
    >>> from fmtc.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> model = FedKMeans(data.n_clusters, random_state=0).fit(data.X, clients=data.clients)
    >>> model.cluster_centers_.shape == (data.n_clusters, data.X.shape[1])
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_rounds: int = 10,
        local_iters: int = 1,
        personalised: bool = False,
        min_count: int = MIN_COUNT,
        n_init: int = 10,
        tol: float = 1e-6,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.n_rounds = n_rounds
        self.local_iters = local_iters
        self.personalised = personalised
        self.min_count = min_count
        self.n_init = n_init
        self.tol = tol
        self.random_state = random_state

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, NumberedCenters], Mapping[str, Array]]:
        _check_whole(n_rounds=self.n_rounds, local_iters=self.local_iters, min_count=self.min_count, n_init=self.n_init)
        _check_number(tol=self.tol)
        rules = CentersRules(
            self.n_clusters, seed, self.n_rounds, self.local_iters, self.personalised, self.min_count, self.n_init,
            self.tol,
        )  # fmt: skip
        transport = LocalTransport(
            data, rules, open_client=lambda cid, X, _: CentersClient(cid, X), client_reply=centers_reply
        )
        talk = Talk(transport)
        self.cluster_centers_, self.history_ = federated_kmeans(talk, rules)
        self.n_iter_ = len(self.history_) - 1
        _note(self, talk)
        clients = transport.clients
        return {cid: c.model for cid, c in clients.items()}, {cid: c.labels for cid, c in clients.items()}


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
    X = client.X
    if message.phase == "centers":
        assert message.n_centers is not None
        wanted = max(1, min(message.n_centers, X.shape[0] // 2))
        seed = seed_of(rules.seed, client.client_id, "anchors")
        own, counts = _lloyd(X, _first_centers(X, wanted, seed), ANCHOR_ITERATIONS)
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


def _check_anchors(n_anchors: Any, n_nearest: Any, bandwidth_scale: Any, n_init: Any) -> None:
    if n_anchors != "auto" and (isinstance(n_anchors, bool) or not isinstance(n_anchors, Integral) or n_anchors < 1):
        raise ValueError(f'n_anchors must be "auto" or a whole number of at least 1, got {n_anchors!r}')
    _check_whole(n_nearest=n_nearest, n_init=n_init)
    _check_positive(bandwidth_scale=bandwidth_scale)


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


def _root_inverse(x: Array) -> Array:
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
        _check_anchors(self.n_anchors, self.n_nearest, self.bandwidth_scale, self.n_init)
        _check_whole(max_iter=self.max_iter)
        _check_number(tol=self.tol)
        rules = SpectralRules(
            seed, self.n_nearest, CentersRules(self.n_clusters, seed, local_iters=10, n_init=self.n_init)
        )
        transport = LocalTransport(
            data, rules, open_client=lambda cid, X, _: SpectralClient(cid, X), client_reply=spectral_reply
        )
        talk = Talk(transport)
        self.anchors_, *_ = agree_on_anchors(talk, self.n_clusters, self.n_anchors, self.bandwidth_scale, seed)
        mass = sum(up.mass for up in talk.ask_all(SpectralDown("mass")).values())
        scale = _root_inverse(mass)[:, None]

        def multiply(V: Array) -> Array:
            answers = talk.ask_all(SpectralDown("round", scale * V)).values()
            return scale * sum(up.product for up in answers)

        V = _start(len(scale), min(self.n_clusters, len(scale)), seed)
        found = power_iteration(multiply, V, self.max_iter, self.tol)
        inverse = _root_inverse(np.where(found.values > EPS, found.values, 0))
        talk.ask_all(SpectralDown("embed", scale * found.vectors * inverse))
        federated_kmeans(talk, rules.clusters)
        self.eigenvalues_, self.history_, self.n_iter_ = found.values, found.history, len(found.history)
        _note(self, talk)
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
        _check_whole(n_clusters=self.n_clusters, max_iter=self.max_iter, n_init=self.n_init)
        _check_number(tol=self.tol)
        data = _same_samples(affinities, "affinities")
        for cid, A in data.items():
            if A.shape[0] != A.shape[1] or A.min() < 0 or abs(A - A.T).max() > 1e-10 * abs(A).max():
                raise ValueError(f"client {cid!r} must hold a symmetric square array of weights, none below 0")
        n, k = next(iter(data.values())).shape[0], self.n_clusters
        if n < k:
            raise ValueError(f"n_clusters={k} needs as many nodes, got {n}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        talk = Talk(LocalTransport(data, None, open_client=lambda _, A, __: A, client_reply=edges_reply))
        with one_thread("blas"), one_thread("openmp"):
            scale = _root_inverse(sum(up.degree for up in talk.ask_all(EdgesDown("degree")).values()))[:, None]

            def multiply(Q: Array) -> Array:
                answers = talk.ask_all(EdgesDown("round", scale * Q)).values()
                return Q + scale * sum(up.product for up in answers)

            found = power_iteration(multiply, _start(n, k, seed), self.max_iter, self.tol)
            _, self.labels_ = kmeans(unit_rows(found.vectors), k, seed_of(seed, SERVER, "kmeans"), n_init=self.n_init)
        self.embedding_, self.eigenvalues_ = found.vectors, found.values - 1
        self.history_, self.n_iter_ = found.history, len(found.history)
        _note(self, talk)
        return self


# ------------------------------------------------------------------------------------------------------- SFOMVC


@dataclass(frozen=True)
class ProjectionUp:
    """Everything a client of `SFOMVC` says besides anchors."""

    P: Array | None = None  # start, round: a x k, anchors to clusters
    gap: float | None = None  # round: ||F - N||, for the stop rule


@dataclass(frozen=True)
class ProjectionDown:
    """Everything the server of `SFOMVC` says besides anchors."""

    phase: str  # start, round, finish
    centers: Array | None = None  # start, if it is global: k x d, whose nearest rows are the first clusters
    order: Array | None = None  # the first round, if the start was local: the cluster that takes each common number, k
    guide: Array | None = None  # round: a x k, Q - Y/rho
    growth: float | None = None  # round: times which rho and mu have grown


@dataclass(frozen=True)
class ViewUp(ProjectionUp):
    """Everything a client of `SFOMVCViews` says: at the end it has a row for each sample."""

    assignment: Array | None = None  # finish: n x k, BP, how much each sample belongs to each cluster


@dataclass(frozen=True)
class ViewDown(ProjectionDown):
    """Everything the server of `SFOMVCViews` says."""

    samples: Array | None = None  # start: a, numbers of the samples that are anchors in every view


@dataclass(frozen=True)
class ProjectionRules:
    """What server and clients of `SFOMVC` agree on."""

    n_clusters: int
    seed: int
    beta: float
    gamma: float
    schatten_p: float
    row_power: float
    n_nearest: int
    bandwidth_scale: float
    rho: float
    mu: float
    growth: float
    max_iter: int
    tol: float
    n_init: int


@dataclass(frozen=True)
class Assignment:
    """The variables of one client in `SFOMVC`, and the steps on them."""

    Bn: sp.csr_array  # n x a, weights of anchors over the root of their column sums
    gram: Array  # a x a, BnᵀBn
    scale: Array  # a, what the columns of weights are multiplied by
    P: Array  # a x k
    F: Array  # n x k; orthonormal columns after each step
    N: Array  # n x k, none below 0
    dual: Array  # n x k, of F = N
    score: Array  # n x k, N before it was cut at 0; the largest entry of a row is its cluster

    @classmethod
    def of(cls, B: sp.csr_array, labels: Array, k: int, gamma: float) -> Assignment:
        """Start from a partition: F is its scaled indicator, P the ridge regression of F on the anchors."""
        mass = B.sum(axis=0)
        scale = 1 / np.sqrt(np.where(mass > 0, mass, 1))
        Bn = sp.csr_array(B.multiply(scale))
        gram = (Bn.T @ Bn).toarray()
        indicator = np.eye(k)[labels]
        F = indicator * _root_inverse(indicator.sum(axis=0))
        P = solve(gram + max(gamma, EPS) * np.eye(len(gram)), Bn.T @ F, assume_a="pos")
        return cls(Bn, gram, scale, P, F, F, np.zeros_like(F), F)

    def numbered(self, order: Array) -> Assignment:
        """The same clusters in another order, before the first step."""
        F = self.F[:, order]
        return replace(self, P=self.P[:, order], F=F, N=F, score=F)

    def step(self, guide: Array, *, rho: float, mu: float, gamma: float, q: float) -> Assignment:
        """P, then F, then N, each the minimiser with all else fixed; then the dual."""
        theta = q / 2 * (np.square(self.P).sum(axis=1) + EPS) ** (q / 2 - 1)
        lhs = 2 * self.gram + np.diag(2 * gamma * theta + rho)
        P = solve(lhs, 2 * (self.Bn.T @ self.F) + rho * guide, assume_a="pos")
        F = nearest_orthonormal(2 * (self.Bn @ P) + mu * self.N - self.dual)
        score = F + self.dual / mu
        N = np.maximum(score, 0)
        return replace(self, P=P, F=F, N=N, dual=self.dual + mu * (F - N), score=score)

    @property
    def gap(self) -> float:
        """How far F is from having no entry below 0."""
        return float(np.linalg.norm(self.F - self.N))


@dataclass(frozen=True)
class ProjectionModel:
    """Rows to weights of anchors, to clusters."""

    anchors: Anchors
    map: Array  # a x k, P with the scale of the anchors inside

    def score(self, X: Any) -> Array:
        """How much each row belongs to each cluster; (n, d) -> (n, k)."""
        return self.anchors.weights(X) @ self.map

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        return self.score(X).argmax(axis=1)


@dataclass(frozen=True)
class ProjectionClient(AnchorClient):
    """One client of `SFOMVC` or `SFOMVCViews` between messages."""

    part: Assignment | None = None
    labels: Array | None = None  # n

    @property
    def model(self) -> ProjectionModel:
        """What it keeps for new rows."""
        assert self.anchors is not None and self.part is not None
        return ProjectionModel(self.anchors, self.part.scale[:, None] * self.part.P)


def projection_reply(client: ProjectionClient, message: Any, rules: ProjectionRules) -> tuple[ProjectionClient, Any]:
    """Answer of a client of `SFOMVC`."""
    if isinstance(message, AnchorDown):
        return anchor_reply(client, message, rules)
    if message.phase == "start":
        assert client.B is not None
        part = Assignment.of(client.B, _first_labels(client, message.centers, rules), rules.n_clusters, rules.gamma)
        return replace(client, part=part), ProjectionUp(P=part.P)
    if message.phase == "round":
        part = _next_part(client, message, rules)
        return replace(client, part=part), ProjectionUp(part.P, part.gap)
    assert client.part is not None
    return replace(client, labels=client.part.score.argmax(axis=1)), ProjectionUp()


def view_reply(client: ProjectionClient, message: ViewDown, rules: ProjectionRules) -> tuple[ProjectionClient, ViewUp]:
    """Answer of a client of `SFOMVCViews`."""
    if message.phase == "start":
        anchors = Anchors(client.X[message.samples], rules.n_nearest, 1.0)
        near = anchors.nearest(client.X)
        anchors = replace(anchors, width=rules.bandwidth_scale * float(near[0].mean()) or 1.0)
        labels = _first_labels(client, None, rules)
        part = Assignment.of(anchors.weights(client.X, near), labels, rules.n_clusters, rules.gamma)
        return replace(client, anchors=anchors, part=part), ViewUp(P=part.P)
    if message.phase == "round":
        part = _next_part(client, message, rules)
        return replace(client, part=part), ViewUp(part.P, part.gap)
    assert client.part is not None
    return client, ViewUp(assignment=client.part.Bn @ client.part.P)


def _first_labels(client: ProjectionClient, centers: Array | None, rules: ProjectionRules) -> Array:
    """Nearest of the common centres; without those, k-means of its own."""
    if centers is not None:
        return pairwise_distances_argmin(client.X, centers)
    seed = seed_of(rules.seed, client.client_id, "start")
    return kmeans(client.X, rules.n_clusters, seed, n_init=rules.n_init)[1]


def _next_part(client: ProjectionClient, message: ProjectionDown, rules: ProjectionRules) -> Assignment:
    part, guide, growth = client.part, message.guide, message.growth
    assert part is not None and guide is not None and growth is not None
    if message.order is not None:
        part = part.numbered(message.order)
    return part.step(guide, rho=rules.rho * growth, mu=rules.mu * growth, gamma=rules.gamma, q=rules.row_power)


class Residuals(NamedTuple):
    """How far a round of `SFOMVC` is from the end."""

    consensus: float  # ||P - Q|| / ||P||
    indicator: float  # largest ||F - N|| of a client


def consensus_rounds(
    talk: Talk, down: type[ProjectionDown], P: Array, orders: list[Array] | None, rules: ProjectionRules
) -> list[Residuals]:
    """Server of `SFOMVC`: ``Q = prox(P + Y/rho)``, ``Y += rho (P - Q)`` until both residuals are small.

    P is the first stack, (a, k, m), its clusters numbered alike already; `orders` tells the clients how.
    """
    history: list[Residuals] = []
    Y, growth = np.zeros_like(P), 1.0
    Q = _prox(P, rules.beta / rules.rho, rules.schatten_p)
    while True:
        rho = rules.rho * growth
        guides = Q - Y / rho
        answers = talk.ask(
            {
                cid: down(
                    "round",
                    order=None if history or orders is None else orders[t],
                    guide=guides[:, :, t],
                    growth=growth,
                )
                for t, cid in enumerate(talk.client_ids)
            }
        )
        P = _stack(answers)
        Q = _prox(P + Y / rho, rules.beta / rho, rules.schatten_p)
        Y = update_dual(Y, P, Q, rho)
        apart = float(np.linalg.norm(P - Q) / (np.linalg.norm(P) or 1))
        history.append(Residuals(apart, max(up.gap for up in answers.values())))
        if len(history) == rules.max_iter or (apart < rules.tol and history[-1].indicator < 10 * rules.tol):
            return history
        growth *= rules.growth


def _prox(T: Array, tau: float, p: float) -> Array:
    """Tensor singular value thresholding of a stack (a, k, m) as (a, m, k): the Fourier transform is along clusters."""
    return tsvt(T.transpose(0, 2, 1), tau, p).transpose(0, 2, 1)


def _stack(answers: Mapping[str, Any]) -> Array:
    return np.stack([up.P for up in answers.values()], axis=2)


def _reorder(P: Array, orders: list[Array]) -> Array:
    return np.stack([P[:, order, t] for t, order in enumerate(orders)], axis=2)


class SFOMVC(Baseline):
    """SFOMVC (Feng et al. 2025) for clients with rows of their own: anchors to clusters, a tensor over clients.

    ``min sum_t { ||B_t P_t - F_t||² + gamma sum_i ||p_i^t||^q } + beta ||P||_Sp^p`` over F_tᵀF_t = I, F_t >= 0, where
    B_t ties the rows of client t to common anchors (columns over the root of their sums), P_t (a x k) sends anchors to
    clusters and F_t is a scaled indicator: labels come out in one step. The Schatten-p norm is that of the stack
    P (a x m x k), Fourier transform along clusters. By ADMM: clients update P_t, F_t; the server the consensus.
    `labels_` are the largest entries of F_t; new rows take ``argmax B(x) P_t``, which may differ near a border.

    Provenance: a re-implementation in spirit, from the abstract only; no full text or code was at hand. In the paper
    each client has a view of the same samples (that is `SFOMVCViews`). Here rows differ, so what has a common
    shape is P_t over common anchors; all updates, constants, the start and the anchors are ours.

    Parameters
    ----------
    n_clusters : int
    beta : float
        Weight of the tensor norm. With 0 clients go their own ways once they have started.
    gamma : float
        Weight of the row-sparse penalty.
    schatten_p : float
        0 < p <= 1.
    row_power : float
        The q of the penalty, 0 < q <= 2.
    n_anchors, n_nearest, bandwidth_scale
        As in `FedSpectral`.
    start : {"local", "global"}
        First clusters of a client: by k-means of its own, matched between clients by the anchors they lie at, or by
        the nearest of common centres, which tell clients apart where these differ by an offset.
    rho, mu : float
        Step sizes of the two duals.
    growth : float
        Factor on both after each round. With 1 the indicators often need more than 100 rounds.
    max_iter : int
        Rounds at most.
    tol : float
        Stop when ``||P - Q|| < tol ||P||`` and all ``||F_t - N_t|| < 10 tol``, N_t the non-negative copy of F_t.
    n_init : int
        Restarts of k-means at the start.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    anchors_ : ndarray of shape (n_anchors, n_features)
    n_iter_ : int
    history_ : list of Residuals
        Both residuals of each round: `consensus` and `indicator`.
    bytes_up_, bytes_down_, n_rounds_ : int
        What was sent, and in how many exchanges.

    Examples
    --------
    >>> from fmtc.baselines import SFOMVC
    >>> from fmtc.datasets import synthetic
    >>> data = synthetic("offset", seed=0)
    >>> model = SFOMVC(data.n_clusters, random_state=0).fit(data.X, clients=data.clients)
    >>> model.history_[-1].consensus < 1e-3
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        beta: float = 0.1,
        gamma: float = 0.01,
        schatten_p: float = 1.0,
        row_power: float = 1.0,
        n_anchors: int | str = "auto",
        n_nearest: int = 5,
        bandwidth_scale: float = 1.0,
        start: str = "local",
        rho: float = 1.0,
        mu: float = 1.0,
        growth: float = 1.1,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.beta = beta
        self.gamma = gamma
        self.schatten_p = schatten_p
        self.row_power = row_power
        self.n_anchors = n_anchors
        self.n_nearest = n_nearest
        self.bandwidth_scale = bandwidth_scale
        self.start = start
        self.rho = rho
        self.mu = mu
        self.growth = growth
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, ProjectionModel], Mapping[str, Array]]:
        rules = _projection_rules(self, seed)
        if self.start not in ("local", "global"):
            raise ValueError(f'start must be "local" or "global", got {self.start!r}')
        transport = LocalTransport(
            data, rules, open_client=lambda cid, X, _: ProjectionClient(cid, X), client_reply=projection_reply
        )
        talk, k = Talk(transport), self.n_clusters
        self.anchors_, centers, counts = agree_on_anchors(talk, k, self.n_anchors, self.bandwidth_scale, seed)
        C = orders = None
        if self.start == "global":
            C, _ = merge_centers(centers, counts, k, seed_of(seed, SERVER, "start"), self.n_init)
        P = _stack(talk.ask_all(ProjectionDown("start", centers=C)))
        if self.start == "local":
            orders = match_clusters([_places(P[:, :, t], self.anchors_) for t in range(len(data))])
            P = _reorder(P, orders)
        self.history_ = consensus_rounds(talk, ProjectionDown, P, orders, rules)
        talk.ask_all(ProjectionDown("finish"))
        self.n_iter_ = len(self.history_)
        _note(self, talk)
        clients = transport.clients
        return {cid: c.model for cid, c in clients.items()}, {cid: c.labels for cid, c in clients.items()}


def _places(P: Array, anchors: Array) -> Array:
    """Where the clusters of a client lie around their middle: means of the anchors that lead to them; (k, d)."""
    weight = np.maximum(P, 0)
    total = weight.sum(axis=0)
    places = (weight / np.where(total > 0, total, 1)).T @ anchors
    return places - places.mean(axis=0)


def _projection_rules(estimator: Any, seed: int) -> ProjectionRules:
    """Settings of `SFOMVC` and `SFOMVCViews`, checked."""
    e = estimator
    _check_anchors(e.n_anchors, e.n_nearest, e.bandwidth_scale, e.n_init)
    _check_whole(n_clusters=e.n_clusters, max_iter=e.max_iter)
    _check_number(beta=e.beta, gamma=e.gamma, tol=e.tol)
    _check_number(1, growth=e.growth)
    _check_positive(rho=e.rho, mu=e.mu)
    _check_positive(1, schatten_p=e.schatten_p)
    _check_positive(2, row_power=e.row_power)
    names = [f.name for f in fields(ProjectionRules) if f.name != "seed"]
    return ProjectionRules(seed=seed, **{name: getattr(e, name) for name in names})


class SFOMVCViews(ClusterMixin, BaseEstimator):
    """SFOMVC (Feng et al. 2025) in its own setting: each client has a view, other features of the same samples.

    The objective of `SFOMVC`, with anchors that are the same samples in every view, drawn at random by the server.
    Views are clustered by k-means first and their clusters matched by the anchors. At the end each client sends
    ``B_t P_t``, how much each sample belongs to each cluster (**n x k numbers leave the client**); labels are the
    largest sums over clients. New samples, all views of them, take the same way.

    Provenance: a re-implementation in spirit, from the abstract only; no full text or code was at hand. Updates,
    constants, anchors, start and the final sum are ours.

    Parameters
    ----------
    n_clusters : int
    beta, gamma, schatten_p, row_power, n_nearest, rho, mu, growth, max_iter, tol, n_init, random_state
        As in `SFOMVC`.
    n_anchors : int or "auto"
        Samples that are anchors; ``"auto"`` is 10 for each cluster, never more than there are.
    bandwidth_scale : float
        Width of the weights as a multiple of the mean distance to the nearest anchors, in each view.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    anchor_samples_ : ndarray of int of shape (n_anchors,)
    client_ids_ : list of str
    n_iter_, history_, bytes_up_, bytes_down_, n_rounds_
        As in `SFOMVC`.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.baselines import SFOMVCViews
    >>> rng = np.random.default_rng(0)
    >>> group = np.arange(60) % 3
    >>> sizes = {"camera": 4, "microphone": 6}
    >>> views = {name: 5 * rng.normal(size=(3, d))[group] + rng.normal(size=(60, d)) for name, d in sizes.items()}
    >>> model = SFOMVCViews(3, random_state=0).fit(views)
    >>> len(set(zip(group, model.labels_)))
    3
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        beta: float = 0.1,
        gamma: float = 0.01,
        schatten_p: float = 1.0,
        row_power: float = 1.0,
        n_anchors: int | str = "auto",
        n_nearest: int = 5,
        bandwidth_scale: float = 1.0,
        rho: float = 1.0,
        mu: float = 1.0,
        growth: float = 1.1,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.beta = beta
        self.gamma = gamma
        self.schatten_p = schatten_p
        self.row_power = row_power
        self.n_anchors = n_anchors
        self.n_nearest = n_nearest
        self.bandwidth_scale = bandwidth_scale
        self.rho = rho
        self.mu = mu
        self.growth = growth
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, views: Mapping[Any, Any], y: Any = None) -> Self:
        """Cluster the samples.

        Parameters
        ----------
        views : mapping of client to array or sparse array of shape (n_samples, n_features of the view)
        y : ignored

        Returns
        -------
        self
        """
        data = _same_samples(views, "views")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rules = _projection_rules(self, seed)
        n, k = next(iter(data.values())).shape[0], self.n_clusters
        if n < k:
            raise ValueError(f"n_clusters={k} needs as many samples, got {n}")
        transport = LocalTransport(
            data, rules, open_client=lambda cid, X, _: ProjectionClient(cid, X), client_reply=view_reply
        )
        talk = Talk(transport)
        a = min(n, 10 * k if self.n_anchors == "auto" else int(self.n_anchors))
        samples = np.sort(stream(seed, SERVER, "anchors").choice(n, a, replace=False))
        with one_thread("blas"), one_thread("openmp"):
            P = _stack(talk.ask_all(ViewDown("start", samples=samples)))
            orders = match_clusters([P[:, :, t].T for t in range(len(data))])
            history = consensus_rounds(talk, ViewDown, _reorder(P, orders), orders, rules)
            answers = talk.ask_all(ViewDown("finish"))
        self.labels_ = sum(up.assignment for up in answers.values()).argmax(axis=1)
        self.anchor_samples_, self.client_ids_ = samples, list(data)
        self.history_, self.n_iter_ = history, len(history)
        self._models = {cid: client.model for cid, client in transport.clients.items()}
        _note(self, talk)
        return self

    def predict(self, views: Mapping[Any, Any]) -> Array:
        """Cluster of new samples from all their views.

        Parameters
        ----------
        views : mapping of client to array or sparse array of shape (n_samples, n_features of the view)

        Returns
        -------
        ndarray of int of shape (n_samples,)
        """
        check_is_fitted(self)
        data = _same_samples(views, "views")
        if list(data) != self.client_ids_:
            raise ValueError(f"this model needs the views {self.client_ids_}, got {list(data)}")
        for cid, X in data.items():
            d = self._models[cid].anchors.points.shape[1]
            if X.shape[1] != d:
                raise ValueError(f"view {cid!r} has {X.shape[1]} features, it had {d} when the model was fitted")
        return sum(self._models[cid].score(X) for cid, X in data.items()).argmax(axis=1)


def _same_samples(X: Any, name: str) -> dict[str, Any]:
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
