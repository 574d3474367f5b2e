"""Phase `axes`: principal axes of many columns, by steps of subspace iteration on sums."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...client import ClientState, refuse_unscaled, rows_of
from ...kernels.projection import column_means
from ...linalg.arrays import HOST
from ...mixture.bounds import far_sizes, impossible_products
from ...privacy.protection import Protection
from ...server import ServerState, heard, set_aside
from ...settings import Settings
from ...state import become
from ..base import Array, Phase, array
from .state import InAxes

STEPS = 5
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
    turns = STEPS
    protect = Protection("Sums over all rows of the silo.")

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """The basis so far."""

        basis: Array = array("d r", "orthonormal columns, random at first", "The directions in which all silos vary.")

    @dataclass(frozen=True, kw_only=True)
    class Answer:
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

    def asks(self, server: ServerState, settings: Settings) -> dict[str, Any]:
        """The same basis for everyone; random before the first step."""
        if isinstance(server, InAxes):
            axes = server.axes
        else:
            width = min(n_axes(settings) + SPARE, server.n_features, max(2, server.n_samples - 1))
            axes = np.random.default_rng([settings.seed, 1]).normal(size=(server.n_features, width))
            axes = np.linalg.qr(axes)[0]
        return dict.fromkeys(server.client_ids, self.Ask(basis=axes))

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

    def impossible(self, server: ServerState, answers: Mapping[str, Answer], settings: Settings) -> dict[str, str]:
        """A product of the basis with what is not a covariance."""
        basis = next(iter(self.asks(server, settings).values())).basis
        found = {cid: impossible_products(basis, answer.products) for cid, answer in answers.items()}
        return {cid: why for cid, why in found.items() if why is not None}

    def reduce(self, server: ServerState, answers: MutableMapping[str, Answer], settings: Settings) -> InAxes:
        """Orthonormal again; after the last step, axes with the largest variance first."""
        ids = sorted(answers)
        if settings.solver.contains and all(cid in server.told for cid in ids):
            sizes = [np.linalg.norm(answers[cid].products) / server.told[cid][0] for cid in ids]
            server, _ = set_aside(server, ids, far_sizes(np.array(sizes), MOST_PRODUCTS))
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
