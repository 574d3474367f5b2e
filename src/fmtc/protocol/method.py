"""A method: which phases make up a run, and how clients and server begin. FMTC is one, federated baselines others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from ..describe import Atlas
from ..errors import RefusedError
from ..linalg.arrays import to_numpy
from .base import Phase, Weights
from .common import END, SURVEY, VERDICT
from .state import become
from .sums.masking import Masking

COMMON: tuple[Phase, ...] = (SURVEY, VERDICT, END)  # of every method: before a run, and after it

# Methods that a federation of processes may run: a job names one of these or of an installed package (entry points of
# the group `fmtc.methods`), never code of its own.
METHODS = {
    "fmtc": "fmtc.protocol.graph.view:METHOD",
    "fmtc-mixture": "fmtc.protocol.mixture.view:METHOD",
    "fmtc-auto": "fmtc.protocol.auto:METHOD",
    "fmtc-sums": "fmtc.protocol.sums.view:GRAPH",
    "fmtc-mixture-sums": "fmtc.protocol.sums.view:MIXTURE",
    "fmtc-auto-sums": "fmtc.protocol.sums.view:AUTO",
    "fmtc-private": "fmtc.protocol.private.view:METHOD",
    "fmtc-advice": "fmtc.protocol.advice:METHOD",
}


@dataclass(frozen=True)
class ClientResult:
    """What a client keeps of a run, of its last state: a model for new rows, and the labels of its own."""

    model: Any
    labels: np.ndarray  # n
    embedding: np.ndarray | None = None  # n x k; only where the run was in this process
    agreement: float | None = None  # of the labels with those of the embedding; as `embedding`
    misses: bool = False  # whether the graph has clear parts that the labels do not follow
    choice: str | None = None  # "federated" or "alone": which model it kept, where it compared the two
    home: Any = None  # to calibrate the model later; as `embedding`


class Method:
    """A clustering method as phases: `opening` once, `loop` until it stops, `closing` once.

    A method may have more than one loop: `phases` lists all that it does, `loops` what repeats. A subclass gives the
    phases and how server and clients begin; the driver, the transports, checkpoints and the outbox need nothing else.
    The state of a client is a frozen dataclass. Its fields named in `saved` are what it needs to
    continue after a round; they are written to disk.
    """

    name: str
    opening: tuple[Phase, ...] = ()
    loop: Phase
    closing: tuple[Phase, ...] = ()
    settings_type: type
    model_types: tuple[type, ...]  # kinds of model that a client may keep
    saved: tuple[str, ...] = ()
    stopping: tuple[str, ...] = ("max_iter", "tol")  # settings that decide when the loop ends, and nothing else
    changeable: tuple[str, ...] = ("max_iter", "tol")  # settings that a resumed run may change
    keeps: bool = True  # a client has a result of a run, and waits for it; False: it is only asked something

    def phase(self, name: str) -> Phase:
        """The phase of this name, or `RefusedError`."""
        if not isinstance(name, str) or name not in self._by_name:
            raise RefusedError(f"phase {name!r} is not part of {self.name}")
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Phase]:
        return {phase.name: phase for phase in (*COMMON, *self.phases)}

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """All phases in their order, those common to all methods left out."""
        return (*self.opening, *self.loops, *self.closing)

    @property
    def masks(self) -> bool:
        """Whether the server sees sums over clients only, which masks see to."""
        return any(isinstance(phase, Masking) for phase in self.phases)

    @cached_property
    def loops(self) -> tuple[Phase, ...]:
        """The phases that repeat until they stop."""
        return (self.loop,)

    def times(self, phase: Phase, server: Any, settings: Any) -> int:
        """How often a phase comes in a row, by what the server knows so far; 0 omits it."""
        return phase.times(server, settings)

    def precedes_a_loop(self, phase: Phase) -> bool:
        """Whether a loop comes after a phase."""
        return any(self.phases.index(phase) < self.phases.index(loop) for loop in self.loops)

    def open_client(self, client_id: str, X: Any, settings: Any, device: str) -> Any:
        """A client at rest, its rows checked."""
        raise NotImplementedError

    def open_server(self, client_ids: Sequence[str], settings: Any, weights: Weights) -> Any:
        """The server before the first message; it has `client_ids` and `round_no`."""
        raise NotImplementedError

    def without(self, server: Any, absent: set[str]) -> Any:
        """The server without some clients, before the first round is done."""
        return replace(server, client_ids=tuple(cid for cid in server.client_ids if cid not in absent))

    def restored(self, client: Any, round_no: int, arrays: Mapping[str, Any]) -> Any:
        """The client as it was after a round, from its fields named in `saved`; those that were not there yet: None."""
        return replace(client, round_no=round_no, **{name: arrays.get(name) for name in self.saved})

    def held(self, server: Any, client_ids: Iterable[str]) -> Any:
        """The server, which is told whose answers were dropped."""
        return server

    def ended(self, server: Any, history: Sequence[Any]) -> Any:
        """The server after the last phase."""
        return server

    def sizes(self, client: Any, settings: Any) -> dict[str, int]:
        """What a client knows of the letters in shapes."""
        return self.known_sizes(client.client_id, settings)

    def known_sizes(self, client_id: str, settings: Any) -> dict[str, int]:
        """What the server knows of the letters in shapes of a client's messages."""
        return {"k": settings.n_clusters}

    def stop_reason(self, history: Sequence[Any], settings: Any) -> tuple[bool, str] | None:
        """Whether the loop has converged, and why it ends; None goes on."""
        raise NotImplementedError

    def loop_stops(self, loop: Phase, history: Sequence[Any], settings: Any) -> tuple[bool, str] | None:
        """The same for one of several loops, given the rounds of that loop."""
        return self.stop_reason(history, settings)

    def common(self, server: Any) -> dict[str, np.ndarray]:
        """What the coordinator keeps of a run: arrays that belong to all clients."""
        return {}

    def atlas(self, server: Any, settings: Any) -> Atlas | None:
        """The concepts of a run that is over, as far as the server knows them; None where a method has none."""
        return None

    def result(self, client: Any) -> ClientResult:
        """Model and labels of a client after `closing`."""
        F = getattr(client, "F", None)
        return become(client, ClientResult, embedding=None if F is None else to_numpy(F))


def view_method(view: str, privacy: Any = None) -> Method:
    """The method of a view of FMTC, in the clear or by sums; private runs have one of their own."""
    if privacy is not None and privacy != "sums":
        return method_of("fmtc-private")
    name = "fmtc" if view == "graph" else f"fmtc-{view}"
    return method_of(name if privacy is None else f"{name}-sums")


def method_of(name: str) -> Method:
    """The method of this name."""
    where = METHODS.get(name)
    if where is None:
        installed = {point.name: point.value for point in entry_points(group="fmtc.methods")}
        if name not in installed:
            raise RefusedError(f"there is no method {name!r}; there are {', '.join((*METHODS, *installed))}")
        where = installed[name]
    module, _, attribute = where.partition(":")
    return getattr(import_module(module), attribute)
