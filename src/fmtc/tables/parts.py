"""Files of all silos, opened: the rows of each as they stand there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..errors import DataError, nearest_names
from ..schema import with_numbers, without_codes
from .formats import line_of, pandas_index, read_file, stem_of
from .guess import Judged
from .guess import judge as judge_columns
from .matrices import Annotated
from .reading import Reading

Array = np.ndarray

PLAIN = "x"  # Polars takes a name such as ^a$ or * for a pattern, so columns get this name before a computation


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of one silo as they are in its file."""

    path: Path
    rows: Array  # positions in the file
    reading: Reading
    frame: pl.DataFrame  # the columns of a table; of AnnData, what is about the rows; of a matrix none
    X: Any = None  # of a matrix and of AnnData
    names: tuple[str, ...] | None = None  # of the columns of X, where they have some
    given: tuple[str, ...] | None = None  # names of rows that the file itself has

    @property
    def is_table(self) -> bool:
        """Whether features are columns of a table."""
        return self.X is None

    @property
    def form(self) -> str:
        """What kind of file it is, in words."""
        if self.is_table or self.names is not None:
            return "a table" if self.is_table else "AnnData"
        return "a sparse matrix" if sp.issparse(self.X) else "a dense matrix without column names"

    @property
    def plain(self) -> pl.DataFrame:
        """The columns of a table that are features."""
        others = self.reading.others
        return pl.DataFrame({cells.name: cells for cells in self.frame.get_columns() if cells.name not in others})

    @property
    def labels(self) -> list[str | None] | None:
        """Known classes of the rows."""
        column = self.reading.label_column
        return None if column is None else names_in(self.frame, column).to_list()

    def ids(self, column: str | None) -> list[str | None] | None:
        """Identifiers of the rows: of a column or, without one, those that the file itself has."""
        if column is None:
            return None if self.given is None else list(self.given)
        return words_in(self.frame, column).to_list()

    def place(self, row: int) -> str:
        """Where a row of this silo stands in its file, in words."""
        return line_of(self.path, int(self.rows[row]), self.reading)

    def features(self) -> pl.DataFrame:
        """The columns that are features; text becomes numbers if all of it can."""
        return pl.DataFrame({cells.name: with_numbers(cells) for cells in self.plain.get_columns()})


def open_files(paths: Iterable[str | Path], reading: Reading) -> dict[str, Part]:
    """Read the files, check that the columns asked for by name exist, and divide a single file by `silo_column`.

    Cells of features that are codes of missing values become missing.
    """
    files = _by_name([Path(path) for path in paths], reading)
    option = reading.wording.option
    if reading.silo_column is not None and len(files) > 1:
        raise DataError(
            f"{option('silo_column')} divides one file into silos, but {len(files)} files were given: give one"
        )
    contents, bad = {}, []
    for name, path in files.items():
        try:
            contents[name] = read_file(path, reading)
        except DataError as error:
            bad.append(str(error))
    if bad:
        raise DataError("\n  ".join(bad))
    parts = {name: _part(files[name], content, reading) for name, content in contents.items()}
    _check_columns(parts.values(), reading)
    if reading.silo_column is None:
        return parts
    ((name, part),) = parts.items()
    silos = names_in(part.frame, reading.silo_column)
    if silos.null_count():
        raise DataError(
            f"{option('silo_column')}: {silos.null_count()} rows of {part.path.name} have no value in "
            f"{reading.silo_column!r}"
        )
    return {silo: _rows_of(part, (silos == silo).arg_true()) for silo in silos.unique(maintain_order=True)}


def _part(path: Path, content: Any, reading: Reading) -> Part:
    rows = np.arange(content.shape[0])
    if isinstance(content, pl.DataFrame):
        others, codes = reading.others, reading.missing_codes
        columns = {c.name: c if c.name in others else without_codes(c, codes) for c in content.get_columns()}
        return Part(path, rows, reading, pl.DataFrame(columns))
    if reading.missing_codes:
        raise DataError(
            f"{path.name} is a matrix, where {reading.wording.option('missing_codes')} cannot be used: write NaN "
            "there, or save a table"
        )
    if isinstance(content, Annotated):
        return Part(path, rows, reading, content.about, content.X, content.names, tuple(content.ids))
    return Part(path, rows, reading, pl.DataFrame(), content)


def _rows_of(part: Part, places: pl.Series) -> Part:
    rows = places.to_numpy()
    X = None if part.X is None else part.X[rows]
    given = None if part.given is None else tuple(part.given[row] for row in rows)
    return replace(part, rows=rows, frame=part.frame[places], X=X, given=given)


def judged_parts(parts: Mapping[str, Part], reading: Reading) -> Judged:
    """What the columns of tables are, over all silos; `columns` are the only ones to use, if any are given."""
    everywhere = dict.fromkeys(name for part in parts.values() for name in part.frame.columns)
    index = [name for path in {part.path for part in parts.values()} for name in pandas_index(path)]
    return judge_columns(
        {name: part.frame for name, part in parts.items()},
        names=[name for name in everywhere if name not in reading.others],
        as_types=reading.as_types,
        index=[*index, "__index_level_0__"],
        id_column=reading.id_column,
        wanted=reading.columns,
        place=lambda silo, row: parts[silo].place(row),
    )


def _by_name(paths: list[Path], reading: Reading) -> dict[str, Path]:
    option = reading.wording.option("silo_column")
    files: dict[str, Path] = {}
    for path in paths:
        name = stem_of(path).strip()
        if name in files:
            raise DataError(
                f"{files[name]} and {path} would both be silo {name!r}, as silos are named after their "
                f"files: rename one, or put both in one file and use {option}"
            )
        files[name] = path
    if not files:
        raise DataError(f"no file was given; give one file per silo, or one file and {option}")
    return files


def _check_columns(parts: Iterable[Part], reading: Reading) -> None:
    """Columns asked for by name: those with a role must be in every file, others in some file."""
    named = [part for part in parts if part.is_table or part.names is not None]
    asked = [*reading.roles, *(name for name in ("drop", "columns") if getattr(reading, name))]
    if not named and asked:
        file = next(iter(parts)).path.name
        raise DataError(
            f"{file} has no column names, so {reading.wording.option(asked[0])} cannot be used; save a table (.csv, "
            ".parquet, .xlsx) instead"
        )
    for role, column in reading.roles.items():
        for part in named:
            if part.is_table or role != "text_column":
                where = "" if part.is_table else " in obs"
                _check_there(role, [column], part.frame.columns, reading, f"{part.path.name} has no", where)
    if tables := [part.frame.columns for part in named if part.is_table]:
        everywhere = list(dict.fromkeys(chain(*tables)))
        for option in ("drop", "columns", "as_types"):
            _check_there(option, getattr(reading, option), everywhere, reading, "no file has a")


def _check_there(
    option: str, asked: Iterable[str], known: list[str], reading: Reading, who: str, where: str = ""
) -> None:
    for column in asked:
        if column not in known:
            named = reading.wording.option(option)
            raise DataError(f"{named}: {who} column {column!r}{where}; {nearest_names(column, known)}")


# ---------------------------------------------------------------------------------------------------- one column


def words_in(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column as text; missing values stay null."""
    column = frame.get_column(name).alias(PLAIN)
    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError:
        raise DataError(f"column {name!r} holds values of type {column.dtype}, which cannot be text") from None


def names_in(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column as text without surrounding blanks; null if nothing is left."""
    return words_in(frame, name).str.strip_chars().replace("", None)


__all__ = ["Part", "judged_parts", "open_files"]
