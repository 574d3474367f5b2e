"""New rows of a spectral embedding, by Nyström's formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fmtc.kernels.graph import gaussian, resolve_neighbors
from fmtc.linalg.neighbors import nearest_neighbors

Array = np.ndarray

MIN_GAP = 0.1  # the formula divides by 1 - lambda, or by this if it is less


def cross_affinity(X_new: Any, X: Any, n_neighbors: int | str, bandwidth: float) -> sp.csr_array:
    """Gaussian weights of new rows to their nearest rows among X; (n_new, d), (n, d) -> (n_new, n).

    As in `knn_affinity`, a sparse row without entries is no row's neighbour.
    """
    n = X.shape[0]
    k, rows = resolve_neighbors(n_neighbors, n), np.arange(n)
    if sp.issparse(X) and len(full := np.flatnonzero(np.diff(X.indptr))) > k:
        rows = full
    distance, neighbor = nearest_neighbors(X if len(rows) == n else X[rows], k, X_new)
    weight = gaussian(distance, bandwidth).astype(X.dtype)
    begins = np.arange(0, neighbor.size + 1, k)
    return sp.csr_array((weight.ravel(), rows[neighbor].ravel(), begins), shape=(X_new.shape[0], n))


def nystroem(affinity: Any, degree: Array, F: Array, eigenvalues: Array) -> Array:
    """Eigenvectors of the normalised Laplacian extended to new rows.

    ``f_j(x) = sum_i a_i(x) F_ij / sqrt(d(x) d_i) / (1 - lambda_j)``, with d(x) the sum of the weights a_i(x). For a row
    of the graph itself, with its own weights, this is exactly its row of F.

    1 - lambda_j is replaced by 0.1 if it is less. With many columns for few rows, eigenvalues come close to 1 and
    exceed it: the formula would then amplify noise, or reverse its sign.

    Parameters
    ----------
    affinity : sparse array of shape (n_new, n)
        Weights of new rows to the rows of the graph.
    degree : array of shape (n,)
        Of the rows of the graph.
    F : array of shape (n, k)
    eigenvalues : array of shape (k,)
        lambda_j of the columns of F.

    Returns
    -------
    array of shape (n_new, k)
    """
    gain = 1 / np.maximum(1 - eigenvalues, MIN_GAP)
    scale = np.sqrt(np.ravel(affinity.sum(axis=1)))[:, None]
    return (affinity @ (F / np.sqrt(degree)[:, None])) * gain / scale
