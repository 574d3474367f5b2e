"""Clients from files: rows as numbers, the same columns everywhere, or one clear sentence on why not."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..errors import DataError, joined, listed
from .columns import Opened, Part, column_kind, example_of, names_in, open_files, words_in
from .text import N_BUCKETS, SALT, hashed_counts

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Silo:
    """The rows of one client, as numbers.

    `X` is a float array or a sparse ``csr_array`` of shape (n, d). `rows` are the positions of the rows in their file,
    counted from 0.
    """

    name: str
    X: Any
    feature_names: tuple[str, ...] | None
    rows: Array
    ids: list[str | None] | None = None
    labels: list[str | None] | None = None


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
) -> list[Silo]:
    """Read one client per file, named after the file; or, with `client_column`, one per value of it in a single file.

    Columns in another order than the first client's are reordered, with a warning.

    Parameters
    ----------
    paths : iterable of paths
        Tables (``.csv``, ``.tsv``, ``.parquet``) or matrices without column names (``.npy``; ``.npz`` with one
        2-D array, with one under the key ``X``, or written by ``scipy.sparse.save_npz``).
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
    opened = open_files(
        paths, client_column, drop, label_column=label_column, id_column=id_column, text_column=text_column
    )
    _check_forms(opened)
    if not opened.parts:
        silos = [Silo(name, X, None, np.arange(X.shape[0])) for name, X in opened.contents.items()]
        _check_widths(silos)
    elif text_column is not None:
        return [
            Silo(
                name,
                hashed_counts(_only_texts(name, part.frame, text_column, opened.others), salt, n_buckets),
                None,
                part.rows,
                *_ids_and_labels(part, id_column, label_column),
            )
            for name, part in opened.parts.items()
        ]
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
            )
            for name, table in tables.items()
        ]
    _check_values(silos)
    return silos


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


def _check_forms(opened: Opened) -> None:
    """Tables, dense and sparse matrices are not mixed."""
    forms = {name: _form(content) for name, content in opened.contents.items()}
    if len(set(forms.values())) > 1:
        found = joined([f"{opened.files[name].name} is {form}" for name, form in forms.items()])
        raise DataError(f"the files are of different kinds: {found}. Save all of them as one kind.")


def _form(content: Any) -> str:
    if isinstance(content, pl.DataFrame):
        return "a table"
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
        kinds = {column.name: column_kind(column) for column in table}
        others = [
            f"{c!r} ({kind}{f', such as {example_of(table.get_column(c))!r}' if kind == 'text' else ''})"
            for c, kind in kinds.items()
            if kind not in ("numbers", "nothing")
        ]
        if others:
            raise DataError(
                f"only numbers can be clustered, but client {name!r} has {joined(others)}. Omit such columns (`drop`), "
                "or name them as `id_column`, `label_column` or `client_column`."
            )
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


def _check_values(silos: Sequence[Silo]) -> None:
    for what, advice, bad in (
        ("missing", "fill them or remove those rows", np.isnan),
        ("infinite", "replace them or remove those rows", np.isinf),
    ):
        found = {}
        for silo in silos:
            counts = _count(silo.X, bad)
            columns = np.flatnonzero(counts).tolist()
            if columns:
                found[silo.name] = joined([f"{_column_name(silo, c)!r} ({counts[c]})" for c in columns])
        if found:
            where = joined([f"client {name!r} in {columns}" for name, columns in found.items()], "; ", " clients")
            raise DataError(
                f"there are {what} values: {where}. FMTC needs a number in every cell: {advice}, or omit the columns "
                "(`drop`)."
            )


def _count(X: Any, bad: Any) -> Array:
    """Number of bad entries in each column; shape (d,)."""
    if sp.issparse(X):
        return np.bincount(X.indices[bad(X.data)], minlength=X.shape[1])
    return np.count_nonzero(bad(X), axis=0)


def _is_constant(X: Any) -> Array:
    if sp.issparse(X):
        return (X.max(axis=0).toarray() == X.min(axis=0).toarray()).ravel()
    return (X[0] == X).all(axis=0)


def _column_name(silo: Silo, column: int) -> str:
    return f"column {column}" if silo.feature_names is None else silo.feature_names[column]


__all__ = ["Silo", "constant_columns", "read_silos", "read_texts"]
