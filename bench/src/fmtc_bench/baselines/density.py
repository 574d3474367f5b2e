"""Each client alone, by densities: a Gaussian mixture, and HDBSCAN."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import HDBSCAN
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

from .base import Array, Baseline, Data, check_choice, check_positive, check_whole, seed_of, unit_rows

MOST_COLUMNS = 50  # that a density is estimated in
MORE_THAN_CLUSTERS = 10  # columns that more are brought to, besides one for each cluster
ROUNDING = 1e-12  # part of the mean square that is no variance
SHAPES = ("diag", "tied", "full")
SIZES = (3, 5, 8, 12, 20, 30, 50)  # least rows of a cluster that HDBSCAN tries


@dataclass(frozen=True)
class Reduced:
    """Rows in few dense columns: all of them, or the leading principal ones; of sparse rows, at unit length."""

    basis: Any = None  # a fitted PCA or TruncatedSVD; None: as they are
    unit: bool = False

    @classmethod
    def of(cls, X: Any, k: int, seed: int) -> Reduced:
        """For the rows of one client; sparse rows never become an n x d dense array."""
        r = min(k + MORE_THAN_CLUSTERS, MOST_COLUMNS, *X.shape)
        if sp.issparse(X):
            with np.errstate(invalid="ignore"):  # the share of the variance that is explained, where there is none
                return cls(TruncatedSVD(r, random_state=seed).fit(X), unit=True)
        return cls(PCA(r, svd_solver="full").fit(X)) if X.shape[1] > MOST_COLUMNS else cls()

    def __call__(self, X: Any) -> Array:
        """(n, d) -> (n, r)."""
        Y = np.asarray(X if self.basis is None else self.basis.transform(X), dtype=np.float64)
        return unit_rows(Y) if self.unit else Y


# -------------------------------------------------------------------------------------------------------- mixtures


@dataclass(frozen=True)
class MixtureModel:
    """Reduced rows, and the most likely component."""

    reduced: Reduced
    mixture: GaussianMixture

    def assign(self, X: Any) -> Array:
        """Component of each row; (n, d) -> (n,)."""
        return self.mixture.predict(self.reduced(X))


@dataclass(repr=False, eq=False, kw_only=True)
class GMMAlone(Baseline):
    """scikit-learn's `GaussianMixture` of each client by itself.

    Maximum likelihood by EM. The shape of covariances (diagonal, one for all clusters, or one for each) is the one with
    the best Bayesian information criterion, in each client by itself: no label is needed. Every variance has a ridge.
    More than 50 columns are brought to the ``n_clusters + 10`` leading principal ones, at most 50; sparse rows to as
    many by a truncated SVD, at unit length. Nothing leaves a client.

    Provenance: scikit-learn itself (Pedregosa et al. 2011); choice of the shape, columns and ridge are ours.

    Parameters
    ----------
    n_clusters : int
    shape : {"auto", "diag", "tied", "full"}
        "auto" takes the one with the best criterion.
    ridge : float
        Added to the variances, as a share of the mean variance of the columns.
    n_init : int
        Starts of each shape, from k-means.
    random_state : int, RandomState instance or None

    Examples
    --------
    >>> from fmtc_bench.baselines import GMMAlone
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("offset", seed=0)
    >>> GMMAlone(data.n_clusters, random_state=0).fit_predict(data.X, silos=data.clients).shape
    (400,)
    """

    shape: str = "auto"
    ridge: float = 0.3
    n_init: int = 3

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, MixtureModel], Mapping[str, Array]]:
        check_choice(("auto", *SHAPES), shape=self.shape)
        check_positive(ridge=self.ridge)
        check_whole(n_init=self.n_init)
        models, labels = {}, {}
        for cid, X in data.items():
            reduced = Reduced.of(X, self.n_clusters, seed_of(seed, cid, "columns"))
            Y = reduced(X)
            models[cid] = MixtureModel(reduced, self._mixture(Y, seed_of(seed, cid, "mixture")))
            labels[cid] = models[cid].mixture.predict(Y)
        return models, labels

    def _mixture(self, Y: Array, seed: int) -> GaussianMixture:
        """The shape with the best criterion."""
        variance, square = float(Y.var(axis=0).mean()), float(np.square(Y).mean())
        ridge = self.ridge * variance if variance > ROUNDING * square else square or 1.0  # rows that are all equal
        if len(Y) < 2:
            Y = np.repeat(Y, 2, axis=0)
        shapes = SHAPES if self.shape == "auto" else (self.shape,)
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rows that are equal, and of EM that has not settled
            for shape in shapes:
                solver = GaussianMixture(
                    min(self.n_clusters, len(Y)), covariance_type=shape, reg_covar=ridge, n_init=self.n_init,
                    random_state=seed,
                )  # fmt: skip
                found.append(solver.fit(Y))
        return min(found, key=lambda mixture: mixture.bic(Y))


# --------------------------------------------------------------------------------------------------------- HDBSCAN


@dataclass(frozen=True)
class NearestRow:
    """Reduced rows with their clusters; a new row takes that of the nearest."""

    reduced: Reduced
    neighbors: NearestNeighbors
    labels: Array  # n

    def assign(self, X: Any) -> Array:
        """Cluster of each row; (n, d) -> (n,)."""
        return self.labels[_nearest(self.neighbors, self.reduced(X))]


@dataclass(repr=False, eq=False, kw_only=True)
class HDBSCANAlone(Baseline):
    """scikit-learn's `HDBSCAN` of each client by itself, with every row in a cluster.

    HDBSCAN takes no number of clusters: the least size of a cluster is the one, of seven, that leads to the number
    nearest to `n_clusters`, and of those the one that leaves fewest rows as noise. Noise and new rows take the cluster
    of the nearest training row that has one. Without any cluster, all rows are one. Columns as in `GMMAlone`. Nothing
    leaves a client.

    Provenance: scikit-learn itself (Campello, Moulavi and Sander 2013); the choice of the size and what becomes of
    noise are ours.

    Parameters
    ----------
    n_clusters : int
    min_cluster_size : int or "auto"
    cluster_selection_method : {"eom", "leaf"}
        As in scikit-learn: clusters that persist, or the smallest ones.
    random_state : int, RandomState instance or None

    Examples
    --------
    >>> from fmtc_bench.baselines import HDBSCANAlone
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("rings", n_clusters=2, seed=0)
    >>> HDBSCANAlone(2, random_state=0).fit_predict(data.X, silos=data.clients).shape
    (800,)
    """

    min_cluster_size: int | str = "auto"
    cluster_selection_method: str = "eom"

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, NearestRow], Mapping[str, Array]]:
        check_choice(("eom", "leaf"), cluster_selection_method=self.cluster_selection_method)
        if self.min_cluster_size != "auto":
            check_whole(min_cluster_size=self.min_cluster_size)
        models, labels = {}, {}
        for cid, X in data.items():
            reduced = Reduced.of(X, self.n_clusters, seed_of(seed, cid, "columns"))
            Y = reduced(X)
            found = min(self._partitions(Y), key=self._distance, default=np.zeros(len(Y), dtype=int))
            settled = np.flatnonzero(found >= 0)
            if len(settled) == 0:
                settled, found = np.arange(len(Y)), np.zeros(len(Y), dtype=int)
            neighbors = NearestNeighbors(n_neighbors=1).fit(Y[settled])
            models[cid] = NearestRow(reduced, neighbors, found[settled])
            labels[cid] = np.where(found >= 0, found, models[cid].labels[_nearest(neighbors, Y)])
        return models, labels

    def _partitions(self, Y: Array) -> Iterator[Array]:
        """Labels for each size; -1 is noise."""
        sizes = SIZES if self.min_cluster_size == "auto" else (int(self.min_cluster_size),)
        for size in sizes:
            if 2 <= size <= len(Y) // 2:
                yield HDBSCAN(size, cluster_selection_method=self.cluster_selection_method, copy=True).fit(Y).labels_

    def _distance(self, labels: Array) -> tuple[int, int]:
        """How far a partition is from the number of clusters, and how much of it is noise."""
        return abs(int(labels.max()) + 1 - self.n_clusters), int((labels < 0).sum())


def _nearest(neighbors: NearestNeighbors, Y: Array) -> Array:
    return neighbors.kneighbors(Y, return_distance=False)[:, 0]
