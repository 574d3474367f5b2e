"""How many clusters: the phases that collect evidence from all silos, without a label and without a round.

moments   each client sums up its columns                          only where all clients scale columns alike
rescale   columns take the common units
hello     each client counts its rows; the server decides which numbers of clusters are compared
spectrum  eigenvalues and large parts of each client's graph; its own models, one of each width from one decomposition
cross     each client labels its rows with models of a few others, and says how far they agree with its own

Models are local: coupled ones agree at any number of clusters, and say nothing about it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from ..client import ClientState, open_client, stream, with_rows
from ..errors import DataError, RefusedError
from ..kernels.embedding import spectral_start
from ..kernels.graph import build_graph
from ..kernels.projection import RidgeFactors
from ..kernels.sweep import Sweep, agreement, large_parts, sweep
from ..privacy.rules import ALWAYS, Protection, SweepCentres
from ..server import ServerState
from ..settings import POOLED_SCALES, Settings, Solver
from .base import Array, Phase, above, array, number, required
from .graph import GraphView
from .hello import Hello
from .method import ClientResult
from .moments import MOMENTS
from .rescale import RESCALE

ROWS = 1200  # of a client that are looked at, at most
MOST = 30  # clusters that are compared by default, at most
ROWS_PER_CLUSTER = 4  # in the smallest client, that a number of clusters needs to be compared
SHOWN = 3  # other clients whose models a client is shown, at most
N_INIT = 3  # restarts of k-means for each number of clusters
AUTO = "auto"


@dataclass(frozen=True)
class AdviceSettings(Settings):
    """Settings of a search for the number of clusters; `n_clusters` is the largest that is compared."""

    n_clusters: int = MOST
    lowest: int = 2  # number of clusters that is compared
    fixed: bool = False  # the largest one is that of the user: fewer rows are an error, and do not lower it

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self.lowest, self.n_clusters)


def check_range(lowest: Any, highest: Any) -> None:
    """Raise an error for numbers of clusters that cannot be compared."""
    for value in (lowest, highest):
        if type(value) is not int:
            raise TypeError(f"a range of numbers of clusters is two whole numbers, such as 2 and 12, got {value!r}")
    if lowest < 2:
        raise ValueError(f"a range of numbers of clusters begins at 2 or above, got {lowest}..{highest}")
    if highest < lowest:
        raise ValueError(f"the range {lowest}..{highest} is empty: give the smaller number first")


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
    pair = value
    if isinstance(value, str):
        low, dots, high = value.partition("..")
        if not (dots and low.strip().isdecimal() and high.strip().isdecimal()):
            raise ValueError(f'a range of numbers of clusters is written as "3..12", or "auto", got {value!r}')
        pair = int(low), int(high)
    if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
        raise TypeError(f'a range of numbers of clusters is "auto", a text such as "3..12" or a pair, got {value!r}')
    lowest, highest = (int(k) if isinstance(k, np.integer) else k for k in pair)
    check_range(lowest, highest)
    return lowest, highest


def advice_settings(settings: Settings, k_range: tuple[int, int] | None) -> AdviceSettings:
    """Settings of the search that comes before a run with these settings.

    Columns are not lifted: eigengaps of the lifted ones were further from the truth (vowels, WISDM).
    """
    if settings.privacy is not None:
        raise ValueError(
            "the search for a number of clusters shows the server what each silo alone has found, which privacy "
            "forbids: give n_clusters as a number"
        )
    own = {f.name: getattr(settings, f.name) for f in fields(Settings)}
    low, high = k_range or (2, MOST)
    lowest = {"n_clusters": high, "lowest": low, "fixed": k_range is not None}
    return AdviceSettings(**own | lowest | {"view": "graph", "solver": replace(settings.solver, lift=False)})


def advice_method(evidence: str, n_clients: int) -> AdviceMethod:
    """What is run for some evidence: where there is one client, and for the spectrum, no model leaves."""
    return SPECTRUM_METHOD if evidence == "spectrum" or n_clients == 1 else METHOD


@dataclass(frozen=True)
class AdviceClient(ClientState):
    """One client between messages."""

    sweep: Sweep | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Evidence:
    """What one client has found: it keeps that in place of a model."""

    ks: Array  # v
    eigenvalues: Array  # e
    agreement: Array = field(default_factory=lambda: np.empty((0, 0)))  # o x v; nobody's models were seen: 0 x 0


@dataclass(frozen=True)
class AdviceServer(ServerState):
    """The server between messages."""

    sizes: Mapping[str, int] = field(default_factory=dict)  # rows of each client that are looked at
    ks: tuple[int, ...] = ()  # numbers of clusters that are compared
    eigenvalues: Mapping[str, Array] = field(default_factory=dict)  # e each
    large: Mapping[str, int] = field(default_factory=dict)  # number of large parts of each graph
    models: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)  # projection and centres
    agreement: Mapping[str, Array] = field(default_factory=dict)  # o x v each


# ------------------------------------------------------------------------------------------------------------- phases


class Counted(Hello):
    """Who is there, and which numbers of clusters so many rows allow."""

    def reduce(self, server: Any, answers: MutableMapping[str, Any], settings: Any) -> AdviceServer:
        """As before a run; then at most one cluster for four rows of the smallest client."""
        sizes = {cid: min(ROWS, int(answers[cid].n_samples)) for cid in sorted(answers)}
        found: Any = super().reduce(server, answers, settings)  # of the server's own class
        return replace(found, sizes=sizes, ks=compared(sizes, settings))


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
            f"client {smallest!r} has {n} rows, and {wanted} clusters cannot be compared with fewer than "
            f"{ROWS_PER_CLUSTER * wanted}: give a range that ends at {n // ROWS_PER_CLUSTER}, or leave this client out"
            if n >= ROWS_PER_CLUSTER * (settings.lowest + 1)
            else f"client {smallest!r} has {n} rows, too few to compare any numbers of clusters: "
            f"{ROWS_PER_CLUSTER * (settings.lowest + 1)} are needed. Leave this client out, or say how many clusters "
            "you want"
        )
    return tuple(range(settings.lowest, min(highest, n // ROWS_PER_CLUSTER) + 1))


def _are_numbers(ks: Any, sizes: Mapping[str, int]) -> str | None:
    right = len(ks) and ks[0] >= 2 and (np.diff(ks.astype(np.int64)) > 0).all() and ks[-1] < sizes.get("e", np.inf)
    return None if right else "does not name numbers of clusters, in order"


class Spectrum(Phase):
    """The lowest eigenvalues and the large parts of each client's graph, and no more."""

    name = "spectrum"
    doing = "looking at its graph"
    protect = Protection("Eigenvalues and a count, of the whole graph.")
    threads = True
    concludes = True
    shows_models = False

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Units of the run, and what is compared."""

        scale: float = number(
            "common factor that gives the rows mean squared norm 1",
            "The mean squared norm of all rows that are looked at; with two clients, one equation about the other's "
            "`n_samples` and `sum_of_squares`.", check=above(0),
        )  # fmt: skip
        ridge: float = number(
            "weight of the ridge in the projection", "The settings of the run, and no more.", check=above(0)
        )
        ks: Array = array(
            "v", "numbers of clusters that are compared", "A quarter of the rows of the smallest client, if that is "
            "below the largest number asked for.", kind="int", check=_are_numbers,
        )  # fmt: skip

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """The spectrum of one client."""

        eigenvalues: Array = array(
            "e", "lowest eigenvalues of the client's neighbour graph, one more than the largest number of clusters",
            "Into how many parts the client's rows fall, and how clearly.",
        )  # fmt: skip
        parts: int = number(
            "number of large parts of the client's rows, whose nearest neighbours are in the same part",
            "Exactly that.", kind="count", check=above(0),
        )  # fmt: skip

    def asks(self, server: AdviceServer, settings: AdviceSettings) -> dict[str, Any]:
        """The same for all."""
        ridge = server.rho * len(server.client_ids) / (2 * settings.alpha)
        ask = self.Ask(scale=server.scale, ridge=float(ridge), ks=np.array(server.ks, np.int64))
        return dict.fromkeys(server.client_ids, ask)

    def reply(
        self, client: AdviceClient, ask: Any, settings: AdviceSettings, round_no: int
    ) -> tuple[AdviceClient, Any]:
        """Graph and lowest eigenpairs; where models are shown, one ridge regression for the models of all widths."""
        if settings.scale in POOLED_SCALES and settings.scale != "auto":
            required(client, "scaling")
        solver, cid, ks = settings.solver, client.client_id, tuple(int(k) for k in ask.ks)
        (rows,) = required(with_rows(client, settings), "rows")
        if rows.shape[0] > ROWS:  # here and not earlier: sums over all rows less sums over some would tell of the rest
            some = stream(settings.seed, cid, "advice").choice(rows.shape[0], ROWS, replace=False)
            rows = replace(rows, X=rows.X[np.sort(some)])
        if rows.shape[0] < ROWS_PER_CLUSTER * ks[-1]:
            raise DataError(f"client {cid!r} has {rows.shape[0]} rows, too few to look for {ks[-1]} clusters")
        graph = build_graph(rows.X, solver.n_neighbors, solver.bandwidth, solver.nonmutual_weight)
        F = spectral_start(graph, ks[-1] + 1, stream(settings.seed, cid, "start"))
        lam = np.einsum("ij,ij->j", F, graph.to_client_order(graph.laplacian @ graph.to_graph_order(F)))
        lam = np.maximum.accumulate(np.clip(lam, 0.0, 2.0).astype(np.float64))
        client = replace(client, evidence=Evidence(np.array(ks), lam))
        found = Spectrum.Answer(eigenvalues=lam, parts=large_parts(rows.X, solver.n_neighbors))
        if not self.shows_models:
            return client, found
        rows = replace(rows, gamma=float(ask.scale / np.sqrt(rows.shape[0])))
        factors = RidgeFactors(rows, ask.ridge)
        W = factors.solve(F, np.zeros((rows.shape[1], F.shape[1]), dtype=F.dtype))
        seed = int(stream(settings.seed, cid, "kmeans").integers(2**31))
        own = sweep(np.asarray(rows @ W), ks, N_INIT, seed)
        client = replace(client, rows=rows, factors=factors, F=F, W=W, sweep=own)
        models = {"W": W.astype(np.float32), "centers": own.centers.astype(np.float32)}
        return client, Models.Answer(**vars(found), **models)

    def impossible(self, server: AdviceServer, answers: Mapping[str, Any], settings: Any) -> dict[str, str]:
        """Eigenvalues that no normalised Laplacian has, and models of another size than asked for."""
        found = {}
        for cid, answer in answers.items():
            lam = answer.eigenvalues
            if not self._fits(answer, server.ks):
                found[cid] = "is of other numbers of clusters than asked for"
            elif lam.min() < 0 or lam.max() > 2 or (np.diff(lam) < 0).any():
                found[cid] = "has no eigenvalues of a graph, in order"
        return found

    def _fits(self, answer: Any, ks: Sequence[int]) -> bool:
        e = ks[-1] + 1
        models = not self.shows_models or (answer.W.shape[1] == e and len(answer.centers) == sum(k * k for k in ks))
        return len(answer.eigenvalues) == e and models

    def reduce(self, server: AdviceServer, answers: MutableMapping[str, Any], settings: AdviceSettings) -> AdviceServer:
        """Keep what came."""
        _refuse([cid for cid in sorted(answers) if not self._fits(answers[cid], server.ks)])
        found = {cid: answers[cid].eigenvalues for cid in sorted(answers)}
        server = replace(server, eigenvalues=found, large={cid: answers[cid].parts for cid in found})
        if not self.shows_models:
            return server
        return replace(server, models={cid: (answers[cid].W, answers[cid].centers) for cid in sorted(answers)})


def _refuse(misfits: list[str]) -> None:
    """Raise `RefusedError` for clients whose answers do not fit the question, where nobody has dropped them before."""
    if misfits:
        raise RefusedError(f"client {', '.join(map(repr, misfits))} answered for other numbers of clusters than asked")


class Models(Spectrum):
    """The same, and each client's own models of all widths."""

    concludes = False
    shows_models = True
    protect = SweepCentres("No centre is one row.", few_rows=True, dominance=ALWAYS)

    @dataclass(frozen=True, kw_only=True)
    class Answer(Spectrum.Answer):
        """Spectrum and models of one client."""

        W: Array = array(
            "d e", "projection of the client alone, to the eigenvectors of its graph",
            "A combination of the client's rows, which no other client has smoothed; see [W](#w).",
        )  # fmt: skip
        centers: Array = array(
            "u", "cluster centres among normalised projections, for each number of clusters",
            "The directions of the clusters, and more where a cluster is small; see [Centres](#centres).",
        )  # fmt: skip


class Cross(Phase):
    """How far models of other clients agree with a client's own, on its rows."""

    name = "cross"
    doing = "comparing models of others with its own"
    protect = Protection("Agreement over all rows that are looked at.")
    concludes = True

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Models of some other clients, without their names."""

        W: Array = array(
            "o d e", "projections of up to three other clients, unnamed",
            "As `W` of the phase before, to another client: with two clients, whose it is.",
        )  # fmt: skip
        centers: Array = array("o u", "their cluster centres", "As `centers` of the phase before, to another client.")

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Agreement on the rows of one client."""

        agreement: Array = array(
            "o v", "adjusted Rand index of own labels and those of another's model, for each number of clusters",
            "How alike the client is to others; a model made for the purpose can ask about single rows.",
        )  # fmt: skip

    def times(self, server: AdviceServer, settings: AdviceSettings) -> int:
        """Once, where there is another client."""
        return int(len(server.models) > 1)

    def asks(self, server: AdviceServer, settings: AdviceSettings) -> dict[str, Any]:
        """Models of a few others, drawn by the seed."""
        found = {}
        for cid in server.client_ids:
            others = [other for other in server.models if other != cid]
            drawn = stream(settings.seed, cid, "cross").permutation(len(others))[:SHOWN]
            W, centers = zip(*(server.models[others[i]] for i in sorted(drawn)), strict=True)
            found[cid] = self.Ask(W=np.array(W), centers=np.array(centers))
        return found

    def reply(
        self, client: AdviceClient, ask: Ask, settings: AdviceSettings, round_no: int
    ) -> tuple[AdviceClient, Answer]:
        """Label the rows with each model, and compare."""
        own, rows, evidence = required(client, "sweep", "rows", "evidence")
        found = np.array([agreement(own, rows, W, C) for W, C in zip(ask.W, ask.centers, strict=True)])
        return replace(client, evidence=replace(evidence, agreement=found)), self.Answer(agreement=found)

    def impossible(self, server: AdviceServer, answers: Mapping[str, Answer], settings: Any) -> dict[str, str]:
        """No agreement is above 1, and there is one for each number of clusters."""
        return {
            cid: "is no agreement for each number of clusters"
            for cid, answer in answers.items()
            if answer.agreement.shape[1] != len(server.ks) or answer.agreement.max(initial=0) > 1 + 1e-9
        }

    def reduce(self, server: AdviceServer, answers: MutableMapping[str, Any], settings: AdviceSettings) -> AdviceServer:
        """Keep what came."""
        _refuse([cid for cid in sorted(answers) if answers[cid].agreement.shape[1] != len(server.ks)])
        return replace(server, agreement={cid: answers[cid].agreement for cid in sorted(answers)})


SPECTRUM, MODELS_OF_ALL, COUNTED, CROSS = Spectrum(), Models(), Counted(), Cross()


# ------------------------------------------------------------------------------------------------------------ methods


class AdviceMethod(GraphView):
    """Evidence on the number of clusters; no rounds, and no model is kept."""

    name = "fmtc-advice"
    opening: tuple[Phase, ...] = (MOMENTS, RESCALE, COUNTED, MODELS_OF_ALL)
    closing: tuple[Phase, ...] = (CROSS,)
    settings_type = AdviceSettings
    model_type: Any = Evidence
    saved: tuple[str, ...] = ()
    changeable: tuple[str, ...] = ()
    stopping: tuple[str, ...] = ()
    keeps = False

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases; none repeats."""
        return (*self.opening, *self.closing)

    @property
    def loops(self) -> tuple[Phase, ...]:
        """None."""
        return ()

    def precedes_a_loop(self, phase: Phase) -> bool:
        """There is none."""
        return False

    def read_settings(self, document: Mapping[str, Any]) -> AdviceSettings:
        """Settings from what `dataclasses.asdict` and JSON made of them."""
        return AdviceSettings(**{**document, "solver": Solver(**document["solver"])})

    def open_client(self, client_id: str, X: Any, settings: Any, device: str) -> AdviceClient:
        """A client at rest."""
        few = replace(settings, n_clusters=2, lowest=2, fixed=False)  # whether rows are enough, the server says
        client = open_client(client_id, X, few, device)
        known = {f.name: getattr(client, f.name) for f in fields(client)}
        return AdviceClient(**known | {"k": settings.n_clusters, "on_trial": True})

    def open_server(
        self, client_ids: Sequence[str], settings: Settings, weights: Mapping[str, float] | None
    ) -> AdviceServer:
        """The server before the first message; all clients count alike."""
        return AdviceServer(tuple(sorted(client_ids)), view=self.view)

    def known_sizes(self, client_id: str, settings: Settings) -> dict[str, int]:
        """Nothing: the numbers of rows decide."""
        return {}

    def sizes(self, client: Any, settings: Settings) -> dict[str, int]:
        """Columns, and what the client has found so far."""
        found = super().sizes(client, settings)
        del found["k"]
        if client.evidence is not None:
            found |= {"e": len(client.evidence.eigenvalues), "v": len(client.evidence.ks)}
        if client.sweep is not None:
            found["u"] = len(client.sweep.centers)
        return found

    def common(self, server: Any) -> dict[str, Any]:
        """Evidence of all clients, in their order: what `fmtc.advice.advice_of` reads."""
        ids = list(server.client_ids)
        found = {
            "ks": np.array(server.ks, np.int64),
            "sizes": np.array([server.sizes[cid] for cid in ids], np.int64),
            "eigenvalues": np.array([server.eigenvalues[cid] for cid in ids]),
            "parts": np.array([server.large[cid] for cid in ids], np.int64),
            "n_features": np.array([server.Z.shape[0]], np.int64),
        }
        seen = [cid for cid in ids if cid in server.agreement]
        if seen:
            found["seen"] = np.array([ids.index(cid) for cid in seen], np.int64)
            found["agreement"] = np.array([server.agreement[cid] for cid in seen])
        return found

    def result(self, client: Any) -> ClientResult:
        """What the client has found; it has no labels."""
        (found,) = required(client, "evidence")
        return ClientResult(found, np.empty(0, np.int64))


class SpectrumMethod(AdviceMethod):
    """The same from eigenvalues only: no model leaves a client."""

    name = "fmtc-advice-spectrum"
    opening = (MOMENTS, RESCALE, COUNTED, SPECTRUM)
    closing = ()


METHOD, SPECTRUM_METHOD = AdviceMethod(), SpectrumMethod()


__all__ = [
    "AUTO",
    "METHOD",
    "SPECTRUM_METHOD",
    "AdviceSettings",
    "Evidence",
    "advice_method",
    "advice_settings",
    "compared",
    "range_of",
]
