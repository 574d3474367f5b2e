"""How long the program takes to start, as a multiple of ``import numpy``: medians of processes run in turn.

Run: python bench/benchmarks/startup.py [--runs 11]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from statistics import median

NUMPY = "import numpy"
CLI = "import sys; sys.argv = ['fmtc', *{!r}]; from fmtc.cli import main; main()"
PROGRAMS = {
    NUMPY: NUMPY,
    "import fmtc": "import fmtc",
    "fmtc --version": CLI.format(["--version"]),
    "fmtc --help": CLI.format(["--help"]),
    "fmtc fit --help": CLI.format(["fit", "--help"]),
    "fmtc-bench data list": CLI.format(["data", "list"]),
    "from fmtc import FMTC": "from fmtc import FMTC",
}


def seconds(code: str) -> float:
    """Duration of one process."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=11, help="processes of each kind")
    runs = parser.parse_args().runs
    for code in PROGRAMS.values():
        seconds(code)  # fills the caches of the disk and of Python
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(runs):
        for name, code in PROGRAMS.items():
            taken[name].append(seconds(code))
    base = median(taken[NUMPY])
    print(f"{'program':<24}{'seconds':>9}{'ratio':>8}")
    for name, values in taken.items():
        print(f"{name:<24}{median(values):>9.3f}{median(values) / base:>8.2f}")


if __name__ == "__main__":
    main()
