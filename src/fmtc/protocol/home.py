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
from ..kernels.scaling import Scaling
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


ROWS = 1000  # of a client that are compared
PARTS = 3  # of these rows, which are left out in turn
NEIGHBORS = 5
# Log-likelihood of a row left out, and share of its neighbours in its cluster, by which a client's own clusters must be
# better in the mixture view. In a prototype, one split of 76 visible federations, half and twice of each moved the mean
# by less than .05 points of ARI. With one of both only, or with `told`, silos divide large clusters (mushrooms).
LIKELIER, CLOSER = 0.1, 0.05
# What clusters of its own must tell more of a row left out, in nats: chosen on 16 sets of texts, three splits each, by
# ARI of held-out rows (docs/explanation/views.md#texts). Half or twice as much changes the gain little.
MARGIN = 0.025
EACH = 100  # texts for each cluster, from which a client looks for its own: with 50 these win and are wrong, see there
KEEP = 0.85  # of the neighbours that a client's own clusters keep together: with fewer, it leaves the others

FEDERATED, ALONE = "federated", "alone"
COMPARE = partial(
    number, "whether there are other silos, whose clusters it compares with its own", "Whether it is the only silo.",
    kind="flag", when="where there are several silos",
)  # fmt: skip
DOUBT = partial(
    number, "whether others may have spoilt the common model", "That the server has capped, set aside or refused "
    "somebody, or cannot do so.", kind="flag", when="where somebody was held, or could not be",
)  # fmt: skip


def compares(server: ServerState) -> bool | None:
    """Whether clients have anything to compare their own clusters with."""
    return True if len(server.client_ids) > 1 else None


def doubts(server: ServerState, settings: Settings) -> bool | None:
    """Whether the server held somebody, or sees sums only or believes everybody, and can hold nobody."""
    return True if server.held or settings.privacy is not None or not settings.contain else None


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


def told(X: Any, labels: np.ndarray, new: Any, found: np.ndarray) -> float:
    """What labels of new rows tell about those of their nearest rows: the mutual information, in nats.

    One giant cluster tells nothing, however closed it is. A row without entries is near to all others and is left out.

    Parameters
    ----------
    X, new : arrays of shape (n, d) and (n_new, d)
    labels, found : ndarrays of shape (n,) and (n_new,)

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.protocol.home import told
    >>> X, new, one = np.repeat([[1.0], [9.0]], 10, axis=0), np.array([[2.0], [8.0]]), np.zeros(20, int)
    >>> round(told(X, np.repeat([0, 1], 10), new, np.array([0, 1])), 3), told(X, one, new, one[:2])
    (0.693, 0.0)
    """
    from sklearn.metrics import mutual_info_score

    full = np.flatnonzero(abs(X).sum(axis=1))
    if len(full) <= NEIGHBORS:
        return 0.0
    nearest = labels[full][nearest_neighbors(X[full], NEIGHBORS, new)[1]]
    return float(mutual_info_score(np.repeat(found, NEIGHBORS), nearest.ravel()))


def chosen_and_calibrated(client: Any, ask: Any, common: GraphCommon | MixtureCommon | None, settings: Settings) -> Any:
    """The client with the model that it keeps, calibrated; `common` is what it knows of the others."""
    silo = Silo(client.client_id, client.k, replace(settings, view=client.model.kind), client.device)
    client = replace(client, home=Home(silo, common))
    if ask.compare and settings.own and not client.on_trial:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say, the run has said
            try:
                client = _choose(client, common, ask.doubt)
            except DataError:  # its rows alone cannot be clustered
                client = replace(client, choice=FEDERATED)
    if client.on_trial or not settings.calibrate:
        return client
    try:
        found = calibrated(client.home, client.X, client.model)
    except TooFewError as error:
        warnings.warn(str(error), UserWarning, stacklevel=2)
        return client
    return replace(client, model=replace(client.model, calibration=found))


def _choose(client: Any, common: Any, doubt: bool | None) -> Any:
    """The client with common clusters or its own, which take the numbers of those that they share most rows with."""
    n, k = len(client.labels), client.k
    if isinstance(common, MixtureCommon):
        return own_in_mixture(client, common, doubt) if n >= PARTS * (k + 1) else client
    if client.F.shape[1] != k:  # it lacks clusters, and its axes are those of all: its own would have others
        return client
    many_words = client.model.holds_words and n >= EACH * k and client.home.silo.settings.mixes
    if common is not None and many_words:
        client = own_in_graph(client, common)
    return leaving(client) if doubt and client.choice != ALONE else client


def own_in_mixture(client: Any, common: MixtureCommon, doubt: bool | None) -> Any:
    """The client with clusters of its own, in the common shape, where these suit rows left out better.

    They are compared only where they suit the rows that they are made of. The common clusters are compared as they are:
    having seen all rows is their advantage. Where somebody was held, units or shape may be wrong, and its own clusters
    are those of a run of its own.
    """
    silo, k = client.home.silo, client.model.k
    rows = stream(silo.settings.seed, silo.name, "parts").permutation(len(client.labels))[:ROWS]
    X, free = client.X[rows], None
    if doubt and common.units.axes is None:
        own = refit(silo, None, client.X)
    else:
        start = own_of(client, silo.settings)(client.cells.take(rows), common.mixture)
        free = common.freed(start.shares > SMALLEST_SHARE)
        own = free.clustered(client, silo.at_home(free.view), (start,))
    if _density(own.model, X) - _density(client.model, X) <= LIKELIER:  # of rows left out it will be less
        return replace(client, choice=FEDERATED)
    points, gains = own.model.scaled(X), np.zeros(2)
    for part in range(PARTS):
        out = np.arange(len(rows)) % PARTS == part
        near = nearest_neighbors(points[~out], NEIGHBORS, points[out])[1]
        alone = refit(silo, free, X[~out], (own.model.personal,)).model
        for sign, model in ((-1, client.model), (1, alone)):
            labels = model.assign(X)
            kept = float(np.mean(labels[~out][near] == labels[out][:, None]))
            gains += sign * np.array([_density(model, X[out]), beyond_chance(kept, labels[~out])]) / PARTS
    if gains[0] <= LIKELIER or gains[1] <= CLOSER:
        return replace(client, choice=FEDERATED)
    found = numbered(own, client.labels, k)
    return replace(client, model=found.model, labels=found.labels, choice=ALONE, home=Home(silo, free))


def _density(model: Any, X: Any) -> float:
    """Mean log-density of rows; over columns in their own units, which models need not share."""
    if model.frame.axes is None:
        return float(model.log_likelihood(X)) / X.shape[0]
    return float(model.row_scores(X).density.mean())


def own_commons(common: GraphCommon, k: int) -> tuple[GraphCommon, GraphCommon]:
    """What a silo knows that fits alone: the units of columns, as they are and weighed.

    A column weighs as much as the run uses it, by the root of the norm of its row of the consensus. That is the ridge
    of a penalty on the sum of these norms, by which multitask spectral clustering makes silos agree on columns.
    """
    d = len(common.anchor)
    plain = GraphCommon(common.units, np.zeros((d, k)), common.ridge)
    scaling = common.units.scaling or Scaling(np.ones(d))
    keep = np.arange(d) if scaling.keep is None else scaling.keep  # with it, rows have unit length again
    weight = np.sqrt(np.linalg.norm(common.anchor, axis=1)) + 1e-9
    weighed = replace(scaling, stretch=scaling.stretch / weight, keep=keep)
    return plain, replace(plain, units=replace(common.units, scaling=weighed))


def own_in_graph(client: Any, common: GraphCommon) -> Any:
    """The client with clusters of words of its own, where these tell clearly more of rows that were left out.

    They are those of the paper's local step without coupling, with its plain neighbour graph and k-means, with columns
    as they are or weighed. The common clusters are compared as they are: having seen all rows is their advantage.
    """
    model, k = client.model, client.k
    silo = replace(client.home.silo, settings=replace(client.home.silo.settings, nonmutual_weight=1.0))
    rows = stream(silo.settings.seed, silo.name, "own").permutation(len(client.labels))[:ROWS]
    X, labels, points = client.X[rows], client.labels[rows], model.scaled(client.X[rows])
    commons, gains = own_commons(common, k), np.zeros(2)
    for part in range(PARTS - 1):  # one fit less, and the same choice
        out = np.arange(len(rows)) % PARTS == part
        gains -= told(points[~out], labels[~out], points[out], labels[out]) / (PARTS - 1)
        for i, own in enumerate(commons):
            found = refit(silo, own, X[~out])
            said = told(points[~out], found.labels, points[out], found.model.assign(X[out]))
            gains[i] += said / (PARTS - 1)
    best = int(gains.argmax())
    if gains[best] <= MARGIN:
        return replace(client, choice=FEDERATED)
    found = numbered(refit(silo, commons[best], client.X), client.labels, model.k)
    own = replace(found.model, stretch=model.stretch, keep=model.keep)  # distances stay those of the run
    kept = {"model": own, "labels": own.assign(client.X), "F": found.client.F}  # labels as predict breaks ties
    return replace(client, **kept, choice=ALONE, home=Home(silo, commons[best]))


def leaving(client: Any) -> Any:
    """The client with the model of a run of its own where the common one keeps far fewer neighbours together."""
    silo = replace(client.home.silo, graph=getattr(client, "graph", None))
    alone = refit(silo, None, client.X)
    rows = some_rows(len(client.labels), ROWS, silo.settings.seed, client.client_id, "exit")
    points = alone.model.scaled(client.X[rows])
    if closed_share(points, client.labels[rows]) >= KEEP * closed_share(points, alone.labels[rows]):
        return replace(client, choice=FEDERATED)
    found = numbered(alone, client.labels, client.model.k)
    own = {"model": found.model, "labels": found.labels}
    return replace(found.client, **own, choice=ALONE, on_trial=client.on_trial, home=Home(client.home.silo, None))


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
