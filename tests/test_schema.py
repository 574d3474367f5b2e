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
        MIXED.encode(pl.DataFrame(frame), "silo 'north': ")
    assert str(caught.value).startswith("silo 'north': ")


def test_words_in_a_column_of_numbers_can_count_as_missing():
    schema = Schema((Column("a", words_missing=True),))
    assert_array_equal(schema.encode(pl.DataFrame({"a": ["1", "much"]})), [[1], [NAN]])
    assert Schema.of_numbers(["a"]).with_kinds({"a": "number"}) == schema
    with pytest.raises(DataError, match="the schema has no column 'b'"):
        schema.with_kinds({"b": "number"})
    with pytest.raises(DataError, match="says that 'a' is a category, and the schema a number"):
        schema.with_kinds({"a": "category"})


@pytest.mark.parametrize(
    "cells",
    [
        ["7", " -999.0 ", "<5", "N.D.", "8"],
        pl.Series([7.0, -999, -99.9, None, 8]),
        pl.Series([7.0, -999, -99.9, None, 8], dtype=pl.Float32),
        pl.Series([7, -999, None, None, 8], dtype=pl.Int16),
        pl.Series(["7", "-999", "n.d.", "n.d.", "8"], dtype=pl.Categorical),
    ],
    ids=lambda cells: str(getattr(cells, "dtype", "words")),
)
def test_codes_of_missing_values(cells):
    schema = Schema.of_numbers(["a"]).with_missing([-999, "<5", -99.9, "n.d."])
    assert_array_equal(schema.encode(pl.DataFrame({"a": cells})).ravel(), [7, NAN, NAN, NAN, 8])


def test_codes_of_missing_values_in_a_file(tmp_path):
    """Above all columns, of one column, and of levels."""
    path = tmp_path / "schema.toml"
    path.write_text(
        "missing = [-999, '<5']\n[[columns]]\nname = 'crp'\nmissing = [0, -99.5]\n[[columns]]\nname = 'sex'\n"
        "levels = ['f', 'm']\n[[columns]]\nname = 'age'\nwords_missing = true\n"
    )
    schema = Schema.read(path)
    frame = pl.DataFrame(
        {"crp": ["0", "<5", "-99.5", "1"], "sex": ["f", "-999", "m", "m"], "age": ["0", "?", "old", "9"]}
    )
    assert_array_equal(schema.encode(frame), [[NAN, 0, 0], [NAN, NAN, NAN], [NAN, 1, NAN], [1, 1, 9]])
    assert 'missing = [-999, "<5"]\n\n[[columns]]' in schema.to_toml()
    assert "missing = [-99.5, 0]\n" in schema.to_toml()
    both = Schema((Column("a", missing=("0",)), Column("b", missing=("0", "00"))))  # in any order
    assert Schema.from_toml(both.to_toml()) == both
    assert Schema.from_toml(schema.to_toml()).encode(frame).tolist()[3] == [1, 1, 9]
    with pytest.raises(DataError, match="column 'sex': 'm' cannot be a level and a missing value"):
        schema.with_missing(["M"])


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
            codes = data.draw(st.lists(texts | st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
            more = {"missing": tuple(codes), "words_missing": data.draw(st.booleans())}
            columns.append(Column(name, unit=data.draw(st.just("") | texts), lower=low, upper=high, **more))
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
        ("missing = -999\n[[columns]]\nname = 'a'", 'missing must be a list, such as [-999, "<5"]'),
        ("[[columns]]\nname = 'a'\nmissing = [true]", "column 'a': missing must be a list"),
        ("[[columns]]\nname = 'a'\nwords_missing = 1", "words_missing must be true or false, got 1"),
        ("[[columns]]\nname = 'a'\nlevels = ['x']\nwords_missing = true", "'a' is a category, whose words are levels"),
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
