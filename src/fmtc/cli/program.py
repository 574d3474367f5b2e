"""The program: its commands' classes, settings from files, exit codes, and parameters that commands share."""

from __future__ import annotations

import inspect
import os
import tempfile
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.text import Text

from .. import __version__
from ..artifacts.locks import InUseError
from ..estimator import FMTC
from ..kernels.couplings import COUPLINGS
from ..linalg.arrays import check_device
from ..runtime.driver import ClientError, FederationError
from ..settings import SCALES, Solver, split_solver
from ..tables.reading import nearest_names
from .words import show

EXIT_CODES = """\b
Exit codes:
  0    done
  1    something failed that should not (FMTC_DEBUG=1 or -v shows where)
  2    the command was not understood, or would overwrite or disturb something
  3    data refused: a file or a value that cannot be used
  5    a client is missing
  130  interrupted"""


# ----------------------------------------------------------------------------------------- options and commands


class Option(click.Option):
    """An option that knows the section of the help page it belongs to."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.section = section


class _ConfigOption(Option):
    """The option --config, whose help names the table of the command it belongs to."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (record[0], record[1].replace("[COMMAND]", f"[{_table_of(ctx)}]"))


class Command(click.Command):
    """A command with the options all commands share, and a help page in sections."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.params += [
            Option(["--json", "as_json"], is_flag=True, help="One JSON document on standard output."),
            _ConfigOption(["--config"], type=click.Path(path_type=Path), metavar="FILE", is_eager=True,
                          expose_value=False, callback=_read_config,
                          help="TOML file with a table [COMMAND]; keys are the flags with underscores; flags win."),
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


class Group(click.Group):
    """A group of commands inside the program, such as `fmtc federate`; its commands are of the class `Command`.

    Exceptions pass through to the `Program` at the top.
    """

    command_class = Command
    group_class: type[click.Group] | type[type] | None = type  # a group inside is of the same class


def _be_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta["fmtc.verbose"] = ctx.meta.get("fmtc.verbose", False) or value


def leaves(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands of a group and of the groups inside it, each with the words that call it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*above, name))
        else:
            yield (*above, name), command


# --------------------------------------------------------------------------------------------- settings from files


def _table_of(ctx: click.Context) -> str:
    """The table of a config file that belongs to a command: its words after `fmtc`, with dots."""
    words: list[str] = []
    while ctx.parent is not None:
        words.insert(0, ctx.info_name or "")
        ctx = ctx.parent
    return ".".join(words)


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Values of a TOML file as defaults of this command's parameters; every name in the file must be known."""
    if path is None:
        return
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path} is not TOML: {error}") from None
    program = ctx.find_root().command
    assert isinstance(program, click.Group)
    for key, value in document.items():
        if not isinstance(value, dict):
            raise click.BadParameter(f"{path}: {key!r} stands outside a table; put it under [{_table_of(ctx)}]")
    defaults: dict[str, Any] = {}
    for where, command, table in _tables(path, program, document):
        known = config_keys(command)
        for key, value in table.items():
            if key not in known:
                raise click.BadParameter(f"{path}: [{where}] has no setting {key!r}; {nearest_names(key, known)}")
            if command is ctx.command:
                defaults[known[key].name or key] = _as_typed(known[key], value)
    ctx.default_map = defaults


def _tables(
    path: Path, group: click.Group, document: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, click.Command, Mapping[str, Any]]]:
    """Name, command and content of each table of a config file; those of commands in a group are nested."""
    for name, table in document.items():
        where = above + name
        if not isinstance(table, dict):
            inside = " or ".join(f"[{above}{command}]" for command in group.commands)
            raise click.BadParameter(f"{path}: [{above[:-1]}] is a group of commands; put {name!r} under {inside}")
        if name not in group.commands:
            raise click.BadParameter(f"{path}: [{where}] is no command; {nearest_names(name, group.commands)}")
        command = group.commands[name]
        if isinstance(command, click.Group):
            yield from _tables(path, command, table, f"{where}.")
        else:
            yield where, command, table


def config_keys(command: click.Command) -> dict[str, click.Parameter]:
    """Parameters of a command under their longest flag, with underscores; without --config and --help-solver."""
    return {max(p.opts, key=len).lstrip("-").replace("-", "_"): p for p in command.params if not p.is_eager}


def _as_typed(param: click.Parameter, value: Any) -> Any:
    """A value of a config file in the words a flag would have been given in, so that both are checked alike."""
    if isinstance(value, bool):
        return value if getattr(param, "is_flag", False) else str(value).lower()
    if param.multiple or param.nargs == -1:
        pairs = [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else value
        return [str(v) for v in (pairs if isinstance(pairs, list) else [pairs])]
    if isinstance(value, dict | list):
        raise click.BadParameter(f"{param.name} takes one value, got {value}")
    return str(value)


# -------------------------------------------------------------------------------------------------- the program


class Program(Group):
    """The group of all commands; turns exceptions into one sentence and an exit code."""

    group_class = Group

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
            code, sentence = judge(error)
            _complain("Error: ", sentence)
            ctx.exit(code)


def judge(error: Exception) -> tuple[int, str]:
    """Exit code and sentence for an exception."""
    if isinstance(error, ClientError):
        return 5, str(error)
    if isinstance(error, InUseError):
        return 2, str(error)
    if isinstance(error, ValueError) and not isinstance(error, np.linalg.LinAlgError):
        return 3, str(error)
    if isinstance(error, MemoryError):
        return 3, f"there is not enough memory: {error or 'it ran out'}; leave out rows or columns"
    if isinstance(error, ImportError | FederationError):
        return 1, str(error)
    if isinstance(error, OSError) and error.strerror:
        return 1, f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return 1, f"{type(error).__name__}: {error} (this should not happen; FMTC_DEBUG=1 shows where it did)"


def _complain(prefix: str, sentence: str) -> None:
    show(Console(stderr=True, highlight=False), Text.assemble((prefix, "bold red"), sentence))


@click.group(cls=Program, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="fmtc %(version)s")
def main_group() -> None:
    """Federated multi-task clustering: one model per silo, learnt together.

    Begin with `fmtc demo`, then `fmtc example` and `fmtc fit --help`.
    """


def main() -> None:
    """Entry point of the `fmtc` program."""
    main_group(prog_name="fmtc")


# --------------------------------------------------------------------------------------------- shared parameters


def data_options(command: Any) -> Any:
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


text_option = click.option(
    "--text-column", metavar="NAME", cls=Option, section="Data",
    help="Column of texts to cluster by their words; every other column must be named or dropped.",
)  # fmt: skip


class _OrAuto(click.ParamType):
    """A number of this kind, or the word auto."""

    def __init__(self, kind: Callable[[str], float], words: str):
        self.kind, self.words, self.name = kind, words, f"{kind.__name__}|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return value if value == "auto" else self.kind(value)
        except ValueError:
            self.fail(f"{value!r} is neither {self.words} nor 'auto'", param, ctx)


# Parameters of FMTC that are a plain value, with their type on the command line and a line of help; the flag has the
# name of the parameter. A flag that is not given leaves the value to FMTC or FMTC.as_published.
MODEL_OPTIONS: dict[str, tuple[Any, str]] = {
    "alpha": (float, "How firmly the embedding is held to a linear function of the features."),
    "beta": (float, "Strength of the coupling; 0 leaves the silos alone, 1 would leave nothing."),
    "coupling": (
        click.Choice(COUPLINGS),
        "What is made low-rank: the tensor of projections, or all side by side; average makes them one.",
    ),
    "n_neighbors": (_OrAuto(int, "a whole number"), "Neighbours in each silo's graph; auto: sqrt(rows)/2, 10 to 30."),
    "scale": (
        click.Choice(SCALES),
        "Standardise columns in each silo (client) or over all (global); tfidf weighs counts of words.",
    ),
    "max_iter": (int, "Largest number of rounds."),
    "tol": (float, "Stop when both residuals are below; 0 runs all rounds."),
    "n_jobs": (int, "Silos processed at the same time; -1 for all cores."),
    "device": (str, "Where silos compute: cpu, or a device of PyTorch such as cuda (pip install 'fmtc[gpu]')."),
}


def model_options(command: Any) -> Any:
    """The settings of the model, for `build_model`: as_published, client_weights, solver and those of MODEL_OPTIONS."""
    for option in (
        click.option("--help-solver", is_flag=True, is_eager=True, expose_value=False, callback=_help_solver,
                     cls=Option, section="Model", help="List the settings of the solver and exit."),
        click.option("--solver", multiple=True, metavar="NAME=VALUE", callback=_read_solver, cls=Option,
                     section="Model", help="A setting of the solver, such as ridge=0.1; may be given many times."),
    ):  # fmt: skip
        command = option(command)
    for name, (kind, text) in reversed(MODEL_OPTIONS.items()):
        default = inspect.signature(FMTC).parameters[name].default
        text = text if default is None else f"{text}  [default: {default}]"
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, name, type=kind, default=None, cls=Option, section="Model", help=text)(command)
    for option in (
        click.option("--client-weight", "client_weights", multiple=True, metavar="SILO=NUMBER", cls=Option,
                     section="Model",
                     help="How much a silo's own data count against the consensus; once for every silo."),
        click.option("--as-published", is_flag=True, cls=Option, section="Model",
                     help="The algorithm as printed in the paper: absolute alpha, beta, rho; no alignment."),
    ):  # fmt: skip
        command = option(command)
    return command


# ----------------------------------------------------------------------------------------- settings of the solver


def solver_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Settings of `Solver` from texts of the form NAME=VALUE; a later text replaces an earlier one.

    A value is a number, true, false, none or a word. `Solver` itself checks whether it is one that it can use.

    Examples
    --------
    >>> from fmtc.cli.program import solver_settings
    >>> solver_settings(["ridge=0.1", "align=false", "shared_centers=auto", "rho=none"])
    {'ridge': 0.1, 'align': False, 'shared_centers': 'auto', 'rho': None}
    """
    known = [f.name for f in fields(Solver)]
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not (equals and value.strip()):
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE, such as ridge=0.1")
        if name not in known:
            raise click.BadParameter(f"the solver has no setting {name!r}; {nearest_names(name, known)}")
        found[name] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    """A number, true, false, none, or the word itself."""
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _read_solver(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Settings of the solver: those of a config file, replaced one by one by those of the command line."""
    in_file = (ctx.default_map or {}).get("solver", ())
    return solver_settings([*in_file, *texts])


def _help_solver(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the settings of the solver: their names, defaults and meaning are those of `Solver`."""
    if not value or ctx.resilient_parsing:
        return
    formatter = ctx.make_formatter()
    formatter.write_text("Settings of the solver, each given as --solver NAME=VALUE. The defaults suit most data.")
    with formatter.section("Settings"):
        formatter.write_dl(
            [(name, f"{text}  [default: {_written(default)}]") for name, default, text in solver_table()]
        )
    click.echo(formatter.getvalue().rstrip("\n"))
    ctx.exit()


def _written(value: Any) -> str:
    """A value as the command line takes it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def solver_table() -> list[tuple[str, Any, str]]:
    """Name, default and description of every setting of the solver, from its docstring.

    Examples
    --------
    >>> from fmtc.cli.program import solver_table
    >>> solver_table()[0][:2]
    ('ridge', 0.03)
    """
    lines = (inspect.getdoc(Solver) or "").split("\n")
    start = lines.index("Parameters") + 2
    texts: dict[str, list[str]] = {}
    for line in lines[start : lines.index("Examples")]:
        if line and not line.startswith(" "):
            texts[line.partition(" : ")[0]] = words = []
        elif line:
            words.append(line.strip())
    return [(f.name, f.default, " ".join(texts[f.name]).replace("`", "")) for f in fields(Solver)]


n_clusters_option = click.option(
    "-k", "--n-clusters", type=int, required=True, cls=Option, help="Clusters in every silo."
)
out_option = click.option("--out", type=click.Path(path_type=Path), required=True, cls=Option, help="Folder to write.")
random_state_option = click.option(
    "--random-state", type=click.IntRange(0, 2**32 - 1), metavar="INTEGER", default=0, cls=Option,
    help="The same number gives the same labels, to the last bit.  [default: 0]",
)  # fmt: skip
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, cls=Option, help="No progress and no table; notes and errors stay."
)


def build_model(settings: Mapping[str, Any], as_published: bool) -> FMTC:
    """The estimator of the flags that were given, its values checked before any file is read.

    Parameters
    ----------
    settings : mapping
        Parameters of `FMTC` as `model_options` reads them: None or an empty tuple where no flag was given, SILO=NUMBER
        for each of client_weights, and under ``solver`` the settings of the solver by name.
    as_published : bool
        Whether what was not given comes from `FMTC.as_published`.

    Returns
    -------
    FMTC
        Not fitted.
    """
    given = {name: value for name, value in settings.items() if value not in (None, ()) and name != "solver"}
    if "client_weights" in given:
        given["client_weights"] = dict(map(_weight, given["client_weights"]))
    given |= settings.get("solver", {})
    try:
        model = FMTC.as_published(**given) if as_published else FMTC(**split_solver(given))
        model.settings()
        check_device(model.device)
    except (TypeError, ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from None
    return model


def _weight(text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    try:
        return name, float(value) if equals and name else float("no")
    except ValueError:
        raise click.UsageError(f"--client-weight {text!r} is not of the form SILO=NUMBER, such as north=2") from None


def free_path(path: Path, force: bool, ours: Callable[[Path], bool] | None = None) -> Path:
    """Refuse to overwrite without --force, to replace a folder that is not ours, and what cannot be written at all."""
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
    parent = next(folder for folder in path.resolve().parents if folder.exists())
    try:
        tempfile.TemporaryDirectory(dir=parent, prefix=".fmtc-").cleanup()
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written ({error.strerror}: {parent}); choose another place") from None
    return path
