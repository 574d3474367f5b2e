"""Real processes, killed in the middle of a run, and at its end. test_faults.py has all faults, in a simulation."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
from tests.runtime.kits import how_it_ended

from fmtc.privacy.ledger import LEDGER, verify

from .commands import NAMES, SETTINGS, finish, in_process, start, wait_until
from .conftest import (
    IN_MIXTURE,
    OF_RUN,
    Troubles,
    assert_same,
    expected,
    family,
    none_left,
    processes_of,
    silo_rows,
    slay,
)

pytestmark = pytest.mark.federation

VICTIMS = {
    "silo's process": lambda fed: slay(family(fed.processes["b"])[:1]),
    "silo's job process": lambda fed: (fed.kits["b"].path / "exit").touch(),  # with an answer ready and not sent
    "server's job process": lambda fed: slay(family(fed.coordinator.server)[1:]),
    "server": lambda fed: slay(family(fed.coordinator.server)),
}


@pytest.fixture(scope="module", autouse=True)
def mortal(lean):
    """Processes of jobs that end when they are told to, and take their time to hear that the run is over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FMTC_TEST_FAULT", "exit@0,slow@end:1.5")
        yield


@pytest.fixture(scope="module")
def data():
    """Two silos: a process less to start in every job."""
    return {cid: X for cid, X in silo_rows().items() if cid != "c"}


def kill(federation, *victims):
    """One victim in each job, after some rounds."""
    acts = {name: lambda name=name: VICTIMS[name](federation) for name in victims}
    return Troubles({2 * place: (name, acts[name]) for place, name in enumerate(victims, start=1)})


def place(line):
    return tuple(line[name] for name in ("phase", "round", "turn", "asked"))


def test_where_all_silos_are_needed_the_run_resumes(federation, data):
    victims = ("silo's job process", "server")
    troubles, settings = kill(federation, *victims), replace(OF_RUN, max_iter=24)
    outcome = federation.run(settings, listen=troubles)
    assert tuple(troubles.done) == victims
    assert {"job gone", "server lost"} <= set(troubles.events)  # FLARE ends a job whose silo it misses
    assert_same(outcome, *expected(data, settings))
    lines = outcome.ledgers["b"]
    assert verify(federation.kits["b"].path / LEDGER) == []
    given = {place(line): line["fields"] for line in lines if line["kind"] == "release" and line["fields"]}
    replayed = {place(line): line["fields"] for line in lines if line["kind"] == "replay" and line["fields"]}
    assert "round" in {phase for phase, *_ in replayed}  # the answer that was ready when the process ended
    for where, fields in replayed.items():
        assert fields == given[where]  # with the digest of each field


def test_where_one_silo_is_enough_the_run_goes_on_until_the_other_is_back(federation, data):
    victims = ("silo's process", "server's job process")
    troubles, settings = kill(federation, *victims), replace(OF_RUN, max_iter=60)  # rounds pass quickly
    outcome = federation.run(settings, listen=troubles, min_clients=1)
    assert tuple(troubles.done) == victims
    assert {"away", "silo back", "job gone"} <= set(troubles.events)
    away = {record.round_no for record in outcome.history if "b" in record.missing}
    assert away
    assert_same(outcome, *expected(data, settings, away=away, min_clients=1))


@pytest.mark.parametrize("settings", [pytest.param(OF_RUN, marks=pytest.mark.long), IN_MIXTURE], ids=["graph", "auto"])
def test_all_have_their_labels_whoever_is_killed_when_the_run_is_over(federation, data, settings):
    """One victim in each job, while silos are told: all of them are told again."""
    left, jobs = ["server's job process", "silo's process", "silo's job process", "server"], []

    def kill(event):
        jobs.append(event["event"])
        if event["event"] == "done" and left:
            victim = left.pop(0)
            if victim == "silo's job process":
                slay(family(federation.processes["b"])[1:])
            else:
                VICTIMS[victim](federation)

    outcome = federation.run(replace(settings, max_iter=4), listen=kill)
    assert left == []
    assert_same(outcome, *expected(data, replace(settings, max_iter=4)))
    for kit in federation.kits.values():
        assert how_it_ended(kit.path, federation.spec.run_id)


@pytest.mark.long
@pytest.mark.parametrize("draw", range(12))
def test_commands_that_are_killed_after_the_last_round(study, misbehave, tmp_path, draw):
    """A race: whoever is killed, whenever, all silos have the labels of `fmtc fit` in the end."""
    misbehave("slow@end:0.3")
    rng = np.random.default_rng(draw)
    flags = [("--view", "mixture"), ("--view", "graph"), ("--view", "mixture", "--privacy", "sums")][draw % 3]
    fit = in_process("fit", *study.files, "--id-column", "patient", *SETTINGS, *flags, "--out", tmp_path / "fit")
    assert fit.exit_code == 0, fit.output
    command = (*study.coordinator, *flags, "--wait", "20")
    silos = {name: study(name) for name in NAMES}
    coordinator, events = start(*command), tmp_path / ".run.checkpoint/events.jsonl"
    study.started.append(coordinator)
    last = rng.choice(["conclude" if "mixture" in flags else "number", '"done"'])
    file = events if last == '"done"' else tmp_path / "kits/west" / LEDGER
    wait_until(lambda: file.exists() and last in file.read_text())
    time.sleep(rng.uniform(0, 0.5))
    victim = rng.choice(["west", "coordinator", "job"])
    if victim == "job":
        started = psutil.Process(coordinator.pid).children(recursive=True)
        slay([one for one in started if "runner_process" in str(one.cmdline())])
    else:
        (silos["west"] if victim == "west" else coordinator).kill()
    if victim == "west" and not (tmp_path / "of-west").exists():
        silos["west"] = study("west")
    code, _, said = finish(coordinator)
    if victim == "coordinator" or code == 5:
        coordinator = start(*command, "--resume")
        study.started.append(coordinator)
        code, _, said = finish(coordinator)
    ended = {name: finish(process, 60) for name, process in silos.items()}
    assert {name: end[0] for name, end in ended.items()} == dict.fromkeys(NAMES, 0), (victim, ended, said)
    assert code in (0, 5), said  # 5: a silo that was killed when it had its labels
    for name in NAMES:
        ours, theirs = (folder / "labels" / f"{name}.csv" for folder in (tmp_path / f"of-{name}", tmp_path / "fit"))
        assert ours.read_bytes() == theirs.read_bytes()


# ------------------------------------------------------------------------------------- the command of a person, killed


def kill_as_a_job_begins(study, victim, delay):
    """Kill coordinator and silo, so many seconds after one of them has a process of a job; nothing of them stays."""
    commands = {"coordinator": start(*study.coordinator, "--force"), "north": study("north")}

    def begun():  # FLARE's own process, and that of the job
        return len(psutil.Process(commands[victim].pid).children(recursive=True)) > 1

    wait_until(begun, every=0.01)
    time.sleep(delay)
    for process in commands.values():
        process.kill()
        process.communicate()
    gone = {name: none_left(study.folder / "kits" / name) for name in commands}
    slay(processes_of(study.folder / "kits/coordinator") + processes_of(study.folder / "kits/north"))
    assert all(gone.values()), (gone, victim, delay)


@pytest.mark.parametrize("study", [("north", "south")], indirect=True)
def test_a_command_that_is_killed_takes_its_processes_along(study, misbehave):
    misbehave("slow@0:9")
    study("south")
    kill_as_a_job_begins(study, "coordinator", 0.1)
    kill_as_a_job_begins(study, "north", 0.3)


@pytest.mark.long
@pytest.mark.parametrize("study", [("north", "south")], indirect=True)
def test_a_command_that_is_killed_at_any_moment_takes_its_processes_along(study, misbehave):
    misbehave("slow@0:9")
    study("south")
    for delay in (0.0, 0.1, 0.2, 0.4, 0.8, 1.6):
        for victim in ("coordinator", "north"):
            kill_as_a_job_begins(study, victim, delay)
