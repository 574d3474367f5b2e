"""Estimators of one view, for tests that are about it."""

from fmtc import FMTC, Mixture
from fmtc.settings import by_view

FEW = Mixture(n_init=2)  # starts take most of a small fit, and where groups are clear two will do


def graph_view(n_clusters=8, **params):
    """The graph view on columns as they come: not scaled, not lifted; parameters of the solver by their own names."""
    return FMTC(n_clusters, **by_view({"view": "graph", "scale": "none", "lift": False} | params))
