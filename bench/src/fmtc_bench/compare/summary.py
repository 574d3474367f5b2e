"""Rows of a comparison brought down to a table: means and standard deviations, ranks, and what to be wary of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from .methods import METHODS

SCORES = ("acc", "nmi", "ri", "ari")
PARTS = {"train": "in", "test": "out", "vote": "vote"}
NEAR = 0.02  # a Rand index this close to that of one cluster is that of one cluster


def markdown(head: str, lines: Iterable[Sequence[Any]]) -> str:
    """A table: its head as it is written, and a line for each sequence of cells.

    Examples
    --------
    >>> from fmtc_bench.compare.summary import markdown
    >>> print(markdown("| | ARI |", [("FMTC", 0.5)]))
    | | ARI |
    |---|---|
    | FMTC | 0.5 |
    """
    body = ("| " + " | ".join(map(str, cells)) + " |" for cells in lines)
    return "\n".join([head, "|---" * (head.count("|") - 1) + "|", *body])


def summarise(rows: Iterable[Mapping[str, Any]], *, score: str = "acc") -> list[dict[str, Any]]:
    """One entry for each data set, method and mode, from the rows that succeeded.

    Scores are means over clients; the standard deviation is over splits, after the mean over seeds. ``oracle`` entries,
    where trials were run, are those of the trial with the best mean ACC on the training rows: labels picked it.

    Parameters
    ----------
    rows : iterable of dict
        Of `fmtc_bench.compare.grid.run_cells`.
    score : {"acc", "nmi", "ri", "ari"}

    Returns
    -------
    list of dict
        ``dataset``, ``method``, ``mode`` ("default" or "oracle"), ``trial``, ``n`` rows, ``failed`` rows, ``seconds``,
        ``collapsed`` (whether all rows seem to be in one cluster), and for each of ``in``, ``out`` and ``vote`` the
        mean, and the standard deviation with ``_sd`` behind.
    """
    if score not in SCORES:
        raise ValueError(f"score must be one of {', '.join(SCORES)}, got {score!r}")
    groups: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["method"]), {}).setdefault(row["trial"], []).append(row)
    entries = []
    for (dataset, method), by_trial in groups.items():
        about = {"dataset": dataset, "method": method}
        if "default" in by_trial:
            entries.append(about | {"mode": "default", "trial": "default"} | _entry(by_trial["default"], score))
        if set(by_trial) - {"default"}:
            accuracy = {t: _entry(lines, "acc")["in"] for t, lines in by_trial.items()}
            best = max(accuracy, key=lambda t: (np.nan_to_num(accuracy[t], nan=-1.0), t))
            entries.append(about | {"mode": "oracle", "trial": best} | _entry(by_trial[best], score))
    return entries


def _entry(lines: Sequence[Mapping[str, Any]], score: str) -> dict[str, Any]:
    done = [line for line in lines if line["status"] == "ok"]
    entry: dict[str, Any] = {
        "n": len(done),
        "failed": len(lines) - len(done),
        "seconds": float(np.mean([line["seconds_fit"] for line in done])) if done else float("nan"),
        "collapsed": bool(done)
        and all(abs(line["train"]["mean"]["ri"] - line["train"]["mean"]["ri_one_cluster"]) < NEAR for line in done),
    }
    for part, name in PARTS.items():
        by_split: dict[int, list[float]] = {}
        for line in done:
            by_split.setdefault(line["split"], []).append(line[part]["mean"][score])
        means = [float(np.mean(values)) for values in by_split.values()]
        entry[name] = float(np.mean(means)) if means else float("nan")
        entry[name + "_sd"] = float(np.std(means, ddof=1)) if len(means) > 1 else float("nan")
    return entry


def score_of(entry: Mapping[str, Any], part: str) -> float:
    """What an entry counts in a comparison: its mean, or NaN where a row of it failed."""
    return float("nan") if entry["failed"] else float(entry[part])


def best_of(entries: Iterable[Mapping[str, Any]], part: str) -> float | None:
    """The best mean of some entries; None where none has one without a failure."""
    return max((score for entry in entries if not np.isnan(score := score_of(entry, part))), default=None)


def best_by_set(entries: Sequence[Mapping[str, Any]], parts: Iterable[str]) -> dict[tuple[str, str], float | None]:
    """`best_of` the entries of each data set, by data set and part."""
    sets = dict.fromkeys(entry["dataset"] for entry in entries)
    return {
        (name, part): best_of([entry for entry in entries if entry["dataset"] == name], part)
        for part in parts
        for name in sets
    }


def mean_ranks(entries: Iterable[Mapping[str, Any]], part: str = "out", mode: str = "default") -> dict[str, float]:
    """Place of each method among all, averaged over data sets: 1 is best, ties share.

    A method with a failed row on a data set is last there: the mean of the others may be that of the easy ones. One
    that never succeeded has no rank, and a data set on which nobody did does not count.
    """
    mine = [entry for entry in entries if entry["mode"] == mode]
    alive = {name: {entry[name] for entry in mine if entry["n"]} for name in ("dataset", "method")}
    values: dict[str, dict[str, float]] = {}
    for entry in mine:
        if entry["dataset"] in alive["dataset"] and entry["method"] in alive["method"]:
            values.setdefault(entry["dataset"], {})[entry["method"]] = score_of(entry, part)
    seen = dict.fromkeys(name for line in values.values() for name in line)
    methods = [name for name in METHODS if name in seen] + [name for name in seen if name not in METHODS]
    table = np.array([[line.get(name, np.nan) for name in methods] for line in values.values()])
    if table.size == 0:
        return {}
    ranks = rankdata(np.where(np.isnan(table), np.inf, -table), axis=1)
    return dict(zip(methods, ranks.mean(axis=0).tolist(), strict=True))
