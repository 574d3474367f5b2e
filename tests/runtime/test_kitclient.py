"""A client in a folder: what it keeps, refuses, replays and releases, and a whole run over such clients."""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from tests.clock import ManualClock
from tests.questions import settle_ask

from fmtc import Privacy
from fmtc.errors import AbortedError, ChangedError, DataError, RefusedError
from fmtc.privacy.ledger import LEDGER, RELEASE, REPLAY, read_lines
from fmtc.protocol.base import REPEATS, Failure, Message, Nothing, digest
from fmtc.protocol.common import END
from fmtc.protocol.graph.finish import SETTLE_STEPS
from fmtc.runtime import kitclient
from fmtc.runtime.conductor import CHECKPOINT, RESULT, read_record
from fmtc.runtime.driver import run
from fmtc.runtime.events import EVENTS, at_silo
from fmtc.runtime.kitclient import ClientSource, KitClient
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.spec import RunSpec
from fmtc.schema import Column, Schema
from fmtc.settings import Settings
from fmtc.tables import Reading

from .kits import Interrupted, KitTransport, assert_sent_the_same_again, conducted, make_kits, told

SETTINGS = Settings(n_clusters=3, max_iter=4, tol=0, n_neighbors=20, n_init=2)
OVER = Message("end", END.Ask(converged=True))
HELLO = Message("hello", Nothing())
SURVEY = Message("survey", Nothing())


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return {
        cid: rng.normal(size=(30 + 10 * t, 5)) + 3 * rng.integers(2, size=(30 + 10 * t, 1))
        for t, cid in enumerate("ab")
    }


@pytest.fixture
def kits(rows, tmp_path):
    return make_kits(rows, tmp_path)


def new_client(kits, run_id="r", preflight="no", settings=SETTINGS, **more):
    spec = RunSpec(run_id, settings, preflight=preflight, method_name="fmtc")
    return KitClient(kits["a"], spec, **more)


def assert_as_local(transport, rows, settings=SETTINGS):
    local = LocalTransport(rows, settings)
    run(local, settings)
    for cid, expected in local.results().items():
        found = transport.result(cid).client
        assert_array_equal(found.labels, expected.labels)
        assert found.model.W.tobytes() == expected.model.W.tobytes()
        assert found.model.spread == expected.model.spread


# ------------------------------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("scale", ["none", "silo", "global"])
def test_a_run_over_kits_is_a_local_run(rows, kits, scale):
    settings = replace(SETTINGS, scale=scale)
    transport = KitTransport(kits, settings)
    run(transport, settings)
    assert_as_local(transport, rows, settings)


@pytest.mark.parametrize("after", [True, False])
def test_a_run_that_is_cut_short_anywhere_ends_as_if_it_were_not(rows, tmp_path, after):
    """Before "b" is asked is after "a" has answered: one of them is enough."""
    settings = replace(SETTINGS, max_iter=2)  # a first round, and one after another
    whole = KitTransport(make_kits(rows, tmp_path / "whole"), settings)
    (tmp_path / "expected").mkdir()
    spec = RunSpec("r", settings, tmp_path / "expected", preflight="first")
    assert conducted(whole, spec) == ["surveyed", *2 * ["round"], "done", "ended"]
    expected, _ = read_record(spec.folder / RESULT)
    places = {}  # of each client in each phase and round, the first message and the last
    for cid, message in whole.seen:
        if cid == "a" or after:
            first, _ = places.get((cid, message.phase, message.round_no), (message.key, ""))
            places[cid, message.phase, message.round_no] = first, message.key
    # one run, cut short at all of them: each of its processes begins where the one before ended
    kits = make_kits(rows, tmp_path / "kits")
    (tmp_path / "run").mkdir()
    spec = RunSpec("r", settings, tmp_path / "run", preflight="first")
    for at in dict.fromkeys((cid, key) for (cid, *_), both in places.items() for key in both):
        transport = Interrupted(kits, settings, at=at, after=after)
        with contextlib.suppress(AbortedError):  # at the very end, which is outside the run
            conducted(transport, spec)
        assert transport.cut, f"{at} was not asked again"
    again = KitTransport(kits, settings)
    conducted(again, spec)
    found, _ = read_record(spec.folder / RESULT)
    assert_array_equal(found.common["consensus"], expected.common["consensus"])
    for cid in kits:
        assert_array_equal(again.result(cid).client.labels, whole.result(cid).client.labels)
        assert again.ended(cid)["converged"] is False
        assert again.ended(cid) == whole.ended(cid)
        assert_sent_the_same_again(kits[cid])


def test_the_ledger_is_that_of_a_local_run(rows, kits):
    run(KitTransport(kits, SETTINGS), SETTINGS)
    local = LocalTransport(rows, SETTINGS)
    run(local, SETTINGS)
    told = [[(line["phase"], line["round"], line["fields"]) for line in lines]
            for lines in (read_lines(kits["a"] / LEDGER), local.ledgers["a"].lines())]  # fmt: skip
    assert told[0] == told[1]


def test_a_finished_run_needs_no_second_one(kits, tmp_path):
    spec = RunSpec("r", SETTINGS, tmp_path)
    conducted(KitTransport(kits, SETTINGS), spec)
    again = KitTransport(kits, SETTINGS)
    assert conducted(again, spec) == ["done", "ended"]
    assert again.seen == []  # all have confirmed
    (tmp_path / EVENTS).unlink()
    assert conducted(again, spec) == ["done", "ended"]
    assert {message.phase for _, message in again.seen} == {"end"}
    assert (tmp_path / CHECKPOINT).exists()


# ----------------------------------------------------------------------------------------------- state and restarts


def test_a_client_keeps_the_states_it_may_have_to_go_back_to(rows, kits):
    transport = KitTransport(kits, SETTINGS)
    kept = []

    def look(record):
        kept.append(sorted(path.name for path in transport.folder("a").glob("round-*")))

    run(transport, SETTINGS, callbacks=[look])
    assert kept == [[f"round-{r - 1:05d}.safetensors", f"round-{r:05d}.safetensors"] for r in range(1, 5)]
    assert transport.tell("a", OVER) == Nothing()
    assert sorted(path.name for path in transport.folder("a").glob("round-*")) == kept[-1]  # until the next run
    assert transport.ended("a") == {"converged": True}


def test_the_end_needs_no_rows(kits, tmp_path):
    """A client whose file is gone by then still learns that its result holds."""
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    (tmp_path / "a.npy").unlink()
    transport.restart("a")
    assert transport.tell("a", OVER) == Nothing()
    assert transport.tell("a", Message("end", END.Ask(converged=np.ones(2)))) == Failure(error="RefusedError")


def test_the_end_of_a_run_that_a_client_does_not_know(kits):
    """It has no labels to confirm, and nothing of its last run is thrown away."""
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    assert new_client(kits, "other").answer(OVER) == Failure(error="RefusedError")
    assert "no labels" in transport.trouble("a")[-1]
    assert [path.name for path in (kits["a"] / kitclient.STATES).iterdir()] == ["r"]
    assert transport.ended("a") is None


def test_a_message_that_comes_twice_gets_the_same_answer(rows, kits):
    class Twice(KitTransport):
        def tell(self, cid, message):
            first, second = super().tell(cid, message), super().tell(cid, message)
            assert digest(first) == digest(second)
            return second

    transport = Twice(kits, SETTINGS)
    run(transport, SETTINGS)
    assert_as_local(transport, rows)
    kinds = [line["kind"] for line in read_lines(kits["a"] / LEDGER)]
    assert kinds[::2] == len(kinds[::2]) * [RELEASE]
    assert kinds[1::2] == len(kinds[1::2]) * [REPLAY]


def test_a_process_that_starts_anew_continues_from_its_files(rows, kits):
    class Fragile(KitTransport):
        def tell(self, cid, message):
            answer = super().tell(cid, message)
            if message.phase == "round":
                self.restart(cid)
                prepared = next(m for c, m in self.seen if c == cid and m.phase == "prepare")
                super().tell(cid, replace(prepared, round_no=message.round_no))  # as a resumed run does
            return answer

    transport = Fragile(kits, SETTINGS)
    run(transport, SETTINGS)
    assert_as_local(transport, rows)


def test_a_client_refuses_what_does_not_fit(rows, kits):
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    old = next(message for cid, message in transport.seen if cid == "a" and message.round_no == 2)
    for message, error in [
        (old, "RefusedError"),  # round 2 after round 4
        (replace(old, round_no=9, ask=replace(old.ask, anchor=np.ones((4, 3)))), "RefusedError"),
        (replace(old, round_no=9, last_round=7), "FileError"),  # no such state
        (replace(old, round_no=2, last_round=2), "RefusedError"),
        (replace(old, phase="hallo"), "RefusedError"),
        (replace(old, round_no=True), "RefusedError"),
    ]:
        assert transport.tell("a", message) == Failure(error=error), message


def test_questions_for_sums_are_counted_across_restarts(kits):
    """A server that does not keep to the rules cannot take the sums apart by asking for finish again and again."""
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    asked = [m for cid, m in transport.seen if cid == "a" and m.phase == "settle"]
    assert 0 < len(asked) <= SETTLE_STEPS
    finish = next(m for cid, m in transport.seen if cid == "a" and m.phase == "finish")
    prepared = next(m for cid, m in transport.seen if cid == "a" and m.phase == "prepare")
    prepared = replace(prepared, round_no=4)  # as a resumed run asks
    answers = []
    for turn in range(REPEATS * SETTLE_STEPS + 5):
        if turn % 20 == 0:
            transport.restart("a")
            transport.tell("a", prepared)
            transport.tell("a", finish)
        ask = settle_ask(0.01 * turn, order=np.roll(np.arange(3), turn))
        answers.append(transport.tell("a", replace(asked[0], ask=ask)))
    allowed = REPEATS * SETTLE_STEPS - len(asked)
    assert [isinstance(answer, Failure) for answer in answers] == allowed * [False] + (len(answers) - allowed) * [True]
    assert answers[-1] == Failure(error="LimitError")
    assert digest(transport.tell("a", asked[0])) != digest(answers[-1])  # an old question still has its old answer


# ------------------------------------------------------------------------------------------------ the rows of a run


def test_a_client_does_not_continue_with_other_rows(rows, kits, tmp_path):
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    np.save(tmp_path / "a.npy", rows["a"] + 1e-9)
    transport.restart("a")
    prepared = next(message for cid, message in transport.seen if cid == "a" and message.phase == "prepare")
    assert transport.tell("a", prepared) == Failure(error="ChangedError")
    assert "a.npy" in transport.trouble("a")[-1]


def write_table(path, X, names):
    pl.DataFrame({"patient": names} | {f"x{j}": X[:, j] for j in range(X.shape[1])}).write_csv(path)


@pytest.mark.parametrize("change", ["order", "identifiers", "a cell", "one row less"])
def test_labels_go_to_the_rows_they_were_computed_from(rows, kits, tmp_path, change):
    X, names = rows["a"], [f"p{i}" for i in range(len(rows["a"]))]
    file = tmp_path / "a.csv"
    write_table(file, X, names)
    source = ClientSource("a", str(file), Reading(id_column="patient"))
    source.write(kits["a"])
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    result = transport.result("a")
    result.check(source.rows(kits["a"]), "a.csv")  # as they were
    turned = np.arange(len(X))[::-1]
    if change == "order":
        write_table(file, X[turned], [names[i] for i in turned])
    elif change == "identifiers":
        write_table(file, X, names[::-1])
    elif change == "a cell":
        write_table(file, np.where(np.arange(X.size).reshape(X.shape) == 7, X + 1e-12, X), names)
    else:
        write_table(file, X[:-1], names[:-1])
    with pytest.raises(ChangedError, match=r"a\.csv"):
        result.check(source.rows(kits["a"]), "a.csv")
    transport.restart("a")  # nor does the run continue
    assert transport.tell("a", HELLO) == Failure(error="ChangedError")


# -------------------------------------------------------------------------------------------- what a person allows


@pytest.mark.parametrize(("limit", "value"), [("max_k", 2), ("min_rows", 11), ("max_runs", 2)])
@pytest.mark.parametrize("message", [SURVEY, HELLO], ids=lambda message: message.phase)
def test_a_client_has_limits_of_its_own(kits, tmp_path, limit, value, message):
    for run_id in ("r1", "r2"):
        assert not isinstance(new_client(kits, run_id).answer(HELLO), Failure)
    enough = ClientSource("a", str(tmp_path / "a.npy"), max_k=3, min_rows=10, max_runs=9)
    replace(enough, **{limit: value}).write(kits["a"])
    before = sorted((kits["a"] / kitclient.STATES).rglob("*"))
    assert new_client(kits, "r3").answer(message) == Failure(error="LimitError")
    if limit != "min_rows":  # refused before anything of the last run is thrown away
        assert sorted((kits["a"] / kitclient.STATES).rglob("*")) == before
    enough.write(kits["a"])
    assert not isinstance(new_client(kits, "r3").answer(message), Failure)
    assert len(told(kits["a"], "begun")) == 3


def test_a_kit_may_hold_its_own_number_of_clusters(tmp_path):
    """Then the run is that of a coordinator who knows all numbers, but for what it was told."""
    from tests.conformance.suite import DATA, LACKING, but

    own = LACKING["clusters_per_silo"]
    folders = {name: tmp_path / name for name in ("told", "kept")}
    told = KitTransport(make_kits(DATA, folders["told"]), but(**LACKING))
    kept = KitTransport(make_kits(DATA, folders["kept"]), but(**LACKING | {"clusters_per_silo": {}}))
    for cid, kit in kept.kits.items():
        replace(ClientSource.read(kit), n_clusters=own[cid]).write(kit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = [run(transport, transport.settings).server for transport in (told, kept)]
    assert ends[0].clusters == ends[1].clusters == own
    assert_array_equal(ends[0].Z, ends[1].Z)


@pytest.mark.parametrize("changed", [{"n_clusters": 4}, {"n_clusters": 3, "clusters_per_silo": {}}], ids=str)
def test_a_run_that_has_no_room_for_its_clusters_is_refused(tmp_path, changed):
    from tests.conformance.suite import DATA, but

    kits = make_kits(DATA, tmp_path)
    number = 2 if "clusters_per_silo" not in changed else 4
    replace(ClientSource.read(kits["north"]), n_clusters=number).write(kits["north"])
    assert KitTransport(kits, but(**changed)).tell("north", HELLO) == Failure(error="LimitError")


def test_runs_of_yesterday_do_not_count(kits, tmp_path):
    ClientSource("a", str(tmp_path / "a.npy"), max_runs=1).write(kits["a"])
    clock = ManualClock(1e9)

    def ask(run_id):
        return new_client(kits, run_id, clock=clock).answer(HELLO)

    assert ask("r1") == ask("r1")  # the same run, resumed
    assert ask("r2") == Failure(error="LimitError")
    clock.sleep(kitclient.DAY + 1)
    assert not isinstance(ask("r2"), Failure)


def test_settings_are_shown_before_anything_is_answered(kits, tmp_path):
    ClientSource("a", str(tmp_path / "a.npy"), shown=True).write(kits["a"])
    folder, clock = kits["a"] / kitclient.STATES / "r", ManualClock()
    seen = []

    def show():
        seen.append((told(kits["a"], "asked")[-1], sorted(path.name for path in folder.iterdir())))
        at_silo(kits["a"]).tell("shown", run="r")

    clock.at(3.0, show)
    new_client(kits, preflight="first", clock=clock).answer(HELLO)
    (asked, files) = seen.pop()
    assert (asked["settings"]["n_clusters"], asked["preflight"]) == (3, "first")
    assert files == []  # rows were not even read
    new_client(kits, preflight="first", clock=clock).answer(HELLO)  # the next attempt: nothing new
    assert not seen
    clock.after(2.0, show)
    other = replace(SETTINGS, max_iter=9)
    new_client(kits, preflight="first", settings=other, clock=clock).answer(HELLO)  # other settings: shown again
    assert seen[0][0]["settings"]["max_iter"] == 9


def test_nobody_at_the_screen_does_not_stop_a_run(kits, tmp_path):
    ClientSource("a", str(tmp_path / "a.npy"), shown=True).write(kits["a"])
    clock = ManualClock()
    assert not isinstance(new_client(kits, clock=clock).answer(HELLO), Failure)
    assert 10 <= clock.monotonic() < 11


@pytest.mark.parametrize("word", ["yes", "no"])
def test_a_person_may_hold_the_first_answer_of_each_kind(kits, tmp_path, word):
    ClientSource("a", str(tmp_path / "a.npy"), ask=True).write(kits["a"])
    transport, shown = KitTransport(kits, SETTINGS), []
    channel, over = at_silo(kits["a"]), threading.Event()

    def person():
        while not over.is_set():
            for event in channel.news():
                if event["event"] == "to leave":
                    shown.append(event)
                    channel.tell("decided", run=event["run"], phase=event["phase"], send=word == "yes")
            over.wait(0.02)

    thread = threading.Thread(target=person)
    thread.start()
    try:
        if word == "yes":
            run(transport, SETTINGS)
        else:
            assert transport.tell("a", HELLO) == Failure(error="WithheldError")
    finally:
        over.set()
        thread.join()
    phases = [about["phase"] for about in shown]
    assert phases == (["hello", "round", "finish", "settle", "number"] if word == "yes" else ["hello"])
    assert all(entry["what"] and entry["tells"] for about in shown for entry in about["fields"])
    released = [line["phase"] for line in read_lines(kits["a"] / LEDGER) if line["kind"] == RELEASE]
    assert ("hello" in released) is (word == "yes")


def test_a_comparison_that_turns_out_to_be_more_is_refused(kits):
    client = new_client(kits, preflight="only")
    assert not isinstance(client.answer(SURVEY), Failure)
    for phase in ("hello", "moments", "prepare"):
        assert client.answer(Message(phase, Nothing())) == Failure(error="RefusedError")


def test_a_comparison_leaves_an_interrupted_run_alone(kits):
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    new_client(kits, "compare", "only").answer(SURVEY)
    assert len(list(transport.folder("a").glob("round-*"))) == 2


def test_a_new_run_throws_the_states_of_old_ones_away_but_not_the_ledger(kits):
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    transport.tell("a", OVER)
    before = read_lines(kits["a"] / LEDGER)
    new_client(kits, "s").answer(HELLO)
    assert [path.name for path in (kits["a"] / kitclient.STATES).iterdir()] == ["s"]
    assert read_lines(kits["a"] / LEDGER)[: len(before)] == before


def test_a_new_run_ends_one_of_which_only_the_last_word_is_missing(kits):
    """Its labels are not thrown away before anybody has seen them; the run after the next one does that."""
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    new_client(kits, "s").answer(HELLO)
    assert transport.ended("a") == {"converged": None, "alone": True}
    assert len(transport.result("a").client.labels) > 0
    new_client(kits, "t").answer(HELLO)
    assert [path.name for path in (kits["a"] / kitclient.STATES).iterdir()] == ["t"]


def test_the_name_of_a_run_is_no_path(kits):
    for name in ("../r", "", "r/s", 7):
        with pytest.raises(RefusedError):
            new_client(kits, name)


def test_an_error_leaves_as_its_kind_alone(kits, tmp_path):
    (tmp_path / "a.npy").write_bytes(b"secret 4711")
    client = new_client(kits)
    assert client.answer(HELLO) == Failure(error="DataError")
    (event,) = told(kits["a"], "error")
    assert (event["phase"], "a.npy" in event["why"]) == ("hello", True)  # for the person at the client
    (released,) = read_lines(kits["a"] / LEDGER)
    assert [entry["field"] for entry in released["fields"]] == ["error"]
    assert "4711" not in (kits["a"] / LEDGER).read_text()


def test_nothing_leaves_that_the_ledger_cannot_hold(kits, monkeypatch):
    client = new_client(kits)

    def full(line):
        raise OSError("no space left on device")

    monkeypatch.setattr(client.node.outbox.ledger, "append", full)
    with pytest.raises(OSError, match="no space"):
        client.answer(HELLO)


def test_answers_are_kept_that_may_be_asked_for_again(kits):
    transport = KitTransport(kits, SETTINGS)
    run(transport, SETTINGS)
    sent = transport.folder("a") / kitclient.SENT
    assert len(list(sent.glob("round-*"))) == 2
    assert {path.stat().st_mode & 0o777 for path in sent.iterdir()} == {0o600}


# ------------------------------------------------------------------------------------------------------- schemas


TYPES = Schema((Column("age", lower=0), Column("sex", "category", ("f", "m"))), "patient")


def mixed_source(tmp_path, **options):
    file = tmp_path / "a.csv"
    file.write_text("patient,sex,age,ward\np1,f,31,W\np2,m,-9,W\np3,x,50,W\n")
    return ClientSource("a", str(file), Reading(**options))


def test_a_client_reads_its_table_by_the_schema_of_all(tmp_path, kits):
    source = mixed_source(tmp_path, schema=TYPES, missing="em")
    source.write(kits["a"])
    assert ClientSource.read(kits["a"]) == source
    with pytest.warns(UserWarning, match="missing|ignored"):
        silo = source.rows(kits["a"])
    assert_array_equal(silo.X, [[31, 0], [np.nan, 1], [50, np.nan]])
    assert (silo.ids, silo.schema) == (["p1", "p2", "p3"], TYPES)
    assert source.columns().categories == {"sex": ("f", "m")}


def test_without_a_schema_words_are_refused_with_the_way_to_one(tmp_path, kits):
    with pytest.raises(
        DataError, match=r"'sex' holds words \(such as 'f'\).*fmtc check FILES --write-schema schema.toml"
    ):
        mixed_source(tmp_path, id_column="patient", drop=("ward",)).rows(kits["a"])


def test_what_join_says_about_words_can_be_done(tmp_path, kits):
    """Without a schema: codes among numbers, free text, and a column that may be the answer."""
    file = tmp_path / "a.csv"
    rows = "".join(f"{i},{'<5' if i % 3 else i + 0.5},the pump at bed {i} stopped,{i % 2}\n" for i in range(12))
    file.write_text("row,crp,note,outcome\n" + rows)
    source = ClientSource("a", str(file), Reading(drop=("row",), missing="em"))
    flags = re.escape("(`text_column` note), or omit it (`drop` note)")
    with pytest.raises(DataError, match=f"'note' holds free text .* cluster by its words {flags}"):
        source.rows(kits["a"])
    assert "note" not in source.columns().identifiers
    source = replace(source, reading=replace(source.reading, drop=("row", "note")))
    with pytest.raises(
        DataError, match=r"'crp' holds numbers, but '<5' in line 3 of a.csv: .*\(`missing_codes` '<5'\)"
    ):
        source.rows(kits["a"])
    source = replace(source, reading=replace(source.reading, missing_codes=("<5",)))
    source.write(kits["a"])
    assert ClientSource.read(kits["a"]) == source
    silo = source.rows(kits["a"])
    assert_array_equal(silo.X[:4, 0], [0.5, np.nan, np.nan, 3.5])
    assert silo.schema.columns[0].missing == ("<5",)
    assert source.columns().questions == (
        "is 'outcome' the answer? It is clustered on: leave it out (`label_column` outcome)",
    )


def test_a_client_takes_no_part_in_a_run_of_other_categories(tmp_path, kits):
    """Levels are part of the settings: codes would mean something else here."""
    mixed_source(tmp_path, schema=TYPES, missing="em").write(kits["a"])
    client = new_client(kits, "0123456789abcdef")
    object.__setattr__(client.settings, "levels", (0, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match="other categories"):
            client._open()


@pytest.mark.parametrize("privacy", ["sums", Privacy(2, bounds=(-9, 9))])
@pytest.mark.parametrize("method", ["fmtc", "fmtc-mixture", "fmtc-auto"])
def test_a_method_that_does_not_keep_the_promise_of_its_settings_gets_nothing(kits, privacy, method):
    """A coordinator that says one thing and runs another: a privacy floor looks at settings."""
    settings = replace(SETTINGS, privacy=privacy, view="mixture", coupling="subspace")
    client = KitClient(kits["a"], RunSpec("r", settings, method_name=method))
    answer = client.answer(Message("moments", client.method.phase("moments").Ask()))
    assert answer == Failure(error="TrustError")
    kinds = [line["kind"] for line in read_lines(kits["a"] / LEDGER)]
    assert RELEASE not in kinds
