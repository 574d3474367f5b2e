"""How much one client may pull the others: a cap on the norm of its projection, and its affinity with the rest.

A client may be broken, or mean harm. What it sends is then large, or points where nobody else's does. Both show in the
stack of projections, and neither depends on how a client has rotated its columns. docs/paper.md#containment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..linalg.stacks import blocks

Array = np.ndarray

# With these limits every run stays as it is, to the bit, where nobody stands out: so on all our data sets
# (docs/paper.md#containment).
FEWEST = 3  # clients that answer: of two that differ, nobody can say which is the odd one
CAP = 1.5  # norm of a projection, in medians of the round
ODD = 0.6  # affinity with the rest, in medians of the round, below which a client is odd
ODD_WEIGHT = 1e-3  # of an odd client's slice in the consensus
DIRECTIONS = 3  # for each cluster, directions of all clients among which those of the rest are sought
MOST_COLUMNS = 1024  # of all slices side by side; of more slices, some are enough to find the common directions
MOST_SLICES = 64  # of which it is computed who pulls whom
FLAT = 1e-12  # squared singular value of a projection, relative to the largest, below which it is no direction


@dataclass(frozen=True)
class Judged:
    """What a round's projections look like beside each other."""

    factors: Array  # m, what each slice is to be multiplied by; exactly 1: leave it as it is
    norms: Array  # m, in medians of the round
    affinity: Array  # m, from 0 to 1; NaN where it was not computed
    capped: Array  # m, bool
    odd: Array  # m, bool


def judge(W: Array, present: list[int] | None = None, *, compare: bool = True, widths: Array | None = None) -> Judged:
    """Which slices of a stack are too large or unlike the rest, and what they are to be multiplied by.

    The norm of a slice is capped at 1.5 times the median norm. Its affinity with the rest is
    ``a_t = ||U'Q_t||²/k``, with Q_t an orthonormal basis of W_t and U the k leading directions of the sum of
    ``Q_u Q_u'`` over all other clients u. A client with ``a_t < 0.6 median(a)`` is odd: its slice counts 1/1000.

    Parameters
    ----------
    W : array of shape (d, k, m)
    present : list of int, optional
        Slices that are of this round; all by default. The others are left alone, and nobody is compared with them.
    compare : bool
        Whether directions are compared, or norms only.
    widths : array of int of shape (m,), optional
        Columns of each slice that are not zero, where they differ: norms are then those of an average column.

    Returns
    -------
    Judged
        Fewer than three slices cannot be told apart: all factors are then 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.containment import judge
    >>> rng = np.random.default_rng(0)
    >>> W = rng.normal(size=(20, 2, 1)) + 0.1 * rng.normal(size=(20, 2, 5))
    >>> W[:, :, 3] *= 1000
    >>> judge(W).capped.nonzero()[0].tolist()
    [3]
    """
    m = W.shape[2]
    among = np.arange(m) if present is None else np.asarray(present, dtype=np.int64)
    found = Judged(np.ones(m), np.full(m, np.nan), np.full(m, np.nan), np.zeros(m, bool), np.zeros(m, bool))
    if len(among) < FEWEST:
        return found
    sizes = slice_norms(W)[among]
    if widths is not None:
        sizes = sizes / np.sqrt(widths[among])
    middle = float(np.median(sizes))
    if not middle > 0:
        return found
    with np.errstate(over="ignore"):
        found.norms[among] = sizes / middle
    found.capped[among] = sizes > CAP * middle
    found.factors[among] = np.where(sizes > CAP * middle, CAP * middle / np.maximum(sizes, middle), 1.0)
    if compare:
        affinity = found.affinity[among] = affinities(W, among, sizes)
        found.odd[among] = affinity < ODD * np.median(affinity)
        found.factors[found.odd] *= ODD_WEIGHT
    return found


def slice_norms(W: Array) -> Array:
    """Frobenius norm of each slice, also where squares would overflow; (d, k, m) -> (m,)."""
    peak = np.zeros(W.shape[2])
    for b in blocks(W):
        np.maximum(peak, np.abs(W[b]).max(axis=(0, 1)), out=peak)
    size, squares = np.where(peak > 0, peak, 1.0), np.zeros(W.shape[2])
    for b in blocks(W):
        squares += ((W[b] / size) ** 2).sum(axis=(0, 1))
    return size * np.sqrt(squares)


def affinities(W: Array, among: Array, sizes: Array) -> Array:
    """How far each of some slices lies in the k leading directions of the others; (d, k, m) -> one number each.

    The directions of the others are sought among the 3 k leading ones of all slices together (of many slices, of some
    of them), which is exact for three slices and needs one decomposition of a Gram matrix, not one for each slice: that
    of all columns, or that of the features if these are fewer.
    """
    (d, k, _), lengths = W.shape, np.where(sizes > 0, sizes, 1.0)
    step = -(-len(among) * k // MOST_COLUMNS)

    def units(b: slice) -> Array:  # some rows of each slice, of unit norm
        return np.moveaxis(W[b][:, :, among] / lengths, 2, 0)

    own = _basis(sum((B.swapaxes(1, 2) @ B for B in map(units, blocks(W))), np.zeros(())))  # Q_t = W_t own_t

    def directions(b: slice) -> Array:  # columns of Q_t, of some slices side by side
        part = (units(b) @ own)[::step]
        return np.moveaxis(part, 0, 1).reshape(part.shape[1], -1)

    by_features = d < k * len(among[::step])
    if by_features:
        Q = directions(slice(None))
        gram = Q @ Q.T
    else:
        gram = sum((Q.T @ Q for Q in map(directions, blocks(W))), np.zeros(()))
    lam, V = np.linalg.eigh(gram)
    kept = slice(-DIRECTIONS * k, None)
    lam, V = lam[kept], V[:, kept]
    lam, V = lam[lam > FLAT * lam[-1]], V[:, lam > FLAT * lam[-1]]
    if step == 1 and not by_features:
        return _own_share((V * np.sqrt(lam)).reshape(len(among), k, -1))
    C = np.zeros((len(among), k, len(lam)))
    for b in blocks(W):
        U = V[b] if by_features else directions(b) @ (V / np.sqrt(lam))
        C += (units(b) @ own).swapaxes(1, 2) @ U
    return _own_share(C)


def _own_share(C: Array) -> Array:
    """How far each slice, given in common directions, lies in the k leading ones of the others; (m, k, r) -> (m,)."""
    k, products = C.shape[1], C.swapaxes(1, 2) @ C
    leading = np.linalg.eigh(products.sum(axis=0) - products)[1][:, :, -k:]
    return ((C @ leading) ** 2).sum(axis=(1, 2)) / k


def _basis(gram: Array) -> Array:
    """What makes orthonormal columns, and columns of zeros, of those with these products; (m, k, k) -> (m, k, k)."""
    lam, V = np.linalg.eigh(gram)
    there = lam > FLAT * np.maximum(lam[:, -1:], np.finfo(float).tiny)
    return V * np.where(there, 1 / np.sqrt(np.where(there, lam, 1.0)), 0.0)[:, None, :]


def pulls(T: Array, Z: Array, prox: Callable[[Array], Array], *, drop: bool = False) -> Array | None:
    """Who pulls whom: how far slice s of a consensus moves when slice t is left out, relative to its norm.

    Parameters
    ----------
    T : array of shape (d, k, m)
        What the consensus was made from, W + Y/rho.
    Z : array of shape (d, k, m)
        The consensus.
    prox : callable
        Makes a consensus from a stack.
    drop : bool
        Whether the stack gets shorter, or has a slice of zeros, which pulls nobody where a consensus shrinks.

    Returns
    -------
    array of shape (m, m), or None
        Row s, column t; 0 on the diagonal. None for fewer than two or more than 64 slices.
    """
    d, k, m = T.shape
    if not 2 <= m <= MOST_SLICES:
        return None
    if d > k * m:  # the same products between columns with fewer rows: a prox turns with the rows
        flat = T.reshape(d, k * m)
        lam, V = np.linalg.eigh(flat.T @ flat)
        half = np.sqrt(np.maximum(lam, 0))
        T = (half[:, None] * V.T).reshape(k * m, k, m)
        Z = prox(T)
    norms, found = slice_norms(Z), np.zeros((m, m))
    for t in range(m):
        rest = np.delete(np.arange(m), t)
        if drop:
            without = prox(np.ascontiguousarray(T[:, :, rest]))
        else:
            left = T.copy()
            left[:, :, t] = 0
            without = prox(left)[:, :, rest]
        moved = Z[:, :, rest] - without
        found[rest, t] = slice_norms(moved) / np.where(norms[rest] > 0, norms[rest], 1.0)
    return found
