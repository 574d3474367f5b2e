"""Coupling by a common subspace: low rank of the matrix [W_1 ... W_m]."""

from __future__ import annotations

import numpy as np

from ...linalg.arrays import Array
from .base import Consensus, Coupling
from .spectrum import consensus, shrink_slices, singular_values, sum_of_powers


class SubspaceCoupling(Coupling):
    """Schatten norm of [W_1 ... W_m], which neither the order of clients nor rotations of their columns change.

    Slice t of the proximal step is P T_t, where P depends only on the sum of T_s T_sᵀ over all clients s.
    """

    name = "subspace"
    summary = "The projections of all silos lie in one subspace of low dimension; the order of silos is irrelevant."
    fills = False

    def value(self, W: Array, p: float) -> float:
        """Sum of the singular values of [W_1 ... W_m] to the power p.

        An upper bound if d and k m are both above 3,000, see `spectrum.singular_values`.
        """
        return sum_of_powers(*singular_values(_side_by_side(W), p), p)

    def prox(self, T: Array, tau: float, p: float) -> Consensus:
        """Shrink the singular values of [T_1 ... T_m] (Eq. 18 for this norm)."""
        Z, s, weights = shrink_slices(_side_by_side(T), tau, p)
        return consensus(T if tau == 0 else Z.reshape(T.shape), s, weights, p)

    def critical_threshold(self, W: Array) -> float:
        """Largest singular value of [W_1 ... W_m]."""
        return float(singular_values(_side_by_side(W))[0].max())


def directions(G: Array) -> tuple[Array, Array, float]:
    """Left singular vectors and values of [T_1 ... T_m], largest first, from the sum of T_t T_tᵀ.

    The third value is how far G is from such a sum: its most negative eigenvalue, relative to the largest.
    (d, d) -> (d, d), (d,), float.
    """
    squares, U = np.linalg.eigh(G)
    return U[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0)), _negative(squares)


def _negative(squares: Array) -> float:
    largest = float(np.abs(squares).max(initial=0))
    return max(0.0, -float(squares.min(initial=0))) / largest if largest > 0 else 0.0


def directions_from_sketch(B: Array, Omega: Array) -> tuple[Array, Array, float]:
    """The same from B = G Omega, where Omega has more columns than G has rank; (d, s), (d, s) -> (d, r), (r,), float.

    Nyström: G = B (Omegaᵀ B)⁺ Bᵀ. Exact where Omega is wide enough; a narrower one, for the values that are kept only,
    is not: with half as many columns W Wᵀ was wrong by a quarter.
    """
    core = Omega.T @ B
    values, V = np.linalg.eigh((core + core.T) / 2)
    kept = values > SKETCH_NOISE * max(float(values.max()), 0.0)
    U, s, _ = np.linalg.svd(B @ (V[:, kept] / np.sqrt(values[kept])), full_matrices=False)
    return U, s, _negative(values)


SKETCH_NOISE = 1e-9  # of the largest eigenvalue: smaller ones are rounding


def _side_by_side(T: Array) -> Array:
    """[T_1 ... T_m] as one slice, columns in some order; (d, k, m) -> (d, k m, 1), a view if T is contiguous."""
    return T.reshape(T.shape[0], -1, 1)
