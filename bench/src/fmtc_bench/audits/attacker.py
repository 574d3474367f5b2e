"""What an attacker makes of messages: for each suspected record a few numbers that differ if the record was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fmtc.kernels.couplings.subspace import directions, directions_from_sketch
from fmtc.kernels.records import Box, coordinates
from fmtc.linalg.arrays import to_numpy
from fmtc.protocol.mixture.state import Reading, cells_of
from fmtc.protocol.private.stages import HALF, MIXTURE_STAGES
from fmtc.protocol.private.stages import STAGES as ANCHOR_STAGES
from fmtc.protocol.private.view import BEGIN, public_of
from fmtc.protocol.state import ClientState, become, with_rows
from fmtc.protocol.sums.graph import omega
from fmtc.settings import Settings

Array = np.ndarray

STAGES = {stage.name: stage for stage in (*ANCHOR_STAGES, *MIXTURE_STAGES, BEGIN.stage)}
SEEN = ("client", "sums")  # whether a server sees the answers of one client, or sums over clients only


def graph_statistics(rows: Any, matrices: Sequence[Array], k: int) -> Array:
    """Of rows and d x K matrices whose columns lie where W does: lengths of x W, of its largest entry, and of Qᵀx.

    A row that took part in W has a longer image than one that did not: W was fitted to it.

    Parameters
    ----------
    rows : Rows of shape (n, d)
        Suspected records, in the units of the run.
    matrices : sequence of arrays of shape (d, K)
        Released: W of one client, or those of all side by side, of which a server of sums knows ``W Wᵀ``.
    k : int
        Leading directions to look at.

    Returns
    -------
    array of shape (n, 3 · len(matrices))
    """
    found = []
    for W in matrices:
        U, s, _ = np.linalg.svd(np.asarray(W, np.float64), full_matrices=False)
        along = to_numpy(rows @ U)
        image = along * s
        wide = W.shape[1] > k  # a sum: columns of W are not known, but W Wᵀ is
        found += [
            np.linalg.norm(image, axis=1),
            np.linalg.norm(along[:, : 2 * k], axis=1) if wide else np.abs(to_numpy(rows @ W)).max(axis=1),
            np.linalg.norm(along[:, :k], axis=1),
        ]
    return np.array(found).T


def mixture_statistics(Z: Array, ask: Any, answer: Any) -> Array:
    """Of rows in the mixture's coordinates and sums of its last round: how far means are drawn towards the row.

    Parameters
    ----------
    Z : array of shape (n, r)
        Suspected records.
    ask : object
        Common parameters that were asked with: `means`, `covariance`.
    answer : object
        Released: `counts`, `weights`, `means`, `scatter`, of one client or summed over clients.

    Returns
    -------
    array of shape (n, 5)
    """
    best = int(np.argmax(answer.counts.max(axis=1))) if len(ask.means) > 1 else 0
    common, covariance = ask.means[best], ask.covariance[best]
    weights, r = answer.weights[best], Z.shape[1]
    own = np.where((weights > 1e-9)[:, None], answer.means[best] / np.maximum(weights, 1e-300)[:, None], common)
    half = np.linalg.inv(np.linalg.cholesky(covariance)).T
    Y, m, c = Z @ half, own @ half, common @ half
    near = ((Y[:, None] - c) ** 2).sum(axis=2).argmin(axis=1)
    scatter = np.zeros((r, r))
    scatter[np.tril_indices(r)] = answer.scatter[best]
    scatter = scatter + np.tril(scatter, -1).T - (own.T * weights) @ own
    total = max(float(answer.counts[best].sum()), 1.0)
    within = scatter / total + 1e-6 * np.trace(covariance) / r * np.eye(r)
    lam, V = np.linalg.eigh(within)
    sharp = (Z - own[near]) @ (V / np.sqrt(np.maximum(lam, 1e-9 * lam.max())))
    gap = (m - c)[near]
    distances = ((Y[:, None] - m) ** 2).sum(axis=2)
    shares = np.log(np.maximum(answer.counts[best], 1e-3) / total)
    return np.array(
        [
            ((Y - c[near]) * gap).sum(axis=1),  # the mean moved towards the row
            np.sqrt(distances.min(axis=1)),
            np.logaddexp.reduce(shares - distances / 2, axis=1),
            (sharp**2).sum(axis=1),
            np.sqrt(((Y - c[near]) ** 2).sum(axis=1)) - np.sqrt(((Y - m[near]) ** 2).sum(axis=1)),
        ]
    ).T


def mean_statistics(X: Array, mean: Array, sd: Array) -> Array:
    """Of rows and released column means: how far the means lie towards the row (Homer et al. 2008); (n, 1)."""
    scale = np.where(sd > 0, sd, 1.0)
    centre = X.mean(axis=0)
    return np.nan_to_num(((X - centre) / scale) @ ((mean - centre) / scale))[:, None]


def candidate_rows(client: ClientState, X: Any, settings: Settings) -> Any:
    """Suspected records as the graph view reads them, with what the run has told everybody about units."""
    return with_rows(become(client, ClientState, X=X), settings).rows


def candidate_cells(client: Reading, X: Any, settings: Settings) -> Array:
    """Suspected records in the coordinates of the mixture; a missing number counts as the common mean."""
    cells = cells_of(replace(client, X=X), settings, client.axes, client.origin)
    return np.nan_to_num(np.asarray(cells.Z[:], dtype=np.float64))


def private_statistics(passed: Sequence[Any], X: Array, settings: Settings) -> Array:
    """Of private sums: how much of each total points along what the record would have added, and where anchors went.

    Parameters
    ----------
    passed : sequence of Exchange
        Of the phases of `fmtc.protocol.private`.
    X : array of shape (n, D)
        Suspected records.
    settings : Settings
        With a `Privacy`.
    """
    box, found = Box.of(settings.privacy.bounds, X.shape[1], settings.levels), []
    for one in passed:
        stage = STAGES.get(one.phase)
        if stage is None:
            continue
        plain = one.total if one.total is not None else _added(one.answers, ("total",))
        total, public = np.asarray(plain.total), public_of(next(iter(one.asks.values())), box)
        found.append(stage.contributions(X, public) @ total)
        if one.phase.startswith("anchors") and public.centers is not None:
            cells = total.reshape(len(public.centers), -1)
            sums, counts = cells[:, :-1], np.maximum(cells[:, -1:] / HALF, 1.0)
            gaps = np.linalg.norm(coordinates(X, public)[:, None] - sums / counts, axis=2)
            found += list(np.sort(gaps, axis=1)[:, :2].T)
    return np.array(found).T


@dataclass(frozen=True)
class _Total:
    """Fields of the answers of all clients, added up: all that a server of sums sees."""

    total: Any = None
    counts: Any = None
    weights: Any = None
    means: Any = None
    scatter: Any = None


def _added(answers: Mapping[str, Any], names: Sequence[str]) -> _Total:
    return _Total(**{name: sum(getattr(answer, name) for _, answer in sorted(answers.items())) for name in names})


def _released(one: Any, target: str, seen: str) -> Any:
    """What a server sees of one exchange of the mixture: the answer of one client, or the sum over all."""
    if one.total is not None:
        return one.total
    return one.answers[target] if seen == "client" else _added(one.answers, ("counts", "weights", "means", "scatter"))


def _matrix(one: Any, target: str, seen: str, d: int, seed: int) -> Array:
    """W of one client; or a matrix M with M Mᵀ the sum that a server of sums sees."""
    if one.total is None:
        answers = [one.answers[target]] if seen == "client" else [answer for _, answer in sorted(one.answers.items())]
        return np.hstack([answer.W for answer in answers])
    width = next(iter(one.asks.values())).sketch
    if width:
        U, s, _ = directions_from_sketch(one.total.gram.reshape(d, width), omega(d, width, seed))
    else:
        G = np.zeros((d, d))
        G[np.triu_indices(d)] = one.total.gram
        U, s, _ = directions(G + np.triu(G, 1).T)
    return U * s


def statistics(
    passed: Sequence[Any], client: Any, X: Any, settings: Settings, target: str, seen: str = "client"
) -> Array:
    """The attacker's numbers for each suspected record, from what passed in one run.

    Parameters
    ----------
    passed : sequence of Exchange
        Of a `fmtc_bench.audits.tap.Tap`.
    client : ClientState
        Of the target: for what the server has sent to all (units, axes); nothing of its rows is read.
    X : array of shape (n, d)
        Suspected records, as in the files.
    settings : Settings
    target : str
        The client that is attacked.
    seen : {"client", "sums"}
        What the server sees of a run in the clear: each client's answers; or, as if there were masks, their sums only.
        Of a run with masks it sees the sums, whatever is said here.

    Returns
    -------
    array of shape (n, q)
    """
    if any(one.phase in STAGES for one in passed):
        return private_statistics(passed, np.asarray(X, np.float64), settings)
    found = []
    rounds = [one for one in passed if one.phase == "round"]
    if rounds:
        rows = candidate_rows(client, X, settings)
        ends = [rounds[0], rounds[-1]] if len(rounds) > 1 else rounds
        matrices = [_matrix(one, target, seen, rows.shape[1], settings.seed) for one in ends]
        found.append(graph_statistics(rows, matrices, client.k))
    steps = [one for one in passed if one.phase == "em"]
    if steps:
        Z, last = candidate_cells(client, X, settings), steps[-1]
        found.append(mixture_statistics(Z, last.asks[target], _released(last, target, seen)))
    for one in passed:
        means = _mean_and_spread(one, target, seen) if one.phase == "moments" and not any(settings.levels) else None
        if means is not None:
            found.append(mean_statistics(np.asarray(X, np.float64), *means))
    return np.hstack(found)


def _mean_and_spread(one: Any, target: str, seen: str) -> tuple[Array, Array] | None:
    """Column means and deviations as the server sees them; None where it sees none."""
    if one.total is not None:
        if one.total.totals is None:
            return None
        mean = one.total.totals / np.maximum(one.total.filled, 1)
        return mean, np.ones_like(mean)
    chosen = [one.answers[target]] if seen == "client" else list(one.answers.values())
    if chosen[0].means is None:
        return None
    n = sum(answer.n_samples for answer in chosen)
    spread = np.sqrt(sum(answer.squares for answer in chosen) / n)
    return sum(answer.n_samples * answer.means for answer in chosen) / n, spread
