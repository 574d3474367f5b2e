"""Stored fits run again: whether today's code still gives the scores that are in ``rows.csv``."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import evidence
from .evidence import COLUMNS, COSTS, Row, compact, read_lines
from .grid import Cell, Store, run_cells

# A few quick fits whose labels hang on no last bit, on data that come with the package or with the paper's sets.
NIGHTLY = (
    ("digits", ("fmtc", "kmeans", "fedkmeans")),
    ("bbcsport", ("fmtc", "stsc")),
)
COMPARED = tuple(name for name in COLUMNS if name not in (*COSTS, "code", "versions"))


def reproduce(
    folder: Path,
    *,
    cells: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[Cell, dict[str, Any] | None], None] = lambda cell, row: None,
) -> dict[str, Any]:
    """Run some fits of ``rows.csv`` again and compare what is stored of them, but for time and memory.

    Parameters
    ----------
    folder : Path
        Of results.
    cells : int, optional
        So many, drawn from the test federations that are here; left out, those of `NIGHTLY`.
    seed : int
        Draws them.
    jobs : int
    progress : callable
        As of `run_cells`.

    Returns
    -------
    dict
        ``run``, how many; ``different``, a line for each score that is another: ``cell``, ``score``, ``stored``,
        ``now``; ``left_out``, why some were not run.
    """
    lines = read_lines(folder / "rows.csv")
    if cells is None:
        wanted = [line for data, names in NIGHTLY for line in lines if _is_nightly(line, data, names)]
    else:
        tests = [line for line in lines if line["dataset"] in evidence.FEDERATIONS]
        wanted = [tests[i] for i in np.random.default_rng(seed).permutation(len(tests))[:cells]]
    there = set(evidence.here({line["dataset"] for line in wanted}))
    left_out = [f"{name} is not on this machine" for name in sorted({line["dataset"] for line in wanted} - there)]
    wanted = [line for line in wanted if line["dataset"] in there]
    todo = [Cell(x["dataset"], x["method"], x["trial"], int(x["split"]), int(x["seed"])) for x in wanted]
    with tempfile.TemporaryDirectory() as place:
        rows = run_cells(todo, Store(Path(place) / "cells.jsonl"), jobs=jobs, progress=progress)
    different = [line for cell, old, row in zip(todo, wanted, rows, strict=True) for line in _changes(cell, old, row)]
    return {"run": len(rows), "different": different, "left_out": left_out}


def _is_nightly(line: Row, data: str, names: tuple[str, ...]) -> bool:
    return line["dataset"] == data and line["method"] in names and (line["trial"], line["split"]) == ("default", "0")


def _changes(cell: Cell, old: Row, row: Row) -> list[dict[str, str]]:
    (new,) = csv.DictReader(io.StringIO(compact([row])))
    return [
        {"cell": str(cell), "score": name, "stored": old[name], "now": new[name]}
        for name in COMPARED
        if old[name] != new[name]
    ]
