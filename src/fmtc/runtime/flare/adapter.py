"""Transport over NVIDIA FLARE: the Controller at the coordinator, the Executor in each silo. One door to nvflare.

Both run in processes that FLARE starts for one job. The Controller is a `Transport` and calls the same
`driver.run` as everybody; the Executor calls the same `client_reply`. What a silo needs to go on after a crash is
written to its own folder as the last act of each step, under the number of the round.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import shutil
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from ...artifacts.files import (
    check_schema,
    fingerprint,
    jsonable,
    nbytes,
    pack,
    read_client,
    read_json,
    read_tensors,
    unpack,
    write_client,
    write_json,
    write_tensors,
)
from ...errors import (
    AbortedError,
    ChangedError,
    ClientError,
    FileError,
    LimitError,
    OwnError,
    RefusedError,
    SiteError,
)
from ...linalg.arrays import on_cores
from ...steps import ClientModel, ClientState, Downlink, Hyper, Uplink, client_reply, open_client
from ...tables import Columns, Silo, TextRecipe, compare, explain, read_columns, read_silos
from ...tables.findings import ERROR, NOTE
from ...tables.survey import from_verdict, survey, verdicts
from ..driver import Replies, Result, RoundRecord, one_thread, run
from ..guard import check_downlink, check_uplink
from .serve import leave_with_parent

try:
    from nvflare.apis.controller_spec import Task
    from nvflare.apis.dxo import DXO, DataKind, from_shareable
    from nvflare.apis.event_type import EventType
    from nvflare.apis.executor import Executor
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.impl.controller import Controller
except ImportError as error:
    raise ImportError("a federation of processes needs nvflare: pip install 'fmtc[federation]'") from error

Array = np.ndarray

TASK = "fmtc"
RUN = re.compile("[A-Za-z0-9_-]{1,64}")  # names of runs, which come from the coordinator
SITE_FILE = "fmtc.json"  # in the `local` folder of a silo's kit: which file holds the rows, and how to read it
SALT = "salt"  # file of a silo's kit: the silos' common secret, which the coordinator does not have
STATES = "fmtc"  # folder of a silo's kit with one folder per run
CHECKPOINT = "checkpoint"  # folder in the coordinator's folder of a run
EVENTS = "events.jsonl"  # in the coordinator's folder of a run: what happened, a line each
RESULT = "result.safetensors"  # in the coordinator's folder of a run, and in a silo's: what it came to
ASKED = "asked.json"  # in a silo's folder of a run: its settings, as the coordinator has sent them
SHOWN = "shown"  # beside it: `fmtc join` has shown them
ROWS = "rows.json"  # in a silo's folder of a run: fingerprint of the rows, and their identifiers, that it began with
PREFLIGHT = "preflight.json"  # in a silo's folder of a run: how its columns differ from the others'
ENDED = "ended.json"  # in a silo's folder of a run: all have their numbers, and how it ended
RUNS = "runs.jsonl"  # in a silo's kit: the runs it has taken part in
TROUBLE = "trouble.jsonl"  # in a silo's kit: what kept it from answering, in the sentences that do not leave it
DAY = 24 * 3600.0
RESULT_FORMAT = 1


def _settle() -> None:
    """In a process of a job: end with the one that started it, and without looking through all it has loaded."""
    leave_with_parent()
    gc.freeze()  # modules are here to stay; to collect them at the end took most of a second


# -------------------------------------------------------------------------------------------------- the coordinator


class FlareTransport:
    """Clients that live in silos of a FLARE job: one task per client and message, answers checked on arrival.

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
    ):
        self.controller, self.fl_ctx, self.abort = controller, fl_ctx, abort
        self.sites, self.deadline, self.lost_after = dict(sites), deadline, lost_after
        self.seen = dict.fromkeys(sites.values(), time.monotonic())  # the last sign of life of each site
        self.away: set[str] = set()
        self.asked: dict[str, Downlink] = {}  # site -> the message it has not answered yet
        self.replies = Replies()
        self.lock = threading.Lock()

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Names of all clients of the federation, sorted; also of those that are away."""
        return tuple(sorted(self.sites))

    def exchange(self, messages: Mapping[str, Downlink]) -> Replies:
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
            data = _envelope(self.controller.run_id, message, message.phase, message.round_no)
            task = Task(name=TASK, data=data, result_received_cb=self.receive)
            self.controller.send(task=task, fl_ctx=self.fl_ctx, targets=[here[site]])
            replies.bytes_down += nbytes(message)
            tasks[cid] = task
        end = time.monotonic() + self.deadline
        try:
            while waiting := [cid for cid in tasks if self.sites[cid] in self.asked]:
                if self.abort.triggered:
                    raise AbortedError("the job was told to end")
                for cid in waiting:
                    if self.is_lost(self.sites[cid]):
                        self._fail(cid, SiteError(f"gave no sign of life for {self.lost_after:g} seconds"))
                    elif time.monotonic() > end:
                        self._fail(cid, SiteError(f"did not answer within {self.deadline:g} seconds"))
                    elif tasks[cid].completion_status is not None and self.sites[cid] in self.asked:
                        self._fail(cid, SiteError(f"gave no usable answer ({tasks[cid].completion_status.value})"))
                time.sleep(0.005)
        finally:
            for task in tasks.values():
                if task.completion_status is None:
                    self.controller.cancel_task(task)
        with self.lock:
            self.replies = Replies()
        return replies

    def is_lost(self, site: str) -> bool:
        """Whether a site's process of this job has been silent for too long; it cannot come back to this job."""
        if time.monotonic() - self.seen[site] > self.lost_after and site not in self.away:
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
                uplink = _opened(result, Uplink, self.controller.run_id, asked.phase, asked.round_no)
                check_uplink(uplink, asked, self.controller.hyper.n_clusters)
            except RefusedError as error:
                self.replies.refused += 1
                self.controller.note("refused", site=site, why=str(error))
                if cid is not None and asked is not None:
                    self.asked.pop(site)
                    self.replies.failures[cid] = error
                return
            self.asked.pop(site)
            if uplink.error is not None:
                self.replies.failures[cid] = OwnError(f"ran into {uplink.error}; its own log says more")
                return
            self.replies.uplinks[cid] = uplink
            self.replies.bytes_up += nbytes(uplink)

    def save_clients(self, folder: Path) -> None:
        """Nothing to do: each silo has kept its own state before it answered."""

    def load_clients(self, folder: Path, client_ids: tuple[str, ...]) -> None:
        """Nothing to do: a round's message names the round a silo goes on from."""


def _envelope(run_id: str, message: Any, phase: str, round_no: int) -> Any:
    """A message as FLARE carries it: arrays as arrays, beside the run, phase and round it belongs to."""
    meta = {"run": run_id, "phase": phase, "round": round_no}
    flat = {name: np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for name, v in pack(message).items()}
    return DXO(DataKind.WEIGHTS, data={"message": type(message).__name__, **flat}, meta=meta).to_shareable()


def _opened(shareable: Any, kind: type, run_id: str, phase: str | None, round_no: int | None) -> Any:
    """The message in an envelope, or a refusal: of another run, phase or round, or not one of ours."""
    try:
        dxo = from_shareable(shareable)
        meta, flat = dict(dxo.meta), dict(dxo.data)
        if flat.pop("message", None) != kind.__name__:
            raise RefusedError(f"it is no {kind.__name__}")
        message = unpack(kind, flat)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"it cannot be read: {type(error).__name__}") from None
    if meta.get("run") != run_id:
        raise RefusedError("it belongs to another run")
    if phase is not None and (meta.get("phase"), meta.get("round")) != (phase, round_no):
        raise RefusedError(f"it answers {meta.get('phase')} {meta.get('round')}, not {phase} {round_no}")
    return message


class FmtcController(Controller):
    """The coordinator's part of a job: runs the driver over the silos, and keeps its files in `folder`.

    Parameters
    ----------
    run_id : str
        Names the run in every message; the jobs that continue a run have the same.
    hyper : dict
        Fields of `Hyper`.
    sites : dict of client id to site name
    folder : str
        Of the coordinator: checkpoint, events and result.
    preflight : {"no", "first", "only"}
        Whether the silos' columns are compared before a run begins; a difference that would spoil it ends the job.
    """

    def __init__(
        self,
        run_id: str,
        hyper: dict[str, Any],
        sites: dict[str, str],
        folder: str,
        min_clients: int | None = None,
        weights: dict[str, float] | None = None,
        deadline: float = 600.0,
        lost_after: float = 30.0,
        preflight: str = "no",
    ):
        super().__init__(task_check_period=0.05)
        self.run_id, self.hyper, self.sites, self.folder = run_id, Hyper(**hyper), sites, Path(folder)
        self.min_clients, self.weights, self.deadline, self.lost_after = min_clients, weights, deadline, lost_after
        self.preflight = preflight
        self.transport: FlareTransport | None = None

    def start_controller(self, fl_ctx: Any) -> None:
        """Called by FLARE before `control_flow`."""
        _settle()

    def stop_controller(self, fl_ctx: Any) -> None:
        """Called by FLARE after `control_flow`."""

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Any, fl_ctx: Any
    ) -> None:
        """An answer to a question that is closed."""
        if self.transport is not None:
            self.transport.take(client.name, result, expected=False)

    def note(self, event: str, **facts: Any) -> None:
        """One line to the log of events, which the coordinator's command follows."""
        line = json.dumps(jsonable({"event": event, "time": time.time(), **facts}))
        with (self.folder / EVENTS).open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Run Algorithm 1 from the last checkpoint, if there is one, to its end."""
        transport = FlareTransport(self, fl_ctx, abort_signal, self.sites, self.deadline, self.lost_after)
        self.transport = transport
        is_active = self.communicator.client_is_active  # told of every heartbeat and question of a site's job process

        def client_is_active(client_name: str, reason: str, fl_ctx: Any) -> None:
            transport.seen[client_name] = time.monotonic()
            is_active(client_name, reason, fl_ctx)

        self.communicator.client_is_active = client_is_active
        # FLARE would load all of PyTorch, where it is installed, to look for tensors of which we never send any
        self.communicator._cleanup_inflight_tensor_downloads = lambda fl_ctx: None
        here = sorted(client.name for client in fl_ctx.get_engine().get_clients())
        self.note("started", sites=here)
        begun = (self.folder / CHECKPOINT).exists()
        over = finished(self.folder, self.run_id, self.hyper)
        if over is not None:  # an earlier job wrote the result, and was lost before all silos knew
            return self._end(transport, over["client_ids"], over["missing"], over["converged"])
        try:
            if (self.preflight == "only" or (self.preflight == "first" and not begun)) and self._survey(transport):
                return
            result = run(
                transport,
                self.hyper,
                weights=self.weights,
                callbacks=[self._note_round],
                checkpoint=self.folder / CHECKPOINT,
                resume=True,
                min_clients=self.min_clients,
            )
        except AbortedError:
            self.note("aborted")
        except ClientError as error:
            self.note("stopped" if isinstance(error.__cause__, OwnError) else "lost", why=str(error))
        except ValueError as error:
            self.note("refused data", why=str(error))
        except Exception as error:
            self.note("failed", why=f"{type(error).__name__}: {error}")
            raise
        else:
            write_result(self.folder / RESULT, result, self.run_id, self.hyper)
            self._end(transport, result.server.client_ids, result.missing, result.converged)

    def _end(
        self, transport: FlareTransport, client_ids: Iterable[str], missing: Iterable[str], converged: bool
    ) -> None:
        """Tell the silos that all have their numbers, and how it ended."""
        self.note("done", missing=list(missing))
        transport.deadline = min(transport.deadline, 30.0)
        transport.exchange({cid: Downlink("end", converged=converged) for cid in client_ids})
        self.note("ended")

    def _survey(self, transport: FlareTransport) -> bool:
        """Compare the silos' columns and tell each what is odd about its own; whether the job ends with that."""
        replies = transport.exchange({cid: Downlink("survey") for cid in transport.client_ids})
        if len(replies.uplinks) < (self.min_clients or len(transport.client_ids)):
            cid, error = min(replies.failures.items())
            raise ClientError(f"client {cid!r} failed telling its columns: {error}") from error
        findings = compare(replies.uplinks, n_clusters=self.hyper.n_clusters)
        transport.exchange(verdicts(findings, replies.uplinks))
        self.note("surveyed", silos=sorted(replies.uplinks), findings=[asdict(finding) for finding in findings])
        differ = any(finding.severity == ERROR for finding in findings)
        if differ or self.preflight == "only":
            self.note("differ" if differ else "agree")
            self.note("ended")
        return differ or self.preflight == "only"

    def _note_round(self, record: RoundRecord) -> None:
        self.note("round", record=asdict(record))


def write_result(path: Path, result: Result, run_id: str, hyper: Hyper) -> None:
    """What the coordinator keeps of a run: the consensus and the history, and nothing of a row."""
    about = {
        "kind": "fmtc consensus",
        "schema": RESULT_FORMAT,
        "run": run_id,
        "hyper": asdict(hyper),
        "client_ids": result.server.client_ids,
        "converged": result.converged,
        "stopped_because": result.stopped_because,
        "missing": result.missing,
        "chosen_beta": result.server.chosen_beta,
        "trials": None if result.trials is None else str(result.trials),
        "n_iter": result.server.round_no,
        "history": [asdict(record) for record in result.history],
    }
    write_tensors(path, {"consensus": result.server.Z}, about)


def finished(folder: Path, run_id: str, hyper: Hyper) -> dict[str, Any] | None:
    """What the coordinator's folder says of a run that is over; None where it is not over yet."""
    if not (folder / RESULT).exists():
        return None
    _, about = read_result(folder / RESULT)
    if (about.get("run"), about.get("hyper")) != (run_id, jsonable(asdict(hyper))):
        raise FileError(
            f"{folder} holds the result of a run with other settings: give the settings of then to write it down, or "
            "start afresh with --force"
        )
    return about


# --------------------------------------------------------------------------------------------------------- a silo


@dataclass(frozen=True)
class Site:
    """What a silo's own person said when joining: who we are and where our rows are. Never leaves the silo."""

    client_id: str
    data: str
    drop: tuple[str, ...] = ()
    id_column: str | None = None
    label_column: str | None = None
    text_column: str | None = None
    features: tuple[str, ...] | None = None  # columns and their order, where one machine sees all silos
    salt: str | None = None  # for the hashes of words; left out, that of the kit
    max_k: int | None = None  # clusters that a run may ask for
    min_rows: int = 0  # rows for each cluster, on average, that a run must leave
    max_runs: int | None = None  # runs within 24 hours
    shown: bool = False  # whether somebody shows the settings of a run, and is to be waited for

    def write(self, kit: Path) -> None:
        """Keep it in the kit, for the processes that FLARE starts."""
        write_json(kit / "local" / SITE_FILE, asdict(self))

    @classmethod
    def read(cls, kit: Path) -> Site:
        """Undo `write`."""
        about: dict[str, Any] = read_json(kit / "local" / SITE_FILE)
        fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in about.items()}
        return cls(**fields)

    def check_run(self, hyper: Hyper, lately: int) -> None:
        """Refuse what the person who joined does not want to answer; `lately` runs came within the last 24 hours."""
        if self.max_k is not None and hyper.n_clusters > self.max_k:
            raise LimitError(f"the run asks for {hyper.n_clusters} clusters, and --max-k is {self.max_k}")
        if self.max_runs is not None and lately >= self.max_runs:
            raise LimitError(f"it would be run {lately + 1} within 24 hours, and --max-runs is {self.max_runs}")

    def check_rows(self, n_rows: int, hyper: Hyper) -> None:
        """Refuse clusters of so few rows that their centres tell of single ones."""
        if n_rows < self.min_rows * hyper.n_clusters:
            raise LimitError(
                f"the run asks for {hyper.n_clusters} clusters of {n_rows} rows, and --min-rows is {self.min_rows} "
                "rows for each cluster"
            )

    def recipe(self, kit: Path) -> TextRecipe | None:
        """How texts are read, where rows are texts."""
        if self.text_column is None:
            return None
        return TextRecipe(self.text_column, self.salt or (kit / SALT).read_text(encoding="ascii").strip())

    def rows(self, kit: Path) -> Silo:
        """The silo's table, read and checked."""
        recipe = self.recipe(kit)
        (silo,) = read_silos(
            [self.data], drop=self.drop, id_column=self.id_column, label_column=self.label_column,
            features=self.features, **({} if recipe is None else asdict(recipe)),
        )  # fmt: skip
        return silo

    def columns(self) -> Columns:
        """The silo's table, read for a comparison with others; refuses only what cannot be read at all."""
        (columns,) = read_columns(
            [self.data], id_column=self.id_column, label_column=self.label_column, drop=self.drop
        ).values()
        if self.text_column is not None and self.text_column in (columns.names or ()):
            return columns.with_lengths(self.text_column)
        return columns


class FmtcExecutor(Executor):
    """A silo's part of a job: holds the client, answers the coordinator's messages, keeps its state on disk.

    Parameters
    ----------
    run_id : str
    hyper : dict
        Fields of `Hyper`.
    preflight : {"no", "first", "only"}
        Whether the columns of all silos are compared first; "only" announces nothing else, and is held to it.
    random_state : int, optional
        The coordinator's, of which the seed in `hyper` was made; for the silo's model to tell.
    """

    def __init__(self, run_id: str, hyper: dict[str, Any], preflight: str = "no", random_state: int | None = None):
        super().__init__()
        if not (isinstance(run_id, str) and RUN.fullmatch(run_id)):  # it names a folder here
            raise RefusedError(f"{run_id!r} is no name of a run")
        self.run_id, self.hyper, self.preflight, self.random_state = run_id, Hyper(**hyper), preflight, random_state
        self.client: ClientState | None = None
        self.data = ""  # fingerprint of the client's rows and their identifiers
        self.admitted = False
        self.finished: ClientState | None = None
        self.notes: list[str] = []
        self.began = time.monotonic()
        self.round_no = 0  # the newest round a message was about

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Called by FLARE at the turns of a job."""
        if event_type == EventType.START_RUN:
            _settle()

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Answer one message; an error leaves the silo as the name of its kind only."""
        kit = Path(fl_ctx.get_engine().get_workspace().get_root_dir())
        phase, round_no = "", 0
        try:
            message = _opened(shareable, Downlink, self.run_id, None, None)
            phase, round_no = message.phase, message.round_no
            uplink = self.answer(message, kit)
        except Exception as error:
            self.log_exception(fl_ctx, f"{type(error).__name__}: {error}")
            with contextlib.suppress(OSError):  # the disk may be full
                _append(kit / TROUBLE, {"run": self.run_id, "phase": phase, "round": round_no, "why": str(error)})
            uplink = Uplink(error=type(error).__name__)
        return _envelope(self.run_id, uplink, phase, round_no)

    def answer(self, message: Downlink, kit: Path) -> Uplink:
        """Check a message, take the step it asks for, and write the new state down before answering."""
        folder, site = kit / STATES / self.run_id, Site.read(kit)
        if message.phase == "end":
            check_downlink(message, 0, self.hyper.n_clusters)
            if (folder / RESULT).exists():  # else this silo was not there, or has lost its kit
                write_json(folder / ENDED, {"converged": message.converged})
            return Uplink()
        if not self.admitted:
            self._admit(site, kit, folder)
            self.admitted = True
        if message.phase in ("survey", "verdict"):
            return self._compare_columns(message, site, kit, folder)
        if self.preflight == "only":
            raise RefusedError(f"{message.phase} is no part of a comparison of columns, which was announced")
        if self.client is None:
            self.client = self._open(site, kit, folder)
        width = (self.client.X if message.phase == "rescale" else self.client.rows).shape[1]
        check_downlink(message, width, self.hyper.n_clusters)
        if message.phase == "round" and message.trial is None:
            if message.round_no < self.round_no:
                raise RefusedError(f"a message of round {message.round_no} came after one of round {self.round_no}")
            self.round_no = message.round_no
        client = self.client if message.trial is not None else self._at(message, self.client, folder)
        with one_thread("blas"), on_cores(effective_n_jobs(-1)), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            if message.phase in ("hello", "prepare"):
                client, uplink = client_reply(client, message, self.hyper)
            else:
                with one_thread("openmp"):
                    client, uplink = client_reply(client, message, self.hyper)
        self.notes += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
        if message.trial is not None:
            pass  # nothing of a trial is kept: one that is cut short begins anew
        elif message.phase == "prepare" and client.W is None:
            write_client(folder / _state_name(0), client)
        elif message.phase == "round":
            write_client(folder / _state_name(message.round_no), client)
            keep = {_state_name(message.last_round), _state_name(message.round_no)}
            for old in folder.glob("round-*"):
                if old.name not in keep:
                    old.unlink()
        elif message.phase == "number":
            settings = {name: value for name, value in asdict(self.hyper).items() if name != "seed"}
            about = {
                "run": self.run_id,
                "data": self.data,
                "settings": settings | {"random_state": self.random_state},
                "notes": self.notes,
                "seconds": time.monotonic() - self.began,
            }
            write_site_result(folder / RESULT, client, about)
        elif message.phase in ("finish", "gather"):
            self.finished = client
        self.client = client
        return uplink

    def _admit(self, site: Site, kit: Path, folder: Path) -> None:
        """Take a job in, if the limits of this silo allow it, and let its settings be shown, before it is answered."""
        new, now = not folder.is_dir(), time.time()
        lately = sum(run["time"] > now - DAY for run in _lines(kit / RUNS)) if new else 0
        site.check_run(self.hyper, lately)
        if new:
            if self.preflight != "only":  # a run takes the place of the last one; a comparison leaves it to be resumed
                for old in folder.parent.glob("*"):
                    shutil.rmtree(old, ignore_errors=True)
            folder.mkdir(parents=True, mode=0o700)
            _append(kit / RUNS, {"run": self.run_id})
        asked = jsonable({"settings": asdict(self.hyper), "preflight": self.preflight})
        if new or read_json(folder / ASKED) != asked:  # a run that is gone on with may have other settings
            (folder / SHOWN).unlink(missing_ok=True)
            write_json(folder / ASKED, asked)
        while site.shown and not (folder / SHOWN).exists() and time.time() < now + 10:
            time.sleep(0.05)

    def _open(self, site: Site, kit: Path, folder: Path) -> ClientState:
        """The silo's client: rows and identifiers are read together, and are the same in every job of a run."""
        silo = site.rows(kit)
        site.check_rows(silo.X.shape[0], self.hyper)
        self.data = fingerprint(silo.X, silo.ids)
        if not (folder / ROWS).exists():
            write_json(folder / ROWS, {"data": self.data})
        elif read_json(folder / ROWS) != {"data": self.data}:
            raise ChangedError(
                f"{site.data} is not what this run began with: its rows, their order or their identifiers have "
                "changed. Bring the old file back, or have the coordinator start afresh."
            )
        return open_client(site.client_id, silo.X, self.hyper)

    def _compare_columns(self, message: Downlink, site: Site, kit: Path, folder: Path) -> Uplink:
        """Tell what the columns are like, before the rows are checked; keep what the others have to say about them."""
        columns = site.columns()
        site.check_rows(columns.n_rows, self.hyper)
        check_downlink(message, columns.width, self.hyper.n_clusters)
        if message.phase == "survey":
            salt = (kit / SALT).read_text(encoding="ascii").strip()
            return survey(columns, f"{salt} {self.run_id}")  # so that the hashes of two runs cannot be linked
        assert message.findings is not None
        findings = from_verdict(message.findings, site.client_id)
        said = {
            severity: explain(findings, site.client_id, {site.client_id: columns}, severity)
            for severity in (ERROR, NOTE)
        }
        write_json(folder / PREFLIGHT, said)
        return Uplink()

    def _at(self, message: Downlink, client: ClientState, folder: Path) -> ClientState:
        """The client at the round the message goes on from."""
        if message.phase == "prepare" and client.F is None:
            states = sorted(folder.glob("round-*.safetensors"))
            return read_client(states[-1], client) if states else client
        turned = client.model is not None  # by an earlier finish
        if message.phase in ("round", "finish") and (client.round_no != message.last_round or turned):
            client = read_client(folder / _state_name(message.last_round), client)
        if message.phase in ("gather", "number") and self.finished is not None:
            client = self.finished  # the order is that of the finish, also when it is told twice
        return client


def _state_name(round_no: int) -> str:
    return f"round-{round_no:05d}.safetensors"


def _append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line to a file of JSON lines, with the time."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as stream:
        stream.write(json.dumps({"time": time.time(), **line}) + "\n")


def _lines(path: Path) -> list[dict[str, Any]]:
    """Undo `_append`."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise FileError(f"{path} is damaged: {error}") from None


@dataclass(frozen=True)
class SiteResult:
    """What a silo comes to: its own model and labels."""

    model: ClientModel
    labels: Array
    notes: tuple[str, ...]
    data: str  # fingerprint of the rows and their identifiers
    round_no: int
    settings: dict[str, Any]  # of the run: parameters of FMTC
    seconds: float

    def check(self, silo: Silo, file: str) -> None:
        """Refuse rows that the labels were not computed from: other rows, identifiers, or another order of them."""
        if fingerprint(silo.X, silo.ids) != self.data:
            raise ChangedError(
                f"{file} is not what these labels were computed from: its rows, their order or their identifiers have "
                "changed since. Nothing is written."
            )


def read_result(path: Path) -> tuple[Array, dict[str, Any]]:
    """Consensus (d x k x m) and description of `write_result`."""
    arrays, about = read_tensors(path)
    check_schema(path, about, "fmtc consensus", RESULT_FORMAT)
    return arrays["consensus"], about


def write_site_result(path: Path, client: ClientState, about: Mapping[str, Any]) -> None:
    """Keep a silo's model and labels in its own folder; `about` has the other fields of `SiteResult`, and the run."""
    model = client.model
    assert model is not None and client.labels is not None
    arrays = {name: np.asarray(value) for name, value in pack(model).items()}
    always = {"kind": "fmtc silo result", "schema": RESULT_FORMAT, "client_id": client.client_id}
    write_tensors(path, arrays | {"labels": client.labels}, {**always, "round_no": client.round_no, **about})


def read_site_result(path: Path) -> SiteResult:
    """Undo `write_site_result`."""
    arrays, about = read_tensors(path)
    check_schema(path, about, "fmtc silo result", RESULT_FORMAT)
    try:
        labels = arrays.pop("labels")
        model = replace(unpack(ClientModel, {"mean": None, **arrays}), spread=arrays["spread"].item())
        facts = {name: about[name] for name in ("data", "round_no", "settings", "seconds")}
        return SiteResult(model, labels, tuple(about["notes"]), **facts)
    except (KeyError, TypeError) as error:
        raise FileError(f"{path} is damaged: {error}") from None


__all__ = ["FlareTransport", "FmtcController", "FmtcExecutor", "Site", "SiteResult"]
