"""Arrays of NumPy and PyTorch: which library an array belongs to, and how to move it to a device and back.

Kernels are written once for both libraries. They call `namespace(A)` for their functions and use only functions that
both libraries have under the same name; this module covers the differences. PyTorch is imported only if a tensor, or a
device that needs one, is already in use.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

Array = Any  # a NumPy array or a PyTorch tensor

HOST = "cpu"  # NumPy arrays
NARROW = 500_000  # multiplications per block of rows when `inner_products` sums over blocks


def is_tensor(A: Any) -> bool:
    """Whether A is a PyTorch tensor; does not import PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(A, torch.Tensor)


def namespace(A: Any) -> ModuleType:
    """The library whose functions take A: numpy or torch."""
    return sys.modules["torch"] if is_tensor(A) else np


def check_device(device: str) -> None:
    """Raise an error in one sentence if the device cannot be used.

    ``"cpu"`` is NumPy. ``"torch"`` is PyTorch on the processor, for comparisons. All others are PyTorch's own names,
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
            f"device={device!r} needs PyTorch: pip install 'fmtc[gpu]', or omit device to use the processor"
        ) from None
    if device == "torch":
        return
    try:
        float(torch.ones(1, device=device).sum())  # some devices hold tensors but cannot compute
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        n = torch.cuda.device_count()
        found = ", ".join(f'"cuda:{i}" ({torch.cuda.get_device_name(i)})' for i in range(n)) or "no GPU"
        why = str(error).strip().splitlines()[0].split(". ")[0]
        raise ValueError(
            f"device={device!r} cannot be used ({why}); PyTorch {torch.__version__} finds {found}. "
            'Omit device, or set it to "cpu".'
        ) from None


def to_device(A: Any, device: str) -> Array:
    """A NumPy array on a device, in its own number format; ``"cpu"`` returns it unchanged."""
    if device == HOST:
        return A
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only rows, as of a data frame: nothing writes to them
        return torch.from_numpy(np.ascontiguousarray(A)).to("cpu" if device == "torch" else device)


def to_numpy(A: Any) -> np.ndarray:
    """The same numbers on the processor, as a NumPy array."""
    return A.detach().cpu().numpy() if is_tensor(A) else np.asarray(A)


def asarray_like(A: Any, other: Any) -> Array:
    """A in the library and number format, and on the device, of another array."""
    if is_tensor(other):
        torch = sys.modules["torch"]
        A = A if is_tensor(A) else torch.from_numpy(np.array(A))  # a copy: arrays from a file may be read-only
        return A.to(device=other.device, dtype=other.dtype)
    return to_numpy(A).astype(other.dtype, copy=False)


def to_device_of(A: Any, other: Any) -> Array:
    """A on the device of another array; NumPy arrays keep their number format, tensors take the other's."""
    return asarray_like(A, other) if is_tensor(other) else to_numpy(A)


def contiguous(A: Array) -> Array:
    """The same numbers, row after row in memory."""
    return A.contiguous() if is_tensor(A) else np.ascontiguousarray(A)


def copy(A: Array) -> Array:
    """The same numbers in new memory, row after row."""
    return contiguous(A).clone() if is_tensor(A) else A.copy()


def double(A: Array) -> Array:
    """A in double precision."""
    return A.double() if is_tensor(A) else np.asarray(A, dtype=np.float64)


def cast(A: Array, dtype: Any) -> Array:
    """A in a number format of its own library."""
    return A.to(dtype) if is_tensor(A) else A.astype(dtype, copy=False)


def precision(A: Array) -> float:
    """Distance from 1 to the next number in A's format."""
    return float(namespace(A).finfo(A.dtype).eps)


def row_blocks(n: int, size: int) -> Iterator[slice]:
    """Slices that cut n rows into blocks of so many; the last has what is left."""
    return (slice(begin, min(begin + size, n)) for begin in range(0, n, size))


def inner_products(A: Array, B: Array) -> Array:
    """AᵀB of two tall arrays, of which the first may be sparse; (n, p), (n, q) -> (p, q).

    If the result is small, NumPy's ``@`` blocks all other threads however long it takes; ``dot`` does not. If the
    result is also narrow, the sum runs over blocks of rows that fit in a core's cache.
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
    """Sum of each column; (n, k) -> (k,). NumPy's own ``sum`` is slow for short rows."""
    return F.sum(axis=0) if is_tensor(F) else np.dot(np.ones(len(F), F.dtype), F)
