from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.kernels.alignment import (
    generalized_procrustes,
    match_clusters,
    match_concepts,
    numbers_of,
    procrustes,
    propose_concepts,
    rotate,
    turn_towards,
    widening,
)
from fmtc.kernels.couplings import schatten_p
from fmtc.kernels.couplings.spectrum import singular_values


def orthogonal(rng, k):
    return np.linalg.qr(rng.normal(size=(k, k)))[0] * rng.choice([-1.0, 1.0], size=k)


def assert_orthogonal(R):
    k = R.shape[0]
    assert_allclose(R.T @ R, np.eye(k), atol=1e-12)
    assert_allclose(R @ R.T, np.eye(k), atol=1e-12)


def slices(T):
    return [T[:, :, t] for t in range(T.shape[2])]


# --------------------------------------------------------------------------------------------- one client


@pytest.mark.parametrize("k", [1, 2, 5])
def test_procrustes_is_the_best_rotation(rng, k):
    W, reference = rng.normal(size=(2, 7, k))
    R = procrustes(W, reference)
    assert_orthogonal(R)
    best = np.linalg.norm(W @ R - reference)
    for _ in range(200):
        assert best <= np.linalg.norm(W @ orthogonal(rng, k) - reference)
    assert best <= np.linalg.norm(W - reference)


def test_procrustes_finds_a_reflection(rng):
    W = rng.normal(size=(6, 3))
    R = orthogonal(rng, 3)
    R[:, 0] *= -np.sign(np.linalg.det(R))
    assert np.linalg.det(R) < 0
    assert_allclose(procrustes(W, W @ R), R, atol=1e-12)


def test_one_column_aligns_by_sign(rng):
    w = rng.normal(size=(5, 1))
    assert_allclose(procrustes(w, 3 * w), 1, atol=1e-12)
    assert_allclose(procrustes(w, -w), -1, atol=1e-12)
    assert_allclose(turn_towards(w, -w), -1, atol=1e-12)
    assert_allclose(turn_towards(w, 0 * w), 1, atol=1e-12)


@pytest.mark.parametrize(("k", "size"), [(1, 1.0), (3, 0.0), (3, 1e3), (6, 1e-3), (6, 1.0)])
def test_turning_never_leads_away_from_the_consensus(rng, k, size):
    for _ in range(20):
        W, Z = rng.normal(size=(2, 6, k))
        Z *= size
        R = turn_towards(W, Z)
        assert_orthogonal(R)
        assert np.linalg.norm(W @ R - Z) <= np.linalg.norm(W - Z) * (1 + 1e-13)


def test_turning_closes_in_on_a_rotated_copy(rng):
    W, R = rng.normal(size=(8, 3)), orthogonal(rng, 3)
    Z = W @ R
    gap = np.linalg.norm(W - Z)
    for _ in range(60):
        W = W @ turn_towards(W, Z)
    assert np.linalg.norm(W - Z) < 1e-6 * gap


def test_a_client_at_its_consensus_stays(rng):
    W = rng.normal(size=(8, 4))
    for share in (1.0, 0.3):
        assert_allclose(turn_towards(W, share * W), np.eye(4), atol=1e-12)


def test_turning_leaves_alone_what_the_consensus_does_not_speak_of(rng):
    W = np.linalg.qr(rng.normal(size=(9, 5)))[0] * [5.0, 4.0, 1.0, 0.5, 0.1]
    Z = np.zeros_like(W)
    Z[:, :2] = W[:, :2] @ orthogonal(rng, 2)  # the last three directions are shrunk to nothing
    Q = orthogonal(rng, 5)  # in a frame that does not show them
    R = turn_towards(W @ Q, Z @ Q)
    assert_allclose(R @ Q[2:].T, Q[2:].T, atol=1e-12)
    assert np.linalg.norm(W @ Q @ R - Z @ Q) < 0.9 * np.linalg.norm(W - Z)  # and it did turn the others
    assert_allclose(turn_towards(W @ Q, 0 * Z), np.eye(5), atol=1e-12)


def test_a_direction_below_the_threshold_is_not_turned_over(rng):
    """The exact minimiser of the Lagrangian would: there Z = 0 and Y = rho W, so it turns towards -W."""
    W = np.linalg.qr(rng.normal(size=(6, 2)))[0] * [3.0, 0.2]
    Z, Y = W * [0.9, 0.0], W * [0.1, 1.0]  # rho = 1
    assert_allclose(procrustes(W, Z - Y), np.diag([1.0, -1.0]), atol=1e-12)
    assert_allclose(turn_towards(W, Z), np.eye(2), atol=1e-12)


def test_turning_commutes_with_a_common_rotation(rng):
    W, Z = rng.normal(size=(2, 7, 4))
    Q = orthogonal(rng, 4)
    assert_allclose(W @ Q @ turn_towards(W @ Q, Z @ Q), W @ turn_towards(W, Z) @ Q, atol=1e-12)


# ------------------------------------------------------------------------------------------- all clients


def test_rotate_is_slice_by_slice(rng):
    W, R = rng.normal(size=(6, 3, 4)), rng.normal(size=(3, 3, 4))
    assert_allclose(rotate(W, R), np.stack([a @ b for a, b in zip(slices(W), slices(R), strict=True)], 2), atol=1e-13)


@pytest.mark.parametrize(("d", "k", "m"), [(8, 3, 5), (8, 1, 5), (3, 3, 2), (2, 4, 3), (6, 4, 1)])
def test_rotated_copies_are_brought_together(rng, d, k, m):
    base = rng.normal(size=(d, k))
    W = np.stack([base @ orthogonal(rng, k) for _ in range(m)], axis=2)
    R = generalized_procrustes(W)
    for each in slices(R):
        assert_orthogonal(each)
    turned = rotate(W, R)
    assert_allclose(turned, np.repeat(turned[:, :, :1], m, axis=2), atol=1e-8)
    # all frequencies but the first are empty: the stack has the rank of one client, and its norm
    s, _ = singular_values(turned)
    assert_allclose(s[1:], 0, atol=1e-8)
    assert_allclose(schatten_p(turned, 1.0), np.linalg.svd(base, compute_uv=False).sum(), rtol=1e-8)
    if m > 1:
        assert schatten_p(W, 1.0) > schatten_p(turned, 1.0) * 1.01


def spread(W):
    unit = W / np.linalg.norm(W, axis=(0, 1))
    return np.square(unit - unit.mean(axis=2, keepdims=True)).sum()


def test_every_client_ends_at_its_best_against_the_mean(rng):
    """The fixed point of the alternation, not its first step."""
    base = rng.normal(size=(8, 4))
    noisy = [(base + 0.8 * rng.normal(size=base.shape)) @ orthogonal(rng, 4) for _ in range(6)]
    W = np.stack(noisy, axis=2) * rng.uniform(0.1, 10, size=6)  # sizes must not matter
    turned = rotate(W, generalized_procrustes(W, tol=1e-14, max_iter=5000))
    unit = turned / np.linalg.norm(turned, axis=(0, 1))
    for each in slices(unit):
        assert_allclose(procrustes(each, unit.mean(axis=2)), np.eye(4), atol=1e-5)


def test_more_alternations_never_spread_the_clients(rng):
    W = rng.normal(size=(6, 4, 7))
    spreads = [spread(rotate(W, generalized_procrustes(W, tol=0, max_iter=i))) for i in range(1, 15)]
    assert (np.diff(spreads) <= 1e-12).all()
    assert spreads[-1] < spreads[0] * (1 - 1e-4)
    assert spread(rotate(W, generalized_procrustes(W))) <= spreads[-1] * (1 + 1e-6)


def test_alignment_does_not_depend_on_where_clients_start(rng):
    W = rng.normal(size=(7, 3, 5)) + 2 * rng.normal(size=(7, 3, 1))
    own = np.stack([orthogonal(rng, 3) for _ in range(5)], axis=2)
    one = rotate(W, generalized_procrustes(W))
    other = rotate(rotate(W, own), generalized_procrustes(rotate(W, own)))
    common = procrustes(other[:, :, 0], one[:, :, 0])
    assert_allclose(rotate(other, np.repeat(common[:, :, None], 5, axis=2)), one, atol=1e-9)
    assert_allclose(schatten_p(one, 1.0), schatten_p(other, 1.0), rtol=1e-10)
    assert abs(schatten_p(W, 1.0) - schatten_p(rotate(W, own), 1.0)) > 0.1  # unaligned, it does


def test_rotations_of_a_stack_are_those_of_its_slices(rng):
    W, Z = rng.normal(size=(2, 6, 3, 5))
    for turn in (procrustes, turn_towards):
        one_by_one = np.stack([turn(w, z) for w, z in zip(slices(W), slices(Z), strict=True)], axis=2)
        assert_allclose(turn(W, Z), one_by_one, atol=1e-13)


def literal_alignment(W):
    """Mean and rotations in turn, client by client."""
    units = [each / np.linalg.norm(each) for each in slices(W)]
    U, s, _ = np.linalg.svd(np.hstack(units), full_matrices=False)
    k = W.shape[1]
    reference = U[:, :k] * s[:k] * np.sign(U[np.abs(U).argmax(axis=0), np.arange(len(s))])[:k]
    last = np.inf
    for _ in range(200):
        R = [procrustes(unit, reference) for unit in units]
        turned = [unit @ each for unit, each in zip(units, R, strict=True)]
        reference = np.mean(turned, axis=0)
        now = sum(np.square(each - reference).sum() for each in turned)
        if now >= last * (1 - 1e-8):
            break
        last = now
    return np.stack(R, axis=2)


@pytest.mark.parametrize(("d", "k", "m"), [(30, 3, 6), (10, 3, 9)])
def test_alignment_client_by_client(rng, d, k, m):
    W = (rng.normal(size=(d, k, 1)) + 0.5 * rng.normal(size=(d, k, m))) * rng.uniform(0.1, 10, size=m)
    assert_allclose(generalized_procrustes(W), literal_alignment(W), atol=1e-10)


@pytest.mark.torch
@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-10), ("float32", 1e-5)])
def test_tensors_as_arrays(rng, dtype, digits):
    torch = pytest.importorskip("torch")
    W, Z = (rng.normal(size=(12, 3, 1)) + 0.1 * rng.normal(size=(2, 12, 3, 6))).astype(dtype)
    other, its_z = torch.from_numpy(W), torch.from_numpy(Z)
    R = generalized_procrustes(W)
    assert R.dtype == dtype
    for mine, theirs in (
        (procrustes(W, Z), procrustes(other, its_z)),
        (turn_towards(W, Z), turn_towards(other, its_z)),
        (turn_towards(W[:, :, 0], Z[:, :, 0]), turn_towards(other[:, :, 0], its_z[:, :, 0])),
        (rotate(W, R), rotate(other, torch.from_numpy(R))),
        (rotate(W, R), rotate(other, generalized_procrustes(other))),
    ):
        assert theirs.dtype == other.dtype
        assert_allclose(theirs.numpy(), mine, atol=digits)


def test_an_empty_client_does_no_harm(rng):
    W = rng.normal(size=(6, 3, 3))
    W[:, :, 1] = 0
    R = generalized_procrustes(W)
    for each in slices(R):
        assert_orthogonal(each)


# ------------------------------------------------------------------------------------------ cluster numbers


def test_clusters_are_found_again_whatever_their_order_and_size(rng):
    concepts = rng.normal(size=(5, 8))
    shuffles = [rng.permutation(5) for _ in range(6)]
    signatures = [(concepts[s] + 0.1 * rng.normal(size=(5, 8))) * rng.uniform(0.5, 20) for s in shuffles]
    orders = match_clusters(signatures)
    found = [shuffle[order] for shuffle, order in zip(shuffles, orders, strict=True)]
    for each in found:
        assert_array_equal(each, found[0])
        assert_array_equal(np.sort(each), np.arange(5))


def test_matching_maximises_the_similarity_of_two_clients(rng):
    for _ in range(20):
        A, B = rng.normal(size=(2, 4, 3))
        A, B = (S / np.linalg.norm(S, axis=1, keepdims=True) for S in (A, B))
        a, b = match_clusters([A, B])
        best = max(np.sum(A * B[list(order)]) for order in permutations(range(4)))
        assert_allclose(np.sum(A[a] * B[b]), best, rtol=1e-12)


def test_numbers_follow_the_mean_rank():
    concepts = np.eye(3)
    # concept 2 is first in two clients and second in one; concept 0 has ranks 0, 1, 1; concept 1 is always last
    signatures = [concepts[[0, 2, 1]], concepts[[2, 0, 1]], concepts[[2, 0, 1]]]
    orders = match_clusters(signatures)
    for signature, order in zip(signatures, orders, strict=True):
        assert_array_equal(signature[order], concepts[[2, 0, 1]])


def test_equal_mean_ranks_follow_the_first_client():
    concepts = np.eye(2)
    orders = match_clusters([concepts[[1, 0]], concepts])
    assert_array_equal(orders, [[0, 1], [1, 0]])


def test_numbering_one_client_keeps_its_order(rng):
    assert_array_equal(match_clusters([rng.normal(size=(4, 6))]), [np.arange(4)])


def test_clusters_without_a_signature_still_get_a_number(rng):
    S = rng.normal(size=(3, 5))
    empty = S.copy()
    empty[1] = 0
    orders = match_clusters([S, empty])
    for order in orders:
        assert_array_equal(np.sort(order), np.arange(3))
    assert_array_equal(orders[0], orders[1])


def lacking(seed, held, noise=0.0, d=12, n_concepts=5):
    """Signatures of clients that have some concepts each, in an order of their own, and which they are."""
    rng = np.random.default_rng(seed)
    concepts = rng.normal(size=(n_concepts, d))
    orders = [rng.permutation(some) for some in held]
    return [concepts[order] + noise * rng.normal(size=(len(order), d)) for order in orders], orders


HELD = [(0, 1, 2), (2, 3), (1, 3, 4), (0, 4), (0, 1, 2, 3)]


@pytest.mark.parametrize("d", [12, 200])
def test_concepts_are_found_though_no_client_has_all(d):
    signatures, truth = lacking(0, HELD, noise=0.3, d=d)
    orders = match_concepts(signatures, 5)
    numbers = np.concatenate([numbers_of(order) for order in orders])
    named = {}
    for number, concept in zip(numbers, np.concatenate(truth), strict=True):
        assert named.setdefault(int(number), int(concept)) == concept
    assert len(set(named.values())) == 5
    for order, S in zip(orders, signatures, strict=True):
        assert sorted(order[order >= 0]) == list(range(len(S)))


def test_matching_does_not_depend_on_the_order_or_length_of_signatures():
    signatures, _ = lacking(1, HELD, noise=0.2)
    orders = match_concepts(signatures, 5)
    back = match_concepts([3 * S for S in signatures[::-1]], 5)[::-1]
    same = [tuple(zip(numbers_of(a), numbers_of(b), strict=True)) for a, b in zip(orders, back, strict=True)]
    assert len({pair for some in same for pair in some}) == 5  # a renaming at most


@pytest.mark.parametrize(("held", "count"), [(HELD, 5), ([(0, 1), (2, 3)], 4), ([(0, 1), (0, 1)], 2), ([(0, 1, 2)], 3)])
def test_proposed_number_of_concepts(held, count):
    signatures, _ = lacking(2, held, noise=0.1, d=60)
    assert propose_concepts(signatures) == count


def test_axes_of_concepts_are_orthonormal_and_near_the_centres():
    rng = np.random.default_rng(0)
    centers = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    order = np.array([2, -1, 0, 1, -1])
    P = widening(centers, order)
    assert P.shape == (3, 5)
    assert_allclose(P @ P.T, np.eye(3), atol=1e-12)
    assert_allclose((centers @ P)[order[order >= 0]][:, order >= 0], np.eye(3), atol=1e-12)
    assert not P[:, order < 0].any()
    assert_array_equal(numbers_of(order), [2, 3, 0])
