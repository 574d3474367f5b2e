"""Files as frames and matrices: CSV, TSV, Parquet, .npy and .npz, with limits on what a file may claim to hold."""

from __future__ import annotations

import csv
import math
import os
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from rich.filesize import decimal

from ..errors import DataError, listed

SEPARATORS = {".csv": ",", ".tsv": "\t"}
EXTENSIONS = (*SEPARATORS, ".parquet", ".npy", ".npz")
INFLATED = 2**30  # bytes that any archive may need in memory
INFLATION = 100  # a larger archive may need this many times its own size
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def read_file(path: Path) -> Any:
    """Content of one file: a frame, a float array or a csr_array, with at least one row and one column.

    Cells of a .csv or .tsv file stay text.
    """
    suffix = path.suffix.lower()
    if suffix not in EXTENSIONS:
        raise DataError(f"{path} has an unknown file type; fmtc reads {', '.join(EXTENSIONS)}")
    if not path.exists():
        raise DataError(f"{path} does not exist; check the name and the current folder")
    if not path.is_file():
        raise DataError(f"{path} is not a file; give the files of a folder one by one")
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty (0 bytes)")
        if suffix in SEPARATORS:
            content: Any = _read_delimited(path, SEPARATORS[suffix])
        elif suffix == ".parquet":
            content = _read_parquet(path)
        else:
            content = _read_array(path)
    except DataError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # whatever NumPy, SciPy, zlib and Polars raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} cannot be read, it is damaged or not a {suffix} file: {reason}") from error
    if content.shape[0] == 0:
        raise DataError(f"{path} has {content.shape[1]} columns but no rows")
    if content.shape[1] == 0:
        raise DataError(f"{path} has {content.shape[0]} rows but no columns")
    return content


def is_typed(path: Path) -> bool:
    """Whether cells of this kind of file have types; those of a .csv or .tsv file are text."""
    return path.suffix.lower() not in SEPARATORS


# ------------------------------------------------------------------------------------------------------- tables


def _read_delimited(path: Path, separator: str) -> pl.DataFrame:
    """All cells as text: they become numbers later, so that the type of a column does not depend on its first rows."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header = next((line for line in csv.reader(stream, delimiter=separator) if line), [])
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it with that encoding") from None
    names = [name.strip() for name in header]
    if not any(names):
        raise DataError(f"{path} has no header; its first line must name the columns")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path} has more than one column called {listed(twice)}; column names must be unique")
    frame = pl.read_csv(path, separator=separator, infer_schema=False, has_header=True)
    frame.columns = [str(place) for place in range(frame.width)]
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    frame = frame.head(0 if filled.is_empty() else int(filled[-1]) + 1)  # empty lines at the end are not rows
    frame.columns = names
    if frame.width == 1 and frame.height:
        line = str(frame.item(0, 0))
        mark = next((mark for mark in _MARKS if mark != separator and mark in names[0] and mark in line), None)
        if mark is not None:
            raise DataError(
                f"{path} seems to be separated by {_MARKS[mark]}: it has the single column {names[0]!r}. "
                "Write a .csv with commas or a .tsv with tabs, and decimal points."
            )
    return frame


def _read_parquet(path: Path) -> pl.DataFrame:
    table = pl.scan_parquet(path, hive_partitioning=False)
    _check_memory(path, table.select(pl.len()).collect().item() * len(table.collect_schema()) * 8)
    return table.collect()


# ------------------------------------------------------------------------------------------------------- matrices


def _read_array(path: Path) -> Any:
    """The matrix of an .npy or .npz file. Its declared size is checked against file and memory before it is read."""
    if path.suffix.lower() == ".npy":
        with path.open("rb") as stream:
            _check_memory(path, _Header.read(stream, path.stat().st_size).in_memory)
            stream.seek(0)
            return _as_numbers(path, np.load(stream, allow_pickle=False))
    with zipfile.ZipFile(path) as archive:
        keys = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        is_sparse = {"format", "shape", "data"} <= set(keys)
        headers = {}
        for key in ["X"] if "X" in keys and not is_sparse else keys:
            with archive.open(f"{key}.npy") as stream:
                headers[key] = _Header.read(stream, archive.getinfo(f"{key}.npy").file_size)
    if is_sparse:
        return _as_numbers(path, _read_sparse(path, headers))
    flat = [key for key, header in headers.items() if len(header.shape) == 2 or key == "X"]
    if len(flat) != 1:
        raise DataError(
            f"{path} holds {len(flat)} 2-D arrays (keys: {listed(keys)}); give an .npz with exactly one, with one "
            "called 'X', or one written by scipy.sparse.save_npz"
        )
    _check_inflated(path, headers[flat[0]].in_memory)
    with np.load(path, allow_pickle=False) as arrays:
        return _as_numbers(path, arrays[flat[0]])


def _read_sparse(path: Path, headers: Mapping[str, _Header]) -> sp.csr_array:
    """The matrix that `scipy.sparse.save_npz` wrote. Its shape alone needs a number for each row and column."""
    _check_inflated(path, sum(header.n_bytes for header in headers.values()))
    with np.load(path, allow_pickle=False) as arrays:
        shape = [int(side) for side in arrays["shape"].ravel()]
    if len(shape) != 2 or min(shape) < 0:
        raise DataError(f"{path} holds an array of shape {tuple(shape)}; fmtc needs 2 dimensions, one line per row")
    _check_inflated(path, 8 * sum(shape))
    X = sp.csr_array(sp.load_npz(path))
    X.check_format(full_check=True)
    X.sum_duplicates()
    return X


@dataclass(frozen=True)
class _Header:
    """Shape and type of an array, as its file declares them."""

    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def read(cls, stream: IO[bytes], size: int) -> _Header:
        """The header of an array whose file has `size` bytes, which must be enough for what it declares."""
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        header, there = cls(shape, dtype), size - stream.tell()
        if min(shape, default=0) < 0 or (header.n_bytes > there and not dtype.hasobject):
            raise ValueError(
                f"its header declares {' x '.join(map(str, shape))} values of type {dtype}, {decimal(header.n_bytes)}, "
                f"but the file has {decimal(there)}"
            )
        return header

    @property
    def n_bytes(self) -> int:
        """Size in the file."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    @property
    def in_memory(self) -> int:
        """Size of the numbers in memory."""
        return math.prod(self.shape) * (4 if self.dtype == np.float32 else 8)


def _check_memory(path: Path, n_bytes: int) -> None:
    """Raise `DataError` for more than this machine's memory."""
    if n_bytes > _memory():
        raise DataError(
            f"{path} needs {decimal(n_bytes)}, and this machine has {decimal(int(_memory()))} of memory: omit rows "
            "or columns, or use a larger machine"
        )


def _check_inflated(path: Path, n_bytes: int) -> None:
    """Raise `DataError` for an archive that expands so much in memory that it is probably malicious."""
    _check_memory(path, n_bytes)
    size = path.stat().st_size
    if n_bytes > max(INFLATED, INFLATION * size):
        raise DataError(
            f"{path} has {decimal(size)} and would need {decimal(n_bytes)} of memory: above {decimal(INFLATED)}, a "
            f"file may expand {INFLATION} times. If you trust it, save it without compression (numpy.save), or a "
            "sparse matrix without its empty rows and columns"
        )


def _memory() -> float:
    """Bytes of memory of this machine; infinity if the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _as_numbers(path: Path, X: Any) -> Any:
    if X.ndim != 2:
        raise DataError(f"{path} holds an array of shape {X.shape}; fmtc needs 2 dimensions, one line per row")
    if X.dtype.kind not in "fiub":
        raise DataError(f"{path} holds values of type {X.dtype}; fmtc needs real numbers")
    return X.astype(np.float32 if X.dtype == np.float32 else np.float64, copy=False)


__all__ = ["EXTENSIONS", "is_typed", "read_file"]
