"""The command that compares silos before anything is learnt from them: preflight."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..artifacts.files import write_file
from ..errors import DataError, joined
from .options import data_options, free_path, read_names, read_types, reading_of, table_options, text_option
from .program import Option, main_group
from .words import Words, in_flags, plural, print_json, show, show_indented

if TYPE_CHECKING:
    from ..tables import Columns, Finding

ERROR, NOTE = "error", "note"  # severities of `fmtc.tables.findings`, which loads Polars


@main_group.command(
    short_help="Compare what silos hold before a run.",
    epilog="""\b
Examples:
  fmtc preflight north.csv south.csv west.csv
  fmtc preflight north.csv south.csv --id-column patient --drop zip -k 4
  fmtc preflight all.parquet --client-column site --json
  fmtc preflight --kit coordinator -k 4          (of a federation whose silos have joined)""",
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
@data_options
@table_options
@text_option
@click.pass_context
def preflight(
    ctx: click.Context,
    /,
    files: tuple[Path, ...],
    kit_path: Path | None,
    wait: float,
    n_clusters: int,
    scale: str | None,
    client_column: str | None,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    missing_codes: tuple[str, ...],
    columns: tuple[str, ...],
    as_types: dict[str, str],
    missing: str,
    schema: Path | None,
    no_header: bool,
    obsm: str | None,
    text_column: str | None,
    as_json: bool,
) -> None:
    """Compare what silos hold, before a run: columns, types, order, missing values, sizes and units.

    Prints what differs for each silo. Exits with 3 if anything would stop `fmtc fit`, with 0 if not. Silos are compared
    through what they would send in a federation: salted hashes of names, counts, means and variances of columns.
    """
    from ..tables.doubts import codes_in

    words = Words()
    if bool(files) == (kit_path is not None):
        raise click.UsageError("give the files of the silos, or the coordinator's kit with --kit")
    if kit_path is not None:
        silos, findings = _of_federation(words, kit_path, n_clusters, wait)
        if as_json:
            print_json(as_document(silos, findings))
        ctx.exit(exit_code(findings))
    reading = reading_of(columns, as_types, missing, schema, no_header, obsm, missing_codes)
    reading |= {"client_column": client_column, "label_column": label_column, "id_column": id_column, "drop": drop,
                "text_column": text_column}  # fmt: skip
    with every_problem(files, reading, n_clusters), words.warnings_as_notes():
        held, findings = _compared(files, reading, n_clusters, scaled=scale != "none")
    for silo, content in held.items():
        if sentence := codes_in(content):
            words.note(f"{silo} {sentence}")
    show_findings(words, list(held), findings, held)
    if as_json:
        print_json(as_document(list(held), findings, held))
    ctx.exit(exit_code(findings))


def _compared(
    files: Sequence[Path], reading: Mapping[str, Any], n_clusters: int, *, scaled: bool = True
) -> tuple[dict[str, Columns], list[Finding]]:
    """What silos hold, and how they differ; `reading` is that of `read_silos`."""
    from ..tables import compare, read_columns
    from ..tables.survey import survey

    known = {name: value for name, value in reading.items() if name not in ("missing", "judge", "salt", "n_buckets")}
    held = read_columns(files, judge=reading.get("text_column") is None, **known)
    salt = secrets.token_hex(32)
    surveys = {silo: survey(content, salt) for silo, content in held.items()}
    complete = reading.get("missing") == "refuse"
    return held, compare(surveys, by_name=True, n_clusters=n_clusters, complete=complete, scaled=scaled)


@contextlib.contextmanager
def every_problem(files: Sequence[Path], reading: Mapping[str, Any], n_clusters: Any) -> Iterator[None]:
    """If reading or fitting the files fails, list all that would stop it below what did."""
    try:
        yield
    except DataError as error:
        found = _problems(files, reading, n_clusters if isinstance(n_clusters, int) else 1, error)
        if len(found) < 2:
            raise
        raise DataError("\n  ".join([f"{error}\nAll {len(found)} problems that stop this run:", *found])) from None


def _problems(files: Sequence[Path], reading: Mapping[str, Any], n_clusters: int, first: DataError) -> list[str]:
    """Sentences about all that would stop a run of these files, in the words of `fmtc preflight`."""
    from ..schema import Schema
    from ..tables import explain
    from ..tables.formats import read_file

    readable, problems = [], []
    for file in files:
        try:
            read_file(file, header=reading.get("header"), obsm=reading.get("obsm"))
            readable.append(file)
        except DataError as error:
            problems.append(str(error))
    said: dict[str, list[str]] = {}
    with warnings.catch_warnings(), contextlib.suppress(DataError):
        warnings.simplefilter("ignore")
        held, findings = _compared(readable, reading, n_clusters)
        if (path := reading.get("schema")) is not None:
            names = Schema.read(path).names
            problems += [str(first)] if any(set(names) - set(c.names or names) for c in held.values()) else []
        for silo in held:
            for sentence in explain(findings, silo, held, ERROR):
                said.setdefault(sentence, []).append(silo)
    return problems + [f"{joined(silos)}: {sentence}" for sentence, silos in said.items()]


@main_group.command(
    short_help="Write what the columns of tables are, as a schema.toml.",
    epilog="""\b
Examples:
  fmtc schema north.csv south.csv > schema.toml
  fmtc schema all.parquet --client-column site --as category:cp > schema.toml
  fmtc join --kit north --data ours.csv --schema schema.toml --out ours     (the same file at every silo)""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@data_options
@click.option("--as", "as_types", multiple=True, metavar="KIND:NAMES", callback=read_types, cls=Option, section="Data",
              help="What columns are, such as category:sex,cp or number:zip; many times.")  # fmt: skip
@click.option("--columns", multiple=True, metavar="NAMES", callback=read_names, cls=Option, section="Data",
              help="The only columns to use, such as age,sex.")  # fmt: skip
@click.option("--no-header", is_flag=True, cls=Option, section="Data", help="The first line of a text file is a row.")
@click.option("--out", type=click.Path(path_type=Path), cls=Option, help="File to write instead of standard output.")
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
def schema(
    files: tuple[Path, ...],
    out: Path | None,
    force: bool,
    client_column: str | None,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    missing_codes: tuple[str, ...],
    as_types: dict[str, str],
    columns: tuple[str, ...],
    no_header: bool,
    as_json: bool,
) -> None:
    """Write what the columns of tables are, as a schema.toml: numbers and categories with their levels.

    Look it over, add units and bounds, and give it to every silo of a federation, which then code categories alike. It
    holds names of columns and levels, and no row.
    """
    from ..tables import read_silos

    words = Words()
    if out is not None:
        out = free_path(out, force)
    with words.warnings_as_notes():
        silos = read_silos(
            files, client_column=client_column, label_column=label_column, id_column=id_column, drop=drop,
            columns=columns, as_types=as_types, missing="em", judge=True, header=False if no_header else None,
            missing_codes=missing_codes,
        )  # fmt: skip
    found = silos[0].schema
    if found is None:
        raise click.UsageError(f"{files[0]} is a matrix without column names; a schema is about tables")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_file(out, found.to_toml().encode())
        words.say(f"wrote {out}: {plural(len(found.columns), 'column')}")
    if as_json:
        print_json(found.to_dict())
    elif out is None:
        click.echo(found.to_toml(), nl=False)


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
        errors, notes = (explain(findings, silo, columns, severity) for severity in (ERROR, NOTE))
        counts = [(errors, "error", "bold red"), (notes, "note", "yellow")]
        states = [(plural(len(said), noun), style) for said, noun, style in counts if said]
        states = [part for state in states for part in ((", ", ""), state)][1:] or [("agrees", "green")]
        size = ""
        if silo in columns:
            size = f" ({plural(columns[silo].n_rows, 'row')}, {plural(columns[silo].width, 'column')})"
        show(words.console, Text.assemble((silo, "bold"), size, ": ", *states))
        for mark, style, sentences in (("error: ", "red", errors), ("note: ", "yellow", notes)):
            for sentence in sentences:
                show_indented(words.console, Text.assemble((mark, style), in_flags(sentence)))
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
                "errors": explain(findings, silo, columns, ERROR),
                "notes": explain(findings, silo, columns, NOTE),
                "findings": [asdict(finding) for finding in findings if finding.silo == silo],
            }
            for silo in silos
        ],
    }


def exit_code(findings: Sequence[Finding]) -> int:
    """3 where anything would stop a run or make it meaningless."""
    return 3 if any(finding.severity == ERROR for finding in findings) else 0
