"""The command that says how many clusters the rows speak for: advise-k."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import tables
from ..tables.reading import Reading
from . import flags
from .check import every_problem
from .flags import PATH, TABLES, Asking, free_picture, save_picture
from .program import main_group
from .settings import build_model, model_options
from .words import Words, note_table, size_of


@main_group.command("advise-k", short_help="How many clusters the rows speak for.")
@click.argument("files", nargs=-1, type=PATH)
@flags.takes(asking=Asking)
@flags.option("--range", "k_range", metavar="LOW..HIGH", default="auto",
        help="Numbers to compare; by default 2 to 30, and four rows of the smallest silo for each.")  # fmt: skip
@flags.option("--plot", type=PATH, metavar="FILE", help="A picture of the evidence, such as k.png.")
@flags.switch("--force", help="Replace --plot.")
@flags.random_state
@flags.quiet
@flags.reading(*TABLES, judge=True)
@model_options
def advise_k(
    files: tuple[Path, ...],
    asking: Asking,
    k_range: str,
    plot: Path | None,
    force: bool,
    reading: Reading,
    words: Words,
    **settings: Any,
) -> None:
    """Say how many clusters the rows of all silos speak for: a number, a range, and how far to trust them.

    It looks at large parts and at steps in the spectrum of each silo's neighbour graph, without labels. It is advice.
    The strongest structure may not be the one you want, and no score can know which one that is.

    Examples:
      fmtc advise-k north.csv south.csv west.csv
      fmtc advise-k *.csv --range 2..12 --plot k.png
      fmtc advise-k all.parquet --silo-column site --json
      fmtc advise-k --kit coordinator              (of a federation whose silos have joined)
    """
    from ..protocol.advice import range_of

    asking.check(files)
    try:
        range_of(k_range)
    except ValueError as error:
        raise click.UsageError(f"--range: {error}") from None
    model = build_model({**settings, "n_clusters": k_range}, reading)
    if plot is not None:
        plot = free_picture(plot, force)
    if asking.kit is not None:
        from .leading import ask_advice, coordinator_of

        if (schema := reading.known_schema()) is not None:
            model.schema_ = schema
        with coordinator_of(asking.kit) as coordinator:
            advice = ask_advice(words, coordinator, model, wait=asking.wait)
    else:
        with every_problem(files, reading, 1), words.warnings_as_notes():
            silos = tables.read_silos(files, reading)
            if reading.recipe is None:
                note_table(words, silos, scaled=model.scale != "none")
            from ..estimator import advise

            words.say(f"{size_of(silos)}: looking for structure")
            advice = advise({silo.name: silo.encoded for silo in silos}, k_range=k_range, model=model)
    if plot is not None:
        from ..plot import plot_k

        save_picture(words, plot_k(advice).figure, plot)
    if not words.give(advice.to_dict() | {"notes": words.notes}):
        for sentence in advice.sentences:
            words.show(sentence)
