from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, rand_score

from fmtc.errors import InputError
from fmtc.metrics import clustering_accuracy, clustering_scores, match_classes, score_silos

LABELLINGS = st.integers(2, 30).flatmap(
    lambda n: st.tuples(*2 * [st.lists(st.integers(0, 4), min_size=n, max_size=n).map(np.array)])
)


def brute_accuracy(truth, found):
    """Best share over all one-to-one renamings of the side with fewer names."""
    classes, clusters = np.unique(truth), np.unique(found)
    if len(clusters) > len(classes):
        truth, found, classes, clusters = found, truth, clusters, classes
    best = 0
    for names in permutations(classes, len(clusters)):
        renamed = dict(zip(clusters, names, strict=True))
        best = max(best, sum(renamed[f] == t for f, t in zip(found, truth, strict=True)))
    return best / len(truth)


@pytest.mark.parametrize(("n_classes", "n_clusters"), [(3, 3), (2, 4), (4, 2), (5, 5), (1, 3)])
def test_accuracy_is_the_best_over_all_renamings(rng, n_classes, n_clusters):
    for _ in range(10):
        truth, found = rng.integers(n_classes, size=30), rng.integers(n_clusters, size=30)
        accuracy = clustering_accuracy(truth, found)
        assert_allclose(accuracy, brute_accuracy(truth, found), rtol=1e-12)
        assert_allclose(clustering_accuracy(found, truth), accuracy, rtol=1e-12)
        names = np.array(list("vwxyz"))
        assert_allclose(clustering_accuracy(truth, names[found]), accuracy, rtol=1e-12)


def test_a_greedy_matching_would_be_worse():
    truth = [0] * 5 + [1] * 4
    found = [0] * 3 + [1] * 2 + [0] * 4  # the largest overlap, class 1 with cluster 0, is part of the best matching
    assert clustering_accuracy(truth, found) == 6 / 9
    table = np.array([[10, 9], [9, 0]])  # greedy: 10 + 0; best: 9 + 9
    truth, found = (np.repeat(side, table.ravel()) for side in ([0, 0, 1, 1], [0, 1, 0, 1]))
    assert clustering_accuracy(truth, found) == 18 / 28


def test_perfect_agreement_under_any_names():
    assert clustering_accuracy(["a", "b", "b", "c"], [7, 3, 3, 5]) == 1
    assert clustering_accuracy([0, 0], [1, 1]) == 1


def test_scores_of_each_client_and_their_plain_mean(rng):
    clients = np.repeat(["x", "y", "z"], [10, 20, 70])
    truth, found = rng.integers(3, size=100), rng.integers(3, size=100)
    scores = score_silos(truth, found, clients)
    assert set(scores) == {"x", "y", "z", "mean", "weighted", "pooled"}
    for cid in "xyz":
        t, f = truth[clients == cid], found[clients == cid]
        pairs = [(t[i] == t[j]) == (f[i] == f[j]) for i, j in combinations(range(len(t)), 2)]
        assert scores[cid]["acc"] == brute_accuracy(t, f)
        assert_allclose(scores[cid]["ri"], np.mean(pairs), rtol=1e-12)
        assert_allclose(scores[cid]["ri"], rand_score(t, f), rtol=1e-12)
        assert_allclose(scores[cid]["nmi"], brute_nmi(t, f), rtol=1e-10)
        assert_allclose(scores[cid]["nmi"], normalized_mutual_info_score(t, f), rtol=1e-12)
    for name in ("acc", "nmi", "ri", "ari", "ri_one_cluster", "ri_independent"):
        each = [scores[cid][name] for cid in "xyz"]
        assert_allclose(scores["mean"][name], np.mean(each), rtol=1e-12)
        assert_allclose(scores["weighted"][name], np.dot([0.1, 0.2, 0.7], each), rtol=1e-12)
    assert scores["pooled"] == clustering_scores(truth, found)
    assert scores["pooled"]["acc"] == brute_accuracy(truth, found)


def brute_nmi(t, f):
    """Mutual information over the arithmetic mean of the entropies, from shares."""
    p = np.array([[np.mean((t == a) & (f == b)) for b in np.unique(f)] for a in np.unique(t)])
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    ratio = p / np.outer(rows, columns)
    information = np.sum(p[p > 0] * np.log(ratio[p > 0]))
    entropies = [-np.sum(q * np.log(q)) for q in (rows, columns)]
    return information / np.mean(entropies)


def test_numbers_of_one_client_do_not_bind_another():
    scores = score_silos([0, 1, 0, 1], [0, 1, 1, 0], ["a", "a", "b", "b"])
    assert scores["a"]["acc"] == scores["b"]["acc"] == scores["mean"]["acc"] == 1


def test_clients_may_be_numbers():
    assert set(score_silos([0, 1, 1], [0, 1, 0], [3, 3, 12])) == {"3", "12", "mean", "weighted", "pooled"}


def pairs_of(labels):
    return np.array([labels[i] == labels[j] for i, j in combinations(range(len(labels)), 2)])


@given(LABELLINGS)
def test_scores_are_those_of_an_oracle(labellings):
    truth, found = labellings
    scores = clustering_scores(truth, found)
    same_class, same_cluster = pairs_of(truth), pairs_of(found)
    assert scores["acc"] == brute_accuracy(truth, found)
    assert_allclose(scores["ri"], np.mean(same_class == same_cluster), rtol=1e-12)
    assert_allclose(scores["nmi"], normalized_mutual_info_score(truth, found), rtol=1e-12)
    both, a, b, pairs = (same_class & same_cluster).sum(), same_class.sum(), same_cluster.sum(), len(same_class)
    chance, most = a * b / pairs, (a + b) / 2
    if most != chance:
        assert_allclose(scores["ari"], (both - chance) / (most - chance), atol=1e-12)
    assert scores["ari"] == adjusted_rand_score(truth, found)
    assert_allclose(scores["ri_one_cluster"], rand_score(truth, np.zeros_like(truth)), rtol=1e-12)
    assert_allclose(scores["ri_one_cluster"], same_class.mean(), rtol=1e-12)


@given(LABELLINGS)
def test_scores_do_not_depend_on_names_or_order(labellings):
    truth, found = labellings
    scores, order = clustering_scores(truth, found), np.argsort(found, kind="stable")
    renamed = clustering_scores(np.array(list("pqrst"))[truth][order], (7 - found)[order])
    assert_allclose(list(renamed.values()), list(scores.values()), atol=1e-12)


def test_independent_labels_have_the_rand_index_they_are_held_against(rng):
    truth, found = np.repeat([0, 1, 2], [500, 300, 200]), rng.permutation(np.repeat([0, 1], [700, 300]))
    scores = clustering_scores(truth, found)
    assert_allclose(scores["ri_independent"], 0.38 * 0.58 + 0.62 * 0.42, rtol=1e-12)  # shares of equal pairs
    assert_allclose(scores["ri"], scores["ri_independent"], atol=0.01)
    assert abs(scores["ari"]) < 0.02


def test_one_cluster_and_one_row():
    collapsed = clustering_scores([0, 0, 1, 1, 1], [3] * 5)
    assert collapsed["ri"] == collapsed["ri_one_cluster"] == 0.4
    assert collapsed["nmi"] == collapsed["ari"] == 0
    assert set(clustering_scores([1], [4]).values()) == {1.0}


def test_a_matching_found_elsewhere():
    matching = match_classes(["a", "a", "b"], [0, 0, 1])
    assert matching == {0: "a", 1: "b"}
    truth, found = ["a", "b", "b", "c"], [1, 0, 1, 2]
    assert clustering_accuracy(truth, found, matching=matching) == 1 / 4  # cluster 2 stands for nothing
    assert clustering_accuracy(truth, found) == 3 / 4
    assert clustering_accuracy(["b", "b"], [0, 0], matching=matching) == 0  # the class it stands for is not there


@given(LABELLINGS)
def test_the_best_matching_on_the_same_rows_is_the_accuracy(labellings):
    truth, found = labellings
    matching = match_classes(truth, found)
    assert len(set(matching.values())) == len(matching) == min(len(np.unique(truth)), len(np.unique(found)))
    assert clustering_accuracy(truth, found, matching=matching) == clustering_accuracy(truth, found)


def test_a_client_with_the_name_of_a_summary_is_refused():
    with pytest.raises(InputError, match="'pooled'"):
        score_silos([0, 1], [0, 1], ["pooled", "a"])


@pytest.mark.parametrize("score", [clustering_accuracy, clustering_scores, match_classes])
def test_labels_that_cannot_be_compared(score):
    for truth, found, words in (
        ([], [], "empty"),
        ([0, 1], [0], "labels_true has 2 .*labels_pred has 1"),
        ([[0, 1]], [[0, 1]], r"labels_true .*\(1, 2\)"),
    ):
        with pytest.raises(InputError, match=words):
            score(truth, found)


def test_clients_that_do_not_fit_the_labels():
    for truth, found, clients in (([0, 1], [0, 1], ["a"]), ([0, 1], [0, 1], ["a"] * 3), ([0, 1, 1], [0, 1], ["a"] * 2)):
        with pytest.raises(InputError, match=r"has \d .* has \d"):
            score_silos(truth, found, clients)
    with pytest.raises(InputError, match="empty"):
        score_silos([], [], [])
