"""Anchors of summed rows, with and without noise."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from fmtc.protocol.private import view as private
from fmtc_bench.baselines import NoisyAnchors, PublicAnchors, public_anchors
from fmtc_bench.datasets import synthetic


def test_noise_is_added_where_rows_are_enough(monkeypatch):
    ran = []
    real = public_anchors.run_locally
    monkeypatch.setattr(public_anchors, "run_locally", lambda *args: ran.append(args[:2]) or real(*args))
    data = synthetic("skew", n_samples=1000, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = NoisyAnchors(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    ((method, settings),) = ran
    assert method is private.METHOD
    assert settings.privacy.noisy
    assert settings.privacy.epsilon == model.epsilon == 2
    assert model.bytes_up_ > 0


def test_clients_with_too_few_rows_stay_alone_and_say_so():
    data = synthetic("skew", n_samples=20, n_features=30, seed=0)
    with pytest.warns(UserWarning, match="each client stays alone"):
        model = NoisyAnchors(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    assert model.bytes_up_ == 0
    only = data.clients == "silo2"
    with pytest.warns(UserWarning, match="each client stays alone"):
        alone = NoisyAnchors(data.n_clusters, random_state=0).fit(data.X[only], silos=data.clients[only])
    assert_array_equal(alone.labels_, model.labels_[only])


@pytest.mark.parametrize("M", [PublicAnchors, NoisyAnchors])
def test_wide_sparse_rows_are_projected_at_random(M):
    rng = np.random.default_rng(0)
    wide = public_anchors.MOST_COLUMNS + 1
    X = {cid: sp.random_array((60, wide), density=0.02, rng=rng, format="csr") for cid in "ab"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = M(3, random_state=0).fit(X)
    assert model._models["a"].columns(X["a"]).shape == (60, public_anchors.PROJECTED)
    assert model.predict(X)["b"].shape == (60,)
