"""Multitask spectral clustering: MTSC, its federated form FedMTSC, and each client alone (SEC)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg

from fmtc.kernels.projection import Rows, column_means
from fmtc.privacy.protection import Protection
from fmtc.protocol.base import Content, Nothing, Phase, above, array, number
from fmtc.protocol.method import ClientResult
from fmtc.protocol.state import RoundReport, shared_width, stream
from fmtc.runtime.driver import RoundRecord

from .base import (
    Array,
    Baseline,
    Centers,
    CountingTransport,
    Data,
    FederatedMethod,
    LoopPhase,
    MethodSettings,
    SpectralGraph,
    check_choice,
    check_count_or_auto,
    check_number,
    check_positive,
    check_whole,
    count,
    in_order,
    kmeans,
    required,
    run_locally,
    seed_of,
    unit_rows,
)

EPS = 1e-8  # added to squared row norms (times a typical one in relative units): keeps the weights finite
DENSE_UP_TO = 700  # rows; then a full decomposition is as fast as an iterative one
RESIDUAL = 3e-7  # target of ||M v - lambda v|| for an eigenvector
UNITS = ("relative", "absolute")


# ------------------------------------------------------------------------------------------------ settings and states


@dataclass(frozen=True)
class MTSCSettings(MethodSettings):
    """What decides a run of `MTSC` besides the data; the names are those of its parameters."""

    alpha: float = 1.0
    gamma: float = 0.1
    row_power: float = 1.0
    units: str = "relative"
    n_neighbors: int | str = "auto"
    bandwidth_scale: float = 1.0
    nonmutual_weight: float = 1.0
    max_iter: int = 50
    tol: float = 1e-6
    n_init: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(alpha=self.alpha, gamma=self.gamma, bandwidth_scale=self.bandwidth_scale)
        check_positive(2, row_power=self.row_power)
        check_positive(1, nonmutual_weight=self.nonmutual_weight)
        check_whole(max_iter=self.max_iter, n_init=self.n_init)
        check_number(tol=self.tol)
        check_count_or_auto(n_neighbors=self.n_neighbors)
        check_choice(UNITS, units=self.units)


@dataclass(frozen=True)
class LinearMap:
    """Clusters by an explicit map, f(x) = Wᵀx + b, and centres among rows of unit length."""

    W: Array  # d x k
    b: Array  # k
    clusters: Centers

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        return self.clusters.assign(unit_rows(X @ self.W + self.b))


@dataclass(frozen=True)
class MTSCClient:
    """One client between messages. Nothing of it leaves but what a phase puts in its answer."""

    client_id: str
    X: Any  # n x d, as it came
    rows: Rows | None = None  # n x d, centred, in the units of the run
    laplacian: Any = None  # n x n
    gram: Array | None = None  # d x d, where d is the smaller side
    F: Array | None = None  # n x k
    W: Array | None = None  # d x k, in the units of rows
    round_no: int = 0
    model: LinearMap | None = None
    labels: Array | None = None  # n


@dataclass(frozen=True)
class MTSCServer:
    """The server between messages; row t of each array belongs to ``client_ids[t]``."""

    client_ids: tuple[str, ...]
    round_no: int = 0
    squares: Array | None = None  # m x d, squared norm of each row of W, as each client last sent it
    losses: Array | None = None  # m
    factor: float = 1.0  # of the penalty, fixed after the first round
    eps: float = EPS

    @property
    def total(self) -> Array:
        """Squared norm of each row of [W_1 ... W_m]; (d,)."""
        (squares,) = required(self, "squares")
        total: Array = np.sum(squares, axis=0)
        return total


# ------------------------------------------------------------------------------------------------------------- phases


class Prepare(Phase):
    """Each client makes its graph and brings its rows to the units of the run."""

    name = "prepare"
    doing = "preparing its graph"
    persists = True
    rebuilds = True
    threads = True

    def reply(
        self, client: MTSCClient, ask: Nothing, settings: MTSCSettings, round_no: int
    ) -> tuple[MTSCClient, Nothing]:
        """Graph of the rows, and the rows in the units of the run."""
        width, nonmutual_weight = settings.bandwidth_scale, settings.nonmutual_weight
        laplacian = SpectralGraph.of(client.X, settings.n_neighbors, width, nonmutual_weight).graph.laplacian
        X = client.X.astype(np.float64, copy=False)
        rows = Rows(X, column_means(X))
        n, d = rows.shape
        gram = rows.gram("d" if d <= n else "n")
        if settings.units == "relative" and (energy := rows.sum_of_squares()) > 0:
            unit = energy * float(np.square(gram / energy).sum())
            rows, gram = replace(rows, gamma=unit**-0.5), gram / unit
        laplacian = laplacian.astype(np.float64)
        return replace(client, rows=rows, laplacian=laplacian, gram=gram if d <= n else None), Nothing()


class Round(LoopPhase):
    """F and W at the clients, weights of the features at the server.

    A client that does not answer keeps its last part of the sums.
    """

    name = "round"
    protect = Protection("One number for each column, and a loss over all rows.", few_rows=True)
    doing = "in a round"
    resumes = True
    persists = True

    class Ask(Content):
        """Weights of the features, the same for all clients."""

        theta: Array | None = array(
            "d", "weight of the penalty on each feature", "Which features the maps of all clients together use.",
            when="after the first round", check=above(0),
        )  # fmt: skip

    class Answer(Content):
        """One client's part of two sums; the server needs the sums over clients alone."""

        squares: Array = array(
            "d", "squared norm of each row of W",
            "How much each feature helps to separate the client's clusters, not how; about 0 where it never varies.",
            check=above(-1e-300),
        )  # fmt: skip
        loss: float = number(
            "Tr(FᵀLF) + alpha ‖XW + 1bᵀ − F‖², the client's part of the objective",
            "How well the client's graph falls into clusters that follow the features linearly.",
        )

    def asks(self, server: MTSCServer, settings: MTSCSettings) -> dict[str, Any]:
        """Weights from the rows of all W; in the first round there are none yet."""
        theta = None
        if server.round_no:
            p = settings.row_power
            theta = server.factor * p / 2 * (server.total + server.eps) ** (p / 2 - 1)
        return dict.fromkeys(server.client_ids, self.Ask(theta=theta))

    def reply(self, client: MTSCClient, ask: Ask, settings: MTSCSettings, round_no: int) -> tuple[MTSCClient, Answer]:
        """The best F and W for given weights of the features."""
        rows, L = required(client, "rows", "laplacian")
        alpha = settings.alpha
        n, d = rows.shape
        ridge = settings.gamma / alpha * (np.ones(d) if ask.theta is None else ask.theta)
        solve, residual = _regression(rows, client.gram, ridge)
        start = client.F
        if start is None:
            start = stream(settings.seed, client.client_id, "start").standard_normal((n, settings.n_clusters))
        # M = L + alpha (H - Xc Q⁻¹ Xcᵀ), brought to [0, 1]
        F = bottom_eigenvectors(lambda V: (L @ V + alpha * residual(V - V.mean(axis=0))) / (2 + alpha), start)
        centred = F - F.mean(axis=0)
        W = solve(centred)
        loss = np.sum(F * (L @ F)) + alpha * np.square(rows @ W - centred).sum()
        answer = self.Answer(squares=np.square(W).sum(axis=1), loss=float(loss))
        return replace(client, F=F, W=W, round_no=round_no), answer

    def reduce(
        self, server: MTSCServer, answers: MutableMapping[str, Answer], settings: MTSCSettings
    ) -> tuple[MTSCServer, RoundReport]:
        """Add up; the first round fixes the units of the penalty."""
        p = settings.row_power
        if server.squares is None or server.losses is None:
            shared_width({cid: len(answer.squares) for cid, answer in answers.items()})
            found = in_order(server, answers)
            squares, losses = np.array([a.squares for a in found]), np.array([a.loss for a in found])
        else:
            squares, losses = server.squares.copy(), server.losses.copy()
            for t, cid in enumerate(server.client_ids):
                if cid in answers:
                    squares[t], losses[t] = answers[cid].squares, answers[cid].loss
        server = replace(server, squares=squares, losses=losses, round_no=server.round_no + 1)
        total = server.total
        if settings.units == "relative" and server.round_no == 1:
            typical = float(np.square(total).sum() / total.sum()) if total.any() else 1.0
            factor = 2 / p * typical ** (1 - p / 2)  # theta is 1 for a typical feature
            server = replace(server, factor=factor, eps=EPS * typical)
        penalty = settings.gamma * server.factor * float(((total + server.eps) ** (p / 2)).sum())
        return server, RoundReport(objective=sum(losses.tolist()) + penalty)


class Finish(Phase):
    """k-means at each client."""

    name = "finish"
    doing = "finding its clusters"
    resumes = True

    def reply(
        self, client: MTSCClient, ask: Nothing, settings: MTSCSettings, round_no: int
    ) -> tuple[MTSCClient, Nothing]:
        """k-means on the rows of F brought to unit length, and the map that goes with it."""
        F, W, rows = required(client, "F", "W", "rows")
        # with the columns side by side where the solvers leave them so: a state from a file has lost it, and sums in
        # another order change bits
        F = np.asfortranarray(F) if _is_small(*F.shape) else F
        W = np.asfortranarray(W) if client.gram is not None else W
        seed = seed_of(settings.seed, client.client_id, "kmeans")
        clusters, labels = kmeans(unit_rows(F), settings.n_clusters, seed, n_init=settings.n_init)
        W = rows.gamma * W
        return replace(client, model=LinearMap(W, F.mean(axis=0) - rows.mean @ W, clusters), labels=labels), Nothing()


class FederatedMTSC(FederatedMethod):
    """Multitask spectral clustering: the phases of a run.

    prepare  graph, rows in the units of the run
    round    F and W at the clients, weights of the features at the server      until the objective settles
    finish   k-means
    """

    name = "fed-mtsc"
    opening = (Prepare(),)
    loop = Round()
    closing = (Finish(),)
    settings_type, model_types = MTSCSettings, (LinearMap,)
    client_type, server_type = MTSCClient, MTSCServer
    saved = ("F", "W")
    changeable = ("max_iter", "tol", "n_init")

    def converged(self, history: Sequence[RoundRecord], settings: MTSCSettings) -> str | None:
        """The objective changes by less than the part `tol` of itself; with p = 2 one round is exact."""
        if settings.row_power == 2:
            return "one round is exact with row_power=2"
        values = [record.objective for record in history[-2:]]
        if len(values) < 2 or abs(values[0] - values[1]) > settings.tol * abs(values[1]):
            return None
        return f"the objective changed by less than {settings.tol:g} of itself in round {history[-1].round_no}"

    def common(self, server: MTSCServer) -> dict[str, Array]:
        """The weight of each feature over all clients, d."""
        return {"feature_weights": np.sqrt(server.total)}

    def result(self, client: MTSCClient) -> ClientResult:
        """Model, labels and embedding of a client after the run."""
        return ClientResult(*required(client, "model", "labels", "F"))


METHOD = FederatedMTSC()


# --------------------------------------------------------------------------------------------------- a client's solver


def _regression(rows: Rows, gram: Array | None, ridge: Array) -> tuple[Callable[[Array], Array], ...]:
    """Regression on the rows with a ridge for each feature: Q = XcᵀXc + diag(ridge), factored on the smaller side.

    Returns
    -------
    solve : centred F -> Q⁻¹ XcᵀF; (n, k) -> (d, k)
    residual : centred F -> F - Xc Q⁻¹ XcᵀF; (n, k) -> (n, k)
    """
    if gram is not None:
        Q = _factor(gram.copy(), ridge)

        def solve(F: Array) -> Array:
            return cho_solve(Q, rows.T @ F, check_finite=False)

        return solve, lambda F: F - rows @ solve(F)
    # Woodbury, with X' = Xc diag(ridge)^-1/2:  Q⁻¹ Xcᵀ = diag(ridge)^-1/2 X'ᵀ (X'X'ᵀ + I)⁻¹
    assert rows.mean is not None
    root = ridge**-0.5
    X = sp.csr_array(rows.X @ sp.diags_array(root)) if sp.issparse(rows.X) else rows.X * root
    weighted = Rows(X, rows.mean * root, rows.gamma)
    B = _factor(weighted.gram("n"), 1.0)

    def residual(F: Array) -> Array:
        return cho_solve(B, F, check_finite=False)

    return lambda F: root[:, None] * (weighted.T @ residual(F)), residual


def _factor(A: Array, ridge: Array | float) -> tuple[Array, bool]:
    """Cholesky factor of A + diag(ridge), in place of A."""
    A[np.diag_indices_from(A)] += ridge
    return cho_factor(A, lower=True, overwrite_a=True, check_finite=False)


def _is_small(n: int, k: int) -> bool:
    """Whether a full decomposition is as fast as an iterative one."""
    return n <= DENSE_UP_TO or 5 * k >= n


def bottom_eigenvectors(apply: Callable[[Array], Array], start: Array) -> Array:
    """Eigenvectors of the k smallest eigenvalues of a symmetric operator with values in [0, 1]; (n, k) -> (n, k).

    A dense solver up to 700 rows; beyond, block iteration from `start`, and Lanczos where that does not converge.
    """
    n, k = start.shape
    if _is_small(n, k):
        M = apply(np.eye(n))
        return eigh((M + M.T) / 2, subset_by_index=(0, k - 1), check_finite=False)[1]
    operator = LinearOperator((n, n), matvec=lambda v: apply(v.reshape(n, 1)).ravel(), matmat=apply, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the residual below decides whether it converged
        lam, V = lobpcg(operator, start, largest=False, tol=RESIDUAL, maxiter=100)
    if np.linalg.norm(apply(V) - V * lam, axis=0).max() <= 10 * RESIDUAL:
        return V
    return eigsh(operator, k=k, which="SA", v0=V.sum(axis=1), ncv=min(n, max(4 * k, 40)), tol=RESIDUAL)[1]


@dataclass(repr=False, eq=False, kw_only=True)
class _Mapped(Baseline):
    """What MTSC, FedMTSC and SEC have in common: settings of a client's part and what a run leaves behind."""

    alpha: float = 1.0
    gamma: float = 0.1
    units: str = "relative"
    n_neighbors: int | str = "auto"
    bandwidth_scale: float = 1.0
    nonmutual_weight: float = 1.0
    n_init: int = 10

    def _fit(self, data: Data, seed: int) -> tuple[dict[str, LinearMap], dict[str, Array]]:
        return self._run(data, seed).outcome()

    def _run(self, data: Data, seed: int) -> CountingTransport:
        result, transport = run_locally(METHOD, MTSCSettings.of(self, seed), data)
        self.history_ = [record.objective for record in result.history]
        self.n_iter_ = len(self.history_)
        self.feature_weights_ = np.sqrt(result.server.total)
        found = transport.results()
        self.embedding_ = {cid: client.embedding for cid, client in found.items()}
        self.projections_ = {cid: client.model.W for cid, client in found.items()}
        self.intercepts_ = {cid: client.model.b for cid, client in found.items()}
        self.cluster_centers_ = {cid: client.model.clusters.centers for cid, client in found.items()}
        return transport


@dataclass(repr=False, eq=False, kw_only=True)
class MTSC(_Mapped):
    """Multitask spectral clustering (Yang, Ma, Yang, Nie and Shen 2015).

    ``min sum_t { Tr(FᵀLF) + alpha ‖XW + 1bᵀ − F‖² } + gamma sum_i (||wⁱ||² + eps)^(p/2)`` over FᵀF = I, with wⁱ row i
    of [W_1 ... W_m]: each client learns its spectral embedding F together with a linear map that explains it, and the
    clients agree on which features the maps may use. Solved by reweighting: for given weights of the features,
    F (bottom eigenvectors), W and b of a client are found exactly, so that the objective never rises; then k-means on
    the rows of F, scaled to unit length. New rows are labelled by the map. The rows need not be in one place: see
    `FedMTSC`.

    Provenance: idea and terms from the paper's abstract, the objective from memory. Ours: intercept, smoothing (eps is
    1e-8 of a typical ||wⁱ||²), the form for more features than rows, and the relative units.

    Parameters
    ----------
    n_clusters : int
    alpha : float
        Weight of the linear map against the graph.
    gamma : float
        Weight of the penalty. In relative units it means the same for all data and every `row_power`: the cost of a
        feature of typical weight, relative to the variance along a typical direction of the data.
    row_power : float in (0, 2]
        The paper's p. Below 2, all clients drop the same features, and more of them the smaller p is. With 2 the
        clients do not influence each other (`SEC`).
    units : {"relative", "absolute"}
        "relative": each client divides its rows by one number, so that the mean eigenvalue of XcᵀXc (Xc: the centred
        rows), weighted by itself, is 1. The penalty gets a factor, fixed after the first iteration, that makes its
        derivative by ||wⁱ||² equal to gamma for a feature of typical ||wⁱ||² (the mean, again weighted by itself). The
        result then depends neither on the unit or the number of the rows nor on features that never vary. "absolute":
        the objective as written above, for the rows as given; the paper's alpha and gamma.
    n_neighbors, bandwidth_scale, nonmutual_weight
        Of the graph, as in `StSC`.
    max_iter : int
    tol : float
        Stop when the objective changes by less than this fraction of itself.
    n_init : int
        Restarts of k-means.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    history_ : list of float
        Objective after each iteration, with the smoothing.
    n_iter_ : int
    feature_weights_ : ndarray of shape (n_features,)
        ||wⁱ||, in the units of the run: how much the maps of all clients use each feature.
    embedding_, projections_, intercepts_, cluster_centers_ : dict of client to ndarray
        F (n_t, k); W (d, k) and b (k,) for rows as given; centres among rows of F of unit length (k, k).

    Examples
    --------
    >>> from fmtc_bench.baselines import MTSC
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("subspace", seed=0)
    >>> model = MTSC(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    >>> model.history_[-1] < model.history_[0]
    True
    """

    row_power: float = 1.0
    max_iter: int = 50
    tol: float = 1e-6


class FedMTSC(MTSC):
    """`MTSC` with rows that stay with their clients, which answer messages; the result is the same.

    In each round a client sends the squared norms of the rows of its W, d numbers, and its part of the objective. The
    server needs only the sums over clients. It sends the weight of each feature, d numbers.

    Provenance: ours; the published method has the rows in one place.

    Parameters
    ----------
    n_clusters, alpha, gamma, row_power, units, n_neighbors, bandwidth_scale, nonmutual_weight
        As in `MTSC`.
    max_iter, tol, n_init, random_state
        As in `MTSC`.

    Attributes
    ----------
    bytes_up_, bytes_down_, n_rounds_ : int
        What the clients sent and received, all together, and in how many exchanges.

    Examples
    --------
    >>> from fmtc_bench.baselines import FedMTSC
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("subspace", n_clients=4, n_features=20, seed=0)
    >>> model = FedMTSC(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    >>> model.bytes_up_ == 4 * model.n_iter_ * (20 + 1) * 8
    True
    """

    def _fit(self, data: Data, seed: int) -> tuple[dict[str, LinearMap], dict[str, Array]]:
        transport = self._run(data, seed)
        count(self, transport)
        return transport.outcome()


class SEC(_Mapped):
    """Spectral embedded clustering of each client by itself (Nie, Xu, Tsang and Zhang 2009).

    ``min Tr(FᵀLF) + alpha ‖XW + 1bᵀ − F‖² + gamma ||W||²`` over FᵀF = I: `MTSC` with p = 2, where each client is on
    its own and one iteration gives the exact solution. FMTC becomes this without collaboration. Nothing leaves a
    client.

    Provenance: objective from memory; units as in `MTSC`.

    Parameters
    ----------
    n_clusters, alpha, gamma, units, n_neighbors, bandwidth_scale, nonmutual_weight, n_init, random_state
        As in `MTSC`.

    Examples
    --------
    >>> from fmtc_bench.baselines import SEC
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("subspace", seed=0)
    >>> SEC(data.n_clusters, random_state=0).fit(data.X, silos=data.clients).n_iter_
    1
    """

    row_power, max_iter, tol = 2.0, 1, 0.0  # no parameters here
