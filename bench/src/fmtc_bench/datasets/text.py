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

from .base import Archive, Array, FederatedDataset, Source, label_skew
from .download import members

FILE = "docs.jsonl.gz"
WORD = r"(?u)\b[a-zA-Z]{3,}\b"

Document = dict[str, Any]
Cell = tuple[str | None, str | None]  # client and class; (None, None): unused

WEBKB_CLASSES = ("course", "faculty", "project", "student")
WEBKB_PAGES = {
    "cornell": (44, 34, 20, 128),
    "texas": (38, 46, 20, 148),
    "washington": (77, 31, 21, 126),
    "wisconsin": (85, 42, 25, 156),
}

# The class is the first part of a group's name; task i has the i-th group of each class in alphabetical order.
NEWS_CLASSES = ("comp", "rec", "sci", "talk")
NEWS_POSTS = {
    "task1": {"comp.graphics": 973, "rec.autos": 990, "sci.crypt": 991, "talk.politics.guns": 910},
    "task2": {
        "comp.os.ms-windows.misc": 985,
        "rec.motorcycles": 996,
        "sci.electronics": 984,
        "talk.politics.mideast": 940,
    },
    "task3": {"comp.sys.ibm.pc.hardware": 982, "rec.sport.baseball": 994, "sci.med": 990, "talk.politics.misc": 775},
    "task4": {"comp.sys.mac.hardware": 963, "rec.sport.hockey": 999, "sci.space": 987, "talk.religion.misc": 628},
}
NEWS_UNUSED = 3759  # posts of the four groups in no task

# Stories with exactly one topic; classes are families of topics, and no two tasks share a topic.
REUTERS_TOPICS = {
    "task1": {"econ": "trade", "energy": "crude", "food": "sugar", "metal": "gold"},
    "task2": {
        "econ": "money-supply reserves bop",
        "energy": "nat-gas propane",
        "food": "coffee tea",
        "metal": "copper zinc lead tin",
    },
    "task3": {
        "econ": "cpi gnp jobs ipi wpi retail housing lei income instal-debt inventories cpu",
        "energy": "gas heat fuel jet naphtha pet-chem",
        "food": "cocoa grain orange livestock carcass veg-oil oilseed potato rice hog l-cattle groundnut",
        "metal": "alum iron-steel silver nickel platinum strategic-metal",
    },
}
REUTERS_STORIES = {"task1": (361, 408, 143, 99), "task2": (246, 46, 122, 108), "task3": (372, 73, 223, 134)}
REUTERS_UNUSED = 19243
REUTERS_CELLS: dict[str, Cell] = {
    topic: (client, label)
    for client, families in REUTERS_TOPICS.items()
    for label, topics in families.items()
    for topic in topics.split()
}

BBC_STORIES = {
    "bbcnews": {"business": 510, "entertainment": 386, "politics": 417, "sport": 511, "tech": 401},
    "bbcsport": {"athletics": 101, "cricket": 124, "football": 265, "rugby": 147, "tennis": 100},
}

MAILBOXES = {  # ham and spam kept of each, near the shares of the archive
    "enron1_farmer": (750, 250),
    "enron2_kaminski": (750, 250),
    "enron3_kitchen": (750, 250),
    "enron4_williams": (250, 750),
    "enron5_beck": (250, 750),
    "enron6_lokay": (250, 750),
}
MAIL_CHARACTERS = 4000


# ------------------------------------------------------------------------------------------------------- reading


def all_documents(folder: Path, *fields: str, file: str = FILE) -> list[Document]:
    """All texts of a collection, from its compact form."""
    path = folder / file
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


def _documents(folder: Path, *fields: str) -> list[Document]:
    """The texts of a data set that are used."""
    return [d for d in all_documents(folder, *fields) if d["label"] is not None]


def text_dataset(
    source: Source,
    texts: Sequence[str],
    labels: Sequence[str],
    clients: Sequence[str] | Array,
    *,
    words: str,
    n_buckets: int,
    mark: str = "",
    note: str = "",
) -> FederatedDataset:
    """A federation of texts; `mark` is added to its name and `note` to its provenance."""
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
    return FederatedDataset(
        name=source.name + mark,
        X=X,
        y=y,
        clients=np.asarray(clients, dtype=str),
        feature_names=names,
        class_names=tuple(class_names.tolist()),
        recipe="tfidf",
        provenance=" ".join(filter(None, (source.provenance, note, f"{how}; entries are 1 + ln(count)."))),
        licence=source.licence,
        citation=source.citation,
    )


def _read_labelled(
    source: Source, folder: Path, *, words: str = "vocabulary", n_buckets: int = N_BUCKETS
) -> FederatedDataset:
    documents = _documents(folder, "client", "label", "text")
    texts, labels, clients = ([d[field] for d in documents] for field in ("text", "label", "client"))
    return text_dataset(source, texts, labels, clients, words=words, n_buckets=n_buckets)


QUOTE = re.compile(
    r"^(?:[ \t]*[>|].*"  # > and | before each line
    r"|In (?:article[ \t]*)?<.*"  # In article <number>, name
    r"|.*\b(?:writes|wrote|says|said)[ \t]*(?::|\.\.\.)[ \t]*"  # name writes:
    r")$\n?",
    re.MULTILINE,
)


def _read_news(
    source: Source,
    folder: Path,
    *,
    headers: bool = False,
    quotes: bool = False,
    words: str = "vocabulary",
    n_buckets: int = N_BUCKETS,
) -> FederatedDataset:
    documents = _documents(folder, "client", "label", "text")
    texts = [d["text"] if headers else d["text"].partition("\n\n")[2] for d in documents]
    if not quotes:
        texts = [QUOTE.sub("", text) for text in texts]
    parts = {"headers": headers, "quoted lines": quotes}
    note = " and ".join(f"{what} are {'kept' if kept else 'removed'}" for what, kept in parts.items()) + "."
    mark = "-headers" * headers + "-quotes" * quotes
    labels, clients = ([d[field] for d in documents] for field in ("label", "client"))
    return text_dataset(
        source, texts, labels, clients, words=words, n_buckets=n_buckets, mark=mark, note=note.capitalize()
    )


def _read_reuters(
    source: Source, folder: Path, *, words: str = "vocabulary", n_buckets: int = N_BUCKETS
) -> FederatedDataset:
    documents = _documents(folder, "client", "label", "title", "text")
    texts = [f"{d['title']}\n{d['text']}" for d in documents]
    labels, clients = ([d[field] for d in documents] for field in ("label", "client"))
    return text_dataset(source, texts, labels, clients, words=words, n_buckets=n_buckets)


def _read_bbc(
    source: Source,
    folder: Path,
    *,
    n_clients: int = 4,
    concentration: float = 5.0,
    seed: int = 0,
    words: str = "vocabulary",
    n_buckets: int = N_BUCKETS,
) -> FederatedDataset:
    documents = _documents(folder, "label", "text")
    texts, labels = ([d[field] for d in documents] for field in ("text", "label"))
    clients = label_skew(np.array(labels), n_clients, concentration=concentration, random_state=seed)
    mark = f"-skew{concentration:g}-seed{seed}"
    note = f"Here {n_clients} clients, concentration {concentration:g}, seed {seed}."
    return text_dataset(source, texts, labels, clients, words=words, n_buckets=n_buckets, mark=mark, note=note)


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

WORDS_OPTIONS = {
    "words": '"vocabulary": columns are words; "hashed": buckets of hashed words, which need no common vocabulary',
    "n_buckets": f"number of buckets for hashed words, {N_BUCKETS} by default",
}
SKEW_OPTIONS = {
    "n_clients": "number of clients that the stories are assigned to, 4 by default",
    "concentration": "of the Dirichlet proportions, 5 by default; large: all clients alike",
    "seed": "of the assignment, 0 by default",
}
BBC_SKEW = (
    "The only information on the source is the topic, which is also the class: a client for each category, as in the "
    "paper, would have a single class and nothing to cluster. So the stories of each class are assigned to clients in "
    "Dirichlet proportions, at least three to each client."
)
BBC_LICENCE = "Non-commercial and research use only; all rights in the articles stay with the BBC."
BBC_CITATION = (
    "D. Greene and P. Cunningham, Practical solutions to the problem of diagonal dominance in kernel document "
    "clustering, Proceedings of the 23rd International Conference on Machine Learning (ICML), 2006, pp. 377-384."
)

SOURCES: tuple[Source, ...] = (
    Source(
        name="webkb4",
        title="WebKB, pages of four universities",
        folder="webkb4",
        files=(FILE,),
        modality="text",
        clients="university",
        classes="kind of page: course, faculty, project, student",
        homepage="http://www.cs.cmu.edu/afs/cs.cmu.edu/project/theo-20/www/data/",
        licence="Offered freely for research; there is no licence text, and the pages belong to their authors.",
        citation=(
            "M. Craven, D. DiPasquo, D. Freitag, A. McCallum, T. Mitchell, K. Nigam and S. Slattery, Learning to "
            "extract symbolic knowledge from the World Wide Web, Proceedings of the 15th National Conference on "
            "Artificial Intelligence (AAAI), 1998, pp. 509-516."
        ),
        provenance=(
            "Pages of computer science departments, collected in January 1997 by the text learning group of Carnegie "
            "Mellon University (World Wide Knowledge Base). Clients are the four universities with a folder of their "
            "own, classes the four kinds of page that papers use: 1041 pages, a few of them (moved or empty) almost "
            "without text. HTTP headers and HTML tags are removed."
        ),
        read=_read_labelled,
        convert=_convert_webkb,
        archives=(Archive("http://www.cs.cmu.edu/afs/cs.cmu.edu/project/theo-20/www/data/webkb-data.gtar.gz"),),
        options=WORDS_OPTIONS,
    ),
    Source(
        name="20newsgroups",
        title="20 Newsgroups, by date",
        folder="20newsgroups",
        files=(FILE,),
        modality="text",
        clients="task: one group of each hierarchy",
        classes="hierarchy: comp, rec, sci, talk",
        homepage="http://qwone.com/~jason/20Newsgroups/",
        licence="Freely distributed for research; there is no licence text, and the posts belong to their authors.",
        citation=(
            "K. Lang, NewsWeeder: Learning to filter netnews, Proceedings of the 12th International Conference on "
            "Machine Learning (ICML), 1995, pp. 331-339."
        ),
        provenance=(
            "Usenet posts of 20 groups, the version sorted by date without duplicates, training and test part "
            "together. The grouping is ours, as the paper gives none: the class is the hierarchy (comp, rec, sci, "
            "talk), and client task i has the i-th group of each in alphabetical order; 15087 posts of 16 groups."
        ),
        read=_read_news,
        convert=_convert_news,
        archives=(
            Archive(
                "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
                size=14464277,
                sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
            ),
        ),
        options={
            "headers": "keep the header, which names subject and host; by default removed",
            "quotes": "keep lines quoted from other posts and the lines that introduce them; by default removed",
            **WORDS_OPTIONS,
        },
    ),
    Source(
        name="reuters",
        title="Reuters-21578, Distribution 1.0",
        folder="reuters21578",
        files=(FILE,),
        modality="text",
        clients="task: its own topics of each family",
        classes="family of topics: econ, energy, food, metal",
        homepage="http://www.daviddlewis.com/resources/testcollections/reuters21578/",
        licence=(
            "Copyright Reuters Ltd; free distribution for research purposes only. Publications name the collection "
            '"Reuters-21578, Distribution 1.0".'
        ),
        citation=(
            "D. D. Lewis, Reuters-21578 text categorization test collection, Distribution 1.0, AT&T Labs Research, "
            "1997."
        ),
        provenance=(
            "Reuters newswire of 1987, Reuters-21578, Distribution 1.0. The grouping is ours, as the paper gives none: "
            "stories with exactly one topic, classes made of families of topics (economic indicators, energy, food, "
            "metal), three clients that share no topic; 2335 of the 21578 stories. Title and text are used together, "
            "because briefs have only a title."
        ),
        read=_read_reuters,
        convert=_convert_reuters,
        archives=(
            Archive(
                "http://www.daviddlewis.com/resources/testcollections/reuters21578/reuters21578.tar.gz",
                size=8150596,
                sha256="3bae43c9b14e387f76a61b6d82bf98a4fb5d3ef99ef7e7075ff2ccbcf59f9d30",
            ),
        ),
        options=WORDS_OPTIONS,
    ),
    Source(
        name="bbcnews",
        title="BBC News",
        folder="bbcnews",
        files=(FILE,),
        modality="text",
        clients="assigned at random, classes in unequal proportions",
        classes="topic: business, entertainment, politics, sport, tech",
        homepage="http://mlg.ucd.ie/datasets/bbc.html",
        licence=BBC_LICENCE,
        citation=BBC_CITATION,
        provenance=f"2225 stories of the BBC's news site, 2004 and 2005, title first. {BBC_SKEW}",
        read=_read_bbc,
        convert=_convert_bbcnews,
        archives=(Archive("http://mlg.ucd.ie/files/datasets/bbc-fulltext.zip"),),
        options={**SKEW_OPTIONS, **WORDS_OPTIONS},
    ),
    Source(
        name="bbcsport",
        title="BBC Sport",
        folder="bbcsport",
        files=(FILE,),
        modality="text",
        clients="assigned at random, classes in unequal proportions",
        classes="sport: athletics, cricket, football, rugby, tennis",
        homepage="http://mlg.ucd.ie/datasets/bbc.html",
        licence=BBC_LICENCE,
        citation=BBC_CITATION,
        provenance=(
            f"737 stories of the BBC's sport site, 2004 and 2005, title first. {BBC_SKEW} Classes are the folders of "
            "the archive; in a copy that had lost them they come from the order of the stories and the published sizes "
            "of the classes, and 98.5 % of nearest neighbours agree."
        ),
        read=_read_bbc,
        convert=_convert_bbcsport,
        archives=(Archive("http://mlg.ucd.ie/files/datasets/bbcsport-fulltext.zip"),),
        options={**SKEW_OPTIONS, **WORDS_OPTIONS},
    ),
    Source(
        name="enron_spam",
        title="Enron-Spam, a cut of six mailboxes",
        folder="enron_spam",
        files=(FILE,),
        modality="text",
        clients="mailbox of an Enron employee",
        classes="ham or spam",
        homepage="http://www2.aueb.gr/users/ion/data/enron-spam/",
        licence="Published for research; there is no licence text, and the messages belong to their authors.",
        citation=(
            "V. Metsis, I. Androutsopoulos and G. Paliouras, Spam filtering with naive Bayes - which naive Bayes?, "
            "3rd Conference on Email and Anti-Spam (CEAS), 2006."
        ),
        provenance=(
            "The preprocessed form: messages to six Enron employees, each mixed with spam of another origin. A random "
            "cut of 1000 messages of each mailbox near the original shares, 750 ham and 250 spam in three, 250 and 750 "
            "in the other three; subject first, at most 4000 characters of each. The cut that `fetch` and `import` "
            "make is the same each time, but holds other messages than the cut of our figures."
        ),
        read=_read_labelled,
        convert=_convert_enron,
        archives=tuple(
            Archive(f"http://www2.aueb.gr/users/ion/data/enron-spam/preprocessed/enron{k}.tar.gz") for k in range(1, 7)
        ),
        options=WORDS_OPTIONS,
    ),
)

__all__ = ["SOURCES"]
