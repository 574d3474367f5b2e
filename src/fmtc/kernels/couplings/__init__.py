"""Couplings of the clients' projections (Eq. 5, 17-19): one file each, and the registry of all of them.

To add a coupling, write a file with a subclass of `Coupling` and add one line to `COUPLINGS`.
"""

from __future__ import annotations

from ...linalg.arrays import Array
from .average import AverageCoupling
from .base import Consensus, Coupling, update_dual
from .spectrum import weight_of_threshold
from .subspace import SubspaceCoupling
from .tensor import TensorCoupling, tsvt

COUPLINGS: dict[str, Coupling] = {
    coupling.name: coupling
    for coupling in (
        TensorCoupling(),
        SubspaceCoupling(),
        AverageCoupling(),
    )
}


def schatten_p(T: Array, p: float, coupling: str = "tensor") -> float:
    """Schatten-p quasi-norm of a stack of projections, to the power p (Eq. 5).

    Parameters
    ----------
    T : array of shape (d, k, m)
    p : float in (0, 1]
    coupling : {"tensor", "subspace", "average"}
        For "subspace" an upper bound if d and k m are both above 3,000.

    Examples
    --------
    The nuclear norm of one matrix:

    >>> import numpy as np
    >>> from fmtc.kernels.couplings import schatten_p
    >>> schatten_p(np.diag([3.0, 4.0])[:, :, None], p=1)
    7.0
    """
    if coupling not in COUPLINGS:
        raise ValueError(f"coupling must be one of {', '.join(map(repr, COUPLINGS))}, got {coupling!r}")
    return COUPLINGS[coupling].value(T, p)


__all__ = ["COUPLINGS", "Consensus", "Coupling", "schatten_p", "tsvt", "update_dual", "weight_of_threshold"]
