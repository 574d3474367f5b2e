"""A run as its `RunSpec` has it, and what happens in it as events on a channel."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fmtc import Privacy
from fmtc.artifacts.lines import append
from fmtc.errors import FileError, RefusedError, TrustError
from fmtc.runtime.events import EVENTS, at_coordinator, at_silo
from fmtc.runtime.flare import serve
from fmtc.runtime.spec import RunSpec
from fmtc.settings import Settings

SPEC = RunSpec(
    "r", Settings(n_clusters=3, n_neighbors=7), min_clients=2, weights={"a": 0.25, "b": 0.75}, wait=9.0,
    deadline=7.0, preflight="first", accept_units=True, client_ids={"1": "a", "2": "b"}, random_state=5,
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ a run


def test_a_run_is_the_same_after_it_was_written_and_read(tmp_path):
    spec = replace(SPEC, folder=tmp_path)
    assert RunSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_silo_is_told_what_concerns_it(tmp_path):
    told = replace(SPEC, folder=tmp_path).for_silo()
    assert set(told) == {"run", "method", "settings", "preflight", "random_state"}
    heard = RunSpec.from_dict(json.loads(json.dumps(told)))
    assert (heard.run_id, heard.settings, heard.method, heard.preflight) == ("r", SPEC.settings, SPEC.method, "first")
    assert (heard.weights, heard.client_ids) == (None, {})


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"run": "../r"}, RefusedError),
        ({"run": 7}, FileError),
        ({"preflight": "maybe"}, RefusedError),
        ({"method": "fmtc.cli:main"}, RefusedError),
        ({"settings": [1]}, FileError),
        ({"random_state": "x"}, FileError),
    ],
)
def test_a_run_that_is_none_is_refused(changed, error):
    with pytest.raises(error):
        RunSpec.from_dict(SPEC.to_dict() | changed)


def test_a_run_whose_method_breaks_its_promise_is_refused():
    settings = replace(SPEC.settings, privacy=Privacy(2, bounds=(-9, 9)), view="mixture")
    RunSpec("r", settings).check_promise()
    with pytest.raises(TrustError, match="keeps no such promise"):
        RunSpec("r", settings, method_name="fmtc-mixture").check_promise()


# ------------------------------------------------------------------------------------------------------- a channel


def test_news_are_what_came_since_and_all_is_all(tmp_path):
    first = at_silo(tmp_path)
    assert first.news() == first.all() == []
    first.tell("begun", run="r", replaces=True)
    later = at_silo(tmp_path)
    first.tell("round", run="s", round=3)
    assert [event["event"] for event in first.news()] == ["begun", "round"]
    assert [event["round"] for event in later.news()] == [3]
    assert [first.news(), later.news()] == [[], []]
    assert [event["event"] for event in later.all("r")] == ["begun"]
    assert (tmp_path / EVENTS).stat().st_mode & 0o777 == 0o600


def test_a_line_on_its_way_waits_and_another_file_is_noticed(tmp_path):
    channel, file = at_coordinator(tmp_path), tmp_path / EVENTS
    file.write_text('{"event": "agree", "time": 1.0}\n{"event": ')
    assert [event["event"] for event in channel.news()] == ["agree"]
    assert [event["event"] for event in channel.all()] == ["agree"]
    with file.open("a") as stream:
        stream.write('"differ", "time": 1.0}\n')
    assert [event["event"] for event in channel.news()] == ["differ"]
    file.write_text('{"event": "aborted", "time": 1.0}\n')
    assert [event["event"] for event in channel.news()] == ["aborted"]


def test_a_line_that_a_killed_writer_left_is_dropped_by_the_next_one(tmp_path):
    channel, file = at_coordinator(tmp_path), tmp_path / EVENTS
    channel.tell("agree")
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"event": "dif')
    channel.tell("differ")
    assert [event["event"] for event in channel.all()] == ["agree", "differ"]
    file.write_bytes(whole + b'{"event": "dif')
    later = at_coordinator(tmp_path)
    channel.tell("aborted")
    assert [event["event"] for event in later.news()] == ["aborted"]  # and nothing that was there before
    file.write_bytes(b'{"event"')
    channel.tell("agree")
    assert [event["event"] for event in channel.all()] == ["agree"]


def test_an_event_has_the_facts_that_are_declared(tmp_path):
    channel = at_silo(tmp_path)
    for facts in ({"run": "r"}, {"run": "r", "round": -1}, {"run": 1, "round": 1}):
        with pytest.raises(FileError):
            channel.tell("round", **facts)
    with pytest.raises(KeyError):
        channel.tell("surveyed", silos=[], findings=[], received=[])  # of the coordinator
    assert channel.all() == []


@pytest.mark.parametrize(
    "line",
    [
        {"event": "surveyed", "time": 1.0},
        {"event": "round", "time": 1.0, "run": "r"},
        {"event": "round", "time": "now", "run": "r", "round": 1},
        {"time": 1.0},
        ["round"],
    ],
    ids=str,
)
def test_an_event_that_nobody_declared_is_damage(tmp_path, line):
    channel = at_silo(tmp_path)
    append(channel.path, line)
    with pytest.raises(FileError, match=r"events\.jsonl is damaged"):
        channel.news()
    with pytest.raises(FileError, match=r"events\.jsonl is damaged"):
        channel.all()


def test_what_a_process_without_fmtc_tells_is_heard(tmp_path):
    channel = at_silo(tmp_path)
    tell = serve.teller(tmp_path)
    for kind in (serve.CONNECTED, serve.SECOND, serve.REFUSED):
        tell(kind)
    assert [event["event"] for event in channel.news()] == [serve.CONNECTED, serve.SECOND, serve.REFUSED]
