"""What all rivals share: the face, k-means, the spectral model of one graph, and messages that are counted."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from numbers import Integral, Real
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state

from ..client import stream
from ..clients import ClientsMixin
from ..kernels.embedding import nystroem, spectral_start
from ..kernels.graph import cross_affinity, graph_of, knn_weights
from ..linalg.threads import one_thread
from ..runtime.local import LocalTransport

Array = np.ndarray
Data = Mapping[str, Any]  # rows of each client, n_t x d, by sorted name


class Model(Protocol):
    """What a rival keeps of a client: enough to label new rows."""

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        ...


class Baseline(ClientsMixin, ClusterMixin, BaseEstimator, ABC):
    """Face of all rivals: `fit(X, clients=)`, `predict(X, clients=)`, `labels_`, as `fmtc.FMTC` has them.

    A subclass stores its parameters, among them `n_clusters` and `random_state`, and has `_fit`. `predict` is the
    method's own map for new rows where it has one, else Nyström's.
    """

    n_clusters: int
    random_state: Any

    def fit(self, X: Any, y: Any = None, *, clients: Any = None) -> Self:
        """Cluster the rows of each client.

        Parameters
        ----------
        X : array or sparse array of shape (n_samples, n_features), or mapping of client to such
        y : ignored
        clients : array-like of shape (n_samples,), optional
            Name of the client of each row. Left out, all rows are one client.

        Returns
        -------
        self
        """
        parts = self._parts(X, clients, reset=True)
        k = self.n_clusters
        check_whole(n_clusters=k)
        for cid, (Xt, _) in parts.items():
            if Xt.shape[0] < k:
                raise ValueError(
                    f"client {cid!r} has {Xt.shape[0]} samples (n_samples={Xt.shape[0]}), fewer than n_clusters={k}. "
                    "Ask for fewer clusters or leave this client out."
                )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        ids = sorted(parts)
        self.bytes_up_ = self.bytes_down_ = 0
        with one_thread("blas"), one_thread("openmp"):
            models, labels = self._fit({cid: parts[cid][0] for cid in ids}, seed)
        self.client_ids_ = ids
        self._models = models
        self.labels_ = np.empty(sum(Xt.shape[0] for Xt, _ in parts.values()), dtype=np.int64)
        for cid, (_, rows) in parts.items():
            self.labels_[rows] = labels[cid]
        return self

    @abstractmethod
    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Model], Mapping[str, Array]]:
        """Model and labels of each client."""

    def fit_predict(self, X: Any, y: Any = None, *, clients: Any = None) -> Any:
        """Fit and return the cluster of each row; a mapping of clients gives a mapping of labels."""
        return self._as_given(X, self.fit(X, clients=clients).labels_)

    def predict(self, X: Any, *, clients: Any = None) -> Any:
        """Cluster of each row, by the model of the row's client.

        Parameters
        ----------
        X : array or sparse array of shape (n_samples, n_features), or mapping of client to such
        clients : array-like of shape (n_samples,), or one name for all rows; optional where the model has one client

        Returns
        -------
        ndarray of int of shape (n_samples,), or mapping of client to such
        """
        return self._each(X, clients, lambda Xt, model: model.assign(Xt))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# ------------------------------------------------------------------------------------------------ values of settings


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)


def check_whole(**values: Any) -> None:
    """Refuse what is no whole number of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_number(least: float = 0.0, **values: Any) -> None:
    """Refuse what is no finite number of at least `least`."""
    for name, value in values.items():
        if not _is_number(value) or value < least:
            raise ValueError(f"{name} must be a finite number of at least {least:g}, got {value!r}")


def check_positive(most: float = np.inf, **values: Any) -> None:
    """Refuse what is no finite number above 0, and at most `most`."""
    for name, value in values.items():
        if not _is_number(value) or not 0 < value <= most:
            limit = "" if most == np.inf else f" and at most {most:g}"
            raise ValueError(f"{name} must be a finite number above 0{limit}, got {value!r}")


def check_count_or_auto(**values: Any) -> None:
    """Refuse what is neither "auto" nor a whole number of at least 1."""
    for name, value in values.items():
        if not (isinstance(value, str) and value == "auto") and (
            isinstance(value, bool) or not isinstance(value, Integral) or value < 1
        ):
            raise ValueError(f'{name} must be "auto" or a whole number of at least 1, got {value!r}')


def check_choice(allowed: tuple[str, ...], **values: Any) -> None:
    """Refuse what is not among the allowed words."""
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
    """The neighbour graph of some rows and what spectral methods ask of it; new rows enter by Nyström's formula."""

    X: Any  # n x d
    n_neighbors: int | str
    affinity: sp.csr_array  # n x n
    bandwidth: float

    @classmethod
    def of(cls, X: Any, n_neighbors: int | str, stretch: float = 1.0, one_sided: float = 1.0) -> SpectralGraph:
        """Graph of rows X; the width of its weights is `stretch` times the mean distance to the neighbours."""
        if X.shape[0] < 2:
            raise ValueError("a neighbour graph needs at least 2 rows in every client, got 1 sample")
        affinity, bandwidth = knn_weights(X, n_neighbors, None, stretch, one_sided)
        return cls(X, n_neighbors, affinity, bandwidth)

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


# ------------------------------------------------------------------------------------------------------- messages


def unknown(phase: str) -> ValueError:
    """What a client says to a message that it has no answer to."""
    return ValueError(f"unknown phase {phase!r}: this client has no answer to it")


class Talk:
    """Questions to all clients through a transport: a failure is raised, bytes and rounds are counted."""

    def __init__(self, transport: LocalTransport):
        self.transport = transport
        self.bytes_up = self.bytes_down = self.rounds = 0

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Names of the clients, sorted."""
        return self.transport.client_ids

    def ask(self, messages: Mapping[str, Any]) -> dict[str, Any]:
        """One message to each client, and the answers."""
        replies = self.transport.exchange(messages)
        for error in replies.failures.values():
            raise error
        self.bytes_up += replies.bytes_up
        self.bytes_down += replies.bytes_down
        self.rounds += 1
        return replies.uplinks

    def ask_all(self, message: Any) -> dict[str, Any]:
        """The same message to everyone."""
        return self.ask(dict.fromkeys(self.client_ids, message))


def note(estimator: Any, talk: Talk) -> None:
    """What was said in a fit, for the user to see."""
    estimator.bytes_up_, estimator.bytes_down_, estimator.n_rounds_ = talk.bytes_up, talk.bytes_down, talk.rounds
