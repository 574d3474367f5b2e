"""Influence of single records on a projection, at fixed embedding: leave-one-out of a ridge regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import Array, asarray_like, double, row_blocks, to_numpy
from .projection import RidgeFactors, Rows

BLOCK = 512  # records at a time: a block of d x 512 or n x 512 numbers, never n x n where n is the longer side
FEW = 256  # records that are looked at where each costs an iterative solve: of the largest bounds


@dataclass(frozen=True)
class Influence:
    """By how much each record moves W, relative to W, while the embedding of the others stays.

    `rows` are the records that were looked at: all, or where a solve is iterative up to 256 with the largest bounds.
    """

    rows: Array  # numbers of the records
    change: Array  # ‖W − W without the record‖ / ‖W‖
    leverage: Array  # h, between 0 and 1

    @property
    def top(self) -> int:
        """Number of the record that moves W most."""
        return int(self.rows[self.change.argmax()])


def record_influence(factors: RidgeFactors, F: Array, W: Array) -> Influence:
    """Leave-one-out change of W at fixed embedding, for every record, without a second fit.

    With ``A = XᵀX + ridge I`` and ``h_i = x_iᵀ A⁻¹ x_i``, the solution without record i, all else fixed, is
    ``W − A⁻¹ x_i (f_i − x_iᵀ W) / (1 − h_i)`` (Sherman and Morrison), so its distance is a product of two norms. A real
    refit also moves the embedding of the others: there the change was 1.2 to 3 times as large for the top record.

    Parameters
    ----------
    factors : RidgeFactors
        Of the n x d rows.
    F : array of shape (n, k)
        The embedding that W was computed from.
    W : array of shape (d, k)

    Returns
    -------
    Influence

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.influence import record_influence
    >>> from fmtc.kernels.projection import RidgeFactors
    >>> X = np.vstack([np.random.default_rng(0).normal(size=(30, 4)), np.full(4, 9.0)])
    >>> F = np.random.default_rng(1).normal(size=(31, 2))
    >>> factors = RidgeFactors(X, 0.5)
    >>> record_influence(factors, F, factors.solve(F, np.zeros((4, 2)))).top
    30
    """
    X = factors.X
    residual = np.linalg.norm(to_numpy(double(F - X @ W)), axis=1)
    chosen = _chosen(factors, residual)
    lengths, h = np.empty(len(chosen)), np.empty(len(chosen))
    solve, ridge = factors._inverse, factors.ridge
    for part in row_blocks(len(chosen), BLOCK):
        if factors.side == "d":
            rows = _dense(X, chosen[part])
            V = to_numpy(solve(asarray_like(np.ascontiguousarray(rows.T), F)))  # A⁻¹ x_i, a column each
            lengths[part] = np.linalg.norm(V, axis=0)
            h[part] = np.einsum("ij,ji->i", rows, V)
        else:  # A⁻¹ x_i = Xᵀ m_i with (X Xᵀ + ridge I) m_i = e_i
            unit = np.zeros((X.shape[0], len(chosen[part])))
            unit[chosen[part], np.arange(unit.shape[1])] = 1
            M = to_numpy(solve(asarray_like(unit, F)))
            own = M[chosen[part], np.arange(unit.shape[1])]
            lengths[part] = np.sqrt(np.maximum(own - ridge * (M * M).sum(axis=0), 0))
            h[part] = 1 - ridge * own
    h = np.clip(h, 0.0, 1 - 1e-12)
    norm = max(float(np.linalg.norm(to_numpy(double(W)))), 1e-300)
    return Influence(chosen, lengths * residual[chosen] / ((1 - h) * norm), h)


def _chosen(factors: RidgeFactors, residual: Array) -> Array:
    """Records to look at: all, or those of the largest bound ‖x_i‖ ‖f_i − x_iᵀW‖/ridge on the change, or length."""
    n = factors.X.shape[0]
    if factors.direct or n <= FEW:
        return np.arange(n)
    length = np.concatenate([np.linalg.norm(_dense(factors.X, part), axis=1) for part in row_blocks(n, BLOCK)])
    largest = [np.argpartition(-bound, FEW // 2)[: FEW // 2] for bound in (length, length * residual)]
    return np.unique(np.concatenate(largest))


def _dense(X: Rows, rows: Array) -> Array:
    """Some rows in the units of the formulas, as a NumPy array."""
    block = X.X[rows]
    block = block.toarray() if sp.issparse(block) else to_numpy(block)
    if X.mean is not None:
        block = block - to_numpy(X.mean)
    return np.asarray(X.gamma * block, dtype=np.float64)
