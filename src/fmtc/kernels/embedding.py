"""Embedding of one client's rows: spectral start, then projected gradient on the Stiefel manifold (Eq. 13-16)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh, lobpcg
from sklearn.exceptions import ConvergenceWarning

from .graph import Graph

Array = np.ndarray

DENSE_BELOW = 500  # rows; a full decomposition is then the fastest solver as well as the surest
RESIDUAL = 1e-5  # largest ||L v - lambda v|| of an accepted eigenvector


def nearest_orthonormal(M: Array) -> Array:
    """Closest matrix with orthonormal columns, the polar factor U Vᵀ of M = U S Vᵀ (Eq. 16).

    Computed as M (MᵀM)^-1/2 from the k x k Gram matrix when M is well conditioned, else from the SVD.

    Parameters
    ----------
    M : array of shape (n, k), n >= k

    Returns
    -------
    array of shape (n, k)
    """
    lam, V = np.linalg.eigh(M.T @ M)
    # the Gram route loses eps * cond(M)^2 of orthogonality: accept it up to eps^(3/4)
    if lam[0] > np.finfo(M.dtype).eps ** 0.25 * lam[-1]:
        return M @ ((V / np.sqrt(lam)) @ V.T)
    U, _, Vh = np.linalg.svd(M, full_matrices=False)
    return U @ Vh


def update_embedding(
    laplacian: Any, F: Array, target: Array, *, alpha: float, eta: float | None, n_inner: int
) -> Array:
    """Lower Tr(FᵀLF) + alpha ||F - target||² over FᵀF = I by projected gradient steps (Eq. 14-16).

    With ``eta = 1/(2 + alpha)``, the default, a step is one of generalised power iteration and the objective
    cannot rise, since the normalised Laplacian has no eigenvalue above 2 (docs/paper.md#step-size).

    Parameters
    ----------
    laplacian : sparse array of shape (n, n)
    F : array of shape (n, k)
        Orthonormal columns; where to start.
    target : array of shape (n, k)
        X W, the paper's A_t.
    eta : float or None
        Step size in the units of Eq. 15, which folds the 2 of Eq. 14 into it.
    n_inner : int
        Number of steps.

    Returns
    -------
    array of shape (n, k)
    """
    eta = 1 / (2 + alpha) if eta is None else eta
    for _ in range(n_inner):
        gradient = laplacian @ F + alpha * (F - target)  # Eq. 14, halved
        F = nearest_orthonormal(F - eta * gradient)  # Eq. 15, 16
    return F


def spectral_start(graph: Graph, n_clusters: int, rng: np.random.Generator) -> Array:
    """Bottom k eigenvectors of the normalised Laplacian, columns signed, deterministic for a generator.

    The null vectors are known from the connected components (sqrt(degree) on each, the k largest components
    where there are more) and are not searched for; the others come from a ladder of solvers, each answer checked by
    its residual: a dense one below 500 rows, else Lanczos on 2I - L and then LOBPCG.

    Returns
    -------
    array of shape (n, k)
        Orthonormal columns, the largest entry of each positive.
    """
    L, n = graph.laplacian, graph.laplacian.shape[0]
    known = min(n_clusters, len(graph.component_sizes))
    U = np.where(graph.component[:, None] == np.arange(known), np.sqrt(graph.degree, dtype=float)[:, None], 0.0)
    U /= np.linalg.norm(U, axis=0)
    if known < n_clusters:
        L64 = L.astype(np.float64)

        def deflated(V: Array) -> Array:  # spectrum of 2I - L with the known vectors moved from 2 to 0
            return 2 * V - L64 @ V - 2 * (U @ (U.T @ V))

        V = _largest_eigenvectors(deflated, n, n_clusters - known, rng)
        U = np.hstack([U, V])
    F = nearest_orthonormal(U).astype(L.dtype, copy=False)
    peak = F[np.abs(F).argmax(axis=0), np.arange(n_clusters)]
    return F * np.where(peak < 0, -1, 1).astype(F.dtype)


def nystroem(affinity: Any, degree: Array, F: Array, eigenvalues: Array) -> Array:
    """Eigenvectors of the normalised Laplacian continued to new rows.

    ``f_j(x) = sum_i a_i(x) F_ij / sqrt(d(x) d_i) / (1 - lambda_j)`` with d(x) the sum of the weights a_i(x): for a row
    of the graph itself, with its own weights, exactly its row of F. A column with lambda_j = 1 cannot be continued and
    is zero.

    Parameters
    ----------
    affinity : sparse array of shape (n_new, n)
        Weights of new rows to the rows of the graph.
    degree : array of shape (n,)
        Of the rows of the graph.
    F : array of shape (n, k)
    eigenvalues : array of shape (k,)
        lambda_j of the columns of F.

    Returns
    -------
    array of shape (n_new, k)
    """
    gain = np.divide(1, 1 - eigenvalues, out=np.zeros_like(eigenvalues), where=np.abs(1 - eigenvalues) >= 1e-6)
    scale = np.sqrt(np.ravel(affinity.sum(axis=1)))[:, None]
    return (affinity @ (F / np.sqrt(degree)[:, None])) * gain / scale


def _largest_eigenvectors(apply: Any, n: int, k: int, rng: np.random.Generator) -> Array:
    """Eigenvectors of the k largest eigenvalues of a symmetric operator, largest first, by the solver ladder."""
    start = rng.standard_normal((n, k))
    if n <= DENSE_BELOW or k > n // 5:
        return np.linalg.eigh(apply(np.eye(n)))[1][:, : -k - 1 : -1]
    operator = LinearOperator((n, n), matvec=apply, matmat=apply, dtype=np.float64)

    def lanczos() -> Array:
        return eigsh(operator, k=k, which="LA", v0=start[:, 0], tol=1e-7, ncv=min(n, max(3 * k, 30)), maxiter=500)[1]

    def block_iteration() -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of what the residual below decides
            return lobpcg(operator, start, largest=True, tol=1e-7, maxiter=500)[1]

    best, best_residual = start, np.inf
    for solver in (lanczos, block_iteration):
        try:
            V = nearest_orthonormal(solver())
        except (ArpackError, ArpackNoConvergence, np.linalg.LinAlgError, ValueError):
            continue
        lam, Q = np.linalg.eigh(V.T @ apply(V))  # Rayleigh-Ritz: pairs in order, whatever the solver returned
        V = V @ Q[:, ::-1]
        residual = float(np.linalg.norm(apply(V) - V * lam[::-1], axis=0).max())
        if residual < best_residual:
            best, best_residual = V, residual
        if residual <= RESIDUAL:
            return best
    warnings.warn(
        f"no eigen-solver reached a residual of {RESIDUAL:g} on a graph of {n} rows (best: {best_residual:.1e}); the "
        "embedding starts from the best answer. More neighbours usually help: n_neighbors.",
        ConvergenceWarning,
        stacklevel=2,
    )
    return nearest_orthonormal(best)
