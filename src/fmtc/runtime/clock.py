"""Time, handed over: whatever waits takes a `Clock`, so that tests of waiting do not wait.

The module `time` is a `Clock`, and the default everywhere.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time and lets it pass."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def time(self) -> float:
        """Seconds since 1970."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Wait."""
        ...


SYSTEM: Clock = time
