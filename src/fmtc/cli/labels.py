"""Tables with clusters: labels of a run, and those of rows that were given; written to a file or standard output."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import tables
from ..artifacts import labels, runs
from ..artifacts.files import new_file, write_file
from ..errors import listed, plural
from ..tables.reading import Reading
from .flags import PATH, free_path, given
from .terminal import printable
from .words import Words

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Joining:
    """A table that gets labels, and where labels are written."""

    table: Path | None = given("--join", type=PATH, metavar="FILE", section="Labels",
                               help="A table to add cluster and probability to.")  # fmt: skip
    out: Path | None = given("--out", type=PATH, section="Labels", help="File to write instead of standard output.")
    force: bool = given("--force", is_flag=True, section="Labels", help="Replace --out.")


def check_tables(files: Sequence[Path], advice: str) -> None:
    """Refuse files that are no tables to append to."""
    for file in files:
        suffix = tables.formats.suffix_of(file)
        if suffix == ".h5ad":
            advice += f", and write clusters into obs afterwards: fmtc explain RUN --join {file} --out NEW.h5ad"
        if suffix in (".npy", ".npz", ".h5ad"):
            raise click.UsageError(f"{file} is a matrix without a table to append to; {advice}")


def give_table(
    words: Words, table: pl.DataFrame, out: Path | None, write: Callable[[Path], None] | None = None
) -> None:
    """Write a table to a file, or to standard output; as JSON, to standard output in any case."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write(out) if write is not None else write_file(out, labels.as_csv(table))
        words.say(f"wrote {out}: {plural(table.height, 'row')}")
    document = {"rows": table.height, "notes": words.notes, "columns": table.to_dict(as_series=False)}
    if words.give(document) or out is not None:
        return
    text = labels.as_csv(table)
    click.echo(printable(text.decode()) if sys.stdout.isatty() else text, nl=False)


def give_labels(words: Words, run: Path, silo_name: str | None, joining: Joining, reading: Reading) -> None:
    """Show the labels of a run as one table, or add them to the rows of another."""
    out, file, write = joining.out, joining.table, None
    if out is not None:
        out = free_path(out, joining.force)
    known = labels.read_labels(run)
    if silo_name is not None:
        if silo_name not in known:
            raise click.UsageError(f"the run is of silos {listed(known)}; it has no {silo_name!r}")
        known = {silo_name: known[silo_name]}
    if file is None:
        if reading.said():
            raise click.UsageError("--id, --silo-column and --no-header are about the table of --join")
        table = labels.all_labels(known)
    elif tables.formats.suffix_of(file) == ".h5ad":
        if out is None or out.suffix.lower() != ".h5ad":
            raise click.UsageError(f"clusters go into a copy of {file}: name it with --out, such as --out new.h5ad")
        given, added = _into_obs(run, known, file, reading)
        write, table = partial(_write_obs, file, added), given.hstack(added)
    else:
        check_tables([file], "give a table")
        given = tables.formats.read_file(file, reading)
        table = _joined(run, known, given, file, reading)
    cluster = next(name for name in reversed(table.columns) if name in ("fmtc_cluster", "cluster"))
    if n_bare := table.get_column(cluster).null_count():
        words.note(f"{plural(n_bare, 'row')} of {file} without a label in {run}")
    give_table(words, table, out, write)


def _joined(
    run: Path, known: Mapping[str, pl.DataFrame], given: pl.DataFrame, file: Path, reading: Reading
) -> pl.DataFrame:
    """A table with the clusters of a run, and their names."""
    found = labels.join_labels(given, known, file, reading.id_column, reading.silo_column)
    return labels.with_names(found, runs.label_names(runs.read_explanation(run)))


def _into_obs(
    run: Path, known: Mapping[str, pl.DataFrame], file: Path, reading: Reading
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table obs of a file of AnnData with names of rows, and the columns to add: clusters are categories there."""
    import polars as pl

    from ..tables.annotated import read_obs

    ids, given = read_obs(file)
    key = next(iter(known.values())).columns[0]
    if reading.id_column is None and key != "row" and key not in given.columns:
        given = given.insert_column(0, pl.Series(key, ids)) if given.width else pl.DataFrame({key: ids})
    elif not given.width:
        given = pl.DataFrame({"obs_names": ids})
    table = _joined(run, known, given, file, reading)
    new = [name for name in table.columns if name not in given.columns]
    return given, table.select(pl.col(name).cast(pl.String) if "cluster" in name else pl.col(name) for name in new)


def _write_obs(file: Path, added: pl.DataFrame, out: Path) -> None:
    """A copy of a file of AnnData with more columns in obs."""
    from ..tables.annotated import add_obs

    with new_file(out) as copy:
        shutil.copyfile(file, copy)
        add_obs(copy, added)
