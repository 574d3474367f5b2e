"""How a run of the mixture view begins: phases `axes`, `coordinates` and `seed`.

axes         principal axes of many columns, by steps of subspace iteration on sums
coordinates  each client reads its rows in the coordinates of the mixture, and sums up their shape
seed         steps of k-means over the rows of all clients, for several starts of the mixture at once
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...errors import DataError, RefusedError
from ...kernels.projection import column_means
from ...linalg.arrays import HOST
from ...mixture import Cells, bounds, starts
from ...mixture.cells import level_parts
from ...mixture.pooling import LEAST, floored
from ...privacy.protection import Protection
from ...privacy.rules import ClusterSums
from ...settings import Settings
from ..base import Answers, Array, Content, Phase, above, array, number
from ..state import ClientState, ServerState, become, heard, reached, refuse_unscaled, rows_of, set_aside, some_rows
from .state import (
    Counted,
    InAxes,
    Mixture,
    MixtureServer,
    Reading,
    Seeding,
    Seeds,
    Tallied,
    category_levels,
    cells_of,
    counted,
    stacked,
)

# ----------------------------------------------------------------------------------------------------------------- axes


SPARE = 8  # columns beyond those wanted: they make the wanted ones converge
FEWEST, MOST = 10, 40  # axes
MOST_PRODUCTS = 5.0  # of one client for each of its rows, in medians of all clients


def n_axes(settings: Settings) -> int:
    """Coordinates of a mixture of many columns: two for each cluster, within limits."""
    return int(np.clip(2 * settings.n_clusters, FEWEST, MOST))


class Axes(Phase):
    """Products of each client's covariance with a common basis."""

    name = "axes"
    doing = "looking for principal axes"
    sums = True
    pure = True
    turns = 5  # steps of subspace iteration
    protect = Protection("Sums over all rows of the silo.")

    class Ask(Content):
        """The basis so far."""

        basis: Array = array("d r", "orthonormal columns, random at first", "The directions in which all silos vary.")

    class Answer(Content):
        """One client's part of a step."""

        products: Array = array(
            "d r", "covariance of the rows about the silo's mean, times the basis, times n_samples",
            "In which of those directions the silo's rows vary, and how far.",
        )  # fmt: skip
        totals: Array | None = array(
            "d", "column sums", "With n_samples, a typical row of the silo.", when="where `moments` has no means"
        )

    def times(self, server: ServerState, settings: Settings) -> int:
        """A few steps, where columns are many."""
        return self.turns if server.wide else 0

    def ask(self, server: ServerState, settings: Settings) -> Ask:
        """The basis; random before the first step."""
        if isinstance(server, InAxes):
            return self.Ask(basis=server.axes)
        width = min(n_axes(settings) + SPARE, server.n_features, max(2, server.n_samples - 1))
        basis = np.random.default_rng([settings.seed, 1]).normal(size=(server.n_features, width))
        return self.Ask(basis=np.linalg.qr(basis)[0])

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[ClientState, Answer]:
        """Multiply, a block of rows at a time where they are dense."""
        refuse_unscaled(client, settings)
        rows = rows_of(client.X, client.scaling, settings, HOST)
        X = rows.X
        mean = column_means(X)
        projected = X @ ask.basis - mean @ ask.basis
        products = np.asarray(X.T @ projected) - np.outer(mean, projected.sum(axis=0))
        told = client.scaling is not None and client.scaling.shift is not None
        totals = None if told else np.asarray(mean, dtype=np.float64) * X.shape[0]
        return client, self.Answer(products=products, totals=totals)

    def impossible(self, server: ServerState, client_id: str, answer: Answer, settings: Settings) -> str | None:
        """A product of the basis with what is not a covariance."""
        return bounds.impossible_products(self.ask(server, settings).basis, answer.products)

    def reduce(self, server: ServerState, answers: Answers, settings: Settings) -> InAxes:
        """Orthonormal again; after the last step, axes with the largest variance first."""
        ids = sorted(answers)
        if settings.contains and all(cid in server.told for cid in ids):
            sizes = [np.linalg.norm(answers[cid].products) / server.told[cid][0] for cid in ids]
            server, _ = set_aside(server, ids, bounds.far_sizes(np.array(sizes), MOST_PRODUCTS))
        ids = heard(server, answers)
        products = sum((answers[cid].products for cid in ids[1:]), np.array(answers[ids[0]].products))
        Q, R = np.linalg.qr(products)
        U, _, _ = np.linalg.svd(R)
        axes = _signed(Q @ U)
        origin = None
        if all(answers[cid].totals is not None for cid in ids):
            totals = np.sum([np.asarray(answers[cid].totals) for cid in ids], axis=0)
            origin = totals @ axes / _rows(server, ids)
        return become(server, InAxes, axes=axes, origin=origin)


def _rows(server: ServerState, ids: list[str]) -> float:
    """Rows of some clients, where they have told it; of all otherwise."""
    return sum(server.told[cid][0] for cid in ids) if all(cid in server.told for cid in ids) else server.n_samples


def _signed(V: Array) -> Array:
    """Columns with their largest entry positive: the sign of a singular vector is a matter of rounding."""
    peak = np.abs(V).argmax(axis=0)
    return V * np.where(V[peak, np.arange(V.shape[1])] < 0, -1.0, 1.0)


AXES = Axes()


# ---------------------------------------------------------------------------------------------------------- coordinates


STARTS = 2  # for each of `n_init`: as many of rows as they are as of rows about their silo's mean
SINGLE = 10  # further starts, at most, that look at one coordinate only
ROUNDING = 1e-14  # a variance below this share of the squared mean is what rounding leaves of a constant


class Coordinates(Phase):
    """First and second moments of all coordinates."""

    name = "coordinates"
    doing = "reading its rows as a mixture"
    sums = True
    rebuilds = True
    protect = Protection("Sums over all rows; a person is told where rows are few.", few_rows=True)

    class Ask(Content):
        """Principal axes, where columns are many."""

        axes: Array | None = array(
            "d r", "principal axes of all silos' rows", "As in `axes`.", when="where columns are many"
        )
        origin: Array | None = array(
            "r", "mean of all rows along the axes", "With two silos, that of the other.",
            when="where `moments` has no means",
        )  # fmt: skip

    class Answer(Content):
        """Moments of one client."""

        n_samples: int = number("number of rows", "Exactly that.", kind="count")
        sums: Array = array("p", "sums of the coordinates", "With n_samples, a typical row of the silo.")
        within: Array = array(
            "p p", "sums of products of deviations from the silo's mean",
            "How the silo's columns vary together; with a few rows, roughly the rows.",
        )  # fmt: skip
        fourths: Array = array(
            "p", "sums of fourth powers of the coordinates", "Whether columns have several peaks, or long tails."
        )
        many: Array = array(
            "p", "1 for each coordinate with more than ten different values, 0 for others", "Exactly that.",
            check=above(-0.5),
        )  # fmt: skip
        between: Array = array("p p", "products of the silo's mean with itself, times n_samples", "As `sums`.")

    def ask(self, server: ServerState, settings: Settings) -> Ask:
        """The common coordinates."""
        axes, origin, r = *axes_of(server), n_axes(settings)
        axes = None if axes is None else np.ascontiguousarray(axes[:, :r])
        origin = None if origin is None else origin[:r]
        return self.Ask(axes=axes, origin=origin)

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[Reading, Answer]:
        """Moments of the filled cells."""
        if ask.axes is None and (sp.issparse(client.X) or settings.scale == "tfidf"):
            raise RefusedError("a mixture of sparse rows needs principal axes")
        cells = cells_of(client, settings, ask.axes, ask.origin)
        found, n = starts.shape(cells), cells.n
        answer = self.Answer(
            n_samples=n, sums=found.mean * n, within=found.within, fourths=found.fourths, between=found.between,
            many=np.ones(len(found.mean)) if ask.axes is not None else starts.has_many_values(cells),
        )  # fmt: skip
        kind = Counted if isinstance(client, Tallied) else Reading  # a run that is resumed knows its last sums
        return become(client, kind, axes=ask.axes, origin=ask.origin, cells=cells), answer

    def impossible(self, server: ServerState, client_id: str, answer: Answer, settings: Settings) -> str | None:
        """Moments of no rows, or of other rows than before."""
        n, told = answer.n_samples, server.told.get(client_id)
        if told is not None and n != told[0]:
            return f"is of {n} rows, and the silo has said that it has {told[0]:g}"
        axes, _ = axes_of(server)
        p = server.n_features if axes is None else min(axes.shape[1], n_axes(settings))
        if len(answer.sums) != p:
            return f"has {len(answer.sums)} coordinates in place of {p}"
        return bounds.impossible_moments(n, answer.sums, answer.within, answer.fourths, answer.between)

    def reduce(self, server: ServerState, answers: Answers, settings: Settings) -> Seeding:
        """Covariance of all rows, and about the silos' own means; centres of the first starts."""
        ids, (axes, origin) = sorted(answers), axes_of(server)
        if settings.contains:
            server, _ = set_aside(server, ids, _far([answers[cid] for cid in ids], axes, settings))
        said = [answers[cid] for cid in heard(server, answers)]
        n = sum(answer.n_samples for answer in said)
        told = {
            cid: np.concatenate([[answer.n_samples], answer.sums / max(answer.n_samples, 1), np.diag(answer.within)])
            for cid, answer in answers.items()
        }
        names = ("sums", "within", "between", "fourths", "many")
        whole = {name: np.sum([getattr(answer, name) for answer in said], axis=0) for name in names}
        mean, within = whole["sums"] / n, whole["within"] / n
        total = within + whole["between"] / n - np.outer(mean, mean)
        r = len(mean) - sum(category_levels(axes, settings))
        varies = np.diag(total) > ROUNDING * mean**2
        within, total = (np.where(varies[:, None] & varies, moments, 0.0) for moments in (within, total))
        if not varies.any():
            raise DataError("every column is constant in all silos: there is nothing to cluster")
        size = float(np.trace(total[:r, :r])) / r if r else 1.0
        few = whole["many"][:r] < 0.5  # in all silos
        floor = np.where(few, LEAST * np.diag(total)[:r], 0.0) if few.any() else None
        weights = _weights(len(mean), starts.flat_coordinates(whole["fourths"], n, mean, total, r, SINGLE), settings)
        seeds = Seeds(axes, origin, mean, within, total, size or 1.0, floor, weights, np.empty(0))
        seeds = replace(seeds, centers=fresh_centers(seeds, settings))
        return become(server, Seeding, n_samples=n, told=told, seeds=seeds)


def _far(said: list[Any], axes: Array | None, settings: Settings) -> Array:
    """Which silos' columns are far beyond the others'."""
    rows = np.array([[float(answer.n_samples)] for answer in said])
    means = np.array([answer.sums for answer in said]) / rows
    variances = np.array([np.diag(answer.within) for answer in said]) / rows
    return bounds.far_columns(means, variances, settings.levels if axes is None else ())


def axes_of(server: ServerState) -> tuple[Array | None, Array | None]:
    """Principal axes and the mean along them; None where columns are few."""
    found = server.mixture if isinstance(server, MixtureServer) else server if isinstance(server, InAxes) else None
    return (None, None) if found is None else (found.axes, found.origin)


def _weights(p: int, flat: Array, settings: Settings) -> Array:
    """Which coordinates each start looks at: all, or one that is flat, whose groups the others may hide; (s, p)."""
    if settings.n_clusters == 1:
        return np.ones((1, p))
    return np.vstack([np.ones((STARTS * settings.n_init, p)), np.eye(p)[flat]])


def fresh_centers(seeds: Seeds, settings: Settings) -> Array:
    """Centres drawn from a Gaussian with the moments of the rows, or along one coordinate; (s, k, p)."""
    mean, within, total, weights = seeds.mean, seeds.within, seeds.total, seeds.weights
    n, k, rng = len(weights), settings.n_clusters, np.random.default_rng([settings.seed, 2, seeds.turn])
    apart, together = starts.draw(within, np.zeros_like(mean), n, k, rng), starts.draw(total, mean, n, k, rng)
    centred = np.array([starts.is_centred(start) for start in range(n)])
    centers = np.where(centred[:, None, None], apart, together)
    for s in np.flatnonzero(weights.sum(axis=1) < weights.shape[1]).tolist():
        own, origin = (within, np.zeros_like(mean)) if starts.is_centred(s) else (total, mean)
        centers[s] = starts.along(int(weights[s].argmax()), own, origin, k)
    return centers


def sampled(client: Reading, settings: Settings) -> Cells:
    """The rows that starts are compared on: all, or some of many."""
    cells = client.cells
    if cells.n <= SAMPLE:
        return cells
    return cells.take(some_rows(cells.n, SAMPLE, settings.seed, client.client_id, "starts"))


SAMPLE = 2000  # rows of a client
COORDINATES = Coordinates()


# ----------------------------------------------------------------------------------------------------------------- seed


SEED_STEPS = 8
HANDICAP = 0.2  # log-likelihood per row that a start along one coordinate must gain: structure in all counts more


class Seed(Phase):
    """Sums of the rows nearest to each centre."""

    name = "seed"
    doing = "looking for a start of its mixture"
    protect = ClusterSums("Sums over rows; the policy says what becomes of those over few.")
    sums = True
    turns = SEED_STEPS
    persists = True

    class Ask(Content):
        """Centres of all starts."""

        centers: Array = array("s K p", "centres of each start", "Where the rows of all silos lie densely.")
        weights: Array = array(
            "s p", "coordinates that each start looks at", "Which columns are flat, over all silos.",
            check=above(-1e-300),
        )  # fmt: skip

    class Answer(Content):
        """Sums of one client."""

        counts: Array = array(
            "s K", "rows nearest to each centre, of at most 2000", "How many rows of the silo lie near each centre."
        )
        sums: Array = array(
            "s K p", "their sums; in every second start, of deviations from the silo's mean",
            "Where the silo's clusters lie; of a cluster of one row, that row.",
        )  # fmt: skip

    def ask(self, server: Seeding, settings: Settings) -> Ask:
        """The centres so far."""
        return self.Ask(centers=server.seeds.centers, weights=server.seeds.weights)

    def reply(self, client: Any, ask: Ask, settings: Settings, round_no: int) -> tuple[Counted, Answer]:
        """One step; the client keeps its own sums: the mixture begins with the last ones."""
        cells = sampled(reached(client, Reading), settings)
        mean = starts.shape(cells).mean
        origins = np.array(
            [mean if starts.is_centred(start) else np.zeros_like(mean) for start in range(len(ask.centers))]
        )
        counts, sums = starts.assign_sums(cells, ask.centers, origins, ask.weights)
        r = cells.r
        own = [starts.first_statistics(counts[s], sums[s], origins[s], r) for s in range(len(counts))]
        return counted(client, own, np.arange(len(own)), client.round_no), self.Answer(counts=counts, sums=sums)

    def impossible(self, server: Seeding, client_id: str, answer: Answer, settings: Settings) -> str | None:
        """Clusters that the client's own moments rule out."""
        told, p = server.told.get(client_id), answer.sums.shape[2]
        if told is None:
            return None
        n, mean, within = int(told[0]), told[1 : 1 + p], told[1 + p :]
        squares = np.array([within + (0 if starts.is_centred(s) else n) * mean**2 for s in range(len(answer.counts))])
        return bounds.impossible_steps(answer.counts, answer.sums, n, squares)

    def reduce(self, server: Seeding, answers: Answers, settings: Settings) -> Seeding | MixtureServer:
        """Move the centres; after the last step, begin with common parameters."""
        said = [answers[cid] for cid in heard(server, answers)]
        counts = np.sum([answer.counts for answer in said], axis=0)
        sums = np.sum([answer.sums for answer in said], axis=0)
        seeds = replace(server.seeds, turn=server.seeds.turn + 1)
        if seeds.turn == self.turns:
            return become(server, MixtureServer, mixture=_begin(seeds, counts, sums, settings))
        centers = starts.moved(seeds.centers, counts, sums, fresh_centers(seeds, settings))
        return replace(server, seeds=replace(seeds, centers=centers))


def _begin(seeds: Seeds, counts: Array, sums: Array, settings: Settings) -> Mixture:
    """Common parameters of all starts before the first E-step."""
    levels, mean, weights = category_levels(seeds.axes, settings), seeds.mean, seeds.weights
    r = len(mean) - sum(levels)
    profile = np.array(mean[r:]) / starts.CATEGORY_WEIGHT
    for part in level_parts(levels):
        shares = np.maximum(profile[part], 1e-4)
        profile[part] = shares / shares.sum()
    given = settings.spread
    handicap = np.where(weights.sum(axis=1) < weights.shape[1], HANDICAP, 0.0)
    found = [
        starts.first_common(
            counts[s], sums[s], seeds.within if starts.is_centred(s) else seeds.total, r, levels, profile
        )
        for s in range(len(counts))
    ]
    found = [replace(one, covariance=floored(one.covariance, seeds.floor)) for one in found]
    if given is not None:
        found = [replace(one, spread=np.full_like(one.spread, given)) for one in found]
    n = len(found)
    return become(seeds, Mixture, **stacked(found), keep=np.arange(n), scores=np.zeros(n), handicap=handicap)


SEED = Seed()
