"""What a client does with its model at the end of a run: compare it with one of its own, calibrate it. Nothing leaves.

Scores of training rows, and leave-one-out in closed form, are dishonest: graph, embedding and clusters have seen the
row. So each fold is fitted from the start, with all that the client learnt from the others as it is: what its
projection was drawn towards, and the common parameters of the mixture.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..errors import DataError
from ..kernels.lift import cut_share
from ..kernels.ranks import Calibration, RowScores, calibrate
from ..linalg.arrays import to_numpy
from ..mixture.steps import Common
from ..refit import GraphCommon, MixtureCommon, Silo, numbered, refit
from ..settings import Settings
from .base import Array, number
from .graph.state import Numbered
from .state import ServerState, some_rows, stream

# ---------------------------------------------------------------------------------------------------------------- alone


KEEP = 0.85  # of the neighbours that a client's own clusters keep together: with fewer, it keeps its own
ROWS = 2000  # of a client that are compared
NEIGHBORS = 5

FEDERATED, ALONE = "federated", "alone"
COMPARE = partial(
    number, "whether the silo compares the common model with one of its own",
    "That the server has capped, set aside or refused somebody.", kind="flag",
    when="with `exit`, or where somebody was held",
)  # fmt: skip


def compares(server: ServerState, settings: Settings) -> bool | None:
    """Whether clients compare the common model with their own.

    They do where they always do, where the server held somebody, and where it sees sums only and can hold nobody.
    """
    doubtful = bool(server.held) or settings.privacy is not None
    wanted = settings.exit is True or (settings.exit == "auto" and doubtful)
    return True if wanted and len(server.client_ids) > 1 else None


def closed_share(X: Any, labels: np.ndarray, n_neighbors: int = NEIGHBORS) -> float:
    """Share of nearest neighbours in the same cluster, beyond what cluster sizes alone give; 1 for closed clusters.

    One giant cluster keeps all neighbours together and says nothing: it has the share 0.

    Parameters
    ----------
    X : array of shape (n, d)
    labels : ndarray of shape (n,)
    n_neighbors : int, default=5

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.protocol.home import closed_share
    >>> X = np.repeat([[0.0], [9.0]], 10, axis=0) + np.linspace(0, 1, 20)[:, None]
    >>> closed_share(X, np.repeat([0, 1], 10)), closed_share(X, np.zeros(20, int))
    (1.0, 0.0)
    """
    return beyond_chance(1 - cut_share(X, labels, n_neighbors), labels)


def beyond_chance(share: float, labels: np.ndarray) -> float:
    """A share of pairs of rows in the same cluster, less what cluster sizes alone give; 1 where all pairs are."""
    sizes = np.bincount(labels) / len(labels)
    chance = float((sizes**2).sum())
    return (share - chance) / max(1 - chance, 1e-9)


def chosen_and_calibrated(
    client: Any, asked: bool | None, common: GraphCommon | MixtureCommon | None, settings: Settings
) -> Any:
    """The client with the model that it keeps, calibrated; `common` is what it knows of the others.

    Whether it compares models, its settings decide, and where they leave it open, what the server has `asked`.
    """
    silo = Silo(client.client_id, client.k, replace(settings, view=client.model.kind), client.device)
    if not client.on_trial and (settings.exit is True or (settings.exit == "auto" and asked)):
        client = chosen(client, replace(silo, graph=getattr(client, "graph", None)))
    client = replace(client, home=Home(silo, None if client.choice == ALONE else common))
    if client.on_trial or not settings.calibrate:
        return client
    try:
        found = calibrated(client.home, client.X, client.model)
    except TooFewError as error:
        warnings.warn(str(error), UserWarning, stacklevel=2)
        return client
    return replace(client, model=replace(client.model, calibration=found))


def chosen(client: Any, silo: Silo) -> Any:
    """The client with the common model, or with its own where the common one keeps clearly fewer neighbours together.

    Clusters of its own take the numbers of the common ones that they share most rows with.
    """
    try:
        alone = refit(silo, None, client.X)
    except DataError:  # its rows alone cannot be clustered
        return replace(client, choice=FEDERATED)
    rows = some_rows(len(client.labels), ROWS, silo.settings.seed, client.client_id, "exit")
    points = alone.model.scaled(client.X[rows])
    if closed_share(points, client.labels[rows]) >= KEEP * closed_share(points, alone.labels[rows]):
        return replace(client, choice=FEDERATED)
    found = numbered(alone, client.labels, client.model.k)
    own = {"model": found.model, "labels": found.labels}
    return replace(found.client, **own, choice=ALONE, on_trial=client.on_trial)


# ---------------------------------------------------------------------------------------------------------------- folds


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


def graph_common(client: Numbered, common: Common | None, concepts: Array | None) -> GraphCommon | None:
    """What a client of the graph view knows of the others: what it was drawn towards."""
    rows, factors = client.rows, client.factors
    if factors is None:
        return None
    scale = rows.gamma * rows.shape[0] ** 0.5
    anchor, own = to_numpy(client.anchor), to_numpy(client.W)
    return GraphCommon(client.units, anchor, factors.ridge, scale, mixture=common, own=own, concepts=concepts)


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
            f"silo {silo.name!r} has {n} rows, too few to calibrate {silo.k} clusters; at least {fewest} are needed"
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
