"""Each client alone, or the union of all rows: spectral clustering (stSC, uSC, scikit-learn's) and k-means."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import SpectralClustering
from sklearn.neighbors import KNeighborsClassifier

from fmtc.kernels.graph import resolve_neighbors
from fmtc.protocol.state import stream

from .base import (
    Array,
    Baseline,
    Centers,
    Data,
    SpectralGraph,
    SpectralModel,
    check_count_or_auto,
    check_positive,
    check_whole,
    kmeans,
    seed_of,
    unit_rows,
)

UNION = "the union"  # whose random stream methods on all rows draw from


def spectral_clustering(
    X: Any,
    k: int,
    *,
    n_neighbors: int | str,
    bandwidth_scale: float,
    nonmutual_weight: float = 1.0,
    n_init: int,
    seed: int,
    name: str,
) -> tuple[SpectralModel, Array]:
    """Graph, bottom eigenvectors, k-means on their normalised rows: model and labels."""
    check_count_or_auto(n_neighbors=n_neighbors)
    check_positive(bandwidth_scale=bandwidth_scale)
    check_positive(1, nonmutual_weight=nonmutual_weight)
    check_whole(n_init=n_init)
    graph = SpectralGraph.of(X, n_neighbors, bandwidth_scale, nonmutual_weight)
    F, eigenvalues = graph.eigenvectors(k, stream(seed, name, "start"))
    clusters, labels = kmeans(unit_rows(F), k, seed_of(seed, name, "kmeans"), n_init=n_init)
    return SpectralModel(graph, F, eigenvalues, clusters), labels


def union(data: Data) -> Any:
    """Rows of all clients, one client after the other."""
    parts = list(data.values())
    return sp.csr_array(sp.vstack(parts, format="csr")) if any(map(sp.issparse, parts)) else np.concatenate(parts)


def apart(labels: Array, data: Data) -> dict[str, Array]:
    """Undo `union` for labels."""
    ends = np.cumsum([X.shape[0] for X in data.values()])
    return dict(zip(data, np.split(labels, ends[:-1]), strict=True))


@dataclass(repr=False, eq=False, kw_only=True)
class StSC(Baseline):
    """Spectral clustering of each client by itself (Ng, Jordan and Weiss 2001), the paper's stSC.

    ``min Tr(FᵀLF)`` over FᵀF = I, then k-means on the normalised rows of F. New rows by Nyström's formula. Nothing
    leaves a client.

    Provenance: from the paper, except for the graph: Gaussian weights on nearest neighbours, the same for all
    spectral methods here, instead of the full matrix.

    Parameters
    ----------
    n_clusters : int
    n_neighbors : int or "auto"
        As in `fmtc.FMTC`.
    bandwidth_scale : float
        Width of the weights as a multiple of the mean distance to the neighbours.
    nonmutual_weight : float in (0, 1]
        Factor on the weight of an edge between two rows when only one of them counts the other among its neighbours, as
        in `fmtc.FMTC`. 1 is the usual graph. The smaller default of FMTC costs `USC` accuracy.
    n_init : int
        Restarts of k-means.
    random_state : int, RandomState instance or None

    Examples
    --------
    >>> from fmtc_bench.baselines import StSC
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("rings", n_clusters=2, seed=0)
    >>> model = StSC(2, random_state=0).fit(data.X, silos=data.clients)
    >>> model.labels_.shape
    (800,)
    """

    n_neighbors: int | str = "auto"
    bandwidth_scale: float = 1.0
    nonmutual_weight: float = 1.0
    n_init: int = 10

    def _spectral(self, X: Any, n_neighbors: int | str, seed: int, name: str) -> tuple[SpectralModel, Array]:
        return spectral_clustering(
            X, self.n_clusters, n_neighbors=n_neighbors, bandwidth_scale=self.bandwidth_scale,
            nonmutual_weight=self.nonmutual_weight, n_init=self.n_init, seed=seed, name=name,
        )  # fmt: skip

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, SpectralModel], Mapping[str, Array]]:
        found = {cid: self._spectral(X, self.n_neighbors, seed, cid) for cid, X in data.items()}
        return {cid: model for cid, (model, _) in found.items()}, {cid: labels for cid, (_, labels) in found.items()}


class USC(StSC):
    """Spectral clustering of the rows of all clients together, the paper's uSC: needs the rows in one place.

    As `StSC`, with one graph and one k-means. With one client of up to 3,600 rows it is `StSC`.

    Parameters
    ----------
    n_clusters, bandwidth_scale, nonmutual_weight, n_init, random_state
        As in `StSC`.
    n_neighbors : int or "auto"
        As in `StSC`, but "auto" is sqrt(n)/2 also beyond 30. The limit saves large clients time; on the union of 20News
        it would cost 20 points of accuracy.

    Examples
    --------
    >>> from fmtc_bench.baselines import USC
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> model = USC(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    >>> model.predict(data.X[:2], silos=data.clients[:2]).shape
    (2,)
    """

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, SpectralModel], Mapping[str, Array]]:
        name = next(iter(data)) if len(data) == 1 else UNION
        rows = union(data)
        n_neighbors = max(10, ceil(sqrt(rows.shape[0]) / 2)) if self.n_neighbors == "auto" else self.n_neighbors
        model, labels = self._spectral(rows, n_neighbors, seed, name)
        return dict.fromkeys(data, model), apart(labels, data)


@dataclass(frozen=True)
class Voters:
    """Rows with their clusters; a new row takes the cluster of most of its nearest."""

    neighbors: KNeighborsClassifier

    @classmethod
    def of(cls, X: Any, labels: Array, n_voters: int = 5) -> Voters:
        """Rows and their clusters; the angle decides between sparse rows, where an empty one would be near to all."""
        metric = "cosine" if sp.issparse(X) else "euclidean"
        return cls(KNeighborsClassifier(min(n_voters, X.shape[0]), metric=metric).fit(X, labels))

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        return self.neighbors.predict(X)


@dataclass(repr=False, eq=False, kw_only=True)
class SklearnSpectral(Baseline):
    """scikit-learn's `SpectralClustering` of each client by itself: what most people would reach for first.

    ``min Tr(FᵀLF)`` over FᵀF = I as in `StSC`, with four differences: neighbours have weight 1, or 1/2 where only one
    of two counts the other, at any distance; a row is its own neighbour; eigenvectors are divided by the root of the
    degree; and rows are not normalised. It has no `predict`, so new rows take the majority vote of their five nearest
    training rows.

    Provenance: scikit-learn itself (Pedregosa et al. 2011); the vote is ours.

    Parameters
    ----------
    n_clusters : int
    n_neighbors : int or "auto"
        As in `fmtc.FMTC`.
    n_init : int
    random_state : int, RandomState instance or None

    Examples
    --------
    >>> from fmtc_bench.baselines import SklearnSpectral
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> SklearnSpectral(data.n_clusters, random_state=0).fit(data.X, silos=data.clients).labels_.shape
    (400,)
    """

    n_neighbors: int | str = "auto"
    n_init: int = 10

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Voters], Mapping[str, Array]]:
        check_count_or_auto(n_neighbors=self.n_neighbors)
        check_whole(n_init=self.n_init)
        labels = {cid: self._labels(X, seed_of(seed, cid, "spectral")) for cid, X in data.items()}
        return {cid: Voters.of(X, labels[cid]) for cid, X in data.items()}, labels

    def _labels(self, X: Any, seed: int) -> Array:
        n = X.shape[0]
        if n <= self.n_clusters:  # it needs more rows than eigenvectors
            return np.arange(n)
        solver = SpectralClustering(
            self.n_clusters,
            affinity="nearest_neighbors",
            n_neighbors=resolve_neighbors(self.n_neighbors, n),
            n_init=self.n_init,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a graph in parts, and of equal rows
            return solver.fit(X).labels_


@dataclass(repr=False, eq=False, kw_only=True)
class KMeansAlone(Baseline):
    """k-means of each client by itself: the control that every table needs.

    ``min sum_i ||x_i - c_h(i)||²``. Nothing leaves a client.

    Parameters
    ----------
    n_clusters : int
    n_init : int
    random_state : int, RandomState instance or None

    Examples
    --------
    >>> from fmtc_bench.baselines import KMeansAlone
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("offset", seed=0)
    >>> KMeansAlone(data.n_clusters, random_state=0).fit(data.X, silos=data.clients).silos_
    ['silo1', 'silo2', 'silo3', 'silo4']
    """

    n_init: int = 10

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Centers], Mapping[str, Array]]:
        check_whole(n_init=self.n_init)
        k, tries = self.n_clusters, self.n_init
        found = {cid: kmeans(X, k, seed_of(seed, cid, "kmeans"), n_init=tries) for cid, X in data.items()}
        return {cid: centers for cid, (centers, _) in found.items()}, {cid: h for cid, (_, h) in found.items()}


class KMeansUnion(KMeansAlone):
    """k-means of the rows of all clients together: needs the rows in one place.

    Parameters
    ----------
    n_clusters, n_init, random_state
        As in `KMeansAlone`.

    Examples
    --------
    >>> from fmtc_bench.baselines import KMeansUnion
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> KMeansUnion(data.n_clusters, random_state=0).fit_predict(data.X, silos=data.clients).shape
    (400,)
    """

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Centers], Mapping[str, Array]]:
        check_whole(n_init=self.n_init)
        name = next(iter(data)) if len(data) == 1 else UNION
        centers, labels = kmeans(union(data), self.n_clusters, seed_of(seed, name, "kmeans"), n_init=self.n_init)
        return dict.fromkeys(data, centers), apart(labels, data)
