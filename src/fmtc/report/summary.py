"""Everything the page of a run says, as one dictionary: numbers and sentences, no markup."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal
from scipy.optimize import linear_sum_assignment

from ..artifacts.files import check_form, check_schema, jsonable, read_json, read_tensors
from ..artifacts.models import ROUND, current_settings
from ..artifacts.runs import CONSENSUS_REPORT, REPORT, REPORT_FORMAT
from ..errors import FileError
from ..estimator import FMTC, load, read_settings
from ..protocol.base import LETTERS
from ..settings import Solver

Array = np.ndarray

SAME = 0.5  # cosine of two signatures from which clusters of two silos may be one concept
CLEAR = 0.01  # a smaller gain is none
TOP = 8  # features listed for each cluster


def summarise(folder: str | Path) -> dict[str, Any]:
    """Everything that can be said about a run, from the folder it left.

    Parameters
    ----------
    folder : path
        What `fmtc fit`, `fmtc federate local` or `fmtc join` wrote, or `fmtc coordinate`, which has no rows or models.
        What needs the rows is there where the run was asked for it (`fmtc fit --report`).

    Returns
    -------
    dict
        In what JSON knows. `title` and `words` (sentences); `silos`, `clusters`, `concepts`, `history` and `sent`
        (lists of rows); `points` by silo; `settings`, `versions`, `notes`, `code`; `absent`, why something is missing.

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
    '2 silos with 60 rows of 4 columns were divided into 2 clusters each.'
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
    d: int
    k: int

    @property
    def details(self) -> Mapping[str, Any]:
        return self.report.get("details", {})

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
        Z = arrays.get("consensus")
        if Z is None or Z.ndim != 3:
            raise FileError(f"{file} is damaged: it holds no consensus")
        history = read_json(folder / "history.json")
        check_form(folder / "history.json", history, [ROUND])
        d, k, _ = Z.shape
        return _Run(folder, report, None, history, d, k)
    model = load(folder / "model")
    W = next(iter(model.projections_.values()))
    d, k = W.shape
    _check_parts(folder / "report.json", report, model, d)
    return _Run(folder, report, model, report["history"], d, k)


def _check_parts(file: Path, report: Mapping[str, Any], model: FMTC, d: int) -> None:
    """Refuse a report that does not fit its model, or whose parts do not fit each other."""
    details = report.get("details", {})
    silos = [line["silo"] for line in report["silos"]]
    shown, more = report["projection"], details.get("points", {})
    scale = details.get("feature_scale")
    k = model.n_clusters
    fits = {
        "silos are not those of the model": sorted(silos) == sorted(model.client_ids_),
        "cluster sizes do not fit": all(
            len(line["cluster_sizes"]) == k and sum(line["cluster_sizes"]) == line["rows"] > 0
            for line in report["silos"]
        ),
        "feature scale does not fit": scale is None or len(scale) == d,
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
    clusters, concepts = ([], []) if run.model is None else _clusters(run, run.model)
    silos = _silos(run, clusters)
    summary = {
        "title": run.folder.resolve().name,
        "n_clusters": run.k,
        "n_features": report.get("n_features", run.d),
        "n_rows": sum(line["rows"] or 0 for line in silos),
        "seconds": report["seconds"],
        "n_iter": report["n_iter"],
        "converged": report["converged"],
        "stopped_because": report["stopped_because"],
        "tol": report["settings"]["tol"],
        "silos": silos,
        "clusters": clusters,
        "concepts": concepts,
        "same": SAME,
        "history": run.history,
        "points": _points(run),
        "sent": report.get("sent", []),
        "letters": LETTERS,
        "bytes_up": sum(line["bytes_up"] for line in run.history) if run.history else None,
        "bytes_down": sum(line["bytes_down"] for line in run.history) if run.history else None,
        "settings": _settings(report["settings"]),
        "versions": _versions(report["versions"]),
        "notes": report["notes"],
        "code": _code(run),
        "absent": _absent(run),
    }
    return summary | {"words": _words(run, summary)}


# ------------------------------------------------------------------------------------------------------ silos


def _silos(run: _Run, clusters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row of the table for each silo; None where something is not known."""
    lines = {line["silo"]: line for line in run.report.get("silos", ())}
    alone = Counter(cluster["silo"] for cluster in clusters if cluster["unique"])
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
            "unique": alone[name] if run.model is not None and len(run.names) > 1 else None,
            "rounds_missed": missed[name],
        }
        found.append(row | {"verdict": verdict(row)})
    return found


def _balance(sizes: Sequence[int]) -> float:
    """Entropy of the cluster sizes against that of equal ones: 1 where all are equal, 0 where one has all rows."""
    share = np.asarray(sizes, dtype=float)
    share = share[share > 0] / share.sum()
    return float(-(share * np.log(share)).sum() / np.log(len(sizes))) if len(sizes) > 1 else 1.0


# ----------------------------------------------------------------------------------------- clusters and concepts


def signatures(model: FMTC, cid: str, filled: Array, feature_scale: Array | None = None) -> Array:
    """What each cluster stands for, seen from the features: W (c - mean of the filled c), of unit length; (k, d).

    No rotation of the client's frame changes it. Features count per standard deviation where that is known, so that
    their units do not decide. An empty cluster, and one that is all there is, has zeros.
    """
    client = model._models[cid]
    C = client.centers.astype(np.float64)
    C = np.where(filled[:, None], C - C[filled].mean(axis=0), 0.0)
    units = feature_scale if client.stretch is None else client.stretch
    S = C @ client.W.T.astype(np.float64) * (1.0 if units is None else units)
    norm = np.linalg.norm(S, axis=1, keepdims=True)
    return np.divide(S, norm, out=np.zeros_like(S), where=norm > 1e-12 * max(float(norm.max()), 1e-300))


def match_concepts(signatures: Sequence[Array], same: float = SAME) -> list[Array]:
    """Which clusters of different silos are the same concept, where not every cluster needs a partner.

    One silo after the other is assigned to the concepts found so far, each to at most one of its clusters, so that the
    sum of cosines is largest; a cluster for which no concept is left with a cosine above `same` stays without a
    partner and begins a concept of its own. Then every silo in turn is taken out and assigned again, until nothing
    changes.

    Parameters
    ----------
    signatures : sequence of m arrays of shape (k_t, d)
        Of unit length; a row of zeros has no concept.
    same : float
        Cosine from which clusters may be the same.

    Returns
    -------
    list of m int arrays of shape (k_t,)
        Number of the concept of each cluster, those of most silos first; -1 for a row of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.report.summary import match_concepts
    >>> x, y, z = np.eye(3)
    >>> [concept.tolist() for concept in match_concepts([np.stack([x, y]), np.stack([z, x])])]
    [[0, 1], [2, 0]]
    """
    of = [np.full(len(S), -1) for S in signatures]
    groups: dict[int, dict[int, Array]] = {}  # concept -> silo -> signature of its cluster
    for _ in range(10):
        before = [place.copy() for place in of]
        for t, S in enumerate(signatures):
            for members in groups.values():
                members.pop(t, None)
            groups = {number: members for number, members in groups.items() if members}
            real = np.flatnonzero(S.any(axis=1))
            means = [np.mean(list(members.values()), axis=0) for members in groups.values()]
            cosine = S[real] @ np.stack(means).T if means else np.zeros((len(real), 0))
            benefit = np.hstack([cosine, np.full((len(real), len(real)), same)])
            numbers, fresh = list(groups), max((int(place.max(initial=-1)) for place in of), default=-1) + 1
            for i, j in zip(*linear_sum_assignment(-benefit), strict=True):
                own = of[t][real[i]]
                if j < len(numbers):
                    number = numbers[j]
                elif own >= 0 and own not in groups:
                    number = int(own)  # still a concept of its own: the same number
                else:
                    number, fresh = fresh, fresh + 1
                of[t][real[i]] = number
                groups.setdefault(number, {})[t] = S[real[i]]
        if all(np.array_equal(a, b) for a, b in zip(before, of, strict=True)):
            break
    order = sorted(groups, key=lambda number: (-len(groups[number]), number))
    rank = {number: place for place, number in enumerate(order)} | {-1: -1}
    return [np.array([rank[int(number)] for number in numbers], dtype=int) for numbers in of]


def _clusters(run: _Run, model: FMTC) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A row for each cluster of each silo, and one for each concept."""
    lines = run.report["silos"]
    scale = run.details.get("feature_scale")
    scale = None if scale is None else np.asarray(scale)
    sizes = [np.asarray(line["cluster_sizes"]) for line in lines]
    S = [signatures(model, line["silo"], n > 0, scale) for line, n in zip(lines, sizes, strict=True)]
    concept_of = match_concepts(S)
    members: dict[int, list[dict[str, Any]]] = {}
    clusters = []
    for line, unit, n, concept in zip(lines, S, sizes, concept_of, strict=True):
        names = _feature_names(model, line["silo"])
        for j in np.flatnonzero(n > 0):
            cluster = {
                "silo": line["silo"],
                "cluster": int(j),
                "rows": int(n[j]),
                "share": float(n[j] / n.sum()),
                "concept": int(concept[j]) if concept[j] >= 0 else None,
                "name": letters(int(concept[j])) if concept[j] >= 0 else None,
                "features": _top(unit[j], names),
            }
            clusters.append(cluster)
            if concept[j] >= 0:
                members.setdefault(int(concept[j]), []).append(cluster | {"signature": unit[j]})
    concepts = []
    for number, group in sorted(members.items()):
        mean = np.mean([one["signature"] for one in group], axis=0)
        mean /= np.linalg.norm(mean)
        fit = {one["silo"]: float(one["signature"] @ mean) for one in group}
        concepts.append(
            {
                "concept": number,
                "name": letters(number),
                "silos": {one["silo"]: {"cluster": one["cluster"], "rows": one["rows"], "fit": fit[one["silo"]]}
                          for one in group},
                "rows": sum(one["rows"] for one in group),
                "likeness": _likeness([one["signature"] for one in group]),
                "features": _top(mean, _feature_names(model, group[0]["silo"])),
            }
        )  # fmt: skip
    for cluster in clusters:
        number = cluster["concept"]
        cluster["unique"] = len(lines) > 1 and (number is None or len(members[number]) == 1)
    return clusters, concepts


def letters(number: int) -> str:
    """Name of a concept: A to Z, then AA, AB and so on."""
    first, last = divmod(number, 26)
    return (letters(first - 1) if first else "") + chr(ord("A") + last)


def _likeness(units: Sequence[Array]) -> float | None:
    """Mean cosine over all pairs of clusters of a concept; None where there is only one."""
    m = len(units)
    return float((np.square(np.sum(units, axis=0)).sum() - m) / (m * (m - 1))) if m > 1 else None


def _feature_names(model: FMTC, cid: str) -> list[str]:
    keep = model._models[cid].keep
    columns = np.arange(model.n_features_in_) if keep is None else keep
    names = getattr(model, "feature_names_in_", None)
    return [f"column {j}" if names is None else str(names[j]) for j in columns]


def _top(signature: Array, names: Sequence[str]) -> list[dict[str, Any]]:
    order = np.argsort(-np.abs(signature), kind="stable")[:TOP]
    return [{"feature": names[j], "weight": float(signature[j])} for j in order if signature[j]]


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
    reading = run.details.get("reading", {})
    files = run.report.get("files") or [f"{name}.csv" for name in run.names]
    words = [f"    {file!r}," for file in files]
    options = "".join(f", {name}={value!r}" for name, value in reading.items() if value)
    remark = "" if reading else "  # and the columns that are not features: label_column=..., id_column=..., drop=[...]"
    return "\n".join(
        [
            f"# fmtc {run.report['versions']['fmtc']}",
            f"from fmtc import FMTC{', Solver' if solver else ''}",
            "from fmtc.tables import read_silos",
            "",
            "files = [",
            *words,
            "]",
            f"silos = read_silos(files{options}){remark}",
            f"model = FMTC({', '.join(given)})",
            "model.fit({silo.name: silo.X for silo in silos})",
            'model.save("model")',
            "",
        ]
    )


# ------------------------------------------------------------------------------------------------------- words


def _words(run: _Run, summary: Mapping[str, Any]) -> list[str]:
    """The run in a few sentences."""
    report, silos = run.report, summary["silos"]
    m, rows = len(silos), summary["n_rows"]
    of = f" with {_count(rows, 'row')}" if rows else ""
    each = " each" if m > 1 else ""
    said = [
        f"{_count(m, 'silo')}{of} of {_count(summary['n_features'], 'column')} "
        f"{'were' if m > 1 else 'was'} divided into {_count(run.k, 'cluster')}{each}."
    ]
    rounds = f"after {_count(report['n_iter'], 'round')}"
    if report["converged"]:
        said.append(f"The run converged {rounds} ({report['seconds']:.1f} s).")
    elif run.history:
        said.append(f"The run stopped {rounds} ({report['seconds']:.1f} s), before it converged.")
    else:
        said.append(f"The run ended {rounds} ({report['seconds']:.1f} s).")
    if m > 1 and summary["concepts"]:
        said.append(_concept_words(summary["concepts"], [line["silo"] for line in silos if not line["lost"]]))
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
    if summary["sent"]:
        size = decimal(sum(line["bytes"] for line in summary["sent"]))
        said.append(
            f"The {'silos' if m > 1 else 'silo'} sent {size} in all; no row left {'a silo' if m > 1 else 'it'}."
        )
    return said


def _concept_words(concepts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    everywhere = sum(len(concept["silos"]) == len(names) for concept in concepts)
    single = sum(len(concept["silos"]) == 1 for concept in concepts)
    some = len(concepts) - everywhere - single
    counts = {"found in every silo": everywhere, "found in some": some, "found in one silo only": single}
    parts = [f"{_count(count, 'concept')} {where}" for where, count in counts.items() if count]
    return f"Compared by their features, the clusters form {_and(parts)}."


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
        f"On held-out rows, the score is {together:.3f} if the silos learn together and {alone:.3f} "
        f"if each learns alone: {_and([part for part in parts if part])}."
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
            "Silhouette, residual, held-out scores and the map need the rows; `fmtc fit --report` keeps them."
        )
    if not run.history:
        absent["history"] = "Only the coordinator of a federation sees the rounds; its own page shows them."
    if "sent" not in run.report:
        absent["sent"] = "The run was written by an older version of fmtc, which did not record what left."
    if run.model is not None and hasattr(run.model, "text_recipe_"):
        absent["names"] = "The features are words under a keyed hash: their columns have numbers, not names."
    elif run.model is not None and not hasattr(run.model, "feature_names_in_"):
        absent["names"] = "The files had no column names: features are counted from 0."
    return absent


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
