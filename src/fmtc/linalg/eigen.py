"""Eigenvectors: of small dense matrices, and of large symmetric operators known only by their products."""

from __future__ import annotations

from collections.abc import Callable
from math import acosh
from typing import Protocol

import numpy as np

from .arrays import Array, asarray_like, inner_products, is_tensor, namespace, precision, to_numpy

DENSE_UP_TO = 500  # rows; a full decomposition is then the fastest solver as well as the safest
MAX_FILTERS, MAX_DEGREE = 30, 128  # polynomials applied, and products in each, at most
MIN_CUT = 0.5  # for a spectrum in [0, 2] with mean 1, at least a sixth of the eigenvalues are above
TARGET_RESIDUAL = 1e-7  # ||A v - lambda v|| at which the search for eigenvectors stops
PLAIN_STEPS = 100  # products of the iteration that takes over if a solver fails


class Operator(Protocol):
    """A symmetric operator A with its spectrum in [0, 2]."""

    def __call__(self, V: Array, gain: float = 1.0, shift: float = 0.0, minus: Array | None = None) -> Array:
        """Gain A V + shift V - minus; all of shape (n, j)."""
        ...


def eigh(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix; a slower method if the fast one fails."""
    try:
        return np.linalg.eigh(A)
    except np.linalg.LinAlgError:
        import scipy.linalg

        return scipy.linalg.eigh(A, driver="ev")


def polar_factor(M: Array) -> Array:
    """Closest matrix with orthonormal columns, U Vᵀ of M = U S Vᵀ; (n, k) with n >= k -> (n, k).

    Computed as M (MᵀM)^-1/2 from the k x k Gram matrix if M is well conditioned, else from the SVD. If no method
    converges, the factor of a QR decomposition takes its place, which is not the closest matrix but always works.
    """
    xp = namespace(M)
    try:
        lam, V = eigh(to_numpy(inner_products(M, M)))  # k x k: too small for a device
        # the Gram matrix loses eps * cond(M)^2 of orthogonality: accept it up to eps^(3/4)
        if lam[0] > precision(M) ** 0.25 * lam[-1]:
            return M @ asarray_like((V / np.sqrt(lam)) @ V.T, M)
        U, _, Vh = xp.linalg.svd(M, full_matrices=False)
        return U @ Vh
    except (np.linalg.LinAlgError, xp.linalg.LinAlgError):
        if not bool(xp.isfinite(M).all()):
            raise
        return _orthonormal(M)


def _orthonormal(M: Array) -> Array:
    """Orthonormal columns, each from the column of M and those before, with its sign; has no need to converge."""
    xp = namespace(M)
    Q, R = xp.linalg.qr(M)
    return xp.where(xp.diagonal(R) < 0, -Q, Q)


def uniform_noise(rng: np.random.Generator, shape: tuple[int, int], other: Array) -> Array:
    """Random numbers in [-1/2, 1/2) for the library of another array; the same in every library and number format."""
    return asarray_like(rng.random(shape, dtype=np.float32) - np.float32(0.5), other)


def lanczos_bound(apply: Callable[[Array], Array], start: Array, steps: int) -> float:
    """Estimate of the largest eigenvalue from above, by a few Lanczos steps: the largest Ritz value plus its residual.

    It can be too small if the start has next to no share in the eigenvector.

    Parameters
    ----------
    apply : callable, (n, 1) -> (n, 1)
        Product of a symmetric matrix and a vector.
    start : array of shape (n, 1)
    steps : int
        Number of products at most.
    """
    from scipy.linalg import eigh_tridiagonal

    xp = namespace(start)
    v = start / xp.linalg.norm(start)
    before, beta = xp.zeros_like(v), xp.zeros_like(v[0, 0])
    diagonal: list[Array] = []
    off_diagonal: list[Array] = []
    for _ in range(min(steps, len(start))):
        w = apply(v) - beta * before
        diagonal.append((v * w).sum())
        w = w - diagonal[-1] * v
        beta = xp.linalg.norm(w)
        off_diagonal.append(beta)
        if not is_tensor(v) and beta < 1e-10:  # a device is not asked at every step
            break
        before, v = v, w / beta
    alphas, betas = (to_numpy(xp.stack(part)).astype(np.float64) for part in (diagonal, off_diagonal))
    used = min(len(betas), 1 + int(np.argmax(np.append(betas, 0.0) < 1e-10)))
    theta, S = eigh_tridiagonal(alphas[:used], betas[: used - 1])
    return float(theta[-1] + betas[used - 1] * abs(S[-1, -1]))


def largest_eigenvectors(
    apply: Operator, n: int, k: int, eps: float, rng: np.random.Generator, other: Array
) -> tuple[Array, float]:
    """Eigenvectors of the k largest eigenvalues of a symmetric operator, largest first.

    If the solver fails, an iteration of plain products gives a rough answer. Nothing is raised; the residual tells.

    Parameters
    ----------
    apply : Operator
        Its spectrum lies in [0, 2].
    n, k : int
        Size of the operator, and number of eigenvectors.
    eps : float
        Relative error of a product.
    rng : numpy.random.Generator
        Draws the start of the iteration.
    other : array
        Gives library, device and number format.

    Returns
    -------
    V : array of shape (n, k)
    residual : float
        Largest ||A v - lambda v||; 0 after a full decomposition.
    """
    try:
        V, residual = _solve(apply, n, k, eps, rng, other)
        if bool(namespace(V).isfinite(V).all()):
            return V, residual
    except (np.linalg.LinAlgError, namespace(other).linalg.LinAlgError, ValueError):  # ValueError: not finite
        pass
    return _plain_subspace(apply, uniform_noise(rng, (n, k), other))


def _solve(apply: Operator, n: int, k: int, eps: float, rng: np.random.Generator, other: Array) -> tuple[Array, float]:
    """`largest_eigenvectors` by the solver for this size."""
    columns = min(k + max(4, k // 2), n)  # a few more than asked for
    if n <= DENSE_UP_TO or columns > n // 5:
        dense = to_numpy(apply(asarray_like(np.eye(n), other)))
        return asarray_like(eigh(dense)[1][:, : -k - 1 : -1].copy(), other), 0.0
    return _filtered_subspace(apply, uniform_noise(rng, (n, columns), other), k, eps)


def _plain_subspace(apply: Operator, start: Array) -> tuple[Array, float]:
    """Eigenvectors, roughly, by products alone, and their residual: no step of it can fail to converge."""
    V = _orthonormal(start)
    for _ in range(PLAIN_STEPS):
        V = _orthonormal(apply(V))
    product = apply(V)
    lam = (V * product).sum(axis=0)
    order = to_numpy(lam).argsort(kind="stable")[::-1].copy()
    gap = product - V * lam
    return V[:, order], float(namespace(V).amax((gap * gap).sum(axis=0))) ** 0.5


def _ritz(apply: Operator, V: Array) -> tuple[Array, Array]:
    """Rayleigh-Ritz: the best eigenvectors in the span of orthonormal columns, largest eigenvalue first."""
    lam, Q = eigh(to_numpy(inner_products(V, apply(V))))
    return V @ asarray_like(Q[:, ::-1].copy(), V), asarray_like(lam[::-1].copy(), V)


def _filtered_subspace(apply: Operator, start: Array, k: int, eps: float) -> tuple[Array, float]:
    """Eigenvectors of the k largest eigenvalues by filtered block iteration, and their largest residual.

    The filter is a Chebyshev polynomial that is small on the unwanted part of the spectrum, from 0 to the smallest
    Ritz value of the block (Zhou, Saad, Tiago and Chelikowsky 2006). Its degree grows if the first filters are not
    enough. It stays below the degree that amplifies the largest eigenvalue 1/eps times: that would leave only rounding
    errors of the other columns.
    """
    xp, target = namespace(start), max(TARGET_RESIDUAL, 8 * eps)
    V, lam = _ritz(apply, polar_factor(start))
    del start  # here and below, free each block as early as possible: they are the peak of a fit's memory
    for turn in range(MAX_FILTERS):
        centre = 0.5 * max(float(lam[-1]), MIN_CUT)  # maps [0, 2 centre] to [-1, 1]
        steepness = acosh(max(float(lam[0]) / centre - 1, 1.0))  # degree m amplifies lam[0] cosh(m steepness) times
        degree = min(8 * 2 ** (turn // 2), MAX_DEGREE)
        if degree * steepness > (most := acosh(eps**-0.75)):
            degree = max(2, int(most / steepness))
        before, now = V, apply(V, 1 / centre, -1.0)
        del V
        for _ in range(degree - 1):
            before, now = now, apply(now, 2 / centre, -2.0, before)
        del before
        norm = xp.einsum("ij,ij->j", now, now) ** 0.5
        norm[norm == 0] = 1  # a column that the filter removed: the polar factor has another
        now /= norm
        V, lam = _ritz(apply, polar_factor(now))
        gap = apply(V[:, :k]) - V[:, :k] * lam[:k]
        residual = float(xp.amax((gap * gap).sum(axis=0))) ** 0.5
        if residual <= target:
            break
    return V[:, :k], residual
