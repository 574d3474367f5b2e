"""Clients and servers between messages, before they take part in a view, and how one state becomes the next.

A state is a frozen dataclass, and a field of it exists because the phase that makes it has run. What the next phase
finds out makes it another state, which has of the one before what later phases need. Nothing here decides what leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, Self, TypeVar
from zlib import crc32

import numpy as np
import scipy.sparse as sp

from ..errors import DataError, InputError, RefusedError
from ..kernels.lift import Lift
from ..kernels.projection import Rows, column_means
from ..kernels.scaling import Scaling, expanded, expanded_width, moments, standardize
from ..linalg.arrays import HOST, to_device
from ..models import Units
from ..settings import POOLED_SCALES, Settings
from .base import Array, Weights

# ---------------------------------------------------------------------------------------------------------------- state


State = TypeVar("State")


def become(state: Any, kind: type[State], **new: Any) -> State:
    """The next state: of another kind, with what the one before has of its fields, and what is new.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.projection import Rows
    >>> from fmtc.protocol.state import ClientState, Ready, become
    >>> client = ClientState("north", np.eye(3), 2)
    >>> become(client, Ready, rows=Rows(client.X)).client_id
    'north'
    """
    kept = {f.name: getattr(state, f.name) for f in fields(kind) if f.name not in new and hasattr(state, f.name)}  # type: ignore[arg-type]
    return kind(**kept | new)


def reached(state: Any, kind: type[State]) -> State:
    """The state, or `RefusedError` where it is not of this kind: the message came before the one that makes it so."""
    if not isinstance(state, kind):
        missing = [f.name for f in fields(kind) if not hasattr(state, f.name)]  # type: ignore[arg-type]
        raise RefusedError(f"a message came too early: {', '.join(missing)} is not there yet")
    return state


# --------------------------------------------------------------------------------------------------------------- client


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


@dataclass(frozen=True, kw_only=True)
class Kept(ClientState):
    """A client with its model; it may be one of its own."""

    model: Any
    labels: Array  # n
    choice: str | None = None  # "federated" (or "public") or "alone", where the client compared the two; stays here
    home: Any = None  # what folds need of the run, see `protocol.home`


def open_client(client_id: str, X: Any, settings: Settings, device: str = HOST) -> ClientState:
    """A client at rest, its rows checked for what this run needs."""
    if isinstance(X, np.ndarray):
        X = np.ascontiguousarray(X)  # another layout sums in another order
    n, k = X.shape[0], settings.clusters_of(client_id)
    needed = max(2, k + 1)
    if n < needed:
        raise DataError(
            f"silo {client_id!r} has {n} sample{'s' if n != 1 else ''} (n_samples={n}); "
            f"n_clusters={k} needs at least {needed} rows in every silo. "
            "Ask for fewer clusters or leave this silo out."
        )
    entries = X.data if sp.issparse(X) else X
    refuse_flat([client_id] if _is_flat(X) else [])
    _refuse_sizes(client_id, X, entries)
    if settings.scale == "tfidf" and entries.min(initial=0) < 0:
        raise DataError(f'silo {client_id!r} has entries below 0; scale="tfidf" takes counts of words')
    if device != HOST and sp.issparse(X):
        raise DataError(
            f"silo {client_id!r} has sparse rows, which device={device!r} does not take; use the default device"
        )
    if settings.levels and len(settings.levels) != X.shape[1]:
        raise DataError(f"silo {client_id!r} has {X.shape[1]} columns, but this run has {len(settings.levels)}")
    scaling = None
    if settings.scale == "silo":
        scaling = standardize(moments(expanded(X, settings.levels)), settings.levels)
    return ClientState(client_id, X, k, scaling=scaling, device=device)


def _refuse_sizes(client_id: str, X: Any, entries: Array) -> None:
    limits = np.finfo(X.dtype)
    peak = float(max(np.fmax.reduce(entries, axis=None, initial=0), -np.fmin.reduce(entries, axis=None, initial=0)))
    if peak and not np.sqrt(limits.tiny) < peak < np.sqrt(limits.max / X.shape[0] / X.shape[1]):
        raise DataError(
            f"silo {client_id!r} has entries up to {peak:.1e}, too {'large' if peak > 1 else 'small'} to be squared "
            f"in {X.dtype}. Rescale the features of all silos."
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
            f"every feature is constant in silo {', '.join(map(repr, flat))}: there is nothing to cluster. "
            "Leave that silo out, or check how its rows were read."
        )


def with_rows(client: ClientState, settings: Settings) -> Ready:
    """The client with the rows of its graph; nothing to do if it has them."""
    if isinstance(client, Ready):
        return client
    refuse_unscaled(client, settings)
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
    centre = settings.center_features
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
    return _column_fill(X) if np.isnan(total).any() else total / np.full(len(total), len(X))


def _without_holes(X: Any) -> Any:
    """Missing numbers replaced by the mean of their column in this client, 0 if it has none."""
    if sp.issparse(X) or not np.isnan(X.sum()) or not np.isnan(X.sum(dtype=np.float64)):  # the first may overflow
        return X
    return np.where(np.isnan(X), _column_fill(X), X).astype(X.dtype)


def _column_fill(X: Array) -> Array:
    """Mean of each column over its filled cells, 0 where there are none."""
    holes = np.isnan(X)
    return np.where(holes, 0, X).sum(axis=0) / np.maximum(np.count_nonzero(~holes, axis=0), 1)


def input_rows(client: ClientState) -> Any:
    """The rows of X; where they were not scaled, those that are computed with, on the device if there is one."""
    if client.scaling is None and isinstance(client, Ready) and client.rows.shape == client.X.shape:
        return client.rows.X
    return client.X


def stream(seed: int, client_id: str, purpose: str) -> np.random.Generator:
    """One random stream per client and purpose: order, threads and new clients do not matter."""
    return np.random.default_rng([seed, crc32(client_id.encode()), crc32(purpose.encode())])


def some_rows(n: int, most: int, seed: int, client_id: str, purpose: str) -> Array:
    """Numbers of all rows or, where there are more than `most`, of so many drawn ones, in order."""
    if n <= most:
        return np.arange(n)
    return np.sort(stream(seed, client_id, purpose).choice(n, most, replace=False))


# --------------------------------------------------------------------------------------------------------------- server


Server = TypeVar("Server", bound="ServerState")


@dataclass(frozen=True)
class RoundReport:
    """Where the iteration stands after one round; a method without a value leaves it out."""

    objective: float
    lagrangian: float = float("nan")
    primal_residual: float = float("nan")
    dual_residual: float = float("nan")
    rank: int = 0
    capped: tuple[str, ...] = ()  # clients whose answer was larger than the others allow, and was made smaller
    odd: tuple[str, ...] = ()  # clients that have nothing in common with the rest, and next to no weight
    affinity: Mapping[str, float] | None = None  # of each client with the rest, 0 to 1


@dataclass(frozen=True)
class Cards:
    """What clients have shown of themselves in a run of which the server sees sums only; see `protocol.sums.cards`."""

    names: tuple[str, ...]  # m, in order
    keys: Array  # m x 32
    certificates: Array  # one after the other
    signatures: Array  # one after the other
    lengths: Array  # m x 2, of certificates and signatures
    code: str = ""  # of the roster, once all clients agree on it


@dataclass(frozen=True)
class ServerState:
    """The server between messages: at the beginning, and what all later states have. Each view has its own."""

    client_ids: tuple[str, ...]
    weights: Weights = None  # the paper's omega as given; None: all alike
    view: str | None = None  # "graph" or "mixture"; None: to be decided
    why: str = ""  # the view was decided so
    round_no: int = 0
    wide: bool = False  # columns are many, or sparse: a mixture looks at their principal axes
    words: bool = False  # rows are sparse or weighed as words
    lifted: bool = False  # the graph view replaces columns by random features
    n_samples: int = 0  # rows of all clients, where they have told it
    n_features: int = 0  # columns that are computed with, where they have told it
    scaling: Scaling | None = None  # what all clients were told to do to their columns
    told: Mapping[str, Array] = field(default_factory=dict)  # by client: rows, then means and variances of coordinates
    held: tuple[str, ...] = ()  # clients that were capped, odd or refused at any time
    aside: tuple[str, ...] = ()  # those of the last round, which have no part in what is found after it
    cards: Cards | None = None  # of the clients, where only sums may be seen

    def without(self, absent: set[str]) -> Self:
        """The server of the remaining clients, before the first round is done; weights stay as agreed."""
        ids = tuple(cid for cid in self.client_ids if cid not in absent)
        weights = None if self.weights is None else {cid: self.weights[cid] for cid in ids}
        return replace(self, client_ids=ids, weights=weights)


def shared_width(features: Mapping[str, int]) -> int:
    """The number of features, which all clients must agree on."""
    if len(set(features.values())) > 1:
        listed = ", ".join(f"{cid!r} has {d}" for cid, d in features.items())
        raise DataError(
            f"silos disagree on the number of features: {listed}. FMTC needs one shared feature space: "
            "bring every silo to the same columns before fitting."
        )
    return next(iter(features.values()))


def refuse_weights(weights: Weights) -> None:
    """Raise `InputError` for weights in a run of which the server sees sums only, so that it cannot weigh anybody."""
    if weights is not None:
        raise InputError("silo_weights cannot be used with privacy: the server sees sums, in which all count alike")


def client_weights(ids: Sequence[str], weights: Weights) -> Array:
    """The paper's omega in the order of the ids, summing to 1; 1/m each unless given."""
    if weights is None:
        return np.full(len(ids), 1 / len(ids))
    unknown, missing = sorted(set(weights) - set(ids)), sorted(set(ids) - set(weights))
    if unknown or missing:
        raise InputError(
            f"silo_weights must name each silo once; missing: {missing or 'none'}, unknown: {unknown or 'none'}"
        )
    given: list[Any] = list(weights.values())
    for weight in given:
        if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 < float(weight) < float("inf"):
            raise InputError(f"silo_weights must be finite numbers above 0, got {dict(weights)}")
    omega = np.array([weights[cid] for cid in ids], dtype=float)
    return omega / omega.sum()


def checked_weights(weights: Mapping[Any, float] | None, silos: Iterable[str]) -> dict[str, float] | None:
    """The weights by silo, checked before anything is read or started."""
    if weights is None:
        return None
    if not hasattr(weights, "items"):
        raise TypeError(
            "silo_weights must be None or a mapping of silo to number, such as {'north': 2, 'south': 1}, got "
            f"{weights!r}"
        )
    found = {str(cid): w for cid, w in weights.items()}
    client_weights(sorted(silos), found)
    return found


def row_weights(server: ServerState) -> dict[str, float] | None:
    """How much each row of a client counts in what all have in common, 1 on average; None: all rows count alike."""
    if server.weights is None or len(set(server.weights.values())) == 1:
        return None
    omega = client_weights(server.client_ids, server.weights)
    return dict(zip(server.client_ids, (len(omega) * omega).tolist(), strict=True))


def noted(held: tuple[str, ...], *others: Iterable[str]) -> tuple[str, ...]:
    """Clients that were held, with others; each once, sorted."""
    return tuple(sorted({*held, *(cid for some in others for cid in some)}))


def set_aside(server: Server, client_ids: Iterable[str], far: Array) -> tuple[Server, list[str]]:
    """The server, which leaves some clients out of what all have in common, and the ids of the others."""
    ids = list(client_ids)
    aside = [cid for cid, is_far in zip(ids, far, strict=True) if is_far]
    if not aside:
        return server, ids
    server = replace(server, held=noted(server.held, aside), aside=noted(server.aside, aside))
    return server, [cid for cid in ids if cid not in aside]


def heard(server: ServerState, answers: Mapping[str, Any]) -> list[str]:
    """Ids of the clients that answered and were not set aside, sorted; all of them where none is left."""
    return sorted(set(answers) - set(server.aside)) or sorted(answers)
