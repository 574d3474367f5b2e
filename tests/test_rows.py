"""Rows as people hand them over in Python: data frames with words and gaps, names of clients, masks, lazy frames."""

import copy
import gc
import pickle
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from tests.views import FEW

from fmtc import FMTC, write_report
from fmtc.errors import DataError, InputError, RowsWarning
from fmtc.estimator import Fitted
from fmtc.rows import refuse_names
from fmtc.schema import Column, Encoded, Schema
from fmtc.tables import Silo, remarks

NAN = float("nan")


class Tabular(FMTC):
    """Takes whatever comes, and computes nothing."""

    takes_missing = True

    def fit(self, X, y=None, *, silos=None):
        self.parts = self._parts(X, silos, reset=True)
        self._fitted = Fitted(dict.fromkeys(sorted(self.parts)))
        return self

    def rows(self, X, silos=None):
        return {cid: Xt for cid, (Xt, _) in self._parts(X, silos, reset=False).items()}


def table(kind, n=12):
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.normal(50, 9, n).tolist(),
        "sex": ["f", "m", None] * (n // 3),
        "smokes": [True, False] * (n // 2),
    }
    columns["age"][2] = None
    return pl.DataFrame(columns) if kind == "polars" else pd.DataFrame(columns)


EXPECTED = np.c_[table("polars")["age"].to_numpy(), [0, 1, NAN] * 4, [1, 0] * 6]
LEVELS = Schema((Column("age"), Column("sex", "category", ("f", "m")), Column("smokes", "category", ("false", "true"))))


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_frames_with_words_truths_and_gaps(kind):
    X = table(kind)
    model = Tabular().fit(X)
    assert model.schema_ == LEVELS
    assert model.feature_names_in_.tolist() == ["age", "sex", "smokes"]
    assert_array_equal(model.parts["all"][0], EXPECTED)
    assert_array_equal(model.rows(X)["all"], EXPECTED)


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_columns_are_matched_by_name(kind):
    X = table(kind)
    model = Tabular().fit(X)
    turned = X[["smokes", "age", "sex"]]
    turned = turned.with_columns(more=pl.lit("x")) if kind == "polars" else turned.assign(more="x")
    assert_array_equal(model.rows(turned)["all"], EXPECTED)
    numbers = X[["age"]]
    numbers = numbers.with_columns(b=pl.lit(2.0)) if kind == "polars" else numbers.assign(b=2.0)
    model = Tabular().fit(numbers)
    assert_array_equal(model.rows(numbers[["b", "age"]])["all"][:, 1], np.full(12, 2.0))
    with pytest.raises(DataError, match="no column 'b'"):
        model.rows(numbers[["age"]])


def test_unknown_levels_are_missing_and_said_once():
    X = table("polars")
    model = Tabular().fit(X)
    with pytest.warns(UserWarning, match=r"^levels that are not known count as missing: 'sex' \('x'\)$") as caught:
        found = model.rows(X.with_columns(sex=pl.lit("x")))["all"]
    assert len(caught) == 1
    assert np.isnan(found[:, 1]).all()


def test_clients_in_a_mapping_share_the_levels():
    silos = {"a": pl.DataFrame({"s": ["x", "y"] * 3, "n": range(6)}), "b": pl.DataFrame({"n": [7, 7], "s": ["z", "x"]})}
    model = Tabular().fit(silos)
    assert model.schema_.columns[0] == Column("s", "category", ("x", "y", "z"))
    assert_array_equal(model.parts["b"][0], [[2, 7], [0, 7]])
    with pytest.raises(DataError, match="differ from those of 'a':\n  b: lacks 's'\n"):
        Tabular().fit(silos | {"b": silos["b"].drop("s")})


def test_kinds_of_pandas_columns():
    X = pd.DataFrame(
        {
            "c": pd.Categorical(["low", None, "high", "low"]),
            "i": pd.array([1, None, 3, 4], dtype="Int64"),
            "b": pd.array([True, None, False, True], dtype="boolean"),
            "o": [1, 2.5, None, 4],
        }
    )
    model = Tabular().fit(X)
    assert model.schema_.levels == (2, 0, 2, 0)
    assert_array_equal(model.parts["all"][0], [[1, 1, 1, 1], [NAN, NAN, NAN, 2.5], [0, 3, 0, NAN], [1, 4, 1, 4]])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"seen": pd.date_range("2021-01-01", periods=12)}, "column 'seen' holds dates (such as 2021-01-01"),
        ({"name": [f"Ada{i}" for i in range(12)]}, "column 'name' holds 12 different words, which name rows"),
        ({"x": ["1", "2", "3", "much"] * 3}, "column 'x' holds numbers, but 'much' in row 3"),
        ({"x": [np.inf] + [1.0] * 11}, "infinity in column 'x' (first in row 0)"),
    ],
)
@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_errors_name_the_column_and_the_first_bad_value(columns, words, kind):
    X = pd.DataFrame({"age": np.arange(12) / 7} | columns)
    if kind == "polars":
        X = pl.DataFrame({name: X[name].to_numpy() if X[name].dtype.kind != "O" else X[name].tolist() for name in X})
    with pytest.raises(DataError, match=re.escape(words)):
        Tabular().fit(X)


def test_a_column_of_identifiers_is_warned_about():
    with pytest.warns(UserWarning, match="'patient_id' seems to name rows"):
        Tabular().fit(pd.DataFrame({"patient_id": range(100, 130), "x": np.arange(30) / 7}))


def test_words_in_an_array():
    with pytest.raises(DataError, match=r"column 1 holds 'F' in row 0, which is no number: give a data frame"):
        Tabular().fit(np.array([[1.0, "F"], [2.0, "M"]], dtype=object))


def test_masks_lazy_frames_and_anndata():
    X = np.ma.masked_equal(np.arange(12).reshape(6, 2), 5)
    assert_array_equal(Tabular().fit(X).parts["all"][0], np.where(X.data == 5, NAN, X.data))
    lazy = table("polars").lazy()
    model = Tabular().fit(lazy)
    assert_array_equal(model.parts["all"][0], EXPECTED)
    assert_array_equal(Tabular().fit({"a": lazy}).parts["a"][0], EXPECTED)
    AnnData = type("AnnData", (SimpleNamespace,), {})
    cells = AnnData(X=sp.csr_array(np.eye(6)), obs=pd.DataFrame({"batch": list("aabbab")}))
    model = Tabular().fit(cells, silos="batch")
    assert {cid: rows.tolist() for cid, (_, rows) in model.parts.items()} == {"a": [0, 1, 4], "b": [2, 3, 5]}


def test_encoded_rows_bring_their_schema():
    model = Tabular().fit({"a": Encoded(EXPECTED, LEVELS), "b": Encoded(EXPECTED[:6], LEVELS)})
    assert model.schema_ is LEVELS
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(model.fit(np.eye(4)), "schema_")


# -------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_a_column_gives_the_client(kind):
    X = table(kind)
    sites = ["n", "s", "s"] * 4
    X = X.with_columns(site=pl.Series(sites)) if kind == "polars" else X.assign(site=sites)
    model = Tabular().fit(X, silos="site")
    assert model.silos_ == ["n", "s"]
    assert model.schema_.names == ("age", "sex", "smokes")
    assert_array_equal(model.parts["n"][0], EXPECTED[::3])
    assert set(model.rows(X, silos="site")) == {"n", "s"}
    assert list(model.rows(X, silos="s")) == ["s"]
    with pytest.raises(DataError, match=r"silos='sight' is not a column of X; did you mean 'site'\?"):
        Tabular().fit(X, silos="sight")


def test_a_word_that_is_no_column():
    with pytest.raises(DataError, match=r"silos='north' is not a column of X.*fit\(\{'north': X\}\)"):
        FMTC(2).fit(np.eye(5), silos="north")


@pytest.mark.parametrize("silos", [[1, 2] * 20, np.array([1.0, 2.0] * 20), pd.Series([1, 2] * 20), ["1 ", "2"] * 20])
def test_whole_numbers_name_silos(silos):
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = FMTC(2, max_iter=2, random_state=0, mixture=FEW).fit(X, silos=silos)
    assert model.silos_ == ["1", "2"]
    expected = model.labels_[::2]
    for one in (1, 1.0, np.int64(1), "1"):
        assert_array_equal(model.predict(X[::2], silos=one), expected)
    assert_array_equal(model.predict({1: X[::2]})[1], expected)
    with pytest.raises(DataError, match="unknown silo '3'; this model has '1', '2'"):
        model.predict(X, silos=3)


@pytest.mark.parametrize("y", [["a", "b"], np.array(["a"]), pd.Series(["a", "b"]), pd.Series(pd.Categorical(["a"]))])
def test_words_in_the_place_of_y_are_refused(y):
    with pytest.raises(DataError, match=r"words such as 'a'.*silos="):
        refuse_names(y)


@pytest.mark.parametrize("y", [None, [0, 1], np.eye(2), pd.Series([1.5, 2])])
def test_numbers_in_the_place_of_y_are_not(y):
    refuse_names(y)


# ------------------------------------------------------------------------------------------------------- values


def test_values_that_decide_alone_are_warned_about():
    X = np.random.default_rng(0).normal(size=(41, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Tabular().fit(X)
    far = X.copy()
    far[7, 1] = 1e15
    with pytest.warns(UserWarning, match=r"row 7 has 1e\+15 in column 1, far from all others"):
        Tabular().fit(far)


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_a_declared_category_is_one(kind):
    """Codes 1 to 4 are numbers, unless the frame says that they are categories; new rows may come as numbers."""
    codes = [1, 2, 3, 4] * 3
    frame = pd.DataFrame({"cp": pd.Categorical(codes), "age": np.linspace(30, 60, 12)})
    if kind == "polars":
        frame = pl.DataFrame({"cp": pl.Series(map(str, codes)).cast(pl.Categorical), "age": frame["age"].to_numpy()})
    model = Tabular().fit(frame)
    assert model.schema_.columns[0] == Column("cp", "category", ("1", "2", "3", "4"))
    assert_array_equal(model.rows(pd.DataFrame({"cp": [3.0, 1.0], "age": [1, 2]}))["all"][:, 0], [2, 0])
    assert Tabular().fit(pd.DataFrame({"cp": codes, "age": codes})).schema_.is_plain


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pd.date_range("2021-01-03", periods=12), "X.drop(columns='x')), or write"),
        (pd.to_timedelta(np.arange(12), unit="h"), "holds durations: omit it (X.drop(columns='x')), or write them as"),
        ([*["120", "130"] * 5, "high", "140"], "'high' in row 10: correct it, count such words as missing "
         "(pandas.to_numeric(X['x'], errors='coerce')), take the column as a category (X['x'].astype('category'))"),
        ([{}] * 12, "column 'x' holds values of type Struct"),
    ],
)  # fmt: skip
def test_errors_say_what_helps_in_python(column, words):
    with pytest.raises(DataError, match=re.escape(words)) as raised:
        Tabular().fit(pd.DataFrame({"age": np.linspace(30, 60, 12), "x": column}))
    assert "`" not in str(raised.value)


def test_columns_with_the_same_name_are_refused():
    frame = pd.DataFrame(np.arange(24.0).reshape(12, 2), columns=["age", "age"])
    with pytest.raises(DataError, match=r"^X has more than one column called 'age'"):
        Tabular().fit(frame)
    with pytest.raises(DataError, match=r"^silo 'b': X has more than one column"):
        Tabular().fit({"a": frame.set_axis(["age", "x"], axis=1), "b": frame})


def test_lists_of_tables_and_mappings_of_columns_are_refused():
    frame = pd.DataFrame(np.arange(24.0).reshape(12, 2), columns=["age", "dose"])
    for tables in ([frame, frame], (frame.to_numpy(), frame.to_numpy()), [sp.csr_array(frame.to_numpy())]):
        with pytest.raises(DataError, match=rf"X is a list of {len(tables)} tables: give each a name"):
            Tabular().fit(tables)
    for columns in (dict(frame), {"age": frame["age"].to_numpy()}):
        with pytest.raises(DataError, match=r"silo 'age' has a single column.*pandas.DataFrame\(X\)"):
            Tabular().fit(columns)
    assert Tabular().fit([[1.0, 2.0], [3.0, 4.0]]).silos_ == ["all"]


def test_the_column_of_clients_left_among_the_features_is_warned_about():
    frame = pd.DataFrame({"age": np.linspace(30, 60, 12), "site": ["n", "s"] * 6})
    with pytest.warns(UserWarning, match="the column 'site' of X names the silos.*write silos='site'"):
        Tabular().fit(frame, silos=frame["site"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Tabular().fit(frame[["age"]], silos=frame["site"])
        Tabular().fit(frame, silos=pd.Series(["a", "b"] * 6, name="site"))


# ------------------------------------------------------------------------------------------- what the rows look like


def clinic(n=240, seed=0):
    """Two groups of patients in three measurements."""
    rng = np.random.default_rng(seed)
    X = np.repeat([[50.0, 5.0, 100.0], [80.0, 9.0, 300.0]], n // 2, axis=0) + rng.normal(size=(n, 3)) * [3, 0.5, 20]
    return pd.DataFrame(rng.permutation(X), columns=["age", "dose", "protein"])


def said_of(X, silos=None, **params):
    """What `fit` warns of about rows and columns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FMTC(2, view="mixture", max_iter=1, random_state=0, **params).fit(X, silos=silos)
    return [str(one.message) for one in caught if one.category is RowsWarning]


FORMS = {"pandas": lambda X: X, "polars": lambda X: pl.DataFrame(X.to_dict("list")), "array": lambda X: X.to_numpy()}


@pytest.mark.parametrize("form", FORMS)
def test_codes_for_missing_values_are_noticed_as_on_the_command_line(form):
    X = clinic()
    assert not said_of(FORMS[form](X))
    X.iloc[::20, 1] = -999
    (said,) = said_of(FORMS[form](X))
    (noted,) = remarks([Silo("all", X.to_numpy(), None if form == "array" else tuple(X.columns), np.arange(240))])
    assert said.rpartition(": ")[0] == noted.rpartition(": ")[0]  # the finding; advice is for Python
    way = "replace them by NaN" if form == "array" else "count them as missing (X.replace([-999.0], float('nan')))"
    assert said.endswith(f": {way}") and "12 rows" in said
    assert not said_of(FORMS[form](X.replace(-999, NAN)))


@pytest.mark.parametrize("form", ["pandas", "polars"])
def test_columns_that_name_silos_or_the_answer_are_asked_about(form):
    X = clinic().assign(hospital=["east", "north", "south"] * 80)
    frame = FORMS[form]
    asked = "does 'hospital' name silos? It is clustered on:"
    ways = "divide rows by it (silos='hospital'), or omit it (X.drop(columns='hospital'))"
    assert said_of(frame(X)) == [f"{asked} {ways}"]
    assert said_of(frame(X), silos="hospital") == []
    parts = {name: frame(part) for name, part in X.assign(ward=[1, 2] * 120).groupby("ward")}
    assert said_of(parts) == [f"{asked} omit it (X.drop(columns='hospital'))"]
    assert said_of(frame(clinic().assign(diagnosis=[0, 1] * 120))) == [
        "is 'diagnosis' the answer? It is clustered on: leave it out (X.drop(columns='diagnosis'))"
    ]
    if form == "pandas":  # who says that it is a category means it to be a feature
        assert said_of(X.astype({"hospital": "category"})) == []


@pytest.mark.parametrize("form", FORMS)
def test_units_and_columns_that_decide_alone_are_noticed(form):
    silos = {
        name: FORMS[form](clinic(seed=seed) * ([1, 1000, 1] if seed == 2 else 1)) for seed, name in enumerate("abc")
    }
    (said,) = said_of(silos)
    assert said.startswith("c has values about 1,000 times the others' in 'column 1'" if form == "array" else
                           "c has values about 1,000 times the others' in 'dose'")  # fmt: skip
    heavy = FORMS[form](clinic() * [1, 1, 1000])
    assert said_of(heavy) == []  # columns are given the same weight
    (said,) = said_of(heavy, scale="none")
    assert 'decides the clusters alone: give columns the same weight (scale="global"), or omit it' in said
    assert ("X.drop" in said) == (form != "array")


def test_rows_without_fault_are_not_remarked_on():
    rng = np.random.default_rng(0)
    n = 300
    frame = clinic(n).assign(
        smokes=rng.random(n) < 0.3, grade=rng.integers(0, 5, n), visits=rng.poisson(2.0, n), share=rng.beta(0.3, 2, n),
        cost=rng.exponential(9, n) ** 2, change=rng.normal(size=n), sex=rng.choice(["f", "m"], n),
    )  # fmt: skip
    frame.loc[rng.random(n) < 0.1, "cost"] = NAN
    plain = frame.select_dtypes("number")
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(n)
        parts = {name: frame.iloc[rows] for name, rows in zip("abc", np.array_split(order, 3), strict=True)}
        assert said_of(parts) == said_of({name: part[plain.columns].to_numpy() for name, part in parts.items()}) == []
    assert said_of(frame) == said_of(plain.to_numpy()) == []
    moved = {name: clinic(seed=seed).add([seed, 0.2 * seed, 9 * seed]) for seed, name in enumerate("abc")}
    assert said_of(moved) == []  # silos differ
    centred = {name: clinic(seed=seed).to_numpy() + 300 * (name == "a") - 200 for seed, name in enumerate("abc")}
    assert said_of(centred) == []  # some are below 0 in one silo only
    counts = np.where(rng.random((n, 6)) < 0.3, 0, rng.lognormal(3, 0.3, (n, 6)))
    assert said_of(counts) == []  # zeros in all columns are no codes
    assert "column 1 is 0 in" in said_of(np.column_stack([rng.normal(size=(n, 5)), counts[:, 0]])[:, [0, 5, 1]])[0]


def test_of_many_rows_some_are_looked_at(monkeypatch):
    X = clinic(600)
    X.iloc[::20, 1] = -999
    monkeypatch.setattr("fmtc.tables.values.LOOKED_AT", 700)
    (said,) = said_of(X)
    assert said.endswith("(one row in 3 was looked at)")
    assert said_of(np.tile(X, (1, 200))) == []  # too many columns


# --------------------------------------------------------------------------------------------- rows of fit, again


@pytest.mark.parametrize("kind", ["array", "frame", "mapping"])
def test_a_model_explains_the_rows_of_fit_while_somebody_keeps_them(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(0, 1, (30, 3)), rng.normal(9, 1, (30, 3))]
    site = ["n", "s"] * 30
    if kind == "frame":
        X = pd.DataFrame(X, columns=["a", "b", "c"])
    if kind == "mapping":
        X, site = {"n": X[::2].copy(), "s": X[1::2].copy()}, None
    model = FMTC(2, random_state=0, mixture=FEW).fit(X, silos=site)
    assert model.explain().to_dict() == model.explain(X, silos=site).to_dict()
    assert write_report(model, tmp_path / "page.html").stat().st_size > 10_000
    with pytest.raises(TypeError, match="silos= is about the rows of X"):
        model.explain(silos=["n"] * 60)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        with pytest.raises(InputError, match="a model keeps no rows"):
            other.explain()
    del X
    gc.collect()
    with pytest.raises(InputError, match="a model keeps no rows"):
        model.explain()


def test_a_list_of_rows_is_not_remembered():
    model = FMTC(2, random_state=0, mixture=FEW).fit([[0.0, 1], [0, 2], [9, 1], [9, 2], [9, 3]])
    with pytest.raises(InputError, match="give them as X"):
        model.explain()


def test_numbers_that_name_silos_are_called_alike_whatever_holds_them():
    X, numbers = np.arange(24.0).reshape(12, 2), [1.0, 2.0] * 6
    for silos in (numbers, np.array(numbers), np.array(numbers, dtype=object), pd.Series(numbers, dtype=object)):
        model = Tabular().fit(X, silos=silos)
        assert model.silos_ == ["1", "2"]
        assert list(model.rows(X[:3], silos=1.0)) == ["1"]


def test_a_fit_that_fails_leaves_the_model_of_before():
    """Rows of other columns are refused by the model that is there, not looked at with the columns of the new rows."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a", "b"])
    model = FMTC(2, view="mixture", random_state=0).fit(X)
    labels = model.predict(X)
    with pytest.raises(DataError, match="needs at least 3 rows"):
        model.fit(pd.DataFrame({"c": [1.0, 2.0], "d": [3.0, 4.0], "e": [5.0, 7.0]}))
    assert model.n_features_in_ == 2
    assert model.schema_.names == ("a", "b")
    assert_array_equal(model.predict(X), labels)
