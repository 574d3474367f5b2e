"""The two ends of a FLARE job without the processes between them; tests/federation has those."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("nvflare", reason="needs the federation extra")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply
from tests.clock import ManualClock

from fmtc.errors import FileError, OwnError, RefusedError, SiteError
from fmtc.privacy.ledger import LEDGER, read_lines
from fmtc.protocol.base import Failure, Message, Nothing
from fmtc.protocol.common import END
from fmtc.protocol.graph.finish import FINISH
from fmtc.protocol.graph.opening import HELLO
from fmtc.protocol.graph.round import ROUND
from fmtc.protocol.graph.view import METHOD
from fmtc.runtime.events import at_coordinator
from fmtc.runtime.flare import adapter
from fmtc.runtime.spec import RunSpec
from fmtc.settings import Settings

from .kits import make_kits, told

SETTINGS = Settings(n_clusters=3, max_iter=4, tol=0, n_neighbors=20)
ASKED = Message("round", ROUND.Ask(anchor=np.ones((5, 3))), round_no=2, last_round=1)
ANSWER = ROUND.Answer(W=np.ones((5, 3)), cut=0.5, misfit=0.25)


class Session:
    """FLARE's side of a transport: clients that are there, tasks that were sent."""

    def __init__(self, sites):
        self.there, self.tasks, self.cancelled, self.triggered = sites, {}, [], False
        self.spec = RunSpec("r", SETTINGS, deadline=5.0)
        self.sites = {site.removeprefix("silo-"): site for site in sites}
        self.lost_after = 20.0

    def get_engine(self):
        return self

    def get_clients(self):
        return [SimpleNamespace(name=site) for site in self.there]

    def send(self, task, fl_ctx, targets):
        self.tasks[targets[0].name] = task

    def cancel_task(self, task):
        self.cancelled.append(task)


@pytest.fixture
def session():
    return Session(["silo-a", "silo-b"])


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def events(tmp_path, clock):
    return at_coordinator(tmp_path, clock)


@pytest.fixture
def transport(session, events):
    transport = adapter.FlareTransport(session, session, session, events)
    transport.asked = {"silo-a": ASKED, "silo-b": ASKED}
    return transport


def reply(answer=ANSWER, run_id="r", **place):
    return adapter._reply(run_id, replace(ASKED, **place), answer)


def test_a_good_answer_counts_once(transport, events):
    transport.take("silo-a", reply())
    assert_array_equal(transport.replies.answers["a"].W, ANSWER.W)
    assert (transport.replies.refused, transport.replies.bytes_up) == (0, 5 * 3 * 8 + 16)
    transport.take("silo-a", reply(replace(ANSWER, W=2 * ANSWER.W)))  # twice
    assert_array_equal(transport.replies.answers["a"].W, ANSWER.W)
    assert transport.replies.refused == 1
    assert [(event["event"], event["site"]) for event in events.news()] == [("refused", "silo-a")]


def test_a_stranger_is_refused(transport, events):
    transport.take("silo-x", reply())
    assert transport.replies.refused == 1
    assert not transport.replies.answers
    assert [(event["event"], event["site"]) for event in events.news()] == [("refused", "silo-x")]


def test_what_comes_late_does_not_touch_the_open_question(transport):
    transport.take("silo-a", reply(round_no=1), expected=False)
    assert transport.replies.refused == 1
    assert not transport.replies.failures
    transport.take("silo-a", reply())
    assert set(transport.replies.answers) == {"a"}


@pytest.mark.parametrize(
    "result",
    [
        reply(run_id="other"),
        reply(round_no=1),
        reply(turn=1),
        reply(phase="finish"),
        reply(FINISH.Answer(centers=np.eye(3))),
        reply(replace(ANSWER, W=np.full((5, 3), np.nan))),
        reply(replace(ANSWER, W=np.ones((4, 3)))),
        adapter._question("r", ASKED),
        make_reply(ReturnCode.OK),
    ],
    ids=["run", "round", "turn", "phase", "fields", "NaN", "shape", "a question", "empty"],
)
def test_an_answer_that_does_not_fit_is_never_used(transport, events, result):
    transport.take("silo-a", result)
    assert not transport.replies.answers
    assert transport.replies.refused == 1
    assert isinstance(transport.replies.failures["a"], RefusedError)
    assert [(event["event"], event["site"]) for event in events.news()] == [("refused", "silo-a")]
    assert set(transport.asked) == {"silo-b"}


@pytest.mark.parametrize("field", ["rows", "error"])
def test_an_unknown_field_is_refused(transport, field):
    result = reply()
    result["DXO"]["data"][field] = np.ones(3)
    transport.take("silo-a", result)
    assert isinstance(transport.replies.failures["a"], RefusedError)


@pytest.mark.parametrize("result", [reply(Failure(error="OSError")), make_reply(ReturnCode.EXECUTION_EXCEPTION)])
def test_a_clients_own_error_is_not_a_refusal(transport, result):
    transport.take("silo-a", result)
    assert isinstance(transport.replies.failures["a"], OwnError)
    assert transport.replies.refused == 0


def test_an_error_with_a_story_is_refused(transport):
    transport.take("silo-a", reply(Failure(error="the patient 4711 has no weight")))
    assert transport.replies.refused == 1


# ---------------------------------------------------------------------------------------------------- deadlines


def answers_at(transport, session, clock, site, when):
    clock.at(when, lambda: transport.take(site, reply()))


def test_an_exchange_waits_for_all(transport, session, clock):
    for site, when in (("silo-a", 1.0), ("silo-b", 4.5)):
        clock.at(when, lambda site=site: transport.take(site, reply()))
    replies = transport.exchange({"a": ASKED, "b": ASKED})
    assert set(replies.answers) == {"a", "b"}
    assert 4.5 <= clock.monotonic() < 4.6
    assert replies.bytes_down == 2 * (5 * 3 * 8 + len("round") + 16)


def test_a_late_answer_is_a_lost_one(transport, session, clock):
    clock.at(1.0, lambda: transport.take("silo-a", reply()))
    replies = transport.exchange({"a": ASKED, "b": ASKED})
    assert set(replies.answers) == {"a"}
    assert isinstance(replies.failures["b"], SiteError)
    assert 5.0 <= clock.monotonic() < 5.1
    transport.take("silo-b", reply(), expected=False)
    clock.at(6.0, lambda: [transport.take(site, reply()) for site in ("silo-a", "silo-b")])
    again = transport.exchange({"a": ASKED, "b": ASKED})
    assert (set(again.answers), again.refused) == ({"a", "b"}, 1)  # the late one is counted, and not used


def test_a_silent_site_is_lost_before_the_deadline(session, clock, events):
    session.spec = replace(session.spec, deadline=600.0)
    transport = adapter.FlareTransport(session, session, session, events)
    clock.at(19.0, lambda: transport.seen.update({"silo-a": 19.0}))
    clock.at(30.0, lambda: transport.take("silo-a", reply()))
    replies = transport.exchange({"a": ASKED, "b": ASKED})
    assert set(replies.answers) == {"a"}
    assert isinstance(replies.failures["b"], SiteError)
    assert [event["site"] for event in events.news() if event["event"] == "away"] == ["silo-b"]
    later = transport.exchange({"b": ASKED})  # it cannot come back to this job
    assert isinstance(later.failures["b"], SiteError)


def test_a_site_that_is_not_there_is_not_waited_for(transport, session, clock):
    session.there = ["silo-b"]
    clock.at(0.5, lambda: transport.take("silo-b", reply()))
    replies = transport.exchange({"a": ASKED, "b": ASKED})
    assert isinstance(replies.failures["a"], SiteError)
    assert clock.monotonic() < 1


def test_the_last_word_is_not_waited_for_long(session, clock, events):
    session.spec, session.lost_after = replace(session.spec, deadline=600.0), 1000.0
    transport = adapter.FlareTransport(session, session, session, events)
    transport.exchange({"a": Message("end", END.Ask(converged=True))})
    assert 30 <= clock.monotonic() < 31


def test_a_job_that_is_told_to_end_ends(transport, session, clock):
    clock.at(0.3, lambda: setattr(session, "triggered", True))
    with pytest.raises(adapter.AbortedError):
        transport.exchange({"a": ASKED})
    assert len(session.cancelled) == 1


# ------------------------------------------------------------------------------------------------------- a site


@pytest.fixture
def site(tmp_path):
    rng = np.random.default_rng(0)
    kits = make_kits({"a": rng.normal(size=(30, 5))}, tmp_path)
    workspace = SimpleNamespace(get_root_dir=lambda: str(kits["a"]))
    context = SimpleNamespace(get_engine=lambda: SimpleNamespace(get_workspace=lambda: workspace))
    executor = adapter.FmtcExecutor(RunSpec("r", SETTINGS).for_silo())
    executor.log_error = lambda *_: None
    return SimpleNamespace(kit=kits["a"], ask=lambda shareable: executor.execute("fmtc", shareable, context, None))


def test_a_question_and_its_answer(site):
    message = Message("hello", Nothing())
    answer = adapter._answered(site.ask(adapter._question("r", message)), "r", message, METHOD)
    assert isinstance(answer, HELLO.Answer)
    assert answer.n_samples == 30
    assert [line["phase"] for line in read_lines(site.kit / LEDGER)] == ["hello"]


@pytest.mark.parametrize(
    "shareable",
    [adapter._question("x", Message("hello", Nothing())), make_reply(ReturnCode.OK), reply()],
    ids=["another run", "garbage", "an answer"],
)
def test_what_is_no_question_is_answered_by_the_kind_of_an_error(site, shareable):
    answer = adapter._answered(site.ask(shareable), "r", Message("", None), _AnyPhase())
    assert answer == Failure(error="RefusedError")
    (line,) = read_lines(site.kit / LEDGER)
    assert [entry["field"] for entry in line["fields"]] == ["error"]


def test_a_damaged_kit_is_told_at_the_silo(site):
    (site.kit / LEDGER).write_text("no line of a ledger\n")
    with pytest.raises(FileError, match="line 1 is not JSON"):
        site.ask(adapter._question("r", Message("hello", Nothing())))
    (event,) = told(site.kit, "error")
    assert (event["kind"], event["run"]) == ("FileError", "r")
    assert "line 1 is not JSON" in event["why"]


class _AnyPhase:
    def phase(self, name):
        return HELLO
