"""What happens in a run, as typed events on one channel: a file that processes add lines to, and that outlives them.

There is one at the coordinator for each run, and one in each kit. Whoever starts after a kill reads it from the
beginning, and knows what was asked, shown, decided, confirmed and delivered.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..artifacts.files import COUNT, check_form, jsonable, read_file
from ..artifacts.lines import append
from ..errors import FileError
from .clock import SYSTEM, Clock
from .spec import OF_SILO

EVENTS = "events.jsonl"  # in a kit, and in the coordinator's folder of a run

Event = dict[str, Any]  # "event" is its kind, "time" when it happened; the rest are its facts

# Kinds of events with their facts, in the language of `check_form`.
OF_PROCESS: dict[str, Any] = {  # told by FLARE's process of a kit
    "connected": {},  # the coordinator has accepted us
    "second party": {"site?": str},  # somebody else dialled as this silo, and was refused
    "refused as second": {},  # that somebody is us
}
AT_SILO: dict[str, Any] = OF_PROCESS | {
    "begun": {"run": str, "replaces": bool},  # and whether the last run is given up for it
    "asked": OF_SILO,  # what a run asks for; before anything is answered
    "shown": {"run": str},  # the person there has seen it
    "preflight": {"run": str, "error": [str], "note": [str]},  # how its columns differ from the others'
    "to leave": {"run": str, "phase": str, "fields": [{"field": str, "shape": [int], "bytes": int}], "why?": [str]},
    "decided": {"run": str, "phase": str, "send": bool},  # what the person says about an answer that is to leave
    "round": {"run": str, "round": COUNT},
    "error": {"run": str, "phase": str, "round": COUNT, "why": str, "kind": str},  # in full; does not leave the kit
    "ended": {
        "run": str, "converged": (bool, None), "alone?": bool, "held?": bool,
        "told?": {"cosine": [(float, None)], "flags": [str]},
    },
    "delivered": {"run": str},  # labels and model are where they were wanted
}  # fmt: skip
_WHY = {"why": str}
AT_COORDINATOR: dict[str, Any] = {
    "started": {"sites": [str]},
    "surveyed": {"silos": [str], "findings": [dict], "received": [dict]},
    "round": {"record": dict},
    "away": {"site": str},
    "refused": {"site": str, "why": str},
    "done": {"missing": [str]},
    "ended": {"confirmed?": [str], "unable?": [str]},  # clients that have said that they have their labels, and cannot
    **{kind: {} for kind in ("agree", "differ", "aborted")},
    **dict.fromkeys(("lost", "stopped", "refused data", "trust refused", "failed"), _WHY),
}


class Channel:
    """Events of one file.

    Parameters
    ----------
    path : Path
    kinds : mapping of str to form
        `AT_SILO`, `AT_COORDINATOR` or `OF_PROCESS`.
    clock : Clock
    """

    def __init__(self, path: Path, kinds: Mapping[str, Any], clock: Clock = SYSTEM):
        self.path, self.kinds, self.clock = path, kinds, clock
        self._place = 0  # in the file, up to which its events are no news
        with contextlib.suppress(OSError):  # there is no such file yet; who reads it says what is wrong with it
            self._place = path.read_bytes().rfind(b"\n") + 1

    def tell(self, kind: str, /, **facts: Any) -> None:
        """Add an event."""
        event = jsonable({"time": self.clock.time(), "event": kind, **facts})
        check_form("an event", event, self.kinds[kind], kind)
        append(self.path, event)

    def news(self) -> list[Event]:
        """Events since the last call; at first since this object was made."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as stream:
            if self.path.stat().st_size < self._place:  # another file by now
                self._place = 0
            stream.seek(self._place)
            whole, end, _ = stream.read().rpartition(b"\n")
        self._place += len(whole + end)
        return [self._typed(line) for line in whole.splitlines()]

    def all(self, run_id: str | None = None) -> list[Event]:
        """Events from the beginning, of one run or of all."""
        if not self.path.exists():
            return []
        whole = read_file(self.path, lambda content: content.rpartition(b"\n")[0].splitlines())
        events = [self._typed(line) for line in whole]
        return [event for event in events if run_id is None or event.get("run") == run_id]

    def _typed(self, line: bytes) -> Event:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{self.path} is damaged: {error}") from None
        check_form(self.path, event, {"event": str, "time": float})
        if event["event"] not in self.kinds:
            raise FileError(f"{self.path} is damaged: there is no event {event['event']!r}")
        check_form(self.path, event, self.kinds[event["event"]], event["event"])
        return dict(event)


def at_silo(kit: Path, clock: Clock = SYSTEM) -> Channel:
    """The channel of a silo's kit."""
    return Channel(kit / EVENTS, AT_SILO, clock)


def at_coordinator(folder: Path, clock: Clock = SYSTEM) -> Channel:
    """The channel of a run, in the coordinator's folder of it."""
    return Channel(folder / EVENTS, AT_COORDINATOR, clock)
