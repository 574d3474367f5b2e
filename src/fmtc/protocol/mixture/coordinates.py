"""Phase `coordinates`: each client reads its rows in the coordinates of the mixture, and sums up their shape."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...client import ClientState, stream
from ...errors import DataError, RefusedError
from ...mixture import Cells
from ...mixture.bounds import far_columns, impossible_moments, numbers_only
from ...mixture.pooling import LEAST
from ...mixture.starts import along, draw, flat_coordinates, has_many_values, is_centred, shape
from ...privacy.protection import Protection
from ...server import ServerState, heard, set_aside
from ...settings import Settings
from ...state import become
from ..base import Array, Phase, above, array, number
from .axes import n_axes
from .state import Counted, InAxes, MixtureServer, Reading, Seeding, Seeds, Tallied, category_levels, cells_of

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

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Principal axes, where columns are many."""

        axes: Array | None = array(
            "d r", "principal axes of all silos' rows", "As in `axes`.", when="where columns are many"
        )
        origin: Array | None = array(
            "r", "mean of all rows along the axes", "With two silos, that of the other.",
            when="where `moments` has no means",
        )  # fmt: skip

    @dataclass(frozen=True, kw_only=True)
    class Answer:
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

    def asks(self, server: ServerState, settings: Settings) -> dict[str, Any]:
        """The same coordinates for everyone."""
        axes, origin, r = *axes_of(server), n_axes(settings)
        axes = None if axes is None else np.ascontiguousarray(axes[:, :r])
        origin = None if origin is None else origin[:r]
        return dict.fromkeys(server.client_ids, self.Ask(axes=axes, origin=origin))

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[Reading, Answer]:
        """Moments of the filled cells."""
        if ask.axes is None and (sp.issparse(client.X) or settings.scale == "tfidf"):
            raise RefusedError("a mixture of sparse rows needs principal axes")
        cells = cells_of(client, settings, ask.axes, ask.origin)
        found, n = shape(cells), cells.n
        answer = self.Answer(
            n_samples=n, sums=found.mean * n, within=found.within, fourths=found.fourths, between=found.between,
            many=np.ones(len(found.mean)) if ask.axes is not None else has_many_values(cells),
        )  # fmt: skip
        kind = Counted if isinstance(client, Tallied) else Reading  # a run that is resumed knows its last sums
        return become(client, kind, axes=ask.axes, origin=ask.origin, cells=cells), answer

    def impossible(self, server: ServerState, answers: Mapping[str, Answer], settings: Settings) -> dict[str, str]:
        """Moments of no rows, or of other rows than before."""
        found = {}
        for cid, answer in answers.items():
            n = answer.n_samples
            why = impossible_moments(n, answer.sums, answer.within, answer.fourths, answer.between)
            if cid in server.told and n != server.told[cid][0]:
                why = f"is of {n} rows, and the client has said that it has {server.told[cid][0]:g}"
            if why is not None:
                found[cid] = why
        return found

    def reduce(self, server: ServerState, answers: MutableMapping[str, Answer], settings: Settings) -> Seeding:
        """Covariance of all rows, and about the silos' own means; centres of the first starts."""
        ids, (axes, origin) = sorted(answers), axes_of(server)
        if settings.solver.contains:
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
            raise DataError("every column is constant in all clients: there is nothing to cluster")
        size = float(np.trace(total[:r, :r])) / r if r else 1.0
        few = whole["many"][:r] < 0.5  # in all silos
        floor = np.where(few, LEAST * np.diag(total)[:r], 0.0) if few.any() else None
        weights = _weights(len(mean), flat_coordinates(whole["fourths"], n, mean, total, r, SINGLE), settings)
        seeds = Seeds(axes, origin, mean, within, total, size or 1.0, floor, weights, np.empty(0))
        seeds = replace(seeds, centers=fresh_centers(seeds, settings))
        return become(server, Seeding, n_samples=n, told=told, seeds=seeds)


def _far(said: list[Any], axes: Array | None, settings: Settings) -> Array:
    """Which silos' columns are far beyond the others'."""
    rows = np.array([[float(answer.n_samples)] for answer in said])
    means = np.array([answer.sums for answer in said]) / rows
    variances = np.array([np.diag(answer.within) for answer in said]) / rows
    return far_columns(*numbers_only(means, variances, settings.levels if axes is None else ()))


def axes_of(server: ServerState) -> tuple[Array | None, Array | None]:
    """Principal axes and the mean along them; None where columns are few."""
    found = server.mixture if isinstance(server, MixtureServer) else server if isinstance(server, InAxes) else None
    return (None, None) if found is None else (found.axes, found.origin)


def _weights(p: int, flat: Array, settings: Settings) -> Array:
    """Which coordinates each start looks at: all, or one that is flat, whose groups the others may hide; (s, p)."""
    if settings.n_clusters == 1:
        return np.ones((1, p))
    return np.vstack([np.ones((STARTS * settings.solver.n_init, p)), np.eye(p)[flat]])


def fresh_centers(seeds: Seeds, settings: Settings) -> Array:
    """Centres drawn from a Gaussian with the moments of the rows, or along one coordinate; (s, k, p)."""
    mean, within, total, weights = seeds.mean, seeds.within, seeds.total, seeds.weights
    n, k, rng = len(weights), settings.n_clusters, np.random.default_rng([settings.seed, 2, seeds.turn])
    apart, together = draw(within, np.zeros_like(mean), n, k, rng), draw(total, mean, n, k, rng)
    centred = np.array([is_centred(start) for start in range(n)])
    centers = np.where(centred[:, None, None], apart, together)
    for s in np.flatnonzero(weights.sum(axis=1) < weights.shape[1]).tolist():
        own, origin = (within, np.zeros_like(mean)) if is_centred(s) else (total, mean)
        centers[s] = along(int(weights[s].argmax()), own, origin, k)
    return centers


def sampled(client: Reading, settings: Settings) -> Cells:
    """The rows that starts are compared on: all, or some of many."""
    cells = client.cells
    if cells.n <= SAMPLE:
        return cells
    rows = np.sort(stream(settings.seed, client.client_id, "starts").choice(cells.n, SAMPLE, replace=False))
    return cells.take(rows)


SAMPLE = 2000  # rows of a client
COORDINATES = Coordinates()
