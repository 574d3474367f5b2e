"""What the columns of a table hold, agreed by all silos: numbers or categories, levels, units and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from .errors import DataError

Array = np.ndarray

NUMBER, CATEGORY = "number", "category"


@dataclass(frozen=True)
class Column:
    """One column.

    Parameters
    ----------
    name : str
    kind : {"number", "category"}
    levels : tuple of str
        Of a category, in order: the code of a level is its place here. Empty for a number.
    unit : str
        Of a number, for people to read; empty if not known.
    lower, upper : float, optional
        Of a number: what lies outside is not a measurement and counts as missing.
    """

    name: str
    kind: str = NUMBER
    levels: tuple[str, ...] = ()
    unit: str = ""
    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        if self.kind not in (NUMBER, CATEGORY):
            raise DataError(f"column {self.name!r} has kind {self.kind!r}; it must be {NUMBER!r} or {CATEGORY!r}")
        if (self.kind == CATEGORY) != bool(self.levels):
            raise DataError(f"column {self.name!r}: a category has levels, a number has none")
        if len(set(self.levels)) < len(self.levels):
            raise DataError(f"column {self.name!r} names a level twice")


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order.

    Rows are computed with as one float matrix: a number as it is, a category as the code of its level (0, 1, ...),
    NaN where a cell is missing or a level is not known.

    Examples
    --------
    >>> from fmtc.schema import Column, Schema
    >>> schema = Schema((Column("age", unit="years"), Column("sex", "category", ("female", "male"))))
    >>> schema.names, schema.levels
    (('age', 'sex'), (0, 2))
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if len(set(self.names)) < len(self.columns):
            raise DataError("a schema names a column twice")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of levels of each column; 0 for a column of numbers."""
        return tuple(len(column.levels) for column in self.columns)

    @property
    def is_plain(self) -> bool:
        """Whether all columns are numbers."""
        return not any(self.levels)

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Self:
        """Columns of numbers with these names."""
        return cls(tuple(Column(str(name)) for name in names))

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        return {"columns": [asdict(column) | {"levels": list(column.levels)} for column in self.columns]}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        return cls(tuple(Column(**column) for column in document["columns"]))


__all__ = ["Column", "Schema"]
