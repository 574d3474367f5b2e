"""Sums of single silos: what no rows can give is refused, what lies far beyond the others' is made smaller."""

from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc.mixture import bounds, e_step, personal, summed
from fmtc.mixture.starts import assign_sums, shape
from fmtc.mixture.steps import Common, Statistics, Sums

from .simulate import as_cells

K, R = 3, 4


def common(seed=0):
    rng = np.random.default_rng(seed)
    return Common(
        4 * np.eye(K, R), np.full(K, 1 / K), np.zeros((K, 0)), np.eye(R), np.array([0.1, 0.0, 0.3]), 0.5 + rng.random()
    )


def rows(seed, n=60):
    rng = np.random.default_rng(seed)
    return 4 * np.eye(K, R)[rng.integers(K, size=n)] + rng.normal(size=(n, R)) + 0.3 * rng.normal(size=R)


def sums_of(X, of=None) -> Sums:
    of = common() if of is None else of
    before = Statistics(np.zeros(K), np.zeros((K, R)), np.zeros((K, 0)), np.zeros(R))
    own = personal(of, before, (), 5.0)
    return summed(of, before, own, e_step(as_cells(X), own, of.covariance), (), len(X))[1]


@pytest.mark.parametrize("seed", range(5))
def test_honest_sums_pass_as_they_are(seed):
    parts = [sums_of(rows(10 * seed + t, n=20 + 30 * t)) for t in range(4)]
    for t, part in enumerate(parts):
        assert bounds.impossible_sums(part, common(), (), (20 + 30 * t,)) is None
    found, touched = bounds.limited(parts, common())
    assert not touched.any()
    assert all(one is other for one, other in zip(found, parts, strict=True))


def broken(part, **changes):
    return replace(part, **{name: change(getattr(part, name)) for name, change in changes.items()})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"counts": lambda n: -n}, "counts of concepts"),
        ({"counts": lambda n: 2 * n}, "counts of concepts"),
        ({"weights": lambda w: 2 * w}, "weights that do not follow"),
        ({"scatter": lambda S: -S}, "positive semi-definite"),
        ({"means": lambda M: 50 * M}, "positive semi-definite"),
        ({"score": lambda s: s * [1, 1, 2]}, "of 120 rows"),
        ({name: lambda A: 1000 * A for name in ("counts", "weights", "means", "scatter", "score")}, "rows"),
    ],
)
def test_what_no_rows_can_give_is_refused(changes, words):
    part = sums_of(rows(1))
    why = bounds.impossible_sums(broken(part, **changes), common(), (), (60,))
    assert why is not None
    assert words in why


def test_levels_that_do_not_add_up_are_refused():
    levels = (2,)
    part = replace(sums_of(rows(1)), level_weights=np.full((K, 1), 3.0), levels=np.array([[1.0, 2.0]] * K))
    assert bounds.impossible_sums(part, common(), levels) is None
    for changed in (
        {"levels": lambda A: A + 1},
        {"levels": lambda A: A * [-1, 2]},
        {"level_weights": lambda A: 1e3 * A},
    ):
        assert "levels" in (bounds.impossible_sums(broken(part, **changed), common(), levels) or "")


def test_a_silo_of_far_rows_is_drawn_to_the_others():
    """Rows that exist, and follow the protocol, but have nothing to do with those of the others."""
    parts = [sums_of(rows(t)) for t in range(4)]
    parts[2] = sums_of(1000 * np.random.default_rng(0).normal(size=(60, R)))
    found, touched = bounds.limited(parts, common())
    assert_array_equal(np.flatnonzero(touched), [2])
    assert bounds.impossible_sums(found[2], common(), ()) is None  # still what rows can give
    honest = max(np.abs(part.means).max() for t, part in enumerate(parts) if t != 2)
    assert np.abs(found[2].means).max() < 30 * honest
    assert np.trace(found[2].scatter) < 100 * np.trace(parts[0].scatter)
    for name in (f.name for f in fields(Sums)):
        assert_array_equal(getattr(found[1], name), getattr(parts[1], name))


def unlucky(seed, n=3000):
    """Rows of a silo that takes the first two concepts for each other: a plausible mistake."""
    part = sums_of(rows(seed, n))
    order = [1, 0, 2]
    means = part.means / part.weights[:, None]
    moved = means[order]
    scatter = part.scatter + (moved.T * part.weights) @ moved - (means.T * part.weights) @ means
    return replace(part, means=moved * part.weights[:, None], scatter=scatter)


@pytest.mark.parametrize(("m", "wrong"), [(3, 1), (8, 2), (100, 1), (100, 20)])
def test_few_unlucky_silos_are_drawn_to_the_others_and_not_named(m, wrong):
    parts = [sums_of(rows(t, 3000)) for t in range(m - wrong)] + [unlucky(t) for t in range(wrong)]
    found, named = bounds.limited(parts, common(), far_at=8.0)
    drawn = [one is not other for one, other in zip(found, parts, strict=True)]
    assert_array_equal(np.flatnonzero(drawn), np.arange(m - wrong, m))
    assert not named.any()
    assert bounds.impossible_sums(found[-1], common(), ()) is None


def test_unlucky_silos_are_named_if_they_are_many_or_beside_wild_ones_if_these_are():
    parts = [sums_of(rows(t, 3000)) for t in range(20)]
    many = parts[:12] + [unlucky(t) for t in range(8)]
    assert_array_equal(np.flatnonzero(bounds.limited(many, common(), far_at=8.0)[1]), np.arange(12, 20))
    parts[5] = unlucky(5)
    parts[7] = sums_of(1000 * np.random.default_rng(0).normal(size=(60, R)))
    assert_array_equal(np.flatnonzero(bounds.limited(parts, common(), far_at=8.0)[1]), [7])


@pytest.mark.parametrize(("away", "is_named"), [(-90.0, False), (-1e6, True), (90.0, True)])
def test_scores_too_low_for_any_start_are_named_and_so_are_those_too_high(away, is_named):
    parts = [sums_of(rows(t)) for t in range(20)]
    parts[3] = replace(parts[3], score=parts[3].score + parts[3].score[2] * np.array([away, away, 0]))
    found, named = bounds.limited(parts, common())
    assert found[3] is not parts[3]
    assert named[3] == is_named
    assert not np.delete(named, 3).any()


def test_two_silos_cannot_be_told_apart():
    parts = [sums_of(rows(0)), sums_of(1000 * rows(1))]
    found, touched = bounds.limited(parts, common())
    assert found == parts
    assert not touched.any()


# ------------------------------------------------------------------------------------------------------------- opening


def test_moments_and_steps_of_rows_pass_and_others_do_not():
    cells, rng = as_cells(rows(3)), np.random.default_rng(0)
    found, n = shape(cells), cells.n
    good = {"sums": found.mean * n, "within": found.within, "fourths": found.fourths, "between": found.between}
    assert bounds.impossible_moments(n, **good) is None
    for name, change in (("sums", 2.0), ("within", -1.0), ("fourths", 0.01), ("between", 5.0)):
        assert bounds.impossible_moments(n, **good | {name: change * good[name]}) is not None
    centers, origins = rng.normal(size=(2, K, R)), np.array([np.zeros(R), found.mean])
    counts, sums = assign_sums(cells, centers, origins, np.ones((2, R)))
    squares = np.array([np.diag(found.within) + n * found.mean**2, np.diag(found.within)])
    assert bounds.impossible_steps(counts, sums, n, squares) is None
    for bad in ((-counts, sums), (counts + 0.5, sums), (2 * counts, sums), (counts, 30 * sums)):
        assert bounds.impossible_steps(*bad, n, squares) is not None


def test_products_with_a_basis_are_those_of_a_covariance():
    rng = np.random.default_rng(0)
    X, basis = rng.normal(size=(50, 8)), np.linalg.qr(rng.normal(size=(8, 3)))[0]
    assert bounds.impossible_products(basis, X.T @ (X @ basis)) is None
    assert bounds.impossible_products(basis, -X.T @ (X @ basis)) is not None
    assert bounds.impossible_products(basis, rng.normal(size=(8, 3))) is not None


def test_columns_in_other_units_are_far_and_one_wild_column_is_not():
    rng = np.random.default_rng(0)
    means, variances = rng.normal(size=(5, 6)), rng.uniform(0.5, 2, size=(5, 6))
    assert not bounds.far_columns(means, variances).any()
    wild = variances.copy()
    wild[1, 2] = 1e9
    assert not bounds.far_columns(means, wild).any()
    assert_array_equal(np.flatnonzero(bounds.far_columns(means * [[1], [1], [1], [1000], [1]], variances)), [3])
    assert_array_equal(np.flatnonzero(bounds.far_columns(means, variances * [[1], [1], [1e6], [1], [1]])), [2])
    holes = means.copy()
    holes[0] = np.nan  # a silo that has measured nothing
    assert not bounds.far_columns(holes, np.where(np.isnan(holes), np.nan, variances)).any()
    assert not bounds.far_columns(means[:2] * [[1], [1000]], variances[:2]).any()


def test_sizes():
    assert_array_equal(bounds.far_sizes(np.array([1.0, 2.0, 1e5])), [False, False, True])
    assert not bounds.far_sizes(np.array([1.0, 1e5])).any()
