"""The E-step for rows that hardly share their missing cells with others: many rows at a time, not pattern by pattern.

With K the inverse of the covariance, h the missing cells of a row and v its deviation from a mean with 0 in h: the
missing cells have covariance ``C = (K_hh)⁻¹`` given the others and the expected deviation ``-C (K v)_h``, and the
distance of the filled cells is ``vᵀKv - (Kv)_hᵀ C (Kv)_h``. Only matrices as small as h are inverted.

Rows with a few missing cells more or less are worked on together: K gets one more coordinate, of which nobody knows
anything and on which nothing depends, and shorter lists of missing cells are filled up with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..linalg.arrays import row_blocks
from .cells import BLOCK, Cells

Array = np.ndarray


@dataclass(frozen=True)
class Filled:
    """Rows with about as many missing cells as each other, completed under each concept.

    Parameters
    ----------
    rows : ndarray of int of shape (b,)
    hidden : ndarray of int of shape (b, h)
        Their missing coordinates; r, the number of no coordinate, after those of a row with fewer.
    n_hidden : ndarray of int of shape (b,)
        How many are missing.
    deviations : ndarray of shape (k, b, r + 1)
        From the mean of each concept, expected ones in missing cells; 0 in the coordinate that fills up.
    covariance : ndarray of shape (b, h, h)
        Of the missing cells, given the others.
    distances : ndarray of shape (b, k)
        Squared Mahalanobis distances of the filled cells.
    log_det : ndarray of shape (b,)
        Of the covariance of the filled cells.
    """

    rows: Array
    hidden: Array
    n_hidden: Array
    deviations: Array
    covariance: Array
    distances: Array
    log_det: Array

    def added_covariance(self) -> Array:
        """Covariances of the missing cells of all rows, each at its coordinates; (r + 1, r + 1)."""
        size = self.deviations.shape[2]
        at = self.hidden[:, :, None] * size + self.hidden[:, None, :]
        return np.bincount(at.ravel(), self.covariance.ravel(), minlength=size**2).reshape(size, size)


def completed(cells: Cells, means: Array, covariance: Array) -> Iterator[Filled]:
    """The rows of `cells.scattered`, a block at a time."""
    if not cells.scattered:
        return
    r = len(covariance)
    K = np.zeros((r + 1, r + 1))
    K[:r, :r] = np.linalg.inv(covariance)
    K = (K + K.T) / 2
    log_det = float(np.linalg.slogdet(covariance)[1])
    for rows, hidden in cells.scattered:
        for b in row_blocks(len(rows), BLOCK):
            yield _completed(cells, rows[b], hidden[b], means, K, log_det)


def _completed(cells: Cells, rows: Array, hidden: Array, means: Array, K: Array, log_det: float) -> Filled:
    k, r = means.shape
    V = np.zeros((k, len(rows), r + 1))
    np.subtract(np.asarray(cells.Z[rows], dtype=np.float64), means[:, None], out=V[:, :, :r])
    at = np.arange(len(rows))[:, None]
    V[:, at, hidden] = 0.0
    KV = V @ K
    K_hh = K[hidden[:, :, None], hidden[:, None, :]]
    spare = hidden == r
    each = np.arange(hidden.shape[1])
    K_hh[:, each, each] += spare  # a unit matrix beside that of the missing cells
    C = np.linalg.inv(K_hh)
    wanted = KV[:, at, hidden]  # k x b x h
    expected = np.einsum("bgh,kbh->kbg", C, wanted)
    distances = np.einsum("kbr,kbr->bk", V, KV) - np.einsum("kbh,kbh->bk", wanted, expected)
    V[:, at, hidden] = -expected
    n_hidden = hidden.shape[1] - spare.sum(axis=1)
    return Filled(rows, hidden, n_hidden, V, C, np.maximum(distances, 0.0), log_det + np.linalg.slogdet(K_hh)[1])
