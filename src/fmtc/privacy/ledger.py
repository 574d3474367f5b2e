"""A record of everything that left a client: append-only lines, each with the hash of the one before."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from ..artifacts.files import check_form, read_file, write_file
from ..errors import FileError

START = "0" * 64  # the hash before the first line
LEDGER = "outbox.jsonl"  # file of a client's kit, or of a run; beside it `head_of`

RELEASE, REPLAY, FAILURE = "release", "replay", "failure"
_FIELD = {"field": str, "shape": [int], "type": str, "bytes": int, "sha256": str}
_LINE = {
    "number": int, "time": str, "client": str, "run": str, "phase": str, "round": int, "turn": int, "asked": str,
    "kind": str, "fields": [_FIELD], "before": str, "hash": str,
}  # fmt: skip


class Ledger(Protocol):
    """Where lines go. A line that was appended is there for good before anything is sent."""

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line: number, time and hashes are filled in."""
        ...

    def lines(self) -> list[dict[str, Any]]:
        """All lines so far."""
        ...


def _chained(line: Mapping[str, Any], number: int, before: str, when: float) -> dict[str, Any]:
    moment = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
    whole = {"number": number, "time": moment, **line, "before": before}
    return whole | {"hash": hash_of(whole)}


def finished(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Fields of a line with their digests, also where these were being computed."""
    return [
        {name: value.result() if isinstance(value, Future) else value for name, value in entry.items()}
        for entry in entries
    ]


def head_of(path: Path) -> Path:
    """The file beside a ledger with number and hash of the last line, so that a line missing at the end shows."""
    return path.with_suffix(".head")


def hash_of(line: Mapping[str, Any]) -> str:
    """Hash of a line and, through ``before``, of all lines before it."""
    content = {name: value for name, value in line.items() if name != "hash"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class MemoryLedger:
    """A ledger that lives as long as the process: of clients in one process. Lines are chained when they are read.

    Parameters
    ----------
    lines : iterable of dict, optional
        Lines that were written before.
    """

    def __init__(self, lines: Iterable[dict[str, Any]] = ()) -> None:
        self._lines: list[dict[str, Any]] = list(lines)
        self._new: list[tuple[Mapping[str, Any], float]] = []

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line."""
        self._new.append((line, time.time()))

    def lines(self) -> list[dict[str, Any]]:
        """All lines so far."""
        new, self._new = self._new, []
        for line, when in new:
            before = self._lines[-1]["hash"] if self._lines else START
            line = {**line, "fields": finished(line["fields"])}
            self._lines.append(_chained(line, len(self._lines) + 1, before, when))
        return list(self._lines)

    def write(self, path: Path) -> None:
        """Keep the lines in a file that `verify` reads."""
        lines = self.lines()
        write_lines(path, lines)
        _write_head(path, lines[-1] if lines else {"number": 0, "hash": START})


class FileLedger:
    """A ledger in a file, which outlives the process and the run.

    Processes may take turns: a line is added under a lock, after the line that is last in the file by then.
    """

    def __init__(self, path: Path):
        self.path = path

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line and wait until the disk has it.

        Where lines are missing at the end, numbers continue from the last one there ever was: the gap stays visible.
        """
        with self._locked() as handle:
            last = _last_line(handle, self.path) or {"number": 0, "hash": START}
            head = _read_head(self.path)
            if head is not None and head["number"] >= last["number"]:
                last = head
            whole = _chained(line, last["number"] + 1, last["hash"], time.time())
            content = (json.dumps(whole) + "\n").encode()
            os.lseek(handle, 0, os.SEEK_END)
            while content:  # a disk that fills up takes a part of it, and raises an error next time
                content = content[os.write(handle, content) :]
            os.fsync(handle)
            _write_head(self.path, whole)

    def lines(self) -> list[dict[str, Any]]:
        """All lines so far."""
        return read_lines(self.path)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        import fcntl  # of POSIX, as federations are; the rest of fmtc runs without

        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def _write_head(path: Path, last: Mapping[str, Any]) -> None:
    head = head_of(path)
    write_file(head, (json.dumps({"number": last["number"], "hash": last["hash"]}) + "\n").encode())
    head.chmod(0o600)


def _read_head(path: Path) -> dict[str, Any] | None:
    """Number and hash of the last line; None where the file is missing or damaged."""
    try:
        head: dict[str, Any] = json.loads(head_of(path).read_text(encoding="utf-8"))
        check_form(head_of(path), head, {"number": int, "hash": str})
    except (OSError, ValueError):
        return None
    return head


def _last_line(handle: int, path: Path) -> dict[str, Any] | None:
    """The last whole line; one that was cut short by a crash was never sent, and is removed."""
    size = os.fstat(handle).st_size
    if not size:
        return None
    reach = min(size, 1 << 16)
    while True:
        tail = os.pread(handle, reach, size - reach)
        if tail.count(b"\n") > 1 or reach == size:
            break
        reach = min(size, 4 * reach)
    whole, _, torn = tail.rpartition(b"\n")
    if torn:
        os.ftruncate(handle, size - len(torn))
    text = whole.rpartition(b"\n")[2]
    if not text:
        return None
    try:
        line: dict[str, Any] = json.loads(text)
        check_form(path, line, _LINE)
    except ValueError as error:
        raise FileError(f"{path} is damaged: {error}") from None
    return line


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Lines, of one ledger or several, in a file that `read_lines` reads."""
    write_file(path, "".join(json.dumps(line) + "\n" for line in lines).encode())
    path.chmod(0o600)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a ledger, without checking the chain; `FileError` where one is no line of a ledger."""
    found = []
    for place, text in enumerate(_texts(path), start=1):
        try:
            line = json.loads(text)
        except ValueError:
            raise FileError(f"{path} is damaged: line {place} is not JSON") from None
        check_form(path, line, _LINE, f"line {place}")
        found.append(line)
    return found


def _texts(path: Path) -> list[bytes]:
    """Lines as they stand in the file; one that was cut short by a crash was never sent, and is left out."""
    return read_file(path, bytes).split(b"\n")[:-1] if path.exists() else []


def verify(path: Path) -> list[str]:
    """What is wrong with a ledger: lines that were changed, removed, added or put in another order.

    Parameters
    ----------
    path : Path
        The file of lines; the file with the hash of the last one lies beside it.

    Returns
    -------
    list of str
        One sentence for each fault; empty where the ledger is whole.
    """
    faults, before, expected, last = [], START, 1, 0
    hashes = {0: START}  # by number
    for place, text in enumerate(_texts(path), start=1):
        try:
            line = json.loads(text)
            check_form(path, line, _LINE, f"line {place}")
        except ValueError:
            faults.append(f"line {place} is damaged")
            before, expected = "", expected + 1
            continue
        if hash_of(line) != line["hash"] or json.dumps(line).encode() != text:
            faults.append(f"line {place} was changed")
        elif line["number"] != expected:
            faults.append(
                f"line {place} has number {line['number']} in place of {expected}: lines are missing or moved"
            )
        elif before and line["before"] != before:
            faults.append(f"line {place} does not follow the line before it: a line was changed, removed or moved")
        before, last = line["hash"], line["number"]
        expected, hashes[last] = last + 1, before
    head = _read_head(path)
    if head is None:
        if path.exists() or head_of(path).exists():
            faults.append(f"{head_of(path).name} is missing or damaged: lines at the end may be missing")
    elif head["number"] > last:
        faults.append(f"{head['number'] - last} lines are missing at the end")
    elif head["number"] < last - 1:  # one line more than the head knows of is a crash between the two
        faults.append(f"{last - head['number']} lines were added at the end")
    elif hashes.get(head["number"]) != head["hash"]:
        faults.append(f"line {head['number']} is not the one that was written")
    return faults


@dataclass(frozen=True)
class Total:
    """What left in one field of one phase."""

    phase: str
    field: str
    shape: tuple[int, ...]
    times: int
    bytes: int


def totals(lines: Iterable[Mapping[str, Any]]) -> list[Total]:
    """What left, added up by phase and field, in the order in which it left first. Replays count: they left, too."""
    found: dict[tuple[str, str], Total] = {}
    for line in lines:
        for entry in line["fields"]:
            key = line["phase"], entry["field"]
            before = found.get(key, Total(*key, tuple(entry["shape"]), 0, 0))
            found[key] = Total(*key, tuple(entry["shape"]), before.times + 1, before.bytes + entry["bytes"])
    return list(found.values())
