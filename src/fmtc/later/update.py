"""A model that goes on from what was kept, with new rows of some silos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..client import open_client
from ..errors import InputError
from ..inference import GraphModel, MixtureModel
from ..kernels.lift import RIDGE
from ..kernels.scaling import Scaling
from ..linalg.arrays import to_numpy
from ..mixture.steps import Common, packed
from ..refit import GraphCommon, MixtureCommon, Refitted, Silo, refit
from ..settings import Settings
from ..shared import Shared, pooled_parts, with_projections

OWN_SPREAD = 1.0  # 1/kappa where a silo has only its own model to go on from: its old means count as one row each


@dataclass(frozen=True)
class Updated:
    """What new rows come to: models and labels of the silos that have some, and what all have in common now."""

    clients: Mapping[str, Refitted]
    shared: Shared | None


def updated(rows: Mapping[str, Any], models: Mapping[str, Any], shared: Shared | None, settings: Settings) -> Updated:
    """Go on from some silos' models with the rows that count now; concepts keep their numbers.

    Parameters
    ----------
    rows : mapping of client id to array of shape (n_t, d)
    models : mapping of client id to ClientModel
        Of these silos.
    shared : Shared, optional
        What all silos have in common. Silos without new rows keep their part in it. None: each silo goes on by itself.
    settings : Settings
        Of the run, with its view.
    """
    refuse_lacking(models)
    if shared is not None and not set(rows) <= set(shared.client_ids):
        shared = None
    known: Any = {"mixture": _mixture_common, "graph": _graph_common}[settings.view]
    found = {}
    for cid, X in rows.items():
        X = open_client(cid, X, replace(settings, view="auto")).X  # checked
        silo, model = Silo(cid, models[cid].k, settings), models[cid]
        found[cid] = refit(silo, known(model, shared, silo), X, (model.personal,))
    return Updated(found, None if shared is None else followed(shared, found, settings))


def refuse_lacking(models: Mapping[str, Any]) -> None:
    """Raise `InputError` for models of the graph view that lack concepts: their axes are their own."""
    lacking = [cid for cid, model in models.items() if isinstance(model, GraphModel) and model.lacks is not None]
    if lacking:
        raise InputError(
            f"a graph view in which silos lack concepts cannot be updated, and {lacking[0]!r} lacks some: fit again, "
            'or fit with view="mixture"'
        )


def _mixture_common(model: MixtureModel, shared: Shared | None, silo: Silo) -> MixtureCommon:
    """What a silo of the mixture view has to go on from: the common concepts, or else its own of before."""
    frame = model.frame
    if shared is None or shared.mixture is None:
        scaling = None if frame.stretch is None else Scaling(frame.stretch, frame.shift, frame.keep)
        spread = np.full(model.k, OWN_SPREAD)
        own = Common(model.means, model.covariance, model.shares, model.profiles, spread, 0.0)
        return MixtureCommon(own, scaling, frame.axes, frame.origin)
    return MixtureCommon(shared.mixture, shared.scaling, shared.axes, shared.origin)


def _graph_common(model: GraphModel, shared: Shared | None, silo: Silo) -> GraphCommon:
    """What a silo of the graph view has to go on from: its slice of the consensus, or else its own projection."""
    mixture = _own_mixture(model) if shared is None or shared.mixture is None else shared.mixture
    if shared is not None and shared.Z is not None and shared.Y is not None:
        t = shared.client_ids.index(silo.name)
        anchor = np.ascontiguousarray(shared.Z[:, :, t] - shared.Y[:, :, t] / shared.rho)
        ridge = float(shared.rho / (2 * shared.omega[t] * silo.settings.alpha))
        return GraphCommon(anchor, ridge, shared.scale, False, shared.scaling, shared.lift, mixture)
    scaling = None if model.stretch is None else Scaling(model.stretch, model.fill, model.keep)
    W = model.W if model.stretch is None or model.lift is not None else model.W * model.stretch[:, None]
    ridge = silo.settings.solver.ridge if model.lift is None else RIDGE
    return GraphCommon(to_numpy(W), ridge, None, True, scaling, model.lift, mixture)


def _own_mixture(model: GraphModel) -> Common | None:
    """A silo's own clusters as those that they are drawn to; None where k-means forms them."""
    if model.precision is None:
        return None
    own, covariance = model.personal, np.linalg.inv(model.precision)
    shares = np.full(model.k, 1 / model.k)
    return Common(own.means, (covariance + covariance.T) / 2, shares, own.profiles, np.full(model.k, OWN_SPREAD), 0.0)


def followed(shared: Shared, found: Mapping[str, Refitted], settings: Settings) -> Shared:
    """What all silos have in common, after one step of the server with what some of them came to."""
    if shared.W is not None:
        shared = with_projections(shared, {cid: to_numpy(one.client.W) for cid, one in found.items()}, settings)
    if shared.mixture is None or not set(shared.client_ids) <= set(shared.parts):
        return shared
    sums = {cid: packed(one.sums) for cid, one in found.items() if one.sums is not None}
    return pooled_parts(replace(shared, parts={**shared.parts, **sums}), settings)


__all__ = ["Updated", "updated"]
