"""What `fmtc explain` shows: clusters, single rows, and what else is in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from .. import tables
from ..artifacts import runs
from ..artifacts.files import check_form, read_json
from ..describe import Explanation
from ..describe.clusters import percents_of
from ..describe.reasons import explain_row as why_row
from ..describe.words import empty_clusters_sentence
from ..errors import DataError, FileError, listed
from ..estimator import FMTC
from ..loading import load_atlas, load_run
from ..protocol.auto import METHOD
from ..protocol.base import LETTERS, declared
from ..protocol.method import COMMON
from ..tables.reading import Reading
from ..wording import FLAGS
from .predict import read_known, silos_of, text_recipe, word_lookup
from .words import Words, new_console, new_table, plural, show, show_indented

HOW_ENDED = {True: ", converged", False: ", all that were allowed", None: ""}  # None: a silo that was not told
KEPT = {"federated": "common model", "alone": "its own model", None: ""}


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
    table = new_table("<silo", ">rows", *(f">{cluster.cluster}" for cluster in explanation.clusters))
    for silo, clusters in explanation.silos.items():
        cells = [share if one.rows else "–" for one, share in zip(clusters, percents_of(clusters), strict=True)]
        table.add_row(silo, f"{sum(one.rows for one in clusters):,}", *cells)
    return table


def show_atlas(words: Words, run: Path) -> None:
    """Show each cluster of a federation, and which silos have how much of it."""
    atlas = load_atlas(run)
    if not words.give(atlas.to_dict()):
        words.show(str(atlas))


# ------------------------------------------------------------------------------------------------------------ one row


def explain_row(words: Words, run: Path, silo_name: str | None, row: str, file: Path | None) -> None:
    """Say why a row is in its cluster, and what would change it."""
    model = load_run(run)
    if silo_name is not None and silo_name not in model.silos_:
        raise DataError(f"there is no silo {silo_name!r} in this run; there are {listed(model.silos_)}")
    files, reading = _remembered(run)
    with words.warnings_as_notes():
        if file is not None:  # which says itself what its rows are called
            files, reading = [file], replace(reading, silo_column=None, id_column=None)
            silos = silos_of(model, run, files, silo_name, reading)
        else:
            silos = _of_run(model, run, files, silo_name, reading)
    silo, place = _found(silos, row, file)
    features = model._features(word_lookup(files, reading.of_texts(text_recipe(model))), silo.feature_names)
    why = why_row(model._models[silo.name], silo.X[[place]], features)
    explanation = runs.read_explanation(run)
    why = replace(why, names=explanation.names if explanation else {})
    what = f"{silo.id_name or 'row'} {row} of {silo.name}"
    if not words.give({"row": what, **why.to_dict()}):
        words.show(f"{what}: {why}")


def _remembered(run: Path) -> tuple[list[Path], Reading]:
    """The files of a run, and what else than columns has to be known to read them."""
    form = {"reading?": runs.READING, "files?": [str]}
    about = read_json(run / "report.json", form) if (run / "report.json").is_file() else {}
    was = Reading.from_dict(about.get("reading") or {})
    reading = Reading(
        silo_column=was.silo_column, id_column=was.id_column, header=was.header, obsm=was.obsm, wording=FLAGS
    )
    return [Path(name) for name in about.get("files", ())], reading


def _of_run(model: FMTC, run: Path, files: list[Path], silo_name: str | None, reading: Reading) -> list[tables.Silo]:
    """The rows of a run or of one of its silos, from the files that it was fitted to."""
    if gone := next((f"{path} is not there any more" for path in files if not path.is_file()), None):
        files = []
    if not files:
        why = gone or f"{run} does not remember its files"
        raise FileError(f"{why}: give the file with the row, such as `fmtc explain {run} new.csv --row 17`")
    silos = read_known(files, reading, model.n_features_in_, runs.schema_of(model, run), text_recipe(model))
    if len(model.silos_) == 1:
        (silo_name,) = model.silos_
    own = [silo for silo in silos if silo_name in (None, silo.name)]
    return own or [replace(silos[0], name=str(silo_name))]


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
    model = load_run(run)
    recipe = text_recipe(model)
    history = model.run_.rounds  # empty where a model was kept without its rounds
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
    if not words.give(about):
        _show_model(words, model, about)


def _show_model(words: Words, model: FMTC, about: dict[str, Any]) -> None:
    silos, history = about["silos"].items(), model.run_.rounds
    features = plural(about["n_features"], "feature") + ("" if about["feature_names"] is not None else " without names")
    facts = {
        "model": about["model"],
        "holds": f"{plural(len(silos), 'silo')}, {features}, {plural(about['n_clusters'], 'cluster')}",
        "rounds": f"{model.n_iter_}{HOW_ENDED[model.converged_]}",
        "stopped": model.run_.stopped_because,
        "view": model.view_,
    }
    if about["text"] is not None:
        facts["reads"] = f"texts in column {about['text']['text_column']!r}"
    if history:
        facts["standing"] = f"{history[-1].standing} in the last round"
        facts["traffic"] = f"{decimal(about['bytes_up'])} from the silos, {decimal(about['bytes_down'])} to them"
    for name, fact in facts.items():
        words.show(Text.assemble((f"{name:<11}", "bold"), fact))
    words.show("")
    table = new_table("<silo", ">cluster", "<most important features")
    for cid, one in silos:
        for j, marks in enumerate(one["top_features"]):
            shown = "  ".join(f"{'-' if mark['weight'] < 0 else '+'}{mark['feature']}" for mark in marks)
            table.add_row("" if j else cid, str(j), shown)
        table.add_section()
    words.show(table)
    if not any(any(one["top_features"]) for _, one in silos):
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
    found = read_json(file, {"trust?": (dict, None)}).get("trust")
    if found is None:
        raise FileError(
            f"{run} does not say who pulls whom: it was written by an older version of fmtc, or by one silo"
        )
    check_form(file, found, runs.TRUST, "trust")
    if words.give(found):
        return
    lines, rounds, pulls = found["clients"], found["rounds"], found["influence"]
    silos = [line["silo"] for line in lines]
    table = new_table("<silo", ">affinity", ">capped", ">weighed down", "<kept")
    for line in lines:
        affinity = "" if line["affinity"] is None else f"{line['affinity']:.2f}"
        counts = f"{line['capped']} of {rounds}", f"{line['odd']} of {rounds}"
        table.add_row(line["silo"], affinity, *counts, KEPT[line["kept"]])
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
    phases = declared((*COMMON, *METHOD.phases))
    if words.give({"letters": LETTERS, "phases": phases}):
        return
    console = new_console()
    for phase in phases:
        show(console, Text.assemble((phase["phase"], "bold"), f" ({phase['doing']})"))
        for title, fields in (("asked", phase["asks"]), ("answer", phase["answers"])):
            if not fields:
                show_indented(console, f"{title}: nothing")
            for field in fields:
                when = "" if field["when"] == "always" else f" ({field['when']})"
                shape = f", {field['shape']}: {field['what']}{when}"
                show_indented(console, Text.assemble(f"{title}: ", (field["name"], "bold"), shape))
                show_indented(console, f"can tell: {field['tells']}", "dim", by=10)
        console.print()
    show(console, "In shapes: " + ", ".join(f"{letter} {what}" for letter, what in LETTERS.items()) + ".")
