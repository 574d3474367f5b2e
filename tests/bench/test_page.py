"""README and docs are filled by benchmarks/readme.py from what was measured, and say so while nothing was."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from fmtc.bench import results
from fmtc.cli import main_group
from fmtc.cli.program import leaves

ROOT = Path(__file__).parents[2]


@pytest.fixture
def readme(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAPER", tmp_path / "results")
    return module


def test_every_part_has_its_marks_once(readme):
    page = readme.EVIDENCE.read_text(encoding="utf-8")
    for part in ("run", "ranks", "tables", "statistics", "ablations", "figures"):
        assert page.count(f"<!-- {part}: made by {readme.MAKERS[part]} -->") == 1
        assert page.count(f"<!-- end of {part} -->") == 1
        assert readme.MAKERS[part] == "fmtc bench paper"
    assert ("bench", "paper") in dict(leaves(main_group))


def test_the_page_is_filled_from_the_rows(readme, all_rows):
    page = readme.EVIDENCE.read_text(encoding="utf-8")
    assert readme.with_evidence(page) == page
    results.write_results(all_rows, readme.PAPER, "fmtc bench paper --splits 2")
    filled = readme.with_evidence(page)
    assert f"`fmtc bench paper --splits 2`: {len(all_rows):,} cells, 0 of them failed" in filled
    for part, content in {
        "tables": "### NMI, one",
        "statistics": "critical difference",
        "ablations": "| order | 1",
    }.items():
        inside = re.search(rf"<!-- {part}: .*?<!-- end of {part} -->", filled, re.DOTALL).group()
        assert content in inside
    assert readme.with_evidence(filled) == filled
    assert "figures/convergence.png" not in filled
    (readme.PAPER / "figures").mkdir()
    (readme.PAPER / "figures" / "convergence.png").write_bytes(b"")
    assert "(../../results/figures/convergence.png)" in readme.with_evidence(filled)


def test_a_readme_with_marks_gets_the_short_table(readme, all_rows):
    results.write_results(all_rows, readme.PAPER, "fmtc bench paper")
    page = "before\n<!-- evidence: made by fmtc bench paper -->\n<!-- end of evidence -->\nafter"
    filled = readme.with_evidence(page)
    assert "| FMTC | " in filled
    assert "| k-means of each silo alone | " in filled
    assert "one cluster" not in filled


def test_the_readme_shows_both_controls(readme):
    """A reader learns on the first page what silos reach alone and by plain averaging."""
    text = readme.README.read_text(encoding="utf-8")
    table = re.search(r"<!-- evidence: .*?<!-- end of evidence -->", text, re.DOTALL).group()
    for name, title in readme.SHORT.items():
        assert f"| {title} | " in table, name


# ---------------------------------------------------------------------------------------------------------- views

COLUMNS = ("k-means alone", "graph, as before", "graph", "mixture", "auto")


def measured(scores, chosen, silos=4):
    """What benchmarks/views.py keeps of a data set, the same in all seeds."""
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
    assert set(readme.views_parts().values()) == {readme.NOT_MEASURED}


def test_views_in_short_are_means_of_tables_and_of_the_others(views):
    *_, tables, others = views.views_parts()["views in short"].splitlines()
    assert tables == "| tables, sensors, cells (2) | 75.5/75.5 | 70.0/70.0 | 75.5/75.5 | 81.0/81.0 | 79.0/78.0 |"
    assert others.startswith("| texts, pictures, movements (1) | 60.0/60.0 | 90.0/90.0 |")


def test_the_page_of_views_shows_both_kinds_of_rows_and_where_the_choice_is_wrong(views):
    page = views.views_parts()["views"]
    assert page.index("### Training rows") < page.index("### Held-out rows")
    assert page.count("| penguins | 89.0 | 90.0 | 91.0 | 98.0 | ") == 2
    lines = page.partition("### Where the default is behind")[2].strip().splitlines()
    assert lines[0] == "- Training rows, behind the better view by 1 point or more: wisdm (4.0)."
    assert lines[2] == "- Training rows, behind k-means alone by 1 point or more: wisdm (2.0)."
    assert lines[4] == "- Training rows, behind the graph view as before by 1 point or more: nowhere."


def test_the_readme_stays_short_with_all_of_it(views):
    text = views.README.read_text(encoding="utf-8")
    filled = views.replace_part(text, "views in short", views.views_parts()["views in short"])
    assert len(filled.split()) <= 700
    assert views.VIEWS.read_text(encoding="utf-8").count(views.begin_of("views")) == 1
