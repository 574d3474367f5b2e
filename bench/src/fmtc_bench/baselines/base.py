"""What all baselines share: the estimator, k-means, the spectral model of one graph, and runs of federated methods."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from math import isfinite
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state

from fmtc.errors import ClientError, DataError, RefusedError
from fmtc.kernels.embedding import spectral_start
from fmtc.kernels.graph import gaussian, graph_neighbors, graph_of, mean_distance, resolve_neighbors, symmetrized
from fmtc.linalg.arrays import HOST
from fmtc.linalg.threads import one_thread
from fmtc.protocol.base import RESTARTS, Check, Message, Phase
from fmtc.protocol.method import Method
from fmtc.protocol.state import stream
from fmtc.rows import SilosMixin
from fmtc.runtime.driver import Replies, RoundRecord, RunRecord, run
from fmtc.runtime.local import LocalTransport

from .nystroem import cross_affinity, nystroem

Array = np.ndarray
Data = Mapping[str, Any]  # rows of each client, n_t x d, by sorted name


class Model(Protocol):
    """What a baseline keeps of a client: enough to label new rows."""

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        ...


@dataclass(repr=False, eq=False)
class Baseline(SilosMixin, ClusterMixin, BaseEstimator, ABC):
    """Base of all baselines: `fit(X, silos=)`, `predict(X, silos=)`, `labels_`, as in `fmtc.FMTC`.

    A subclass has `_fit`, and its parameters are fields, as of a dataclass. `predict` is the method's own map for new
    rows where it has one, otherwise Nyström's formula.
    """

    n_clusters: int = 8
    _: KW_ONLY
    random_state: Any = None

    def fit(self, X: Any, y: Any = None, *, silos: Any = None) -> Self:
        """Cluster the rows of each client.

        Parameters
        ----------
        X : array or sparse array of shape (n_samples, n_features), or mapping of silo to such
        y : ignored
        silos : array-like of shape (n_samples,), optional
            Name of the client of each row. Left out, all rows are one client.

        Returns
        -------
        self
        """
        parts = self._parts(X, silos, reset=True)
        k = self.n_clusters
        check_whole(n_clusters=k)
        for cid, (Xt, _) in parts.items():
            check_rows(cid, Xt.shape[0], k)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        ids = sorted(parts)
        self.bytes_up_ = self.bytes_down_ = 0
        with one_thread("blas"), one_thread("openmp"):
            models, labels = self._fit({cid: parts[cid][0] for cid in ids}, seed)
        self._models = {cid: models[cid] for cid in ids}
        self.labels_ = np.empty(sum(Xt.shape[0] for Xt, _ in parts.values()), dtype=np.int64)
        for cid, (_, rows) in parts.items():
            self.labels_[rows] = labels[cid]
        return self

    @abstractmethod
    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Model], Mapping[str, Array]]:
        """Model and labels of each client."""

    def fit_predict(self, X: Any, y: Any = None, *, silos: Any = None) -> Any:
        """Fit and return the cluster of each row; a mapping of clients gives a mapping of labels."""
        return self._as_given(X, self.fit(X, silos=silos).labels_)

    def predict(self, X: Any, *, silos: Any = None) -> Any:
        """Cluster of each row, by the model of the row's client.

        Parameters
        ----------
        X : array or sparse array of shape (n_samples, n_features), or mapping of silo to such
        silos : array-like of shape (n_samples,), or one name for all rows; optional where the model has one client

        Returns
        -------
        ndarray of int of shape (n_samples,), or mapping of silo to such
        """
        return self._each(X, silos, lambda Xt, model: model.assign(Xt))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# ------------------------------------------------------------------------------------------------ values of settings


def check_rows(client_id: str, n: int, k: int) -> None:
    """Refuse a client with fewer rows than clusters."""
    if n < k:
        raise ValueError(
            f"client {client_id!r} has {n} samples (n_samples={n}), fewer than n_clusters={k}. "
            "Ask for fewer clusters or leave this client out."
        )


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)


def check_whole(**values: Any) -> None:
    """Refuse a value that is not a whole number of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_number(least: float = 0.0, **values: Any) -> None:
    """Refuse a value that is not a finite number of at least `least`."""
    for name, value in values.items():
        if not _is_number(value) or value < least:
            raise ValueError(f"{name} must be a finite number of at least {least:g}, got {value!r}")


def check_positive(most: float = np.inf, **values: Any) -> None:
    """Refuse a value that is not a finite number above 0 and at most `most`."""
    for name, value in values.items():
        if not _is_number(value) or not 0 < value <= most:
            limit = "" if most == np.inf else f" and at most {most:g}"
            raise ValueError(f"{name} must be a finite number above 0{limit}, got {value!r}")


def check_count_or_auto(**values: Any) -> None:
    """Refuse a value that is neither "auto" nor a whole number of at least 1."""
    for name, value in values.items():
        if not (isinstance(value, str) and value == "auto") and (
            isinstance(value, bool) or not isinstance(value, Integral) or value < 1
        ):
            raise ValueError(f'{name} must be "auto" or a whole number of at least 1, got {value!r}')


def check_choice(allowed: tuple[str, ...], **values: Any) -> None:
    """Refuse a value that is not one of the allowed words."""
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


# ------------------------------------------------------------------------------------------------------- k-means


@dataclass(frozen=True)
class Centers:
    """Clusters as centres among the rows themselves."""

    centers: Array  # k x d

    def assign(self, X: Any) -> Array:
        """Number of the nearest centre of each row; (n, d) -> (n,)."""
        return pairwise_distances_argmin(X, self.centers)


def kmeans(
    X: Any, k: int, seed: int, *, n_init: int = 10, sample_weight: Array | None = None, **settings: Any
) -> tuple[Centers, Array]:
    """k-means from k-means++ starts, the best of `n_init`; fewer different rows than clusters leave some empty.

    Returns
    -------
    centers : Centers
    labels : array of shape (n,)
    """
    solver = KMeans(min(k, X.shape[0]), n_init=n_init, random_state=seed, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of rows that are equal
        solver.fit(X, sample_weight=sample_weight)
    return Centers(solver.cluster_centers_), solver.labels_


def unit_rows(Y: Array) -> Array:
    """Rows of length 1; zero rows stay."""
    norm = np.linalg.norm(Y, axis=1, keepdims=True)
    return Y / np.where(norm == 0, 1, norm)


def seed_of(seed: int, client_id: str, purpose: str) -> int:
    """A seed of its own for each client and purpose."""
    return int(stream(seed, client_id, purpose).integers(2**31))


# --------------------------------------------------------------------------------------------- spectral clustering


@dataclass(frozen=True)
class SpectralGraph:
    """The neighbour graph of some rows and what spectral methods need of it; new rows enter by Nyström's formula."""

    X: Any  # n x d
    n_neighbors: int | str
    affinity: sp.csr_array  # n x n
    bandwidth: float

    @classmethod
    def of(cls, X: Any, n_neighbors: int | str, stretch: float = 1.0, nonmutual_weight: float = 1.0) -> SpectralGraph:
        """Graph of rows X; the width of its weights is `stretch` times the mean distance to the neighbours."""
        if X.shape[0] < 2:
            raise ValueError("a neighbour graph needs at least 2 rows in every client, got 1 sample")
        distance, neighbor = graph_neighbors(X, resolve_neighbors(n_neighbors, X.shape[0]))
        bandwidth = stretch * mean_distance(distance)
        weight = gaussian(distance, bandwidth).astype(X.dtype, copy=False)
        return cls(X, n_neighbors, symmetrized(weight, neighbor, nonmutual_weight), bandwidth)

    @cached_property
    def graph(self) -> Any:
        """Laplacian, degrees and components."""
        return graph_of(self.affinity)

    def eigenvectors(self, k: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Bottom k eigenvectors of the normalised Laplacian and their eigenvalues; (n, k), (k,)."""
        F = spectral_start(self.graph, k, rng)
        return F, np.einsum("ij,ij->j", F, self.graph.laplacian @ F)

    def extend(self, X: Any, F: Array, eigenvalues: Array) -> Array:
        """Rows of F for new rows; (n_new, d) -> (n_new, k)."""
        return nystroem(cross_affinity(X, self.X, self.n_neighbors, self.bandwidth), self.graph.degree, F, eigenvalues)


@dataclass(frozen=True)
class SpectralModel:
    """Spectral clustering of a graph: embedding, eigenvalues, and centres among normalised rows."""

    graph: SpectralGraph
    F: Array  # n x k
    eigenvalues: Array  # k
    clusters: Centers

    def assign(self, X: Any) -> Array:
        """Cluster of new rows by Nyström's formula; (n, d) -> (n,)."""
        return self.clusters.assign(unit_rows(self.graph.extend(X, self.F, self.eigenvalues)))


# ---------------------------------------------------------------------------------------------- federated baselines


@dataclass(frozen=True)
class MethodSettings:
    """Settings that every federated baseline has. A subclass adds its own and checks them."""

    n_clusters: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for f in fields(self):  # numbers of NumPy become Python's: settings are written as JSON
            value = getattr(self, f.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, f.name, value.item())
        check_whole(n_clusters=self.n_clusters)
        seed: Any = self.seed
        if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0, got {self.seed!r}")

    @classmethod
    def of(cls, estimator: Any, seed: int, **others: Any) -> Self:
        """Settings from the parameters of an estimator, which have the same names, and some that it does not have."""
        names = [f.name for f in fields(cls) if f.name not in ("seed", *others)]
        return cls(seed=seed, **{name: getattr(estimator, name) for name in names}, **others)


class FederatedMethod(Method):
    """A federated baseline as phases; see `fmtc.protocol.method.Method`.

    Clients compute on the processor, and all have the same weight. A subclass gives the phases, the types of its states
    and `converged`.
    """

    client_type: type
    server_type: type
    limited_by = "max_iter"  # setting: most rounds

    def open_client(self, client_id: str, X: Any, settings: Any, device: str) -> Any:
        """A client at rest, its rows checked."""
        if device != HOST:
            raise ValueError(f"{self.name} computes on the processor alone, not on device={device!r}")
        check_rows(client_id, X.shape[0], settings.n_clusters)
        return self.client_type(client_id, X)

    def open_server(self, client_ids: Sequence[str], settings: Any, weights: Mapping[str, float] | None) -> Any:
        """The server before the first message."""
        if weights is not None:
            raise ValueError(f"{self.name} gives all silos the same weight; leave silo_weights out")
        return self.server_type(tuple(sorted(client_ids)))

    def sizes(self, client: Any, settings: Any) -> dict[str, int]:
        """Features (d) and clusters (k)."""
        return {"d": client.X.shape[1], "k": settings.n_clusters}

    def converged(self, history: Sequence[RoundRecord], settings: Any) -> str | None:
        """Why no further round is needed; None: one is."""
        raise NotImplementedError

    def stop_reason(self, history: Sequence[RoundRecord], settings: Any) -> tuple[bool, str] | None:
        """Whether the rounds have converged, and why they end; None continues."""
        if not history:
            return None
        reason = self.converged(history, settings)
        if reason is not None:
            return True, reason
        limit = getattr(settings, self.limited_by)
        return (False, f"{self.limited_by}={limit} rounds done") if history[-1].round_no >= limit else None


def required(state: Any, *names: str) -> tuple[Any, ...]:
    """Fields of a state that a reply needs, or `RefusedError`: the message came before the one that makes them."""
    values = tuple(getattr(state, name) for name in names)
    missing = [name for name, value in zip(names, values, strict=True) if value is None]
    if missing:
        raise RefusedError(f"a message came too early: {', '.join(missing)} is not there yet")
    return values


class LoopPhase(Phase):
    """The repeated phase of a federated baseline: one answer for each round, and some for runs that start again."""

    limited_by: ClassVar[str] = FederatedMethod.limited_by

    def limit(self, settings: Any) -> int:
        """One answer for each round."""
        return int(getattr(settings, self.limited_by)) + RESTARTS


def in_order(server: Any, answers: Mapping[str, Any]) -> list[Any]:
    """Answers in the order of the clients, in which they are summed: they may have arrived in another."""
    return [answers[cid] for cid in server.client_ids if cid in answers]


def no_more_than(letter: str) -> Check:
    """Accept arrays with at most as many rows as a letter says."""
    return lambda value, sizes: (
        None if len(value) <= sizes.get(letter, len(value)) else f"has {len(value)} rows, more than {letter}"
    )


class CountingTransport(LocalTransport):
    """Clients in this process, and how much is sent to and from them."""

    bytes_up = bytes_down = exchanges = 0

    def exchange(self, messages: Mapping[str, Message]) -> Replies:
        """Deliver one message to each client named, and count."""
        replies = super().exchange(messages)
        self.bytes_up += replies.bytes_up
        self.bytes_down += replies.bytes_down
        self.exchanges += 1
        return replies

    def outcome(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Model and labels of each client."""
        results = self.results()
        return {cid: found.model for cid, found in results.items()}, {cid: f.labels for cid, f in results.items()}


def run_locally(method: Method, settings: Any, data: Data) -> tuple[RunRecord, CountingTransport]:
    """Run a federated method on clients in this process; the error of a client is raised as it is."""
    transport = CountingTransport(data, settings, method=method)
    try:
        return run(transport, settings, method=method), transport
    except (ClientError, DataError) as error:
        raise (error if error.__cause__ is None else error.__cause__) from None


def count(estimator: Any, transport: CountingTransport) -> None:
    """Show what was sent in a fit, and in how many exchanges."""
    estimator.bytes_up_, estimator.bytes_down_ = transport.bytes_up, transport.bytes_down
    estimator.n_rounds_ = transport.exchanges
