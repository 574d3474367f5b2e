"""Multitask spectral clustering: MTSC, its federated form FedMTSC, and each client alone (SEC)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg

from ..client import stream
from ..kernels.graph import graph_of, knn_affinity
from ..kernels.projection import Rows, column_means
from ..runtime.local import LocalTransport
from .base import (
    Array,
    Baseline,
    Centers,
    Data,
    Talk,
    check_choice,
    check_count_or_auto,
    check_number,
    check_positive,
    check_whole,
    kmeans,
    seed_of,
    unit_rows,
    unknown,
)

EPS = 1e-8  # added to squared row norms (times a typical one in relative units): keeps the weights finite
DENSE_UP_TO = 700  # rows; a full decomposition is then as fast as an iterative one
RESIDUAL = 3e-7  # ||M v - lambda v|| asked of an eigenvector
UNITS = ("relative", "absolute")


# -------------------------------------------------------------------------------------------- settings and messages


@dataclass(frozen=True)
class Settings:
    """What decides a run besides the data; checks its own values."""

    n_clusters: int
    alpha: float
    gamma: float
    row_power: float
    units: str
    n_neighbors: int | str
    bandwidth_scale: float
    one_sided: float
    max_iter: int
    tol: float
    n_init: int
    seed: int

    def __post_init__(self) -> None:
        check_positive(alpha=self.alpha, gamma=self.gamma, bandwidth_scale=self.bandwidth_scale)
        check_positive(2, row_power=self.row_power)
        check_positive(1, one_sided=self.one_sided)
        check_whole(max_iter=self.max_iter, n_init=self.n_init)
        check_number(tol=self.tol)
        check_count_or_auto(n_neighbors=self.n_neighbors)
        check_choice(UNITS, units=self.units)


@dataclass(frozen=True)
class Down:
    """Everything the server ever sends, the same to all clients."""

    phase: str  # round or finish
    theta: Array | None = None  # round: d, weight of each feature's penalty; left out in the first, where all are 1


@dataclass(frozen=True)
class Up:
    """Everything a client ever sends."""

    squares: Array | None = None  # round: d, squared norm of each row of W; the server needs the sum over clients only
    loss: float | None = None  # round: Tr(FᵀLF) + alpha ||XW + 1bᵀ - F||²; again only the sum is needed


# ----------------------------------------------------------------------------------------------------------- client


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
class Client:
    """One client between messages. Nothing of it leaves but what `client_reply` puts in an `Up`."""

    client_id: str
    rows: Rows  # n x d, centred
    laplacian: Any  # n x n
    gram: Array | None  # d x d, where d is the smaller side
    F: Array | None = None  # n x k
    W: Array | None = None  # d x k, in the units of rows
    model: LinearMap | None = None
    labels: Array | None = None  # n


def open_client(client_id: str, X: Any, settings: Settings) -> Client:
    """Graph of the rows, and the rows in the units of the run."""
    affinity = knn_affinity(
        X, settings.n_neighbors, bandwidth_scale=settings.bandwidth_scale, nonmutual_weight=settings.one_sided
    )
    laplacian = graph_of(affinity).laplacian
    X = X.astype(np.float64, copy=False)
    rows = Rows(X, column_means(X))
    n, d = rows.shape
    gram = rows.gram("d" if d <= n else "n")
    if settings.units == "relative" and (energy := rows.sum_of_squares()) > 0:
        unit = energy * float(np.square(gram / energy).sum())
        rows, gram = replace(rows, gamma=unit**-0.5), gram / unit
    return Client(client_id, rows, laplacian.astype(np.float64), gram if d <= n else None)


def client_reply(client: Client, message: Down, settings: Settings) -> tuple[Client, Up]:
    """Answer one message of the server: the only way data leaves a client."""
    if message.phase == "round":
        return _step(client, message.theta, settings)
    if message.phase == "finish":
        return _finish(client, settings), Up()
    raise unknown(message.phase)


def _step(client: Client, theta: Array | None, settings: Settings) -> tuple[Client, Up]:
    """The best F and W for given weights of the features."""
    rows, L, alpha = client.rows, client.laplacian, settings.alpha
    n, d = rows.shape
    ridge = settings.gamma / alpha * (np.ones(d) if theta is None else theta)
    solve, residual = _regression(rows, client.gram, ridge)
    start = client.F
    if start is None:
        start = stream(settings.seed, client.client_id, "start").standard_normal((n, settings.n_clusters))
    # M = L + alpha (H - Xc Q⁻¹ Xcᵀ), brought to [0, 1]
    F = bottom_eigenvectors(lambda V: (L @ V + alpha * residual(V - V.mean(axis=0))) / (2 + alpha), start)
    centred = F - F.mean(axis=0)
    W = solve(centred)
    loss = np.sum(F * (L @ F)) + alpha * np.square(rows @ W - centred).sum()
    return replace(client, F=F, W=W), Up(np.square(W).sum(axis=1), float(loss))


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


def bottom_eigenvectors(apply: Callable[[Array], Array], start: Array) -> Array:
    """Eigenvectors of the k smallest eigenvalues of a symmetric operator with values in [0, 1]; (n, k) -> (n, k).

    A dense solver below 700 rows, else block iteration from `start` and, where it is not there in time, Lanczos.
    """
    n, k = start.shape
    if n <= DENSE_UP_TO or 5 * k >= n:
        M = apply(np.eye(n))
        return eigh((M + M.T) / 2, subset_by_index=(0, k - 1), check_finite=False)[1]
    operator = LinearOperator((n, n), matvec=lambda v: apply(v.reshape(n, 1)).ravel(), matmat=apply, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of what the residual below decides
        lam, V = lobpcg(operator, start, largest=False, tol=RESIDUAL, maxiter=100)
    if np.linalg.norm(apply(V) - V * lam, axis=0).max() <= 10 * RESIDUAL:
        return V
    return eigsh(operator, k=k, which="SA", v0=V.sum(axis=1), ncv=min(n, max(4 * k, 40)), tol=RESIDUAL)[1]


def _finish(client: Client, settings: Settings) -> Client:
    """k-means on the rows of F brought to unit length, and the map to go with it."""
    F, W, rows, cid = client.F, client.W, client.rows, client.client_id
    assert F is not None and W is not None and rows.mean is not None
    seed = seed_of(settings.seed, cid, "kmeans")
    clusters, labels = kmeans(unit_rows(F), settings.n_clusters, seed, n_init=settings.n_init)
    W = rows.gamma * W
    return replace(client, model=LinearMap(W, F.mean(axis=0) - rows.mean @ W, clusters), labels=labels)


# ----------------------------------------------------------------------------------------------------------- server


def alternate(ask: Callable[[Down], Mapping[str, Up]], settings: Settings) -> tuple[list[float], Array]:
    """Ask for F and W, weigh the features anew by the rows of all W, until the objective rests.

    Returns
    -------
    history : objective after each iteration
    squares : squared norm of each row of [W_1 ... W_m], shape (d,)
    """
    p, gamma = settings.row_power, settings.gamma
    history: list[float] = []
    theta = None
    factor, eps = 1.0, EPS
    for _ in range(settings.max_iter):
        answers = ask(Down("round", theta)).values()
        squares = np.sum([np.asarray(up.squares) for up in answers], axis=0)
        if settings.units == "relative" and not history:
            typical = float(np.square(squares).sum() / squares.sum()) if squares.any() else 1.0
            factor, eps = 2 / p * typical ** (1 - p / 2), EPS * typical  # theta is 1 for a typical feature
        loss = sum(up.loss or 0.0 for up in answers)
        history.append(loss + gamma * factor * float(((squares + eps) ** (p / 2)).sum()))
        if p == 2 or (len(history) > 1 and abs(history[-2] - history[-1]) <= settings.tol * abs(history[-1])):
            break
        theta = factor * p / 2 * (squares + eps) ** (p / 2 - 1)
    ask(Down("finish"))
    return history, squares


class MTSC(Baseline):
    """Multitask spectral clustering (Yang, Ma, Yang, Nie and Shen 2015).

    ``min sum_t { Tr(FᵀLF) + alpha ||XW + 1bᵀ - F||² } + gamma sum_i (||wⁱ||² + eps)^(p/2)`` over FᵀF = I, with wⁱ row i
    of [W_1 ... W_m]: each client learns its spectral embedding F together with a linear map that explains it, and the
    clients agree on which features the maps may use. Solved by reweighting: for given weights of the features,
    F (bottom eigenvectors), W and b of a client are found exactly, so that the objective never rises; then k-means on
    the rows of F, brought to unit length. New rows by the map. The rows need not be in one place: see `FedMTSC`.

    Provenance: idea and terms from the paper's abstract, the objective from memory. Ours: intercept, smoothing (eps is
    1e-8 of a typical ||wⁱ||²), the form for more features than rows, and the relative units.

    Parameters
    ----------
    n_clusters : int
    alpha : float
        Weight of the linear map against the graph.
    gamma : float
        Weight of the penalty. In relative units it means the same for all data: what a feature of typical weight
        costs, whatever `row_power`, against the variance along a typical direction of the data.
    row_power : float in (0, 2]
        The paper's p: below 2 features are dropped by all clients together, the more the smaller it is. With 2 the
        clients have nothing in common (`SEC`).
    units : {"relative", "absolute"}
        "relative": a client's rows are divided by a number of its own, so that the mean eigenvalue of XcᵀXc (Xc: the
        centred rows), weighted by itself, is 1. And the penalty takes a factor, fixed after the first iteration, with
        which its derivative by ||wⁱ||² is gamma for a feature of typical ||wⁱ||² (the mean, again weighted by itself).
        Then neither the unit of the rows matters nor their number nor features that never vary. "absolute": the
        objective as it stands, for the rows as they come; the paper's alpha and gamma.
    n_neighbors, bandwidth_scale, one_sided
        Of the graph, as in `StSC`.
    max_iter : int
    tol : float
        Stop when the objective changes by less than this part of itself.
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
        F (n_t, k); W (d, k) and b (k,) for rows as they come; centres among rows of F of unit length (k, k).

    Examples
    --------
    >>> from fmtc.baselines import MTSC
    >>> from fmtc.datasets import synthetic
    >>> data = synthetic("subspace", seed=0)
    >>> model = MTSC(data.n_clusters, random_state=0).fit(data.X, clients=data.clients)
    >>> model.history_[-1] < model.history_[0]
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        alpha: float = 1.0,
        gamma: float = 0.1,
        row_power: float = 1.0,
        units: str = "relative",
        n_neighbors: int | str = "auto",
        bandwidth_scale: float = 1.0,
        one_sided: float = 1.0,
        max_iter: int = 50,
        tol: float = 1e-6,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.gamma = gamma
        self.row_power = row_power
        self.units = units
        self.n_neighbors = n_neighbors
        self.bandwidth_scale = bandwidth_scale
        self.one_sided = one_sided
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state

    def _fit(self, data: Data, seed: int) -> tuple[dict[str, LinearMap], dict[str, Array]]:
        settings = self._settings(seed)
        clients = {cid: open_client(cid, X, settings) for cid, X in data.items()}

        def ask(message: Down) -> dict[str, Up]:
            replies = {cid: client_reply(client, message, settings) for cid, client in clients.items()}
            clients.update({cid: client for cid, (client, _) in replies.items()})
            return {cid: up for cid, (_, up) in replies.items()}

        self._alternate(ask, settings)
        return self._outcome(clients)

    def _settings(self, seed: int) -> Settings:
        names = [f.name for f in fields(Settings) if f.name != "seed"]
        return Settings(seed=seed, **{name: getattr(self, name) for name in names})

    def _alternate(self, ask: Callable[[Down], Mapping[str, Up]], settings: Settings) -> None:
        self.history_, squares = alternate(ask, settings)
        self.n_iter_ = len(self.history_)
        self.feature_weights_ = np.sqrt(squares)

    def _outcome(self, clients: Mapping[str, Client]) -> tuple[dict[str, LinearMap], dict[str, Array]]:
        models = {cid: client.model for cid, client in clients.items() if client.model is not None}
        self.embedding_ = {cid: client.F for cid, client in clients.items()}
        self.projections_ = {cid: model.W for cid, model in models.items()}
        self.intercepts_ = {cid: model.b for cid, model in models.items()}
        self.cluster_centers_ = {cid: model.clusters.centers for cid, model in models.items()}
        return models, {cid: client.labels for cid, client in clients.items() if client.labels is not None}


class FedMTSC(MTSC):
    """`MTSC` with rows that stay where they are: the same clients, answering messages, and the same result.

    Up, for each client and round: the squared norms of the rows of its W, d numbers, and its part of the objective.
    The server needs their sums alone, so they can be summed in secret. Down: the weight of each feature, d numbers.

    Provenance: ours; the published method has the rows in one place.

    Parameters
    ----------
    n_clusters, alpha, gamma, row_power, units, n_neighbors, bandwidth_scale, one_sided
        As in `MTSC`.
    max_iter, tol, n_init, random_state
        As in `MTSC`.

    Attributes
    ----------
    bytes_up_, bytes_down_ : int
        What the clients sent and received, all together.

    Examples
    --------
    >>> from fmtc.baselines import FedMTSC
    >>> from fmtc.datasets import synthetic
    >>> data = synthetic("subspace", n_clients=4, n_features=20, seed=0)
    >>> model = FedMTSC(data.n_clusters, random_state=0).fit(data.X, clients=data.clients)
    >>> model.bytes_up_ == 4 * model.n_iter_ * (20 + 1) * 8
    True
    """

    def _fit(self, data: Data, seed: int) -> tuple[dict[str, LinearMap], dict[str, Array]]:
        settings = self._settings(seed)
        transport = LocalTransport(data, settings, open_client=open_client, client_reply=client_reply)
        talk = Talk(transport)
        self._alternate(talk.ask_all, settings)
        self.bytes_up_, self.bytes_down_ = talk.bytes_up, talk.bytes_down
        return self._outcome(transport.clients)


class SEC(MTSC):
    """Spectral embedded clustering of each client by itself (Nie, Xu, Tsang and Zhang 2009).

    ``min Tr(FᵀLF) + alpha ||XW + 1bᵀ - F||² + gamma ||W||²`` over FᵀF = I: `MTSC` with p = 2, where each client is on
    its own and one iteration is exact. What FMTC becomes without collaboration. Nothing leaves a client.

    Provenance: objective from memory; units as in `MTSC`.

    Parameters
    ----------
    n_clusters, alpha, gamma, units, n_neighbors, bandwidth_scale, one_sided, n_init, random_state
        As in `MTSC`.

    Examples
    --------
    >>> from fmtc.baselines import SEC
    >>> from fmtc.datasets import synthetic
    >>> data = synthetic("subspace", seed=0)
    >>> SEC(data.n_clusters, random_state=0).fit(data.X, clients=data.clients).n_iter_
    1
    """

    row_power, max_iter, tol = 2.0, 1, 0.0  # no parameters here

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        alpha: float = 1.0,
        gamma: float = 0.1,
        units: str = "relative",
        n_neighbors: int | str = "auto",
        bandwidth_scale: float = 1.0,
        one_sided: float = 1.0,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.gamma = gamma
        self.units = units
        self.n_neighbors = n_neighbors
        self.bandwidth_scale = bandwidth_scale
        self.one_sided = one_sided
        self.n_init = n_init
        self.random_state = random_state
