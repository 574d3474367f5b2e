"""The rotation that the paper leaves open (docs/paper.md#rotation), and the numbering of the clusters.

The local terms do not change under (F, W) -> (F R, W R) for an orthogonal R, but the tensor norm does. Columns of
different clients are comparable only after each client has been rotated to a common frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..linalg.arrays import Array, cast, double, namespace
from ..linalg.svd import leading_left

OWN_WEIGHT = 0.1  # of a client's own columns against the consensus that it is rotated towards


def procrustes(W: Array, reference: Array) -> Array:
    """Orthogonal R, reflections allowed, with W R nearest to the reference; (d, k), (d, k) -> (k, k).

    Stacks are treated slice by slice: (d, k, m), (d, k, m) -> (k, k, m).
    """
    return nearest_orthogonal(namespace(W).einsum("dk...,dj...->kj...", W, reference))


def nearest_orthogonal(M: Array) -> Array:
    """Polar factor of a square matrix, or of each slice of a stack; (k, k, ...) -> (k, k, ...)."""
    xp = namespace(M)
    U, _, Vh = xp.linalg.svd(xp.moveaxis(M, (0, 1), (-2, -1)), full_matrices=False)
    return xp.moveaxis(U @ Vh, (-2, -1), (0, 1))


def turn_towards(W: Array, Z: Array) -> Array:
    """Rotation of one client's columns towards its consensus, for use in every round; (d, k), (d, k) -> (k, k).

    Stacks are treated slice by slice, as in `procrustes`. W R is never further from Z than W is, and directions that Z
    does not contain stay as they are. The exact minimiser of the augmented Lagrangian, towards Z - Y/rho, would reverse
    a direction that the coupling has shrunk to zero, because the dual there is W itself. The residuals would then never
    close (docs/paper.md#rotation).
    """
    return procrustes(W, Z + OWN_WEIGHT * W)


def generalized_procrustes(W: Array, *, tol: float = 1e-8, max_iter: int = 200) -> Array:
    """Rotations that bring all slices of a stack nearest to their own mean.

    Starts from the leading left singular vectors of [W_1 ... W_m], which no rotation of a client changes, with the
    largest entry of each made positive. Then alternates between mean and rotations. Slices are scaled to unit norm.

    Parameters
    ----------
    W : array of shape (d, k, m)

    Returns
    -------
    array of shape (k, k, m)
        Orthogonal slices R_t, to be applied as W_t R_t.
    """
    xp = namespace(W)
    d, k, m = W.shape
    norm = xp.sqrt(xp.einsum("dkm,dkm->m", W, W))
    size = xp.where(norm > 0, norm, 1.0)
    M = W.reshape(d, k * m)
    reference = cast(leading_left((W / size).reshape(d, k * m), k), W.dtype)
    spread = np.inf
    for _ in range(max_iter):
        R = nearest_orthogonal(xp.moveaxis((reference.swapaxes(0, 1) @ M).reshape(-1, k, m), 0, 1))
        reference = M @ (R / size / m).swapaxes(1, 2).reshape(k * m, k)
        # squared deviations of unit slices from their mean: their squares less those of the mean
        before, spread = spread, float((norm > 0).sum()) - m * float((double(reference) ** 2).sum())
        if spread >= before * (1 - tol):
            break
    return R


def rotate(W: Array, R: Array) -> Array:
    """Slice-wise W_t R_t; (d, k, m), (k, k, m) -> (d, k, m)."""
    xp = namespace(W)
    return xp.moveaxis(xp.moveaxis(W, 2, 0) @ xp.moveaxis(R, 2, 0), 0, 2)


def match_clusters(signatures: Sequence[Array]) -> list[Array]:
    """Give similar clusters of all clients the same number.

    Every client lists its clusters in its own order, largest first. Hungarian assignments to a common reference
    alternate with the mean of the matched clusters. The mean rank over clients then decides the numbers, so that
    number 0 is large in most clients.

    Parameters
    ----------
    signatures : sequence of m arrays of shape (k, q)
        One vector per cluster, comparable between clients.

    Returns
    -------
    list of m int arrays of shape (k,)
        ``order[t][j]`` is the position, in client t's own list, of the cluster with number j.
    """
    unit = [S / np.maximum(np.linalg.norm(S, axis=1, keepdims=True), np.finfo(S.dtype).tiny) for S in signatures]
    starts = unit[: min(len(unit), 8)]
    _, orders = max((_match_to(unit, start) for start in starts), key=lambda found: found[0])
    ranks = np.mean(orders, axis=0)  # of each cluster of the reference: its mean rank in the clients' own lists
    best = np.lexsort((orders[0], ranks))  # equal mean ranks: as in the first client
    return [order[best] for order in orders]


def _match_to(unit: Sequence[Array], reference: Array) -> tuple[float, list[Array]]:
    """Match every client to a reference, then improve both in turn; (total similarity, orders)."""
    from scipy.optimize import linear_sum_assignment

    total, orders = -np.inf, [np.arange(len(reference))] * len(unit)
    for _ in range(20):
        found = [linear_sum_assignment(-(reference @ S.T))[1] for S in unit]
        matched = np.stack([S[order] for S, order in zip(unit, found, strict=True)])
        mean = matched.mean(axis=0)
        similarity = float(np.square(mean).sum())
        if similarity <= total * (1 + 1e-9):
            break
        total, orders, reference = similarity, found, mean
    return total, orders
