"""Singular values through AᴴA, by QR where that is not exact enough, and by Krylov iteration where it is too large."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.linalg import stacks, svd
from fmtc.linalg.svd import gram_svd, krylov_svd, leading_left, powers_in_doubt, tall, values_in_doubt


def with_values(rng, d, values):
    """A matrix with these singular values."""
    k = len(values)
    return np.linalg.qr(rng.normal(size=(d, k)))[0] * values @ np.linalg.qr(rng.normal(size=(k, k)))[0].T


def matrices(rng, *spectra, d=40):
    """Several matrices in one array, (d, k, matrices), and the function that gives their rows."""
    T = np.stack([with_values(rng, d, np.array(values)) for values in spectra], axis=2)
    return T, lambda rows: np.ascontiguousarray(np.moveaxis(rows, 2, 0))


@pytest.mark.parametrize("block", [1, 2**17])
def test_gram_svd_decomposes_all_matrices(rng, monkeypatch, block):
    monkeypatch.setattr(stacks, "BLOCK", block)
    monkeypatch.setattr(svd, "MIN_ROWS", 2)
    spectra = np.array([[3.0, 2.0, 1.0], [5.0, 0.5, 1e-7]])
    T, slices = matrices(rng, *spectra)
    s, V = gram_svd(T, slices, lambda s: s[:, 2] < 1e-3)  # the second matrix again
    assert_allclose(s, spectra, atol=1e-14)
    for t in range(2):
        assert_allclose(np.linalg.norm(T[:, :, t] @ V[t], axis=0), spectra[t], atol=1e-14)
        assert_allclose(V[t].T @ V[t], np.eye(3), atol=1e-14)
    rough = gram_svd(T, slices, lambda s: np.zeros(2, dtype=bool))[0]
    assert_allclose(rough[:, :2], spectra[:, :2], rtol=1e-14)
    assert abs(rough[1, 2] - 1e-7) > 1e-10  # half of the digits are lost


def test_values_are_in_doubt_where_rounding_of_the_largest_shows(rng):
    s = np.array([[1.0, 0.5], [1.0, 1e-9]])
    assert_array_equal(powers_in_doubt(s, 1.0), [False, True])
    assert_array_equal(values_in_doubt(s, 1e-9), [True, True])
    assert_array_equal(values_in_doubt(s, 0.1), [False, False])
    assert_array_equal(values_in_doubt(s, 2.0), [False, False])  # shrunk to zero: nothing to be exact about


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("threshold", [0.5, 4.0])
def test_krylov_finds_all_values_above_a_threshold(rng, monkeypatch, dtype, threshold):
    monkeypatch.setattr(svd, "KRYLOV_WIDTH", 4)
    values = np.concatenate([np.linspace(10, 1, 12), np.full(30, 0.1)])
    A = with_values(rng, 90, values).astype(dtype)
    s, V = krylov_svd(A, threshold=threshold)
    wanted = int((values > threshold).sum())
    assert s.shape == (wanted,)
    assert V.shape == (42, wanted)
    assert_allclose(s, values[:wanted], rtol=1e-10 if dtype == np.float64 else 1e-5)
    assert_allclose(np.linalg.norm(A.astype(float) @ V, axis=0), s, rtol=1e-9)


def test_krylov_without_values_above_the_threshold(rng):
    s, V = krylov_svd(rng.normal(size=(90, 42)), threshold=1e3)
    assert (s.shape, V.shape) == ((1,), (42, 1))
    assert s[0] < 1e3


def test_krylov_gives_up_at_its_limit(rng):
    A = rng.normal(size=(400, 300))  # no gap anywhere
    assert krylov_svd(A, count=3, max_columns=31) is None
    s, _ = krylov_svd(A, count=3, max_columns=300)
    assert_allclose(s[:3], np.linalg.svd(A, compute_uv=False)[:3], rtol=1e-10)


@pytest.mark.parametrize(
    ("shape", "large", "gap"),
    [
        ((30, 2, 7), False, 0.0), ((30, 2, 7), True, 5.0), ((30, 4, 20), False, 5.0), ((30, 4, 20), True, 0.0),
        ((3, 4, 5), False, 0.0), ((3, 4, 5), True, 5.0), ((300, 3, 120), False, 5.0), ((300, 3, 120), True, 5.0),
        ((300, 3, 120), False, 0.0),  # without a gap the iteration gives up, and all of AᵀA is decomposed
        ((300, 3, 120), True, 0.0),
    ],
)  # fmt: skip
def test_leading_left_vectors(rng, monkeypatch, shape, large, gap):
    d, k, _ = shape
    monkeypatch.setattr(svd, "GRAM_UP_TO", 0 if large else 3000)
    common = (rng.normal(size=(d, k)) * np.arange(1, k + 1))[:, :, None]
    A = (rng.normal(size=shape) + gap * common * rng.normal(size=shape[2])).reshape(d, -1)
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    found, r = leading_left(A, k), min(k, d)
    assert found.shape == (d, k)
    assert_array_equal(found[:, r:], 0)
    largest = U[np.abs(U).argmax(axis=0), np.arange(len(s))]
    assert_allclose(found[:, :r], (U * s * np.sign(largest))[:, :r], atol=1e-8 if large else 1e-11)


def test_tall_matrices_are_not_wider_than_high(rng):
    T = rng.normal(size=(3, 5, 2))
    assert tall(T).shape == (5, 3, 2)
    assert tall(tall(T)).shape == (5, 3, 2)
    assert np.shares_memory(tall(T), T)


@pytest.mark.torch
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-9), ("float32", 1e-4)])
def test_tensors_as_arrays(rng, monkeypatch, dtype, digits, large):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(svd, "GRAM_UP_TO", 0 if large else 3000)
    A = rng.normal(size=(12, 18)).astype(dtype)
    assert_allclose(leading_left(torch.from_numpy(A), 3).numpy(), leading_left(A, 3), atol=digits)
    for threshold in (1e-6, 3.0):
        mine, theirs = (krylov_svd(each, threshold=threshold)[0] for each in (A.T, torch.from_numpy(A.T)))
        assert_allclose(theirs.numpy(), mine, rtol=digits, atol=digits)
