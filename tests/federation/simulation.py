"""A federation without processes and without waiting: FLARE is replaced by calls, time by a `ManualClock`.

Everything of fmtc is the real thing: `supervise`, `Coordinator` and `write_job` at the coordinator, the Controller with
its transport and driver in the job, an Executor with its files in each silo. What FLARE does is here in short: it
starts the parts of a job, carries tasks and answers, and notices who is silent. A fault is a line; hours of waiting are
milliseconds, and come out the same every time.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from nvflare.apis.controller_spec import TaskCompletionStatus
from nvflare.apis.shareable import Shareable
from tests.clock import ManualClock

from fmtc.artifacts.files import read_json
from fmtc.runtime.flare import adapter
from fmtc.runtime.flare.kits import Kit
from fmtc.runtime.flare.local import LocalFederation, write_rows
from fmtc.runtime.flare.plan import Plan
from fmtc.runtime.flare.processes import CONSOLE
from fmtc.runtime.flare.supervise import Coordinator

CONNECTING = 2.0  # seconds until a silo that is started is registered
STARTING = 1.0  # seconds until the processes of a job run
POLLING = 0.05  # seconds between two requests of a silo for work
COMPUTING = 0.01  # seconds that an answer takes


SPOILED = {  # what a fault does to W
    "nan": lambda W: np.full_like(W, np.nan),
    "shape": lambda W: W[:-1],
    "kind": lambda W: W.astype(np.int64),
}


class Killed(BaseException):
    """The process of a job was killed: nothing of it runs any more."""


_here = threading.local()  # .job: the job whose process this thread stands for


class World:
    """What lies between coordinator and silos: the network, FLARE's server and its jobs.

    Parameters
    ----------
    clock : ManualClock
    """

    def __init__(self, clock):
        self.clock = clock
        self.silos = {}  # by site
        self.server = None
        self.jobs = {}

    def add(self, kit):
        """A silo that has joined."""
        return self.silos.setdefault(kit.site, Silo(self, kit)).start()

    # the clock of the processes of jobs

    def monotonic(self):
        return self.clock.monotonic()

    def time(self):
        return self.clock.time()

    def sleep(self, seconds):
        self.clock.sleep(seconds)
        job = getattr(_here, "job", None)
        if job is not None and job.killed:
            raise Killed


class Silo:
    """FLARE's process of a silo, as `Process` is one, and its connection."""

    def __init__(self, world, kit):
        self.world, self.kit, self.log = world, kit, kit.path / CONSOLE
        self.faults = {}  # round or name of a phase -> (kind, seconds), each once; 0: in every round
        self.said = []  # lines of its own log
        self.alive, self.seen = False, -1e9

    def stop(self):
        self.alive = False

    def finish_jobs(self):
        pass

    def start(self):
        self.alive, self.connected = True, True
        self.born = self.world.clock.time()
        self._beat(self.born)
        return self

    def _beat(self, born):
        if not self.alive or self.born != born:
            return
        if self.connected and self.world.server is not None and self.world.clock.time() >= born + CONNECTING:
            self.seen = self.world.clock.time()
        self.world.clock.after(0.5, lambda: self._beat(born))

    def kill(self):
        """The silo's process and that of its job, as kill -9 does."""
        self.alive = False
        self.kill_job()

    def kill_job(self):
        for job in self.world.jobs.values():
            job.workers.pop(self.kit.site, None)

    def cut(self, seconds):
        """Break the connection, for a while."""
        self.connected = False
        self.world.clock.after(seconds, lambda: setattr(self, "connected", True))


class Worker:
    """A silo's process of one job: takes open tasks one after the other, computes, answers, gives signs of life."""

    def __init__(self, job, silo, arguments):
        self.job, self.silo, self.clock = job, silo, job.world.clock
        self.executor = adapter.FmtcExecutor(**arguments)
        self.executor.clock = job.world
        self.executor.log_error = lambda context, text: silo.said.append(text)
        workspace = SimpleNamespace(get_root_dir=lambda: str(silo.kit.path))
        self.context = SimpleNamespace(get_engine=lambda: SimpleNamespace(get_workspace=lambda: workspace))

    def begin(self):
        self._poll()
        self._beat()

    @property
    def alive(self):
        return self.job.workers.get(self.silo.kit.site) is self and self.job.running

    def _beat(self):
        if self.alive and self.silo.connected:
            self.job.controller.communicator.client_is_active(self.silo.kit.site, "heartbeat", None)
        if self.job.running:
            self.clock.after(self.job.lost_after / 10, self._beat)

    def _poll(self):
        if not self.alive:
            return
        task = self.job.tasks.get(self.silo.kit.site)
        if task is None or not self.silo.connected:
            self.clock.after(POLLING, self._poll)
            return
        del self.job.tasks[self.silo.kit.site]
        kind, seconds = self._fault(task)
        wait = seconds if kind in ("late", "slow", "late and sent") else 0.0
        if kind in ("exit-before", "die"):
            self.silo.kill() if kind == "die" else self.silo.kill_job()
        else:
            self.clock.after(COMPUTING + wait, lambda: self._compute(task, kind))

    def _fault(self, task):
        meta = adapter.from_shareable(task.data).meta
        if meta["phase"] in self.silo.faults:
            return self.silo.faults.pop(meta["phase"])
        if meta["phase"] not in ("round", "em"):
            return "", 0.0
        if meta["round_no"] in self.silo.faults:
            return self.silo.faults.pop(meta["round_no"])
        return self.silo.faults.get(0, ("", 0.0))

    def _compute(self, task, kind):
        if not self.alive:
            return
        with self._full_disk() if kind == "raise" else nullcontext():
            reply = self.executor.execute("fmtc", task.data, self.context, None)
        if kind in ("exit-after", "die-after"):
            self.silo.kill() if kind == "die-after" else self.silo.kill_job()
        elif kind == "stale":
            reply["DXO"]["meta"]["round_no"] -= 1
        elif kind == "garbage":
            reply = Shareable({"garbage": b"\x00\xff" * 100})
        elif kind in SPOILED:  # on its way: a client's own outbox would not let it leave
            fields = reply["DXO"]["data"]
            fields["W"] = SPOILED[kind](fields["W"])
        self._send(task, reply, kind)

    @contextmanager
    def _full_disk(self):
        def full(*_):
            raise OSError("the disk of this test is full")

        store = self.executor.client.node.store
        store.save = full
        yield
        del store.save

    def _send(self, task, reply, kind):
        """Hand an answer over when the connection is there; FLARE's client keeps one that nobody waits for, mostly."""
        if not self.alive:
            return
        if not self.silo.connected:
            self.clock.after(POLLING, lambda: self._send(task, reply, kind))
            return
        client = SimpleNamespace(name=self.silo.kit.site)
        if task.completion_status is not None and kind == "late and sent":
            self.job.controller.process_result_of_unknown_task(client, "fmtc", "", reply, None)
        elif task.completion_status is None:
            task.result_received_cb(SimpleNamespace(client=client, result=reply), None)
            task.completion_status = TaskCompletionStatus.OK
        self._poll()


class Job:
    """The coordinator's process of a job: the real Controller, in a thread that shares the clock."""

    def __init__(self, world, folder, leave_before_the_end):
        self.world = world
        meta = read_json(folder / "meta.json")
        server = read_json(folder / "coordinator/config/config_fed_server.json")
        client = read_json(folder / "silo/config/config_fed_client.json")
        (workflow,), (executor,) = server["workflows"], client["executors"]
        self.lost_after = workflow["args"]["lost_after"]
        self.status, self.killed, self.tasks, self.workers = "SUBMITTED", False, {}, {}
        self.abort = SimpleNamespace(triggered=False)
        self.controller = adapter.FmtcController(**workflow["args"])
        self.controller.communicator = SimpleNamespace(client_is_active=lambda *_: None)
        self.controller.send, self.controller.cancel_task = self._send, self._cancel
        self.controller.clock = world
        if leave_before_the_end:
            self.controller.events = self._events
        self.begin = (meta["deploy_map"]["silo"], executor["executor"]["args"])
        world.clock.start(self._run)

    @property
    def running(self):
        return self.status == "RUNNING"

    def _run(self):
        _here.job = self
        try:
            self.world.sleep(STARTING)
            sites, arguments = self.begin
            while not all(self.world.silos[site].alive for site in sites):  # FLARE does not start it without them
                self.world.sleep(STARTING)
                if self.abort.triggered:
                    self.status = "FINISHED:ABORTED"
                    return
            self.status = "RUNNING"
            for site in sites:
                if self.world.silos[site].alive:
                    self.workers[site] = Worker(self, self.world.silos[site], arguments)
                    self.workers[site].begin()
            clients = [SimpleNamespace(name=site) for site in sites]
            engine = SimpleNamespace(get_clients=lambda: clients)
            self.controller.control_flow(self.abort, SimpleNamespace(get_engine=lambda: engine))
            self.status = "FINISHED:COMPLETED" if not self.abort.triggered else "FINISHED:ABORTED"
        except (Exception, Killed):
            self.status = "FINISHED:EXECUTION_EXCEPTION"
        finally:
            _here.job = None

    def _send(self, task, fl_ctx, targets):
        (client,) = targets
        self.tasks[client.name] = task

    def _cancel(self, task):
        task.completion_status = TaskCompletionStatus.CANCELLED
        self.tasks = {site: other for site, other in self.tasks.items() if other is not task}

    def _events(self):
        events = adapter.at_coordinator(self.controller.spec.folder, self.world)
        tell = events.tell

        def told(kind, **facts):
            if kind == "done":  # the result is written, and nobody knows it
                raise Killed
            tell(kind, **facts)

        events.tell = told
        return events

    def kill(self):
        """The coordinator's process of the job, as kill -9 does."""
        self.killed = True


class Session:
    """What `Coordinator` asks FLARE's server for."""

    def __init__(self, world):
        self.world = world

    def __getattribute__(self, name):
        if name != "world" and name != "close" and self.world.server.deaf:
            raise ConnectionError("too busy")
        return super().__getattribute__(name)

    def get_system_info(self):
        seen = [SimpleNamespace(name=site, last_connect_time=silo.seen) for site, silo in self.world.silos.items()]
        return SimpleNamespace(client_info=seen)

    def submit_job(self, folder):
        name = f"job-{len(self.world.jobs) + 1}"
        leave, self.world.server.leaves_before_the_end = self.world.server.leaves_before_the_end, False
        self.world.jobs[name] = Job(self.world, Path(folder), leave)
        return name

    def get_job_meta(self, name):
        return {"status": self.world.jobs[name].status}

    def abort_job(self, name):
        self.world.jobs[name].abort.triggered = True

    def close(self):
        pass


class Server:
    """FLARE's server, as `Process` is one."""

    def __init__(self, world, log, leaves_before_the_end=False):
        self.world, self.alive, self.log = world, True, log
        self.leaves_before_the_end = leaves_before_the_end
        self.deaf = False  # whether it runs, and does not answer

    def stop(self):
        """It and the processes of its jobs."""
        self.alive, self.world.server = False, None
        for job in self.world.jobs.values():
            job.kill()

    kill = stop


class SimulatedCoordinator(Coordinator):
    """The coordinator, with a server that is not there."""

    def __init__(self, kit, world):
        super().__init__(kit, clock=world.clock)
        self.world = world
        self.leaves_before_the_end = False  # whether the next job's process ends before it tells the silos

    def open(self, patience=120.0):
        if self.server is not None and self.server.alive and self.session is not None:
            return
        self.close()
        self.clock.sleep(1.0)
        self.server = self.world.server = Server(self.world, self.kit.path / CONSOLE, self.leaves_before_the_end)
        self.session = Session(self.world)


class Simulation(LocalFederation):
    """`LocalFederation` without processes: the same `run` and `resume`, over a `World`."""

    def __init__(self, sources, folder, *, rows=None, lost_after=8.0, limit=3_000.0):
        self.world = World(ManualClock(now=1e9, limit=1e9 + limit))
        self.clock, self.tends = self.world.clock, True
        super().__init__(sources, rows=rows, lost_after=lost_after)
        self.folder = folder

    def __enter__(self):
        plan = Plan("local", "localhost", 4711, tuple(self.sources), self.lost_after)
        for name in ("coordinator", *plan.silos):
            (self.folder / name / "local").mkdir(parents=True, exist_ok=True)
        first = Kit(self.folder / "coordinator", "coordinator", "coordinator", plan)
        self.coordinator = SimulatedCoordinator(first, self.world)
        for name, source in self.sources.items():
            kit = Kit(self.folder / name, "silo", name, plan)
            if source.client_id in self.rows:
                source = replace(source, data=str(write_rows(kit.path / "rows", self.rows[source.client_id])))
            source.write(kit.path)
            self.kits[source.client_id] = kit
            self.start(source.client_id)
        return self

    def __exit__(self, *_):
        self.coordinator.close()
        self.world.clock.limit = float("inf")
        self.world.clock.sleep(60.0)  # threads of jobs notice that they were killed

    def start(self, cid):
        self.processes[cid] = self.world.add(self.kits[cid])

    def _tend(self):
        if self.tends:
            super()._tend()

    @property
    def job(self):
        """The newest job."""
        return list(self.world.jobs.values())[-1]
