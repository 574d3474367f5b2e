"""Words in, words out: parse, call one function, print, exit code."""


def main() -> None:
    """Entry point."""
