"""Transport over NVIDIA FLARE: the Controller at the coordinator, the Executor in each silo. They only carry messages.

Both run in processes that FLARE starts for one job. The Controller gives `conduct` a transport; the Executor hands each
message to a `KitClient`. Neither contains a formula, and nothing above this folder knows of FLARE.
"""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ...artifacts.files import jsonable
from ...errors import AbortedError, OwnError, RefusedError, SiteError
from ...protocol.base import Failure, Message, message_bytes, nbytes, pack, unpack
from ...protocol.end import END
from ...protocol.method import Method, method_of
from ..clock import SYSTEM, Clock
from ..conductor import Spec, conduct
from ..driver import Replies
from ..kitclient import KitClient
from .compat import DXO, Controller, DataKind, EventType, Executor, ReturnCode, Task, from_shareable

TASK = "fmtc"
EVENTS = "events.jsonl"  # in the coordinator's folder of a run: what happened, a line each
LAST_WORD = 30.0  # seconds to wait for answers to the last message of a run


# -------------------------------------------------------------------------------------------------------- envelopes


def _question(run_id: str, message: Message) -> Any:
    """A question as FLARE carries it: arrays as arrays, beside the run and its place in it."""
    return _sealed(run_id, message, "ask", message.ask)


def _reply(run_id: str, message: Message | None, answer: Any) -> Any:
    """An answer as FLARE carries it, with the place of the question."""
    kind = "failure" if isinstance(answer, Failure) else "answer"
    return _sealed(run_id, message or Message("", None), kind, answer)


def _sealed(run_id: str, place: Message, kind: str, content: Any) -> Any:
    meta = {"run": run_id, "kind": kind}
    meta |= {f.name: getattr(place, f.name) for f in fields(Message) if f.name != "ask"}
    flat = {name: np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for name, v in pack(content).items()}
    return DXO(DataKind.WEIGHTS, data={"kind": kind, **flat}, meta=meta).to_shareable()


def _opened(shareable: Any, run_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Place and content of an envelope, or a refusal: of another run, or not one of ours."""
    try:
        dxo = from_shareable(shareable)
        meta, flat = dict(dxo.meta), dict(dxo.data)
        kind = flat.pop("kind", None)
    except Exception as error:
        raise RefusedError(f"it cannot be read: {type(error).__name__}") from None
    if meta.get("run") != run_id:
        raise RefusedError("it belongs to another run")
    if kind not in ("ask", "answer", "failure") or meta.get("kind") != kind:
        raise RefusedError("it is not a message of fmtc")
    return meta, flat


def _asked(shareable: Any, run_id: str, method: Method) -> Message:
    """The question in an envelope, or a refusal."""
    meta, flat = _opened(shareable, run_id)
    if meta["kind"] != "ask":
        raise RefusedError("it is not a question")
    phase = method.phase(str(meta.get("phase")))
    place: dict[str, Any] = {name: meta.get(name) for name in ("round_no", "last_round", "turn")}
    return Message(phase.name, unpack(phase.Ask, flat), **place)


def _answered(shareable: Any, run_id: str, message: Message, method: Method) -> Any:
    """The answer to a question in an envelope, or a refusal."""
    meta, flat = _opened(shareable, run_id)
    if meta["kind"] == "ask":
        raise RefusedError("it is not an answer")
    place = (meta.get("phase"), meta.get("round_no"), meta.get("turn"))
    if place != message.key:
        raise RefusedError(f"it answers {place}, not {message.key}")
    phase = method.phase(message.phase)
    return unpack(Failure if meta["kind"] == "failure" else phase.Answer, flat)


# -------------------------------------------------------------------------------------------------- the coordinator


class FlareTransport:
    """Clients at sites of a FLARE job: one task per client and message, answers checked on arrival.

    Parameters
    ----------
    controller : FmtcController
    sites : mapping of client id to the name of its site
    deadline : float
        Seconds within which an answer must come.
    lost_after : float
        Seconds without a sign of life after which a site counts as lost.
    """

    def __init__(
        self,
        controller: FmtcController,
        fl_ctx: Any,
        abort: Any,
        sites: Mapping[str, str],
        deadline: float,
        lost_after: float,
        clock: Clock = SYSTEM,
    ):
        self.controller, self.fl_ctx, self.abort = controller, fl_ctx, abort
        self.sites, self.deadline, self.lost_after, self.clock = dict(sites), deadline, lost_after, clock
        self.seen = dict.fromkeys(sites.values(), clock.monotonic())  # the last sign of life of each site
        self.away: set[str] = set()
        self.asked: dict[str, Message] = {}  # site -> the message it has not answered yet
        self.replies = Replies()
        self.lock = threading.Lock()

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Names of all clients of the federation, sorted; also of those that are away."""
        return tuple(sorted(self.sites))

    def exchange(self, messages: Mapping[str, Message]) -> Replies:
        """Send one message to each client named; wait for all answers, a lost connection, or the deadline."""
        here = {client.name: client for client in self.fl_ctx.get_engine().get_clients()}
        with self.lock:
            refused = self.replies.refused  # what came late, since the last exchange
            self.replies = replies = Replies(refused=refused)
            self.asked = {self.sites[cid]: message for cid, message in messages.items()}
        tasks = {}
        for cid, message in messages.items():
            site = self.sites[cid]
            if site not in here or self.is_lost(site):
                self._fail(cid, SiteError("is away"))
                continue
            data = _question(self.controller.spec.run_id, message)
            task = Task(name=TASK, data=data, result_received_cb=self.receive)
            self.controller.send(task=task, fl_ctx=self.fl_ctx, targets=[here[site]])
            replies.bytes_down += message_bytes(message)
            tasks[cid] = task
        last_word = all(message.phase == END.name for message in messages.values())
        deadline = min(self.deadline, LAST_WORD) if last_word else self.deadline
        end = self.clock.monotonic() + deadline
        try:
            while waiting := [cid for cid in tasks if self.sites[cid] in self.asked]:
                if self.abort.triggered:
                    raise AbortedError("the job was told to end")
                for cid in waiting:
                    if self.is_lost(self.sites[cid]):
                        self._fail(cid, SiteError(f"gave no sign of life for {self.lost_after:g} seconds"))
                    elif self.clock.monotonic() > end:
                        self._fail(cid, SiteError(f"did not answer within {deadline:g} seconds"))
                    elif tasks[cid].completion_status is not None and self.sites[cid] in self.asked:
                        self._fail(cid, SiteError(f"gave no usable answer ({tasks[cid].completion_status.value})"))
                self.clock.sleep(0.005)
        finally:
            for task in tasks.values():
                if task.completion_status is None:
                    self.controller.cancel_task(task)
        with self.lock:
            self.replies = Replies()
        return replies

    def is_lost(self, site: str) -> bool:
        """Whether a site's process of this job has been silent for too long; it cannot come back to this job."""
        if self.clock.monotonic() - self.seen[site] > self.lost_after and site not in self.away:
            self.away.add(site)
            self.controller.note("away", site=site)
        return site in self.away

    def _fail(self, cid: str, error: Exception) -> None:
        with self.lock:
            if self.asked.pop(self.sites[cid], None) is not None:
                self.replies.failures[cid] = error

    def receive(self, client_task: Any, fl_ctx: Any) -> None:
        """Take an answer in, or refuse it; called by FLARE in a thread of its own."""
        self.take(client_task.client.name, client_task.result)
        client_task.result = None

    def take(self, site: str, result: Any, expected: bool = True) -> None:
        """One answer of a site: it counts once, for the message that is open, if it is what that message asks for."""
        with self.lock:
            cid = next((cid for cid, name in self.sites.items() if name == site), None)
            asked = self.asked.get(site) if expected else None
            try:
                if cid is None:
                    raise RefusedError("it is from a stranger")
                if asked is None:
                    raise RefusedError("nothing is open: it is late, or came twice")
                code = result.get_return_code()
                if code != ReturnCode.OK:
                    self.asked.pop(site)
                    self.replies.failures[cid] = OwnError(f"answered {code}; its own log says more")
                    return
                spec = self.controller.spec
                answer = _answered(result, spec.run_id, asked, spec.method)
                sizes = spec.method.known_sizes(cid, spec.settings)
                spec.method.phase(asked.phase).check_answer(answer, asked.ask, sizes)
            except RefusedError as error:
                self.replies.refused += 1
                self.controller.note("refused", site=site, why=str(error))
                if cid is not None and asked is not None:
                    self.asked.pop(site)
                    self.replies.failures[cid] = error
                return
            self.asked.pop(site)
            if isinstance(answer, Failure):
                self.replies.failures[cid] = OwnError(f"reported {answer.error}; its own log says more")
                return
            self.replies.answers[cid] = answer
            self.replies.bytes_up += nbytes(answer)

    def save_clients(self, folder: Path) -> None:
        """Nothing to do: each client has kept its own state before it answered."""

    def load_clients(self, folder: Path, client_ids: tuple[str, ...]) -> None:
        """Nothing to do: a message names the round that a client continues from."""


class FmtcController(Controller):
    """The coordinator's part of a job: conducts a run over the sites, and keeps its files in `folder`.

    Parameters
    ----------
    run_id : str
        Names the run in every message; the jobs that continue a run have the same.
    method : str
        Name of a method.
    settings : dict
        Of the method.
    sites : dict of client id to site name
    folder : str
        Of the coordinator: checkpoint, events and result.
    preflight : {"no", "first", "only"}
        Whether the clients' columns are compared before a run begins; a difference that would spoil it ends the job.
    accept_units : bool
        As in `Spec`.
    """

    clock: Clock = SYSTEM  # FLARE makes the object from JSON, so this is no parameter

    def __init__(
        self,
        run_id: str,
        method: str,
        settings: dict[str, Any],
        sites: dict[str, str],
        folder: str,
        min_clients: int | None = None,
        weights: dict[str, float] | None = None,
        deadline: float = 600.0,
        lost_after: float = 30.0,
        preflight: str = "no",
        accept_units: bool = False,
    ):
        super().__init__(task_check_period=0.05)
        kind = method_of(method)
        self.spec = Spec(
            run_id, kind.read_settings(settings), Path(folder), kind, weights, min_clients, preflight, accept_units
        )
        self.sites, self.deadline, self.lost_after = sites, deadline, lost_after
        self.transport: FlareTransport | None = None

    def start_controller(self, fl_ctx: Any) -> None:
        """Called by FLARE before `control_flow`."""
        gc.freeze()  # modules are here to stay; to collect them at the end took most of a second

    def stop_controller(self, fl_ctx: Any) -> None:
        """Called by FLARE after `control_flow`."""

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Any, fl_ctx: Any
    ) -> None:
        """An answer to a question that is closed."""
        if self.transport is not None:
            self.transport.take(client.name, result, expected=False)

    def note(self, event: str, **facts: Any) -> None:
        """Add one line to the log of events, which the coordinator's command follows."""
        line = json.dumps(jsonable({"event": event, "time": self.clock.time(), **facts}))
        with (self.spec.folder / EVENTS).open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Conduct the run from its last checkpoint to its end."""
        self.transport = transport = FlareTransport(
            self, fl_ctx, abort_signal, self.sites, self.deadline, self.lost_after, self.clock
        )
        is_active = self.communicator.client_is_active  # told of every heartbeat and question of a site's job process

        def client_is_active(client_name: str, reason: str, fl_ctx: Any) -> None:
            transport.seen[client_name] = transport.clock.monotonic()
            is_active(client_name, reason, fl_ctx)

        self.communicator.client_is_active = client_is_active
        # FLARE would load all of PyTorch, where it is installed, to look for tensors of which we never send any
        self.communicator._cleanup_inflight_tensor_downloads = lambda fl_ctx: None
        self.note("started", sites=sorted(client.name for client in fl_ctx.get_engine().get_clients()))
        conduct(transport, self.spec, self.note)


# ---------------------------------------------------------------------------------------------------------- a site


class FmtcExecutor(Executor):
    """A client's part of a job: hands each message to the client in this site's kit.

    Parameters
    ----------
    run_id, method, settings, preflight, random_state
        As in `KitClient`.
    """

    clock: Clock = SYSTEM  # as in `FmtcController`

    def __init__(
        self,
        run_id: str,
        method: str,
        settings: dict[str, Any],
        preflight: str = "no",
        random_state: int | None = None,
    ):
        super().__init__()
        self.about = (run_id, method, settings, preflight, random_state)
        self.run_id = run_id
        self.client: KitClient | None = None

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Called by FLARE at the turns of a job."""
        if event_type == EventType.START_RUN:
            gc.freeze()  # as in `FmtcController`

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Answer one message; whatever is returned has passed the client's outbox."""
        if self.client is None:
            kit = Path(fl_ctx.get_engine().get_workspace().get_root_dir())
            self.client = KitClient(kit, *self.about, clock=self.clock)
        message: Message | None = None
        try:
            message = _asked(shareable, self.run_id, self.client.method)
        except RefusedError as error:
            answer: Any = self.client.fail(None, error)
        else:
            answer = self.client.answer(message)
        if isinstance(answer, Failure):
            self.log_error(fl_ctx, f"{answer.error}; see the kit's file of errors")
        return _reply(self.run_id, message, answer)


__all__ = ["FlareTransport", "FmtcController", "FmtcExecutor"]
