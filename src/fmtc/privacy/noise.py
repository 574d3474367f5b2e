"""Noise for private sums: the discrete Gaussian, exactly, from the operating system's randomness.

Floating-point noise can be told from its last bits (Mironov 2012). The sampler below works on whole numbers only: every
comparison that decides is between two integers, one of them uniform. It is Karney's algorithm (2016, "Sampling exactly
from the normal distribution", section 6), which has the law of the sampler of Canonne, Kamath and Steinke (2020) and
needs no number beyond 64 bits, so that many draws are made at a time.

Randomness comes from `os.urandom`: a seed that the server could guess would let it take the noise off again.
"""

from __future__ import annotations

import os
from math import ceil, frexp

import numpy as np

Array = np.ndarray

PRECISION = 32  # bits of a standard deviation; the rest is rounded up
LARGEST = 2.0**48  # of a standard deviation, so that all products fit into 64 bits


def draw(sd: float, size: int) -> Array:
    """Independent discrete Gaussian numbers: P(v) proportional to exp(-v²/(2 sd²)) on the whole numbers.

    Parameters
    ----------
    sd : float
        Standard deviation in units of the grid. More than 32 bits of it are rounded up. 0 gives zeros.
    size : int

    Returns
    -------
    array of shape (size,) of int64

    Examples
    --------
    >>> from fmtc.privacy.noise import draw
    >>> v = draw(1000.0, 5000)
    >>> v.dtype, 900 < v.std() < 1100
    (dtype('int64'), np.True_)
    """
    if not 0 <= sd < LARGEST:
        raise ValueError(f"sd must be a number of at least 0 and below 2^48, got {sd}")
    if sd == 0 or size == 0:
        return np.zeros(size, np.int64)
    found, wanted = [], size
    while wanted > 0:
        found.append(_proposals(*rational(sd), int(2.6 * wanted) + 64))  # about 45 % are accepted
        wanted -= len(found[-1])
    return np.concatenate(found)[:size]


def rational(sd: float) -> tuple[int, int]:
    """The least fraction a/b of at least sd whose numerator has 32 bits; b is a power of 2."""
    shift = max(PRECISION - frexp(sd)[1], 0)
    return ceil(sd * 2.0**shift), 1 << shift  # the product is exact: a power of 2 only moves the point


def _words(n: int) -> Array:
    """Random words of 64 bits."""
    return np.frombuffer(os.urandom(8 * n), np.uint64)


def _below(limit: int, n: int) -> Array:
    """Uniform whole numbers in 0 .. limit - 1: as many bits as the limit has, those not below it drawn again."""
    mask = np.uint64((1 << (limit - 1).bit_length()) - 1)
    found = _words(n) & mask
    wrong = np.flatnonzero(found >= limit)
    while len(wrong):
        found[wrong] = _words(len(wrong)) & mask
        wrong = wrong[found[wrong] >= limit]
    return found.astype(np.int64)


def _coins(n: int) -> Array:
    """Fair coins."""
    return np.unpackbits(np.frombuffer(os.urandom((n + 7) // 8), np.uint8), count=n).astype(bool)


def _half(n: int) -> Array:
    """Bernoulli(exp(-1/2)): the first K for which Bernoulli(1/(2K)) fails is odd."""
    odd, active, K = np.ones(n, bool), np.arange(n), 1
    while len(active):
        active = active[_below(2 * K, len(active)) == 0]
        odd[active] = ~odd[active]
        K += 1
    return odd


def _proposals(a: int, b: int, n: int) -> Array:
    """Those of n proposals that are accepted, for the standard deviation a/b.

    A number is k sd + j with k of weight exp(-k²/2), a sign, and j uniform up to sd; x = (the rest above k sd)/sd is
    then accepted with probability exp(-x (2k + x)/2).
    """
    k = np.zeros(n, np.int64)  # k successes with probability exp(-k/2) ...
    active = np.arange(n)
    while len(active):
        active = active[_half(len(active))]
        k[active] += 1
    alive, trials = np.arange(n), k * (k - 1)  # ... accepted with probability exp(-k (k - 1)/2)
    turn = 0
    while len(busy := np.flatnonzero(trials[alive] > turn)):
        fails = busy[~_half(len(busy))]
        alive = np.delete(alive, fails)
        turn += 1
    k = k[alive]
    minus = _coins(len(k))
    whole = -((-k * a) // b)  # ceil(k sd)
    j = _below(-(-a // b), len(k))
    X = whole * b - k * a + j * b  # x = X/a
    keep = (a > X) & ~((k == 0) & (X == 0) & minus)  # 0 has one sign
    k, minus, value, X = k[keep], minus[keep], (whole + j)[keep], X[keep]
    good = _accepted(k, X, a)
    return np.where(minus, -value, value)[good]


def _accepted(k: Array, X: Array, a: int) -> Array:
    """Bernoulli(exp(-x (2k + x)/2)) for x = X/a: k + 1 times Bernoulli(exp(-x (2k + x)/(2k + 2)))."""
    good, turn = np.ones(len(k), bool), 0
    while len(busy := np.flatnonzero(good & (k >= turn))):
        good[busy] = _chain(k[busy], X[busy], a)
        turn += 1
    return good


def _chain(k: Array, X: Array, a: int) -> Array:
    """Bernoulli(exp(-g)), g = x (2k + x)/(2k + 2) <= 1: the first K for which Bernoulli(g/K) fails is odd.

    g/K is the product of three chances: x, (2k + x)/(2k + 2), and 1/K.
    """
    odd, active, K = np.ones(len(k), bool), np.arange(len(k)), 1
    while len(active):
        active = active[_below(K, len(active)) == 0]
        active = active[_below(a, len(active)) < X[active]]
        side = _below_each(2 * k[active] + 2) - 2 * k[active]  # below 0: yes; 0: with chance x; 1: no
        edge = np.flatnonzero(side == 0)
        yes = side < 0
        yes[edge] = _below(a, len(edge)) < X[active[edge]]
        active = active[yes]
        odd[active] = ~odd[active]
        K += 1
    return odd


def _below_each(limits: Array) -> Array:
    """A uniform whole number below each limit; limits are few different ones."""
    found = np.empty(len(limits), np.int64)
    for limit in np.unique(limits):
        place = np.flatnonzero(limits == limit)
        found[place] = _below(int(limit), len(place))
    return found
