"""How many clusters: the advice against the known number of classes, on all data sets that are on this machine.

Labels are used for scoring only. Advice is also asked for where rows are dealt to silos that lack classes: the truth is
then the number of classes that a silo has.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmtc import advise
from fmtc.errors import DatasetError
from fmtc.estimator import FMTC
from fmtc.schema import Encoded

from ...datasets import SOURCES, load, missing_classes
from ..federations import FIRST_SETS, HELD_OUT
from . import Listener, Row

TITLE = "How many clusters: advice with a range"

ROWS = 1200  # of a silo that advice looks at; the fit that it is compared with has the same
TABLE = 50  # columns of a table, at most
MANY = 8  # rows for each class in the smallest silo, from which advice has a chance
TEST = 0.2  # share of rows that is left out, as in other comparisons
STRUCTURES = ("yaleb",)  # known for a stronger structure than the classes: the side of the lamp
# Silos, and classes of each. The last of each set lacks nothing. Rows are dealt evenly, which alone makes the number
# easier to find than in silos as they are: what such dealings show beyond that is the difference to the last one.
DEALT = (
    ("digits", 8, 3), ("digits", 8, 4), ("digits", 8, 6), ("digits", 8, 8), ("digits", 8, 10),
    ("bbcnews", 5, 2), ("bbcnews", 5, 3), ("bbcnews", 5, 4), ("bbcnews", 5, 5),
    ("bbcsport", 5, 2), ("bbcsport", 5, 3), ("bbcsport", 5, 4), ("bbcsport", 5, 5),
)  # fmt: skip
AS_IT_IS, MISSING, EVEN = "all classes", "missing classes", "dealt evenly, none missing"


def measure(
    seeds: Sequence[int], listen: Listener, names: Sequence[str] = (), dealt: Sequence[tuple[str, int, int]] = DEALT
) -> list[Row]:
    """Advice on every data set, for every seed; processor seconds of a fit with the true number, for the first seed.

    Parameters
    ----------
    seeds : sequence of int
        Of the rows that are left out, and of the advice.
    listen : callable
        Told what is being measured.
    names : sequence of str
        Data sets; all that are on this machine by default, but not those kept for one of the two comparisons.
    dealt : sequence of (str, int, int)
        Data sets to deal to silos: how many silos, and classes of each.
    """
    rows: list[Row] = []
    kept = HELD_OUT | {found.name for found in FIRST_SETS}
    for name in names or [name for name in SOURCES if name not in kept]:
        for seed in seeds:
            try:
                data = load(name)
            except DatasetError:
                break  # not on this machine
            listen(f"{name}, seed {seed}")
            train = _few(data.split(TEST, seed)[0], seed)
            found = _advice(train, data.n_clusters, seed, seed == seeds[0])
            rows.append({"part": AS_IT_IS, "set": name, "seed": seed, **found})
    for name, n_clients, n_classes in dealt:
        for seed in seeds:
            try:
                data = load(name)
            except DatasetError:
                break
            listen(f"{name} dealt, {n_classes} classes in each of {n_clients} silos, seed {seed}")
            clients = missing_classes(data.y, n_clients, n_classes, random_state=seed)
            train = _few(replace(data, clients=clients).split(TEST, seed)[0], seed)
            part = MISSING if n_classes < data.n_clusters else EVEN
            rows.append({"part": part, "set": name, "seed": seed, **_advice(train, n_classes, seed, False)})
    return rows


def _few(data: Any, seed: int) -> Any:
    """At most 1,200 rows of each silo."""
    rng = np.random.default_rng(seed)
    places = [np.flatnonzero(data.clients == cid) for cid in np.unique(data.clients)]
    kept = np.sort(np.concatenate([rng.permutation(rows)[:ROWS] for rows in places]))
    return data.take(kept)


def _advice(data: Any, truth: int, seed: int, with_fit: bool) -> Row:
    """Advice on one data set."""
    parts = data.by_client()
    silos = {cid: part.X if part.schema is None else Encoded(part.X, part.schema) for cid, part in parts.items()}
    smallest = min(part.X.shape[0] for part in parts.values())
    row: Row = {"truth": truth, "silos": len(silos), "columns": data.X.shape[1], "rows_per_class": smallest / truth}
    model = FMTC(random_state=seed)
    highest = max(3, min(60 if truth > 25 else 30, smallest // 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            began = time.process_time()
            advice = advise(silos, k_range=(2, highest), model=model)
            row["advice"] = {
                "chosen": advice.chosen, "low": advice.low, "high": advice.high, "verdict": advice.verdict,
                "signals": advice.signals, "seconds": time.process_time() - began,
            }  # fmt: skip
        except ValueError as error:  # a silo has too few rows
            return row | {"status": str(error)}
        if with_fit:
            began = time.process_time()
            FMTC(truth, random_state=seed).fit(silos)
            row["fit_seconds"] = time.process_time() - began
    return row | {"status": "done"}


# ------------------------------------------------------------------------------------------------------------- summary


def off(chosen: int, truth: int) -> float:
    """How far a number is from the truth, in factors of two."""
    return float(abs(np.log2(chosen / truth)))


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What some rows come to: mean error, how many within 20 %, and how often the range holds."""
    found = [(row["truth"], row["advice"]) for row in rows]
    return {
        "n": len(found),
        "error": float(np.mean([off(said["chosen"], truth) for truth, said in found])) if found else float("nan"),
        "near": sum(abs(said["chosen"] / truth - 1) <= 0.2 + 1e-9 for truth, said in found),
        "held": sum(said["low"] <= truth <= said["high"] for truth, said in found),
    }


def _groups(done: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows of the summary, by what they have in common."""
    whole = [row for row in done if row["part"] == AS_IT_IS]
    many = [row for row in whole if row["rows_per_class"] >= MANY]
    wide = [row for row in many if row["columns"] > TABLE]
    found = {
        f"many columns, ≥ {MANY} rows per class": wide,
        f"many columns, ≥ {MANY}, without Yale B": [row for row in wide if row["set"] not in STRUCTURES],
        f"tables, ≥ {MANY} rows per class": [row for row in many if row["columns"] <= TABLE],
        f"all with ≥ {MANY} rows per class": many,
    }
    for seed in sorted({row["seed"] for row in many}):
        found[f"… seed {seed}"] = [row for row in many if row["seed"] == seed]
    found[f"all with < {MANY} rows per class"] = [row for row in whole if row["rows_per_class"] < MANY]
    found["silos that lack classes, dealt evenly"] = [row for row in done if row["part"] == MISSING]
    found[EVEN] = [row for row in done if row["part"] == EVEN]
    return {title: some for title, some in found.items() if some}


def _advised(part: str, name: str, mine: Sequence[Mapping[str, Any]]) -> str:
    """One data set with the advice of all seeds."""
    fine = [row for row in mine if row["status"] == "done"]
    said = ", ".join(f"{r['advice']['chosen']} ({r['advice']['low']}–{r['advice']['high']})" for r in fine)
    timed = [r for r in fine if "fit_seconds" in r]
    share = f"{timed[0]['advice']['seconds']:.1f} s / {timed[0]['fit_seconds']:.1f} s" if timed else ""
    title = name if part == AS_IT_IS else f"{name}, {part}"
    return (
        f"| {title} | {mine[0]['truth']} | {min(r['rows_per_class'] for r in mine):.0f} | "
        f"{said or mine[0]['status']} | {', '.join(r['advice']['verdict'] for r in fine)} | {share} |"
    )


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Two tables: advice set by set, and what it comes to."""
    done = [row for row in rows if row["status"] == "done"]
    lines = [
        "| data set | classes | rows per class | advice (range) by seed | verdicts | advice / fit, processor time |",
        "|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["part"], row["set"], row["truth"]), []).append(row)
    lines += [_advised(part, name, mine) for (part, name, _), mine in groups.items()]
    lines += [
        "",
        "| | n | mean \\|log2(k/k*)\\| | within 20 % | range holds k* |",
        "|---|---|---|---|---|",
    ]
    for title, some in _groups(done).items():
        s = summary(some)
        lines.append(f"| {title} | {s['n']} | {s['error']:.2f} | {s['near']} | {s['held']} |")
    ratios = [row["advice"]["seconds"] / row["fit_seconds"] for row in done if row.get("fit_seconds")]
    if ratios:
        lines += [
            "",
            f"Advice took {np.median(ratios):.2f} of a fit's processor time (median; most {max(ratios):.2f}).",
        ]
    return lines
