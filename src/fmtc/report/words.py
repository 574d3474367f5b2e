"""What the page of a run says, in sentences: what was found, how the run went, and why something is missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from rich.filesize import decimal

from ..describe import Cluster
from ..describe.words import FEW, held_words, listing, percents
from ..errors import plural
from .run import Run

CLEAR = 0.01  # a smaller gain is none
# A silo hardly has a cluster of fewer than five of its rows, unless these are 5 % of them, or of less than 0.5 %, which
# is printed as "< 1 %". Chosen by us: five is what `explain` describes, and so few rows may have strayed there.
STRAY, TRACE = 0.05, 0.005


def has(rows: int, of: int) -> bool:
    """Whether a silo of so many rows has a cluster, and not only a few rows that may have strayed there."""
    return rows > 0 and rows >= max(min(FEW, STRAY * of), TRACE * of)


def atlas_words(counts: Mapping[str, int]) -> str:
    """How far silos agree on what their clusters are, in a sentence; empty where nothing was compared."""
    total = sum(counts.values())
    if not total:
        return ""
    if counts.get("matched", 0) == total:
        return f"All {total} clusters of single silos are like those of the same cluster elsewhere."
    parts = [
        f"{counts.get('matched', 0)} of {total} clusters of single silos are like those of the same cluster elsewhere"
    ]
    if counts.get("unsure"):
        parts.append(f"{counts['unsure']} may belong to another cluster")
    if counts.get("unique"):
        parts.append(f"{counts['unique']} {'is' if counts['unique'] == 1 else 'are'} like nothing in the other silos")
    return f"{listing(parts)}."


def findings(run: Run, summary: Mapping[str, Any]) -> list[str]:
    """What was found, in a few sentences."""
    silos = summary["silos"]
    m, rows = len(silos), summary["n_rows"]
    of = f" with {plural(rows, 'row')}" if rows else ""
    of += f" of {plural(run.d, 'column')}" if run.d else ""
    divided = f"{plural(m, 'silo')}{of} {'were' if m > 1 else 'was'} divided into {plural(run.k, 'cluster')}."
    said = [*filter(None, [run.own]), divided]
    if m > 1 and summary["found"]:
        said += _share_words(summary, run.held)
    if run.held:
        said.append(limited_words(run))
    if any(line["gain"] is not None for line in silos):
        said.append(_gain_words(silos))
    if classed := [line for line in silos if line["held_out_acc"] is not None and line["alone_acc"] is not None]:
        together, alone = _means(classed, "held_out_acc", "alone_acc")
        said.append(
            f"By the known classes, {together:.1f} % of the held-out rows are in the right cluster if the silos learn "
            f"together, {alone:.1f} % if each learns alone."
        )
    if lost := [line["silo"] for line in silos if line["lost"]]:
        were, have = ("was", "has") if len(lost) == 1 else ("were", "have")
        said.append(f"{listing(lost)} {were} lost during the run and {have} no model.")
    return said


def _means(lines: Sequence[Mapping[str, Any]], *names: str) -> list[float]:
    """Mean over silos of some shares, in per cent."""
    return [100 * float(np.mean([line[name] for line in lines])) for name in names]


def limited_words(run: Run) -> str:
    """Which silos the server has limited; empty where it has none."""
    return held_words(list(run.held), run.held)


def _share_words(summary: Mapping[str, Any], held: Collection[str] = ()) -> list[str]:
    """Where silos differ most in their shares, which clusters some lack, and whether numbers mean the same.

    Nothing of silos that the server has limited: their numbers are their own.
    """
    lines = [line for line in summary["silos"] if line["shares"] is not None and line["silo"] not in held]
    return [*_spread_words(summary["found"], lines), *_absence_words(summary["found"], lines),
            *_likeness_words(summary["clusters"], "every other silo" if held else "every silo")]  # fmt: skip


def _spread_words(found: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The cluster whose shares differ most, of those that all silos have."""
    common = [one["cluster"] for one in found if one["silos"] == len(lines)]  # who lacks some is said apart
    if len(lines) < 2 or len(found) < 2 or not common:
        return []
    shares = np.array([line["shares"] for line in lines])
    spread = np.ptp(shares, axis=0)
    j = max(common, key=lambda j: float(spread[j]))
    if spread[j] < 0.1:
        which = "each cluster" if len(common) == shares.shape[1] else "the clusters that all of them have"
        return [f"The silos have nearly the same shares of {which}."]
    high, low = int(shares[:, j].argmax()), int(shares[:, j].argmin())
    name = f" ({found[j]['name']})" if found[j]["name"] else ""
    most, least = (percents(shares[t])[j] for t in (high, low))
    return [
        f"Shares differ most for cluster {j}{name}: it has {most} of the rows of {lines[high]['silo']} and "
        f"{least} of those of {lines[low]['silo']}."
    ]


def _absence_words(found: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Clusters that some silos lack; those that nobody has are said apart."""
    sizes = {line["silo"]: [round(share * line["rows"]) for share in line["shares"]] for line in lines}
    absent = [one for one in found if one["silos"] < len(lines) and any(of[one["cluster"]] for of in sizes.values())]
    if len(absent) <= 4:
        return [_lacking_words(one, sizes) for one in absent]
    counts = sorted(sum(has(n, sum(of)) for n in of) for of in sizes.values())
    few, many = counts[0], counts[-1]
    each = f"{few} of the" if few == many else f"{few} to {many} of the"
    everywhere = len(found) - len(absent)
    which = f"{everywhere} of them {'is' if everywhere == 1 else 'are'}" if everywhere else "none of them is"
    return [f"Each silo has {each} {len(found)} clusters; {which} in all silos."]


def _likeness_words(clusters: Sequence[Mapping[str, Any]], every: str) -> list[str]:
    """Whether the same number means the same cluster everywhere."""
    compared = [one for one in clusters if one["likeness"] is not None]
    unlike = [one for one in compared if one["unlike"]]
    if len(unlike) > 2:
        return [
            f"{len(unlike)} of {len(compared)} clusters of single silos are unlike the same number in the other silos; "
            "the table of clusters marks them."
        ]
    if unlike:
        where = [f"cluster {one['cluster']} of {one['silo']}" for one in unlike]
        return [
            f"C{listing(where)[1:]} {'is' if len(unlike) == 1 else 'are'} unlike the same number in the other silos."
        ]
    return [f"By their columns, the same number means the same cluster in {every}."] if compared else []


def _lacking_words(found: Mapping[str, Any], sizes: Mapping[str, Sequence[int]]) -> str:
    """Which silos have no rows of a cluster, and which hardly any; more than three of them are counted."""
    j, name = found["cluster"], f" ({found['name']})" if found["name"] else ""
    none = [silo for silo, of in sizes.items() if not of[j]]
    few = [
        f"{silo} ({Cluster(j, of[j], 0.0).size} of {sum(of):,})"
        for silo, of in sizes.items()
        if of[j] and not has(of[j], sum(of))
    ]
    parts = [
        f"{how} rows in {listing(some) if len(some) <= 3 else f'{len(some)} of {len(sizes)} silos'}"
        for how, some in (("no", none), ("hardly any", few))
        if some
    ]
    return f"Cluster {j}{name} has {listing(parts)}."


def run_words(run: Run, summary: Mapping[str, Any]) -> list[str]:
    """How the run went, in a few sentences."""
    report, m = run.report, len(summary["silos"])
    why = report.get("view_reason")
    said = [f"The {run.view} view was {f'chosen: {why}' if why else 'used'}."] if run.view else []
    if report.get("coupling") == "average":
        said[-1] += " Rows are texts: all silos share one projection."
    rounds, time = f"after {plural(report['n_iter'], 'round')}", f"({report['seconds']:.1f} s)"
    if report["converged"]:
        said.append(f"The run converged {rounds} {time}.")
    elif run.history:
        said.append(f"The run stopped {rounds} {time}, before it converged: {report['stopped_because']}.")
    else:
        said.append(f"The run ended {rounds} {time}.")
    if summary["sent"]:
        size = decimal(sum(line["bytes"] for line in summary["sent"]))
        said.append(
            f"The {'silos' if m > 1 else 'silo'} sent {size} in all; no row left {'a silo' if m > 1 else 'it'}."
        )
    return said


def verdict(line: Mapping[str, Any]) -> str:
    """Whether a silo gains: "up" or "down" where the gain is beyond two standard errors, else ""; 0.01 at least."""
    if line["gain"] is None or abs(line["gain"]) < max(CLEAR, 2 * (line["gain_error"] or 0.0)):
        return ""
    return "up" if line["gain"] > 0 else "down"


def _gain_words(silos: Sequence[Mapping[str, Any]]) -> str:
    scored = [line for line in silos if line["gain"] is not None]
    together, alone = _means(scored, "held_out", "alone")
    up, down = ([line["silo"] for line in scored if line["verdict"] == which] for which in ("up", "down"))
    same = len(scored) - len(up) - len(down)
    parts = [
        f"{_some(up, len(scored))} clearly better off together" if up else "",
        f"{_some(down, len(scored))} better off alone" if down else "",
        f"for {plural(same, 'silo')} there is no clear difference" if same < len(scored) and same else "",
        "no clear difference for any silo" if same == len(scored) else "",
    ]
    return (
        f"Rows that the models did not see share their cluster with {together:.1f} % of their neighbours if the "
        f"silos learn together and with {alone:.1f} % if each learns alone: "
        f"{listing([part for part in parts if part])}."
    )


def _some(names: Sequence[str], of: int) -> str:
    """Such as: silo3 is; a, b and c are; 7 of 8 silos are."""
    if len(names) == of > 1:
        return f"all {of} silos are"
    return (
        f"{len(names)} of {of} silos are"
        if len(names) > 3
        else f"{listing(names)} {'is' if len(names) == 1 else 'are'}"
    )


def absences(run: Run) -> dict[str, str]:
    """Why something is not on the page, for those parts that are not."""
    absent: dict[str, str] = {}
    if run.model is None:
        why = "The coordinator has no rows, labels or models: they stay with the silos, whose own pages show them."
        absent |= {"points": why, "clusters": why, "details": why}
    elif not run.details:
        absent["details"] = (
            "What joining changed, silhouettes and the map need the rows; `fmtc fit --report` keeps them."
        )
    if not run.history:
        absent["history"] = "Only the coordinator of a federation sees the rounds; its own page shows them."
    if not run.report.get("sent"):
        absent["sent"] = "The run recorded nothing that left."
    if run.explanation is not None:
        held = held_words(list(run.held)) if run.held else ""  # the findings say it
        if notes := [note for note in run.explanation.notes if note not in (held, run.own)]:
            absent["explanation"] = " ".join(notes)
    return absent
