"""Texts, by default: one projection for all silos and the same means of clusters, unless another is asked for."""

import copy
import warnings
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fmtc import FMTC, Graph, join_later, load
from fmtc.kernels.scaling import Scaling
from fmtc.later.publish import kit_of
from fmtc.models import Units
from fmtc.protocol import home
from fmtc.refit import GraphCommon
from fmtc.settings import Settings, by_view

TOPICS, WORDS = 3, 30


def texts(n, seed, words=range(WORDS)):
    """Counts of words; each topic has ten words of its own, and each text eight words, mostly of its topic."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % TOPICS)
    chances = np.where(np.asarray(words) // 10 == y[:, None], 0.09, 0.005)
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


# --------------------------------------------------------------------------------------------------- words of its own


def unlike(n, m=3):
    """Silos in which words have other meanings: each has topics of its own, of the same words."""
    return {f"s{t}": texts(n, t, np.random.default_rng(10 + t).permutation(WORDS)) for t in range(m)}


@cache
def compared(kind):
    """Silos of many texts, of the same topics or of unlike ones, and the models with and without the comparison."""
    silos = unlike(330) if kind == "unlike" else {f"s{t}": texts(330, t) for t in range(3)}
    data = {cid: X for cid, (X, _) in silos.items()}
    return silos, fitted(data, scale="tfidf"), fitted(data, scale="tfidf", graph=Graph(own=False))


def hits(model, silos):
    return min(adjusted_rand_score(y, model.predict(X, silos=cid)) for cid, (X, y) in silos.items())


def test_a_silo_whose_words_mean_something_else_keeps_its_own_clusters():
    silos, on, off = compared("unlike")
    assert set(on.run_.choices.values()) == {"alone"}
    assert hits(on, silos) > 0.9 > 0.6 > hits(off, silos)
    for cid, (X, _) in silos.items():
        assert_array_equal(on.predict(X, silos=cid), on.labels_[330 * int(cid[1]) :][:330])
        assert on._fitted.homes[cid].common.mixture is None


@pytest.mark.filterwarnings("ignore")
def test_silos_that_lack_clusters_keep_the_axes_of_all():
    """Clusters of their own would have other axes than those of silos that lack others."""
    silos, *_ = compared("unlike")
    data = {cid: X for cid, (X, _) in silos.items()}
    model = FMTC(TOPICS + 1, clusters_per_silo=TOPICS, view="graph", scale="tfidf", random_state=0).fit(data)
    assert set(model.run_.choices.values()) == {"federated"}
    assert model.embedding_.shape == (len(model.labels_), TOPICS + 1)


def test_clusters_of_its_own_have_the_numbers_of_common_ones():
    _, on, off = compared("unlike")
    agree = [np.mean(np.take(order, on.labels_[:330]) == off.labels_[:330]) for order in permutations(range(TOPICS))]
    assert agree[0] == max(agree)


@pytest.mark.parametrize("scale", ["none", "tfidf"])
def test_weighed_columns_are_none_of_the_model(scale, monkeypatch):
    """Distances between rows are those of the run."""
    silos, weighed = unlike(330, 2), home.own_commons
    monkeypatch.setattr(home, "own_commons", lambda common, k: weighed(common, k)[1:] * 2)
    data = {cid: X for cid, (X, _) in silos.items()}
    on, off = (
        fitted(data, scale=scale, graph=Graph(coupling="average", kappa=1e9, **only)) for only in ({}, {"own": False})
    )
    assert set(on.run_.choices.values()) == {"alone"}
    for cid, X in data.items():
        assert_array_equal(on._models[cid].scaled(X).toarray(), off._models[cid].scaled(X).toarray())


def test_a_silo_whose_words_mean_the_same_keeps_the_common_clusters():
    _, on, off = compared("alike")
    assert set(on.run_.choices.values()) == {"federated"}
    assert_array_equal(on.labels_, off.labels_)


def test_the_choice_sends_nothing():
    _, on, off = compared("unlike")
    traffic = [[(r.bytes_up, r.bytes_down) for r in model.run_.rounds] for model in (on, off)]
    assert traffic[0] == traffic[1]
    assert_array_equal(on.consensus_, off.consensus_)


@pytest.mark.parametrize("options", [{"graph": Graph(own=False)}, {"graph": Graph(final="kmeans")}])
def test_nobody_chooses_where_that_is_not_wanted(options, monkeypatch):
    monkeypatch.setattr(home, "own_in_graph", None)
    fitted({cid: X for cid, (X, _) in unlike(330, 2).items()}, **options)


def test_with_few_rows_nobody_looks_for_clusters_of_its_own(monkeypatch):
    monkeypatch.setattr(home, "refit", None)
    fitted({cid: X for cid, (X, _) in unlike(299, 2).items()})


def test_clusters_of_its_own_are_calibrated_by_folds_of_their_own():
    silos, on, _ = compared("unlike")
    model = copy.deepcopy(on).calibrate({cid: X for cid, (X, _) in silos.items()})
    X, y = texts(99, 9, np.random.default_rng(10).permutation(WORDS))  # new rows of s0
    strange, _ = texts(99, 9, np.random.default_rng(11).permutation(WORDS))  # and of s1
    assert adjusted_rand_score(y, model.predict(X, silos="s0")) > 0.9
    assert model.drift(X, silos="s0").p_value > 0.01 > model.drift(strange, silos="s0").p_value


def test_clusters_of_its_own_go_on_with_new_rows():
    silos, on, _ = compared("unlike")
    model = copy.deepcopy(on).update({"s1": silos["s1"][0]})
    assert model.run_.choices["s1"] == "alone"
    assert hits(model, silos) > 0.9


def test_what_neighbours_tell():
    X = sp.csr_array(np.repeat([[3.0, 1.0], [1.0, 3.0], [0.0, 0.0]], [10, 10, 10], axis=0))
    new, labels = sp.csr_array([[0.2, 0.1], [0.1, 0.2]]), np.repeat([0, 1, 2], 10)
    assert home.told(X, labels, new, np.array([1, 0])) == pytest.approx(
        np.log(2)
    )  # rows without words are no neighbours
    assert home.told(X, labels, new, np.array([0, 0])) == 0
    assert home.told(X[15:], labels[15:], new, np.array([0, 1])) == 0  # too few rows with words


@pytest.mark.parametrize("keep", [None, np.arange(2)])
def test_columns_weigh_as_much_as_the_run_uses_them(keep):
    scaling = None if keep is None else Scaling(np.ones(2), keep=keep)
    common = GraphCommon(Units(scaling=scaling), np.array([[3.0, 4.0], [0.0, 0.0]]), 0.03)
    plain, weighed = home.own_commons(common, 3)
    assert plain.units == common.units
    assert plain.anchor.shape == weighed.anchor.shape == (2, 3)
    assert not plain.anchor.any()
    rows = weighed.units.scaling.apply(sp.csr_array([[1.0, 1.0], [2.0, 0.0]])).toarray()
    assert_allclose(rows, [[1, 0], [1, 0]], atol=1e-6)
    ratio = home.own_commons(replace(common, anchor=np.array([[4.0], [1.0]])), 3)[1].units.scaling.stretch
    assert ratio[1] / ratio[0] == pytest.approx(2)  # the root


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
