"""Everything the page of a run says, as one dictionary: numbers and sentences, no markup."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal

from ..artifacts.files import check_form, check_schema, jsonable, read_json, read_tensors
from ..artifacts.models import ROUND, current_settings
from ..artifacts.runs import ATLAS, CONSENSUS_REPORT, REPORT, REPORT_FORMAT, of_one_silo, read_explanation
from ..describe import (
    FEW,
    Atlas,
    Cluster,
    Explanation,
    Histogram,
    empty_clusters_sentence,
    held_words,
    percents,
    percents_of,
)
from ..errors import FileError
from ..estimator import FMTC, load, load_atlas, read_settings
from ..protocol.base import LETTERS
from ..settings import Solver

Array = np.ndarray

SAME = 0.5  # cosine of their differences from which clusters of the same number count as alike
CLEAR = 0.01  # a smaller gain is none
# A silo hardly has a cluster of fewer than five of its rows, unless these are 5 % of them, or of less than 0.5 %, which
# is printed as "< 1 %". Chosen by us: five is what `explain` describes, and so few rows may have strayed there.
STRAY, TRACE = 0.05, 0.005


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
    folder = Path(folder)
    return dict(jsonable(_summary(_open(folder, _read_report(folder)))))


def _read_report(folder: Path) -> dict[str, Any]:
    file = folder / "report.json"
    if not file.is_file():
        raise FileError(f"{folder} is not the folder of a run: it has no report.json. Give the folder that a run wrote")
    report = read_json(file)
    leads = isinstance(report, dict) and report.get("kind") == "fmtc consensus report"
    check_schema(file, report, "fmtc consensus report" if leads else "fmtc report", REPORT_FORMAT)
    check_form(file, report, CONSENSUS_REPORT if leads else REPORT)
    settings = current_settings(report["settings"], report["schema"])
    known = inspect.signature(FMTC).parameters
    read_settings(file, {name: value for name, value in settings.items() if name in known})
    return {**report, "settings": settings}


@dataclass(frozen=True)
class _Run:
    folder: Path
    report: Mapping[str, Any]
    model: FMTC | None  # None at the coordinator
    history: Sequence[Mapping[str, Any]]
    explanation: Explanation | None
    atlas: Atlas | None  # None at the coordinator of an older version
    d: int
    k: int

    @property
    def details(self) -> Mapping[str, Any]:
        return self.report.get("details", {})

    @property
    def view(self) -> str:
        """The view that the run took; a run of an older version knew one only."""
        return str(self.report.get("view") or ("graph" if self.model is None else self.model.view_))

    @property
    def held(self) -> dict[str, str | None]:
        """Silos that the server has limited, whose cluster numbers are not common, and which model each kept."""
        lines = (self.report.get("trust") or {}).get("clients", ())
        return {line["silo"]: line["kept"] for line in lines if line["held"]}

    @property
    def names(self) -> list[str]:
        """Silos, those that were lost included."""
        if self.model is None:
            return sorted({*self.report["client_ids"], *self.report["missing"]})
        return [line["silo"] for line in self.report["silos"]] + list(self.report.get("missing", ()))


def _open(folder: Path, report: Mapping[str, Any]) -> _Run:
    if report["kind"] == "fmtc consensus report":
        file = folder / "consensus.safetensors"
        arrays, _ = read_tensors(file)
        Z, means = arrays.get("consensus"), arrays.get("means")
        if Z is not None and Z.ndim == 3:
            d, k, _ = Z.shape
        elif means is not None and means.ndim == 2:
            k, d = means.shape
        else:
            raise FileError(f"{file} is damaged: it holds no consensus")
        history = read_json(folder / "history.json")
        check_form(folder / "history.json", history, [ROUND])
        atlas = load_atlas(folder) if (folder / ATLAS).is_file() else None
        return _Run(folder, report, None, history, None, atlas, d, k)
    model = load(folder / "model")
    kept = read_explanation(folder)
    explanation = None if kept is None else Explanation.from_dict(kept)
    _check_parts(folder / "report.json", report, model, explanation)
    atlas = load_atlas(folder)
    return _Run(folder, report, model, report["history"], explanation, atlas, report["n_features"], model.n_concepts_)


def _check_parts(file: Path, report: Mapping[str, Any], model: FMTC, explanation: Explanation | None) -> None:
    """Refuse a report that does not fit its model, or whose parts do not fit each other."""
    details = report.get("details", {})
    silos = [line["silo"] for line in report["silos"]]
    shown, more = report["projection"], details.get("points", {})
    k = model.n_concepts_
    fits = {
        "silos are not those of the model": sorted(silos) == sorted(model.client_ids_),
        "cluster sizes do not fit": all(
            len(line["cluster_sizes"]) == k and sum(line["cluster_sizes"]) == line["rows"] > 0
            for line in report["silos"]
        ),
        "explanation is of other clusters": explanation is None
        or (len(explanation.clusters) == k and set(explanation.silos) == set(silos)),
        "points do not fit": set(more) <= set(shown) == set(silos)
        and all(
            len({len(column) for column in (*part.values(), *more.get(name, {}).values())}) == 1
            and part["row"] != [] and max(part["cluster"]) < k
            and ("map_x" in more.get(name, {})) == ("map_y" in more.get(name, {}))
            for name, part in shown.items()
        ),
        "probabilities do not fit": all(0 <= p <= 1 for part in more.values() for p in part["probability"]),
    }  # fmt: skip
    for what, is_right in fits.items():
        if not is_right:
            raise FileError(f"{file} is damaged: its {what}")


def _summary(run: _Run) -> dict[str, Any]:
    report = run.report
    own = run.model is not None and of_one_silo(report)
    sizes = [line["cluster_sizes"] for line in report["silos"]] if run.model is not None else [[1]]
    empty = empty_clusters_sentence(sizes, all_silos=not own)
    found, clusters = ([], []) if run.model is None else _clusters(run)
    silos = _silos(run, clusters)
    summary = {
        "title": run.folder.resolve().name,
        "n_clusters": run.k,
        "n_features": report.get("n_features", run.d),
        "n_rows": sum(line["rows"] or 0 for line in silos),
        "seconds": report["seconds"],
        "n_iter": report["n_iter"],
        "view": run.view,
        "converged": report["converged"],
        "stopped_because": report["stopped_because"],
        "tol": report["settings"]["tol"],
        "silos": silos,
        "found": found,
        "clusters": clusters,
        "explained": run.explanation is not None,
        "own_rows": own,
        "calibrated": run.view == "mixture",
        "history": run.history,
        "atlas": None if run.atlas is None else _atlas(run.atlas),
        "trust": _trust(report.get("trust")),
        "points": _points(run),
        "sent": report.get("sent", []),
        "letters": _letters(report.get("sent", [])),
        "seen": _seen(report.get("trust")),
        "bytes_up": sum(line["bytes_up"] for line in run.history) if run.history else None,
        "bytes_down": sum(line["bytes_down"] for line in run.history) if run.history else None,
        "settings": _settings(report["settings"]),
        "versions": _versions(report["versions"]),
        "notes": [note for note in report["notes"] if note not in (empty, _held_words(run))],  # those are findings
        "code": _code(run),
        "absent": _absent(run),
    }
    said = _findings(run, summary) + ([f"C{empty[1:]}."] if empty else [])
    return summary | {"words": said, "run_words": _run_words(run, summary)}


def _trust(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Who pulls whom, with the shade of each cell; None for one silo, or where it was not kept."""
    if found is None or len(found["clients"]) < 2:
        return None
    pulls = found["influence"]
    most = max((value for row in pulls or [] for value in row), default=0.0)
    rows = [
        [{"value": value, "shade": round(4 * value / most) if most > 0 else 0, "self": s == t}
         for t, value in enumerate(row)]
        for s, row in enumerate(pulls or [])
    ]  # fmt: skip
    return {**found, "cells": rows, "held": [line["silo"] for line in found["clients"] if line["held"]]}


def _atlas(atlas: Atlas) -> dict[str, Any]:
    """Concepts down, silos across: share, flag, cosine and shade of each cell; features of each concept."""
    most = max((share or 0.0 for one in atlas.concepts for share in one.presence.values()), default=0.0)
    shares = {cid: atlas.shares(cid) for cid in atlas.client_ids}
    rows = [
        {
            "concept": one.id,
            "name": one.name,
            "absent": not one.is_somewhere,
            "features": [{"what": f.what, "value": f.value, "weight": f.weight} for f in one.top_features],
            "cells": [
                {
                    "silo": cid,
                    "share": shares[cid][j],
                    "flag": one.flags.get(cid, ""),
                    "cosine": one.cosine.get(cid),
                    "shade": round(4 * (one.presence.get(cid) or 0.0) / most) if most > 0 else 0,
                }
                for cid in atlas.client_ids
            ],
        }
        for j, one in enumerate(atlas.concepts)
    ]
    counts = Counter(flag for one in atlas.concepts for flag in one.flags.values())
    return {
        "silos": list(atlas.client_ids),
        "rows": rows,
        "flags": dict(counts),
        "notes": list(atlas.notes),
        "words": _atlas_words(counts),
    }


def _atlas_words(counts: Mapping[str, int]) -> str:
    """How far silos agree on what their concepts are, in a sentence; empty where nothing was compared."""
    total = sum(counts.values())
    if not total:
        return ""
    if counts.get("matched", 0) == total:
        return f"All {total} clusters of single silos are like those of the same concept elsewhere."
    parts = [
        f"{counts.get('matched', 0)} of {total} clusters of single silos are like those of the same concept elsewhere"
    ]
    if counts.get("unsure"):
        parts.append(f"{counts['unsure']} may belong to another concept")
    if counts.get("unique"):
        parts.append(f"{counts['unique']} {'is' if counts['unique'] == 1 else 'are'} like nothing in the other silos")
    return f"{_and(parts)}."


# ------------------------------------------------------------------------------------------------------ silos


def _silos(run: _Run, clusters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row of the table for each silo; None where something is not known."""
    lines = {line["silo"]: line for line in run.report.get("silos", ())}
    unlike = Counter(cluster["silo"] for cluster in clusters if cluster["unlike"])
    missed = Counter(name for record in run.history for name in record["missing"])
    found = []
    for name in run.names:
        line, more = lines.get(name, {}), run.details.get("silos", {}).get(name, {})
        held = more.get("held_out") or {}
        sizes = line.get("cluster_sizes")
        known = held.get("score") is not None and held.get("alone") is not None
        row = {
            "silo": name,
            "lost": name in run.report.get("missing", ()),
            "rows": line.get("rows"),
            "clusters": None if sizes is None else int(np.count_nonzero(sizes)),
            "balance": None if sizes is None else _balance(sizes),
            "score": line.get("score"),
            "acc": line.get("acc"),
            "nmi": line.get("nmi"),
            "residual": more.get("residual"),
            "silhouette": more.get("silhouette"),
            "held_out_rows": held.get("rows"),
            "held_out": held.get("score"),
            "alone": held.get("alone"),
            "gain": held["score"] - held["alone"] if known else None,
            "gain_error": held.get("error") if known else None,
            "held_out_acc": held.get("acc"),
            "alone_acc": held.get("alone_acc"),
            "unlike": unlike[name] if run.explanation is not None and len(lines) > 1 else None,
            "shares": None if sizes is None else [n / max(1, sum(sizes)) for n in sizes],
            "rounds_missed": missed[name],
        }
        found.append(row | {"verdict": verdict(row)})
    return found


def _balance(sizes: Sequence[int]) -> float:
    """Entropy of the cluster sizes against that of equal ones: 1 where all are equal, 0 where one has all rows."""
    share = np.asarray(sizes, dtype=float)
    share = share[share > 0] / share.sum()
    return float(-(share * np.log(share)).sum() / np.log(len(sizes))) if len(sizes) > 1 else 1.0


# ---------------------------------------------------------------------------------------------------- clusters


def _clusters(run: _Run) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each number is over all silos, and a row for each cluster of each silo that has rows."""
    explained = run.explanation
    if explained is None:
        lines = run.report.get("silos", ())
        sizes = {line["silo"]: np.asarray(line["cluster_sizes"]) for line in lines}
        whole = np.sum(list(sizes.values()), axis=0) if sizes else np.zeros(0, dtype=int)
        over_all = [Cluster(j, int(n), float(n / max(whole.sum(), 1))) for j, n in enumerate(whole)]
        silos = {
            name: tuple(Cluster(j, int(n), float(n / of.sum())) for j, n in enumerate(of)) for name, of in sizes.items()
        }
        likeness: Mapping[str, Sequence[float | None]] = {name: [None] * len(of) for name, of in sizes.items()}
    else:
        over_all, silos, likeness = list(explained.clusters), explained.silos, explained.likeness
    common = [mine for name, mine in silos.items() if name not in run.held] or list(silos.values())
    counts = [[one.rows for one in mine] for mine in common]
    found = [
        _cluster(one) | {"percent": percent, "silos": sum(_has(of[one.cluster], sum(of)) for of in counts)}
        for one, percent in zip(over_all, percents_of(over_all), strict=True)
    ]
    clusters = [
        _cluster(one)
        | {
            "silo": name,
            "likeness": likeness[name][one.cluster],
            "unlike": _is_unlike(likeness[name][one.cluster]),
        }
        for name, mine in silos.items()
        for one in mine
        if one.rows
    ]
    return found, clusters


def _has(rows: int, of: int) -> bool:
    """Whether a silo of so many rows has a cluster, and not only a few rows that may have strayed there."""
    return rows > 0 and rows >= max(min(FEW, STRAY * of), TRACE * of)


def _is_unlike(likeness: float | None) -> bool:
    return likeness is not None and likeness < SAME


def _cluster(cluster: Cluster) -> dict[str, Any]:
    return {
        "cluster": cluster.cluster,
        "name": cluster.name,
        "words": cluster.words,
        "given": cluster.given,
        "rows": cluster.rows,
        "size": cluster.size,
        "share": cluster.share,
        "differences": [
            {
                "what": one.what,
                "amounts": one.values,
                "effect": one.effect,
                "kind": one.kind,
                "histogram": None if one.histogram is None else _histogram(one.histogram),
            }
            for one in cluster.differences
        ],
    }


def _histogram(histogram: Histogram) -> dict[str, Any]:
    """Counts, and what stands below them: first and last value, or the levels."""
    ends = [f"{value:.3g}" for value in (histogram.edges[0], histogram.edges[-1])] if histogram.edges else ["", ""]
    return {
        "inside": list(histogram.inside),
        "outside": list(histogram.outside),
        "low": ends[0],
        "high": ends[1],
        "levels": list(histogram.levels),
    }


# ------------------------------------------------------------------------------------------------------ points


def _points(run: _Run) -> dict[str, dict[str, Any]]:
    """Shown rows of each silo: number, cluster, places in the plane and on the map, probability."""
    more = run.details.get("points", {})
    return {name: {**shown, **more.get(name, {})} for name, shown in run.report.get("projection", {}).items()}


# ---------------------------------------------------------------------------------------------------- settings


def _settings(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every setting of FMTC and then of its solver, in the order of their parameters; whether it is not the default."""
    found = []
    for of, values, known in (
        ("FMTC", settings, FMTC().get_params(deep=False)),
        ("Solver", settings.get("solver", {}), Solver().get_params()),
    ):
        names = [name for name in inspect.signature(FMTC if of == "FMTC" else Solver).parameters if name in values]
        found += [
            {"of": of, "name": name, "value": values[name], "changed": values[name] != known[name]}
            for name in names
            if name != "solver"
        ]
    if settings["as_published"]:
        found.append({"of": "FMTC", "name": "as_published", "value": True, "changed": True})
    return found


def _letters(sent: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What the letters stand for that occur in the shapes of what was sent."""
    used = {letter for line in sent for letter in line["shape"].split(" × ")}
    return {letter: what for letter, what in LETTERS.items() if letter in used}


_MODES = {
    "alone": "One silo, by itself: nothing left it.",
    "clear": "No privacy: the server saw each silo's answers. No row left, but answers tell of rows.",
    "sums": "Privacy by sums: the server saw sums over all silos, and nothing of a single one. A secure sum hides "
    "whose record it is, not whether it is there.",
    "private": "Differential privacy: the server saw noisy sums over all silos.",
}


def _seen(trust: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Who saw what, what was promised and what can be compared; None for runs of older versions."""
    if trust is None or "mode" not in trust:
        return None
    words, promise = [_MODES[trust["mode"]]], trust.get("promise")
    if promise:
        words.append(
            f"(ε = {promise['epsilon']:g}, δ = {promise['delta']:g}) for one record added or removed, for everything "
            f"that left in this run; ε = {promise['epsilon_replaced']:.3g} for a record replaced."
        )
        worse = {int(c): float(e) for c, e in promise["epsilon_if_colluding"].items() if float(e) > promise["epsilon"]}
        for c, epsilon in sorted(worse.items()):
            grown = f"ε = {epsilon:.3g}" if epsilon < float("inf") else "there is no bound"
            words.append(f"Against {c} silos that work together: {grown}.")
    budget = trust.get("budget")
    if budget:
        left = "no limit is set" if budget["left"] is None else f"{budget['left']:.3g} is left"
        words.append(f"In all private runs so far these rows have spent ε = {budget['spent']:.3g}; {left}.")
    code = trust.get("roster", "")
    return {
        "mode": trust["mode"],
        "words": words,
        "roster": " ".join(code[at : at + 4] for at in range(0, len(code), 4)),
        "stages": (promise or {}).get("stages", []),
        "heads": [{"silo": silo, "head": head} for silo, head in trust.get("heads", {}).items() if head],
    }


def _versions(versions: Mapping[str, Any]) -> dict[str, str]:
    found = {name: number for name, number in versions.items() if isinstance(number, str)}
    return found | {f"extra {name}": number for name, number in versions.get("extras", {}).items() if number}


def _code(run: _Run) -> str:
    """Python that does the run again, on files of the same names."""
    changed = [line for line in _settings(run.report["settings"]) if line["changed"] and line["name"] != "as_published"]
    given, solver = (
        [f"{line['name']}={line['value']!r}" for line in changed if line["of"] == of] for of in ("FMTC", "Solver")
    )
    if solver:
        given.append(f"solver=Solver({', '.join(solver)})")
    files = run.report.get("files", ())
    from ..tables.reading import Reading

    reading = Reading.from_dict(run.report.get("reading") or run.details.get("reading") or {})
    how = f", {reading!r}" if reading.said() else ""
    remark = "" if how else "  # and the columns that are not features: Reading(label_column=..., drop=[...])"
    imports = [f"from fmtc import FMTC{', Solver' if solver else ''}"]
    if files:
        read = [
            "files = [  # as seen from the folder where the run was started",
            *(f"    {file!r}," for file in files),
            "]",
            f"silos = read_silos(files{how}){remark}",
            "X = {silo.name: silo.encoded for silo in silos}",
        ]
        imports.append(f"from fmtc.tables import {'Reading, ' if how else ''}read_silos")
    else:
        names = ", ".join(f"{name!r}: ..." for name in run.names)
        read = [f"X = {{{names}}}  # the rows of each silo"]
    return "\n".join(
        [
            f"# fmtc {run.report['versions']['fmtc']}",
            *imports,
            "",
            *read,
            f"model = FMTC({', '.join(given)})",
            "model.fit(X)",
            'model.save("model")',
            "",
        ]
    )


# ------------------------------------------------------------------------------------------------------- words


def _findings(run: _Run, summary: Mapping[str, Any]) -> list[str]:
    """What was found, in a few sentences."""
    silos = summary["silos"]
    m, rows = len(silos), summary["n_rows"]
    of = f" with {_count(rows, 'row')}" if rows else ""
    said = [
        f"{_count(m, 'silo')}{of} of {_count(summary['n_features'], 'column')} "
        f"{'were' if m > 1 else 'was'} divided into {_count(run.k, 'cluster')}."
    ]
    if m > 1 and summary["found"]:
        said += _share_words(summary, run.held)
    if run.held:
        said.append(_held_words(run))
    if any(line["gain"] is not None for line in silos):
        said.append(_gain_words(silos))
    classed = [line for line in silos if line["held_out_acc"] is not None and line["alone_acc"] is not None]
    if classed:
        together, alone = (
            100 * float(np.mean([line[name] for line in classed])) for name in ("held_out_acc", "alone_acc")
        )
        said.append(
            f"By the known classes, {together:.1f} % of the held-out rows are in the right cluster if the silos learn "
            f"together, {alone:.1f} % if each learns alone."
        )
    lost = [line["silo"] for line in silos if line["lost"]]
    if lost:
        were, have = ("was", "has") if len(lost) == 1 else ("were", "have")
        said.append(f"{_and(lost)} {were} lost during the run and {have} no model.")
    return said


def _held_words(run: _Run) -> str:
    return held_words(list(run.held), run.held)


def _share_words(summary: Mapping[str, Any], held: Collection[str] = ()) -> list[str]:
    """Where silos differ most in their shares, which clusters some lack, and whether numbers mean the same.

    Nothing of silos that the server has limited: their numbers are their own.
    """
    lines = [line for line in summary["silos"] if line["shares"] is not None and line["silo"] not in held]
    said = []
    if len(lines) > 1 and len(summary["found"]) > 1:
        shares = np.array([line["shares"] for line in lines])
        common = np.flatnonzero([one["silos"] == len(lines) for one in summary["found"]])  # who lacks some: see below
        spread = np.ptp(shares, axis=0)
        j = int(common[spread[common].argmax()]) if len(common) else None
        if j is not None and spread[j] >= 0.1:
            high, low = int(shares[:, j].argmax()), int(shares[:, j].argmin())
            name = f" ({summary['found'][j]['name']})" if summary["found"][j]["name"] else ""
            most, least = (percents(shares[t])[j] for t in (high, low))
            said.append(
                f"Shares differ most for cluster {j}{name}: it has {most} of the rows of {lines[high]['silo']} and "
                f"{least} of those of {lines[low]['silo']}."
            )
        elif j is not None:
            which = "each cluster" if len(common) == shares.shape[1] else "the clusters that all of them have"
            said.append(f"The silos have nearly the same shares of {which}.")
    sizes = {line["silo"]: [round(share * line["rows"]) for share in line["shares"]] for line in lines}
    absent = [one for one in summary["found"] if one["silos"] < len(lines)]
    absent = [one for one in absent if any(of[one["cluster"]] for of in sizes.values())]  # empty ones are said apart
    if len(absent) > 4:
        counts = sorted(sum(_has(n, sum(of)) for n in of) for of in sizes.values())
        few, many = counts[0], counts[-1]
        each = f"{few} of the" if few == many else f"{few} to {many} of the"
        everywhere = len(summary["found"]) - len(absent)
        which = f"{everywhere} of them {'is' if everywhere == 1 else 'are'}" if everywhere else "none of them is"
        said.append(f"Each silo has {each} {len(summary['found'])} clusters; {which} in all silos.")
    elif absent:
        said += [_lacking_words(one, sizes) for one in absent]
    compared = [one for one in summary["clusters"] if one["likeness"] is not None]
    unlike = [one for one in compared if one["unlike"]]
    if compared and not unlike:
        every = "every other silo" if held else "every silo"
        said.append(f"By their columns, the same number means the same cluster in {every}.")
    elif len(unlike) > 2:
        said.append(
            f"{len(unlike)} of {len(compared)} clusters of single silos are unlike the same number in the other silos; "
            "the table of clusters marks them."
        )
    elif unlike:
        where = [f"cluster {one['cluster']} of {one['silo']}" for one in unlike]
        is_are = "is" if len(unlike) == 1 else "are"
        said.append(f"C{_and(where)[1:]} {is_are} unlike the same number in the other silos.")
    return said


def _lacking_words(found: Mapping[str, Any], sizes: Mapping[str, Sequence[int]]) -> str:
    """Which silos have no rows of a cluster, and which hardly any; more than three of them are counted."""
    j, name = found["cluster"], f" ({found['name']})" if found["name"] else ""
    none = [silo for silo, of in sizes.items() if not of[j]]
    few = [
        f"{silo} ({Cluster(j, of[j], 0.0).size} of {sum(of):,})"
        for silo, of in sizes.items()
        if of[j] and not _has(of[j], sum(of))
    ]
    parts = [
        f"{how} rows in {_and(some) if len(some) <= 3 else f'{len(some)} of {len(sizes)} silos'}"
        for how, some in (("no", none), ("hardly any", few))
        if some
    ]
    return f"Cluster {j}{name} has {_and(parts)}."


def _run_words(run: _Run, summary: Mapping[str, Any]) -> list[str]:
    """How the run went, in a few sentences."""
    report, m = run.report, len(summary["silos"])
    why = report.get("view_reason")
    viewed = f"The {run.view} view was {f'chosen: {why}' if why else 'used'}."
    if report.get("coupling") == "average":
        viewed += " Rows are texts: all silos share one projection."
    rounds, time = f"after {_count(report['n_iter'], 'round')}", f"({report['seconds']:.1f} s)"
    if report["converged"]:
        said = [viewed, f"The run converged {rounds} {time}."]
    elif run.history:
        said = [viewed, f"The run stopped {rounds} {time}, before it converged: {report['stopped_because']}."]
    else:
        said = [viewed, f"The run ended {rounds} {time}."]
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
    together, alone = (float(np.mean([line[name] for line in scored])) for name in ("held_out", "alone"))
    up, down = ([line["silo"] for line in scored if line["verdict"] == which] for which in ("up", "down"))
    same = len(scored) - len(up) - len(down)
    parts = [
        f"{_some(up, len(scored))} clearly better off together" if up else "",
        f"{_some(down, len(scored))} better off alone" if down else "",
        f"for {_count(same, 'silo')} there is no clear difference" if same < len(scored) and same else "",
        "no clear difference for any silo" if same == len(scored) else "",
    ]
    return (
        f"Rows that the models did not see share their cluster with {100 * together:.1f} % of their neighbours if the "
        f"silos learn together and with {100 * alone:.1f} % if each learns alone: "
        f"{_and([part for part in parts if part])}."
    )


def _some(names: Sequence[str], of: int) -> str:
    """Such as: silo3 is; a, b and c are; 7 of 8 silos are."""
    if len(names) == of > 1:
        return f"all {of} silos are"
    return (
        f"{len(names)} of {of} silos are" if len(names) > 3 else f"{_and(names)} {'is' if len(names) == 1 else 'are'}"
    )


def _absent(run: _Run) -> dict[str, str]:
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
    if "sent" not in run.report:
        absent["sent"] = "The run was written by an older version of fmtc, which did not record what left."
    elif not run.report["sent"]:
        absent["sent"] = "The run recorded nothing that left."
    if run.model is not None and run.explanation is None:
        absent["explanation"] = (
            "The run was written by an older version of fmtc, which did not keep what sets the clusters apart; fit "
            "again to see it."
        )
    elif run.explanation is not None:
        held = held_words(list(run.held)) if run.held else ""  # the findings say it
        if notes := [note for note in run.explanation.notes if note != held]:
            absent["explanation"] = " ".join(notes)
    return absent


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
