"""Anchors without noise: what private runs come to where privacy costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import DataError
from ..inference import ClientModel, assign
from ..protocol.private import PLAIN
from ..settings import PRIVATE_METHODS, Privacy, Settings, check_choice
from .base import Array, Baseline, Data, count, run_locally

MOST_COLUMNS = 1400  # second moments of more are too many numbers


@dataclass(frozen=True)
class Assigned:
    """A client's model, with the interface of baselines."""

    model: ClientModel

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        return assign(_dense(X), self.model)


def _dense(X: Any) -> Array:
    return X.toarray() if sp.issparse(X) else X


class PublicAnchors(Baseline):
    """Private anchors with epsilon = infinity: pooled sums find anchors, and links between them find clusters.

    Seven exchanges of sums over all clients: mean, radius, second moments, three steps of k-means with 16 anchors for
    each cluster, and how many rows lie between two anchors. The server clusters the anchors by their links. Each client
    then follows its own neighbour graph, and stays alone if the public model suits its rows badly. With at most 7
    clusters the last steps are those of a mixture with one shape for all clusters.

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
    >>> from fmtc.baselines import PublicAnchors
    >>> from fmtc.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> labels = PublicAnchors(data.n_clusters, random_state=0).fit_predict(data.X, clients=data.clients)
    >>> labels.shape == data.clients.shape
    True
    """

    def __init__(self, n_clusters: int = 8, *, method: str = "auto", random_state: Any = None):
        self.n_clusters = n_clusters
        self.method = method
        self.random_state = random_state

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Assigned], Mapping[str, Array]]:
        check_choice("method", self.method, PRIVATE_METHODS)
        columns = next(iter(data.values())).shape[1]
        if columns > MOST_COLUMNS:
            raise DataError(f"anchors take at most {MOST_COLUMNS} columns, got {columns}; project them first")
        rows = {cid: _dense(X) for cid, X in data.items()}
        low = np.min([X.min(axis=0) for X in rows.values()], axis=0)
        high = np.max([X.max(axis=0) for X in rows.values()], axis=0)
        high = np.where(high > low, high, low + np.maximum(1.0, np.abs(low)))
        privacy = Privacy(inf, bounds=(low, high), method=self.method)
        settings = Settings(n_clusters=self.n_clusters, scale="auto", seed=seed, privacy=privacy)
        _, transport = run_locally(PLAIN, settings, rows)
        count(self, transport)
        models, labels = transport.outcome()
        return {cid: Assigned(model) for cid, model in models.items()}, labels
