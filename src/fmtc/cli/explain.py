"""The command that says what the clusters of a run are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .program import Option, main_group
from .terminal import printable
from .words import Words, new_table, plural, print_json, show

if TYPE_CHECKING:
    from ..concepts import Cluster, Explanation


@main_group.command(
    "explain",
    short_help="Say what the clusters of a run are.",
    epilog="""\b
Examples:
  fmtc explain run
  fmtc explain run --client north
  fmtc explain run --rename 2=severe --rename 0="no symptoms"
  fmtc explain run --rename 2=                  (take a name back)
  fmtc explain run --json | python -m json.tool""",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--client", metavar="SILO", cls=Option, help="Only this silo, by itself.")
@click.option("--rename", metavar="N=NAME", multiple=True, cls=Option,
              help="Give cluster N a name; labels, pages and plots of the run use it.")  # fmt: skip
def explain(run: Path, client: str | None, rename: tuple[str, ...], as_json: bool) -> None:
    """Say what the clusters of a run are: size, share, and the columns that set each apart, in the table's own units.

    RUN is the --out folder of `fmtc fit`, `fmtc federate local` or `fmtc join`. Every number is a difference between
    rows: those of a cluster against the other rows of the same silo.
    """
    from ..artifacts.runs import EXPLANATION, is_run, name_labels, read_explanation, write_explanation
    from ..concepts import Explanation
    from ..errors import FileError

    words = Words()
    kept = read_explanation(run)
    if kept is None:
        why = (
            f"{run} does not say what its clusters are: it was written by an older version of fmtc; fit again"
            if is_run(run)
            else f"{run} is not the folder of a run: it has no {EXPLANATION}. Give the --out folder of a run with rows"
        )
        raise FileError(why)
    explanation = Explanation.from_dict(kept)
    if rename:
        names = dict(map(_numbered, rename))
        explanation = explanation.renamed(names)
        name_labels(run, {one.cluster: one.given for one in explanation.clusters if one.given})
        write_explanation(run, explanation.to_dict())
        words.say(f"renamed {plural(len(names), 'cluster')} in {run}; `fmtc report {run}` makes the page again")
    chosen = explanation.clusters if client is None else explanation.of(client)
    if as_json:
        print_json(
            explanation.to_dict()
            | ({} if client is None else {"clusters": Explanation(chosen, {}).to_dict()["clusters"]})
        )
        return
    console = Console(highlight=False)
    show_clusters(console, chosen)
    if client is None and len(explanation.silos) > 1:
        show(console, Text("share of each silo's rows", "bold"))
        show(console, _shares(explanation))
    for note in explanation.notes:
        words.note(note)


def show_clusters(console: Console, clusters: Sequence[Cluster]) -> None:
    """What each cluster is, a line for each column that sets it apart."""
    for cluster in clusters:
        show(console, _title(cluster))
        if cluster.differences:
            show(console, _differences(cluster))


def _numbered(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"\s*(\d+)\s*=(.*)", text, re.DOTALL)
    if found is None:
        raise click.UsageError(f"--rename takes the number of a cluster and its name, such as 2=severe; got {text!r}")
    name = " ".join(found[2].split())
    if len(name) > 80 or not name.isprintable():
        raise click.UsageError(f"a name has at most 80 characters that can be printed; got {name[:80]!r}")
    return int(found[1]), name


def _title(cluster: Cluster) -> Text:
    rows = f"{cluster.size} rows, {100 * cluster.share:.0f} %"
    return Text.assemble(
        (f"cluster {cluster.cluster}", "bold"),
        f"  {printable(cluster.name)}  " if cluster.name else "  ",
        (rows, "dim"),
    )


def _differences(cluster: Cluster) -> Table:
    table = Table.grid(padding=(0, 2))
    for difference in cluster.differences:
        table.add_row("", Text(printable(difference.what)), Text(printable(difference.values)))
    table.add_row("")
    return table


def _shares(explanation: Explanation) -> Table:
    table = new_table()
    table.add_column("silo")
    table.add_column("rows", justify="right")
    for cluster in explanation.clusters:
        table.add_column(str(cluster.cluster), justify="right")
    for client, clusters in explanation.silos.items():
        cells = [_share(cluster) for cluster in clusters]
        table.add_row(Text(printable(client)), f"{sum(one.rows for one in clusters):,}", *cells)
    return table


def _share(cluster: Cluster) -> str:
    return "–" if not cluster.rows else f"{100 * cluster.share:.0f} %"
