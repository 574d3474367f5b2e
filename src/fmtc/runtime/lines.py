"""An append-only file of JSON lines: who adds to it, and who reads what was added. Imports nothing of fmtc.

`flare/serve.py` loads it by its path, in processes that run without fmtc.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line, whole; what a writer left behind that was killed in the middle of a line is dropped."""
    import fcntl  # POSIX only, as federations are; the rest of fmtc does not need it

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "r+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, end - 1))
        if stream.read(1) not in (b"", b"\n"):
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
        stream.seek(0, os.SEEK_END)
        stream.write(json.dumps(line).encode() + b"\n")


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


__all__ = ["Follower", "append"]
