"""How one state of a client or a server becomes the next.

A state is a frozen dataclass, and a field of it exists because the phase that makes it has run. What the next phase
finds out makes it another state, which has of the one before what later phases need.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from .errors import RefusedError

State = TypeVar("State")


def become(state: Any, kind: type[State], **new: Any) -> State:
    """The next state: of another kind, with what the one before has of its fields, and what is new.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.client import ClientState, Ready
    >>> from fmtc.kernels.projection import Rows
    >>> from fmtc.state import become
    >>> client = ClientState("north", np.eye(3), 2)
    >>> become(client, Ready, rows=Rows(client.X)).client_id
    'north'
    """
    kept = {f.name: getattr(state, f.name) for f in fields(kind) if f.name not in new and hasattr(state, f.name)}  # type: ignore[arg-type]
    return kind(**kept | new)


def reached(state: Any, kind: type[State]) -> State:
    """The state, or `RefusedError` where it is not of this kind: the message came before the one that makes it so."""
    if not isinstance(state, kind):
        missing = [f.name for f in fields(kind) if not hasattr(state, f.name)]  # type: ignore[arg-type]
        raise RefusedError(f"a message came too early: {', '.join(missing)} is not there yet")
    return state
