"""Parameters that commands share: columns of the data, files to write."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .program import Option


def data_options(command: Any) -> Any:
    """Which columns of the files are not features."""
    for option in (
        click.option("--drop", multiple=True, metavar="NAME", cls=Option, section="Data",
                     help="A column to omit; may be given many times."),
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
