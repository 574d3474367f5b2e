"""The tables of docs/reference/datasets.md say what the loaders give."""

import os
import re
from pathlib import Path

import pytest

from fmtc_bench.compare.federations import FIRST_SETS, TEST_SETS
from fmtc_bench.datasets import SOURCES, load
from fmtc_bench.datasets.base import find

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "datasets.md").read_text()
ROWS = {
    line.split("`")[1]: [c.strip() for c in line.strip("|").split("|")]
    for line in re.findall(r"^\| `.*$", PAGE, re.MULTILINE)
}


def test_every_data_set_is_in_the_table():
    assert set(ROWS) == set(SOURCES)
    assert all(ROWS[found.name][-1] == found.kind for found in (*FIRST_SETS, *TEST_SETS))


@pytest.mark.skipif(not os.environ.get("FMTC_DATA"), reason="FMTC_DATA names no folder with data sets")
def test_numbers_are_those_of_the_data():
    checked = 0
    for name, (_, clients, sizes, d, classes, per_client, _) in ROWS.items():
        if find(SOURCES[name]) is None:
            assert sizes == "not at hand" or SOURCES[name].package
            continue
        data = load(name)
        counts = data.class_counts()
        filled = sorted({sum(n > 0 for n in row.values()) for row in counts.values()})
        assert clients.startswith(f"{len(counts)} ")
        assert sizes == ", ".join(str(sum(row.values())) for row in counts.values())
        assert int(d) == data.split()[0].X.shape[1]
        assert int(classes) == data.n_clusters
        assert per_client == "–".join(map(str, [filled[0], filled[-1]][: len(filled)]))
        checked += 1
    assert checked >= 5
