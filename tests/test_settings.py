"""Settings check themselves: which values they take, and which class of error the others get."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from fmtc import Graph, Mixture
from fmtc.settings import Settings, flat


def value(name, settings):
    return getattr(settings, name)


@pytest.mark.parametrize("name", ["n_clusters", "n_inner", "max_iter", "n_init", "n_neighbors", "max_features"])
def test_whole_numbers_of_at_least_one(name):
    for good in (1, np.int32(3)):
        assert value(name, Settings(**{name: good})) == good
    for bad in (0, -2):
        with pytest.raises(ValueError, match=f"^{name} .* {bad}$"):
            Settings(**{name: bad})
    for bad in (2.0, "2", None, True, [3]):
        with pytest.raises(TypeError, match=f"^{name} "):
            Settings(**{name: bad})


@pytest.mark.parametrize("name", ["alpha", "ridge", "rho", "bandwidth", "step_size"])
def test_numbers_above_zero(name):
    for good in (1, 1e-9, np.float32(2.5)):
        assert value(name, Settings(**{name: good})) == good
    for bad in (0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"^{name} "):
            Settings(**{name: bad})
    for bad in ("1", False, [1.0], 1j):
        with pytest.raises(TypeError, match=f"^{name} "):
            Settings(**{name: bad})


@pytest.mark.parametrize("name", ["rho", "bandwidth", "step_size", "message_dtype"])
def test_settings_that_may_be_none(name):
    assert value(name, Settings(**{name: None})) is None


@pytest.mark.parametrize("name", ["alpha", "ridge", "beta", "tol", "schatten_p", "nonmutual_weight"])
def test_numbers_that_may_not_be_none(name):
    with pytest.raises(TypeError, match=f"^{name} "):
        Settings(**{name: None})


@pytest.mark.parametrize("name", ["beta", "tol"])
def test_numbers_from_zero(name):
    assert value(name, Settings(**{name: 0})) == 0
    for bad in (-1e-9, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"^{name} "):
            Settings(**{name: bad})
    for bad in ("0", "auto", True):
        with pytest.raises(TypeError, match=f"^{name} "):
            Settings(**{name: bad})


@pytest.mark.parametrize("name", ["schatten_p", "nonmutual_weight"])
def test_fractions_lie_above_zero_and_up_to_one(name):
    for good in (0.01, 1):
        assert value(name, Settings(**{name: good})) == good
    for bad in (0, -0.5, 1.001, np.nan):
        with pytest.raises(ValueError, match=f"^{name} "):
            Settings(**{name: bad})
    with pytest.raises(TypeError, match=f"^{name} "):
        Settings(**{name: "half"})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("coupling", ("tensor", "subspace", "average")),
        ("view", ("graph", "mixture", "auto")),
        ("scale", ("auto", "none", "silo", "global", "tfidf")),
        ("labels_from", ("projection", "embedding")),
        ("final", ("mixture", "kmeans")),
    ],
)
def test_choices_are_listed(name, options):
    for option in options:
        assert value(name, Settings(**{name: option})) == option
    for bad in ("other", None, True, np.array(["tensor", "none"])):
        with pytest.raises(ValueError, match=f"^{name} .*{', '.join(map(repr, options))}"):
            Settings(**{name: bad})


@pytest.mark.parametrize("name", ["align", "accelerate", "center_features", "lift"])
def test_flags(name):
    words = ("auto",) if name in ("center_features", "lift") else ()
    for good in (True, False, np.bool_(True), *words):
        assert value(name, Settings(**{name: good})) == good
    for bad in ("yes", "loop", None, 1.5, 1, *({"auto"} - set(words))):
        with pytest.raises(ValueError, match=f"^{name} "):
            Settings(**{name: bad})


def test_other_choices():
    assert Settings(n_neighbors="auto").n_neighbors == "auto"
    with pytest.raises(TypeError, match=r"^n_neighbors "):
        Settings(n_neighbors="all")
    for bad in ("float16", 32):
        with pytest.raises(ValueError, match=r"^message_dtype "):
            Settings(message_dtype=bad)


@pytest.mark.parametrize(
    ("setting", "mixes"),
    [
        ({}, True),
        ({"final": "mixture"}, True),
        ({"final": "kmeans"}, False),
        ({"align": False}, False),
        ({"final": "mixture", "align": False}, False),
        ({"labels_from": "embedding"}, False),
    ],
    ids=str,
)
def test_projections_are_mixed_in_a_common_frame_only(setting, mixes):
    assert Graph(**setting).mixes is mixes


@pytest.mark.parametrize(
    ("kappa", "spread"), [(None, None), (4, 0.25), (np.float32(2), 0.5), (float("inf"), 0.0), (0, 1e12)]
)
def test_pooling_strength_from_nothing_to_everything(kappa, spread):
    assert Settings(kappa=kappa).spread == spread


def test_pooling_strengths_that_are_none():
    for bad in (-1e-9, np.nan, -np.inf):
        with pytest.raises(ValueError, match=r"^kappa "):
            Settings(kappa=bad)
    for bad in ("0", "auto", True, [1.0]):
        with pytest.raises(TypeError, match=r"^kappa "):
            Settings(kappa=bad)


def test_levels_of_categories():
    settings = Settings(levels=[0, np.int32(3), 0])
    assert settings.levels == (0, 3, 0)
    assert settings.has_categories
    assert not Settings(levels=(0, 0)).has_categories
    with pytest.raises(ValueError, match=r"^levels "):
        Settings(levels=(0, -1))
    with pytest.raises(ValueError, match="categories"):
        Settings(levels=(2,), scale="tfidf")


def test_words_are_not_centred():
    assert Settings(scale="tfidf", center_features=False).scale == "tfidf"
    with pytest.raises(ValueError, match=r"^center_features"):
        Settings(scale="tfidf", center_features=True)


def test_settings_that_both_views_read_are_of_the_view_that_is_fitted():
    graph, mixture = Graph(kappa=1, alpha=2), Mixture(n_init=3)
    assert [flat("graph", graph, mixture)[name] for name in ("kappa", "n_init", "alpha")] == [1, 10, 2]
    assert [flat("mixture", graph, mixture)[name] for name in ("kappa", "n_init")] == [None, 3]
    assert [flat("auto", graph, mixture)[name] for name in ("kappa", "n_init")] == [1, 3]
    with pytest.raises(ValueError, match=r"one kappa, got Graph\(kappa=1\) and Mixture\(kappa=2\)"):
        flat("auto", graph, Mixture(kappa=2))
    for bad in ({"ridge": 0.1}, Mixture()):
        with pytest.raises(TypeError, match=r"^graph must be None or a fmtc\.Graph"):
            flat("graph", bad, None)


def test_settings_come_back_from_json():
    """As they travel to the clients of a federation."""
    settings = Settings(n_clusters=4, beta=0.3, scale="global", ridge=0.1, rho=None, align=False)
    assert Settings(**json.loads(json.dumps(asdict(settings)))) == settings
    with pytest.raises(ValueError, match="ridge"):
        Settings(**asdict(settings) | {"ridge": -1.0})


def test_an_unknown_name_is_an_error():
    with pytest.raises(TypeError, match="reweigh"):
        Settings(reweigh=2)
    with pytest.raises(ValueError, match="colour"):
        Graph().set_params(colour="red")


@pytest.mark.parametrize(
    ("setting", "move"),
    [({}, 3e-4), ({"tol": 1e-5}, 1e-5), ({"tol": 0}, 3e-4), ({"accelerate": False}, 0.0)],
    ids=str,
)
def test_the_smallest_move_is_no_coarser_than_the_tolerance(setting, move):
    assert Settings(**setting).min_move == move
