"""Who is compared: each method with its one default setting and its twelve trials for the oracle column."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ..baselines import (
    MBC,
    MTSC,
    SEC,
    SFOMVC,
    SMBC,
    SMKC,
    USC,
    FedKMeans,
    FedMTSC,
    FedSpectral,
    KMeansAlone,
    KMeansUnion,
    PublicAnchors,
    SklearnSpectral,
    StSC,
)
from ..baselines.base import Array, Baseline, Data
from ..client import stream
from ..errors import InputError, nearest_names
from ..estimator import FMTC
from ..settings import Solver, split_solver

TRIALS = 12  # settings that every method may try where labels pick the best


@dataclass(frozen=True)
class Method:
    """One row of a table."""

    name: str
    title: str
    build: Callable[..., Any]  # (n_clusters, random_state=..., **setting)
    group: str  # "paper", "ours", "control"
    shares: str  # what leaves a client
    grid: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)  # settings of the oracle column


def _grid(**values: Any) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))


@dataclass(frozen=True)
class _Guess:
    """Labels that know nothing of the rows."""

    k: int
    seed: int

    def assign(self, X: Any) -> Array:
        return np.random.default_rng(self.seed).integers(self.k, size=X.shape[0])


class RandomLabels(Baseline):
    """Labels drawn at random: what a score is worth."""

    def __init__(self, n_clusters: int = 8, *, random_state: Any = None):
        self.n_clusters = n_clusters
        self.random_state = random_state

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Any], Mapping[str, Array]]:
        draws = {cid: int(stream(seed, cid, "guess").integers(2**31)) for cid in data}
        models = {cid: _Guess(self.n_clusters, draw) for cid, draw in draws.items()}
        return models, {cid: models[cid].assign(X) for cid, X in data.items()}


class OneCluster(RandomLabels):
    """All rows together: what a score is worth."""

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Any], Mapping[str, Array]]:
        return dict.fromkeys(data, _Guess(1, 0)), {cid: np.zeros(X.shape[0], dtype=int) for cid, X in data.items()}


def _fmtc(n_clusters: int, **settings: Any) -> FMTC:
    """FMTC with these settings, the solver's among them."""
    return FMTC(n_clusters, **split_solver(settings))


def _alone(n_clusters: int, **settings: Any) -> FMTC:
    """FMTC in which no client learns from another; only the numbers of clusters are common."""
    return _fmtc(n_clusters, view="graph", beta=0, final="kmeans", **settings)


_GRAPHS = _grid(n_neighbors=[5, 10, 15, 20], bandwidth_scale=[0.5, 1.0, 2.0])
_TASK_WEIGHTS = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0]
_RESTARTS = _grid(trial=list(range(TRIALS)))  # nothing to tune: as many seeds instead
_MTSC = _grid(alpha=[0.1, 1.0, 10.0], gamma=[0.01, 0.1], row_power=[0.5, 1.0])
_FMTC = _grid(beta=[0.05, 0.15, 0.4], ridge=[0.01, 0.03], n_neighbors=["auto", 10])

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("fmtc", "FMTC", _fmtc, "ours", "d × k", _FMTC),
        Method("anchors", "anchors", PublicAnchors, "control", "sums",
               _grid(method=["anchors", "mixture"], trial=list(range(TRIALS // 2)))),
        Method("stsc", "stSC", StSC, "paper", "nothing", _GRAPHS),
        Method("usc", "uSC", USC, "paper", "rows", _GRAPHS),
        Method("mbc", "MBC", MBC, "paper", "k centres",
               _grid(task_weight=_TASK_WEIGHTS, marginals=["proportional", "uniform"])),
        Method("smbc", "SMBC", SMBC, "paper", "k centres", _grid(task_weight=_TASK_WEIGHTS, compare=["own", "means"])),
        Method("smkc", "SMKC", SMKC, "paper", "rows",
               _grid(task_weight=[0.1, 0.25, 1.0], bandwidth_scale=[0.5, 1.0, 2.0, 4.0])),
        Method("mtsc", "MTSC", MTSC, "paper", "rows", _MTSC),
        Method("sfomvc", "SFOMVC-H", SFOMVC, "paper", "a × k",
               _grid(gamma=[0.001, 0.01, 0.1], beta=[0.001, 0.01, 0.1, 1.0])),
        Method("fedkmeans", "Fed-kmeans", FedKMeans, "paper", "k centres",
               _grid(n_rounds=[1, 10, 50], local_iters=[1, 10], personalised=[False, True])),
        Method("fedspectral", "FedSpectral+", FedSpectral, "paper", "a × k",
               _grid(n_anchors=["auto", 50, 100], bandwidth_scale=[0.5, 1.0, 1.5, 2.0])),
        Method("kmeans", "k-means alone", KMeansAlone, "control", "nothing", _RESTARTS),
        Method("kmeans-union", "k-means, union", KMeansUnion, "control", "rows", _RESTARTS),
        Method("sklearn-spectral", "spectral, scikit-learn", SklearnSpectral, "control", "nothing",
               _grid(n_neighbors=["auto", 5, 10, 15, 20, 30], n_init=[10, 20])),
        Method("sec", "SEC alone", SEC, "control", "nothing",
               _grid(alpha=[0.01, 0.1, 1.0, 10.0], gamma=[0.01, 0.1, 1.0])),
        Method("fed-mtsc", "MTSC, federated", FedMTSC, "control", "d numbers", _MTSC),
        Method("fmtc-alone", "FMTC alone", _alone, "control", "nothing",
               _grid(ridge=[0.003, 0.01, 0.03, 0.1], n_neighbors=["auto", 5, 10])),
        Method("fmtc-published", "FMTC as published", FMTC.as_published, "control", "d × k",
               _grid(alpha=[0.1, 1.0, 10.0], beta=[0.01, 0.1, 1.0, 10.0])),
        Method("fmtc-average", "FMTC, averaging", lambda k, **s: _fmtc(k, coupling="average", **s), "control", "d × k",
               _grid(ridge=[0.003, 0.01, 0.03, 0.1], n_neighbors=["auto", 5, 10])),
        Method("fmtc-subspace", "FMTC, subspace", lambda k, **s: _fmtc(k, coupling="subspace", **s), "control",
               "d × k", _FMTC),
        Method("one-cluster", "one cluster", OneCluster, "control", "nothing", _RESTARTS),
        Method("random", "random labels", RandomLabels, "control", "nothing", _RESTARTS),
    )
}  # fmt: skip


def method_of(name: str) -> Method:
    """A method of `METHODS`, or one of them with other settings: ``"fmtc/align=False,beta=0.4"``.

    Values are read as Python writes them; a word without quotes is a string. The oracle's trials are those of the
    method, with these settings on top.

    Parameters
    ----------
    name : str

    Returns
    -------
    Method

    Examples
    --------
    >>> from fmtc.bench.methods import method_of
    >>> model = method_of("fmtc/align=False,beta=0.4").build(3)
    >>> model.solver.align, model.beta
    (False, 0.4)
    """
    base, slash, text = name.partition("/")
    if base not in METHODS:
        raise InputError(f"there is no method {base!r}; {nearest_names(base, METHODS)}")
    if not slash:
        return METHODS[base]
    method, setting = METHODS[base], settings_of(text, name)
    known = _settings_known(method.build(2))
    for key in setting:
        if key not in known:
            raise InputError(f"{name!r}: {base} has no setting {key!r}; {nearest_names(key, sorted(known))}")
    try:
        method.build(2, **setting)
    except TypeError:
        raise InputError(f"{name!r}: this setting is what makes {base}; take another method") from None
    return replace(
        method,
        name=name,
        title=f"{method.title} {', '.join(f'{key}={value}' for key, value in setting.items())}",
        build=partial(_build, method.build, setting),
        grid=tuple({**line, **setting} for line in method.grid),
    )


def _settings_known(model: Any) -> set[str]:
    """Names of the settings of a method, those of FMTC's solver among them."""
    known = set(model.get_params(deep=False)) - {"n_clusters", "random_state"}
    return known - {"solver"} | set(Solver().get_params()) if "solver" in known else known


def _build(build: Callable[..., Any], setting: Mapping[str, Any], n_clusters: int, **others: Any) -> Any:
    return build(n_clusters, **{**others, **setting})


def settings_of(text: str, whole: str) -> dict[str, Any]:
    """The settings in ``"align=False,beta=0.4"``; `whole` is the name they are part of, for errors.

    Examples
    --------
    >>> from fmtc.bench.methods import settings_of
    >>> settings_of("align=False,beta=0.4,n_samples=[50,60]", "")
    {'align': False, 'beta': 0.4, 'n_samples': [50, 60]}
    """
    found: dict[str, Any] = {}
    for part in re.split(r",(?=\w+=)", text):
        key, equals, value = part.partition("=")
        if not (key.isidentifier() and equals and value):
            raise InputError(f"{whole!r}: {part!r} is not a setting; write name=value, separated by commas")
        if key in found:
            raise InputError(f"{whole!r} sets {key} twice")
        try:
            found[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            if not value.replace("-", "_").isidentifier():
                raise InputError(f"{whole!r}: {value!r} is neither a number, a list nor a word") from None
            found[key] = value
    return found
