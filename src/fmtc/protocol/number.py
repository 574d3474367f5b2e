"""Phase `number`: clusters take the common numbers, and each client its centres, shared or its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..client import ClientState, input_rows
from ..errors import RefusedError
from ..inference import assign
from ..kernels.centers import leave_one_out_distance, mean_distance
from ..kernels.objective import dot
from ..linalg.arrays import asarray_like, to_device_of, to_numpy
from ..server import ServerState
from ..settings import Settings
from .base import Array, Nothing, Phase, array, required

OWN_CENTER_RATIO = 0.9  # own centres win where rows are nearer to them than this part of the way to the shared ones


def is_order(order: Any, sizes: Mapping[str, int]) -> str | None:
    """Accept orders of 0, 1, 2, ..."""
    return (
        None if np.array_equal(np.sort(order), np.arange(len(order))) else f"is not an order of {len(order)} clusters"
    )


class Number(Phase):
    """The last message of a run that concerns rows."""

    name = "number"
    doing = "numbering its clusters"

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Common numbers."""

        order: Array = array(
            "k", "the client's cluster that takes each common number",
            "How its order of cluster sizes compares with that of the others.", kind="int", check=is_order,
        )  # fmt: skip
        centers: Array | None = array(
            "k k", "shared centres, after the last step", "As in `gather`.", when="where clients share centres",
        )  # fmt: skip

    def asks(self, server: ServerState, settings: Settings) -> dict[str, Any]:
        """The order of each client, and the shared centres if there are any."""
        return {cid: self.Ask(order=order, centers=server.centers) for cid, order in server.orders.items()}

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[ClientState, Nothing]:
        """Take the common numbers; of the centres, the shared ones unless the client's own are clearly nearer."""
        (own,) = required(client, "own")
        E, solver = own.E, settings.solver
        if ask.centers is not None and not solver.shares_centers:
            raise RefusedError("shared centres came in a run where every client keeps its own")
        model = replace(own.model, centers=own.model.centers[ask.order])
        labels = asarray_like(np.argsort(ask.order), own.labels)[own.labels]
        shared = ask.centers
        if shared is not None and (solver.shared_centers is True or _prefers(E, labels, to_device_of(shared, E))):
            model = replace(model, centers=shared.astype(model.W.dtype))
        if solver.labels_from == "projection":  # the very code of predict, so that ties are broken the same way
            labels = assign(input_rows(client), model)
        gap = E - to_device_of(model.centers, E)[labels]
        model = replace(model, spread=dot(gap, gap) / len(E))
        return replace(client, own=None, model=model, labels=to_numpy(labels)), Nothing()


def _prefers(E: Array, labels: Array, shared: Array) -> bool:
    """Whether shared centres suit these rows: own ones must be clearly nearer, to rows they were not made of."""
    seen = (E != 0).any(axis=1)  # a row of zeros is as far from all centres
    E, labels = E[seen], labels[seen]
    return leave_one_out_distance(E, labels, len(shared)) >= OWN_CENTER_RATIO * mean_distance(E, shared)


NUMBER = Number()
