"""Whether new rows still are what a silo's model was made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from .errors import InputError, plural
from .kernels.ranks import count_test, low_test, stouffer
from .models import ClientModel

Array = np.ndarray

LOW = 10  # per cent: rows that fit less well than so many of the calibrated ones are called low
LEVEL = 0.05  # of an alarm
FEW = 50  # rows of a batch below which small changes do not show


@dataclass(frozen=True)
class SiloDrift:
    """Whether a batch of new rows of one silo still is what its model was made for."""

    silo: str
    p_value: float  # small: rows fit less well than the silo's own did when its model had not seen them
    share_low: float  # rows of the batch that fit less well than nine of ten calibrated ones
    expected: float  # the same share without drift
    n: int  # rows of the batch
    verdict: str  # "drift" or "no drift"

    def __str__(self) -> str:
        few = f"; with fewer than {FEW} rows only large changes show" if self.n < FEW else ""
        return (
            f"{self.silo}: {self.verdict} (p = {_short(self.p_value)}; {100 * self.share_low:.0f} % of "
            f"{plural(self.n, 'row')} fit badly, {100 * self.expected:.0f} % expected{few})"
        )


@dataclass(frozen=True)
class Drift:
    """Whether new rows still are what the models were made for: each silo by itself, and all together.

    Examples
    --------
    >>> from fmtc.confidence import Drift, SiloDrift
    >>> north = SiloDrift("north", 0.03, 0.25, 0.1, 80, "drift")
    >>> print(Drift((north,), 0.03, "drift"))
    north: drift (p = 0.03; 25 % of 80 rows fit badly, 10 % expected)
    """

    silos: tuple[SiloDrift, ...]
    p_value: float  # of all silos together (Stouffer); of one silo, its own
    verdict: str  # "drift" or "no drift"

    @property
    def alarm(self) -> bool:
        """Whether the verdict is drift."""
        return self.verdict == DRIFT

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    def __getitem__(self, silo: str) -> SiloDrift:
        """The result of one silo."""
        return {one.silo: one for one in self.silos}[silo]

    def __str__(self) -> str:
        lines = [str(silo) for silo in self.silos]
        if len(lines) > 1:
            lines.append(f"all {len(lines)} silos together: {self.verdict} (p = {_short(self.p_value)})")
        return "\n".join(lines)


DRIFT, NO_DRIFT = "drift", "no drift"


def _short(p: float) -> str:
    return f"{p:.2g}" if p >= 1e-4 else "below 0.0001"


def silo_drift(silo: str, X: Any, model: ClientModel, level: float = LEVEL) -> SiloDrift:
    """The test of one silo's new rows."""
    known, n = model.calibrated(), X.shape[0]
    fit, threshold = known.fit(model.row_scores(X)), known.quantiles[4, LOW - 1]
    low = int(np.count_nonzero(fit < threshold))
    if known.fits is None:
        expected = LOW / 100
        p = count_test(low, n, expected, known.n_rows)
    else:
        expected = float(np.mean(known.fits < threshold))
        p = low_test(fit, known.fits)
    return SiloDrift(silo, p, low / n, expected, n, DRIFT if p <= level else NO_DRIFT)


def together(silos: Sequence[SiloDrift], level: float = LEVEL) -> Drift:
    """The results of several silos, and one for all of them."""
    return Drift(tuple(silos), *combined([silo.p_value for silo in silos], level))


def combined(p_values: Sequence[float], level: float = LEVEL) -> tuple[float, str]:
    """One p-value and verdict of those of several silos, each of which sent one number (Stouffer).

    Parameters
    ----------
    p_values : sequence of float
    level : float, default=0.05

    Returns
    -------
    p_value : float
    verdict : {"drift", "no drift"}

    Examples
    --------
    >>> from fmtc.confidence import combined
    >>> combined([0.08, 0.11, 0.06])[1]
    'drift'
    """
    wrong = [p for p in p_values if not 0 <= p <= 1]
    if wrong or not len(p_values):
        what = f"got {wrong[0]!r}" if wrong else "got none"
        raise InputError(f"p-values must be numbers from 0 to 1, one for each silo; {what}")
    p = float(p_values[0]) if len(p_values) == 1 else stouffer(p_values)
    return p, DRIFT if p <= level else NO_DRIFT


def without_scores(models: Mapping[str, Any]) -> dict[str, Any]:
    """Models whose calibration holds quantiles only, and no number for each row: for those who give a model away."""
    return {
        cid: replace(model, calibration=replace(model.calibration, fits=None)) if model.calibration else model
        for cid, model in models.items()
    }


__all__ = ["Drift", "SiloDrift", "combined", "silo_drift", "together", "without_scores"]
