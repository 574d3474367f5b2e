"""What all clients of a run have in common at its end: kept by whoever had the server, and published for newcomers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from ..errors import InputError, TrustError
from ..kernels.couplings import COUPLINGS
from ..kernels.couplings.partial import Partial
from ..linalg.arrays import to_numpy
from ..mixture.pooling import Pool, added, pooled, weighted
from ..mixture.steps import Common, unpacked
from ..settings import Settings
from .base import Units, are_columns, have_shapes

Array = np.ndarray

FEWEST = 3  # silos: of two, each knows the other's part in a mean


@dataclass(frozen=True, kw_only=True)
class Shared(Units, ABC):
    """The server after a run, without what only the rounds needed; slice t of a stack belongs to ``client_ids[t]``."""

    view: ClassVar[str]

    client_ids: tuple[str, ...]
    n_clusters: int
    weights: Mapping[str, float] | None = None  # of the clients, as given
    aside: tuple[str, ...] = ()  # clients that have no part in what is common
    mixture: Common | None = None  # over projections, or over columns; concepts in the order of their numbers
    size: float = 1.0  # variance of a coordinate of the mixture
    floor: Array | None = None  # r, least variance of coordinates of few values
    parts: Mapping[str, Array] = field(default_factory=dict)  # each client's last sums of the mixture, packed
    Z: Array | None = None  # d x k x m, consensus of the graph view where the server saw each client's answers
    words: bool = False  # rows are sparse or weighed as words

    @property
    def omega(self) -> Array:
        """The paper's weights of the clients, which sum to 1; (m,)."""
        given = np.array([1.0 if self.weights is None else self.weights[cid] for cid in self.client_ids], float)
        return given / given.sum()

    @property
    def n_columns(self) -> int:
        """Columns of the clients' rows, where that is known; else 0."""
        return 0

    def coupling(self, model: Any) -> str | None:
        """The coupling that the run chose, where the settings of an estimator left it open; None: nothing was."""
        return None

    @abstractmethod
    def levels(self, settings: Settings) -> tuple[int, ...]:
        """Levels of the categories of its mixture."""

    @abstractmethod
    def pool(self, settings: Settings) -> Pool:
        """How its mixture is pooled: the common part, which does not depend on a client's rows."""

    def pooled(self, settings: Settings) -> Self:
        """The same with parameters of the mixture from the last sums of the clients that are there."""
        if self.mixture is None or not self.parts:
            return self
        levels, (k, r) = self.levels(settings), self.mixture.means.shape
        ids = [cid for cid in self.client_ids if cid in self.parts and cid not in self.aside]
        ids = ids or [cid for cid in self.client_ids if cid in self.parts]
        weights = dict(zip(self.client_ids, (len(self.client_ids) * self.omega).tolist(), strict=True))
        sums = added(weighted(unpacked(self.parts[cid], k, r, levels), weights[cid]) for cid in ids)
        common = pooled(self.mixture, sums, self.pool(settings), levels, self.size, len(ids), self.floor)
        return replace(self, mixture=common)

    def moved(self, clients: Mapping[str, Any], settings: Settings) -> Self:
        """The same after one step of the server, with clients that have gone on; of a mixture, as it is."""
        return self

    def published(self, settings: Settings) -> Published:
        """What may be shown to a newcomer, or an error that says why nothing may."""
        m = len(self.client_ids)
        if m < FEWEST:
            raise TrustError(
                f"a run of {m} silo{'s' if m != 1 else ''} cannot be published: a mean over fewer than {FEWEST} silos "
                "shows what one of them has"
            )
        about = {f.name: getattr(self, f.name) for f in fields(Units)}
        return Published(view=self.view, n_clusters=self.n_clusters, n_silos=m, mixture=self.mixture, **about)


@dataclass(frozen=True, kw_only=True)
class GraphShared(Shared):
    """The same of the graph view: consensus and dual, and the mixture among projections."""

    view: ClassVar[str] = "graph"

    scale: float = 1.0  # gives rows mean squared norm 1
    rho: float = 0.0
    beta: float = 0.0  # in the units of Eq. 18
    has: Array | None = None  # K x m, bool: which concepts each client has; None: all have all
    W: Array | None = None  # d x k x m, as Z
    Y: Array | None = None
    reference: Array | None = None  # d x k, mean of projections of norm 1, where the server saw sums only
    centers: Array | None = None  # k x k, mean of the clients' unit centres, where no mixture forms the clusters

    @property
    def n_columns(self) -> int:
        """Columns of the projections, if these are those of the rows."""
        stack = self.reference if self.W is None else self.W
        return 0 if stack is None or self.lift is not None else len(stack)

    def coupling(self, model: Any) -> str | None:
        """The coupling that the run chose, where the settings of an estimator left it open."""
        if model.graph is not None and model.graph.coupling != "auto":
            return None
        return model._settings(n_clusters=self.n_clusters).coupling_of(self.words)

    def levels(self, settings: Settings) -> tuple[int, ...]:
        """None among projections."""
        return ()

    def pool(self, settings: Settings) -> Pool:
        """Silos do not shift as a whole: projections are in a common frame already."""
        return Pool(spread=settings.spread_of(self.words), drift=0.0, even=True)

    def moved(self, clients: Mapping[str, Any], settings: Settings) -> Self:
        """The same after one step of the server (Eq. 18, 19), with the projections of clients that have gone on."""
        if self.W is None or self.Y is None:
            return self
        W, whole = self.W.copy(), COUPLINGS[settings.coupling_of(self.words)]
        for cid, client in clients.items():
            W[:, :, self.client_ids.index(cid)] = to_numpy(client.W)
        T = W + self.Y / self.rho
        coupling = whole if self.has is None else Partial(whole, self.has)
        Z = np.array(coupling.prox(T, self.beta / self.rho, settings.schatten_p).separate_from(T).Z)
        return replace(self, W=W, Z=Z, Y=self.rho * (T - Z))

    def published(self, settings: Settings) -> Published:
        """The mean consensus, and what forms the clusters."""
        about = super().published(settings)
        if not settings.align or (self.mixture is None and self.centers is None):
            raise InputError(
                "this run cannot be published: its silos have no common frame (align=False), so that means over them "
                "say nothing"
            )
        few = [] if self.has is None else np.flatnonzero(self.has.sum(axis=1) < FEWEST).tolist()
        if few:
            raise TrustError(
                f"this run cannot be published: fewer than {FEWEST} silos have cluster {few[0]}, and its mean shows "
                "what one of them has"
            )
        if self.Z is None:
            consensus = self.reference
        elif self.has is not None:
            consensus = self.Z.sum(axis=2) / self.has.sum(axis=1)
        else:
            near = [t for t, cid in enumerate(self.client_ids) if cid not in self.aside]
            consensus = self.Z[:, :, near if len(near) >= FEWEST else slice(None)].mean(axis=2)
        centers = None if self.mixture is not None else self.centers
        if centers is not None:
            centers = centers / np.maximum(np.linalg.norm(centers, axis=1, keepdims=True), 1e-300)
        ridge = self.rho * len(self.client_ids) / (2 * settings.alpha)  # of a client of average weight
        return replace(
            about, scale=self.scale, ridge=ridge, consensus=consensus, is_unit=self.Z is None, centers=centers
        )


@dataclass(frozen=True, kw_only=True)
class MixtureShared(Shared):
    """The same of the mixture view."""

    view: ClassVar[str] = "mixture"

    def levels(self, settings: Settings) -> tuple[int, ...]:
        """Those of columns that are categories; along axes they are numbers like all others."""
        return tuple(size for size in settings.levels if size) if self.axes is None else ()

    def pool(self, settings: Settings) -> Pool:
        """As in the run."""
        return Pool(spread=settings.spread)


# ------------------------------------------------------------------------------------------------------- published


@dataclass(frozen=True, kw_only=True)
class Published(Units):
    """What a newcomer gets of a run: means over at least three silos, and nothing of a single one."""

    view: str
    n_clusters: int
    n_silos: int
    scale: float = 1.0
    ridge: float = 0.0
    consensus: Array | None = None  # d x k, mean consensus of the graph view
    is_unit: bool = False  # whether its length says nothing: the mean of projections of norm 1
    centers: Array | None = None  # k x k, unit centres where no mixture forms the clusters
    mixture: Common | None = None

    def fits(self, d: int) -> bool:
        """Whether arrays fit each other and d columns, categories expanded."""
        width, scaling, mixture = d if self.keep is None else len(self.keep), self.scaling, self.mixture
        if not are_columns(self.keep, d) or (scaling and not have_shapes(scaling, stretch=(width,), shift=(width,))):
            return False
        if self.lift is not None:
            if scaling is None or self.lift.frequencies.shape[0] != width:
                return False
            width = self.lift.n_features
        if self.view == "mixture":
            r = -1 if mixture is None else mixture.means.shape[-1]
            return self._mixture_fits(r) and have_shapes(self, axes=(width, r))
        if self.consensus is None or self.consensus.ndim != 2:
            return False
        q, k = self.consensus.shape[1], self.n_clusters
        clusters = self.centers is not None if mixture is None else self._mixture_fits(q)
        return clusters and have_shapes(self, consensus=(width, q), centers=(k, q))

    def _mixture_fits(self, r: int) -> bool:
        common, k = self.mixture, self.n_clusters
        if common is None or common.profiles.ndim != 2 or len(common.profiles) != k:
            return False
        return have_shapes(common, means=(k, r), covariance=(r, r), shares=(k,), spread=(k,))

    @property
    def is_dense(self) -> bool:
        """Whether the silos' rows are not sparse: a mixture over columns, or columns that are shifted."""
        over_columns = self.consensus is None and self.axes is None
        return over_columns or (self.scaling is not None and self.scaling.shift is not None)


SHARED: dict[str, type[Shared]] = {kind.view: kind for kind in (GraphShared, MixtureShared)}

__all__ = ["SHARED", "GraphShared", "MixtureShared", "Published", "Shared"]
