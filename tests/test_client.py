"""A client at rest: what rows it takes, and how they are scaled."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.protocol.state import input_rows, open_client, stream, with_rows
from fmtc.settings import Settings


@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 3), (5, 8)])
def test_too_few_rows_are_refused(rng, n, k):
    with pytest.raises(ValueError, match=rf"'x'.*n_samples={n}.*n_clusters={k}.* {max(2, k + 1)} rows"):
        open_client("x", rng.normal(size=(n, 4)), Settings(k))
    open_client("x", rng.normal(size=(max(2, k + 1), 4)), Settings(k))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("dtype", "factor"), [(np.float64, 1e160), (np.float64, 1e-160), (np.float32, 1e25)])
def test_entries_that_cannot_be_squared_are_refused(rng, kind, dtype, factor):
    X = kind((rng.normal(size=(20, 4)) * factor).astype(dtype))
    with pytest.raises(ValueError, match=rf"'x'.*{np.dtype(dtype)}"):
        open_client("x", X, Settings(2))


def test_words_are_counted_from_zero(rng):
    with pytest.raises(ValueError, match=r"'x'.*below 0"):
        open_client("x", rng.normal(size=(20, 4)), Settings(2, scale="tfidf"))


def test_centring_follows_the_setting(rng):
    X = rng.normal(size=(20, 4)) + 5
    for given, center, centred in [
        (X, "auto", True),
        (sp.csr_array(X), "auto", False),
        (X, False, False),
        (sp.csr_array(X), True, True),
    ]:
        settings = Settings(n_clusters=2, center_features=center)
        mean = with_rows(open_client("x", given, settings), settings).rows.mean
        if centred:
            assert_allclose(mean, X.mean(axis=0), rtol=1e-12)
        else:
            assert mean is None


def test_rows_are_copied_only_where_they_are_scaled(rng):
    X = rng.normal(size=(20, 4)) + 5
    plain = with_rows(open_client("x", X, Settings(2)), Settings(2))
    assert plain.rows.X is plain.X is input_rows(plain) is X
    settings = Settings(2, scale="silo")
    scaled = with_rows(open_client("x", X, settings), settings)
    assert scaled.X is input_rows(scaled) is X
    assert_allclose(scaled.rows.X, (X - X.mean(axis=0)) / X.std(axis=0), rtol=1e-10)


def test_rows_get_mean_squared_norm_one_over_the_federation(make_federation, play):
    data = make_federation(m=3, n=(30, 60, 90))
    game = play(data, Settings(3)).open()
    total = sum(np.square(c.rows @ np.eye(6)).sum() * len(c.rows.X) for c in game.clients.values())
    assert_allclose(total, sum(map(len, data.values())), rtol=1e-12)
    for c in game.clients.values():
        assert_allclose(c.rows.gamma, game.server.scale / np.sqrt(len(c.rows.X)), rtol=1e-12)


def test_in_absolute_units_rows_are_left_alone(make_federation, play):
    game = play(make_federation(), Settings(n_clusters=3, rho=0.5, beta=2.0, center_features=False)).open()
    assert all(c.rows.gamma == 1 and c.rows.mean is None for c in game.clients.values())
    assert (game.server.rho, game.server.beta) == (0.5, 2.0)
    assert all(c.factors.ridge == pytest.approx(0.5 * 3 / 2) for c in game.clients.values())


def test_a_random_stream_belongs_to_one_client_and_one_purpose():
    draws = {
        key: stream(*key).random(4)
        for key in [(0, "a", "start"), (0, "a", "bound"), (0, "b", "start"), (1, "a", "start")]
    }
    for key, drawn in draws.items():
        assert_array_equal(stream(*key).random(4), drawn)
    assert len({drawn.tobytes() for drawn in draws.values()}) == 4
