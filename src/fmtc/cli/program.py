"""The program: lazy commands, the classes they share, settings from files, exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..errors import FmtcError, nearest_names
from .terminal import printable, tell_interrupted

EXIT_CODES = """\b
Exit codes:
  0    done
  1    a failure: a bug in fmtc (FMTC_DEBUG=1 or -v shows where), or something outside
  2    the command was not understood, or would overwrite or disturb something
  3    data rejected: a file or a value that cannot be used
  4    trust refused: nothing was sent
  5    a silo is missing
  7    an alarm of `fmtc drift`
  130  interrupted"""


# ----------------------------------------------------------------------------------------- options and commands


class Option(click.Option):
    """An option that knows the section of the help page it belongs to."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.section = section


class Command(click.Command):
    """A command with the options all commands share, and a help page in sections.

    Its function gets the `Words` to speak with in place of --quiet and --json. What stands below "Examples:" in its
    docstring comes last on the page, where lines are left as they are.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.help, title, examples = cleandoc(self.help or "").partition("Examples:\n")
        blocks = [f"\b\n{block}" for block in (title + examples).split("\n\n") if block]
        self.epilog = "\n\n".join([*filter(None, [self.epilog]), *blocks])
        self.params += [
            Option(["--json", "as_json"], is_flag=True, help="One JSON document on standard output."),
            Option(["--config"], type=click.Path(path_type=Path), metavar="FILE", is_eager=True, expose_value=False,
                   callback=_read_config,
                   help="TOML file with a table [COMMAND]; keys are the flags with underscores; flags win."),
            Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=_be_verbose,
                   help="Show where an error happened."),
        ]  # fmt: skip

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function of the command."""
        from .words import Words

        ctx.params["words"] = Words(ctx.params.pop("quiet", False), ctx.params.pop("as_json"))
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options under the heading of their section, in the order they were declared; --config names its table."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                text = record[1].replace("[COMMAND]", f"[{_table_of(ctx)}]")
                sections.setdefault(getattr(param, "section", "Options"), []).append((record[0], text))
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class Group(click.Group):
    """A group of commands inside the program, such as `fmtc federation`; its commands are of the class `Command`.

    Exceptions pass through to the `Program` at the top.
    """

    command_class = Command


def _be_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta["fmtc.verbose"] = ctx.meta.get("fmtc.verbose", False) or value


def if_interrupted(more: str) -> None:
    """What to say, from now on, after the word "interrupted"."""
    click.get_current_context().meta["fmtc.interrupted"] = more


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """All commands of a group by name; imports those of the program."""
    ctx = click.Context(group)
    found = {name: group.get_command(ctx, name) for name in group.list_commands(ctx)}
    return {name: command for name, command in found.items() if command is not None}


def leaves(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands of a group and of the groups inside it, each with the words that call it."""
    for name, command in commands_of(group).items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*above, name))
        else:
            yield (*above, name), command


# --------------------------------------------------------------------------------------------- settings from files


def _table_of(ctx: click.Context) -> str:
    """The table of a config file that belongs to a command: its words after `fmtc`, with dots."""
    return ".".join(ctx.command_path.split()[1:])


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Values of a TOML file as defaults of this command's parameters; every name in the file must be known."""
    if path is None:
        return
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path} is not TOML: {error}") from None
    program = ctx.find_root().command
    assert isinstance(program, click.Group)
    commands = {".".join(words): command for words, command in leaves(program)}
    ctx.default_map = defaults = {}
    for where, table in _tables(path, document, commands, _table_of(ctx)):
        known = config_keys(commands[where])
        for key, value in table.items():
            if key not in known:
                raise click.BadParameter(f"{path}: [{where}] has no setting {key!r}; {nearest_names(key, known)}")
            if where == _table_of(ctx):
                defaults[known[key].name or key] = _as_typed(known[key], value)


def _tables(
    path: Path, document: Mapping[str, Any], commands: Iterable[str], own: str, above: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Command and content of each table of a config file; those of commands in a group are nested."""
    for name, table in document.items():
        where = above + name
        if not isinstance(table, dict):
            there = [command for command in commands if above and command.startswith(above)] or [own]
            inside = " or ".join(f"[{command}]" for command in there)
            raise click.BadParameter(f"{path}: {name!r} stands outside the table of a command; put it under {inside}")
        if where in commands:
            yield where, table
        elif any(command.startswith(f"{where}.") for command in commands):
            yield from _tables(path, table, commands, own, f"{where}.")
        else:
            raise click.BadParameter(f"{path}: [{where}] is not a command; {nearest_names(where, commands)}")


def config_keys(command: click.Command) -> dict[str, click.Parameter]:
    """Parameters of a command under their longest flag, with underscores; without --config and --help-set."""
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


NO_FILE = (errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR)  # the name of a file that cannot be used


# Where each command is defined. A module is imported when one of its commands is called, or for a list of all.
COMMANDS = {
    "advise-k": "check",
    "check": "check",
    "coordinate": "federation",
    "demo": "demo",
    "doctor": "federation",
    "drift": "predict",
    "explain": "explain",
    "export": "predict",
    "federation": "federation",
    "fit": "fit",
    "join": "federation",
    "join-later": "later",
    "outbox": "outbox",
    "predict": "predict",
    "publish": "later",
    "report": "later",
    "update": "later",
}


class Program(Group):
    """The group of all commands; turns exceptions into one sentence and an exit code.

    Parameters
    ----------
    modules : mapping of str to str, optional
        Commands that are not imported yet, and the modules of `package` that add them to the program.
    package : str
    """

    group_class = Group

    def __init__(
        self, *args: Any, modules: Mapping[str, str] | None = None, package: str | None = __package__, **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self.modules, self.package = modules or {}, package

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, imported or not."""
        return sorted({*self.commands, *self.modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported if it was not."""
        if cmd_name not in self.commands and cmd_name in self.modules:
            import_module(f".{self.modules[cmd_name]}", self.package)
        return super().get_command(ctx, cmd_name)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Understand the command line; click would call an interrupt a failure."""
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            tell_interrupted()
            sys.exit(130)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and exit with the code that belongs to how it ended."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = printable(error.message)  # declared final
            raise
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click's own; also the reader of standard output gone, at which click ends quietly
        except KeyboardInterrupt:
            tell_interrupted(ctx.meta.get("fmtc.interrupted", ""))
            ctx.exit(130)
        except Exception as error:
            if ctx.meta.get("fmtc.verbose") or os.environ.get("FMTC_DEBUG", "0") not in ("", "0"):
                import traceback

                traceback.print_exc()
            from .words import Words

            code, sentence = judge(error)
            Words().fail(sentence)
            ctx.exit(code)


def judge(error: Exception) -> tuple[int, str]:
    """Exit code and sentence for an exception.

    Errors of our own classes know their exit code. Any other exception is a bug in fmtc, unless a package, memory or
    something of the system is missing.
    """
    if isinstance(error, FmtcError):
        return error.exit_code, str(error)
    if isinstance(error, MemoryError):
        return 3, f"there is not enough memory: {error or 'it ran out'}; omit rows or columns"
    if isinstance(error, ImportError):
        return 1, str(error)
    if isinstance(error, OSError) and error.strerror:
        full = "standard output, or a temporary file" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        file = error.filename2 or error.filename or full  # of a file that could not be renamed, the name it should have
        shorter = "; choose a shorter one" if error.errno == errno.ENAMETOOLONG else ""
        return 3 if error.errno in NO_FILE else 1, ": ".join(filter(None, (error.strerror, str(file)))) + shorter
    return 1, (
        f"internal error: {type(error).__name__}: {error}. This is a bug in fmtc, not in your data; please report it "
        "with what FMTC_DEBUG=1 prints"
    )


def _tell_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the version; with -v those of all that is at work, and which extras are installed."""
    if not value or ctx.resilient_parsing:
        return
    click.echo(f"fmtc {__version__}")
    if ctx.meta.get("fmtc.verbose"):
        from ..artifacts.runs import EXTRAS, versions

        here = versions()
        extras = here.pop("extras")
        for name, number in here.items():
            if name != "fmtc":
                click.echo(f"{name:<14}{number}")
        for name, number in extras.items():
            what = f"{EXTRAS[name]} {number}" if number else f"not installed: pip install 'fmtc[{name}]'"
            click.echo(f"{'[' + name + ']':<14}{what}")
    ctx.exit()


@click.group(cls=Program, modules=COMMANDS, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, callback=_tell_version,
              help="Show the version; with -v, also those of what fmtc uses, and which extras are here.")  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, is_eager=True, expose_value=False, callback=_be_verbose,
              help="Show where an error happened.")  # fmt: skip
def main_group() -> None:
    """Federated multi-task clustering: one model per silo, learnt together.

    Begin with `fmtc demo`, then `fmtc demo --tables hospitals` and `fmtc fit --help`.
    """
