"""Everything the page of a run says, as one dictionary: numbers and sentences, no markup."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts.files import jsonable
from ..artifacts.runs import of_one_silo
from ..describe import Atlas, Cluster, Explanation, Histogram
from ..describe.clusters import percents_of
from ..describe.words import empty_clusters_sentence
from ..estimator import FMTC
from ..protocol.base import LETTERS
from ..settings import SHARED, Graph
from ..tables.reading import Reading
from .run import Run, open_run
from .words import absences, atlas_words, findings, has, limited_words, run_words, verdict

Array = np.ndarray

SAME = 0.5  # cosine of their differences from which clusters of the same number count as alike


def summarise(folder: str | Path) -> dict[str, Any]:
    """Everything that can be said about a run, from the folder it left.

    Parameters
    ----------
    folder : path
        What `fmtc fit` or `fmtc join` wrote, or `fmtc coordinate`, which has no rows or models.
        What needs the rows is there where the run was asked for it (`fmtc fit --report`).

    Returns
    -------
    dict
        In what JSON knows. `title`, `words` (what was found, in sentences) and `run_words` (how the run went); `found`,
        what each cluster is over all silos; `clusters` (of each silo), `silos`, `history` and `sent` (lists of rows);
        `points` by silo; `settings`, `versions`, `notes`, `code`; `absent`, why something is missing.

    Raises
    ------
    FileError
        Where the folder is not of a run, or a file of it is damaged.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from fmtc import FMTC
    >>> from fmtc.artifacts import runs
    >>> from fmtc.report import summarise
    >>> from fmtc.tables import Silo
    >>> rng = np.random.default_rng(0)
    >>> silos = [Silo(name, rng.normal(size=(30, 4)), None, np.arange(30)) for name in ("north", "south")]
    >>> model = FMTC(2, random_state=0).fit({silo.name: silo.X for silo in silos})
    >>> results = runs.results(model, silos)
    >>> report = runs.report(model, results, files=[], as_published=False, seconds=1.0, notes=[])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs.write_run(Path(folder) / "run", False, model, results, report)
    ...     summary = summarise(Path(folder) / "run")
    >>> summary["words"][0]
    '2 silos with 60 rows of 4 columns were divided into 2 clusters.'
    """
    return summary_of(open_run(Path(folder)))


def summary_of(run: Run) -> dict[str, Any]:
    """`summarise` of a run that has been read."""
    report = run.report
    own = run.model is not None and of_one_silo(report)
    empty = _empty(run, own)
    found, clusters = ([], []) if run.explanation is None else _clusters(run.explanation, run.held)
    silos = _silos(run, clusters)
    summary = {
        "title": run.title,
        "n_clusters": run.k,
        "n_features": run.d,
        "n_rows": sum(line["rows"] or 0 for line in silos),
        **{name: report[name] for name in ("seconds", "n_iter", "converged", "stopped_because")},
        "view": run.view,
        "tol": report["settings"]["tol"],
        "silos": silos,
        "found": found,
        "clusters": clusters,
        "own_rows": own,
        "calibrated": run.view == "mixture",
        "history": run.history,
        "atlas": None if run.atlas is None else _atlas(run.atlas),
        "trust": _trust(report["trust"]),
        "points": _points(run),
        "sent": report["sent"],
        "letters": _letters(report["sent"]),
        "seen": _seen(report["trust"]),
        "bytes_up": sum(line["bytes_up"] for line in run.history) if run.history else None,
        "bytes_down": sum(line["bytes_down"] for line in run.history) if run.history else None,
        "settings": _settings(report["settings"]),
        "versions": versions_of(report["versions"]),
        "notes": [note for note in report["notes"] if note not in (empty, limited_words(run))],  # those are findings
        "code": _code(run),
        "absent": absences(run),
    }
    said = findings(run, summary) + ([f"C{empty[1:]}."] if empty else [])
    return dict(jsonable(summary | {"words": said, "run_words": run_words(run, summary)}))


def _empty(run: Run, own: bool) -> str:
    """Which clusters have no row, in a sentence; empty where there is none, or nobody knows."""
    if run.model is None:
        return ""
    return empty_clusters_sentence([line["cluster_sizes"] for line in run.report["silos"]], all_silos=not own)


def _points(run: Run) -> dict[str, Any]:
    """Where the rows of each silo lie in the picture, with what more is known of them."""
    more = run.details.get("points", {})
    return {name: {**shown, **more.get(name, {})} for name, shown in run.report.get("projection", {}).items()}


def _letters(sent: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What the letters mean that shapes of messages have."""
    used = {letter for line in sent for letter in line["shape"].split(" × ")}
    return {letter: what for letter, what in LETTERS.items() if letter in used}


def _trust(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Who pulls whom, with the shade of each cell; None for one silo."""
    if len(found["clients"]) < 2:
        return None
    pulls = found["influence"] or []
    most = max((value for row in pulls for value in row), default=0.0)
    rows = [
        [{"value": value, "shade": _shade(value, most), "self": s == t} for t, value in enumerate(row)]
        for s, row in enumerate(pulls)
    ]
    return {**found, "cells": rows, "held": [line["silo"] for line in found["clients"] if line["held"]]}


def _shade(value: float, most: float) -> int:
    """One of five shades of a cell."""
    return round(4 * value / most) if most > 0 else 0


def _atlas(atlas: Atlas) -> dict[str, Any]:
    """Clusters down, silos across: share, flag, cosine and shade of each cell; features of each cluster."""
    most = max((share or 0.0 for one in atlas.clusters for share in one.presence.values()), default=0.0)
    shares = {cid: atlas.shares(cid) for cid in atlas.silos}
    rows = [
        {
            "concept": one.id,
            "name": one.name,
            "absent": not one.is_somewhere,
            "features": [_taken(feature, "what", "value", "weight") for feature in one.top_features],
            "cells": [
                {
                    "silo": cid,
                    "share": shares[cid][j],
                    "flag": one.flags.get(cid, ""),
                    "cosine": one.cosine.get(cid),
                    "shade": _shade(one.presence.get(cid) or 0.0, most),
                }
                for cid in atlas.silos
            ],
        }
        for j, one in enumerate(atlas.clusters)
    ]
    counts = Counter(flag for one in atlas.clusters for flag in one.flags.values())
    return {
        "silos": list(atlas.silos),
        "rows": rows,
        "flags": dict(counts),
        "notes": list(atlas.notes),
        "words": atlas_words(counts),
    }


# ------------------------------------------------------------------------------------------------------ silos


def _silos(run: Run, clusters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row of the table for each silo; None where something is not known."""
    lines, details = {line["silo"]: line for line in run.report.get("silos", ())}, run.details.get("silos", {})
    unlike = Counter(cluster["silo"] for cluster in clusters if cluster["unlike"])
    missed = Counter(name for record in run.history for name in record["missing"])
    found = []
    for name in run.names:
        line, more = lines.get(name, {}), details.get(name, {})
        row = {
            "silo": name,
            "lost": name in run.report.get("missing", ()),
            **{what: line.get(what) for what in ("rows", "score", "acc", "nmi")},
            **{what: more.get(what) for what in ("residual", "silhouette")},
            **_sizes(line.get("cluster_sizes")),
            **_gain(more.get("held_out") or {}),
            "unlike": unlike[name] if len(lines) > 1 else None,
            "rounds_missed": missed[name],
        }
        found.append(row | {"verdict": verdict(row)})
    return found


def _sizes(sizes: Sequence[int] | None) -> dict[str, Any]:
    """What follows from the rows of a silo's clusters."""
    if sizes is None:
        return {"clusters": None, "balance": None, "shares": None}
    shares = [n / max(1, sum(sizes)) for n in sizes]
    return {"clusters": int(np.count_nonzero(sizes)), "balance": _balance(sizes), "shares": shares}


def _gain(tried: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of held-out rows, together and alone."""
    known = tried.get("score") is not None and tried.get("alone") is not None
    return {
        "held_out_rows": tried.get("rows"),
        "held_out": tried.get("score"),
        "alone": tried.get("alone"),
        "gain": tried["score"] - tried["alone"] if known else None,
        "gain_error": tried.get("error") if known else None,
        "held_out_acc": tried.get("acc"),
        "alone_acc": tried.get("alone_acc"),
    }


def _balance(sizes: Sequence[int]) -> float:
    """Entropy of the cluster sizes against that of equal ones: 1 where all are equal, 0 where one has all rows."""
    share = np.asarray(sizes, dtype=float)
    share = share[share > 0] / share.sum()
    return float(-(share * np.log(share)).sum() / np.log(len(sizes))) if len(sizes) > 1 else 1.0


# ---------------------------------------------------------------------------------------------------- clusters


def _clusters(explained: Explanation, held: Collection[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each number is over all silos, and a row for each cluster of each silo that has rows."""
    silos = explained.silos
    common = [mine for name, mine in silos.items() if name not in held] or list(silos.values())
    counts = [[one.rows for one in mine] for mine in common]
    found = [
        _cluster(one) | {"percent": percent, "silos": sum(has(of[one.cluster], sum(of)) for of in counts)}
        for one, percent in zip(explained.clusters, percents_of(explained.clusters), strict=True)
    ]
    clusters = [
        _cluster(one) | {"silo": name, "likeness": likeness, "unlike": likeness is not None and likeness < SAME}
        for name, mine in silos.items()
        for one, likeness in zip(mine, explained.likeness[name], strict=True)
        if one.rows
    ]
    return found, clusters


def _cluster(cluster: Cluster) -> dict[str, Any]:
    differences = [
        _taken(one, "what", "effect", "kind") | {"amounts": one.values, "histogram": _histogram(one.histogram)}
        for one in cluster.differences
    ]
    told = _taken(cluster, "cluster", "name", "words", "given", "rows", "size", "share")
    return told | {"differences": differences}


def _taken(thing: Any, *names: str) -> dict[str, Any]:
    """Some of what a thing has, by name."""
    return {name: getattr(thing, name) for name in names}


def _histogram(histogram: Histogram | None) -> dict[str, Any] | None:
    """Counts, and what stands below them: first and last value, or the levels."""
    if histogram is None:
        return None
    low, high = (f"{edges[0]:.3g}", f"{edges[-1]:.3g}") if (edges := histogram.edges) else ("", "")
    return _taken(histogram, "inside", "outside", "levels") | {"low": low, "high": high}


# ---------------------------------------------------------------------------------------------------- settings


def _settings(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every setting of FMTC and then of its views, in the order of their parameters; whether it is not the default."""
    default = FMTC().get_params(deep=False) | Graph().get_params()
    names = [*inspect.signature(FMTC).parameters, *inspect.signature(Graph).parameters]
    of_view = dict.fromkeys(Graph().get_params(), "Graph")
    if settings["view"] == "mixture":
        of_view |= dict.fromkeys(SHARED, "Mixture")
    found = [
        {"of": of_view.get(name, "FMTC"), "name": name, "value": settings[name],
         "changed": settings[name] != default[name]}
        for name in names if name in settings
    ]  # fmt: skip
    if settings["as_published"]:
        found.append({"of": "FMTC", "name": "as_published", "value": True, "changed": True})
    return found


_MODES = {
    "alone": "One silo, by itself: nothing left it.",
    "clear": "No privacy: the server saw each silo's answers. No row left, but answers tell of rows.",
    "sums": "Privacy by sums: the server saw sums over all silos, and nothing of a single one. A secure sum hides "
    "whose record it is, not whether it is there.",
    "private": "Differential privacy: the server saw noisy sums over all silos.",
}


def _seen(trust: Mapping[str, Any]) -> dict[str, Any]:
    """Who saw what, what was promised and what can be compared."""
    words, promise = [_MODES.get(trust["mode"], "")], trust["promise"]
    if promise:
        words.append(
            f"(ε = {promise['epsilon']:g}, δ = {promise['delta']:g}) for one record added or removed, for everything "
            f"that left in this run; ε = {promise['epsilon_replaced']:.3g} for a record replaced."
        )
        for c, epsilon in sorted(promise["epsilon_if_colluding"].items()):
            if epsilon is None or epsilon > promise["epsilon"]:
                grown = "there is no bound" if epsilon is None else f"ε = {epsilon:.3g}"
                words.append(f"Against {c} silos that work together: {grown}.")
    budget = trust.get("budget")
    if budget:
        left = "no limit is set" if budget["left"] is None else f"{budget['left']:.3g} is left"
        words.append(f"In all private runs so far these rows have spent ε = {budget['spent']:.3g}; {left}.")
    code = trust["roster"]
    return {
        "mode": trust["mode"],
        "words": words,
        "roster": " ".join(code[at : at + 4] for at in range(0, len(code), 4)),
        "stages": (promise or {}).get("stages", []),
        "heads": [{"silo": silo, "head": head} for silo, head in trust["heads"].items() if head],
    }


def versions_of(versions: Mapping[str, Any]) -> dict[str, str]:
    """Of packages and extras, by name."""
    found = {name: number for name, number in versions.items() if isinstance(number, str)}
    return found | {f"extra {name}": number for name, number in versions.get("extras", {}).items() if number}


def _code(run: Run) -> str:
    """Python that does the run again, on files of the same names."""
    changed = [line for line in _settings(run.report["settings"]) if line["changed"] and line["name"] != "as_published"]
    given, *of_views = (
        [f"{line['name']}={line['value']!r}" for line in changed if line["of"] == of]
        for of in ("FMTC", "Graph", "Mixture")
    )
    kinds = {kind: ", ".join(values) for kind, values in zip(("Graph", "Mixture"), of_views, strict=True) if values}
    given += [f"{kind.lower()}={kind}({values})" for kind, values in kinds.items()]
    imports, read = _reading_code(run)
    calibrated = run.model is not None and any(one.calibration is not None for one in run.model._models.values())
    return "\n".join(
        [
            f"# fmtc {run.report['versions']['fmtc']}",
            f"from fmtc import {', '.join(('FMTC', *kinds))}",
            *imports,
            "",
            *read,
            f"model = FMTC({', '.join(given)})",
            "model.fit(X)",
            *(["model.calibrate(X)"] if calibrated else []),
            'model.save("model")',
            "",
        ]
    )


def _reading_code(run: Run) -> tuple[list[str], list[str]]:
    """Python that reads the rows of a run: what it imports, and what it does."""
    files = run.report.get("files", ())
    if not files:
        names = ", ".join(f"{name!r}: ..." for name in run.names)
        return [], [f"X = {{{names}}}  # the rows of each silo"]
    reading = Reading.from_dict(run.report["reading"])
    how = f", {reading!r}" if reading.said() else ""
    remark = "" if how else "  # and the columns that are not features: Reading(label_column=..., drop=[...])"
    return [f"from fmtc.tables import {'Reading, ' if how else ''}read_silos"], [
        "files = [  # as seen from the folder where the run was started",
        *(f"    {file!r}," for file in files),
        "]",
        f"silos = read_silos(files{how}){remark}",
        "X = {silo.name: silo.encoded for silo in silos}",
    ]
