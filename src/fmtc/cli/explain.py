"""What a run says: its clusters, the reasons of a row, its labels, and what else is in it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from .. import tables
from ..artifacts import labels, runs
from ..artifacts.files import new_file, read_json
from ..artifacts.models import KnownColumns
from ..errors import DataError, FileError, listed, plural
from ..tables.reading import Reading
from ..wording import FLAGS
from . import flags
from .flags import PATH, free_path, given
from .predict import check_tables, give_table, pooled, read_known, silos_of, text_recipe, word_lookup
from .program import main_group
from .words import Words, new_table

if TYPE_CHECKING:
    import polars as pl

    from ..describe import Explanation
    from ..estimator import FMTC

SHOWN = ("clusters", "atlas", "labels", "model", "influence", "wire")
HOW_ENDED = {True: ", converged", False: ", all that were allowed", None: ""}  # None: a silo that was not told
KEPT = {"federated": "common model", "public": "common model", "alone": "its own model"}


def _read_renames(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[int, str]:
    """New names of clusters, by number."""
    return dict(map(_numbered, texts))


def _numbered(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"\s*(\d+)\s*=(.*)", text, re.DOTALL)
    if found is None:
        raise click.UsageError(f"--rename takes the number of a cluster and its name, such as 2=severe; got {text!r}")
    name = " ".join(found[2].split())
    if len(name) > 80 or not name.isprintable():
        raise click.UsageError(f"a name has at most 80 characters that can be printed; got {name[:80]!r}")
    return int(found[1]), name


@dataclass(frozen=True)
class Wish:
    """What is to be explained, the table that gets labels, and where labels are written."""

    row: str | None = given("--row", metavar="ROW",
                            help="Why a row is in its cluster: its identifier or, without, its number.")  # fmt: skip
    silo: str | None = given("--silo", metavar="SILO", help="Only this silo, by itself.")
    names: dict[int, str] = given("--rename", metavar="N=NAME", multiple=True, callback=_read_renames,
                                  help="Name cluster N; labels, pages and plots of the run use it.")  # fmt: skip
    what: str = given(
        "--show", type=click.Choice(SHOWN), default=SHOWN[0], show_default=True,
        help="atlas: the clusters and who has them; labels: those of all rows; model: silos, rounds, features; "
        "influence: who pulls whom, and who was capped; wire: all messages, without RUN.",
    )  # fmt: skip
    top: int = given("--top", type=click.IntRange(1), default=4, show_default=True,
                     help="With --show model: features to show for each cluster.")  # fmt: skip
    table: Path | None = given("--join", type=PATH, metavar="FILE", section="Labels",
                               help="A table to add cluster and probability to.")  # fmt: skip
    out: Path | None = given("--out", type=PATH, section="Labels", help="File to write instead of standard output.")
    force: bool = given("--force", is_flag=True, section="Labels", help="Replace --out.")

    def check(self, run: Path | None, file: Path | None, reading: Reading) -> None:
        """Refuse more than one wish, and flags of others."""
        if (run is None) != (self.what == "wire"):
            raise click.UsageError("give the folder of a run or a model; or --show wire alone")
        if sum((self.row is not None, bool(self.names), self.table is not None, self.what != SHOWN[0])) > 1:
            raise click.UsageError("give one of --row, --rename, --show and --join")
        if file is not None and self.row is None:
            raise click.UsageError("FILE is where to look for the row of --row")
        if self.table is None and self.what != "labels" and (self.out is not None or reading.said()):
            raise click.UsageError(
                "--out, --id, --silo-column and --no-header are about labels: --join or --show labels"
            )


@main_group.command("explain", short_help="Say what the clusters of a run are, and show what else is in it.")
@click.argument("run", type=PATH, required=False)
@click.argument("file", type=PATH, required=False)
@flags.takes(wish=Wish)
@flags.reading("silo_column", "id_column", "header")
def explain(run: Path | None, file: Path | None, wish: Wish, reading: Reading, words: Words) -> None:
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
    wish.check(run, file, reading)
    if run is None:
        show_wire(words)
    elif wish.table is not None or wish.what == "labels":
        give_labels(words, run, wish, reading)
    elif wish.what == "model":
        show_model(words, run, wish.top)
    elif wish.what == "influence":
        show_influence(words, run)
    elif wish.what == "atlas":
        show_atlas(words, run)
    elif wish.row is not None:
        explain_row(words, run, wish.silo, wish.row, file)
    else:
        explain_clusters(words, run, wish.silo, wish.names)


# ------------------------------------------------------------------------------------------------------------ labels


def give_labels(words: Words, run: Path, wish: Wish, reading: Reading) -> None:
    """Show the labels of a run as one table, or add them to the rows of another."""
    out, file, write = wish.out and free_path(wish.out, wish.force), wish.table, None
    known = labels.read_labels(run)
    if wish.silo is not None:
        if wish.silo not in known:
            raise click.UsageError(f"the run is of silos {listed(known)}; it has no {wish.silo!r}")
        known = {wish.silo: known[wish.silo]}
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

    from ..tables.matrices import read_obs

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
    from ..tables.matrices import add_obs

    with new_file(out) as copy:
        shutil.copyfile(file, copy)
        add_obs(copy, added)


# ---------------------------------------------------------------------------------------------------------- clusters


def explain_clusters(words: Words, run: Path, silo_name: str | None, names: dict[int, str]) -> None:
    """Say what the clusters of a run or of one silo are, after giving them new names."""
    from ..describe import Explanation
    from ..describe.words import empty_clusters_sentence

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
        runs.rename_clusters(run, explanation)
        words.say(f"renamed {plural(len(names), 'cluster')} in {run}; `fmtc report {run}` makes the page again")
    document, notes, silos = explanation.to_dict(), explanation.notes, explanation.silos
    shown = replace(explanation, notes=())
    if silo_name is not None:
        shown = Explanation(explanation.of(silo_name), {})
        document["clusters"] = shown.to_dict()["clusters"]
    if words.give(document):
        return
    words.show(str(shown))
    if len(shown.silos) > 1:
        words.show(Text("\nshare of each silo's rows", "bold"))
        words.show(_shares(shown))
    for note in notes:
        words.note(note)
    sizes = [[one.rows for one in clusters] for clusters in silos.values()]
    if said := empty_clusters_sentence(sizes, all_silos=runs.OWN_ROWS not in notes):
        words.note(said)


def _shares(explanation: Explanation) -> Table:
    from ..describe.clusters import percents_of

    table = new_table("<silo", ">rows", *(f">{cluster.cluster}" for cluster in explanation.clusters))
    for silo, clusters in explanation.silos.items():
        cells = [share if one.rows else "–" for one, share in zip(clusters, percents_of(clusters), strict=True)]
        table.add_row(silo, f"{sum(one.rows for one in clusters):,}", *cells)
    return table


def show_atlas(words: Words, run: Path) -> None:
    """Show each cluster of a federation, and which silos have how much of it."""
    from ..loading import load_atlas

    atlas = load_atlas(run)
    if not words.give(atlas.to_dict()):
        words.show(str(atlas))


# ------------------------------------------------------------------------------------------------------------ one row


def explain_row(words: Words, run: Path, silo_name: str | None, row: str, file: Path | None) -> None:
    """Say why a row is in its cluster, and what would change it."""
    from ..describe.reasons import explain_row as why_row
    from ..loading import load_run

    model = load_run(run)
    if silo_name is not None and silo_name not in model.silos_:
        raise DataError(f"there is no silo {silo_name!r} in this run; there are {listed(model.silos_)}")
    files, reading, fitted = _remembered(run)
    with words.warnings_as_notes():
        if file is not None:  # which says itself what its rows are called
            files, reading = [file], replace(reading, silo_column=None, id_column=None)
            silos = silos_of(model, files, silo_name, reading)
        else:
            silos = _of_run(model, run, files, fitted, reading)
            silos = [silo for silo in silos if silo_name in (None, silo.name)]
            if not silos:
                raise DataError(f"the files of the run have no rows of {listed([silo_name] if silo_name else fitted)}")
    silo, place = _found(silos, row, file)
    features = model._features(word_lookup(files, reading.of_texts(text_recipe(model))), silo.feature_names)
    why = why_row(model._models[silo.name], silo.X[[place]], features)
    explanation = runs.read_explanation(run)
    why = replace(why, names=explanation.names if explanation else {})
    what = f"{silo.id_name or 'row'} {row} of {silo.name}"
    if not words.give({"row": what, **why.to_dict()}):
        words.show(f"{what}: {why}")


def _remembered(run: Path) -> tuple[list[Path], Reading, list[str]]:
    """The files of a run, what else than columns has to be known to read them, and the silos whose rows they hold."""
    form = {"reading?": runs.READING, "files?": [str], "silos?": [{"silo": str}], "missing?": [str]}
    about = read_json(run / "report.json", form) if (run / "report.json").is_file() else {}
    was = Reading.from_dict(about.get("reading") or {})
    reading = Reading(
        silo_column=was.silo_column, id_column=was.id_column, header=was.header, obsm=was.obsm, wording=FLAGS
    )
    fitted = [*(line["silo"] for line in about.get("silos", ())), *about.get("missing", ())]
    return [Path(name) for name in about.get("files", ())], reading, fitted


def _of_run(model: FMTC, run: Path, files: list[Path], fitted: Sequence[str], reading: Reading) -> list[tables.Silo]:
    """The rows of the silos of a run, from the files that it was fitted to."""
    gone = [f"{path} is not there any more" for path in files if not path.is_file()]
    if gone or not files:
        why = gone[0] if gone else f"{run} does not remember its files"
        raise FileError(f"{why}: give the file with the row, such as `fmtc explain {run} new.csv --row 17`")
    silos = read_known(files, reading, KnownColumns.of(model))
    if len(fitted) == 1:  # whatever its files are called
        silos = [replace(silo, name=fitted[0]) for silo in silos]
    return [silo for silo in pooled(silos) if silo.name in model.silos_]


def _found(silos: Sequence[tables.Silo], row: str, file: Path | None) -> tuple[tables.Silo, int]:
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


# ------------------------------------------------------------------------------------------------ what else is there


def show_model(words: Words, run: Path, top: int) -> None:
    """Show what a model is: silos, features, clusters, how its rounds ended."""
    from ..loading import load_run

    model = load_run(run)
    recipe, history = text_recipe(model), model.run_.rounds  # empty where a model was kept without its rounds
    about: dict[str, Any] = {
        "model": str(runs.model_folder(run)),
        "n_clusters": model.n_clusters_,
        "n_features": model.n_features_in_,
        "feature_names": getattr(model, "feature_names_in_", None),
        "text": None if recipe is None else asdict(recipe),
        "settings": model._params(),
        "n_iter": model.n_iter_,
        "view": model.view_,
        "converged": model.converged_,
        "stopped_because": model.run_.stopped_because,
        "last_round": asdict(history[-1]) if history else None,
        "bytes_up": sum(record.bytes_up for record in history) if history else None,
        "bytes_down": sum(record.bytes_down for record in history) if history else None,
        "silos": {cid: {"top_features": _leading(model, cid, top)} for cid in model.silos_},
    }
    if words.give(about):
        return
    features = plural(model.n_features_in_, "feature") + (" without names" if about["feature_names"] is None else "")
    facts = {
        "model": about["model"],
        "holds": f"{plural(len(model.silos_), 'silo')}, {features}, {plural(model.n_clusters_, 'cluster')}",
        "rounds": f"{model.n_iter_}{HOW_ENDED[model.converged_]}",
        "stopped": model.run_.stopped_because,
        "view": model.view_,
    }
    if recipe is not None:
        facts["reads"] = f"texts in column {recipe.text_column!r}"
    if history:
        facts["standing"] = f"{history[-1].standing} in the last round"
        facts["traffic"] = f"{decimal(about['bytes_up'])} from the silos, {decimal(about['bytes_down'])} to them"
    for name, fact in facts.items():
        words.show(Text.assemble((f"{name:<11}", "bold"), fact))
    words.show("")
    _show_leading(words, about["silos"])


def _show_leading(words: Words, silos: Mapping[str, Any]) -> None:
    table = new_table("<silo", ">cluster", "<most important features")
    for cid, one in silos.items():
        for j, marks in enumerate(one["top_features"]):
            shown = "  ".join(f"{'-' if mark['weight'] < 0 else '+'}{mark['feature']}" for mark in marks)
            table.add_row("" if j else cid, str(j), shown)
        table.add_section()
    words.show(table)
    if not any(any(one["top_features"]) for one in silos.values()):
        lifted = "The graph view has replaced the columns by others (lift), so none has a weight of its own."
        words.show(f"{lifted} `fmtc explain` says what the clusters are.")


def _leading(model: FMTC, cid: str, top: int) -> list[list[dict[str, Any]]]:
    """For each cluster of a silo, the columns along which it lies farthest, in their common units; lifted, none."""
    features, (signatures, columns) = model._features(), model._models[cid].directions()
    names = []
    for feature in columns:
        column, level = features.place(feature)
        names.append(features.name(column, {}) + (f"={features.level(column, level)}" if level >= 0 else ""))
    return [
        [{"feature": names[j], "weight": float(signature[j])} for j in np.argsort(-np.abs(signature))[:top]]
        for signature in signatures
    ]


def show_influence(words: Words, run: Path) -> None:
    """Who pulls whom in a run, from its report.json."""
    file = run / "report.json"
    if not file.is_file():
        raise FileError(f"{run} is not the folder of a run: it has no report.json, which says who pulls whom")
    found = read_json(file, {"trust": runs.TRUST})["trust"]
    if words.give(found):
        return
    lines, rounds, pulls = found["clients"], found["rounds"], found["influence"]
    silos = [line["silo"] for line in lines]
    table = new_table("<silo", ">affinity", ">capped", ">weighed down", "<kept")
    for line in lines:
        affinity = "" if line["affinity"] is None else f"{line['affinity']:.2f}"
        counts = f"{line['capped']} of {rounds}", f"{line['odd']} of {rounds}"
        table.add_row(line["silo"], affinity, *counts, KEPT.get(line["kept"], ""))
    words.show(table)
    held = [line["silo"] for line in lines if line["held"]]
    nobody = "Nobody was set aside or refused, nor capped in half of the rounds or more."
    words.show(f"Held: {', '.join(held)}." if held else nobody)
    if pulls is None:
        return words.show("Who pulls whom is known for 2 to 64 silos, where a run had them in one place.")
    table = new_table("<moves, without", *(f">{silo}" for silo in silos[: len(pulls)]))
    for place, (silo, row) in enumerate(zip(silos, pulls, strict=False)):
        table.add_row(silo, *("" if t == place else f"{value:.3f}" for t, value in enumerate(row)))
    words.show("")
    words.show(table)
    words.show("Each row: how far a silo's part of the common model moves when the silo of a column is left out.")


def show_wire(words: Words) -> None:
    """The declarations of all messages of a run."""
    from ..protocol.auto import METHOD
    from ..protocol.base import LETTERS, declared
    from ..protocol.method import COMMON

    phases = declared((*COMMON, *METHOD.phases))
    if words.give({"letters": LETTERS, "phases": phases}):
        return
    for phase in phases:
        words.show(Text.assemble((phase["phase"], "bold"), f" ({phase['doing']})"))
        for title, fields in (("asked", phase["asks"]), ("answer", phase["answers"])):
            if not fields:
                words.show(f"{title}: nothing", by=2)
            for field in fields:
                when = "" if field["when"] == "always" else f" ({field['when']})"
                shape = f", {field['shape']}: {field['what']}{when}"
                words.show(Text.assemble(f"{title}: ", (field["name"], "bold"), shape), by=2)
                words.show(f"can tell: {field['tells']}", "dim", by=10)
        words.show("")
    words.show("In shapes: " + ", ".join(f"{letter} {what}" for letter, what in LETTERS.items()) + ".")
