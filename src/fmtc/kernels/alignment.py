"""The rotation that the paper leaves open (docs/paper.md#rotation), and the numbering of the clusters.

The local terms do not change under (F, W) -> (F R, W R) for an orthogonal R, but the tensor norm does. Columns of
different clients are comparable only after each client has been rotated to a common frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


# -------------------------------------------------------------------------------------- is this the same cluster?
#
# Where rows are at hand, the same cluster is the one that shares most rows: `same_rows`. Elsewhere it is known by its
# place, in a frame that both have: `same_place`. Many clients at once have no first among them: `match_clusters` gives
# all the same numbers, `match_concepts` also where some lack clusters, and `propose_concepts` says how many there may
# be. `likeness` says afterwards how sure that is. Truth is matched in `fmtc.metrics`, by rows and with any names.


def same_rows(labels: Array, others: Array, k: int, m: int) -> Array:
    """Which of m other clusters takes each of k numbers: those that share most rows, one to one.

    Parameters
    ----------
    labels, others : int array of shape (n,)
        Two clusterings of the same rows.
    k, m : int
        Their numbers of clusters.

    Returns
    -------
    int array of shape (k,)
        -1 where none is left for a number.
    """
    shared = np.zeros((k, m))
    np.add.at(shared, (labels, others), 1)
    return _one_to_one(shared)


def same_place(centers: Array, frame: Array) -> Array:
    """Which cluster takes each number of a frame: those whose centres have the largest product; (k, q), (K, q) -> (K,).

    There are as many numbers as clusters, or fewer.
    """
    return _one_to_one(frame @ centers.T)


def _one_to_one(likeness: Array) -> Array:
    """Which column each row takes, each another one, so that the sum is largest; -1 where none is left."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(-likeness)
    taken = np.full(len(likeness), -1)
    taken[rows] = columns
    return taken


@dataclass(frozen=True, eq=False)
class Likeness:
    """How like the clusters of the same number are; one row for each client."""

    met: Array  # m x k of bool: other clients have it, and agree on a direction
    cosine: Array  # m x k, to the mean of the other clients' clusters of that number; 0 without any
    lead: Array  # m x k, over the second number


def has_direction(signatures: Array) -> Array:
    """Which vectors are not next to nothing beside the others; (..., f) -> (...) of bool."""
    norm = np.linalg.norm(signatures, axis=-1)
    return norm > 1e-12 * max(float(norm.max(initial=0.0)), 1e-300)


def likeness(signatures: Array, counted: Array) -> Likeness:
    """Compare the clusters of each client with the mean of the same ones, and of all others, at the other clients.

    Parameters
    ----------
    signatures : array of shape (m, k, f)
        One vector per cluster, comparable between clients.
    counted : bool array of shape (m, k)
        Clusters that the others are compared with.
    """
    norm, known = np.linalg.norm(signatures, axis=2), has_direction(signatures)
    U = np.where(known[:, :, None], signatures / np.where(known, norm, 1.0)[:, :, None], 0.0)
    whole = (U * counted[:, :, None]).sum(axis=0)  # k x f
    m, k = known.shape
    met, cosine, lead = np.zeros((m, k), bool), np.zeros((m, k)), np.zeros((m, k))
    for t in range(m):
        rest = whole - U[t] * counted[t][:, None]
        length = np.linalg.norm(rest, axis=1)
        met[t] = (counted.sum(axis=0) - counted[t] > 0) & (length > 1e-9)
        found = np.where(met[t], (U[t] @ rest.T) / np.where(met[t], length, 1.0), 0.0)  # k x k
        cosine[t] = np.where(met[t], (U[t] * rest).sum(axis=1) / np.where(met[t], length, 1.0), 0.0)
        other = np.where(met[t] & ~np.eye(k, dtype=bool), found, -1.0)
        lead[t] = cosine[t] - (other.max(axis=1) if k > 1 else -1.0)
    return Likeness(met, cosine, lead)


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
    unit = _units(signatures)
    starts = unit[: min(len(unit), 8)]
    _, orders = max((_match_to(unit, start) for start in starts), key=lambda found: found[0])
    ranks = np.mean(orders, axis=0)  # of each cluster of the reference: its mean rank in the clients' own lists
    best = np.lexsort((orders[0], ranks))  # equal mean ranks: as in the first client
    return [order[best] for order in orders]


def _match_to(unit: Sequence[Array], reference: Array) -> tuple[float, list[Array]]:
    """Match every client to a reference, then improve both in turn; (total similarity, orders)."""
    total, orders = -np.inf, [np.arange(len(reference))] * len(unit)
    for _ in range(20):
        found = [same_place(S, reference) for S in unit]
        matched = np.stack([S[order] for S, order in zip(unit, found, strict=True)])
        mean = matched.mean(axis=0)
        similarity = float(np.square(mean).sum())
        if similarity <= total * (1 + 1e-9):
            break
        total, orders, reference = similarity, found, mean
    return total, orders


RESTARTS = 30  # of the matching, each from other clusters
STEPS = 50  # of one of them, at most


def match_concepts(signatures: Sequence[Array], n_concepts: int, seed: int = 0) -> list[Array]:
    """Give similar clusters of all clients the same number, where clients may lack concepts.

    Hungarian assignments, each cluster of a client to another concept, alternate with the unit mean of each concept's
    clusters. Starts are the clusters of clients that have as many as there are concepts, and draws among all clusters
    that favour those unlike the ones drawn before (k-means++). The start with the largest sum of cosines wins.
    Number 0 is large in many clients.

    Parameters
    ----------
    signatures : sequence of m arrays of shape (k_t, q)
        One vector per cluster, comparable between clients; the largest cluster of a client first.
    n_concepts : int
        At least every k_t.
    seed : int

    Returns
    -------
    list of m int arrays of shape (n_concepts,)
        ``order[t][j]`` is the position, in client t's own list, of the cluster with number j; -1 where it has none.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.alignment import match_concepts
    >>> a, b, c = np.eye(3)
    >>> [order.tolist() for order in match_concepts([np.array([a, b]), np.array([c, a])], 3)]
    [[0, -1, 1], [1, 0, -1]]
    """
    unit = _in_few_columns(_units(signatures))
    everything, rng = np.vstack(unit), np.random.default_rng([seed, 5])
    starts = [S for S in unit if len(S) == n_concepts][:8]
    starts += [_unlike(everything, n_concepts, rng) for _ in range(RESTARTS)]
    _, found = max((_matched(unit, start) for start in starts), key=lambda result: result[0])
    size = np.zeros(n_concepts)
    for numbers in found:
        size[numbers] += 1 - np.arange(len(numbers)) / len(numbers)  # 1 for the largest cluster of a client
    first = np.full(n_concepts, len(everything))
    for place, number in reversed(list(enumerate(np.concatenate(found)))):
        first[number] = place
    new = np.argsort(np.lexsort((first, -np.round(size, 9))))
    return [_order(new[numbers], n_concepts) for numbers in found]


SAME = 0.25  # mean cosine below which clusters of different clients are not the same concept


def propose_concepts(signatures: Sequence[Array]) -> int:
    """How many concepts clusters of several clients may be: a proposal, for where nobody knows it.

    Average linkage by cosine; two clusters of one client are never the same concept.

    Parameters
    ----------
    signatures : sequence of m arrays of shape (k_t, q)

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.alignment import propose_concepts
    >>> a, b, c = np.eye(3)
    >>> propose_concepts([np.array([a, b]), np.array([c, a])])
    3
    """
    rows = np.vstack(_in_few_columns(_units(signatures)))
    owner = np.repeat(np.arange(len(signatures)), [len(S) for S in signatures])
    sums, size = rows.copy(), np.ones(len(rows))
    members = owner[:, None] == np.arange(len(signatures))  # which clients have a cluster in the group
    while len(sums) > 1:
        likeness = (sums @ sums.T) / np.outer(size, size)
        likeness[(members.astype(float) @ members.T) > 0] = -np.inf
        a, b = np.unravel_index(int(likeness.argmax()), likeness.shape)
        if likeness[a, b] < SAME:
            break
        sums[a] += sums[b]
        size[a] += size[b]
        members[a] |= members[b]
        sums, size, members = (np.delete(part, b, axis=0) for part in (sums, size, members))
    return len(sums)


def numbers_of(order: Array) -> Array:
    """The number of each cluster of a client, from the cluster that takes each number, -1 for none; (K,) -> (k,)."""
    have = np.flatnonzero(order >= 0)
    numbers = np.empty(len(have), np.int64)
    numbers[order[have]] = have
    return numbers


def widening(centers: Array, order: Array) -> Array:
    """From a client's own frame to one with an axis for each concept; (k, k), (K,) -> (k, K), orthonormal rows.

    The axis of a concept is as near to the client's centre of it as orthogonal axes can be. Axes of concepts that the
    client lacks are zero.
    """
    P = np.zeros((len(centers), len(order)))
    P[:, numbers_of(order)] = nearest_orthogonal(np.asarray(centers, dtype=np.float64).T)
    return P


def _order(numbers: Array, n_concepts: int) -> Array:
    order = np.full(n_concepts, -1)
    order[numbers] = np.arange(len(numbers))
    return order


def _units(signatures: Sequence[Array]) -> list[Array]:
    return [S / np.maximum(np.linalg.norm(S, axis=1, keepdims=True), np.finfo(S.dtype).tiny) for S in signatures]


def _in_few_columns(parts: Sequence[Array]) -> list[Array]:
    """Rows with the same inner products, and no more columns than there are rows."""
    rows = np.vstack(parts)
    if rows.shape[1] > rows.shape[0]:
        lam, V = np.linalg.eigh(rows @ rows.T)
        rows = V * np.sqrt(np.maximum(lam, 0))
    return np.split(rows, np.cumsum([len(part) for part in parts])[:-1])


def _unlike(rows: Array, n: int, rng: np.random.Generator) -> Array:
    """Some of the rows, drawn one after the other; one unlike those drawn before is more likely."""
    chosen = [int(rng.integers(len(rows)))]
    for _ in range(n - 1):
        gap = np.maximum(1 - (rows @ rows[chosen].T).max(axis=1), 1e-12)
        chosen.append(int(rng.choice(len(rows), p=gap / gap.sum())))
    return rows[chosen]


def _matched(unit: Sequence[Array], reference: Array) -> tuple[float, list[Array]]:
    """Match every client to a reference, then improve both in turn; (sum of cosines, number of each cluster)."""
    total, best = -np.inf, [np.arange(len(S)) for S in unit]
    for _ in range(STEPS):
        found = [same_place(reference, S) for S in unit]
        sums = np.zeros_like(reference)
        for S, numbers in zip(unit, found, strict=True):
            sums[numbers] += S
        length = np.linalg.norm(sums, axis=1, keepdims=True)
        similarity = float(length.sum())  # each cluster's cosine with its concept, summed
        if similarity <= total * (1 + 1e-9):
            break
        total, best = similarity, found
        reference = np.where(length > 0, sums / np.maximum(length, np.finfo(float).tiny), reference)
    return total, best
