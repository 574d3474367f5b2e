"""A client that answers messages: state on disk, restarts at any point, messages out of place."""

import shutil
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from tests.questions import settle_ask

from fmtc.errors import FileError, LimitError, RefusedError
from fmtc.privacy.ledger import FileLedger, verify
from fmtc.privacy.outbox import Outbox, Payloads
from fmtc.protocol.base import Message, Nothing, digest
from fmtc.protocol.common import END
from fmtc.protocol.graph.finish import SETTLE
from fmtc.protocol.graph.number import NUMBER
from fmtc.protocol.graph.opening import PREPARE
from fmtc.protocol.graph.round import ROUND
from fmtc.protocol.graph.state import Placed
from fmtc.protocol.graph.view import METHOD
from fmtc.protocol.state import become, open_client, with_rows
from fmtc.protocol.units import RESCALE
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.node import ClientNode, FolderStore, read_state, write_state
from fmtc.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

ROUNDS = 4


def but(**changed):
    return Settings(**{"n_clusters": 3, "max_iter": ROUNDS, "tol": 0, "n_init": 2} | changed)


DATA = {cid: np.random.default_rng(seed).normal(size=(25 + seed, 5)) ** 2 for seed, cid in enumerate("abc")}


def node_in(folder, settings=but(), X=DATA["a"], run_id="run1"):  # noqa: B008 (settings are frozen)
    """The client "a" on what lies in a folder: called again, a process that was started again."""
    states = folder / "states" / run_id
    states.mkdir(parents=True, exist_ok=True)
    outbox = Outbox(FileLedger(folder / "outbox.jsonl"), "a", run_id, Payloads(folder / "payloads" / run_id))
    opened = {"client": lambda: METHOD.open_client("a", X, settings, "cpu")}
    return ClientNode(METHOD, settings, outbox, opened, FolderStore(states, METHOD))


def conversation(settings=but(), data=DATA):  # noqa: B008
    """What a server asks client "a" in an undisturbed run, the answers, and the client's result."""
    said = []

    class Heard(LocalTransport):
        def _ask(self, cores, cid, message):
            answer = super()._ask(cores, cid, message)
            if cid == "a":
                said.append((message, answer))
            return answer

    transport = Heard(data, settings)
    run(transport, settings)
    return said, transport.results()["a"]


plain = cache(conversation)  # without arguments, which many tests begin with


def resumed(said, round_no):
    """What the server of a resumed run asks first: phases that rebuild, at the round of its checkpoint."""
    return [
        replace(message, round_no=round_no, last_round=round_no)
        for message, _ in said
        if METHOD.phase(message.phase).rebuilds
    ]


def same(one, other):
    return type(one) is type(other) and digest(one) == digest(other)


def kinds(folder, phase):
    lines = FileLedger(folder / "outbox.jsonl").lines()
    return [line["kind"] for line in lines if line["phase"] == phase]


def assert_same_result(node, result):
    found = METHOD.result(node.client)
    assert_array_equal(found.labels, result.labels)
    assert_array_equal(found.model.W, result.model.W)
    assert_array_equal(found.model.centers, result.model.centers)
    assert found.model.spread == result.model.spread


VARIANTS = {
    "plain": (but(), DATA),
    "common units": (but(scale="global"), DATA),
    "words": (but(scale="tfidf"), {cid: sp.csr_array(np.round(X)) for cid, X in DATA.items()}),
    "as published": (but(rho=0.5, align=False, labels_from="embedding", accelerate=False), DATA),
    "rounded": (but(message_dtype="float32"), DATA),
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)


# ------------------------------------------------------------------------------------------------------------ restarts


@each_variant
def test_a_node_on_disk_answers_as_one_in_memory(variant, tmp_path):
    settings, data = VARIANTS[variant]
    said, result = conversation(settings, data)
    node = node_in(tmp_path, settings, data["a"])
    for message, answer in said:
        assert same(node.answer(message), answer)
    assert_same_result(node, result)
    assert verify(tmp_path / "outbox.jsonl") == []
    assert [line["kind"] for line in node.outbox.ledger.lines()] == len(said) * ["release"]


@pytest.mark.parametrize(
    ("variant", "twice"), [("plain", False), *((variant, True) for variant in VARIANTS)],
    ids=lambda what: {False: "next", True: "same again"}.get(what, what),
)  # fmt: skip
def test_a_node_that_is_killed_after_every_message_answers_the_same(variant, twice, tmp_path):
    """Each message meets a new process, which is brought back to where the run is first.

    With `twice` the server did not get the answer: the message is asked again, of another new process.
    """
    settings, data = VARIANTS[variant]
    said, result = conversation(settings, data)
    closing = [phase.name for phase in METHOD.closing]
    for place, (message, answer) in enumerate(said):
        for _ in range(1 + twice):
            node = node_in(tmp_path, settings, data["a"])
            phase = METHOD.phase(message.phase)
            if phase in METHOD.opening:
                before = [earlier for earlier, _ in said[:place] if METHOD.phase(earlier.phase).rebuilds]
            elif phase is METHOD.loop:
                before = resumed(said, message.last_round) if message.round_no > 1 else []
                before = before or [earlier for earlier, _ in said[:place]]
            else:
                before = resumed(said, ROUNDS) + [m for m, _ in said[:place] if m.phase in closing]
            for earlier in before:
                node.answer(earlier)
            assert same(node.answer(message), answer)
    assert_same_result(node, result)
    for name in {message.phase for message, _ in said}:
        different = sum(message.phase == name for message, _ in said)
        if METHOD.phase(name).releases:
            assert kinds(tmp_path, name).count("release") == different  # whatever was asked again was a replay
    assert verify(tmp_path / "outbox.jsonl") == []


def test_an_answer_that_was_lost_is_sent_again_without_computing_it(tmp_path, monkeypatch):
    said, result = plain()
    node = node_in(tmp_path)
    for message, _ in said[:4]:  # hello, prepare, two rounds
        node.answer(message)
    node = node_in(tmp_path)
    for message in resumed(said, 1):
        node.answer(message)
    with monkeypatch.context() as patched:
        patched.setattr(type(ROUND), "reply", lambda *args: pytest.fail("computed again"))
        message, answer = said[3]
        assert same(node.answer(message), answer)
    assert kinds(tmp_path, "round") == ["release", "release", "replay"]
    for message, answer in said[4:]:
        assert same(node.answer(message), answer)
    assert_same_result(node, result)


def test_without_the_kept_answers_it_is_computed_from_the_round_before(tmp_path):
    said, result = plain()
    node = node_in(tmp_path)
    for message, _ in said[:4]:
        node.answer(message)
    shutil.rmtree(tmp_path / "payloads")
    node = node_in(tmp_path)
    for message in resumed(said, 1):
        node.answer(message)
    for message, answer in said[3:]:
        assert same(node.answer(message), answer)
    assert kinds(tmp_path, "round") == ["release", "release", "replay", "release", "release"]
    assert_same_result(node, result)


def other_anchor(message, shift=0.01):
    return replace(message, ask=replace(message.ask, anchor=message.ask.anchor + shift))


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "new process"])
@pytest.mark.parametrize("questions", ["AB", "ABA"])
def test_the_state_is_that_of_the_question_asked_last(questions, restart, tmp_path):
    """A server that lost another client asks round 2 anew; then round 3 starts from what it has of round 2."""
    said, _ = plain()
    opening, second = [message for message, _ in said[:3]], said[3][0]
    asked = {"A": second, "B": other_anchor(second)}
    node = node_in(tmp_path / "node")
    for message in opening:
        node.answer(message)
    for name in questions:
        if restart:
            node = node_in(tmp_path / "node")
            for message in resumed(said, 1):
                node.answer(message)
        last = node.answer(asked[name])
    undisturbed = node_in(tmp_path / "undisturbed")
    for message in (*opening, asked[questions[-1]]):
        answer = undisturbed.answer(message)
    assert same(last, answer)
    assert same(node.answer(said[4][0]), undisturbed.answer(said[4][0]))
    assert kinds(tmp_path / "node", "round") == [*3 * ["release"], *["replay"] * (len(questions) - 2), "release"]


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "new process"])
@pytest.mark.parametrize("done", [2, 4, 6, 9])
def test_a_run_that_begins_again_with_other_units_owes_nothing_to_the_first_attempt(done, restart, tmp_path):
    """Before its first checkpoint a server may lose a client and begin again: embeddings in old units do not count."""
    settings = but(scale="global")
    first, _ = conversation(settings)
    said, result = conversation(settings, {cid: DATA[cid] for cid in "ab"})
    node = node_in(tmp_path, settings)
    for message, _ in first[:done]:
        node.answer(message)
    node = node_in(tmp_path, settings) if restart else node
    for message, answer in said:
        assert same(node.answer(message), answer)
    assert_same_result(node, result)


def test_a_finished_run_may_be_given_more_rounds(tmp_path):
    said, result = plain()
    short, _ = conversation(but(max_iter=2))
    node = node_in(tmp_path, but(max_iter=2))
    for message, _ in short:
        node.answer(message)
    node = node_in(tmp_path)  # a process with the new settings
    later = [(message, answer) for message, answer in said if message.round_no > 2]
    for message in resumed(said, 2):
        node.answer(message)
    for message, answer in later:
        assert same(node.answer(message), answer)
    assert_same_result(node, result)
    assert kinds(tmp_path, "round") == ROUNDS * ["release"]


def test_settings_that_do_not_concern_rounds_do_not_make_them_new_releases(tmp_path):
    """Another number of restarts of k-means: the last round is sent again as it was, and finish is a new question."""
    said, _ = plain()
    node = node_in(tmp_path)
    for message, _ in said:
        node.answer(message)
    node = node_in(tmp_path, but(n_init=1, max_iter=9, tol=1e-9))
    for message in (
        *resumed(said, ROUNDS - 1),
        *(m for m, _ in said if m.round_no == ROUNDS and m.phase in ("round", "finish")),
    ):
        node.answer(message)
    assert kinds(tmp_path, "round") == [*ROUNDS * ["release"], "replay"]
    assert kinds(tmp_path, "finish") == ["release", "release"]


def test_a_client_that_was_away_continues_from_its_last_round_that_counted(tmp_path):
    """Round 3 was answered and never arrived, round 4 starts from round 2."""
    said, _ = plain()
    node = node_in(tmp_path / "node")
    for message, _ in said[:5]:
        node.answer(message)
    fourth = replace(said[5][0], last_round=2)
    undisturbed = node_in(tmp_path / "undisturbed")
    for message, _ in said[:4]:
        undisturbed.answer(message)
    assert same(node.answer(fourth), undisturbed.answer(fourth))


def test_states_of_two_rounds_are_kept(tmp_path):
    said, _ = plain()
    node = node_in(tmp_path)
    folder = tmp_path / "states" / "run1"
    kept = []
    for message, _ in said:
        node.answer(message)
        kept.append([int(path.stem[-5:]) for path in sorted(folder.iterdir())])
    assert kept == [[], [0], [0, 1], [1, 2], [2, 3], *(len(said) - 5) * [[3, 4]]]


def test_nothing_leaves_before_the_state_is_saved(tmp_path, monkeypatch):
    said, _ = plain()
    node = node_in(tmp_path)
    for message, _ in said[:3]:
        node.answer(message)
    with monkeypatch.context() as patched:
        patched.setattr("fmtc.runtime.node.write_tensors", lambda *args: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            node.answer(said[3][0])
    assert kinds(tmp_path, "round") == ["release"]
    for message, answer in said[3:]:  # and once there is space again, all is as if nothing had happened
        assert same(node.answer(message), answer)


# ----------------------------------------------------------------------------------------------- messages out of place

EARLY = {
    "round": Message("round", ROUND.Ask(anchor=np.zeros((5, 3))), 1),
    "a later round": Message("round", ROUND.Ask(anchor=np.zeros((5, 3))), 1, 0, 1),
    "finish": Message("finish", METHOD.phase("finish").Ask()),
    "settle": Message("settle", settle_ask(order=np.arange(3))),
    "number": Message("number", NUMBER.Ask(order=np.arange(3))),
    "hello": Message("hello", Nothing()),
    "prepare": Message("prepare", PREPARE.Ask(scale=1.0, ridge=0.1)),
}


@pytest.mark.parametrize("name", EARLY)
def test_a_message_that_comes_too_early_is_refused(name, tmp_path):
    node = node_in(tmp_path, but(scale="global"))
    with pytest.raises(RefusedError):
        node.answer(EARLY[name])
    assert node.outbox.ledger.lines() == []
    node.answer(Message("moments", Nothing()))  # it is none the worse for it


def test_a_round_that_starts_from_a_state_it_never_had_is_refused(tmp_path):
    said, _ = plain()
    node = node_in(tmp_path)
    for message, _ in said[:3]:
        node.answer(message)
    with pytest.raises(FileError):
        node.answer(replace(said[5][0]))  # round 4 after round 3
    assert same(node.answer(replace(said[3][0], round_no=4, last_round=1)), said[3][1]) is False
    local = LocalTransport(DATA, but()).nodes["a"]
    for message, _ in said[:3]:
        local.answer(message)
    with pytest.raises(RefusedError):
        local.answer(said[5][0])


@pytest.mark.parametrize(
    "place",
    [
        {"round_no": 1, "last_round": 1}, {"round_no": 0, "last_round": 0}, {"round_no": 1, "last_round": 0},
        {"round_no": -1}, {"round_no": True}, {"round_no": 3.0}, {"round_no": "3"}, {"round_no": 2**60},
        {"last_round": -1}, {"last_round": None}, {"turn": -1}, {"turn": 0.5}, {"phase": "dance"}, {"phase": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_message_without_a_place_in_the_run_is_refused(place, tmp_path):
    """After round 2: an older round, one that follows itself, and what is no number of a round."""
    said, _ = plain()
    node = node_in(tmp_path)
    for message, _ in said[:4]:
        node.answer(message)
    with pytest.raises(RefusedError):
        node.answer(replace(said[4][0], **place))
    assert same(node.answer(said[4][0]), said[4][1])


@pytest.mark.parametrize("bad", [np.zeros((5, 4)), np.zeros((4, 3)), np.full((5, 3), np.nan), [[0.0]], None])
def test_a_question_that_is_not_as_declared_is_refused(bad, tmp_path):
    said, _ = plain()
    node = node_in(tmp_path)
    for message, _ in said[:2]:
        node.answer(message)
    with pytest.raises(RefusedError):
        node.answer(replace(said[2][0], ask=replace(said[2][0].ask, anchor=bad)))
    assert kinds(tmp_path, "round") == []
    assert same(node.answer(said[2][0]), said[2][1])


def test_messages_of_the_end_may_come_twice(tmp_path):
    """Each of them again, and then all once more, in the same process."""
    said, result = plain()
    node = node_in(tmp_path)
    start = next(place for place, (message, _) in enumerate(said) if message.phase == "finish")
    for message, _ in said[:start]:
        node.answer(message)
    for message, answer in said[start:]:
        for _ in range(2):
            assert same(node.answer(message), answer)
    assert_same_result(node, result)
    with pytest.raises(RefusedError):  # clusters have their numbers: the end begins anew with a finish, or not at all
        node.answer(said[start + 1][0])
    assert_same_result(node, result)
    for message, answer in said[start:]:
        assert same(node.answer(message), answer)
    assert_same_result(node, result)
    assert kinds(tmp_path, "settle").count("release") == len(said) - start - 2
    assert kinds(tmp_path, "finish").count("release") == kinds(tmp_path, "number").count("release") == 1


def test_the_same_numbers_after_another_finish_are_given_anew(tmp_path):
    """The question is the same; what it is about is not."""
    said, _ = conversation(but(final="kmeans"))
    settings = but(final="kmeans")
    node = node_in(tmp_path / "node", settings)
    for message, _ in said:
        node.answer(message)
    finish, number = (message for message, _ in said[-2:])
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    turned = replace(finish, ask=replace(finish.ask, rotation=turn))
    undisturbed = node_in(tmp_path / "undisturbed", settings)
    for message, _ in said[:-2]:
        undisturbed.answer(message)
    for message in (turned, number):
        node.answer(message)
        undisturbed.answer(message)
    assert_same_result(node, METHOD.result(undisturbed.client))


def test_a_server_cannot_ask_for_sums_more_often_than_a_run_needs(tmp_path):
    """A limited number of questions of its own choice, over restarts and finishes; not one more."""
    said, _ = plain()
    settings = but()
    before = [message for message, _ in said if message.phase not in ("settle", "number")]
    finish, limit = before[-1], SETTLE.limit(settings)
    node = node_in(tmp_path, settings)
    for message in before:
        node.answer(message)

    def question(asked):
        ask = settle_ask(0.01 * asked, order=np.roll(np.arange(3), asked))
        return Message("settle", ask, ROUNDS, ROUNDS, asked % 60)

    for asked in range(limit):
        if asked % 40 == 30:  # a new process, a new finish
            node = node_in(tmp_path, settings)
            for message in (*resumed(said, ROUNDS), finish):
                node.answer(message)
        if asked % 40 == 10:
            node.answer(finish)
        node.answer(question(asked))
    for restart in (False, True):
        node = node_in(tmp_path, settings) if restart else node
        for message in (*resumed(said, ROUNDS), finish) if restart else ():
            node.answer(message)
        with pytest.raises(LimitError):
            node.answer(question(limit))
    assert kinds(tmp_path, "settle").count("release") == limit


def test_an_answer_that_may_not_leave_changes_nothing(tmp_path, monkeypatch):
    """The round can be asked again, in this process too, and starts from where it started."""
    said, result = plain()
    local = LocalTransport(DATA, but()).nodes["a"]
    for node in (node_in(tmp_path), local):
        for message, _ in said[:3]:
            node.answer(message)
        message, answer = said[3]
        with monkeypatch.context() as patched:
            bad = replace(answer, W=answer.W * np.nan)
            compute = type(ROUND).reply
            patched.setattr(type(ROUND), "reply", lambda *args, compute=compute, bad=bad: (compute(*args)[0], bad))
            with pytest.raises(RefusedError):
                node.answer(message)
        for message, answer in said[3:]:
            assert same(node.answer(message), answer)
        assert_same_result(node, result)


# ------------------------------------------------------------------------------------------------------ other subjects


class Table:
    """A file of a client, as far as the survey is concerned."""

    def __init__(self):
        self.heard = None

    def sizes(self, settings):
        return {"D": 2}

    def survey(self, settings):
        zeros = np.zeros(2, np.int64)
        return {
            "n_samples": 9, "columns": np.arange(2, dtype=np.uint64), "kinds": np.zeros(2, np.int8), "counts": zeros,
            "missing": zeros, "negatives": zeros, "means": np.zeros(2), "squares": np.zeros(2),
        }  # fmt: skip

    def hear(self, findings, settings):
        self.heard = findings


@dataclass
class Process:
    converged: bool | None = None

    def sizes(self, settings):
        return {}

    def end(self, converged, told, held):
        self.converged = converged


def test_survey_verdict_and_end_leave_by_the_same_gate(tmp_path):
    table, process = Table(), Process()
    node = node_in(tmp_path)
    node.subjects = {**node.subjects, "table": lambda: table, "run": lambda: process}
    answer = node.answer(Message("survey", Nothing()))
    assert answer.n_samples == 9
    findings = METHOD.phase("verdict").Ask(findings=np.array([[1.0, 0, 1, 0, 2.5]]))
    assert node.answer(Message("verdict", findings)) == Nothing()
    assert_array_equal(table.heard, findings.findings)
    with pytest.raises(RefusedError):
        node.answer(Message("verdict", METHOD.phase("verdict").Ask(findings=np.array([[1.0, 0, 2, 0, 2.5]]))))
    assert node.answer(Message("end", END.Ask(converged=True))) == Nothing()
    assert process.converged is True
    lines = FileLedger(tmp_path / "outbox.jsonl").lines()
    assert [line["phase"] for line in lines] == ["survey", "verdict", "end"]
    assert [entry["field"] for entry in lines[0]["fields"]] == [
        "n_samples", "columns", "kinds", "counts", "missing", "negatives", "means", "squares",
    ]  # fmt: skip


def test_rows_are_read_when_they_are_first_needed(tmp_path):
    """A survey does not need them, and rows that suit no run are an error of the run alone."""
    node = node_in(tmp_path, but(n_clusters=1000))
    node.subjects = {**node.subjects, "table": Table}
    node.answer(Message("survey", Nothing()))
    with pytest.raises(ValueError, match="n_clusters=1000"):
        node.answer(Message("hello", Nothing()))


# ---------------------------------------------------------------------------------------------------- states on disk


@pytest.mark.parametrize("round_no", [0, 4])
def test_a_client_comes_back_to_its_round(round_no, tmp_path, rng):
    """Before the first round it has an embedding, and W is 0."""
    X, path, settings = rng.normal(size=(9, 4)), tmp_path / "a.safetensors", Settings(3)
    fresh = with_rows(open_client("a", X, settings), settings)
    W = rng.normal(size=(4, 3)) if round_no else np.zeros((4, 3))
    client = become(fresh, Placed, F=rng.normal(size=(9, 3)), W=W, anchor=W, round_no=round_no)
    write_state(path, client, METHOD, round_no)
    again = read_state(path, fresh, METHOD)
    assert again.round_no == round_no
    assert_array_equal(again.F, client.F)
    assert_array_equal(again.W, W)
    for stranger in (open_client("b", X, settings), open_client("a", X + 1e-9, settings)):
        with pytest.raises(FileError, match=f"'{stranger.client_id}'"):
            read_state(path, stranger, METHOD)


def test_a_store_knows_its_newest_round_and_its_question(tmp_path, rng):
    store = FolderStore(tmp_path, METHOD)
    fresh = with_rows(open_client("a", rng.normal(size=(9, 4)), Settings(3)), Settings(3))
    W = np.ones((4, 3))
    client = become(fresh, Placed, F=np.ones((9, 3)), W=W, anchor=W)
    assert store.newest() is None
    assert store.question(1) is None
    store.save(client, 9, 8, "q9")
    store.save(client, 10, 9, "q10")
    assert (store.newest(), store.question(9), store.question(10), store.question(8)) == (10, "q9", "q10", None)
    store.save(client, 10, 9, "other")
    assert store.question(10) == "other"
    with pytest.raises(FileError):
        store.load(client, 3)


def test_units_of_columns_that_came_again_are_not_applied_twice(tmp_path):
    settings = but(scale="global")
    node = node_in(tmp_path, settings)
    units = RESCALE.Ask(stretch=np.full(5, 2.0), shift=np.ones(5))
    for _ in range(2):
        node.answer(Message("rescale", units))
        assert_array_equal(with_rows(node.client, settings).rows.X, (DATA["a"] - 1) / 2)
