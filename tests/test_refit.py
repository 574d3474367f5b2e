"""One silo against what it knows of the others."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.views import FEW

from fmtc import FMTC
from fmtc.later.join import common_of
from fmtc.later.publish import kit_of
from fmtc.mixture import Personal
from fmtc.models import Frame, MixtureModel
from fmtc.protocol.state import ClientState
from fmtc.refit import Refitted, Silo, numbered, refit

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

CENTERS = 6 * np.eye(8)[:3]


def rows(seed, n=30):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(3), n))
    return CENTERS[y] + rng.normal(size=(len(y), 8)), y


@pytest.fixture(scope="module", params=["graph", "mixture"])
def model(request):
    data = {name: rows(seed)[0] for seed, name in enumerate("abc")}
    return FMTC(3, view=request.param, scale="none", random_state=0, mixture=FEW).fit(data)


def known(model):
    return Silo("late", 3, model._settings()), common_of(kit_of(model).published)


def test_without_anything_common_it_is_a_run_of_its_own(model):
    X, _ = rows(7)
    one = FMTC(3, view=model.view_, scale="none", random_state=0, mixture=FEW).fit({"late": X})
    assert_array_equal(refit(Silo("late", 3, one._settings()), None, X).labels, one.labels_)


def test_clusters_have_the_common_numbers(model):
    X, y = rows(8)
    found = refit(*known(model), X)
    assert_array_equal(found.labels, model.predict(CENTERS, silos="a")[y])
    assert_array_equal(found.model.shares.round(1), [0.3, 0.3, 0.3])


def test_of_several_starts_the_most_likely_one_stays(model):
    """Two concepts in one place, and one in the middle of two: EM does not come back from there alone."""
    X, _ = rows(9)
    silo, common = known(model)
    good = refit(silo, common, X).model.personal
    bad = Personal(good.means[[0, 0, 0]] + [[0.0], [0.0], [1e-3]], good.shares, good.profiles)
    both = [refit(silo, common, X, starts) for starts in ((good, bad), (bad, good))]
    assert_array_equal(both[0].labels, both[1].labels)
    assert_array_equal(both[0].labels, refit(silo, common, X, (good,)).labels)


def test_own_clusters_take_the_numbers_of_those_they_share_most_rows_with():
    """A number that no cluster takes is a concept that the silo lacks."""
    own, offered = np.array([0, 0, 1, 1, 2, 2]), np.array([3, 3, 0, 0, 0, 1])
    model = MixtureModel(Frame(None, None), np.arange(3.0)[:, None], np.eye(1), np.full(3, 1 / 3), np.zeros((3, 0)))
    found = numbered(Refitted(model, own, ClientState("a", np.zeros((6, 1)), 3)), offered, 4)
    assert_array_equal(found.labels, [3, 3, 0, 0, 1, 1])
    assert_array_equal(found.model.lacks, [False, False, True, False])
    assert_array_equal(found.model.means[found.labels, 0], own)
