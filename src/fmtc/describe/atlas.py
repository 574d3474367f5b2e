"""The atlas: which clusters a federation has, by their features, who has them, and how sure that is. Needs no row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import plural
from ..kernels.alignment import has_direction, likeness
from ..models import ClientModel, Member, Presence
from .documents import Document
from .features import Features, Named
from .words import (
    FEW,
    HASHED,
    UNMATCHED,
    held_words,
    html_table,
    lone_words,
    percent,
    percents,
    signed,
    with_unit,
    written,
)

Array = np.ndarray

TOP = 10  # features of a cluster
UNIQUE = 0.3  # cosine to the other members below which a cluster is the silo's own
SURE = 0.5  # cosine from which a member is matched, if it leads
LEAD = 0.1  # over the second cluster
LEAST = 0.15  # of the median weight of a feature: a silo with a smaller one does not differ in its direction
MATCHED, UNSURE, ALONE = FLAGS = ("matched", "unsure", "unique")

LIFTED = "The columns were replaced by others (lift), so that no cluster has features of its own; `explain` needs rows."
PUBLIC = "A private run: clusters are what is public of all silos together; who has how much of them is not known here."
ALL_ALONE = "One silo, by itself: there is no other to compare its clusters with."


@dataclass(frozen=True)
class Feature(Named):
    """A column, a level of a category, or a word, and how much a cluster has of it.

    Parameters
    ----------
    column : str
    weight : float
        How far the cluster lies along the feature, in units that all silos share and relative to the length of all of
        its weights: -1 to 1.
    amount : float, optional
        Mixture view and private runs: how far the cluster's mean lies from that of the silo, in the units of the
        table; of a level, the difference of its share. None in the graph view, whose weights are no means.
    level : str
        Of a category.
    unit : str
    kind : {"number", "category", "word"}
    agreed : bool
        Whether it has a direction; not where silos that have the cluster differ in it.

    Examples
    --------
    >>> from fmtc.describe import Feature
    >>> print(Feature("thalach", -0.6, -21.0, unit="bpm"))
    thalach −21 bpm
    >>> print(Feature("sex", 0.3, 0.21, level="male", kind="category"))
    sex: male +21 %
    >>> print(Feature("film", 0.4, kind="word"))
    film +0.40
    """

    column: str
    weight: float
    amount: float | None = None
    level: str = ""
    unit: str = ""
    kind: str = "number"
    agreed: bool = True

    def __str__(self) -> str:
        return f"{self.what} {self.value}"

    @property
    def value(self) -> str:
        """The amount in the units of the table or, where it is not known, the weight; with its sign."""
        if not self.agreed:
            return "differs by silo"
        if self.amount is None:
            return signed(self.weight)
        size = abs(self.amount)
        return signed(self.amount, percent(size) if self.kind == "category" else with_unit(written(size), self.unit))


@dataclass(frozen=True)
class AtlasCluster:
    """What clusters of several silos have in common.

    Parameters
    ----------
    id : int
        Its number: that of the cluster in labels, pages and plots.
    name : str
        That of `FMTC.explain`, which is made of rows; empty where no row was seen, as in `FMTC.atlas_`.
    top_features : tuple of Feature
        At most ten, the strongest first: of tables with either sign, of texts the words that it has more of.
    presence : dict of str to float or None
        Share of each silo's rows; 0 where it lacks the cluster, None for fewer than five rows. Where a silo has such
        small clusters, shares are those among its other rows, so that nobody can compute the rest.
    cosine : dict of str to float
        Of the silo's cluster to the mean of those of its number elsewhere, by their features; 0 if there is no other.
    flags : dict of str to str
        ``"matched"``, ``"unsure"`` (cosine below 0.5, or less than 0.1 above that to another cluster) or ``"unique"``
        (no other silo has it, or a cosine below 0.3).
    """

    id: int
    name: str
    top_features: tuple[Feature, ...] = ()
    presence: dict[str, float | None] = field(default_factory=dict)
    cosine: dict[str, float] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)

    @property
    def is_somewhere(self) -> bool:
        """Whether any silo has it, as far as that is known."""
        return not self.presence or any(share is None or share for share in self.presence.values())

    def share(self, silo: str) -> str:
        """The share of one silo as people may see it."""
        if silo not in self.presence:
            return ""
        known = self.presence[silo]
        return f"< {FEW}" if known is None else percent(known) if known else "–"

    def told(self, shares: Mapping[str, str]) -> str:
        """Title, features and silos, a line each; `shares` of the silos as they are printed."""
        lines = [f"cluster {self.id}{': ' + self.name if self.name else ''}"]
        if self.top_features:
            lines.append("  " + ", ".join(map(str, self.top_features)))
        silos = dict.fromkeys([*self.presence, *self.cosine])
        said = []
        for cid in silos:
            flag = f"{self.flags[cid]} {self.cosine[cid]:.2f}" if cid in self.flags else ""
            said.append(" ".join(part for part in (cid, shares.get(cid), flag) if part))
        return "\n".join([*lines, *(["  " + "; ".join(said)] if said else [])])

    def __str__(self) -> str:
        return self.told({cid: self.share(cid) for cid in self.presence})


@dataclass(frozen=True)
class Atlas(Document):
    """The clusters of a federation.

    Parameters
    ----------
    clusters : tuple of AtlasCluster
    silos : tuple of str
        Silos that are known here.
    notes : tuple of str

    Examples
    --------
    >>> import numpy as np, fmtc
    >>> rng = np.random.default_rng(0)
    >>> X = {name: np.repeat([[0.0, 9.0], [6.0, 0.0]], 20, axis=0) + rng.normal(size=(40, 2)) for name in ("a", "b")}
    >>> atlas = fmtc.FMTC(2, random_state=0).fit(X).atlas_
    >>> len(atlas.clusters), atlas.clusters[0].presence, set(atlas.clusters[0].flags.values())
    (2, {'a': 0.5, 'b': 0.5}, {'matched'})
    """

    clusters: tuple[AtlasCluster, ...]
    silos: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> dict[int, str]:
        """Name of each cluster that has one."""
        return {cluster.id: cluster.name for cluster in self.clusters if cluster.name}

    def shares(self, silo: str) -> list[str]:
        """The shares of one silo in all clusters as people may see them; they add up."""
        known = percents([one.presence.get(silo) or 0.0 for one in self.clusters])
        pairs = zip(self.clusters, known, strict=True)
        return [share if one.presence.get(silo) else one.share(silo) for one, share in pairs]

    @property
    def lone(self) -> tuple[str, ...]:
        """Silos all of whose clusters are unique: they have none in common with any other."""
        flags = {cid: {one.flags[cid] for one in self.clusters if cid in one.flags} for cid in self.silos}
        return tuple(cid for cid, found in flags.items() if found == {ALONE})

    def renamed(self, names: Mapping[int, str]) -> Atlas:
        """The same with the names of `Explanation.names`, or others; an empty one takes a name back."""
        return replace(self, clusters=tuple(replace(one, name=names.get(one.id, one.name)) for one in self.clusters))

    def __str__(self) -> str:
        where = f" in {plural(len(self.silos), 'silo')}" if self.silos else ""
        shares = {cid: self.shares(cid) for cid in self.silos}
        told = (one.told({cid: own[j] for cid, own in shares.items()}) for j, one in enumerate(self.clusters))
        return "\n".join([f"{len(self.clusters)} clusters{where}", *told, *self.notes])

    def _repr_html_(self) -> str:
        """A table for notebooks: clusters down, silos across; everything in it is escaped."""
        signs, shares = {MATCHED: "", UNSURE: " ?", ALONE: " !"}, {cid: self.shares(cid) for cid in self.silos}
        named = [("name", True)] if self.names else []
        heads = [("cluster", False), *named, *((cid, False) for cid in self.silos), ("features", True)]
        lines = [
            [
                str(one.id),
                *([one.name] if named else []),
                *(shares[cid][j] + (signs[one.flags[cid]] if cid in one.flags else "") for cid in self.silos),
                ", ".join(map(str, one.top_features)),
            ]
            for j, one in enumerate(self.clusters)
        ]
        return html_table(heads, lines, ["? unsure, ! unique to this silo", *self.notes])


# --------------------------------------------------------------------------------------------------- what silos know


def presence_of(labels: Any, n_clusters: int, least: int = FEW) -> Presence:
    """Share of each cluster in a silo's rows; None for fewer than `least`, and then the others are among the rest.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.describe.atlas import presence_of
    >>> presence_of(np.repeat([0, 1], [30, 10]), 3)
    (0.75, 0.25, 0.0)
    >>> presence_of(np.repeat([0, 1, 2], [30, 10, 2]), 3)  # not 30/42: the two rows would follow
    (0.75, 0.25, None)
    """
    counts = np.bincount(np.asarray(labels, dtype=np.int64), minlength=n_clusters)
    shown = int(counts[counts >= least].sum())
    return tuple(None if 0 < n < least else round(n / shown, 4) if n else 0.0 for n in counts.tolist())


# --------------------------------------------------------------------------------------------------------- comparing


class Compared(NamedTuple):
    """How alike the members of clusters are; one row for each silo."""

    there: Array  # m x k of bool: the silo has the cluster
    counted: Array  # m x k of bool: with five rows at least, as far as that is known
    cosine: Array  # m x k, to the mean of the other members; 0 without any
    flags: Array  # m x k, a place in `FLAGS`


def compare(signatures: Sequence[Array], presence: Sequence[Presence | None]) -> Compared:
    """Each silo's clusters against the mean of the same ones, and of all others, in the other silos.

    Clusters of fewer than five rows are compared, but do not count in what others are compared with.

    Parameters
    ----------
    signatures : sequence of m arrays of shape (k, f)
    presence : sequence of m Presence or None

    Returns
    -------
    Compared

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.describe.atlas import compare
    >>> a, b = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.1], [-1.0, 0.0]])
    >>> compare([a, b], [None, None]).flags.tolist()
    [[0, 2], [0, 2]]

    A silo of one cluster has nothing to set it apart from:

    >>> compare([a, np.zeros((2, 2))], [(0.5, 0.5), (1.0, 0.0)]).flags[1].tolist()[0]
    1
    """
    S = np.array(signatures, dtype=np.float64)
    known = has_direction(S)
    told: list[Any] = [known[t] if one is None else one for t, one in enumerate(presence)]
    shares = np.array(told, dtype=np.float64).reshape(known.shape)  # NaN for fewer than five rows
    there, counted = ~(shares == 0), shares > 0
    found = likeness(S, counted)
    cosine = np.clip(found.cosine, -1, 1)
    # other silos have it, and this one has no other cluster to set it apart from
    blank = there & (counted.sum(axis=0) - counted > 0) & ~known
    unsure = (cosine < SURE) | (found.lead < LEAD)
    return Compared(there, counted, cosine, np.where((cosine < UNIQUE) & ~blank, 2, np.where(unsure, 1, 0)))


# ---------------------------------------------------------------------------------------------------------- drawing


def draw(
    members: Mapping[str, Member],
    features: Features | None,
    *,
    told: Mapping[str, Sequence[tuple[float, str]]] | None = None,
    matched: bool = True,
    notes: Sequence[str] = (),
    silos: bool = True,
    held: Sequence[str] = (),
) -> Atlas:
    """The atlas of some silos.

    Parameters
    ----------
    members : mapping of silo to Member
        All with the same number of clusters. The features of one need not be those of another.
    features : Features or None
        None where columns were replaced by others: no cluster has features of its own.
    told : mapping of silo to sequence of (cosine, flag), optional
        What the server of a federation has said of the clusters of silos whose others are not known here.
    matched : bool
        Whether the same number means the same cluster in all silos.
    notes : sequence of str
    silos : bool
        Whether silos are told apart: not where what is known is that of all together.
    held : sequence of str
        Silos that the server has capped, set aside or refused. Their numbers are not common: they are left out, unless
        there are no others.

    Returns
    -------
    Atlas
    """
    members = {cid: one for cid, one in members.items() if cid not in held} or members
    ids = list(members)
    columns = np.unique(np.concatenate([one.features for one in members.values()]))
    S = [_spread_out(one.signatures, one.features, columns) for one in members.values()]
    found = compare(S, [one.presence for one in members.values()])
    direction, amounts, agreed = _together(S, list(members.values()), columns, found)
    k, several, told = len(direction), len(ids) > 1, told or {}
    picked = [()] * k if features is None else _picked(direction, amounts, agreed, columns, features)
    if several:
        told = {cid: [(round(float(found.cosine[t, j]), 4), FLAGS[found.flags[t, j]]) for j in range(k)]
                for t, cid in enumerate(ids)}  # fmt: skip
    shown = {cid: (members[cid].presence, found.there[t]) for t, cid in enumerate(ids if silos else ())}
    clusters = tuple(_cluster(j, picked[j], shown, told) for j in range(k))
    atlas = Atlas(clusters, tuple(shown))
    return replace(atlas, notes=(*notes, *_notes(atlas, features, matched, held, silos and not told)))


def _notes(atlas: Atlas, features: Features | None, matched: bool, held: Sequence[str], alone: bool) -> Iterator[str]:
    """What must be known to read an atlas."""
    several = len(atlas.silos) > 1
    if several and not matched:
        yield UNMATCHED
    if features is not None and features.is_hashed:
        yield HASHED
    if held:
        yield held_words(held) + ("" if set(atlas.silos) & set(held) else " The atlas leaves them out.")
    elif alone:
        yield ALL_ALONE
    if several and matched and atlas.lone:
        yield f"{lone_words(atlas.lone)}."
    if features is None:
        yield LIFTED


def _cluster(
    j: int, features: tuple[Feature, ...], shown: Mapping[str, tuple[Presence | None, Array]],
    told: Mapping[str, Sequence[tuple[float, str]]],
) -> AtlasCluster:  # fmt: skip
    """A cluster, and what is known of each silo: its shares, which clusters it has, and what was told of them."""
    presence = {cid: own[j] for cid, (own, _) in shown.items() if own is not None}
    flagged = {cid: told[cid][j] for cid, (_, there) in shown.items() if there[j] and cid in told and told[cid][j][1]}
    cosine, flags = {cid: one for cid, (one, _) in flagged.items()}, {cid: one for cid, (_, one) in flagged.items()}
    return AtlasCluster(j, "", features, presence, cosine, flags)


def _spread_out(values: Array, features: Array, columns: Array) -> Array:
    """Values of some features among all; 0 for the others."""
    whole = np.zeros((len(values), len(columns)))
    whole[:, np.searchsorted(columns, features)] = values
    return whole


def _together(
    S: Sequence[Array], members: Sequence[Member], columns: Array, found: Compared
) -> tuple[Array, Array | None, Array]:
    """Of each cluster, the mean direction of its members at length 1, their mean amounts, and where they agree; k x f.

    They do not where a member's weight has another sign and is not small beside those of the others, nor where the
    mean amount has.
    """
    stack = np.array(S)
    norm = np.linalg.norm(stack, axis=2, keepdims=True)
    units = np.divide(stack, norm, out=np.zeros_like(stack), where=norm > 0)
    use = np.where(found.counted.any(axis=0), found.counted, found.there)
    units = units * use[:, :, None]
    usual = np.ma.median(np.ma.array(np.abs(units), mask=np.broadcast_to(~use[:, :, None], units.shape)), axis=0)
    strong = np.where(np.abs(units) >= LEAST * usual.filled(0.0), units, 0.0)
    direction = units.sum(axis=0)
    agreed = np.asarray(~((strong > 0).any(axis=0) & (strong < 0).any(axis=0)))
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    direction = np.divide(direction, length, out=np.zeros_like(direction), where=length > 0)
    if any(one.amounts is None for one in members):
        return direction, None, agreed
    amounts = np.array([_spread_out(one.amounts, one.features, columns) for one in members if one.amounts is not None])
    amounts = (amounts * use[:, :, None]).sum(axis=0) / np.maximum(use.sum(axis=0), 1)[:, None]
    return direction, amounts, agreed & (np.sign(amounts) == np.sign(direction))


def _picked(
    direction: Array, amounts: Array | None, agreed: Array, columns: Array, features: Features
) -> list[tuple[Feature, ...]]:
    """The strongest features of each cluster, a category by the level that says most."""
    strength = direction if features.is_text else np.abs(direction)
    many = 4 * TOP  # some columns have no known word, some are levels of one category
    orders = [order[strength[j, order] > 0] for j, order in enumerate(np.argsort(-strength, axis=1)[:, :many])]
    words = features.known_words({int(columns[i]) for order in orders for i in order}) if features.is_text else {}
    found = []
    for j, order in enumerate(orders):
        chosen: dict[int, Feature] = {}
        for i in order.tolist():
            column, level = features.place(int(columns[i]))
            if column in chosen or (words and column not in words) or len(chosen) == TOP:
                continue
            amount = None if amounts is None or features.is_text else float(amounts[j, i])
            chosen[column] = Feature(
                features.name(column, words), round(float(direction[j, i]), 4), amount,
                features.level(column, level), features.unit(column), features.kind(column), bool(agreed[j, i]),
            )  # fmt: skip
        found.append(tuple(chosen.values()))
    return found


def draw_models(
    models: Mapping[str, ClientModel],
    features: Features,
    presence: Mapping[str, Presence],
    *,
    told: Mapping[str, Sequence[tuple[float, str]]] | None = None,
    matched: bool = True,
    held: Sequence[str] = (),
) -> Atlas:
    """The atlas of fitted models; of a private run, that of what is public.

    Parameters
    ----------
    models : mapping of silo to ClientModel
    features : Features
    presence : mapping of silo to Presence
        Of those silos of which it is known.
    told, matched, held
        As in `draw`.
    """
    if public := [model for model in models.values() if model.is_public]:
        return draw({"all": public[0].member(None)}, features, notes=[PUBLIC], silos=False)
    members = {cid: model.member(presence.get(cid)) for cid, model in models.items()}
    lifted = any(model.units.lift is not None for model in models.values())
    return draw(members, None if lifted else features, told=told, matched=matched, held=held)


__all__ = ["Atlas", "AtlasCluster", "Feature", "compare", "draw", "draw_models", "presence_of"]
