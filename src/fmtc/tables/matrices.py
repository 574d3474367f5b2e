"""Matrices from files: .npy, .npz and AnnData (.h5ad, with h5py); limits on the memory that files claim to need."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from rich.filesize import decimal

from ..errors import DataError, listed, nearest_names
from .reading import Reading

Array = np.ndarray
INFLATED = 2**30  # bytes that any archive may need in memory
INFLATION = 100  # a larger archive may need this many times its own size


def as_numbers(path: Path, X: Any) -> Any:
    """A matrix of a file as one of numbers, dense or a csr_array; single precision stays."""
    if X.ndim != 2:
        raise DataError(f"{path} holds an array of shape {X.shape}; fmtc needs 2 dimensions, one line per row")
    if X.dtype.kind not in "fiub":
        raise DataError(f"{path} holds values of type {X.dtype}; fmtc needs real numbers")
    X = X.astype(np.float32 if X.dtype == np.float32 else np.float64, copy=False)
    if sp.issparse(X):
        if hasattr(X, "check_format"):  # before it is converted: indices out of range would end the process
            X.check_format(full_check=True)
        X = sp.csr_array(X)
        X.sum_duplicates()
    return X


# --------------------------------------------------------------------------------------------------------------- limits


def most_bytes(path: Path) -> int:
    """Bytes that a compressed file may expand to."""
    return max(INFLATED, INFLATION * path.stat().st_size)


def check_memory(path: Path, n_bytes: int) -> None:
    """Raise `DataError` for more than this machine's memory."""
    if n_bytes > _memory():
        raise DataError(
            f"{path} needs {decimal(n_bytes)}, and this machine has {decimal(int(_memory()))} of memory: omit rows "
            "or columns, or use a larger machine"
        )


def check_inflated(path: Path, n_bytes: int) -> None:
    """Raise `DataError` for an archive that expands so much in memory that it is probably malicious."""
    check_memory(path, n_bytes)
    if n_bytes > most_bytes(path):
        raise DataError(
            f"{path} has {decimal(path.stat().st_size)} and would need {decimal(n_bytes)} of memory: above "
            f"{decimal(INFLATED)}, a file may expand {INFLATION} times. If you trust it, save it without compression "
            "(numpy.save), or a sparse matrix without its empty rows and columns"
        )


def _memory() -> float:
    """Bytes of memory of this machine; infinity if the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")


# --------------------------------------------------------------------------------------------------------------- arrays


def read_array(path: Path, _: Reading) -> Any:
    """A matrix, whose declared size is checked against file and memory before it is read."""
    with path.open("rb") as stream:
        check_memory(path, _declared(stream, path.stat().st_size)[1])
    return as_numbers(path, np.load(path, allow_pickle=False))


def read_archive(path: Path, _: Reading) -> Any:
    """The matrix of an .npz file, once it is known how much memory it needs."""
    with zipfile.ZipFile(path) as archive:
        keys = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        is_sparse = {"format", "shape", "data"} <= set(keys)
        declared = {}
        for key in ["X"] if "X" in keys and not is_sparse else keys:
            with archive.open(f"{key}.npy") as stream:
                declared[key] = _declared(stream, archive.getinfo(f"{key}.npy").file_size)
    needed = [key for key, (n_axes, _) in declared.items() if is_sparse or n_axes == 2 or key == "X"]
    if len(needed) != 1 and not is_sparse:
        raise DataError(
            f"{path} holds {len(needed)} 2-D arrays (keys: {listed(keys)}); give an .npz with exactly one, with one "
            "called 'X', or one written by scipy.sparse.save_npz"
        )
    check_inflated(path, sum(declared[key][1] for key in needed))
    with np.load(path, allow_pickle=False) as arrays:
        if not is_sparse:
            return as_numbers(path, arrays[needed[0]])
        sides = [abs(int(side)) for side in arrays["shape"].ravel()]
    check_inflated(path, 8 * sum(sides))  # a number for each row and column
    return as_numbers(path, sp.load_npz(path))


def _declared(stream: IO[bytes], size: int) -> tuple[int, int]:
    """From the header of an array, whose file has `size` bytes: its axes, and the bytes it needs as numbers."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    count, there = math.prod(shape), size - stream.tell()
    n_bytes = count * int(dtype.itemsize)
    if min(shape, default=0) < 0 or (n_bytes > there and not dtype.hasobject):
        raise ValueError(
            f"its header declares {' x '.join(map(str, shape))} values of type {dtype}, {decimal(n_bytes)}, "
            f"but the file has {decimal(there)}"
        )
    return len(shape), count * (4 if dtype == np.float32 else 8)


# -------------------------------------------------------------------------------------------------------------- AnnData


@dataclass(frozen=True, eq=False)
class Annotated:
    """A matrix, the names of its columns, and a table about its rows.

    Parameters
    ----------
    X : float array or csr_array of shape (n, d)
    names : tuple of d names
    ids : list of n names of rows
    about : polars.DataFrame of n rows
    """

    X: Any
    names: tuple[str, ...]
    ids: list[str]
    about: pl.DataFrame

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return tuple(self.X.shape)


def read_h5ad(path: Path, reading: Reading) -> Annotated:
    """The matrix X of a file of AnnData, or one of its `obsm`, and `obs`.

    Parameters
    ----------
    path : Path
    reading : Reading
        With the name of a representation, such as ``"X_pca"``; None takes X.
    """
    obsm = reading.obsm
    with _opened(path) as file:
        X = _matrix(path, _source(path, file, reading))
        ids, about = _frame(path, file, "obs")
        genes = _frame(path, file, "var")[0] if obsm is None else []
    n, d = X.shape
    names = genes if len(genes) == d else [f"{obsm or 'column'}_{j}" for j in range(d)]
    if len(set(names)) < len(names):
        names = [f"{name} ({place})" for place, name in enumerate(names)]
    if about.width and about.height != n:
        raise DataError(f"{path} is damaged: X has {n} rows, obs has {about.height}")
    return Annotated(X, tuple(names), ids if len(ids) == n else [str(row) for row in range(n)], about)


def _source(path: Path, file: Any, reading: Reading) -> Any:
    """Where the matrix is: X, or a representation."""
    named = reading.wording.option("obsm")
    if reading.obsm is None:
        if "X" not in file:
            raise DataError(f"{path} has no matrix X; name a representation with {named}")
        return file["X"]
    known = list(file["obsm"]) if "obsm" in file else []
    if reading.obsm not in known:
        raise DataError(f"{named}: {path} has no representation {reading.obsm!r}; {nearest_names(reading.obsm, known)}")
    return file["obsm"][reading.obsm]


def read_obs(path: Path) -> tuple[list[str], pl.DataFrame]:
    """Names of the rows of a file of AnnData, and the table about them; X is not read."""
    with _opened(path) as file:
        ids, about = _frame(path, file, "obs")
    if not ids or (about.width and about.height != len(ids)):
        raise DataError(f"{path} is damaged: obs has {about.height} rows and {len(ids)} names of rows")
    return ids, about


def add_obs(path: Path, columns: pl.DataFrame) -> None:
    """Add columns to `obs` of a file of AnnData, in place: texts as categories, numbers as arrays.

    Parameters
    ----------
    path : Path
    columns : polars.DataFrame
        With the rows of `obs`, and names that it does not have. A missing number becomes NaN.
    """
    with _opened(path, "r+") as file:
        obs = file["obs"]
        for column in columns.get_columns():
            _add(obs, column)
        order = [str(word) for word in _words(np.asarray(obs.attrs.get("column-order", [])))]
        obs.attrs.create("column-order", [*order, *columns.columns], dtype=_text_type())


def _add(obs: Any, column: pl.Series) -> None:
    """One column, in the encoding that the others have: AnnData 0.7 keeps categories apart, later ones beside."""
    if column.dtype != pl.String:
        obs.create_dataset(column.name, data=column.cast(pl.Float64).to_numpy())
        _mark(obs[column.name], "array")
        return
    levels = column.drop_nulls().unique().sort().to_list()
    places = {level: place for place, level in enumerate(levels)}
    codes = np.array([places.get(cell, -1) for cell in column.to_list()], np.int8 if len(levels) < 128 else np.int32)
    if str(obs.attrs.get("encoding-version", "")) == "0.1.0":
        kept = obs.require_group("__categories").create_dataset(column.name, data=levels, dtype=_text_type())
        kept.attrs["ordered"] = False
        obs.create_dataset(column.name, data=codes).attrs["categories"] = kept.ref
        return
    group = obs.create_group(column.name)
    _mark(group, "categorical")
    group.attrs["ordered"] = False
    _mark(group.create_dataset("categories", data=levels, dtype=_text_type()), "string-array")
    _mark(group.create_dataset("codes", data=codes), "array")


def _mark(element: Any, kind: str) -> None:
    element.attrs["encoding-type"], element.attrs["encoding-version"] = kind, "0.2.0"


def _text_type() -> Any:
    import h5py

    return h5py.string_dtype()


@contextmanager
def _opened(path: Path, mode: str = "r") -> Iterator[Any]:
    """A file of HDF5; what is wrong with it becomes a `DataError`."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError("files of AnnData need h5py: pip install 'fmtc[anndata]'") from error
    if not path.is_file():
        raise DataError(f"{path} does not exist; check the name and the current folder")
    try:
        with h5py.File(path, mode) as file:
            yield file
    except (OSError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read, it is damaged or not a .h5ad file: {error}") from error


def _matrix(path: Path, source: Any) -> Any:
    if not hasattr(source, "keys"):
        check_memory(path, 8 * math.prod(map(int, source.shape)))
        return as_numbers(path, source[:])
    kind = str(source.attrs.get("encoding-type", ""))
    shape = tuple(int(side) for side in source.attrs.get("shape", ()))
    if len(shape) != 2 or not kind.startswith(("csr", "csc")):
        raise DataError(f"{path}: its matrix is of kind {kind!r}; fmtc reads dense, csr and csc matrices")
    check_memory(path, 12 * int(source["data"].shape[0]))
    make = sp.csr_array if kind.startswith("csr") else sp.csc_array
    return as_numbers(path, make((source["data"][:], source["indices"][:], source["indptr"][:]), shape=shape))


def _frame(path: Path, file: Any, name: str) -> tuple[list[str], pl.DataFrame]:
    """Names of the rows and the columns of `obs` or `var`; nothing where there is none."""
    group = file.get(name, {})
    if not hasattr(group, "keys"):
        raise DataError(f"{path} has no table {name} in the form of AnnData 0.7 or later; save it again with anndata")
    index = str(group.attrs.get("_index", "_index")) if group else ""
    ids = [str(word) for word in _words(group[index])] if index in group else []
    found = {name: cells for name in group if name != index and (cells := _column(group, name)) is not None}
    return ids, pl.DataFrame(found)


def _column(group: Any, name: str) -> pl.Series | None:
    """A column as it is kept: plain, or as categories or values with a mask; None for anything else."""
    source = group[name]
    is_group = hasattr(source, "keys")
    parts = set(source) if is_group else set()
    if {"codes", "categories"} <= parts:
        return _category(source["codes"], source["categories"])
    if {"values", "mask"} <= parts:
        values = pl.Series(_words(source["values"]))
        return values.set(pl.Series(source["mask"][:].astype(bool)), None)
    if is_group or name.startswith("__") or len(source.shape) != 1:
        return None
    if "categories" in source.attrs:  # before AnnData 0.8
        return _category(source, group.file[source.attrs["categories"]])
    return pl.Series(_words(source))


def _category(codes: Any, categories: Any) -> pl.Series:
    levels = [str(word) for word in _words(categories)]
    return pl.Series([None if code < 0 else levels[code] for code in codes[:]], dtype=pl.String)


def _words(source: Any) -> list[Any]:
    return [value.decode() if isinstance(value, bytes) else value for value in source[:].tolist()]


__all__ = ["Annotated", "add_obs", "read_h5ad", "read_obs"]
