"""The methods that the paper compares with, and some controls, with the interface of `fmtc.FMTC`.

>>> from fmtc_bench.baselines import MBC
>>> from fmtc_bench.datasets import synthetic
>>> data = synthetic("offset", seed=0)
>>> labels = MBC(data.n_clusters, random_state=0).fit_predict(data.X, silos=data.clients)
"""

from .base import Baseline
from .bregman import MBC, SMBC, SMKC
from .density import GMMAlone, HDBSCANAlone
from .fed_kmeans import FedKMeans
from .fed_spectral import FedSpectral
from .mtsc import MTSC, SEC, FedMTSC
from .public_anchors import NoisyAnchors, PublicAnchors
from .sfomvc import SFOMVC
from .single_task import USC, KMeansAlone, KMeansUnion, SklearnSpectral, StSC

__all__ = [
    "MBC",
    "MTSC",
    "SEC",
    "SFOMVC",
    "SMBC",
    "SMKC",
    "USC",
    "Baseline",
    "FedKMeans",
    "FedMTSC",
    "FedSpectral",
    "GMMAlone",
    "HDBSCANAlone",
    "KMeansAlone",
    "KMeansUnion",
    "NoisyAnchors",
    "PublicAnchors",
    "SklearnSpectral",
    "StSC",
]
