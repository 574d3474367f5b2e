"""Reading clients from files: what comes back equals what was written, and everything else is a `DataError`."""

import re
import warnings
from datetime import date

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_array_equal

from fmtc.errors import DataError
from fmtc.schema import Column, Schema
from fmtc.tables import Reading, Silo, read_silos, read_texts
from fmtc.tables.values import constant_columns

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
matrices = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=finite)
words = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=8).map(str.strip)
some = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder, **files):
    """Text files by stem_suffix: ``a_csv="x,y\\n1,2\\n"``."""
    paths = []
    for name, content in files.items():
        stem, _, suffix = name.rpartition("_")
        path = folder / f"{stem}.{suffix}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths.append(path)
    return paths


def refusal(paths, *mentioned, **options):
    """The message of a `DataError`, in which names and numbers must occur."""
    with pytest.raises(DataError) as caught:
        read_silos(paths, Reading(**options))
    message = str(caught.value)
    assert [word for word in mentioned if str(word) not in message] == []
    assert "--" not in message.replace("fmtc check FILES --write-schema", "")  # in Python, options are arguments
    return message


# ------------------------------------------------------------------------------------------------- round trips


@some
@given(X=matrices, data=st.data())
@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_a_table_comes_back_as_it_was(tmp_path, suffix, X, data):
    unique = st.lists(words.filter(bool), min_size=X.shape[1], max_size=X.shape[1], unique=True)
    names = data.draw(unique)
    frame = pl.DataFrame(X, schema=names)
    path = tmp_path / f"silo.{suffix}"
    if suffix == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path, separator="," if suffix == "csv" else "\t")
    (silo,) = read_silos([path], Reading(header=True))  # names may be numbers
    assert silo.name == "silo"
    assert silo.feature_names == tuple(names)
    assert silo.X.dtype == np.float64
    assert silo.X.flags.c_contiguous
    assert_array_equal(silo.X, X)
    assert_array_equal(silo.rows, np.arange(len(X)))
    assert silo.ids is None
    assert silo.labels is None


@some
@given(
    X=st.sampled_from([np.float64, np.float32, np.int16, np.uint8, np.bool_]).flatmap(
        lambda dtype: arrays(dtype, array_shapes(min_dims=2, max_dims=2, max_side=6))
    )
)
@pytest.mark.parametrize("how", ["npy", "npz", "npz X", "npz sparse"])
def test_an_array_comes_back_as_it_was(tmp_path, how, X):
    if X.dtype.kind == "f":
        X = np.nan_to_num(X)
    path = tmp_path / f"silo.{how[:3]}"
    if how == "npy":
        np.save(path, X)
    elif how == "npz":
        np.savez(path, anything=X, target=np.arange(3))
    elif how == "npz X":
        np.savez(path, X=X, other=np.zeros((2, 2)))
    else:
        sp.save_npz(path, sp.csc_array(X))
    (silo,) = read_silos([path])
    assert silo.feature_names is None
    assert silo.X.dtype == (np.float32 if X.dtype == np.float32 else np.float64)
    assert sp.issparse(silo.X) == (how == "npz sparse")
    assert_array_equal(silo.X.toarray() if sp.issparse(silo.X) else silo.X, X)


@some
@given(owners=st.lists(st.sampled_from(["a", "b", "01", "1"]), min_size=1, max_size=12))
def test_one_file_falls_into_silos_and_keeps_its_rows(tmp_path, owners):
    path = tmp_path / "all.csv"
    values = np.arange(len(owners)) * 0.5
    pl.DataFrame({"site": owners, "x": values}).write_csv(path)
    silos = read_silos([path], Reading(silo_column="site"))
    assert [s.name for s in silos] == list(dict.fromkeys(owners))
    for silo in silos:
        assert [owners[row] for row in silo.rows] == [silo.name] * len(silo.rows)
        assert_array_equal(silo.X[:, 0], values[silo.rows])
    assert_array_equal(np.sort(np.concatenate([s.rows for s in silos])), np.arange(len(owners)))


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "bsr", "dia"])
def test_every_sparse_format_and_the_older_matrix_class(tmp_path, kind):
    X = np.array([[1.0, 0, 0], [0, 0, 2.0]])
    sp.save_npz(tmp_path / "s.npz", sp.coo_matrix(X).asformat(kind))
    (silo,) = read_silos([tmp_path / "s.npz"])
    assert isinstance(silo.X, sp.csr_array)
    assert_array_equal(silo.X.toarray(), X)


def test_types_become_numbers_and_single_precision_stays_only_where_all_is_single(tmp_path):
    columns = {"i": [1, 2], "b": [True, False], "f": pl.Series([0.5, 1.5], dtype=pl.Float32)}
    pl.DataFrame(columns).write_parquet(tmp_path / "mixed.parquet")
    pl.DataFrame({"f": columns["f"], "g": columns["f"]}).write_parquet(tmp_path / "single.parquet")
    (mixed,) = read_silos([tmp_path / "mixed.parquet"])
    (single,) = read_silos([tmp_path / "single.parquet"])
    assert mixed.X.dtype == np.float64
    assert_array_equal(mixed.X, [[1, 1, 0.5], [2, 0, 1.5]])
    assert single.X.dtype == np.float32


def test_the_ways_people_write_numbers(tmp_path):
    """Signs, blanks, exponents, words for truth, a byte order mark, Windows line ends and blank last lines."""
    text = '\ufeffa, b ,"c ""d"""\r\n+1, 2,TRUE\r\n-1e3,"3.5",false\r\n12345678901234567890123,0,1\r\n\r\n\r\n'
    (silo,) = read_silos(write(tmp_path, s_csv=text))
    assert silo.feature_names == ("a", "b", 'c "d"')
    assert_array_equal(silo.X, [[1, 2, 1], [-1000, 3.5, 0], [12345678901234567890123.0, 0, 1]])


def test_columns_that_look_like_patterns_are_only_names(tmp_path):
    pl.DataFrame({"^x.*$": [1, 2], "*": [3, 4], "xy": ["p", "q"]}).write_csv(tmp_path / "s.csv")
    (silo,) = read_silos([tmp_path / "s.csv"], Reading(id_column="xy"))
    assert silo.feature_names == ("^x.*$", "*")
    assert silo.ids == ["p", "q"]


def test_identifiers_clients_and_labels_stay_as_written(tmp_path):
    text = "id,site,y,x\n007,01,1,5\n008, 01 ,,6\n009,1,one,7\n"
    first, second = read_silos(
        write(tmp_path, s_csv=text), Reading(id_column="id", silo_column="site", label_column="y")
    )
    assert (first.name, second.name) == ("01", "1")
    assert first.ids == ["007", "008"]
    assert first.labels == ["1", None]
    assert second.labels == ["one"]
    assert_array_equal(second.rows, [2])


def test_parquet_identifiers_and_labels_of_any_type_that_can_be_written(tmp_path):
    when = [date(2026, 1, 1), None]
    pl.DataFrame({"when": when, "y": [1, 2], "x": [0.0, 1.0], "z": [[1], [2]]}).write_parquet(tmp_path / "s.parquet")
    (silo,) = read_silos([tmp_path / "s.parquet"], Reading(id_column="when", label_column="y", drop=["z"]))
    assert silo.ids == ["2026-01-01", None]
    assert silo.labels == ["1", "2"]
    refusal([tmp_path / "s.parquet"], "'z'", "List(Int64)", id_column="z", drop=["when"])


def test_another_order_of_columns_is_put_right_and_said(tmp_path):
    paths = write(tmp_path, a_csv="x,y\n1,2\n", b_csv="y,x\n2,1\n", c_tsv="x\ty\n1\t2\n")
    with pytest.warns(UserWarning, match=r"^'b': .* 'a'$"):
        silos = read_silos(paths)
    for silo in silos:
        assert silo.feature_names == ("x", "y")
        assert_array_equal(silo.X, [[1, 2]])


def test_columns_of_a_model(tmp_path):
    paths = write(tmp_path, new_csv="y,x\n2,1\n")
    (silo,) = read_silos(paths, Reading(schema=Schema.of_numbers("xy"), of_model=True))
    assert_array_equal(silo.X, [[1, 2]])
    refusal(paths, "new.csv lacks 'z' of the model", schema=Schema.of_numbers("xz"), of_model=True)


def test_dropping_makes_silos_alike(tmp_path):
    paths = write(tmp_path, a_csv="x,note\n1,hello\n", b_csv="x\n2\n")
    assert [s.feature_names for s in read_silos(paths, Reading(drop=["note"]))] == [("x",), ("x",)]


def test_unnamed_column_can_be_dropped(tmp_path):
    paths = write(tmp_path, a_csv=",x\n0,1\n1,2\n")
    refusal(paths, "'a'", "`drop` ''")
    assert read_silos(paths, Reading(drop=[""]))[0].feature_names == ("x",)


# --------------------------------------------------------------------------------------------------- refusals


def test_silos_need_different_names(tmp_path):
    (tmp_path / "b").mkdir()
    (first,) = write(tmp_path, a_csv="x\n1\n")
    (second,) = write(tmp_path / "b", a_tsv="x\n1\n")
    refusal([first, second], first, second, "'a'", "`silo_column`")
    refusal([first, first], "'a'")
    refusal([])


def test_silo_column_takes_one_file(tmp_path):
    paths = write(tmp_path, a_csv="s,x\n1,1\n", b_csv="s,x\n1,1\n")
    refusal(paths, "2 files", "`silo_column`", silo_column="s")


def test_rows_without_a_client(tmp_path):
    paths = write(tmp_path, a_csv='s,x\n1,1\n,2\n" ",3\n')
    refusal(paths, "2 rows", "a.csv", "'s'", silo_column="s")


@pytest.mark.parametrize(
    ("options", "mentioned"),
    [
        ({"label_column": "clas"}, ["`label_column`", "a.csv", "'clas'", "'class' or 'Klass'?"]),
        ({"id_column": "ID"}, ["`id_column`", "a.csv", "'ID'", "'id'?"]),
        ({"silo_column": "q"}, ["`silo_column`", "a.csv", "'q'", "'class', 'Klass', 'id', 'x'."]),
        ({"drop": ["x", "idd"]}, ["`drop`", "'idd'", "'id'?"]),
        ({"columns": ["x", "y"]}, ["`columns`: no file has a column 'y'"]),
        ({"as_types": {"y": "category"}}, ["`as_types`: no file has a column 'y'"]),
        ({"as_types": {"x": "date"}}, ["`as_types`: 'x' cannot be a 'date'"]),
        ({"missing": "some"}, ["`missing`", "'some'"]),
    ],
)
def test_names_that_are_no_column(tmp_path, options, mentioned):
    refusal(write(tmp_path, a_csv="class,Klass,id,x\n1,1,1,1\n"), *mentioned, **options)


def test_names_of_columns_need_a_table(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    for options in ({"label_column": "y"}, {"drop": ["y"]}):
        refusal([tmp_path / "a.npy"], "a.npy", f"`{next(iter(options))}`", ".parquet", **options)


def test_kinds_must_agree(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    sp.save_npz(tmp_path / "b.npz", sp.csr_array(np.eye(3)))
    write(tmp_path, c_csv="x,y,z\n1,2,3\n")
    refusal([tmp_path / "a.npy", tmp_path / "b.npz"], "a.npy is a dense matrix", "b.npz is a sparse matrix")
    refusal([tmp_path / "a.npy", tmp_path / "c.csv"], "a.npy is a dense matrix", "c.csv is a table")


def test_arrays_of_different_width(tmp_path):
    for name, width in (("a", 3), ("b", 2), ("c", 3)):
        np.save(tmp_path / f"{name}.npy", np.eye(4, width))
    assert "'c'" not in refusal(
        [tmp_path / f"{name}.npy" for name in "abc"], "from those of 'a':\n  b: lacks 'column 2'"
    )


def test_differences_between_silos_are_listed_one_line_each(tmp_path):
    paths = write(
        tmp_path,
        a_csv="x,y,z\n1,2,3\n",
        b_csv="x,z,v,w\n1,2,3,4\n",
        c_csv="z,y,x\n1,2,3\n",
    )
    first, b, advice = refusal(paths).splitlines()
    assert "'a'" in first
    assert re.fullmatch("  b: .*'y'; .*'v', 'w'", b)
    assert re.findall("`(.*?)`", advice) == ["drop", "id_column", "label_column"]


def test_a_long_list_of_differences_is_cut(tmp_path):
    wide = ",".join(f"c{j}" for j in range(8))
    paths = write(tmp_path, a_csv="x\n1\n", **{f"s{j}_csv": wide + "\n" + "1," * 7 + "1\n" for j in range(7)})
    message = refusal(paths, "'c0', 'c1', 'c2', 'c3', 'c4', and 3 more", "\n  and 2 more")
    assert message.count("\n  s") == 5


def test_types_of_parquet_columns_are_named(tmp_path):
    pl.DataFrame({"x": [1.0], "when": [date(2026, 1, 1)]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"x": ["one"], "when": [2.0]}).write_parquet(tmp_path / "b.parquet")
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    refusal([a], "'a'", "'when' holds dates (such as 2026-01-01)")
    refusal([b], "'b'", "'x' holds words (such as 'one')")
    first, second = refusal([a, b]).splitlines()
    assert re.search("'a': .*'when' .*dates", first) and re.search("'b': .*'x' .*'one'", second)


def test_text_columns(tmp_path):
    paths = write(tmp_path, a_csv="city,x,who\nOslo,1,Ada\n", b_csv="city,x,who\nRome,1,Bob\n")
    found = refusal(paths, "'city' holds words (such as 'Oslo')", "'who' holds words (such as 'Ada')").splitlines()
    assert [line.strip().partition(": ")[0] for line in found] == ["silo 'a'"] * 2 + ["silo 'b'"] * 2
    assert re.findall("`(.*?)`", found[0]) == ["drop", "id_column", "label_column", "silo_column"]
    many = ",".join(f"t{j}" for j in range(7))
    refusal(write(tmp_path, c_csv=f"{many}\n{many}\n"), "'t4' holds words (such as 't4')", "and 2 more columns")
    refusal(write(tmp_path, a_csv="x\n1\nNA\nn.b.\n2\n"), "'n.b.'")
    refusal(paths, "'a'", drop=["x", "city", "who"])


def test_missing_values_are_counted(tmp_path):
    paths = write(
        tmp_path, a_csv="x,y,z\n1,,3\nNA,NaN,4\n?,5,5\n", b_csv="x,y,z\n1,2,3\n1,2,\n", c_csv="x,y,z\n1,2,3\n"
    )
    message = refusal(paths, "missing", "'a' in 'x' (2), 'y' (2); ", "'b' in 'z' (1)", "`drop`")
    assert "'c'" not in message
    refusal(write(tmp_path, a_csv="x,y\n1,\n2,\n"), "'a' in 'y' (2)")


def test_many_columns_and_silos_with_missing_values_are_cut(tmp_path):
    header = ",".join(f"c{j}" for j in range(7))
    paths = write(tmp_path, **{f"s{j}_csv": f"{header}\n1,,,,,,\n2,,,,,,\n" for j in range(7)})
    message = refusal(paths, "'c5' (2), and 1 more; ", "'s1'", "'s4'", "; and 2 more")
    assert "'s5'" not in message


def test_infinite_values_are_counted(tmp_path):
    paths = write(tmp_path, a_csv="x,y\ninf,1\n-Infinity,2\n1e999,3\n1,4\n")
    refusal(paths, "infinite", "'a' in 'x' (3)")


@pytest.mark.parametrize(("value", "what"), [(np.nan, "missing"), (np.inf, "infinite"), (-np.inf, "infinite")])
@pytest.mark.parametrize("sparse", [False, True])
def test_arrays_with_bad_values_name_the_column(tmp_path, sparse, value, what):
    X = np.eye(4)
    X[1, 2] = X[3, 2] = value
    if sparse:
        sp.save_npz(tmp_path / "a.npz", sp.csr_array(X))
    else:
        np.savez(tmp_path / "a.npz", X=X)
    refusal([tmp_path / "a.npz"], what, "'a' in 'column 2' (2)")


def test_a_matrix_holds_the_codes_of_a_schema(tmp_path):
    schema = Schema((Column("age"), Column("sex", "category", ("F", "M"))))
    X = np.array([[31.0, 1], [52, 0], [np.nan, np.nan]])
    np.save(tmp_path / "a.npy", X)
    (silo,) = read_silos([tmp_path / "a.npy"], Reading(schema=schema, missing="em"))
    assert_array_equal(silo.X, X)
    assert (silo.schema, silo.feature_names) == (schema, None)
    assert read_silos([tmp_path / "a.npy"], Reading(schema=Schema.of_numbers("xy"), missing="em"))[0].schema is None
    more = np.array([0, 1.0])
    for bad, said in ((X[:, :1], "1 columns"), (X + more, "codes 0 to 1"), (X + more / 2, "codes 0 to 1")):
        np.save(tmp_path / "a.npy", bad)
        with pytest.raises(DataError, match=said):
            read_silos([tmp_path / "a.npy"], Reading(schema=schema, missing="em"))
    sp.save_npz(tmp_path / "b.npz", sp.csr_array(np.nan_to_num(X)))
    with pytest.raises(DataError, match="sparse"):
        read_silos([tmp_path / "b.npz"], Reading(schema=schema))


# ---------------------------------------------------------------------------------------------------- helpers


def test_constant_columns_and_where():
    def silo(name, X, names=("p", "q", "r")):
        return Silo(name, X, names, np.arange(X.shape[0]))

    a = silo("a", np.array([[1.0, 2, 0], [1, 3, 0]]))
    b = silo("b", np.array([[5.0, 2, 7], [6, 2, 7]]))
    assert list(constant_columns([a, b]).items()) == [("r", ["a", "b"]), ("p", ["a"]), ("q", ["b"])]
    sparse = silo("s", sp.csr_array(np.array([[1.0, 0, 2], [1, 0, 0], [1, 0, 2]])), None)
    assert constant_columns([sparse]) == {"column 0": ["s"], "column 1": ["s"]}


def test_texts_of_a_file_without_a_header(tmp_path):
    (path,) = write(tmp_path, s_csv="7,no fever\n8,a cough\n")
    reading = Reading(text_column="column_2", drop=["column_1"], header=False)
    assert read_silos([path], reading)[0].X.shape[0] == 2
    assert read_texts([path], reading) == ["no fever", "a cough"]


@pytest.mark.parametrize("name", ["^a$", "^.*$", "*"])
def test_names_that_polars_takes_for_patterns(tmp_path, name):
    (path,) = write(tmp_path, s_csv=f"a,{name},b\n1.5,2,3\n2.5,3.5,4\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (silo,) = read_silos([path], Reading(judge=True))
    assert silo.feature_names == ("a", name, "b")
    assert_array_equal(silo.X, [[1.5, 2, 3], [2.5, 3.5, 4]])
