"""The paper's coupling: low rank of the tensor of all projections, by the t-SVD (Eq. 5, 18)."""

from __future__ import annotations

from ...linalg.arrays import Array
from .base import Consensus, Coupling
from .spectrum import consensus, shrink_slices, singular_values, sum_of_powers


class TensorCoupling(Coupling):
    """Schatten norm of the t-SVD: Fourier transform along the clients, singular values of each slice.

    The order of the clients matters from four clients on, and so do the rotations of their columns; clients are
    therefore sorted by name and aligned.
    """

    name = "tensor"
    summary = "The projections of all silos form a tensor of low rank (the paper's method)."

    def value(self, W: Array, p: float) -> float:
        """Mean over the m Fourier slices of the sum of singular values to the power p (Eq. 5)."""
        return sum_of_powers(*singular_values(W, p), p)

    def prox(self, T: Array, tau: float, p: float) -> Consensus:
        """Shrink the singular values of every Fourier slice (Eq. 18)."""
        return consensus(*shrink_slices(T, tau, p), p)

    def critical_threshold(self, W: Array) -> float:
        """Largest singular value of a Fourier slice."""
        return float(singular_values(W)[0].max())


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
    >>> from fmtc.kernels.couplings import tsvt
    >>> tsvt(np.diag([3.0, 1.0])[:, :, None], tau=2.0)[:, :, 0]
    array([[1., 0.],
           [0., 0.]])
    """
    return TensorCoupling().prox(T, tau, p).Z
