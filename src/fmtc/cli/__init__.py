"""Words in, words out: parse, call one function, print, exit code."""

from .program import main, main_group

__all__ = ["main", "main_group"]
