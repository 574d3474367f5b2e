"""The evidence page is filled from results/ by benchmarks/readme.py, and left alone while there are none."""

import importlib.util
import re
from pathlib import Path

import pytest

from fmtc.bench import results
from fmtc.cli import main_group

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
    assert "paper" in main_group.commands["bench"].commands


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
