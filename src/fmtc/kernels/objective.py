"""Value of the problem, term by term, and the residuals of the splitting (Eq. 4, 6, 8)."""

from __future__ import annotations

import math
from typing import Any

from ..linalg.arrays import Array, double, is_tensor, namespace
from ..linalg.sparse import affine
from ..linalg.stacks import blocks
from .couplings import Coupling


def dot(A: Array, B: Array) -> float:
    """Sum of the products of all entries of two arrays of one shape, in double precision."""
    vdot = namespace(A).vdot
    parts = [slice(None)] if is_tensor(A) else blocks(A)  # tensors in one part: the host waits for the device once
    return sum(float(vdot(double(A[b]).reshape(-1), double(B[b]).reshape(-1))) for b in parts)


def local_terms(laplacian: Any, F: Array, target: Array) -> tuple[float, float]:
    """Cut Tr(FᵀLF) and misfit ||F - X W||² of one client, ``target = X W``; both shapes (n, k)."""
    gap = F - target
    return dot(F, affine(laplacian, F)), dot(gap, gap)


def local_objective(cut: float, misfit: float, alpha: float) -> float:
    """One client's share of the objective (Eq. 4)."""
    return cut + alpha * misfit


def global_objective(losses: Array, omega: Array, W: Array, *, beta: float, p: float, coupling: Coupling) -> float:
    """Weighted local objectives plus the coupling of the projections themselves (Eq. 6)."""
    return float(omega @ losses) + beta * coupling.value(W, p)


def augmented_lagrangian(
    losses: Array, omega: Array, W: Array, Z: Array, Y: Array, *, rho: float, penalty: float
) -> float:
    """Augmented Lagrangian, with the coupling on the consensus copy Z (Eq. 8).

    Parameters
    ----------
    losses, omega : arrays of shape (m,)
        Local objectives and weights of the clients.
    W, Z, Y : arrays of shape (d, k, m)
    rho : float
    penalty : float
        Beta times the coupling's value of Z, which a `Consensus` knows.
    """
    split = 0.0
    for b in blocks(W):
        gap = W[b] - Z[b]
        split += dot(Y[b], gap) + 0.5 * rho * dot(gap, gap)
    return float(omega @ losses) + split + penalty


def residuals(W: Array, Z: Array, Z_before: Array, Y: Array, rho: float) -> tuple[float, float]:
    """Relative primal residual ||W - Z|| / max(||W||, ||Z||) and dual residual rho ||Z - Z_before|| / ||Y||.

    If Y = 0 (no coupling), the dual residual is relative to rho max(||W||, ||Z||).
    """
    size = max(_distance(W), _distance(Z), float(namespace(W).finfo(W.dtype).tiny))
    dual_size = _distance(Y) or rho * size
    return _distance(W, Z) / size, rho * _distance(Z, Z_before) / dual_size


def _distance(A: Array, B: Array | None = None) -> float:
    """Frobenius norm of A - B, or of A."""
    total = 0.0
    for b in blocks(A):
        gap = A[b] if B is None else A[b] - B[b]
        total += dot(gap, gap)
    return math.sqrt(total)
