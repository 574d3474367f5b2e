"""The command that makes a page of a run."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click
from rich.filesize import decimal

from .options import free_path
from .program import Option, main_group
from .words import Words, print_json


@main_group.command(
    "report",
    short_help="Make a page of a run, to look at in a browser.",
    epilog="""\b
Examples:
  fmtc report run
  fmtc report run --out study.html --open
  fmtc report consensus --json | python -m json.tool""",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), cls=Option, help="File to write.  [default: RUN/report.html]")
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
@click.option("--open", "open_it", is_flag=True, cls=Option, help="Show it in your browser.")
def report(run: Path, out: Path | None, force: bool, open_it: bool, as_json: bool) -> None:
    """Make a page of a run: one HTML file that needs no network, to look at in a browser.

    RUN is the --out folder of `fmtc fit`, `fmtc join` or `fmtc coordinate`. What needs the rows
    (silhouettes, what is gained against staying alone) is there where `fmtc fit` was given --report. With --json,
    everything the page says is printed too.
    """
    from ..report import needs_jinja, summarise, write_page
    from ..report.page import PAGE

    words = Words()
    needs_jinja()
    summary = summarise(run)
    path = run / PAGE if out is None else free_path(out, force)  # what is in the run folder is ours
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(summary, path)
    words.say(f"wrote {path}: {decimal(path.stat().st_size)}")
    if open_it:
        webbrowser.open(path.resolve().as_uri())
    if as_json:
        print_json({"out": str(path), **summary})
