"""Synthetic federations with known answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fmtc.errors import InputError, nearest_names

from .base import FederatedDataset

Array = np.ndarray
Rng = np.random.Generator

LEAST = 3  # rows of each class in a client of "skew"
TRIES = 64  # sets of class means, of which the most spread out is used


def synthetic(
    kind: str = "subspace",
    *,
    n_clients: int = 4,
    n_samples: int | Sequence[int] | None = None,
    n_features: int | None = None,
    n_clusters: int = 3,
    noise: float = 1.0,
    seed: int = 0,
    **options: Any,
) -> FederatedDataset:
    """A federation whose answer is known, to test a method.

    Every row is the mean of its class in its client plus normal noise. The kind determines how clients differ; ``B``
    (features x rank) has orthonormal columns and is the same for all clients.

    ``"subspace"``
        Means ``C_t Bᵀ``: each client has its own, and all are in one subspace.
        Options: rank (of B; `n_clusters`), separation (3.5).
    ``"rotated"``
        Means ``C R_tᵀ Bᵀ``: the same for all except for a rotation ``R_t`` inside the subspace, so that the clusters of
        two clients are copies of each other. Options: rank, separation.
    ``"skew"``
        Means ``C Bᵀ``, the same for all. Each client has other proportions of the classes, drawn from a Dirichlet
        distribution, and at least three rows of each. Options: concentration (0.5; small is uneven), separation.
    ``"offset"``
        Means ``C Bᵀ + s_t``, where those of C sum to zero: the same for all except for a shift ``s_t`` of fixed length
        in a random direction. Options: distance (20; the length), separation.
    ``"rings"``
        ``r (cos a, sin a) Bᵀ``, a radius r for each class: rings around zero in a plane, evenly filled. k-means and the
        mixture view fail; the graph view finds two or three rings in two columns. Its labels are linear in the columns,
        which it lifts only where they are few: in more than ten columns it fails, and spectral clustering works.
        Option: spacing (20; between rings; the radius of the smallest is half of it).

    Parameters
    ----------
    kind : {"subspace", "rotated", "skew", "offset", "rings"}
    n_clients : int
        They are called silo1, silo2, ...; an additional client does not change the others.
    n_samples : int or sequence of int
        Rows, the same for all or one number for each client; by default 100, in "rings" 100 for each ring. Classes have
        equal proportions, except in "skew" and in "rings", where they are proportional to the length of a ring.
    n_features : int
        By default 20, in "rings" 2.
    n_clusters : int
    noise : float
        Standard deviation in each column. With 0, rows are the means themselves.
    seed : int
        The same seed gives the same rows.
    **options
        Of the kind. The separation is the distance of the two closest means of a client.

    Returns
    -------
    FederatedDataset

    Examples
    --------
    >>> from fmtc_bench.datasets import synthetic
    >>> synthetic("offset", n_clients=3, n_samples=[50, 60, 70], distance=10.0)
    <synthetic-offset-seed0: 180 rows x 20 columns, 3 clients, 3 classes>
    """
    if kind not in KINDS:
        raise InputError(f"there is no kind {kind!r} of synthetic data; {nearest_names(kind, KINDS)}")
    draw, formula = KINDS[kind]
    known = list(inspect.signature(draw).parameters)[4:]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"{kind!r} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    if n_features is None:
        n_features = 2 if kind == "rings" else 20
    if n_samples is None:
        n_samples = 100 * n_clusters if kind == "rings" else 100
    sizes = [n_samples] * n_clients if isinstance(n_samples, int | np.integer) else list(n_samples)
    _check(sizes, n_clients, n_features, n_clusters, noise, seed)
    shared, *own = (np.random.default_rng([seed, t]) for t in range(n_clients + 1))
    parts = list(draw(list(zip(own, sizes, strict=True)), shared, n_features, n_clusters, **options))
    return FederatedDataset(
        name=f"synthetic-{kind}-seed{seed}",
        X=np.concatenate([M + noise * rng.normal(size=M.shape) for rng, (_, M) in zip(own, parts, strict=True)]),
        y=np.concatenate([y for y, _ in parts]),
        clients=np.repeat([f"silo{t + 1}" for t in range(n_clients)], sizes),
        feature_names=tuple(f"x{j + 1}" for j in range(n_features)),
        class_names=tuple(f"{'ring' if kind == 'rings' else 'cluster'}{c + 1}" for c in range(n_clusters)),
        provenance=f"Drawn at random with seed {seed}: {formula}; plus normal noise of standard deviation {noise:g}.",
        licence="None needed: the numbers are drawn at random.",
        citation="Nothing to cite.",
    )


def _check(sizes: list[int], n_clients: int, n_features: int, n_clusters: int, noise: float, seed: int) -> None:
    if n_clients < 1 or n_features < 1 or n_clusters < 2 or seed < 0:
        raise InputError(
            "synthetic data need at least 1 client, 1 feature, 2 clusters and a seed of 0 or more, got "
            f"n_clients={n_clients}, n_features={n_features}, n_clusters={n_clusters}, seed={seed}"
        )
    if len(sizes) != n_clients:
        raise InputError(f"n_samples has {len(sizes)} numbers for {n_clients} clients; give one for each")
    if min(sizes) < n_clusters:
        raise InputError(f"n_samples must be at least n_clusters={n_clusters} in each client, got {min(sizes)}")
    _above("noise", noise, or_zero=True)


def _above(name: str, value: float, *, or_zero: bool = False) -> None:
    if not (np.isfinite(value) and (value > 0 or (or_zero and value == 0))):
        raise InputError(f"{name} must be a number {'of at least 0' if or_zero else 'above 0'}, got {value}")


# --------------------------------------------------------------------------------------------------------- kinds

Clients = list[tuple[Rng, int]]  # random stream and number of rows of each
Parts = Iterator[tuple[Array, Array]]  # classes and means of the rows of each: (n_t,), (n_t, d)


def _subspace(clients: Clients, shared: Rng, d: int, k: int, rank: int | None = None, separation: float = 3.5) -> Parts:
    B = _basis(shared, d, min(k, d) if rank is None else rank)
    for rng, n in clients:
        y = _even(rng, n, k)
        yield y, (_means(rng, k, B.shape[1], separation) @ B.T)[y]


def _rotated(clients: Clients, shared: Rng, d: int, k: int, rank: int | None = None, separation: float = 3.5) -> Parts:
    B = _basis(shared, d, min(k, d) if rank is None else rank, least=2)
    C = _means(shared, k, B.shape[1], separation)
    for rng, n in clients:
        y = _even(rng, n, k)
        yield y, (C @ _rotation(rng, B.shape[1]).T @ B.T)[y]


def _skew(clients: Clients, shared: Rng, d: int, k: int, concentration: float = 0.5, separation: float = 3.5) -> Parts:
    _above("concentration", concentration)
    fewest = min(n for _, n in clients)
    if fewest < LEAST * k:
        raise InputError(f"'skew' needs {LEAST} rows of each of {k} clusters in each client, got {fewest} rows")
    B = _basis(shared, d, min(k, d))
    M = _means(shared, k, B.shape[1], separation) @ B.T
    for rng, n in clients:
        counts = LEAST + rng.multinomial(n - LEAST * k, rng.dirichlet([concentration] * k))
        y = rng.permutation(np.repeat(np.arange(k), counts))
        yield y, M[y]


def _offset(clients: Clients, shared: Rng, d: int, k: int, distance: float = 20.0, separation: float = 3.5) -> Parts:
    _above("distance", distance, or_zero=True)
    B = _basis(shared, d, min(k, d))
    C = _means(shared, k, B.shape[1], separation)
    M = (C - C.mean(axis=0)) @ B.T
    for rng, n in clients:
        y = _even(rng, n, k)
        direction = rng.normal(size=d)
        yield y, (M + distance * direction / np.linalg.norm(direction))[y]


def _rings(clients: Clients, shared: Rng, d: int, k: int, spacing: float = 20.0) -> Parts:
    _above("spacing", spacing)
    B = _basis(shared, d, 2)
    radius = spacing * (np.arange(k) + 0.5)
    for rng, n in clients:
        counts = 1 + np.floor((n - k) * radius / radius.sum()).astype(int)
        counts[-1] += n - counts.sum()
        y = np.repeat(np.arange(k), counts)
        place = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)  # position on the ring
        angle = 2 * np.pi * (place + rng.uniform(size=n)) / counts[y]
        order = rng.permutation(n)
        yield y[order], (radius[y, None] * np.column_stack([np.cos(angle), np.sin(angle)]) @ B.T)[order]


KINDS: dict[str, tuple[Callable[..., Parts], str]] = {
    "subspace": (_subspace, "rows of class c at client t lie around row c of C_t B', C_t drawn for each client"),
    "rotated": (_rotated, "rows of class c at client t lie around row c of C R_t' B', R_t a rotation"),
    "skew": (_skew, "rows of class c lie around row c of C B', classes in other shares at each client"),
    "offset": (_offset, "rows of class c at client t lie around row c of C B' + s_t, s_t a shift"),
    "rings": (_rings, "rows of class c lie on a ring of its own radius in the plane B"),
}


# ---------------------------------------------------------------------------------------------------------- draws


def _even(rng: Rng, n: int, k: int) -> Array:
    """Classes of n rows in equal numbers, as far as possible, in random order."""
    return rng.permutation(np.arange(n) % k)


def _basis(rng: Rng, d: int, rank: int, least: int = 1) -> Array:
    """Orthonormal columns in random directions: (d, rank)."""
    if not least <= rank <= d:
        raise InputError(f"the subspace must have {least} to n_features={d} dimensions, got {rank}")
    return np.linalg.qr(rng.normal(size=(d, rank)))[0]


def _rotation(rng: Rng, r: int) -> Array:
    """A rotation without reflection, drawn uniformly: (r, r)."""
    Q, R = np.linalg.qr(rng.normal(size=(r, r)))
    Q *= np.sign(np.diag(R))
    Q[:, 0] *= np.sign(np.linalg.det(Q))
    return Q


def _means(rng: Rng, k: int, r: int, separation: float) -> Array:
    """The most spread out of many sets of k points, scaled so that the closest two have this distance: (k, r)."""
    _above("separation", separation)
    C = rng.normal(size=(TRIES, k, r))
    pairs = np.triu_indices(k, 1)
    nearest = np.linalg.norm(C[:, pairs[0]] - C[:, pairs[1]], axis=2).min(axis=1)
    best = (nearest / np.linalg.norm(C, axis=(1, 2))).argmax()
    return C[best] * (separation / nearest[best])
