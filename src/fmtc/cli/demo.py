"""Commands to begin with: demo, example and version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from .options import free_path
from .program import Option, main_group
from .words import Rounds, Words, new_table, print_json


@main_group.command(
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

    Compares k-means and spectral clustering in each silo alone with FMTC over all, on the rows it learnt from and
    on rows held out. Nothing is downloaded. Writes demo.json and demo.png to --out.
    """
    from ..artifacts.files import new_folder, write_json
    from ..artifacts.runs import versions
    from ..demo import draw_demo, run_demo
    from ..estimator import FMTC

    words = Words()
    out = free_path(out, force, lambda folder: (folder / "demo.json").is_file())
    defaults = FMTC()
    with words.warnings_as_notes():
        with Rounds(words, defaults.max_iter, defaults.tol, "handwritten digits: building graphs") as rounds:
            result = run_demo(random_state=random_state, callbacks=[rounds])
        model = result.model
        words.say(_demo_table(result.rows))
        words.say("")
        words.say(f"{model.stopped_because_}, {result.seconds:.1f} s", "green" if model.converged_ else "yellow")
        report = {
            "versions": versions(),
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
        print_json({"out": str(out), **report})


def _demo_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Accuracy of each method in each silo in percent, and what FMTC gains over spectral clustering alone."""
    table = new_table(title="Accuracy in percent", title_justify="left", title_style="bold")
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


@main_group.command(
    short_help="Write files to try the other commands on.",
    epilog="""\b
Examples:
  fmtc example
  fmtc example --out silos --force""",
)
@click.option("--out", type=click.Path(path_type=Path), default=".", cls=Option,
              help="Folder to write to.  [default: the one you are in]")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, help="Replace files of the same names.")
def example(out: Path, force: bool, as_json: bool) -> None:
    """Write files to try the other commands on: images of handwritten digits, one per row.

    north.csv, south.csv and west.csv are silos of 300 rows; `image` names a row and `digit` is what it shows, so both
    are not features. new.csv has 100 more rows, without `digit`. Nothing is downloaded.
    """
    from ..artifacts.files import write_file
    from ..demo import example_tables

    words = Words()
    tables = {out / name: table for name, table in example_tables().items()}
    for path in tables:
        free_path(path, force)
    out.mkdir(parents=True, exist_ok=True)
    for path, table in tables.items():
        write_file(path, table.write_csv().encode())
    words.say(f"wrote {', '.join(map(str, tables))}: 64 pixels, image (the name of a row) and digit (its class)")
    words.say("try: fmtc fit north.csv south.csv west.csv -k 10 --id-column image --label-column digit --out run")
    if as_json:
        print_json({"files": [str(path) for path in tables], "rows": [table.height for table in tables.values()]})


@main_group.command(
    short_help="Say which versions and extras are here.",
    epilog="""\b
Examples:
  fmtc version
  fmtc version --json""",
)
def version(as_json: bool) -> None:
    """Say which versions are at work, and which extras are installed."""
    from ..artifacts.runs import EXTRAS, versions

    here = versions()
    if as_json:
        print_json(here)
        return
    for name, number in here.items():
        if name != "extras":
            click.echo(f"{name:<14}{number}")
    for name, number in here["extras"].items():
        what = f"{EXTRAS[name]} {number}" if number else f"not installed: pip install 'fmtc[{name}]'"
        click.echo(f"{'[' + name + ']':<14}{what}")
