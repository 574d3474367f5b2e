"""Phase `finish`: k-means in the common frame at each client; the server decides which clusters are the same."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...client import hole_filling, input_rows, stream
from ...kernels.alignment import match_clusters, match_concepts, widening
from ...kernels.centers import row_norms, unit_centers
from ...linalg.arrays import asarray_like, namespace, to_numpy
from ...mixture.starts import FIRST_SPREAD
from ...models import GraphModel, project
from ...privacy.protection import ALWAYS
from ...privacy.rules import Centres
from ...server import heard
from ...settings import Settings
from ...state import become
from ..base import Array, Phase, array
from ..mixture.state import Mixture
from .consensus import with_influence
from .round import is_rotation
from .state import Clustered, Clusters, Finished, GraphServer, Placed, placed, rotated


class Finish(Phase):
    """Labels and centres of each client, in the order of its own cluster sizes."""

    name = "finish"
    doing = "finding its clusters"
    protect = Centres("No centre is one row; the policy says what becomes of small clusters.", dominance=ALWAYS)
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

    def asks(self, server: GraphServer, settings: Settings) -> dict[str, Any]:
        """The rotation of each client, if it has not had it."""
        return {cid: self.Ask(rotation=server.rotations.get(cid)) for cid in server.client_ids}

    def reply(self, client: Any, ask: Ask, settings: Settings, round_no: int) -> tuple[Clustered, Answer]:
        """k-means on the normalised rows of X W (of F for a run as published): labels and centres are born here."""
        client = rotated(placed(client, settings), ask.rotation)
        k = client.k
        from_embedding = settings.solver.labels_from == "embedding"
        E, model = projected(client, settings)
        signature = to_numpy(client.W)  # of clusters, in the units that all clients share
        seed = int(stream(settings.seed, client.client_id, "kmeans").integers(2**31))
        found = unit_centers(E, k, settings.solver.n_init, seed)
        centers = to_numpy(found)
        model = replace(model, centers=centers)
        labels = (E @ found.T).argmax(axis=1) if from_embedding else model.assign(input_rows(client))
        sizes = to_numpy(namespace(labels).bincount(labels, minlength=k))
        if (sizes == 0).any() and not client.on_trial:
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
        return become(client, Clustered, own=own), self.Answer(centers=centers)

    def impossible(self, server: GraphServer, answers: Mapping[str, Answer], settings: Settings) -> dict[str, str]:
        """Centres that are not of length 1."""
        return not_of_unit_length(answers)

    def reduce(self, server: GraphServer, answers: MutableMapping[str, Answer], settings: Settings) -> Finished:
        """Which cluster of each client takes each number; a mixture to begin with, where there is to be one."""
        orders = common_numbers(server, {cid: answers[cid].centers for cid in answers}, settings)
        partial, mixture = server.has is not None, None
        centers = {cid: by_concept(answers[cid].centers, order, partial) for cid, order in orders.items()}
        if settings.solver.mixes and settings.n_clusters > 1:
            mixture = first_mixture([centers[cid] for cid in heard(server, orders)], settings, server.words)
        if partial:
            server = _in_axes_of_concepts(server, answers, orders)
            centers = {cid: np.nan_to_num(part) for cid, part in centers.items()}
        return with_influence(become(server, Finished, orders=orders, mixture=mixture, centers=centers), settings)


def not_of_unit_length(answers: Mapping[str, Any]) -> dict[str, str]:
    """Clients whose centres are not of length 1."""
    return {
        cid: "has centres that are not of length 1"
        for cid, answer in answers.items()
        if np.abs(np.linalg.norm(answer.centers.astype(np.float64), axis=1) - 1).max() > 1e-3
    }


def by_concept(centers: Array, order: Array, partial: bool) -> Array:
    """A client's centres by concept, in axes that all clients share; (k, k), (K,) -> (K, K).

    Where clients may lack concepts (`partial`), axes are concepts, and centres of those that this one lacks are NaN.
    """
    if not partial:
        return centers[order]
    wide = centers @ widening(centers, order)
    return np.where((order >= 0)[:, None], wide[order], np.nan)


def _in_axes_of_concepts(server: GraphServer, answers: Mapping[str, Any], orders: Mapping[str, Array]) -> GraphServer:
    """The server with all stacks in the axes that the clients' models have: those of the concepts, as numbered now."""
    stacks = {name: getattr(server, name).astype(np.float64) for name in ("W", "Z", "Y")}
    has = server.has.copy() if server.has is not None else np.ones(server.W.shape[1:], bool)
    for t, cid in enumerate(server.client_ids):
        if cid in orders:
            columns, P = server.columns_of(t), widening(answers[cid].centers, orders[cid])
            for stack in stacks.values():
                stack[:, :, t] = stack[:, columns, t] @ P
            has[:, t] = orders[cid] >= 0
    return replace(server, has=has, **stacks)


def projected(client: Placed, settings: Settings) -> tuple[Array, GraphModel]:
    """The rows where clusters are looked for, (n, k), and the client's model but for its clusters.

    These are the normalised rows of X W; of F for a run as published.
    """
    F, W, rows = client.F, to_numpy(client.W), client.rows
    mean = None if rows.mean is None else to_numpy(rows.mean)
    stretch = keep = None
    if client.scaling is not None:
        stretch, keep = client.scaling.stretch, client.scaling.keep
        if client.lift is None:
            W, mean = client.scaling.fold(W, mean)
    levels = np.array(settings.levels, np.int64) if settings.has_categories else None
    fill = hole_filling(client, settings)
    model = GraphModel(W, np.eye(client.k), 0.0, mean, stretch, keep, fill=fill, levels=levels, lift=client.lift)
    if settings.solver.labels_from == "embedding":
        return F / row_norms(F), model
    return project(rows.X if client.lift is not None else model.design(input_rows(client)), W, mean, keep), model


FIRST_VARIANCE = 0.5  # of the mixture's first covariance, as a part of that of a row of unit length


def first_mixture(matched: list[Array], settings: Settings, words: bool) -> Mixture:
    """Common parameters before the first E-step: the mean of the clients' centres, and a round covariance.

    A concept that nobody has, where there are more than clusters, begins at 0; no client ever takes it.
    """
    k, centers = settings.n_clusters, np.array(matched, dtype=np.float64)
    there = ~np.isnan(centers[:, :, 0])
    means = np.nan_to_num(centers).sum(axis=0) / np.maximum(there.sum(axis=0), 1)[:, None]
    given = settings.spread_of(words)
    spread = np.full((1, k), FIRST_SPREAD if given is None else given)
    covariance = np.eye(k)[None] * FIRST_VARIANCE / k
    return Mixture(
        means[None], covariance, np.full((1, k), 1 / k), np.zeros((1, k, 0)), spread, np.zeros(1), size=1 / k,
    )  # fmt: skip


def common_numbers(server: GraphServer, centers: dict[str, Array], settings: Settings) -> dict[str, Array]:
    """Which cluster of each client takes each number, so that the same concept has the same number everywhere.

    Clusters are compared by W_t c, their centre seen from the features, which no rotation changes. Without
    alignment every client keeps its own order, largest cluster first.
    """
    ids = [cid for cid in server.client_ids if cid in centers]
    if not settings.solver.align:
        return {cid: np.arange(len(centers[cid])) for cid in ids}
    place = {cid: t for t, cid in enumerate(server.client_ids)}
    W = _in_few_features(server.W)
    signatures = [centers[cid] @ W[:, server.columns_of(place[cid]), place[cid]].T for cid in ids]
    if server.has is not None:
        orders = match_concepts(signatures, settings.n_clusters, settings.seed)
    else:
        orders = match_clusters(signatures)
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
