"""A clock for tests of waiting, which do not wait.

A `ManualClock` stands still until all threads that use it sleep; then it jumps to the moment at which the first of them
wakes.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable


class ManualClock:
    """A clock that jumps instead of waiting: hours pass in milliseconds, and always in the same order.

    The thread that makes it takes part. Others are started with `start`. One thread runs at a time; time passes when
    all sleep.

    Parameters
    ----------
    now : float
        The time at the start.
    limit : float
        Raises `TimeoutError` when this moment passes, so that what would wait for ever fails.

    Examples
    --------
    >>> from tests.clock import ManualClock
    >>> clock = ManualClock()
    >>> clock.at(30, lambda: print("half a minute"))
    >>> clock.sleep(3600)
    half a minute
    >>> clock.monotonic()
    3600.0
    """

    def __init__(self, now: float = 0.0, limit: float = float("inf")):
        self._now, self.limit = float(now), limit
        self._queue: list[tuple[float, int, Callable[[], object]]] = []  # when, order, what to do
        self._count = 0

    def monotonic(self) -> float:
        """Seconds since 0."""
        return self._now

    def time(self) -> float:
        """The same as `monotonic`."""
        return self._now

    def at(self, when: float, act: Callable[[], object]) -> None:
        """Call a function, which must not sleep, at a moment to come; at the next sleep if that moment has passed."""
        self._count += 1
        heapq.heappush(self._queue, (max(float(when), self._now), self._count, act))

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Call a function in so many seconds."""
        self.at(self._now + seconds, act)

    def sleep(self, seconds: float) -> None:
        """Let others run until so many seconds have passed."""
        mine = _Turn()
        self.after(max(0.0, seconds), mine)
        try:
            self._advance()
        except BaseException:  # of something that was due: it is ours now, and so is the turn
            mine.given_up = True
            raise
        mine.wait()
        if self._now > self.limit:
            raise TimeoutError(f"{self.limit:g} seconds have passed")

    def start(self, target: Callable[[], object]) -> threading.Thread:
        """Run a function in a thread of its own that shares this clock, from the next time all others sleep."""

        def work() -> None:
            mine.wait()
            try:
                target()
            finally:
                self._advance()

        mine = _Turn()
        self.at(self._now, mine)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def _advance(self) -> None:
        """Do what is due next, until it is a thread's turn."""
        while self._queue:
            when, _, act = heapq.heappop(self._queue)
            if isinstance(act, _Turn) and act.given_up:
                continue
            self._now = max(self._now, when)
            act()
            if isinstance(act, _Turn):
                return


class _Turn(threading.Event):
    """A thread that sleeps until it is called."""

    given_up = False

    def __call__(self) -> None:
        self.set()
