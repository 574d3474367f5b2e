"""Where the time of a fit goes, as a flame graph: stacks of all threads, looked at every five milliseconds.

python bench/benchmarks/flame.py after
python bench/benchmarks/flame.py before    (with another version of fmtc on the path)
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

from _data import graph_view
from scale import K, silos

RESULTS = Path(__file__).parent / "results"
FORGET = ("threading.py", "concurrent", "_base.py", "contextlib.py", "parallel.py", "thread.py", "flame.py")


def stack_of(frame: object) -> tuple[str, ...]:
    """Functions from the outermost to the innermost, those of fmtc and what they call, without machinery."""
    names: list[str] = []
    while frame is not None:
        code = frame.f_code
        if not any(part in code.co_filename for part in FORGET):
            names.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        frame = frame.f_back
    return tuple(reversed(names))


def sample(work: threading.Thread, every: float = 0.005) -> Counter[tuple[str, ...]]:
    """Stacks of all threads that are inside fmtc while a thread works."""
    seen: Counter[tuple[str, ...]] = Counter()
    here = threading.get_ident()
    work.start()
    while work.is_alive():
        time.sleep(every)
        for number, frame in sys._current_frames().items():
            stack = stack_of(frame)
            if number != here and len(stack) > 1 and not stack[-1].endswith("exchange"):
                seen[tuple(name for name in stack if not name.endswith((".__call__", ".<listcomp>")))] += 1
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["before", "after"])
    name = parser.parse_args().name
    warnings.simplefilter("ignore")
    data = silos(4, 20_000, 50)
    model = graph_view(K, max_iter=20, tol=0, random_state=0, n_jobs=-1)
    graph_view(K, max_iter=2, random_state=0).fit(data["client000"][:1_000])
    work = threading.Thread(target=lambda: model.fit(data))
    started = time.perf_counter()
    seen = sample(work)
    found = {"seconds": time.perf_counter() - started, "stacks": [[list(stack), n] for stack, n in seen.items()]}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"flame_{name}.json").write_text(json.dumps(found) + "\n")
    print(name, round(found["seconds"], 1), "seconds,", sum(seen.values()), "samples")


if __name__ == "__main__":
    main()
