"""The command that looks for what may keep a machine from a federation: doctor."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from ..errors import plural
from . import flags
from .flags import PATH
from .program import main_group
from .words import Words, show, show_indented

if TYPE_CHECKING:
    from ..runtime.flare.doctor import Check


@main_group.command(short_help="Look for what may keep this machine from a federation.")
@flags.option("--kit", "kit_path", type=PATH,
        help="Folder that `fmtc federation init` made for you; left out, only this machine.")  # fmt: skip
@flags.option("--out", type=PATH, default=".",
        help="Folder you are going to write: is there room?  [default: the current one]")  # fmt: skip
def doctor(kit_path: Path | None, out: Path, words: Words) -> None:
    """Look for what may keep this machine from a federation, and say what to do about it.

    Versions, certificates, permissions, policy, proxies, the way to the coordinator, clock and disk. Changes nothing.
    `fmtc check` looks at your rows.

    Examples:
      fmtc doctor
      fmtc doctor --kit north
      fmtc doctor --kit coordinator --json

    Exit codes:
      0    all is well, or there are warnings only
      1    a check failed
    """
    from ..runtime.flare.doctor import examine

    checks = []
    with words.warnings_as_notes():
        for check in examine(kit_path, out=out):
            checks.append(check)
            _show(words, check)
    failed = sum(not check.ok for check in checks)
    warnings = sum(check.ok and check.advice != "" for check in checks)
    ending, style = "all is well", "green"
    if warnings:
        ending, style = f"none failed, {plural(warnings, 'warning')}", "yellow"
    if failed:
        ending, style = f"{failed} failed", "bold red"
    show(words.console, "")
    show(words.console, f"{plural(len(checks), 'check')}: {ending}", style)
    words.give([asdict(check) for check in checks])
    raise click.exceptions.Exit(1 if failed else 0)


def _show(words: Words, check: Check) -> None:
    """A mark, what was looked at and what was found; below it what to do."""
    plain = not words.console.encoding.startswith("utf")
    if not check.ok:
        mark, style = "x" if plain else "✗", "bold red"
    else:
        mark, style = ("!", "yellow") if check.advice else ("+" if plain else "✓", "green")
    show(words.console, Text.assemble((f"{mark} ", style), (check.name, "bold"), f": {check.found}"))
    if check.advice:
        show_indented(words.console, check.advice, style)
