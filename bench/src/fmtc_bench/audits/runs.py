"""Audits of a run: whole runs of the product, tapped, and what an attacker or the client itself reads from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fmtc.errors import DataError
from fmtc.kernels.influence import record_influence
from fmtc.privacy.accounting import epsilon_of, mu_of, without_colluders
from fmtc.privacy.keys import Noise
from fmtc.protocol.method import Method, view_method
from fmtc.protocol.private.view import PLAIN
from fmtc.settings import Privacy, Settings

from .attacker import statistics
from .attacks import LEAST_RUNS, Attack, Canary, Span, canary_audit, drawn_members, membership, row_span
from .tap import UNPLANNED, PrivateStages, Tap, shadow_runs, tapped_run

Array = np.ndarray
Progress = Callable[[int], None]

BEFORE = {"finish", "frame", "conclude", "home"}  # the first phase after what the attack reads, of each method
MOST_ROWS = 2000  # of a silo whose span is compared: a singular value decomposition of rows by columns


def _silent(done: int) -> None:
    """No progress is shown."""


def _end(method: Method) -> str | None:
    return next((phase.name for phase in method.phases if phase.name in BEFORE), None)


def settled(data: Mapping[str, Any], settings: Settings) -> Settings:
    """Settings with the view that a run on all rows takes, so that all shadow runs send the same kind of message."""
    if settings.view != "auto" or isinstance(settings.privacy, Privacy):
        return settings
    _, result = tapped_run(data, settings, view_method("auto", settings.privacy))
    assert result is not None
    return replace(settings, view=result.server.view)


def mode_of(settings: Settings) -> str:
    """What the server sees, in words."""
    if isinstance(settings.privacy, Privacy):
        if not settings.privacy.noisy:
            return "anchors without noise: totals"
        return f"private, epsilon {settings.privacy.epsilon:g}: noisy totals"
    if settings.privacy == "sums":
        return f"sums, {settings.view} view: totals"
    return f"plain, {settings.view} view: every answer"


# ------------------------------------------------------------------------------------------------------------ members


@dataclass(frozen=True)
class Members:
    """Membership inference on what one client released.

    Attributes
    ----------
    attack : Attack
    scores, members : arrays of shape (runs, rows)
        Of the attack, for a curve; and who was in.
    epsilon : float or None
        The claim, where the run makes one.
    """

    client: str
    mode: str
    rows: int
    inside: float  # rows that were in, on average
    clients: int
    attack: Attack
    scores: Array
    members: Array
    epsilon: float | None = None

    @property
    def broken(self) -> bool:
        """Whether the attack proves the claim false."""
        return self.epsilon is not None and self.attack.epsilon_at_least > self.epsilon

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        about = {name: getattr(self, name) for name in ("client", "mode", "rows", "inside", "clients", "epsilon")}
        return about | {"attack": asdict(self.attack), "broken": self.broken}


def audit_members(
    data: Mapping[str, Any],
    settings: Settings,
    target: str,
    *,
    runs: int = 100,
    seed: int = 0,
    method: Method | None = None,
    progress: Progress = _silent,
) -> Members:
    """How well somebody who sees what the server sees tells whether a record was in one client's rows.

    Shadow runs of the product itself: each of the client's rows is in by a fair coin, the other clients are the same in
    all runs. The audited client therefore has half of its rows, and leaks more than with all of them.

    Parameters
    ----------
    data : mapping of client id to array of shape (n_t, d)
    settings : Settings
        Of the run, `privacy` included.
    target : str
    runs : int
        Shadow runs.
    seed : int
        Of the coins.
    method : Method, optional
        By default that of the settings.
    progress : callable
        Gets the number of runs done.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.settings import Settings
    >>> from fmtc_bench.audits.runs import audit_members
    >>> rng = np.random.default_rng(0)
    >>> data = {"a": rng.normal(size=(24, 10)), "b": rng.normal(size=(20, 10))}
    >>> settings = Settings(2, view="graph", scale="none", max_iter=2)
    >>> found = audit_members(data, settings, "a", runs=24)
    >>> found.attack.auc.value > 0.6
    True
    """
    n = data[target].shape[0]
    if runs < LEAST_RUNS:
        raise DataError(f"{runs} shadow runs are too few; take at least {LEAST_RUNS}, better 100")
    if n // 4 <= settings.n_clusters:
        raise DataError(
            f"client {target!r} has {n} rows, of which half take part in a shadow run; {settings.n_clusters} clusters "
            f"need at least {4 * (settings.n_clusters + 1)}"
        )
    members = drawn_members(runs, n, seed)
    private = isinstance(settings.privacy, Privacy)
    noisy = private and settings.privacy.noisy
    if method is None:
        settings = settled(data, settings)
        method = UNPLANNED if noisy else PLAIN if private else view_method(settings.view, settings.privacy)
    X = data[target]

    def read(tap: Tap) -> Array:
        return statistics(tap.passed, tap.clients[target], X, settings, target)

    seen = shadow_runs(data, target, members, lambda number: settings, method, read, progress, _end(method))
    attack, scores = membership(seen, members, delta=settings.privacy.delta if noisy else 0.0, seed=seed)
    claim = settings.privacy.epsilon if noisy else None
    inside = float(members.sum(axis=1).mean())
    return Members(target, mode_of(settings), n, inside, len(data), attack, scores, members, claim)


# ------------------------------------------------------------------------------------------------------------- canary


MADE_UP = 20  # rows of each client, beside the canary


def audit_canary(
    privacy: Privacy,
    *,
    runs: int = 1000,
    clients: int = 3,
    confidence: float = 0.95,
    noise: Noise | None = None,
    progress: Progress = _silent,
) -> Canary:
    """Hold the promise of private runs against an adversary who knows every record but one.

    The canary lies in a corner of the public bounds, where it adds most to every sum; the other records lie about the
    middle. The adversary is the server. The noise covers `privacy.colluding` clients that take theirs off, so that the
    server alone faces a smaller ε than `privacy.epsilon`: it is this one that is held against the sums.

    Parameters
    ----------
    privacy : Privacy
        The promise; its bounds do not matter, and are 0 and 1 here.
    runs : int
        Half of them with the canary. At ε = 1 a thousand say little: audit at ε of 4 or more, the code is the same.
    clients : int
        Who have the rows that are made up for it.
    noise : callable, optional
        Draws in place of the noise of the product; for those who break it on purpose.
    """
    privacy = replace(privacy, bounds=(0.0, 1.0), rows=None)
    rng = np.random.default_rng(0)
    names = [f"silo{number:02d}" for number in range(clients)]
    data = {name: np.clip(rng.normal(0.5, 0.05, (MADE_UP, 2)), 0, 1) for name in names}
    stages = PrivateStages(data, np.ones(2), Settings(2, privacy=privacy), noise)
    mu = without_colluders(mu_of(privacy.epsilon, privacy.delta), clients, privacy.colluding, 0)
    return canary_audit(
        stages, mu=mu, epsilon=epsilon_of(mu, privacy.delta), delta=privacy.delta, epsilon_of=epsilon_of, runs=runs,
        confidence=confidence, progress=progress,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- influence and span


@dataclass(frozen=True)
class Influential:
    """Influence of single records of one client at fixed embedding, in one round."""

    client: str
    round_no: int
    rows: int
    top_row: int  # counted from 0, among the rows of the client
    largest: float
    q99: float
    median: float
    leverage: float

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        return asdict(self)


def _graph_run(data: Mapping[str, Any], settings: Settings) -> Tap:
    settings = replace(settings, privacy=None)
    settings = settled(data, settings)
    if settings.view != "graph":
        raise DataError(
            "this run takes the mixture view, which sends no projection W; use --view graph, or "
            "`fmtc-bench audit members`"
        )
    return tapped_run(data, settings, view_method("graph"), until="finish")[0]


def audit_influence(data: Mapping[str, Any], settings: Settings) -> list[Influential]:
    """Influence of single records on W at fixed embedding, in the first and the last round of each client.

    A refit without the record moves the embedding of the others, too: there the true change was 1.2 to 3 times as large
    for the top record, and more for a typical one.
    """
    tap, found = _graph_run(data, settings), []
    rounds = tap.of("round")
    for cid in sorted(data):
        for one in dict.fromkeys((0, len(rounds) - 1)):
            before, ask, W = rounds[one].before[cid], rounds[one].asks[cid], rounds[one].answers[cid].W
            F = before.F if ask.rotation is None else before.F @ ask.rotation
            factors = before.factors
            told = record_influence(factors, F, W)
            found.append(
                Influential(
                    cid, rounds[one].round_no, factors.X.shape[0], told.top, float(told.change.max()),
                    float(np.quantile(told.change, 0.99)), float(np.median(told.change)), float(told.leverage.max()),
                )
            )  # fmt: skip
    return found


def audit_span(data: Mapping[str, Any], settings: Settings) -> dict[str, Span]:
    """What the projections of a run in the clear tell of the span of each client's rows."""
    tap, found = _graph_run(data, settings), {}
    rounds = tap.of("round")
    for cid in sorted(data):
        rows = rounds[0].before[cid].factors.X
        n, d = rows.shape
        if n > min(d, MOST_ROWS):  # what is spanned is everything, or too large to compare
            found[cid] = Span(n, d, len(rounds), min(n, d), 0, 90.0, 0.0)
            continue
        dense = np.asarray((rows.T @ np.eye(n)).T, dtype=np.float64)
        sent = [one.answers[cid].W for one in rounds]
        found[cid] = row_span(dense, sent, [one.asks[cid].anchor for one in rounds])
    return found


__all__ = ["Influential", "Members", "audit_canary", "audit_influence", "audit_members", "audit_span", "mode_of"]
