"""What commands show: tables, and a bar of something counted where they take long."""

from __future__ import annotations

import time
from typing import Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from fmtc.cli.words import Words, new_table


def table_of(*titles: str, left: tuple[str, ...]) -> Table:
    """An empty table; columns are to the right but for those of words."""
    table = new_table()
    for title in titles:
        table.add_column(title, justify="left" if title in left else "right")
    return table


class Bar:
    """A bar of something counted, on a terminal and where nobody asked for quiet; it appears after `slow` seconds.

    Called with how many are done.
    """

    def __init__(self, words: Words, what: str, total: int, *columns: ProgressColumn, slow: float = 0.0):
        console = words.console
        self.live = console.is_terminal and not console.is_dumb_terminal and not words.quiet and total > 0
        self.words, self.total, self.slow, self.began = words, total, slow, time.monotonic()
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), *columns,
            console=console, transient=True, disable=not self.live,
        )  # fmt: skip
        self.task = self.progress.add_task(what, total=total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, done: int, **more: Any) -> None:
        """Show how many are done."""
        self.progress.update(self.task, completed=done, **more)
        if time.monotonic() - self.began >= self.slow and not self.progress.live.is_started:
            self.progress.start()
