"""docs/paper.md: every name in its table exists, every equation is in it, every anchor the sources use is there."""

import contextlib
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
TABLE = [line for line in PAGE.partition("## Where the paper left room")[0].splitlines() if line.startswith("| ")]
NAMES = sorted(set(re.findall(r"`(fmtc\.[\w.]+)`", "\n".join(TABLE))))


@pytest.mark.parametrize("name", NAMES)
def test_name_in_the_table_exists(name):
    found = importlib.import_module("fmtc")
    for part in name.split(".")[1:]:
        with contextlib.suppress(ModuleNotFoundError, TypeError):
            importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)


def test_every_row_names_a_place():
    _head, *rows = TABLE
    assert len(rows) > 19
    assert [row for row in rows if not row.rstrip("| ").rpartition("| ")[2].startswith("`fmtc.")] == []


def test_all_equations_and_the_algorithm_are_there():
    found = set()
    for first, last in re.findall(r"^\| Eq\. (\d+)(?:–(\d+))? \|", "\n".join(TABLE), re.MULTILINE):
        found |= set(range(int(first), int(last or first) + 1))
    assert found == set(range(1, 20))
    lines = set()
    for first, last in re.findall(r"^\| Algorithm 1, lines? (\d+)(?:–(\d+))? \|", "\n".join(TABLE), re.MULTILINE):
        lines |= set(range(int(first), int(last or first) + 1))
    assert lines == set(range(3, 18))  # between input and return


def test_anchors_used_by_the_sources_are_headings():
    used = set()
    for file in (ROOT / "src").rglob("*.py"):
        used |= set(re.findall(r"docs/paper\.md#([\w-]+)", file.read_text(encoding="utf-8")))
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in PAGE.splitlines() if line.startswith("#")}
    assert used >= {"schatten", "step-size", "rotation", "scales"}
    assert used <= headings
