"""The command that fits: fit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import tables
from ..artifacts import runs
from ..artifacts.labels import with_labels
from ..errors import UsageError, WriteError
from ..tables.reading import Reading
from . import flags
from .check import every_problem
from .flags import PATH, TABLES, Course, Patience, free_path, given
from .labels import check_tables
from .predict import word_lookup
from .program import if_interrupted, main_group
from .settings import bind_bounds, build_model, model_options, weights_of
from .words import Words, note_table, show_run, size_of

if TYPE_CHECKING:
    import polars as pl

    from ..estimator import FMTC


@dataclass(frozen=True)
class Extras:
    """What a fit writes and learns besides."""

    page: bool = given(
        "--report", is_flag=True,
        help="Also write a page for the browser, report.html; fits again on parts of the rows to measure the gain.",
    )  # fmt: skip
    append: bool = given("--append", is_flag=True,
                         help="Also write the tables with the cluster of each row, to tables/.")  # fmt: skip
    calibrate: bool = given(
        "--calibrate", is_flag=True,
        help="Learn how certain clusters are, for `fmtc predict --abstain` and `fmtc drift`; up to half as long again.",
    )  # fmt: skip


@main_group.command(short_help="Cluster silos, one file each.")
@click.argument("files", nargs=-1, required=True, type=PATH)
@flags.n_clusters
@flags.random_state
@flags.takes(course=Course, extras=Extras)
@flags.switch("--processes",
              help="Run each silo as a process of this machine, over mutual TLS; the result is the same.")  # fmt: skip
@flags.takes(patience=Patience)
@flags.accept_units
@flags.quiet
@flags.reading(*TABLES, judge=True)
@model_options
def fit(
    files: tuple[Path, ...],
    course: Course,
    extras: Extras,
    processes: bool,
    patience: Patience,
    accept_units: bool,
    reading: Reading,
    words: Words,
    **settings: Any,
) -> None:
    """Cluster silos: one file each, or one file with --silo-column.

    FILES are tables with a header (.csv, .tsv, .jsonl, also .gz; .xlsx, .parquet, .feather), matrices (.npy, .npz,
    dense or SciPy sparse) or AnnData (.h5ad). A silo is named after its file. Identifiers are set aside and label the
    output, constant columns are dropped, words with few levels are categories: notes say so, and --columns, --as and
    --schema decide otherwise. With --text-column, rows are texts, and their words are weighted by --scale tfidf unless
    you give another scale. Writes to --out: labels/SILO.csv, model/, schema.toml, outbox/, history.json,
    report.json, explanation.json (see `fmtc explain`) and atlas.json (`fmtc explain --show atlas`); with --report also
    report.html.

    Examples:
      fmtc fit north.csv south.csv west.csv -k 4 --out run
      fmtc fit all.parquet --silo-column site --label-column class --drop zip -k 4 --out run
      fmtc fit north.csv south.csv -k 5 --text-column notes --id-column id --out run
      fmtc fit *.csv -k 4 --as category:sex,cp --missing drop --append --out run
      fmtc fit *.csv -k 4 --schema run/schema.toml --out again
      fmtc fit *.csv -k 4 --out run --report        (and a page to look at: run/report.html)
      fmtc fit *.csv -k 4 --out run --calibrate     (for `fmtc predict --abstain` and `fmtc drift`)
      fmtc fit *.npz -k 10 --beta 0.4 --n-jobs -1 --out run --json > run.json
      fmtc fit *.csv -k 4 --out run --resume        (resume after an interrupt)
      fmtc fit *.csv -k 4 --out run --processes     (a federation on this machine, with the same result)
      fmtc fit --config study.toml                  (with a table [fit])
    """
    from ..report import needs_jinja, summarise, write_page
    from ..report.page import PAGE
    from ..report.rows import POINTS

    if extras.append:
        check_tables(files, "omit --append")
    if extras.page:
        needs_jinja()  # before the work, not after it
    _check_processes(processes, files, patience, reading, course.resume)
    model, weights = build_model(settings, reading, advises=True), weights_of(settings)
    out = free_path(course.out, course.force, runs.is_run)
    with _resumable(words, course, out) as checkpoint:
        more: dict[str, Any] = {}
        with every_problem(files, reading, settings["n_clusters"]), words.warnings_as_notes():
            silos = tables.read_silos(files, reading)
            if reading.recipe is None:
                note_table(words, silos, scaled=model.scale != "none", accept_units=accept_units)
            bind_bounds(model, settings["bounds"], silos[0].schema)
            if processes:
                model = _fit_by_processes(
                    words, model, silos, patience, silo_weights=weights, calibrate=extras.calibrate
                )
                more["missing"] = [silo.name for silo in silos if silo.name not in model.silos_]
                silos = [silo for silo in silos if silo.name in model.silos_]
            else:
                rows = _fit_here(words, model, silos, checkpoint=checkpoint, resume=course.resume, silo_weights=weights)
                if extras.calibrate:
                    model.calibrate(rows)
            if reading.recipe is not None:
                model.text_recipe_ = reading.recipe
            results = runs.results(model, silos, POINTS if extras.page else runs.PROJECTED_ROWS)
        if not settings["as_published"]:
            _note_lone(words, model)
        report = more | runs.report(
            model, results, files=files, as_published=settings["as_published"], seconds=words.seconds,
            notes=words.notes, reading=reading,
        )  # fmt: skip
        details = _studied(words, model, results) if extras.page else {}
        given = _appended(files, results, reading) if extras.append else None
        runs.write_run(out, course.force, model, results, report | details, given, words=word_lookup(files, reading))
        if extras.page:
            write_page(summarise(out), out / PAGE)
    show_run(words, report, out)
    if extras.page:
        words.say(f"wrote {out / PAGE}: open it in a browser")
    words.give({"out": str(out), **report})


@contextmanager
def _resumable(words: Words, course: Course, out: Path) -> Iterator[Path]:
    """Where the rounds of a run are kept until it is written; an earlier one is resumed or, with --force, discarded."""
    checkpoint = out.parent / f".{out.name}.checkpoint"
    course.keep(checkpoint)
    if course.resume and not checkpoint.exists():
        words.note("there is no interrupted run to resume; starting a new one")
    if not course.resume:
        shutil.rmtree(checkpoint, ignore_errors=True)
    try:
        yield checkpoint
    except KeyboardInterrupt:
        if checkpoint.exists():
            if_interrupted("; the same command with --resume continues from the last round")
        raise
    except WriteError as error:
        if not checkpoint.exists():
            raise
        raise UsageError(
            f"{error}. Make room, and repeat the command with --resume: it continues from the last round"
        ) from None
    shutil.rmtree(checkpoint, ignore_errors=True)


def _fit_here(words: Words, model: FMTC, silos: Sequence[tables.Silo], **how: Any) -> dict[str, Any]:
    from .live import Rounds

    with Rounds(words, model.max_iter, model.tol, f"{size_of(silos)}: preparing rows") as rounds:
        rows = {silo.name: silo.encoded for silo in silos}
        model.fit(rows, callbacks=[rounds], **how)
    return rows


def _fit_by_processes(words: Words, model: FMTC, silos: Sequence[tables.Silo], patience: Patience, **how: Any) -> FMTC:
    from ..estimator import federate
    from .live import View

    names = {str(place): silo.name for place, silo in enumerate(silos, start=1)}
    with View(words, names, f"{size_of(silos)}: starting processes", model.max_iter, model.tol) as view:
        rows = {silo.name: silo.encoded for silo in silos}
        model = federate(rows, model, listen=view, min_silos=patience.min_clients, deadline=patience.deadline, **how)
    for name in names.values():
        if name not in model.silos_:
            words.note(f"silo {name!r} was lost and has no model")
    return model


def _studied(words: Words, model: FMTC, results: Sequence[runs.SiloResult]) -> dict[str, Any]:
    """What only the page of a run says."""
    from ..report import study

    with nullcontext() if words.quiet else words.console.status("scoring silos alone, and rows held out"):
        return {"details": study(model, results)}


def _note_lone(words: Words, model: FMTC) -> None:
    """Name the silos that are like no other, unless a warning of fit has named them."""
    from ..describe import lone_words

    lone = [silo for silo in model.atlas_.lone if not any(repr(silo) in note for note in words.notes)]
    if lone and len(model.silos_) > 1:
        words.note(lone_words(lone))


def _check_processes(
    processes: bool, files: Sequence[Path], patience: Patience, reading: Reading, resume: bool
) -> None:
    """Refuse what a federation of processes cannot do, and what only such a one can."""
    if not processes:
        if patience.min_clients is not None:
            raise click.UsageError("--min-silos is for --processes")
        return
    patience.check(len(files))
    if reading.silo_column is not None:
        raise click.UsageError("a federation has one file per silo; omit --processes, or --silo-column")
    if reading.obsm is not None:
        raise click.UsageError("a federation reads tables and matrices; omit --processes, or --obsm")
    if resume:
        raise click.UsageError("processes of this machine are not resumed; omit --processes, or --resume")


def _appended(files: Sequence[Path], results: Sequence[runs.SiloResult], reading: Reading) -> dict[str, pl.DataFrame]:
    """The tables as they were given, each with the cluster and its probability."""
    from ..tables.formats import read_file, stem_of

    found = {}
    for file in files:
        own = [r for r in results if len(files) == 1 or r.silo.name == stem_of(file)]
        told = [r.silo for r in own], [r.labels for r in own], [r.probabilities for r in own]
        found[stem_of(file)] = with_labels(read_file(file, reading), *told)
    return found
