"""The folder of a run: labels, model, history and report."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from ..errors import FileError
from ..schema import FILE as SCHEMA_FILE
from .files import (
    COUNT,
    NUMBER,
    Kind,
    check_form,
    file_names,
    form_of,
    jsonable,
    new_folder,
    read_json,
    write_file,
    write_json,
)
from .labels import as_csv, label_table, name_labels
from .models import MODEL_FILE

if TYPE_CHECKING:
    import polars as pl

    from ..describe import Atlas, Explanation
    from ..describe.documents import Document
    from ..describe.features import Lookup
    from ..estimator import FMTC
    from ..runtime.driver import RunRecord
    from ..tables.reading import Reading
    from ..tables.silos import Silo

Array = np.ndarray

OF_SILOS, OF_COORDINATOR = Kind("fmtc report", 2), Kind("fmtc consensus report", 2)
EXPLANATION, ATLAS = "explanation.json", "atlas.json"
KEPT = {EXPLANATION: Kind("fmtc explanation", 1), ATLAS: Kind("fmtc atlas", 2, oldest=1)}
BEFORE = {"concepts": "clusters", "client_ids": "silos"}  # what parts of atlas.json were called in format 1
TABLES = "tables"  # folder of a run: the tables that were given, with the cluster of each row
OUTBOX = "outbox"  # folder of a run: what left each client
OWN_ROWS = "Rows and shares are those of this silo alone. What the other silos of the run have is not known here."
SCORES = ("score", "acc", "nmi", "ri", "ari")
PROJECTED_ROWS = 500  # of each silo, in report.json; more if a page is written

TRUST = {  # who pulls whom
    "clients": [{"silo": str, "capped": COUNT, "odd": COUNT, "affinity": NUMBER, "held": bool, "kept": (str, None)}],
    "influence": ([[float]], None),
    "rounds": COUNT,
}
SEEN = {  # who saw what, what was promised, and what to compare
    "mode": str,
    "roster": str,
    "promise": (
        {
            "epsilon": float, "delta": float, "epsilon_replaced": float, "epsilon_if_colluding": {str: NUMBER},
            "stages": [{"name": str, "share": float, "sensitivity": float, "sigma": float}],
        },
        None,
    ),
    "heads": {str: str},
    "budget?": {"spent": float, "left": NUMBER},
}  # fmt: skip
# What a reader relies on in report.json, in the language of `check_form`: for any run, for a run with models, and for
# the coordinator's. "details" is the result of `fmtc.report.study`.
ANY_REPORT = {
    "versions": {"fmtc": str, "extras?": {str: (str, None)}},
    "settings": {
        "n_clusters": (COUNT, {str: COUNT}), "n_concepts?": (COUNT, None), "beta": float, "tol": float,
        "scale": str, "as_published": bool, "solver?": dict,
    },
    "sent": [
        {"phase": str, "field": str, "what": str, "tells": str, "shape": str, "times": COUNT, "bytes": COUNT}
    ],
    "n_iter": COUNT,
    "view?": str,
    "view_reason?": str,
    "scaled?": bool,
    "coupling?": (str, None),
    "converged": (bool, None),
    "stopped_because": str,
    "seconds": float,
    "notes": [str],
    "missing?": [str],
    "trust": TRUST | SEEN,
}  # fmt: skip
READING = {  # "client_column", and None for what was not said: version 0.1
    "silo_column?": str, "client_column?": (str, None), "id_column?": (str, None), "header?": (bool, None),
    "obsm?": (str, None),
}  # fmt: skip
REPORT = ANY_REPORT | {
    "files": [str],
    "n_features": COUNT,
    "silos": [{"silo": str, "rows": COUNT, "cluster_sizes": [COUNT], "score": NUMBER, "acc?": NUMBER, "nmi?": NUMBER}],
    "reading": READING,
    "projection": {str: {"row": [range(2**32)], "x": [float], "y": [float], "cluster": [range(2**16)]}},
    "details?": {
        "silos": {
            str: {
                "residual?": NUMBER,
                "silhouette": NUMBER,
                "held_out": (
                    {"rows": COUNT, "score": NUMBER, "alone": NUMBER, "error": NUMBER, "acc": NUMBER,
                     "alone_acc": NUMBER},
                    None,
                ),
            }
        },
        "points": {str: {"probability": [float], "map_x?": [float], "map_y?": [float]}},
    },
}  # fmt: skip
CONSENSUS_REPORT = ANY_REPORT | {"client_ids": [str], "missing": [str], "n_features?": COUNT}

EXTRAS = {
    "plot": "matplotlib",
    "report": "jinja2",
    "onnx": "onnx",
    "federation": "nvflare",
    "knn": "faiss-cpu",
    "gpu": "torch",
    "excel": "openpyxl",
    "anndata": "h5py",
}


@dataclass(frozen=True, eq=False)
class SiloResult:
    """Result of a run for one silo."""

    silo: Silo
    labels: Array  # n
    probabilities: Array  # n x k
    line: dict[str, Any]  # in the report
    shown: Array  # positions of the rows that are shown
    view: Array  # the rows that are shown, where clusters are apart; see `ClientModel.plotted`


def results(
    model: FMTC, silos: Sequence[Silo], shown: int = PROJECTED_ROWS, *, labels: Sequence[Array] | None = None
) -> list[SiloResult]:
    """Labels, probabilities and scores of each silo of a fitted model.

    Parameters
    ----------
    model : FMTC
        Fitted; its `labels_` are those of all rows of `silos`, in this order.
    silos : sequence of Silo
        The rows it was fitted on.
    shown : int
        Largest number of rows of each silo to show.
    labels : sequence of arrays, optional
        Clusters of the rows of each silo, if they are not `labels_`.

    Returns
    -------
    list of SiloResult
        In the order of `silos`.
    """
    from ..metrics import clustering_scores

    found = []
    if labels is None:
        labels = np.split(model.labels_, np.cumsum([silo.X.shape[0] for silo in silos])[:-1])
    rng = np.random.default_rng(model.random_state)
    for silo, mine in zip(silos, labels, strict=True):
        line: dict[str, Any] = {
            "silo": silo.name,
            "rows": len(mine),
            "cluster_sizes": np.bincount(mine, minlength=model.n_clusters_),
            "score": model.score(silo.X, silos=silo.name),
        }
        if silo.labels is not None:
            known = [row for row, label in enumerate(silo.labels) if label is not None]
            line["labelled_rows"] = len(known)
            if known:
                truth = [silo.labels[row] for row in known]
                line |= clustering_scores(truth, mine[known])
        rows = np.sort(rng.permutation(len(mine))[:shown])
        view = model._models[silo.name].plotted(silo.X[rows])
        found.append(SiloResult(silo, mine, model.predict_proba(silo.X, silos=silo.name), line, rows, view))
    return [replace(one, view=view) for one, view in zip(found, same_width([one.view for one in found]), strict=True)]


def same_width(views: Sequence[Array]) -> list[Array]:
    """Rows to be shown together; a silo that kept a model of its own may have fewer columns than the others."""
    widest = max(view.shape[1] for view in views)
    return [np.pad(view, ((0, 0), (0, widest - view.shape[1]))) for view in views]


def report(
    model: FMTC,
    results: Sequence[SiloResult],
    *,
    files: Iterable[Path],
    as_published: bool,
    seconds: float,
    notes: Sequence[str],
    reading: Reading | None = None,
) -> dict[str, Any]:
    """Content of report.json, without the projection, which `write_run` adds.

    Parameters
    ----------
    model : FMTC
        Fitted.
    results : sequence of SiloResult
        Of `results(model, silos)`.
    files : paths
        The files that were read, as they were given.
    as_published : bool
        Whether the paper's settings were the defaults.
    seconds : float
        Duration of the run.
    notes : sequence of str
        Notes and warnings of the run.
    reading : Reading, optional
        How the files were read, for the code that does it again.

    Returns
    -------
    dict
        Ready for `write_run`; the lines of the silos are in "silos", in "mean" that of each score over the silos that
        have it.
    """
    shared, alone = model._fitted.shared, len(model.silos_) == 1 and model.privacy is None
    lines = [result.line for result in results]
    known = {name: [line[name] for line in lines if name in line] for name in SCORES}
    return {
        **OF_SILOS.head,
        "versions": versions(),
        "files": [file.as_posix() for file in files],
        "reading": {} if reading is None else reading.to_dict(),
        "settings": model._params() | {"as_published": as_published},
        "n_features": model.n_features_in_,
        "feature_names": results[0].silo.feature_names,
        "n_iter": model.n_iter_,
        "view": model.view_,
        "view_reason": model.view_reason_,
        "scaled": any(one.rescales for one in model._models.values()),
        "coupling": shared and shared.coupling(model),
        "converged": model.converged_,
        "stopped_because": model.run_.stopped_because,
        "seconds": seconds,
        "notes": notes,
        "sent": model._sent(),
        "trust": trust(model.run_, model.silos_, "alone" if alone else mode_of(model)),
        "silos": lines,
        "mean": {name: float(np.mean(values)) for name, values in known.items() if values},
    }


def mode_of(model: FMTC) -> str:
    """The least that hides a silo's answers in a run of several: clear, sums or private."""
    return "clear" if model.privacy is None else "sums" if model.privacy == "sums" else "private"


def of_one_silo(report: Mapping[str, Any]) -> bool:
    """Whether a report is of one silo of several, so that all that it counts are rows of this silo."""
    return "joined" in report or (len(report["silos"]) == 1 and report["trust"]["mode"] != "alone")


def trust(went: RunRecord, silos: Sequence[str], mode: str) -> dict[str, Any]:
    """Who saw what, what was promised, what to compare, and who pulls whom: the part "trust" of report.json.

    Parameters
    ----------
    went : RunRecord
    silos : sequence of str
    mode : str
        The least that hides a silo's answers: alone (there is no other silo), clear, sums or private.

    Returns
    -------
    dict
        With `roster`, the code of who took part; `heads`, the hash of each silo's ledger; `clients`, who was capped or
        weighed down at any time, and which model each kept, where that is known here.
    """
    rounds, lines = went.rounds, {cid: ledger.lines() for cid, ledger in went.ledgers.items()}
    affinity = next((record.affinity for record in reversed(rounds) if record.affinity), {})
    ids = silos if went.influence is None else went.client_ids
    return {
        "mode": mode,
        "roster": went.roster,
        "promise": went.promise,
        "heads": {cid: some[-1]["hash"] if some else "" for cid, some in lines.items()},
        "clients": [
            {
                "silo": cid, "capped": sum(cid in record.capped for record in rounds),
                "odd": sum(cid in record.odd for record in rounds), "affinity": affinity.get(cid),
                "held": cid in went.held, "kept": went.choices.get(cid),
            }
            for cid in [*ids, *(cid for cid in went.held if cid not in ids)]
        ],
        "influence": None if went.influence is None else went.influence.round(6).tolist(),
        "rounds": len(rounds),
    }  # fmt: skip


def write_run(
    out: Path,
    force: bool,
    model: FMTC,
    results: Sequence[SiloResult],
    report: Mapping[str, Any],
    tables: Mapping[str, pl.DataFrame] | None = None,
    *,
    words: Lookup | None = None,
) -> None:
    """Write the folder of a run, completely or not at all, readable by its owner only.

    The model gets the column names of the silos, and schema.toml says what they hold. tables/ holds `tables`, if any.
    report.json holds 2-D projections of the rows of each silo that are shown, for a plot; explanation.json says what
    the clusters are. Unlike model/, both are derived from rows and should stay where they are. atlas.json is made of
    the model, with the words of columns. outbox/ holds the ledger
    of each client that ran in this process. Where rows are texts, `words` knows the words of columns.
    """
    if results[0].silo.feature_names is not None:
        model.feature_names_in_ = np.array(results[0].silo.feature_names, dtype=object)
    schema = results[0].silo.schema
    if schema is not None:
        model.schema_ = schema
    with new_folder(out, overwrite=force, private=True) as folder:
        (folder / "labels").mkdir()
        names = file_names(result.silo.name for result in results)
        for result in results:
            table = label_table([result.silo], [result.labels], [result.probabilities])
            write_file(folder / "labels" / f"{names[result.silo.name]}.csv", as_csv(table))
        ledgers = {cid: ledger for cid, ledger in model.run_.ledgers.items() if cid in names}
        if ledgers:
            (folder / OUTBOX).mkdir()
        for cid, ledger in ledgers.items():
            ledger.write(folder / OUTBOX / f"{names[cid]}.jsonl")
        model.save(folder / "model")
        explanation, atlas = told(model, results, report, words)
        write_document(folder / EXPLANATION, explanation.to_dict())
        write_document(folder / ATLAS, atlas.to_dict())
        if schema is not None:
            write_file(folder / SCHEMA_FILE, schema.to_toml().encode())
        for name, table in (tables or {}).items():
            (folder / TABLES).mkdir(exist_ok=True)
            write_file(folder / TABLES / f"{name}.csv", as_csv(table))
        write_json(folder / "history.json", [asdict(record) for record in model.run_.rounds])
        write_json(folder / "report.json", {**report, "projection": projection(results)})


def told(
    model: FMTC, results: Sequence[SiloResult], report: Mapping[str, Any], words: Lookup | None = None
) -> tuple[Explanation, Atlas]:
    """What the clusters of a run are, by its rows and by its models; `words` knows the words of columns of texts."""
    names = results[0].silo.feature_names
    rows, labels = {r.silo.name: r.silo.X for r in results}, {r.silo.name: r.labels for r in results}
    found = model._explained(rows, labels, feature_names=names, words=words)
    notes = (*found.notes, OWN_ROWS) if of_one_silo(report) else found.notes
    return replace(found, notes=notes), model._atlas(feature_names=names, words=words)


def write_document(file: Path, document: Mapping[str, Any]) -> None:
    """Keep an explanation or an atlas, as `to_dict` made it: on one line, letters of all languages as they are."""
    about = jsonable(KEPT[file.name].head | dict(document))
    write_file(file, (json.dumps(about, ensure_ascii=False) + "\n").encode())


def _read_document(file: Path, form: type[Document]) -> Any:
    """What `write_document` has kept, checked; None where there is nothing."""
    if not file.is_file():
        return None
    document = read_json(file, kind=KEPT[file.name])
    document = {BEFORE.get(name, name): value for name, value in document.items()}
    check_form(file, document, form_of(form))
    return form.from_dict(document)


def read_explanation(folder: Path) -> Explanation | None:
    """What the clusters of a run are; None in a folder that does not say it."""
    from ..describe import Explanation

    file = folder / EXPLANATION
    found: Explanation | None = _read_document(file, Explanation)
    if found is None:
        return None
    sizes = {len(clusters) for clusters in (found.clusters, *found.silos.values(), *found.likeness.values())}
    if len(sizes) != 1 or set(found.likeness) != set(found.silos):
        raise FileError(f"{file} is damaged: its parts do not fit")
    return found


def read_atlas(folder: Path) -> Atlas | None:
    """The atlas of a run; None in a folder without one, such as that of a model."""
    from ..describe import Atlas
    from ..describe.atlas import FLAGS

    found: Atlas | None = _read_document(folder / ATLAS, Atlas)
    unknown = {flag for one in found.clusters for flag in one.flags.values()} - set(FLAGS) if found else set()
    if unknown:
        raise FileError(f"{folder / ATLAS} is damaged: there is no flag {min(unknown)!r}")
    return found


def label_names(explanation: Explanation | None) -> dict[int, str]:
    """What stands beside numbers in tables of labels: names of all clusters once somebody gave one, else none."""
    return explanation.names if explanation and any(one.given for one in explanation.clusters) else {}


def rename_clusters(run: Path, explanation: Explanation) -> None:
    """Keep names of clusters in a run, also beside their numbers in labels/."""
    name_labels(run, label_names(explanation))
    write_document(run / EXPLANATION, explanation.to_dict())


def projection(results: Sequence[SiloResult]) -> dict[str, Any]:
    """x, y and cluster of each row that is shown, on the principal plane of the projected rows of all silos."""
    return {
        r.silo.name: {"row": r.silo.rows[r.shown], "x": plane[:, 0], "y": plane[:, 1], "cluster": r.labels[r.shown]}
        for r, plane in zip(results, principal_plane([r.view for r in results]), strict=True)
    }


def principal_plane(views: Sequence[Array]) -> list[Array]:
    """Rows of each silo on the principal plane of the rows of all; the largest part of each axis is positive."""
    E = np.vstack(same_width(views)).astype(np.float64)
    E -= E.mean(axis=0)
    _, _, axes = np.linalg.svd(E, full_matrices=False)
    axes = np.pad(axes, ((0, max(0, 2 - len(axes))), (0, 0)))[:2]
    axes *= np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1, 1)[:, None]
    return np.split(E @ axes.T, np.cumsum([len(view) for view in views])[:-1])


def is_run(folder: Path) -> bool:
    """Whether `write_run` wrote this folder."""
    return (folder / "report.json").is_file() and (folder / "model" / MODEL_FILE).is_file()


def model_folder(path: Path) -> Path:
    """The folder of the model in a folder that `write_run` or `FMTC.save` wrote."""
    for folder in (path / "model", path):
        if (folder / MODEL_FILE).exists():
            return folder
    raise FileError(f"{path} holds no model; give the folder of a run, or one that FMTC.save wrote")


def versions() -> dict[str, Any]:
    """Versions of fmtc, of what it computes with, and of each extra (None if not installed)."""
    return {
        "fmtc": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn")},
        "extras": {extra: installed(package) for extra, package in EXTRAS.items()},
    }


def installed(package: str) -> str | None:
    """Version of a package, or None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
