"""Data sets of the tables, as `fmtc_bench.datasets` reads and splits them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fmtc import FMTC
from fmtc.settings import by_view
from fmtc_bench import datasets

DATASETS = {
    "Digits (8 label-skewed silos)": "digits",
    "WebKB4": "webkb4",
    "BBC, four label-skewed clients": "bbcnews",
    "20News without headers and quotes": "20newsgroups",
    "Reuters": "reuters",
    "Yale (15 persons, 3 conditions)": "yale",
    "UTD-MHAD (27 actions, 8 persons)": "utd_mhad",
}


def resident(name: str) -> int:
    """Bytes of this process on Linux, now (``VmRSS``) or at most (``VmHWM``).

    `getrusage` starts a fresh process at the peak of the one that started it, and hides what is smaller.
    """
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[name].split()[0])


@dataclass(frozen=True)
class Split:
    """One 80/20 split inside each client; what has to be learnt from rows comes from the training rows alone."""

    X: Any
    y: np.ndarray
    clients: np.ndarray
    X_test: Any
    y_test: np.ndarray
    clients_test: np.ndarray
    n_clusters: int


@cache
def _read(name: str) -> datasets.FederatedDataset:
    return datasets.load(name)


def load(name: str, seed: int) -> Split:
    """One data set of `DATASETS`, split 80/20 inside each client."""
    train, test = _read(name).split(test_size=0.2, seed=seed)
    return Split(train.X, train.y, train.clients, test.X, test.y, test.clients, train.n_clusters)


def graph_view(n_clusters: int, **setting: Any) -> FMTC:
    """FMTC in the graph view on columns as they are; settings of the view by their own names."""
    return FMTC(n_clusters, **by_view({"view": "graph", "scale": "none", "lift": False} | setting))
