"""Centres on the unit sphere, by k-means of one client."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

from fmtc.kernels.centers import _restarts_at_once, row_norms, unit_centers


def unit(A):
    return A / np.linalg.norm(A, axis=1, keepdims=True)


def bunches(rng, n=40, k=3, noise=0.1):
    """Unit rows about the axes, and the axis of each."""
    labels = np.arange(n) % k
    return unit(np.eye(k)[labels] + noise * rng.normal(size=(n, k))), labels


def test_centres_are_those_of_k_means_at_unit_norm(rng):
    E, labels = bunches(rng)
    found = unit_centers(E, 3, 5, 0)
    assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-12)
    means = unit(np.array([E[labels == j].mean(axis=0) for j in range(3)]))
    assert_allclose(found[np.argmax(means @ found.T, axis=1)], means, atol=1e-10)


@pytest.mark.parametrize(("dtype", "noise"), [(np.float64, 1e-15), (np.float32, 3e-7)])
def test_rows_that_differ_by_rounding_are_one(rng, dtype, noise):
    two = unit(rng.normal(size=(2, 3)))
    E = (np.repeat(two, 20, axis=0) + noise * rng.normal(size=(40, 3))).astype(dtype)
    found = unit_centers(E, 3, 2, 0)
    assert len(np.unique(found, axis=0)) == 2
    assert_array_equal(np.bincount((E @ found.T).argmax(axis=1)), [20, 20])


def test_rows_without_direction_get_no_centre(rng):
    E, _ = bunches(rng)
    with_nothing = np.vstack([np.zeros((30, 3)), E])
    assert_array_equal(unit_centers(with_nothing, 3, 5, 0), unit_centers(E, 3, 5, 0))
    assert_array_equal(unit_centers(np.zeros((5, 3)), 3, 5, 0), np.eye(3))


def test_norms_of_zero_rows_are_one():
    assert_array_equal(row_norms(np.array([[3.0, 4.0], [0.0, 0.0]])), [[5.0], [1.0]])


def test_centres_of_many_rows_are_those_of_all_and_not_of_some(rng):
    E = bunches(rng, 12_000, noise=0.3)[0]
    found = unit_centers(E, 3, 2, 0)
    whole = KMeans(3, init=found, n_init=1, tol=0).fit(E).cluster_centers_
    assert_allclose(found, unit(whole), atol=1e-10)  # those of 4,000 rows are 1e-2 off


@pytest.mark.parametrize(
    ("n", "k", "n_init", "noise"), [(300, 4, 10, 0.5), (900, 12, 3, 1.0), (200, 1, 2, 0.1), (60, 3, 1, 0.1)]
)
def test_starts_side_by_side_are_those_of_scikit_learn(rng, n, k, n_init, noise):
    """With the same random numbers: the same first centres, the same steps, the same winner."""
    E = bunches(rng, n, max(k, 3), noise)[0]
    for seed in range(3):
        found = _restarts_at_once(E, k, n_init, seed)
        expected = KMeans(k, n_init=n_init, random_state=seed).fit(E).cluster_centers_
        nearest = np.linalg.norm(found[:, None] - expected, axis=2).argmin(axis=1)
        assert_array_equal(np.sort(nearest), np.arange(k))
        assert_allclose(found, expected[nearest], atol=1e-10)


def test_a_cluster_that_becomes_empty_is_left_to_scikit_learn(rng):
    E = unit(np.repeat(rng.normal(size=(3, 4)), 5, axis=0))
    assert _restarts_at_once(E, 5, 2, 0) is None


# -------------------------------------------------------------------------------------------- on PyTorch's tensors


@pytest.fixture
def tensor():
    import torch

    return torch.from_numpy


@pytest.mark.torch
@pytest.mark.parametrize(("dtype", "close"), [(np.float64, 1e-13), (np.float32, 1e-6)])
@pytest.mark.parametrize("n", [40, 4_700])  # the latter goes on from a sample
def test_tensors_give_the_same_centres(tensor, rng, n, dtype, close):
    E = bunches(rng, n, noise=0.4)[0].astype(dtype)
    E[5] = 0
    found = unit_centers(tensor(E), 3, 3, 0)
    assert_allclose(found.numpy(), unit_centers(E, 3, 3, 0), atol=close)
    assert found.numpy().dtype == dtype


@pytest.mark.torch
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_tensors_with_too_few_different_rows(tensor, rng, rows):
    E = np.vstack([np.zeros((3, 3)), *[row * np.ones((4, 1)) for row in unit(rng.normal(size=(rows, 3)))[:, None]]])
    assert_array_equal(unit_centers(tensor(E), 3, 2, 0).numpy(), unit_centers(E, 3, 2, 0))
