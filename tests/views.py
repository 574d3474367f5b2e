"""Estimators of one view, for tests that are about it."""

from fmtc import FMTC, Solver
from fmtc.settings import split_solver

FEW = Solver(n_init=2)  # starts of a mixture: they take most of a small fit, and where groups are clear two will do


def graph_view(n_clusters=8, **params):
    """The graph view on columns as they come: not scaled, not lifted; parameters of the solver by their own names."""
    return FMTC(n_clusters, **split_solver({"view": "graph", "scale": "none", "lift": False} | params))
