"""How a run of the graph view ends: phases `finish` and `settle`; `number` comes after them.

finish  k-means in the common frame at each client; the server decides which clusters are the same
settle  rounds of the mixture over the projections of all clients
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import RefusedError, warn_not_converged
from ...kernels.alignment import match_clusters, match_concepts, numbers_of, same_place, widening
from ...kernels.centers import row_norms, unit_centers
from ...linalg.arrays import asarray_like, double, namespace, to_numpy
from ...mixture import Cells
from ...mixture.pooling import Pool
from ...mixture.starts import FIRST_SPREAD
from ...mixture.steps import Statistics
from ...models import GraphModel, project
from ...privacy.protection import ALWAYS
from ...privacy.rules import Centres
from ...settings import Settings
from ..base import REPEATS, Answers, Array, Content, Phase, array, number
from ..mixture.em import PROTECT, Answer, asked, impossible_round, next_round, one_round
from ..mixture.em import Ask as Parameters
from ..mixture.state import Mixing, Mixture
from ..state import become, heard, hole_filling, input_rows, reached, stream
from .round import is_rotation, with_influence
from .state import Clustered, Clusters, Finished, GraphServer, Placed, placed, rotated

# --------------------------------------------------------------------------------------------------------------- finish


class Finish(Phase):
    """Labels and centres of each client, in the order of its own cluster sizes."""

    name = "finish"
    doing = "finding its clusters"
    protect = Centres("No centre is one row; the policy says what becomes of small clusters.", dominance=ALWAYS)
    resumes = True

    class Ask(Content):
        """The last rotation."""

        rotation: Array | None = array(
            "k k", "turns F and W to the common frame", "How the silo's columns lie to those of the others.",
            when="with `align`", check=is_rotation,
        )  # fmt: skip

    class Answer(Content):
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
        from_embedding = settings.labels_from == "embedding"
        E, model = projected(client, settings)
        seed = int(stream(settings.seed, client.client_id, "kmeans").integers(2**31))
        found = unit_centers(E, k, settings.n_init, seed)
        model = replace(model, centers=to_numpy(found))
        labels = (E @ found.T).argmax(axis=1) if from_embedding else model.assign(input_rows(client))
        n_filled = len(np.unique(to_numpy(labels)))
        if n_filled < k and not client.on_trial:
            warn_not_converged(
                f"silo {client.client_id!r} fills only {n_filled} of {k} clusters: its rows have too "
                "few distinct projections. Ask for fewer clusters, or look for duplicate rows."
            )
        own = by_size(E, model, labels, to_numpy(client.W))
        return become(client, Clustered, own=own), self.Answer(centers=own.model.centers)

    def impossible(self, server: GraphServer, client_id: str, answer: Answer, settings: Settings) -> str | None:
        """Centres that are not of length 1."""
        return not_of_unit_length(answer)

    def reduce(self, server: GraphServer, answers: Answers, settings: Settings) -> Finished:
        """Which cluster of each client takes each number; a mixture to begin with, where there is to be one."""
        orders = common_numbers(server, {cid: answers[cid].centers for cid in answers}, settings)
        partial, mixture = server.has is not None, None
        centers = {cid: by_concept(answers[cid].centers, order, partial) for cid, order in orders.items()}
        if settings.mixes and settings.n_clusters > 1:
            mixture = first_mixture([centers[cid] for cid in heard(server, orders)], settings, server.words)
        if partial:
            server = _in_axes_of_concepts(server, answers, orders)
            centers = {cid: np.nan_to_num(part) for cid, part in centers.items()}
        return with_influence(become(server, Finished, orders=orders, mixture=mixture, centers=centers), settings)


def by_size(E: Array, model: GraphModel, labels: Array, W: Array) -> Clusters:
    """Clusters, the largest first; equal sizes by the norm of W c, which no order of rows and no rotation changes."""
    sizes = to_numpy(namespace(labels).bincount(labels, minlength=len(model.centers)))
    order = np.lexsort((-np.linalg.norm(model.centers @ W.T, axis=1), -sizes))
    labels = asarray_like(np.argsort(order), labels)[labels]
    return Clusters(E, replace(model, centers=model.centers[order]), labels)


def not_of_unit_length(answer: Any) -> str | None:
    """What is wrong where centres are not of length 1."""
    gap = np.abs(np.linalg.norm(answer.centers.astype(np.float64), axis=1) - 1).max()
    return "has centres that are not of length 1" if gap > 1e-3 else None


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
    if settings.labels_from == "embedding":
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
    if not settings.align:
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


# --------------------------------------------------------------------------------------------------------------- settle


SETTLE_STEPS = 60


def is_partial_order(order: Any, sizes: Mapping[str, int]) -> str | None:
    """Accept orders of the client's clusters 0, 1, 2, ..., with -1 in place of concepts that it lacks."""
    k = sizes.get("k", len(order))
    right = np.array_equal(np.sort(order), np.maximum(np.arange(len(order)) + k - len(order), -1)) and k <= len(order)
    return None if right else f"does not give each of {k} clusters a number of its own"


class Numbers(Content):
    """Which clusters are the same."""

    order: Array | None = array(
        "K", "the silo's cluster that takes each common number, -1 for a cluster that it lacks",
        "How its order of cluster sizes compares with that of the others.", kind="int", when="without `privacy`",
        check=is_partial_order,
    )  # fmt: skip
    partial: bool | None = number(
        "whether silos lack clusters; axes of projections are then the clusters of all silos", "That a silo lacks one.",
        kind="flag", when="where silos lack clusters",
    )  # fmt: skip
    frame: Array | None = array(
        "k k", "common centres, which give each silo's clusters their numbers",
        "Where the clusters of all silos lie in the common frame.", when='with `privacy="sums"`',
    )  # fmt: skip

    def wrong(self) -> str | None:
        """What no server can mean: numbers of both kinds, or of none."""
        return "either order or frame must be there" if (self.order is None) == (self.frame is None) else None


class Step(Parameters):
    """Common parameters of a round."""

    step: int = number("which round of the mixture this is", "How far the mixture is.", kind="count")


class Settle(Phase):
    """A round of the mixture over projections: the last stage of the graph view."""

    name = "settle"
    doing = "finding its clusters with the others"
    protect = PROTECT
    sums = True
    Answer = Answer

    class Ask(Numbers, Step):
        """Common parameters, and which clusters are the same."""

    def times(self, server: Mixing, settings: Settings) -> int:
        """Until the likelihood hardly changes."""
        if server.mixture is None:
            return 0
        return server.mixture.rounds if server.mixture.settled else SETTLE_STEPS

    def limit(self, settings: Settings) -> int:
        """All rounds, restarts included."""
        return REPEATS * SETTLE_STEPS if settings.mixes else 0

    def asks(self, server: Any, settings: Settings) -> dict[str, Any]:
        """The same parameters for everyone, and which clusters of a client are which."""
        last = vars(asked(server.mixture)) | {"step": server.mixture.rounds}
        return {cid: self.Ask(**last, **numbers) for cid, numbers in server.numbers.items()}

    def reply(self, client: Any, ask: Any, settings: Settings, round_no: int) -> tuple[Clustered, Any]:
        """E-step over the normalised projections; asked twice for the same round, it gives the same answer.

        Who missed rounds continues with its own last sums; who missed all, with its k-means clusters.
        """
        client = reached(client, Clustered)
        order, own = order_of(client, ask), widened(client.own, ask)
        if 0 < ask.step < own.step:
            raise RefusedError(f"round {ask.step} of the mixture cannot follow round {own.step}")
        before = own.before if ask.step == own.step else own.statistics
        if before is None or not ask.step:
            before = first_statistics(own, order)
        cells = Cells(double(own.E), np.zeros((own.E.shape[0], 0), np.int64)) if own.cells is None else own.cells
        after, answer = one_round(cells, ask, [before], settle_pool(settings, cells.n), order >= 0)
        own = replace(own, cells=cells, before=before, statistics=after[0], step=ask.step)
        return replace(client, own=own), answer

    def impossible(self, server: Any, client_id: str, answer: Any, settings: Settings) -> str | None:
        """Sums of no rows."""
        return impossible_round(server.mixture, answer)

    def reduce(self, server: Any, answers: Answers, settings: Settings) -> Any:
        """Add up and pool."""
        mixture = server.mixture
        before = mixture.scores[0] if mixture.rounds else -np.inf
        server, report = next_round(server, answers, settle_pool(settings, words=server.words), settings)
        done = abs(-report.objective - before) < SETTLED or server.mixture.rounds >= SETTLE_STEPS
        return replace(server, mixture=replace(server.mixture, settled=bool(done)))


def first_statistics(own: Clusters, order: Array) -> Statistics:
    """Sums of the projections in each of the client's k-means clusters, in the common order."""
    k = len(order)
    labels = numbers_of(order)[to_numpy(own.labels)]
    E = np.nan_to_num(to_numpy(double(own.E)))
    one = np.zeros((len(E), k))
    one[np.arange(len(E)), labels] = 1
    return Statistics(one.sum(axis=0), one.T @ E, np.zeros((k, 0)), np.zeros(E.shape[1]))


def order_of(client: Clustered, ask: Any) -> Array:
    """Which cluster of the client takes each number: as the server says, or by the common centres that it shows."""
    return same_place(client.own.model.centers, ask.frame) if ask.order is None else ask.order


def widened(own: Clusters, ask: Any) -> Clusters:
    """A client's clusters with an axis for each concept; unknown (NaN) along those that it lacks.

    Nothing to do where no client lacks any: projections are in a common frame then.
    """
    if not ask.partial or own.axes is not None:
        return own
    P = widening(own.model.centers, ask.order)
    lacking = ~P.any(axis=0)
    E = to_numpy(double(own.E)) @ P
    E[:, lacking] = np.nan
    centers = np.zeros((len(ask.order), len(ask.order)))
    centers[ask.order >= 0] = (own.model.centers @ P)[ask.order[ask.order >= 0]]
    model = replace(own.model, W=(own.model.W @ P).astype(own.model.W.dtype), centers=centers)
    return replace(own, E=E, model=model, axes=P)


SETTLED = 1e-5  # change of the log-likelihood of a row that ends it


EVEN = 0.5  # rows in equal shares that a silo's own shares get, for each of its rows: cuts prefer even clusters


def settle_pool(settings: Settings, n_rows: int = 1, *, words: bool = False) -> Pool:
    """Shares drawn to equal ones; silos do not shift as a whole: projections are in a common frame already."""
    return Pool(spread=settings.spread_of(words), drift=0.0, concentration=EVEN * n_rows, even=True)


SETTLE = Settle()
