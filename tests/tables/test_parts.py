"""Columns read without checks, for the comparison of clients."""

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal

from fmtc.errors import DataError
from fmtc.tables import Reading, read_columns
from fmtc.tables.findings import Kind
from fmtc.tables.survey import survey

SALT = "a secret of the silos"


def test_files_are_read_leniently(tmp_path):
    (tmp_path / "a.csv").write_text("id,x,y,z,class\n1, 2.5 ,low,,p\n2,na,high,,q\n")
    np.save(tmp_path / "b.npy", np.array([[1.0, np.nan], [np.inf, 2.0]]))
    silos = read_columns([tmp_path / "a.csv"], Reading(id_column="id", label_column="class"))
    assert silos["a"].names == ("x", "y", "z")
    said = survey(silos["a"], SALT)
    assert_array_equal(said.kinds, [Kind.NUMBERS, Kind.TEXT, Kind.NOTHING])
    assert_array_equal(said.missing, [1, 0, 2])
    mixed = read_columns([tmp_path / "a.csv", tmp_path / "b.npy"], Reading(drop=["id", "class"]))
    assert (mixed["b"].names, mixed["b"].width, mixed["b"].n_rows) == (None, 2, 2)


def test_one_file_of_all_silos(tmp_path):
    frame = pl.DataFrame({"site": ["n", "s", "n"], "x": [1.0, 2.0, 3.0]})
    frame.write_parquet(tmp_path / "all.parquet")
    silos = read_columns([tmp_path / "all.parquet"], Reading(silo_column="site"))
    assert {name: (c.names, c.n_rows) for name, c in silos.items()} == {"n": (("x",), 2), "s": (("x",), 1)}


@pytest.mark.parametrize(("files", "options", "mentioned"), [
    (["a.csv", "a.tsv"], {}, "'a'"),
    (["none.csv"], {}, r"none\.csv"),
    (["a.csv"], {"drop": ["y"]}, "`drop`: .*'y'"),
    (["a.csv"], {"drop": ["x"]}, "'a'"),
    (["b.npy"], {"drop": ["x"]}, r"b\.npy .*`drop`"),
    (["a.csv", "b.csv"], {"silo_column": "x"}, "`silo_column` .*2 files"),
    (["empty.csv"], {}, r"empty\.csv"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused(tmp_path, files, options, mentioned):
    for name in ("a.csv", "a.tsv", "b.csv"):
        (tmp_path / name).write_text("x\n1\n")
    (tmp_path / "empty.csv").write_text("")
    np.save(tmp_path / "b.npy", np.zeros((2, 2)))
    with pytest.raises(DataError, match=mentioned):
        read_columns([tmp_path / name for name in files], Reading(**options))
