"""What a client makes of the public model at home: labels that follow its own neighbours, and whether to use it at all.

Nothing here leaves the client.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.records import nearest
from ...linalg.neighbors import nearest_neighbors
from ..base import Array
from ..home import beyond_chance
from .released import weighted_kmeans

PULL = 0.3  # of the public labels, against the own neighbour graph
STEPS = 60
OWN_ROWS = 5  # near a public anchor, before own ones take its place
ROWS_AN_ANCHOR, MIN_ROWS = 10, 3  # of the client's own anchors
NEIGHBORS = 5
KEEP = 0.85  # the public model stays if it is at least so good, for each unit of the model alone
SHARE_STEPS, PRIOR_ROWS = 20, 5.0
HELD_BACK = 5  # one row in so many judges


def spread(labels: Array, k: int, laplacian: Any) -> Array:
    """Public labels drawn along the client's own neighbour graph; (n,) -> (n,).

    Minimises ``Tr(FᵀLF) + 0.3 ||F - F0||²``, F0 the public indicator over sqrt(cluster size), by 60 gradient steps; the
    largest entry of a row decides.
    """
    start = np.zeros((len(labels), k))
    start[np.arange(len(labels)), labels] = 1
    start /= np.sqrt(np.maximum(start.sum(axis=0), 1))
    F = start
    for _ in range(STEPS):
        F = F - (laplacian @ F + PULL * (F - start)) / (2 + PULL)
    return F.argmax(axis=1)


def own_anchors(E: Array, labels: Array, anchors: Array, clusters: Array, seed: int) -> tuple[Array, Array]:
    """Anchors that follow the client's own labels: one for about ten of its rows, and the public ones where it has few.

    Each own anchor is the mean of at least three rows. They never leave the client.

    Parameters
    ----------
    E : array of shape (n, r)
        The client's rows in coordinates.
    labels : array of shape (n,)
        Its own labels of them.
    anchors : array of shape (K, r)
        The public ones.
    clusters : array of shape (K,)
        Their clusters.

    Returns
    -------
    anchors : array of shape (K', r)
    clusters : array of shape (K',)
    """
    visited = np.bincount(nearest(E, anchors, 1)[:, 0], minlength=len(anchors)) >= OWN_ROWS
    points, found = [anchors[~visited]], [clusters[~visited]]
    for cluster in np.unique(labels):
        rows = E[labels == cluster]
        centers, place = weighted_kmeans(rows, np.ones(len(rows)), max(1, len(rows) // ROWS_AN_ANCHOR), seed, starts=1)
        keep = np.bincount(place, minlength=len(centers)) >= MIN_ROWS
        centers = centers[keep] if keep.any() else rows.mean(axis=0, keepdims=True)
        points.append(centers)
        found.append(np.full(len(centers), cluster))
    return np.vstack(points), np.concatenate(found).astype(np.int64)


def closed(X: Array, labels: Array, judge: Array) -> float:
    """Share of the five nearest other rows in the cluster of a row held back, beyond what cluster sizes alone give."""
    count = min(NEIGHBORS, int((~judge).sum()))
    _, neighbor = nearest_neighbors(X[~judge], count, X[judge])
    return beyond_chance(float((labels[~judge][neighbor] == labels[judge][:, None]).mean()), labels)


def explained(X: Array, labels: Array, judge: Array) -> float:
    """Share of the variance of rows held back that the means of the other rows of their clusters explain."""
    middle, k = X[~judge].mean(axis=0), int(labels.max()) + 1
    one = np.eye(k)[labels[~judge]]
    counts = one.sum(axis=0)
    means = np.where(counts[:, None] > 0, one.T @ X[~judge] / np.maximum(counts, 1)[:, None], middle)
    total = float(np.square(X[judge] - middle).sum())
    return 1 - float(np.square(X[judge] - means[labels[judge]]).sum()) / total if total > 0 else 0.0


def worth(X: Array, judge: Array, public: Array, alone: Array) -> float:
    """How good the public labels of rows held back are, for each unit of those of a model alone.

    Two measures must agree, because each has a blind spot: clusters that are merged stay closed, and clusters that are
    cut at random places still explain variance.

    Parameters
    ----------
    X : array of shape (n, d)
    judge : array of shape (n,) of bool
        Rows held back, which the model alone did not see.
    public, alone : array of shape (n,)
        Labels of all rows.
    """
    ratios = []
    for measure in (closed, explained):
        ours, own = measure(X, public, judge), measure(X, alone, judge)
        ratios.append(ours / own if own > 0 else 1.0)
    return min(ratios)


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
