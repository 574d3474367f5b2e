"""Columns scaled by each client or by all together: the same as scaling beforehand, in models that take raw rows."""

import numpy as np
import onnxruntime
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler
from tests.views import FEW, graph_view

import fmtc
from fmtc.artifacts.onnx import export_onnx
from fmtc.errors import RefusedError
from fmtc.protocol.graph.view import METHOD
from fmtc.protocol.state import open_client, with_rows
from fmtc.protocol.units import MOMENTS, RESCALE
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

# where columns are not scaled, one decides alone, too little for three clusters: the warning is tested elsewhere
pytestmark = pytest.mark.filterwarnings(
    "ignore:the neighbour graph of silo", "ignore:the labels of .* do not follow", "ignore::fmtc.errors.RowsWarning"
)

D, K = 6, 3
UNITS = np.array([1.0, 1000.0, 0.01, 1.0, 50.0, 1.0])


def silo(n, seed, dtype=np.float64):
    """Three groups in six columns of very different units."""
    rng = np.random.default_rng(seed)
    X = 4 * np.eye(K, D)[rng.integers(K, size=n)] + rng.normal(size=(n, D)) + 0.3 * seed
    return (X * UNITS).astype(dtype)


DATA = {"north": silo(60, 0), "south": silo(45, 1), "west": silo(50, 2)}
UNION = np.vstack(list(DATA.values()))
NEW = {name: silo(40, 10 + seed) for seed, name in enumerate(DATA)}


def short(**params):
    return graph_view(K, **{"random_state": 0, "max_iter": 6, "n_init": 3} | params)


def thin(X):
    """Sparse counts, most of them zero."""
    return sp.csr_array(np.where(X > 0.5 * UNITS, X, 0))


def assert_scaled_beforehand(model, scalers, data, **params):
    """The model is that of rows scaled by hand, with the scaler folded into it."""
    by_hand = {name: scalers[name].transform(X) for name, X in data.items()}
    other = short(**params).fit(by_hand)
    assert_array_equal(model.labels_, other.labels_)
    assert_allclose(model.embedding_, other.embedding_, atol=1e-9)
    assert_allclose(model.consensus_, other.consensus_, atol=1e-9)
    for name in data:
        folded = other.projections_[name] / scalers[name].scale_[:, None]
        assert_allclose(model.projections_[name], folded, rtol=1e-7, atol=1e-9)
        assert_allclose(model.cluster_centers_[name], other.cluster_centers_[name], atol=1e-8)
        new = NEW[name]
        assert_array_equal(model.predict(new, silos=name), other.predict(scalers[name].transform(new), silos=name))
    assert_allclose(model.score(data), other.score(by_hand), rtol=1e-9)
    assert abs(model.score(data) - short(**params).fit(data).score(data)) > 1e-3  # and scaling matters here


@pytest.mark.parametrize(
    "params", [{}, {"center_features": False}, {"coupling": "subspace", "labels_from": "embedding"}], ids=str
)
def test_global_scaling_is_a_standard_scaler_on_the_union(params):
    scaler = StandardScaler().fit(UNION)
    model = short(scale="global", **params).fit(DATA)
    assert_scaled_beforehand(model, dict.fromkeys(DATA, scaler), DATA, **params)


@pytest.mark.parametrize("params", [{}, {"center_features": False}])
def test_client_scaling_is_a_standard_scaler_in_each(params):
    model = short(scale="silo", **params).fit(DATA)
    assert_scaled_beforehand(model, {name: StandardScaler().fit(X) for name, X in DATA.items()}, DATA, **params)


def test_labels_are_those_of_predict_on_the_rows_as_they_came():
    for scale in ("silo", "global"):
        for wrap in (np.asarray, thin, lambda X: X.astype(np.float32)):
            data = {name: wrap(X) for name, X in DATA.items()}
            model = short(scale=scale).fit(data)
            assert_array_equal(np.concatenate(list(model.predict(data).values())), model.labels_)
            assert len(np.unique(model.labels_)) == K


@pytest.mark.parametrize("wrap", [np.asarray, thin], ids=["dense", "sparse"])
def test_the_unit_of_a_column_does_not_matter(wrap):
    factor = np.where(np.arange(D) == 2, 1000.0, 1.0)

    def fitted(scale, changed):
        data = {name: wrap(X) for name, X in DATA.items()}
        return short(scale=scale).fit({n: X * factor if n in changed else X for n, X in data.items()})

    for scale, changed in (("global", set(DATA)), ("silo", {"south"}), ("silo", set(DATA))):
        plain, other = fitted(scale, ()), fitted(scale, changed)
        assert_array_equal(plain.labels_, other.labels_)
        assert_allclose(plain.embedding_, other.embedding_, atol=1e-8)
        for name in DATA:
            units = factor[:, None] if name in changed else 1.0
            assert_allclose(plain.projections_[name], other.projections_[name] * units, rtol=1e-6, atol=1e-10)
    assert np.abs(fitted("none", ()).embedding_ - fitted("none", set(DATA)).embedding_).max() > 0.01
    assert (fitted("global", ()).labels_ != fitted("global", {"south"}).labels_).any()  # its columns mean other things


def test_an_offset_of_all_clients_does_not_matter():
    plain = short(scale="global").fit(DATA)
    far = short(scale="global").fit({name: X + 1e8 for name, X in DATA.items()})
    assert_allclose(far.embedding_, plain.embedding_, atol=1e-4)
    assert_array_equal(far.labels_, plain.labels_)


def test_sparse_rows_stay_sparse(monkeypatch):
    data = {name: thin(X) for name, X in DATA.items()}
    union = sp.vstack(list(data.values()))
    rms = np.sqrt(union.power(2).sum(axis=0) / union.shape[0])
    sizes = []
    toarray = sp.csr_array.toarray

    def watched(self, *args, **kwargs):
        sizes.append(self.shape)
        return toarray(self, *args, **kwargs)

    monkeypatch.setattr(sp.csr_array, "toarray", watched)
    monkeypatch.setattr(sp.csr_array, "todense", watched)
    for scale in ("global", "silo"):
        transport = LocalTransport(data, Settings(K, scale=scale, max_iter=2))
        fmtc.runtime.driver.run(transport, transport.settings)
        for name, client in transport.clients.items():
            assert sp.issparse(client.rows.X)
            assert client.X is data[name]
            assert client.scaling.shift is None
            assert client.model.mean is None
            if scale == "global":
                assert_allclose(client.scaling.stretch, rms, rtol=1e-12)
    assert set(sizes) <= {(D, D), (1, D)}  # the factor of the regression, and no matrix of rows


def test_single_precision_stays_single():
    data = {name: X.astype(np.float32) for name, X in DATA.items()}
    for scale in ("silo", "global"):
        model = short(scale=scale).fit(data)
        found = [model.embedding_, model.consensus_, *model.projections_.values(), *model.transform(data).values()]
        assert {array.dtype for array in found} == {np.dtype(np.float32)}
        assert_array_equal(model.labels_, short(scale=scale).fit(DATA).labels_)


@pytest.mark.parametrize(("scale", "wrap"), [("silo", thin), ("global", np.asarray)])
def test_saved_and_exported_models_take_rows_as_they_come(scale, wrap, tmp_path):
    data = {name: wrap(X) for name, X in DATA.items()}
    model = short(scale=scale).fit(data)
    again = fmtc.load(model.save(tmp_path / "m"))
    for call in ("predict", "transform", "predict_proba"):
        for name in data:
            assert getattr(again, call)(data)[name].tobytes() == getattr(model, call)(data)[name].tobytes()
    assert again.score(data) == model.score(data)
    assert again.scale == scale
    for name, X in NEW.items():
        X = wrap(X)
        expected = model.predict(X, silos=name)
        assert len(np.unique(expected)) == K
        assert_array_equal(again.predict(X, silos=name), expected)
        path = export_onnx(model, name, tmp_path / f"{name}.onnx", dtype=np.float64)
        rows = X.toarray() if sp.issparse(X) else X
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        assert_array_equal(session.run(["label"], {"X": rows})[0], expected)


def test_a_constant_column_is_left_at_its_unit():
    data = {name: np.column_stack([X, np.full(len(X), 0.1)]) for name, X in DATA.items()}
    for scale in ("silo", "global"):
        model, plain = short(scale=scale).fit(data), short(scale=scale).fit(DATA)
        assert_array_equal(model.labels_, plain.labels_)
        assert all(np.isfinite(W).all() for W in model.projections_.values())
    only_here = DATA | {"south": data["south"][:, [0, 1, 2, 3, 4, 6]]}  # constant in one client, not in all
    assert np.isfinite(short(scale="silo").fit(only_here).consensus_).all()


@pytest.mark.parametrize("scale", ["silo", "global", "auto"])
@pytest.mark.parametrize("view", ["graph", "auto"])
def test_columns_that_have_their_units_already(scale, view):
    """Standard deviations of exactly 1: what is agreed is a shift, and the run takes its course."""
    X = np.array([[-1.0, 1.0, -1.0], [1.0, 1.0, -1.0], [-1.0, -1.0, 1.0], [1.0, -1.0, 1.0]])[np.arange(60) % 4] + 5.0
    assert (X.std(axis=0) == 1).all()
    model = fmtc.FMTC(2, view=view, scale=scale, max_iter=3, random_state=0, mixture=FEW).fit({"a": X, "b": X})
    assert_array_equal(model.labels_[:60], model.predict(X, silos="a"))


def test_one_client_alone():
    one, all_of_it = short(scale="silo").fit(UNION), short(scale="global").fit(UNION)
    assert_array_equal(one.labels_, all_of_it.labels_)
    assert_allclose(one.projections_["all"], all_of_it.projections_["all"], rtol=1e-9)


# ------------------------------------------------------------------------------------------------------- messages


def test_what_is_said_about_the_columns():
    settings = Settings(n_clusters=K, scale="global", lift=False)
    clients = {name: open_client(name, X, settings) for name, X in DATA.items()}
    answers = {name: MOMENTS.reply(client, MOMENTS.Ask(), settings, 0)[1] for name, client in clients.items()}
    X, west = DATA["west"], answers["west"]
    assert west.n_samples == len(X)
    assert west.document_counts is None
    assert_allclose(west.means, X.mean(axis=0), rtol=1e-12)
    assert_allclose(west.squares, len(X) * X.var(axis=0), rtol=1e-12)
    server = MOMENTS.reduce(METHOD.open_server(list(DATA), settings, None), dict(answers), settings)
    asks = RESCALE.asks(server, settings)
    assert {id(ask) for ask in asks.values()} == {id(asks["west"])}  # the same for all
    assert_allclose(asks["west"].shift, UNION.mean(axis=0), rtol=1e-12)
    client, _ = RESCALE.reply(clients["west"], asks["west"], settings, 0)
    rows = with_rows(client, settings).rows
    assert_allclose(rows.X, StandardScaler().fit(UNION).transform(X), rtol=1e-9, atol=1e-12)
    assert client.X is X
    again, _ = RESCALE.reply(client, asks["west"], settings, 0)  # a second time is the first time again
    assert_array_equal(with_rows(again, settings).rows.X, rows.X)


@pytest.mark.parametrize("scale", ["none", "silo"])
def test_columns_are_summed_up_only_where_that_was_agreed(scale):
    settings = Settings(K, scale=scale)
    client, server = open_client("a", DATA["north"], settings), METHOD.open_server(["a"], settings, None)
    assert MOMENTS.times(server, settings) == RESCALE.times(server, settings) == 0
    for phase, ask in ((MOMENTS, MOMENTS.Ask()), (RESCALE, RESCALE.Ask(stretch=np.ones(D)))):
        with pytest.raises(ValueError, match=scale):
            phase.reply(client, ask, settings, 0)


@pytest.mark.parametrize(
    "wrong",
    [{"stretch": None}, {"stretch": np.ones(D - 1)}, {"stretch": np.array([0.0] + [1.0] * (D - 1))},
     {"stretch": np.full(D, np.nan)}, {"shift": np.zeros(D + 1)}],
    ids=["none", "short", "zero", "nan", "long"],
)  # fmt: skip
def test_units_that_do_not_fit_are_refused(wrong):
    settings = Settings(K, scale="global")
    client = open_client("a", DATA["north"], settings)
    ask = RESCALE.Ask(**{"shift": np.zeros(D), "stretch": np.ones(D)} | wrong)
    if wrong.get("stretch") is not None and len(wrong["stretch"]) < D:  # the declaration allows it: columns may be kept
        ask = RESCALE.Ask(stretch=wrong["stretch"])
        with pytest.raises(ValueError, match=str(D)):
            RESCALE.reply(client, ask, settings, 0)
    else:
        with pytest.raises(RefusedError):
            RESCALE.check_ask(ask, METHOD.sizes(client, settings))
