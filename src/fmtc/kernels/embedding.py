"""Embedding of one client's rows: spectral start, then projected gradient on the Stiefel manifold (Eq. 13-16)."""

from __future__ import annotations

import warnings
from math import acosh, ceil
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import eigh_tridiagonal
from sklearn.exceptions import ConvergenceWarning

from ..linalg.arrays import Array, affine, cast, double, inner, like, namespace, precision, to_numpy
from .graph import Graph

DENSE_BELOW = 500  # rows; a full decomposition is then the fastest solver as well as the surest
MAX_FILTERS, MAX_DEGREE = 30, 128  # polynomials applied, and products in each at most
LEAST_CUT = 0.5  # no wanted eigenvalue is smaller: with a mean of 1 and none above 2, every sixth at least is not
AIM, RESIDUAL = 1e-7, 1e-5  # ||L v - lambda v|| at which the search for eigenvectors ends, and above which it failed
LEAST_GAP = 0.1  # 1 - lambda at least, by which a column is divided to continue it


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
    lam, V = _eigh(to_numpy(inner(M, M)))  # k x k: too small for a device
    # the Gram route loses eps * cond(M)^2 of orthogonality: accept it up to eps^(3/4)
    if lam[0] > precision(M) ** 0.25 * lam[-1]:
        return M @ like((V / np.sqrt(lam)) @ V.T, M)
    xp = namespace(M)
    try:
        U, _, Vh = xp.linalg.svd(M, full_matrices=False)
    except xp.linalg.LinAlgError:  # divide and conquer can fail where the plain method does not
        U, _, Vh = (like(part, M) for part in scipy.linalg.svd(to_numpy(M), full_matrices=False, lapack_driver="gesvd"))
    return U @ Vh


def _eigh(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix; the plain method where the fast one fails."""
    try:
        return np.linalg.eigh(A)
    except np.linalg.LinAlgError:
        return scipy.linalg.eigh(A, driver="ev")


def update_embedding(
    laplacian: Any, F: Array, target: Array, *, alpha: float, eta: float | None, n_inner: int, still: float = 0.0
) -> Array:
    """Lower Tr(FᵀLF) + alpha ||F - target||² over FᵀF = I by projected gradient steps (Eq. 14-16).

    With ``eta = 1/(top + alpha)`` and no eigenvalue of the Laplacian above ``top``, a step is one of generalised power
    iteration and the objective cannot rise (docs/paper.md#step-size). None takes 2, which is never exceeded.

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
    still : float
        They end with the first that moves F by less, see `moved`.

    Returns
    -------
    array of shape (n, k)
    """
    eta = 1 / (2 + alpha) if eta is None else eta
    pull = eta * alpha * target
    for _ in range(n_inner):
        # F less eta times the halved gradient L F + alpha (F - target) (Eq. 14, 15)
        step = affine(laplacian, F, -eta, 1 - eta * alpha, lambda rows: pull[rows])
        before, F = F, nearest_orthonormal(step)  # Eq. 16
        if still and moved(before, F) < still:
            break
    return F


def moved(before: Array, F: Array) -> float:
    """How far an embedding went, as a share of its norm; both (n, k)."""
    gap = F - before
    return float(namespace(F).linalg.norm(gap)) / F.shape[1] ** 0.5


def largest_eigenvalue(graph: Graph, rng: np.random.Generator, steps: int = 30) -> float:
    """A bound on the spectrum of a normalised Laplacian, tighter than 2, from a few Lanczos steps.

    The largest Ritz value plus the norm of its residual, rounded up to eighths so that the random vector it begins with
    does not matter, nor the order of rows. An eigenvalue in which a random vector has next to no share
    can be missed, but does no harm: the bound is never below 1, the mean of the spectrum, so a step of length
    ``1/bound`` amplifies no eigenvalue up to 2.
    """
    xp, n = namespace(graph.degree), graph.laplacian.shape[0]
    v = _noise(rng, (n, 1), graph.degree)
    v = v / xp.linalg.norm(v)
    before, beta = xp.zeros_like(v), 0.0
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(steps, n)):
        w = affine(graph.laplacian, v) - beta * before
        diagonal.append(float((v * w).sum()))
        w = w - diagonal[-1] * v
        beta = float(xp.linalg.norm(w))
        beside.append(beta)
        if beta < 1e-10:
            break
        before, v = v, w / beta
    theta, S = eigh_tridiagonal(np.array(diagonal), np.array(beside[:-1]))
    return min(2.0, ceil(8 * float(theta[-1] + beta * abs(S[-1, -1]))) / 8)


def spectral_start(graph: Graph, n_clusters: int, rng: np.random.Generator) -> Array:
    """Bottom k eigenvectors of the normalised Laplacian, columns signed, deterministic for a generator.

    The null vectors are known from the connected components (sqrt(degree) on each, the k largest components
    where there are more) and are not searched for; the others come from a dense solver below 500 rows, else from a
    filtered block iteration, whose answer is checked by its residual.

    Returns
    -------
    array of shape (n, k)
        Orthonormal columns, the largest entry of each positive; rows as the client has them.
    """
    L, known = graph.laplacian, min(n_clusters, len(graph.component_sizes))
    xp = namespace(graph.degree)
    number = like(np.arange(known), graph.component)
    root = double(graph.degree)[:, None] ** 0.5
    U = xp.where(graph.component[:, None] == number, root, xp.zeros_like(root))
    U = U / (U * U).sum(axis=0) ** 0.5
    if known < n_clusters:
        # spectrum of 2I - L with the known vectors moved from 2 to 0; times `gain`, plus `shift` V, less `before`
        def deflated(V: Array, gain: float = 1.0, shift: float = 0.0, before: Array | None = None) -> Array:
            S = inner(U, V) * (-2 * gain)

            def plus(rows: slice) -> Array:
                along = U[rows] @ S
                return along if before is None else along - before[rows]

            return affine(L, V, -gain, 2 * gain + shift, plus)

        V = _largest_eigenvectors(deflated, U, n_clusters - known, precision(graph.degree), rng)
        U = xp.concatenate([U, V], axis=1)
    F = cast(nearest_orthonormal(U), L.dtype)
    host = to_numpy(F)
    peak = host[np.abs(host).argmax(axis=0), np.arange(n_clusters)]
    return graph.as_they_came(F * like(np.where(peak < 0, -1, 1), F))


def nystroem(affinity: Any, degree: Array, F: Array, eigenvalues: Array) -> Array:
    """Eigenvectors of the normalised Laplacian continued to new rows.

    ``f_j(x) = sum_i a_i(x) F_ij / sqrt(d(x) d_i) / (1 - lambda_j)`` with d(x) the sum of the weights a_i(x): for a row
    of the graph itself, with its own weights, exactly its row of F.

    1 - lambda_j counts as 0.1 where it is less. With many columns for few rows eigenvalues come close to 1 and pass it:
    there the formula would magnify what little the neighbours tell, or turn it round.

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
    gain = 1 / np.maximum(1 - eigenvalues, LEAST_GAP)
    scale = np.sqrt(np.ravel(affinity.sum(axis=1)))[:, None]
    return (affinity @ (F / np.sqrt(degree)[:, None])) * gain / scale


def _largest_eigenvectors(apply: Any, U: Array, k: int, eps: float, rng: np.random.Generator) -> Array:
    """Eigenvectors of the k largest eigenvalues of a symmetric operator, largest first.

    The operator's spectrum lies between 0 and 2, products with it are good to `eps`, and U, of shape (n, known), is in
    its null space.
    """
    n = U.shape[0]
    columns = min(k + max(4, k // 2), n)  # some more than asked for
    if n <= DENSE_BELOW or columns > n // 5:
        return like(_eigh(to_numpy(apply(like(np.eye(n), U))))[1][:, : -k - 1 : -1].copy(), U)
    V, residual = _filtered_subspace(apply, _noise(rng, (n, columns), U), k, eps)
    if residual > RESIDUAL:
        warnings.warn(
            f"the eigen-solver did not reach a residual of {RESIDUAL:g} on a graph of {n} rows (best: {residual:.1e}); "
            "the embedding starts from there. More neighbours usually help: n_neighbors.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return V


def _noise(rng: np.random.Generator, shape: tuple[int, int], other: Array) -> Array:
    """Random numbers between -1/2 and 1/2, the same in every library and number format."""
    return like(rng.random(shape, dtype=np.float32) - np.float32(0.5), other)


def _ritz(apply: Any, V: Array) -> tuple[Array, Array]:
    """Rayleigh-Ritz: the best eigenvectors in the span of orthonormal columns, largest eigenvalue first."""
    lam, Q = _eigh(to_numpy(inner(V, apply(V))))
    return V @ like(Q[:, ::-1].copy(), V), like(lam[::-1].copy(), V)


def _filtered_subspace(apply: Any, start: Array, k: int, eps: float) -> tuple[Array, float]:
    """Eigenvectors of the k largest eigenvalues by filtered block iteration, and their largest residual.

    The filter is a Chebyshev polynomial that is small on the unwanted part of the spectrum, from 0 to the smallest
    Ritz value of the block (Zhou, Saad, Tiago and Chelikowsky 2006). Where that does not soon do, it takes more and
    more products at a time, but no more than the block bears: a filter that magnifies the largest eigenvalue 1/eps
    times leaves nothing of the others but rounding.
    """
    xp, aim = namespace(start), max(AIM, 8 * eps)
    V, lam = _ritz(apply, nearest_orthonormal(start))
    del start  # what is not needed any more goes, here and below: these blocks are the most that a fit has at a time
    for turn in range(MAX_FILTERS):
        centre = 0.5 * max(float(lam[-1]), LEAST_CUT)  # [0, 2 centre] goes to [-1, 1]
        steepness = acosh(max(float(lam[0]) / centre - 1, 1.0))  # degree m magnifies lam[0] cosh(m steepness) times
        degree = min(8 * 2 ** (turn // 2), MAX_DEGREE)
        if degree * steepness > (most := acosh(eps**-0.75)):
            degree = max(2, int(most / steepness))
        before, now = V, apply(V, 1 / centre, -1.0)
        del V
        for _ in range(degree - 1):
            before, now = now, apply(now, 2 / centre, -2.0, before)
        del before
        now /= xp.einsum("ij,ij->j", now, now) ** 0.5
        V, lam = _ritz(apply, nearest_orthonormal(now))
        gap = apply(V[:, :k]) - V[:, :k] * lam[:k]
        residual = float(xp.amax((gap * gap).sum(axis=0))) ** 0.5
        if residual <= aim:
            break
    return V[:, :k], residual
