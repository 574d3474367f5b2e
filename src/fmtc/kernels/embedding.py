"""Embedding of one client's rows: spectral start, then projected gradient on the Stiefel manifold (Eq. 13-16)."""

from __future__ import annotations

from math import ceil, pi
from typing import Any

import numpy as np

from ..errors import warn_not_converged
from ..linalg.arrays import Array, asarray_like, cast, double, inner_products, is_tensor, namespace, precision
from ..linalg.eigen import lanczos_bound, largest_eigenvectors, polar_factor, uniform_noise
from ..linalg.sparse import affine
from .graph import Graph, resolve_neighbors
from .lift import MIN_SHARE

MAX_RESIDUAL = 1e-5  # ||L v - lambda v|| of an eigenvector; above it the spectral start warns
CHAIN = pi**2 / 24  # second eigenvalue of a chain, times (n / n_neighbors)²; half and twice: concepts.md, advice


def nearest_orthonormal(M: Array) -> Array:
    """Closest matrix with orthonormal columns, the polar factor U Vᵀ of M = U S Vᵀ (Eq. 16).

    Parameters
    ----------
    M : array of shape (n, k), n >= k

    Returns
    -------
    array of shape (n, k)
    """
    return polar_factor(M)


def update_embedding(
    laplacian: Any, F: Array, target: Array, *, alpha: float, eta: float | None, n_inner: int, min_move: float = 0.0
) -> Array:
    """Lower Tr(FᵀLF) + alpha ||F - target||² over FᵀF = I by projected gradient steps (Eq. 14-16).

    With ``eta = 1/(top + alpha)``, where ``top`` bounds the eigenvalues of the Laplacian, a step is one of generalised
    power iteration and the objective cannot rise (docs/paper.md#step-size). None uses the bound 2, which always holds.

    Parameters
    ----------
    laplacian : sparse array of shape (n, n)
    F : array of shape (n, k)
        Orthonormal columns; where to start.
    target : array of shape (n, k)
        X W, the paper's A_t.
    eta : float or None
        Step size in the units of Eq. 15, which folds the 2 of Eq. 14 into it.
    n_inner : int
        Number of steps at most.
    min_move : float
        The first step with a smaller `relative_move` is the last.

    Returns
    -------
    array of shape (n, k)
    """
    eta = 1 / (2 + alpha) if eta is None else eta
    pull = eta * alpha * target
    for _ in range(n_inner):
        # F minus eta times the halved gradient L F + alpha (F - target) (Eq. 14, 15)
        step = affine(laplacian, F, -eta, 1 - eta * alpha, lambda rows: pull[rows])
        before, F = F, nearest_orthonormal(step)  # Eq. 16
        if min_move and relative_move(before, F) < min_move:
            break
    return F


def relative_move(before: Array, F: Array) -> float:
    """Distance between two embeddings, as a share of their norm; both (n, k)."""
    gap = F - before
    return float(namespace(F).linalg.norm(gap)) / F.shape[1] ** 0.5


def largest_eigenvalue(graph: Graph, rng: np.random.Generator, steps: int = 30) -> float:
    """A bound on the spectrum of a normalised Laplacian, tighter than 2, from a few Lanczos steps.

    It is rounded up to eighths, so that neither the random start nor the order of rows matters. An eigenvalue in which
    the start has next to no share can be missed. That does no harm: the bound is never below 1, the mean of the
    spectrum, so a step of length ``1/bound`` amplifies no eigenvalue up to 2.
    """
    start = uniform_noise(rng, (graph.laplacian.shape[0], 1), graph.degree)
    try:
        bound = lanczos_bound(lambda v: affine(graph.laplacian, v), start, steps)
    except np.linalg.LinAlgError:
        return 2.0
    return min(2.0, ceil(8 * bound) / 8)


def spectral_start(graph: Graph, n_clusters: int, rng: np.random.Generator) -> Array:
    """Bottom k eigenvectors of the normalised Laplacian, with fixed signs; deterministic for a generator.

    The null vectors are known from the connected components: sqrt(degree) on each, or on the k largest components if
    there are more. The others come from `largest_eigenvectors`, a dense or iterative solver with others to fall back
    on: if none of them converges, the start is rough and a warning says so, but there always is one.

    Returns
    -------
    array of shape (n, k)
        Orthonormal columns, the largest entry of each positive; rows in the client's order.
    """
    L, known = graph.laplacian, min(n_clusters, len(graph.component_sizes))
    xp, n = namespace(graph.degree), L.shape[0]
    number = asarray_like(np.arange(known), graph.component)
    root = double(graph.degree)[:, None] ** 0.5
    U = xp.where(graph.component[:, None] == number, root, xp.zeros_like(root))
    U = U / (U * U).sum(axis=0) ** 0.5
    if known < n_clusters:
        # 2I - L with the eigenvalue of the known vectors moved from 2 to 0
        def deflated(V: Array, gain: float = 1.0, shift: float = 0.0, minus: Array | None = None) -> Array:
            S = inner_products(U, V) * (-2 * gain)

            def plus(rows: slice) -> Array:
                along = U[rows] @ S
                return along if minus is None else along - minus[rows]

            return affine(L, V, -gain, 2 * gain + shift, plus)

        V, residual = largest_eigenvectors(deflated, n, n_clusters - known, precision(graph.degree), rng, U)
        if residual > MAX_RESIDUAL:
            warn_not_converged(
                f"the eigen-solver did not reach a residual of {MAX_RESIDUAL:g} on a graph of {n} rows (best: "
                f"{residual:.1e}); the embedding starts from there. More neighbours usually help: raise n_neighbors."
            )
        U = xp.concatenate([U, V], axis=1)
    F = cast(nearest_orthonormal(U), L.dtype)
    if is_tensor(F):  # stays on its device
        return graph.to_client_order(F * xp.where(-xp.amin(F, axis=0) > xp.amax(F, axis=0), -1, 1))
    peak = F[np.abs(F).argmax(axis=0), np.arange(n_clusters)]
    return graph.to_client_order(F * asarray_like(np.where(peak < 0, -1, 1), F))


def large_parts(F: Array, eigenvalues: Array, n_neighbors: int | str = "auto") -> int:
    """Number of large parts that hardly touch in a graph with these bottom eigenvectors.

    A chain of n rows, each joined to the K rows around it with equal weights, is about the loosest that one piece can
    be. A walk along it moves by K²/12 in mean square, so its second eigenvalue is ``(pi K/n)²/24``. Where rows have c
    eigenvalues below that, they are taken for c parts, with few links between them or none. The pivots of a QR
    decomposition are one row of each part (Damle, Minden and Ying, 2019), and the others go with the pivot that they
    are most like. A part counts if it has at least a quarter of an equal share of all that count, as for the shapes
    that `lift` looks for: a few outliers are no part. A thin line can come out as two.

    Parameters
    ----------
    F : array of shape (n, e)
        As `spectral_start` gives them.
    eigenvalues : array of shape (e,)
        Theirs, ascending.
    n_neighbors : int or "auto"
        Of each row of the graph.

    Examples
    --------
    Two lines of 40 points each, and one point far from both:

    >>> import numpy as np
    >>> from fmtc.kernels.embedding import large_parts, spectral_start
    >>> from fmtc.kernels.graph import build_graph
    >>> line = np.column_stack([np.arange(40.0), np.zeros(40)])
    >>> graph = build_graph(np.vstack([line, line + [0, 90], [[300.0, 300.0]]]))
    >>> F = spectral_start(graph, 4, np.random.default_rng(0))
    >>> large_parts(F, np.einsum("ij,ij->j", F, graph.laplacian @ F))
    2
    """
    from scipy.linalg import qr

    U = F[:, eigenvalues < CHAIN * (resolve_neighbors(n_neighbors, len(F)) / len(F)) ** 2]
    pivot = qr(U.T, mode="r", pivoting=True)[1][: U.shape[1]]
    sizes = np.bincount(np.abs(U @ nearest_orthonormal(U[pivot].T)).argmax(axis=1))
    while (small := sizes < MIN_SHARE * sizes.mean()).any():
        sizes = sizes[~small]
    return len(sizes)
