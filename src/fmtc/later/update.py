"""A model that goes on from what was kept, with new rows of some silos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from ..describe.atlas import presence_of
from ..errors import InputError, listed
from ..estimator import FMTC
from ..kernels.lift import RIDGE
from ..mixture.steps import Common, Personal, packed
from ..models import GraphModel, MixtureModel
from ..models.shared import GraphShared, Shared
from ..protocol.home import ALONE, FEDERATED
from ..protocol.state import open_client
from ..refit import GraphCommon, MixtureCommon, Refitted, Silo, refit
from ..runtime.driver import RunRecord
from ..settings import Settings, check_number

Array = np.ndarray

STEPS = 10  # of what silos have in common, after theirs
OWN_SPREAD = 1.0  # 1/kappa where a silo has only its own model to go on from: its old means count as one row each


Found = dict[str, Refitted]  # models and labels of the silos that have new rows


def updated(
    rows: Mapping[str, Any], models: Mapping[str, Any], shared: Any, settings: Settings
) -> tuple[Found, Shared | None]:
    """Go on from some silos' models with the rows that count now; concepts keep their numbers.

    Parameters
    ----------
    rows : mapping of client id to array of shape (n_t, d)
    models : mapping of client id to ClientModel
    shared : Shared, optional
        What all silos have in common. Silos without new rows keep their part in it. None: each silo goes on by itself.
    settings : Settings

    Returns
    -------
    found : dict of client id to Refitted
    shared : Shared or None
        What all silos have in common now.
    """
    if shared is not None and not set(rows) <= set(shared.client_ids):
        shared = None
    commons: dict[str, Any] = {"graph": _graph_common, "mixture": _mixture_common}
    known, found = {}, {}
    for cid, X in rows.items():
        model = models[cid]
        silo = Silo(cid, model.k, replace(settings, view=model.kind))
        known[cid] = commons[model.kind](model, shared, silo)
        X = open_client(cid, X, settings).X  # checked
        found[cid] = refit(silo, known[cid], X, (model.personal,))
    return (found, None) if shared is None else _followed(shared, found, known, settings)


def _gone_on(rows: Any, before: Any, choices: Mapping[str, str], settings: Settings) -> tuple[Found, Any, list[str]]:
    """`updated`, but who kept clusters of its own goes on by itself; and the names of all others with new rows."""
    own = {cid: X for cid, X in rows.items() if choices.get(cid) == ALONE}
    others = {cid: X for cid, X in rows.items() if cid not in own}
    alone, shared = updated(own, before.models, None, settings)[0], before.shared
    found, shared = updated(others, before.models, shared, settings) if others else ({}, shared)
    return found | alone, shared, list(others)


def _followed(shared: Shared, found: Found, known: Mapping[str, Any], settings: Settings) -> tuple[Found, Shared]:
    """What all silos have in common follows some of them; where all their sums are known, their clusters follow it."""
    shared = shared.moved({cid: one.client for cid, one in found.items()}, settings)
    if shared.mixture is None or not set(shared.client_ids) <= set(shared.parts):
        return found, shared
    for _ in range(STEPS):
        sums = {cid: packed(one.sums) for cid, one in found.items() if one.sums is not None}
        shared = replace(shared, parts={**shared.parts, **sums}).pooled(settings)
        found = {
            cid: replace(known[cid], mixture=shared.mixture).clustered(one.client, settings, (one.model.personal,))
            for cid, one in found.items()
        }
    return found, shared


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
        before = None if shared.W is None else np.ascontiguousarray(shared.W[:, :, t])
        return GraphCommon(shared, anchor, ridge, shared.scale, mixture=mixture, before=before)
    W = model.W if model.stretch is None or model.lift is not None else model.W * model.stretch[:, None]
    ridge = silo.settings.ridge if model.lift is None else RIDGE
    return GraphCommon(model.units, W, ridge, is_unit=True, mixture=mixture, before=W)


def _as_common(own: Personal, covariance: Array) -> Common:
    """A silo's own concepts in place of common ones."""
    spread = np.full(len(own.shares), OWN_SPREAD)
    return Common(own.means, own.shares, own.profiles, (covariance + covariance.T) / 2, spread, 0.0)


# ---------------------------------------------------------------------------------------------------------- estimator


def update(model: FMTC, X: Any, silos: Any, keep_last: int | None) -> FMTC:
    """Go on with the rows that count now; see `FMTC.update`."""
    if keep_last is not None:
        check_number("keep_last", keep_last, Integral, "None or a whole number of at least 1", lambda v: v >= 1)
    parts = model._parts(X, silos, reset=False)
    for cid in parts:
        if why := model._models[cid].why_final:
            raise InputError(f"the model of {cid!r} cannot go on: {why}")
    rows = {cid: Xt if keep_last is None else Xt[-int(keep_last) :] for cid, (Xt, _) in parts.items()}
    before, k, settings = model._fitted, model.n_clusters_, replace(model._settings(), view=model.view_)
    found, shared, followed = _gone_on(rows, before, model.run_.choices, settings)
    models = {**before.models, **{cid: one.model for cid, one in found.items()}}
    model.__dict__.pop("embedding_", None)
    model.labels_ = np.empty(sum(Xt.shape[0] for Xt, _ in parts.values()), np.int64)
    presence = dict(before.presence)
    for cid, (Xt, places) in parts.items():
        model.labels_[places] = models[cid].assign(Xt)
        if cid in presence:
            presence[cid] = presence_of(model.labels_[places], k)
    sizes = {**before.sizes, **{cid: np.bincount(one.labels, minlength=k) for cid, one in found.items()}}
    model._fitted = replace(before, models=models, presence=presence, shared=shared, sizes=sizes, seen=None)
    known = {"consensus": shared and shared.Z, "kappa": shared and shared.mixture and shared.mixture.kappa}
    common = {name: value for name, value in known.items() if value is not None}
    why = f"went on from the model of before, with new rows of {listed(rows)}"
    result = RunRecord((), None, why, common=common, why=model.view_reason_, held=model.run_.held, shared=shared)
    model._remember(result, 1, choices={**model.run_.choices, **dict.fromkeys(followed, FEDERATED)})
    return model


__all__ = ["update", "updated"]
