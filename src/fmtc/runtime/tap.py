"""A tap on a transport: everything the server is told in a run, and shadow runs for an audit of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..linalg.sparse import on_cores
from ..protocol.base import Message
from ..protocol.method import Method
from .driver import Replies, Result, Transport, run
from .local import LocalTransport


@dataclass(frozen=True)
class Exchange:
    """One question to each client, and the answers as they left."""

    phase: str
    round_no: int
    turn: int
    asks: Mapping[str, Any]
    answers: Mapping[str, Any]
    before: Mapping[str, Any]  # state of each client when it was asked; for an audit at the client itself


@dataclass
class Tap:
    """A transport that keeps what passes. The messages are those of the transport, not a copy of a computation.

    Parameters
    ----------
    transport : Transport

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import Settings
    >>> from fmtc.runtime.driver import run
    >>> from fmtc.runtime.local import LocalTransport
    >>> from fmtc.runtime.tap import Tap
    >>> rng = np.random.default_rng(0)
    >>> settings = Settings(n_clusters=2, max_iter=2, view="graph", scale="none")
    >>> data = {"a": rng.normal(size=(30, 3)), "b": rng.normal(size=(40, 3))}
    >>> tap = Tap(LocalTransport(data, settings))
    >>> result = run(tap, settings)
    >>> [one.answers["a"].W.shape for one in tap.of("round")]
    [(3, 2), (3, 2)]
    """

    transport: Transport
    passed: list[Exchange] = field(default_factory=list)

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Names of the clients, sorted."""
        return self.transport.client_ids

    @property
    def clients(self) -> Mapping[str, Any]:
        """The state of each client, where they live in this process."""
        return dict(getattr(self.transport, "clients", {}))

    def exchange(self, messages: Mapping[str, Message]) -> Replies:
        """Deliver, collect, and keep what passed."""
        before = self.clients
        replies = self.transport.exchange(messages)
        first = next(iter(messages.values()))
        asks = {cid: message.ask for cid, message in messages.items()}
        self.passed.append(
            Exchange(first.phase, first.round_no, first.turn, asks, dict(replies.answers), before)
        )  # a copy: the server may empty its own
        return replies

    def save_clients(self, folder: Path) -> None:
        """As the transport does."""
        self.transport.save_clients(folder)

    def load_clients(self, folder: Path, client_ids: tuple[str, ...]) -> None:
        """As the transport does."""
        self.transport.load_clients(folder, client_ids)

    def of(self, phase: str) -> list[Exchange]:
        """What passed in one phase, in order."""
        return [one for one in self.passed if one.phase == phase]


def tapped_run(data: Mapping[str, Any], settings: Any, method: Method) -> tuple[Tap, Result]:
    """A run in this process, and all that passed."""
    tap = Tap(LocalTransport(data, settings, method=method))
    return tap, run(tap, settings, method=method)


def shadow_runs(
    data: Mapping[str, Any],
    target: str,
    members: np.ndarray,
    settings_of: Callable[[int], Any],
    method: Method,
    read: Callable[[Tap, Result], np.ndarray],
    progress: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """Whole runs of the product in which each row of one client is in or out, and what is read from their messages.

    Parameters
    ----------
    data : mapping of client id to array of shape (n_t, d)
        The other clients' rows are the same in all runs: the attacker knows their law exactly.
    target : str
        The client whose rows are in or out.
    members : array of bool of shape (runs, n)
    settings_of : callable
        Settings of a run, by its number.
    method : Method
    read : callable
        Takes what passed, and how the run ended; gives q numbers for each of the n rows, (n, q).
    progress : callable
        Gets the number of runs done.

    Returns
    -------
    array of shape (runs, n, q)
    """
    found = []
    with on_cores(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about parts of the rows, which nobody asked about
        for number, inside in enumerate(members):
            part = {**data, target: data[target][np.flatnonzero(inside)]}
            found.append(read(*tapped_run(part, settings_of(number), method)))
            progress(number + 1)
    return np.array(found)


__all__ = ["Exchange", "Tap", "shadow_runs", "tapped_run"]
