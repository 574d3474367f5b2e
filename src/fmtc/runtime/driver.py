"""The only round loop: common units, hello, prepare, rounds, finish; stop rule, history, callbacks, checkpoints."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from ..artifacts.files import check_schema, jsonable, new_folder, pack, read_tensors, write_tensors
from ..errors import ClientError, FileError
from ..kernels.scaling import Scaling
from ..steps import (
    BETAS,
    FEW_ROWS,
    GATHERINGS,
    POOLED,
    TRIAL_ROUNDS,
    Downlink,
    Hyper,
    ServerState,
    Uplink,
    absolute_beta,
    downlinks,
    feature_weights,
    finishes,
    first_centers,
    gatherings,
    next_centers,
    numbering,
    numbers,
    open_server,
    pooled_scaling,
    preparations,
    rescalings,
    reweighed,
    server_step,
    weighings,
    without_clients,
)

logger = logging.getLogger(__name__)

Array = np.ndarray

CHECKPOINT_FORMAT = 2


@dataclass
class Replies:
    """What came back from one exchange, and what it weighed."""

    uplinks: dict[str, Uplink] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    refused: int = 0  # messages that were thrown away: of the wrong shape, not finite, late, twice


class Transport(Protocol):
    """How messages reach clients. One implementation per way of moving bytes; none contains a formula."""

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Names of the clients within reach, sorted."""
        ...

    def exchange(self, messages: Mapping[str, Downlink]) -> Replies:
        """Deliver one message to each client named, collect the answers and the failures."""
        ...

    def save_clients(self, folder: Path) -> None:
        """Keep what clients need to go on from the round they are in."""
        ...

    def load_clients(self, folder: Path, client_ids: tuple[str, ...]) -> None:
        """Bring these clients back to the round of a checkpoint."""
        ...


@dataclass(frozen=True)
class RoundRecord:
    """One line of the history: where the iteration stands after a round, and what the round cost.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import FMTC
    >>> record = FMTC(2, max_iter=3, random_state=0).fit(np.random.default_rng(0).normal(size=(40, 3))).history_[-1]
    >>> record.round_no, record.bytes_up  # one 3 x 2 matrix and two numbers
    (3, 64)
    """

    round_no: int
    objective: float
    lagrangian: float
    primal_residual: float
    dual_residual: float
    rank: int
    bytes_up: int
    bytes_down: int
    seconds: float
    missing: tuple[str, ...] = ()
    refused: int = 0

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> RoundRecord:
        """Undo `asdict` and JSON, where a number that is not finite was written as null."""
        numbers = {name: float("nan") if value is None else value for name, value in line.items()}
        return cls(**numbers | {"missing": tuple(line["missing"])})


@dataclass(frozen=True)
class Trials:
    """What came of ``beta="auto"``: how well rows held back are clustered with each beta, and what it cost to know.

    Examples
    --------
    >>> from fmtc.runtime.driver import Trials
    >>> Trials({0.0: {"a": 0.6, "b": 0.7}, 0.15: {"a": 0.8, "b": 0.6}}, bytes_up=0, bytes_down=0).chosen
    0.15
    """

    scores: Mapping[float, Mapping[str, float]]  # of each beta and client, at most 1
    bytes_up: int
    bytes_down: int

    @property
    def means(self) -> dict[float, float]:
        """Mean over clients of each beta."""
        return {beta: float(np.mean(list(of_clients.values()))) for beta, of_clients in self.scores.items()}

    @property
    def chosen(self) -> float:
        """The beta with the best mean; of equals the smallest."""
        means = self.means
        return max(sorted(means), key=means.__getitem__)

    def __str__(self) -> str:
        tried = ", ".join(f"{score:.3f} with {beta:g}" for beta, score in self.means.items())
        return f"beta={self.chosen:g} was chosen, by how well rows held back are clustered: {tried}"


@dataclass(frozen=True)
class Result:
    """End of a run: the server's last state, the history and why it ended."""

    server: ServerState
    history: tuple[RoundRecord, ...]
    converged: bool
    stopped_because: str
    missing: tuple[str, ...] = ()  # clients the run had to go on without
    trials: Trials | None = None  # of beta="auto"


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread(user_api: str) -> AbstractContextManager[Any]:
    """One thread for ``"blas"`` (in the process) or ``"openmp"`` (in this thread) while the block runs.

    The matrices of a round are small: more threads cost more than they bring, and sums in another order change bits.
    """
    return _thread_pools().limit(limits=1, user_api=user_api)


Callback = Callable[[RoundRecord], None]


def run(
    transport: Transport,
    hyper: Hyper,
    *,
    weights: Mapping[str, float] | None = None,
    callbacks: Iterable[Callback] = (),
    checkpoint: str | Path | None = None,
    resume: bool = False,
    min_clients: int | None = None,
) -> Result:
    """Train one model per client (Algorithm 1).

    Parameters
    ----------
    transport : Transport
    hyper : Hyper
    weights : mapping of client id to float, optional
        The paper's omega, 1/m each if left out; normalised to sum to 1.
    callbacks : iterable of callables
        Each is called with the `RoundRecord` of every round.
    checkpoint : path, optional
        Folder that always holds the last completed round.
    resume : bool
        Go on from the checkpoint, if there is one; the result is then, bit for bit, that of the undisturbed run.
    min_clients : int, optional
        Go on while at least this many clients answer; all of them if left out. A client that fails before its first
        model is left out of the run, a later one keeps its last slice and is asked again.

    Returns
    -------
    Result

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import Hyper, LocalTransport, run
    >>> rng = np.random.default_rng(0)
    >>> hyper = Hyper(n_clusters=2, max_iter=4)
    >>> transport = LocalTransport({"a": rng.normal(size=(30, 3)), "b": rng.normal(size=(40, 3))}, hyper)
    >>> result = run(transport, hyper)
    >>> len(result.history), transport.clients["a"].labels.shape
    (4, (30,))
    """
    callbacks = tuple(callbacks)
    trials: Trials | None = None
    folder = None if checkpoint is None else Path(checkpoint)
    quorum = _quorum(min_clients, len(transport.client_ids))
    saved = _load(folder, hyper, transport, weights) if folder is not None and resume else None
    if saved is None:
        server, history = _open(transport, hyper, weights, quorum), tuple[RoundRecord, ...]()
        if hyper.beta == "auto" and len(server.client_ids) > 1:
            trials = _try_betas(transport, server, hyper, weights, quorum)
            server = replace(server, chosen_beta=trials.chosen)
            logger.info("%s", trials)
    else:
        server, history, trials = saved
        if server.scaling is not None:
            _ask(transport, rescalings(server.scaling, server.client_ids), quorum, "scaling its columns")
        if server.weights is not None:
            _ask(transport, weighings(server.weights, server.client_ids), quorum, "weighing its columns")
    ready = _ask(transport, preparations(server, hyper), quorum, "preparing")
    if server.round_no == 0:
        server = without_clients(server, set(ready.failures))

    stopped = _stop_reason(history, hyper)
    while stopped is None:
        started = time.perf_counter()
        if server.weights is None and 0 < hyper.reweigh <= server.round_no:
            server = _reweigh(transport, server, hyper, quorum)
        replies = _ask(transport, downlinks(server, hyper), quorum, f"in round {server.round_no + 1}")
        if server.round_no == 0:
            server = without_clients(server, set(replies.failures))
        with one_thread("blas"):
            server, report = server_step(server, replies.uplinks, hyper, reuse=True)
        record = RoundRecord(
            server.round_no,
            **asdict(report),
            bytes_up=replies.bytes_up,
            bytes_down=replies.bytes_down,
            seconds=time.perf_counter() - started,
            missing=tuple(sorted(replies.failures)),
            refused=replies.refused,
        )
        del replies  # as large as the stack
        history = (*history, record)
        logger.info(
            "round %d: objective %.6g, residuals %.2e %.2e", record.round_no, record.objective,
            record.primal_residual, record.dual_residual,
        )  # fmt: skip
        if folder is not None:
            _save(folder, server, history, hyper, weights, trials, transport)
        for callback in callbacks:
            callback(record)
        stopped = _stop_reason(history, hyper)

    converged, reason = stopped
    numbered = _finish(partial(_ask, transport, quorum=quorum), server, hyper)
    missing = set(transport.client_ids) - set(numbered.uplinks)
    return Result(server, history, converged, reason, tuple(sorted(missing)), trials)


def _open(transport: Transport, hyper: Hyper, weights: Mapping[str, float] | None, quorum: int) -> ServerState:
    """The server before the first round, of the clients that have answered every question so far."""
    ids: Iterable[str] = transport.client_ids
    scaling = None
    if hyper.scale in POOLED:
        summed = _ask(transport, dict.fromkeys(ids, Downlink("moments")), quorum, "summing up its columns")
        scaling = pooled_scaling(summed.uplinks, hyper)
        ids = _ask(transport, rescalings(scaling, sorted(summed.uplinks)), quorum, "scaling its columns").uplinks
    hellos = _ask(transport, dict.fromkeys(ids, Downlink("hello")), quorum, "saying hello")
    return open_server(hellos.uplinks, hyper, weights, scaling)


def _finish(ask: Callable[..., Replies], server: ServerState, hyper: Hyper) -> Replies:
    """Clusters of all clients, with common numbers and, if there are some, common centres."""
    finished = ask(finishes(server), doing="finishing")
    orders = numbering(server, finished.uplinks, hyper)
    centers = None
    if hyper.shares_centers and len(orders) > 1:
        centers = first_centers(orders, finished.uplinks)
        for turn in range(1, GATHERINGS + 1):
            gathered = ask(gatherings(centers, orders, turn), doing="looking for common centres")
            centers = next_centers(centers, gathered.uplinks)
    return ask(numbers(orders, centers), doing="numbering its clusters")


def _try_betas(
    transport: Transport, server: ServerState, hyper: Hyper, weights: Mapping[str, float] | None, quorum: int
) -> Trials:
    """Go through a run in small with each beta, and choose the one whose clusters suit rows held back best."""
    scores: dict[float, dict[str, list[float]]] = {beta: {} for beta in BETAS}
    sent = Replies()
    fold, folds = 0, 1
    while fold < folds:

        def ask(messages: Mapping[str, Downlink], doing: str, fold: int = fold) -> Replies:
            tried = {cid: replace(message, trial=fold) for cid, message in messages.items()}
            replies = _ask(transport, tried, quorum=quorum, doing=f"{doing} in a trial of beta")
            sent.bytes_up += replies.bytes_up
            sent.bytes_down += replies.bytes_down
            return replies

        hellos = ask(dict.fromkeys(server.client_ids, Downlink("hello")), "saying hello").uplinks
        if np.median([hello.n_samples or 0 for hello in hellos.values()]) < 0.8 * FEW_ROWS:
            folds = 3
        small = replace(open_server(hellos, hyper, weights, server.scaling), chosen_beta=BETAS[0])
        small = without_clients(small, set(ask(preparations(small, hyper), "preparing").failures))
        first = small.W
        for beta in BETAS:
            if small.round_no:
                small = replace(small, beta=absolute_beta(beta, first, small.rho, hyper))
            for _ in range(TRIAL_ROUNDS):
                replies = ask(downlinks(small, hyper), f"in round {small.round_no + 1}")
                if small.round_no == 0:
                    small = without_clients(small, set(replies.failures))
                with one_thread("blas"):
                    small, _ = server_step(small, replies.uplinks, hyper)
                first = small.W if small.round_no == 1 else first
            numbered = _finish(ask, small, hyper).uplinks
            small = replace(small, rotations={cid: R for cid, R in small.rotations.items() if cid not in numbered})
            for cid, uplink in ask(dict.fromkeys(sorted(numbered), Downlink("score")), "scoring").uplinks.items():
                scores[beta].setdefault(cid, []).append(uplink.score or 0.0)
        fold += 1
    means = {beta: {cid: float(np.mean(s)) for cid, s in by_client.items()} for beta, by_client in scores.items()}
    return Trials(means, sent.bytes_up, sent.bytes_down)


def _reweigh(transport: Transport, server: ServerState, hyper: Hyper, quorum: int) -> ServerState:
    """Weigh the columns by how much the projections use them, and start the consensus anew from these embeddings."""
    weights = feature_weights(server.W)
    hellos = _ask(transport, weighings(weights, server.client_ids), quorum, "weighing its columns")
    server = reweighed(server, hellos.uplinks, weights, hyper)
    ready = _ask(transport, preparations(server, hyper), quorum, "preparing anew")
    return without_clients(server, set(ready.failures))


def _quorum(min_clients: int | None, m: int) -> int:
    if min_clients is None:
        return m
    if type(min_clients) is not int:
        raise TypeError(f"min_clients must be None or a whole number, got {min_clients!r}")
    if not 1 <= min_clients <= m:
        raise ValueError(f"min_clients must lie between 1 and the {m} clients there are, got {min_clients}")
    return min_clients


def _ask(transport: Transport, messages: Mapping[str, Downlink], quorum: int, doing: str) -> Replies:
    """One exchange; a failure is logged while the quorum holds and raised when it does not."""
    replies = transport.exchange(messages)
    for cid, error in replies.failures.items():
        logger.warning("client %r failed %s: %s: %s", cid, doing, type(error).__name__, error)
    if len(replies.uplinks) < quorum:
        if not replies.failures:  # a resumed run: clients were left out before its first round
            raise ClientError(f"the run goes on with {len(messages)} clients, {quorum} needed: lower min_clients")
        cid, error = min(replies.failures.items())
        raise ClientError(
            f"client {cid!r} failed {doing}: {type(error).__name__}: {error} "
            f"({len(replies.uplinks)} of {len(messages)} clients answered, {quorum} needed)"
        ) from error
    return replies


def _stop_reason(history: tuple[RoundRecord, ...], hyper: Hyper) -> tuple[bool, str] | None:
    if not history:
        return None
    last = history[-1]
    if last.round_no <= hyper.reweigh < hyper.max_iter:
        return None
    if max(last.primal_residual, last.dual_residual) < hyper.tol:
        return True, f"primal and dual residuals below tol={hyper.tol:g} after {last.round_no} rounds"
    if last.round_no >= hyper.max_iter:
        return False, (
            f"max_iter={hyper.max_iter} rounds done; residuals {last.primal_residual:.1e} (primal) and "
            f"{last.dual_residual:.1e} (dual), tol={hyper.tol:g}"
        )
    return None


# -------------------------------------------------------------------------------------------------- checkpoints

ROUND = "round-" + 5 * "[0-9]"
CLIENTS = "clients"  # folder inside a round: a client may be called "server"
_ARRAYS = ("omega", "W", "Z", "Y", "losses", "answered")
_FREE_TO_CHANGE = {"max_iter", "tol", "n_init", "labels_from", "centers"}  # settings a resumed run may set anew


def _save(
    folder: Path,
    server: ServerState,
    history: tuple[RoundRecord, ...],
    hyper: Hyper,
    weights: Mapping[str, float] | None,
    trials: Trials | None,
    transport: Transport,
) -> None:
    """Replace the checkpoint by this round's, whole or not at all."""
    name = f"round-{server.round_no:05d}"
    with new_folder(folder / name, overwrite=True) as part:
        (part / CLIENTS).mkdir()
        transport.save_clients(part / CLIENTS)
        arrays = {a: getattr(server, a) for a in _ARRAYS} | {f"rotation:{c}": R for c, R in server.rotations.items()}
        if server.weights is not None:
            arrays["weights"] = server.weights
        if server.scaling is not None:
            arrays |= {f"scaling:{name}": array for name, array in pack(server.scaling).items()}
        about = {
            "kind": "server checkpoint",
            "schema": CHECKPOINT_FORMAT,
            "client_ids": server.client_ids,
            "asked": transport.client_ids,
            **{f: getattr(server, f) for f in ("rho", "beta", "scale", "round_no")},
            "hyper": asdict(hyper),
            "weights": weights,
            "trials": None if trials is None else [list(trials.scores.items()), trials.bytes_up, trials.bytes_down],
            "history": [asdict(record) for record in history],
        }
        write_tensors(part / "server.safetensors", arrays, about)
    for old in folder.glob(ROUND):
        if old.name != name:
            shutil.rmtree(old)


def _load(
    folder: Path, hyper: Hyper, transport: Transport, weights: Mapping[str, float] | None
) -> tuple[ServerState, tuple[RoundRecord, ...], Trials | None] | None:
    """State, history and trials of the newest checkpoint, with the clients brought back to it; None: there is none."""
    rounds = sorted(folder.glob(ROUND))
    if not rounds:
        return None
    path = rounds[-1] / "server.safetensors"
    arrays, about = read_tensors(path)
    check_schema(path, about, "server checkpoint", CHECKPOINT_FORMAT)
    try:
        _check_same_run(folder, about, hyper, transport, weights)
        transport.load_clients(rounds[-1] / CLIENTS, tuple(about["client_ids"]))
        scaling = _under("scaling", arrays)
        trials = None
        if about.get("trials") is not None:
            scores, *sent = about["trials"]
            trials = Trials(dict(scores), *sent)
        server = ServerState(
            client_ids=tuple(about["client_ids"]),
            rotations=_under("rotation", arrays),
            scaling=Scaling(**scaling) if scaling else None,
            weights=arrays.get("weights"),
            chosen_beta=None if trials is None else trials.chosen,
            rho=about["rho"],
            beta=about["beta"],
            scale=about["scale"],
            round_no=about["round_no"],
            **{name: arrays[name] for name in _ARRAYS},
        )
        return server, tuple(RoundRecord.from_dict(line) for line in about["history"]), trials
    except KeyError as error:
        raise FileError(f"{path} is damaged: it lacks {error}") from None


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays whose name begins with ``prefix:``, by the rest of it."""
    return {name.partition(":")[2]: array for name, array in arrays.items() if name.startswith(prefix + ":")}


def _check_same_run(
    folder: Path,
    about: Mapping[str, Any],
    hyper: Hyper,
    transport: Transport,
    weights: Mapping[str, float] | None,
) -> None:
    """Refuse to go on with other settings, clients or weights."""
    now, then = asdict(hyper), about["hyper"]
    changed = [f"{name}={then.get(name)!r} then, {now[name]!r} now"
               for name in now if name not in _FREE_TO_CHANGE and now[name] != then.get(name)]  # fmt: skip
    if changed:
        raise FileError(
            f"the checkpoint in {folder} was made with other settings ({'; '.join(changed)}). "
            "Resume with the same ones, or start afresh."
        )
    if not set(about["client_ids"]) <= set(transport.client_ids) <= set(about["asked"]):
        raise FileError(
            f"the checkpoint in {folder} is of clients {about['client_ids']}, this run has {list(transport.client_ids)}"
        )
    if about["weights"] != jsonable(weights):
        raise FileError(f"the checkpoint in {folder} was made with other client_weights; resume with the same ones")


__all__ = ["Callback", "ClientError", "Replies", "Result", "RoundRecord", "Transport", "run"]
