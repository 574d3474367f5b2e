"""Any coupling, over clients that lack concepts: columns of a concept are coupled among the clients that have it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...linalg.arrays import Array
from .base import Consensus, Coupling


@dataclass(frozen=True, eq=False)
class Partial(Coupling):
    """A coupling of clients that have some of the concepts; columns of the others are zero in every stack.

    Column j of a stack belongs to concept j, at every client that has it. A coupling that `fills` sees the mean of the
    others in place of a column that a client lacks. For the average this is the exact proximal step of equal columns
    among those who have a concept; for the tensor it is one step of an iteration that completes the stack
    (docs/paper.md#concepts). The matrix of all projections side by side needs no filling: columns of zeros add nothing.

    Parameters
    ----------
    whole : Coupling
        Of clients that have all concepts.
    has : ndarray of bool of shape (K, m)
        Which concepts each client has.

    Examples
    --------
    Three clients, the last without the second concept: the average is taken among those who have a concept.

    >>> import numpy as np
    >>> from fmtc.kernels.couplings import COUPLINGS
    >>> from fmtc.kernels.couplings.partial import Partial
    >>> T, has = np.array([[[1.0, 2.0, 6.0], [4.0, 8.0, 0.0]]]), np.array([[1, 1, 1], [1, 1, 0]], bool)
    >>> Partial(COUPLINGS["average"], has).prox(T, 0.0, 1.0).Z
    array([[[3., 3., 3.],
            [6., 6., 0.]]])
    """

    whole: Coupling
    has: Array

    def filled(self, T: Array) -> Array:
        """The stack that the coupling sees; (d, K, m) -> (d, K, m)."""
        if not self.whole.fills:
            return T
        mean = T.sum(axis=2) / np.maximum(self.has.sum(axis=1), 1)  # T is zero where a client lacks a concept
        return np.where(self.has, T, mean[:, :, None])

    def value(self, W: Array, p: float) -> float:
        """That of the filled stack."""
        return self.whole.value(self.filled(W), p)

    def prox(self, T: Array, tau: float, p: float) -> Consensus:
        """That of the filled stack, with zeros where a client lacks a concept."""
        found = self.whole.prox(self.filled(T), tau, p)
        return replace(found, Z=found.Z * self.has)

    def critical_threshold(self, W: Array) -> float:
        """That of the filled stack."""
        return self.whole.critical_threshold(self.filled(W))
