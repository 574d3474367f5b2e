import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq

from fmtc.kernels.couplings import COUPLINGS, schatten_p, spectrum, tsvt, update_dual, weight_of_threshold
from fmtc.kernels.couplings.partial import Partial
from fmtc.kernels.couplings.spectrum import shrink, shrink_slices
from fmtc.linalg import stacks, svd

BOTH = ["tensor", "subspace"]


def prox(T, tau, p=1.0, coupling="tensor"):
    return COUPLINGS[coupling].prox(T, tau, p).Z


def singular_values(T, coupling, p=1.0):
    return spectrum.singular_values(T if coupling == "tensor" else T.reshape(len(T), -1, 1), p)


def orthogonal(rng, k):
    return np.linalg.qr(rng.normal(size=(k, k)))[0]


def scalar_cost(x, s, tau, p):
    return tau * x**p + 0.5 * (x - s) ** 2


def stack_cost(Z, T, tau, p, coupling):
    return tau * schatten_p(Z, p, coupling) + 0.5 * ((Z - T) ** 2).sum()


# ------------------------------------------------------------------------------------------- scalar shrinkage


@pytest.mark.parametrize(("p", "threshold"), [(0.1, 1.0), (0.3, 7.0), (0.5, 0.2), (0.8, 7.0), (1.0, 0.2)])
def test_a_weight_shrinks_to_zero_what_its_threshold_says_and_no_more(p, threshold):
    x = shrink(threshold * np.array([1 - 1e-9, 1 + 1e-9]), weight_of_threshold(threshold, p), p)
    assert x[0] == 0
    assert x[1] > 0


@pytest.mark.parametrize(("p", "tau"), [(0.1, 1.0), (0.3, 0.1), (0.5, 3.0), (0.8, 1.0), (1.0, 0.1)])
def test_shrink_beats_a_fine_grid(p, tau):
    s = np.linspace(0, 6, 121)
    x = shrink(s, tau, p)
    grid = np.linspace(0, 6, 60001)
    best = np.array([scalar_cost(grid, each, tau, p).min() for each in s])
    assert (scalar_cost(x, s, tau, p) <= best + 1e-12).all()


@pytest.mark.parametrize("p", [0.3, 0.5, 0.8])
def test_shrink_meets_the_first_order_condition(p):
    s = np.linspace(2, 9, 50)
    x = shrink(s, 0.7, p)
    kept = x > 0
    assert kept.any()
    assert_allclose((x - s + 0.7 * p * x ** (p - 1.0))[kept], 0, atol=1e-12)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8, 1.0])
def test_shrink_keeps_order_and_never_grows(p):
    s = np.linspace(0, 5, 501)
    x = shrink(s, 0.6, p)
    assert (x >= 0).all()
    assert (x <= s).all()
    assert (np.diff(x) >= 0).all()


def test_shrink_jumps_at_its_threshold():
    tau, p = 0.9, 0.5
    jump = (2 * tau * (1 - p)) ** (1 / (2 - p))
    threshold = jump + tau * p * jump ** (p - 1)
    below, above = shrink(np.array([threshold * (1 - 1e-9), threshold * (1 + 1e-9)]), tau, p)
    assert below == 0
    assert_allclose(above, jump, rtol=1e-3)
    assert above >= jump * (1 - 1e-9)
    # zero and the jump are both minimisers there
    assert_allclose(scalar_cost(jump, threshold, tau, p), scalar_cost(0, threshold, tau, p), rtol=1e-12)


def test_shrink_without_weight_is_the_identity_in_any_dtype():
    s = np.array([0.0, 1e-3, 2.0], dtype=np.float32)
    for p in (0.5, 1.0):
        assert_array_equal(shrink(s, 0, p), s)
        assert shrink(s, 0.5, p).dtype == np.float32


# ------------------------------------------------------------------------------------- the proximal step


def literal_tsvt(T, tau, p):
    """Every Fourier slice of a full complex transform, every singular value by a scalar root search."""
    m = T.shape[2]
    That = np.fft.fft(T, axis=2)
    Zhat = np.zeros_like(That)
    for i in range(m):
        U, s, Vh = np.linalg.svd(That[:, :, i], full_matrices=False)
        Zhat[:, :, i] = U @ np.diag([literal_shrink(each, tau, p) for each in s]) @ Vh
    Z = np.fft.ifft(Zhat, axis=2)
    assert_allclose(Z.imag, 0, atol=1e-12)
    return Z.real


def literal_shrink(s, tau, p):
    """The better of zero and the minimum on the convex part of the cost, found as the root of its slope."""
    if p == 1:
        return max(s - tau, 0.0)

    def slope(x):
        return x - s + tau * p * x ** (p - 1)

    low = (tau * p * (1 - p)) ** (1 / (2 - p))  # the cost is convex from here on
    if slope(low) >= 0:
        return 0.0
    x = brentq(slope, low, s, xtol=1e-15)
    return x if scalar_cost(x, s, tau, p) < scalar_cost(0, s, tau, p) else 0.0


def literal_norm(T, p):
    s = np.linalg.svd(np.moveaxis(np.fft.fft(T, axis=2), 2, 0), compute_uv=False)
    return (s**p).sum() / T.shape[2]


@pytest.mark.parametrize(("m", "shape"), [(1, (6, 3)), (2, (3, 5)), (3, (6, 3)), (4, (6, 3)), (6, (3, 5)), (7, (3, 5))])
def test_real_transform_equals_the_full_complex_one(rng, m, shape):
    T = rng.normal(size=(*shape, m))
    for p in (0.5, 1.0):
        assert_allclose(tsvt(T, 0.8, p), literal_tsvt(T, 0.8, p), atol=1e-12)
        assert_allclose(schatten_p(T, p), literal_norm(T, p), rtol=1e-12)


@pytest.mark.parametrize("m", range(1, 8))
def test_weights_of_the_slices_add_up_to_parseval(rng, m):
    T = rng.normal(size=(5, 3, m))
    s, weight = singular_values(T, "tensor")
    assert_allclose((weight * s**2).sum(), (T**2).sum(), rtol=1e-12)
    s, weight = singular_values(T, "subspace")
    assert_allclose((weight * s**2).sum(), (T**2).sum(), rtol=1e-12)


def test_one_client_is_singular_value_thresholding(rng):
    T = rng.normal(size=(6, 4, 1))
    U, s, Vh = np.linalg.svd(T[:, :, 0], full_matrices=False)
    expected = U @ np.diag(np.maximum(s - 0.7, 0)) @ Vh
    for coupling in BOTH:
        assert_allclose(prox(T, 0.7, 1.0, coupling)[:, :, 0], expected, atol=1e-12)
        assert_allclose(schatten_p(T, 1.0, coupling), s.sum(), rtol=1e-12)


def test_two_clients_are_their_sum_and_difference(rng):
    T = rng.normal(size=(5, 3, 2))
    total, gap = T[:, :, 0] + T[:, :, 1], T[:, :, 0] - T[:, :, 1]
    shrunk = [prox(each[:, :, None], 0.6, 1.0, "subspace")[:, :, 0] for each in (total, gap)]
    expected = np.stack([(shrunk[0] + shrunk[1]) / 2, (shrunk[0] - shrunk[1]) / 2], axis=2)
    assert_allclose(tsvt(T, 0.6), expected, atol=1e-12)


@pytest.mark.parametrize("coupling", BOTH)
def test_convex_prox_leaves_a_subgradient(rng, coupling):
    T, tau = rng.normal(size=(6, 3, 5)), 1.1
    Z = prox(T, tau, 1.0, coupling)
    G = (T - Z) / tau  # in the subdifferential: spectral norm at most 1, and <G, Z> is the norm of Z
    assert singular_values(G, coupling)[0].max() <= 1 + 1e-12
    assert_allclose((G * Z).sum(), schatten_p(Z, 1.0, coupling), rtol=1e-12)


@pytest.mark.parametrize(("m", "p"), [(2, 0.5), (3, 1.0), (6, 0.5)])
def test_identical_clients_are_penalised_m_times_less_each(rng, m, p):
    W = rng.normal(size=(6, 3))
    Z = tsvt(np.repeat(W[:, :, None], m, axis=2), 1.2, p)
    # only the slice m W is not zero: m shrink(s) of m s at tau is s shrunk at tau m^(p - 2), tau/m for p = 1
    expected = prox(W[:, :, None], 1.2 * m ** (p - 2), p, "subspace")
    for t in range(m):
        assert_allclose(Z[:, :, [t]], expected, atol=1e-12)


def test_subspace_prox_through_the_sum_of_outer_products(rng):
    T, tau = rng.normal(size=(5, 3, 4)), 1.5
    for p in (0.5, 1.0):
        G = sum(T[:, :, t] @ T[:, :, t].T for t in range(4))  # all the server would need
        lam, U = np.linalg.eigh(G)
        s = np.sqrt(lam)
        P = U @ np.diag(shrink(s, tau, p) / s) @ U.T
        Z = prox(T, tau, p, "subspace")
        for t in range(4):
            assert_allclose(Z[:, :, t], P @ T[:, :, t], atol=1e-11)


# --------------------------------------------------------------------------------------------------- averaging


@pytest.mark.parametrize("m", [1, 2, 5])
def test_averaging_is_the_nearest_stack_of_equal_slices(rng, m):
    T = rng.normal(size=(6, 3, m))
    Z = prox(T, 0.9, 1.0, "average")
    assert Z.shape == T.shape
    for t in range(m):
        assert_array_equal(Z[:, :, t], Z[:, :, 0])
    least = np.linalg.norm(Z - T)
    for size in (1e-6, 1e-3, 1.0):
        for _ in range(10):
            assert least <= np.linalg.norm(Z + size * rng.normal(size=(6, 3, 1)) - T) + 1e-12
    assert_allclose((T - Z).sum(axis=2), 0, atol=1e-12)


def test_averaging_twice_is_averaging_once(rng):
    Z = prox(rng.normal(size=(6, 3, 4)), 0.9, 1.0, "average")
    assert_allclose(prox(Z, 0.9, 1.0, "average"), Z, rtol=1e-15)


def test_averaging_costs_nothing_and_has_the_rank_of_the_mean(rng):
    T = rng.normal(size=(6, 3, 4))
    assert schatten_p(T, 0.5, "average") == schatten_p(T, 1.0, "average") == 0
    s = np.linalg.svd(T.mean(axis=2), compute_uv=False)
    assert_allclose(COUPLINGS["average"].critical_threshold(T), s[0], rtol=1e-12)
    assert COUPLINGS["average"].prox(T[:, :1], 1.0, 1.0).rank == 1
    assert COUPLINGS["average"].prox(T, 1.0, 1.0).rank == 3


def test_averaging_carries_along_what_is_common_to_all(rng):
    T, R, order = rng.normal(size=(6, 3, 4)), orthogonal(rng, 3), [2, 0, 3, 1]
    Z = prox(T, 1.0, 1.0, "average")
    assert_allclose(prox(T[:, :, order], 1.0, 1.0, "average"), Z, atol=1e-14)
    turned = each_slice(T, lambda W, t: W @ R)
    assert_allclose(prox(turned, 1.0, 1.0, "average"), each_slice(Z, lambda W, t: W @ R), atol=1e-14)


# --------------------------------------------------------------------------------------------- invariances


def each_slice(T, change):
    return np.stack([change(T[:, :, t], t) for t in range(T.shape[2])], axis=2)


@pytest.fixture
def changes(rng):
    d, k, m = 9, 5, 6
    Q, R = orthogonal(rng, d), orthogonal(rng, k)
    own = [orthogonal(rng, k) for _ in range(m)]
    signs = rng.choice([-1.0, 1.0], size=(k, m))
    rows, columns = rng.permutation(d), rng.permutation(k)
    order = np.array([0, 2, 1, 4, 3, 5])
    return {
        "cyclic shift of clients": lambda T: np.roll(T, 2, axis=2),
        "reversal of clients": lambda T: T[:, :, ::-1],
        "permutation of clients": lambda T: T[:, :, order],
        "permutation of features": lambda T: T[rows],
        "orthogonal change of features": lambda T: each_slice(T, lambda W, t: Q @ W),
        "common rotation": lambda T: each_slice(T, lambda W, t: W @ R),
        "common permutation of columns": lambda T: T[:, columns],
        "rotation of each client": lambda T: each_slice(T, lambda W, t: W @ own[t]),
        "signs of each client": lambda T: T * signs,
    }


MOVES_THE_TENSOR = {"permutation of clients", "rotation of each client", "signs of each client"}
NAMES = [
    "cyclic shift of clients",
    "reversal of clients",
    "permutation of clients",
    "permutation of features",
    "orthogonal change of features",
    "common rotation",
    "common permutation of columns",
    "rotation of each client",
    "signs of each client",
]


@pytest.mark.parametrize("coupling", BOTH)
@pytest.mark.parametrize(("name", "p"), [*zip(NAMES, [0.5, 1.0] * 5, strict=False)])
def test_what_the_norm_does_not_see_the_prox_carries_along(rng, changes, name, coupling, p):
    T, change = rng.normal(size=(9, 5, 6)), changes[name]
    value, changed = schatten_p(T, p, coupling), schatten_p(change(T), p, coupling)
    Z = prox(T, 1.0, p, coupling)
    if coupling == "tensor" and name in MOVES_THE_TENSOR:
        assert abs(changed - value) > 1e-5 * value
        assert np.abs(prox(change(T), 1.0, p, coupling) - change(Z)).max() > 1e-3
    else:
        assert_allclose(changed, value, rtol=1e-12)
        assert_allclose(prox(change(T), 1.0, p, coupling), change(Z), atol=1e-11)


def test_three_clients_may_come_in_any_order(rng):
    T = rng.normal(size=(6, 4, 3))
    for order in ([1, 0, 2], [2, 1, 0], [0, 2, 1]):
        assert_allclose(tsvt(T[:, :, order], 0.7), tsvt(T, 0.7)[:, :, order], atol=1e-12)


# ------------------------------------------------------------------------------------------------ the rest


def test_dual_step_is_eq_19(rng):
    Y, W, Z = rng.normal(size=(3, 4, 3, 2))
    assert_allclose(update_dual(Y, W, Z, 0.3), Y + 0.3 * W - 0.3 * Z, atol=1e-14)


def test_dual_after_a_prox_is_a_subgradient(rng):
    """Eq. 18 then 19: Y/beta is in the subdifferential at Z, whatever the dual was before."""
    Y0, W = rng.normal(size=(2, 6, 3, 4))
    beta, rho = 1.3, 0.4
    Z = tsvt(W + Y0 / rho, beta / rho)
    Y = update_dual(Y0, W, Z, rho)
    assert singular_values(Y / beta, "tensor")[0].max() <= 1 + 1e-12
    assert_allclose((Y * Z).sum(), beta * schatten_p(Z, 1.0), rtol=1e-12)


# --------------------------------------------------------------- the way through AᴴA, and where it is left


def with_values(rng, d, k, m, values):
    """A stack whose Fourier slices have these singular values, in order."""
    That = np.zeros((d, k, m), dtype=complex)
    for i in range(m // 2 + 1):
        U, V = (np.linalg.qr(rng.normal(size=(n, k)) + 1j * rng.normal(size=(n, k)))[0] for n in (d, k))
        if i in (0, m / 2):
            U, V = (np.linalg.qr(rng.normal(size=(n, k)))[0] for n in (d, k))
        That[:, :, i] = U * values @ V.conj().T
        That[:, :, -i % m] = That[:, :, i].conj()
    return np.fft.ifft(That, axis=2).real


def by_svd(T, tau, p, coupling):
    """Z and the sum of powers p of T, straight from the formulas."""
    d, k, m = T.shape
    if coupling == "tensor":
        return literal_tsvt(T, tau, p), literal_norm(T, p)
    U, s, Vh = np.linalg.svd(T.reshape(d, k * m), full_matrices=False)
    x = np.array([literal_shrink(each, tau, p) for each in s])
    return (U * x @ Vh).reshape(T.shape), (s**p).sum()


@pytest.fixture
def factored(monkeypatch):
    """How many slices went through a QR factorisation."""
    slices, real = [], np.linalg.qr
    monkeypatch.setattr(np.linalg, "qr", lambda A: slices.append(len(A)) or real(A))
    return slices


@pytest.mark.parametrize("coupling", BOTH)
@pytest.mark.parametrize(
    ("threshold", "exact", "p"),
    [(1e-9, True, 1.0), (3e-7, True, 0.5), (3e-5, True, 1.0), (3e-4, False, 0.5), (0.15, False, 1.0)],
)
def test_shrinkage_has_ten_digits_on_either_side_of_the_switch(rng, factored, coupling, threshold, exact, p):
    T = with_values(rng, 40, 6, 5, 5 ** -np.arange(6.0) * [1, 1, 1, 1, 1e-3, 1e-5])
    T *= 10 / singular_values(T, coupling)[0].max()
    tau = weight_of_threshold(10 * threshold, p)
    del factored[:]
    Z = prox(T, tau, p, coupling)
    assert bool(factored) == exact
    expected, _ = by_svd(T, tau, p, coupling)
    assert np.linalg.norm(Z - expected) <= 1e-10 * np.linalg.norm(expected)


@pytest.mark.parametrize("coupling", BOTH)
@pytest.mark.parametrize(
    ("least", "exact", "p"),
    [(0.0, True, 1.0), (1e-8, True, 0.3), (1e-6, True, 1.0), (3e-2, False, 0.3), (0.5, False, 1.0)],
)
def test_norm_has_ten_digits_on_either_side_of_the_switch(rng, factored, coupling, least, exact, p):
    T = with_values(rng, 40, 4, 5, np.array([1, 0.7, 0.6, least]))
    del factored[:]
    value = schatten_p(T, p, coupling)
    assert bool(factored) == exact
    s, weight = singular_values(T, coupling, p)
    exact_s = np.linalg.svd(
        np.moveaxis(np.fft.rfft(T, axis=2), 2, 0) if coupling == "tensor" else T.reshape(1, 40, -1)
    )[1]
    assert_allclose(value, (weight * exact_s**p).sum(), rtol=1e-10 if least else 1e-4)
    assert_allclose(s, exact_s, atol=1e-14 if exact else 1e-12)


def test_only_slices_in_doubt_are_factored(rng, factored):
    T = rng.normal(size=(30, 4, 6))
    assert_array_equal(prox(T, 1e-6, 1.0), prox(T, 1e-6, 1.0))
    assert factored == [4, 4]
    T = np.fft.rfft(T, axis=2)
    T[:, :, 1:] *= 1e-3  # below, there is nothing to doubt: their largest value is near enough to the threshold
    T = np.fft.irfft(T, 6, axis=2)
    del factored[:]
    Z = prox(T, 3e-4, 1.0)
    assert factored == [1]
    assert np.linalg.norm(Z - literal_tsvt(T, 3e-4, 1.0)) <= 1e-10 * np.linalg.norm(Z)


@pytest.mark.parametrize("coupling", BOTH)
@pytest.mark.parametrize(("shape", "tau"), [((50, 3, 4), 1e-7), ((7, 5, 40), 0.8), ((5, 8, 3), 1e-7), ((1, 1, 1), 0.8)])
def test_the_size_of_a_block_does_not_matter(rng, monkeypatch, shape, coupling, tau):
    T = rng.normal(size=shape)
    Z, value = prox(T, tau, 0.5, coupling), schatten_p(T, 0.5, coupling)
    monkeypatch.setattr(stacks, "BLOCK", 1)
    monkeypatch.setattr(svd, "MIN_ROWS", 2)
    assert_allclose(prox(T, tau, 0.5, coupling), Z, atol=1e-13)
    assert_allclose(schatten_p(T, 0.5, coupling), value, rtol=1e-12)


@pytest.mark.parametrize("coupling", BOTH)
def test_single_precision_is_only_that_of_the_stacks(rng, coupling):
    """Nothing is rounded on the way: shrinking the same numbers in double precision and rounding gives the same."""
    T = rng.normal(size=(9, 3, 6)).astype(np.float32)
    for tau in (1e-3, 0.5):
        assert_array_equal(
            prox(T, tau, 1.0, coupling), prox(T.astype(np.float64), tau, 1.0, coupling).astype(np.float32)
        )


# ------------------------------------------------------------------------------- where both sides are long


@pytest.fixture
def iterated(monkeypatch):
    """Every matrix counts as large."""
    monkeypatch.setattr(svd, "GRAM_UP_TO", 0)
    monkeypatch.setattr(svd, "KRYLOV_WIDTH", 4)
    monkeypatch.setattr(svd, "MIN_ROWS", 8)
    monkeypatch.setattr(stacks, "BLOCK", 1)


@pytest.mark.usefixtures("iterated")
@pytest.mark.parametrize("shape", [(90, 5, 10), (40, 5, 20), (50, 5, 10)])
@pytest.mark.parametrize(("p", "share"), [(0.5, 0.02), (1.0, 0.3), (0.5, 0.8), (1.0, 0.999), (0.5, 1.001), (1.0, 1.5)])
def test_iterated_vectors_shrink_as_all_of_them_do(rng, shape, p, share):
    d, k, m = shape
    T = rng.normal(size=shape) + 3 * (rng.normal(size=(d, 6)) @ rng.normal(size=(6, k * m))).reshape(shape)
    tau = weight_of_threshold(share * np.linalg.norm(T.reshape(d, -1), 2), p)
    Z, s, weight = shrink_slices(T.reshape(d, k * m, 1), tau, p)
    Z = Z.reshape(shape)
    expected, _ = by_svd(T, tau, p, "subspace")
    assert np.linalg.norm(Z - expected) <= 1e-10 * np.linalg.norm(T)
    x = np.linalg.svd(expected.reshape(d, -1), compute_uv=False)
    assert s.shape[1] == max((x > 1e-12 * x[0]).sum(), 1)
    assert_allclose(s[0], x[: s.shape[1]], atol=1e-10 * np.linalg.norm(T))
    assert_array_equal(weight, 1)
    assert_array_equal(Z, prox(T, tau, p, "subspace"))


@pytest.mark.usefixtures("iterated")
def test_equal_values_above_the_threshold_are_all_found(rng):
    """A block of four columns alone cannot see more than four of them."""
    U, V = (np.linalg.qr(rng.normal(size=(n, 40)))[0] for n in (80, 60))
    M = U * np.repeat([5.0, 3.0, 0.5], [9, 11, 20]) @ V.T
    Z = prox(M.reshape(80, 6, 10), 1.0, 1.0, "subspace").reshape(80, 60)
    assert_allclose(Z, U[:, :20] * np.repeat([4.0, 2.0], [9, 11]) @ V[:, :20].T, atol=1e-10)
    U, V = U[:, :5], V[:, :5]  # one more than columns, and no other
    Z = prox((5 * U @ V.T).reshape(80, 6, 10), 4.5, 1.0, "subspace").reshape(80, 60)
    assert_allclose(Z, 0.5 * U @ V.T, atol=1e-10)


@pytest.mark.usefixtures("iterated")
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_the_norm_of_a_large_matrix_is_an_upper_bound(rng, p):
    T = rng.normal(size=(90, 5, 30)) + 3 * (rng.normal(size=(90, 3)) @ rng.normal(size=(3, 150))).reshape(90, 5, 30)
    exact = np.linalg.svd(T.reshape(90, -1), compute_uv=False)
    s, weight = singular_values(T, "subspace")
    assert s.shape == weight.shape == (1, 90)
    assert_allclose(s[0, 0], exact[0], rtol=1e-12)
    assert_allclose((s**2).sum(), (T**2).sum(), rtol=1e-12)
    value = schatten_p(T, p, "subspace")
    assert (exact**p).sum() * (1 + 1e-3) < value < 90 * ((T**2).sum() / 90) ** (p / 2) * (1 - 1e-3)


@pytest.mark.torch
@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-10), ("float32", 1e-5)])
def test_large_matrices_of_tensors(rng, monkeypatch, dtype, digits):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(svd, "GRAM_UP_TO", 0)
    T = rng.normal(size=(12, 3, 6)).astype(dtype)
    for p, tau in ((1.0, 0.9), (0.5, 1e-6)):
        mine, theirs = (COUPLINGS["subspace"].prox(each, tau, p) for each in (T, torch.from_numpy(T)))
        assert_allclose(theirs.Z.numpy(), mine.Z, atol=digits)
        assert_allclose(theirs.value, mine.value, rtol=digits)
    assert_allclose(schatten_p(torch.from_numpy(T), 0.5, "subspace"), schatten_p(T, 0.5, "subspace"), rtol=digits)
    assert_allclose(update_dual(*map(torch.from_numpy, (T, T, 2 * T)), 0.3).numpy(), 0.7 * T, atol=digits)


PRESENT = np.array([[1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 1, 1]], bool)  # of four clients, those that have each concept


def partial_stack(seed=0, d=7):
    return np.random.default_rng(seed).normal(size=(d, *PRESENT.shape)) * PRESENT


def test_the_average_of_a_concept_is_that_of_the_clients_that_have_it():
    T, partial = partial_stack(), Partial(COUPLINGS["average"], PRESENT)
    Z = partial.prox(T, 0.3, 1.0).Z
    cost = np.square(Z - T).sum()
    for j, have in enumerate(PRESENT):
        for t in np.flatnonzero(have):
            assert_allclose(Z[:, j, t], T[:, j, have].mean(axis=1))
    moved = Z + 0.01 * (np.random.default_rng(1).normal(size=(7, 3, 1)) * PRESENT)  # another common column
    assert cost < np.square(moved - T).sum()


def test_side_by_side_columns_that_a_client_lacks_count_for_nothing():
    T, partial = partial_stack(), Partial(COUPLINGS["subspace"], PRESENT)
    columns = T[:, PRESENT]
    U, s, Vh = np.linalg.svd(columns, full_matrices=False)
    Z = partial.prox(T, 0.5, 1.0).Z
    assert_allclose(Z[:, PRESENT], (U * np.maximum(s - 0.5, 0)) @ Vh, atol=1e-10)
    assert not Z[:, ~PRESENT].any()
    assert_allclose(partial.critical_threshold(T), s[0])


@pytest.mark.parametrize("name", COUPLINGS)
def test_a_client_without_a_concept_neither_pulls_nor_is_pulled(name):
    T = partial_stack()
    partial = Partial(COUPLINGS[name], PRESENT)
    assert not partial.prox(T, 0.2, 1.0).Z[:, ~PRESENT].any()
    every = Partial(COUPLINGS[name], np.ones_like(PRESENT))
    full = np.random.default_rng(3).normal(size=T.shape)
    assert_allclose(every.prox(full, 0.2, 1.0).Z, COUPLINGS[name].prox(full, 0.2, 1.0).Z, atol=1e-12)
    equal = np.repeat(full[:, :, :1], 4, axis=2)  # columns that agree: a lacking one is as if it were there
    found = partial.prox(equal * PRESENT, 0.2, 1.0).Z
    if COUPLINGS[name].fills:
        assert_allclose(found, COUPLINGS[name].prox(equal, 0.2, 1.0).Z * PRESENT, atol=1e-10)
