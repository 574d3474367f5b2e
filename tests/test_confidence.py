"""Confidence, abstaining and drift: calibrated at home, honest for rows like those of fit, and kept with models."""

import json
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from tests.views import FEW

import fmtc
from fmtc import FMTC, Graph, Privacy
from fmtc.artifacts.files import read_tensors, write_tensors
from fmtc.confidence import Drift, SiloDrift, combined, together, without_scores
from fmtc.errors import DataError, InputError

MEANS = 2.2 * np.eye(6)[:3]
UNKNOWN = 2.5 * np.eye(6)[3]


def rows(n, seed, means=MEANS):
    rng = np.random.default_rng(seed)
    kind = rng.integers(len(means), size=n)
    return means[kind] + rng.normal(size=(n, 6))


SILOS = {"north": rows(200, 0), "south": rows(160, 1)}
NEW = {"north": rows(600, 2), "south": rows(600, 3)}


def fitted(view):
    return FMTC(3, view=view, random_state=0, mixture=FEW).fit(SILOS)


@pytest.fixture(scope="module", params=["graph", "mixture"])
def model(request):
    return fitted(request.param).calibrate()


def test_a_tenth_of_new_rows_is_left_out(model):
    found = model.predict(NEW, abstain=0.1)
    share = np.mean([(labels == -1).mean() for labels in found.values()])
    assert 0.05 < share < 0.16
    plain = model.predict(NEW)
    for cid, labels in found.items():
        assert_array_equal(labels[labels >= 0], plain[cid][labels >= 0])  # the others keep their clusters
        assert_array_equal(labels == -1, model.confidence(NEW[cid], silos=cid) < 0.1)


def test_without_abstaining_every_row_has_a_cluster(model):
    for nothing in (None, 0, 0.0):
        assert model.predict(NEW["north"], silos="north", abstain=nothing).min() >= 0


@pytest.mark.parametrize("share", [-0.1, 1.0, 2, float("nan")])
def test_shares_that_nobody_can_mean(model, share):
    with pytest.raises(ValueError, match="abstain must be"):
        model.predict(NEW["north"], silos="north", abstain=share)


def test_rows_between_clusters_are_in_doubt_however_usual_they_are(model):
    """The point half way between two clusters has a high density: it must not make up for the odds."""
    between = (MEANS[0] + MEANS[1]) / 2
    sure, unsure = model.confidence(np.array([1.3 * MEANS[0], between]), silos="north")
    assert sure > 0.5 and unsure < 0.6 * sure and unsure < 0.4


def test_rows_far_from_all_clusters_are_in_doubt_however_clear_their_odds_are():
    far = MEANS[0] + 30 * np.eye(6)[5]
    assert fitted("mixture").calibrate().confidence(far[None], silos="north")[0] < 0.1


def test_drift_is_seen_in_a_new_group_and_not_in_new_rows(model):
    """Over many batches: few false alarms, many alarms for a group that fills two fifths of the batch."""
    rng = np.random.default_rng(5)
    false, seen = [], []
    for _ in range(25):
        for cid in SILOS:
            batch = NEW[cid][rng.choice(600, 50, replace=False)]
            false.append(model.drift(batch, silos=cid).alarm)
            batch = np.vstack([batch[:30], UNKNOWN + rng.normal(size=(20, 6))])
            seen.append(model.drift(batch, silos=cid).alarm)
    assert np.mean(false) <= 0.2
    assert np.mean(seen) >= 0.5
    assert np.mean(seen) > np.mean(false) + 0.3


def test_all_silos_together_see_more_than_one(model):
    rng = np.random.default_rng(6)
    batch = {cid: np.vstack([NEW[cid][:40], UNKNOWN + rng.normal(size=(20, 6))]) for cid in SILOS}
    found = model.drift(batch)
    assert [silo.silo for silo in found.silos] == ["north", "south"]
    assert found.p_value == combined([silo.p_value for silo in found.silos])[0]
    assert found["north"].n == 60 and found["north"].expected == pytest.approx(0.1, abs=0.02)
    assert "all 2 silos together" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["p_value"] == found.p_value


def test_a_model_that_was_saved_keeps_its_calibration(model, tmp_path):
    same = fmtc.load(model.save(tmp_path / "model"))
    assert_array_equal(same.predict(NEW["north"], silos="north", abstain=0.2),
                       model.predict(NEW["north"], silos="north", abstain=0.2))  # fmt: skip
    assert same.drift(NEW["south"][:60], silos="south") == model.drift(NEW["south"][:60], silos="south")


def test_a_folder_from_before_there_was_a_calibration_loads(model, tmp_path, monkeypatch):
    folder = model.save(tmp_path / "model")
    about = json.loads((folder / "model.json").read_text())
    del about["common"]  # it came later still
    monkeypatch.setattr("fmtc.artifacts.models._digest", lambda path: "same")
    about["common"] = None
    for entry in about["clients"].values():
        entry["sha256"] = "same"
        arrays, rest = read_tensors(folder / entry["file"])
        del rest["model"]["calibration"]
        arrays = {name: array for name, array in arrays.items() if not name.startswith("calibration")}
        write_tensors(folder / entry["file"], arrays, rest)
    (folder / "model.json").write_text(json.dumps(about))
    old = fmtc.load(folder)
    assert_array_equal(old.predict(NEW["north"], silos="north"), model.predict(NEW["north"], silos="north"))
    with pytest.raises(InputError, match="not calibrated: call calibrate"):
        old.predict(NEW["north"], silos="north", abstain=0.1)
    with pytest.raises(InputError, match="not calibrated"):
        old.calibrate(SILOS)


def test_quantiles_alone_give_a_coarser_test(model):
    found = model.drift(NEW["north"][:60], silos="north")
    other = pickle.loads(pickle.dumps(model))
    other._fitted = replace(other._fitted, models=without_scores(other._models))
    coarse = other.drift(NEW["north"][:60], silos="north")
    assert (coarse.silos[0].share_low, coarse.silos[0].n) == (found.silos[0].share_low, 60)
    assert 0 < coarse.p_value <= 1
    far = np.full((60, 6), 9.0) * np.array([1, -1] * 3)
    assert other.drift(far, silos="north").alarm


# ------------------------------------------------------------------------------------------------ when it is computed


@pytest.mark.parametrize("view", ["graph", "mixture"])
def test_only_calibrate_calibrates(view):
    model = fitted(view)
    for ask in (model.confidence, model.drift, lambda X: model.predict(X, abstain=0.1)):
        with pytest.raises(InputError, match=r"not calibrated: call calibrate\(\)"):
            ask(NEW)
    assert all(own.calibration is None for own in model._models.values())
    labels = model.labels_
    assert_array_equal(model.calibrate().labels_, labels)
    assert all(own.calibration is not None for own in model._models.values())


def test_nothing_more_leaves_a_silo():
    def left(model):
        return [(line["phase"], line["field"] if "field" in line else line.get("fields"))
                for ledger in model.run_.ledgers.values() for line in ledger.lines()]  # fmt: skip

    assert left(fitted("graph").calibrate()) == left(fitted("graph"))


def test_rows_that_are_gone_must_be_given():
    X = rows(60, 7)
    model = FMTC(3, view="mixture", random_state=0, mixture=FEW).fit(X)
    del X
    with pytest.raises(InputError, match="those of fit are not there any more"):
        model.calibrate()
    with pytest.raises(DataError, match="was fitted on 60 rows, got 59"):
        model.calibrate(rows(60, 7)[:59])
    assert model.calibrate(rows(60, 7)).confidence(rows(3, 8)).shape == (3,)


def test_a_silo_with_few_rows_is_left_out_with_a_sentence():
    silos = {"large": rows(80, 9), "small": rows(12, 10)}
    model = FMTC(3, view="mixture", random_state=0, mixture=FEW).fit(silos)
    with pytest.warns(UserWarning, match="silo 'small' has 12 rows, too few to calibrate 3 clusters"):
        model.calibrate()
    assert model.confidence(NEW["north"], silos="large").shape == (600,)
    with pytest.raises(InputError, match="not calibrated"):
        model.confidence(NEW["north"], silos="small")


@pytest.mark.parametrize("solver", [{"final": "kmeans"}, {"lift": True}, {"own": False}], ids=str)
def test_other_endings(solver):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = FMTC(3, view="graph", random_state=0, graph=Graph(**solver)).fit(SILOS).calibrate()
        found = model.predict(NEW, abstain=0.2)
    assert 0.1 < np.mean([(labels == -1).mean() for labels in found.values()]) < 0.35


def test_one_silo_and_one_cluster():
    X = rows(90, 11)
    for view in ("graph", "mixture"):
        model = FMTC(1, view=view, random_state=0, mixture=FEW).fit(X).calibrate()
        assert model._models["all"].calibration is not None
        assert 0 < model.drift(rows(50, 12)).p_value <= 1


def test_sums_only_and_resumed_runs_are_calibrated_too(tmp_path):
    silos = SILOS | {"west": rows(90, 13)}
    asked = FMTC(3, view="graph", privacy="sums", max_iter=4, random_state=0)
    model = asked.fit(silos, checkpoint=tmp_path / "point").calibrate()
    again = clone(asked).fit(silos, checkpoint=tmp_path / "point", resume=True).calibrate()
    assert_array_equal(again.confidence(NEW["north"], silos="north"), model.confidence(NEW["north"], silos="north"))


def test_private_models_refuse():
    silos = {name: rows(150, seed) for seed, name in enumerate("abc", 20)}
    model = FMTC(3, privacy=Privacy(100, bounds=(-6, 9)), random_state=0).fit(silos)
    public = {cid: own for cid, own in model._models.items() if own.is_public}
    model._fitted = replace(model._fitted, models=public)
    assert model._models  # at least one silo kept the public model
    name = next(iter(model._models))
    for ask in (model.confidence, model.drift, lambda X, silos: model.predict(X, silos=silos, abstain=0.1)):
        with pytest.raises(InputError, match="private runs are not calibrated"):
            ask(NEW["north"], silos=name)


def test_p_values_that_are_none():
    with pytest.raises(InputError, match="from 0 to 1"):
        combined([0.2, 1.2])
    with pytest.raises(InputError, match="got none"):
        combined([])
    silo = SiloDrift("north", 0.03, 0.2, 0.1, 20, "drift")
    assert together([silo]) == Drift((silo,), 0.03, "drift")
    assert "fewer than 50 rows" in str(silo)
    assert "below 0.0001" in str(replace(silo, p_value=1e-9))


@pytest.mark.parametrize("view", ["mixture", "graph"])
def test_silos_that_lack_concepts_are_calibrated_by_those_they_have(view):
    """Numbers of folds are those of the model, so that what a silo lacks is left out, and not what it has."""
    rng = np.random.default_rng(3)
    have = {"north": (60, 30, 0, 0), "south": (0, 30, 0, 90), "west": (20, 20, 40, 20), "east": (0, 0, 0, 60)}

    def draw(counts, times=1):
        y = np.repeat(np.arange(4), np.array(counts) * times)
        return 3.5 * np.eye(5)[y] + rng.normal(size=(len(y), 5))

    own = {name: sum(n > 0 for n in counts) for name, counts in have.items()}
    made = FMTC(4, clusters_per_silo=own, view=view, random_state=0, mixture=FEW)
    model = made.fit(drawn := {name: draw(counts) for name, counts in have.items()}).calibrate(drawn)
    for name, counts in have.items():
        new = draw(counts, 5)
        left_out = (model.predict(new, silos=name, abstain=0.1) == -1).mean()
        single = view == "graph" and own[name] == 1  # one direction, which all rows have: nothing to doubt
        assert left_out == 0 if single else 0.02 < left_out < 0.25
        assert model.drift(new, silos=name).p_value > 0.001
