"""Run FLARE's server or client in this process, with fmtc's rules, and end with the process that started it.

Run as a script and not as a module, so that nothing of fmtc is loaded: FLARE's own process of a silo does no
clustering, and starts faster and smaller without it. What it needs of FLARE's inside is in `compat.py` beside it.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def leave_with_parent(parent: int | None = None) -> None:
    """End this process when the one that started it is gone; given its id, also if it is gone already."""
    if parent is None:
        parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="leave-with-parent").start()


def load_compat() -> Any:
    """The names of `compat.py`, loaded from the file and not from the package."""
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("compat.py"))))


def answer_only(flare: Any, names: frozenset[str]) -> None:
    """Have FLARE's client answer these requests of the server, and no other."""
    known = {type(processor).__name__: processor for processor in flare.ClientRequestProcessors.request_processors}
    flare.ClientRequestProcessors.request_processors = [known[name] for name in sorted(names)]


# ------------------------------------------------------------------------------------------ one party under a name

PARTY = "fmtc-party"  # in the first frame of a silo's connection: which `fmtc join` dials
WORD = "fmtc-word"  # in a frame of the server: one of the words below, for a silo
SECOND = "second party"  # to the party that takes part: somebody else dialled as this silo, and was refused
REFUSED = "refused as second"  # to that somebody
PREFIX = "fmtc: "  # marks our lines among FLARE's


def one_party_each(flare: Any, lost_after: float) -> None:
    """Have FLARE's server keep the party that takes part as a silo, refuse a second one, and tell both.

    FLARE itself closes the first connection when a second party dials under the same name. The first then dials again
    and closes the connection of the second, and so on. A party that is silent for `lost_after` seconds counts as gone.
    """
    update = flare.ConnManager.update_endpoint
    name_key = flare.HandshakeKeys.ENDPOINT_NAME
    parties: dict[str, str] = {}  # by the name of the silo
    reported: set[tuple[str, str]] = set()
    lock = threading.Lock()

    def update_endpoint(manager: Any, connection: Any, data: dict[str, Any]) -> None:
        name, party = str(data.get(name_key)), str(data.pop(PARTY, ""))
        if not name.startswith("silo-") or "." in name:  # an administrator, or the process of a job
            return update(manager, connection, data)
        with lock:
            known = manager.sfm_endpoints.get(name)
            alive = [c for c in (known.connections if known else ()) if time.time() - c.last_activity < lost_after]
            if not alive or parties.get(name) == party:
                update(manager, connection, data)
                parties[name] = party
                return None
            new = (name, party) not in reported
            reported.add((name, party))
        if new:
            print(f"{PREFIX}{SECOND} {name}", flush=True)
        me = {name_key: manager.local_endpoint.name}
        for other, word in ((alive[0], SECOND), (connection, REFUSED)):
            other.send_dict(flare.Types.READY, 1, me | {WORD: word})
        threading.Timer(2.0, connection.conn.close).start()  # a party of ours ends by itself
        return None

    flare.ConnManager.update_endpoint = update_endpoint


def dial_as(flare: Any, party: str) -> None:
    """Have FLARE's client tell the server which party dials, and listen to what the server says about it."""
    update, shake_hands = flare.ConnManager.update_endpoint, flare.SfmConnection.send_handshake

    def send_handshake(connection: Any, frame_type: int) -> None:
        connection.local_endpoint.set_prop(PARTY, party)
        shake_hands(connection, frame_type)

    def update_endpoint(manager: Any, connection: Any, data: dict[str, Any]) -> None:
        word = data.pop(WORD, None)
        if word is None:
            return update(manager, connection, data)
        print(f"{PREFIX}{word}", flush=True)
        if word == REFUSED:
            os._exit(1)
        return None

    flare.SfmConnection.send_handshake, flare.ConnManager.update_endpoint = send_handshake, update_endpoint


def main() -> None:
    """Arguments: id of the parent process, party or seconds of silence, module to run, and the module's arguments."""
    parent, name, module = sys.argv[1:4]
    leave_with_parent(int(parent))
    del sys.argv[:3]
    if module.startswith("nvflare."):
        flare = load_compat()
        if module == flare.CLIENT_MODULE:
            answer_only(flare, flare.ANSWERED)
            dial_as(flare, name)
        elif module == flare.SERVER_MODULE:
            one_party_each(flare, float(name))
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main()
