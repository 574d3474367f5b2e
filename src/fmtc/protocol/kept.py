"""What is kept of a server once its run is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..kernels.lift import draw
from ..kernels.scaling import Moments
from ..mixture.steps import Common, packed, unpacked
from ..models.shared import GraphShared, MixtureShared, Shared
from ..server import heard
from .graph.state import Finished
from .mixture.state import Mixing, MixtureServer
from .sums.graph import Framed

Array = np.ndarray


def kept(server: Any, settings: Any) -> Shared | None:
    """What is kept of a server after a run of FMTC; None for other methods, and for private runs."""
    if not isinstance(server, Mixing) or not server.client_ids:
        return None
    best = None if server.mixture is None else server.mixture.best(1)
    about = {name: getattr(server, name) for name in ("client_ids", "weights", "aside", "scaling", "words")}
    about |= {"n_clusters": settings.n_clusters, "size": 1.0 if best is None else best.size}
    if isinstance(server, MixtureServer):
        return _mixture(server, about, settings)
    if best is not None and best.rounds:
        about |= {"mixture": best.common(0), "parts": dict(server.parts)}
    assert isinstance(server, Finished | Framed)
    return _graph(server, about, settings)


def _graph(server: Finished | Framed, about: dict[str, Any], settings: Any) -> GraphShared:
    lift = None
    if server.lifted and server.scaling is not None:
        d = len(server.scaling.stretch)
        lift = draw(Moments(1, np.zeros(d), np.ones(d)), settings.seed)
    about |= {"lift": lift, "scale": server.scale, "rho": server.rho, "beta": server.beta or 0.0}
    if isinstance(server, Framed):
        return GraphShared(**about, reference=server.reference)
    centers = _mean_centers(server, settings)
    return GraphShared(**about, has=server.has, centers=centers, W=server.W, Z=server.Z, Y=server.Y)


def _mean_centers(server: Finished, settings: Any) -> Array | None:
    """Mean of the clients' centres of each concept, over those that have it; None without a common frame."""
    if not settings.solver.align or not server.centers:
        return None
    ids = heard(server, server.centers)
    has = np.array([server.orders[cid] >= 0 for cid in ids])
    total: Array = np.sum([np.asarray(server.centers[cid], dtype=np.float64) for cid in ids], axis=0)
    return total / np.maximum(has.sum(axis=0), 1)[:, None]


def _mixture(server: MixtureServer, about: dict[str, Any], settings: Any) -> MixtureShared:
    best = server.mixture.best(1)
    r = best.means.shape[2]
    axes = None if best.axes is None else np.ascontiguousarray(best.axes[:, :r])
    origin = None if best.origin is None else best.origin[:r]
    found = MixtureShared(**about, axes=axes, origin=origin, floor=best.floor)
    common, parts = _ordered(best.common(0), server.parts, best.order, found.levels(settings))
    return replace(found, mixture=common, parts=parts)


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


__all__ = ["kept"]
