"""More federations from the text collections: other classes and natural silos than in the sets of the paper.

They read the files of `20newsgroups` and `reuters`, so fetching or importing one of these gives its cuts as well.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from fmtc.tables.text import N_BUCKETS

from .base import FederatedDataset, Source
from .text import QUOTE, WORDS_OPTIONS, all_documents, text_dataset
from .text import SOURCES as COLLECTIONS

NEWS_GROUPS = {
    "news_rec": ("rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey"),
    "news_sci": ("sci.crypt", "sci.electronics", "sci.med", "sci.space"),
    "news_talk": ("talk.politics.guns", "talk.politics.mideast", "talk.politics.misc", "talk.religion.misc"),
    "news_comp": (
        *("comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
        "comp.windows.x",
    ),
    "news_other": ("alt.atheism", "comp.windows.x", "misc.forsale", "soc.religion.christian"),
}
SENDER = re.compile(r"^From:[^\n]*?@(?:[\w-]+\.)*([A-Za-z]+)", re.MULTILINE)

STORY_TOPICS = ("acq", "earn", "interest", "money-fx", "ship")  # none of them in the data set reuters
MONTHS = {"FEB": "1987-03", "MAR": "1987-03", "APR": "1987-04", "JUN": "1987-06", "OCT": "1987-10"}


def sender_of(post: str) -> str:
    """What kind of address a post comes from: edu, com, abroad (the code of a country but us) or other.

    Examples
    --------
    >>> from fmtc_bench.datasets.cuts import sender_of
    >>> [sender_of(f"From: someone@{host} (Some One)\\n\\ntext") for host in ("cs.example.edu", "ox.ac.uk", "nasa.gov")]
    ['edu', 'abroad', 'other']
    """
    found = SENDER.search(post.partition("\n\n")[0])
    domain = found[1].lower() if found else ""
    if domain in ("edu", "com"):
        return domain
    return "abroad" if len(domain) == 2 and domain != "us" else "other"


def _read_groups(
    source: Source, folder: Path, *, words: str = "vocabulary", n_buckets: int = N_BUCKETS
) -> FederatedDataset:
    posts = [d for d in all_documents(folder, "group", "text") if d["group"] in NEWS_GROUPS[source.name]]
    texts = [QUOTE.sub("", d["text"].partition("\n\n")[2]) for d in posts]
    labels, clients = [d["group"] for d in posts], [sender_of(d["text"]) for d in posts]
    return text_dataset(source, texts, labels, clients, words=words, n_buckets=n_buckets)


def _read_months(
    source: Source, folder: Path, *, words: str = "vocabulary", n_buckets: int = N_BUCKETS
) -> FederatedDataset:
    stories = [
        d
        for d in all_documents(folder, "date", "topics", "title", "text")
        if len(d["topics"]) == 1 and d["topics"][0] in STORY_TOPICS and _month(d["date"]) in MONTHS
    ]
    texts = [f"{d['title']}\n{d['text']}" for d in stories]
    labels, clients = [d["topics"][0] for d in stories], [MONTHS[_month(d["date"])] for d in stories]
    return text_dataset(source, texts, labels, clients, words=words, n_buckets=n_buckets)


def _month(date: str) -> str:
    """Month of a date like 26-FEB-1987 15:01:01.79."""
    found = re.search(r"-([A-Z]{3})-1987", date)
    return found[1] if found else ""


_NEWS = next(source for source in COLLECTIONS if source.name == "20newsgroups")
_REUTERS = next(source for source in COLLECTIONS if source.name == "reuters")

SOURCES: tuple[Source, ...] = (
    *(
        replace(
            _NEWS,
            name=name,
            title=f"20 Newsgroups: {', '.join(groups)}",
            clients="address of the sender: edu, com, abroad, other",
            classes=f"group: {', '.join(groups)}",
            provenance=(
                "Usenet posts, the version sorted by date without duplicates, training and test part together. Clients "
                "are the kinds of address in the line From: universities (edu), firms (com), other countries than the "
                "United States, and the rest. Headers and quoted lines are removed."
            ),
            read=_read_groups,
            options=WORDS_OPTIONS,
        )
        for name, groups in NEWS_GROUPS.items()
    ),
    replace(
        _REUTERS,
        name="reuters_months",
        title="Reuters-21578 by month",
        clients="month of 1987: March (with the last days of February), April, June, October",
        classes=f"topic: {', '.join(STORY_TOPICS)}",
        provenance=(
            "Reuters newswire of 1987, Reuters-21578, Distribution 1.0: stories with exactly one topic, of the five "
            "largest that the data set reuters does not use. Clients are the months. Title and text are used together."
        ),
        read=_read_months,
        options=WORDS_OPTIONS,
    ),
)

__all__ = ["SOURCES", "sender_of"]
