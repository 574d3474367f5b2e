"""A newcomer with a published kit: it fits at home, sends nothing, and may decline what the federation offers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..client import ClientState, input_rows
from ..linalg.arrays import to_numpy
from ..metrics import clustering_scores
from ..models import Frame, GraphModel, MixtureModel
from ..models.shared import Published
from ..protocol.alone import fitted_alone
from ..protocol.finish import FINISH, projected
from ..settings import Settings
from . import home

Array = np.ndarray

# Adjusted Rand index of own and published labels from which the guide is kept. A mixture follows the common concepts
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
        Of each cluster, how like the published concept of that number it is: rows in common, of all rows in either.
        Low where a silo has something else.
    """

    agreement: float
    guided: bool
    reason: str
    moved: float
    likeness: tuple[float, ...]


def newcomer(
    name: str, X: Any, kit: Published, settings: Settings, guide: bool | str = "auto"
) -> tuple[Joined, home.Fitted]:
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
    settings = home.at_home(settings, kit.view)
    client = home.opened(name, X, settings, kit)
    alone = fitted_alone(client, settings, kit.view)  # in units of its own: the federation's may not suit it
    assert alone.model is not None and alone.labels is not None
    as_it_is: GraphModel | MixtureModel
    if kit.view == "graph":
        client = home.prepared(client, settings, kit.scale, kit.ridge)
        kit = _sized(kit, alone)
        as_it_is = published_graph(client, kit, settings)
    else:
        as_it_is = published_mixture(client, kit, settings)
    offered = to_numpy(as_it_is.assign(input_rows(client)))
    agreement = float(clustering_scores(alone.labels, offered)["ari"])
    guided = agreement >= AGREED[kit.view] if guide == "auto" else bool(guide)
    if not guided:
        found = numbered(home.Fitted(alone.model, alone.labels, alone), offered)
        moved = 0.0
    else:
        if kit.view == "graph":
            found = guided_graph(client, kit, settings, offered)
        else:
            assert kit.mixture is not None
            found = home.mixture_settled(client, kit.mixture, settings)
        order, common = matched(found.labels, alone.labels, settings.n_clusters)
        moved = 1 - float(common[np.arange(len(order)), order].sum()) / len(found.labels)
    reason = _reason(agreement, guided, guide)
    return Joined(agreement, guided, reason, moved, _likeness(found.labels, offered, settings.n_clusters)), found


def _reason(agreement: float, guided: bool, guide: bool | str) -> str:
    said = f"your own clusters and the federation's agree to {agreement:.2f}"
    if guide != "auto":
        return f"{said}; {'joined' if guided else 'kept your own'}, as you asked"
    if guided:
        return f"{said}: joined"
    return f"{said}: kept your own; the federation's clusters are others than yours"


# ------------------------------------------------------------------------------------------- the model as published


def as_published(name: str, X: Any, kit: Published, settings: Settings) -> Array:
    """Labels of a newcomer's rows by the published model, without a fit; (n,)."""
    settings = home.at_home(settings, kit.view)
    client = home.opened(name, X, settings, kit)
    if kit.view == "mixture":
        return published_mixture(client, kit, settings).assign(client.X)
    client = home.prepared(client, settings, kit.scale, kit.ridge)
    return to_numpy(published_graph(client, kit, settings).assign(input_rows(client)))


def published_graph(client: ClientState, kit: Published, settings: Settings) -> GraphModel:
    """The mean consensus as a client's projection, with the common centres: a model without a fit."""
    assert kit.consensus is not None and client.F is not None
    _, model = projected(replace(client, W=kit.consensus.astype(client.F.dtype)), settings)
    if kit.mixture is None:
        assert kit.centers is not None
        return replace(model, centers=kit.centers)
    precision = np.linalg.inv(kit.mixture.covariance)
    return replace(model, centers=kit.mixture.means, precision=(precision + precision.T) / 2, shares=kit.mixture.shares)


def published_mixture(client: ClientState, kit: Published, settings: Settings) -> MixtureModel:
    """The common concepts as a client's own: a model without a fit."""
    assert kit.mixture is not None
    frame = Frame.of(client.X.shape[1], client.scaling, settings.levels, client.axes, client.origin)
    common = kit.mixture
    return MixtureModel(frame, common.means, common.covariance, common.shares, common.profiles)


def _sized(kit: Published, client: ClientState) -> Published:
    """The kit with a consensus as large as the newcomer's projection, where only its direction is known."""
    if not kit.is_unit or kit.consensus is None or client.W is None:
        return kit
    size = float(np.linalg.norm(to_numpy(client.W))) / max(float(np.linalg.norm(kit.consensus)), 1e-300)
    return replace(kit, consensus=kit.consensus * size, is_unit=False)


def guided_graph(client: ClientState, kit: Published, settings: Settings, offered: Array) -> home.Fitted:
    """Rounds towards the mean consensus, then clusters with the common concepts as a prior.

    Without common concepts, in a run that ended with k-means, clusters take the numbers of those that are `offered`.
    """
    assert kit.consensus is not None
    client = home.drawn(client, kit.consensus, settings)
    if kit.mixture is not None:
        return home.graph_settled(client, kit.mixture, settings)
    client, _ = FINISH.reply(replace(client, on_trial=True), FINISH.Ask(rotation=None), settings, 0)
    assert client.own is not None
    return numbered(home.with_labels(client, client.own.model, client.own.E), offered)


# --------------------------------------------------------------------------------------------------------- numbers


def matched(labels: Array, others: Array, k: int) -> tuple[Array, Array]:
    """Which of the other clusters each cluster shares most rows with, one to one, and the rows in common; (k, k)."""
    common = np.zeros((k, k))
    np.add.at(common, (labels, others), 1)
    return linear_sum_assignment(-common)[1], common


def numbered(fitted: home.Fitted, offered: Array) -> home.Fitted:
    """A client's own clusters under the numbers of the concepts that they share most rows with."""
    order, _ = matched(offered, fitted.labels, fitted.model.k)
    model = fitted.model.renumbered(order)
    labels = np.argsort(order)[fitted.labels]
    return home.Fitted(model, labels, replace(fitted.client, model=model, labels=labels), fitted.sums)


def _likeness(labels: Array, offered: Array, k: int) -> tuple[float, ...]:
    """Of each cluster, the rows it has in common with the published concept of its number, of all in either."""
    either = [np.count_nonzero((labels == j) | (offered == j)) for j in range(k)]
    both = [np.count_nonzero((labels == j) & (offered == j)) for j in range(k)]
    return tuple(float(b / e) if e else 0.0 for b, e in zip(both, either, strict=True))


__all__ = ["AGREED", "Joined", "newcomer"]
