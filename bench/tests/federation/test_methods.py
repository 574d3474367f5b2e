"""Federated baselines over FLARE, by the same path as FMTC, and bit for bit as in one process.

Tests with real processes share one federation.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.utils import check_random_state

from fmtc.artifacts.states import flatten
from fmtc.privacy.ledger import LEDGER, verify
from fmtc_bench.baselines import FedKMeans, FedMTSC, FedSpectral
from fmtc_bench.baselines.fed_kmeans import FedKMeansSettings
from fmtc_bench.baselines.fed_spectral import FedSpectralSettings
from fmtc_bench.baselines.mtsc import MTSCSettings

SEED = 7
BASELINES = {  # the estimator, its settings, what the coordinator keeps
    "fed-kmeans": (FedKMeans(4, n_rounds=5, random_state=SEED), FedKMeansSettings, ("centers", "cluster_centers_")),
    "fed-mtsc": (FedMTSC(4, max_iter=5, random_state=SEED), MTSCSettings, ("feature_weights", "feature_weights_")),
    "fed-spectral-plus": (FedSpectral(4, max_iter=30, random_state=SEED), FedSpectralSettings, ("anchors", "anchors_")),
}


def assert_parity(federation, data, method):
    """Equal, not close: what `fit` comes to in one process, and what the federation does."""
    estimator, kind, (name, attribute) = BASELINES[method]
    seed = int(check_random_state(SEED).randint(2**31 - 1))  # as `fit` draws it
    outcome = federation.run(kind.of(estimator, seed), method_name=method)
    here = estimator.fit_predict(data)
    assert set(outcome.kept) == set(data)
    for cid, client in {cid: own.client for cid, own in outcome.kept.items()}.items():
        assert_array_equal(client.labels, here[cid])
        assert_array_equal(client.model.assign(data[cid]), estimator.predict(data[cid], silos=cid))
        there, own = flatten(client.model)[0], flatten(estimator._models[cid])[0]
        assert list(there) == list(own)
        for field, array in own.items():
            assert (there[field].tobytes(), there[field].dtype) == (np.ascontiguousarray(array).tobytes(), array.dtype)
    assert_array_equal(outcome.common[name], getattr(estimator, attribute))
    assert len(outcome.history) == estimator.n_iter_
    for cid, lines in outcome.ledgers.items():
        assert {line["phase"] for line in lines} >= {"round", "finish", "end"}
        assert verify(federation.kits[cid].path / LEDGER) == []


@pytest.mark.parametrize("method", BASELINES)
def test_a_baseline_in_the_simulation(simulation, data, method):
    assert_parity(simulation, data, method)


def test_a_baseline_that_loses_a_silo_and_its_server_is_resumed(simulation, data):
    """Killed after round 2, at a time each."""
    victims = [simulation.processes["b"].kill, lambda: simulation.coordinator.server.kill()]

    def listen(event):
        if event["event"] == "round" and event["record"]["round_no"] >= 2 and victims:
            victims.pop(0)()

    run = simulation.run
    simulation.run = lambda settings, **options: run(settings, listen=listen, **options)
    assert_parity(simulation, data, "fed-mtsc")
    assert not victims


@pytest.mark.long
@pytest.mark.federation
def test_a_baseline_with_real_processes(federation, data):
    assert_parity(federation, data, "fed-kmeans")
