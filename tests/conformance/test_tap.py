"""A tap at the door of every client in this process: what leaves is in its ledger, and nothing else is."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from tests.conformance.suite import DATA, DELAY, KILL, Fault, but
from tests.conformance.test_transports import Faulty, WireCase, WireTransport

import fmtc
from fmtc import FMTC
from fmtc.protocol.base import Failure, pack, value_bytes, value_digest
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.node import ClientNode
from fmtc.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

SOURCE = Path(fmtc.__file__).parent


@pytest.fixture
def tap(monkeypatch):
    """What crosses `ClientNode.answer`, field by field, in order; of each client, and the nodes it crossed."""
    left, nodes, answer = defaultdict(list), {}, ClientNode.answer

    def tapped(self, message, **options):
        found = answer(self, message, **options)
        fields = {name: value_digest(value) for name, value in pack(found).items()}
        left[self.outbox.client_id].append((message.phase, message.round_no, message.turn, fields))
        nodes[self.outbox.client_id] = self
        return found

    monkeypatch.setattr(ClientNode, "answer", tapped)
    return left, nodes


def in_ledger(lines):
    return [
        (line["phase"], line["round"], line["turn"], {entry["field"]: entry["sha256"] for entry in line["fields"]})
        for line in lines
        if line["kind"] != "failure"
    ]


RUNS = {
    "plain": ({}, np.asarray),
    "common units": ({"scale": "global"}, np.asarray),
    "words": ({"scale": "tfidf"}, lambda X: sp.csr_array(np.maximum(np.round(X - 1), 0))),
    "as published": ({"rho": 0.5, "align": False, "labels_from": "embedding", "accelerate": False}, np.asarray),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_ledger_is_what_left(name, tap):
    changed, kind = RUNS[name]
    settings = but(**changed)
    transport = LocalTransport({cid: kind(X) for cid, X in DATA.items()}, settings, 2)
    result = run(transport, settings)
    left, _ = tap
    for cid, ledger in transport.ledgers.items():
        assert in_ledger(ledger.lines()) == left[cid]
        assert len(left[cid]) == len({crossed[:3] for crossed in left[cid]})
    received = Counter()
    for crossed in left.values():
        for phase, _, _, fields in crossed:
            received.update((phase, field) for field in fields)
    assert {(line.phase, line.field): line.times for line in result.received} == received


def test_what_left_adds_up_to_the_bytes_of_the_history(tap):
    transport = LocalTransport(DATA, but())
    result = run(transport, but())
    for record in result.history:
        lines = [line for ledger in transport.ledgers.values() for line in ledger.lines()]
        of_round = [line for line in lines if (line["phase"], line["round"]) == ("round", record.round_no)]
        assert sum(entry["bytes"] for line in of_round for entry in line["fields"]) == record.bytes_up


def test_failures_are_in_the_ledger_too(tap):
    """By their kind; and a client that was not asked, or did not answer, has not sent anything."""
    transport = Faulty(DATA, but())
    transport.faults = (Fault(DELAY, 2, "south"), Fault(KILL, 4, "west"))
    run(transport, but(), min_clients=1)
    left, _ = tap
    for cid, ledger in transport.ledgers.items():
        assert in_ledger(ledger.lines()) == left[cid]
    rounds = {cid: [place[1] for place in crossed if place[0] == "round"] for cid, crossed in left.items()}
    assert rounds == {"north": [1, 2, 3, 4, 5], "south": [1, 3, 4, 5], "west": [1, 2, 3]}

    broken = LocalTransport(DATA, but())
    broken.nodes["south"].subjects = {}
    broken.nodes["south"].client = None  # a client that cannot be opened
    run(broken, but(), min_clients=2)
    (failure,) = broken.ledgers["south"].lines()
    assert (failure["kind"], failure["phase"]) == ("failure", "hello")
    (entry,) = failure["fields"]
    assert (entry["field"], entry["sha256"]) == ("error", value_digest("KeyError"))
    assert entry["bytes"] == value_bytes(Failure(error="KeyError").error)


def test_the_same_holds_where_messages_cross_as_bytes(tap, tmp_path, monkeypatch):
    """Also of answers that the server did not get, and of those that were sent again."""
    case = WireCase(tmp_path, DATA, but())
    outcome = case.run((Fault(DELAY, 2, "south"), Fault(KILL, 4, "west")), min_clients=1)
    left, _ = tap
    for cid, lines in outcome.lines.items():
        assert in_ledger(lines) == left[cid]
    assert [place[1] for place in left["south"] if place[0] == "round"] == [1, 2, 3, 4, 5]  # round 2 left, too late

    crossed = []  # and once more at the bytes themselves
    take = WireTransport.take
    monkeypatch.setattr(
        WireTransport, "take", lambda self, cid, *rest: (crossed.append(cid), take(self, cid, *rest))[1]
    )
    left.clear()
    outcome = WireCase(tmp_path / "again", DATA, but()).run()
    assert Counter(crossed) == {cid: len(lines) for cid, lines in outcome.lines.items()}


def test_an_estimator_has_no_other_door(tap):
    """`fit` over the same rows: its clients' ledgers, taken from the nodes, are all that crossed."""
    X = np.vstack(list(DATA.values()))
    names = np.repeat(list(DATA), [len(rows) for rows in DATA.values()])
    FMTC(3, max_iter=3, random_state=0).fit(X, silos=names)
    left, nodes = tap
    assert set(left) == set(DATA)
    for cid, crossed in left.items():
        assert in_ledger(nodes[cid].outbox.ledger.lines()) == crossed


def test_only_a_node_lets_a_phase_reply():
    """A second caller of `reply`, or a second way round `release`, would be a second door.

    A phase that extends another may call the reply it inherits, or that it wraps (`sums/graph`, whose k-means answer
    stays). `probe` clusters some rows in both views, and what these phases would say stays with it. `refit` fits a
    client at home, which sends nothing.
    """
    callers = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and ast.unparse(node.func.value) != "super()"
            ):
                callers[node.func.attr].add(path.relative_to(SOURCE).as_posix())
    assert callers["reply"] == {f"{f}.py" for f in ("runtime/node", "refit", "protocol/auto", "protocol/sums/graph")}
    assert callers["release"] == {"runtime/node.py"}


def test_settings_reach_clients_and_nothing_comes_back_but_answers():
    """Replies carry answers as declared; no state of a client hangs on them."""
    transport = LocalTransport(DATA, Settings(3))
    seen = []

    class Watched(LocalTransport):
        def exchange(self, messages):
            replies = super().exchange(messages)
            seen.extend((messages[cid].phase, answer) for cid, answer in replies.answers.items())
            return replies

    run(Watched(DATA, but()), but())
    for phase, answer in seen:
        assert type(answer) is transport.method.phase(phase).Answer
        for value in pack(answer).values():
            assert isinstance(value, np.ndarray | int | float)
            if isinstance(value, np.ndarray):
                assert value.base is None or value.base.nbytes == value.nbytes  # not a window onto something larger
