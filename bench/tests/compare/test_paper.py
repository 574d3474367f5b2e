"""The paper's numbers, and the arithmetic that docs/paper.md quotes."""

import re
from itertools import product
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from sklearn.metrics import rand_score

from fmtc.metrics import clustering_accuracy
from fmtc_bench.compare import paper
from fmtc_bench.compare.methods import METHODS
from fmtc_bench.datasets import SOURCES

from . import arithmetic

PAGE = (Path(__file__).parents[3] / "docs" / "paper.md").read_text(encoding="utf-8")
SECTION = " ".join(PAGE.partition("## The paper's numbers\n")[2].partition("\n## ")[0].split())
FOUND = arithmetic.findings()


def one_cluster_rand(sizes):
    """Rand index of putting all rows together: the share of pairs of one class."""
    return sum(comb(c, 2) for c in sizes) / comb(sum(sizes), 2)


def test_every_cell_of_both_tables_is_there_under_our_names():
    assert len(paper.IN_SAMPLE) == 7 * 10 * 3
    assert len(paper.OUT_OF_SAMPLE) == len(paper.AGAIN) == 6 * 9 * 3
    assert set(paper.METHODS) <= set(METHODS)
    assert set(paper.DATASETS) <= set(SOURCES)
    assert all(0 <= value <= 10_000 for table in (paper.IN_SAMPLE, paper.OUT_OF_SAMPLE) for value in table.values())
    assert paper.printed("20newsgroups", "fmtc", "acc", "out") == 0.7916
    assert paper.printed("yale", "fmtc", "ri") == 0.6728
    assert paper.printed("yale", "fmtc", "acc", "out") is None
    assert paper.printed("webkb4", "sfomvc", "acc", "out") is None


@given(st.integers(1, 10_000), st.integers(0, 10_000))
def test_a_multiple_is_one_for_some_factor_of_two_decimals(inside, outside):
    misses = np.abs(inside * np.arange(100 * outside // inside + 3) - 100 * outside)
    assert bool(arithmetic._fits(inside, outside)) == (misses.min() <= 50)


def test_no_more_multiples_than_chance_where_there_are_none(monkeypatch):
    rng = np.random.default_rng(1)
    moved = {cell: int(rng.integers(value + 1)) for cell, value in paper.AGAIN.items()}
    monkeypatch.setattr(paper, "OUT_OF_SAMPLE", moved)
    found = arithmetic.multiples(tuple(m for m in paper.METHODS if m != "fmtc"))
    assert found["multiples"] == pytest.approx(found["expected"], abs=8)


def least_of_all_labellings(y, n_clusters=3):
    labels = np.array([(0, *rest) for rest in product(range(n_clusters), repeat=len(y) - 1)])
    i, j = np.triu_indices(len(y), 1)
    return ((labels[:, i] == labels[:, j]) == (y[i] == y[j])).mean(axis=1).min()


@pytest.mark.parametrize("sizes", [(3, 2, 2), (2, 2, 2), (4, 4), (4, 2, 1), (6, 1)])
def test_no_labelling_is_below_the_least_rand_index(sizes):
    y = np.repeat(np.arange(len(sizes)), sizes)
    reached = least_of_all_labellings(y)
    assert reached >= arithmetic.least_rand(sizes) - 1e-12
    if max(sizes) <= sum(sizes) / 2:
        assert reached == pytest.approx(arithmetic.least_rand(sizes))  # one cluster is the worst
        assert reached == pytest.approx(one_cluster_rand(sizes))


def test_the_least_rand_index_is_nearly_reached_where_a_class_has_the_majority():
    sizes = np.array([244, 153, 86, 558])
    y = np.repeat(np.arange(4), sizes)
    labels = np.zeros(len(y), dtype=int)
    labels[-(558 - 483) :] = np.arange(
        1, 558 - 483 + 1
    )  # as many of the majority as of the rest together, others alone
    assert rand_score(y, labels) == pytest.approx(arithmetic.least_rand(tuple(sizes.tolist())), abs=1e-3)
    assert rand_score(y, labels) < one_cluster_rand(tuple(sizes.tolist()))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 6), st.integers(1, 5), st.integers(1, 8), st.integers(0, 10**6))
def test_no_labelling_is_below_what_its_accuracy_allows(n_classes, size, n_clusters, seed):
    y = np.repeat(np.arange(n_classes), size)
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_clusters, size=len(y))
    labels[rng.random(len(y)) < rng.random()] = 0  # often one large cluster
    least = arithmetic.least_rand_given_accuracy(clustering_accuracy(y, labels), n_classes, size)
    assert rand_score(y, labels) >= least - 1e-12


def test_perfect_and_single_clusters_meet_the_bounds():
    y = np.repeat(np.arange(15), 11)
    assert arithmetic.least_rand_given_accuracy(1.0, 15, 11) == pytest.approx(1)
    assert rand_score(y, np.zeros(165)) == pytest.approx(one_cluster_rand((11,) * 15))


# ----------------------------------------------------------------------------------- what docs/paper.md quotes


def says(*words):
    missing = [str(word) for word in words if str(word) not in SECTION]
    assert not missing, f"docs/paper.md does not say {missing}"


def test_the_page_counts_the_multiples():
    others, own = FOUND["baselines"], FOUND["fmtc"]
    says(f"{others['multiples']} of the {others['cells']}", f"{own['multiples']} of {own['cells']}")
    says(
        f"{others['expected']:.1f} by chance", f"{others['shuffled']:.1f} on average", f"most {others['most_shuffled']}"
    )
    rest = [cell for cell in others["others"] if cell != ("reuters", "fedspectral", "nmi")]
    near = [min(abs(paper.AGAIN[c] * f / 100 - paper.OUT_OF_SAMPLE[c]) for f in range(101)) / 100 for c in rest]
    assert sum(gap <= 0.02 for gap in near) == 8
    says("Eight of the other ten miss such a product by 0.02 or less")
    assert round(63.37 * 0.78, 2) == 49.43
    says("63.37 × 0.78 = 49.43")


def test_the_page_names_every_number_that_stands_twice_or_rises():
    assert [line["value"] for line in FOUND["one_number_two_scores"]] == [7130, 7571]
    says("71.30", "75.71")
    assert FOUND["higher_out_of_sample"] == [("20newsgroups", "fmtc", "acc"), ("reuters", "fedspectral", "nmi")]
    says("79.16", "15.14", "33.86")
    assert FOUND["table_2_repeats_table_1"]
    says("all 162")


def test_the_page_has_the_bounds_of_the_rand_index():
    (line,) = FOUND["rand_below_least"]
    says(f"{line['value'] / 100:.2f}", f"{100 * line['least']:.1f}")
    says(f"{100 * one_cluster_rand(paper.CLASS_SIZES['webkb4']):.1f}")
    rows = re.findall(r"\| (\S+) \| (\d+\.\d\d) \| (\d+\.\d\d) \| (\d+\.\d) \|", SECTION)
    titles = [METHODS[name].title.removesuffix(" (adapted)") for name in paper.METHODS]
    assert [row[0] for row in rows] == titles
    expected = [
        (f"{line['acc'] / 100:.2f}", f"{line['value'] / 100:.2f}", f"{100 * line['least']:.1f}")
        for line in FOUND["rand_below_accuracy_allows"]
    ]
    assert [row[1:] for row in rows] == expected
    assert len(expected) == 10
    y = np.repeat(np.arange(15), 11)
    independent = 1 / 225 + (14 / 15) ** 2
    says(f"{100 * independent:.0f} %")
    random = rand_score(y, np.random.default_rng(0).integers(15, size=165))
    assert random == pytest.approx(independent, abs=0.01)


def test_the_page_tells_how_far_clients_would_have_to_differ():
    bound = lambda accuracy: arithmetic.least_rand_given_accuracy(accuracy, 15, 11)  # noqa: E731
    apart = brentq(lambda d: (bound(0.6035 - d) + bound(0.6035 + d)) / 2 - 0.6728, 0, 0.39)
    says(f"{100 * (0.6035 - apart):.0f} and {100 * (0.6035 + apart):.0f} %")


def test_the_page_counts_round_endings_and_gains():
    count = FOUND["round_endings"]["sfomvc"]
    says(f"{count['round']} of its {count['cells']}")
    others = [c["round"] for name, c in FOUND["round_endings"].items() if name != "sfomvc"]
    says(f"{min(others)} to {max(others)}")
    gain = FOUND["gains"]["reuters"]
    assert (gain["text"], gain["over_better"]) == (713, 423)
    assert all(g["text"] <= g["over_better"] for name, g in FOUND["gains"].items() if name != "reuters")
    alone, union = (paper.IN_SAMPLE["reuters", name, "acc"] for name in ("stsc", "usc"))
    assert abs(paper.IN_SAMPLE["reuters", "fmtc", "acc"] - (alone + union) / 2 - 713) < 1
    says("7.13", "4.23")
    assert paper.IN_SAMPLE["20newsgroups", "mtsc", "acc"] > paper.IN_SAMPLE["20newsgroups", "fmtc", "acc"]
    says("72.32")
