"""The door to PyTorch: who is asked for it, what it says where it is shut, and numbers that go there and back."""

import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.linalg import arrays
from fmtc.linalg.arrays import (
    Steady,
    Striped,
    affine,
    beside,
    cast,
    check_device,
    column_sums,
    contiguous,
    csr,
    double,
    inner,
    is_tensor,
    like,
    namespace,
    on_cores,
    precision,
    put,
    to_numpy,
)

FORMATS = ["float64", "float32", "int64"]


@pytest.fixture
def torch():
    import torch

    return torch


# -------------------------------------------------------------------------------------------------------- devices


def test_the_processor_is_always_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    check_device("cpu")


@pytest.mark.parametrize("device", [None, 3, ["cuda"], np.float64])
def test_a_device_is_a_name(device):
    with pytest.raises(TypeError) as refused:
        check_device(device)
    assert str(refused.value) == f'device must be a name such as "cpu" or "cuda", got {device!r}'


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "torch"])
def test_a_device_without_pytorch(monkeypatch, device):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError) as refused:
        check_device(device)
    assert str(refused.value) == (
        f"device='{device}' needs PyTorch: pip install 'fmtc[gpu]', or leave device out for the processor"
    )
    assert refused.value.__suppress_context__


@pytest.mark.torch
@pytest.mark.parametrize("device", ["torch", "cpu", "cpu:0"])
def test_devices_that_are_there(torch, device):
    check_device(device)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("gpu", "Expected one of cpu, cuda"),
        ("cuda:zero", "Invalid device string: 'cuda:zero'"),
        ("cuda:99", ""),  # why, depends on how PyTorch was built
        ("", "Device string must not be empty"),
    ],
)
def test_a_device_that_is_not_there(torch, device, why):
    with pytest.raises(ValueError, match="cannot be used") as refused:
        check_device(device)
    text = str(refused.value)
    assert text.startswith(f"device={device!r} cannot be used ({why}")
    assert f"PyTorch {torch.__version__} sees " in text
    assert text.endswith('Leave device out, or take "cpu".')
    assert "\n" not in text


@pytest.mark.torch
def test_the_gpus_there_are_are_told(torch, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("CUDA error: invalid device ordinal. More of it\nand a second line")

    monkeypatch.setattr(torch, "ones", refuse)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"card {i}")
    with pytest.raises(ValueError, match="cannot be used") as refused:
        check_device("cuda:5")
    assert str(refused.value) == (
        "device='cuda:5' cannot be used (CUDA error: invalid device ordinal); "
        f'PyTorch {torch.__version__} sees "cuda:0" (card 0), "cuda:1" (card 1). Leave device out, or take "cpu".'
    )


@pytest.mark.torch
def test_without_gpu_it_says_so(torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=f"{torch.__version__.replace('+', '.')} sees no GPU"):
        check_device("cuda:99")


# -------------------------------------------------------------------------------------------------------- imports


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_fit_on_the_processor_imports_neither_pytorch_nor_faiss():
    run_python(
        "import sys, numpy as np, fmtc\n"
        "from fmtc.linalg.arrays import is_tensor, namespace\n"
        "X = np.random.default_rng(0).normal(size=(30, 3))\n"
        "fmtc.FMTC(2, max_iter=2, n_init=1).fit(X).predict(X)\n"
        "assert not is_tensor(X) and namespace(X) is np\n"
        "assert not {'torch', 'faiss'} & set(sys.modules)\n"
    )


@pytest.mark.torch
def test_the_door_opens_when_a_device_is_asked_for():
    run_python(
        "import sys\n"
        "from fmtc.linalg.arrays import check_device\n"
        "assert 'torch' not in sys.modules\n"
        "check_device('torch')\n"
        "assert 'torch' in sys.modules\n"
    )


# -------------------------------------------------------------------------------------------------------- numbers


def numbers(rng, dtype="float64"):
    return (100 * rng.normal(size=(5, 4))).astype(dtype)


@pytest.mark.parametrize("dtype", FORMATS)
def test_numpy_stays_numpy(rng, dtype):
    A = numbers(rng, dtype)
    assert not is_tensor(A)
    assert namespace(A) is namespace(sp.csr_array(A)) is np
    assert put(A, "cpu") is A
    assert to_numpy(A) is A
    assert beside(A, np.zeros(1, dtype=np.float32)) is A  # keeps its number format
    assert like(A, np.zeros(1, dtype=np.float32)).dtype == np.float32
    assert like(A, A) is A
    assert cast(A, np.float32).dtype == np.float32
    assert cast(A, A.dtype) is A
    assert double(A).dtype == np.float64
    assert contiguous(A) is A
    assert_array_equal(contiguous(A.T), A.T)
    assert contiguous(A.T).flags.c_contiguous


def test_precision():
    assert precision(np.zeros(1)) == 2**-52
    assert precision(np.zeros(1, dtype=np.float32)) == 2**-23


@pytest.mark.torch
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("turn", [lambda A: A, lambda A: A.T, lambda A: A[::2, ::-1]], ids=["rows", "columns", "parts"])
def test_there_and_back(torch, rng, dtype, turn):
    A = turn(numbers(rng, dtype))
    B = put(A, "torch")
    assert is_tensor(B)
    assert namespace(B) is torch
    assert B.dtype == getattr(torch, dtype)
    assert B.device.type == "cpu"
    assert_array_equal(to_numpy(B), A)
    assert to_numpy(B).dtype == A.dtype
    assert_array_equal(to_numpy(put(A, "cpu:0")), A)  # PyTorch's own name


@pytest.mark.torch
def test_what_a_tensor_knows_of_its_history_stays_behind(torch):
    assert_array_equal(to_numpy(torch.ones(2, requires_grad=True)), [1, 1])


@pytest.mark.torch
@pytest.mark.parametrize("dtype", FORMATS)
def test_like_takes_library_and_number_format(torch, rng, dtype):
    A = numbers(rng)
    other = torch.zeros(1, dtype=getattr(torch, dtype))
    for given in (A, torch.from_numpy(A)):
        for found in (like(given, other), beside(given, other)):
            assert found.dtype == other.dtype
            assert_array_equal(to_numpy(found), A.astype(dtype))
        back = like(given, np.zeros(1, dtype=dtype))
        assert isinstance(back, np.ndarray)
        assert_array_equal(back, A.astype(dtype))
        assert back.dtype == dtype
    kept = beside(torch.from_numpy(A), np.zeros(1, dtype=np.float32))
    assert isinstance(kept, np.ndarray)
    assert kept.dtype == np.float64
    assert like(other, other) is other


@pytest.mark.torch
def test_what_may_not_be_written_is_taken(torch, rng):
    """As rows from a file or a data frame: PyTorch warns about them, and warnings are errors here."""
    A = numbers(rng)
    A.flags.writeable = False
    assert_array_equal(to_numpy(put(A, "torch")), A)
    B = like(A, torch.zeros(1, dtype=torch.float64))
    B += 1
    assert_array_equal(to_numpy(B), A + 1)
    assert_array_equal(to_numpy(like(A[:, ::-1], B)), A[:, ::-1])


@pytest.mark.torch
def test_number_formats_of_tensors(torch, rng):
    A = torch.from_numpy(numbers(rng, "float32"))
    assert double(A).dtype == torch.float64
    assert_array_equal(to_numpy(double(A)), to_numpy(A).astype(np.float64))
    assert cast(A, torch.float16).dtype == torch.float16
    assert precision(A) == 2**-23
    assert precision(cast(A, torch.float16)) == 2**-10
    assert contiguous(A.T).is_contiguous()
    assert_array_equal(to_numpy(contiguous(A.T)), to_numpy(A).T)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sparse_rows_multiply_alike(torch, rng, dtype):
    A = sp.csr_array(numbers(rng, dtype) * (rng.random((5, 4)) < 0.5))
    V = numbers(rng, dtype)[:4]
    B = csr(*(torch.from_numpy(part) for part in (A.data, A.indices, A.indptr)), (5, 4))
    assert_array_equal(to_numpy(B.to_dense()), A.toarray())
    eps = np.finfo(dtype).eps
    assert_allclose(to_numpy(B @ torch.from_numpy(V)), A @ V, rtol=0, atol=4 * eps * np.abs(A).max() * np.abs(V).max())
    assert_array_equal(csr(A.data, A.indices, A.indptr, (5, 4)).toarray(), A.toarray())


@pytest.mark.torch
def test_a_device_that_holds_tensors_and_cannot_compute_is_refused():
    with pytest.raises(ValueError, match=r"device='meta' cannot be used .* sees no GPU"):
        check_device("meta")


@pytest.fixture
def sparse(rng, monkeypatch):
    """A sparse matrix in 12 strips, the last a short one."""
    monkeypatch.setattr(arrays, "STRIP", 9)
    return sp.random_array((105, 105), density=0.1, rng=rng, format="csr")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("number", [None, 0, 1, 2, 3, 40])
def test_strips_are_the_whole(rng, sparse, dtype, number):
    A, V, B = sparse.astype(dtype), rng.normal(size=(105, 4)).astype(dtype), rng.normal(size=(105, 4)).astype(dtype)
    expected = -0.3 * (sparse.toarray() @ V) + 1.7 * V + B
    calls = []

    def plus(rows):
        calls.append(rows)
        return B[rows]

    with nullcontext() if number is None else on_cores(number):
        found = affine(Striped(A), V, -0.3, 1.7, plus)
    assert found.dtype == dtype
    assert_allclose(found, expected, atol=1e-12 if dtype == "float64" else 1e-5)
    assert sorted(rows.start for rows in calls) == list(range(0, 105, 9))
    assert_array_equal(found, affine(A, V, -0.3, 1.7, lambda rows: B[rows]))  # bit by bit, whoever computes
    assert_array_equal(affine(Striped(A), V[:, :1]), A @ V[:, :1])


def test_strips_in_single_precision_of_rows_in_double(rng, sparse):
    A, V = sparse.astype(np.float32), rng.normal(size=(105, 4))
    for matrix in (A, Striped(A)):
        found = affine(matrix, V, 1.0, 1e9)
        assert found.dtype == np.float64
        assert_array_equal(found, (A @ V.astype(np.float32)).astype(np.float64) + 1e9 * V)


def test_what_goes_wrong_on_another_core_is_told(rng, sparse):
    def plus(rows):
        if rows.start == 9:  # the second strip is the second core's
            raise FloatingPointError("of a strip")
        return 0.0

    with on_cores(2), pytest.raises(FloatingPointError, match="of a strip"):
        affine(Striped(sparse), rng.normal(size=(105, 2)), plus=plus)
    assert arrays._helpers.get() is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 200, 257])
@pytest.mark.parametrize("q", [1, 4, 60])  # so narrow that rows go by blocks, and not
def test_sums_over_blocks_of_rows(rng, monkeypatch, n, q, dtype):
    monkeypatch.setattr(arrays, "NARROW", 64 * 5 * 4)
    A, B = rng.normal(size=(n, 5)).astype(dtype), rng.normal(size=(n, q)).astype(dtype)
    expected = np.array([[sum(A[i, a] * B[i, b] for i in range(n)) for b in range(q)] for a in range(5)])
    atol = 1e-12 if dtype == "float64" else 1e-4
    assert_allclose(inner(A, B), expected, atol=atol)
    assert_allclose(inner(sp.csr_array(A), B), expected, atol=atol)
    assert inner(A, B).dtype == dtype
    assert_allclose(column_sums(B), B.sum(axis=0), atol=atol)
    assert column_sums(B).dtype == dtype


@pytest.mark.torch
def test_a_tensor_sums_alike(torch, rng):
    A, B = rng.normal(size=(200, 5)), rng.normal(size=(200, 3))
    assert_allclose(inner(put(A, "torch"), put(B, "torch")).numpy(), inner(A, B), atol=1e-12)
    assert_allclose(column_sums(put(B, "torch")).numpy(), column_sums(B), atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("columns", [1, 4])
def test_rows_of_a_tensor_are_summed_in_order(torch, rng, sparse, dtype, columns):
    dense = sparse.toarray()
    dense[3], dense[50] = 0, 1  # a row without entries, and one that is full
    A, V = sp.csr_array(dense.astype(dtype)), rng.normal(size=(105, columns)).astype(dtype)
    steady = Steady(csr(*(torch.from_numpy(part) for part in (A.data, A.indices, A.indptr)), A.shape))
    atol = 1e-12 if dtype == "float64" else 1e-5
    found = affine(steady, put(V, "torch"), -0.3, 1.7, lambda rows: put(V, "torch")[rows])
    assert found.dtype == steady.dtype
    assert_allclose(found.numpy(), -0.3 * (dense @ V) + 2.7 * V, atol=atol)
    assert_allclose(affine(steady, put(V, "torch").double()).numpy(), A @ V, atol=atol)
    assert found.numpy()[3].tolist() == pytest.approx((2.7 * V[3]).tolist(), rel=1e-6)
