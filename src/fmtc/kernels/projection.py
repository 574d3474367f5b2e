"""Projection of one client: factor the data once, then solve the ridge system each round (Eq. 9-12)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import iadd
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from sklearn.exceptions import ConvergenceWarning

from ..linalg.arrays import Array, cast, column_sums, double, inner, is_tensor, namespace, precision

DIRECT_UP_TO = 1000  # the smaller side of X; up to here a dense factor is small change, whatever X takes
STEPS = 10  # of conjugate gradients at most, times the smaller side of X
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
            _shift(XW, self.mean @ W)
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
        # centred and scaled before multiplied: a large mean cancels, nothing overflows
        blocks = (gamma * self._centred(slice(begin, begin + BLOCK)) for begin in range(0, n, BLOCK))
        return reduce(iadd, (inner(block, block) for block in blocks))

    def energy(self) -> float:
        """Sum of squared entries of X - mean; exactly 0 where no column varies."""
        X, mean, n = self.X, self.mean, self.shape[0]
        if mean is not None and not _varies(X):
            return 0.0  # the rounded mean of equal numbers need not be that number
        if sp.issparse(X):
            w = self.weights
            entries = X.data if w is None else w[X.indices] * X.data
            along = mean if w is None or mean is None else w * mean
            shift = 0.0 if along is None else n * float(np.square(along, dtype=np.float64).sum())
            return float(np.square(entries, dtype=np.float64).sum()) - shift
        blocks = (double(self._centred(slice(begin, begin + BLOCK))) for begin in range(0, n, BLOCK))
        return sum(float((block * block).sum()) for block in blocks)

    def _centred(self, rows: slice) -> Array:
        block: Array = self.X[rows]
        if self.mean is not None:
            block = block - self.mean
        return block if self.weights is None else block * self.weights


def _shift(Y: Array, row: Array) -> None:
    """Subtract a row from all rows of Y in place; NumPy is slow where rows are short, so 64 go as one."""
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
        XtF = inner(rows.X, F)
        if rows.mean is not None:
            XtF -= namespace(F).outer(rows.mean, column_sums(F))
        if rows.weights is not None:
            XtF = rows.weights[:, None] * XtF
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
    """(XᵀX + ridge I) made ready once, on the smaller side of X, for the solves of all rounds.

    Its Gram matrix is factored where that takes no more memory than X, as for all dense X. For large sparse X it is not
    even formed: each solve takes a few products with X.

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

    def solve(self, F: Array, guide: Array) -> Array:
        """Minimise ||F - X W||² + ridge ||W - guide||² over W; shapes (n, k), (d, k) -> (d, k)."""
        X, ridge = self.X, self.ridge
        if self.side == "d":
            return self._inverse(X.T @ F + ridge * guide)
        # (XᵀX + ridge I)⁻¹ Xᵀ = Xᵀ (X Xᵀ + ridge I)⁻¹
        return guide + X.T @ self._inverse(F - X @ guide)

    @cached_property
    def _inverse(self) -> Callable[[Array], Array]:
        """What solves (G + ridge I) V = B for V, with G = XᵀX or X Xᵀ, whichever is smaller."""
        X, ridge, side = self.X, self.ridge, self.side
        if self.direct:
            A = X.gram(side)
            A[np.diag_indices(len(A))] += ridge
            return _cholesky(A)

        def apply(V: Array) -> Array:
            return (X.T @ (X @ V) if side == "d" else X @ (X.T @ V)) + ridge * V

        return lambda B: conjugate_gradients(apply, B)


def _cholesky(A: Array) -> Callable[[Array], Array]:
    """What solves A V = B for V; A is symmetric and positive definite, and may be overwritten."""
    if is_tensor(A):
        torch = namespace(A)
        L = torch.linalg.cholesky(A)
        return lambda B: torch.cholesky_solve(B, L)
    factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    return lambda B: cho_solve(factor, B, check_finite=False)


def conjugate_gradients(apply: Callable[[Array], Array], B: Array) -> Array:
    """Solve A V = B for all columns in one loop, A symmetric, positive definite and known by its products only.

    A column is left alone once its residual is below eps^(3/4) of its right-hand side. No preconditioner: with the
    diagonal, text takes as many steps or more. No start: the last round's solution saves one or two steps of ten and
    costs about as much to begin from.

    Parameters
    ----------
    apply : callable, (n, j) -> (n, j)
        Product of A and a block of columns.
    B : array of shape (n, k)

    Returns
    -------
    array of shape (n, k)
    """
    V, open_ = 0 * B, np.arange(B.shape[1])  # what is not finite stays so
    R = P = B
    rr = np.einsum("ij,ij->j", R, R)
    enough = precision(B) ** 1.5 * rr
    for _ in range(STEPS * len(B)):
        going = rr > enough[open_]
        if not going.all():
            open_, R, P, rr = open_[going], R[:, going], P[:, going], rr[going]
            if len(open_) == 0:
                return V
        Q = apply(P)
        step = rr / np.einsum("ij,ij->j", P, Q)
        V[:, open_] += step * P
        R = R - step * Q
        before, rr = rr, np.einsum("ij,ij->j", R, R)
        P = R + (rr / before) * P
    worst = float(np.sqrt((rr / enough[open_]).max()))
    warnings.warn(
        f"conjugate gradients left the projection {worst:.1g} times less exact than wanted after {STEPS * len(B)} "
        "steps: the ridge is very small against these data, raise it (`ridge`, or `rho`).",
        ConvergenceWarning,
        stacklevel=2,
    )
    return V


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
