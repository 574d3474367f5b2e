"""The test federations brought down to an answer, against numbers computed by hand."""

import numpy as np
import pytest

from fmtc_bench.compare import comparison, evidence, results
from fmtc_bench.compare.methods import METHODS
from fmtc_bench.compare.statistics import bootstrap_interval

EVEN, SKEWED, MISSING, VOWEL, GLASS = (
    "letter?dealing=even,rows=300", "letter?dealing=skewed,rows=300", "letter?dealing=missing,rows=300",
    "vowel?rows=300", "glass?dealing=even,rows=300",
)  # fmt: skip
ARI = {  # of each federation
    "fmtc": (0.6, 0.5, 0.4, 0.8, 0.3),
    "fmtc-average": (0.6, 0.3, 0.3, 0.7, 0.4),
    "kmeans": (0.5, 0.4, 0.3, 0.85, 0.2),
    "stsc": (0.2, 0.2, 0.2, 0.2, 0.2),
    "usc": (0.9, 0.9, 0.9, 0.9, 0.9),
    "random": (0.0, 0.0, 0.0, 0.0, 0.0),
}


@pytest.fixture
def rows(few, row):
    """Three splits around these scores."""
    return [
        row(data, method, split=split, ari=ari + (split - 1) / 100)
        for method, line in ARI.items()
        for data, ari in zip(few, line, strict=True)
        for split in range(3)
    ]


def line_of(entry, name):
    (found,) = [line for line in entry["lines"] if line["name"] == name]
    return found


# --------------------------------------------------------------------------------------------------------- means


def test_means_are_of_splits_then_of_federations_then_of_data_sets(rows):
    federated = comparison.by_federation(rows, "ari")
    assert list(federated) == [name for name in METHODS if name in ARI]
    assert federated["fmtc"] == pytest.approx(
        dict(zip((EVEN, SKEWED, MISSING, VOWEL, GLASS), ARI["fmtc"], strict=True))
    )
    sets = comparison.by_dataset(federated)
    assert sets["fmtc"] == pytest.approx({"letter": 0.5, "vowel": 0.8, "glass": 0.3})
    entry = comparison.compare(rows, "ari")
    assert (entry["federations"], entry["datasets"]) == (5, 3)
    assert line_of(entry, "fmtc")["mean"] == pytest.approx((0.5 + 0.8 + 0.3) / 3)  # not of the five


def test_a_split_that_failed_counts_nothing_and_does_not_go_away(few, row):
    rows = [row(data, name, ari=0.6, split=s) for data in few for name in ("fmtc", "kmeans") for s in range(3)]
    rows[-1] = row(GLASS, "kmeans", split=2, status="timeout")
    scores = comparison.by_federation(rows, "ari")
    assert scores["kmeans"][GLASS] == pytest.approx(0.4)
    assert scores["kmeans"][EVEN] == scores["fmtc"][GLASS] == pytest.approx(0.6)


def test_only_federations_that_all_were_run_on_count_and_only_defaults(rows, row):
    fewer = [line for line in rows if (line["dataset"], line["method"]) != (VOWEL, "stsc")]
    assert VOWEL not in comparison.by_federation(fewer, "ari")["fmtc"]
    others = [row(EVEN, "fmtc", ari=0.0, trial="1"), row(EVEN, "fmtc/beta=0", ari=0.0), row("letter", "fmtc", ari=0.0)]
    others += [row(EVEN, evidence.SIDE[0], ari=1.0)]  # a question of development
    assert comparison.by_federation([*rows, *others], "ari") == comparison.by_federation(rows, "ari")


def test_each_score_is_read_from_its_place(row):
    one = row(acc=0.6, ari=0.3, inside=0.4)
    assert {name: read(one) for name, (_, read) in comparison.SCORES.items()} == pytest.approx(
        {"ari": 0.3, "acc_frozen": 0.55, "acc": 0.58, "ari_in": 0.4, "acc_in": 0.6}
    )


# ------------------------------------------------------------------------------------------------- FMTC and others


def test_ranks_are_of_those_that_do_not_pool_rows(rows):
    entry = comparison.compare(rows, "ari")
    # places of FMTC on the five federations: 1.5 (with averaging), 1, 1, 2, 2
    assert line_of(entry, "fmtc")["rank"] == pytest.approx((1.5 + 1 + 1 + 2 + 2) / 5)
    assert line_of(entry, "usc")["rank"] is line_of(entry, "random")["rank"] is None
    assert set(entry["friedman"]["ranks"]) == {"fmtc", "fmtc-average", "kmeans", "stsc"}
    assert entry["friedman"]["n"] == 3
    assert entry["friedman"]["ranks"]["fmtc"] == pytest.approx((1 + 2 + 2) / 3)
    blocks = {line["name"]: line["block"] for line in entry["lines"]}
    assert blocks == {"fmtc": "ours", "fmtc-average": "variants", "kmeans": "rivals", "stsc": "rivals",
                      "usc": "pooled", "random": "references"}  # fmt: skip


def test_fmtc_is_ahead_by_the_mean_over_data_sets_and_the_interval_is_of_them(rows):
    entry = comparison.compare(rows, "ari")
    line = line_of(entry, "kmeans")
    gaps = [0.5 - 0.4, 0.8 - 0.85, 0.3 - 0.2]
    assert line["ahead"] == pytest.approx(np.mean(gaps))
    assert (line["low"], line["high"]) == pytest.approx(bootstrap_interval(gaps))
    assert line["low"] < line["ahead"] < line["high"]
    assert (line["wins"], line["losses"]) == (2, 1)


def test_an_interval_is_where_means_of_drawn_data_sets_lie():
    assert bootstrap_interval([0.2] * 5) == pytest.approx((0.2, 0.2))
    # of two numbers a mean is 0, 1/2 or 1, with chances 1/4, 1/2 and 1/4
    assert bootstrap_interval([0.0, 1.0]) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], level=0.4) == (0.5, 0.5)
    assert bootstrap_interval([0.0, 1.0, 5.0]) == bootstrap_interval([0.0, 1.0, 5.0])
    with pytest.raises(ValueError, match="shape"):
        bootstrap_interval([])


def test_holm_corrects_over_all_rivals_and_over_variants_apart(rows):
    entry = comparison.compare(rows, "ari")
    rivals = sorted((line_of(entry, name) for name in ("kmeans", "stsc", "usc")), key=lambda line: line["p_value"])
    raw = [line["p_value"] for line in rivals]
    assert [line["p_holm"] for line in rivals] == pytest.approx(
        list(np.minimum(1, np.maximum.accumulate([3 * raw[0], 2 * raw[1], raw[2]])))
    )
    average = line_of(entry, "fmtc-average")
    assert average["p_holm"] == average["p_value"]  # the only one of its family
    assert line_of(entry, "random")["p_holm"] is line_of(entry, "fmtc")["p_holm"] is None


def test_a_negative_score_is_worse_than_a_less_negative_one(few, row):
    level = {"fmtc": -0.01, "kmeans": -0.02, "stsc": -0.03}
    rows = [row(data, name, ari=ari) for data in few for name, ari in level.items()]
    line = line_of(comparison.compare(rows, "ari"), "kmeans")
    assert (line["wins"], line["losses"]) == (3, 0)


def test_too_little_to_compare_is_said_by_nothing(rows, few):
    assert comparison.compare([], "ari") == {}
    assert comparison.compare([line for line in rows if line["method"] in ("fmtc", "stsc")], "ari") == {}
    assert comparison.compare([line for line in rows if line["dataset"] == EVEN], "ari") == {}
    assert comparison.compare([line for line in rows if line["method"] != "fmtc"], "ari") == {}
    assert comparison.main_table([]) == comparison.page([]) == comparison.settings_table([]) == ""
    assert results.tested([]) == {}


# ----------------------------------------------------------------------------------------- averaging, losses, kinds


def test_averaging_where_silos_differ_and_where_they_are_alike(rows):
    differ, alike = comparison.personal_or_average(rows, "ari")
    # letter: mean of skewed and missing; vowel; glass has even silos only
    assert (differ["where"], differ["datasets"]) == ("silos differ", 2)
    assert differ["ahead"] == pytest.approx(((0.45 - 0.3) + (0.8 - 0.7)) / 2)
    assert (alike["where"], alike["datasets"]) == ("silos alike", 2)
    assert alike["ahead"] == pytest.approx(((0.6 - 0.6) + (0.3 - 0.4)) / 2)
    assert alike["low"] <= alike["ahead"] <= alike["high"]
    without = [line for line in rows if line["method"] != "fmtc-average"]
    assert comparison.personal_or_average(without, "ari") == []


def test_far_below_are_federations_by_more_than_three_points_the_worst_first(rows, row):
    assert [(line["federation"], round(line["gap"], 6)) for line in comparison.far_below(rows, "ari")] == [
        (VOWEL, -0.05)
    ]
    worse = [line for line in rows if (line["dataset"], line["method"]) not in ((GLASS, "fmtc"), (EVEN, "fmtc"))]
    worse += [row(GLASS, "fmtc", ari=0.0), row(EVEN, "fmtc", ari=0.475)]  # 2.5 points are few enough
    assert [line["federation"] for line in comparison.far_below(worse, "ari")] == [GLASS, VOWEL]
    assert comparison.far_below([line for line in rows if line["method"] == "fmtc"], "ari") == []
    table = comparison.below_table(worse)
    assert "| glass, even | ARI, held-out rows | 0.0 | 20.0 | -20.0 |" in table
    assert comparison.below_table([]) == "None."


def test_kinds_and_dealings_are_means_of_their_data_sets(rows):
    found = {group["group"]: group for group in comparison.by_kind(rows, "ari", ["fmtc", "kmeans"])}
    assert list(found) == ["tables", "speech", "dealt: even", "dealt: skewed", "dealt: missing", "natural silos"]
    assert found["tables"]["means"] == pytest.approx({"fmtc": (0.5 + 0.3) / 2, "kmeans": (0.4 + 0.2) / 2})
    assert found["dealt: even"]["means"]["fmtc"] == pytest.approx((0.6 + 0.3) / 2)
    assert (found["dealt: skewed"]["datasets"], found["natural silos"]["datasets"]) == (1, 1)


# -------------------------------------------------------------------------------------------------------- settings


def test_settings_chosen_on_the_other_data_sets_and_by_the_labels_themselves(few, row):
    """Two draws and the default on three data sets, one split: outside / inside."""
    table = {
        "default": ((0.50, 0.1), (0.50, 0.1), (0.50, 0.1)),
        "0": ((0.90, 0.5), (0.40, 0.2), (0.40, 0.9)),  # the best of all by far on the first
        "1": ((0.10, 0.3), (0.60, 0.0), (0.55, 0.2)),
    }
    places = (EVEN, VOWEL, GLASS)
    rows = [
        row(data, "stsc", trial=trial, ari=outside, inside=inside)
        for trial, line in table.items()
        for data, (outside, inside) in zip(places, line, strict=True)
    ]
    rows += [row(EVEN, "stsc", split=1, ari=0.0), row(SKEWED, "stsc", trial="1", ari=1.0)]  # neither counts
    (found,) = comparison.chosen_settings(rows)
    assert (found["method"], found["datasets"], found["draws"]) == ("stsc", 3, 2)
    assert found["default"] == pytest.approx(0.5)
    # for letter the others say 1 (.6 + .55), for vowel 0 (.9 + .4), for glass 0 (.9 + .4)
    assert found["others"] == pytest.approx((0.10 + 0.40 + 0.40) / 3)
    # by training rows all take 0
    assert found["oracle"] == pytest.approx((0.90 + 0.40 + 0.40) / 3)
    rows[4] = row(VOWEL, "stsc", trial="0", status="failed")  # counts nothing, and is not picked
    (found,) = comparison.chosen_settings(rows)
    assert found["oracle"] == pytest.approx((0.90 + 0.50 + 0.40) / 3)


def test_of_equal_settings_the_default_is_chosen_whatever_the_order(few, row):
    rows = [
        row(data, "stsc", trial=trial, ari=0.5, inside=0.5) for data in few for trial in ("default", "0", "10", "2")
    ]
    rows += [
        row(data, "stsc", trial="11", ari=ari, inside=0.5) for data, ari in zip(few, (0.9, 0, 0, 0.1, 0), strict=True)
    ]
    one, other = (comparison.chosen_settings(lines) for lines in (rows, rows[::-1]))
    assert one == other
    assert one[0]["oracle"] == pytest.approx(0.5)


def test_a_method_without_draws_has_no_line(few, row):
    rows = [row(data, "stsc", ari=0.5) for data in few]
    assert comparison.chosen_settings(rows) == []
    assert comparison.chosen_settings([*rows, row(EVEN, "stsc", trial="0", ari=0.4)]) == []  # one data set


# ---------------------------------------------------------------------------------------------------------- in words


def test_the_table_has_every_method_in_its_block(rows):
    lines = comparison.main_table(rows).splitlines()
    names = [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]]
    assert [name.split(" |")[0] for name in names] == [
        "**FMTC**", "*do not pool rows*", "k-means alone", "stSC", "*variants of FMTC*", "FMTC, averaging",
        "*pooled reference: all rows in one place*", "uSC", "*what a score is worth*", "random labels",
    ]  # fmt: skip
    assert {line.count("|") for line in lines} == {11}
    assert lines[2].startswith("| **FMTC** | 53.3 | 1.5 |  |  | 45.0 |")
    alone = line_of(comparison.compare(rows, "ari"), "kmeans")
    assert (
        f"| 48.3 | {alone['rank']:.1f} | +5.0 ({100 * alone['low']:+.1f} to {100 * alone['high']:+.1f}) | " in lines[4]
    )


def test_the_page_says_all_of_it_and_no_p_value_over_splits(all_rows):
    text = comparison.page(all_rows)
    for heading in ("Personal models or plain averaging", "By kind of data and of silos", "Settings chosen with labels",
                    "More than three points below k-means alone", "Each federation"):  # fmt: skip
        assert f"## {heading}" in text
    assert "over data sets" in text
    assert "split" not in text
    table = comparison.federation_table(all_rows)
    assert len(table.splitlines()) == 2 + len(evidence.FEDERATIONS)
    assert all("**" in line for line in table.splitlines()[2:])


def test_captions_say_what_the_rows_say(rows, all_rows, row):
    found = results.captions(rows)
    assert set(found) == {"clouds", *(f"{name}_{score}" for score in comparison.PRIMARY
                                      for name in ("critical_difference", "intervals", "gains"))}  # fmt: skip
    assert "ahead on 2 and behind on 1 of 3, +5.0 points" in found["gains_ari"]
    assert "above 0 for 1, has 0 in it for 1, and is below for 0" in found["intervals_ari"]
    assert "FMTC is number 1 of 4 methods that do not pool rows, with 1.67" in found["critical_difference_ari"]
    everything = results.captions(all_rows)
    assert {"convergence", "sensitivity", "ablations", "inside_outside_acc"} <= set(everything)
    few = [row("webkb4", "fmtc", 0.8), row("webkb4", "stsc", 0.7), row("yale", "fmtc", 0.5), row("yale", "stsc", 0.6)]
    few += [row("webkb4", "fmtc/align=False", 0.7), row("webkb4", "fmtc/beta=0", 0.9)]
    few[1]["test"]["mean"]["acc"] = 0.99
    told = results.captions(few)
    assert "on 1 of 2 data sets by training rows, on 0 by held-out rows" in told["inside_outside_acc"]
    assert "largest loss is by align False (-10.0 points), the largest gain by beta 0 (+10.0)" in told["ablations"]


def test_federations_of_the_first_comparison_stand_apart(monkeypatch):
    names = ("a?dealing=even", "a?dealing=skewed", "b")
    monkeypatch.setattr(comparison, "FIRST", names)

    def row(name, method, ari, **other):
        test = {"mean": {"ari": ari, "acc": ari}, "acc_frozen": ari / 2}
        return {"dataset": name, "method": method, "trial": "default", "status": "ok", "test": test} | other

    rows = [row(name, "fmtc", ari) for name, ari in zip(names, (0.2, 0.4, 0.9), strict=True)]
    rows += [row(name, "kmeans", 0.5) for name in names] + [row("b", "fmtc", 0.0, trial="3"), row("c", "fmtc", 0.0)]
    assert comparison.first_table(rows).splitlines()[2:] == [
        "| FMTC | 60.0 | 30.0 | 2 |",
        "| k-means alone | 50.0 | 25.0 | 2 |",
    ]
    assert comparison.first_table(rows[3:]).splitlines()[2:] == ["| k-means alone | 50.0 | 25.0 | 2 |"]
    assert comparison.first_table([]) == ""
