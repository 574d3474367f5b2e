"""The federations kept for the end: what they are called, and that nothing else is measured on them."""

import numpy as np
import pytest

from fmtc.errors import DatasetError
from fmtc_bench.compare import evidence
from fmtc_bench.compare.concepts import advice
from fmtc_bench.compare.federations import DEVELOPMENT, FIRST_SETS, HELD_OUT, KIND, TEST, TEST_SETS, title
from fmtc_bench.compare.protocol import dataset, settings_of
from fmtc_bench.datasets import SOURCES
from fmtc_bench.datasets.base import find

HERE = [found for found in TEST_SETS if find(SOURCES[found.name]) is not None]


def test_there_are_enough_of_every_kind():
    assert len(HELD_OUT) == len(TEST_SETS) >= 24
    assert set(KIND.values()) == {"tables", "sensors", "cells", "speech", "pictures", "text"}
    assert len(set(TEST)) == len(TEST) == len({title(name) for name in TEST})
    assert all(found.origin for found in TEST_SETS)


def test_names_are_what_the_protocol_reads():
    for name in TEST:
        base, _, text = name.partition("?")
        assert base in KIND
        options = settings_of(text, name) if text else {}
        assert set(options) <= set(SOURCES[base].options)
        assert ("dealing" in SOURCES[base].options) == bool(text)


def test_natural_silos_are_one_federation_and_two_classes_are_dealt_twice():
    for found in TEST_SETS:
        assert len(found.federations) == (1 if found.natural else 2 if found.n_classes == 2 else 3)


def test_what_the_first_comparison_looked_at_is_development():
    assert len(FIRST_SETS) == 30 and {found.comparison for found in FIRST_SETS} == {1}
    assert {found.comparison for found in TEST_SETS} == {2}
    assert {DEVELOPMENT[found.name] for found in FIRST_SETS} == {"test set of the first comparison"}
    assert not {found.name for found in FIRST_SETS} & HELD_OUT


def test_no_set_is_for_both():
    assert not HELD_OUT & set(DEVELOPMENT)
    assert set(SOURCES) - HELD_OUT - set(DEVELOPMENT) == {"core50", "keck", "core50_sample"}  # no copy, or too small
    assert not HELD_OUT & set(evidence.DATASETS)


def test_advice_is_not_measured_on_held_out_sets(monkeypatch):
    asked = []

    def load(name):
        asked.append(name)
        raise DatasetError("not here")

    monkeypatch.setattr(advice, "load", load)
    assert advice.measure([0], lambda _: None, dealt=()) == []
    assert "webkb4" in asked and not (HELD_OUT | {found.name for found in FIRST_SETS}) & set(asked)


@pytest.mark.skipif(not HERE, reason="none of the test sets is on this machine: fmtc-bench data fetch --group test")
def test_each_federation_on_this_machine_has_the_classes_and_rows_it_should():
    smallest = {}
    for found in HERE:
        if KIND[found.name] == "text":
            continue  # slow to read; the page of data sets is checked against them
        for name in found.federations:
            data = dataset(name)
            counts = np.array([list(row.values()) for row in data.class_counts().values()])
            assert data.n_clusters == found.n_classes, name
            assert counts.sum(axis=1).min() >= 30, name
            lacking = (counts == 0).any()
            assert lacking == name.endswith("missing") or found.natural, name
            smallest[name] = counts.sum(axis=1).min()
    assert smallest or all(found.kind == "text" for found in HERE)
