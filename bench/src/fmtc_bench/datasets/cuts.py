"""More federations from the text collections: other classes and natural silos than in the sets of the paper.

They read the files of `20newsgroups` and `reuters`, so fetching or importing one of these gives its cuts as well.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .base import FederatedDataset, Source
from .catalogue import source
from .text import CODE, FACTS, QUOTE, all_documents, text_dataset

NEWS_GROUPS: dict[str, list[str]] = {
    name: FACTS[name]["groups"] for name in ("news_rec", "news_sci", "news_talk", "news_comp", "news_other")
}
SENDER = re.compile(r"^From:[^\n]*?@(?:[\w-]+\.)*([A-Za-z]+)", re.MULTILINE)

STORY_TOPICS: list[str] = FACTS["reuters_months"]["single"]  # none of them in the data set reuters
MONTHS: dict[str, str] = FACTS["reuters_months"]["months"]


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


def _read_groups(source: Source, folder: Path, **words: Any) -> FederatedDataset:
    posts = [
        {"text": QUOTE.sub("", d["text"].partition("\n\n")[2]), "label": d["group"], "client": sender_of(d["text"])}
        for d in all_documents(source, folder, "group", "text")
        if d["group"] in NEWS_GROUPS[source.name]
    ]
    return text_dataset(source, posts, **words)


def _read_months(source: Source, folder: Path, **words: Any) -> FederatedDataset:
    stories = [
        {"text": f"{d['title']}\n{d['text']}", "label": d["topics"][0], "client": MONTHS[_month(d["date"])]}
        for d in all_documents(source, folder, "date", "topics", "title", "text")
        if len(d["topics"]) == 1 and d["topics"][0] in STORY_TOPICS and _month(d["date"]) in MONTHS
    ]
    return text_dataset(source, stories, **words)


def _month(date: str) -> str:
    """Month of a date like 26-FEB-1987 15:01:01.79."""
    found = re.search(r"-([A-Z]{3})-1987", date)
    return found[1] if found else ""


_CODE = dict.fromkeys(NEWS_GROUPS, (_read_groups, CODE["20newsgroups"][1]))
_CODE["reuters_months"] = (_read_months, CODE["reuters"][1])
SOURCES = tuple(source(name, FACTS[name], code) for name, code in _CODE.items())

__all__ = ["SOURCES", "sender_of"]
