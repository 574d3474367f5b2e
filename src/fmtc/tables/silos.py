"""Silos from files: rows as numbers, the same columns everywhere, or one clear sentence on why not."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import DataError, joined, listed, nearest_names
from ..schema import Encoded, Schema
from ..wording import Wording
from .catalogue import differences, done_with, plain, words_of
from .findings import Kind
from .parts import Columns, Part, judged_parts, open_files, words_in
from .reading import DROP, EM, Reading
from .text import TextRecipe, hashed_counts

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Silo:
    """The rows of one silo, as numbers.

    `X` is a float array or a sparse ``csr_array`` of shape (n, d): a category as the code of its level, NaN where a
    cell is missing. `rows` are the positions of the rows in their file, counted from 0. `schema` says what the columns
    are, where they have names; `id_name` is the name of the column that `ids` are from.
    """

    name: str
    X: Any
    feature_names: tuple[str, ...] | None
    rows: Array
    ids: list[str | None] | None = None
    labels: list[str | None] | None = None
    schema: Schema | None = None
    id_name: str | None = None

    @property
    def encoded(self) -> Any:
        """The rows for `fit` and `predict`: with what the columns are, where that is known."""
        return self.X if self.schema is None or sp.issparse(self.X) else Encoded(self.X, self.schema)

    def column(self, place: int) -> str | int:
        """The name of a column or, where it has none, its position."""
        return place if self.feature_names is None else self.feature_names[place]

    def take(self, rows: Sequence[int]) -> Silo:
        """Some of the rows, by their positions among those of the silo."""
        ids = None if self.ids is None else [self.ids[row] for row in rows]
        labels = None if self.labels is None else [self.labels[row] for row in rows]
        return replace(self, X=self.X[list(rows)], rows=self.rows[list(rows)], ids=ids, labels=labels)


def read_silos(paths: Iterable[str | Path], reading: Reading | None = None) -> list[Silo]:
    """Read one silo per file, named after the file; or, with `silo_column`, one per value of it in a single file.

    Columns in another order than the first silo's are reordered, with a warning.

    Parameters
    ----------
    paths : iterable of paths
        Tables (``.csv``, ``.tsv``, ``.jsonl``, also ``.gz``; ``.xlsx``, ``.parquet``, ``.arrow``, ``.feather``),
        matrices without column names (``.npy``; ``.npz`` with one 2-D array, with one under the key ``X``, or written
        by ``scipy.sparse.save_npz``), or AnnData (``.h5ad``: columns with a role are then those of `obs`).
    reading : Reading, optional
        How they are read.

    Returns
    -------
    list of Silo

    Raises
    ------
    DataError
        If a file is missing, damaged, empty or of another kind, or if the silos do not hold one number per cell and
        the same columns.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.tables import Reading, read_silos
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "north.csv"
    ...     _ = file.write_text("name,height,weight\\nAda,170,60\\nBob,180,80.5\\n")
    ...     (silo,) = read_silos([file], Reading(id_column="name"))
    >>> silo.name, silo.feature_names, silo.ids
    ('north', ('height', 'weight'), ['Ada', 'Bob'])
    >>> silo.X
    array([[170. ,  60. ],
           [180. ,  80.5]])
    """
    reading = reading or Reading()
    parts = open_files(paths, reading)
    forms = {part.path.name: part.form for part in parts.values()}
    if len(set(forms.values())) > 1:
        found = joined([f"{file} is {form}" for file, form in forms.items()])
        raise DataError(f"the files are of different kinds: {found}. Save all of them as one kind.")
    if not next(iter(parts.values())).is_table:
        silos = _matrices(parts, reading)
    elif reading.recipe is not None:
        return _texts(parts, reading, reading.recipe)
    else:
        silos = _tables(parts, reading)
    _check_infinite(silos, parts, reading.wording)
    return _without_missing(silos, parts, reading)


def read_texts(paths: Iterable[str | Path], reading: Reading) -> list[str | None]:
    """The texts of all silos, one after the other, as `read_silos` reads them to count their words.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.tables import Reading, read_texts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "north.csv"
    ...     _ = file.write_text("notes\\nno fever\\ncough\\n")
    ...     read_texts([file], Reading(text_column="notes"))
    ['no fever', 'cough']
    """
    silo, column, wording = reading.silo_column, str(reading.text_column), reading.wording
    only = Reading(silo_column=silo, text_column=column, header=reading.header, wording=wording)
    return [text for part in open_files(paths, only).values() for text in words_in(part.frame, column).to_list()]


# --------------------------------------------------------------------------------------------------------- matrices


def _matrices(parts: Mapping[str, Part], reading: Reading) -> list[Silo]:
    """Silos from matrices, whose columns may have names."""
    silos = []
    for name, part in parts.items():
        schema = None if part.names is None else Schema.of_numbers(part.names)
        ids = part.ids(reading.id_column)
        silos.append(Silo(name, part.X, part.names, part.rows, ids, part.labels, schema, reading.id_column))
    first = silos[0]
    if len({(silo.feature_names, silo.X.shape[1]) for silo in silos}) > 1:
        names = {silo.name: [plain(silo.column(place)) for place in range(silo.X.shape[1])] for silo in silos}
        found = differences(names) or "the files have their columns in another order"
        raise DataError(f"{found}\nGive every silo the same columns.")
    schema = reading.known_schema() if first.feature_names is None else None
    return silos if schema is None or schema.is_plain else [_coded(silo, schema) for silo in silos]


def _coded(silo: Silo, schema: Schema) -> Silo:
    """A matrix by a schema that has categories, of which it holds the codes."""
    d = silo.X.shape[1]
    if sp.issparse(silo.X) or d != len(schema.columns):
        kind = "is sparse" if sp.issparse(silo.X) else f"has {d} columns"
        raise DataError(
            f"silo {silo.name!r} {kind}; the schema describes a dense matrix of {len(schema.columns)} columns"
        )
    for j, size in enumerate(schema.levels):
        codes = silo.X[:, j][~np.isnan(silo.X[:, j])]
        if size and not np.isin(codes, np.arange(size)).all():
            raise DataError(
                f"silo {silo.name!r}: column {j} is category {schema.names[j]!r} in the schema, so a matrix "
                f"holds the codes 0 to {size - 1} of its levels there"
            )
    return replace(silo, schema=schema)


# ----------------------------------------------------------------------------------------------------------- tables


def _texts(parts: Mapping[str, Part], reading: Reading, recipe: TextRecipe) -> list[Silo]:
    """Silos whose rows are counts of words; the column of texts must be the only feature."""
    silos = []
    for name, part in parts.items():
        if extra := part.plain.columns:
            option = reading.wording.option
            raise DataError(
                f"silo {name!r} has {listed(extra)} besides the texts in {recipe.text_column!r}. Words "
                f"and numbers cannot be clustered together: omit such columns{reading.wording.way('drop')}, or name "
                f"them as {option('id_column')}, {option('label_column')} or {option('silo_column')}."
            )
        texts = words_in(part.frame, recipe.text_column).to_list()
        X = hashed_counts(texts, recipe.salt, recipe.n_buckets)
        ids = part.ids(reading.id_column)
        silos.append(Silo(name, X, None, part.rows, ids, part.labels, id_name=reading.id_column))
    return silos


def _tables(parts: Mapping[str, Part], reading: Reading) -> list[Silo]:
    """Silos by a schema: the one that was given, or what the columns are judged to be, or all of them numbers."""
    given, source = reading.known_schema(), "the others"
    if given is not None:
        source = "the model" if reading.of_model else "the schema"
    schema = given or (_judged_schema if reading.asks else _plain_schema)(parts, reading)
    if not schema.columns:
        first = next(iter(parts))
        raise DataError(f"silo {first!r} has no column left to cluster: all are identifiers, constant, or omitted")
    if lacks := [said for part in parts.values() if (said := _lacking(part, schema, source))]:
        raise DataError("\n  ".join(lacks))
    id_column = reading.id_column
    if id_column is None and schema.id_column not in reading.others:
        id_column = schema.id_column or None
    if given is not None:
        _note_unknown(parts.values(), {*schema.names, *reading.others, id_column}, source)
    return [_silo(name, part, schema, id_column) for name, part in parts.items()]


def _lacking(part: Part, schema: Schema, source: str) -> str:
    """Which columns of a schema a table does not have, in words."""
    known = set(part.frame.columns)
    lacking = [column for column in schema.names if column not in known]
    near = nearest_names(lacking[0], part.frame.columns) if lacking else ""
    return f"{part.path.name} lacks {listed(lacking)} of {source}; {near}" if lacking else ""


def _note_unknown(parts: Iterable[Part], known: set[str | None], source: str) -> None:
    extra = [tuple(column for column in part.frame.columns if column not in known) for part in parts]
    for names in dict.fromkeys(filter(None, extra)):
        warnings.warn(f"columns that {source} does not know are ignored: {listed(names)}", stacklevel=4)


def _judged_schema(parts: Mapping[str, Part], reading: Reading) -> Schema:
    """What columns are judged to be; a warning says what was done with them."""
    if not reading.columns:
        advice = f"name those to use{reading.wording.way('columns')}, or omit some{reading.wording.way('drop')}"
        _check_alike(parts, advice)
    judged = judged_parts(parts, reading)
    if judged.doubts:
        raise DataError("\n  ".join(words_of(doubt, reading.wording) for doubt in judged.doubts))
    for line in done_with(judged, reading.wording):
        warnings.warn(line, UserWarning, stacklevel=4)
    return judged.schema.with_missing(reading.missing_codes)


def _plain_schema(parts: Mapping[str, Part], reading: Reading) -> Schema:
    """All columns, which must hold numbers, or nothing."""
    ways = ", ".join(map(reading.wording.option, ("drop", "id_column", "label_column")))
    _check_alike(parts, f"or omit some ({ways})")
    found = {name: Columns(part.features(), place=part.place) for name, part in parts.items()}
    doubts = [
        f"silo {name!r}: {words_of(columns.doubt(place), reading.wording)}"
        for name, columns in found.items()
        for place, kind in enumerate(columns.kinds)
        if kind not in (Kind.NUMBERS, Kind.NOTHING)
    ]
    if doubts:
        raise DataError(joined(doubts, "\n  ", " columns"))
    return Schema.of_numbers(next(iter(parts.values())).plain.columns).with_missing(reading.missing_codes)


def _silo(name: str, part: Part, schema: Schema, id_column: str | None) -> Silo:
    """The rows of a table by a schema, named by a column if the table has it."""
    own = id_column if id_column in part.frame.columns else None
    X = schema.encode(part.frame, f"silo {name!r}: ", place=part.place, wording=part.reading.wording)
    return Silo(name, X, schema.names, part.rows, part.ids(own), part.labels, schema, own)


def _check_alike(parts: Mapping[str, Part], advice: str) -> None:
    """All tables have the same columns."""
    names = {name: part.plain.columns for name, part in parts.items()}
    if found := differences(names):
        raise DataError(f"{found}\nGive every silo the same columns, {advice}.")
    first = next(iter(names))
    if reordered := [name for name, own in names.items() if own != names[first]]:
        warnings.warn(f"{listed(reordered)}: columns reordered like those of {first!r}", UserWarning, stacklevel=5)


# ----------------------------------------------------------------------------------------------------------- values


def _check_infinite(silos: Sequence[Silo], parts: Mapping[str, Part], wording: Wording) -> None:
    """Infinity is not a number that can be computed with."""
    if found := _found(silos, parts, np.isinf):
        raise DataError(
            f"there are infinite values: {found}. FMTC needs a number in every cell: replace them or remove those "
            f"rows, or omit the columns{wording.way('drop')}."
        )


def _without_missing(silos: list[Silo], parts: Mapping[str, Part], reading: Reading) -> list[Silo]:
    """The silos without rows that have missing cells, or as they are, or an error."""
    way, sparse = reading.wording.way, any(sp.issparse(silo.X) for silo in silos)
    if (reading.missing == EM and not sparse) or not (found := _found(silos, parts, np.isnan)):
        return silos
    if reading.missing != DROP:
        others = "" if sparse else f"leave them to the method{way('missing', EM)}, "
        raise DataError(
            f"there are missing values: {found}. Fill them, omit the columns{way('drop')}, {others}or omit those "
            f"rows{way('missing', DROP)}."
        )
    kept, gone = [], []
    for silo in silos:
        rows = np.flatnonzero(count_cells(silo.X.T, np.isnan) == 0)
        n_gone = silo.X.shape[0] - len(rows)
        if not len(rows):
            option = reading.wording.option("missing")
            raise DataError(f"{option}: every row of silo {silo.name!r} has a missing cell, so none would be left")
        kept.append(silo.take(rows.tolist()) if n_gone else silo)
        gone += [f"{n_gone} of {silo.name!r}"] if n_gone else []
    warnings.warn(f"rows with missing cells omitted: {joined(gone)}", UserWarning, stacklevel=3)
    return kept


def _found(silos: Sequence[Silo], parts: Mapping[str, Part], bad: Any) -> str:
    """Which silos have bad entries in which columns, and where the first stands, in words; empty if none."""
    found, first = {}, ""
    for silo in silos:
        counts = count_cells(silo.X, bad)
        if columns := np.flatnonzero(counts).tolist():
            found[silo.name] = joined([f"{plain(silo.column(c))!r} ({counts[c]})" for c in columns])
            if not first and not sp.issparse(silo.X):
                row = int(np.flatnonzero(bad(silo.X).any(axis=1))[0])
                first = f"; the first in {parts[silo.name].place(row)}"
    return joined([f"silo {name!r} in {columns}" for name, columns in found.items()], "; ", " silos") + first


def count_cells(X: Any, bad: Any) -> Array:
    """Number of bad entries in each column; shape (d,)."""
    if sp.issparse(X):
        cells = X.tocoo()
        return np.bincount(cells.col[bad(cells.data)], minlength=X.shape[1])
    return np.count_nonzero(bad(X), axis=0)


__all__ = ["Silo", "count_cells", "read_silos", "read_texts"]
