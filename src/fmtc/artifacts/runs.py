"""The folder of a run: labels, model, history and report."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from ..errors import DataError, FileError, listed, nearest_names
from ..schema import FILE as SCHEMA_FILE
from ..schema import Schema
from .files import (
    COUNT,
    NUMBER,
    check_form,
    check_schema,
    file_names,
    jsonable,
    new_folder,
    read_file,
    read_json,
    write_file,
    write_json,
)
from .models import MODEL_FILE, ROUND

if TYPE_CHECKING:
    import polars as pl

    from ..describe import Atlas, Explanation
    from ..estimator import FMTC
    from ..runtime.driver import RoundRecord
    from ..tables.reading import Reading
    from ..tables.silos import Silo

Array = np.ndarray

REPORT_FORMAT = 2
EXPLANATION = "explanation.json"
EXPLANATION_FORMAT = 1
ATLAS = "atlas.json"
ATLAS_FORMAT = 2
BEFORE = {"concepts": "clusters", "client_ids": "silos"}  # what parts of atlas.json were called in format 1
TABLES = "tables"  # folder of a run: the tables that were given, with the cluster of each row
OUTBOX = "outbox"  # folder of a run: what left each client
OWN_ROWS = "Rows and shares are those of this silo alone. What the other silos of the run have is not known here."
PROJECTED_ROWS = 500  # of each silo, in report.json; more if a page is written

TRUST = {  # who pulls whom
    "clients": [{"silo": str, "capped": COUNT, "odd": COUNT, "affinity": NUMBER, "held": bool, "kept": (str, None)}],
    "influence": ([[float]], None),
    "rounds": COUNT,
}
# What a reader relies on in report.json, in the language of `check_form`: for any run, for a run with models, and for
# the coordinator's. "details" is the result of `fmtc.report.study`.
ANY_REPORT = {
    "versions": {"fmtc": str, "extras?": {str: (str, None)}},
    "settings": {
        "n_clusters": (COUNT, {str: COUNT}), "n_concepts?": (COUNT, None), "beta": float, "tol": float,
        "scale": str, "as_published": bool, "solver?": dict,
    },
    "sent?": [  # not in format 1
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
    "trust?": (TRUST, None),
}  # fmt: skip
READING = {  # "client_column", and None for what was not said: version 0.1
    "silo_column?": str, "client_column?": (str, None), "id_column?": (str, None), "header?": (bool, None),
    "obsm?": (str, None),
}  # fmt: skip
REPORT = ANY_REPORT | {
    "files": [str],
    "n_features": COUNT,
    "silos": [{"silo": str, "rows": COUNT, "cluster_sizes": [COUNT], "score": NUMBER, "acc?": NUMBER, "nmi?": NUMBER}],
    "history": [ROUND],
    "reading?": READING,
    "projection": {str: {"row": [range(2**32)], "x": [float], "y": [float], "cluster": [range(2**16)]}},
    "details?": {
        "reading?": READING,
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
_HISTOGRAM = {"inside": [COUNT], "outside": [COUNT], "edges": [float], "levels": [str]}
_CLUSTERS = [
    {
        "cluster": COUNT, "rows": COUNT, "share": float, "words": str, "given": str,
        "differences": [
            {"column": str, "kind": str, "inside": float, "outside": float, "effect": float, "level": str, "unit": str,
             "histogram": (_HISTOGRAM, None), "agreed?": bool},
        ],
    },
]  # fmt: skip
EXPLAINED = {"clusters": _CLUSTERS, "silos": {str: _CLUSTERS}, "likeness": {str: [NUMBER]}, "notes": [str]}
DRAWN = {  # what a reader relies on in atlas.json
    "clusters": [
        {
            "id": COUNT, "name": str, "presence": {str: NUMBER}, "cosine": {str: float}, "flags": {str: str},
            "top_features": [
                {"column": str, "weight": float, "amount": NUMBER, "level": str, "unit": str, "kind": str,
                 "agreed?": bool},
            ],
        },
    ],
    "silos": [str],
    "notes": [str],
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
    reading: Reading | None = None,
) -> dict[str, Any]:
    """Content of report.json, without the history and the projection, which `write_run` adds.

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
        Ready for `write_run`; the lines of the silos are in "silos", their mean in "mean".
    """
    shared = getattr(model, "_shared", None)
    return {
        "kind": "fmtc report",
        "schema": REPORT_FORMAT,
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
        "trust": seen(model)
        | trust(
            model.silos_ if model.run_.influence is None else model.run_.client_ids,
            model.run_.rounds,
            model.run_.influence,
            model.run_.held,
            model.run_.choices,
        ),
        **scores(results),
    }


def seen(model: FMTC) -> dict[str, Any]:
    """Who saw what, what was promised, and what to compare: the other half of the part "trust" of report.json.

    Returns
    -------
    dict
        `mode`, the least that hides a silo's answers: alone (there is no other silo), clear, sums or private;
        `roster`, the code of who took part; `promise` of a private run; `heads`, the hash of each silo's ledger.
    """
    alone = len(model.silos_) == 1 and model.privacy is None
    heads = {}
    for cid, ledger in model.run_.ledgers.items():
        lines = ledger.lines()
        heads[cid] = lines[-1]["hash"] if lines else ""
    return {
        "mode": "alone" if alone else mode_of(model),
        "roster": model.run_.roster,
        "promise": model.run_.promise,
        "heads": heads,
    }


def mode_of(model: FMTC) -> str:
    """The least that hides a silo's answers in a run of several: clear, sums or private."""
    return "clear" if model.privacy is None else "sums" if model.privacy == "sums" else "private"


def of_one_silo(report: Mapping[str, Any]) -> bool:
    """Whether a report is of one silo of several, so that all that it counts are rows of this silo."""
    mode = (report.get("trust") or {}).get("mode", "alone")
    return "joined" in report or (len(report["silos"]) == 1 and mode != "alone")


def trust(
    client_ids: Sequence[str],
    history: Sequence[RoundRecord],
    influence: np.ndarray | None,
    held: Sequence[str],
    choice: Mapping[str, str],
) -> dict[str, Any]:
    """Who pulls whom, who was capped or weighed down, and who kept the common model: the part "trust" of report.json.

    Parameters
    ----------
    client_ids : sequence of str
        Of the rows and columns of `influence`.
    history : sequence of RoundRecord
    influence : ndarray of shape (m, m), optional
    held : sequence of str
        Clients that were capped, weighed down, set aside or refused at any time.
    choice : mapping of client id to str
        "federated" or "alone", of those clients that are known here.

    Returns
    -------
    dict
    """
    known = [record.affinity for record in history if record.affinity]
    last = known[-1] if known else {}
    return {
        "clients": [
            {
                "silo": cid, "capped": sum(cid in record.capped for record in history),
                "odd": sum(cid in record.odd for record in history), "affinity": last.get(cid), "held": cid in held,
                "kept": choice.get(cid),
            }
            for cid in [*client_ids, *(cid for cid in held if cid not in client_ids)]
        ],
        "influence": None if influence is None else influence.round(6).tolist(),
        "rounds": len(history),
    }  # fmt: skip


def write_run(
    out: Path,
    force: bool,
    model: FMTC,
    results: Sequence[SiloResult],
    report: Mapping[str, Any],
    tables: Mapping[str, pl.DataFrame] | None = None,
    *,
    words: Callable[[Sequence[int]], Mapping[int, str]] | None = None,
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
    history = [asdict(record) for record in model.run_.rounds]
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
        explanation = model._explained(
            {result.silo.name: result.silo.X for result in results},
            {result.silo.name: result.labels for result in results},
            feature_names=results[0].silo.feature_names,
            words=words,
        )
        notes = (*explanation.notes, *([OWN_ROWS] if of_one_silo(report) else []))
        write_explanation(folder, replace(explanation, notes=notes))
        atlas = model._atlas(feature_names=results[0].silo.feature_names, words=words)
        write_atlas(folder, atlas.to_dict())
        if schema is not None:
            write_file(folder / SCHEMA_FILE, schema.to_toml().encode())
        for name, table in (tables or {}).items():
            (folder / TABLES).mkdir(exist_ok=True)
            write_file(folder / TABLES / f"{name}.csv", as_csv(table))
        write_json(folder / "history.json", history)
        write_json(folder / "report.json", {**report, "history": history, "projection": projection(results)})


def _write_words(file: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document on one line, letters of all languages as they are."""
    write_file(file, (json.dumps(jsonable(document), ensure_ascii=False) + "\n").encode())


def _read_words(file: Path, kind: str, newest: int, form: Mapping[str, Any]) -> dict[str, Any] | None:
    """A document of `_write_words`, checked; None where there is none."""
    if not file.is_file():
        return None
    document: Any = read_json(file)
    check_schema(file, document, kind, newest)
    document = {BEFORE.get(name, name): value for name, value in document.items()}
    check_form(file, document, form)
    return document


def write_explanation(folder: Path, explanation: Explanation) -> None:
    """Keep in a run what its clusters are."""
    about = {"kind": "fmtc explanation", "schema": EXPLANATION_FORMAT}
    _write_words(folder / EXPLANATION, about | explanation.to_dict())


def read_explanation(folder: Path) -> Explanation | None:
    """What `write_explanation` has kept; None in a run of an older version."""
    from ..describe import Explanation

    file = folder / EXPLANATION
    document = _read_words(file, "fmtc explanation", EXPLANATION_FORMAT, EXPLAINED)
    if document is None:
        return None
    sizes = {len(clusters) for clusters in (document["clusters"], *document["silos"].values())}
    sizes |= {len(values) for values in document["likeness"].values()}
    if len(sizes) != 1 or set(document["likeness"]) != set(document["silos"]):
        raise FileError(f"{file} is damaged: its parts do not fit")
    return Explanation.from_dict({name: document[name] for name in EXPLAINED})


def write_atlas(folder: Path, atlas: Mapping[str, Any]) -> None:
    """Keep in a run its atlas: `Atlas.to_dict`."""
    _write_words(folder / ATLAS, {"kind": "fmtc atlas", "schema": ATLAS_FORMAT, **atlas})


def read_atlas(folder: Path) -> Atlas | None:
    """What `write_atlas` has kept; None in a run of an older version, and in a model."""
    from ..describe import FLAGS, Atlas

    file = folder / ATLAS
    document = _read_words(file, "fmtc atlas", ATLAS_FORMAT, DRAWN)
    if document is None:
        return None
    unknown = [flag for one in document["clusters"] for flag in one["flags"].values() if flag not in FLAGS]
    if unknown:
        raise FileError(f"{file} is damaged: there is no flag {unknown[0]!r}")
    return Atlas.from_dict({name: document[name] for name in DRAWN})


def label_names(explanation: Explanation | None) -> dict[int, str]:
    """What stands beside numbers in tables of labels: names of all clusters once somebody gave one, else none."""
    if explanation is None or not any(one.given for one in explanation.clusters):
        return {}
    return explanation.names


def name_labels(folder: Path, explanation: Explanation) -> None:
    """Keep names of clusters, also beside their numbers in labels/; where nobody gave any the column goes."""
    names = label_names(explanation)
    tables = {file: _read_labels(file) for file in sorted((folder / "labels").glob("*.csv"))}
    for file, table in tables.items():
        write_file(file, as_csv(_named(table.drop("cluster_name", strict=False), "cluster", names)))
    write_explanation(folder, explanation)


def with_names(table: pl.DataFrame, run: Path) -> pl.DataFrame:
    """A table of `join_labels` with names of the clusters of the run beside their numbers, if somebody gave any."""
    names = label_names(read_explanation(run))
    return _named(table, "fmtc_cluster" if "fmtc_cluster" in table.columns else "cluster", names)


def _named(table: pl.DataFrame, column: str, names: Mapping[int, str]) -> pl.DataFrame:
    import polars as pl

    if not names:
        return table
    found = ["" if number is None else names.get(int(number), "") for number in table.get_column(column)]
    beside = "fmtc_cluster_name" if "cluster_name" in table.columns else "cluster_name"
    return table.clone().insert_column(table.get_column_index(column) + 1, pl.Series(beside, found))


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
    silos: Sequence[Silo],
    labels: Sequence[Array],
    P: Sequence[Array],
    *,
    clients: bool = False,
    proba: bool = False,
    outliers: Sequence[Array] | None = None,
    confidence: Sequence[Array] | None = None,
) -> pl.DataFrame:
    """One line per row, in the order of the file: identifier or row number, cluster, its probability."""
    import polars as pl

    order = np.argsort(np.concatenate([silo.rows for silo in silos]), kind="stable")

    def sorted_by_row(parts: Iterable[Any]) -> Any:
        return np.concatenate([np.asarray(part) for part in parts])[order]

    cluster, probability = sorted_by_row(labels), sorted_by_row(P)
    columns: dict[str, Any] = _row_names(silos, order)
    if clients:
        names = [silo.name for silo in silos for _ in silo.rows]
        columns["silo"] = [names[i] for i in order]
    columns |= {"cluster": cluster, "probability": probability[np.arange(len(cluster)), cluster]}
    more = {"outlier": outliers, "confidence": confidence}
    columns |= {name: sorted_by_row(parts) for name, parts in more.items() if parts is not None}
    if proba:
        columns |= {f"probability_{j}": probability[:, j] for j in range(probability.shape[1])}
    return pl.DataFrame(columns)


def _row_names(silos: Sequence[Silo], order: Array) -> dict[str, Any]:
    """The first column of a table of labels: identifiers of the rows or, without any, their numbers."""
    if silos[0].ids is None:
        return {"row": np.concatenate([silo.rows for silo in silos])[order]}
    ids, name = [name for silo in silos for name in silo.ids or ()], silos[0].id_name or "id"
    taken = name in ("silo", "cluster", "probability", "outlier", "confidence") or name.startswith("probability_")
    return {"id" if taken else name: [ids[i] for i in order]}


def with_labels(
    table: pl.DataFrame,
    rows: Array,
    labels: Array,
    probability: Array,
    outliers: Array | None = None,
    *,
    confidence: Array | None = None,
) -> pl.DataFrame:
    """A table with two more columns, `cluster` and `probability`; null in rows that have none.

    Parameters
    ----------
    table : polars.DataFrame of n rows
    rows : ndarray of int of shape (m,)
        Rows that have a cluster.
    labels, probability : ndarray of shape (m,)
        Cluster of each, and its probability.
    outliers : ndarray of bool of shape (m,), optional
        Whether each is far from all clusters: a column `outlier`.
    confidence : ndarray of shape (m,), optional
        How certain each is: a column `confidence`.
    """
    import polars as pl

    given: dict[str, tuple[Array, Any]] = {"cluster": (labels, pl.Int64), "probability": (probability, pl.Float64)}
    if outliers is not None:
        given["outlier"] = (outliers, pl.Boolean)
    if confidence is not None:
        given["confidence"] = (confidence, pl.Float64)
    found = {}
    for name, (values, kind) in given.items():
        cells: list[Any] = [None] * table.height
        for row, value in zip(rows.tolist(), values.tolist(), strict=True):
            cells[row] = value
        found[name] = pl.Series(cells, dtype=kind)
    return table.with_columns(
        values.alias(f"fmtc_{name}" if name in table.columns else name) for name, values in found.items()
    )


def without_doubtful(table: pl.DataFrame, abstain: float) -> tuple[pl.DataFrame, int]:
    """A table of labels with cluster -1, and no name, where the confidence is below a share; and how many these are."""
    import polars as pl

    def last(name: str) -> str:
        return next(column for column in reversed(table.columns) if column in (name, f"fmtc_{name}"))

    doubtful = pl.col(last("confidence")) < abstain
    changed = [pl.when(doubtful).then(-1).otherwise(pl.col(last("cluster"))).alias(last("cluster"))]
    changed += [
        pl.when(doubtful).then(None).otherwise(pl.col(name)).alias(name)
        for name in table.columns
        if name in ("cluster_name", "fmtc_cluster_name")
    ]
    return table.with_columns(changed), int(table.select(doubtful.sum()).item() or 0)


def read_labels(run: Path) -> dict[str, pl.DataFrame]:
    """The labels of each silo of a run, as `write_run` wrote them."""
    import polars as pl

    lines = read_json(run / "report.json", {"silos": [{"silo": str}]})["silos"] if is_run(run) else []
    files = {name: run / "labels" / f"{file}.csv" for name, file in file_names(line["silo"] for line in lines).items()}
    if not files:
        raise FileError(f"{run} holds no labels; give the --out folder of `fmtc fit` or `fmtc join`")
    return {
        name: _read_labels(file).with_columns(pl.col("cluster").cast(pl.Int64), pl.col("probability").cast(pl.Float64))
        for name, file in files.items()
    }


def _read_labels(file: Path) -> pl.DataFrame:
    """A file of labels, all cells as text; those of clusters and probabilities are numbers."""
    import polars as pl

    def parse(content: bytes) -> pl.DataFrame:
        table = without_quotes(pl.read_csv(content, infer_schema=False))
        table.select(pl.col("cluster").cast(pl.Int64), pl.col("probability").cast(pl.Float64))
        if table.width < 3 or table.columns[0] in ("cluster", "probability"):
            raise ValueError("its first column does not name the rows")
        return table

    return read_file(file, parse)


def all_labels(labels: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Labels of several silos in one table, with a column `client`."""
    import polars as pl

    return pl.concat(
        [table.select(pl.lit(name).alias("silo"), pl.all()) for name, table in labels.items()], how="diagonal"
    )


def join_labels(
    table: pl.DataFrame,
    labels: Mapping[str, pl.DataFrame],
    file: Path,
    id_column: str | None = None,
    client_column: str | None = None,
) -> pl.DataFrame:
    """A table with the cluster of each row and its probability: by identifier or, if there is none, by place.

    Parameters
    ----------
    table : polars.DataFrame
    labels : mapping of silo to its labels
        Of `read_labels`.
    file : Path
        Where the table is from: its name is the silo, if there is one of that name.
    id_column : str, optional
        Column of identifiers in `table`; that of the run by default.
    client_column : str, optional
        Column of `table` that names the silo of each row.
    """
    unknown = [str(name) for name in (id_column, client_column) if name not in (None, *table.columns)]
    if unknown:
        raise DataError(f"{file} has no column {unknown[0]!r}; {nearest_names(unknown[0], table.columns)}")
    if client_column is None:
        labels = _of_file(labels, file)
    key = next(iter(labels.values())).columns[0]
    by_row = key == "row"
    if by_row and id_column is not None:
        raise DataError("the run has no identifiers, so rows are joined by their place; omit the identifier")
    named = id_column or key
    if not by_row and named not in table.columns:
        raise DataError(
            f"{file} has no column {named!r}, which identifies the rows of the run; "
            f"{nearest_names(named, table.columns)}"
        )
    known = _by_mark(labels, file, key, by_silo=client_column is not None)
    ids: list[Any] = list(range(table.height)) if by_row else list(map(str, table.get_column(named)))
    silos = [""] * table.height
    if client_column is not None and not by_row:
        silos = [str(name).strip() for name in table.get_column(client_column)]
    marks = list(zip(silos, ids, strict=True))
    found = [(row, *known[mark]) for row, mark in enumerate(marks) if mark in known]
    rows, clusters, probabilities = zip(*found, strict=True) if found else ((), (), ())
    return with_labels(table, np.array(rows, int), np.array(clusters, int), np.array(probabilities, float))


def _of_file(labels: Mapping[str, pl.DataFrame], file: Path) -> Mapping[str, pl.DataFrame]:
    """Labels of the silo that a file is named after, or of the only one there is; else of all."""
    from ..tables.formats import stem_of

    own = stem_of(file)
    return {own: labels[own]} if own in labels else labels


def _by_mark(
    labels: Mapping[str, pl.DataFrame], file: Path, key: str, *, by_silo: bool
) -> dict[tuple[str, Any], tuple[int, float]]:
    """Cluster and probability by what tells rows apart: their number or identifier and, where it counts, their silo."""
    known: dict[tuple[str, Any], tuple[int, float]] = {}
    twice = set()
    for silo, found in labels.items():
        for name, cluster, p in found.select(key, "cluster", "probability").iter_rows():
            mark = ("", int(name)) if key == "row" else (silo if by_silo else "", name)
            twice |= {mark} & known.keys()
            known[mark] = (cluster, p)
    if twice and key == "row":
        raise DataError(f"{file}: rows of which silo? The run is of {listed(labels)}; name one with --silo")
    if twice:
        raise DataError(f"{len(twice)} identifiers of the run, such as {min(str(t[1]) for t in twice)!r}, stand "
                        "for more than one row; name the silo, or a column with it")  # fmt: skip
    return known


def schema_of(model: FMTC, run: Path) -> Schema | None:
    """What the columns of a model are: what it keeps itself, what stands beside it, or numbers of known names."""
    if (schema := getattr(model, "schema_", None)) is not None:
        return schema
    for folder in (run, run.resolve().parent if run.resolve().name == "model" else run):
        if (folder / SCHEMA_FILE).is_file():
            return Schema.read(folder / SCHEMA_FILE)
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else Schema.of_numbers(names.tolist())


_NUMBER = r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?"
_RUN = re.compile(rf"'*(?!{_NUMBER}\Z)[=+\-@\t\r]")  # a spreadsheet would run it, or take it for what we made of such


def as_csv(table: pl.DataFrame, *, float_precision: int | None = 6) -> bytes:
    r"""Return the bytes of a CSV file, with no cell that a spreadsheet would run. All our CSVs are made here.

    A text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return gets a single quote in front, which
    spreadsheets take for a sign that text follows. Names of columns too. Numbers stay numbers, also those in a column
    of texts. Texts that look like the outcome get another quote, so that `without_quotes` knows what was there.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.artifacts.runs import as_csv
    >>> table = pl.DataFrame({"id": ["=1+1", "-5", "a-b", "+49 89"], "dose": [-1.5, 2, -3, 4]})
    >>> print(as_csv(table).decode(), end="")
    id,dose
    '=1+1,-1.500000
    -5,2.000000
    a-b,-3.000000
    '+49 89,4.000000
    """
    safe = _with_texts(table, lambda text: f"'{text}" if _RUN.match(text) else text)
    return safe.write_csv(float_precision=float_precision).encode()


def without_quotes(table: pl.DataFrame) -> pl.DataFrame:
    """Undo what `as_csv` did to texts, in a table that was read from such a file."""
    return _with_texts(table, lambda text: text[1:] if text[:1] == "'" and _RUN.match(text) else text)


def _with_texts(table: pl.DataFrame, change: Callable[[str], str]) -> pl.DataFrame:
    """A table whose texts, and names of columns, are changed; only such columns are touched that a change concerns."""
    import polars as pl

    found = table.rename({name: change(name) for name in table.columns})
    for column in found.get_columns():
        if column.dtype in (pl.String, pl.Categorical, pl.Enum):
            texts = column.cast(pl.String)
            if texts.str.contains(r"^'*[=+\-@\t\r]").any():
                found = found.with_columns(texts.map_elements(change, return_dtype=pl.String))
    return found


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
