"""What all clients of a run have in common at its end: kept by whoever had the server, and published for newcomers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from .errors import InputError, TrustError
from .kernels.lift import Lift, draw
from .kernels.scaling import Moments, Scaling
from .mixture.pooling import Pool, added, pooled, weighted
from .mixture.steps import Common, Sums, packed, unpacked
from .server import ServerState, client_weights, heard, row_weights
from .settings import Settings

Array = np.ndarray

FEWEST = 3  # silos: of two, each knows the other's part in a mean


@dataclass(frozen=True)
class Shared:
    """The server after a run, without what only the rounds needed; slice t of a stack belongs to ``client_ids[t]``."""

    client_ids: tuple[str, ...]
    view: str  # "graph" or "mixture"
    n_clusters: int
    scaling: Scaling | None = None  # what all clients do to their columns
    lift: Lift | None = None  # after that, in the graph view
    scale: float = 1.0  # gives rows mean squared norm 1
    rho: float = 0.0
    beta: float = 0.0  # in the units of Eq. 18
    weights: Mapping[str, float] | None = None  # of the clients, as given
    aside: tuple[str, ...] = ()  # clients that have no part in what is common
    has: Array | None = None  # K x m, bool: which concepts each client has; None: all have all
    W: Array | None = None  # d x k x m, graph view in which the server saw each client's answers
    Z: Array | None = None
    Y: Array | None = None
    reference: Array | None = None  # d x k, mean of projections of norm 1, where the server saw sums only
    centers: Array | None = None  # k x k, mean of the clients' unit centres, where no mixture forms the clusters
    mixture: Common | None = None  # over projections, or over columns; concepts in the order of their numbers
    size: float = 1.0  # variance of a coordinate of the mixture
    axes: Array | None = None  # d x r, coordinates of a mixture of many columns
    origin: Array | None = None  # r
    parts: Mapping[str, Array] = field(default_factory=dict)  # each client's last sums of the mixture, packed
    floor: Array | None = None  # r, least variance of coordinates of few values
    words: bool = False  # rows are sparse or weighed as words

    @property
    def omega(self) -> Array:
        """The paper's weights of the clients, which sum to 1; (m,)."""
        return client_weights(self.client_ids, self.weights)

    @property
    def kappa(self) -> Array:
        """Pooling strength of each concept of the mixture; infinity: the same means for all."""
        assert self.mixture is not None
        with np.errstate(divide="ignore"):
            kappa: Array = 1 / self.mixture.spread
        return kappa

    def ridge(self, settings: Settings) -> float:
        """Weight of the consensus in the regression of a client of average weight."""
        return self.rho * len(self.client_ids) / (2 * settings.alpha)

    def sums(self, client_id: str, levels: tuple[int, ...]) -> Sums:
        """A client's last sums of the mixture."""
        assert self.mixture is not None
        k, r = self.mixture.means.shape
        return unpacked(self.parts[client_id], k, r, levels)


def kept(server: Any, settings: Any) -> Shared | None:
    """What is kept of a server after a run of FMTC; None for other methods, and for private runs."""
    if not isinstance(server, ServerState) or server.view not in ("graph", "mixture") or not server.client_ids:
        return None
    best = None if server.mixture is None or not len(server.mixture.means) else server.mixture.best(1)
    common, parts = None, dict(server.parts)
    if best is not None and (server.view == "mixture" or best.rounds):
        common = best.common(0)
        levels = category_levels(best.axes, settings)
        if server.view == "mixture":
            common, parts = _ordered(common, parts, best.order, levels)
    about = Shared(
        server.client_ids, server.view, settings.n_clusters, server.scaling, weights=server.weights,
        aside=server.aside, mixture=common, size=1.0 if best is None else best.size,
        parts=parts if common is not None else {}, words=server.words,
    )  # fmt: skip
    if server.view == "mixture":
        if best is None:
            return None
        r = best.means.shape[2]
        axes = None if best.axes is None else np.ascontiguousarray(best.axes[:, :r])
        return replace(about, axes=axes, origin=None if best.origin is None else best.origin[:r], floor=best.floor)
    clear, lift = bool(server.Z.size), None
    if server.lifted and server.scaling is not None:
        d = len(server.scaling.stretch)
        lift = draw(Moments(1, np.zeros(d), np.ones(d)), settings.seed)
    return replace(
        about, lift=lift, scale=server.scale, rho=server.rho, beta=server.beta or 0.0, has=server.has,
        centers=_mean_centers(server, settings),
        W=server.W if clear else None, Z=server.Z if clear else None, Y=server.Y if clear else None,
        reference=None if clear else server.reference,
    )  # fmt: skip


def _mean_centers(server: ServerState, settings: Any) -> Array | None:
    """Mean of the clients' centres of each concept, over those that have it; None without a common frame."""
    if not settings.solver.align or not server.centers:
        return None
    ids = heard(server, server.centers)
    has = np.array([server.orders[cid] >= 0 for cid in ids])
    total: Array = np.sum([np.asarray(server.centers[cid], dtype=np.float64) for cid in ids], axis=0)
    return total / np.maximum(has.sum(axis=0), 1)[:, None]


def category_levels(axes: Array | None, settings: Any) -> tuple[int, ...]:
    """Levels of the categories of a mixture over columns; along axes they are numbers like all others."""
    return tuple(size for size in settings.levels if size) if axes is None else ()


def _ordered(
    common: Common, parts: Mapping[str, Array], order: Array, levels: tuple[int, ...]
) -> tuple[Common, dict[str, Array]]:
    """Concepts of a mixture in the order of their numbers."""
    k, r = common.means.shape

    def turned(numbers: Array) -> Array:
        sums = unpacked(numbers, k, r, levels)
        by_concept = {name: getattr(sums, name)[order]
                      for name in ("counts", "weights", "means", "level_weights", "levels")}  # fmt: skip
        return packed(replace(sums, spread=sums.spread[:, order], **by_concept))

    rows = {f.name: getattr(common, f.name)[order] for f in fields(Common) if f.name not in ("covariance", "drift")}
    return replace(common, **rows), {cid: turned(numbers) for cid, numbers in parts.items()}


def chosen_coupling(shared: Shared | None, model: Any) -> str | None:
    """The coupling that a run of the graph view chose, where its settings left it open; None: nothing was chosen."""
    if shared is None or shared.view != "graph" or model.coupling != "auto":
        return None
    name: str = model.settings(n_clusters=shared.n_clusters).coupling_of(shared.words)
    return name


def pool_of(shared: Shared, settings: Settings) -> Pool:
    """How the mixture of a run is pooled: the common part, which does not depend on a client's rows."""
    if shared.view == "mixture":
        return Pool(spread=settings.solver.spread)
    return Pool(spread=settings.spread_of(shared.words), drift=0.0, even=True)


def pooled_parts(shared: Shared, settings: Settings) -> Shared:
    """Common parameters of the mixture from the last sums of the clients that are there."""
    if shared.mixture is None or not shared.parts:
        return shared
    levels = category_levels(shared.axes, settings) if shared.view == "mixture" else ()
    ids = [cid for cid in shared.client_ids if cid in shared.parts and cid not in shared.aside]
    ids = ids or [cid for cid in shared.client_ids if cid in shared.parts]
    weights = row_weights(ServerState(shared.client_ids, shared.weights)) or {}
    sums = added(weighted(shared.sums(cid, levels), weights.get(cid, 1.0)) for cid in ids)
    common = pooled(shared.mixture, sums, pool_of(shared, settings), levels, shared.size, len(ids), shared.floor)
    return replace(shared, mixture=common)


def as_server(shared: Shared, settings: Settings) -> ServerState:
    """A server that goes on from where the rounds of the graph view ended."""
    assert shared.W is not None and shared.Z is not None and shared.Y is not None
    m = len(shared.client_ids)
    return ServerState(
        shared.client_ids, shared.weights, view="graph", n_features=shared.W.shape[0], scaling=shared.scaling,
        omega=shared.omega, rho=shared.rho, beta=shared.beta, scale=shared.scale, W=shared.W, Z=shared.Z, Y=shared.Y,
        losses=np.zeros(m), round_no=1, words=shared.words,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- published


@dataclass(frozen=True)
class Published:
    """What a newcomer gets of a run: means over at least three silos, and nothing of a single one."""

    view: str
    n_clusters: int
    n_silos: int
    scaling: Scaling | None = None
    lift: Lift | None = None
    scale: float = 1.0
    ridge: float = 0.0
    consensus: Array | None = None  # d x k, mean consensus
    is_unit: bool = False  # whether its length says nothing: the mean of projections of norm 1
    centers: Array | None = None  # k x k, unit centres where no mixture forms the clusters
    mixture: Common | None = None
    axes: Array | None = None
    origin: Array | None = None

    def fits(self, d: int) -> bool:
        """Whether arrays fit each other and d columns, categories expanded."""
        width = d if self.scaling is None or self.scaling.keep is None else len(self.scaling.keep)
        if self.scaling is not None:
            arrays = (self.scaling.stretch, self.scaling.shift)
            if any(array is not None and array.shape != (width,) for array in arrays):
                return False
            keep = self.scaling.keep
            if keep is not None and (keep.dtype.kind != "i" or ((keep < 0) | (keep >= d)).any()):
                return False
        if self.lift is not None:
            if self.scaling is None or self.lift.frequencies.shape[0] != width:
                return False
            width = self.lift.n_features
        k, common = self.n_clusters, self.mixture
        if self.view == "mixture":
            r = common.means.shape[1] if common is not None and common.means.ndim == 2 else -1
            if common is None or not _consistent(common, k, r):
                return False
            return self.axes is None or self.axes.shape == (width, r)
        if self.consensus is None or self.consensus.ndim != 2 or self.consensus.shape[0] != width:
            return False
        q = self.consensus.shape[1]
        if common is None:
            return self.centers is not None and self.centers.shape == (k, q)
        return _consistent(common, k, q)


def _consistent(common: Common, k: int, r: int) -> bool:
    return (
        common.means.shape == (k, r)
        and common.covariance.shape == (r, r)
        and common.shares.shape == common.spread.shape == (k,)
        and common.profiles.ndim == 2
        and len(common.profiles) == k
    )


def published(shared: Shared, settings: Settings) -> Published:
    """What may be shown to a newcomer, or an error that says why nothing may."""
    m = len(shared.client_ids)
    if m < FEWEST:
        raise TrustError(
            f"a run of {m} silo{'s' if m != 1 else ''} cannot be published: a mean over fewer than {FEWEST} silos "
            "shows what one of them has"
        )
    found = Published(
        shared.view, shared.n_clusters, m, shared.scaling, mixture=shared.mixture, axes=shared.axes,
        origin=shared.origin,
    )  # fmt: skip
    if shared.view == "mixture":
        return found
    if not settings.solver.align or (shared.mixture is None and shared.centers is None):
        raise InputError(
            "this run cannot be published: its silos have no common frame (align=False), so that means over them say "
            "nothing"
        )
    few = [] if shared.has is None else np.flatnonzero(shared.has.sum(axis=1) < FEWEST).tolist()
    if few:
        raise TrustError(
            f"this run cannot be published: fewer than {FEWEST} silos have concept {few[0]}, and its mean shows what "
            "one of them has"
        )
    if shared.Z is None:
        consensus, is_unit = shared.reference, True
    elif shared.has is not None:
        consensus, is_unit = shared.Z.sum(axis=2) / shared.has.sum(axis=1), False
    else:
        near = [t for t, cid in enumerate(shared.client_ids) if cid not in shared.aside]
        consensus, is_unit = shared.Z[:, :, near if len(near) >= FEWEST else slice(None)].mean(axis=2), False
    centers = shared.centers
    if centers is not None:
        centers = centers / np.maximum(np.linalg.norm(centers, axis=1, keepdims=True), 1e-300)
    return replace(
        found, lift=shared.lift, scale=shared.scale, ridge=shared.ridge(settings), consensus=consensus,
        is_unit=is_unit, centers=None if shared.mixture is not None else centers,
    )  # fmt: skip


__all__ = ["FEWEST", "Published", "Shared", "kept", "published"]
