"""Nothing disturbed: over FLARE every number is that of the run in one process, with real processes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fmtc import Hyper, LocalTransport, run
from fmtc.runtime.flare.adapter import Site

from .conftest import assert_same, expected, silo_rows

pytestmark = pytest.mark.federation


@pytest.mark.parametrize(
    ("kind", "coupling"),
    [("float64", "subspace"), ("float32", "tensor"), ("sparse", "tensor")],
)
def test_local_and_flare_give_equal_bytes(healthy, tmp_path, kind, coupling):
    rows = silo_rows(np.float32 if kind == "float32" else np.float64)
    if kind == "sparse":
        rows = {cid: sp.csr_array(np.where(X > 0.5, X, 0)) for cid, X in rows.items()}
    reweigh = 1 if kind == "sparse" else 0
    beta = "auto" if kind == "float32" else 0.15
    hyper = Hyper(
        n_clusters=4, max_iter=3, tol=0, n_neighbors=15, coupling=coupling, reweigh=reweigh, beta=beta, seed=7
    )
    try:
        for cid, X in rows.items():
            path = tmp_path / f"{cid}.np{'z' if kind == 'sparse' else 'y'}"
            sp.save_npz(path, X) if kind == "sparse" else np.save(path, X)
            Site(cid, str(path)).write(healthy.kits[cid].path)
        outcome = healthy.run(hyper, weights={"a": 1.0, "b": 2.0, "c": 1.0})
    finally:
        for site in healthy.sites.values():
            site.write(healthy.kits[site.client_id].path)
    assert_same(outcome, *expected(rows, hyper, weights={"a": 1.0, "b": 2.0, "c": 1.0}))
    if beta == "auto":
        alone = run(LocalTransport(rows, hyper), hyper, weights={"a": 1.0, "b": 2.0, "c": 1.0})
        assert outcome.about["chosen_beta"] == alone.trials.chosen
        assert outcome.about["trials"] == str(alone.trials)
