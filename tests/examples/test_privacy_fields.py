"""docs/privacy.md names every field of every message: a new leak is a new line in a table made from the code."""

import re
from dataclasses import fields
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from fmtc.protocol.base import Message, entries
from fmtc.protocol.method import COMMON, method_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script():
    loader = SourceFileLoader("privacy_table", str(ROOT / "scripts" / "privacy-table"))
    module = module_from_spec(spec_from_loader("privacy_table", loader))
    loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_declarations(script):
    """If this fails: scripts/privacy-table rewrites them. Then read what the page says around them."""
    assert script.with_tables(PAGE) == PAGE


@pytest.mark.parametrize(
    ("side", "section"), [("Answer", "## What a client sends"), ("Ask", "## What the server sends")]
)
def test_every_field_has_a_line(side, section):
    text = re.split(r"^## ", PAGE.partition(section + "\n")[2], flags=re.MULTILINE)[0]
    named = set(re.findall(r"^\| (\w+) \| `(\w+)` \|", text, re.MULTILINE))
    phases = (*COMMON, *method_of("fmtc-auto").phases)
    assert {(phase.name, name) for phase in phases for name in entries(getattr(phase, side))} <= named


def test_a_table_that_is_out_of_date_is_rewritten_and_nothing_else(script):
    before = PAGE.replace("| Exactly that. |", "| Nothing, really. |")
    assert before != PAGE
    assert script.with_tables(before) == PAGE
    assert script.with_tables("# No table\n\n| a | b |\n") == "# No table\n\n| a | b |\n"


@pytest.mark.parametrize("side", ["Answer", "Ask"])
def test_the_table_has_a_line_for_every_field(script, side):
    phases = (*COMMON, *method_of("fmtc").phases)
    lines = script.privacy_table(phases, side).splitlines()
    assert {line.count(" | ") for line in lines[2:]} == {4}
    named = [tuple(cell.strip(" `") for cell in line.split("|")[1:3]) for line in lines[2:]]
    of_phases = [(phase.name, name) for phase in phases for name in entries(getattr(phase, side))]
    place = [("any", field.name) for field in fields(Message) if field.name != "ask"]
    assert named == ([*of_phases, ("any", "error")] if side == "Answer" else [*place, *of_phases])


def test_links_of_the_page_lead_somewhere():
    """Declarations point to sections of this page."""
    titles = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    places = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= places
    assert {"w", "words", "centres", "survey", "the-outbox"} <= places


def test_nothing_is_called_private_without_saying_of_what():
    """The word stands for a stated ε, or for a key."""
    assert "privacy-preserving" not in PAGE
    page = re.sub("<!--.*?-->", "", PAGE)
    for part in re.split(r"\n\n(?!#)", re.sub(r"(\n#+ .*)\n\n", r"\1\n", page)):  # a heading with what follows it
        if re.search(r"\bprivate\b", part.replace("private key", ""), re.IGNORECASE):
            assert re.search("ε|epsilon|Privacy|colluding|noise", part), part
