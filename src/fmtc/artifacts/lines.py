"""An append-only file of JSON lines: who adds to it, and who reads what was added. Imports nothing of fmtc.

`runtime/flare/serve.py` loads it by its path, in processes that run without fmtc.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line, whole; what a writer left behind that was killed in the middle of a line is dropped."""
    with last_of(path) as (handle, _):
        put(handle, line)


@contextmanager
def last_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The file, open for this process alone, and its last whole line; a line that was cut short is removed."""
    import fcntl  # POSIX only, as federations are; the rest of fmtc does not need it

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size, reach, tail = os.fstat(handle).st_size, 1 << 14, b""
        while tail.count(b"\n") < 2 and len(tail) < size:
            reach = min(size, 4 * reach)
            tail = os.pread(handle, reach, size - reach)
        whole, _, torn = tail.rpartition(b"\n")
        if torn:
            os.ftruncate(handle, size - len(torn))
        yield handle, whole.rpartition(b"\n")[2]
    finally:
        os.close(handle)


def put(handle: int, line: Mapping[str, Any]) -> None:
    """Write a line at the end of an open file."""
    content = json.dumps(line).encode() + b"\n"
    while content:  # a disk that fills up takes a part of it, and raises an error next time
        content = content[os.write(handle, content) :]


class Follower:
    """Reads the lines that are added to a file, from now on."""

    def __init__(self, path: Path):
        self.path, self.place = path, 0
        with contextlib.suppress(OSError):  # there is no such file yet; who reads it says what is wrong with it
            self.place = path.read_bytes().rfind(b"\n") + 1

    def lines(self) -> list[bytes]:
        """The complete lines since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as stream:
            if self.path.stat().st_size < self.place:  # another file by now
                self.place = 0
            stream.seek(self.place)
            whole = stream.read().rpartition(b"\n")[0]
        self.place += len(whole) + 1 if whole else 0
        return whole.splitlines()
