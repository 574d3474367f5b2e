"""NumPy and PyTorch: when PyTorch is imported, which devices are refused, and numbers that go there and back."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.linalg import arrays
from fmtc.linalg.arrays import (
    asarray_like,
    cast,
    check_device,
    column_sums,
    contiguous,
    copy,
    double,
    inner_products,
    is_tensor,
    namespace,
    precision,
    to_device,
    to_device_of,
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
    assert repr(device) in str(refused.value)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "torch"])
def test_a_device_without_pytorch(monkeypatch, device):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError) as refused:
        check_device(device)
    assert f"device='{device}'" in str(refused.value)
    assert "fmtc[gpu]" in str(refused.value)
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
    with pytest.raises(ValueError, match="device") as refused:
        check_device(device)
    text = str(refused.value)
    for part in (f"device={device!r}", why, torch.__version__):
        assert part in text
    assert "\n" not in text


@pytest.mark.torch
def test_an_error_lists_the_gpus(torch, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("CUDA error: invalid device ordinal. More of it\nand a second line")

    monkeypatch.setattr(torch, "ones", refuse)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"card {i}")
    with pytest.raises(ValueError, match="device") as refused:
        check_device("cuda:5")
    for part in ("cuda:5", "(CUDA error: invalid device ordinal)", '"cuda:0" (card 0), "cuda:1" (card 1)'):
        assert part in str(refused.value)
    assert "second line" not in str(refused.value)


@pytest.mark.torch
def test_without_gpu_it_says_so(torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="no GPU"):
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
        "fmtc.FMTC(2, max_iter=2, mixture=fmtc.Mixture(n_init=1)).fit(X).predict(X)\n"
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
    assert to_device(A, "cpu") is A
    assert to_numpy(A) is A
    assert to_device_of(A, np.zeros(1, dtype=np.float32)) is A  # keeps its number format
    assert asarray_like(A, np.zeros(1, dtype=np.float32)).dtype == np.float32
    assert asarray_like(A, A) is A
    assert cast(A, np.float32).dtype == np.float32
    assert cast(A, A.dtype) is A
    assert double(A).dtype == np.float64
    assert contiguous(A) is A
    assert_array_equal(contiguous(A.T), A.T)
    assert contiguous(A.T).flags.c_contiguous
    assert_array_equal(copy(A), A)
    assert not np.shares_memory(copy(A), A)


def test_precision():
    assert precision(np.zeros(1)) == 2**-52
    assert precision(np.zeros(1, dtype=np.float32)) == 2**-23


@pytest.mark.torch
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("turn", [lambda A: A, lambda A: A.T, lambda A: A[::2, ::-1]], ids=["rows", "columns", "parts"])
def test_there_and_back(torch, rng, dtype, turn):
    A = turn(numbers(rng, dtype))
    B = to_device(A, "torch")
    assert is_tensor(B)
    assert namespace(B) is torch
    assert B.dtype == getattr(torch, dtype)
    assert B.device.type == "cpu"
    assert_array_equal(to_numpy(B), A)
    assert to_numpy(B).dtype == A.dtype
    assert_array_equal(to_numpy(to_device(A, "cpu:0")), A)  # PyTorch's own name


@pytest.mark.torch
def test_what_a_tensor_knows_of_its_history_stays_behind(torch):
    assert_array_equal(to_numpy(torch.ones(2, requires_grad=True)), [1, 1])


@pytest.mark.torch
@pytest.mark.parametrize("dtype", FORMATS)
def test_like_takes_library_and_number_format(torch, rng, dtype):
    A = numbers(rng)
    other = torch.zeros(1, dtype=getattr(torch, dtype))
    for given in (A, torch.from_numpy(A)):
        for found in (asarray_like(given, other), to_device_of(given, other)):
            assert found.dtype == other.dtype
            assert_array_equal(to_numpy(found), A.astype(dtype))
        back = asarray_like(given, np.zeros(1, dtype=dtype))
        assert isinstance(back, np.ndarray)
        assert_array_equal(back, A.astype(dtype))
        assert back.dtype == dtype
    kept = to_device_of(torch.from_numpy(A), np.zeros(1, dtype=np.float32))
    assert isinstance(kept, np.ndarray)
    assert kept.dtype == np.float64
    assert asarray_like(other, other) is other


@pytest.mark.torch
def test_what_may_not_be_written_is_taken(torch, rng):
    """As rows from a file or a data frame: PyTorch warns about them, and warnings are errors here."""
    A = numbers(rng)
    A.flags.writeable = False
    assert_array_equal(to_numpy(to_device(A, "torch")), A)
    B = asarray_like(A, torch.zeros(1, dtype=torch.float64))
    B += 1
    assert_array_equal(to_numpy(B), A + 1)
    assert_array_equal(to_numpy(asarray_like(A[:, ::-1], B)), A[:, ::-1])


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
    for other in (A, A.T):
        assert copy(other).data_ptr() != other.data_ptr()
        assert_array_equal(to_numpy(copy(other)), to_numpy(other))


@pytest.mark.torch
def test_a_device_that_holds_tensors_and_cannot_compute_is_refused():
    with pytest.raises(ValueError, match="device='meta'"):
        check_device("meta")


@pytest.mark.parametrize(  # columns: so few that rows go by blocks, and more
    ("n", "q", "dtype"),
    [(1, 1, "float64"), (63, 4, "float64"), (64, 4, "float32"), (65, 4, "float64"), (200, 60, "float32"),
     (257, 1, "float64"), (257, 4, "float32")],
)  # fmt: skip
def test_sums_over_blocks_of_rows(rng, monkeypatch, n, q, dtype):
    monkeypatch.setattr(arrays, "NARROW", 64 * 5 * 4)
    A, B = rng.normal(size=(n, 5)).astype(dtype), rng.normal(size=(n, q)).astype(dtype)
    expected = np.array([[sum(A[i, a] * B[i, b] for i in range(n)) for b in range(q)] for a in range(5)])
    atol = 1e-12 if dtype == "float64" else 1e-4
    assert_allclose(inner_products(A, B), expected, atol=atol)
    assert_allclose(inner_products(sp.csr_array(A), B), expected, atol=atol)
    assert inner_products(A, B).dtype == dtype
    assert_allclose(column_sums(B), B.sum(axis=0), atol=atol)
    assert column_sums(B).dtype == dtype


@pytest.mark.torch
def test_a_tensor_sums_alike(torch, rng):
    A, B = rng.normal(size=(200, 5)), rng.normal(size=(200, 3))
    assert_allclose(
        inner_products(to_device(A, "torch"), to_device(B, "torch")).numpy(), inner_products(A, B), atol=1e-12
    )
    assert_allclose(column_sums(to_device(B, "torch")).numpy(), column_sums(B), atol=1e-12)
