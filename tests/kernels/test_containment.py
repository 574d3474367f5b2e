"""How much one client may pull the others: norm cap, affinity with the rest, influence."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.kernels import containment
from fmtc.kernels.containment import CAP, ODD_WEIGHT, affinities, judge, pulls, slice_norms
from fmtc.kernels.couplings import COUPLINGS


def stack(seed, d=30, k=3, m=6, noise=0.3):
    """Slices that have their directions in common, each in a frame of its own."""
    rng = np.random.default_rng(seed)
    base = np.linalg.qr(rng.normal(size=(d, k)))[0]
    W = np.empty((d, k, m))
    for t in range(m):
        W[:, :, t] = (base + noise * rng.normal(size=(d, k)) / np.sqrt(d)) @ np.linalg.qr(rng.normal(size=(k, k)))[0]
    return W


@pytest.mark.parametrize("m", [3, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_touched_where_nobody_is_hostile(m, seed):
    judged = judge(stack(seed, m=m))
    assert (judged.factors == 1).all()
    assert_array_equal(judged.factors, 1.0)  # exactly: nothing may be multiplied


@pytest.mark.parametrize("m", [3, 4, 8])
@pytest.mark.parametrize("size", [2.0, 1e3, 1e200])
def test_a_large_slice_is_capped_at_the_median(m, size):
    W = stack(0, m=m)
    W[:, :, 1] *= size
    judged = judge(W)
    assert_array_equal(np.flatnonzero(judged.capped), [1])
    assert not judged.odd.any()
    W[:, :, 1] *= judged.factors[1]
    norms = slice_norms(W)
    assert_allclose(norms[1], CAP * np.median(np.delete(norms, 1)), rtol=0.1)


@pytest.mark.parametrize("m", [3, 4, 8])
@pytest.mark.parametrize("seed", range(5))
def test_a_slice_in_directions_of_its_own_is_odd(m, seed):
    W = stack(seed, m=m)
    W[:, :, 2] = np.random.default_rng(100 + seed).normal(size=W.shape[:2]) * np.linalg.norm(W[:, :, 0]) / 10
    judged = judge(W)
    assert_array_equal(np.flatnonzero(judged.odd), [2])
    assert judged.factors[2] <= ODD_WEIGHT


def test_a_slice_of_rank_one_is_odd():
    W = stack(1)
    W[:, :, 0] = np.outer(np.random.default_rng(3).normal(size=30), np.ones(3))
    assert judge(W).odd[0]


def test_rotations_signs_and_sizes_of_slices_do_not_change_their_affinity():
    W, rng = stack(2), np.random.default_rng(0)
    turned = W.copy()
    for t in range(W.shape[2]):
        turned[:, :, t] = 10.0**t * W[:, :, t] @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    every = np.arange(W.shape[2])
    expected = affinities(W, every, slice_norms(W))
    assert_allclose(affinities(turned, every, slice_norms(turned)), expected, atol=1e-8)
    assert_allclose(affinities(-W, every, slice_norms(W)), expected, atol=1e-12)
    assert ((expected > 0) & (expected <= 1 + 1e-12)).all()


@pytest.mark.parametrize("m", [3, 4, 8])
def test_affinity_is_that_of_its_definition(m):
    """``||U'Q_t||²/k``, U the leading directions of the others; for three slices exactly."""
    W, k = stack(4, m=m), 3
    Q = [np.linalg.qr(W[:, :, t])[0] for t in range(m)]
    expected = []
    for t in range(m):
        others = np.sum([Q[u] @ Q[u].T for u in range(m) if u != t], axis=0)
        expected.append((np.linalg.eigh(others)[1][:, -k:].T @ Q[t]) ** 2)
    found = affinities(W, np.arange(m), slice_norms(W))
    assert_allclose(found, [part.sum() / k for part in expected], atol=1e-9 if m == 3 else 0.02)


def test_of_many_slices_some_are_enough_to_find_the_common_directions(monkeypatch):
    W = stack(5, m=12)
    W[:, :, 7] = np.random.default_rng(1).normal(size=(30, 3))
    every = np.arange(12)
    exact = affinities(W, every, slice_norms(W))
    monkeypatch.setattr(containment, "MOST_COLUMNS", 15)
    assert_allclose(affinities(W, every, slice_norms(W)), exact, atol=0.05)
    assert_array_equal(np.flatnonzero(judge(W).odd), [7])


@pytest.mark.parametrize("columns", [1024, 60])
def test_affinity_does_not_depend_on_how_many_features_carry_it(monkeypatch, columns):
    """With fewer features than columns of all slices another matrix is decomposed, also of some slices only."""
    monkeypatch.setattr(containment, "MOST_COLUMNS", columns)
    W = stack(6, d=12, m=40, noise=2.0)
    wide = np.zeros((130, 3, 40))
    wide[::11] = W
    every = np.arange(40)
    assert_allclose(affinities(W, every, slice_norms(W)), affinities(wide, every, slice_norms(W)), atol=1e-10)


def test_slices_of_clients_that_did_not_answer_are_left_alone():
    W = stack(0, m=5)
    W[:, :, 4] *= 1e6
    judged = judge(W, [0, 1, 2, 3])
    assert (judged.factors == 1).all()
    assert np.isnan(judged.affinity[4])


@pytest.mark.parametrize("m", [1, 2])
def test_of_two_nobody_can_say_which_is_odd(m):
    W = stack(0, m=m)
    W[:, :, 0] *= 1e6
    assert (judge(W).factors == 1).all()


def test_stacks_of_zeros_are_calm():
    assert (judge(np.zeros((5, 2, 4))).factors == 1).all()


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_influence_is_what_leaving_out_does(coupling):
    """A mean is over fewer slices then; elsewhere a slice of zeros pulls nobody."""
    T, drop = stack(1, d=8, m=4), not COUPLINGS[coupling].shrinks

    def prox(part):
        return COUPLINGS[coupling].prox(part, 0.2, 1.0).Z

    found = pulls(T, prox(T), prox, drop=drop)
    for t in range(4):
        rest = [s for s in range(4) if s != t]
        left = np.ascontiguousarray(T[:, :, rest]) if drop else np.where(np.arange(4) == t, 0, T)
        gap = prox(T)[:, :, rest] - (prox(left) if drop else prox(left)[:, :, rest])
        expected = np.linalg.norm(gap, axis=(0, 1)) / np.linalg.norm(prox(T)[:, :, rest], axis=(0, 1))
        assert_allclose(found[rest, t], expected, rtol=1e-9)
        assert found[t, t] == 0


def test_influence_does_not_depend_on_how_many_features_carry_it():
    T, prox = stack(1, d=8, m=4), lambda part: COUPLINGS["tensor"].prox(part, 0.2, 1.0).Z
    many = np.einsum("ed,dkm->ekm", np.linalg.qr(np.random.default_rng(0).normal(size=(50, 8)))[0], T)
    assert_allclose(pulls(many, prox(many), prox), pulls(T, prox(T), prox), atol=1e-9)


def test_influence_of_very_many_is_not_computed():
    T = np.zeros((2, 1, 65))
    assert pulls(T, T, lambda part: part) is None
