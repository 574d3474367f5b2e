"""Value of the problem, term by term, and how far the splitting is from closed (Eq. 4, 6, 8)."""

from __future__ import annotations

import math
from typing import Any

from ..linalg.arrays import Array, affine, double, is_tensor, namespace
from .consensus import blocks, schatten_p


def dot(A: Array, B: Array) -> float:
    """Sum of products of entries of two arrays of one shape, in double precision."""
    vdot = namespace(A).vdot
    parts = [slice(None)] if is_tensor(A) else blocks(A)  # a device is waited for once
    return sum(float(vdot(double(A[b]).reshape(-1), double(B[b]).reshape(-1))) for b in parts)


def local_terms(laplacian: Any, F: Array, target: Array) -> tuple[float, float]:
    """Cut Tr(FᵀLF) and misfit ||F - X W||² of one client, ``target = X W``; both shapes (n, k)."""
    gap = F - target
    return dot(F, affine(laplacian, F)), dot(gap, gap)


def local_objective(cut: float, misfit: float, alpha: float) -> float:
    """One client's share of the objective (Eq. 4)."""
    return cut + alpha * misfit


def global_objective(losses: Array, omega: Array, W: Array, *, beta: float, p: float, coupling: str) -> float:
    """Weighted local objectives plus the coupling of the client models themselves (Eq. 6)."""
    return float(omega @ losses) + beta * schatten_p(W, p, coupling)


def augmented_lagrangian(
    losses: Array, omega: Array, W: Array, Z: Array, Y: Array, *, beta: float, rho: float, p: float, coupling: str,
    norm: float | None = None,
) -> float:  # fmt: skip
    """Eq. 8, with the coupling on the consensus copy Z; stacks of shape (d, k, m), losses and omega of shape (m,).

    ``norm`` is the `schatten_p` of Z where it is known.
    """
    split = 0.0
    for b in blocks(W):
        gap = W[b] - Z[b]
        split += dot(Y[b], gap) + 0.5 * rho * dot(gap, gap)
    return float(omega @ losses) + split + beta * (schatten_p(Z, p, coupling) if norm is None else norm)


def residuals(W: Array, Z: Array, Z_before: Array, Y: Array, rho: float) -> tuple[float, float]:
    """Relative primal residual ||W - Z|| / max(||W||, ||Z||) and dual residual rho ||Z - Z_before|| / ||Y||.

    Where Y = 0 (no coupling) the dual residual is relative to rho max(||W||, ||Z||).
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
