"""FMTC with ``privacy="sums"``: the views of which the server sees sums over clients, and nothing of a single one.

cards, roster  each client makes a key for the run; all check who takes part
moments        columns are summed up, in two turns: their means, then the deviations from these
...            the phases of the view, their answers masked
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...errors import DataError, InputError
from ...kernels import scaling
from ...settings import Settings
from ..auto import PROBE, AutoView
from ..base import Answers, Array, Content, Phase, Weights, array, how_many, number
from ..graph.finish import SETTLE
from ..graph.number import HOME_NUMBER
from ..graph.opening import PREPARE
from ..graph.view import GraphView, known
from ..mixture.em import EM
from ..mixture.opening import AXES, COORDINATES, SEED
from ..mixture.view import HOME_CONCLUDE, MixtureView
from ..state import ServerState, become, refuse_weights
from ..units import RESCALE, Moments, agreed, agreed_words
from .cards import CARDS, ROSTER
from .graph import FRAME, HOME_FINISH, MATCH, TOTAL_HELLO, TOTAL_ROUND
from .masking import FEWEST, ONLY_SUM, Masking, largest


def refuse_large(rows: Mapping[str, Any], names: Sequence[str] | None) -> None:
    """Raise `DataError`, with silo and column, for rows whose squares do not fit into sums that nobody can open alone.

    Parameters
    ----------
    rows : mapping of client id to array of shape (n, d)
    names : sequence of d str, optional
        Of the columns.
    """
    room = largest(TotalMoments, len(rows))
    for cid, X in rows.items():
        size = abs(X).max(axis=0) if sp.issparse(X) else np.fmax.reduce(np.abs(X), axis=0, initial=0.0)
        size = np.asarray(size.todense(), np.float64).ravel() if sp.issparse(size) else np.asarray(size, np.float64)
        j = int(size.argmax())
        if size[j] >= np.sqrt(room / X.shape[0]):
            column = repr(names[j]) if names is not None else f"{j}, counted from 0,"
            raise DataError(
                f"silo {cid!r}: column {column} has values up to {size[j]:.1e}; with privacy='sums' they must be "
                f"below {np.sqrt(room / X.shape[0]):.1e}. Correct the value, rescale the column in all silos, or "
                "leave it out."
            )


@dataclass(frozen=True, kw_only=True)
class Averaged(ServerState):
    """The server that knows the means of columns, while deviations from them are summed."""

    means: Array  # d


class TotalMoments(Moments):
    """Columns of all clients together: first their means, then the sums of squared deviations from these."""

    turns = 2
    protect = ONLY_SUM
    sums = True
    limbs = 4  # columns may be in any unit
    fraction = 128

    class Ask(Content):
        """Nothing at first, then the means."""

        means: Array | None = array("d", "column means of all rows", "Exactly that.", when="the second time")

    class Answer(Content):
        """Sums of one client."""

        n_samples: int = number("number of rows", "How many rows all silos have.", kind="count")
        totals: Array | None = array(
            "d", "column sums; of a category, the number of rows with each level",
            "In the sum: the mean of each column.", when="the first time; dense rows",
        )  # fmt: skip
        squares: Array | None = array(
            "d", "sums of squared deviations from the common means (of squared entries, for sparse rows)",
            "In the sum: the spread of each column.", when="the second time, or the first for sparse rows",
        )  # fmt: skip
        filled: Array | None = array(
            "d", "number of filled cells of each column", "In the sum: how often each column is measured.", kind="int",
            when="dense rows",
        )  # fmt: skip
        in_one_unit: bool | None = number(
            "whether rows have length 1, or hold many zeros and no negative number, as counts do",
            "In the sum: at how many silos they do.", kind="flag", when='scale="auto"',
        )  # fmt: skip
        document_counts: Array | None = array(
            "d", "in how many rows each column is filled",
            "In the sum: for texts, how many documents hold each (hashed) word; see [Words](#words).", kind="real",
            when='scale="tfidf"',
        )  # fmt: skip

    def times(self, server: ServerState, settings: Settings) -> int:
        """Where clients agree on units: once, and once more where columns have means."""
        return super().times(server, settings) * (2 if isinstance(server, Averaged) else 1)

    def ask(self, server: ServerState, settings: Settings) -> Ask:
        """The means, once they are known."""
        return become(server, self.Ask)

    def said(self, own: scaling.Moments, ask: Any) -> dict[str, Any]:
        """Sums of columns, then of squared deviations from the common means."""
        if own.means is None:
            return {"squares": own.squares}
        counts = np.full(len(own.means), own.n) if own.counts is None else own.counts
        if ask.means is None:
            return {"totals": own.means * counts, "filled": counts}
        return {"squares": own.squares + counts * (own.means - ask.means) ** 2, "filled": counts}

    def reduce(self, server: ServerState, answers: Answers, settings: Settings) -> ServerState:
        """Means, then common units for the columns of all clients."""
        (total,) = answers.values()
        sums = next(part for part in (total.totals, total.squares, total.document_counts) if part is not None)
        server = replace(server, n_samples=total.n_samples, n_features=len(sums))
        if total.document_counts is not None:
            return agreed_words(server, np.rint(total.document_counts).astype(np.int64), settings)
        if total.totals is not None and total.filled is not None:
            return become(server, Averaged, means=total.totals / np.maximum(total.filled, 1))
        in_one_unit = total.in_one_unit == how_many(answers)
        whole = total.filled is None or bool((total.filled == total.n_samples).all())
        counts = None if whole else total.filled
        pooled = scaling.Moments(total.n_samples, getattr(server, "means", None), sums, counts)
        return agreed(server, pooled, in_one_unit, settings)


class _Sums(GraphView):
    """What the three methods have in common."""

    def open_server(self, client_ids: Sequence[str], settings: Settings, weights: Weights) -> ServerState:
        """The server before the first message; at least three clients, and all count alike."""
        refuse_weights(weights)
        refuse_few(client_ids)
        return super().open_server(client_ids, settings, None)


def refuse_few(client_ids: Sequence[str]) -> None:
    """Raise `InputError` where a sum would hide nothing."""
    if len(client_ids) < FEWEST:
        raise InputError(
            f"privacy needs at least {FEWEST} silos, got {len(client_ids)}: of two, each knows the other's part of a "
            "sum. Use privacy=None with them, or find another silo."
        )


MASKED = {
    phase: Masking(phase)
    for phase in (AXES, COORDINATES, SEED, EM, PROBE, TOTAL_HELLO, TOTAL_ROUND, FRAME, MATCH, SETTLE)
}
MOMENTS = Masking(TotalMoments())
_FIRST: tuple[Phase, ...] = (CARDS, ROSTER, MOMENTS, RESCALE)


class GraphSums(_Sums):
    """The graph view with the subspace coupling, by sums."""

    name = "fmtc-sums"
    opening = (*_FIRST, MASKED[TOTAL_HELLO], PREPARE)
    loop = MASKED[TOTAL_ROUND]
    closing = (MASKED[FRAME], HOME_FINISH, MASKED[MATCH], MASKED[SETTLE], HOME_NUMBER)

    def common(self, server: Any) -> dict[str, Any]:
        """Directions of the consensus, and how far it shrinks them."""
        return {"basis": server.basis, "ratio": server.ratio} | known(kappa=server.kappa)


class MixtureSums(_Sums, MixtureView):
    """The mixture view, by sums."""

    name = "fmtc-mixture-sums"
    opening = (*_FIRST, MASKED[AXES], MASKED[COORDINATES], MASKED[SEED])
    loop = MASKED[EM]
    closing = (HOME_CONCLUDE,)


class AutoSums(_Sums, AutoView):
    """The mixture view, and where rows say so the graph view after it, by sums."""

    name = "fmtc-auto-sums"


GRAPH, MIXTURE = GraphSums(), MixtureSums()
AUTO = AutoSums(MIXTURE, GRAPH, MASKED[PROBE])
