"""The only loop: drives a method's phases over a transport. Quorum, history, callbacks, checkpoints; no formula."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..artifacts.files import Kind, jsonable, new_folder, read_tensors, well_formed, write_tensors
from ..artifacts.states import flatten, unflatten
from ..errors import ClientError, DataError, FileError, OwnError, RefusedError, SiteError, TrustError
from ..linalg.threads import one_thread
from ..models.shared import Shared
from ..privacy.ledger import Total, Totals, add
from ..protocol.base import Message, Phase, dropped, pack, value_bytes
from ..protocol.graph.view import METHOD
from ..protocol.method import Method

logger = logging.getLogger(__name__)

CHECKPOINT = Kind("server checkpoint", 6)


@dataclass
class Replies:
    """What came back from one exchange, and what it weighed."""

    answers: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    refused: int = 0  # messages that were thrown away: not as declared, late, or sent twice


class Transport(Protocol):
    """How messages reach clients. One implementation per way of moving bytes; none contains a formula."""

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Names of the clients within reach, sorted."""
        ...

    def exchange(self, messages: Mapping[str, Message]) -> Replies:
        """Deliver one message to each client named, collect the answers and the failures."""
        ...

    def save_clients(self, folder: Path) -> None:
        """Keep what clients need to continue from the round they are in, unless they keep it themselves."""
        return

    def load_clients(self, folder: Path, client_ids: tuple[str, ...]) -> None:
        """Bring these clients back to the round of a checkpoint, unless messages name the round they continue from."""
        return


@dataclass(frozen=True)
class RoundRecord:
    """One line of the history: where the iteration stands after a round, and what the round cost.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import FMTC
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> record = FMTC(2, view="graph", scale="none", max_iter=3, random_state=0).fit(X).run_.rounds[-1]
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
    step: int = 0  # which round of its loop, where the run has several; 0: not known
    capped: tuple[str, ...] = ()  # clients whose answer was far larger than those of the others, and was made smaller
    odd: tuple[str, ...] = ()  # clients that had nothing in common with the rest, and next to no weight
    affinity: Mapping[str, float] | None = None  # of each client with the rest, 0 to 1, where it was computed

    @property
    def in_mixture(self) -> bool:
        """Whether it is a round of a mixture, which has a likelihood and no residuals."""
        return not np.isfinite(self.primal_residual)

    @property
    def title(self) -> str:
        """Such as: mixture round 3."""
        if np.isnan(self.objective):
            return "noisy sums"
        return f"{'mixture' if self.in_mixture else 'graph'} round {self.step or self.round_no}"

    @property
    def standing(self) -> str:
        """Where the iteration stands, in words: residuals, or the log-likelihood of a mixture."""
        if np.isnan(self.objective):
            return "all noisy sums released"
        if self.in_mixture:
            return f"log-likelihood per row {-self.objective:.6g}"
        return f"residuals {self.primal_residual:.1e} (primal), {self.dual_residual:.1e} (dual)"

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> RoundRecord:
        """Undo `asdict` and JSON, where a number that is not finite was written as null."""
        numbers = {name: float("nan") if value is None else value for name, value in line.items()}
        names = {name: tuple(line.get(name, ())) for name in ("missing", "capped", "odd")}
        return cls(**numbers | names | {"affinity": line.get("affinity")})


def add_received(received: Totals, phase: Phase, replies: Replies) -> None:
    """Add the answers of one exchange to what was received before, by phase and field."""
    for answer in replies.answers.values():
        for name, value in pack(answer).items():
            add(received, Total(phase.name, name, np.shape(value), 1, value_bytes(value)))


@dataclass(frozen=True)
class RunRecord:
    """What happened in a run: its history, why it ended, and what all clients have in common.

    `read_record` gives what `write_record` kept of it. In the process of the run there is more: the server's last
    state, and, of a federation on one machine, what each client came to and what left it.
    """

    history: tuple[RoundRecord, ...]
    converged: bool | None  # None: not known here
    stopped_because: str
    client_ids: tuple[str, ...] = ()  # that took part to the end; none where only a client's end is known
    common: Mapping[str, Any] = field(default_factory=dict)  # arrays that belong to all clients, by name
    why: str = ""  # the view was chosen so
    roster: str = ""  # code of the roster, where only sums were seen
    held: tuple[str, ...] = ()  # clients that were capped, set aside or refused
    missing: tuple[str, ...] = ()  # clients the run had to continue without
    received: tuple[Total, ...] = ()  # what the server has received, over all clients and rounds
    before: int = 0  # rounds of earlier loops, where the method has several
    shared: Shared | None = None  # what newcomers and updates go on from; only where it was read from a file
    late: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)  # what lost clients are asked to conclude
    server: Any = None
    kept: Mapping[str, Any] = field(default_factory=dict)  # by client, what `read_client_result` has
    ledgers: Mapping[str, Any] = field(default_factory=dict)  # lines about what left each client
    # what a fitted estimator adds
    choices: Mapping[str, str] = field(default_factory=dict)  # which model each silo kept: federated, public or alone
    agreement: Mapping[str, float] = field(default_factory=dict)  # of labels and k-means of the embedding, graph view
    promise: Mapping[str, Any] | None = None  # of a private run: what is promised, and what was released
    advice: Any = None  # `Advice`, where it chose the number of clusters
    joined: Any = None  # `Joined`, of a newcomer

    @property
    def influence(self) -> Any:
        """Who pulls whom, m x m in the order of `client_ids`; None where it is not known.

        How far what the common model says of the silo of the row moves when the silo of the column is left out. Graph
        view: its slice of the consensus, relative to its norm. Mixture: its means, in units of the common covariance.
        """
        return self.common.get("influence")

    @property
    def rounds(self) -> list[RoundRecord]:
        """The rounds of the last loop, counted from 1."""
        return [replace(record, round_no=number) for number, record in enumerate(self.history[self.before :], start=1)]

    def after(self, asked: RunRecord | None) -> RunRecord:
        """The run, with what came of the one before it that was asked for the number of clusters."""
        return self if asked is None else replace(self, received=(*asked.received, *self.received), advice=asked.advice)


Callback = Callable[[RoundRecord], None]


def run(
    transport: Transport,
    settings: Any,
    *,
    method: Method = METHOD,
    weights: Mapping[str, float] | None = None,
    callbacks: Iterable[Callback] = (),
    checkpoint: str | Path | None = None,
    resume: bool = False,
    min_clients: int | None = None,
) -> RunRecord:
    """Run a method over a transport: for FMTC, train one model per client (Algorithm 1).

    Parameters
    ----------
    transport : Transport
    settings : Settings
        Of the method.
    method : Method
        FMTC unless another one is given.
    weights : mapping of client id to float, optional
        The paper's omega, 1/m each by default; normalised to sum to 1.
    callbacks : iterable of callables
        Each is called with the `RoundRecord` of every round.
    checkpoint : path, optional
        Folder that always holds the last completed round.
    resume : bool
        Continue from the checkpoint, if there is one; the result is then, bit for bit, that of the undisturbed run.
    min_clients : int, optional
        Continue while at least this many clients answer; all of them by default. A client that fails before its first
        model is left out of the run, a later one keeps its last slice and is asked again.

    Returns
    -------
    RunRecord

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.settings import Settings
    >>> from fmtc.runtime.driver import run
    >>> from fmtc.runtime.local import LocalTransport
    >>> rng = np.random.default_rng(0)
    >>> settings = Settings(n_clusters=2, max_iter=4)
    >>> transport = LocalTransport({"a": rng.normal(size=(30, 3)), "b": rng.normal(size=(40, 3))}, settings)
    >>> result = run(transport, settings)
    >>> len(result.history), transport.results()["a"].labels.shape
    (4, (30,))
    """
    folder = None if checkpoint is None else Path(checkpoint)
    least = quorum(min_clients, len(transport.client_ids), method)
    return _Run(transport, settings, method, weights, tuple(callbacks), folder, least).to_the_end(resume)


def with_server(record: RunRecord, method: Method, server: Any) -> RunRecord:
    """The record of a run with what its server knows in the end."""
    return replace(
        record, client_ids=tuple(server.client_ids), common=method.common(server), why=getattr(server, "why", ""),
        roster=getattr(getattr(server, "cards", None), "code", ""), held=tuple(getattr(server, "held", ())),
        server=server,
    )  # fmt: skip


@dataclass
class _Run:
    """A run on its way: what `run` was given, and where it stands."""

    transport: Transport
    settings: Any
    method: Method
    weights: Mapping[str, float] | None
    callbacks: tuple[Callback, ...]
    folder: Path | None
    quorum: int
    server: Any = None
    history: tuple[RoundRecord, ...] = ()
    answered: dict[str, int] = field(default_factory=dict)  # the round of each client's last answer
    received: Totals = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # whose answer was dropped at any time: they cannot end the run
    loop: str = ""  # the loop that the run is in
    begun: int = 0  # the rounds before it
    before_closing: Any = None  # the server when the last loop ended
    closing: dict[str, list[Message]] = field(default_factory=dict)  # what each client was asked since then
    stopped: tuple[bool | None, str] = (None, "")  # whether the last loop converged, and why it ended

    @property
    def round_no(self) -> int:
        """Rounds done."""
        return self.history[-1].round_no if self.history else 0

    @property
    def place(self) -> int:
        """Where the loop stands in the order of phases; -1 before the first."""
        return self.method.phases.index(self.method.phase(self.loop)) if self.loop else -1

    def to_the_end(self, resume: bool) -> RunRecord:
        """All phases in their order, from the checkpoint if there is one."""
        method, settings = self.method, self.settings
        found = self._load() if resume else False
        if not found:
            self.server = method.open_server(self.transport.client_ids, settings, self.weights)
        answered: Iterable[str] = self.transport.client_ids
        begun = self.place if found else -1  # loop of the checkpoint
        for place, phase in enumerate(method.phases):
            if phase in method.loops and place >= begun:
                self._loop(phase)
            elif place > begun or phase.rebuilds:
                answered = self._phase(phase, answered, again=place < begun)
        missing = set(self.transport.client_ids) - set(answered)
        late = {cid: messages for cid in sorted(missing) if (messages := self._late(cid))}
        server = self.method.ended(self.server, self.history)
        if self.refused:
            server = self.method.held(server, self.refused)
        record = RunRecord(
            self.history, *self.stopped, missing=tuple(sorted(missing)), received=tuple(self.received.values()),
            before=self.begun, late=late,
        )  # fmt: skip
        return with_server(record, self.method, server)

    def _late(self, cid: str) -> tuple[Message, ...]:
        """What a client is asked to conclude later, in a process that begins anew: as if the run had been resumed.

        Nothing, unless it was lost when it was asked to conclude, which needs nothing of the others.
        """
        method, server, settings = self.method, self.before_closing, self.settings
        asked = self.closing.get(cid, [])
        if not asked or not method.phase(asked[-1].phase).concludes:
            return ()
        place = {"round_no": self.round_no, "last_round": self.answered.get(cid, 0)}
        again = [
            Message(phase.name, phase.asks(server, settings)[cid], **place, turn=turn)
            for phase in method.phases[: self.place]
            if phase.rebuilds
            for turn in range(method.times(phase, server, settings))
        ]
        return (*again, *asked)

    def _phase(self, phase: Phase, answered: Iterable[str], *, again: bool) -> Iterable[str]:
        """All turns of a phase; the clients that answered the last one. `again`: its answers were reduced before."""
        turn = 0
        while turn < self.method.times(phase, self.server, self.settings):  # each time: answers may end it
            replies = self._ask(phase, turn)
            answered = tuple(replies.answers)
            if not again:
                if self._opens(phase):
                    self.server = self.method.without(self.server, set(replies.failures))
                self.server = phase.reduce(self.server, replies.answers, self.settings)
            turn += 1
        return answered

    def _opens(self, phase: Phase) -> bool:
        """Whether a client that fails in a phase is left out: it cannot take part in the loop that comes next."""
        method = self.method
        if not self.history:
            return phase in method.opening
        return method.precedes_a_loop(phase) and method.phases.index(phase) > self.place and not phase.pure

    def _loop(self, phase: Phase) -> None:
        """Rounds of one loop until it stops."""
        if not self.method.times(phase, self.server, self.settings):
            return
        if self.loop != phase.name:
            self.loop, self.begun = phase.name, len(self.history)
        while (stopped := self.method.loop_stops(phase, self.history[self.begun :], self.settings)) is None:
            self._round(phase)
        self.stopped, self.before_closing, self.closing = stopped, self.server, {}

    def _round(self, phase: Phase) -> None:
        """One turn of a loop."""
        started = time.perf_counter()
        replies = self._ask(phase)
        if len(self.history) == self.begun:
            self.server = self.method.without(self.server, set(replies.failures))
        number, present = self.round_no + 1, tuple(replies.answers)
        with one_thread("blas"):
            self.server, report = phase.reduce(self.server, replies.answers, self.settings)
        self.answered |= dict.fromkeys(present, number)
        record = RoundRecord(
            number,
            **asdict(report),
            bytes_up=replies.bytes_up,
            bytes_down=replies.bytes_down,
            seconds=time.perf_counter() - started,
            missing=tuple(sorted(replies.failures)),
            refused=replies.refused,
            step=len(self.history) - self.begun + 1,
        )
        self.history = (*self.history, record)
        logger.info("round %d: objective %.6g, %s", record.round_no, record.objective, record.standing)
        if self.folder is not None:
            self._save(self.folder)
        for callback in self.callbacks:
            callback(record)

    def _ask(self, phase: Phase, turn: int = 0) -> Replies:
        """One exchange; a failure is logged while the quorum holds and raised when it does not."""
        loops = phase in self.method.loops
        number = self.round_no + loops
        messages = {
            cid: Message(phase.name, ask, number, self.answered.get(cid, 0), turn)
            for cid, ask in phase.asks(self.server, self.settings).items()
        }
        replies = self.transport.exchange(messages)
        self._drop(phase, replies)
        doing = f"in round {number}" if loops else phase.doing
        for cid, error in replies.failures.items():
            logger.warning("silo %r failed %s: %s: %s", cid, doing, type(error).__name__, error)
        for cid, message in messages.items() if not loops and self.before_closing is not None else ():
            self.closing.setdefault(cid, []).append(message)
        # whom the server refuses cannot end the run for the others, unless too few of them are left to compare
        needed = self._enough(len(messages))
        if phase.concludes and self.method.keeps:  # others have what they need; who was lost concludes later
            needed -= sum(isinstance(e, SiteError) and not isinstance(e, OwnError) for e in replies.failures.values())
        if len(replies.answers) < needed:
            if not replies.failures:  # a resumed run: clients were left out before its first round
                raise ClientError(f"{len(messages)} silos take part in this run, {needed} needed: lower min_silos")
            cid, error = min(replies.failures.items())
            kind = DataError if isinstance(error, DataError) else ClientError  # rows that are here, and can be mended
            raise kind(
                f"silo {cid!r} failed {doing}: {type(error).__name__}: {error} "
                f"({len(replies.answers)} of {len(messages)} silos answered, {needed} needed)"
            ) from error
        add_received(self.received, phase, replies)
        return replies

    def _enough(self, asked: int) -> int:
        """Answers that a phase needs: the quorum less clients that were refused, but more than half of all."""
        return max(min(self.quorum, asked // 2 + 1), self.quorum - len(self.refused))

    def _drop(self, phase: Phase, replies: Replies) -> None:
        """Take out answers that no honest client can have given; they count as failures of their clients."""
        if not getattr(self.settings, "contains", False):
            return
        refused = dropped(phase, self.server, replies.answers, self.settings)
        for cid, why in refused.items():
            del replies.answers[cid]
            replies.failures[cid] = RefusedError(why)
            replies.refused += 1
        if refused:
            self.refused |= set(refused)
            self.server = self.method.held(self.server, refused)

    # ------------------------------------------------------------------------------------------------ checkpoints

    def _save(self, folder: Path) -> None:
        """Replace the checkpoint by this round's, whole or not at all."""
        name = f"round-{self.round_no:05d}"
        with new_folder(folder / name, overwrite=True) as part:
            (part / CLIENTS).mkdir()
            self.transport.save_clients(part / CLIENTS)
            arrays, values = flatten(self.server)
            about = {
                **CHECKPOINT.head,
                "method": self.method.name,
                "loop": [self.loop, self.begun],
                "asked": self.transport.client_ids,
                "settings": asdict(self.settings),
                "weights": self.weights,
                "server": {"": type(self.server).__name__, **values},
                "answered": self.answered,
                "received": [asdict(line) for line in self.received.values()],
                "history": [asdict(record) for record in self.history],
            }
            write_tensors(part / "server.safetensors", arrays, about)
        for old in folder.glob(ROUND):
            if old.name != name:
                shutil.rmtree(old)

    def _load(self) -> bool:
        """Bring server and clients to the newest checkpoint; False: there is none."""
        rounds = sorted(self.folder.glob(ROUND)) if self.folder is not None else []
        if not rounds:
            return False
        path = rounds[-1] / "server.safetensors"
        arrays, about = read_tensors(path, CHECKPOINT)
        with well_formed(path):
            self._check_same_run(about)
            server = self.method.open_server(self.transport.client_ids, self.settings, self.weights)
            self.server = unflatten(server, arrays, about["server"])
            self.history = tuple(RoundRecord.from_dict(line) for line in about["history"])
            self.loop, self.begun = about["loop"]
            self.answered = {str(cid): int(number) for cid, number in about["answered"].items()}
            for line in about["received"]:
                add(self.received, Total.from_dict(line))
            self.transport.load_clients(rounds[-1] / CLIENTS, self.server.client_ids)
        return True

    def _check_same_run(self, about: Mapping[str, Any]) -> None:
        """Refuse to continue with another method, other settings, clients or weights."""
        folder = self.folder
        now = jsonable({"method": self.method.name, **asdict(self.settings)})
        then = {"method": about["method"], **about["settings"]}
        changed = [
            f"{name}={then.get(name)!r} then, {now[name]!r} now"
            for name in now
            if name not in self.method.changeable and now[name] != then.get(name)
        ]
        if changed:
            raise FileError(
                f"the checkpoint in {folder} was made with other settings ({'; '.join(changed)}). "
                "Resume with the same ones, or start again."
            )
        ids, here = about["server"]["client_ids"], self.transport.client_ids
        if not set(ids) <= set(here) <= set(about["asked"]):
            raise FileError(f"the checkpoint in {folder} is of silos {list(ids)}, this run has {list(here)}")
        if about["weights"] != jsonable(self.weights):
            raise FileError(f"the checkpoint in {folder} was made with other silo_weights; resume with the same ones")


ROUND = "round-" + 5 * "[0-9]"
CLIENTS = "clients"  # folder inside a round: a client may be called "server"


def quorum(min_clients: int | None, m: int, method: Method) -> int:
    """How many of m clients must answer.

    Raises
    ------
    TrustError
        If fewer than all may do, and only sums over all of them may be seen.
    """
    if method.masks and min_clients is not None and min_clients < m:
        raise TrustError(
            f"min_silos={min_clients} of {m} cannot be used with privacy: a server that only says that a silo is "
            "gone could take the difference of two sums, which shows that silo's own part. Wait for all silos, or "
            "start a new run without the one that is gone"
        )
    if min_clients is None:
        return m
    if type(min_clients) is not int:
        raise TypeError(f"min_silos must be None or a whole number, got {min_clients!r}")
    if not 1 <= min_clients <= m:
        raise ValueError(f"min_silos must lie between 1 and the {m} silos there are, got {min_clients}")
    return min_clients
