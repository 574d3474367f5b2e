"""Projection of one client: factor the data once, then solve the ridge system each round (Eq. 9-12)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg

Array = np.ndarray

DIRECT_UP_TO = 6000  # the smaller side of X; beyond it the system is solved by conjugate gradients
BLOCK = 4096  # rows centred at a time


@dataclass(frozen=True)
class Rows:
    """A client's rows in the units of the formulas, gamma (X - mean) diag(weights), without forming them.

    Behaves as that n x d matrix in ``rows @ W`` and ``rows.T @ F``; X may be sparse and is never copied.
    """

    X: Any
    mean: Array | None = None  # d; None: not centred
    gamma: float = 1.0
    weights: Array | None = None  # d, above 0; None: all 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.X.shape

    def __matmul__(self, W: Array) -> Array:
        if self.weights is not None:
            W = self.weights[:, None] * W
        XW = self.X @ W
        if self.mean is not None:
            XW -= self.mean @ W
        if self.gamma != 1.0:
            XW *= self.gamma
        return XW

    @property
    def T(self) -> _Transposed:
        """The transpose, for products only."""
        return _Transposed(self)

    def gram(self, side: str) -> Array:
        """XᵀX (``side="d"``) or X Xᵀ (``side="n"``) in the same units, dense; X itself is never made dense."""
        X, mean, gamma, (n, d) = self.X, self.mean, self.gamma, self.shape
        if sp.issparse(X):
            w = self.weights
            G = (X.T @ X if side == "d" else (X if w is None else X @ sp.diags_array(w**2)) @ X.T).toarray()
            if mean is not None and side == "d":
                G -= n * np.outer(mean, mean)
            elif mean is not None:
                weighted = mean if w is None else w**2 * mean
                along = X @ weighted
                G += mean @ weighted - along - along[:, None]
            if w is not None and side == "d":
                G *= np.outer(w, w)
            return gamma**2 * G
        if side == "n":
            whole = gamma * self._centred(slice(None))
            return whole @ whole.T
        G = np.zeros((d, d), dtype=X.dtype)
        for begin in range(
            0, n, BLOCK
        ):  # centred and scaled before multiplied: a large mean cancels, nothing overflows
            block = gamma * self._centred(slice(begin, begin + BLOCK))
            G += block.T @ block
        return G

    def energy(self) -> float:
        """Sum of squared entries of X - mean; exactly 0 where no column varies."""
        X, mean, n = self.X, self.mean, self.shape[0]
        if mean is not None and not _varies(X):
            return 0.0  # the rounded mean of equal numbers need not be that number
        if sp.issparse(X):
            w = np.ones(X.shape[1]) if self.weights is None else self.weights
            shift = 0.0 if mean is None else n * float(np.square(w * mean, dtype=np.float64).sum())
            return float(np.square(w[X.indices] * X.data, dtype=np.float64).sum()) - shift
        blocks = (self._centred(slice(begin, begin + BLOCK)) for begin in range(0, n, BLOCK))
        return sum(float(np.square(block, dtype=np.float64).sum()) for block in blocks)

    def _centred(self, rows: slice) -> Array:
        block: Array = self.X[rows]
        if self.mean is not None:
            block = block - self.mean
        return block if self.weights is None else block * self.weights


@dataclass(frozen=True)
class _Transposed:
    rows: Rows

    def __matmul__(self, F: Array) -> Array:
        rows = self.rows
        XtF = rows.X.T @ F
        if rows.mean is not None:
            XtF -= np.outer(rows.mean, F.sum(axis=0))
        if rows.weights is not None:
            XtF = rows.weights[:, None] * XtF
        if rows.gamma != 1.0:
            XtF *= rows.gamma
        return XtF


def _varies(X: Any) -> bool:
    """Whether any column holds two different numbers."""
    low, high = X.min(axis=0), X.max(axis=0)
    return bool((low != high).nnz if sp.issparse(low) else (low != high).any())


def column_means(X: Any) -> Array:
    """Mean of each column in the dtype of X, summed in double precision; shape (d,)."""
    total = X.T @ np.ones(X.shape[0]) if sp.issparse(X) else X.sum(axis=0, dtype=np.float64)
    return (total / X.shape[0]).astype(X.dtype)


class RidgeFactors:
    """(XᵀX + ridge I) factored once, on the smaller side of X, for the solves of all rounds.

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
        self.side = "iterative" if min(n, d) > DIRECT_UP_TO else "d" if n >= d else "n"

    @cached_property
    def _cholesky(self) -> tuple[Array, bool]:
        A = self.X.gram(self.side)
        A[np.diag_indices_from(A)] += self.ridge
        return cho_factor(A, lower=True, overwrite_a=True, check_finite=False)

    def solve(self, F: Array, guide: Array) -> Array:
        """Minimise ||F - X W||² + ridge ||W - guide||² over W; shapes (n, k), (d, k) -> (d, k)."""
        X, ridge = self.X, self.ridge
        if self.side == "d":
            return cho_solve(self._cholesky, X.T @ F + ridge * guide, check_finite=False)
        if self.side == "n":  # (XᵀX + ridge I)⁻¹ Xᵀ = Xᵀ (X Xᵀ + ridge I)⁻¹
            return guide + X.T @ cho_solve(self._cholesky, F - X @ guide, check_finite=False)
        return guide + self._conjugate_gradients(X.T @ (F - X @ guide))

    def _conjugate_gradients(self, rhs: Array) -> Array:
        d = rhs.shape[0]

        def apply(v: Array) -> Array:
            v = v.reshape(d, -1)
            return (self.X.T @ (self.X @ v) + self.ridge * v).ravel()

        A = LinearOperator((d, d), matvec=apply, dtype=rhs.dtype)
        rtol = 10 * float(np.finfo(rhs.dtype).eps) ** 0.75
        return np.column_stack([cg(A, column, rtol=rtol, maxiter=10 * d)[0] for column in rhs.T]).astype(rhs.dtype)


def update_projection(factors: RidgeFactors, F: Array, guide: Array) -> Array:
    """Minimise the augmented Lagrangian over W with all else fixed (Eq. 12).

    Eq. 12 divided by 2 omega alpha: ``(XᵀX + ridge I) W = XᵀF + ridge guide`` with ``ridge = rho/(2 omega alpha)`` and
    ``guide = Z - Y/rho``, the only combination of Z and Y the client needs.

    Parameters
    ----------
    factors : RidgeFactors
        Of this client's X and ridge, made once.
    F : array of shape (n, k)
    guide : array of shape (d, k)

    Returns
    -------
    array of shape (d, k)
    """
    return factors.solve(F, guide)
