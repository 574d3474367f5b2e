"""README and docs are filled by bench/benchmarks/readme.py from what was measured, and say so while nothing was."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from fmtc.cli.program import leaves
from fmtc_bench.cli.program import main_group
from fmtc_bench.compare import evidence, federations, freeze, results
from fmtc_bench.compare.evidence import read_compact

ROOT = Path(__file__).parents[2]


@pytest.fixture
def readme(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAPER", tmp_path / "results")
    return module


PARTS = ("run", "test", "averaging", "below", "kinds", "settings", "again", "federations", "tables", "reached",
         "ablations", "figures")  # fmt: skip


def part_of(page, part):
    return re.search(rf"<!-- {part}: .*?<!-- end of {part} -->", page, re.DOTALL).group()


def test_every_part_has_its_marks_once(readme):
    page = readme.EVIDENCE.read_text(encoding="utf-8")
    for part in PARTS:
        assert page.count(f"<!-- {part}: made by {readme.MAKERS[part]} -->") == 1
        assert page.count(f"<!-- end of {part} -->") == 1
        assert readme.MAKERS[part] == "fmtc-bench paper"
    assert ("paper",) in dict(leaves(main_group))


def test_the_page_is_filled_from_the_rows(readme, all_rows):
    page = readme.EVIDENCE.read_text(encoding="utf-8")
    assert readme.evidence_parts() == {}
    results.write_results(all_rows, readme.PAPER, "fmtc-bench paper")
    found = readme.evidence_parts()
    assert set(found) == {*PARTS, "evidence"}
    filled = readme.with_evidence(page, found)
    assert f"`fmtc-bench paper`: {len(all_rows):,} fits, 0 of them failed" in filled
    assert "by code `0123`." in filled
    for part, content in {
        "test": "| **FMTC** | ",
        "averaging": "| silos differ | ARI",
        "kinds": "natural silos",
        "settings": "| stSC | ",
        "again": "| FMTC | ",
        "federations": f"| {federations.title(evidence.FEDERATIONS[0])} | ",
        "tables": "### NMI, one",
        "reached": "| webkb4 | ",
        "ablations": "| order | 1",
    }.items():
        assert content in part_of(filled, part)
    assert "critical difference" in part_of(filled, "test")
    assert readme.with_evidence(filled, found) == filled
    assert part_of(filled, "figures").count("Not run.") == 1
    (readme.PAPER / "figures").mkdir()
    (readme.PAPER / "figures" / "intervals_ari.png").write_bytes(b"")
    caption = results.captions(read_compact(readme.PAPER / "rows.csv"))["intervals_ari"]
    shown = readme.evidence_parts()["figures"]
    assert shown == f"![{caption}](../../bench/results/figures/intervals_ari.png)\n\n*{caption}*"


def test_the_run_is_held_against_its_protocol(readme, all_rows):
    results.write_results(all_rows, readme.PAPER, "fmtc-bench paper")
    facts = {"code": "0123", "commit": "c" * 40, "plan": "some plan", "data": {}, "versions": {}}
    path = readme.PAPER / "protocol.md"
    path.write_text(f"{freeze.FENCE}{json.dumps(facts)}\n```\n")
    assert f"for the same code, plan `some plan`, commit `{'c' * 12}`." in readme.evidence_parts()["run"]
    path.write_text(f"{freeze.FENCE}{json.dumps(facts | {'code': '4567', 'commit': None})}\n```\n")
    assert readme.evidence_parts()["run"].endswith("for code `4567`, plan `some plan`.")


def test_a_readme_with_marks_gets_five_rows(readme, few, row):
    level = {"fmtc": 0.6, "fmtc-average": 0.55, "kmeans": 0.4, "stsc": 0.3, "mbc": 0.5, "usc": 0.9, "random": 0.1}
    rows = [row(data, name, acc, ari=acc / 2 + i / 100) for i, data in enumerate(few) for name, acc in level.items()]
    results.write_results(rows, readme.PAPER, "fmtc-bench paper")
    page = "before\n<!-- evidence: made by fmtc-bench paper -->\n<!-- end of evidence -->\nafter"
    filled = readme.with_evidence(page, readme.evidence_parts()).splitlines()
    start = filled.index("| | ARI | frozen ACC | mean rank | FMTC ahead by |")
    # means over three data sets: letter has 1, glass 4 and vowel 3 points more
    assert filled[start + 2 : start + 6] == [
        "| FMTC | 32.7 | 55.0 | 1.0/1.0 |  |",
        '| plain averaging (`coupling="average"`) | 30.2 | 50.0 | 2.0/2.0 | +2.5 (+2.5 to +2.5) |',
        "| k-means of each silo alone | 22.7 | 35.0 | 4.0/4.0 | +10.0 (+10.0 to +10.0) |",
        "| MBC, the best of the others | 27.7 | 45.0 | 3.0/3.0 | +5.0 (+5.0 to +5.0) |",  # uSC pools rows
    ]
    assert filled[start + 6] == ""


def test_cells_of_the_paper_are_bold_where_they_are_reached(readme, row):
    rows = [row("webkb4", "fmtc", 0.79), row("yale", "fmtc", 0.5), row("digits", "fmtc", 0.9)]
    lines = readme.reached_table(rows).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| webkb4", "| yale"]  # the paper has no digits
    assert "| **79.0** / 78.1 | **77.0** / 64.7 |" in lines[2]
    assert "| 50.0 / 60.4 |  |" in lines[3]  # nor held-out rows of Yale
    assert readme.reached_table([]) == ""


def test_rows_of_an_earlier_version_leave_pages_alone_and_make_them_stale(readme, monkeypatch, capsys):
    readme.PAPER.mkdir()
    (readme.PAPER / "rows.csv").write_text("dataset,method\n")
    before = readme.EVIDENCE.read_text(encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["readme.py", "--check"])
    with pytest.raises(SystemExit, match=r"rows\.csv has other columns"):
        readme.main()
    assert "left as it is" in capsys.readouterr().out
    assert readme.EVIDENCE.read_text(encoding="utf-8") == before


def test_the_readme_shows_both_controls(readme):
    """A reader learns on the first page what silos reach alone and by plain averaging."""
    text = readme.README.read_text(encoding="utf-8")
    for name in ("fmtc", "fmtc-average", "kmeans"):
        assert f"| {readme.SHORT[name]} | " in part_of(text, "evidence")


# ---------------------------------------------------------------------------------------------------------- views

COLUMNS = ("k-means alone", "graph, as before", "graph", "mixture", "auto")


def measured(scores, chosen, silos=4):
    """What bench/benchmarks/views.py keeps of a data set, the same in all seeds."""
    seed = dict(zip(COLUMNS, scores, strict=True)) | {"chosen": chosen, "why": "a reason", "seconds": {}}
    return {"rows": 400, "silos": silos, "columns": 9, "clusters": 2, "code": "0", "train": [seed] * 3,
            "held out": [{**seed, "auto": seed["auto"] - 1}] * 3}  # fmt: skip


@pytest.fixture
def views(readme, tmp_path, monkeypatch):
    monkeypatch.setattr(readme, "RESULTS", tmp_path)
    found = {
        "penguins": measured((89, 90, 91, 98, 98), "mixture"),
        "wisdm": measured((62, 50, 60, 64, 60), "graph"),
        "bbcnews": measured((60, 90, 95, 70, 95), "graph"),
    }
    (tmp_path / "views.json").write_text(json.dumps(found))
    return readme


def test_pages_of_views_say_that_nothing_was_measured(readme, tmp_path, monkeypatch):
    monkeypatch.setattr(readme, "RESULTS", tmp_path)
    assert readme.views_part() == readme.NOT_MEASURED


def test_the_page_of_views_shows_both_kinds_of_rows_and_where_the_choice_is_wrong(views):
    page = views.views_part()
    assert page.index("### Training rows") < page.index("### Held-out rows")
    assert page.count("| penguins | 89.0 | 90.0 | 91.0 | 98.0 | ") == 2
    lines = page.partition("### Where the default is behind")[2].strip().splitlines()
    assert lines[0] == "- Training rows, behind the better view by 1 point or more: wisdm (4.0)."
    assert lines[2] == "- Training rows, behind k-means alone by 1 point or more: wisdm (2.0)."
    assert lines[4] == "- Training rows, behind the graph view as before by 1 point or more: nowhere."


def test_the_page_of_views_has_its_mark_once(views):
    assert views.VIEWS.read_text(encoding="utf-8").count(views.begin_of("views")) == 1
