"""Cells of a comparison: run those that are missing, each in a process of its own, and keep every one as a line."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

import fmtc
from fmtc.artifacts.files import COUNT, check_form, jsonable
from fmtc.artifacts.runs import versions
from fmtc.errors import FileError

from . import protocol
from .methods import TRIALS, method_of

# What a reader relies on in a line of cells.jsonl, in the language of `check_form`: of any cell, of one that succeeded.
STORED = {
    "key": str, "dataset": str, "method": str, "trial": str, "split": COUNT, "seed": COUNT, "status": str,
    "error?": (str, None), "seconds": float, "code": str, "versions": {"extras?": {str: (str, None)}}, "machine": str,
}  # fmt: skip
SCORED = {"mean": dict.fromkeys(("acc", "nmi", "ri", "ari", "ri_one_cluster"), float)}
DONE = {
    "train": SCORED, "test": SCORED | {"acc_frozen": float}, "vote": SCORED, "seconds_fit": float,
    "peak_memory": float, "bytes_up": float, "bytes_down": float, "rounds": float, "history?": [[(float, None)]],
}  # fmt: skip
DECIDING = tuple(  # in the digest
    ("compare", name) for name in ("federations.py", "federations.toml", "methods.py", "protocol.py")
)
PROTOCOL = 2  # raise it when a stored cell no longer means what a new one would


@dataclass(frozen=True)
class Cell:
    """One fit and its scores: a data set, a method, a setting, a split and a seed."""

    dataset: str  # as `protocol.dataset` reads it
    method: str  # as `method_of` reads it
    trial: str = "default"  # or the number of an oracle's trial
    split: int = 0
    seed: int = 0

    @property
    def setting(self) -> Mapping[str, Any]:
        """Parameters of the method."""
        return {} if self.trial == "default" else method_of(self.method).grid[int(self.trial)]

    @property
    def key(self) -> str:
        """What a stored line is known by: the cell itself, what its setting means, and the protocol."""
        return json.dumps([PROTOCOL, self.dataset, self.method, jsonable(self.setting), self.split, self.seed])

    def __str__(self) -> str:
        return f"{self.dataset} / {self.method} / {self.trial} / split {self.split} / seed {self.seed}"


def cells(
    datasets: Iterable[str],
    methods: Iterable[str],
    *,
    splits: Iterable[int] = (0,),
    seeds: Iterable[int] = (0,),
    trials: int = 0,
) -> list[Cell]:
    """All cells of a comparison, data set by data set.

    `trials` settings for the oracle besides the default one: the first draws of each method.
    """
    if not 0 <= trials <= TRIALS:
        raise ValueError(f"trials must lie between 0 and {TRIALS}, got {trials}")
    methods, seeds = list(methods), list(seeds)
    named = ["default", *map(str, range(trials))]
    return [
        Cell(data, method, trial, split, seed)
        for data in datasets
        for split in splits
        for method in methods
        for trial in named
        for seed in seeds
    ]


# -------------------------------------------------------------------------------------------------------- storage


class Store:
    """Lines of JSON in one file, one for each cell that was run; the last line of a cell counts."""

    def __init__(self, path: Path):
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        self.end = 0  # bytes of whole lines
        if path.exists():
            self._read()

    def _read(self) -> None:
        lines = self.path.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            place = f"line {number} of {self.path}"
            try:
                row = json.loads(line if line.endswith(b"\n") else b"")
            except (ValueError, RecursionError):
                if number < len(lines):
                    raise FileError(f"{place} is not a stored cell; repair or remove the file") from None
                return  # cut off in the middle: the next one takes its place
            check_form(place, row, STORED)
            if row["status"] == "ok":
                check_form(place, row, DONE)
            self.rows[row["key"]] = row
            self.end += len(line)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row for good."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(jsonable(row), ensure_ascii=False).encode() + b"\n"
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.truncate(self.end)
            file.seek(self.end)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.end += len(line)
        self.rows[row["key"]] = row

    def current(self) -> list[dict[str, Any]]:
        """Rows whose method and trial still mean what they meant when they were run."""
        return [row for row in self.rows.values() if _is_current(row)]


def _is_current(row: Mapping[str, Any]) -> bool:
    try:
        method_of(row["method"])
        return Cell(row["dataset"], row["method"], row["trial"], row["split"], row["seed"]).key == row["key"]
    except (ValueError, IndexError):  # no such method or trial any more
        return False


# -------------------------------------------------------------------------------------------------------- running


@dataclass
class _Worker:
    """A process that runs one cell."""

    cell: Cell
    process: Any
    answer: Connection
    deadline: float
    started: float = field(default_factory=time.monotonic)


def run_cells(
    wanted: Sequence[Cell],
    store: Store,
    *,
    jobs: int = 1,
    time_limit: float = 600.0,
    retry: bool = False,
    progress: Callable[[Cell, dict[str, Any] | None], None] = lambda cell, row: None,
) -> list[dict[str, Any]]:
    """Rows of all cells, in their order; only those not stored yet are run, each in a process of its own.

    Parameters
    ----------
    wanted : sequence of Cell
    store : Store
    jobs : int
        Processes at a time.
    time_limit : float
        Seconds after which a cell is given up; its row says so.
    retry : bool
        Run failed cells again.
    progress : callable
        Called with a cell and None when it starts, with its row when it is done.

    Returns
    -------
    list of dict
        A cell that failed is a row too: its ``status`` is not ``"ok"`` and its ``error`` says why.
    """
    known = {key for key, row in store.rows.items() if row["status"] == "ok" or not retry}
    todo = _with_data([cell for cell in wanted if cell.key not in known])
    start_method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(start_method)
    if start_method == "forkserver":
        context.set_forkserver_preload([f"{__package__}.protocol"])
    busy: list[_Worker] = []
    try:
        for cell, halves in todo:
            while len(busy) >= jobs:
                _collect(busy, store, progress)
            progress(cell, None)
            if isinstance(halves, Exception):
                _keep(store, cell, {"status": "failed", "error": _sentence(halves)}, 0.0, progress)
                continue
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(theirs, halves, cell), daemon=True)
            process.start()
            theirs.close()
            busy.append(_Worker(cell, process, mine, time.monotonic() + time_limit))
        while busy:
            _collect(busy, store, progress)
    finally:
        for worker in busy:
            worker.process.kill()
    return [store.rows[cell.key] for cell in wanted]


def _with_data(todo: Sequence[Cell]) -> Iterator[tuple[Cell, Any]]:
    """Each cell with its split, which is made once for all cells that stand together, or the error it made."""
    before: tuple[str, int] | None = None
    halves: Any = None
    for cell in todo:
        if (cell.dataset, cell.split) != before:
            before = (cell.dataset, cell.split)
            try:
                halves = protocol.dataset(cell.dataset).split(seed=cell.split)
            except Exception as error:  # a cell that cannot be run is a row, not the end
                halves = error
        yield cell, halves


def _work(answer: Connection, halves: Any, cell: Cell) -> None:
    """In a process of its own: one cell."""
    before = protocol.peak_memory()
    try:
        train, test = halves
        with threadpool_limits(1):
            row = protocol.evaluate(train, test, cell.method, cell.setting, cell.seed)
        row |= {"status": "ok", "error": None}
    except Exception as error:
        row = {"status": "failed", "error": _sentence(error), "traceback": traceback.format_exc()}
    answer.send(row | {"peak_memory": protocol.peak_memory() - before})
    answer.close()


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _collect(busy: list[_Worker], store: Store, progress: Callable[[Cell, dict[str, Any] | None], None]) -> None:
    """Wait for one worker or for its time to be up, and keep what came of it."""
    nearest = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
    ready = wait([worker.answer for worker in busy], timeout=nearest)
    for worker in list(busy):
        late = time.monotonic() >= worker.deadline
        if worker.answer not in ready and not late:
            continue
        seconds = time.monotonic() - worker.started
        try:
            row = worker.answer.recv() if worker.answer in ready else None
        except EOFError:
            worker.process.join()
            code = worker.process.exitcode
            row = {"status": "failed", "error": f"the process ended with exit code {code}, memory may have run out"}
        if row is None:
            row = {"status": "timeout", "error": f"not done after {seconds:.0f} s"}
            worker.process.kill()
        worker.process.join()
        worker.answer.close()
        busy.remove(worker)
        _keep(store, worker.cell, row, seconds, progress)


def _keep(
    store: Store,
    cell: Cell,
    row: Mapping[str, Any],
    seconds: float,
    progress: Callable[[Cell, dict[str, Any] | None], None],
) -> None:
    whole = {
        "key": cell.key,
        "dataset": cell.dataset,
        "method": cell.method,
        "trial": cell.trial,
        "setting": dict(cell.setting),
        "split": cell.split,
        "seed": cell.seed,
        **row,
        "seconds": seconds,
        "code": code_digest(),
        "versions": versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    store.add(whole)
    progress(cell, whole)


@cache
def code_digest() -> str:
    """Tells whether two rows were made by the same code of fmtc and of this package."""
    digest = hashlib.sha256()
    for root in (Path(fmtc.__file__).parent, Path(__file__).parents[1]):
        for path in sorted((*root.rglob("*.py"), *root.rglob("*.toml"))):
            parts = path.relative_to(root).parts
            if parts[0] not in ("audits", "cli", "compare", "report") or parts in DECIDING:
                digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
