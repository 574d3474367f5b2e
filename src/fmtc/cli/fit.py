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
from .predict import check_tables, word_lookup
from .program import if_interrupted, main_group
from .settings import bind_bounds, build_model, model_options
from .words import Words, note_table, show_run, size_of

if TYPE_CHECKING:
    import polars as pl

    from ..estimator import FMTC


@dataclass(frozen=True)
class Fitting(Patience, Course):
    """Where a fit goes, what it writes and learns besides, and where it runs."""

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
    processes: bool = given("--processes", is_flag=True,
                            help="Run each silo as a process of this machine; the result is the same.")  # fmt: skip

    def check_flags(self, files: Sequence[Path]) -> None:
        """Refuse flags that cannot be used together, or with these files, before the work."""
        from ..report import needs_jinja

        if self.append:
            check_tables(files, "omit --append")
        if self.page:
            needs_jinja()
        if self.processes and self.resume:
            raise click.UsageError("processes of this machine are not resumed; omit --processes, or --resume")
        if self.min_clients is not None and not self.processes:
            raise click.UsageError("--min-silos is for --processes")


@main_group.command(short_help="Cluster silos, one file each.")
@click.argument("files", nargs=-1, required=True, type=PATH)
@flags.n_clusters
@flags.random_state
@flags.takes(how=Fitting)
@flags.accept_units
@flags.quiet
@flags.reading(*TABLES, judge=True)
@model_options
def fit(
    files: tuple[Path, ...], how: Fitting, accept_units: bool, reading: Reading, words: Words, **settings: Any
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
      fmtc fit *.npz -k 10 --set beta=0.4 --n-jobs -1 --out run --json > run.json
      fmtc fit *.csv -k 4 --out run --resume        (resume after an interrupt)
      fmtc fit *.csv -k 4 --out run --processes     (a federation on this machine, with the same result)
      fmtc fit --config study.toml                  (with a table [fit])
    """
    from ..report import summarise, write_page
    from ..report.page import PAGE
    from ..report.rows import POINTS

    how.check_flags(files)
    model = build_model(settings, reading)
    out = free_path(how.out, how.force, runs.is_run)
    with _resumable(words, how, out) as checkpoint:
        with every_problem(files, reading, settings["n_clusters"]), words.warnings_as_notes():
            given = tables.read_silos(files, reading)
            if reading.recipe is None:
                note_table(words, given, scaled=model.scale != "none", accept_units=accept_units)
            bind_bounds(model, settings["bounds"], given[0].schema)
            model = _fitted(words, model, given, how, checkpoint=checkpoint, silo_weights=settings["silo_weights"])
            if reading.recipe is not None:
                model.text_recipe_ = reading.recipe
            silos = [silo for silo in given if silo.name in model.silos_]
            results = runs.results(model, silos, POINTS if how.page else runs.PROJECTED_ROWS)
        if not settings["as_published"]:
            _note_lone(words, model)
        report = runs.report(
            model, results, files=files, as_published=settings["as_published"], seconds=words.seconds,
            notes=words.notes, reading=reading,
        )  # fmt: skip
        if how.processes:
            report["missing"] = [silo.name for silo in given if silo not in silos]
        details = _studied(words, model, results) if how.page else {}
        tabled = _appended(files, results, reading) if how.append else None
        runs.write_run(out, how.force, model, results, report | details, tabled, words=word_lookup(files, reading))
        if how.page:
            write_page(summarise(out), out / PAGE)
    show_run(words, report, out)
    if how.page:
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


def _fitted(
    words: Words, model: FMTC, silos: Sequence[tables.Silo], how: Fitting, checkpoint: Path, silo_weights: Any
) -> FMTC:
    """The model, fitted in this process or by one for each silo."""
    from ..processes import federate
    from .live import Rounds

    rows = {silo.name: silo.encoded for silo in silos}
    if not how.processes:
        with Rounds(words, f"{size_of(silos)}: preparing rows", model.max_iter, model.tol) as rounds:
            model.fit(rows, callbacks=[rounds], silo_weights=silo_weights, checkpoint=checkpoint, resume=how.resume)
        return model.calibrate(rows) if how.calibrate else model
    how.check(len(silos))
    names = {str(place): name for place, name in enumerate(rows, start=1)}
    with Rounds(words, f"{size_of(silos)}: starting processes", model.max_iter, model.tol, names) as rounds:
        model = federate(
            rows, model, silo_weights=silo_weights, calibrate=how.calibrate, min_silos=how.min_clients,
            deadline=how.deadline, listen=rounds.hear,
        )  # fmt: skip
    for name in rows:
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
    from ..describe.words import lone_words

    lone = [silo for silo in model.atlas_.lone if not any(repr(silo) in note for note in words.notes)]
    if lone and len(model.silos_) > 1:
        words.note(lone_words(lone))


def _appended(files: Sequence[Path], results: Sequence[runs.SiloResult], reading: Reading) -> dict[str, pl.DataFrame]:
    """The tables as they were given, each with the cluster and its probability."""
    found = {}
    for file in files:
        stem = tables.formats.stem_of(file)
        own = [one for one in results if len(files) == 1 or one.silo.name == stem]
        told = [one.silo for one in own], [one.labels for one in own], [one.probabilities for one in own]
        found[stem] = with_labels(tables.formats.read_file(file, reading), *told)
    return found
