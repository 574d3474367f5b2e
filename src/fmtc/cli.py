"""Words in, words out: parse, call one function, print, exit code."""

from __future__ import annotations

import inspect
import json
import os
import platform
import shutil
import time
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import click
import numpy as np
import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from . import __version__
from .estimator import FMTC
from .kernels.consensus import COUPLINGS
from .metrics import score_clients
from .models import MODEL_FILE, load
from .runtime.driver import ClientError, RoundRecord
from .runtime.wire import FileError, file_names, jsonable, new_folder, write_file, write_json
from .steps import ALIGNMENTS, LABEL_SOURCES, Hyper
from .tables import DataError, Silo, constant_columns, nearest_names, read_silos

Array = np.ndarray

REPORT_FORMAT = 1
PROJECTED_ROWS = 500  # of each silo, in report.json
EXTRAS = {"plot": "matplotlib", "onnx": "onnx"}

EXIT_CODES = """\b
Exit codes:
  0    done
  1    something failed that should not (FMTC_DEBUG=1 or -v shows where)
  2    the command was not understood, or would overwrite something
  3    data refused: a file or a value that cannot be used
  5    a client is missing
  130  interrupted"""


# ------------------------------------------------------------------------------------------------ words and notes


def _show(console: Console, what: Text | Table) -> None:
    """A line is broken between words on a terminal and nowhere else."""
    console.print(what, soft_wrap=isinstance(what, Text) and not console.is_terminal)


class Words:
    """What a command says to its reader, on standard error, and the notes it collects on the way."""

    def __init__(self, quiet: bool = False):
        self.console = Console(stderr=True, highlight=False)
        self.quiet = quiet
        self.notes: list[str] = []

    def say(self, text: str | Table, style: str = "") -> None:
        """One line or table, unless the reader wants quiet."""
        if not self.quiet:
            _show(self.console, Text(text, style) if isinstance(text, str) else text)

    def note(self, text: str) -> None:
        """One line about something worth knowing, kept for the JSON output as well; the same note only once."""
        if text not in self.notes:
            self.notes.append(text)
            _show(self.console, Text.assemble(("note: ", "yellow"), text))

    @contextmanager
    def warnings_as_notes(self) -> Iterator[None]:
        """Python warnings raised in the block become notes; those meant for programmers are left out."""
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
                warnings.simplefilter("ignore", category)
            warnings.showwarning = lambda message, *_, **__: self.note(" ".join(str(message).split()))
            yield


class Rounds:
    """A callback that shows rounds as they pass: a bar on a terminal, a line each elsewhere, nothing when quiet."""

    def __init__(self, words: Words, max_iter: int, tol: float, before: str):
        self.words, self.max_iter, self.tol = words, max_iter, tol
        console = words.console
        self.live = console.is_terminal and not console.is_dumb_terminal
        self.progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(14), TextColumn("{task.fields[residuals]}"),
            TimeElapsedColumn(), console=console, transient=True, disable=words.quiet or not self.live,
        )  # fmt: skip
        self.task = self.progress.add_task(before, total=None, residuals="")
        if not self.live:
            words.say(before)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, record: RoundRecord) -> None:
        """Show one round."""
        primal, dual = record.primal_residual, record.dual_residual
        if not self.live:
            self.words.say(f"round {record.round_no}: residuals {primal:.1e} (primal), {dual:.1e} (dual)")
        last = record.round_no >= self.max_iter or max(primal, dual) < self.tol
        self.progress.update(
            self.task,
            total=self.max_iter,
            completed=record.round_no,
            description="finding clusters" if last else f"round {record.round_no}/{self.max_iter}",
            residuals=f"primal {primal:.1e}  dual {dual:.1e}  (tol {self.tol:g})",
        )


def _print_json(document: Any) -> None:
    click.echo(json.dumps(jsonable(document), indent=1))


def _table(**looks: Any) -> Table:
    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, **looks)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# -------------------------------------------------------------------------------------------------- the program


class Program(click.Group):
    """The group of commands; turns exceptions into one sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and exit with the code that belongs to how it ended."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click's own; also the reader of standard output gone, at which click ends quietly
        except KeyboardInterrupt:
            _complain("", "interrupted" + ctx.meta.get("fmtc.interrupted", ""))
            ctx.exit(130)
        except Exception as error:
            if ctx.meta.get("fmtc.verbose") or os.environ.get("FMTC_DEBUG", "0") not in ("", "0"):
                traceback.print_exc()
            code, sentence = _judge(error)
            _complain("Error: ", sentence)
            ctx.exit(code)


def _judge(error: Exception) -> tuple[int, str]:
    """Exit code and sentence for an exception."""
    if isinstance(error, ClientError):
        return 5, str(error)
    if isinstance(error, ValueError) and not isinstance(error, np.linalg.LinAlgError):
        return 3, str(error)
    if isinstance(error, ImportError):
        return 1, str(error)
    if isinstance(error, OSError) and error.strerror:
        return 1, f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return 1, f"{type(error).__name__}: {error} (this should not happen; FMTC_DEBUG=1 shows where it did)"


def _complain(prefix: str, sentence: str) -> None:
    _show(Console(stderr=True, highlight=False), Text.assemble((prefix, "bold red"), sentence))


class Option(click.Option):
    """An option that knows the section of the help page it belongs to."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.section = section


class Command(click.Command):
    """A command with the options all commands share, and a help page in sections."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.params += [
            Option(["--json", "as_json"], is_flag=True, help="One JSON document on standard output."),
            Option(["--config"], type=click.Path(path_type=Path), metavar="FILE", is_eager=True, expose_value=False,
                   callback=_read_config,
                   help=f"TOML file with a table [{self.name}]; keys are the flags with underscores; flags win."),
            Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=_be_verbose,
                   help="Show where an error happened."),
        ]  # fmt: skip

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options under the heading of their section, in the order they were declared."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _be_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta["fmtc.verbose"] = ctx.meta.get("fmtc.verbose", False) or value


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Values of a TOML file as defaults of this command's parameters; every name in the file must be known."""
    if path is None:
        return
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise click.BadParameter(f"{path} is not TOML: {error}") from None
    commands: Mapping[str, click.Command] = main_group.commands
    defaults: dict[str, Any] = {}
    for name, table in document.items():
        if not isinstance(table, dict):
            raise click.BadParameter(f"{path}: {name!r} stands outside a table; put it under [{ctx.info_name}]")
        if name not in commands:
            raise click.BadParameter(f"{path}: [{name}] is no command; {nearest_names(name, commands)}")
        known = _config_keys(commands[name])
        for key, value in table.items():
            if key not in known:
                raise click.BadParameter(f"{path}: [{name}] has no setting {key!r}; {nearest_names(key, known)}")
            if commands[name] is ctx.command:
                defaults[known[key].name or key] = _as_typed(known[key], value)
    ctx.default_map = defaults


def _config_keys(command: click.Command) -> dict[str, click.Parameter]:
    """Parameters of a command under their longest flag, with underscores."""
    keys = {max(p.opts, key=len).lstrip("-").replace("-", "_"): p for p in command.params}
    return {key: param for key, param in keys.items() if key != "config"}


def _as_typed(param: click.Parameter, value: Any) -> Any:
    """A value of a config file in the words a flag would have been given in, so that both are checked alike."""
    if isinstance(value, bool):
        return value if getattr(param, "is_flag", False) else ("yes" if value else "no")
    if param.multiple or param.nargs == -1:
        pairs = [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else value
        return [str(v) for v in (pairs if isinstance(pairs, list) else [pairs])]
    if isinstance(value, dict | list):
        raise click.BadParameter(f"{param.name} takes one value, got {value}")
    return str(value)


@click.group(cls=Program, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="fmtc %(version)s")
def main_group() -> None:
    """Federated multi-task clustering: one model per silo, each better for what the others learnt.

    Begin with `fmtc demo`, then `fmtc fit --help`.
    """


def main() -> None:
    """Entry point of the `fmtc` program."""
    main_group(prog_name="fmtc")


# --------------------------------------------------------------------------------------------- shared parameters


def _data_options(command: Any) -> Any:
    """Which columns of the files are no features."""
    for option in (
        click.option("--drop", multiple=True, metavar="NAME", cls=Option, section="Data",
                     help="A column to leave out; may be given many times."),
        click.option("--id-column", metavar="NAME", cls=Option, section="Data",
                     help="Column that names each row; it is copied to the output."),
        click.option("--label-column", metavar="NAME", cls=Option, section="Data",
                     help="Column of known classes, used for scoring only."),
        click.option("--client-column", metavar="NAME", cls=Option, section="Data",
                     help="Column that names the silo of each row, where all silos are in one file."),
    ):  # fmt: skip
        command = option(command)
    return command


class _CountOrAuto(click.ParamType):
    name = "count|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return value if value == "auto" else int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor 'auto'", param, ctx)


# Every parameter of FMTC that is a plain value, with its type on the command line and a line of help; the flag has
# its name. A flag that is not given leaves the choice to FMTC or FMTC.as_published.
MODEL_OPTIONS: dict[str, tuple[Any, str]] = {
    "alpha": (float, "How firmly the embedding is held to a linear function of the features."),
    "beta": (float, "Strength of the coupling; 0 leaves the silos alone, 1 shrinks the first consensus to nothing."),
    "ridge": (float, "Weight of the consensus in a silo's regression."),
    "schatten_p": (float, "Exponent of the Schatten norm, above 0 and at most 1."),
    "coupling": (click.Choice(COUPLINGS), "What is made low-rank: the tensor of projections, or all side by side."),
    "align": (click.Choice(ALIGNMENTS), "Turn the silos to a common frame: each round, once, or never."),
    "n_neighbors": (_CountOrAuto(), "Neighbours in each silo's graph; auto is max(10, sqrt(rows)/2)."),
    "bandwidth": (float, "Width of the Gaussian edge weights; left out, the mean distance to the neighbours."),
    "n_inner": (int, "Steps on the embedding in each round."),
    "max_iter": (int, "Largest number of rounds."),
    "tol": (float, "Stop when both residuals are below; 0 runs all rounds."),
    "center": (click.Choice(["auto", "yes", "no"]), "Subtract each silo's column means; auto: unless sparse."),
    "labels_from": (click.Choice(LABEL_SOURCES), "Cluster the projected rows, or the embedding (the paper)."),
    "n_init": (int, "Restarts of k-means."),
    "rho": (float, "Switches to the paper's absolute units of alpha, beta and rho."),
    "step_size": (float, "The paper's eta; left out, 1/(2 + alpha)."),
    "n_jobs": (int, "Silos worked on at the same time; -1 for all cores."),
}


def _model_options(command: Any) -> Any:
    for name, (kind, text) in reversed(MODEL_OPTIONS.items()):
        default = inspect.signature(FMTC).parameters[name].default
        text = text if default is None else f"{text}  [default: {default}]"
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, name, type=kind, default=None, cls=Option, section="Model", help=text)(command)
    return command


def _free_path(path: Path, force: bool, ours: Callable[[Path], bool] | None = None) -> Path:
    """Refuse to overwrite without --force, and to replace a folder that is not empty and not one of ours."""
    if path.name in ("", ".."):
        path = path.resolve()
    if path.exists() and not force:
        raise click.UsageError(f"{path} exists; choose another name, or replace it with --force")
    if ours is None and path.is_dir():
        raise click.UsageError(f"{path} is a folder; give the name of a file")
    if ours is not None and path.exists() and not (path.is_dir() and (ours(path) or not any(path.iterdir()))):
        raise click.UsageError(
            f"{path} was not written by this command, so --force does not replace it; choose another name"
        )
    return path


def _load_run(run: Path) -> tuple[FMTC, Path]:
    """The model of a folder that `fmtc fit` or `FMTC.save` wrote, and the model's own folder."""
    for folder in (run / "model", run):
        if (folder / MODEL_FILE).exists():
            return load(folder), folder
    raise FileError(f"{run} holds no model; give the --out folder of `fmtc fit`, or one that FMTC.save wrote")


# ------------------------------------------------------------------------------------------------------------ fit


@main_group.command(
    cls=Command,
    short_help="Cluster silos, one file each.",
    epilog="""\b
Examples:
  fmtc fit north.csv south.csv west.csv -k 4 --out run
  fmtc fit all.parquet --client-column site --label-column class --drop zip -k 4 --out run
  fmtc fit *.npz -k 10 --beta 0.4 --n-jobs -1 --out run --json > run.json
  fmtc fit *.csv -k 4 --out run --resume        (go on after an interrupt)
  fmtc fit --config study.toml                  (with a table [fit])""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-k", "--n-clusters", type=int, required=True, cls=Option, help="Clusters in every silo.")
@click.option("--out", type=click.Path(path_type=Path), required=True, cls=Option, help="Folder to write.")
@click.option("--random-state", type=click.IntRange(0, 2**32 - 1), metavar="INTEGER", default=0, cls=Option,
              help="The same number gives the same labels, to the last bit.  [default: 0]")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, help="Replace --out, and forget an interrupted run.")
@click.option("--resume", is_flag=True, cls=Option, help="Go on where an interrupted run of the same command stopped.")
@click.option("-q", "--quiet", is_flag=True, cls=Option, help="No progress and no table; notes and errors stay.")
@_data_options
@click.option("--as-published", is_flag=True, cls=Option, section="Model",
              help="The algorithm as printed in the paper: absolute alpha, beta, rho; no alignment.")  # fmt: skip
@click.option("--client-weight", "client_weights", multiple=True, metavar="SILO=NUMBER", cls=Option, section="Model",
              help="How much a silo's own data count against the consensus; once for every silo.")  # fmt: skip
@_model_options
@click.pass_context
def fit(
    ctx: click.Context,
    /,
    files: tuple[Path, ...],
    n_clusters: int,
    out: Path,
    random_state: int,
    force: bool,
    resume: bool,
    quiet: bool,
    client_column: str | None,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    as_published: bool,
    client_weights: tuple[str, ...],
    as_json: bool,
    **settings: Any,
) -> None:
    """Cluster silos: one file each, or one file with --client-column.

    FILES are tables with a header (.csv, .tsv, .parquet) or matrices (.npy, .npz, dense or SciPy sparse). A silo is
    named after its file. Writes to --out: labels/SILO.csv, model/, history.json and report.json.
    """
    started = time.perf_counter()
    words = Words(quiet)
    settings |= {"n_clusters": n_clusters, "random_state": random_state, "client_weights": client_weights}
    model = _build_model(settings, as_published)
    out = _free_path(out, force, _is_run)
    checkpoint = out.parent / f".{out.name}.checkpoint"
    _check_resume(checkpoint, resume, force, words)
    try:
        with words.warnings_as_notes():
            silos = read_silos(
                files, client_column=client_column, label_column=label_column, id_column=id_column, drop=drop
            )
            _note_constants(silos, words)
            size = _plural(sum(silo.X.shape[0] for silo in silos), "row")
            before = (
                f"{_plural(len(silos), 'silo')}, {size}, {_plural(silos[0].X.shape[1], 'feature')}: building graphs"
            )
            with Rounds(words, model.max_iter, model.tol, before) as rounds:
                rows = {silo.name: silo.X for silo in silos}
                model.fit(rows, callbacks=[rounds], checkpoint=checkpoint, resume=resume)
                results = _results(model, silos)
        if silos[0].feature_names is not None:
            model.feature_names_in_ = np.array(silos[0].feature_names, dtype=object)
        report = {
            "kind": "fmtc report",
            "schema": REPORT_FORMAT,
            "versions": _versions(),
            "files": [file.name for file in files],
            "settings": model.get_params() | {"as_published": as_published},
            "n_features": model.n_features_in_,
            "feature_names": silos[0].feature_names,
            "n_iter": model.n_iter_,
            "converged": model.converged_,
            "stopped_because": model.stopped_because_,
            "seconds": time.perf_counter() - started,
            "notes": words.notes,
            **_scores(results),
        }
        _write_run(out, force, model, results, report)
    except KeyboardInterrupt:
        if checkpoint.exists():
            ctx.meta["fmtc.interrupted"] = "; the same command with --resume goes on from the last round"
        raise
    shutil.rmtree(checkpoint, ignore_errors=True)

    words.say(_fit_table(report))
    words.say("")
    words.say(f"{'converged' if model.converged_ else 'stopped'}: {model.stopped_because_}, {report['seconds']:.1f} s",
              "green" if model.converged_ else "yellow")  # fmt: skip
    words.say(f"wrote {out}: labels/, model/, history.json, report.json")
    if as_json:
        _print_json({"out": str(out), **report})


def _build_model(settings: dict[str, Any], as_published: bool) -> FMTC:
    """The estimator of the flags that were given, its values checked before any file is read."""
    given = {name: value for name, value in settings.items() if value not in (None, ())}
    if "center" in given:
        given["center"] = {"auto": "auto", "yes": True, "no": False}[given["center"]]
    if "client_weights" in given:
        given["client_weights"] = dict(map(_weight, given["client_weights"]))
    model = FMTC.as_published(**given) if as_published else FMTC(**given)
    try:
        Hyper(**{f.name: getattr(model, f.name) for f in fields(Hyper) if f.name != "seed"})
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    return model


def _weight(text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    try:
        return name, float(value) if equals and name else float("no")
    except ValueError:
        raise click.UsageError(f"--client-weight {text!r} is not of the form SILO=NUMBER, such as north=2") from None


def _is_run(folder: Path) -> bool:
    return (folder / "report.json").is_file() and (folder / "model" / MODEL_FILE).is_file()


def _check_resume(checkpoint: Path, resume: bool, force: bool, words: Words) -> None:
    """An interrupted run is gone on with or, only when told so, thrown away."""
    if resume and not checkpoint.exists():
        words.note("there is no interrupted run to resume; starting afresh")
    if checkpoint.exists() and not resume:
        if not force:
            raise click.UsageError(
                f"{checkpoint} holds an interrupted run; go on with it with --resume, or start afresh with --force"
            )
        shutil.rmtree(checkpoint)


def _note_constants(silos: Sequence[Silo], words: Words) -> None:
    constant = constant_columns(silos)
    if constant:
        shown = [
            f"{name} ({'every silo' if len(where) == len(silos) else ', '.join(where)})" if len(silos) > 1 else name
            for name, where in list(constant.items())[:5]
        ]
        more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
        words.note(
            f"{_plural(len(constant), 'column')} with one value in all rows of a silo, which cannot help there: "
            f"{', '.join(shown)}{more}"
        )


@dataclass(frozen=True, eq=False)
class SiloResult:
    """What one silo came to."""

    silo: Silo
    labels: Array  # n
    probabilities: Array  # n x k
    line: dict[str, Any]  # in the report
    shown: Array  # at most 500 places among the rows
    view: Array  # the shown rows as `transform` sees them


def _results(model: FMTC, silos: Sequence[Silo]) -> list[SiloResult]:
    results = []
    ends = np.cumsum([silo.X.shape[0] for silo in silos])
    rng = np.random.default_rng(model.random_state)
    for silo, labels in zip(silos, np.split(model.labels_, ends[:-1]), strict=True):
        line: dict[str, Any] = {
            "silo": silo.name,
            "rows": len(labels),
            "cluster_sizes": np.bincount(labels, minlength=model.n_clusters),
            "score": model.score(silo.X, clients=silo.name),
        }
        if silo.labels is not None:
            known = [place for place, label in enumerate(silo.labels) if label is not None]
            line["labelled_rows"] = len(known)
            if known:
                truth = [silo.labels[place] for place in known]
                line |= score_clients(truth, labels[known], [silo.name] * len(known))["mean"]
        shown = np.sort(rng.permutation(len(labels))[:PROJECTED_ROWS])
        view = model.transform(silo.X[shown], clients=silo.name)
        results.append(SiloResult(silo, labels, model.predict_proba(silo.X, clients=silo.name), line, shown, view))
    return results


def _scores(results: Sequence[SiloResult]) -> dict[str, Any]:
    """The lines of all silos, and their unweighted mean over the silos that have the score."""
    lines = [result.line for result in results]
    names = [name for name in ("score", "acc", "nmi", "ri") if any(name in line for line in lines)]
    mean = {name: float(np.mean([line[name] for line in lines if name in line])) for name in names}
    return {"silos": lines, "mean": mean}


def _write_run(out: Path, force: bool, model: FMTC, results: Sequence[SiloResult], report: dict[str, Any]) -> None:
    """The folder of a run, whole or not at all.

    report.json holds 2-D projections of at most 500 training rows of each silo, for a picture: unlike model/, it is
    made of the silo's rows and is meant to stay where they are.
    """
    history = [asdict(record) for record in model.history_]
    with new_folder(out, overwrite=force) as folder:
        (folder / "labels").mkdir()
        names = file_names(result.silo.name for result in results)
        for result in results:
            table = _label_table([result.silo], [result.labels], [result.probabilities])
            write_file(folder / "labels" / f"{names[result.silo.name]}.csv", _as_csv(table))
        model.save(folder / "model")
        write_json(folder / "history.json", history)
        write_json(folder / "report.json", report | {"history": history, "projection": _projection(results)})


def _projection(results: Sequence[SiloResult]) -> dict[str, Any]:
    """Principal plane of the projected rows of all silos together: x, y and cluster of each row that is shown."""
    E = np.vstack([result.view for result in results]).astype(np.float64)
    E -= E.mean(axis=0)
    _, _, axes = np.linalg.svd(E, full_matrices=False)
    axes = np.pad(axes, ((0, max(0, 2 - len(axes))), (0, 0)))[:2]
    axes *= np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1, 1)[:, None]
    planes = np.split(E @ axes.T, np.cumsum([len(result.shown) for result in results])[:-1])
    return {
        r.silo.name: {"row": r.silo.rows[r.shown], "x": plane[:, 0], "y": plane[:, 1], "cluster": r.labels[r.shown]}
        for r, plane in zip(results, planes, strict=True)
    }


def _label_table(
    silos: Sequence[Silo], labels: Sequence[Array], P: Sequence[Array], *, clients: bool = False, proba: bool = False
) -> pl.DataFrame:
    """One line per row, in the order of the file: identifier or row number, cluster, how probable it is."""
    order = np.argsort(np.concatenate([silo.rows for silo in silos]), kind="stable")
    cluster, probability = np.concatenate(labels)[order], np.concatenate(P)[order]
    columns: dict[str, Any] = {}
    if silos[0].ids is None:
        columns["row"] = np.concatenate([silo.rows for silo in silos])[order]
    else:
        ids = [name for silo in silos for name in silo.ids or ()]
        columns["id"] = [ids[i] for i in order]
    if clients:
        names = [silo.name for silo in silos for _ in silo.rows]
        columns["client"] = [names[i] for i in order]
    columns |= {"cluster": cluster, "probability": probability[np.arange(len(cluster)), cluster]}
    if proba:
        columns |= {f"probability_{j}": probability[:, j] for j in range(probability.shape[1])}
    return pl.DataFrame(columns)


def _as_csv(table: pl.DataFrame) -> bytes:
    return table.write_csv(float_precision=6).encode()


def _fit_table(report: Mapping[str, Any]) -> Table:
    scored = [name for name in ("acc", "nmi", "ri") if name in report["mean"]]
    table = _table()
    table.add_column("silo")
    for title in ("rows", "cluster sizes", "score", *map(str.upper, scored)):
        table.add_column(title, justify="right")
    for line in report["silos"]:
        sizes = line["cluster_sizes"].tolist()
        shown = " ".join(map(str, sizes[:12])) + (f" … ({len(sizes)})" if len(sizes) > 12 else "")
        scores = [f"{line[name]:.3f}" if name in line else "–" for name in ("score", *scored)]
        table.add_row(Text(line["silo"]), f"{line['rows']:,}", shown, *scores)
    if len(report["silos"]) > 1:
        table.add_section()
        means = [f"{report['mean'][name]:.3f}" for name in ("score", *scored)]
        table.add_row("mean", "", "", *means, style="bold")
    return table


# -------------------------------------------------------------------------------------------------------- predict


@main_group.command(
    cls=Command,
    short_help="Cluster new rows with a model.",
    epilog="""\b
Examples:
  fmtc predict run new.csv --client north > labels.csv
  fmtc predict run new.csv --client north --id-column patient --proba --out labels.csv
  fmtc predict run all.parquet --client-column site --json""",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--client", metavar="SILO", cls=Option, help="The silo whose model is used; needed where there are many.")
@click.option("--out", type=click.Path(path_type=Path), cls=Option, help="File to write instead of standard output.")
@click.option("--proba", is_flag=True, cls=Option, help="Add the probability of every cluster.")
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
@_data_options
def predict(
    run: Path,
    file: Path,
    client: str | None,
    out: Path | None,
    proba: bool,
    force: bool,
    client_column: str | None,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    as_json: bool,
) -> None:
    """Cluster new rows with a model: CSV to standard output, one line per row of FILE.

    RUN is the --out folder of `fmtc fit`, or a model folder. The columns must be those of the model; their order is
    free. --label-column only says that a column is no feature.
    """
    if client is not None and client_column is not None:
        raise click.UsageError("give --client for all rows or --client-column for each, not both")
    words = Words()
    if out is not None:
        out = _free_path(out, force)
    model, _ = _load_run(run)
    name = None if client_column is not None else _one_client(model, client)
    known = getattr(model, "feature_names_in_", None)
    with words.warnings_as_notes():
        silos = read_silos(
            [file], client_column=client_column, label_column=label_column, id_column=id_column, drop=drop,
            features=None if known is None else known.tolist(),
        )  # fmt: skip
        width, named = silos[0].X.shape[1], silos[0].feature_names is not None
        if width != model.n_features_in_:
            raise DataError(f"{file} has {width} columns of numbers, the model has {model.n_features_in_}")
        if named != (known is not None):
            words.note(f"{'the model' if named else file.name} has no column names; columns are taken in their order")
        if known is not None:
            del model.feature_names_in_  # names have been compared
        labels, P = [], []
        for silo in silos:
            labels.append(model.predict(silo.X, clients=name or silo.name))
            P.append(model.predict_proba(silo.X, clients=name or silo.name))
    table = _label_table(silos, labels, P, clients=client_column is not None, proba=proba)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_file(out, _as_csv(table))
        words.say(f"wrote {out}: {_plural(table.height, 'row')}")
    if as_json:
        _print_json({"rows": table.height, "notes": words.notes, "columns": table.to_dict(as_series=False)})
    elif out is None:
        click.echo(_as_csv(table), nl=False)


def _one_client(model: FMTC, client: str | None) -> str:
    if client is None and len(model.client_ids_) == 1:
        return model.client_ids_[0]
    if client is None or client not in model.client_ids_:
        wanted = "give --client" if client is None else f"it has no {client!r}"
        raise click.UsageError(f"the model is of silos {', '.join(map(repr, model.client_ids_))}; {wanted}")
    return client


# -------------------------------------------------------------------------------------------------------- inspect


@main_group.command(
    "inspect",
    cls=Command,
    short_help="Tell what a model is.",
    epilog="""\b
Examples:
  fmtc inspect run
  fmtc inspect run --top 8
  fmtc inspect run --json | python -m json.tool""",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(1), default=4, show_default=True, cls=Option,
              help="Features to show for each cluster.")  # fmt: skip
def inspect_run(run: Path, top: int, as_json: bool) -> None:
    """Tell what a model is: silos, features, clusters, how its rounds ended, file sizes.

    RUN is the --out folder of `fmtc fit`, or a model folder. Features are listed for each cluster by their weight
    (W times its centre): rows with more of a + feature, or less of a - feature, are drawn to it. Weights are per unit
    of the feature.
    """
    model, folder = _load_run(run)
    about: dict[str, Any] = {
        "model": str(folder),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
        "n_clusters": model.n_clusters,
        "n_features": model.n_features_in_,
        "feature_names": getattr(model, "feature_names_in_", None),
        "settings": model.get_params(),
        "n_iter": model.n_iter_,
        "converged": model.converged_,
        "stopped_because": model.stopped_because_,
        "last_round": asdict(model.history_[-1]),
        "bytes_up": sum(record.bytes_up for record in model.history_),
        "bytes_down": sum(record.bytes_down for record in model.history_),
        "clients": {cid: _about_client(model, folder, cid, top) for cid in model.client_ids_},
    }
    if as_json:
        _print_json(about)
    else:
        _show_model(about)


def _about_client(model: FMTC, folder: Path, cid: str, top: int) -> dict[str, Any]:
    file = f"{file_names(model.client_ids_)[cid]}.safetensors"
    names = getattr(model, "feature_names_in_", [f"column {j}" for j in range(model.n_features_in_)])
    signatures = model.cluster_centers_[cid] @ model.projections_[cid].T  # k x d
    return {
        "file": file,
        "bytes": (folder / file).stat().st_size,
        "dtype": str(model.projections_[cid].dtype),
        "top_features": [
            [{"feature": str(names[j]), "weight": float(signature[j])} for j in np.argsort(-np.abs(signature))[:top]]
            for signature in signatures
        ],
    }


def _show_model(about: Mapping[str, Any]) -> None:
    console = Console(highlight=False)
    last, clients = about["last_round"], about["clients"]
    features = _plural(about["n_features"], "feature") + (
        "" if about["feature_names"] is not None else " without names"
    )
    facts = {
        "model": f"{about['model']} ({decimal(about['bytes'])})",
        "holds": f"{_plural(len(clients), 'silo')}, {features}, {_plural(about['n_clusters'], 'cluster')}",
        "rounds": f"{about['n_iter']}, {'converged' if about['converged'] else 'not converged'}",
        "stopped": about["stopped_because"],
        "residuals": f"{last['primal_residual']:.1e} (primal), {last['dual_residual']:.1e} (dual) in the last round",
        "traffic": f"{decimal(about['bytes_up'])} from the silos, {decimal(about['bytes_down'])} to them",
    }
    for name, fact in facts.items():
        _show(console, Text.assemble((f"{name:<11}", "bold"), fact))
    console.print()
    table = _table()
    for title in ("silo", "file", "cluster", "features that mark it"):
        table.add_column(title, justify="right" if title == "cluster" else "left")
    for cid, client in clients.items():
        for j, marks in enumerate(client["top_features"]):
            shown = "  ".join(f"{'-' if mark['weight'] < 0 else '+'}{mark['feature']}" for mark in marks)
            first = (Text(cid), Text(f"{client['file']} ({decimal(client['bytes'])})")) if j == 0 else ("", "")
            table.add_row(*first, str(j), Text(shown))
        table.add_section()
    console.print(table)


# ------------------------------------------------------------------------------------------------- export, version


@main_group.command(
    cls=Command,
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
    words = Words()
    onnx = _free_path(onnx, force)
    model, _ = _load_run(run)
    client = _one_client(model, client)
    onnx.parent.mkdir(parents=True, exist_ok=True)
    model.export_onnx(client, onnx, dtype=np.float64 if float64 else np.float32)
    words.say(
        f"wrote {onnx}: silo {client!r}, {_plural(model.n_features_in_, 'feature')}, {decimal(onnx.stat().st_size)}"
    )
    if as_json:
        _print_json({"onnx": str(onnx), "client": client, "bytes": onnx.stat().st_size,
                     "dtype": "float64" if float64 else "float32"})  # fmt: skip


@main_group.command(
    cls=Command,
    short_help="Say which versions and extras are here.",
    epilog="""\b
Examples:
  fmtc version
  fmtc version --json""",
)
def version(as_json: bool) -> None:
    """Say which versions are at work, and which extras are installed."""
    versions = _versions()
    if as_json:
        _print_json(versions)
        return
    for name, number in versions.items():
        if name != "extras":
            click.echo(f"{name:<14}{number}")
    for name, number in versions["extras"].items():
        what = f"{EXTRAS[name]} {number}" if number else f"not installed: pip install 'fmtc[{name}]'"
        click.echo(f"{'[' + name + ']':<14}{what}")


def _versions() -> dict[str, Any]:
    return {
        "fmtc": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn")},
        "extras": {extra: _installed(package) for extra, package in EXTRAS.items()},
    }


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# ----------------------------------------------------------------------------------------------------------- demo


@main_group.command(
    cls=Command,
    short_help="See it work on handwritten digits.",
    epilog="""\b
Examples:
  fmtc demo
  fmtc demo --out demo --random-state 3 --force""",
)
@click.option("--out", type=click.Path(path_type=Path), default="fmtc-demo", show_default=True, cls=Option,
              help="Folder to write.")  # fmt: skip
@click.option("--random-state", type=click.IntRange(0, 2**32 - 1), metavar="INTEGER", default=0, cls=Option,
              help="Deals the silos and seeds every method.  [default: 0]")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
def demo(out: Path, random_state: int, force: bool, as_json: bool) -> None:
    """Handwritten digits in silos that differ, clustered alone and together.

    Compares k-means and spectral clustering in each silo by itself with FMTC over all, on the rows it learnt from and
    on rows held out. Nothing is downloaded. Writes demo.json and demo.png to --out.
    """
    from .demo import draw_demo, run_demo

    words = Words()
    out = _free_path(out, force, lambda folder: (folder / "demo.json").is_file())
    defaults = FMTC()
    with words.warnings_as_notes():
        with Rounds(words, defaults.max_iter, defaults.tol, "handwritten digits: building graphs") as rounds:
            result = run_demo(random_state=random_state, callbacks=[rounds])
        model = result.model
        words.say(_demo_table(result.rows))
        words.say("")
        words.say(f"{model.stopped_because_}, {result.seconds:.1f} s", "green" if model.converged_ else "yellow")
        report = {
            "versions": _versions(),
            "random_state": random_state,
            "rows": result.rows,
            "seconds": result.seconds,
            "stopped_because": model.stopped_because_,
            "history": [asdict(record) for record in model.history_],
            "notes": words.notes,
        }
        with new_folder(out, overwrite=force) as folder:
            try:
                with words.console.status("drawing the picture"):
                    draw_demo(result, folder / "demo.png")
            except ImportError as error:
                words.note(str(error))
            written = sorted({"demo.json", *(file.name for file in folder.iterdir())})
            write_json(folder / "demo.json", report)
    words.say(f"wrote {out}: {', '.join(written)}")
    if as_json:
        _print_json({"out": str(out), **report})


def _demo_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Accuracy of each method in each silo in percent, and what FMTC gains over spectral clustering alone."""
    table = _table(title="Accuracy in percent", title_justify="left", title_style="bold")
    table.add_column("\nsilo")
    table.add_column("\nrows", justify="right")
    for where in ("trained", "held out"):
        for title in ("k-means", "spectral", "FMTC", "gain"):
            table.add_column(f"{where if title == 'k-means' else ''}\n{title}", justify="right")
    for row in rows:
        if row["silo"] == "mean":
            table.add_section()
        cells: list[Text] = []
        for where in ("in", "out"):
            kmeans, spectral, fmtc = (100 * row[f"{method}_{where}"] for method in ("kmeans", "spectral", "fmtc"))
            gain = fmtc - spectral
            color = "green" if gain >= 0.05 else "red" if gain <= -0.05 else ""
            cells += [Text(f"{value:.1f}") for value in (kmeans, spectral, fmtc)] + [Text(f"{gain:+.1f}", color)]
        style = "bold" if row["silo"] == "mean" else ""
        table.add_row(row["silo"], f"{row['n_train']}+{row['n_test']}", *cells, style=style)
    return table


if __name__ == "__main__":
    main()
