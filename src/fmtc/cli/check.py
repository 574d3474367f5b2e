"""The command that compares silos before anything is learnt from them: check."""

from __future__ import annotations

import contextlib
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from .. import tables
from ..artifacts.files import write_file
from ..errors import DataError, joined
from ..schema import NUMBER, Schema
from ..tables.reading import EM, REFUSE, Reading
from ..wording import FLAGS
from . import flags
from .flags import PATH, TABLES, Asking, free_path, given
from .privacy import bounds_template
from .program import main_group
from .words import Words, plural, show, show_indented

ERROR, NOTE = "error", "note"  # severities of `fmtc.tables.findings`, which loads Polars


@dataclass(frozen=True)
class Templates:
    """Files to be filled in, which a comparison of files can write."""

    schema_file: Path | None = given(
        "--write-schema", type=PATH, metavar="FILE",
        help="Also write what the columns are, a schema.toml for all silos of a federation.",
    )  # fmt: skip
    bounds_file: Path | None = given("--write-bounds", type=PATH, metavar="FILE",
                                     help="Also write public bounds for private runs, to be filled in.")  # fmt: skip
    force: bool = given("--force", is_flag=True, help="Replace what --write-schema and --write-bounds name.")

    def check(self, kit: Path | None) -> None:
        """Refuse what cannot be written."""
        for path in filter(None, (self.schema_file, self.bounds_file)):
            if kit is not None:
                raise click.UsageError(f"{path} is written from files; a coordinator has none")
            free_path(path, self.force)

    def write(self, words: Words, schema: Schema) -> None:
        """Write the files that were named."""
        numbers = sum(column.kind == NUMBER for column in schema.columns)
        if self.schema_file is not None:
            _write(self.schema_file, schema.to_toml())
            words.say(f"wrote {self.schema_file}: {plural(len(schema.columns), 'column')}")
        if self.bounds_file is not None:
            _write(self.bounds_file, bounds_template(schema))
            words.say(f"wrote {self.bounds_file}: fill in the bounds of {plural(numbers, 'column')}")


@main_group.command(short_help="Compare what silos hold before a run.")
@click.argument("files", nargs=-1, type=PATH)
@flags.takes(asking=Asking)
@flags.option("-k", "--n-clusters", type=click.IntRange(1), default=1,
        help="Clusters you will ask for; finds silos with too few rows.")  # fmt: skip
@flags.option("--scale", metavar="WORD",
        help="The --scale you will ask for; with none, a column that outweighs all others is noted.")  # fmt: skip
@flags.takes(templates=Templates)
@flags.reading(*TABLES)
def check(
    files: tuple[Path, ...],
    asking: Asking,
    n_clusters: int,
    scale: str | None,
    templates: Templates,
    reading: Reading,
    words: Words,
) -> None:
    """Compare what silos hold, before a run: columns, types, order, missing values, sizes and units.

    Prints what differs for each silo. Exits with 3 if anything would stop `fmtc fit`, with 0 if not. Silos are compared
    through what they would send in a federation: salted hashes of names, counts, means and variances of columns.

    --write-schema names columns and levels, and no row: look the file over, add units and bounds, and give it to every
    silo, which then code categories alike. --write-bounds names the columns that are numbers and holds no value from
    the files: bounds that are read from data are not public, and would break the promise of a private run.

    Examples:
      fmtc check north.csv south.csv west.csv
      fmtc check north.csv south.csv --id-column patient --drop zip -k 4
      fmtc check all.parquet --client-column site --json
      fmtc check ours.csv --as category:cp --write-schema schema.toml     (the same file for every silo of a federation)
      fmtc check north.csv south.csv --write-bounds bounds.toml           (for private runs, to be filled in)
      fmtc check --kit coordinator -k 4          (of a federation whose silos have joined)
    """
    asking.check(files)
    templates.check(asking.kit)
    held: dict[str, Any] = {}
    if asking.kit is not None:
        from .leading import ask_columns

        silos, findings = ask_columns(words, asking, n_clusters)
    else:
        with every_problem(files, reading, n_clusters), words.warnings_as_notes():
            held, findings = compared(files, reading, n_clusters, scaled=scale != "none")
        silos = list(held)
        for silo, content in held.items():
            if sentence := tables.values.codes_in(content, FLAGS):
                words.note(f"{silo} {sentence}")
    show_findings(words, silos, findings, held)
    document = as_document(silos, findings, held)
    if templates.schema_file is not None or templates.bounds_file is not None:
        schema = _schema_of(words, files, reading)
        document["schema"] = schema.to_dict()
        templates.write(words, schema)
    words.give(document)
    raise click.exceptions.Exit(exit_code(findings))


def _schema_of(words: Words, files: Sequence[Path], reading: Reading) -> Schema:
    """What the columns of the files are."""
    with words.warnings_as_notes():
        found = tables.read_silos(files, replace(reading, missing=EM, judge=True))[0].schema
    if found is None:
        raise click.UsageError(
            f"{files[0]} is a matrix without column names; a schema is about tables, and a file of bounds can say "
            '"*" = [low, high]'
        )
    return found


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())


# ------------------------------------------------------------------------------------------------------ comparing


def compared(
    files: Sequence[Path], reading: Reading, n_clusters: int, *, scaled: bool = True
) -> tuple[dict[str, tables.Columns], list[tables.Finding]]:
    """What silos hold, and how they differ."""
    from ..tables.survey import survey

    held = tables.read_columns(files, replace(reading, judge=reading.text_column is None))
    salt = secrets.token_hex(32)
    surveys = {silo: survey(content, salt) for silo, content in held.items()}
    complete = reading.missing == REFUSE
    return held, tables.compare(surveys, by_name=True, n_clusters=n_clusters, complete=complete, scaled=scaled)


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
        held, findings = compared(readable, reading, n_clusters)
        if (known := reading.known_schema()) is not None:
            names = known.names
            problems += [str(first)] if any(set(names) - set(c.names or names) for c in held.values()) else []
        for silo in held:
            for sentence in tables.explain(findings, silo, held, ERROR, reading.wording):
                said.setdefault(sentence, []).append(silo)
    return problems + [f"{joined(silos)}: {sentence}" for sentence, silos in said.items()]


def show_findings(
    words: Words,
    silos: Sequence[str],
    findings: Sequence[tables.Finding],
    columns: Mapping[str, tables.Columns] | None = None,
) -> None:
    """What was found about each silo, and a line about all; names and sizes are taken from the columns at hand."""
    columns = columns or {}
    for silo in silos:
        errors, notes = (tables.explain(findings, silo, columns, severity, FLAGS) for severity in (ERROR, NOTE))
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


def _summary(silos: Sequence[str], findings: Sequence[tables.Finding]) -> Text:
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
    silos: Sequence[str], findings: Sequence[tables.Finding], columns: Mapping[str, tables.Columns] | None = None
) -> dict[str, Any]:
    """The same for machines."""
    columns = columns or {}
    return {
        "agree": exit_code(findings) == 0,
        "silos": [
            {
                "silo": silo,
                "rows": columns[silo].n_rows if silo in columns else None,
                "columns": columns[silo].names if silo in columns else None,
                "errors": tables.explain(findings, silo, columns, ERROR, FLAGS),
                "notes": tables.explain(findings, silo, columns, NOTE, FLAGS),
                "findings": [finding.to_dict() for finding in findings if finding.silo == silo],
            }
            for silo in silos
        ],
    }


def exit_code(findings: Sequence[tables.Finding]) -> int:
    """3 where anything would stop a run or make it meaningless."""
    return 3 if any(finding.severity == ERROR for finding in findings) else 0
