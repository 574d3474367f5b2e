"""The units of columns, where all clients share them: phases `moments` and `rescale`.

moments  each client sums up its columns, so that all clients can scale them alike
rescale  the columns of all clients take the common units
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import RefusedError
from ..kernels import scaling
from ..kernels.lift import Lift, draw, lifts
from ..mixture.bounds import far_columns, far_sizes
from ..privacy.protection import Protection
from ..settings import POOLED_SCALES, Settings
from .base import Answers, Array, Content, Nothing, Phase, above, array, number
from .choice import by_columns
from .graph.state import Embedded
from .mixture.state import Tallied
from .state import ClientState, ServerState, become, set_aside, shared_width

# -------------------------------------------------------------------------------------------------------------- moments


class Moments(Phase):
    """Sums over the rows of each client, column by column; only where columns are scaled by all clients' rows."""

    name = "moments"
    doing = "summing up its columns"
    protect = Protection("Sums over all rows of the silo, column by column.")
    pure = True
    parallel = False

    class Answer(Content):
        """Sums of one client."""

        n_samples: int = number("number of rows", "Exactly that.", kind="count")
        means: Array | None = array(
            "d", "column means; of a category, the share of each level",
            "Exactly that: a typical row of the silo; for a column of 0 and 1, the share of ones. "
            "Two runs that differ by one row give that row.",
            when='scale="global" or "auto", or where a mixture may be fitted; dense rows',
        )  # fmt: skip
        squares: Array | None = array(
            "d", "for each column, the sum of squared deviations from its mean (of squared entries, for sparse rows)",
            "The spread of each column and which columns are constant or empty; with `means`, the values of a column "
            "with two rows.", when="as `means`, and for sparse rows",
        )  # fmt: skip
        filled: Array | None = array(
            "d", "number of filled cells of each column", "Which columns the silo does not measure, and how often.",
            kind="int", when="where cells are missing",
        )  # fmt: skip
        in_one_unit: bool | None = number(
            "whether rows have length 1, or hold many zeros and no negative number, as counts do", "Exactly that.",
            kind="flag", when='scale="auto"',
        )  # fmt: skip
        document_counts: Array | None = array(
            "d", "in how many rows each column is filled",
            "For texts, how many documents hold each (hashed) word; see [Words](#words).", kind="real",
            when='scale="tfidf"',
        )  # fmt: skip

        def wrong(self) -> str | None:
            """What no client can have summed up: nothing, or columns of two kinds."""
            if (self.squares is None) == (self.document_counts is None):
                return "either squares or document_counts must be there"
            return None if self.means is None or self.squares is not None else "means come with squares only"

    def times(self, server: ServerState, settings: Settings) -> int:
        """Once, where the clients agree on the units of columns, or on their means."""
        return int(needs_moments(settings))

    def reply(self, client: ClientState, ask: Any, settings: Settings, round_no: int) -> tuple[ClientState, Any]:
        """Sum up the columns as they came, categories as indicators of their levels."""
        if settings.scale == "tfidf":
            return client, self.Answer(n_samples=client.X.shape[0], document_counts=scaling.document_counts(client.X))
        if not needs_moments(settings):
            raise RefusedError(f"phase {self.name!r} is not part of a run with scale={settings.scale!r}")
        unit = scaling.in_one_unit(client.X) if settings.scale == "auto" else None
        own = scaling.moments(scaling.expanded(client.X, settings.levels))
        return client, self.Answer(n_samples=own.n, **self.said(own, ask), in_one_unit=unit)

    def said(self, own: scaling.Moments, ask: Any) -> dict[str, Any]:
        """What leaves of the sums."""
        return {"means": own.means, "squares": own.squares, "filled": own.counts}

    def impossible(self, server: ServerState, client_id: str, answer: Answer, settings: Settings) -> str | None:
        """No rows, negative squares, more cells than rows."""
        counts = [part for part in (answer.filled, answer.document_counts) if part is not None]
        if answer.n_samples < 1:
            return "is of no rows"
        if any(part.min(initial=0) < 0 or part.max(initial=0) > answer.n_samples for part in counts):
            return f"counts cells that {answer.n_samples} rows cannot have"
        return "has squares below 0" if answer.squares is not None and answer.squares.min(initial=0) < 0 else None

    def reduce(self, server: ServerState, answers: Answers, settings: Settings) -> ServerState:
        """Common units for the columns of all clients."""
        said = {cid: answers[cid] for cid in sorted(answers)}
        name = "document_counts" if settings.scale == "tfidf" else "squares"
        sums: dict[str, Array] = {cid: getattr(answer, name) for cid, answer in said.items()}
        silent = [cid for cid in said if sums[cid] is None]
        if silent:
            raise RefusedError(
                f"silo {', '.join(map(repr, silent))} sent no {name}, which scale={settings.scale!r} needs"
            )
        rows = {cid: answer.n_samples for cid, answer in said.items()}
        width = shared_width({cid: len(of_columns) for cid, of_columns in sums.items()})
        told = {cid: np.array([float(n)]) for cid, n in rows.items()}
        server = replace(server, n_samples=sum(rows.values()), n_features=width, told=told)
        if settings.scale == "tfidf":
            return agreed_words(server, sum(sums.values(), np.zeros(width, int)), settings)
        parts = {cid: scaling.Moments(rows[cid], said[cid].means, sums[cid], said[cid].filled) for cid in said}
        if settings.contains:
            server, near = set_aside(server, parts, _far(list(parts.values()), settings))
            parts = {cid: parts[cid] for cid in near}
        in_one_unit = bool(said) and all(answer.in_one_unit for answer in said.values())
        return agreed(server, scaling.pool(parts.values()), in_one_unit, settings)


def agreed(server: ServerState, pooled: scaling.Moments, in_one_unit: bool, settings: Settings) -> ServerState:
    """The server with common units, from the moments of all rows; it knows numbers of rows and columns already."""
    units = _units(pooled, in_one_unit, settings)
    lifted = units is not None and _lifts(pooled, units, settings)
    wide = pooled.means is None or server.n_features > MOST_COORDINATES
    wide = wide or numbers_of(server, settings) > scaling.FEW_COLUMNS
    return by_columns(replace(server, scaling=units, lifted=lifted, wide=wide, words=pooled.means is None), settings)


def agreed_words(server: ServerState, counts: Array, settings: Settings) -> ServerState:
    """The server with weights of words, from the number of rows that hold each."""
    words = scaling.tfidf(server.n_samples, counts, settings.max_features)
    units = replace(server, scaling=words, n_features=len(words.stretch), wide=True, words=True)
    return by_columns(units, settings)


def _far(parts: list[scaling.Moments], settings: Settings) -> Array:
    """Which silos' columns are far beyond the others'; where there are numbers, categories do not count."""
    if any(part.means is None for part in parts):
        return far_sizes(np.array([float(np.sum(part.squares)) / part.n for part in parts]))
    cells = np.array([np.full(len(part.squares), part.n) if part.counts is None else part.counts for part in parts])
    none = np.where(cells > 0, 0.0, np.nan)
    means = np.array([part.means for part in parts]) + none
    variances = np.array([part.squares for part in parts]) / np.maximum(cells, 1) + none
    return far_columns(means, variances, settings.levels)


def needs_moments(settings: Settings) -> bool:
    """Whether the clients agree on units or means of columns before a run."""
    return settings.scale in POOLED_SCALES or settings.view != "graph"


def _units(pooled: scaling.Moments, in_one_unit: bool, settings: Settings) -> scaling.Scaling | None:
    """What all clients do to their columns; None: nothing."""
    dense = pooled.means is not None  # sparse rows are counts or weights of words
    wanted = settings.scale == "global" or (
        settings.scale == "auto" and dense and (settings.has_categories or not in_one_unit)
    )
    if wanted:
        return scaling.standardize(pooled, settings.levels)
    if settings.view == "graph" or settings.scale == "silo" or pooled.means is None:
        return None
    return scaling.Scaling(np.ones_like(pooled.means), pooled.means)  # a mixture's coordinates begin at the mean


def numbers_of(server: ServerState, settings: Settings) -> int:
    """Columns that are numbers."""
    return sum(not size for size in settings.levels) if settings.has_categories else server.n_features


def _lifts(pooled: scaling.Moments, units: scaling.Scaling, settings: Settings) -> bool:
    """Whether the graph view lifts columns: few numbers in common units, none of which is 0 or 1 only."""
    wanted, d = settings.lift, len(pooled.squares)
    if wanted is False or units.shift is None or settings.has_categories or settings.rho is not None:
        return False
    if (units.stretch == 1).all() and not (pooled.squares == 0).all():
        return False  # not standardised
    mean = pooled.means
    assert mean is not None
    two_valued = np.isclose(pooled.variances, mean * (1 - mean), rtol=1e-9, atol=0) & (mean > 0) & (mean < 1)
    return wanted is True or (lifts(d, settings.n_clusters) and not two_valued.any())


MOST_COORDINATES = 1000  # numbers and levels of categories: products of all pairs of them are sent
MOMENTS = Moments()


# -------------------------------------------------------------------------------------------------------------- rescale


def _are_columns(keep: Any, sizes: Mapping[str, int]) -> str | None:
    right = keep.size and np.all(np.diff(keep.astype(np.int64)) > 0) and keep[0] >= 0 and keep[-1] < sizes["D"]
    return None if right else f"does not name columns out of {sizes['D']}, in order"


class Rescale(Phase):
    """What every client does to its columns; the same for all."""

    name = "rescale"
    doing = "scaling its columns"
    parallel = False
    rebuilds = True

    class Ask(Content):
        """Common units of the columns; c of them are kept."""

        shift: Array | None = array(
            "c", "column means of all rows of all silos, which are subtracted",
            "With its own means and the numbers of rows, the mean of all others; with two silos, that of the other.",
            when="all rows dense",
        )  # fmt: skip
        stretch: Array = array(
            "c", "what the columns are divided by: standard deviations, root mean squares (sparse rows), or 1",
            "As `shift`, for the spread; for texts, how common each (hashed) word is over all silos.", check=above(0),
        )  # fmt: skip
        keep: Array | None = array(
            "c", "numbers of the columns that are kept",
            "Which columns are filled in at least two and at most half of all rows, and are among the fullest; "
            "see [Words](#words).", kind="int", when='scale="tfidf"', check=_are_columns,
        )  # fmt: skip

        lift: bool | None = number(
            "whether the graph view replaces columns by random features that all silos draw from the seed",
            "Whether columns are few.", kind="flag", when="where columns have common units",
        )  # fmt: skip

    def times(self, server: ServerState, settings: Settings) -> int:
        """Once, where the clients agreed on units of the columns, or on their means."""
        return int(server.scaling is not None)

    def ask(self, server: ServerState, settings: Settings) -> Ask:
        """The common units."""
        units = server.scaling
        if units is None:
            raise RuntimeError("columns cannot be scaled before they are summed up")
        return self.Ask(shift=units.shift, stretch=units.stretch, keep=units.keep, lift=server.lifted or None)

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[ClientState, Nothing]:
        """Bring the rows, as they came, to the common units."""
        d = scaling.expanded_width(settings.levels, client.X.shape[1])
        if not needs_moments(settings):
            raise RefusedError(f"phase {self.name!r} is not part of a run with scale={settings.scale!r}")
        fits = ask.keep is not None if settings.scale == "tfidf" else ask.keep is None and len(ask.stretch) == d
        if not fits:
            raise RefusedError(f"the common units do not fit {d} columns")
        units = scaling.Scaling(ask.stretch, ask.shift, ask.keep)
        lift = None
        if ask.lift:
            if settings.lift is False:
                raise RefusedError("the server wants to lift columns in a run that does not lift them")
            lift = common_lift(d, settings)
        saved = next((kind for kind in (Embedded, Tallied) if isinstance(client, kind)), ClientState)
        return become(client, saved, scaling=units, lift=lift), Nothing()


def common_lift(d: int, settings: Settings) -> Lift:
    """The random features of d standardised columns, which all draw alike."""
    return draw(scaling.Moments(1, np.zeros(d), np.ones(d)), settings.seed)


RESCALE = Rescale()
