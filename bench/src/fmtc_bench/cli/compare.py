"""Commands that compare methods on data sets with known classes: smoke, run, freeze, paper, ..."""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal
from rich.progress import TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fmtc.cli.flags import free_path
from fmtc.cli.program import Option
from fmtc.cli.words import Words, new_table, print_json
from fmtc.errors import plural

from .program import main_group
from .shown import Bar

if TYPE_CHECKING:
    from ..compare.grid import Cell, Store
    from ..compare.methods import Method

PAPER_PARTS = ("test", "figures", "tables", "ablations", "first", "draws")  # of fmtc_bench.compare.evidence
CONCEPT_PARTS = ("missing", "atlas", "confidence", "later", "advice")  # of fmtc_bench.compare.concepts
SMOKE = ("digits", "synthetic-subspace", "webkb4", "yale")


def _options(out: str, time_limit: float = 600.0) -> Callable[[Any], Any]:
    """Options of all commands that run cells; `out` is where they are kept by default."""
    options = (
        click.option("--out", type=click.Path(path_type=Path), default=Path(out), show_default=True, cls=Option,
                     help="Folder that keeps every cell; what is there is not run again."),
        click.option("--only", metavar="WORD", multiple=True, cls=Option,
                     help="Only fits with this in 'dataset / method'; may be given many times."),
        click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, cls=Option,
                     help="Cells at a time, each in a process of its own with one thread."),
        click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), default=time_limit,
                     show_default=True, cls=Option, metavar="SECONDS",
                     help="Stop a cell after this time; its row says so."),
        click.option("--retry", is_flag=True, cls=Option, help="Run fits again that failed."),
        click.option("-q", "--quiet", is_flag=True, cls=Option, help="No progress; the table stays."),
    )  # fmt: skip

    def add(command: Any) -> Any:
        for option in options:
            command = option(command)
        return command

    return add


_score = click.option("--score", type=click.Choice(["acc", "nmi", "ri", "ari"]), default="acc", show_default=True,
                      cls=Option, help="What the table shows, in percent.")  # fmt: skip


@main_group.command(
    short_help="Every method on a few small data sets, in minutes.",
    epilog="""\b
Examples:
  fmtc-bench smoke
  fmtc-bench smoke --only digits --score nmi
  fmtc-bench smoke --json > rows.json""",
)
@_score
@_options("bench")
def smoke(words: Words, **settings: Any) -> None:
    """Run every method with its default setting on digits, a synthetic federation and, if they are here, WebKB4 and
    Yale: one split, one seed.

    Cells are kept in --out and not run again: a second call prints the table at once. Data sets that are not on this
    machine are omitted, with a note.
    """
    from ..compare.methods import METHODS
    from ..datasets import SOURCES
    from ..datasets.base import find

    here = [name for name in SMOKE if name not in SOURCES or find(SOURCES[name]) is not None]
    for name in sorted(set(SMOKE) - set(here)):
        words.note(f"{name} is not on this machine and is omitted; `fmtc-bench data fetch {name}` gets it")
    _compare(words, here, list(METHODS), splits=1, seeds=1, trials=0, **settings)


@main_group.command(
    "run",
    short_help="Methods and data sets of your choice.",
    epilog="""\b
Examples:
  fmtc-bench run --dataset webkb4 --dataset yale --splits 5
  fmtc-bench run --dataset digits --method fmtc --method kmeans --seeds 3
  fmtc-bench run --dataset digits --trials 12        (an oracle column: settings picked by labels)
  fmtc-bench run --dataset 'digits?n_clients=4,rows=100' --method fmtc --method fmtc/align=False,beta=0.4""",
)
@click.option("--dataset", "datasets", multiple=True, required=True, metavar="NAME", cls=Option,
              help="A data set of `fmtc-bench data list`, or synthetic-KIND; may be given many times.")  # fmt: skip
@click.option("--method", "methods", multiple=True, metavar="NAME", cls=Option,
              help="A method, or method/setting=value; may be given many times.  [default: all]")  # fmt: skip
@click.option("--splits", type=click.IntRange(1), default=5, show_default=True, cls=Option,
              help="Ways to hold out a fifth of each client.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, cls=Option,
              help="Random starts of each method on each split.")  # fmt: skip
@click.option("--trials", type=click.IntRange(0, 12), default=0, show_default=True, cls=Option,
              help="Settings each method may try besides its default, for the oracle column.")  # fmt: skip
@_score
@_options("bench")
def run_(datasets: tuple[str, ...], methods: tuple[str, ...], words: Words, **settings: Any) -> None:
    """Run methods on data sets: every split and seed, the default setting and, with --trials, as many others for
    everyone, the best of which by labels makes the column oracle.
    """
    from fmtc.errors import DatasetError, InputError

    from ..compare.methods import METHODS, method_of
    from ..compare.protocol import check_dataset

    for names, check in ((methods, method_of), (datasets, check_dataset)):
        for name in names:
            try:
                check(name)
            except DatasetError:  # known, and not on this machine
                raise
            except InputError as error:
                raise click.UsageError(str(error)) from None
    _compare(words, list(datasets), list(methods or METHODS), **settings)


@main_group.command(
    "freeze",
    short_help="Fix what `fmtc-bench paper` will run, before it runs.",
    epilog="""\b
Examples:
  fmtc-bench freeze
  fmtc-bench freeze --out again --json""",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, cls=Option,
              help="Folder for protocol.md; `fmtc-bench paper` takes the same.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, cls=Option, help="No progress.")
def freeze_(out: Path, words: Words) -> None:
    """Write protocol.md: test federations with digests of their rows, methods, splits, scores, tests, and the digest of
    the code. Nothing is fitted. Commit it; then `fmtc-bench paper` refuses to run other code, plans or rows.
    """
    from ..compare.freeze import fix_protocol, read_protocol

    with words.console.status("") as status:
        path = fix_protocol(out, lambda name: status.update(name))
    words.say(f"wrote {path}")
    if words.as_json:
        print_json({"out": str(path)} | read_protocol(out))


@main_group.command(
    "paper",
    short_help="Test federations, the paper's tables and figures.",
    epilog="""\b
Examples:
  fmtc-bench paper
  fmtc-bench paper --part test --jobs 4
  fmtc-bench paper --part ablations --only webkb4
  fmtc-bench paper --any-code --part tables --out today      (by the code that is here)""",
)
@click.option("--any-code", is_flag=True, cls=Option,
              help="Run the code that is here, in a folder without a protocol; rows say which it was.")  # fmt: skip
@click.option("--part", type=click.Choice([*PAPER_PARTS, "all"]), default="all",
              show_default=True, cls=Option, help="What to run; files are made of all that is stored.")  # fmt: skip
@click.option("--splits", type=click.IntRange(1, 3), default=3, show_default=True, cls=Option,
              help="Ways to hold out a fifth of each client.")  # fmt: skip
@click.option("--image", "kinds", type=click.Choice(["png", "svg", "pdf"]), multiple=True, default=("png",),
              show_default=True, cls=Option, help="Kind of the figures; may be given many times.")  # fmt: skip
@_options("results", time_limit=120.0)
def paper_(
    any_code: bool, part: str, splits: int, kinds: tuple[str, ...], out: Path, words: Words, **settings: Any
) -> None:
    """Run the comparison on the test federations, what the paper's two tables and four figures need, and our ablations,
    on the data sets that are here, and write rows, tables, tests and figures to --out.

    Needs the protocol.md of `fmtc-bench freeze` in --out, and refuses to run if code, plan or rows are not those it was
    written for. With --any-code it needs none, and runs the code that is here. After an interrupt, the same command
    resumes. Data sets that are not on this machine are omitted, with a note.
    """
    from ..compare import evidence
    from ..compare.freeze import NAME, check_protocol
    from ..compare.results import about, draw_results, write_results

    wanted = evidence.plan(part, splits=splits)
    if any_code and (out / NAME).exists():
        raise click.UsageError(f"{out} has a protocol, and rows of the code it names; give another folder with --out")
    if not any_code:
        with words.console.status("comparing code and rows with the protocol"):
            check_protocol(out, wanted)
    known = [*evidence.FEDERATIONS, *evidence.DATASETS]
    for name in sorted({name.partition("?")[0] for name in set(known) - set(evidence.here(known))}):
        words.note(f"{name} is not on this machine and left out")
    rows, store = _run(words, wanted, out=out, **settings)
    stored = store.current()
    command = "fmtc-bench paper" + " --any-code" * any_code + (f" --part {part}" if part != "all" else "")
    written = write_results(stored, out, command)
    try:
        written += draw_results(
            stored, out, kinds=kinds, with_clouds=part in ("figures", "all"),
            progress=lambda name: words.say(f"drawing {name}"),
        )  # fmt: skip
    except ImportError as error:
        words.note(f"no figures: {error}")
    words.say(f"wrote {', '.join(str(path.relative_to(out)) for path in written)} in {out}")
    if words.as_json:
        print_json(
            about(stored, command) | {"run": len(rows), "files": [str(path) for path in written], "notes": words.notes}
        )


@main_group.command(
    "reproduce",
    short_help="Run a few stored fits again and compare their scores.",
    epilog="""\b
Examples:
  fmtc-bench reproduce
  fmtc-bench reproduce --cells 200 --jobs 4""",
)
@click.argument("results", type=click.Path(path_type=Path), default=Path("results"))
@click.option("--cells", type=click.IntRange(1), cls=Option, metavar="N",
              help="So many fits of the test federations, drawn with --seed.  [default: a fixed few]")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, cls=Option, help="Draws other fits.")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, cls=Option, help="Fits at a time.")
@click.option("-q", "--quiet", is_flag=True, cls=Option, help="No progress.")
def reproduce_(results: Path, cells: int | None, seed: int, jobs: int, words: Words) -> None:
    """Run some fits of RESULTS/rows.csv again, by the code that is here, and fail if a score is another.

    Scores must agree to the last digit that is stored. Fits on data sets that are not here are omitted, with a note.
    """
    from ..compare.reproduce import choose, reproduce

    lines, left_out = choose(results, cells=cells, seed=seed)
    for why in left_out:
        words.note(why)
    if not lines:
        raise click.ClickException(f"{results / 'rows.csv'} has no fit that can be run here")
    with _Cells(words, len(lines)) as bar:
        different = reproduce(lines, jobs=jobs, progress=bar)
    for change in different:
        words.note(f"{change['cell']}: {change['score']} was {change['stored']}, is {change['now']}")
    words.say(f"{plural(len(lines), 'fit')} run again, {plural(len(different), 'score')} different")
    if words.as_json:
        print_json({"run": len(lines), "different": different, "left_out": left_out})
    if different:
        raise click.ClickException("a stored fit cannot be reproduced; the notes above say which")


@main_group.command(
    "concepts",
    short_help="What is said of concepts: lacking ones, atlas, confidence.",
    epilog="""\b
Examples:
  fmtc-bench concepts
  fmtc-bench concepts --part missing --seeds 1
  fmtc-bench concepts --part atlas --json > atlas.json""",
)
@click.option("--part", "parts", type=click.Choice(CONCEPT_PARTS), multiple=True, cls=Option,
              help="What to measure; may be given many times.  [default: all]")  # fmt: skip
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, cls=Option,
              help="Dealings, splits and starts of each data set.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/concepts"), show_default=True, cls=Option,
              help="Folder for the rows of each part.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, cls=Option, help="No progress; the tables stay.")
def concepts_(parts: tuple[str, ...], seeds: int, out: Path, words: Words) -> None:
    """Measure what docs/explanation/concepts.md says of concepts, on data sets of this machine, and keep the rows.

    Labels score and nothing else. Every part runs anew; it takes minutes to an hour.
    """
    from fmtc.artifacts.files import write_json

    from ..compare.concepts import part_of
    from ..compare.grid import code_digest

    found = {}
    for name in parts or CONCEPT_PARTS:
        part = part_of(name)
        with words.console.status("") as status:
            rows = part.measure(range(seeds), lambda text: status.update(text))
        found[name] = {"title": part.TITLE, "seeds": seeds, "code": code_digest(), "rows": rows}
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / f"{name}.json", found[name])
        if not words.as_json:
            words.say(f"{part.TITLE}\n" + "\n".join(part.table(rows)) + "\n")
    if words.as_json:
        print_json(found)


@main_group.command(
    "report",
    short_help="Make a page of results, to look at in a browser.",
    epilog="""\b
Examples:
  fmtc-bench report
  fmtc-bench report bench --out comparison.html --open
  fmtc-bench report results --json | python -m json.tool""",
)
@click.argument("results", type=click.Path(path_type=Path), default=Path("results"))
@click.option("--out", type=click.Path(path_type=Path), cls=Option,
              help="File to write.  [default: RESULTS/report.html]")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
@click.option("--open", "open_it", is_flag=True, cls=Option, help="Show it in your browser.")
def report_(results: Path, out: Path | None, force: bool, open_it: bool, words: Words) -> None:
    """Make a page of results: one HTML file that needs no network, to look at in a browser.

    RESULTS is the --out folder of `fmtc-bench paper` (`results` unless given), `fmtc-bench run` or `fmtc-bench smoke`.
    Nothing is run. The page has a table of all methods and data sets to sort and filter, mean ranks, ablations, the
    figures of the folder, and all fits to save. With --json, everything the page says is printed too.
    """
    from fmtc.report import needs_jinja, write_page
    from fmtc.report.page import PAGE

    needs_jinja()
    from ..report.page import render_results, summarise_results

    summary = summarise_results(results)
    path = results / PAGE if out is None else free_path(out, force)  # what is in the folder of results is ours
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(summary, path, render_results)
    words.say(f"wrote {path}: {decimal(path.stat().st_size)}")
    if open_it:
        webbrowser.open(path.resolve().as_uri())
    if words.as_json:
        print_json({"out": str(path)} | {name: value for name, value in summary.items() if name != "files"})


def _run(
    words: Words,
    wanted: list[Cell],
    *,
    out: Path,
    only: tuple[str, ...],
    jobs: int,
    time_limit: float,
    retry: bool,
) -> tuple[list[dict[str, Any]], Store]:
    """Rows of the cells wanted, run or stored, with progress and a word on what failed; and the store."""
    from ..compare.grid import Store, code_digest, run_cells

    if only:
        wanted = [cell for cell in wanted if any(word in f"{cell.dataset} / {cell.method}" for word in only)]
        if not wanted:
            raise click.UsageError(f"no cell has {' or '.join(map(repr, only))} in 'dataset / method'")
    store = Store(out / "cells.jsonl")
    stored = sum(cell.key in store.rows for cell in wanted)
    started = time.monotonic()
    with _Cells(words, len(wanted) - stored) as bar:
        rows = run_cells(wanted, store, jobs=jobs, time_limit=time_limit, retry=retry, progress=bar)
    words.say(
        f"{plural(len(rows), 'fit')}, {stored} of them stored before, {time.monotonic() - started:.0f} s; kept in "
        f"{store.path}"
    )
    for row in rows:
        if row["status"] != "ok":
            words.note(f"{row['dataset']} / {row['method']}: {row['error']}")
    old = sum(row["code"] != code_digest() for row in rows)
    if old:
        words.note(f"{plural(old, 'cell')} made by another version of the code; remove {store.path} to run all again")
    return rows, store


def _compare(
    words: Words,
    datasets: Sequence[str],
    methods: Sequence[str],
    *,
    splits: int,
    seeds: int,
    trials: int,
    score: str,
    **settings: Any,
) -> None:
    from ..compare.grid import cells
    from ..compare.summary import mean_ranks, summarise

    wanted = cells(datasets, methods, splits=range(splits), seeds=range(seeds), trials=trials)
    rows, _ = _run(words, wanted, **settings)
    entries = summarise(rows, score=score)
    if words.as_json:
        print_json({"rows": rows, "summary": entries, "mean_ranks": mean_ranks(entries)})
    for mode in ("default", "oracle"):
        shown = [entry for entry in entries if entry["mode"] == mode]
        if shown and not words.as_json:
            words.console.print(_table(shown, mode, score, wide=words.console.width >= 100))
    if not any(row["status"] == "ok" for row in rows):
        raise click.ClickException("no cell succeeded; the notes above say why")


class _Cells(Bar):
    """Progress of cells: a bar with the time left on a terminal, a line for each elsewhere."""

    done = 0

    def __init__(self, words: Words, total: int):
        super().__init__(words, "", total, TextColumn("left"), TimeRemainingColumn())

    def __call__(self, cell: Any, row: Mapping[str, Any] | None) -> None:  # type: ignore[override]
        self.done += row is not None
        if self.live:
            super().__call__(self.done, description=f"{cell.dataset} / {cell.method}")
        elif row is not None:
            from fmtc.report.page import lasted

            left = (time.monotonic() - self.began) / self.done * (self.total - self.done)
            place = f"{self.done} of {self.total}, about {lasted(left)} left"
            self.words.say(f"{cell}: {row['status']}, {row['seconds']:.1f} s; {place}")


def _table(entries: Sequence[Mapping[str, Any]], mode: str, score: str, *, wide: bool) -> Table:
    """Methods down, data sets across: training and new rows, in percent; where there is room, what leaves a client."""
    from ..compare.methods import method_of
    from ..compare.summary import best_by_set, mean_ranks

    datasets = list(dict.fromkeys(entry["dataset"] for entry in entries))
    by_cell = {(entry["method"], entry["dataset"]): entry for entry in entries}
    ranks = mean_ranks(entries, mode=mode)
    best = best_by_set(entries, ("in", "out"))
    how = {"default": "one setting for all data", "oracle": "ORACLE: setting picked by labels"}[mode]
    table = new_table(
        title=f"{score.upper()} %, {how}", title_justify="left", title_style="bold", caption_justify="left"
    )
    table.caption = "in|out: training|new rows; ° all in one cluster; rank: mean over data sets on new rows"
    table.add_column("method", no_wrap=True)
    if wide:
        table.add_column("leaves a client", no_wrap=True)
    for name in datasets:
        table.add_column(name.removeprefix("synthetic-") + "\nin|out", justify="right", no_wrap=True)
    table.add_column("rank", justify="right")
    table.add_column("s", justify="right")
    group = ""
    for name in (*ranks, *dict.fromkeys(entry["method"] for entry in entries if entry["method"] not in ranks)):
        method = method_of(name)
        if method.group != group and {method.group, group} & {"control", "pooled"} and group:
            table.add_section()
        group = method.group
        found = [by_cell.get((name, data)) for data in datasets]
        rank = f"{ranks[name]:.1f}" if name in ranks else "–"
        table.add_row(*_line(method, found, best, rank, wide=wide), style="bold" if group == "ours" else "")
    return table


def _line(
    method: Method, found: Sequence[Any], best: Mapping[tuple[str, str], float | None], rank: str, *, wide: bool
) -> list[Any]:
    """Cells of one method."""
    seconds = sum(entry["seconds"] for entry in found if entry is not None and entry["n"])
    shares = [method.shares] if wide else []
    return [method.title, *shares, *(_pair(entry, best) for entry in found), rank, f"{seconds:.1f}"]


def _pair(entry: Mapping[str, Any] | None, best: Mapping[tuple[str, str], float | None]) -> Text:
    """Such as 61.2|58.0, the best of a column in green."""
    if entry is None:
        return Text("")
    if not entry["n"]:
        return Text("failed", "red")
    text = Text("°" if entry["collapsed"] else "")
    for part, between in (("in", "|"), ("out", "")):
        spread = "" if entry[part + "_sd"] != entry[part + "_sd"] else f"±{100 * entry[part + '_sd']:.0f}"
        style = "green" if not entry["failed"] and entry[part] == best[entry["dataset"], part] else ""
        text.append(f"{100 * entry[part]:.1f}{spread}", style).append(between)
    return text.append(f" {entry['failed']} failed", "red") if entry["failed"] else text
