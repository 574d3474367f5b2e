"""Errors of fmtc."""


class RefusedError(ValueError):
    """A message that does not fit its declaration; it was thrown away."""


class LimitError(ValueError):
    """A run, or a question of it, that goes beyond what a client's own person allows."""


class WithheldError(LimitError):
    """An answer that the person at the client did not want to send."""
