"""Bring the generated parts of README and docs up to date from what was measured, or check that they are.

python benchmarks/readme.py            # write; runs the demo, about a minute
python benchmarks/readme.py --check    # exit 1 when a part made from results/ is stale
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fmtc.bench import tables
from fmtc.bench.evidence import COMPARED, Row, read_compact
from fmtc.bench.methods import METHODS
from fmtc.demo import draw_demo, run_demo

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
RESULTS = HERE / "results"
PICTURE = "docs/_static/demo.png"
FEDERATION = HERE.parent / "docs" / "federation.md"
BASELINES = HERE.parent / "docs" / "baselines.md"
EVIDENCE = HERE.parent / "docs" / "evidence.md"
PAPER = HERE.parent / "results"  # of `fmtc bench paper`
MAKERS = {
    "demo": "benchmarks/readme.py",
    "speed": "benchmarks/readme.py",
    "costs": "benchmarks/federation.py",
    "baselines": "benchmarks/baselines.py",
    "evidence": "fmtc bench paper",
    "run": "fmtc bench paper",
    "tables": "fmtc bench paper",
    "statistics": "fmtc bench paper",
    "ablations": "fmtc bench paper",
    "figures": "fmtc bench paper",
}
FIGURES = {
    "inside_outside_acc": "ACC of all methods on training and held-out rows",
    "critical_difference_acc_out": "Mean ranks by ACC on held-out rows",
    "critical_difference_nmi_out": "Mean ranks by NMI on held-out rows",
    "convergence": "Objective, residuals and ACC by round",
    "sensitivity": "ACC over alpha and beta",
    "ablations": "What each change of the default brings or costs",
    "clouds": "Data sets by t-SNE, coloured by client and by class",
}


def replace_part(text: str, part: str, content: str) -> str:
    """The text with what stands between a part's two marks replaced."""
    begin, end = f"<!-- {part}: made by {MAKERS[part]} -->", f"<!-- end of {part} -->"
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    return f"{head}{begin}\n\n{content}\n\n{end}{tail}"


def stored(name: str) -> Any:
    """What a benchmark wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def speed_part() -> str:
    """Two sentences on speed."""
    found = stored("speed")
    fit, predict, memory = found["fit"], found["predict"], found["memory"]
    added, share = memory["40000 rows: bytes added"], memory["40000 rows: share of one dense n x n matrix"]
    ratio = {name: f"{each['FMTC default / scikit-learn']:.2f}" for name, each in fit.items()}
    scale = stored("scale")
    million, ten = scale["cpu, 10 x 100000, auto neighbours"], scale["cuda, 100 x 100000, auto neighbours"]
    large = found["fit of 20,000 rows each"]
    return (
        "**How fast.** Four silos × 5,000 rows × 50 features, 10 clusters, two cores: a whole federated fit takes "
        f"{ratio['touching']} × the time of scikit-learn's `SpectralClustering` on the same four silos where clusters "
        f"touch, {ratio['overlapping']} × where they overlap, and {ratio['far apart']} × where they are far apart "
        f"({fit['far apart']['FMTC with 10 neighbours / scikit-learn']:.2f} × on a graph of the same size). `predict` "
        f"takes {predict['1,000,000 rows']['predict / bare product and arg-min']:.2f} × the time of a bare product and "
        f"arg-min for a million rows. 40,000 rows need {added / 1e6:.0f} MB, {share:.1%} of one n × n matrix "
        "(`python benchmarks/speed.py`). With 20,000 "
        f"rows in each silo a fit takes {large['touching']['FMTC default / scikit-learn']:.2f} × and "
        f"{large['far apart']['FMTC default / scikit-learn']:.2f} × the time. A million rows in ten silos take "
        f"{million['seconds'] / 60:.1f} minutes and {million['peak of the process, GB']:.1f} GB; ten million in a "
        f'hundred, on one H200 with `device="cuda"`, {ten["seconds"]:.0f} seconds (`python benchmarks/scale.py`). '
        "All targets, met and missed: docs/performance.md."
    )


def costs_part(found: dict[str, Any]) -> str:
    """What a federation of processes costs, and what rounded messages do."""
    rows, setting, half = found["silos"], found["setting"], found["float32_messages"]
    columns = {
        "silos": "{silos}",
        "a round, above the local transport": "{overhead:.2f} s",
        "bytes on the wire / payload": "{wire_over_payload:.2f}",
        "memory of a silo": "{megabytes_per_silo:.0f} MB",
        "first round after": "{seconds_to_first_round:.0f} s",
        "in all": "{seconds_in_all:.0f} s",
    }
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(cell.format(**row) for cell in columns.values()) + " |" for row in rows]
    return (
        f"All silos, the server and the measuring on one machine with {rows[0]['cpus']} cores; {setting['rows']} rows, "
        f"{setting['features']:,} features and {setting['clusters']} clusters each, {setting['rounds']} rounds. "
        "The payload is 2 d k numbers of 8 bytes per silo and round (`python benchmarks/federation.py`).\n\n"
        + "\n".join(lines)
        + f"\n\nWith `--solver message_dtype=float32` {half['bytes_up']:.0%} of the bytes go up; on the digits of `fmtc demo` "
        f"{half['labels_changed']:.1%} of the labels changed, and W by {half['largest_relative_change_of_W']:.0e} "
        "of its size at most."
    )


def baselines_part(rows: list[dict[str, Any]]) -> str:
    """What each rival's fit takes against its dominant operation."""
    lines = ["| | seconds | times | what |", "|---|---|---|---|"]
    lines += ["| {method} | {seconds:.2f} | {ratio:.2f} | {operation} |".format(**row) for row in rows]
    return "\n".join(lines)


def evidence_parts(rows: list[Row], about: dict[str, Any]) -> dict[str, str]:
    """Parts made of what `fmtc bench paper` wrote: a table for the README, and all of docs/evidence.md."""
    machines, hours = ", ".join(about["machines"]), about["seconds_of_all_cells"] / 3600
    counts = f"{about['cells']:,} cells, {about['failed']} of them failed"
    both = ("in", "out")
    parts = {
        "evidence": tables.table(rows, "acc", "default", both, methods=(*COMPARED, "sklearn-spectral"))
        + f"\n\n{_ranks(tables.statistics(rows))}",
        "run": f"`{about['command']}`: {counts}, {hours:.1f} hours of one core in all ({machines}).",
        "statistics": tables.statistics_page(tables.statistics(rows)).partition("\n")[2].strip().replace("## ", "### "),
        "ablations": tables.ablation_table(rows),
    }
    shown = []
    for mode, title in (("default", "one setting for all data sets"), ("oracle", "ORACLE, settings picked by labels")):
        for score in ("acc", "nmi", "ri"):
            table = tables.table(rows, score, mode, both)
            shown += [f"### {score.upper()}, {title}", table] if table else []
    parts["tables"] = "\n\n".join(shown)
    drawn = {name: PAPER / "figures" / f"{name}.png" for name in FIGURES}
    parts["figures"] = "\n\n".join(
        f"![{FIGURES[name]}](../{path.relative_to(PAPER.parent).as_posix()})\n\n*{FIGURES[name]}.*"
        for name, path in drawn.items()
        if path.exists()
    )
    return {part: content or "Not run." for part, content in parts.items()}


def _ranks(found: list[dict[str, Any]]) -> str:
    """Who stands where among the ten methods, in a sentence."""
    told = []
    for entry in found:
        first, second, third = list(entry["friedman"]["ranks"].items())[:3]
        where = "training" if entry["part"] == "in" else "held-out"
        names = ", ".join(f"{METHODS[name].title} {rank:.1f}" for name, rank in (first, second, third))
        told.append(f"{entry['score'].upper()} on {where} rows: {names}")
    sets = found[0]["friedman"]["n"] if found else 0
    return f"Best mean ranks of the paper's ten methods over {sets} data sets. {'; '.join(told)}."


def with_evidence(text: str) -> str:
    """A page with the parts of the evidence that it has marks for; as it is while there are no results."""
    if not (PAPER / "rows.csv").exists():
        return text
    parts = evidence_parts(list(read_compact(PAPER / "rows.csv")), json.loads((PAPER / "about.json").read_text()))
    for part, content in parts.items():
        if f"<!-- {part}: made by {MAKERS[part]} -->" in text:
            text = replace_part(text, part, content)
    return text


def demo_part() -> str:
    """The demo's picture and table, from running it."""
    result = run_demo(random_state=0, n_jobs=-1)
    draw_demo(result, README.parent / PICTURE)
    rows = result.rows
    lines = ["| silo | rows | k-means alone | spectral alone | FMTC |", "|---|---|---|---|---|"]
    for row in rows:
        cells = [f"{100 * row[m + '_in']:.1f} / {100 * row[m + '_out']:.1f}" for m in ("kmeans", "spectral", "fmtc")]
        lines.append(f"| {row['silo']} | {row['n_train']} + {row['n_test']} | " + " | ".join(cells) + " |")
    return (
        f"![Objective and residuals by round, accuracy by silo, and the silos' embeddings in one frame]({PICTURE})\n\n"
        "ACC in %, training rows / held-out rows; what `fmtc demo` prints:\n\n" + "\n".join(lines)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    before = README.read_text()
    text = with_evidence(replace_part(before, "speed", speed_part()))
    pages = {
        FEDERATION: replace_part(FEDERATION.read_text(), "costs", costs_part(stored("federation"))),
        BASELINES: replace_part(BASELINES.read_text(), "baselines", baselines_part(stored("baselines"))),
        EVIDENCE: with_evidence(EVIDENCE.read_text()),
    }
    if args.check:
        stale = [file.name for file, new in ({README: text} | pages).items() if file.read_text() != new]
        raise SystemExit(f"{' and '.join(stale)} stale: run python benchmarks/readme.py" if stale else 0)
    for file, new in pages.items():
        file.write_text(new)
    README.write_text(replace_part(text, "demo", demo_part()))


if __name__ == "__main__":
    main()
