"""Consensus of all clients: Schatten-p value, its proximal step and the dual step (Eq. 5, 17-19).

Three couplings of the stack W of shape (d, k, m). ``tensor`` is the paper's: the t-SVD, Fourier transform along the
clients. ``subspace`` is the matrix [W_1 ... W_m]: no rotation of a client's columns and no order of clients
changes it. ``average`` asks for one projection for all, plain federated averaging: a control to compare with.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

COUPLINGS = ("tensor", "subspace", "average")
GST_STEPS = 30  # fixed-point steps of the scalar shrinkage; ten leave an error near 1e-9, thirty none


def shrink(s: Array, tau: float, p: float) -> Array:
    """Scalar proximal step: minimise tau x^p + (x - s)²/2 over x >= 0, entry by entry.

    Soft thresholding for p = 1; generalised soft thresholding (Zuo et al. 2013) for 0 < p < 1, which jumps from 0 to
    (2 tau (1 - p))^(1/(2 - p)) at its threshold.
    """
    if tau == 0:
        return s
    if p == 1:
        return np.maximum(s - tau, 0)
    jump = (2 * tau * (1 - p)) ** (1 / (2 - p))
    threshold = jump + tau * p * jump ** (p - 1)
    kept = np.where(s > threshold, s, 1.0)  # 1.0: a harmless value for the power below
    x = kept
    for _ in range(GST_STEPS):
        x = kept - tau * p * np.maximum(x, jump) ** (p - 1)
    return np.where(s > threshold, x, 0).astype(s.dtype, copy=False)


def weight_of_threshold(threshold: float, p: float) -> float:
    """The tau at which `shrink` maps exactly the values up to `threshold` to zero."""
    if p == 1:
        return threshold
    jump = (2 * (1 - p)) ** (1 / (2 - p))  # for tau = 1
    return float((threshold / (jump + p * jump ** (p - 1))) ** (2 - p))


def singular_values(T: Array, coupling: str) -> tuple[Array, Array]:
    """Singular values that the coupling's norm sums, and the weight of each; both of the same shape.

    ``tensor``: of the Fourier slices along the clients that a real transform keeps. docs/paper.md#schatten: the norm is
    (1/m) times the sum over all m slices, so a slice with a conjugate twin weighs 2/m, the others 1/m.
    ``average``: of the mean; they weigh nothing, as the constraint Z_1 = ... = Z_m has no value.
    """
    if coupling == "average":
        s = np.linalg.svd(T.mean(axis=2), compute_uv=False)
        return s, np.zeros_like(s)
    if coupling == "subspace":
        s = np.linalg.svd(unfold(T), compute_uv=False)
        return s, np.ones_like(s)
    s = np.linalg.svd(_fourier_slices(T), compute_uv=False)
    m = T.shape[2]
    twin = np.full(len(s), 2.0, dtype=s.dtype)
    twin[0] = 1
    if m % 2 == 0:
        twin[-1] = 1
    return s, np.broadcast_to(twin[:, None] / m, s.shape)


def schatten_p(T: Array, p: float, coupling: str = "tensor") -> float:
    """Schatten-p quasi-norm of a stack of client models, to the power p (Eq. 5).

    Parameters
    ----------
    T : array of shape (d, k, m)
    p : float in (0, 1]
    coupling : {"tensor", "subspace", "average"}

    Examples
    --------
    The nuclear norm of one matrix:

    >>> import numpy as np
    >>> from fmtc import schatten_p
    >>> schatten_p(np.diag([3.0, 4.0])[:, :, None], p=1)
    7.0
    """
    s, weight = singular_values(T, coupling)
    return float((weight * s**p).sum())


def prox(T: Array, tau: float, p: float, coupling: str = "tensor") -> Array:
    """Minimise tau ||Z||_Sp^p + ||Z - T||²/2 over Z (Eq. 18), for any coupling; shape (d, k, m).

    ``average`` has no tau: the nearest stack of equal slices.
    """
    if coupling == "average":
        return np.broadcast_to(T.mean(axis=2, keepdims=True), T.shape)
    return tsvt(T, tau, p) if coupling == "tensor" else subspace_threshold(T, tau, p)


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
    if tau == 0:
        return T
    U, s, Vh = np.linalg.svd(_fourier_slices(T), full_matrices=False)
    slices = (U * shrink(s, tau, p)[:, None, :]) @ Vh
    return np.fft.irfft(np.moveaxis(slices, 0, 2), n=T.shape[2], axis=2).astype(T.dtype, copy=False)


def subspace_threshold(T: Array, tau: float, p: float = 1.0) -> Array:
    """Singular value thresholding of [T_1 ... T_m], cut back into slices; shape (d, k, m).

    Z_t = P T_t with one d x d matrix P that depends on sum_t T_t T_tᵀ alone.
    """
    if tau == 0:
        return T
    U, s, Vh = np.linalg.svd(unfold(T), full_matrices=False)
    return fold((U * shrink(s, tau, p)) @ Vh, T.shape[2])


def update_dual(Y: Array, W: Array, Z: Array, rho: float) -> Array:
    """Dual ascent on W = Z (Eq. 19); all of shape (d, k, m)."""
    return Y + rho * (W - Z)


def unfold(T: Array) -> Array:
    """[T_1 ... T_m]: (d, k, m) -> (d, m k)."""
    d, k, m = T.shape
    return T.transpose(0, 2, 1).reshape(d, m * k)


def fold(M: Array, m: int) -> Array:
    """Undo `unfold`: (d, m k) -> (d, k, m)."""
    d, mk = M.shape
    return M.reshape(d, m, mk // m).transpose(0, 2, 1)


def _fourier_slices(T: Array) -> Array:
    """One d x k matrix per frequency along the clients, conjugate twins left out; (floor(m/2) + 1, d, k)."""
    return np.moveaxis(np.fft.rfft(T, axis=2), 2, 0)
