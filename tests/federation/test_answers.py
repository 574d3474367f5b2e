"""Answers, with real processes: late, wrong, none at all; and runs that go on with fewer silos."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .conftest import HYPER, Trouble, assert_same, expected, family, slay

pytestmark = pytest.mark.federation


def test_a_silo_that_never_answers_and_one_that_is_gone(healthy, data, misbehave, monkeypatch):
    misbehave("late@3:1000")
    healthy.restart("b")
    hyper = replace(HYPER, max_iter=4)  # each round waits for its deadline
    outcome = healthy.run(hyper, min_clients=2, deadline=3.0)
    assert_same(outcome, *expected(data, hyper, away={3, 4, "finish"}))
    monkeypatch.undo()
    healthy.restart("b")

    healthy.tends = False
    trouble = Trouble(lambda: slay(family(healthy.processes["b"])))
    hyper = replace(HYPER, max_iter=20)  # rounds pass quickly: it is gone in one of the first
    outcome = healthy.run(hyper, listen=trouble, min_clients=2)
    away = {record.round_no for record in outcome.history if "b" in record.missing}
    assert away
    assert away == set(range(min(away), hyper.max_iter + 1))  # for good
    assert_same(outcome, *expected(data, hyper, away={*away, "finish"}))
    assert trouble.kinds.count("away") == 1
    healthy.restart("b")


def test_a_silo_that_returns_is_taken_in_again(healthy, data, misbehave, monkeypatch):
    misbehave("slow@0:1.5")
    healthy.restart("a")
    trouble = Trouble(lambda: slay(family(healthy.processes["b"])))
    outcome = healthy.run(HYPER, listen=trouble, min_clients=2)
    monkeypatch.undo()
    healthy.restart("a")
    away = {record.round_no for record in outcome.history if "b" in record.missing}
    assert away
    assert "silo back" in trouble.kinds
    assert outcome.history[-1].missing == ()
    assert_same(outcome, *expected(data, away=away))


def test_a_bad_or_late_answer_costs_its_round_and_no_more(healthy, data, misbehave):
    misbehave("nan@2,shape@3,raise@4,kind@6,stale@7,garbage@8,late@10:9")
    healthy.restart("b")
    trouble = Trouble(None)
    hyper = replace(HYPER, max_iter=16)
    outcome = healthy.run(hyper, listen=trouble, min_clients=2, deadline=5.0)
    bad = {2, 3, 4, 6, 7, 8}
    away = {record.round_no for record in outcome.history if "b" in record.missing}
    assert bad < away
    assert min(away - bad) == 10
    assert outcome.history[-1].missing == ()
    refused = [0, 1, 1, 0, 0, 1, 1, 1, 0]
    # FLARE's client asks before it sends, and keeps an answer that nobody waits for to itself
    assert [record.refused for record in outcome.history] == refused + [0] * (hyper.max_iter - len(refused))
    why = [event["why"] for event in trouble.events if event["event"] == "refused"]
    assert why == [
        "W holds NaN or infinity",
        "W has shape (9, 4), not (10, 4)",
        "W holds int64",
        "it answers round 6, not round 7",
        "it cannot be read: ValueError",
    ]
    assert trouble.kinds.count("submitted") == 1
    # it had gone on to round 10 by itself, and must go back to where its last answer counted
    assert_same(outcome, *expected(data, hyper, away=away))
