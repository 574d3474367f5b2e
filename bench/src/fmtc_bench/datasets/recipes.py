"""The data sets that come in Python packages, those of each comparison in a file of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fmtc.schema import Column

from .catalogue import facts
from .frames import NamedRows, NamedTexts, watch
from .packaged import (
    Recipe,
    categories,
    cells,
    curves,
    digits,
    joined,
    multifeature,
    pines,
    sources,
    table,
    vowels,
)  # fmt: skip

HOW: dict[str, Callable[..., Any]] = {
    made.__name__: made
    for made in (*(categories, cells, curves, digits, joined, multifeature, pines, table, vowels), watch)
}
HOW |= {"documents": NamedTexts, "frame": NamedRows}


def _maker(how: str, **given: Any) -> Callable[..., Any]:
    """What makes rows of the files of a set, from the table `make` of its entry."""
    if "columns" in given:
        given["columns"] = [_column(each) for each in given["columns"]]
    for key in ("classes", "clients"):
        if isinstance(given.get(key), list):  # words that stay as they are
            given[key] = {word: word for word in given[key]}
    made = HOW[how]
    return made(**given) if isinstance(made, type) else partial(made, **given)


def _column(each: str | Mapping[str, Any]) -> Column:
    if isinstance(each, str):
        return Column(each)
    return Column(**{**each, "levels": tuple(each.get("levels", ()))})


RECIPES = tuple(
    Recipe(name=name, **{**about, "make": _maker(**about["make"])})
    for comparison in ("first", "second")
    for name, about in facts(comparison).items()
)
SOURCES = sources(RECIPES)

__all__ = ["RECIPES", "SOURCES"]
