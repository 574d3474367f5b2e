"""A tap on a transport: everything the server is told in a run, shadow runs for an audit of it, and private stages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fmtc.linalg.arrays import HOST
from fmtc.linalg.sparse import on_cores
from fmtc.privacy.keys import Noise
from fmtc.protocol.base import Message, Summed
from fmtc.protocol.graph.view import METHOD
from fmtc.protocol.method import Method
from fmtc.protocol.private.view import Private, PrivateServer, box_of, public_of
from fmtc.protocol.sums.masking import Masking, opened
from fmtc.runtime.driver import Replies, RunRecord, Transport, run
from fmtc.runtime.local import LocalTransport

from .attacks import Observation


class Unplanned(Private):
    """Private anchors for an audit, which takes any number of rows: what leaves is the same."""

    def open_server(
        self, client_ids: Sequence[str], settings: Any, weights: Mapping[str, float] | None
    ) -> PrivateServer:
        """The server before the first message."""
        return replace(super().open_server(client_ids, settings, weights), planned=False)


UNPLANNED = Unplanned()


class ReachedError(Exception):
    """The phase before which a tapped run was to end."""


@dataclass(frozen=True)
class Exchange:
    """One question to each client, and the answers as they left."""

    phase: str
    round_no: int
    turn: int
    asks: Mapping[str, Any]
    answers: Mapping[str, Any]
    before: Mapping[str, Any]  # state of each client when it was asked; for an audit at the client itself
    total: Any = None  # the sum that the server opens, where answers are masked


@dataclass
class Tap:
    """A transport that keeps what passes. The messages are those of the transport, not a copy of a computation.

    Parameters
    ----------
    transport : Transport
    method : Method
        Whose messages pass.
    until : str, optional
        Phase before which the run ends, with `ReachedError`.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.settings import Settings
    >>> from fmtc.runtime.driver import run
    >>> from fmtc.runtime.local import LocalTransport
    >>> from fmtc_bench.audits.tap import Tap
    >>> rng = np.random.default_rng(0)
    >>> settings = Settings(n_clusters=2, max_iter=2, view="graph", scale="none")
    >>> data = {"a": rng.normal(size=(30, 3)), "b": rng.normal(size=(40, 3))}
    >>> tap = Tap(LocalTransport(data, settings))
    >>> result = run(tap, settings)
    >>> [one.answers["a"].W.shape for one in tap.of("round")]
    [(3, 2), (3, 2)]
    """

    transport: Transport
    method: Method = METHOD
    until: str | None = None
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
        before, first = self.clients, next(iter(messages.values()))
        if first.phase == self.until:
            raise ReachedError(first.phase)
        replies = self.transport.exchange(messages)
        asks = {cid: message.ask for cid, message in messages.items()}
        answers = dict(replies.answers)  # a copy: the server may empty its own
        phase = self.method.phase(first.phase)
        total = opened(phase.inner, answers) if isinstance(phase, Masking) and len(answers) == len(messages) else None
        self.passed.append(Exchange(first.phase, first.round_no, first.turn, asks, answers, before, total))
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


def tapped_run(
    data: Mapping[str, Any], settings: Any, method: Method, until: str | None = None
) -> tuple[Tap, RunRecord | None]:
    """A run in this process and all that passed; no result where it was ended before a phase."""
    tap = Tap(LocalTransport(data, settings, method=method), method, until)
    try:
        return tap, run(tap, settings, method=method)
    except ReachedError:
        return tap, None


def shadow_runs(
    data: Mapping[str, Any],
    target: str,
    members: np.ndarray,
    settings_of: Callable[[int], Any],
    method: Method,
    read: Callable[[Tap], np.ndarray],
    progress: Callable[[int], None] = lambda done: None,
    until: str | None = None,
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
        Takes what passed; gives q numbers for each of the n rows, (n, q).
    progress : callable
        Gets the number of runs done.
    until : str, optional
        Phase before which the runs end: what follows sends nothing.

    Returns
    -------
    array of shape (runs, n, q)
    """
    found = []
    with on_cores(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about parts of the rows, which nobody asked about
        for number, inside in enumerate(members):
            part = {**data, target: data[target][np.flatnonzero(inside)]}
            found.append(read(tapped_run(part, settings_of(number), method, until)[0]))
            progress(number + 1)
    return np.array(found)


class PrivateStages:
    """The noisy sums of private runs with and without one record, as an adversary sees them who knows all others.

    Goes through the code of a private run: the phases of `fmtc.protocol.private` and their questions, the stage
    functions, the noise of `fmtc.privacy.noise`, fixed point and masks. Keys are made once; the transport, the ledger
    and what clients do at home, which sends nothing, are left out.

    Parameters
    ----------
    data : mapping of client id to array of shape (n_t, d)
        Without the canary.
    canary : array of shape (d,)
    settings : Settings
        With a `Privacy`.
    noise : callable, optional
        Draws in place of the noise of the product; for those who break it on purpose.
    """

    def __init__(self, data: Mapping[str, np.ndarray], canary: np.ndarray, settings: Any, noise: Noise | None = None):
        self.options = {} if noise is None else {"noise": noise}
        self.settings, self.row = settings, np.asarray(canary, np.float64)[None]
        first = UNPLANNED.phases[2].name  # after the cards and the roster
        tap, _ = tapped_run(data, settings, UNPLANNED, until=first)
        self.keys = tap.transport.keys  # type: ignore[attr-defined]
        self.target = min(data)
        self.clients = {cid: UNPLANNED.open_client(cid, X, settings, HOST) for cid, X in data.items()}
        self.joined = replace(self.clients[self.target], X=np.vstack([self.clients[self.target].X, self.row]))

    def __call__(self, inside: bool, number: int) -> list[Observation]:
        """The sums of one run; the adversary is the server, which works with no client."""
        settings, found = self.settings, []
        server = UNPLANNED.open_server(tuple(self.clients), settings, None)
        clients = self.clients | ({self.target: self.joined} if inside else {})
        honest = len(clients) - settings.privacy.colluding
        for phase in UNPLANNED.phases:
            if not isinstance(phase, Masking) or not phase.times(server, settings):
                continue
            ask = next(iter(phase.asks(server, settings).values()))
            message = Message(phase.name, ask, turn=number)
            answers = {}
            for cid, client in clients.items():
                _, plain = phase.reply(client, ask, settings, 0)
                answers[cid] = self.keys[cid].seal(phase, message, plain, settings, **self.options)
            total = opened(phase.inner, answers)
            stage, public = phase.inner.stage, public_of(ask, box_of(self.joined, settings))  # type: ignore[attr-defined]
            others = sum(stage.total(client.X, public) for client in self.clients.values())
            sigma = phase.noise(ask, settings)["total"] * np.sqrt(len(clients) / honest)
            added = stage.contributions(self.row, public)[0]
            found.append(Observation(phase.name, total.total, np.asarray(others), added, float(sigma)))
            if phase in UNPLANNED.loops:
                break
            server = phase.inner.reduce(server, Summed(total, len(answers)), settings)
        return found


__all__ = ["Exchange", "PrivateStages", "ReachedError", "Tap", "shadow_runs", "tapped_run"]
