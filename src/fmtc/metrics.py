"""Agreement of a clustering with known classes: ACC, NMI and RI, per client and averaged.

Labels are used here for scoring only; nothing in `fmtc` fits on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score, rand_score
from sklearn.metrics.cluster import contingency_matrix

__all__ = ["clustering_accuracy", "score_clients"]


def clustering_accuracy(labels_true: Any, labels_pred: Any) -> float:
    """Share of rows that agree under the best one-to-one matching of clusters to classes (ACC).

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Any labels; their number may differ.

    Returns
    -------
    float between 0 and 1

    Examples
    --------
    >>> from fmtc.metrics import clustering_accuracy
    >>> clustering_accuracy(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.75
    """
    table = contingency_matrix(labels_true, labels_pred)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / table.sum())


def score_clients(labels_true: Any, labels_pred: Any, clients: Any) -> dict[str, dict[str, float]]:
    """ACC, NMI (arithmetic mean) and Rand index of each client, and their unweighted mean under ``"mean"``.

    Parameters
    ----------
    labels_true, labels_pred, clients : array-like of shape (n,)

    Returns
    -------
    dict of client id to dict with keys ``acc``, ``nmi`` and ``ri``, all between 0 and 1

    Examples
    --------
    >>> from fmtc.metrics import score_clients
    >>> scores = score_clients([0, 0, 1, 1], [1, 1, 0, 1], ["a", "a", "b", "b"])
    >>> scores["a"]["acc"], scores["b"]["acc"], scores["mean"]["acc"]
    (1.0, 0.5, 0.75)
    """
    labels_true, labels_pred, clients = map(np.asarray, (labels_true, labels_pred, clients))
    scores: dict[str, dict[str, float]] = {}
    for cid in np.unique(clients):
        rows = clients == cid
        truth, found = labels_true[rows], labels_pred[rows]
        scores[str(cid)] = {
            "acc": clustering_accuracy(truth, found),
            "nmi": float(normalized_mutual_info_score(truth, found)),
            "ri": float(rand_score(truth, found)),
        }
    scores["mean"] = {name: float(np.mean([s[name] for s in scores.values()])) for name in ("acc", "nmi", "ri")}
    return scores
