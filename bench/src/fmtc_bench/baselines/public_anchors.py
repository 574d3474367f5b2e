"""Anchors without noise, what private runs come to where privacy costs nothing; and with it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.random_projection import GaussianRandomProjection

from fmtc.errors import InputError, TrustError
from fmtc.models import ClientModel
from fmtc.protocol.private.view import METHOD, PLAIN, alone
from fmtc.settings import PRIVATE_METHODS, Privacy, Settings, check_choice

from .base import Array, Baseline, Data, check_positive, count, run_locally

MOST_COLUMNS = 1400  # second moments of more are too many numbers
PROJECTED = 100  # columns that more are brought to, at random


@dataclass(frozen=True)
class Columns:
    """Dense columns, as they are or at random: a map that no row has a part in."""

    projection: GaussianRandomProjection | None = None

    @classmethod
    def of(cls, n_columns: int) -> Columns:
        """As they are, up to 1400."""
        if n_columns <= MOST_COLUMNS:
            return cls()
        return cls(GaussianRandomProjection(PROJECTED, random_state=0).fit(np.zeros((1, n_columns))))

    def __call__(self, X: Any) -> Array:
        """(n, d) -> (n, r)."""
        if self.projection is not None:
            X = self.projection.transform(X)
        return X.toarray() if sp.issparse(X) else np.asarray(X)


@dataclass(frozen=True)
class Assigned:
    """A client's model, with the interface of baselines."""

    columns: Columns
    model: ClientModel

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        return self.model.assign(self.columns(X))


@dataclass(repr=False, eq=False, kw_only=True)
class PublicAnchors(Baseline):
    """Private anchors with epsilon = infinity: pooled sums find anchors, and links between them find clusters.

    Seven exchanges of sums over all clients: mean, radius, second moments, three steps of k-means with 16 anchors for
    each cluster, and how many rows lie between two anchors. The server clusters the anchors by their links. Each client
    then follows its own neighbour graph, and stays alone if the public model suits its rows badly. With at most 7
    clusters the last steps are those of a mixture with one shape for all clusters. More than 1400 columns are brought
    to 100 by a random projection, the same for everyone.

    Provenance: ours (2026); `fmtc.Privacy` is the same with noise. Bounds are the range of all rows here, which a
    private run never uses.

    Parameters
    ----------
    n_clusters : int
    method : {"auto", "anchors", "mixture"}
    random_state : int, RandomState instance or None

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    bytes_up_, bytes_down_, n_rounds_ : int
        What was sent, and in how many exchanges.

    Examples
    --------
    >>> from fmtc_bench.baselines import PublicAnchors
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> labels = PublicAnchors(data.n_clusters, random_state=0).fit_predict(data.X, silos=data.clients)
    >>> labels.shape == data.clients.shape
    True
    """

    method: str = "auto"

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Assigned], Mapping[str, Array]]:
        check_choice("method", self.method, PRIVATE_METHODS)
        columns = Columns.of(next(iter(data.values())).shape[1])
        rows = {cid: columns(X) for cid, X in data.items()}
        low = np.min([X.min(axis=0) for X in rows.values()], axis=0)
        high = np.max([X.max(axis=0) for X in rows.values()], axis=0)
        high = np.where(high > low, high, low + np.maximum(1.0, np.abs(low)))
        models, labels = self._run(rows, low, high, seed)
        return {cid: Assigned(columns, model) for cid, model in models.items()}, labels

    def _run(self, rows: Data, low: Array, high: Array, seed: int) -> tuple[dict[str, Any], dict[str, Array]]:
        """Models and labels of a run within these bounds."""
        _, transport = run_locally(PLAIN, self._settings(inf, low, high, seed), rows)
        count(self, transport)
        return transport.outcome()

    def _settings(self, epsilon: float, low: Array, high: Array, seed: int) -> Settings:
        privacy = Privacy(epsilon, bounds=(low, high), method=self.method, accept_weak=True)
        return Settings(n_clusters=self.n_clusters, scale="auto", seed=seed, privacy=privacy)


@dataclass(repr=False, eq=False, kw_only=True)
class NoisyAnchors(PublicAnchors):
    """Private anchors: `PublicAnchors` with the noise that makes every sum differentially private.

    What ``FMTC(privacy=Privacy(epsilon))`` does. A run whose rows are too few for its epsilon is refused, and each
    client then stays alone, with a warning; so are runs of fewer than three clients.

    The noise is the operating system's randomness, as it must be: two runs differ, whatever `random_state` is.

    Provenance: ours (2026). Bounds are the range of all rows here, which a private run never uses; so the scores are
    those of a federation that knows its bounds exactly.

    Parameters
    ----------
    n_clusters, method, random_state
        As in `PublicAnchors`.
    epsilon : float
        As in `fmtc.Privacy`.

    Attributes
    ----------
    labels_, bytes_up_, bytes_down_, n_rounds_
        As in `PublicAnchors`.

    Examples
    --------
    >>> from fmtc_bench.baselines import NoisyAnchors
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("skew", n_samples=2000, seed=0)
    >>> labels = NoisyAnchors(data.n_clusters, random_state=0).fit_predict(data.X, silos=data.clients)
    >>> labels.shape == data.clients.shape
    True
    """

    epsilon: float = 2.0

    def _run(self, rows: Data, low: Array, high: Array, seed: int) -> tuple[dict[str, Any], dict[str, Array]]:
        check_positive(epsilon=self.epsilon)
        settings = self._settings(self.epsilon, low, high, seed)
        try:
            _, transport = run_locally(METHOD, settings, rows)
        except (TrustError, InputError) as refusal:
            warnings.warn(f"each client stays alone: {refusal}", UserWarning, stacklevel=2)
            own = replace(settings, privacy=None)
            found = {cid: alone(cid, X, own) for cid, X in rows.items()}
            return {cid: one.model for cid, one in found.items()}, {cid: one.labels for cid, one in found.items()}
        count(self, transport)
        return transport.outcome()
