"""A record of everything that left a client: append-only lines, each with the hash of the one before."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..artifacts.files import check_form, read_file, write_file
from ..artifacts.lines import last_of, put
from ..errors import FileError

START = "0" * 64  # the hash before the first line
NO_LINE = {"number": 0, "hash": START}
LEDGER = "outbox.jsonl"  # file of a client's kit, or of a run; beside it `head_of`

RELEASE, REPLAY, FAILURE = "release", "replay", "failure"
_FIELD = {"field": str, "shape": [int], "type": str, "bytes": int, "sha256": str}
_LINE = {
    "number": int, "time": str, "client": str, "run": str, "phase": str, "round": int, "turn": int, "asked": str,
    "kind": str, "fields": [_FIELD], "before": str, "hash": str,
}  # fmt: skip


def _chained(line: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """A line with its number, the time and the hashes, behind the last one there was."""
    moment = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    whole = {"number": last["number"] + 1, "time": moment, **line, "before": last["hash"]}
    return whole | {"hash": hash_of(whole)}


def head_of(path: Path) -> Path:
    """The file beside a ledger with number and hash of the last line, so that a line missing at the end shows."""
    return path.with_suffix(".head")


def hash_of(line: Mapping[str, Any]) -> str:
    """Hash of a line and, through ``before``, of all lines before it."""
    content = {name: value for name, value in line.items() if name != "hash"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class MemoryLedger:
    """A ledger that lives as long as the process: of clients in one process.

    Parameters
    ----------
    lines : iterable of dict, optional
        Lines that were written before.
    """

    def __init__(self, lines: Iterable[dict[str, Any]] = ()) -> None:
        self._lines: list[dict[str, Any]] = list(lines)

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line."""
        self._lines.append(_chained(line, self._lines[-1] if self._lines else NO_LINE))

    def lines(self) -> list[dict[str, Any]]:
        """All lines so far."""
        return list(self._lines)

    def write(self, path: Path) -> None:
        """Keep the lines in a file that `verify` reads."""
        lines = self.lines()
        write_lines(path, lines)
        _write_head(path, lines[-1] if lines else NO_LINE)


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
        with last_of(self.path) as (handle, text):
            last = _line_in(self.path, text, "the last line") if text else NO_LINE
            head = _read_head(self.path)
            whole = _chained(line, head if head is not None and head["number"] >= last["number"] else last)
            put(handle, whole)
            os.fsync(handle)
            _write_head(self.path, whole)

    def lines(self) -> list[dict[str, Any]]:
        """All lines so far."""
        return read_lines(self.path)


Ledger = MemoryLedger | FileLedger  # a line that was appended is there for good before anything is sent


def _write_head(path: Path, last: Mapping[str, Any]) -> None:
    words = json.dumps({"number": last["number"], "hash": last["hash"]}) + "\n"
    write_file(head_of(path), words.encode(), secret=True)


def _read_head(path: Path) -> dict[str, Any] | None:
    """Number and hash of the last line; None where the file is missing or damaged."""
    try:
        head: dict[str, Any] = json.loads(head_of(path).read_text(encoding="utf-8"))
        check_form(head_of(path), head, {"number": int, "hash": str})
    except (OSError, ValueError):
        return None
    return head


def _line_in(path: Path, text: bytes, where: str) -> dict[str, Any]:
    """A line of a ledger, or a `FileError`."""
    try:
        line: dict[str, Any] = json.loads(text)
    except ValueError:
        raise FileError(f"{path} is damaged: {where} is not JSON") from None
    check_form(path, line, _LINE, where)
    return line


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Lines, of one ledger or several, in a file that `read_lines` reads."""
    write_file(path, "".join(json.dumps(line) + "\n" for line in lines).encode(), secret=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a ledger, without checking the chain; `FileError` where one is no line of a ledger."""
    return [_line_in(path, text, f"line {place}") for place, text in enumerate(_texts(path), start=1)]


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
            line = _line_in(path, text, f"line {place}")
        except FileError:
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
    """What left clients in one field of one phase, or came to the server, over all rounds."""

    phase: str
    field: str
    shape: tuple[int, ...]  # of the last one
    times: int
    bytes: int

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> Total:
        """Undo `asdict` and JSON."""
        return cls(**{**line, "shape": tuple(line["shape"])})


Totals = dict[tuple[str, str], Total]  # by phase and field


def add(found: Totals, more: Total) -> None:
    """Count what left in one field once more, or came."""
    key = more.phase, more.field
    before = found.get(key, replace(more, times=0, bytes=0))
    found[key] = replace(more, times=before.times + more.times, bytes=before.bytes + more.bytes)


def totals(lines: Iterable[Mapping[str, Any]]) -> list[Total]:
    """What left, added up by phase and field, in the order in which it left first. Replays count: they left, too."""
    found: Totals = {}
    for line in lines:
        for entry in line["fields"]:
            add(found, Total(line["phase"], entry["field"], tuple(entry["shape"]), 1, entry["bytes"]))
    return list(found.values())
