"""Losses, with real processes: before the first round, in a round, and of the connection only; all come back."""

from __future__ import annotations

import threading

import pytest

from .conftest import HYPER, Trouble, assert_same, family, slay

pytestmark = pytest.mark.federation


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
