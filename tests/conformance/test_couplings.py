"""What every coupling must fulfil. A coupling is tested here as soon as it is in the registry.

`Frobenius` below is not in the registry: it shows that the tests know nothing about the couplings but their interface,
and that a new one needs no other code.
"""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.views import graph_view

from fmtc.kernels.couplings import COUPLINGS, Consensus, Coupling, schatten_p, weight_of_threshold
from fmtc.kernels.couplings.spectrum import shrink
from fmtc.settings import Settings


class Frobenius(Coupling):
    """The norm of the whole stack: one number for all clients is shrunk."""

    name = "frobenius"
    summary = "The norm of all projections together is small."

    def value(self, W, p):
        return self.critical_threshold(W) ** p

    def prox(self, T, tau, p):
        norm = self.critical_threshold(T)
        x = float(shrink(np.array([norm]), tau, p)[0])
        return Consensus(T if tau == 0 else T * (x / norm), x**p, int(x > 0))

    def critical_threshold(self, W):
        return float(np.vdot(W, W)) ** 0.5


@pytest.fixture(params=[*COUPLINGS.values(), Frobenius()], ids=lambda coupling: coupling.name)
def coupling(request):
    return request.param


@pytest.fixture(params=[(6, 3, 4), (3, 5, 3), (7, 2, 1)], ids=str)
def T(request, rng):
    return rng.normal(size=request.param)


def fraction(coupling, T, share=0.5):
    """A tau that keeps something and shrinks something."""
    return share * coupling.critical_threshold(T)


def test_the_registry_describes_its_couplings():
    assert list(COUPLINGS) == [coupling.name for coupling in COUPLINGS.values()]
    for name, coupling in COUPLINGS.items():
        assert Settings(coupling=name).coupling == name
        assert isinstance(coupling.shrinks, bool)
        assert coupling.summary.endswith(".")
        assert "\n" not in coupling.summary


@pytest.mark.parametrize("name", COUPLINGS)
def test_a_fit_takes_any_coupling_of_the_registry(make_federation, name):
    model = graph_view(3, coupling=name, max_iter=3, n_init=1, random_state=0).fit(make_federation())
    assert np.isfinite(model.consensus_).all()
    assert model.run_.rounds[-1].rank >= 1


def test_a_new_coupling_is_one_line_in_the_registry(make_federation, monkeypatch, rng):
    with pytest.raises(ValueError, match="frobenius"):
        Settings(coupling="frobenius")
    monkeypatch.setitem(COUPLINGS, "frobenius", Frobenius())
    assert Settings(coupling="frobenius").coupling == "frobenius"
    fit = graph_view(3, coupling="frobenius", beta=0.3, max_iter=200, n_init=1, random_state=0).fit(make_federation())
    assert fit.run_.rounds[-1].primal_residual < 0.1 * fit.run_.rounds[0].primal_residual
    T = rng.normal(size=(4, 3, 2))
    assert schatten_p(T, 1.0, "frobenius") == np.linalg.norm(T)


def test_a_value_of_an_unknown_coupling_is_refused(rng):
    with pytest.raises(ValueError, match="tensor"):
        schatten_p(rng.normal(size=(4, 3, 2)), 1.0, "matrix")


# --------------------------------------------------------------------------------------------- value and prox


def test_value_is_a_norm_to_the_power_p(coupling, T):
    for p in (0.5, 1.0):
        value = coupling.value(T, p)
        assert isinstance(value, float)
        assert value >= 0
        assert (value > 0) == coupling.shrinks
        assert_allclose(coupling.value(-3 * T, p), 3**p * value, rtol=1e-10)
        assert coupling.value(0 * T, p) == 0


def test_prox_is_the_minimiser(coupling, T, rng):
    """For p = 1, where the value is convex: no other stack costs less."""
    tau = fraction(coupling, T)
    Z = coupling.prox(T, tau, 1.0).Z

    def cost(Z):
        return tau * coupling.value(Z, 1.0) + 0.5 * ((Z - T) ** 2).sum()

    least = cost(Z)
    for size in (1e-6, 1e-3, 1e-1, 1.0):
        for _ in range(10):
            noise = size * rng.normal(size=T.shape)
            # results of the same step satisfy a constraint, if there is one
            assert least <= cost(coupling.prox(T + noise, tau, 1.0).Z) + 1e-12
            if coupling.shrinks:
                assert least <= cost(Z + noise) + 1e-12
    if coupling.shrinks:
        assert least < min(cost(T), cost(0 * T))


def test_convex_prox_does_not_expand(coupling, T, rng):
    tau = fraction(coupling, T)
    for _ in range(20):
        other = T + rng.normal(size=T.shape)
        gap = coupling.prox(T, tau, 1.0).Z - coupling.prox(other, tau, 1.0).Z
        assert np.linalg.norm(gap) <= np.linalg.norm(T - other) * (1 + 1e-12)


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.5, 1.5])
def test_prox_knows_the_value_and_rank_of_its_result(coupling, T, share):
    for p in (0.5, 1.0):
        tau = weight_of_threshold(fraction(coupling, T, share), p)
        found = coupling.prox(T, tau, p)
        assert found.Z.shape == T.shape
        assert isinstance(found.value, float)
        noise = 1e-15**p  # of singular values that should be zero
        assert_allclose(found.value, coupling.value(found.Z, p), rtol=1e-9, atol=100 * noise)
        assert isinstance(found.rank, int)
        assert (found.rank > 0) == bool(found.Z.any())
        assert found.rank <= max(T.shape[:2]) * T.shape[2]


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_the_critical_threshold_is_critical(coupling, T, p):
    critical = coupling.critical_threshold(T)
    assert critical > 0
    for share in (1 - 1e-6, 1 + 1e-6):
        Z = coupling.prox(T, weight_of_threshold(share * critical, p), p).Z
        if coupling.shrinks:
            assert bool(Z.any()) == (share < 1)
        else:
            assert_array_equal(Z, coupling.prox(T, 0.0, 1.0).Z)  # a constraint, whatever tau and p


def test_without_weight_nothing_is_shrunk(coupling, T):
    found = coupling.prox(T, 0.0, 1.0)
    if coupling.shrinks:
        assert found.Z is T
    else:
        assert_allclose(coupling.prox(found.Z, 0.0, 1.0).Z, found.Z, atol=1e-14)  # satisfied after one step


# -------------------------------------------------------------------------------------------------- the clients


def test_clients_may_be_renumbered_in_a_circle(coupling, T):
    tau = fraction(coupling, T)
    found, shifted = coupling.prox(T, tau, 1.0), coupling.prox(np.roll(T, 1, axis=2), tau, 1.0)
    assert_allclose(shifted.Z, np.roll(found.Z, 1, axis=2), atol=1e-12)
    assert_allclose(shifted.value, found.value, rtol=1e-12)
    assert shifted.rank == found.rank


# what each client adds to the sum that a slice of the consensus depends on; others need the whole stack
SUMMANDS = {"subspace": lambda W: W @ W.T, "average": lambda W: W, "frobenius": lambda W: np.vdot(W, W)}


def test_a_coupling_by_a_sum_does_not_know_the_order_of_clients(coupling, rng):
    if coupling.name not in SUMMANDS:
        return
    T, order = rng.normal(size=(6, 3, 5)), [3, 0, 4, 2, 1]
    tau = fraction(coupling, T)
    assert_allclose(coupling.prox(T[:, :, order], tau, 1.0).Z, coupling.prox(T, tau, 1.0).Z[:, :, order], atol=1e-12)
    assert_allclose(coupling.value(T[:, :, order], 0.5), coupling.value(T, 0.5), rtol=1e-12)
    assert_allclose(coupling.critical_threshold(T[:, :, order]), coupling.critical_threshold(T), rtol=1e-12)


def test_a_coupling_by_a_sum_needs_nothing_else_of_the_other_clients(coupling, rng):
    """Other clients with the same sum give a client the same slice."""
    if coupling.name not in SUMMANDS:
        return
    T = rng.normal(size=(6, 3, 5))
    others = T[:, :, 1:]
    noise = rng.normal(size=others.shape)
    Q = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    candidates = [
        others + noise - noise.mean(axis=2, keepdims=True),
        (others.reshape(6, 12) @ Q).reshape(6, 3, 4),
        2 * others,
    ]

    def total(stack):
        return sum(SUMMANDS[coupling.name](stack[:, :, t]) for t in range(5))

    tau, kept = fraction(coupling, T), []
    for p in (0.5, 1.0):
        Z = coupling.prox(T, tau, p).Z[:, :, 0]
        for replaced in candidates:
            changed = np.concatenate([T[:, :, :1], replaced], axis=2)
            same = np.allclose(total(changed), total(T), rtol=1e-10)
            gap = np.abs(coupling.prox(changed, tau, p).Z[:, :, 0] - Z).max()
            assert gap < 1e-10 if same else gap > 1e-3
            kept.append(same)
    assert any(kept), "add other clients that leave the sum of this coupling as it is"
    assert not all(kept)


# ------------------------------------------------------------------------------------------------------ arrays


def test_single_precision_stays(coupling, T):
    tau = fraction(coupling, T)
    single = coupling.prox(T.astype(np.float32), tau, 1.0)
    assert single.Z.dtype == np.float32
    double = coupling.prox(T, tau, 1.0)
    assert_allclose(single.Z, double.Z, atol=1e-5)
    assert_allclose(single.value, double.value, rtol=1e-5, atol=1e-5)
    assert_allclose(coupling.critical_threshold(T.astype(np.float32)), coupling.critical_threshold(T), rtol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_stacks_are_read_in_any_layout_and_never_written_to(coupling, T, share):
    tau = fraction(coupling, T, share)
    expected = coupling.prox(T, tau, 1.0).Z
    layouts = (np.asfortranarray(T), np.repeat(T, 2, axis=2)[:, :, ::2], np.moveaxis(np.moveaxis(T, 2, 0).copy(), 0, 2))
    for other in layouts:
        other.flags.writeable = False
        assert_allclose(coupling.prox(other, tau, 1.0).Z, expected, atol=1e-12)
        assert_allclose(coupling.value(other, 1.0), coupling.value(T, 1.0), rtol=1e-12)
        assert_array_equal(other, T)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_separate_result_has_memory_of_its_own(coupling, T, share):
    found = coupling.prox(T, fraction(coupling, T, share), 1.0)
    own = found.separate_from(T)
    assert not np.shares_memory(own.Z, T)
    assert own.Z.flags.c_contiguous
    assert_array_equal(own.Z, found.Z)
    assert (own.value, own.rank) == (found.value, found.rank)


def test_the_result_is_the_only_copy_of_the_stack(coupling, rng):
    T = rng.normal(size=(60_000, 4, 10))
    tau = fraction(coupling, T)
    tracemalloc.start()
    coupling.prox(T, tau, 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * T.nbytes


@pytest.mark.torch
@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-10), ("float32", 1e-5)])
@pytest.mark.parametrize("name", COUPLINGS)
def test_tensors_as_arrays(rng, name, dtype, digits):
    torch = pytest.importorskip("torch")
    coupling, T = COUPLINGS[name], rng.normal(size=(12, 3, 6)).astype(dtype)
    other = torch.from_numpy(T)
    assert_allclose(coupling.critical_threshold(other), coupling.critical_threshold(T), rtol=digits)
    for share, p in ((0.0, 1.0), (1e-6, 0.5), (0.5, 1.0)):
        assert_allclose(coupling.value(other, p), coupling.value(T, p), rtol=digits)
        tau = fraction(coupling, T, share)
        mine, theirs = coupling.prox(T, tau, p), coupling.prox(other, tau, p)
        assert theirs.Z.dtype == other.dtype
        own = theirs.separate_from(other)
        assert own.Z.data_ptr() != other.data_ptr()
        assert_allclose(own.Z.numpy(), mine.Z, atol=digits)
        assert_allclose(theirs.value, mine.value, rtol=digits)
        assert isinstance(theirs.value, float)
        assert theirs.rank == mine.rank
