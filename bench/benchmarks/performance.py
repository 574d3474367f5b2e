"""Everything that was measured about speed and memory, in one table, one file and two pictures under results/.

python bench/benchmarks/performance.py    (after speed, growth, scale, server, text, rounds and flame)
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
OUT = HERE.parent / "results"
NAMES = ("speed", "growth", "scale", "server", "text", "rounds")


def lines(found: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """What was asked for, the target, what came out, and whether that is enough."""
    speed, scale, server, text = (found[name] for name in ("speed", "scale", "server", "text"))
    rows: list[tuple[str, str, float, str, bool]] = []

    def at_most(what: str, target: float, value: float, form: str = "{:.2f}") -> None:
        rows.append((what, f"≤ {form.format(target)}", value, form.format(value), value <= target))

    def at_least(what: str, target: float, value: float, form: str = "{:.2f}") -> None:
        rows.append((what, f"≥ {form.format(target)}", value, form.format(value), value >= target))

    for size, target, key in (("5,000", 0.6, "fit"), ("20,000", 0.35, "fit of 20,000 rows each")):
        for kind, each in speed[key].items():
            what = f"fit, 4 × {size} × 50, clusters {kind}, over scikit-learn, "
            at_most(what + "10 neighbours", target, each["FMTC with 10 neighbours / scikit-learn"])
            at_most(what + "default graph", target, each["FMTC default / scikit-learn"])
    literal = speed["literal transcription, 3,000 rows each"]
    at_least("literal transcription of the paper, 4 × 3,000, over fit", 20, literal["literal / FMTC"], "{:.0f}")
    curves = {name: each for name, each in found.get("growth", {}).items() if isinstance(each, dict)}
    for name, each in curves.items():
        at_most(f"exponent of time, 10,000 to 160,000 rows, {name}", 1.2, each["exponent of time"])
    points = [point for each in curves.values() for point in each["points"]]
    if points:
        shares = [p["bytes added"] / p["allowed: 60 bytes an edge and 6 n x k"] for p in points]
        at_most("memory beyond the input over 60 bytes an edge and 6 n × k, worst", 1, max(shares))
        at_most("`estimate_memory` off by, worst", 0.2, max(abs(p["bytes added / predicted"] - 1) for p in points))
    million = scale.get("cpu, 10 x 100000, auto neighbours")
    if million:
        at_most("one million rows (10 × 100,000 × 64), seconds", 480, million["seconds"], "{:.0f}")
        at_most("the same, GB of the process", 6, million["peak of the process, GB"], "{:.1f}")
    at_most("20News, 40,525 words: memory added over 4 CSR + W", 1, text["memory"]["added / (4 CSR + W)"])
    steps = server["server step, one thread"]
    at_most("server, m = 1,000, d = 2,000, k = 10: seconds of the first step", 3,
            steps["1000 clients, first step: seconds"])  # fmt: skip
    at_most("the same, seconds of a later step", 3, steps["1000 clients, later step: seconds"])
    at_most("the same, memory over the stack", 3, max(server["memory"].values()))
    threads = speed["threads"]
    limit = f"two processes that share nothing: {threads['two processes that share nothing']:.2f}"
    at_least(f"rounds of two clients, one thread over two ({limit})", 1.7, threads["one / two"])
    for rows_of, each in speed["predict"].items():
        what = f"`predict` over bare product and arg-min, {rows_of}"
        at_most(what, 1.25, each["predict / bare product and arg-min"])
        what = f"the same over scikit-learn's mixture on projections, {rows_of}"
        at_most(what, 1, each["predict / scikit-learn's mixture on projections"])
    onnx = speed["onnx"]
    at_most("ONNX model less its matrix, kB", 100, (onnx["bytes"] - onnx["bytes of d x k in single precision"]) / 1e3,
            "{:.1f}")  # fmt: skip
    at_most("`import fmtc` on top of scikit-learn, seconds", 0.1, speed["import, seconds"]["fmtc on top"])
    if "rounds" in found:
        worst = max(row["accelerated"] or 99 for row in found["rounds"])
        at_most("rounds to the objective of 20 plain ones, worst of ten sets", 12, worst, "{:.0f}")
    ten, one = scale["cuda, 100 x 100000, auto neighbours"], scale["cuda, 1 x 1000000, auto neighbours"]
    at_most("H200: ten million rows (100 × 100,000 × 64), seconds", 20, ten["seconds"], "{:.1f}")
    if (trusting := scale.get("cuda, 100 x 100000, auto neighbours, no exit")) is not None:
        at_most("the same, where no client compares the common model with its own", 20, trusting["seconds"], "{:.1f}")
    at_most("H200: one client of a million rows, seconds", 40, one["seconds"], "{:.1f}")
    return [(what, target, shown, met) for what, target, _, shown, met in rows]


def stages(scale: dict[str, Any]) -> list[str]:
    """Time of each stage of a client on a GPU, and what it comes to in products or bytes."""
    found = scale["cuda, 5 x 100000, auto neighbours, stage by stage"]
    n, d, k, m = found["rows"], found["features"], found["k"], found["clients"]
    pairs, passes, steps = 30 * n, found["calls"]["W-steps"] / m, found["single F-steps"] / m
    entries = 1.75 * pairs + n
    product = entries * 8 + entries * k * 4  # Laplacian read once, rows of F gathered for each entry
    known = {  # products of numbers, bytes; of one client
        "neighbours": (n * n * (d + 8), 3 * 2 * n * n),
        "F-steps": (steps * entries * k, steps * (product + 8 * n * k * 4)),
        "W-steps": (passes * n * d * k, passes * n * (d + k) * 4),
    }
    seconds = {name: spent / m for name, spent in found["seconds of stages"].items()}
    seconds["graph, without neighbours"] = seconds.pop("graph, with neighbours") - seconds["neighbours"]
    seconds["all else"] = found["seconds"] / m - sum(seconds.values())
    table = ["| stage | ms of one client | products, 10¹²/s | memory, TB/s |", "|---|---|---|---|"]
    for name, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        rate = [f"{each / spent / 1e12:.2f}" for each in known[name]] if name in known else ["", ""]
        table.append(f"| {name} | {1e3 * spent:.0f} | {rate[0]} | {rate[1]} |")
    processor, gpu = (scale[f"{device}, 16 x 50000, auto neighbours"]["seconds"] for device in ("cpu", "cuda"))
    return [
        *table,
        "",
        f"Sixteen clients of 50,000 rows take {gpu:.1f} s on the GPU and {processor:.1f} s on the sixteen cores of the "
        f"same machine, {processor / gpu:.1f} times as long.",
    ]


def draw_growth(growth: dict[str, Any], path: Path) -> None:
    """Time and memory over the rows of a client."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name, each in growth.items():
        if isinstance(each, dict):
            rows = [p["rows"] for p in each["points"]]
            label = f"{name}: exponent {each['exponent of time']:.2f}"
            left.loglog(rows, [p["seconds"] for p in each["points"]], "o-", label=label)
            right.loglog(rows, [p["bytes added"] / 1e6 for p in each["points"]], "o-", label=name)
    points = growth["near ten dimensions"]["points"]
    rows = [p["rows"] for p in points]
    right.loglog(rows, [p["bytes added"] / p["bytes added / predicted"] / 1e6 for p in points], "x--",
                 label="estimate_memory")  # fmt: skip
    right.loglog(rows, [8 * n**2 / 1e6 for n in rows], ":", label="one n × n matrix")
    left.set(xlabel="rows", ylabel="seconds", title="fit of one client, 20 rounds")
    left.legend(frameon=False, fontsize=8)
    right.set(xlabel="rows", ylabel="MB beyond the input", title="memory at its peak")
    right.legend(frameon=False, fontsize=8)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


MACHINERY = ("estimator.", "driver.", "local.", "node.", "outbox.", "ledger.", "steps.client_reply")


def tree_of(stacks: list[list[Any]]) -> dict[str, Any]:
    """Nested counts of stacks that begin with the driver's loop."""
    root: dict[str, Any] = {"n": 0, "below": {}}
    for names, n in stacks:
        inside = [name for name in names if not name.startswith(MACHINERY)]
        root["n"] += n
        node = root
        for name in inside[:7]:
            node = node["below"].setdefault(name, {"n": 0, "below": {}})
            node["n"] += n
    return root


def draw_flames(before: dict[str, Any], after: dict[str, Any], path: Path) -> None:
    """Both flame graphs on one scale of seconds."""
    figure, axes = plt.subplots(2, 1, figsize=(11, 7), sharex=True, layout="constrained")
    for axis, found, title in ((axes[0], before, "before"), (axes[1], after, "after")):
        root = tree_of(found["stacks"])
        unit = found["seconds"] / root["n"]

        def bar(node: dict[str, Any], begin: float, depth: int, axis: Any = axis, unit: float = unit) -> None:
            for number, (name, each) in enumerate(sorted(node["below"].items(), key=lambda item: -item[1]["n"])):
                width = each["n"] * unit
                color = plt.get_cmap("YlOrRd")(0.25 + 0.08 * ((depth * 3 + number) % 6))
                axis.barh(depth, width, left=begin, height=0.95, color=color, edgecolor="white", linewidth=0.4)
                if width > 0.035 * before["seconds"]:
                    room = int(105 * width / before["seconds"])
                    axis.text(begin + width / 2, depth, name[:room], ha="center", va="center", fontsize=6.5)
                bar(each, begin, depth + 1)
                begin += width

        bar(root, 0.0, 0)
        axis.set(yticks=[], title=f"{title}: {found['seconds']:.1f} seconds, 4 × 20,000 × 50, 20 rounds, two cores")
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[1].set_xlabel("seconds, as a share of samples")
    figure.savefig(path, dpi=130)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    stored = {path.stem: json.loads(path.read_text()) for path in (HERE / "results").glob("*.json")}
    found = {name: stored[name] for name in NAMES if name in stored}  # growth and rounds take long: may be missing
    table = ["| | target | measured | |", "|---|---|---|---|"]
    table += [
        f"| {what} | {target} | {shown} | {'met' if met else '**missed**'} |"
        for what, target, shown, met in lines(found)
    ]
    (OUT / "performance.md").write_text("\n".join(table) + "\n")
    (OUT / "performance_gpu.md").write_text("\n".join(stages(found["scale"])) + "\n")
    (OUT / "performance.json").write_text(json.dumps(found, indent=1) + "\n")
    if "growth" in found:
        draw_growth(found["growth"], OUT / "figures" / "performance_growth.png")
    draw_flames(stored["flame_before"], stored["flame_after"], OUT / "figures" / "performance_flame.png")
    print("\n".join(table))


if __name__ == "__main__":
    main()
