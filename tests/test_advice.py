"""What evidence comes to: the number, the range, the verdict, and what is said about them."""

import json

import numpy as np
import pytest

from fmtc.advice import advice_of

KS = np.arange(2, 9)


def evidence(gap=4, *, n=200, m=3):
    """Spectra with one step after `gap` eigenvalues."""
    lam = np.broadcast_to(np.where(np.arange(KS[-1] + 1) < gap, 0.1, 0.5), (m, KS[-1] + 1))
    return {"ks": KS, "sizes": np.full(m, n), "parts": np.ones(m, int), "eigenvalues": lam}


def advise(*args, **others):
    found = evidence(*args, **others)
    return advice_of(found, ["a", "b", "c"][: len(found["sizes"])])


@pytest.mark.parametrize(
    ("about", "verdict"),
    [({}, "range"), ({"n": 19}, "too few rows"), ({"n": 20}, "range")],
    ids=["many rows", "4.75 rows each", "5 rows each"],
)
def test_few_rows_are_named(about, verdict):
    advice = advise(4, **about)
    assert (advice.chosen, advice.low, advice.high, advice.verdict) == (4, 4, 4, verdict)
    assert advice.signals == {"gap": 4}
    assert "four of ten trials" in str(advice)
    assert ("19 rows" in str(advice)) == (verdict == "too few rows")


def test_one_silo_is_named():
    alone = advise(4, m=1)
    assert (alone.chosen, alone.verdict) == (4, "range")
    assert "one silo" in str(alone)


def test_the_range_has_all_large_steps():
    found = evidence(4)
    found["eigenvalues"] = np.cumsum([[0, 0, 0.08, 0, 0.1, 0.03, 0.07, 0, 0]] * 3, axis=1)
    advice = advice_of(found, ["a", "b", "c"])
    assert (advice.chosen, advice.low, advice.high) == (4, 2, 6)
    np.testing.assert_allclose(advice.eigengap_of["b"], [0.08, 0, 0.1, 0.03, 0.07, 0, 0], atol=1e-12)


@pytest.mark.parametrize(("after", "chosen"), [(0.19, (3, 3, 4)), (0.21, (7, 7, 7))])
def test_large_parts_come_before_an_eigengap_at_which_eigenvalues_do_not_double(after, chosen):
    found = evidence(7) | {"parts": np.array([3, 4, 1])}
    found["eigenvalues"] = np.where(found["eigenvalues"] > 0.1, after, 0.1)
    advice = advice_of(found, ["a", "b", "c"])
    assert (advice.chosen, advice.low, advice.high) == chosen
    assert advice.signals == {"parts": 3, "gap": 7}


def test_the_text_says_that_another_structure_may_be_wanted():
    advice = advise(4)
    assert "may not be the one that you want" in str(advice)
    assert f"{advice.chosen} clusters" in str(advice)


def test_the_largest_number_that_was_compared_is_named():
    assert "there may be more" in str(advise(8))
    assert "there may be more" not in str(advise(4))


def test_all_of_it_goes_to_json():
    document = json.loads(json.dumps(advise(4).to_dict()))
    assert (document["chosen"], document["verdict"]) == (4, "range")
    assert document["ks"] == KS.tolist()
    assert len(document["eigengap"]["silos"]) == 3
