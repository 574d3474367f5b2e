"""A silo's part in a federation: its process, kept alive, and what happens in it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from ...artifacts.files import read_json
from ...errors import FileError, TrustError, listed
from ..clock import SYSTEM, Clock
from ..kitclient import (
    ASKED,
    END_FORM,
    ENDED,
    HELD,
    PREFLIGHT,
    RESULT,
    SHOWN,
    STATES,
    TROUBLE,
    WORDS_FORM,
    ClientSource,
    finish_alone,
    lacks_last_word,
    read_asked,
    read_client_result,
)
from . import compat, serve
from .connection import reachable, refusal
from .enrol import Roster, accepted, receive, strangers
from .kits import Kit
from .processes import CONSOLE, Process
from .supervise import Follower

DELIVERED = "delivered"  # in a silo's folder of a run: its result has been written where it was wanted
HELD_FORM = {"run": str, "phase": str, "fields": [{"field": str, "shape": [int], "bytes": int}]}
SLOW = 10.0  # seconds without a connection after which we look for the reason


class Membership:
    """A silo's part in a federation; a context that locks the kit and leaves no process behind.

    Parameters
    ----------
    kit : Kit
        The silo's.
    source : ClientSource
        Where its rows are, and what its person allows.
    clock : Clock
        What tells the time.
    start : callable
        Starts FLARE's process, given the kit and the name of the party that joins.
    """

    def __init__(
        self, kit: Kit, source: ClientSource, *, clock: Clock = SYSTEM, start: Callable[[Kit, str], Process] = Process
    ):
        self.kit, self.source, self.clock, self.start = kit, source, clock, start
        self.party = secrets.token_hex(8)
        self.process: Process | None = None
        self._states = kit.path / STATES
        self._kept = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._kept:
            self._kept.enter_context(self.kit.held())
            self.kit.check()
            (self.kit.startup / serve.ARRIVED).unlink(missing_ok=True)
            self.source.write(self.kit.path)
            # what is there before our process starts; `watch` reports what comes after
            self._delivered = {path.parent.name for path in self._states.glob(f"*/{DELIVERED}")}
            self._compared = {path.parent.name for path in self._states.glob(f"*/{PREFLIGHT}")}
            self._errors = Follower(self.kit.path / TROUBLE)
            self._answered = self._asked = self.clock.monotonic()  # when somebody answered last; when we asked last
            self._start()
            self._kept = self._kept.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._kept:
            if self.process is not None:
                self.process.stop()

    def _receive(self) -> Roster:
        """The roster that our process ended for: that of the coordinator, or of the kit; `TrustError` for none."""
        arrived = self.kit.startup / serve.ARRIVED
        roster = Roster.read(self.kit.startup)
        if arrived.exists():
            try:
                document = read_json(arrived)
            except FileError as error:
                raise TrustError(f"the coordinator handed us a roster that cannot be read: {error}") from None
            finally:
                arrived.unlink(missing_ok=True)
            roster = receive(self.kit, document, "the roster that the coordinator handed us")
        self.kit.check()
        return roster

    def _check(self, roster: Roster) -> None:
        """Raise `TrustError` where nobody here has accepted a roster: then nothing leaves."""
        unknown = strangers(self.kit, roster)
        if unknown or not accepted(self.kit):
            raise TrustError(f"silo {listed(unknown)} of the roster {roster.code} was not accepted; nothing was sent")

    def _start(self) -> None:
        self._console = Follower(self.kit.path / CONSOLE)
        self.process = self.start(self.kit, self.party)
        self.connected = False

    def _finish_unheard(self) -> None:
        """End a run of which only the last word is missing, once nobody has answered for as long as silos may."""
        now = self.clock.monotonic()
        if now - self._asked < SLOW / 2 or not self.unfinished:
            return
        self._asked = now
        if not reachable(self.kit):
            self._answered = now
        elif now - self._answered > self.kit.plan.lost_after:
            for folder in self._states.glob("*"):
                finish_alone(folder)

    def watch(self) -> Iterator[dict[str, Any]]:
        """Events as they happen, without end.

        They are connected, restarted, trouble (nobody answers), refused (the coordinator does not accept us), second
        party (somebody else tried to join as this silo), roster (a person has to accept it: the caller asks and calls
        `pin`, or `TrustError` is raised), asked (the settings of a run), held (an answer that
        waits for a person), preflight, error (of our own), round, ended, confirmed (the coordinator knows that we have
        our labels) and idle.

        A run whose labels are here ends also when its last word does not come: nobody answers for as long as a silo
        may be silent, or another run has begun. The event says ``alone`` then, and ``earlier`` in the second case.
        """
        clock, delivered, compared = self.clock, self._delivered, self._compared
        alone = {path.parent.name for path in self._states.glob(f"*/{ENDED}") if read_json(path, END_FORM).get("alone")}
        newest: dict[str, int] = {}
        held: set[Path] = set()
        began, warned, crashes = clock.monotonic(), False, 0
        while True:
            assert self.process is not None
            for line in self._console.lines():
                if compat.REGISTERED.encode() in line and not self.connected:
                    self.connected, warned, crashes = True, False, 0
                    yield {"event": "connected"}
                if line.startswith((serve.PREFIX + serve.REFUSED).encode()):
                    yield {"event": "refused", "why": self._twice()}
                if line.startswith((serve.PREFIX + serve.SECOND).encode()):
                    yield {"event": "second party"}
            for event in self._errors.events():
                yield event | {"event": "error"}
            if not self.process.alive and ((self.kit.startup / serve.ARRIVED).exists() or not accepted(self.kit)):
                roster = self._receive()
                if strangers(self.kit, roster) or not accepted(self.kit):
                    yield {"event": "roster", "roster": roster}
                self._check(roster)
                self._start()
                began, warned = clock.monotonic(), False
            if not self.process.alive:
                crashes += 1
                yield {"event": "restarted", "log": str(self.process.log), "attempt": crashes}
                clock.sleep(min(30.0, 2.0**crashes))
                self._start()
                began = clock.monotonic()
            if not self.connected and not warned and clock.monotonic() - began > SLOW:
                warned = True
                why = refusal(self.kit, clock=clock)
                yield {"event": "refused", "why": why} if why else {"event": "trouble", "why": reachable(self.kit)}
            for path in sorted(self._states.glob("*/*")):
                run_id = path.parent.name
                if path.name == ASKED and not path.with_name(SHOWN).exists():
                    yield {"event": "asked", "run": run_id, **read_asked(path)}
                    path.with_name(SHOWN).touch()
                if path.name.startswith("round-") and run_id not in delivered:
                    round_no = int(path.stem.partition("-")[2])
                    if round_no > newest.get(run_id, 0):
                        newest[run_id] = round_no
                        yield {"event": "round", "round": round_no, "run": run_id}
                if path.name == PREFLIGHT and run_id not in compared:
                    compared.add(run_id)
                    yield {"event": "preflight", **read_json(path, WORDS_FORM)}
                if path.name == ENDED and run_id not in delivered:
                    result, how = read_client_result(path.with_name(RESULT)), read_json(path, END_FORM)
                    later = [other for other in self._states.iterdir() if _began(other) > _began(path.parent)]
                    if not later:
                        self.process.finish_jobs()
                    delivered.add(run_id)  # reported once, even where it could not be written
                    if how.get("alone"):
                        alone.add(run_id)
                    yield {"event": "ended", "run": run_id, "result": result, "earlier": bool(later), **how}
                elif path.name == ENDED and run_id in alone and not read_json(path, END_FORM).get("alone"):
                    alone.discard(run_id)
                    self.process.finish_jobs()
                    yield {"event": "confirmed", "run": run_id}
            for path in sorted(self._states.glob(f"*/{HELD}/*.json")):
                if path not in held:
                    held.add(path)
                    yield {"event": "held", **read_json(path, HELD_FORM)}
            held = {path for path in held if path.exists()}
            self._finish_unheard()
            yield {"event": "idle"}
            clock.sleep(0.2)

    @property
    def unfinished(self) -> bool:
        """Whether labels of a run are here, and only the coordinator's last word is missing."""
        return any(map(lacks_last_word, self._states.glob("*")))

    def _twice(self) -> str:
        return (
            f"somebody else takes part as {self.kit.name!r} already, with a copy of this kit: a silo joins once. End "
            f"the other `fmtc join`; if its machine has failed, try again after {self.kit.plan.lost_after:g} seconds"
        )

    def deliver(self, run_id: str) -> None:
        """Record that the result of a run has been written where it was wanted."""
        (self._states / run_id / DELIVERED).touch()
        self._delivered.add(run_id)

    def decide(self, run_id: str, phase: str, send: bool) -> None:
        """Say whether an answer that is held may leave."""
        (self._states / run_id / HELD / f"{phase}.{'yes' if send else 'no'}").touch()

    def discard(self) -> None:
        """Give up results that could not be written."""
        for folder in self._states.glob("*"):
            finish_alone(folder)
        for path in self._states.glob(f"*/{ENDED}"):
            self.deliver(path.parent.name)


def _began(folder: Path) -> float:
    """When a run asked for something first, or again with other settings."""
    with contextlib.suppress(OSError):
        return (folder / ASKED).stat().st_mtime
    return 0.0


__all__ = ["Membership"]
