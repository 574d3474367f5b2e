"""Scripts in bench/benchmarks: all of them load, and what they patch and read is there, on rows of a second or two."""

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from fmtc import Privacy
from fmtc_bench.datasets import load

FOLDER = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # as scripts do
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))


@pytest.fixture
def script(monkeypatch):
    """Loads a script as if it were run; its neighbours and what it puts on the path are gone afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    yield import_module
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def digits(rows=60):
    """Three silos of digits."""
    data = load("digits")
    return data.take(np.concatenate([np.flatnonzero(data.clients == cid)[:rows] for cid in data.client_ids[:3]]))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_loads(script, name):
    assert callable(script(name).main)


def test_the_results_that_make_the_page_are_there(script, monkeypatch, tmp_path):
    """The table of bench/results is made of files under results/, by scripts that are there."""
    performance = script("performance")
    for name in ("draw_growth", "draw_flames"):
        monkeypatch.setattr(performance, name, lambda *args: None)
    monkeypatch.setattr(performance, "OUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["performance.py"])
    performance.main()
    for page in ("performance.md", "performance_gpu.md"):
        assert (tmp_path / page).read_text() == (FOLDER.parent / "results" / page).read_text()
    assert set(json.loads((tmp_path / "performance.json").read_text())) <= set(SCRIPTS)


@pytest.mark.parametrize("view", ["graph", "mixture", "auto"])
def test_containment_is_that_of_the_view_that_is_attacked(script, view):
    model = script("attacks").built(3, view, 0, contain=False, own=False)
    settings = model._settings()
    assert (settings.view, settings.contain, settings.own) == (view, False, False)


def test_an_attack_is_measured(script, monkeypatch):
    attacks = script("attacks")
    data = digits()
    hostile, rows = (data.client_ids[-1],), {}
    for contain in (False, True):
        labels, note = attacks.attacked(data, "graph", 0, "scaled", "rounds", hostile, contain)
        rows[contain] = attacks.honest_score(data, labels, hostile), note.split("/")[0] != "0"
    assert rows[True][0] > rows[False][0] + 20 and (rows[True][1], rows[False][1]) == (True, False)


def test_every_stage_of_a_fit_is_timed(script):
    scale = script("scale")
    with scale.stopwatch("cpu") as (spent, times):
        script("_data").graph_view(3, max_iter=4, tol=0, final="kmeans").fit(scale.silos(2, 100, 5))
    assert set(spent) == set(times) and len(times) == 9
    assert times["neighbours"] == times["graph, with neighbours"] == 2 and times["objective"] == 2 * 4
    assert spent["neighbours"] < spent["graph, with neighbours"]


def test_the_choices_are_patched_where_they_are_made(script, monkeypatch):
    choices, data = script("choices"), digits()
    split = script("_data").Split(data.X, data.y, data.clients, data.X, data.y, data.clients, data.n_clusters)
    monkeypatch.setattr(choices, "load", lambda name, seed: split)
    monkeypatch.setattr(choices, "SPLITS", 1)
    strong = {"beta": 0.4, "max_iter": 8, "tol": 0}
    ours = choices.measure("digits", **strong)
    with choices.exact_rotation():
        exact = choices.measure("digits", **strong)
    assert exact["primal residual"] > 2 * ours["primal residual"]
    assert 50 < ours["ACC"] <= 100 and ours["ACC"] == ours["ACC, held out"]


def test_private_runs_are_scored_step_by_step(script):
    private, rng = script("private"), np.random.default_rng(0)
    truth = {f"silo{t}": np.arange(60) % 3 for t in range(4)}
    rows = {cid: 6 * np.eye(3)[y] + rng.normal(size=(60, 3)) for cid, y in truth.items()}
    exact = Privacy(epsilon=float("inf"), bounds=(-5, 11))
    found = private.private_run(rows, truth, 3, exact, 0, "anchors")
    assert min(found["public"], found["spread"], found["choice"]) > 90
    apart = private.private_run(rows | {"silo0": rng.permutation(rows["silo0"])}, truth, 3, exact, 0, "anchors")
    assert apart["public"] < found["public"] - 15  # one of three silos that are scored


def test_rules_stand_before_every_release(script):
    rules, data = script("rules"), digits(30)
    data = replace(data, schema=None)
    free, strict = (rules.fitted(data, rules.RULES[name], 0) for name in ("none", "omit below 5"))
    assert 0 < rules.score(strict, data) <= rules.score(free, data) <= 100
    assert not np.array_equal(free.labels_, strict.labels_)


def test_sums_are_those_of_the_clear(script):
    sums = script("sums")
    found = sums.masks(d=8, m=3, k=2)
    assert found["bytes"] > found["bytes_clear"] == 8 * 8 * 2 and found["ms_mask"] > 0
    rows = {cid: part.X for cid, part in digits().by_client().items()}
    ours, clear = (sums.fitted(rows, 10, privacy)[0] for privacy in ("sums", None))
    assert set(ours.before) == set(clear.before) == set(rows) and ours.bytes_up > clear.bytes_up


def test_steps_of_a_server_and_their_memory(script):
    server = script("server")
    found = server.seconds(20, 3, 5)
    assert set(found) == {"5 clients, first step: seconds", "5 clients, later step: seconds"}
    assert all(value > 0 for value in found.values())
    for step in server.STEPS:  # how much, only a process says that has held nothing larger before
        assert isinstance(server.grown(step, 20, 3, 5), float)


def test_the_sources_of_subprocesses_run(script, monkeypatch):
    """Code that scripts give to fresh processes."""
    growth, speed = script("growth"), script("speed")
    assert growth.one(300, 3, traced=True)["peak"] > 0
    assert speed.peak_memory(4000) > 0
