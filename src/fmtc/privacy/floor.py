"""The least privacy that a client asks of a run, whatever the coordinator says."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from ..errors import InputError, TrustError
from .accounting import epsilon_of, mu_of, without_colluders

# The same as the defaults of `Privacy`, so that a run as usual passes a floor that names epsilon only.
DELTA = 1e-5  # at most 1/n for up to 100,000 rows, as is usual; a silo with more rows names a smaller one
# Whoever coordinates often has the rows of one silo, too, and knows the noise of that silo. Its own noise is all that a
# silo can be sure of, and that alone would be the noise of one silo for each: a choice for few rows, not a default.
COLLUDING = 1


@dataclass(frozen=True)
class Floor:
    """The least privacy of a run: none, sums, or noise that keeps epsilon small.

    Parameters
    ----------
    sums : bool
        The server may see sums over silos only.
    epsilon : float, optional
        Largest epsilon at `delta`, computed from the noise of the run: what its settings call epsilon may belong to
        another delta, or to fewer silos that work together.
    delta : float
    colluding : int
        Other silos that may work with the coordinator, and take their noise off the sums.

    Examples
    --------
    >>> from fmtc import Privacy
    >>> from fmtc.settings import Settings
    >>> from fmtc.privacy.floor import Floor
    >>> Floor.read("sums").check(Settings(privacy="sums", view="mixture"))
    >>> Floor.read("epsilon=2").check(Settings(privacy=Privacy(epsilon=2, delta=0.0049, bounds=(0, 1))))
    Traceback (most recent call last):
    ...
    fmtc.errors.TrustError: the run has epsilon=2 at delta=0.0049 with colluding=1, which is epsilon=3.472 at \
delta=1e-05 with colluding=1; this silo asks for epsilon of at most 2 there (its privacy floor). The coordinator can \
run with epsilon=2, delta=1e-05 and colluding=1
    """

    sums: bool = False
    epsilon: float | None = None
    delta: float = DELTA
    colluding: int = COLLUDING

    @classmethod
    def read(cls, text: str | None) -> Floor:
        """The floor in words: ``sums`` or ``epsilon=2,delta=1e-5,colluding=1``; None or ``none``: there is none."""
        if text is None or text == "none":
            return cls()
        if text == "sums":
            return cls(sums=True)
        pairs = [part.strip().partition("=")[::2] for part in text.split(",")]
        try:
            given = {name: int(value) if name == "colluding" else float(value) for name, value in pairs}
            floor = cls(sums=True, **given)  # type: ignore[arg-type]
            fits = len(given) == len(pairs) and 0 < (floor.epsilon or 0) < inf and 0 < floor.delta < 1
        except (TypeError, ValueError):
            fits = False
        if not fits or floor.colluding < 0:
            raise InputError(
                f"a privacy floor is none, sums or epsilon=2,delta={DELTA:g},colluding={COLLUDING} (the last two by "
                f"default), got {text!r}"
            )
        return floor

    def check(self, settings: Any, silos: int | None = None) -> None:
        """Raise `TrustError` for settings of a run with less privacy.

        Parameters
        ----------
        settings : object
        silos : int, optional
            Those of the run. Before that is known, only runs with too little noise for any number are refused.
        """
        privacy: Any = getattr(settings, "privacy", None)
        asked = 'at least privacy="sums"' if self.epsilon is None else f"epsilon of at most {self.epsilon:g}"
        if self.sums and privacy is None:
            raise TrustError(
                "the run has no privacy: the server would see this silo's own answers; this silo asks for "
                f"{asked} (its privacy floor)"
            )
        if self.epsilon is None:
            return
        if not getattr(privacy, "noisy", False):
            raise TrustError(f"the run adds no noise; this silo asks for {asked} (its privacy floor)")
        reached = self._reached(privacy, silos)
        if reached > self.epsilon * (1 + 1e-9):
            there = f"delta={self.delta:g} with colluding={self.colluding}" + (f" of {silos} silos" if silos else "")
            comes = f"no epsilon at {there}" if reached == inf else f"epsilon={reached:.4g} at {there}"
            more = f", and with at least {self.colluding + 1} silos" if silos and silos <= self.colluding else ""
            raise TrustError(
                f"the run has epsilon={privacy.epsilon:g} at delta={privacy.delta:g} with "
                f"colluding={privacy.colluding}, which is {comes}; this silo asks for {asked} there (its privacy "
                f"floor). The coordinator can run with epsilon={self.epsilon:g}, delta={self.delta:g} and "
                f"colluding={self.colluding}{more}"
            )

    def _reached(self, privacy: Any, silos: int | None) -> float:
        """The least epsilon, at our delta, of what the server sees when so many silos take their noise off."""
        mu = mu_of(privacy.epsilon, privacy.delta)
        if silos is None:  # in a run of very many, a few more or fewer matter little
            return 0.0 if self.colluding < privacy.colluding else epsilon_of(mu, self.delta)
        if silos <= privacy.colluding:
            return inf
        return epsilon_of(without_colluders(mu, silos, privacy.colluding, self.colluding), self.delta)
