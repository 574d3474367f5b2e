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
from ..linalg.neighbors import nearest_neighbors
from ..mixture.steps import SMALLEST_SHARE, Common
from ..refit import GraphCommon, MixtureCommon, Silo, numbered, refit
from ..settings import Settings
from .base import Array, number
from .graph.state import Numbered
from .mixture.em import own_of
from .state import ServerState, some_rows, stream

# ------------------------------------------------------------------------------------------------------ own or common


ROWS = 2000  # of a client that are compared
PARTS = 3  # of the rows, each left out once
NEIGHBORS = 5
# Log-likelihood of a row left out by which a client's own clusters must be better. On 76 visible federations .05 and .2
# came to the same, as long as rows left out also lie among more neighbours of their own cluster.
MARGIN = 0.1
CLOSER = 0.05  # share of neighbours of rows left out, beyond chance, by which they must be better, too

FEDERATED, ALONE = "federated", "alone"
COMPARE = partial(
    number, "whether there are other silos, whose clusters it compares with its own", "Whether it is the only silo.",
    kind="flag", when="where there are several silos",
)  # fmt: skip


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


def compares(server: ServerState) -> bool | None:
    """Whether clients have anything to compare their own clusters with."""
    return True if len(server.client_ids) > 1 else None


def chosen_and_calibrated(
    client: Any, compare: bool | None, common: GraphCommon | MixtureCommon | None, settings: Settings
) -> Any:
    """The client with the model that it keeps, calibrated; `common` is what it knows of the others."""
    silo = Silo(client.client_id, client.k, replace(settings, view=client.model.kind), client.device)
    client = replace(client, home=Home(silo, common))
    if compare and settings.own and not client.on_trial and isinstance(common, MixtureCommon):
        client = chosen(client, common)
    if client.on_trial or not settings.calibrate:
        return client
    try:
        found = calibrated(client.home, client.X, client.model)
    except TooFewError as error:
        warnings.warn(str(error), UserWarning, stacklevel=2)
        return client
    return replace(client, model=replace(client.model, calibration=found))


def chosen(client: Any, common: MixtureCommon) -> Any:
    """The client with the common model, or with clusters of its own where these say more about rows left out.

    Its own are those of its rows alone, in the common shape. They are looked at only where they suit the rows that they
    are made of, which next to no client's do. They take the numbers of the common clusters that they share most rows
    with.
    """
    silo, k = client.home.silo, client.model.k
    rows = some_rows(len(client.labels), ROWS, silo.settings.seed, client.client_id, "own")
    start = own_of(client, silo.settings)(client.cells.take(rows), common.mixture)
    X, n, free = client.X[rows], len(rows), common.freed(start.shares > SMALLEST_SHARE)
    own = free.clustered(client, silo.at_home(free.view), (start,))
    starts = (client.model.personal, own.model.personal)
    if _density(own.model, X) - _density(client.model, X) <= MARGIN or n < 2 * PARTS * (k + 1):
        return replace(client, choice=FEDERATED)
    order, gains = stream(silo.settings.seed, silo.name, "parts").permutation(n) % PARTS, []
    for part in range(PARTS):
        out = order == part
        together, alone = (
            refit(silo, known, X[~out], (begin,)).model for known, begin in zip((common, free), starts, strict=True)
        )
        gains.append(
            (_density(alone, X[out]) - _density(together, X[out]), _kept(alone, X, out) - _kept(together, X, out))
        )
    likelier, closer = np.mean(gains, axis=0)
    if likelier <= MARGIN or closer <= CLOSER:
        return replace(client, choice=FEDERATED)
    found = numbered(own, client.labels, k)
    kept = {"model": found.model, "labels": found.labels, "choice": ALONE, "home": Home(silo, free)}
    return replace(client, **kept)


def _density(model: Any, X: Any) -> float:
    """Mean log-density of rows."""
    return float(model.row_scores(X).density.mean())


def _kept(model: Any, X: Any, out: Array) -> float:
    """Share of the neighbours, among the other rows, that are in the cluster of a row left out, beyond chance."""
    rows, labels = model.scaled(X), model.assign(X)
    near = nearest_neighbors(rows[~out], NEIGHBORS, rows[out])[1]
    return beyond_chance(float(np.mean(labels[~out][near] == labels[out][:, None])), labels[~out])


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
    common: GraphCommon | MixtureCommon | None  # None: it knows nothing of the others


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
