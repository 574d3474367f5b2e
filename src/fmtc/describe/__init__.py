"""What clusters are, in words: facts first, then how they are worded."""

from .atlas import FLAGS, Atlas, Concept, Feature, draw, draw_models, presence_of
from .clusters import Cluster, Difference, Explanation, Histogram, explain, explain_silos, percents_of
from .features import Features, Lookup
from .reasons import Change, Reason, RowExplanation, explain_row
from .words import FEW, both_written, empty_clusters_sentence, held_words, lone_words, percent, percents, written

__all__ = [
    "FEW",
    "FLAGS",
    "Atlas",
    "Change",
    "Cluster",
    "Concept",
    "Difference",
    "Explanation",
    "Feature",
    "Features",
    "Histogram",
    "Lookup",
    "Reason",
    "RowExplanation",
    "both_written",
    "draw",
    "draw_models",
    "empty_clusters_sentence",
    "explain",
    "explain_row",
    "explain_silos",
    "held_words",
    "lone_words",
    "percent",
    "percents",
    "percents_of",
    "presence_of",
    "written",
]
