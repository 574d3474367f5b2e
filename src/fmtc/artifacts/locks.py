"""One process at a time: a file that a running process holds, and that is free again however that process ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ..errors import InUseError


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the file `path` while the block runs; the system releases it when this process ends.

    Parameters
    ----------
    path : path
        Exists while the block runs. A file that a killed process left behind is not an obstacle.
    what : str
        What the file protects, for the message.

    Raises
    ------
    InUseError
        When a running process holds it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.artifacts.locks import locked
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder) / "lock", "this folder"):
    ...     [path.name for path in Path(folder).iterdir()]
    ['lock']
    """
    handle = _take(path, what)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Wait until no other process is inside such a block with the same file, then run it; the file stays."""
    import fcntl  # POSIX only, as federations are; the rest of fmtc does not need it

    with path.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _take(path: Path, what: str) -> int:
    """An open file with the lock on it."""
    import fcntl  # POSIX only, as federations are; the rest of fmtc does not need it

    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, handle):  # if not, its holder has just deleted it, and there may be a new one
                holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat()}
                os.truncate(handle, 0)
                os.pwrite(handle, json.dumps(holder).encode(), 0)
                return handle
        except OSError as error:
            os.close(handle)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise InUseError(f"{what} is in use by {_holder(path)}; end that process first") from None
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


def _holder(path: Path) -> str:
    """The process that holds a lock, in words."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        since = datetime.fromisoformat(holder["since"])
        return f"process {holder['pid']} of {holder['host']}, since {since:%Y-%m-%d %H:%M:%S} UTC"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
