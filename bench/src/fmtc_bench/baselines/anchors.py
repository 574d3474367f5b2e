"""Anchors: points that clients agree on and tie their rows to, so that graphs over different rows can be joined."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from fmtc.privacy.protection import Protection
from fmtc.protocol.base import RESTARTS, Content, Nothing, Phase, above, array, number
from fmtc.protocol.state import shared_width

from .base import Array, MethodSettings, check_count_or_auto, check_positive, check_whole, in_order, required, seed_of
from .fed_kmeans import MIN_COUNT, SERVER, first_centers, merge_centers, pooled, shareable

ANCHOR_ITERATIONS = 50  # Lloyd steps for the centres that anchors are made of


@dataclass(frozen=True)
class AnchorSettings(MethodSettings):
    """Settings of a method that uses anchors."""

    anchors_per_cluster: ClassVar[int] = 10  # with "auto"

    n_anchors: int | str = "auto"
    n_nearest: int = 5
    bandwidth_scale: float = 1.0
    n_init: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count_or_auto(n_anchors=self.n_anchors)
        check_whole(n_nearest=self.n_nearest, n_init=self.n_init)
        check_positive(bandwidth_scale=self.bandwidth_scale)

    @property
    def most_anchors(self) -> int:
        """How many anchors there are at most."""
        return self.anchors_per_cluster * self.n_clusters if self.n_anchors == "auto" else int(self.n_anchors)


@dataclass(frozen=True)
class Anchors:
    """Anchors and how rows are tied to them."""

    points: Any  # a x d
    n_nearest: int
    width: float

    def nearest(self, X: Any) -> tuple[Array, Array]:
        """Distances to the nearest anchors and their numbers; (n, r) each."""
        r = min(self.n_nearest, self.points.shape[0])
        return NearestNeighbors(n_neighbors=r, algorithm="brute").fit(self.points).kneighbors(X)

    def weights(self, X: Any, near: tuple[Array, Array] | None = None) -> sp.csr_array:
        """Gaussian weights of the nearest anchors, rows sum to 1; (n, d) -> (n, a)."""
        distance, neighbor = self.nearest(X) if near is None else near
        n, r = distance.shape
        far = np.square(distance / self.width)
        weight = np.exp(-0.5 * (far - far[:, :1]))  # relative to the nearest: a far row keeps its weights
        weight /= weight.sum(axis=1, keepdims=True)
        shape = (n, self.points.shape[0])
        return sp.csr_array((weight.ravel(), neighbor.ravel(), np.arange(0, n * r + 1, r)), shape=shape)


@dataclass(frozen=True)
class AnchorClient:
    """One client that ties its rows to anchors."""

    client_id: str
    X: Any  # n x d
    round_no: int = 0
    anchors: Anchors | None = None
    near: tuple[Array, Array] | None = None  # distances and numbers of the nearest anchors, n x r
    B: sp.csr_array | None = None  # n x a, rows sum to 1
    model: Any = None
    labels: Array | None = None  # n


@dataclass(frozen=True)
class AnchorServer:
    """The server of a method that uses anchors."""

    client_ids: tuple[str, ...]
    round_no: int = 0
    centers: Array | None = None  # all that clients sent, which anchors are made of
    counts: Array | None = None
    anchors: Array | None = None  # a x d
    width: float = 0.0  # of the Gaussian weights, the same for all


class AnchorCenters(Phase):
    """Each client's centres; the server makes the anchors of them."""

    name = "centers"
    protect = Protection("Means of at least `min_count` rows each.")
    doing = "finding centres for the anchors"

    class Ask(Content):
        """How many."""

        n_centers: int = number(
            "number of centres wanted, at most", "The number of clients and anchors.", kind="count", check=above(0)
        )

    class Answer(Content):
        """Centres of one client."""

        centers: Array = array(
            "g d", "means of at least two of the client's rows each, by k-means",
            "Where the rows lie, in some detail: there is a centre for every few rows, and the mean of two rows tells "
            "their sum.",
        )  # fmt: skip
        counts: Array = array(
            "g", "number of rows that each centre is the mean of", "How densely the rows lie around each centre.",
            kind="int", check=above(MIN_COUNT - 1),
        )  # fmt: skip

    def asks(self, server: AnchorServer, settings: AnchorSettings) -> dict[str, Any]:
        """From each client twice its share of the anchors, and two for each cluster."""
        each = max(2 * settings.n_clusters, ceil(2 * settings.most_anchors / len(server.client_ids)))
        return dict.fromkeys(server.client_ids, self.Ask(n_centers=each))

    def reply(self, client: AnchorClient, ask: Ask, settings: AnchorSettings, round_no: int) -> tuple[Any, Answer]:
        """Centres by k-means, at most half as many as there are rows."""
        X = client.X
        wanted = max(1, min(ask.n_centers, X.shape[0] // 2))
        C = first_centers(X, wanted, seed_of(settings.seed, client.client_id, "anchors"))
        return client, self.Answer(**shareable(X, C, ANCHOR_ITERATIONS, MIN_COUNT))

    def reduce(self, server: AnchorServer, answers: MutableMapping[str, Answer], settings: AnchorSettings) -> Any:
        """Anchors: the different centres, or where these are too many, centres of those."""
        shared_width({cid: answer.centers.shape[1] for cid, answer in answers.items()})
        centers, counts = pooled(in_order(server, answers))
        anchors, place = np.unique(centers, axis=0, return_inverse=True)
        weight = np.bincount(place.ravel(), weights=counts)
        if len(anchors) > settings.most_anchors:
            seed = seed_of(settings.seed, SERVER, "anchors")
            anchors, _ = merge_centers(anchors, weight, settings.most_anchors, seed, 1)
        return replace(server, centers=centers, counts=counts, anchors=anchors)


class AnchorDistances(Phase):
    """Anchors to all clients; each says how far its rows are from them."""

    name = "distances"
    protect = Protection("A sum over all rows.")
    doing = "measuring distances to the anchors"
    rebuilds = True

    class Ask(Content):
        """The anchors."""

        anchors: Array = array("a d", "anchors", "Where the rows of all clients together lie, in some detail.")

    class Answer(Content):
        """Distances of one client."""

        distance: float = number(
            "sum over rows of the distances to the nearest anchors", "How well the anchors suit the client's rows.",
            check=above(-1e-300),
        )  # fmt: skip
        n_distances: int = number(
            "number of distances in the sum", "The number of rows, exactly.", kind="count", check=above(0)
        )

    def limit(self, settings: Any) -> int:
        """A run that starts again asks again."""
        return RESTARTS

    def asks(self, server: AnchorServer, settings: AnchorSettings) -> dict[str, Any]:
        """The same anchors for everyone."""
        (anchors,) = required(server, "anchors")
        return dict.fromkeys(server.client_ids, self.Ask(anchors=anchors))

    def reply(self, client: AnchorClient, ask: Ask, settings: AnchorSettings, round_no: int) -> tuple[Any, Answer]:
        """Nearest anchors of each row."""
        anchors = Anchors(ask.anchors, settings.n_nearest, 1.0)
        near = anchors.nearest(client.X)
        answer = self.Answer(distance=float(near[0].sum(dtype=np.float64)), n_distances=near[0].size)
        return replace(client, anchors=anchors, near=near), answer

    def reduce(self, server: AnchorServer, answers: MutableMapping[str, Answer], settings: AnchorSettings) -> Any:
        """The width of the weights, from the mean distance over all clients."""
        found = in_order(server, answers)
        mean = sum(answer.distance for answer in found) / sum(answer.n_distances for answer in found)
        return replace(server, width=settings.bandwidth_scale * mean or 1.0)


class AnchorWeights(Phase):
    """The width to all clients, which tie their rows to the anchors."""

    name = "weights"
    doing = "tying its rows to the anchors"
    rebuilds = True

    class Ask(Content):
        """The width."""

        width: float = number(
            "width of the Gaussian weights", "The mean distance of all clients' rows to their anchors.", check=above(0)
        )

    def asks(self, server: AnchorServer, settings: AnchorSettings) -> dict[str, Any]:
        """The same width for everyone."""
        return dict.fromkeys(server.client_ids, self.Ask(width=server.width))

    def reply(self, client: AnchorClient, ask: Ask, settings: AnchorSettings, round_no: int) -> tuple[Any, Nothing]:
        """Weights of the nearest anchors."""
        anchors, near = required(client, "anchors", "near")
        anchors = replace(anchors, width=ask.width)
        return replace(client, anchors=anchors, B=anchors.weights(client.X, near), near=None), Nothing()


AGREE_ON_ANCHORS = (AnchorCenters(), AnchorDistances(), AnchorWeights())
