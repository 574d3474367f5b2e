"""Faults, with real processes: one after the other in one run, which comes to what an undisturbed run does."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from fmtc.runtime.driver import ClientError

from .conftest import HYPER, Trouble, assert_same, expected, family, silo_rows, slay

pytestmark = pytest.mark.federation


@pytest.fixture(scope="module")
def data():
    """Two silos are enough here, and a process less to start in every job."""
    return {cid: X for cid, X in silo_rows().items() if cid != "c"}


VICTIMS = {
    "silo": lambda fed: family(fed.processes["b"]),
    "silo's parent process": lambda fed: family(fed.processes["b"])[:1],
    "silo's job process": lambda fed: family(fed.processes["b"])[1:],
    "server's job process": lambda fed: family(fed.coordinator.server)[1:],
    "server": lambda fed: family(fed.coordinator.server),
}


class Troubles:
    """Does things once, at an event or in the first round from a given one on; notes in which job. Keeps events."""

    def __init__(self, acts):
        self.acts, self.events, self.done = dict(acts), [], {}

    def __call__(self, event):
        self.events.append(event["event"])
        round_no = event["record"]["round_no"] if event["event"] == "round" else 0
        due = [at for at in self.acts if at == event["event"] or (isinstance(at, int) and at <= round_no)]
        if due:
            what, act = self.acts.pop(due[0])
            self.done[what] = self.events.count("submitted")
            act()


def test_killed_after_a_round_one_after_the_other(healthy, data):
    hyper = replace(HYPER, max_iter=2 * len(VICTIMS) + 2)
    kill = {name: lambda name=name: slay(VICTIMS[name](healthy)) for name in VICTIMS}
    troubles = Troubles({2 * place: (name, kill[name]) for place, name in enumerate(VICTIMS, start=1)})
    outcome = healthy.run(hyper, listen=troubles)
    assert list(troubles.done) == list(VICTIMS)
    assert len(set(troubles.done.values())) == len(VICTIMS)  # each ended a job of its own
    assert troubles.events.count("submitted") > max(troubles.done.values())
    assert_same(outcome, *expected(data, hyper))


def test_lost_before_the_first_round_in_a_round_and_by_the_connection(healthy, data, misbehave):
    """The silo b dies in round 3 before it answers, in round 5 after it, and is cut off after round 7."""
    misbehave("exit-before@3,exit-after@5")
    healthy.restart("b")
    hyper = replace(HYPER, max_iter=9)

    def cut():
        healthy.relay.cut()
        threading.Timer(10.0, healthy.relay.heal).start()

    begin = ("silo, before the first round", lambda: slay(family(healthy.processes["b"])))
    troubles = Troubles({"started": begin, 7: ("connection", cut)})
    outcome = healthy.run(hyper, listen=troubles, wait=120.0)
    assert list(troubles.done) == ["silo, before the first round", "connection"]
    assert troubles.events.count("submitted") >= 5
    assert_same(outcome, *expected(data, hyper))


def test_a_run_that_stops_below_the_quorum_or_by_an_error_is_resumed(healthy, undisturbed, misbehave, monkeypatch):
    healthy.tends = False
    trouble = Trouble(lambda: slay(family(healthy.processes["b"])))
    with pytest.raises(ClientError, match="1 of 2 silos are there, 2 needed"):
        healthy.run(HYPER, listen=trouble, wait=3.0)
    healthy.tends = True

    misbehave("raise@5")
    healthy.restart("b")
    trouble = Trouble(None)
    why = r"client 'b' failed in round 5: OwnError: ran into OSError.*Silo 'b': the disk of this test is full"
    with pytest.raises(ClientError, match=why):
        healthy.resume(trouble)
    assert trouble.kinds.count("submitted") == 1  # at once: asking again would not help
    assert not any("disk of this test" in str(event) for event in trouble.events)  # the sentence stays in the silo
    assert "disk of this test" in (healthy.kits["b"].path / "console.log").read_text()
    assert_same(healthy.resume(), *undisturbed)


def test_a_job_that_is_lost_between_the_result_and_the_last_word(healthy, undisturbed, misbehave):
    misbehave("exit@end")
    healthy.coordinator.close()  # its server is started anew, and its job process misbehaves
    trouble = Trouble(None)
    outcome = healthy.run(HYPER, listen=trouble)
    assert trouble.kinds.count("submitted") == 2
    assert trouble.kinds.count("over") == 1
    assert_same(outcome, *undisturbed)
    for kit in healthy.kits.values():
        assert (kit.path / "fmtc" / healthy.order.run_id / "ended.json").exists()
