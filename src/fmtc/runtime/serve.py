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


def leave_with_parent() -> None:
    """End this process when the one that started it is gone, however it went."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="leave-with-parent").start()


if __name__ == "__main__":
    leave_with_parent()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__")
