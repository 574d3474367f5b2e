"""What covers an answer on its way out: every phase that releases something declares one; `rules` has the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import TrustError

if TYPE_CHECKING:
    from .rules import Policy

Array = np.ndarray
FIRST, ALWAYS = "first", "always"


@dataclass(frozen=True)
class Protection:
    """What covers the answers of a phase on their way out: `Phase.protect`. No phase may release anything without one.

    This one leaves answers as they are; subclasses say otherwise.

    Parameters
    ----------
    why : str
        One sentence: what covers the answer, or why nothing has to.
    few_rows : bool
        Whether the first answer of a run is looked at for few rows.
    dominance : {"", "first", "always"}
        When one record that dominates is looked for.

    Examples
    --------
    >>> from fmtc.protocol.graph.opening import HELLO
    >>> HELLO.protect.why
    'Counts and one sum over all rows.'
    """

    why: str
    few_rows: bool = False
    dominance: str = ""

    def covered(self, answer: Any, client: Any, policy: Policy) -> Any:
        """The answer in the form in which it may leave; the same object where nothing has to change."""
        return answer

    def counts(self, answer: Any, client: Any) -> Array | None:
        """Rows of the clusters whose means the answer tells; None: it tells none."""
        return None


class OnlySum(Protection):
    """For answers that no rule covers, because only their sum over all clients may be seen."""

    def covered(self, answer: Any, client: Any, policy: Policy) -> Any:
        """Nothing: without a mask it may not leave."""
        raise TrustError("an answer of which only the sum may be seen cannot leave without a mask")
