"""Files of all silos, opened: the rows of each as they stand there, or its columns, for a comparison with others."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..errors import DataError, nearest_names
from ..schema import Schema, is_number, is_text, numbers_in, with_numbers, without_codes
from .catalogue import done_with, questions_about
from .findings import CONSTANT, IDENTIFIER, Finding, Kind
from .formats import line_of, pandas_index, read_file, stem_of
from .guess import Judged, judge, odd
from .matrices import Annotated
from .reading import Reading

Array = np.ndarray


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
    index = [name for path in {part.path for part in parts.values()} for name in pandas_index(path)]
    return judge(
        {name: part.plain for name, part in parts.items()},
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
    column = frame.get_column(name).alias("x")  # Polars takes a name such as ^a$ or * for a pattern
    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError:
        raise DataError(f"column {name!r} holds values of type {column.dtype}, which cannot be text") from None


def names_in(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column as text without surrounding blanks; null if nothing is left."""
    return words_in(frame, name).str.strip_chars().replace("", None)


# -------------------------------------------------------------------------------------------------- columns as they are


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of one silo, whether or not they can be clustered: a data frame, or a float or sparse matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables import Columns
    >>> silo = Columns(np.zeros((5, 2)))
    >>> silo.names, silo.n_rows, silo.width
    (None, 5, 2)
    """

    content: Any
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # columns of codes, and their levels
    identifiers: frozenset[str] = frozenset()  # columns that seem to name rows
    questions: tuple[str, ...] = ()  # about columns that may be the answer or name silos
    place: Callable[[int], str] = lambda row: f"row {row + 1}"  # where a row stands, in words

    def with_lengths(self, column: str) -> Columns:
        """The same columns, with the texts of one replaced by their lengths."""
        texts = self.content.get_column(column)
        lengths = self.content.with_columns(texts.cast(pl.String).str.len_chars())
        return replace(self, content=lengths, identifiers=self.identifiers - {column})

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns; None for a matrix."""
        return tuple(self.content.columns) if isinstance(self.content, pl.DataFrame) else None

    @property
    def kinds(self) -> list[Kind]:
        """What each column holds."""
        if not isinstance(self.content, pl.DataFrame):
            return [Kind.SPARSE if sp.issparse(self.content) else Kind.NUMBERS] * self.width
        return [self._kind(column) for column in self.content.get_columns()]

    def _kind(self, column: pl.Series) -> Kind:
        if column.name in self.categories:
            return Kind.CATEGORY
        if column.name in self.identifiers:
            return Kind.IDENTIFIERS
        if not column.name:
            return Kind.NAMELESS
        if column.null_count() == len(column):
            return Kind.NOTHING
        if is_number(column):
            return Kind.NUMBERS
        return Kind.TEXT if is_text(column) else Kind.OTHER

    def doubt(self, place: int) -> Finding:
        """Why a column of text, or of another type, cannot be used."""
        column = self.content.to_series(place).alias("x")
        name = self.content.columns[place]
        if not name:
            return Finding.of_column("no name", name)
        if (found := odd(name, {"": column}, lambda _, row: self.place(row))) is not None:
            return replace(found, code="codes") if found.code == "strays" else found
        words = column.cast(pl.String).drop_nulls()
        strange = words.filter(numbers_in(words)[1])
        return Finding.of_column("no numbers", name, example=(strange if len(strange) else words)[0])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.content.shape[0])

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.content.shape[1])


def read_columns(paths: Iterable[str | Path], reading: Reading | None = None) -> dict[str, Columns]:
    """Read the features of silos as `read_silos` does, but reject only what cannot be read at all.

    Parameters
    ----------
    paths : iterable of paths
        One file per silo, which is named after it; or a single file, with `silo_column`.
    reading : Reading, optional
        How they are read. What cannot be used stays as it is; of a column of texts, lengths are compared.

    Returns
    -------
    dict of silo to Columns

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.tables import Reading, read_columns
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "north.csv"
    ...     _ = file.write_text("name,height,dose\\nAda,170,low\\nBob,,high\\n")
    ...     silos = read_columns([file], Reading(id_column="name"))
    >>> silos["north"].names
    ('height', 'dose')
    """
    given = reading or Reading()
    reading = replace(given, text_column=None)
    parts = open_files(paths, reading)
    found = {name: Columns(part.X) for name, part in parts.items()}
    if tables := {name: part for name, part in parts.items() if part.is_table}:
        found |= _tables(tables, reading)
    for name, content in found.items():
        if given.text_column in (content.names or ()):
            found[name] = content.with_lengths(str(given.text_column))
        if content.width == 0:
            raise DataError(f"silo {name!r} has no column left to cluster")
    return found


def _tables(tables: Mapping[str, Part], reading: Reading) -> dict[str, Columns]:
    if (schema := reading.known_schema()) is not None:
        return {name: _encoded(part, schema.names, schema) for name, part in tables.items()}
    judged = judged_parts(tables, reading)
    if not reading.asks:
        named = frozenset(filter(None, judged.of_kind(IDENTIFIER)))
        questions = tuple(questions_about(judged, reading.wording, joining=True))
        return {n: Columns(part.features(), {}, named, questions, part.place) for n, part in tables.items()}
    # a constant column stays where some silo lacks it, which the comparison should find
    held = [set(part.frame.columns) for part in tables.values()]
    lacking = {c for c in judged.guesses if not all(c in own for own in held)}
    for line in done_with(judged, reading.wording, left=lacking):
        warnings.warn(line, UserWarning, stacklevel=3)
    kept = {n for n, v in judged.guesses.items() if v.doubt is not None} | (lacking & set(judged.of_kind(CONSTANT)))
    kept |= set(judged.schema.names)
    return {
        name: _encoded(part, [c for c in part.plain.columns if c in kept], judged.schema)
        for name, part in tables.items()
    }


def _encoded(part: Part, names: Sequence[str], schema: Schema) -> Columns:
    """Those of these columns that a table has: numbers and categories by a schema, others as they are."""
    found = {cells.name: cells for cells in (*part.frame.get_columns(), *part.features().get_columns())}
    known = {column.name: column for column in schema.columns if column.name in found}
    for name, column in known.items():
        # words where numbers should be are for the comparison to find
        with warnings.catch_warnings(), contextlib.suppress(DataError):
            warnings.simplefilter("ignore")
            cells = part.frame.get_column(name).to_frame()
            found[name] = pl.Series(Schema((column,)).encode(cells)[:, 0]).fill_nan(None)
    frame = pl.DataFrame({name: found[name] for name in names if name in found})
    levels = {name: column.levels for name, column in known.items() if column.levels}
    return Columns(frame, levels, place=part.place)


__all__ = ["Columns", "Part", "judged_parts", "open_files", "read_columns"]
