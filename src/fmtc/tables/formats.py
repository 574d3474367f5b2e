"""Files as frames and matrices: text, Excel, Parquet, Arrow, JSON lines and, in `matrices`, NumPy and AnnData."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from io import BytesIO, StringIO
from itertools import compress, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import polars.selectors as cs

from ..errors import DataError, listed
from .matrices import check_inflated, most_bytes, read_archive, read_array, read_h5ad
from .reading import Reading

LINES = (".jsonl", ".ndjson")
ARROW = (".arrow", ".feather", ".ipc")
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PACKED = (*SEPARATORS, *LINES)  # may be compressed: .csv.gz
_SAMPLE = 50  # lines that are looked at to tell the separator
_LOOKED_AT = 2**24  # bytes that these lines are looked for in
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
_DECIMAL_COMMA = r"^[+-]?(\d{1,3}(\.\d{3})+|\d*),\d*([eE][+-]?\d+)?$"
_THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+$"


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
        content = stream.read(most_bytes(path) + 1)
    if len(content) > most_bytes(path):
        raise DataError(f"{path} expands to more than {most_bytes(path):,} bytes: expand it yourself, if you trust it")
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
    if suffix_of(path) in SEPARATORS:
        content = _content(path)
        rows = _numbered(content, _layout_of(path, content))
        with contextlib.suppress(csv.Error):
            line, _ = next(islice(rows, row + (reading.header is not False), None))
            return f"line {line} of {path.name}"
    return f"row {row + 1} of {path.name}"


# ----------------------------------------------------------------------------------------------------------------- text


class _Layout(NamedTuple):
    """How a text file is laid out."""

    separator: str
    n_comments: int  # lines before the header that begin with #
    header: list[str]  # cells of the first line that is not a comment


def _read_text(path: Path, reading: Reading) -> pl.DataFrame:
    """All cells as text: they become numbers later, so that the type of a column does not depend on its first rows."""
    content = _content(path)
    layout = _layout_of(path, content)
    names = _column_names(path, "line", layout.header, reading)
    try:
        frame = pl.read_csv(
            content, separator=layout.separator, infer_schema=False, has_header=reading.header is not False,
            skip_lines=layout.n_comments,
        )  # fmt: skip
    except pl.exceptions.PolarsError:
        if (bad := _ragged(content, layout)) is not None:
            line, width = bad
            raise DataError(
                f"{path}: line {line} has {width} cells, but the header names {len(names)} columns; put cells that "
                "contain the separator in quotation marks"
            ) from None
        raise
    frame.columns = [str(place) for place in range(frame.width)]
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    frame = frame.head(0 if filled.is_empty() else int(filled[-1]) + 1)  # empty lines at the end are not rows
    if layout.separator != ",":
        frame = _decimal_points(frame, layout.separator)
    frame.columns = names
    return frame


def _column_names(path: Path, kind: str, cells: Sequence[str], reading: Reading) -> list[str]:
    """Names of columns: the cells of the first line of a file, or numbers where it is known to hold none.

    A line that looks like a row is refused, unless it is known that there is a header.
    """
    names = [cell.strip() for cell in cells]
    if reading.header is False:
        names = [f"column_{place}" for place in range(1, len(cells) + 1)]
    if reading.header is None and _is_row(cells):
        shown = ", ".join(cells[:4]) + (", …" if len(cells) > 4 else "")
        raise DataError(
            f"{path} seems to have no header: its first {kind} is {shown}. Write the names of the columns there, or "
            f"say that it has none ({reading.wording.option('header')})."
        )
    if not any(names):
        raise DataError(f"{path} has no header; its first {kind} must name the columns")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{path} has more than one column called {listed(twice)}; column names must be unique")
    return names


def _layout_of(path: Path, content: bytes) -> _Layout:
    """How a text file is laid out, as its first lines show; they decide about the separator if they agree."""
    end = content.find(b"\n", _LOOKED_AT) + 1  # whole lines, as the header may be longer
    try:
        text = content[: end or None].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it with that encoding") from None
    lines = list(islice(StringIO(text, newline=""), 20 * _SAMPLE))
    marked = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    separators = dict.fromkeys((SEPARATORS[suffix_of(path)], *",;\t|"))
    separator = max(separators, key=lambda one: _rank(lines[marked:], one))
    if marked and _is_header(lines[marked - 1], _cells(lines[marked:], separator), separator):
        marked -= 1
    header = next(iter(_cells(lines[marked:], separator)), [])
    return _Layout(separator, marked, header)


def _rank(lines: list[str], separator: str) -> tuple[bool, float]:
    """Whether there is more than one column, and nearly all rows have a cell for each; and the share of numbers."""
    try:
        header, *rows = _cells(lines, separator) or [[]]
    except csv.Error:  # a whole line of many columns is too long for one cell
        return False, 0.0
    if len(header) < 2 or not rows or sum(len(row) == len(header) for row in rows) < 0.8 * len(rows):
        return False, 0.0
    cells = [cell for row in rows for cell in row]
    return True, sum(_NUMBER.fullmatch(cell) is not None for cell in cells) / max(1, len(cells))


def _is_header(comment: str, rows: list[list[str]], separator: str) -> bool:
    """Whether a line with # above the rows is the header itself: it has as many cells, and numbers follow."""
    first, second = [*rows[:2], [], []][:2]
    named = not any(map(_NUMBER.fullmatch, first)) and any(map(_NUMBER.fullmatch, second))
    return not named and [len(above) for above in _cells([comment], separator)] == [len(first)]


def _cells(lines: list[str], separator: str) -> list[list[str]]:
    rows = (row for row in csv.reader(lines, delimiter=separator) if row)
    return list(islice(rows, _SAMPLE))


def _is_row(cells: Sequence[str]) -> bool:
    """Whether the first line is a row: mostly numbers, and not numbers that count columns or points of a scale."""
    numbers = [float(cell.replace(",", ".")) for cell in cells if _NUMBER.fullmatch(cell)]
    if not numbers or 2 * len(numbers) <= len(cells):
        return False
    steps = [after - before for before, after in pairwise(numbers)]
    even = all(abs(step - steps[0]) <= 1e-6 * abs(steps[0]) for step in steps)
    names = cells[1:] if not cells[0] else cells  # before the index of rows, pandas writes no name
    if len(numbers) == len(names) and steps and even and steps[0] > 0:
        return False
    return not (len(cells) == 1 and numbers[0] in (0, 1))


def _numbered(content: bytes, layout: _Layout) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows, each with the number of the line where it begins: cells may hold ends of lines."""
    lines = StringIO(content.decode("utf-8-sig", errors="replace"), newline="")
    reader = csv.reader(islice(lines, layout.n_comments, None), delimiter=layout.separator)
    line = layout.n_comments + 1
    for cells in reader:
        yield line, cells
        line = layout.n_comments + reader.line_num + 1


def _ragged(content: bytes, layout: _Layout) -> tuple[int, int] | None:
    """Number of the first line with too many cells, and their number."""
    with contextlib.suppress(csv.Error):
        for line, cells in _numbered(content, layout):
            if len(cells) > len(layout.header):
                return line, len(cells)
    return None


def _decimal_points(frame: pl.DataFrame, separator: str) -> pl.DataFrame:
    """Numbers with decimal commas written with points; a column changes if all of its cells with a comma are such."""
    changed = []
    some = frame.select(pl.all().str.contains(",", literal=True).any()).row(0)  # at once: there may be many columns
    for column in compress(frame.get_columns(), some):
        words = column.str.strip_chars()
        with_comma = words.str.contains(",", literal=True)
        commas = words.filter(with_comma)
        unclear = separator != ";" and commas.str.contains(_THOUSANDS).all()
        if commas.str.contains(_DECIMAL_COMMA).all() and not unclear:
            points = words.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
            changed.append(words.zip_with(~with_comma.fill_null(False), points))
    return frame.with_columns(changed)


# --------------------------------------------------------------------------------------------------------- other tables


def _read_parquet(path: Path, _: Reading) -> pl.DataFrame:
    return _collected(path, pl.scan_parquet(path, hive_partitioning=False, glob=False))


def _collected(path: Path, table: pl.LazyFrame) -> pl.DataFrame:
    """All rows, once it is known how much memory they need: a few bytes can stand for many equal values."""
    n_rows = table.select(pl.len()).collect().item()
    check_inflated(path, 8 * n_rows * len(table.collect_schema()))
    texts, lists = cs.string().str.len_bytes(), 8 * cs.list().list.len().cast(pl.Int64)
    lengths = table.select(texts.cast(pl.Int64).sum(), lists.sum()).collect(engine="streaming")
    check_inflated(path, int(lengths.to_numpy().sum()))  # cells that share a text are copied later
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
    for number, line in enumerate(_content(path).decode("utf-8-sig").split("\n"), start=1):
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
        check_inflated(path, sum(part.file_size for part in archive.infolist()))
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        rows = _filled([list(row) for row in book.worksheets[0].iter_rows(values_only=True)])
    finally:
        book.close()
    if not rows:
        raise DataError(f"{path}: its first sheet is empty")
    names = _column_names(path, "row", ["" if name is None else str(name).strip() for name in rows[0]], reading)
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


_READERS: dict[str, Callable[[Path, Reading], Any]] = {
    **dict.fromkeys(SEPARATORS, _read_text),
    **dict.fromkeys(LINES, _read_lines),
    ".xlsx": _read_sheet,
    ".parquet": _read_parquet,
    **dict.fromkeys(ARROW, _read_arrow),
    ".npy": read_array,
    ".npz": read_archive,
    ".h5ad": read_h5ad,
}
EXTENSIONS = tuple(_READERS)

__all__ = ["EXTENSIONS", "line_of", "read_file", "stem_of", "suffix_of"]
