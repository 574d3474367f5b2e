"""A client that answers messages: its state, what it saves, and the gate its answers leave by. Knows no transport."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..artifacts.files import Kind, fingerprint, jsonable, read_tensors, well_formed, write_tensors
from ..errors import FileError, RefusedError
from ..linalg.arrays import to_device, to_numpy
from ..privacy.outbox import Outbox
from ..protocol.base import Message, Phase, is_count
from ..protocol.method import Method

STATE = Kind("client checkpoint", 2)


class Store:
    """Where a client keeps what it needs to continue from a round.

    This one keeps nothing: the server of a client in its own process saves all clients at once.
    """

    def save(self, client: Any, round_no: int, last_round: int, question: str) -> None:
        """Keep the state after a round, and what question led to it; states from before `last_round` may go."""

    def load(self, client: Any, round_no: int) -> Any:
        """The client as it was after a round."""
        raise RefusedError(f"the state after round {round_no} is not kept here")

    def newest(self) -> int | None:
        """The newest round that is kept; None: none is."""
        return None

    def question(self, round_no: int) -> str | None:
        """What question led to the state after a round; None: it is not kept."""
        return None


class FolderStore(Store):
    """States of a client in a folder of its own, one file per round, written whole or not at all."""

    def __init__(self, folder: Path, method: Method):
        self.folder, self.method = folder, method

    def _path(self, round_no: int) -> Path:
        return self.folder / f"round-{round_no:05d}.safetensors"

    def save(self, client: Any, round_no: int, last_round: int, question: str) -> None:
        """Keep the state after a round, and the one before it."""
        write_state(self._path(round_no), client, self.method, round_no, question)
        keep = {self._path(last_round), self._path(round_no)}
        for old in self.folder.glob("round-*.safetensors"):
            if old not in keep:
                old.unlink()

    def load(self, client: Any, round_no: int) -> Any:
        """The client as it was after a round; refuses other rows."""
        return read_state(self._path(round_no), client, self.method)

    def newest(self) -> int | None:
        """The newest round in the folder."""
        rounds = [int(path.stem.partition("-")[2]) for path in self.folder.glob("round-*.safetensors")]
        return max(rounds, default=None)

    def question(self, round_no: int) -> str | None:
        """What question led to the state after a round; None: it is not kept."""
        path = self._path(round_no)
        return read_tensors(path)[1].get("question") if path.exists() else None


def write_state(path: Path, client: Any, method: Method, round_no: int, question: str = "") -> None:
    """What a client needs to continue after a round; before the first, some of it is not there yet."""
    about = {
        **STATE.head, "method": method.name, "client_id": client.client_id,
        "round_no": round_no, "question": question, "data": fingerprint(client.X),
    }  # fmt: skip
    values = {name: getattr(client, name, None) for name in method.saved}
    arrays = {name: to_numpy(value) for name, value in values.items() if value is not None}
    write_tensors(path, arrays, about | {"arrays": sorted(arrays)})


def read_state(path: Path, client: Any, method: Method) -> Any:
    """The client at the round of a file of `write_state`; refuses a file made on other rows."""
    arrays, about = read_tensors(path, STATE)
    with well_formed(path):
        owner, round_no = (about["client_id"], about["data"]), about["round_no"]
        found = {name: arrays[name] for name in about["arrays"]}
    if owner != (client.client_id, fingerprint(client.X)):
        raise FileError(
            f"the rows of silo {client.client_id!r} are not those of the checkpoint in {path.parent}; a run can only "
            "be resumed on the same data. Start again, or bring the old file back."
        )
    if (device := getattr(client, "device", None)) is not None:
        found = {name: to_device(value, device) for name, value in found.items()}
    return method.restored(client, round_no, found)


class ClientNode:
    """One client of a run. `answer` is its only door: it takes a message in and gives what leaves.

    Parameters
    ----------
    method : Method
    settings : object
        Of the method.
    outbox : Outbox
        The gate.
    subjects : mapping of name to callable
        Who replies to a phase: ``"client"`` makes the client from its rows, when it is first needed; a transport may
        have others (``"table"``, ``"run"``).
    store : Store
    finished : callable
        Called with the client when it has been through the last phase, before the answer leaves.
    """

    def __init__(
        self,
        method: Method,
        settings: Any,
        outbox: Outbox,
        subjects: Mapping[str, Callable[[], Any]],
        store: Store | None = None,
        finished: Callable[[Any], None] = lambda client: None,
    ):
        self.method, self.settings, self.outbox, self.subjects = method, settings, outbox, subjects
        self.finished = finished
        self.store = Store() if store is None else store
        self.client: Any = None
        self._at: int | None = 0  # the round that the state is exactly that of; None: a later phase has changed it
        self._newest = 0  # round that a message was about
        self._step = 0  # place of the newest message's phase in the order of phases
        # by phase, the last question that has no answer, or that ended the client's work: place, digest, answer
        self._done: dict[str, tuple[Any, str, Any]] = {}
        self._built: dict[str, str] = {}  # what the state was built with: digests of asks by phase
        self._decided = sorted(jsonable(asdict(settings)).items())  # what answers depend on

    def answer(self, message: Message, *, quiet: Callable[[], AbstractContextManager[Any]] = nullcontext) -> Any:
        """Check a message, take the step it asks for, save the new state, and release the answer.

        Parameters
        ----------
        message : Message
        quiet : callable
            A context for replies that should use one thread only.
        """
        phase = self.method.phase(message.phase)
        _check_place(message, phase)
        if phase.subject != "client":
            return self._of_another(phase, message)
        step = self.method.phases.index(phase)
        if self.client is None or (phase in self.method.opening and not message.round_no and step < self._step):
            self._begin()
        phase.check_ask(message.ask, self.method.sizes(self.client, self.settings))
        if phase in self.method.loops:
            if message.round_no < self._newest:
                raise RefusedError(f"a message of round {message.round_no} came after one of round {self._newest}")
            self._newest = message.round_no
        self._step = step
        context, client, at = self._context(phase), self.client, self._at
        place, asked, done = self._done.get(phase.name, (None, "", None))
        if done is not None and (place, asked) == (message.key, message.asked):  # done already
            plain = done
        else:
            client, plain, at = self._reply(phase, message, context, nullcontext if phase.threads else quiet)
        sizes = self.method.sizes(client, self.settings)
        answer = self.outbox.release(phase, message, plain, sizes, self.settings, context, client)
        if client is not self.client:  # only now: an answer that may not leave changes nothing
            self._remember(phase, message, plain)
        self.client, self._at = client, at
        return answer

    def _of_another(self, phase: Phase, message: Message) -> Any:
        """The answer of whoever replies to a phase in place of the client."""
        if phase.subject not in self.subjects:
            raise RefusedError(f"phase {phase.name!r} has nobody to answer it here")
        subject = self.subjects[phase.subject]()
        sizes = subject.sizes(self.settings)
        phase.check_ask(message.ask, sizes)
        _, answer = phase.reply(subject, message.ask, self.settings, message.round_no)
        return self.outbox.release(phase, message, answer, sizes, self.settings)

    def _remember(self, phase: Phase, message: Message, plain: Any) -> None:
        """Note that a phase has changed the client: what later phases made is out of date."""
        for later in self.method.phases[self._step :]:
            self._done.pop(later.name, None)
        if phase.concludes or not phase.releases:
            self._done[phase.name] = message.key, message.asked, plain
        if phase.rebuilds:
            self._built[phase.name] = message.asked

    def _begin(self) -> None:
        """The client at rest: for the first message, and where a server begins the run once more."""
        self.client, self._at, self._newest = self.subjects["client"](), 0, 0
        self._done, self._built = {}, {}

    def _reply(
        self, phase: Phase, message: Message, context: str, quiet: Callable[[], AbstractContextManager[Any]]
    ) -> tuple[Any, Any, int | None]:
        """The next state, an answer, and the round of that state; computed, or taken from where they were kept."""
        loops, asked = phase in self.method.loops, self.outbox.question(message, context)
        kept = self.outbox.earlier(phase, message, context) if loops or phase.pure else None
        if kept is not None and phase.pure:
            return self.client, kept, self._at
        if kept is not None and self.store.question(message.round_no) == asked:
            return self.client, kept, None  # the state is in the store: the next message brings it back
        client, at = self._state_for(phase, message)
        with quiet():
            client, answer = phase.reply(client, message.ask, self.settings, message.round_no)
        if phase.persists and (loops or not message.round_no):
            self.store.save(client, message.round_no, message.last_round, asked)
        if phase.concludes or phase in self.method.closing[-1:]:
            self.finished(client)
        if not phase.pure:
            at = message.round_no if loops else at if self.method.precedes_a_loop(phase) else None
        return client, answer, at

    def _state_for(self, phase: Phase, message: Message) -> tuple[Any, int | None]:
        """The client at the round that the message starts from, and that round."""
        newest = self.store.newest() if phase.rebuilds and phase.persists and self._at == 0 else None
        if newest and message.round_no:  # a new process of an old run; before its first round, there is nothing to keep
            return self.store.load(self.client, newest), newest
        if phase.resumes and self._at != message.last_round:
            return self.store.load(self.client, message.last_round), message.last_round
        return self.client, self._at

    def _context(self, phase: Phase) -> str:
        """Digest of what an answer depends on besides the question: settings, and what the state was built with."""
        free = self.method.stopping if phase in self.method.closing else self.method.changeable
        decided = json.dumps([(name, value) for name, value in self._decided if name not in free])
        built = [self._built.get(other.name) for other in self.method.phases[: self._step]]
        return sha256(json.dumps([decided, built]).encode()).hexdigest()

    def restore(self, client: Any, round_no: int) -> None:
        """Set the state to that after a round."""
        self.client, self._at, self._newest = client, round_no, round_no


def _check_place(message: Message, phase: Phase) -> None:
    """Refuse a message that cannot have its place in a run."""
    for name in ("round_no", "last_round", "turn"):
        if not is_count(getattr(message, name)):
            raise RefusedError(f"{name} is not a whole number of at least 0")
    if phase.resumes and phase.persists and not message.last_round < message.round_no:
        raise RefusedError(f"round {message.round_no} cannot follow round {message.last_round}")
