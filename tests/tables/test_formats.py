"""Files that are not what their names promise: a `DataError` that names the file, and nothing is executed."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from fmtc.errors import DataError
from fmtc.tables import matrices
from fmtc.tables.formats import read_file


def refusal(path, *mentioned):
    """The message of a `DataError`, in which the file and these words must occur."""
    with pytest.raises(DataError) as caught:
        read_file(path)
    message = str(caught.value)
    assert [word for word in (path, *mentioned) if str(word) not in message] == []
    return message


@pytest.mark.parametrize(
    ("name", "content", "mentioned"),
    [
        ("a.docx", b"x", [".csv, .tsv", ".parquet", ".h5ad", ".csv.gz"]),
        ("a.npy.gz", b"x", ["unknown file type"]),
        ("a", b"x", [".csv"]),
        ("a.csv", None, []),
        ("a.csv", b"", ["empty"]),
        ("a.npy", b"", ["empty"]),
        ("a.csv", b"\n\n", ["header"]),
        ("a.csv", b"x,y\n", ["2 columns", "no rows"]),
        ("a.csv", b"x,y\n\n\n", ["2 columns", "no rows"]),
        ("a.csv", b"x,y,x\n1,2,3\n", ["'x'"]),
        ("a.csv", b"x, x\n1,2\n", ["'x'"]),
        ("a.csv", b"x,x,x_duplicated_0\n1,2,3\n", ["'x'"]),
        ("a.csv", b"x,y\n1,2\n1,2,3\n", ["line 3 has 3 cells", "2 columns"]),
        ("a.csv", b"x,y\n\xe9,2\n", ["UTF-8"]),
        ("a.csv", b"\xe9,y\n1,2\n", ["UTF-8"]),
        ("a.csv", "x,y\n1,2\n".encode("utf-16"), ["UTF-8"]),
        ("a.csv", b'x,y\n"1,2\n3,4\n', ["not a .csv file"]),
        ("a.csv", b"x" * 200_000, ["not a .csv file"]),
        ("a.feather", b"x", ["not a .feather file"]),
        ("a.jsonl", b'{"a": 1}\n{"a"\n', ["line 2 is not JSON"]),
        ("a.jsonl", b"[1]\n", ["line 1 is not an object"]),
        ("a.csv.gz", b"x,y\n1,2\n", ["not a .csv file"]),
        ("a.parquet", b"PAR1 not really PAR1", ["not a .parquet file"]),
        ("a.npy", b"\x93NUMPY but cut", ["not a .npy file"]),
        ("a.npz", b"PK no zip", ["not a .npz file"]),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, mentioned):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert "\n" not in refusal(path, *mentioned)


def test_a_folder_is_not_a_file(tmp_path):
    (tmp_path / "a.csv").mkdir()
    refusal(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["whole.npy", "whole.npz", "sparse.npz", "whole.parquet"])
def test_a_file_cut_short_anywhere_is_refused(tmp_path, name):
    path = tmp_path / name
    X = np.arange(40.0).reshape(8, 5)
    if name == "whole.npy":
        np.save(path, X)
    elif name == "whole.npz":
        np.savez(path, X=X)
    elif name == "sparse.npz":
        sp.save_npz(path, sp.csr_array(X))
    else:
        pl.DataFrame(X).write_parquet(path)
    whole = path.read_bytes()
    for size in np.linspace(1, len(whole) - 1, 15).astype(int):
        path.write_bytes(whole[:size])
        refusal(path, "damaged")


BOMBS = {
    "equal numbers.parquet": lambda: pl.DataFrame({"a": pl.repeat(1.0, 10**6, eager=True)}),
    "one long text.parquet": lambda: pl.DataFrame({"a": ["x" * 10**7]}),
    "the same text.parquet": lambda: pl.DataFrame({"a": ["x" * 10**4] * 2000}),
    "a long list.parquet": lambda: pl.DataFrame({"a": [pl.repeat(1.0, 10**6, eager=True)]}),
    "many columns.parquet": lambda: pl.DataFrame({str(j): pl.repeat(j, 5000, eager=True) for j in range(200)}),
    "equal numbers.feather": lambda: pl.DataFrame({"a": pl.repeat(1.0, 10**6, eager=True)}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_needs_much_memory_is_refused(tmp_path, monkeypatch, name):
    """In the words of all formats, before its values are expanded."""
    monkeypatch.setattr(matrices, "INFLATED", 2**20)
    path = tmp_path / name
    write = pl.DataFrame.write_parquet if name.endswith("parquet") else pl.DataFrame.write_ipc
    write(BOMBS[name](), path, compression="zstd")
    assert path.stat().st_size < 2**17
    asked = []
    collect = pl.LazyFrame.collect

    def noted(table, **options):
        asked.append(collect(table, **options))
        return asked[-1]

    monkeypatch.setattr(pl.LazyFrame, "collect", noted)
    refusal(path, "would need", "a file may expand 100 times")
    assert {(found.height, *set(found.dtypes) & {pl.String, pl.List}) for found in asked} == {(1,)}  # numbers of rows


def test_a_large_file_that_says_so_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(matrices, "INFLATED", 2**16)
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"a": rng.normal(size=30_000), "b": rng.integers(0, 9, 30_000), "c": ["word"] * 30_000})
    for row_groups in (None, 1000):
        frame.write_parquet(tmp_path / "a.parquet", row_group_size=row_groups)
        assert read_file(tmp_path / "a.parquet").equals(frame)


@pytest.mark.parametrize(
    "content", [b"\x19\xf1" + b"\xff" * 8 + b"\x7f", b"\x16" + b"\xff" * 500, b"\x1c" * 5000, b"\x1b\x01"]
)
def test_metadata_that_would_not_end(tmp_path, content):
    """A list of nearly 2**63 truths, a number of 500 bytes, structs in structs, and a map."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + content + len(content).to_bytes(4, "little") + b"PAR1")
    refusal(path, "damaged")


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_a_sparse_file_with_indices_out_of_range_is_refused(tmp_path, kind):
    X = sp.coo_array(np.eye(3)).asformat(kind)
    np.savez(tmp_path / "s.npz", format=kind, shape=X.shape, data=X.data, indices=X.indices + 10**8, indptr=X.indptr)
    refusal(tmp_path / "s.npz", "damaged")


@pytest.mark.parametrize(
    ("arrays", "mentioned"),
    [
        ({"a": np.zeros(3)}, ["0 2-D arrays", "'a'"]),
        ({"a": np.zeros((2, 2)), "b": np.ones((2, 2))}, ["2 2-D arrays", "'a', 'b'"]),
        ({"X": np.zeros(3)}, ["(3,)"]),
        ({"X": np.array([["a", "b"]])}, ["<U1"]),
        ({"X": np.zeros((2, 2), complex)}, ["complex128"]),
        ({"X": np.zeros((0, 2))}, ["2 columns", "no rows"]),
        ({"X": np.zeros((2, 0))}, ["2 rows", "no columns"]),
    ],
)
def test_archives_without_a_matrix_of_numbers(tmp_path, arrays, mentioned):
    np.savez(tmp_path / "a.npz", **arrays)
    refusal(tmp_path / "a.npz", *mentioned)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_pickled_objects_are_never_opened(tmp_path, suffix):
    trap = np.array([[Trap(tmp_path / "sprung")]], dtype=object)
    path = tmp_path / f"a.{suffix}"
    (np.save if suffix == "npy" else np.savez)(path, trap, allow_pickle=True)
    refusal(path, "allow_pickle=False")
    assert not (tmp_path / "sprung").exists()


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)
