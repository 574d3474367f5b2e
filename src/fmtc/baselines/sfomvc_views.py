"""SFOMVC as published: each client has a view, other features of the same samples."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..client import stream
from ..linalg.threads import one_thread
from ..privacy.rules import Protection
from ..protocol.base import RESTARTS, Nothing, Phase, array, required
from .anchors import Anchors
from .base import Array, check_whole, count, in_order, run_locally, same_samples
from .fed_kmeans import SERVER
from .sfomvc import (
    Assignment,
    FederatedProjection,
    FirstAnswer,
    ProjectionClient,
    ProjectionServer,
    ProjectionSettings,
    Ties,
    first_stack,
    own_labels,
    residuals,
)


@dataclass(frozen=True)
class ViewsSettings(ProjectionSettings):
    """What decides a run of `SFOMVCViews` besides the data: its parameters, and how many samples all clients have."""

    n_samples: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(n_samples=self.n_samples)

    @property
    def anchor_samples(self) -> Array:
        """Numbers of the samples that are anchors in every view, drawn at random; (a,)."""
        a = min(self.n_samples, self.most_anchors)
        return np.sort(stream(self.seed, SERVER, "anchors").choice(self.n_samples, a, replace=False))


class Start(Phase):
    """Anchors to all clients; each ties its samples to them and finds its first clusters."""

    name = "start"
    protect = Protection("A projection learnt from all rows.")
    doing = "finding its first clusters"
    rebuilds = True
    Answer = FirstAnswer

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """The anchors."""

        samples: Array = array(
            "a", "numbers of the samples that are anchors in every view", "Nothing: they are drawn at random.",
            kind="int",
            check=lambda v, sizes: None if 0 <= v.min() <= v.max() < sizes["n"] else "names samples that are not there",
        )  # fmt: skip

    def limit(self, settings: ViewsSettings) -> int:
        """A run that starts again asks again."""
        return RESTARTS

    def asks(self, server: ProjectionServer, settings: ViewsSettings) -> dict[str, Any]:
        """The same samples for everyone."""
        return dict.fromkeys(server.client_ids, self.Ask(samples=settings.anchor_samples))

    def reply(
        self, client: ProjectionClient, ask: Ask, settings: ViewsSettings, round_no: int
    ) -> tuple[ProjectionClient, FirstAnswer]:
        """Ties to the anchors; clusters by k-means of its own."""
        anchors = Anchors(client.X[ask.samples], settings.n_nearest, 1.0)
        near = anchors.nearest(client.X)
        anchors = replace(anchors, width=settings.bandwidth_scale * float(near[0].mean()) or 1.0)
        ties = Ties.of(anchors.weights(client.X, near))
        part = Assignment.of(ties, own_labels(client, settings), settings.n_clusters, settings.gamma)
        tied = replace(client, anchors=anchors, ties=ties)
        return tied if client.P is not None else tied.moved_to(part), FirstAnswer(P=part.P)

    def reduce(
        self, server: ProjectionServer, answers: MutableMapping[str, FirstAnswer], settings: ViewsSettings
    ) -> ProjectionServer:
        """The first stack, its clusters numbered alike by the anchors they lie at, and the consensus."""
        return first_stack(server, answers, settings, np.transpose)


class Finish(Phase):
    """How much each sample belongs to each cluster, by each view."""

    name = "finish"
    protect = Protection("A method to compare with: the assignment of every row leaves.")
    doing = "scoring its samples"
    resumes = True

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Scores of one view."""

        assignment: Array = array(
            "n k", "BP, how much each sample belongs to each cluster", "The client's clustering of every sample."
        )

    def reply(
        self, client: ProjectionClient, ask: Nothing, settings: ViewsSettings, round_no: int
    ) -> tuple[ProjectionClient, Answer]:
        """Scores of all samples, and the map for new ones."""
        ties, P = required(client, "ties", "P")
        scores = ties.B @ P
        fitted = replace(client, labels=scores.argmax(axis=1), model=client.fitted())
        return fitted, self.Answer(assignment=scores)

    def reduce(
        self, server: ProjectionServer, answers: MutableMapping[str, Answer], settings: ViewsSettings
    ) -> ProjectionServer:
        """The sum over views."""
        return replace(server, scores=sum(answer.assignment for answer in in_order(server, answers)))


class FederatedViews(FederatedProjection):
    """SFOMVC as published: the phases of a run.

    start   anchors, which are samples; first clusters of each view; the server gives them common numbers
    round   P and F at the clients, the consensus at the server      until both residuals are small
    finish  how much each sample belongs to each cluster
    """

    name = "sfomvc-views"
    opening = (Start(),)
    closing = (Finish(),)
    settings_type = ViewsSettings

    def sizes(self, client: ProjectionClient, settings: ViewsSettings) -> dict[str, int]:
        """Features of the view (d), samples (n) and clusters (k)."""
        return super().sizes(client, settings) | {"n": client.X.shape[0]}


METHOD = FederatedViews()


class SFOMVCViews(ClusterMixin, BaseEstimator):
    """SFOMVC (Feng et al. 2025) in its own setting: each client has a view, other features of the same samples.

    The objective of `SFOMVC`, with anchors that are the same samples in every view, drawn at random by the server.
    Views are clustered by k-means first and their clusters matched by the anchors. At the end each client sends
    ``B_t P_t``, how much each sample belongs to each cluster (**n x k numbers leave the client**); labels are the
    largest sums over clients. New samples are labelled in the same way, from all their views.

    Provenance: a re-implementation in spirit, from the abstract only; neither full text nor code was available.
    Updates, constants, anchors, start and the final sum are ours.

    Parameters
    ----------
    n_clusters : int
    beta, gamma, schatten_p, row_power, n_nearest, units, rho, mu, growth, max_iter, tol, n_init, random_state
        As in `SFOMVC`.
    n_anchors : int or "auto"
        Number of samples that are anchors, at most all; ``"auto"`` is 10 for each cluster.
    bandwidth_scale : float
        Width of the weights as a multiple of the mean distance to the nearest anchors, in each view.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    anchor_samples_ : ndarray of int of shape (n_anchors,)
    client_ids_ : list of str
    n_iter_, history_, bytes_up_, bytes_down_, n_rounds_
        As in `SFOMVC`.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.baselines import SFOMVCViews
    >>> rng = np.random.default_rng(0)
    >>> group = np.arange(60) % 3
    >>> sizes = {"camera": 4, "microphone": 6}
    >>> views = {name: 5 * rng.normal(size=(3, d))[group] + rng.normal(size=(60, d)) for name, d in sizes.items()}
    >>> model = SFOMVCViews(3, random_state=0).fit(views)
    >>> len(set(zip(group, model.labels_)))
    3
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        beta: float = 0.1,
        gamma: float = 0.01,
        schatten_p: float = 1.0,
        row_power: float = 1.0,
        n_anchors: int | str = "auto",
        n_nearest: int = 5,
        bandwidth_scale: float = 1.0,
        units: str = "absolute",
        rho: float = 1.0,
        mu: float = 1.0,
        growth: float = 1.1,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.beta = beta
        self.gamma = gamma
        self.schatten_p = schatten_p
        self.row_power = row_power
        self.n_anchors = n_anchors
        self.n_nearest = n_nearest
        self.bandwidth_scale = bandwidth_scale
        self.units = units
        self.rho = rho
        self.mu = mu
        self.growth = growth
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, views: Mapping[Any, Any], y: Any = None) -> Self:
        """Cluster the samples.

        Parameters
        ----------
        views : mapping of client to array or sparse array of shape (n_samples, n_features of the view)
        y : ignored

        Returns
        -------
        self
        """
        data = same_samples(views, "views")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        n, k = next(iter(data.values())).shape[0], self.n_clusters
        settings = ViewsSettings.of(self, seed, n_samples=n)
        if n < k:
            raise ValueError(f"n_clusters={k} needs as many samples, got {n}")
        with one_thread("blas"), one_thread("openmp"):
            result, transport = run_locally(METHOD, settings, data)
        self.labels_ = result.server.scores.argmax(axis=1)
        self.anchor_samples_, self.client_ids_ = settings.anchor_samples, list(data)
        self.history_ = residuals(result.history)
        self.n_iter_ = len(self.history_)
        self._models, _ = transport.outcome()
        count(self, transport)
        return self

    def predict(self, views: Mapping[Any, Any]) -> Array:
        """Cluster of new samples from all their views.

        Parameters
        ----------
        views : mapping of client to array or sparse array of shape (n_samples, n_features of the view)

        Returns
        -------
        ndarray of int of shape (n_samples,)
        """
        check_is_fitted(self)
        data = same_samples(views, "views")
        if list(data) != self.client_ids_:
            raise ValueError(f"this model needs the views {self.client_ids_}, got {list(data)}")
        for cid, X in data.items():
            d = self._models[cid].anchors.points.shape[1]
            if X.shape[1] != d:
                raise ValueError(f"view {cid!r} has {X.shape[1]} features, it had {d} when the model was fitted")
        return sum(self._models[cid].score(X) for cid, X in data.items()).argmax(axis=1)
