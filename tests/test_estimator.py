"""FMTC as scikit-learn's users meet it."""

import copy
import inspect
import json
import pickle
import re
import sys
import warnings
from dataclasses import asdict, replace
from functools import partial
from itertools import permutations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import load_digits, make_circles, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.views import FEW, graph_view

from fmtc import FMTC, Graph, Mixture, load
from fmtc.advice import bic
from fmtc.artifacts.files import jsonable
from fmtc.artifacts.onnx import export_onnx
from fmtc.demo import example_tables
from fmtc.errors import DataError, InputError, RowsWarning
from fmtc.kernels.graph import knn_affinity
from fmtc.metrics import clustering_accuracy
from fmtc.schema import Column, Encoded, Schema
from fmtc.settings import Settings, by_view

# well-separated groups are parts of the graph without a link: the warning is right, and tested in test_bad_input.py
pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

CENTERS = 6 * np.eye(6)[:3]  # three concepts that all silos share
SIZES = {"north": (40, 25, 12), "south": (28, 40, 14), "west": (45, 20, 16)}  # concept 0 is large in most, 2 in none


def silo(sizes, seed, shift=0.0):
    """Rows of the three concepts in random order, and the concept of each."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return CENTERS[y] + shift + rng.normal(size=(len(y), 6)), y


SILOS = {name: silo(sizes, seed, shift=3.0 * seed) for seed, (name, sizes) in enumerate(SIZES.items())}
DATA = {name: X for name, (X, _) in SILOS.items()}
TRUTH = {name: y for name, (_, y) in SILOS.items()}
MIX = np.random.default_rng(9).permutation(sum(map(len, DATA.values())))  # all silos in one array, rows mixed
X_ALL = np.vstack(list(DATA.values()))[MIX]
CLIENTS = np.repeat(list(DATA), [len(X) for X in DATA.values()])[MIX]
NAMES = [f"word{j}" for j in range(6)]


def short(n_clusters=3, **params):
    return graph_view(n_clusters, **{"random_state": 0, "max_iter": 5, "n_init": 3} | params)


@pytest.fixture(scope="module")
def model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return short().fit(DATA)


def assert_same_bytes(one, other):
    assert one.silos_ == other.silos_
    pairs = [(one.labels_, other.labels_), (one.embedding_, other.embedding_), (one.consensus_, other.consensus_)]
    for cid in one.silos_:
        pairs += [
            (one.projections_[cid], other.projections_[cid]),
            (one.cluster_centers_[cid], other.cluster_centers_[cid]),
        ]
    for a, b in pairs:
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


# ----------------------------------------------------------------------------------------- scikit-learn's own word


# Four clusters because scikit-learn's sparse check reads `multi_class` from the classifier tags, which we set so that
# predict_proba is looked at at all, and then expects one column for each of its four classes.
def not_for_us(estimator):
    """Checks of scikit-learn that ask for something else than it documents, and what; the user guide says it too."""
    why = "asks predict_proba for four columns, the number of classes in its y, which a clusterer ignores"
    checks = ("check_estimator_sparse_array", "check_estimator_sparse_matrix")
    return {} if estimator.n_clusters == 4 else dict.fromkeys(checks, why)


@parametrize_with_checks(
    [
        FMTC(max_iter=2, mixture=Mixture(n_init=1)),
        FMTC(4, view="graph", scale="global", max_iter=3, graph=Graph(coupling="subspace", final="kmeans", n_init=1)),
    ],
    expected_failed_checks=not_for_us,
)
@pytest.mark.filterwarnings("ignore:clusters? .* no rows. fit again")  # eight for three groups of ten rows
def test_scikit_learn_has_no_complaint(estimator, check):
    check(estimator)


@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix])
def test_what_the_two_checks_mean_to_check(container):
    """Sparse rows with any number of clusters: as many columns of probabilities as clusters."""
    X = container(np.where(X_ALL > 1, X_ALL, 0))
    model = FMTC(random_state=0, max_iter=2, mixture=FEW).fit(X)
    assert model.predict(X).shape == (len(X_ALL),)
    assert model.predict_proba(X).shape == (len(X_ALL), 8)


def test_parameters_and_defaults():
    found = {name: p.default for name, p in inspect.signature(FMTC).parameters.items()}
    assert found == {
        "n_clusters": 8, "clusters_per_silo": None, "view": "auto", "scale": "auto", "graph": None, "mixture": None,
        "privacy": None, "max_iter": 25, "tol": 1e-3, "random_state": None, "n_jobs": None, "device": "cpu",
        "verbose": 0,
    }  # fmt: skip
    assert len(found) <= 13
    assert Graph().get_params() == {
        "alpha": 1.0, "beta": 0.15, "coupling": "auto", "n_neighbors": "auto", "ridge": 0.03, "rho": None,
        "schatten_p": 1.0, "align": True, "bandwidth": None,
        "nonmutual_weight": 0.25,
        "step_size": None, "n_inner": 3, "accelerate": True, "center_features": "auto", "lift": "auto",
        "max_features": 2000, "labels_from": "projection", "final": "mixture", "kappa": None, "n_init": 10,
        "message_dtype": None, "contain": True, "own": True,
    }  # fmt: skip
    kinds = [p.kind for p in inspect.signature(FMTC).parameters.values()]
    assert kinds[0] is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert set(kinds[1:]) == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    "estimator",
    [
        FMTC(5, clusters_per_silo={"a": 1}, random_state=3, graph=Graph(beta=0.4, coupling="subspace")),
        FMTC(2, graph=Graph(ridge=0.1, final="kmeans")),
        FMTC.as_published(4, alpha=10.0, beta=0.2, rho=0.5, schatten_p=0.5, n_neighbors=7),
    ],
)
def test_clone_keeps_every_parameter(estimator):
    params = estimator.get_params()
    assert clone(estimator).get_params() == params
    plain = estimator.get_params(deep=False)
    assert FMTC(**plain).get_params() == params
    assert FMTC().set_params(**params).get_params() == params
    assert estimator.graph is None or clone(estimator).graph is not estimator.graph


def test_settings_of_a_view_by_name():
    model = FMTC(2).set_params(graph__ridge=0.5, tol=0.3)
    assert (model.graph, model.tol) == (Graph(ridge=0.5), 0.3)
    twin = clone(model).set_params(graph__ridge=0.7)
    assert (model.graph.ridge, twin.graph.ridge) == (0.5, 0.7)
    assert model.get_params()["graph__ridge"] == 0.5
    with pytest.raises(ValueError, match="rigde"):
        model.set_params(graph__rigde=1.0)
    with pytest.raises(TypeError, match="graph must be None"):
        FMTC(2, graph={"ridge": 0.5}).fit(X_ALL)


def test_the_settings_of_a_fit_are_a_copy():
    """A run keeps its settings, whatever happens to the estimator's own meanwhile."""
    model = FMTC(2, graph=Graph(n_init=2))
    settings = model._settings()
    model.set_params(graph__n_init=5)
    assert settings.n_init == 2


def test_as_published_is_a_set_of_parameters():
    model = FMTC.as_published(4, alpha=10.0, beta=0.2, rho=0.5)
    plain = {"n_clusters": 4, "view": "graph", "scale": "none", "max_iter": 50}
    assert model.get_params(deep=False) == FMTC().get_params(deep=False) | plain | {"graph": model.graph}
    assert model.graph == Graph(
        alpha=10.0, beta=0.2, coupling="tensor", rho=0.5, align=False, center_features=False,
        lift=False, labels_from="embedding", final="kmeans",
        nonmutual_weight=1.0, accelerate=False, n_inner=5, n_neighbors=10, contain=False, own=False,
    )  # fmt: skip


@pytest.mark.parametrize("call", ["predict", "predict_proba", "transform", "score"])
def test_nothing_works_before_fit(call):
    with pytest.raises(NotFittedError):
        getattr(FMTC(), call)(X_ALL)


def test_nothing_fitted_shows_before_fit_and_all_of_it_after(model, tmp_path):
    fitted = ["labels_", "silos_", "n_clusters_", "view_", "view_reason_", "projections_", "cluster_centers_",
              "n_iter_", "converged_", "n_features_in_", "embedding_", "consensus_", "kappa_",
              "atlas_", "run_"]  # fmt: skip
    fresh = FMTC()
    assert [name for name in [*fitted, "feature_names_in_"] if hasattr(fresh, name)] == []
    assert [name for name in fitted if not hasattr(model, name)] == []
    for call in (lambda: fresh.save(tmp_path / "m"), lambda: export_onnx(fresh, "a", tmp_path / "a.onnx")):
        with pytest.raises(NotFittedError):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_of_a_fitted_model(model, again):
    twin = again(model)
    assert_same_bytes(model, twin)
    assert twin.predict_proba(X_ALL, silos=CLIENTS).tobytes() == model.predict_proba(X_ALL, silos=CLIENTS).tobytes()


# ------------------------------------------------------------------------------------------------------ containers

DENSE = {
    "array": np.asarray,
    "fortran": np.asfortranarray,
    "list": lambda X: X.tolist(),
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
}
SPARSE = {
    name: getattr(sp, name)
    for name in ("csr_array", "csc_matrix", "coo_array", "lil_matrix", "dok_array", "bsr_matrix", "csr_matrix")
}


@pytest.mark.parametrize(("containers", "X"), [(DENSE, X_ALL), (SPARSE, np.where(X_ALL > 4, X_ALL, 0))])
def test_the_container_does_not_matter(containers, X):
    first, *others = [(wrap(X), short(max_iter=2).fit(wrap(X), silos=CLIENTS)) for wrap in containers.values()]
    for wrapped, found in others:
        assert_same_bytes(found, first[1])
        assert_array_equal(found.predict(wrapped, silos=CLIENTS), first[1].labels_)


def test_sparse_rows_are_not_centred_and_else_like_dense_ones():
    X = np.where(X_ALL > 4, X_ALL, 0)
    sparse = short().fit(sp.csr_array(X), silos=CLIENTS)
    for params in ({}, {"center_features": True}):
        dense = short(**{"center_features": False} | params).fit(X, silos=CLIENTS)
        other = short(**params).fit(sp.csr_array(X), silos=CLIENTS)
        assert_array_equal(other.labels_, dense.labels_)
        for cid in dense.silos_:
            assert_allclose(other.projections_[cid], dense.projections_[cid], rtol=1e-7, atol=1e-9)
    assert abs(sparse.projections_["north"] - dense.projections_["north"]).max() > 1e-3  # centring is not idle


@pytest.mark.parametrize(
    ("container", "name_of"),
    [("array", list), ("csr_array", np.array), ("csc_matrix", pd.Series), ("pandas", pd.Categorical),
     ("polars", pl.Series), ("list", lambda names: np.array(names, dtype=object))],
)  # fmt: skip
def test_a_mapping_is_the_same_as_one_name_per_row(container, name_of):
    wrap = (DENSE | SPARSE)[container]
    one = short(max_iter=2).fit(wrap(X_ALL), silos=name_of(CLIENTS.tolist()))
    parts = {cid: wrap(X_ALL[cid == CLIENTS]) for cid in ("west", "north", "south")}  # in another order
    many = short(max_iter=2).fit(parts)
    back = np.concatenate([np.flatnonzero(cid == CLIENTS) for cid in parts])
    assert one.silos_ == many.silos_ == ["north", "south", "west"]
    assert_array_equal(one.labels_[back], many.labels_)
    assert one.embedding_[back].tobytes() == many.embedding_.tobytes()
    for cid in one.silos_:
        assert one.projections_[cid].tobytes() == many.projections_[cid].tobytes()


@pytest.mark.parametrize(
    ("wrap", "params"), [(np.asarray, {}), (sp.csr_array, {"coupling": "subspace", "schatten_p": 0.5})]
)
def test_float32_stays_float32(wrap, params):
    X = wrap(X_ALL.astype(np.float32))
    model = short(**params).fit(X, silos=CLIENTS)
    one = {"silos": CLIENTS[0]}
    found = [model.embedding_, model.consensus_, *model.projections_.values(), *model.cluster_centers_.values()]
    found += [call(X, silos=CLIENTS) for call in (model.transform, model.predict_proba)]
    found += [call(X[:5], **one) for call in (model.transform, model.predict_proba)]
    assert {array.dtype for array in found} == {np.dtype(np.float32)}
    assert model.labels_.dtype == model.predict(X, silos=CLIENTS).dtype == model.predict(X, **one).dtype == np.int64
    double = short(**params).fit(X.astype(np.float64), silos=CLIENTS)
    assert_array_equal(model.labels_, double.labels_)


@pytest.mark.parametrize("call", ["transform", "predict_proba"])
def test_the_precision_of_an_answer_does_not_depend_on_how_rows_are_handed_in(model, call):
    X = DATA["north"].astype(np.float32)
    alone = getattr(model, call)(X, silos="north")
    assert getattr(model, call)({"north": X})["north"].dtype == alone.dtype
    assert getattr(model, call)(X_ALL.astype(np.float32), silos=CLIENTS).dtype == alone.dtype


def test_rounded_messages_change_next_to_nothing():
    """Handwritten digits in four silos: at most one label in a thousand, embeddings in the sixth digit."""
    X = load_digits().data[:1000]
    clients = np.arange(len(X)) % 4
    plain, rounded = (short(10, max_iter=20, message_dtype=dtype).fit(X, silos=clients) for dtype in (None, "float32"))
    assert np.mean(rounded.labels_ != plain.labels_) <= 0.001
    assert 0 < np.abs(rounded.embedding_ - plain.embedding_).max() < 1e-5
    assert rounded.embedding_.dtype == rounded.projections_["0"].dtype == np.float64
    assert {record.bytes_up for record in rounded.run_.rounds} == {4 * (64 * 10 * 4 + 2 * 8)}
    single = short(10, max_iter=2, message_dtype="float32").fit(X[:200].astype(np.float32))
    assert {single.embedding_.dtype, single.projections_["all"].dtype} == {np.dtype(np.float32)}


def test_one_silo_in_double_precision_takes_the_others_along():
    model = short().fit(DATA | {"north": DATA["north"].astype(np.float32)})
    assert {W.dtype for W in model.projections_.values()} == {np.dtype(np.float64)}


@pytest.mark.parametrize("frame", [DENSE["pandas"], DENSE["polars"]], ids=["pandas", "polars"])
def test_feature_names(frame):
    model = short().fit({cid: frame(X) for cid, X in DATA.items()})
    assert model.feature_names_in_.tolist() == NAMES
    X = frame(DATA["north"])
    assert_array_equal(model.predict(X, silos="north"), model.predict({"north": X})["north"])
    swapped = X[[*NAMES[1:], NAMES[0]]]  # columns have names: their order does not matter
    assert_array_equal(model.predict(swapped, silos="north"), model.predict(X, silos="north"))
    twice = short().fit({"north": X, "south": X}), short().fit({"north": X, "south": swapped})
    assert_same_bytes(*twice)
    assert twice[1].feature_names_in_.tolist() == NAMES
    renamed = X.rename(columns={"word0": "other"}) if isinstance(X, pd.DataFrame) else X.rename({"word0": "other"})
    with pytest.raises(ValueError, match="'word0'"):
        model.predict(renamed, silos="north")
    with pytest.raises(ValueError, match=r"(?s)'north'.*south: lacks 'word0'"):
        short().fit({"north": X, "south": renamed})


def test_no_feature_names_without_column_names(model):
    assert not hasattr(model, "feature_names_in_")


# -------------------------------------------------------------------------------------------------------- new rows


def test_answers_have_the_shape_of_the_question(model):
    n = len(X_ALL)
    shapes = {"predict": (n,), "predict_proba": (n, 3), "transform": (n, 3)}
    for call, shape in shapes.items():
        answer = getattr(model, call)(X_ALL, silos=CLIENTS)
        assert answer.shape == shape
        by_client = getattr(model, call)({"west": DATA["west"], "north": DATA["north"]})
        assert list(by_client) == ["west", "north"]
        for cid, part in by_client.items():
            mine = np.repeat(list(DATA), list(map(len, DATA.values()))) == cid
            for other in (getattr(model, call)(DATA[cid], silos=cid), answer[np.argsort(MIX)][mine]):
                assert_allclose(part, other, rtol=1e-10, atol=1e-12)  # rows stand elsewhere: the last bit may differ


def test_fit_predict_and_fit_transform_are_shorthands(model):
    assert_array_equal(short().fit_predict(X_ALL, silos=CLIENTS), model.labels_[MIX])
    assert_allclose(
        short().fit_transform(X_ALL, silos=CLIENTS), model.transform(X_ALL, silos=CLIENTS), rtol=0, atol=1e-12
    )
    labels, moved = short().fit_predict(DATA), short().fit_transform(DATA)
    assert list(labels) == list(moved) == list(DATA)
    for cid, X in DATA.items():
        assert_array_equal(labels[cid], model.predict(X, silos=cid))
        assert_array_equal(moved[cid], model.transform(X, silos=cid))


def test_transform_is_the_normalised_projection(model):
    X = DATA["south"]
    E = (X - X.mean(axis=0)) @ model.projections_["south"]
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    assert_allclose(model.transform(X, silos="south"), E, rtol=1e-10, atol=1e-12)
    distance = np.linalg.norm(E[:, None] - model.cluster_centers_["south"], axis=2)
    assert_array_equal(model.predict(X, silos="south"), distance.argmin(axis=1))


@pytest.mark.parametrize(("coupling", "wrap"), [("tensor", sp.csr_array), ("subspace", np.asarray)])
def test_predict_on_the_training_rows_is_labels(coupling, wrap):
    noise = np.random.default_rng(1).normal(size=(200, 8))  # no groups: many rows close to a border
    X = np.where(noise > 0, noise, 0)
    names = np.arange(200) % 3
    model = short(4, coupling=coupling).fit(wrap(X), silos=names)
    assert_array_equal(model.predict(wrap(X), silos=names), model.labels_)
    assert np.bincount(model.labels_, minlength=4).min() > 0


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_predict_is_labels_where_rows_repeat_and_clusters_stay_empty():
    rng = np.random.default_rng(4)
    data = {cid: np.repeat(rng.normal(size=(4, 5)), rng.integers(3, 9, 4), axis=0) for cid in "abc"}
    with pytest.warns(ConvergenceWarning, match="4 of 6"):
        model = short(6).fit(data)
    found = model.predict(data)
    assert_array_equal(np.concatenate(list(found.values())), model.labels_)


def test_labels_from_the_embedding_are_the_only_ones_predict_may_miss():
    model = FMTC.as_published(3, alpha=1.0, beta=0.1, rho=0.1, random_state=0, max_iter=5).fit(DATA)
    assert [clustering_accuracy(TRUTH[cid], labels) for cid, labels in model.predict(DATA).items()] == [1.0] * 3
    sizes = [np.bincount(labels).tolist() for labels in model._as_given(DATA, model.labels_).values()]
    assert sizes == [sorted(s, reverse=True) for s in SIZES.values()]  # unaligned: each client's own order, by size


@pytest.mark.parametrize(("wrap", "dtype"), [(np.asarray, np.float64), (sp.csr_array, np.float32)])
def test_a_row_does_not_care_about_its_batch(wrap, dtype):
    rng = np.random.default_rng(3)
    X = wrap(rng.normal(size=(120, 30)).astype(dtype))
    names = rng.permutation(np.arange(120) % 2).astype(str)
    model = short(5).fit(X, silos=names)
    whole = {call: getattr(model, call)(X, silos=names) for call in ("predict", "transform", "predict_proba")}
    batches = [[i] for i in range(0, 120, 7)] + [rng.permutation(120), np.arange(50), np.arange(50, 120), [3, 3, 3]]
    for call, expected in whole.items():
        close = {"rtol": 0, "atol": 1e-12 if dtype == np.float64 else 1e-4} if call != "predict" else {"rtol": 0}
        for rows in batches:
            assert_allclose(getattr(model, call)(X[rows], silos=names[rows]), expected[rows], **close)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(exponent=st.floats(-15, 15), offset=st.floats(-3, 3), seed=st.integers(0, 2**20))
def test_probabilities_sum_to_one_and_agree_with_predict(model, dtype, exponent, offset, seed):
    rng = np.random.default_rng(seed)
    X = (10.0**exponent * (offset + rng.normal(size=(20, 6)) * 10.0 ** rng.uniform(-3, 3, size=(20, 1)))).astype(dtype)
    P = model.predict_proba(X, silos="north")
    assert (P >= 0).all()
    assert_allclose(P.sum(axis=1), 1, rtol=0, atol=4 * np.finfo(P.dtype).eps)
    assert_array_equal(P.argmax(axis=1), model.predict(X, silos="north"))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [short, partial(FMTC, view="mixture", max_iter=3, random_state=0, mixture=FEW)])
def test_probabilities_agree_with_predict_up_to_the_border(make, dtype):
    """Halve the way between two rows of different clusters until no number lies between."""
    X = np.random.default_rng(0).normal(size=(300, 6)).astype(dtype)
    model = make(4).fit(X)
    a, b = X[:150].copy(), X[150:].copy()
    label = model.predict(a)
    for _ in range(60):
        middle = (a + b) / 2
        same = (model.predict(middle) == label)[:, None]
        a, b = np.where(same, middle, a), np.where(same, b, middle)
    for rows in (a, b):
        assert_array_equal(model.predict_proba(rows).argmax(axis=1), model.predict(rows))


def test_probabilities_are_those_of_equal_round_gaussians():
    model = short(final="kmeans").fit(DATA)
    E, C = model.transform(DATA["west"], silos="west"), model.cluster_centers_["west"]
    square = np.square(E[:, None] - C).sum(axis=2)
    labels = model.predict(DATA["west"], silos="west")
    variance = square[np.arange(len(E)), labels].mean() / 3
    density = np.exp(-0.5 * square / variance)
    expected = density / density.sum(axis=1, keepdims=True)
    assert_allclose(model.predict_proba(DATA["west"], silos="west"), expected, rtol=1e-6, atol=1e-12)


# ----------------------------------------------------------------------------------------------------- client names


def test_whole_numbers_are_names_too():
    numbers = {7: DATA["north"], 10: DATA["south"]}
    model = short().fit(numbers)
    assert model.silos_ == ["10", "7"]
    X, names = np.vstack(list(numbers.values())), np.repeat([7, 10], [len(X) for X in numbers.values()])
    for spelled in (names, names.astype(str), names.astype(object), pd.Series(names), pl.Series(names)):
        assert_array_equal(model.predict(X, silos=spelled), model.labels_)
    assert list(model.predict(numbers)) == [7, 10]
    assert_same_bytes(short().fit(X, silos=names), model)


def test_unknown_clients_are_told_who_is_known(model):
    known = "'east'.*'north', 'south', 'west'"
    X = DATA["north"]
    for call in (model.predict, model.predict_proba, model.transform, model.score):
        for question in ({"X": X, "silos": "east"}, {"X": {"north": X, "east": X}},
                         {"X": X, "silos": ["north"] * (len(X) - 1) + ["east"]}):  # fmt: skip
            with pytest.raises(ValueError, match=known):
                call(**question)
    with pytest.raises(ValueError, match=known):
        export_onnx(model, "east", "nowhere.onnx")


def test_a_model_of_many_must_be_told_whose_rows_these_are(model):
    for call in (model.predict, model.predict_proba, model.transform, model.score):
        with pytest.raises(ValueError, match=r"silos=.*'north', 'south', 'west'"):
            call(DATA["north"])
    alone = short().fit({"north": DATA["north"]})
    assert alone.silos_ == ["north"]
    assert_array_equal(alone.predict(DATA["north"]), alone.labels_)


# ------------------------------------------------------------------------------------------------------- numbering


@pytest.mark.filterwarnings("ignore:The server capped, set aside or refused what 'west' sent")  # in the last round
@pytest.mark.parametrize(("coupling", "seed"), [("tensor", 0), ("subspace", 0), ("tensor", 1), ("subspace", 2)])
def test_numbers_are_canonical(coupling, seed):
    """Whatever the seed, the order of rows and of clients: a concept has its number, 0 the largest on the whole."""
    rng = np.random.default_rng(seed)
    order = {cid: rng.permutation(len(X)) for cid, X in DATA.items()}
    names = rng.permutation(list(DATA))
    model = short(coupling=coupling, random_state=seed).fit({cid: DATA[cid][order[cid]] for cid in names})
    assert_array_equal(model.labels_, np.concatenate([TRUTH[cid][order[cid]] for cid in names]))


def test_averaging_agrees_on_one_projection_for_all():
    model = short(coupling="average", max_iter=200).fit(DATA)
    consensus = model.consensus_
    assert consensus.shape == (6, 3, 3)
    for t, cid in enumerate(model.silos_):
        assert_array_equal(consensus[:, :, t], consensus[:, :, 0])
        assert_allclose(model.projections_[cid], consensus[:, :, t], atol=0.01)
    assert_array_equal(model.labels_, np.concatenate(list(TRUTH.values())))
    assert_array_equal(np.concatenate(list(model.predict(DATA).values())), model.labels_)
    assert all(clustering_accuracy(y, model.predict(X, silos=cid)) == 1 for cid, (X, y) in SILOS.items())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_client_numbers_its_clusters_by_size(seed):
    X, y = SILOS["south"]
    model = short(random_state=seed).fit(X)
    assert_array_equal(model.labels_, np.array([1, 0, 2])[y])  # concept 1 is the largest here
    assert np.bincount(model.labels_).tolist() == [40, 28, 14]


@pytest.mark.parametrize(("coupling", "wrap"), [("tensor", np.asarray), ("subspace", sp.csr_array)])
def test_same_seed_same_bytes_whatever_n_jobs(coupling, wrap):
    noise = np.random.default_rng(2).normal(size=(700, 20))
    X = wrap(np.where(noise > 0.5, noise, 0))
    names = np.repeat(list("abcd"), (550, 50, 50, 50))  # above 500 rows the spectral start is iterative
    fits = [short(5, coupling=coupling, n_jobs=jobs, max_iter=3).fit(X, silos=names) for jobs in (1, 3)]
    assert_same_bytes(*fits)
    other_seed = short(5, coupling=coupling, max_iter=3, random_state=1).fit(X, silos=names)
    assert other_seed.labels_.tobytes() != fits[0].labels_.tobytes()  # noise has no one answer


def test_random_state_may_be_a_generator_of_the_old_kind():
    X = np.random.default_rng(2).normal(size=(120, 8))

    def fit(state):
        return short(6, n_init=1, random_state=state).fit(X)

    assert_same_bytes(fit(np.random.RandomState(5)), fit(np.random.RandomState(5)))
    state = np.random.RandomState(5)
    assert fit(state).labels_.tobytes() != fit(state).labels_.tobytes()  # a generator moves on


def test_threads_leave_the_warning_filters_alone():
    X = np.random.default_rng(0).normal(size=(400, 5))
    before = list(warnings.filters)
    for _ in range(3):
        short(4, n_jobs=8, max_iter=1, n_init=1).fit(X, silos=np.arange(400) % 8)
    assert list(warnings.filters) == before


# ------------------------------------------------------------------------------------------- the rest of scikit-learn


@pytest.mark.parametrize(("kind", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_set_output(model, kind, frame):
    columns = ["fmtc0", "fmtc1", "fmtc2"]
    assert model.get_feature_names_out().tolist() == columns
    framed = clone(model).set_output(transform=kind)
    fitted = framed.fit_transform(X_ALL, silos=CLIENTS)
    table = framed.transform(X_ALL, silos=CLIENTS)
    assert isinstance(fitted, frame)
    assert isinstance(table, frame)
    assert list(table.columns) == columns
    assert_allclose(table.to_numpy(), model.transform(X_ALL, silos=CLIENTS), rtol=0, atol=1e-12)
    with pytest.raises(TypeError):
        framed.transform(DATA)
    if kind == "pandas":
        rows = pd.DataFrame(DATA["north"], index=[f"row{i}" for i in range(len(DATA["north"]))])
        assert framed.transform(rows, silos="north").index.tolist() == rows.index.tolist()


def test_metadata_is_routed_through_a_pipeline():
    with config_context(enable_metadata_routing=True):
        step = short().set_fit_request(silos=True)
        for ask in ("predict", "predict_proba", "transform"):
            getattr(step, f"set_{ask}_request")(silos=True)
        pipe = make_pipeline(FunctionTransformer(lambda X: 2 * X), step)
        labels = pipe.fit(X_ALL, silos=CLIENTS).predict(X_ALL, silos=CLIENTS)
        bare = short().fit(2 * X_ALL, silos=CLIENTS)
        assert_array_equal(labels, bare.labels_)
        assert_array_equal(pipe.fit_predict(X_ALL, silos=CLIENTS), bare.labels_)
        assert_array_equal(pipe.predict_proba(X_ALL, silos=CLIENTS), bare.predict_proba(2 * X_ALL, silos=CLIENTS))
        assert_array_equal(pipe.fit_transform(X_ALL, silos=CLIENTS), bare.transform(2 * X_ALL, silos=CLIENTS))


def test_grid_search_needs_no_labels():
    X, grid = DATA["north"], [2, 3, 4]
    search = GridSearchCV(short(), {"n_clusters": grid}, cv=3).fit(X)
    scores = [[short(k).fit(X[train]).score(X[test]) for train, test in KFold(3).split(X)] for k in grid]
    assert_array_equal(search.cv_results_["mean_test_score"], np.mean(scores, axis=1))
    assert search.best_params_ == {"n_clusters": grid[np.argmax(np.mean(scores, axis=1))]}
    assert_array_equal(search.predict(X), search.best_estimator_.labels_)


QUICK = FMTC(view="mixture", random_state=0, max_iter=2, mixture=Mixture(n_init=1, contain=False, own=False))
FOLDS = KFold(2, shuffle=True, random_state=0)


@pytest.fixture(scope="module")
def scores_of_silos():
    """What a grid search over 2 and 3 clusters has to find on average."""

    def score(k, train, test):
        model = clone(QUICK).set_params(n_clusters=k).fit(X_ALL[train], silos=CLIENTS[train])
        return model.score(X_ALL[test], silos=CLIENTS[test])

    return [np.mean([score(k, *fold) for fold in FOLDS.split(X_ALL)]) for k in (2, 3)]


@pytest.mark.parametrize("way", ["metadata routing", "a column of pandas", "a column of polars"])
def test_grid_search_over_silos(way, scores_of_silos):
    """Without routing, scikit-learn passes `silos` to `fit` only; a column is there in `score` as well."""
    X, how = X_ALL, {"silos": CLIENTS}
    if way != "metadata routing":
        frame = pd.DataFrame if "pandas" in way else pl.DataFrame
        X, how = frame(dict(zip(NAMES, X_ALL.T, strict=True)) | {"hospital": CLIENTS}), {"silos": "hospital"}
    search = GridSearchCV(QUICK, {"n_clusters": [2, 3]}, cv=FOLDS)
    with config_context(enable_metadata_routing=way == "metadata routing"):
        search.fit(X, **how)
    assert_allclose(search.cv_results_["mean_test_score"], scores_of_silos, rtol=1e-12)
    assert search.best_estimator_.silos_ == sorted(DATA)
    if way != "metadata routing":
        assert_array_equal(search.predict(X), search.best_estimator_.labels_)


@pytest.mark.filterwarnings("ignore:Some fits failed")
def test_a_grid_search_whose_scores_would_all_be_nan_says_what_to_do():
    search = GridSearchCV(QUICK, {"n_clusters": [2, 3]}, cv=2)
    with pytest.raises(ValueError, match="All the 4 fits failed") as caught:
        search.fit(X_ALL, silos=CLIENTS)
    assert str(caught.value).count("enable_metadata_routing=True") == 1
    with pytest.raises(DataError, match=r"silos= to fit but not to score: .*enable_metadata_routing"):
        search.set_params(error_score="raise").fit(X_ALL, silos=CLIENTS)
    mine = GridSearchCV(QUICK, {"n_clusters": [2, 3]}, cv=2, scoring=lambda model, X: -model.n_clusters_)
    assert mine.fit(X_ALL, silos=CLIENTS).best_params_ == {"n_clusters": 2}  # a score that needs no silos
    assert GridSearchCV(QUICK, {"n_clusters": [2, 3]}, cv=2).fit(X_ALL, silos=["one"] * len(X_ALL)).best_score_ > 0


def blob_silos(kind, seed):
    """Four clean groups: as one silo, or in three that are shifted, have other shares, and of which one lacks some."""
    rng, centers = np.random.default_rng(seed), 5 * np.eye(4)
    if kind == "one silo":
        return centers.repeat(40, axis=0) + rng.normal(size=(160, 4))
    found = {}
    for t, name in enumerate(("east", "north", "south")):
        sizes = np.roll([50, 30, 20, 15], t) * ([1, 1, 0, 1] if name == "east" else 1)
        found[name] = centers.repeat(sizes, axis=0) + rng.normal(size=4) + rng.normal(size=(sizes.sum(), 4))
    return found


@pytest.mark.parametrize("kind", ["one silo", "three silos"])
def test_bic_finds_the_number_of_clean_groups(kind):
    X = blob_silos(kind, 0)
    found = {k: bic(FMTC(k, view="mixture", random_state=0, mixture=FEW).fit(X), X) for k in (2, 3, 4, 5, 6)}
    assert min(found, key=found.get) == 4


def test_bic_is_that_of_a_tied_mixture(tmp_path):
    X = blob_silos("one silo", 0) * [1, 10, 100, 1000]
    model = FMTC(4, view="mixture", random_state=0, mixture=replace(FEW, own=False)).fit(X)  # else columns vary apart
    one = model._models["all"]
    mixture = GaussianMixture(4, covariance_type="tied")
    mixture.means_, mixture.weights_ = one.centers, one.shares
    mixture.covariances_ = one.covariance * np.outer(one.frame.stretch, one.frame.stretch)
    mixture.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(mixture.covariances_))
    assert_allclose(bic(model, X), mixture.bic(X), rtol=1e-9)
    assert_allclose(bic(load(model.save(tmp_path / "model")), X), bic(model, X), rtol=1e-12)


def test_bic_counts_filled_cells_and_levels():
    rng = np.random.default_rng(0)
    X, y = blob_silos("one silo", 0), np.arange(160) // 40
    frame = pd.DataFrame(X, columns=list("wxyz")).assign(kind=np.where(rng.random(160) < 0.9, y % 2, 1 - y % 2) == 0)
    frame.loc[rng.random(160) < 0.1, "w"] = np.nan
    found = {k: bic(FMTC(k, view="mixture", random_state=0, mixture=FEW).fit(frame), frame) for k in (2, 3, 4, 5)}
    assert min(found, key=found.get) == 4


def test_bic_is_of_mixtures_over_few_columns():
    with pytest.raises(InputError, match=r'bic needs the likelihood of a mixture.*view="mixture".*advise\(\)'):
        bic(short().fit(DATA["north"]), DATA["north"])
    wide = np.hstack([DATA["north"]] * 10)
    with pytest.raises(InputError, match="at most 50 columns"):
        bic(FMTC(3, view="mixture", random_state=0, mixture=FEW).fit(wide), wide)


def test_score_prefers_the_true_partition(model):
    best = model.score(DATA)
    assert 0.99 < best <= 1
    assert max(short(k).fit(DATA).score(DATA) for k in (4, 5)) < best - 0.05  # concepts cut in two
    lost = short().fit({cid: np.random.default_rng(0).normal(size=X.shape) for cid, X in DATA.items()})
    assert lost.score(DATA) < best - 0.05  # fitted on noise


def test_score_is_one_minus_ncut_over_k(model):
    shares = []
    for cid, X in DATA.items():
        A, labels = knn_affinity(X, nonmutual_weight=0.25).toarray(), model.predict(X, silos=cid)
        shares += [A[labels == j][:, labels == j].sum() / A[labels == j].sum() for j in range(3)]
    assert_allclose(model.score(DATA), np.mean(shares), rtol=1e-12)


def test_silo_weights_are_relative_and_decide_the_ridge():
    names = list(DATA)
    equal = short().fit(DATA)
    assert_same_bytes(short().fit(DATA, silo_weights=dict.fromkeys(names, 2)), equal)
    # In the first round the anchor is zero: (XᵀX + ridge I) W = XᵀF ridge = 0.03/(m omega), and F does not know it.
    X = DATA["north"] - DATA["north"].mean(axis=0)
    squares = sum(np.square(Xt - Xt.mean(axis=0)).sum() for Xt in DATA.values())
    gram = X.T @ X * len(X_ALL) / squares / len(X)
    right_side = []
    for weight in (0.1, 1, 10):
        weights = {"north": weight, "south": 1, "west": 1}
        W = short(max_iter=1, align=False).fit(DATA, silo_weights=weights).projections_["north"]
        right_side.append(gram @ W + 0.03 / 3 * (weight + 2) / weight * W)
    assert_allclose(right_side[1:], [right_side[0]] * 2, rtol=1e-9, atol=1e-12)


def test_verbose_speaks_on_standard_error_and_else_nobody(capsys):
    short(max_iter=2, tol=0).fit(DATA)
    assert capsys.readouterr() == ("", "")
    short(max_iter=2, tol=0, verbose=1).fit(DATA)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["[FMTC] round 1", "[FMTC] round 2"]


def test_callbacks_and_checkpoints_reach_the_driver(tmp_path):
    seen = []
    undisturbed = short(max_iter=4, tol=0).fit(DATA, callbacks=[seen.append])
    assert seen == undisturbed.run_.rounds
    assert [record.round_no for record in seen] == [1, 2, 3, 4]

    def stumble(record):
        if record.round_no == 2:
            sys.exit("power cut")

    with pytest.raises(SystemExit):
        short(max_iter=4, tol=0).fit(DATA, callbacks=[stumble], checkpoint=tmp_path)
    resumed = short(max_iter=4, tol=0).fit(DATA, checkpoint=tmp_path, resume=True)
    assert_same_bytes(resumed, undisturbed)
    assert resumed.n_iter_ == 4
    assert not resumed.converged_


@pytest.mark.filterwarnings("ignore:Graph is not fully connected")
@pytest.mark.parametrize(("make", "shape", "least"), [(make_circles, {"factor": 0.4}, 1.0), (make_moons, {}, 0.98)])
def test_one_silo_is_spectral_clustering_with_predict(make, shape, least):
    """Rings and moons seen through a kernel map, where a linear projection can tell them apart."""
    raw, y = make(600, noise=0.05, random_state=0, **shape)
    X = Nystroem(gamma=10, n_components=100, random_state=0).fit_transform(raw)
    train, test = np.arange(0, 600, 2), np.arange(1, 600, 2)
    spectral = SpectralClustering(2, affinity="nearest_neighbors", n_neighbors=10, random_state=0).fit_predict(X[train])
    model = graph_view(2, n_neighbors=10, random_state=0).fit(X[train])
    assert clustering_accuracy(spectral, model.labels_) >= least
    assert clustering_accuracy(y[train], model.labels_) >= least
    assert clustering_accuracy(y[test], model.predict(X[test])) >= least
    assert clustering_accuracy(y, KMeans(2, n_init=10, random_state=0).fit_predict(X)) < 0.9  # not for everyone


def test_what_the_server_received_is_counted():
    """Three clients, five rounds: each field of each answer, as often as it came and with its bytes."""
    model = short(tol=0).fit(DATA)
    found = {(line.phase, line.field): (line.shape, line.times, line.bytes) for line in model.run_.received}
    assert found["hello", "n_samples"] == ((), 3, 3 * 8)
    assert found["round", "W"] == ((6, 3), 3 * 5, 3 * 5 * 6 * 3 * 8)
    assert found["finish", "centers"] == ((3, 3), 3, 3 * 9 * 8)
    assert ("moments", "means") not in found
    in_rounds = sum(line.bytes for line in model.run_.received if line.phase == "round")
    assert in_rounds == sum(record.bytes_up for record in model.run_.rounds)
    for ledger in model.run_.ledgers.values():
        left = {(line["phase"], entry["field"]) for line in ledger.lines() for entry in line["fields"]}
        assert left == set(found)


def test_a_comparison_of_views_keeps_its_warnings_to_itself():
    """Far groups are unconnected in the graph, which is no news where the mixture is chosen."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(middle, 1, (60, 3)) for middle in (0, 8, 80)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "cluster . has no rows")  # there are three groups
        assert FMTC(4, random_state=0, mixture=FEW).fit(X).view_ == "mixture"


def test_the_reason_for_a_view_counts_columns_of_the_table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(50, 9, 60), "dose": rng.normal(3, 1, 60), "sex": rng.choice(["f", "m", "x"], 60)}
    )
    model = FMTC(2, random_state=0, mixture=FEW).fit(frame)
    assert model.view_reason_ == "a table of 3 columns"


# ----------------------------------------------------------------------------------------------------------- the views


def blobs(centers, n, seed, sizes=None):
    """Rows about given centres, with variance 1; and the centre of each."""
    rng = np.random.default_rng(seed)
    y = rng.integers(len(centers), size=n) if sizes is None else np.repeat(np.arange(len(centers)), sizes)
    return np.array(centers, dtype=float)[y] + rng.normal(size=(len(y), len(centers[0]))), y


SHAPES = {
    "moons": (lambda seed: make_moons(400, noise=0.05, random_state=seed), "graph"),
    "circles": (lambda seed: make_circles(400, noise=0.05, factor=0.5, random_state=seed), "graph"),
    "blobs in 1-D": (lambda seed: blobs([[0], [8], [17], [25]], 400, seed), "mixture"),
    "blobs in 2-D": (lambda seed: blobs([[0, 0], [8, 0], [0, 8], [8, 8], [4, 16]], 400, seed), "mixture"),
    "blobs on a line": (lambda seed: blobs([[0, 0], [8, 8], [16, 16], [24, 24]], 400, seed), "mixture"),
}


@pytest.mark.filterwarnings("ignore:Graph is not fully connected")
@pytest.mark.parametrize("view", ["auto", "graph"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_of_the_textbooks(shape, view):
    """One silo and nothing set but the number of clusters: on the rows it was fitted on and on rows it never saw."""
    make, chosen = SHAPES[shape]
    (X, y), (new, y_new) = make(0), make(1)
    k = len(np.unique(y))
    model = FMTC(k, view=view, random_state=0).fit(X)
    assert model.view_ == ("graph" if view == "graph" else chosen)
    assert adjusted_rand_score(y, model.labels_) >= 0.95
    assert adjusted_rand_score(y_new, model.predict(new)) >= 0.95


@pytest.mark.parametrize("seed", [0, 1])
def test_a_large_cluster_beside_small_ones(seed):
    """500, 60 and 40 rows: cuts prefer even clusters, the mixture does not."""
    (X, y), (new, y_new) = (blobs([[0, 0], [6, 0], [0, 6]], 600, s, (500, 60, 40)) for s in (seed, 50 + seed))
    model = FMTC(3, random_state=seed).fit(X)
    assert model.view_ == "mixture"
    assert adjusted_rand_score(y, model.labels_) >= 0.9
    assert adjusted_rand_score(y_new, model.predict(new)) >= 0.9
    with pytest.warns(UserWarning, match="do not follow"):
        graph = graph_view(3, final="kmeans", random_state=0).fit(X)
    assert adjusted_rand_score(y, graph.labels_) < 0.7


def test_the_chosen_view_and_the_reason_are_told():
    rings = make_circles(400, noise=0.04, factor=0.4, random_state=0)[0]
    model = FMTC(2, random_state=0).fit(rings)
    assert (model.view_, model.view_reason_) == ("graph", "rows of 1 of 1 silos fall into parts that are no ellipses")
    assert model.consensus_.shape == (256, 2, 1)  # lifted
    assert len(model.run_.rounds) == model.n_iter_ <= 25  # the rounds of this view alone
    model.fit(blobs([[0, 0], [8, 0]], 300, 0)[0])
    assert (model.view_, model.view_reason_) == ("mixture", "2 columns, and no shapes that a mixture cannot follow")
    for gone in ("consensus_", "embedding_", "agreement_"):
        assert not hasattr(model, gone)
    with pytest.raises(AttributeError, match="cluster_centers_"):
        _ = model.projections_
    assert model.cluster_centers_["all"].shape == (2, 2)
    few = np.random.default_rng(0).normal(size=(30, 80))
    model = FMTC(4, random_state=0).fit(few)
    assert model.view_ == "graph"
    assert model.view_reason_ == "80 columns, and a mixture needs more than 8 rows of a silo for each cluster"
    for view in ("graph", "mixture"):  # nothing was chosen
        given = FMTC(2, view=view, max_iter=2, random_state=0).fit(DATA["north"])
        assert (given.view_, given.view_reason_) == (view, "")


def test_missing_cells_are_no_shapes():
    """The graph view fills them with means, and rows that share them fall into parts; the choice must not follow."""
    rng = np.random.default_rng(2)
    X, y = blobs(8 * np.eye(3, 4), 600, 0)
    X[rng.random(X.shape) < 0.2] = np.nan
    model = FMTC(3, random_state=0, mixture=FEW).fit(X)
    assert model.view_ == "mixture"
    assert adjusted_rand_score(y, model.labels_) > 0.8
    assert adjusted_rand_score(y, FMTC(3, view="graph", random_state=0).fit(X).labels_) < 0.7
    parts = {cid: blobs(8 * np.eye(3, 4, -1), 600, seed)[0] for seed, cid in enumerate("ab")}
    parts = {cid: np.where(rng.random(X.shape) < 0.2, np.nan, X) for cid, X in parts.items()}
    assert FMTC(3, random_state=0, mixture=FEW).fit(parts).view_ == "mixture"
    for X in parts.values():
        X[np.isnan(X).sum(axis=1) == 0, 0] = np.nan  # no row is complete
    assert FMTC(3, random_state=0, mixture=FEW).fit(parts).view_ == "mixture"


@pytest.mark.parametrize("missing", [False, True])
def test_outliers_are_rows_far_from_all_clusters(missing):
    """As many of ordinary rows as the level says, by the cells that are there; and all that are far away."""
    make = partial(blobs, [[0, 0, 0, 0], [8, 0, 0, 0], [0, 8, 0, 0]])
    rng = np.random.default_rng(2)
    silos = {name: make(1500, seed)[0] + shift for seed, (name, shift) in enumerate((("a", 0.0), ("b", 2.0)))}
    new = make(4000, 5)[0]
    far = new[:50] + 30.0
    if missing:
        silos = {name: np.where(rng.random(X.shape) < 0.2, np.nan, X) for name, X in silos.items()}
        new, far = (np.where(rng.random(X.shape) < 0.2, np.nan, X) for X in (new, far))
    model = FMTC(3, random_state=0, mixture=FEW).fit(silos)
    assert model.view_ == "mixture"
    for level in (0.1, 0.01):
        share = model.outliers(new, silos="a", level=level).mean()
        assert level / 2 < share < 2 * level
        if missing:
            half = np.isnan(new).sum(axis=1) == 2
            assert level / 3 < model.outliers(new[half], silos="a", level=level).mean() < 3 * level
    there = ~np.isnan(far).all(axis=1)
    assert model.outliers(far, silos="a").tolist() == there.tolist()
    by_silo = model.outliers({"b": far + 2.0, "a": new[:9]})
    assert list(by_silo) == ["b", "a"]
    assert by_silo["b"].dtype == bool
    assert by_silo["b"][there].all()
    assert model.predict_proba(far, silos="a").max(axis=1)[there].mean() > 0.9  # which probabilities do not say
    assert not model.outliers(np.full((1, 4), np.nan), silos="a").any()  # nothing is known of it


def test_outliers_need_a_mixture_and_a_level(model):
    with pytest.raises(ValueError, match='view="mixture"'):
        model.outliers(DATA["north"], silos="north")
    mixture = FMTC(3, view="mixture", max_iter=2, random_state=0, mixture=FEW).fit(DATA)
    for level, kind in ((0, ValueError), (1, ValueError), (np.nan, ValueError), ("0.1", TypeError)):
        with pytest.raises(kind, match="level"):
            mixture.outliers(DATA["north"], silos="north", level=level)
    with pytest.raises(NotFittedError):
        FMTC(3).outliers(DATA["north"])


@pytest.mark.parametrize("view", ["mixture", "graph"])
def test_pooling_strength_may_be_given(view):
    """From means that are the silo's own to means that all have in common."""
    data = {cid: X[:, :4] + shift for (cid, X), shift in zip(DATA.items(), (0.0, 0.3, 0.6), strict=True)}

    def fitted(kappa):
        params = {"view": view, "random_state": 0, "scale": "none", "kappa": kappa, "lift": False, "n_init": 2}
        return FMTC(3, **by_view(params)).fit(data)

    def apart(model):
        """How far the silos' means are from each other, but for a shift of a silo as a whole."""
        centers = np.array(list(model.cluster_centers_.values()))
        if view == "mixture":
            centers = centers - np.average(centers, axis=1, keepdims=True)
        return float(np.linalg.norm(centers - centers.mean(axis=0)))

    models = {kappa: fitted(kappa) for kappa in (0, 3.0, 100.0, np.inf)}
    gaps = [apart(model) for model in models.values()]
    assert (np.diff(gaps) < 0).all()
    assert gaps[-1] < 1e-9 < gaps[-2]
    assert_allclose(models[3.0].kappa_, 3)
    assert np.isinf(models[np.inf].kappa_).all()
    estimated = fitted(None).kappa_
    assert estimated.shape == (3,)
    assert len(np.unique(estimated)) > 1 or view == "mixture"
    if view == "mixture":  # nothing of the others: the mean of the silo's own rows
        for cid, X in data.items():
            P = models[0].predict_proba(X, silos=cid)
            own = P.T @ X / P.sum(axis=0)[:, None]
            assert_allclose(models[0].cluster_centers_[cid], own, atol=1e-3)


def test_infinite_pooling_survives_files_and_processes(tmp_path):
    """JSON has no infinity: without care it would come back as None, which estimates."""
    model = FMTC(3, view="mixture", max_iter=2, random_state=0, mixture=Mixture(kappa=np.inf)).fit(DATA)
    again = load(model.save(tmp_path / "model"))
    assert again.mixture.kappa > 1e300
    assert again._settings() == model._settings()
    travelled = Settings(**json.loads(json.dumps(jsonable(asdict(model._settings())))))
    assert travelled == model._settings()
    assert travelled.spread == 0


def test_weights_of_clients_draw_what_is_common():
    """Two silos whose groups lie differently: with the weight of one, the common means, and the other's own, follow."""
    rng = np.random.default_rng(0)
    near, far = 6.0 * np.eye(3), 6.0 * np.eye(3) + [[2, 0, 0], [0, -2, 0], [0, 0, 0]]
    data = {name: np.repeat(centers, 40, axis=0) + rng.normal(size=(120, 3)) for name, centers in
            (("a", near), ("b", far))}  # fmt: skip

    def fitted(weights, view="mixture"):
        params = {
            "view": view,
            "scale": "none",
            "kappa": 20.0,
            "random_state": 0,
            "n_init": 2,
        }
        return FMTC(3, **by_view(params)).fit(data, silo_weights=weights)

    def gap(model):
        """From the means of b to the groups of a."""
        centers = model.cluster_centers_["b"]
        return min(np.linalg.norm(centers[list(order)] - near) for order in permutations(range(3)))

    gaps = [gap(fitted({"a": weight, "b": 1.0})) for weight in (0.05, 1.0, 20.0)]
    assert gaps[0] > gaps[1] + 0.02 > gaps[2] + 0.04
    plain, equal = fitted(None), fitted({"a": 0.7, "b": 0.7})
    for cid in data:
        assert_array_equal(plain.cluster_centers_[cid], equal.cluster_centers_[cid])


def test_probabilities_are_those_of_the_mixture_of_projections(model):
    """The last stage of the graph view: Gaussians with the silo's own means and shares, and one shape."""
    for cid, X in DATA.items():
        own = model._models[cid]
        gap = model.transform(X, silos=cid)[:, None] - own.centers
        score = np.log(own.shares) - 0.5 * np.einsum("njr,rs,njs->nj", gap, own.precision, gap)
        density = np.exp(score - score.max(axis=1, keepdims=True))
        expected = density / density.sum(axis=1, keepdims=True)
        assert_allclose(model.predict_proba(X, silos=cid), expected, rtol=1e-6, atol=1e-12)
        assert_array_equal(model.predict(X, silos=cid), score.argmax(axis=1))


def test_probabilities_and_distances_are_those_of_the_mixture_of_columns():
    """scikit-learn's word on one silo: the same parameters give the same probabilities."""
    X = DATA["north"]
    model = FMTC(3, view="mixture", scale="none", random_state=0, mixture=FEW).fit(X)
    own = model._models["all"]
    theirs = GaussianMixture(3, covariance_type="tied")
    theirs.means_, theirs.weights_ = model.cluster_centers_["all"], own.shares
    theirs.covariances_ = own.covariance
    theirs.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(own.covariance))
    new = X + np.random.default_rng(0).normal(size=X.shape)
    assert_allclose(model.predict_proba(new), theirs.predict_proba(new), atol=1e-9)
    assert_allclose(own.row_scores(new).density, theirs.score_samples(new), rtol=1e-9)
    gap = new[:, None] - theirs.means_
    expected = np.sqrt(np.einsum("njr,rs,njs->nj", gap, np.linalg.inv(own.covariance), gap))
    assert_allclose(model.transform(new), expected, rtol=1e-6)
    single = model.transform(new.astype(np.float32))
    assert single.dtype == model.predict_proba(new.astype(np.float32)).dtype == np.float32
    assert_allclose(single, expected, rtol=1e-4)


# -------------------------------------------------------------------------- labels against the graph they were made of


def test_labels_that_do_not_follow_the_graph_are_warned_about():
    """Two rings, whose columns as they come cannot tell them apart; and a warning names each silo once."""
    data = {cid: make_circles(300, noise=0.03, factor=0.4, random_state=seed)[0] for seed, cid in enumerate("ab")}
    with pytest.warns(UserWarning, match=r"the labels of 'a', 'b' do not follow .*view=\"auto\"") as caught:
        model = graph_view(2, random_state=0).fit(data)
    assert sum("do not follow" in str(each.message) for each in caught) == 1
    assert set(model.run_.agreement) == {"a", "b"}
    lifted = FMTC(2, view="graph", random_state=0).fit(data)  # no warning: errors here
    assert min(lifted.run_.agreement.values()) > 0.95


@pytest.mark.parametrize("k", [2, 3])
def test_more_parts_than_clusters_are_nothing_to_warn_of(k):
    """Three far groups: two clusters have to join two of them, and it does not matter which."""
    X = DATA["north"]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the labels of")
        model = graph_view(k, random_state=0).fit(X)
    assert model.run_.agreement["all"] > 0.9
    assert not short(k, labels_from="embedding").fit(X).run_.agreement


def test_the_graph_view_is_the_same_whoever_chose_it():
    rows = load_digits().data[::4] / 16
    clients = np.random.default_rng(0).choice(list("abcdefgh"), size=len(rows))
    chosen = FMTC(10, random_state=0, mixture=FEW, max_iter=5).fit(rows, silos=clients)
    given = FMTC(10, view="graph", random_state=0, graph=Graph(n_init=FEW.n_init), max_iter=5).fit(rows, silos=clients)
    assert chosen.view_ == "graph"
    assert_array_equal(chosen.labels_, given.labels_)
    for client in given.silos_:
        assert_array_equal(chosen.projections_[client], given.projections_[client])


@pytest.mark.parametrize("setting", [{}, {"view": "graph"}, {"privacy": "sums"}])
def test_a_table_of_categories_alone(setting):
    """No number means no mean that silos could be shifted by, and nothing that could lie far."""
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=240)
    X = np.where(rng.random((240, 8)) < 0.8, z[:, None], rng.integers(3, size=(240, 8))).astype(float)
    X[rng.random(X.shape) < 0.05] = np.nan
    schema = Schema(tuple(Column(f"q{j}", "category", ("red", "green", "blue")) for j in range(8)))
    clients = np.repeat(["east", "north", "south"], 80)
    model = FMTC(3, random_state=0, mixture=FEW, **setting).fit(Encoded(X, schema), silos=clients)
    assert clustering_accuracy(z, model.labels_) > 0.95
    assert_array_equal(model.predict(Encoded(X, schema), silos=clients), model.labels_)
    assert np.isfinite(model.predict_proba(Encoded(X, schema), silos=clients)).all()


# --------------------------------------------------------------------------------------- clusters that nobody has


def few_rows(n_different, n=60):
    """Rows of so many different kinds: there cannot be more clusters in one silo."""
    return np.repeat(CENTERS[:n_different], n // n_different, axis=0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("view", ["mixture", "graph"])
def test_clusters_that_have_no_row_anywhere_are_named(view):
    with pytest.warns(RowsWarning) as caught:
        model = FMTC(5, view=view, random_state=0, mixture=FEW).fit(few_rows(3))
    (said,) = [str(each.message) for each in caught if each.category is RowsWarning]
    missing = sorted(set(range(5)) - set(model.labels_.tolist()))
    numbers, advice = said.split(" have no rows: fit again with fewer clusters ")
    assert [int(number) for number in re.findall(r"\d", numbers)] == missing
    assert advice == f"({5 - len(missing)} of 5 have rows)"
    assert len(missing) >= 2


def test_one_cluster_too_many_does_not_put_most_rows_into_one():
    tables = [table for table in example_tables().values() if "diagnosis" in table.columns]
    rows = {f"silo{t}": table.drop("patient", "diagnosis").to_numpy() for t, table in enumerate(tables)}
    model = FMTC(3, clusters_per_silo="auto", view="mixture", random_state=0).fit(rows)
    assert np.bincount(model.labels_).max() < 0.8 * len(model.labels_)


def test_a_cluster_that_only_one_silo_lacks_is_nothing_to_warn_of():
    rows = {name: X[TRUTH[name] != t] for t, (name, X) in enumerate(DATA.items())}
    model = FMTC(3, clusters_per_silo=3, view="mixture", random_state=0, mixture=FEW).fit(
        rows
    )  # a warning is an error here
    assert all(len(set(model.predict(rows)[name])) < 3 for name in rows)
