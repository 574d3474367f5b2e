"""`fmtc-bench`: one tidy table, and nothing run twice."""

import json
import re
import shutil
import sys

import polars as pl
import pytest
from click.testing import CliRunner

from fmtc_bench.cli import compare as commands
from fmtc_bench.cli.program import main_group
from fmtc_bench.compare.grid import code_digest
from fmtc_bench.compare.methods import METHODS


def bench(*args, **env):
    plain = {"NO_COLOR": "1", "TERM": "dumb", "FMTC_DEBUG": None, "FORCE_COLOR": None, "COLUMNS": "140"}
    return CliRunner().invoke(main_group, [*map(str, args)], prog_name="fmtc-bench", env=plain | env)


RUN = ("run", "--dataset", "synthetic-offset", "--splits", 2)
TWO = ("--method", "kmeans", "--method", "one-cluster")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "bench"


@pytest.fixture(scope="module")
def _first(tmp_path_factory):
    """Two methods run once for all tests that look at what was run."""
    out = tmp_path_factory.mktemp("first") / "bench"
    return bench(*RUN, *TWO, "--out", out), out


@pytest.fixture
def first(_first, out):
    """What the first call said; its folder is a copy."""
    shutil.copytree(_first[1], out)
    return _first[0]


def test_a_table_of_what_was_run_and_a_second_call_from_the_store(first, out):
    assert first.exit_code == 0, first.output
    assert "k-means alone" in first.stderr
    assert "ACC %, one setting for all data" in first.stderr
    assert "4 fits, 0 of them stored before" in first.stderr
    assert "ok," in first.stderr  # a line for each cell
    lines = {line.split("  ")[0].strip(): line for line in first.stderr.splitlines()}
    assert "°" in lines["one cluster"]
    assert "°" not in lines["k-means alone"]
    again = bench(*RUN, *TWO, "--out", out)
    assert "4 of them stored before" in again.stderr
    assert lines["k-means alone"] in again.stderr
    assert "split 0 / seed 0: ok" not in again.stderr


def test_json_has_rows_and_summary(first, out):
    done = bench(*RUN, *TWO, "--out", out, "--json", "-q", "--score", "nmi")
    document = json.loads(done.stdout)
    assert len(document["rows"]) == 4
    assert {(e["method"], e["mode"], e["n"]) for e in document["summary"]} == {
        ("kmeans", "default", 2),
        ("one-cluster", "default", 2),
    }
    assert document["summary"][0]["out"] > 0.3
    assert document["mean_ranks"] == {"kmeans": 1.0, "one-cluster": 2.0}


def test_an_oracle_says_that_it_is_one(out):
    done = bench(*RUN, "--method", "kmeans", "--trials", 2, "--out", out)
    assert "ORACLE: setting picked by labels" in done.stderr
    assert "6 fits" in done.stderr


def test_only_some_cells(out):
    done = bench(*RUN, *TWO, "--only", "one-", "--out", out)
    assert "2 fits" in done.stderr
    assert "k-means alone" not in done.stderr
    refused = bench(*RUN, *TWO, "--only", "nothing like it", "--out", out)
    assert refused.exit_code == 2
    assert "'nothing like it'" in refused.stderr


def test_what_cannot_be_run_is_refused_before_anything_is(out, tmp_path):
    for name, code, words in (
        ("nope", 2, "'nope'"),
        ("digit", 2, "did you mean 'digits'?"),
        ("synthetic-ring", 2, "did you mean 'synthetic-rings'"),
        ("digits?n_client=4", 2, "n_clients"),
        ("synthetic-rings?sise=4", 2, "sise"),
        ("digits?rows=0", 2, "rows"),
        ("yale", 3, str(tmp_path)),
    ):
        asked = ("--dataset", name, "--method", "kmeans", "--splits", 1, "--out", out)
        done = bench("run", "--dataset", "synthetic-offset", *asked, FMTC_DATA=str(tmp_path))
        assert done.exit_code == code, done.output
        assert re.search(words, " ".join(done.stderr.split()))
        assert not out.exists()
    refused = bench("run", "--dataset", "digits", "--method", "kmean", "--out", out)
    assert refused.exit_code == 2
    assert "kmeans" in refused.stderr
    refused = bench("run", "--dataset", "digits", "--method", "fmtc/bta=1", "--out", out)
    assert refused.exit_code == 2
    assert "did you mean 'beta'" in " ".join(refused.stderr.split())


def test_nothing_that_succeeded_is_no_success(out):
    done = bench("run", "--dataset", "synthetic-offset?n_samples=4", "--method", "fmtc", "--splits", 1, "--out", out)
    assert done.exit_code == 1
    (line,) = [line.split() for line in done.stderr.splitlines() if line.startswith("FMTC")]
    assert line[-3:-1] == ["failed", "–"]  # no rank


def test_rows_of_other_code_are_pointed_out(first, out):
    path = out / "cells.jsonl"
    path.write_text(path.read_text().replace('"code": "', '"code": "0'))
    done = bench(*RUN, *TWO, "--out", out)
    assert "4 cells " in " ".join(done.stderr.split())


def test_smoke_runs_every_method_on_what_is_here(out, tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        commands, "_compare", lambda words, datasets, methods, **rest: seen.update(d=datasets, m=methods)
    )
    monkeypatch.setattr("fmtc_bench.datasets.base.cache_home", lambda: tmp_path / "cache")
    done = bench("smoke", "--out", out, FMTC_DATA=str(tmp_path))
    assert done.exit_code == 0, done.output
    assert seen == {"d": ["digits", "synthetic-subspace"], "m": list(METHODS)}
    assert "webkb4" in done.stderr


# ------------------------------------------------------------------------------------------ the paper's evidence


def test_a_setting_of_ones_own_has_a_line_in_the_table(out):
    done = bench("run", "--dataset", "synthetic-offset?rows=30", "--splits", 1, "--out", out,
                 "--method", "kmeans", "--method", "kmeans/n_init=1")  # fmt: skip
    assert "k-means alone n_init=1" in done.stderr
    assert "offset?rows=30" in done.stderr
    assert "2 of 2, about 0 s left" in done.stderr


NAMES = ("synthetic-offset?rows=30", "synthetic-subspace?rows=20")


@pytest.fixture
def small_plan(monkeypatch):
    """Three quick methods on digits, two ablations and two test federations, in place of hours."""
    from fmtc_bench.compare import evidence, federations
    from fmtc_bench.compare.grid import cells

    names = {
        "test": (NAMES, ["kmeans", "random"]),
        "tables": (["digits"], ["kmeans", "random", "one-cluster"]),
        "ablations": (["digits?rows=40"], ["fmtc/max_iter=2", "fmtc/align=False"]),
    }
    seen = []

    def plan(part, *, splits=evidence.SPLITS, everywhere=False):
        seen.append((part, splits, everywhere))
        wanted = names if part == "all" else (part,)
        return [cell for each in wanted for cell in cells(*names[each], splits=range(splits))]

    monkeypatch.setattr(evidence, "plan", plan)
    monkeypatch.setattr(evidence, "FEDERATIONS", NAMES)
    monkeypatch.setattr(federations, "KIND", {name.partition("?")[0]: "invented" for name in NAMES})
    find = evidence.here
    monkeypatch.setattr(evidence, "here", lambda names: [n for n in names if n.startswith("synthetic-") or find([n])])
    return seen


@pytest.fixture
def frozen(small_plan, out):
    done = bench("freeze", "--out", out, "-q")
    assert done.exit_code == 0, done.output
    small_plan.clear()
    return out


def test_freeze_writes_the_protocol_and_tells_it_as_json(small_plan, out):
    done = bench("freeze", "--out", out, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["out"] == str(out / "protocol.md")
    assert set(document["data"]) == set(NAMES)
    assert [path.name for path in out.iterdir()] == ["protocol.md"]
    assert "wrote" in done.stderr


def test_paper_needs_a_protocol_and_refuses_what_is_not_in_it(frozen, tmp_path, monkeypatch):
    refused = bench("paper", "--part", "test", "--splits", 1, "--out", tmp_path / "new")
    assert refused.exit_code == 3
    assert "fmtc-bench freeze" in refused.stderr
    monkeypatch.setattr("fmtc_bench.compare.freeze.code_digest", lambda: "other")
    refused = bench("paper", "--part", "test", "--splits", 1, "--out", frozen)
    assert refused.exit_code == 3
    assert "this is code other" in " ".join(refused.stderr.split())
    assert [path.name for path in frozen.iterdir()] == ["protocol.md"]  # nothing was run
    assert bench("paper", "--splits", 4, "--out", frozen).exit_code == 2  # three were fixed


def test_paper_by_any_code_goes_to_another_folder(frozen, tmp_path, monkeypatch):
    """As its refusal says: today's code, with its digest in every row, and no row of a frozen protocol beside it."""
    monkeypatch.setattr("fmtc_bench.compare.freeze.code_digest", lambda: "other")
    refused = " ".join(bench("paper", "--part", "test", "--splits", 1, "--out", frozen).stderr.split())
    assert "`fmtc-bench paper --any-code --out today`" in refused
    named = json.loads((frozen / "protocol.md").read_text().rpartition("```json\n")[2].partition("```")[0])["commit"]
    assert ("python -m fmtc_bench paper --out again" in refused) == (named is not None)
    mixed = bench("paper", "--any-code", "--part", "test", "--splits", 1, "--out", frozen)
    assert (mixed.exit_code, "another folder" in mixed.stderr) == (2, True)
    today = tmp_path / "today"
    done = bench("paper", "--any-code", "--part", "test", "--splits", 1, "--out", today, "--json", "-q")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["command"] == "fmtc-bench paper --any-code --part test"
    rows = pl.read_csv(today / "rows.csv")
    assert rows.height == 4
    assert rows["code"].unique().to_list() == [code_digest()]


def test_paper_writes_what_it_has_and_goes_on_from_there(frozen, small_plan, tmp_path):
    out = frozen
    done = bench("paper", "--part", "tables", "--splits", 1, "--out", out, FMTC_DATA=str(tmp_path))
    assert done.exit_code == 0, done.output
    assert small_plan[0] == ("tables", 1, False)
    assert "keck" in done.stderr
    assert {path.name for path in out.iterdir()} == {
        "protocol.md", "cells.jsonl", "rows.csv", "table1.md", "table2.md", "about.json", "figures"
    }  # fmt: skip
    assert (out / "figures" / "inside_outside_acc.png").stat().st_size > 5000
    more = bench("paper", "--part", "ablations", "--splits", 1, "--out", out, "--only", "align", "--json", "-q")
    document = json.loads(more.stdout)
    assert document["run"] == 1
    assert document["cells"] == 4
    assert document["command"] == "fmtc-bench paper --part ablations"
    assert len((out / "rows.csv").read_text().splitlines()) == 5
    again = bench("paper", "--part", "tables", "--splits", 1, "--out", out, "--image", "svg")
    assert "3 of them stored before" in again.stderr
    assert (out / "figures" / "inside_outside_acc.svg").exists()
    refused = bench("freeze", "--out", out)  # rows keep the protocol they were made by
    assert refused.exit_code == 3
    assert "protocol.md" in refused.stderr


def test_paper_without_matplotlib_makes_all_but_figures(frozen, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = bench("paper", "--part", "tables", "--splits", 1, "--out", frozen, "--only", "one-cluster")
    assert done.exit_code == 0, done.output
    assert "fmtc[plot]" in done.stderr
    assert (frozen / "table1.md").exists()
    assert not (frozen / "figures").exists()


def test_reproduce_runs_stored_fits_again_and_fails_where_a_score_changed(frozen):
    done = bench("paper", "--part", "test", "--splits", 1, "--out", frozen, "-q")
    assert done.exit_code == 0, done.output
    same = bench("reproduce", frozen, "--cells", 2, "--jobs", 1)
    assert same.exit_code == 0, same.output
    assert "2 fits run again, 0 scores different" in same.stderr
    assert "2 of 2, about 0 s left" in same.stderr
    path = frozen / "rows.csv"
    head, *lines = path.read_text().splitlines()
    place = head.split(",").index("acc_frozen")
    cells = [line.split(",") for line in lines]
    stored = {cell[place] for cell in cells}
    for cell in cells:
        cell[place] = "0.12345"
    assert "0.12345" not in stored
    path.write_text("\n".join([head, *map(",".join, cells)]) + "\n")
    other = bench("reproduce", frozen, "--cells", 1, "--json", "-q")
    assert other.exit_code == 1
    (change,) = json.loads(other.stdout)["different"]
    assert (change["score"], change["stored"]) == ("acc_frozen", "0.12345")
    assert change["now"] in stored
    assert "acc_frozen was 0.12345" in " ".join(other.stderr.split())


def test_reproduce_of_nothing_is_no_success(frozen, tmp_path):
    refused = bench("reproduce", tmp_path)
    assert refused.exit_code == 3
    assert "rows.csv" in refused.stderr
    bench("paper", "--part", "test", "--splits", 1, "--out", frozen, "-q", "--only", "random")
    none = bench("reproduce", frozen)  # none of the fixed few is among them
    assert none.exit_code == 1
    assert "no fit that can be run here" in none.stderr


# ---------------------------------------------------------------------------------------------------------- report


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder of a small comparison."""
    folder = tmp_path_factory.mktemp("home") / "bench"
    done = bench(*RUN, *TWO, "--out", folder, "-q")
    assert done.exit_code == 0, done.output
    return folder


def test_report_makes_a_page_of_what_run_left(compared):
    done = bench("report", compared)
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert done.stderr.startswith(f"wrote {compared / 'report.html'}: ")
    text = (compared / "report.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "<dt>Fits</dt><dd>4</dd>" in text
    assert bench("report", compared).exit_code == 0  # again: what is in that folder is ours
    assert (compared / "report.html").read_text() == text
    assert sorted(path.name for path in compared.iterdir()) == ["cells.jsonl", "report.html"]


def test_report_looks_into_results_unless_told(compared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = bench("report")
    assert refused.exit_code == 3
    assert "results" in refused.stderr
    (tmp_path / "results").symlink_to(compared)
    assert bench("report").exit_code == 0


def test_report_writes_elsewhere_and_tells_as_json(compared, tmp_path):
    page = tmp_path / "pages" / "comparison.html"
    done = bench("report", compared, "--out", page, "--json")
    document = json.loads(done.stdout)
    assert document["out"] == str(page)
    assert document["counts"]["cells"] == 4
    assert document["table"]["views"]["all default acc out"]["ranks"] == {"kmeans": 1.0, "one-cluster": 2.0}
    assert "files" not in document
    refused = bench("report", compared, "--out", page)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert bench("report", compared, "--out", page, "--force").exit_code == 0


def test_report_opens_a_browser_when_asked(compared, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    bench("report", compared, "--open")
    assert opened == [(compared / "report.html").as_uri()]


def test_report_refuses_what_is_no_results_and_leaves_nothing_behind(tmp_path):
    for content in (None, "dataset,method\n"):
        if content is not None:
            (tmp_path / "rows.csv").write_text(content)
        before = sorted(tmp_path.rglob("*"))
        done = bench("report", tmp_path, "--out", tmp_path / "new" / "page.html")
        assert done.exit_code == 3
        assert "rows.csv" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert sorted(tmp_path.rglob("*")) == before


def test_a_page_that_cannot_be_written_whole_is_not_there(compared, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text("the old one")
    monkeypatch.setattr("os.replace", lambda *names: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    done = bench("report", compared, "--out", page, "--force")
    assert done.exit_code == 2
    assert "page.html cannot be written: No space left on device" in done.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ["the old one"]


def test_report_without_jinja_says_how_to_get_it(compared, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = bench("report", compared, "--out", tmp_path / "page.html")
    assert done.exit_code == 1
    assert "fmtc[report]" in done.stderr
    assert not (tmp_path / "page.html").exists()
