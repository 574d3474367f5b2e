"""Columns of tables: which of them are features, what they hold, and which rows belong to which client."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..errors import DataError, nearest_names
from ..schema import Schema, without_codes
from .annotated import Annotated
from .formats import is_typed, line_of, pandas_index, read_file, stem_of
from .guess import CONSTANT, IDENTIFIER, Judged
from .guess import judge as judge_columns

Array = np.ndarray

MISSING_WORDS = ("", ".", "?", "-", "na", "n/a", "null", "none")  # besides nan, which reads as a number
SMALLEST = 10  # no sum over fewer values than this leaves a client
PLAIN = "x"  # Polars takes a name such as ^a$ or * for a pattern, so columns get this name before a computation


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of one client, whether or not they can be clustered: a data frame, or a float or sparse matrix.

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
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.content.shape[0])

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.content.shape[1])


def read_columns(
    paths: Iterable[str | Path],
    *,
    client_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    columns: Sequence[str] = (),
    as_types: Mapping[str, str] | None = None,
    schema: Schema | str | Path | None = None,
    judge: bool = False,
    header: bool | None = None,
    obsm: str | None = None,
    missing_codes: Sequence[str | float] = (),
    text_column: str | None = None,
) -> dict[str, Columns]:
    """Read the features of clients as `read_silos` does, but reject only what cannot be read at all.

    Parameters
    ----------
    paths : iterable of paths
        One file per client, which is named after it; or a single file, with `client_column`.
    client_column, label_column, id_column : str, optional
        Columns that are not features.
    drop : sequence of str
        Further columns to omit.
    columns, as_types, schema, judge, header, obsm, missing_codes
        As in `read_silos`. What cannot be used stays as it is.
    text_column : str, optional
        Column of texts, whose lengths are compared.

    Returns
    -------
    dict of client to Columns

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.tables import read_columns
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "north.csv"
    ...     _ = file.write_text("name,height,dose\\nAda,170,low\\nBob,,high\\n")
    ...     silos = read_columns([file], id_column="name")
    >>> silos["north"].names
    ('height', 'dose')
    """
    opened = open_files(
        paths, client_column, drop, missing_codes, label_column=label_column, id_column=id_column, header=header,
        obsm=obsm,
    )  # fmt: skip
    found: dict[str, Columns] = {}
    if opened.parts:
        if schema is not None:
            known = schema if isinstance(schema, Schema) else Schema.read(schema)
            known = known.with_kinds(as_types or {}).with_missing(missing_codes)
            found = {name: _by_schema(part, known) for name, part in opened.parts.items()}
        else:
            judged = opened.judged(columns, as_types, id_column)
            asked = judge or bool(columns or as_types)
            parts = opened.parts
            kept = {c for c in judged.verdicts if any(c not in part.frame.columns for part in parts.values())}
            found = {name: _by_judgement(part, judged, opened.others, kept, asked) for name, part in parts.items()}
            for line in judged.said(kept) if asked else ():
                warnings.warn(line, UserWarning, stacklevel=2)
    if client_column is None:
        contents = {name: getattr(content, "X", content) for name, content in opened.contents.items()}
        found = {name: found.get(name, Columns(content)) for name, content in contents.items()}
    if text_column is not None:
        found = {n: c.with_lengths(text_column) if text_column in (c.names or ()) else c for n, c in found.items()}
    for name, content in found.items():
        if content.width == 0:
            raise DataError(f"client {name!r} has no column left to cluster")
    return found


def _by_schema(part: Part, schema: Schema) -> Columns:
    """The columns that a schema names and a table has, encoded and in the order of the schema, as a run has them."""
    here = Schema(tuple(column for column in schema.columns if column.name in part.frame.columns))
    found = _encoded(part, here, {})
    return replace(found, content=pl.DataFrame({name: found.content.get_column(name) for name in here.names}))


def _encoded(part: Part, schema: Schema, rest: Mapping[str, pl.Series]) -> Columns:
    """Columns of a schema as numbers, and others as they are, in the order of the table."""
    done: dict[str, pl.Series] = {}
    for column in schema.columns:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cells = Schema((column,)).encode(part.frame)[:, 0]
            done[column.name] = pl.Series(cells).fill_nan(None)
        except DataError:  # words where numbers should be: for the comparison to find
            done[column.name] = part.frame.get_column(column.name)
    frame = pl.DataFrame(
        {name: (done | dict(rest))[name] for name in part.frame.columns if name in done or name in rest}
    )
    return Columns(frame, {column.name: column.levels for column in schema.columns if column.levels})


def _by_judgement(part: Part, judged: Judged, others: set[str], kept: set[str], asked: bool) -> Columns:
    """Columns as they were judged; unless that was asked for, categories stay words and identifiers stay.

    A constant column stays if it is among `kept`: those that some client lacks, which the comparison should find.
    """
    plain = part.features(others)
    if not asked:
        names = frozenset(name for name in judged.of_kind(IDENTIFIER) if name in plain.columns and name)
        return Columns(plain, identifiers=names, questions=tuple(judged.questions(joining=True)))
    here = Schema(tuple(column for column in judged.schema.columns if column.name in plain.columns))
    constant = kept & set(judged.of_kind(CONSTANT))
    troubled = constant | {name for name, verdict in judged.verdicts.items() if verdict.problem}
    return _encoded(part, here, {name: plain.get_column(name) for name in plain.columns if name in troubled})


# ---------------------------------------------------------------------------------------------- files of all clients


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of one client as they are in its file."""

    frame: pl.DataFrame
    rows: Array  # positions in the file
    typed: bool  # False if cells are still text
    path: Path
    header: bool | None = None  # whether the file has one, if that was said

    def place(self, row: int) -> str:
        """Where a row of this client stands in its file, in words."""
        return line_of(self.path, int(self.rows[row]), header=self.header)

    def features(self, others: set[str]) -> pl.DataFrame:
        """The columns that are features; text becomes numbers if all of it can."""
        columns = {column.name: column for column in self.frame.get_columns() if column.name not in others}
        if not self.typed:
            columns = {n: _numbers(column) if column.dtype == pl.String else column for n, column in columns.items()}
        return pl.DataFrame(columns)


@dataclass(frozen=True, eq=False)
class Opened:
    """Content of the files of all clients."""

    files: dict[str, Path]  # by the name that a client would have, the file's stem
    contents: dict[str, Any]  # by the same names: frames, float arrays, csr_arrays or `Annotated`
    parts: dict[str, Part]  # by client; of tables only
    others: set[str]  # columns that are not features

    def judged(
        self, columns: Sequence[str] = (), as_types: Mapping[str, str] | None = None, id_column: str | None = None
    ) -> Judged:
        """What the columns are, over all clients; `columns` are the only ones to use, if any are given."""
        tables = {name: part.frame for name, part in self.parts.items()}
        everywhere = dict.fromkeys(name for table in tables.values() for name in table.columns)
        for name in columns:
            if name not in everywhere:
                raise DataError(f"`columns`: no file has a column {name!r}; {nearest_names(name, everywhere)}")
        index = [name for path in self.files.values() for name in pandas_index(path)] + ["__index_level_0__"]
        wanted = dict.fromkeys(columns) or everywhere
        said = {name: "number" for name in columns if name not in (as_types or {})} if columns else {}
        judged = judge_columns(
            tables,
            names=[name for name in everywhere if name not in self.others],
            as_types=as_types,
            index=index,
            id_column=id_column,
            place=lambda silo, row: self.parts[silo].place(row),
        )
        return judged.only(wanted).keeping(said)


def open_files(
    paths: Iterable[str | Path],
    client_column: str | None,
    drop: Sequence[str],
    missing_codes: Sequence[str | float] = (),
    *,
    header: bool | None = None,
    obsm: str | None = None,
    **roles: str | None,
) -> Opened:
    """Read the files, check that the columns asked for by name exist, and divide a single file by `client_column`.

    Cells of features that are codes of missing values become missing.
    """
    files = _by_name([Path(path) for path in paths])
    if client_column is not None and len(files) > 1:
        raise DataError(f"`client_column` divides one file into clients, but {len(files)} files were given: give one")
    named = {role: column for role, column in {"client_column": client_column, **roles}.items() if column is not None}
    contents, bad = {}, []
    for name, path in files.items():
        try:
            contents[name] = read_file(path, header=header, obsm=obsm)
        except DataError as error:
            bad.append(str(error))
    if bad:
        raise DataError("\n  ".join(bad))
    tables = {name: content for name, content in contents.items() if isinstance(content, pl.DataFrame)}
    others = {*named.values(), *drop}
    if missing_codes and len(tables) < len(contents):
        file = next(files[name].name for name in contents if name not in tables)
        raise DataError(f"{file} is a matrix, where `missing_codes` cannot be used: write NaN there, or save a table")
    if missing_codes:
        tables = {name: _without_codes(table, missing_codes, others) for name, table in tables.items()}
        contents |= tables
    if any(isinstance(content, Annotated) for content in contents.values()):
        return Opened(files, contents, {}, set())
    if not tables and (named or drop):
        file, role = next(iter(files.values())).name, next(iter(named), "drop")
        raise DataError(
            f"{file} has no column names, so `{role}` cannot be used; save a table (.csv, .parquet, .xlsx) instead"
        )
    _check_columns({files[name].name: table.columns for name, table in tables.items()}, named, drop)
    parts = _divide(tables, files, client_column, header) if tables else {}
    return Opened(files, contents, parts, others)


def _without_codes(table: pl.DataFrame, codes: Sequence[str | float], others: set[str]) -> pl.DataFrame:
    columns = table.get_columns()
    return pl.DataFrame([c if c.name in others else without_codes(c, codes) for c in columns])


def _by_name(paths: list[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in paths:
        name = stem_of(path).strip()
        if name in files:
            raise DataError(
                f"{files[name]} and {path} would both be client {name!r}, as clients are named after their "
                "files: rename one, or put both in one file and use `client_column`"
            )
        files[name] = path
    if not files:
        raise DataError("no file was given; give one file per client, or one file and `client_column`")
    return files


def _check_columns(columns: Mapping[str, Sequence[str]], named: Mapping[str, str], drop: Sequence[str]) -> None:
    """Columns asked for by name: those with a role must be in every file, a dropped one in some file."""
    for role, column in named.items():
        for file, names in columns.items():
            if column not in names:
                raise DataError(f"`{role}`: {file} has no column {column!r}; {nearest_names(column, names)}")
    everywhere = list(dict.fromkeys(name for names in columns.values() for name in names))
    for column in drop:
        if column not in everywhere:
            raise DataError(f"`drop`: no file has a column {column!r}; {nearest_names(column, everywhere)}")


def _divide(
    frames: Mapping[str, pl.DataFrame], files: Mapping[str, Path], client_column: str | None, header: bool | None
) -> dict[str, Part]:
    typed = {name: is_typed(files[name]) for name in frames}
    if client_column is None:
        return {
            name: Part(frame, np.arange(frame.height), typed[name], files[name], header)
            for name, frame in frames.items()
        }
    ((name, frame),) = frames.items()
    clients = names_in(frame, client_column)
    if clients.null_count():
        raise DataError(
            f"`client_column`: {clients.null_count()} rows of {files[name].name} have no value in {client_column!r}"
        )
    parts = {}
    for client in clients.unique(maintain_order=True):
        rows = (clients == client).arg_true()
        parts[client] = Part(frame[rows], rows.to_numpy(), typed[name], files[name], header)
    return parts


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


def _numbers(column: pl.Series) -> pl.Series:
    """A column of text as numbers, if each cell is a number or means a missing one; else without surrounding blanks."""
    words = column.alias(PLAIN).str.strip_chars()
    numbers = words.cast(pl.Float64, strict=False)
    strange = words.filter(numbers.is_null() & words.is_not_null()).str.to_lowercase().unique()
    if strange.is_empty():
        return numbers
    meaning = {"true": 1.0, "false": 0.0} | dict.fromkeys(MISSING_WORDS)
    if strange.is_in(list(meaning)).all():
        known = words.str.to_lowercase().replace_strict(meaning, default=None, return_dtype=pl.Float64)
        return pl.select(pl.coalesce(numbers, known)).to_series()
    return words


def column_kind(column: pl.Series) -> str:
    """What a column holds, in words: numbers, text, nothing, or values of some type."""
    if column.null_count() == len(column):
        return "nothing"
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return "numbers"
    return "text" if column.dtype in (pl.String, pl.Categorical, pl.Enum) else f"values of type {column.dtype}"


def example_of(column: pl.Series) -> str:
    """A value of a column of text; if possible, one that is not a number."""
    words = column.alias(PLAIN).cast(pl.String).drop_nulls()
    strange = words.filter(
        words.cast(pl.Float64, strict=False).is_null() & ~words.str.to_lowercase().is_in(MISSING_WORDS)
    )
    return str((strange if len(strange) else words)[0])


__all__ = ["Columns", "read_columns"]
