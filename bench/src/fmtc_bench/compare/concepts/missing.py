"""Silos that lack classes: clusters of each silo, and their numbers across silos."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmtc import Graph
from fmtc.estimator import FMTC
from fmtc.metrics import clustering_accuracy
from fmtc.schema import Encoded

from ...datasets import FederatedDataset, load, missing_classes
from . import Listener, Row

TITLE = "Silos that lack classes"
ROWS = 400  # of a silo, at most

# silos, and classes of each: three of the design, and three dealings of our own
DEALS = {"digits": (8, 6), "bbcnews": (5, 3), "bbcsport": (5, 3), "coil20": (5, 12), "20newsgroups": (5, 3),
         "penguins": (4, 2)}  # fmt: skip
FURTHER = {"gas_drift": (5, 4), "reuters": (5, 3), "webkb4": (5, 3), "wisdm": (6, 4), "vowels_h95": (5, 7)}

Build = Callable[[Mapping[str, int], int, int], FMTC]  # clusters of each silo, concepts, seed


def _graph(coupling: str) -> Build:
    graph = Graph(coupling=coupling)
    return lambda own, K, seed: FMTC(K, clusters_per_silo=own, view="graph", graph=graph, random_state=seed)


METHODS: dict[str, Build] = {
    "all K everywhere": lambda own, K, seed: FMTC(K, view="graph", random_state=seed),
    "k_t, numbers by size": lambda own, K, seed: FMTC(max(own.values()), view="graph", random_state=seed),
    "alone, matched": lambda own, K, seed: FMTC(
        K, clusters_per_silo=own, view="graph", graph=Graph(beta=0), random_state=seed),
    "tensor, matched": _graph("tensor"),
    "subspace, matched": _graph("subspace"),
    "average, matched": _graph("average"),
    "mixture, K only": lambda own, K, seed: FMTC(K, clusters_per_silo="auto", view="mixture", random_state=seed),
    "mixture, k_t": lambda own, K, seed: FMTC(K, clusters_per_silo=own, view="mixture", random_state=seed),
    "auto, k_t": lambda own, K, seed: FMTC(K, clusters_per_silo=own, random_state=seed),
}  # fmt: skip


def dealt(name: str, n_clients: int, n_classes: int, seed: int, rows: int = ROWS) -> FederatedDataset:
    """A data set whose classes are dealt to silos that lack some; at most so many rows of a silo, words weighted."""
    data = load(name)
    clients = missing_classes(data.y, n_clients, n_classes, random_state=seed)
    rng = np.random.default_rng(seed)
    kept = [np.sort(rng.permutation(np.flatnonzero(clients == cid))[:rows]) for cid in np.unique(clients)]
    data = replace(data, clients=clients).take(np.concatenate(kept))
    return data.prepared() if data.recipe == "tfidf" else replace(data, recipe="none")


def score(data: FederatedDataset, labels: np.ndarray) -> tuple[float, float, float]:
    """Mean ACC of silos, ACC under one matching for all rows of all silos, mean number of clusters in use."""
    own, used = [], []
    for cid in data.client_ids:
        mine = data.clients == cid
        own.append(clustering_accuracy(data.y[mine], labels[mine]))
        used.append(len(np.unique(labels[mine])))
    return 100 * float(np.mean(own)), 100 * clustering_accuracy(data.y, labels), float(np.mean(used))


def measure(seeds: Sequence[int], listen: Listener) -> list[Row]:
    """Every method on every dealing and seed."""
    rows: list[Row] = []
    for name, (n_clients, n_classes) in (DEALS | FURTHER).items():
        for seed in seeds:
            data = dealt(name, n_clients, n_classes, seed)
            own = dict.fromkeys(data.client_ids, n_classes)
            X = data.X if data.schema is None else Encoded(data.X, data.schema)
            for method, build in METHODS.items():
                listen(f"{name}, seed {seed}: {method}")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = build(own, data.n_clusters, seed).fit(X, silos=data.clients)
                acc, common, used = score(data, model.labels_)
                rows.append(
                    {"dataset": name, "target": name in DEALS, "seed": seed, "method": method, "acc": round(acc, 2),
                     "global_acc": round(common, 2), "clusters": round(used, 2), "classes": n_classes,
                     "view": model.view_}
                )  # fmt: skip
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Mean ACC of silos and global ACC, over seeds; the last columns are means over data sets."""
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    held = [name for name in names if name in DEALS]
    lines = [f"| ACC of silos / global ACC | {' | '.join(names)} | mean of {len(held)} | mean of all |"]
    lines.append("|---" * (len(names) + 3) + "|")
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {
            name: [(row["acc"], row["global_acc"]) for row in rows if (row["dataset"], row["method"]) == (name, method)]
            for name in names
        }
        cells = [np.mean(mine[name], axis=0) for name in names]
        means = [np.mean([np.mean(mine[name], axis=0) for name in some], axis=0) for some in (held, names) if some]
        lines.append(f"| {method} | " + " | ".join(f"{a:.1f} / {g:.1f}" for a, g in [*cells, *means]) + " |")
    return lines
