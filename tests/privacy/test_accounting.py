"""What a private run costs: against another accountant, and against the curve itself."""

from math import exp, inf, sqrt

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from fmtc.errors import TrustError
from fmtc.privacy.accounting import (
    GRID,
    Plan,
    delta_of,
    epsilon_of,
    mu_of,
    raised,
    without_colluders,
)
from fmtc.protocol.private.stages import MIXTURE_STAGES, STAGES

DELTA = 1e-5


def grid_slack(numbers, silos, sd):
    """How much larger ε may be because noise is discrete; sd is the least of one silo, in units of the field."""
    return 2 * 6.5 * numbers * silos * (GRID / sd) ** 2


@pytest.mark.parametrize("epsilon", [0.5, 2, 8])
def test_all_stages_together_have_the_epsilon_that_was_asked_for(epsilon):
    """Privacy loss distributions of the stages, composed by another library, give the same number."""
    dp = pytest.importorskip("dp_accounting")
    mu = mu_of(epsilon, DELTA)
    for stages in (STAGES, MIXTURE_STAGES):
        accountant = dp.pld.PLDAccountant()
        for stage in stages:
            sd = stage.sensitivity / (mu * sqrt(stage.share))
            accountant.compose(dp.GaussianDpEvent(sd / stage.sensitivity))
        assert accountant.get_epsilon(DELTA) == pytest.approx(epsilon, abs=1e-3)


@pytest.mark.parametrize("mu", [0.01, 0.268, 1.0, 5.0, 40.0])
def test_the_curve_is_that_of_two_gaussians(mu):
    """Delta is the largest difference of probabilities: of the set where the likelihood ratio exceeds exp(epsilon)."""
    for epsilon in (0.0, 0.3 * mu, mu * mu / 2, mu * (mu / 2 + 2)):
        x = np.linspace(-12, 12 + mu, 400_001)
        p, q = norm.pdf(x, loc=mu), norm.pdf(x)
        with np.errstate(over="ignore"):
            gap = np.maximum(p - exp(epsilon) * q, 0) if epsilon < 600 else None
        if gap is not None:
            assert delta_of(epsilon, mu) == pytest.approx(np.trapezoid(gap, x), rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1, 8, 100])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.01])
def test_there_and_back(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert delta_of(epsilon, mu) <= delta
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-6)


def test_more_noise_is_more_private():
    mus = [0.1, 0.5, 1, 2, 10]
    assert np.all(np.diff([delta_of(1.0, mu) for mu in mus]) > 0)
    assert np.all(np.diff([epsilon_of(mu, DELTA) for mu in mus]) > 0)
    assert mu_of(inf, DELTA) == inf and epsilon_of(inf, DELTA) == inf
    assert epsilon_of(0.0, DELTA) == 0 and delta_of(1.0, 0.0) == 0


def test_stages_share_the_whole_budget():
    """Squares of mu add up: what all stages cost is that of the run."""
    assert sum(stage.share for stage in STAGES) == pytest.approx(1)


def test_the_printed_numbers():
    """For one record added or removed, and for one replaced; see docs/privacy.md."""
    assert [round(epsilon_of(2 * mu_of(e, DELTA), DELTA), 1) for e in (1, 2, 4, 8)] == [2.2, 4.4, 9.1, 19.1]


def test_colluding_silos_leave_less_noise():
    mu = mu_of(4, DELTA)
    assert without_colluders(mu, 10, 1, 1) == mu  # what is tolerated costs nothing
    assert without_colluders(mu, 10, 1, 0) < mu
    assert without_colluders(mu, 10, 1, 9) == pytest.approx(3 * mu)
    assert without_colluders(mu, 10, 1, 10) == inf


def test_rounding_to_the_grid_is_in_the_sensitivity():
    """Sums that differ by one record, rounded: never further apart than the raised sensitivity."""
    rng = np.random.default_rng(0)
    for numbers in (1, 50, 2000):
        sums = rng.normal(size=numbers) * 100
        record = rng.normal(size=numbers)
        record /= np.linalg.norm(record)
        gap = (np.rint((sums + record) / GRID) - np.rint(sums / GRID)) * GRID
        assert np.linalg.norm(gap) <= raised(1.0, numbers) + 1e-15


@pytest.mark.parametrize("s", [10.0, 30.0, 100.0])
def test_discrete_noise_is_nearly_rounded_continuous_noise(s):
    """The bound of `grid_slack` for one number, against the ratio of the probabilities themselves."""
    v = np.arange(int(12 * s) + 1)
    discrete = -(v**2) / (2 * s * s) - np.log(s * sqrt(2 * np.pi))  # the exact sum differs by exp(-2 pi² s²)
    rounded = log_ndtr((-v + 0.5) / s) + np.log1p(-np.exp(log_ndtr((-v - 0.5) / s) - log_ndtr((-v + 0.5) / s)))
    gap = np.abs(discrete - rounded).max()
    assert 0 < 2 * gap <= grid_slack(1, 1, s * GRID)


def test_the_slack_of_a_large_run_is_nothing():
    """The least noise of a silo: epsilon = 8, the largest share, 50 silos."""
    least = 1 / (mu_of(8, DELTA) * sqrt(0.28)) / sqrt(49)
    assert grid_slack(100_000, 50, least) < 1e-5


@pytest.mark.parametrize(
    ("rows", "epsilon", "verdict"), [(5000, 2, "yes"), (1800, 2, "weak"), (1000, 2, "no"), (4500, 1, "yes")]
)
def test_the_planning_rule(rows, epsilon, verdict):
    plan = Plan(rows, 64, 10, epsilon, DELTA)
    assert plan.verdict == verdict
    assert str(rows) in plan.sentence and f"epsilon={epsilon:g}" in plan.sentence
    if verdict == "yes":
        assert plan.gate() is None
        return
    with pytest.raises(TrustError, match=f"{rows} rows") as caught:
        plan.gate()
    assert caught.value.exit_code == 4
    if verdict == "weak":
        assert "--yes" in str(caught.value)
        assert plan.gate(accepted=True) == plan.sentence
    else:
        with pytest.raises(TrustError):
            plan.gate(accepted=True)


def test_many_columns_need_more_rows():
    assert Plan(5000, 200, 10, 1, DELTA).need == pytest.approx(1.7 * 200**1.5)
    assert Plan(5000, 64, 10, 1, DELTA).need == 1200
