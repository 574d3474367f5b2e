"""FLARE's processes: started here and nowhere else, and ended with the process that started them."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import FederationError
from ..clock import SYSTEM, Clock
from . import compat, serve
from .compat import psutil
from .kits import Kit

CONSOLE = "console.log"  # in a kit: what FLARE's process prints
LONG = 10_000_000  # bytes of a console log after which a new one is begun
JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Process:
    """FLARE's server or a silo's client, in a process of its own that ends with this one.

    What it prints goes to ``console.log`` in the kit.

    Parameters
    ----------
    kit : Kit
    party : str
        Names whoever joins with a silo's kit: the server accepts one party per silo at a time.
    """

    def __init__(self, kit: Kit, party: str = ""):
        self.kit = kit
        self.log = kit.path / CONSOLE
        tidy(kit)
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab") as stream:
            self.process = subprocess.Popen(
                _command(kit, party),
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=kit.path,
                start_new_session=True,  # an interrupt from the keyboard is for us: we end the others
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End it and all it started."""
        stop_all([self])

    def finish_jobs(self, patience: float = 5.0) -> None:
        """Wait for the processes of jobs that it started, so that their last answers go out."""
        with contextlib.suppress(psutil.Error):
            psutil.wait_procs(psutil.Process(self.process.pid).children(recursive=True), timeout=patience)


def _command(kit: Kit, party: str) -> list[str]:
    """How to start FLARE's server or client for a kit."""
    if kit.role == "coordinator":
        module, config, words = compat.SERVER_MODULE, "fed_server.json", []
    else:
        module, config = compat.CLIENT_MODULE, "fed_client.json"
        beat = max(2, 2 * int(kit.plan.lost_after / 10))  # FLARE sleeps in steps of 2 seconds
        words = [f"uid={kit.site}", f"{compat.HEARTBEAT_INTERVAL}={beat}"]
    words = ["secure_train=true", *words, f"org={kit.organisation}", "config_folder=config"]
    name = str(kit.plan.lost_after) if kit.role == "coordinator" else party
    script = [sys.executable, "-u", "-P", str(Path(serve.__file__)), str(os.getpid()), name, module]
    return [*script, "-m", str(kit.workspace), "-s", config, "--set", *words]


def stop_all(processes: Iterable[Process], patience: float = 5.0) -> None:
    """End processes and all they started: with SIGTERM, and after `patience` seconds with SIGKILL."""
    processes = list(processes)
    family: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(process.process.pid)
            family += [parent, *parent.children(recursive=True)]
    for end, seconds in ((psutil.Process.terminate, patience), (psutil.Process.kill, 5.0)):
        for member in family:
            with contextlib.suppress(psutil.Error):
                end(member)
        _, family = psutil.wait_procs(family, timeout=seconds)
        if not family:
            break
    for process in processes:
        process.process.wait()


def tidy(kit: Kit) -> None:
    """Remove what FLARE keeps of finished jobs, and begin a new console log where the old one is long."""
    for folder in kit.workspace.iterdir():
        if folder.is_dir() and JOB.fullmatch(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
    log = kit.path / CONSOLE
    if log.exists() and log.stat().st_size > LONG:
        log.replace(log.with_suffix(".old.log"))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep FLARE's session from printing, logging and warning while a block runs."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def check_port(port: int, *, patience: float = 3.0, clock: Clock = SYSTEM) -> None:
    """Raise `FederationError` where a port is taken; the processes of a killed coordinator get a while to end."""
    end = clock.monotonic() + patience
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
                return
            except OSError:
                if clock.monotonic() > end:
                    raise FederationError(
                        f"port {port} of this machine is taken by another program, or may not be used; is a "
                        "coordinator running already?"
                    ) from None
        clock.sleep(0.2)


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
