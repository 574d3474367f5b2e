"""Files as frames and matrices: text, Excel, Parquet, Arrow, NumPy, AnnData; limits on what they claim to hold."""

from __future__ import annotations

import gzip
import json
import math
import os
import zipfile
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import polars.selectors as cs
import scipy.sparse as sp
from rich.filesize import decimal

from ..errors import DataError, listed
from .annotated import as_numbers, read_h5ad
from .delimited import SEPARATORS, column_names, layout_of, read_delimited
from .reading import Reading

LINES = (".jsonl", ".ndjson")
ARROW = (".arrow", ".feather", ".ipc")
PACKED = (*SEPARATORS, *LINES)  # may be compressed: .csv.gz
INFLATED = 2**30  # bytes that any archive may need in memory
INFLATION = 100  # a larger archive may need this many times its own size


def read_file(path: Path, reading: Reading | None = None) -> Any:
    """Content of one file: a frame, a float array, a csr_array or `Annotated`, with at least one row and one column.

    Cells of a text file stay text.

    Parameters
    ----------
    path : Path
    reading : Reading, optional
        Whether text files and sheets have a header, and which representation of a file of AnnData to take.
    """
    reading, suffix = reading or Reading(), suffix_of(path)
    _check_readable(path, suffix)
    try:
        content = _READERS[suffix](path, reading)
    except (ImportError, DataError):
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # whatever NumPy, SciPy, zlib and Polars raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} cannot be read, it is damaged or not a {suffix} file: {reason}") from error
    rows, columns = content.shape
    if not rows or not columns:
        lacking = f"{columns} columns but no rows" if not rows else f"{rows} rows but no columns"
        raise DataError(f"{path} has {lacking}")
    return content


def _check_readable(path: Path, suffix: str) -> None:
    if suffix not in EXTENSIONS or (_is_packed(path) and suffix not in PACKED):
        packed = ", ".join(f"{end}.gz" for end in PACKED)
        raise DataError(f"{path} has an unknown file type; fmtc reads {', '.join(EXTENSIONS)}, {packed}")
    if not path.exists():
        raise DataError(f"{path} does not exist; check the name and the current folder")
    if not path.is_file():
        raise DataError(f"{path} is not a file; give the files of a folder one by one")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes)")


def suffix_of(path: Path) -> str:
    """The end of a file's name that tells its kind, in lower case; without .gz.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fmtc.tables.formats import stem_of, suffix_of
    >>> suffix_of(Path("north.CSV.gz")), stem_of(Path("data/north.CSV.gz"))
    ('.csv', 'north')
    """
    return (path.with_suffix("") if _is_packed(path) else path).suffix.lower()


def stem_of(path: Path) -> str:
    """Name of a file without the end that tells its kind: what its silo is called."""
    return (path.with_suffix("") if _is_packed(path) else path).stem


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _content(path: Path) -> bytes:
    """What a file of text holds, expanded."""
    if not _is_packed(path):
        return path.read_bytes()
    with gzip.open(path) as stream:
        content = stream.read(_most(path) + 1)
    if len(content) > _most(path):
        raise DataError(f"{path} expands to more than {_most(path):,} bytes: expand it yourself, if you trust it")
    if not content:
        raise DataError(f"{path} is empty (0 bytes)")
    return content


def line_of(path: Path, row: int, reading: Reading) -> str:
    """Where a row stands in its file, in words.

    Parameters
    ----------
    path : Path
    row : int
        Counted from 0.
    reading : Reading
    """
    suffix, first = suffix_of(path), 1
    if suffix in SEPARATORS:
        first += layout_of(path, _content(path), suffix).n_comments + (reading.header is not False)
    return f"{'line' if suffix in PACKED else 'row'} {first + row} of {path.name}"


# ------------------------------------------------------------------------------------------------------- tables


def _read_text(path: Path, reading: Reading) -> pl.DataFrame:
    return read_delimited(path, _content(path), suffix_of(path), reading)


def _read_parquet(path: Path, _: Reading) -> pl.DataFrame:
    return _collected(path, pl.scan_parquet(path, hive_partitioning=False, glob=False))


def _collected(path: Path, table: pl.LazyFrame) -> pl.DataFrame:
    """All rows, once it is known how much memory they need: a few bytes can stand for many equal values."""
    n_rows = table.select(pl.len()).collect().item()
    _check_inflated(path, 8 * n_rows * len(table.collect_schema()))
    texts, lists = cs.string().str.len_bytes(), 8 * cs.list().list.len().cast(pl.Int64)
    lengths = table.select(texts.cast(pl.Int64).sum(), lists.sum()).collect(engine="streaming")
    _check_inflated(path, int(lengths.to_numpy().sum()))  # cells that share a text are copied later
    return table.collect()


def pandas_index(path: Path) -> list[str]:
    """Columns of a Parquet file that were the index of a pandas frame."""
    if suffix_of(path) != ".parquet":
        return []
    try:
        kept = pl.read_parquet_metadata(path).get("pandas")
        columns = json.loads(kept)["index_columns"] if kept else []
    except (ValueError, KeyError, TypeError, pl.exceptions.PolarsError):
        return []
    return [name for name in columns if isinstance(name, str)]


def _read_arrow(path: Path, _: Reading) -> pl.DataFrame:
    content = path.read_bytes()  # by its name, Polars would take it for a pattern
    if not content.startswith(b"ARROW1"):
        return pl.read_ipc_stream(BytesIO(content))
    return _collected(path, pl.scan_ipc(BytesIO(content)))


def _read_lines(path: Path, _: Reading) -> pl.DataFrame:
    """One JSON object per line; what some lines lack is missing there."""
    lines = []
    for number, line in enumerate(_content(path).decode("utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number} is not JSON ({error})") from None
        if not isinstance(row, dict):
            raise DataError(f'{path}: line {number} is not an object such as {{"age": 31}}')
        lines.append(row)
    names = list(dict.fromkeys(name for row in lines for name in row))
    return pl.DataFrame([series_of([row.get(name) for row in lines], name) for name in names])


def _read_sheet(path: Path, reading: Reading) -> pl.DataFrame:
    """The first sheet of an Excel file."""
    try:
        import openpyxl
    except ImportError as error:
        raise ImportError("Excel files need openpyxl: pip install 'fmtc[excel]'") from error
    with zipfile.ZipFile(path) as archive:
        _check_inflated(path, sum(part.file_size for part in archive.infolist()))
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        rows = _filled([list(row) for row in book.worksheets[0].iter_rows(values_only=True)])
    finally:
        book.close()
    if not rows:
        raise DataError(f"{path}: its first sheet is empty")
    names = column_names(path, "row", ["" if name is None else str(name).strip() for name in rows[0]], reading)
    rows = rows if reading.header is False else rows[1:]
    return pl.DataFrame([series_of([row[place] for row in rows], name) for place, name in enumerate(names)])


def _filled(rows: list[list[Any]]) -> list[list[Any]]:
    """The rows between the first and the last with a cell, all as wide as the widest."""
    filled = [place for place, row in enumerate(rows) if any(cell is not None for cell in row)]
    rows = rows[filled[0] : filled[-1] + 1] if filled else []
    width = max((place + 1 for row in rows for place, cell in enumerate(row) if cell is not None), default=0)
    return [[*row[:width], *[None] * (width - len(row))] for row in rows]


def series_of(cells: list[Any], name: str = "") -> pl.Series:
    """Cells of any types as one column: numbers, truths, times or lists if all are, otherwise text; None stays."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {int}:
        try:
            return pl.Series(name, cells, dtype=pl.Int64)
        except (OverflowError, TypeError, pl.exceptions.PolarsError):  # digits without end: names of rows
            return _converted(name, cells, str, pl.String)
    if kinds and all(issubclass(kind, (int, float, np.number, Decimal)) and kind is not bool for kind in kinds):
        return _converted(name, cells, float, pl.Float64)
    return pl.Series(name, cells, strict=False) if len(kinds) <= 1 else _converted(name, cells, str, pl.String)


def _converted(name: str, cells: list[Any], convert: type, dtype: Any) -> pl.Series:
    return pl.Series(name, [None if cell is None else convert(cell) for cell in cells], dtype=dtype)


# ------------------------------------------------------------------------------------------------------- matrices


def _read_array(path: Path, _: Reading) -> Any:
    """A matrix, whose declared size is checked against file and memory before it is read."""
    with path.open("rb") as stream:
        _check_memory(path, _declared(stream, path.stat().st_size)[1])
    return as_numbers(path, np.load(path, allow_pickle=False))


def _read_archive(path: Path, _: Reading) -> Any:
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
    _check_inflated(path, sum(declared[key][1] for key in needed))
    with np.load(path, allow_pickle=False) as arrays:
        if not is_sparse:
            return as_numbers(path, arrays[needed[0]])
        shape = [int(side) for side in arrays["shape"].ravel()]
    if len(shape) != 2 or min(shape) < 0:
        raise DataError(f"{path} holds an array of shape {tuple(shape)}; fmtc needs 2 dimensions, one line per row")
    _check_inflated(path, 8 * sum(shape))  # a number for each row and column
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


def _most(path: Path) -> int:
    """Bytes that a compressed file may expand to."""
    return max(INFLATED, INFLATION * path.stat().st_size)


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
    if n_bytes > _most(path):
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


_READERS: dict[str, Callable[[Path, Reading], Any]] = {
    **dict.fromkeys(SEPARATORS, _read_text),
    **dict.fromkeys(LINES, _read_lines),
    ".xlsx": _read_sheet,
    ".parquet": _read_parquet,
    **dict.fromkeys(ARROW, _read_arrow),
    ".npy": _read_array,
    ".npz": _read_archive,
    ".h5ad": lambda path, reading: read_h5ad(path, reading, _check_memory),
}
EXTENSIONS = tuple(_READERS)

__all__ = ["EXTENSIONS", "line_of", "read_file", "stem_of", "suffix_of"]
