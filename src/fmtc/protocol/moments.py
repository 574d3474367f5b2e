"""Phase `moments`: each client sums up its columns, so that all clients can scale them alike."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace

import numpy as np

from ..client import ClientState
from ..errors import RefusedError
from ..kernels import scaling
from ..server import ServerState, shared_width
from ..settings import POOLED_SCALES, Settings
from .base import Array, Nothing, Phase, array, number


class Moments(Phase):
    """Sums over the rows of each client, column by column; only where columns are scaled by all clients' rows."""

    name = "moments"
    doing = "summing up its columns"
    pure = True
    parallel = False

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Sums of one client."""

        n_samples: int = number("number of rows", "Exactly that.", kind="count")
        means: Array | None = array(
            "D", "column means", 'Exactly that: a typical row of the silo; for a column of 0 and 1, the share of ones. '
            "Two runs that differ by one row give that row.", when='scale="global", dense rows',
        )  # fmt: skip
        squares: Array | None = array(
            "D", "for each column, the sum of squared deviations from its mean (of squared entries, for sparse rows)",
            "The spread of each column and which columns are constant or empty; with `means`, the values of a column "
            "with two rows.", when='scale="global"',
        )  # fmt: skip
        document_counts: Array | None = array(
            "D", "in how many rows each column is filled",
            "For texts, how many documents hold each (hashed) word; see [Words](#words).", kind="real",
            when='scale="tfidf"',
        )  # fmt: skip

        def wrong(self) -> str | None:
            """What no client can have summed up: nothing, or columns of two kinds."""
            if (self.squares is None) == (self.document_counts is None):
                return "either squares or document_counts must be there"
            return None if self.means is None or self.squares is not None else "means come with squares only"

    def times(self, server: ServerState, settings: Settings) -> int:
        """Once, where the clients agree on the scale of the columns."""
        return int(settings.scale in POOLED_SCALES)

    def reply(self, client: ClientState, ask: Nothing, settings: Settings, round_no: int) -> tuple[ClientState, Answer]:
        """Sum up the columns as they came."""
        n = client.X.shape[0]
        if settings.scale == "tfidf":
            return client, self.Answer(n_samples=n, document_counts=scaling.document_counts(client.X))
        if settings.scale not in POOLED_SCALES:
            raise RefusedError(f"phase {self.name!r} is not part of a run with scale={settings.scale!r}")
        own = scaling.moments(client.X)
        return client, self.Answer(n_samples=own.n, means=own.means, squares=own.squares)

    def reduce(self, server: ServerState, answers: MutableMapping[str, Answer], settings: Settings) -> ServerState:
        """Common units for the columns of all clients."""
        said = {cid: answers[cid] for cid in sorted(answers)}
        name = "document_counts" if settings.scale == "tfidf" else "squares"
        sums: dict[str, Array] = {cid: getattr(answer, name) for cid, answer in said.items()}
        silent = [cid for cid in said if sums[cid] is None]
        if silent:
            raise RefusedError(
                f"client {', '.join(map(repr, silent))} sent no {name}, which scale={settings.scale!r} needs"
            )
        rows = {cid: answer.n_samples for cid, answer in said.items()}
        width = shared_width({cid: len(of_columns) for cid, of_columns in sums.items()})
        if settings.scale == "tfidf":
            counts = sum(sums.values(), np.zeros(width, int))
            return replace(server, scaling=scaling.tfidf(sum(rows.values()), counts, settings.solver.max_features))
        pooled = scaling.pool(scaling.Moments(rows[cid], said[cid].means, sums[cid]) for cid in said)
        return replace(server, scaling=scaling.standardize(pooled))


MOMENTS = Moments()
