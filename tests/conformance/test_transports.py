"""The suite for clients in this process, and for messages that cross as bytes."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load as tensors_from_bytes
from safetensors.numpy import save as tensors_to_bytes
from tests.conformance.suite import CORRUPT, DATA, DELAY, KILL, STOP, Fault, Outcome, ServerStoppedError, TransportSuite

from fmtc.errors import RefusedError
from fmtc.privacy.ledger import FileLedger, verify
from fmtc.privacy.outbox import Outbox, Payloads
from fmtc.protocol.base import Failure, Message, Nothing, message_bytes, nbytes, pack, unpack
from fmtc.protocol.graph.view import METHOD
from fmtc.runtime.driver import Replies, run
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.node import ClientNode, FolderStore
from fmtc.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")


def stopping(faults):
    """A callback that ends the server after the round of a fault."""

    def callback(record):
        if any(fault.kind == STOP and fault.round_no == record.round_no for fault in faults):
            raise ServerStoppedError

    return callback


def now(faults, kind, cid, message):
    """Whether a fault of this kind strikes a client with this message."""
    for fault in faults:
        if fault.kind == kind and fault.client == cid:
            later = kind == KILL and (
                message.round_no > fault.round_no or METHOD.phase(message.phase) in METHOD.closing
            )
            if later or (message.phase == "round" and message.round_no == fault.round_no):
                return True
    return False


# ------------------------------------------------------------------------------------------------------ in this process


class Faulty(LocalTransport):
    """Clients of which some are gone, late (they have not begun when the others are done) or compute nonsense."""

    faults: tuple[Fault, ...] = ()

    def _ask(self, cores, cid, message):
        if now(self.faults, KILL, cid, message) or now(self.faults, DELAY, cid, message):
            return TimeoutError("no answer")
        if not now(self.faults, CORRUPT, cid, message):
            return super()._ask(cores, cid, message)
        phase = METHOD.phase(message.phase)

        def nonsense(*args):
            client, answer = type(phase).reply(phase, *args)
            return client, replace(answer, W=np.full_like(answer.W, np.nan))

        phase.reply = nonsense
        try:
            return super()._ask(cores, cid, message)
        finally:
            del phase.reply


class LocalCase:
    """Clients in this process; an answer that is not as declared does not even leave."""

    refuses = False

    def __init__(self, folder: Path, data: dict[str, np.ndarray], settings: Settings):
        self.folder, self.data, self.settings = folder, data, settings

    def run(self, faults=(), min_clients=None, *, resume=False):
        transport = Faulty(self.data, self.settings)
        transport.faults = faults
        result = run(
            transport, self.settings, min_clients=min_clients, checkpoint=self.folder, resume=resume,
            callbacks=[stopping(faults)],
        )  # fmt: skip
        labels = {cid: found.labels for cid, found in transport.results().items()}
        lines = {cid: ledger.lines() for cid, ledger in transport.ledgers.items()}
        return Outcome.of(result, labels, lines)


class TestLocal(TransportSuite):
    case = LocalCase


# ------------------------------------------------------------------------------------------------------------- as bytes


def encode(run_id, message, place):
    """Bytes of a message: a header of JSON with its length in front, then arrays as safetensors."""
    flat = pack(message)
    arrays = {name: np.ascontiguousarray(value) for name, value in flat.items() if isinstance(value, np.ndarray)}
    header = {
        "run": run_id, "kind": type(message).__qualname__, "values": {n: v for n, v in flat.items() if n not in arrays},
        "place": place,
    }  # fmt: skip
    text = json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + tensors_to_bytes(arrays)


def decode(content, run_id, kinds):
    """Undo `encode`: the message and its place; anything else is refused, whatever it is."""
    try:
        (length,) = struct.unpack(">I", content[:4])
        header = json.loads(content[4 : 4 + length])
        arrays = tensors_from_bytes(content[4 + length :])
        if header["run"] != run_id:
            raise RefusedError("it is of another run")
        kind = {kind.__qualname__: kind for kind in kinds}[header["kind"]]
        return unpack(kind, {**header["values"], **arrays}), header["place"]
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"it cannot be read: {type(error).__name__}") from None


class Silo:
    """A client behind a wire, on a folder: made anew, a process that was started again."""

    def __init__(self, folder, cid, X, settings, run_id):
        (folder / "states").mkdir(parents=True, exist_ok=True)
        self.ledger = FileLedger(folder / "outbox.jsonl")
        outbox = Outbox(self.ledger, cid, run_id, Payloads(folder / "payloads"))
        opened = {"client": lambda: METHOD.open_client(cid, X, settings, "cpu")}
        self.node = ClientNode(METHOD, settings, outbox, opened, FolderStore(folder / "states", METHOD))
        self.run_id = run_id

    def serve(self, content):
        """Bytes in, bytes out."""
        message = None
        try:
            ask, place = decode(content, self.run_id, {phase.Ask for phase in METHOD.phases})
            message = Message(place["phase"], ask, place["round"], place["last"], place["turn"])
            answer = self.node.answer(message)
        except Exception as error:
            answer = self.node.outbox.fail(message, error)
        place = {} if message is None else {"phase": message.phase, "round": message.round_no, "turn": message.turn}
        return encode(self.run_id, answer, place)


class WireTransport:
    """Moves bytes between the driver and silos; checks what comes in, and throws away what is late or garbage."""

    def __init__(self, silos, settings, run_id, faults=()):
        self.silos, self.settings, self.run_id, self.faults = silos, settings, run_id, faults
        self.late = []  # answers that were on the way when their exchange ended

    @property
    def client_ids(self):
        return tuple(sorted(self.silos))

    def exchange(self, messages):
        replies = Replies(bytes_down=sum(map(message_bytes, messages.values())))
        late, self.late = self.late, []
        for cid, content in late:
            self.take(cid, content, messages[cid], replies)
            replies.failures.pop(cid, None)  # of the question that it was late for
        for cid, message in messages.items():
            if now(self.faults, KILL, cid, message):
                replies.failures[cid] = TimeoutError("no answer")
                continue
            place = {
                "phase": message.phase,
                "round": message.round_no,
                "last": message.last_round,
                "turn": message.turn,
            }
            content = self.silos[cid].serve(encode(self.run_id, message.ask, place))
            if now(self.faults, DELAY, cid, message):
                self.late.append((cid, content))
                replies.failures[cid] = TimeoutError("no answer in time")
                continue
            if now(self.faults, CORRUPT, cid, message):
                content = content[: len(content) // 2] + bytes(len(content) - len(content) // 2)
            self.take(cid, content, message, replies)
        return replies

    def take(self, cid, content, message, replies):
        """One answer: it counts if it is what the open question asks for."""
        phase = METHOD.phase(message.phase)
        try:
            answer, place = decode(content, self.run_id, (phase.Answer, Failure))
            if place != {"phase": message.phase, "round": message.round_no, "turn": message.turn}:
                raise RefusedError("it answers another question")
            phase.check_answer(answer, message.ask, METHOD.known_sizes(cid, self.settings))
        except RefusedError as error:
            replies.refused += 1
            replies.failures[cid] = error
            return
        if isinstance(answer, Failure):
            replies.failures[cid] = RuntimeError(answer.error)
            return
        replies.answers[cid] = answer
        replies.bytes_up += nbytes(answer)

    def save_clients(self, folder):
        """Each silo has kept its own state before it answered."""

    def load_clients(self, folder, client_ids):
        """A message names the round that a silo continues from."""


class WireCase:
    """Messages cross as bytes, and silos keep their state on disk."""

    refuses = True

    def __init__(self, folder: Path, data: dict[str, np.ndarray], settings: Settings):
        self.folder, self.data, self.settings = folder, data, settings

    def silos(self):
        return {cid: Silo(self.folder / cid, cid, X, self.settings, "run1") for cid, X in self.data.items()}

    def run(self, faults=(), min_clients=None, *, resume=False):
        silos = self.silos()
        transport = WireTransport(silos, self.settings, "run1", faults)
        result = run(
            transport, self.settings, min_clients=min_clients, checkpoint=self.folder / "server", resume=resume,
            callbacks=[stopping(faults)],
        )  # fmt: skip
        labels = {cid: silo.node.client.labels for cid, silo in silos.items() if hasattr(silo.node.client, "model")}
        assert [verify(silo.ledger.path) for silo in silos.values()] == [[]] * len(silos)
        return Outcome.of(result, labels, {cid: silo.ledger.lines() for cid, silo in silos.items()})


class TestWire(TransportSuite):
    case = WireCase

    @pytest.mark.parametrize("content", [b"", b"\x00\x00\x00\x02{}", b"x" * 99, struct.pack(">I", 2**31) + b"{}"])
    def test_a_silo_survives_garbage_from_the_server(self, content, tmp_path):
        """It answers with the kind of its error, records that, and is as good as before."""
        case = WireCase(tmp_path, DATA, Settings(3))
        silo = case.silos()["north"]
        answer, _ = decode(silo.serve(content), "run1", (Failure,))
        assert answer == Failure(error="RefusedError")
        (line,) = silo.ledger.lines()
        assert (line["kind"], line["phase"]) == ("failure", "")
        place = {"phase": "hello", "round": 0, "last": 0, "turn": 0}
        answer, _ = decode(silo.serve(encode("run1", Nothing(), place)), "run1", (METHOD.phase("hello").Answer,))
        assert answer.n_samples == len(DATA["north"])

    def test_a_silo_does_not_answer_another_run(self, tmp_path):
        silo = WireCase(tmp_path, DATA, Settings(3)).silos()["north"]
        place = {"phase": "hello", "round": 0, "last": 0, "turn": 0}
        answer, _ = decode(silo.serve(encode("run2", Nothing(), place)), "run1", (Failure,))
        assert answer == Failure(error="RefusedError")
