"""Private runs: what leaves, with how much noise, what is refused, and what clients make of it."""

import json
from dataclasses import asdict, replace
from math import sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fmtc import FMTC, Graph, Privacy, load
from fmtc.artifacts.files import jsonable
from fmtc.artifacts.onnx import export_onnx
from fmtc.errors import ClientError, DataError, InputError, LimitError, RefusedError, TrustError
from fmtc.models import AnchorModel, GraphModel
from fmtc.privacy import keys
from fmtc.privacy.accounting import epsilon_of, mu_of, raised
from fmtc.protocol.base import Message
from fmtc.protocol.method import METHODS, method_of, view_method
from fmtc.protocol.private import view as private
from fmtc.protocol.sums.masking import Masked
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

BOX = (-1, 1)


def seeded(seed=0):
    """A sampler with the spread of the real one whose draws are the same in every run: tests of results need that."""
    rng = np.random.default_rng(seed)
    return lambda sd, size: np.rint(rng.normal(size=size) * sd).astype(np.int64)


@pytest.fixture(autouse=True)
def _known_noise(request, monkeypatch):
    """Noise that is known, but for tests that are about noise."""
    if "noise" not in request.node.name:
        monkeypatch.setattr(keys.Keys.seal, "__defaults__", ("", seeded()))


def blobs(m=4, n=200, k=3, d=5, seed=0, width=0.15):
    """Silos whose rows come from the same few centres."""
    rng = np.random.default_rng(seed)
    centers, data, truth = rng.uniform(-0.8, 0.8, size=(k, d)), {}, {}
    for t in range(m):
        truth[f"s{t}"] = rng.integers(k, size=n)
        data[f"s{t}"] = np.clip(centers[truth[f"s{t}"]] + width * rng.normal(size=(n, d)), -1, 1)
    return data, truth


def settings(k=3, epsilon=8.0, seed=0, **others):
    return Settings(n_clusters=k, scale="auto", seed=seed, privacy=Privacy(epsilon, bounds=BOX, **others))


def ari(model, data, truth):
    """Over all silos at once: the same number means the same concept."""
    found = np.concatenate([model.predict(X, silos=cid) for cid, X in data.items()])
    return adjusted_rand_score(np.concatenate(list(truth.values())), found)


# ------------------------------------------------------------------------------------------------------- the whole run


@pytest.mark.parametrize("method", ["anchors", "mixture"])
def test_silos_find_their_common_clusters(method):
    data, truth = blobs()
    model = FMTC(3, privacy=Privacy(8, bounds=BOX, method=method), random_state=0).fit(data)
    assert ari(model, data, truth) > 0.9
    assert model.view_ == "anchors"
    assert set(model.run_.choices.values()) == {"public"}
    assert model.converged_ and "noisy" in model.run_.stopped_because


@pytest.mark.parametrize("method", ["anchors", "mixture"])
def test_nothing_leaves_but_masked_words(method):
    data, _ = blobs(m=3)
    transport = LocalTransport(data, given := settings(method=method), method=private.METHOD)
    heard = []
    exchange = transport.exchange

    def tap(messages):
        replies = exchange(messages)
        heard.append((next(iter(messages.values())).phase, list(replies.answers.values())))
        return replies

    transport.exchange = tap
    run(transport, given, method=private.METHOD)
    names = [name for name, _ in heard]
    assert len(names) <= 10 and len(set(names)) == len(names)  # cards, roster, seven stages, home
    for name, answers in heard:
        if name in ("cards", "roster"):
            continue
        kinds = {type(answer) for answer in answers}
        assert kinds == ({Masked} if name != "home" else {private.Nothing})
    fields = {
        (line["phase"], entry["field"])
        for x in transport.ledgers.values()
        for line in x.lines()
        for entry in line["fields"]
    }
    assert {field for phase, field in fields if phase not in ("cards", "roster")} == {"words", "layout"}


def test_the_total_has_the_noise_that_was_promised(monkeypatch):
    """Two runs on the same rows differ by noise of the standard deviation that the stage needs, times sqrt 2."""
    data, _ = blobs(m=5, n=100)
    opened, given = [], settings(epsilon=4.0, accept_weak=True)
    reduce_ = private.StagePhase.reduce

    def tap(self, server, answers, s):
        opened.append(sum(answer.total for answer in answers.values()))
        raise TrustError("enough")

    monkeypatch.setattr(private.StagePhase, "reduce", tap)
    for _ in range(40):
        with pytest.raises(TrustError, match="enough"):
            run(LocalTransport(data, given, method=private.METHOD), given, method=private.METHOD)
    monkeypatch.setattr(private.StagePhase, "reduce", reduce_)
    sums = np.array(opened)
    exact = sum(private.MEAN.stage.total(X, private.Public(private.Box.of(BOX, 5))) for X in data.values())
    sd = private.MEAN.noise(private.State(), given)["total"]
    assert sd == pytest.approx(raised(sqrt(2), 2**20) / (mu_of(4, 1e-5) * sqrt(0.04)))
    whole = sd * sqrt(5 / 4)  # five silos add a fourth of the variance each: one of them may collude
    z = (sums - exact) / whole
    assert abs(z.mean()) < 6 / sqrt(z.size)
    assert abs(z.var() - 1) < 6 * sqrt(2 / z.size)


def test_the_charges_of_a_run_add_up_to_its_epsilon():
    for method in ("anchors", "mixture"):
        given = settings(epsilon=2.0, method=method)
        server = private.PLAIN.open_server(["a"], given, None)
        stages = [p for p in private.PLAIN.phases if isinstance(p, private.StagePhase) and p.times(server, given)]
        assert len(stages) == 7
        assert epsilon_of(sqrt(sum(p.charge(given) for p in stages)), 1e-5) == pytest.approx(2.0, rel=1e-6)


def test_auto_goes_by_the_number_of_clusters():
    assert private.method_kind(settings(k=7)) == "mixture"
    assert private.method_kind(settings(k=8)) == "anchors"
    assert private.method_kind(settings(k=8, method="mixture")) == "mixture"


def test_without_noise_it_is_a_method_of_its_own():
    data, truth = blobs(m=2)
    given = settings(epsilon=float("inf"), method="anchors")
    first, second = (LocalTransport(data, given, method=private.PLAIN) for _ in range(2))
    for transport in (first, second):
        run(transport, given, method=private.PLAIN)
    for cid, result in first.results().items():
        assert_array_equal(result.labels, second.results()[cid].labels)  # nothing in it is random
    labels = np.concatenate([first.results()[cid].labels for cid in data])
    assert adjusted_rand_score(np.concatenate(list(truth.values())), labels) > 0.95


def test_noise_differs_from_run_to_run_and_the_seed_does_not_matter():
    data, _ = blobs(m=3, n=400)
    models = [FMTC(3, privacy=Privacy(2, bounds=BOX), random_state=0).fit(data) for _ in range(2)]
    assert not np.array_equal(models[0]._models["s0"].mean, models[1]._models["s0"].mean)


def test_missing_cells_and_categories():
    pl = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=900)
    x = 0.3 * np.array([-1, 0, 1])[kind] + 0.05 * rng.normal(size=900)
    values = [None if rng.random() < 0.1 else float(v) for v in x]
    frame = pl.DataFrame(
        {"x": values, "colour": np.array(["red", "green", "blue"])[kind], "y": rng.normal(size=900) * 0.1}
    )
    clients = np.repeat(["a", "b", "c"], 300)
    model = FMTC(3, privacy=Privacy(8, bounds=BOX), random_state=0).fit(frame, silos=clients)
    assert adjusted_rand_score(kind, model.labels_) > 0.8
    assert_array_equal(model.predict(frame, silos=clients), model.labels_)


# ----------------------------------------------------------------------------------------------------------- the choice


def test_silos_that_differ_stay_alone():
    rng = np.random.default_rng(0)
    data, truth = {}, {}
    for t in range(4):  # the same box, but every silo has clusters of its own along a direction of its own
        truth[f"s{t}"] = rng.integers(8, size=300)
        own = rng.uniform(-1, 1, size=(8, 10))
        data[f"s{t}"] = np.clip(own[truth[f"s{t}"]] + 0.05 * rng.normal(size=(300, 10)), -1, 1)
    model = FMTC(8, privacy=Privacy(4, bounds=BOX), random_state=0).fit(data)
    assert "alone" in model.run_.choices.values()
    for cid, choice in model.run_.choices.items():
        assert isinstance(model._models[cid], GraphModel if choice == "alone" else AnchorModel)
        if choice == "alone":
            assert_array_equal(model.predict(data[cid], silos=cid), model.labels_[300 * int(cid[1:]) :][:300])
            assert adjusted_rand_score(truth[cid], model.predict(data[cid], silos=cid)) > 0.7


def test_the_choice_is_told_to_nobody():
    data, _ = blobs(m=3)
    given = settings()
    transport = LocalTransport(data, given, method=private.METHOD)
    run(transport, given, method=private.METHOD)
    lines = [line for ledger in transport.ledgers.values() for line in ledger.lines() if line["phase"] == "home"]
    assert lines and all(line["fields"] == [] for line in lines)


def test_alone_is_the_graph_view_of_one_silo():
    data, _ = blobs(m=1)
    found = private.alone("s0", data["s0"], settings())
    assert isinstance(found.model, GraphModel)
    with pytest.warns(UserWarning, match="unconnected"):  # `alone` is quiet: it may be for a comparison only
        reference = (
            FMTC(3, view="graph", random_state=0, graph=Graph(beta=0)).set_params(graph__final="kmeans").fit(data)
        )
    assert adjusted_rand_score(found.labels, reference.labels_) > 0.95


# ------------------------------------------------------------------------------------------------------------- models


@pytest.fixture(scope="module", params=["anchors", "mixture"])
def fitted(request):
    data, _ = blobs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys.Keys.seal, "__defaults__", ("", seeded()))
        model = FMTC(3, privacy=Privacy(8, bounds=BOX, method=request.param), random_state=0).fit(data)
    return model, data


def test_predict_gives_the_labels_and_probabilities_agree(fitted):
    model, data = fitted
    for t, (cid, X) in enumerate(data.items()):
        labels = model.labels_[200 * t : 200 * (t + 1)]
        assert_array_equal(model.predict(X, silos=cid), labels)
        P = model.predict_proba(X, silos=cid)
        assert_allclose(P.sum(axis=1), 1)
        assert_array_equal(P.argmax(axis=1), labels)
        gaps = model.transform(X, silos=cid)
        assert gaps.shape == (200, 3) and (gaps >= 0).all()
        assert_array_equal(model.predict(X[:7], silos=cid), labels[:7])  # row by row


def test_a_model_survives_the_disk(fitted, tmp_path):
    model, data = fitted
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.view_ == "anchors" and again.privacy == model.privacy
    for cid, X in data.items():
        assert_array_equal(again.predict(X, silos=cid), model.predict(X, silos=cid))


def test_onnx_gives_the_same_labels(fitted, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, data = fitted
    X = data["s1"].astype(np.float32).copy()
    X[:20, 1] = np.nan
    session = onnxruntime.InferenceSession(export_onnx(model, "s1", tmp_path / "m.onnx"))
    label, probability = session.run(None, {"X": X})
    P = model.predict_proba(X, silos="s1")
    assert_allclose(probability, P, atol=1e-5)
    sure = np.sort(P, axis=1)[:, -1] - np.sort(P, axis=1)[:, -2] > 1e-4
    assert_array_equal(label[sure], P.argmax(axis=1)[sure])
    X[0, 0] = np.inf
    label, probability = session.run(None, {"X": X})
    assert label[0] == -1 and np.isnan(probability[0]).all() and label[1] >= 0


def test_onnx_of_categories(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(1)
    box = private.Box.of(([-1, -2], [1, 3]), 4, (0, 3, 0, 2))
    model = AnchorModel(
        box.low, box.high, np.array([0, 3, 0, 2]), 0.1 * rng.normal(size=7), 0.4, rng.normal(size=(7, 3)), 0.7,
        0.5 * rng.normal(size=(6, 3)), np.array([0, 1, 1, 3, 0, 3]), 4, 0.3,
    )  # fmt: skip
    assert model.fits(4, 4) and not model.fits(5, 4) and not model.fits(4, 3)

    from fmtc.artifacts.onnx import write_onnx

    X = np.column_stack(
        [rng.uniform(-1, 1, 50), rng.integers(-1, 4, 50), rng.uniform(-2, 3, 50), rng.integers(3, size=50)]
    )
    X[rng.random(X.shape) < 0.1] = np.nan
    session = onnxruntime.InferenceSession(write_onnx(model, tmp_path / "m.onnx", np.float64))
    label, probability = session.run(None, {"X": X})
    assert_array_equal(label, model.assign(X))
    assert_allclose(probability, model.probabilities(X), atol=1e-9)
    assert not (label == 2).any()  # a cluster without an anchor


def test_centres_are_in_the_units_of_the_table(fitted):
    model, data = fitted
    for cid, X in data.items():
        own = model.cluster_centers_[cid]
        assert own.shape == (3, 5)
        labels = model.predict(X, silos=cid)
        means = np.array([X[labels == j].mean(axis=0) for j in range(3)])
        assert np.corrcoef(own.ravel(), means.ravel())[0, 1] > 0.8


def test_the_promise_in_numbers(fitted):
    model, _ = fitted
    told = json.loads(json.dumps(jsonable(model.run_.promise)))
    assert told["epsilon"] == 8 and told["delta"] == 1e-5
    assert told["epsilon_replaced"] == pytest.approx(19.1, abs=0.1)
    assert told["epsilon_if_colluding"]["1"] == pytest.approx(8)
    assert told["epsilon_if_colluding"]["3"] > told["epsilon_if_colluding"]["2"] > 8
    assert len(told["stages"]) == 7
    assert sum(stage["share"] for stage in told["stages"]) == pytest.approx(1)


# ------------------------------------------------------------------------------------------------------------ refusals


def test_the_plan_is_a_gate():
    data, _ = blobs(m=3, n=60)
    with pytest.raises(TrustError, match="need"):
        FMTC(3, privacy=Privacy(0.5, bounds=BOX), random_state=0).fit(data)
    data, _ = blobs(m=3, n=180)  # half to all of what epsilon = 2 needs
    with pytest.raises(TrustError, match="--yes"):
        FMTC(3, privacy=Privacy(2, bounds=BOX, delta=1e-4), random_state=0).fit({c: X[:160] for c, X in data.items()})
    with pytest.warns(UserWarning, match="of the 360"):
        FMTC(3, privacy=Privacy(2, bounds=BOX, accept_weak=True), random_state=0).fit(data)


@pytest.mark.parametrize(
    ("others", "change", "error", "words"),
    [
        ({"bounds": None}, None, TrustError, "bounds"),
        ({"bounds": ([0.0] * 4, [1.0] * 4)}, None, DataError, "4 and 4 numbers, but there are 5"),
        ({"delta": 0.02}, None, TrustError, "above 1/200"),
        ({}, sp.csr_array, DataError, "projection"),
        ({"colluding": 4}, None, TrustError, "work together"),
    ],
)
def test_what_no_private_run_takes(others, change, error, words):
    data, _ = blobs()
    if change is not None:
        data = {cid: change(X) for cid, X in data.items()}
    with pytest.raises(error, match=words):
        FMTC(3, privacy=Privacy(**{"epsilon": 8, "bounds": BOX, **others}), random_state=0).fit(data)


def test_two_silos_hide_nothing():
    data, _ = blobs(m=2)
    with pytest.raises(InputError, match="at least 3"):
        FMTC(3, privacy=Privacy(8, bounds=BOX), random_state=0).fit(data)


def test_noise_is_what_makes_it_private():
    data, _ = blobs()
    with pytest.raises(TrustError, match="finite epsilon"):
        FMTC(3, privacy=Privacy(float("inf"), bounds=BOX), random_state=0).fit(data)


def test_a_stage_is_answered_once():
    data, _ = blobs(m=3)
    given = settings()
    transport = LocalTransport(data, given, method=private.METHOD)
    run(transport, given, method=private.METHOD)
    node = transport.nodes["s0"]
    ask = private.State(mean=np.zeros(5))
    with pytest.raises((LimitError, TrustError, RefusedError)):
        node.answer(Message("radius", ask, 0, 0, 1))
    fresh = LocalTransport(data, given, method=private.PLAIN).nodes["s0"]
    fresh.answer(Message("radius", ask))
    with pytest.raises(LimitError, match="at most 1"):
        fresh.answer(Message("radius", replace(ask, mean=np.ones(5))))


@pytest.mark.parametrize("method", ["anchors", "mixture"])
def test_all_that_a_silo_ever_answers_in_a_run_costs_its_epsilon(method):
    """A server that asks for every stage there is gets those of one kind only."""
    data, _ = blobs(m=1)
    given = settings(epsilon=2.0, method=method)
    node = LocalTransport(data, given, method=private.PLAIN).nodes["s0"]
    state = private.State(
        mean=np.zeros(5), radius=0.5, basis=np.eye(5)[:, :3], size=0.5, centers=0.3 * np.eye(3), precision=np.eye(3),
        shares=np.full(3, 1 / 3),
    )  # fmt: skip
    spent = 0.0
    for phase in private.PLAIN.phases:
        if isinstance(phase, private.StagePhase):
            for turn in range(2):
                ask = replace(state, mean=state.mean + turn)
                try:
                    node.answer(Message(phase.name, ask, int(phase in private.LOOPS), 0, turn))
                except (LimitError, RefusedError):
                    continue
                spent += phase.charge(given)
    assert epsilon_of(sqrt(spent), 1e-5) == pytest.approx(2.0, rel=1e-6)


def test_an_odd_question_is_refused():
    data, _ = blobs(m=3)
    node = LocalTransport(data, settings(), method=private.PLAIN).nodes["s0"]
    for phase, ask in [
        ("gram", private.State(mean=np.zeros(5))),
        ("radius", private.State(mean=np.full(5, np.nan))),
        ("radius", private.State(mean=np.zeros(4))),
        ("links", private.State()),
        ("hello", private.State()),
    ]:
        with pytest.raises(RefusedError):
            node.answer(Message(phase, ask))


def test_a_silo_that_fails_ends_the_run():
    data, _ = blobs(m=3)
    given = settings()
    transport = LocalTransport(data, given, method=private.METHOD)
    transport.nodes["s1"].answer = lambda *a, **b: (_ for _ in ()).throw(MemoryError())
    with pytest.raises(ClientError, match="MemoryError"):
        run(transport, given, method=private.METHOD)


def test_the_method_is_registered_and_settings_travel_as_json():
    assert method_of("fmtc-private") is private.METHOD
    assert not [name for name in METHODS if method_of(name) is private.PLAIN]  # no federation can ask for it
    assert view_method("auto", Privacy(1, bounds=BOX)) is private.METHOD
    given = settings(rows=5000)
    document = json.loads(json.dumps(jsonable(asdict(given))))
    assert private.METHOD.settings_type(**document) == given
    many = Settings(n_clusters=2, privacy=Privacy(1, bounds=([0, 1], [2, 3])))
    assert private.METHOD.settings_type(**json.loads(json.dumps(jsonable(asdict(many))))) == many


def test_noise_comes_from_the_sampler(monkeypatch):
    """Take the sampler away and nothing leaves."""
    data, _ = blobs(m=3)
    given = settings()
    drawn = []

    def draw(sd, size):
        drawn.append((sd, size))
        return np.zeros(size, np.int64)

    monkeypatch.setattr(keys.Keys.seal, "__defaults__", ("", draw))
    run(LocalTransport(data, given, method=private.METHOD), given, method=private.METHOD)
    assert len(drawn) == 3 * 7 and min(sd for sd, _ in drawn) > 2**20
