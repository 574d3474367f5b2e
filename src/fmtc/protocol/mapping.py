"""The atlas at the server: concepts by numbers of columns, from what clients have said. No name, no row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..describe import Atlas, Features, draw
from ..describe.words import SUMMED
from ..models import Member, Presence
from ..models.base import weights_of
from ..models.graph import graph_signatures
from ..models.mixture import mixture_signatures
from ..privacy.rules import PRESENT
from ..server import ServerState
from ..settings import Settings
from .graph.settle import settle_pool
from .graph.state import Finished
from .mixture.em import known_parameters, pool_of
from .mixture.state import MixtureServer, category_levels
from .sums.graph import Framed

Array = np.ndarray

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
        found, None if lifted else Features(levels=levels, is_text=is_text), matched=settings.solver.align,
        notes=[COLUMNS, *([SUMMED] if alone else [])], silos=not alone, held=server.held,
    )  # fmt: skip


ALL = ""  # in place of a silo's name, where only all of them together are known


def _mixture(server: MixtureServer, settings: Settings) -> dict[str, Member]:
    """Concepts of a mixture over columns."""
    mixture = server.mixture.best(1)
    order, axes = mixture.order, mixture.axes
    scaling, k = server.scaling, mixture.means.shape[1]

    def member(means: Array, profiles: Array, weights: Array, presence: Presence | None) -> Member:
        signatures = mixture_signatures(means, mixture.covariance[0], profiles, weights, axes)
        away = signatures if axes is not None else np.hstack([means - weights @ means, profiles - weights @ profiles])
        r = away.shape[1] - profiles.shape[1]
        stretch = np.ones(r) if scaling is None else scaling.stretch[:r]
        amounts = np.hstack([away[:, :r] * stretch, away[:, r:]])
        keep = None if scaling is None else scaling.keep
        return Member(signatures, np.arange(signatures.shape[1]) if keep is None else keep, presence, amounts)

    if not server.parts:
        shares = mixture.shares[0][order]
        return {ALL: member(mixture.means[0][order], mixture.profiles[0][order], shares / shares.sum(), None)}
    levels = category_levels(mixture.axes, settings)
    found = {}
    for cid, own in known_parameters(mixture, server.parts, levels, pool_of(settings)).items():
        if cid in server.presence:
            presence = _presence(server.presence[cid], server.parts[cid][:k][order])
            found[cid] = member(own.means[order], own.profiles[order], weights_of(presence, None, k), presence)
    return found


def _summed(server: Framed) -> dict[str, Member]:
    """Concepts of the graph view where only sums are known: the mean projection, and the common means in its frame."""
    if server.mixture is None:
        return {}
    centers = server.mixture.best(1).means[0]
    found = graph_signatures(server.reference, centers, np.full(len(centers), 1 / len(centers)))
    keep = None if server.scaling is None else server.scaling.keep
    return {ALL: Member(found, np.arange(found.shape[1]) if keep is None else keep)}


def _graph(server: Finished, settings: Settings) -> dict[str, Member]:
    """Concepts of the graph view: W_t (c_tj - c̄_t)."""
    keep = None if server.scaling is None else server.scaling.keep
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
        presence = _presence(shares, counts)
        centers = centers_of[cid]
        signatures = graph_signatures(server.W[:, :, place[cid]], centers, weights_of(presence, None, len(centers)))
        members[cid] = Member(signatures, np.arange(signatures.shape[1]) if keep is None else keep, presence)
    return members


def _presence(shares: Array, counts: Array) -> Presence:
    """Shares as they came; 0 is a concept that the silo lacks or, where it has said that it has rows of it, few."""
    return tuple(
        float(share) if share > 0 else None if count > PRESENT else 0.0
        for share, count in zip(shares.tolist(), counts.tolist(), strict=True)
    )


__all__ = ["server_atlas"]
