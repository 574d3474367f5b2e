"""Which view suits the rows, where the settings leave it open: decided here, and nowhere else.

A table of few columns is left to the mixture, and one of many columns and few rows to the graph view. Otherwise the
mixture runs first, and the silos say what their rows look like in both views (`probe`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..settings import Settings
from .state import Server, ServerState

GRAPH, MIXTURE = "graph", "mixture"
# Rows of a silo for each cluster: with fewer, many columns are left to the graph view. Comparing both there chose wrong
# on seven of twelve visible federations, by up to 14 points of ARI: docs/explanation/views.md.
FEWEST_ROWS = 10
MIN_GAIN = 0.05  # of neighbours in the same cluster, beyond chance, by which a mixture of many columns must be better
MIN_ENTROPY = 0.65  # of its clusters, as a part of that of even ones: one giant cluster agrees with itself


def by_columns(server: Server, settings: Settings) -> Server:
    """The server with its view, where the number of columns and rows decides it."""
    if server.view is not None:
        return server
    d, rows = _columns(server, settings), server.n_samples / (settings.n_clusters * len(server.client_ids))
    if server.wide and rows < FEWEST_ROWS:
        why = f"{d} columns, and a mixture needs more than {rows:.0f} rows of a silo for each cluster"
        return replace(server, view=GRAPH, why=why)
    if server.wide or server.lifted:
        return server
    return replace(server, view=MIXTURE, why=f"a table of {d} columns")


def _columns(server: ServerState, settings: Settings) -> int:
    """Columns of the table, a category as one."""
    return len(settings.levels) if settings.has_categories else server.n_features


def by_answers(server: ServerState, said: Sequence[Any], m: int, settings: Settings) -> tuple[str, str]:
    """The view, and why, from what m silos have found when they compared both."""
    d = _columns(server, settings)
    if not server.wide:
        seen = sum(answer.shapes for answer in said)
        if 2 * seen >= m:
            return GRAPH, f"rows of {seen} of {m} silos fall into parts that are no ellipses"
        return MIXTURE, f"{d} columns, and no shapes that a mixture cannot follow"
    gain, entropy = (sum(float(getattr(answer, name)) for answer in said) / m for name in ("gain", "entropy"))
    better = "as many neighbours share a cluster as in the graph view"
    if abs(gain) >= 0.005:
        more = "more" if gain > 0 else "fewer"
        better = f"{abs(100 * gain):.0f} % {more} neighbours share a cluster than in the graph view"
    if gain >= MIN_GAIN and entropy >= MIN_ENTROPY:
        return MIXTURE, f"{d} columns, but in the mixture {better}"
    if gain >= MIN_GAIN:
        return GRAPH, f"{d} columns, and the mixture has one giant cluster"
    return GRAPH, f"{d} columns, and in the mixture {better}"
