"""Centres on the unit sphere: own and shared ones, and the distance of rows to centres computed without them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

from fmtc.kernels.centers import (
    cluster_sums,
    leave_one_out_distance,
    mean_distance,
    row_norms,
    shared_start,
    shared_step,
    unit_centers,
)


def unit(A):
    return A / np.linalg.norm(A, axis=1, keepdims=True)


def bunches(rng, n=40, k=3, noise=0.1):
    """Unit rows about the axes, and the axis of each."""
    labels = np.arange(n) % k
    return unit(np.eye(k)[labels] + noise * rng.normal(size=(n, k))), labels


def textbook_left_out(E, labels, k):
    """Row by row, with centres made of the other rows."""
    total = 0.0
    for i, row in enumerate(E):
        others = np.arange(len(E)) != i
        best = -1.0
        for j in range(k):
            mine = E[others & (labels == j)]
            if len(mine):
                centre = mine.sum(axis=0)
                best = max(best, float(row @ centre) / np.linalg.norm(centre))
        total += 1 - best
    return total / len(E)


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


def test_shared_steps_are_k_means_over_all_rows_with_clients_counted_alike(rng):
    data = [bunches(rng, n, noise=0.6)[0] for n in (30, 300)]
    centers = unit(np.eye(3) + 0.2)
    expected = np.zeros((3, 3))
    for E in data:
        nearest = np.linalg.norm(E[:, None] - centers, axis=2).argmin(axis=1)
        for j in range(3):
            expected[j] += E[nearest == j].sum(axis=0) / len(E)
    assert_allclose(shared_step(centers, [cluster_sums(E, centers) for E in data]), unit(expected), atol=1e-12)


def test_shared_steps_bring_rows_nearer(rng):
    data = [bunches(rng, n, noise=0.8)[0] for n in (50, 70)]
    centers = unit(rng.normal(size=(3, 3)))
    before = np.inf
    for _ in range(6):
        after = sum(mean_distance(E, centers) for E in data)
        assert after <= before + 1e-12
        before, centers = after, shared_step(centers, [cluster_sums(E, centers) for E in data])


def test_a_centre_that_nobody_is_near_stays(rng):
    E = unit(np.abs(rng.normal(size=(20, 3))))
    centers = np.vstack([np.ones(3) / np.sqrt(3), -np.ones(3) / np.sqrt(3)])
    after = shared_step(centers, [cluster_sums(E, centers)])
    assert_array_equal(after[1], centers[1])
    assert_allclose(after[0], unit(E.sum(axis=0)[None])[0], atol=1e-12)


def test_the_start_is_the_mean_direction_of_what_was_matched(rng):
    matched = [unit(rng.normal(size=(4, 4))) for _ in range(3)]
    assert_allclose(shared_start(matched), unit(sum(matched)), atol=1e-12)


def test_distance_is_one_minus_the_largest_cosine():
    E = np.array([[1.0, 0.0], [0.6, 0.8]])
    assert_allclose(mean_distance(E, np.array([[1.0, 0.0], [-1.0, 0.0]])), (0 + 0.4) / 2)


@pytest.mark.parametrize("noise", [0.05, 0.5, 2.0])
def test_left_out_equals_the_textbook(rng, noise):
    E, labels = bunches(rng, noise=noise)
    assert_allclose(leave_one_out_distance(E, labels, 3), textbook_left_out(E, labels, 3), rtol=1e-12)


def test_a_row_alone_in_its_cluster_is_held_against_the_other_centres():
    E = np.array([[1.0, 0.0], [1.0, 0.0], [-0.6, 0.8]])
    labels = np.array([0, 0, 1])
    for k in (2, 3):  # a label without rows is no centre at all
        assert_allclose(leave_one_out_distance(E, labels, k), (0 + 0 + 1.6) / 3, atol=1e-12)
    assert_allclose(mean_distance(E, E[[0, 2]]), 0, atol=1e-12)  # in the sample it looks perfect


def test_left_out_is_further_than_in_the_sample(rng):
    E = unit(rng.normal(size=(30, 10)))  # nothing but noise: centres are their own rows
    centers = unit_centers(E, 10, 5, 0)
    labels = (E @ centers.T).argmax(axis=1)
    assert leave_one_out_distance(E, labels, 10) > 1.5 * mean_distance(E, centers)


def test_norms_of_zero_rows_are_one():
    assert_array_equal(row_norms(np.array([[3.0, 4.0], [0.0, 0.0]])), [[5.0], [1.0]])


def test_centres_of_many_rows_are_those_of_all_and_not_of_some(rng):
    E = bunches(rng, 12_000, noise=0.3)[0]
    found = unit_centers(E, 3, 2, 0)
    whole = KMeans(3, init=found, n_init=1, tol=0).fit(E).cluster_centers_
    assert_allclose(found, unit(whole), atol=1e-10)  # those of 4,000 rows are 1e-2 off


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


@pytest.mark.torch
@pytest.mark.parametrize(("dtype", "close"), [(np.float64, 1e-14), (np.float32, 1e-6)])
@pytest.mark.parametrize("noise", [0.05, 0.5, 2.0])
def test_tensors_give_the_same_sums_and_distances(tensor, rng, noise, dtype, close):
    E = bunches(rng, noise=noise)[0].astype(dtype)
    centers = unit(np.eye(3) + 0.2).astype(dtype)
    labels = (E @ centers.T).argmax(axis=1)
    labels[labels == 2] = 0  # a label without rows,
    labels[3] = 2  # then one with a single row
    for k in (3, 4):
        found = leave_one_out_distance(tensor(E), tensor(labels), k)
        assert type(found) is float
        assert_allclose(found, textbook_left_out(E.astype(float), labels, k), rtol=max(1e-12, close))
    assert_allclose(mean_distance(tensor(E), tensor(centers)), mean_distance(E, centers), atol=close)
    assert_allclose(cluster_sums(tensor(E), tensor(centers)).numpy(), cluster_sums(E, centers), atol=close)
    alone = np.array([[1.0, 0.0], [1.0, 0.0], [-0.6, 0.8]], dtype=dtype)  # its own centre is none for the last row
    assert_allclose(
        leave_one_out_distance(tensor(alone), tensor(np.array([0, 0, 1])), 2), 1.6 / 3, rtol=max(1e-12, close)
    )
    E[4] = 0
    assert_allclose(row_norms(tensor(E)).numpy(), row_norms(E), rtol=close)
    assert row_norms(tensor(E))[4] == 1
