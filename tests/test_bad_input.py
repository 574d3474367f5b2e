"""Input that cannot be clustered: refused in one sentence that says what came in and what would work."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from tests.views import graph_view

from fmtc import FMTC
from fmtc.errors import DataError, InputError, NotFiniteError
from fmtc.settings import by_view
from fmtc.tables import read_silos

X = np.random.default_rng(0).normal(size=(30, 4))
OTHER = np.random.default_rng(1).normal(size=(25, 4))

# scikit-learn's k-means says it in its own words; ours, which name the client, are tested. That silos differ in sign
# and magnitude is true here, and tested in test_clients.py
pytestmark = pytest.mark.filterwarnings("ignore:Number of distinct clusters", "ignore::fmtc.errors.RowsWarning")


def with_entry(value):
    spoilt = X.copy()
    spoilt[3, 2] = value
    return spoilt


def quick(n_clusters=3, **params):
    return FMTC(n_clusters, **by_view({"random_state": 0, "max_iter": 2, "n_init": 1} | params))


def quick_graph(n_clusters=3, **params):
    return graph_view(n_clusters, **{"random_state": 0, "max_iter": 2, "n_init": 1} | params)


# ---------------------------------------------------------------------------------------------------- the rows

ROWS = {
    "infinity": with_entry(np.inf),
    "minus infinity": with_entry(-np.inf),
    "sparse NaN": sp.csr_array(with_entry(np.nan)),
    "words": np.full((30, 4), "abc"),
    "a column of dates": pd.DataFrame(X, columns=list("abcd")).assign(day=pd.Timestamp("2020-02-29")),
    "complex numbers": X + 1j,
    "one dimension": X[:, 0],
    "three dimensions": np.ones((5, 4, 3)),
    "a number": 3.0,
    "nothing": None,
    "ragged": [[1.0, 2.0], [3.0]],
    "no rows": np.empty((0, 4)),
    "no columns": np.empty((30, 0)),
}


@pytest.mark.parametrize("rows", ROWS)
def test_rows_that_are_no_numbers(rows):
    with pytest.raises((ValueError, TypeError)):
        quick().fit(ROWS[rows])
    with pytest.raises((ValueError, TypeError), match=r"^silo 'bad'"):
        quick().fit({"bad": ROWS[rows], "good": X})


GAPS = {
    "NaN": with_entry(np.nan),
    "pandas NA": pd.DataFrame(X, columns=list("abcd")).astype("Float64").mask(X > 2),
    "polars null": pl.DataFrame(X, schema=list("abcd")).with_columns(a=pl.when(pl.col("a") < 1).then("a")),
    "a column of words": pd.DataFrame(X, columns=list("abcd")).assign(city=["Bonn", "Rome", None] * 10),
    "the same word": pd.DataFrame(X, columns=list("abcd")).assign(city="Bonn"),
}


@pytest.mark.parametrize("view", ["auto", "graph", "mixture"])
@pytest.mark.parametrize("rows", GAPS)
def test_missing_cells_and_words_are_taken(rows, view):
    """In both views, when fitting and for new rows; every answer is a number."""
    model = quick(view=view).fit({"a": GAPS[rows], "b": GAPS[rows][:20]})
    assert np.bincount(model.labels_, minlength=3).min() > 0
    assert_array_equal(model.predict(GAPS[rows], silos="a"), model.labels_[:30])
    assert_allclose(model.predict_proba(GAPS[rows], silos="b").sum(axis=1), 1)
    assert np.isfinite(model.transform(GAPS[rows], silos="b")).all()
    assert 0 <= model.score({"a": GAPS[rows]}) <= 1


def test_words_beside_numbers_without_names_are_refused():
    """Which column is which, only names of columns can say."""
    with pytest.raises(DataError, match=r"^silo 'table': .*silo 'array' .*data frames for all"):
        quick().fit({"array": np.zeros((30, 5)), "table": GAPS["a column of words"]})


@pytest.mark.parametrize("bad", [with_entry(np.inf), X[:, :3], X[:, 0], np.full((3, 4), "a")])
def test_new_rows_are_checked_as_well(bad):
    model = quick().fit({"a": X, "b": OTHER})
    for call in (model.predict, model.predict_proba, model.transform, model.score):
        for question in ({"X": bad, "silos": "a"}, {"X": {"b": OTHER, "a": bad}}):
            with pytest.raises((ValueError, TypeError)):
                call(**question)


def test_clients_with_other_columns_are_named():
    with pytest.raises(DataError, match=r"'b'.* 3 .* 4 "):
        quick().fit({"a": X, "b": OTHER[:, :3]})


@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 3), (2, 2), (3, 3), (3, 4), (2, 8)])
def test_too_few_rows_name_the_client(n, k):
    words = rf"'small' .*n_samples={n}.*n_clusters={k} .*{max(2, k + 1)} rows"
    for question in ({"X": {"big": X, "small": X[:n]}},
                     {"X": np.vstack([X, X[:n]]), "silos": ["big"] * 30 + ["small"] * n}):  # fmt: skip
        with pytest.raises(DataError, match=words):
            quick(k).fit(**question)


def test_one_row_more_than_clusters_is_enough():
    assert quick(3).fit(X[:4]).labels_.shape == (4,)


@pytest.mark.parametrize(
    ("value", "dtype"), [(0.0, np.float64), (1.0, np.float32), (0.1, np.float64), (1e6 / 3, np.float32), (-0.7, float)]
)
def test_constant_columns(value, dtype):
    """One does no harm; nothing but constants is refused, though their mean is not exact in floating point."""
    some = X.astype(dtype)
    some[:, 1] = value
    flat = np.full((2000, 4), value, dtype=dtype) * np.array([1, 2, 3, 7], dtype=dtype)
    for kind in (quick, quick_graph, partial(quick, view="graph")):  # the last lifts columns
        assert np.bincount(kind().fit(some).labels_).min() > 0
        with pytest.raises(DataError, match="constant in"):
            kind().fit(flat)
    for kind in (quick_graph, partial(quick, view="graph")):
        with pytest.raises(DataError, match=r"constant .*'flat'"):
            kind().fit({"lively": X.astype(dtype), "flat": flat})


@pytest.mark.parametrize("view", ["auto", "graph", "mixture"])
@pytest.mark.parametrize("kind", ["dense", "gaps", "sparse"])
def test_a_silo_whose_rows_are_all_equal_is_refused_beside_others(kind, view):
    flat = np.tile([0.1, 0.2, 0.3, 0.7], (40, 1))
    flat[::2, 1] = np.nan if kind == "gaps" else 0.2  # no cell has another value
    parts = {"lively": X, "flat": flat}
    if kind == "sparse":
        parts = {cid: sp.csr_array(rows) for cid, rows in parts.items()}
    with pytest.raises(DataError, match=r"constant in silo 'flat'"):
        quick(view=view).fit(parts)


def test_rows_of_zeros_are_refused_where_sparse_and_fine_among_others():
    for kind in (quick, quick_graph):
        with pytest.raises(DataError, match=r"constant .*'void'"):
            kind().fit({"a": sp.csr_array(X), "void": sp.csr_array((30, 4))})
    positive = np.random.default_rng(42).uniform(size=(60, 3))
    holes = np.where(positive > 0.6, positive, 0)
    nothing = ~holes.any(axis=1)
    assert nothing.sum() > 10
    model = quick(4).fit(sp.csr_array(holes))
    assert np.bincount(model.labels_[~nothing], minlength=4).min() > 0  # no cluster is spent on them
    assert (model.predict(sp.csr_array(holes)) == model.labels_).all()
    assert (model.transform(holes)[nothing] == 0).all()


@pytest.mark.parametrize(("exponent", "dtype"), [(150, float), (-150, float), (15, np.float32), (-15, np.float32)])
def test_units_do_not_matter(exponent, dtype):
    scaled = (X * 10.0**exponent).astype(dtype)
    assert (quick().fit(scaled).labels_ == quick().fit(X.astype(dtype)).labels_).all()


@pytest.mark.parametrize(("exponent", "dtype"), [(200, float), (-200, float), (30, np.float32), (-30, np.float32)])
def test_numbers_whose_squares_do_not_fit_are_refused(exponent, dtype):
    with pytest.raises(DataError, match=r"'far'"):
        quick().fit({"near": X.astype(dtype), "far": (X * 10.0**exponent).astype(dtype)})


def test_duplicate_rows_are_fine_and_too_few_different_ones_are_reported():
    assert np.bincount(quick().fit(np.repeat(X, 3, axis=0)).labels_).min() > 0
    with pytest.warns(ConvergenceWarning, match=r"'all' .*2 of 3"):
        quick_graph().fit(np.repeat(X[:2], 10, axis=0))
    for rows in (X[:2], with_entry(np.nan)[2:4], sp.csr_array(np.where(X > 0, X, 0)[:2])):
        few, more = rows[np.arange(20) % 2], sp.csr_array(X) if sp.issparse(rows) else X
        with pytest.warns(ConvergenceWarning, match=r"'few' .*only 2 different rows for 3") as caught:
            quick(view="mixture").fit({"few": few, "more": more})
        assert sum(each.category is ConvergenceWarning for each in caught) == 1


# ------------------------------------------------------------------------------------------------------- the clients


@pytest.mark.parametrize("silos", [["a"], ["a"] * 29, ["a"] * 31, [], [["a"] * 30], np.full((30, 2), "a"), 3, None])
def test_one_name_per_row(silos):
    if silos is None:
        silos = np.array("a")  # no dimension at all
    with pytest.raises(DataError, match=r"silos .*30 rows.* \("):
        quick().fit(X, silos=silos)


@pytest.mark.parametrize("missing", [None, np.nan, "", pd.NA, pd.NaT])
def test_every_row_needs_a_name(missing):
    names = np.array(["a", "b"] * 15, dtype=object)
    names[4] = missing
    for silos in (names, list(names), pd.Series(names)):
        with pytest.raises(DataError, match=r"silos .*1 row"):
            quick().fit(X, silos=silos)


@pytest.mark.parametrize("missing", [None, np.nan, "", pd.NA])
def test_every_client_needs_a_name(missing):
    with pytest.raises(DataError, match="name"):
        quick().fit({missing: X, "b": OTHER})


def test_blanks_in_the_names_of_files(tmp_path):
    for name in ("north", "north ", "south "):
        np.save(tmp_path / f"{name}.npy", X)
    assert [silo.name for silo in read_silos([tmp_path / "north .npy", tmp_path / "south .npy"])] == ["north", "south"]
    with pytest.raises(DataError, match=r"both be silo 'north'"):
        read_silos([tmp_path / "north.npy", tmp_path / "north .npy"])


def test_the_only_client_needs_a_name_as_well():
    with pytest.raises(DataError, match="name"):
        quick().fit(X, silos="")


def test_mappings_that_make_no_sense():
    with pytest.raises(DataError, match="'1'"):
        quick().fit({1: X, "1": OTHER})
    with pytest.raises(DataError, match="empty mapping"):
        quick().fit({})
    with pytest.raises(TypeError, match="silos="):
        quick().fit({"a": X}, silos=["a"] * 30)
    model = quick().fit({"a": X, "b": OTHER})
    with pytest.raises(DataError, match="empty mapping"):
        model.predict({})
    with pytest.raises(DataError, match=r"'b' has 1 row.* 2 "):
        model.score({"a": X, "b": OTHER[:1]})


def test_a_graph_in_parts_is_reported_with_what_it_means():
    rng = np.random.default_rng(0)
    islands = np.vstack(
        [100 * np.eye(4)[j % 4] * (1 + j // 4) + rng.normal(size=(n, 4)) for j, n in enumerate((30, 20, 15))]
    )
    with pytest.warns(UserWarning, match=r"'sea' .*3 .* 30, 20, 15 rows") as caught:
        model = quick_graph(3).fit({"sea": islands, "land": X})
    assert sum("unconnected" in str(each.message) for each in caught) == 1
    assert sorted(np.bincount(model.labels_[:65])) == [15, 20, 30]
    with pytest.warns(UserWarning, match="n_neighbors"):
        model = quick_graph(2).fit(islands)  # more parts than clusters
    assert np.bincount(model.labels_, minlength=2).min() > 0
    many = np.vstack([1000 * j + rng.normal(size=(3, 4)) for j in range(10)])
    with pytest.warns(UserWarning, match=r" 10 .* 3, 3, 3, 3, 3, 3, 3, 3, \.\.\. rows"):
        quick_graph(2, n_neighbors=2).fit(many)


# ---------------------------------------------------------------------------------------------------- the parameters


def with_setting(name, value):
    """A quick model with one parameter of FMTC or of its solver."""
    return FMTC(**by_view({"n_clusters": 3, "max_iter": 2, "n_init": 1, name: value}))


@pytest.mark.parametrize("name", ["n_clusters", "max_iter", "n_inner", "n_init", "max_features"])
def test_counts_are_whole_numbers_of_at_least_one(name):
    for value, kind in ((0, ValueError), (-1, ValueError), (2.0, TypeError), ("2", TypeError), (True, TypeError),
                        (None, TypeError)):  # fmt: skip
        with pytest.raises(kind, match=f"^{name} must be "):
            with_setting(name, value).fit(X)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("alpha", [0, -1.0, np.nan, np.inf, "1", None, 1j]),
        ("beta", [-0.1, np.nan, np.inf, "auto", None]),
        ("tol", [-1e-9, np.nan]),
        ("n_neighbors", [0, -3, 2.5, "all", None]),
        ("coupling", ["tsvd", None, 3, ["tensor"]]),
        ("scale", ["standard", None, True]),
        ("ridge", [0.0, np.nan]),
        ("rho", [0, -1, np.inf, "auto"]),
        ("bandwidth", [0, -2.0, np.nan, "auto"]),
        ("step_size", [0, np.nan]),
        ("schatten_p", [0, -0.5, 1.5, np.nan, "1"]),
        ("nonmutual_weight", [0, 1.5, np.nan, "1"]),
        ("center_features", [None, "yes", 1, 0]),
        ("lift", [None, "yes", 1]),
        ("final", [None, "gmm", True]),
        ("kappa", [-1, np.nan, -np.inf, "auto", True]),
        ("view", [None, "Graph", 1, ["graph"]]),
        ("align", ["loop", None, 1]),
        ("accelerate", ["yes", None]),
        ("labels_from", ["F", None]),
        ("message_dtype", ["float64", "half", np.float32]),
    ],
)
def test_parameters_say_what_they_want(name, refused):
    for value in refused:
        with pytest.raises((ValueError, TypeError)) as caught:
            with_setting(name, value).fit(X)
        assert str(caught.value).startswith(f"{name} must be ")
        assert f"got {value!r}" in str(caught.value)


def test_rows_of_unit_length_are_not_centred():
    with pytest.raises(ValueError, match="center_features"):
        quick(scale="tfidf", center_features=True).fit(np.abs(X))


@pytest.mark.parametrize("weights", [[1, 2], (1, 2), np.ones(2), 3.0, "a=1", {"a", "b"}])
def test_weights_are_by_name(weights):
    with pytest.raises(TypeError, match="silo_weights"):
        quick().fit({"a": X, "b": OTHER}, silo_weights=weights)


@pytest.mark.parametrize("view", ["auto", "graph", "mixture"])
@pytest.mark.parametrize("weight", ["2", None, [1.0], 0, -1, np.inf, np.nan, True])
def test_weights_are_numbers(weight, view):
    with pytest.raises(InputError, match="silo_weights"):
        quick(view=view).fit({"a": X, "b": OTHER}, silo_weights={"a": weight, "b": 1.0})


@pytest.mark.parametrize("view", ["auto", "graph", "mixture"])
def test_weights_are_of_all_silos_and_no_others(view):
    for names in (("a",), ("a", "c"), ("a", "b", "c")):
        with pytest.raises(InputError, match=r"silo_weights .*'[bc]'"):
            quick(view=view).fit({"a": X, "b": OTHER}, silo_weights=dict.fromkeys(names, 1.0))


def test_more_clusters_than_features_and_one_cluster_are_fine():
    assert np.bincount(quick(6).fit({"a": X[:, :2], "b": OTHER[:, :2]}).labels_).min() > 0
    assert (quick(1).fit(X).labels_ == 0).all()


def test_one_feature_has_two_directions():
    """Normalised rows of one centred column are +1 or -1: a third cluster has nothing to hold, and that is said.

    Unless columns are lifted, which they are by default.
    """
    assert np.bincount(quick_graph(2).fit(X[:, :1]).labels_).min() > 0
    with pytest.warns(ConvergenceWarning, match=r"'all' .*2 of 3"):
        quick_graph(3).fit(X[:, :1])
    for view in ("auto", "graph"):
        assert np.bincount(quick(3, view=view).fit(X[:, :1]).labels_).min() > 0


# -------------------------------------------------------------------------------------------------------------- junk


def test_new_rows_too_large_to_project_are_refused():
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = quick_graph(2).fit(X)
    with pytest.raises(NotFiniteError):
        model.predict(np.full((1, 3), 1.7e308) * np.sign(model.projections_["all"][:, 0]))


@pytest.mark.parametrize("columns", [4, 60])
@pytest.mark.parametrize("value", [1.7e308, -1e200])
def test_new_rows_too_large_for_a_mixture_are_refused(columns, value):
    """Their distances are not numbers any more: no label, no probability, and no outlier that looks like an inlier."""
    rows = np.random.default_rng(0).normal(size=(60, columns))
    model = quick(2, view="mixture").fit(rows)
    far = rows[:3].copy()
    far[1, 2] = value
    for call in (model.predict, model.predict_proba, model.transform, model.outliers):
        with pytest.raises(NotFiniteError, match="too large"):
            call(far)
    far[1, 2] = 1e100
    assert model.outliers(far)[1]
    assert np.isfinite(model.transform(far)).all()


def test_rows_whose_projection_is_nothing_are_one_cluster():
    model = quick(1).fit(np.array([[1.0], [-1.0], [1.0], [-1.0]]))
    assert model.labels_.tolist() == [0, 0, 0, 0]


JUNK = st.one_of(
    arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.bool_, np.complex128, np.dtype("U3"), np.dtype("S3")]),
        array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
    ),
    arrays(np.float64, st.tuples(st.integers(2, 12), st.integers(1, 4)), elements=st.floats(-1e6, 1e6)),
    st.lists(st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=2), st.booleans()), max_size=4), max_size=6),
    st.dictionaries(
        st.text(max_size=2), arrays(np.float64, st.tuples(st.integers(0, 7), st.integers(0, 3))), max_size=3
    ),
    st.none() | st.text(max_size=3) | st.integers(),
)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(junk=JUNK, silos=st.one_of(st.none(), st.lists(st.sampled_from(["a", "b"]), max_size=9)))
def test_junk_is_clustered_or_refused_in_words(junk, silos):
    model = quick(2)
    try:
        model.fit(junk, silos=silos)
    except (ValueError, TypeError) as error:
        message = str(error)
        assert len(message) > 10
        assert "Traceback" not in message
    else:
        assert set(model.labels_) <= {0, 1}
        for centers in model.cluster_centers_.values():
            assert np.isfinite(centers).all()


@pytest.mark.parametrize("scale", ["auto", "none"])
@pytest.mark.parametrize("form", [pd.DataFrame, np.asarray, sp.csr_array])
def test_a_value_that_no_sum_takes_is_named(rng, form, scale):
    """One cell of 9e18: its square does not fit into a sum that only all silos together can open."""
    rows = {name: pd.DataFrame(rng.random((20, 3)), columns=["age", "dose", "mass"]) for name in ("a", "b", "c")}
    rows["b"].loc[3, "dose"] = 9e18
    column = "'dose'" if form is pd.DataFrame else "1, counted from 0,"
    with pytest.raises(DataError, match=rf"silo 'b': column {column} has values up to 9\.0e\+18; .* below "):
        FMTC(2, privacy="sums", scale=scale).fit({name: form(table) for name, table in rows.items()})


def test_rows_that_a_client_of_this_process_refuses_are_no_lost_client(rng):
    """Fourth powers of 1e6 do not fit either, where the mixture takes columns as they are: exit code 3 and not 5."""
    rows = {name: rng.normal(size=(20, 3)) * 1e6 for name in ("a", "b", "c")}
    with pytest.raises(DataError, match=r"silo 'a' failed .* Rescale the columns") as caught:
        FMTC(2, privacy="sums", view="mixture", scale="none").fit(rows)
    assert caught.value.exit_code == 3
