"""What goes wrong in a federation, one fault after the other, in a simulation: no process, no waiting.

Each run must come to what a run in this process comes to in which the same silo is silent in the same rounds, to the
last bit. The same faults with real processes, where processes matter, are in the files named:

==================================================  ==================================================================
fault                                               covered by
==================================================  ==================================================================
none                                                `test_nothing_disturbed`; test_commands.py (real)
a silo never answers                                `test_a_silo_that_never_answers`
a silo is gone for good                             `test_a_silo_that_is_gone`
a silo comes back                                   `test_a_silo_that_comes_back`; test_kills.py
an answer with NaN, of wrong shape or type, of      `test_a_bad_or_late_answer_costs_its_round_and_no_more`
another round, unreadable, or late; an error
an answer that arrives when nobody waits for it     `test_an_answer_that_comes_after_its_deadline_is_refused`
a silo lost before the first round                  `test_a_silo_lost_before_the_first_round`
a silo lost in a round, before and after its answer `test_a_silo_lost_in_a_round`
a connection that breaks, for long or for short     `test_a_connection_that_breaks`
fewer silos than needed, before and during a run    `test_below_the_quorum`, `test_a_run_below_the_quorum_is_resumed`
fewer silos than at first, with a lower quorum      `test_the_command_below_the_quorum_and_with_fewer`,
                                                    `test_a_run_begins_with_enough_silos_when_it_has_waited`
a silo that joins late                              `test_a_silo_that_is_late_to_join_is_waited_for`
an error of a silo's own                            `test_an_error_of_a_silo_stops_the_run_at_once`
a job that ends between result and last message     `test_a_job_that_is_lost_between_the_result_and_the_last_message`
a run that is over while silos are away             `test_silos_that_left_after_the_end_are_not_waited_for_for_long`
a silo that leaves before its job begins            `test_silos_that_leave_before_a_job_begins`,
                                                    `test_silos_that_leave_while_they_are_told_that_the_run_is_over`
jobs that complete no round                         `test_jobs_that_complete_no_round`
a silo's process, a job's process, the server lost  `test_killed_processes`; test_kills.py (real)
the same in the middle of a mixture                 `test_killed_processes_in_the_middle_of_a_mixture`,
                                                    `test_a_mixture_below_the_quorum_is_resumed`
a silo that misses rounds of a mixture              `test_a_silo_that_misses_rounds_of_a_mixture`
a server that is busy, does not answer, or is gone  `test_a_server_that_runs_and_does_not_answer_is_started_again`;
                                                    tests/runtime/test_coordinator.py; test_kills.py (real)
a killed coordinator, during and after a run        test_mistakes.py (real, of a mixture)
two parties under one name                          test_mistakes.py (real), test_join.py
columns that differ                                 `test_texts_and_a_preflight_over_the_federation`
an interrupt, a killed join, a parent that is gone  test_commands.py (real)
==================================================  ==================================================================
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.clock import ManualClock
from tests.runtime.kits import how_it_ended, told

from fmtc.artifacts.files import read_json
from fmtc.cli import leading
from fmtc.errors import ClientError, FederationError, FileError, InputError
from fmtc.runtime import conductor
from fmtc.runtime.flare import membership
from fmtc.runtime.flare.kits import Kit
from fmtc.runtime.flare.membership import Membership
from fmtc.runtime.kitclient import ClientSource
from fmtc.tables import Reading

from .commands import NAMES, SETTINGS, in_process, write_tables
from .conftest import IN_MIXTURE, OF_RUN, Trouble, Troubles, assert_same, expected, rows_with_holes, silo_rows
from .simulation import Silo, SimulatedCoordinator, Simulation, World


def rounds_without(outcome, cid):
    return {record.round_no for record in outcome.history if cid in record.missing}


def test_nothing_disturbed(simulation, undisturbed):
    trouble = Trouble(None)
    assert_same(simulation.run(OF_RUN, listen=trouble), *undisturbed)
    assert trouble.kinds == ["waiting", "submitted", "started", *["round"] * OF_RUN.max_iter, "done", "ended"]
    for kit in simulation.kits.values():
        assert how_it_ended(kit.path, simulation.spec.run_id)


# ---------------------------------------------------------------------------------------------------------- answers


def test_a_silo_that_never_answers(simulation, data):
    simulation.processes["b"].faults = {3: ("late", 1e9)}
    began = simulation.clock.time()
    outcome = simulation.run(replace(OF_RUN, max_iter=4), min_clients=2, deadline=20.0)
    assert_same(outcome, *expected(data, replace(OF_RUN, max_iter=4), away={3, 4, "finish"}))
    assert simulation.clock.time() - began > 3 * 20


def test_a_silo_that_is_gone(simulation, data):
    simulation.tends = False
    trouble = Trouble(simulation.processes["b"].kill)
    outcome = simulation.run(OF_RUN, listen=trouble, min_clients=2)
    assert rounds_without(outcome, "b") == {4, 5, 6}  # for good
    assert_same(outcome, *expected(data, away={4, 5, 6, "finish"}))
    assert trouble.kinds.count("away") == 1
    assert trouble.kinds.count("submitted") == 1


def test_a_silo_that_comes_back(simulation, data):
    simulation.processes["a"].faults = {0: ("slow", 1.5)}
    trouble = Trouble(simulation.processes["b"].kill)
    outcome = simulation.run(OF_RUN, listen=trouble, min_clients=2)
    away = rounds_without(outcome, "b")
    assert away
    assert outcome.history[-1].missing == ()
    kinds = trouble.kinds
    assert kinds.index("away") < kinds.index("silo back") < kinds.index("aborted")
    assert kinds.count("submitted") == 2
    assert_same(outcome, *expected(data, away=away))


def test_a_bad_or_late_answer_costs_its_round_and_no_more(simulation, data):
    bad = {2: "nan", 3: "shape", 4: "raise", 6: "kind", 7: "stale", 8: "garbage"}
    simulation.processes["b"].faults = {at: (kind, 0.0) for at, kind in bad.items()} | {10: ("late", 25.0)}
    trouble = Trouble(None)
    settings = replace(OF_RUN, max_iter=14)
    outcome = simulation.run(settings, listen=trouble, min_clients=2, deadline=20.0)
    # it had gone on to round 10 by itself, and must go back to where its last answer counted
    assert rounds_without(outcome, "b") == {*bad, 10}
    assert_same(outcome, *expected(data, settings, away={*bad, 10}))
    # FLARE's client asks before it sends: an answer that is late is not sent
    assert [record.refused for record in outcome.history] == [0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert [event["site"] for event in trouble.events if event["event"] == "refused"] == ["silo-2"] * 5
    assert trouble.kinds.count("submitted") == 1


def test_an_answer_that_comes_after_its_deadline_is_refused(simulation, data):
    """It is sent all the same, and must not count for the question that is open by then."""
    simulation.processes["a"].faults = {3: ("slow", 10.0)}
    simulation.processes["b"].faults = {2: ("late and sent", 25.0)}
    outcome = simulation.run(OF_RUN, min_clients=2, deadline=20.0)
    assert rounds_without(outcome, "b") == {2}
    assert [record.refused for record in outcome.history] == [0, 0, 1, 0, 0, 0]
    assert_same(outcome, *expected(data, away={2}))


# ----------------------------------------------------------------------------------------------------------- losses


def test_a_silo_lost_before_the_first_round(simulation, undisturbed):
    trouble = Trouble(simulation.processes["b"].kill, "started")
    assert_same(simulation.run(OF_RUN, listen=trouble), *undisturbed)
    assert trouble.kinds.count("submitted") == 2
    assert "lost" in trouble.kinds


def test_a_silo_lost_in_a_round(simulation, undisturbed):
    """Its process of the job ends in round 3 before it answers, and in round 5 after it has computed the answer."""
    simulation.processes["b"].faults = {3: ("exit-before", 0), 5: ("exit-after", 0)}
    trouble = Trouble(None)
    assert_same(simulation.run(OF_RUN, listen=trouble), *undisturbed)
    assert trouble.kinds.count("submitted") == 3


@pytest.mark.parametrize(("seconds", "jobs"), [(5.0, 1), (30.0, 2)])
def test_a_connection_that_breaks(simulation, undisturbed, seconds, jobs):
    """A silo that is silent for less than `lost_after` seconds is not even missed."""
    trouble = Trouble(lambda: simulation.processes["b"].cut(seconds))
    assert_same(simulation.run(OF_RUN, listen=trouble), *undisturbed)
    assert trouble.kinds.count("submitted") == jobs
    assert trouble.kinds.count("away") == jobs - 1


VICTIMS = {
    "silo's process": lambda fed: fed.processes["b"].kill(),
    "silo's job process": lambda fed: fed.processes["b"].kill_job(),
    "server's job process": lambda fed: fed.job.kill(),
    "server": lambda fed: fed.coordinator.server.kill(),
}


def test_killed_processes(simulation, data):
    settings = replace(OF_RUN, max_iter=12)
    kill = {name: lambda name=name: VICTIMS[name](simulation) for name in VICTIMS}
    troubles = Troubles({2 * place: (name, kill[name]) for place, name in enumerate(VICTIMS, start=1)})
    outcome = simulation.run(settings, listen=troubles)
    assert list(troubles.done) == list(VICTIMS)
    assert troubles.events.count("submitted") == 1 + len(VICTIMS)
    assert {"lost", "job gone", "server lost"} <= set(troubles.events)
    assert_same(outcome, *expected(data, settings))


@pytest.fixture
def mixed(tmp_path):
    """Silos with missing cells, which end in the mixture."""
    sources = []
    for cid, X in rows_with_holes().items():
        np.save(tmp_path / f"{cid}.npy", X)
        sources.append(ClientSource(cid, str(tmp_path / f"{cid}.npy"), Reading(missing="em")))
    with Simulation(sources, tmp_path) as fed:
        yield fed


@pytest.mark.parametrize("rounds", [(2, 6, 10, 14), (9, 11, 19, 21)], ids=str)
def test_killed_processes_in_the_middle_of_a_mixture(mixed, rounds):
    """Also in the rounds in which starts are compared (10 and 20), before and after."""
    kill = {name: lambda name=name: VICTIMS[name](mixed) for name in VICTIMS}
    troubles = Troubles({at: (name, kill[name]) for at, name in zip(rounds, VICTIMS, strict=True)})
    outcome = mixed.run(IN_MIXTURE, listen=troubles)
    assert list(troubles.done) == list(VICTIMS)
    assert troubles.events.count("submitted") == 1 + len(VICTIMS)
    transport, result = expected(rows_with_holes(), IN_MIXTURE)
    assert (result.server.view, len(result.history)) == ("mixture", 24)
    assert_same(outcome, transport, result)


def test_a_mixture_below_the_quorum_is_resumed(mixed):
    mixed.tends = False
    trouble = Trouble(mixed.processes["b"].kill, round_no=10)
    with pytest.raises(ClientError, match=r"2 of 3 .* 3 needed"):
        mixed.run(IN_MIXTURE, listen=trouble, wait=30.0)
    assert trouble.kinds.count("round") == 10
    mixed.tends = True
    trouble = Trouble(None)
    assert_same(mixed.resume(trouble), *expected(rows_with_holes(), IN_MIXTURE))
    assert trouble.kinds.count("round") == 24 - 10


@pytest.mark.parametrize("away", [(3, 11, 20, 21), (10, 11)], ids=str)
def test_a_silo_that_misses_rounds_of_a_mixture(mixed, away):
    """Its rows do not count in those rounds; when it is back, it goes on with the starts that are left."""
    mixed.processes["b"].faults = dict.fromkeys(away, ("garbage", 0.0))
    outcome = mixed.run(IN_MIXTURE, min_clients=2)
    assert rounds_without(outcome, "b") == set(away)
    assert_same(outcome, *expected(rows_with_holes(), IN_MIXTURE, away=set(away)))


def test_a_server_that_runs_and_does_not_answer_is_started_again(simulation, undisturbed):
    simulation.coordinator.open()
    first = simulation.coordinator.server
    trouble = Trouble(lambda: setattr(first, "deaf", True))
    assert_same(simulation.run(OF_RUN, listen=trouble), *undisturbed)
    assert trouble.kinds.count("server lost") == 1
    assert trouble.kinds.count("submitted") == 2
    assert not first.alive


def test_a_job_that_is_lost_between_the_result_and_the_last_message(simulation, undisturbed):
    simulation.coordinator.leaves_before_the_end = True
    trouble = Trouble(None)
    assert_same(simulation.run(OF_RUN, listen=trouble), *undisturbed)
    assert trouble.kinds.count("submitted") == 2
    assert trouble.kinds.count("over") == 1
    for kit in simulation.kits.values():
        assert how_it_ended(kit.path, simulation.spec.run_id)


def test_silos_that_leave_before_a_job_begins(simulation, undisturbed):
    """A job that FLARE cannot start is given up; the next one begins when the silo is back."""
    trouble = Trouble(simulation.processes["b"].kill, "submitted")
    simulation.clock.after(40.0, lambda: setattr(simulation, "tends", True))
    simulation.tends = False
    assert_same(simulation.run(OF_RUN, listen=trouble), *undisturbed)
    assert trouble.kinds.count("submitted") == 2
    assert trouble.kinds.count("started") == 1


def test_silos_that_leave_while_they_are_told_that_the_run_is_over(simulation, undisturbed):
    """They were there for a moment, and the job that was to tell them cannot begin."""
    simulation.coordinator.leaves_before_the_end = True
    simulation.tends = False
    jobs = []

    def leave(event):
        jobs.append(event["event"] == "submitted")
        if event["event"] == "submitted" and sum(jobs) == 2:
            for silo in simulation.processes.values():
                silo.kill()

    began = simulation.clock.time()
    outcome = simulation.run(OF_RUN, listen=leave, wait=3600.0)
    assert sum(jobs) == 2
    assert simulation.clock.time() - began < 120
    assert_same(outcome, *undisturbed)


def test_silos_that_left_after_the_end_are_not_waited_for_for_long(simulation, undisturbed):
    simulation.coordinator.leaves_before_the_end = True
    simulation.tends = False

    def leave():
        for silo in simulation.processes.values():
            silo.kill()
            silo.seen = 0.0  # long ago

    trouble = Trouble(leave, "job gone")
    began = simulation.clock.time()
    outcome = simulation.run(OF_RUN, listen=trouble, wait=3600.0)
    assert simulation.clock.time() - began < 60
    assert trouble.kinds[-2:] == ["over", "waiting"]
    assert_same(outcome, *undisturbed)


# ------------------------------------------------------------------------------------------- after the last round

CLOSING = {  # whatever the rounds before
    "graph": (replace(OF_RUN, max_iter=1), ("finish", "settle", "number", "end")),
    "mixture": (replace(IN_MIXTURE, max_iter=1), ("conclude", "end")),
}
DEATHS = ("exit-before", "exit-after", "die", "die-after")  # of the job's process, and of all that `join` started
LAST_MOMENTS = [  # each death in the last phases, every other one with a quorum of two, and two deaths in those before
    (view, phase, kind, 2 if phase in phases[-2:] and (place + at + turn) % 2 else None)
    for place, (view, (_, phases)) in enumerate(CLOSING.items())
    for at, phase in enumerate(phases)
    for turn, kind in enumerate(DEATHS)
    if phase in phases[-2:] or turn % 2 == at
]


def unlabelled(simulation):
    run_id = simulation.spec.run_id
    return {cid for cid, kit in simulation.kits.items() if how_it_ended(kit.path, run_id) is None}


@pytest.mark.parametrize(("view", "phase", "kind", "min_clients"), LAST_MOMENTS)
def test_a_silo_that_is_lost_after_the_last_round_has_its_labels_in_the_end(
    simulation, data, view, phase, kind, min_clients
):
    """Its process comes back by itself; the other silos leave when they have their labels, and are not missed."""
    settings, _ = CLOSING[view]
    simulation.processes["b"].faults[phase] = (kind, 0.0)
    began = simulation.clock.time()
    assert_same(simulation.run(settings, min_clients=min_clients), *expected(data, settings))
    assert not unlabelled(simulation)
    assert simulation.clock.time() - began < 120


@pytest.mark.parametrize("view", CLOSING)
@pytest.mark.parametrize("victim", ["job", "server"])
@pytest.mark.parametrize("told", range(3))
def test_a_coordinator_that_is_lost_while_it_tells_the_end(simulation, data, view, victim, told):
    """Its process of the job, or its server, when so many silos have heard that the run is over."""
    settings, _ = CLOSING[view]
    heard = []

    def kill():
        simulation.job.kill() if victim == "job" else simulation.coordinator.server.kill()

    def look(event):
        heard.append(event["event"])
        if event["event"] == "done" and heard.count("done") == 1:
            for place, silo in enumerate(simulation.processes.values()):
                if place >= told:  # it answers much later than the others
                    silo.faults["end"] = ("slow", 5.0)
            simulation.clock.after(2.0, kill)

    assert_same(simulation.run(settings, listen=look), *expected(data, settings))
    assert not unlabelled(simulation)


@pytest.mark.parametrize("view", CLOSING)
def test_a_silo_that_is_lost_several_times_while_it_is_told_the_end(simulation, data, view):
    """It is told again, since it may be back; not so a silo that answers and cannot confirm."""
    settings, _ = CLOSING[view]
    silo, left = simulation.processes["b"], ["exit-before", "die", "exit-after"]

    def spoil(event):
        if event["event"] == "done" and left:
            silo.faults["end"] = (left.pop(0), 0.0)

    assert_same(simulation.run(settings, listen=spoil), *expected(data, settings))
    assert left == [] and not unlabelled(simulation)


def test_a_silo_that_cannot_confirm_is_asked_once(simulation, data):
    def empty(event):
        if event["event"] == "done":
            for file in (simulation.kits["b"].path / "fmtc").glob("*/result.safetensors"):
                file.unlink()

    trouble = Trouble(None)
    began = simulation.clock.time()
    with pytest.raises(FileError, match="result"):  # which is read from all kits of this machine
        simulation.run(OF_RUN, listen=lambda event: (empty(event), trouble(event)))
    assert trouble.kinds.count("over") == 1
    assert simulation.clock.time() - began < 60


@pytest.mark.parametrize("view", CLOSING)
def test_a_silo_that_stays_away_is_served_when_it_is_back(simulation, data, view):
    """The others have their labels and are gone; it comes back long after the coordinator has given up."""
    settings, phases = CLOSING[view]
    simulation.tends = False
    simulation.processes["b"].faults[phases[-2]] = ("die", 0.0)
    first = simulation.run(settings, wait=60.0)
    assert first.missing == ("b",)
    assert unlabelled(simulation) == {"b"}
    for cid in "ac":
        simulation.processes[cid].kill()
    simulation.start("b")
    trouble = Trouble(None)
    assert_same(simulation.resume(trouble), *expected(data, settings))
    assert trouble.kinds[0] == "over" and "round" not in trouble.kinds
    assert not unlabelled(simulation)


# ----------------------------------------------------------------------------------------------------------- quorum


def test_below_the_quorum(simulation):
    simulation.tends = False
    simulation.processes["b"].kill()
    began = simulation.clock.time()
    trouble = Trouble(None)
    with pytest.raises(ClientError, match=r"2 of 3 .* 3 needed"):
        simulation.run(OF_RUN, listen=trouble, wait=600.0)
    assert 600 < simulation.clock.time() - began < 605
    assert trouble.kinds == ["waiting", "waiting"]  # for all, and then for one
    assert trouble.events[-1]["missing"] == ["2"]


def test_a_silo_that_is_late_to_join_is_waited_for(simulation, undisturbed):
    """Although two would do, the first job waits for the third as long as it is told to."""
    simulation.processes["b"].kill()
    simulation.tends = False
    simulation.clock.after(500.0, lambda: simulation.start("b"))
    trouble = Trouble(None)
    assert_same(simulation.run(OF_RUN, listen=trouble, min_clients=2, wait=600.0), *undisturbed)
    assert trouble.kinds.count("submitted") == 1


def test_a_run_begins_with_enough_silos_when_it_has_waited(simulation, data):
    simulation.processes["b"].kill()
    simulation.tends = False
    outcome = simulation.run(OF_RUN, min_clients=2, wait=600.0)
    assert outcome.missing == ("b",)
    assert set(outcome.kept) == {"a", "c"}


def test_a_run_that_has_begun_goes_on_with_enough_silos_soon(simulation):
    """A silo that is gone is waited for as long as it takes to count as lost, and not as long as before the run."""
    simulation.tends = False
    lost = []

    def lose():
        lost.append(simulation.clock.time())
        simulation.processes["b"].kill()
        simulation.processes["b"].seen = 0.0  # long ago
        simulation.job.kill()

    outcome = simulation.run(OF_RUN, listen=Trouble(lose), min_clients=2, wait=600.0)
    assert simulation.clock.time() - lost[0] < 60
    assert rounds_without(outcome, "b") == {4, 5, 6}


def test_a_run_below_the_quorum_is_resumed(simulation, undisturbed):
    simulation.tends = False
    trouble = Trouble(simulation.processes["b"].kill)
    with pytest.raises(ClientError, match=r"2 of 3 .* 3 needed"):
        simulation.run(OF_RUN, listen=trouble, wait=30.0)
    assert trouble.kinds.count("round") == 3
    simulation.tends = True
    trouble = Trouble(None)
    assert_same(simulation.resume(trouble), *undisturbed)
    assert trouble.kinds.count("round") == OF_RUN.max_iter - 3


def test_an_error_of_a_silo_stops_the_run_at_once(simulation, undisturbed):
    simulation.processes["b"].faults = {5: ("raise", 0)}
    trouble = Trouble(None)
    with pytest.raises(ClientError, match=r"'b' failed in round 5: .*OSError.*the disk of this test is full"):
        simulation.run(OF_RUN, listen=trouble)
    assert trouble.kinds.count("submitted") == 1  # at once: asking again would not help
    assert not any("disk of this test" in str(event) for event in trouble.events)  # the sentence stays in the silo
    assert not any("disk of this test" in said for said in simulation.processes["b"].said)  # nor is it in FLARE's logs
    (trouble,) = told(simulation.kits["b"].path, "error")
    assert (trouble["phase"], trouble["round"]) == ("round", 5)
    assert "disk of this test" in trouble["why"]
    assert_same(simulation.resume(), *undisturbed)


def test_jobs_that_complete_no_round(simulation):
    trouble = Trouble(None)

    def kill(event):
        trouble(event)
        if event["event"] == "started":
            simulation.processes["b"].kill_job()

    with pytest.raises(ClientError, match=r"^3 "):
        simulation.run(OF_RUN, listen=kill)
    assert trouble.kinds.count("submitted") == 3


def test_data_that_do_not_go_together_end_the_run(simulation, data, tmp_path):
    np.save(tmp_path / "b.npy", data["b"][:, 1:])
    trouble = Trouble(None)
    with pytest.raises(InputError):
        simulation.run(OF_RUN, listen=trouble)
    assert trouble.kinds == ["waiting", "submitted", "started", "refused data"]


def test_our_own_error_ends_the_run(simulation, monkeypatch):
    monkeypatch.setattr(conductor, "run", lambda *_, **__: 1 / 0)
    trouble = Trouble(None)
    with pytest.raises(FederationError, match="ZeroDivisionError"):
        simulation.run(OF_RUN, listen=trouble)
    assert trouble.kinds == ["waiting", "submitted", "started", "failed"]


# --------------------------------------------------------------------------------------------- commands of people


@pytest.fixture
def joined(study, monkeypatch):
    """Silos that have joined with the kits of `study`, without processes; coordinators that are given commands."""
    world = World(ManualClock(now=time.time(), limit=time.time() + 20_000))
    monkeypatch.setattr(leading, "Coordinator", lambda kit: SimulatedCoordinator(kit, world))
    idle = partial(Membership, clock=world.clock, start=lambda kit, party: Silo(world, kit))
    monkeypatch.setattr(membership, "Membership", idle)

    def join(name, **options):
        kit = Kit.read(study.folder / "kits" / name, "silo")
        ClientSource(name, str(study.folder / f"{name}.csv"), Reading(id_column="patient", **options)).write(kit.path)
        return world.add(kit)

    join.world = world
    return join


def test_the_command_below_the_quorum_and_with_fewer(study, joined):
    for name in ("north", "south"):
        joined(name)
    done = in_process(*study.coordinator, "--wait", "600")
    assert done.exit_code == 5, done.output
    assert "west" in done.stderr
    done = in_process(*study.coordinator, "--resume", "--wait", "600", "--min-silos", "2")
    assert done.exit_code == 0, done.output
    assert "'west'" in done.stderr
    assert read_json(study.folder / "run" / "report.json")["missing"] == ["west"]
    for name in ("north", "south"):
        assert how_it_ended(study.folder / "kits" / name)


def test_texts_and_a_preflight_over_the_federation(study, joined):
    write_tables(study.folder, silo_rows(), texts=True)
    (study.folder / "south.csv").write_text((study.folder / "south.csv").read_text().replace("text", "Text", 1))
    columns = {name: "Text" if name == "south" else "text" for name in NAMES}
    for name in NAMES:
        joined(name, text_column=columns[name])
    done = in_process("check", "--kit", study.folder / "kits" / "coordinator", "-k", "4", "--json")
    assert done.exit_code == 0, done.output
    found = {line["silo"]: [f["code"] for f in line["findings"]] for line in json.loads(done.stdout)["silos"]}
    assert found == {"north": [], "south": ["spelling"], "west": []}
    done = in_process(*study.coordinator, "--scale", "tfidf")
    assert done.exit_code == 0, done.output
    for name in NAMES:  # the result waits in the kit
        table, mine = study.folder / f"{name}.csv", study.folder / f"of-{name}"
        done = in_process("join", "--kit", study.folder / "kits" / name, "--data", table, "--id-column", "patient",
                          "--text-column", columns[name], "--out", mine, "--accept-roster", study.code)  # fmt: skip
        assert done.exit_code == 0, done.output
        labels = in_process("predict", mine, table, "--id-column", "patient")
        assert labels.stdout.encode() == (mine / "labels" / f"{name}.csv").read_bytes()


def test_the_command_tells_who_has_no_labels_yet_and_resume_serves_them(study, joined, tmp_path):
    """One silo dies while all conclude; the others leave with their labels, and are not needed any more."""
    folder, checkpoint = study.folder / "run", study.folder / ".run.checkpoint"
    silos = {name: joined(name) for name in NAMES}
    silos["west"].faults["number"] = ("die", 0.0)
    done = in_process(*study.coordinator, "--view", "graph", "--wait", "60")
    assert done.exit_code == 5, done.output
    assert re.search("'west' has not confirmed .*--resume", done.stderr.splitlines()[-1])
    assert read_json(folder / "report.json")["missing"] == ["west"]
    kept = sorted(path.name for path in checkpoint.iterdir())
    assert kept == ["events.jsonl", "late.safetensors", "order.json", "result.safetensors"]

    for silo in silos.values():
        silo.kill()
    joined("west")
    done = in_process(*study.coordinator, "--view", "graph", "--resume")
    assert done.exit_code == 0, done.output
    assert read_json(folder / "report.json")["missing"] == []
    assert not checkpoint.exists()
    ours = tmp_path / "of-west"
    done = in_process("join", "--kit", study.folder / "kits/west", "--data", study.files[2], "--id-column", "patient",
                      "--out", ours, "--accept-roster", study.code)  # fmt: skip
    assert done.exit_code == 0, done.output
    fit = in_process(
        "fit", *study.files, "--id-column", "patient", *SETTINGS, "--view", "graph", "--out", tmp_path / "fit"
    )
    assert fit.exit_code == 0, fit.output
    assert (ours / "labels/west.csv").read_bytes() == (tmp_path / "fit/labels/west.csv").read_bytes()


def test_a_coordinator_that_is_killed_before_it_tidies_up(study, joined, monkeypatch):
    """The run is complete: --resume says so, and removes what was left; it needs no silo and no server."""
    from fmtc.cli import leading

    run, checkpoint = study.folder / "run", study.folder / ".run.checkpoint"
    for name in NAMES:
        joined(name)
    with monkeypatch.context() as patch:
        patch.setattr(leading, "tidy", lambda folder, keep: (_ for _ in ()).throw(KeyboardInterrupt))
        assert in_process(*study.coordinator, "--view", "graph").exit_code == 130
    assert run.exists() and checkpoint.exists()
    half, other = study.folder / ".run-k3_9abcd", study.folder / ".run-2-k3_9abcd"
    half.mkdir(), other.mkdir()
    before = (run / "report.json").read_bytes()
    refused = in_process(*study.coordinator, "--view", "graph")
    assert refused.exit_code == 2, refused.output
    monkeypatch.setattr(SimulatedCoordinator, "open", lambda *_: pytest.fail("no server is needed"))
    for _ in range(2):  # also where nothing is left to do
        done = in_process(*study.coordinator, "--view", "graph", "--resume")
        assert done.exit_code == 0, done.output
        assert "is complete" in done.stderr
        assert not checkpoint.exists()
        assert not half.exists()
    assert other.exists()  # of a run that goes to run-2
    assert (run / "report.json").read_bytes() == before


def test_resume_does_not_replace_another_run(study, joined):
    for name in NAMES:
        joined(name)
    assert in_process(*study.coordinator, "--view", "graph").exit_code == 0
    checkpoint = study.folder / ".run.checkpoint"
    checkpoint.mkdir()
    (checkpoint / "order.json").write_text('{"run": "another"}')
    done = in_process(*study.coordinator, "--view", "graph", "--resume")
    assert (done.exit_code, "another run" in done.stderr) == (2, True), done.output
