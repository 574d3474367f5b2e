"""One process at a time: a file that a living process holds, and that is free again however that process ends."""

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


class InUseError(RuntimeError):
    """Something that another living process holds; the message says which one, and since when."""


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the file `path` while the block runs; the system lets go of it when this process dies.

    Parameters
    ----------
    path : path
        Made for the time of the block. What a killed process left there does not count.
    what : str
        What the file stands for, for the message.

    Raises
    ------
    InUseError
        When a living process holds it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.artifacts.locks import held
    >>> with tempfile.TemporaryDirectory() as folder, held(Path(folder) / "lock", "this folder"):
    ...     [path.name for path in Path(folder).iterdir()]
    ['lock']
    """
    handle = _take(path, what)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _take(path: Path, what: str) -> int:
    """An open file with the lock on it."""
    import fcntl  # of POSIX, as federations are; the rest of fmtc runs without

    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, handle):  # else its holder took it away just now, and the next one may have made another
                holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat()}
                os.truncate(handle, 0)
                os.pwrite(handle, json.dumps(holder).encode(), 0)
                return handle
        except OSError as error:
            os.close(handle)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise InUseError(f"{what} is in use by {_holder(path)}; end that first, or leave it alone") from None
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


def _holder(path: Path) -> str:
    """Who holds a lock, in words."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        since = datetime.fromisoformat(holder["since"])
        return f"process {holder['pid']} of {holder['host']}, since {since:%Y-%m-%d %H:%M:%S} UTC"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


__all__ = ["InUseError", "held"]
