"""Data frames of other libraries as those of Polars, column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from ..errors import DataError, listed
from ..schema import CATEGORY, NUMBER, Column, Schema, is_text, level_words
from ..wording import FRAMES
from .catalogue import differences, named_rows, questions_about, words_of
from .findings import CONSTANT, IDENTIFIER, Finding
from .formats import series_of
from .guess import Guess, judge, levels_in


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
    if isinstance(X, pl.DataFrame | pl.LazyFrame):
        return X.lazy().collect()
    return pl.DataFrame({str(name): _series(X.iloc[:, place]) for place, name in enumerate(X.columns)})


def _series(cells: Any) -> pl.Series:
    kind = getattr(cells.dtype, "kind", "O")
    if kind in "iufb" and isinstance(cells.dtype, np.dtype):
        return pl.Series(np.ascontiguousarray(cells.to_numpy()), nan_to_null=True)
    if kind in "iuf":  # with pandas' own missing values
        return pl.Series(cells.to_numpy(dtype=np.float64, na_value=np.nan), nan_to_null=True)
    gone = cells.isna().to_numpy()
    values = [None if missing else value for value, missing in zip(cells.astype(object), gone, strict=True)]
    if str(cells.dtype) == "category":
        return level_words(series_of(values)).cast(pl.Categorical)
    return series_of(values)


def is_plain(X: Any) -> bool:
    """Whether all columns of a data frame are numbers, so that no schema is needed to read them."""
    if isinstance(X, pl.DataFrame):
        return all(kind.is_numeric() for kind in X.dtypes)
    return all(getattr(kind, "kind", "O") in "iuf" for kind in X.dtypes)


def check_frames(frames: Mapping[str, Any]) -> None:
    """Refuse frames of silos that have a column twice, or other columns than the first."""
    names = {name: [str(column) for column in frame.columns] for name, frame in frames.items()}
    for name, own in names.items():
        if twice := [column for column, count in Counter(own).items() if count > 1]:
            raise DataError(
                f"{f'silo {name!r}: ' if name else ''}X has more than one column called {listed(twice)}; "
                "names of columns must be unique"
            )
    if found := differences(names):
        raise DataError(f"{found}\nGive every silo the same columns.")


def check_plain(frames: Mapping[str, Any], other: str) -> None:
    """Refuse frames with columns that are no numbers, beside a silo whose rows are no frame."""
    for name, frame in frames.items():
        if not is_plain(frame):
            raise DataError(
                f"silo {name!r}: X is a data frame with columns that are no numbers, but that of silo {other!r} is "
                "not a data frame: give data frames for all silos"
            )


def encode(frame: Any, schema: Schema, name: str) -> Any:
    """The rows of a frame by a schema; the frame itself, where they are so already."""
    if list(frame.columns) == list(schema.names) and is_plain(frame) and not schema.recodes:
        return frame
    X = schema.encode(as_polars(frame), f"silo {name!r}: " if name else "", wording=FRAMES)
    return pl.DataFrame(X, schema=list(schema.names))


def infer(frames: Mapping[str, pl.DataFrame], *, joining: bool = False) -> tuple[Schema, list[str]]:
    """What the columns of data frames are: words and truths are categories, everything else must be a number.

    Parameters
    ----------
    frames : mapping of silo to polars.DataFrame
        With the same columns; a frame of many silos has the name "".
    joining : bool
        Whether the silo of each row is known already.

    Returns
    -------
    tuple of Schema, list of str
        The schema of all columns, and sentences about those that may be no features.

    Raises
    ------
    DataError
        If there are columns that cannot be used.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.tables.frames import infer
    >>> infer({"a": pl.DataFrame({"age": [31, 52], "smokes": [True, False]})})[0].levels
    (0, 2)
    """
    first = next(iter(frames.values()))
    cells = {name: [frame.get_column(name) for frame in frames.values()] for name in first.columns}
    declared = [name for name, own in cells.items() if all(c.dtype in (pl.Categorical, pl.Enum) for c in own)]
    judged = judge(frames, as_types=dict.fromkeys(declared, CATEGORY), place=_place)
    named = judged.of_kind(IDENTIFIER)
    numbers = [name for name in named if all(column.dtype.is_numeric() for column in cells[name])]
    words = {name: len(levels_in(cells[name])) for name in named if name not in numbers}
    doubts = judged.doubts + [Finding.of_column("names rows", name, n=n) for name, n in words.items()]
    if doubts:
        raise DataError("\n  ".join(words_of(doubt, FRAMES) for doubt in doubts))
    columns = [_column(name, guess, cells[name]) for name, guess in judged.guesses.items()]
    lines = [named_rows(numbers)] if numbers else []
    asked = ("answer",) if joining and "" in frames else ("answer", "silos")
    return Schema(tuple(columns)), lines + questions_about(judged, FRAMES, joining=joining, kinds=asked)


def _place(silo: str, row: int) -> str:
    return f"row {row} of {silo!r}" if silo else f"row {row}"


def _column(name: str, guess: Guess, cells: list[pl.Series]) -> Column:
    """A column of words or truths is a category, even with a single level."""
    words = any(is_text(column) or column.dtype == pl.Boolean for column in cells)
    levels = levels_in(cells) if words and guess.kind == CONSTANT else guess.levels
    return Column(name, CATEGORY if levels else NUMBER, levels)


__all__ = ["as_polars", "check_frames", "check_plain", "encode", "infer", "is_plain"]
