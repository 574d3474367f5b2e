"""Tests of significance, against textbooks and scipy."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import friedmanchisquare, rankdata

from fmtc_bench.compare.statistics import friedman_nemenyi, holm, wilcoxon_holm


def test_the_critical_difference_of_demsars_example():
    """Four methods on 14 data sets: 1.25 at 5 % and 1.12 at 10 % (JMLR 2006, section 3.2.2)."""
    scores = {name: np.random.default_rng(j).random(14) for j, name in enumerate("abcd")}
    assert friedman_nemenyi(scores)["critical_difference"] == pytest.approx(1.25, abs=0.005)
    assert friedman_nemenyi(scores, alpha=0.1)["critical_difference"] == pytest.approx(1.12, abs=0.005)


@pytest.mark.parametrize(("k", "q"), [(3, 2.343), (4, 2.569), (5, 2.728), (7, 2.949), (10, 3.164)])
def test_critical_values_are_those_of_the_table(k, q):
    scores = {str(j): np.random.default_rng(j).random(6) for j in range(k)}
    assert friedman_nemenyi(scores)["critical_difference"] == pytest.approx(q * np.sqrt(k * (k + 1) / 36), abs=2e-3)


def test_friedman_is_scipys_and_failures_come_last():
    rng = np.random.default_rng(0)
    scores = {name: rng.random(8) for name in "abcd"}
    found = friedman_nemenyi(scores)
    mean = np.array(list(found["ranks"].values()))
    assert found["statistic"] == pytest.approx(12 * 8 / (4 * 5) * (np.square(mean).sum() - 4 * 25 / 4))  # the book's
    assert (found["statistic"], found["p_value"]) == pytest.approx(tuple(friedmanchisquare(*scores.values())))
    scores["b"] = np.full(8, np.nan)
    assert friedman_nemenyi(scores)["ranks"]["b"] == 4
    same = friedman_nemenyi({name: [0.5, 0.6] for name in "abc"})
    assert (same["p_value"], same["groups"]) == (1.0, [["a", "b", "c"]])


def test_groups_are_all_largest_runs_within_the_critical_difference():
    rng = np.random.default_rng(3)
    scores = {str(j): rng.random(12) + 0.15 * j for j in range(7)}
    found = friedman_nemenyi(scores)
    ranks, names = found["ranks"], list(found["ranks"])
    inside = {
        (i, j) for i in range(7) for j in range(i + 1, 7)
        if ranks[names[j]] - ranks[names[i]] < found["critical_difference"]
    }  # fmt: skip
    largest = [(i, j) for i, j in sorted(inside) if not {(i - 1, j), (i, j + 1)} & inside]
    assert found["groups"] == [names[i : j + 1] for i, j in largest]
    assert len(largest) > 1


def test_wilcoxon_is_the_share_of_sign_patterns_that_are_as_extreme():
    first, second = np.array([0.9, 0.7, 0.8, 0.85, 0.6, 0.75]), np.array([0.5, 0.72, 0.7, 0.6, 0.45, 0.7])
    (line,) = wilcoxon_holm({"a": first, "b": second})
    gap = first - second
    ranks = rankdata(abs(gap))
    seen = abs((np.sign(gap) * ranks).sum())
    patterns = [abs((np.array(signs) * ranks).sum()) for signs in product([-1, 1], repeat=6)]
    assert line["p_value"] == pytest.approx(np.mean(np.array(patterns) >= seen - 1e-9))
    assert (line["first"], line["wins"], line["losses"]) == ("a", 5, 1)
    assert line["difference"] == pytest.approx(gap.mean())


def test_one_against_all_or_all_pairs():
    scores = {name: np.random.default_rng(j).random(10) for j, name in enumerate("abcd")}
    scores["e"] = scores["d"]
    assert len(wilcoxon_holm(scores)) == 10
    against = wilcoxon_holm(scores, against="d")
    assert {line["second"] for line in against} == set("abce")
    assert {line["first"] for line in against} == {"d"}
    assert against[-1]["second"] == "e"
    assert against[-1]["p_value"] == 1.0
    assert [line["p_holm"] for line in against] == pytest.approx(holm([line["p_value"] for line in against]))
    failed = wilcoxon_holm({"a": [0.9] * 6, "b": [np.nan] * 6})
    assert (failed[0]["wins"], round(failed[0]["difference"], 9)) == (6, 0.9)
    below = wilcoxon_holm({"a": [-0.1] * 6, "b": [-0.2] * 6, "c": [np.nan] * 6}, against="a")
    assert {line["second"]: line["wins"] for line in below} == {"b": 6, "c": 0}  # nothing counts 0


def test_holm_steps_down():
    # by hand: sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1, never falling
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match=r"\[2, 3\]"):
        friedman_nemenyi({"a": [1, 2, 3], "b": [1, 2], "c": [1, 2]})
    with pytest.raises(ValueError, match="2 and 3"):
        friedman_nemenyi({"a": [1, 2, 3], "b": [1, 2, 3]})
    with pytest.raises(ValueError, match="'z'"):
        wilcoxon_holm({"a": [1, 2], "b": [1, 2]}, against="z")
