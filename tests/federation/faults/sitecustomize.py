"""Makes a silo's process misbehave on request: put this folder on PYTHONPATH and say how in FMTC_TEST_FAULT.

``KIND@ROUND`` or ``KIND@ROUND:SECONDS``, several with commas between; each happens once, and leaves a file in the kit
so that the silo behaves after a restart. ``slow@0:SECONDS`` delays every round, ``hold@ROUND`` waits for a file "go" in
the kit. ``exit@end`` ends the coordinator's process of a job before it tells the silos that the run is over.

With FMTC_TEST_RECORD, the name of a file, each process writes there what it asks of the network: a line of JSON for
every name it looks up, and every address it binds, dials or sends to.

With FMTC_TEST_WITHOUT, names with commas between, these packages are not there.
"""

import importlib.util
import json
import os
import sys
import time
from importlib.abc import MetaPathFinder
from pathlib import Path


def _patch(flare):
    import numpy as np

    faults = {}
    for fault in os.environ["FMTC_TEST_FAULT"].split(","):
        kind, _, rest = fault.partition("@")
        if rest == "end":
            _leave_before_the_end(flare.FmtcController)
            continue
        at, _, seconds = rest.partition(":")
        faults[int(at)] = (kind, float(seconds or 0))
    answer, envelope = flare.FmtcExecutor.answer, flare._envelope
    spoil = []

    def faulty(self, message, kit):
        if message.phase != "round":
            return answer(self, message, kit)
        kind, seconds = faults.get(message.round_no, faults.get(0, ("", 0)))
        done = Path(kit) / f"fault-{kind}-{message.round_no}"
        if kind == "slow":
            time.sleep(seconds)
        while kind == "hold" and not (Path(kit) / "go").exists():
            time.sleep(0.05)
        if kind in ("", "slow", "hold") or done.exists():
            return answer(self, message, kit)
        done.touch()
        if kind == "raise":
            raise OSError("the disk of this test is full")
        if kind == "exit-before":
            os._exit(9)
        if kind == "late":
            time.sleep(seconds)
        uplink = answer(self, message, kit)
        if kind == "exit-after":
            os._exit(9)
        if kind == "nan":
            return flare.replace(uplink, W=np.full_like(uplink.W, np.nan))
        if kind == "shape":
            return flare.replace(uplink, W=uplink.W[:-1])
        if kind == "kind":
            return flare.replace(uplink, W=uplink.W.astype(np.int64))
        if kind in ("stale", "garbage"):
            spoil.append(kind)
        return uplink

    def spoilt(run_id, message, phase, round_no):
        if not spoil:
            return envelope(run_id, message, phase, round_no)
        if spoil.pop() == "stale":
            return envelope(run_id, message, phase, round_no - 1)
        from nvflare.apis.shareable import Shareable

        return Shareable({"garbage": b"\x00\xff" * 100})

    flare.FmtcExecutor.answer, flare._envelope = faulty, spoilt


def _leave_before_the_end(controller):
    end = controller._end

    def leave(self, *facts):
        mark = self.folder / "left"
        if mark.exists():
            return end(self, *facts)
        mark.touch()
        os._exit(9)

    controller._end = leave


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


_PATCHES = {}
if "FMTC_TEST_FAULT" in os.environ:
    _PATCHES["fmtc.runtime.flare.adapter"] = _patch
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
