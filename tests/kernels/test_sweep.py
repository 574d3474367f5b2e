"""Evidence on the number of clusters: steps of a spectrum, large parts."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from fmtc.kernels.sweep import large_parts, pooled_gap


def test_a_step_follows_the_eigenvalue_of_its_number():
    lam = np.array([[0.0, 0.1, 0.1, 0.6], [0.0, 0.0, 0.2, 0.3]])
    assert_allclose(pooled_gap(lam, [2, 3]), [[0.0, 0.5], [0.2, 0.1]])


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
