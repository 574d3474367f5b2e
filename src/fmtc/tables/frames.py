"""Data frames of other libraries as those of Polars, column by column."""

from __future__ import annotations

import re
import shlex
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

from ..errors import DataError
from ..schema import CATEGORY, NUMBER, Column, Schema, level_words
from .guess import CONSTANT, IDENTIFIER, judge, levels_in


def package_of(X: Any) -> str:
    """The package that an object's class is from."""
    return type(X).__module__.partition(".")[0]


def is_frame(X: Any) -> bool:
    """Whether X is a data frame of pandas or Polars."""
    return (package_of(X) in ("pandas", "polars") and hasattr(X, "columns")) or isinstance(X, pl.LazyFrame)


def column_names(X: Any) -> list[Any]:
    """Names of the columns of a data frame."""
    return list(X.columns)


def as_polars(X: Any) -> pl.DataFrame:
    """A data frame as one of Polars; names become text.

    Examples
    --------
    >>> import pandas as pd
    >>> import polars as pl
    >>> from fmtc.tables.frames import as_polars
    >>> frame = pd.DataFrame({"sex": pd.Categorical(["f", None]), "age": [31, None]})
    >>> as_polars(frame).to_dict(as_series=False)
    {'sex': ['f', None], 'age': [31.0, None]}
    >>> as_polars(frame).schema["sex"] == pl.Categorical  # as pandas was told
    True
    """
    if isinstance(X, pl.LazyFrame):
        return X.collect()
    if isinstance(X, pl.DataFrame):
        return X
    return pl.DataFrame({str(name): _series(X.iloc[:, place]) for place, name in enumerate(X.columns)})


def _series(cells: Any) -> pl.Series:
    kind = getattr(cells.dtype, "kind", "O")
    if kind in "iufb" and isinstance(cells.dtype, np.dtype):
        return pl.Series(np.ascontiguousarray(cells.to_numpy()), nan_to_null=True)
    if kind in "iuf":  # with pandas' own missing values
        return pl.Series(cells.to_numpy(dtype=np.float64, na_value=np.nan), nan_to_null=True)
    if kind in "Mm":
        return pl.Series(cells.to_numpy().astype("datetime64[us]" if kind == "M" else "timedelta64[us]"))
    gone = cells.isna().to_numpy()
    values = [None if missing else value for value, missing in zip(cells.astype(object), gone, strict=True)]
    kinds = {type(value) for value in values if value is not None}
    if str(cells.dtype) == "category":
        words = pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)
        return level_words(words).cast(pl.Categorical)
    if kinds <= {bool, np.bool_}:
        return pl.Series([None if value is None else bool(value) for value in values], dtype=pl.Boolean)
    if kinds and all(issubclass(one, int | float | np.number | Decimal) for one in kinds):
        return pl.Series([None if value is None else float(value) for value in values], dtype=pl.Float64)
    if any(hasattr(one, "isoformat") for one in kinds):
        return pl.Series(values, strict=False)
    strange = [one.__name__ for one in kinds if not issubclass(one, str | bytes | int | float | np.generic | Decimal)]
    if strange:
        raise DataError(
            f"column {str(cells.name)!r} holds values of type {min(strange)}, neither numbers nor words: omit it "
            f"(X.drop(columns={str(cells.name)!r}))"
        )
    return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)


def is_plain(X: Any) -> bool:
    """Whether all columns of a data frame are numbers, so that no schema is needed to read them."""
    if isinstance(X, pl.DataFrame):
        return all(kind.is_numeric() for kind in X.dtypes)
    return all(getattr(kind, "kind", "O") in "iuf" for kind in X.dtypes)


def infer(frames: dict[str, pl.DataFrame], joining: bool = False) -> tuple[Schema, list[str], list[str], list[str]]:
    """What the columns of data frames are: words and truths are categories, everything else must be a number.

    Parameters
    ----------
    frames : dict of client to polars.DataFrame
        With the same columns.
    joining : bool
        Whether silos are known already.

    Returns
    -------
    tuple of Schema, list of str, list of str, list of str
        The schema of all columns, sentences about those that cannot be used, columns of numbers that seem to identify
        rows, and questions about columns that may be no features.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.tables.frames import infer
    >>> infer({"a": pl.DataFrame({"age": [31, 52], "smokes": [True, False]})})[0].levels
    (0, 2)
    """
    names = next(iter(frames.values())).columns
    cells = {name: [frame.get_column(name) for frame in frames.values() if name in frame.columns] for name in names}
    declared = [name for name in names if all(column.dtype in (pl.Categorical, pl.Enum) for column in cells[name])]
    judged = judge(
        frames,
        names=names,
        as_types=dict.fromkeys(declared, CATEGORY),
        place=lambda silo, row: f"row {row}" + (f" of {silo!r}" if silo else ""),
    )
    columns, problems, identifiers = [], judged.problems, []
    for name, verdict in judged.verdicts.items():
        words = any(column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Boolean) for column in cells[name])
        if verdict.kind == IDENTIFIER and words and not _numeric(cells[name]):
            n = len(levels_in(cells[name]))
            problems.append(
                f"column {name!r} holds {n} different words, which name rows: omit it, or make it the index"
            )
        elif verdict.kind == IDENTIFIER:
            identifiers.append(name)
        if verdict.kind == CATEGORY:
            columns.append(Column(name, CATEGORY, verdict.levels))
        elif verdict.kind == CONSTANT and words and (levels := levels_in(cells[name])):
            columns.append(Column(name, CATEGORY, levels))
        else:
            columns.append(Column(name, NUMBER))
    return Schema(tuple(columns)), problems, identifiers, judged.questions(joining=joining)


def in_python(problem: str, *, framed: bool = True) -> str:
    """A sentence about a column of a data frame, or with `framed` False of an array, with what would help in Python.

    Examples
    --------
    >>> from fmtc.tables.frames import in_python
    >>> in_python("column 'bp' holds dates: omit it (`drop` bp)")
    "column 'bp' holds dates: omit it (X.drop(columns='bp'))"
    >>> in_python("count it as missing (`missing_codes` -999 `missing_codes` '<5')")
    "count it as missing (X.replace([-999.0, '<5'], float('nan')))"
    >>> in_python("column 3 decides alone: scale it (`scale` global), or omit it (`drop`)", framed=False)
    'column 3 decides alone: scale it (scale="global"), or omit it'
    """
    problem = re.sub(r"\(`scale` (\w+)\)", r'(scale="\1")', problem)
    problem = re.sub(r"(set|write) [^:]*\(`schema`\)", "replace them by NaN", problem)
    problem = re.sub(r"(?:, (omit it \(`drop`[^)]*\)))?, or keep it \(`as_types`[^)]*\)", _without_keeping, problem)
    if not framed:
        problem = re.sub(r"count them as missing \(`missing_codes`[^)]*\)", "replace them by NaN", problem)
        return re.sub(r" \(`[^)]*\)", "", problem)
    found = re.search(r"('.*?'|\".*?\") ", problem)
    name = found[1] if found else "..."
    for pattern, code in (
        (r"\(`(?:drop|label_column)`[^)]*\)", f"(X.drop(columns={name}))"),
        (r"\(`as_types` number:[^)]*\)", f"(pandas.to_numeric(X[{name}], errors='coerce'))"),
        (r"\(`as_types` category:[^)]*\)", f"(X[{name}].astype('category'))"),
        (r"\(`client_column`[^)]*\)", f"(clients={name})"),
        (r"\(`text_column`[^)]*\)", "(fmtc.tables.hashed_counts)"),
    ):
        problem = re.sub(pattern, code.replace("\\", r"\\"), problem)
    return re.sub(
        r"\((`missing_codes` [^)]*)\)", lambda found: f"(X.replace({_codes(found[1])}, float('nan')))", problem
    )


def _without_keeping(found: re.Match[str]) -> str:
    """Keeping a column takes nothing here."""
    return f", or {found[1]}" if found[1] else ""


def _codes(flags: str) -> list[str | float]:
    """The codes of missing values that flags name, as numbers where they are."""
    words = shlex.split(flags.replace("`missing_codes`", ""))
    return [float(word) if re.fullmatch(r"-?\d+(\.\d+)?", word) else word for word in words]


def _numeric(columns: list[pl.Series]) -> bool:
    return all(column.dtype.is_numeric() for column in columns)


__all__ = ["as_polars", "in_python", "infer", "is_frame", "is_plain"]
