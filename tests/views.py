"""Estimators of one view, for tests that are about it."""

from fmtc import FMTC
from fmtc.settings import split_solver


def graph_view(n_clusters=8, **params):
    """The graph view on columns as they come: not scaled, not lifted; parameters of the solver by their own names."""
    return FMTC(n_clusters, **split_solver({"view": "graph", "scale": "none", "lift": False} | params))
