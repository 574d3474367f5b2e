"""Evidence on the number of clusters: steps of a spectrum, models of many widths, agreement."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fmtc.kernels.sweep import adjusted_rand, agreement, directions, large_parts, pooled_gap, sweep, widths


def groups(rng, k=3, n=60, d=5):
    return np.eye(k, d)[np.arange(n) % k] * 5 + rng.normal(size=(n, d)) * 0.2


def test_a_step_follows_the_eigenvalue_of_its_number():
    lam = np.array([[0.0, 0.1, 0.1, 0.6], [0.0, 0.0, 0.2, 0.3]])
    assert_allclose(pooled_gap(lam, [2, 3]), [[0.0, 0.5], [0.2, 0.1]])


@pytest.mark.parametrize("seed", range(5))
def test_agreement_is_the_adjusted_rand_index(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(4, size=50), rng.integers(3, size=50)
    assert_allclose(adjusted_rand(a, b), adjusted_rand_score(a, b), atol=1e-12)
    assert adjusted_rand(a, (a + 1) % 4) == pytest.approx(1.0)
    assert adjusted_rand(np.zeros(9, int), np.zeros(9, int)) == 1.0


def test_centres_of_all_numbers_stand_one_after_the_other():
    places = widths([2, 3, 5])
    assert [place.stop - place.start for place in places] == [4, 9, 25]
    assert [place.start for place in places] == [0, 4, 13]


def test_a_model_of_k_clusters_looks_at_the_first_k_columns_only(rng):
    P = groups(rng)
    other = P.copy()
    other[:, 3:] = rng.normal(size=(60, 2))
    one, two = sweep(P, [2, 3], 3, 0), sweep(other, [2, 3], 3, 0)
    assert_array_equal(one.labels, two.labels)
    assert_allclose(one.centers, two.centers)
    assert_allclose(np.linalg.norm(directions(P, 3), axis=1), 1)


def test_a_model_agrees_with_itself_and_not_with_noise(rng):
    X = groups(rng)
    own = sweep(X, [2, 3, 4], 3, 0)
    assert_allclose(agreement(own, X, np.eye(5), own.centers), 1)
    noise = sweep(rng.normal(size=(60, 5)), [2, 3, 4], 3, 0)
    turned = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    assert (agreement(own, X, turned, noise.centers)[1:] < 0.9).all()
    assert_array_equal([part[1] for part in own.parts()], own.labels)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([100], 1),
        ([100, 100], 2),
        ([100] * 7, 7),
        ([400, 100], 2),
        ([700, 100, 30], 2),  # the third is less than a quarter of an equal share
    ],
)
def test_large_parts_are_no_outliers(sizes, parts):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.uniform(size=(n, 3)) + 9 * place for place, n in enumerate(sizes)])
    assert large_parts(X) == parts
    order = rng.permutation(len(X))
    assert large_parts(sp.csr_array(X[order])) == parts
    alone = np.zeros((len(X), 3))  # each further away than all before: nobody's neighbour
    alone[:, 0] = 2.0 ** np.arange(10, 10 + len(X))
    assert large_parts(np.vstack([X, alone[:20]])) == parts
    if len(X) <= 200:
        assert large_parts(np.vstack([X, alone, alone * [[-1, 0, 0]]])) == 1  # most rows are in no large part
