"""What `fmtc explain --show` shows of a run: its model, who pulls whom, and all messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal
from rich.text import Text

from ..artifacts import runs
from ..artifacts.files import check_form, file_names, read_json
from ..errors import FileError
from ..estimator import FMTC
from ..loading import load
from ..protocol.auto import METHOD
from ..protocol.base import LETTERS, declared
from ..protocol.method import COMMON
from ..runtime.driver import RoundRecord
from .words import Words, new_console, new_table, plural, show, show_indented

HOW_ENDED = {True: ", converged", False: ", all that were allowed", None: ""}  # None: a silo that was not told
KEPT = {"federated": "common model", "alone": "its own model", None: ""}


def model_of(run: Path) -> FMTC:
    """The model of a run, with what its columns are."""
    model = load(runs.model_folder(run))
    if (schema := runs.schema_of(model, run)) is not None:
        model.schema_ = schema
    return model


def show_model(words: Words, run: Path, top: int) -> None:
    """Show what a model is: silos, features, clusters, how its rounds ended, file sizes."""
    folder, model = runs.model_folder(run), model_of(run)
    recipe = getattr(model, "text_recipe_", None)
    history = model.run_.rounds  # empty where a model was kept without its rounds
    about: dict[str, Any] = {
        "model": str(folder),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
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
        "silos": {cid: _about_silo(model, folder, cid, top) for cid in model.silos_},
    }
    if not words.give(about):
        _show_model(words, about)


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
    clients, rounds = found["clients"], found["rounds"]
    table = new_table("<silo", ">affinity", ">capped", ">weighed down", "<kept")
    for line in clients:
        affinity = "" if line["affinity"] is None else f"{line['affinity']:.2f}"
        counts = f"{line['capped']} of {rounds}", f"{line['odd']} of {rounds}"
        table.add_row(line["silo"], affinity, *counts, KEPT[line["kept"]])
    words.show(table)
    held = [line["silo"] for line in clients if line["held"]]
    nobody = "Nobody was set aside or refused, nor capped in half of the rounds or more."
    words.show(f"Held: {', '.join(held)}." if held else nobody)
    _show_pulls(words, [line["silo"] for line in clients], found["influence"])


def _show_pulls(words: Words, silos: list[str], pulls: list[list[float]] | None) -> None:
    if pulls is None:
        return words.show("Who pulls whom is known for 2 to 64 silos, where a run had them in one place.")
    words.show("")
    table = new_table("<moves, without", *(f">{silo}" for silo in silos[: len(pulls)]))
    for place, (silo, row) in enumerate(zip(silos, pulls, strict=False)):
        table.add_row(silo, *("" if t == place else f"{value:.3f}" for t, value in enumerate(row)))
    words.show(table)
    words.show("Each row: how far a silo's part of the common model moves when the silo of a column is left out.")


def _about_silo(model: FMTC, folder: Path, cid: str, top: int) -> dict[str, Any]:
    file = f"{file_names(model.silos_)[cid]}.safetensors"
    names, signatures = _signatures(model, cid)
    return {
        "file": file,
        "bytes": (folder / file).stat().st_size,
        "dtype": str(model.cluster_centers_[cid].dtype),
        "top_features": [
            [{"feature": names[j], "weight": float(signature[j])} for j in np.argsort(-np.abs(signature))[:top]]
            for signature in signatures
        ],
    }


def _signatures(model: FMTC, cid: str) -> tuple[list[str], np.ndarray]:
    """Names of columns, and how each cluster of a silo lies along them in their common units; lifted, along none."""
    features, (signatures, columns) = model._features(), model._models[cid].directions()
    names = []
    for feature in columns:
        column, level = features.place(feature)
        names.append(features.name(column, {}) + (f"={features.level(column, level)}" if level >= 0 else ""))
    return names, signatures


def _show_model(words: Words, about: Mapping[str, Any]) -> None:
    last, silos = about["last_round"], about["silos"]
    features = plural(about["n_features"], "feature") + ("" if about["feature_names"] is not None else " without names")
    facts = {
        "model": f"{about['model']} ({decimal(about['bytes'])})",
        "holds": f"{plural(len(silos), 'silo')}, {features}, {plural(about['n_clusters'], 'cluster')}",
        "rounds": f"{about['n_iter']}{HOW_ENDED[about['converged']]}",
        "stopped": about["stopped_because"],
        "view": about["view"],
    }
    if about["text"] is not None:
        facts["reads"] = f"texts in column {about['text']['text_column']!r}"
    if last is None:
        facts["standing"] = facts["traffic"] = "not kept with this model"
    else:
        facts["standing"] = f"{RoundRecord.from_dict(last).standing} in the last round"
        facts["traffic"] = f"{decimal(about['bytes_up'])} from the silos, {decimal(about['bytes_down'])} to them"
    for name, fact in facts.items():
        words.show(Text.assemble((f"{name:<11}", "bold"), fact))
    words.show("")
    table = new_table("<silo", "<file", ">cluster", "<most important features")
    for cid, one in silos.items():
        for j, marks in enumerate(one["top_features"]):
            shown = "  ".join(f"{'-' if mark['weight'] < 0 else '+'}{mark['feature']}" for mark in marks)
            first = (cid, f"{one['file']} ({decimal(one['bytes'])})") if j == 0 else ("", "")
            table.add_row(*first, str(j), shown)
        table.add_section()
    words.show(table)
    if not any(marks for one in silos.values() for marks in one["top_features"]):
        lifted = "The graph view has replaced the columns by others (lift), so none has a weight of its own."
        words.show(f"{lifted} `fmtc explain` says what the clusters are.")
