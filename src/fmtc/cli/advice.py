"""The command that says how many clusters the rows speak for: advise-k."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..tables.reading import Reading
from .check import every_problem
from .options import (
    TABLES,
    free_picture,
    quiet_option,
    random_state_option,
    reading_options,
    save_picture,
)
from .program import Option, main_group
from .settings import build_model, model_options
from .words import Words, new_console, new_table, note_table, print_json, show, size_of

if TYPE_CHECKING:
    from ..advice import Advice
    from ..estimator import FMTC
    from ..schema import Schema

SHOWN = 12  # numbers of clusters in the table
STYLES = {"range": "yellow", "too few rows": "red"}
SIGNALS = {"parts": "large parts", "gap": "largest eigengap"}


@main_group.command(
    "advise-k",
    short_help="How many clusters the rows speak for.",
    epilog="""\b
Examples:
  fmtc advise-k north.csv south.csv west.csv
  fmtc advise-k *.csv --range 2..12 --plot k.png
  fmtc advise-k all.parquet --client-column site --json
  fmtc advise-k --kit coordinator              (of a federation whose silos have joined)""",
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--kit", "kit_path", type=click.Path(path_type=Path), cls=Option,
              help="The coordinator's kit: ask the silos of a federation.")  # fmt: skip
@click.option("--wait", type=float, default=600.0, show_default=True, cls=Option,
              help="With --kit: seconds to wait for silos that are not there.")  # fmt: skip
@click.option("--range", "k_range", metavar="LOW..HIGH", default="auto", cls=Option,
              help="Numbers to compare; by default 2 to 30, and four rows of the smallest silo for each.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", cls=Option,
              help="A picture of the evidence, such as k.png.")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, help="Replace --plot.")
@random_state_option
@quiet_option
@reading_options(*TABLES, judge=True)
@model_options
def advise_k(
    files: tuple[Path, ...],
    kit_path: Path | None,
    wait: float,
    k_range: str,
    plot: Path | None,
    force: bool,
    quiet: bool,
    reading: Reading,
    as_published: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Say how many clusters the rows of all silos speak for: a number, a range, and how far to trust them.

    It looks at large parts and at steps in the spectrum of each silo's neighbour graph, without labels. It is advice.
    The strongest structure may not be the one you want, and no score can know which one that is.
    """
    from ..protocol.advice import range_of
    from ..tables import read_silos

    words = Words(quiet)
    if bool(files) == (kit_path is not None):
        raise click.UsageError("give the files of the silos, or the coordinator's kit with --kit")
    try:
        range_of(k_range)
    except ValueError as error:
        raise click.UsageError(f"--range: {error}") from None
    if reading.recipe is not None and settings["scale"] is None:
        settings["scale"] = "tfidf"
    model = build_model({**settings, "n_clusters": k_range}, as_published, advises=True)
    if plot is not None:
        plot = free_picture(plot, force)
    if kit_path is not None:
        advice = _of_federation(words, kit_path, model, reading.known_schema(), wait)
    else:
        with every_problem(files, reading, 1), words.warnings_as_notes():
            silos = read_silos(files, reading)
            if reading.recipe is None:
                note_table(words, silos, scaled=model.scale != "none")
            words.say(f"{size_of(silos)}: looking for structure")
            advice = model.advise({silo.name: silo.encoded for silo in silos})
    if plot is not None:
        from ..plot import plot_k

        save_picture(words, plot_k(advice).figure, plot)
    if as_json:
        print_json(advice.to_dict() | {"notes": words.notes})
    else:
        show_advice(advice)


def show_advice(advice: Advice) -> None:
    """The curves around the range as a table, and the advice in sentences, on standard output."""
    console = new_console()
    table = new_table()
    for title in ("clusters", "eigengap", ""):
        table.add_column(title, justify="left" if title == "" else "right")
    ks = advice.ks.tolist()
    said: dict[int, list[str]] = {k: [] for k in ks}
    for name, k in advice.signals.items():
        said[k].append(SIGNALS[name])
    middle = ks.index(advice.chosen)
    first = max(0, min(middle - SHOWN // 2, len(ks) - SHOWN))
    shown = set(range(first, min(len(ks), first + SHOWN))) | {ks.index(k) for k in ks if said[k]}
    for place in sorted(shown):
        k = ks[place]
        mark = ("advised; " if k == advice.chosen else "") + ", ".join(said[k])
        style = "bold" if k == advice.chosen else "" if advice.low <= k <= advice.high else "dim"
        table.add_row(str(k), f"{advice.eigengap[place]:.3f}", mark.removesuffix("; "), style=style)
    show(console, table)
    show(console, Text())
    show(console, Text(advice.sentences[0], STYLES[advice.verdict]))
    for sentence in advice.sentences[1:]:
        show(console, Text(sentence))


def _of_federation(words: Words, kit_path: Path, model: FMTC, schema: Schema | None, wait: float) -> Advice:
    """Ask the silos of a federation; their commands go on waiting for a run."""
    from ..runtime.flare.kits import Kit
    from ..runtime.flare.supervise import Coordinator
    from .federation import View

    if schema is not None:
        model.schema_ = schema
    kit = Kit.read(kit_path, "coordinator")
    kit.check()
    names = {silo: silo for silo in kit.plan.silos}
    with (
        tempfile.TemporaryDirectory() as folder,
        View(words, 0, names, f"federation {kit.plan.name!r}: starting the server") as view,
        Coordinator(kit) as coordinator,
    ):
        return ask_silos(coordinator, model, Path(folder), view, wait=wait)


def ask_silos(coordinator: Any, model: FMTC, folder: Path, listen: Any, **how: Any) -> Advice:
    """The advice of a federation's silos, by a run of its own over an open coordinator.

    Parameters
    ----------
    coordinator : Coordinator
    model : FMTC
        Its `n_clusters` is "auto" or a range.
    folder : Path
        For the files of that run.
    listen : callable
        Gets every event.
    **how
        Of `RunSpec`: min_clients, deadline, wait.
    """
    from ..advice import advice_of
    from ..protocol.advice import METHOD, advice_settings, range_of
    from ..runtime.conductor import RESULT, read_record
    from ..runtime.flare.supervise import supervise
    from ..runtime.spec import RunSpec

    settings = advice_settings(model.settings(n_clusters=2), range_of(model.n_clusters))
    spec = RunSpec(secrets.token_hex(8), settings, folder, method_name=METHOD.name, **how)
    supervise(coordinator, spec, listen)
    result, _ = read_record(folder / RESULT)
    return advice_of(result.common, result.client_ids)
