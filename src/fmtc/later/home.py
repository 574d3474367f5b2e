"""A client at home with what others have in common: rows in their units, their concepts as a prior; nothing leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..client import ClientState, cells_of, input_rows, open_client, with_rows
from ..kernels.alignment import procrustes
from ..kernels.objective import dot
from ..kernels.scaling import shiftable
from ..linalg.arrays import double, to_device_of, to_numpy
from ..mixture import Cells, e_step, personal, summed
from ..mixture.pooling import Pool
from ..mixture.steps import Common, Personal, Statistics, Sums
from ..models import Frame, GraphModel, MixtureModel, Units
from ..protocol.em import SETTLE_STEPS, SETTLED, first_statistics, pool_of, settle_pool
from ..protocol.finish import FINISH
from ..protocol.prepare import PREPARE
from ..protocol.round import one_pass
from ..settings import EM_ROUNDS, Settings

Array = np.ndarray

GUIDED_ROUNDS = 12


@dataclass(frozen=True)
class Fitted:
    """What a client has after a fit at home."""

    model: Any
    labels: Array  # n
    client: ClientState
    sums: Sums | None = None  # of its last E-step, should others ask for them


def at_home(settings: Settings, view: str) -> Settings:
    """Settings of a client by itself: no server that contains anybody, no second model to compare with."""
    return replace(settings, view=view, privacy=None, solver=replace(settings.solver, contain=False, exit=False))


def opened(client_id: str, X: Any, settings: Settings, common: Units) -> ClientState:
    """A client whose columns have the units of a run that is over."""
    unread = replace(settings, view="auto")  # rows of the graph are made below, in the right units
    client = open_client(client_id, X, unread)
    scaling = client.scaling if settings.scale == "client" else common.scaling
    client = replace(client, X=shiftable(client.X, None if scaling is None else scaling.shift))
    client = replace(client, scaling=scaling, lift=common.lift, axes=common.axes, origin=common.origin)
    if settings.view == "graph":
        return with_rows(client, settings)
    return replace(client, cells=cells_of(client, settings))


# ------------------------------------------------------------------------------------------------------ graph view


def prepared(
    client: ClientState, settings: Settings, scale: float, ridge: float, F: Array | None = None
) -> ClientState:
    """The client with its graph, the factor of its data, and where its embedding begins; by default the spectrum."""
    return PREPARE.reply(replace(client, F=F), PREPARE.Ask(scale=scale, ridge=ridge), settings, 0)[0]


def drawn(client: ClientState, guide: Array, settings: Settings, rounds: int = GUIDED_ROUNDS) -> ClientState:
    """Rounds at home: ``W = argmin ||F - XW||² + ridge ||W - guide||²``, turned to the guide each time, then F.

    The first projection is drawn to nothing: it only says how the columns of F lie to those of the guide.
    """
    client = one_pass(client, np.zeros_like(guide), settings, 1)[0]
    for number in range(1, rounds + 1):
        client = one_pass(turned(client, guide), guide, settings, number)[0]
    return turned(client, guide)


def turned(client: ClientState, guide: Array) -> ClientState:
    """The client with the columns of W, and of F, in the frame of the guide."""
    assert client.F is not None and client.W is not None
    R = to_device_of(procrustes(to_numpy(client.W), guide), client.F)
    return replace(client, F=client.F @ R, W=client.W @ R)


def graph_settled(client: ClientState, common: Common, settings: Settings) -> Fitted:
    """Clusters of a client's projections, with the common mixture as a prior that its rows do not change.

    EM begins from the common concepts, and from the client's k-means clusters, as members of a federation do; what is
    more likely stays.
    """
    client, _ = FINISH.reply(replace(client, on_trial=True), FINISH.Ask(rotation=None), settings, 0)
    own = client.own
    assert own is not None
    E, pool = own.E, settle_pool(settings, own.E.shape[0])
    cells = Cells(double(E), np.zeros((E.shape[0], 0), np.int64))
    order = linear_sum_assignment(-(common.means @ own.model.centers.T))[1]
    starts = (None, first_statistics(own, order))
    found = [followed(cells, common, pool, SETTLE_STEPS, start) for start in starts]
    statistics, sums = max(found, key=lambda one: float(one[1].score[0]))
    return graph_result(replace(client, own=None), own.model, E, common, statistics, sums, settings)


def graph_result(
    client: ClientState, model: GraphModel, E: Array, common: Common, own: Statistics, sums: Sums | None,
    settings: Settings,
) -> Fitted:  # fmt: skip
    """The model of a client's own parameters, and its labels by the very code of predict."""
    mine = personal(common, own, (), settle_pool(settings, len(E)).concentration)
    precision = np.linalg.inv(common.covariance)
    model = replace(
        model, centers=mine.means.astype(model.W.dtype), precision=(precision + precision.T) / 2, shares=mine.shares
    )
    return with_labels(client, model, E, sums)


def with_labels(client: ClientState, model: GraphModel, E: Array, sums: Sums | None = None) -> Fitted:
    """Labels of a client's rows, and how far they lie from their centres."""
    labels = model.assign(input_rows(client))
    gap = E - to_device_of(model.centers, E)[labels]
    model = replace(model, spread=dot(gap, gap) / len(E))
    found = to_numpy(labels)
    return Fitted(model, found, replace(client, model=model, labels=found), sums)


# ---------------------------------------------------------------------------------------------------- mixture view


def mixture_settled(client: ClientState, common: Common, settings: Settings) -> Fitted:
    """A client's mixture with the common parameters as a prior that its rows do not change."""
    assert client.cells is not None
    own, sums = followed(client.cells, common, pool_of(settings), EM_ROUNDS * settings.max_iter)
    return mixture_result(client, common, own, sums, settings)


def mixture_result(
    client: ClientState, common: Common, own: Statistics, sums: Sums | None, settings: Settings
) -> Fitted:
    """The model of a client's own parameters, and its labels by the very code of predict."""
    cells = client.cells
    assert cells is not None
    mine = personal(common, own, cells.levels, pool_of(settings).concentration, cells.never)
    frame = Frame.of(client.X.shape[1], client.scaling, settings.levels, client.axes, client.origin)
    model = MixtureModel(frame, mine.means, common.covariance, mine.shares, mine.profiles)
    labels = model.assign(client.X)
    return Fitted(model, labels, replace(client, model=model, labels=labels), sums)


# ----------------------------------------------------------------------------------------------------- both of them


def expected(cells: Cells, own: Personal, common: Common) -> tuple[Statistics, Sums]:
    """Sums of an E-step with some parameters."""
    r = own.means.shape[1]
    before = Statistics(np.zeros_like(own.shares), np.zeros_like(own.means), np.zeros_like(own.profiles), np.zeros(r))
    return summed(common, before, own, e_step(cells, own, common.covariance), cells.levels, cells.n)


def followed(
    cells: Cells, common: Common, pool: Pool, steps: int, before: Statistics | None = None
) -> tuple[Statistics, Sums]:
    """EM with common parameters that stay as they are: what the rows say of the client's own.

    It begins with the common parameters themselves, unless the client's sums of before are given.
    """
    sums = None
    if before is None:
        before, sums = expected(cells, Personal(common.means, common.shares, common.profiles), common)
    score = -np.inf
    for _ in range(steps):
        mine = personal(common, before, cells.levels, pool.concentration, cells.never)
        before, sums = summed(common, before, mine, e_step(cells, mine, common.covariance), cells.levels, cells.n)
        last, score = score, float(sums.score[0]) / cells.n
        if abs(score - last) < SETTLED:
            break
    assert sums is not None
    return before, sums


__all__ = ["Fitted", "at_home", "drawn", "followed", "graph_settled", "mixture_settled", "opened"]
