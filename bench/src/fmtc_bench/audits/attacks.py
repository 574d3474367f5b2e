"""Audit: what somebody who reads the messages finds out, measured. Attacks, intervals and lower bounds; no guarantee.

An attack that finds nothing proves nothing; an attack that finds something does. So each number here is a lower bound
on what leaks. The functions take what was released and who was in, and run nothing themselves: `fmtc_bench.audits.tap`
records what a run sends, and `fmtc-bench audit` puts both together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fmtc.errors import DataError

Array = np.ndarray

FPR = 0.01  # share of non-members called members at which the attack's power is told
CONFIDENCE = 0.95
LEAST_RUNS = 8  # shadow runs: with fewer, a record is in or out too rarely for a Gaussian
LEAST_VARIANCE = 0.01  # added to that of each statistic, in units of its own; and q/runs, for covariances from few runs
BOOTSTRAPS = 400
REFINED = 48  # bisections


@dataclass(frozen=True)
class Interval:
    """A measured number and where it may lie."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


# -------------------------------------------------------------------------------------------------- membership: scores


def likelihood_ratios(statistics: Array, members: Array, train: Array | None = None) -> Array:
    """LiRA: how much likelier each run's statistics of a record are with the record in than without it.

    For each record, two Gaussians of its q statistics are fitted to shadow runs, one where it was in and one where it
    was out, with a common covariance. The run that is judged is left out, so no score has seen its own answer.

    Parameters
    ----------
    statistics : array of shape (runs, records, q)
    members : array of bool of shape (runs, records)
        Who was in.
    train : array of bool of shape (runs,), optional
        Runs that the Gaussians are fitted to; all by default.

    Returns
    -------
    array of shape (runs, records)
        Log-likelihood ratios.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc_bench.audits.attacks import attacked, likelihood_ratios
    >>> rng = np.random.default_rng(0)
    >>> members = rng.random((60, 30)) < 0.5
    >>> seen = rng.normal(size=(60, 30, 2)) + members[:, :, None]
    >>> attacked(likelihood_ratios(seen, members), members).auc.low > 0.7
    True
    """
    S = np.asarray(statistics, dtype=np.float64)
    n_runs, n_records, q = S.shape
    use = np.ones(n_runs, bool) if train is None else np.asarray(train, bool)
    if use.sum() < LEAST_RUNS:
        raise DataError(f"{int(use.sum())} shadow runs are too few for an attack; take at least {LEAST_RUNS}")
    scale = S[use].std(axis=0)
    S = (S - S[use].mean(axis=0)) / np.where(scale > 0, scale, 1.0)  # units only: each record has its own
    sides = []
    for inside in (True, False):
        weight = ((members == inside) & use[:, None]).astype(np.float64)  # runs x records
        count = weight.sum(axis=0)
        mean = np.einsum("rn,rnq->nq", weight, S) / np.maximum(count, 1)[:, None]
        away = S - mean
        sides.append((weight, count, mean, np.einsum("rn,rnp,rnq->npq", weight, away, away), away))
    scatter, counts = sides[0][3] + sides[1][3], sides[0][1] + sides[1][1]
    own = np.zeros((n_runs, n_records), bool)
    means = []
    drop = np.zeros((n_runs, n_records, q, q))
    for weight, count, mean, _, away in sides:
        here = weight > 0
        left = np.maximum(count - here, 1)
        means.append(mean - here[:, :, None] * away / left[:, :, None])
        factor = here * count / np.maximum(count - 1, 1)  # what the run's own value adds to the scatter
        drop += factor[:, :, None, None] * away[:, :, :, None] * away[:, :, None, :]
        own |= here
    freedom = np.maximum(counts - own - 2, 1)
    C = (scatter - drop) / freedom[:, :, None, None]
    C += (LEAST_VARIANCE + q / use.sum()) * np.eye(q)  # few runs, or statistics that say the same thing
    gap = means[0] - means[1]
    ratio = np.linalg.solve(C, gap[..., None])[..., 0]
    found = np.einsum("rnq,rnq->rn", ratio, S - (means[0] + means[1]) / 2)
    few = np.minimum(sides[0][1] - sides[0][0], sides[1][1] - sides[1][0]) < 2
    return np.where(few, 0.0, found)


@dataclass(frozen=True)
class Attack:
    """How well an attack tells members from others.

    Attributes
    ----------
    auc : Interval
        Area under the curve, 0.5 for guessing; the interval resamples records and runs.
    tpr : Interval
        Share of members found where 1 % of the others are called members.
    epsilon_at_least : float
        No (epsilon, delta) below it is consistent with the guesses that were right; valid although records of one run
        depend on each other, because the coins that put them in do not (Steinke, Nasr and Jagielski 2023).
    epsilon_indication : float
        The same from both error rates (Clopper and Pearson), as if records of one run were independent: an indication,
        not a bound.
    """

    runs: int
    records: int
    auc: Interval
    tpr: Interval
    epsilon_at_least: float = 0.0
    epsilon_indication: float = 0.0
    delta: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        return asdict(self)


def attacked(
    scores: Array, members: Array, *, bootstraps: int = BOOTSTRAPS, confidence: float = CONFIDENCE, seed: int = 0
) -> Attack:
    """AUC and TPR at 1 % FPR of scores, with intervals from resampling records and runs at the same time.

    Records of one run share its noise, and runs share their records: resampling both (Owen 2007) leaves neither out,
    and errs on the wide side. The Gaussians of the scores are not fitted again.
    """
    scores, members = np.asarray(scores), np.asarray(members, bool)
    n_runs, n_records = scores.shape
    values, place = np.unique(-scores.ravel(), return_inverse=True)  # highest score first
    inside = members.ravel()
    rng = np.random.default_rng(seed)
    drawn = np.empty((bootstraps, 2))
    for b in range(bootstraps):
        runs = np.bincount(rng.integers(n_runs, size=n_runs), minlength=n_runs)
        records = np.bincount(rng.integers(n_records, size=n_records), minlength=n_records)
        drawn[b] = _curve(place, inside, np.outer(runs, records).ravel().astype(float), len(values))
    auc, tpr = _curve(place, inside, np.ones(len(place)), len(values))
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    area, power = (
        Interval(found, float(min(low[i], found)), float(max(high[i], found))) for i, found in enumerate((auc, tpr))
    )
    return Attack(n_runs, n_records, area, power)


def _curve(place: Array, inside: Array, weight: Array, size: int) -> tuple[float, float]:
    """AUC and TPR at 1 % FPR of weighted pairs; `place` numbers the scores from the highest on."""
    hits = np.bincount(place[inside], weight[inside], size)
    misses = np.bincount(place[~inside], weight[~inside], size)
    if not hits.sum() or not misses.sum():
        return 0.5, FPR
    tpr, fpr = np.cumsum(hits) / hits.sum(), np.cumsum(misses) / misses.sum()
    before = np.concatenate([[0.0], tpr[:-1]])
    auc = float((misses * (before + tpr)).sum() / (2 * misses.sum()))
    allowed = fpr <= FPR
    return auc, float(tpr[allowed].max(initial=0.0))


def roc(scores: Array, members: Array) -> tuple[Array, Array]:
    """False and true positive rates at every threshold, from (0, 0) to (1, 1)."""
    inside = np.asarray(members, bool).ravel()[np.argsort(-np.asarray(scores).ravel(), kind="stable")]
    tpr, fpr = np.cumsum(inside) / max(inside.sum(), 1), np.cumsum(~inside) / max((~inside).sum(), 1)
    return np.concatenate([[0.0], fpr]), np.concatenate([[0.0], tpr])


# ------------------------------------------------------------------------------------------------- lower bounds on ε


def upper_rate(errors: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Clopper and Pearson: an error rate above this would have shown more errors; one-sided.

    Examples
    --------
    >>> from fmtc_bench.audits.attacks import upper_rate
    >>> round(upper_rate(0, 100), 4)
    0.0295
    """
    from scipy.stats import beta

    return 1.0 if errors >= trials else float(beta.ppf(confidence, errors + 1, trials - errors))


def epsilon_from_errors(
    false_positives: int,
    outside: int,
    false_negatives: int,
    inside: int,
    delta: float = 0.0,
    confidence: float = CONFIDENCE,
) -> float:
    """The largest ε that two error rates rule out, at least 0: a mechanism with less would force more errors.

    (ε, δ) means ``1 − FNR ≤ e^ε FPR + δ`` and ``1 − FPR ≤ e^ε FNR + δ``. Each rate is replaced by its upper limit at
    half of the error that `confidence` leaves.
    """
    each = 1 - (1 - confidence) / 2
    fpr, fnr = upper_rate(false_positives, outside, each), upper_rate(false_negatives, inside, each)
    found = [math.log((1 - b - delta) / a) for a, b in ((fpr, fnr), (fnr, fpr)) if 1 - b > delta and a > 0]
    return max([0.0, *found])


def mu_from_errors(
    false_positives: int, outside: int, false_negatives: int, inside: int, confidence: float = CONFIDENCE
) -> float:
    """The largest μ of Gaussian differential privacy that two error rates rule out, at least 0."""
    from scipy.stats import norm

    each = 1 - (1 - confidence) / 2
    fpr, fnr = upper_rate(false_positives, outside, each), upper_rate(false_negatives, inside, each)
    if fpr >= 1 or fnr >= 1:
        return 0.0
    return max(0.0, float(-norm.ppf(fpr) - norm.ppf(fnr)))


def epsilon_from_guesses(
    right: int, guesses: int, coins: int, delta: float = 0.0, confidence: float = CONFIDENCE
) -> float:
    """The largest ε that so many right guesses about independent coins rule out, at least 0.

    Each record was put in by a fair coin of its own. Under (ε, δ) the number of right guesses is at most that of
    `guesses` coins that fall right with probability ``e^ε/(1 + e^ε)``, but for δ; that holds however the records of a
    run depend on each other (Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", Theorem 5.2).

    Parameters
    ----------
    right, guesses : int
        Guesses that were right, of all that were made; an auditor may abstain.
    coins : int
        Records times runs that a guess could have been about.

    Examples
    --------
    >>> from fmtc_bench.audits.attacks import epsilon_from_guesses
    >>> epsilon_from_guesses(50, 100, 100)
    0.0
    >>> epsilon_from_guesses(95, 100, 100) > 1.9
    True
    """
    from scipy.stats import binom

    def chance(epsilon: float) -> float:
        p = 1 / (1 + math.exp(-epsilon))
        beyond = float(binom.sf(right - 1, guesses, p))
        if not delta:
            return beyond
        below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, p))
        return beyond + 2 * coins * delta * float((below / np.arange(1, right + 1)).max(initial=0.0))

    if not guesses or chance(0.0) > 1 - confidence:
        return 0.0
    low, high = 0.0, 60.0
    for _ in range(REFINED):
        middle = (low + high) / 2
        low, high = (low, middle) if chance(middle) > 1 - confidence else (middle, high)
    return low


def membership(
    statistics: Array,
    members: Array,
    *,
    delta: float = 0.0,
    bootstraps: int = BOOTSTRAPS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> tuple[Attack, Array]:
    """The membership attack on what shadow runs released: how well it does, and its scores.

    AUC and TPR take all runs, each judged by the others. For the bounds on ε, Gaussians and thresholds come from the
    first half of the runs, and guesses are made about the second half, which they have not seen.

    Parameters
    ----------
    statistics : array of shape (runs, records, q)
    members : array of bool of shape (runs, records)
        Fair coins, one for each record and run.
    delta : float
        Of the claim (epsilon, delta).

    Returns
    -------
    attack : Attack
    scores : array of shape (runs, records)
    """
    scores = likelihood_ratios(statistics, members)
    found = attacked(scores, members, bootstraps=bootstraps, confidence=confidence, seed=seed)
    n_runs = len(scores)
    first = np.arange(n_runs) < n_runs // 2
    bound = indication = 0.0
    if n_runs >= 2 * LEAST_RUNS:
        trained = likelihood_ratios(statistics, members, first)
        high, low = _thresholds(trained[first], members[first], delta)
        seen, M = trained[~first], members[~first]
        called, denied = seen > high, seen < low
        right = int((called & M).sum() + (denied & ~M).sum())
        bound = epsilon_from_guesses(right, int(called.sum() + denied.sum()), seen.size, delta, confidence)
        indication = max(
            epsilon_from_errors(
                int((seen > t)[~M].sum()), int((~M).sum()), int((seen <= t)[M].sum()), int(M.sum()), delta,
                1 - (1 - confidence) / 2,
            )
            for t in (high, low)
        )  # fmt: skip
    attack = Attack(n_runs, found.records, found.auc, found.tpr, bound, indication, delta)
    return attack, scores


def _thresholds(scores: Array, members: Array, delta: float) -> tuple[float, float]:
    """Above which score to call a record a member, and below which to deny it; those that pay most on these runs."""
    best, chosen = -1.0, (math.inf, -math.inf)
    ordered = np.sort(scores.ravel())
    for share in (0.003, 0.01, 0.03, 0.1, 0.3, 0.5):
        cut = max(1, int(share * len(ordered)))
        high, low = float(ordered[-cut]), float(ordered[cut - 1])
        called, denied = scores >= high, scores <= low
        for use_low in (False, True):
            right = int((called & members).sum()) + (int((denied & ~members).sum()) if use_low else 0)
            made = int(called.sum()) + (int(denied.sum()) if use_low else 0)
            bound = epsilon_from_guesses(right, made, scores.size, delta)
            if bound > best:
                best, chosen = bound, (np.nextafter(high, -np.inf), np.nextafter(low, np.inf) if use_low else -math.inf)
    return float(chosen[0]), float(chosen[1])


def drawn_members(runs: int, records: int, seed: int = 0) -> Array:
    """Who is in each shadow run: a fair coin for each record; (runs, records)."""
    return np.random.default_rng([seed, 0xA0D17]).random((runs, records)) < 0.5


# -------------------------------------------------------------------------------------------------- canary of a stage


@dataclass(frozen=True)
class Observation:
    """One released sum, as an adversary sees it who knows every record but the canary."""

    stage: str
    released: Array  # the noisy total, less the noise of colluding clients
    others: Array  # the exact total without the canary
    canary: Array  # what the canary adds
    sigma: float  # standard deviation of the noise, as claimed


@dataclass(frozen=True)
class Canary:
    """Whether released sums are as noisy as they are said to be.

    Attributes
    ----------
    epsilon, delta, mu : float
        The claim.
    auc, auc_at_most : float
        Of the exact likelihood ratio, and what the claim allows.
    epsilon_at_least : float
        The largest ε that the adversary's errors rule out.
    finds : float
        Noise below this share of what is claimed would have been found by an audit of so many runs, likelier than not.
    """

    epsilon: float
    delta: float
    mu: float
    runs: int
    auc: float
    auc_at_most: float
    mu_at_least: float
    epsilon_at_least: float
    finds: float
    confidence: float

    @property
    def caught(self) -> bool:
        """Whether the claim is broken."""
        return self.mu_at_least > self.mu

    @property
    def verdict(self) -> str:
        """In words."""
        if self.caught:
            return "caught: less noise than claimed"
        return "consistent with the claim"

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        return asdict(self) | {"caught": self.caught, "verdict": self.verdict}


def log_ratio(seen: Sequence[Observation]) -> float:
    """Exact log-likelihood ratio, canary in against out, of Gaussian sums that were released one after another."""
    return sum(
        float(np.vdot(one.canary, one.released - one.others) - np.vdot(one.canary, one.canary) / 2) / one.sigma**2
        for one in seen
    )


def canary_audit(
    release: Callable[[bool, int], Sequence[Observation]],
    *,
    mu: float,
    epsilon: float,
    delta: float,
    epsilon_of: Callable[[float, float], float],
    runs: int = 1000,
    confidence: float = CONFIDENCE,
    progress: Callable[[int], None] = lambda done: None,
) -> Canary:
    """Hold a claim of Gaussian differential privacy against an adversary who knows every record but one.

    Half of the runs have the canary, half have not. The adversary decides by the sign of the exact likelihood ratio: a
    threshold that is fixed beforehand. Both error rates (Clopper and Pearson) give a μ that the mechanism cannot be
    below, and so an ε. One that lies above the claim is a proof that the claim is false, wrong at most once in
    ``1/(1 − confidence)`` audits of a right mechanism. The reverse proves nothing.

    Parameters
    ----------
    release : callable
        Takes whether the canary is in and the number of the run, goes through the mechanism, and returns what left.
    mu, epsilon, delta : float
        The claim.
    epsilon_of : callable
        ε of a μ and a δ.
    runs : int
        Half of them with the canary.
    progress : callable
        Gets the number of runs done.
    """
    half = runs // 2
    ratios = np.empty((2, half))
    for number in range(half):
        for inside in (0, 1):
            ratios[inside, number] = log_ratio(release(bool(inside), 2 * number + inside))
        progress(2 * number + 2)
    errors = int((ratios[0] > 0).sum()), int((ratios[1] <= 0).sum())
    found = mu_from_errors(errors[0], half, errors[1], half, confidence)
    pairs = (ratios[1][:, None] > ratios[0]) + 0.5 * (ratios[1][:, None] == ratios[0])
    from scipy.stats import norm

    return Canary(
        epsilon, delta, mu, 2 * half, float(pairs.mean()), float(norm.cdf(mu / math.sqrt(2))), found,
        epsilon_of(found, delta) if found > 0 else 0.0, found_below(mu, half, confidence), confidence,
    )  # fmt: skip


def found_below(mu: float, half: int, confidence: float = CONFIDENCE) -> float:
    """The largest share of the claimed noise that an audit with so many runs of each kind is likely to catch."""
    from scipy.stats import norm

    low, high = 0.0, 1.0
    for _ in range(REFINED):
        share = (low + high) / 2
        errors = round(half * float(norm.cdf(-mu / max(share, 1e-12) / 2)))
        caught = mu_from_errors(errors, half, errors, half, confidence) > mu
        low, high = (share, high) if caught else (low, share)
    return low


# ------------------------------------------------------------------------------------------ reconstruction of the span


@dataclass(frozen=True)
class Span:
    """What the projections that left tell of the directions of a silo's rows.

    Attributes
    ----------
    rank : int
        Dimension of the rows, centred where the run centres them.
    found : int
        Dimension that the messages span.
    angle : float
        Largest principal angle between what was found and the rows, in degrees, over ``min(rank, found)`` directions.
    energy : float
        Share of the rows' squared length that lies in the found span.
    """

    n_rows: int
    n_features: int
    rounds: int
    rank: int
    found: int
    angle: float
    energy: float

    @property
    def exact(self) -> bool:
        """Whether the span of the rows is known, up to rounding, and is not simply everything."""
        return self.rank < self.n_features and self.found >= self.rank and self.energy > 1 - 1e-6

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        return asdict(self) | {"exact": self.exact}


def row_span(X: Array, projections: Sequence[Array], anchors: Sequence[Array], tol: float = 1e-7) -> Span:
    """Reconstruct the span of a silo's rows from what left: each W less the anchor the server had sent lies in it.

    Parameters
    ----------
    X : array of shape (n, d)
        The rows in the units of the run, to compare with.
    projections, anchors : sequences of arrays of shape (d, k)
        What was sent in each round, and what had been asked.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc_bench.audits.attacks import row_span
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4, 10))
    >>> sent = [X.T @ rng.normal(size=(4, 2)) for _ in range(2)]
    >>> row_span(X, sent, [np.zeros((10, 2))] * 2).exact
    True
    """
    X = np.asarray(X, dtype=np.float64)
    _, s, Vh = np.linalg.svd(X, full_matrices=False)
    rows = Vh[s > 1e-9 * max(s[0], 1e-300)]
    steps = np.hstack([np.asarray(W, np.float64) - A for W, A in zip(projections, anchors, strict=True)])
    lengths = np.linalg.norm(steps, axis=0)
    steps = steps[:, lengths > 0] / lengths[lengths > 0]
    U, t, _ = np.linalg.svd(steps, full_matrices=False)
    found = U[:, t > tol * max(t.max(initial=0.0), 1e-300)]
    cosines = np.linalg.svd(rows @ found, compute_uv=False) if found.size else np.zeros(0)
    angle = math.degrees(math.acos(min(1.0, float(cosines.min(initial=1.0))))) if len(cosines) else 90.0
    energy = float(((X @ found) ** 2).sum() / max((X**2).sum(), 1e-300))
    return Span(X.shape[0], X.shape[1], len(projections), len(rows), found.shape[1], angle, energy)
