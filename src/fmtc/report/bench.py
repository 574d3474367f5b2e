"""The page of a comparison: everything that a folder of results says, as one dictionary, and the page made of it."""

from __future__ import annotations

import base64
import csv
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..artifacts.files import jsonable, read_json
from ..bench import paper, tables
from ..bench.evidence import DATASETS, Row, compact, read_compact
from ..bench.grid import Store
from ..bench.methods import METHODS, method_of
from ..bench.plots import TITLES, WHAT
from ..bench.results import about as told_by
from ..bench.summary import SCORES, best_of, mean_ranks, summarise
from ..errors import FileError
from .page import compose
from .summary import _and, _count, _versions, verdict

PARTS = {"in": "training rows", "out": "held-out rows"}
MODES = {"default": "one setting for all data sets", "oracle": "oracle: setting picked by labels"}
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}
CELL = ("dataset", "method", "trial", "split", "seed")  # which cell a row is of

RANKS = {f"critical_difference_{score}_{part}": (score, part) for score, part in product(("acc", "nmi"), PARTS)}
FIGURES = {  # caption, and what is to be seen there; those of `fmtc bench paper`, in the order of the page
    **{
        name: (
            f"Mean ranks by {score.upper()} on {PARTS[part]}. Methods under one bar do not differ by more than the "
            "critical difference.",
            f"Mean ranks by {score.upper()} on {PARTS[part]}, from the best on the left to the worst",
        )
        for name, (score, part) in RANKS.items()
    },
    **{
        f"inside_outside_{score}": (
            f"{score.upper()} of all methods on training and held-out rows.",
            f"Bars of {score.upper()} on training and on held-out rows, a panel for each data set and a pair of bars "
            "for each method; the table of scores has the numbers",
        )
        for score in paper.SCORES
    },
    "convergence": (
        "Objective, residuals and ACC of FMTC by round.",
        "Lines over the rounds, a column for each data set: the objective, primal and dual residual, and ACC on "
        "training and held-out rows",
    ),
    "sensitivity": (
        "ACC over alpha and beta.",
        "Bars and a heat map of ACC on held-out rows for each pair of alpha and beta, a line for each data set",
    ),
    "ablations": (
        "What each change of the default brings or costs.",
        "A dot for each data set: by how much ACC on held-out rows changes with each setting; the table of ablations "
        "has the numbers",
    ),
    "clouds": (
        "Data sets by t-SNE, coloured by client and by class.",
        "Rows of each data set as points, on the left in the colour of their client, on the right of their class",
    ),
}


def summarise_results(folder: str | Path) -> dict[str, Any]:
    """Everything that can be said about a comparison, from the folder it left.

    Parameters
    ----------
    folder : path
        What `fmtc bench paper`, `fmtc bench run` or `fmtc bench smoke` wrote. ``rows.csv`` is enough, and so is
        ``cells.jsonl``, which also knows why a cell failed. ``about.json`` and ``figures/`` are taken where they are.

    Returns
    -------
    dict
        In what JSON knows. `title`, `words` and `findings` (sentences); `counts`; `table` (cells of methods and data
        sets, and for each view of them the best and the mean ranks); `statistics`, of `tables.statistics`;
        `ablations`, `failed` and `figures` (lists of rows); `about`, how it was made; `notes`; `files`, which the page
        carries inside: the rows, and pictures as data URIs.

    Raises
    ------
    FileError
        Where the folder holds no results, or a file of it is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.bench.evidence import COLUMNS
    >>> from fmtc.report.bench import summarise_results
    >>> same = dict.fromkeys(COLUMNS, "0.5") | {"dataset": "digits", "trial": "default", "split": "0", "seed": "0"}
    >>> cells = [same | {"method": name, "status": "ok"} for name in ("fmtc", "kmeans")]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lines = [",".join(COLUMNS), *(",".join(cell[name] for name in COLUMNS) for cell in cells)]
    ...     _ = (Path(folder) / "rows.csv").write_text("\\n".join(lines))
    ...     summary = summarise_results(folder)
    >>> summary["words"]
    ['2 fits: 2 methods on 1 data set, 1 split. None failed.']
    """
    results = _open(Path(folder))
    rows = results.rows
    table, statistics = _table(rows), tables.statistics(rows)
    figures, files = _figures(results, statistics)
    counts = _counts(rows)
    return dict(
        jsonable(
            {
                "title": f"{_count(counts['methods'], 'method')} on {_count(counts['datasets'], 'data set')}",
                "words": _words(counts),
                "findings": list(_tested(statistics) if statistics else _ranked(table)),
                "counts": counts,
                "table": table,
                "statistics": statistics,
                "ablations": _ablations(rows),
                "failed": _failed(results),
                "figures": figures,
                "about": results.about,
                "notes": results.notes,
                "versions": {"fmtc": __version__},
                "files": {"rows.csv": results.csv, **files},
            }
        )
    )


def render_results(summary: Mapping[str, Any]) -> str:
    """The page of a comparison: HTML that opens from disk, prints, and loads nothing.

    Parameters
    ----------
    summary : mapping
        Of `summarise_results`.

    Returns
    -------
    str

    Examples
    --------
    >>> from fmtc.report.bench import render_results, summarise_results
    >>> page = render_results(summarise_results("results"))  # doctest: +SKIP
    """
    titles = {line["name"]: line["title"] for kind in ("methods", "datasets") for line in summary["table"][kind]}
    shown = {**summary, "titles": titles, "whats": WHAT, "parts": PARTS}
    return compose("bench", shown, {"table": summary["table"], "rows": summary["files"]["rows.csv"]})


# ------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Results:
    folder: Path
    rows: Sequence[Row]
    csv: str
    cells: Sequence[Row]  # the same with all that was kept, where it is there
    about: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)


def _open(folder: Path) -> _Results:
    table, store = folder / "rows.csv", folder / "cells.jsonl"
    if not (table.is_file() or store.is_file()):
        why = "has neither rows.csv nor cells.jsonl" if folder.is_dir() else "is not a folder"
        raise FileError(f"{folder} {why}: give the folder of a comparison")
    cells, whole = _read_cells(store) if store.is_file() else ([], "")
    rows, text = _read_rows(table) if table.is_file() else (cells, whole)
    if not rows:
        raise FileError(f"{table if table.is_file() else store} has no cells: run a comparison first")
    results = _Results(folder, rows, text, cells, _about(folder, rows, cells))
    kept, told = ({tuple(row[name] for name in CELL) for row in some} for some in (cells, rows))
    if kept - told:
        results.notes.append(
            f"cells.jsonl has {_count(len(kept - told), 'cell')} more than rows.csv, which this page is made of; "
            "`fmtc bench paper` updates it."
        )
    if len(results.about["code"]) > 1:
        results.notes.append(
            f"The cells were run by {len(results.about['code'])} versions of the code; run them into a new folder "
            "to have all by one."
        )
    return results


def _read_rows(path: Path) -> tuple[list[dict[str, Any]], str]:
    """Rows of a ``rows.csv``, and its text."""
    try:
        text = path.read_bytes().decode("utf-8")
        rows = read_compact(path)
    except FileError:
        raise
    except (ValueError, TypeError, csv.Error) as error:
        why = "a line is truncated" if isinstance(error, TypeError) else error
        raise FileError(f"{path} is damaged: {why}; write it again from the stored cells") from error
    if any(None in row or None in row.values() for row in rows):
        raise FileError(
            f"{path} is damaged: a line has other columns than the first; write it again from the stored cells"
        )
    return rows, text


def _read_cells(path: Path) -> tuple[list[dict[str, Any]], str]:
    """Stored cells that still mean what they meant, and how they read as ``rows.csv``."""
    cells = Store(path).current()
    return cells, compact(cells)


def _about(folder: Path, rows: Sequence[Row], cells: Sequence[Row]) -> dict[str, Any]:
    """How the rows came about, as far as it was kept."""
    file = folder / "about.json"
    told = read_json(file) if file.is_file() else told_by(cells, "") if cells else {}
    fits = np.nansum([row.get("seconds_fit", 0.0) for row in rows])
    try:
        return {
            "command": str(told.get("command") or ""),
            "machines": [str(name) for name in told.get("machines", [])],
            "code": [str(name) for name in told.get("code", [])],
            "versions": [_versions(each) for each in told.get("versions", [])],
            "seconds": float(np.nan_to_num(float(told.get("seconds_of_all_cells", fits)))),
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise FileError(f"{file} is damaged: {type(error).__name__}: {error}") from error


# --------------------------------------------------------------------------------------------------------- table


def _is_variant(dataset: str, method: str = "") -> bool:
    """Whether a cell has a setting of its own, or a data set in another form."""
    return "?" in dataset or "/" in method


def _table(rows: Sequence[Row]) -> dict[str, Any]:
    """Cells of methods and data sets in all scores, and for each view of them the best and the mean ranks."""
    found = {score: summarise(rows, score=score) for score in SCORES}
    sets, methods = (list(dict.fromkeys(entry[name] for entry in found["acc"])) for name in ("dataset", "method"))
    sets.sort(key=lambda name: DATASETS.index(name) if name in DATASETS else len(DATASETS))
    known = list(METHODS)
    methods.sort(key=lambda name: known.index(name) if name in known else len(known))
    plain = [entry for entry in found["acc"] if not _is_variant(entry["dataset"], entry["method"])]
    scopes = ["plain", "all"] if 0 < len(plain) < len(found["acc"]) else ["all"]
    compared = len({e["method"] for e in plain}) >= 3 and len({e["dataset"] for e in plain}) >= 2
    modes = [mode for mode in MODES if any(entry["mode"] == mode for entry in found["acc"])]
    return {
        "datasets": [{"name": name, "title": TITLES.get(name, name), "variant": _is_variant(name)} for name in sets],
        "methods": [_method(name) for name in methods],
        "scores": list(SCORES),
        "parts": PARTS,
        "modes": {mode: MODES[mode] for mode in modes},
        "scopes": scopes,
        "scope": "plain" if compared and len(scopes) > 1 else "all",
        "cells": [_cell(lines) for lines in zip(*found.values(), strict=True)],
        "views": {
            " ".join((scope, mode, score, part)): _view(found[score], scope, mode, part)
            for scope, mode, score, part in product(scopes, modes, SCORES, PARTS)
        },
    }


def _method(name: str) -> dict[str, Any]:
    """What a table says of a method; one that this program does not know keeps its name."""
    try:
        method = method_of(name)
        title, group, shares = method.title, method.group, method.shares
    except ValueError:
        title, group, shares = name, "other", ""
    return {"name": name, "title": title, "group": group, "shares": shares, "variant": _is_variant("", name)}


def _cell(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One method on one data set: for each score and part our mean, its standard deviation and the paper's number."""
    first = lines[0]
    names = ("dataset", "method", "mode", "trial", "n", "failed", "collapsed", "seconds")
    return {name: first[name] for name in names} | {
        score: {
            part: [
                *(round(line[part + more], 5) for more in ("", "_sd")),
                paper.printed(first["dataset"], first["method"], score, part),
            ]
            for part in PARTS
        }
        for score, line in zip(SCORES, lines, strict=True)
    }


def _view(entries: Sequence[Mapping[str, Any]], scope: str, mode: str, part: str) -> dict[str, Any]:
    """The best of each data set, and mean ranks over the data sets that every method was run on."""
    mine = [
        entry
        for entry in entries
        if entry["mode"] == mode and (scope == "all" or not _is_variant(entry["dataset"], entry["method"]))
    ]
    by_set: dict[str, dict[str, Mapping[str, Any]]] = {}
    for entry in mine:
        by_set.setdefault(entry["dataset"], {})[entry["method"]] = entry
    methods = {entry["method"] for entry in mine}
    best = {name: best_of(line.values(), part) for name, line in by_set.items()}
    full = {name for name, line in by_set.items() if set(line) == methods and any(e["n"] for e in line.values())}
    return {
        "best": {name: round(value, 5) for name, value in best.items() if value is not None},
        "ranks": mean_ranks([entry for entry in mine if entry["dataset"] in full], part, mode),
        "n": len(full),
    }


# --------------------------------------------------------------------------------------------------------- words


def _counts(rows: Sequence[Row]) -> dict[str, int]:
    return {
        "cells": len(rows),
        "failed": sum(row["status"] != "ok" for row in rows),
        "variants": sum(_is_variant(row["dataset"], row["method"]) for row in rows),
        "methods": len({row["method"].partition("/")[0] for row in rows}),
        "datasets": len({row["dataset"].partition("?")[0] for row in rows}),
        "splits": len({row["split"] for row in rows}),
    }


def _words(counts: Mapping[str, int]) -> list[str]:
    """What was run, in a few sentences."""
    said = (
        f"{_count(counts['cells'], 'fit')}: "
        f"{_count(counts['methods'], 'method')} on {_count(counts['datasets'], 'data set')}, "
        f"{_count(counts['splits'], 'split')}."
    )
    failed = f"{counts['failed']:,} of them failed." if counts["failed"] else "None failed."
    variants = (
        f"{_count(counts['variants'], 'fit')} {'is a variant' if counts['variants'] == 1 else 'are variants'}: one "
        "setting or the data changed, to see what that does."
    )
    return [f"{said} {failed}", *([variants] if counts["variants"] else [])]


def _tested(statistics: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each score and part who is first, who second, and whether that is more than luck."""
    for entry in statistics:
        test = entry["friedman_with_kmeans"]
        (first, best), (second, next_best) = list(test["ranks"].items())[:2]
        differ = test["p_value"] < test["alpha"]
        apart = differ and not any(first in group and second in group for group in test["groups"])
        score, where = entry["score"].upper(), PARTS[entry["part"]]
        percent = f"{100 * test['alpha']:g} %"
        if apart:
            why = f"significant (Nemenyi, {percent}: more than {test['critical_difference']:.2f})"
        elif differ:
            why = f"not significant (Nemenyi, {percent}: {test['critical_difference']:.2f} would be)"
        else:
            why = f"not significant, nor is any among these methods (Friedman, p = {test['p_value']:.2g})"
        yield {
            "score": entry["score"],
            "part": entry["part"],
            "first": first,
            "second": second,
            "significant": apart,
            "sentence": (
                f"{_method(first)['title']} has the best mean rank in {score} on {where}, {best:.2f} among "
                f"{_count(len(test['ranks']), 'method')}, before {_method(second)['title']} with {next_best:.2f}. Over "
                f"{_count(test['n'], 'data set')} the difference is {why}.{_pairs(entry, first, second)}"
            ),
        }


def _pairs(entry: Mapping[str, Any], first: str, second: str) -> str:
    """What Wilcoxon's test says about the first two, where one of them is the one that all are compared with."""
    told = [
        f"{line['p_holm']:.2g} over {over}"
        for name, over in (("wilcoxon", "splits"), ("wilcoxon_datasets", "data sets"))
        for line in entry[name]
        if {line["first"], line["second"]} == {first, second}
    ]
    return f" Pair by pair (Wilcoxon, Holm) p\u00a0=\u00a0{' and '.join(told)}." if told else ""


def _ranked(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Who is first, where there is too little for a test."""
    for score, part in product(("acc", "nmi"), PARTS):
        view = table["views"].get(f"{table['scope']} default {score} {part}", {"ranks": {}})
        order = sorted(view["ranks"].items(), key=lambda item: item[1])
        if len(order) < 2:
            continue
        first = [name for name, rank in order if rank == order[0][1]]
        have = "has" if len(first) == 1 else "share"
        yield {
            "score": score,
            "part": part,
            "first": order[0][0],
            "second": order[1][0],
            "significant": None,
            "sentence": (
                f"{_and([_method(name)['title'] for name in first])} {have} the best mean rank in {score.upper()} on "
                f"{PARTS[part]}: {order[0][1]:.2f} among {_count(len(order), 'method')}, over "
                f"{_count(view['n'], 'data set')}; too little for a test."
            ),
        }


# ------------------------------------------------------------------------------------------ ablations and failures


def _ablations(rows: Sequence[Row]) -> dict[str, Any]:
    """What each change of the default brings or costs in ACC, in percent points; empty where none was run."""
    found: dict[str, Any] = {}
    for part in ("out", "in"):
        entries = tables.ablation_entries(rows, "acc", part)
        tried = {entry["what"] for entry in entries if not entry["default"]}
        entries = [entry for entry in entries if entry["what"] in tried]
        lines: dict[tuple[str, str], dict[str, Any]] = {}
        for entry in entries:
            line = lines.setdefault(
                (entry["what"], entry["value"]),
                {"what": entry["what"], "value": entry["value"], "default": True, "gains": {}},
            )
            line["default"] &= entry["default"]
            line["gains"][entry["dataset"]] = _gain(entry)
        for line in lines.values():
            line["mean"] = float(np.mean([gain["gain"] for gain in line["gains"].values()]))
        if lines:
            sets = list(dict.fromkeys(entry["dataset"] for entry in entries))
            found[part] = {"datasets": sets, "lines": list(lines.values())}
    return found


def _gain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Gain, its standard error over splits, and whether it is clear; None for the default itself."""
    error = None if np.isnan(entry["gain_sd"]) else entry["gain_sd"] / np.sqrt(entry["n"])
    clear = verdict({"gain": entry["gain"] / 100, "gain_error": None if error is None else error / 100})
    return {"gain": entry["gain"], "error": error, "verdict": clear, "default": entry["default"]}


def _failed(results: _Results) -> list[dict[str, Any]]:
    """Cells that did not succeed, with what is known about why."""
    why = {tuple(row[name] for name in CELL): row.get("error") for row in results.cells}
    return [
        {name: row[name] for name in (*CELL, "status")} | {"error": why.get(tuple(row[name] for name in CELL))}
        for row in results.rows
        if row["status"] != "ok"
    ]


# ------------------------------------------------------------------------------------------------------- figures


def _figures(results: _Results, statistics: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What is in ``figures/``, with captions, in the order of the page; and the pictures themselves as data URIs."""
    found: dict[str, Path] = {}
    for suffix in KINDS:  # a picture that is there twice is taken once
        for path in (results.folder / "figures").glob(f"*{suffix}"):
            found.setdefault(path.stem, path)
    known = list(FIGURES)
    ranks = {
        f"critical_difference_{entry['score']}_{entry['part']}": entry["friedman_with_kmeans"]["ranks"]
        for entry in statistics
    }
    figures, files = [], {}
    for name in sorted(found, key=lambda name: (known.index(name) if name in known else len(known), name)):
        path = found[name]
        content = path.read_bytes()
        size = _size(content) if path.suffix == ".png" else (None, None)
        file = f"figures/{path.name}"
        if size is None:
            results.notes.append(f"{file} is not an image that can be shown, and is omitted.")
            continue
        words = name.replace("_", " ")
        caption, alt = FIGURES.get(name, (f"{words}.", f"Figure {words}"))
        if name in ranks:
            alt += ": " + ", ".join(f"{_method(method)['title']} {rank:.2f}" for method, rank in ranks[name].items())
        files[file] = f"data:{KINDS[path.suffix]};base64,{base64.b64encode(content).decode()}"
        figures.append(
            {"name": name, "ranks": name in RANKS, "file": file, "caption": caption, "alt": f"{alt}."}
            | {"width": size[0], "height": size[1]}
        )
    return figures, files


def _size(content: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG, None where it is none."""
    if len(content) < 24 or not content.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    width, height = struct.unpack(">II", content[16:24])
    return width, height
