"""The coordinator's part: FLARE's server, our session with it, and a run seen through from job to job."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, Self

from ...artifacts.files import read_json, write_json
from ...errors import ClientError, DifferError, FederationError, InputError, ServerLostError, TrustError
from ..clock import SYSTEM, Clock
from ..conductor import finished, unconfirmed
from ..driver import quorum
from ..events import EVENTS, OF_PROCESS, Channel, Event, at_coordinator
from ..spec import RunSpec
from . import compat
from .adapter import TASK
from .kits import ADMIN, CONTROLLER, EXECUTOR, RESOURCES, RESOURCES_TEMPLATE, STORE, Kit
from .plan import Plan
from .processes import Process, check_port, quiet

Listener = Callable[[Event], None]

BARREN = 3  # jobs in a row that complete no round, after which a run is given up
GRACE = 2.0  # seconds that a silo which is there waits for others, once the run is over: they dial within that time


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
        self._events = Channel(kit.workspace / EVENTS, OF_PROCESS)
        self._kept = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._kept.enter_context(self.kit.locked())
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
        names = {event.get("site") for event in self._events.news()}
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


# ------------------------------------------------------------------------------------------------------------- jobs


def write_job(folder: Path, spec: RunSpec, plan: Plan, present: Collection[str]) -> Path:
    """Write a job for the silos that are present; the folder it is in."""
    sites = plan.sites
    names = [sites[silo] for silo in sorted(present)]
    controller = {
        "spec": spec.to_dict(),
        "sites": {spec.client_ids.get(silo, silo): site for silo, site in sites.items()},
        "lost_after": plan.lost_after,
    }
    for_server = {
        # how often a silo asks for work: with many silos less often
        "server": {compat.TASK_REQUEST_INTERVAL: min(2.0, max(0.05, 0.01 * len(names)))},
        "workflows": [{"id": "fmtc", "path": CONTROLLER, "args": controller}],
    }
    for_client = {
        compat.JOB_HEARTBEAT_INTERVAL: plan.lost_after / 10,
        "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {"spec": spec.for_silo()}}}],
    }
    for app, end, config in (("coordinator", "server", for_server), ("silo", "client", for_client)):
        (folder / app / "config").mkdir(parents=True)
        whole = {"format_version": 2, **compat.INLINE_ARRAYS, **config, "components": []}
        write_json(folder / app / "config" / f"config_fed_{end}.json", whole)
    apps = {"coordinator": ["server"], "silo": names}  # a silo does not get the coordinator's part
    meta = {"name": "fmtc", "min_clients": len(names), "resource_spec": {}, "deploy_map": apps}
    write_json(folder / "meta.json", meta)
    return folder


# ------------------------------------------------------------------------------------------------------ supervision


class Ending(NamedTuple):
    """How a job ended."""

    kind: str  # see `ENDS`; "gone" without a word, "back": a silo came back, "left": one left before the job began
    rounds: int  # completed
    why: str
    unable: tuple[str, ...] = ()  # clients that cannot confirm their labels: a kit without the run, a full disk


ERRORS: dict[str, type[Exception]] = {  # ends that another job would come to, too
    "refused data": InputError, "trust refused": TrustError, "failed": FederationError, "stopped": ClientError,
}  # fmt: skip
ENDS = ("done", "agree", "differ", "lost", *ERRORS)  # these end a job


def supervise(
    coordinator: Coordinator, spec: RunSpec, listen: Listener, *, tend: Callable[[], None] = lambda: None
) -> None:
    """See a run through: job after job, each resuming from the last round, until the run is done.

    Parameters
    ----------
    coordinator : Coordinator
    spec : RunSpec
    listen : callable
        Gets every event of the run.
    tend : callable
        Called several times a second; the place to look after processes of one's own.

    Raises
    ------
    ClientError
        When fewer silos than needed are there for `spec.wait` seconds, when a silo reports an error of its own, or
        when several jobs in a row complete no round.
    DifferError
        When a comparison of columns finds that the silos do not go together.
    """
    watch = _Watch(coordinator, spec, listen, tend)
    if finished(spec) is None:
        watch.train()
    watch.inform()


class _Watch:
    """A run as `supervise` sees it through; its parameters."""

    def __init__(self, coordinator: Coordinator, spec: RunSpec, listen: Listener, tend: Callable[[], None]):
        self.coordinator, self.spec, self.listen, self.tend = coordinator, spec, listen, tend
        self.plan, self.clock = coordinator.kit.plan, coordinator.clock
        self.needed = quorum(spec.min_clients, len(self.plan.silos), spec.method)
        self.follow = at_coordinator(spec.folder)

    def train(self) -> None:
        """Job after job, until there is a result, or only a comparison of columns was asked for."""
        barren, begun, wait = 0, False, self.spec.wait  # jobs in a row without a round; whether there was any round
        while finished(self.spec) is None:
            patience = min(wait, self.plan.lost_after) if begun else wait
            ending = self.job(set(self.plan.silos), self.needed, patience, wait)
            if ending.kind == "agree":
                return
            if ending.kind == "differ":
                raise DifferError("the silos' columns differ in a way that would stop the run, or spoil it")
            if ending.kind in ERRORS:
                raise ERRORS[ending.kind](ending.why)
            begun = begun or ending.rounds > 0
            barren = 0 if ending.rounds else barren + 1
            if barren >= BARREN and ending.kind != "done":
                raise ClientError(f"{BARREN} attempts in a row completed no round: {ending.why}")

    def inform(self) -> None:
        """Job after job, until all silos have confirmed their labels, or those that have not stay away.

        Nothing is needed of those that have confirmed, and may have left.
        """
        about, barren = finished(self.spec), 0
        while about is not None and barren < BARREN and (waiting := self.waiting()):
            wanted = {silo for silo in self.plan.silos if self.spec.client_ids.get(silo, silo) in waiting}
            self.tell("over", silos=sorted(wanted))
            enough = len(self.plan.silos) - len(about["missing"]) >= self.needed
            wait = min(self.spec.wait, self.plan.lost_after) if enough else self.spec.wait
            try:
                ending = self.job(wanted, 1, GRACE, wait)
            except ClientError:  # none of them is there
                return
            if self.waiting() != waiting:
                barren = 0
            elif {*waiting} <= {*ending.unable}:  # and asking again would not help
                return
            else:
                barren += 1

    def waiting(self) -> tuple[str, ...]:
        """Clients that have not confirmed their labels."""
        return unconfirmed(self.spec.folder, finished(self.spec))

    def job(self, silos: set[str], needed: int, patience: float, limit: float) -> Ending:
        """One job with as many of these silos as are there."""
        try:
            self.coordinator.open()
            present = self.gather(silos, needed, patience, limit)
            with tempfile.TemporaryDirectory(prefix="fmtc-job-") as scratch:
                job = self.coordinator.submit(write_job(Path(scratch) / "job", self.spec, self.plan, present))
            self.tell("submitted", silos=sorted(present))
            ending = self.attend(job, present, silos)
            if ending.kind == "gone":
                self.tell("job gone", why=ending.why)
        except ServerLostError as error:
            self.tell("server lost", why=str(error))
            self.coordinator.close()
            ending = Ending("lost", 0, str(error))
        return ending

    def tell(self, event: str, **facts: Any) -> None:
        """An event of our own."""
        self.listen({"event": event, "time": self.clock.time(), **facts})

    def look(self) -> None:
        """What is looked after all the time."""
        self.tend()
        for silo in self.coordinator.second_parties():
            self.tell("second party", silo=silo)

    def gather(self, silos: set[str], needed: int, patience: float, limit: float) -> set[str]:
        """Wait `patience` seconds for all of these silos, then for as many as needed, for `limit` seconds in all."""
        began = self.clock.monotonic()
        missing: set[str] | None = None
        while True:
            self.look()
            present, waited = self.coordinator.present() & silos, self.clock.monotonic() - began
            if present >= silos or (waited > patience and len(present) >= needed):
                return present
            if silos - present != missing:
                missing = silos - present
                self.tell("waiting", missing=sorted(missing))
            if waited > limit:
                names = sorted(self.spec.client_ids.get(silo, silo) for silo in missing)
                raise ClientError(
                    f"{len(present)} of {len(silos)} silos are there, {needed} needed; still missing after "
                    f"{limit:g} seconds: {', '.join(names)}. The run can be resumed later."
                )
            self.clock.sleep(0.2)

    def attend(self, job: str, present: set[str], wanted: set[str]) -> Ending:
        """Watch one job until it ends; end it where a silo comes back, so that the next job has all silos."""
        sites, coordinator = self.plan.sites, self.coordinator
        rounds, kind, why, status, over, looked = 0, "", "", "", False, float("-inf")
        while not over:
            self.look()
            if self.clock.monotonic() - looked > 0.5:
                looked = self.clock.monotonic()
                status = coordinator.status(job)
                over = status.startswith(compat.JOB_OVER)
                here = coordinator.present() & wanted
                if not over and not kind and here - present:
                    self.tell("silo back", silos=sorted(here - present))
                    coordinator.abort(job)
                    for event in self.follow.news():  # what the job still reported
                        self.listen(event)
                    return Ending("back", max(rounds, 1), "a silo is back")
                if status == compat.JOB_WAITS and present - here:  # it would wait for them, far longer than we do
                    coordinator.abort(job)
                    return Ending("left", rounds, "a silo left before the job began")
            for event in self.follow.news():
                self.listen(event)
                if event["event"] == "ended":
                    return Ending(kind, rounds, why, tuple(event.get("unable", ())))
                rounds += event["event"] == "round"
                if event["event"] == "away":
                    present = present - {silo for silo, site in sites.items() if site == event["site"]}
                if event["event"] in ENDS:
                    kind, why = event["event"], event.get("why", "")
            self.clock.sleep(0.05)
        if kind in ("", "done"):  # nothing was said, or not to all silos
            kind, why = "gone", f"a process of the job was lost ({status})"
        return Ending(kind, rounds, why)
