"""Commands for private runs: public bounds of the columns, and whether there are rows enough."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..artifacts.files import write_file
from ..errors import DataError, FileError, listed
from ..privacy.accounting import Plan
from ..schema import NUMBER
from ..tables.reading import Reading
from ..wording import FLAGS
from .options import data_options, free_path, read_names, read_types
from .program import Option, main_group
from .words import Words, new_console, new_table, plural, print_json, show

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
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


# ------------------------------------------------------------------------------------------------------------ bounds


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
        raise FileError(f"{path} is missing; `fmtc bounds` writes one to be filled in") from None
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
        raise DataError(f"{path} {what}; `fmtc bounds` writes one with all columns")
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
        raise click.UsageError("a private run needs --bounds, a file that `fmtc bounds` writes to be filled in")
    named: dict[str, Any] = {"delta": delta, "colluding": colluding}
    given = {name: value for name, value in named.items() if value is not None}
    return Privacy(epsilon, bounds=read_bounds(bounds), rows=rows, accept_weak=yes, **given)


@main_group.command(
    short_help="Write a file of public bounds for private runs, to be filled in.",
    epilog="""\b
Examples:
  fmtc bounds north.csv south.csv > bounds.toml
  fmtc bounds north.csv --out bounds.toml
  fmtc fit north.csv south.csv east.csv -k 4 --epsilon 4 --bounds bounds.toml --out run""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@data_options
@click.option("--as", "as_types", multiple=True, metavar="KIND:NAMES", callback=read_types, cls=Option, section="Data",
              help="What columns are, such as category:sex,cp or number:zip; many times.")  # fmt: skip
@click.option("--columns", multiple=True, metavar="NAMES", callback=read_names, cls=Option, section="Data",
              help="The only columns to use, such as age,sex.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), cls=Option, help="File to write instead of standard output.")
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
def bounds(
    files: tuple[Path, ...],
    out: Path | None,
    force: bool,
    client_column: str | None,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    missing_codes: tuple[str, ...],
    as_types: dict[str, str],
    columns: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write a file of public bounds for private runs, to be filled in by a person who knows the columns.

    It names the columns that are numbers. It holds no value from the files: bounds that are read from data are not
    public, and would break the promise of a private run.
    """
    from ..tables import read_silos

    words = Words()
    if out is not None:
        out = free_path(out, force)
    with words.warnings_as_notes():
        how = Reading(
            client_column, label_column, id_column, drop, columns, as_types, "em", missing_codes, judge=True,
            wording=FLAGS,
        )  # fmt: skip
        silos = read_silos(files, how)
    found = silos[0].schema
    if found is None:
        raise click.UsageError(f'{files[0]} is a matrix without column names; write a file with "*" = [low, high]')
    text = bounds_template(found)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_file(out, text.encode())
        words.say(
            f"wrote {out}: fill in the bounds of {plural(sum(c.kind == NUMBER for c in found.columns), 'column')}"
        )
    if as_json:
        print_json({"columns": [column.name for column in found.columns if column.kind == NUMBER]})
    elif out is None:
        click.echo(text, nl=False)


# -------------------------------------------------------------------------------------------------------------- plan


@main_group.group(short_help="Plan a private run.")
def privacy() -> None:
    """Plan a private run: which epsilon a federation has rows enough for."""


@privacy.command(
    "plan",
    short_help="Say for which epsilon there are rows enough.",
    epilog="""\b
Examples:
  fmtc privacy plan --rows 5000 --silos 10 --features 64 -k 10
  fmtc privacy plan --rows 5000 --silos 10 --features 64 -k 10 --json""",
)
@click.option("--rows", type=click.IntRange(1), required=True, cls=Option, help="Rows of all silos together.")
@click.option("--silos", type=click.IntRange(1), required=True, cls=Option, help="Number of silos.")
@click.option("--features", type=click.IntRange(1), required=True, cls=Option,
              help="Columns: numbers, and levels of categories.")  # fmt: skip
@click.option("-k", "--n-clusters", "n_clusters", type=click.IntRange(1), required=True, cls=Option,
              help="Number of clusters.")  # fmt: skip
@click.option("--delta", type=float, default=1e-5, show_default=True, cls=Option,
              help="Chance that the bound fails; below 1/rows of every silo.")  # fmt: skip
@click.option("--colluding", type=click.IntRange(0), default=1, show_default=True, cls=Option,
              help="Silos that may work together.")  # fmt: skip
def plan(rows: int, silos: int, features: int, n_clusters: int, delta: float, colluding: int, as_json: bool) -> None:
    """Say for which epsilon a federation has rows enough: yes, weak (a silo alone may do better) or no (noise only).

    The rule was found on ten data sets: rows times mu of (epsilon, delta) must reach max(120 k, 1.7 features^1.5).
    """
    if not 0 < delta < 1:
        raise click.UsageError(f"--delta must lie between 0 and 1, got {delta:g}")
    plans = [Plan(rows, features, n_clusters, epsilon, delta) for epsilon in EPSILONS]
    enough = silos >= max(3, colluding + 1)
    lines = [
        {
            "epsilon": plan.epsilon, "mu": plan.mu, "rows_times_mu": rows * plan.mu, "need": plan.need,
            "ratio": plan.ratio, "verdict": plan.verdict if enough else "no",
        }
        for plan in plans
    ]  # fmt: skip
    if as_json:
        print_json({"rows": rows, "silos": silos, "features": features, "n_clusters": n_clusters, "delta": delta,
                    "plans": lines})  # fmt: skip
        return
    console = new_console()
    if not enough:
        show(
            console, Text(f"{plural(silos, 'silo')} cannot hide a record: at least {max(3, colluding + 1)} are needed")
        )
    table = new_table()
    for title in ("epsilon", "mu", "rows × mu", "needed", "enough"):
        table.add_column(title, justify="right" if title != "enough" else "left")
    for line in lines:
        cells = f"{line['epsilon']:g}", f"{line['mu']:.3f}", f"{line['rows_times_mu']:,.0f}", f"{line['need']:,.0f}"
        table.add_row(*cells, str(line["verdict"]))
    console.print(table)
