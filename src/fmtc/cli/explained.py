"""What `fmtc explain` says: clusters, the atlas and single rows, in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import tables
from ..artifacts import runs
from ..artifacts.files import read_json
from ..describe import (
    Atlas,
    AtlasCluster,
    Cluster,
    Explanation,
    RowExplanation,
    empty_clusters_sentence,
    percents_of,
)
from ..describe import (
    explain_row as why_row,
)
from ..errors import DataError, FileError, listed
from ..estimator import FMTC, load_atlas
from ..tables.reading import Reading
from ..wording import FLAGS
from .predict import read_known, text_recipe, word_lookup
from .shown import model_of
from .words import Words, new_console, new_table, plural, show

# ----------------------------------------------------------------------------------------------------------- clusters


def explain_clusters(words: Words, run: Path, silo_name: str | None, names: dict[int, str]) -> None:
    """Say what the clusters of a run or of one silo are, after giving them new names."""
    explanation = runs.read_explanation(run)
    if explanation is None:
        raise FileError(
            f"{run} does not say what its clusters are: it was written by an older version of fmtc; fit again"
            if runs.is_run(run)
            else f"{run} is not the folder of a run: it has no {runs.EXPLANATION}. Give the --out folder of a run with "
            "rows"
        )
    if names:
        explanation = explanation.renamed(names)
        runs.name_labels(run, explanation)
        words.say(f"renamed {plural(len(names), 'cluster')} in {run}; `fmtc report {run}` makes the page again")
    chosen = explanation.clusters if silo_name is None else explanation.of(silo_name)
    document = explanation.to_dict()
    if silo_name is not None:
        document["clusters"] = Explanation(chosen, {}).to_dict()["clusters"]
    if words.give(document):
        return
    console = new_console()
    show_clusters(console, chosen)
    if silo_name is None and len(explanation.silos) > 1:
        show(console, "share of each silo's rows", "bold")
        show(console, _shares(explanation))
    for note in explanation.notes:
        words.note(note)
    sizes = [[one.rows for one in clusters] for clusters in explanation.silos.values()]
    if said := empty_clusters_sentence(sizes, all_silos=runs.OWN_ROWS not in explanation.notes):
        words.note(said)


def show_clusters(console: Console, clusters: Sequence[Cluster]) -> None:
    """What each cluster is, a line for each column that sets it apart."""
    for cluster, share in zip(clusters, percents_of(clusters), strict=True):
        name = f"  {cluster.name}  " if cluster.name else "  "
        rows = f"{cluster.size} rows, {share}" if cluster.rows else "no rows"
        show(console, Text.assemble((f"cluster {cluster.cluster}", "bold"), name, (rows, "dim")))
        if cluster.differences:
            grid = Table.grid(padding=(0, 2))
            for difference in cluster.differences:
                grid.add_row("", difference.what, difference.values)
            grid.add_row("")
            show(console, grid)


def _shares(explanation: Explanation) -> Table:
    table = new_table("<silo", ">rows", *(f">{cluster.cluster}" for cluster in explanation.clusters))
    for silo, clusters in explanation.silos.items():
        cells = [share if one.rows else "–" for one, share in zip(clusters, percents_of(clusters), strict=True)]
        table.add_row(silo, f"{sum(one.rows for one in clusters):,}", *cells)
    return table


# ------------------------------------------------------------------------------------------------------------- atlas

MOST = 8  # silos that have a column each
SIGNS = {"matched": "", "unsure": " ?", "unique": " !"}
FLAGGED = {
    "unsure": "unsure: hardly more like this cluster than like another, or little like it",
    "unique": "unique: like nothing in the other silos",
}


def give_atlas(words: Words, run: Path) -> None:
    """Show the clusters of a run: name, share in each silo, features, how alike silos are."""
    found = load_atlas(run)
    if not words.give(found.to_dict()):
        show_atlas(new_console(), found)


def show_atlas(console: Console, atlas: Atlas, *, features: bool = True) -> None:
    """Clusters down, silos across and, unless `features` is False, below the features of each cluster."""
    console.print(_atlas_table(atlas))
    flags = {flag for one in atlas.clusters for flag in one.flags.values()}
    said = [f"{SIGNS[flag].strip()} {what}" for flag, what in FLAGGED.items() if flag in flags]
    if said and len(atlas.silos) <= MOST:
        show(console, "; ".join(said), "dim")
    for one in atlas.clusters if features else ():
        if one.top_features:
            show(console, Text.assemble((f"{one.id:>3}  ", "bold"), ", ".join(map(str, one.top_features))))
    for note in atlas.notes:
        show(console, note, "dim")


def _atlas_table(atlas: Atlas) -> Table:
    """Of each cluster its name, if any has one, and the share of each silo's rows; of many silos, a summary."""
    silos = atlas.silos
    nowhere = "in no silo" if len(silos) > 1 else "not in this silo"
    names = [Text(one.name) if one.is_somewhere else Text(nowhere, "dim") for one in atlas.clusters]
    columns = {"<name": names} if any(map(len, names)) else {}  # rows give names: a coordinator has none
    if len(silos) > MOST:
        columns["<silos"] = [Text(_many(one)) for one in atlas.clusters]
    else:
        for cid in silos:
            shares = zip(atlas.shares(cid), atlas.clusters, strict=True)
            columns[f">{cid}"] = [Text(share + SIGNS.get(one.flags.get(cid, ""), "")) for share, one in shares]
    table = new_table(">cluster", *columns)
    for one, *cells in zip(atlas.clusters, *columns.values(), strict=True):
        table.add_row(str(one.id), *cells)
    return table


def _many(cluster: AtlasCluster) -> str:
    """Such as: in 14 of 20, 3 to 31 %; 2 unsure."""
    shares = [share for share in cluster.presence.values() if share]
    has = sum(share is None or share > 0 for share in cluster.presence.values())
    said = f"in {has} of {len(cluster.presence)}"
    if shares:
        said += f", {100 * min(shares):.0f} to {100 * max(shares):.0f} %"
    counts = {flag: list(cluster.flags.values()).count(flag) for flag in FLAGGED}
    return "; ".join([said, *(f"{n} {flag}" for flag, n in counts.items() if n)])


# ------------------------------------------------------------------------------------------------------------ one row


def explain_row(words: Words, run: Path, silo_name: str | None, row: str, file: Path | None) -> None:
    """Say why a row is in its cluster, and what would change it."""
    model = model_of(run)
    if silo_name is not None and silo_name not in model.client_ids_:
        raise DataError(f"there is no silo {silo_name!r} in this run; there are {listed(model.client_ids_)}")
    files, reading = _remembered(run)
    if file is not None:  # which says itself what its rows are called
        files, reading = [file], replace(reading, silo_column=None, id_column=None)
    else:
        files = _there(run, files, silo_name if reading.silo_column is None else None)
    recipe = text_recipe(model)
    with words.warnings_as_notes():
        silos = read_known(files, reading, model.n_features_in_, runs.schema_of(model, run), recipe)
    silo, place = _found(_meant(silos, model, silo_name, file), row, file)
    features = model._features(word_lookup(files, reading.of_texts(recipe)), silo.feature_names)
    why = why_row(model._models[silo.name], silo.X[[place]], features)
    explanation = runs.read_explanation(run)
    why = replace(why, names=explanation.names if explanation else {})
    what = f"{silo.id_name or 'row'} {row} of {silo.name}"
    if not words.give({"row": what, **why.to_dict()}):
        _show_row(new_console(), what, why, explanation)


def _remembered(run: Path) -> tuple[list[Path], Reading]:
    """The files of a run, and what else than columns has to be known to read them."""
    form = {"reading?": runs.READING, "files?": [str]}
    about = read_json(run / "report.json", form) if (run / "report.json").is_file() else {}
    was = Reading.from_dict(about.get("reading") or {})
    reading = Reading(
        silo_column=was.silo_column, id_column=was.id_column, header=was.header, obsm=was.obsm, wording=FLAGS
    )
    return [Path(name) for name in about.get("files", ())], reading


def _there(run: Path, files: list[Path], silo_name: str | None) -> list[Path]:
    """Those files of a run that may hold the row, if they are there."""
    if silo_name is not None and len(files) > 1:
        files = [path for path in files if tables.formats.stem_of(path) == silo_name] or files
    gone = next((path for path in files if not path.is_file()), None)
    if gone is not None or not files:
        why = f"{gone} is not there any more" if gone is not None else f"{run} does not remember its files"
        raise FileError(f"{why}: give the file with the row, such as `fmtc explain {run} new.csv --row 17`")
    return files


def _meant(silos: list[tables.Silo], model: FMTC, silo_name: str | None, file: Path | None) -> list[tables.Silo]:
    """The silos in which the row may be, by the names of the model."""
    known = model.client_ids_
    if file is not None:
        name = silo_name or (silos[0].name if silos[0].name in known else None)
        if name is None and len(known) > 1:
            raise DataError(f"rows of which silo? The run is of {listed(known)}; name one with --silo")
        return [replace(silo, name=name or known[0]) for silo in silos]
    if silo_name is not None:
        return [silo for silo in silos if silo.name == silo_name] or [
            replace(silo, name=silo_name) for silo in silos[:1]
        ]
    return silos


def _found(silos: list[tables.Silo], row: str, file: Path | None) -> tuple[tables.Silo, int]:
    """The silo of a row, and its place there: by identifier or, where there are none, by its number in the file."""
    found = []
    for silo in silos:
        names = silo.rows.tolist() if silo.ids is None else silo.ids
        found += [(silo, place) for place, name in enumerate(names) if str(name) == row]
    if not found:
        first = silos[0]
        what = f"{first.id_name or 'identifier'} {row!r}" if first.ids else f"row {row}"
        known = first.ids[0] if first.ids else first.rows[0]
        raise DataError(f"there is no {what} in {file or 'the files of the run'}; the first is {known}")
    if len(found) > 1:
        names = ", ".join(sorted({silo.name for silo, _ in found}))
        raise DataError(f"{len(found)} rows are called {row!r}, in {names}; name one silo with --silo")
    return found[0]


def _show_row(console: Console, what: str, why: RowExplanation, explanation: Explanation | None) -> None:
    """Which columns decided, and what would change it."""
    first = Text.assemble((f"{what}: ", ""), (why.title(why.cluster), "bold"))
    show(console, Text.assemble(first, f", probability {100 * why.probability:.0f} %"))
    differences = explanation.clusters[why.cluster].differences if explanation else ()
    if differences:
        show(console, f"Rows of this cluster: {'; '.join(map(str, differences))}", "dim")
    if why.cluster == why.second:
        return
    show(console, f"\nWhat speaks for it, against {why.title(why.second)}")
    table = Table.grid(padding=(0, 2))
    for reason in why.reasons:
        table.add_row("", reason.column, reason.value, _signed(reason.contribution))
    if why.rest:
        table.add_row("", "all other columns", "", _signed(why.rest))
    if abs(why.start) >= 0.005:
        table.add_row("", "before any column is looked at", "", _signed(why.start))
    table.add_row("", Text("together" if why.exact else "in all", "bold"), "", _signed(why.margin))
    show(console, table)
    if not why.exact:
        show(console, "Each is what the whole loses without the column; they do not add up.", "dim")
    if not why.changes:
        show(console, "No change of one column within its usual range leads to another cluster.")
        return
    show(console, "\nWhat would change it, one column alone")
    table = Table.grid(padding=(0, 2))
    for change in why.changes:
        table.add_row("", str(change))
    show(console, table)


def _signed(value: float) -> Text:
    return Text(f"{'+' if value >= 0 else '−'}{abs(value):.2f}", "green" if value >= 0 else "red", justify="right")
