"""The page of a comparison: everything that a folder of results says, as one dictionary, and the page made of it."""

from __future__ import annotations

import base64
import csv
import struct
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fmtc import __version__
from fmtc.artifacts.files import jsonable, read_json
from fmtc.describe.words import listing
from fmtc.errors import FileError, plural
from fmtc.report.page import compose
from fmtc.report.summary import versions_of
from fmtc.report.words import verdict

from ..compare import comparison, federations, freeze, paper, tables
from ..compare.evidence import DATASETS, FEDERATIONS, FIRST, Row, compact, read_compact
from ..compare.grid import Store
from ..compare.methods import METHODS, method_of
from ..compare.plots import TITLES, WHAT
from ..compare.results import about as told_by
from ..compare.results import captions, tested
from ..compare.summary import SCORES, best_of, mean_ranks, summarise
from ..datasets.catalogue import text_beside

PARTS = {"in": "training rows", "out": "held-out rows"}
MODES = {"default": "one setting for all data sets", "oracle": "oracle: setting picked by labels"}
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}
CELL = ("dataset", "method", "trial", "split", "seed")  # which cell a row is of

TITLE = {score: comparison.SCORES[score][0] for score in comparison.SCORES}
BLOCKS = {  # of the tables of mean ranks
    "ours": "ours",
    "rivals": "does not pool rows",
    "variants": "variant of FMTC",
    "pooled": "pools all rows",
    "references": "what a score is worth",
}
AVERAGED = {"silos differ": "silos differ", "silos alike": "silos are alike"}
SCOPES = ("test", "plain")  # test federations; data sets as they are; and "all", with variants
FIGURES: dict[str, str] = tomllib.loads(text_beside(__package__, "figures.toml"))  # in the order of the page
RANKS = tuple(name for name in FIGURES if name.startswith(("critical_difference_", "intervals_", "gains_")))


def summarise_results(folder: str | Path) -> dict[str, Any]:
    """Everything that can be said about a comparison, from the folder it left.

    Parameters
    ----------
    folder : path
        What `fmtc-bench paper`, `fmtc-bench run` or `fmtc-bench smoke` wrote. ``rows.csv`` is enough, and so is
        ``cells.jsonl``, which also knows why a cell failed. ``about.json`` and ``figures/`` are taken where they are.

    Returns
    -------
    dict
        In what JSON knows. `title`, `words` and `findings` (sentences); `counts`; `table` (cells of methods and data
        sets, and for each view of them the best and the mean ranks); `test`, what the test federations say, of
        `fmtc_bench.compare.results.tested`; `ablations`, `failed` and `figures` (lists of rows); `about`, how it was
        made; `notes`; `files`, which the page carries inside: the rows, and pictures as data URIs.

    Raises
    ------
    FileError
        Where the folder holds no results, or a file of it is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc_bench.compare.evidence import COLUMNS
    >>> from fmtc_bench.report.page import summarise_results
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
    table, test = _table(rows), tested(rows)
    figures, files = _figures(results, test)
    counts = _counts(rows)
    return dict(
        jsonable(
            {
                "title": f"{plural(counts['methods'], 'method')} on {plural(counts['datasets'], 'data set')}",
                "words": _words(counts),
                "findings": list(_tested(test) if test else _ranked(table)),
                "counts": counts,
                "table": table,
                "test": test,
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
    >>> from fmtc_bench.report.page import render_results, summarise_results
    >>> page = render_results(summarise_results("results"))  # doctest: +SKIP
    """
    titles = {line["name"]: line["title"] for kind in ("methods", "datasets") for line in summary["table"][kind]}
    words = {"titles": titles, "whats": WHAT, "primary": comparison.PRIMARY, "blocks": BLOCKS, "scores": TITLE}
    data = {"table": summary["table"], "rows": summary["files"]["rows.csv"]}
    return compose("bench", {**summary, **words}, data, Path(__file__).parent)


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
    about = _about(folder, rows, cells)
    return _Results(folder, rows, text, cells, about, list(_notes(rows, cells, about)))


def _cell_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in CELL)


def _notes(rows: Sequence[Row], cells: Sequence[Row], about: Mapping[str, Any]) -> Iterator[str]:
    """What a reader should know of how the rows came about."""
    more = set(map(_cell_of, cells)) - set(map(_cell_of, rows))
    if more:
        yield (
            f"cells.jsonl has {plural(len(more), 'cell')} more than rows.csv, which this page is made of; "
            "`fmtc-bench paper` updates it."
        )
    if len(about["code"]) > 1:
        yield (
            f"The cells were run by {len(about['code'])} versions of the code; run them into a new folder "
            "to have all by one."
        )
    fixed = about["protocol"]
    if fixed and about["code"] != [fixed["code"]]:
        yield (
            f"protocol.md was fixed for code {fixed['code']}; these cells were run by "
            f"{listing(about['code']) or 'code that is not known'}."
        )


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
            "code": sorted({row["code"] for row in rows if row.get("code")}),
            "protocol": _protocol(folder),
            "versions": [versions_of(each) for each in told.get("versions", [])],
            "seconds": float(np.nan_to_num(float(told.get("seconds_of_all_cells", fits)))),
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise FileError(f"{file} is damaged: {type(error).__name__}: {error}") from error


def _protocol(folder: Path) -> dict[str, Any]:
    """What the comparison was fixed for before it was run; empty where it was not."""
    if not (folder / freeze.NAME).is_file():
        return {}
    facts = freeze.read_protocol(folder)
    return {name: facts[name] for name in ("code", "commit", "plan")}


# --------------------------------------------------------------------------------------------------------- table


def _kind(dataset: str) -> str:
    """A test federation, a data set as it is, or one in another form."""
    return "test" if dataset in FEDERATIONS else "variant" if "?" in dataset else "plain"


def _is_variant(dataset: str, method: str) -> bool:
    """Whether a cell has a setting of its own, or a data set in another form."""
    return "/" in method or _kind(dataset) == "variant"


def _in_scope(entry: Mapping[str, Any], scope: str) -> bool:
    return scope == "all" or ("/" not in entry["method"] and _kind(entry["dataset"]) == scope)


def _title(dataset: str) -> str:
    return federations.title(dataset) if dataset in (*FEDERATIONS, *FIRST) else TITLES.get(dataset, dataset)


def _frozen(rows: Sequence[Row]) -> list[Row]:
    """Rows whose ACC on held-out rows is by the matching of the training rows, where both are the same."""
    return [
        {**row, "test": {"mean": {**row["test"]["mean"], "acc": row["test"]["acc_frozen"]}}} if "test" in row else row
        for row in rows
    ]


def _in_order(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Each name once, those that are known in their order, then the others."""
    return sorted(dict.fromkeys(names), key=lambda name: known.index(name) if name in known else len(known))


def _can_be_compared(entries: Sequence[Mapping[str, Any]]) -> bool:
    return len({e["method"] for e in entries}) >= 3 and len({e["dataset"] for e in entries}) >= 2


def _table(rows: Sequence[Row]) -> dict[str, Any]:
    """Cells of methods and data sets in all scores, and for each view of them the best and the mean ranks."""
    found = {score: summarise(rows, score=score) for score in SCORES}
    found["frozen"] = summarise(_frozen(rows))
    sets, methods, modes = (
        _in_order((entry[key] for entry in found["acc"]), known)
        for key, known in (("dataset", (*FEDERATIONS, *DATASETS)), ("method", tuple(METHODS)), ("mode", tuple(MODES)))
    )
    inside = {scope: [entry for entry in found["acc"] if _in_scope(entry, scope)] for scope in SCOPES}
    scopes = [scope for scope in SCOPES if 0 < len(inside[scope]) < len(found["acc"])]
    scope = next((scope for scope in scopes if _can_be_compared(inside[scope])), "all")
    return {
        "datasets": [{"name": name, "title": _title(name), "kind": _kind(name)} for name in sets],
        "methods": [_method(name) for name in methods],
        "scores": list(found),
        "score": "ari" if any(_kind(name) == "test" for name in sets) else "acc",
        "parts": PARTS,
        "modes": {mode: MODES[mode] for mode in modes},
        "scopes": [*scopes, "all"],
        "scope": scope,
        "cells": [_cell(dict(zip(found, lines, strict=True))) for lines in zip(*found.values(), strict=True)],
        "views": {
            " ".join((scope, mode, score, part)): _view(found[score], scope, mode, part)
            for scope, mode, score, part in product([*scopes, "all"], modes, found, PARTS)
        },
    }


def _method(name: str) -> dict[str, Any]:
    """What a table says of a method; one that this program does not know keeps its name."""
    try:
        method = method_of(name)
        title, group, shares = method.title, method.group, method.shares
    except ValueError:
        title, group, shares = name, "other", ""
    return {"name": name, "title": title, "group": group, "shares": shares, "variant": "/" in name}


def _cell(lines: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One method on one data set: for each score and part our mean, its standard deviation and the paper's number."""
    first = lines["acc"]
    names = ("dataset", "method", "mode", "trial", "n", "failed", "collapsed", "seconds")
    return {name: first[name] for name in names} | {
        score: {
            part: [
                *(round(line[part + more], 5) for more in ("", "_sd")),
                paper.printed(first["dataset"], first["method"], score, part),
            ]
            for part in PARTS
        }
        for score, line in lines.items()
    }


def _view(entries: Sequence[Mapping[str, Any]], scope: str, mode: str, part: str) -> dict[str, Any]:
    """The best of each data set, and mean ranks over the data sets that every method was run on."""
    mine = [entry for entry in entries if entry["mode"] == mode and _in_scope(entry, scope)]
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
        "drawn": sum(row["trial"] != "default" for row in rows),
        "federations": len({row["dataset"] for row in rows if _kind(row["dataset"]) == "test"}),
        "methods": len({row["method"].partition("/")[0] for row in rows}),
        "datasets": len({row["dataset"].partition("?")[0] for row in rows}),
        "splits": len({row["split"] for row in rows}),
    }


def _words(counts: Mapping[str, int]) -> list[str]:
    """What was run, in a few sentences."""
    said = (
        f"{plural(counts['cells'], 'fit')}: "
        f"{plural(counts['methods'], 'method')} on {plural(counts['datasets'], 'data set')}, "
        f"{plural(counts['splits'], 'split')}."
    )
    failed = f"{counts['failed']:,} of them failed." if counts["failed"] else "None failed."
    variants = (
        f"{plural(counts['variants'], 'fit')} {'is a variant' if counts['variants'] == 1 else 'are variants'}: one "
        "setting or the data changed, to see what that does."
    )
    drawn = (
        f"{plural(counts['drawn'], 'fit')} {'has' if counts['drawn'] == 1 else 'have'} settings drawn at random, the "
        "same number for every method."
    )
    tests = (
        f"{plural(counts['federations'], 'federation')} {'is a test' if counts['federations'] == 1 else 'are tests'}: "
        "nobody had fitted them before the run."
    )
    told = {"federations": tests, "variants": variants, "drawn": drawn}
    return [f"{said} {failed}", *(words for name, words in told.items() if counts[name])]


def _tested(test: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """For each primary score who is first, and by how much FMTC is ahead of the best of the others; then averaging."""
    for entry in test["scores"]:
        if entry["score"] not in comparison.PRIMARY:
            continue
        ranks = sorted((line["rank"], line["name"]) for line in entry["lines"] if line["rank"] is not None)
        (best, first), (next_best, second) = ranks[:2]
        said = (
            f"{_method(first)['title']} has the best mean rank over "
            f"{plural(entry['federations'], 'test federation')} ({entry['title']}): {best:.2f} among {len(ranks)} "
            f"methods that do not pool rows, before {_method(second)['title']} with {next_best:.2f}."
        )
        others = [line for line in entry["lines"] if line["block"] == "rivals"]
        line = max(others, key=lambda line: line["mean"], default=None)
        clear = None if line is None else line["p_holm"] < entry["friedman"]["alpha"]
        if line is not None:
            said += (
                f" Over {plural(entry['datasets'], 'data set')} FMTC is {abs(100 * line['ahead']):.1f} points "
                f"{_side(line)} {_method(line['name'])['title']}, the best of the others (95 %: {_between(line)}; "
                f"Wilcoxon, Holm: p\u00a0=\u00a0{line['p_holm']:.2g})."
            )
        yield {"score": entry["score"], "part": "out", "first": first, "second": second} | {
            "significant": clear,
            "sentence": said,
        }
    for score, lines in test["averaging"].items():
        for line in lines:
            yield {"score": score, "part": "out", "first": None, "second": None, "significant": None} | {
                "sentence": (
                    f"Where {AVERAGED[line['where']]}, FMTC is {abs(100 * line['ahead']):.1f} points "
                    f"{_side(line)} plain averaging (95 %: {_between(line)}; {TITLE[score]}), over "
                    f"{plural(line['datasets'], 'data set')}."
                )
            }


def _side(line: Mapping[str, Any]) -> str:
    return "ahead of" if line["ahead"] >= 0 else "behind"


def _between(line: Mapping[str, Any]) -> str:
    return f"{100 * line['low']:+.1f} to {100 * line['high']:+.1f}"


def _ranked(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Who is first, where there are no test federations."""
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
                f"{listing([_method(name)['title'] for name in first])} {have} the best mean rank in {score.upper()} "
                f"on {PARTS[part]}: {order[0][1]:.2f} among {plural(len(order), 'method')}, over "
                f"{plural(view['n'], 'data set')}; not tested."
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
    why = {_cell_of(row): row.get("error") for row in results.cells}
    return [
        {name: row[name] for name in (*CELL, "status")} | {"error": why.get(_cell_of(row))}
        for row in results.rows
        if row["status"] != "ok"
    ]


# ------------------------------------------------------------------------------------------------------- figures


def _figures(results: _Results, test: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What is in ``figures/``, with captions, in the order of the page; and the pictures themselves as data URIs."""
    found: dict[str, Path] = {}
    for suffix in KINDS:  # a picture that is there twice is taken once
        for path in (results.folder / "figures").glob(f"*{suffix}"):
            found.setdefault(path.stem, path)
    known, told = list(FIGURES), captions(results.rows)
    ranks = {f"critical_difference_{entry['score']}": entry["friedman"]["ranks"] for entry in test.get("scores", [])}
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
        caption, alt = told.get(name, f"{words}."), FIGURES.get(name, f"Figure {words}")
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
