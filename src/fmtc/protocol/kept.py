"""What is kept of the server when a run is over, and how a server goes on from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..kernels.lift import draw
from ..kernels.scaling import Moments
from ..server import heard
from ..settings import Settings
from ..shared import Shared, category_levels, ordered
from .graphstate import Finished, GraphServer
from .mixturestate import Mixing, MixtureServer
from .subspace import Framed

Array = np.ndarray


def kept(server: Any, settings: Any) -> Shared | None:
    """What is kept of a server after a run of FMTC; None for other methods, and for private runs."""
    if not isinstance(server, Mixing) or not server.client_ids:
        return None
    best = None if server.mixture is None else server.mixture.best(1)
    common, parts = None, dict(server.parts)
    mixes = isinstance(server, MixtureServer)
    if best is not None and (mixes or best.rounds):
        common = best.common(0)
        if mixes:
            common, parts = ordered(common, parts, best.order, category_levels(best.axes, settings))
    about = Shared(
        server.client_ids, str(server.view), settings.n_clusters, server.scaling, weights=server.weights,
        aside=server.aside, mixture=common, size=1.0 if best is None else best.size,
        parts=parts if common is not None else {}, words=server.words,
    )  # fmt: skip
    if best is not None and mixes:
        r = best.means.shape[2]
        axes = None if best.axes is None else np.ascontiguousarray(best.axes[:, :r])
        return replace(about, axes=axes, origin=None if best.origin is None else best.origin[:r], floor=best.floor)
    assert isinstance(server, Finished | Framed)
    if server.lifted and server.scaling is not None:
        d = len(server.scaling.stretch)
        about = replace(about, lift=draw(Moments(1, np.zeros(d), np.ones(d)), settings.seed))
    about = replace(about, scale=server.scale, rho=server.rho, beta=server.beta or 0.0)
    if isinstance(server, Framed):
        return replace(about, reference=server.reference)
    centers = _mean_centers(server, settings)
    return replace(about, has=server.has, centers=centers, W=server.W, Z=server.Z, Y=server.Y)


def _mean_centers(server: Finished, settings: Any) -> Array | None:
    """Mean of the clients' centres of each concept, over those that have it; None without a common frame."""
    if not settings.solver.align or not server.centers:
        return None
    ids = heard(server, server.centers)
    has = np.array([server.orders[cid] >= 0 for cid in ids])
    total: Array = np.sum([np.asarray(server.centers[cid], dtype=np.float64) for cid in ids], axis=0)
    return total / np.maximum(has.sum(axis=0), 1)[:, None]


def as_server(shared: Shared, settings: Settings) -> GraphServer:
    """A server that goes on from where the rounds of the graph view ended."""
    assert shared.W is not None and shared.Z is not None and shared.Y is not None
    m = len(shared.client_ids)
    return GraphServer(
        shared.client_ids, shared.weights, view="graph", n_features=shared.W.shape[0], scaling=shared.scaling,
        omega=shared.omega, rho=shared.rho, beta=shared.beta, scale=shared.scale, W=shared.W, Z=shared.Z, Y=shared.Y,
        losses=np.zeros(m), round_no=1, words=shared.words,
    )  # fmt: skip
