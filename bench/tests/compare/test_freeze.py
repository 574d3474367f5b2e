"""A protocol that is fixed before the run, and a run that refuses anything else."""

import json
import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import fmtc
from fmtc.errors import FileError, InputError
from fmtc_bench.compare import evidence, federations, freeze, grid, protocol
from fmtc_bench.compare.evidence import plan
from fmtc_bench.compare.grid import Cell
from fmtc_bench.compare.methods import METHODS
from fmtc_bench.datasets import synthetic

NAMES = ("synthetic-offset?rows=20", "synthetic-subspace?n_clients=3,rows=20")


@pytest.fixture
def two(monkeypatch):
    """Two quick federations in place of all."""
    monkeypatch.setattr(evidence, "FEDERATIONS", NAMES)
    monkeypatch.setattr(federations, "KIND", {name.partition("?")[0]: "invented" for name in NAMES})


@pytest.fixture
def fixed(two, tmp_path):
    freeze.fix_protocol(tmp_path)
    return tmp_path


CELLS = [Cell(name, "kmeans") for name in NAMES]


def test_what_is_fixed_is_read_again(fixed):
    facts = freeze.read_protocol(fixed)
    assert facts["code"] == grid.code_digest()
    assert facts["commit"] == freeze.commit()
    assert facts["plan"] == freeze.plan_digest(plan("all", everywhere=True))
    assert facts["data"] == {name: freeze.data_digest(protocol.dataset(name)) for name in NAMES}
    assert facts["versions"]["numpy"] == np.__version__
    freeze.check_protocol(fixed, CELLS)


def test_the_page_names_federations_methods_and_development(fixed):
    text = (fixed / "protocol.md").read_text()
    assert "2 federations of 2 data sets" in text
    assert f"At most {evidence.ROWS_OF_A_SILO}" in text
    data = protocol.dataset(NAMES[1])
    line = f"| {federations.title(NAMES[1])} | invented | 3 | {len(data.y)} | {data.X.shape[1]} | {data.n_clusters} |"
    assert line in text
    assert text.endswith("```\n")
    for name, method in METHODS.items():
        line = f"| {method.title} (`{name}`) | {method.shares} | {'twelve' if name in evidence.DRAWN else ''} |"
        assert (line in text) == (name not in evidence.SIDE)
    assert all(f": {found.origin}\n" in text for found in federations.TEST_SETS)
    assert all(f"- {name}: {why}" in text for name, why in federations.DEVELOPMENT.items())
    assert "{" not in text.partition("```json")[0]


def test_progress_names_every_federation_and_nothing_is_fitted(two, tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "evaluate", lambda *args: pytest.fail("something was fitted"))
    seen = []
    freeze.fix_protocol(tmp_path / "new" / "folder", seen.append)
    assert seen == list(NAMES)


def test_rows_keep_their_protocol(fixed):
    freeze.fix_protocol(fixed)  # nothing was run yet
    (fixed / "rows.csv").write_text("")
    with pytest.raises(InputError, match=r"protocol\.md"):
        freeze.fix_protocol(fixed)


# -------------------------------------------------------------------------------------------------------- refused


def test_changed_code_is_refused_in_one_sentence(fixed, monkeypatch):
    monkeypatch.setattr(freeze, "code_digest", lambda: "other code")
    with pytest.raises(
        InputError, match=r"fixed for code [0-9a-f]{16}, and this is code other code; .*fmtc-bench freeze"
    ) as said:
        freeze.check_protocol(fixed, CELLS)
    assert "\n" not in str(said.value)


def test_a_changed_plan_is_refused(fixed, monkeypatch):
    monkeypatch.setattr(evidence, "ROUNDS", (1, 2))
    with pytest.raises(InputError, match="fixed for plan "):
        freeze.check_protocol(fixed, CELLS)


def test_changed_rows_are_refused_where_they_are_wanted(fixed, monkeypatch):
    monkeypatch.setattr(protocol, "dataset", lambda name: synthetic("offset", n_samples=9))
    with pytest.raises(InputError, match=re.escape(NAMES[1])):
        freeze.check_protocol(fixed, CELLS[1:])
    freeze.check_protocol(fixed, [Cell("digits", "kmeans")])  # of development: not part of the protocol


def test_a_protocol_that_is_missing_or_damaged_is_told(fixed, tmp_path):
    path = fixed / "protocol.md"
    text = path.read_text()
    with pytest.raises(FileError, match=r"protocol\.md is not there: .*fmtc-bench freeze"):
        freeze.check_protocol(tmp_path / "elsewhere", CELLS)
    head, _, facts = text.partition("```json\n")
    for damaged in (b"", b"\xff", head.encode(), (head + "```json\n" + facts[:40]).encode()):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"protocol\.md has no facts"):
            freeze.read_protocol(fixed)
    path.write_text(head + "```json\n" + json.dumps({"code": 3}) + "\n```\n")
    with pytest.raises(FileError, match="it lacks"):
        freeze.read_protocol(fixed)


# -------------------------------------------------------------------------------------------------------- digests


def test_the_digest_of_rows_sees_every_part_of_them():
    data = synthetic("offset", n_samples=12)
    digest = freeze.data_digest(data)
    assert digest == freeze.data_digest(synthetic("offset", n_samples=12))
    order = np.arange(len(data.y))
    order[[0, 1]] = 1, 0
    moved = data.X.copy()
    moved[0, 0] *= 1.001
    names = np.char.add(data.clients, "b")
    others = [data.take(order), data.take(order[:-1]), replace(data, X=moved), replace(data, clients=names)]
    others.append(replace(data, y=(data.y + 1) % data.n_clusters))
    assert len({digest, *map(freeze.data_digest, others)}) == 1 + len(others)
    assert freeze.data_digest(replace(data, X=data.X * (1 + 2.0**-52))) == digest  # as another processor may have it
    sparse = [replace(data, X=sp.csr_array(X)) for X in (data.X, data.X, moved)]
    one, same, other = map(freeze.data_digest, sparse)
    assert one == same != other


def test_the_digest_of_a_plan_sees_settings_and_not_the_order():
    some = grid.cells(["digits"], ["stsc", "kmeans"], trials=2)
    assert freeze.plan_digest(some) == freeze.plan_digest(some[::-1])
    assert freeze.plan_digest(some) != freeze.plan_digest(some[1:])


def test_the_digest_of_code_has_what_decides_numbers_and_not_what_shows_them(monkeypatch, tmp_path):
    for name in ("compare/methods.py", "compare/federations.py", "compare/protocol.py", "baselines/mtsc.py",
                 "compare/plots.py", "cli/main.py", "report/page.py", "compare/federations.toml", "compare/paper.toml",
                 "datasets/facts/tables.toml"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(grid, "__file__", str(tmp_path / "compare" / "grid.py"))
    before = grid.code_digest.__wrapped__()
    changes = {}
    for path in sorted(tmp_path.rglob("*.*")):
        path.write_text("x = 2\n")
        changes[path.relative_to(tmp_path).as_posix()] = grid.code_digest.__wrapped__() != before
        path.write_text("x = 1\n")
    assert [name for name, changed in changes.items() if not changed] == [
        "cli/main.py", "compare/paper.toml", "compare/plots.py", "report/page.py"
    ]  # fmt: skip


# --------------------------------------------------------------------------------------------------------- commit


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_told_where_there_is_one_and_files_are_as_committed(tmp_path, monkeypatch):
    module = tmp_path / "fmtc_bench" / "compare" / "freeze.py"
    module.parent.mkdir(parents=True)
    module.write_text("x = 1\n")
    monkeypatch.setattr(freeze, "__file__", str(module))
    monkeypatch.setattr(fmtc, "__file__", str(tmp_path / "fmtc" / "__init__.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert freeze.commit() is None
    git(tmp_path, "init", "--quiet")
    assert freeze.commit() is None
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    assert freeze.commit() == git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "notes.md").write_text("beside the package")
    assert freeze.commit() == git(tmp_path, "rev-parse", "HEAD")
    module.write_text("x = 2\n")
    assert freeze.commit() is None
    monkeypatch.setenv("PATH", str(tmp_path))  # no git
    assert freeze.commit() is None
