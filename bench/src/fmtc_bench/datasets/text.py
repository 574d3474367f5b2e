"""Texts as federations: WebKB4, 20 Newsgroups, Reuters-21578, BBC News, BBC Sport and Enron-Spam."""

from __future__ import annotations

import gzip
import html
import io
import json
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from fmtc.errors import DatasetError, InputError
from fmtc.tables import hashed_counts
from fmtc.tables.text import N_BUCKETS

from .base import FederatedDataset, Source, label_skew
from .catalogue import facts, source
from .download import members

FILE = "docs.jsonl.gz"
WORD = r"(?u)\b[a-zA-Z]{3,}\b"

Document = dict[str, Any]
Cell = tuple[str | None, str | None]  # client and class; (None, None): unused

FACTS = facts("text")

WEBKB_CLASSES: list[str] = FACTS["webkb4"]["kinds"]
WEBKB_PAGES: dict[str, list[int]] = FACTS["webkb4"]["pages"]

# The class is the first part of a group's name; task i has the i-th group of each class in alphabetical order.
NEWS_CLASSES: list[str] = FACTS["20newsgroups"]["hierarchies"]
NEWS_POSTS: dict[str, dict[str, int]] = FACTS["20newsgroups"]["posts"]
NEWS_UNUSED: int = FACTS["20newsgroups"]["unused"]  # posts of the four groups in no task

# Stories with exactly one topic; classes are families of topics, and no two tasks share a topic.
REUTERS_TOPICS: dict[str, dict[str, str]] = FACTS["reuters"]["topics"]
REUTERS_STORIES: dict[str, list[int]] = FACTS["reuters"]["stories"]
REUTERS_UNUSED: int = FACTS["reuters"]["unused"]
REUTERS_CELLS: dict[str, Cell] = {
    topic: (client, label)
    for client, families in REUTERS_TOPICS.items()
    for label, topics in families.items()
    for topic in topics.split()
}

BBC_STORIES: dict[str, dict[str, int]] = {name: FACTS[name]["stories"] for name in ("bbcnews", "bbcsport")}

MAILBOXES: dict[str, list[int]] = FACTS["enron_spam"][
    "mailboxes"
]  # ham and spam kept of each, near the archive's shares
MAIL_CHARACTERS = 4000


# ------------------------------------------------------------------------------------------------------- reading


def all_documents(source: Source, folder: Path, *fields: str) -> list[Document]:
    """All texts of a collection, from its compact form."""
    path = folder / source.files[0]
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found = [json.loads(line) for line in lines]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DatasetError(f"{path} cannot be read as gzipped JSON lines ({error}); fetch or import it again") from None
    missing = sorted({field for field in fields for d in found if field not in d})
    if missing or not found:
        what = f"a line without {', '.join(missing)}" if missing else "no line"
        raise DatasetError(f"{path} has {what} where each needs {', '.join(fields)}; fetch or import it again")
    return found


def _documents(source: Source, folder: Path, *fields: str) -> list[Document]:
    """The texts of a data set that are used."""
    return [d for d in all_documents(source, folder, *fields) if d["label"] is not None]


def text_dataset(
    source: Source,
    documents: Sequence[Document],
    *,
    words: str = "vocabulary",
    n_buckets: int = N_BUCKETS,
    mark: str = "",
    note: str = "",
) -> FederatedDataset:
    """A federation of texts with label and client; `mark` is added to its name and `note` to its provenance."""
    texts, labels, clients = ([d[field] for d in documents] for field in ("text", "label", "client"))
    if words == "vocabulary":
        import scipy.sparse as sp
        from sklearn.feature_extraction.text import CountVectorizer

        vectorizer = CountVectorizer(token_pattern=WORD, stop_words="english", dtype=np.float64)
        X = sp.csr_array(vectorizer.fit_transform(texts))
        X.data = 1 + np.log(X.data)
        names = tuple(vectorizer.get_feature_names_out().tolist())
        how = "Columns are lower-case words of three or more letters, without scikit-learn's English stop words"
    elif words == "hashed":
        X = hashed_counts(texts, n_buckets=n_buckets)
        names = tuple(f"bucket{j}" for j in range(n_buckets))
        mark += "-hashed"
        how = f"Columns are {n_buckets} buckets of hashed words of two or more letters or digits, with stop words"
    else:
        raise InputError(f'words must be "vocabulary" or "hashed", got {words!r}')
    class_names, y = np.unique(labels, return_inverse=True)
    note = " ".join(filter(None, (note, f"{how}; entries are 1 + ln(count).")))
    about: dict[str, Any] = {"feature_names": names, "class_names": tuple(class_names.tolist()), "recipe": "tfidf"}
    return source.dataset(X, y, clients, mark=mark, note=note, **about)


def read_labelled(source: Source, folder: Path, **words: Any) -> FederatedDataset:
    """Texts as they are in the compact form."""
    return text_dataset(source, _documents(source, folder, "client", "label", "text"), **words)


QUOTE = re.compile(
    r"^(?:[ \t]*[>|].*"  # > and | before each line
    r"|In (?:article[ \t]*)?<.*"  # In article <number>, name
    r"|.*\b(?:writes|wrote|says|said)[ \t]*(?::|\.\.\.)[ \t]*"  # name writes:
    r")$\n?",
    re.MULTILINE,
)


def _read_news(
    source: Source, folder: Path, *, headers: bool = False, quotes: bool = False, **words: Any
) -> FederatedDataset:
    documents = _documents(source, folder, "client", "label", "text")
    for d in documents:
        text = d["text"] if headers else d["text"].partition("\n\n")[2]
        d["text"] = text if quotes else QUOTE.sub("", text)
    parts = {"headers": headers, "quoted lines": quotes}
    note = " and ".join(f"{what} are {'kept' if kept else 'removed'}" for what, kept in parts.items()) + "."
    mark = "-headers" * headers + "-quotes" * quotes
    return text_dataset(source, documents, mark=mark, note=note.capitalize(), **words)


def _read_reuters(source: Source, folder: Path, **words: Any) -> FederatedDataset:
    documents = _documents(source, folder, "client", "label", "title", "text")
    return text_dataset(source, [{**d, "text": f"{d['title']}\n{d['text']}"} for d in documents], **words)


def _read_bbc(
    source: Source, folder: Path, *, n_clients: int = 4, concentration: float = 5.0, seed: int = 0, **words: Any
) -> FederatedDataset:
    documents = _documents(source, folder, "label", "text")
    labels = np.array([d["label"] for d in documents])
    clients = label_skew(labels, n_clients, concentration=concentration, random_state=seed)
    dealt = [{**d, "client": client} for d, client in zip(documents, clients, strict=True)]
    mark = f"-skew{concentration:g}-seed{seed}"
    note = f"Here {n_clients} clients, concentration {concentration:g}, seed {seed}."
    return text_dataset(source, dealt, mark=mark, note=note, **words)


# ---------------------------------------------------------------------------------------------------- converting


def _matching(
    archives: tuple[Path, ...], pattern: str, name: str, layout: str
) -> Iterator[tuple[re.Match[str], bytes]]:
    """Files of the archives whose names match a pattern; an error if none does."""
    found: dict[str, re.Match[str] | None] = {}

    def wanted(member: str) -> bool:
        found[member] = re.fullmatch(rf"(?:.*/)?{pattern}", member)
        return found[member] is not None

    for path in archives:
        for member, content in members(path, wanted=wanted):
            match = found[member]
            if match is not None:
                yield match, content
    if not any(found.values()):
        what = f"{next(iter(found))!r} and {len(found) - 1} more" if found else "no files"
        names = ", ".join(path.name for path in archives)
        raise DatasetError(f"{names} is not the archive of {name}: it holds {what}, where {layout} is expected")


def _text(content: bytes) -> str:
    """Latin-1 text with Unix line ends."""
    return content.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")


def _write(documents: Iterable[Document], folder: Path) -> None:
    """The compact form; the same documents give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / FILE).open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as lines,
    ):
        lines.writelines(json.dumps(d, ensure_ascii=False) + "\n" for d in documents)


def _compare(documents: Iterable[Document], known: Mapping[Cell, int], name: str) -> None:
    """Warn if an archive does not have the known numbers of texts."""
    counts = Counter((d.get("client"), d["label"]) for d in documents)
    differ = [cell for cell in {**known, **counts} if counts[cell] != known.get(cell, 0)]
    if differ:
        first = "/".join(filter(None, differ[0])) or "unused texts"
        warnings.warn(
            f"{name}: the archive has {counts.total()} texts, expected {sum(known.values())}; {len(differ)} counts "
            f"differ, the first is {first} with {counts[differ[0]]} instead of {known.get(differ[0], 0)}",
            stacklevel=3,
        )


def _cells(counts: Mapping[str, Sequence[int]], classes: Iterable[str]) -> dict[Cell, int]:
    classes = tuple(classes)
    return {(client, c): n for client, row in counts.items() for c, n in zip(classes, row, strict=True)}


class _Words(HTMLParser):
    """Text between the tags of a page, without scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.hidden = False

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.pieces.append(data)


COMMENT = re.compile(r"<!--.*?-->|<![^>]*>", re.DOTALL)  # pages of 1996 leave many open: they end at the next >


def _page_text(page: str) -> str:
    """Words of a page from its HTTP response: no header, no tags, entities decoded, single blanks."""
    parser = _Words()
    parser.feed(COMMENT.sub(" ", page.partition("\n\n")[2]))
    parser.close()
    return " ".join(" ".join(parser.pieces).split())


def _convert_webkb(archives: tuple[Path, ...], folder: Path) -> None:
    pattern = rf"({'|'.join(WEBKB_CLASSES)})/({'|'.join(WEBKB_PAGES)})/([^/]+)"
    documents = []
    for match, content in _matching(archives, pattern, "webkb4", "webkb/<class>/<university>/<page>"):
        label, client, page = match.groups()
        raw = _text(content)
        documents.append(
            {
                "id": f"{label}/{client}/{page}",
                "client": client,
                "label": label,
                "url": page.replace("^", "/"),
                "text": _page_text(raw),
                "html": raw,
            }
        )
    documents.sort(key=lambda d: (d["client"], d["id"]))
    _compare(documents, _cells(WEBKB_PAGES, WEBKB_CLASSES), "webkb4")
    _write(documents, folder)


def _convert_news(archives: tuple[Path, ...], folder: Path) -> None:
    task_of = {group: task for task, groups in NEWS_POSTS.items() for group in groups}
    pattern = r"20news-bydate-(train|test)/([a-z0-9.-]+)/(\d+)"
    documents = []
    for match, content in _matching(archives, pattern, "20newsgroups", "20news-bydate-train/<group>/<number>"):
        split, group, number = match.groups()
        top, client = group.partition(".")[0], task_of.get(group)
        documents.append(
            {
                "id": f"{group}/{number}",
                "client": client,
                "label": top if client else None,
                "group": group,
                "top": top,
                "split": split,
                "text": _text(content),
            }
        )
    documents.sort(key=lambda d: (d["split"], d["id"]))
    known = {task: tuple(groups.values()) for task, groups in NEWS_POSTS.items()}
    _compare(documents, {**_cells(known, NEWS_CLASSES), (None, None): NEWS_UNUSED}, "20newsgroups")
    _write(documents, folder)


STORY = re.compile(r'<REUTERS\b([^>]*\bNEWID="\d+"[^>]*)>(.*?)</REUTERS>', re.DOTALL)
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f]")
SIGNATURE = re.compile(r"\s*\b(?:Reuter|REUTER)$")  # ends nearly every story


def _element(story: str, tag: str) -> str | None:
    """Raw content of an SGML element."""
    match = re.search(rf"<{tag}\b[^>]*>(.*?)</{tag}>", story, re.DOTALL)
    return match and match[1]


def _plain(sgml: str | None) -> str:
    """Entities decoded, tags and control characters removed."""
    return CONTROL.sub("", html.unescape(re.sub(r"</?[A-Z]+\b[^>]*>", "", sgml or ""))).strip()


def _story(attributes: str, story: str) -> Document:
    about = dict(ATTRIBUTE.findall(attributes))
    kind = re.search(r'<TEXT\s+TYPE="(\w+)"', story)
    text_type = kind[1] if kind else "NORM"
    body = _element(story, "BODY")
    if body is None and text_type == "UNPROC":  # tables and similar: without title and body tags
        body = _element(story, "TEXT")
    lists = {
        tag.lower(): [_plain(item) for item in re.findall(r"<D>(.*?)</D>", _element(story, tag) or "")]
        for tag in ("TOPICS", "PLACES", "PEOPLE", "ORGS", "EXCHANGES")
    }
    topics = lists["topics"]
    client, label = REUTERS_CELLS.get(topics[0], (None, None)) if len(topics) == 1 else (None, None)
    return {
        "id": int(about["NEWID"]),
        "client": client,
        "label": label,
        "date": (_element(story, "DATE") or "").strip(),
        "lewissplit": about.get("LEWISSPLIT", ""),
        "cgisplit": about.get("CGISPLIT", ""),
        "has_topics": about.get("TOPICS", ""),
        "texttype": text_type,
        **lists,
        "title": _plain(_element(story, "TITLE")),
        "text": SIGNATURE.sub("", _plain(body)),
    }


def _convert_reuters(archives: tuple[Path, ...], folder: Path) -> None:
    documents = [
        _story(*story)
        for _, content in _matching(archives, r"reut2-\d{3}\.sgm", "reuters", "reut2-000.sgm and so on")
        for story in STORY.findall(_text(content))
    ]
    if not documents:
        names = ", ".join(path.name for path in archives)
        raise DatasetError(f"{names} is not the archive of reuters: its .sgm files hold no <REUTERS> story")
    documents.sort(key=lambda d: d["id"])
    known = _cells(REUTERS_STORIES, REUTERS_TOPICS["task1"])
    _compare(documents, {**known, (None, None): REUTERS_UNUSED}, "reuters")
    _write(documents, folder)


def _bbc_stories(archives: tuple[Path, ...], name: str, top: str) -> list[Document]:
    pattern = rf"{top}/({'|'.join(BBC_STORIES[name])})/(\d+)\.txt"
    found = _matching(archives, pattern, name, f"{top}/<class>/<number>.txt")
    documents = [
        {"id": "/".join(match.groups()), "label": match[1], "text": _text(raw).strip()} for match, raw in found
    ]
    documents.sort(key=lambda d: d["id"])
    _compare(documents, {(None, label): n for label, n in BBC_STORIES[name].items()}, name)
    return documents


def _convert_bbcnews(archives: tuple[Path, ...], folder: Path) -> None:
    stories = _bbc_stories(archives, "bbcnews", "bbc")
    _write(({**d, "title": d["text"].partition("\n")[0].strip()} for d in stories), folder)


def _convert_bbcsport(archives: tuple[Path, ...], folder: Path) -> None:
    stories = _bbc_stories(archives, "bbcsport", "bbcsport")
    _write(({**d, "text": " ".join(d["text"].split())} for d in stories), folder)


def _convert_enron(archives: tuple[Path, ...], folder: Path) -> None:
    """enron1.tar.gz to enron6.tar.gz: a random cut of each mailbox, ordered by file name; the same at each import."""
    boxes = {client.partition("_")[0]: client for client in MAILBOXES}
    pattern = r"(enron[1-6])/(ham|spam)/([^/]+)\.txt"
    mails: dict[tuple[str, str], list[Document]] = {}
    for match, content in _matching(archives, pattern, "enron_spam", "enron1/ham/<message>.txt"):
        box, label, name = match.groups()
        mail = {"id": name, "client": boxes[box], "label": label, "text": _text(content)[:MAIL_CHARACTERS]}
        mails.setdefault((boxes[box], label), []).append(mail)
    documents = []
    known = _cells(MAILBOXES, ("ham", "spam"))
    for k, (cell, n) in enumerate(known.items()):
        found = sorted(mails.get(cell, []), key=lambda d: d["id"])  # type: ignore[arg-type]
        kept = np.sort(np.random.default_rng([0, k]).permutation(len(found))[:n])
        documents += [found[i] for i in kept]
    _compare(documents, known, "enron_spam")
    _write(documents, folder)


# ------------------------------------------------------------------------------------------------------- sources

CODE = {
    "webkb4": (read_labelled, _convert_webkb),
    "20newsgroups": (_read_news, _convert_news),
    "reuters": (_read_reuters, _convert_reuters),
    "bbcnews": (_read_bbc, _convert_bbcnews),
    "bbcsport": (_read_bbc, _convert_bbcsport),
    "enron_spam": (read_labelled, _convert_enron),
}
SOURCES = tuple(source(name, FACTS[name], code) for name, code in CODE.items())
WORDS_OPTIONS = SOURCES[0].options  # of all texts

__all__ = ["SOURCES"]
