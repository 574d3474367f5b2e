"""Whole fits on PyTorch's tensors, held against those on NumPy's arrays."""

import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from tests.views import graph_view

import fmtc
from fmtc.kernels.graph import build_graph
from fmtc.linalg.arrays import is_tensor
from fmtc.protocol.graph import opening as prepare
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings, by_view

pytestmark = pytest.mark.torch

SETTINGS = {
    "default": {},
    "subspace": {"coupling": "subspace"},
    "average": {"coupling": "average"},
    "global": {"scale": "global"},
    "silo": {"scale": "silo"},
    "embedding": {"align": False, "labels_from": "embedding"},
    "global embedding": {"scale": "global", "labels_from": "embedding"},
    "own centres": {"final": "kmeans"},
    "the same means": {"kappa": float("inf")},
    "plain": {"accelerate": False, "schatten_p": 0.5},
    "rho": {"rho": 1.0},
    "not centred": {"center_features": False},
    "float32 messages": {"message_dtype": "float32"},
    "bandwidth": {"bandwidth": 2.0, "nonmutual_weight": 1.0, "n_neighbors": 7},
}


def pair(data, **settings):
    """The same fit on both."""
    settings = {"max_iter": 6, "n_init": 2, "random_state": 3} | settings
    return tuple(graph_view(3, device=device, **settings).fit(data) for device in ("torch", "cpu"))


def gap(A, B):
    """Largest difference, as a share of the largest entry."""
    assert A.dtype == B.dtype
    return np.abs(A - B).max() / np.abs(B).max()


def assert_alike(a, b, close):
    assert gap(a.embedding_, b.embedding_) < close
    assert gap(a.consensus_, b.consensus_) < close
    for cid in b.silos_:
        assert gap(a.projections_[cid], b.projections_[cid]) < close
    assert a.n_iter_ == b.n_iter_
    assert a.run_.stopped_because == b.run_.stopped_because
    for A, B in zip(a.run_.rounds, b.run_.rounds, strict=True):
        assert_allclose(A.objective, B.objective, rtol=close)
        assert (A.bytes_up, A.bytes_down, A.rank) == (B.bytes_up, B.bytes_down, B.rank)


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_device_gives_the_fit_of_numpy(make_federation, settings):
    data = make_federation(m=3, n=(60, 80, 70), d=6)
    a, b = pair(data, **SETTINGS[settings])
    rounded = settings == "float32 messages"  # a last bit of a message may fall the other way
    assert_alike(a, b, 1e-6 if rounded else 1e-10)
    assert_array_equal(a.labels_, b.labels_)
    assert a.labels_.dtype == b.labels_.dtype
    for cid in data:
        assert gap(a.cluster_centers_[cid], b.cluster_centers_[cid]) < (1e-6 if rounded else 1e-10)
        assert_array_equal(a.predict(data[cid], silos=cid), b.predict(data[cid], silos=cid))


@pytest.mark.parametrize("settings", ["default", "subspace", "global", "embedding"])
def test_a_device_in_single_precision(make_federation, settings):
    data = make_federation(m=3, n=(60, 80, 70), d=6, dtype=np.float32)
    a, b = pair(data, **SETTINGS[settings])
    assert a.embedding_.dtype == np.float32
    assert_alike(a, b, 1e-5)


@pytest.mark.parametrize("settings", ["default", "global", "embedding"])
def test_more_features_than_rows(make_federation, settings):
    a, b = pair(make_federation(m=2, n=40, d=70), **SETTINGS[settings])
    assert_alike(a, b, 1e-10)
    assert_array_equal(a.labels_, b.labels_)


@pytest.mark.parametrize("settings", ["default", "embedding"])
def test_so_many_rows_that_k_means_starts_on_some(make_federation, settings):
    data = make_federation(m=2, n=(4_600, 90), d=5)
    a, b = pair(data, max_iter=3, **SETTINGS[settings])
    assert_alike(a, b, 1e-10)
    assert_array_equal(a.labels_, b.labels_)
    for cid in data:
        assert gap(a.cluster_centers_[cid], b.cluster_centers_[cid]) < 1e-10


@pytest.mark.filterwarnings("ignore:the labels of 'a' do not follow")  # of five parts on a line, one is cut
@pytest.mark.filterwarnings("ignore:(a|b) has values of another magnitude")  # parts of a lie 40 apart
@pytest.mark.parametrize("parts", [2, 5])  # fewer and more than clusters
def test_a_graph_that_falls_apart(make_federation, rng, parts):
    data = make_federation(m=2, n=60, d=4)
    data["a"] = rng.normal(size=(60, 4)) + 40 * rng.permutation(np.arange(60) % parts)[:, None]
    with pytest.warns(UserWarning, match=f"'a' has {parts} ") as told:
        a, b = pair(data, n_neighbors=5)
    assert len({str(w.message) for w in told if "the neighbour graph" in str(w.message)[:20]}) == 1
    assert_alike(a, b, 1e-10)
    assert_array_equal(a.labels_, b.labels_)


@pytest.mark.parametrize(("settings", "dtype"), [("default", np.float64), ("global", np.float32)])
def test_a_run_goes_on_from_its_checkpoint_to_the_bit(make_federation, tmp_path, settings, dtype):
    data = make_federation(dtype=dtype)

    def fit(max_iter, **options):
        params = {"max_iter": max_iter, "tol": 0, "n_init": 2, "random_state": 0} | SETTINGS[settings]
        return graph_view(3, device="torch", **params).fit(data, **options)

    whole = fit(6)
    fit(3, checkpoint=tmp_path / "c")
    resumed = fit(6, checkpoint=tmp_path / "c", resume=True)
    assert resumed.n_iter_ == 6
    for name in ("embedding_", "consensus_", "labels_"):
        assert getattr(resumed, name).tobytes() == getattr(whole, name).tobytes()
    for cid in data:
        assert resumed.projections_[cid].tobytes() == whole.projections_[cid].tobytes()


def test_a_checkpoint_of_one_device_is_taken_up_on_another(make_federation, tmp_path):
    data, settings = make_federation(), by_view({"tol": 0, "n_init": 2, "random_state": 0})
    graph_view(3, device="torch", max_iter=3, **settings).fit(data, checkpoint=tmp_path / "c")
    resumed = graph_view(3, max_iter=6, **settings).fit(data, checkpoint=tmp_path / "c", resume=True)
    whole = graph_view(3, max_iter=6, **settings).fit(data)
    assert gap(resumed.embedding_, whole.embedding_) < 1e-10
    assert_array_equal(resumed.labels_, whole.labels_)


def test_sparse_rows_are_refused_in_one_sentence(make_federation):
    data = make_federation()
    data["b"] = sp.csr_array(data["b"])
    with pytest.raises(ValueError, match=r"'b'.*device='torch'"):
        graph_view(3, device="torch").fit(data)


def test_a_saved_model_needs_no_pytorch(make_federation, tmp_path):
    data = make_federation()
    model = graph_view(3, device="torch", max_iter=4, random_state=0).fit(data)
    model.save(tmp_path / "model")
    np.save(tmp_path / "a.npy", data["a"])
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, *_):\n"
        "        assert name.partition('.')[0] != 'torch'\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "import fmtc, numpy as np\n"
        "X = np.load('a.npy')\n"
        "model = fmtc.load('model')\n"
        "np.save('labels.npy', model.predict(X, silos='a'))\n"
        "np.save('proba.npy', model.predict_proba(X, silos='a'))\n"
        "np.save('projected.npy', model.transform(X, silos='a'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_array_equal(np.load(tmp_path / "labels.npy"), model.labels_[:60])
    assert_array_equal(np.load(tmp_path / "proba.npy"), model.predict_proba(data["a"], silos="a"))
    assert_array_equal(np.load(tmp_path / "projected.npy"), model.transform(data["a"], silos="a"))
    assert fmtc.load(tmp_path / "model").get_params()["device"] == "torch"


@pytest.mark.parametrize("settings", ["default", "global"])
def test_the_device_reaches_the_kernels(make_federation, monkeypatch, settings):
    """Else all that is the same here would be so because it is."""
    seen = []
    monkeypatch.setattr(prepare, "build_graph", lambda X, *more: seen.append(is_tensor(X)) or build_graph(X, *more))
    for device in ("torch", "cpu"):
        graph_view(3, device=device, max_iter=2, **{"n_init": 1} | SETTINGS[settings]).fit(make_federation())
        assert len(seen) >= 3
        assert set(seen) == {device == "torch"}
        seen.clear()


def test_a_fitted_model_holds_no_tensor(make_federation):
    model = graph_view(3, device="torch", max_iter=3).fit(make_federation())
    held = [vars(model), *map(vars, model._models.values()), *map(vars, model.run_.rounds)]
    assert not any(is_tensor(value) for values in held for value in values.values())
    assert all(type(m.spread) is float for m in model._models.values())


def test_data_frames_which_may_not_be_written(make_federation):
    data = {cid: pd.DataFrame(X, columns=list("uvwxyz")) for cid, X in make_federation().items()}
    before = {cid: frame.copy() for cid, frame in data.items()}
    a, b = pair(data)
    assert_alike(a, b, 1e-10)
    assert all(frame.equals(before[cid]) for cid, frame in data.items())


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda X: np.repeat(X, 2, axis=0)[::2]], ids=["F", "strided"])
def test_rows_in_any_layout(make_federation, layout):
    data = make_federation()
    a, b = (graph_view(3, device="torch", max_iter=3, random_state=0).fit(silos)
            for silos in ({cid: layout(X) for cid, X in data.items()}, data))  # fmt: skip
    assert_array_equal(a.embedding_, b.embedding_)


# ------------------------------------------------------------------------------------------- one client at a time


@pytest.mark.parametrize("n_jobs", [1, 3, -1])
def test_clients_on_a_device_answer_in_one_order_whatever_n_jobs(make_federation, n_jobs):
    data, settings = make_federation(m=3), Settings(n_clusters=3, max_iter=2, tol=0, n_init=1)
    seen = []

    class Watched(LocalTransport):
        def _ask(self, cores, cid, message):
            seen.append((message.phase, cid, threading.get_ident()))
            return super()._ask(cores, cid, message)

    transport = Watched(data, settings, n_jobs, device="torch")
    result = run(transport, settings)
    assert {ident for *_, ident in seen} == {threading.get_ident()}
    assert [cid for _, cid, _ in seen] == list("abc") * (len(seen) // 3)
    assert {"prepare", "round", "finish", "settle", "number"} < {phase for phase, *_ in seen}
    plain = LocalTransport(data, settings, device="torch")
    assert run(plain, settings).server.Z.tobytes() == result.server.Z.tobytes()
    for cid, client in transport.clients.items():
        assert is_tensor(client.F)
        assert_array_equal(client.F, plain.clients[cid].F)
        assert_array_equal(client.labels, plain.clients[cid].labels)
