"""The command that says how many clusters the rows speak for: advise-k."""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from .options import (
    data_options,
    free_picture,
    quiet_option,
    random_state_option,
    reading_of,
    save_picture,
    table_options,
    text_option,
)
from .preflight import every_problem
from .program import Option, main_group
from .settings import build_model, model_options
from .words import Words, new_console, new_table, note_table, print_json, show, size_of

if TYPE_CHECKING:
    from ..advice import Advice
    from ..estimator import FMTC

SHOWN = 12  # numbers of clusters in the table
STYLES = {"clear": "green", "range": "yellow", "too few rows": "red"}


@main_group.command(
    "advise-k",
    short_help="How many clusters the rows speak for.",
    epilog="""\b
Examples:
  fmtc advise-k north.csv south.csv west.csv
  fmtc advise-k *.csv --range 2..12 --plot k.png
  fmtc advise-k *.csv --evidence spectrum      (no silo's model is shown to another)
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
@click.option(
    "--evidence",
    type=click.Choice(["both", "agreement", "spectrum"]),
    default="both",
    show_default=True,
    cls=Option,
    help="spectrum: no silo's model is shown to another; agreement: leaves the spectrum out.",
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", cls=Option,
              help="A picture of the evidence, such as k.png.")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, help="Replace --plot.")
@random_state_option
@quiet_option
@data_options
@table_options
@text_option
@model_options
def advise_k(
    files: tuple[Path, ...],
    kit_path: Path | None,
    wait: float,
    k_range: str,
    evidence: str,
    plot: Path | None,
    force: bool,
    quiet: bool,
    client_column: str | None,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    missing_codes: tuple[str, ...],
    columns: tuple[str, ...],
    as_types: dict[str, str],
    missing: str,
    schema: Path | None,
    no_header: bool,
    obsm: str | None,
    text_column: str | None,
    as_published: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Say how many clusters the rows of all silos speak for: a number, a range, and how far to trust them.

    Two kinds of evidence, both without labels: steps in the spectrum of each silo's neighbour graph, and whether the
    model of one silo finds in another what that silo finds by itself. It is advice. The strongest structure may not be
    the one you want, and no score can know which one that is.
    """
    from ..protocol.advice import range_of
    from ..tables import TextRecipe, read_silos

    words = Words(quiet)
    if bool(files) == (kit_path is not None):
        raise click.UsageError("give the files of the silos, or the coordinator's kit with --kit")
    try:
        range_of(k_range)
    except ValueError as error:
        raise click.UsageError(f"--range: {error}") from None
    recipe = None if text_column is None else TextRecipe(text_column)
    if recipe is not None and settings["scale"] is None:
        settings["scale"] = "tfidf"
    model = build_model({**settings, "n_clusters": k_range}, as_published, advises=True)
    if plot is not None:
        plot = free_picture(plot, force)
    if kit_path is not None:
        advice = _of_federation(words, kit_path, model, schema, evidence, wait)
    else:
        reading: dict[str, Any] = {} if recipe is None else asdict(recipe)
        reading |= {"client_column": client_column, "label_column": label_column, "id_column": id_column, "drop": drop}
        reading |= reading_of(columns, as_types, missing, schema, no_header, obsm, missing_codes) | {"judge": True}
        with every_problem(files, reading, 1), words.warnings_as_notes():
            silos = read_silos(files, **reading)
            if recipe is None:
                note_table(words, silos, scaled=model.scale != "none")
            words.say(f"{size_of(silos)}: looking for structure")
            advice = model.advise({silo.name: silo.encoded for silo in silos}, evidence=evidence)
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
    titles = ["clusters", "eigengap", *(["agreement", "±"] if len(advice.agreement) else []), ""]
    for title in titles:
        table.add_column(title, justify="left" if title == "" else "right")
    ks = advice.ks.tolist()
    said: dict[int, list[str]] = {k: [] for k in ks}
    for name, k in advice.signals.items():
        said[k].append({"parts": "large parts", "gap": "largest eigengap", "agreement": "silos agree",
                        "many": "silos agree on many"}[name])  # fmt: skip
    middle = ks.index(advice.chosen)
    first = max(0, min(middle - SHOWN // 2, len(ks) - SHOWN))
    shown = set(range(first, min(len(ks), first + SHOWN))) | {ks.index(k) for k in ks if said[k]}
    for place in sorted(shown):
        k = ks[place]
        cells = [str(k), f"{advice.eigengap[place]:.3f}"]
        if len(advice.agreement):
            cells += [f"{advice.agreement[place]:.2f}", f"{advice.agreement_error[place]:.2f}"]
        mark = ("advised; " if k == advice.chosen else "") + ", ".join(said[k])
        style = "bold" if k == advice.chosen else "" if advice.low <= k <= advice.high else "dim"
        table.add_row(*cells, mark.removesuffix("; "), style=style)
    show(console, table)
    show(console, Text())
    show(console, Text(advice.sentences[0], STYLES[advice.verdict]))
    for sentence in advice.sentences[1:]:
        show(console, Text(sentence))


def _of_federation(
    words: Words, kit_path: Path, model: FMTC, schema: Path | None, evidence: str, wait: float
) -> Advice:
    """Ask the silos of a federation; their commands go on waiting for a run."""
    from ..runtime.flare.kits import Kit
    from ..runtime.flare.supervise import Coordinator
    from ..schema import Schema
    from .federation import View

    if schema is not None:
        model.schema_ = Schema.read(schema)
    kit = Kit.read(kit_path, "coordinator")
    kit.check()
    names = {silo: silo for silo in kit.plan.silos}
    with (
        tempfile.TemporaryDirectory() as folder,
        View(words, 0, names, f"federation {kit.plan.name!r}: starting the server") as view,
        Coordinator(kit) as coordinator,
    ):
        return ask_silos(coordinator, model, Path(folder), names, view, evidence=evidence, wait=wait)


def ask_silos(
    coordinator: Any, model: FMTC, folder: Path, silos: Any, listen: Any, *, evidence: str = "both", **how: Any
) -> Advice:
    """The advice of a federation's silos, by a run of its own over an open coordinator.

    Parameters
    ----------
    coordinator : Coordinator
    model : FMTC
        Its `n_clusters` is "auto" or a range.
    folder : Path
        For the files of that run.
    silos : sized
        Names of all silos.
    listen : callable
        Gets every event.
    evidence : {"both", "agreement", "spectrum"}
    **how
        Of `RunSpec`: min_clients, deadline, wait.
    """
    from ..advice import advice_of
    from ..protocol.advice import advice_method, advice_settings, range_of
    from ..runtime.conductor import RESULT, read_record
    from ..runtime.flare.supervise import supervise
    from ..runtime.spec import RunSpec

    settings = advice_settings(model.settings(n_clusters=2), range_of(model.n_clusters))
    method = advice_method(evidence, len(silos))
    spec = RunSpec(secrets.token_hex(8), settings, folder, method_name=method.name, **how)
    supervise(coordinator, spec, listen)
    result, _ = read_record(folder / RESULT)
    return advice_of(result.common, result.client_ids, evidence)
