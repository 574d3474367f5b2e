"""Text files of cells: what separates them, comments before the header, whether there is one, and decimal commas."""

from __future__ import annotations

import contextlib
import csv
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ..errors import DataError, listed
from .reading import Reading

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_SAMPLE = 50  # lines that are looked at to tell the separator
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
_DECIMAL_COMMA = r"^[+-]?(\d{1,3}(\.\d{3})+|\d*),\d*([eE][+-]?\d+)?$"
_THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+$"


class Layout(NamedTuple):
    """How a text file is laid out."""

    separator: str
    n_comments: int  # lines before the header that begin with #
    header: list[str]  # cells of the first line that is not a comment


def read_delimited(path: Path, content: bytes, suffix: str, reading: Reading) -> pl.DataFrame:
    """All cells as text: they become numbers later, so that the type of a column does not depend on its first rows.

    Parameters
    ----------
    path : Path
    content : bytes
        What the file holds.
    suffix : str
        One of `SEPARATORS`; the separator of another is used if the lines agree on it.
    reading : Reading
        Whether the first line holds names; None: it must, and a line of numbers is refused.
    """
    layout = layout_of(path, content, suffix)
    names = column_names(path, "line", layout.header, reading)
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


def column_names(path: Path, kind: str, cells: Sequence[str], reading: Reading) -> list[str]:
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


def layout_of(path: Path, content: bytes, suffix: str) -> Layout:
    """How a text file is laid out, as its first lines show."""
    try:
        text = getincrementaldecoder("utf-8-sig")().decode(content[: 2**20])  # its last sign may be cut
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it with that encoding") from None
    lines = list(islice(StringIO(text, newline=""), 20 * _SAMPLE))
    marked = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    separators = dict.fromkeys((SEPARATORS[suffix], *",;\t|"))
    separator = max(separators, key=lambda one: _rank(_cells(lines[marked:], one)))
    if marked and _is_header(lines[marked - 1], _cells(lines[marked:], separator), separator):
        marked -= 1
    header = next(iter(_cells(lines[marked:], separator)), [])
    return Layout(separator, marked, header)


def _rank(rows: list[list[str]]) -> tuple[bool, float]:
    """Whether there is more than one column, and nearly all rows have a cell for each; and the share of numbers."""
    header, *rows = rows or [[]]
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


def _ragged(content: bytes, layout: Layout) -> tuple[int, int] | None:
    """Number of the first line with too many cells, and their number."""
    lines = StringIO(content.decode("utf-8-sig", errors="replace"), newline="")
    reader = csv.reader(islice(lines, layout.n_comments, None), delimiter=layout.separator)
    with contextlib.suppress(csv.Error):
        for row in reader:
            if len(row) > len(layout.header):
                return reader.line_num + layout.n_comments, len(row)
    return None


def _decimal_points(frame: pl.DataFrame, separator: str) -> pl.DataFrame:
    """Numbers with decimal commas written with points; a column changes if all of its cells with a comma are such."""
    changed = []
    for column in frame.get_columns():
        words = column.str.strip_chars()
        with_comma = words.str.contains(",", literal=True)
        commas = words.filter(with_comma)
        unclear = separator != ";" and commas.str.contains(_THOUSANDS).all()
        if len(commas) and commas.str.contains(_DECIMAL_COMMA).all() and not unclear:
            points = words.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
            changed.append(words.zip_with(~with_comma.fill_null(False), points))
    return frame.with_columns(changed)
