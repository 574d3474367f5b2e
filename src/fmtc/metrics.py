"""Agreement of a clustering with known classes: ACC, NMI, RI and ARI, per client, averaged and pooled.

Labels are used for scoring only; nothing in `fmtc` is fitted on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, rand_score
from sklearn.metrics.cluster import contingency_matrix

from .errors import InputError

__all__ = ["AVERAGES", "clustering_accuracy", "clustering_scores", "match_classes", "score_silos"]

AVERAGES = ("mean", "weighted", "pooled")


def _check_labels(**columns: Any) -> None:
    """Raise `InputError` unless all lists hold one value for each row, of at least one row."""
    shapes = {name: np.shape(column) for name, column in columns.items()}
    (first, shape), *others = shapes.items()
    if len(shape) != 1:
        raise InputError(f"{first} has shape {shape}; give one label for each row")
    for name, other in others:
        if other != shape:
            n = other[0] if len(other) == 1 else f"shape {other}"
            raise InputError(f"{first} has {shape[0]} labels and {name} has {n}: both need one for each row")
    if shape == (0,):
        raise InputError("there are no labels to compare: both lists are empty")


def match_classes(labels_true: Any, labels_pred: Any) -> dict[Any, Any]:
    """The class of each cluster under the one-to-one matching in which most rows agree.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Any labels; their number may differ. If there are more clusters than classes, some match none and are omitted.

    Returns
    -------
    dict of cluster to class

    Examples
    --------
    >>> from fmtc.metrics import match_classes
    >>> match_classes(["a", "a", "b", "b"], [1, 1, 0, 1])
    {1: 'a', 0: 'b'}
    """
    _check_labels(labels_true=labels_true, labels_pred=labels_pred)
    classes, clusters = np.unique(labels_true), np.unique(labels_pred)
    rows, columns = linear_sum_assignment(-contingency_matrix(labels_true, labels_pred))
    return dict(zip(clusters[columns].tolist(), classes[rows].tolist(), strict=True))


def clustering_accuracy(labels_true: Any, labels_pred: Any, *, matching: Mapping[Any, Any] | None = None) -> float:
    """Share of rows that agree under the best one-to-one matching of clusters to classes (ACC).

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Any labels; their number may differ.
    matching : mapping of cluster to class, optional
        A matching that `match_classes` found on other rows. Rows of a cluster that it does not name count as wrong.

    Returns
    -------
    float between 0 and 1

    Examples
    --------
    >>> from fmtc.metrics import clustering_accuracy
    >>> clustering_accuracy(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.75
    >>> clustering_accuracy(["a", "b"], [0, 1], matching={0: "b", 1: "a"})
    0.0
    """
    _check_labels(labels_true=labels_true, labels_pred=labels_pred)
    table = contingency_matrix(labels_true, labels_pred)
    if matching is None:
        rows, columns = linear_sum_assignment(-table)
        return float(table[rows, columns].sum() / table.sum())
    classes, clusters = np.unique(labels_true).tolist(), np.unique(labels_pred).tolist()
    place = {label: i for i, label in enumerate(classes)}
    agree = [table[place[matching[c]], j] for j, c in enumerate(clusters) if matching.get(c) in place]
    return float(sum(agree) / table.sum())


def clustering_scores(labels_true: Any, labels_pred: Any) -> dict[str, float]:
    """ACC, NMI (arithmetic mean), Rand index and adjusted Rand index, with two baselines for the Rand index.

    ``ri_one_cluster`` is the Rand index of a single cluster with all rows, and ``ri_independent`` the expected Rand
    index of clusters of the same sizes that are independent of the classes. A Rand index near either says nothing.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)

    Returns
    -------
    dict with keys acc, nmi, ri, ari, ri_one_cluster and ri_independent
        ``ari`` is at most 1, the others lie between 0 and 1. ``ri_one_cluster`` is 1 for a single row.

    Examples
    --------
    >>> from fmtc.metrics import clustering_scores
    >>> scores = clustering_scores([0, 0, 0, 1], [0, 0, 0, 0])
    >>> scores["acc"], scores["ri"], scores["ri_one_cluster"], scores["ari"]
    (0.75, 0.5, 0.5, 0.0)
    """
    _check_labels(labels_true=labels_true, labels_pred=labels_pred)
    n = len(labels_true)
    sizes = [np.unique(labels, return_counts=True)[1] for labels in (labels_true, labels_pred)]
    P, Q = (float(np.square(count / n).sum()) for count in sizes)
    together = float((sizes[0] * (sizes[0] - 1)).sum() / (n * (n - 1))) if n > 1 else 1.0
    return {
        "acc": clustering_accuracy(labels_true, labels_pred),
        "nmi": float(normalized_mutual_info_score(labels_true, labels_pred)),
        "ri": float(rand_score(labels_true, labels_pred)),
        "ari": float(adjusted_rand_score(labels_true, labels_pred)),
        "ri_one_cluster": together,
        "ri_independent": P * Q + (1 - P) * (1 - Q),
    }


def score_silos(labels_true: Any, labels_pred: Any, clients: Any) -> dict[str, dict[str, float]]:
    """`clustering_scores` of each client, and three summaries.

    ``"mean"`` gives every client the same weight and is what tables show. ``"weighted"`` weights clients by their rows.
    ``"pooled"`` scores all rows at once, which requires that a cluster number means the same everywhere.

    Parameters
    ----------
    labels_true, labels_pred, clients : array-like of shape (n,)

    Returns
    -------
    dict of client id, ``"mean"``, ``"weighted"`` and ``"pooled"`` to dict of scores

    Examples
    --------
    >>> from fmtc.metrics import score_silos
    >>> scores = score_silos([0, 0, 1, 1], [1, 1, 0, 1], ["a", "a", "b", "b"])
    >>> scores["a"]["acc"], scores["b"]["acc"], scores["mean"]["acc"]
    (1.0, 0.5, 0.75)
    """
    _check_labels(labels_true=labels_true, labels_pred=labels_pred, silos=clients)
    labels_true, labels_pred, clients = (np.asarray(a) for a in (labels_true, labels_pred, clients))
    ids, sizes = np.unique(clients, return_counts=True)
    taken = sorted(set(AVERAGES) & set(map(str, ids)))
    if taken:
        raise InputError(f"a silo is called {taken[0]!r}, the name of a summary of all silos; rename it")
    scores = {str(cid): clustering_scores(labels_true[clients == cid], labels_pred[clients == cid]) for cid in ids}
    table = np.array([list(line.values()) for line in scores.values()])
    pooled = clustering_scores(labels_true, labels_pred)
    for name, weights in (("mean", None), ("weighted", sizes)):
        values = np.average(table, axis=0, weights=weights).tolist()
        scores[name] = dict(zip(pooled, values, strict=True))
    return scores | {"pooled": pooled}
