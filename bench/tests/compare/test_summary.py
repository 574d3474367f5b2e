import math

import pytest

from fmtc_bench.compare.summary import mean_ranks, summarise


def row(method="kmeans", acc=0.5, *, dataset="d", trial="default", split=0, seed=0, status="ok", ri=0.9):
    part = {"mean": {"acc": acc, "nmi": acc / 2, "ri": ri, "ari": 0.0, "ri_one_cluster": 0.3}}
    about = {"dataset": dataset, "method": method, "trial": trial, "split": split, "seed": seed, "status": status}
    return about | ({"train": part, "test": part, "vote": part, "seconds_fit": 2.0} if status == "ok" else {})


def test_mean_over_seeds_then_deviation_over_splits():
    accs = {(0, 0): 0.1, (0, 1): 0.3, (1, 0): 0.4, (1, 1): 0.8}
    (entry,) = summarise([row(acc=a, split=s, seed=r) for (s, r), a in accs.items()])
    assert entry["in"] == pytest.approx(0.4)
    assert entry["in_sd"] == pytest.approx(math.sqrt(2 * 0.2**2))  # of 0.2 and 0.6
    assert entry["n"] == 4
    (single,) = summarise([row()])
    assert math.isnan(single["in_sd"])
    assert summarise([row(acc=0.5)], score="nmi")[0]["out"] == 0.25


def test_the_oracle_is_the_best_trial_on_training_rows_and_says_so():
    rows = [row(acc=0.5), row(acc=0.4, trial="0"), row(acc=0.7, trial="1"), row(acc=0.6, trial="1", split=1)]
    default, oracle = summarise(rows)
    assert (default["mode"], default["trial"], default["in"]) == ("default", "default", 0.5)
    assert (oracle["mode"], oracle["trial"]) == ("oracle", "1")
    assert oracle["in"] == pytest.approx(0.65)
    assert summarise([row(acc=0.9), row(acc=0.4, trial="0")])[1]["trial"] == "default"


def test_failed_rows_are_counted_not_hidden():
    (entry,) = summarise([row(acc=0.5), row(split=1, status="failed")])
    assert (entry["n"], entry["failed"], entry["in"]) == (1, 1, 0.5)
    (entry,) = summarise([row(status="timeout")])
    assert entry["n"] == 0
    assert math.isnan(entry["in"])


def test_one_big_cluster_is_seen():
    assert summarise([row(ri=0.31)])[0]["collapsed"]
    assert not summarise([row(ri=0.33)])[0]["collapsed"]
    assert not summarise([row(ri=0.31), row(ri=0.9, split=1)])[0]["collapsed"]


def test_ranks_share_ties_and_put_failures_last():
    rows = [row("fmtc", 0.9), row("stsc", 0.5), row("usc", 0.5), row("mbc", status="failed")]
    rows += [row(name, acc, dataset="e") for name, acc in (("fmtc", 0.1), ("stsc", 0.2), ("usc", 0.3), ("mbc", 0.4))]
    ranks = mean_ranks(summarise(rows))
    assert ranks == {"fmtc": (1 + 4) / 2, "stsc": (2.5 + 3) / 2, "usc": (2.5 + 2) / 2, "mbc": (4 + 1) / 2}
    assert mean_ranks([]) == {}


def test_a_method_that_never_succeeded_has_no_rank():
    assert mean_ranks(summarise([row("fmtc", status="failed")])) == {}
    rows = [row("fmtc", status="timeout"), row("stsc", 0.5), row("usc", 0.4)]
    assert mean_ranks(summarise(rows)) == {"stsc": 1.0, "usc": 2.0}


def test_a_data_set_on_which_all_failed_does_not_count():
    rows = [row("stsc", 0.5), row("usc", 0.4), row("stsc", status="failed", dataset="e")]
    rows += [row("usc", status="failed", dataset="e")]
    assert mean_ranks(summarise(rows)) == {"stsc": 1.0, "usc": 2.0}


def test_a_failed_split_is_a_failure_in_the_ranks():
    """The mean of the splits that worked may be the mean of the easy ones."""
    rows = [row("fmtc", 0.9), row("fmtc", split=1, status="failed")]
    rows += [row(name, acc, split=split) for split in (0, 1) for name, acc in (("stsc", 0.5), ("usc", 0.4))]
    assert mean_ranks(summarise(rows)) == {"fmtc": 3.0, "stsc": 1.0, "usc": 2.0}


def test_unknown_scores_are_refused():
    with pytest.raises(ValueError, match="'f1'"):
        summarise([], score="f1")
