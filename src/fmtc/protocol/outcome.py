"""What the server has once a run is over: its concepts by numbers of columns, and what is kept. No name, no row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..describe import Atlas, Features
from ..describe.atlas import draw
from ..describe.words import SUMMED
from ..mixture.steps import Common, Personal, packed, unpacked
from ..models import Frame, GraphModel, Member, MixtureModel, Presence
from ..models.shared import GraphShared, MixtureShared, Shared
from ..privacy.rules import PRESENT
from ..settings import Settings
from .base import Array
from .graph.finish import settle_pool
from .graph.state import Finished
from .mixture.em import known_parameters, pool_of
from .mixture.state import Mixing, MixtureServer, category_levels
from .state import ServerState, become, heard
from .sums.graph import Framed
from .units import common_lift

# ----------------------------------------------------------------------------------------------------------------- kept


def shared_by(server: Any, settings: Any) -> Shared | None:
    """What is kept of a server after a run of FMTC; None for other methods, and for private runs."""
    if not isinstance(server, Mixing) or not server.client_ids:
        return None
    if isinstance(server, MixtureServer):
        return _mixture_shared(server, settings)
    assert isinstance(server, Finished | Framed)
    return _graph_shared(server, settings)


def _graph_shared(server: Finished | Framed, settings: Any) -> GraphShared:
    best = None if server.mixture is None else server.mixture.best(1)
    known: dict[str, Any] = {"mixture": None, "parts": {}}
    if best is not None and best.rounds:
        known = {"mixture": best.common(0), "parts": dict(server.parts)}
    lift = None
    if server.lifted and server.scaling is not None:
        lift = common_lift(len(server.scaling.stretch), settings)
    centers = _mean_centers(server, settings) if isinstance(server, Finished) else None
    return become(
        server, GraphShared, n_clusters=settings.n_clusters, size=1.0 if best is None else best.size, lift=lift,
        beta=server.beta or 0.0, centers=centers, **known,
    )  # fmt: skip


def _mean_centers(server: Finished, settings: Any) -> Array | None:
    """Mean of the clients' centres of each concept, over those that have it; None without a common frame."""
    if not settings.align or not server.centers:
        return None
    ids = heard(server, server.centers)
    has = np.array([server.orders[cid] >= 0 for cid in ids])
    total: Array = np.sum([np.asarray(server.centers[cid], dtype=np.float64) for cid in ids], axis=0)
    return total / np.maximum(has.sum(axis=0), 1)[:, None]


def _mixture_shared(server: MixtureServer, settings: Any) -> MixtureShared:
    best = server.mixture.best(1)
    r = best.means.shape[2]
    axes = None if best.axes is None else np.ascontiguousarray(best.axes[:, :r])
    origin = None if best.origin is None else best.origin[:r]
    common, parts = _ordered(best.common(0), server.parts, best.order, category_levels(axes, settings))
    return become(
        server, MixtureShared, n_clusters=settings.n_clusters, size=best.size, axes=axes, origin=origin,
        floor=best.floor, mixture=common, parts=parts,
    )  # fmt: skip


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

    return common.ordered(order), {cid: turned(numbers) for cid, numbers in parts.items()}


# -------------------------------------------------------------------------------------------------------------- mapping


COLUMNS = "Columns are counted from 0 here: what they are called, the silos know; see their own pages."


def server_atlas(server: ServerState, settings: Settings) -> Atlas | None:
    """The atlas of a run that is over; None where the server knows no concepts."""
    mixes = isinstance(server, MixtureServer)
    found: dict[str, Member] = {}
    if isinstance(server, MixtureServer):
        found = _mixture(server, settings)
    elif isinstance(server, Framed):
        found = _summed(server)
    elif isinstance(server, Finished):
        found = _graph(server, settings)
    if not found:
        return None
    levels = tuple(tuple(f"level {code}" for code in range(size)) for size in settings.levels)
    is_text = settings.scale == "tfidf"
    alone = set(found) == {ALL}
    lifted = server.lifted and not mixes
    return draw(
        found, None if lifted else Features(levels=levels, is_text=is_text), matched=settings.align,
        notes=[COLUMNS, *([SUMMED] if alone else [])], silos=not alone, held=server.held,
    )  # fmt: skip


ALL = ""  # in place of a silo's name, where only all of them together are known


def _mixture(server: MixtureServer, settings: Settings) -> dict[str, Member]:
    """Concepts of a mixture over columns."""
    mixture = server.mixture.best(1)
    common, order = mixture.common(0), mixture.order
    frame = Frame.of(server.scaling, settings.levels, mixture.axes, None)

    def member(own: Personal, presence: Presence | None = None) -> Member:
        means, shares, profiles = own.means[order], own.shares[order], own.profiles[order]
        return MixtureModel(frame, means, common.covariance, shares, profiles).member(presence)

    if not server.parts:
        return {ALL: member(common)}
    levels = category_levels(mixture.axes, settings)
    found = {}
    for cid, own in known_parameters(mixture, server.parts, levels, pool_of(settings)).items():
        if cid in server.presence:
            counts = server.parts[cid][: len(order)][order]
            found[cid] = member(own, _presence(server.presence[cid], counts))
    return found


def _summed(server: Framed) -> dict[str, Member]:
    """Concepts of the graph view where only sums are known: the mean projection, and the common means in its frame."""
    if server.mixture is None:
        return {}
    return {ALL: _projecting(server, server.reference, server.mixture.best(1).means[0]).member(None)}


def _graph(server: Finished, settings: Settings) -> dict[str, Member]:
    """Concepts of the graph view: W_t (c_tj - c̄_t)."""
    centers_of: Mapping[str, Array] = server.centers
    if server.parts and server.mixture is not None:
        known = known_parameters(server.mixture, server.parts, (), settle_pool(settings))
        centers_of = {cid: own.means for cid, own in known.items()}
    place = {cid: t for t, cid in enumerate(server.client_ids)}
    members = {}
    for cid, shares in server.presence.items():
        if cid not in centers_of or cid not in place:
            continue
        counts = server.parts[cid][: len(shares)] if cid in server.parts else (server.orders[cid] >= 0).astype(float)
        model = _projecting(server, server.W[:, :, place[cid]], centers_of[cid])
        members[cid] = model.member(_presence(shares, counts))
    return members


def _projecting(server: Finished | Framed, W: Array, centers: Array) -> GraphModel:
    """A model of the graph view for columns in the units of the run, to ask where its concepts lie."""
    keep = None if server.scaling is None else server.scaling.keep
    return GraphModel(W, centers, 1.0, None, None if keep is None else np.ones(len(keep)), keep)


def _presence(shares: Array, counts: Array) -> Presence:
    """Shares as they came; 0 is a concept that the silo lacks or, where it has said that it has rows of it, few."""
    return tuple(
        float(share) if share > 0 else None if count > PRESENT else 0.0
        for share, count in zip(shares.tolist(), counts.tolist(), strict=True)
    )
