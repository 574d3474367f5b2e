"""Phase `end`: the run is over, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import Nothing, Phase, number


class End(Phase):
    """The last message of a run."""

    name = "end"
    doing = "ending the run"
    subject = "run"

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """How the run ended."""

        converged: bool = number("whether the residuals fell below the tolerance", "Nothing else.", kind="flag")

    def reply(self, run: Any, ask: Ask, settings: Any, round_no: int) -> tuple[Any, Nothing]:
        """Note that the run is over."""
        run.end(ask.converged)
        return run, Nothing()


END = End()
