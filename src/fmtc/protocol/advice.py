"""How many clusters: the phases that collect evidence from all silos, without a label and without a round.

moments   each client sums up its columns                          only where all clients scale columns alike
rescale   columns take the common units
hello     each client counts its rows; the server decides which numbers of clusters are compared
spectrum  eigenvalues and large parts of each client's graph
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import DataError
from ..kernels.embedding import large_parts, spectral_start
from ..kernels.graph import build_graph
from ..privacy.protection import Protection
from ..settings import Settings
from .base import Answers, Array, Content, Phase, above, array, number
from .graph.opening import Hello
from .graph.state import GraphServer
from .graph.view import GraphView
from .state import ClientState, become, open_client, some_rows, stream, with_rows
from .units import MOMENTS, RESCALE

ROWS = 1200  # of a client that are looked at, at most
MOST = 30  # clusters that are compared by default, at most
ROWS_PER_CLUSTER = 4  # in the smallest client, that a number of clusters needs to be compared
AUTO = "auto"


@dataclass(frozen=True)
class AdviceSettings(Settings):
    """Settings of a search for the number of clusters; `n_clusters` is the largest that is compared."""

    n_clusters: int = MOST
    lowest: int = 2  # number of clusters that is compared
    fixed: bool = False  # the largest one is that of the user: fewer rows are an error, and do not lower it


def range_of(value: Any) -> tuple[int, int] | None:
    """Lowest and highest number of clusters of a range; None for ``"auto"``, which leaves it to the number of rows.

    Parameters
    ----------
    value : None, "auto", a text such as "3..12", or a pair of int

    Examples
    --------
    >>> from fmtc.protocol.advice import range_of
    >>> range_of("3..12")
    (3, 12)
    >>> range_of("12..3")
    Traceback (most recent call last):
    ...
    ValueError: the range 12..3 is empty: give the smaller number first
    """
    if value is None or (isinstance(value, str) and value == AUTO):
        return None
    lowest, highest = (int(k) if isinstance(k, np.integer) else k for k in _pair(value))
    if type(lowest) is not int or type(highest) is not int:
        raise TypeError(f"a range of numbers of clusters is two whole numbers, such as 2 and 12, got {value!r}")
    if lowest < 2:
        raise ValueError(f"a range of numbers of clusters begins at 2 or above, got {lowest}..{highest}")
    if highest < lowest:
        raise ValueError(f"the range {lowest}..{highest} is empty: give the smaller number first")
    return lowest, highest


def _pair(value: Any) -> Sequence[Any]:
    """Two values, from a text or a pair."""
    if isinstance(value, str):
        low, dots, high = value.partition("..")
        if dots and low.strip().isdecimal() and high.strip().isdecimal():
            return int(low), int(high)
        raise ValueError(f'a range of numbers of clusters is written as "3..12", or "auto", got {value!r}')
    if not hasattr(value, "__len__") or len(value) != 2:
        raise TypeError(f'a range of numbers of clusters is "auto", a text such as "3..12" or a pair, got {value!r}')
    return value


def advice_settings(settings: Settings, k_range: tuple[int, int] | None) -> AdviceSettings:
    """Settings of the search that comes before a run with these settings.

    Columns are not lifted: eigengaps of the lifted ones were further from the truth (vowels, WISDM).
    """
    if settings.privacy is not None:
        raise ValueError(
            "the search for a number of clusters shows the server what each silo alone has found, which privacy "
            "forbids: give n_clusters as a number"
        )
    low, high = k_range or (2, MOST)
    return become(
        settings, AdviceSettings, n_clusters=high, lowest=low, fixed=k_range is not None, view="graph", lift=False
    )


@dataclass(frozen=True, kw_only=True)
class AdviceServer(GraphServer):
    """The server that knows who is there."""

    sizes: Mapping[str, int]  # rows of each client that are looked at
    ks: tuple[int, ...]  # numbers of clusters that are compared
    eigenvalues: Mapping[str, Array] = field(default_factory=dict)  # e each
    large: Mapping[str, int] = field(default_factory=dict)  # number of large parts of each graph


# ------------------------------------------------------------------------------------------------------------- phases


class Counted(Hello):
    """Who is there, and which numbers of clusters so many rows allow."""

    def reduce(self, server: Any, answers: Answers, settings: Any) -> AdviceServer:
        """As before a run; then at most one cluster for four rows of the smallest client."""
        sizes = {cid: min(ROWS, int(answers[cid].n_samples)) for cid in sorted(answers)}
        found = super().reduce(server, answers, settings)
        return become(found, AdviceServer, sizes=sizes, ks=compared(sizes, settings))


def compared(sizes: Mapping[str, int], settings: AdviceSettings) -> tuple[int, ...]:
    """Numbers of clusters that can be compared in clients of these sizes.

    Raises
    ------
    DataError
        If the smallest client has too few rows.
    """
    smallest = min(sizes, key=lambda cid: (sizes[cid], cid))
    n, highest = sizes[smallest], settings.n_clusters
    wanted = highest if settings.fixed else settings.lowest + 1
    if n < ROWS_PER_CLUSTER * wanted:
        raise DataError(
            f"silo {smallest!r} has {n} rows, and {wanted} clusters cannot be compared with fewer than "
            f"{ROWS_PER_CLUSTER * wanted}: give a range that ends at {n // ROWS_PER_CLUSTER}, or leave this silo out"
            if n >= ROWS_PER_CLUSTER * (settings.lowest + 1)
            else f"silo {smallest!r} has {n} rows, too few to compare any numbers of clusters: "
            f"{ROWS_PER_CLUSTER * (settings.lowest + 1)} are needed. Leave this silo out, or say how many clusters "
            "you want"
        )
    return tuple(range(settings.lowest, min(highest, n // ROWS_PER_CLUSTER) + 1))


def _are_numbers(ks: Any, sizes: Mapping[str, int]) -> str | None:
    right = len(ks) and ks[0] >= 2 and (np.diff(ks.astype(np.int64)) > 0).all()
    return None if right else "does not name numbers of clusters, in order"


class Spectrum(Phase):
    """The lowest eigenvalues and the large parts of each client's graph."""

    name = "spectrum"
    doing = "looking at its graph"
    protect = Protection("Eigenvalues and a count, of the whole graph.")
    pure = True
    threads = True
    concludes = True

    class Ask(Content):
        """What is compared."""

        ks: Array = array(
            "v", "numbers of clusters that are compared", "A quarter of the rows of the smallest silo, if that is "
            "below the largest number asked for.", kind="int", check=_are_numbers,
        )  # fmt: skip

    class Answer(Content):
        """The spectrum of one client."""

        eigenvalues: Array = array(
            "e", "lowest eigenvalues of the silo's neighbour graph, one more than the largest number of clusters",
            "Into how many parts the silo's rows fall, and how clearly.",
        )  # fmt: skip
        parts: int = number(
            "number of large parts of the silo's neighbour graph, with few links between them or none",
            "Exactly that.", kind="count", check=above(0),
        )  # fmt: skip

    def ask(self, server: AdviceServer, settings: AdviceSettings) -> Ask:
        """The numbers of clusters."""
        return self.Ask(ks=np.array(server.ks, np.int64))

    def reply(self, client: ClientState, ask: Any, settings: AdviceSettings, round_no: int) -> tuple[ClientState, Any]:
        """The graph, its lowest eigenvalues and its large parts."""
        cid, ks = client.client_id, tuple(int(k) for k in ask.ks)
        rows = with_rows(client, settings).rows
        if rows.shape[0] > ROWS:  # here and not earlier: sums over all rows less sums over some would tell of the rest
            rows = replace(rows, X=rows.X[some_rows(rows.shape[0], ROWS, settings.seed, cid, "advice")])
        if rows.shape[0] < ROWS_PER_CLUSTER * ks[-1]:
            raise DataError(f"silo {cid!r} has {rows.shape[0]} rows, too few to look for {ks[-1]} clusters")
        graph = build_graph(rows.X, settings.n_neighbors, settings.bandwidth, settings.nonmutual_weight)
        F = spectral_start(graph, ks[-1] + 1, stream(settings.seed, cid, "start"))
        lam = np.einsum("ij,ij->j", F, graph.to_client_order(graph.laplacian @ graph.to_graph_order(F)))
        lam = np.maximum.accumulate(np.clip(lam, 0.0, 2.0).astype(np.float64))
        return client, self.Answer(eigenvalues=lam, parts=large_parts(F, lam, settings.n_neighbors))

    def impossible(self, server: AdviceServer, client_id: str, answer: Any, settings: Any) -> str | None:
        """Eigenvalues that no normalised Laplacian has, and others than asked for."""
        lam = answer.eigenvalues
        if len(lam) != server.ks[-1] + 1:
            return "is of other numbers of clusters than asked for"
        wrong = lam.min() < 0 or lam.max() > 2 or (np.diff(lam) < 0).any()
        return "has no eigenvalues of a graph, in order" if wrong else None

    def reduce(self, server: AdviceServer, answers: Answers, settings: AdviceSettings) -> AdviceServer:
        """Keep what came."""
        found = {cid: answers[cid].eigenvalues for cid in sorted(answers)}
        return replace(server, eigenvalues=found, large={cid: answers[cid].parts for cid in found})


SPECTRUM, COUNTED = Spectrum(), Counted()


# ------------------------------------------------------------------------------------------------------------ methods


class AdviceMethod(GraphView):
    """Evidence on the number of clusters; no rounds, and no model is kept."""

    name = "fmtc-advice"
    opening: tuple[Phase, ...] = (MOMENTS, RESCALE, COUNTED, SPECTRUM)
    closing: tuple[Phase, ...] = ()
    settings_type = AdviceSettings
    saved: tuple[str, ...] = ()
    changeable: tuple[str, ...] = ()
    stopping: tuple[str, ...] = ()
    keeps = False
    loops: tuple[Phase, ...] = ()

    def open_client(self, client_id: str, X: Any, settings: Any, device: str) -> ClientState:
        """A client at rest."""
        few = replace(settings, n_clusters=2, lowest=2, fixed=False)  # whether rows are enough, the server says
        return replace(open_client(client_id, X, few, device), k=settings.n_clusters, on_trial=True)

    def common(self, server: Any) -> dict[str, Any]:
        """Evidence of all clients, in their order: what `fmtc.advice.advice_of` reads."""
        ids = list(server.client_ids)
        return {
            "ks": np.array(server.ks, np.int64),
            "sizes": np.array([server.sizes[cid] for cid in ids], np.int64),
            "eigenvalues": np.array([server.eigenvalues[cid] for cid in ids]),
            "parts": np.array([server.large[cid] for cid in ids], np.int64),
        }


METHOD = AdviceMethod()
