"""Transport over NVIDIA FLARE: the Controller at the coordinator, the Executor in each silo. They only carry messages.

Both run in processes that FLARE starts for one job. The Controller gives `conduct` a transport; the Executor hands each
message to a `KitClient`. Neither contains a formula, and nothing above this folder knows of FLARE.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import AbortedError, OwnError, RefusedError, SiteError
from ...protocol.base import Failure, Message, message_bytes, nbytes, pack, unpack
from ...protocol.common import END
from ...protocol.method import Method
from ..clock import SYSTEM, Clock
from ..conductor import conduct
from ..driver import Replies, Transport
from ..events import Channel, at_coordinator, at_silo
from ..kitclient import KitClient
from ..spec import RunSpec
from .compat import DXO, Controller, DataKind, EventType, Executor, ReturnCode, Task, from_shareable

TASK = "fmtc"
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


class FlareTransport(Transport):
    """Clients at sites of a FLARE job: one task per client and message, answers checked on arrival.

    Parameters
    ----------
    controller : FmtcController
        It knows the run, the sites, and what FLARE does with tasks.
    fl_ctx, abort
        FLARE's context of the job, and its signal that the job is to end.
    events : Channel
        Gets what happens on the way; its clock is that of the transport.
    """

    def __init__(self, controller: FmtcController, fl_ctx: Any, abort: Any, events: Channel):
        self.controller, self.fl_ctx, self.abort, self.events = controller, fl_ctx, abort, events
        self.spec, self.sites, self.clock = controller.spec, dict(controller.sites), events.clock
        self.seen = dict.fromkeys(self.sites.values(), self.clock.monotonic())  # the last sign of life of each site
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
        with self.lock:
            refused = self.replies.refused  # what came late, since the last exchange
            self.replies = replies = Replies(refused=refused)
            self.asked = {self.sites[cid]: message for cid, message in messages.items()}
        tasks = self._send(messages)
        last_word = all(message.phase == END.name for message in messages.values())
        try:
            self._wait(tasks, min(self.spec.deadline, LAST_WORD) if last_word else self.spec.deadline)
        finally:
            for task in tasks.values():
                if task.completion_status is None:
                    self.controller.cancel_task(task)
        with self.lock:
            self.replies = Replies()
        return replies

    def _send(self, messages: Mapping[str, Message]) -> dict[str, Any]:
        """A task for each client that is there."""
        here = {client.name: client for client in self.fl_ctx.get_engine().get_clients()}
        tasks = {}
        for cid, message in messages.items():
            site = self.sites[cid]
            if site not in here or self.is_lost(site):
                self._fail(cid, SiteError("is away"))
                continue
            task = Task(name=TASK, data=_question(self.spec.run_id, message), result_received_cb=self.receive)
            self.controller.send(task=task, fl_ctx=self.fl_ctx, targets=[here[site]])
            self.replies.bytes_down += message_bytes(message)
            tasks[cid] = task
        return tasks

    def _wait(self, tasks: Mapping[str, Any], deadline: float) -> None:
        """Until each of these clients has answered or failed."""
        end = self.clock.monotonic() + deadline
        while waiting := [cid for cid in tasks if self.sites[cid] in self.asked]:
            if self.abort.triggered:
                raise AbortedError("the job was told to end")
            for cid in waiting:
                if self.is_lost(self.sites[cid]):
                    self._fail(cid, SiteError(f"gave no sign of life for {self.controller.lost_after:g} seconds"))
                elif self.clock.monotonic() > end:
                    self._fail(cid, SiteError(f"did not answer within {deadline:g} seconds"))
                elif (status := tasks[cid].completion_status) is not None and self.sites[cid] in self.asked:
                    self._fail(cid, SiteError(f"gave no usable answer ({status.value})"))
            self.clock.sleep(0.005)

    def is_lost(self, site: str) -> bool:
        """Whether a site's process of this job has been silent for too long; it cannot come back to this job."""
        if self.clock.monotonic() - self.seen[site] > self.controller.lost_after and site not in self.away:
            self.away.add(site)
            self.events.tell("away", site=site)
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
                answer = self._opened(cid, result, asked)
            except (RefusedError, OwnError) as error:
                if isinstance(error, RefusedError):
                    self.replies.refused += 1
                    self.events.tell("refused", site=site, why=str(error))
                if cid is not None and asked is not None:
                    self.asked.pop(site)
                    self.replies.failures[cid] = error
                return
            self.asked.pop(site)
            self.replies.answers[cid] = answer
            self.replies.bytes_up += nbytes(answer)

    def _opened(self, cid: str, result: Any, asked: Message) -> Any:
        """The answer to a message, checked."""
        code, method = result.get_return_code(), self.spec.method
        if code != ReturnCode.OK:
            raise OwnError(f"answered {code}; its own log says more")
        answer = _answered(result, self.spec.run_id, asked, method)
        sizes = method.known_sizes(cid, self.spec.settings)
        method.phase(asked.phase).check_answer(answer, asked.ask, sizes)
        if isinstance(answer, Failure):
            raise OwnError(f"reported {answer.error}; its own log says more")
        return answer


class FmtcController(Controller):
    """The coordinator's part of a job: conducts a run over the sites, and tells what happens on the run's channel.

    Parameters
    ----------
    spec : dict
        The run, as `RunSpec.to_dict` has it.
    sites : dict of client id to site name
    lost_after : float
        Seconds without a sign of life after which a site counts as lost.
    """

    clock: Clock = SYSTEM  # FLARE makes the object from JSON, so this is no parameter

    def __init__(self, spec: dict[str, Any], sites: dict[str, str], lost_after: float):
        super().__init__(task_check_period=0.05)
        self.spec = RunSpec.from_dict(spec)
        self.sites, self.lost_after = sites, lost_after
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

    def events(self) -> Channel:
        """The channel of the run."""
        return at_coordinator(self.spec.folder, self.clock)

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Conduct the run from its last checkpoint to its end."""
        events = self.events()
        self.transport = transport = FlareTransport(self, fl_ctx, abort_signal, events)
        is_active = self.communicator.client_is_active  # told of every heartbeat and question of a site's job process

        def client_is_active(client_name: str, reason: str, fl_ctx: Any) -> None:
            transport.seen[client_name] = transport.clock.monotonic()
            is_active(client_name, reason, fl_ctx)

        self.communicator.client_is_active = client_is_active
        # FLARE would load all of PyTorch, where it is installed, to look for tensors of which we never send any
        self.communicator._cleanup_inflight_tensor_downloads = lambda fl_ctx: None
        events.tell("started", sites=sorted(client.name for client in fl_ctx.get_engine().get_clients()))
        conduct(transport, self.spec, events)


# ---------------------------------------------------------------------------------------------------------- a site


class FmtcExecutor(Executor):
    """A client's part of a job: hands each message to the client in this site's kit.

    Parameters
    ----------
    spec : dict
        The run, as `RunSpec.for_silo` has it.
    """

    clock: Clock = SYSTEM  # as in `FmtcController`

    def __init__(self, spec: dict[str, Any]):
        super().__init__()
        self.spec = RunSpec.from_dict(spec)
        self.client: KitClient | None = None

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Called by FLARE at the turns of a job."""
        if event_type == EventType.START_RUN:
            gc.freeze()  # as in `FmtcController`

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Answer one message; whatever is returned has passed the client's outbox."""
        if self.client is None:
            self.client = self._open(Path(fl_ctx.get_engine().get_workspace().get_root_dir()))
        message: Message | None = None
        try:
            message = _asked(shareable, self.spec.run_id, self.spec.method)
        except RefusedError as error:
            answer: Any = self.client.fail(None, error)
        else:
            answer = self.client.answer(message)
        if isinstance(answer, Failure):
            self.log_error(fl_ctx, f"{answer.error}; see the kit's file of errors")
        return _reply(self.spec.run_id, message, answer)

    def _open(self, kit: Path) -> KitClient:
        """The client in a kit; where a file of the kit is damaged, its person is told."""
        try:
            return KitClient(kit, self.spec, self.clock)
        except Exception as error:
            place = {"run": self.spec.run_id, "phase": "", "round": 0}
            at_silo(kit, self.clock).tell("error", **place, why=str(error), kind=type(error).__name__)
            raise
