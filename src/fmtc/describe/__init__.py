"""What clusters are, in words: facts first, then how they are worded."""

from .atlas import FLAGS, Atlas, AtlasCluster, Feature, draw, draw_models, presence_of
from .clusters import Cluster, Difference, Explanation, Histogram, explain_silos, percents_of
from .features import Features, Lookup
from .reasons import RowExplanation, explain_row
from .words import (
    FEW,
    empty_clusters_sentence,
    held_words,
    listing,
    lone_words,
    missed_words,
    percents,
    strangers_sentence,
)

__all__ = [
    "FEW",
    "FLAGS",
    "Atlas",
    "AtlasCluster",
    "Cluster",
    "Difference",
    "Explanation",
    "Feature",
    "Features",
    "Histogram",
    "Lookup",
    "RowExplanation",
    "draw",
    "draw_models",
    "empty_clusters_sentence",
    "explain_row",
    "explain_silos",
    "held_words",
    "listing",
    "lone_words",
    "missed_words",
    "percents",
    "percents_of",
    "presence_of",
    "strangers_sentence",
]
