"""The coordinator's part: FLARE's server, our session with it, and a run seen through from job to job."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from ...artifacts.files import read_json
from ...errors import ClientError, DifferError, FederationError, InputError, ServerLostError, TrustError
from ..clock import SYSTEM, Clock
from ..conductor import finished
from ..driver import quorum
from . import compat, serve
from .adapter import EVENTS
from .jobs import Order, write_job
from .kits import ADMIN, RESOURCES, RESOURCES_TEMPLATE, STORE, Kit
from .processes import CONSOLE, Process, check_port, quiet

Listener = Callable[[Mapping[str, Any]], None]

BARREN = 3  # jobs in a row that complete no round, after which a run is given up


class Follower:
    """Reads the lines that are added to a file, from now on."""

    def __init__(self, path: Path):
        self.path = path
        self.place = path.stat().st_size if path.exists() else 0

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

    def events(self) -> list[dict[str, Any]]:
        """The same lines, where each is a JSON object."""
        return [json.loads(line) for line in self.lines()]


# ---------------------------------------------------------------------------------------------------------- session


class Coordinator:
    """FLARE's server and our session with it; a context that locks the kit and leaves no process behind.

    Parameters
    ----------
    kit : Kit
        The coordinator's.
    clock : Clock
        What tells the time, here and in `supervise`.
    """

    def __init__(self, kit: Kit, *, clock: Clock = SYSTEM):
        self.kit, self.clock = kit, clock
        self.server: Process | None = None
        self.session: Any = None
        self.store: Path | None = None
        self._console = Follower(kit.path / CONSOLE)
        self._kept = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._kept.enter_context(self.kit.held())
        return self

    def __exit__(self, *_: object) -> None:
        with self._kept:
            self.close()

    def open(self, patience: float = 120.0) -> None:
        """Start the server, unless it runs, and log in."""
        if self.server is not None and self.server.alive and self.session is not None:
            return
        self.close()
        self.kit.check()
        check_port(self.kit.plan.port, clock=self.clock)
        # without a store of its own FLARE's server would use one that all users of the machine share
        self.store = Path(tempfile.mkdtemp(prefix=".store-", dir=self.kit.path))
        local = self.kit.workspace / "local"
        text = json.dumps(read_json(local / RESOURCES_TEMPLATE), indent=1).replace(STORE, str(self.store))
        (local / RESOURCES).write_text(text, encoding="utf-8")
        self.server = Process(self.kit)
        end = self.clock.monotonic() + patience
        while True:
            if not self.server.alive:
                raise FederationError(f"the server ended at once; {self.server.log} says why")
            try:
                # Wait for the port first: a session that starts too early waits longer and longer between its
                # attempts, and one that is given up while it connects never ends.
                socket.create_connection((self.kit.plan.dialled_here, self.kit.plan.port), 5.0).close()
                with quiet():
                    self.session = compat.new_secure_session(ADMIN, str(self.kit.path / "admin"), timeout=30.0)
                return
            except Exception as error:
                if self.clock.monotonic() > end:
                    raise FederationError(
                        f"the server does not answer: {error}; {self.server.log} may say why"
                    ) from None
                self.clock.sleep(0.1)

    def close(self) -> None:
        """Log out, and end the server and all it started."""
        if self.session is not None:
            with quiet(), contextlib.suppress(Exception):
                self.session.close()
            self.session = None
        if self.server is not None:
            self.server.stop()
            self.server = None
        if self.store is not None:
            shutil.rmtree(self.store, ignore_errors=True)
            self.store = None

    def second_parties(self) -> list[str]:
        """Silos as which a second party tried to join since the last call; the server refused it."""
        said = [line.decode(errors="replace") for line in self._console.lines()]
        names = {line.rpartition(" ")[2] for line in said if line.startswith(serve.PREFIX + serve.SECOND)}
        return [silo for silo, site in self.kit.plan.sites.items() if site in names]

    def present(self) -> set[str]:
        """Silos that gave a sign of life within the last `lost_after` seconds."""
        now = self.clock.time()
        found = self._ask(lambda: self.session.get_system_info(), tries=2)
        seen = {c.name: c.last_connect_time for c in found.client_info}
        plan = self.kit.plan
        return {silo for silo, site in plan.sites.items() if now - seen.get(site, 0) < plan.lost_after}

    def submit(self, job: Path) -> str:
        """Hand a job to the server; its id."""
        return str(self._ask(lambda: self.session.submit_job(str(job))))

    def status(self, job_id: str) -> str:
        """FLARE's word for how a job is doing."""
        return str(self._ask(lambda: self.session.get_job_meta(job_id), tries=2)["status"])

    def abort(self, job_id: str) -> None:
        """End a job, and wait until it has ended."""
        with contextlib.suppress(ServerLostError):
            self._ask(lambda: self.session.abort_job(job_id))
            end = self.clock.monotonic() + 30
            while self.clock.monotonic() < end and not self.status(job_id).startswith(compat.JOB_OVER):
                self.clock.sleep(0.3)

    def _ask(self, question: Callable[[], Any], tries: int = 1) -> Any:
        """The server's answer. Questions that change nothing may be repeated: the server may have been busy."""
        for left in reversed(range(tries)):
            if self.server is None or not self.server.alive or self.session is None:
                raise ServerLostError("the server process is gone")
            try:
                with quiet():
                    return question()
            except Exception as error:
                if left == 0:
                    raise ServerLostError(f"{type(error).__name__}: {error}") from error
                self.clock.sleep(1.0)


# ------------------------------------------------------------------------------------------------------ supervision


class Ending(NamedTuple):
    """How a job ended."""

    kind: str  # see `ENDS`; "gone" without a word, "back": a silo came back, "left": one left before the job began
    rounds: int  # completed
    why: str


ENDS = ("done", "agree", "differ", "lost", "stopped", "refused data", "trust refused", "failed")  # these end a job


def supervise(
    coordinator: Coordinator, order: Order, listen: Listener, *, tend: Callable[[], None] = lambda: None
) -> None:
    """See a run through: job after job, each resuming from the last round, until the run is done.

    Parameters
    ----------
    coordinator : Coordinator
    order : Order
    listen : callable
        Gets every event of the run, as a dict with at least ``event`` and ``time``.
    tend : callable
        Called several times a second; the place to look after processes of one's own.

    Raises
    ------
    ClientError
        When fewer silos than needed are there for `order.wait` seconds, when a silo reports an error of its own, or
        when several jobs in a row complete no round.
    DifferError
        When a comparison of columns finds that the silos do not go together.
    """
    plan, clock = coordinator.kit.plan, coordinator.clock
    needed = quorum(order.min_clients, len(plan.silos), order.spec.method)
    follow = Follower(order.folder / EVENTS)
    barren, begun = 0, False  # jobs in a row that completed no round; whether any job completed one

    def tell(event: str, **facts: Any) -> None:
        listen({"event": event, "time": clock.time(), **facts})

    def look() -> None:
        tend()
        for silo in coordinator.second_parties():
            tell("second party", silo=silo)

    while True:
        over = finished(order.spec) is not None
        try:
            coordinator.open()
            if over:  # tell the silos that do not know it yet; those that do may have left
                tell("over")
                needed = 0
            patience = min(order.wait, plan.lost_after) if begun or over else order.wait
            present = _gather(coordinator, order, needed, patience, tell, look)
            if not present:
                return
            with tempfile.TemporaryDirectory(prefix="fmtc-job-") as scratch:
                job = coordinator.submit(write_job(Path(scratch) / "job", order, plan, present))
            tell("submitted", silos=sorted(present))
            ending = _attend(coordinator, job, follow, present, listen, tell, look)
            if ending.kind == "gone":
                tell("job gone", why=ending.why)
        except ServerLostError as error:
            tell("server lost", why=str(error))
            coordinator.close()
            ending = Ending("lost", 0, str(error))
        if ending.kind in ("done", "agree"):
            return
        if ending.kind == "differ":
            raise DifferError("the silos' columns differ in a way that would stop the run, or spoil it")
        errors = {"refused data": InputError, "trust refused": TrustError, "failed": FederationError}
        if ending.kind in errors:
            raise errors[ending.kind](ending.why)
        if ending.kind == "stopped":
            raise ClientError(ending.why)
        begun = begun or ending.rounds > 0
        barren = 0 if ending.rounds else barren + 1
        if barren >= BARREN:
            raise ClientError(f"{BARREN} attempts in a row completed no round: {ending.why}")


def _gather(
    coordinator: Coordinator,
    order: Order,
    needed: int,
    patience: float,
    tell: Callable[..., None],
    tend: Callable[[], None],
) -> set[str]:
    """Wait `patience` seconds for all silos, then for as many as are needed, for `order.wait` seconds in all."""
    silos, clock = set(coordinator.kit.plan.silos), coordinator.clock
    began = clock.monotonic()
    missing: set[str] | None = None
    while True:
        tend()
        present, waited = coordinator.present(), clock.monotonic() - began
        if present >= silos or (waited > patience and len(present) >= needed):
            return present
        if silos - present != missing:
            missing = silos - present
            tell("waiting", missing=sorted(missing))
        if waited > order.wait:
            raise ClientError(
                f"{len(present)} of {len(silos)} silos are there, {needed} needed; still missing after "
                f"{order.wait:g} seconds: {', '.join(sorted(order.client_ids.get(silo, silo) for silo in missing))}. "
                "The run can be resumed later."
            )
        clock.sleep(0.2)


def _attend(
    coordinator: Coordinator,
    job: str,
    follow: Follower,
    present: set[str],
    listen: Listener,
    tell: Callable[..., None],
    tend: Callable[[], None],
) -> Ending:
    """Watch one job until it ends; end it where a silo comes back, so that the next job has all silos."""
    clock, sites = coordinator.clock, coordinator.kit.plan.sites
    rounds, kind, why, over, looked = 0, "", "", False, float("-inf")
    while not over:
        tend()
        if clock.monotonic() - looked > 0.5:
            looked = clock.monotonic()
            status = coordinator.status(job)
            over = status.startswith(compat.JOB_OVER)
            here = coordinator.present()
            if not over and not kind and here - present:
                tell("silo back", silos=sorted(here - present))
                coordinator.abort(job)
                for event in follow.events():  # what the job still reported
                    listen(event)
                return Ending("back", max(rounds, 1), "a silo is back")
            if status == compat.JOB_WAITS and present - here:  # it would wait for them, far longer than we do
                coordinator.abort(job)
                return Ending("left", rounds, "a silo left before the job began")
        for event in follow.events():
            listen(event)
            rounds += event["event"] == "round"
            over = over or event["event"] == "ended"
            if event["event"] == "away":
                present = present - {silo for silo, site in sites.items() if site == event["site"]}
            if event["event"] in ENDS:
                kind, why = event["event"], event.get("why", "")
        clock.sleep(0.05)
    return Ending(kind, rounds, why) if kind else Ending("gone", rounds, f"a process of the job was lost ({status})")


__all__ = ["Coordinator", "DifferError", "Follower", "Listener", "ServerLostError", "supervise"]
