"""A client of FMTC between messages: its rows, graph, embedding and projection. Nothing here decides what leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse as sp

from .errors import DataError
from .inference import ClientModel
from .kernels.graph import Graph
from .kernels.projection import RidgeFactors, Rows, column_means
from .kernels.scaling import Scaling, moments, standardize
from .linalg.arrays import HOST, asarray_like, to_device
from .settings import Settings

Array = np.ndarray


@dataclass(frozen=True)
class Clusters:
    """A client's own clusters, from k-means until they take the common numbers."""

    E: Array  # n x k, normalised projections (or rows of F, for a run as published)
    model: ClientModel
    labels: Array  # n


@dataclass(frozen=True)
class ClientState:
    """One client between messages."""

    client_id: str
    X: Any  # n x d, as it came
    k: int  # clusters
    rows: Rows  # as they are computed with: scaled where the run says so, and on a device where there is one
    scaling: Scaling | None = None  # from X to the rows; None: they are X
    graph: Graph | None = None
    factors: RidgeFactors | None = None
    eta: float | None = None  # step size of the embedding
    F: Array | None = None  # n x k
    W: Array | None = None  # d x k
    round_no: int = 0
    own: Clusters | None = None
    model: ClientModel | None = None
    labels: Array | None = None  # n
    device: str = HOST


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
    peak = float(max(entries.max(initial=0), -entries.min(initial=0)))
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
    scaling = standardize(moments(X)) if settings.scale == "client" else None
    return ClientState(client_id, X, k, rows_of(X, scaling, settings, device), scaling, device=device)


def rows_of(X: Any, scaling: Scaling | None, settings: Settings, device: str) -> Rows:
    """The rows to compute with; the only copy of X where it is scaled."""
    S = to_device(X if scaling is None else scaling.apply(X), device)
    centre = settings.solver.center_features
    if centre == "auto":
        centre = not sp.issparse(S) and settings.scale != "tfidf"
    return Rows(S, column_means(S) if centre else None)


def rotated(client: ClientState, rotation: Array | None) -> ClientState:
    """The client in the common frame; the local terms do not change under (F R, W R)."""
    if rotation is None or client.F is None or client.W is None:
        return client
    rotation = asarray_like(rotation, client.F)
    return replace(client, F=client.F @ rotation, W=client.W @ rotation)


def input_rows(client: ClientState) -> Any:
    """The rows of X; where they were not scaled, those that are computed with, on the device if there is one."""
    return client.rows.X if client.scaling is None else client.X


def stream(seed: int, client_id: str, purpose: str) -> np.random.Generator:
    """One random stream per client and purpose: order, threads and new clients do not matter."""
    return np.random.default_rng([seed, crc32(client_id.encode()), crc32(purpose.encode())])
