"""Files as people have them: separators, decimal commas, comments, no header, Excel, Arrow, JSON lines, AnnData."""

import gzip
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from fmtc.errors import DataError
from fmtc.tables import Reading, read_silos
from fmtc.tables.formats import line_of, read_file

FRAME = pl.DataFrame({"age": [31.5, 52.0, 40.25], "dose": [1.0, 2.0, 3.5]})


def read(path, text, **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_silos([path], Reading(missing="em", **options))[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "age;dose\n31,5;1\n52;2\n40,25;3,5\n"),
        ("a.csv", "age;dose\n31.5;1\n52;2\n40.25;3.5\n"),
        ("a.csv", "age\tdose\n31,5\t1\n52\t2\n40,25\t3,5\n"),
        ("a.tsv", "age,dose\n31.5,1\n52,2\n40.25,3.5\n"),
        ("a.tab", "age\tdose\n31.5\t1\n52\t2\n40.25\t3.5\n"),
        ("a.csv", "age|dose\n31.5|1\n52|2\n40.25|3.5\n"),
        ("a.csv", "# from the laboratory, of May\n# in years; mg\nage,dose\n31.5,1\n52,2\n40.25,3.5\n"),
        ("a.csv", "# one comment\nage,dose\n31.5,1\n52,2\n40.25,3.5\n"),
        ("a.csv", "# two, words\nage,dose\n31.5,1\n52,2\n40.25,3.5\n"),
        ("a.csv.gz", gzip.compress(b"age,dose\n31.5,1\n52,2\n40.25,3.5\n", mtime=0)),
        ("a.jsonl", '{"age": 31.5, "dose": 1}\n\n{"age": 52, "dose": 2}\n{"dose": 3.5, "age": 40.25}\n'),
        ("a.jsonl", '{"age": 31.5, "dose": 1}\r\n{"age": 52, "dose": "2\u2028"}\r\n{"dose": 3.5, "age": 40.25}\r\n'),
        ("a.ndjson", '{"age": "31.5", "dose": 1}\n{"age": 52, "dose": 2}\n{"dose": 3.5, "age": 40.25}\n'),
    ],
)
def test_the_same_rows_in_other_words(tmp_path, name, text):
    silo = read(tmp_path / name, text)
    assert (silo.name, silo.feature_names) == ("a", ("age", "dose"))
    assert_array_equal(silo.X, FRAME.to_numpy())


def test_a_file_that_was_cut_or_has_a_line_too_long_keeps_its_separator(tmp_path):
    path, rows = tmp_path / "a.csv", "1,5;2\n" * 9
    path.write_text(f"x;y\n{rows}3,5")
    assert read_file(path).columns == ["x", "y"]
    path.write_text(f"x;y\n{rows}3;4;5\n")
    with pytest.raises(DataError, match="line 11 has 3 cells, but the header names 2 columns"):
        read_file(path)


@pytest.mark.parametrize(("separator", "n"), [("\t", 9_000), (",", 70_000)])
def test_a_text_file_may_be_as_wide_as_a_table_of_genes(tmp_path, separator, n):
    """A line with another separator is one cell, longer than the csv module takes; and the header may be a megabyte."""
    names = [f"ENSG{place:011}" for place in range(n)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join([separator.join(names), separator.join(["1.5"] * n), separator.join(["2"] * n)]))
    frame = read_file(path)
    assert (frame.columns, frame.height) == (names, 2)


def test_a_header_with_a_hash_is_a_header(tmp_path):
    assert read(tmp_path / "a.tsv", "#chrom\tpos\n1\t2\n3\t4\n").feature_names == ("#chrom", "pos")


def test_thousands_are_not_decimals(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("x\ty\n1,200\t1\n3,400\t2\n")
    assert read_file(path)["x"].to_list() == ["1,200", "3,400"]
    path.write_text("x;y\n1.200,5;1\n3,4;2\n")
    assert read_file(path)["x"].to_list() == ["1200.5", "3.4"]


def test_words_with_commas_stay_words(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x;y\nred, blue;1,5\n1,5;2,5\n")
    assert read_file(path)["x"].to_list() == ["red, blue", "1,5"]


@pytest.mark.parametrize("first", ["100036,17.99,10.38", "100036,M,17.99", "1.5"])
def test_a_file_without_a_header(tmp_path, first):
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\n{first}\n")
    with pytest.raises(DataError, match=r"seems to have no header: its first line is .*\(`header`=False\)"):
        read_file(path)
    frame = read_file(path, Reading(header=False))
    assert frame.height == 2
    assert frame.columns[0] == "column_1"
    assert read_file(path, Reading(header=True)).height == 1


@pytest.mark.parametrize("header", ["0,1,2", "400,410,420", "2019,2020,2021", "age,1", "x1,2,y"])
def test_numbers_that_are_names(tmp_path, header):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n" + "5,7,1\n"[: 2 * (header.count(",") + 1)].rstrip(",\n") + "\n")
    assert read_file(path).columns == header.split(",")


def test_where_a_row_stands(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("# comment\nx,y\n1,2\n")
    assert line_of(path, 0, Reading()) == "line 3 of a.csv"
    path.write_text("1,2\n3,4\n")
    assert line_of(path, 1, Reading(header=False)) == "line 2 of a.csv"
    path.write_text('x,note\n1,"no fever,\nno cough"\n\n2,well\n')
    assert [line_of(path, row, Reading()) for row in (0, 2)] == ["line 2 of a.csv", "line 5 of a.csv"]
    for name in ("a.parquet", "a.jsonl"):  # where lines may be empty
        assert line_of(tmp_path / name, 1, Reading()) == f"row 2 of {name}"


@pytest.mark.parametrize("suffix", ["arrow", "feather", "ipc"])
@pytest.mark.parametrize("stream", [False, True])
def test_arrow(tmp_path, suffix, stream):
    path = tmp_path / f"a.{suffix}"
    (FRAME.write_ipc_stream if stream else FRAME.write_ipc)(path)
    assert_array_equal(read_silos([path])[0].X, FRAME.to_numpy())


def test_the_index_of_pandas_is_set_aside(tmp_path):
    """As pandas writes it: a column, and a note in the metadata that it was the index."""
    path = tmp_path / "a.parquet"
    frame = FRAME.with_columns(pl.Series("hospital_number", [5, 9, 2]), pl.Series("__index_level_0__", [1.5, 2.5, 9.5]))
    frame.write_parquet(path, metadata={"pandas": '{"index_columns": ["hospital_number"]}'})
    with pytest.warns(UserWarning, match="'hospital_number' names the rows"):
        (silo,) = read_silos([path], Reading(judge=True))
    assert silo.feature_names == ("age", "dose")
    assert (silo.ids, silo.id_name) == (["5", "9", "2"], "hospital_number")


def test_excel(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["patient", "age", "sex"], ["a7", 31.5, "f"], ["b8", None, "m"], ["c9", "NA", "f"], ["d1", 4, "m"]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    with pytest.warns(UserWarning, match="patient|categories"):
        (silo,) = read_silos([tmp_path / "a.xlsx"], Reading(judge=True, missing="em"))
    assert silo.schema.levels == (0, 2)
    assert silo.ids == ["a7", "b8", "c9", "d1"]
    assert_array_equal(silo.X, [[31.5, 0], [np.nan, 1], [np.nan, 0], [4, 1]])


def test_whole_numbers_that_name_rows_stay_whole(tmp_path):
    """An identifier of 24069 is not 24069.0, or the labels cannot be joined to the table."""
    openpyxl = pytest.importorskip("openpyxl")
    book, lines = openpyxl.Workbook(), []
    book.active.append(["patient_id", "age"])
    for row in range(12):
        book.active.append([24069 + row, 31.5 + row])
        lines.append(f'{{"patient_id": {24069 + row}, "age": {31.5 + row}}}')
    book.save(tmp_path / "a.xlsx")
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for file in ("a.xlsx", "a.jsonl"):
        with pytest.warns(UserWarning, match="'patient_id' names the rows"):
            (silo,) = read_silos([tmp_path / file], Reading(judge=True))
        assert silo.ids[:2] == ["24069", "24070"]
    (tmp_path / "a.jsonl").write_text(f'{{"id": {10**30}, "age": 1}}\n{{"id": {10**30 + 1}, "age": 2}}\n')
    assert read_silos([tmp_path / "a.jsonl"], Reading(id_column="id"))[0].ids == [str(10**30), str(10**30 + 1)]


def h5ad(path, X, obsm=None):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        if sp.issparse(X):
            group = file.create_group("X")
            group.attrs["encoding-type"], group.attrs["shape"] = f"{X.format}_matrix", X.shape
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(X, name)
        else:
            file["X"] = X
        for name, key, words in (("obs", "_index", [f"cell{i}" for i in range(4)]), ("var", "gene", ["A", "B", "C"])):
            group = file.create_group(name)
            group.attrs["_index"] = key
            group[key] = words
        batch = file["obs"].create_group("batch")
        batch["categories"], batch["codes"] = ["one", "two"], np.array([0, 1, 0, 1], np.int8)
        file["obs"]["age"] = np.arange(4.0)
        file.create_group("obsm")
        if obsm is not None:
            file["obsm"]["X_pca"] = obsm
    return path


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
def test_anndata(tmp_path, form):
    X = np.array([[0.0, 1, 2], [3, 0, 0], [0, 0, 4], [5, 6, 0]], np.float32)
    path = h5ad(tmp_path / "cells.h5ad", form(X))
    one, two = read_silos([path], Reading(silo_column="batch", label_column="age"))
    assert (one.name, two.name, one.feature_names) == ("one", "two", ("A", "B", "C"))
    assert one.ids == ["cell0", "cell2"]
    assert two.labels == ["1.0", "3.0"]
    assert_array_equal(one.X.toarray() if sp.issparse(one.X) else one.X, X[[0, 2]])
    (alone,) = read_silos([path])
    assert (alone.name, alone.X.shape) == ("cells", (4, 3))
    with pytest.raises(DataError, match="no column 'bach' in obs; did you mean 'batch'"):
        read_silos([path], Reading(silo_column="bach"))


def test_anndata_of_a_representation(tmp_path):
    path = h5ad(tmp_path / "cells.h5ad", np.ones((4, 3)), np.arange(8.0).reshape(4, 2))
    (silo,) = read_silos([path], Reading(obsm="X_pca"))
    assert silo.feature_names == ("X_pca_0", "X_pca_1")
    with pytest.raises(DataError, match="no representation 'pca'; did you mean 'X_pca'"):
        read_silos([path], Reading(obsm="pca"))


@pytest.mark.parametrize(("name", "package"), [("a.xlsx", "openpyxl"), ("a.h5ad", "h5py")])
def test_files_that_need_a_package(tmp_path, monkeypatch, name, package):
    path = tmp_path / name
    path.write_bytes(b"x")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf"{package}: pip install 'fmtc\[\w+\]'"):
            read_file(path)
    pytest.importorskip(package)
    with pytest.raises(DataError, match=f"damaged or not a {path.suffix} file"):
        read_file(path)


@pytest.mark.parametrize("end", ["csv", "tsv", "csv.gz", "jsonl", "parquet", "feather", "arrow"])
def test_names_of_files_are_no_patterns(tmp_path, end):
    """A browser calls the second download table[1].csv; that is a name, and nothing to be searched for."""
    path, odd = tmp_path / f"table[1]*?.{end}", FRAME
    text = odd.write_csv(separator="\t" if end == "tsv" else ",")
    match end:
        case "parquet":
            odd.write_parquet(path)
        case "feather" | "arrow":
            odd.write_ipc(path)
        case "jsonl":
            path.write_text(odd.write_ndjson())
        case "csv.gz":
            path.write_bytes(gzip.compress(text.encode()))
        case _:
            path.write_text(text)
    (silo,) = read_silos([path], Reading(judge=True))
    assert silo.name == "table[1]*?"
    assert_array_equal(silo.X, FRAME.to_numpy())


def test_a_frame_of_pandas_with_its_index_and_numbered_columns(tmp_path):
    """The first name is empty, the others count columns: a header, and row numbers that are no feature."""
    path = tmp_path / "a.csv"
    pd.DataFrame(np.random.default_rng(0).normal(size=(12, 3))).to_csv(path)
    with pytest.warns(UserWarning, match="the column without a name set aside, as numbers of rows"):
        (silo,) = read_silos([path], Reading(judge=True))
    assert (silo.feature_names, silo.X.shape) == (("0", "1", "2"), (12, 3))
