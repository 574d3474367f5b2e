"""What a client makes of the public model at home: labels that follow its own neighbours, and whether to use it at all.

Nothing here leaves the client.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..linalg.neighbors import nearest_neighbors

Array = np.ndarray

PULL = 0.3  # of the public labels, against the own neighbour graph
STEPS = 60
OWN_ROWS = 5  # near an anchor, before the client's own labels decide about it
NEIGHBORS = 5
KEEP = 0.85  # the public model stays if it has so many neighbours inside clusters, for each of the model alone
SHARE_STEPS, PRIOR_ROWS = 20, 5.0
HELD_BACK = 5  # one row in so many judges


def spread(labels: Array, k: int, laplacian: Any) -> Array:
    """Public labels drawn along the client's own neighbour graph; (n,) -> (n,).

    Minimises Tr(F'LF) + 0.3 |F - F0|², F0 the public indicator over sqrt(cluster size), by 60 gradient steps; the
    largest entry of a row decides.
    """
    start = np.zeros((len(labels), k))
    start[np.arange(len(labels)), labels] = 1
    start /= np.sqrt(np.maximum(start.sum(axis=0), 1))
    F = start
    for _ in range(STEPS):
        F = F - (laplacian @ F + PULL * (F - start)) / (2 + PULL)
    return F.argmax(axis=1)


def relabelled(anchor_labels: Array, near: Array, labels: Array, k: int) -> Array:
    """Cluster of each anchor by the client's own labels of the rows nearest to it, where there are at least five."""
    votes = np.zeros((len(anchor_labels), k))
    np.add.at(votes, (near, labels), 1)
    return np.where(votes.sum(axis=1) >= OWN_ROWS, votes.argmax(axis=1), anchor_labels)


def closed(X: Array, labels: Array) -> float:
    """Share of the five nearest neighbours in the same cluster, beyond what cluster sizes alone give."""
    count = min(NEIGHBORS, len(X) - 1)
    if count < 1:
        return 0.0
    _, neighbor = nearest_neighbors(X, count)
    sizes = np.bincount(labels) / len(labels)
    chance = float((sizes**2).sum())
    return float(((labels[neighbor] == labels[:, None]).mean() - chance) / max(1 - chance, 1e-9))


def keeps_public(X: Array, public: Array, alone: Array) -> tuple[bool, float]:
    """Whether the public labels of rows held back are nearly as closed as those of the model alone, and the ratio."""
    ours, own = closed(X, public), closed(X, alone)
    ratio = ours / own if own > 0 else float("inf") if ours >= 0 else 0.0
    return ratio >= KEEP, ratio


def held_back(n: int, seed: int) -> Array:
    """Which rows judge; (n,) of bool."""
    judge = np.zeros(n, bool)
    judge[np.random.default_rng([seed, 3]).permutation(n)[: n // HELD_BACK]] = True
    return judge


def own_shares(scores: Array, shares: Array) -> Array:
    """The client's own shares of the components of a mixture, drawn to the public ones by five rows' worth.

    Parameters
    ----------
    scores : array of shape (n, k)
        Log of public share times density.
    shares : array of shape (k,)
    """
    public = np.maximum(shares, 1e-12) / np.maximum(shares, 1e-12).sum()
    density, found = scores - np.log(public), public
    for _ in range(SHARE_STEPS):
        P = density + np.log(found)
        P = np.exp(P - P.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        found = (P.sum(axis=0) + PRIOR_ROWS * public) / (len(P) + PRIOR_ROWS)
    return found
