"""Silos drawn from the mixture's own model, and its kernels driven as the protocol drives them."""

import numpy as np

from fmtc.mixture import Cells, Pool, e_step, personal, pooled, summed
from fmtc.mixture.pooling import added
from fmtc.mixture.steps import Common, Statistics


def as_cells(Z):
    """Rows without categories."""
    return Cells(Z, np.zeros((Z.shape[0], 0), np.int64))


def silos(rng, *, k=3, r=4, sizes=(200, 120, 60), spread=0.05, drift=0.0, missing=0.0, levels=(), gap=4.0):
    """Rows, codes and concepts of silos whose means differ by `spread`; and the common means and covariance."""
    means = rng.normal(scale=gap / np.sqrt(2), size=(k, r))
    A = rng.normal(size=(r, r))
    covariance = A @ A.T / r + 0.5 * np.eye(r)
    L = np.linalg.cholesky(covariance)
    profiles = [rng.dirichlet(np.ones(size), size=k) for size in levels]
    found = []
    for n in sizes:
        y = rng.integers(k, size=n)
        own = means + np.sqrt(spread) * rng.normal(size=(k, r)) @ L.T + np.sqrt(drift) * rng.normal(size=r) @ L.T
        X = own[y] + rng.normal(size=(n, r)) @ L.T
        X[rng.random(X.shape) < missing] = np.nan
        codes = np.array([[rng.choice(len(p[j]), p=p[j]) for p in profiles] for j in y]).reshape(n, len(levels))
        codes[rng.random(codes.shape) < missing] = -1
        found.append((Cells(X, codes.astype(np.int64), tuple(levels)), y))
    return found, means, covariance


def begin(cells, labels, k, *, spread=0.1, drift=0.0):
    """Common parameters and statistics of each silo from a first labelling."""
    levels = cells[0].levels
    r = cells[0].r
    own = []
    for c, y in zip(cells, labels, strict=True):
        Z = np.nan_to_num(np.asarray(c.Z[:]))
        one = np.eye(k)[y]
        own.append(Statistics(one.sum(axis=0), one.T @ Z, c.category_counts(slice(None), one), np.zeros(r)))
    counts = sum(part.counts for part in own)
    means = sum(part.sums for part in own) / np.maximum(counts, 1)[:, None]
    profiles = np.hstack([np.full((k, size), 1 / size) for size in levels]) if levels else np.zeros((k, 0))
    shares = counts / counts.sum()
    return Common(means, shares, profiles, np.eye(r), np.full(k, float(spread)), float(drift)), own


def rounds(cells, common, own, pool, n, size=1.0, floor=None):
    """Rounds of the mixture; common parameters, statistics and the score after each."""
    levels, scores = cells[0].levels, []
    for _ in range(n):
        after, parts = [], []
        for c, statistics in zip(cells, own, strict=True):
            mine = personal(common, statistics, levels, pool.concentration, c.never)
            found = e_step(c, mine, common.covariance)
            kept, sums = summed(common, statistics, mine, found, levels, c.n)
            after.append(kept)
            parts.append(sums)
        total = added(parts)
        scores.append(total.score)
        own, common = after, pooled(common, total, pool, levels, size, len(cells), floor)
    return common, own, np.array(scores)


FREE = Pool(concentration=0.0, shrinkage=0.0)
