"""The least privacy that a client asks of a run, whatever the coordinator says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import InputError, TrustError


@dataclass(frozen=True)
class Floor:
    """The least privacy of a run: none, sums, or noise of at most some epsilon.

    Examples
    --------
    >>> from fmtc import Settings
    >>> from fmtc.privacy.floor import Floor
    >>> Floor.read("sums").check(Settings(privacy="sums", view="mixture"))
    >>> Floor.read("epsilon=2").epsilon
    2.0
    """

    sums: bool = False
    epsilon: float | None = None

    @classmethod
    def read(cls, text: str | None) -> Floor:
        """The floor in words: ``sums`` or ``epsilon=2``; None or ``none``: there is none."""
        if text is None or text == "none":
            return cls()
        if text == "sums":
            return cls(sums=True)
        name, _, value = text.partition("=")
        try:
            epsilon = float(value)
        except ValueError:
            epsilon = 0.0
        if name != "epsilon" or not 0 < epsilon < float("inf"):
            raise InputError(f"a privacy floor is none, sums or epsilon=2, got {text!r}")
        return cls(sums=True, epsilon=epsilon)

    def check(self, settings: Any) -> None:
        """Raise `TrustError` for settings of a run with less privacy."""
        privacy = getattr(settings, "privacy", None)
        asked = 'at least privacy="sums"' if self.epsilon is None else f"epsilon of at most {self.epsilon:g}"
        asked = f"this client asks for {asked} (its privacy floor)"
        if self.sums and privacy is None:
            raise TrustError(f"the run has no privacy: the server would see this client's own answers; {asked}")
        epsilon = getattr(privacy, "epsilon", None)
        if self.epsilon is not None and (epsilon is None or epsilon > self.epsilon):
            said = "the run adds no noise" if epsilon is None else f"the run has epsilon={epsilon:g}"
            raise TrustError(f"{said}; {asked}")
