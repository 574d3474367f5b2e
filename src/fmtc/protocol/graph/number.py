"""Phase `number`: clusters take the common numbers, and each client keeps its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...errors import RefusedError
from ...kernels.alignment import numbers_of
from ...kernels.centers import row_norms, unit_centers
from ...kernels.embedding import spectral_start
from ...kernels.graph import Graph
from ...kernels.objective import dot
from ...linalg.arrays import asarray_like, double, to_device_of, to_numpy
from ...linalg.sparse import affine
from ...mixture import personal
from ...models import GraphModel
from ...privacy.rules import Shares
from ...refit import with_clusters
from ...settings import Settings
from ..base import Answers, Array, Content, Nothing, Phase, array
from ..home import COMPARE, DOUBT, chosen_and_calibrated, compares, doubts, graph_common
from ..mixture.em import among
from ..mixture.state import Concluded, Mixing, common_of
from ..state import become, input_rows, reached, stream
from .finish import Numbers, first_statistics, order_of, settle_pool, widened
from .state import Clustered, Clusters, Numbered


def _are_parts(shares: Any, sizes: Mapping[str, int]) -> str | None:
    right = ((shares >= 0) & (shares <= 1)).all() and shares.sum() <= 1 + 1e-2
    return None if right else "are not shares of a whole"


class Presence(Content):
    """How much of each concept one client has; the last answer of a run that hides nobody's answers."""

    shares: Array = array(
        "K", "share of each cluster in the silo's rows, 0 for fewer than `min_share_rows` (5) rows",
        "Exactly that, for the atlas; small clusters cannot be told from absent ones.", check=_are_parts,
    )  # fmt: skip


SHARES = Shares("Clusters of few rows look absent.")


def present(client: Numbered | Concluded, phase: Phase) -> Presence | Nothing:
    """The answer of a client that has its labels, if the phase has any; the outbox hides small clusters."""
    if not phase.releases:
        return Nothing()
    return Presence(shares=np.bincount(client.labels, minlength=client.model.k) / max(len(client.labels), 1))


Last = TypeVar("Last", bound=Mixing)


def with_presence(server: Last, answers: Mapping[str, Any]) -> Last:
    """The server, which knows how much of each concept clients have."""
    said = {cid: answer.shares for cid, answer in answers.items() if isinstance(answer, Presence)}
    return replace(server, presence=dict(sorted({**server.presence, **said}.items())))  # some may answer later


class Number(Phase):
    """The last message of a run that concerns rows."""

    name = "number"
    doing = "numbering its clusters"
    protect = SHARES
    concludes = True
    Answer: ClassVar[type] = Presence

    class Ask(Numbers):
        """Common numbers, and the mixture's last parameters."""

        means: Array | None = array(
            "1 K r", "common means of the clusters among projections", "As in `settle`.", when="after `settle`"
        )
        covariance: Array | None = array("1 r r", "common covariance", "As in `settle`.", when="after `settle`")
        shares: Array | None = array("1 K", "shares of the clusters", "Nothing: they are equal.", when="after `settle`")
        spread: Array | None = array("1 K", "1/kappa", "As in `settle`.", when="after `settle`")
        compare: bool | None = COMPARE()
        doubt: bool | None = DOUBT()

    def asks(self, server: Any, settings: Settings) -> dict[str, Any]:
        """The numbers of each client's clusters, and the parameters of the mixture if there is one."""
        last: dict[str, Any] = {"compare": compares(server), "doubt": doubts(server, settings)}
        if server.mixture is not None:
            names = ("means", "covariance", "shares", "spread")
            last |= {name: getattr(server.mixture, name) for name in names}
        return {cid: self.Ask(**numbers, **last) for cid, numbers in server.numbers.items()}

    def reply(self, client: Any, ask: Ask, settings: Settings, round_no: int) -> tuple[Any, Any]:
        """Take the common numbers; with a mixture, personal means in place of k-means centres."""
        client = reached(client, Clustered)
        own, k, order = client.own, client.k, order_of(client, ask)
        if ask.means is not None and not settings.mixes:
            raise RefusedError("parameters of a mixture came in a run that ends with k-means")
        if ask.partial:
            own = widened(own, ask)
            client = replace(client, F=client.F @ asarray_like(own.axes, client.F))
            model = replace(own.model, shares=(order >= 0) / k)
        else:
            model = replace(own.model, centers=own.model.centers[order])
        E = own.E
        labels = asarray_like(numbers_of(order), own.labels)[own.labels]
        if ask.means is not None:
            model = _mixed(model, own, ask, order, settings)
        if settings.labels_from == "projection":  # by the very code of predict: it breaks ties the same way
            labels = model.assign(input_rows(client))
        gap = E - to_device_of(model.centers, E)[labels]
        if ask.partial:
            gap = np.nan_to_num(gap)  # along concepts that the client lacks
        model = replace(model, spread=dot(gap, gap) / len(E))
        labels = to_numpy(labels)
        agreement, misses = None, False
        if settings.labels_from == "projection" and k > 1 and client.graph is not None:
            agreement, misses = _followed(client, client.graph, labels, settings)
        found = become(client, Numbered, model=model, labels=labels, agreement=agreement, misses=misses)
        common = None if ask.means is None else common_of(ask)
        found = chosen_and_calibrated(found, ask, graph_common(found, common, own.axes), settings)
        return found, present(found, self)

    def reduce(self, server: Any, answers: Answers, settings: Settings) -> Any:
        """Keep who has how much of what, for the atlas."""
        return with_presence(server, answers)


SAMPLE = 2000  # rows that are compared
RESTARTS = 10  # of k-means on them
NEARLY_APART = 0.1  # mean of Tr(FᵀLF)/k above which a graph is not looked at for clear parts
APART = 0.01  # the same of the graph's own eigenvectors: k parts that hardly touch
MISSED = 0.55  # adjusted Rand index below which labels do not follow such parts
OWN_CUT = 0.003  # of labels: with fewer links cut they follow parts, if other ones; there may be more than clusters
OWN_CUT_ROWS = 20_000  # above, any line crosses relatively fewer links
SMALLEST_PART = 0.15  # relative to parts of equal size: a few outliers are no part


def _followed(client: Clustered, graph: Graph, labels: Array, settings: Settings) -> tuple[float, bool]:
    """Agreement of the labels with those of F, and whether they miss parts that the graph clearly has.

    F is held to a linear function of the columns, so that it may miss what the columns cannot say and agree all the
    same: two rings, 0.9. Parts are therefore those of the graph alone, its first k eigenvectors. They are computed only
    where F shows that there may be some. Nothing of this leaves the client, and no label depends on it.
    """
    from sklearn.metrics import adjusted_rand_score

    F = client.F
    rng, n, k = stream(settings.seed, client.client_id, "agreement"), len(labels), client.k
    if F.shape[1] > k:  # the numbers of its own concepts only
        labels = np.unique(labels, return_inverse=True)[1]
    some = np.arange(n) if n <= SAMPLE else np.sort(rng.choice(n, SAMPLE, replace=False))
    seed = int(rng.integers(2**31))
    agreement = float(adjusted_rand_score(labels[some], _sphere_labels(F[some], k, seed)))
    if _cut(graph, F) > NEARLY_APART:
        return agreement, False
    if _cut(graph, _indicator(graph, labels, k)) < OWN_CUT * min(1.0, OWN_CUT_ROWS / n):
        return agreement, False
    U = spectral_start(graph, k, stream(settings.seed, client.client_id, "start"))
    if _cut(graph, U) > APART:
        return agreement, False
    parts = _sphere_labels(U[some], k, seed)
    is_even = np.bincount(parts, minlength=k).min() >= SMALLEST_PART * len(some) / k
    return agreement, bool(is_even and adjusted_rand_score(labels[some], parts) < MISSED)


def _cut(graph: Graph, F: Array) -> float:
    """Tr(FᵀLF)/k: 0 for k parts that do not touch, if F is made of them."""
    V = graph.to_graph_order(double(F))
    return dot(V, affine(graph.laplacian, V)) / F.shape[1]


def _indicator(graph: Graph, labels: Array, k: int) -> Array:
    """Clusters as an orthonormal embedding, in which `_cut` is the normalised cut over k; (n,) -> (n, k)."""
    degree = to_numpy(graph.to_client_order(double(graph.degree[:, None])))[:, 0]
    H = np.zeros((len(labels), k))
    H[np.arange(len(labels)), labels] = np.sqrt(degree / np.bincount(labels, degree, k)[labels])
    return asarray_like(H, graph.degree)


def _sphere_labels(F: Array, k: int, seed: int) -> Array:
    """Clusters of the rows of F, all scaled to length 1; (n, k) -> (n,)."""
    E = F / row_norms(F)
    return to_numpy((E @ unit_centers(E, k, RESTARTS, seed).T).argmax(axis=1))


def _mixed(model: GraphModel, own: Clusters, ask: Any, order: Array, settings: Settings) -> GraphModel:
    """The model with the client's own parameters of the mixture."""
    statistics = first_statistics(own, order) if own.statistics is None else own.statistics
    common, has = common_of(ask), order >= 0
    never = np.flatnonzero(~has)
    mine = personal(among(common, has), statistics, (), settle_pool(settings, len(own.E)).concentration, never)
    return with_clusters(model, mine, common.covariance, has)


class HomeNumber(Number):
    """The same where the server may not learn what one client has: nothing leaves."""

    Answer = Nothing


NUMBER, HOME_NUMBER = Number(), HomeNumber()
