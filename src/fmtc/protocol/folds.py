"""Calibration at home: a client fits its model again without a fifth of its rows, and scores these. Nothing leaves.

Scores of training rows, and leave-one-out in closed form, are dishonest: graph, embedding and clusters have seen the
row. So each fold is fitted from the start, with all that the client learnt from the others as it is: what its
projection was drawn towards, and the common parameters of the mixture.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..client import ClientState, hole_filling, rotated, rows_of, stream
from ..errors import DataError
from ..kernels.alignment import procrustes
from ..kernels.centers import row_norms, unit_centers
from ..kernels.embedding import largest_eigenvalue, spectral_start
from ..kernels.graph import build_graph
from ..kernels.lift import Lift
from ..kernels.projection import RidgeFactors, update_projection
from ..kernels.ranks import Calibration, RowScores, calibrate
from ..kernels.scaling import Scaling
from ..linalg.arrays import HOST, asarray_like, double, to_numpy
from ..mixture import Cells, e_step, personal, summed
from ..mixture.pooling import Pool
from ..mixture.steps import Common, Personal, Statistics
from ..models import GraphModel, MixtureModel, project
from ..settings import Settings
from .alone import ALONE, fitted_alone
from .em import among, pool_of, settle_pool
from .round import one_pass

Array = np.ndarray

FOLDS = 5
ENOUGH = 2000  # scores; a client with many rows needs fewer folds for them
FEWEST = 20  # rows of a client, below which a fold says nothing
ROUNDS = 6  # of a fold of the graph view
OWN = 0.8  # part of what a client was drawn towards that is its own doing, measured: docs/how-to/confidence.md
STEPS = 20  # of a fold's mixture
RESTARTS = 3  # of a fold's k-means


class TooFewError(DataError):
    """A client with too few rows to be calibrated."""


@dataclass(frozen=True)
class Home:
    """What a client keeps of a run to fit its model again on some of its rows, without a message."""

    client_id: str
    k: int
    alone: bool = False  # whether its model is its own, and owes nothing to others
    scaling: Scaling | None = None
    lift: Lift | None = None
    device: str = HOST
    anchor: Array | None = None  # d x q, what its projection was drawn towards in the last round
    W: Array | None = None  # d x q, the projection, for the frame that all share
    ridge: float = 0.0
    gamma: float = 1.0  # of the rows, for all of them
    common: Common | None = None  # of the mixture, over columns or over projections
    statistics: Statistics | None = None  # of the mixture over columns, to begin with
    axes: Array | None = None  # k x K, from axes of its own to those of concepts, where clients lack some


def home_of(
    client: ClientState, common: Common | None, statistics: Statistics | None = None, axes: Array | None = None
) -> Home:
    """What a client that has its model keeps for folds."""
    about = Home(client.client_id, client.k, client.choice == ALONE, client.scaling, client.lift, client.device)
    if client.choice == ALONE:
        return about
    about = replace(about, common=common, statistics=statistics)
    if statistics is not None or client.rows is None or client.factors is None or client.W is None:
        return about
    anchor = client.W if client.anchor is None else client.anchor
    gamma = client.rows.gamma * client.rows.shape[0] ** 0.5
    return replace(about, anchor=anchor, W=client.W, ridge=client.factors.ridge, gamma=gamma, axes=axes)


def with_calibration(client: ClientState, settings: Settings) -> ClientState:
    """The client with a calibrated model, where its settings ask for it; a warning where it has too few rows."""
    model: Any = client.model
    if client.on_trial or settings.solver.calibration != "folds":
        return client
    try:
        found = calibrated(client.home, client.X, model, settings)
    except TooFewError as error:
        warnings.warn(str(error), UserWarning, stacklevel=2)
        return client
    return replace(client, model=replace(model, calibration=found))


def calibrated(home: Home, X: Any, model: GraphModel | MixtureModel, settings: Settings) -> Calibration:
    """Scores of a client's rows by models that have not seen them.

    Parameters
    ----------
    home : Home
    X : array of shape (n, d)
        All rows of the client, as they came.
    model : GraphModel or MixtureModel
        What it made of them.
    settings : Settings
    """
    n, k = X.shape[0], home.k
    if n < max(FEWEST, 2 * (k + 1)):
        raise TooFewError(
            f"client {home.client_id!r} has {n} rows, too few to calibrate {k} clusters; at least "
            f"{max(FEWEST, 2 * (k + 1))} are needed"
        )
    order = stream(settings.seed, home.client_id, "folds").permutation(n)
    folds = min(FOLDS, -(-ENOUGH * FOLDS // n))
    parts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folds, which nobody sees
        for fold in range(folds):
            out = np.zeros(n, bool)
            out[order[fold::FOLDS]] = True
            parts.append(_fitted(home, X[~out], model, settings, fold).row_scores(X[out]))
    return calibrate(RowScores.joined(parts), model.low_only)


def _fitted(home: Home, X: Any, model: Any, settings: Settings, fold: int) -> Any:
    """The client's model, fitted again to some of its rows."""
    if home.alone:
        client = ClientState(home.client_id, X, home.k, device=home.device)
        return fitted_alone(client, replace(settings, view=model.kind, privacy=None), model.kind).model
    if isinstance(model, MixtureModel):
        return _mixture_fold(home, X, model, settings)
    return _graph_fold(home, X, model, settings, fold)


def _mixture_fold(home: Home, X: Any, model: MixtureModel, settings: Settings) -> MixtureModel:
    """EM over some rows, the common parameters as given."""
    assert home.common is not None and home.statistics is not None
    own = _settled(model.frame.cells(X), home.common, home.statistics, pool_of(settings))
    shares = np.where(model.lacks, 0.0, own.shares)
    return replace(model, means=own.means, shares=shares / shares.sum(), profiles=own.profiles)


def _settled(cells: Cells, common: Common, own: Statistics, pool: Pool) -> Personal:
    """A client's own parameters after some steps of EM, the common ones as given."""

    def now() -> Personal:
        return personal(common, own, cells.levels, pool.concentration, cells.never, lean=pool.lean)

    for _ in range(STEPS):
        mine = now()
        found = e_step(cells, mine, common.covariance)
        own, _ = summed(common, own, mine, found, cells.levels, cells.n)
    return now()


def _graph_fold(home: Home, X: Any, model: GraphModel, settings: Settings, fold: int) -> GraphModel:
    """Graph, spectral start, some rounds towards the last anchor, and the client's own clusters."""
    solver, cid, n = settings.solver, home.client_id, X.shape[0]
    client = ClientState(cid, X, home.k, scaling=home.scaling, lift=home.lift, device=home.device, on_trial=True)
    rows = rows_of(X, home.scaling, settings, home.device, home.lift)
    rows = replace(rows, gamma=home.gamma / n**0.5 if solver.rho is None else 1.0)
    graph = build_graph(rows.X, solver.n_neighbors, solver.bandwidth, solver.nonmutual_weight)
    rng = stream(settings.seed, cid, f"fold {fold}")
    reference = to_numpy(home.W)
    # the anchor without the client's own part in it, and the ridge that it then has:
    # ridge ‖W − own W − (1 − own) others‖², minimised where `own` W follows, is (1 − own) ridge ‖W − others‖²
    anchor = (to_numpy(home.anchor) - OWN * reference) / (1 - OWN)
    F = spectral_start(graph, reference.shape[1], rng)
    factors = RidgeFactors(rows, (1 - OWN) * home.ridge)
    eta = solver.step_size
    if eta is None and solver.accelerate:
        eta = 1 / (largest_eigenvalue(graph, rng) + settings.alpha)
    W = update_projection(factors, F, asarray_like(np.zeros_like(reference), F))
    client = replace(client, rows=rows, graph=graph, factors=factors, F=F, W=W, eta=eta)
    client = _turned(client, reference)
    for number in range(1, ROUNDS + 1):
        client, _, _ = one_pass(client, anchor, settings, number)
        client = _turned(client, reference)
    W = to_numpy(client.W)
    mean = None if rows.mean is None else to_numpy(rows.mean)
    if home.scaling is not None and home.lift is None:
        W, mean = home.scaling.fold(W, mean)
    if home.axes is not None:
        W = W @ home.axes
    model = replace(model, W=W, mean=mean, fill=hole_filling(client, settings), calibration=None)
    lifted = home.lift is not None
    E = to_numpy(project(rows.X if lifted else model.design(X), W, mean, None if lifted else model.keep))
    if home.common is not None:
        return _mixed(model, E, home.common, settings)
    if solver.labels_from == "embedding":
        E = to_numpy(client.F / row_norms(client.F))
    seed = int(rng.integers(2**31))
    if home.axes is None:
        return replace(model, centers=unit_centers(E, home.k, RESTARTS, seed), shares=None)
    assert model.shares is not None
    has = np.flatnonzero(model.shares)
    centers = np.zeros_like(model.centers)  # which concept a centre is of makes no difference
    centers[np.ix_(has, has)] = unit_centers(E[:, has], home.k, RESTARTS, seed)
    return replace(model, centers=centers)


def _turned(client: ClientState, reference: Array) -> ClientState:
    """The client in the frame that all share."""
    return rotated(replace(client, anchor=None), procrustes(to_numpy(client.W), reference))


def _mixed(model: GraphModel, E: Array, common: Common, settings: Settings) -> GraphModel:
    """Clusters of the projections of a fold: its own means, the common shape."""
    (k, q), lacks = common.means.shape, model.lacks
    if lacks is not None:  # nothing is known along the axes of concepts that the client lacks
        E, common = np.where(lacks, np.nan, E), among(common, ~lacks)
    nothing = Statistics(np.zeros(k), np.zeros((k, q)), np.zeros((k, 0)), np.zeros(q))
    cells = Cells(double(E), np.zeros((len(E), 0), np.int64))
    own = _settled(cells, common, nothing, settle_pool(settings, len(E)))
    shares = own.shares if model.shares is None else np.where(model.shares > 0, own.shares, 0.0)
    return replace(model, centers=own.means.astype(model.W.dtype), shares=shares / shares.sum())
