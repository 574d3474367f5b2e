"""Text files of cells: what separates them, comments before the header, whether there is one, and decimal commas."""

from __future__ import annotations

import contextlib
import csv
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import islice, pairwise
from pathlib import Path

import polars as pl

from ..errors import DataError, listed
from .reading import Reading

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_SAMPLE = 50  # lines that are looked at to tell the separator
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
_DECIMAL_COMMA = r"^[+-]?(\d{1,3}(\.\d{3})+|\d*),\d*([eE][+-]?\d+)?$"
_THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+$"


@dataclass(frozen=True)
class Layout:
    """How a text file is laid out."""

    separator: str
    n_comments: int  # lines before the header that begin with #
    header: tuple[str, ...]  # cells of the first line that is not a comment
    named: bool  # whether that line holds names

    @property
    def first_line(self) -> int:
        """Number of the line of the first row, counted from 1."""
        return self.n_comments + (2 if self.named else 1)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        if not self.named:
            return [f"column_{place}" for place in range(1, len(self.header) + 1)]
        return [name.strip() for name in self.header]


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
    layout = layout_of(path, content, suffix, reading)
    names = layout.names
    if not any(names):
        raise DataError(f"{path} has no header; its first line must name the columns")
    check_names(path, names)
    try:
        frame = pl.read_csv(
            content, separator=layout.separator, infer_schema=False, has_header=layout.named,
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


def check_names(path: Path, names: list[str]) -> None:
    """Refuse two columns of one name."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{path} has more than one column called {listed(twice)}; column names must be unique")


def check_header(path: Path, kind: str, cells: Sequence[str], reading: Reading) -> None:
    """Refuse a first line that looks like a row, unless it is known whether there is a header."""
    if reading.header is None and _is_row(cells):
        shown = ", ".join(cells[:4]) + (", …" if len(cells) > 4 else "")
        raise DataError(
            f"{path} seems to have no header: its first {kind} is {shown}. Write the names of the columns there, or "
            f"say that it has none ({reading.wording.option('header')})."
        )


def layout_of(path: Path, content: bytes, suffix: str, reading: Reading) -> Layout:
    """How a text file is laid out, as its first lines show."""
    try:
        text = getincrementaldecoder("utf-8-sig")().decode(content[: 2**20])  # its last sign may be cut
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it with that encoding") from None
    lines = list(islice(StringIO(text, newline=""), 20 * _SAMPLE))
    marked = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    separators = dict.fromkeys((SEPARATORS[suffix], *",;\t|"))
    chosen = max((_Under(one, _cells(lines[marked:], one)) for one in separators), key=lambda under: under.rank)
    if marked and chosen.follows(lines[marked - 1]):
        marked -= 1
        chosen = _Under(chosen.separator, _cells(lines[marked:], chosen.separator))
    cells = tuple(chosen.rows[0]) if chosen.rows else ()
    check_header(path, "line", cells, reading)
    return Layout(chosen.separator, marked, cells, reading.header is not False)


@dataclass(frozen=True)
class _Under:
    """The first rows of a file under the assumption of a separator."""

    separator: str
    rows: list[list[str]]

    @property
    def fits(self) -> bool:
        """Whether there is more than one column, and nearly all rows have a cell for each."""
        header, *rows = self.rows or [[]]
        return len(header) > 1 and bool(rows) and sum(len(row) == len(header) for row in rows) >= 0.8 * len(rows)

    def follows(self, comment: str) -> bool:
        """Whether a line with # above is the header itself: then it has as many cells, and numbers follow."""
        above = _cells([comment], self.separator)
        first, second = [*self.rows[:2], [], []][:2]
        plain = not any(map(_NUMBER.fullmatch, first)) and any(map(_NUMBER.fullmatch, second))
        return bool(above) and len(above[0]) == len(first) and not plain

    @property
    def rank(self) -> tuple[bool, float]:
        """Whether it fits, and the share of cells that are numbers."""
        cells = [cell for row in self.rows[1:] for cell in row]
        plain = [cell for cell in cells if _NUMBER.fullmatch(cell)]
        return self.fits, len(plain) / max(1, len(cells)) if self.fits else 0.0


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
