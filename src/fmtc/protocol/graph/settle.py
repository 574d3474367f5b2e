"""Phase `settle`: rounds of the mixture over the projections of the graph view."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import RefusedError
from ...kernels.alignment import numbers_of, widening
from ...kernels.centers import label_sums
from ...linalg.arrays import asarray_like, double, is_tensor, to_numpy
from ...mixture import Cells
from ...mixture.pooling import Pool
from ...mixture.steps import Statistics
from ...server import noted
from ...settings import Settings
from ...state import reached
from ..base import REPEATS, Array, Phase, array, number
from ..mixture.em import PROTECT, Answer, asked, impossible_rounds, next_round, one_round
from ..mixture.em import Ask as Parameters
from ..mixture.state import Mixing, Mixture
from .state import Clustered, Clusters, Finished

SETTLE_STEPS = 60


def is_partial_order(order: Any, sizes: Mapping[str, int]) -> str | None:
    """Accept orders of the client's clusters 0, 1, 2, ..., with -1 in place of concepts that it lacks."""
    k = sizes.get("k", len(order))
    right = np.array_equal(np.sort(order), np.maximum(np.arange(len(order)) + k - len(order), -1)) and k <= len(order)
    return None if right else f"does not give each of {k} clusters a number of its own"


def order_field() -> Any:
    """Which cluster takes which number."""
    return array(
        "K", "the client's cluster that takes each common number, -1 for a concept that it lacks",
        "How its order of cluster sizes compares with that of the others.", kind="int", check=is_partial_order,
    )  # fmt: skip


def partial_field() -> Any:
    """Whether axes become concepts."""
    return number(
        "whether clients lack concepts: axes of projections are then concepts", "That a silo lacks one.", kind="flag",
        when="where clients lack concepts",
    )  # fmt: skip


class Settle(Phase):
    """A round of the mixture over projections: the last stage of the graph view."""

    name = "settle"
    doing = "finding its clusters with the others"
    protect = PROTECT
    Answer = Answer

    @dataclass(frozen=True, kw_only=True)
    class Ask(Parameters):
        """Common parameters, and which clusters are the same."""

        step: int = number("which round of the mixture this is", "How far the mixture is.", kind="count")
        order: Array = order_field()
        partial: bool | None = partial_field()

    def times(self, server: Mixing, settings: Settings) -> int:
        """Until the likelihood hardly changes."""
        if server.mixture is None:
            return 0
        return server.mixture.rounds if server.mixture.settled else SETTLE_STEPS

    def limit(self, settings: Settings) -> int:
        """All rounds, restarts included."""
        return REPEATS * SETTLE_STEPS if settings.solver.mixes else 0

    def asks(self, server: Any, settings: Settings) -> dict[str, Any]:
        """The same parameters for everyone."""
        last = vars(asked(server.mixture)) | {"step": server.mixture.rounds, "partial": is_partial(server)}
        return {cid: self.Ask(**last, order=order) for cid, order in server.orders.items()}

    def reply(self, client: Any, ask: Any, settings: Settings, round_no: int) -> tuple[Clustered, Any]:
        """E-step over the normalised projections; asked twice for the same round, it gives the same answer.

        Who missed rounds continues with its own last sums; who missed all, with its k-means clusters.
        """
        client = reached(client, Clustered)
        own = widened(client.own, ask)
        if 0 < ask.step < own.step:
            raise RefusedError(f"round {ask.step} of the mixture cannot follow round {own.step}")
        before = own.before if ask.step == own.step else own.statistics
        if before is None or not ask.step:
            before = first_statistics(own, ask.order)
        cells = Cells(double(own.E), np.zeros((own.E.shape[0], 0), np.int64)) if own.cells is None else own.cells
        after, answer = one_round(cells, ask, [before], settle_pool(settings, cells.n), ask.order >= 0)
        own = replace(own, cells=cells, before=before, statistics=after[0], step=ask.step)
        return replace(client, own=own), answer

    def impossible(self, server: Any, answers: Mapping[str, Any], settings: Settings) -> dict[str, str]:
        """Sums of no rows."""
        return impossible_rounds(server.mixture, answers, (), {})

    def reduce(self, server: Any, answers: MutableMapping[str, Any], settings: Settings) -> Any:
        """Add up and pool."""
        mixture: Mixture = server.mixture
        before = mixture.scores[0] if mixture.rounds else -np.inf
        pool = settle_pool(settings, words=server.words)
        found = next_round(server, mixture, answers, pool, contains=settings.solver.contains)
        mixture = found.mixture
        done = abs(found.score - before) < SETTLED or mixture.rounds >= SETTLE_STEPS
        mixture, parts = replace(mixture, settled=bool(done)), {**server.parts, **found.parts}
        return replace(server, mixture=mixture, held=noted(server.held, found.capped), parts=parts)


def first_statistics(own: Clusters, order: Array) -> Statistics:
    """Sums of the projections in each of the client's k-means clusters, in the common order."""
    k = len(order)
    if is_tensor(own.E):  # of all concepts: nothing is missing
        labels = asarray_like(numbers_of(order), own.labels)[own.labels]
        sums, counts = map(to_numpy, label_sums(own.E, labels, k))
        return Statistics(counts, sums, np.zeros((k, 0)), np.zeros(sums.shape[1]))
    labels = numbers_of(order)[to_numpy(own.labels)]
    E = np.nan_to_num(to_numpy(double(own.E)))
    one = np.zeros((len(E), k))
    one[np.arange(len(E)), labels] = 1
    return Statistics(one.sum(axis=0), one.T @ E, np.zeros((k, 0)), np.zeros(E.shape[1]))


def is_partial(server: Finished) -> bool | None:
    """Whether clients lack concepts, as questions say it."""
    return None if server.has is None else True


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
