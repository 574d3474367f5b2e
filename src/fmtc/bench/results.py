"""The folder of results: rows, tables, statistics and figures, all from the stored cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..artifacts.files import jsonable, write_file
from . import comparison, evidence, paper, protocol, tables
from .evidence import Row


def write_results(rows: Sequence[Row], out: Path, command: str) -> list[Path]:
    """Write ``rows.csv``, the comparison, both tables and ablations as Markdown, and ``about.json``: how they were made.

    Parameters
    ----------
    rows : sequence of dict
        Of all stored cells.
    out : Path
    command : str
        What makes them, for the reader.

    Returns
    -------
    list of Path
        The files, those without content left out.
    """
    found = tested(rows)
    plain = bool(tables.of_tables(rows))
    gains = [tables.ablation_table(rows, "acc", part) for part in ("out", "in")]
    files = {
        "rows.csv": evidence.compact(rows),
        "table1.md": tables.page(rows, 1) if plain else "",
        "table2.md": tables.page(rows, 2) if plain else "",
        "test.json": _json(found) if found else "",
        "test.md": comparison.page(rows),
        "ablations.md": ABLATIONS.format(*gains) if all(gains) else "",
        "about.json": _json(about(rows, command)),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if content:
            write_file(out / name, content.encode())
    return [out / name for name, content in files.items() if content]


def tested(rows: Sequence[Row]) -> dict[str, Any]:
    """What the test federations say, as data: each score, averaging, where we lose, settings; empty without them."""
    scores = [found for score in comparison.SCORES if (found := comparison.compare(rows, score))]
    if not scores:
        return {}
    return {
        "scores": scores,
        "averaging": {score: comparison.personal_or_average(rows, score) for score in comparison.PRIMARY},
        "far_below_kmeans": {score: comparison.far_below(rows, score) for score in comparison.PRIMARY},
        "settings": comparison.chosen_settings(rows),
    }


ABLATIONS = """# Ablations

ACC against the default on the same splits, in percent points; one thing changed at a time. Clients of 50 rows hold out
ten, and their best matching flatters. Made by `fmtc bench paper --part ablations`.

## Held-out rows

{}

## Training rows

{}
"""


def _json(document: Any) -> str:
    return json.dumps(jsonable(document), indent=1, ensure_ascii=False) + "\n"


def about(rows: Sequence[Row], command: str) -> dict[str, Any]:
    """How the rows came about: command, cells, seconds of them all, machines, versions."""
    return {
        "command": command,
        "cells": len(rows),
        "failed": sum(row["status"] != "ok" for row in rows),
        "seconds_of_all_cells": round(sum(row["seconds"] for row in rows)),
        "machines": sorted({row["machine"] for row in rows}),
        "code": sorted({row["code"] for row in rows}),
        "versions": [json.loads(each) for each in sorted({json.dumps(row["versions"]) for row in rows})],
    }


def draw_results(
    rows: Sequence[Row], out: Path, *, kinds: Sequence[str] = ("png",), with_clouds: bool = False,
    progress: Callable[[str], None] = lambda name: None,
) -> list[Path]:  # fmt: skip
    """Draw every figure that the rows allow into ``figures/``. Needs matplotlib.

    Parameters
    ----------
    rows : sequence of dict
    out : Path
    kinds : sequence of {"png", "svg", "pdf"}
    with_clouds : bool
        The data sets by t-SNE as well, which takes a minute and the data.
    progress : callable
        Called with the name of each figure before it is drawn.

    Returns
    -------
    list of Path
    """
    from . import plots

    drawn = []
    with plots.style():
        (out / "figures").mkdir(parents=True, exist_ok=True)
    for name, draw in _figures(rows, with_clouds):
        progress(name)
        figure = draw()
        drawn += [plots.save(figure, out / "figures" / f"{name}.{kind}") for kind in kinds]
    return drawn


def _figures(rows: Sequence[Row], with_clouds: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names of the figures that can be drawn, and how."""
    from . import plots

    seen = {(row["dataset"], row["method"]) for row in rows if row["status"] == "ok"}
    last = evidence.at_round(evidence.ROUNDS[-1])
    sets = [name for name in evidence.CONVERGENCE if (name, last) in seen]
    if sets:
        yield "convergence", lambda: plots.convergence(rows, sets)
    corner = evidence.fmtc_with(alpha=evidence.ALPHAS[0], beta=evidence.BETAS[0])
    tried = [name for name in evidence.SENSITIVITY if (name, corner) in seen]
    if tried:
        yield "sensitivity", lambda: plots.sensitivity(rows, tried)
    if tables.of_tables(rows):
        for score in paper.SCORES:
            yield f"inside_outside_{score}", lambda score=score: plots.inside_outside(rows, score)  # type: ignore[misc]
    for score in comparison.PRIMARY:
        entry = comparison.compare(rows, score)
        if entry:
            test, title = entry["friedman"], entry["title"]
            yield f"critical_difference_{score}", lambda test=test, title=title: plots.critical_difference(test, title)  # type: ignore[misc]
            yield f"gains_{score}", lambda score=score: plots.gains(rows, score)  # type: ignore[misc]
            yield f"intervals_{score}", lambda entry=entry: plots.intervals(entry)  # type: ignore[misc]
    if any(not entry["default"] for entry in tables.ablation_entries(rows)):
        yield "ablations", lambda: plots.ablation_dots(rows)
    here = evidence.here(evidence.CLOUDS)
    if with_clouds and here:
        yield "clouds", lambda: plots.clouds({name: protocol.dataset(name) for name in here})
