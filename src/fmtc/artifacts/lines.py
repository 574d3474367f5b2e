"""An append-only file of JSON lines, from the side of who adds to it. Imports nothing of fmtc.

`runtime/flare/serve.py` loads it by its path, in processes that run without fmtc.
"""

from __future__ import annotations

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
