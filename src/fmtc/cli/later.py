"""Commands for after a run: publish it, join it later, update it, make a page of it."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal

from ..artifacts import runs
from ..errors import FileError, listed, plural
from ..tables.reading import EM, Reading
from . import flags
from .flags import PATH, ROWS, Output, free_path, given
from .predict import pooled, read_known, silos_of, text_recipe, word_lookup
from .program import main_group
from .words import Words, show_run

if TYPE_CHECKING:
    from ..estimator import FMTC

GUIDES: Mapping[str, bool | str] = {"auto": "auto", "always": True, "never": False}


# --------------------------------------------------------------------------------------------------------- publish


@main_group.command(short_help="Write a kit with which newcomers join later, sending nothing.")
@click.argument("run", type=PATH)
@flags.option("--schema", type=PATH, help="The schema.toml of the silos, where the run does not know their columns.")
@flags.takes(output=Output)
@flags.text_column
def publish(run: Path, schema: Path | None, output: Output, text_column: str | None, words: Words) -> None:
    """Write what a newcomer needs: means over all silos, units and names of columns, settings, given names of clusters.

    RUN is the --out folder of `fmtc fit` or `fmtc coordinate`, or a model folder. It must be of
    at least three silos. The kit holds no row and no silo's own model; docs/privacy.md says what it can tell. Hand it
    on to whoever wants to join: see `fmtc join-later`.

    Examples:
      fmtc publish run --out kit
      fmtc publish consensus --out kit --schema schema.toml     (at the coordinator, which knows no names of columns)
      fmtc publish consensus --out kit --text-column notes
    """
    from ..artifacts.models import is_kit
    from ..later.publish import open_run

    out = free_path(output.out, output.force, is_kit)
    model = open_run(run, schema, text_column)
    path = model.publish(out, names=_given_names(run), overwrite=output.force)
    size = sum(file.stat().st_size for file in path.iterdir())
    shared = model._fitted.shared
    assert shared is not None
    words.say(
        f"wrote {out} ({decimal(size)}): what {len(shared.client_ids)} silos have in common, {shared.view} view, "
        f"{plural(shared.n_clusters, 'cluster')}, {plural(model.n_features_in_, 'column')}"
    )
    words.say(f"next, at the newcomer: fmtc join-later --kit {out.name} --data ours.csv --out ours")
    words.give({"out": str(out), "bytes": size, "silos": len(shared.client_ids), "view": shared.view,
                "n_clusters": shared.n_clusters, "n_features": model.n_features_in_})  # fmt: skip


# ------------------------------------------------------------------------------------------------------ join later


@dataclass(frozen=True)
class Newcomer(Output):
    """A silo that joins later."""

    kit: Path = given("--kit", type=PATH, required=True, help="The folder that `fmtc publish` wrote.")
    data: Path = given("--data", type=PATH, required=True, help="Your rows.")
    name: str | None = given("--name", metavar="SILO", help="Your name in the result.  [default: that of the file]")
    guide: str = given("--guide", type=click.Choice(list(GUIDES)), default="auto", show_default=True,
                       help="Follow the federation where its clusters are like your own, always or never.")  # fmt: skip


@main_group.command("join-later", short_help="Join a federation after its run, at home: nothing is sent.")
@flags.takes(newcomer=Newcomer)
@flags.random_state
@flags.quiet
@flags.reading(*ROWS, "obsm", missing=EM)
def join_later(newcomer: Newcomer, random_state: int, reading: Reading, words: Words) -> None:
    """Join a federation after its run: fit your rows at home, with what it published. Nothing is sent.

    Your rows are clustered alone and by the published model. Where both see much the same clusters, your model is
    fitted again with the federation's as a guide; elsewhere you keep your own. Either way clusters have the
    federation's numbers. Writes to --out what `fmtc fit` would; `fmtc predict`, `explain` and `report` read it.

    Examples:
      fmtc join-later --kit kit --data ours.csv --out ours
      fmtc join-later --kit kit --data ours.csv --id patient --name south --out ours
      fmtc join-later --kit kit --data ours.csv --guide never --out ours
    """
    from ..artifacts.models import read_kit
    from ..later.join import join_later as fitted_later
    from ..schema import Schema

    newcomer = replace(newcomer, out=free_path(newcomer.out, newcomer.force, runs.is_run))
    kit = read_kit(newcomer.kit)
    with words.warnings_as_notes():
        known = kit.columns
        named = known
        if known.schema is None and known.names is not None:
            named = replace(known, schema=Schema.of_numbers(known.names))
        (silo,) = read_known([newcomer.data], reading, named, "the federation")
        silo = replace(silo, name=newcomer.name or silo.name)
        X = silo.X if known.schema is None else silo.encoded
        nameless = replace(kit, columns=replace(known, names=None))  # names have been compared
        guide = GUIDES[newcomer.guide]
        model = fitted_later(nameless, X, name=silo.name, guide=guide, random_state=random_state)
        results = runs.results(model, [silo])
    joined = model.run_.joined
    words.say(joined.reason)
    if joined.guided:
        words.say(f"the federation moved {100 * joined.moved:.0f} % of your rows to another cluster")
    if odd := [str(j) for j, like in enumerate(joined.likeness) if like < 0.3]:
        words.note(
            f"of your clusters, {', '.join(odd)} {'is' if len(odd) == 1 else 'are'} like none of the federation's"
        )
    names = kit.names if joined.guided else {}
    files, reading = [newcomer.data], reading.of_texts(known.text)
    _finish(words, newcomer, model, results, files, reading, names, joined=asdict(joined))


def _finish(
    words: Words,
    output: Output,
    model: FMTC,
    results: Sequence[runs.SiloResult],
    files: Sequence[Path],
    reading: Reading,
    names: Mapping[int, str],
    **more: Any,
) -> None:
    """Write what `fmtc fit` would, of a model that was fitted at home; clusters keep the names that they were given."""
    report = runs.report(
        model, results, files=files, as_published=False, seconds=words.seconds, notes=words.notes, reading=reading
    )
    report |= more
    runs.write_run(output.out, output.force, model, results, report, words=word_lookup(files, reading))
    explanation = runs.read_explanation(output.out)
    if names and explanation is not None:
        runs.rename_clusters(output.out, explanation.renamed(names))
    show_run(words, report, output.out)
    words.give({"out": str(output.out), **report})


def _given_names(run: Path) -> dict[int, str]:
    kept = runs.read_explanation(run)
    return {one.cluster: one.given for one in kept.clusters if one.given} if kept else {}


# ---------------------------------------------------------------------------------------------------------- update


@dataclass(frozen=True)
class Rest(Output):
    """The rows that count from now on."""

    silo: str | None = given("--silo", metavar="SILO",
                             help="The silo of all FILES; otherwise each is called after its silo.")  # fmt: skip
    keep_last: int | None = given("--keep-last", type=click.IntRange(1), metavar="N",
                                  help="Only the last N rows of each silo count: a window that forgets.")  # fmt: skip


@main_group.command(short_help="Go on with new rows of a silo, from the model of a run.")
@click.argument("run", type=PATH)
@click.argument("files", nargs=-1, required=True, type=PATH)
@flags.takes(rest=Rest)
@flags.random_state
@flags.quiet
@flags.reading("silo_column", *ROWS, "obsm", missing=EM)
def update(run: Path, files: tuple[Path, ...], rest: Rest, random_state: int, reading: Reading, words: Words) -> None:
    """Go on with new rows: about a quarter of the rounds, and clusters keep their numbers. Nothing is sent.

    A model keeps no rows. FILES are all rows of a silo that count from now on, the oldest first: the old file and the
    new one or, to forget the old rows, the new one alone. Silos without a file keep their models. Writes to --out what
    `fmtc fit` would, with labels of the rows that were given; RUN stays as it is.

    Examples:
      fmtc update run north.csv january.csv --silo north --out run-2          (old rows, then new ones)
      fmtc update run north.csv january.csv --silo north --keep-last 500 --out run-2
      fmtc update run north.csv south.csv --out run-2                           (files called after their silos)
      fmtc update run all.parquet --silo-column site --out run-2
    """
    from ..later.publish import open_run

    rest = replace(rest, out=free_path(rest.out, rest.force, runs.is_run))
    model = open_run(run)
    if not model._models:
        raise FileError(f"{run} is a coordinator's run, which holds no models: silos have theirs at home")
    model.set_params(random_state=random_state)
    recipe = text_recipe(model)
    with words.warnings_as_notes():
        silos = pooled(silos_of(model, files, rest.silo, reading), rest.keep_last)
        names = model.__dict__.pop("feature_names_in_", None)  # they have been compared
        calibrated = [silo.name for silo in silos if model._models[silo.name].calibration]
        model.update({silo.name: silo.encoded for silo in silos})
        results = runs.results(model, silos)
        if names is not None:
            model.feature_names_in_ = names
    if gone := [cid for cid in calibrated if not model._models[cid].calibration]:
        words.note(f"{listed(gone)} {'is' if len(gone) == 1 else 'are'} no longer calibrated, because the model has "
                   "changed: `fmtc fit --calibrate` for --abstain and `fmtc drift`")  # fmt: skip
    there = {silo.name for silo in silos}
    if others := [cid for cid in model.silos_ if cid not in there]:
        words.note(f"no rows of {listed(others)}: models as they were, and no labels in {rest.out}")
    _finish(words, rest, model, results, files, reading.of_texts(recipe), _given_names(run))


# ---------------------------------------------------------------------------------------------------------- report


@main_group.command("report", short_help="Make a page of a run, to look at in a browser.")
@click.argument("run", type=PATH)
@flags.option("--out", type=PATH, help="File to write.  [default: RUN/report.html]")
@flags.switch("--force", help="Replace --out.")
@flags.open_it
def report(run: Path, out: Path | None, force: bool, open_it: bool, words: Words) -> None:
    """Make a page of a run: one HTML file that needs no network, to look at in a browser.

    RUN is the --out folder of `fmtc fit`, `fmtc join` or `fmtc coordinate`. What needs the rows
    (silhouettes, what is gained against staying alone) is there where `fmtc fit` was given --report. With --json,
    everything the page says is printed too.

    Examples:
      fmtc report run
      fmtc report run --out study.html --open
      fmtc report consensus --json | python -m json.tool
    """
    from ..report import needs_jinja, summarise, write_page
    from ..report.page import PAGE

    needs_jinja()
    summary = summarise(run)
    path = run / PAGE if out is None else free_path(out, force)  # what is in the run folder is ours
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(summary, path)
    words.say(f"wrote {path}: {decimal(path.stat().st_size)}")
    if open_it:
        webbrowser.open(path.resolve().as_uri())
    words.give({"out": str(path), **summary})
