"""What a private run costs, by Gaussian differential privacy (Dong, Roth and Su), and whether there are rows for it.

A release with Gaussian noise of standard deviation s, to which no record adds more than a vector of length D, is μ-GDP
with μ = D/s. Releases compose exactly: μ² adds up, also where a later one depends on the earlier ones. A μ is the same
as a whole curve of pairs (ε, δ); `delta_of` and `epsilon_of` walk along it.

**Discrete noise.** Clients add discrete Gaussian noise to whole numbers on a grid of 2^-24. Two things differ from the
sentence above, and both are covered:

1. Rounding a client's sum to the grid moves each number by at most half a step, so two sums that differ by one record
   may be further apart by one step in each number. `raised` adds that to the sensitivity: 2^-24 sqrt(numbers).
2. The continuous Gaussian rounded to the grid is GDP exactly: rounding is post-processing, and sums are whole numbers.
   Within 12 standard deviations the probabilities of the discrete and of the rounded Gaussian differ by a
   factor of at most exp(6.5/s²), s the standard deviation in steps of the grid; beyond lies less than 1e-32 of either.
   Added up over numbers and clients, for both sides of a ratio, ε grows by at most 13 numbers clients/s²: by less than
   1e-5 even with a hundred thousand numbers, fifty clients and ε = 8 (tests/privacy/test_accounting.py). The sum of the
   clients' noise is a function of all of it, so that nothing else is needed for the total.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, expm1, inf, log, sqrt

from ..errors import TrustError

GRID = 2.0**-24  # step of the noise and of what it is added to
CLUSTER_NEED, COLUMN_NEED = 120.0, 1.7  # of the planning rule: n μ >= max(120 k, 1.7 d^1.5)
LARGEST_MU = 1e3


def delta_of(epsilon: float, mu: float) -> float:
    """δ at ε of μ-GDP: Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2).

    Examples
    --------
    >>> from fmtc.privacy.accounting import delta_of
    >>> print(f"{delta_of(1.0, 0.268):.1g}")
    1e-05
    """
    if mu <= 0:
        return 0.0
    from scipy.special import log_ndtr  # slow to import, and help pages need none of it

    first, second = log_ndtr(-epsilon / mu + mu / 2), epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return float(-exp(first) * expm1(min(second - first, 0.0)))


NO_PROMISE = 1e6  # epsilon from which nothing is promised, and no noise is needed


def mu_of(epsilon: float, delta: float) -> float:
    """The largest μ whose curve passes below (ε, δ); infinity for ε = infinity: no noise.

    Examples
    --------
    >>> from fmtc.privacy.accounting import mu_of
    >>> [round(mu_of(epsilon, 1e-5), 3) for epsilon in (1, 2, 4, 8)]
    [0.268, 0.502, 0.925, 1.666]
    """
    if epsilon >= NO_PROMISE:
        return inf
    from scipy.optimize import brentq

    found = brentq(lambda mu: delta_of(epsilon, mu) - delta, 1e-9, LARGEST_MU, xtol=1e-13, rtol=1e-13)
    return float(found) * (1 - 1e-12)  # of two sides of a root, the one that keeps the promise


def epsilon_of(mu: float, delta: float) -> float:
    """The least ε at which μ-GDP has at most this δ.

    Examples
    --------
    >>> from fmtc.privacy.accounting import epsilon_of, mu_of
    >>> round(epsilon_of(2 * mu_of(4, 1e-5), 1e-5), 1)  # a record replaced, not added or removed
    9.1
    """
    if mu <= 0 or delta_of(0.0, mu) <= delta:
        return 0.0
    if mu == inf:
        return inf
    most = mu * mu / 2 + mu * sqrt(2 * log(1 / delta)) + 1  # δ is below exp(-(ε/μ - μ/2)²/2) there
    from scipy.optimize import brentq

    return float(brentq(lambda epsilon: delta_of(epsilon, mu) - delta, 0.0, most, xtol=1e-10))


def raised(sensitivity: float, numbers: int) -> float:
    """A sensitivity with what rounding to the grid may add."""
    return sensitivity + GRID * sqrt(numbers)


def without_colluders(mu: float, silos: int, tolerated: int, colluding: int) -> float:
    """μ against silos that take their own noise off the total.

    Each silo adds 1/(silos - tolerated) of the variance that the promise needs, so that up to `tolerated` of them may
    collude. More of them leave less noise.
    """
    left = silos - colluding
    return inf if left <= 0 else mu * sqrt((silos - tolerated) / left)


def honest(silos: int, colluding: int) -> int:
    """How many silos are left to hide a record where so many work together; `TrustError` where none is."""
    if silos <= colluding:
        raise TrustError(f"{silos} silos cannot hide a record from {colluding} that work together")
    return silos - colluding


# --------------------------------------------------------------------------------------------------- rows enough?


@dataclass(frozen=True)
class Plan:
    """Whether a federation has rows enough for its ε, before anything leaves.

    Examples
    --------
    >>> from fmtc.privacy.accounting import Plan
    >>> plan = Plan(n_rows=5000, n_columns=64, n_clusters=10, epsilon=2.0, delta=1e-5)
    >>> plan.verdict, round(plan.ratio, 1)
    ('yes', 2.1)
    >>> print(Plan(n_rows=300, n_columns=64, n_clusters=10, epsilon=1.0, delta=1e-5).sentence)
    300 rows at epsilon=1 and delta=1e-05 give n μ = 80, 7 % of the 1200 that 10 clusters and 64 columns need; use at \
least 4477 rows, or a larger epsilon.
    """

    n_rows: float  # of all silos together
    n_columns: int  # that are computed with: numbers, and levels of categories
    n_clusters: int
    epsilon: float
    delta: float

    @property
    def mu(self) -> float:
        """Of the whole run."""
        return mu_of(self.epsilon, self.delta)

    @property
    def need(self) -> float:
        """What n μ has to reach."""
        return max(CLUSTER_NEED * self.n_clusters, COLUMN_NEED * self.n_columns**1.5)

    @property
    def ratio(self) -> float:
        """How much of the need there is."""
        return self.n_rows * self.mu / self.need

    @property
    def verdict(self) -> str:
        """ "yes"; "weak": worse than alone is likely; "no": noise only."""
        return "yes" if self.ratio >= 1 else "weak" if self.ratio >= 0.5 else "no"

    @property
    def sentence(self) -> str:
        """The rule with its numbers."""
        enough = ceil(self.need / self.mu)
        return (
            f"{self.n_rows:.0f} rows at epsilon={self.epsilon:g} and delta={self.delta:g} give n μ = "
            f"{self.n_rows * self.mu:.0f}, {100 * self.ratio:.0f} % of the {self.need:.0f} that {self.n_clusters} "
            f"clusters and {self.n_columns} columns need; "
            + ("enough." if self.ratio >= 1 else f"use at least {enough} rows, or a larger epsilon.")
        )

    def gate(self, accepted: bool = False) -> str | None:
        """Raise `TrustError` where a run would be noise, or is likely worse than alone and nobody accepted that.

        Returns
        -------
        str or None
            A warning, where the run is weak and was accepted.
        """
        if self.verdict == "yes":
            return None
        if self.verdict == "no":
            raise TrustError(self.sentence)
        if not accepted:
            raise TrustError(f"{self.sentence[:-1]}; to run it all the same, say --yes or Privacy(accept_weak=True).")
        return self.sentence
