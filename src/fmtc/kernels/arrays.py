"""Which library an array belongs to, and the way to a device and back: the one door to PyTorch.

Kernels are written once, for NumPy arrays and PyTorch tensors alike: they take `namespace(A)` for their functions and
keep to those that both libraries have under one name. What differs is here. PyTorch is imported only where a tensor, or
a device that needs one, is already in play.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp

Array = Any  # a NumPy array or a PyTorch tensor

HOST = "cpu"  # NumPy's arrays


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
    """
    return np.dot(A.T, B) if isinstance(A, np.ndarray) else A.T @ B


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


__all__ = [
    "HOST", "Array", "beside", "cast", "check_device", "contiguous", "csr", "double", "inner", "is_tensor", "like",
    "namespace", "precision", "put", "to_numpy",
]  # fmt: skip
