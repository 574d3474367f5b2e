"""The pooling strength that a user sets: from silos on their own to silos with common means."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_wine

from fmtc import FMTC
from fmtc.settings import by_view

X = load_wine().data
SILO = np.arange(len(X)) % 3


@pytest.mark.parametrize("view", ["mixture", "graph"])
def test_means_of_silos_come_closer_with_kappa(view):
    gaps = []
    for kappa in (0, 10, float("inf")):
        model = FMTC(3, random_state=0, **by_view({"view": view, "kappa": kappa})).fit(X, silos=SILO)
        assert_allclose(model.kappa_, kappa, atol=1e-9)
        centers = np.array([*model.cluster_centers_.values()])
        within = centers - centers.mean(axis=1, keepdims=True)  # silos may be shifted as a whole
        gaps.append(float((within.std(axis=0) / within.std(axis=(0, 1))).mean()))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-9
