"""Losses, with real processes: in a round and around it, below the quorum and by an error; the run goes on later."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from fmtc.errors import ClientError

from .conftest import HYPER, Trouble, Troubles, assert_same, expected, family, slay, two_silos

pytestmark = pytest.mark.federation
data = two_silos


def test_lost_before_the_first_round_in_a_round_and_by_the_connection(healthy, data, misbehave):
    """The silo b dies in round 3 before it answers, in round 5 after it, and is cut off after round 7."""
    misbehave("exit-before@3,exit-after@5")
    healthy.restart("b")
    hyper = replace(HYPER, max_iter=25)  # rounds pass quickly, and a loss takes a while to be noticed

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
