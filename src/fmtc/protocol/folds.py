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

from ..client import stream
from ..errors import DataError
from ..kernels.ranks import Calibration, RowScores, calibrate
from ..linalg.arrays import to_numpy
from ..mixture.steps import Common
from ..models import Units
from ..refit import GraphCommon, MixtureCommon, Silo, refit
from ..settings import Settings
from .alone import ALONE
from .graph.state import Numbered
from .mixture.state import Concluded

Array = np.ndarray

FOLDS = 5
ENOUGH = 2000  # scores; a client with many rows needs fewer folds for them
FEWEST = 20  # rows of a client, below which a fold says nothing


class TooFewError(DataError):
    """A client with too few rows to be calibrated."""


@dataclass(frozen=True)
class Home:
    """What a client keeps of a run to fit its model again on some of its rows, without a message."""

    silo: Silo
    common: GraphCommon | MixtureCommon | None  # None: its model is its own, and owes nothing to others


def home_of(client: Numbered | Concluded, common: GraphCommon | MixtureCommon | None, settings: Settings) -> Home:
    """What a client that has its model keeps."""
    silo = Silo(client.client_id, client.k, replace(settings, view=client.model.kind), client.device)
    return Home(silo, None if client.choice == ALONE else common)


def mixture_common(client: Concluded, common: Common) -> MixtureCommon:
    """What a client of the mixture view knows of the others."""
    units = Units(scaling=client.scaling, axes=client.axes, origin=client.origin)
    return MixtureCommon(units, common, ~client.model.lacks)


def graph_common(client: Numbered, common: Common | None, concepts: Array | None) -> GraphCommon | None:
    """What a client of the graph view knows of the others: what it was drawn towards."""
    rows, factors = client.rows, client.factors
    if factors is None:
        return None
    scale = rows.gamma * rows.shape[0] ** 0.5
    anchor, own = to_numpy(client.anchor), to_numpy(client.W)
    return GraphCommon(client.units, anchor, factors.ridge, scale, mixture=common, own=own, concepts=concepts)


def with_calibration(client: Any, settings: Settings) -> Any:
    """The client with a calibrated model, where its settings ask for it; a warning where it has too few rows."""
    model: Any = client.model
    if client.on_trial or settings.solver.calibration != "folds":
        return client
    try:
        found = calibrated(client.home, client.X, model)
    except TooFewError as error:
        warnings.warn(str(error), UserWarning, stacklevel=2)
        return client
    return replace(client, model=replace(model, calibration=found))


def calibrated(home: Home, X: Any, model: Any) -> Calibration:
    """Scores of a client's rows by models that have not seen them.

    Parameters
    ----------
    home : Home
    X : array of shape (n, d)
        All rows of the client, as they came.
    model : ClientModel
        What it made of them: clusters of each fold begin there.
    """
    silo, n = home.silo, X.shape[0]
    fewest = max(FEWEST, 2 * (silo.k + 1))
    if n < fewest:
        raise TooFewError(
            f"client {silo.name!r} has {n} rows, too few to calibrate {silo.k} clusters; at least {fewest} are needed"
        )
    order = stream(silo.settings.seed, silo.name, "folds").permutation(n)
    folds = min(FOLDS, -(-ENOUGH * FOLDS // n))
    parts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folds, which nobody sees
        for fold in range(folds):
            out = np.zeros(n, bool)
            out[order[fold::FOLDS]] = True
            parts.append(refit(silo, home.common, X[~out], (model.personal,)).model.row_scores(X[out]))
    return calibrate(RowScores.joined(parts), model.low_only)
