"""What reaches a terminal besides our own words: text of others, and the end of an interrupted program."""

import sys

_ORDERS = [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_OMITTED = dict.fromkeys(order for order in _ORDERS if chr(order) not in "\n\t")


def printable(text: str) -> str:
    """The same text without what a terminal would obey: escapes, control characters, marks of direction.

    They take no place on a line, so that text fits where it was measured to fit.

    Examples
    --------
    >>> from fmtc.cli.terminal import printable
    >>> printable("north" + chr(27) + "[31m")
    'north[31m'
    """
    return text if text.isascii() and text.isprintable() else text.translate(_OMITTED)


def tell_interrupted(more: str = "") -> None:
    """Say so on standard error, without any import: the next interrupt may come at once."""
    sys.stderr.write(f"interrupted{more}\n")
