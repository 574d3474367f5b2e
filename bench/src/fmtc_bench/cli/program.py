"""The program fmtc-bench: its commands, each in the module that defines it."""

from __future__ import annotations

import click

from fmtc.cli.program import EXIT_CODES, Program

COMMANDS = {
    "audit": "audit",
    "concepts": "compare",
    "data": "data",
    "freeze": "compare",
    "paper": "compare",
    "report": "compare",
    "reproduce": "compare",
    "run": "compare",
    "smoke": "compare",
}


@click.group(cls=Program, modules=COMMANDS, package=__package__, epilog=EXIT_CODES,
             context_settings={"help_option_names": ["-h", "--help"]})  # fmt: skip
@click.version_option(package_name="fmtc-bench", message="fmtc-bench %(version)s")
def main_group() -> None:
    """Compare FMTC with other methods on data sets with known classes, get such data sets, and audit what leaks.

    Begin with `fmtc-bench smoke`. Labels are used for scores only, but for the column that says oracle.
    """
