"""docs/reference/baselines.md names every baseline, and every baseline says where it is from."""

import re
from pathlib import Path

import pytest

from fmtc_bench import baselines
from fmtc_bench.compare.methods import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "baselines.md").read_text()
CLASSES = sorted(set(baselines.__all__) - {"Baseline"})


def test_the_table_has_every_class():
    assert sorted(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == CLASSES


@pytest.mark.parametrize("name", CLASSES)
def test_every_baseline_states_its_problem_its_source_and_an_example(name):
    doc = getattr(baselines, name).__doc__
    assert ">>>" in doc
    assert "Parameters\n" in doc
    if not name.startswith("KMeans") and name != "USC":  # USC is StSC on the union
        assert "Provenance: " in doc
        assert re.search(r"\b(19|20)\d\d\b", doc) or name == "FedMTSC"  # a year: what to cite


def test_every_method_of_the_paper_is_compared():
    titles = {method.title for method in METHODS.values() if method.group == "paper"}
    printed = {"stSC", "MBC", "SMBC", "SMKC", "MTSC", "SFOMVC-H", "Fed-kmeans", "FedSpectral+ (adapted)"}
    assert titles == printed
    assert METHODS["usc"].title == "uSC"  # compared as well, with all rows in one place
