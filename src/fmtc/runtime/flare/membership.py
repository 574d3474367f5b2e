"""A silo's part in a federation: its process, kept alive, and what happens in it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Self

from ...artifacts.files import read_json
from ...errors import FileError, TrustError, listed
from ..clock import SYSTEM, Clock
from ..events import Event, at_silo
from ..kitclient import RESULT, STATES, ClientSource, finish_alone, read_client_result
from ..spec import RunSpec
from . import serve
from .doctor import reachable, refusal
from .enrol import Roster, accepted, receive, strangers
from .kits import Kit
from .processes import Process

SLOW = 10.0  # seconds without a connection after which we look for the reason
TWICE = (
    "somebody else takes part as {!r} already, with a copy of this kit: a silo joins once. End the other `fmtc join`; "
    "if its machine has failed, try again after {:g} seconds"
)


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
        self.process: Process
        self._states = kit.path / STATES
        self._kept = contextlib.ExitStack()
        self._crashes = 0  # of our process since it was connected last
        self._over: dict[str, Event] = {}  # by run, its end; from then on it waits to be delivered
        self._done: set[str] = set()  # runs that were delivered, or reported and could not be
        self._began: list[str] = []  # runs, each of which replaced the one before

    def __enter__(self) -> Self:
        with self._kept:
            self._kept.enter_context(self.kit.locked())
            self.kit.check()
            (self.kit.startup / serve.ARRIVED).unlink(missing_ok=True)
            self.source.write(self.kit.path)
            self._events = at_silo(self.kit.path, self.clock)  # news are what comes from now on
            for event in self._events.all():
                self._note(event)
            self._answered = self._asked = self.clock.monotonic()  # when somebody answered last; when we asked last
            self._start()
            self._kept.callback(lambda: self.process.stop())
            self._kept = self._kept.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

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

    def _start(self) -> None:
        self.process = self.start(self.kit, self.party)
        self.connected, self._warned, self._started = False, False, self.clock.monotonic()

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
                finish_alone(folder, self.clock)

    def watch(self) -> Iterator[Event]:
        """Events as they happen, without end.

        They are connected, restarted, trouble (nobody answers), refused (the coordinator does not accept us), second
        party (somebody else tried to join as this silo), roster (a person has to accept it: the caller asks and calls
        `pin`, or `TrustError` is raised), asked (the settings of a run), to leave (an answer that
        waits for a person), preflight, error (of our own), round, ended, confirmed (the coordinator knows that we have
        our labels) and idle.

        A run whose labels are here ends also when its last word does not come: nobody answers for as long as a silo
        may be silent, or another run has begun. The event says ``alone`` then, and ``earlier`` in the second case.
        """
        for run_id in [run_id for run_id in self._over if run_id not in self._done]:
            if (self._states / run_id / RESULT).exists():
                yield self._ended(run_id)
        while True:
            for event in self._events.news():
                yield from self._heard(event)
            yield from self._look_after_process()
            self._finish_unheard()
            yield {"event": "idle"}
            self.clock.sleep(0.2)

    def _look_after_process(self) -> Iterator[Event]:
        """Start it again where it has ended, and look for the reason where it does not connect."""
        if not self.process.alive and ((self.kit.startup / serve.ARRIVED).exists() or not accepted(self.kit)):
            yield from self._ask_about_roster()
        if not self.process.alive:
            self._crashes = 1 if self.connected else self._crashes + 1
            yield {"event": "restarted", "log": str(self.process.log), "attempt": self._crashes}
            self.clock.sleep(min(30.0, 2.0**self._crashes))
            self._start()
        if not (self.connected or self._warned) and self.clock.monotonic() - self._started > SLOW:
            self._warned = True
            why = refusal(self.kit, clock=self.clock)
            yield {"event": "refused", "why": why} if why else {"event": "trouble", "why": reachable(self.kit)}

    def _heard(self, event: Event) -> Iterator[Event]:
        """What a new event of the channel means to the person here."""
        kind, run_id = event["event"], event.get("run", "")
        over = self._over.get(run_id)
        self._note(event)
        if kind == "connected" and not self.connected:
            self.connected = self._warned = True
            yield event
        elif kind == "refused as second":
            yield {"event": "refused", "why": TWICE.format(self.kit.name, self.kit.plan.lost_after)}
        elif kind == "asked":
            RunSpec.from_dict(event, self._events.path)
            yield event
            self._events.tell("shown", run=run_id)
        elif kind == "ended" and over is None and run_id not in self._done:
            yield self._ended(run_id)
        elif kind == "ended" and over is not None and over.get("alone") and not event.get("alone"):
            self.process.finish_jobs()
            yield {"event": "confirmed", "run": run_id}
        elif kind in ("second party", "to leave", "error", "preflight", "round"):
            yield event

    def _note(self, event: Event) -> None:
        """Remember what an event says about its run."""
        kind, run_id = event["event"], event.get("run", "")
        if kind == "begun" and event["replaces"]:
            self._began.append(run_id)
        elif kind == "ended":
            self._over[run_id] = event
        elif kind == "delivered":
            self._done.add(run_id)

    def _ended(self, run_id: str) -> Event:
        """The end of a run, with its result; reported once, even where it could not be written."""
        self._done.add(run_id)
        result = read_client_result(self._states / run_id / RESULT)
        earlier = run_id in self._began[:-1]
        if not earlier:
            self.process.finish_jobs()
        return {**self._over[run_id], "result": result, "earlier": earlier}

    def _ask_about_roster(self) -> Iterator[Event]:
        """Take in the roster that our process ended for, once a person has accepted it, and start again."""
        roster = self._receive()
        if strangers(self.kit, roster) or not accepted(self.kit):
            yield {"event": "roster", "roster": roster}
        unknown = strangers(self.kit, roster)
        if unknown or not accepted(self.kit):  # then nothing leaves
            raise TrustError(f"silo {listed(unknown)} of the roster {roster.code} was not accepted; nothing was sent")
        self._start()

    @property
    def unfinished(self) -> bool:
        """Whether labels of a run are here, and only the coordinator's last word is missing."""
        return any(path.parent.name not in self._over for path in self._states.glob(f"*/{RESULT}"))

    def deliver(self, run_id: str) -> None:
        """Record that the result of a run has been written where it was wanted."""
        self._done.add(run_id)
        self._events.tell("delivered", run=run_id)

    def decide(self, run_id: str, phase: str, send: bool) -> None:
        """Say whether an answer may leave."""
        self._events.tell("decided", run=run_id, phase=phase, send=send)

    def discard(self) -> None:
        """Give up results that could not be written."""
        for folder in self._states.glob("*"):
            if finish_alone(folder, self.clock) or folder.name in self._over:
                self._over.setdefault(folder.name, {})
                self.deliver(folder.name)
