"""Commands about what has left a silo: outbox show, verify and budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal
from rich.text import Text

from ..artifacts.files import read_file
from ..artifacts.runs import OUTBOX
from ..errors import FileError, plural
from ..privacy.budget import BUDGET, Budget
from ..privacy.ledger import FAILURE, LEDGER, REPLAY, head_of, read_lines, totals, verify
from .flags import PATH
from .program import main_group
from .words import Words, new_table


@main_group.group(short_help="Show what has left a silo, and verify the record of it.")
def outbox() -> None:
    """Show what has left a silo, and verify the record of it.

    Every answer of a silo is recorded in a ledger before it is sent: when, in which run, phase and round, which fields,
    their shapes, bytes and checksums. Each line holds the hash of the line before it.
    """


folder_argument = click.argument("folder", metavar="KIT_OR_RUN", type=PATH)


def find_ledgers(folder: Path) -> list[Path]:
    """Files of the ledgers of a kit (one) or of a run (one for each silo).

    A kit that has not answered yet has none. Any other folder raises `FileError`.
    """
    if (folder / LEDGER).exists() or head_of(folder / LEDGER).exists():
        return [folder / LEDGER]
    if (folder / OUTBOX).is_dir():
        names = {path.stem for path in (folder / OUTBOX).iterdir() if path.suffix in (".jsonl", ".head")}
        return [folder / OUTBOX / f"{name}.jsonl" for name in sorted(names)]
    if (folder / "startup").is_dir():
        return []
    raise FileError(
        f"{folder} holds no outbox; give the kit of a silo, or the --out folder of `fmtc fit`. A silo of a federation "
        "has its outbox in its kit."
    )


# ------------------------------------------------------------------------------------------------------------- show


@outbox.command("show", short_help="Show what has left, in words, with totals.")
@folder_argument
def outbox_show(folder: Path, words: Words) -> None:
    """Show what has left, in words: each field of each phase of each run, how often, and how many bytes.

    KIT_OR_RUN is the kit of a silo, or the --out folder of `fmtc fit`, which has one ledger for each silo.

    Examples:
      fmtc outbox show north                        (the kit of a silo)
      fmtc outbox show run
      fmtc outbox show run --json
    """
    found = [run for path in find_ledgers(folder) for run in _runs(path)]
    if words.give({"folder": str(folder), "runs": found, "bytes": sum(run["bytes"] for run in found)}):
        return
    if not found:
        words.show("nothing has left yet")
    for run in found:
        _show_run(words, run)


def _runs(path: Path) -> list[dict[str, Any]]:
    """What a ledger says of each run of each silo, in the order in which the runs began."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in read_lines(path):
        grouped.setdefault((line["client"], line["run"]), []).append(line)
    return [_about(path, silo, run, lines) for (silo, run), lines in grouped.items()]


def _about(path: Path, silo: str, run: str, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from ..protocol import advice, auto, base
    from ..protocol.method import COMMON

    kinds = [line["kind"] for line in lines if line["fields"]]
    sent = base.sent((*COMMON, *auto.METHOD.phases, *advice.METHOD.phases), totals(lines))
    return {
        "silo": silo,
        "run": run,
        "ledger": path.name,
        "first": lines[0]["time"],
        "last": lines[-1]["time"],
        "answers": len(kinds),
        "replays": kinds.count(REPLAY),
        "failures": kinds.count(FAILURE),
        "bytes": sum(row["bytes"] for row in sent),
        "sent": sent,
    }


def _show_run(words: Words, run: Mapping[str, Any]) -> None:
    words.show(Text.assemble(("silo ", ""), (run["silo"], "bold"), ", run ", (run["run"], "bold")))
    words.show(f"from {_moment(run['first'])} to {_moment(run['last'])}", by=2)
    among = [f"{run[name]} {said}" for name, said in (("replays", "sent again"), ("failures", "errors")) if run[name]]
    more = f" ({', '.join(among)} among them)" if among else ""
    words.show(f"{plural(run['answers'], 'answer')} with content{more}, {decimal(run['bytes'])} in all", by=2)
    table = new_table("<phase", "<field", "<what it is", "<shape", ">times", ">bytes")
    for row in run["sent"]:
        what = row["what"] or "not declared by this version of fmtc"
        table.add_row(row["phase"], row["field"], what, row["shape"], str(row["times"]), f"{row['bytes']:,}")
    words.show(table)
    words.show("")


def _moment(time: str) -> str:
    """A time of a ledger as people read it: to the second, UTC."""
    return time[:19].replace("T", " ") + " UTC"


# ----------------------------------------------------------------------------------------------------------- verify


@outbox.command("verify", short_help="Verify that no line of the record was changed.")
@folder_argument
def outbox_verify(folder: Path, words: Words) -> None:
    """Verify that no line of the record was changed, removed, added or moved; exit code 3 where one was.

    KIT_OR_RUN is the kit of a silo, or the --out folder of `fmtc fit`. The check finds accidents and careless changes.
    Somebody who rewrites the whole record is not found: for that, keep a copy of the last line's hash elsewhere.

    Examples:
      fmtc outbox verify north                      (the kit of a silo)
      fmtc outbox verify run && echo whole
    """
    checked = [_check(path) for path in find_ledgers(folder)]
    for ledger in checked:
        for fault in ledger["faults"]:
            words.say(f"{ledger['ledger']}: {fault}", "red")
    faults = sum(len(ledger["faults"]) for ledger in checked)
    lines = sum(ledger["lines"] for ledger in checked)
    words.give({"folder": str(folder), "whole": not faults, "lines": lines, "ledgers": checked})
    if faults:
        words.say(f"{plural(faults, 'fault')}: the record is not as it was written", "bold red")
        raise click.exceptions.Exit(3)
    of = f" in {plural(len(checked), 'ledger')}" if len(checked) > 1 else ""
    words.say(f"{plural(lines, 'line')}{of}, all as they were written" if lines else "nothing has left yet", "green")


def _check(path: Path) -> dict[str, Any]:
    """Number of lines and faults of one ledger."""
    lines = read_file(path, bytes).count(b"\n") if path.exists() else 0
    return {"ledger": path.name, "lines": lines, "faults": verify(path)}


# ----------------------------------------------------------------------------------------------------------- budget


@outbox.command("budget", short_help="Show how much privacy a silo's rows have spent.")
@click.argument("kit", type=PATH)
def outbox_budget(kit: Path, words: Words) -> None:
    """Show how much privacy a silo's rows have spent in private runs, and what is left of --epsilon-budget.

    Rows are told apart by a fingerprint: changed rows begin anew, though most of them may be the same.

    Examples:
      fmtc outbox budget north                      (the kit of a silo)
      fmtc outbox budget north --json
    """
    from ..runtime.kitclient import SOURCE, ClientSource

    find_ledgers(kit)  # refuses what is no kit
    limit = ClientSource.read(kit).epsilon_budget if (kit / "local" / SOURCE).exists() else None
    budget = Budget(kit / BUDGET, limit)
    lines = [
        {
            "rows": rows, "epsilon": spent.epsilon, "delta": spent.delta, "releases": spent.releases,
            "left": None if limit is None else budget.left(rows),
        }
        for rows, spent in budget.all().items()
    ]  # fmt: skip
    if words.give({"kit": str(kit), "budget": limit, "spent": lines}):
        return
    if not lines:
        return words.show("no private answer has left yet")
    table = new_table("<rows", ">epsilon spent", ">delta", ">answers", ">left")
    for line in lines:
        left = "no limit" if line["left"] is None else f"{line['left']:.3g}"
        table.add_row(
            str(line["rows"])[:12], f"{line['epsilon']:.3g}", f"{line['delta']:g}", str(line["releases"]), left
        )
    words.show(table)
