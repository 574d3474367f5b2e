"""Evidence on the number of clusters: large parts and eigengaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph import knn_affinity, resolve_neighbors
from .lift import MIN_SHARE

Array = np.ndarray


def large_parts(X: Any, n_neighbors: int | str = "auto") -> int:
    """Number of large parts that the rows fall into; 1 if most rows are in none. (n, d) -> int.

    Two rows are joined if each is among the nearest neighbours of the other. A part is large if it has more rows than
    one row has neighbours, and at least a quarter of an equal share of all large parts, as for the shapes that `lift`
    looks for: a few outliers are no part. No labels were used to choose this rule.

    Examples
    --------
    Two lines of 40 points each, and one point far from both:

    >>> import numpy as np
    >>> from fmtc.kernels.sweep import large_parts
    >>> line = np.column_stack([np.arange(40.0), np.zeros(40)])
    >>> large_parts(np.vstack([line, line + [0, 30], [[99.0, 99.0]]]))
    2
    """
    from scipy.sparse.csgraph import connected_components

    mutual = knn_affinity(X, n_neighbors, nonmutual_weight=0.0)
    mutual.eliminate_zeros()
    sizes = np.bincount(connected_components(mutual, directed=False)[1])
    sizes = sizes[sizes > resolve_neighbors(n_neighbors, X.shape[0])]
    while len(sizes) and (small := sizes < MIN_SHARE * sizes.mean()).any():
        sizes = sizes[~small]
    return len(sizes) if 2 * sizes.sum() > X.shape[0] else 1


def pooled_gap(eigenvalues: Array, ks: Sequence[int]) -> Array:
    """Step between eigenvalue k and k + 1 of each client's Laplacian; (m, e), v numbers -> (m, v).

    Parameters
    ----------
    eigenvalues : array of shape (m, e)
        The lowest of each client, ascending; e is above all of `ks`.
    ks : sequence of int
        Numbers of clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.sweep import pooled_gap
    >>> pooled_gap(np.array([[0.0, 0.25, 1.0]]), [1, 2])
    array([[0.25, 0.75]])
    """
    k = np.asarray(ks)
    return eigenvalues[:, k] - eigenvalues[:, k - 1]
