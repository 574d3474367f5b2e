"""scripts/digests: what it must see, and what it must not take for a change."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

SCRIPT = Path(__file__).parents[1] / "scripts" / "digests"


@pytest.fixture(scope="module")
def digests():
    with pytest.MonkeyPatch.context() as patch:  # the script sets numbers of threads for its process
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
            patch.setenv(name, "1")
        patch.setattr("sys.dont_write_bytecode", True)
        loader = SourceFileLoader("digests", str(SCRIPT))
        module = module_from_spec(spec_from_loader("digests", loader))
        loader.exec_module(module)
    return module


def test_one_other_label_is_seen_and_named(digests):
    labels = np.array([0, 1, 1, 2])
    other = np.array([0, 1, 2, 2])
    before = {"blobs": {"labels": digests.digest(labels), "messages": digests.digest([labels])}}
    now = {"blobs": {"labels": digests.digest(other), "messages": digests.digest([labels])}}
    assert digests.compare(before, before) == ([], 1, 0)
    assert digests.compare(before, now) == (["blobs: labels"], 0, 1)


def test_rounding_errors_are_told_from_other_numbers(digests):
    values = np.random.default_rng(0).normal(size=(4, 3))
    found = {how: {"x": {"p": digests.digest(values * factor)}} for how, factor in (
        ("then", 1), ("rounding", 1 + 1e-15), ("other", np.array([1, 1, 1.01])),
    )}  # fmt: skip
    assert digests.compare(found["then"], found["rounding"])[0] == ["x: p (by less than a millionth)"]
    assert digests.compare(found["then"], found["other"])[0] == ["x: p"]


@pytest.mark.parametrize(
    "other",
    [
        np.zeros((2, 2), np.float32), np.zeros(4), np.zeros((2, 2), int), sp.csr_array((2, 2)), [0.0, 0.0, 0.0, 0.0],
        {"a": np.zeros((2, 2))}, None,
    ],
)  # fmt: skip
def test_type_and_shape_count(digests, other):
    assert digests.digest(other) != digests.digest(np.zeros((2, 2)))


def test_what_came_and_what_went_shows(digests):
    before = {"a": {"labels": "1-1", "bic": "2-2"}, "gone": {}}
    now = {"a": {"labels": "1-1", "score": "3-3"}, "new": {}}
    assert digests.compare(before, now, {"a": {"score": "ValueError: no"}}) == (
        ["a: bic (gone), score (new)", "    score: ValueError: no"], 0, 1,
    )  # fmt: skip


def test_messages_move_where_no_label_does(digests):
    data = digests.SETS["blobs"]()
    moved = digests.Data({}, 3)
    moved.train, moved.new = {cid: X + 1e-4 * (cid == "west") for cid, X in data.train.items()}, data.new
    first, again, third = digests.Parts(), digests.Parts(), digests.Parts()
    for parts, rows in ((first, data), (again, data), (third, moved)):
        digests.fitted(parts, digests.estimator("mixture", 3, max_iter=1), rows)
    assert first == again
    assert first["labels"] == third["labels"]
    assert first["messages"].partition("-")[2] != third["messages"].partition("-")[2]


def test_a_refusal_is_behaviour(digests):
    parts, other = digests.Parts(), digests.Parts()
    data = digests.SETS["blobs"]()
    assert digests.fitted(parts, digests.estimator("graph", 0), data) is None
    assert digests.fitted(other, digests.estimator("graph", -1), data) is None
    assert parts["labels"] != other["labels"]
    assert parts.said["labels"].startswith("ValueError: n_clusters must be")
