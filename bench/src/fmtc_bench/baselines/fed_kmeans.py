"""Fed-kmeans: centres and counts travel, rows stay."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin

from fmtc.linalg.threads import one_thread
from fmtc.privacy.protection import Protection
from fmtc.protocol.base import Content, Nothing, Phase, above, array
from fmtc.protocol.state import RoundReport, shared_width
from fmtc.runtime.driver import RoundRecord

from .base import (
    Array,
    Baseline,
    Data,
    FederatedMethod,
    LoopPhase,
    MethodSettings,
    check_number,
    check_whole,
    count,
    in_order,
    kmeans,
    no_more_than,
    required,
    run_locally,
    seed_of,
)

SERVER = "the server"  # whose random streams the server draws from
MIN_COUNT = 2  # a centre of fewer rows is a row: it stays with the client


# ------------------------------------------------------------------------------------------------ settings and states


@dataclass(frozen=True)
class FedKMeansSettings(MethodSettings):
    """What decides a run of `FedKMeans` besides the data; the names are those of its parameters."""

    n_rounds: int = 10
    local_iters: int = 1
    personalised: bool = False
    min_count: int = MIN_COUNT
    n_init: int = 10
    tol: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(n_rounds=self.n_rounds, local_iters=self.local_iters, min_count=self.min_count, n_init=self.n_init)
        check_number(tol=self.tol)
        if not isinstance(self.personalised, bool):
            raise ValueError(f"personalised must be True or False, got {self.personalised!r}")


@dataclass(frozen=True)
class NumberedCenters:
    """Centres of one client and the common numbers of their clusters."""

    centers: Array  # k_t x d
    numbers: Array  # k_t

    def assign(self, X: Any) -> Array:
        """Common number of the nearest centre of each row; (n, d) -> (n,)."""
        return self.numbers[pairwise_distances_argmin(X, self.centers)]


@dataclass(frozen=True)
class KMeansClient:
    """One client of federated k-means between messages."""

    client_id: str
    X: Any  # n x d
    round_no: int = 0
    model: NumberedCenters | None = None
    labels: Array | None = None  # n


@dataclass(frozen=True)
class KMeansServer:
    """The server of federated k-means between messages."""

    client_ids: tuple[str, ...]
    round_no: int = 0
    centers: Array | None = None  # at most k x d, common to all clients
    start_cost: float = 0.0  # objective after the start


# ------------------------------------------------------------------------------------------ the steps, arrays to arrays


def first_centers(X: Any, k: int, seed: int) -> Array:
    """Centres to begin with, by k-means++; (k, d)."""
    return kmeans_plusplus(X, min(k, X.shape[0]), random_state=seed)[0]


def lloyd(X: Any, C: Array, n_iter: int) -> tuple[NumberedCenters, Array]:
    """Centres after some steps of Lloyd's algorithm, and how many rows each is the mean of.

    The count is not that of the rows nearest to the new centre: it may be two where the centre is a single row.
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


def shareable(X: Any, C: Array, n_iter: int, min_count: int) -> dict[str, Array]:
    """What a client sends of its rows: centres after some steps from C and their counts, without the small clusters."""
    own, counts = lloyd(X, C, n_iter)
    kept = counts >= min_count
    return {"centers": own.centers[kept], "counts": counts[kept]}


def pooled(answers: Iterable[Any]) -> tuple[Array, Array]:
    """Centres of all clients and their counts; (c, d), (c,)."""
    answers = list(answers)
    centers = np.concatenate([answer.centers for answer in answers])
    if not len(centers):
        raise ValueError(
            "no client has a cluster that is large enough to send its centre: all have too few rows for so many "
            "clusters. Ask for fewer clusters, or allow smaller ones with min_count where the method has it."
        )
    return centers, np.concatenate([answer.counts for answer in answers])


def merge_centers(centers: Array, counts: Array, k: int, seed: int, n_init: int) -> tuple[Array, float]:
    """Minimise ``sum_j S_j min_i ||c_j - C_i||²`` over k centres C: weighted k-means; (k, d) and the value."""
    with one_thread("blas"), one_thread("openmp"):  # sums in another order change bits
        merged, nearest = kmeans(centers, k, seed, n_init=n_init, sample_weight=counts.astype(centers.dtype))
        cost = counts @ np.square(centers - merged.centers[nearest]).sum(axis=1)
    return merged.centers, float(cost)


class Merged(NamedTuple):
    """Common centres after the server has merged those of the clients."""

    centers: Array  # at most k x d
    cost: float  # objective of the merge
    moved: float  # distance that the centre that moved farthest has moved


def merge(answers: Iterable[Any], before: Array | None, number: int, settings: FedKMeansSettings) -> Merged:
    """Merge the centres of all clients, for the `number`-th time."""
    seed = seed_of(settings.seed, SERVER, f"merge {number}")
    C, cost = merge_centers(*pooled(answers), settings.n_clusters, seed, settings.n_init)
    return Merged(C, cost, np.inf if before is None else _movement(before, C))


def _movement(before: Array, after: Array) -> float:
    """Distance that the centre that moved farthest has moved, with centres matched one to one."""
    if before.shape != after.shape:
        return np.inf
    distance = np.linalg.norm(before[:, None, :] - after[None, :, :], axis=2)
    return float(distance[linear_sum_assignment(distance)].max())


# ------------------------------------------------------------------------------------------------------------- phases


class CentersAnswer(Content):
    """Centres of one client."""

    centers: Array = array(
        "g d", "means of the client's own rows, those nearest to the same centre; at least `min_count` rows each",
        "Where the client's groups of rows lie. The mean of two rows tells their sum; means of many rounds, in which a "
        "row changes its group, can tell that row.", check=no_more_than("k"),
    )  # fmt: skip
    counts: Array = array(
        "g", "number of rows that each centre is the mean of", "The sizes of the client's groups, exactly.",
        kind="int", check=above(0),
    )  # fmt: skip


class CentersAsk(Content):
    """Common centres."""

    centers: Array = array(
        "c d", "common centres, at most k", "Where the groups of all clients together lie.", check=no_more_than("k")
    )


class _AsksCenters(Phase):
    """Begins with the common centres."""

    Ask = CentersAsk

    def asks(self, server: KMeansServer, settings: FedKMeansSettings) -> dict[str, Any]:
        """The same centres for everyone."""
        (centers,) = required(server, "centers")
        return dict.fromkeys(server.client_ids, CentersAsk(centers=centers))


class Start(Phase):
    """Each client's first centres, by k-means++ on its own rows."""

    name = "start"
    protect = Protection("Means of at least `min_count` rows each.")
    doing = "finding its first centres"
    Answer = CentersAnswer

    def reply(
        self, client: KMeansClient, ask: Nothing, settings: FedKMeansSettings, round_no: int
    ) -> tuple[KMeansClient, CentersAnswer]:
        """Centres of its own, a few steps from those of k-means++."""
        C = first_centers(client.X, settings.n_clusters, seed_of(settings.seed, client.client_id, "start"))
        return client, CentersAnswer(**shareable(client.X, C, settings.local_iters, settings.min_count))

    def reduce(
        self, server: KMeansServer, answers: MutableMapping[str, CentersAnswer], settings: FedKMeansSettings
    ) -> KMeansServer:
        """The first common centres."""
        shared_width({cid: answer.centers.shape[1] for cid, answer in answers.items()})
        merged = merge(in_order(server, answers), None, 0, settings)
        return replace(server, centers=merged.centers, start_cost=merged.cost)


class Round(_AsksCenters, LoopPhase):
    """Lloyd's algorithm at the clients from the common centres; the server clusters the centres they send.

    A client that does not answer is not counted in this round.
    """

    name = "round"
    protect = Protection("Means of at least `min_count` rows each.", few_rows=True)
    doing = "in a round"
    limited_by = "n_rounds"
    Answer = CentersAnswer

    def reply(
        self, client: KMeansClient, ask: CentersAsk, settings: FedKMeansSettings, round_no: int
    ) -> tuple[KMeansClient, CentersAnswer]:
        """Centres of its own, a few steps from the common ones."""
        answer = CentersAnswer(**shareable(client.X, ask.centers, settings.local_iters, settings.min_count))
        return replace(client, round_no=round_no), answer

    def reduce(
        self, server: KMeansServer, answers: MutableMapping[str, CentersAnswer], settings: FedKMeansSettings
    ) -> tuple[KMeansServer, RoundReport]:
        """The next common centres; the report has their objective, and how far they moved as primal residual."""
        number = server.round_no + 1
        merged = merge(in_order(server, answers), server.centers, number, settings)
        report = RoundReport(objective=merged.cost, primal_residual=merged.moved)
        return replace(server, centers=merged.centers, round_no=number), report


class Finish(_AsksCenters):
    """Rows take the nearest centre."""

    name = "finish"
    doing = "assigning its rows"

    def reply(
        self, client: KMeansClient, ask: CentersAsk, settings: FedKMeansSettings, round_no: int
    ) -> tuple[KMeansClient, Nothing]:
        """Labels by the common centres, or by centres of its own, a few steps from those."""
        C = ask.centers
        model = NumberedCenters(C, np.arange(len(C)))
        if settings.personalised:
            model, _ = lloyd(client.X, C, settings.local_iters)
        return replace(client, model=model, labels=model.assign(client.X)), Nothing()


class FederatedKMeans(FederatedMethod):
    """Federated k-means: the phases of a run.

    start   each client's first centres; the server merges them
    round   centres after some steps from the common ones; the server merges them     until the centres settle
    finish  rows take the nearest centre
    """

    name = "fed-kmeans"
    opening = (Start(),)
    loop = Round()
    closing = (Finish(),)
    settings_type, model_types = FedKMeansSettings, (NumberedCenters,)
    client_type, server_type = KMeansClient, KMeansServer
    limited_by = "n_rounds"
    stopping = ("n_rounds", "tol")
    changeable = ("n_rounds", "tol", "personalised")

    def converged(self, history: Sequence[RoundRecord], settings: FedKMeansSettings) -> str | None:
        """All common centres have moved by less than `tol`."""
        if not history[-1].primal_residual < settings.tol:
            return None
        return f"all centres moved by less than tol={settings.tol:g} in round {history[-1].round_no}"

    def common(self, server: KMeansServer) -> dict[str, Array]:
        """The common centres, at most k x d."""
        (centers,) = required(server, "centers")
        return {"centers": centers}


METHOD = FederatedKMeans()


@dataclass(repr=False, eq=False, kw_only=True)
class FedKMeans(Baseline):
    """Federated k-means (Garst and Reinders 2023): clients send centres and counts, the server clusters those.

    The server minimises ``sum_j S_j min_i ||c_j - C_i||²`` over k centres C, where c_j are the centres that clients
    sent and S_j the number of rows they stand for. Clients continue from C, without the centres that none of their rows
    is nearest to. Rows belong to the nearest common centre. Where clients differ by a large offset, the common centres
    separate clients, not clusters: `KMeansAlone` is then the better control.

    Provenance: from the paper and its reference code, read and not copied. Restarts of the server, the stop rule and
    `personalised` are ours.

    Parameters
    ----------
    n_clusters : int
    n_rounds : int
        Largest number of rounds after the start.
    local_iters : int
        Steps of Lloyd's algorithm at a client in each round.
    personalised : bool
        Label the rows of a client by centres of its own, `local_iters` steps from the common ones.
    min_count : int
        A centre of fewer rows stays at the client.
    n_init : int
        Restarts of the server's k-means, the best of which counts.
    tol : float
        Stop when every common centre moves by less.
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
    >>> from fmtc_bench.baselines import FedKMeans
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> model = FedKMeans(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    >>> model.cluster_centers_.shape == (data.n_clusters, data.X.shape[1])
    True
    """

    n_rounds: int = 10
    local_iters: int = 1
    personalised: bool = False
    min_count: int = MIN_COUNT
    n_init: int = 10
    tol: float = 1e-6

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, NumberedCenters], Mapping[str, Array]]:
        result, transport = run_locally(METHOD, FedKMeansSettings.of(self, seed), data)
        self.cluster_centers_ = result.server.centers
        self.history_ = [result.server.start_cost, *(record.objective for record in result.history)]
        self.n_iter_ = len(result.history)
        count(self, transport)
        return transport.outcome()
