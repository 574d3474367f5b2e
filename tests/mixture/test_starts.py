"""Which coordinates have few different values."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc.mixture import Cells
from fmtc.mixture.cells import Scaled
from fmtc.mixture.starts import FEW_VALUES, LOOK, has_many_values

from .simulate import as_cells


def columns(rng, n):
    """A two-valued column, one of ten values, one of eleven, and one of numbers."""
    return np.column_stack([np.arange(n) % 2, np.arange(n) % 10, np.arange(n) % 11, rng.normal(size=n)]).astype(float)


def test_more_than_ten_values_are_many(rng):
    assert_array_equal(has_many_values(as_cells(columns(rng, 200))), [0, 0, 1, 1])


def test_missing_cells_are_no_value(rng):
    X = columns(rng, 300)
    X[rng.random(X.shape) < 0.3] = np.nan
    X = np.column_stack([X, np.full(300, np.nan)])
    assert_array_equal(has_many_values(as_cells(X)), [0, 0, 1, 1, 0])


def test_in_few_rows_a_third_of_them_is_many(rng):
    assert_array_equal(has_many_values(as_cells(columns(rng, 12))), [0, 1, 1, 1])
    assert_array_equal(has_many_values(as_cells(columns(rng, 12)[:6])), [0, 1, 1, 1])
    assert_array_equal(has_many_values(as_cells(columns(rng, 12)[:5])), [1, 1, 1, 1])  # two of five


def test_values_that_come_late_are_seen(rng):
    X = np.zeros((LOOK + 500, 2))
    X[LOOK + 100 : LOOK + 100 + FEW_VALUES, 1] = np.arange(1, FEW_VALUES + 1)
    assert_array_equal(has_many_values(as_cells(X[:LOOK])), [0, 0])
    assert_array_equal(has_many_values(as_cells(X)), [0, 1])


def test_levels_of_categories_are_many(rng):
    cells = Cells(columns(rng, 40), rng.integers(2, size=(40, 2)), (2, 3))
    assert_array_equal(has_many_values(cells), [0, 0, 1, 1] + 5 * [1])


def test_units_change_nothing(rng):
    X, shift, stretch = columns(rng, 100), rng.normal(size=4), rng.uniform(0.1, 3, size=4)
    some = np.array([3, 1])
    assert_array_equal(has_many_values(as_cells(Scaled(X, None, shift, stretch))), [0, 0, 1, 1])
    assert_array_equal(has_many_values(as_cells(Scaled(X, some, shift[some], stretch[some]))), [1, 0])


def test_tensors(rng):
    torch = pytest.importorskip("torch")
    assert_array_equal(has_many_values(as_cells(torch.as_tensor(columns(rng, 200)))), [0, 0, 1, 1])
