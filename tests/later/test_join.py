"""Publish what silos have in common, and join later without sending anything."""

import json
import socket
from contextlib import nullcontext
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score
from tests.views import FEW

from fmtc import FMTC, Graph, join_later, load
from fmtc.artifacts.files import read_tensors
from fmtc.artifacts.models import read_kit
from fmtc.cli.leading import write_consensus
from fmtc.cli.words import Words
from fmtc.errors import DataError, FileError, InputError, TrustError
from fmtc.later.publish import kit_of, open_run
from fmtc.models.shared import Published
from fmtc.protocol.method import view_method
from fmtc.runtime.conductor import RESULT, conduct
from fmtc.runtime.events import at_coordinator
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.spec import RunSpec
from fmtc.schema import Schema

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

CENTERS = 6 * np.eye(8)[:3]


def silo(seed, n=25, shift=0.1):
    """Rows of three concepts, and the concept of each."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(3), (n + 4, n, n - 4)))
    return CENTERS[y] + shift * seed + rng.normal(size=(len(y), 8)), y


DATA = {name: silo(seed)[0] for seed, name in enumerate(("north", "south", "west", "east"))}
LATE, TRUTH = silo(9, n=20)
SCATTERED = np.random.default_rng(3).normal(size=(60, 8))  # rows without the federation's concepts
VIEWS = {
    "mixture": {"view": "mixture", "mixture": FEW},
    "graph": {"view": "graph", "scale": "none"},
    "scaled": {"view": "graph", "scale": "global", "graph": Graph(lift=False)},
    "lifted": {"view": "graph", "scale": "global", "graph": Graph(lift=True)},
    "k-means": {"view": "graph", "scale": "none", "graph": Graph(final="kmeans")},
    "sums": {"view": "graph", "scale": "none", "graph": Graph(coupling="subspace"), "privacy": "sums"},
    "sums of a mixture": {"view": "mixture", "privacy": "sums"},
}
VIEWS = {kind: {"max_iter": 5} | view for kind, view in VIEWS.items()}
MODELS = {}


def fitted(kind):
    if kind not in MODELS:
        MODELS[kind] = FMTC(3, random_state=0, **VIEWS[kind]).fit(DATA)
    return MODELS[kind]


@pytest.fixture
def no_network(monkeypatch):
    """Every way out by a socket counts, and fails."""
    sent = []

    def refuse(*args, **kwargs):
        sent.append(args)
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    return sent


@pytest.mark.parametrize("kind", VIEWS)
def test_a_newcomer_has_the_federations_numbers_and_sends_nothing(kind, tmp_path, no_network):
    model = fitted(kind)
    late = join_later(model.publish(tmp_path / "kit"), LATE, name="late", random_state=0)
    assert no_network == [] and late._sent() == [] and late.run_.received == ()
    assert late.run_.joined.guided and late.run_.joined.agreement > 0.8 and ": joined" in late.run_.joined.reason
    assert late.silos_ == ["late"] and late.run_.choices == {"late": "federated"}
    assert adjusted_rand_score(TRUTH, late.labels_) > 0.9
    here, there = late.predict(CENTERS + 0.9), model.predict(CENTERS + 0.1, silos="south")
    assert_array_equal(here, there)
    assert_array_equal(late.predict(LATE), late.labels_)
    again = load(late.save(tmp_path / "late"))
    assert_array_equal(again.predict(LATE), late.labels_)


@pytest.mark.parametrize("kind", ["mixture", "graph"])
def test_who_sees_other_clusters_keeps_them(kind):
    kit = kit_of(fitted(kind))
    late = join_later(kit, SCATTERED, random_state=0)
    assert not late.run_.joined.guided and late.run_.joined.moved == 0 and late.run_.choices == {"newcomer": "alone"}
    assert "kept your own" in late.run_.joined.reason
    alone = FMTC(3, random_state=0, **VIEWS[kind]).fit({"newcomer": SCATTERED})
    assert adjusted_rand_score(alone.labels_, late.labels_) == pytest.approx(1)
    assert join_later(kit, SCATTERED, guide=True, random_state=0).run_.joined.guided
    forced = join_later(kit, LATE, guide=False, random_state=0)
    assert not forced.run_.joined.guided and "as you asked" in forced.run_.joined.reason
    # its own clusters, under the numbers of the federation
    assert_array_equal(forced.predict(CENTERS + 0.9), fitted(kind).predict(CENTERS + 0.1, silos="south"))


def test_a_few_rows_gain_by_joining():
    """Two overlapping groups: fifteen rows alone cannot tell them apart as well as with what others know."""
    rng = np.random.default_rng(0)

    def rows(n):
        y = np.repeat([0, 1], n)
        return np.repeat([[0.0] * 4, [1.6] * 4], n, axis=0) + rng.normal(size=(2 * n, 4)), y

    model = FMTC(2, view="mixture", random_state=0).fit({name: rows(80)[0] for name in "abc"})
    kit, alone, later = kit_of(model), [], []
    for seed in range(4):
        X, y = rows(8)
        alone.append(adjusted_rand_score(y, FMTC(2, view="mixture", random_state=seed).fit(X).labels_))
        later.append(adjusted_rand_score(y, join_later(kit, X, guide=True, random_state=seed).labels_))
    assert np.mean(later) > np.mean(alone) + 0.1


@pytest.mark.parametrize("kind", VIEWS)
def test_a_kit_holds_means_and_no_silos_own_model(kind, tmp_path):
    model = fitted(kind)
    path = model.publish(tmp_path / "kit", names={1: "severe"})
    content = b"".join(file.read_bytes() for file in path.iterdir())
    shared = model._fitted.shared
    for stack in (getattr(shared, name, None) for name in ("W", "Z", "Y")):
        for t in range(0 if stack is None else stack.shape[2]):
            assert np.ascontiguousarray(stack[:, :, t]).tobytes() not in content
    for own in model._models.values():
        assert own.centers.tobytes() not in content
        assert all(np.ascontiguousarray(part).tobytes() not in content for part in (getattr(own, "W", own.centers),))
    arrays, _ = read_tensors(path / "join.safetensors")
    assert all(4 not in array.shape for array in arrays.values()), "an axis of silos"
    if shared.Z is not None:
        assert_allclose(arrays["consensus"], shared.Z.mean(axis=2))
    assert not any(name in content.decode("latin1") for name in DATA)
    kit = read_kit(path)
    assert kit.names == {1: "severe"} and kit.published.n_silos == 4
    assert {f.name for f in fields(Published)}.isdisjoint({"W", "Y", "Z", "parts", "client_ids"})


def test_a_kit_keeps_out_what_is_not_for_others(tmp_path):
    model = FMTC(3, view="mixture", random_state=5, n_jobs=1, mixture=FEW).fit(DATA)
    params = json.loads((model.publish(tmp_path / "kit") / "join.json").read_text())["params"]
    assert {"random_state", "n_jobs", "device", "verbose"}.isdisjoint(params)


def test_a_kit_from_a_saved_model_is_the_same(tmp_path):
    for kind in ("mixture", "lifted"):
        model = fitted(kind)
        first = model.publish(tmp_path / f"{kind}-one")
        second = load(model.save(tmp_path / kind)).publish(tmp_path / f"{kind}-two")
        assert (first / "join.safetensors").read_bytes() == (second / "join.safetensors").read_bytes()


def test_data_frames_and_categories(tmp_path):
    rng = np.random.default_rng(0)

    def frame(n, seed):
        y = np.random.default_rng(seed).integers(0, 2, n)
        kind, noise = np.where(y == 1, "lump", "none"), rng.normal(size=(2, n))
        return pd.DataFrame({"age": 40 + 20 * y + 2 * noise[0], "kind": kind, "size": y + 0.2 * noise[1]}), y

    model = FMTC(2, random_state=0, mixture=FEW).fit({name: frame(40, seed)[0] for seed, name in enumerate("abc")})
    kit = model.publish(tmp_path / "kit")
    X, y = frame(20, 7)
    late = join_later(kit, X[["size", "age", "kind"]], random_state=0)  # in any order
    assert adjusted_rand_score(y, late.labels_) == 1
    assert list(late.feature_names_in_) == ["age", "kind", "size"]
    assert_array_equal(late.predict(X), late.labels_)
    with pytest.raises(DataError, match="there is no column 'kind'; there is 'age', 'size'"):
        join_later(kit, X[["age", "size"]])


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("silos", [1, 2])
def test_fewer_than_three_silos_publish_nothing(silos, tmp_path):
    some = dict(list(DATA.items())[:silos])
    for view in ("mixture", "graph"):
        with pytest.raises(TrustError, match=f"a run of {silos} silo.* cannot be published"):
            FMTC(3, view=view, random_state=0, mixture=FEW).fit(some).publish(tmp_path / "kit")
    assert list(tmp_path.iterdir()) == []


def test_runs_without_a_common_frame_publish_nothing(tmp_path):
    model = FMTC.as_published(3, random_state=0).fit(DATA)
    with pytest.raises(InputError, match="no common frame"):
        model.publish(tmp_path / "kit")
    late = join_later(kit_of(fitted("mixture")), LATE, random_state=0)
    with pytest.raises(InputError, match="of a newcomer"):
        late.publish(tmp_path / "kit")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["mixture", "graph"])
def test_other_columns_are_one_sentence(kind, tmp_path):
    kit = fitted(kind).publish(tmp_path / "kit")
    with pytest.raises(DataError, match=r"^X has 5 features, but FMTC is expecting 8 features as input"):
        join_later(kit, LATE[:, :5])
    with pytest.raises(DataError, match="needs at least 4 rows"):
        join_later(kit, LATE[:3])
    with pytest.raises(ValueError, match='guide must be True, False or "auto"'):
        join_later(kit, LATE, guide="yes")
    with pytest.raises(DataError, match="no name"):
        join_later(kit, LATE, name=" ")


def test_sparse_rows_for_a_dense_federation():
    with pytest.raises(DataError, match="X is sparse"):
        join_later(kit_of(fitted("mixture")), sp.csr_array(LATE))
    with pytest.raises(DataError, match="X is sparse"):
        join_later(kit_of(fitted("scaled")), sp.csr_array(LATE))


def test_damaged_kits(tmp_path):
    kit = fitted("graph").publish(tmp_path / "kit")
    with pytest.raises(FileError, match="is not a folder"):
        join_later(tmp_path / "absent", LATE)
    about = json.loads((kit / "join.json").read_text())
    for change, wrong in (
        ({"kind": "fmtc model"}, "not 'fmtc join kit'"),
        ({"schema": 99}, "Upgrade fmtc"),
        ({"n_features_in": 7}, "do not have the shapes"),
        ({"common": {}}, "is damaged"),
        ({"silos": "many"}, "is damaged"),
    ):
        (kit / "join.json").write_text(json.dumps(about | change))
        with pytest.raises(FileError, match=wrong):
            join_later(kit, LATE)
    (kit / "join.json").write_text(json.dumps(about))
    (kit / "join.safetensors").write_bytes((kit / "join.safetensors").read_bytes()[:-5])
    with pytest.raises(FileError, match="damaged or truncated"):
        join_later(kit, LATE)


# ---------------------------------------------------------------------------------------------- at the coordinator


@pytest.mark.parametrize("kind", ["mixture", "graph", "sums"])
def test_a_coordinator_publishes_what_its_silos_would(kind, tmp_path):
    """The folder of `fmtc coordinate` holds no models, and is enough for a kit."""
    model = FMTC(3, random_state=0, **VIEWS[kind])
    settings = model._settings()
    method = view_method(settings.view, settings.privacy)
    spec = RunSpec("a-run", settings, tmp_path, method_name=method.name)
    events = at_coordinator(spec.folder)
    conduct(LocalTransport(DATA, settings, method=method), spec, events)
    assert [event["event"] for event in events.news()][-2:] == ["done", "ended"]
    write_consensus(Words(quiet=True), tmp_path / "out", False, model, tmp_path / RESULT, {"federation": "study"})
    found = open_run(tmp_path / "out")
    kit = read_kit(found.publish(tmp_path / "kit"))
    late, local = join_later(kit, LATE, random_state=0), join_later(kit_of(fitted(kind)), LATE, random_state=0)
    assert_array_equal(late.labels_, local.labels_)
    (tmp_path / "schema.toml").write_text(Schema.of_numbers(["a", "b", "c"]).to_toml())
    with pytest.raises(InputError, match="of 3 columns"):
        open_run(tmp_path / "out", tmp_path / "schema.toml")


def table(rows, ward):
    columns = {f"x{j}": rows[:, j] for j in range(8)}
    return pd.DataFrame(columns).assign(ward=pd.Categorical(ward, ["a", "b", "c"]))


@pytest.fixture(scope="module")
def kit_of_tables(tmp_path_factory):
    rng = np.random.default_rng(0)
    tables = {name: table(rows, rng.choice(["a", "b", "c"], len(rows))) for name, rows in DATA.items()}
    return (
        FMTC(3, view="mixture", random_state=0, mixture=FEW)
        .fit(tables)
        .publish(tmp_path_factory.mktemp("tables") / "kit")
    )


@pytest.mark.parametrize(("guide", "n"), [("auto", 8), (True, 40), (False, 40)])  # at 40, rounding leaves a variance
def test_a_newcomer_whose_numbers_are_all_equal(kit_of_tables, guide, n):
    """Its categories are clustered where they differ; where they do not, there is nothing to cluster."""
    kit = kit_of_tables
    model = join_later(kit, table(np.full((n, 8), 0.3), np.resize(["a", "b"], n)), guide=guide, random_state=0)
    assert model.run_.joined.guided is (guide is True) or guide == "auto"
    assert np.isfinite(model.predict_proba(table(np.full((n, 8), 0.3), np.resize(["a", "b"], n)))).all()
    with pytest.raises(DataError, match="nothing to cluster"):
        join_later(kit, table(np.full((n, 8), 0.3), ["a"] * n), guide=guide, random_state=0)


@pytest.mark.parametrize(
    ("view", "size", "told"),
    [
        ("graph", 1e30, "another unit .* Rescale the columns"),  # the ridge is lost beside it: once a LinAlgError
        ("graph", 1e140, "another unit .* Rescale the columns"),
        ("mixture", 1e140, "fourth power .* rescale the columns"),  # once a raw warning of an overflow
        ("mixture", 1e30, None),
    ],
)
def test_a_newcomer_with_a_value_beyond_all_others(view, size, told, tmp_path):
    rng = np.random.default_rng(0)
    wide = {name: np.hstack([rows, rng.normal(size=(len(rows), 92))]) for name, rows in DATA.items()}
    kit = FMTC(3, view=view, scale="none", random_state=0, mixture=FEW).fit(wide).publish(tmp_path / "kit")
    rows = wide["north"][:40].copy()
    rows[3, 1] = size
    with nullcontext() if told is None else pytest.raises(DataError, match=told):
        join_later(kit, rows, guide=True, random_state=0)
