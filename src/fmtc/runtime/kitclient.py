"""A client that lives in a folder: its rows, its state, its ledger and its person's limits. Knows no transport.

The folder is a client's kit. Whatever carries messages makes a `KitClient` for a run and hands it each message; the
answer, also the name of an error, has passed the outbox and stands in the kit's ledger.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..artifacts.files import (
    Kind,
    fingerprint,
    read_file,
    read_json,
    read_tensors,
    well_formed,
    write_json,
    write_tensors,
)
from ..artifacts.states import flatten, unflatten
from ..errors import ChangedError, DataError, FileError, LimitError, RefusedError
from ..linalg.arrays import HOST
from ..linalg.sparse import on_cores
from ..linalg.threads import one_thread
from ..privacy.budget import BUDGET, Budget
from ..privacy.floor import Floor
from ..privacy.identity import KitIdentity
from ..privacy.keys import Keys, Rosters
from ..privacy.ledger import LEDGER, FileLedger
from ..privacy.outbox import Outbox, Payloads, placed
from ..privacy.rules import QUIET, Policy, Rules
from ..protocol.base import Failure, Message
from ..protocol.method import ClientResult, method_of
from ..tables.reading import Reading
from .clock import SYSTEM, Clock
from .events import Event, at_silo
from .node import ClientNode, FolderStore
from .spec import RunSpec

if TYPE_CHECKING:
    from ..tables import Columns, Silo

SOURCE = "fmtc.json"  # in the `local` folder of a kit: which file holds the rows, and how to read it
SALT = "salt"  # file of a kit: the clients' common secret, which the coordinator does not have
STATES = "fmtc"  # folder of a kit with one folder per run
RESULT = "result.safetensors"  # in a client's folder of a run: its model and labels
ROWS = "rows.json"  # in a client's folder of a run: fingerprint of the rows, and their identifiers, that it began with
SENT = "sent"  # folder in a client's folder of a run: answers as they left
ROSTERS = "rosters.jsonl"  # in a kit: whom this client has been summed with, over which rows
DAY = 24 * 3600.0
KEPT = Kind("fmtc client result", 2)
MODEL = "model/"  # names of arrays of the model in a result


# ------------------------------------------------------------------------------------------------- what a person said


@dataclass(frozen=True)
class ClientSource:
    """Where a client's rows are, and what its person allows. Never leaves the client."""

    client_id: str
    data: str
    reading: Reading = field(default_factory=Reading)  # how the rows are read
    max_k: int | None = None  # clusters that a run may ask for
    min_rows: int = 0  # rows for each cluster, on average, that a run must leave
    max_runs: int | None = None  # runs within 24 hours
    shown: bool = False  # a person is shown the settings of a run before anything is answered
    ask: bool = False  # a person is asked before the first answer of each kind leaves
    floor: str | None = None  # the least privacy that a run must have, as `fmtc.privacy.floor.Floor` reads it
    sites: dict[str, str] | None = None  # names in certificates of clients that have another name in a run
    epsilon_budget: float | None = None  # most that private runs may ever spend of the rows' privacy; None: no limit
    accept_difference: bool = False  # sums over other clients than before may show one of them: a person has said yes
    n_clusters: int | None = None  # of this client, where it may have fewer than there are concepts; None: as asked
    rules: dict[str, Any] | None = None  # about answers, as `Policy.from_dict` reads it; None: no centre of one row

    def write(self, kit: Path) -> None:
        """Keep it in the kit, for the processes of a run."""
        write_json(kit / "local" / SOURCE, vars(self) | {"reading": self.reading.to_dict()})

    @classmethod
    def read(cls, kit: Path) -> ClientSource:
        """Undo `write`."""
        file = kit / "local" / SOURCE
        form = {"client_id": str, "data": str, "reading": dict, "epsilon_budget?": (float, None)}
        about: dict[str, Any] = read_json(file, form)
        try:
            return cls(**about | {"reading": Reading.from_dict(about["reading"])})
        except TypeError as error:
            raise FileError(f"{file} is damaged: {error}") from None

    def with_own_clusters(self, spec: RunSpec) -> RunSpec:
        """The run with this client's own number of clusters, where the run lets each have its own."""
        own, settings = self.n_clusters, spec.settings
        if own is None or getattr(settings, "clusters_per_silo", None) is None or own > settings.n_clusters:
            return spec
        return replace(spec, settings=settings.with_clusters(self.client_id, own))

    def check_run(self, settings: Any, recent: int, *, comparing: bool = False) -> None:
        """Refuse a run that the person does not allow; `recent` runs came within the last 24 hours.

        A comparison of columns of a client that asks for privacy tells names and types only, whatever the run is.
        """
        if self.max_k is not None and settings.n_clusters > self.max_k:
            raise LimitError(f"the run asks for {settings.n_clusters} clusters; this silo allows {self.max_k}")
        if self.n_clusters is not None and not comparing:
            if self.n_clusters > settings.n_clusters:
                raise LimitError(
                    f"this silo has {self.n_clusters} clusters, and the run has {settings.n_clusters}; the "
                    f"coordinator can allow it with -k {self.n_clusters}"
                )
            if getattr(settings, "clusters_per_silo", None) is None and self.n_clusters != settings.n_clusters:
                raise LimitError(
                    f"this silo has {self.n_clusters} clusters, the run gives every silo {settings.n_clusters}; "
                    f"the coordinator can allow it with --clusters-per-silo {settings.n_clusters}"
                )
        if not comparing:
            Floor.read(self.floor).check(settings)
        if self.max_runs is not None and recent >= self.max_runs:
            raise LimitError(f"it would be run {recent + 1} within 24 hours; this silo allows {self.max_runs}")

    def check_rows(self, n_rows: int, settings: Any) -> None:
        """Refuse clusters of so few rows that their centres tell of single ones."""
        asked = getattr(settings, "clusters_of", lambda _: settings.n_clusters)(self.client_id)
        if n_rows < self.min_rows * asked:
            raise LimitError(
                f"the run asks for {asked} clusters of {n_rows} rows; this silo asks for at least "
                f"{self.min_rows} rows per cluster"
            )

    def reading_in(self, kit: Path) -> Reading:
        """How the rows are read, with the salt of the kit where rows are texts."""
        if self.reading.text_column is None:
            return self.reading
        return replace(self.reading, salt=read_salt(kit / SALT))

    def rows(self, kit: Path) -> Silo:
        """The client's table, read and checked."""
        from ..tables import read_silos

        (silo,) = read_silos([self.data], self.reading_in(kit))
        return silo

    def columns(self) -> Columns:
        """The client's table, read for a comparison with others; refuses only what cannot be read at all."""
        from ..tables import read_columns

        (columns,) = read_columns([self.data], self.reading).values()
        return columns


# ----------------------------------------------------------------------------------------------------- one run of it


class KitClient:
    """A client's part in one run: admits the run, answers its messages, keeps its state and result in the kit.

    What happens is told on the kit's channel: to the person at the client, and to processes that come later.

    Parameters
    ----------
    kit : Path
    spec : RunSpec
        A comparison of columns, where that is all it announces, is held to it.
    clock : Clock
    """

    def __init__(self, kit: Path, spec: RunSpec, clock: Clock = SYSTEM):
        self.kit, self.run_id, self.method, self.clock = kit, spec.run_id, spec.method, clock
        self.folder, self.source = kit / STATES / spec.run_id, ClientSource.read(kit)
        self.spec = self.source.with_own_clusters(spec)
        self.settings = self.spec.settings
        self.events = at_silo(kit, clock)
        self.notes: list[str] = []
        self.began = clock.monotonic()
        self.data = ""  # fingerprint of the client's rows and their identifiers
        self.admitted = False
        self.keys = self._make_keys() if self.method.masks else None
        source, ledger, sent = self.source, FileLedger(kit / LEDGER), Payloads(self.folder / SENT)
        policy = QUIET if source.rules is None else Policy.from_dict(source.rules)
        rules = Rules(policy, self._ask_person if source.shown or source.ask else None, source.ask)
        outbox = Outbox(ledger, source.client_id, spec.run_id, sent, self.keys, self._charge, rules)
        subjects: dict[str, Callable[[], Any]] = {
            "client": self._open,
            "table": partial(_Table, self),
            "run": lambda: self,
            "keys": lambda: self.keys,
        }
        store = FolderStore(self.folder, self.method)
        self.node = ClientNode(self.method, self.settings, outbox, subjects, store, self._keep_result)

    def _make_keys(self) -> Keys:
        """Keys of the client for this run; whom it trusts, its kit says."""
        source, method = self.source, self.method.name
        rosters = Rosters(self.kit / ROSTERS, self.run_id, self._fingerprint, source.accept_difference)
        identity, floor = KitIdentity(self.kit, source.sites), Floor.read(source.floor)
        return Keys(identity, self.run_id, method, source.client_id, self.folder, rosters, floor)

    def _charge(self, mu2: float, delta: float) -> None:
        """Charge the budget of the client's rows for an answer that is about to leave."""
        Budget(self.kit / BUDGET, self.source.epsilon_budget).charge(self._fingerprint(), mu2, delta)

    def _fingerprint(self) -> str:
        """Of the client's rows and their identifiers."""
        if not self.data:
            self._open()
        return self.data

    def answer(self, message: Message) -> Any:
        """The answer to a message, or a `Failure` with the kind of the error; the error itself stays in the kit."""
        from joblib import effective_n_jobs

        try:
            self._admit(message)
            with one_thread("blas"), on_cores(effective_n_jobs(-1)), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                try:
                    answer = self.node.answer(message, quiet=lambda: one_thread("openmp"))
                finally:
                    self.notes += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
            if self.method.phase(message.phase) in self.method.loops:
                self._tell("round", round=message.round_no)
            return answer
        except Exception as error:
            return self.fail(message, error)

    def fail(self, message: Message | None, error: Exception) -> Failure:
        """Keep an error in the kit; the kind of it leaves."""
        place = placed(message)
        self._tell("error", phase=place.phase, round=place.round_no, why=str(error), kind=type(error).__name__)
        return self.node.outbox.fail(message, error)

    def _tell(self, kind: str, /, **facts: Any) -> None:
        """Tell what is only news; the disk may be full."""
        with contextlib.suppress(OSError):
            self.events.tell(kind, run=self.run_id, **facts)

    def _admit(self, message: Message) -> None:
        """Accept the run, if the limits of this client allow it, and let its settings be shown, before any answer."""
        phase, comparing = self.method.phase(message.phase), self.spec.preflight == "only"
        if phase.subject == "run":
            return
        if comparing and phase.subject == "client":
            raise RefusedError(f"{phase.name} is not part of a comparison of columns, which was announced")
        if self.admitted:
            return
        self.spec.check_promise()
        new = not self.folder.is_dir()
        self.source.check_run(self.settings, self._recent_runs() if new else 0, comparing=comparing)
        if new:
            self._begin(replaces=self.method.keeps and not comparing)
        self._show()
        self.admitted = True

    def _recent_runs(self) -> int:
        """Runs of this kit within the last day."""
        now = self.clock.time()
        return sum(event["event"] == "begun" and event["time"] > now - DAY for event in self.events.all())

    def _begin(self, *, replaces: bool) -> None:
        """Make the folder of a new run, which replaces the last one; a comparison leaves that to be resumed."""
        self.events.tell("begun", run=self.run_id, replaces=replaces)
        for old in self.folder.parent.glob("*") if replaces else ():
            if not finish_alone(old, self.clock):
                shutil.rmtree(old, ignore_errors=True)
        self.folder.mkdir(parents=True, mode=0o700)

    def _show(self) -> None:
        """Say what the run asks for, unless that was shown before: a resumed run may have other settings."""
        asked, same, shown = self.spec.for_silo(), False, False
        for event in self.events.all(self.run_id):
            if event["event"] == "asked":
                shown = False
                same = all(event[name] == value for name, value in asked.items())
            elif event["event"] == "shown":
                shown = same
        if not shown:
            self._ask("asked", "shown", 10.0 if self.source.shown else 0.0, **asked)

    def _ask(self, question: str, answer: str, patience: float, /, **facts: Any) -> Event | None:
        """Tell something to the person at the client, and wait for a word about it; None where none comes."""
        heard, end = at_silo(self.kit, self.clock), self.clock.time() + patience
        self.events.tell(question, **facts)
        while self.clock.time() < end:
            for event in heard.news():
                mine = event.get("run") == self.run_id and event.get("phase") == facts.get("phase")
                if event["event"] == answer and mine:
                    return event
            self.clock.sleep(0.05)
        return None

    def _open(self) -> Any:
        """The client: rows and identifiers are read together, and must be the same in every attempt of a run."""
        silo = self.source.rows(self.kit)
        self.source.check_rows(silo.X.shape[0], self.settings)
        own, asked = () if silo.schema is None else silo.schema.levels, getattr(self.settings, "levels", None)
        if asked is not None and (any(own) or any(asked)) and tuple(own) != tuple(asked):
            raise DataError(
                "the run is of other categories than this silo's table: all silos and the coordinator need one "
                "schema (--schema); one of them makes it with `fmtc check FILES --write-schema schema.toml`"
            )
        self.data = fingerprint(silo.X, silo.ids)
        if not (self.folder / ROWS).exists():
            write_json(self.folder / ROWS, {"data": self.data})
        elif read_json(self.folder / ROWS) != {"data": self.data}:
            raise ChangedError(
                f"{self.source.data} has changed since this run began: its rows, their order or their identifiers. "
                "Bring the old file back, or have the coordinator start a new run."
            )
        return self.method.open_client(self.source.client_id, silo.X, self.settings, HOST)

    def _ask_person(self, shown: Mapping[str, Any]) -> bool:
        """Show an answer to the person at the client, and wait for yes or no."""
        said = self._ask("to leave", "decided", float("inf"), **shown)
        return said is not None and bool(said["send"])

    def _keep_result(self, client: Any) -> None:
        """Write model and labels to the client's folder, before the server learns that they are there."""
        if not self.method.keeps:
            return
        result = self.method.result(client)
        arrays, model = flatten(result.model, MODEL)
        settings = {name: value for name, value in asdict(self.settings).items() if name not in ("seed", "levels")}
        about = {
            **KEPT.head,
            "method": self.method.name,
            "client_id": client.client_id,
            "model": model,
            "type": type(result.model).__name__,
            "round_no": client.round_no,
            "choice": result.choice,
            "run": self.run_id,
            "data": self.data,
            "settings": settings | {"random_state": self.spec.random_state},
            "notes": self.notes,
            "roster": "" if self.keys is None else self.keys.code,
            "seconds": self.clock.monotonic() - self.began,
        }
        write_tensors(self.folder / RESULT, arrays | {"labels": result.labels}, about)

    # ----------------------------------------------------------------------- replies to questions about the run itself

    def sizes(self, settings: Any) -> dict[str, int]:
        """Nothing of the sizes matters."""
        return {}

    def end(self, converged: bool, told: Mapping[str, Any] | None = None, held: bool = False) -> None:
        """Note that the run is over, and what was told of the client; that is, confirm to have labels."""
        if (self.folder / RESULT).exists():
            more = ({"told": told} if told else {}) | ({"held": True} if held else {})
            self.events.tell("ended", run=self.run_id, converged=converged, **more)
        elif self.method.keeps:  # it was away, or has lost its kit
            raise RefusedError("the run is over, and this silo has no labels of it yet")


class _Table:
    """Replies about the columns of the client's file."""

    def __init__(self, client: KitClient):
        self.client = client
        self.columns = client.source.columns()

    def sizes(self, settings: Any) -> dict[str, int]:
        """The number of columns."""
        self.client.source.check_rows(self.columns.n_rows, settings)
        return {"D": self.columns.width}

    def survey(self, settings: Any) -> dict[str, Any]:
        """What the columns are like; hashes of two runs cannot be linked."""
        from ..tables.survey import survey

        salt = read_salt(self.client.kit / SALT)
        said = survey(self.columns, f"{salt} {self.client.run_id}")
        hidden = self.client.source.floor is not None or getattr(settings, "privacy", None) is not None
        return vars(said.without_numbers() if hidden else said)

    def hear(self, findings: np.ndarray, settings: Any) -> None:
        """Keep what the others have to say about the columns, in words with their own names."""
        from ..tables import explain
        from ..tables.findings import ERROR, NOTE
        from ..tables.survey import from_verdict

        cid = self.client.source.client_id
        found = from_verdict(findings, cid)
        known, wording = {cid: self.columns}, self.client.source.reading.wording
        words = {severity: explain(found, cid, known, severity, wording) for severity in (ERROR, NOTE)}
        self.client.events.tell("preflight", run=self.client.run_id, **words)


def finish_alone(folder: Path, clock: Clock = SYSTEM) -> bool:
    """End a run of which only the coordinator's last word is missing; False where more is missing, or nothing.

    The last word would have added whether the run converged, and how similar the clusters of other clients are.
    """
    events = at_silo(folder.parents[1], clock)
    if not (folder / RESULT).exists() or any(event["event"] == "ended" for event in events.all(folder.name)):
        return False
    events.tell("ended", run=folder.name, converged=None, alone=True)
    return True


# --------------------------------------------------------------------------------------------------------- lines, files


def read_salt(path: Path) -> str:
    """The secret that all silos share; raises `FileError` where it is damaged, because columns would then not match."""

    def parse(content: bytes) -> str:
        secret = content.decode("ascii").strip()
        if not re.fullmatch("[0-9a-f]{64}", secret):
            raise ValueError("it does not hold 64 hexadecimal digits")
        return secret

    return read_file(path, parse)


@dataclass(frozen=True)
class KeptResult:
    """What a client comes to, as it lies in its folder: model and labels, and what they were made from."""

    client: ClientResult
    notes: tuple[str, ...]
    data: str  # fingerprint of the rows and their identifiers
    round_no: int
    settings: dict[str, Any]  # of the run, for the model to name
    seconds: float
    run: str
    roster: str  # code of the roster, where only sums were seen

    def check(self, silo: Silo, file: str) -> None:
        """Refuse rows that the labels were not computed from: other rows, identifiers, or another order of them."""
        if fingerprint(silo.X, silo.ids) != self.data:
            raise ChangedError(
                f"{file} is not what these labels were computed from: its rows, their order or their identifiers have "
                "changed since. Nothing is written."
            )


def read_client_result(path: Path) -> KeptResult:
    """What a `KitClient` kept of a run that is over for it."""
    arrays, about = read_tensors(path, KEPT)
    with well_formed(path):
        kinds = method_of(about["method"]).model_types
        kind = {kind.__name__: kind for kind in kinds}[about["type"]]
        model = unflatten(kind, arrays, about["model"], MODEL)
        facts = {name: about[name] for name in ("data", "round_no", "settings", "seconds", "run", "roster")}
        result = ClientResult(model, arrays["labels"], choice=about["choice"])
        return KeptResult(result, tuple(about["notes"]), **facts)
