"""One process at a time, whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from fmtc.artifacts.locks import locked
from fmtc.errors import InUseError

HOLD = "import sys, time; from pathlib import Path; from fmtc.artifacts.locks import locked\n"
HOLD += "with locked(Path(sys.argv[1]), 'it'): print('locked', flush=True); time.sleep(60)"


def test_a_second_one_is_told_who_holds_it(tmp_path):
    path = tmp_path / "lock"
    with locked(path, "the kit"):
        words = rf"the kit .*process {os.getpid()} of .+, since 20"
        with pytest.raises(InUseError, match=words), locked(path, "the kit"):
            pass
        assert path.stat().st_mode & 0o077 == 0
    assert not path.exists()
    with locked(path, "the kit"):
        assert path.exists()


def test_a_process_that_is_killed_lets_go(tmp_path):
    path = tmp_path / "lock"
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"locked\n"
    with pytest.raises(InUseError, match=f"process {other.pid} "), locked(path, "it"):
        pass
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert path.exists()  # what it left does not count
    with locked(path, "it"):
        pass


def test_a_lock_whose_file_says_nothing(tmp_path):
    path = tmp_path / "lock"
    with locked(path, "it"):
        path.write_text("?")
        with pytest.raises(InUseError, match=r"^it "), locked(path, "it"):
            pass


def test_a_folder_that_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match="No such file"), locked(tmp_path / "nowhere" / "lock", "it"):
        pass


def test_a_lock_that_was_taken_away_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """Between opening the file and locking it, its last holder removed it."""
    import fcntl

    path, flock, turns = tmp_path / "lock", fcntl.flock, []

    def late(handle, how):
        if not turns:
            path.unlink()
        turns.append(handle)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(path, "it"):
        assert path.exists()
        assert len(turns) == 2
