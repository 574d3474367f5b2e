"""Texts, by default: one projection for all silos and the same means of clusters, unless another is asked for."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fmtc import FMTC, Graph, join_later, load
from fmtc.later.publish import kit_of
from fmtc.settings import Settings, by_view

TOPICS, WORDS = 3, 30


def texts(n, seed):
    """Counts of words; each topic has ten words of its own, and each text eight words, mostly of its topic."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % TOPICS)
    chances = np.where(np.arange(WORDS) // 10 == y[:, None], 0.09, 0.005)
    return sp.csr_array(np.array([rng.multinomial(8, p / p.sum()) for p in chances], dtype=float)), y


SILOS = {cid: texts(n, seed) for seed, (cid, n) in enumerate({"a": 60, "b": 45, "c": 50, "d": 40}.items())}
DATA = {cid: X for cid, (X, _) in SILOS.items()}
MODELS = {}


def fitted(data=DATA, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FMTC(TOPICS, **by_view({"view": "graph", "max_iter": 5, "random_state": 0} | options)).fit(data)


def plain():
    if not MODELS:
        MODELS["plain"] = fitted()
    return MODELS["plain"]


def gap(model):
    """How far the consensus of one silo lies from that of another."""
    Z = model._fitted.shared.Z
    return np.abs(Z - Z[:, :, :1]).max() / np.abs(Z).max()


@pytest.mark.parametrize("scale", ["auto", "tfidf"])
def test_silos_share_one_projection_and_the_means(scale):
    model = fitted(scale=scale) if scale == "tfidf" else plain()
    assert gap(model) < 1e-12
    assert np.isinf(model.kappa_).all()
    for cid in DATA:
        assert_allclose(model.cluster_centers_[cid], model.cluster_centers_["a"], atol=1e-9)
        assert adjusted_rand_score(SILOS[cid][1], model.predict(DATA[cid], silos=cid)) > 0.8
    both = fitted(scale=scale, graph=Graph(coupling="average", kappa=float("inf")))
    assert_array_equal(model.labels_, both.labels_)
    assert_array_equal(model.consensus_, both.consensus_)


def test_counts_weighed_as_words_are_texts_in_dense_arrays_too():
    assert np.isinf(fitted({cid: X.toarray() for cid, X in DATA.items()}, scale="tfidf").kappa_).all()


@pytest.mark.parametrize("options", [{"beta": 0.0}, {"coupling": "tensor", "beta": 0.02}, {"coupling": "subspace"}])
def test_not_where_something_else_is_asked_for(options):
    model = fitted(**options)
    assert gap(model) > 1e-3
    assert np.isfinite(model.kappa_).all()


def test_a_kappa_that_is_given_is_used():
    model = fitted(graph=Graph(kappa=10))
    assert_allclose(model.kappa_, 10)
    assert gap(model) < 1e-12


def test_a_coupling_that_is_given_leaves_kappa_open():
    model = fitted(coupling="average")
    assert gap(model) < 1e-12
    assert np.isfinite(model.kappa_).all()


def test_dense_rows_are_coupled_by_the_tensor():
    data = {cid: X.toarray() for cid, X in DATA.items()}
    one, other = fitted(data), fitted(data, coupling="tensor")
    assert gap(one) > 1e-3
    assert_array_equal(one.consensus_, other.consensus_)
    assert_array_equal(one.labels_, other.labels_)
    assert_array_equal(one.kappa_, other.kappa_)


@pytest.mark.parametrize(
    ("options", "words", "coupling", "spread"),
    [
        ({}, True, "average", 0.0),
        ({}, False, "tensor", None),
        ({"beta": 0.0}, True, "tensor", None),
        ({"coupling": "average"}, True, "average", None),
        ({"coupling": "subspace"}, True, "subspace", None),
        ({"kappa": 4.0}, True, "average", 0.25),
        ({"kappa": 4.0}, False, "tensor", 0.25),
    ],
)
def test_what_auto_stands_for(options, words, coupling, spread):
    settings = Settings(**{"n_clusters": 3, "coupling": "auto"} | options)
    assert (settings.coupling_of(words), settings.spread_of(words)) == (coupling, spread)


def test_the_paper_couples_texts_by_the_tensor():
    assert FMTC.as_published(3)._settings().coupling_of(words=True) == "tensor"


def test_sums_take_the_subspace():
    model = fitted(privacy="sums")
    assert model._settings().coupling == "subspace"
    assert np.isfinite(model.kappa_).all()


# ------------------------------------------------------------------------------------------------------------ later


def test_a_run_that_resumes_comes_to_the_same(tmp_path):
    whole = fitted(max_iter=4, tol=0)
    first = FMTC(TOPICS, view="graph", max_iter=2, tol=0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first.fit(DATA, checkpoint=tmp_path / "run")
        again = first.set_params(max_iter=4).fit(DATA, checkpoint=tmp_path / "run", resume=True)
    assert_array_equal(again.labels_, whole.labels_)
    assert_allclose(again.consensus_, whole.consensus_, atol=1e-12)
    assert np.isinf(again.kappa_).all()


def test_texts_stay_texts_in_files_and_updates(tmp_path):
    model = load(plain().save(tmp_path / "model")).set_params(random_state=0)
    assert model._fitted.shared.words
    assert gap(model) < 1e-9
    model.update({"a": DATA["a"]})
    assert np.isinf(model.kappa_).all()
    assert gap(model) < 1e-9
    assert adjusted_rand_score(SILOS["a"][1], model.labels_) > 0.8


def test_a_newcomer_has_the_means_of_all():
    X, y = texts(40, 9)
    model = join_later(kit_of(plain()), X, name="late")
    assert adjusted_rand_score(y, model.labels_) > 0.8
