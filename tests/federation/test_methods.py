"""Other methods than plain FMTC over FLARE, by the same path: advice, secure sums, differential privacy.

Bit for bit as in one process, but for noise. Tests with real processes share one federation.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from numpy.testing import assert_array_equal

from fmtc import FMTC, Privacy, advise, federate
from fmtc.advice import advice_of
from fmtc.errors import RefusedError, TrustError
from fmtc.privacy.ledger import LEDGER, read_lines
from fmtc.protocol.advice import advice_settings
from fmtc.protocol.method import view_method
from fmtc.runtime.driver import run
from fmtc.runtime.kitclient import RESULT, STATES
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

SEED = 7


def test_a_method_that_nobody_knows_is_refused(simulation):
    with pytest.raises(RefusedError):
        simulation.run(Settings(4), method_name="fed-unknown")


def test_advice_on_the_number_of_clusters_is_that_of_one_process(simulation, data):
    model = FMTC("2..6", view="graph", random_state=SEED)
    outcome = simulation.run(advice_settings(model._settings(n_clusters=2), (2, 6)), method_name="fmtc-advice")
    there, here = advice_of(outcome.common, outcome.client_ids), advise(data, model=model)
    assert there.to_dict() == here.to_dict()  # equal, not close
    assert outcome.kept == {}  # a silo has no result of it, and waits for a run
    assert not [path for kit in simulation.kits.values() for path in (kit.path / STATES).rglob(RESULT)]
    assert {line["phase"] for line in outcome.ledgers["a"]} >= {"hello", "spectrum"}


@pytest.mark.usefixtures("simulated")
def test_a_federation_that_is_advised_counts_what_left_for_it(data):
    with pytest.warns(UserWarning, match="the number of clusters is not clear"):
        model = federate(data, FMTC("2..6", view="graph", random_state=SEED, max_iter=1))
    assert model.run_.advice.chosen == model.n_clusters_
    assert {line.phase for line in model.run_.received} >= {"hello", "spectrum", "round"}
    assert {line["phase"] for line in model.run_.ledgers["a"].lines()} >= {"hello", "spectrum", "round"}


# ----------------------------------------------------------------------------- secure sums and differential privacy

SUMS = Settings(n_clusters=4, view="mixture", scale="auto", max_iter=2, tol=0, privacy="sums")
PRIVATE = replace(SUMS, view="auto", privacy=Privacy(epsilon=8, delta=1e-3, bounds=(-8, 8), rows=270, accept_weak=True))


@pytest.mark.federation
def test_sums_are_those_of_one_process_and_noise_differs_every_time(federation, data):
    before = {cid: len(read_lines(kit.path / LEDGER)) for cid, kit in federation.kits.items()}  # of other methods
    outcome = federation.run(SUMS)
    local = LocalTransport(data, SUMS, method=view_method(SUMS.view, SUMS.privacy))
    here = run(local, SUMS, method=local.method)
    for cid, result in local.results().items():
        assert_array_equal(outcome.kept[cid].client.labels, result.labels)
    assert [r.objective for r in outcome.history] == [r.objective for r in here.history]
    codes = {kept.roster for kept in outcome.kept.values()}
    assert codes == {outcome.roster}
    assert len(codes.pop()) == 16

    private = federation.run(PRIVATE, method_name=view_method("auto", PRIVATE.privacy).name)
    assert set(private.kept) == set(data)
    assert {kept.client.choice for kept in private.kept.values()} <= {"public", "alone"}
    for cid, kit in federation.kits.items():
        lines = read_lines(kit.path / LEDGER)[before[cid] :]
        assert lines
        assert {entry["field"] for line in lines for entry in line["fields"]} <= {
            "key", "certificate", "signature", "code", "words", "layout"
        }  # fmt: skip
        assert {line["client"] for line in lines} == {cid}
        assert (kit.path / "budget.json").exists()


@pytest.mark.federation
def test_a_lost_silo_is_waited_for_and_never_summed_without(federation, data):
    with pytest.raises(TrustError, match="difference of two sums"):
        federation.run(SUMS, min_clients=2)
