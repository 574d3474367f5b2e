import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy is imported: scikit-learn's array API check then runs

from collections.abc import Callable

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("fmtc", deadline=None)  # how long an example takes is the machine's affair
hypothesis.settings.load_profile("fmtc")

Federation = dict[str, np.ndarray]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def make_federation() -> Callable[..., Federation]:
    """Clients "a", "b", ... that share the centres of k groups, each with its own shift, sizes and noise."""

    def make(m=3, n=60, d=6, k=3, *, distance=3.0, seed=0, dtype=np.float64) -> Federation:
        rng = np.random.default_rng(seed)
        sizes = np.broadcast_to(n, m)
        centers = rng.normal(size=(k, d))
        centers *= distance / np.linalg.norm(centers, axis=1, keepdims=True)
        data = {}
        for cid, size in zip("abcdefgh"[:m], sizes, strict=True):
            group = np.arange(size) % k
            X = centers[group] + rng.normal(size=(size, d)) + rng.normal(size=d)
            data[cid] = X.astype(dtype)
        return data

    return make
