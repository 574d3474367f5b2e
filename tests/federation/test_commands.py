"""The commands of a federation, as people give them: one machine, refused commands, interrupts, a resumed run."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from functools import partial

import numpy as np
import psutil
import pytest
from tests.clock import ManualClock
from tests.views import graph_view

from fmtc.artifacts.files import write_json
from fmtc.cli import leading
from fmtc.runtime.conductor import write_record
from fmtc.runtime.driver import run
from fmtc.runtime.flare import serve, supervise
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.spec import RunSpec

from .commands import (
    NAMES,
    SETTINGS,
    add_holes_and_categories,
    finish,
    history,
    in_process,
    set_up,
    start,
    wait_until,
    write_tables,
)
from .conftest import none_left, processes_of, silo_rows


def assert_same_run(ours, theirs):
    """Two folders of `fmtc fit` hold the same labels, models, columns and explanation, to the last byte."""
    for kind in ("labels", "model"):
        names = sorted(path.name for path in (theirs / kind).iterdir())
        assert sorted(path.name for path in (ours / kind).iterdir()) == names
        for name in names:
            if name != "model.json":
                assert (ours / kind / name).read_bytes() == (theirs / kind / name).read_bytes(), name
    assert history(ours) == history(theirs)
    for name in ("schema.toml", "explanation.json"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    reports = [json.loads((run / "report.json").read_text()) for run in (ours, theirs)]
    for name in ("view", "view_reason", "n_iter", "stopped_because", "silos", "projection", "notes"):
        assert reports[0][name] == reports[1][name], name


# ---------------------------------------------------------------------------------------------- the short form


def wide_rows():
    """So many columns that the view is found by a comparison, and is the graph view; two silos, for few processes."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, 60))
    return {
        cid: centers[rng.integers(4, size=n)] + rng.normal(size=(n, 60)) for cid, n in zip("ab", (60, 90), strict=True)
    }


LOCAL = {  # rows, flags, and what they come to: view, rounds, a line
    "auto, mixture": (silo_rows, (), ("mixture", 20, "mixture round 20: log-likelihood")),
    "auto, graph": (wide_rows, (), ("graph", 5, "graph round 5: residuals")),
    "graph": (silo_rows, ("--view", "graph", "--scale", "global"), ("graph", 5, "graph round 5: residuals")),
    "mixture": (silo_rows, ("--view", "mixture", "--scale", "silo", "--append"), ("mixture", 20, "mixture round 20")),
}


BY_PROCESSES = ("auto, graph", "processes")  # and "auto, mixture" in test_mistakes.py


@pytest.mark.parametrize(
    ("case", "by"),
    [
        *((case, "simulated") for case in LOCAL),
        pytest.param(*BY_PROCESSES, marks=[pytest.mark.federation, pytest.mark.long]),
    ],
)
def test_a_federation_on_this_machine_comes_to_what_fit_does(tmp_path, request, case, by):
    """Also with missing cells and categories."""
    if by == "simulated":
        request.getfixturevalue("simulated")
    rows, flags, (view, rounds, line) = LOCAL[case]
    files = write_tables(tmp_path, rows())
    add_holes_and_categories(files)
    options = (*files, "--id-column", "patient", *SETTINGS, *flags)
    done = in_process("fit", "--processes", *options, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.output
    assert in_process("fit", *options, "--out", tmp_path / "fit").exit_code == 0
    assert_same_run(tmp_path / "run", tmp_path / "fit")
    said = json.loads(done.stdout)
    assert (said["view"], said["n_iter"], said["missing"], len(said["silos"])) == (view, rounds, [], len(files))
    assert line in done.stderr
    assert any(note.startswith("missing cells") for note in said["notes"])
    assert none_left(tmp_path)


@pytest.fixture
def hurried(monkeypatch):
    """A coordinator that does not wait for its port: it waits by a clock that jumps."""
    monkeypatch.setattr(leading, "Coordinator", partial(supervise.Coordinator, clock=ManualClock()))


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    """A folder with tables and the kits of a federation whose port somebody else holds."""
    folder = tmp_path_factory.mktemp("refused")
    write_tables(folder, silo_rows())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (folder / "plan.toml").write_text(f'name="s"\nhost="localhost"\nport={port}\nsilos=["north","south"]\n')
        set_up(folder / "plan.toml", folder / "kits", ("north", "south"))
        (folder / ".half.checkpoint").mkdir()
        yield folder


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("fit", "--processes", "FILES", "-k", 4, "--out", "o", "--silo-column", "x"), 3, "--silo-column"),
        (("fit", "--processes", "FILES", "-k", 4, "--out", "o", "--min-silos", 4), 2, "--min-silos"),
        (("fit", "--processes", "FILES", "-k", 4, "--out", "."), 2, "--force"),
        (("fit", "--processes", "nowhere.csv", "-k", 4, "--out", "o"), 3, "nowhere.csv"),
        (("join", "--kit", "nowhere", "--data", "x.csv", "--out", "o"), 3, "nowhere"),
        (("join", "--kit", "kits/coordinator", "--data", "FILES", "--out", "o"), 3, "coordinator"),
        (("join", "--kit", "kits/north", "--data", "nowhere.csv", "--out", "o"), 3, "nowhere.csv"),
        (
            ("join", "--kit", "kits/north", "--data", "FILES", "--out", "o", "--silo-column", "x"),
            2,
            "--silo-column",
        ),
        (("coordinate", "--kit", "kits/north", "-k", 4, "--out", "o"), 3, "silo"),
        (("coordinate", "--kit", "kits/coordinator", "-k", 4, "--out", "o", "--min-silos", 9), 2, "--min-silos"),
        (("coordinate", "--kit", "kits/coordinator", "-k", 4, "--out", "half"), 2, "--resume"),
        (("coordinate", "--kit", "kits/coordinator", "-k", 4, "--out", "o"), 1, "port "),
        (("check",), 2, "--kit"),
    ],
)
def test_commands_that_are_refused(kits, tmp_path, monkeypatch, words, code, why):
    shutil.copytree(kits, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    files = [f"{name}.csv" for name in NAMES]
    before = sorted(tmp_path.iterdir())
    given = []
    for word in words:
        given += (files if words[0] == "fit" else files[:1]) if word == "FILES" else [word]
    done = in_process(*given)
    assert done.exit_code == code, done.output
    assert why in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    left = {path.name for path in tmp_path.iterdir()} - {path.name for path in before}
    assert left <= {".o.checkpoint"}


def test_a_process_whose_parent_went_first_goes_too():
    """It was killed before the new process could look who had started it."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    command = [sys.executable, "-P", serve.__file__, str(gone.pid), "-", "http.server", "--bind", "127.0.0.1", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "Error" in ended.stderr) == (1, False)


# ---------------------------------------------------------------------------------------------- all of it


@pytest.mark.federation
def test_interrupts_leave_nothing(study, tmp_path):
    north = study("north")
    log = study.folder / "kits" / "north" / "console.log"
    wait_until(log.exists)
    north.send_signal(signal.SIGINT)
    assert finish(north, 20)[0] == 130
    assert none_left(study.folder / "kits")
    files = study.files[:2]
    local = start("fit", "--processes", *files, "--id-column", "patient", *SETTINGS, "--out", tmp_path / "local")
    wait_until(lambda: len(psutil.Process(local.pid).children(recursive=True)) > 3)  # server, silos, and those of a job
    children = psutil.Process(local.pid).children(recursive=True)
    local.send_signal(signal.SIGINT)
    code, _, said = finish(local, 30)
    assert (code, "interrupted" in said) == (130, True)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not (tmp_path / "local").exists()


@pytest.mark.federation
def test_a_killed_join_takes_its_processes_along(study):
    north = study("north")
    wait_until(lambda: len(processes_of(study.folder / "kits" / "north")) >= 2)
    north.kill()
    north.communicate()
    assert none_left(study.folder / "kits", 10.0)


@pytest.mark.usefixtures("hurried")
def test_a_run_that_is_over_is_written_down_without_silos_and_without_a_server(tmp_path, monkeypatch, full_disk):
    """The coordinator was killed before it wrote its folder; by now another program has the port.

    Whether the silos have their labels is not known: what they may still need is kept.
    """
    monkeypatch.chdir(tmp_path)
    model = graph_view(4, max_iter=3, tol=0.0, n_neighbors=15, random_state=3)
    folder = tmp_path / ".run.checkpoint"
    folder.mkdir()
    write_json(folder / "order.json", {"run": "r"})
    result = run(LocalTransport(silo_rows(), model._settings()), model._settings())
    write_record(RunSpec("r", model._settings(), folder), result)
    command = (
        "coordinate", "--kit", "kits/coordinator", "-k", 4, "--tol", 0, "--set", "n_neighbors=15", "--random-state", 3,
        "--view", "graph", "--scale", "none", "--set", "lift=false", "--out", "run", "--resume",
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "plan.toml").write_text(f'name="s"\nhost="localhost"\nport={port}\nsilos=["a","b","c"]\n')
        assert in_process("federation", "init", "plan.toml").exit_code == 0
        other = in_process(*command, "--max-iter", 9)
        assert other.exit_code == 3, other.output
        assert folder.exists()
        with full_disk("fmtc.cli.leading.write_consensus"):
            full = in_process(*command, "--max-iter", 3)
        assert (full.exit_code, (tmp_path / "run").exists()) == (2, False), full.output
        assert re.search("run cannot be written: .* The result is safe in .*run.checkpoint.*--resume", full.stderr)
        done = in_process(*command, "--max-iter", 3)
    assert done.exit_code == 5, done.output
    assert "'a', 'b', 'c' have not confirmed having labels" in done.stderr
    assert f"port {port}" in done.stderr  # a note: a silo may not know that the run is over
    assert len(history(tmp_path / "run")) == 3
    assert re.search(
        r"^graph view\nended, as the graph view usually does: max_iter=3 rounds", done.stderr, re.MULTILINE
    )
    assert sorted(path.name for path in folder.iterdir()) == ["order.json", "result.safetensors"]
