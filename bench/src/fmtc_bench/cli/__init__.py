"""The command line of the laboratory: parse, call one function, print, exit code."""

from fmtc.cli import start


def main() -> None:
    """Entry point of the `fmtc-bench` program."""
    start("fmtc_bench.cli.program", "fmtc-bench")
