"""The coordinator's session with FLARE's server, and the clock that all waiting goes by; no process and no waiting."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="needs the federation extra")

from tests.clock import ManualClock

from fmtc.errors import FederationError, ServerLostError
from fmtc.runtime.flare import serve
from fmtc.runtime.flare.kits import Kit
from fmtc.runtime.flare.plan import Plan
from fmtc.runtime.flare.processes import check_port, free_port
from fmtc.runtime.flare.supervise import Coordinator


class Session:
    """Answers after so many questions that it did not hear; its job ends after so many seconds."""

    def __init__(self, clock, deaf=0, ends_after=float("inf")):
        self.clock, self.deaf, self.ends = clock, deaf, clock.time() + ends_after
        self.aborted, self.clients = [], {}

    def hear(self):
        self.deaf -= 1
        if self.deaf >= 0:
            raise ConnectionError("too busy")

    def get_job_meta(self, job_id):
        self.hear()
        return {"status": "FINISHED:ABORTED" if self.clock.time() >= self.ends else "RUNNING"}

    def submit_job(self, job):
        return self.get_job_meta(job)["status"]

    def abort_job(self, job_id):
        self.aborted.append(job_id)

    def get_system_info(self):
        self.hear()
        seen = [SimpleNamespace(name=name, last_connect_time=when) for name, when in self.clients.items()]
        return SimpleNamespace(client_info=seen)


@pytest.fixture
def clock():
    return ManualClock(now=1e9, limit=1e9 + 10_000)


@pytest.fixture
def coordinator(tmp_path, clock):
    plan = Plan("study", "localhost", 4711, ("north", "south"), 30.0)
    found = Coordinator(Kit(tmp_path, "coordinator", "coordinator", plan), clock=clock)
    found.server = SimpleNamespace(alive=True)
    found.session = Session(clock)
    return found


def test_a_busy_server_is_asked_twice(coordinator, clock):
    coordinator.session = Session(clock, deaf=1)
    assert coordinator.status("job") == "RUNNING"
    assert clock.time() == 1e9 + 1
    coordinator.session = Session(clock, deaf=2)
    with pytest.raises(ServerLostError, match="ConnectionError: too busy"):
        coordinator.status("job")


def test_a_job_is_not_handed_in_twice(coordinator, clock, tmp_path):
    coordinator.session = Session(clock, deaf=1)
    with pytest.raises(ServerLostError, match="too busy"):
        coordinator.submit(tmp_path)


def test_a_server_that_is_gone_is_not_asked_again(coordinator, clock):
    coordinator.session = Session(clock, deaf=1)
    coordinator.server = None
    with pytest.raises(ServerLostError):
        coordinator.status("job")
    assert coordinator.session.deaf == 1


def test_a_silo_is_present_until_it_has_been_silent_for_too_long(coordinator, clock):
    coordinator.session.clients = {"silo-north": clock.time(), "silo-south": clock.time() - 20, "silo-x": clock.time()}
    assert coordinator.present() == {"north", "south"}
    clock.sleep(9.9)
    assert coordinator.present() == {"north", "south"}
    clock.sleep(0.1)
    assert coordinator.present() == {"north"}
    clock.sleep(20.0)
    assert coordinator.present() == set()


@pytest.mark.parametrize(("ends_after", "waited"), [(0, 0), (7, 7), (1000, 30)])
def test_a_job_that_is_aborted_gets_time_to_end(coordinator, clock, ends_after, waited):
    coordinator.session = Session(clock, ends_after=ends_after)
    coordinator.abort("job")
    assert coordinator.session.aborted == ["job"]
    assert waited <= clock.time() - 1e9 < waited + 1


def test_a_second_party_is_told_of_by_the_server(coordinator):
    coordinator.kit.workspace.mkdir()
    tell = serve.teller(coordinator.kit.workspace)
    tell(serve.SECOND, site="silo-south")
    assert coordinator.second_parties() == ["south"]
    tell(serve.SECOND, site="silo-north")
    assert coordinator.second_parties() == ["north"]
    assert coordinator.second_parties() == []


def test_a_port_that_is_taken_gets_three_seconds(clock):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FederationError, match=f"port {port} .* is taken"):
            check_port(port, clock=clock)
        assert 3 < clock.time() - 1e9 < 3.5
        clock.after(2.0, taken.close)
        check_port(port, clock=clock)
    check_port(free_port(), clock=clock)
    assert clock.time() - 1e9 < 6


# --------------------------------------------------------------------------------------------------------- the clock


def test_time_passes_when_all_threads_sleep_and_in_the_same_order():
    def trace():
        clock, said = ManualClock(), []

        def count(name, step):
            for _ in range(3):
                clock.sleep(step)
                said.append((clock.monotonic(), name))

        clock.start(lambda: count("slow", 50.0))
        clock.start(lambda: count("fast", 20.0))
        clock.at(45.0, lambda: said.append((clock.monotonic(), "action")))
        clock.sleep(1000.0)
        return said

    expected = [(20, "fast"), (40, "fast"), (45, "action"), (50, "slow"), (60, "fast"), (100, "slow"), (150, "slow")]
    assert trace() == trace() == expected


def test_what_would_wait_for_ever_fails():
    clock = ManualClock(limit=100.0)
    for _ in range(14):
        clock.sleep(7.0)
    with pytest.raises(TimeoutError):
        clock.sleep(7.0)
    assert clock.time() == 105.0


def test_an_action_that_fails_does_not_stop_the_clock():
    clock, said = ManualClock(), []
    clock.at(5.0, lambda: 1 / 0)
    clock.at(7.0, lambda: said.append(clock.time()))
    with pytest.raises(ZeroDivisionError):
        clock.sleep(10.0)
    assert clock.time() == 5.0
    clock.sleep(1.0)
    clock.sleep(10.0)
    assert (said, clock.time()) == ([7.0], 16.0)
    assert threading.active_count() >= 1
