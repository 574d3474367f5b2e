"""Rows on development data brought down to what is read: the paper's two tables and ablations, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import paper
from .evidence import DATASETS, TRIED, Row, ablations
from .methods import METHODS
from .summary import PARTS, best_by_set, markdown, mean_ranks, score_of, summarise

# -------------------------------------------------------------------------------------------------------- tables


def of_tables(rows: Iterable[Row]) -> list[Row]:
    """The rows that belong in the tables: plain methods on plain data sets."""
    return [row for row in rows if row["method"] in METHODS and row["dataset"] in DATASETS]


def table(
    rows: Sequence[Row],
    score: str,
    mode: str,
    parts: Sequence[str] = ("in",),
    *,
    methods: Sequence[str] = tuple(METHODS),
) -> str:
    """Methods down, data sets across, in percent: ours, and the paper's number below in italics; Markdown.

    Parameters
    ----------
    rows : sequence of dict
    score : {"acc", "nmi", "ri", "ari"}
    mode : {"default", "oracle"}
    parts : sequence of {"in", "out"}
        Training rows, held-out rows; both with a stroke between.
    methods : sequence of str

    Returns
    -------
    str
        The last column is the mean rank by the last of the parts over the data sets that all of these methods were run
        on, 1 is best, as `mean_ranks` counts them; a method that never succeeded comes last and has none. The best of
        each column is in bold; ° stands before a cell where all rows seem to be in one cluster. Empty where no row
        belongs in it.
    """
    mine = [row for row in of_tables(rows) if row["method"] in methods]
    found = [entry for entry in summarise(mine, score=score) if entry["mode"] == mode]
    entries = {(entry["dataset"], entry["method"]): entry for entry in found}
    seen, run = ({entry[key] for entry in found} for key in ("dataset", "method"))
    full = [entry for entry in found if all((entry["dataset"], method) in entries for method in run)]
    ranks = mean_ranks(found, parts[-1], mode) | mean_ranks(full, parts[-1], mode)
    sets = [name for name in DATASETS if name in seen]
    best = best_by_set(found, parts)
    lines = []
    for method in (*ranks, *dict.fromkeys(method for _, method in entries if method not in ranks)):
        shown = [_cell(entries.get((name, method)), score, parts, best) for name in sets]
        rank = f"{ranks[method]:.1f}" if method in ranks else "–"
        lines.append([METHODS[method].title, *shown, rank])
    return markdown("| | " + " | ".join([*sets, "rank"]) + " |", lines) if sets else ""


def _cell(entry: Row | None, score: str, parts: Sequence[str], best: Mapping[tuple[str, str], float | None]) -> str:
    if entry is None:
        return ""
    if not entry["n"]:
        return "failed"
    ours = []
    for part in parts:
        spread = "" if np.isnan(entry[part + "_sd"]) else f" ± {100 * entry[part + '_sd']:.1f}"
        bold = "**" if score_of(entry, part) == best[entry["dataset"], part] else ""
        ours.append(f"{bold}{100 * entry[part]:.1f}{bold}{spread}")
    told = [paper.printed(entry["dataset"], entry["method"], score, part) for part in parts]
    theirs = " / ".join("–" if value is None else f"{100 * value:.2f}" for value in told)
    failed = f" ({entry['failed']} failed)" if entry["failed"] else ""
    return ("°" if entry["collapsed"] else "") + " / ".join(ours) + failed + (f"<br>*{theirs}*" if any(told) else "")


def page(rows: Sequence[Row], number: int) -> str:
    """``table1.md`` (training rows) or ``table2.md`` (training against held-out rows)."""
    parts = ("in",) if number == 1 else ("in", "out")
    what = "training rows" if number == 1 else "training rows / held-out rows"
    text = [
        f"# Table {number}: {what}",
        "In percent: mean over clients, then mean ± standard deviation over splits. The number in italics is the one "
        "printed in the paper, whose data were cut into clients in ways of their own. Best of a column in bold; ° all "
        "rows in one cluster, or nearly; rank is the mean over data sets. **FMTC was developed on these data sets**: "
        "the test is in `test.md`. Made by `fmtc-bench paper`.",
    ]
    for mode, title in (("default", "One setting for all data sets"), ("oracle", "ORACLE: setting picked by labels")):
        for score in paper.SCORES:
            found = table(rows, score, mode, parts)
            if found:
                text += [f"## {score.upper()}. {title}", found]
    return "\n\n".join(text) + "\n"


# ----------------------------------------------------------------------------------------------------- ablations


def ablation_entries(rows: Sequence[Row], score: str = "acc", part: str = "out") -> list[dict[str, Any]]:
    """Each ablation on each data set against the default on the same splits.

    Returns
    -------
    list of dict
        ``what``, ``value``, ``dataset``, ``default`` (whether it is), ``gain`` (in percent points over the default,
        mean over splits, and ``gain_sd``), ``mean`` and ``sd`` in percent, ``n`` splits.
    """
    inside = next(key for key, name in PARTS.items() if name == part)
    scores: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if row["status"] == "ok" and row["trial"] == "default":
            scores.setdefault((row["dataset"], row["method"]), {})[row["split"]] = 100 * row[inside]["mean"][score]
    entries = []
    for name in TRIED:
        plain = scores.get((name, "fmtc"), {})
        for what, value, data, method in ablations(name):
            mine = scores.get((data, method), {})
            both = sorted(set(mine) & set(plain))
            if both:
                values = np.array([mine[split] for split in both])
                gains = values - [plain[split] for split in both]
                sd, gain_sd = (float(v.std(ddof=1)) if len(both) > 1 else float("nan") for v in (values, gains))
                entries.append(
                    {
                        "what": what,
                        "value": value,
                        "dataset": name,
                        "default": (data, method) == (name, "fmtc"),
                        "gain": float(gains.mean()),
                        "gain_sd": gain_sd,
                        "mean": float(values.mean()),
                        "sd": sd,
                        "n": len(both),
                    }
                )
    return entries


def ablation_table(rows: Sequence[Row], score: str = "acc", part: str = "out") -> str:
    """What each change of the default brings or costs, in percent points: data sets across, and their mean.

    A setting of which only the default was run is left out.
    """
    entries = ablation_entries(rows, score, part)
    changed = {entry["what"] for entry in entries if not entry["default"]}
    entries = [entry for entry in entries if entry["what"] in changed]
    sets = list(dict.fromkeys(entry["dataset"] for entry in entries))
    lines = []
    for what, value in dict.fromkeys((entry["what"], entry["value"]) for entry in entries):
        mine = {e["dataset"]: e for e in entries if (e["what"], e["value"]) == (what, value)}
        shown = ["default" if e and e["default"] else f"{e['gain']:+.1f}" if e else "" for e in map(mine.get, sets)]
        mean = f"{np.mean([e['gain'] for e in mine.values()]):+.1f}" if set(shown) != {"default"} else ""
        lines.append([what, value, *shown, mean])
    return markdown("| | | " + " | ".join(sets) + " | mean |", lines) if entries else ""
