"""Consensus of all clients: Schatten-p value, its proximal step and the dual step (Eq. 5, 17-19).

Three couplings of the stack W of shape (d, k, m). ``tensor`` is the paper's: the t-SVD, Fourier transform along the
clients. ``subspace`` is the matrix [W_1 ... W_m]: no rotation of a client's columns and no order of clients
changes it. ``average`` asks for one projection for all, plain federated averaging: a control to compare with.

A stack of many clients is large, and what decides its singular values is small: the k x k matrices AᴴA of the slices A,
summed up over blocks of features. No copy of the stack is made but the result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ..linalg.arrays import Array, cast, contiguous, double, like, namespace, precision

COUPLINGS = ("tensor", "subspace", "average")
GST_STEPS = 30  # fixed-point steps of the scalar shrinkage; ten leave an error near 1e-9, thirty none
BLOCK = 2**17  # entries of a stack that are worked on at a time
HIGH = 512  # rows of a wide matrix that are worth a product
GRAM_UP_TO = 3000  # the smaller side of [W_1 ... W_m]; beyond it only leading singular vectors are looked for
SURE = 1e-11  # relative error that the way through AᴴA may make; slices in doubt go through a QR factorisation
NOISE = 4 * float(np.finfo(np.float64).eps)  # of an eigenvalue of AᴴA, relative to the largest
WIDTH = 32  # columns, at first, of the blocks that leading singular vectors are looked for with
CONVERGED = 1e-12  # residual of an eigenvector of AᵀA that has been found, relative to the largest eigenvalue


def shrink(s: Array, tau: float, p: float) -> Array:
    """Scalar proximal step: minimise tau x^p + (x - s)²/2 over x >= 0, entry by entry.

    Soft thresholding for p = 1; generalised soft thresholding (Zuo et al. 2013) for 0 < p < 1, which jumps from 0 to
    (2 tau (1 - p))^(1/(2 - p)) at its threshold.
    """
    xp = namespace(s)
    if tau == 0:
        return s
    if p == 1:
        return xp.clip(s - tau, 0, None)
    jump, threshold = _jump(tau, p)
    kept = xp.where(s > threshold, s, 1.0)  # 1.0: a harmless value for the power below
    x = kept
    for _ in range(GST_STEPS):
        x = kept - tau * p * xp.clip(x, jump, None) ** (p - 1)
    return cast(xp.where(s > threshold, x, 0.0), s.dtype)


def _jump(tau: float, p: float) -> tuple[float, float]:
    """What `shrink` jumps to from zero, and its threshold, where it does so; 0 and tau for p = 1."""
    if p == 1:
        return 0.0, tau
    jump = (2 * tau * (1 - p)) ** (1 / (2 - p))
    return jump, jump + tau * p * jump ** (p - 1)


def weight_of_threshold(threshold: float, p: float) -> float:
    """The tau at which `shrink` maps exactly the values up to `threshold` to zero."""
    return float((threshold / _jump(1.0, p)[1]) ** (2 - p))


def singular_values(T: Array, coupling: str, p: float = 1.0) -> tuple[Array, Array]:
    """Singular values that the coupling's norm sums, and the weight of each; both of shape (matrices, values).

    In double precision, and such that the sum of their powers p is good to ten digits.

    ``tensor``: of the Fourier slices along the clients that a real transform keeps. docs/paper.md#schatten: the norm is
    (1/m) times the sum over all m slices, so a slice with a conjugate twin weighs 2/m, the others 1/m.
    ``subspace``: of [T_1 ... T_m]. Where both of its sides are longer than `GRAM_UP_TO`, the largest value is exact,
    a few dozen more are approached from below, and what is then left of the sum of squares is spread evenly over the
    others. The sum of powers is an upper bound there: it is concave in the squares, and the true ones are less even.
    ``average``: of the mean; they weigh nothing, as the constraint Z_1 = ... = Z_m has no value.
    """
    xp = namespace(T)
    if coupling == "average":
        s = xp.linalg.svd(T.mean(axis=2), full_matrices=False)[1][None]
        return s, xp.zeros_like(s)
    A = _slices_of(T, coupling)
    if _large(A):
        s = _with_even_tail(_leading(A)[0], A)
    else:
        s, _ = _spectrum(A, lambda s: _sum_in_doubt(s, p))
    return s, _weights(s, A.shape[2])


def _weights(s: Array, m: int) -> Array:
    """Weight of each slice that a real Fourier transform over m clients keeps; as s, (slices, values)."""
    twin = np.full((len(s), 1), 2.0)
    twin[0] = 1
    if m % 2 == 0:
        twin[-1] = 1
    return namespace(s).broadcast_to(like(twin / m, s), s.shape)


def schatten_p(T: Array, p: float, coupling: str = "tensor") -> float:
    """Schatten-p quasi-norm of a stack of client models, to the power p (Eq. 5).

    Parameters
    ----------
    T : array of shape (d, k, m)
    p : float in (0, 1]
    coupling : {"tensor", "subspace", "average"}
        For "subspace" an upper bound where d and k m are both above 3,000, see `singular_values`.

    Examples
    --------
    The nuclear norm of one matrix:

    >>> import numpy as np
    >>> from fmtc import schatten_p
    >>> schatten_p(np.diag([3.0, 4.0])[:, :, None], p=1)
    7.0
    """
    return sum_of_powers(*singular_values(T, coupling, p), p)


def sum_of_powers(s: Array, weight: Array, p: float) -> float:
    """The same from singular values and their weights."""
    return float((weight * s**p).sum())


def prox(T: Array, tau: float, p: float, coupling: str = "tensor") -> Array:
    """Minimise tau ||Z||_Sp^p + ||Z - T||²/2 over Z (Eq. 18), for any coupling; shape (d, k, m).

    ``average`` has no tau: the nearest stack of equal slices.
    """
    return prox_and_values(T, tau, p, coupling)[0]


def prox_and_values(T: Array, tau: float, p: float, coupling: str = "tensor") -> tuple[Array, Array, Array]:
    """Z of `prox`, and its `singular_values` and weights without another decomposition; Z is T itself where tau = 0."""
    xp = namespace(T)
    if coupling == "average":
        mean = T.mean(axis=2, keepdims=True)
        return xp.broadcast_to(mean, T.shape), *singular_values(mean, coupling)
    if tau == 0:
        return T, *singular_values(T, coupling, p)
    T = contiguous(T)
    Z = xp.empty_like(T)
    A, A_shrunk = _slices_of(T, coupling), _slices_of(Z, coupling)
    m, threshold = A.shape[2], _jump(tau, p)[1]
    s, V = _leading(A, threshold) if _large(A) else _spectrum(A, lambda s: _shrinkage_in_doubt(s, threshold))
    x = shrink(s, tau, p)
    kept = int((x > 0).sum(axis=1).max())
    V = V[:, :, :kept]
    left, right = V * (x / xp.where(s > 0, s, 1.0))[:, None, :kept], V.conj().swapaxes(1, 2)
    narrow = 2 * kept < A.shape[1]
    P = left if narrow else left @ right
    for block in blocks(A, least=min(A.shape[1], HIGH)):  # U diag(x) Vᴴ = A V diag(x/s) Vᴴ
        AP = _fourier_slices(A[block]) @ P
        A_shrunk[block] = cast(_from_fourier_slices(AP @ right if narrow else AP, m), Z.dtype)
    return Z, x, _weights(x, m)


def tsvt(T: Array, tau: float, p: float = 1.0) -> Array:
    """Tensor singular value thresholding: minimise tau ||Z||_Sp^p + ||Z - T||²/2 (Eq. 18).

    docs/paper.md#schatten: the norm carries 1/m, as does Parseval's identity, so each Fourier slice is shrunk at tau.

    Parameters
    ----------
    T : array of shape (d, k, m)
        W + Y/rho.
    tau : float
        beta/rho.
    p : float in (0, 1]

    Returns
    -------
    array of shape (d, k, m)

    Examples
    --------
    With one client, the singular values of a matrix:

    >>> import numpy as np
    >>> from fmtc import tsvt
    >>> tsvt(np.diag([3.0, 1.0])[:, :, None], tau=2.0)[:, :, 0]
    array([[1., 0.],
           [0., 0.]])
    """
    return prox(T, tau, p, "tensor")


def update_dual(Y: Array, W: Array, Z: Array, rho: float) -> Array:
    """Dual ascent on W = Z (Eq. 19); all of shape (d, k, m)."""
    return Y + rho * (W - Z)


# ------------------------------------------------------------------------------------- slices, block by block


def blocks(T: Array, least: int = 1) -> list[slice]:
    """Cuts of the first axis into parts of at most `BLOCK` entries, or of `least` rows where that is more."""
    rows = max(BLOCK // max(prod(T.shape[1:]), 1), least)
    return [slice(begin, begin + rows) for begin in range(0, T.shape[0], rows)]


def _slices_of(T: Array, coupling: str) -> Array:
    """The stack whose Fourier slices the coupling shrinks, none wider than high; a view where T is contiguous.

    ``subspace`` is ``tensor`` for one client with the matrix [T_1 ... T_m]. The order of its columns does not matter.
    """
    if coupling == "subspace":
        T = T.reshape(T.shape[0], -1, 1)
    return T if T.shape[0] >= T.shape[1] else T.swapaxes(0, 1)


def _fourier_slices(T: Array) -> Array:
    """One d x k matrix per frequency along the clients, conjugate twins left out; (floor(m/2) + 1, d, k), double."""
    xp, m = namespace(T), T.shape[2]
    if m == 1:
        return xp.moveaxis(double(T), 2, 0)
    return contiguous(xp.moveaxis(xp.fft.rfft(double(T), m, 2), 2, 0))


def _from_fourier_slices(A: Array, m: int) -> Array:
    """Undo `_fourier_slices`; (floor(m/2) + 1, d, k) -> (d, k, m)."""
    xp = namespace(A)
    A = xp.moveaxis(A, 0, 2)
    return A if m == 1 else xp.fft.irfft(A, m, 2)


def _spectrum(T: Array, in_doubt: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Singular values of all slices A, largest first, and right singular vectors; (slices, k), (slices, k, k).

    From the eigenvalues of AᴴA, each of which is off by a rounding error of the largest: the smaller a singular value,
    the fewer digits it has. Slices where that is in doubt are gone through again, with the triangular factor of A in
    the place of AᴴA.
    """
    xp, G, R = namespace(T), None, None
    for block in blocks(T, least=min(T.shape[1], HIGH)):
        A = _fourier_slices(T[block])
        AhA = A.conj().swapaxes(1, 2) @ A
        G = AhA if G is None else xp.add(G, AhA, out=G)
    squares, V = xp.linalg.eigh(G)
    s, V = contiguous(xp.flip(xp.sqrt(xp.clip(squares, 0, None)), (1,))), contiguous(xp.flip(V, (2,)))
    again = in_doubt(s)
    if again.any():
        for block in blocks(T, least=T.shape[1]):
            A = _fourier_slices(T[block])[again]
            R = xp.linalg.qr(A if R is None else xp.concatenate([R, A], axis=1))[1]
        _, s[again], Vh = xp.linalg.svd(R, full_matrices=False)
        V[again] = Vh.conj().swapaxes(1, 2)
    return s, V


def _sum_in_doubt(s: Array, p: float) -> Array:
    """Slices whose powers p add up to something else where the squares are larger by the noise; (slices,)."""
    off = ((s**2 + NOISE * s[:, :1] ** 2) ** (p / 2) - s**p).sum(axis=1)
    return off > SURE * (s**p).sum() / len(s)


def _shrinkage_in_doubt(s: Array, threshold: float) -> Array:
    """Slices that are not shrunk to nothing, and where the noise shows at the threshold; (slices,).

    A V diag(x/s) Vᴴ is off by the slope of x/s in s², 1/(2 threshold²) at most, times the noise times s.
    """
    largest = s[:, 0]
    return (largest > threshold) & (NOISE * largest > SURE * threshold)


# ------------------------------------------------------------------------ the leading values of one large matrix


def _large(T: Array) -> bool:
    """Whether T is one matrix A whose AᵀA would be too large."""
    return T.shape[2] == 1 and T.shape[1] > GRAM_UP_TO


def _leading(T: Array, threshold: float | None = None, count: int = 1) -> tuple[Array, Array]:
    """Leading singular values of one matrix, T of shape (d, n, 1), and right singular vectors; (1, r), (1, n, r).

    With a threshold, all that are above it, or one where none is. Without, the first `count`, and some that follow and
    are approached from below.

    Randomised block Krylov iteration (Musco and Musco, 2015): the Ritz pairs of AᵀA in the span of random columns and
    of what AᵀA makes of them again and again. Blocks are widened until they have twice as many columns as values are
    looked for, so that several equal values are all found. Seeded.
    """
    xp, n, rng = namespace(T), T.shape[1], np.random.default_rng(0)

    def gram(V: Array) -> Array:
        GV = xp.zeros_like(V)
        for block in blocks(T, least=HIGH):
            A = double(T[block])[:, :, 0]
            GV += A.swapaxes(0, 1) @ (A @ V)
        return GV

    def random(columns: int) -> Array:
        return double(like(rng.standard_normal((n, columns)), T))

    def orthonormal(V: Array, Q: Array) -> Array:
        for _ in range(2):  # what is left of V the first time may be little
            V = xp.linalg.qr(V - Q @ (Q.swapaxes(0, 1) @ V))[0]
        return V

    width = min(max(WIDTH, 2 * count), n)
    Q = GQ = random(0)
    V = orthonormal(random(width), Q)
    while True:
        GV = gram(V)
        Q, GQ = xp.concatenate([Q, V], axis=1), xp.concatenate([GQ, GV], axis=1)
        r = Q.shape[1]
        squares, X = xp.linalg.eigh(Q.swapaxes(0, 1) @ GQ)
        squares, X = xp.clip(xp.flip(squares, (0,)), 0, None), xp.flip(X, (1,))
        found = count if threshold is None else int((squares > threshold**2).sum())
        next_one = contiguous(X[:, : found + 1])
        residual = xp.sqrt(((GQ @ next_one - Q @ next_one * squares[: found + 1]) ** 2).sum(axis=0))
        small = max(CONVERGED, precision(T)) * float(squares[0])
        done = 2 * found <= width and float(residual[:found].sum()) <= small
        if threshold is not None and done:  # the next one has settled below it, and is not still on its way up
            done = float(residual[found]) <= max(0.1 * (threshold**2 - float(squares[found])), small)
        if done or r == n:
            kept = r if threshold is None else max(found, 1)
            return xp.sqrt(squares[:kept])[None], (Q @ contiguous(X[:, :kept]))[None]
        if 4 * r > n and not _large(T):  # by now all of AᵀA is cheaper
            return _spectrum(T, lambda s: _shrinkage_in_doubt(s, s[:, count - 1]))
        if 2 * found > width:
            GV, width = xp.concatenate([GV, random(width)], axis=1), 2 * width
        V = orthonormal(GV[:, : n - r], Q)


def _with_even_tail(s: Array, T: Array) -> Array:
    """Leading values of one matrix, and the rest of its sum of squares spread evenly over all others; (1, n)."""
    xp, n, r = namespace(T), T.shape[1], s.shape[1]
    total = sum(float((double(T[block]) ** 2).sum()) for block in blocks(T))
    rest = max(total - float((s**2).sum()), 0.0) / max(n - r, 1)
    tail = xp.broadcast_to(xp.zeros_like(s[:, :1]) + rest**0.5, (1, n - r))
    return xp.concatenate([s, tail], axis=1)


def leading_left(T: Array, count: int) -> Array:
    """Leading left singular vectors of [T_1 ... T_m] times their singular values; (d, k, m) -> (d, count).

    Their signs are free: the largest entry of each is made positive. Columns of zeros where there are fewer.
    """
    xp, d = namespace(T), T.shape[0]
    A = _slices_of(T, "subspace")
    r = min(count, A.shape[1])
    few = _large(A) or 8 * max(WIDTH, 2 * r) <= A.shape[1]
    s, V = _leading(A, count=r) if few else _spectrum(A, lambda s: _shrinkage_in_doubt(s, s[:, r - 1]))
    s, V = s[0, :r], V[0, :, :r]
    if A.shape[0] == d:
        Us = xp.concatenate([double(A[block])[:, :, 0] @ V for block in blocks(A, least=HIGH)], axis=0)
    else:  # A is the transpose
        Us = V * s
    Us = xp.where(xp.amax(Us, axis=0) < -xp.amin(Us, axis=0), -Us, Us)
    return xp.concatenate([Us, xp.broadcast_to(xp.zeros_like(Us[:, :1]), (d, count - r))], axis=1)
