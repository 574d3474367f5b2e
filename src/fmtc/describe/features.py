"""What features are called: columns that are numbers, levels of categories, words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from ..schema import Schema

Lookup = Callable[[Sequence[int]], Mapping[int, str]]


class Named:
    """A fact about a column or a level of a category, which has a `column` and a `level`."""

    column: str
    level: str

    @property
    def what(self) -> str:
        """The column, and the level of a category."""
        return f"{self.column}: {self.level}" if self.level else self.column


@dataclass(frozen=True)
class Features:
    """What the features of a table are called.

    Parameters
    ----------
    names : sequence of str, optional
        Of the columns of the table; without them they are counted.
    levels : tuple of tuple of str
        Of each column, its levels; empty for numbers. Empty if all are.
    units : mapping of int to str
    is_text : bool
        Columns are words.
    words : callable, optional
        Of texts: gets numbers of columns, returns the words of those that it knows.
    """

    names: Sequence[str] | None = None
    levels: tuple[tuple[str, ...], ...] = ()
    units: Mapping[int, str] = field(default_factory=dict)
    is_text: bool = False
    words: Lookup | None = None

    @classmethod
    def of(cls, schema: Schema | None, names: Sequence[str] | None, **others: Any) -> Self:
        """From what a model knows of its columns."""
        if schema is None:
            return cls(None if names is None else [str(name) for name in names], **others)
        levels = () if schema.is_plain else tuple(column.levels for column in schema.columns)
        units = {j: column.unit for j, column in enumerate(schema.columns) if column.unit}
        return cls(schema.names, levels, units, **others)

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        numbers = [(j, -1) for j, levels in enumerate(self.levels) if not levels]
        return numbers + [(j, level) for j, levels in enumerate(self.levels) for level in range(len(levels))]

    def place(self, feature: int) -> tuple[int, int]:
        """Column of a feature, and which of its levels; -1 for a number. Numbers come first, then all levels."""
        return self._places[feature] if self.levels else (feature, -1)

    @property
    def is_hashed(self) -> bool:
        """Whether columns are words, and nobody here knows which."""
        return self.is_text and self.words is None and self.names is None

    def levels_of(self, column: int) -> tuple[str, ...]:
        """Levels of a column; none for a number."""
        return self.levels[column] if self.levels else ()

    def level(self, column: int, level: int) -> str:
        """Name of a level of a category."""
        return "" if level < 0 else self.levels[column][level]

    def unit(self, column: int) -> str:
        """Unit of a column of a table."""
        return "" if self.is_text else self.units.get(column, "")

    def kind(self, column: int) -> str:
        """One of number, category and word."""
        return "word" if self.is_text else "category" if self.levels_of(column) else "number"

    def known_words(self, columns: Iterable[int]) -> Mapping[int, str]:
        """Words of those columns that are known."""
        return {} if self.words is None else self.words(sorted(columns))

    def name(self, column: int, words: Mapping[int, str]) -> str:
        """Name of a column: a word that is known, else that of the table."""
        return words.get(column, f"column {column}" if self.names is None else str(self.names[column]))


__all__ = ["Features", "Lookup", "Named"]
