"""Words in, words out: parse, call one function, print, exit code."""

from importlib import import_module
from typing import TYPE_CHECKING

from .. import lazy_names

if TYPE_CHECKING:
    from .program import main_group

__all__ = ["main", "main_group"]


def main() -> None:
    """Entry point of the `fmtc` program."""
    start("fmtc.cli.program", "fmtc")


def start(module: str, name: str) -> None:
    """Run the program that a module defines as `main_group`."""
    try:  # from here on, an interrupt is one word: also while the program is being imported
        import_module(module).main_group(prog_name=name)
    except (KeyboardInterrupt, RuntimeError) as error:
        # Python turns an interrupt into a RuntimeError where a class that is being made calls __set_name__
        if isinstance(error, RuntimeError) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        import sys

        from .terminal import tell_interrupted

        tell_interrupted()
        sys.exit(130)


__getattr__, __dir__ = lazy_names(__name__, program=("main_group",))
