"""Faults, with real processes: what is killed, late, cut off or talks nonsense, and what the run comes to."""

from __future__ import annotations

import importlib.util
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fmtc import Hyper
from fmtc.runtime.driver import ClientError
from fmtc.runtime.federation import LocalFederation
from fmtc.runtime.flare import Site
from fmtc.runtime.wire import read_json, write_json

from .conftest import HYPER, ROUNDS, assert_same, expected, family, none_left, silo_rows, slay

pytestmark = pytest.mark.federation

spec = importlib.util.spec_from_file_location("proxy", Path(__file__).parents[2] / "benchmarks" / "_proxy.py")
proxy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(proxy)


class Disturbed(LocalFederation):
    """Silo b dials through a relay; its process can be told to misbehave when it is started."""

    def start(self, cid):
        if cid == "b":
            if not hasattr(self, "relay"):
                self.relay = proxy.Proxy(self.kits[cid].plan.port)
            file = self.kits[cid].startup / "fed_client.json"
            config = read_json(file)
            config["servers"][0]["service"]["target"] = f"localhost:{self.relay.port}"
            write_json(file, config)
        super().start(cid)

    def restart(self, cid):
        """Stop a silo and start it again, under the environment of now; wait until it is there."""
        self.processes[cid].stop()
        for mark in self.kits[cid].path.glob("fault-*"):
            mark.unlink()
        self.start(cid)
        self.wait_for_all()

    def wait_for_all(self, patience=60.0):
        self.coordinator.open()
        end = time.monotonic() + patience
        while self.coordinator.present() < set(self.sites):
            assert time.monotonic() < end, "the silos did not come"
            time.sleep(0.2)
        for cid, kit in self.kits.items():  # a silo that lost its connection may still be listed
            assert self.processes[cid].alive, kit.name


@pytest.fixture(scope="module")
def data():
    return silo_rows()


@pytest.fixture(scope="module")
def federation(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for cid, X in data.items():
        np.save(folder / f"{cid}.npy", X)
    with Disturbed([Site(cid, str(folder / f"{cid}.npy")) for cid in data], lost_after=8.0) as fed:
        fed.wait_for_all()
        yield fed
        place = fed.folder
    fed.relay.__exit__()
    assert none_left(place)


@pytest.fixture(scope="module")
def undisturbed(data):
    return expected(data)


@pytest.fixture
def healthy(federation):
    """The federation with every silo well again afterwards."""
    yield federation
    federation.tends = True
    federation.relay.heal()


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
        assert "done" not in kinds or event["event"] in ("ended", "aborted")

    @property
    def kinds(self):
        return [event["event"] for event in self.events]


# ------------------------------------------------------------------------------------------------ nothing disturbed


@pytest.mark.parametrize("coupling", ["tensor", "subspace"])
@pytest.mark.parametrize("kind", ["float64", "float32", "sparse"])
def test_local_and_flare_give_equal_bytes(healthy, tmp_path, kind, coupling):
    rows = silo_rows(np.float32 if kind == "float32" else np.float64)
    if kind == "sparse":
        rows = {cid: sp.csr_array(np.where(X > 0.5, X, 0)) for cid, X in rows.items()}
    hyper = Hyper(n_clusters=4, max_iter=3, tol=0, n_neighbors=15, coupling=coupling, seed=7)
    try:
        for cid, X in rows.items():
            path = tmp_path / f"{cid}.np{'z' if kind == 'sparse' else 'y'}"
            sp.save_npz(path, X) if kind == "sparse" else np.save(path, X)
            Site(cid, str(path)).write(healthy.kits[cid].path)
        outcome = healthy.run(hyper, weights={"a": 1.0, "b": 2.0, "c": 1.0})
    finally:
        for site in healthy.sites.values():
            site.write(healthy.kits[site.client_id].path)
    assert_same(outcome, *expected(rows, hyper, weights={"a": 1.0, "b": 2.0, "c": 1.0}))


# ------------------------------------------------------------------------------------------------- with all back


VICTIMS = {
    "silo": lambda fed: family(fed.processes["b"]),
    "silo's parent process": lambda fed: family(fed.processes["b"])[:1],
    "silo's job process": lambda fed: family(fed.processes["b"])[1:],
    "server's job process": lambda fed: family(fed.coordinator.server)[1:],
    "server": lambda fed: family(fed.coordinator.server),
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_after_a_round(healthy, undisturbed, victim):
    trouble = Trouble(lambda: slay(VICTIMS[victim](healthy)))
    outcome = healthy.run(HYPER, listen=trouble)
    assert trouble.kinds.count("submitted") >= 2
    assert_same(outcome, *undisturbed)


@pytest.mark.parametrize("event", ["submitted", "started"])
def test_silo_killed_before_the_first_round(healthy, undisturbed, event):
    trouble = Trouble(lambda: slay(family(healthy.processes["b"])), event)
    outcome = healthy.run(HYPER, listen=trouble)
    assert trouble.kinds.count("submitted") >= 2
    assert_same(outcome, *undisturbed)


@pytest.mark.parametrize("fault", ["exit-before@3", "exit-after@3"])
def test_silo_dies_in_a_round(healthy, undisturbed, misbehave, monkeypatch, fault):
    misbehave(fault)
    healthy.restart("b")
    trouble = Trouble(None)
    outcome = healthy.run(HYPER, listen=trouble)
    monkeypatch.undo()
    healthy.restart("b")
    assert trouble.kinds.count("submitted") == 2
    assert_same(outcome, *undisturbed)


def test_connection_cut_and_healed(healthy, undisturbed):
    def cut():
        healthy.relay.cut()
        threading.Timer(15.0, healthy.relay.heal).start()

    trouble = Trouble(cut)
    outcome = healthy.run(HYPER, listen=trouble, wait=120.0)
    assert trouble.kinds.count("submitted") >= 2
    assert_same(outcome, *undisturbed)


# --------------------------------------------------------------------------------------------- with fewer than all


def test_a_bad_answer_costs_its_round_and_no_more(healthy, data, misbehave, monkeypatch):
    misbehave("nan@2,shape@3,raise@4,kind@6,stale@7,garbage@8")
    healthy.restart("b")
    trouble = Trouble(None)
    hyper = replace(HYPER, max_iter=9)
    outcome = healthy.run(hyper, listen=trouble, min_clients=2, deadline=60.0)
    monkeypatch.undo()
    healthy.restart("b")
    assert [record.missing for record in outcome.history] == [
        ("b",) if r in {2, 3, 4, 6, 7, 8} else () for r in range(1, 10)
    ]
    assert [record.refused for record in outcome.history] == [0, 1, 1, 0, 0, 1, 1, 1, 0]
    why = [event["why"] for event in trouble.events if event["event"] == "refused"]
    assert why == [
        "W holds NaN or infinity",
        "W has shape (9, 4), not (10, 4)",
        "W holds int64",
        "it answers round 6, not round 7",
        "it cannot be read: ValueError",
    ]
    assert trouble.kinds.count("submitted") == 1
    assert_same(outcome, *expected(data, hyper, away={2, 3, 4, 6, 7, 8}))


def test_a_late_answer_is_thrown_away(healthy, data, misbehave, monkeypatch):
    misbehave("late@3:5")
    healthy.restart("b")
    trouble = Trouble(None)
    outcome = healthy.run(HYPER, listen=trouble, min_clients=2, deadline=3.0)
    monkeypatch.undo()
    healthy.restart("b")
    away = {record.round_no for record in outcome.history if "b" in record.missing}
    assert min(away) == 3
    assert outcome.history[-1].missing == ()
    # it had gone on to round 3 by itself, and must go back to where its last answer counted
    assert_same(outcome, *expected(data, away=away))


def test_a_silo_that_never_answers_and_one_that_is_gone(healthy, data, misbehave, monkeypatch):
    misbehave("late@3:1000")
    healthy.restart("b")
    outcome = healthy.run(HYPER, min_clients=2, deadline=2.0)
    assert_same(outcome, *expected(data, away={*range(3, ROUNDS + 1), "finish"}))
    monkeypatch.undo()
    healthy.restart("b")

    healthy.tends = False
    trouble = Trouble(lambda: slay(family(healthy.processes["b"])))
    outcome = healthy.run(HYPER, listen=trouble, min_clients=2)
    assert_same(outcome, *expected(data, away={*range(4, ROUNDS + 1), "finish"}))
    assert trouble.kinds.count("away") == 1
    healthy.restart("b")


def test_a_silo_that_returns_is_taken_in_again(healthy, data, misbehave, monkeypatch):
    misbehave("slow@0:1.5")
    healthy.restart("a")
    trouble = Trouble(lambda: slay(family(healthy.processes["b"])))
    outcome = healthy.run(HYPER, listen=trouble, min_clients=2)
    monkeypatch.undo()
    healthy.restart("a")
    away = {record.round_no for record in outcome.history if "b" in record.missing}
    assert away
    assert "silo back" in trouble.kinds
    assert outcome.history[-1].missing == ()
    assert_same(outcome, *expected(data, away=away))


# ------------------------------------------------------------------------------------------------- below the quorum


def test_below_the_quorum_it_stops_and_can_be_resumed(healthy, undisturbed):
    healthy.tends = False
    trouble = Trouble(lambda: slay(family(healthy.processes["b"])))
    with pytest.raises(ClientError, match="2 of 3 silos are there, 3 needed"):
        healthy.run(HYPER, listen=trouble, wait=3.0)
    healthy.tends = True
    healthy.restart("b")
    assert_same(healthy.resume(), *undisturbed)


def test_a_silo_whose_code_raises_stops_the_run_at_once(healthy, undisturbed, misbehave, monkeypatch):
    misbehave("raise@3")
    healthy.restart("b")
    trouble = Trouble(None)
    with pytest.raises(ClientError, match="client 'b' failed in round 3: OwnError: ran into OSError"):
        healthy.run(HYPER, listen=trouble)
    assert trouble.kinds.count("submitted") == 1
    assert not any("disk of this test" in str(event) for event in trouble.events)  # the sentence stays in the silo
    assert "disk of this test" in (healthy.kits["b"].path / "console.log").read_text()
    monkeypatch.undo()
    assert_same(healthy.resume(), *undisturbed)
    healthy.restart("b")
