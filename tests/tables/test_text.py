"""Texts in silos: hashed words, weights found by all silos together, and models that read raw texts."""

import json
from collections import Counter
from dataclasses import asdict, replace
from hashlib import sha256

import numpy as np
import onnxruntime
import polars as pl
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from tests.views import graph_view

import fmtc
from fmtc import FMTC, cli
from fmtc.artifacts.files import read_tensors, write_tensors
from fmtc.artifacts.onnx import export_onnx
from fmtc.errors import DataError, FileError, InputError, RefusedError
from fmtc.models import base
from fmtc.protocol.base import pack
from fmtc.protocol.units import RESCALE
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings
from fmtc.tables import Reading, TextRecipe, hashed_counts, read_silos

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

TOPICS = [
    words.split()
    for words in (
        "ship harbour wave sailor anchor tide storm captain deck sail",
        "cow barn field tractor harvest wheat milk fence plough seed",
        "tram street tower traffic office cafe museum bridge lamp crowd",
    )
]
TOPIC_WORDS = [word for words in TOPICS for word in words]
COMMON = ["the", "and", "with"]


def documents(n, seed):
    """Texts about one topic each, with common words, capitals, signs and words that occur once; and their topics."""
    rng = np.random.default_rng(seed)
    topics = rng.permutation(np.arange(n) % 3)
    texts = []
    for i, topic in enumerate(topics):
        own = rng.choice(TOPICS[topic], size=rng.integers(5, 12))
        words = rng.permutation([*own, *COMMON, rng.choice(TOPICS[0]), f"once{seed}x{i}"])
        texts.append(", ".join(words).capitalize() + "! A 7 b.")
    return texts, topics


SILOS = {name: documents(n, seed) for seed, (name, n) in enumerate({"north": 60, "south": 40, "west": 45}.items())}
TEXTS = {name: texts for name, (texts, _) in SILOS.items()}
BUCKETS = 4096
DATA = {name: hashed_counts(texts, "salt", BUCKETS) for name, texts in TEXTS.items()}
UNION = sp.csr_array(sp.vstack(list(DATA.values())))
SETTINGS = Settings(3, scale="tfidf", max_iter=4, max_features=30, n_init=2)


def short(**params):
    return graph_view(
        3, **{"scale": "tfidf", "random_state": 0, "max_iter": 6, "max_features": 30, "n_init": 3} | params
    )


# -------------------------------------------------------------------------------------------------------- hashing


def test_words_are_those_of_scikit_learn_and_counts_are_dampened():
    texts = ["The cat; the CAT and the dog_1", "a b c", "", None, "Über-Größe 42 4"]
    X = hashed_counts(texts, "s", 2**20)
    assert isinstance(X, sp.csr_array)
    assert (X.shape, X.dtype) == ((5, 2**20), np.float64)
    counts = CountVectorizer().fit_transform(text or "" for text in texts)
    for row in range(5):
        expected = 1 + np.log(counts[[row]].data)
        assert_allclose(np.sort(X[[row]].data), np.sort(expected), rtol=1e-15)
    assert_array_equal(np.diff(X.indptr), [4, 0, 0, 0, 3])
    small = hashed_counts(texts, "s", 2)  # words that meet in a bucket are counted together
    assert_allclose(np.exp(small[[0]].data - 1).sum(), 7)


def test_a_word_has_the_same_bucket_everywhere_and_another_under_another_salt():
    one, same, other = (hashed_counts([text], salt, 2**20) for text, salt in
                        (("harbour", "s"), ("the HARBOUR", "s"), ("harbour", "t")))  # fmt: skip
    assert set(one.indices) < set(same.indices)
    assert set(one.indices) != set(other.indices)


def test_another_salt_permutes_the_buckets():
    place = {salt: hashed_counts(TOPIC_WORDS, salt, 2**18).indices for salt in ("s", "t")}
    assert len(set(place["s"])) == len(set(place["t"])) == len(TOPIC_WORDS)  # no two words meet
    one, other = (hashed_counts(TEXTS["north"], salt, 2**18)[:, place[salt]].toarray() for salt in ("s", "t"))
    assert_array_equal(one, other)  # the same columns elsewhere
    assert np.mean(place["s"] == place["t"]) < 0.1


def test_models_do_not_depend_on_the_salt():
    labels = [short().fit({name: hashed_counts(texts, salt) for name, texts in TEXTS.items()}).labels_
              for salt in ("s", "t")]  # fmt: skip
    assert_array_equal(*labels)


@pytest.mark.parametrize("n_buckets", [0, -1, 2**31, 1.5, True])
def test_buckets_are_a_whole_number(n_buckets):
    with pytest.raises(InputError, match=r"n_buckets .*2.*31"):
        hashed_counts(["a word"], "s", n_buckets)


# --------------------------------------------------------------------------------------------------------- tf-idf


def by_hand(union, max_features):
    """Column choice and weights by scikit-learn and plain counting."""
    n = union.shape[0]
    counts = Counter(union.nonzero()[1].tolist())
    able = sorted((column for column, c in counts.items() if 2 <= c <= n / 2), key=lambda c: (-counts[c], c))
    keep = sorted(able[:max_features])
    return np.array(keep), TfidfTransformer(sublinear_tf=False).fit(union[:, keep])


@pytest.mark.parametrize("wrap", [lambda X: X, lambda X: X.toarray(), lambda X: X.astype(np.float32)],
                         ids=["sparse", "dense", "float32"])  # fmt: skip
@pytest.mark.parametrize("max_features", [10, 30, 2000])
def test_weights_found_together_are_those_of_scikit_learn_on_the_union(max_features, wrap):
    settings = replace(SETTINGS, max_features=max_features)
    keep, expected = by_hand(UNION, max_features)
    assert len(keep) == max_features or (max_features == 2000 and 25 < len(keep) < 40)
    transport = LocalTransport({name: wrap(X) for name, X in DATA.items()}, settings)
    result = fmtc.runtime.driver.run(transport, settings)
    assert_array_equal(result.server.scaling.keep, keep)
    assert_allclose(1 / result.server.scaling.stretch, expected.idf_, rtol=1e-12)
    for name, client in transport.clients.items():
        S = client.rows.X
        assert sp.issparse(S) == sp.issparse(wrap(DATA[name]))
        assert S.dtype == client.F.dtype == client.model.W.dtype == wrap(DATA[name]).dtype
        found = S.toarray() if sp.issparse(S) else S
        exact = 1e-12 if S.dtype == np.float64 else 1e-6
        assert_allclose(found, expected.transform(DATA[name][:, keep]).toarray(), rtol=0, atol=exact)
        assert client.rows.mean is None
        assert client.model.W.shape == (len(keep), 3)
        assert client.X.shape[1] == BUCKETS


def test_ties_go_to_the_first_columns(play):
    rng = np.random.default_rng(0)
    X = np.zeros((20, 8))
    for column, count in enumerate([3, 1, 3, 12, 5, 3, 10, 0]):  # 12 of 20 is too common, 1 too rare
        X[rng.permutation(20)[:count], column] = 1
    keep = {}
    for k in (1, 2, 3, 4, 99):
        game = play({"a": X}, replace(SETTINGS, max_features=k))
        game.phase("moments")
        keep[k] = game.server.scaling.keep.tolist()
    assert keep == {1: [6], 2: [4, 6], 3: [0, 4, 6], 4: [0, 2, 4, 6], 99: [0, 2, 4, 5, 6]}


def test_labels_and_topics():
    for data in (DATA, {name: X.toarray() for name, X in DATA.items()}):
        model = short().fit(data)
        assert_array_equal(np.concatenate(list(model.predict(data).values())), model.labels_)
        truth = np.concatenate([topics for _, topics in SILOS.values()])
        assert fmtc.metrics.clustering_accuracy(truth, model.labels_) > 0.9
        assert model.n_features_in_ == BUCKETS
        assert model.consensus_.shape == (30, 3, 3)
        assert 0.5 < model.score(data) <= 1
    texts, topics = documents(50, 9)
    new = hashed_counts(texts, "salt", BUCKETS)
    found = model.predict(new, silos="west")
    assert fmtc.metrics.clustering_accuracy(topics, found) > 0.9
    assert_array_equal(model.predict(7 * new, silos="west"), found)  # the length of a row does not matter
    assert_allclose(model.predict_proba(7 * new, silos="west"), model.predict_proba(new, silos="west"), atol=1e-12)


def test_answers_do_not_depend_on_the_size_of_a_block(monkeypatch):
    X = DATA["north"].toarray()
    model = short(max_iter=2).fit(X)
    calls = (model.predict, model.transform, model.predict_proba)
    whole = [call(X) for call in calls]
    monkeypatch.setattr(base, "BLOCK", 7)
    for call, answer in zip(calls, whole, strict=True):
        assert_allclose(call(X), answer, rtol=0, atol=1e-13)


def test_scores_are_those_of_weighted_rows():
    model = short().fit(DATA)
    keep, expected = by_hand(UNION, 30)
    weighted = {name: sp.csr_array(expected.transform(X[:, keep])) for name, X in DATA.items()}
    shares = {"coupling": "average", "kappa": float("inf")}  # what rows that come as they are do not get by themselves
    other = short(scale="none", **shares).fit(weighted)
    assert_array_equal(model.labels_, other.labels_)
    assert model.score(DATA) == pytest.approx(other.score(weighted), rel=1e-9)
    for name in DATA:
        assert_allclose(model.projections_[name], other.projections_[name] * expected.idf_[:, None], atol=1e-9)


def test_texts_without_words():
    data = DATA | {"south": hashed_counts([*TEXTS["south"], None, "", "zyzzyva"], "salt", BUCKETS)}
    model = short().fit(data)
    assert_array_equal(model.predict(data)["south"], model.labels_[60:103])
    assert_array_equal(model.labels_[-48:-45], [0, 0, 0])  # nothing to go by: cluster 0
    assert np.isfinite(model.predict_proba(data)["south"]).all()


def test_saved_and_exported_models_keep_their_columns(tmp_path):
    model = short().fit(DATA)
    again = fmtc.load(model.save(tmp_path / "m"))
    for call in ("predict", "transform", "predict_proba"):
        for name in DATA:
            assert getattr(again, call)(DATA)[name].tobytes() == getattr(model, call)(DATA)[name].tobytes()
    assert again.score(DATA) == model.score(DATA)
    assert (again.n_features_in_, again.graph.max_features) == (BUCKETS, 30)
    for dtype in (np.float32, np.float64):
        path = export_onnx(model, "west", tmp_path / "west.onnx", dtype=dtype)
        rows = DATA["west"].toarray().astype(dtype)
        found, P = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"X": rows})
        assert_array_equal(found, model.predict(DATA["west"], silos="west"))
        assert_allclose(P, model.predict_proba(DATA["west"], silos="west"), atol=1e-4)


@pytest.mark.parametrize("keep", [np.arange(30) - 1, np.arange(30) + BUCKETS - 29, np.arange(30.0), np.arange(29)])
def test_a_saved_model_with_other_columns_is_refused(keep, tmp_path):
    folder = short(max_iter=1).fit(DATA).save(tmp_path / "m")
    arrays, about = read_tensors(folder / "west.safetensors")
    write_tensors(folder / "west.safetensors", arrays | {"keep": keep}, about)
    with pytest.raises(FileError, match=r"west\.safetensors"):
        fmtc.load(folder)
    about = json.loads((folder / "model.json").read_text())
    about["clients"]["west"]["sha256"] = sha256((folder / "west.safetensors").read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(FileError, match=r"west\.safetensors .*(4096|29) features"):
        fmtc.load(folder)


def test_crash_and_resume(tmp_path):
    class PowerCutError(Exception):
        pass

    def lightning(record):
        if record.round_no == 2:
            raise PowerCutError

    plain = short().fit(DATA)
    with pytest.raises(PowerCutError):
        short().fit(DATA, checkpoint=tmp_path, callbacks=[lightning])
    resumed = short().fit(DATA, checkpoint=tmp_path, resume=True)
    assert resumed.embedding_.tobytes() == plain.embedding_.tobytes()
    assert_array_equal(resumed.labels_, plain.labels_)
    for name in DATA:
        assert resumed.projections_[name].tobytes() == plain.projections_[name].tobytes()


# ------------------------------------------------------------------------------------------- messages and refusals


def test_what_is_said_about_words(play):
    game = play(DATA, SETTINGS)
    answers = game.ask("moments")
    for name, answer in answers.items():
        assert set(pack(answer)) == {"n_samples", "document_counts"}
        assert_array_equal(answer.document_counts, np.count_nonzero(DATA[name].toarray(), axis=0))
    game.reduce("moments", answers)
    assert set(pack(game.asks("rescale")["north"])) == {"stretch", "keep"}
    zeros = sp.csr_array((np.array([1.0, 0.0]), np.array([0, 1]), np.array([0, 2, 2, 2, 2])), shape=(4, 3))
    answer = play({"z": zeros}, SETTINGS).ask("moments")["z"]
    assert_array_equal(answer.document_counts, [1, 0, 0])  # a zero that is written down is no word


def test_rows_must_be_counts():
    for X in (-DATA["west"], -DATA["west"].toarray()):
        with pytest.raises(DataError, match=r"'west' .*tfidf"):
            short().fit(DATA | {"west": X} if sp.issparse(X) else {"west": X})


def test_rows_of_unit_length_are_not_centred():
    Settings(3, scale="tfidf", center_features=False)
    with pytest.raises(ValueError, match=r"center_features .*tfidf"):
        Settings(3, scale="tfidf", center_features=True)


def test_no_word_left():
    with pytest.raises(DataError, match=r"4 columns .*20 "):
        FMTC(2, scale="tfidf", random_state=0).fit(1.0 + np.arange(80).reshape(20, 4))  # all words in all rows


def test_clients_of_other_columns_are_refused():
    with pytest.raises(DataError, match=r"'north' .*4096.*'west' .*4000"):
        fmtc.runtime.driver.run(LocalTransport(DATA | {"west": DATA["west"][:, :4000]}, SETTINGS), SETTINGS)


@pytest.mark.parametrize(
    "wrong",
    [{"keep": np.array([3, 1])}, {"keep": np.array([1, 1])}, {"keep": np.array([-1, 1])},
     {"keep": np.array([1, BUCKETS])}, {"keep": np.arange(3)}, {"stretch": np.array([1.0, 0.0])}],
    ids=["order", "twice", "below", "beyond", "more", "zero"],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused(wrong):
    right = RESCALE.Ask(keep=np.array([1, 3]), stretch=np.ones(2))
    RESCALE.check_ask(right, {"D": BUCKETS})
    with pytest.raises(RefusedError):
        RESCALE.check_ask(replace(right, **wrong), {"D": BUCKETS})


def test_words_need_columns(play):
    """Which the declaration cannot know: other scales keep all columns."""
    ask = RESCALE.Ask(stretch=np.ones(2))
    RESCALE.check_ask(ask, {"D": BUCKETS})
    with pytest.raises(RefusedError):
        play({"a": DATA["west"]}, SETTINGS).ask("rescale", {"a": ask})


# ----------------------------------------------------------------------------------------------------------- files


def frame(name):
    texts, topics = SILOS[name]
    columns = {"id": [f"{name}-{i}" for i in range(len(texts))], "note": [*texts[:-1], None], "topic": topics}
    return pl.DataFrame(columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for name in SILOS:
        frame(name).write_csv(folder / f"{name}.csv")
        frame(name).write_parquet(folder / f"{name}.parquet")
    both = [frame(name).with_columns(pl.lit(name).alias("site")) for name in SILOS]
    pl.concat(both).sample(fraction=1, shuffle=True, seed=0).write_csv(folder / "all.csv")
    return folder


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_texts_are_read_from_a_column(folder, suffix):
    paths = [folder / f"{name}.{suffix}" for name in SILOS]
    roles = {"id_column": "id", "label_column": "topic"}
    silos = read_silos(paths, Reading(text_column="note", salt="s", n_buckets=512, **roles))
    for silo in silos:
        expected = hashed_counts([*TEXTS[silo.name][:-1], None], "s", 512)
        assert_array_equal(silo.X.toarray(), expected.toarray())
        assert (silo.feature_names, len(silo.ids), len(silo.labels)) == (None, len(silo.rows), len(silo.rows))
    (silo,) = read_silos(paths[:1], Reading(text_column="note", drop=["id", "topic"]))
    assert silo.X.shape == (60, 2**18)
    assert_array_equal(silo.X.indices, hashed_counts([*TEXTS["north"][:-1], None]).indices)


def test_texts_of_all_silos_in_one_file(folder):
    silos = read_silos([folder / "all.csv"], Reading(silo_column="site", text_column="note", drop=["id", "topic"]))
    assert sorted(silo.name for silo in silos) == sorted(SILOS)
    rows = pl.read_csv(folder / "all.csv")["note"].to_list()
    for silo in silos:
        assert_array_equal(silo.X.toarray().nonzero(), hashed_counts([rows[r] for r in silo.rows]).toarray().nonzero())


@pytest.mark.parametrize(
    ("options", "mentioned"),
    [
        ({}, "'north' .*'id', 'topic' .*'note'.*`drop`"),
        ({"id_column": "id"}, "'north' .*'topic' .*'note'"),
        ({"text_column": "notes"}, r"`text_column`: north\.csv .*'notes'.*'note'"),
    ],
)
def test_other_columns_beside_texts_are_refused(folder, options, mentioned):
    with pytest.raises(DataError, match=mentioned):
        read_silos([folder / "north.csv"], Reading(**{"text_column": "note"} | options))


def test_a_matrix_has_no_column_of_texts(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    with pytest.raises(DataError, match=r"a\.npy .*`text_column`"):
        read_silos([tmp_path / "a.npy"], Reading(text_column="note"))


# ----------------------------------------------------------------------------------------------- the command line


def fmtc_run(*args):
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
    return CliRunner().invoke(cli.main_group, [str(a) for a in args], prog_name="fmtc", env=plain)


def fmtc_ok(*args):
    done = fmtc_run(*args)
    assert done.exit_code == 0, done.output
    return done


ROLES = ("--id-column", "id", "--label-column", "topic")
FEW = ("--max-iter", 6, "--set", "n_init=2")


@pytest.fixture(scope="module")
def run(folder):
    files = [folder / f"{name}.csv" for name in SILOS]
    fmtc_ok("fit", *files, "-k", 3, "--text-column", "note", *ROLES, *FEW, "--out", folder / "run")
    return folder / "run"


def test_fit_and_predict_texts(folder, run):
    """The model labels the file it was fitted on as it did then, and other files with other names of columns."""
    report = json.loads((run / "report.json").read_text())
    assert report["settings"]["scale"] == "tfidf"
    assert report["mean"]["acc"] > 0.9
    assert report["notes"] == []  # 262,144 columns, most of them empty, are nothing to speak of
    model = fmtc.load(run / "model")
    assert model.text_recipe_ == TextRecipe("note")
    assert json.loads((run / "model" / "model.json").read_text())["text"] == asdict(TextRecipe("note"))
    for name in SILOS:
        path = folder / f"{name}.csv"
        told = fmtc_ok("predict", run, path, "--silo", name, *ROLES, "--out", folder / "new.csv", "--force")
        assert told.stdout == ""
        found, then = pl.read_csv(folder / "new.csv"), pl.read_csv(run / "labels" / f"{name}.csv")
        assert found.equals(then)
    frame("west").rename({"note": "text"}).write_csv(folder / "west2.csv")
    done = fmtc_ok("predict", run, folder / "west2.csv", "--silo", "west", "--text-column", "text", *ROLES)
    assert done.stdout == (run / "labels" / "west.csv").read_text()


def test_what_inspect_says_of_a_model_of_texts(run):
    assert "texts in column 'note'" in fmtc_ok("explain", "--show", "model", run).stdout
    about = json.loads(fmtc_ok("explain", "--show", "model", run, "--json").stdout)
    assert about["text"]["text_column"] == "note"
    assert about["n_features"] == 2**18
    model = fmtc.load(run / "model")._models["west"]
    assert set(hashed_counts(["ship", "cow", "tram"]).indices) <= set(model.keep)
    top = about["silos"]["west"]["top_features"]
    weights = model.centers @ (model.W * model.stretch[:, None]).T  # in the units of weighted words
    for j, marks in enumerate(top):
        assert_allclose([abs(mark["weight"]) for mark in marks], -np.sort(-np.abs(weights[j]))[:4], rtol=1e-12)
    marks = {mark["feature"] for cluster in top for mark in cluster}
    assert marks <= {f"column {j}" for j in hashed_counts(TOPIC_WORDS).indices}


def test_another_scale_for_texts(folder):
    files = [folder / f"{name}.csv" for name in SILOS]
    (folder / "c.toml").write_text('[fit]\ntext_column = "note"\nmax_iter = 1\nscale = "none"\nview = "graph"\n')
    fmtc_ok("fit", *files, "-k", 3, *ROLES, "--config", folder / "c.toml", "--set", "n_init=1", "--out",
            folder / "plain")  # fmt: skip
    assert fmtc.load(folder / "plain" / "model").text_recipe_ == TextRecipe("note")
    assert fmtc.load(folder / "plain" / "model").scale == "none"


def test_refusals_of_the_command_line(folder, run, tmp_path):
    done = fmtc_run("fit", folder / "west.csv", "-k", 3, "--text-column", "note", "--out", tmp_path / "r")
    assert done.exit_code == 3
    assert "'note'" in done.stderr
    assert "--drop" in done.stderr
    done = fmtc_run("predict", run, folder / "west.csv", "--silo", "west")
    assert done.exit_code == 3
    assert "'note'" in done.stderr
    assert "--drop" in done.stderr
    np.save(tmp_path / "n.npy", np.random.default_rng(0).normal(size=(30, 2)))
    fmtc_ok("fit", tmp_path / "n.npy", "-k", 2, "--max-iter", 1, "--out", tmp_path / "numbers")
    done = fmtc_run("predict", tmp_path / "numbers", folder / "west.csv", "--text-column", "note")
    assert done.exit_code == 2
    assert "2 columns" in done.stderr


def test_a_recipe_belongs_to_the_rows_it_was_made_for(run):
    model = fmtc.load(run / "model")
    model.fit(DATA)
    assert not hasattr(model, "text_recipe_")
