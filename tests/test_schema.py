"""What columns hold: rows as numbers by a schema, and the file that keeps it."""

import re
import warnings

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fmtc.errors import DataError
from fmtc.schema import Column, Schema

NAN = float("nan")
MIXED = Schema(
    (Column("age", unit="years", lower=0, upper=120), Column("sex", "category", ("female", "male")), Column("dose")),
    "patient",
)


def test_rows_become_numbers_codes_and_nan():
    frame = pl.DataFrame({"dose": ["1", " 2.5 ", "NA"], "sex": ["male", "Female", None], "age": [30, 40, 50], "z": 0})
    assert_array_equal(MIXED.encode(frame), [[30, 1, 1], [40, 0, 2.5], [50, NAN, NAN]])


def test_unknown_levels_and_values_outside_bounds_count_as_missing_and_are_said_once():
    frame = pl.DataFrame({"dose": [1.0, 2.0], "sex": ["other", "male"], "age": [-999, 50]})
    with pytest.warns(UserWarning, match="count as missing") as caught:
        X = MIXED.encode(frame)
    assert_array_equal(X, [[NAN, NAN, 1], [50, 1, 2]])
    assert [str(w.message) for w in caught] == [
        "levels that are not known count as missing: 'sex' ('other')",
        "values outside the bounds count as missing: 'age' (1)",
    ]


def test_levels_that_are_numbers_or_truths():
    schema = Schema((Column("cp", "category", ("1", "2.5")), Column("b", "category", ("false", "true"))))
    frame = pl.DataFrame({"cp": [1.0, 2.5, None], "b": [True, False, None]})
    assert_array_equal(schema.encode(frame), [[0, 1], [1, 0], [NAN, NAN]])
    words = pl.DataFrame({"cp": ["1.0", "2.5", "1"], "b": ["TRUE", "False", "true"]})
    assert_array_equal(schema.encode(words), [[0, 1], [1, 0], [0, 1]])


def test_single_precision_stays_single():
    frame = pl.DataFrame({"a": pl.Series([1, 2], dtype=pl.Float32)})
    assert Schema.of_numbers(["a"]).encode(frame).dtype == np.float32


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"age": [1], "sex": ["male"], "dos": [2]}, "no column 'dose'; did you mean 'dos'?"),
        ({"age": [1, 2], "sex": ["male"] * 2, "dose": ["1", "much"]}, "but holds 'much' in row 2"),
        ({"age": [1], "sex": ["male"], "dose": [[1]]}, "'dose' must hold numbers, but holds values of type List"),
    ],
)  # fmt: skip
def test_errors_name_the_column_and_the_first_bad_value(frame, words):
    with pytest.raises(DataError, match=re.escape(words)) as caught:
        MIXED.encode(pl.DataFrame(frame), "client 'north': ")
    assert str(caught.value).startswith("client 'north': ")


def test_words_in_a_column_of_numbers_can_count_as_missing():
    schema = Schema.of_numbers(["a"])
    assert_array_equal(schema.encode(pl.DataFrame({"a": ["1", "much"]}), lenient=["a"]), [[1], [NAN]])


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
bounds = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.data())
def test_a_schema_comes_back_from_its_file_and_from_json(data):
    columns = []
    for name in data.draw(st.lists(texts, unique=True, min_size=1, max_size=4)):
        if data.draw(st.booleans()):
            columns.append(Column(name, "category", tuple(data.draw(st.lists(texts, unique=True, min_size=1)))))
        else:
            low, high = data.draw(bounds), data.draw(bounds)
            if low is not None and high is not None and low > high:
                low, high = high, low
            columns.append(Column(name, unit=data.draw(st.just("") | texts), lower=low, upper=high))
    schema = Schema(tuple(columns), data.draw(st.just("") | texts))
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(schema.to_dict()) == schema


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a =", "is not TOML"),
        ("format = 2", "has format 2"),
        ("colums = []", "no setting 'colums'; did you mean 'columns'"),
        ("", "describes no column"),
        ("[[columns]]\nkind = 'number'", "a column has no name"),
        ("[[columns]]\nname = 'a'\nlevel = ['x']", "column 'a' has no setting 'level'; did you mean 'levels'?"),
        ("[[columns]]\nname = 'a'\nkind = 'number'\nlevels = ['x']", "a category has levels"),
        ("[[columns]]\nname = 'a'\nlower = '1'", "lower must be a number, got '1'"),
        ("[[columns]]\nname = 'a'\nlower = 2\nupper = 1", "lower (2) lies above upper (1)"),
        ("[[columns]]\nname = 'a'\n[[columns]]\nname = 'a'", "names a column twice"),
        ("[[columns]]\nname = 'a'\nlevels = 'x'", "levels must be a list"),
    ],
)
def test_a_wrong_file_is_one_clear_sentence(tmp_path, text, words):
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(words)) as caught:
        Schema.read(path)
    assert str(path) in str(caught.value)


def test_a_person_may_omit_the_kind_and_write_numbers_as_levels(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(
        "[[columns]]\nname = 'cp'\nlevels = [1, 2, true]\n[[columns]]\nname = 'age'\n", encoding="utf-8-sig"
    )
    assert Schema.read(path).columns == (Column("cp", "category", ("1", "2", "true")), Column("age"))
    with pytest.raises(DataError, match="cannot be read"):
        Schema.read(tmp_path / "other.toml")


def test_nothing_is_said_where_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MIXED.encode(pl.DataFrame({"age": [1], "sex": ["male"], "dose": [None]}))
