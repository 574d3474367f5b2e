"""What an attacker makes of messages: for each suspected record a few numbers that differ if the record was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..client import ClientState, cells_of, with_rows
from ..linalg.arrays import to_numpy
from ..settings import Settings

Array = np.ndarray

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


def mixture_statistics(Z: Array, ask: Any, answer: Mapping[str, Array]) -> Array:
    """Of rows in the mixture's coordinates and sums of its last round: how far means are drawn towards the row.

    Parameters
    ----------
    Z : array of shape (n, r)
        Suspected records.
    ask : object
        Common parameters that were asked with: `means`, `covariance`.
    answer : mapping of field to array
        Released: `counts`, `weights`, `means`, `scatter`, of one client or summed over clients.

    Returns
    -------
    array of shape (n, 5)
    """
    best = int(np.argmax(answer["counts"].max(axis=1))) if len(ask.means) > 1 else 0
    common, covariance = ask.means[best], ask.covariance[best]
    weights, r = answer["weights"][best], Z.shape[1]
    own = np.where((weights > 1e-9)[:, None], answer["means"][best] / np.maximum(weights, 1e-300)[:, None], common)
    half = np.linalg.inv(np.linalg.cholesky(covariance)).T
    Y, m, c = Z @ half, own @ half, common @ half
    near = ((Y[:, None] - c) ** 2).sum(axis=2).argmin(axis=1)
    scatter = np.zeros((r, r))
    scatter[np.tril_indices(r)] = answer["scatter"][best]
    scatter = scatter + np.tril(scatter, -1).T - (own.T * weights) @ own
    total = max(float(answer["counts"][best].sum()), 1.0)
    within = scatter / total + 1e-6 * np.trace(covariance) / r * np.eye(r)
    lam, V = np.linalg.eigh(within)
    sharp = (Z - own[near]) @ (V / np.sqrt(np.maximum(lam, 1e-9 * lam.max())))
    gap = (m - c)[near]
    distances = ((Y[:, None] - m) ** 2).sum(axis=2)
    shares = np.log(np.maximum(answer["counts"][best], 1e-3) / total)
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
    return with_rows(replace(client, X=X, rows=None), settings).rows


def candidate_cells(client: ClientState, X: Any, settings: Settings) -> Array:
    """Suspected records in the coordinates of the mixture; a missing number counts as the common mean."""
    cells = cells_of(replace(client, X=X), settings)
    return np.nan_to_num(np.asarray(cells.Z[:], dtype=np.float64))


def statistics(
    passed: Sequence[Any], client: ClientState, X: Any, settings: Settings, target: str, seen: str = "client"
) -> Array:
    """The attacker's numbers for each suspected record, from what passed in one run.

    Parameters
    ----------
    passed : sequence of Exchange
        Of a `fmtc.runtime.tap.Tap`.
    client : ClientState
        Of the target: for what the server has sent to all (units, axes); nothing of its rows is read.
    X : array of shape (n, d)
        Suspected records, as in the files.
    settings : Settings
    target : str
        The client that is attacked.
    seen : {"client", "sums"}
        What the server sees.

    Returns
    -------
    array of shape (n, q)
    """
    found = []
    rounds = [one for one in passed if one.phase == "round"]
    if rounds:
        rows = candidate_rows(client, X, settings)
        ends = [rounds[0], rounds[-1]] if len(rounds) > 1 else rounds
        matrices = [
            one.answers[target].W if seen == "client" else np.hstack([a.W for _, a in sorted(one.answers.items())])
            for one in ends
        ]
        found.append(graph_statistics(rows, matrices, client.k))
    steps = [one for one in passed if one.phase == "em"]
    if steps:
        Z = candidate_cells(client, X, settings)
        last = steps[-1]
        chosen = [last.answers[target]] if seen == "client" else [a for _, a in sorted(last.answers.items())]
        sums = {name: sum(getattr(a, name) for a in chosen) for name in ("counts", "weights", "means", "scatter")}
        found.append(mixture_statistics(Z, last.asks[target], sums))
    for one in [one for one in passed if one.phase == "moments"]:
        chosen = [one.answers[target]] if seen == "client" else list(one.answers.values())
        if chosen[0].means is not None and not any(settings.levels):
            n = sum(a.n_samples for a in chosen)
            mean = sum(a.n_samples * a.means for a in chosen) / n
            sd = np.sqrt(sum(a.squares for a in chosen) / n)
            found.append(mean_statistics(np.asarray(X, np.float64), mean, sd))
    return np.hstack(found)
