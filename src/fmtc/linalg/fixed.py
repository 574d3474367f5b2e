"""Numbers in fixed point, modulo a power of two: sums of them are exact, and do not depend on the order.

A number takes `limbs` words of 64 bits, the lowest first, in two's complement: x is round(x 2^fraction) modulo
2^(64 limbs). Masks that cancel in a sum (`fmtc.privacy.keys`) need this arithmetic, because rounding of ordinary
numbers would not cancel.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

WORD = 64
_ONE = np.uint64(1)


def encode(x: Array, fraction: int, limbs: int) -> Array:
    """Numbers as words, rounded to multiples of 2^-fraction; (n,) -> (n, limbs) of uint64.

    Raises
    ------
    OverflowError
        If a number is not finite, or does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.linalg.fixed import decode, encode
    >>> words = encode(np.array([0.5, -1.0]), fraction=4, limbs=1)
    >>> words[:, 0].tolist()
    [8, 18446744073709551600]
    >>> decode(words, fraction=4).tolist()
    [0.5, -1.0]
    """
    x = np.asarray(x, dtype=np.float64)
    y = np.rint(np.ldexp(np.abs(x), fraction))  # exact but for the rounding that is asked for
    if not (y < 2.0 ** (WORD * limbs - 1)).all():
        raise OverflowError("a number is too large for its place")
    mantissa, exponent = np.frexp(y)
    digits = np.ldexp(mantissa, 53).astype(np.uint64)
    shift = exponent.astype(np.int64) - 53
    digits = np.where(shift < 0, digits >> np.minimum(np.maximum(-shift, 0), 63).astype(np.uint64), digits)
    shift = np.maximum(shift, 0)
    place, within = shift // WORD, (shift % WORD).astype(np.uint64)
    low = digits << within
    high = np.where(within > 0, digits >> (np.uint64(WORD) - np.maximum(within, _ONE)), np.uint64(0))
    words = np.zeros((len(x), limbs), np.uint64)
    for limb in range(limbs):
        words[:, limb] = np.where(place == limb, low, 0) | np.where(place + 1 == limb, high, 0)
    return np.where((x < 0)[:, None], negated(words), words)


def from_integers(q: Array, limbs: int) -> Array:
    """Integers as words: multiples of 2^-fraction; (n,) of int64 -> (n, limbs)."""
    words = np.empty((len(q), limbs), np.uint64)
    words[:, 0] = q.astype(np.int64).view(np.uint64)
    words[:, 1:] = np.where(q < 0, np.uint64(2**64 - 1), np.uint64(0))[:, None]
    return words


def decode(words: Array, fraction: int) -> Array:
    """The numbers that words stand for, to double precision; (n, limbs) -> (n,)."""
    negative = words[:, -1] >> np.uint64(WORD - 1) == 1
    size = np.where(negative[:, None], negated(words), words)
    x = np.zeros(len(words))
    for limb in range(words.shape[1]):  # the lowest first: the sum keeps all digits that it can
        x += np.ldexp(size[:, limb].astype(np.float64), WORD * limb - fraction)
    return np.where(negative, -x, x)


def negated(words: Array) -> Array:
    """The negative of each number; (n, limbs) -> (n, limbs)."""
    one = np.zeros_like(words)
    one[:, 0] = 1
    return added(~words, one)


def added(a: Array, b: Array) -> Array:
    """Sums of numbers, with carries from word to word, modulo 2^(64 limbs); (n, limbs) each."""
    total = a + b
    carry = total[:, 0] < a[:, 0]
    for limb in range(1, a.shape[1]):
        over = total[:, limb] < a[:, limb]
        total[:, limb] += carry
        carry = over | (carry & (total[:, limb] == 0))
    return total
