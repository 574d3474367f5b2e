"""Flags of private runs: the promise, and public bounds of the columns."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import click

from ..errors import DataError, FileError, listed
from ..schema import NUMBER, Schema
from ..settings import Privacy

PROMISE = ("epsilon", "delta", "colluding", "bounds", "rows", "accept_weak")  # fields of `Privacy` that have a flag
ALL = "*"  # in a file of bounds: every column that is not named
OPENING = """\
# Public bounds of the columns that are numbers, for private runs (--bounds).
# Write the lowest and the highest value that a column can have, from what everybody knows of it: a percentage has
# [0, 100], an age in years [0, 110]. Never look them up in the data: a maximum tells of the person who has it.
# Values beyond are clipped. "*" = [0, 1] stands for all columns that are not named.
"""


def bounds_template(schema: Schema) -> str:
    """A file of bounds to be filled in: names of columns, and bounds where the schema itself has them.

    Examples
    --------
    >>> from fmtc.cli.privacy import bounds_template
    >>> from fmtc.schema import Column, Schema
    >>> print(bounds_template(Schema((Column("age", lower=0, upper=110), Column("dose"))))[-42:])
    "age" = [0, 110]
    "dose" = ["low", "high"]
    <BLANKLINE>
    """
    lines = []
    for column in schema.columns:
        if column.kind == NUMBER:
            sides = zip((column.lower, column.upper), ("low", "high"), strict=True)
            pair = ", ".join(json.dumps(word) if side is None else f"{side:g}" for side, word in sides)
            lines.append(f"{json.dumps(column.name)} = [{pair}]\n")
    return OPENING + "".join(lines)


def read_bounds(path: Path, names: Sequence[str] | None = None) -> tuple[Any, Any]:
    """Lower and upper bounds from a file: two numbers where it holds ``"*"`` only, else one for each column.

    Parameters
    ----------
    path : path
    names : sequence of str, optional
        Columns that are numbers, in their order; without, the order of the file.
    """
    found = {name: _pair(path, name, pair) for name, pair in _document(path).items()}
    rest = found.pop(ALL, None)
    if rest is not None and not found:
        return rest
    names = list(found) if names is None else names
    unknown = [name for name in found if name not in names]
    pairs = {name: pair for name in names if (pair := found.get(name, rest)) is not None}
    if unknown or not pairs or len(pairs) < len(names):
        lacking = [name for name in names if name not in pairs]
        what = f"has no bounds for {listed(lacking)}" if lacking else f"names {listed(unknown)}, which no table has"
        raise DataError(f"{path} {what}; `fmtc check --write-bounds` writes one with all columns")
    low, high = zip(*pairs.values(), strict=True)
    return low, high


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"{path} is missing; `fmtc check --write-bounds` writes one to be filled in") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read as a file of bounds: {error}") from None


def _pair(path: Path, name: str, pair: Any) -> tuple[float, float]:
    """The lowest and the highest value of a column."""
    numbers = isinstance(pair, list) and len(pair) == 2 and {*map(type, pair)} <= {int, float}
    if not numbers or not -inf < pair[0] < pair[1] < inf:
        raise DataError(f"{path}: {name!r} has {pair!r}; write its lowest and highest possible value, such as [0, 100]")
    return float(pair[0]), float(pair[1])


def read_privacy(flags: Mapping[str, Any]) -> Privacy | None:
    """The promise that flags ask for; None where they ask for none."""
    given = {name: flags.get(name) for name in PROMISE}
    if given["epsilon"] is None:
        if stray := [f"--{name}" for name in PROMISE[1:] if given[name] is not None and name != "accept_weak"]:
            raise click.UsageError(f"{', '.join(stray)} belongs to a private run; give --epsilon as well")
        return None
    if flags.get("privacy") is not None:
        raise click.UsageError("--epsilon adds noise to sums already; leave --privacy out")
    if given["bounds"] is None:
        raise click.UsageError(
            "a private run needs --bounds, a file that `fmtc check --write-bounds` writes to be filled in"
        )
    given["bounds"] = read_bounds(given["bounds"])
    return Privacy(**{name: value for name, value in given.items() if value is not None})
