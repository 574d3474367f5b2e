"""The search for a number of clusters, phase by phase: what leaves, what may not, and what the server makes of it."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc.errors import DataError
from fmtc.protocol.advice import (
    METHOD,
    ROWS,
    SPECTRUM,
    AdviceSettings,
    advice_settings,
    compared,
    range_of,
)
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings


def asked(data, n_jobs=None, **settings):
    settings = AdviceSettings(**{"n_clusters": 6, "scale": "global", "seed": 3, **settings})
    transport = LocalTransport(data, settings, n_jobs, method=METHOD)
    return run(transport, settings, method=METHOD), transport


@pytest.fixture
def data(make_federation):
    return make_federation(m=4, n=60, d=20, k=3, distance=9.0)


def test_evidence_of_all_silos_is_collected(data):
    result, transport = asked(data)
    found = METHOD.common(result.server)
    assert_array_equal(found["ks"], [2, 3, 4, 5, 6])
    assert found["eigenvalues"].shape == (4, 7)
    gap = np.diff(found["eigenvalues"], axis=1).mean(axis=0)
    assert gap.argmax() == 2  # after the third
    assert (found["eigenvalues"] >= 0).all()
    fields = {(line["phase"], field["field"]) for line in transport.ledgers["a"].lines() for field in line["fields"]}
    assert {name for phase, name in fields if phase == "spectrum"} == {"eigenvalues", "parts"}  # no model leaves


def test_neither_threads_nor_the_order_of_silos_matter(data):
    found = METHOD.common(asked(data)[0].server)
    again = METHOD.common(asked(dict(reversed(data.items())), n_jobs=2)[0].server)
    for name, value in found.items():
        assert_array_equal(again[name], value)


def test_a_large_silo_is_looked_at_in_part_but_summed_up_as_a_whole(rng):
    """Sums over some rows, beside those over all of the run that follows, would tell of the others."""
    data = {cid: rng.normal(size=(ROWS + 1, 3)) for cid in "ab"}
    result, transport = asked(data, n_clusters=3)
    assert result.server.n_samples == 2 * (ROWS + 1)
    assert set(result.server.sizes.values()) == {ROWS}
    assert transport.clients["a"].X.shape == (ROWS + 1, 3)


def test_answers_that_no_silo_can_have_found_are_dropped(data):
    result, _ = asked(data)
    server, settings = result.server, AdviceSettings(6)
    lam = server.eigenvalues["a"]
    good = SPECTRUM.Answer(eigenvalues=lam, parts=1)
    bad = {
        "a": good, "b": replace(good, eigenvalues=lam[::-1].copy()), "c": replace(good, eigenvalues=lam + 2),
        "d": replace(good, eigenvalues=lam[:-1]),
    }  # fmt: skip
    assert {cid for cid in bad if SPECTRUM.impossible(server, cid, bad[cid], settings)} == {"b", "c", "d"}


def test_numbers_that_are_compared_need_four_rows_each():
    assert compared({"a": 100, "b": 30}, AdviceSettings()) == (2, 3, 4, 5, 6, 7)
    assert compared({"a": 1000}, AdviceSettings())[-1] == 30
    assert compared({"a": 40}, AdviceSettings(10, lowest=4, fixed=True)) == (4, 5, 6, 7, 8, 9, 10)
    with pytest.raises(DataError, match=r"'b' has 30 rows.*ends at 7"):
        compared({"a": 100, "b": 30}, AdviceSettings(10, fixed=True))
    with pytest.raises(DataError, match="too few to compare"):
        compared({"a": 11}, AdviceSettings())


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ("1..4", ValueError, "begins at 2"),
        ("9..3", ValueError, "smaller number first"),
        ("many", ValueError, "3..12"),
        ((2.5, 4), TypeError, "whole numbers"),
        ((2, 3, 4), TypeError, "a pair"),
        (7, TypeError, "a pair"),
    ],
)
def test_a_range_that_cannot_be_compared_is_refused_in_a_sentence(given, kind, words):
    with pytest.raises(kind, match=words):
        range_of(given)


def test_ranges_are_read():
    assert range_of("auto") is None
    assert range_of("3..12") == range_of((3, 12)) == range_of(np.array([3, 12])) == (3, 12)


def test_private_runs_show_nothing_of_single_silos():
    with pytest.raises(ValueError, match="give n_clusters as a number"):
        advice_settings(Settings(2, view="mixture", privacy="sums"), None)
    assert advice_settings(Settings(2), (3, 8)) == AdviceSettings(8, lowest=3, fixed=True, view="graph", lift=False)


def test_settings_come_back_from_json():
    from dataclasses import asdict

    settings = AdviceSettings(9, lowest=3, fixed=True)
    assert METHOD.settings_type(**asdict(settings)) == settings
