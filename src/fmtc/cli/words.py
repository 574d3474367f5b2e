"""What a command says: words, tables and progress on standard error, JSON on standard output."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ..errors import RowsWarning, plural
from ..wording import FLAGS
from .terminal import printable

if TYPE_CHECKING:
    from ..tables import Silo

NAMED = 12  # clusters that are named at the end of a run


class _Console(Console):
    """A console on which names and texts of others cannot give the terminal orders."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Pieces of text with their styles; colours are added later."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def new_console(*, stderr: bool = False) -> Console:
    """A console for standard output or standard error, on which text has no markup."""
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def show(console: Console, what: str | Text | Table, style: str = "", by: int = 0) -> None:
    """A line is broken between words on a terminal and nowhere else; there, space stands before each of its lines."""
    what = Text(what, style) if isinstance(what, str) else what
    if isinstance(what, Text) and not console.is_terminal:
        console.print(Text.assemble(by * " ", what), soft_wrap=True)
    else:
        console.print(Padding.indent(what, by) if by else what)


class Words:
    """What a command says to its reader, on standard error, and the notes it collects on the way."""

    def __init__(self, quiet: bool = False, as_json: bool = False):
        self.console = new_console(stderr=True)
        self.live = self.console.is_terminal and not self.console.is_dumb_terminal
        self.began = time.perf_counter()
        self.quiet = quiet
        self.as_json = as_json
        self.notes: list[str] = []

    @property
    def seconds(self) -> float:
        """Since the command began."""
        return time.perf_counter() - self.began

    def give(self, document: Any) -> bool:
        """The document on standard output, where --json asks for it; whether it did."""
        if self.as_json:
            print_json(document)
        return self.as_json

    def show(self, what: str | Text | Table, style: str = "", by: int = 0) -> None:
        """A result on standard output, with some space before it."""
        show(new_console(), what, style, by)

    def tell(self, what: str | Text | Table, style: str = "", by: int = 0) -> None:
        """Something to be read in any case."""
        show(self.console, what, style, by)

    def say(self, what: str | Text | Table, style: str = "", by: int = 0) -> None:
        """One line or table, unless the reader wants quiet."""
        if not self.quiet:
            self.tell(what, style, by)

    def note(self, text: str) -> None:
        """One line about something worth knowing, kept for the JSON output as well; the same note only once."""
        if text not in self.notes:
            self.notes.append(text)
            self.tell(Text.assemble(("note: ", "yellow"), text))

    def fail(self, sentence: str) -> None:
        """Why a command could not do what it was asked for."""
        self.tell(Text.assemble(("Error: ", "bold red"), sentence))

    @contextmanager
    def warnings_as_notes(self) -> Iterator[None]:
        """Python warnings raised in the block become notes; those meant for programmers are left out."""
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
                warnings.simplefilter("ignore", category)
            warnings.simplefilter("ignore", RowsWarning)  # `note_table` and the summary of a run say it
            warnings.showwarning = lambda message, *_, **__: self.note(" ".join(str(message).split()))
            yield


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    from ..artifacts.files import jsonable

    click.echo(json.dumps(jsonable(document), indent=1))


def new_table(*columns: str, **looks: Any) -> Table:
    """An empty table that looks like all others; each title begins with < (to the left) or > (to the right)."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, **looks)
    for column in columns:
        table.add_column(column[1:], justify="left" if column[0] == "<" else "right")
    return table


# ------------------------------------------------------------------------------------------------ words about runs


def size_of(silos: Sequence[Silo]) -> str:
    """Such as: 3 silos, 135 rows, 4 features."""
    rows = sum(silo.X.shape[0] for silo in silos)
    return f"{plural(len(silos), 'silo')}, {plural(rows, 'row')}, {plural(silos[0].X.shape[1], 'feature')}"


def note_table(words: Words, silos: Sequence[Silo], *, scaled: bool, accept_units: bool = True) -> None:
    """Notes about missing cells, constant columns, and values that look wrong.

    `scaled`: whether the run gives all columns the same weight; `accept_units`: as in `fmtc.tables.remarks`.
    """
    from ..tables.values import gaps, remarks

    for remark in [*gaps(silos), *remarks(silos, scaled=scaled, accept_units=accept_units, wording=FLAGS)]:
        words.note(remark)


def show_run(words: Words, report: Mapping[str, Any], out: Path) -> None:
    """The table of a run, how it ended, and where it is; `report` is that of `fmtc.artifacts.runs`."""
    from ..artifacts.runs import OUTBOX, TABLES, of_one_silo
    from ..describe.words import empty_clusters_sentence
    from ..schema import FILE as SCHEMA_FILE

    words.say(_run_table(report))
    words.say("")
    own = of_one_silo(report)
    show_names(words, out, "of this silo's rows" if own else "of all rows")
    show_end(words, report)
    if said := empty_clusters_sentence([line["cluster_sizes"] for line in report["silos"]], all_silos=not own):
        words.note(said)
    more = [f"{name}/" for name in (OUTBOX, TABLES) if (out / name).is_dir()]
    files = ("history.json", "report.json", "explanation.json", "atlas.json", SCHEMA_FILE)
    more += [name for name in files if (out / name).is_file()]
    words.say(f"wrote {out}: {', '.join(['labels/', 'model/', *more])}")
    words.say(f"next: fmtc explain {out}")


def show_end(words: Words, report: Mapping[str, Any]) -> None:
    """Which view a run took and why, and how it ended; of a silo or of all, or of a coordinator, which sees no rows."""
    if report.get("view"):
        line = f"{report['view']} view" + (f": {report['view_reason']}" if report.get("view_reason") else "")
        if "scaled" in report:
            units = "scaled to the same spread" if report["scaled"] else "in their own units"
            line += f"; columns {units} (--scale {report['settings']['scale']})"
        if report.get("coupling") == "average":
            line += "; texts, of which all silos share one projection (--set coupling=auto)"
        words.say(line)
    ended = "converged" if report["converged"] else "ended"
    usual = ", as the graph view usually does" if ended == "ended" and report.get("view") == "graph" else ""
    words.say(
        f"{ended}{usual}: {report['stopped_because']}, {report['seconds']:.1f} s",
        "green" if report["converged"] else "",
    )


def show_names(words: Words, out: Path, of_rows: str) -> None:
    """A line for each cluster of a run that has a name: what it is, and how many rows, such as "of all rows"."""
    from ..artifacts.runs import read_explanation
    from ..describe.clusters import percents_of

    found = read_explanation(out)
    if found is None:
        return
    clusters = found.clusters
    if sum(one.rows for one in clusters) < sum(one.rows for mine in found.silos.values() for one in mine):
        of_rows += " of the other silos"  # than those that were set aside
    named = [(one, share) for one, share in zip(clusters, percents_of(clusters), strict=True) if one.name]
    for one, share in named[:NAMED]:
        words.say(f"cluster {one.cluster}: {printable(one.name)}, {share} {of_rows}")
    if len(named) > NAMED:
        words.say(f"and {len(named) - NAMED} more clusters")
    if named:
        words.say("")


def _run_table(report: Mapping[str, Any]) -> Table:
    scored = [name for name in ("acc", "nmi", "ri") if name in report["mean"]]
    table = new_table("<silo", ">rows", ">cluster sizes", ">score", *(f">{name.upper()}" for name in scored))
    for line in report["silos"]:
        sizes = [int(size) for size in line["cluster_sizes"]]
        shown = " ".join(map(str, sizes[:12])) + (f" … ({len(sizes)})" if len(sizes) > 12 else "")
        scores = [f"{line[name]:.3f}" if name in line else "–" for name in ("score", *scored)]
        table.add_row(Text(line["silo"]), f"{line['rows']:,}", shown, *scores)
    if len(report["silos"]) > 1:
        table.add_section()
        means = [f"{report['mean'][name]:.3f}" for name in ("score", *scored)]
        table.add_row("mean", "", "", *means, style="bold")
    return table
