"""What a cluster is: differences of rows, in the table's own units."""

import json
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from numpy.testing import assert_allclose
from tests.views import FEW

from fmtc import FMTC, Graph
from fmtc.artifacts import runs
from fmtc.cli import main_group
from fmtc.demo import Gain
from fmtc.describe import Cluster, Difference, Explanation, Features
from fmtc.describe.clusters import explain_silos
from fmtc.describe.words import HASHED, UNMATCHED, percents
from fmtc.errors import DataError, FileError
from fmtc.schema import Column, Schema
from fmtc.tables import Reading, column_words, hashed_counts, read_texts


def explain(X, y, *, schema=None, feature_names=None, names=None):
    """What the clusters of one silo are."""
    return explain_silos({"all": X}, {"all": y}, Features.of(schema, feature_names), names=names)


def table(rng, n=400):
    """Rows with holes: three clusters, of which two differ in two numbers and one category."""
    y = rng.integers(3, size=n)
    age = rng.normal(60, 10, n) + 25 * (y == 0)
    rate = rng.normal(150, 20, n) - 30 * (y == 1)
    noise = rng.normal(size=n)
    sex = (rng.random(n) < np.choose(y, [0.9, 0.5, 0.5])).astype(float)
    X = np.column_stack([age, rate, noise, sex])
    X[rng.random(X.shape) < 0.1] = np.nan
    schema = Schema(
        (Column("age", unit="years"), Column("rate"), Column("noise"), Column("sex", "category", ("female", "male")))
    )
    return X, y, schema


def test_numbers_and_shares_are_those_of_the_known_cells(rng):
    X, y, schema = table(rng)
    found = explain(X, y, schema=schema)
    for cluster in found.clusters:
        assert cluster.rows == (y == cluster.cluster).sum()
        for one in cluster.differences:
            j = schema.names.index(one.column)
            values = X[:, j] if one.kind == "number" else np.where(np.isnan(X[:, j]), np.nan, X[:, j] == 1)
            sign = 1 if one.level in ("", "male") else -1
            own, rest = np.nanmean(values[y == cluster.cluster]), np.nanmean(values[y != cluster.cluster])
            if sign < 0:
                own, rest = 1 - own, 1 - rest
            assert_allclose([one.inside, one.outside], [own, rest])
            assert_allclose(one.effect, (own - rest) / np.nanstd(values))
    assert [one.column for one in found.clusters[0].differences][:2] in (["age", "sex"], ["age", "rate"])
    assert {one.column for one in found.clusters[1].differences} <= {"age", "rate", "sex"}
    assert {one.level for cluster in found.clusters for one in cluster.differences if one.effect < 0} == {""}
    assert {(c.cluster, one.level) for c in found.clusters for one in c.differences if one.level} >= {(0, "male")}
    assert found.names[0].startswith("high age")
    assert found.names[1].startswith("low rate")
    assert "noise" not in str(found)


@pytest.mark.parametrize("seed", range(6))
def test_no_sign_is_backwards(seed):
    """Columns that hang together: weights of a model have the wrong sign for some of them, differences have not."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 12)) @ rng.normal(size=(12, 12))
    model = FMTC(4, random_state=0, scale="silo", mixture=FEW).fit(X)
    for cluster in model.explain(X).clusters:
        mine = model.labels_ == cluster.cluster
        for one in cluster.differences:
            j = int(one.column.removeprefix("column "))
            assert one.effect * (X[mine, j].mean() - X[~mine, j].mean()) > 0
            assert one.short.startswith("high" if one.effect > 0 else "low")


def test_histograms_count_every_known_row(rng):
    X, y, schema = table(rng)
    for cluster in explain(X, y, schema=schema).clusters:
        for one in cluster.differences:
            known = np.isfinite(X[:, schema.names.index(one.column)])
            assert sum(one.histogram.inside) == (known & (y == cluster.cluster)).sum()
            assert sum(one.histogram.outside) == (known & (y != cluster.cluster)).sum()
            if one.kind == "category":
                assert one.histogram.levels == ("female", "male")
            else:
                assert len(one.histogram.edges) == len(one.histogram.inside) + 1 == 13
                assert (np.diff(one.histogram.edges) > 0).all()


def test_few_values_have_a_bin_each(rng):
    y = np.repeat([0, 1], 50)
    X = np.column_stack([y + rng.integers(2, size=100), rng.normal(size=100)]).astype(float)
    (first, *_) = explain(X, y, feature_names=["grade", "noise"]).clusters[0].differences
    counts = [int((X[y == 0, 0] == value).sum()) for value in (0, 1, 2)]
    assert list(first.histogram.inside) == counts
    assert (first.histogram.edges[0], first.histogram.edges[-1]) == (0, 2)


def test_a_cluster_of_four_rows_is_neither_counted_nor_described(rng):
    X = rng.normal(size=(60, 2))
    y = np.repeat([0, 1, 2], [30, 26, 4])
    X[y == 2] += 50
    found = explain(X, y)
    small = found.clusters[2]
    assert (small.size, small.differences, small.name) == ("< 5", (), "")
    assert "cluster 2, < 5 rows (7 %)" in str(found)
    assert "&lt; 5" in found._repr_html_()
    assert explain(X, np.repeat([0, 1, 2], [30, 25, 5])).clusters[2].differences


def test_a_shift_between_silos_is_not_one_between_clusters(rng):
    """South has higher values and more of cluster 1, which is low everywhere: pooled rows would say the opposite."""
    y = {"north": np.repeat([0, 1], [90, 10]), "south": np.repeat([0, 1], [10, 90])}
    rows = {
        name: np.column_stack([level - 2.0 * y[name] + rng.normal(size=100), rng.normal(size=100)])
        for name, level in (("north", 0.0), ("south", 20.0))
    }
    found = explain_silos(rows, y, Features(["value", "noise"]))
    pooled = explain(np.vstack(list(rows.values())), np.concatenate(list(y.values())), feature_names=["value", "noise"])
    assert pooled.names[1] == "high value"
    assert found.names[1] == "low value"
    one = found.clusters[1].differences[0]
    assert_allclose(one.inside - one.outside, -2, atol=0.6)
    assert found.of("south")[1].rows == 90
    with pytest.raises(DataError, match="'east'"):
        found.of("east")


def _said(name):
    """What a name claims: of each column, or level of one, whether the cluster has more of it."""
    words = {"high": True, "mostly": True, "more": True, "low": False, "less": False, "hardly any": False}
    claims = {}
    for part in name.split(", "):
        for word, more in words.items():
            if part.startswith(f"{word} ") and not part.endswith("differs by silo"):
                claims[part.removeprefix(f"{word} ")] = more
    return claims


def _printed(lines):
    """Both numbers of each line, as they are printed: "a −60 against 0", "kind: x 83 % against 62 %"."""
    pairs = {}
    for line in lines:
        if " against " in line:
            before, _, outside = line.strip().partition(" against ")
            *what, inside = before.removesuffix(" %").removesuffix(" mg").rsplit(" ", 1)
            what = " ".join(what).removesuffix(" <").replace(":", "")
            pairs[what] = [
                float(text.removesuffix(" %").removeprefix("< ").replace("−", "-").replace(",", ""))
                for text in (inside, outside)
            ]
    return pairs


def assert_names_agree(explanation):
    """No "high" beside a lower number: in the whole, and in each silo, whose numbers stand below the same name."""
    for own in (explanation.clusters, *explanation.silos.values()):
        for cluster, whole in zip(own, explanation.clusters, strict=True):
            assert cluster.name == whole.name
            printed = _printed(str(cluster).splitlines()[1:])
            for what, more in _said(cluster.words).items():
                inside, outside = printed.get(what, (more, not more))
                assert (inside >= outside) if more else (inside <= outside), str(cluster)


def federation(seed):
    """Silos with outliers, holes and codes in some; in one of them a column runs the other way."""
    rng = np.random.default_rng(seed)
    k, rows, labels = int(rng.integers(2, 4)), {}, {}
    centres = rng.normal(size=(k, 3)) * rng.uniform(0.3, 3)
    for name in "nsw"[: int(rng.integers(1, 4))]:
        y = rng.integers(k, size=int(rng.integers(20, 120)))
        X = centres[y] + rng.normal(size=(len(y), 3))
        if rng.random() < 0.4:
            X[:, 0] *= -1
        kind = rng.choice(3, size=len(y), p=rng.dirichlet(np.ones(3)))
        kind = np.where(rng.random(len(y)) < 0.5, (y + int(rng.integers(3))) % 3, kind)
        X = np.column_stack([X * rng.choice([1, 1, 1000]), kind])
        X[rng.random(X.shape) < 0.1 * rng.integers(2)] = np.nan
        if rng.random() < 0.6:
            there = rng.random(len(y)) < rng.uniform(0, 0.2)
            X[there & (y == rng.integers(k)), 0] = rng.choice([-999.0, 1e6, 99.0])
        rows[name], labels[name] = X, y
    return rows, labels


KINDS = Schema((Column("a", unit="mg"), Column("b"), Column("c"), Column("kind", "category", ("x", "y", "z"))))


def test_names_agree_with_the_numbers_beside_them():
    """A hundred federations: whatever is called high is not printed as lower, also where somebody renamed."""
    opposed = 0
    for seed in range(100):
        rows, labels = federation(seed)
        found = explain_silos(rows, labels, Features.of(KINDS, None))
        assert_names_agree(found)
        assert_names_agree(found.renamed({0: "low a"}).renamed({0: ""}))
        assert_names_agree(Explanation.from_dict(json.loads(json.dumps(found.to_dict()))))
        opposed += str(found).count("differs by silo")
    assert opposed > 6  # it does come up


@pytest.mark.parametrize("lower", [8, 0])
def test_a_code_left_in_one_silo_does_not_turn_a_name(lower):
    """−999 in twenty cells of west: the effect is that of the other silos, the mean is that of the code."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 100)
    rows = {name: np.column_stack([3.0 * y + rng.normal(size=200), rng.normal(size=200)]) for name in ("n", "s", "w")}
    rows["w"][:lower, 0] = rows["w"][100 : 120 - lower, 0] = -999
    found = explain_silos(rows, dict.fromkeys(rows, y), Features(["a", "b"]))
    assert [str(one.differences[0]) for one in found.clusters] == ["a differs by silo"] * 2
    assert [one.name for one in found.clusters] == ["a differs by silo"] * 2
    assert "high a" not in str(found) + found._repr_html_()
    assert found.of("n")[1].differences[0].short == "high a"  # there it is so


def test_a_direction_needs_silos_that_agree():
    """One is high in north and, clearly, low in south, so that no average says which; the other is the same in both."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    rows = {
        name: np.column_stack([sign * 4.0 * y + rng.normal(size=120), 2.0 * y + rng.normal(size=120)])
        for name, sign in (("north", 1.0), ("south", -0.3))
    }
    found = explain_silos(rows, dict.fromkeys(rows, y), Features(["b", "c"]))
    assert found.names == {0: "low c", 1: "high c"}
    assert {str(one.differences[-1]) for one in found.clusters} == {"b differs by silo"}
    assert {cluster.name for cluster in found.of("south")} == {"low c", "high c"}
    few = {"north": y, "south": np.where(np.arange(120) < 117, 0, 1)}  # south has three rows of cluster 1
    assert explain_silos(rows, few, Features(["b", "c"])).names[1].startswith("high b")


def test_a_number_that_means_something_else_is_found(rng):
    y = np.repeat([0, 1, 2], 40)
    centers = 4 * np.eye(3)
    rows = {name: centers[y] + rng.normal(size=(120, 3)) for name in "abc"}
    rows["d"] = centers[[1, 0, 2]][y] + rng.normal(size=(120, 3))
    likeness = explain_silos(rows, dict.fromkeys("abcd", y), Features()).likeness
    assert min(likeness["a"]) > 0.5 < likeness["d"][2]
    assert max(likeness["d"][:2]) < 0.3
    assert explain(rows["a"], y).likeness == {"all": (None, None, None)}
    two = explain_silos({name: rows[name] for name in "ad"}, dict.fromkeys("ad", y), Features()).likeness
    assert two["a"] == pytest.approx(two["d"])  # each with the other, and not with itself
    assert max(two["d"][:2]) < -0.2


def test_the_words_of_a_difference():
    say = lambda inside, outside: str(Difference("x", "number", inside, outside, 1.0))  # noqa: E731
    assert say(1115.7, 629.4) == "x 1,116 against 629"
    assert say(0.684, 1.062) == "x 0.68 against 1.06"
    assert say(-3.25, 4.0) == "x −3.2 against 4.0"
    assert say(0.000012, 0.000031) == "x 0.000012 against 0.000031"
    assert say(-0.04, 5.9) == "x 0.0 against 5.9"
    assert say(2e9, 1e9) == "x 2e+09 against 1e+09"
    level = lambda name, inside, effect: Difference("sex", "category", inside, 0.3, effect, level=name).short  # noqa: E731
    assert [level("male", 0.8, 1), level("male", 0.4, 1), level("male", 0.01, -1), level("male", 0.2, -1)] == [
        "mostly male", "more male", "hardly any male", "less male"]  # fmt: skip
    assert level("3", 0.8, 1) == "mostly sex 3"
    assert Difference("exang", "category", 0.8, 0.3, 1, level="yes").short == "mostly exang yes"
    assert Difference("a", "category", 0.001, 0.3, -1, level="b").values == "< 1 % against 30 %"
    assert str(Cluster(0, 1, 0.5)) == "cluster 0, < 5 rows (50 %)"


def test_two_clusters_with_the_same_name_get_more_words(rng):
    y = np.repeat([0, 1, 2, 3], 60)
    X = np.array([[9.0, 9, 1], [9, 9, -1], [0, 0, 0], [0, 0, 0]])[y] + rng.normal(size=(240, 3))
    names = explain(X, y, feature_names=["a", "b", "c"]).names
    assert (names[0][-6:], names[1][-5:]) == ("high c", "low c")
    assert set(names[2].split(", ")) == {"low a", "low b"}


def test_names_that_were_given_stay_and_everything_survives_json(rng):
    X, y, schema = table(rng)
    found = explain(X, y, schema=schema, names={1: "severe"})
    assert found.clusters[1].name == found.of("all")[1].name == "severe"
    assert found.clusters[1].words.startswith("low rate")
    assert Explanation.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.renamed({1: ""}).clusters[1].name.startswith("low rate")
    with pytest.raises(DataError, match="no cluster 7; clusters are 0 to 2"):
        found.renamed({7: "x"})


@pytest.mark.parametrize("seed", range(30))
def test_shares_add_up_as_printed(seed):
    """To 100, each within one of its own value; what is printed as "< 1 %" counts as none."""
    shares = np.random.default_rng(seed).dirichlet(np.full(2 + seed % 9, 0.5))
    numbers = np.array([0 if text == "< 1 %" else int(text.removesuffix(" %")) for text in percents(shares.tolist())])
    assert numbers.sum() == 100 and np.abs(numbers - 100 * shares).max() < 1
    y = np.repeat([0, 1, 2], [574, 423, 3])
    said = str(explain(np.column_stack([y, y]), y))
    assert [said.count(f"({text})") for text in ("58 %", "42 %", "< 1 %")] == [1, 1, 1]
    assert [change.points for change in (Gain("a", 9, 0.8851, 0.9049), Gain("b", 9, 0.8949, 0.8851))] == [1, 0]


def test_hostile_names_are_text_in_a_notebook(rng):
    X, y, _ = table(rng)
    shown = explain(X, y, feature_names=["<script>a", "b", "c", "d"], names={1: "<b>"})._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;a" in shown
    assert "&lt;b&gt;" in shown


def test_one_cluster_and_constant_columns_say_nothing(rng):
    X = np.column_stack([np.full(40, 1e9), rng.normal(size=40)])
    assert explain(X, np.zeros(40)).clusters[0].differences == ()
    told = explain(X, np.repeat([0, 1], 20)).clusters
    assert {one.column for cluster in told for one in cluster.differences} <= {"column 1"}
    X[:20] = np.nan  # nothing is known of cluster 0
    assert [cluster.differences for cluster in explain(X, np.repeat([0, 1], 20)).clusters] == [(), ()]


# ----------------------------------------------------------------------------------------------------------- sparse

TOPICS = [["fever", "cough", "throat", "cold", "pain"], ["bone", "fracture", "fall", "cast", "wrist"]]


def texts(rng, n=60):
    return [" ".join(["and", *rng.choice(TOPICS[i % 2], 4)]) for i in range(n)]


@pytest.mark.filterwarnings("ignore:the neighbour graph")
def test_texts_are_told_by_their_words(rng):
    notes = texts(rng)
    X = hashed_counts(notes)
    model = FMTC(2, scale="tfidf", random_state=0, mixture=FEW).fit(X)
    model.text_recipe_ = object()
    told = model._explained({"all": X}, {"all": model.labels_}, words=lambda columns: column_words(notes, columns))
    for cluster in told.clusters:
        topic = next(words for words in TOPICS if cluster.differences[0].column in words)
        assert {one.column for one in cluster.differences} == set(topic)
        assert all(one.outside == 0 < one.inside for one in cluster.differences)
        assert cluster.name == ", ".join(one.column for one in cluster.differences[:3])
    hashed = model.explain(X)  # a federation does not know its words
    assert hashed.notes == (HASHED,)
    assert hashed.names == {}
    assert not any(cluster.differences for cluster in hashed.clusters)


def test_columns_of_sparse_rows_are_compared_with_their_zeros(rng):
    y = np.repeat([0, 1], 100)
    X = rng.poisson(0.3, size=(200, 8000)).astype(float)
    X[y == 1, 7] += 2
    dense, sparse = explain(X, y), explain(sp.csr_array(X), y)
    first = sparse.clusters[1].differences[0]
    assert first.column == "column 7"
    assert_allclose([first.inside, first.outside], [X[y == 1, 7].mean(), X[y == 0, 7].mean()])
    assert dense.clusters[1].differences[0].effect == pytest.approx(first.effect)
    assert sum(first.histogram.inside) == 100


def test_words_of_columns_are_the_most_frequent_there():
    notes = ["aa bb aa", None, "bb cc"]
    columns = hashed_counts(notes, n_buckets=2).indices
    assert set(column_words(notes, columns, n_buckets=2).values()) <= {"aa", "bb", "cc"}
    assert column_words(["aa bb aa"], [0], n_buckets=1) == {0: "aa"}
    assert column_words(["aa"], [5], n_buckets=4096) == {}


# ------------------------------------------------------------------------------------------------------ the estimator


def test_rows_come_in_any_of_the_usual_ways(make_federation):
    data = make_federation()
    model = FMTC(3, max_iter=3, random_state=0, mixture=FEW).fit(data)
    by_mapping = model.explain(data)
    X, clients = np.vstack(list(data.values())), np.repeat(list(data), [len(rows) for rows in data.values()])
    shuffle = np.random.default_rng(0).permutation(len(X))
    assert model.explain(X[shuffle], silos=clients[shuffle]).silos.keys() == by_mapping.silos.keys()
    by_rows = model.explain(X[shuffle], silos=clients[shuffle])
    assert [one.rows for one in by_rows.clusters] == [one.rows for one in by_mapping.clusters]
    assert [one.rows for one in by_mapping.of("a")] == np.bincount(model.labels_[:60], minlength=3).tolist()
    framed = {name: pd.DataFrame(rows, columns=[f"lab {j}" for j in range(6)]) for name, rows in data.items()}
    named = FMTC(3, max_iter=3, random_state=0, mixture=FEW).fit(framed).explain(framed)
    assert named.clusters[0].differences[0].column.startswith("lab ")


def test_numbers_that_were_not_matched_are_said_to_be_so(make_federation):
    data = make_federation(m=2)
    assert FMTC(3, max_iter=2, graph=Graph(align=False)).fit(data).explain(data).notes == (UNMATCHED,)


def test_a_notebook_shows_silos_and_shares(make_federation):
    data = make_federation(m=2)
    data["<i>c"] = data.pop("b")
    model = FMTC(3, max_iter=2, random_state=0, mixture=FEW)
    before = model._repr_html_()
    shown = model.fit(data)._repr_html_()
    assert "sk-" in before and "sk-" not in shown  # scikit-learn's diagram, then ours
    assert model._repr_mimebundle_()["text/html"] == shown
    assert "<i>" not in shown and "&lt;i&gt;c" in shown
    for part in model._fitted.sizes.values():
        assert part.sum() == 60
        assert all(f"{100 * n / 60:.0f} %" in shown for n in part if n >= 5)
    assert "120 rows" in shown and model.run_.stopped_because in shown
    assert "sizes" not in repr(model)


# ------------------------------------------------------------------------------------------------------- command line


def fmtc_run(*args):
    return CliRunner().invoke(main_group, [str(a) for a in args], prog_name="fmtc", env={"NO_COLOR": "1"})


@pytest.fixture
def run(tmp_path, rng):
    """A run of two silos with ids, of two groups that differ in height."""
    for name in ("north", "south"):
        y = np.repeat([0, 1], [30, 20])
        frame = pl.DataFrame(
            {"id": [f"00{i}" for i in range(50)], "height": 170 + 20.0 * y, "noise": rng.normal(size=50)}
        )
        frame = frame.with_columns(height=pl.col("height") + rng.normal(size=50))
        frame.write_csv(tmp_path / f"{name}.csv")
    fit = ["fit", tmp_path / "north.csv", tmp_path / "south.csv", "--id-column", "id", "-k", 2, "--scale", "global"]
    done = fmtc_run(*fit, "--max-iter", 3, "--set", "n_init=2", "-q", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    return tmp_path / "run"


def test_explain_says_what_the_clusters_are(run):
    done = fmtc_run("explain", run)
    assert done.exit_code == 0, done.output
    assert "high height" in done.stdout and "low height" in done.stdout
    assert "190 against 170" in done.stdout
    assert "60 rows (60 %)" in done.stdout
    assert [line.split() for line in done.stdout.splitlines() if line.startswith("south")] == [
        ["south", "50", "60", "%", "40", "%"]
    ]
    alone = fmtc_run("explain", run, "--silo", "north").stdout
    assert "30 rows (60 %)" in alone and "share of each silo" not in alone
    assert fmtc_run("explain", run, "--silo", "east").exit_code == 3
    told = json.loads(fmtc_run("explain", run, "--json").stdout)
    assert [one["rows"] for one in told["clusters"]] == [60, 40]
    one_silo = json.loads(fmtc_run("explain", run, "--json", "--silo", "north").stdout)
    assert [one["rows"] for one in one_silo["clusters"]] == [30, 20]


def test_a_name_is_kept_and_used_everywhere(run):
    before = (run / "labels" / "north.csv").read_text()
    assert fmtc_run("explain", run, "--rename", "1=tall, or so").exit_code == 0
    once = pl.read_csv(run / "labels" / "north.csv")
    assert set(once["cluster_name"]) == {"low height", "tall, or so"}  # the other keeps the name that it has
    assert set(pl.read_csv(fmtc_run("explain", "--show", "labels", run).stdout.encode())["cluster_name"]) == {
        "low height",
        "tall, or so",
    }
    assert (
        "without a label" not in fmtc_run("explain", "--show", "labels", run).stderr
    )  # though only one cluster has a name
    assert fmtc_run("explain", run, "--rename", '0=<i>"short"').exit_code == 0
    assert "tall, or so" in fmtc_run("explain", run).stdout
    labels = pl.read_csv(run / "labels" / "north.csv", infer_schema=False)
    assert labels.columns == ["id", "cluster", "cluster_name", "probability"]
    assert labels["id"][0] == "000"  # as it was
    assert dict(zip(labels["cluster"], labels["cluster_name"], strict=True)) == {"0": '<i>"short"', "1": "tall, or so"}
    joined = fmtc_run("explain", run, "--join", run.parent / "north.csv").stdout.splitlines()
    assert joined[0] == "id,height,noise,cluster,cluster_name,probability"
    shown = fmtc_run("explain", "--show", "labels", run)
    assert shown.stdout.splitlines()[0] == "silo,id,cluster,cluster_name,probability"
    assert "without a label" not in shown.stderr
    assert fmtc_run("report", run).exit_code == 0
    page = (run / "report.html").read_text()
    assert "tall, or so" in page and "<i>" not in page
    assert fmtc_run("explain", run, "--rename", "0=", "--rename", "1=").exit_code == 0
    assert (run / "labels" / "north.csv").read_text() == before
    assert "low height" in fmtc_run("explain", run).stdout
    for wrong, code in (("severe", 2), ("2=x", 3), ("-1=x", 2), ("0=" + 81 * "x", 2), ("0=\x1b[31m", 2)):
        done = fmtc_run("explain", run, "--rename", wrong)
        assert done.exit_code == code, done.output
        assert len(done.stderr.splitlines()) <= 6


def test_fit_ends_with_what_the_clusters_are(tmp_path, rng):
    """Also where a column is called something that a terminal would obey."""
    X = np.repeat([[0.0], [9.0]], 30, axis=0) + rng.normal(size=(60, 1))
    frame = pl.DataFrame({"height\x1b[31m": X[:, 0], "noise": rng.normal(size=60)})
    frame.write_csv(tmp_path / "all.csv")
    done = fmtc_run("fit", tmp_path / "all.csv", "-k", 2, "--set", "n_init=2", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "cluster 0: high height[31m, 50 % of all rows" in done.stderr.replace("low", "high")
    assert f"fmtc explain {tmp_path / 'run'}" in done.stderr
    assert "\x1b" not in fmtc_run("explain", tmp_path / "run").stdout


def test_what_has_no_explanation_says_why(run, tmp_path):
    done = fmtc_run("explain", tmp_path)
    assert done.exit_code == 3
    assert "explanation.json" in done.stderr
    (run / runs.EXPLANATION).rename(tmp_path / "kept.json")
    done = fmtc_run("explain", run)
    assert done.exit_code == 3
    assert "older version" in done.stderr
    kept = json.loads((tmp_path / "kept.json").read_text())
    for broken in (
        [],
        kept | {"clusters": kept["clusters"][:1]},
        kept | {"silos": {}},
        kept | {"schema": 9},
        kept | {"notes": 3},
    ):
        (run / runs.EXPLANATION).write_text(json.dumps(broken))
        with pytest.raises(FileError, match=r"explanation\.json"):
            runs.read_explanation(run)


def test_texts_of_a_run_are_told_by_their_words(tmp_path, rng):
    pl.DataFrame({"notes": texts(rng), "site": ["a", "b"] * 30}).write_csv(tmp_path / "all.csv")
    fit = ["fit", tmp_path / "all.csv", "--silo-column", "site", "--text-column", "notes", "-k", 2]
    done = fmtc_run(*fit, "--set", "n_init=2", "-q", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert read_texts([tmp_path / "all.csv"], Reading(silo_column="site", text_column="notes"))[0].startswith("and ")
    told = fmtc_run("explain", tmp_path / "run").stdout
    assert "fever" in told or "fracture" in told
    assert "column " not in told


def test_explain_does_not_need_what_pages_need(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert fmtc_run("explain", run).exit_code == 0
