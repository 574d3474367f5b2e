"""Sparse matrices by rows: products by blocks, on several cores, and in a fixed order on a device."""

from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.linalg import sparse as module
from fmtc.linalg.arrays import to_device, to_numpy
from fmtc.linalg.sparse import DeterministicCsr, RowBlockMatrix, affine, csr, on_cores


@pytest.fixture
def torch():
    import torch

    return torch


@pytest.fixture
def sparse(rng, monkeypatch):
    """A sparse matrix in 12 blocks, the last a short one."""
    monkeypatch.setattr(module, "ROWS_PER_BLOCK", 9)
    return sp.random_array((105, 105), density=0.1, rng=rng, format="csr")


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(None, "float64"), (0, "float32"), (1, "float64"), (2, "float32"), (3, "float64"), (40, "float64")],
)
def test_blocks_are_the_whole(rng, sparse, number, dtype):
    A, V, B = sparse.astype(dtype), rng.normal(size=(105, 4)).astype(dtype), rng.normal(size=(105, 4)).astype(dtype)
    expected = -0.3 * (sparse.toarray() @ V) + 1.7 * V + B
    calls = []

    def plus(rows):
        calls.append(rows)
        return B[rows]

    with nullcontext() if number is None else on_cores(number):
        found = affine(RowBlockMatrix(A), V, -0.3, 1.7, plus)
    assert found.dtype == dtype
    assert_allclose(found, expected, atol=1e-12 if dtype == "float64" else 1e-5)
    assert sorted(rows.start for rows in calls) == list(range(0, 105, 9))
    assert_array_equal(found, affine(A, V, -0.3, 1.7, lambda rows: B[rows]))  # bit by bit, whoever computes
    assert_array_equal(affine(RowBlockMatrix(A), V[:, :1]), A @ V[:, :1])


def test_blocks_in_single_precision_of_rows_in_double(rng, sparse):
    A, V = sparse.astype(np.float32), rng.normal(size=(105, 4))
    for matrix in (A, RowBlockMatrix(A)):
        found = affine(matrix, V, 1.0, 1e9)
        assert found.dtype == np.float64
        assert_array_equal(found, (A @ V.astype(np.float32)).astype(np.float64) + 1e9 * V)


def test_an_error_on_another_core_is_raised(rng, sparse):
    def plus(rows):
        if rows.start == 9:  # the second block is the second core's
            raise FloatingPointError("of a block")
        return 0.0

    with on_cores(2), pytest.raises(FloatingPointError, match="of a block"):
        affine(RowBlockMatrix(sparse), rng.normal(size=(105, 2)), plus=plus)
    assert module._extra_cores.get() is None


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sparse_rows_multiply_alike(torch, rng, dtype):
    A = sp.csr_array((rng.normal(size=(5, 4)) * (rng.random((5, 4)) < 0.5)).astype(dtype))
    V = rng.normal(size=(4, 4)).astype(dtype)
    B = csr(*(torch.from_numpy(part) for part in (A.data, A.indices, A.indptr)), (5, 4))
    assert_array_equal(to_numpy(B.to_dense()), A.toarray())
    eps = np.finfo(dtype).eps
    assert_allclose(to_numpy(B @ torch.from_numpy(V)), A @ V, rtol=0, atol=4 * eps * np.abs(A).max() * np.abs(V).max())
    assert_array_equal(csr(A.data, A.indices, A.indptr, (5, 4)).toarray(), A.toarray())


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("columns", [1, 4])
def test_rows_of_a_tensor_are_summed_in_order(torch, rng, sparse, dtype, columns):
    dense = sparse.toarray()
    dense[3], dense[50] = 0, 1  # a row without entries, and one that is full
    A, V = sp.csr_array(dense.astype(dtype)), rng.normal(size=(105, columns)).astype(dtype)
    matrix = DeterministicCsr(csr(*(torch.from_numpy(part) for part in (A.data, A.indices, A.indptr)), A.shape))
    atol = 1e-12 if dtype == "float64" else 1e-5
    found = affine(matrix, to_device(V, "torch"), -0.3, 1.7, lambda rows: to_device(V, "torch")[rows])
    assert found.dtype == matrix.dtype
    assert_allclose(found.numpy(), -0.3 * (dense @ V) + 2.7 * V, atol=atol)
    assert_allclose(affine(matrix, to_device(V, "torch").double()).numpy(), A @ V, atol=atol)
    assert found.numpy()[3].tolist() == pytest.approx((2.7 * V[3]).tolist(), rel=1e-6)
