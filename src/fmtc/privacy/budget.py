"""How much of its privacy a silo's rows have spent, over all runs: a file in the silo's kit.

Each release of a private stage costs a squared μ (`Phase.charge`). It is written down before the answer leaves, so that
a crash can only charge too much. What was paid for once may be sent again: a replay of the same bytes is free. Budgets
belong to rows, by their fingerprint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path
from typing import Any

from ..artifacts.files import Kind, read_json, write_file
from ..artifacts.locks import in_turn
from ..errors import TrustError
from .accounting import epsilon_of

BUDGET = "budget.json"  # in a kit
SPENT = Kind("fmtc budget", 1)
FORM: dict[str, Any] = {"kind": str, "schema": int, "rows": {str: {"mu2": float, "delta": float, "releases": int}}}


@dataclass(frozen=True)
class Spent:
    """What some rows have spent so far."""

    mu2: float = 0.0  # sum over releases
    delta: float = 1.0  # the least of all runs
    releases: int = 0

    @property
    def epsilon(self) -> float:
        """At `delta`, for everything that has ever left of these rows."""
        return epsilon_of(sqrt(self.mu2), self.delta) if self.mu2 else 0.0


class Budget:
    """The budget of a silo.

    Parameters
    ----------
    path : path
        File that holds what was spent; made with the first charge.
    epsilon : float, optional
        Most that the rows may ever spend, all runs together. Without, charges are recorded and nothing is refused.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from fmtc.privacy.budget import Budget
    >>> budget = Budget(Path(mkdtemp()) / "budget.json", epsilon=2)
    >>> budget.charge("rows of today", mu2=0.1, delta=1e-5)
    >>> round(budget.spent("rows of today").epsilon, 2), round(budget.left("rows of today"), 2)
    (1.2, 0.8)
    """

    def __init__(self, path: Path, epsilon: float | None = None):
        self.path, self.epsilon = path, epsilon

    def all(self) -> dict[str, Spent]:
        """What was spent, by fingerprint of the rows."""
        if not self.path.exists():
            return {}
        about = read_json(self.path, FORM, kind=SPENT)
        return {name: Spent(**line) for name, line in about["rows"].items()}

    def spent(self, fingerprint: str) -> Spent:
        """What these rows have spent."""
        return self.all().get(fingerprint, Spent())

    def left(self, fingerprint: str) -> float:
        """ε that is left to these rows; infinity without a limit."""
        return inf if self.epsilon is None else max(self.epsilon - self.spent(fingerprint).epsilon, 0.0)

    def charge(self, fingerprint: str, mu2: float, delta: float) -> None:
        """Write a charge down, on disk before this returns.

        Raises
        ------
        TrustError
            If more would then be spent than the budget has; nothing is charged.
        """
        if mu2 == 0:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with in_turn(self.path.with_suffix(".lock")):  # two runs at a time share a budget
            known = self.all()
            before = known.get(fingerprint, Spent())
            after = Spent(before.mu2 + mu2, min(before.delta, delta), before.releases + 1)
            if self.epsilon is not None and after.epsilon > self.epsilon * (1 + 1e-9):
                raise TrustError(
                    f"the privacy budget of these rows is epsilon={self.epsilon:g}, {before.epsilon:.3g} of it is "
                    f"spent, and this answer would make it {after.epsilon:.3g} at delta={after.delta:g}; nothing was "
                    "sent."
                )
            rows = {name: vars(line) for name, line in (known | {fingerprint: after}).items()}
            document = {**SPENT.head, "rows": rows}
            write_file(self.path, json.dumps(document, indent=1).encode(), secret=True)
