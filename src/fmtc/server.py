"""The server of FMTC between messages: who takes part, the units of columns, and whom it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Self, TypeVar

import numpy as np

from .errors import DataError, InputError
from .kernels.scaling import Scaling

Array = np.ndarray
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
    weights: Mapping[str, float] | None = None  # the paper's omega as given; None: all alike
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
            f"clients disagree on the number of features: {listed}. FMTC needs one shared feature space: "
            "bring every client to the same columns before fitting."
        )
    return next(iter(features.values()))


def refuse_weights(weights: Mapping[str, float] | None) -> None:
    """Raise `InputError` for weights in a run of which the server sees sums only, so that it cannot weigh anybody."""
    if weights is not None:
        raise InputError("client_weights cannot be used with privacy: the server sees sums, in which all count alike")


def client_weights(ids: Sequence[str], weights: Mapping[str, float] | None) -> Array:
    """The paper's omega in the order of the ids, summing to 1; 1/m each unless given."""
    if weights is None:
        return np.full(len(ids), 1 / len(ids))
    unknown, missing = sorted(set(weights) - set(ids)), sorted(set(ids) - set(weights))
    if unknown or missing:
        raise InputError(
            f"client_weights must name each client once; missing: {missing or 'none'}, unknown: {unknown or 'none'}"
        )
    given: list[Any] = list(weights.values())
    for weight in given:
        if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 < float(weight) < float("inf"):
            raise InputError(f"client_weights must be finite numbers above 0, got {dict(weights)}")
    omega = np.array([weights[cid] for cid in ids], dtype=float)
    return omega / omega.sum()


def row_weights(server: ServerState) -> dict[str, float] | None:
    """How much each row of a client counts in what all have in common, 1 on average; None: all rows count alike."""
    if server.weights is None or len(set(server.weights.values())) == 1:
        return None
    omega = client_weights(server.client_ids, server.weights)
    return dict(zip(server.client_ids, (len(omega) * omega).tolist(), strict=True))


def noted(held: tuple[str, ...], *others: Iterable[str]) -> tuple[str, ...]:
    """Clients that were held, with others; each once, sorted."""
    return tuple(sorted({*held, *(cid for some in others for cid in some)}))


def held_at_the_end(server: Server, history: Sequence[Any]) -> Server:
    """The server after a run: whom it capped in less than half of the rounds, and not in the last, is not held."""
    capped = [{*one.capped, *one.odd} for one in history]
    last = set(server.aside).union(*capped[-1:])
    few = {cid for cid in server.held if 0 < sum(cid in some for some in capped) < len(capped) / 2} - last
    return replace(server, held=tuple(cid for cid in server.held if cid not in few))


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
