"""Large stacks of matrices, a block of rows at a time: how they are cut, and memory that is used again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import prod
from typing import Any

from .arrays import Array, is_tensor, namespace, row_blocks

BLOCK = 2**17  # entries of a stack that are worked on at a time


def blocks(T: Array, least: int = 1) -> list[slice]:
    """Slices of the first axis with at most `BLOCK` entries each, or with `least` rows if that is more."""
    rows = max(BLOCK // max(prod(T.shape[1:]), 1), least)
    return list(row_blocks(T.shape[0], rows))


class Workspace:
    """Memory for the stacks of a loop that keeps only its newest state.

    A step asks the workspace for a new stack in place of an old one. The workspace reuses the memory of the old stack
    if it owns it, that is, if it handed it out before. Any other array is left as it is, and the new stack gets new
    memory. A caller that passes its workspace to a step gives up the states before: their stacks may be overwritten.

    The workspace keeps no memory alive. A stack is freed when the last state that holds it is gone.

    Examples
    --------
    >>> import numpy as np
    >>> workspace, start = Workspace(), np.ones((3, 2))
    >>> first = workspace.compute(lambda rows: start[rows] + 1, over=start)
    >>> second = workspace.compute(lambda rows: first[rows] + 1, over=first)
    >>> start is first, first is second, float(start[0, 0]), float(second[0, 0])
    (False, True, 1.0, 3.0)
    """

    def __init__(self) -> None:
        self._own: list[weakref.ref[Array]] = []

    def owns(self, A: Array) -> bool:
        """Whether this workspace may write over A."""
        return any(known() is A for known in self._own)

    def compute(self, rows: Callable[[slice], Array], *, over: Array, dtype: Any = None) -> Array:
        """A new stack, block by block, in the memory of an old one if the workspace owns it.

        Parameters
        ----------
        rows : callable, slice -> array
            Computes some rows of the new stack. It may read the same rows of the old one, and no others.
        over : array
            The old stack; gives the shape.
        dtype : number format, optional
            Of the new stack; that of the old one if omitted. Another format needs new memory.

        Returns
        -------
        array
            Of the shape of `over`, contiguous. Owned by the workspace.
        """
        dtype = over.dtype if dtype is None else dtype
        if over.dtype == dtype and self.owns(over):
            result = over
        else:
            device = {"device": over.device} if is_tensor(over) else {}
            result = namespace(over).empty(tuple(over.shape), dtype=dtype, **device)
            self._own = [known for known in self._own if known() is not None]
            self._own.append(weakref.ref(result))
        for block in blocks(result):
            result[block] = rows(block)
        return result
