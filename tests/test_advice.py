"""What evidence comes to: the number, the range, the verdict, and what is said about them."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fmtc.advice import advice_of, fewest_agreed, mean_and_error
from fmtc.errors import InputError

KS = np.arange(2, 9)


def evidence(gap=4, agreed=(), *, n=200, columns=100, m=3):
    """Spectra with one step after `gap` eigenvalues, and the agreement of silos for some numbers; .1 at the others."""
    lam = np.broadcast_to(np.where(np.arange(KS[-1] + 1) < gap, 0.1, 0.5), (m, KS[-1] + 1))
    found = {"ks": KS, "sizes": np.full(m, n), "n_features": np.array([columns]), "eigenvalues": lam}
    if agreed:
        mean = np.full(len(KS), 0.1)
        for k, value in dict(agreed).items():
            mean[list(KS).index(k)] = value
        found |= {"seen": np.arange(m), "agreement": np.broadcast_to(mean, (m, 2, len(KS)))}
    return found


def advise(*args, kind="both", **others):
    found = evidence(*args, **others)
    return advice_of(found, ["a", "b", "c"][: len(found["sizes"])], kind)


def test_signals_that_say_the_same_are_clear():
    advice = advise(4, {4: 0.9, 5: 0.5})
    assert (advice.chosen, advice.low, advice.high, advice.verdict) == (4, 4, 4, "clear")
    assert advice.signals == {"gap": 4, "agreement": 4, "many": 4}


def test_the_advice_is_the_median_and_the_range_what_the_signals_span():
    advice = advise(2, {4: 0.80, 8: 0.79})
    assert advice.signals == {"gap": 2, "agreement": 4, "many": 8}
    assert (advice.chosen, advice.low, advice.high, advice.verdict) == (4, 2, 8, "range")


@pytest.mark.parametrize(
    ("about", "verdict"),
    [({}, "clear"), ({"columns": 50}, "range"), ({"n": 19}, "too few rows"), ({"n": 20}, "clear")],
    ids=["many columns", "a table", "4.75 rows each", "5 rows each"],
)
def test_few_rows_and_tables_are_never_clear(about, verdict):
    advice = advise(4, {4: 0.9}, **about)
    assert advice.verdict == verdict
    assert ("table" in advice.text) == ("columns" in about)
    assert ("19 rows" in advice.text) == (verdict == "too few rows")


def test_silos_that_hardly_agree_are_never_clear():
    found = evidence(4, {4: 0.9})
    found["agreement"] = found["agreement"] / 10
    advice = advice_of(found, ["a", "b", "c"])
    assert advice.low == advice.high
    assert advice.verdict == "range"
    assert "hardly agree" in advice.text


def test_one_signal_alone_is_never_clear():
    spectrum = advise(4, kind="spectrum")
    assert (spectrum.chosen, spectrum.verdict, spectrum.evidence) == (4, "range", "spectrum")
    assert not len(spectrum.agreement)
    alone = advise(4, m=1)
    assert (alone.chosen, alone.verdict, alone.evidence) == (4, "range", "spectrum")
    assert "one silo" in alone.text
    agreed = advise(2, {5: 0.9}, kind="agreement")
    assert (agreed.chosen, agreed.verdict, agreed.signals) == (5, "range", {"agreement": 5})


def test_the_range_of_the_spectrum_alone_has_all_large_steps():
    found = evidence(4)
    found["eigenvalues"] = np.cumsum([[0, 0, 0.08, 0, 0.1, 0.03, 0.07, 0, 0]] * 3, axis=1)
    advice = advice_of(found, ["a", "b", "c"], "spectrum")
    assert (advice.chosen, advice.low, advice.high) == (4, 2, 6)


def test_one_silo_has_no_other_to_agree_with():
    with pytest.raises(InputError, match="no other"):
        advise(4, m=1, kind="agreement")


def test_of_numbers_that_agree_equally_well_the_fewest_clusters_count():
    mean, error = np.array([0.9, 0.68, 0.6, 0.7, 0.65]), np.full(5, 0.03)
    ks = np.arange(2, 7)
    assert fewest_agreed(ks, mean, error) == 3  # 2 is left out; 0.68 is within an error of 0.7
    assert fewest_agreed(ks, mean, error / 10) == 5
    assert fewest_agreed(np.array([2]), mean[:1], error[:1]) == 2


def test_the_error_is_that_of_the_mean_over_silos():
    mean, error = mean_and_error(np.array([[0.2], [0.4], [0.6]]))
    assert_allclose([mean, error], [[0.4], [0.2 / np.sqrt(3)]])
    assert_allclose(mean_and_error(np.array([[0.2]]))[1], 0)


@pytest.mark.parametrize("kind", ["both", "spectrum", "agreement"])
def test_the_text_says_that_another_structure_may_be_wanted(kind):
    advice = advise(4, {4: 0.9}, kind=kind)
    assert str(advice) == advice.text
    assert "may not be the one that you want" in advice.text
    assert f"{advice.chosen} clusters" in advice.text


def test_the_largest_number_that_was_compared_is_named():
    assert "there may be more" in advise(8, {8: 0.9}).text
    assert "there may be more" not in advise(4, {4: 0.9}).text


def test_all_of_it_goes_to_json():
    document = json.loads(json.dumps(advise(4, {4: 0.9}).to_dict()))
    assert (document["chosen"], document["verdict"]) == (4, "clear")
    assert document["ks"] == KS.tolist()
    assert len(document["agreement"]["silos"]["a"]) == 2
    assert len(document["eigengap"]["silos"]) == 3
