"""After the last round nothing is needed from the others: a silo that is lost then still comes to its labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc.artifacts.states import flatten
from fmtc.errors import SiteError
from fmtc.protocol.base import Failure
from fmtc.protocol.method import view_method
from fmtc.runtime import kitclient
from fmtc.runtime.conductor import LATE, RESULT, finished, read_record, unconfirmed
from fmtc.runtime.events import at_silo
from fmtc.runtime.spec import RunSpec
from fmtc.settings import Settings

from .kits import KitTransport, assert_sent_the_same_again, conducted, make_kits
from .test_sums import _few_steps, signed_kits  # noqa: F401 (a fixture that applies to all tests here)

GRAPH = Settings(n_clusters=3, max_iter=1, tol=0, n_neighbors=20, n_init=2)
MIXTURE = replace(GRAPH, view="mixture", scale="auto")
SUMS = replace(GRAPH, coupling="subspace", privacy="sums")
RUNS = {
    "graph": GRAPH,
    "kmeans at the end": Settings(n_clusters=3, max_iter=1, tol=0, n_neighbors=20, final="kmeans", n_init=2),
    "mixture": MIXTURE,
    "auto": replace(MIXTURE, view="auto"),
    "silos that lack clusters": replace(GRAPH, clusters_per_silo=None).with_clusters("b", 2),
    "graph by sums": SUMS,
    "mixture by sums": replace(SUMS, view="mixture", scale="auto"),
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return {cid: rng.normal(size=(40, 5)) + 4 * rng.integers(3, size=(40, 1)) for cid in "abc"}


class Losing(KitTransport):
    """Loses the process of silo b at a message of a phase, before or after its work is done, until it is back."""

    def __init__(self, *args, phase, after, back=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.phase, self.after, self.away, self.back = phase, after, False, back

    def exchange(self, messages):
        message = messages.get("b")
        if message is not None and message.phase == self.phase and not self.back:
            if self.after and not self.away:
                assert not isinstance(self.tell("b", message), Failure)
            self.restart("b")
            self.away = True
        replies = super().exchange({cid: m for cid, m in messages.items() if cid != "b" or not self.away})
        if self.away and message is not None:
            replies.failures["b"] = SiteError("gave no sign of life")
        return replies


def waiting(spec):
    return unconfirmed(spec.folder, finished(spec))


def prepared(rows, folder, settings):
    """Kits, and what is to be run."""
    method = view_method(settings.view, settings.privacy)
    folder.mkdir()
    kits = (signed_kits if method.masks else make_kits)(rows, folder / "kits")
    (folder / "run").mkdir()
    spec = RunSpec("r", settings, folder / "run", method_name=method.name)
    return kits, spec, {"method": method.name, "preflight": "no"}


def assert_same_files(spec, expected, transport, whole):
    (ours, about), (theirs, other) = read_record(spec.folder / RESULT), read_record(expected.folder / RESULT)
    assert set(ours.common) == set(theirs.common)
    for name, array in theirs.common.items():
        assert_array_equal(ours.common[name], array)
    for name in ("missing", "atlas", "stopped_because", "shared"):
        assert about[name] == other[name], name
    times = {(line.phase, line.field): line.times for line in ours.received}  # what came again is counted again
    assert all(times[line.phase, line.field] >= line.times for line in theirs.received)
    for cid in whole.kits:
        (found, rest), (right, others) = (flatten(t.result(cid).client.model) for t in (transport, whole))
        assert rest == others
        for name, array in right.items():
            assert_array_equal(found[name], array)
        assert_array_equal(transport.result(cid).client.labels, whole.result(cid).client.labels)
        assert transport.ended(cid) == whole.ended(cid)


@pytest.mark.parametrize("name", RUNS)
def test_a_silo_that_is_lost_when_all_conclude_needs_nobody_when_it_is_back(rows, tmp_path, name):
    """Before its work is done, and after it, with the answer that nobody got."""
    settings = RUNS[name]
    kits, expected, how = prepared(rows, tmp_path / "whole", settings)
    whole = KitTransport(kits, settings, **how)
    assert conducted(whole, expected)[-2:] == ["done", "ended"]
    asked = [message.phase for cid, message in whole.seen if cid == "b"]
    assert asked[-1] == "end"
    for after in (False, True):
        assert_served_later(rows, tmp_path / f"cut {after}", settings, asked[-2], after, expected, whole)


def assert_served_later(rows, folder, settings, phase, after, expected, whole):
    kits, spec, how = prepared(rows, folder, settings)
    lossy = Losing(kits, settings, phase=phase, after=after, **how)
    assert conducted(lossy, spec)[-2:] == ["done", "ended"]  # the others have their labels
    assert lossy.away
    assert waiting(spec) == ("b",)
    for cid in "ac":
        assert lossy.ended(cid)["converged"] is False
        assert_array_equal(lossy.result(cid).client.labels, whole.result(cid).client.labels)
    again = Losing(kits, settings, phase="", after=False, back=True, **how)
    assert conducted(again, spec) == ["done", "ended"]
    assert {cid for cid, _ in again.seen} == {"b"}
    assert waiting(spec) == ()
    assert_sent_the_same_again(kits["b"])
    for cid in "ac":  # what they were told was told without b
        at_silo(kits[cid]).tell("ended", run="r", **whole.ended(cid))
    assert_same_files(spec, expected, again, whole)
    assert conducted(KitTransport(kits, settings, **how), spec) == ["done", "ended"]


@pytest.mark.parametrize("name", ["graph", "mixture", "mixture by sums"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_silo_that_misses_the_last_word_is_told_later(rows, tmp_path, name, after):
    settings = RUNS[name]
    kits, spec, how = prepared(rows, tmp_path / "cut", settings)
    conducted(Losing(kits, settings, phase="end", after=after, **how), spec)
    assert waiting(spec) == ("b",)
    assert not (spec.folder / LATE).exists()
    again = KitTransport(kits, settings, **how)
    conducted(again, spec)
    assert [(cid, message.phase) for cid, message in again.seen] == [("b", "end")]
    assert waiting(spec) == ()


def test_a_silo_whose_kit_was_emptied_does_not_confirm_labels(rows, tmp_path):
    kits, spec, how = prepared(rows, tmp_path / "cut", MIXTURE)
    conducted(Losing(kits, MIXTURE, phase="end", after=False, **how), spec)
    again = KitTransport(kits, MIXTURE, **how)
    (again.folder("b") / kitclient.RESULT).unlink()
    conducted(again, spec)
    assert waiting(spec) == ("b",)
    assert "no labels" in again.trouble("b")[-1]


def test_a_silo_with_an_error_of_its_own_still_ends_the_run(rows, tmp_path):
    """Only silos that are away conclude later; an error would come again."""
    kits, spec, how = prepared(rows, tmp_path / "cut", MIXTURE)

    class Failing(KitTransport):
        def tell(self, cid, message):
            return Failure(error="OSError") if (cid, message.phase) == ("b", "conclude") else super().tell(cid, message)

    assert conducted(Failing(kits, MIXTURE, **how), spec)[-1] == "stopped"
