"""What a coupling is: a value of the stack of all projections, and the proximal step of that value (Eq. 5, 17-19)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from ...linalg.arrays import Array, contiguous, copy


@dataclass(frozen=True)
class Consensus:
    """Result of a proximal step, with what the decomposition behind it says about Z."""

    Z: Array  # d x k x m
    value: float  # of the coupling at Z
    rank: int  # largest rank of a matrix that the coupling decomposes: singular values above 1e-6 of the largest

    def separate_from(self, T: Array) -> Consensus:
        """The same with Z contiguous and not in the memory of T; a copy only if it was T itself or a view."""
        if self.Z is T:
            return replace(self, Z=copy(T))
        return replace(self, Z=contiguous(self.Z))


class Coupling(ABC):
    """How the projections of all clients are tied together.

    Stacks have the shape (d, k, m): slice t is the projection of client t. They are NumPy arrays or PyTorch tensors.
    A coupling has no state, so one object serves all runs. Add it to `fmtc.kernels.couplings.COUPLINGS` and settings,
    command line, documentation and the conformance tests know it.

    Attributes
    ----------
    name : str
        As users write it.
    summary : str
        One sentence for documentation and help texts.
    fills : bool
        How columns count that a client lacks, because it lacks their concept: as the mean of those of the others
        (True), which then neither pulls nor is pulled, or as zero.
    shrinks : bool
        Whether `value` is a penalty, which a larger tau shrinks further, down to zero at `critical_threshold`. False
        for a constraint, which has the value 0 and ignores tau and p.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    fills: ClassVar[bool] = True
    shrinks: ClassVar[bool] = True

    @abstractmethod
    def value(self, W: Array, p: float) -> float:
        """Schatten-p quasi-norm of the stack to the power p, as this coupling defines it (Eq. 5).

        Parameters
        ----------
        W : array of shape (d, k, m)
        p : float in (0, 1]
        """

    @abstractmethod
    def prox(self, T: Array, tau: float, p: float) -> Consensus:
        """Minimise ``tau value(Z, p) + ||Z - T||²/2`` over Z (Eq. 18).

        Works on blocks of features and makes no copy of the stack but the result. Z may share the memory of T, and is T
        itself if tau = 0 and the coupling shrinks. Z may also be a read-only view. A caller that writes to T or Z takes
        `Consensus.separate_from` first. T itself is never written to.

        Parameters
        ----------
        T : array of shape (d, k, m)
            W + Y/rho.
        tau : float
            beta/rho.
        p : float in (0, 1]

        Returns
        -------
        Consensus
            Z in the number format of T, and its value and rank without another decomposition.
        """

    @abstractmethod
    def critical_threshold(self, W: Array) -> float:
        """The smallest tau with which, for p = 1, `prox` maps W to zero: the largest singular value.

        For another p the critical tau is ``weight_of_threshold(critical_threshold(W), p)``. A coupling that does not
        shrink has no such tau; the number then only gives a relative beta its unit.

        Parameters
        ----------
        W : array of shape (d, k, m)
        """


def update_dual(Y: Array, W: Array, Z: Array, rho: float) -> Array:
    """Dual ascent on W = Z (Eq. 19); all of shape (d, k, m).

    With T = W + Y/rho of Eq. 18 it is the same as ``update_dual(0, T, Z, rho)``.
    """
    return Y + rho * (W - Z)
