"""Commands that look at silos before anything is learnt from them: check and advise-k."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from .. import tables
from ..artifacts.files import write_file
from ..errors import DataError, joined, plural
from ..schema import NUMBER, Schema
from ..tables.reading import EM, REFUSE, Reading
from ..wording import FLAGS
from . import flags
from .flags import PATH, TABLES, Asking, free_path, free_picture, given, save_picture
from .program import main_group
from .settings import bounds_template, build_model, model_options
from .words import Words, note_table, size_of

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
      fmtc check all.parquet --silo-column site --json
      fmtc check ours.csv --as category:cp --write-schema schema.toml     (the same file for every silo of a federation)
      fmtc check north.csv south.csv --write-bounds bounds.toml           (for private runs, to be filled in)
      fmtc check --kit coordinator -k 4          (of a federation whose silos have joined)
    """
    asking.check(files)
    templates.check(asking.kit)
    if asking.kit is not None:
        from .leading import ask_columns, coordinator_of

        with coordinator_of(asking.kit) as coordinator:
            found = ask_columns(words, coordinator, n_clusters, asking.wait)
    else:
        with every_problem(files, reading, n_clusters), words.warnings_as_notes():
            found = Comparison.of_files(files, reading, n_clusters, scaled=scale != "none")
        for silo, content in found.columns.items():
            if sentence := tables.values.codes_in(content, FLAGS):
                words.note(f"{silo}: {sentence}")
    found.show(words)
    document = found.to_dict()
    if templates.schema_file is not None or templates.bounds_file is not None:
        schema = _schema_of(words, files, reading)
        document["schema"] = schema.to_dict()
        templates.write(words, schema)
    words.give(document)
    raise click.exceptions.Exit(3 if found.stops else 0)


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


@main_group.command("advise-k", short_help="How many clusters the rows speak for.")
@click.argument("files", nargs=-1, type=PATH)
@flags.takes(asking=Asking)
@flags.option("--range", "k_range", metavar="LOW..HIGH", default="auto",
        help="Numbers to compare; by default 2 to 30, and four rows of the smallest silo for each.")  # fmt: skip
@flags.option("--plot", type=PATH, metavar="FILE", help="A picture of the evidence, such as k.png.")
@flags.switch("--force", help="Replace --plot.")
@flags.random_state
@flags.quiet
@flags.reading(*TABLES, judge=True)
@model_options
def advise_k(
    files: tuple[Path, ...],
    asking: Asking,
    k_range: str,
    plot: Path | None,
    force: bool,
    reading: Reading,
    words: Words,
    **settings: Any,
) -> None:
    """Say how many clusters the rows of all silos speak for: a number, a range, and how far to trust them.

    It looks at large parts and at steps in the spectrum of each silo's neighbour graph, without labels. It is advice.
    The strongest structure may not be the one you want, and no score can know which one that is.

    Examples:
      fmtc advise-k north.csv south.csv west.csv
      fmtc advise-k *.csv --range 2..12 --plot k.png
      fmtc advise-k all.parquet --silo-column site --json
      fmtc advise-k --kit coordinator              (of a federation whose silos have joined)
    """
    from ..protocol.advice import range_of

    asking.check(files)
    try:
        range_of(k_range)
    except ValueError as error:
        raise click.UsageError(f"--range: {error}") from None
    model = build_model({**settings, "n_clusters": k_range}, reading)
    if plot is not None:
        plot = free_picture(plot, force)
    if asking.kit is not None:
        from .leading import ask_advice, coordinator_of

        if (schema := reading.known_schema()) is not None:
            model.schema_ = schema
        with coordinator_of(asking.kit) as coordinator:
            advice = ask_advice(words, coordinator, model, wait=asking.wait)
    else:
        with every_problem(files, reading, 1), words.warnings_as_notes():
            silos = tables.read_silos(files, reading)
            if reading.recipe is None:
                note_table(words, silos, scaled=model.scale != "none")
            from ..estimator import advise

            words.say(f"{size_of(silos)}: looking for structure")
            advice = advise({silo.name: silo.encoded for silo in silos}, model=model)
    if plot is not None:
        from ..plot import plot_k

        save_picture(words, plot_k(advice).figure, plot)
    if not words.give(advice.to_dict() | {"notes": words.notes}):
        for sentence in advice.sentences:
            words.show(sentence)


# ------------------------------------------------------------------------------------------------------ comparing


STYLES = {ERROR: ("bold red", "red"), NOTE: ("yellow", "yellow")}


@dataclass(frozen=True)
class Comparison:
    """How silos differ, and what they hold where that is known here."""

    silos: Sequence[str]
    findings: Sequence[tables.Finding]
    columns: Mapping[str, tables.Columns] = field(default_factory=dict)

    @classmethod
    def of_files(cls, files: Sequence[Path], reading: Reading, n_clusters: int, *, scaled: bool = True) -> Comparison:
        """Compare the silos of files through what they would send in a federation."""
        from ..tables.survey import compare_columns

        found = tables.read_columns(files, replace(reading, judge=reading.text_column is None))
        complete = reading.missing == REFUSE
        findings = compare_columns(found, n_clusters=n_clusters, complete=complete, scaled=scaled)
        return cls(list(found), findings, found)

    @property
    def stops(self) -> bool:
        """Whether anything would stop a run or make it meaningless."""
        return any(finding.severity == ERROR for finding in self.findings)

    def said(self, silo: str, severity: str) -> list[str]:
        """What was found about a silo, in sentences."""
        return tables.explain(self.findings, silo, self.columns, severity, FLAGS)

    def show(self, words: Words) -> None:
        """Each silo, and a line about all."""
        for silo in self.silos:
            said = {kind: self.said(silo, kind) for kind in STYLES}
            states = [Text(plural(len(said[kind]), kind), STYLES[kind][0]) for kind in STYLES if said[kind]]
            size = ""
            if silo in self.columns:
                mine = self.columns[silo]
                size = f" ({plural(mine.n_rows, 'row')}, {plural(mine.width, 'column')})"
            state = Text(", ").join(states) if states else ("agrees", "green")
            words.tell(Text.assemble((silo, "bold"), size, ": ", state))
            for kind, (_, style) in STYLES.items():
                for sentence in said[kind]:
                    words.tell(Text.assemble((f"{kind}: ", style), sentence), by=2)
        words.tell("")
        words.tell(*self._summary())

    def _summary(self) -> tuple[str, str]:
        """A line about all silos, and its style."""
        counted, about = plural(len(self.silos), "silo"), {finding.silo for finding in self.findings}
        if self.stops:
            stopped = {finding.silo for finding in self.findings if finding.severity == ERROR}
            return f"{len(stopped)} of {counted} would stop a run, or spoil it", "bold red"
        if len(self.silos) == 1:
            return "1 silo: nothing stops a run, and there is nothing to compare it with", "yellow"
        if self.findings:
            noted = ", ".join(silo for silo in self.silos if silo in about)
            return f"nothing stops a run, but read the notes about {noted} first", "yellow"
        return f"{counted} agree: nothing stops a run", "green"

    def to_dict(self) -> dict[str, Any]:
        """The same for machines."""
        lines = [
            {
                "silo": silo,
                "rows": self.columns[silo].n_rows if silo in self.columns else None,
                "columns": self.columns[silo].names if silo in self.columns else None,
                "errors": self.said(silo, ERROR),
                "notes": self.said(silo, NOTE),
                "findings": [finding.to_dict() for finding in self.findings if finding.silo == silo],
            }
            for silo in self.silos
        ]
        return {"agree": not self.stops, "silos": lines}


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
        found = Comparison.of_files(readable, reading, n_clusters)
        if (known := reading.known_schema()) is not None:
            names = known.names
            problems += [str(first)] if any(set(names) - set(c.names or names) for c in found.columns.values()) else []
        for silo in found.silos:
            for sentence in found.said(silo, ERROR):
                said.setdefault(sentence, []).append(silo)
    return problems + [f"{joined(silos)}: {sentence}" for sentence, silos in said.items()]
