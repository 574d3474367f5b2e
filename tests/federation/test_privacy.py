"""Secure sums and differential privacy between real processes, over mutual TLS."""

from dataclasses import replace

import pytest
from numpy.testing import assert_array_equal

from fmtc import Privacy, Settings
from fmtc.errors import TrustError
from fmtc.privacy.ledger import LEDGER, read_lines
from fmtc.protocol.method import view_method
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport

pytestmark = pytest.mark.federation

SUMS = Settings.of(n_clusters=4, view="mixture", scale="auto", max_iter=2, tol=0, privacy="sums")
PRIVATE = replace(SUMS, view="auto", privacy=Privacy(epsilon=8, delta=1e-3, bounds=(-8, 8), rows=270, accept_weak=True))


def test_sums_are_those_of_one_process_and_noise_differs_every_time(federation, data):
    outcome = federation.run(SUMS)
    local = LocalTransport(data, SUMS, method=view_method(SUMS.view, SUMS.privacy))
    here = run(local, SUMS, method=local.method)
    for cid, result in local.results().items():
        assert_array_equal(outcome.clients[cid].labels, result.labels)
    assert [r.objective for r in outcome.result.history] == [r.objective for r in here.history]
    codes = {kept.roster for kept in outcome.kept.values()}
    assert codes == {outcome.result.server.roster}
    assert len(codes.pop()) == 16

    private = federation.run(PRIVATE, method=view_method("auto", PRIVATE.privacy).name)
    assert set(private.clients) == set(data)
    assert {client.choice for client in private.clients.values()} <= {"public", "alone"}
    for cid, kit in federation.kits.items():
        lines = read_lines(kit.path / LEDGER)
        assert {entry["field"] for line in lines for entry in line["fields"]} <= {
            "key", "certificate", "signature", "code", "words", "layout"
        }  # fmt: skip
        assert {line["client"] for line in lines} == {cid}
        assert (kit.path / "budget.json").exists()


def test_a_lost_silo_is_waited_for_and_never_summed_without(federation, data):
    with pytest.raises(TrustError, match="difference of two sums"):
        federation.run(SUMS, min_clients=2)
