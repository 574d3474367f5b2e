"""Two federations that trained apart become one numbering of concepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..errors import DataError
from ..inference import Frame, GraphModel, MixtureModel
from ..kernels.encoding import expanded_width

Array = np.ndarray

LIKE = 0.3  # cosine of the directions of two concepts below which they are not the same; docs/evidence.md
LACKS = 1e-300  # share of a concept that a silo lacks: no row gets its number


@dataclass(frozen=True)
class Match:
    """A concept of a merged model.

    Parameters
    ----------
    number : int
        Its number in the merged model.
    first, second : int or None
        Its number in either federation; None where only the other one has it.
    likeness : float
        How like the two are: cosine of their directions along the columns in the graph view; in the mixture view, 1
        less their distance over that to the nearest other concept. 0 where there is one only.
    """

    number: int
    first: int | None
    second: int | None
    likeness: float


def matched_concepts(first: Mapping[str, Any], second: Mapping[str, Any], d: int) -> list[Match]:
    """Which concepts of two federations are the same: one to one, and those without a partner get new numbers."""
    if any(isinstance(model, MixtureModel) for model in (*first.values(), *second.values())):
        likeness = _near(first, second, d)
        accepted = likeness > 0
    else:
        likeness = directions(first, d) @ directions(second, d).T
        accepted = likeness >= LIKE
    rows, columns = linear_sum_assignment(-likeness)
    pairs = {int(i): int(j) for i, j in zip(rows, columns, strict=True) if accepted[i, j]}
    k, found = len(likeness), []
    for i in range(k):
        j = pairs.get(i)
        found.append(Match(i, i, j, 0.0 if j is None else float(likeness[i, j])))
    single = [j for j in range(likeness.shape[1]) if j not in pairs.values()]
    return found + [Match(k + place, None, j, 0.0) for place, j in enumerate(single)]


# ------------------------------------------------------------------------------------------------------ graph view


def directions(models: Mapping[str, GraphModel], d: int) -> Array:
    """Directions of the concepts of a federation, W c in the units of its columns, at unit length; (k, columns)."""
    total: Any = 0.0
    for model in models.values():
        S = np.asarray(model.centers @ model.W.T, dtype=np.float64)
        if model.lift is None and model.stretch is not None:
            S = S * model.stretch
        S /= np.maximum(np.linalg.norm(S, axis=1, keepdims=True), 1e-300)
        if model.shares is not None:
            S[model.shares <= 0] = 0  # it lacks these
        if model.keep is not None:
            whole = np.zeros((len(S), d))
            whole[:, model.keep] = S
            S = whole
        total = total + S
    found: Array = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-300)
    return found


# ---------------------------------------------------------------------------------------------------- mixture view


def _concepts(models: Mapping[str, MixtureModel], d: int) -> Array:
    """Means of the concepts over silos, in the units of X, each silo by its share; (k, columns)."""
    weights = np.array([model.shares for model in models.values()])
    weights = weights / np.maximum(weights.sum(axis=0), 1e-300)
    return np.einsum("mk,mkd->kd", weights, np.array([_whole(model, d) for model in models.values()]))


def _whole(model: MixtureModel, d: int) -> Array:
    """Centres of a silo along all columns, categories expanded; (k, columns)."""
    centers, keep = model.centers, model.frame.keep
    if keep is None:
        return centers
    whole = np.zeros((len(centers), d))
    whole[:, keep] = centers
    return whole


def in_frame(frame: Frame, centers: Array, levels: int) -> Array:
    """Centres in the units of X, as the numbers of a mixture's coordinates; (k, columns) -> (k, r)."""
    numbers = centers if frame.keep is None else centers[:, frame.keep]
    if frame.axes is None and levels:
        numbers = numbers[:, :-levels]
    width = numbers.shape[1]
    shift = 0.0 if frame.shift is None else frame.shift[:width]
    numbers = (numbers - shift) / (1.0 if frame.stretch is None else frame.stretch[:width])
    if frame.axes is None:
        return numbers
    numbers = numbers @ frame.axes
    return numbers if frame.origin is None else numbers - frame.origin


def _near(first: Mapping[str, MixtureModel], second: Mapping[str, MixtureModel], d: int) -> Array:
    """How near the concepts of two federations are: 1 at the same place, below 0 where another one is nearer."""
    ruler = next(iter(first.values()))
    levels = ruler.profiles.shape[1]
    L = np.linalg.inv(np.linalg.cholesky(ruler.covariance))
    spots = []
    for models in (first, second):
        centers = _concepts(models, d)
        places = in_frame(ruler.frame, centers, levels) @ L.T
        spots.append(np.hstack([places, centers[:, centers.shape[1] - levels :]]))
    gap = np.linalg.norm(spots[0][:, None] - spots[1][None], axis=2)
    nearest = []
    for own in spots:
        among = np.linalg.norm(own[:, None] - own[None], axis=2)
        np.fill_diagonal(among, np.inf)
        nearest.append(among.min(axis=1) if len(own) > 1 else np.full(1, np.inf))
    limit = np.minimum(nearest[0][:, None], nearest[1][None])
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(limit), 1.0, 1 - gap / np.maximum(limit, 1e-300))


# --------------------------------------------------------------------------------------------------------- numbers


def widened(model: Any, numbers: Array, k: int, others: Array | None, levels: tuple[int, ...]) -> Any:
    """A silo's model with k concepts: its own under new numbers, the others with a share of nothing.

    Parameters
    ----------
    model : GraphModel or MixtureModel
    numbers : ndarray of int
        New number of each of its concepts.
    k : int
    others : ndarray of shape (k, columns), optional
        Where the concepts lie, in the units of X; of a mixture.
    levels : tuple of int
        Of the categories.
    """
    if isinstance(model, MixtureModel):
        assert others is not None
        means = in_frame(model.frame, others, model.profiles.shape[1])
        sizes = [size for size in levels if size] if model.profiles.shape[1] else []
        profiles = np.tile(np.concatenate([np.full(size, 1 / size) for size in sizes] or [np.zeros(0)]), (k, 1))
        shares = np.full(k, LACKS)
        means[numbers], shares[numbers], profiles[numbers] = model.means, model.shares, model.profiles
        return replace(model, means=means, shares=shares, profiles=profiles)
    centers = np.zeros((k, model.centers.shape[1]), model.centers.dtype)
    centers[numbers] = model.centers
    if model.shares is None and k == len(model.centers):
        return replace(model, centers=centers)
    shares = np.zeros(k)
    shares[numbers] = np.full(len(numbers), 1 / len(numbers)) if model.shares is None else model.shares
    return replace(model, centers=centers, shares=shares)


def renumbered(
    first: Mapping[str, Any], second: Mapping[str, Any], d: int, levels: tuple[int, ...]
) -> tuple[dict[str, Any], list[Match]]:
    """The models of both federations under one numbering, and which concepts are the same."""
    kinds = {type(model) for model in (*first.values(), *second.values())}
    if len(kinds) > 1:
        raise DataError("one model is of the graph view and the other of the mixture view; fit both with the same view")
    lifts = [model.lift for model in (*first.values(), *second.values()) if isinstance(model, GraphModel)]
    given = [lift for lift in lifts if lift is not None]
    if given and (len(given) < len(lifts) or not all(_same(given[0], lift) for lift in given)):
        raise DataError("the two runs replaced their columns by different random features; fit both with the same "
                        "random_state, or with lift=False")  # fmt: skip
    width = expanded_width(levels, d)
    found = matched_concepts(first, second, width)
    k, others = len(found), None
    if kinds == {MixtureModel}:
        one, two = _concepts(first, width), _concepts(second, width)
        others = np.array([one[m.first] if m.first is not None else two[m.second] for m in found])
    to_first = np.array([m.number for m in found if m.first is not None])
    to_second = np.empty(sum(m.second is not None for m in found), np.int64)
    for m in found:
        if m.second is not None:
            to_second[m.second] = m.number
    models = {cid: widened(model, to_first, k, others, levels) for cid, model in first.items()}
    models |= {cid: widened(model, to_second, k, others, levels) for cid, model in second.items()}
    return models, found


def _same(one: Any, other: Any) -> bool:
    return one.frequencies.shape == other.frequencies.shape and bool(np.allclose(one.frequencies, other.frequencies))


__all__ = ["Match", "matched_concepts", "renumbered"]
