"""Words in, words out: parse, call one function, print, exit code."""

from . import (  # noqa: F401 (the commands register themselves)
    bench,
    data,
    demo,
    doctor,
    federation,
    models,
    outbox,
    preflight,
    report,
)
from .program import main, main_group

__all__ = ["main", "main_group"]
