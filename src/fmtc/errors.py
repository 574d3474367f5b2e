"""Every exception that fmtc raises on purpose, with one base class for each exit code of the command line.

An error of these classes describes something outside the program: the data, a file, another process, the network. Its
message goes to the user as it is. Any other exception is a bug in fmtc, and the command line reports it as one.

===========  =====================  ===================================================================
Exit code    Base class             Meaning
===========  =====================  ===================================================================
1            `FmtcError`            something outside failed: a server process, a download
2            `UsageError`           the command would disturb something
3            `InputError`           a file or a value cannot be used
4            `TrustError`           trust was refused: nothing was sent
5            `MissingClientError`   too few clients answered
===========  =====================  ===================================================================
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

SHOWN = 5  # names listed in a message before "and ... more"


def warn_not_converged(sentence: str) -> None:
    """Warn, as scikit-learn does, of what an algorithm could not reach with these rows."""
    from sklearn.exceptions import ConvergenceWarning  # slow to import

    warnings.warn(sentence, ConvergenceWarning, stacklevel=3)


class FmtcError(Exception):
    """Base class of all errors that fmtc raises on purpose."""

    exit_code = 1


# ------------------------------------------------------------------------------------------------- 1: failures outside


class FederationError(FmtcError, RuntimeError):
    """Processes of a federation did not start or do not answer; the message says where to look."""


class ServerLostError(FederationError):
    """The server process of a federation does not answer."""


class AbortedError(FmtcError, RuntimeError):
    """The job was asked to end."""


class DownloadError(FmtcError, ConnectionError):
    """A file could not be downloaded: its server cannot be reached, or the transfer did not complete."""

    def __init__(self, message: str):
        super().__init__(0, message)

    def __str__(self) -> str:
        return str(self.strerror)


# ------------------------------------------------------------------------------------------------- 2: would disturb


class UsageError(FmtcError):
    """The command cannot run as given; nothing was changed."""

    exit_code = 2


class WriteError(UsageError, OSError):
    """A file or folder that the system refuses to write: a full disk, a quota, missing rights, a name too long."""

    def __str__(self) -> str:
        return super().__str__() if self.filename is None else f"{self.filename} cannot be written: {self.strerror}"


class InUseError(UsageError, RuntimeError):
    """Another running process holds this resource; the message says which process, and since when."""


# ------------------------------------------------------------------------------------------------- 3: data refused


class InputError(FmtcError, ValueError):
    """A file or a value that cannot be used."""

    exit_code = 3


class DataError(InputError):
    """Data that cannot be clustered as they are; the message says what was found and what would work."""


class NotFiniteError(DataError):
    """Rows with NaN, infinity, or values too large for their number format."""


class ChangedError(DataError):
    """Rows or identifiers that differ from those of before: labels would be assigned to the wrong rows."""


class FileError(InputError):
    """A model, checkpoint or report file that is damaged, truncated, of another kind or from a newer version."""


class DatasetError(InputError):
    """A data set that is not available or cannot be read; the message says where fmtc looked and what to do."""


class KitError(InputError):
    """A federation's plan or kit that cannot be used; the message says what is wrong."""


class DifferError(InputError):
    """The columns of the clients do not match; the events of the run say how."""


class LimitError(InputError):
    """A run that exceeds the limits a client has set."""


class WithheldError(LimitError):
    """An answer that the person at the client did not want to send."""


class RefusedError(InputError):
    """A message that does not fit its declaration, or does not belong here; it was discarded."""


# ------------------------------------------------------------------------------------------------- 4: trust refused


class TrustError(FmtcError, RuntimeError):
    """Something that this client or its person must not trust, or a promise that cannot be kept; nothing was sent."""

    exit_code = 4


# -------------------------------------------------------------------------------------------- 5: a client is missing


class MissingClientError(FmtcError, RuntimeError):
    """A client is missing."""

    exit_code = 5


class ClientError(MissingClientError):
    """Too few clients are left to continue."""


class SiteError(MissingClientError):
    """A client is not connected or does not answer."""


class OwnError(SiteError):
    """A client whose own code failed: asking it again will not help."""


# ------------------------------------------------------------------------------------------------------- warnings


class RowsWarning(UserWarning):
    """Something about rows or clusters that a person should look at; the command line says it by itself."""


# ---------------------------------------------------------------------------------------------- words for messages


def nearest_names(name: str, names: Iterable[str]) -> str:
    """A clause for a message about an unknown name: the names most like it, or the first of those that exist.

    Examples
    --------
    >>> from fmtc.errors import nearest_names
    >>> nearest_names("hight", ["height", "weight", "age"])
    "did you mean 'height' or 'weight'?"
    >>> nearest_names("dose", ["height", "weight"])
    "there is 'height', 'weight'."
    """
    from difflib import get_close_matches

    names = list(names)
    folded = {other.casefold(): other for other in names}
    near = [folded[match] for match in get_close_matches(name.casefold(), folded, n=3, cutoff=0.6)]
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"there is {listed(names)}."


def plural(count: int, noun: str) -> str:
    """A count and its noun, such as: 1 silo, 2,000 rows."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def joined(items: Sequence[str], separator: str = ", ", noun: str = "") -> str:
    """The first few items, and how many more there are."""
    more = [f"and {len(items) - SHOWN} more{noun}"] if len(items) > SHOWN else []
    return separator.join([*items[:SHOWN], *more])


def listed(names: Iterable[str]) -> str:
    """The first few names in quotation marks, and how many more there are."""
    return joined([repr(name) for name in names])
