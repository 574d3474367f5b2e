"""Be another program's module in this process, and end with the process that started it.

Run as a script and not as a module, so that nothing of fmtc is loaded: FLARE's own process of a silo does no
clustering, and starts faster and smaller without it.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
from typing import Any


def leave_with_parent(parent: int | None = None) -> None:
    """End this process when the one that started it is gone, however it went; given its id, also if it went before."""
    if parent is None:
        parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="leave-with-parent").start()


SILO = "nvflare.private.fed.app.client.client_train"
SERVER = "nvflare.private.fed.app.server.server_train"
# All that a silo does for FLARE's server: take in a job, start it, end it, say how it is. FLARE can do more, such as
# `cat` of any file, and would ask the silo's policy only where the server says so.
ANSWERED = {
    "AbortAppProcessor", "CancelResourceProcessor", "CheckResourceProcessor", "ClientStatusProcessor",
    "DeployProcessor", "NotifyJobStatusProcessor", "StartJobProcessor",
}  # fmt: skip


def answer_only(names: set[str]) -> None:
    """Let FLARE's client answer these requests of the server, and no other."""
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    known = {type(processor).__name__: processor for processor in ClientRequestProcessors.request_processors}
    if names - set(known):
        sys.exit(f"this FLARE is not the one fmtc knows: it lacks {', '.join(sorted(names - set(known)))}")
    ClientRequestProcessors.request_processors = [known[name] for name in sorted(names)]


# ------------------------------------------------------------------------------------------ one party under a name

PARTY = "fmtc-party"  # in the first frame of a silo's connection: which `fmtc join` dials
WORD = "fmtc-word"  # in a frame of the server: one of the words below, said to a silo
SECOND = "second party"  # to the party that takes part: somebody else dialled under its name, and was refused
REFUSED = "refused as second"  # to that somebody
MARK = "fmtc: "  # how a line of ours begins among FLARE's


def one_party_each(lost_after: float) -> None:
    """Let FLARE's server keep the party that takes part under a silo's name, and refuse a second one; tell both.

    FLARE itself closes the connection of the first when a second dials under its name; the first then dials again and
    closes that of the second, and so on. A party that has been silent for `lost_after` seconds counts as gone.
    """
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager
    from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types

    greet = ConnManager.update_endpoint
    parties: dict[str, str] = {}  # by the name under which they take part
    told: set[tuple[str, str]] = set()
    lock = threading.Lock()

    def update_endpoint(manager: Any, connection: Any, data: dict[str, Any]) -> None:
        name, party = str(data.get(HandshakeKeys.ENDPOINT_NAME)), str(data.pop(PARTY, ""))
        if not name.startswith("silo-") or "." in name:  # an administrator, or the process of a job
            return greet(manager, connection, data)
        with lock:
            known = manager.sfm_endpoints.get(name)
            alive = [c for c in (known.connections if known else ()) if time.time() - c.last_activity < lost_after]
            if not alive or parties.get(name) == party:
                greet(manager, connection, data)
                parties[name] = party
                return None
            new = (name, party) not in told
            told.add((name, party))
        if new:
            print(f"{MARK}{SECOND} {name}", flush=True)
        me = {HandshakeKeys.ENDPOINT_NAME: manager.local_endpoint.name}
        for other, word in ((alive[0], SECOND), (connection, REFUSED)):
            other.send_dict(Types.READY, 1, me | {WORD: word})
        threading.Timer(2.0, connection.conn.close).start()  # it ends by itself, if it is one of ours
        return None

    ConnManager.update_endpoint = update_endpoint


def dial_as(party: str) -> None:
    """Let FLARE's client tell the server which party dials, and listen to what the server says about it."""
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager
    from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection

    greet, shake_hands = ConnManager.update_endpoint, SfmConnection.send_handshake

    def send_handshake(connection: Any, frame_type: int) -> None:
        connection.local_endpoint.set_prop(PARTY, party)
        shake_hands(connection, frame_type)

    def update_endpoint(manager: Any, connection: Any, data: dict[str, Any]) -> None:
        word = data.pop(WORD, None)
        if word is None:
            return greet(manager, connection, data)
        print(f"{MARK}{word}", flush=True)
        if word == REFUSED:
            os._exit(1)
        return None

    SfmConnection.send_handshake, ConnManager.update_endpoint = send_handshake, update_endpoint


if __name__ == "__main__":
    parent, name, module = sys.argv[1:4]  # name: a party's, or seconds of silence after which the server lets one go
    leave_with_parent(int(parent))
    del sys.argv[:3]
    if module == SILO:
        answer_only(ANSWERED)
        dial_as(name)
    elif module == SERVER:
        one_party_each(float(name))
    runpy.run_module(module, run_name="__main__")
