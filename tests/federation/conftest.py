"""Silos of different sizes, the run that nothing disturbs, and a federation of real processes."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.testing import assert_array_equal

from fmtc.artifacts.states import flatten
from fmtc.protocol.method import view_method
from fmtc.runtime.driver import Replies, run
from fmtc.runtime.flare.local import LocalFederation
from fmtc.runtime.flare.processes import free_port
from fmtc.runtime.kitclient import ClientSource
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

from .commands import NAMES, SETTINGS, set_up, start, write_tables
from .simulation import Simulation

FAULTS = Path(__file__).parent / "faults"
ROUNDS = 6


def silo_rows(dtype=np.float64):
    rng = np.random.default_rng(0)
    centers = 1.2 * rng.normal(size=(4, 10))
    sizes = {"a": 60, "b": 90, "c": 120}
    return {
        cid: (centers[rng.integers(4, size=n)] + rng.normal(size=(n, 10))).astype(dtype) for cid, n in sizes.items()
    }


OF_RUN = Settings(n_clusters=4, max_iter=ROUNDS, tol=0, n_neighbors=15)


def rows_with_holes():
    """The same with missing cells; ten columns, so that a run that is free to choose ends in the mixture."""
    rng, rows = np.random.default_rng(1), silo_rows()
    return {cid: np.where(rng.random(X.shape) < 0.1, np.nan, X) for cid, X in rows.items()}


IN_MIXTURE = Settings(n_clusters=4, view="auto", scale="auto", max_iter=ROUNDS, tol=0)  # 24 rounds


class Absent(LocalTransport):
    """The local transport, with one client that gives no answer in some rounds."""

    def __init__(self, data, settings, cid, rounds):
        super().__init__(data, settings, method=view_method(settings.view))
        self.cid, self.rounds = cid, rounds

    def exchange(self, messages):
        message = messages.get(self.cid)
        away = message is not None and (
            message.round_no in self.rounds if message.phase in ("round", "em") else message.phase in self.rounds
        )
        replies = super().exchange({c: m for c, m in messages.items() if c != self.cid or not away})
        if away:
            replies = replace(replies, failures=replies.failures | {self.cid: RuntimeError("away")})
        assert isinstance(replies, Replies)
        return replies


KNOWN = {}  # what runs in this process came to, which tests compare theirs with; nobody changes one


def expected(data, settings=OF_RUN, *, away=(), cid="b", min_clients=2):
    """What the run comes to in this process, with `cid` silent in the rounds (or phases) `away`."""
    rows = tuple((name, X.tobytes()) for name, X in data.items())
    key = (rows, repr(settings), frozenset(away), cid, min_clients)
    if key not in KNOWN:
        transport = Absent(data, settings, cid, set(away))
        method = view_method(settings.view)
        KNOWN[key] = transport, run(transport, settings, method=method, min_clients=min_clients)
    return KNOWN[key]


def assert_same(outcome, transport, result):
    """Equal, not close: the same code ran."""
    common = transport.method.common(result.server)
    assert set(outcome.common) == set(common)
    for name, array in common.items():
        ours = outcome.common[name]
        assert_array_equal(ours, array)
        assert ours.dtype == array.dtype
    assert [record.objective for record in outcome.history] == [record.objective for record in result.history]
    assert outcome.missing == result.missing
    assert [record.missing for record in outcome.history] == [record.missing for record in result.history]
    for cid, silo in {cid: own.client for cid, own in outcome.kept.items()}.items():
        client = transport.clients[cid]
        assert_array_equal(silo.labels, client.labels)
        (ours, rest), (theirs, others) = flatten(silo.model), flatten(client.model)
        assert rest == others
        assert set(ours) == set(theirs)
        for name, array in theirs.items():
            assert (ours[name].tobytes(), ours[name].dtype) == (np.ascontiguousarray(array).tobytes(), array.dtype)
    assert set(outcome.kept) == set(transport.clients) - set(result.missing)


def family(process):
    """A process of ours and all it started."""
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(process.process.pid)
        return [parent, *parent.children(recursive=True)]
    return []


def slay(victims):
    """As kill -9 does."""
    for victim in victims:
        with contextlib.suppress(psutil.Error):
            victim.kill()


def processes_of(folder):
    """Living processes that name a folder on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(folder) in word for word in words):
            found.append(process)
    return found


def none_left(folder, patience=5.0):
    """Whether all processes that name the folder are gone, now or very soon."""
    end = time.monotonic() + patience
    while processes_of(folder) and time.monotonic() < end:
        time.sleep(0.1)
    return not processes_of(folder)


@pytest.fixture(scope="module", autouse=True)
def lean():
    """Processes have what fmtc needs and no more: scikit-learn loads pandas wherever it is, which takes a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FAULTS), prepend=os.pathsep)  # what is there can make them misbehave, too
        patch.setenv("FMTC_TEST_WITHOUT", "pandas")
        yield


@pytest.fixture
def misbehave(monkeypatch):
    """Let processes that are started from now on misbehave."""

    def order(fault):
        monkeypatch.setenv("FMTC_TEST_FAULT", fault)

    return order


# -------------------------------------------------------------------------------- a federation of real processes


@pytest.fixture(scope="module")
def data():
    """Rows of the silos that take part; a module may have its own."""
    return silo_rows()


@pytest.fixture(scope="module")
def federation(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for cid, X in data.items():
        np.save(folder / f"{cid}.npy", X)
    with LocalFederation([ClientSource(cid, str(folder / f"{cid}.npy")) for cid in data], lost_after=8.0) as fed:
        yield fed
        place = fed.folder
    assert none_left(place)


@pytest.fixture
def simulation(data, tmp_path):
    """The same federation without processes and without waiting."""
    for cid, X in data.items():
        np.save(tmp_path / f"{cid}.npy", X)
    with Simulation([ClientSource(cid, str(tmp_path / f"{cid}.npy")) for cid in data], tmp_path) as fed:
        yield fed


@pytest.fixture
def simulated(monkeypatch, tmp_path):
    """`federate` and `fmtc fit --processes` without processes and without waiting."""
    short = partial(Simulation, folder=tmp_path / "simulation")
    monkeypatch.setattr("fmtc.runtime.flare.local.LocalFederation", short)


@pytest.fixture(scope="module")
def undisturbed(data):
    return expected(data)


class Trouble:
    """Does something once, at an event of the run; keeps the events."""

    def __init__(self, act, event="round", round_no=3):
        self.act, self.event, self.round_no = act, event, round_no
        self.events = []

    def __call__(self, event):
        kinds = [e["event"] for e in self.events]
        self.events.append(event)
        due = event["event"] == self.event and event.get("record", {}).get("round_no", 0) in (0, self.round_no)
        if due and self.act is not None:
            act, self.act = self.act, None
            act()
        after = ("ended", "aborted", "away", "job gone", "over", "waiting", "submitted", "started", "done")
        assert "done" not in kinds or event["event"] in after  # no round

    @property
    def kinds(self):
        return [event["event"] for event in self.events]


class Troubles:
    """Does things once, one in a job, at an event or in the first round from a given one on. Keeps the events."""

    def __init__(self, acts):
        self.acts, self.events, self.done = dict(acts), [], {}

    def __call__(self, event):
        self.events.append(event["event"])
        round_no = event["record"]["round_no"] if event["event"] == "round" else 0
        due = [at for at in self.acts if at == event["event"] or (isinstance(at, int) and at <= round_no)]
        job = self.events.count("submitted")
        if due and job not in self.done.values():  # a job goes on for some rounds before it notices
            what, act = self.acts.pop(due[0])
            self.done[what] = job
            act()


# ------------------------------------------------------------------------------------------------ commands of people


@pytest.fixture
def study(tmp_path, request):
    """Kits of silos, and their tables: of north, south and west, unless a test asks for fewer."""
    names = getattr(request, "param", NAMES)
    files = write_tables(tmp_path, silo_rows())[: len(names)]
    (tmp_path / "plan.toml").write_text(
        f'name = "study"\nhost = "localhost"\nport = {free_port()}\nsilos = {json.dumps(names)}\nlost_after = 8\n'
    )
    code = set_up(tmp_path / "plan.toml", tmp_path / "kits", names)
    started = []

    def join(name, *more):
        process = start(
            "join", "--kit", tmp_path / "kits" / name, "--data", tmp_path / f"{name}.csv", "--id-column", "patient",
            "--out", tmp_path / f"of-{name}", "--accept-roster", code, *more,
        )  # fmt: skip
        started.append(process)
        return process

    join.folder, join.files, join.started, join.code = tmp_path, files, started, code
    join.coordinator = ("coordinate", "--kit", tmp_path / "kits" / "coordinator", *SETTINGS, "--out", tmp_path / "run")
    yield join
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    assert none_left(tmp_path, 15.0)
