"""Coordinates of few values in the common covariance."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.mixture import Cells, Pool
from fmtc.mixture.pooling import floored, free_numbers
from fmtc.mixture.steps import Common

from .simulate import begin, rounds, silos

FLOOR = np.array([0.0, 0.5, 0.0, 0.01])


@pytest.fixture
def covariance(rng):
    A = rng.normal(size=(4, 4))
    return A @ A.T


def test_only_coordinates_of_few_values_stand_apart(covariance):
    found = floored(covariance, FLOOR)
    few, others = FLOOR > 0, FLOOR == 0
    assert_array_equal(found[np.ix_(others, others)], covariance[np.ix_(others, others)])
    assert_array_equal(found[np.ix_(few, others)], 0)
    assert_array_equal(found[np.ix_(few, few)], np.diag(np.maximum(np.diag(covariance), FLOOR)[few]))
    assert covariance[0, 1] != 0, "what came in is as it was"


@pytest.mark.parametrize("floor", [None, np.zeros(4)])
def test_where_all_have_many_values_nothing_changes(covariance, floor):
    assert floored(covariance, floor) is covariance


def test_what_has_no_variance_gets_the_least_and_all_stay_invertible(rng):
    A = rng.normal(size=(4, 2))
    flat = A @ A.T  # of rank two
    flat[1] = flat[:, 1] = 0
    found = floored(flat + 1e-6 * np.diag([1, 0, 1, 1]), FLOOR)
    assert found[1, 1] == 0.5
    assert np.linalg.eigvalsh(found).min() > 0


def test_a_round_of_the_mixture_keeps_the_least_variance(rng):
    found, *_ = silos(rng, k=2, r=3, sizes=(50, 40))
    cells, labels = zip(*found, strict=True)
    two = [Cells(np.column_stack([c.Z[:], y + 0.0]), c.codes, c.levels) for c, y in zip(cells, labels, strict=True)]
    common, own = begin(two, labels, 2)
    floor = np.array([0.0, 0.0, 0.0, 0.1])
    free, _, _ = rounds(two, common, own, Pool(), 1)
    held, _, _ = rounds(two, common, own, Pool(), 1, floor=floor)
    assert free.covariance[3, 3] < 0.05
    assert held.covariance[3, 3] == 0.1
    assert_array_equal(held.covariance[3, :3], 0)
    assert_allclose(held.covariance[:3, :3], free.covariance[:3, :3])
    assert_allclose(held.means, free.means)


def test_means_count_as_far_as_silos_decide_them():
    """One mean for all silos where they are the same, one for each where nothing is pooled, and in between."""
    k, r, m = 3, 4, 5
    counts = np.random.default_rng(0).integers(5, 60, size=(m, k)).astype(float)

    def means(b, drift=0.0, rows=counts):
        common = Common(np.zeros((k, r)), np.full(k, 1 / k), np.zeros((k, 0)), np.eye(r), np.full(k, b), drift)
        return free_numbers(rows, common, ()) - r  # Σ is diagonal

    assert means(0.0) == pytest.approx(k * r)
    assert means(np.inf) == pytest.approx(m * k * r)
    found = [means(b) for b in (0.0, 1e-3, 0.1, 10.0, np.inf)]
    assert (np.diff(found) > 0).all()
    assert means(0.0, drift=1e9) == pytest.approx(k * r + m * r)  # and a shift for each silo
    assert means(0.1, rows=counts[:1]) == pytest.approx(k * r)
    assert means(0.1, rows=counts * [1, 1, 0]) < means(0.1) - r  # a concept without rows has no mean
