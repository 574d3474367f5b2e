"""Phase `rescale`: the columns of all clients take the common units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..client import ClientState, with_rows
from ..errors import RefusedError
from ..kernels.encoding import expanded_width
from ..kernels.lift import draw
from ..kernels.scaling import Moments, Scaling
from ..server import ServerState
from ..settings import Settings
from ..state import become
from .base import Array, Nothing, Phase, above, array, number
from .graph.state import Embedded
from .mixture.state import Tallied
from .moments import needs_moments


def _are_columns(keep: Any, sizes: Mapping[str, int]) -> str | None:
    right = keep.size and np.all(np.diff(keep.astype(np.int64)) > 0) and keep[0] >= 0 and keep[-1] < sizes["D"]
    return None if right else f"does not name columns out of {sizes['D']}, in order"


class Rescale(Phase):
    """What every client does to its columns; the same for all."""

    name = "rescale"
    doing = "scaling its columns"
    parallel = False
    rebuilds = True

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Common units of the columns; c of them are kept."""

        shift: Array | None = array(
            "c", "column means of all rows of all clients, which are subtracted",
            "With its own means and the numbers of rows, the mean of all others; with two clients, that of the other.",
            when="all rows dense",
        )  # fmt: skip
        stretch: Array = array(
            "c", "what the columns are divided by: standard deviations, root mean squares (sparse rows), or 1",
            "As `shift`, for the spread; for texts, how common each (hashed) word is over all silos.", check=above(0),
        )  # fmt: skip
        keep: Array | None = array(
            "c", "numbers of the columns that are kept",
            "Which columns are filled in at least two and at most half of all rows, and are among the fullest; "
            "see [Words](#words).", kind="int", when='scale="tfidf"', check=_are_columns,
        )  # fmt: skip

        lift: bool | None = number(
            "whether the graph view replaces columns by random features that all clients draw from the seed",
            "Whether columns are few.", kind="flag", when="where columns have common units",
        )  # fmt: skip

    def times(self, server: ServerState, settings: Settings) -> int:
        """Once, where the clients agreed on units of the columns, or on their means."""
        return int(server.scaling is not None)

    def asks(self, server: ServerState, settings: Settings) -> dict[str, Any]:
        """The same units for everyone."""
        units = server.scaling
        if units is None:
            raise RuntimeError("columns cannot be scaled before they are summed up")
        ask = self.Ask(shift=units.shift, stretch=units.stretch, keep=units.keep, lift=server.lifted or None)
        return dict.fromkeys(server.client_ids, ask)

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[ClientState, Nothing]:
        """Bring the rows, as they came, to the common units."""
        d = expanded_width(settings.levels, client.X.shape[1])
        if not needs_moments(settings):
            raise RefusedError(f"phase {self.name!r} is not part of a run with scale={settings.scale!r}")
        fits = ask.keep is not None if settings.scale == "tfidf" else ask.keep is None and len(ask.stretch) == d
        if not fits:
            raise RefusedError(f"the common units do not fit {d} columns")
        scaling = Scaling(ask.stretch, ask.shift, ask.keep)
        lift = None
        if ask.lift:
            if settings.solver.lift is False:
                raise RefusedError("the server wants to lift columns in a run that does not lift them")
            lift = draw(Moments(1, np.zeros(d), np.ones(d)), settings.seed)
        saved = next((kind for kind in (Embedded, Tallied) if isinstance(client, kind)), ClientState)
        client = become(client, saved, scaling=scaling, lift=lift)
        if settings.view == "graph" and saved is ClientState:
            client = with_rows(client, settings)
        return client, Nothing()


RESCALE = Rescale()
