"""Numbers of few values, and tables of many categories: what the server makes of the coordinates."""

import warnings

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score
from tests.views import FEW

from fmtc import FMTC, Mixture, load
from fmtc.protocol import units as moments
from fmtc.settings import by_view


def with_a_flag(n, seed):
    """Two bell-shaped concepts on a slant, and beside them a column of two values that says nothing of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    x = rng.normal(size=(n, 2)) + 3.0 * y[:, None]
    return np.column_stack([x, rng.integers(2, size=n)]), y


DATA = {cid: with_a_flag(n, seed)[0] for seed, (cid, n) in enumerate({"a": 90, "b": 70, "c": 60}.items())}
TRUTH = {cid: with_a_flag(n, seed)[1] for seed, (cid, n) in enumerate({"a": 90, "b": 70, "c": 60}.items())}


def fitted(data=DATA, **options):
    return FMTC(2, **by_view({"view": "mixture", "max_iter": 5, "random_state": 0} | options)).fit(data)


def agreement(model):
    return min(adjusted_rand_score(TRUTH[cid], model.predict(X, silos=cid)) for cid, X in DATA.items())


def test_a_column_of_two_values_does_not_decide_the_clusters(monkeypatch):
    model = fitted()
    assert agreement(model) > 0.8
    floor, covariance = model._fitted.shared.floor, model._fitted.shared.mixture.covariance
    assert_array_equal(floor > 0, [False, False, True])
    assert_allclose(covariance[2, :2], 0, atol=1e-12)
    assert covariance[2, 2] >= floor[2] > 0.3
    monkeypatch.setattr("fmtc.protocol.mixture.opening.LEAST", 0.0)  # as it was before
    assert agreement(fitted()) < 0.2


def test_one_silo_that_has_many_values_is_enough():
    rng = np.random.default_rng(0)
    data = {cid: X.copy() for cid, X in DATA.items()}
    data["b"][:, 2] += rng.normal(size=len(data["b"]))
    assert fitted(data)._fitted.shared.floor is None


def test_sums_are_enough():
    assert_array_equal(fitted(privacy="sums").labels_, fitted().labels_)


def test_a_saved_model_keeps_the_least_variance(tmp_path):
    model = fitted()
    floor = model._fitted.shared.floor
    again = load(model.save(tmp_path / "model"))
    assert_array_equal(again._fitted.shared.floor, floor)
    for one in (again, model):
        one.set_params(random_state=0).update(DATA)
        assert one._fitted.shared.mixture.covariance[2, 2] >= floor[2]
        assert_allclose(one._fitted.shared.mixture.covariance[2, :2], 0, atol=1e-12)
    assert_array_equal(again.labels_, model.labels_)


def test_principal_axes_have_no_such_rule():
    data = {cid: np.hstack([X, np.random.default_rng(1).normal(size=(len(X), 60))]) for cid, X in DATA.items()}
    model = fitted(data)
    assert model._fitted.shared.axes is not None and model._fitted.shared.floor is None


# ---------------------------------------------------------------------------------------------------- many categories


def answers(n, seed, questions=60):
    """Two kinds of people, and what they say to many questions; cells are words."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    said = rng.random((n, questions)) < np.where(y[:, None] == np.arange(questions) % 2, 0.8, 0.2)
    return pl.DataFrame({f"q{j}": np.where(said[:, j], "yes", "no") for j in range(questions)}), y


def test_many_categories_keep_their_profiles():
    data = {cid: answers(40, seed) for seed, cid in enumerate("abc")}
    model = FMTC(2, random_state=0, mixture=Mixture(n_init=2)).fit({cid: frame for cid, (frame, _) in data.items()})
    assert (model.view_, model.view_reason_) == ("mixture", "a table of 60 columns")
    assert model._fitted.shared.axes is None
    assert model._fitted.shared.mixture.profiles.shape == (2, 120)
    for cid, (frame, y) in data.items():
        assert adjusted_rand_score(y, model.predict(frame, silos=cid)) > 0.9


def test_more_levels_than_can_be_sent_in_pairs_are_axes(monkeypatch):
    monkeypatch.setattr(moments, "MOST_COORDINATES", 119)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FMTC(2, random_state=0, view="mixture", mixture=FEW).fit(
            {cid: answers(40, seed)[0] for seed, cid in enumerate("abc")}
        )
    assert model._fitted.shared.axes is not None
    assert model._fitted.shared.mixture.profiles.shape == (2, 0)


@pytest.mark.parametrize(("numbers", "is_wide"), [(50, False), (51, True)])
def test_numbers_beside_categories_make_a_table_wide(numbers, is_wide):
    rng = np.random.default_rng(0)
    data = {
        cid: answers(30, seed, 3)[0].with_columns(**{f"x{j}": rng.normal(size=30) for j in range(numbers)})
        for seed, cid in enumerate("abc")
    }
    model = FMTC(2, random_state=0, view="mixture", max_iter=1, mixture=Mixture(n_init=1)).fit(data)
    assert (model._fitted.shared.axes is not None) == is_wide
