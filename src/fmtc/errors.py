"""Errors of fmtc."""


class RefusedError(ValueError):
    """A message that does not fit its declaration; it was thrown away."""


class LimitError(ValueError):
    """A run, or a question of it, that goes beyond what a client's own person allows."""


class WithheldError(LimitError):
    """An answer that the person at the client did not want to send."""


class AbortedError(RuntimeError):
    """The run was told to end."""


class LostError(RuntimeError):
    """A client that is not there or does not answer."""


class OwnError(LostError):
    """A client whose own code failed: asking again will not help."""


class ChangedError(ValueError):
    """Rows, or identifiers, that are not those of before: labels would land on the wrong ones."""
