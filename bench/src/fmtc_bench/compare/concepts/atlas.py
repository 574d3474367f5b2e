"""The atlas against known classes: whether concepts are classes, single ones are found and words are typical.

Three parts. *full*: federations as they are, default settings. *missing*: classes dealt so that silos lack some
(`fmtc_bench.datasets.missing_classes`), with the number of classes of each silo given. *unique*: the same, and one
class dealt to a single silo. Classes are for scoring only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmtc.describe.atlas import ALONE, MATCHED, Atlas
from fmtc.estimator import FMTC

from ...datasets import FederatedDataset, load, missing_classes
from . import Listener, Row

TITLE = "The atlas: matching, single classes, words"

PARTS = ("full", "missing", "unique")
FULL = ("digits", "bbcnews", "bbcsport", "reuters", "webkb4")
DEALT = {"digits": (8, 6), "bbcnews": (5, 3), "bbcsport": (5, 3)}  # silos, and classes of each
SINGLE = 3  # classes of a set that are dealt to one silo, one after the other
ROWS = 400  # of a silo
TYPICAL = 50  # words of a class

Array = np.ndarray


def measure(seeds: Sequence[int], listen: Listener, parts: Sequence[str] = PARTS) -> list[Row]:
    """Rows of all data sets and seeds.

    Parameters
    ----------
    seeds : sequence of int
    listen : callable
        Told what is being measured.
    parts : sequence of str
        Some of `PARTS`.
    """
    rows = []
    for seed in seeds:
        for name in FULL if "full" in parts else ():
            listen(f"atlas of {name}, seed {seed}")
            rows.append(_full(name, seed))
        for name, (silos, classes) in DEALT.items():
            if "missing" in parts:
                listen(f"atlas of {name} with missing classes, seed {seed}")
                rows.append(_missing(name, seed, silos, classes))
            for single in range(SINGLE if "unique" in parts else 0):
                listen(f"atlas of {name} with class {single} in one silo, seed {seed}")
                rows.append(_unique(name, seed, silos, classes, single))
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of Markdown tables, a mean over seeds in each cell."""
    lines = []
    for part, title, names in (
        ("full", "all classes everywhere", ("matching", "matched", "auroc", "words")),
        ("missing", "silos that lack classes", ("matching", "matched", "auroc", "words")),
        ("unique", "one class in one silo only", ("found", "false_flags", "cosine_single", "cosine_others")),
    ):
        own = [row for row in rows if row["part"] == part]
        if not own:
            continue
        lines += ["", f"| {title} | " + " | ".join(_TITLES[name] for name in names) + " |"]
        lines += ["|---" * (len(names) + 1) + "|"]
        sets = list(dict.fromkeys(row["set"] for row in own))
        for name in sets:
            lines.append(_line(name, [row for row in own if row["set"] == name], names))
        if len(sets) > 1:
            lines.append(_line("mean", own, names))
    return lines[1:]


_TITLES = {
    "matching": "clusters in the concept of their class, %",
    "matched": "flagged matched, %",
    "auroc": "cosine tells right from wrong (AUROC)",
    "words": "typical words of ten, %",
    "found": "single class flagged unique, %",
    "false_flags": "other clusters flagged unique, %",
    "cosine_single": "cosine, single class",
    "cosine_others": "cosine, others",
}


def _line(name: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    cells = []
    for column in columns:
        values = [row[column] for row in rows if row[column] is not None]
        form = "{:.2f}" if column.startswith(("auroc", "cosine")) else "{:.1f}"
        cells.append(form.format(float(np.mean(values))) if values else "–")
    return f"| {name} | " + " | ".join(cells) + " |"


# ------------------------------------------------------------------------------------------------------------- parts


def _full(name: str, seed: int) -> Row:
    train = _some(load(name).split(0.2, seed)[0], seed)
    model = FMTC(train.n_clusters, random_state=seed)
    return {"part": "full", "set": name, "seed": seed, **_judged(model, train)}


def _missing(name: str, seed: int, silos: int, classes: int) -> Row:
    whole = load(name)
    clients = missing_classes(whole.y, silos, classes, random_state=seed)
    train = _some(replace(whole, clients=clients).split(0.2, seed)[0], seed)
    return {"part": "missing", "set": name, "seed": seed, **_judged(_of_classes(train, seed), train)}


def _unique(name: str, seed: int, silos: int, classes: int, single: int) -> Row:
    whole = load(name)
    clients = missing_classes(whole.y, silos, classes, random_state=seed)
    have = np.unique(clients[whole.y == single])
    clients[whole.y == single] = have[0]  # the others that had it have one class less
    train = _some(replace(whole, clients=clients).split(0.2, seed)[0], seed)
    model = _of_classes(train, seed).fit({cid: part.X for cid, part in train.by_client().items()})
    atlas, major = model.atlas_, _majorities(model, train)
    mine = [(t, j) for (t, j), label in major.items() if t == have[0] and label == single]
    rest = [key for key in major if key not in mine]
    cosine = {(cid, one.id): value for one in atlas.clusters for cid, value in one.cosine.items()}
    flags = {(cid, one.id): flag for one in atlas.clusters for cid, flag in one.flags.items()}
    return {
        "part": "unique",
        "set": name,
        "seed": seed,
        "single": single,
        "found": 100.0 * any(flags[key] == ALONE for key in mine),
        "false_flags": 100.0 * float(np.mean([flags[key] == ALONE for key in rest])),
        "cosine_single": max((cosine[key] for key in mine), default=None),
        "cosine_others": float(np.mean([cosine[key] for key in rest])),
    }


def _of_classes(train: FederatedDataset, seed: int) -> FMTC:
    """A model that is told how many classes each silo has, and how many there are."""
    own = {cid: len(np.unique(part.y)) for cid, part in train.by_client().items()}
    return FMTC(train.n_clusters, clusters_per_silo=own, random_state=seed)


def _some(train: FederatedDataset, seed: int) -> FederatedDataset:
    """At most `ROWS` rows of each silo."""
    rng = np.random.default_rng(seed)
    rows = [np.flatnonzero(train.clients == cid) for cid in train.client_ids]
    return train.take(np.sort(np.concatenate([rng.permutation(own)[:ROWS] for own in rows])))


# ------------------------------------------------------------------------------------------------------------ scores


def _judged(model: FMTC, train: FederatedDataset) -> Row:
    """Scores of a model that is fitted here."""
    model.fit({cid: part.X for cid, part in train.by_client().items()})
    atlas, major = model._atlas(feature_names=train.feature_names), _majorities(model, train)
    classes = _classes(model, train)
    right = {key: classes.get(key[1]) == label for key, label in major.items()}
    flags = {(cid, one.id): flag for one in atlas.clusters for cid, flag in one.flags.items()}
    cosine = {(cid, one.id): value for one in atlas.clusters for cid, value in one.cosine.items()}
    return {
        "view": model.view_,
        "matching": 100 * float(np.mean(list(right.values()))),
        "matched": 100 * float(np.mean([flags[key] == MATCHED for key in right])),
        "auroc": _auroc([cosine[key] for key in right], list(right.values())),
        "words": _words(atlas, train, classes),
        "names": {str(classes.get(one.id)): one.name for one in atlas.clusters},
    }


def _labels(model: FMTC, train: FederatedDataset) -> dict[str, tuple[Array, Array]]:
    """Clusters and classes of the rows of each silo."""
    return {cid: (model.predict(part.X, silos=cid), part.y) for cid, part in train.by_client().items()}


def _majorities(model: FMTC, train: FederatedDataset) -> dict[tuple[str, int], int]:
    """The class of most rows of each cluster of each silo that has rows."""
    found = {}
    for cid, (labels, y) in _labels(model, train).items():
        for j in np.unique(labels).tolist():
            found[cid, j] = int(np.bincount(y[labels == j]).argmax())
    return found


def _classes(model: FMTC, train: FederatedDataset) -> dict[int, int]:
    """The class of each concept: one to one, by all rows of all silos."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((model.n_clusters_, train.n_clusters))
    for labels, y in _labels(model, train).values():
        np.add.at(counts, (labels, y), 1)
    return dict(zip(*(part.tolist() for part in linear_sum_assignment(-counts)), strict=True))


def _auroc(scores: Sequence[float], right: Sequence[bool]) -> float | None:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(right, scores)) if len(set(right)) == 2 else None


def _words(atlas: Atlas, train: FederatedDataset, classes: Mapping[int, int]) -> float | None:
    """Of ten words of each concept, how many are among the most typical of its class, in %; None for other columns."""
    import scipy.sparse as sp

    if not sp.issparse(train.X):
        return None
    X, found = sp.csr_array(train.X), []
    for concept in atlas.clusters:
        inside = train.y == classes.get(concept.id, -1)
        if inside.any() and concept.top_features:
            gap = np.ravel(X[inside].mean(axis=0)) - np.ravel(X[~inside].mean(axis=0))
            typical = {train.feature_names[i] for i in np.argsort(-gap)[:TYPICAL]}
            found.append(np.mean([feature.column in typical for feature in concept.top_features]))
    return 100 * float(np.mean(found)) if found else None
