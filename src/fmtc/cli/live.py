"""What a command shows while a run goes on: a bar on a terminal, a line for each event elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..runtime.driver import RoundRecord
from ..settings import EM_ROUNDS
from ..tables import Finding
from .check import show_findings
from .words import Words

SAID = {  # about a federation, by the kind of event
    "waiting": "waiting for {silos}",
    "submitted": "starting with {silos}",
    "started": "silos prepare their rows",
    "done": "finding clusters",
    "over": "the run is over; waiting for {silos} to confirm having labels",
}
NOTED = {
    "away": "{site} was lost",
    "silo back": "{silos} is back; resuming from the last round",
    "job gone": "{why}; resuming from the last round",
    "server lost": "the server process was lost; starting it again and resuming from the last round",
    "lost": "{why}; resuming from the last round",
    "refused": "a message of {site} was refused: {why}",
    "second party": "somebody else tried to join as {silo!r}, with a copy of its kit, and was refused: ask that silo "
    "whether it knows of it",
}


class Rounds:
    """A callback that shows rounds as they pass: a bar on a terminal, a line each elsewhere, nothing when quiet."""

    def __init__(self, words: Words, max_iter: int, tol: float, before: str):
        self.words, self.max_iter, self.tol = words, max_iter, tol
        self.progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(14), TextColumn("{task.fields[residuals]}"),
            TimeElapsedColumn(), console=words.console, transient=True, disable=words.quiet or not words.live,
        )  # fmt: skip
        self.task = self.progress.add_task(before, total=None, residuals="")
        if not words.live:
            words.say(before)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def say(self, status: str) -> None:
        """What goes on besides rounds."""
        self.progress.update(self.task, description=status)
        if not self.words.live:
            self.words.say(status)

    def __call__(self, record: RoundRecord, traffic: str = "") -> None:
        """Show one round."""
        most = EM_ROUNDS * self.max_iter if record.in_mixture else self.max_iter
        away = f", without {', '.join(record.missing)}" if record.missing else ""
        if not self.words.live:
            self.words.say(f"{record.title}: {record.standing}{traffic}{away}")
        last = record.step >= most or max(record.primal_residual, record.dual_residual) < self.tol
        self.progress.update(
            self.task,
            total=most,
            completed=record.step,
            description="finding clusters" if last else f"{record.title}/{most}{away}",
            residuals=record.standing + ("" if record.in_mixture else f" (tol {self.tol:g})"),
        )


class View:
    """Shows the events of a federation in the same way.

    Parameters
    ----------
    words : Words
    names : mapping of str to str
        What a silo is called, by its name in the federation.
    before : str
        What happens before the first event.
    max_iter, tol : optional
        Of the rounds, where there are any.
    """

    def __init__(self, words: Words, names: Mapping[str, str], before: str, max_iter: int = 0, tol: float = 0.0):
        self.words, self.names = words, names
        self.rounds = Rounds(words, max_iter, tol, before)

    def __enter__(self) -> Self:
        self.rounds.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.rounds.__exit__()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event in."""
        kind, site = event["event"], str(event.get("site", "")).removeprefix("silo-")
        silos = ", ".join(self.names.get(silo, silo) for silo in event.get("silos", event.get("missing", ())))
        facts = {"why": None, "silo": None, **event, "site": self.names.get(site, site), "silos": silos}
        if kind in SAID:
            self.rounds.say(SAID[kind].format(**facts))
        elif kind in NOTED:
            self.words.note(NOTED[kind].format(**facts))
        elif kind == "surveyed" and event["findings"]:
            show_findings(self.words, event["silos"], [Finding(**finding) for finding in event["findings"]])
        elif kind == "round":
            record = RoundRecord.from_dict(event["record"])
            self.rounds(
                record, f", {decimal(record.bytes_up)} up, {decimal(record.bytes_down)} down, {record.seconds:.1f} s"
            )


__all__ = ["Rounds", "View"]
