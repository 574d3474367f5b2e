"""What a person at a terminal is asked: whose keys to accept, and whether an answer may leave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..errors import TrustError, listed
from ..protocol.base import plain
from .words import Words, new_table

if TYPE_CHECKING:
    from ..runtime.flare.enrol import Request, Roster
    from ..runtime.flare.kits import Kit

NO_TERMINAL = "there is no terminal to ask at"


def at_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def confirmed(question: str, otherwise: str) -> bool:
    """Yes or no from the terminal; what was typed before the question does not count.

    Where there is no terminal, `TrustError` says what to do `otherwise`.
    """
    if not at_terminal():
        raise TrustError(otherwise)
    import termios  # of POSIX, as federations are

    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    return click.confirm(question, err=True)


def ask_keys(words: Words, requests: Mapping[str, Request], codes: Sequence[str]) -> None:
    """Have the organiser accept the keys of requests; raises `TrustError` where one is not accepted.

    Parameters
    ----------
    words : Words
    requests : mapping of str to Request
        By the name of the silo.
    codes : sequence of str
        Codes that the organiser has compared and accepts; given, nobody is asked.
    """
    from ..privacy.identity import same_code  # loads cryptography

    show_codes(words, {name: one.code for name, one in requests.items()})
    if codes:
        for name, one in requests.items():
            if not any(same_code(code, one.code) for code in codes):
                raise TrustError(f"the key of silo {name!r} has the code {one.code}, which --accept-key does not give")
        return
    flags = " ".join(f"--accept-key {one.code}" for one in requests.values())
    otherwise = f"{NO_TERMINAL}. Compare the code of each silo with it by telephone, then give {flags}"
    if not confirmed("Compare each code with the silo by telephone. Are they the same there?", otherwise):
        raise TrustError(f"the key of silo {listed(list(requests))} was not accepted; nothing was signed")


def show_codes(words: Words, codes: Mapping[str, str]) -> None:
    """A line for each silo. The code comes first and is never cut, however narrow the terminal."""
    for name, code in codes.items():
        words.tell(f"  {code}  {name}")


def show_roster(words: Words, roster: Roster) -> None:
    """Say who is a member, in one line with the code that people compare."""
    waiting = roster_document(roster)["waiting"]
    later = f"; not admitted yet: {', '.join(waiting)}" if waiting else ""
    words.say(f"roster code {roster.code}: {', '.join(sorted(roster.silos)) or 'nobody'}{later}")


def roster_document(roster: Roster) -> dict[str, Any]:
    """The same for machines."""
    waiting = [name for name in roster.planned if name not in roster.silos]
    return {"number": roster.number, "code": roster.code, "silos": roster.fingerprints, "waiting": waiting}


def ask_roster(words: Words, kit: Kit, roster: Roster, code: str | None, *, dialled: bool = True) -> None:
    """Have the person at a silo accept the silos that are new to it, and pin their keys.

    Parameters
    ----------
    words : Words
    kit : Kit
        The silo's.
    roster : Roster
    code : str, optional
        The roster code that the person has compared and accepts; given, nobody is asked.
    dialled : bool
        Whether the coordinator has handed us this roster; before, another code may be that of a newer one.

    Raises
    ------
    TrustError
        Where a key has changed, the code is another one, or the person does not accept.
    """
    from ..privacy.identity import key_code, same_code
    from ..runtime.flare.enrol import pin, strangers

    new = strangers(kit, roster)
    if code is not None and not same_code(code, roster.code):
        if not dialled:
            return
        raise TrustError(f"the roster code is {roster.code}, not {code}: these are not the silos that were accepted")
    show_roster(words, roster)
    if new and code is None:
        remarks = dict.fromkeys(new, "new to us") | ({} if kit.name in new else {kit.name: "ourselves"})
        keys = sorted(roster.fingerprints.items())
        show_codes(words, {f"{name} ({remarks.get(name, 'known')})": key_code(key) for name, key in keys})
        question = f"Compare the code {roster.code} with the other silos by telephone. Is it the same there?"
        otherwise = (
            f"silo {listed(new)} is new to us, and there is no terminal to ask at. Compare the roster code "
            f"{roster.code} with the other silos by telephone, then give --accept-roster {roster.code}"
        )
        if not confirmed(question, otherwise):
            raise TrustError(f"the key of silo {listed(new)} was not accepted; nothing was sent")
    pin(kit, roster)
    if new:
        words.say(f"pinned the key of {', '.join(new)} in {kit.path / 'silos.toml'}")


def ask_answer(words: Words, event: Mapping[str, Any], decide: Callable[[str, str, bool], None]) -> None:
    """Show an answer that waits for the person at a silo, ask whether it may leave, and pass on what the person says.

    Parameters
    ----------
    words : Words
    event : mapping
        With the run, the phase and the fields of the answer: name, shape, bytes, what each is and what it can tell.
    decide : callable
        Gets the run, the phase and whether the answer may leave: `Membership.decide`.
    """
    table = new_table("<field", "<shape", ">bytes", "<what it is", "<what it can tell")
    for field in event["fields"]:
        shape = " × ".join(map(str, field["shape"])) or "a value"
        table.add_row(field["field"], shape, f"{field['bytes']:,}", plain(field["what"]), plain(field["tells"]))
    why = event.get("why", ())
    which = "an answer" if why else "the first answer"
    words.tell(f"{which} of the phase {event['phase']} wants to leave:")
    for sentence in why:
        words.tell(Text.assemble(("why: ", "yellow"), sentence), by=2)
    words.tell(table)
    allowed = confirmed("Send it, and later answers of this phase in this run?", NO_TERMINAL)
    decide(event["run"], event["phase"], allowed)
    if not allowed:
        words.note(f"the answer to {event['phase']} stays here; the coordinator learns only that it was withheld")
