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


if __name__ == "__main__":
    leave_with_parent(int(sys.argv[1]))
    del sys.argv[:2]
    if sys.argv[0] == SILO:
        answer_only(ANSWERED)
    runpy.run_module(sys.argv[0], run_name="__main__")
