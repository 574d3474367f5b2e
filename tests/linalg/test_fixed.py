"""Fixed point modulo 2^64: against Python's own integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fmtc.linalg.fixed import added, decode, encode, from_integers, negated

FORMATS = [(1, 24), (1, 40), (2, 64), (3, 70), (4, 128)]


def integers(words):
    return [sum(int(word) << (64 * place) for place, word in enumerate(row)) for row in words]


def numbers(limbs, fraction):
    most = 2.0 ** (64 * limbs - 2 - fraction)
    return st.lists(st.floats(-most, most, allow_nan=False), min_size=1, max_size=8)


@pytest.mark.parametrize(("limbs", "fraction"), FORMATS)
@given(data=st.data())
def test_words_are_the_rounded_numbers(limbs, fraction, data):
    x = np.array(data.draw(numbers(limbs, fraction)))
    words = encode(x, fraction, limbs)
    assert integers(words) == [int(np.rint(np.ldexp(value, fraction))) % 2 ** (64 * limbs) for value in x]
    assert (np.abs(decode(words, fraction) - x) <= 2.0**-fraction + 4e-16 * np.abs(x)).all()


@pytest.mark.parametrize(("limbs", "fraction"), FORMATS)
def test_sums_carry_and_wrap(limbs, fraction):
    rng = np.random.default_rng(limbs)
    a, b = rng.integers(0, 2**64, size=(2, 500, limbs), dtype=np.uint64)
    a[:50], b[:20, 1:] = 2**64 - 1, 0  # carries through all words
    b[:50, 0] = 1
    modulus = 2 ** (64 * limbs)
    expected = [(x + y) % modulus for x, y in zip(integers(a), integers(b), strict=True)]
    assert integers(added(a, b)) == expected
    assert integers(negated(a)) == [-x % modulus for x in integers(a)]


def test_integers_keep_their_sign():
    q = np.array([0, 1, -1, 2**40, -(2**62)])
    assert_array_equal(decode(from_integers(q, 2), 0), q.astype(float))


@pytest.mark.parametrize("value", [np.inf, np.nan, 2.0**40])
def test_a_number_that_does_not_fit_is_refused(value):
    with pytest.raises(OverflowError):
        encode(np.array([value]), 24, 1)
