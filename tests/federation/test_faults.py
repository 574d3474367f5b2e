"""Faults, with real processes: what is killed or cut off, and what the run comes to when all are back."""

from __future__ import annotations

import threading

import pytest

from .conftest import HYPER, Trouble, assert_same, family, slay

pytestmark = pytest.mark.federation

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


def test_silo_killed_before_the_first_round(healthy, undisturbed):
    trouble = Trouble(lambda: slay(family(healthy.processes["b"])), "started")
    outcome = healthy.run(HYPER, listen=trouble)
    assert_same(outcome, *undisturbed)


@pytest.mark.parametrize("fault", ["exit-before@3", "exit-after@3"])
def test_silo_dies_in_a_round(healthy, undisturbed, misbehave, fault):
    misbehave(fault)
    healthy.restart("b")
    trouble = Trouble(None)
    outcome = healthy.run(HYPER, listen=trouble)
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
