"""A client of FMTC between messages, before it takes part in a view: its rows. Nothing here decides what leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse as sp

from .errors import DataError, RefusedError
from .kernels.encoding import expanded, expanded_width
from .kernels.lift import Lift
from .kernels.projection import Rows, column_means
from .kernels.scaling import Scaling, moments, standardize
from .linalg.arrays import HOST, to_device
from .models import Units
from .settings import POOLED_SCALES, Settings
from .state import become

Array = np.ndarray


@dataclass(frozen=True)
class ClientState:
    """One client between messages: at rest, and what all later states have. Each view has states of its own."""

    client_id: str
    X: Any  # n x d, as it came
    k: int  # clusters
    round_no: int = 0
    scaling: Scaling | None = None  # from X to the rows; None: they are X
    lift: Lift | None = None  # from scaled columns to those of the graph view; None: they are the same
    device: str = HOST
    on_trial: bool = False  # whether this is for a comparison only, of which nobody wants to read warnings

    @property
    def units(self) -> Units:
        """What is done to its columns."""
        return Units(scaling=self.scaling, lift=self.lift)


@dataclass(frozen=True, kw_only=True)
class Ready(ClientState):
    """A client with the rows of its graph."""

    rows: Rows  # expanded, scaled where the run says so, and on a device if there is one


def open_client(client_id: str, X: Any, settings: Settings, device: str = HOST) -> ClientState:
    """A client at rest, its rows checked for what this run needs."""
    if isinstance(X, np.ndarray):
        X = np.ascontiguousarray(X)  # another layout sums in another order
    n, k = X.shape[0], settings.clusters_of(client_id)
    needed = max(2, k + 1)
    if n < needed:
        raise DataError(
            f"client {client_id!r} has {n} sample{'s' if n != 1 else ''} (n_samples={n}); "
            f"n_clusters={k} needs at least {needed} rows in every client. "
            "Ask for fewer clusters or leave this client out."
        )
    entries = X.data if sp.issparse(X) else X
    refuse_flat([client_id] if _is_flat(X) else [])
    _refuse_sizes(client_id, X, entries)
    if settings.scale == "tfidf" and entries.min(initial=0) < 0:
        raise DataError(f'client {client_id!r} has entries below 0; scale="tfidf" takes counts of words')
    if device != HOST and sp.issparse(X):
        raise DataError(
            f"client {client_id!r} has sparse rows, which device={device!r} does not take; use the default device"
        )
    if settings.levels and len(settings.levels) != X.shape[1]:
        raise DataError(f"client {client_id!r} has {X.shape[1]} columns, but this run has {len(settings.levels)}")
    scaling = None
    if settings.scale == "client":
        scaling = standardize(moments(expanded(X, settings.levels)), settings.levels)
    client = ClientState(client_id, X, k, scaling=scaling, device=device)
    return with_rows(client, settings) if settings.view == "graph" else client


def _refuse_sizes(client_id: str, X: Any, entries: Array) -> None:
    limits = np.finfo(X.dtype)
    peak = float(max(np.fmax.reduce(entries, axis=None, initial=0), -np.fmin.reduce(entries, axis=None, initial=0)))
    if peak and not np.sqrt(limits.tiny) < peak < np.sqrt(limits.max / X.shape[0] / X.shape[1]):
        raise DataError(
            f"client {client_id!r} has entries up to {peak:.1e}, too {'large' if peak > 1 else 'small'} to be squared "
            f"in {X.dtype}. Rescale the features of all clients."
        )


def _is_flat(X: Any) -> bool:
    """Whether no column has two values; missing cells have none."""
    if not sp.issparse(X):
        return not bool((np.fmax.reduce(X, axis=0) > np.fmin.reduce(X, axis=0)).any())
    filled = np.diff(X.indptr)
    if (filled != filled[0]).any():
        return False
    rows = (part.reshape(X.shape[0], filled[0]) for part in (X.indices, X.data))
    return all(bool((part == part[0]).all()) for part in rows)


def refuse_flat(flat: list[str]) -> None:
    """Raise `DataError` for clients whose rows are all equal."""
    if flat:
        raise DataError(
            f"every feature is constant in client {', '.join(map(repr, flat))}: there is nothing to cluster. "
            "Leave that client out, or check how its rows were read."
        )


def with_rows(client: ClientState, settings: Settings) -> Ready:
    """The client with the rows of its graph; nothing to do if it has them."""
    if isinstance(client, Ready):
        return client
    scaling = client.scaling
    # for a mixture only: the graph's rows are those of view="graph"
    if settings.scale in ("auto", "none") and scaling is not None and scaling.is_shift and client.lift is None:
        scaling = None
    rows = rows_of(client.X, scaling, settings, client.device, client.lift)
    return become(client, Ready, scaling=scaling, rows=rows)


def refuse_unscaled(client: ClientState, settings: Settings) -> None:
    """Raise `RefusedError` where columns should have the units of all clients, and nobody has said which these are."""
    if settings.scale in POOLED_SCALES and settings.scale != "auto" and client.scaling is None:
        raise RefusedError("a message came too early: scaling is not there yet")


def width(client: ClientState, settings: Settings) -> int:
    """Columns of the rows that are computed with."""
    if isinstance(client, Ready):
        return int(client.rows.shape[1])
    if client.scaling is not None:
        return len(client.scaling.stretch)
    return expanded_width(settings.levels, client.X.shape[1])


def rows_of(X: Any, scaling: Scaling | None, settings: Settings, device: str, lift: Lift | None = None) -> Rows:
    """The rows to compute with; the only copy of X where it is scaled or has categories or missing cells."""
    S = expanded(X, settings.levels)
    S = to_device(_without_holes(S) if scaling is None else scaling.apply(S), device)
    if lift is not None:
        return Rows(lift.apply(S))
    centre = settings.solver.center_features
    if centre == "auto":
        centre = not sp.issparse(S) and settings.scale != "tfidf"
    return Rows(S, column_means(S) if centre else None)


def hole_filling(client: ClientState, settings: Settings) -> Array | None:
    """What took the place of missing numbers, in the units of X, categories expanded; None for sparse rows."""
    if sp.issparse(client.X):
        return None
    if client.scaling is not None and client.scaling.shift is not None:
        return client.scaling.shift
    X = expanded(client.X, settings.levels)
    total = X.sum(axis=0)
    if not np.isnan(total).any():
        return total / np.full(len(total), len(X))
    holes = np.isnan(X)
    return np.where(holes, 0, X).sum(axis=0) / np.maximum(np.count_nonzero(~holes, axis=0), 1)


def _without_holes(X: Any) -> Any:
    """Missing numbers replaced by the mean of their column in this client, 0 if it has none."""
    if sp.issparse(X) or not np.isnan(X.sum()) or not np.isnan(X.sum(dtype=np.float64)):  # the first may overflow
        return X
    holes = np.isnan(X)
    filled = np.maximum(np.count_nonzero(~holes, axis=0), 1)
    return np.where(holes, np.where(holes, 0, X).sum(axis=0) / filled, X).astype(X.dtype)


def input_rows(client: ClientState) -> Any:
    """The rows of X; where they were not scaled, those that are computed with, on the device if there is one."""
    if client.scaling is None and isinstance(client, Ready) and client.rows.shape == client.X.shape:
        return client.rows.X
    return client.X


def stream(seed: int, client_id: str, purpose: str) -> np.random.Generator:
    """One random stream per client and purpose: order, threads and new clients do not matter."""
    return np.random.default_rng([seed, crc32(client_id.encode()), crc32(purpose.encode())])
