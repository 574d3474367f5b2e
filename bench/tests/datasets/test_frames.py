"""Tables and texts with named columns: pickles that run nothing, text files, and rows made from them."""

import bz2
import io
import lzma
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.errors import DatasetError
from fmtc.schema import Column
from fmtc_bench.datasets.frames import WINDOW, NamedRows, NamedTexts, read_lines, read_pickle, watch


def piece(module, name):
    """Something that a pickle calls by this name."""
    return type(name, (), {"place": (module, name)})


FRAME, MANAGER = piece("pandas.core.frame", "DataFrame"), piece("pandas.core.internals.managers", "BlockManager")
BLOCK, AXIS = piece("pandas._libs.internals", "_unpickle_block"), piece("pandas.core.indexes.base", "_new_Index")
NAMES, RANGE = piece("pandas.core.indexes.base", "Index"), piece("pandas.core.indexes.range", "RangeIndex")


class Made:
    """What a pickle makes by a call."""

    def __init__(self, what, *arguments, state=None):
        self.recipe = (what, arguments, state)

    def __reduce__(self):
        return self.recipe


class Writer(pickle._Pickler):
    def save_global(self, obj, name=None):
        if not hasattr(obj, "place"):
            return super().save_global(obj, name)
        self.write(pickle.GLOBAL + "{}\n{}\n".format(*obj.place).encode())
        return self.memoize(obj)


def pickled_frame(names, *blocks):
    """A packed pickle as pandas writes it: blocks of columns of one kind, and where they belong."""
    columns = Made(AXIS, NAMES, {"data": np.array(names, dtype=object), "name": None})
    rows = Made(AXIS, RANGE, {"name": None, "start": 0, "stop": blocks[0][0].shape[1], "step": 1})
    held = tuple(Made(BLOCK, values, places, 2) for values, places in blocks)
    file = io.BytesIO()
    Writer(file, 5).dump(Made(FRAME, state={"_mgr": Made(MANAGER, held, [columns, rows]), "_typ": "dataframe"}))
    return lzma.compress(file.getvalue())


# ------------------------------------------------------------------------------------------------------------ pickles


def test_a_pickled_frame_is_read_as_columns_in_their_order():
    words, floats, whole = (
        np.array([["a", "b"]], dtype=object),
        np.array([[1.5, np.nan], [0.5, 1.0]]),
        np.array([[3, 4]]),
    )
    blocks = ((floats, slice(1, 4, 2)), (words, slice(0, 1, 1)), (whole, np.array([2])))
    found = read_pickle(pickled_frame(["kind", "size", "n", "more"], *blocks))
    assert list(found) == ["kind", "size", "n", "more"]
    assert found["kind"].tolist() == ["a", "b"] and found["n"].tolist() == [3, 4]
    assert_array_equal(found["size"], [1.5, np.nan])


class Evil:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_pickle_that_would_run_something_is_refused_and_does_not_run(protocol, capsys):
    with pytest.raises(DatasetError, match="print is not read"):
        read_pickle(pickle.dumps([1, Evil()], protocol=protocol))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps([1, 2])[:-3]])
def test_what_is_no_pickle(content):
    with pytest.raises(DatasetError, match="no pickle of arrays"):
        read_pickle(content)


@pytest.mark.parametrize("protocol", [2, 5])
def test_arrays_of_any_kind_come_back(protocol):
    arrays = {"n": np.arange(6).reshape(2, 3), "words": np.array(["x", None], dtype=object), "one": np.float64(0.5)}
    found = read_pickle(bz2.compress(pickle.dumps(arrays, protocol=protocol)))
    assert_array_equal(found["n"], arrays["n"])
    assert found["words"].tolist() == ["x", None] and found["one"] == 0.5


def test_a_text_file_has_numbers_words_and_lines_to_skip():
    found = read_lines(b"size\tkind\ncontinuous\tdiscrete\n\tclass\n1\tx y\n?\t1\n\n", delimiter="\t", skipped=2)
    assert_array_equal(found["size"], [1, np.nan])
    assert found["kind"].tolist() == ["x y", "1"]


# --------------------------------------------------------------------------------------------------------------- rows

LINES = (
    b"id,x.size,x.sex,x.same,year,kind,part\n"
    b"1,5,F,7,1992,a,u\n2,400,M,7,1993,a,v\n3,6,,7,1994,b,u\n4,7,M,7,1992,c,u\n5,,F,7,1999,b,u\n"
)


def test_rows_have_the_classes_silos_and_columns_that_are_asked_for():
    made = NamedRows(
        lines={}, label=("kind", "part"), classes={"a u": "first", "a v": "second", "b u": "third"},
        client="year", clients={"1992": "early", "1993": "early", "1994": "late"}, without=("id",),
        columns=(Column("size", unit="mm", upper=100),), levels={"sex": {"M": "male", "F": "female"}}, prefix="x.",
    )(LINES)  # fmt: skip
    assert made.labels == ["first", "second", "third"]  # neither class c nor the year 1999
    assert made.clients == ["early", "early", "late"]
    assert_array_equal(made.X, [[5, 1], [np.nan, 0], [6, np.nan]])  # 400 is out of bounds
    assert [(c.name, c.kind, c.levels, c.unit) for c in made.columns] == [
        ("size", "number", (), "mm"),
        ("sex", "category", ("male", "female"), ""),
    ]  # the same everywhere is no column


def test_words_are_categories_and_rows_without_a_measure_are_left_out():
    made = NamedRows(lines={}, label="kind", without=("id", "year"), measured=("x.size",))(LINES)
    assert made.clients is None and made.labels == ["a", "a", "b", "c"]
    assert [(c.name, c.levels) for c in made.columns] == [("x.size", ()), ("x.sex", ("F", "M")), ("part", ("u", "v"))]


def test_documents_lose_links_and_accents():
    lines = "text,who,time,own\nŽe see https://x.org/a,A,2016-04-01,yes\nshort,B,2016-05-01,yes\n"
    lines += "two words,B,2016-04-02,no\nmore words,C,2016-04-02,yes\nlate words,A,2016-06-02,yes\n"
    made = NamedTexts(
        lines={}, text="text", label="who", classes={"A": "Ann", "B": "Bob"}, client="time",
        letters=7, clients={"2016-04": "April", "2016-05": "May"}, only={"own": "yes"}, least=2,
    )(lines.encode())  # fmt: skip
    assert (made.texts, made.labels, made.clients) == (["Ze see "], ["Ann"], ["April"])
    every = NamedTexts(lines={}, text="text", label="who", client="own")(lines.encode())
    assert every.labels == ["A", "B", "B", "C", "A"] and every.clients == ["yes", "yes", "no", "yes", "yes"]


def test_readings_of_a_watch_are_cut_into_windows():
    readings = np.zeros((2 * WINDOW + 50, 2))
    readings[::2, 0] = 2.0  # goes up and down by 2
    readings[WINDOW:, 1] = 5.0
    record = {
        "X": np.array([readings, readings[:10]], dtype=object), "y": np.array([1, 0]), "subject": np.array([3, 12]),
        "y_labels": ["PEN", "ROW"], "X_labels": ["ax", "wz"],
    }  # fmt: skip
    file = io.BytesIO()
    np.save(file, np.array(record, dtype=object), allow_pickle=True)
    made = watch(file.getvalue(), classes={"ROW": "upright row"})
    assert made.labels == ["upright row"] * 2 and made.clients == ["person03"] * 2  # ten readings are no window
    assert_allclose(made.X, [[1, 0, 1, 0, 2, 0], [1, 5, 1, 0, 2, 0]])
    assert [column.name for column in made.columns][::3] == ["mean of ax", "deviation of wz"]


def test_a_frame_of_the_wrong_columns_says_which():
    with pytest.raises(KeyError, match="kind"):
        NamedRows(lines={}, label="kind")(b"size\n1\n")
