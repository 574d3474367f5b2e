"""Arithmetic on the numbers printed in the paper's two tables: what docs/paper.md quotes of it."""

from collections.abc import Iterator
from math import comb
from typing import Any

import numpy as np

from fmtc_bench.compare import paper

# ----------------------------------------------------------------------------- held-out scores as multiples


def _fits(inside: Any, outside: Any) -> Any:
    """Whether one number, rounded to two decimals, is the other times a factor of two: 49.43 = 0.78 x 63.37."""
    return np.abs(inside * np.rint(100 * np.asarray(outside) / inside) - 100 * np.asarray(outside)) <= 50


def multiples(methods: tuple[str, ...]) -> dict[str, Any]:
    """How many held-out scores of these methods are multiples, and how many would be by chance.

    ``expected`` supposes a held-out score that may be any number from 0 to the in-sample one; ``shuffled`` is the
    mean, and ``most_shuffled`` the largest, of 1000 times dealing the printed held-out scores to other cells.
    """
    mine = [cell for cell in paper.OUT_OF_SAMPLE if cell[1] in methods]
    inside, outside = (np.array([table[cell] for cell in mine]) for table in (paper.AGAIN, paper.OUT_OF_SAMPLE))
    rng = np.random.default_rng(0)
    dealt = [int(_fits(inside, rng.permutation(outside)).sum()) for _ in range(1000)]
    fits = _fits(inside, outside).tolist()
    return {
        "cells": len(mine),
        "multiples": sum(fits),
        "expected": float(sum(_fits(x, np.arange(x + 1)).mean() for x in inside)),
        "shuffled": float(np.mean(dealt)),
        "most_shuffled": max(dealt),
        "others": [cell for cell, fit in zip(mine, fits, strict=True) if not fit],
    }


# ------------------------------------------------------------------------------- what a Rand index can be


def least_rand(sizes: tuple[int, ...]) -> float:
    """A Rand index below which no labelling of classes of these sizes can fall.

    With ``s`` rows in a cluster, ``n_c`` of them of class c, the Rand index falls with the sum of ``s² - 2 Σ n_c²``
    over clusters. This is a Lorentz form: two clusters where it is positive gain by being merged, and the others are
    better off as single rows. So one cluster decides, and it takes all of every class but the share of a majority
    that outnumbers the rest.

    """
    n, largest = sum(sizes), max(sizes)
    taken = min(largest, n - largest)  # of the largest class
    together = n - largest + taken
    squares = sum(c * c for c in sizes)
    value = n * n - squares - together**2 + 2 * (squares - largest**2 + taken**2)  # ordered pairs, rows with themselves
    return (value - n) / (n * (n - 1))


def least_rand_given_accuracy(accuracy: float, n_classes: int, size: int) -> float:
    """A Rand index below which no labelling with this ACC can fall, for classes of one size.

    A rows are counted right by the matching, E = n - A wrong. If cluster j has m_j right and e_j wrong ones, the pairs
    it joins in error and the pairs of a class that are torn number at most
    ``Σ_j [m_j e_j + C(e_j, 2) - C(m_j, 2)] + k C(c, 2)``, where m_j ≤ c, Σ e_j = E and Σ m_j = A.

    """
    n = n_classes * size
    right = accuracy * n
    wrong = n - right
    torn = n_classes * comb(size, 2) - right * (right / n_classes - 1) / 2
    joined = size * wrong + max(0.0, wrong * (wrong - 1) / 2)
    return 1 - (torn + joined) / comb(n, 2)


# ----------------------------------------------------------------------------------------------- all findings


def findings() -> dict[str, Any]:
    """What the printed numbers say about themselves; docs/paper.md tells it in words."""
    others = tuple(name for name in paper.METHODS if name != "fmtc")
    return {
        "baselines": multiples(others),
        "fmtc": multiples(("fmtc",)),
        "table_2_repeats_table_1": all(paper.IN_SAMPLE[cell] == value for cell, value in paper.AGAIN.items()),
        "higher_out_of_sample": [c for c, value in paper.OUT_OF_SAMPLE.items() if value > paper.AGAIN[c]],
        "one_number_two_scores": list(_shared()),
        "rand_below_least": list(_below_least()),
        "rand_below_accuracy_allows": list(_below_accuracy()),
        "round_endings": {name: _round_endings(name) for name in paper.METHODS},
        "gains": {name: _gain(name) | {"text": told} for name, told in paper.GAINS.items()},
    }


def _shared() -> Iterator[dict[str, Any]]:
    """Numbers that stand for two different scores of one method on one data set."""
    for dataset in paper.DATASETS:
        for method in paper.METHODS:
            places: dict[int, list[str]] = {}
            for part, table in (("in", paper.IN_SAMPLE), ("out", paper.OUT_OF_SAMPLE)):
                for score in paper.SCORES:
                    if (dataset, method, score) in table:
                        places.setdefault(table[dataset, method, score], []).append(f"{score} {part}")
            for value, where in places.items():
                if len({place.split()[0] for place in where}) > 1:
                    yield {"dataset": dataset, "method": method, "value": value, "where": where}


def _below_least() -> Iterator[dict[str, Any]]:
    """Rand indices below what any labelling of these classes has; a fifth of the rows for the held-out ones."""
    for part, table in (("in", paper.IN_SAMPLE), ("out", paper.OUT_OF_SAMPLE)):
        for (dataset, method, score), value in table.items():
            if score == "ri" and dataset in paper.CLASS_SIZES:
                sizes = paper.CLASS_SIZES[dataset]
                least = least_rand(sizes if part == "in" else tuple(round(c / 5) for c in sizes))
                if value + 0.5 < 10_000 * least:
                    yield {"dataset": dataset, "method": method, "part": part, "value": value, "least": least}


def _below_accuracy() -> Iterator[dict[str, Any]]:
    """Rand indices of Yale, 15 persons with as many pictures each, below what the ACC printed beside them allows."""
    sizes = paper.CLASS_SIZES["yale"]
    for method in paper.METHODS:
        accuracy, value = (paper.IN_SAMPLE["yale", method, score] for score in ("acc", "ri"))
        least = least_rand_given_accuracy((accuracy - 0.5) / 10_000, len(sizes), sizes[0])
        if value + 0.5 < 10_000 * least:
            yield {"method": method, "acc": accuracy, "value": value, "least": least}


def _round_endings(method: str) -> dict[str, int]:
    """How many numbers of Table 1 end in 0 or 5."""
    mine = [value for (_, name, _), value in paper.IN_SAMPLE.items() if name == method]
    return {"cells": len(mine), "round": sum(value % 5 == 0 for value in mine)}


def _gain(dataset: str) -> dict[str, int]:
    """What the table has for the text's gains in ACC over spectral clustering alone and on the union."""
    fmtc, alone, union = (paper.IN_SAMPLE[dataset, method, "acc"] for method in ("fmtc", "stsc", "usc"))
    return {"over_better": fmtc - max(alone, union), "over_worse": fmtc - min(alone, union)}
