"""What clusters are, in words: facts first, then how they are worded. Here is what answers are made of."""

from .atlas import Atlas, AtlasCluster, Feature
from .clusters import Cluster, Difference, Explanation, Histogram
from .features import Features
from .reasons import RowExplanation

__all__ = [
    "Atlas",
    "AtlasCluster",
    "Cluster",
    "Difference",
    "Explanation",
    "Feature",
    "Features",
    "Histogram",
    "RowExplanation",
]
