"""Ranks among rows that a model has not seen: what a score is worth, and whether a batch of new rows is unlike them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

Array = np.ndarray

GRID = np.arange(1, 100) / 100  # shares that quantiles are kept for
SMALLEST, LARGEST = 0.005, 0.995  # rank of a score beyond the first and the last of them
CLIP = 1e-12, 0.999  # p-values are kept within, before they are combined


@dataclass(frozen=True)
class RowScores:
    """What a model says of rows before it is calibrated; higher is better."""

    odds: Array  # n: log-odds of the first cluster against the second; with unit centres, the lead of its cosine
    density: Array  # n: log-density, in the graph view that of the direction; with unit centres, the largest cosine
    length: Array | None  # n: log of the length of the projection; None in the mixture view

    @classmethod
    def joined(cls, parts: Sequence[RowScores]) -> RowScores:
        """Scores of all rows of several parts, one after the other."""
        lengths = [part.length for part in parts if part.length is not None]
        return cls(
            np.concatenate([part.odds for part in parts]),
            np.concatenate([part.density for part in parts]),
            np.concatenate(lengths) if lengths else None,
        )


@dataclass(frozen=True)
class Calibration:
    """Scores that a silo's rows get from models that have not seen them. Contains no row."""

    quantiles: Array  # 5 x 99, of odds, density, length (NaN where there is none), `certainty` and `fit`
    n_rows: int
    fits: Array | None = None  # n_rows, sorted: `fit` of each row, for a sharper test than quantiles allow
    low_only: bool = False  # whether only short projections are unusual, and not long ones

    @property
    def is_sound(self) -> bool:
        """Whether the arrays have the shapes that they should have."""
        fits = self.fits is None or self.fits.shape == (self.n_rows,)
        return self.quantiles.shape == (5, len(GRID)) and fits

    def certainty(self, rows: RowScores) -> Array:
        """How certain the cluster of each row is: the logarithms of the ranks of odds and density, added up; (n,).

        A row is in doubt where two clusters claim it, and where it is far from all of them; neither makes up for the
        other.
        """
        return np.log(ranks(rows.odds, self.quantiles[0])) + np.log(ranks(rows.density, self.quantiles[1]))

    def confidence(self, rows: RowScores) -> Array:
        """Share of the calibrated rows that are less certain; (n,)."""
        return ranks(self.certainty(rows), self.quantiles[3])

    def fit(self, rows: RowScores) -> Array:
        """How well each row fits the model, whatever its cluster: low for rows unlike the calibrated ones; (n,).

        The logarithms of the ranks of density and length are added up, as Fisher combines tests.
        """
        found = np.log(ranks(rows.density, self.quantiles[1]))
        if rows.length is None:
            return found
        rank = ranks(rows.length, self.quantiles[2])
        return found + np.log(rank if self.low_only else 2 * np.minimum(rank, 1 - rank))


def ranks(scores: Array, quantiles: Array) -> Array:
    """Share of the calibrated rows whose score is lower, between 0.005 and 0.995; (n,), (99,) -> (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.ranks import ranks
    >>> ranks(np.array([-5.0, 10.0, 500.0]), np.arange(1.0, 100.0))
    array([0.005, 0.1  , 0.995])
    """
    return np.interp(scores, quantiles, GRID, left=SMALLEST, right=LARGEST)


def calibrate(rows: RowScores, low_only: bool) -> Calibration:
    """Quantiles of the scores of rows that the models scoring them have not seen.

    They are such that a share a of new rows lies below the quantile of a, on average over calibrations.
    """
    quantiles = np.full((5, len(GRID)), np.nan)
    quantiles[0], quantiles[1] = _quantiles(rows.odds), _quantiles(rows.density)
    if rows.length is not None:
        quantiles[2] = _quantiles(rows.length)
    first = Calibration(quantiles, len(rows.odds), low_only=low_only)
    fits = np.sort(first.fit(rows))
    quantiles[3], quantiles[4] = _quantiles(first.certainty(rows)), _quantiles(fits)
    return replace(first, fits=fits)


def _quantiles(scores: Array) -> Array:
    return np.quantile(scores, GRID, method="weibull")


# ------------------------------------------------------------------------------------------------------------- tests


def low_test(new: Array, known: Array) -> float:
    """p-value of the hypothesis that new scores come from where the known ones do, against some being low; one-sided.

    A linear rank test with the scores -log(rank/(N + 1)) (Savage's, the log-rank test of survival): a few rows far down
    count for much, as when a tenth of a batch is of a new kind. The statistic's mean, variance and skewness over all
    ways to divide the N scores are exact, and a shifted gamma distribution with these gives the p-value.

    Parameters
    ----------
    new, known : ndarray of shape (n,), (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.ranks import low_test
    >>> known = np.linspace(0, 1, 200)
    >>> low_test(known[::4], known) > 0.3, low_test(known[::4] - 0.3, known) < 0.01
    (True, True)
    """
    from scipy.stats import norm, pearson3, rankdata

    n, m = len(new), len(known)
    N = n + m
    a = -np.log(rankdata(np.concatenate([new, known])) / (N + 1))
    a -= a.mean()
    square = float((a**2).sum())
    if N < 3 or not square > 1e-12:
        return 1.0
    variance = n * m / (N * (N - 1)) * square
    third = n * m * (m - n) / (N * (N - 1) * (N - 2)) * float((a**3).sum())
    z, skew = float(a[:n].sum()) / variance**0.5, third / variance**1.5
    return float(norm.sf(z) if abs(skew) < 1e-6 else pearson3.sf(z, skew))


def count_test(n_low: int, n: int, expected: float, n_rows: int) -> float:
    """p-value of a number of low rows, where only quantiles of the calibration are known (Fisher's exact test).

    Examples
    --------
    >>> from fmtc.kernels.ranks import count_test
    >>> count_test(5, 50, 0.1, 400) > 0.3, count_test(20, 50, 0.1, 400) < 1e-4
    (True, True)
    """
    from scipy.stats import hypergeom

    before = round(expected * n_rows)
    return float(hypergeom.sf(n_low - 1, n_rows + n, before + n_low, n))


def stouffer(p_values: Sequence[float]) -> float:
    """One p-value of several independent ones, none of which can decide alone.

    Examples
    --------
    >>> from fmtc.kernels.ranks import stouffer
    >>> round(stouffer([0.1, 0.1, 0.1]), 4)
    0.0132
    """
    from scipy.stats import norm

    z = norm.isf(np.clip(p_values, *CLIP))
    return float(norm.sf(z.sum() / len(z) ** 0.5))
