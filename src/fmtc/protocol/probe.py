"""Phase `probe`: whether the mixture or the graph view suits the rows better, judged by neighbours, without labels."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..client import ClientState, stream
from ..errors import DataError
from ..kernels.lift import NEIGHBORS, shows_shapes
from ..refit import Silo, refit
from ..server import ServerState
from ..settings import Settings
from .alone import closed_share
from .base import Array, Phase, how_many, number
from .conclude import CONCLUDE
from .moments import columns_of

SHAPE_ROWS, MANY_ROWS = 1000, 400  # rows of a silo that are looked at: for shapes, and where columns are many
MIN_GAIN = 0.05  # of neighbours in the same cluster, beyond chance, by which a mixture of many columns must be better
MIN_ENTROPY = 0.65  # of its clusters, as a part of that of even ones: one giant cluster agrees with itself


class Probe(Phase):
    """Each silo compares the mixture with its own graph view, on some of its rows."""

    name = "probe"
    doing = "comparing the two views"
    sums = True
    resumes = True
    pure = True
    Ask = CONCLUDE.Ask  # the mixture's parameters

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """How one client's rows look in both views."""

        shapes: bool = number(
            "whether rows fall into parts that hardly touch and that no ellipse follows, such as rings",
            "Exactly that.", kind="flag",
        )  # fmt: skip
        gain: float = number(
            "share of neighbours in the same cluster, beyond chance: mixture less graph view",
            "In which view the silo's clusters are closed.",
        )  # fmt: skip
        entropy: float = number("of the mixture's cluster sizes, 1 for equal ones", "How uneven its clusters are.")

    def times(self, server: ServerState, settings: Settings) -> int:
        """Once, where the view is open: many columns, or few that may be lifted."""
        return int(server.view is None and server.mixture is not None and _is_open(server))

    def asks(self, server: ServerState, settings: Settings) -> dict[str, Any]:
        """The mixture as it stands."""
        return CONCLUDE.asks(server, settings)

    def reply(self, client: ClientState, ask: Any, settings: Settings, round_no: int) -> tuple[ClientState, Answer]:
        """Cluster some rows in both ways."""
        judged, _ = CONCLUDE.reply(replace(client, on_trial=True), ask, settings, round_no)
        assert judged.model is not None
        many = client.axes is not None
        rows = _looked_at(client, settings, MANY_ROWS if many else SHAPE_ROWS)
        if len(rows) <= client.k:  # hardly any is complete
            return client, self.Answer(shapes=False, gain=0.0, entropy=1.0)
        X = client.X[rows]
        mixed = judged.model.assign(X)
        sizes = np.bincount(mixed) / len(mixed)
        sizes = sizes[sizes > 0]
        k = max(client.k, len(sizes))
        entropy = float(-(sizes * np.log(sizes)).sum() / np.log(k)) if k > 1 else 1.0
        shapes, gain = False, 0.0
        try:
            alone = refit(_plain(client, settings), None, X, units=client.units)
        except DataError:  # rows that are all equal: they speak for neither view
            pass
        else:
            assert alone.client.rows is not None
            graphed, points = alone.labels, alone.client.rows.X
            shapes = not many and shows_shapes(points, graphed, mixed)
            gain = closed_share(points, mixed, NEIGHBORS) - closed_share(points, graphed, NEIGHBORS) if many else 0.0
        return client, self.Answer(shapes=bool(shapes), gain=float(gain), entropy=entropy)

    def impossible(self, server: ServerState, answers: Mapping[str, Answer], settings: Settings) -> dict[str, str]:
        """Shares beyond 1."""
        return {
            cid: f"has gain {answer.gain:g} and entropy {answer.entropy:g}, which are no shares"
            for cid, answer in answers.items()
            if not (abs(answer.gain) <= 4 and -1e-6 <= answer.entropy <= 1 + 1e-6)
        }

    def reduce(self, server: ServerState, answers: MutableMapping[str, Answer], settings: Settings) -> ServerState:
        """Decide."""
        said = [answers[cid] for cid in sorted(answers)]
        view, why = _verdict(server, said, how_many(answers), columns_of(server, settings))
        return replace(server, view=view, why=why)


def _looked_at(client: ClientState, settings: Settings, limit: int) -> Array:
    """Numbers of the rows that are compared, at most `limit`; where columns are few, complete rows only.

    The graph view fills missing cells with the mean, which makes parts of such rows that are no shapes.
    """
    rows = np.arange(client.X.shape[0])
    if client.axes is None:
        rows = np.flatnonzero(~np.isnan(client.X).any(axis=1))
    if len(rows) > limit:
        rows = np.sort(stream(settings.seed, client.client_id, "probe").choice(rows, limit, replace=False))
    return rows


def _plain(client: ClientState, settings: Settings) -> Silo:
    """The silo with plain k-means at the end; with it, and with the units of the run, `MIN_GAIN` was chosen."""
    solver = replace(settings.solver, final="kmeans")
    return Silo(client.client_id, client.k, replace(settings, view="graph", solver=solver))


def _is_open(server: ServerState) -> bool:
    return server.lifted or server.wide


def _verdict(server: ServerState, said: list[Any], m: int, d: int) -> tuple[str, str]:
    if not server.wide:
        seen = sum(answer.shapes for answer in said)
        if 2 * seen >= m:
            return "graph", f"rows of {seen} of {m} silos fall into parts that are no ellipses"
        return "mixture", f"{d} columns, and no shapes that a mixture cannot follow"
    gain, entropy = (sum(float(getattr(answer, name)) for answer in said) / m for name in ("gain", "entropy"))
    better = "as many neighbours share a cluster as in the graph view"
    if abs(gain) >= 0.005:
        more = "more" if gain > 0 else "fewer"
        better = f"{abs(100 * gain):.0f} % {more} neighbours share a cluster than in the graph view"
    if gain >= MIN_GAIN and entropy >= MIN_ENTROPY:
        return "mixture", f"{d} columns, but in the mixture {better}"
    if gain >= MIN_GAIN:
        return "graph", f"{d} columns, and the mixture has one giant cluster"
    return "graph", f"{d} columns, and in the mixture {better}"


PROBE = Probe()
