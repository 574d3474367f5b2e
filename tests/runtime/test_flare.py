"""The two ends of a FLARE job without the processes between them; tests/federation has those."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("nvflare", reason="needs the federation extra")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

from fmtc import Hyper, LocalTransport, run
from fmtc.artifacts.files import read_json
from fmtc.errors import FileError, RefusedError
from fmtc.runtime.flare import adapter as flare
from fmtc.steps import Downlink, Uplink

HYPER = Hyper(n_clusters=3, max_iter=4, tol=0, n_neighbors=20)
ASKED = Downlink("round", round_no=2, last_round=1, guide=np.ones((5, 3)))
ANSWER = Uplink(W=np.ones((5, 3)), cut=0.5, misfit=0.25)


@pytest.fixture
def transport():
    notes = []
    controller = SimpleNamespace(run_id="r", hyper=HYPER, note=lambda event, **facts: notes.append((event, facts)))
    transport = flare.FlareTransport(controller, None, None, {"a": "silo-a", "b": "silo-b"}, 5.0, 5.0)
    transport.notes = notes
    transport.asked = {"silo-a": ASKED, "silo-b": ASKED}
    return transport


def answer(uplink=ANSWER, run_id="r", phase="round", round_no=2):
    return flare._envelope(run_id, uplink, phase, round_no)


def test_a_good_answer_counts_once(transport):
    transport.take("silo-a", answer())
    assert_array_equal(transport.replies.uplinks["a"].W, ANSWER.W)
    assert (transport.replies.refused, transport.replies.bytes_up) == (0, 5 * 3 * 8 + 16)
    transport.take("silo-a", answer(replace(ANSWER, W=2 * ANSWER.W)))  # twice
    assert_array_equal(transport.replies.uplinks["a"].W, ANSWER.W)
    assert transport.replies.refused == 1
    assert transport.notes == [("refused", {"site": "silo-a", "why": "nothing is open: it is late, or came twice"})]


def test_a_stranger_is_refused(transport):
    transport.take("silo-x", answer())
    assert transport.replies.refused == 1
    assert not transport.replies.uplinks
    assert transport.notes == [("refused", {"site": "silo-x", "why": "it is from a stranger"})]


def test_what_comes_late_does_not_touch_the_open_question(transport):
    transport.take("silo-a", answer(round_no=1), expected=False)
    assert transport.replies.refused == 1
    assert not transport.replies.failures
    transport.take("silo-a", answer())
    assert set(transport.replies.uplinks) == {"a"}


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (answer(run_id="other"), "it belongs to another run"),
        (answer(round_no=1), "it answers round 1, not round 2"),
        (answer(phase="finish"), "it answers finish 2, not round 2"),
        (answer(Uplink(centers=np.eye(3))), "round carries no centers"),
        (answer(replace(ANSWER, W=np.full((5, 3), np.nan))), "W holds NaN or infinity"),
        (flare._envelope("r", ASKED, "round", 2), "it is no Uplink"),
        (make_reply(ReturnCode.OK), "it cannot be read: ValueError"),
    ],
)
def test_an_answer_that_does_not_fit_is_never_used(transport, result, why):
    transport.take("silo-a", result)
    assert not transport.replies.uplinks
    assert transport.replies.refused == 1
    assert isinstance(transport.replies.failures["a"], RefusedError)
    assert transport.notes == [("refused", {"site": "silo-a", "why": why})]
    assert set(transport.asked) == {"silo-b"}


def test_an_unknown_field_is_refused(transport):
    result = answer()
    result["DXO"]["data"]["rows"] = np.ones(3)
    transport.take("silo-a", result)
    assert transport.notes == [("refused", {"site": "silo-a", "why": "it cannot be read: FileError"})]


@pytest.mark.parametrize("result", [answer(Uplink(error="OSError")), make_reply(ReturnCode.EXECUTION_EXCEPTION)])
def test_a_silos_own_error_is_not_a_refusal(transport, result):
    transport.take("silo-a", result)
    assert isinstance(transport.replies.failures["a"], flare.OwnError)
    assert transport.replies.refused == 0


# --------------------------------------------------------------------------------------------------------- a silo


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return {
        cid: rng.normal(size=(30 + 10 * t, 5)) + 3 * rng.integers(2, size=(30 + 10 * t, 1))
        for t, cid in enumerate("ab")
    }


class Silos:
    """A transport to executors, with their folders; no FLARE between. Can lose and repeat messages."""

    def __init__(self, rows, folder, hyper=HYPER):
        self.rows, self.folder, self.hyper = rows, folder, hyper
        for cid, X in rows.items():
            (folder / cid / "local").mkdir(parents=True)
            np.save(folder / f"{cid}.npy", X)
            flare.Site(cid, str(folder / f"{cid}.npy")).write(folder / cid)
        self.executors = {cid: self.new(cid) for cid in rows}
        self.client_ids = tuple(sorted(rows))
        self.seen = []

    def new(self, cid):
        return flare.FmtcExecutor("r", asdict(self.hyper))

    def exchange(self, messages):
        replies = flare.Replies()
        for cid, message in messages.items():
            self.seen.append((cid, message))
            replies.uplinks[cid] = self.tell(cid, message)
        return replies

    def tell(self, cid, message):
        return self.executors[cid].answer(message, self.folder / cid)

    def save_clients(self, folder):
        pass

    def load_clients(self, folder, client_ids):
        pass

    def states(self, cid):
        return sorted(path.name for path in (self.folder / cid / flare.STATES / "r").glob("round-*"))

    def result(self, cid):
        return flare.read_site_result(self.folder / cid / flare.STATES / "r" / flare.RESULT)


def assert_as_local(silos, rows, hyper=HYPER):
    local = LocalTransport(rows, hyper)
    run(local, hyper)
    for cid in rows:
        result, client = silos.result(cid), local.clients[cid]
        assert_array_equal(result.labels, client.labels)
        assert result.model.W.tobytes() == client.model.W.tobytes()
        assert result.model.spread == client.model.spread


@pytest.mark.parametrize("scale", ["none", "client", "global"])
def test_executors_are_clients(rows, tmp_path, scale):
    hyper = replace(HYPER, scale=scale)
    silos = Silos(rows, tmp_path, hyper)
    run(silos, hyper)
    assert_as_local(silos, rows, hyper)


def test_a_silo_keeps_the_state_it_may_have_to_go_back_to(rows, tmp_path):
    silos = Silos(rows, tmp_path)
    kept = []
    run(silos, HYPER, callbacks=[lambda record: kept.append(silos.states("a"))])
    assert kept == [[f"round-{r - 1:05d}.safetensors", f"round-{r:05d}.safetensors"] for r in range(1, 5)]
    silos.tell("a", Downlink("end", converged=True))
    assert silos.states("a") == kept[-1]  # until the next run
    assert read_json(tmp_path / "a" / flare.STATES / "r" / flare.ENDED) == {"converged": True}


def test_the_end_is_told_without_rows(rows, tmp_path):
    """A silo whose file is gone by then still gets to know that its result holds."""
    silos = Silos(rows, tmp_path)
    run(silos, HYPER)
    (tmp_path / "a.npy").unlink()
    silos.executors["a"] = silos.new("a")
    assert silos.tell("a", Downlink("end", converged=False)) == Uplink()
    with pytest.raises(RefusedError, match="neither true nor false"):
        silos.tell("a", Downlink("end", converged=np.ones(2)))


def test_the_end_of_a_run_that_a_silo_knows_nothing_of(rows, tmp_path):
    """Its kit is a new one: there is nothing to write down, and nothing of its last run is thrown away."""
    silos = Silos(rows, tmp_path)
    run(silos, HYPER)
    assert (
        flare.FmtcExecutor("other", asdict(HYPER)).answer(Downlink("end", converged=True), tmp_path / "a") == Uplink()
    )
    assert [path.name for path in (tmp_path / "a" / flare.STATES).iterdir()] == ["r"]
    assert not (tmp_path / "a" / flare.STATES / "r" / flare.ENDED).exists()


def test_a_message_told_twice_is_answered_alike(rows, tmp_path):
    silos, plain = Silos(rows, tmp_path), Silos.tell

    def twice(cid, message):
        first, second = plain(silos, cid, message), plain(silos, cid, message)
        for name, value in asdict(first).items():
            assert_array_equal(value, asdict(second)[name])
        return second

    silos.tell = twice
    run(silos, HYPER)
    assert_as_local(silos, rows)


def test_a_silo_that_starts_anew_goes_on_from_its_files(rows, tmp_path):
    silos, plain = Silos(rows, tmp_path), Silos.tell

    def crash(cid, message):
        uplink = plain(silos, cid, message)
        if message.phase == "round":
            silos.executors[cid] = silos.new(cid)
            prepared = next(m for c, m in silos.seen if c == cid and m.phase == "prepare")
            plain(silos, cid, prepared)
        return uplink

    silos.tell = crash
    run(silos, HYPER)
    assert_as_local(silos, rows)


def test_a_silo_refuses_what_does_not_fit(rows, tmp_path):
    silos = Silos(rows, tmp_path)
    run(silos, HYPER)
    old = next(message for cid, message in silos.seen if cid == "a" and message.round_no == 2)
    with pytest.raises(RefusedError, match="a message of round 2 came after one of round 4"):
        silos.tell("a", old)
    with pytest.raises(RefusedError, match="guide has shape"):
        silos.tell("a", replace(old, round_no=9, guide=np.ones((4, 3))))
    with pytest.raises(FileError, match=r"round-00007.safetensors is missing"):
        silos.tell("a", replace(old, round_no=9, last_round=7))


def test_a_silo_does_not_go_on_with_other_rows(rows, tmp_path):
    silos = Silos(rows, tmp_path)
    run(silos, HYPER)
    np.save(tmp_path / "a.npy", rows["a"] + 1e-9)
    silos.executors["a"] = silos.new("a")
    prepared = next(message for cid, message in silos.seen if cid == "a" and message.phase == "prepare")
    with pytest.raises(flare.ChangedError, match=r"a.npy is not what this run began with"):
        silos.tell("a", prepared)


def write_table(path, X, names):
    pl.DataFrame({"patient": names} | {f"x{j}": X[:, j] for j in range(X.shape[1])}).write_csv(path)


@pytest.mark.parametrize("change", ["order", "identifiers", "a cell", "one row less"])
def test_labels_go_to_the_rows_they_were_computed_from(rows, tmp_path, change):
    silos = Silos(rows, tmp_path)
    X, names = rows["a"], [f"p{i}" for i in range(len(rows["a"]))]
    file = tmp_path / "a.csv"
    write_table(file, X, names)
    site = flare.Site("a", str(file), id_column="patient")
    site.write(tmp_path / "a")
    run(silos, HYPER)
    result = silos.result("a")
    result.check(site.rows(tmp_path / "a"), "a.csv")  # as they were
    turned = np.arange(len(X))[::-1]
    if change == "order":
        write_table(file, X[turned], [names[i] for i in turned])
    elif change == "identifiers":
        write_table(file, X, names[::-1])
    elif change == "a cell":
        write_table(file, np.where(np.arange(X.size).reshape(X.shape) == 7, X + 1e-12, X), names)
    else:
        write_table(file, X[:-1], names[:-1])
    with pytest.raises(flare.ChangedError, match=r"a.csv is not what these labels were computed from"):
        result.check(site.rows(tmp_path / "a"), "a.csv")
    silos.executors["a"] = silos.new("a")  # nor is the run gone on with
    with pytest.raises(flare.ChangedError, match="is not what this run began with"):
        silos.tell("a", Downlink("hello"))


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max_k": 2}, "the run asks for 3 clusters, and --max-k is 2"),
        ({"min_rows": 11}, "the run asks for 3 clusters of 30 rows, and --min-rows is 11 rows for each cluster"),
        ({"max_runs": 2}, "it would be run 3 within 24 hours, and --max-runs is 2"),
    ],
)
@pytest.mark.parametrize("phase", ["survey", "hello"])
def test_a_silo_has_limits_of_its_own(rows, tmp_path, limits, why, phase):
    Silos(rows, tmp_path)
    kit = tmp_path / "a"
    for run_id in ("r1", "r2"):
        flare.FmtcExecutor(run_id, asdict(HYPER)).answer(Downlink("hello"), kit)
    (kit / flare.SALT).write_text("salt")
    enough = flare.Site("a", str(tmp_path / "a.npy"), max_k=3, min_rows=10, max_runs=9)
    replace(enough, **limits).write(kit)
    before = sorted((kit / flare.STATES).rglob("*"))
    with pytest.raises(flare.LimitError) as caught:
        flare.FmtcExecutor("r3", asdict(HYPER)).answer(Downlink(phase), kit)
    assert str(caught.value) == why
    if "min_rows" not in limits:  # refused before anything of the last run is thrown away
        assert sorted((kit / flare.STATES).rglob("*")) == before
    enough.write(kit)
    flare.FmtcExecutor("r3", asdict(HYPER)).answer(Downlink(phase), kit)
    assert len((kit / flare.RUNS).read_text().splitlines()) == 3


def test_runs_of_yesterday_do_not_count(rows, tmp_path, monkeypatch):
    Silos(rows, tmp_path)
    flare.Site("a", str(tmp_path / "a.npy"), max_runs=1).write(tmp_path / "a")
    ask = lambda run_id: flare.FmtcExecutor(run_id, asdict(HYPER)).answer(Downlink("hello"), tmp_path / "a")  # noqa: E731
    ask("r1")
    ask("r1")  # the same run, gone on with
    with pytest.raises(flare.LimitError):
        ask("r2")
    now = flare.time.time()
    monkeypatch.setattr(flare.time, "time", lambda: now + flare.DAY + 1)
    ask("r2")


def test_settings_are_shown_before_anything_is_answered(rows, tmp_path):
    Silos(rows, tmp_path)
    kit = tmp_path / "a"
    flare.Site("a", str(tmp_path / "a.npy"), shown=True).write(kit)
    folder = kit / flare.STATES / "r"
    seen = []

    def show():
        while not (folder / flare.ASKED).exists():
            flare.time.sleep(0.01)
        seen.append(read_json(folder / flare.ASKED))
        flare.time.sleep(0.3)
        seen.append(sorted(path.name for path in folder.iterdir()))
        (folder / flare.SHOWN).touch()

    screen = threading.Thread(target=show)
    screen.start()
    flare.FmtcExecutor("r", asdict(HYPER), "first").answer(Downlink("hello"), kit)
    screen.join()
    assert seen[0]["settings"]["n_clusters"] == 3
    assert seen[0]["preflight"] == "first"
    assert seen[1] == [flare.ASKED]  # rows were not even read
    flare.FmtcExecutor("r", asdict(HYPER), "first").answer(Downlink("hello"), kit)  # the next job: nothing new
    (folder / flare.ASKED).rename(folder / "before.json")
    (folder / flare.ASKED).write_text((folder / "before.json").read_text().replace('"max_iter": 4', '"max_iter": 9'))
    begin = flare.time.monotonic()
    screen = threading.Timer(0.5, (folder / flare.SHOWN).touch)
    screen.start()
    flare.FmtcExecutor("r", asdict(HYPER), "first").answer(Downlink("hello"), kit)  # other settings: shown again
    assert flare.time.monotonic() - begin > 0.4
    assert read_json(folder / flare.ASKED)["settings"]["max_iter"] == 4


def test_a_comparison_that_turns_out_to_be_more_is_refused(rows, tmp_path):
    Silos(rows, tmp_path)
    (tmp_path / "a" / flare.SALT).write_text("salt")
    executor = flare.FmtcExecutor("r", asdict(HYPER), "only")
    executor.answer(Downlink("survey"), tmp_path / "a")
    for phase in ("hello", "moments", "prepare"):
        with pytest.raises(RefusedError, match=f"{phase} is no part of a comparison of columns"):
            executor.answer(Downlink(phase), tmp_path / "a")


def test_a_comparison_leaves_an_interrupted_run_alone(rows, tmp_path):
    silos = Silos(rows, tmp_path)
    run(silos, HYPER)
    (tmp_path / "a" / flare.SALT).write_text("salt")
    flare.FmtcExecutor("compare", asdict(HYPER), "only").answer(Downlink("survey"), tmp_path / "a")
    assert len(silos.states("a")) == 2


def test_a_new_run_throws_the_states_of_old_ones_away(rows, tmp_path):
    silos = Silos(rows, tmp_path)
    run(silos, HYPER)
    flare.FmtcExecutor("s", asdict(HYPER)).answer(Downlink("hello"), tmp_path / "a")
    assert [path.name for path in (tmp_path / "a" / flare.STATES).iterdir()] == ["s"]


def test_an_error_leaves_the_silo_as_its_kind_alone(rows, tmp_path):
    Silos(rows, tmp_path)
    (tmp_path / "a.npy").write_bytes(b"secret 4711")
    executor = flare.FmtcExecutor("r", asdict(HYPER))
    said = []
    executor.log_exception = lambda context, text: said.append(text)
    workspace = SimpleNamespace(get_root_dir=lambda: str(tmp_path / "a"))
    context = SimpleNamespace(get_engine=lambda: SimpleNamespace(get_workspace=lambda: workspace))
    shareable = flare._envelope("r", Downlink("hello"), "hello", 0)
    reply = executor.execute("fmtc", shareable, context, None)
    assert flare._opened(reply, Uplink, "r", "hello", 0) == Uplink(error="DataError")
    assert "a.npy" in said[0]
    (line,) = [json.loads(line) for line in (tmp_path / "a" / flare.TROUBLE).read_text().splitlines()]
    assert (line["phase"], "a.npy" in line["why"]) == ("hello", True)  # for the silo's own screen
    stranger = executor.execute("fmtc", flare._envelope("x", Downlink("hello"), "hello", 0), context, None)
    assert flare._opened(stranger, Uplink, "r", "", 0) == Uplink(error="RefusedError")
