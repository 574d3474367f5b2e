"""Rules about an answer before it leaves: clusters of few rows, few rows for many columns, one record that dominates.

Rules look at the plain answer and at the client it comes from, and decide nothing by themselves: a `Finding` says what
was found, and the client's `Policy` whether it is a warning, waits for a person, or does not leave. They are no
guarantee: an answer that no rule objects to can tell of single records all the same (audits measure it).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts.files import read_file
from ..describe.atlas import presence_of
from ..describe.words import FEW
from ..errors import TrustError, nearest_names
from ..kernels.centers import row_norms
from ..kernels.influence import record_influence
from ..linalg.arrays import double, to_numpy
from ..settings import check_choice, check_number
from .protection import ALWAYS, FIRST, Protection

Array = np.ndarray
Ask = Callable[[Mapping[str, Any]], bool]  # a description of an answer -> whether it may leave

RULES = "rules.toml"  # file of a kit
OFF, WARN, ASK, REFUSE = "off", "warn", "ask", "refuse"
OMIT = "omit"
SEVERITY = (OFF, WARN, ASK, REFUSE)
ALONE = 2  # rows of a cluster below which its centre would be a row
TRACE = 1e-6  # rows that a concept is said to have of which nothing is sent: common shares must stay above 0
PRESENT = 0.5  # rows from which a concept counts as one that the silo has: responsibilities are not whole numbers


@dataclass(frozen=True)
class Finding:
    """Something that a rule found in an answer."""

    rule: str  # "small cluster", "few rows" or "dominance"
    action: str  # "warn", "ask" or "refuse"
    sentence: str


@dataclass(frozen=True)
class Policy:
    """What a client's person wants to know, to approve, or to forbid.

    Parameters
    ----------
    min_cluster : int
        Fewest rows of a cluster whose centre or sums leave.
    small_cluster : {"warn", "ask", "refuse", "omit", "off"}
        What becomes of an answer with a smaller one. With "omit" it leaves without that cluster: its rows are counted
        with the nearest cluster, and a centre is that of the `min_cluster` rows nearest to it. A centre of one row
        never leaves, whatever is said here.
    min_share_rows : int
        Fewest rows of a cluster whose share of the silo's rows is told to the server, for the atlas; of smaller ones it
        learns as much as of absent ones.
    rows_per_column : float
        Fewest rows for each column. With fewer rows than columns, the projections that leave show the span of the rows.
    few_rows : {"warn", "ask", "refuse", "off"}
    influence, leverage : pair of float
        Of one record on W at fixed embedding, and its leverage: above the first a warning, above the second
        `dominance`.
    dominance : {"warn", "ask", "refuse", "off"}

    Examples
    --------
    >>> from fmtc.privacy.rules import Policy
    >>> Policy().small_cluster, Policy().min_cluster
    ('warn', 5)
    >>> Policy(few_rows="shout")
    Traceback (most recent call last):
    ...
    ValueError: few_rows must be one of 'off', 'warn', 'ask', 'refuse', got 'shout'
    """

    min_cluster: int = 5
    small_cluster: str = WARN
    min_share_rows: int = FEW
    rows_per_column: float = 3.0
    few_rows: str = WARN
    influence: tuple[float, float] = (0.05, 0.15)
    leverage: tuple[float, float] = (0.2, 0.5)
    dominance: str = ASK

    def __post_init__(self) -> None:
        check_choice("small_cluster", self.small_cluster, (*SEVERITY, OMIT))
        for name in ("few_rows", "dominance"):
            check_choice(name, getattr(self, name), SEVERITY)
        for name in ("min_cluster", "min_share_rows"):
            check_number(name, getattr(self, name), int, "a whole number of at least 1", lambda v: v >= 1)
        check_number("rows_per_column", self.rows_per_column, Real, "a number of at least 0", lambda v: v >= 0)
        for name in ("influence", "leverage"):
            pair = tuple(getattr(self, name))
            if len(pair) != 2 or not 0 < pair[0] <= pair[1]:
                raise ValueError(
                    f"{name} must be two numbers above 0, the lower one first, got {getattr(self, name)!r}"
                )
            object.__setattr__(self, name, pair)

    @property
    def asks(self) -> bool:
        """Whether a person may be asked."""
        return ASK in (self.small_cluster, self.few_rows, self.dominance)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Policy:
        """Undo `asdict`, JSON or TOML; what is not named keeps its default."""
        known = [f.name for f in fields(cls)]
        for name in document:
            if name not in known:
                raise ValueError(f"there is no rule {name!r}; {nearest_names(name, known)}")
        return cls(**document)

    @classmethod
    def read(cls, path: Path) -> Policy:
        """A policy from a TOML file."""
        return read_file(path, lambda content: cls.from_dict(tomllib.loads(content.decode())), "is no policy")


QUIET = Policy(small_cluster=OFF, few_rows=OFF, dominance=OFF)  # nothing but: no centre of one row leaves


# ------------------------------------------------------------------------------------------- what a phase declares


class Centres(Protection):
    """For centres of a client's own clusters: no row leaves as the centre of a cluster of one."""

    def covered(self, answer: Any, client: Any, policy: Policy) -> Any:
        """Centres of small clusters become mean directions of the rows nearest to them; those of one row always do."""
        fewest = max(policy.min_cluster if policy.small_cluster == OMIT else 0, ALONE)
        small = np.flatnonzero(self.counts(answer, client) < fewest)
        if not len(small):
            return answer
        E, centers = to_numpy(double(client.own.E)), np.array(answer.centers)
        nearest = np.argsort(-(E @ centers[small].T.astype(np.float64)), axis=0, kind="stable")
        for place, cluster in enumerate(small):
            mean = E[nearest[: max(policy.min_cluster, ALONE), place]].mean(axis=0, keepdims=True)
            centers[cluster] = (mean / row_norms(mean))[0]
        return replace(answer, centers=centers)

    def counts(self, answer: Any, client: Any) -> Array:
        """Rows of each of its clusters."""
        own = client.own
        return np.bincount(to_numpy(own.labels), minlength=len(own.model.centers)).astype(np.float64)


class Shares(Protection):
    """For shares of a client's clusters: small ones look absent."""

    def covered(self, answer: Any, client: Any, policy: Policy) -> Any:
        """Shares of clusters with few rows are 0; others are then shares of the rest, or small ones would follow."""
        shares = presence_of(client.labels, len(answer.shares), policy.min_share_rows)
        return replace(answer, shares=np.array([share or 0.0 for share in shares]))


class ClusterSums(Protection):
    """For sums over the rows nearest to each centre."""

    def covered(self, answer: Any, client: Any, policy: Policy) -> Any:
        """Small clusters are counted with the nearest, where the policy omits them: sums of a coarser division."""
        least = policy.min_cluster
        if policy.small_cluster != OMIT or not ((answer.counts > 0) & (answer.counts < least)).any():
            return answer
        counts, sums = np.array(answer.counts), np.array(answer.sums)
        for s in range(len(counts)):
            for j, t in _mergers(counts[s], sums[s] / np.maximum(counts[s], 1e-300)[:, None], least):
                counts[s, t] += counts[s, j]
                sums[s, t] += sums[s, j]
                counts[s, j], sums[s, j] = 0.0, 0.0
        return replace(answer, counts=counts, sums=sums)

    def counts(self, answer: Any, client: Any) -> Array:
        """Rows of each cluster."""
        return answer.counts


class MixtureSums(ClusterSums):
    """For sums of a round of a mixture."""

    def covered(self, answer: Any, client: Any, policy: Policy) -> Any:
        """Small concepts are counted with the nearest, where the policy omits them."""
        if policy.small_cluster != OMIT:
            return answer
        cells = getattr(client, "cells", None)
        return _without_concepts(answer, policy.min_cluster, () if cells is None else cells.levels)


class Rules:
    """The rules of one client.

    Parameters
    ----------
    policy : Policy
    ask : callable, optional
        Asks a person whether an answer may leave, given a description of it. Without, an answer that waits does not.
    always : bool
        Whether a person is asked before the first answer of each phase of a run, whatever a rule says.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.privacy.rules import Policy, Rules
    >>> from fmtc.protocol.mixture.opening import SEED
    >>> answer = SEED.Answer(counts=np.array([[40.0, 1.0]]), sums=np.ones((1, 2, 3)))
    >>> [found.rule for found in Rules(Policy()).check(SEED, answer, None)]
    ['small cluster']
    >>> Rules(Policy(small_cluster="omit")).protect(SEED, answer, None).counts
    array([[41.,  0.]])
    """

    def __init__(self, policy: Policy = QUIET, ask: Ask | None = None, always: bool = False):
        self.policy, self.ask, self.always = policy, ask, always

    # ------------------------------------------------------------------------------------------- what may leave

    def protect(self, phase: Any, answer: Any, client: Any) -> Any:
        """The answer in the form in which it may leave; the same object where nothing has to change."""
        return phase.protect.covered(answer, client, self.policy)

    def check(self, phase: Any, answer: Any, client: Any, *, first: bool = True) -> list[Finding]:
        """What the rules have to say of an answer.

        Parameters
        ----------
        phase : Phase
        answer : phase.Answer
            As `protect` left it, before noise and masks.
        client : object
            The client's state after it replied.
        first : bool
            Whether the phase is answered for the first time in this run: what costs time is looked at only then.
        """
        declared: Protection = phase.protect
        found = [self._small(phase, answer, client)]
        if first and declared.few_rows:
            found.append(self._few(client))
        if declared.dominance == ALWAYS or (first and declared.dominance == FIRST):
            found.append(self._dominance(client))
        return [finding for finding in found if finding is not None]

    # ----------------------------------------------------------------------------------------------- the rules

    def _small(self, phase: Any, answer: Any, client: Any) -> Finding | None:
        policy = self.policy
        counts = None if policy.small_cluster in (OFF, OMIT) else phase.protect.counts(answer, client)
        if counts is None:
            return None
        there = counts[counts > PRESENT]
        small = there[there < policy.min_cluster]
        if not len(small):
            return None
        return Finding(
            "small cluster",
            policy.small_cluster,
            f"{len(small)} of {len(there)} clusters in an answer to {phase.name!r} have fewer than "
            f"{policy.min_cluster} rows, the smallest {small.min():.3g}: their means tell of single rows. "
            'Ask for fewer clusters, or set small_cluster = "omit"',
        )

    def _few(self, client: Any) -> Finding | None:
        rows = getattr(client, "rows", None)
        shape = getattr(client, "X", None) if rows is None else rows
        if self.policy.few_rows == OFF or shape is None:
            return None
        n, d = shape.shape
        if n >= self.policy.rows_per_column * d:
            return None
        shown = " With fewer rows than columns, what leaves shows the span of the rows." if n < d else ""
        return Finding(
            "few rows",
            self.policy.few_rows,
            f"{n} rows for {d} columns are fewer than {self.policy.rows_per_column:g} for each.{shown}",
        )

    def _dominance(self, client: Any) -> Finding | None:
        policy = self.policy
        factors, F, W = (getattr(client, name, None) for name in ("factors", "F", "W"))
        if policy.dominance == OFF or factors is None or F is None or W is None:
            return None
        found = record_influence(factors, F, W)
        change, leverage = float(found.change.max()), float(found.leverage.max())
        if change <= policy.influence[0] and leverage <= policy.leverage[0]:
            return None
        above = change > policy.influence[1] or leverage > policy.leverage[1]
        return Finding(
            "dominance",
            policy.dominance if above else WARN,
            f"one record moves the projection by {100 * change:.2g} % at fixed embedding, and the largest leverage of "
            f"a record is {leverage:.2f}: what leaves tells of it. Look at rows unlike all others, or scale them",
        )


# --------------------------------------------------------------------------------------------- answers that are pooled


def _mergers(counts: Array, means: Array, least: float) -> list[tuple[int, int]]:
    """Which concept goes into which, so that none has fewer than `least` rows: the smallest into the nearest, in turn.

    Parameters
    ----------
    counts : array of shape (k,)
    means : array of shape (k, r)
    least : float

    Returns
    -------
    list of pairs
        Empty where no concept is small.
    """
    counts, means = np.array(counts, np.float64), np.array(means, np.float64)
    found: list[tuple[int, int]] = []
    while True:
        there = np.flatnonzero(counts > 0)
        small = there[counts[there] < least]
        if not len(small):
            return found
        j = int(small[counts[small].argmin()])
        others = there[there != j]
        if not len(others):
            raise TrustError(
                f"this silo has fewer than {least:g} rows, and its policy omits clusters that are smaller: nothing "
                "would be left to send"
            )
        t = int(others[((means[others] - means[j]) ** 2).sum(axis=1).argmin()])
        total = counts[t] + counts[j]
        means[t] = (counts[t] * means[t] + counts[j] * means[j]) / total
        counts[t], counts[j] = total, 0.0
        found.append((j, t))


def _without_concepts(answer: Any, least: int, sizes: tuple[int, ...] = ()) -> Any:
    """The same for a round of a mixture: sums that rows could have given which lie in the nearest concept instead."""
    if not ((answer.counts > 0) & (answer.counts < least)).any():
        return answer
    changed = {
        name: np.array(value)
        for name in ("counts", "weights", "means", "scatter", "spread", "level_weights", "levels")
        if (value := getattr(answer, name)) is not None
    }
    lower, column = np.tril_indices(answer.means.shape[2])
    for s in range(len(answer.counts)):
        n, w = changed["counts"][s], changed["weights"][s]
        x = changed["means"][s] / np.where(w > 0, w, np.inf)[:, None]  # mean rows
        b = np.where(w > 0, 1 / np.where(w > 0, w, 1.0) - 1 / np.maximum(n, 1e-300), np.inf)
        known = bool((w[n > 0] > 0).all())  # otherwise no mean has left, and there is none to pool
        products = np.zeros((x.shape[1], x.shape[1]))
        before = (x.T * w) @ x
        for j, t in _mergers(n, x, least):
            moved = max(n[j] - TRACE, 0.0)
            gap, total = x[j] - x[t], n[t] + moved
            products += n[t] * moved / total * np.outer(gap, gap)  # what lay between the two lies within one now
            x[t] = (n[t] * x[t] + moved * x[j]) / total
            n[t], n[j] = total, n[j] - moved
            x[j] = x[t]
            changed["spread"][s, :, j] = 0.0
            if sizes:
                _pool_levels(changed, s, j, t, b, np.repeat(np.arange(len(sizes)), sizes))
        if known:
            w[:] = np.where(np.isfinite(b), n / (1 + n * np.where(np.isfinite(b), b, 0.0)), w)
            changed["means"][s] = w[:, None] * x
            changed["scatter"][s] += (products + (x.T * w) @ x - before)[lower, column]
    return replace(answer, **changed)


def _pool_levels(changed: dict[str, Array], s: int, j: int, t: int, b: Array, owner: Array) -> None:
    """Counts of levels of concept j go to concept t; `owner` is the category of each level."""
    weights, levels = changed["level_weights"][s], changed["levels"][s]
    finite = np.where(np.isfinite(b), b, 0.0)
    rows = weights / np.maximum(1 - weights * finite[:, None], 1e-12)  # k x q, rows that have the category
    scale = np.where(weights > 0, rows / np.where(weights > 0, weights, 1.0), 0.0)[:, owner]
    counts = levels * scale  # k x l
    counts[t] += counts[j]
    rows[t] += rows[j]
    weights[t] = rows[t] / (1 + rows[t] * finite[t])
    levels[t] = counts[t] * np.where(rows[t] > 0, weights[t] / np.where(rows[t] > 0, rows[t], 1.0), 0.0)[owner]
    weights[j], levels[j] = 0.0, 0.0
