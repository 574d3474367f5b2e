"""A client alone, at home: the whole method on its rows only, and whether the common model is worth keeping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..client import ClientState, stream
from ..errors import DataError
from ..kernels.alignment import numbers_of
from ..kernels.lift import cut_share
from ..server import ServerState
from ..settings import Settings
from .base import Phase, required
from .method import view_method

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


def played(
    client: ClientState,
    server: ServerState,
    settings: Settings,
    phases: Iterable[Phase],
    stops: Callable[[Phase, Sequence[Any]], bool],
    loops: Iterable[Phase],
) -> tuple[ClientState, ServerState]:
    """One client through some phases, with a server of its own; nothing leaves."""
    history: list[Any] = []
    for phase in phases:
        if phase in loops:
            begun = len(history)
            while phase.times(server, settings) and not stops(phase, history[begun:]):
                (ask,) = phase.asks(server, settings).values()
                client, answer = phase.reply(client, ask, settings, len(history) + 1)
                server, report = phase.reduce(server, {client.client_id: answer}, settings)
                history.append(report)
            continue
        turn = 0
        while turn < phase.times(server, settings):
            (ask,) = phase.asks(server, settings).values()
            client, answer = phase.reply(client, ask, settings, len(history))
            server = phase.reduce(server, {client.client_id: answer}, settings)
            turn += 1
    return client, server


def fitted_alone(client: ClientState, settings: Settings, view: str) -> ClientState:
    """The client after a run of its own, units of columns included."""
    solver = replace(settings.solver, contain=False, exit=False)
    own = replace(settings.of_one(client.client_id), view=view, privacy=None, solver=solver)
    method = view_method(view)
    begun = replace(method.open_client(client.client_id, client.X, own, client.device), on_trial=True)
    if view == "graph" and own.scale == "none" and solver.lift is False and client.scaling is None:
        begun = replace(begun, graph=client.graph)  # rows as they came: the graph is the one that it has
    server = method.open_server((client.client_id,), own, None)
    return played(
        begun, server, own, method.phases, lambda loop, done: method.loop_stops(loop, done, own) is not None,
        method.loops,
    )[0]  # fmt: skip


def chosen(client: ClientState, settings: Settings, view: str) -> ClientState:
    """The client with the common model, or with its own where the common one keeps clearly fewer neighbours together.

    Clusters of its own take the numbers of the common ones that they share most rows with.
    """
    from scipy.optimize import linear_sum_assignment

    assert client.labels is not None
    try:
        alone = fitted_alone(client, settings, view)
    except DataError:  # its rows alone cannot be clustered
        return replace(client, choice=FEDERATED)
    assert alone.labels is not None and alone.model is not None
    n = len(client.labels)
    rows = np.arange(n)
    if n > ROWS:
        rows = np.sort(stream(settings.seed, client.client_id, "exit").choice(n, ROWS, replace=False))
    points = alone.model.scaled(client.X[rows])
    if closed_share(points, client.labels[rows]) >= KEEP * closed_share(points, alone.labels[rows]):
        return replace(client, choice=FEDERATED)
    (common,) = required(client, "model")
    shared = np.zeros((common.k, alone.model.k))
    np.add.at(shared, (client.labels, alone.labels), 1)
    numbers, clusters = linear_sum_assignment(-shared)
    order = np.full(common.k, -1)
    order[numbers] = clusters
    labels = numbers_of(order)[alone.labels]
    model = alone.model.renumbered(order)
    return replace(alone, model=model, labels=labels, choice=ALONE, on_trial=client.on_trial)


__all__ = ["ALONE", "FEDERATED", "chosen", "closed_share", "compares", "fitted_alone", "is_compared", "played"]
