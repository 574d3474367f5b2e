"""Flags of private runs: the promise, and public bounds of the columns."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import DataError, FileError, listed
from ..schema import NUMBER

if TYPE_CHECKING:
    from ..schema import Schema
    from ..settings import Privacy

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
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"{path} is missing; `fmtc check --write-bounds` writes one to be filled in") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read as a file of bounds: {error}") from None
    found: dict[str, tuple[float, float]] = {}
    for name, pair in document.items():
        numbers = isinstance(pair, list) and len(pair) == 2 and all(type(side) in (int, float) for side in pair)
        if not numbers or not (isfinite(pair[0]) and isfinite(pair[1]) and pair[0] < pair[1]):
            raise DataError(
                f"{path}: {name!r} has {pair!r}; write its lowest and highest possible value, such as [0, 100]"
            )
        found[name] = float(pair[0]), float(pair[1])
    rest = found.pop(ALL, None)
    if not found and rest is not None:
        return rest
    unknown = [] if names is None else [name for name in found if name not in set(names)]
    wanted = list(found) if names is None else list(names)
    lacking = [name for name in wanted if name not in found and rest is None]
    if unknown or lacking or not wanted:
        what = f"has no bounds for {listed(lacking)}" if lacking else f"names {listed(unknown)}, which no table has"
        raise DataError(f"{path} {what}; `fmtc check --write-bounds` writes one with all columns")
    pairs = [found.get(name, rest) for name in wanted]
    low, high = zip(*[pair for pair in pairs if pair is not None], strict=True)
    return tuple(low), tuple(high)


def read_privacy(
    epsilon: float | None,
    delta: float | None,
    colluding: int | None,
    bounds: Path | None,
    rows: int | None,
    yes: bool,
) -> Privacy | None:
    """The promise that flags ask for; None where they ask for none."""
    from ..settings import Privacy

    if epsilon is None:
        others = {"--delta": delta, "--colluding": colluding, "--bounds": bounds, "--rows": rows}
        stray = [flag for flag, value in others.items() if value is not None]
        if stray:
            raise click.UsageError(f"{', '.join(stray)} belongs to a private run; give --epsilon as well")
        return None
    if bounds is None:
        raise click.UsageError(
            "a private run needs --bounds, a file that `fmtc check --write-bounds` writes to be filled in"
        )
    named: dict[str, Any] = {"delta": delta, "colluding": colluding}
    given = {name: value for name, value in named.items() if value is not None}
    return Privacy(epsilon, bounds=read_bounds(bounds), rows=rows, accept_weak=yes, **given)
