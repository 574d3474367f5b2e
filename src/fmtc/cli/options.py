"""Parameters that commands share: columns of the data, files to write."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .program import Option

if TYPE_CHECKING:
    from .words import Words


LONGEST = 255  # bytes that file systems take for a name


def data_options(command: Any) -> Any:
    """Which columns of the files are not features, and which cells are missing."""
    for option in (
        click.option("--missing-code", "missing_codes", multiple=True, metavar="CODE", cls=Option, section="Data",
                     help="A cell that means missing in all columns, such as -999 or '<5'; may be given many times."),
        click.option("--drop", multiple=True, metavar="NAME", cls=Option, section="Data",
                     help="A column to omit; may be given many times."),
        click.option("--id", "--id-column", "id_column", metavar="NAME", cls=Option, section="Data",
                     help="Column that names each row; it is copied to the output."),
        click.option("--label-column", metavar="NAME", cls=Option, section="Data",
                     help="Column of known classes, used for scoring only."),
        click.option("--client-column", metavar="NAME", cls=Option, section="Data",
                     help="Column that names the silo of each row, where all silos are in one file."),
    ):  # fmt: skip
        command = option(command)
    return command


def table_options(command: Any) -> Any:
    """What the columns of tables are, and what becomes of missing cells; `reading_of` turns them into arguments."""
    for option in (
        click.option("--obsm", metavar="NAME", cls=Option, section="Data",
                     help="Of .h5ad files: a representation such as X_pca to use instead of X."),
        click.option("--no-header", is_flag=True, cls=Option, section="Data",
                     help="The first line of a text file is a row; columns are called column_1, column_2 ..."),
        click.option("--schema", type=click.Path(path_type=Path), cls=Option, section="Data",
                     help="A schema.toml of what the columns are: of another run, or `fmtc check --write-schema`."),
        click.option("--missing", type=click.Choice(["em", "drop", "refuse"]), default="em", show_default=True,
                     cls=Option, section="Data",
                     help="Missing cells: leave them to the method, omit their rows, or stop."),
        click.option("--as", "as_types", multiple=True, metavar="KIND:NAMES", callback=read_types, cls=Option,
                     section="Data", help="What columns are, such as category:sex,cp or number:zip; many times."),
        click.option("--columns", multiple=True, metavar="NAMES", callback=read_names, cls=Option, section="Data",
                     help="The only columns to use, such as age,sex; may be given many times."),
    ):  # fmt: skip
        command = option(command)
    return command


def silo_options(command: Any) -> Any:
    """What the columns of one silo's table are, in a federation: all silos need the same schema."""
    for option in (
        click.option("--no-header", is_flag=True, cls=Option, section="Data",
                     help="The first line of a text file is a row; columns are called column_1, column_2 ..."),
        click.option("--missing", type=click.Choice(["em", "drop", "refuse"]), default="em", show_default=True,
                     cls=Option, section="Data",
                     help="Missing cells: leave them to the method, omit their rows, or stop."),
        click.option("--schema", type=click.Path(path_type=Path), cls=Option, section="Data",
                     help="A schema.toml that all silos have: `fmtc check --write-schema`; needed for categories."),
    ):  # fmt: skip
        command = option(command)
    return command


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


def reading_of(
    columns: tuple[str, ...],
    as_types: dict[str, str],
    missing: str,
    schema: Path | None,
    no_header: bool,
    obsm: str | None,
    missing_codes: tuple[str, ...],
) -> dict[str, Any]:
    """Arguments of `fmtc.tables.read_silos` from flags; those that say nothing are omitted."""
    if schema is not None and columns:
        raise click.UsageError("--schema says which columns there are; omit --columns")
    found = {
        "columns": columns, "as_types": as_types, "schema": schema and str(schema), "obsm": obsm,
        "header": False if no_header else None, "missing_codes": missing_codes,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is False or value} | {"missing": missing}


text_option = click.option(
    "--text-column", metavar="NAME", cls=Option, section="Data",
    help="Column of texts to cluster by their words; every other column must be named or dropped.",
)  # fmt: skip


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
