"""Columns of a silo as they are, for a comparison with others: what cannot be clustered stays as it is."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import scipy.sparse as sp

from ..errors import DataError
from ..schema import Schema, is_number, is_text, numbers_in
from .catalogue import done_with, questions_about
from .findings import CONSTANT, IDENTIFIER, Finding, Kind
from .guess import odd
from .parts import Part, judged_parts, open_files
from .reading import Reading


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
    lacking = {c for c in judged.guesses if any(c not in part.frame.columns for part in tables.values())}
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
    known = {column.name: column for column in schema.columns if column.name in part.frame.columns}
    found = {cells.name: cells for cells in (*part.frame.get_columns(), *part.features().get_columns())}
    for name, column in known.items():
        # words where numbers should be are for the comparison to find
        with warnings.catch_warnings(), contextlib.suppress(DataError):
            warnings.simplefilter("ignore")
            found[name] = pl.Series(Schema((column,)).encode(part.frame)[:, 0]).fill_nan(None)
    frame = pl.DataFrame({name: found[name] for name in names if name in found})
    levels = {name: column.levels for name, column in known.items() if column.levels}
    return Columns(frame, levels, place=part.place)


__all__ = ["Columns", "read_columns"]
