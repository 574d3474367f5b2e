import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq

from fmtc.kernels.consensus import (
    prox,
    schatten_p,
    shrink,
    singular_values,
    subspace_threshold,
    tsvt,
    update_dual,
    weight_of_threshold,
)

COUPLINGS = ["tensor", "subspace"]


def orthogonal(rng, k):
    return np.linalg.qr(rng.normal(size=(k, k)))[0]


def scalar_cost(x, s, tau, p):
    return tau * x**p + 0.5 * (x - s) ** 2


def stack_cost(Z, T, tau, p, coupling):
    return tau * schatten_p(Z, p, coupling) + 0.5 * ((Z - T) ** 2).sum()


# ------------------------------------------------------------------------------------------- scalar shrinkage


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("threshold", [0.2, 1.0, 7.0])
def test_a_weight_shrinks_to_zero_what_its_threshold_says_and_no_more(p, threshold):
    x = shrink(threshold * np.array([1 - 1e-9, 1 + 1e-9]), weight_of_threshold(threshold, p), p)
    assert x[0] == 0
    assert x[1] > 0


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("tau", [0.1, 1.0, 3.0])
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


@pytest.mark.parametrize("m", range(1, 8))
@pytest.mark.parametrize("shape", [(6, 3), (3, 5)])
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
    for coupling in COUPLINGS:
        assert_allclose(prox(T, 0.7, 1.0, coupling)[:, :, 0], expected, atol=1e-12)
        assert_allclose(schatten_p(T, 1.0, coupling), s.sum(), rtol=1e-12)


def test_two_clients_are_their_sum_and_difference(rng):
    T = rng.normal(size=(5, 3, 2))
    total, gap = T[:, :, 0] + T[:, :, 1], T[:, :, 0] - T[:, :, 1]
    shrunk = [subspace_threshold(each[:, :, None], 0.6)[:, :, 0] for each in (total, gap)]
    expected = np.stack([(shrunk[0] + shrunk[1]) / 2, (shrunk[0] - shrunk[1]) / 2], axis=2)
    assert_allclose(tsvt(T, 0.6), expected, atol=1e-12)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("p", [0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("m", [3, 4])
def test_prox_beats_its_neighbours_its_input_and_zero(rng, coupling, p, m):
    T, tau = rng.normal(size=(6, 3, m)), 0.9
    Z = prox(T, tau, p, coupling)
    least = stack_cost(Z, T, tau, p, coupling)
    assert least < min(stack_cost(T, T, tau, p, coupling), stack_cost(0 * T, T, tau, p, coupling))
    for size in (1e-6, 1e-3, 1e-1, 1.0):
        for _ in range(10):
            assert least <= stack_cost(Z + size * rng.normal(size=Z.shape), T, tau, p, coupling) + 1e-12


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_convex_prox_does_not_expand(rng, coupling):
    for _ in range(30):
        A, B = rng.normal(size=(2, 5, 3, 4))
        gap = prox(A, 0.8, 1.0, coupling) - prox(B, 0.8, 1.0, coupling)
        assert np.linalg.norm(gap) <= np.linalg.norm(A - B)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_convex_prox_leaves_a_subgradient(rng, coupling):
    T, tau = rng.normal(size=(6, 3, 5)), 1.1
    Z = prox(T, tau, 1.0, coupling)
    G = (T - Z) / tau  # in the subdifferential: spectral norm at most 1, and <G, Z> is the norm of Z
    assert singular_values(G, coupling)[0].max() <= 1 + 1e-12
    assert_allclose((G * Z).sum(), schatten_p(Z, 1.0, coupling), rtol=1e-12)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_no_threshold_is_the_identity(rng, coupling):
    T = rng.normal(size=(5, 3, 4))
    for p in (0.5, 1.0):
        assert_array_equal(prox(T, 0, p, coupling), T)
        assert_allclose(prox(T, 1e-13, p, coupling), T, atol=1e-11)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("m", [1, 4, 5])
def test_threshold_at_the_largest_singular_value_leaves_nothing(rng, coupling, m):
    T = rng.normal(size=(6, 3, m))
    largest = singular_values(T, coupling)[0].max()
    assert_array_equal(prox(T, largest, 1.0, coupling), 0)
    Z = prox(T, largest * (1 - 1e-6), 1.0, coupling)
    assert np.abs(Z).max() > 1e-9


@pytest.mark.parametrize("m", [2, 3, 6])
@pytest.mark.parametrize("p", [0.5, 1.0])
def test_identical_clients_are_penalised_m_times_less_each(rng, m, p):
    W = rng.normal(size=(6, 3))
    Z = tsvt(np.repeat(W[:, :, None], m, axis=2), 1.2, p)
    # only the slice m W is not zero: m shrink(s) of m s at tau is s shrunk at tau m^(p - 2), tau/m for p = 1
    expected = subspace_threshold(W[:, :, None], 1.2 * m ** (p - 2), p)
    for t in range(m):
        assert_allclose(Z[:, :, [t]], expected, atol=1e-12)


def test_subspace_prox_through_the_sum_of_outer_products(rng):
    T, tau = rng.normal(size=(5, 3, 4)), 1.5
    for p in (0.5, 1.0):
        G = sum(T[:, :, t] @ T[:, :, t].T for t in range(4))  # all the server would need
        lam, U = np.linalg.eigh(G)
        s = np.sqrt(lam)
        P = U @ np.diag(shrink(s, tau, p) / s) @ U.T
        Z = subspace_threshold(T, tau, p)
        for t in range(4):
            assert_allclose(Z[:, :, t], P @ T[:, :, t], atol=1e-11)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("p", [0.5, 1.0])
def test_single_precision_stays(rng, coupling, p):
    T = rng.normal(size=(5, 3, 4))
    Z = prox(T.astype(np.float32), 0.5, p, coupling)
    assert Z.dtype == np.float32
    assert_allclose(Z, prox(T, 0.5, p, coupling), atol=1e-5)


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


def test_averaging_knows_neither_threshold_nor_power(rng):
    T = rng.normal(size=(6, 3, 4))
    for tau in (0, 1.0, 1e9):
        for p in (0.5, 1.0):
            assert_array_equal(prox(T, tau, p, "average"), prox(T, 1.0, 1.0, "average"))


def test_averaging_costs_nothing_and_shows_the_mean(rng):
    T = rng.normal(size=(6, 3, 4))
    assert schatten_p(T, 0.5, "average") == schatten_p(T, 1.0, "average") == 0
    s, weight = singular_values(T, "average")
    assert_allclose(s[0], np.linalg.svd(T.mean(axis=2), compute_uv=False), rtol=1e-12)
    assert_array_equal(weight, 0)


def test_averaging_keeps_single_precision(rng):
    T = rng.normal(size=(5, 3, 4)).astype(np.float32)
    assert prox(T, 0.5, 1.0, "average").dtype == singular_values(T, "average")[0].dtype == np.float32


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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("p", [0.5, 1.0])
def test_what_the_norm_does_not_see_the_prox_carries_along(rng, changes, name, coupling, p):
    T, change = rng.normal(size=(9, 5, 6)), changes[name]
    value, moved = schatten_p(T, p, coupling), schatten_p(change(T), p, coupling)
    Z = prox(T, 1.0, p, coupling)
    if coupling == "tensor" and name in MOVES_THE_TENSOR:
        assert abs(moved - value) > 1e-5 * value
        assert np.abs(prox(change(T), 1.0, p, coupling) - change(Z)).max() > 1e-3
    else:
        assert_allclose(moved, value, rtol=1e-12)
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
