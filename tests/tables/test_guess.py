"""What columns are judged to be, and values that look wrong."""

import warnings
from datetime import date

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

from fmtc.kernels.scaling import far_row
from fmtc.tables import Columns, Silo, remarks
from fmtc.tables.catalogue import done_with, questions_about, words_of
from fmtc.tables.guess import judge
from fmtc.tables.values import codes_in, sentinel

N = 40
rng = np.random.default_rng(0)
NOISE = rng.normal(size=N)


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        (NOISE, "x", "number"),
        (range(N), "x", "identifier"),  # row numbers
        (rng.permutation(N) + 500, "image", "identifier"),
        (rng.permutation(N) + 500, "x", "identifier"),  # different beyond chance
        (rng.permutation(10**6)[:N], "patient_id", "identifier"),
        (rng.permutation(10**6)[:N], "x", "number"),  # different by chance
        (100000 + rng.permutation(900000)[:N], "x", "identifier"),  # as long as each other
        (np.sort(rng.permutation(10**4)[:N]), "x", "identifier"),  # in order
        (rng.integers(20, 90, N), "age", "number"),
        (rng.integers(0, 3, N), "drug_id", "number"),
        (np.repeat(range(30), 4), "patient_id", "identifier"),  # several visits each
        ([f"{i:04}" for i in rng.permutation(9000)[:N]], "x", "identifier"),
        ([f"P{i}" for i in range(N)], "x", "identifier"),
        (["f", "m"] * 20, "sex", "category"),
        ([True, False] * 20, "smokes", "category"),
        (["TRUE", "false"] * 20, "smokes", "category"),
        (["low", "high", "", "?"] * 10, "dose", "category"),
        (["1", "2.5", "NA", " 3 "] * 10, "dose", "number"),
        ([7.0] * N, "x", "constant"),
        (["a"] * N, "x", "constant"),
        ([None] * N, "x", "constant"),
        (["2021-03-04", "2021-05-06"] * 20, "x", "dates"),
        (["04.03.2021", "06.12.2020"] * 20, "x", "dates"),
        (["2021-03-04 10:00:00", "2021-05-06T11:30"] * 20, "x", "dates"),
        ([date(2021, 1, 1)] * N, "x", "dates"),
        (["2021-03-04", "04.03.2021", "3/14/2021", "4 May 2021", "May 4, 2021"] * 9, "x", "dates"),  # mixed
        ([f"printer {i} does not print" for i in range(N)], "x", "text"),  # free text is no identifier,
        ([f"ticket {i % 37} cannot be opened" for i in range(N)], "ticket_id", "text"),  # whatever it is called,
        ([f"der Drucker {i} druckt nicht" if i % 4 else "kaputt" for i in range(12)], "x", "text"),
        ([f"{i} {i + 1} 550e8400-e29b-{i:04}-abcd" for i in range(N)], "x", "identifier"),  # these are no words
        (["severe chest pain", "no pain at all"] * 20, "pain", "category"),
        (["1", "2", "3", "much"] * 10, "x", "strays"),
        ([f"w{i % 60}" for i in range(200)], "x", "words"),
        ([[1, 2]] * N, "x", "type"),
        ([1.0, None] * 20, "id", "constant"),
    ],
)
def test_kinds(values, name, expected):
    values = values if isinstance(values, list) else list(np.asarray(values))
    guess = judge({"a": pl.DataFrame({name: values})}).guesses[name]
    assert (guess.doubt.code if guess.doubt else guess.kind) == expected


def test_what_was_said_about_a_column_is_not_questioned():
    codes = [1, 2, 3, 4] * 10
    found = judge({"a": pl.DataFrame({"cp": codes, "id": range(N)})}, as_types={"cp": "category", "id": "number"})
    assert found.guesses["cp"].levels == ("1", "2", "3", "4")
    assert found.guesses["id"].kind == "number"
    assert found.id_column is None


def test_free_text_is_refused_with_the_flags_that_work():
    notes = [f"the user {i} cannot log in since this morning and is angry" for i in range(60)]
    (doubt,) = judge({"a": pl.DataFrame({"free text": notes})}).doubts
    assert words_of(doubt) == (
        "column 'free text' holds free text (such as 'the user 0 cannot log in since this mor…'): cluster by its "
        "words (`text_column` 'free text'), or omit it (`drop` 'free text')"
    )
    assert not judge({"a": pl.DataFrame({"t": notes})}, as_types={"t": "category"}).doubts


def test_a_category_may_be_the_answer_or_the_silo():
    tables = {"a": pl.DataFrame({"site": ["n", "s"] * 5, "tumour_class": ["b", "m"] * 5, "classic": [1.5, 2] * 5})}
    assert done_with(judge(tables)) == [
        "categories: 'site' (2 levels), 'tumour_class' (2 levels)",
        "does 'site' name silos? It is clustered on: divide rows by it (`silo_column` site), omit it (`drop` site), "
        "or keep it (`as_types` category:site)",
        "is 'tumour_class' the answer? It is clustered on: leave it out (`label_column` tumour_class), or keep it "
        "(`as_types` category:tumour_class)",
    ]
    found = judge(tables, as_types={"site": "category", "tumour_class": "category"})
    assert done_with(found) == ["categories: 'site' (2 levels), 'tumour_class' (2 levels)"]
    assert questions_about(judge(tables), joining=True) == [
        "does 'site' name silos? It is clustered on: omit it (`drop` site)",
        "is 'tumour_class' the answer? It is clustered on: leave it out (`label_column` tumour_class)",
    ]


def test_numbers_may_be_the_answer_or_the_silo_too():
    """A target of 0, 1, 2 is clustered on like a measurement: the reader should hear of it."""
    tables = {"a": pl.DataFrame({"target": [0, 1, 2] * 5, "site": [1, 2, 3] * 5, "label_time": [0.5, 1, 2] * 5})}
    found = judge(tables)
    assert found.of_kind("number") == ["target", "site", "label_time"]
    assert [line.partition("?")[0] for line in done_with(found)] == ["is 'target' the answer", "does 'site' name silos"]
    assert done_with(found)[0].endswith("or keep it (`as_types` number:target)")
    assert done_with(judge(tables, wanted=["target", "site"])) == []


@pytest.mark.parametrize("name", ["topic", "Topic", "y", "cluster", "trueLabel", "outcome"])
def test_names_of_answers(name):
    assert questions_about(judge({"a": pl.DataFrame({name: ["u", "v", "w"] * 9})}))
    assert not questions_about(judge({"a": pl.DataFrame({name + "ish": ["u", "v", "w"] * 9})}))


def test_the_date_that_is_shown_is_the_first():
    days = pl.date_range(pl.date(2021, 1, 3), pl.date(2021, 6, 3), eager=True).cast(pl.String)
    for _ in range(5):
        (doubt,) = judge({"a": pl.DataFrame({"visit": days})}).doubts
        assert "dates (such as 2021-01-03)" in words_of(doubt)


def test_levels_are_those_of_all_silos_in_one_spelling():
    found = judge(
        {"a": pl.DataFrame({"s": ["Male", "female"] * 5}), "b": pl.DataFrame({"s": ["male", "male", "other"]})}
    )
    assert found.guesses["s"].levels == ("Male", "female", "other")
    numbers = judge({"a": pl.DataFrame({"s": [10, 9] * 5})}, as_types={"s": "category"})
    assert numbers.guesses["s"].levels == ("9", "10")


def test_a_column_of_ids_in_one_silo_only_is_none():
    """Different in all rows of one silo, and not of another."""
    found = judge({"a": pl.DataFrame({"x": range(N)}), "b": pl.DataFrame({"x": [1, 2] * 20})})
    assert found.guesses["x"].kind == "number"


def test_a_problem_names_the_first_bad_cell():
    found = judge({"a": pl.DataFrame({"x": ["1", "2"]}), "b": pl.DataFrame({"x": ["3", "4", "much"]})})
    assert "'much' in row 3 of silo 'b'" in words_of(found.doubts[0])


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_iris, load_diabetes])
def test_real_measurements_are_numbers(load):
    data = load()
    frame = pl.DataFrame(data.data, schema=list(data.feature_names))
    kinds = {guess.kind for guess in judge({"a": frame[::2], "b": frame[1::2]}).guesses.values()}
    assert kinds == {"number"}


# -------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (np.r_[rng.normal(200, 30, 100), np.zeros(9)], 0),
        (np.r_[rng.integers(20, 90, 100), np.full(5, -9)], -9),
        (np.r_[rng.normal(50, 9, 100), np.full(5, -999)], -999),
        (np.r_[rng.normal(50, 9, 100), np.full(5, 9999)], 9999),
        (rng.normal(50, 9, 100), None),
        (rng.poisson(2, 100).astype(float), None),
        (np.r_[rng.exponential(3, 100), np.zeros(20)], None),
        (rng.normal(0, 5, 100).round(), None),
        (np.r_[rng.integers(900, 998, 100), np.full(5, 999)], None),
        (np.repeat([0.0, 1.0], 50), None),
        (np.r_[rng.normal(200, 30, 100), np.zeros(2)], None),
        ([*rng.normal(5, 5, size=95), *[-999] * 5], -999),  # also among negative numbers
        ([*rng.normal(0, 20, size=95), *[-99] * 5], None),
    ],
)
def test_codes_for_missing_values(values, code):
    found = sentinel(np.asarray(values, float))
    assert (found and found[0]) == code


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_iris, load_diabetes])
def test_no_false_alarm_about_codes_and_rows(load):
    X = load().data
    assert [sentinel(X[:, j]) for j in range(X.shape[1])] == [None] * X.shape[1]
    assert far_row(X) is None


def silo(X, names=("a", "b"), name="north"):
    return Silo(name, np.asarray(X, float), names, np.arange(len(X)))


def test_zeros_of_counts_are_no_codes():
    """One column alone has a gap above 0; where nearly all columns begin at 0, that says nothing."""
    X = np.log1p(rng.poisson(1, size=(200, 8)))
    gap = np.where(rng.random(200) < 0.4, 0.0, rng.normal(8, 1, 200))
    names = [f"gene{j}" for j in range(9)]
    assert remarks([silo(np.c_[X, gap], names)], scaled=True) == []
    assert codes_in(Columns(pl.DataFrame(np.c_[X, gap], schema=names))) == ""  # nor where files are compared
    (said,) = remarks([silo(np.c_[X[:, :1], gap], ("count", "pressure"))], scaled=True)
    assert "'pressure' is 0 in" in said


def test_remarks():
    X = rng.normal([50, 900], [9, 300], size=(60, 2))
    assert remarks([silo(X)], scaled=True) == []
    assert "'b' is 99." in remarks([silo(X)], scaled=False)[0]
    coded = np.where(np.arange(60)[:, None] < [0, 5], -999, X)
    assert "'b' is -999 in 5 rows" in remarks([silo(coded)])[0]
    far = X.copy()
    far[7, 0] = 1e15
    assert "row 8 of 'north' has 1e+15 in 'a'" in remarks([silo(far)])[0]
    (said,) = remarks([silo(X), silo(X[::-1] + 1, name="south"), silo(X * [1, 1000], name="west")])
    assert said.startswith("west has values about 1,000 times the others' in 'b'")


def test_a_huge_constant_does_not_outweigh():
    """Its variance is rounding."""
    X = np.c_[rng.normal(size=(30, 2)), np.full(30, 1e17 / 3)]
    assert X[:, 2].var() > 0
    assert remarks([silo(X, ("a", "b", "c"))], scaled=False) == []


def test_remarks_bear_missing_cells_and_constant_columns():
    X = rng.normal(size=(30, 3))
    X[:, 1], X[3:9, 0] = np.nan, np.nan
    X[:, 2] = 1e100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert remarks([silo(X, ("a", "b", "c"))], scaled=False) == []
