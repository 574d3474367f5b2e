"""Runs that stop, with real processes: below the quorum, or where a silo's own code fails; and go on later."""

from __future__ import annotations

import pytest

from fmtc.runtime.driver import ClientError

from .conftest import HYPER, Trouble, assert_same, family, slay

pytestmark = pytest.mark.federation


def test_below_the_quorum_it_stops_and_can_be_resumed(healthy, undisturbed):
    healthy.tends = False
    trouble = Trouble(lambda: slay(family(healthy.processes["b"])))
    with pytest.raises(ClientError, match="2 of 3 silos are there, 3 needed"):
        healthy.run(HYPER, listen=trouble, wait=3.0)
    healthy.tends = True
    healthy.restart("b")
    assert_same(healthy.resume(), *undisturbed)


def test_a_silo_whose_code_raises_stops_the_run_at_once(healthy, undisturbed, misbehave):
    misbehave("raise@3")
    healthy.restart("b")
    trouble = Trouble(None)
    with pytest.raises(
        ClientError,
        match=r"client 'b' failed in round 3: OwnError: ran into OSError.*Silo 'b': the disk of this test is full",
    ):
        healthy.run(HYPER, listen=trouble)
    assert trouble.kinds.count("submitted") == 1
    assert not any("disk of this test" in str(event) for event in trouble.events)  # the sentence stays in the silo
    assert "disk of this test" in (healthy.kits["b"].path / "console.log").read_text()
    assert_same(healthy.resume(), *undisturbed)
