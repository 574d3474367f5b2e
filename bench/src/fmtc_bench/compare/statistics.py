"""Whether a method is better than another or merely luckier: tests and intervals over data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range, wilcoxon

Array = np.ndarray


def friedman_nemenyi(scores: Mapping[str, Sequence[float]], *, alpha: float = 0.05) -> dict[str, Any]:
    """Friedman's test whether methods differ at all, and by how much the mean ranks of two must (Demšar 2006).

    Parameters
    ----------
    scores : mapping of method to sequence of float
        One number for each data set, in the same order; higher is better, NaN is a failure and comes last.
    alpha : float

    Returns
    -------
    dict
        ``ranks``, the mean rank of each method, best first; ``statistic`` and ``p_value`` of Friedman's test,
        corrected for ties; ``critical_difference`` of Nemenyi's test; ``groups``, the largest sets of methods that
        stand together by rank and among which it sees no difference; ``n`` data sets; ``alpha``.

    Examples
    --------
    >>> from fmtc_bench.compare.statistics import friedman_nemenyi
    >>> found = friedman_nemenyi({"a": [0.9, 0.8, 0.7, 0.9], "b": [0.5, 0.6, 0.6, 0.4], "c": [0.4, 0.5, 0.5, 0.3]})
    >>> found["ranks"], round(found["p_value"], 3), round(found["critical_difference"], 2)
    ({'a': 1.0, 'b': 2.0, 'c': 3.0}, 0.018, 1.66)
    """
    names, table = _table(scores)
    n, k = table.shape
    if k < 3 or n < 2:
        raise ValueError(f"Friedman's test needs 3 methods and 2 data sets, got {k} and {n}")
    mean = rankdata(-table, axis=1).mean(axis=0)
    same = bool((table == table[:, :1]).all())
    statistic, p_value = (0.0, 1.0) if same else map(float, friedmanchisquare(*table.T))
    difference = float(studentized_range.isf(alpha, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n)))
    order = np.argsort(mean, kind="stable")
    ranks = {names[j]: float(mean[j]) for j in order}
    return {
        "ranks": ranks,
        "statistic": statistic,
        "p_value": p_value,
        "critical_difference": difference,
        "groups": _groups(ranks, difference),
        "n": n,
        "alpha": alpha,
    }


def _groups(ranks: Mapping[str, float], difference: float) -> list[list[str]]:
    names = list(ranks)
    reach = [max(j for j in range(len(names)) if ranks[names[j]] - ranks[name] < difference) for name in names]
    spans = [(i, j) for i, j in enumerate(reach) if j > i and (i == 0 or reach[i - 1] < j)]
    return [names[i : j + 1] for i, j in spans]


def wilcoxon_holm(scores: Mapping[str, Sequence[float]], *, against: str | None = None) -> list[dict[str, Any]]:
    """Wilcoxon's signed-rank test of pairs of methods, with Holm's correction for their number.

    Pairs must be independent: data sets are, splits and dealings of one data set are not.

    Parameters
    ----------
    scores : mapping of method to sequence of float
        One number for each pair, in the same order; NaN is a failure and counts as 0.
    against : str, optional
        Compare only this method with each other one; left out, all pairs.

    Returns
    -------
    list of dict
        ``first`` and ``second`` method, mean ``difference``, ``wins`` and ``losses`` of the first, ``p_value`` and
        ``p_holm``; the smallest p-value first.

    Examples
    --------
    >>> from fmtc_bench.compare.statistics import wilcoxon_holm
    >>> (line,) = wilcoxon_holm({"a": [0.9, 0.8, 0.7, 0.9, 0.8], "b": [0.5, 0.6, 0.6, 0.4, 0.5]})
    >>> line["wins"], line["losses"], line["p_holm"]
    (5, 0, 0.0625)
    """
    names, table = _table(scores)
    values = dict(zip(names, np.where(np.isneginf(table), 0.0, table).T, strict=True))
    if against is not None and against not in values:
        raise ValueError(f"there are no scores of {against!r}; there are those of {', '.join(names)}")
    pairs = [(against, name) for name in names if name != against] if against else list(combinations(names, 2))
    lines: list[dict[str, Any]] = []
    for first, second in pairs:
        gap = values[first] - values[second]
        wins, losses = int((gap > 0).sum()), int((gap < 0).sum())
        p_value = float(wilcoxon(gap, zero_method="zsplit").pvalue) if wins + losses else 1.0
        lines.append(
            {"first": first, "second": second, "difference": float(gap.mean()), "wins": wins, "losses": losses}
            | {"p_value": p_value}
        )
    lines.sort(key=lambda line: line["p_value"])
    for line, corrected in zip(lines, holm([line["p_value"] for line in lines]), strict=True):
        line["p_holm"] = corrected
    return lines


def bootstrap_interval(
    differences: Sequence[float], *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Interval of a mean difference, by drawing data sets with replacement (percentiles).

    Parameters
    ----------
    differences : sequence of float
        One number for each data set.
    level : float
    draws : int
    seed : int

    Returns
    -------
    low, high : float

    Examples
    --------
    >>> from fmtc_bench.compare.statistics import bootstrap_interval
    >>> low, high = bootstrap_interval([1.0, 2.0, 3.0, 2.0])
    >>> 1 < low < 2 < high < 3
    True
    """
    values = np.asarray(differences, dtype=float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"an interval needs one difference for each data set, got an array of shape {values.shape}")
    chosen = np.random.default_rng(seed).integers(len(values), size=(draws, len(values)))
    low, high = np.quantile(values[chosen].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the i-th smallest of m counts m - i + 1 times, and no less than those before it.

    Examples
    --------
    >>> from fmtc_bench.compare.statistics import holm
    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return corrected.tolist()


def _table(scores: Mapping[str, Sequence[float]]) -> tuple[list[str], Array]:
    """Names and scores of shape (pairs, methods); a failure is worse than all."""
    lengths = {len(line) for line in scores.values()}
    if len(lengths) != 1:
        raise ValueError(f"every method needs as many scores as the others, got {sorted(lengths)}")
    table = np.array(list(scores.values()), dtype=float).T
    return list(scores), np.where(np.isnan(table), -np.inf, table)
