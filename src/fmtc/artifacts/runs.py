"""The folder of a run: labels, model, history and report."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from ..errors import FileError
from .files import COUNT, NUMBER, file_names, new_folder, write_file, write_json
from .models import MODEL_FILE, ROUND

if TYPE_CHECKING:
    import polars as pl

    from ..estimator import FMTC
    from ..tables.silos import Silo

Array = np.ndarray

REPORT_FORMAT = 2
OUTBOX = "outbox"  # folder of a run: what left each client
PROJECTED_ROWS = 500  # of each silo, in report.json; more if a page is written

# What a reader relies on in report.json, in the language of `check_form`: for any run, for a run with models, and for
# the coordinator's. "details" is the result of `fmtc.report.study`.
ANY_REPORT = {
    "versions": {"fmtc": str, "extras?": {str: (str, None)}},
    "settings": {
        "n_clusters": COUNT, "beta": (float, str), "tol": float, "scale": str, "as_published": bool, "solver?": dict,
    },
    "sent?": [  # not in format 1
        {"phase": str, "field": str, "what": str, "tells": str, "shape": str, "times": COUNT, "bytes": COUNT}
    ],
    "n_iter": COUNT,
    "converged": (bool, None),
    "stopped_because": str,
    "seconds": float,
    "notes": [str],
    "missing?": [str],
}  # fmt: skip
REPORT = ANY_REPORT | {
    "files": [str],
    "n_features": COUNT,
    "silos": [{"silo": str, "rows": COUNT, "cluster_sizes": [COUNT], "score": NUMBER, "acc?": NUMBER, "nmi?": NUMBER}],
    "history": [ROUND],
    "projection": {str: {"row": [range(2**32)], "x": [float], "y": [float], "cluster": [range(2**16)]}},
    "details?": {
        "reading": dict,
        "feature_scale": ([float], None),
        "silos": {
            str: {
                "residual": NUMBER,
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
CONSENSUS_REPORT = ANY_REPORT | {"client_ids": [str], "missing": [str]}

EXTRAS = {
    "plot": "matplotlib",
    "report": "jinja2",
    "onnx": "onnx",
    "federation": "nvflare",
    "data": "av",
    "knn": "faiss-cpu",
    "gpu": "torch",
}


@dataclass(frozen=True, eq=False)
class SiloResult:
    """Result of a run for one silo."""

    silo: Silo
    labels: Array  # n
    probabilities: Array  # n x k
    line: dict[str, Any]  # in the report
    shown: Array  # positions of the rows that are shown
    view: Array  # `transform` of the rows that are shown


def results(model: FMTC, silos: Sequence[Silo], shown: int = PROJECTED_ROWS) -> list[SiloResult]:
    """Labels, probabilities and scores of each silo of a fitted model.

    Parameters
    ----------
    model : FMTC
        Fitted; its `labels_` are those of all rows of `silos`, in this order.
    silos : sequence of Silo
        The rows it was fitted on.
    shown : int
        Largest number of rows of each silo to show.

    Returns
    -------
    list of SiloResult
        In the order of `silos`.
    """
    from ..metrics import clustering_scores

    found = []
    ends = np.cumsum([silo.X.shape[0] for silo in silos])
    rng = np.random.default_rng(model.random_state)
    for silo, labels in zip(silos, np.split(model.labels_, ends[:-1]), strict=True):
        line: dict[str, Any] = {
            "silo": silo.name,
            "rows": len(labels),
            "cluster_sizes": np.bincount(labels, minlength=model.n_clusters),
            "score": model.score(silo.X, clients=silo.name),
        }
        if silo.labels is not None:
            known = [row for row, label in enumerate(silo.labels) if label is not None]
            line["labelled_rows"] = len(known)
            if known:
                truth = [silo.labels[row] for row in known]
                line |= clustering_scores(truth, labels[known])
        rows = np.sort(rng.permutation(len(labels))[:shown])
        view = model.transform(silo.X[rows], clients=silo.name)
        found.append(SiloResult(silo, labels, model.predict_proba(silo.X, clients=silo.name), line, rows, view))
    return found


def scores(results: Sequence[SiloResult]) -> dict[str, Any]:
    """The lines of all silos, and the unweighted mean of each score over the silos that have it."""
    lines = [result.line for result in results]
    names = [name for name in ("score", "acc", "nmi", "ri", "ari") if any(name in line for line in lines)]
    mean = {name: float(np.mean([line[name] for line in lines if name in line])) for name in names}
    return {"silos": lines, "mean": mean}


def report(
    model: FMTC,
    results: Sequence[SiloResult],
    *,
    files: Iterable[Path],
    as_published: bool,
    seconds: float,
    notes: Sequence[str],
) -> dict[str, Any]:
    """Content of report.json, without the history and the projection, which `write_run` adds.

    Parameters
    ----------
    model : FMTC
        Fitted.
    results : sequence of SiloResult
        Of `results(model, silos)`.
    files : paths
        The files that were read; the report holds their names only.
    as_published : bool
        Whether the paper's settings were the defaults.
    seconds : float
        Duration of the run.
    notes : sequence of str
        Notes and warnings of the run.

    Returns
    -------
    dict
        Ready for `write_run`; the lines of the silos are in "silos", their mean in "mean".
    """
    return {
        "kind": "fmtc report",
        "schema": REPORT_FORMAT,
        "versions": versions(),
        "files": [file.name for file in files],
        "settings": model._params() | {"as_published": as_published},
        "n_features": model.n_features_in_,
        "feature_names": results[0].silo.feature_names,
        "n_iter": model.n_iter_,
        "converged": model.converged_,
        "stopped_because": model.stopped_because_,
        "seconds": seconds,
        "notes": notes,
        "sent": model._sent(),
        **scores(results),
    }


def write_run(out: Path, force: bool, model: FMTC, results: Sequence[SiloResult], report: Mapping[str, Any]) -> None:
    """Write the folder of a run, completely or not at all, readable by its owner only.

    The model gets the column names of the silos. report.json holds 2-D projections of the rows of each silo that are
    shown, for a plot. Unlike model/, it is derived from single rows and should stay where they are. outbox/ holds the
    ledger of each client that ran in this process.
    """
    if results[0].silo.feature_names is not None:
        model.feature_names_in_ = np.array(results[0].silo.feature_names, dtype=object)
    history = [asdict(record) for record in model.history_]
    with new_folder(out, overwrite=force, private=True) as folder:
        (folder / "labels").mkdir()
        names = file_names(result.silo.name for result in results)
        for result in results:
            table = label_table([result.silo], [result.labels], [result.probabilities])
            write_file(folder / "labels" / f"{names[result.silo.name]}.csv", as_csv(table))
        ledgers = {cid: ledger for cid, ledger in getattr(model, "_ledgers", {}).items() if cid in names}
        if ledgers:
            (folder / OUTBOX).mkdir()
        for cid, ledger in ledgers.items():
            ledger.write(folder / OUTBOX / f"{names[cid]}.jsonl")
        model.save(folder / "model")
        write_json(folder / "history.json", history)
        write_json(folder / "report.json", {**report, "history": history, "projection": projection(results)})


def projection(results: Sequence[SiloResult]) -> dict[str, Any]:
    """x, y and cluster of each row that is shown, on the principal plane of the projected rows of all silos."""
    E = np.vstack([result.view for result in results]).astype(np.float64)
    E -= E.mean(axis=0)
    _, _, axes = np.linalg.svd(E, full_matrices=False)
    axes = np.pad(axes, ((0, max(0, 2 - len(axes))), (0, 0)))[:2]
    axes *= np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1, 1)[:, None]
    planes = np.split(E @ axes.T, np.cumsum([len(result.shown) for result in results])[:-1])
    return {
        r.silo.name: {"row": r.silo.rows[r.shown], "x": plane[:, 0], "y": plane[:, 1], "cluster": r.labels[r.shown]}
        for r, plane in zip(results, planes, strict=True)
    }


def label_table(
    silos: Sequence[Silo], labels: Sequence[Array], P: Sequence[Array], *, clients: bool = False, proba: bool = False
) -> pl.DataFrame:
    """One line per row, in the order of the file: identifier or row number, cluster, its probability."""
    import polars as pl

    order = np.argsort(np.concatenate([silo.rows for silo in silos]), kind="stable")
    cluster, probability = np.concatenate(labels)[order], np.concatenate(P)[order]
    columns: dict[str, Any] = {}
    if silos[0].ids is None:
        columns["row"] = np.concatenate([silo.rows for silo in silos])[order]
    else:
        ids = [name for silo in silos for name in silo.ids or ()]
        columns["id"] = [ids[i] for i in order]
    if clients:
        names = [silo.name for silo in silos for _ in silo.rows]
        columns["client"] = [names[i] for i in order]
    columns |= {"cluster": cluster, "probability": probability[np.arange(len(cluster)), cluster]}
    if proba:
        columns |= {f"probability_{j}": probability[:, j] for j in range(probability.shape[1])}
    return pl.DataFrame(columns)


def as_csv(table: pl.DataFrame) -> bytes:
    """A table as the bytes of a CSV file."""
    return table.write_csv(float_precision=6).encode()


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
