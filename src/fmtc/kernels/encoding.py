"""Columns of numbers and categories as columns of numbers: an indicator for each level of a category."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray


def expanded_width(levels: tuple[int, ...], d: int) -> int:
    """Number of columns after `expanded`."""
    return sum(size or 1 for size in levels) if any(levels) else d


def indicators(levels: tuple[int, ...], d: int) -> Array:
    """Which of the expanded columns are indicators; shape (d',)."""
    if not any(levels):
        return np.zeros(d, bool)
    numbers = sum(size == 0 for size in levels)
    return np.arange(expanded_width(levels, d)) >= numbers


def expanded(X: Any, levels: tuple[int, ...]) -> Any:
    """Numbers as they are, then 0 or 1 for each level of each category; a missing category is 0 everywhere.

    Parameters
    ----------
    X : array of shape (n, d)
        Categories as codes 0, 1, ...; NaN where a cell is missing.
    levels : tuple of int
        Levels of each column, 0 for numbers; () if all columns are numbers.

    Returns
    -------
    array of shape (n, d')
        X itself if there are no categories.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.encoding import expanded
    >>> expanded(np.array([[1.0, 7.5], [0.0, np.nan]]), levels=(2, 0))
    array([[7.5, 0. , 1. ],
           [nan, 1. , 0. ]])
    """
    if not any(levels):
        return X
    parts = [X[:, [j for j, size in enumerate(levels) if size == 0]]]
    for j, size in enumerate(levels):
        if size:
            parts.append((X[:, j, None] == np.arange(size)).astype(X.dtype))  # NaN equals nothing
    return np.hstack(parts)


def codes(X: Array, levels: tuple[int, ...]) -> Array:
    """Levels of the categories of each row, -1 where they are missing; (n, d) -> (n, categories)."""
    columns = [j for j, size in enumerate(levels) if size]
    found = X[:, columns]
    sizes = np.array([levels[j] for j in columns])
    known = np.isfinite(found) & (found >= 0) & (found < sizes)
    return np.where(known, np.nan_to_num(found, nan=-1.0, posinf=-1.0, neginf=-1.0), -1).astype(np.int64)
