"""Singular values of the Fourier slices of a stack, and how they are shrunk: shared by the couplings that do so.

docs/paper.md#schatten: the norm is (1/m) times the sum over all m slices, as in Parseval's identity, so each Fourier
slice is shrunk at tau.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...linalg import svd
from ...linalg.arrays import Array, asarray_like, cast, contiguous, double, namespace
from ...linalg.stacks import blocks
from .base import Consensus

GST_STEPS = 30  # fixed-point steps of the scalar shrinkage; ten leave an error near 1e-9, thirty none
RANK_ABOVE = 1e-6  # of the largest singular value: smaller ones do not count in a rank


def shrink(s: Array, tau: float, p: float) -> Array:
    """Scalar proximal step: minimise tau x^p + (x - s)²/2 over x >= 0, entry by entry.

    Soft thresholding for p = 1. Generalised soft thresholding (Zuo et al. 2013) for 0 < p < 1, which jumps from 0 to
    (2 tau (1 - p))^(1/(2 - p)) at its threshold.
    """
    xp = namespace(s)
    if tau == 0:
        return s
    if p == 1:
        return xp.clip(s - tau, 0, None)
    jump, threshold = jump_and_threshold(tau, p)
    kept = xp.where(s > threshold, s, 1.0)  # 1.0: a harmless value for the power below
    x = kept
    for _ in range(GST_STEPS):
        x = kept - tau * p * xp.clip(x, jump, None) ** (p - 1)
    return cast(xp.where(s > threshold, x, 0.0), s.dtype)


def jump_and_threshold(tau: float, p: float) -> tuple[float, float]:
    """The value that `shrink` jumps to from zero, and the s at which it does so; 0 and tau for p = 1."""
    if p == 1:
        return 0.0, tau
    jump = (2 * tau * (1 - p)) ** (1 / (2 - p))
    return jump, jump + tau * p * jump ** (p - 1)


def weight_of_threshold(threshold: float, p: float) -> float:
    """The tau with which `shrink` maps exactly the values up to `threshold` to zero."""
    return float((threshold / jump_and_threshold(1.0, p)[1]) ** (2 - p))


def singular_values(T: Array, p: float = 1.0) -> tuple[Array, Array]:
    """Singular values of the Fourier slices of a stack, and the weight of each in the norm.

    In double precision; the weighted sum of their powers p has ten correct digits. One matrix (m = 1) with both sides
    longer than `svd.GRAM_UP_TO` is the exception: its largest value is exact, a few dozen more are slightly too small,
    and the rest of the sum of squares is spread evenly over the others. The sum of powers is then an upper bound, as it
    is concave in the squares and the true values are less even.

    Parameters
    ----------
    T : array of shape (d, k, m)
    p : float in (0, 1]

    Returns
    -------
    s, weights : arrays of shape (floor(m/2) + 1, min(d, k))
        Slices with a conjugate twin are there once and have the weight 2/m, the others 1/m.
    """
    A = svd.tall(T)
    s, _ = _decomposed(A, lambda s: svd.powers_in_doubt(s, p))
    if s.shape[1] < A.shape[1]:
        s = _with_even_tail(s, A)
    return s, _weights(s, A.shape[2])


def shrink_slices(T: Array, tau: float, p: float) -> tuple[Array, Array, Array]:
    """Shrink the singular values of all Fourier slices of a stack (Eq. 18).

    Parameters
    ----------
    T : array of shape (d, k, m)
    tau : float
    p : float in (0, 1]

    Returns
    -------
    Z : array of shape (d, k, m)
        T itself if tau = 0, else contiguous; the only copy of the stack.
    s, weights : arrays of shape (floor(m/2) + 1, at most min(d, k))
        `singular_values` of Z.
    """
    if tau == 0:
        return T, *singular_values(T, p)
    xp, T = namespace(T), contiguous(T)
    Z = xp.empty_like(T)
    A, A_shrunk = svd.tall(T), svd.tall(Z)
    m, threshold = A.shape[2], jump_and_threshold(tau, p)[1]
    s, V = _decomposed(A, lambda s: svd.values_in_doubt(s, threshold), threshold)
    x = shrink(s, tau, p)
    kept = int((x > 0).sum(axis=1).max())
    V = V[:, :, :kept]
    left, right = V * (x / xp.where(s > 0, s, 1.0))[:, None, :kept], V.conj().swapaxes(1, 2)
    narrow = 2 * kept < A.shape[1]
    P = left if narrow else left @ right
    for block in blocks(A, least=min(A.shape[1], svd.MIN_ROWS)):  # U diag(x) Vᴴ = A V diag(x/s) Vᴴ
        AP = _fourier_slices(A[block]) @ P
        A_shrunk[block] = cast(_from_fourier_slices(AP @ right if narrow else AP, m), Z.dtype)
    return Z, x, _weights(x, m)


def sum_of_powers(s: Array, weights: Array, p: float) -> float:
    """The Schatten-p value (Eq. 5) from singular values and their weights."""
    return float((weights * s**p).sum())


def rank(s: Array) -> int:
    """Largest number of singular values of one slice that are above 1e-6 of the largest of all; (slices, values)."""
    largest = max(float(s.max()), float(namespace(s).finfo(s.dtype).tiny))
    return int((s > RANK_ABOVE * largest).sum(axis=-1).max())


def consensus(Z: Array, s: Array, weights: Array, p: float) -> Consensus:
    """A stack, and its value and rank from its singular values."""
    return Consensus(Z, sum_of_powers(s, weights, p), rank(s))


def _weights(s: Array, m: int) -> Array:
    """Weight of each slice that a real Fourier transform over m clients keeps; of the shape of s, (slices, values)."""
    twins = np.full((len(s), 1), 2.0)
    twins[0] = 1
    if m % 2 == 0:
        twins[-1] = 1
    return namespace(s).broadcast_to(asarray_like(twins / m, s), s.shape)


def _fourier_slices(T: Array) -> Array:
    """One d x k matrix per frequency along the clients, without conjugate twins; (floor(m/2) + 1, d, k), double."""
    xp, m = namespace(T), T.shape[2]
    if m == 1:
        return xp.moveaxis(double(T), 2, 0)
    return contiguous(xp.moveaxis(xp.fft.rfft(double(T), m, 2), 2, 0))


def _from_fourier_slices(A: Array, m: int) -> Array:
    """Undo `_fourier_slices`; (floor(m/2) + 1, d, k) -> (d, k, m)."""
    xp = namespace(A)
    A = xp.moveaxis(A, 0, 2)
    return A if m == 1 else xp.fft.irfft(A, m, 2)


def _decomposed(A: Array, in_doubt: Callable[[Array], Array], threshold: float | None = None) -> tuple[Array, Array]:
    """Singular values and right singular vectors of the slices; the leading ones of a matrix too wide for AᵀA."""
    if A.shape[2] > 1 or A.shape[1] <= svd.GRAM_UP_TO:
        return svd.gram_svd(A, _fourier_slices, in_doubt)
    leading = svd.krylov_svd(A[:, :, 0], threshold=threshold)
    assert leading is not None  # it has no limit to give up at
    return leading[0][None], leading[1][None]


def _with_even_tail(s: Array, A: Array) -> Array:
    """Leading values of one matrix, and the rest of its sum of squares spread evenly over the others; (1, n)."""
    xp, n, r = namespace(A), A.shape[1], s.shape[1]
    total = sum(float((double(A[block]) ** 2).sum()) for block in blocks(A))
    rest = max(total - float((s**2).sum()), 0.0) / max(n - r, 1)
    tail = xp.broadcast_to(xp.zeros_like(s[:, :1]) + rest**0.5, (1, n - r))
    return xp.concatenate([s, tail], axis=1)
