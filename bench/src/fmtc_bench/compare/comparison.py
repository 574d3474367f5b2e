"""The test federations brought down to an answer: who is best, by how much, how certain that is, and where we lose.

Scores are means of silos, then of splits; those of a data set are means of its dealings. Tests and intervals are over
data sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from . import federations
from .evidence import AGAIN, DRAWN, FEDERATIONS, FIRST, REFERENCES, RIVALS, VARIANTS, Row, first_federations
from .methods import METHODS
from .statistics import bootstrap_interval, friedman_nemenyi, wilcoxon_holm
from .summary import markdown

OURS, AVERAGE, ALONE = "fmtc", "fmtc-average", "kmeans"
SCORES: dict[str, tuple[str, Callable[[Row], float]]] = {  # the first two are primary
    "ari": ("ARI, held-out rows", lambda row: float(row["test"]["mean"]["ari"])),
    "acc_frozen": ("ACC, held-out rows, matching frozen", lambda row: float(row["test"]["acc_frozen"])),
    "acc": ("ACC, held-out rows, best matching", lambda row: float(row["test"]["mean"]["acc"])),
    "ari_in": ("ARI, training rows", lambda row: float(row["train"]["mean"]["ari"])),
    "acc_in": ("ACC, training rows, best matching", lambda row: float(row["train"]["mean"]["acc"])),
}
PRIMARY = ("ari", "acc_frozen")
FAR_BELOW = 0.03  # below k-means alone: too many

Scores = dict[str, dict[str, float]]  # method, then federation or data set


def of_test(rows: Iterable[Row]) -> list[Row]:
    """Rows of test federations with default settings, of methods that are compared."""
    known, compared = set(FEDERATIONS), {"fmtc", *VARIANTS, *RIVALS, *REFERENCES}
    return [row for row in rows if row["dataset"] in known and row["trial"] == "default" and row["method"] in compared]


def pools(name: str) -> bool:
    """Whether a method needs the rows of all silos in one place."""
    return METHODS[name].shares == "rows"


def by_federation(rows: Iterable[Row], score: str) -> Scores:
    """Score of each method on each federation that all of them were run on: mean of splits, 0 where a split failed.

    Parameters
    ----------
    rows : iterable of dict
    score : str
        One of `SCORES`.

    Returns
    -------
    dict of method to dict of federation to float
    """
    return _means(of_test(rows), score, FEDERATIONS)


def _means(rows: Iterable[Row], score: str, names: Sequence[str]) -> Scores:
    """Means over splits on those of the federations that all methods were run on."""
    read = SCORES[score][1]
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        place = found.setdefault(row["method"], {}).setdefault(row["dataset"], [])
        place.append(read(row) if row["status"] == "ok" else 0.0)
    everywhere = [name for name in names if found and all(name in line for line in found.values())]
    return {
        method: {name: float(np.mean(found[method][name])) for name in everywhere}
        for method in METHODS
        if method in found
    }


def by_dataset(scores: Scores, wanted: Callable[[str], bool] = lambda name: True) -> Scores:
    """Means of the federations of each data set that are wanted."""
    grouped: dict[str, dict[str, list[float]]] = {}
    for method, line in scores.items():
        mine = grouped.setdefault(method, {})
        for name, value in line.items():
            if wanted(name):
                mine.setdefault(name.partition("?")[0], []).append(value)
    return {method: {name: float(np.mean(found)) for name, found in line.items()} for method, line in grouped.items()}


def differ(name: str) -> bool:
    """Whether the silos of a federation differ by more than chance: all but the even dealings."""
    return "dealing=even" not in name


def _ranks(scores: Scores, names: Sequence[str]) -> dict[str, float]:
    table = np.array([list(scores[name].values()) for name in names]).T
    return dict(zip(names, rankdata(-table, axis=1).mean(axis=0).tolist(), strict=True))


def _gap(scores: Scores, first: str, second: str) -> list[float]:
    return [scores[first][name] - scores[second][name] for name in scores[first]]


def compare(rows: Sequence[Row], score: str) -> dict[str, Any]:
    """FMTC against everyone on the test federations, by one score.

    Parameters
    ----------
    rows : sequence of dict
    score : str
        One of `SCORES`.

    Returns
    -------
    dict
        ``score``, ``title``, ``federations`` and ``datasets`` (how many), ``friedman`` over data sets of all methods
        that do not pool rows, and ``lines``: for each method its ``name``, ``block`` ("ours", "rivals", "variants",
        "pooled" or "references"), ``mean`` over data sets, ``rank`` over federations among those that do not pool rows
        (None for others), and compared with FMTC ``ahead`` (mean of FMTC less that of the method), ``low``, ``high``,
        ``wins``, ``losses``, ``p_value`` and ``p_holm``. Empty where there is too little to compare.
    """
    federated = by_federation(rows, score)
    sets = by_dataset(federated)
    ranked = [name for name in federated if name not in REFERENCES and not pools(name)]
    if OURS not in ranked or len(ranked) < 3 or len(sets[OURS]) < 2:
        return {}
    ranks = _ranks(federated, ranked)
    tested: dict[str, dict[str, Any]] = {}
    for family in (RIVALS, VARIANTS):
        names = [name for name in (OURS, *family) if name in sets]
        if len(names) > 1:
            lines = wilcoxon_holm({name: list(sets[name].values()) for name in names}, against=OURS)
            tested |= {line["second"]: line for line in lines}
    lines = []
    for name, line in sets.items():
        low, high = bootstrap_interval(_gap(sets, OURS, name))
        lines.append(
            {"name": name, "block": _block(name), "mean": float(np.mean(list(line.values()))), "rank": ranks.get(name)}
            | {"ahead": float(np.mean(_gap(sets, OURS, name))), "low": low, "high": high}
            | {key: tested[name][key] if name in tested else None for key in ("wins", "losses", "p_value", "p_holm")}
        )
    return {
        "score": score,
        "title": SCORES[score][0],
        "federations": len(federated[OURS]),
        "datasets": len(sets[OURS]),
        "friedman": friedman_nemenyi({name: list(sets[name].values()) for name in ranked}),
        "lines": lines,
    }


def _block(name: str) -> str:
    if name == OURS:
        return "ours"
    if name in REFERENCES:
        return "references"
    if name in VARIANTS:
        return "variants"
    return "pooled" if pools(name) else "rivals"


def personal_or_average(rows: Sequence[Row], score: str) -> list[dict[str, Any]]:
    """FMTC less plain averaging, over data sets: where silos differ, and where they are alike.

    Returns
    -------
    list of dict
        ``where``, ``datasets``, ``ahead``, ``low``, ``high``.
    """
    scores = by_federation(rows, score)
    found = []
    for where, wanted in (("silos differ", differ), ("silos alike", lambda name: not differ(name))):
        sets = by_dataset(scores, wanted)
        if sets.get(OURS) and AVERAGE in sets:
            gap = _gap(sets, OURS, AVERAGE)
            low, high = bootstrap_interval(gap)
            found.append({"where": where, "datasets": len(gap), "ahead": float(np.mean(gap)), "low": low, "high": high})
    return found


def far_below(rows: Sequence[Row], score: str, other: str = ALONE) -> list[dict[str, Any]]:
    """Federations on which FMTC is more than three points below k-means of each silo alone, the worst first."""
    scores = by_federation(rows, score)
    if OURS not in scores or other not in scores:
        return []
    gaps = {name: scores[OURS][name] - scores[other][name] for name in scores[OURS]}
    return [
        {"federation": name, "ours": scores[OURS][name], "other": scores[other][name], "gap": gap}
        for name, gap in sorted(gaps.items(), key=lambda item: item[1])
        if gap < -FAR_BELOW
    ]


def by_kind(rows: Sequence[Row], score: str, methods: Sequence[str]) -> list[dict[str, Any]]:
    """Means over the data sets of each kind, and of each dealing."""
    scores = by_federation(rows, score)
    groups: dict[str, Callable[[str], bool]] = {
        kind: (lambda name, kind=kind: federations.KIND[name.partition("?")[0]] == kind)  # type: ignore[misc]
        for kind in dict.fromkeys(federations.KIND[name.partition("?")[0]] for name in FEDERATIONS)
    }
    for dealing in ("even", "skewed", "missing"):
        groups[f"dealt: {dealing}"] = lambda name, dealing=dealing: f"dealing={dealing}" in name  # type: ignore[misc]
    groups["natural silos"] = lambda name: "dealing=" not in name
    found = []
    for group, wanted in groups.items():
        sets = by_dataset({method: scores[method] for method in methods if method in scores}, wanted)
        if any(sets.values()):
            means = {method: float(np.mean(list(line.values()))) for method, line in sets.items()}
            found.append({"group": group, "datasets": len(next(iter(sets.values()))), "means": means})
    return found


Pair = tuple[float, float]  # on held-out and on training rows


def _of_draws(rows: Iterable[Row], first: Sequence[str], score: str) -> dict[str, dict[str, dict[str, Pair]]]:
    """Scores of the first split, by method, trial and data set."""
    outside, inside = SCORES[score][1], SCORES["ari_in" if score.startswith("ari") else "acc_in"][1]
    table: dict[str, dict[str, dict[str, Pair]]] = {}
    for row in rows:
        if row["dataset"] in first and row["split"] == 0 and row["method"] in DRAWN:
            pair = (outside(row), inside(row)) if row["status"] == "ok" else (0.0, 0.0)
            table.setdefault(row["method"], {}).setdefault(row["trial"], {})[row["dataset"]] = pair
    return table


def chosen_settings(rows: Iterable[Row], score: str = "ari") -> list[dict[str, Any]]:
    """Three ways to choose settings, on the first federation of each data set and the first split.

    Parameters
    ----------
    rows : iterable of dict
    score : str
        What is reported, and what chooses; for the oracle ARI or ACC of the training rows does.

    Returns
    -------
    list of dict
        Of each method: ``default``; ``others``, the setting with the best mean score by labels on all other data sets;
        ``oracle``, the setting with the best score by labels on the training rows of the data set itself. Means over
        ``datasets``.
    """
    first = first_federations()
    table = _of_draws(rows, first, score)
    found = []
    for method in DRAWN:
        trials = table.get(method, {})
        if "default" not in trials or len(trials) < 2:
            continue
        sets = [name for name in first if all(name in line for line in trials.values())]
        if len(sets) < 2:
            continue
        names = sorted(trials, key=lambda trial: -1 if trial == "default" else int(trial))  # of equals the first
        values = np.array([[trials[trial][name] for name in sets] for trial in names])  # trials, data sets, 2
        reported, training = values[:, :, 0], values[:, :, 1]
        others = (reported.sum(axis=1, keepdims=True) - reported).argmax(axis=0)
        oracle = training.argmax(axis=0)
        place = np.arange(len(sets))
        found.append(
            {
                "method": method,
                "datasets": len(sets),
                "draws": len(names) - 1,
                "default": float(reported[names.index("default")].mean()),
                "others": float(reported[others, place].mean()),
                "oracle": float(reported[oracle, place].mean()),
            }
        )
    return found


# ------------------------------------------------------------------------------------------------------------ in words

BLOCKS = {
    "ours": "",
    "rivals": "do not pool rows",
    "variants": "variants of FMTC",
    "pooled": "pooled reference: all rows in one place",
    "references": "what a score is worth",
}


def main_table(rows: Sequence[Row]) -> str:
    """Both primary scores and the second one, everyone in blocks; Markdown. Empty where there is too little."""
    found = {score: compare(rows, score) for score in ("ari", "acc_frozen", "acc")}
    if not all(found.values()):
        return ""
    by_name = {score: {line["name"]: line for line in entry["lines"]} for score, entry in found.items()}
    head = "| | ARI | rank | FMTC ahead by | p | frozen ACC | rank | FMTC ahead by | p | best-matching ACC |"
    lines: list[list[str]] = []
    for block, title in BLOCKS.items():
        mine = [line for line in found["ari"]["lines"] if line["block"] == block]
        if title and mine:
            lines.append([f"*{title}* |" + " |" * 8])  # the cells beside it are empty
        for name in [line["name"] for line in sorted(mine, key=lambda line: -line["mean"])]:
            cells = [METHODS[name].title if block != "ours" else f"**{METHODS[name].title}**"]
            for score in PRIMARY:
                line = by_name[score][name]
                cells += [f"{100 * line['mean']:.1f}", "" if line["rank"] is None else f"{line['rank']:.1f}"]
                cells += ["", ""] if block == "ours" else [interval(line), _p(line["p_holm"])]
            lines.append([*cells, _points(by_name["acc"][name]["mean"])])
    return markdown(head, lines)


def interval(line: Mapping[str, Any]) -> str:
    """By how much FMTC is ahead, in points, and from where to where that may be."""
    return f"{100 * line['ahead']:+.1f} ({100 * line['low']:+.1f} to {100 * line['high']:+.1f})"


def _p(value: float | None) -> str:
    return "" if value is None else "< .001" if value < 0.001 else f"{value:.3f}"


def page(rows: Sequence[Row]) -> str:
    """``test.md``: the table, what the tests say, where FMTC loses, averaging, settings, each federation."""
    table = main_table(rows)
    if not table:
        return ""
    text = ["# Test federations", "Made by `fmtc-bench paper`; the rules are in `protocol.md`.", table]
    text += friedman_sentences(rows)
    text += ["## Personal models or plain averaging", averaging_table(rows)]
    text += ["## More than three points below k-means alone", below_table(rows)]
    text += ["## By kind of data and of silos", kind_table(rows)]
    drawn = settings_table(rows)
    if drawn:
        text += ["## Settings chosen with labels", drawn]
    again = first_table(rows)
    if again:
        text += ["## Federations of the first comparison, development data since", again]
    text += ["## Each federation", federation_table(rows)]
    return "\n\n".join(text) + "\n"


def friedman_sentences(rows: Sequence[Row]) -> list[str]:
    """Whether methods that do not pool rows differ at all, by each primary score, and their mean ranks."""
    said = []
    for entry in filter(None, (compare(rows, score) for score in PRIMARY)):
        test = entry["friedman"]
        ranks = "; ".join(f"{METHODS[name].title} {rank:.2f}" for name, rank in test["ranks"].items())
        said.append(
            f"{entry['title']}: {entry['federations']} federations of {entry['datasets']} data sets. Friedman over "
            f"data sets, {len(test['ranks'])} methods that do not pool rows: p = {test['p_value']:.2g}, critical "
            f"difference {test['critical_difference']:.2f}. Mean ranks over data sets: {ranks}."
        )
    return said


def averaging_table(rows: Sequence[Row]) -> str:
    """FMTC less averaging, with intervals; Markdown."""
    return markdown(
        "| | score | data sets | FMTC ahead of averaging by |",
        [
            (line["where"], SCORES[score][0], line["datasets"], interval(line))
            for score in PRIMARY
            for line in personal_or_average(rows, score)
        ],
    )


def below_table(rows: Sequence[Row]) -> str:
    """Federations on which k-means alone is ahead by more than three points; Markdown."""
    lines = [
        (federations.title(line["federation"]), SCORES[score][0], _points(line["ours"]), _points(line["other"]),
         f"{100 * line['gap']:+.1f}")
        for score in PRIMARY
        for line in far_below(rows, score)
    ]  # fmt: skip
    return markdown("| federation | score | FMTC | k-means alone | |", lines) if lines else "None."


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


SHOWN = ("fmtc", "fmtc-average", "fmtc-mixture", "fmtc-graph", "kmeans", "gmm", "anchors", "stsc", "fedkmeans")


def _shown(rows: Sequence[Row]) -> list[str]:
    seen = {row["method"] for row in of_test(rows)}
    return [name for name in SHOWN if name in seen]


def kind_table(rows: Sequence[Row], score: str = "ari") -> str:
    """Means of some methods by kind of data and by dealing; Markdown."""
    names = _shown(rows)
    return markdown(
        "| ARI | data sets | " + " | ".join(METHODS[name].title for name in names) + " |",
        [
            (group["group"], group["datasets"], *(_points(group["means"][name]) for name in names))
            for group in by_kind(rows, score, names)
        ],
    )


def settings_table(rows: Sequence[Row]) -> str:
    """Default, settings chosen on the other data sets, oracle; Markdown. Empty where nothing was drawn."""
    found = sorted(chosen_settings(rows), key=lambda line: -line["others"])
    lines = [
        (METHODS[line["method"]].title, *(_points(line[key]) for key in ("default", "others", "oracle")))
        for line in found
    ]
    head = "| ARI | default | chosen by labels on the other data sets | oracle: chosen by its own labels |"
    return markdown(head, lines) if lines else ""


def first_table(rows: Sequence[Row]) -> str:
    """Means over the data sets of the first comparison, on which today's default was developed."""
    known = [row for row in rows if row["dataset"] in FIRST and row["trial"] == "default" and row["method"] in AGAIN]
    scores = [by_dataset(_means(known, score, FIRST)) for score in PRIMARY]
    lines = [
        (METHODS[name].title, *(_points(float(np.mean(list(each[name].values())))) for each in scores), len(first))
        for name, first in scores[0].items()
        if all(each[name] for each in scores)
    ]
    return markdown("| | ARI | frozen ACC | data sets |", lines) if lines else ""


def federation_table(rows: Sequence[Row]) -> str:
    """ARI / frozen ACC of some methods on each federation, the best ARI in bold; Markdown."""
    names = _shown(rows)
    first, second = (by_federation(rows, score) for score in PRIMARY)
    lines = []
    for place in first[OURS]:
        best = max(first[name][place] for name in names)
        cells = [federations.title(place)]
        for name in names:
            bold = "**" if first[name][place] == best else ""
            cells.append(f"{bold}{_points(first[name][place])}{bold} / {_points(second[name][place])}")
        lines.append(cells)
    return markdown("| ARI / frozen ACC | " + " | ".join(METHODS[name].title for name in names) + " |", lines)
