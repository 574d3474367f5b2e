"""Commands about models: fit, predict and export; what `explain` shows of labels and models."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.filesize import decimal
from rich.text import Text

from ..artifacts import runs
from ..artifacts.files import check_form, file_names, new_file, read_json, write_file
from ..errors import DataError, FileError, UsageError, WriteError, listed
from ..tables.reading import Reading
from ..wording import FLAGS
from .check import every_problem
from .explain import show_atlas
from .federation import check_count, fit_by_processes
from .options import (
    ROWS,
    TABLES,
    accept_units_option,
    deadline_option,
    free_path,
    min_clients_option,
    n_clusters_option,
    out_option,
    quiet_option,
    random_state_option,
    reading_options,
)
from .program import Option, main_group
from .settings import bind_bounds, build_model, model_options
from .terminal import printable
from .words import (
    Rounds,
    Words,
    new_console,
    new_table,
    note_table,
    plural,
    print_json,
    show,
    show_indented,
    show_run,
    size_of,
)  # fmt: skip

if TYPE_CHECKING:
    import polars as pl

    from ..estimator import FMTC

# ------------------------------------------------------------------------------------------------------------ fit

HOW_ENDED = {True: ", converged", False: ", all that were allowed", None: ""}  # None: a silo that was not told


@main_group.command(
    short_help="Cluster silos, one file each.",
    epilog="""\b
Examples:
  fmtc fit north.csv south.csv west.csv -k 4 --out run
  fmtc fit all.parquet --client-column site --label-column class --drop zip -k 4 --out run
  fmtc fit north.csv south.csv -k 5 --text-column notes --id-column id --out run
  fmtc fit *.csv -k 4 --as category:sex,cp --missing drop --append --out run
  fmtc fit *.csv -k 4 --schema run/schema.toml --out again
  fmtc fit *.csv -k 4 --out run --report        (and a page to look at: run/report.html)
  fmtc fit *.csv -k 4 --out run --calibrate     (for `fmtc predict --abstain` and `fmtc drift`)
  fmtc fit *.npz -k 10 --beta 0.4 --n-jobs -1 --out run --json > run.json
  fmtc fit *.csv -k 4 --out run --resume        (resume after an interrupt)
  fmtc fit *.csv -k 4 --out run --processes     (a federation on this machine, with the same result)
  fmtc fit --config study.toml                  (with a table [fit])""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@n_clusters_option
@out_option
@random_state_option
@click.option("--force", is_flag=True, cls=Option, help="Replace --out, and forget an interrupted run.")
@click.option("--resume", is_flag=True, cls=Option, help="Resume an interrupted run of the same command.")
@click.option(
    "--report",
    "with_page",
    is_flag=True,
    cls=Option,
    help="Also write a page for the browser, report.html; fits again on parts of the rows to measure the gain.",
)
@click.option(
    "--append", is_flag=True, cls=Option, help="Also write the tables with the cluster of each row, to tables/."
)
@click.option(
    "--calibrate", is_flag=True, cls=Option,
    help="Learn how certain clusters are, for `fmtc predict --abstain` and `fmtc drift`; up to half as long again.",
)  # fmt: skip
@click.option(
    "--processes", is_flag=True, cls=Option,
    help="Run each silo as a process of this machine, as in a federation: mutual TLS, and the same result.",
)  # fmt: skip
@min_clients_option
@deadline_option
@accept_units_option
@quiet_option
@reading_options(*TABLES, judge=True)
@model_options
@click.pass_context
def fit(
    ctx: click.Context,
    /,
    files: tuple[Path, ...],
    out: Path,
    force: bool,
    resume: bool,
    with_page: bool,
    append: bool,
    calibrate: bool,
    processes: bool,
    min_clients: int | None,
    deadline: float,
    accept_units: bool,
    quiet: bool,
    reading: Reading,
    as_published: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Cluster silos: one file each, or one file with --client-column.

    FILES are tables with a header (.csv, .tsv, .jsonl, also .gz; .xlsx, .parquet, .feather), matrices (.npy, .npz,
    dense or SciPy sparse) or AnnData (.h5ad). A silo is named after its file. Identifiers are set aside and label the
    output, constant columns are dropped, words with few levels are categories: notes say so, and --columns, --as and
    --schema decide otherwise. With --text-column, rows are texts, and their words are weighted by --scale tfidf unless
    you give another scale. Writes to --out: labels/SILO.csv, model/, schema.toml, outbox/, history.json,
    report.json, explanation.json (see `fmtc explain`) and atlas.json (`fmtc explain --show atlas`); with --report also
    report.html.
    """
    from ..describe import lone_words
    from ..report import needs_jinja, study, summarise, write_page
    from ..report.page import PAGE
    from ..report.rows import POINTS
    from ..tables import read_silos

    started = time.perf_counter()
    words = Words(quiet)
    if append:
        _check_tables(files, "omit --append")
    if with_page:
        needs_jinja()  # before the work, not after it
    if processes:
        _check_processes(reading, resume)
        check_count("--min-clients", min_clients, len(files))
    elif min_clients is not None:
        raise click.UsageError("--min-clients is for --processes")
    recipe = reading.recipe
    if recipe is not None and settings["scale"] is None:
        settings["scale"] = "tfidf"
    if calibrate:
        settings["solver"] = {**settings["solver"], "calibration": "folds"}
    model = build_model(settings, as_published, advises=True)
    out = free_path(out, force, runs.is_run)
    checkpoint = out.parent / f".{out.name}.checkpoint"
    _check_resume(words, checkpoint, resume, force)
    try:
        about: dict[str, Any] = {}
        with every_problem(files, reading, settings["n_clusters"]), words.warnings_as_notes():
            silos = read_silos(files, reading)
            if recipe is None:
                note_table(words, silos, scaled=model.scale != "none", accept_units=accept_units)
            bind_bounds(model, settings["bounds"], silos[0].schema)
            if processes:
                how = {"min_clients": min_clients, "deadline": deadline}
                silos, about["missing"] = fit_by_processes(words, model, silos, files, reading, **how)
            else:
                with Rounds(words, model.max_iter, model.tol, f"{size_of(silos)}: preparing rows") as rounds:
                    rows = {silo.name: silo.encoded for silo in silos}
                    model.fit(rows, callbacks=[rounds], checkpoint=checkpoint, resume=resume)
            if recipe is not None:
                model.text_recipe_ = recipe
            results = runs.results(model, silos, POINTS if with_page else runs.PROJECTED_ROWS)
        if len(silos) > 1 and not as_published:  # a warning of fit may have named some
            lone = [silo for silo in model.atlas_.lone if not any(repr(silo) in note for note in words.notes)]
            if lone:
                words.note(lone_words(lone))
        seconds = time.perf_counter() - started
        report = about | runs.report(
            model, results, files=files, as_published=as_published, seconds=seconds, notes=words.notes, reading=reading
        )
        details = {}
        if with_page:
            looking = words.console.status("scoring silos alone, and rows held out")
            with nullcontext() if quiet else looking:
                details["details"] = study(model, results)
        lookup = None if recipe is None else word_lookup(files, reading)
        tables = _appended(files, results, reading) if append else None
        runs.write_run(out, force, model, results, report | details, tables, words=lookup)
        if with_page:
            write_page(summarise(out), out / PAGE)
    except KeyboardInterrupt:
        if checkpoint.exists():
            ctx.meta["fmtc.interrupted"] = "; the same command with --resume continues from the last round"
        raise
    except WriteError as error:
        if not checkpoint.exists():
            raise
        raise UsageError(
            f"{error}. Make room, and repeat the command with --resume: it continues from the last round"
        ) from None
    shutil.rmtree(checkpoint, ignore_errors=True)

    show_run(words, report, out)
    if with_page:
        words.say(f"wrote {out / PAGE}: open it in a browser")
    if as_json:
        print_json({"out": str(out), **report})


def _check_processes(reading: Reading, resume: bool) -> None:
    """Refuse what a federation of processes cannot do."""
    if reading.silo_column is not None:
        raise click.UsageError("a federation has one file per silo; omit --processes, or --client-column")
    if reading.obsm is not None:
        raise click.UsageError("a federation reads tables and matrices; omit --processes, or --obsm")
    if resume:
        raise click.UsageError("processes of this machine are not resumed; omit --processes, or --resume")


def word_lookup(files: Sequence[Path], reading: Reading) -> Callable[[Sequence[int]], Mapping[int, str]]:
    """What finds the words of some columns, in the texts that the columns were made of."""
    from ..tables import column_words, read_texts

    def lookup(columns: Sequence[int]) -> Mapping[int, str]:
        return column_words(read_texts(files, reading), columns, reading.salt, reading.n_buckets)

    return lookup


def _check_tables(files: Sequence[Path], advice: str) -> None:
    from ..tables.formats import suffix_of

    for file in files:
        if suffix_of(file) == ".h5ad":
            advice += f", and write clusters into obs afterwards: fmtc explain RUN --join {file} --out NEW.h5ad"
        if suffix_of(file) in (".npy", ".npz", ".h5ad"):
            raise click.UsageError(f"{file} is a matrix without a table to append to; {advice}")


def _appended(files: Sequence[Path], results: Sequence[runs.SiloResult], reading: Reading) -> dict[str, pl.DataFrame]:
    """The tables as they were given, each with the cluster and its probability."""
    from ..tables.formats import read_file, stem_of

    found = {}
    for file in files:
        own = [r for r in results if len(files) == 1 or r.silo.name == stem_of(file)]
        rows = np.concatenate([r.silo.rows for r in own])
        labels = np.concatenate([r.labels for r in own])
        sure = np.concatenate([r.probabilities[np.arange(len(r.labels)), r.labels] for r in own])
        found[stem_of(file)] = runs.with_labels(read_file(file, reading), rows, labels, sure)
    return found


def _check_resume(words: Words, checkpoint: Path, resume: bool, force: bool) -> None:
    """An interrupted run is resumed or, only with --force, discarded."""
    if resume and not checkpoint.exists():
        words.note("there is no interrupted run to resume; starting a new one")
    if checkpoint.exists() and not resume:
        if not force:
            raise click.UsageError(
                f"{checkpoint} holds an interrupted run; resume it with --resume, or start again with --force"
            )
        shutil.rmtree(checkpoint)


# -------------------------------------------------------------------------------------------------------- predict


@main_group.command(
    short_help="Cluster new rows with a model.",
    epilog="""\b
Examples:
  fmtc predict run new.csv --client north --out labels.csv
  fmtc predict run new.csv --client north --id patient --proba --outliers
  fmtc predict run new.csv --client north --append --out new-with-clusters.csv
  fmtc predict run new.csv --client north --abstain 0.1    (of a run that was fitted with --calibrate)
  fmtc predict run all.parquet --client-column site --json""",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--client", metavar="SILO", cls=Option, help="The silo whose model is used; needed where there are many.")
@click.option("--out", type=click.Path(path_type=Path), cls=Option, help="File to write instead of standard output.")
@click.option("--proba", is_flag=True, cls=Option, help="Add the probability of every cluster.")
@click.option("--outliers", is_flag=True, cls=Option, help="Add a column: whether a row is far from all clusters.")
@click.option("--abstain", type=click.FloatRange(0, 1, max_open=True), metavar="SHARE", cls=Option,
              help="Cluster -1 for this share of rows, the least certain; adds their confidence.")  # fmt: skip
@click.option("--append", is_flag=True, cls=Option, help="Write the whole table, with cluster and probability.")
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
@reading_options("silo_column", *ROWS, "obsm")
def predict(
    run: Path,
    file: Path,
    client: str | None,
    out: Path | None,
    proba: bool,
    outliers: bool,
    abstain: float | None,
    append: bool,
    force: bool,
    reading: Reading,
    as_json: bool,
) -> None:
    """Cluster new rows with a model: CSV to standard output, one line per row of FILE.

    RUN is the --out folder of `fmtc fit`, or a model folder. The columns of the model must be there, in any order;
    others are ignored, and the identifiers that `fmtc fit` set aside label the output. A file called after a silo
    needs no --client. A model of texts knows the name of their column; --text-column gives another.
    """
    words = Words()
    if append and proba:
        raise click.UsageError("--append adds the cluster and its probability; omit --proba")
    if append:
        _check_tables([file], "omit --append")
    if out is not None:
        out = free_path(out, force)
    with words.warnings_as_notes():
        model, silos, name = rows_for_model(words, run, file, client, reading)
        if outliers and model.view_ != "mixture":
            raise click.UsageError("--outliers needs a model of the mixture view: fit with --view mixture")
        labels, P, far, sure_of = [], [], [], []
        for silo in silos:
            labels.append(model.predict(silo.X, clients=name or silo.name))
            P.append(model.predict_proba(silo.X, clients=name or silo.name))
            if abstain is not None:
                sure_of.append(model.confidence(silo.X, clients=name or silo.name))
            if model.view_ == "mixture":
                far.append(model.predict_outliers(silo.X, clients=name or silo.name))
    if n_far := sum(int(rows.sum()) for rows in far):
        words.note(
            f"{n_far:,} of {plural(sum(map(len, far)), 'row')} {'is' if n_far == 1 else 'are'} far from all clusters; "
            "a probability there says which cluster is nearest, not that a row belongs to it"
            + ("" if outliers else " (--outliers marks such rows)")
        )
    if append:
        from ..tables.formats import read_file

        sure = np.concatenate([p[np.arange(len(own)), own] for own, p in zip(labels, P, strict=True)])
        rows = np.concatenate([silo.rows for silo in silos])
        marks = np.concatenate(far) if outliers else None
        known = np.concatenate(sure_of) if sure_of else None
        table = runs.with_labels(read_file(file, reading), rows, np.concatenate(labels), sure, marks, confidence=known)
    else:
        marked = far if outliers else None
        table = runs.label_table(
            silos, labels, P, clients=reading.silo_column is not None, proba=proba, outliers=marked,
            confidence=sure_of or None,
        )  # fmt: skip
    table = runs.with_names(table, run)
    if abstain is not None:
        table, left = runs.without_doubtful(table, abstain)
        words.note(
            f"{left:,} of {plural(table.height, 'row')} ({left / max(table.height, 1):.0%}) "
            f"{'has' if left == 1 else 'have'} no cluster (-1): confidence below {abstain:g}"
        )
    _give(words, table, out, as_json)


def rows_for_model(
    words: Words, run: Path, file: Path, client: str | None, reading: Reading
) -> tuple[FMTC, list[Any], str | None]:
    """The model of a run, the silos of a file of new rows, and whose model is meant for all; None: each its own.

    Parameters
    ----------
    words : Words
        To note what the user should know.
    run, file : Path
    client : str, optional
        The silo, as it was given.
    reading : Reading
    """
    from ..estimator import load
    from ..tables import read_silos
    from ..tables.formats import stem_of

    divided = reading.silo_column is not None
    if client is not None and divided:
        raise click.UsageError("give --client for all rows or --client-column for each, not both")
    model = load(runs.model_folder(run))
    if client is None and not divided and len(model.client_ids_) > 1:
        client = stem_of(file) if stem_of(file) in model.client_ids_ else None
    name = None if divided else _one_client(model, client)
    schema = runs.schema_of(model, run)
    known = getattr(model, "feature_names_in_", None)
    recipe = getattr(model, "text_recipe_", None)
    if recipe is None and reading.text_column is not None:
        raise click.UsageError(f"the model is of {plural(model.n_features_in_, 'column')} of numbers, not of texts")
    silos = read_silos([file], reading.for_model(schema, recipe))
    width, named = silos[0].X.shape[1], silos[0].feature_names is not None
    if width != model.n_features_in_:
        raise DataError(f"{file} has {width} columns of numbers, the model has {model.n_features_in_}")
    if unknown := [silo.name for silo in silos if name is None and silo.name not in model.client_ids_]:
        raise DataError(
            f"--client-column: {file} has rows of {listed(unknown)}, and the model is of silos "
            f"{listed(model.client_ids_)}"
        )
    if named != (known is not None):
        words.note(f"{'the model' if named else file.name} has no column names; columns are matched by their order")
    if known is not None:
        del model.feature_names_in_  # names have been compared
    return model, silos, name


def _give(
    words: Words, table: Any, out: Path | None, as_json: bool, write: Callable[[Path], None] | None = None
) -> None:
    """Write a table to a file, or to standard output; as JSON, to standard output in any case."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write(out) if write is not None else write_file(out, runs.as_csv(table))
        words.say(f"wrote {out}: {plural(table.height, 'row')}")
    if as_json:
        print_json({"rows": table.height, "notes": words.notes, "columns": table.to_dict(as_series=False)})
    elif out is None and sys.stdout.isatty():
        click.echo(printable(runs.as_csv(table).decode()), nl=False)
    elif out is None:
        click.echo(runs.as_csv(table), nl=False)


def _one_client(model: FMTC, client: str | None) -> str:
    if client is None and len(model.client_ids_) == 1:
        return model.client_ids_[0]
    if client is None or client not in model.client_ids_:
        wanted = "give --client" if client is None else f"it has no {client!r}"
        raise click.UsageError(f"the model is of silos {', '.join(map(repr, model.client_ids_))}; {wanted}")
    return client


# --------------------------------------------------------------------------------------------------------- labels


def give_labels(
    run: Path,
    table_path: Path | None,
    client: str | None,
    id_column: str | None,
    client_column: str | None,
    no_header: bool,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show the labels of a run as one table, or add them to the rows of another."""
    from ..tables.formats import read_file, suffix_of

    words, write = Words(), None
    if out is not None:
        out = free_path(out, force)
    known = runs.read_labels(run)
    if client is not None:
        if client not in known:
            raise click.UsageError(f"the run is of silos {listed(known)}; it has no {client!r}")
        known = {client: known[client]}
    if table_path is None:
        if id_column is not None or client_column is not None or no_header:
            raise click.UsageError("--id, --client-column and --no-header are about the table of --join")
        table = runs.all_labels(known)
    elif suffix_of(table_path) == ".h5ad":
        given, added = _into_obs(run, known, table_path, out, id_column, client_column)
        write, table = partial(_write_obs, table_path, added), given.hstack(added)
    else:
        _check_tables([table_path], "give a table")
        given = read_file(table_path, Reading(header=False if no_header else None, wording=FLAGS))
        table = runs.with_names(runs.join_labels(given, known, table_path, id_column, client_column), run)
    cluster = next(name for name in reversed(table.columns) if name in ("fmtc_cluster", "cluster"))
    n_labelled = table.height - table.get_column(cluster).null_count()
    if n_labelled < table.height:
        words.note(f"{plural(table.height - n_labelled, 'row')} of {table_path} without a label in {run}")
    _give(words, table, out, as_json, write)


def _write_obs(file: Path, added: pl.DataFrame, out: Path) -> None:
    """A copy of a file of AnnData with more columns in obs."""
    from ..tables.annotated import add_obs

    with new_file(out) as copy:
        shutil.copyfile(file, copy)
        add_obs(copy, added)


def _into_obs(
    run: Path,
    known: Mapping[str, pl.DataFrame],
    file: Path,
    out: Path | None,
    id_column: str | None,
    client_column: str | None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table obs of a file of AnnData with names of rows, and the columns to add: clusters are categories there."""
    import polars as pl

    from ..tables.annotated import read_obs

    if out is None or out.suffix.lower() != ".h5ad":
        raise click.UsageError(f"clusters go into a copy of {file}: name it with --out, such as --out new.h5ad")
    ids, given = read_obs(file)
    key = next(iter(known.values())).columns[0]
    if id_column is None and key != "row" and key not in given.columns:
        given = given.insert_column(0, pl.Series(key, ids)) if given.width else pl.DataFrame({key: ids})
    elif not given.width:
        given = pl.DataFrame({"obs_names": ids})
    table = runs.with_names(runs.join_labels(given, known, file, id_column, client_column), run)
    new = [name for name in table.columns if name not in given.columns]
    return given, table.select(pl.col(name).cast(pl.String) if "cluster" in name else pl.col(name) for name in new)


# -------------------------------------------------------------------------------------------------------- inspect


def show_model(run: Path, top: int, as_json: bool) -> None:
    """Show what a model is: silos, features, clusters, how its rounds ended, file sizes."""
    from ..estimator import load

    folder = runs.model_folder(run)
    model = load(folder)
    if (schema := runs.schema_of(model, run)) is not None:
        model.schema_ = schema
    recipe = getattr(model, "text_recipe_", None)
    history = model.history_  # empty where a model was kept without its rounds
    about: dict[str, Any] = {
        "model": str(folder),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
        "n_clusters": model.n_concepts_,
        "n_features": model.n_features_in_,
        "feature_names": getattr(model, "feature_names_in_", None),
        "text": None if recipe is None else asdict(recipe),
        "settings": model._params(),
        "n_iter": model.n_iter_,
        "view": model.view_,
        "converged": model.converged_,
        "stopped_because": model.stopped_because_,
        "last_round": asdict(history[-1]) if history else None,
        "bytes_up": sum(record.bytes_up for record in history) if history else None,
        "bytes_down": sum(record.bytes_down for record in history) if history else None,
        "clients": {cid: _about_client(model, folder, cid, top) for cid in model.client_ids_},
    }
    if as_json:
        print_json(about)
    else:
        _show_model(about)


def show_atlas_of(run: Path, as_json: bool) -> None:
    """Show the concepts of a run: name, share in each silo, features, how alike silos are."""
    from ..estimator import load_atlas

    found = load_atlas(run)
    if as_json:
        print_json(found.to_dict())
    else:
        show_atlas(new_console(), found)


def show_wire(as_json: bool) -> None:
    """The declarations of all messages of a run."""
    from ..protocol.auto import METHOD
    from ..protocol.base import LETTERS, declared
    from ..protocol.method import COMMON

    phases = declared((*COMMON, *METHOD.phases))
    if as_json:
        print_json({"letters": LETTERS, "phases": phases})
        return
    console = new_console()
    for phase in phases:
        show(console, Text.assemble((phase["phase"], "bold"), f" ({phase['doing']})"))
        for title, fields in (("asked", phase["asks"]), ("answer", phase["answers"])):
            if not fields:
                show_indented(console, Text(f"{title}: nothing"))
            for field in fields:
                when = "" if field["when"] == "always" else f" ({field['when']})"
                shape = f", {field['shape']}: {field['what']}{when}"
                show_indented(console, Text.assemble(f"{title}: ", (field["name"], "bold"), shape))
                show_indented(console, Text(f"can tell: {field['tells']}", "dim"), 10)
        console.print()
    show(console, Text("In shapes: " + ", ".join(f"{letter} {what}" for letter, what in LETTERS.items()) + "."))


def show_influence(run: Path, as_json: bool) -> None:
    """Who pulls whom in a run, from its report.json."""
    if not (run / "report.json").is_file():
        raise FileError(f"{run} is not the folder of a run: it has no report.json, which says who pulls whom")
    found = read_json(run / "report.json", {"trust?": (dict, None)}).get("trust")
    if found is None:
        raise FileError(
            f"{run} does not say who pulls whom: it was written by an older version of fmtc, or by one silo"
        )
    check_form(run / "report.json", found, runs.TRUST, "trust")
    if as_json:
        print_json(found)
        return
    console, clients, rounds = new_console(), found["clients"], found["rounds"]
    table = new_table()
    for title in ("silo", "affinity", "capped", "weighed down", "kept"):
        table.add_column(title, justify="left" if title in ("silo", "kept") else "right")
    for line in clients:
        affinity = "" if line["affinity"] is None else f"{line['affinity']:.2f}"
        kept = {"federated": "common model", "alone": "its own model", None: ""}[line["kept"]]
        table.add_row(
            Text(line["silo"]), affinity, f"{line['capped']} of {rounds}", f"{line['odd']} of {rounds}", Text(kept)
        )
    console.print(table)
    held = [line["silo"] for line in clients if line["held"]]
    nobody = "Nobody was set aside or refused, nor capped in half of the rounds or more."
    show(console, Text(f"Held: {', '.join(held)}." if held else nobody))
    pulls = found["influence"]
    if pulls is None:
        show(console, Text("Who pulls whom is known for 2 to 64 silos, where a run had them in one place."))
        return
    console.print()
    table = new_table()
    table.add_column("moves, without")
    for line in clients[: len(pulls)]:
        table.add_column(Text(line["silo"]), justify="right")
    for line, row in zip(clients, pulls, strict=False):
        cells = ["" if t == clients.index(line) else f"{value:.3f}" for t, value in enumerate(row)]
        table.add_row(Text(line["silo"]), *cells)
    console.print(table)
    show(
        console,
        Text("Each row: how far a silo's part of the common model moves when the silo of a column is left out."),
    )


def _about_client(model: FMTC, folder: Path, cid: str, top: int) -> dict[str, Any]:
    file = f"{file_names(model.client_ids_)[cid]}.safetensors"
    names, signatures = _signatures(model, cid)
    return {
        "file": file,
        "bytes": (folder / file).stat().st_size,
        "dtype": str(model.cluster_centers_[cid].dtype),
        "top_features": [
            [{"feature": names[j], "weight": float(signature[j])} for j in np.argsort(-np.abs(signature))[:top]]
            for signature in signatures
        ],
    }


def _signatures(model: FMTC, cid: str) -> tuple[list[str], np.ndarray]:
    """Names of columns, and how each cluster of a silo lies along them in their common units; lifted, along none."""
    names = getattr(model, "feature_names_in_", None)
    names = [f"column {j}" for j in range(model.n_features_in_)] if names is None else [str(name) for name in names]
    schema = getattr(model, "schema_", None)
    if schema is not None and not schema.is_plain:
        numbers = [column.name for column in schema.columns if not column.levels]
        names = numbers + [f"{column.name}={level}" for column in schema.columns for level in column.levels]
    signatures, columns = model._models[cid].directions()
    return [names[j] for j in columns], signatures


def _show_model(about: Mapping[str, Any]) -> None:
    from ..runtime.driver import RoundRecord

    console = new_console()
    last, clients = about["last_round"], about["clients"]
    features = plural(about["n_features"], "feature") + ("" if about["feature_names"] is not None else " without names")
    facts = {
        "model": f"{about['model']} ({decimal(about['bytes'])})",
        "holds": f"{plural(len(clients), 'silo')}, {features}, {plural(about['n_clusters'], 'cluster')}",
        "rounds": f"{about['n_iter']}{HOW_ENDED[about['converged']]}",
        "stopped": about["stopped_because"],
        "view": about["view"],
    }
    if about["text"] is not None:
        facts["reads"] = f"texts in column {about['text']['text_column']!r}"
    if last is None:
        facts["standing"] = facts["traffic"] = "not kept with this model"
    else:
        facts["standing"] = f"{RoundRecord.from_dict(last).standing} in the last round"
        facts["traffic"] = f"{decimal(about['bytes_up'])} from the silos, {decimal(about['bytes_down'])} to them"
    for name, fact in facts.items():
        show(console, Text.assemble((f"{name:<11}", "bold"), fact))
    console.print()
    table = new_table()
    for title in ("silo", "file", "cluster", "most important features"):
        table.add_column(title, justify="right" if title == "cluster" else "left")
    for cid, client in clients.items():
        for j, marks in enumerate(client["top_features"]):
            shown = "  ".join(f"{'-' if mark['weight'] < 0 else '+'}{mark['feature']}" for mark in marks)
            first = (Text(cid), Text(f"{client['file']} ({decimal(client['bytes'])})")) if j == 0 else ("", "")
            table.add_row(*first, str(j), Text(shown))
        table.add_section()
    console.print(table)
    if not any(marks for client in clients.values() for marks in client["top_features"]):
        lifted = "The graph view has replaced the columns by others (lift), so none has a weight of its own."
        show(console, Text(f"{lifted} `fmtc explain` says what the clusters are."))


# --------------------------------------------------------------------------------------------------------- export


@main_group.command(
    short_help="Write one silo's model as an ONNX file.",
    epilog="""\b
Examples:
  fmtc export run --client north --onnx north.onnx
  fmtc export run --client north --onnx north.onnx --float64 --force""",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--client", metavar="SILO", cls=Option, help="The silo whose model is written; needed where there are many."
)
@click.option("--onnx", type=click.Path(path_type=Path), required=True, cls=Option, help="File to write.")
@click.option("--float64", is_flag=True, cls=Option, help="Double precision; otherwise single.")
@click.option("--force", is_flag=True, cls=Option, help="Replace the file.")
def export(run: Path, client: str | None, onnx: Path, float64: bool, force: bool, as_json: bool) -> None:
    """Write one silo's model as an ONNX file: from X (rows x features) to label and probability.

    RUN is the --out folder of `fmtc fit`, or a model folder.
    """
    from ..estimator import load

    words = Words()
    onnx = free_path(onnx, force)
    model = load(runs.model_folder(run))
    client = _one_client(model, client)
    onnx.parent.mkdir(parents=True, exist_ok=True)
    model.export_onnx(client, onnx, dtype=np.float64 if float64 else np.float32)
    words.say(
        f"wrote {onnx}: silo {client!r}, {plural(model.n_features_in_, 'feature')}, {decimal(onnx.stat().st_size)}"
    )
    if as_json:
        print_json({"onnx": str(onnx), "client": client, "bytes": onnx.stat().st_size,
                    "dtype": "float64" if float64 else "float32"})  # fmt: skip
