"""Flags that commands share, and dataclasses made of flags."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from ..tables.reading import EM, MISSING, Reading
from ..wording import FLAGS
from .program import Option
from .words import Words

LONGEST = 255  # bytes that file systems take for a name
PATH: Any = click.Path(path_type=Path)

option = partial(click.option, cls=Option)
switch = partial(option, is_flag=True)


# ----------------------------------------------------------------------------------------------- groups of flags


def gather(name: str, make: Callable[..., Any], flags: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Give a command some flags, and what `make` makes of their values as its argument `name`.

    Parameters
    ----------
    name : str
    make : callable
        Gets the values by keyword.
    flags : mapping of str to decorator
        By their keyword, in the order of the help page.
    """

    def decorate(command: Any) -> Any:
        @wraps(command)
        def gathering(*args: Any, **given: Any) -> Any:
            made = make(**{one: given.pop(one) for one in flags})
            return command(*args, **{name: made}, **given)

        for flag in reversed([*flags.values()]):
            gathering = flag(gathering)
        return gathering

    return decorate


def given(*names: str, **how: Any) -> Any:
    """A field of a dataclass whose value a flag gives; see `takes`."""
    unset = False if how.get("is_flag") else None
    return field(default=how.get("default", unset), metadata={"flag": partial(option, *names, **how)})


def takes(**kinds: type) -> Callable[[Any], Any]:
    """Give a command arguments that are dataclasses, and a flag for each of their fields."""

    def decorate(command: Any) -> Any:
        for name, kind in reversed(kinds.items()):
            flags = {one.name: one.metadata["flag"](one.name) for one in fields(kind)}
            command = gather(name, kind, flags)(command)
        return command

    return decorate


@dataclass(frozen=True)
class Output:
    """The folder that a command writes."""

    out: Path = given("--out", type=PATH, required=True, help="Folder to write.")
    force: bool = given("--force", is_flag=True, help="Replace --out.")


@dataclass(frozen=True)
class Course(Output):
    """A run that can be resumed, and where it goes."""

    force: bool = given("--force", is_flag=True, help="Replace --out, and forget an interrupted run.")
    resume: bool = given("--resume", is_flag=True, help="Resume an interrupted run of the same command.")

    def keep(self, folder: Path) -> None:
        """Refuse to lose the interrupted run that is kept in a folder."""
        if folder.exists() and not (self.resume or self.force):
            raise click.UsageError(
                f"{folder} holds an interrupted run; resume it with --resume, or start again with --force"
            )


@dataclass(frozen=True)
class Patience:
    """How long a run waits for silos."""

    min_clients: int | None = given("--min-silos", type=int,
                                    help="Continue while this many silos answer; all by default.")  # fmt: skip
    deadline: float = given("--deadline", type=float, default=600.0, show_default=True,
                            help="Seconds a silo has for one answer.")  # fmt: skip

    def check(self, silos: int) -> None:
        """Refuse a number of silos that is none, or more than there are."""
        if self.min_clients is not None and not 1 <= self.min_clients <= silos:
            raise click.UsageError(
                f"--min-silos must lie between 1 and the {silos} silos there are, got {self.min_clients}"
            )


@dataclass(frozen=True)
class Asking:
    """Silos of a federation to ask, in place of files."""

    kit: Path | None = given("--kit", type=PATH, help="The coordinator's kit: ask the silos of a federation.")
    wait: float = given("--wait", type=float, default=600.0, show_default=True,
                        help="With --kit: seconds to wait for silos that are not there.")  # fmt: skip

    def check(self, files: tuple[Path, ...]) -> None:
        """Refuse files and a federation, and neither."""
        if bool(files) == (self.kit is not None):
            raise click.UsageError("give the files of the silos, or the coordinator's kit with --kit")


# --------------------------------------------------------------------------------------------------- single flags


def _names(text: str) -> list[str]:
    """Names between commas; a name with a comma stands in quotation marks."""
    return [name for name in next(csv.reader([text], skipinitialspace=True), []) if name]


def read_names(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Names of columns, from texts with commas."""
    return tuple(name for text in texts for name in _names(text))


def read_types(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Kinds of columns by name, from texts such as category:sex,cp."""
    found: dict[str, str] = {}
    for text in texts:
        kind, _, names = text.partition(":")
        if kind not in ("category", "number") or not _names(names):
            raise click.BadParameter(
                f"{text!r} is not of the form category:NAMES or number:NAMES, such as category:sex"
            )
        found |= dict.fromkeys(_names(names), kind)
    return found


def _said(ctx: click.Context, param: click.Parameter, no_header: bool) -> bool | None:
    """Whether there is a header: a flag can only say that there is none."""
    return False if no_header else None


_data = partial(option, section="Data")
_READ = {  # in the order of help, by field of `Reading`
    "silo_column": _data("--silo-column", "silo_column", metavar="NAME",
                         help="Column that names the silo of each row, where all silos are in one file."),
    "label_column": _data("--label-column", metavar="NAME", help="Column of known classes, used for scoring only."),
    "id_column": _data("--id", "--id-column", "id_column", metavar="NAME",
                       help="Column that names each row; it is copied to the output."),
    "drop": _data("--drop", multiple=True, metavar="NAME", help="A column to omit; may be given many times."),
    "missing_codes": _data("--missing-code", "missing_codes", multiple=True, metavar="CODE",
                           help="A cell that means missing in all columns, such as -999 or '<5'; may be given many "
                           "times."),
    "columns": _data("--columns", multiple=True, metavar="NAMES", callback=read_names,
                     help="The only columns to use, such as age,sex; may be given many times."),
    "as_types": _data("--as", "as_types", multiple=True, metavar="KIND:NAMES", callback=read_types,
                      help="What columns are, such as category:sex,cp or number:zip; many times."),
    "missing": _data("--missing", type=click.Choice(MISSING), default=EM, show_default=True,
                     help="Missing cells: leave them to the method, omit their rows, or stop."),
    "schema": _data("--schema", type=PATH,
                    help="A schema.toml of what the columns are, the same for all silos: of another run, or `fmtc "
                    "check --write-schema`."),
    "header": _data("--no-header", "header", is_flag=True, callback=_said,
                    help="The first line of a text file is a row; columns are called column_1, column_2 ..."),
    "obsm": _data("--obsm", metavar="NAME", help="Of .h5ad files: a representation such as X_pca to use instead of X."),
    "text_column": _data("--text-column", metavar="NAME",
                         help="Column of texts to cluster by their words; every other column must be named or "
                         "dropped."),
}  # fmt: skip
ROWS = ("label_column", "id_column", "drop", "missing_codes", "header", "text_column")  # of new rows of a silo
SILO = (*ROWS, "missing", "schema")  # of a silo that joins a federation
TABLES = tuple(_READ)  # of all silos
text_column = _READ["text_column"]


def reading(*names: str, **said: Any) -> Callable[[Any], Any]:
    """Give a command the flags for some fields of `Reading`, and the reading they make as its argument `reading`.

    Parameters
    ----------
    *names : str
        Fields that have a flag.
    **said
        Other fields, and their values.
    """

    def read(**values: Any) -> Reading:
        reading = Reading(**values, **said, wording=FLAGS)
        if reading.schema is not None and reading.columns:
            raise click.UsageError("--schema says which columns there are; omit --columns")
        return reading

    return gather("reading", read, {name: flag for name, flag in _READ.items() if name in names})


def _read_clusters(ctx: click.Context, param: click.Parameter, text: str | None) -> int | str | None:
    """A number of clusters, "auto" or a range."""
    try:
        return None if text is None else int(text)
    except ValueError:
        from ..protocol.advice import range_of  # loads SciPy

        try:
            range_of(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is neither a whole number, 'auto' nor a range: {error}") from None
        return text


n_clusters = option(
    "-k", "--n-clusters", metavar="INTEGER", callback=_read_clusters,
    help="Number of clusters; try a few, and read `fmtc explain` of each. auto, or a range such as 3..12, takes what "
    "`fmtc advise-k` advises.  [required]",
)  # fmt: skip
random_state = option("--random-state", type=click.IntRange(0, 2**32 - 1), metavar="INTEGER", default=0,
                      help="The same number gives the same labels, to the last bit.  [default: 0]")  # fmt: skip
accept_units = switch("--accept-units", help="Run even if most columns of a silo seem to be in other units.")
quiet = switch("-q", "--quiet", help="No progress and no table; notes and errors stay.")
open_it = switch("--open", "open_it", help="Show it in your browser.")
silo = option("--silo", "silo_name", metavar="SILO", help="The silo whose model is used; needed where there are many.")


# ------------------------------------------------------------------------------------------------- files to write


def free_path(path: Path, force: bool, ours: Callable[[Path], bool] | None = None) -> Path:
    """Refuse to overwrite without --force, to replace a folder that is not ours, and what cannot be written at all."""
    if path.name in ("", ".."):
        path = path.resolve()
    if long := [part for part in path.parts if len(os.fsencode(part)) > LONGEST]:
        raise click.UsageError(f"the name {long[0][:20]}… is longer than {LONGEST} bytes; choose a shorter one")
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


def free_picture(path: Path, force: bool) -> Path:
    """Refuse, before the work, what --plot cannot be written to; see `free_path`."""
    from ..plot.figures import _pyplot

    plt = _pyplot()
    plt.switch_backend("agg")
    kinds = plt.figure().canvas.get_supported_filetypes()
    plt.close("all")
    if path.suffix.lstrip(".").lower() not in kinds:
        raise click.UsageError(f"--plot {path}: the name must end in .png, .pdf or .svg")
    return free_path(path, force)


def save_picture(words: Words, figure: Any, path: Path) -> None:
    """Write the figure of --plot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    words.say(f"wrote {path}")
