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

from ..tables.reading import Reading
from ..wording import FLAGS
from .program import Option, main_group
from .terminal import printable
from .words import Words, new_table, plural, print_json, show

if TYPE_CHECKING:
    from ..describe import Atlas, Cluster, Concept, Explanation, RowExplanation
    from ..estimator import FMTC
    from ..tables import Silo


SHOWN = ("clusters", "atlas", "labels", "model", "influence", "wire")


@main_group.command(
    "explain",
    short_help="Say what the clusters of a run are, and show what else is in it.",
    epilog="""\b
Examples:
  fmtc explain run
  fmtc explain run --client north
  fmtc explain run --client north --row 17      (why this row is in its cluster)
  fmtc explain run new.csv --client north --row 17
  fmtc explain run --rename 2=severe --rename 0="no symptoms"
  fmtc explain run --rename 2=                  (take a name back)
  fmtc explain run --show atlas                 (concepts in words, who has them, how sure that is)
  fmtc explain run --show labels > labels.csv
  fmtc explain run --join north.csv --out north-with-clusters.csv
  fmtc explain run --join visits.csv --client north --id patient
  fmtc explain run --join cells.h5ad --out new.h5ad      (AnnData: clusters go into obs)
  fmtc explain run --show model --top 8
  fmtc explain run --show influence             (who pulls whom, and who was capped)
  fmtc explain --show wire                      (every field that a silo may send or receive)
  fmtc explain run --json | python -m json.tool""",
)
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--row", metavar="ROW", cls=Option,
              help="Why this row is in its cluster: its identifier, or its number from 0 if it has none.")  # fmt: skip
@click.option("--client", metavar="SILO", cls=Option, help="Only this silo, by itself.")
@click.option("--rename", metavar="N=NAME", multiple=True, cls=Option,
              help="Give cluster N a name; labels, pages and plots of the run use it.")  # fmt: skip
@click.option("--show", "what", type=click.Choice(SHOWN), default=SHOWN[0], show_default=True, cls=Option,
              help="atlas: the concepts and who has them; labels: those of all rows; model: silos, rounds, features; "
              "influence: who pulls whom, and who was capped; wire: all messages, without RUN.")  # fmt: skip
@click.option("--top", type=click.IntRange(1), default=4, show_default=True, cls=Option,
              help="With --show model: features to show for each cluster.")  # fmt: skip
@click.option("--join", "table", type=click.Path(path_type=Path), metavar="FILE", cls=Option, section="Labels",
              help="A table to add cluster and probability to.")  # fmt: skip
@click.option("--id", "--id-column", "id_column", metavar="NAME", cls=Option, section="Labels",
              help="With --join: the column of FILE with the identifiers, if it has another name there.")  # fmt: skip
@click.option("--client-column", metavar="NAME", cls=Option, section="Labels",
              help="With --join: the column of FILE that names the silo.")  # fmt: skip
@click.option("--no-header", is_flag=True, cls=Option, section="Labels",
              help="With --join: the first line of FILE is a row.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), cls=Option, section="Labels",
              help="File to write instead of standard output.")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, section="Labels", help="Replace --out.")
def explain(
    run: Path | None,
    file: Path | None,
    row: str | None,
    client: str | None,
    rename: tuple[str, ...],
    what: str,
    top: int,
    table: Path | None,
    id_column: str | None,
    client_column: str | None,
    no_header: bool,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
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
    """
    from . import models

    if (run is None) != (what == "wire"):
        raise click.UsageError("give the folder of a run or a model; or --show wire alone")
    if sum((row is not None, bool(rename), table is not None, what != SHOWN[0])) > 1:
        raise click.UsageError("give one of --row, --rename, --show and --join")
    if file is not None and row is None:
        raise click.UsageError("FILE is where to look for the row of --row")
    if table is None and what != "labels" and (out is not None or id_column or client_column or no_header):
        raise click.UsageError("--out, --id, --client-column and --no-header are about labels: --join or --show labels")
    if run is None:
        models.show_wire(as_json)
    elif table is not None or what == "labels":
        models.give_labels(run, table, client, id_column, client_column, no_header, out, force, as_json)
    elif what == "model":
        models.show_model(run, top, as_json)
    elif what == "influence":
        models.show_influence(run, as_json)
    elif what == "atlas":
        models.show_atlas_of(run, as_json)
    elif row is not None:
        _explain_row(run, client, row, file, as_json)
    else:
        _explain_clusters(run, client, rename, as_json)


def _explain_row(run: Path, client: str | None, row: str, file: Path | None, as_json: bool) -> None:
    what, reasons = _one_row(Words(), run, client, row, file)
    if as_json:
        print_json({"row": what, **reasons.to_dict()})
    else:
        _show_row(Console(highlight=False), what, reasons, run)


def _explain_clusters(run: Path, client: str | None, rename: tuple[str, ...], as_json: bool) -> None:
    from ..artifacts.runs import EXPLANATION, OWN_ROWS, is_run, name_labels, read_explanation, write_explanation
    from ..describe import Explanation, empty_clusters_sentence
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
        name_labels(run, explanation.to_dict())
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
    sizes = [[one.rows for one in clusters] for clusters in explanation.silos.values()]
    if said := empty_clusters_sentence(sizes, all_silos=OWN_ROWS not in explanation.notes):
        words.note(said)


def show_clusters(console: Console, clusters: Sequence[Cluster]) -> None:
    """What each cluster is, a line for each column that sets it apart."""
    from ..describe import percents_of

    for cluster, share in zip(clusters, percents_of(clusters), strict=True):
        show(console, _title(cluster, share))
        if cluster.differences:
            show(console, _differences(cluster))


MOST = 8  # silos that have a column each
SIGNS = {"matched": "", "unsure": " ?", "unique": " !"}


def show_atlas(console: Console, atlas: Atlas, *, features: bool = True) -> None:
    """Concepts down, silos across and, unless `features` is False, below the features of each concept."""
    table = new_table()
    table.add_column("concept", justify="right")
    nowhere = "in no silo" if len(atlas.client_ids) > 1 else "not in this silo"
    names = [Text(printable(one.name)) if one.is_somewhere else Text(nowhere, "dim") for one in atlas.concepts]
    if named := any(map(len, names)):  # rows give names: a coordinator has none
        table.add_column("name", justify="left")
    silos = atlas.client_ids if len(atlas.client_ids) <= MOST else ()
    for cid in silos:
        table.add_column(Text(printable(cid)), justify="right")
    if atlas.client_ids and not silos:
        table.add_column("silos", justify="left")
    shares = {cid: atlas.shares(cid) for cid in silos}
    for j, one in enumerate(atlas.concepts):
        cells = [Text(shares[cid][j] + SIGNS.get(one.flags.get(cid, ""), "")) for cid in silos] or (
            [Text(_many(one))] if atlas.client_ids else []
        )
        table.add_row(str(one.id), *([names[j]] if named else []), *cells)
    console.print(table)
    flags = {flag for one in atlas.concepts for flag in one.flags.values()}
    said = [f"{SIGNS[flag].strip()} {words}" for flag, words in _FLAGS.items() if flag in flags]
    if said and silos:
        show(console, Text("; ".join(said), "dim"))
    for one in atlas.concepts:
        if one.top_features and features:
            listed = ", ".join(printable(str(feature)) for feature in one.top_features)
            show(console, Text.assemble((f"{one.id:>3}  ", "bold"), listed))
    for note in atlas.notes:
        show(console, Text(note, "dim"))


_FLAGS = {
    "unsure": "unsure: hardly more like this concept than like another, or little like it",
    "unique": "unique: like nothing in the other silos",
}


def _many(concept: Concept) -> str:
    """Such as: in 14 of 20, 3 to 31 %; 2 unsure."""
    shares = [share for share in concept.presence.values() if share]
    has = sum(share is None or share > 0 for share in concept.presence.values())
    said = f"in {has} of {len(concept.presence)}"
    if shares:
        said += f", {100 * min(shares):.0f} to {100 * max(shares):.0f} %"
    counts = {flag: list(concept.flags.values()).count(flag) for flag in _FLAGS}
    return "; ".join([said, *(f"{n} {flag}" for flag, n in counts.items() if n)])


# ------------------------------------------------------------------------------------------------------------ one row


def _one_row(words: Words, run: Path, client: str | None, row: str, file: Path | None) -> tuple[str, RowExplanation]:
    """Why a row is in its cluster, and which row that is."""
    from ..artifacts import runs
    from ..describe import Explanation, explain_row
    from ..errors import DataError
    from ..estimator import load
    from ..tables import column_words

    model = load(runs.model_folder(run))
    silos, texts = _silos_of(words, run, model, client, file)
    found = [(silo, place) for silo in silos for place in _places(silo, row)]
    if not found:
        known = silos[0].ids or [str(number) for number in silos[0].rows.tolist()]
        what = f"{silos[0].id_name or 'identifier'} {row!r}" if silos[0].ids else f"row {row}"
        raise DataError(f"there is no {what} in {file or 'the files of the run'}; the first is {known[0]}")
    if len(found) > 1:
        names = ", ".join(sorted({silo.name for silo, _ in found}))
        raise DataError(f"{len(found)} rows are called {row!r}, in {names}; name one silo with --client")
    ((silo, place),) = found
    recipe = getattr(model, "text_recipe_", None)
    lookup = None
    if recipe is not None and texts:

        def lookup(columns: Sequence[int]) -> dict[int, str]:
            return dict(column_words(texts, columns, recipe.salt, recipe.n_buckets))

    if (schema := runs.schema_of(model, run)) is not None:
        model.schema_ = schema
    name = silo.name if client is None or silo.name in model.client_ids_ else client
    why = explain_row(model._models[client or name], silo.X[[place]], model._features(lookup, silo.feature_names))
    kept = runs.read_explanation(run)
    called = Explanation.from_dict(kept).names if kept else {}
    return f"{silo.id_name or 'row'} {row} of {client or name}", why.named(called)


def _silos_of(
    words: Words, run: Path, model: FMTC, client: str | None, file: Path | None
) -> tuple[list[Silo], list[str | None]]:
    """Rows of a file, or of the files that the run remembers, as the model reads them; of texts, the texts too."""
    from dataclasses import replace

    from ..artifacts import runs
    from ..artifacts.files import read_json
    from ..errors import DataError, FileError, listed
    from ..tables import read_silos, read_texts
    from ..tables.formats import stem_of

    if client is not None and client not in model.client_ids_:
        raise DataError(f"there is no silo {client!r} in this run; there are {listed(model.client_ids_)}")
    form = {"reading?": runs.READING, "files?": [str]}
    about = read_json(run / "report.json", form) if (run / "report.json").is_file() else {}
    reading = Reading.from_dict(about.get("reading") or {})
    files = [file] if file is not None else [Path(name) for name in about.get("files", ())]
    column = reading.silo_column if file is None else None
    if file is None and client is not None and column is None and len(files) > 1:
        files = [path for path in files if stem_of(path) == client] or files
    if file is None and not (files and all(path.is_file() for path in files)):
        gone = next((path for path in files if not path.is_file()), None)
        why = f"{gone} is not there any more" if gone is not None else f"{run} does not remember its files"
        raise FileError(f"{why}: give the file with the row, such as `fmtc explain {run} new.csv --row 17`")
    schema, recipe = runs.schema_of(model, run), getattr(model, "text_recipe_", None)
    own = reading.id_column if file is None else None  # of another file: as the schema has it, if the file does
    plain = Reading(silo_column=column, id_column=own, header=reading.header, obsm=reading.obsm, wording=FLAGS)
    how = plain.for_model(schema, recipe)
    with words.warnings_as_notes():
        silos = read_silos(files, how)
    if silos[0].X.shape[1] != model.n_features_in_:
        raise DataError(f"{files[0]} has {silos[0].X.shape[1]} columns, the model has {model.n_features_in_}")
    if file is not None:
        if client is None and len(model.client_ids_) > 1 and silos[0].name not in model.client_ids_:
            raise DataError(f"rows of which silo? The run is of {listed(model.client_ids_)}; name one with --client")
        name = client or (silos[0].name if silos[0].name in model.client_ids_ else model.client_ids_[0])
        silos = [replace(silo, name=name) for silo in silos]
    elif client is not None:
        silos = [silo for silo in silos if silo.name == client] or [replace(silo, name=client) for silo in silos[:1]]
    texts = read_texts(files, how) if recipe is not None else []
    return list(silos), texts


def _places(silo: Silo, row: str) -> list[int]:
    """Where a row stands among those of a silo: by identifier or, where it has none, by its number in the file."""
    if silo.ids is not None:
        return [place for place, name in enumerate(silo.ids) if str(name) == row]
    return [place for place, number in enumerate(silo.rows.tolist()) if str(number) == row]


def _numbered(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"\s*(\d+)\s*=(.*)", text, re.DOTALL)
    if found is None:
        raise click.UsageError(f"--rename takes the number of a cluster and its name, such as 2=severe; got {text!r}")
    name = " ".join(found[2].split())
    if len(name) > 80 or not name.isprintable():
        raise click.UsageError(f"a name has at most 80 characters that can be printed; got {name[:80]!r}")
    return int(found[1]), name


def _show_row(console: Console, what: str, why: RowExplanation, run: Path) -> None:
    """Which columns decided, and what would change it."""
    from ..artifacts.runs import read_explanation
    from ..describe import Explanation

    first = Text.assemble((f"{printable(what)}: ", ""), (printable(why.title(why.cluster)), "bold"))
    show(console, Text.assemble(first, f", probability {100 * why.probability:.0f} %"))
    kept = read_explanation(run)
    differences = Explanation.from_dict(kept).clusters[why.cluster].differences if kept else ()
    if differences:
        show(console, Text(f"Rows of this cluster: {printable('; '.join(map(str, differences)))}", "dim"))
    if why.cluster == why.second:
        return
    show(console, Text(f"\nWhat speaks for it, against {printable(why.title(why.second))}"))
    table = Table.grid(padding=(0, 2))
    for reason in why.reasons:
        table.add_row("", Text(printable(reason.column)), Text(printable(reason.value)), _signed(reason.contribution))
    if why.rest:
        table.add_row("", "all other columns", "", _signed(why.rest))
    if abs(why.start) >= 0.005:
        table.add_row("", "before any column is looked at", "", _signed(why.start))
    table.add_row("", Text("together" if why.exact else "in all", "bold"), "", _signed(why.margin))
    show(console, table)
    if not why.exact:
        show(console, Text("Each is what the whole loses without the column; they do not add up.", "dim"))
    if not why.changes:
        show(console, Text("No change of one column within its usual range leads to another cluster."))
        return
    show(console, Text("\nWhat would change it, one column alone"))
    table = Table.grid(padding=(0, 2))
    for change in why.changes:
        table.add_row("", Text(printable(str(change))))
    show(console, table)


def _signed(value: float) -> Text:
    return Text(f"{'+' if value >= 0 else '−'}{abs(value):.2f}", "green" if value >= 0 else "red", justify="right")


def _title(cluster: Cluster, share: str) -> Text:
    rows = f"{cluster.size} rows, {share}" if cluster.rows else "no rows"
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
    from ..describe import percents_of

    table = new_table()
    table.add_column("silo")
    table.add_column("rows", justify="right")
    for cluster in explanation.clusters:
        table.add_column(str(cluster.cluster), justify="right")
    for client, clusters in explanation.silos.items():
        cells = [share if one.rows else "–" for one, share in zip(clusters, percents_of(clusters), strict=True)]
        table.add_row(Text(printable(client)), f"{sum(one.rows for one in clusters):,}", *cells)
    return table
