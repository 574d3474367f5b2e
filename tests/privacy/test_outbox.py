"""The gate: what leaves is as declared, recorded first, the same when asked again, limited, and held on request."""

import os
import stat
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.questions import settle_answer, settle_ask

from fmtc.errors import FileError, LimitError, RefusedError, WithheldError
from fmtc.privacy.ledger import FileLedger, MemoryLedger, verify
from fmtc.privacy.outbox import Outbox, Payloads
from fmtc.privacy.protection import Protection
from fmtc.privacy.rules import Rules
from fmtc.protocol.base import Failure, Message, Nothing, Phase, array, nbytes, number, pack, value_digest
from fmtc.protocol.graph.finish import FINISH, SETTLE, SETTLE_STEPS
from fmtc.protocol.graph.opening import HELLO, PREPARE
from fmtc.protocol.graph.round import ROUND
from fmtc.protocol.mixture.opening import COORDINATES
from fmtc.settings import Settings

SETTINGS = Settings(3, max_iter=4)
CLUSTERED = SimpleNamespace(
    own=SimpleNamespace(
        E=np.eye(3)[np.repeat(range(3), 20)], labels=np.repeat(range(3), 20), model=SimpleNamespace(centers=np.eye(3))
    )
)
SIZES = {"d": 6, "k": 3}
ASK = ROUND.Ask(anchor=np.zeros((6, 3)))


def answer(value=1.0):
    return ROUND.Answer(W=np.full((6, 3), float(value)), cut=0.5, misfit=0.25)


def message(round_no=1, ask=ASK, last_round=None, **place):
    return Message("round", ask, round_no, round_no - 1 if last_round is None else last_round, **place)


def release(outbox, message, answer, phase=ROUND, context="", settings=SETTINGS):
    return outbox.release(phase, message, answer, SIZES, settings, context, CLUSTERED if phase is FINISH else None)


def kinds(outbox):
    return [line["kind"] for line in outbox.ledger.lines()]


@pytest.fixture
def outbox():
    return Outbox(MemoryLedger(), "a", "run1")


@pytest.fixture
def lasting(tmp_path):
    """Makes an outbox on the same folder each time: a process that was started again."""
    return lambda run="run1", **options: Outbox(
        FileLedger(tmp_path / "outbox.jsonl"), "a", run, Payloads(tmp_path / "payloads" / run), **options
    )


# ------------------------------------------------------------------------------------------------ checked and recorded


def test_a_line_describes_each_field_and_holds_no_value(outbox):
    given = answer()
    assert release(outbox, message(), given) is given
    (line,) = outbox.ledger.lines()
    assert (line["client"], line["run"], line["phase"], line["round"], line["turn"], line["kind"]) == (
        "a", "run1", "round", 1, 0, "release",
    )  # fmt: skip
    assert [entry["field"] for entry in line["fields"]] == ["W", "cut", "misfit"]
    assert [entry["shape"] for entry in line["fields"]] == [[6, 3], [], []]
    assert [entry["type"] for entry in line["fields"]] == ["float64", "float", "float"]
    assert [entry["bytes"] for entry in line["fields"]] == [144, 8, 8]
    assert sum(entry["bytes"] for entry in line["fields"]) == nbytes(given)
    assert [entry["sha256"] for entry in line["fields"]] == [value_digest(value) for value in pack(given).values()]
    assert set(line) == {
        "number", "time", "client", "run", "phase", "round", "turn", "asked", "kind", "fields", "before", "hash",
    }  # fmt: skip
    assert set(line["fields"][0]) == {"field", "shape", "type", "bytes", "sha256"}


@pytest.mark.parametrize(
    "bad",
    [
        replace(answer(), W=np.full((6, 3), np.nan)),
        replace(answer(), W=np.ones((3, 6))),
        replace(answer(), cut=None),
        FINISH.Answer(centers=np.eye(3)),
        Nothing(),
        {"W": np.ones((6, 3))},
    ],
    ids=["nan", "shape", "lacking", "phase", "nothing", "no message"],
)
def test_what_is_not_as_declared_does_not_leave(outbox, bad):
    with pytest.raises(RefusedError):
        release(outbox, message(), bad)
    assert outbox.ledger.lines() == []


def test_nothing_leaves_that_could_not_be_recorded(tmp_path):
    class Full(MemoryLedger):
        def append(self, line):
            raise OSError("no space left")

    outbox = Outbox(Full(), "a", "run1", Payloads(tmp_path))
    with pytest.raises(OSError, match="no space"):
        release(outbox, message(), answer())
    with pytest.raises(OSError, match="no space"):
        outbox.fail(message(), ValueError("secret"))
    # nor does it count: the next one, which can be recorded, is a first release, with what is computed then
    outbox.ledger = MemoryLedger()
    given = release(outbox, message(), answer(2.0))
    assert given.W[0, 0] == 2.0
    assert kinds(outbox) == ["release"]


def test_an_answer_without_content_is_recorded_too(outbox):
    ask = Message("prepare", PREPARE.Ask(scale=1.0, ridge=0.1))
    for _ in range(9):  # and has no limit
        release(outbox, ask, Nothing(), PREPARE)
    assert kinds(outbox) == ["release", *8 * ["replay"]]
    assert outbox.ledger.lines()[0]["fields"] == []


def test_numbers_of_any_library_are_recorded_as_those_of_python(outbox):
    place = Message("hello", Nothing(), np.int64(0))
    given = HELLO.Answer(n_samples=np.int64(9), n_features=np.int32(4), sum_of_squares=np.float64(2.5))
    release(outbox, place, given, HELLO)
    (line,) = outbox.ledger.lines()
    assert [entry["type"] for entry in line["fields"]] == ["int", "int", "float"]
    release(outbox, place, HELLO.Answer(n_samples=9, n_features=4, sum_of_squares=2.5), HELLO)
    assert kinds(outbox) == ["release", "replay"]


# ------------------------------------------------------------------------------------------------------------- errors


def test_of_an_error_only_its_kind_leaves(outbox):
    failure = outbox.fail(message(3), ValueError("row 7: Lovelace, 2.5"))
    assert failure == Failure(error="ValueError")
    (line,) = outbox.ledger.lines()
    assert (line["kind"], line["phase"], line["round"]) == ("failure", "round", 3)
    assert [(entry["field"], entry["bytes"]) for entry in line["fields"]] == [("error", 10)]
    assert "Lovelace" not in str(line)
    outbox.fail(None, OSError("a message that could not be read"))
    assert outbox.ledger.lines()[-1]["phase"] == ""


@pytest.mark.parametrize(
    "place",
    [
        {"phase": "x" * 10_000}, {"phase": "rows: 1.5"}, {"phase": 3}, {"phase": None}, {"round_no": "3"},
        {"round_no": -1}, {"round_no": True}, {"round_no": 2**60}, {"round_no": 1.5}, {"turn": [1]},
    ],
    ids=str,
)  # fmt: skip
def test_a_message_that_makes_no_sense_does_not_damage_the_ledger(lasting, place):
    """What it says of its place would be the server's own words in the record of a silo."""
    outbox = lasting()
    outbox.fail(replace(message(3), **place), RefusedError("no"))
    (line,) = lasting().ledger.lines()
    assert line["kind"] == "failure"
    assert (line["phase"], line["round"], line["turn"]) == (
        "" if "phase" in place else "round",
        0 if "round_no" in place else 3,
        0,
    )
    release(lasting(), message(), answer())
    assert verify(outbox.ledger.path) == []


def test_failures_are_no_releases(lasting):
    outbox = lasting()
    for _ in range(20):
        outbox.fail(message(), OSError("disk gone"))
    release(lasting(), message(), answer())
    assert kinds(outbox)[-1] == "release"


# ------------------------------------------------------------------------------------------------------------- replay


def test_a_line_tells_questions_apart_where_answers_are_kept(lasting):
    for asked, context in ((message(), "c"), (message(), "c"), (message(), "d"), (message(ask=other_ask()), "c")):
        release(lasting(), asked, answer(), context=context)
    digests = [line["asked"] for line in lasting().ledger.lines()]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert all(len(each) == 64 for each in digests)


def other_ask():
    return ROUND.Ask(anchor=np.ones((6, 3)))


@pytest.mark.parametrize("again", [False, True], ids=["same process", "new process"])
def test_the_same_question_gets_the_same_bytes(lasting, again):
    """Whatever is computed the second time: with noise it would be another answer."""
    outbox = lasting()
    first = release(outbox, message(), answer(1.0), context="c")
    outbox = lasting() if again else outbox
    for noise in (2.0, 3.0):
        second = release(outbox, message(), answer(noise), context="c")
        assert_array_equal(second.W, first.W)
        assert (second.cut, second.misfit) == (first.cut, first.misfit)
    assert kinds(outbox) == ["release", "replay", "replay"]
    lines = outbox.ledger.lines()
    assert lines[0]["fields"] == lines[1]["fields"] == lines[2]["fields"]


def test_without_kept_answers_the_same_answer_is_a_replay_and_another_one_is_not(outbox):
    release(outbox, message(), answer(1.0))
    assert release(outbox, message(), answer(1.0)).W[0, 0] == 1.0
    assert outbox.earlier(ROUND, message()) is None
    assert release(outbox, message(), answer(2.0)).W[0, 0] == 2.0
    assert kinds(outbox) == ["release", "replay", "release"]


@pytest.mark.parametrize(
    ("asked", "context"),
    [
        (message(1, ROUND.Ask(anchor=np.ones((6, 3)))), ""),
        (message(1, ROUND.Ask(anchor=np.zeros((6, 3)), rotation=np.eye(3))), ""),
        (message(2), ""),
        (message(turn=1), ""),
        (message(), "other settings"),
    ],
    ids=["ask", "rotation", "round", "turn", "context"],
)
def test_another_question_is_another_release(lasting, asked, context):
    outbox = lasting()
    release(outbox, message(), answer(1.0))
    assert outbox.earlier(ROUND, asked, context) is None
    assert release(outbox, asked, answer(2.0), context=context).W[0, 0] == 2.0
    assert kinds(outbox) == ["release", "release"]


def test_another_run_starts_from_nothing(lasting):
    release(lasting("run1"), message(), answer(1.0))
    assert release(lasting("run2"), message(), answer(2.0)).W[0, 0] == 2.0
    assert release(lasting("run1"), message(), answer(3.0)).W[0, 0] == 1.0


def test_answers_are_kept_until_the_server_has_them(lasting, tmp_path):
    outbox = lasting()
    for round_no in range(1, 6):
        release(outbox, message(round_no), answer(round_no))
    folder = tmp_path / "payloads" / "run1"
    assert sorted(path.name[:11] for path in folder.iterdir()) == ["round-00004", "round-00005"]
    release(outbox, message(6, last_round=3), answer(6.0))  # two answers were lost on the way: their state is not
    assert sorted(path.name[:11] for path in folder.iterdir()) == ["round-00004", "round-00005", "round-00006"]
    for phase, asked, given in (
        (FINISH, Message("finish", FINISH.Ask(), 6, 6), FINISH.Answer(centers=np.eye(3))),
        (SETTLE, Message("settle", settle_ask(), 6, 6), settle_answer()),
    ):
        release(outbox, asked, given, phase)
        name, value = next(iter(pack(given).items()))
        assert_array_equal(pack(outbox.earlier(phase, asked))[name], value)


def test_kept_answers_are_for_their_owner_alone(lasting, tmp_path):
    release(lasting(), message(), answer())
    folder = tmp_path / "payloads" / "run1"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_kept_answer_that_is_damaged_does_not_leave(lasting, tmp_path):
    release(lasting(), message(), answer())
    (path,) = (tmp_path / "payloads" / "run1").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FileError):
        release(lasting(), message(), answer())


class Noisy(Phase):
    """A phase whose answer is another one each time it is computed."""

    name = "noisy"
    doing = "adding noise"
    protect = Protection("Noise alone.")

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        values: np.ndarray = array("n", "noise", "Nothing at all.")
        level: float = number("its level", "Nothing.")

    def reply(self, client, ask, settings, round_no):
        drawn = np.frombuffer(os.urandom(64), np.uint8) / 255
        return client, self.Answer(values=drawn, level=float(drawn.mean()))


def test_noise_is_drawn_once_for_a_question(lasting):
    phase, asked = Noisy(), Message("noisy", Nothing(), 2)
    sent = []
    for _ in range(6):
        _, computed = phase.reply(None, asked.ask, SETTINGS, 2)
        sent.append(release(lasting(), asked, computed, phase))
    assert len({value_digest(each.values) for each in sent}) == 1
    assert len({each.level for each in sent}) == 1
    assert kinds(lasting()) == ["release", *5 * ["replay"]]


# ------------------------------------------------------------------------------------------------------------- limits


def sums_for(number):
    return Message("settle", settle_ask(float(number)), 4, 4, int(number) % SETTLE_STEPS)


def test_questions_for_sums_are_limited_across_finishes_and_restarts(lasting):
    """Sixty questions for a finish, three finishes for a run; a process that starts again does not begin anew."""
    limit = 3 * SETTLE_STEPS
    for asked in range(limit):
        if asked % SETTLE_STEPS == 0:
            outbox = lasting()
            release(outbox, Message("finish", FINISH.Ask(), 4, 4), FINISH.Answer(centers=np.eye(3)), FINISH)
        release(outbox, sums_for(asked), settle_answer(asked), SETTLE)
    for outbox in (lasting(), lasting()):
        with pytest.raises(LimitError):
            release(outbox, sums_for(limit), settle_answer(), SETTLE)
        again = release(outbox, sums_for(4), settle_answer(), SETTLE)  # an old question is no new one
        assert_array_equal(again.counts, np.full((1, 3), 4))
    lines = lasting().ledger.lines()
    assert sum((line["phase"], line["kind"]) == ("settle", "release") for line in lines) == limit
    release(lasting("run2"), sums_for(limit), settle_answer(), SETTLE)


@pytest.mark.parametrize("setting", [{"final": "kmeans"}, {"align": False}, {"labels_from": "embedding"}], ids=str)
def test_no_sums_leave_in_a_run_that_ends_with_k_means(outbox, setting):
    with pytest.raises(LimitError):
        release(outbox, sums_for(0), settle_answer(), SETTLE, settings=Settings(n_clusters=3, **setting))
    assert outbox.ledger.lines() == []


def test_rounds_are_limited_by_the_settings_and_some_restarts(lasting):
    """Four rounds, eight restarts before the first is done."""
    asks = [ROUND.Ask(anchor=np.full((6, 3), float(start))) for start in range(9)]
    for start, ask in enumerate(asks):
        release(lasting(), message(1, ask), answer(start))
    for round_no in (2, 3, 4):
        release(lasting(), message(round_no), answer(round_no))
    with pytest.raises(LimitError):
        release(lasting(), message(5), answer())
    release(lasting(), message(5), answer(), settings=replace(SETTINGS, max_iter=5))  # a run may be given more rounds


@pytest.mark.parametrize(
    ("phase", "given"),
    [(HELLO, HELLO.Answer(n_samples=9, n_features=4, sum_of_squares=1.0)), (FINISH, FINISH.Answer(centers=np.eye(3)))],
    ids=["hello", "finish"],
)
def test_other_phases_are_answered_three_times(lasting, phase, given):
    for context in "abc":
        release(lasting(), Message(phase.name, phase.Ask()), given, phase, context)
    with pytest.raises(LimitError):
        release(lasting(), Message(phase.name, phase.Ask()), given, phase, "d")
    release(lasting(), Message(phase.name, phase.Ask()), given, phase, "a")


def test_a_question_that_comes_again_when_a_run_resumes_is_no_new_one(lasting):
    """In whatever round: the answer is the one it got first, and does not count. Another question does."""
    given = COORDINATES.Answer(
        n_samples=9, sums=np.ones(4), within=np.eye(4), fourths=np.ones(4), many=np.ones(4), between=np.zeros((4, 4))
    )
    first = release(lasting(), Message("coordinates", COORDINATES.Ask()), given, COORDINATES)
    for round_no in range(2, 20, 3):
        other = replace(given, sums=np.zeros(4))  # what is computed now does not matter
        again = release(lasting(), Message("coordinates", COORDINATES.Ask(), round_no), other, COORDINATES)
        assert_array_equal(again.sums, first.sums)
    lines = lasting().ledger.lines()
    assert [line["kind"] for line in lines] == ["release"] + ["replay"] * 6
    assert {line["round"] for line in lines} == {0}
    for context in "ab":
        release(lasting(), Message("coordinates", COORDINATES.Ask(), 20), given, COORDINATES, context)
    with pytest.raises(LimitError):
        release(lasting(), Message("coordinates", COORDINATES.Ask(), 21), given, COORDINATES, "c")


# --------------------------------------------------------------------------------------------------------------- ask


def test_the_first_release_of_each_phase_waits_for_a_yes(lasting):
    shown = []

    def person(description):
        shown.append(description)
        return True

    for _ in range(2):  # a new process does not ask again
        outbox = lasting(rules=Rules(ask=person, always=True))
        for round_no in (1, 2):
            release(outbox, message(round_no), answer(round_no))
        release(outbox, Message("finish", FINISH.Ask(), 2, 2), FINISH.Answer(centers=np.eye(3)), FINISH)
        release(outbox, Message("prepare", PREPARE.Ask(scale=1.0, ridge=0.1)), Nothing(), PREPARE)  # nothing to see
    assert [(each["run"], each["phase"], each["round"]) for each in shown] == [
        ("run1", "round", 1),
        ("run1", "finish", 2),
    ]
    fields = shown[0]["fields"]
    assert [entry["field"] for entry in fields] == ["W", "cut", "misfit"]
    assert all(entry["what"] and entry["tells"] for entry in fields)
    release(lasting("run2", rules=Rules(ask=person, always=True)), message(), answer())
    assert len(shown) == 3  # another run is another matter


def test_a_no_withholds_the_answer_and_leaves_no_trace_of_a_release(lasting, tmp_path):
    said = []
    with pytest.raises(WithheldError, match="nobody to ask: it is the first"):
        release(lasting(rules=Rules(always=True)), message(), answer())
    outbox = lasting(rules=Rules(ask=lambda description: said.append(description) or False, always=True))
    for _ in range(2):
        with pytest.raises(WithheldError):
            release(outbox, message(), answer(1.0))
    assert len(said) == 2  # asked again: a person may change their mind
    assert outbox.ledger.lines() == []
    assert not (tmp_path / "payloads").exists()
    outbox.fail(message(), WithheldError("no"))
    assert kinds(outbox) == ["failure"]
    given = release(lasting(rules=Rules(ask=lambda description: True, always=True)), message(), answer(2.0))
    assert given.W[0, 0] == 2.0  # what was withheld is not kept
    assert issubclass(WithheldError, LimitError)
