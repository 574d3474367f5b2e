"""Models to keep (a folder) and to carry (ONNX)."""

import json
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from tests.views import FEW, graph_view

import fmtc
from fmtc import Graph
from fmtc.artifacts.files import read_tensors, write_tensors
from fmtc.artifacts.models import MODEL
from fmtc.artifacts.onnx import export_onnx
from fmtc.errors import FileError

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of client")

D, K = 12, 4
NAMES = [f"gene {j}" for j in range(D)]


def rows(n, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = 3 * np.eye(D)[rng.integers(K, size=n)] + rng.normal(size=(n, D))
    return np.where(X > 0, X, 0).astype(dtype)


DATA = {"berlin": rows(300, 0), "a/b: Zürich": rows(200, 1), "x" * 250: rows(250, 2)}


def fitted(data=DATA, **params):
    return graph_view(K, **{"random_state": 0, "max_iter": 4, "n_init": 2} | params).fit(data)


WRAPS = {
    "dense": np.asarray,
    "sparse": sp.csr_array,
    "named": lambda X: pd.DataFrame(X, columns=NAMES),
    "float32": lambda X: X.astype(np.float32),
}


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture
def folder(model, tmp_path):
    return model.save(tmp_path / "model")


# ----------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("kind", WRAPS)
def test_a_loaded_model_answers_the_same_bytes(kind, tmp_path):
    data = {cid: WRAPS[kind](X) for cid, X in DATA.items()}
    model = fitted(data, coupling="subspace", random_state=7)
    again = fmtc.load(model.save(tmp_path / "m"))
    for call in ("predict", "transform", "predict_proba"):
        then, now = getattr(model, call)(data), getattr(again, call)(data)
        for cid in data:
            assert (now[cid].dtype, now[cid].tobytes()) == (then[cid].dtype, then[cid].tobytes())
    assert again.score(data) == model.score(data)
    assert again.get_params() == model.get_params()
    assert again.graph == Graph(coupling="subspace", n_init=2, lift=False)
    assert again.run_.rounds == model.run_.rounds
    assert again.run_.stopped_because == model.run_.stopped_because
    for name in ("silos_", "n_features_in_", "n_iter_", "converged_"):
        assert getattr(again, name) == getattr(model, name)
    assert hasattr(again, "feature_names_in_") == (kind == "named")
    if kind == "named":
        assert again.feature_names_in_.tolist() == NAMES
        with pytest.raises(ValueError, match="GENE"):
            again.predict({"berlin": data["berlin"].rename(columns=str.upper)})


def test_what_belongs_to_the_training_rows_is_not_there(folder):
    again = fmtc.load(folder)
    assert [name for name in ("labels_", "embedding_", "consensus_") if hasattr(again, name)] == []


def test_a_loaded_model_can_be_fitted_and_saved_again(model, folder, tmp_path):
    again = fmtc.load(folder)
    second = fmtc.load(again.save(tmp_path / "second"))
    assert {p.name: p.read_bytes() for p in (tmp_path / "second").iterdir()} == {
        p.name: p.read_bytes() for p in folder.iterdir()
    }
    assert_array_equal(second.fit(DATA).labels_, model.labels_)


@pytest.mark.parametrize(
    "params",
    [
        {"n_clusters": np.int64(3)},
        {"alpha": np.float32(0.5), "max_iter": np.int32(2), "random_state": np.int64(3)},
        {"center_features": np.bool_(True)},
        {"random_state": np.random.RandomState(0)},
    ],
)
def test_parameters_of_numpy_survive_and_generators_are_forgotten(params, tmp_path):
    model = graph_view(**{"n_clusters": K, "max_iter": 2, "random_state": 0, "n_init": 1} | params)
    model.fit(DATA["berlin"])
    again = fmtc.load(model.save(tmp_path / "m"))
    assert_array_equal(again.predict(DATA["berlin"]), model.labels_)
    generator = isinstance(model.random_state, np.random.RandomState)
    expected = model.get_params() | ({"random_state": None} if generator else {})
    assert again.get_params() == expected


def test_an_existing_folder_is_refused_unless_told(model, folder):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    other = fitted(random_state=5, beta=0.5)
    with pytest.raises(FileExistsError):
        other.save(folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    other.save(str(folder), overwrite=True)
    assert fmtc.load(str(folder)).graph.beta == 0.5
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("kind", ["dense", "sparse", "float32"])
def test_no_training_row_is_inside(kind, tmp_path):
    data = {cid: WRAPS[kind](X) for cid, X in DATA.items()}
    path = fitted(data).save(tmp_path / "m")
    kept = b"".join(p.read_bytes() for p in path.iterdir())
    size = sum(X.data.nbytes for X in data.values())
    assert len(kept) < size / 2  # models, and what all clients have in common
    for X in data.values():
        for i in range(X.shape[0]):
            row = X[[i]].data if sp.issparse(X) else X[i]
            for dtype in (np.float64, np.float32):
                assert row.astype(dtype).tobytes() not in kept
    model = fitted(data)  # the search does find what is there
    assert model.projections_["berlin"].tobytes() in kept


# ----------------------------------------------------------------------------------------------------------- damage


def edit(file="model.json", **changes):
    """Change entries of the JSON file; `...` takes one away."""

    def do(folder):
        about = json.loads((folder / file).read_text())
        about |= changes
        (folder / file).write_text(json.dumps({k: v for k, v in about.items() if v is not ...}))

    return do


def client_file(folder):
    return folder / "berlin.safetensors"


def cut(name, keep):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


def swap(folder):
    one, other = sorted(folder.glob("*.safetensors"))[:2]
    one_bytes = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(one_bytes)


def flip(folder):
    content = bytearray(client_file(folder).read_bytes())
    content[-3] ^= 1
    client_file(folder).write_bytes(content)


def other_client(folder):
    arrays, about = read_tensors(client_file(folder))
    write_tensors(client_file(folder), arrays | {"centers": arrays["centers"][::-1]}, about)


def point_to(target):
    def do(folder):
        shutil.move(client_file(folder), folder.parent / "outside.safetensors")
        about = json.loads((folder / "model.json").read_text())
        about["clients"]["berlin"]["file"] = target.format(parent=folder.parent)
        (folder / "model.json").write_text(json.dumps(about))

    return do


DAMAGE = {  # what is done to the folder, and the file that the error names
    "no folder": (shutil.rmtree, "model"),
    "no json": (lambda folder: (folder / "model.json").unlink(), "holds no model"),
    "empty json": (cut("model.json", 0), "model.json"),
    "cut json": (cut("model.json", -5), "model.json"),
    "not text": (lambda folder: (folder / "model.json").write_bytes(b"\xff\xfe\x00"), "model.json"),
    "a list": (lambda folder: (folder / "model.json").write_text("[1]"), "model.json"),
    "other kind": (edit(kind="recipe"), "'recipe'"),
    "newer": (edit(schema=MODEL.version + 1), str(MODEL.version + 1)),
    "older": (edit(schema=1), "older fmtc"),
    "no schema": (edit(schema=...), "model.json"),
    "no params": (edit(params=...), "model.json"),
    "wrong setting": (edit(params={"n_clusters": 4, "view": "graph", "ridge": -1}), "ridge"),
    "params a list": (edit(params=[1]), "model.json"),
    "no clients": (edit(**{"clients": {}}), "model.json"),
    "clients a list": (edit(**{"clients": ["berlin"]}), "model.json"),
    "client without a file": (edit(**{"clients": {"berlin": {}}}), "model.json"),
    "features in words": (edit(n_features_in="many"), "model.json"),
    "fewer features": (edit(n_features_in=D - 1), "11"),
    "more clusters": (edit(k=5), "5"),
    "no names": (edit(feature_names_in=...), "model.json"),
    "too few names": (edit(feature_names_in=["one"]), "model.json"),
    "strange history": (edit(history=[{"round_no": 1}]), "model.json"),
    "client file missing": (lambda folder: client_file(folder).unlink(), "berlin.safetensors"),
    "client file empty": (cut("berlin.safetensors", 0), "berlin.safetensors"),
    "client file cut": (cut("berlin.safetensors", -1), "berlin.safetensors"),
    "a flipped bit": (flip, "berlin.safetensors"),
    "swapped files": (swap, "safetensors"),
    "exchanged file": (other_client, "'berlin'"),
    "path upwards": (point_to("../outside.safetensors"), "outside.safetensors"),
    "absolute path": (point_to("{parent}/outside.safetensors"), "outside.safetensors"),
    "path to the parent": (point_to(".."), "model"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_models_are_refused_with_a_sentence(damage, folder):
    do, named = DAMAGE[damage]
    do(folder)
    with pytest.raises(FileError, match=named) as caught:
        fmtc.load(folder)
    assert "\n" not in str(caught.value)


def test_json_cut_anywhere_is_refused(folder):
    whole = (folder / "model.json").read_bytes()
    for size in range(0, len(whole) - 2, 97):
        (folder / "model.json").write_bytes(whole[:size])
        with pytest.raises(FileError):
            fmtc.load(folder)


def test_a_model_knows_its_categories(tmp_path, rng):
    """A loaded model labels a data frame with words as the fitted one does, also in another order of columns."""
    y = rng.integers(2, size=60)
    frame = pl.DataFrame({"age": 4.0 * y + rng.normal(size=60), "sex": np.where(rng.random(60) < 0.5, "F", "M")})
    frame = frame.with_columns(pl.Series("age", [None if i % 9 == 0 else x for i, x in enumerate(frame["age"])]))
    model = fmtc.FMTC(2, random_state=0, mixture=FEW).fit(frame)
    model.save(tmp_path / "model")
    loaded = fmtc.load(tmp_path / "model")
    assert loaded.schema_ == model.schema_
    assert_array_equal(loaded.predict(frame.select("sex", "age")), model.labels_)
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    columns = document["columns"]["columns"]
    for damaged in (columns[:1], [columns[0], columns[1] | {"levels": []}], [columns[0]] * 2, [columns[0], {}]):
        whole = document | {"columns": {"columns": damaged}}
        (tmp_path / "model" / "model.json").write_text(json.dumps(whole))
        with pytest.raises(FileError, match=r"model\.json"):
            fmtc.load(tmp_path / "model")
    (tmp_path / "model" / "model.json").write_text(json.dumps(document | {"columns": None}))
    assert not hasattr(fmtc.load(tmp_path / "model"), "schema_")


def test_a_file_nobody_asked_for_does_no_harm(model, folder):
    (folder / "notes.txt").write_text("trained on a Tuesday")
    assert fmtc.load(folder).silos_ == model.silos_


# ------------------------------------------------------------------------------------------------------------- ONNX


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("kind", "dtype"), [("dense", np.float64), ("sparse", np.float64), ("dense", np.float32), ("float32", np.float32)]
)
def test_onnx_runtime_finds_the_same_labels(kind, dtype, tmp_path):
    model = fitted({cid: WRAPS[kind](X) for cid, X in DATA.items()})
    X = rows(5000, 3, np.float32)
    X[:3] = 0  # nothing to normalise in a model that does not centre
    for cid in DATA:
        path = export_onnx(model, cid, tmp_path / f"{len(cid)}.onnx", dtype=dtype)
        assert path.stat().st_size < 100_000 + D * K * 4
        label, probability = session(path).run(["label", "probability"], {"X": X.astype(dtype)})
        assert (label.dtype, label.shape, probability.dtype) == (np.int64, (5000,), dtype)
        assert_array_equal(label, model.predict(X, silos=cid))
        assert len(np.unique(label)) == K
        exact = dtype == np.float64 and kind != "float32"
        expected = model.predict_proba(X, silos=cid)
        assert_allclose(probability, expected, rtol=0, atol=1e-12 if exact else 1e-4)


def test_onnx_takes_the_training_mean_and_no_row_at_all(model, tmp_path):
    runtime = session(export_onnx(model, "berlin", tmp_path / "m.onnx", dtype=np.float64))
    centre = DATA["berlin"].mean(axis=0, keepdims=True)
    label, probability = runtime.run(None, {"X": centre})
    assert_array_equal(label, model.predict(centre, silos="berlin"))
    assert np.isfinite(probability).all()
    label, probability = runtime.run(None, {"X": np.empty((0, D))})
    assert (label.shape, probability.shape) == ((0,), (0, K))


def test_onnx_uses_plain_operators_only(model, tmp_path):
    proto = onnx.load(export_onnx(model, "berlin", tmp_path / "m.onnx"))
    onnx.checker.check_model(proto, full_check=True)
    assert [(opset.domain, opset.version) for opset in proto.opset_import] == [("", 17)]
    assert {node.domain for node in proto.graph.node} == {""}


def test_onnx_that_cannot_be_written(model, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="int64"):
        export_onnx(model, "berlin", tmp_path / "m.onnx", dtype=int)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"fmtc\[onnx\]"):
        export_onnx(model, "berlin", tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
