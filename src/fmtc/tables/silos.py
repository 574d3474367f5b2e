"""Clients from files: rows as numbers, the same columns everywhere, or one clear sentence on why not."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..errors import SHOWN, DataError, joined, listed, nearest_names
from ..schema import Encoded, Schema
from .annotated import Annotated, column_about
from .columns import Opened, Part, column_kind, example_of, names_in, open_files, words_in
from .formats import line_of
from .guess import counted_missing, free_text, strays_in, text_in
from .text import N_BUCKETS, SALT, hashed_counts

Array = np.ndarray
MISSING = EM, DROP, REFUSE = "em", "drop", "refuse"  # what becomes of missing cells


@dataclass(frozen=True, eq=False)
class Silo:
    """The rows of one client, as numbers.

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


def read_silos(
    paths: Iterable[str | Path],
    *,
    client_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    text_column: str | None = None,
    salt: str = SALT,
    n_buckets: int = N_BUCKETS,
    columns: Sequence[str] = (),
    as_types: Mapping[str, str] | None = None,
    missing: str = REFUSE,
    schema: Schema | str | Path | None = None,
    judge: bool = False,
    header: bool | None = None,
    obsm: str | None = None,
    missing_codes: Sequence[str | float] = (),
) -> list[Silo]:
    """Read one client per file, named after the file; or, with `client_column`, one per value of it in a single file.

    Columns in another order than the first client's are reordered, with a warning.

    Parameters
    ----------
    paths : iterable of paths
        Tables (``.csv``, ``.tsv``, ``.jsonl``, also ``.gz``; ``.xlsx``, ``.parquet``, ``.arrow``, ``.feather``),
        matrices without column names (``.npy``; ``.npz`` with one 2-D array, with one under the key ``X``, or written
        by ``scipy.sparse.save_npz``), or AnnData (``.h5ad``: the columns named below are then those of `obs`).
    client_column, label_column, id_column : str, optional
        Columns that are not features: client, known class and identifier of each row.
    drop : sequence of str
        Further columns to omit.
    features : sequence of str, optional
        The columns of a model, which all clients must have. By default all must have those of the first.
    text_column : str, optional
        Column of texts, whose words are counted: `X` is then `fmtc.tables.hashed_counts` of it, and there are no
        other features. A missing text has no words.
    salt, n_buckets
        For the words of texts, as in `hashed_counts`.
    columns : sequence of str
        The only columns to use; all by default.
    as_types : mapping of column to {"number", "category"}, optional
        What columns hold. Words in a column that is said to hold numbers count as missing.
    missing : {"refuse", "em", "drop"}
        What becomes of missing cells: an error; NaN, for a method that takes it; or their rows are omitted.
    schema : Schema or path of a schema.toml, optional
        What the columns are; other columns are ignored. A matrix, whose columns have no names, holds a category as the
        codes of its levels, 0, 1, ...
    judge : bool
        Without a schema: find out what the columns are. Identifiers are set aside, constant columns dropped, words with
        few levels become categories, and a warning says so. Otherwise only numbers are accepted.
    header : bool, optional
        Of text files: whether the first line names the columns. None: it must, and a line of numbers is refused.
    obsm : str, optional
        Of AnnData: the representation to use instead of X.
    missing_codes : sequence of str or float
        Codes of missing values in all features of tables, such as -999 or "<5", besides those of the schema.

    Returns
    -------
    list of Silo

    Raises
    ------
    DataError
        If a file is missing, damaged, empty or of another kind, or if the clients do not hold one number per cell and
        the same columns.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.tables import read_silos
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "north.csv"
    ...     _ = file.write_text("name,height,weight\\nAda,170,60\\nBob,180,80.5\\n")
    ...     (silo,) = read_silos([file], id_column="name")
    >>> silo.name, silo.feature_names, silo.ids
    ('north', ('height', 'weight'), ['Ada', 'Bob'])
    >>> silo.X
    array([[170. ,  60. ],
           [180. ,  80.5]])
    """
    if missing not in MISSING:
        raise DataError(f"`missing` must be one of {', '.join(MISSING)}, got {missing!r}")
    opened = open_files(
        paths, client_column, drop, missing_codes, label_column=label_column, id_column=id_column,
        text_column=text_column, header=header, obsm=obsm,
    )  # fmt: skip
    _check_forms(opened)
    if any(isinstance(content, Annotated) for content in opened.contents.values()):
        silos = _annotated(opened, client_column, label_column, id_column)
    elif not opened.parts:
        silos = [Silo(name, X, None, np.arange(X.shape[0])) for name, X in opened.contents.items()]
        _check_widths(silos)
        silos = silos if schema is None else _coded(silos, schema)
    elif text_column is not None:
        return [
            Silo(
                name,
                hashed_counts(_only_texts(name, part.frame, text_column, opened.others), salt, n_buckets),
                None,
                part.rows,
                *_ids_and_labels(part, id_column, label_column),
                id_name=id_column,
            )
            for name, part in opened.parts.items()
        ]
    elif schema is not None or judge or as_types or columns:
        silos = _typed_silos(
            opened,
            schema,
            columns,
            as_types or {},
            id_column,
            label_column,
            "the schema" if features is None else "the model",
            missing_codes,
        )
    else:
        features_of = {name: part.features(opened.others) for name, part in opened.parts.items()}
        tables = _same_columns(features_of, features)
        _check_numbers(tables)
        silos = [
            Silo(
                name,
                _as_matrix(table),
                tuple(table.columns),
                opened.parts[name].rows,
                *_ids_and_labels(opened.parts[name], id_column, label_column),
                Schema.of_numbers(table.columns).with_missing(missing_codes),
                id_column,
            )
            for name, table in tables.items()
        ]
    _check_infinite(silos, opened)
    return _without_missing(silos, missing, opened)


def read_texts(paths: Iterable[str | Path], text_column: str, client_column: str | None = None) -> list[str | None]:
    """The texts of all clients, one after the other, as `read_silos` reads them to count their words.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.tables import read_texts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "north.csv"
    ...     _ = file.write_text("notes\\nno fever\\ncough\\n")
    ...     read_texts([file], "notes")
    ['no fever', 'cough']
    """
    opened = open_files(paths, client_column, (), text_column=text_column)
    return [text for part in opened.parts.values() for text in words_in(part.frame, text_column).to_list()]


def constant_columns(silos: Sequence[Silo]) -> dict[str, list[str]]:
    """Columns with the same value in all rows of a client, and the clients where this is so; most clients first."""
    where: dict[int, list[str]] = {}
    for silo in silos:
        for column in np.flatnonzero(_is_constant(silo.X)).tolist():
            where.setdefault(column, []).append(silo.name)
    columns = sorted(where, key=lambda column: (-len(where[column]), column))
    return {_column_name(silos[0], column): where[column] for column in columns}


# ----------------------------------------------------------------------------------------------------- columns


def _typed_silos(
    opened: Opened,
    schema: Schema | str | Path | None,
    columns: Sequence[str],
    as_types: Mapping[str, str],
    id_column: str | None,
    label_column: str | None,
    source: str,
    missing_codes: Sequence[str | float],
) -> list[Silo]:
    """Rows by a schema, or by what the columns are judged to be."""
    if schema is None:
        if not columns:
            _same_names(opened)
        judged = opened.judged(columns, as_types, id_column)
        if judged.problems:
            raise DataError("\n  ".join(judged.problems))
        for line in judged.said():
            warnings.warn(line, UserWarning, stacklevel=3)
        schema, given = judged.schema, False
    else:
        schema = schema if isinstance(schema, Schema) else Schema.read(schema)
        schema, given = schema.with_kinds(as_types), True
    schema = schema.with_missing(missing_codes)
    if not schema.columns:
        first = next(iter(opened.parts))
        raise DataError(f"client {first!r} has no column left to cluster: all are identifiers, constant, or omitted")
    if id_column is None and schema.id_column not in opened.others:
        id_column = schema.id_column or None
    lacks = []
    for part in opened.parts.values():
        if lacking := [column for column in schema.names if column not in part.frame.columns]:
            near = nearest_names(lacking[0], part.frame.columns)
            lacks.append(f"{part.path.name} lacks {listed(lacking)} of {source if given else 'the others'}; {near}")
    if lacks:
        raise DataError("\n  ".join(lacks))
    silos: list[Silo] = []
    ignored: dict[tuple[str, ...], list[str]] = {}
    for name, part in opened.parts.items():
        known = {*schema.names, *opened.others, id_column}
        if extra := [column for column in part.frame.columns if column not in known]:
            ignored.setdefault(tuple(extra), []).append(name)
        X = schema.encode(part.frame, f"client {name!r}: ", place=part.place)
        own = id_column if id_column in part.frame.columns else None
        ids, labels = _ids_and_labels(part, own, label_column)
        silos.append(Silo(name, X, schema.names, part.rows, ids, labels, schema, own))
    if given:
        for names in ignored:
            warnings.warn(f"columns that {source} does not know are ignored: {listed(names)}", stacklevel=3)
    return silos


def _coded(silos: list[Silo], schema: Schema | str | Path) -> list[Silo]:
    """Matrices by a schema that has categories: their codes, and what the columns are."""
    schema = schema if isinstance(schema, Schema) else Schema.read(schema)
    if schema.is_plain:
        return silos
    for silo in silos:
        d = silo.X.shape[1]
        if sp.issparse(silo.X) or d != len(schema.columns):
            kind = "is sparse" if sp.issparse(silo.X) else f"has {d} columns"
            raise DataError(
                f"client {silo.name!r} {kind}; the schema describes a dense matrix of {len(schema.columns)} columns"
            )
        for j, size in enumerate(schema.levels):
            codes = silo.X[:, j][~np.isnan(silo.X[:, j])]
            if size and not np.isin(codes, np.arange(size)).all():
                raise DataError(
                    f"client {silo.name!r}: column {j} is category {schema.names[j]!r} in the schema, so a matrix "
                    f"holds the codes 0 to {size - 1} of its levels there"
                )
    return [replace(silo, schema=schema) for silo in silos]


def _same_names(opened: Opened) -> None:
    """All tables have the same columns."""
    own = {name: [c for c in part.frame.columns if c not in opened.others] for name, part in opened.parts.items()}
    first = next(iter(own))
    lines = []
    for name, names in own.items():
        missing = [column for column in own[first] if column not in names]
        extra = [column for column in names if column not in own[first]]
        found = [f"lacks {listed(missing)}"] if missing else []
        found += [f"also has {listed(extra)}"] if extra else []
        if found:
            lines.append(f"{name}: {'; '.join(found)}")
    if lines:
        raise DataError(
            f"the columns differ from those of {first!r}:\n  {joined(lines, chr(10) + '  ', ' clients')}\n"
            "Give every client the same columns, name those to use (`columns`), or omit some (`drop`)."
        )
    reordered = [name for name, names in own.items() if names != own[first]]
    if reordered:
        warnings.warn(f"{listed(reordered)}: columns reordered like those of {first!r}", UserWarning, stacklevel=4)


def _annotated(
    opened: Opened, client_column: str | None, label_column: str | None, id_column: str | None
) -> list[Silo]:
    """Clients from files of AnnData: the matrix, and columns of obs."""
    silos = []
    for name, content in opened.contents.items():
        file = opened.files[name].name

        def about(role: str, column: str | None, content: Any = content, file: str = file) -> list[str | None] | None:
            return None if column is None else column_about(content, role, column, file).to_list()

        clients = about("client_column", client_column) or [name] * content.shape[0]
        if None in clients:
            raise DataError(f"`client_column`: {clients.count(None)} rows of {file} have no value in {client_column!r}")
        labels = about("label_column", label_column)
        ids = about("id_column", id_column) or content.ids
        for client in dict.fromkeys(clients):
            rows = np.array([row for row, other in enumerate(clients) if other == client])
            silos.append(
                Silo(
                    str(client),
                    content.X[rows],
                    content.names,
                    rows,
                    [ids[row] for row in rows],
                    None if labels is None else [labels[row] for row in rows],
                    Schema.of_numbers(content.names),
                    id_column,
                )
            )
    if any(silo.feature_names != silos[0].feature_names for silo in silos):
        raise DataError("the files have other columns, or in another order; give every client the same")
    return silos


def _check_forms(opened: Opened) -> None:
    """Tables, dense and sparse matrices are not mixed."""
    forms = {name: _form(content) for name, content in opened.contents.items()}
    if len(set(forms.values())) > 1:
        found = joined([f"{opened.files[name].name} is {form}" for name, form in forms.items()])
        raise DataError(f"the files are of different kinds: {found}. Save all of them as one kind.")


def _form(content: Any) -> str:
    if isinstance(content, pl.DataFrame):
        return "a table"
    if isinstance(content, Annotated):
        return "AnnData"
    return "a sparse matrix" if sp.issparse(content) else "a dense matrix without column names"


def _ids_and_labels(
    part: Part, id_column: str | None, label_column: str | None
) -> tuple[list[str | None] | None, list[str | None] | None]:
    """Identifiers and known classes of the rows."""
    return (
        None if id_column is None else words_in(part.frame, id_column).to_list(),
        None if label_column is None else names_in(part.frame, label_column).to_list(),
    )


def _only_texts(name: str, frame: pl.DataFrame, text_column: str, others: set[str]) -> list[str | None]:
    """The column of texts, which must be the only feature."""
    extra = [column for column in frame.columns if column not in others]
    if extra:
        raise DataError(
            f"client {name!r} has {listed(extra)} besides the texts in {text_column!r}. Words and numbers cannot be "
            "clustered together: omit such columns (`drop`), or name them as `id_column`, `label_column` or "
            "`client_column`."
        )
    return words_in(frame, text_column).to_list()


def _same_columns(tables: dict[str, pl.DataFrame], features: Sequence[str] | None) -> dict[str, pl.DataFrame]:
    """The tables with the same columns of the same types in the same order, or a readable difference."""
    first = next(iter(tables))
    if features is None:
        reference, kinds = repr(first), {c.name: column_kind(c) for c in tables[first]}
    else:
        reference, kinds = "the model", dict.fromkeys(features, "numbers")
    differences = {name: found for name, table in tables.items() if (found := _difference(table, kinds, reference))}
    if differences:
        lines = joined([f"{name}: {found}" for name, found in differences.items()], "\n  ", " clients")
        raise DataError(
            f"the columns differ from those of {reference}:\n  {lines}\n"
            "Give every client the same columns, or omit some (`drop`, `id_column`, `label_column`)."
        )
    reordered = [name for name, table in tables.items() if table.columns != list(kinds)]
    if reordered:
        warnings.warn(f"{listed(reordered)}: columns reordered like those of {reference}", UserWarning, stacklevel=3)
    return {name: pl.DataFrame({c: table.get_column(c) for c in kinds}) for name, table in tables.items()}


def _difference(table: pl.DataFrame, kinds: Mapping[str, str], reference: str) -> str:
    columns = table.schema
    missing = [name for name in kinds if name not in columns]
    extra = [name for name in columns if name not in kinds]
    found = [f"lacks {listed(missing)}"] if missing else []
    if extra:
        found.append(f"also has {listed(extra)}")
    for column in table:
        kind, wanted = column_kind(column), kinds.get(column.name, "nothing")
        if kind != wanted and "nothing" not in (kind, wanted):
            example = f" (such as {example_of(column)!r})" if kind == "text" else ""
            found.append(f"{column.name!r} holds {kind}{example}, but {wanted} in {reference}")
    return "; ".join(found)


def _check_numbers(tables: Mapping[str, pl.DataFrame]) -> None:
    for name, table in tables.items():
        if "" in table.columns:
            raise DataError(
                f"client {name!r} has a column without a name (perhaps row numbers); give it a name, or omit it "
                "(`drop` '')"
            )
        problems, others = [], []
        for column in table:
            c, kind = column.name, column_kind(column)
            if (text := text_in(column)) is not None:
                problems.append(f"client {name!r}: {free_text(c, text)}")
            elif 0 < len(strays := strays_in(column)) <= SHOWN:
                problems.append(
                    f"client {name!r}: column {c!r} has words among its numbers, such as {strays[0]!r}: correct such "
                    f"words, or count them as missing ({counted_missing(strays)})"
                )
            elif kind not in ("numbers", "nothing"):
                others.append(f"{c!r} ({kind}{f', such as {example_of(column)!r}' if kind == 'text' else ''})")
        if others:
            problems.append(
                f"only numbers can be clustered, but client {name!r} has {joined(others)}. Omit such columns (`drop`), "
                "name them as `id_column`, `label_column` or `client_column`, or say what they are in a schema "
                "(`schema`): fmtc check FILES --write-schema schema.toml makes one."
            )
        if problems:
            raise DataError("\n  ".join(problems))
        if table.width == 0:
            raise DataError(f"client {name!r} has no column of numbers left to cluster")


def _as_matrix(table: pl.DataFrame) -> Array:
    dtype = pl.Float32 if set(table.dtypes) == {pl.Float32} else pl.Float64
    plain = pl.DataFrame({str(place): column for place, column in enumerate(table)})
    return np.ascontiguousarray(plain.cast(dtype).to_numpy())  # null becomes nan


# ------------------------------------------------------------------------------------------------------ values


def _check_widths(silos: Sequence[Silo]) -> None:
    width = silos[0].X.shape[1]
    others = [f"{s.name!r} has {s.X.shape[1]}" for s in silos if s.X.shape[1] != width]
    if others:
        raise DataError(
            f"the clients differ in their number of columns: {silos[0].name!r} has {width}, {joined(others)}. "
            "Give every client the same columns."
        )


def _check_infinite(silos: Sequence[Silo], opened: Opened) -> None:
    """Infinity is not a number that can be computed with."""
    found = _found(silos, np.isinf)
    if found:
        raise DataError(
            f"there are infinite values: {found}{_first(silos, opened, np.isinf)}. FMTC needs a number in every cell: "
            "replace them or remove those rows, or omit the columns (`drop`)."
        )


def _without_missing(silos: list[Silo], missing: str, opened: Opened) -> list[Silo]:
    """The clients without rows that have missing cells, or as they are, or an error."""
    found = _found(silos, np.isnan)
    sparse = any(sp.issparse(silo.X) for silo in silos)
    if not found or (missing == EM and not sparse):
        return silos
    if missing != DROP:
        others = "" if sparse else "leave them to the method (`missing` em), "
        raise DataError(
            f"there are missing values: {found}{_first(silos, opened, np.isnan)}. Fill them, omit the columns "
            f"(`drop`), {others}or omit those rows (`missing` drop)."
        )
    kept, gone = [], []
    for silo in silos:
        whole = np.ones(silo.X.shape[0], bool)
        if sp.issparse(silo.X):
            whole[np.unique(silo.X.tocoo().row[np.isnan(silo.X.tocoo().data)])] = False
        else:
            whole = ~np.isnan(silo.X).any(axis=1)
        if whole.all():
            kept.append(silo)
            continue
        rows = np.flatnonzero(whole)
        if not len(rows):
            raise DataError(f"`missing`: every row of client {silo.name!r} has a missing cell, so none would be left")
        ids = None if silo.ids is None else [silo.ids[row] for row in rows]
        labels = None if silo.labels is None else [silo.labels[row] for row in rows]
        kept.append(replace(silo, X=silo.X[rows], rows=silo.rows[rows], ids=ids, labels=labels))
        gone.append(f"{len(whole) - len(rows)} of {silo.name!r}")
    warnings.warn(f"rows with missing cells omitted: {joined(gone)}", UserWarning, stacklevel=3)
    return kept


def _found(silos: Sequence[Silo], bad: Any) -> str:
    """Which clients have bad entries in which columns, in words; empty if none."""
    found = {}
    for silo in silos:
        counts = _count(silo.X, bad)
        columns = np.flatnonzero(counts).tolist()
        if columns:
            found[silo.name] = joined([f"{_column_name(silo, c)!r} ({counts[c]})" for c in columns])
    return joined([f"client {name!r} in {columns}" for name, columns in found.items()], "; ", " clients")


def _first(silos: Sequence[Silo], opened: Opened, bad: Any) -> str:
    """Where the first bad entry stands, in words."""
    for silo in silos:
        if sp.issparse(silo.X):
            continue
        rows = np.flatnonzero(bad(silo.X).any(axis=1))
        if len(rows):
            path = opened.parts[silo.name].path if silo.name in opened.parts else opened.files.get(silo.name)
            if path is None:
                continue
            header = opened.parts[silo.name].header if silo.name in opened.parts else None
            return f"; the first in {line_of(path, int(silo.rows[rows[0]]), header=header)}"
    return ""


def missing_line(silos: Sequence[Silo]) -> str:
    """How many cells are missing, and in which columns; empty if none."""
    if any(sp.issparse(silo.X) for silo in silos):
        return ""
    counts = np.sum([_count(silo.X, np.isnan) for silo in silos], axis=0)
    total = sum(silo.X.size for silo in silos)
    columns = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    if not columns:
        return ""
    shown = joined([f"{_column_name(silos[0], c)!r} ({counts[c]:,})" for c in columns])
    return f"missing cells: {int(counts.sum()):,} of {total:,}, in {shown}"


def _count(X: Any, bad: Any) -> Array:
    """Number of bad entries in each column; shape (d,)."""
    if sp.issparse(X):
        return np.bincount(X.indices[bad(X.data)], minlength=X.shape[1])
    return np.count_nonzero(bad(X), axis=0)


def _is_constant(X: Any) -> Array:
    if sp.issparse(X):
        return (X.max(axis=0).toarray() == X.min(axis=0).toarray()).ravel()
    return (X[0] == X).all(axis=0) | np.isnan(X).all(axis=0)


def _column_name(silo: Silo, column: int) -> str:
    return f"column {column}" if silo.feature_names is None else silo.feature_names[column]


__all__ = ["Silo", "constant_columns", "read_silos", "read_texts"]
