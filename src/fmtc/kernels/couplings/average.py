"""Coupling by equality: one projection for all clients, as in plain federated averaging."""

from __future__ import annotations

from ...linalg.arrays import Array, namespace
from .base import Consensus, Coupling
from .spectrum import rank


class AverageCoupling(Coupling):
    """The constraint Z_1 = ... = Z_m, a baseline to compare the others with."""

    name = "average"
    summary = "All silos share one projection, as in plain federated averaging (for comparison)."
    shrinks = False

    def value(self, W: Array, p: float) -> float:
        """Zero: a constraint has no value."""
        return 0.0

    def prox(self, T: Array, tau: float, p: float) -> Consensus:
        """The nearest stack of equal slices, a read-only view of their mean; tau and p play no part."""
        xp, mean = namespace(T), T.mean(axis=2, keepdims=True)
        return Consensus(xp.broadcast_to(mean, T.shape), 0.0, rank(_singular_values(mean)))

    def critical_threshold(self, W: Array) -> float:
        """Largest singular value of the mean: not a threshold, but a unit for beta."""
        return float(_singular_values(W).max())


def _singular_values(T: Array) -> Array:
    """Singular values of the mean of a stack; (d, k, m) -> (1, min(d, k))."""
    return namespace(T).linalg.svd(T.mean(axis=2), full_matrices=False)[1][None]
