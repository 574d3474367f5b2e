"""What is run, rows in compact form, and the tables made of them."""

import json
from itertools import pairwise

import pytest

from fmtc.errors import FileError
from fmtc.estimator import FMTC
from fmtc_bench.compare import comparison, evidence, federations, paper, results, tables
from fmtc_bench.compare.evidence import compact, fmtc_with, plan, read_compact
from fmtc_bench.compare.methods import METHODS, TRIALS, defaults_of, method_of
from fmtc_bench.compare.summary import summarise
from fmtc_bench.datasets import SOURCES


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    """Only what comes with scikit-learn is on this machine."""
    monkeypatch.setenv("FMTC_DATA", str(tmp_path))
    monkeypatch.setattr("fmtc_bench.datasets.base.cache_home", lambda: tmp_path / "cache")


@pytest.fixture
def everything_here(monkeypatch):
    monkeypatch.setattr(evidence, "here", list)


def test_every_method_runs_on_every_test_federation_and_on_the_tables(everything_here):
    tested = [name for name in METHODS if name not in evidence.SIDE]
    for part, names, methods in (
        ("test", evidence.FEDERATIONS, tested), ("tables", evidence.DATASETS, list(METHODS))
    ):  # fmt: skip
        cells = plan(part, splits=2)
        assert {cell.method for cell in cells} == set(methods)
        assert {cell.dataset for cell in cells} == set(names)
        assert {cell.trial for cell in cells} == {"default"}
        assert len(cells) == len(set(cells)) == len(names) * 2 * len(methods)
    assert set(evidence.DATASETS) >= set(paper.DATASETS)
    assert len(plan("test")) == len(evidence.FEDERATIONS) * evidence.SPLITS * len(tested)


def test_draws_are_twelve_for_everyone_on_one_federation_of_each_data_set(everything_here, few):
    first = evidence.first_federations()
    assert first == ["letter?dealing=even,rows=300", "vowel?rows=300", "glass?dealing=even,rows=300"]
    cells = plan("draws", splits=3)
    assert {cell.dataset for cell in cells} == set(first)
    assert {cell.split for cell in cells} == {0}
    tried = {(cell.method, cell.trial) for cell in cells}
    assert tried == {(name, trial) for name in evidence.DRAWN for trial in ("default", *map(str, range(TRIALS)))}
    assert "fmtc" in evidence.DRAWN
    assert not set(evidence.DRAWN) & {*evidence.REFERENCES, *evidence.VARIANTS, *evidence.SIDE}
    assert not any(METHODS[name].group == "pooled" for name in evidence.DRAWN)


def test_everyone_is_ours_or_a_variant_or_a_rival_or_a_reference():
    groups = (("fmtc",), evidence.VARIANTS, evidence.RIVALS, evidence.REFERENCES, evidence.SIDE)
    assert sorted(name for group in groups for name in group) == sorted(METHODS)
    assert {"kmeans", "stsc", "usc"} <= set(evidence.RIVALS)
    assert "fmtc-average" in evidence.VARIANTS


def test_test_federations_have_few_rows_and_titles_of_their_own():
    assert len(set(evidence.FEDERATIONS)) == len(evidence.FEDERATIONS)
    assert all(name.endswith(f"rows={evidence.ROWS_OF_A_SILO}") for name in evidence.FEDERATIONS)
    assert all(name.partition("?")[0] in federations.KIND for name in evidence.FEDERATIONS)
    shown = [federations.title(name) for name in evidence.FEDERATIONS]
    assert len(set(shown)) == len(shown)
    assert not any("=" in words or "_" in words for words in shown)


def test_what_is_not_here_is_left_out_unless_all_is_wanted(nothing_here):
    assert len(plan("tables", splits=1, everywhere=True)) == len(evidence.DATASETS) * len(METHODS)
    assert {cell.dataset for cell in plan("tables", splits=1)} == {"digits"}
    assert {cell.dataset.partition("?")[0] for cell in plan("ablations", splits=1)} == {"digits"}
    assert plan("figures", splits=1) == []


def test_everything_is_its_parts_once_and_same_rows_stand_together_in_each(everything_here):
    whole = plan("all", splits=2)
    assert whole == list(dict.fromkeys(cell for part in evidence.PARTS for cell in plan(part, splits=2)))
    for part in evidence.PARTS:
        places = [(cell.dataset, cell.split) for cell in plan(part, splits=2)]
        changes = sum(a != b for a, b in pairwise(places))
        assert changes == len(set(places)) - 1
    for name in {cell.method for cell in whole}:
        method_of(name)
    with pytest.raises(ValueError, match="'table'"):
        plan("table", splits=1)


def test_ablations_change_one_thing_and_every_default_is_among_them():
    default = defaults_of(FMTC())
    for what, _value, _data, method in evidence.ablations("webkb4"):
        found = defaults_of(method_of(method).build(8))
        assert {name for name, value in default.items() if found[name] != value} <= {what}
    assert {"reweigh", "centers", "one_sided"}.isdisjoint(evidence.SETTINGS)
    same = {what for what, _, data, method in evidence.ablations("webkb4") if (data, method) == ("webkb4", "fmtc")}
    assert same == set(evidence.SETTINGS)
    assert {what for what, *_ in evidence.ablations("digits")} == {*evidence.SETTINGS, *evidence.FORMS}
    assert "n_clients" not in {what for what, *_ in evidence.ablations("webkb4")}
    assert all(name in SOURCES for name in (*evidence.TRIED, *evidence.CLOUDS, *evidence.CONVERGENCE))
    assert fmtc_with(align=default["align"]) == "fmtc"
    assert fmtc_with(alpha=3.0, beta=default["beta"]) == "fmtc/alpha=3.0"


# ---------------------------------------------------------------------------------------------------------- rows


def test_compact_rows_say_what_the_long_ones_say(row, tmp_path):
    rows = [row("webkb4", "kmeans", 0.61234, split=s) for s in (1, 0)] + [row("webkb4", "fmtc", status="failed")]
    rows += [row("webkb4", "kmeans", 0.7, trial="11"), row("webkb4", "kmeans", 0.8, trial="2")]
    path = tmp_path / "rows.csv"
    path.write_text(compact(rows))
    back = read_compact(path)
    assert [(r["method"], r["trial"], r["split"]) for r in back] == [
        ("fmtc", "default", 0), ("kmeans", "2", 0), ("kmeans", "11", 0), ("kmeans", "default", 0),
        ("kmeans", "default", 1),
    ]  # fmt: skip
    for score in ("acc", "nmi"):
        key = lambda entry: (entry["method"], entry["mode"])  # noqa: E731
        long, short = (sorted(summarise(lines, score=score), key=key) for lines in (rows, back))
        for one, other in zip(long, short, strict=True):
            numbers = {name: value for name, value in one.items() if isinstance(value, float)}
            assert {name: other[name] for name in numbers} == pytest.approx(numbers, abs=1e-5, nan_ok=True)
            assert {name: other[name] for name in set(one) - set(numbers)} == {
                n: one[n] for n in set(one) - set(numbers)
            }
    assert compact(reversed(rows)) == compact(rows)
    assert {(r["code"], r["versions"]) for r in back} == {("0123", "fmtc 1")}
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FileError, match=r"rows\.csv"):
        read_compact(path)


# -------------------------------------------------------------------------------------------------------- tables


def test_a_table_has_ours_and_the_papers_and_marks_the_best(row):
    rows = [row("webkb4", "fmtc", acc, split=s) for s, acc in enumerate((0.70, 0.72))]
    rows += [row("webkb4", "stsc", 0.6), row("webkb4", "kmeans", 0.65), row("webkb4", "mbc", status="timeout")]
    rows += [row("webkb4?rows=50", "fmtc", 0.99), row("webkb4", "fmtc/beta=0", 0.99)]
    lines = {line.split(" | ")[0]: line for line in tables.table(rows, "acc", "default", ("in", "out")).splitlines()}
    assert "| webkb4 | rank |" in lines["|"]
    assert "**71.0** ± 1.4 / **69.0** ± 1.4<br>*78.11 / 64.67* | 1.0" in lines["| FMTC"]
    assert "| 60.0 / 58.0<br>*63.37 / 49.43* | 3.0" in lines["| stSC"]
    assert lines["| k-means alone"] == "| k-means alone | 65.0 / 63.0 | 2.0 |"
    assert lines["| MBC"].startswith("| MBC | failed")
    assert lines["| MBC"].endswith("| – |")
    assert tables.table(rows, "acc", "oracle") == ""
    few = tables.table(rows, "acc", "default", methods=["kmeans", "stsc"])
    assert "FMTC" not in few
    assert "**65.0**" in few


def test_a_split_that_failed_is_told_and_never_best(row):
    rows = [row("webkb4", "kmeans", 0.99), row("webkb4", "kmeans", split=1, status="failed")]
    rows += [row("webkb4", "one-cluster", 0.2, split=split) for split in range(2)]
    lines = tables.table(rows, "acc", "default").splitlines()
    assert "| k-means alone | 99.0 (1 failed) | 2.0 |" in lines
    assert "| one cluster | **20.0** ± 0.0 | 1.0 |" in lines


def test_default_and_oracle_stand_apart(row):
    rows = [row("webkb4", "stsc", 0.6), row("webkb4", "stsc", 0.9, trial="0")]
    page = tables.page(rows, 1)
    default, oracle = page.split("ACC. ORACLE: setting picked by labels")
    assert "60.0" in default
    assert "90.0" in oracle
    assert "63.37" in default


def test_a_data_set_that_not_everyone_was_run_on_ranks_nobody(row):
    rows = [row(data, m, acc) for data in ("webkb4", "yale") for m, acc in (("fmtc", 0.5), ("stsc", 0.6), ("usc", 0.7))]
    rows += [row("digits", "fmtc", 0.9)]
    lines = tables.table(rows, "acc", "default").splitlines()
    assert [line.rsplit(" | ", 1)[1] for line in lines if line.startswith("| FMTC")] == ["3.0 |"]


def test_ablations_are_held_against_the_default_on_the_same_splits(row):
    rows = [row("webkb4", "fmtc", acc, split=s) for s, acc in enumerate((0.5, 0.7, 0.9))]
    rows += [row("webkb4", "fmtc/align=False", acc, split=s) for s, acc in enumerate((0.4, 0.64))]
    rows += [row("webkb4?order=1", "fmtc", 0.55)]
    entries = {(e["what"], e["value"]): e for e in tables.ablation_entries(rows)}
    assert entries["align", "False"]["gain"] == pytest.approx(-8)
    assert entries["align", "False"]["n"] == 2
    assert entries["align", "True"]["default"]
    assert entries["order", "1"]["gain"] == pytest.approx(5)
    table = tables.ablation_table(rows)
    assert "| align | False | -8.0 | -8.0 |" in table
    assert "| align | True | default |  |" in table
    assert tables.ablation_table([]) == ""


def test_files_of_results(all_rows, tmp_path):
    written = results.write_results(all_rows, tmp_path / "deep", "fmtc-bench paper")
    assert {path.name for path in written} == {
        "rows.csv", "table1.md", "table2.md", "test.json", "test.md", "ablations.md", "about.json"
    }  # fmt: skip
    told = json.loads((tmp_path / "deep" / "test.json").read_text())
    assert [entry["score"] for entry in told["scores"]] == list(comparison.SCORES)
    assert {line["method"] for line in told["settings"]} == {"fmtc", "stsc"}
    about = json.loads((tmp_path / "deep" / "about.json").read_text())
    assert about["cells"] == len(all_rows)
    assert about["seconds_of_all_cells"] == 2 * len(all_rows)
    assert about["machines"] == ["some machine"]
    again = results.tested(read_compact(tmp_path / "deep" / "rows.csv"))
    for entries in zip(told["scores"], again["scores"], strict=True):
        one, other = ([line["mean"] for line in entry["lines"]] for entry in entries)
        assert one == pytest.approx(other, abs=1e-5)
    few = results.write_results([all_rows[0] | {"dataset": "digits?order=1"}], tmp_path / "few", "")
    assert {path.name for path in few} == {"rows.csv", "about.json"}


def test_files_of_results_where_a_method_never_succeeded(row, tmp_path):
    """It has no rank in the tables, and breaks no figure."""
    names = ("fmtc", "stsc", "usc", "kmeans")
    rows = [row(data, name, 0.5 + 0.1 * i, split=split) for data in ("digits", "yale") for i, name in enumerate(names)
            for split in range(2)]  # fmt: skip
    rows += [row(data, "mbc", status="failed", split=split) for data in ("digits", "yale") for split in range(2)]
    results.write_results(rows, tmp_path, "fmtc-bench paper")
    table = (tmp_path / "table2.md").read_text().splitlines()
    assert {line.rsplit(" | ", 1)[1] for line in table if line.startswith("| MBC")} == {"– |"}
    assert [path for path in results.draw_results(rows, tmp_path) if path.stem.startswith("inside_outside")]
