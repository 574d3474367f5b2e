"""Whether a client keeps the common model, or one that it makes of its own rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..client import ClientState, stream
from ..errors import DataError
from ..kernels.lift import cut_share
from ..refit import Silo, numbered, refit
from ..server import ServerState
from ..settings import Settings

KEEP = 0.85  # of the neighbours that a client's own clusters keep together: with fewer, it keeps its own
ROWS = 2000  # of a client that are compared
NEIGHBORS = 5

FEDERATED, ALONE = "federated", "alone"
WHEN = "with `exit`, or where somebody was held"  # a client is told to compare


def compares(server: ServerState, settings: Settings) -> bool | None:
    """Whether clients compare the common model with their own.

    They do where they always do, where the server held somebody, and where it sees sums only and can hold nobody.
    """
    doubtful = bool(server.held) or settings.privacy is not None
    wanted = settings.solver.exit is True or (settings.solver.exit == "auto" and doubtful)
    return True if wanted and len(server.client_ids) > 1 else None


def is_compared(client: ClientState, asked: bool | None, settings: Settings) -> bool:
    """Whether a client compares: its settings decide, and where they leave it open, what the server says."""
    wanted = settings.solver.exit
    return not client.on_trial and (wanted is True or (wanted == "auto" and bool(asked)))


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
    >>> from fmtc.protocol.alone import closed_share
    >>> X = np.repeat([[0.0], [9.0]], 10, axis=0) + np.linspace(0, 1, 20)[:, None]
    >>> closed_share(X, np.repeat([0, 1], 10)), closed_share(X, np.zeros(20, int))
    (1.0, 0.0)
    """
    sizes = np.bincount(labels) / len(labels)
    chance = float((sizes**2).sum())
    return (1 - cut_share(X, labels, n_neighbors) - chance) / max(1 - chance, 1e-9)


def chosen(client: Any, settings: Settings, view: str) -> Any:
    """The client with the common model, or with its own where the common one keeps clearly fewer neighbours together.

    Clusters of its own take the numbers of the common ones that they share most rows with.
    """
    graph = getattr(client, "graph", None)
    silo = Silo(client.client_id, client.k, replace(settings, view=view), client.device, graph)
    try:
        alone = refit(silo, None, client.X)
    except DataError:  # its rows alone cannot be clustered
        return replace(client, choice=FEDERATED)
    n = len(client.labels)
    rows = np.arange(n)
    if n > ROWS:
        rows = np.sort(stream(settings.seed, client.client_id, "exit").choice(n, ROWS, replace=False))
    points = alone.model.scaled(client.X[rows])
    if closed_share(points, client.labels[rows]) >= KEEP * closed_share(points, alone.labels[rows]):
        return replace(client, choice=FEDERATED)
    found = numbered(alone, client.labels, client.model.k)
    own = {"model": found.model, "labels": found.labels}
    return replace(found.client, **own, choice=ALONE, on_trial=client.on_trial)


__all__ = ["ALONE", "FEDERATED", "chosen", "closed_share", "compares", "is_compared"]
