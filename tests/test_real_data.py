"""Real federations, where the machine has them: the folder that FMTC_DATA names."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from fmtc import FMTC, score_clients

HOME = os.environ.get("FMTC_DATA", "")
LOADER = Path(__file__).parents[1] / "benchmarks" / "_data.py"

pytestmark = [
    pytest.mark.skipif(not HOME or not Path(HOME).is_dir(), reason="FMTC_DATA names no folder with data sets"),
    pytest.mark.filterwarnings("ignore:the neighbour graph of client"),
]


def load(name, seed):
    spec = importlib.util.spec_from_file_location("fmtc_benchmark_data", LOADER)
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))  # dataclasses look there
    spec.loader.exec_module(module)
    return module.load(name, seed)


def accuracy(split, labels):
    return score_clients(split.y, labels, split.clients)["mean"]["acc"]


@pytest.mark.parametrize(("name", "sparse", "n_splits"), [("webkb4", True, 3), ("yale", False, 1)])
def test_defaults_beat_k_means_alone(name, sparse, n_splits):
    """On the mean of the splits; k-means, which depends far more on its seed, on the mean of three seeds as well."""
    ours, theirs = [], []
    for seed in range(n_splits):
        split = load(name, seed)
        assert sp.issparse(split.X) == sparse
        model = FMTC(split.n_clusters, random_state=0).fit(split.X, clients=split.clients)
        assert_array_equal(model.predict(split.X, clients=split.clients), model.labels_)
        ours.append(accuracy(split, model.labels_))
        for restart in range(3):
            alone = np.empty_like(model.labels_)
            for cid in model.client_ids_:
                mine = split.clients == cid
                with threadpool_limits(1):
                    alone[mine] = KMeans(split.n_clusters, n_init=10, random_state=restart).fit_predict(split.X[mine])
            theirs.append(accuracy(split, alone))
    assert np.mean(ours) > np.mean(theirs)
