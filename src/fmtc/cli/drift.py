"""The command that says whether new rows still are what a model was made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..artifacts.files import read_json
from ..errors import FileError
from ..tables.reading import Reading
from .models import rows_for_model
from .options import ROWS, reading_options
from .program import Option, main_group
from .words import Words, print_json

ALARM = 7  # exit code


@main_group.command(
    "drift",
    short_help="Test whether new rows still are what a model was made for.",
    epilog="""\b
Examples:
  fmtc drift run new.csv --client north
  fmtc drift run all.parquet --client-column site
  fmtc drift run new.csv --client north --json > north.json
  fmtc drift --combine north.json south.json 0.21          (one p-value of each silo)""",
)
@click.argument("given", metavar="RUN FILE", nargs=-1, required=True)
@click.option("--client", metavar="SILO", cls=Option, help="The silo whose model is used; needed where there are many.")
@click.option("--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True,
              cls=Option, help="Share of false alarms that you accept.")  # fmt: skip
@click.option("--combine", is_flag=True, cls=Option,
              help="Combine the p-values of several silos instead: numbers, or files of --json.")  # fmt: skip
@reading_options("silo_column", *ROWS, "obsm")
@click.pass_context
def drift(
    ctx: click.Context,
    /,
    given: tuple[str, ...],
    client: str | None,
    level: float,
    combine: bool,
    reading: Reading,
    as_json: bool,
) -> None:
    """Test whether new rows still are what a silo's model was made for; exit code 7 is an alarm.

    RUN is the --out folder of `fmtc fit --calibrate`, or a model folder; FILE a batch of new rows, read as `fmtc
    predict` reads it. The test asks whether rows fit the model less well than the silo's own rows fitted models that
    had not seen them. Nothing leaves the silo. With --combine, silos that agreed to tell one p-value each get one
    verdict: a change that reaches many shows there first.
    """
    from ..confidence import Drift, combined, together

    words = Words()
    if combine:
        p, verdict = combined([_p_value(text) for text in given], level)
        found = Drift((), p, verdict)
        said = f"{len(given)} silos together: {verdict} (p = {p:.2g})"
    else:
        if len(given) != 2:
            raise click.UsageError("give the folder of a run and a file of new rows; or --combine and p-values")
        with words.warnings_as_notes():
            model, silos, name = rows_for_model(words, Path(given[0]), Path(given[1]), client, reading)
            each = [model.drift(silo.X, clients=name or silo.name, level=level) for silo in silos]
        found = together([result.silos[0] for result in each], level)
        said = str(found)
    if as_json:
        print_json({**found.to_dict(), "level": level, "notes": words.notes})
    else:
        click.echo(said)
    if found.alarm:
        ctx.exit(ALARM)


def _p_value(text: str) -> float:
    """A number, or that of a file of `fmtc drift --json`."""
    try:
        return float(text)
    except ValueError:
        pass
    if not Path(text).is_file():
        raise click.UsageError(f"{text!r} is neither a p-value nor a file of `fmtc drift --json`")
    document: Any = read_json(Path(text))
    p = document.get("p_value") if isinstance(document, dict) else None
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise FileError(f"{text} is not a file of `fmtc drift --json`: it has no p_value")
    return float(p)
