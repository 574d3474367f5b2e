"""Bring the generated parts of README and docs up to date from what was measured, or check that they are.

python bench/benchmarks/readme.py            # write; runs the demo, and heart_disease's: about two minutes
python bench/benchmarks/readme.py --no-demo  # write all parts but the demo's
python bench/benchmarks/readme.py --check    # exit 1 when a part that needs no run of the demo is stale
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from fmtc.cli import main_group
from fmtc.errors import DatasetError, FileError
from fmtc.protocol.advice import SPECTRUM
from fmtc.protocol.auto import METHOD
from fmtc.protocol.base import Entry, Phase, entries
from fmtc.protocol.method import COMMON
from fmtc_bench.compare import comparison, paper, tables
from fmtc_bench.compare.concepts import PARTS as CONCEPT_PARTS
from fmtc_bench.compare.concepts import part_of
from fmtc_bench.compare.evidence import DATASETS, Row, read_compact
from fmtc_bench.compare.freeze import NAME as PROTOCOL
from fmtc_bench.compare.freeze import read_protocol
from fmtc_bench.compare.methods import METHODS
from fmtc_bench.compare.results import captions
from fmtc_bench.compare.summary import summarise
from fmtc_bench.datasets import locate

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
DEMO = DOCS / "tutorials" / "demo.md"
PICTURES = {"breast_cancer": DOCS / "_static" / "demo.png", "heart_disease": DOCS / "_static" / "heart.png"}
VIEWS = DOCS / "explanation" / "views.md"
FEDERATION = DOCS / "explanation" / "federation.md"
PERFORMANCE = DOCS / "explanation" / "performance.md"
CONCEPTS = DOCS / "explanation" / "concepts.md"
EVIDENCE = DOCS / "explanation" / "evidence.md"
BASELINES = DOCS / "reference" / "baselines.md"
MESSAGES = DOCS / "reference" / "messages.md"
RESULTS = HERE / "results"
PAPER = HERE.parent / "results"  # of `fmtc-bench paper`
MAKERS = {
    "demo": "fmtc demo",
    "heart": "fmtc demo --data heart_disease",
    "views": "bench/benchmarks/views.py",
    "signals": "bench/benchmarks/signals.py",
    "mixture": "bench/benchmarks/mixture.py",
    "speed": "bench/benchmarks/readme.py",
    "phases": "bench/benchmarks/readme.py",
    "costs": "bench/benchmarks/federation.py",
    "baselines": "bench/benchmarks/baselines.py",
    **dict.fromkeys(
        (
            "evidence",
            "run",
            "test",
            "averaging",
            "below",
            "kinds",
            "settings",
            "again",
            "federations",
            "tables",
            "reached",
            "ablations",
            "figures",
        ),
        "fmtc-bench paper",
    ),
} | {f"concepts {name}": "fmtc-bench concepts" for name in CONCEPT_PARTS}
SHORT = {  # rows of the README's table; the best of all others that do not pool rows follows
    "fmtc": "FMTC",
    "fmtc-average": 'plain averaging (`coupling="average"`)',
    "kmeans": "k-means of each silo alone",
    "gmm": "Gaussian mixture of each silo alone",
}
FIGURES = (  # of the page on the evidence, in its order
    "intervals_ari", "intervals_acc_frozen", "gains_ari", "gains_acc_frozen", "critical_difference_ari",
    "critical_difference_acc_frozen", "inside_outside_acc", "convergence", "sensitivity", "ablations", "clouds",
)  # fmt: skip


def begin_of(part: str) -> str:
    """The comment before a generated part."""
    return f"<!-- {part}: made by {MAKERS[part]} -->"


def replace_part(text: str, part: str, content: str) -> str:
    """The text with everything between the two comments of a part replaced."""
    begin, end = begin_of(part), f"<!-- end of {part} -->"
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    return f"{head}{begin}\n\n{content}\n\n{end}{tail}"


def stored(name: str) -> Any:
    """What a benchmark wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text())


MIXED = "predict / scikit-learn's mixture on projections"


def speed_part() -> str:
    """A paragraph on speed."""
    found = stored("speed")
    fit, predict, memory = found["fit"], found["predict"], found["memory"]
    added, share = memory["40000 rows: bytes added"], memory["40000 rows: share of one dense n x n matrix"]
    ratio = {name: f"{each['FMTC default / scikit-learn']:.2f}" for name, each in fit.items()}
    scale = stored("scale")
    million, ten = scale["cpu, 10 x 100000, auto neighbours"], scale["cuda, 100 x 100000, auto neighbours"]
    large = found["fit of 20,000 rows each"]
    return (
        "Four silos × 5,000 rows × 50 features, 10 clusters, two cores: a complete federated fit takes "
        f"{ratio['touching']} × the time of scikit-learn's `SpectralClustering` on the same four silos if clusters "
        f"touch, {ratio['overlapping']} × if they overlap, and {ratio['far apart']} × if they are far apart "
        f"({fit['far apart']['FMTC with 10 neighbours / scikit-learn']:.2f} × on a graph of the same size). `predict` "
        f"takes {predict['1,000,000 rows']['predict / bare product and arg-min']:.2f} × the time of a bare product and "
        "arg-min for a million rows, and "
        f"{predict['1,000,000 rows'][MIXED]:.2f} × that of scikit-learn's mixture on the same projections. "
        f"40,000 rows need {added / 1e6:.0f} MB, {share:.1%} of one n × n matrix (`python bench/benchmarks/speed.py`). "
        "With 20,000 rows in each silo a fit takes "
        f"{large['touching']['FMTC default / scikit-learn']:.2f} × (touching) and "
        f"{large['far apart']['FMTC default / scikit-learn']:.2f} × (far apart) the time. A million rows in ten silos "
        f"take {million['seconds'] / 60:.1f} minutes and {million['peak of the process, GB']:.1f} GB; ten million in a "
        f'hundred, on one H200 with `device="cuda"`, {ten["seconds"]:.0f} seconds (`python bench/benchmarks/scale.py`).'
    )


def costs_part(found: dict[str, Any]) -> str:
    """What a federation of processes costs, and what rounded messages do."""
    rows, setting, half = found["silos"], found["setting"], found["float32_messages"]
    columns = {
        "silos": "{silos}",
        "a round, more than in one process": "{overhead:.2f} s",
        "bytes on the wire / payload": "{wire_over_payload:.2f}",
        "memory of a silo": "{megabytes_per_silo:.0f} MB",
        "first round after": "{seconds_to_first_round:.0f} s",
        "in all": "{seconds_in_all:.0f} s",
    }
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(cell.format(**row) for cell in columns.values()) + " |" for row in rows]
    return (
        f"Measured with all silos and the server on one machine with {rows[0]['cpus']} cores; {setting['rows']} rows, "
        f"{setting['features']:,} features and {setting['clusters']} clusters each, {setting['rounds']} rounds. "
        "The payload is 2 d k numbers of 8 bytes per silo and round (`python bench/benchmarks/federation.py`).\n\n"
        + "\n".join(lines)
        + f"\n\nWith `--set message_dtype=float32` silos send {half['bytes_up']:.0%} of the bytes. On digits in "
        f"eight silos, {half['labels_changed']:.1%} of the labels changed, and W by at most "
        f"{half['largest_relative_change_of_W']:.0e} of its size."
    )


def baselines_part(rows: list[dict[str, Any]]) -> str:
    """What the fit of each baseline takes against its dominant operation."""
    lines = ["| | seconds | ratio | to |", "|---|---|---|---|"]
    lines += ["| {method} | {seconds:.2f} | {ratio:.2f} | {operation} |".format(**row) for row in rows]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------- messages


def phases_part() -> str:
    """Every phase with the fields it asks for and answers, from the declarations."""
    before, after = COMMON[:2], COMMON[2:]
    text = []
    asking = (SPECTRUM,)  # a run of its own, which begins as the graph view
    for phase in (*before, *METHOD.phases, *asking, *after):
        text += [f"### {phase.name}", _about(phase)]
        for side, words in (("Ask", "The server sends"), ("Answer", "The client answers")):
            found = entries(getattr(phase, side))
            if not found:
                text.append(f"{words}: nothing.")
                continue
            lines = [f"| {words} | Shape | Type | What it is |", "|---|---|---|---|"]
            lines += [_line(name, entry) for name, entry in found.items()]
            text.append("\n".join(lines))
    return "\n\n".join(text)


def _about(phase: Phase) -> str:
    said = " ".join((type(phase).__doc__ or "").split())
    facts = [
        "The client saves its state before the answer leaves." if phase.persists else "",
        "It is asked again when a run resumes." if phase.rebuilds else "",
    ]
    return " ".join([said, *filter(None, facts)])


def _line(name: str, entry: Entry) -> str:
    what = f"{entry.what} ({entry.when})" if entry.when else entry.what
    return f"| `{name}` | {entry.size} | {entry.kind} | {what} |"


# ------------------------------------------------------------------------------------------------------- evidence


def evidence_parts() -> dict[str, str]:
    """Parts made from what `fmtc-bench paper` wrote: the README's table, and all of the evidence page.

    Empty while there are no results.
    """
    if not (PAPER / "rows.csv").exists():
        return {}
    rows: list[Row] = list(read_compact(PAPER / "rows.csv"))
    test = comparison.main_table(rows)
    parts = {
        "run": run_part(rows, json.loads((PAPER / "about.json").read_text())),
        "evidence": short_table(rows),
        "test": "\n\n".join([test, *comparison.friedman_sentences(rows)]),
        "averaging": comparison.averaging_table(rows) if test else "",
        "below": comparison.below_table(rows) if test else "",
        "kinds": comparison.kind_table(rows) if test else "",
        "settings": comparison.settings_table(rows),
        "again": comparison.first_table(rows),
        "federations": comparison.federation_table(rows) if test else "",
        "tables": development_tables(rows),
        "reached": reached_table(rows),
        "ablations": tables.ablation_table(rows),
        "figures": figures_part(rows),
    }
    return {part: content or "Not run." for part, content in parts.items()}


def run_part(rows: list[Row], about: dict[str, Any]) -> str:
    """What was run, by which code, and how long it took."""
    hours, machines = about["seconds_of_all_cells"] / 3600, ", ".join(about["machines"])
    codes = sorted({row["code"] for row in rows})
    command = about["command"].replace("fmtc bench", "fmtc-bench")  # as it was called while it was part of fmtc
    said = (
        f"`{command}`: {len(rows):,} fits, {sum(row['status'] != 'ok' for row in rows)} of them failed, "
        f"{hours:.1f} hours of one core in all ({machines}), by code {', '.join(f'`{code}`' for code in codes)}."
    )
    if (PAPER / PROTOCOL).exists():
        facts = read_protocol(PAPER)
        same = "the same code" if codes == [facts["code"]] else f"code `{facts['code']}`"
        said += f" The protocol was fixed before, for {same}, plan `{facts['plan']}`"
        said += f", commit `{facts['commit'][:12]}`." if facts["commit"] else "."
    return said


def short_table(rows: list[Row]) -> str:
    """FMTC, plain averaging, k-means and a mixture alone, and the best of all others that do not pool rows."""
    first, second = (comparison.compare(rows, score) for score in comparison.PRIMARY)
    if not first or not second:
        return ""
    by_ari, by_acc = ({line["name"]: line for line in entry["lines"]} for entry in (first, second))
    others = [line for line in first["lines"] if line["block"] == "rivals" and line["name"] not in SHORT]
    best = max(others, key=lambda line: line["mean"], default=None)
    shown = SHORT | ({best["name"]: f"{METHODS[best['name']].title}, the best of the others"} if best else {})
    lines = ["| | ARI | frozen ACC | mean rank | FMTC ahead by |", "|---|---|---|---|---|"]
    for name in (name for name in shown if name in by_ari):
        ari, acc = by_ari[name], by_acc[name]
        ahead = "" if name == "fmtc" else comparison.interval(ari)
        lines.append(
            f"| {shown[name]} | {100 * ari['mean']:.1f} | {100 * acc['mean']:.1f} | "
            f"{ari['rank']:.1f}/{acc['rank']:.1f} | {ahead} |"
        )
    return "\n".join(lines)


def development_tables(rows: list[Row]) -> str:
    """The paper's two tables with our numbers, training rows / held-out rows."""
    shown = []
    for mode, title in (("default", "one setting for all data sets"), ("oracle", "ORACLE, settings picked by labels")):
        for score in paper.SCORES:
            table = tables.table(rows, score, mode, ("in", "out"))
            shown += [f"### {score.upper()}, {title}", table] if table else []
    return "\n\n".join(shown)


def reached_table(rows: list[Row]) -> str:
    """Ours beside what the paper prints for FMTC; in bold where ours is as high."""
    lines = []
    mine = [row for row in tables.of_tables(rows) if row["method"] == "fmtc"]
    found = {
        (entry["dataset"], score): entry
        for score in paper.SCORES
        for entry in summarise(mine, score=score)
        if entry["mode"] == "default" and entry["n"]
    }
    for data in (name for name in DATASETS if (name, "acc") in found):
        cells = []
        for score in paper.SCORES:
            for part in ("in", "out"):
                ours, theirs = found[data, score][part], paper.printed(data, "fmtc", score, part)
                bold = "**" if theirs is not None and round(100 * ours, 1) >= round(100 * theirs, 1) else ""
                cells.append("" if theirs is None else f"{bold}{100 * ours:.1f}{bold} / {100 * theirs:.1f}")
        if any(cells):
            lines.append(f"| {data} | " + " | ".join(cells) + " |")
    if not lines:
        return ""
    heads = [f"{score.upper()}, {part}" for score in paper.SCORES for part in ("training", "held-out")]
    return "\n".join(["| ours / printed | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|", *lines])


def figures_part(rows: list[Row]) -> str:
    """Every figure that was drawn, with what it says."""
    told = captions(rows)
    drawn = {name: PAPER / "figures" / f"{name}.png" for name in FIGURES if name in told}
    return "\n\n".join(
        f"![{told[name]}](../../bench/{path.relative_to(PAPER.parent).as_posix()})\n\n*{told[name]}*"
        for name, path in drawn.items()
        if path.exists()
    )


def with_evidence(text: str, parts: dict[str, str]) -> str:
    """A page with those parts of the evidence that it has comments for."""
    for part, content in parts.items():
        if begin_of(part) in text:
            text = replace_part(text, part, content)
    return text


def with_concepts(text: str) -> str:
    """The page on concepts with the tables of all parts that were measured; others stay as they are."""
    for name in CONCEPT_PARTS:
        file = PAPER / "concepts" / f"{name}.json"
        if file.exists():
            found = json.loads(file.read_text())
            command = f"`fmtc-bench concepts --part {name} --seeds {found['seeds']}`:"
            table = "\n".join(part_of(name).table(found["rows"]))
            text = replace_part(text, f"concepts {name}", f"{command}\n\n{table}")
    return text


# ---------------------------------------------------------------------------------------------------------- views

PARTS = {"train": "Training rows", "held out": "Held-out rows"}
NOT_MEASURED = (
    "Not measured yet: `python bench/benchmarks/views.py`, then `python bench/benchmarks/readme.py --no-demo`."
)
MISSED = 1.0  # points from which a difference is told


def views_part() -> str:
    """What docs/explanation/views.md says of both views."""
    file = RESULTS / "views.json"
    if not file.exists():
        return NOT_MEASURED
    spec = importlib.util.spec_from_file_location("views", HERE / "views.py")
    assert spec is not None and spec.loader is not None
    views = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(views)
    found = json.loads(file.read_text())
    pages = [f"### {title}\n\n{views.table(found, part)}" for part, title in PARTS.items()]
    pages.append(f"### Where the default is behind\n\n{_missed(views, found)}")
    return "\n\n".join(pages)


def _missed(views: Any, found: dict[str, Any]) -> str:
    """Data sets on which `auto` is clearly behind the other view, k-means of each silo alone, or what was before."""
    rivals = {views.BETTER: "the better view", views.ALONE: "k-means alone", views.BEFORE: "the graph view as before"}
    lines = []
    for rival, title in rivals.items():
        for part, rows in PARTS.items():
            scores = {name: views.means(entry[part]) for name, entry in found.items()}
            behind = {name: row[rival] - row["auto"] for name, row in scores.items()}
            told = [f"{name} ({gap:.1f})" for name, gap in behind.items() if gap >= MISSED]
            lines.append(f"- {rows}, behind {title} by {MISSED:g} point or more: {', '.join(told) or 'nowhere'}.")
    return "\n".join(lines)


def views_page(text: str, measured: str) -> str:
    """The page on the two views with all that was measured about them."""
    parts = {"views": measured, "signals": signals_part(stored("signals")), "mixture": mixture_part(stored("mixture"))}
    for part, content in parts.items():
        text = replace_part(text, part, content)
    return text


def signals_part(found: dict[str, Any]) -> str:
    """What choosing between the views by each sign would give."""
    best = "better view"
    lines = [f"| chosen by | mean ACC of {len(found)} data sets | chose the worse view on |", "|---|---|---|"]
    for rule in next(iter(found.values()))["picked"]:
        mean = np.mean([entry["scores"][entry["picked"][rule]] for entry in found.values()])
        wrong = [name for name, entry in found.items() if entry["picked"][rule] != entry["picked"][best]]
        lines.append(f"| {rule} | {mean:.1f} | {', '.join(wrong) or '–'} |")
    return "\n".join(lines)


def mixture_part(found: dict[str, Any]) -> str:
    """What the mixture costs, and what it gives on rows that were drawn from it."""
    step, curve = found["step"], found["calibration"]["curve"]
    close, far = (
        f"{row['fmtc, 0% missing']:.1f} → {row['fmtc, 30% missing']:.1f} % right "
        f"(at best {row['true parameters, 0% missing']:.1f} → {row['true parameters, 30% missing']:.1f})"
        for row in found["missing"]
    )
    points = ", ".join(f"{point['probability']:.2f} → {point['right']:.2f}" for point in curve)
    return (
        f"**Time.** A million rows in ten silos, 20 columns, 10 clusters, one core: a round over all rows takes "
        f"{step['seconds of a round over all rows']:.2f} s, {step['ratio']:.2f} × an iteration of scikit-learn's "
        f"`GaussianMixture` on the same rows; the fit takes {step['seconds of a fit']:.0f} s and adds "
        f"{step['megabytes added']:.0f} MB to the rows.\n\n"
        "**Missing cells and probabilities**, on silos drawn from the model itself, so that the best possible answer "
        f"is known. With 30 % of the cells missing: {close} where concepts are close, {far} where they are further "
        "apart. "
        f"Probability of the chosen cluster of new rows → how often it is right: {points}; expected calibration error "
        f"{found['calibration']['expected calibration error']:.3f}."
    )


# ----------------------------------------------------------------------------------------------------------- demo


def demo_part(data: str) -> str:
    """What `fmtc demo` prints and draws, from running it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        done = CliRunner().invoke(main_group, ["demo", "--data", data, "--out", str(out)], catch_exceptions=False)
        if done.exit_code:
            raise SystemExit(done.output)
        shutil.copyfile(out / "demo.png", PICTURES[data])
        printed = done.output.replace(str(out), "fmtc-demo")
    text = "\n".join(textwrap.fill(line.rstrip(), 82, subsequent_indent="    ") for line in printed.splitlines())
    return (
        "![What sets the clusters apart, each hospital's share of them, and held-out patients alone and together]"
        f"(../_static/{PICTURES[data].name})\n\n```text\n{text.strip()}\n```"
    )


def demo_parts(text: str) -> str:
    """The demo's page; the part of real hospitals only where their data are at hand."""
    text = replace_part(text, "demo", demo_part("breast_cancer"))
    try:
        locate("heart_disease")
    except DatasetError as error:
        print(f"left as it is: {error}")
        return text
    return replace_part(text, "heart", demo_part("heart_disease"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--no-demo", action="store_true")
    args = parser.parse_args()
    stale, evidence = [], {}
    try:
        evidence = evidence_parts()
    except FileError as error:
        stale.append(f"{error}; the evidence is")
        print(f"left as it is: {error}")
    pages = {
        README: with_evidence(README.read_text(), evidence),
        VIEWS: views_page(VIEWS.read_text(), views_part()),
        EVIDENCE: with_evidence(EVIDENCE.read_text(), evidence),
        CONCEPTS: with_concepts(CONCEPTS.read_text()),
        PERFORMANCE: replace_part(PERFORMANCE.read_text(), "speed", speed_part()),
        FEDERATION: replace_part(FEDERATION.read_text(), "costs", costs_part(stored("federation"))),
        BASELINES: replace_part(BASELINES.read_text(), "baselines", baselines_part(stored("baselines"))),
        MESSAGES: replace_part(MESSAGES.read_text(), "phases", phases_part()),
    }
    if args.check:
        stale += [file.name for file, new in pages.items() if file.read_text() != new]
        raise SystemExit(f"{' and '.join(stale)} stale: run python bench/benchmarks/readme.py" if stale else 0)
    if not args.no_demo:
        pages[DEMO] = demo_parts(DEMO.read_text())
    for file, new in pages.items():
        file.write_text(new)


if __name__ == "__main__":
    main()
