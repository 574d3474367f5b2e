"""Projection of one client: factor the data once, then solve a ridge regression each round (Eq. 9-12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import iadd
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import DataError, warn_not_converged
from ..linalg.arrays import Array, cast, column_sums, double, inner_products, is_tensor, namespace, row_blocks
from ..linalg.solve import cholesky_solver, conjugate_gradients

DIRECT_UP_TO = 1000  # the smaller side of X; up to here a dense factor is small, whatever the size of X
BLOCK = 4096  # rows centred at a time


@dataclass(frozen=True)
class Rows:
    """A client's rows in the units of the formulas, gamma (X - mean), without computing them.

    Acts as that n x d matrix in ``rows @ W`` and ``rows.T @ F``. X may be sparse and is never copied.
    """

    X: Any
    mean: Array | None = None  # d; None: not centred
    gamma: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.X.shape

    def __matmul__(self, W: Array) -> Array:
        XW = self.X @ W
        if self.mean is not None:
            _subtract_row(XW, self.mean @ W)
        if self.gamma != 1.0:
            XW *= self.gamma
        return XW

    @property
    def T(self) -> _Transposed:
        """The transpose, for products only."""
        return _Transposed(self)

    def gram(self, side: str) -> Array:
        """XᵀX (``side="d"``) or X Xᵀ (``side="n"``) in the same units, dense; X itself is never made dense."""
        X, mean, gamma, n = self.X, self.mean, self.gamma, self.shape[0]
        if sp.issparse(X):
            G = (X.T @ X if side == "d" else X @ X.T).toarray()
            if mean is not None and side == "d":
                G -= n * np.outer(mean, mean)
            elif mean is not None:
                along = X @ mean
                G += mean @ mean - along - along[:, None]
            return gamma**2 * G
        if side == "n":
            whole = gamma * self._centred(slice(None))
            return whole @ whole.T
        # centre and scale before multiplying: a large mean cancels, and nothing overflows
        blocks = (gamma * self._centred(rows) for rows in row_blocks(n, BLOCK))
        return reduce(iadd, (inner_products(block, block) for block in blocks))

    def sum_of_squares(self) -> float:
        """Sum of the squared entries of X - mean; exactly 0 if no column varies."""
        X, mean, n = self.X, self.mean, self.shape[0]
        if mean is not None and not _varies(X):
            return 0.0  # the rounded mean of equal numbers may differ from that number
        if sp.issparse(X):
            shift = 0.0 if mean is None else n * float(np.square(mean, dtype=np.float64).sum())
            return float(np.square(X.data, dtype=np.float64).sum()) - shift
        blocks = (double(self._centred(rows)) for rows in row_blocks(n, BLOCK))
        return sum(float((block * block).sum()) for block in blocks)

    def _centred(self, rows: slice) -> Array:
        block: Array = self.X[rows]
        return block if self.mean is None else block - self.mean


def _subtract_row(Y: Array, row: Array) -> None:
    """Subtract one row from all rows of Y in place; NumPy is slow for short rows, so 64 of them count as one."""
    whole = 0 if is_tensor(Y) else len(Y) // 64 * 64
    if whole and Y.flags.c_contiguous:
        Y[:whole].reshape(-1, 64 * Y.shape[1])[...] -= np.tile(row, 64)
    else:
        whole = 0
    Y[whole:] -= row


@dataclass(frozen=True)
class _Transposed:
    rows: Rows

    def __matmul__(self, F: Array) -> Array:
        rows = self.rows
        XtF = inner_products(rows.X, F)
        if rows.mean is not None:
            XtF -= namespace(F).outer(rows.mean, column_sums(F))
        if rows.gamma != 1.0:
            XtF *= rows.gamma
        return XtF


def _varies(X: Any) -> bool:
    """Whether any column holds two different numbers."""
    if sp.issparse(X):
        return bool((X.min(axis=0) != X.max(axis=0)).nnz)
    xp = namespace(X)
    return bool((xp.amin(X, axis=0) != xp.amax(X, axis=0)).any())


def column_means(X: Any) -> Array:
    """Mean of each column in the dtype of X, summed in double precision; shape (d,)."""
    xp = namespace(X)
    total = X.T @ np.ones(X.shape[0]) if sp.issparse(X) else X.sum(axis=0, dtype=xp.float64)
    return cast(total / X.shape[0], X.dtype)


class RidgeFactors:
    """XᵀX + ridge I, prepared once on the smaller side of X for the solves of all rounds.

    The Gram matrix is factored if it takes no more memory than X, as for all dense X. For large sparse X it is not even
    computed: each solve takes a few products with X.

    Parameters
    ----------
    X : Rows or array of shape (n, d)
    ridge : float
        rho / (2 omega alpha).
    """

    def __init__(self, X: Any, ridge: float):
        self.X = X if isinstance(X, Rows) else Rows(X)
        self.ridge = ridge
        n, d = self.X.shape
        small = min(n, d)
        self.side = "d" if n >= d else "n"
        self.direct = not sp.issparse(self.X.X) or small <= DIRECT_UP_TO or small**2 <= self.X.X.nnz

    def solve(self, F: Array, anchor: Array) -> Array:
        """Minimise ||F - X W||² + ridge ||W - anchor||² over W; shapes (n, k), (d, k) -> (d, k)."""
        X, ridge = self.X, self.ridge
        if self.side == "d":
            return self._inverse(X.T @ F + ridge * anchor)
        # (XᵀX + ridge I)⁻¹ Xᵀ = Xᵀ (X Xᵀ + ridge I)⁻¹
        return anchor + X.T @ self._inverse(F - X @ anchor)

    @cached_property
    def _inverse(self) -> Callable[[Array], Array]:
        """A function that solves (G + ridge I) V = B for V, with G = XᵀX or X Xᵀ, whichever is smaller."""
        X, ridge, side = self.X, self.ridge, self.side
        if self.direct:
            A = X.gram(side)
            A[np.diag_indices(len(A))] += ridge
            try:
                return cholesky_solver(A)
            except np.linalg.LinAlgError:
                raise DataError(
                    f"the rows are so large that a ridge of {ridge:.1g} is lost beside them: another unit than in the "
                    "other silos, or a wrong value? Rescale the columns, or raise `rho`."
                ) from None

        def apply(V: Array) -> Array:
            return (X.T @ (X @ V) if side == "d" else X @ (X.T @ V)) + ridge * V

        def solve(B: Array) -> Array:
            V, excess = conjugate_gradients(apply, B)
            if excess > 1:
                warn_not_converged(
                    f"conjugate gradients left the residual of a projection {excess:.1g} times above its tolerance: "
                    "the ridge is very small for these data. Raise `ridge`, or `rho`."
                )
            return V

        return solve


def update_projection(factors: RidgeFactors, F: Array, anchor: Array) -> Array:
    """Minimise the augmented Lagrangian over W with all else fixed (Eq. 12).

    Eq. 12 divided by 2 omega alpha: ``(XᵀX + ridge I) W = XᵀF + ridge anchor`` with ``ridge = rho/(2 omega alpha)`` and
    ``anchor = Z - Y/rho``, the only combination of Z and Y that a client needs.

    Parameters
    ----------
    factors : RidgeFactors
        Of this client's X and ridge, prepared once.
    F : array of shape (n, k)
    anchor : array of shape (d, k)

    Returns
    -------
    array of shape (d, k)
    """
    return factors.solve(F, anchor)
