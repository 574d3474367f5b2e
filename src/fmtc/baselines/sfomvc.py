"""SFOMVC: anchors to clusters and a tensor over clients, for clients with rows of their own and for views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..client import stream
from ..kernels.alignment import match_clusters
from ..kernels.couplings import tsvt, update_dual
from ..kernels.embedding import nearest_orthonormal
from ..linalg.threads import one_thread
from ..runtime.local import LocalTransport
from .base import (
    Array,
    Baseline,
    Data,
    Talk,
    check_choice,
    check_number,
    check_positive,
    check_whole,
    kmeans,
    note,
    seed_of,
    unknown,
)
from .fed_kmeans import SERVER, merge_centers
from .fed_spectral import (
    AnchorClient,
    AnchorDown,
    Anchors,
    agree_on_anchors,
    anchor_reply,
    check_anchors,
    root_inverse,
    same_samples,
)

EPS = 1e-8  # smoothing of the row norms of P
PHASES = ("start", "round", "finish")


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
        F = indicator * root_inverse(indicator.sum(axis=0))
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
    if message.phase not in PHASES:
        raise unknown(message.phase)
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
    if message.phase not in PHASES:
        raise unknown(message.phase)
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
        check_choice(("local", "global"), start=self.start)
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
        note(self, talk)
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
    check_anchors(e.n_anchors, e.n_nearest, e.bandwidth_scale, e.n_init)
    check_whole(n_clusters=e.n_clusters, max_iter=e.max_iter)
    check_number(beta=e.beta, gamma=e.gamma, tol=e.tol)
    check_number(1, growth=e.growth)
    check_positive(rho=e.rho, mu=e.mu)
    check_positive(1, schatten_p=e.schatten_p)
    check_positive(2, row_power=e.row_power)
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
        data = same_samples(views, "views")
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
        note(self, talk)
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
        data = same_samples(views, "views")
        if list(data) != self.client_ids_:
            raise ValueError(f"this model needs the views {self.client_ids_}, got {list(data)}")
        for cid, X in data.items():
            d = self._models[cid].anchors.points.shape[1]
            if X.shape[1] != d:
                raise ValueError(f"view {cid!r} has {X.shape[1]} features, it had {d} when the model was fitted")
        return sum(self._models[cid].score(X) for cid, X in data.items()).argmax(axis=1)
