"""The folder of results: rows, tables, statistics and figures, all from the stored cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fmtc.artifacts.files import jsonable, write_file

from . import comparison, evidence, paper, protocol, tables
from .evidence import Row
from .methods import METHODS
from .summary import best_of, score_of, summarise


def write_results(rows: Sequence[Row], out: Path, command: str) -> list[Path]:
    """Write ``rows.csv``, the comparison, both tables and ablations as Markdown, and ``about.json``: how it was made.

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
ten, and their best matching flatters. Made by `fmtc-bench paper --part ablations`.

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
    corner = evidence.with_tensor(alpha=evidence.ALPHAS[0], beta=evidence.BETAS[0])
    tried = [name for name in evidence.SENSITIVITY if (name, corner) in seen]
    if tried:
        yield "sensitivity", lambda: plots.sensitivity(rows, tried)
    if tables.of_tables(rows):
        for score in paper.SCORES:
            yield f"inside_outside_{score}", partial(plots.inside_outside, rows, score)
    for score in comparison.PRIMARY:
        yield from _figures_of_test(rows, score)
    if any(not entry["default"] for entry in tables.ablation_entries(rows)):
        yield "ablations", lambda: plots.ablation_dots(rows)
    here = evidence.here(evidence.CLOUDS)
    if with_clouds and here:
        yield "clouds", lambda: plots.clouds({name: protocol.dataset(name) for name in here})


def _figures_of_test(rows: Sequence[Row], score: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    from . import plots

    entry = comparison.compare(rows, score)
    if not entry:
        return
    yield f"critical_difference_{score}", partial(plots.critical_difference, entry["friedman"], entry["title"])
    if comparison.ALONE in {line["name"] for line in entry["lines"]}:
        yield f"gains_{score}", partial(plots.gains, rows, score)
    yield f"intervals_{score}", partial(plots.intervals, entry)


# ---------------------------------------------------------------------------------------------------------- captions


def captions(rows: Sequence[Row]) -> dict[str, str]:
    """What each figure shows, in a sentence or two with the numbers of these rows.

    Parameters
    ----------
    rows : sequence of dict
        Also those of `evidence.read_compact`.

    Returns
    -------
    dict of str to str
        By the name of the figure; those that the rows do not suffice for are left out.
    """
    found: dict[str, str] = {}
    for score in comparison.PRIMARY:
        entry = comparison.compare(rows, score)
        if entry:
            found |= _of_test(entry, score)
    for score in paper.SCORES:
        found |= _of_tables(rows, score)
    found |= _of_rounds(rows)
    found |= _of_settings(rows)
    found |= _of_ablations(rows)
    found["clouds"] = (
        "Rows of data sets by t-SNE: all silos together in the colours of the silos, then some silos alone in the "
        "colours of their classes. What a silo shows alone is what its own model has to find."
    )
    return found


def _of_test(entry: Mapping[str, Any], score: str) -> dict[str, str]:
    lines = {line["name"]: line for line in entry["lines"]}
    ranks, groups = entry["friedman"]["ranks"], entry["friedman"]["groups"]
    place = 1 + sum(rank < ranks[comparison.OURS] for rank in ranks.values())
    beside = dict.fromkeys(name for group in groups if comparison.OURS in group for name in group)
    beside.pop(comparison.OURS, None)
    same = ", ".join(METHODS[name].title for name in beside) or "none of them"
    rivals = [line for line in entry["lines"] if line["block"] == "rivals"]
    found = {
        f"critical_difference_{score}": (
            f"{entry['title']}: mean ranks over {entry['datasets']} data sets. FMTC is number {place} of {len(ranks)} "
            f"methods that do not pool rows, with {ranks[comparison.OURS]:.2f}. Within the critical difference from "
            f"it: {same}."
        ),
        f"intervals_{score}": (
            f"{entry['title']}: by how much FMTC is ahead, with 95 % intervals over {entry['datasets']} data sets. Of "
            f"{len(rivals)} other methods that do not pool rows, the interval is above 0 for "
            f"{sum(line['low'] > 0 for line in rivals)}, has 0 in it for "
            f"{sum(line['low'] <= 0 <= line['high'] for line in rivals)}, and is below for "
            f"{sum(line['high'] < 0 for line in rivals)}."
        ),
    }
    alone = lines.get(comparison.ALONE)
    if alone:
        found[f"gains_{score}"] = (
            f"{entry['title']}: from k-means of each silo alone (hollow) to FMTC (full) on each data set. FMTC is "
            f"ahead on {alone['wins']} and behind on {alone['losses']} of {entry['datasets']}, "
            f"{100 * alone['ahead']:+.1f} points on average."
        )
    return found


def _of_tables(rows: Sequence[Row], score: str) -> dict[str, str]:
    mine = [entry for entry in summarise(tables.of_tables(rows), score=score) if entry["mode"] == "default"]
    shown = [entry for entry in mine if entry["method"] in evidence.COMPARED]
    sets = list(dict.fromkeys(entry["dataset"] for entry in shown if entry["method"] == comparison.OURS))
    if not sets:
        return {}
    first = {
        part: sum(
            best_of([e for e in shown if e["dataset"] == name], part)
            == next(score_of(e, part) for e in shown if (e["dataset"], e["method"]) == (name, comparison.OURS))
            for name in sets
        )
        for part in ("in", "out")
    }
    return {
        f"inside_outside_{score}": (
            f"{score.upper()} on development data: FMTC, the methods of the paper and k-means alone. FMTC is first on "
            f"{first['in']} of {len(sets)} data sets by training rows, on {first['out']} by held-out rows."
        )
    }


def _means(rows: Sequence[Row], dataset: str, method: str, part: str) -> float:
    """Mean ACC over splits in percent, NaN where there is none."""
    values = [
        row[part]["mean"]["acc"]
        for row in rows
        if (row["dataset"], row["method"], row["trial"], row["status"]) == (dataset, method, "default", "ok")
    ]
    return 100 * float(np.mean(values)) if values else float("nan")


def _of_rounds(rows: Sequence[Row]) -> dict[str, str]:
    said = []
    for name in evidence.CONVERGENCE:
        curve = {r: _means(rows, name, evidence.at_round(r), "test") for r in evidence.ROUNDS}
        if not any(np.isnan(value) for value in curve.values()):
            best = max(curve, key=lambda r: curve[r])
            said.append(f"{name} {curve[best]:.1f} after {best}, {curve[evidence.ROUNDS[-1]]:.1f} at the end")
    text = f"Best ACC on held-out rows: {'; '.join(said)}." if said else ""
    return {"convergence": f"Objective, residuals and ACC of FMTC with the tensor, by round. {text}"} if said else {}


def _of_settings(rows: Sequence[Row]) -> dict[str, str]:
    said = []
    for name in evidence.SENSITIVITY:
        grid = [
            _means(rows, name, evidence.with_tensor(alpha=a, beta=b), "train")
            for a in evidence.ALPHAS
            for b in evidence.BETAS
        ]
        if not any(np.isnan(grid)):
            said.append(f"from {min(grid):.1f} to {max(grid):.1f} on {name}")
    return (
        {"sensitivity": f"ACC over alpha and beta, with the tensor; on training rows {', '.join(said)}."}
        if said
        else {}
    )


def _of_ablations(rows: Sequence[Row]) -> dict[str, str]:
    gains: dict[tuple[str, str], list[float]] = {}
    for entry in tables.ablation_entries(rows):
        if not entry["default"]:
            gains.setdefault((entry["what"], entry["value"]), []).append(entry["gain"])
    if not gains:
        return {}
    means = {f"{what} {value}": float(np.mean(found)) for (what, value), found in gains.items()}
    low, high = min(means, key=lambda name: means[name]), max(means, key=lambda name: means[name])
    return {
        "ablations": (
            "ACC on held-out rows against the default, one thing changed at a time. On average over data sets the "
            f"largest loss is by {low} ({means[low]:+.1f} points), the largest gain by {high} ({means[high]:+.1f})."
        )
    }
