"""A client of FMTC between messages: its rows, graph, embedding and projection. Nothing here decides what leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse as sp

from .errors import DataError
from .kernels.encoding import expanded, expanded_width
from .kernels.graph import Graph
from .kernels.lift import Lift
from .kernels.projection import RidgeFactors, Rows, column_means
from .kernels.scaling import Scaling, moments, standardize
from .linalg.arrays import HOST, asarray_like, to_device
from .mixture import Cells
from .mixture.steps import Statistics
from .models import ClientModel, Frame, GraphModel, Units
from .settings import Settings

Array = np.ndarray


@dataclass(frozen=True)
class Clusters:
    """A client's own clusters, from k-means until they take the common numbers."""

    E: Array  # n x k, normalised projections (or rows of F, for a run as published)
    model: GraphModel
    labels: Array  # n
    cells: Cells | None = None  # E as the mixture reads it
    before: Statistics | None = None  # of the mixture's last round but one
    statistics: Statistics | None = None  # of the last
    step: int = 0  # which round that was
    axes: Array | None = None  # k x K, from axes of its own to those of concepts, which E and the model then have


@dataclass(frozen=True)
class ClientState:
    """One client between messages."""

    client_id: str
    X: Any  # n x d, as it came
    k: int  # clusters
    rows: Rows | None = None  # of the graph: expanded, scaled where the run says so, and on a device if there is one
    scaling: Scaling | None = None  # from X to the rows; None: they are X
    lift: Lift | None = None  # from scaled columns to those of the graph view; None: they are the same
    graph: Graph | None = None
    factors: RidgeFactors | None = None
    eta: float | None = None  # step size of the embedding
    F: Array | None = None  # n x k
    W: Array | None = None  # d x k
    anchor: Array | None = None  # d x k, what W was last drawn towards: all that the others have to say about it
    T: Array | None = None  # d x k, W and the dual of the last round, where the client takes the consensus step itself
    Z: Array | None = None  # d x k, its slice of the consensus before that
    round_no: int = 0
    own: Clusters | None = None
    axes: Array | None = None  # d x r, of the mixture's coordinates; None: they are the columns
    origin: Array | None = None  # r, common mean of the coordinates, where columns have none
    cells: Cells | None = None  # rows as the mixture reads them
    starts: Array | None = None  # s, numbers of the starts of the mixture that are still compared
    counts: Array | None = None  # s x k, statistics of the mixture's last E-step, for each of its starts
    sums: Array | None = None  # s x k x r
    tallies: Array | None = None  # s x k x l
    shifts: Array | None = None  # s x r
    model: ClientModel | None = None
    labels: Array | None = None  # n
    agreement: float | None = None  # of the labels with those of the embedding; see `protocol.number`
    misses: bool = False  # whether the graph has clear parts that the labels do not follow
    choice: str | None = None  # "federated" or "alone", where the client compared the two
    home: Any = None  # what folds need of the run, see `protocol.folds`
    device: str = HOST
    on_trial: bool = False  # whether this is for a comparison only, of which nobody wants to read warnings

    @property
    def units(self) -> Units:
        """What is done to its columns."""
        return Units(scaling=self.scaling, lift=self.lift, axes=self.axes, origin=self.origin)


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
    entries, limits = X.data if sp.issparse(X) else X, np.finfo(X.dtype)
    refuse_flat([client_id] if _is_flat(X) else [])
    peak = float(max(np.fmax.reduce(entries, axis=None, initial=0), -np.fmin.reduce(entries, axis=None, initial=0)))
    if peak and not np.sqrt(limits.tiny) < peak < np.sqrt(limits.max / X.shape[0] / X.shape[1]):
        raise DataError(
            f"client {client_id!r} has entries up to {peak:.1e}, too {'large' if peak > 1 else 'small'} to be squared "
            f"in {X.dtype}. Rescale the features of all clients."
        )
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


def with_rows(client: ClientState, settings: Settings) -> ClientState:
    """The client with the rows of its graph; nothing to do if it has them."""
    if client.rows is not None:
        return client
    scaling = client.scaling
    # for a mixture only: the graph's rows are those of view="graph"
    if settings.scale in ("auto", "none") and scaling is not None and scaling.is_shift and client.lift is None:
        scaling = None
    return replace(client, scaling=scaling, rows=rows_of(client.X, scaling, settings, client.device, client.lift))


def width(client: ClientState, settings: Settings) -> int:
    """Columns of the rows that are computed with."""
    if client.rows is not None:
        return int(client.rows.shape[1])
    if client.scaling is not None:
        return len(client.scaling.stretch)
    return expanded_width(settings.levels, client.X.shape[1])


def cells_of(client: ClientState, settings: Settings) -> Cells:
    """The rows as the mixture reads them: few columns as they are in X, scaled; many in a few principal axes."""
    frame = Frame.of(client.X.shape[1], client.scaling, settings.levels, client.axes, client.origin)
    cells = frame.cells(client.X)
    if client.device == HOST or not cells.is_complete:
        return cells
    return Cells(to_device(np.asarray(cells.Z[:]), client.device), cells.codes, cells.levels)


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


def rotated(client: ClientState, rotation: Array | None) -> ClientState:
    """The client in the common frame; the local terms do not change under (F R, W R)."""
    if rotation is None or client.F is None or client.W is None:
        return client
    rotation = asarray_like(rotation, client.F)
    anchor = None if client.anchor is None else client.anchor @ rotation
    return replace(client, F=client.F @ rotation, W=client.W @ rotation, anchor=anchor)


def input_rows(client: ClientState) -> Any:
    """The rows of X; where they were not scaled, those that are computed with, on the device if there is one."""
    if client.scaling is None and client.rows is not None and client.rows.shape == client.X.shape:
        return client.rows.X
    return client.X


def stream(seed: int, client_id: str, purpose: str) -> np.random.Generator:
    """One random stream per client and purpose: order, threads and new clients do not matter."""
    return np.random.default_rng([seed, crc32(client_id.encode()), crc32(purpose.encode())])
