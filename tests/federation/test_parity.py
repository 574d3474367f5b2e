"""Nothing disturbed: over FLARE every number is that of the run in one process, with real processes and without."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import numpy as np
import polars as pl
import psutil
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from tests.views import graph_view

from fmtc import FMTC, federate
from fmtc.artifacts.states import flatten
from fmtc.confidence import combined
from fmtc.errors import InputError
from fmtc.runtime.flare import local
from fmtc.runtime.flare.local import write_rows

from .conftest import silo_rows


def rows_of(kind):
    rows = silo_rows(np.float32 if "float32" in kind else np.float64)
    if "sparse" in kind:
        return {cid: sp.csr_array(np.where(X > 0.5, X, 0)) for cid, X in rows.items()}
    return rows


@pytest.mark.parametrize(
    ("by", "kind", "coupling"),
    [
        ("simulated", "dense float64", "subspace"),
        ("simulated", "sparse float64", "auto"),
        pytest.param("processes", "sparse float32", "tensor", marks=pytest.mark.federation),
    ],
)
def test_a_federation_comes_to_what_fit_does(request, by, kind, coupling):
    if by == "simulated":
        request.getfixturevalue(by)
    rows = rows_of(kind)
    if by == "processes":
        del rows["c"]  # two processes less
    weights = {cid: 2.0 if cid == "b" else 1.0 for cid in rows}
    model = graph_view(4, max_iter=3, tol=0, n_neighbors=15, coupling=coupling, scale="global", random_state=7)
    events, before = [], set(psutil.Process().children(recursive=True))  # other tests may have left some of joblib's
    there = federate(rows, model, silo_weights=weights, listen=events.append)
    assert [event["event"] for event in events].count("round") == 3
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not hasattr(model, "n_features_in_")
    here = model.fit(rows, silo_weights=weights)
    assert np.isinf(here.kappa_).all() == (coupling == "auto")  # sparse rows are texts
    for name in ("consensus_", "labels_", "kappa_", "n_features_in_", "silos_", "converged_", "n_iter_"):
        assert_array_equal(getattr(there, name), getattr(here, name))
    for cid in rows:
        for name, value in vars(here._models[cid]).items():
            assert_array_equal(getattr(there._models[cid], name), value)
        assert_array_equal(there.predict(rows[cid], silos=cid), here.predict(rows[cid], silos=cid))
    numbers = [[replace(record, seconds=0.0) for record in model.run_.rounds] for model in (there, here)]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("view", ["graph", "mixture"])
@pytest.mark.usefixtures("simulated")
def test_silos_that_lack_concepts_calibrate_and_notice_drift_as_in_one_process(view):
    """Models, atlas, calibration and one p-value of all silos are those of `fit`; calibration stays at the silos."""
    rng = np.random.default_rng(3)
    have = {"north": (30, 30, 0), "south": (0, 30, 30), "west": (20, 30, 20)}
    kinds = {name: np.repeat(range(3), counts) for name, counts in have.items()}
    rows, new = ({name: 3.5 * np.eye(4)[y] + rng.normal(size=(len(y), 4)) for name, y in kinds.items()} for _ in "ab")
    own = {name: sum(n > 0 for n in counts) for name, counts in have.items()}
    model = FMTC(3, clusters_per_silo=own, view=view, random_state=0, max_iter=5)
    there, here = federate(rows, model, calibrate=True), model.fit(rows).calibrate()
    assert there.atlas_.to_dict() == here.atlas_.to_dict()
    assert [sum(share == 0 for share in one.presence.values()) for one in here.atlas_.clusters].count(1) == 2
    for cid in rows:
        (found, _), (known, _) = flatten(there._models[cid]), flatten(here._models[cid])
        assert list(found) == list(known) and any("calibration" in name for name in known)
        for name, array in known.items():
            assert_array_equal(found[name], array)
        assert_array_equal(there.confidence(new[cid], silos=cid), here.confidence(new[cid], silos=cid))
    apart = [there.drift({cid: new[cid]}).p_value for cid in rows]
    assert combined(apart)[0] == here.drift(new).p_value > 0.001
    assert combined([there.drift({cid: new[cid] + 3}).p_value for cid in rows])[1] == "drift"


@pytest.mark.parametrize("silo_weights", [None, {"a": 1.0, "b": 2.0, "c": 1.0}], ids=["alike", "weighted"])
@pytest.mark.usefixtures("simulated")
def test_a_federation_that_chooses_its_view_comes_to_what_fit_does(silo_weights):
    """A data frame with missing cells, categories and a number of three values, which ends in the mixture.

    Processes exchange the messages of a mixture in test_mistakes.py and test_methods.py, and categories in
    test_commands.py.
    """
    rng, tables = np.random.default_rng(2), {}
    for cid, X in silo_rows().items():
        X[rng.random(X.shape) < 0.15] = np.nan
        ward = [None if np.isnan(x) else "surgery" if x > 0 else "medicine" for x in X[:, 0]]
        frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(X.shape[1])}).fill_nan(None)
        few = pl.Series(np.clip(np.round(X[:, 1]), -1, 1)).fill_nan(None)
        tables[cid] = frame.with_columns(ward=pl.Series(ward), grade=few)
    model = FMTC(4, max_iter=3, tol=0, random_state=7)
    there = federate(tables, model, silo_weights=silo_weights)
    here = model.fit(tables, silo_weights=silo_weights)
    assert (there.view_, there.view_reason_) == (here.view_, here.view_reason_)
    assert here.view_ == "mixture"
    assert (here._fitted.shared.floor > 0).sum() == 1
    for name in ("labels_", "kappa_", "n_features_in_", "silos_", "n_iter_"):
        assert_array_equal(getattr(there, name), getattr(here, name))
    for cid, table in tables.items():
        (ours, rest), (theirs, others) = flatten(there._models[cid]), flatten(here._models[cid])
        assert rest == others
        assert set(ours) == set(theirs)
        for name, array in theirs.items():
            assert_array_equal(ours[name], array)
        assert_array_equal(there.predict_proba(table, silos=cid), here.predict_proba(table, silos=cid))
    assert [r.objective for r in there.run_.rounds] == [r.objective for r in here.run_.rounds]
    assert there.schema_ == here.schema_


@pytest.mark.parametrize("kind", ["dense float64", "dense float32", "sparse float64", "sparse float32"])
def test_rows_are_written_for_their_owner_alone(tmp_path, kind):
    X = rows_of(kind)["a"]
    before = os.umask(0)
    try:
        path = write_rows(tmp_path / "rows", X)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = sp.load_npz(path) if sp.issparse(X) else np.load(path)
    assert again.dtype == X.dtype
    assert_array_equal(*(Y.toarray() if sp.issparse(Y) else Y for Y in (again, X)))


def test_what_federate_refuses_before_it_starts_a_process(monkeypatch):
    monkeypatch.setattr(local, "LocalFederation", lambda *_, **__: pytest.fail("it was started"))
    rows = rows_of("dense float64")
    with pytest.raises(InputError):
        federate(rows, FMTC(4), min_silos=4)
    with pytest.raises(InputError):
        federate(rows, FMTC(4, device="cuda"))
    with pytest.raises(ValueError, match="n_clusters"):
        federate(rows, FMTC(0))
    with pytest.raises(TypeError):
        federate(rows, FMTC(4), silo_weights=3)
    with pytest.raises(InputError, match="'d'"):
        federate(rows, FMTC(4), silo_weights={"a": 1, "b": 1, "c": 1, "d": 1})
