"""The server of FMTC between messages: who takes part, the stacks W, Z and Y, and the consensus step (Eq. 18, 19)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from .errors import DataError, InputError
from .kernels.alignment import generalized_procrustes, rotate, turn_towards
from .kernels.containment import MOST_SLICES, Judged, judge, pulls
from .kernels.couplings import COUPLINGS, Coupling, update_dual, weight_of_threshold
from .kernels.couplings.partial import Partial
from .kernels.objective import augmented_lagrangian, global_objective, local_objective, residuals
from .kernels.scaling import Scaling
from .linalg.stacks import Workspace, blocks
from .mixture.steps import Common
from .settings import Settings

Array = np.ndarray

OVER_RELAXED = 1.8  # how far the consensus step looks past a client's model, seen from the consensus before


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
class Mixture:
    """The server of a mixture between messages; the first axis of arrays counts starts that are still compared."""

    means: Array  # s x k x r
    covariance: Array  # s x r x r
    shares: Array  # s x k
    profiles: Array  # s x k x l
    spread: Array  # s x k
    drift: Array  # s
    size: float = 1.0  # variance of a coordinate
    keep: Array = field(default_factory=lambda: np.zeros(1, np.int64))  # s, numbers of the starts
    scores: Array = field(default_factory=lambda: np.zeros(1))  # s, of the last round
    rounds: int = 0
    settled: bool = False  # no further round is needed
    axes: Array | None = None  # d x r
    origin: Array | None = None  # r
    centers: Array | None = None  # s x k x p, while starts are sought
    weights: Array | None = None  # s x p, coordinates that each start looks at
    handicap: Array = field(default_factory=lambda: np.zeros(1))  # s, what a start's score must be better by, per row
    mean: Array | None = None  # p, of all rows in coordinates of starts
    within: Array | None = None  # p x p, covariance about the silos' own means
    total: Array | None = None  # p x p, covariance about the common mean
    floor: Array | None = None  # r, least variance of coordinates of few values; 0 for others

    def common(self, start: int) -> Common:
        """Parameters of one start."""
        return Common(
            self.means[start], self.covariance[start], self.shares[start], self.profiles[start], self.spread[start],
            float(self.drift[start]),
        )  # fmt: skip

    @property
    def ranking(self) -> Array:
        """Places of the starts, the best first, by the log-likelihood of a row.

        In principal axes it counts as if all concepts were equally common: the entropy of their shares is added. Rows
        far out make long tails there, and a start that spends concepts on a few of them, and leaves most rows to one
        concept, would be ahead of starts that tell the rows apart.
        """
        scores = self.scores - self.handicap
        if self.axes is not None:
            scores = scores - (self.shares * np.log(np.maximum(self.shares, 1e-300))).sum(axis=1)
        return np.argsort(-scores, kind="stable")

    @property
    def leader(self) -> int:
        """Place of the best start."""
        return int(self.ranking[0])

    @property
    def order(self) -> Array:
        """The concept of the best start that takes each number, the largest first."""
        best = self.best(1)
        return np.lexsort((np.linalg.norm(best.means[0], axis=1), -best.shares[0]))

    def best(self, n: int) -> Mixture:
        """The n best starts, in their order."""
        if n >= len(self.keep):
            return self
        chosen = self.ranking[:n]
        return replace(self, **{name: getattr(self, name)[chosen] for name in STACKED})


STACKED = ("means", "covariance", "shares", "profiles", "spread", "drift", "keep", "scores", "handicap")


@dataclass(frozen=True)
class Cards:
    """What clients have shown of themselves in a run of which the server sees sums only; see `fmtc.protocol.cards`."""

    names: tuple[str, ...]  # m, in order
    keys: Array  # m x 32
    certificates: Array  # one after the other
    signatures: Array  # one after the other
    lengths: Array  # m x 2, of certificates and signatures
    code: str = ""  # of the roster, once all clients agree on it


def _empty() -> Array:
    return np.empty((0, 0, 0))


@dataclass(frozen=True)
class ServerState:
    """The server between messages; slice t of every stack belongs to ``client_ids[t]``."""

    client_ids: tuple[str, ...]
    weights: Mapping[str, float] | None = None  # the paper's omega as given; None: all alike
    view: str | None = None  # "graph" or "mixture"; None: to be decided
    why: str = ""  # the view was decided so
    wide: bool = False  # columns are many, or sparse: a mixture looks at their principal axes
    words: bool = False  # rows are sparse or weighed as words
    lifted: bool = False  # the graph view replaces columns by random features
    n_samples: int = 0  # rows of all clients, where they have told it for a mixture
    n_features: int = 0  # columns that are computed with
    scaling: Scaling | None = None  # what all clients were told to do to their columns
    mixture: Mixture | None = None
    omega: Array = field(default_factory=lambda: np.empty(0))  # m, sums to 1
    rho: float = 0.0
    beta: float | None = None  # in the units of Eq. 18; None until the first stack gives a relative beta its scale
    scale: float = 0.0  # gives the rows of all clients mean squared norm 1
    has: Array | None = None  # K x m, bool: which concepts each client has; None: all have all
    W: Array = field(default_factory=_empty)  # d x K x m; columns of a concept that a client lacks are zero
    Z: Array = field(default_factory=_empty)
    Y: Array = field(default_factory=_empty)
    rotations: Mapping[str, Array] = field(default_factory=dict)  # not yet confirmed by an answer
    losses: Array = field(default_factory=lambda: np.empty(0))  # m, last local objectives
    round_no: int = 0
    clusters: Mapping[str, int] = field(default_factory=dict)  # of clients that have a number of their own
    proposed: int = 0  # concepts that there may be, where that was asked
    orders: Mapping[str, Array] = field(default_factory=dict)  # cluster of a client that takes each number; -1: none
    cards: Cards | None = None  # of the clients, where only sums may be seen; then these take the place of the stacks:
    means: Array | None = None  # d, of the columns, while deviations from them are summed
    basis: Array | None = None  # d x r, directions that the consensus keeps
    ratio: Array | None = None  # r, how far it shrinks each of them
    reference: Array | None = None  # d x k, mean of the projections in the common frame
    frames: Array | None = None  # g x k x k, centres that clusters are matched to; after the last turn, one frame
    matched: int = 0  # turns of that
    held: tuple[str, ...] = ()  # clients that were capped, odd or refused at any time
    aside: tuple[str, ...] = ()  # those of the last round, which have no part in what is found after it
    told: Mapping[str, Array] = field(default_factory=dict)  # by client: rows, then means and variances of coordinates
    centers: Mapping[str, Array] = field(default_factory=dict)  # k x k by client, in the common order: from `finish`
    presence: Mapping[str, Array] = field(default_factory=dict)  # k by client, shares of rows; 0: few, or none
    influence: Array | None = None  # m x m, how far client s (row) moves when client t (column) is left out
    parts: Mapping[str, Array] = field(
        default_factory=dict
    )  # last sums of each client of the mixture, one after another
    workspace: Workspace = field(
        default_factory=Workspace, compare=False, repr=False, metadata={"saved": False}
    )  # owns the memory of W and Y from the first round on

    @property
    def kappa(self) -> Array | None:
        """Pooling strength of each concept of the mixture; None: there is no mixture."""
        if self.mixture is None or not len(self.mixture.spread):
            return None
        with np.errstate(divide="ignore"):  # infinity: the same means for all
            kappa: Array = 1 / self.mixture.best(1).spread[0]
        return kappa


def without_clients(server: ServerState, absent: set[str]) -> ServerState:
    """The server of the remaining clients, before the first round is done; weights stay as agreed."""
    if absent.isdisjoint(server.client_ids):
        return server  # no copies of what is still one stack of zeros
    stay = [t for t, cid in enumerate(server.client_ids) if cid not in absent]
    ids = tuple(server.client_ids[t] for t in stay)
    weights = None if server.weights is None else {cid: server.weights[cid] for cid in ids}
    kept = replace(server, client_ids=ids, weights=weights)
    if not len(server.omega):
        return kept
    if server.has is not None:
        kept = replace(kept, has=server.has[:, stay])
    return replace(kept, **{name: getattr(server, name)[..., stay] for name in ("omega", "W", "Z", "Y", "losses")})


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


def columns_of(server: ServerState, t: int) -> Any:
    """Columns of client t in every stack: those of the concepts it has; an index."""
    return slice(None) if server.has is None else np.flatnonzero(server.has[:, t])


def coupling_of(server: ServerState, settings: Settings) -> Coupling:
    """The coupling of the run, over the concepts that each client has."""
    whole = COUPLINGS[settings.coupling_of(server.words)]
    return whole if server.has is None else Partial(whole, server.has)


def server_step(
    server: ServerState, answers: MutableMapping[str, Any], settings: Settings, *, workspace: Workspace | None = None
) -> tuple[ServerState, RoundReport]:
    """Stack the W, align them, shrink towards a common structure (Eq. 18), dual step (Eq. 19).

    A client that did not answer keeps its last slice, and its rotation if it has not confirmed it.

    With a `workspace`, the step uses up what it is given: it empties `answers` once the answers are stacked, and writes
    over those stacks of the old state that the workspace owns. Without, neither changes.
    """
    memory = Workspace() if workspace is None else workspace
    W = _stacked(server, answers, settings, memory)
    present = [t for t, cid in enumerate(server.client_ids) if cid in answers]
    judged = _contained(server, W, present, settings)
    losses = server.losses.copy()
    for t, cid in enumerate(server.client_ids):
        if cid in answers:
            losses[t] = local_objective(answers[cid].cut, answers[cid].misfit, settings.alpha)
    rotations: Mapping[str, Array] = {cid: R for cid, R in server.rotations.items() if cid not in answers}
    among = slice(None) if len(present) == W.shape[2] else present
    if workspace is not None:
        answers.clear()
    R = _rotations(server, W, present, settings)
    if R is not None:
        for b in blocks(W):
            W[b][:, :, among] = rotate(W[b][:, :, among], R)
        turned = {server.client_ids[t]: _own_rotation(server, R[:, :, i], t) for i, t in enumerate(present)}
        rotations = {**rotations, **turned}
    beta, rho = server.beta, server.rho
    p, coupling = settings.solver.schatten_p, coupling_of(server, settings)
    if beta is None:
        beta = absolute_beta(settings.beta, W, rho, p, coupling)
    accelerate = settings.solver.accelerate and bool(server.Z.any())

    def ahead(b: slice) -> Array:  # docs/paper.md#rounds
        return OVER_RELAXED * W[b] + (1 - OVER_RELAXED) * server.Z[b] if accelerate else W[b]

    def target(b: slice) -> Array:
        T = ahead(b) + server.Y[b] / rho
        if judged.odd.any():
            T[:, :, judged.odd] = W[b][:, :, judged.odd]  # nor does what it said before count
        return T

    T = memory.compute(target, over=server.Y, dtype=W.dtype)
    consensus = coupling.prox(T, beta / rho, p).separate_from(T)  # Eq. 18
    Z = consensus.Z
    Y = memory.compute(lambda b: update_dual(0, T[b], Z[b], rho), over=T)  # Eq. 19; T, used up here, has the old dual
    primal, dual = residuals(W, Z, server.Z, Y, rho)
    report = RoundReport(
        objective=global_objective(losses, server.omega, W, beta=beta, p=p, coupling=coupling),
        lagrangian=augmented_lagrangian(
            losses, server.omega, W, Z, Y, beta=beta, rho=rho, p=p, coupling=coupling, value=consensus.value
        ),
        primal_residual=primal,
        dual_residual=dual,
        rank=consensus.rank,
        capped=_named(server, judged.capped),
        odd=_named(server, judged.odd),
        affinity={cid: round(float(a), 4) for cid, a in zip(server.client_ids, judged.affinity, strict=True) if a == a}
        or None,
    )
    server = replace(
        server, W=W, Z=Z, Y=Y, beta=beta, losses=losses, rotations=rotations,
        round_no=server.round_no + 1, held=noted(server.held, report.capped, report.odd),
        aside=noted((), report.capped, report.odd),
    )  # fmt: skip
    return server, report


JUDGED_AFTER = 3  # rounds: before, honest clients may have little in common, if they come to have it


def _contained(server: ServerState, W: Array, present: list[int], settings: Settings) -> Judged:
    """Judge the slices of this round, and scale those down that are too large or odd, in place."""
    pulled = settings.beta > 0 or not COUPLINGS[settings.coupling_of(server.words)].shrinks  # else by nobody
    if not (settings.solver.contains and pulled):
        return judge(W, [])
    if server.has is not None:  # a client that has other concepts than most is not odd
        judged = judge(W, present, compare=False, widths=np.maximum(server.has.sum(axis=0), 1))
    else:
        judged = judge(W, present, compare=server.round_no >= JUDGED_AFTER)
    for t in np.flatnonzero(judged.factors != 1):
        for b in blocks(W):
            W[b][:, :, t] *= judged.factors[t]
    return judged


def with_influence(server: ServerState, settings: Settings) -> ServerState:
    """The server after its last round, with who pulls whom in its consensus; T of Eq. 18 is Z + Y/rho (Eq. 19)."""
    if not 2 <= len(server.client_ids) <= MOST_SLICES or server.beta is None or server.has is not None:
        return server
    coupling = COUPLINGS[settings.coupling_of(server.words)]
    tau, p = server.beta / server.rho, settings.solver.schatten_p
    T = server.Z + server.Y / server.rho
    found = pulls(T, server.Z, lambda part: coupling.prox(part, tau, p).Z, drop=not coupling.shrinks)
    return replace(server, influence=found)


def _named(server: ServerState, chosen: Array) -> tuple[str, ...]:
    return tuple(cid for cid, is_chosen in zip(server.client_ids, chosen, strict=True) if is_chosen)


def noted(held: tuple[str, ...], *others: Iterable[str]) -> tuple[str, ...]:
    """Clients that were held, with others; each once, sorted."""
    return tuple(sorted({*held, *(cid for some in others for cid in some)}))


def held_at_the_end(server: ServerState, history: Sequence[Any]) -> ServerState:
    """The server after a run: whom it capped in less than half of the rounds, and not in the last, is not held."""
    capped = [{*one.capped, *one.odd} for one in history]
    last = set(server.aside).union(*capped[-1:])
    few = {cid for cid in server.held if 0 < sum(cid in some for some in capped) < len(capped) / 2} - last
    return replace(server, held=tuple(cid for cid in server.held if cid not in few))


def set_aside(server: ServerState, client_ids: Iterable[str], far: Array) -> tuple[ServerState, list[str]]:
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


def _stacked(server: ServerState, answers: Mapping[str, Any], settings: Settings, memory: Workspace) -> Array:
    """The projections of all clients, those of the last round for clients that did not answer; (d, k, m)."""
    slices = [
        _widened(server, np.asarray(answers[cid].W), t) if cid in answers else server.W[:, :, t]
        for t, cid in enumerate(server.client_ids)
    ]
    rounded = settings.solver.message_dtype is not None  # W came so, but sums keep all digits
    dtype = np.dtype(np.float64) if rounded else np.result_type(*{s.dtype for s in slices})
    return memory.compute(lambda b: np.moveaxis(np.array([s[b] for s in slices]), 0, 2), over=server.W, dtype=dtype)


def _widened(server: ServerState, W: Array, t: int) -> Array:
    """The projection of client t with a column for each concept, zero for those it lacks; (d, k) -> (d, K)."""
    if server.has is None:
        return W
    wide = np.zeros((len(W), len(server.has)), W.dtype)
    wide[:, columns_of(server, t)] = W
    return wide


def _own_rotation(server: ServerState, R: Array, t: int) -> Array:
    """The rotation of client t as it takes it; (K, K) -> (k, k)."""
    columns = columns_of(server, t)
    return np.ascontiguousarray(R[columns][:, columns])


def absolute_beta(relative: float, W: Array, rho: float, p: float, coupling: Coupling) -> float:
    """Beta in the units of Eq. 18, from a fraction of the largest singular value of the first stack."""
    return rho * weight_of_threshold(relative * coupling.critical_threshold(W), p)


def _rotations(server: ServerState, W: Array, present: list[int], settings: Settings) -> Array | None:
    """Rotations of the clients that answered; None without alignment; (k, k, present)."""
    if not settings.solver.align:
        return None
    if server.has is not None:
        return _partial_rotations(server, W, present)
    if server.round_no == 0:
        return generalized_procrustes(W if len(present) == W.shape[2] else W.take(present, axis=2))
    return turn_towards(W, server.Z)[:, :, present]


def _partial_rotations(server: ServerState, W: Array, present: list[int]) -> Array | None:
    """Rotations among the columns that a client has; None in the first round, which begins in the common frame."""
    if server.round_no == 0:
        return None
    R = np.zeros((W.shape[1], W.shape[1], len(present)))
    for i, t in enumerate(present):
        columns = columns_of(server, t)
        R[np.ix_(columns, columns, [i])] = turn_towards(W[:, columns, t], server.Z[:, columns, t])[:, :, None]
    return R
