"""Tables of labels: made of what a model says, kept by a run, joined to other tables, written as CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, FileError, listed, nearest_names
from .files import file_names, read_file, read_json, write_file

if TYPE_CHECKING:
    import polars as pl

    from ..tables.silos import Silo

Array = np.ndarray

TAKEN = ("silo", "cluster", "probability", "outlier", "confidence")  # columns of tables of labels

# ------------------------------------------------------------------------------------------------- what a model says


def label_table(
    silos: Sequence[Silo],
    labels: Sequence[Array],
    P: Sequence[Array],
    *,
    named: bool = False,
    proba: bool = False,
    outliers: Sequence[Array] | None = None,
    confidence: Sequence[Array] | None = None,
    abstain: float = 0.0,
) -> pl.DataFrame:
    """One line per row, in the order of the file: identifier or row number, cluster, its probability.

    Parameters
    ----------
    silos : sequence of Silo
        All with identifiers, or none.
    labels : sequence of arrays of shape (n,)
    P : sequence of arrays of shape (n, k)
        Probabilities of all clusters.
    named, proba : bool
        Whether to add the silo of each row, and the probabilities of all clusters.
    outliers, confidence : sequence of arrays of shape (n,), optional
        Whether each row is far from all clusters, how certain it is: a column each.
    abstain : float
        Rows of a smaller confidence get cluster -1.
    """
    import polars as pl

    cluster, share = np.concatenate(labels), np.concatenate(P)
    columns = _row_names(silos) | ({"silo": [silo.name for silo in silos for _ in silo.rows]} if named else {})
    columns |= {"cluster": cluster, "probability": share[np.arange(len(cluster)), cluster]}
    more = {"outlier": outliers, "confidence": confidence}
    columns |= {name: np.concatenate(parts) for name, parts in more.items() if parts is not None}
    if abstain:
        columns["cluster"] = np.where(columns["confidence"] < abstain, -1, cluster)
    if proba:
        columns |= {f"probability_{j}": share[:, j] for j in range(share.shape[1])}
    return pl.DataFrame(columns)[np.argsort(np.concatenate([silo.rows for silo in silos]), kind="stable")]


def _row_names(silos: Sequence[Silo]) -> dict[str, Any]:
    """The first column of a table of labels: identifiers of the rows or, without any, their numbers."""
    if silos[0].ids is None:
        return {"row": np.concatenate([silo.rows for silo in silos])}
    name = silos[0].id_name or "id"
    taken = name in TAKEN or name.startswith("probability_")
    return {"id" if taken else name: [name for silo in silos for name in silo.ids or ()]}


def with_labels(
    table: pl.DataFrame, silos: Sequence[Silo], labels: Sequence[Array], P: Sequence[Array], **more: Any
) -> pl.DataFrame:
    """The table that silos were read from with the columns of `label_table`; null in rows that have no cluster."""
    import polars as pl

    found = label_table([replace(silo, ids=None) for silo in silos], labels, P, **more)
    rows = pl.DataFrame({"row": np.arange(table.height)}, schema=found.select("row").schema)
    return _beside(table, rows.join(found, on="row", how="left", maintain_order="left").drop("row"))


def _beside(table: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """A table with more columns, under other names where it has such."""
    return table.with_columns(
        column.alias(f"fmtc_{column.name}" if column.name in table.columns else column.name) for column in found
    )


def with_names(table: pl.DataFrame, names: Mapping[int, str]) -> pl.DataFrame:
    """A table of labels with the names of clusters, if there are any, beside their numbers; -1 has none."""
    import polars as pl

    if not names:
        return table
    column = "fmtc_cluster" if "fmtc_cluster" in table.columns else "cluster"
    known = {None: "", -1: None} | dict(names)
    found = [known.get(number, "") for number in table.get_column(column)]
    beside = "fmtc_cluster_name" if "cluster_name" in table.columns else "cluster_name"
    return table.clone().insert_column(table.get_column_index(column) + 1, pl.Series(beside, found, dtype=pl.String))


# -------------------------------------------------------------------------------------------------- what a run keeps


def read_labels(run: Path) -> dict[str, pl.DataFrame]:
    """The labels of each silo of a run, as `write_run` wrote them."""
    kept = (run / "labels").is_dir()
    lines = read_json(run / "report.json", {"silos": [{"silo": str}]})["silos"] if kept else []
    files = {name: run / "labels" / f"{file}.csv" for name, file in file_names(line["silo"] for line in lines).items()}
    if not files:
        raise FileError(f"{run} holds no labels; give the --out folder of `fmtc fit` or `fmtc join`")
    return {name: _read_labels(file) for name, file in files.items()}


def _read_labels(file: Path) -> pl.DataFrame:
    """A file of labels: clusters and probabilities are numbers, all other cells text."""
    import polars as pl

    def parse(content: bytes) -> pl.DataFrame:
        table = without_quotes(pl.read_csv(content, infer_schema=False))
        table = table.with_columns(pl.col("cluster").cast(pl.Int64), pl.col("probability").cast(pl.Float64))
        if table.width < 3 or table.columns[0] in ("cluster", "probability"):
            raise ValueError("its first column does not name the rows")
        return table

    return read_file(file, parse)


def name_labels(run: Path, names: Mapping[int, str]) -> None:
    """Keep names of clusters beside their numbers in labels/; without any the column goes."""
    tables = {file: _read_labels(file) for file in sorted((run / "labels").glob("*.csv"))}
    for file, table in tables.items():
        write_file(file, as_csv(with_names(table.drop("cluster_name", strict=False), names)))


def all_labels(labels: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Labels of several silos in one table, with a column `silo`."""
    import polars as pl

    return pl.concat(
        [table.select(pl.lit(name).alias("silo"), pl.all()) for name, table in labels.items()], how="diagonal"
    )


def join_labels(
    table: pl.DataFrame,
    labels: Mapping[str, pl.DataFrame],
    file: Path,
    id_column: str | None = None,
    silo_column: str | None = None,
) -> pl.DataFrame:
    """A table with the cluster of each row and its probability: by identifier or, if there is none, by place.

    Parameters
    ----------
    table : polars.DataFrame
    labels : mapping of silo to its labels
        Of `read_labels`.
    file : Path
        Where the table is from: its name is the silo, if there is one of that name.
    id_column : str, optional
        Column of identifiers in `table`; that of the run by default.
    silo_column : str, optional
        Column of `table` that names the silo of each row.
    """
    import polars as pl

    from ..tables.formats import stem_of

    unknown = [str(name) for name in (id_column, silo_column) if name not in (None, *table.columns)]
    if unknown:
        raise DataError(f"{file} has no column {unknown[0]!r}; {nearest_names(unknown[0], table.columns)}")
    if silo_column is None and (own := stem_of(file)) in labels:  # else labels of all silos
        labels = {own: labels[own]}
    key = next(iter(labels.values())).columns[0]
    by_row = key == "row"
    if by_row and id_column is not None:
        raise DataError("the run has no identifiers, so rows are joined by their place; omit the identifier")
    named = id_column or key
    if not by_row and named not in table.columns:
        raise DataError(
            f"{file} has no column {named!r}, which identifies the rows of the run; "
            f"{nearest_names(named, table.columns)}"
        )
    marks = {"mark": list(map(str, range(table.height) if by_row else table.get_column(named)))}
    if silo_column is not None and not by_row:
        marks["silo"] = [str(name).strip() for name in table.get_column(silo_column)]
    known = pl.concat(
        one.select(pl.col(key).alias("mark"), pl.lit(silo).alias("silo"), "cluster", "probability")
        for silo, one in labels.items()
    )
    _check_apart(known.select(list(marks)), labels, file, by_row=by_row)
    found = pl.DataFrame(marks, schema=dict.fromkeys(marks, pl.String))
    found = found.join(known, on=list(marks), how="left", maintain_order="left")
    return _beside(table, found.select("cluster", "probability"))


def _check_apart(marks: pl.DataFrame, labels: Mapping[str, Any], file: Path, *, by_row: bool) -> None:
    """Refuse labels of which two are of the same row: of one number or identifier and, where it counts, silo."""
    twice = marks.filter(marks.is_duplicated()).unique()
    if twice.height and by_row:
        raise DataError(f"{file}: rows of which silo? The run is of {listed(labels)}; name one with --silo")
    if twice.height:
        raise DataError(f"{twice.height} identifiers of the run, such as {min(map(str, twice['mark']))!r}, stand "
                        "for more than one row; name the silo, or a column with it")  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- CSV

_NUMBER = r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?"
_RUN = re.compile(rf"'*(?!{_NUMBER}\Z)[=+\-@\t\r]")  # a spreadsheet would run it, or take it for what we made of such


def as_csv(table: pl.DataFrame, *, float_precision: int | None = 6) -> bytes:
    r"""Return the bytes of a CSV file, with no cell that a spreadsheet would run. All our CSVs are made here.

    A text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return gets a single quote in front, which
    spreadsheets take for a sign that text follows. Names of columns too. Numbers stay numbers, also those in a column
    of texts. Texts that look like the outcome get another quote, so that `without_quotes` knows what was there.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.artifacts.labels import as_csv
    >>> table = pl.DataFrame({"id": ["=1+1", "-5", "a-b", "+49 89"], "dose": [-1.5, 2, -3, 4]})
    >>> print(as_csv(table).decode(), end="")
    id,dose
    '=1+1,-1.500000
    -5,2.000000
    a-b,-3.000000
    '+49 89,4.000000
    """
    safe = _with_texts(table, lambda text: f"'{text}" if _RUN.match(text) else text)
    return safe.write_csv(float_precision=float_precision).encode()


def without_quotes(table: pl.DataFrame) -> pl.DataFrame:
    """Undo what `as_csv` did to texts, in a table that was read from such a file."""
    return _with_texts(table, lambda text: text[1:] if text[:1] == "'" and _RUN.match(text) else text)


def _with_texts(table: pl.DataFrame, change: Callable[[str], str]) -> pl.DataFrame:
    """A table whose texts, and names of columns, are changed; only such columns are touched that a change concerns."""
    import polars as pl

    found = table.rename({name: change(name) for name in table.columns})
    for column in found.get_columns():
        if column.dtype in (pl.String, pl.Categorical, pl.Enum):
            texts = column.cast(pl.String)
            if texts.str.contains(r"^'*[=+\-@\t\r]").any():
                found = found.with_columns(texts.map_elements(change, return_dtype=pl.String))
    return found
