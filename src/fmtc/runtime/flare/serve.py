"""Run FLARE's server, its client or the process of a job here, with fmtc's rules; end with the process that started it.

Run as a script and not as a module, so that nothing of fmtc is loaded: FLARE's own process of a silo does no
clustering, and starts faster and smaller without it. What it needs of FLARE's inside is in `compat.py` beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import ssl
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

JOB = "job"  # in place of a party's name: the module is that of a job


def leave_with_parent(parent: int) -> None:
    """End this process when the one that started it is gone, also if it is gone already.

    A new process with its id cannot mislead us: once it is gone, our parent is one of those that were there before it.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="leave-with-parent").start()


def take_jobs_along(flare: Any) -> None:
    """Have FLARE start the processes of jobs with this script, so that they look for this process from the beginning.

    A job that asked for its parent only once FLARE had prepared it would find another, if this one were gone by then.
    """
    spawn = flare.process_launcher.spawn_process

    def spawn_process(cmd_args: list[str], env: dict[str, str]) -> Any:
        python, flag, *module = cmd_args
        if flag != "-m":
            raise RuntimeError(f"FLARE starts a job in a way that fmtc does not know: {cmd_args}")
        return spawn([python, "-P", __file__, str(os.getpid()), JOB, *module], env)

    flare.process_launcher.spawn_process = spawn_process


def load_compat() -> Any:
    """The names of `compat.py`, loaded from the file and not from the package."""
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("compat.py"))))


def teller(workspace: Path) -> Callable[..., None]:
    """What adds an event to the channel of a kit."""
    append = runpy.run_path(str(Path(__file__).parents[2] / "artifacts" / "lines.py"))["append"]

    def tell(kind: str, /, **facts: Any) -> None:
        append(workspace / EVENTS, {"time": time.time(), "event": kind, **facts})

    return tell


def answer_only(flare: Any, names: frozenset[str]) -> None:
    """Have FLARE's client answer these requests of the server, and no other."""
    known = {type(processor).__name__: processor for processor in flare.ClientRequestProcessors.request_processors}
    flare.ClientRequestProcessors.request_processors = [known[name] for name in sorted(names)]


# ------------------------------------------------------------------------------------------ one party under a name

PARTY = "fmtc-party"  # in the first frame of a silo's connection: which `fmtc join` dials
WORD = "fmtc-word"  # in a frame of the server: one of the words below, for a silo
SECOND = "second party"  # to the party that takes part: somebody else dialled as this silo, and was refused
REFUSED = "refused as second"  # to that somebody
CONNECTED = "connected"  # the coordinator has accepted this party
EVENTS = "events.jsonl"  # in the folder that FLARE's process works in: our channel, see `fmtc.runtime.events`


def one_party_each(flare: Any, lost_after: float, tell: Callable[..., None]) -> None:
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
            tell(SECOND, site=name)
        me = {name_key: manager.local_endpoint.name}
        for other, word in ((alive[0], SECOND), (connection, REFUSED)):
            other.send_dict(flare.Types.READY, 1, me | {WORD: word})
        threading.Timer(2.0, connection.conn.close).start()  # a party of ours ends by itself
        return None

    flare.ConnManager.update_endpoint = update_endpoint


def dial_as(flare: Any, party: str, startup: Path, tell: Callable[..., None]) -> None:
    """Have FLARE's client tell the server which party dials, and listen to what the server says about it.

    A roster that its person has to decide about ends the process before anything is answered.
    """
    update, shake_hands = flare.ConnManager.update_endpoint, flare.SfmConnection.send_handshake
    register = flare.FederatedClientBase.client_register

    def send_handshake(connection: Any, frame_type: int) -> None:
        connection.local_endpoint.set_prop(PARTY, party)
        shake_hands(connection, frame_type)

    def update_endpoint(manager: Any, connection: Any, data: dict[str, Any]) -> None:
        word = data.pop(WORD, None)
        if is_news(data.pop(MEMBERS, None), startup):
            os._exit(1)
        if word is None:
            return update(manager, connection, data)
        tell(word)
        if word == REFUSED:
            os._exit(1)
        return None

    def client_register(client: Any, project_name: str, fl_ctx: Any) -> None:
        register(client, project_name, fl_ctx)
        if client.token:
            tell(CONNECTED)

    flare.SfmConnection.send_handshake, flare.ConnManager.update_endpoint = send_handshake, update_endpoint
    flare.FederatedClientBase.client_register = client_register


# ------------------------------------------------------------------------------------------------- who is a member

MEMBERS = "fmtc-roster"  # in the server's first frame to a silo: the roster of the federation
ROSTER, REVOKED = "roster.json", "revoked.pem"  # beside a kit's certificate
ACCEPTED = "roster.accepted"  # beside a silo's roster: its number, once the person there has accepted it
ARRIVED = "roster.arrived.json"  # beside it: one that the coordinator handed out, and that nobody has looked at
LONGEST = 10_000_000  # characters of a roster


def is_news(text: Any, startup: Path) -> bool:
    """Whether a person has to decide: about a roster that differs from the kit's, or because the kit's waits for it.

    A roster that is older than the kit's does not matter. One that does is kept beside the kit's, unread.
    """
    ours, settled = {}, False
    with contextlib.suppress(OSError, ValueError):
        ours = json.loads((startup / ROSTER).read_text(encoding="utf-8"))
        settled = (startup / ACCEPTED).read_text(encoding="ascii").strip() == str(ours["number"])
    if text is None:
        return not settled
    try:
        arrived = json.loads(text[:LONGEST])
        if settled and (arrived == ours or arrived["number"] < ours["number"]):
            return False
    except (ValueError, LookupError, TypeError, RecursionError):
        pass  # whoever looks at it will say what is wrong
    handle = os.open(startup / ARRIVED, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(str(text)[:LONGEST])
    return True


def hand_out(flare: Any, startup: Path) -> None:
    """Have FLARE's server begin each connection of a silo with the roster that the kit has at that moment."""
    shake_hands, keys = flare.SfmConnection.send_handshake, flare.HandshakeKeys

    def send_handshake(connection: Any, frame_type: int) -> None:
        peer = str((connection.conn.get_conn_properties() or {}).get(flare.PEER))
        if frame_type != flare.Types.READY or not peer.startswith("silo-") or not (startup / ROSTER).exists():
            return shake_hands(connection, frame_type)
        first = {keys.ENDPOINT_NAME: connection.local_endpoint.name, keys.TIMESTAMP: time.time()}
        roster = (startup / ROSTER).read_text(encoding="utf-8")
        connection.send_dict(frame_type, 1, first | (connection.local_endpoint.properties or {}) | {MEMBERS: roster})
        return None

    flare.SfmConnection.send_handshake = send_handshake


def refuse_revoked(flare: Any, startup: Path) -> None:
    """Have all TLS connections of this process refuse certificates that the kit's list revokes.

    A server looks for a newer list whenever somebody dials. Sessions are not resumed: that would skip the check.
    """
    make = flare.TLS_USERS[0].get_ssl_context

    def get_ssl_context(params: dict[str, Any], ssl_server: bool) -> ssl.SSLContext | None:
        context: ssl.SSLContext | None = make(params, ssl_server)
        if context is None or not (startup / REVOKED).exists():
            return context
        honour(context, startup)
        if ssl_server:
            seen = [(startup / REVOKED).stat().st_mtime_ns]

            def look(*_: Any) -> None:
                now = (startup / REVOKED).stat().st_mtime_ns
                if now != seen[0]:
                    context.load_verify_locations(startup / REVOKED)
                    seen[0] = now

            context.sni_callback = look
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        return context

    for module in flare.TLS_USERS:
        module.get_ssl_context = get_ssl_context


def honour(context: ssl.SSLContext, startup: Path) -> None:
    """Have connections of a context refuse certificates that the list in a kit revokes."""
    if (startup / REVOKED).exists():
        context.load_verify_locations(startup / REVOKED)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def main() -> None:
    """Arguments: id of the parent, party or seconds of silence or `JOB`, module to run, and the module's arguments."""
    parent, name, module = sys.argv[1:4]
    leave_with_parent(int(parent))
    del sys.argv[:3]
    if name != JOB and module.startswith("nvflare."):
        flare = load_compat()
        take_jobs_along(flare)
        workspace = Path(sys.argv[sys.argv.index("-m") + 1])
        startup, tell = workspace / "startup", teller(workspace)
        refuse_revoked(flare, startup)
        if module == flare.CLIENT_MODULE:
            answer_only(flare, flare.ANSWERED)
            dial_as(flare, name, startup, tell)
        elif module == flare.SERVER_MODULE:
            one_party_each(flare, float(name), tell)
            hand_out(flare, startup)
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main()
