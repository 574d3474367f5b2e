"""Mixtures and HDBSCAN of each client alone: any rows, new rows, sparse rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fmtc_bench.baselines import GMMAlone, HDBSCANAlone, density

BOTH = [GMMAlone, HDBSCANAlone]


def stretched(n=150, seed=0):
    """Two long clusters side by side, which k-means cuts across, for two clients that differ by an offset."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = np.column_stack([3 * rng.uniform(-1, 1, size=n), 4.0 * y + 0.3 * rng.normal(size=n)])
    return {"a": X, "b": X + 50}, y


@pytest.mark.parametrize("M", BOTH)
def test_long_clusters_are_found_in_every_client(M):
    data, y = stretched()
    model = M(2, random_state=0)
    for found in model.fit_predict(data).values():
        assert adjusted_rand_score(y, found) > 0.95
    new, truth = stretched(seed=1)
    assert adjusted_rand_score(truth, model.predict(new)["b"]) > 0.95
    assert_array_equal(np.concatenate(list(model.predict(data).values())), model.labels_)


def test_the_shape_of_a_mixture_is_chosen_without_labels():
    data, _ = stretched()
    model = GMMAlone(2, random_state=0).fit(data)
    found = {shape: GMMAlone(2, shape=shape, random_state=0).fit(data) for shape in density.SHAPES}
    X = data["a"]
    criteria = {shape: m._models["a"].mixture.bic(X) for shape, m in found.items()}
    chosen = model._models["a"].mixture
    assert chosen.bic(X) == min(criteria.values())
    assert criteria[chosen.covariance_type] == min(criteria.values())


@pytest.mark.parametrize("M", BOTH)
@pytest.mark.parametrize(
    "X",
    [
        np.full((12, 3), 0.1),  # all equal
        np.random.default_rng(0).normal(size=(5, 3)),  # a row for each cluster
        np.random.default_rng(1).normal(size=(9, 400)),  # many columns
        np.column_stack([np.random.default_rng(2).normal(size=30), np.full(30, 7.0)]),  # a constant column
        sp.csr_array(np.zeros((12, 30))),  # texts without a word
        sp.random_array((11, 500), density=0.05, rng=np.random.default_rng(3), format="csr"),
    ],
    ids=["equal", "few", "wide", "constant", "empty", "words"],
)
def test_no_rows_are_too_odd(M, X):
    model = M(5, random_state=0).fit({"a": X, "b": X})
    assert model.labels_.shape == (2 * X.shape[0],)
    assert model.labels_.min() >= 0
    assert model.predict(X[:2], silos="b").shape == (2,)


@pytest.mark.parametrize("M", BOTH)
def test_sparse_rows_are_never_made_dense(M, monkeypatch):
    rng = np.random.default_rng(0)
    topics, y = rng.dirichlet(np.full(300, 0.05), size=3), np.arange(90) % 3
    X = sp.csr_array(np.array([rng.multinomial(40, topics[j]) for j in y], float))
    monkeypatch.setattr(sp.csr_array, "toarray", None)
    monkeypatch.setattr(sp.csr_array, "todense", None)
    assert adjusted_rand_score(y, M(3, random_state=0).fit(X).labels_) > 0.9


def test_hdbscan_takes_the_size_that_leads_nearest_to_the_number_of_clusters():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 30)
    X = np.array([[0, 0], [0, 9], [9, 0], [40, 40]])[y] + rng.normal(size=(120, 2))
    found = HDBSCANAlone(4, random_state=0).fit_predict(X)
    assert adjusted_rand_score(y, found) > 0.9
    coarse = HDBSCANAlone(4, min_cluster_size=60, random_state=0).fit_predict(X)
    assert len(np.unique(coarse)) < 4
    noise = HDBSCANAlone(2, min_cluster_size=3, random_state=0).fit_predict(np.arange(8.0)[:, None] ** 3)
    assert noise.min() >= 0  # noise takes the nearest cluster


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (GMMAlone(2, shape="round"), "shape.*round"),
        (GMMAlone(2, ridge=0), "ridge.*0"),
        (HDBSCANAlone(2, min_cluster_size=0), "min_cluster_size.*0"),
        (HDBSCANAlone(2, cluster_selection_method="top"), "cluster_selection_method.*top"),
    ],
)
def test_wrong_settings_are_refused(model, words):
    with pytest.raises(ValueError, match=words):
        model.fit(stretched()[0])
