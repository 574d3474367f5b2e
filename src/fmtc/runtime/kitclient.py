"""A client that lives in a folder: its rows, its state, its ledger and its person's limits. Knows no transport.

The folder is a client's kit. Whatever carries messages makes a `KitClient` for a run and hands it each message; the
answer, also the name of an error, has passed the outbox and stands in the kit's ledger.
"""

from __future__ import annotations

import contextlib
import json
import os
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
    check_schema,
    fingerprint,
    jsonable,
    read_file,
    read_json,
    read_json_lines,
    read_tensors,
    write_json,
    write_tensors,
)
from ..artifacts.states import flatten, unflatten
from ..errors import ChangedError, DataError, FileError, LimitError, RefusedError, TrustError
from ..linalg.arrays import HOST
from ..linalg.sparse import on_cores
from ..linalg.threads import one_thread
from ..privacy.budget import BUDGET, Budget
from ..privacy.floor import Floor
from ..privacy.identity import KitIdentity
from ..privacy.keys import Keys, Rosters
from ..privacy.ledger import LEDGER, FileLedger
from ..privacy.outbox import Outbox, Payloads
from ..privacy.rules import Policy, Rules
from ..protocol.base import Failure, Message
from ..protocol.method import ClientResult, method_of, view_method
from ..tables.reading import Reading
from .clock import SYSTEM, Clock
from .node import ClientNode, FolderStore

if TYPE_CHECKING:
    from ..tables import Columns, Silo

RUN = re.compile("[A-Za-z0-9_-]{1,64}")  # names of runs, which come from the coordinator
SOURCE = "fmtc.json"  # in the `local` folder of a kit: which file holds the rows, and how to read it
SALT = "salt"  # file of a kit: the clients' common secret, which the coordinator does not have
STATES = "fmtc"  # folder of a kit with one folder per run
RESULT = "result.safetensors"  # in a client's folder of a run: its model and labels
ASKED = "asked.json"  # in a client's folder of a run: its settings, as the coordinator has sent them
SHOWN = "shown"  # beside it: `fmtc join` has shown them
ROWS = "rows.json"  # in a client's folder of a run: fingerprint of the rows, and their identifiers, that it began with
PREFLIGHT = "preflight.json"  # in a client's folder of a run: how its columns differ from the others'
ENDED = "ended.json"  # in a client's folder of a run: it is over, and how it ended
HELD = "held"  # folder in a client's folder of a run: answers that wait for a person
SENT = "sent"  # folder in a client's folder of a run: answers as they left
ROSTERS = "rosters.jsonl"  # in a kit: whom this client has been summed with, over which rows
RUNS = "runs.jsonl"  # in a kit: the runs it has taken part in
TROUBLE = "trouble.jsonl"  # in a kit: errors in full, which do not leave it
DAY = 24 * 3600.0
RESULT_FORMAT = 2


# ------------------------------------------------------------------------------------------------- what a person said


@dataclass(frozen=True)
class ClientSource:
    """Where a client's rows are, and what its person allows. Never leaves the client."""

    client_id: str
    data: str
    reading: Reading = field(default_factory=Reading)  # how the rows are read
    salt: str | None = None  # for the hashes of words; None: that of the kit
    max_k: int | None = None  # clusters that a run may ask for
    min_rows: int = 0  # rows for each cluster, on average, that a run must leave
    max_runs: int | None = None  # runs within 24 hours
    shown: bool = False  # a person is shown the settings of a run before anything is answered
    hold: bool = False  # a person is asked before the first answer of each kind leaves
    keep_sent: bool = False  # keep all answers as they left, not only those that may be asked for again
    floor: str | None = None  # the least privacy that a run must have, as `fmtc.privacy.floor.Floor` reads it
    sites: dict[str, str] | None = None  # names in certificates of clients that have another name in a run
    epsilon_budget: float | None = None  # most that private runs may ever spend of the rows' privacy; None: no limit
    accept_difference: bool = False  # sums over other clients than before may show one of them: a person has said yes
    n_clusters: int | None = None  # of this client, where it may have fewer than there are concepts; None: as asked
    rules: dict[str, Any] | None = None  # about answers, as `Policy.to_dict` has it; None: no centre of one row

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

    def check_run(self, settings: Any, recent: int, *, comparing: bool = False) -> None:
        """Refuse a run that the person does not allow; `recent` runs came within the last 24 hours.

        A comparison of columns of a client that asks for privacy tells names and types only, whatever the run is.
        """
        if self.max_k is not None and settings.n_clusters > self.max_k:
            raise LimitError(f"the run asks for {settings.n_clusters} clusters; this client allows {self.max_k}")
        if self.n_clusters is not None and not comparing:
            if self.n_clusters > settings.n_clusters:
                raise LimitError(
                    f"this client has {self.n_clusters} clusters, and the run has {settings.n_clusters} concepts; the "
                    f"coordinator can allow it with --concepts {self.n_clusters}"
                )
            if getattr(settings, "own_clusters", None) is None and self.n_clusters != settings.n_clusters:
                raise LimitError(
                    f"this client has {self.n_clusters} clusters, and the run gives every client "
                    f"{settings.n_clusters}; the coordinator can allow it with --concepts {settings.n_clusters}"
                )
        if not comparing:
            Floor.read(self.floor).check(settings)
        if self.max_runs is not None and recent >= self.max_runs:
            raise LimitError(f"it would be run {recent + 1} within 24 hours; this client allows {self.max_runs}")

    def check_rows(self, n_rows: int, settings: Any) -> None:
        """Refuse clusters of so few rows that their centres tell of single ones."""
        asked = getattr(settings, "clusters_of", lambda _: settings.n_clusters)(self.client_id)
        if n_rows < self.min_rows * asked:
            raise LimitError(
                f"the run asks for {asked} clusters of {n_rows} rows; this client asks for at least "
                f"{self.min_rows} rows per cluster"
            )

    def reading_in(self, kit: Path) -> Reading:
        """How the rows are read, with the salt of the kit where rows are texts."""
        if self.reading.text_column is None:
            return self.reading
        return replace(self.reading, salt=self.salt or read_salt(kit / SALT))

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

    Parameters
    ----------
    kit : Path
    run_id : str
    method : str
        Name of a method of `METHODS`.
    settings : mapping
        Of the method, as JSON has them.
    preflight : {"no", "first", "only"}
        What the run announces: "only" compares columns, and is held to it.
    random_state : int, optional
        The coordinator's, which the seed in `settings` was made from; the client's model names it.
    clock : Clock
    """

    def __init__(
        self,
        kit: Path,
        run_id: str,
        method: str,
        settings: Mapping[str, Any],
        preflight: str = "no",
        random_state: int | None = None,
        clock: Clock = SYSTEM,
    ):
        if not (isinstance(run_id, str) and RUN.fullmatch(run_id)):  # it names a folder here
            raise RefusedError(f"{run_id!r} is not the name of a run")
        self.kit, self.run_id, self.clock = kit, run_id, clock
        self.preflight, self.random_state = preflight, random_state
        self.method = method_of(method)
        self.settings = self.method.read_settings(settings)
        self.folder, self.source = kit / STATES / run_id, ClientSource.read(kit)
        own, may = self.source.n_clusters, getattr(self.settings, "own_clusters", None) is not None
        if own is not None and may and own <= self.settings.n_clusters:
            self.settings = self.settings.with_clusters(self.source.client_id, own)
        self.notes: list[str] = []
        self.began = clock.monotonic()
        self.data = ""  # fingerprint of the client's rows and their identifiers
        self.admitted = False
        self.keys = self._make_keys() if self.method.masks else None
        outbox = Outbox(
            FileLedger(kit / LEDGER),
            self.source.client_id,
            run_id,
            Payloads(self.folder / SENT, keep=self.source.keep_sent),
            self._ask_person if self.source.hold else None,
            keys=self.keys,
            charge=self._charge,
            rules=None if self.source.rules is None else Rules(Policy.from_dict(self.source.rules)),
            ask=self._ask_person if self.source.shown else None,
        )
        subjects: dict[str, Callable[[], Any]] = {
            "client": self._open,
            "table": partial(_Table, self),
            "run": partial(_Run, self),
        }
        if self.keys is not None:
            subjects["keys"] = lambda: self.keys
        store = FolderStore(self.folder, self.method)
        self.node = ClientNode(self.method, self.settings, outbox, subjects, store, self._keep_result)

    def _make_keys(self) -> Keys:
        """Keys of the client for this run; whom it trusts, its kit says."""
        source, method = self.source, self.method.name
        rosters = Rosters(self.kit / ROSTERS, self.run_id, self._fingerprint, source.accept_difference)
        identity = KitIdentity(self.kit)
        floor = Floor.read(source.floor)
        return Keys(identity, self.run_id, method, source.client_id, self.folder, source.sites, rosters, floor)

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
                    return self.node.answer(message, quiet=lambda: one_thread("openmp"))
                finally:
                    self.notes += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
        except Exception as error:
            return self.fail(message, error)

    def fail(self, message: Message | None, error: Exception) -> Failure:
        """Keep an error in the kit; the kind of it leaves."""
        place = message or Message("", None)
        with contextlib.suppress(OSError):  # the disk may be full
            line = {"run": self.run_id, "phase": place.phase, "round": place.round_no, "why": str(error)}
            line["kind"] = type(error).__name__
            append_line(self.kit / TROUBLE, line, self.clock)
        return self.node.outbox.fail(message, error)

    def _check_promise(self) -> None:
        """Refuse a run whose settings promise privacy while its method would send answers in the clear."""
        privacy = getattr(self.settings, "privacy", None)
        if privacy is not None and self.method is not view_method(self.settings.view, privacy):
            raise TrustError(
                f"the run says that it is private, but its method {self.method.name!r} keeps no such promise; nothing "
                "was sent."
            )

    def _admit(self, message: Message) -> None:
        """Accept the run, if the limits of this client allow it, and let its settings be shown, before any answer."""
        phase = self.method.phase(message.phase)
        if phase.subject == "run":
            return
        if self.preflight == "only" and phase.subject == "client":
            raise RefusedError(f"{phase.name} is not part of a comparison of columns, which was announced")
        if self.admitted:
            return
        self._check_promise()
        new, now = not self.folder.is_dir(), self.clock.time()
        recent = sum(line["time"] > now - DAY for line in read_lines(self.kit / RUNS)) if new else 0
        self.source.check_run(self.settings, recent, comparing=self.preflight == "only")
        if new:
            if (
                self.preflight != "only" and self.method.keeps
            ):  # a run replaces the last one; a comparison leaves it to be resumed
                for old in self.folder.parent.glob("*"):
                    if not finish_alone(old):
                        shutil.rmtree(old, ignore_errors=True)
            self.folder.mkdir(parents=True, mode=0o700)
            append_line(self.kit / RUNS, {"run": self.run_id}, self.clock)
        asked = jsonable({"method": self.method.name, "settings": asdict(self.settings), "preflight": self.preflight})
        if new or read_json(self.folder / ASKED) != asked:  # a resumed run may have other settings
            (self.folder / SHOWN).unlink(missing_ok=True)
            write_json(self.folder / ASKED, asked)
        while self.source.shown and not (self.folder / SHOWN).exists() and self.clock.time() < now + 10:
            self.clock.sleep(0.05)
        self.admitted = True

    def _open(self) -> Any:
        """The client: rows and identifiers are read together, and must be the same in every attempt of a run."""
        silo = self.source.rows(self.kit)
        self.source.check_rows(silo.X.shape[0], self.settings)
        own, asked = () if silo.schema is None else silo.schema.levels, getattr(self.settings, "levels", None)
        if asked is not None and (any(own) or any(asked)) and tuple(own) != tuple(asked):
            raise DataError(
                "the run is of other categories than this client's table: all clients and the coordinator need one "
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
        folder = self.folder / HELD
        folder.mkdir(exist_ok=True, mode=0o700)
        name = str(shown["phase"])
        write_json(folder / f"{name}.json", shown)
        try:
            while True:
                for word in ("yes", "no"):
                    if (folder / f"{name}.{word}").exists():
                        return word == "yes"
                self.clock.sleep(0.1)
        finally:
            for path in folder.glob(f"{name}.*"):
                path.unlink(missing_ok=True)

    def _keep_result(self, client: Any) -> None:
        """Write model and labels to the client's folder, before the server learns that they are there."""
        if not self.method.keeps:
            return
        settings = {name: value for name, value in asdict(self.settings).items() if name not in ("seed", "levels")}
        about = {
            "run": self.run_id,
            "data": self.data,
            "settings": settings | {"random_state": self.random_state},
            "notes": self.notes,
            "roster": "" if self.keys is None else self.keys.code,
            "seconds": self.clock.monotonic() - self.began,
        }
        write_client_result(self.folder / RESULT, client, self.method.name, about)


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
        write_json(self.client.folder / PREFLIGHT, words)


class _Run:
    """Replies about the run itself."""

    def __init__(self, client: KitClient):
        self.client = client

    def sizes(self, settings: Any) -> dict[str, int]:
        """Nothing of the sizes matters."""
        return {}

    def end(self, converged: bool, told: Mapping[str, Any] | None = None, held: bool = False) -> None:
        """Note that the run is over, and what was told of the client; that is, confirm to have labels."""
        if (self.client.folder / RESULT).exists():
            more = ({"told": told} if told else {}) | ({"held": True} if held else {})
            write_json(self.client.folder / ENDED, {"converged": converged} | more)
        elif self.client.method.keeps:  # it was away, or has lost its kit
            raise RefusedError("the run is over, and this silo has no labels of it yet")


def lacks_last_word(folder: Path) -> bool:
    """Whether a client has its labels of a run, and was not told yet that the run is over."""
    return (folder / RESULT).exists() and not (folder / ENDED).exists()


def finish_alone(folder: Path) -> bool:
    """End a run of which only the coordinator's last word is missing; False where more is missing, or nothing.

    The last word would have added whether the run converged, and how similar the clusters of other clients are.
    """
    if not lacks_last_word(folder):
        return False
    write_json(folder / ENDED, {"converged": None, "alone": True})
    return True


# --------------------------------------------------------------------------------------------------------- lines, files

END_FORM = {  # of ENDED, as `check_form` has it
    "converged": (bool, None), "alone?": bool, "held?": bool, "told?": {"cosine": [(float, None)], "flags": [str]},
}  # fmt: skip
WORDS_FORM = {"error": [str], "note": [str]}  # of PREFLIGHT


def read_asked(path: Path) -> dict[str, Any]:
    """What a run asks for: a file `ASKED`."""
    document: dict[str, Any] = read_json(path, {"method": str, "settings": dict, "preflight": str})
    read_file(path, lambda _: method_of(document["method"]).read_settings(document["settings"]))
    return document


def append_line(path: Path, line: Mapping[str, Any], clock: Clock = SYSTEM) -> None:
    """Add a line to a file of JSON lines, with the time."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as stream:
        stream.write(json.dumps({"time": clock.time(), **line}) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Undo `append_line`."""
    return read_json_lines(path, {"time": float})


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
    roster: str = ""  # code of the roster, where only sums were seen

    def check(self, silo: Silo, file: str) -> None:
        """Refuse rows that the labels were not computed from: other rows, identifiers, or another order of them."""
        if fingerprint(silo.X, silo.ids) != self.data:
            raise ChangedError(
                f"{file} is not what these labels were computed from: its rows, their order or their identifiers have "
                "changed since. Nothing is written."
            )


def write_client_result(path: Path, client: Any, method: str, about: Mapping[str, Any]) -> None:
    """Keep a client's model and labels; `about` has the other fields of `KeptResult`."""
    result = method_of(method).result(client)
    arrays, rest = flatten(result.model)
    always = {
        "kind": "fmtc client result", "schema": RESULT_FORMAT, "method": method, "client_id": client.client_id,
        "model": rest, "type": type(result.model).__name__, "round_no": client.round_no, "choice": result.choice,
    }  # fmt: skip
    write_tensors(path, {f"model/{name}": array for name, array in arrays.items()} | {"labels": result.labels},
                  {**always, **about})  # fmt: skip


def read_client_result(path: Path) -> KeptResult:
    """Undo `write_client_result`."""
    arrays, about = read_tensors(path)
    check_schema(path, about, "fmtc client result", RESULT_FORMAT)
    try:
        kinds = method_of(about["method"]).model_types
        kind = {kind.__name__: kind for kind in kinds}[about["type"]]
        inner = {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith("model/")}
        model = unflatten(kind, inner, about["model"])
        facts = {name: about[name] for name in ("data", "round_no", "settings", "seconds", "run")}
        result = ClientResult(model, arrays["labels"], choice=about.get("choice"))
        return KeptResult(result, tuple(about["notes"]), **facts, roster=about.get("roster", ""))
    except (KeyError, TypeError) as error:
        raise FileError(f"{path} is damaged: {error}") from None


__all__ = ["ClientSource", "KeptResult", "KitClient", "finish_alone", "lacks_last_word", "read_client_result"]
