"""`fmtc join` from end to end, with a run in this process in place of FLARE's: what it shows, refuses and writes."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from tests.clock import ManualClock
from tests.runtime.kits import KitTransport, how_it_ended, told
from tests.views import graph_view

from fmtc import FMTC, load
from fmtc.artifacts.files import read_json
from fmtc.cli import asking
from fmtc.errors import ClientError, OwnError
from fmtc.privacy.ledger import LEDGER, read_lines, verify
from fmtc.protocol.base import Failure, Message, Nothing
from fmtc.protocol.common import END
from fmtc.protocol.method import view_method
from fmtc.runtime.driver import run
from fmtc.runtime.events import at_silo
from fmtc.runtime.flare import membership, serve
from fmtc.runtime.flare.authority import enrol
from fmtc.runtime.flare.kits import Kit
from fmtc.runtime.flare.membership import SLOW, Membership
from fmtc.runtime.flare.plan import Plan
from fmtc.runtime.flare.processes import CONSOLE, free_port
from fmtc.runtime.kitclient import ClientSource, KeptResult
from fmtc.tables import Reading

from .commands import in_process, write_tables
from .conftest import silo_rows

MODEL = graph_view(4, max_iter=4, tol=0.0, n_neighbors=15, random_state=3)
TABLE = FMTC(4, max_iter=4, tol=0.0, random_state=3)  # the view is found on the way: ten columns are a mixture


@pytest.fixture
def home(tmp_path):
    write_tables(tmp_path, silo_rows())
    enrol(Plan("study", "localhost", free_port(), ("north", "south"), 8.0), tmp_path / "kits")
    return tmp_path


@pytest.fixture
def clock():
    """Time for `fmtc join` and for the processes of jobs."""
    clock = ManualClock(now=time.time(), limit=time.time() + 10_000)
    yield clock
    clock.sleep(5_000)  # lets threads end


class Pretended:
    """FLARE's process of a silo, as `Process` is one."""

    def __init__(self, kit):
        self.log, self.alive = kit.path / CONSOLE, True

    def stop(self):
        self.alive = False

    def finish_jobs(self):
        pass


@pytest.fixture
def during(monkeypatch, clock):
    """Say what FLARE's process of a silo is to do: a function of its kit, run in a thread that shares the clock."""

    def order(act):
        def start(kit, party):
            clock.start(lambda: act(kit))
            clock.after(1_000, lambda: say(kit, serve.REFUSED))  # so that a test that fails ends
            return Pretended(kit)

        monkeypatch.setattr(membership, "Membership", partial(Membership, clock=clock, start=start))

    return order


def join(home, *flags):
    return in_process("join", "--kit", home / "kits/north", "--data", home / "north.csv", "--id-column", "patient",
                      "--out", home / "ours", *flags)  # fmt: skip


def say(kit, kind, **facts):
    """As FLARE's process of a kit does, see `serve`."""
    serve.teller(kit.path)(kind, **facts)


def silos(kit, clock, settings=None, run_id="r"):
    """North with its kit, and south beside it, without FLARE."""
    south = kit.path.parent / "south"
    source = ClientSource("south", str(kit.path.parents[1] / "south.csv"), Reading(id_column="patient", missing="em"))
    source.write(south)
    settings = MODEL._settings() if settings is None else settings
    method = view_method(settings.view).name
    return KitTransport(
        {"north": kit.path, "south": south}, settings, run_id, method=method, random_state=3, clock=clock
    )


def whole_run(kit, clock, before_the_end=lambda: None, converged=True, run_id="r", model=MODEL):
    say(kit, serve.CONNECTED)
    transport = silos(kit, clock, model._settings(), run_id=run_id)
    run(transport, model._settings(), method=view_method(model.view))
    before_the_end()
    transport.tell("north", Message(END.name, END.Ask(converged=converged)))


def fitted(home, model=MODEL):
    silos = {name: pl.read_csv(home / f"{name}.csv") for name in ("north", "south")}
    rows = {name: frame.drop("patient").to_numpy() for name, frame in silos.items()}
    return dict(zip(silos["north"]["patient"], clone(model).fit_predict(rows)["north"], strict=True))


def labels(home):
    return dict(pl.read_csv(home / "ours/labels/north.csv").select("patient", "cluster").iter_rows())


def re_export(home):
    file = home / "north.csv"
    pl.read_csv(file).reverse().write_csv(file)


@pytest.mark.parametrize("converged", [True, False])
def test_a_run_to_its_end(home, during, clock, converged):
    during(lambda kit: whole_run(kit, clock, converged=converged))
    done = join(home)
    assert done.exit_code == 0, done.output
    assert labels(home) == fitted(home)
    assert re.search("4 clusters.* 4 rounds.*coupling", done.stderr)
    report = read_json(home / "ours/report.json")
    assert report["converged"] is converged
    assert report["stopped_because"] == ("settled after 4 rounds" if converged else "4 rounds done")
    model = load(home / "ours/model")
    assert (model.random_state, model.n_clusters, model.converged_) == (3, 4, converged)
    modes = {path.stat().st_mode & 0o777 for path in (home / "ours", *(home / "ours").rglob("*"))}
    assert modes == {0o700, 0o600}
    assert not (home / "kits/north/in-use.lock").exists()


@pytest.mark.parametrize("converged", [True, False])
def test_a_run_that_ends_in_the_mixture(home, during, clock, converged):
    """With missing cells. The view is not known before the run, and rounds are those of the mixture."""
    for name in ("north", "south"):
        frame = pl.read_csv(home / f"{name}.csv")
        holes = np.random.default_rng(0).random((frame.height, 2)) < 0.1
        frame = frame.with_columns(
            pl.Series(f"x{j}", [None if hole else x for x, hole in zip(frame[f"x{j}"], holes[:, j], strict=True)])
            for j in range(2)
        )
        frame.write_csv(home / f"{name}.csv")
    during(lambda kit: whole_run(kit, clock, converged=converged, model=TABLE))
    done = join(home)
    assert done.exit_code == 0, done.output
    assert labels(home) == fitted(home, TABLE)
    assert re.search("4 clusters.* 4 rounds.*the view that suits the rows", done.stderr)
    assert "missing cells: " in done.stderr
    report = read_json(home / "ours/report.json")
    why = "settled after 16 rounds" if converged else "16 rounds done"
    assert (report["view"], report["n_iter"], report["stopped_because"]) == ("mixture", 16, why)
    assert load(home / "ours/model").view_ == "mixture"


def test_a_run_below_the_privacy_floor_ends_with_exit_code_4(home, during, clock):
    def refused(kit):
        with pytest.raises(ClientError):
            whole_run(kit, clock)

    during(refused)
    done = join(home, "--privacy-floor", "sums")
    assert done.exit_code == 4, done.output
    assert "privacy floor" in done.stderr
    assert "Nothing was sent" in done.stderr
    assert not (home / "ours").exists()
    assert not [line for line in read_lines(home / "kits/north" / LEDGER) if line["kind"] == "release"]
    done = join(home, "--privacy-floor", "secret")
    assert done.exit_code == 3, done.output


def test_a_file_that_changes_during_the_run(home, during, clock):
    before = (home / "north.csv").read_bytes()
    during(lambda kit: whole_run(kit, clock, before_the_end=lambda: re_export(home)))
    done = join(home)
    assert done.exit_code == 3, done.output
    assert "north.csv" in done.stderr
    assert not (home / "ours").exists()
    during(lambda kit: None)  # joined again: nobody but the silo is needed
    again = join(home)
    assert (again.exit_code, "--discard" in again.stderr) == (3, True), again.output
    assert not (home / "ours").exists()
    (home / "north.csv").write_bytes(before)
    done = join(home)
    assert done.exit_code == 0, done.output
    assert labels(home) == fitted(home)
    assert told(home / "kits/north", "delivered", "r")


def without_an_end(kit, clock, run_id="r", model=MODEL):
    """A run of which the last word does not come."""
    say(kit, serve.CONNECTED)
    run(silos(kit, clock, model._settings(), run_id=run_id), model._settings(), method=view_method(model.view))


@pytest.mark.parametrize("again", [False, True], ids=["still there", "joined again"])
def test_labels_whose_last_word_does_not_come(home, during, clock, again):
    """Nobody answers: the silo has all it needs, and finishes by itself."""
    if again:
        enrolled = Kit.read(home / "kits/north")
        ClientSource("north", str(home / "north.csv"), Reading(id_column="patient")).write(enrolled.path)
        without_an_end(enrolled, clock)
    during((lambda kit: None) if again else lambda kit: without_an_end(kit, clock))
    began = clock.time()
    done = join(home)
    assert done.exit_code == 0, done.output
    assert 8 < clock.time() - began < 30
    assert labels(home) == fitted(home)
    assert ("waiting for the coordinator's last word" in done.stderr) is again
    assert "last word about this run did not come" in " ".join(done.stderr.split())
    report = read_json(home / "ours/report.json")
    assert report["converged"] is None
    assert load(home / "ours/model").silos_ == ["north"]


def test_a_coordinator_that_is_there_has_the_last_word(home, during, clock, monkeypatch):
    """However long it takes; then nothing is amiss."""
    monkeypatch.setattr(membership, "reachable", lambda kit: "")
    during(lambda kit: whole_run(kit, clock, before_the_end=lambda: clock.sleep(300.0)))
    done = join(home)
    assert done.exit_code == 0, done.output
    assert "did not come" not in done.stderr
    assert read_json(home / "ours/report.json")["converged"] is True


def test_a_coordinator_hears_that_a_silo_which_ended_alone_has_its_labels(home, during, clock):
    during(lambda kit: without_an_end(kit, clock))
    assert join(home).exit_code == 0

    def resumed(kit):
        say(kit, serve.CONNECTED)
        clock.sleep(1.0)
        silos(kit, clock).tell("north", Message(END.name, END.Ask(converged=True)))

    during(resumed)
    done = join(home, "--force")
    assert done.exit_code == 0, done.output
    assert "knows now" in done.stderr


def test_a_new_run_does_not_cost_the_labels_of_the_last_one(home, during, clock, monkeypatch):
    """The coordinator has begun another run in place of ending the first: both results are written."""
    monkeypatch.setattr(membership, "reachable", lambda kit: "")

    def two_runs(kit):
        without_an_end(kit, clock, run_id="abcdefgh-first")
        clock.sleep(1.0)
        whole_run(kit, clock, run_id="second")

    during(two_runs)
    done = join(home)
    assert done.exit_code == 0, done.output
    assert labels(home) == fitted(home)
    earlier = pl.read_csv(home / "ours-abcdefgh/labels/north.csv")
    assert dict(earlier.select("patient", "cluster").iter_rows()) == fitted(home)
    assert "an earlier run, which goes to" in " ".join(done.stderr.split())


def test_labels_that_are_given_up(home, during, clock):
    during(lambda kit: whole_run(kit, clock, before_the_end=lambda: re_export(home)))
    assert join(home).exit_code == 3

    def refuse(kit):
        say(kit, serve.REFUSED)

    during(refuse)
    done = join(home, "--discard")  # and on to the next run, which does not come
    assert (done.exit_code, "north.csv" in done.stderr) == (3, False), done.output


@pytest.mark.parametrize("stay", [False, True])
def test_labels_of_a_run_that_ends_on_a_full_disk(home, during, clock, full_disk, stay):
    with full_disk("fmtc.cli.joining.write_silo"):
        during(lambda kit: whole_run(kit, clock))
        clock.after(500, lambda: say(Kit.read(home / "kits/north"), serve.REFUSED))  # ends one that stays
        done = join(home, *["--stay"] * stay)
    said = " ".join(done.stderr.split())
    assert done.exit_code == (3 if stay else 2), done.output
    assert re.search(
        r"/ours cannot be written: File too large\. The labels are safe in the kit until the next run", said
    )
    assert stay or "or join again with another --out" in said
    assert not [path.name for path in home.iterdir() if "ours" in path.name]
    during(lambda kit: None)  # nobody but the silo is needed
    done = in_process("join", "--kit", home / "kits/north", "--data", home / "north.csv", "--id-column", "patient",
                      "--out", home / "elsewhere")  # fmt: skip
    assert done.exit_code == 0, done.output
    (home / "elsewhere").rename(home / "ours")
    assert labels(home) == fitted(home)


def test_with_stay_a_changed_file_costs_one_run_and_no_more(home, during, clock):
    def two_runs(kit):
        before = (home / "north.csv").read_bytes()
        whole_run(kit, clock, before_the_end=lambda: re_export(home))
        while how_it_ended(kit.path, "r") and not said:
            clock.sleep(0.05)
        (home / "north.csv").write_bytes(before)
        whole_run(kit, clock, run_id="s")
        while not told(kit.path, "delivered", "s"):
            clock.sleep(0.05)
        say(kit, serve.REFUSED)  # lets it end

    said = []
    check = KeptResult.check

    def checked(self, silo, file):
        said.append(file)
        check(self, silo, file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeptResult, "check", checked)
        during(two_runs)
        done = join(home, "--stay")
    assert any("north.csv" in line for line in done.stderr.splitlines() if line.startswith("note: "))
    assert len(said) == 2
    assert labels(home) == fitted(home)


def test_what_a_silo_says_on_its_own_screen(home, during, clock):
    def events(kit):
        say(kit, serve.CONNECTED)
        say(kit, serve.SECOND)
        transport = silos(kit, clock, replace(MODEL._settings(), n_clusters=9))
        assert transport.tell("north", Message("hello", Nothing())) == Failure(error="LimitError")
        clock.sleep(1.0)
        say(kit, serve.REFUSED)

    during(events)
    done = join(home, "--max-k", "8")
    assert done.exit_code == 3
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert [line for line in notes if "'north'" in line]
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("note: we could not answer")]
    assert {"9", "8"} <= set(re.findall(r"\d+", line))
    assert re.search("Error: .*'north'.* 8 seconds", done.stderr)


@pytest.mark.parametrize(
    ("said", "green"),
    [
        ({"error": [], "note": []}, True),
        ({"error": [], "note": ["has values about 1,000 times the others'"]}, False),
        ({"error": ["has values about 1,000 times the others'"], "note": []}, False),
    ],
)
def test_a_column_in_other_units_is_not_followed_by_a_green_line(home, during, clock, said, green):
    def compare(kit):
        at_silo(kit.path).tell("preflight", run="r", **said)
        clock.sleep(0.5)
        say(kit, serve.REFUSED)

    during(compare)
    done = join(home)
    assert ("our columns" in done.stderr) is green
    assert ("1,000 times" in done.stderr) is not green
    assert ("this stops a run" in done.stderr) is bool(said["error"])


# --------------------------------------------------------------------------------------------- with a person's consent


@pytest.fixture
def person(monkeypatch):
    """Sits at the terminal of a silo, and sends what belongs to some phases only."""

    def sit(*agreed):
        def confirm(question, otherwise):
            asked.append(question)
            return agreed == ("all",) or len(asked) <= len(agreed)

        monkeypatch.setattr(asking, "confirmed", confirm)
        return asked

    asked = []
    monkeypatch.setattr(asking, "at_terminal", lambda: True)
    return sit


def released(home):
    return [line for line in read_lines(home / "kits/north" / LEDGER) if line["kind"] == "release" and line["fields"]]


def test_a_person_who_sends_everything_is_asked_once_for_each_phase(home, during, clock, person):
    asked = person("all")
    during(lambda kit: whole_run(kit, clock))
    done = join(home, "--ask")
    assert done.exit_code == 0, done.output
    assert labels(home) == fitted(home)
    phases = dict.fromkeys(line["phase"] for line in released(home))
    assert len(asked) == len(phases)
    assert [phase for phase in phases if phase in done.stderr] == list(phases)
    assert verify(home / "kits/north" / LEDGER) == []


def test_what_a_person_withholds_does_not_leave(home, during, clock, person):
    """The coordinator learns the kind of the error, and nothing of the answer or of why."""
    asked, heard = person("hello", "prepare"), []

    def refused(kit):
        transport = silos(kit, clock)
        told = transport.tell
        transport.tell = lambda cid, message: heard.append((cid, told(cid, message))) or heard[-1][1]
        with pytest.raises(ClientError) as caught:
            run(transport, MODEL._settings())
        heard.append(caught.value)
        clock.sleep(1.0)
        say(kit, serve.REFUSED)

    during(refused)
    done = join(home, "--ask")
    assert done.exit_code == 3  # by the last line of `refused`, which ends it
    error = heard.pop()
    assert isinstance(error.__cause__, OwnError)
    assert "WithheldError" in str(error)
    answers = [answer for cid, answer in heard if cid == "north"]
    assert answers[-1] == Failure(error="WithheldError")
    assert len(asked) == 3
    assert len({line["phase"] for line in released(home)}) == 2
    (line,) = [line for line in read_lines(home / "kits/north" / LEDGER) if line["kind"] == "failure"]
    assert [entry["field"] for entry in line["fields"]] == ["error"]
    assert not (home / "ours").exists()


def test_out_is_tried_before_anything_else(home, during):
    (home / "file").write_text("")
    during(lambda kit: pytest.fail("it was started"))
    done = in_process(
        "join", "--kit", home / "kits/north", "--data", home / "north.csv", "--out", home / "file" / "ours"
    )
    assert (done.exit_code, str(home / "file") in done.stderr) == (2, True), done.output
    assert np.array_equal(sorted(p.name for p in home.glob(".fmtc-*")), [])


# --------------------------------------------------------------------------------------- a membership by the clock


def watched(home, clock, act, until):
    """Events of a silo that `act` starts a process for, with the time of each, and the processes."""
    kit = Kit.read(home / "kits/north")
    processes, events = [], []

    def start(kit, party):
        processes.append(Pretended(kit))
        act(kit, processes[-1])
        return processes[-1]

    with Membership(kit, ClientSource("north", str(home / "north.csv")), clock=clock, start=start) as member:
        began = clock.time()
        for event in member.watch():
            if clock.time() - began > until:
                break
            if event["event"] != "idle":
                events.append((round(clock.time() - began, 1), event))
    return events, processes


def test_a_process_that_ends_is_started_again_later_and_later(home, clock):
    def crash(kit, process):
        process.alive = False

    events, processes = watched(home, clock, crash, until=200.0)
    restarts = [when for when, event in events if event["event"] == "restarted"]
    assert [event["attempt"] for _, event in events if event["event"] == "restarted"] == [*range(1, len(restarts) + 1)]
    assert [round(later - sooner) for sooner, later in pairwise(restarts)][:6] == [2, 4, 8, 16, 30, 30]
    assert len(processes) >= len(restarts)


def test_a_connection_makes_up_for_earlier_ends(home, clock):
    def crash_after_a_while(kit, process):
        clock.after(5.0, lambda: say(kit, serve.CONNECTED))
        clock.after(60.0, process.stop)

    events, _ = watched(home, clock, crash_after_a_while, until=200.0)
    kinds = [(event["event"], event.get("attempt")) for _, event in events]
    assert kinds == [("connected", None), ("restarted", 1)] * 3 + [("connected", None)]


@pytest.mark.parametrize(("why", "kind"), [("", "trouble"), ("the certificate has expired", "refused")])
def test_a_coordinator_that_does_not_answer_is_reported_once(home, clock, monkeypatch, why, kind):
    monkeypatch.setattr(membership, "refusal", lambda kit, clock: why)
    monkeypatch.setattr(membership, "reachable", lambda kit: "nobody listens")
    events, _ = watched(home, clock, lambda kit, process: None, until=500.0)
    ((when, event),) = events
    assert SLOW <= when < SLOW + 1
    assert event == {"event": kind, "why": why or "nobody listens"}
