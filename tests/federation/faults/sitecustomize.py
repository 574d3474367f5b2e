"""Makes a silo's process misbehave on request: put this folder on PYTHONPATH and say how in FMTC_TEST_FAULT.

``slow@0:SECONDS`` delays every round, ``slow@PHASE:SECONDS`` a phase outside the rounds; ``hold@ROUND`` waits in a
round for a file "go" in the kit; ``exit@0`` ends the process in the first round in which there is a file "exit" in the
kit, when the answer is ready and not yet sent. Several with commas between. Other faults need no process: simulation.py
has them.

With FMTC_TEST_RECORD, the name of a file, each process writes there what it asks of the network: a line of JSON for
every name it looks up, and every address it binds, dials or sends to.

With FMTC_TEST_TAP, the name of a folder, each process writes every frame there that FLARE hands to a connection, before
it is encrypted: one file for each process. With FMTC_TEST_LEAK, silos send more than passes their outbox.

With FMTC_TEST_WITHOUT, names with commas between, these packages are not there.

Nothing waits for the disk: tests end processes and never the machine.
"""

import importlib.util
import json
import os
import struct
import sys
import time
from importlib.abc import MetaPathFinder

os.fsync = lambda handle: None


def _patch(kitclient):
    faults = {}
    for fault in os.environ["FMTC_TEST_FAULT"].split(","):
        kind, _, rest = fault.partition("@")
        at, _, seconds = rest.partition(":")
        faults[int(at) if at.isdigit() else at] = (kind, float(seconds or 0))
    answer = kitclient.KitClient.answer

    def faulty(self, message):
        in_loop = message.phase in ("round", "em")
        kind, seconds = faults.get(message.phase, ("", 0))
        if in_loop:
            kind, seconds = faults.get(message.round_no, faults.get(0, ("", 0)))
        if kind == "slow":
            time.sleep(seconds)
        while kind == "hold" and not (self.kit / "go").exists():
            time.sleep(0.05)
        found = answer(self, message)
        if kind == "exit" and (self.kit / "exit").exists():
            (self.kit / "exit").unlink()
            os._exit(1)
        return found

    kitclient.KitClient.answer = faulty


RECORD = os.environ.get("FMTC_TEST_RECORD")


def _record(event, args):
    """An audit hook: Python calls it whichever library asks."""
    kind = ""
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        asked = args[0]
    elif event in ("socket.bind", "socket.connect", "socket.sendto"):
        kind, asked = args[0].type.name, args[1]
    else:
        return
    line = json.dumps([event, list(asked) if isinstance(asked, tuple) else asked, kind, os.getpid()], default=repr)
    handle = os.open(RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, line.encode() + b"\n")
    os.close(handle)


if RECORD:
    sys.addaudithook(_record)


def _be_lawless(definitions):
    """A server whose software was changed: it tells silos that they need not ask their own policy."""
    set_header = definitions.Message.set_header

    def unasked(self, key, value):
        set_header(self, key, "false" if key == "require_authz" else value)

    definitions.Message.set_header = unasked


TAP = os.environ.get("FMTC_TEST_TAP")


def _tap(connection):
    """Every frame that FLARE hands to a connection, whichever driver it has, before it is encrypted."""

    def tapped(kind):
        send = kind.__dict__.get("send_frame")
        if send is not None:
            kind.send_frame = lambda self, frame: (_keep(self, frame), send(self, frame))[1]

    connection.Connection.__init_subclass__ = classmethod(tapped)


def _keep(conn, frame):
    about = json.dumps({"argv": sys.argv, "by": type(conn).__name__, "of": conn.get_conn_properties()}, default=str)
    content = struct.pack(">II", len(about), len(frame)) + about.encode() + bytes(frame)
    handle = os.open(os.path.join(TAP, f"{os.getpid()}.frames"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, content)
    os.close(handle)


def _leak(adapter):
    """A door beside the outbox: every answer to a round takes a row of the silo along."""
    reply = adapter._reply

    def leaking(run_id, message, answer):
        found = reply(run_id, message, answer)
        if message is not None and message.phase == "round":
            import numpy as np

            found["beside"] = np.load(os.path.join(sys.argv[2], "rows.npy"))[0]  # argv: -m KIT
        return found

    adapter._reply = leaking


_PATCHES = {}
if TAP:
    _PATCHES["nvflare.fuel.f3.connection"] = _tap
if "FMTC_TEST_LEAK" in os.environ:
    _PATCHES["fmtc.runtime.flare.adapter"] = _leak
if "FMTC_TEST_FAULT" in os.environ:
    _PATCHES["fmtc.runtime.kitclient"] = _patch
if "FMTC_TEST_LAWLESS" in os.environ:
    _PATCHES["nvflare.private.admin_defs"] = _be_lawless


_HIDDEN = os.environ.get("FMTC_TEST_WITHOUT", "").split(",")


class _Hook(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in _HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        patch = _PATCHES.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Hook())
