"""Sparse matrices: storage by rows in either library, and products with tall blocks of columns on several cores."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import scipy.sparse as sp

from .arrays import Array, cast, is_tensor, row_blocks

ROWS_PER_BLOCK = 8192  # of a `RowBlockMatrix`: the product of one block fits in a core's cache
PIECE = 64  # entries of a row that one thread of a device sums up
_extra_cores: ContextVar[tuple[ThreadPoolExecutor, int] | None] = ContextVar("extra_cores", default=None)


def csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> Any:
    """A sparse matrix stored by rows, in the library of its entries; supports products with matrices."""
    if not is_tensor(data):
        return sp.csr_array((data, indices, indptr), shape=shape)
    torch = sys.modules["torch"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch calls its sparse tensors a beta feature
        return torch.sparse_csr_tensor(indptr.to(torch.int32), indices.to(torch.int32), data, size=shape)


@contextmanager
def on_cores(number: int) -> Iterator[None]:
    """Give each product with a `RowBlockMatrix` this many cores, in the current thread, for the ``with`` block."""
    with ThreadPoolExecutor(max(1, number - 1)) as pool:  # starts no thread before there is work for it
        token = _extra_cores.set((pool, max(0, number - 1)))
        try:
            yield
        finally:
            _extra_cores.reset(token)


class RowBlockMatrix:
    """A sparse matrix with many rows, stored as blocks of rows; `affine` spreads the blocks over the cores.

    Parameters
    ----------
    matrix : csr_array of shape (n, n)
        Not kept: blocks may be copies of its parts.

    Attributes
    ----------
    blocks : list of (slice, csr_array)
        The rows of each block, and the block itself.
    """

    def __init__(self, matrix: sp.csr_array):
        self.shape, self.dtype = matrix.shape, matrix.dtype
        self.blocks: list[tuple[slice, sp.csr_array]] = []
        for rows in row_blocks(self.shape[0], ROWS_PER_BLOCK):
            begins = matrix.indptr[rows.start : rows.stop + 1]
            entries = slice(begins[0], begins[-1])
            part = (matrix.data[entries], matrix.indices[entries], begins - begins[0])
            self.blocks.append((rows, sp.csr_array(part, shape=(rows.stop - rows.start, self.shape[1]))))


class DeterministicCsr:
    """A sparse tensor whose products are the same in every run: the entries of a row are summed in their order.

    PyTorch's own products on a GPU are not: several threads add to one row, in any order. Rows with many entries are
    summed in pieces first, so that no thread works much longer than the others.

    Parameters
    ----------
    matrix : sparse tensor of shape (n, n), stored by rows
    """

    def __init__(self, matrix: Any):
        self.matrix, self.shape, self.dtype = matrix, tuple(matrix.shape), matrix.dtype
        torch, begins = sys.modules["torch"], matrix.crow_indices().long()
        pieces = (begins.diff() + PIECE - 1) // PIECE  # of each row
        last = pieces.cumsum(0)
        row = torch.repeat_interleave(pieces)
        self.number = torch.arange(len(row), device=begins.device)
        first = begins[:-1][row] + PIECE * (self.number - (last - pieces)[row])
        self.begins = torch.cat([first, begins[-1:]]).to(torch.int32)  # where pieces begin among the entries
        self.rows = torch.cat([torch.zeros_like(last[:1]), last]).to(torch.int32)  # where rows begin among the pieces
        self.number = self.number.to(torch.int32)

    def __matmul__(self, V: Array) -> Array:
        torch, A = sys.modules["torch"], self.matrix
        columns, begins, entries = A.col_indices(), A.crow_indices(), A.values()
        if V.shape[1] == 1:  # embedding bags are slow here
            products = entries * V[:, 0].index_select(0, columns)
            return torch.segment_reduce(products, "sum", offsets=begins.long(), unsafe=True)[:, None]
        bags = torch.nn.functional.embedding_bag
        sums = bags(columns, V, self.begins, mode="sum", per_sample_weights=entries, include_last_offset=True)
        return bags(self.number, sums, self.rows, mode="sum", include_last_offset=True)


def affine(
    A: Any, V: Array, gain: float = 1.0, shift: float = 0.0, plus: Callable[[slice], Array] | None = None
) -> Array:
    """Gain A V + shift V + plus, for a square sparse A; (n, k) -> (n, k).

    The product is computed in the precision of A, the rest in that of V. A `RowBlockMatrix` is multiplied block by
    block, and each block is finished while it is in the cache. The result does not depend on the number of cores.

    Parameters
    ----------
    A : sparse array, sparse tensor, RowBlockMatrix or DeterministicCsr of shape (n, n)
    V : array of shape (n, k)
    gain, shift : float
    plus : callable, slice -> array of shape (rows, k), optional
        The rows of a third term.

    Returns
    -------
    array of shape (n, k)
    """
    narrow = cast(V, A.dtype)

    def finished(product: Array, rows: slice) -> Array:
        product *= gain
        if shift:
            product += shift * V[rows]
        if plus is not None:
            product += plus(rows)
        return product

    if not isinstance(A, RowBlockMatrix):
        return finished(cast(A @ narrow, V.dtype), slice(None))
    result = np.empty_like(V)
    pool, extra = _extra_cores.get() or (None, 0)

    def work(first: int) -> None:
        for rows, block in A.blocks[first :: extra + 1]:
            result[rows] = finished(cast(block @ narrow, V.dtype), rows)

    others = [pool.submit(work, first) for first in range(1, extra + 1)] if pool is not None else []
    work(0)
    for each in others:
        each.result()
    return result
