"""The search for a number of clusters, phase by phase: what leaves, what may not, and what the server makes of it."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.errors import DataError, RefusedError
from fmtc.kernels.sweep import Sweep, adjusted_rand, directions
from fmtc.privacy.rules import Policy, Rules
from fmtc.protocol.advice import (
    CROSS,
    METHOD,
    MODELS_OF_ALL,
    ROWS,
    SPECTRUM,
    SPECTRUM_METHOD,
    AdviceSettings,
    advice_method,
    advice_settings,
    compared,
    range_of,
)
from fmtc.protocol.base import entries
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings


def asked(data, method=METHOD, n_jobs=None, **settings):
    settings = AdviceSettings(**{"n_clusters": 6, "scale": "global", "seed": 3, **settings})
    transport = LocalTransport(data, settings, n_jobs, method=method)
    return run(transport, settings, method=method), transport


@pytest.fixture
def data(make_federation):
    return make_federation(m=4, n=60, d=20, k=3, distance=9.0)


def test_evidence_of_all_silos_is_collected(data):
    result, transport = asked(data)
    found = METHOD.common(result.server)
    assert_array_equal(found["ks"], [2, 3, 4, 5, 6])
    assert found["eigenvalues"].shape == (4, 7)
    assert found["agreement"].shape == (4, 3, 5)
    gap = np.diff(found["eigenvalues"], axis=1).mean(axis=0)
    assert gap.argmax() == 2  # after the third
    assert found["agreement"].mean(axis=(0, 1)).argmax() == 1  # three clusters
    assert (found["eigenvalues"] >= 0).all()
    assert {line["phase"] for line in transport.ledgers["a"].lines()} >= {"spectrum", "cross"}


def test_the_agreement_is_that_of_two_local_models(data):
    _, transport = asked({cid: data[cid] for cid in "ab"})
    one, other = (transport.clients[cid] for cid in "ab")
    E = directions(one.rows @ other.W.astype(np.float32), 3)
    place = slice(4, 13)  # of three clusters, after those of two
    theirs = (E @ other.sweep.centers[place].reshape(3, 3).T).argmax(axis=1)
    assert_allclose(one.evidence.agreement[0, 1], adjusted_rand(one.sweep.labels[1], theirs))


def test_neither_threads_nor_the_order_of_silos_matter(data):
    found = METHOD.common(asked(data)[0].server)
    again = METHOD.common(asked(dict(reversed(data.items())), n_jobs=2)[0].server)
    for name, value in found.items():
        assert_array_equal(again[name], value)


def test_with_the_spectrum_alone_no_model_leaves(data):
    result, transport = asked(data, SPECTRUM_METHOD)
    assert list(entries(SPECTRUM.Answer)) == ["eigenvalues", "parts"]
    fields = {(line["phase"], field["field"]) for line in transport.ledgers["a"].lines() for field in line["fields"]}
    assert {name for phase, name in fields if phase == "spectrum"} == {"eigenvalues", "parts"}
    assert "cross" not in {phase for phase, _ in fields}
    assert_array_equal(METHOD.common(asked(data)[0].server)["eigenvalues"], METHOD.common(result.server)["eigenvalues"])
    with pytest.raises(RefusedError):
        SPECTRUM_METHOD.phase("cross")


def test_a_silo_sees_three_others_without_their_names(data, make_federation):
    result, _ = asked(make_federation(m=6, n=40, d=20))
    asks = CROSS.asks(result.server, AdviceSettings(6))
    assert {ask.W.shape[0] for ask in asks.values()} == {3}
    assert set(entries(CROSS.Ask)) == {"W", "centers"}
    for cid, ask in asks.items():  # and never itself
        assert not any(np.array_equal(W, result.server.models[cid][0]) for W in ask.W)
    assert advice_method("both", 1) is SPECTRUM_METHOD
    assert advice_method("both", 2) is METHOD


def test_a_large_silo_is_looked_at_in_part_but_summed_up_as_a_whole(rng):
    """Sums over some rows, beside those over all of the run that follows, would tell of the others."""
    data = {cid: rng.normal(size=(ROWS + 1, 3)) for cid in "ab"}
    result, transport = asked(data, SPECTRUM_METHOD, n_clusters=3)
    assert result.server.n_samples == 2 * (ROWS + 1)
    assert set(result.server.sizes.values()) == {ROWS}
    assert transport.clients["a"].X.shape == (ROWS + 1, 3)


def test_no_centre_of_one_row_leaves(rng):
    P = np.vstack([rng.normal([5, 0], 0.1, (9, 2)), [[0.0, 5.0]]])
    client = replace(METHOD.open_client("a", P, AdviceSettings(3), "cpu"), sweep=None)
    labels, centers = np.r_[np.zeros(9, int), 1], np.array([[1.0, 0.0], [0.0, 1.0]])
    client = replace(client, sweep=Sweep(P, (2,), labels[None], centers.ravel()))
    answer = MODELS_OF_ALL.Answer(
        eigenvalues=np.array([0, 0.1, 0.5]),
        parts=1,
        W=np.zeros((2, 3), np.float32),
        centers=centers.ravel().astype(np.float32),
    )
    sent = Rules().protect(MODELS_OF_ALL, answer, client).centers.reshape(2, 2)
    assert_allclose(sent[0], [1, 0])
    assert abs(sent[1] @ [0, 1]) < 0.9
    assert_allclose(np.linalg.norm(sent, axis=1), 1, atol=1e-6)
    rules = [finding.rule for finding in Rules(Policy()).check(MODELS_OF_ALL, answer, client)]
    assert "small cluster" in rules


def test_answers_that_no_silo_can_have_found_are_dropped(data):
    result, _ = asked(data)
    server, settings = result.server, AdviceSettings(6)
    lam = server.eigenvalues["a"]
    W, centers = server.models["a"]
    good = MODELS_OF_ALL.Answer(eigenvalues=lam, parts=1, W=W, centers=centers)
    bad = {
        "a": good, "b": replace(good, eigenvalues=lam[::-1].copy()), "c": replace(good, eigenvalues=lam + 2),
        "d": replace(good, centers=centers[:-1]),
    }  # fmt: skip
    assert set(MODELS_OF_ALL.impossible(server, bad, settings)) == {"b", "c", "d"}
    with pytest.raises(RefusedError, match="'d'"):
        MODELS_OF_ALL.reduce(server, bad, settings)
    said = {"a": CROSS.Answer(agreement=server.agreement["a"]), "b": CROSS.Answer(agreement=np.full((3, 5), 1.5))}
    said["c"] = CROSS.Answer(agreement=np.zeros((3, 4)))
    assert set(CROSS.impossible(server, said, settings)) == {"b", "c"}
    with pytest.raises(RefusedError, match="'c'"):
        CROSS.reduce(server, said, settings)


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
    assert advice_settings(Settings(2), (3, 8)) == AdviceSettings(
        8, lowest=3, fixed=True, view="graph", solver=replace(Settings(2).solver, lift=False)
    )


def test_settings_come_back_from_json():
    from dataclasses import asdict

    settings = AdviceSettings(9, lowest=3, fixed=True)
    assert METHOD.read_settings(asdict(settings)) == settings
