"""Who is compared: each method with its one default setting and its twelve trials for the oracle column."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf, prod
from typing import Any

import numpy as np

from fmtc.errors import InputError, nearest_names
from fmtc.estimator import FMTC
from fmtc.protocol.state import stream
from fmtc.settings import by_view, flat

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
    GMMAlone,
    HDBSCANAlone,
    KMeansAlone,
    KMeansUnion,
    NoisyAnchors,
    PublicAnchors,
    SklearnSpectral,
    StSC,
)
from ..baselines.base import Array, Baseline, Data

TRIALS = 12  # settings that every method may try where labels pick the best
GROUPS = ("ours", "paper", "control", "pooled")
Space = dict[str, list[Any]]  # values of each parameter


@dataclass(frozen=True)
class Method:
    """One row of a table."""

    name: str
    title: str
    build: Callable[..., Any]  # (n_clusters, random_state=..., **setting)
    group: str  # of `GROUPS`: ours, compared with in the paper, a control, or a reference that pools rows
    shares: str  # what leaves a client
    space: Space = field(default_factory=dict, repr=False)  # what the oracle may try
    fixed: Mapping[str, Any] = field(default_factory=dict, repr=False)  # settings of a variant, in every trial

    @property
    def pooled(self) -> bool:
        """Whether rows of all clients are needed in one place: a reference, not a rival under the same rules."""
        return self.shares == ROWS

    @cached_property
    def grid(self) -> tuple[Mapping[str, Any], ...]:
        """Settings of the oracle column: draws from the space, the same on every machine, none of them the default.

        Where the space has too few, other seeds of the default (``trial``) take their places.
        """
        free = {name: values for name, values in self.space.items() if name not in self.fixed}
        default = defaults_of(self.build(2))
        left_out = all(default[name] in values for name, values in free.items())
        wanted = min(TRIALS, prod(map(len, free.values())) - left_out)
        base, drawn, i = self.name.partition("/")[0], list[dict[str, Any]](), 0
        while len(drawn) < wanted:
            setting = {name: values[_draw(f"{base} {i} {name}") % len(values)] for name, values in free.items()}
            if setting not in drawn and any(default[name] != value for name, value in setting.items()):
                drawn.append(setting)
            i += 1
        drawn += [{"trial": i + 1} for i in range(TRIALS - wanted)]
        return tuple({**setting, **self.fixed} for setting in drawn)


ROWS = "rows"  # what leaves a client of a method that pools them


def _draw(words: str) -> int:
    """A random number, the same wherever it is drawn."""
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big")


def defaults_of(model: Any) -> dict[str, Any]:
    """Settings of a method that is not fitted, those of FMTC's views among them."""
    found: dict[str, Any] = model.get_params(deep=False)
    if "graph" not in found:
        return found
    views = flat(found["view"], found.pop("graph"), found.pop("mixture"))
    return views | found


@dataclass(frozen=True)
class _Guess:
    """Labels that know nothing of the rows."""

    k: int
    seed: int

    def assign(self, X: Any) -> Array:
        return np.random.default_rng(self.seed).integers(self.k, size=X.shape[0])


class RandomLabels(Baseline):
    """Labels drawn at random: what a score is worth."""

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Any], Mapping[str, Array]]:
        draws = {cid: int(stream(seed, cid, "guess").integers(2**31)) for cid in data}
        models = {cid: _Guess(self.n_clusters, draw) for cid, draw in draws.items()}
        return models, {cid: models[cid].assign(X) for cid, X in data.items()}


class OneCluster(RandomLabels):
    """All rows together: what a score is worth."""

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Any], Mapping[str, Array]]:
        return dict.fromkeys(data, _Guess(1, 0)), {cid: np.zeros(X.shape[0], dtype=int) for cid, X in data.items()}


def _fmtc(n_clusters: int, **settings: Any) -> FMTC:
    """FMTC with these settings, those of its views among them."""
    return FMTC(n_clusters, **by_view(settings))


def _alone(n_clusters: int, **settings: Any) -> FMTC:
    """FMTC in which no client learns from another; only the numbers of clusters are common."""
    return _fmtc(n_clusters, view="graph", beta=0, final="kmeans", **settings)


def _with(**chosen: Any) -> Callable[..., FMTC]:
    """Builds FMTC with some settings chosen."""
    return lambda n_clusters, **settings: _fmtc(n_clusters, **chosen, **settings)


_TASKS = [0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0]
_WIDTHS = [0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8]
_NEIGHBORS: list[Any] = ["auto", 5, 7, 10, 15, 20, 30]
_SPECTRAL: Space = {"n_neighbors": _NEIGHBORS, "bandwidth_scale": _WIDTHS, "nonmutual_weight": [1.0, 0.5, 0.25]}
_MTSC: Space = {
    "alpha": [0.01, 0.1, 1.0, 10.0, 100.0], "gamma": [0.001, 0.01, 0.1, 1.0, 10.0], "row_power": [0.5, 1.0, 1.5],
    "n_neighbors": _NEIGHBORS,
}  # fmt: skip
_BREGMAN: Space = {
    "task_weight": _TASKS, "marginals": ["proportional", "uniform"], "init": ["kmeans", "client", "union"],
}  # fmt: skip
_GRAPH: Space = {
    "ridge": [0.003, 0.01, 0.03, 0.1], "n_neighbors": _NEIGHBORS, "nonmutual_weight": [0.1, 0.25, 0.5, 1.0],
    "final": ["mixture", "kmeans"],
}  # fmt: skip
_COUPLED: Space = {"beta": [0.02, 0.05, 0.1, 0.15, 0.25, 0.4, 0.8], **_GRAPH}
_KAPPA: Space = {"kappa": [None, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]}
_COUPLINGS: Space = {"coupling": ["auto", "tensor", "subspace", "average"]}
_ANCHORS: Space = {"method": ["auto", "anchors", "mixture"]}
_ALONE = {name: values for name, values in _GRAPH.items() if name != "final"}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("fmtc", "FMTC", _fmtc, "ours", "d × k", _COUPLED | _KAPPA | _COUPLINGS),
        Method("stsc", "stSC", StSC, "paper", "nothing", _SPECTRAL),
        Method("mbc", "MBC", MBC, "paper", "k centres", _BREGMAN),
        Method("smbc", "SMBC", SMBC, "paper", "k centres", _BREGMAN | {"compare": ["own", "means"]}),
        Method("smkc", "SMKC", SMKC, "paper", ROWS,
               {"task_weight": _TASKS, "bandwidth_scale": _WIDTHS, "kernel": ["auto", "rbf"],
                "compare": ["own", "means"]}),
        Method("mtsc", "MTSC", MTSC, "paper", ROWS, _MTSC),
        Method("sfomvc", "SFOMVC-H", SFOMVC, "paper", "a × k",
               {"gamma": [0.001, 0.01, 0.1, 1.0], "beta": [0.05, 0.1, 0.2, 0.4, 0.8], "mu": [0.1, 0.3, 1.0],
                "schatten_p": [0.5, 0.8, 1.0], "row_power": [0.5, 1.0, 1.5]}),
        Method("fedkmeans", "Fed-kmeans", FedKMeans, "paper", "k centres",
               {"n_rounds": [1, 3, 10, 30, 100], "local_iters": [1, 3, 10, 30], "personalised": [False, True]}),
        Method("fedspectral", "FedSpectral+ (adapted)", FedSpectral, "paper", "a × k",
               {"n_anchors": ["auto", 30, 50, 100, 200], "n_nearest": [3, 5, 8], "bandwidth_scale": _WIDTHS}),
        Method("usc", "uSC", USC, "pooled", ROWS, _SPECTRAL),
        Method("kmeans-union", "k-means, union", KMeansUnion, "pooled", ROWS),
        Method("kmeans", "k-means alone", KMeansAlone, "control", "nothing"),
        Method("gmm", "Gaussian mixture alone", GMMAlone, "control", "nothing",
               {"shape": ["auto", "diag", "tied", "full"], "ridge": [0.01, 0.03, 0.1, 0.3, 1.0]}),
        Method("hdbscan", "HDBSCAN alone", HDBSCANAlone, "control", "nothing",
               {"min_cluster_size": ["auto", 3, 5, 8, 12, 20, 30], "cluster_selection_method": ["eom", "leaf"]}),
        Method("sklearn-spectral", "spectral, scikit-learn", SklearnSpectral, "control", "nothing",
               {"n_neighbors": _NEIGHBORS, "n_init": [10, 20]}),
        Method("sec", "SEC alone", SEC, "control", "nothing",
               {name: values for name, values in _MTSC.items() if name != "row_power"}),
        Method("fed-mtsc", "MTSC, federated", FedMTSC, "control", "d numbers", _MTSC),
        Method("anchors", "anchors", PublicAnchors, "control", "sums", _ANCHORS),
        Method("anchors-noise", "anchors, epsilon 2", NoisyAnchors, "control", "noisy sums", _ANCHORS),
        Method("fmtc-graph", "FMTC, graph", _with(view="graph"), "control", "d × k", _COUPLED | _COUPLINGS),
        Method("fmtc-mixture", "FMTC, mixture", _with(view="mixture"), "control", "sums", _KAPPA),
        Method("fmtc-tensor", "FMTC, tensor", _with(coupling="tensor"), "control", "d × k", _COUPLED | _KAPPA),
        Method("fmtc-average", "FMTC, averaging", _with(coupling="average", kappa=inf), "control", "d × k", _COUPLED),
        Method("fmtc-subspace", "FMTC, subspace", _with(coupling="subspace"), "control", "d × k", _COUPLED | _KAPPA),
        Method("fmtc-alone", "FMTC alone", _alone, "control", "nothing", _ALONE),
        Method("fmtc-published", "FMTC as published", FMTC.as_published, "control", "d × k",
               {"alpha": [0.01, 0.1, 1.0, 10.0, 100.0], "beta": [0.01, 0.1, 1.0, 10.0, 100.0],
                "rho": [0.1, 1.0, 10.0], "schatten_p": [0.3, 0.5, 0.8, 1.0]}),
        Method("one-cluster", "one cluster", OneCluster, "control", "nothing"),
        Method("random", "random labels", RandomLabels, "control", "nothing"),
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
    >>> from fmtc_bench.compare.methods import method_of
    >>> model = method_of("fmtc/align=False,beta=0.4").build(3)
    >>> model.graph.align, model.graph.beta
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
        fixed=setting,
    )


def _settings_known(model: Any) -> set[str]:
    """Names of the settings of a method, those of FMTC's views among them."""
    return set(defaults_of(model)) - {"n_clusters", "random_state"}


def _build(build: Callable[..., Any], setting: Mapping[str, Any], n_clusters: int, **others: Any) -> Any:
    return build(n_clusters, **{**others, **setting})


def settings_of(text: str, whole: str) -> dict[str, Any]:
    """The settings in ``"align=False,beta=0.4"``; `whole` is the name they are part of, for errors.

    Examples
    --------
    >>> from fmtc_bench.compare.methods import settings_of
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
