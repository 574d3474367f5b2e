"""Signs that tell without labels which view suits a data set, on the federations of `views.py` with many columns.

    FMTC_DATA=folder python bench/benchmarks/signals.py

Tables of at most 50 columns are the mixture's (`views.py` shows what that is worth); here are the others, and four ways
to choose:

columns         always the graph view
neighbours      `view="auto"`: the mixture if it keeps 5 % more neighbours together than the graph view of a silo alone
replicability   models of single silos label each other's rows; the mixture if its labels agree better by 0.05 (ARI)
likelihood      of rows held out, under Gaussians about the clusters of either view, in the same principal axes

At most 300 rows of a silo and six silos, one seed. ACC in percent on training rows; labels score and pick nothing, but
for the column `better view`.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import views
from fmtc import FMTC
from fmtc_bench.datasets import FederatedDataset

RESULTS = Path(__file__).parent / "results" / "signals.json"
ROWS, SILOS, FEW = 300, 6, 50
MIN_GAIN, MIN_ENTROPY = 0.05, 0.65
Array = np.ndarray


def replicability(data: FederatedDataset, view: str) -> float:
    """Agreement (ARI) of a silo's own labels with those that the models of other silos give its rows; mean of pairs."""
    ids = data.client_ids
    rows = {cid: data.X[data.clients == cid] for cid in ids}
    models = {cid: FMTC(data.n_clusters, view=view, random_state=0).fit(rows[cid]) for cid in ids}
    return float(
        np.mean([
            adjusted_rand_score(models[b].labels_, models[a].predict(rows[b])) for a in ids for b in ids if a != b
        ])
    )  # fmt: skip


def entropy(labels: Array, clients: Array, k: int) -> float:
    """Of cluster sizes, 1 for equal ones; mean of silos."""
    found = []
    for cid in np.unique(clients):
        share = np.bincount(labels[clients == cid], minlength=k) / (clients == cid).sum()
        share = share[share > 0]
        found.append(-(share * np.log(share)).sum() / np.log(k))
    return float(np.mean(found))


def held_out_likelihood(data: FederatedDataset, labels: Array) -> float:
    """Log-density of a fifth of the rows under Gaussians of common shape about the clusters of the others, per row."""
    k, found = data.n_clusters, []
    r = int(np.clip(2 * k, 10, 40))
    reduce = TruncatedSVD(r, random_state=0) if sp.issparse(data.X) else PCA(r, random_state=0)
    Z = reduce.fit_transform(data.X)
    held = np.random.default_rng(0).random(len(labels)) < 0.2
    for cid in data.client_ids:
        train, new = (data.clients == cid) & ~held, (data.clients == cid) & held
        known = [j for j in range(k) if (labels[train] == j).any()]
        means = np.array([Z[train & (labels == j)].mean(axis=0) for j in known])
        near = np.searchsorted(known, labels[train])
        gaps = Z[train] - means[near]
        S = gaps.T @ gaps / len(gaps) + 0.01 * np.trace(np.cov(Z[train].T)) / r * np.eye(r)
        shares = np.bincount(near) / len(near)
        logs = np.column_stack([multivariate_normal.logpdf(Z[new], mean, S) for mean in means]) + np.log(shares)
        found.append(logsumexp(logs, axis=1).mean())
    return float(np.mean(found))


def measured(name: str) -> dict[str, Any] | None:
    """Scores of both views and what each sign says; None for a table of few columns."""
    data, _ = views.read(name)
    if data.X.shape[1] <= FEW:
        return None
    data = views.capped(data, ROWS, SILOS)
    none, k = data.take(np.arange(0)), data.n_clusters
    models = {view: FMTC(k, view=view, random_state=0).fit(data.X, silos=data.clients) for view in ("graph", "mixture")}
    scores = {view: views.score(data, model.labels_, none, None) for view, model in models.items()}
    chosen = FMTC(k, random_state=0).fit(data.X, silos=data.clients)
    again = {view: replicability(data, view) for view in models}
    even = entropy(models["mixture"].labels_, data.clients, k) >= MIN_ENTROPY
    density = {view: held_out_likelihood(data, model.labels_) for view, model in models.items()}
    picked = {
        "columns": "graph",
        "neighbours": chosen.view_,
        "replicability": "mixture" if again["mixture"] >= again["graph"] + MIN_GAIN and even else "graph",
        "likelihood": max(density, key=density.__getitem__),
        "better view": max(scores, key=scores.__getitem__),
    }
    return {"scores": scores, "picked": picked, "replicability": again, "likelihood": density}


def table(found: dict[str, Any]) -> str:
    """Markdown: what each sign picks, and what that is worth."""
    rules = ("columns", "neighbours", "replicability", "likelihood", "better view")
    lines = [f"| | graph | mixture | {' | '.join(rules)} |", f"|---|{'---|' * (len(rules) + 2)}"]
    worth: dict[str, list[float]] = {rule: [] for rule in rules}
    for name, one in found.items():
        for rule in rules:
            worth[rule].append(one["scores"][one["picked"][rule]])
        scores = " | ".join(f"{one['scores'][view]:.1f}" for view in ("graph", "mixture"))
        lines.append(f"| {name} | {scores} | {' | '.join(one['picked'][rule] for rule in rules)} |")
    both = " | ".join(
        f"{np.mean([one['scores'][view] for one in found.values()]):.1f}" for view in ("graph", "mixture")
    )
    lines.append(f"| **mean** | {both} | {' | '.join(f'{np.mean(worth[rule]):.1f}' for rule in rules)} |")
    return "\n".join(lines)


def main() -> None:
    found = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (*views.TEN, *views.NINE):
            one = measured(name)
            if one is not None:
                found[name] = one
                print(name, one["scores"], one["picked"], file=sys.stderr, flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
