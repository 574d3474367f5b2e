"""What a command shows while a run goes on: a bar on a terminal, a line for each event elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..runtime.driver import RoundRecord
from ..settings import EM_ROUNDS
from ..tables import Finding
from .check import Comparison
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
    """Shows rounds as they pass: a bar on a terminal, a line each elsewhere, nothing when quiet.

    A callback of `fit`; `hear` takes the events of a federation.

    Parameters
    ----------
    words : Words
    before : str
        What happens before the first round.
    max_iter, tol : optional
        Of the rounds, where there are any.
    names : mapping of str to str, optional
        What a silo is called here, where it has another name in the federation.
    """

    def __init__(
        self, words: Words, before: str, max_iter: int = 0, tol: float = 0.0, names: Mapping[str, str] | None = None
    ):
        self.words, self.max_iter, self.tol, self.names = words, max_iter, tol, names or {}
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

    def hear(self, event: Mapping[str, Any]) -> None:
        """Show one event of a federation."""
        kind, site = event["event"], str(event.get("site", "")).removeprefix("silo-")
        silos = ", ".join(self.names.get(silo, silo) for silo in event.get("silos", event.get("missing", ())))
        facts = {"why": None, "silo": None, **event, "site": self.names.get(site, site), "silos": silos}
        if kind in SAID:
            self.say(SAID[kind].format(**facts))
        elif kind in NOTED:
            self.words.note(NOTED[kind].format(**facts))
        elif kind == "surveyed" and event["findings"]:
            findings = [Finding(**finding) for finding in event["findings"]]
            Comparison(event["silos"], findings).show(self.words)
        elif kind == "round":
            record = RoundRecord.from_dict(event["record"])
            self(record, f", {decimal(record.bytes_up)} up, {decimal(record.bytes_down)} down, {record.seconds:.1f} s")
