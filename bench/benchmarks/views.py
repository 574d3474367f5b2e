"""Graph view, mixture view and the choice between them on nineteen federations, beside k-means of each silo alone.

    FMTC_DATA=folder python bench/benchmarks/views.py [--only penguins] [--json]  # a quarter of an hour on one core

ACC in percent, mean of silos, then of three seeds, with one setting for all data sets. At most 400 rows of a silo and
12 silos, drawn once. Labels score and nothing else; only the column `better view` looks at them. Results are kept data
set by data set: what is there and was made by the same code is not run again.

Rows are as `fmtc_bench.datasets` gives them, missing cells and categories included; words have tf-idf weights. `k-means
alone` gets what it needs: numbers of tables and pictures with mean 0 and standard deviation 1 over the federation,
missing numbers filled with the mean, an indicator for each level of a category. `graph, as before` is the graph view
that ends with k-means at each silo and lifts no columns, on columns in the same units.

The second table is of rows that no model has seen: fitted on four fifths of each silo, clusters matched to classes on
those, scored on the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from fmtc import FMTC, Graph
from fmtc.kernels.scaling import expanded
from fmtc.metrics import clustering_accuracy, match_classes
from fmtc.schema import Encoded
from fmtc_bench import datasets
from fmtc_bench.compare.grid import code_digest
from fmtc_bench.datasets import FederatedDataset

RESULTS = Path(__file__).parent / "results" / "views.json"
TEN = ("digits", "webkb4", "20newsgroups", "reuters", "bbcnews", "bbcsport", "yale", "orl", "yaleb", "utd_mhad")
NINE = ("heart_disease", "breast_wisconsin", "penguins", "gas_drift", "wisdm", "vowels_h95", "pancreas", "coil20",
        "enron_spam")  # fmt: skip
ROWS, SILOS, SEEDS = 400, 12, 3
ALONE, BEFORE, BETTER = "k-means alone", "graph, as before", "better view"
COLUMNS = (ALONE, BEFORE, "graph", "mixture", "auto", BETTER)
MARGIN = 4.0  # points below k-means alone that are too many

Rows = Mapping[str, FederatedDataset]


# --------------------------------------------------------------------------------------------------------------- rows


def capped(data: FederatedDataset, rows: int = ROWS, silos: int = SILOS) -> FederatedDataset:
    """At most so many rows of a silo and so many silos, drawn with one seed for all."""
    rng, ids, kept = np.random.default_rng(0), np.array(data.client_ids), []
    if len(ids) > silos:
        ids = np.sort(rng.choice(ids, silos, replace=False))
    for cid in ids:
        mine = np.flatnonzero(data.clients == cid)
        kept.append(np.sort(rng.choice(mine, rows, replace=False)) if len(mine) > rows else mine)
    return data.take(np.concatenate(kept))


def read(name: str) -> tuple[FederatedDataset, bool]:
    """Rows in their own units, words with tf-idf weights; and whether their recipe is to standardise columns."""
    data = datasets.load(name)
    if data.recipe == "tfidf":
        data = data.prepared()
    return replace(capped(data), recipe="none"), data.recipe == "standardize"


def for_fmtc(data: FederatedDataset) -> Any:
    """Rows of all silos as `FMTC` takes them."""
    return data.X if data.schema is None else Encoded(data.X, data.schema)


def filled(train: FederatedDataset, data: FederatedDataset, standardized: bool) -> Any:
    """Rows as k-means takes them: no missing cells, no categories; units and means from the training rows."""
    if sp.issparse(data.X):
        return data.X
    levels = () if data.schema is None else data.schema.levels
    X, known = expanded(data.X, levels), expanded(train.X, levels)
    mean = np.nan_to_num(np.nanmean(known, axis=0))
    X = np.where(np.isnan(X), mean, X)
    if not standardized:
        return X
    spread = np.nanstd(known, axis=0)
    numbers = np.arange(X.shape[1]) < (sum(size == 0 for size in levels) if any(levels) else X.shape[1])
    return np.where(numbers, (X - mean) / np.where(spread > 1e-9 * np.abs(mean) + 1e-300, spread, 1), X)


# ------------------------------------------------------------------------------------------------------------- scores


def score(train: FederatedDataset, labels: np.ndarray, test: FederatedDataset, predicted: np.ndarray | None) -> float:
    """ACC in percent, mean of silos: on the training rows, or on test rows with the matching of the training rows."""
    found = []
    for cid in train.client_ids:
        mine = train.clients == cid
        if predicted is None:
            found.append(clustering_accuracy(train.y[mine], labels[mine]))
            continue
        new, matching = test.clients == cid, match_classes(train.y[mine], labels[mine])
        found.append(clustering_accuracy(test.y[new], predicted[new], matching=matching))
    return 100 * float(np.mean(found))


def kmeans_alone(train: FederatedDataset, test: FederatedDataset, standardized: bool, seed: int) -> list[np.ndarray]:
    """Labels of training and test rows by scikit-learn's k-means of each silo."""
    parts, labels = (train, test), [np.zeros(len(part.y), int) for part in (train, test)]
    rows = [filled(train, part, standardized) for part in parts]
    for cid in train.client_ids:
        mine, new = (part.clients == cid for part in parts)
        k = min(train.n_clusters, int(mine.sum()))
        model = KMeans(k, n_init=10, random_state=seed).fit(rows[0][mine])
        labels[0][mine] = model.labels_
        if new.any():
            labels[1][new] = model.predict(rows[1][new])
    return labels


def models(k: int, standardized: bool, seed: int) -> dict[str, FMTC]:
    """FMTC in all views."""
    scale, graph = "global" if standardized else "none", Graph(final="kmeans", lift=False)
    before = FMTC(k, view="graph", scale=scale, random_state=seed, graph=graph)
    return {BEFORE: before} | {view: FMTC(k, view=view, random_state=seed) for view in ("graph", "mixture", "auto")}


def measured(
    train: FederatedDataset, test: FederatedDataset, standardized: bool, seed: int, held_out: bool
) -> dict[str, Any]:
    """Scores of one seed, which view was chosen and why, and the seconds of each fit."""
    found: dict[str, Any] = {"seconds": {}}
    labels, predicted = kmeans_alone(train, test, standardized, seed)
    found[ALONE] = score(train, labels, test, predicted if held_out else None)
    for name, model in models(train.n_clusters, standardized, seed).items():
        started = time.perf_counter()
        model.fit(for_fmtc(train), silos=train.clients)
        found["seconds"][name] = round(time.perf_counter() - started, 2)
        new = model.predict(for_fmtc(test), silos=test.clients) if held_out else None
        found[name] = score(train, model.labels_, test, new)
    found["chosen"], found["why"] = model.view_, model.view_reason_
    return found


def run(name: str) -> dict[str, Any]:
    """All seeds of a data set, on training rows and on held-out rows."""
    data, standardized = read(name)
    none = data.take(np.arange(0))
    found: dict[str, Any] = {
        "rows": len(data.y), "silos": len(data.client_ids), "columns": data.X.shape[1], "clusters": data.n_clusters,
        "code": code_digest(), "train": [], "held out": [],
    }  # fmt: skip
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(SEEDS):
            found["train"].append(measured(data, none, standardized, seed, False))
            found["held out"].append(measured(*data.split(test_size=0.2, seed=seed), standardized, seed, True))
            last = found["train"][-1]
            scores = ", ".join(f"{column} {last[column]:.1f}" for column in COLUMNS if column in last)
            print(f"{name}, seed {seed}: {scores}; {last['chosen']}: {last['why']}", file=sys.stderr, flush=True)
    return found


# -------------------------------------------------------------------------------------------------------------- table


def means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Means over seeds; the better view is the one with the better mean."""
    found = {column: float(np.mean([row[column] for row in rows])) for column in COLUMNS if column != BETTER}
    return found | {BETTER: max(found["graph"], found["mixture"])}


def table(stored: Mapping[str, Any], part: str) -> str:
    """A Markdown table of the data sets that were run, their mean, and what the targets ask."""
    scores = {name: means(stored[name][part]) for name in (*TEN, *NINE) if name in stored}
    lines = [f"| | {' | '.join(COLUMNS)} | auto chose |", f"|---|{'---|' * (len(COLUMNS) + 1)}"]
    for name, row in scores.items():
        seeds = stored[name][part]
        chosen = [each["chosen"] for each in seeds]
        why = f"{' / '.join(dict.fromkeys(chosen))}: {seeds[0]['why']}"
        lines.append(f"| {name} | {' | '.join(f'{row[column]:.1f}' for column in COLUMNS)} | {why} |")
    for title, names in (("mean of the ten", TEN), ("mean of the nine", NINE), ("mean", (*TEN, *NINE))):
        rows = [scores[name] for name in names if name in scores]
        if rows:
            of = " | ".join(f"{np.mean([row[column] for row in rows]):.1f}" for column in COLUMNS)
            lines.append(f"| **{title}** ({len(rows)}) | {of} | |")
    gap = np.mean([row[BETTER] - row["auto"] for row in scores.values()])
    below = [
        f"{name} {row[ALONE] - row['auto']:.1f}" for name, row in scores.items() if row[ALONE] - row["auto"] > MARGIN
    ]
    lines += [
        "",
        f"`better view` is picked by labels, for each data set. `auto` is {gap:.2f} points below it. Data sets where "
        f"`auto` is more than {MARGIN:g} below k-means alone: {', '.join(below) or 'none'}.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=(*TEN, *NINE), metavar="NAME", help="this data set anew")
    parser.add_argument("--json", action="store_true", help="print what is stored instead of tables")
    given = parser.parse_args()
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in given.only or (*TEN, *NINE):
        if not given.only and stored.get(name, {}).get("code") == code_digest():
            continue
        found = run(name)
        stored = (json.loads(RESULTS.read_text()) if RESULTS.exists() else {}) | {name: found}
        RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    if given.json:
        print(json.dumps(stored, indent=1))
        return
    for title, part in (("Training rows", "train"), ("Held-out rows", "held out")):
        print(f"\n{title}, ACC in percent\n\n{table(stored, part)}")


if __name__ == "__main__":
    main()
