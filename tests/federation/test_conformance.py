"""The suite for transports over FLARE: `FlareTransport` and clients in kits, in a simulation without processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.conformance.suite import CORRUPT, DELAY, KILL, STOP, Outcome, ServerStoppedError, TransportSuite

from fmtc.privacy.ledger import LEDGER, verify
from fmtc.runtime.kitclient import ClientSource

from .simulation import Simulation

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

DEADLINE = 20.0
FAULTS = {KILL: ("die", 0.0), DELAY: ("late and sent", DEADLINE + 5), CORRUPT: ("garbage", 0.0)}


class FlareCase:
    """Supervision, jobs, envelopes and kits are the real ones; FLARE's network and processes are simulated."""

    refuses = True

    def __init__(self, folder, data, settings):
        self.folder, self.settings, self.spec = Path(folder), settings, None
        for cid, X in data.items():
            np.save(self.folder / f"{cid}.npy", X)
        self.sources = [ClientSource(cid, str(self.folder / f"{cid}.npy")) for cid in data]

    def run(self, faults=(), min_clients=None, *, resume=False):
        def listen(event):
            number = event["record"]["round_no"] if event["event"] == "round" else 0
            if any(fault.kind == STOP and fault.round_no == number for fault in faults):
                raise ServerStoppedError

        with Simulation(self.sources, self.folder / "world") as fed:
            fed._tend = lambda: None  # whoever is killed is gone for good
            for fault in faults:
                if fault.kind != STOP:
                    fed.processes[fault.client].faults = {fault.round_no: FAULTS[fault.kind]}
                if fault.kind == DELAY:  # somebody else keeps the next round open until the late answer comes
                    other = min(cid for cid in fed.processes if cid != fault.client)
                    fed.processes[other].faults = {fault.round_no + 1: ("slow", 10.0)}
            if resume:
                fed.spec = self.spec
                outcome = fed.resume(listen)
            else:
                try:
                    outcome = fed.run(self.settings, min_clients=min_clients, deadline=DEADLINE, listen=listen)
                finally:
                    self.spec = fed.spec
            assert [verify(kit.path / LEDGER) for kit in fed.kits.values()] == [[]] * len(fed.kits)
        labels = {cid: own.client.labels for cid, own in outcome.kept.items()}
        return Outcome.of(outcome, labels, outcome.ledgers)


class TestFlare(TransportSuite):
    case = FlareCase
