"""SFOMVC for clients with rows of their own: anchors to clusters, and a tensor over clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve
from sklearn.metrics import pairwise_distances_argmin

from fmtc.kernels.alignment import match_clusters
from fmtc.kernels.couplings import tsvt, update_dual
from fmtc.kernels.embedding import nearest_orthonormal
from fmtc.privacy.protection import Protection
from fmtc.protocol.base import Content, Nothing, Phase, above, array, number
from fmtc.protocol.mixture.em import is_order
from fmtc.protocol.state import RoundReport
from fmtc.runtime.driver import RoundRecord

from .anchors import AnchorCenters, AnchorClient, AnchorDistances, Anchors, AnchorServer, AnchorSettings, AnchorWeights
from .base import (
    Array,
    Baseline,
    Data,
    FederatedMethod,
    LoopPhase,
    check_choice,
    check_number,
    check_positive,
    check_whole,
    count,
    in_order,
    kmeans,
    no_more_than,
    required,
    run_locally,
    seed_of,
)
from .fed_kmeans import SERVER, merge_centers
from .fed_spectral import root_inverse

EPS = 1e-8  # smoothing of the row norms of P
F_CURVATURE = 2.0  # curvature of ||B P - F||² in F
STARTS = ("local", "global")
UNITS = ("relative", "absolute")


# ------------------------------------------------------------------------------------------------ settings and states


@dataclass(frozen=True)
class SFOMVCSettings(AnchorSettings):
    """What decides a run of `SFOMVC` besides the data; the names are those of its parameters."""

    beta: float = 0.4
    gamma: float = 0.01
    schatten_p: float = 1.0
    row_power: float = 1.0
    units: str = "relative"
    rho: float = 1.0
    mu: float = 0.3
    growth: float = 1.1
    max_iter: int = 100
    tol: float = 1e-3
    start: str = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(max_iter=self.max_iter)
        check_number(beta=self.beta, gamma=self.gamma, tol=self.tol)
        check_number(1, growth=self.growth)
        check_positive(rho=self.rho, mu=self.mu)
        check_positive(1, schatten_p=self.schatten_p)
        check_positive(2, row_power=self.row_power)
        check_choice(UNITS, units=self.units)
        check_choice(STARTS, start=self.start)


@dataclass(frozen=True)
class Ties:
    """How rows are tied to anchors, with columns of about the same weight."""

    B: sp.csr_array  # n x a, weights of anchors over the root of their column sums
    gram: Array  # a x a, BᵀB
    scale: Array  # a, what the columns of weights are multiplied by

    @classmethod
    def of(cls, weights: sp.csr_array) -> Ties:
        """From weights of anchors, (n, a)."""
        mass = weights.sum(axis=0)
        scale = 1 / np.sqrt(np.where(mass > 0, mass, 1))
        B = sp.csr_array(weights.multiply(scale))
        return cls(B, (B.T @ B).toarray(), scale)

    @property
    def curvature(self) -> float:
        """Mean curvature of ``||B P - F||²`` in a direction of P."""
        return 2 * float(np.trace(self.gram)) / len(self.gram)


@dataclass(frozen=True)
class Assignment:
    """The variables of one client, and the steps on them."""

    P: Array  # a x k
    F: Array  # n x k; orthonormal columns after each step
    N: Array  # n x k, none below 0
    dual: Array  # n x k, of F = N
    score: Array  # n x k, N before it was cut at 0; the largest entry of a row is its cluster

    @classmethod
    def of(cls, ties: Ties, labels: Array, k: int, gamma: float) -> Assignment:
        """Start from a partition: F is its scaled indicator, P the ridge regression of F on the anchors."""
        indicator = np.eye(k)[labels]
        F = indicator * root_inverse(indicator.sum(axis=0))
        P = solve(ties.gram + max(gamma, EPS) * np.eye(len(ties.gram)), ties.B.T @ F, assume_a="pos")
        return cls(P, F, F, np.zeros_like(F), F)

    def numbered(self, order: Array) -> Assignment:
        """The same clusters in another order, before the first step."""
        F = self.F[:, order]
        return replace(self, P=self.P[:, order], F=F, N=F, score=F)

    def step(self, ties: Ties, anchor: Array, *, rho: float, mu: float, gamma: float, q: float) -> Assignment:
        """P, then F, then N, each the minimiser with all else fixed; then the dual."""
        theta = q / 2 * (np.square(self.P).sum(axis=1) + EPS) ** (q / 2 - 1)
        lhs = 2 * ties.gram + np.diag(2 * gamma * theta + rho)
        P = solve(lhs, 2 * (ties.B.T @ self.F) + rho * anchor, assume_a="pos")
        F = nearest_orthonormal(2 * (ties.B @ P) + mu * self.N - self.dual)
        score = F + self.dual / mu
        N = np.maximum(score, 0)
        return Assignment(P, F, N, self.dual + mu * (F - N), score)

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
    """One client of `SFOMVC` between messages."""

    ties: Ties | None = None
    P: Array | None = None  # the variables; see `Assignment`
    F: Array | None = None
    N: Array | None = None
    dual: Array | None = None
    score: Array | None = None

    @property
    def part(self) -> Assignment:
        """The variables."""
        return Assignment(*required(self, *VARIABLES))

    def moved_to(self, part: Assignment) -> ProjectionClient:
        """The client with other variables."""
        return replace(self, **vars(part))

    def fitted(self) -> ProjectionModel:
        """What it keeps for new rows."""
        anchors, ties, P = required(self, "anchors", "ties", "P")
        return ProjectionModel(anchors, ties.scale[:, None] * P)


VARIABLES = ("P", "F", "N", "dual", "score")


@dataclass(frozen=True)
class ProjectionServer(AnchorServer):
    """The server of `SFOMVC`; slice t of every stack belongs to ``client_ids[t]``."""

    P: Array | None = None  # a x k x m
    Q: Array | None = None  # a x k x m, consensus
    Y: Array | None = None  # a x k x m, dual
    growth: float = 1.0  # factor on rho and mu by now
    unit: float = 1.0  # of beta/rho
    orders: Mapping[str, Array] = field(default_factory=dict)  # the cluster of a client that takes each common number


class Residuals(NamedTuple):
    """How far a round of `SFOMVC` is from the end."""

    consensus: float  # ||P - Q|| / ||P||
    indicator: float  # largest ||F - N|| of a client


# ------------------------------------------------------------------------------------------------------------- phases


class TieRows(AnchorWeights):
    """The width to all clients, which tie their rows to the anchors."""

    def reply(
        self, client: Any, ask: AnchorWeights.Ask, settings: AnchorSettings, round_no: int
    ) -> tuple[ProjectionClient, Nothing]:
        """Weights of the nearest anchors, brought to columns of about the same weight."""
        tied, nothing = super().reply(client, ask, settings, round_no)
        return replace(tied, B=None, ties=Ties.of(tied.B)), nothing


class FirstAnswer(Content):
    """The first P of one client."""

    P: Array = array(
        "a k", "P, which sends anchors to clusters", "Near which anchors each of the client's clusters lies."
    )


class Start(Phase):
    """Each client's first clusters; the server gives them common numbers."""

    name = "start"
    protect = Protection("A projection learnt from all rows.")
    doing = "finding its first clusters"
    Answer = FirstAnswer

    class Ask(Content):
        """Common centres."""

        centers: Array | None = array(
            "c d", "common centres, whose nearest rows are the first clusters; at most k",
            "Where the groups of all clients together lie.", when='with start="global"', check=no_more_than("k"),
        )  # fmt: skip

    def asks(self, server: ProjectionServer, settings: SFOMVCSettings) -> dict[str, Any]:
        """Common centres, made of those that anchors were made of, if the start is a common one."""
        C = None
        if settings.start == "global":
            centers, counts = required(server, "centers", "counts")
            seed = seed_of(settings.seed, SERVER, "start")
            C, _ = merge_centers(centers, counts, settings.n_clusters, seed, settings.n_init)
        return dict.fromkeys(server.client_ids, self.Ask(centers=C))

    def reply(
        self, client: ProjectionClient, ask: Ask, settings: SFOMVCSettings, round_no: int
    ) -> tuple[ProjectionClient, FirstAnswer]:
        """Clusters by the nearest of the common centres; without those, by k-means of its own."""
        (ties,) = required(client, "ties")
        if ask.centers is None:
            seed = seed_of(settings.seed, client.client_id, "start")
            _, labels = kmeans(client.X, settings.n_clusters, seed, n_init=settings.n_init)
        else:
            labels = pairwise_distances_argmin(client.X, ask.centers)
        part = Assignment.of(ties, labels, settings.n_clusters, settings.gamma)
        return client.moved_to(part), FirstAnswer(P=part.P)

    def reduce(
        self, server: ProjectionServer, answers: MutableMapping[str, FirstAnswer], settings: SFOMVCSettings
    ) -> ProjectionServer:
        """The first stack, its clusters numbered alike, and the consensus."""
        (anchors,) = required(server, "anchors")
        places = (lambda P: _places(P, anchors)) if settings.start == "local" else None
        return first_stack(server, answers, settings, places)


def first_stack(
    server: ProjectionServer,
    answers: Mapping[str, FirstAnswer],
    settings: SFOMVCSettings,
    places: Callable[[Array], Array] | None,
) -> ProjectionServer:
    """The first stack and consensus; clusters of different clients at the same places take the same number.

    `places` finds them from a client's P; None leaves the numbers as they are.
    """
    P = np.stack([answer.P for answer in in_order(server, answers)], axis=2)
    orders: dict[str, Array] = {}
    if places is not None:
        found = match_clusters([places(P[:, :, t]) for t in range(P.shape[2])])
        P = np.stack([P[:, order, t] for t, order in enumerate(found)], axis=2)
        orders = dict(zip(server.client_ids, found, strict=True))
    unit = largest_value(P) ** (2 - settings.schatten_p) if settings.units == "relative" else 1.0
    Q = np.ascontiguousarray(prox(P, unit * settings.beta / settings.rho, settings.schatten_p))
    return replace(server, P=P, Q=Q, Y=np.zeros_like(P), orders=orders, unit=unit)


class Round(LoopPhase):
    """P and F at the clients, the consensus at the server. A client that does not answer keeps its last P."""

    name = "round"
    protect = Protection("A projection learnt from all rows.", few_rows=True)
    doing = "in a round"
    resumes = True
    persists = True

    class Ask(Content):
        """What the client's P is drawn towards."""

        anchor: Array = array(
            "a k", "Q - Y/rho, the only combination of consensus and dual that P needs",
            "What the other clients' P have in common with the client's own.",
        )  # fmt: skip
        growth: float = number("factor on rho and mu in this round", "The number of rounds.", check=above(0))
        order: Array | None = array(
            "k", "the client's cluster that takes each common number", "Which clusters of the others are like its own.",
            kind="int", when='in the first round after start="local"', check=is_order,
        )  # fmt: skip

    class Answer(Content):
        """One client's part."""

        P: Array = array(
            "a k", "P, which sends anchors to clusters", "Near which anchors each of the client's clusters lies."
        )
        gap: float = number(
            "||F - N||, for the stop rule",
            "How far the client's clusters are from settled.",
            check=above(-1e-300),
        )

    def asks(self, server: ProjectionServer, settings: SFOMVCSettings) -> dict[str, Any]:
        """Each client's slice of Q - Y/rho; in the first round, its common numbers."""
        Q, Y = required(server, "Q", "Y")
        anchors = Q - Y / (settings.rho * server.growth)
        orders = {} if server.round_no else server.orders
        return {
            cid: self.Ask(anchor=np.ascontiguousarray(anchors[:, :, t]), growth=server.growth, order=orders.get(cid))
            for t, cid in enumerate(server.client_ids)
        }

    def reply(
        self, client: ProjectionClient, ask: Ask, settings: SFOMVCSettings, round_no: int
    ) -> tuple[ProjectionClient, Answer]:
        """One step on all variables."""
        (ties,), part = required(client, "ties"), client.part
        if ask.order is not None:
            part = part.numbered(ask.order)
        rho, mu = settings.rho * ask.growth, settings.mu * ask.growth
        if settings.units == "relative":
            rho, mu = rho * ties.curvature, mu * F_CURVATURE
        part = part.step(ties, ask.anchor, rho=rho, mu=mu, gamma=settings.gamma, q=settings.row_power)
        return replace(client.moved_to(part), round_no=round_no), self.Answer(P=part.P, gap=part.gap)

    def reduce(
        self, server: ProjectionServer, answers: MutableMapping[str, Answer], settings: SFOMVCSettings
    ) -> tuple[ProjectionServer, RoundReport]:
        """``Q = prox(P + Y/rho)``, ``Y += rho (P - Q)``; the report has both residuals of the stop rule."""
        before, Y = required(server, "P", "Y")
        rho = settings.rho * server.growth
        slices = [answers[cid].P if cid in answers else before[:, :, t] for t, cid in enumerate(server.client_ids)]
        P = np.stack(slices, axis=2)
        Q = prox(P + Y / rho, server.unit * settings.beta / rho, settings.schatten_p)
        Y = np.ascontiguousarray(update_dual(Y, P, Q, rho))
        apart = float(np.linalg.norm(P - Q) / (np.linalg.norm(P) or 1))
        gap = max(answer.gap for answer in answers.values())
        report = RoundReport(objective=float("nan"), primal_residual=apart, dual_residual=gap)
        growth, number = server.growth * settings.growth, server.round_no + 1
        return replace(server, P=P, Q=np.ascontiguousarray(Q), Y=Y, growth=growth, round_no=number), report


def prox(T: Array, tau: float, p: float) -> Array:
    """Tensor singular value thresholding of a stack (a, k, m) as (a, m, k): the Fourier transform is along clusters."""
    return tsvt(T.transpose(0, 2, 1), tau, p).transpose(0, 2, 1)


def largest_value(T: Array) -> float:
    """The largest singular value of a stack that `prox` would shrink; 1 where all are 0."""
    slices = np.fft.rfft(T, axis=1).transpose(1, 0, 2)
    return float(np.linalg.norm(slices, ord=2, axis=(1, 2)).max()) or 1.0


class Finish(Phase):
    """Each row takes the largest entry of its F."""

    name = "finish"
    doing = "finding its clusters"
    resumes = True

    def reply(
        self, client: ProjectionClient, ask: Nothing, settings: SFOMVCSettings, round_no: int
    ) -> tuple[ProjectionClient, Nothing]:
        """Labels, and the map for new rows."""
        return replace(client, labels=client.part.score.argmax(axis=1), model=client.fitted()), Nothing()


class FederatedSFOMVC(FederatedMethod):
    """SFOMVC over common anchors: the phases of a run.

    centers    each client's centres; the server makes anchors of them
    distances  how far rows are from the anchors; the server sets the width of the weights
    weights    each client ties its rows to the anchors
    start      each client's first clusters; the server gives them common numbers
    round      P and F at the clients, the consensus at the server      until both residuals are small
    finish     each row takes its cluster
    """

    name = "sfomvc"
    opening = (AnchorCenters(), AnchorDistances(), TieRows(), Start())
    loop = Round()
    closing = (Finish(),)
    settings_type = SFOMVCSettings
    client_type, server_type = ProjectionClient, ProjectionServer
    saved = VARIABLES

    def without(self, server: ProjectionServer, absent: set[str]) -> ProjectionServer:
        """The server without some clients, before the first round is done."""
        stay = [t for t, cid in enumerate(server.client_ids) if cid not in absent]
        stacks = {name: getattr(server, name) for name in ("P", "Q", "Y")}
        kept = {name: A[:, :, stay] for name, A in stacks.items() if A is not None}
        return replace(super().without(server, absent), **kept)

    def converged(self, history: Sequence[RoundRecord], settings: SFOMVCSettings) -> str | None:
        """Both residuals are small."""
        last, tol = history[-1], settings.tol
        if not (last.primal_residual < tol and last.dual_residual < 10 * tol):
            return None
        return f"P and its consensus differ by less than tol={tol:g} after {last.round_no} rounds"


METHOD = FederatedSFOMVC()


def _places(P: Array, anchors: Array) -> Array:
    """Where the clusters of a client lie around their middle: means of the anchors that lead to them; (k, d)."""
    weight = np.maximum(P, 0)
    total = weight.sum(axis=0)
    places = (weight / np.where(total > 0, total, 1)).T @ anchors
    return places - places.mean(axis=0)


@dataclass(repr=False, eq=False, kw_only=True)
class SFOMVC(Baseline):
    """SFOMVC (Feng et al. 2025) for clients with rows of their own: anchors to clusters, a tensor over clients.

    ``min sum_t { ||B_t P_t - F_t||² + gamma sum_i ||p_i^t||^q } + beta ||P||_Sp^p`` over F_tᵀF_t = I, F_t >= 0, where
    B_t ties the rows of client t to common anchors (columns over the root of their sums), P_t (a x k) sends anchors to
    clusters and F_t is a scaled indicator: labels come out in one step. The Schatten-p norm is that of the stack
    P (a x m x k), Fourier transform along clusters. By ADMM: clients update P_t, F_t; the server the consensus.
    `labels_` are the largest entries of F_t; new rows take ``argmax B(x) P_t``, which may differ near a border.

    Provenance: a re-implementation in spirit, from the abstract only; neither full text nor code was available. In the
    paper each client has a view of the same samples. Here rows differ, so what has a common
    shape is P_t, over common anchors; all updates, constants, the start and the anchors are ours.

    Parameters
    ----------
    n_clusters : int
    beta : float
        Weight of the tensor norm; in relative units ``beta/rho`` is the part of the largest singular value of the first
        stack that is taken off all of them. With 0, clients do not influence each other after the start.
    gamma : float
        Weight of the row-sparse penalty.
    schatten_p : float
        0 < p <= 1.
    row_power : float
        The q of the penalty, 0 < q <= 2.
    n_anchors : int or "auto"
        As in `FedSpectral`, but ``"auto"`` is 10 for each cluster.
    n_nearest, bandwidth_scale
        As in `FedSpectral`.
    start : {"local", "global"}
        First clusters of a client. "local": by its own k-means, matched between clients by the anchors near them.
        "global": by the nearest of common centres, which separate clients, not clusters, where clients differ by an
        offset.
    units : {"relative", "absolute"}
        What `beta`, `rho` and `mu` are multiples of. "relative": the singular values of the first stack, and the mean
        curvature of a client's loss in P_t and in F_t. "absolute" takes them as they are; with ``beta=0.1`` and
        ``mu=1``, rows then hardly leave the clusters of the start.
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
    >>> from fmtc_bench.baselines import SFOMVC
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("offset", seed=0)
    >>> model = SFOMVC(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    >>> model.history_[-1].consensus < 1e-3
    True
    """

    beta: float = 0.4
    gamma: float = 0.01
    schatten_p: float = 1.0
    row_power: float = 1.0
    n_anchors: int | str = "auto"
    n_nearest: int = 5
    bandwidth_scale: float = 1.0
    start: str = "local"
    units: str = "relative"
    rho: float = 1.0
    mu: float = 0.3
    growth: float = 1.1
    max_iter: int = 100
    tol: float = 0.001
    n_init: int = 10

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, ProjectionModel], Mapping[str, Array]]:
        result, transport = run_locally(METHOD, SFOMVCSettings.of(self, seed), data)
        self.anchors_ = result.server.anchors
        self.history_ = [Residuals(record.primal_residual, record.dual_residual) for record in result.history]
        self.n_iter_ = len(self.history_)
        count(self, transport)
        return transport.outcome()
