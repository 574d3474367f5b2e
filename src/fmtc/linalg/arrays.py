"""Which library an array belongs to, the way to a device and back, and products with many rows: the door to PyTorch.

Kernels are written once, for NumPy arrays and PyTorch tensors alike: they take `namespace(A)` for their functions and
keep to those that both libraries have under one name. What differs is here. PyTorch is imported only where a tensor, or
a device that needs one, is already in play.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp

Array = Any  # a NumPy array or a PyTorch tensor

HOST = "cpu"  # NumPy's arrays
NARROW = 500_000  # products of two numbers in a block of rows that a small result is summed over
STRIP = 8192  # rows of a strip: what it gives fits into a core's cache
_helpers: ContextVar[tuple[ThreadPoolExecutor, int] | None] = ContextVar("helpers", default=None)


def is_tensor(A: Any) -> bool:
    """Whether A is PyTorch's; does not import it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(A, torch.Tensor)


def namespace(A: Any) -> ModuleType:
    """The library whose functions take A: numpy or torch."""
    return sys.modules["torch"] if is_tensor(A) else np


def check_device(device: str) -> None:
    """One clear sentence where there is no such device.

    ``"cpu"`` is NumPy, ``"torch"`` PyTorch on the processor (to compare with), all others are PyTorch's own names,
    such as ``"cuda"`` and ``"cuda:1"``.
    """
    if not isinstance(device, str):
        raise TypeError(f'device must be a name such as "cpu" or "cuda", got {device!r}')
    if device == HOST:
        return
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"device={device!r} needs PyTorch: pip install 'fmtc[gpu]', or leave device out for the processor"
        ) from None
    if device == "torch":
        return
    try:
        float(torch.ones(1, device=device).sum())  # some devices hold tensors and cannot compute
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # what PyTorch raises, told in one sentence
        n = torch.cuda.device_count()
        there = ", ".join(f'"cuda:{i}" ({torch.cuda.get_device_name(i)})' for i in range(n)) or "no GPU"
        why = str(error).strip().splitlines()[0].split(". ")[0]
        raise ValueError(
            f"device={device!r} cannot be used ({why}); PyTorch {torch.__version__} sees {there}. "
            'Leave device out, or take "cpu".'
        ) from None


def put(A: Any, device: str) -> Array:
    """A NumPy array where `device` says, in its own number format; ``"cpu"`` leaves it as it is."""
    if device == HOST:
        return A
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows may be read-only, as those of a data frame: nobody writes
        return torch.from_numpy(np.ascontiguousarray(A)).to("cpu" if device == "torch" else device)


def to_numpy(A: Any) -> np.ndarray:
    """The same numbers on the processor, as NumPy has them."""
    return A.detach().cpu().numpy() if is_tensor(A) else np.asarray(A)


def like(A: Any, other: Any) -> Array:
    """A in the library, number format and place of another array."""
    if is_tensor(other):
        torch = sys.modules["torch"]
        A = A if is_tensor(A) else torch.from_numpy(np.array(A))  # a copy: what comes from a file may be read-only
        return A.to(device=other.device, dtype=other.dtype)
    return to_numpy(A).astype(other.dtype, copy=False)


def beside(A: Any, other: Any) -> Array:
    """A where the other array is: NumPy's arrays keep their number format, tensors take the other's."""
    return like(A, other) if is_tensor(other) else to_numpy(A)


def contiguous(A: Array) -> Array:
    """The same numbers, row after row in memory."""
    return A.contiguous() if is_tensor(A) else np.ascontiguousarray(A)


def double(A: Array) -> Array:
    """A in double precision."""
    return A.double() if is_tensor(A) else np.asarray(A, dtype=np.float64)


def cast(A: Array, dtype: Any) -> Array:
    """A in a number format of its own library."""
    return A.to(dtype) if is_tensor(A) else A.astype(dtype, copy=False)


def inner(A: Array, B: Array) -> Array:
    """AᵀB of two tall arrays, the first of which may be sparse; (n, p), (n, q) -> (p, q).

    NumPy's ``@`` keeps all other threads waiting where the result is small, however long it takes; ``dot`` does not.
    Where it is narrow, too, rows go by blocks that stay in a core's cache.
    """
    if not isinstance(A, np.ndarray):
        return A.T @ B
    rows = NARROW // (A.shape[1] * B.shape[1])
    if rows < 64 or len(A) <= rows:
        return np.dot(A.T, B)
    total = np.dot(A[:rows].T, B[:rows])
    for begin in range(rows, len(A), rows):
        total += np.dot(A[begin : begin + rows].T, B[begin : begin + rows])
    return total


def column_sums(F: Array) -> Array:
    """Sum of each column; (n, k) -> (k,). NumPy's own is slow where rows are short."""
    return F.sum(axis=0) if is_tensor(F) else np.dot(np.ones(len(F), F.dtype), F)


def precision(A: Array) -> float:
    """Distance from 1 to the next number of A's format."""
    return float(namespace(A).finfo(A.dtype).eps)


def csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> Any:
    """A sparse matrix by rows, in the library of its entries; good for products with matrices."""
    if not is_tensor(data):
        return sp.csr_array((data, indices, indptr), shape=shape)
    torch = sys.modules["torch"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it says that they are new
        return torch.sparse_csr_tensor(indptr.to(torch.int32), indices.to(torch.int32), data, size=shape)


@contextmanager
def on_cores(number: int) -> Iterator[None]:
    """So many cores for each product with a `Striped` matrix, in this thread and while the block runs."""
    with ThreadPoolExecutor(max(1, number - 1)) as pool:  # no thread before there is work for it
        token = _helpers.set((pool, max(0, number - 1)))
        try:
            yield
        finally:
            _helpers.reset(token)


class Striped:
    """A sparse matrix with many rows, in strips of rows: `affine` gives each to one of the cores there are for it.

    Parameters
    ----------
    matrix : csr_array of shape (n, n)
        Not kept: strips may be copies of its parts.
    """

    def __init__(self, matrix: sp.csr_array):
        self.shape, self.dtype = matrix.shape, matrix.dtype
        self.strips: list[tuple[slice, sp.csr_array]] = []
        for first in range(0, self.shape[0], STRIP):
            rows = slice(first, min(first + STRIP, self.shape[0]))
            begins = matrix.indptr[rows.start : rows.stop + 1]
            entries = slice(begins[0], begins[-1])
            part = (matrix.data[entries], matrix.indices[entries], begins - begins[0])
            self.strips.append((rows, sp.csr_array(part, shape=(rows.stop - rows.start, self.shape[1]))))


class Steady:
    """A sparse tensor whose products are the same in every run: each row is summed in its order.

    PyTorch's own are not on a GPU, where several threads share a row and none waits for the other. They are faster,
    most of all where some rows have very many entries.

    Parameters
    ----------
    matrix : sparse tensor of shape (n, n), by rows
    """

    def __init__(self, matrix: Any):
        self.matrix, self.shape, self.dtype = matrix, tuple(matrix.shape), matrix.dtype

    def __matmul__(self, V: Array) -> Array:
        torch, A = sys.modules["torch"], self.matrix
        columns, begins, entries = A.col_indices(), A.crow_indices(), A.values()
        if V.shape[1] == 1:  # for which bags are slow
            products = entries * V[:, 0].index_select(0, columns)
            return torch.segment_reduce(products, "sum", offsets=begins.long(), unsafe=True)[:, None]
        bags = torch.nn.functional.embedding_bag
        return bags(columns, V, begins, mode="sum", per_sample_weights=entries, include_last_offset=True)


def affine(
    A: Any, V: Array, gain: float = 1.0, shift: float = 0.0, plus: Callable[[slice], Array] | None = None
) -> Array:
    """Gain A V + shift V + plus(all rows), for a square sparse A; (n, k) -> (n, k).

    The product is in the precision of A, the rest in that of V. By strips where A is `Striped`, so that each is in a
    cache until it is done; the answer does not depend on the number of cores.
    """
    narrow = cast(V, A.dtype)

    def finished(product: Array, rows: slice) -> Array:
        product *= gain
        if shift:
            product += shift * V[rows]
        if plus is not None:
            product += plus(rows)
        return product

    if not isinstance(A, Striped):
        return finished(cast(A @ narrow, V.dtype), slice(None))
    image = np.empty_like(V)
    pool, helping = _helpers.get() or (None, 0)

    def work(first: int) -> None:
        for rows, strip in A.strips[first :: helping + 1]:
            image[rows] = finished(cast(strip @ narrow, V.dtype), rows)

    others = [pool.submit(work, first) for first in range(1, helping + 1)] if pool is not None else []
    work(0)
    for each in others:
        each.result()
    return image


__all__ = [
    "HOST", "Array", "Steady", "Striped", "affine", "beside", "cast", "check_device", "column_sums", "contiguous",
    "csr", "double", "inner", "is_tensor", "like", "namespace", "on_cores", "precision", "put", "to_numpy",
]  # fmt: skip
