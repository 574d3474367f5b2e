"""The command to begin with: demo."""

from __future__ import annotations

import contextlib
import shlex
import webbrowser
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from ..artifacts.files import new_folder, read_json, write_file, write_json
from ..artifacts.labels import as_csv
from ..artifacts.runs import read_explanation, versions
from ..schema import FILE
from . import flags
from .fit import fit
from .flags import PATH, free_path
from .program import if_interrupted, main_group
from .words import Words, new_table

if TYPE_CHECKING:
    from ..demo import Gain, Story


@main_group.command(short_help="See it work on the tables of four hospitals.")
@flags.option("--data", "name", default="breast_cancer", show_default=True, metavar="NAME",
        help="Whose tables: breast_cancer comes with scikit-learn; fmtc-bench adds heart_disease.")  # fmt: skip
@flags.option("--tables", type=click.Choice(["hospitals"]),
        help="Only write tables to try the other commands on.")  # fmt: skip
@flags.option("--out", type=PATH, help="Folder to write.  [default: fmtc-demo; with --tables, the one you are in]")
@flags.option("--random-state", type=click.IntRange(0, 2**32 - 1), metavar="INTEGER", default=0,
        help="Deals the patients of breast_cancer, and seeds the fits.  [default: 0]")  # fmt: skip
@flags.switch("--force", help="Replace --out.")
@flags.open_it
def demo(
    name: str, tables: str | None, out: Path | None, random_state: int, force: bool, open_it: bool, words: Words
) -> None:
    """Four hospitals, one table each: what their patients have in common, and what joining changed.

    Writes the tables to --out and runs `fmtc fit` on them, as you would on your own. Then it says what the clusters
    are, each hospital's share of them, and how held-out patients fare when hospitals learn alone and together. The
    diagnosis is used to score only. Nothing is downloaded. --out gets tables/, run/ with report.html, demo.json and,
    with matplotlib, demo.png.

    --tables hospitals only writes university.csv, city.csv, county.csv and island.csv: 559 women with a lump in the
    breast, 30 measurements of cells, a tenth of them missing, `patient` and the `diagnosis`. new.csv has ten more
    patients of the university hospital, without a diagnosis. They are scikit-learn's breast cancer data; the hospitals
    and the gaps are ours.

    Examples:
      fmtc demo
      fmtc demo --data heart_disease --out heart    (four real hospitals; needs fmtc-bench and its data)
      fmtc demo --out demo --force --open
      fmtc demo --tables hospitals                  (tables to try the other commands on, and no more)
    """
    if tables is not None:
        return _write_tables(words, out or Path(), force)
    from ..demo import story_of
    from ..report import needs_jinja

    story = story_of(name, random_state)
    needs_jinja()
    out = free_path(out or Path("fmtc-demo"), force, lambda folder: (folder / "demo.json").is_file())
    words.say(story.about)
    with new_folder(out, overwrite=force) as folder:
        _fit(words, story, folder, random_state)
        document = {"versions": versions(), "data": name, "random_state": random_state, **_tell(words, folder)}
        document["notes"] = words.notes
        write_json(folder / "demo.json", document)
        drawn = ", demo.png" if (folder / "demo.png").exists() else ""
    words.say(f"wrote {out}: tables/, run/, demo.json{drawn}")
    page = out / "run" / "report.html"
    if open_it:
        webbrowser.open(page.resolve().as_uri())
    else:
        words.say(f"open {page} in a browser", "bold")
    words.give({"out": str(out), **document})


def _fit(words: Words, story: Story, folder: Path, random_state: int) -> None:
    """Write the tables of the hospitals to a folder, and run `fmtc fit` on them there."""
    (folder / "tables").mkdir()
    files = {hospital: f"tables/{hospital}.csv" for hospital in story.tables}
    for hospital, table in story.tables.items():
        write_file(folder / files[hospital], as_csv(table, float_precision=None))
    options = ["-k", str(story.n_clusters), "--label-column", story.label_column]
    if story.schema is not None:
        write_file(folder / "tables" / FILE, story.schema.to_toml().encode())
        options += ["--schema", "tables/" + FILE]
    command = [*files.values(), *options, "--report", "--out", "run"]
    words.say("")
    words.tell(f"$ {shlex.join(['fmtc', 'fit', *command])}", "bold", by=2)
    words.say("")
    waiting = words.console.status("fitting: all hospitals together, each alone, and again without every fifth patient")
    with waiting, contextlib.chdir(folder):  # so that the page tells how to do it again from there
        try:
            _run(fit, [*command, "--random-state", str(random_state), "--quiet"])
        except KeyboardInterrupt:
            if_interrupted("")  # the folder goes, so there is nothing to resume
            raise


def _run(command: click.Command, words: Sequence[str]) -> Any:
    """Another command, as if it had been typed."""
    with command.make_context(command.name, list(words), parent=click.get_current_context().parent) as inner:
        return command.invoke(inner)


def _tell(words: Words, folder: Path) -> dict[str, Any]:
    """Say what was found, and draw it; the same for machines."""
    from ..demo import LITTLE, draw_demo, gains, verdict
    from ..loading import load_atlas

    report, explanation = read_json(folder / "run" / "report.json"), read_explanation(folder / "run")
    assert explanation is not None
    lines = gains(report)
    words.say(f"{replace(explanation, notes=())}\n")
    words.say("The atlas, from the models alone: what clusters of the same number have in common, and who has it.")
    words.say(f"{load_atlas(folder / 'run')}\n")
    words.say("Patients held out, and the share of them that is grouped with its own diagnosis:")
    words.say(_held_out(lines))
    words.say("")
    words.say(f"{verdict(lines)} Less than {LITTLE} points is little: it is a handful of patients.", "green")
    words.say("")
    try:
        with words.console.status("drawing the picture"):
            draw_demo(explanation, lines, folder / "demo.png")
    except ImportError as error:
        words.note(str(error))
    return {
        "gains": [asdict(line) | {"change": line.change} for line in lines],
        "clusters": explanation.to_dict()["clusters"],
        "seconds": report["seconds"],
    }


def _held_out(lines: Sequence[Gain]) -> Table:
    """How held-out patients of each hospital fare."""
    from ..demo import LITTLE

    table = new_table("<hospital", ">held out", ">alone", ">together", ">change")
    for line in lines:
        colour = "green" if line.points >= LITTLE else "red" if line.points <= -LITTLE else ""
        change = Text(f"{line.points:+}" if line.points else "0", colour)
        shares = f"{100 * line.alone:.0f} %", f"{100 * line.together:.0f} %"
        table.add_row(Text(line.hospital), str(line.patients), *shares, change)
    return table


def _write_tables(words: Words, out: Path, force: bool) -> None:
    """Write files to try the other commands on."""
    from ..demo import example_tables

    tables = {out / file: table for file, table in example_tables().items()}
    for path in tables:
        free_path(path, force)
    out.mkdir(parents=True, exist_ok=True)
    for path, table in tables.items():
        write_file(path, as_csv(table, float_precision=None))
    *silos, _ = tables
    columns = "30 measurements, patient (the name of a row) and diagnosis (what is known)"
    words.say(f"wrote {', '.join(map(str, tables))}: {columns}")
    words.say(f"try: fmtc fit {shlex.join(map(str, silos))} -k 2 --label-column diagnosis --out run")
    words.give({"files": [str(path) for path in tables], "rows": [table.height for table in tables.values()]})
