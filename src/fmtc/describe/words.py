"""How findings are worded: numbers as people write them, and the sentences that several pages share."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..errors import listed

Array = np.ndarray

FEW = 5  # a cluster with fewer rows is not described, and its size is not shown

HASHED = (
    "The columns are words under a keyed hash, and this run does not know which: it cannot say what its clusters are "
    "about."
)
UNMATCHED = (
    "The numbers of the silos' clusters were not matched (align=False): the same number may mean something else in "
    "another silo. Read each silo by itself."
)
SUMMED = "The server saw sums only: it knows the clusters of all silos together, and nothing of a single one."


def held_words(held: Sequence[str], kept: Mapping[str, str | None] | None = None) -> str:
    """Say which silos the server has limited, that their cluster numbers are not common, and which model they kept.

    Parameters
    ----------
    held : sequence of str
        Silos that were capped, set aside or refused.
    kept : mapping of silo to str, optional
        Which model each kept, "alone" or a common one, where that is known.

    Examples
    --------
    >>> from fmtc.describe.words import held_words
    >>> for sentence in held_words(["north"], {"north": "alone"}).split(". "):
    ...     print(sentence)
    The server capped, set aside or refused what 'north' sent: it is unlike what the other silos sent
    Do not take cluster numbers there for those of the other silos, and check columns and units there
    A model of its own rows was kept by 'north'.
    """
    said = (
        f"The server capped, set aside or refused what {listed(held)} sent: it is unlike what the other silos sent. "
        "Do not take cluster numbers there for those of the other silos, and check columns and units there."
    )
    known = {cid: word for cid in held if (word := (kept or {}).get(cid))}
    for what, some in (
        ("A model of its own rows", [cid for cid, word in known.items() if word == "alone"]),
        ("The common model, which may not suit its rows,", [cid for cid, word in known.items() if word != "alone"]),
    ):
        said += f" {what} was kept by {listed(some)}." if some else ""
    return said


def own_words(choices: Mapping[str, str | None]) -> str:
    """Say which silos keep clusters of their own, and why; empty where none does.

    Parameters
    ----------
    choices : mapping of silo to str
        "alone" where it keeps its own clusters.

    Examples
    --------
    >>> from fmtc.describe.words import own_words
    >>> own_words({"county": "alone", "north": "federated"})
    "'county' differs: its own clusters predict its rows better than the common ones, so it keeps its own."
    """
    own = [cid for cid, choice in choices.items() if choice == "alone"]
    if not own:
        return ""
    differ, they, their = ("differs", "it keeps", "its") if len(own) == 1 else ("differ", "they keep", "their")
    return (
        f"{listed(own)} {differ}: {their} own clusters predict {their} rows better than the common ones, so {they} "
        f"{their} own."
    )


def lone_words(lone: Sequence[str]) -> str:
    """That silos have no cluster in common with any other, in a sentence."""
    have, their, them = ("has", "its", "it") if len(lone) == 1 else ("have", "their", "them")
    return (
        f"{listed(lone)} {have} no cluster in common with any other silo: {their} clusters are {their} own, and the "
        f"others can teach {them} little"
    )


def missed_words(silos: Sequence[str]) -> str:
    """That the labels of silos do not follow clear parts of their graph, and what to try."""
    return (
        f"the labels of {listed(silos)} do not follow the neighbour graph: it falls into clear parts, but labels are a "
        'linear function of the columns, which cannot tell these parts from each other. Try view="auto", '
        'Graph(lift=True) with scale="auto", or view="mixture".'
    )


def empty_clusters_sentence(sizes: Iterable[Sequence[int] | Array], *, all_silos: bool = True) -> str:
    """Which clusters have no row, and what to do; empty where there is none.

    Parameters
    ----------
    sizes : iterable of array-like of shape (k,)
        Of each silo, the rows of each cluster.
    all_silos : bool
        Whether these are all silos of the run; other silos may have what one lacks.

    Examples
    --------
    >>> from fmtc.describe.words import empty_clusters_sentence
    >>> empty_clusters_sentence([[30, 12, 0, 0], [20, 0, 0, 0]])
    'clusters 2 and 3 have no rows: fit again with fewer clusters (2 of 4 have rows)'
    >>> empty_clusters_sentence([[30, 12, 0]], all_silos=False)
    'cluster 2 has no rows in this silo'
    """
    total = np.sum([np.asarray(counts) for counts in sizes], axis=0)
    empty = [str(j) for j in np.flatnonzero(total == 0)]
    if not empty:
        return ""
    names = listing(empty if len(empty) <= 6 else [*empty[:5], f"{len(empty) - 5} more"])
    said = f"cluster{'s' if len(empty) > 1 else ''} {names} {'have' if len(empty) > 1 else 'has'} no rows"
    if not all_silos:
        return f"{said} in this silo"
    return f"{said}: fit again with fewer clusters ({len(total) - len(empty)} of {len(total)} have rows)"


def strangers_sentence(sizes: Mapping[str, Array]) -> str:
    """Which silos have no row in a cluster that another silo has, and what to do; empty where there is none.

    Parameters
    ----------
    sizes : mapping of silo to array of shape (k,)
        Rows of each cluster in each silo.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.describe.words import strangers_sentence
    >>> strangers_sentence({"a": np.array([9, 0]), "b": np.array([8, 0]), "c": np.array([0, 7])}).partition(":")[0]
    "'c' has no cluster in common with any other silo"
    """
    silos_of = np.sum([counts > 0 for counts in sizes.values()], axis=0)
    lone = [cid for cid, counts in sizes.items() if len(sizes) > 1 and not ((counts > 0) & (silos_of > 1)).any()]
    return f"{lone_words(lone)}. Leave out such a silo, or ask for fewer clusters." if lone else ""


def listing(words: Sequence[str]) -> str:
    """Such as: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def both_written(inside: float, outside: float) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to see their difference."""
    largest, gap = max(abs(inside), abs(outside)), abs(inside - outside)
    if not largest or not gap:
        return f"{inside:.3g}", f"{outside:.3g}"
    digits = max(0, 1 - int(np.floor(np.log10(gap))))
    if largest >= 1e7 or digits > 6:
        return f"{inside:.3g}", f"{outside:.3g}"
    both = [f"{value:,.{digits}f}" for value in (inside, outside)]
    both = [text.lstrip("-") if not text.strip("-0.") else text.replace("-", "−") for text in both]
    return both[0], both[1]


def written(value: float) -> str:
    """One number with as many digits as it takes to read it."""
    size = abs(value)
    if not size or size >= 1e7 or size < 1e-3:
        return f"{value:.2g}"
    return f"{value:,.{max(0, 1 - int(np.floor(np.log10(size))))}f}"


def percent(share: float) -> str:
    """A share as people write it; a small one is not called nothing."""
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def percents(shares: Sequence[float]) -> list[str]:
    """Shares of one whole as `percent`, rounded so that they add up as printed.

    Examples
    --------
    >>> from fmtc.describe.words import percents
    >>> percents([0.574, 0.423, 0.003]), percents([1 / 3, 1 / 3, 1 / 3])
    (['58 %', '42 %', '< 1 %'], ['34 %', '33 %', '33 %'])
    """
    exact = 100 * np.asarray(shares, dtype=np.float64)
    whole = np.floor(exact + 1e-9)
    rest = round(float(exact.sum() - whole.sum()))
    whole[np.argsort(whole - exact, kind="stable")[:rest]] += 1
    return ["< 1 %" if share > 0 and not n else f"{n:.0f} %" for share, n in zip(shares, whole, strict=True)]


def signed(value: float, text: str = "") -> str:
    """The text of a size, with the sign of its value; by default the size to two places."""
    return f"{'+' if value >= 0 else '−'}{text or f'{abs(value):.2f}'}"


def with_unit(text: str, unit: str) -> str:
    """A number and its unit, if it has one."""
    return f"{text} {unit}" if unit else text


# ------------------------------------------------------------------------------------------------ tables for notebooks


def html_table(head: Sequence[tuple[str, bool]], lines: Iterable[Sequence[str]], notes: Sequence[str]) -> str:
    """Columns by their heads, and whether each is text, which stands left; everything but the notes is escaped here."""
    left = ["<{} style='text-align:left'>" if is_text else "<{}>" for _, is_text in head]

    def row(kind: str, cells: Iterable[str]) -> str:
        both = zip(left, cells, strict=True)
        return f"<tr>{''.join(f'{tag.format(kind)}{html.escape(cell)}</{kind}>' for tag, cell in both)}</tr>"

    body = "".join(row("td", cells) for cells in lines)
    said = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    return f"<table><thead>{row('th', (name for name, _ in head))}</thead><tbody>{body}</tbody></table>{said}"
