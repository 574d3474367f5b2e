"""A newcomer with a published kit: it fits at home, sends nothing, and may decline what the federation offers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..linalg.arrays import to_numpy
from ..metrics import clustering_accuracy, clustering_scores
from ..models.shared import Published
from ..protocol.state import input_rows
from ..refit import GraphCommon, MixtureCommon, Refitted, Silo, numbered, refit
from ..settings import Settings

Array = np.ndarray

# Adjusted Rand index of own and published labels from which the guide is kept. A mixture follows the common clusters
# only as far as silos are alike (kappa), so that it can be trusted earlier; docs/how-to/join-later.md.
AGREED = {"graph": 0.5, "mixture": 0.2}
GUIDES = ("auto", True, False)


@dataclass(frozen=True)
class Joined:
    """How a newcomer came to its model.

    Parameters
    ----------
    agreement : float
        Adjusted Rand index of the newcomer's own clusters and of those that the published model gives its rows.
    guided : bool
        Whether it follows the federation; otherwise it keeps its own clusters, under the federation's numbers.
    reason : str
        Why, in a sentence.
    moved : float
        Share of the rows whose cluster is another one than without the federation, numbers apart; 0 if not guided.
    likeness : tuple of float
        Of each cluster, how like the published cluster of that number it is: rows in common, of all rows in either.
        Low where a silo has something else.
    """

    agreement: float
    guided: bool
    reason: str
    moved: float
    likeness: tuple[float, ...]


def newcomer(
    name: str, X: Any, kit: Published, settings: Settings, guide: bool | str = "auto"
) -> tuple[Joined, Refitted]:
    """Fit alone, compare with the published model, and follow it if both see the same clusters (or if told to).

    Parameters
    ----------
    name : str
    X : array of shape (n, d)
        The newcomer's rows, checked.
    kit : Published
    settings : Settings
        Of the run that was published.
    guide : {"auto", True, False}
    """
    silo, common = Silo(name, kit.n_clusters, replace(settings, view=kit.view)), common_of(kit)
    alone = refit(silo, None, X)  # in units of its own: the federation's may not suit it
    offered = as_published(name, X, kit, settings)
    agreement = float(clustering_scores(alone.labels, offered)["ari"])
    guided = agreement >= AGREED[kit.view] if guide == "auto" else bool(guide)
    found = refit(silo, common, X) if guided else numbered(alone, offered, silo.k)
    moved = 1 - clustering_accuracy(alone.labels, found.labels) if guided else 0.0
    reason = _reason(agreement, guided, guide)
    return Joined(agreement, guided, reason, moved, _likeness(found.labels, offered, silo.k)), found


def common_of(kit: Published) -> GraphCommon | MixtureCommon:
    """What a newcomer knows of the others."""
    if kit.consensus is not None:
        return GraphCommon(kit, kit.consensus, kit.ridge, kit.scale, kit.is_unit, kit.mixture, kit.centers)
    assert kit.mixture is not None
    return MixtureCommon(kit, kit.mixture)


def as_published(name: str, X: Any, kit: Published, settings: Settings) -> Array:
    """Labels of a newcomer's rows by the published model, without a fit; (n,)."""
    silo, common = Silo(name, kit.n_clusters, settings), common_of(kit)
    client = common.opened(silo, X)
    return to_numpy(common.unfitted(client, silo.at_home(kit.view)).assign(input_rows(client)))


def _reason(agreement: float, guided: bool, guide: bool | str) -> str:
    said = f"your own clusters and the federation's agree to {agreement:.2f}"
    if guide != "auto":
        return f"{said}; {'joined' if guided else 'kept your own'}, as you asked"
    if guided:
        return f"{said}: joined"
    return f"{said}: kept your own; the federation's clusters are others than yours"


def _likeness(labels: Array, offered: Array, k: int) -> tuple[float, ...]:
    """Of each cluster, the rows it has in common with the published cluster of its number, of all in either."""
    either = [np.count_nonzero((labels == j) | (offered == j)) for j in range(k)]
    both = [np.count_nonzero((labels == j) & (offered == j)) for j in range(k)]
    return tuple(float(b / e) if e else 0.0 for b, e in zip(both, either, strict=True))


__all__ = ["AGREED", "Joined", "newcomer"]
