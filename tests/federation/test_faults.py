"""Faults, with real processes: what is killed after a round, and what the run comes to when all are back."""

from __future__ import annotations

import pytest

from .conftest import HYPER, Trouble, assert_same, family, slay

pytestmark = pytest.mark.federation

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
