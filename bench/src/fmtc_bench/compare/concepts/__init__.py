"""Evidence for concepts: silos that lack classes, the atlas, confidence, joining later, how many clusters.

Each part is one module with three names: `TITLE`, `measure(seeds, listen)`, which gives rows (dicts that JSON can
hold), and `table(rows)`, which gives the lines of a Markdown table. `fmtc-bench concepts` runs them and keeps the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

PARTS = ("missing", "atlas", "confidence", "later", "advice")

Row = dict[str, Any]
Listener = Callable[[str], None]  # told what is being measured


class Part(Protocol):
    """One module of this package."""

    TITLE: str

    def measure(self, seeds: Sequence[int], listen: Listener) -> list[Row]:
        """Rows of all data sets and seeds."""
        ...

    def table(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Lines of a Markdown table."""
        ...


def part_of(name: str) -> Part:
    """The part of this name."""
    found: Any = import_module(f"{__name__}.{name}")
    part: Part = found
    return part
