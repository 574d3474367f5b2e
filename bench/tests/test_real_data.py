"""Real federations, where the machine has them: the folder that FMTC_DATA names."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from fmtc import FMTC
from fmtc.metrics import score_silos
from fmtc_bench.baselines import KMeansAlone
from fmtc_bench.datasets import load

HOME = os.environ.get("FMTC_DATA", "").split(os.pathsep)[0]

pytestmark = [
    pytest.mark.skipif(not HOME or not Path(HOME).is_dir(), reason="FMTC_DATA names no folder with data sets"),
    pytest.mark.filterwarnings("ignore:the neighbour graph of silo"),
]


def accuracy(rows, labels):
    return score_silos(rows.y, labels, rows.clients)["mean"]["acc"]


@pytest.mark.parametrize(
    ("name", "sparse", "n_splits"), [pytest.param("webkb4", True, 3, marks=pytest.mark.long), ("yale", False, 1)]
)
def test_defaults_beat_k_means_alone(name, sparse, n_splits):
    """On the mean of the splits; k-means, which depends far more on its seed, on the mean of three seeds as well."""
    data, ours, theirs = load(name), [], []
    for seed in range(n_splits):
        train, _ = data.split(seed=seed)
        assert sp.issparse(train.X) == sparse
        model = FMTC(train.n_clusters, random_state=0).fit(train.X, silos=train.clients)
        assert_array_equal(model.predict(train.X, silos=train.clients), model.labels_)
        ours.append(accuracy(train, model.labels_))
        for restart in range(3):
            alone = KMeansAlone(train.n_clusters, random_state=restart).fit(train.X, silos=train.clients)
            theirs.append(accuracy(train, alone.labels_))
    assert np.mean(ours) > np.mean(theirs)
