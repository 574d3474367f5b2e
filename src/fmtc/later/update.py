"""A model that goes on from what was kept, with new rows of some silos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..client import ClientState, rotated
from ..errors import InputError
from ..inference import GraphModel, MixtureModel
from ..kernels.centers import row_norms
from ..kernels.embedding import nearest_orthonormal
from ..kernels.lift import RIDGE
from ..kernels.scaling import Scaling
from ..linalg.arrays import double, to_numpy
from ..mixture import Cells, e_step, personal, summed
from ..mixture.steps import Common, Personal, Statistics, Sums, packed
from ..protocol.em import pool_of, settle_pool
from ..protocol.finish import projected
from ..protocol.round import ROUND, one_pass
from ..server import server_step
from ..settings import Settings
from ..shared import Published, Shared, as_server, pooled_parts
from . import home

Array = np.ndarray

ROUNDS = 3  # of the graph view, for new rows: about a tenth of a run
EM_STEPS = 10  # of a mixture
OWN_SPREAD = 1.0  # 1/kappa where a silo has only its own model to go on from: its old means count as one row each
FULL_RANK = 1e-6  # smallest singular value of a projection, relative to the largest, with which it can be gone on from


@dataclass(frozen=True)
class Updated:
    """What new rows come to: models and labels of the silos that have some, and what all have in common now."""

    clients: Mapping[str, home.Fitted]
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
    """
    refuse_lacking(models)
    if shared is not None and not set(rows) <= set(shared.client_ids):
        shared = None
    view = "mixture" if isinstance(next(iter(models.values())), MixtureModel) else "graph"
    settings = home.at_home(settings, view)
    clients = {cid: home.opened(cid, X, settings, shared or units_of(models[cid])) for cid, X in rows.items()}
    if view == "mixture":
        return _mixtures(clients, models, shared, settings)
    return _graphs(clients, models, shared, settings)


def refuse_lacking(models: Mapping[str, Any]) -> None:
    """Raise `InputError` for models of the graph view that lack concepts: their axes are their own."""
    lacking = [cid for cid, model in models.items() if isinstance(model, GraphModel) and model.lacks is not None]
    if lacking:
        raise InputError(
            f"a graph view in which silos lack concepts cannot be updated, and {lacking[0]!r} lacks some: fit again, "
            'or fit with view="mixture"'
        )


def units_of(model: GraphModel | MixtureModel) -> Published:
    """The units of a silo's columns, as its own model knows them."""
    if isinstance(model, MixtureModel):
        frame = model.frame
        scaling = None if frame.stretch is None else Scaling(frame.stretch, frame.shift, frame.keep)
        return Published("mixture", model.k, 0, scaling, axes=frame.axes, origin=frame.origin)
    scaling = None if model.stretch is None else Scaling(model.stretch, model.fill, model.keep)
    return Published("graph", model.k, 0, scaling, model.lift)


# ------------------------------------------------------------------------------------------------------ graph view


def _graphs(
    clients: dict[str, ClientState], models: Mapping[str, Any], shared: Shared | None, settings: Settings
) -> Updated:
    if shared is None or shared.W is None:
        clients = {cid: _alone(client, models[cid], settings) for cid, client in clients.items()}
    else:
        server, scale = as_server(shared, settings), shared.scale
        ridges = shared.rho / (2 * shared.omega * settings.alpha)
        for cid, client in clients.items():
            t = shared.client_ids.index(cid)
            W = np.ascontiguousarray(shared.W[:, :, t])
            clients[cid] = begun(client, W, settings, scale, float(ridges[t]))
        for number in range(1, ROUNDS + 1):
            asks, answers = ROUND.asks(server, settings), {}
            for cid, client in clients.items():
                turned = rotated(client, asks[cid].rotation)
                clients[cid], cut, misfit = one_pass(turned, asks[cid].anchor, settings, number)
                answers[cid] = ROUND.Answer(W=to_numpy(clients[cid].W), cut=cut, misfit=misfit)
            server, _ = server_step(server, answers, settings)
        clients = {cid: rotated(client, server.rotations.get(cid)) for cid, client in clients.items()}
        shared = replace(shared, W=server.W, Z=server.Z, Y=server.Y)
    rows = {cid: projected(client, settings) for cid, client in clients.items()}
    first = next(iter(models.values()))
    if first.precision is None:
        found = {cid: _unit(clients[cid], models[cid], *rows[cid]) for cid in clients}
        return Updated(found, shared)
    cells = {cid: Cells(double(E), np.zeros((E.shape[0], 0), np.int64)) for cid, (E, _) in rows.items()}
    pools = {cid: settle_pool(settings, part.n).concentration for cid, part in cells.items()}
    own = {cid: Personal(to_numpy(double(m.centers)), np.maximum(m.shares, 1e-300), np.zeros((m.k, 0)))
           for cid, m in models.items()}  # fmt: skip
    priors = {cid: _prior(m, shared) for cid, m in models.items()}
    shared, commons, statistics = _followed(cells, own, priors, pools, shared, settings)
    return Updated(
        {
            cid: home.graph_result(client, rows[cid][1], rows[cid][0], commons[cid], statistics[cid], None, settings)
            for cid, client in clients.items()
        },
        shared,
    )


def begun(client: ClientState, W: Array, settings: Settings, scale: float, ridge: float) -> ClientState:
    """A client with its graph, whose embedding begins where its old projection puts the rows."""
    assert client.rows is not None
    M = to_numpy(client.rows @ W.astype(client.X.dtype))
    s = np.linalg.svd(M, compute_uv=False)
    F = nearest_orthonormal(M) if s[-1] > FULL_RANK * s[0] else None
    client = home.prepared(client, settings, scale, ridge, F)
    if F is not None:
        return client
    client = one_pass(client, np.zeros_like(W), settings, 1)[0]
    return home.turned(client, W)


def _alone(client: ClientState, model: GraphModel, settings: Settings) -> ClientState:
    """Rounds towards the client's own projection, where it has nothing else."""
    assert client.rows is not None
    rows = client.rows
    n, k = rows.shape[0], model.W.shape[1]
    scale = float(np.sqrt(n / max(rows.sum_of_squares(), 1e-300)))
    W = model.W if model.stretch is None or model.lift is not None else model.W * model.stretch[:, None]
    gamma = scale / np.sqrt(n) if settings.solver.rho is None else 1.0
    W = W * (np.sqrt(k) / max(gamma * float(np.linalg.norm(to_numpy(rows @ W))), 1e-300))  # as large as F
    client = begun(client, W, settings, scale, RIDGE if model.lift is not None else settings.solver.ridge)
    for number in range(1, ROUNDS + 1):
        client = home.turned(one_pass(client, W, settings, number)[0], W)
    return client


def _unit(client: ClientState, model: GraphModel, E: Array, fresh: GraphModel) -> home.Fitted:
    """Steps of k-means from the old centres; a concept without rows keeps its own."""
    centers = to_numpy(double(model.centers))
    points = to_numpy(double(E))
    for _ in range(EM_STEPS):
        labels = (points @ centers.T).argmax(axis=1)
        sums = np.zeros_like(centers)
        np.add.at(sums, labels, points)
        there = np.bincount(labels, minlength=len(centers)) > 0
        centers = np.where(there[:, None], sums / row_norms(sums), centers)
    return home.with_labels(client, replace(fresh, centers=centers.astype(fresh.W.dtype)), E)


def _prior(model: GraphModel, shared: Shared | None) -> Common:
    """What the clusters of a silo are drawn to: the common concepts, or else its own of before."""
    if shared is not None and shared.mixture is not None:
        return shared.mixture
    assert model.precision is not None and model.shares is not None
    covariance, there = np.linalg.inv(model.precision), model.shares > 0
    shares = there / there.sum()
    return Common(
        to_numpy(double(model.centers)), (covariance + covariance.T) / 2, shares, np.zeros((model.k, 0)),
        np.full(model.k, OWN_SPREAD), 0.0,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- mixture view


def _mixtures(
    clients: dict[str, ClientState], models: Mapping[str, Any], shared: Shared | None, settings: Settings
) -> Updated:
    cells = {cid: client.cells for cid, client in clients.items() if client.cells is not None}
    priors = {}
    for cid, m in models.items():
        if shared is not None and shared.mixture is not None:
            priors[cid] = shared.mixture
        else:
            spread = np.full(m.k, OWN_SPREAD)
            priors[cid] = Common(m.means, m.covariance, m.shares, m.profiles, spread, 0.0)
    pools = dict.fromkeys(clients, pool_of(settings).concentration)
    own = {cid: m.personal for cid, m in models.items()}
    shared, commons, statistics = _followed(cells, own, priors, pools, shared, settings)
    return Updated(
        {
            cid: home.mixture_result(client, commons[cid], statistics[cid], None, settings)
            for cid, client in clients.items()
        },
        shared,
    )


def _followed(
    cells: Mapping[str, Cells],
    own: Mapping[str, Personal],
    priors: Mapping[str, Common],
    pools: Mapping[str, float],
    shared: Shared | None,
    settings: Settings,
) -> tuple[Shared | None, dict[str, Common], dict[str, Statistics]]:
    """EM from the silos' own parameters; the common ones follow where the sums of all silos are known."""
    commons, statistics = dict(priors), {}
    for cid, part in cells.items():
        statistics[cid], _ = home.expected(part, own[cid], commons[cid])
    moves = shared is not None and shared.mixture is not None and set(shared.client_ids) <= set(shared.parts)
    for _ in range(EM_STEPS):
        sums: dict[str, Sums] = {}
        for cid, part in cells.items():
            mine = personal(commons[cid], statistics[cid], part.levels, pools[cid], part.never)
            found = e_step(part, mine, commons[cid].covariance)
            statistics[cid], sums[cid] = summed(commons[cid], statistics[cid], mine, found, part.levels, part.n)
        if moves:
            assert shared is not None
            parts = {**shared.parts, **{cid: packed(one) for cid, one in sums.items()}}
            shared = pooled_parts(replace(shared, parts=parts), settings)
            assert shared.mixture is not None
            commons = dict.fromkeys(commons, shared.mixture)
    return shared, commons, statistics


__all__ = ["Updated", "updated"]
