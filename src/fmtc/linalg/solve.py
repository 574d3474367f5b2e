"""Linear systems with a symmetric, positive definite matrix: by a Cholesky factor, or by conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arrays import Array, is_tensor, namespace, precision

STEPS_PER_ROW = 10  # of conjugate gradients at most, for each row of the system


def cholesky_solver(A: Array) -> Callable[[Array], Array]:
    """Factor A once; the function returned solves A V = B for V.

    Parameters
    ----------
    A : array of shape (n, n)
        Symmetric and positive definite. May be overwritten.
    """
    if is_tensor(A):
        torch = namespace(A)
        L = torch.linalg.cholesky(A)
        return lambda B: torch.cholesky_solve(B, L)
    from scipy.linalg import cho_factor, cho_solve

    factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    return lambda B: cho_solve(factor, B, check_finite=False)


def conjugate_gradients(apply: Callable[[Array], Array], B: Array) -> tuple[Array, float]:
    """Solve A V = B for all columns in one loop; A is known only by its products.

    A column is finished when its residual is below eps^(3/4) of its right-hand side. There is no preconditioner: with
    the diagonal, text needs as many steps or more. There is no initial guess: the solution of the round before saves
    one or two steps of ten and costs about as much to start from.

    Parameters
    ----------
    apply : callable, (n, j) -> (n, j)
        Product of A, symmetric and positive definite, and a block of columns.
    B : array of shape (n, k)

    Returns
    -------
    V : array of shape (n, k)
    excess : float
        Largest residual over its tolerance, at most 1 if all columns converged within 10 n steps.
    """
    V, active = 0 * B, np.arange(B.shape[1])  # 0 * B: entries that are not finite stay so
    R = P = B
    rr = np.einsum("ij,ij->j", R, R)
    tolerance = precision(B) ** 1.5 * rr
    for _ in range(STEPS_PER_ROW * len(B)):
        going = rr > tolerance[active]
        if not going.all():
            active, R, P, rr = active[going], R[:, going], P[:, going], rr[going]
            if len(active) == 0:
                return V, 1.0
        Q = apply(P)
        step = rr / np.einsum("ij,ij->j", P, Q)
        V[:, active] += step * P
        R = R - step * Q
        before, rr = rr, np.einsum("ij,ij->j", R, R)
        P = R + (rr / before) * P
    return V, float(np.sqrt((rr / tolerance[active]).max()))
