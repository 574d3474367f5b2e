"""Singular values and right singular vectors of tall matrices, without a copy of them.

A matrix A with many rows is large. What decides its singular values is small: AᴴA, summed over blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arrays import Array, asarray_like, contiguous, double, namespace, precision
from .stacks import blocks

MIN_ROWS = 512  # of a block of a wide matrix, so that a product with it is efficient
GRAM_UP_TO = 3000  # columns; beyond it AᵀA is too large, and only the leading singular vectors are computed
TOLERANCE = 1e-11  # relative error that AᴴA may cause; beyond it a QR factorisation takes over
GRAM_NOISE = 4 * float(np.finfo(np.float64).eps)  # of an eigenvalue of AᴴA, relative to the largest
KRYLOV_WIDTH = 32  # columns of the first block of the Krylov iteration
CONVERGED = 1e-12  # residual of an eigenvector of AᵀA that counts as found, relative to the largest eigenvalue


def gram_svd(T: Array, slices: Callable[[Array], Array], in_doubt: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Singular values of several tall matrices of one shape, largest first, and right singular vectors.

    They come from the eigenvalues of AᴴA. Each has a rounding error relative to the largest, so a small singular value
    has few correct digits. Matrices for which that matters are decomposed again, from the triangular factor of A.

    Parameters
    ----------
    T : array of shape (n, k, ...)
        Holds all the matrices, n >= k.
    slices : callable
        Gives, for some rows of T, the same rows of all matrices; array of shape (matrices, rows, k), double precision.
    in_doubt : callable, (matrices, k) -> (matrices,)
        Which matrices need the second decomposition, given their singular values from the first; such as
        `powers_in_doubt` and `values_in_doubt`.

    Returns
    -------
    s : array of shape (matrices, k)
    V : array of shape (matrices, k, k)
        Singular vectors are columns.
    """
    xp, G, R = namespace(T), None, None
    for block in blocks(T, least=min(T.shape[1], MIN_ROWS)):
        A = slices(T[block])
        AhA = A.conj().swapaxes(1, 2) @ A
        G = AhA if G is None else xp.add(G, AhA, out=G)
    squares, V = xp.linalg.eigh(G)
    s, V = contiguous(xp.flip(xp.sqrt(xp.clip(squares, 0, None)), (1,))), contiguous(xp.flip(V, (2,)))
    again = in_doubt(s)
    if again.any():
        for block in blocks(T, least=T.shape[1]):
            A = slices(T[block])[again]
            R = xp.linalg.qr(A if R is None else xp.concatenate([R, A], axis=1))[1]
        _, s[again], Vh = xp.linalg.svd(R, full_matrices=False)
        V[again] = Vh.conj().swapaxes(1, 2)
    return s, V


def powers_in_doubt(s: Array, p: float) -> Array:
    """Matrices whose sum of powers p is off by more than the tolerance; (matrices, k) -> (matrices,)."""
    off = ((s**2 + GRAM_NOISE * s[:, :1] ** 2) ** (p / 2) - s**p).sum(axis=1)
    return off > TOLERANCE * (s**p).sum() / len(s)


def values_in_doubt(s: Array, threshold: float | Array) -> Array:
    """Matrices with values above a threshold that are not exact enough near it; (matrices, k) -> (matrices,).

    If x is the shrunk value of s, A V diag(x/s) Vᴴ is off by the slope of x/s in s², at most 1/(2 threshold²), times
    the noise times s.
    """
    largest = s[:, 0]
    return (largest > threshold) & (GRAM_NOISE * largest > TOLERANCE * threshold)


def krylov_svd(
    A: Array, *, threshold: float | None = None, count: int = 1, max_columns: int | None = None
) -> tuple[Array, Array] | None:
    """Leading singular values of one large matrix, largest first, and right singular vectors.

    Randomised block Krylov iteration (Musco and Musco, 2015): the Ritz pairs of AᵀA in the span of random columns and
    of their images under AᵀA, AᵀA AᵀA and so on. Blocks grow until they have twice as many columns as the values that
    are wanted, so that several equal values are all found. Seeded.

    Parameters
    ----------
    A : array of shape (d, n)
    threshold : float, optional
        Compute all values above it. If there is none, one value below it follows, which is not exact.
    count : int
        Without a threshold, compute this many values; a few more follow that are too small.
    max_columns : int, optional
        Give up if the iteration needs more columns.

    Returns
    -------
    (s, V) : arrays of shape (r,) and (n, r); None if it gave up
    """
    xp, n, rng = namespace(A), A.shape[1], np.random.default_rng(0)

    def gram(V: Array) -> Array:
        GV = xp.zeros_like(V)
        for block in blocks(A, least=MIN_ROWS):
            B = double(A[block])
            GV += B.swapaxes(0, 1) @ (B @ V)
        return GV

    def random(columns: int) -> Array:
        return double(asarray_like(rng.standard_normal((n, columns)), A))

    def orthonormal(V: Array, Q: Array) -> Array:
        for _ in range(2):  # the first pass may leave little of V
            V = xp.linalg.qr(V - Q @ (Q.swapaxes(0, 1) @ V))[0]
        return V

    width = min(max(KRYLOV_WIDTH, 2 * count), n)
    Q = GQ = random(0)
    V = orthonormal(random(width), Q)
    while True:
        GV = gram(V)
        Q, GQ = xp.concatenate([Q, V], axis=1), xp.concatenate([GQ, GV], axis=1)
        r = Q.shape[1]
        squares, X = xp.linalg.eigh(Q.swapaxes(0, 1) @ GQ)
        squares, X = xp.clip(xp.flip(squares, (0,)), 0, None), xp.flip(X, (1,))
        found = count if threshold is None else int((squares > threshold**2).sum())
        checked = contiguous(X[:, : found + 1])
        residual = xp.sqrt(((GQ @ checked - Q @ checked * squares[: found + 1]) ** 2).sum(axis=0))
        small = max(CONVERGED, precision(A)) * float(squares[0])
        done = 2 * found <= width and float(residual[:found].sum()) <= small
        if threshold is not None and done:  # the next value has settled below the threshold and is not still rising
            done = float(residual[found]) <= max(0.1 * (threshold**2 - float(squares[found])), small)
        if done or r == n:
            kept = r if threshold is None else max(found, 1)
            return xp.sqrt(squares[:kept]), Q @ contiguous(X[:, :kept])
        if max_columns is not None and r > max_columns:
            return None
        if 2 * found > width:
            GV, width = xp.concatenate([GV, random(width)], axis=1), 2 * width
        V = orthonormal(GV[:, : n - r], Q)


def leading_left(A: Array, count: int) -> Array:
    """Leading left singular vectors of a matrix, times their singular values; (d, n) -> (d, count).

    Their signs are free: the largest entry of each is made positive. Columns of zeros follow if there are fewer.
    """
    xp, d = namespace(A), A.shape[0]
    B = tall(A)
    n = B.shape[1]
    r, large = min(count, n), n > GRAM_UP_TO
    found = None
    if large or 8 * max(KRYLOV_WIDTH, 2 * r) <= n:
        found = krylov_svd(B, count=r, max_columns=None if large else n // 4)  # beyond it all of AᵀA is cheaper
    if found is None:
        s, V = gram_svd(B, lambda rows: double(rows)[None], lambda s: values_in_doubt(s, s[:, r - 1]))
        found = s[0], V[0]
    s, V = found[0][:r], found[1][:, :r]
    if B.shape[0] == d:
        Us = xp.concatenate([double(B[block]) @ V for block in blocks(B, least=MIN_ROWS)], axis=0)
    else:  # B is the transpose of A
        Us = V * s
    Us = xp.where(xp.amax(Us, axis=0) < -xp.amin(Us, axis=0), -Us, Us)
    return xp.concatenate([Us, xp.broadcast_to(xp.zeros_like(Us[:, :1]), (d, count - r))], axis=1)


def tall(T: Array) -> Array:
    """The same matrices, transposed if they are wider than high; (d, k, ...) -> (d, k, ...) or (k, d, ...)."""
    return T if T.shape[0] >= T.shape[1] else T.swapaxes(0, 1)
