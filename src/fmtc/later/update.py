"""A model that goes on from what was kept, with new rows of some silos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..kernels.lift import RIDGE
from ..mixture.steps import Common, Personal, packed
from ..models import GraphModel, MixtureModel
from ..models.shared import GraphShared, Shared
from ..protocol.state import open_client
from ..refit import GraphCommon, MixtureCommon, Refitted, Silo, refit
from ..settings import Settings

Array = np.ndarray

STEPS = 10  # of what silos have in common, after theirs
OWN_SPREAD = 1.0  # 1/kappa where a silo has only its own model to go on from: its old means count as one row each


@dataclass(frozen=True)
class Updated:
    """What new rows come to: models and labels of the silos that have some, and what all have in common now."""

    clients: Mapping[str, Refitted]
    shared: Shared | None


def updated(rows: Mapping[str, Any], models: Mapping[str, Any], shared: Any, settings: Settings) -> Updated:
    """Go on from some silos' models with the rows that count now; concepts keep their numbers.

    Parameters
    ----------
    rows : mapping of client id to array of shape (n_t, d)
    models : mapping of client id to ClientModel
        Of these silos.
    shared : Shared, optional
        What all silos have in common. Silos without new rows keep their part in it. None: each silo goes on by itself.
    settings : Settings
    """
    if shared is not None and not set(rows) <= set(shared.client_ids):
        shared = None
    silos = {cid: Silo(cid, model.k, replace(settings, view=model.kind)) for cid, model in models.items()}
    views: dict[str, Any] = {"graph": _graph_common, "mixture": _mixture_common}
    known = {cid: views[model.kind](model, shared, silos[cid]) for cid, model in models.items()}
    found = {}
    for cid, X in rows.items():
        X = open_client(cid, X, replace(settings, view="auto")).X  # checked
        found[cid] = refit(silos[cid], known[cid], X, (models[cid].personal,))
    return Updated(found, None) if shared is None else _followed(shared, found, known, settings)


def _followed(shared: Shared, found: Mapping[str, Refitted], known: Mapping[str, Any], settings: Settings) -> Updated:
    """What all silos have in common follows some of them; where all their sums are known, their clusters follow it."""
    shared = shared.moved({cid: one.client for cid, one in found.items()}, settings)
    if shared.mixture is None or not set(shared.client_ids) <= set(shared.parts):
        return Updated(found, shared)
    for _ in range(STEPS):
        sums = {cid: packed(one.sums) for cid, one in found.items() if one.sums is not None}
        shared = replace(shared, parts={**shared.parts, **sums}).pooled(settings)
        found = {
            cid: replace(known[cid], mixture=shared.mixture).clustered(one.client, settings, (one.model.personal,))
            for cid, one in found.items()
        }
    return Updated(found, shared)


def _mixture_common(model: MixtureModel, shared: Shared | None, silo: Silo) -> MixtureCommon:
    """What a silo of the mixture view has to go on from: the common concepts, or else its own of before."""
    if shared is not None and shared.mixture is not None:
        return MixtureCommon(shared, shared.mixture)
    return MixtureCommon(model.units, _as_common(model.personal, model.covariance))


def _graph_common(model: GraphModel, shared: GraphShared | None, silo: Silo) -> GraphCommon:
    """What a silo of the graph view has to go on from: its slice of the consensus, or else its own projection."""
    mixture = None if shared is None else shared.mixture
    if mixture is None and model.precision is not None:
        even = replace(model.personal, shares=np.full(model.k, 1 / model.k))  # as in a run
        mixture = _as_common(even, np.linalg.inv(model.precision))
    if shared is not None and shared.Z is not None and shared.Y is not None:
        t = shared.client_ids.index(silo.name)
        anchor = np.ascontiguousarray(shared.Z[:, :, t] - shared.Y[:, :, t] / shared.rho)
        ridge = float(shared.rho / (2 * shared.omega[t] * silo.settings.alpha))
        return GraphCommon(shared, anchor, ridge, shared.scale, mixture=mixture)
    W = model.W if model.stretch is None or model.lift is not None else model.W * model.stretch[:, None]
    ridge = silo.settings.ridge if model.lift is None else RIDGE
    return GraphCommon(model.units, W, ridge, is_unit=True, mixture=mixture)


def _as_common(own: Personal, covariance: Array) -> Common:
    """A silo's own concepts in place of common ones."""
    spread = np.full(len(own.shares), OWN_SPREAD)
    return Common(own.means, (covariance + covariance.T) / 2, own.shares, own.profiles, spread, 0.0)


__all__ = ["Updated", "updated"]
