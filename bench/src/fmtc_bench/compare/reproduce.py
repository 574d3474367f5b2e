"""Stored fits run again: whether today's code still gives the scores that are in ``rows.csv``."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import evidence
from .evidence import COLUMNS, COSTS, MADE_BY, Row, compact, read_lines
from .grid import Cell, Store, run_cells

# Quick fits whose labels hang on no last bit (three kinds of processor agree on them), on texts of the paper's sets.
NIGHTLY = (
    ("reuters_months?rows=300", ("fmtc", "kmeans", "stsc", "gmm")),
    ("news_other?rows=300", ("fmtc", "kmeans", "stsc", "gmm")),
)
UNSEEDED = ("anchors-noise",)  # its noise comes from the operating system
COMPARED = tuple(name for name in COLUMNS if name not in (*COSTS, *MADE_BY))


def choose(folder: Path, *, cells: int | None = None, seed: int = 0) -> tuple[list[dict[str, str]], list[str]]:
    """Lines of ``rows.csv`` to run again.

    Parameters
    ----------
    folder : Path
        Of results.
    cells : int, optional
        So many, drawn from the test federations; left out, those of `NIGHTLY`. Fits that ran out of time are never
        taken: that is the clock's word.
    seed : int
        Draws them.

    Returns
    -------
    lines : list of dict
        Those whose data are on this machine.
    left_out : list of str
        Why others are not among them.
    """
    lines = [line for line in read_lines(folder / "rows.csv") if line["status"] != "timeout"]
    if cells is None:
        wanted = [line for data, names in NIGHTLY for line in lines if _is_nightly(line, data, names)]
    else:
        tests = [line for line in lines if line["dataset"] in evidence.FEDERATIONS and line["method"] not in UNSEEDED]
        wanted = [tests[i] for i in np.random.default_rng(seed).permutation(len(tests))[:cells]]
        wanted.sort(key=lambda line: (line["dataset"], line["split"]))  # the same rows are read once
    there = set(evidence.here({line["dataset"] for line in wanted}))
    left_out = [f"{name} is not on this machine" for name in sorted({line["dataset"] for line in wanted} - there)]
    return [line for line in wanted if line["dataset"] in there], left_out


def reproduce(
    lines: Sequence[Row],
    *,
    jobs: int = 1,
    progress: Callable[[Cell, dict[str, Any] | None], None] = lambda cell, row: None,
) -> list[dict[str, str]]:
    """Run stored fits again and compare all that is stored of them, but for time and memory.

    Parameters
    ----------
    lines : sequence of dict
        Of `choose`.
    jobs : int
    progress : callable
        As of `run_cells`.

    Returns
    -------
    list of dict
        One for each score that is another: ``cell``, ``score``, ``stored``, ``now``.
    """
    cells = [Cell(x["dataset"], x["method"], x["trial"], int(x["split"]), int(x["seed"])) for x in lines]
    with tempfile.TemporaryDirectory() as place:
        rows = run_cells(cells, Store(Path(place) / "cells.jsonl"), jobs=jobs, progress=progress)
    return [change for cell, old, row in zip(cells, lines, rows, strict=True) for change in _changes(cell, old, row)]


def _is_nightly(line: Row, data: str, names: tuple[str, ...]) -> bool:
    return line["dataset"] == data and line["method"] in names and (line["trial"], line["split"]) == ("default", "0")


def _changes(cell: Cell, old: Row, row: Row) -> list[dict[str, str]]:
    (new,) = csv.DictReader(io.StringIO(compact([row])))
    return [
        {"cell": str(cell), "score": name, "stored": old[name], "now": new[name]}
        for name in COMPARED
        if old[name] != new[name]
    ]
