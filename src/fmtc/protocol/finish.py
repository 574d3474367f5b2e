"""Phase `finish`: k-means in the common frame at each client; the server decides which clusters are the same."""

from __future__ import annotations

import warnings
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..client import ClientState, Clusters, input_rows, rotated, stream
from ..inference import ClientModel, assign, project
from ..kernels.alignment import match_clusters
from ..kernels.centers import row_norms, shared_start, unit_centers
from ..linalg.arrays import asarray_like, namespace, to_numpy
from ..server import ServerState
from ..settings import Settings
from .base import Array, Phase, array, required
from .round import is_rotation


class Finish(Phase):
    """Labels and centres of each client, in the order of its own cluster sizes."""

    name = "finish"
    doing = "finding its clusters"
    resumes = True

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """The last rotation."""

        rotation: Array | None = array(
            "k k", "turns F and W to the common frame", "How the client's columns lie to those of the others.",
            when="with `align`", check=is_rotation,
        )  # fmt: skip

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Centres of one client."""

        centers: Array = array(
            "k k", "cluster centres among normalised projections, largest cluster first",
            "The directions of the clusters, and more where a cluster is small; see [Centres](#centres).",
        )  # fmt: skip

    def asks(self, server: ServerState, settings: Settings) -> dict[str, Any]:
        """The rotation of each client, if it has not had it."""
        return {cid: self.Ask(rotation=server.rotations.get(cid)) for cid in server.client_ids}

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[ClientState, Answer]:
        """k-means on the normalised rows of X W (of F for a run as published): labels and centres are born here."""
        client = rotated(client, ask.rotation)
        F, W = required(client, "F", "W")
        X, k = input_rows(client), client.k
        from_embedding = settings.solver.labels_from == "embedding"
        W = signature = to_numpy(W)  # of clusters, in the units that all clients share
        mean = None if client.rows.mean is None else to_numpy(client.rows.mean)
        stretch = keep = None
        if client.scaling is not None:
            W, mean = client.scaling.fold(W, mean)
            stretch, keep = client.scaling.stretch, client.scaling.keep
        E = F / row_norms(F) if from_embedding else project(X, W, mean, keep)
        seed = int(stream(settings.seed, client.client_id, "kmeans").integers(2**31))
        found = unit_centers(E, k, settings.solver.n_init, seed)
        centers = to_numpy(found)
        model = ClientModel(W, centers, 0.0, mean, stretch, keep)
        labels = (E @ found.T).argmax(axis=1) if from_embedding else assign(X, model)
        sizes = to_numpy(namespace(labels).bincount(labels, minlength=k))
        if (sizes == 0).any():
            from sklearn.exceptions import ConvergenceWarning

            warnings.warn(
                f"client {client.client_id!r} fills only {np.count_nonzero(sizes)} of {k} clusters: its rows have too "
                "few distinct projections. Ask for fewer clusters, or look for duplicate rows.",
                ConvergenceWarning,
                stacklevel=2,
            )
        # largest first; equal sizes by the norm of W c, which no order of rows and no rotation changes
        order = np.lexsort((-np.linalg.norm(centers @ signature.T, axis=1), -sizes))
        centers = centers[order]
        labels = asarray_like(np.argsort(order), labels)[labels]
        own = Clusters(E, replace(model, centers=centers), labels)
        return replace(client, own=own), self.Answer(centers=centers)

    def reduce(self, server: ServerState, answers: MutableMapping[str, Answer], settings: Settings) -> ServerState:
        """Which cluster of each client takes each number; shared centres to begin with, where there are to be some."""
        orders = common_numbers(server, {cid: answers[cid].centers for cid in answers}, settings)
        centers = None
        if settings.solver.shares_centers and len(orders) > 1:
            centers = shared_start([answers[cid].centers[order] for cid, order in orders.items()])
        return replace(server, orders=orders, centers=centers)


def common_numbers(server: ServerState, centers: dict[str, Array], settings: Settings) -> dict[str, Array]:
    """Which cluster of each client takes each number, so that the same concept has the same number everywhere.

    Clusters are compared by W_t c, their centre seen from the features, which no rotation changes. Without
    alignment every client keeps its own order, largest cluster first.
    """
    ids = [cid for cid in server.client_ids if cid in centers]
    if not settings.solver.align:
        return {cid: np.arange(len(centers[cid])) for cid in ids}
    place = {cid: t for t, cid in enumerate(server.client_ids)}
    W = _in_few_features(server.W)
    orders = match_clusters([centers[cid] @ W[:, :, place[cid]].T for cid in ids])
    return dict(zip(ids, orders, strict=True))


def _in_few_features(W: Array) -> Array:
    """A stack with the same products between columns, of all clients, and no more features than there are columns."""
    d, k, m = W.shape
    if d <= k * m:
        return W
    columns = W.reshape(d, k * m)
    lam, V = np.linalg.eigh(columns.T @ columns)
    return (np.sqrt(np.maximum(lam, 0))[:, None] * V.T).reshape(k * m, k, m)


FINISH = Finish()
