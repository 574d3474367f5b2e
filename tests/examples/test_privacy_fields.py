"""docs/privacy.md names every field of every message: a new leak needs a new line."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from fmtc.steps import Downlink, Uplink

PAGE = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("message", "section"), [(Uplink, "## What a client sends"), (Downlink, "## What the server sends")]
)
def test_every_field_has_a_line(message, section):
    text = re.split(r"^## ", PAGE.partition(section + "\n")[2], flags=re.MULTILINE)[0]
    named = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert named == [field.name for field in fields(message)]


def test_nothing_is_called_private_without_saying_of_what():
    assert re.findall(r"\bprivate\b|\bprivacy-preserving\b", PAGE, re.IGNORECASE) == []
