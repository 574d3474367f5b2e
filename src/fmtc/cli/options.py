"""Parameters that commands share: columns of the data, files to write."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..tables.reading import EM, MISSING, Reading
from ..wording import FLAGS
from .program import Option

if TYPE_CHECKING:
    from .words import Words


LONGEST = 255  # bytes that file systems take for a name


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
        kind, colon, names = text.partition(":")
        if kind not in ("category", "number") or not colon or not _names(names):
            raise click.BadParameter(
                f"{text!r} is not of the form category:NAMES or number:NAMES, such as category:sex"
            )
        found |= dict.fromkeys(_names(names), kind)
    return found


def _said(ctx: click.Context, param: click.Parameter, no_header: bool) -> bool | None:
    """Whether there is a header: a flag can only say that there is none."""
    return False if no_header else None


_data = partial(click.option, cls=Option, section="Data")
_READ = {  # in the order of help, by field of `Reading`
    "silo_column": _data("--client-column", "silo_column", metavar="NAME",
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
    "schema": _data("--schema", type=click.Path(path_type=Path),
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
text_option = _READ["text_column"]


def reading_options(*names: str, **said: Any) -> Callable[[Any], Any]:
    """Give a command the flags for some fields of `Reading`, and the reading they make as its argument `reading`.

    Parameters
    ----------
    *names : str
        Fields that have a flag.
    **said
        Other fields, and their values.
    """

    def decorate(command: Any) -> Any:
        @wraps(command)
        def with_reading(*args: Any, **given: Any) -> Any:
            reading = Reading(**{name: given.pop(name) for name in names}, **said, wording=FLAGS)
            if reading.schema is not None and reading.columns:
                raise click.UsageError("--schema says which columns there are; omit --columns")
            return command(*args, reading=reading, **given)

        for name in reversed(_READ):
            with_reading = _READ[name](with_reading) if name in names else with_reading
        return with_reading

    return decorate


class Clusters(click.ParamType):
    """A number of clusters, that of one silo such as north=6, auto, or a range such as 3..12."""

    name = "integer|silo=integer|auto|low..high"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, a silo and its number, or the text of a range that can be compared."""
        from ..protocol.advice import range_of

        if not isinstance(value, str):
            return value
        silo, equals, number = value.rpartition("=")
        try:
            return (silo, int(number)) if equals else int(value)
        except ValueError:
            pass
        try:
            range_of(value)
        except ValueError as error:
            self.fail(f"{value!r} is neither a whole number, SILO=NUMBER, 'auto' nor a range: {error}", param, ctx)
        return value


def _wanted(ctx: click.Context, param: click.Parameter, given: tuple[Any, ...]) -> Any:
    """One number for all silos, or a mapping of silo to number; None: not given."""
    if given and not any(isinstance(one, tuple) for one in given):
        return given[-1]  # as for any other flag, the last one counts
    if not all(isinstance(one, tuple) for one in given):
        raise click.UsageError("-k takes one number for all silos, or SILO=NUMBER once for each, such as -k north=6")
    if len(dict(given)) < len(given):
        raise click.UsageError("-k names a silo twice")
    return dict(given) or None


NO_NUMBER = (
    "-k (--n-clusters) says how many clusters you want, such as -k 4. -k auto asks the rows, which is advice and no "
    "more (`fmtc advise-k`): try a few and compare what `fmtc explain` says of each (docs/how-to/how-many-clusters.md)"
)
n_clusters_option = click.option(
    "-k", "--n-clusters", type=Clusters(), metavar="INTEGER", callback=_wanted, multiple=True, cls=Option,
    help="Clusters in every silo; try a few, and read `fmtc explain` of each. auto, or a range such as 3..12, takes "
    "what `fmtc advise-k` advises. SILO=NUMBER once for each silo, where they differ.  [required]",
)  # fmt: skip
out_option = click.option("--out", type=click.Path(path_type=Path), required=True, cls=Option, help="Folder to write.")
random_state_option = click.option(
    "--random-state", type=click.IntRange(0, 2**32 - 1), metavar="INTEGER", default=0, cls=Option,
    help="The same number gives the same labels, to the last bit.  [default: 0]",
)  # fmt: skip
min_clients_option = click.option(
    "--min-clients", type=int, cls=Option, help="Continue while this many silos answer; all by default."
)
deadline_option = click.option(
    "--deadline", type=float, default=600.0, show_default=True, cls=Option, help="Seconds a silo has for one answer."
)
accept_units_option = click.option(
    "--accept-units", is_flag=True, cls=Option, help="Run even if most columns of a silo seem to be in other units."
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, cls=Option, help="No progress and no table; notes and errors stay."
)


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
