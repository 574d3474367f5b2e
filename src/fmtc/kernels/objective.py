"""Value of the problem, term by term, and how far the splitting is from closed (Eq. 4, 6, 8)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .consensus import schatten_p

Array = np.ndarray


def local_terms(laplacian: Any, F: Array, target: Array) -> tuple[float, float]:
    """Cut Tr(FᵀLF) and misfit ||F - X W||² of one client, ``target = X W``; both shapes (n, k)."""
    cut = float(np.einsum("ij,ij->", F, laplacian @ F, dtype=np.float64))
    misfit = float(np.square(F - target, dtype=np.float64).sum())
    return cut, misfit


def local_objective(cut: float, misfit: float, alpha: float) -> float:
    """One client's share of the objective (Eq. 4)."""
    return cut + alpha * misfit


def global_objective(losses: Array, omega: Array, W: Array, *, beta: float, p: float, coupling: str) -> float:
    """Weighted local objectives plus the coupling of the client models themselves (Eq. 6)."""
    return float(omega @ losses) + beta * schatten_p(W, p, coupling)


def augmented_lagrangian(
    losses: Array, omega: Array, W: Array, Z: Array, Y: Array, *, beta: float, rho: float, p: float, coupling: str
) -> float:
    """Eq. 8, with the coupling on the consensus copy Z; stacks of shape (d, k, m), losses and omega of shape (m,)."""
    gap = W - Z
    return (
        float(omega @ losses)
        + float(np.sum(Y * gap, dtype=np.float64))
        + 0.5 * rho * float(np.square(gap, dtype=np.float64).sum())
        + beta * schatten_p(Z, p, coupling)
    )


def residuals(W: Array, Z: Array, Z_before: Array, Y: Array, rho: float) -> tuple[float, float]:
    """Relative primal residual ||W - Z|| / max(||W||, ||Z||) and dual residual rho ||Z - Z_before|| / ||Y||.

    Where Y = 0 (no coupling) the dual residual is relative to rho max(||W||, ||Z||).
    """
    size = max(float(np.linalg.norm(W)), float(np.linalg.norm(Z)), np.finfo(W.dtype).tiny)
    dual_size = float(np.linalg.norm(Y)) or rho * size
    return float(np.linalg.norm(W - Z)) / size, rho * float(np.linalg.norm(Z - Z_before)) / dual_size
