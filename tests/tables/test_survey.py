"""Comparing silos before a run: what is found and what is not, and that nothing but hashes and sums leaves a silo."""

import re
from dataclasses import asdict, replace

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from fmtc.errors import RefusedError
from fmtc.protocol.base import Nothing, pack, unpack
from fmtc.protocol.common import SURVEY, VERDICT
from fmtc.protocol.graph.opening import HELLO
from fmtc.schema import Column, Schema
from fmtc.tables import Columns, Finding, Reading, compare, explain, read_columns
from fmtc.tables.catalogue import CODES
from fmtc.tables.findings import LIMIT, SMALLEST, UNITS, Kind
from fmtc.tables.survey import as_numbers, from_verdict, survey

SALT = "a secret of the silos"


def people(seed, n=200):
    """A table of one silo: all of one kind, each silo a little different."""
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "height": rng.normal(170 + seed, 9, n),
            "weight": rng.normal(72 + seed, 11, n),
            "temperature": rng.normal(36.8, 0.4, n),
            "sex": rng.integers(0, 2, n).astype(float),
            "visits": rng.poisson(3, n).astype(float),
            "slope": rng.normal(0, 1.3, n),
        }
    )


def three(**changed):
    """Silos a, b and c, of which some are given."""
    return {name: people(seed) for seed, name in enumerate("abc")} | changed


def found(silos, **options):
    """Findings of tables or matrices."""
    said = {name: survey(Columns(content), SALT) for name, content in silos.items()}
    for about in said.values():
        SURVEY.check_answer(SURVEY.Answer(**asdict(about)), Nothing(), {})
    findings = compare(said, **options)
    for name, numbers in as_numbers(findings, silos).items():
        VERDICT.check_ask(VERDICT.Ask(findings=numbers), {"D": silos[name].shape[1]})
    return findings


def brief(findings):
    """Silo, code, column, number."""
    return [(f.silo, f.code, f.column, f.number) for f in findings]


def put(frame, name, rows, value):
    """The table with one value in some rows of a column."""
    return frame.with_columns(pl.Series(name, [value if i in rows else v for i, v in enumerate(frame[name])]))


def place(name):
    return people(0).columns.index(name)


# -------------------------------------------------------------------------------------------------- what is found


def test_silos_that_agree():
    assert found(three()) == []
    assert found({"a": people(0)}) == []


def test_a_column_that_one_silo_lacks():
    findings = found(three(b=people(1).drop("weight")))
    assert findings == [Finding("b", "lacks", "error", other="a", place=place("weight"))]
    (sentence,) = explain(findings, "b")
    assert "column 1" in sentence
    (sentence,) = explain(findings, "b", {"a": Columns(people(0))})
    assert "'weight'" in sentence
    assert found({name: frame.drop("weight") for name, frame in three().items()}) == []


def test_a_column_that_one_silo_alone_has():
    extra = people(2).with_columns(pl.lit(1.5).alias("dose") + pl.col("slope"))
    findings = found(three(c=extra))
    assert brief(findings) == [("c", "extra", 6, 1.0)]
    (sentence,) = explain(findings, "c", {"c": Columns(extra)})
    assert "'dose'" in sentence
    two = {name: frame.rename({"visits": "calls"}) for name, frame in three().items() if name != "a"}
    silos = three(**two) | {"d": people(3)}
    assert [(f.silo, f.code) for f in found(silos) if f.code == "extra"] == [(s, "extra") for s in "abcd"]
    assert any(re.search(r"column 4\b.* 2 ", sentence) for sentence in explain(found(silos), "a"))


def test_of_two_silos_both_are_told():
    findings = found({"a": people(0), "b": people(1).rename({"weight": "mass"})})
    assert [(f.silo, f.code) for f in findings] == [("a", "lacks"), ("a", "extra"), ("b", "lacks"), ("b", "extra")]


@pytest.mark.parametrize(("by_name", "severity"), [(True, "error"), (False, "note")])
def test_a_name_spelt_differently(by_name, severity):
    odd = people(1).rename({"height": " HEIGHT (!)"})
    findings = found(three(b=odd), by_name=by_name)
    assert findings == [Finding("b", "spelling", severity, 0, "a", 0)]
    (sentence,) = explain(findings, "b", {"a": Columns(people(0)), "b": Columns(odd)})
    assert "' HEIGHT (!)' for 'height'" in sentence
    assert [f.code for f in found(three(b=people(1).rename({"height": "heights"})))] == ["lacks", "extra"]


def test_names_much_alike_in_one_silo_are_two_columns():
    both = {name: frame.with_columns(pl.col("height").alias("Height")) for name, frame in three().items()}
    assert found(both) == []
    assert [(f.silo, f.code) for f in found(both | {"b": people(1)})] == [("b", "lacks")]


@pytest.mark.parametrize(("by_name", "severity"), [(True, "note"), (False, "error")])
def test_another_order(by_name, severity):
    names = people(0).columns
    names[1], names[4] = names[4], names[1]
    turned = people(2).select(names)
    findings = found(three(c=turned), by_name=by_name)
    assert findings == [Finding("c", "order", severity, 1, "a", 4), Finding("c", "order", severity, 4, "a", 1)]
    (sentence,) = explain(findings, "c", {"c": Columns(turned)})
    assert re.search(r"'visits' .*\b1\b.* 4; 'weight' .*\b4\b.* 1\b", sentence)
    assert ("run on files" in sentence) == by_name  # which reorders them
    assert found({name: frame.select(names) for name, frame in three().items()}) == []


def test_order_is_that_of_the_columns_all_have():
    extra = people(2).select(pl.lit(2.5).alias("new") + pl.col("slope"), pl.all())
    assert [f.code for f in found(three(c=extra))] == ["extra"]


def test_text_where_others_hold_numbers():
    words = people(0).with_columns(pl.Series("weight", ["72,5"] * 200))
    findings = found(three(a=words))
    assert brief(findings) == [("a", "text", 1, 2.0)]
    assert findings[0].severity == "error"
    assert "column 'weight' holds words (such as '72,5')" in explain(findings, "a", {"a": Columns(words)})[0]


def test_text_everywhere_and_other_types():
    silos = {name: frame.with_columns(pl.lit("low").alias("dose")) for name, frame in three().items()}
    assert brief(found(silos)) == [(name, "text", 6, 0.0) for name in "abc"]
    assert "column 6" in explain(found(silos), "a")[0]
    dates = people(0).with_columns(pl.lit(0).cast(pl.Date).alias("weight"))
    assert brief(found(three(a=dates))) == [("a", "text", 1, 2.0)]
    assert (
        "column 'weight' holds dates (such as 1970-01-01)"
        in explain(found(three(a=dates)), "a", {"a": Columns(dates)})[0]
    )
    lists = people(0).with_columns(pl.lit([1.5]).alias("weight"))
    assert (
        "column 'weight' holds values of type List(Float64)"
        in explain(found(three(a=lists)), "a", {"a": Columns(lists)})[0]
    )
    assert found(three(a=people(0).with_columns(pl.col("sex").cast(pl.Boolean), pl.col("visits").cast(pl.Int8)))) == []


def test_missing_infinite_and_empty_columns():
    odd = put(put(people(1), "weight", {3, 8}, None), "visits", {5}, float("nan"))
    odd = put(put(odd, "height", {0, 1}, float("inf")), "slope", {9}, -10 * LIMIT)
    odd = put(odd, "sex", range(200), None)
    assert [f.code for f in found(three(b=odd)) if f.severity == "error"] == ["infinite", "infinite"]
    findings = found(three(b=odd), complete=True)
    assert brief(findings) == [
        ("b", "empty", 3, 200.0), ("b", "missing", 1, 2.0), ("b", "missing", 4, 1.0),
        ("b", "infinite", 0, 2.0), ("b", "infinite", 5, 1.0),
    ]  # fmt: skip
    assert {f.severity for f in findings} == {"error"}
    assert "'weight' (2), 'visits' (1)" in explain(findings, "b", {"b": Columns(odd)})[1]
    assert re.search(r"1e\+148 .*column 0 \(2\), column 5 \(1\)", explain(findings, "b")[2])
    assert found(three(b=put(people(1), "weight", {3}, 71.0))) == []


def test_a_column_without_a_name():
    findings = found(three(a=people(0).rename({"slope": ""})))
    assert ("a", "no name", 5, float(Kind.NAMELESS)) in brief(findings)


def test_too_few_rows():
    assert brief(found({"a": people(0, n=5), "b": people(1)}, n_clusters=5)) == [("a", "few rows", -1, 5.0)]
    assert found({"a": people(0, n=6), "b": people(1)}, n_clusters=5) == []
    (sentence,) = explain(found({"a": people(0, n=1)}), "a")
    assert re.search(r"\b1 row\b.* 2$", sentence)


def test_another_form():
    X = people(1).to_numpy()
    findings = found(three(b=X))
    assert findings == [Finding("b", "form", "error", other="a", place=0, number=1.0)]
    assert re.search("dense matrix .*table", explain(findings, "b")[0])
    assert [(f.silo, f.code) for f in found({"a": sp.csr_array(X), "b": X})] == [("a", "form"), ("b", "form")]
    assert found({"a": X, "b": people(2).to_numpy()}) == []


def test_matrices_are_compared_by_place():
    X = people(0).to_numpy()
    findings = found({"a": X, "b": X, "c": X[:, :4]})
    assert [(f.silo, f.code, f.place) for f in findings] == [("c", "lacks", 4), ("c", "lacks", 5)]
    (sentence,) = explain(findings, "c", {s: Columns(X) for s in "abc"})
    assert "column 4, column 5" in sentence


def test_constant_columns():
    one = people(0).with_columns(pl.lit(0.3).alias("visits"))
    assert brief(found(three(a=one))) == [("a", "constant", 4, 0.0)]
    everywhere = {name: frame.with_columns(pl.lit(7.0).alias("visits")) for name, frame in three().items()}
    findings = found(everywhere)
    assert brief(findings) == [(name, "constant", 4, 1.0) for name in "abc"]
    assert "column 4" in explain(findings, "b")[0]
    assert {f.severity for f in findings} == {"note"}
    assert "constant" not in {f.code for f in found(three(a=put(one, "visits", {0}, 0.2)))}


# ------------------------------------------------------------------------------------------------ units and scales


@pytest.mark.parametrize("unit", [unit for unit in UNITS if not unit.shift], ids=lambda unit: unit.here)
@pytest.mark.parametrize("turned", [False, True])
def test_a_unit_is_named(unit, turned):
    """Heights, in silos that differ by a little besides."""
    factor = 1 / unit.factor if turned else unit.factor
    findings = found(three(b=people(1).with_columns(pl.col("height") * factor)))
    assert brief(findings) == [("b", "unit", 0, factor)]
    assert (findings[0].severity, findings[0].other, findings[0].place) == ("note", "a", 0)
    (sentence,) = explain(findings, "b")
    wanted = "other sign" if unit.factor == -1 else f"{unit.there if turned else unit.here} for "
    assert wanted in sentence


@pytest.mark.parametrize(("factor", "shift", "number", "words"), [
    (1.8, 32, 1.8, "degrees Fahrenheit for degrees Celsius?"),
    (1 / 1.8, -32 / 1.8, 1 / 1.8, "degrees Celsius for degrees Fahrenheit?"),
    (1, 273.15, 273.15, "kelvins for degrees Celsius?"),
])  # fmt: skip
def test_temperatures(factor, shift, number, words):
    base = three()
    if factor < 1:
        base = {name: frame.with_columns(pl.col("temperature") * 1.8 + 32) for name, frame in base.items()}
    odd = base["c"].with_columns(pl.col("temperature") * factor + shift)
    findings = found(base | {"c": odd})
    assert brief(findings) == [("c", "unit", 2, number)]
    (sentence,) = explain(findings, "c")
    assert sentence.endswith(f"column 2: {words}")


CLINICAL = {
    "creatinine": (88.42, "µmol/L for mg/dL (creatinine)?", 0.95),
    "S-Kreatinin": (88.42, "µmol/L for mg/dL (creatinine)?", 0.95),
    "bilirubin_total": (17.1, "µmol/L for mg/dL (bilirubin)?", 0.8),
    "LDL cholesterol": (38.67, "mg/dL for mmol/L (cholesterol)?", 3.2),
    "triglycerides": (88.57, "mg/dL for mmol/L (triglycerides)?", 1.5),
    "fasting_glucose": (18.016, "mg/dL for mmol/L (glucose)?", 5.4),
    "height": (100, "centimetres or per cent for metres or shares?", 1.7),
}


@pytest.mark.parametrize("name", CLINICAL)
@pytest.mark.parametrize("turned", [False, True])
def test_the_name_of_a_column_guides_the_guess_at_its_unit(name, turned):
    """Means of silos differ, so a factor alone may fit another unit as well."""
    factor, words, middle = CLINICAL[name]
    wanted = words if not turned else re.sub(r"(.*) for (.*?)( \(.*\))?\?", r"\2 for \1\3?", words)
    told = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        silos = {
            silo: pl.DataFrame({name: rng.lognormal(np.log(middle) + rng.normal(0, 0.07), 0.15, 150)}) for silo in "abc"
        }
        silos["b"] = silos["b"] * (1 / factor if turned else factor)
        columns = {silo: Columns(frame) for silo, frame in silos.items()}
        for sentence in explain(found(silos), "b", columns):
            told += 1
            assert sentence.endswith(f"in {name!r}: {wanted}"), (seed, sentence)
            assert f"about {'1/' if turned else ''}{factor:.3g} " in sentence
    assert told > 6


def test_without_a_name_the_factor_is_enough():
    for factor, _, _ in CLINICAL.values():
        (sentence,) = explain([Finding("a", "unit", "note", column=3, number=factor)], "a")
        assert sentence.endswith("?") and "column 3: " in sentence
    (sentence,) = explain([Finding("a", "unit", "note", column=3, number=17.1)], "a")
    assert sentence == "has values about 17.1 times the others' in column 3: µmol/L for mg/dL (bilirubin)?"
    both = Columns(pl.DataFrame({"creatinine": [1.0], "height": [1.0]}))
    findings = [Finding("a", "unit", "note", column=place, number=100.0) for place in (0, 1)]
    assert [line.partition(" in ")[2] for line in explain(findings, "a", {"a": both})] == [
        "'creatinine': µmol/L for mg/dL (creatinine)?",
        "'height': centimetres or per cent for metres or shares?",
    ]


def test_of_two_silos_both_are_told_of_a_unit():
    findings = found({"a": people(0), "b": people(1).with_columns(pl.col("weight") * 1000)})
    assert brief(findings) == [("a", "unit", 1, 0.001), ("b", "unit", 1, 1000.0)]
    (sentence,) = explain(findings, "a")
    assert re.search("1/1,000 .*column 1: kilograms for grams", sentence)


SIZED = ("height", "weight", "temperature", "sex", "visits")  # five of the six columns can be compared by size


def in_other_units(factor, columns, seed=1):
    return people(seed).with_columns(pl.col(name) * factor for name in columns)


@pytest.mark.parametrize("factor", [1000, 1 / 1000, 100, 137])
@pytest.mark.parametrize("columns", [SIZED, people(0).columns, SIZED[:4]])
def test_most_columns_in_other_units_stop_a_run(factor, columns):
    silos = three(b=in_other_units(factor, columns))
    findings = found(silos)
    assert {f.silo for f in findings} == {"b"}
    assert sorted(f.column for f in findings if f.code in ("unit", "scale")) == list(range(len(columns)))
    assert {f.severity for f in findings if f.code in ("unit", "scale")} == {"error"}
    sentences = explain(findings, "b", severity="error")
    assert all(sentence.endswith("or start the run with `accept_units`") for sentence in sentences)
    if factor == 1000:
        assert "multiply them by 0.001, or" in sentences[0]
    accepted = found(silos, accept_units=True)
    assert [(f.silo, f.code, f.column, f.number) for f in accepted] == brief(findings)
    assert {f.severity for f in accepted} == {"note"}


@pytest.mark.parametrize(
    "odd",
    [
        in_other_units(1000, SIZED[:1]),
        in_other_units(1000, SIZED[:3]),  # half of six
        in_other_units(2.2046, SIZED),
        in_other_units(-1, SIZED),
        people(1).with_columns(pl.col("temperature", "height", "weight") + 273.15),
    ],
)
def test_fewer_columns_or_smaller_factors_are_notes(odd):
    findings = found(three(b=odd))
    assert findings
    assert {f.severity for f in findings} == {"note"}


def test_a_table_of_one_column_in_another_unit_is_a_note():
    silos = {name: frame.select("weight") for name, frame in three(b=in_other_units(1000, SIZED)).items()}
    assert [(f.silo, f.severity) for f in found(silos)] == [("b", "note")]


def test_of_two_silos_in_other_units_both_are_told():
    findings = found({"a": people(0), "b": in_other_units(1000, SIZED)})
    assert {(f.silo, f.severity) for f in findings} == {("a", "error"), ("b", "error")}
    assert "multiply them by 1000, or" in explain(findings, "a")[0]


def test_a_factor_that_silos_may_differ_by_is_no_unit():
    assert found(three(b=people(1).with_columns(pl.col("visits") * 2.54))) == []  # the spread is too large to tell
    assert found(three(b=people(1).with_columns(pl.col("weight") * 1.3))) == []


def test_other_sizes_and_places():
    silos = three(b=people(1).with_columns(pl.col("weight") * 170, pl.col("slope") / 50, pl.col("temperature") + 20))
    assert [(f.silo, f.code, f.column) for f in found(silos)] == [
        ("b", "scale", 1),
        ("b", "scale", 5),
        ("b", "shift", 2),
    ]
    numbers = [f.number for f in found(silos)]
    assert_allclose(numbers, [170, 1 / 50, 50], rtol=0.2)
    assert "(50 above)" in explain(found(silos), "b")[1] or "(49 above)" in explain(found(silos), "b")[1]
    near = people(1).with_columns(pl.col("weight") * 1.4, pl.col("slope") / 15, pl.col("temperature") + 3)
    assert found(three(b=near)) == []


def test_columns_that_are_nearly_all_zero_have_no_size():
    rare = {name: frame.with_columns(pl.lit(0.0).alias("rare")) for name, frame in three().items()}
    rare = {name: put(frame, "rare", {1, 2, 3}, 1.0) for name, frame in rare.items()}
    assert found(rare | {"b": put(rare["b"], "rare", range(190), 90.0)}) == []


def test_standardised_here_alone():
    z = people(1).with_columns((pl.col("weight") - pl.col("weight").mean()) / pl.col("weight").std())
    findings = found(three(b=z))
    assert brief(findings) == [("b", "standardised", 1, 1.0)]
    silos = {"a": z, "b": z, "c": people(2)}
    assert brief(found(silos)) == [("c", "standardised", 1, -1.0)]
    assert found({"a": z, "b": z, "c": z}) == []
    together = pl.concat(three().values())
    weight = together["weight"]
    jointly = {
        name: frame.with_columns((pl.col("weight") - weight.mean()) / weight.std()) for name, frame in three().items()
    }
    assert found(jointly) == []


def test_codes_of_two_classes():
    findings = found(three(c=people(2).with_columns(pl.col("sex") + 1)))
    assert brief(findings) == [("c", "coding", 3, 1.0)]
    assert re.search("1 higher .*1 and 2 for 0 and 1", explain(findings, "c")[0])
    assert found(three(c=people(2).with_columns((1 - pl.col("sex")).alias("sex")))) == []


def test_values_below_zero_here_alone():
    odd = put(people(1), "visits", {3, 50, 51, 52, 53, 54}, -9.0)
    findings = found(three(b=odd))
    assert brief(findings) == [("b", "negatives", 4, 6.0)]
    assert "column 4 (6)" in explain(findings, "b")[0]
    assert found(three(b=put(people(1), "visits", {3}, -1.0))) == []  # one may be chance
    assert found({name: put(frame, "visits", range(9), -1.0) for name, frame in three().items()}) == []


def test_the_majority_decides():
    silos = {name: people(seed) for seed, name in enumerate("abcde")}
    for name in "be":
        silos[name] = silos[name].with_columns(pl.col("height") * 100)
    assert [f.silo for f in found(silos)] == ["b", "e"]
    silos["a"] = silos["a"].with_columns(pl.col("height") * 100)
    assert brief(found(silos)) == [("c", "unit", 0, 0.01), ("d", "unit", 0, 0.01)]


def test_sparse_matrices():
    X = people(0).to_numpy() * (np.random.default_rng(0).random((200, 6)) < 0.8)
    assert_allclose(survey(Columns(sp.csr_array(X)), SALT).squares, survey(Columns(X), SALT).squares, rtol=1e-10)
    assert_allclose(
        survey(Columns(sp.csr_array(X)), SALT).means, survey(Columns(X), SALT).means, rtol=1e-10, atol=1e-12
    )
    odd = X.copy()
    odd[2, 1] = np.nan
    assert brief(found({"a": sp.csr_array(X), "b": sp.csr_array(odd)})) == [("b", "missing", 1, 1.0)]


@pytest.mark.parametrize("load", [load_digits, load_wine, load_breast_cancer])
@pytest.mark.parametrize("skew", [None, 0.5])
@pytest.mark.parametrize("m", [3, 5])
def test_no_false_alarm_on_real_data(load, skew, m):
    """Split by chance, or with most of each class in few silos."""
    X, y = load(return_X_y=True)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        shares = np.full((y.max() + 1, m), 1 / m) if skew is None else rng.dirichlet(np.full(m, skew), size=y.max() + 1)
        owner = np.array([rng.choice(m, p=shares[label]) for label in y])
        silos = {f"silo {i}": X[owner == i] for i in range(m) if (owner == i).sum() > 1}
        assert {f.code for f in found(silos)} <= {"constant"}


def test_extreme_values_do_not_overflow():
    tiny = people(1).with_columns(pl.col("weight") * 1e-140, pl.col("height") * 1e140)
    findings = found(three(b=tiny))
    assert [(f.code, f.column) for f in findings] == [("scale", 0), ("scale", 1)]
    assert all(np.isfinite(f.number) for f in findings)
    for silo in "ab":
        assert all("inf" not in sentence for sentence in explain(findings, silo))


# ------------------------------------------------------------------------------------------------- what is sent


def test_a_survey_is_hashes_counts_and_sums():
    frame = put(people(0), "weight", {4}, None).with_columns(pl.lit("low").alias("dose"))
    said = survey(Columns(frame), SALT)
    flat = pack(SURVEY.Answer(**asdict(said)))
    assert {name: str(getattr(value, "dtype", type(value).__name__)) for name, value in flat.items()} == {
        "n_samples": "int", "columns": "uint64", "aliases": "uint64", "kinds": "int8", "counts": "int64",
        "missing": "int64", "means": "float64", "squares": "float64", "negatives": "int64",
    }  # fmt: skip
    assert all(value.shape == (7,) for value in flat.values() if isinstance(value, np.ndarray))
    assert said.n_samples == 200
    assert_array_equal(said.counts, [200, 199, 200, 200, 200, 200, 200])
    assert_array_equal(said.missing, [0, 1, 0, 0, 0, 0, 0])
    assert_array_equal(said.kinds, [0, 0, 0, 0, 0, 0, 1])
    numbers = frame.drop("dose").to_numpy()
    assert_allclose(said.means[:6], np.nanmean(numbers, axis=0), rtol=1e-12, atol=1e-14)
    assert_allclose(
        said.squares[:6], 200 * np.nanvar(numbers, axis=0) - [0, np.nanvar(numbers[:, 1]), 0, 0, 0, 0], rtol=1e-10
    )
    assert_array_equal(said.negatives, [0, 0, 0, 0, 0, (numbers[:, 5] < 0).sum(), 0])
    assert (said.means[6], said.squares[6]) == (0, 0)
    everything = b"".join(v.tobytes() if isinstance(v, np.ndarray) else str(v).encode() for v in flat.values())
    for word in (*frame.columns, "low", SALT):
        assert word.encode() not in everything


def test_hashes_need_the_salt():
    mine, same, other = (survey(Columns(people(seed)), salt) for seed, salt in ((0, "x"), (1, "x"), (0, "y")))
    assert_array_equal(mine.columns, same.columns)
    assert_array_equal(mine.aliases, same.aliases)
    assert not set(mine.columns.tolist()) & set(other.columns.tolist())
    assert not set(mine.aliases.tolist()) & set(other.aliases.tolist())
    assert not set(mine.columns.tolist()) & set(mine.aliases.tolist())
    with pytest.raises(ValueError, match="salt"):
        survey(Columns(people(0)), "")


def test_of_few_values_no_sum_is_sent():
    for n, sent in ((SMALLEST - 1, False), (SMALLEST, True)):
        said = survey(Columns(people(0, n)), SALT)
        assert bool(said.means.any()) == bool(said.squares.any()) == bool(said.negatives.any()) == sent
        assert_array_equal(said.counts, 6 * [n])
    few = put(people(0), "weight", range(SMALLEST - 1, 200), None)
    assert survey(Columns(few), SALT).means[1] == 0


cells = st.one_of(st.none(), st.floats(), st.floats(-1e3, 1e3), st.sampled_from([0.0, 0.1, 1e6, -3.5]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(cells, cells), min_size=SMALLEST, max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rows, random):
    mixed = list(rows)
    random.shuffle(mixed)
    for make in (
        lambda rows: pl.DataFrame(rows, schema={"a": pl.Float64, "b": pl.Float64}, orient="row"),
        lambda rows: np.array(rows, float),
        lambda rows: sp.csr_array(np.array(rows, float)),
    ):
        one, two = (asdict(survey(Columns(make(lines)), SALT)) for lines in (rows, mixed))
        assert one.keys() == two.keys()
        for name in one:
            assert_array_equal(one[name], two[name])


# ---------------------------------------------------------------------------------------------- verdicts and guard


def test_a_verdict_brings_all_but_the_other_silo():
    findings = found(three(b=put(people(1).drop("sex"), "weight", {3}, None).with_columns(pl.col("height") * 100)))
    numbers = as_numbers(findings, "abc")
    assert {name: len(lines) for name, lines in numbers.items()} == {"a": 0, "b": 3, "c": 0}
    back = from_verdict(numbers["b"], "b")
    assert back == [replace(f, other="") for f in findings]
    lacks, missing, unit = explain(back, "b", {"b": Columns(people(1).drop("sex"))})
    assert "column 3" in lacks  # of the others: its name is not known here
    assert "'weight' (1)" in missing
    assert re.search("100 times .*'height': centimetres", unit)


def test_every_code_has_a_sentence_and_keeps_its_number():
    """Silos and coordinators of different versions send numbers."""
    assert CODES == (
        "form", "few rows", "lacks", "extra", "spelling", "no name", "text", "empty", "missing", "infinite", "order",
        "unit", "scale", "shift", "standardised", "coding", "negatives", "constant", "levels", "identifier", "dominant",
    )  # fmt: skip
    for code in CODES:
        found = [Finding("a", code, severity, 1, "b", 1, 1.0) for severity in ("error", "note")]
        for findings in (found, [replace(f, column=-1, number=0.0) for f in found]):
            assert all(len(sentence) > 15 for sentence in explain(findings, "a"))
    assert len(explain(found, "a", severity="note")) == 1


def test_many_columns_are_not_all_listed():
    findings = [Finding("a", "missing", "error", column, number=1.0) for column in range(12)]
    (sentence,) = explain(findings, "a")
    assert "column 4 (1), and 7 more" in sentence


@pytest.mark.parametrize("change", [
    {"columns": np.zeros(0, np.uint64)}, {"columns": np.arange(6)}, {"columns": np.zeros(6, np.uint64)},
    {"columns": [1, 2, 3]}, {"kinds": np.full(6, 99, np.int8)}, {"kinds": np.zeros(6)}, {"kinds": np.zeros(5, np.int8)},
    {"counts": np.full(6, 201)}, {"missing": np.full(6, 1)}, {"missing": np.full(6, -1)},
    {"negatives": np.full(6, 300)},
    {"means": np.full(6, np.nan)}, {"means": np.full(6, 1e200)}, {"squares": np.full(6, -1.0)},
    {"squares": np.full(6, np.inf)}, {"squares": None}, {"aliases": np.zeros(6)},
    {"n_samples": -1},
], ids=lambda change: next(iter(change)))  # fmt: skip
def test_a_survey_that_cannot_be_is_refused(change):
    said = SURVEY.Answer(**asdict(survey(Columns(people(0)), SALT)))
    SURVEY.check_answer(said, Nothing(), {})
    with pytest.raises(RefusedError):
        SURVEY.check_answer(replace(said, **change), Nothing(), {})


def test_a_survey_of_nothing_or_of_something_else_is_refused():
    said = SURVEY.Answer(**asdict(survey(Columns(people(0)), SALT)))
    flat = pack(said)
    SURVEY.check_answer(unpack(SURVEY.Answer, flat), Nothing(), {})
    nothing = {name: value[:0] for name, value in flat.items() if name != "n_samples"}
    with pytest.raises(RefusedError):
        SURVEY.check_answer(SURVEY.Answer(n_samples=5, **nothing), Nothing(), {})
    with pytest.raises(RefusedError):
        HELLO.check_answer(said, Nothing(), {})
    with pytest.raises(RefusedError):
        unpack(SURVEY.Answer, flat | {"W": np.zeros((6, 3))})


@pytest.mark.parametrize("findings", [
    [[99.0, 1, 0, 0, 0]], [[2.5, 1, 0, 0, 0]], [[1.0, 1, 6, 0, 0]], [[1.0, 1, 0, -2, 0]], [[1.0, 1, 0, 0, np.nan]],
    [[1.0, 1, 0, 0]], [1.0, 1, 0, 0, 0],
])  # fmt: skip
def test_a_verdict_that_cannot_be_is_refused(findings):
    right = VERDICT.Ask(findings=np.array([[1.0, 1, 5, 9, 0.5]]))
    VERDICT.check_ask(right, {"D": 6})
    with pytest.raises(RefusedError):
        VERDICT.check_ask(VERDICT.Ask(findings=np.array(findings)), {"D": 6})
    with pytest.raises(RefusedError):
        SURVEY.check_ask(right, {"D": 6})


# ------------------------------------------------------------------------------------------ categories, identifiers


def said_by(**silos):
    said = {name: survey(columns, SALT) for name, columns in silos.items()}
    for about in said.values():
        SURVEY.check_answer(SURVEY.Answer(**asdict(about)), Nothing(), {})
    return said


def test_categories_with_other_levels_are_an_error():
    codes = pl.DataFrame({"sex": [0.0, 1.0, None] * 20, "age": np.arange(60) / 7})
    alike, other = Columns(codes, {"sex": ("f", "m")}), Columns(codes, {"sex": ("m", "f")})
    assert [(f.code, f.severity) for f in compare(said_by(a=alike, b=alike, c=alike)) if f.code != "missing"] == []
    findings = [f for f in compare(said_by(a=alike, b=alike, c=other)) if f.code != "missing"]
    assert brief(findings) == [("c", "levels", 0, 0.0)]
    assert findings[0].severity == "error"
    assert explain(findings, "c", {"c": other})[0].startswith("has other levels in 'sex'")
    numbers = Columns(codes)
    assert ("c", "levels", 0, 0.0) in brief(compare(said_by(a=alike, b=alike, c=numbers)))


def test_a_category_sends_counts_only():
    codes = pl.DataFrame({"sex": [0.0, 1.0, 1.0, None] * 5})
    said = survey(Columns(codes, {"sex": ("f", "m")}), SALT)
    assert (said.counts.tolist(), said.missing.tolist()) == ([15], [5])
    assert (said.means.tolist(), said.squares.tolist(), said.negatives.tolist()) == ([0.0], [0.0], [0])


def test_identifiers_spoil_a_run_of_a_federation(tmp_path):
    frame = pl.DataFrame({"patient_id": range(100, 160), "x": np.sin(np.arange(60.0))})
    frame.write_csv(tmp_path / "north.csv")
    (columns,) = read_columns([tmp_path / "north.csv"]).values()
    said = survey(columns, SALT)
    assert said.means[0] == 0  # the mean of identifiers tells somebody's
    findings = compare({"a": said, "b": said})
    assert brief(findings) == [("a", "identifier", 0, 7.0), ("b", "identifier", 0, 7.0)]
    assert explain(findings, "a", {"a": columns})[0].startswith("has 'patient_id', which seems to name rows")
    schema = Schema.of_numbers(["patient_id", "x"])  # somebody says that it is a number
    (columns,) = read_columns([tmp_path / "north.csv"], Reading(schema=schema)).values()
    assert compare(said_by(a=columns, b=columns)) == []


def test_texts_that_all_differ_are_not_identifiers_once_they_are_lengths(tmp_path):
    pl.DataFrame({"notes": [f"text {'x' * i}" for i in range(30)]}).write_csv(tmp_path / "north.csv")
    (columns,) = read_columns([tmp_path / "north.csv"]).values()
    assert columns.identifiers == {"notes"}
    lengths = columns.with_lengths("notes")
    assert compare(said_by(a=lengths, b=lengths)) == []


def test_a_column_that_outweighs_all_others():
    rng = np.random.default_rng(0)
    silos = {name: Columns(rng.normal([1, 9], [1, 100], size=(50, 2))) for name in "abc"}
    assert compare(said_by(**silos)) == []
    findings = compare(said_by(**silos), scaled=False)
    assert [(f.silo, f.code, f.column) for f in findings] == [(name, "dominant", 1) for name in "abc"]
    assert explain(findings, "a")[0].startswith("column 1 is 100.0 % of the variance of all columns")


def test_a_schema_decides_what_is_compared(tmp_path):
    path = tmp_path / "north.csv"
    path.write_text("sex,age,ward\nf,31,W1\nm,many,W2\nx,50,W3\n")
    schema = Schema((Column("age"), Column("sex", "category", ("f", "m")), Column("dose")))
    (columns,) = read_columns([path], Reading(schema=schema)).values()
    assert columns.names == ("age", "sex")  # in the order of the schema, as a run would have them
    assert columns.content["sex"].to_list() == [0.0, 1.0, None]
    assert survey(columns, SALT).kinds.tolist() == [Kind.TEXT, Kind.CATEGORY]
