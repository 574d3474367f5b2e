"""Fed-kmeans: centres and counts travel, rows stay."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin

from ..runtime.local import LocalTransport
from .base import Array, Baseline, Data, Talk, check_number, check_whole, kmeans, note, seed_of, unknown

SERVER = "the server"  # whose random streams the server draws from
MIN_COUNT = 2  # a centre of fewer rows than this is a row: it stays at home


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
    if message.phase not in ("start", "round", "finish"):
        raise unknown(message.phase)
    X, C = client.X, message.centers
    if message.phase == "start":
        C = first_centers(X, rules.n_clusters, seed_of(rules.seed, client.client_id, "start"))
    assert C is not None
    if message.phase == "finish":
        model = lloyd(X, C, rules.local_iters)[0] if rules.personalised else NumberedCenters(C, np.arange(len(C)))
        return replace(client, model=model, labels=model.assign(X)), CentersUp()
    own, counts = lloyd(X, C, rules.local_iters)
    kept = counts >= rules.min_count
    return client, CentersUp(own.centers[kept], counts[kept])


def first_centers(X: Any, k: int, seed: int) -> Array:
    """Centres to begin with, by k-means++; (k, d)."""
    return kmeans_plusplus(X, min(k, X.shape[0]), random_state=seed)[0]


def lloyd(X: Any, C: Array, n_iter: int) -> tuple[NumberedCenters, Array]:
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
        check_whole(n_rounds=self.n_rounds, local_iters=self.local_iters, min_count=self.min_count, n_init=self.n_init)
        check_number(tol=self.tol)
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
        note(self, talk)
        clients = transport.clients
        return {cid: c.model for cid, c in clients.items()}, {cid: c.labels for cid, c in clients.items()}
