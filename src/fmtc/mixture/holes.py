"""The E-step for rows that hardly share their missing cells with others: many rows at a time, not pattern by pattern.

With K the inverse of the covariance, h the missing cells of a row and v its deviation from a mean with 0 in h: the
missing cells have covariance ``C = (K_hh)⁻¹`` given the others and the expected deviation ``-C (K v)_h``, and the
distance of the filled cells is ``vᵀKv - (Kv)_hᵀ C (Kv)_h``. Only matrices as small as h are inverted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .cells import Cells, blocks

Array = np.ndarray


@dataclass(frozen=True)
class Filled:
    """Rows with as many missing cells as each other, completed under each concept.

    Parameters
    ----------
    rows : ndarray of int of shape (b,)
    hidden : ndarray of int of shape (b, h)
        Their missing coordinates.
    deviations : ndarray of shape (k, b, r)
        From the mean of each concept, expected ones in missing cells.
    covariance : ndarray of shape (b, h, h)
        Of the missing cells, given the others.
    distances : ndarray of shape (b, k)
        Squared Mahalanobis distances of the filled cells.
    log_det : ndarray of shape (b,)
        Of the covariance of the filled cells.
    """

    rows: Array
    hidden: Array
    deviations: Array
    covariance: Array
    distances: Array
    log_det: Array


def completed(cells: Cells, means: Array, covariance: Array) -> Iterator[Filled]:
    """The rows of `cells.scattered`, a block at a time."""
    if not cells.scattered:
        return
    K = np.linalg.inv(covariance)
    K = (K + K.T) / 2
    log_det = float(np.linalg.slogdet(covariance)[1])
    for rows, hidden in cells.scattered:
        for b in blocks(len(rows)):
            yield _completed(cells, rows[b], hidden[b], means, K, log_det)


def _completed(cells: Cells, rows: Array, hidden: Array, means: Array, K: Array, log_det: float) -> Filled:
    Z = np.asarray(cells.Z[rows], dtype=np.float64)
    V = Z[None] - means[:, None]
    at = np.arange(len(rows))[:, None]
    V[:, at, hidden] = 0.0
    KV = V @ K
    K_hh = K[hidden[:, :, None], hidden[:, None, :]]
    C = np.linalg.inv(K_hh)
    wanted = KV[:, at, hidden]  # k x b x h
    expected = np.einsum("bgh,kbh->kbg", C, wanted)
    distances = np.einsum("kbr,kbr->bk", V, KV) - np.einsum("kbh,kbh->bk", wanted, expected)
    V[:, at, hidden] = -expected
    return Filled(rows, hidden, V, C, np.maximum(distances, 0.0), log_det + np.linalg.slogdet(K_hh)[1])
