"""The command that compares silos before anything is learnt from them: check."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..artifacts.files import write_file
from ..errors import DataError, joined
from ..schema import NUMBER
from ..tables.reading import EM, REFUSE, Reading
from ..wording import FLAGS
from .options import TABLES, free_path, reading_options
from .privacy import bounds_template
from .program import Option, main_group
from .words import Words, plural, print_json, show, show_indented

if TYPE_CHECKING:
    from ..schema import Schema
    from ..tables import Columns, Finding

ERROR, NOTE = "error", "note"  # severities of `fmtc.tables.findings`, which loads Polars


@main_group.command(
    short_help="Compare what silos hold before a run.",
    epilog="""\b
Examples:
  fmtc check north.csv south.csv west.csv
  fmtc check north.csv south.csv --id-column patient --drop zip -k 4
  fmtc check all.parquet --client-column site --json
  fmtc check ours.csv --as category:cp --write-schema schema.toml     (the same file for every silo of a federation)
  fmtc check north.csv south.csv --write-bounds bounds.toml           (for private runs, to be filled in)
  fmtc check --kit coordinator -k 4          (of a federation whose silos have joined)""",
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--kit", "kit_path", type=click.Path(path_type=Path), cls=Option,
              help="The coordinator's kit: compare the silos of a federation.")  # fmt: skip
@click.option("--wait", type=float, default=600.0, show_default=True, cls=Option,
              help="With --kit: seconds to wait for silos that are not there.")  # fmt: skip
@click.option("-k", "--n-clusters", type=click.IntRange(1), default=1, cls=Option,
              help="Clusters you will ask for; finds silos with too few rows.")  # fmt: skip
@click.option("--scale", metavar="WORD", cls=Option,
              help="The --scale you will ask for; with none, a column that outweighs all others is noted.")  # fmt: skip
@click.option("--write-schema", "schema_file", type=click.Path(path_type=Path), metavar="FILE", cls=Option,
              help="Also write what the columns are, a schema.toml for all silos of a federation.")  # fmt: skip
@click.option("--write-bounds", "bounds_file", type=click.Path(path_type=Path), metavar="FILE", cls=Option,
              help="Also write a file of public bounds for private runs, to be filled in.")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, help="Replace what --write-schema and --write-bounds name.")
@reading_options(*TABLES)
@click.pass_context
def check(
    ctx: click.Context,
    /,
    files: tuple[Path, ...],
    kit_path: Path | None,
    wait: float,
    n_clusters: int,
    scale: str | None,
    schema_file: Path | None,
    bounds_file: Path | None,
    force: bool,
    reading: Reading,
    as_json: bool,
) -> None:
    """Compare what silos hold, before a run: columns, types, order, missing values, sizes and units.

    Prints what differs for each silo. Exits with 3 if anything would stop `fmtc fit`, with 0 if not. Silos are compared
    through what they would send in a federation: salted hashes of names, counts, means and variances of columns.

    --write-schema names columns and levels, and no row: look the file over, add units and bounds, and give it to every
    silo, which then code categories alike. --write-bounds names the columns that are numbers and holds no value from
    the files: bounds that are read from data are not public, and would break the promise of a private run.
    """
    from ..tables.values import codes_in

    words = Words()
    if bool(files) == (kit_path is not None):
        raise click.UsageError("give the files of the silos, or the coordinator's kit with --kit")
    for path in filter(None, (schema_file, bounds_file)):
        if kit_path is not None:
            raise click.UsageError(f"{path} is written from files; a coordinator has none")
        free_path(path, force)
    if kit_path is not None:
        silos, findings = _of_federation(words, kit_path, n_clusters, wait)
        if as_json:
            print_json(as_document(silos, findings))
        ctx.exit(exit_code(findings))
    with every_problem(files, reading, n_clusters), words.warnings_as_notes():
        held, findings = _compared(files, reading, n_clusters, scaled=scale != "none")
    for silo, content in held.items():
        if sentence := codes_in(content, FLAGS):
            words.note(f"{silo} {sentence}")
    show_findings(words, list(held), findings, held)
    document = as_document(list(held), findings, held)
    if schema_file is not None or bounds_file is not None:
        found = _schema_of(words, files, reading)
        document["schema"] = found.to_dict()
        numbers = sum(column.kind == NUMBER for column in found.columns)
        if schema_file is not None:
            _write(schema_file, found.to_toml())
            words.say(f"wrote {schema_file}: {plural(len(found.columns), 'column')}")
        if bounds_file is not None:
            _write(bounds_file, bounds_template(found))
            words.say(f"wrote {bounds_file}: fill in the bounds of {plural(numbers, 'column')}")
    if as_json:
        print_json(document)
    ctx.exit(exit_code(findings))


def _schema_of(words: Words, files: Sequence[Path], reading: Reading) -> Schema:
    """What the columns of the files are."""
    from ..tables import read_silos

    with words.warnings_as_notes():
        found = read_silos(files, replace(reading, missing=EM, judge=True))[0].schema
    if found is None:
        raise click.UsageError(
            f"{files[0]} is a matrix without column names; a schema is about tables, and a file of bounds can say "
            '"*" = [low, high]'
        )
    return found


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())


def _compared(
    files: Sequence[Path], reading: Reading, n_clusters: int, *, scaled: bool = True
) -> tuple[dict[str, Columns], list[Finding]]:
    """What silos hold, and how they differ."""
    from ..tables import compare, read_columns
    from ..tables.survey import survey

    held = read_columns(files, replace(reading, judge=reading.text_column is None))
    salt = secrets.token_hex(32)
    surveys = {silo: survey(content, salt) for silo, content in held.items()}
    complete = reading.missing == REFUSE
    return held, compare(surveys, by_name=True, n_clusters=n_clusters, complete=complete, scaled=scaled)


@contextlib.contextmanager
def every_problem(files: Sequence[Path], reading: Reading, n_clusters: Any) -> Iterator[None]:
    """If reading or fitting the files fails, list all that would stop it below what did."""
    try:
        yield
    except DataError as error:
        found = _problems(files, reading, n_clusters if isinstance(n_clusters, int) else 1, error)
        if len(found) < 2:
            raise
        raise DataError("\n  ".join([f"{error}\nAll {len(found)} problems that stop this run:", *found])) from None


def _problems(files: Sequence[Path], reading: Reading, n_clusters: int, first: DataError) -> list[str]:
    """Sentences about all that would stop a run of these files, in the words of `fmtc check`."""
    from ..tables import explain
    from ..tables.formats import read_file

    readable, problems = [], []
    for file in files:
        try:
            read_file(file, reading)
            readable.append(file)
        except DataError as error:
            problems.append(str(error))
    said: dict[str, list[str]] = {}
    with warnings.catch_warnings(), contextlib.suppress(DataError):
        warnings.simplefilter("ignore")
        held, findings = _compared(readable, reading, n_clusters)
        if (known := reading.known_schema()) is not None:
            names = known.names
            problems += [str(first)] if any(set(names) - set(c.names or names) for c in held.values()) else []
        for silo in held:
            for sentence in explain(findings, silo, held, ERROR, reading.wording):
                said.setdefault(sentence, []).append(silo)
    return problems + [f"{joined(silos)}: {sentence}" for sentence, silos in said.items()]


def _of_federation(words: Words, kit_path: Path, n_clusters: int, wait: float) -> tuple[list[str], list[Finding]]:
    """Ask the silos of a federation for their columns, compare them, and tell each how its own differ."""
    from ..errors import DifferError
    from ..runtime.flare.kits import Kit
    from ..runtime.flare.supervise import Coordinator, supervise
    from ..runtime.spec import RunSpec
    from ..settings import Settings
    from ..tables import Finding
    from .federation import View

    kit = Kit.read(kit_path, "coordinator")
    found: list[Finding] = []

    def listen(event: Mapping[str, Any]) -> None:
        if event["event"] == "surveyed":
            found.extend(Finding(**finding) for finding in event["findings"])
        else:
            view(event)

    names = {silo: silo for silo in kit.plan.silos}
    with tempfile.TemporaryDirectory() as folder:
        spec = RunSpec(
            secrets.token_hex(8),
            Settings(n_clusters=n_clusters),
            Path(folder),
            deadline=60.0,
            wait=wait,
            preflight="only",
        )
        with (
            View(words, 0, names, f"federation {kit.plan.name!r}: starting the server") as view,
            Coordinator(kit) as coordinator,
            contextlib.suppress(DifferError),
        ):
            supervise(coordinator, spec, listen)
    show_findings(words, list(names), found)
    return list(names), found


def show_findings(
    words: Words, silos: Sequence[str], findings: Sequence[Finding], columns: Mapping[str, Columns] | None = None
) -> None:
    """What was found about each silo, and a line about all; names and sizes are taken from the columns at hand."""
    from ..tables import explain

    columns = columns or {}
    for silo in silos:
        errors, notes = (explain(findings, silo, columns, severity, FLAGS) for severity in (ERROR, NOTE))
        counts = [(errors, "error", "bold red"), (notes, "note", "yellow")]
        states = [(plural(len(said), noun), style) for said, noun, style in counts if said]
        states = [part for state in states for part in ((", ", ""), state)][1:] or [("agrees", "green")]
        size = ""
        if silo in columns:
            size = f" ({plural(columns[silo].n_rows, 'row')}, {plural(columns[silo].width, 'column')})"
        show(words.console, Text.assemble((silo, "bold"), size, ": ", *states))
        for mark, style, sentences in (("error: ", "red", errors), ("note: ", "yellow", notes)):
            for sentence in sentences:
                show_indented(words.console, Text.assemble((mark, style), sentence))
    show(words.console, Text())
    show(words.console, _summary(silos, findings))


def _summary(silos: Sequence[str], findings: Sequence[Finding]) -> Text:
    stopped = {f.silo for f in findings if f.severity == ERROR}
    if stopped:
        return Text(f"{len(stopped)} of {plural(len(silos), 'silo')} would stop a run, or spoil it", "bold red")
    if len(silos) == 1:
        return Text("1 silo: nothing stops a run, and there is nothing to compare it with", "yellow")
    if findings:
        noted = ", ".join(silo for silo in silos if any(finding.silo == silo for finding in findings))
        return Text(f"nothing stops a run, but read the notes about {noted} first", "yellow")
    return Text(f"{plural(len(silos), 'silo')} agree: nothing stops a run", "green")


def as_document(
    silos: Sequence[str], findings: Sequence[Finding], columns: Mapping[str, Columns] | None = None
) -> dict[str, Any]:
    """The same for machines."""
    from ..tables import explain

    columns = columns or {}
    return {
        "agree": exit_code(findings) == 0,
        "silos": [
            {
                "silo": silo,
                "rows": columns[silo].n_rows if silo in columns else None,
                "columns": columns[silo].names if silo in columns else None,
                "errors": explain(findings, silo, columns, ERROR, FLAGS),
                "notes": explain(findings, silo, columns, NOTE, FLAGS),
                "findings": [finding.to_dict() for finding in findings if finding.silo == silo],
            }
            for silo in silos
        ],
    }


def exit_code(findings: Sequence[Finding]) -> int:
    """3 where anything would stop a run or make it meaningless."""
    return 3 if any(finding.severity == ERROR for finding in findings) else 0
