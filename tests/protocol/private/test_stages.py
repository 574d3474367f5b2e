"""Stages of private anchors: no record adds more than the sensitivity says, whatever the server sends."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fmtc.errors import DataError, RefusedError
from fmtc.kernels.records import Box, Public, coordinates
from fmtc.protocol.private.stages import MIXTURE_STAGES, STAGES, posterior

EVERY = {stage.name: stage for stage in (*STAGES, *MIXTURE_STAGES)}.values()
SIZES = (0.0, 1e-300, 1e-9, 1.0, 1e9, 1e300)


def hostile(rng, box, r=3, K=5):
    """A public state with entries of any size."""

    def any_size(*shape):
        return rng.normal(size=shape) * rng.choice(SIZES, size=shape)

    return Public(
        box, mean=any_size(box.width), radius=float(rng.choice(SIZES[1:])), basis=any_size(box.width, r),
        size=float(rng.choice(SIZES[1:])), centers=any_size(K, r), precision=any_size(r, r), shares=any_size(K),
    )  # fmt: skip


def rows(rng, n=40, levels=(0, 3, 0, 2)):
    """Numbers of any size, infinity and missing cells; levels that exist, that do not, and missing ones."""
    X = rng.normal(size=(n, len(levels))) * rng.choice([*SIZES, np.inf], size=(n, len(levels)))
    X[rng.random(X.shape) < 0.2] = np.nan
    for j, size in enumerate(levels):
        if size:
            X[:, j] = rng.choice([-1, *range(size), size + 5, np.nan, np.inf], size=n)
    return X


@pytest.mark.parametrize("stage", EVERY, ids=lambda stage: stage.name)
@given(seed=st.integers(0, 10**6), columns=st.sampled_from([(), (0, 3, 0, 2), (4, 2)]))
@settings(max_examples=40, deadline=None)
def test_no_record_adds_more_than_the_sensitivity(stage, seed, columns):
    rng = np.random.default_rng(seed)
    levels = columns or (0,) * 4
    numbers = sum(size == 0 for size in levels)
    low = rng.normal(size=numbers) * 10
    box = Box.of((low, low + rng.uniform(1e-6, 1e6, size=numbers)), len(levels), columns)
    public = hostile(rng, box)
    phi = stage.contributions(rows(rng, levels=levels), public)
    assert phi.shape == (40, stage.numbers(public))
    assert np.isfinite(phi).all()
    assert np.linalg.norm(phi, axis=1).max() <= stage.sensitivity


@pytest.mark.parametrize("stage", EVERY, ids=lambda stage: stage.name)
def test_the_sensitivity_is_reached(stage):
    """A longer bound than needed would be paid for in noise."""
    rng = np.random.default_rng(0)
    box = Box.of((0, 1), 4)
    public = Public(
        box, mean=np.zeros(4), radius=0.01, basis=np.eye(4)[:, :3], size=0.01, centers=rng.normal(size=(5, 3)),
        precision=1e6 * np.eye(3), shares=np.full(5, 0.2),
    )  # fmt: skip
    phi = stage.contributions(rng.choice([0.0, 1.0], size=(50, 4)), public)
    assert np.linalg.norm(phi, axis=1).max() >= stage.sensitivity - 1e-6


@pytest.mark.parametrize("stage", EVERY, ids=lambda stage: stage.name)
def test_a_stage_is_a_sum_over_records(stage):
    rng = np.random.default_rng(1)
    public = hostile(rng, Box.of((-1, 1), 4, (0, 3, 0, 2)))
    public = replace(public, mean=0.1 * rng.normal(size=7), radius=0.5, basis=rng.normal(size=(7, 3)), size=0.5)
    X = rows(rng, 300)
    whole = stage.total(X, public)
    assert_allclose(stage.contributions(X, public).sum(axis=0), whole, rtol=1e-9, atol=1e-9)
    for cut in (0, 1, 123, 300):
        assert_allclose(stage.total(X[:cut], public) + stage.total(X[cut:], public), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("stage", EVERY, ids=lambda stage: stage.name)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_state_that_is_not_finite_is_refused(stage, value):
    rng = np.random.default_rng(2)
    public = hostile(rng, Box.of((-1, 1), 4))
    for name in stage.needs:
        field = getattr(public, name)
        wrong = value if isinstance(field, float) else np.full_like(field, value)
        with pytest.raises(RefusedError, match=name):
            stage.total(rng.normal(size=(5, 4)), replace(public, **{name: wrong}))
        with pytest.raises(RefusedError):
            stage.total(rng.normal(size=(5, 4)), replace(public, **{name: None}))


def test_shapes_of_the_state_must_fit_each_other():
    rng = np.random.default_rng(3)
    public = hostile(rng, Box.of((-1, 1), 4))
    links = STAGES[-1]
    with pytest.raises(RefusedError, match="coordinates"):
        links.total(rng.normal(size=(5, 4)), replace(public, centers=rng.normal(size=(5, 2))))
    with pytest.raises(RefusedError, match="mean"):
        links.total(rng.normal(size=(5, 4)), replace(public, mean=np.zeros(3)))
    with pytest.raises(RefusedError, match="radius"):
        links.total(rng.normal(size=(5, 4)), replace(public, radius=-1.0))


def test_missing_cells_are_in_the_middle_and_unknown_levels_nowhere():
    box = Box.of(([0, -2], [10, 2]), 3, (0, 3, 0))
    unit = box.unit(np.array([[np.nan, 1, 2.0], [5, np.nan, 99], [0, 7, -np.inf]]))
    expected = np.array([[0, 1, 0, 1, 0], [0, 1, 0, 0, 0], [-1, -1, 0, 0, 0]]) / sqrt(3)
    assert_allclose(unit, expected)


def test_one_pair_of_bounds_or_one_for_each_column():
    assert_allclose(Box.of((0, 1), 3).high, [1, 1, 1])
    every = Box.of(([0, 9, 0], [1, 9.5, 2]), 3, (0, 4, 0))  # the category's own are not needed, and not looked at
    assert_allclose(every.high, [1, 2])
    for bounds in (([0, 0], [1, 1]), (1, 0), (0, np.inf), ([0, 0, 0], [1, 0, 1])):
        with pytest.raises(DataError, match="bounds"):
            Box.of(bounds, 3)


def test_posteriors_sum_to_at_most_one_and_follow_the_nearest_mean():
    rng = np.random.default_rng(4)
    box = Box.of((-1, 1), 2)
    public = Public(
        box, mean=np.zeros(2), radius=1.0, basis=np.eye(2), size=1.0, centers=np.array([[-0.5, 0], [0.5, 0]]),
        precision=50 * np.eye(2), shares=np.array([0.5, 0.5]),
    )  # fmt: skip
    X = rng.uniform(-1, 1, size=(100, 2))
    P = posterior(coordinates(X, public), public)
    assert (P.sum(axis=1) <= 1).all() and (P.sum(axis=1) > 1 - 1e-9).all()
    assert ((P[:, 1] > P[:, 0]) == (X[:, 0] > 0)).all()


def test_shares_of_the_budget_add_up():
    for stages in (STAGES, MIXTURE_STAGES):
        assert sum(stage.share for stage in stages) == pytest.approx(1)
