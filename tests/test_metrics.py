from itertools import combinations, permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import normalized_mutual_info_score, rand_score

from fmtc import clustering_accuracy, score_clients


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
    scores = score_clients(truth, found, clients)
    assert set(scores) == {"x", "y", "z", "mean"}
    for cid in "xyz":
        t, f = truth[clients == cid], found[clients == cid]
        pairs = [(t[i] == t[j]) == (f[i] == f[j]) for i, j in combinations(range(len(t)), 2)]
        assert scores[cid]["acc"] == brute_accuracy(t, f)
        assert_allclose(scores[cid]["ri"], np.mean(pairs), rtol=1e-12)
        assert_allclose(scores[cid]["ri"], rand_score(t, f), rtol=1e-12)
        assert_allclose(scores[cid]["nmi"], brute_nmi(t, f), rtol=1e-10)
        assert_allclose(scores[cid]["nmi"], normalized_mutual_info_score(t, f), rtol=1e-12)
    for name in ("acc", "nmi", "ri"):
        assert_allclose(scores["mean"][name], np.mean([scores[cid][name] for cid in "xyz"]), rtol=1e-12)


def brute_nmi(t, f):
    """Mutual information over the arithmetic mean of the entropies, from shares."""
    p = np.array([[np.mean((t == a) & (f == b)) for b in np.unique(f)] for a in np.unique(t)])
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    ratio = p / np.outer(rows, columns)
    information = np.sum(p[p > 0] * np.log(ratio[p > 0]))
    entropies = [-np.sum(q * np.log(q)) for q in (rows, columns)]
    return information / np.mean(entropies)


def test_numbers_of_one_client_do_not_bind_another():
    scores = score_clients([0, 1, 0, 1], [0, 1, 1, 0], ["a", "a", "b", "b"])
    assert scores["a"]["acc"] == scores["b"]["acc"] == scores["mean"]["acc"] == 1


def test_clients_may_be_numbers():
    assert set(score_clients([0, 1, 1], [0, 1, 0], [3, 3, 12])) == {"3", "12", "mean"}
