"""Stored results that are cut, overwritten or forged: a documented exit code and one sentence."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.artifacts.test_damaged_files import replaced, try_damage

from fmtc.artifacts.files import write_json
from fmtc_bench.cli.program import main_group
from fmtc_bench.compare.evidence import compact
from fmtc_bench.compare.grid import Cell, Store, _keep
from fmtc_bench.compare.protocol import dataset, evaluate


def bench(*words: Any) -> Any:
    return CliRunner().invoke(main_group, [str(word) for word in words])


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder of cells, and one of what is kept of them."""
    home = tmp_path_factory.mktemp("home")
    store = Store(home / "bench" / "cells.jsonl")
    train, test = dataset("synthetic-subspace?rows=30").split(seed=0)
    for method in ("kmeans", "one-cluster"):
        row = evaluate(train, test, method, {}, 0) | {"status": "ok", "error": None, "peak_memory": 0}
        _keep(store, Cell("synthetic-subspace?rows=30", method), row, 1.0, lambda cell, row: None)
    (home / "kept").mkdir()
    (home / "kept" / "rows.csv").write_text(compact(store.current()))
    about = {"command": "", "machines": ["m"], "code": ["c"], "versions": [{"fmtc": "1", "extras": {"plot": None}}]}
    write_json(home / "kept" / "about.json", about)
    return home


@pytest.mark.parametrize("file", ["bench/cells.jsonl", "kept/rows.csv", "kept/about.json"])
def test_any_damage_ends_in_a_sentence(file, home, monkeypatch):
    monkeypatch.chdir(home)
    try_damage(home, Path(file), [("report", Path(file).parent, "--out", "page.html", "--force")], bench)


def test_a_stored_cell_that_lacks_something(home, tmp_path):
    row = json.loads((home / "bench" / "cells.jsonl").read_text().splitlines()[0])
    for place, name in ((("machine",), "machine"), (("train", "mean", "acc"), "train.mean.acc")):
        line = json.dumps(replaced(row, place, "drop"))
        (tmp_path / "cells.jsonl").write_text(line + "\n")
        assert re.search(rf"cells\.jsonl .*\b{name}\b", " ".join(bench("report", tmp_path).stderr.split()))
