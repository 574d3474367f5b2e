"""A transport to clients that live in kits, without anything between: for tests of runs, of `join`, of conformance."""

from __future__ import annotations

import json

import numpy as np

from fmtc.errors import AbortedError, OwnError
from fmtc.privacy.ledger import LEDGER, RELEASE, REPLAY, read_lines, verify
from fmtc.protocol.base import Failure, message_bytes, nbytes
from fmtc.runtime import kitclient
from fmtc.runtime.clock import SYSTEM
from fmtc.runtime.conductor import conduct
from fmtc.runtime.driver import Replies
from fmtc.runtime.events import at_coordinator, at_silo
from fmtc.runtime.kitclient import ClientSource, KitClient
from fmtc.runtime.spec import RunSpec


def make_kits(rows, folder, **source):
    """A kit with a file of rows for each client; folders by client."""
    kits = {}
    for cid, X in rows.items():
        (folder / cid / "local").mkdir(parents=True)
        np.save(folder / f"{cid}.npy", X)
        (folder / cid / kitclient.SALT).write_text("5a" * 32)
        ClientSource(cid, str(folder / f"{cid}.npy"), **source).write(folder / cid)
        kits[cid] = folder / cid
    return kits


def told(kit, kind, run_id=None):
    """Events of one kind on the channel of a kit."""
    return [event for event in at_silo(kit).all(run_id) if event["event"] == kind]


def how_it_ended(kit, run_id=None):
    """The last end of a run that the channel of a kit tells of, but for when and which; None where there is none."""
    for event in reversed(told(kit, "ended", run_id)):
        return {name: value for name, value in event.items() if name not in ("event", "time", "run")}
    return None


def conducted(transport, spec):
    """Kinds of the events of a run from the coordinator's side."""
    events = at_coordinator(spec.folder)
    conduct(transport, spec, events)
    return [event["event"] for event in events.news()]


class KitTransport:
    """Hands messages to `KitClient`s; can lose a process, and repeat a message."""

    def __init__(self, kits, settings, run_id="r", *, method="fmtc", preflight="first", random_state=None,
                 clock=SYSTEM):  # fmt: skip
        self.kits, self.settings, self.run_id = kits, settings, run_id
        self.method, self.preflight, self.random_state, self.clock = method, preflight, random_state, clock
        self.client_ids = tuple(sorted(kits))
        self.clients = {}
        self.seen = []

    def client(self, cid):
        """The process of a client, started if need be."""
        if cid not in self.clients:
            spec = RunSpec(
                self.run_id, self.settings, preflight=self.preflight, random_state=self.random_state,
                method_name=self.method,
            )  # fmt: skip
            told = json.loads(json.dumps(spec.for_silo()))
            self.clients[cid] = KitClient(self.kits[cid], RunSpec.from_dict(told), self.clock)
        return self.clients[cid]

    def restart(self, cid):
        """Lose a client's process."""
        self.clients.pop(cid, None)

    def tell(self, cid, message):
        """A client's answer to a message."""
        return self.client(cid).answer(message)

    def exchange(self, messages):
        """The answers of all clients."""
        replies = Replies(bytes_down=sum(map(message_bytes, messages.values())))
        for cid, message in messages.items():
            self.seen.append((cid, message))
            answer = self.tell(cid, message)
            if isinstance(answer, Failure):
                replies.failures[cid] = OwnError(f"reported {answer.error}")
            else:
                replies.answers[cid] = answer
                replies.bytes_up += nbytes(answer)
        return replies

    def save_clients(self, folder):
        """Each client keeps its own state."""

    def load_clients(self, folder, client_ids):
        """A message names the round that a client continues from."""

    def folder(self, cid):
        """A client's folder of the run."""
        return self.kits[cid] / kitclient.STATES / self.run_id

    def result(self, cid):
        """What a client came to."""
        return kitclient.read_client_result(self.folder(cid) / kitclient.RESULT)

    def trouble(self, cid):
        """The errors that a client kept to itself."""
        return [event["why"] for event in told(self.kits[cid], "error")]

    def ended(self, cid):
        """What a client was told when the run ended, the last time; None where it was not told."""
        return how_it_ended(self.kits[cid], self.run_id)


class Interrupted(KitTransport):
    """Ends the run at one message, which a client and a key name, before or after the client has answered it."""

    def __init__(self, *args, at, after, **kwargs):
        super().__init__(*args, **kwargs)
        self.at, self.after, self.cut = at, after, False

    def tell(self, cid, message):
        self.cut = self.cut or (cid, message.key) == self.at
        if self.cut and not self.after:
            raise AbortedError
        answer = super().tell(cid, message)
        if self.cut:
            raise AbortedError
        return answer


def assert_sent_the_same_again(kit):
    """What was asked twice was sent twice, and is the same."""
    assert verify(kit / LEDGER) == []
    digests = {}
    for line in read_lines(kit / LEDGER):
        question = line["phase"], line["round"], line["turn"]
        fields = [entry["sha256"] for entry in line["fields"]]
        assert digests.setdefault(question, fields) == fields
        assert line["kind"] in (RELEASE, REPLAY)
