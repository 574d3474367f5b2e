"""What a client keeps for good, and what it says of new rows: projection, label, probabilities. No training row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from .errors import NotFiniteError
from .kernels.centers import row_norms
from .kernels.projection import Rows
from .kernels.scaling import Scaling, kept_columns
from .linalg.arrays import is_tensor, namespace, to_device_of

Array = np.ndarray

BLOCK = 32_768  # new rows projected at a time: what is made on the way stays in cache, and is worth a thread


@dataclass(frozen=True)
class ClientModel:
    """What a client keeps for good: enough to label new rows as they come, and no training row."""

    W: Array  # d x k, in the units of the rows as they came
    centers: Array  # k x k, row j the unit centre of cluster j among normalised projections
    spread: float  # mean squared distance of a training row to its centre
    mean: Array | None  # d, subtracted from rows first; None where rows are not centred
    stretch: Array | None = None  # d, what columns were divided by; W has it inside, distances between rows need it
    keep: Array | None = None  # d, numbers of the columns of a row that the model looks at; None: all

    def scaled(self, X: Any) -> Any:
        """New rows in the units the model was made in, up to a shift: their distances are those of the graph."""
        return X if self.stretch is None else Scaling(self.stretch, keep=self.keep).apply(X)


def _finite(Y: Array) -> Array:
    """The same projections, or an error: NaN and infinity in a row show in every column of its projection."""
    if not np.isfinite(float(Y.sum())) and not namespace(Y).isfinite(Y).all():  # the sum alone may just be too large
        raise NotFiniteError("the rows hold NaN, infinity, or values too large for their number format")
    return Y


def _blockwise(X: Any, keep: Array | None, answer: Callable[[Any], Array]) -> Array:
    """Answer for all rows, a block at a time; sparse rows are few bytes each and go in one block."""
    n = X.shape[0]
    with np.errstate(invalid="ignore", over="ignore"):  # `_finite` says it better
        if sp.issparse(X) or is_tensor(X) or n <= BLOCK:
            return answer(kept_columns(X, keep))
        return np.concatenate([answer(kept_columns(X[b : b + BLOCK], keep)) for b in range(0, n, BLOCK)])


def project(X: Any, W: Array, mean: Array | None, keep: Array | None = None) -> Array:
    """Normalised rows of (X - mean) W: the space the centres live in; (n, d), (d, k) -> (n, k)."""

    W, mean = to_device_of(W, X), None if mean is None else to_device_of(mean, X)

    def answer(block: Any) -> Array:
        Y = _finite(Rows(block, mean) @ W)
        return Y / row_norms(Y)

    return _blockwise(X, keep, answer)


def assign(X: Any, model: ClientModel) -> Array:
    """Cluster of each new row: project, normalise, nearest centre; (n, d) -> (n,). Row by row: no batch effect.

    Centres have unit norm, so the nearest one has the largest product with the row, whatever the row's own norm:
    one product with the d x k matrix W Cᵀ decides.
    """
    V = to_device_of(model.W @ model.centers.T, X)
    mean = None if model.mean is None else to_device_of(model.mean, X)
    return _blockwise(X, model.keep, lambda block: _finite(Rows(block, mean) @ V).argmax(axis=1))


def memberships(X: Any, model: ClientModel) -> Array:
    """Probability of each cluster, as if clusters were equally likely round Gaussians; (n, d) -> (n, k).

    Their common variance per coordinate is the training rows' mean squared distance to their centre over k.
    """
    V = model.W @ model.centers.T
    variance = max(model.spread / len(model.centers), 1e-12)

    def answer(block: Any) -> Array:
        rows = Rows(block, model.mean)
        score = (rows @ V).astype(np.float64)  # cosine to each centre, times the row's norm
        gap = (score - score.max(axis=1, keepdims=True)) / row_norms(_finite(rows @ model.W))
        # of two centres as near as numbers can tell, the one that `assign` takes has more
        tie = 1 - 4 * float(np.finfo(V.dtype).eps)
        P = np.where(gap == 0, 1.0, np.minimum(np.exp(gap / variance), tie))
        return (P / P.sum(axis=1, keepdims=True)).astype(V.dtype, copy=False)

    return _blockwise(X, model.keep, answer)


__all__ = ["ClientModel", "assign", "memberships", "project"]
