"""One silo fitted against what it knows of the others, which stays as it is; nothing leaves.

Calibration, the comparison with a model alone, joining later and going on with new rows are this one fit. They differ
in what is known (``common``), in the rows, and in where clusters begin (``starts``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .kernels.alignment import numbers_of, procrustes, same_place, same_rows
from .kernels.centers import label_sums, row_norms, unit_centers
from .kernels.embedding import nearest_orthonormal
from .kernels.graph import Graph
from .kernels.objective import dot
from .kernels.scaling import expanded, moments, shiftable, standardize
from .linalg.arrays import HOST, double, to_device_of, to_numpy
from .mixture import Cells, Personal, Pool, e_step, personal, summed
from .mixture.pooling import SPREAD
from .mixture.steps import Common, Statistics, Sums
from .models import Frame, GraphModel, MixtureModel, Units
from .protocol.graph.finish import SETTLE_STEPS, SETTLED, projected, settle_pool
from .protocol.graph.opening import PREPARE
from .protocol.graph.round import one_pass
from .protocol.graph.state import Graphed, Placed, Prepared, rotated
from .protocol.method import view_method
from .protocol.mixture.em import among, pool_of
from .protocol.mixture.state import Reading, cells_of
from .protocol.state import ClientState, Ready, become, input_rows, stream, with_rows
from .protocol.units import MOMENTS, RESCALE
from .settings import Settings

Array = np.ndarray

ROUNDS = 6  # of the graph view
AGAIN = 3  # of a silo that goes on from a projection of before
FULL_RANK = 1e-6  # smallest singular value of projected rows, relative to the largest, that rounds can go on from
OWN = 0.8  # part of what a silo was drawn towards that is its own doing, measured: docs/how-to/confidence.md
STEPS = SETTLE_STEPS  # of a mixture, or of k-means


@dataclass(frozen=True)
class Silo:
    """Who fits: its name decides its random numbers."""

    name: str
    k: int  # clusters
    settings: Settings  # of the run
    device: str = HOST
    graph: Graph | None = None  # of its rows as they came, where that is known

    def at_home(self, view: str) -> Settings:
        """Settings of a silo by itself: no server that contains anybody, no second model to compare with."""
        return replace(self.settings, view=view, privacy=None, contain=False)


@dataclass(frozen=True)
class Refitted:
    """What a silo has after a fit at home."""

    model: Any
    labels: Array  # n
    client: Any  # its state
    sums: Sums | None = None  # of the last E-step, should others ask for them


@dataclass(frozen=True)
class MixtureCommon:
    """What a silo knows of the others in the mixture view."""

    view: ClassVar[str] = "mixture"
    units: Units  # of columns
    mixture: Common
    has: Array | None = None  # K, bool: concepts that the silo has; None: all

    def opened(self, silo: Silo, X: Any) -> Any:
        """The silo with its rows in the units of the run."""
        client, axes, origin = _in_units(silo, X, self.units), self.units.axes, self.units.origin
        cells = cells_of(client, silo.at_home(self.view), axes, origin)
        return become(client, Reading, axes=axes, origin=origin, cells=cells)

    def freed(self, has: Array) -> MixtureCommon:
        """What a silo knows that goes its own way: the common shape, and hardly where the others' clusters lie."""
        apart = np.full_like(self.mixture.spread, SPREAD[1])
        return replace(self, mixture=replace(self.mixture, spread=apart), has=has)

    def unfitted(self, client: Reading, settings: Settings) -> MixtureModel:
        """The common concepts as the silo's own: a model without a fit."""
        return self._model(client, self.mixture, settings)

    def fit(self, client: Reading, settings: Settings, starts: Sequence[Personal]) -> Refitted:
        """EM over the rows."""
        return self.clustered(client, settings, starts)

    def clustered(self, client: Reading, settings: Settings, starts: Sequence[Personal]) -> Refitted:
        """The model of a silo whose rows are read."""
        common = among(self.mixture, self.has)
        mine, sums = em_at_home(client.cells, common, pool_of(settings), [*starts] or [common])
        model = self._model(client, mine, settings)
        return Refitted(model, model.assign(client.X), client, sums)

    def _model(self, client: Reading, own: Personal, settings: Settings) -> MixtureModel:
        frame = Frame.of(client.scaling, settings.levels, client.axes, client.origin)
        shares = own.shares if self.has is None else np.where(self.has, own.shares, 0.0)
        return MixtureModel(frame, own.means, self.mixture.covariance, shares / shares.sum(), own.profiles)


@dataclass(frozen=True)
class GraphCommon:
    """What a silo knows of the others in the graph view."""

    view: ClassVar[str] = "graph"
    units: Units  # of columns
    anchor: Array  # d x q, what its projection is drawn towards
    ridge: float  # and how much
    scale: float | None = None  # gives rows mean squared norm 1; None: the silo's own does
    is_unit: bool = False  # whether the length of the anchor says nothing
    mixture: Common | None = None  # over projections; None: k-means forms the clusters
    centers: Array | None = None  # K x K, common centres for k-means; None, without a mixture: the silo's own
    own: Array | None = None  # d x q, the silo's projection in a run, where it had a part in the anchor
    concepts: Array | None = None  # q x K, from axes of its own to those of concepts, where silos lack some
    before: Array | None = None  # d x q, the silo's projection, from which it goes on; None: it begins anew

    @property
    def has(self) -> Array | None:
        """Concepts that the silo has; None: all."""
        return None if self.concepts is None else np.any(self.concepts, axis=0)

    def opened(self, silo: Silo, X: Any) -> Any:
        """The silo with its rows in the units of the run."""
        return with_rows(_in_units(silo, X, self.units), silo.at_home(self.view))

    def unfitted(self, client: Ready, settings: Settings) -> GraphModel:
        """The common projection with the common clusters: a model without a fit."""
        W = self.anchor.astype(client.X.dtype)
        _, model = projected(become(client, Placed, W=W, F=W, anchor=W), settings)  # no embedding is looked at
        if self.mixture is None:
            assert self.centers is not None
            return replace(model, centers=self.centers)
        return with_clusters(model, self.mixture, self.mixture.covariance)

    def fit(self, ready: Ready, settings: Settings, starts: Sequence[Personal]) -> Refitted:
        """Rounds towards the anchor, then clusters of the projections."""
        n, scale = ready.rows.shape[0], self.scale
        scale = float(np.sqrt(n / max(ready.rows.sum_of_squares(), 1e-300))) if scale is None else scale
        ridge = self.ridge if self.own is None else (1 - OWN) * self.ridge
        begun = ready if self.before is None else _placed_by(self.before, ready)
        client = PREPARE.reply(begun, PREPARE.Ask(scale=scale, ridge=ridge), settings, 0)[0]
        anchor = self._of_others(client)
        client = _drawn(client, anchor, anchor if self.own is None else self.own, settings)
        return self.clustered(client, settings, starts)

    def clustered(self, client: Placed, settings: Settings, starts: Sequence[Personal]) -> Refitted:
        """The model of a silo that has its projection: clusters of the projected rows."""
        E, model = projected(client, settings)
        if self.concepts is not None:
            E = np.where(self.concepts.any(axis=0), to_numpy(double(E)) @ self.concepts, np.nan)
            model = replace(model, W=(model.W @ self.concepts).astype(model.W.dtype))
        sums = None
        if self.mixture is None:
            centers = starts[0].means if starts else self.centers
            centers = _found(client, E, settings) if centers is None else _unit_means(E, centers)
            model = replace(model, centers=centers.astype(model.W.dtype))
        else:
            common, cells = among(self.mixture, self.has), Cells(double(E), np.zeros((len(E), 0), np.int64))
            begin = [*starts] or [common, self._by_kmeans(client, E, settings)]
            mine, sums = em_at_home(cells, common, settle_pool(settings, len(E)), begin)
            model = with_clusters(model, mine, common.covariance, self.has)
        labels = model.assign(input_rows(client))
        gap = np.nan_to_num(E - to_device_of(model.centers, E)[labels])
        model = replace(model, spread=dot(gap, gap) / len(E))
        return Refitted(model, to_numpy(labels), client, sums)

    def _of_others(self, client: Prepared) -> Array:
        """The anchor without the silo's own part; where only its direction counts, as long as makes XW as long as F.

        ``ridge ||W - own W - (1 - own) others||²``, minimised where `own` W follows, is
        ``(1 - own) ridge ||W - others||²``.
        """
        if self.own is not None:
            return (self.anchor - OWN * self.own) / (1 - OWN)
        if not self.is_unit:
            return self.anchor
        found = float(np.linalg.norm(to_numpy(client.rows @ to_device_of(self.anchor, client.F))))
        return self.anchor * (np.sqrt(client.k) / max(found, 1e-300))

    def _by_kmeans(self, client: Placed, E: Array, settings: Settings) -> Personal:
        """The silo's k-means clusters, as members of a federation begin, each by the nearest common mean."""
        assert self.mixture is not None
        centers = _found(client, E, settings)
        order = same_place(centers, self.mixture.means)
        return replace(self.mixture, means=double(centers[order]))


def refit(
    silo: Silo,
    common: MixtureCommon | GraphCommon | None,
    X: Any,
    starts: Sequence[Personal] = (),
    units: Units | None = None,
) -> Refitted:
    """Fit one silo to some rows, with what it knows of the others as it is.

    Parameters
    ----------
    silo : Silo
    common : MixtureCommon or GraphCommon, optional
        None: nothing is known, and the silo makes a run of its own in the view of its settings.
    X : array of shape (n, d)
        Rows, as they came.
    starts : sequence of Personal
        Where clusters begin, in place of the common ones; what is most likely in the end stays, and of k-means the
        first. Rows that were left out are scored by the model: `ClientModel.row_scores`.
    units : Units, optional
        Of the columns, where nothing else is known; left out, the silo's own.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.refit import Silo, refit
    >>> from fmtc.settings import Settings
    >>> X = np.repeat([[0.0, 0.0], [9.0, 9.0]], 20, axis=0) + np.random.default_rng(0).normal(size=(40, 2))
    >>> found = refit(Silo("north", 2, Settings(n_clusters=2, view="mixture")), None, X)
    >>> np.bincount(found.labels).tolist()
    [20, 20]
    """
    if common is None:
        return _alone(silo, X, units)
    return common.fit(common.opened(silo, X), silo.at_home(common.view), starts)


def _in_units(silo: Silo, X: Any, units: Units) -> ClientState:
    """The silo with rows whose columns have the units of the run, or its own where every silo has its own."""
    settings, scaling = silo.settings, units.scaling
    X = np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X  # another layout sums in another order
    if scaling is None and settings.scale == "silo":
        scaling = standardize(moments(expanded(X, settings.levels)), settings.levels)
    X = shiftable(X, None if scaling is None else scaling.shift)
    return ClientState(silo.name, X, silo.k, scaling=scaling, lift=units.lift, device=silo.device)


# ------------------------------------------------------------------------------------------------------ graph view


def _placed_by(W: Array, ready: Ready) -> Ready:
    """The silo with its embedding where a projection puts its rows; as it is, where these span too little."""
    W = W.astype(ready.X.dtype)
    M = ready.rows @ W
    s = np.linalg.svd(to_numpy(M), compute_uv=False)
    return become(ready, Placed, F=nearest_orthonormal(M), W=W, anchor=W) if s[-1] > FULL_RANK * s[0] else ready


def _drawn(client: Prepared, anchor: Array, frame: Array, settings: Settings) -> Prepared:
    """Rounds at home: ``W = argmin ||F - XW||² + ridge ||W - anchor||²``, turned to a frame each time, then F.

    From the spectrum, where W is nothing yet, the first projection is drawn to nothing: it only says how the columns of
    F lie to those of the frame.
    """
    numbers = range(1, AGAIN + 1) if client.W.any() else range(ROUNDS + 1)
    for number in numbers:
        client, *_ = one_pass(client, anchor if number else np.zeros_like(anchor), settings, max(number, 1))
        client = rotated(client, procrustes(to_numpy(client.W), frame))
    return client


def with_clusters(model: GraphModel, own: Personal, covariance: Array, has: Array | None = None) -> GraphModel:
    """A model of the graph view with a silo's own means and shares of the mixture over projections."""
    there = np.ones(len(own.shares), bool) if has is None else has
    precision = np.zeros_like(covariance)
    seen = np.ix_(there, there)  # of the axes that the silo's projections have
    precision[seen] = np.linalg.inv(covariance[seen])
    shares = np.where(there, own.shares, 0.0)
    return replace(
        model, centers=own.means.astype(model.W.dtype), precision=(precision + precision.T) / 2, shares=shares
    )


def _found(client: Placed, E: Array, settings: Settings) -> Array:
    """Centres of the silo's own k-means, with restarts; (n, k) -> (k, k)."""
    seed = int(stream(settings.seed, client.client_id, "kmeans").integers(2**31))
    return to_numpy(unit_centers(E, client.k, settings.n_init, seed))


def _unit_means(E: Array, centers: Any) -> Array:
    """k-means of rows of unit length from some centres; a cluster without rows keeps its own."""
    points, centers = np.nan_to_num(to_numpy(double(E))), to_numpy(double(centers))
    for _ in range(STEPS):
        sums, sizes = label_sums(points, (points @ centers.T).argmax(axis=1), len(centers))
        centers = np.where(sizes[:, None] > 0, sums / row_norms(sums), centers)
    return centers


# -------------------------------------------------------------------------------------------------------- mixtures


def em_at_home(cells: Cells, common: Common, pool: Pool, starts: Sequence[Personal]) -> tuple[Personal, Sums]:
    """EM with common parameters that stay as they are, from each start; the parameters that are most likely."""
    found = [_em(cells, common, pool, start) for start in starts]
    statistics, sums = max(found, key=lambda one: float(one[1].score[0]))
    return _drawn_to(common, statistics, cells, pool), sums


def _em(cells: Cells, common: Common, pool: Pool, mine: Personal) -> tuple[Statistics, Sums]:
    r = mine.means.shape[1]
    own = Statistics(np.zeros_like(mine.shares), np.zeros_like(mine.means), np.zeros_like(mine.profiles), np.zeros(r))
    score = -np.inf
    for step in range(STEPS + 1):  # the first says what the start comes to
        own, sums = summed(common, own, mine, e_step(cells, mine, common.covariance), cells.levels, cells.n)
        last, score = score, float(sums.score[0]) / cells.n
        if step > 1 and abs(score - last) < SETTLED:
            break
        mine = _drawn_to(common, own, cells, pool)
    return own, sums


def _drawn_to(common: Common, own: Statistics, cells: Cells, pool: Pool) -> Personal:
    return personal(common, own, cells.levels, pool.concentration, cells.never, lean=pool.lean)


# ----------------------------------------------------------------------------------------------------------- alone


def _alone(silo: Silo, X: Any, units: Units | None) -> Refitted:
    """A run of one silo, with a server of its own."""
    settings = replace(silo.at_home(silo.settings.view), n_clusters=silo.k, clusters_per_silo=None)
    method = view_method(settings.view)
    client = replace(method.open_client(silo.name, X, settings, silo.device), on_trial=True)
    as_they_came = settings.scale == "none" and settings.lift is False and client.scaling is None
    if silo.graph is not None and as_they_came:
        client = become(with_rows(client, settings), Graphed, graph=silo.graph)  # the one that it has
    server, phases, rounds = method.open_server((silo.name,), settings, None), method.phases, list[Any]()
    if units is not None:
        client = replace(with_rows(_in_units(silo, X, units), settings), on_trial=True)
        server = replace(server, scaling=units.scaling, lifted=units.lift is not None)
        phases = tuple(phase for phase in phases if phase not in (MOMENTS, RESCALE))
    for phase in phases:
        loops, begun, turn = phase in method.loops, len(rounds), 0
        while turn < phase.times(server, settings):
            if loops and method.loop_stops(phase, rounds[begun:], settings) is not None:
                break
            (ask,) = phase.asks(server, settings).values()
            client, answer = phase.reply(client, ask, settings, len(rounds) + loops)
            server = phase.reduce(server, {silo.name: answer}, settings)
            if loops:
                server, report = server
                rounds.append(report)
            else:
                turn += 1
    return Refitted(client.model, client.labels, client)


# --------------------------------------------------------------------------------------------------------- numbers


def numbered(own: Refitted, offered: Array, k: int) -> Refitted:
    """A silo's own clusters under the numbers of those, of k, that they share most rows with.

    Numbers that no cluster takes are concepts that the silo lacks.
    """
    order = same_rows(offered, own.labels, k, own.model.k)
    model, labels = own.model.renumbered(order), numbers_of(order)[own.labels]
    return replace(own, model=model, labels=labels)


__all__ = ["GraphCommon", "MixtureCommon", "Refitted", "Silo", "em_at_home", "numbered", "refit"]
