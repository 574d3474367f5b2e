"""Faults, with real processes: one after the other in one run, which comes to what an undisturbed run does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .conftest import HYPER, Trouble, Troubles, assert_same, expected, family, slay, two_silos

pytestmark = pytest.mark.federation
data = two_silos


VICTIMS = {
    "silo's parent process": lambda fed: family(fed.processes["b"])[:1],
    "silo's job process": lambda fed: family(fed.processes["b"])[1:],
    "server's job process": lambda fed: family(fed.coordinator.server)[1:],
    "server": lambda fed: family(fed.coordinator.server),
}


def test_killed_after_a_round_one_after_the_other(healthy, data):
    hyper = replace(HYPER, max_iter=12 * len(VICTIMS))  # rounds pass quickly, and a loss takes a while to be noticed
    kill = {name: lambda name=name: slay(VICTIMS[name](healthy)) for name in VICTIMS}
    troubles = Troubles({2 * place: (name, kill[name]) for place, name in enumerate(VICTIMS, start=1)})
    outcome = healthy.run(hyper, listen=troubles)
    assert list(troubles.done) == list(VICTIMS)
    assert troubles.events.count("submitted") > max(troubles.done.values())
    assert_same(outcome, *expected(data, hyper))


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
