"""The command that says what the clusters of a run are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import click

from ..tables.reading import Reading
from . import flags
from .flags import PATH, given
from .labels import Joining, give_labels
from .program import main_group
from .words import Words

SHOWN = ("clusters", "atlas", "labels", "model", "influence", "wire")


@dataclass(frozen=True)
class Wish:
    """What is to be explained."""

    row: str | None = given("--row", metavar="ROW",
                            help="Why a row is in its cluster: its identifier or, without, its number.")  # fmt: skip
    silo: str | None = given("--silo", metavar="SILO", help="Only this silo, by itself.")
    rename: tuple[str, ...] = given("--rename", metavar="N=NAME", multiple=True,
                                    help="Name cluster N; labels, pages and plots of the run use it.")  # fmt: skip
    what: str = given(
        "--show", type=click.Choice(SHOWN), default=SHOWN[0], show_default=True,
        help="atlas: the clusters and who has them; labels: those of all rows; model: silos, rounds, features; "
        "influence: who pulls whom, and who was capped; wire: all messages, without RUN.",
    )  # fmt: skip
    top: int = given("--top", type=click.IntRange(1), default=4, show_default=True,
                     help="With --show model: features to show for each cluster.")  # fmt: skip

    def check(self, run: Path | None, file: Path | None, joining: Joining, reading: Reading) -> None:
        """Refuse more than one wish, and flags of others."""
        if (run is None) != (self.what == "wire"):
            raise click.UsageError("give the folder of a run or a model; or --show wire alone")
        if sum((self.row is not None, bool(self.rename), joining.table is not None, self.what != SHOWN[0])) > 1:
            raise click.UsageError("give one of --row, --rename, --show and --join")
        if file is not None and self.row is None:
            raise click.UsageError("FILE is where to look for the row of --row")
        if joining.table is None and self.what != "labels" and (joining.out is not None or reading.said()):
            raise click.UsageError(
                "--out, --id, --silo-column and --no-header are about labels: --join or --show labels"
            )

    @property
    def names(self) -> dict[int, str]:
        """New names of clusters."""
        return dict(map(_numbered, self.rename))


def _numbered(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"\s*(\d+)\s*=(.*)", text, re.DOTALL)
    if found is None:
        raise click.UsageError(f"--rename takes the number of a cluster and its name, such as 2=severe; got {text!r}")
    name = " ".join(found[2].split())
    if len(name) > 80 or not name.isprintable():
        raise click.UsageError(f"a name has at most 80 characters that can be printed; got {name[:80]!r}")
    return int(found[1]), name


@main_group.command("explain", short_help="Say what the clusters of a run are, and show what else is in it.")
@click.argument("run", type=PATH, required=False)
@click.argument("file", type=PATH, required=False)
@flags.takes(wish=Wish, joining=Joining)
@flags.reading("silo_column", "id_column", "header")
def explain(run: Path | None, file: Path | None, wish: Wish, joining: Joining, reading: Reading, words: Words) -> None:
    """Say what the clusters of a run are: size, share, and the columns that set each apart, in the table's own units.

    RUN is the --out folder of `fmtc fit` or `fmtc join`; the atlas and the model may be of `fmtc coordinate` or a model
    folder. Every number is a difference between rows: those of a cluster against the other rows of the same silo.

    With --row, says which columns decided for the row's cluster against the next one, and what change of one column
    would lead to another. The row is looked for in FILE, or in the files of the run where they still are.

    With --join, labels are joined to the rows of a table by identifier; where the run has none, by their place in the
    file. A row that has no label gets an empty cell. Of AnnData, --out is a copy with cluster and probability in obs.

    --show model lists features for each cluster by their weight, per unit of the feature after --scale: in the mixture
    view how far the cluster's centre lies from the mean of all; in the graph view W times its centre, which decides
    where a new row goes, and may have either sign for columns that hang together.

    Examples:
      fmtc explain run
      fmtc explain run --silo north
      fmtc explain run --silo north --row 17      (why this row is in its cluster)
      fmtc explain run new.csv --silo north --row 17
      fmtc explain run --rename 2=severe --rename 0="no symptoms"
      fmtc explain run --rename 2=                  (take a name back)
      fmtc explain run --show atlas                 (clusters in words, who has them, how sure that is)
      fmtc explain run --show labels > labels.csv
      fmtc explain run --join north.csv --out north-with-clusters.csv
      fmtc explain run --join visits.csv --silo north --id patient
      fmtc explain run --join cells.h5ad --out new.h5ad      (AnnData: clusters go into obs)
      fmtc explain run --show model --top 8
      fmtc explain run --show influence             (who pulls whom, and who was capped)
      fmtc explain --show wire                      (every field that a silo may send or receive)
      fmtc explain run --json | python -m json.tool
    """
    from . import explained

    wish.check(run, file, joining, reading)
    if run is None:
        explained.show_wire(words)
    elif joining.table is not None or wish.what == "labels":
        give_labels(words, run, wish.silo, joining, reading)
    elif wish.what == "model":
        explained.show_model(words, run, wish.top)
    elif wish.what == "influence":
        explained.show_influence(words, run)
    elif wish.what == "atlas":
        explained.show_atlas(words, run)
    elif wish.row is not None:
        explained.explain_row(words, run, wish.silo, wish.row, file)
    else:
        explained.explain_clusters(words, run, wish.silo, wish.names)
