import gzip
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_extraction.text import TfidfVectorizer

from fmtc.errors import DatasetError, InputError
from fmtc.kernels.scaling import document_counts, tfidf
from fmtc.tables import hashed_counts
from fmtc.tables.text import N_BUCKETS
from fmtc_bench.datasets import SOURCES, FederatedDataset, load
from fmtc_bench.datasets import text as module

HOME = os.environ.get("FMTC_DATA", "").split(os.pathsep)[0]
NAMES = [source.name for source in module.SOURCES]
needs_data = pytest.mark.skipif(not HOME or not Path(HOME).is_dir(), reason="FMTC_DATA names no folder with data sets")

# ----------------------------------------------------------------------------------- archives in the official layout

PAGE = b"""MIME-Version: 1.0\r
Content-Type: text/html\r
\r
<html><head><title>Fish &amp; Chips</title><script>var hidden = "<b>no</b>";</script><style>h1 {red}</style></head>
<!-- a comment --><body><!WA0><h1>Caf\xe9 of<br>the<b>sea</b></h1> <!-- left open > 3 &lt; 4&nbsp;&copy; <img src=a.gif>
</body></html>
"""
WEBKB = {
    "webkb/student/texas/http:^^www.cs.utexas.edu^users^b^": PAGE,
    "webkb/course/cornell/http:^^cs.cornell.edu^info^z.html": PAGE,
    "webkb/course/cornell/http:^^cs.cornell.edu^info^a.html": b"Date: today\n\n<p>course of fish",
    "webkb/course/misc/http:^^elsewhere.edu^": PAGE,
    "webkb/other/texas/http:^^www.cs.utexas.edu^": PAGE,
    "webkb/README": b"about",
}

POST = b"""From: someone@host.edu (Some One)
Subject: Re: cars
Lines: 9

In article <12@host.edu>, introduced@host.edu (Other)
(Other) writes:
> quotedline here
  | barline here
In article five of the charter we find caf\xe9.

A second paragraph > with a sign.
Third One wrote...
"""
NEWS = {
    "20news-bydate-train/rec.autos/10": POST,
    "20news-bydate-train/rec.autos/9": b"Subject: a\n\nengine",
    "20news-bydate-test/sci.med/7": b"Subject: b\n\nmedicine",
    "20news-bydate-test/alt.atheism/8": b"Subject: c\n\nunused",
}

SGML_HEAD = b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'


def story(number, topics, text, split="TRAIN"):
    listed = "".join(f"<D>{topic}</D>" for topic in topics)
    return (
        f'<REUTERS TOPICS="YES" LEWISSPLIT="{split}" CGISPLIT="TRAINING-SET" OLDID="5" NEWID="{number}">\n'
        f"<DATE> 1-MAR-1987 01:02:03.45</DATE>\n<TOPICS>{listed}</TOPICS>\n<PLACES><D>usa</D><D>uk</D></PLACES>\n"
        "<PEOPLE></PEOPLE>\n<ORGS><D>opec</D></ORGS>\n<EXCHANGES></EXCHANGES>\n<COMPANIES></COMPANIES>\n"
        f"<UNKNOWN> \n&#5;&#5;&#5;C T\n\x16f0704</UNKNOWN>\n{text}\n</REUTERS>\n"
    ).encode("latin-1")


REUTERS = {
    "reut2-001.sgm": SGML_HEAD
    + story(
        1001,
        ["tin"],
        "<TEXT>&#2;\n<TITLE>TIN &lt;XYZ> UP</TITLE>\n<DATELINE>    ROME, March 1 - </DATELINE><BODY>Tin & lead\nrose to"
        " D\xfcren.\n Reuter\n&#3;</BODY></TEXT>",
    ),
    "reut2-000.sgm": SGML_HEAD
    + story(2, ["crude"], '<TEXT TYPE="BRIEF">&#2;\n******<TITLE>OIL FALLS\n BELOW TEN</TITLE>\nBlah blah\n&#3;</TEXT>')
    + story(1, ["cpi"], '<TEXT TYPE="UNPROC">&#2;\nPRICE TABLE\n  up.....1.2\n&#3;\x1b</TEXT>', split="TEST")
    + story(3, ["crude", "gold"], "<TEXT><TITLE>TWO</TITLE><BODY>both</BODY></TEXT>")
    + story(4, ["acq"], "<TEXT><TITLE>NONE</TITLE><BODY>deal</BODY></TEXT>"),
    "lewis.dtd": b"<!ELEMENT lewis>",
}

BBC = {
    "bbc/README.TXT": b"about",
    "bbc/tech/002.txt": b"New phone\n\nIt costs \xa3100.\n\nMany want it.\n",
    "bbc/business/001.txt": b"Profits up\r\n\r\nThe firm did well.\r\n",
}
BBCSPORT = {
    "bbcsport/README.TXT": b"about",
    "bbcsport/rugby/001.txt": b"Wales win\n\nIt rained.\n",
    "bbcsport/cricket/003.txt": b"Out\n\nAll of them.\n",
}
ENRON = {
    "enron1/Summary.txt": b"about",
    "enron1/spam/0006.2003-12-18.GP.spam.txt": b"Subject: dobmeos\r\nget it off",
    "enron1/ham/0002.1999-12-13.farmer.ham.txt": b"Subject: vastar resources\nprice \xa3 " + b"x" * 5000,
    "enron1/ham/0001.1999-12-10.farmer.ham.txt": b"Subject: christmas tree farm pictures\n",
    "enron6/spam/0001.2004-08-01.BG.spam.txt": b"Subject: a rolex",
}
FILES = {
    "webkb4": WEBKB,
    "20newsgroups": NEWS,
    "reuters": REUTERS,
    "bbcnews": BBC,
    "bbcsport": BBCSPORT,
    "enron_spam": ENRON,
}


def pack(path, files):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def converted(tmp_path, name, files=None, home="home"):
    """The documents that the converter of a data set makes of a small archive; its numbers are never the known ones."""
    source = SOURCES[name]
    path = pack(tmp_path / source.archives[0].file_name, FILES[name] if files is None else files)
    with pytest.warns(UserWarning, match=f"{name}: .*texts"):
        source.convert((path,), tmp_path / home / source.folder)
    with gzip.open(tmp_path / home / source.folder / "docs.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_webkb_pages_lose_header_and_marks(tmp_path):
    docs = converted(tmp_path, "webkb4")
    assert [d["id"] for d in docs] == [
        "course/cornell/http:^^cs.cornell.edu^info^a.html",
        "course/cornell/http:^^cs.cornell.edu^info^z.html",
        "student/texas/http:^^www.cs.utexas.edu^users^b^",
    ]
    assert docs[0] == {
        "id": "course/cornell/http:^^cs.cornell.edu^info^a.html",
        "client": "cornell",
        "label": "course",
        "url": "http://cs.cornell.edu/info/a.html",
        "text": "course of fish",
        "html": "Date: today\n\n<p>course of fish",
    }
    assert docs[2]["text"] == "Fish & Chips Café of the sea 3 < 4 ©"
    assert docs[2]["html"].startswith("MIME-Version: 1.0\nContent-Type: text/html\n\n<html>")


def test_newsgroups_are_grouped_into_tasks(tmp_path):
    docs = converted(tmp_path, "20newsgroups")
    assert [(d["id"], d["client"], d["label"], d["top"], d["split"]) for d in docs] == [
        ("alt.atheism/8", None, None, "alt", "test"),
        ("sci.med/7", "task3", "sci", "sci", "test"),
        ("rec.autos/10", "task1", "rec", "rec", "train"),
        ("rec.autos/9", "task1", "rec", "rec", "train"),
    ]
    assert docs[2]["text"] == POST.decode("latin-1")
    assert len(load("20newsgroups", data_home=tmp_path / "home").y) == 3


@pytest.mark.parametrize(("headers", "quotes"), [(False, False), (True, False), (False, True), (True, True)])
def test_headers_and_quotes_are_off_unless_told(tmp_path, headers, quotes):
    converted(tmp_path, "20newsgroups", {"20news-bydate-train/rec.autos/10": POST})
    data = load("20newsgroups", data_home=tmp_path / "home", headers=headers, quotes=quotes)
    words = set(data.feature_names)
    assert {"charter", "caf", "paragraph", "sign"} - words == {"caf"}  # a letter that is not a-z ends no word
    assert ("subject" in words) == ("cars" in words) == headers
    for quoted in ("introduced", "writes", "quotedline", "barline", "wrote"):
        assert (quoted in words) == quotes
    assert data.name == "20newsgroups" + "-headers" * headers + "-quotes" * quotes
    for what, kept in (("Headers", headers), ("quoted lines", quotes)):
        assert f"{what} are {'kept' if kept else 'removed'}" in data.provenance


def test_reuters_stories_keep_their_fields(tmp_path):
    docs = converted(tmp_path, "reuters")
    assert [d["id"] for d in docs] == [1, 2, 3, 4, 1001]
    cells = [(d["client"], d["label"]) for d in docs]
    assert cells == [("task3", "econ"), ("task1", "energy"), (None, None), (None, None), ("task2", "metal")]
    assert [d["texttype"] for d in docs] == ["UNPROC", "BRIEF", "NORM", "NORM", "NORM"]
    assert [d["title"] for d in docs] == ["", "OIL FALLS\n BELOW TEN", "TWO", "NONE", "TIN <XYZ> UP"]
    assert [d["text"] for d in docs] == [
        "PRICE TABLE\n  up.....1.2",
        "",
        "both",
        "deal",
        "Tin & lead\nrose to Düren.",
    ]
    assert {key: docs[0][key] for key in ("date", "lewissplit", "cgisplit", "has_topics", "places", "people")} == {
        "date": "1-MAR-1987 01:02:03.45",
        "lewissplit": "TEST",
        "cgisplit": "TRAINING-SET",
        "has_topics": "YES",
        "places": ["usa", "uk"],
        "people": [],
    }
    assert [d["topics"] for d in docs] == [["cpi"], ["crude"], ["crude", "gold"], ["acq"], ["tin"]]
    data = load("reuters", data_home=tmp_path / "home")
    assert data.X.shape[0] == 3 and {"oil", "falls", "tin", "lead", "table"} <= set(data.feature_names)


def test_bbc_stories_have_their_title_first(tmp_path):
    assert converted(tmp_path, "bbcnews") == [
        {
            "id": "business/001",
            "label": "business",
            "text": "Profits up\n\nThe firm did well.",
            "title": "Profits up",
        },
        {
            "id": "tech/002",
            "label": "tech",
            "text": "New phone\n\nIt costs £100.\n\nMany want it.",
            "title": "New phone",
        },
    ]
    assert converted(tmp_path, "bbcsport") == [
        {"id": "cricket/003", "label": "cricket", "text": "Out All of them."},
        {"id": "rugby/001", "label": "rugby", "text": "Wales win It rained."},
    ]


def test_mailboxes_are_cut(tmp_path):
    docs = converted(tmp_path, "enron_spam")
    assert [(d["id"], d["client"], d["label"]) for d in docs] == [
        ("0001.1999-12-10.farmer.ham", "enron1_farmer", "ham"),
        ("0002.1999-12-13.farmer.ham", "enron1_farmer", "ham"),
        ("0006.2003-12-18.GP.spam", "enron1_farmer", "spam"),
        ("0001.2004-08-01.BG.spam", "enron6_lokay", "spam"),
    ]
    assert docs[1]["text"].startswith("Subject: vastar resources\nprice £ xxx") and len(docs[1]["text"]) == 4000
    many = {f"enron2/ham/{i:04d}.kaminski.ham.txt": b"Subject: %d" % i for i in range(800)}
    ids = [d["id"] for d in converted(tmp_path, "enron_spam", many, "one")]
    assert len(ids) == len(set(ids)) == 750 and ids == sorted(ids)
    assert ids != [f"{i:04d}.kaminski.ham" for i in range(750)]  # drawn at random


@pytest.mark.parametrize("name", NAMES)
def test_conversion_gives_the_same_bytes_in_any_order(tmp_path, name):
    packed = []
    for home, files in (("one", FILES[name]), ("two", {f"./{k}": v for k, v in reversed(FILES[name].items())})):
        converted(tmp_path, name, files, home)
        packed.append((tmp_path / home / SOURCES[name].folder / "docs.jsonl.gz").read_bytes())
    assert packed[0] == packed[1]
    assert packed[0][3:8] == bytes(5)  # no name of a file, no time


@pytest.mark.parametrize("name", NAMES)
def test_another_archive_is_refused(tmp_path, name):
    other = NAMES[NAMES.index(name) - 1]
    wrong, empty = pack(tmp_path / "wrong.zip", FILES[other]), pack(tmp_path / "empty.tar.gz", {})
    first = next(iter(FILES[other]))
    with pytest.raises(DatasetError, match=r"^wrong\.zip ") as error:
        SOURCES[name].convert((wrong,), tmp_path / "new")
    assert first in str(error.value) and name in str(error.value)
    with pytest.raises(DatasetError, match=r"^empty\.tar\.gz "):
        SOURCES[name].convert((empty,), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_reuters_files_without_stories_are_refused(tmp_path):
    path = pack(tmp_path / "a.tar.gz", {"reut2-000.sgm": SGML_HEAD})
    with pytest.raises(DatasetError, match=r"a\.tar\.gz .*<REUTERS>"):
        SOURCES["reuters"].convert((path,), tmp_path / "new")


def test_the_warning_names_the_difference(tmp_path):
    path = pack(tmp_path / "webkb.tar.gz", WEBKB)
    with pytest.warns(UserWarning, match=r"\b3 texts.* 1041.* cornell/course .*2 .*44"):
        SOURCES["webkb4"].convert((path,), tmp_path / "new")


# ------------------------------------------------------------------------------------------------------------- reading


@pytest.fixture
def corpus(tmp_path, rng):
    """Invented pages of four clients and two classes in the compact form of webkb4; some words are rare."""
    vocabulary = np.array([f"z{a}{b}" for a in "abcdefgh" for b in "abcdefgh"])
    docs = []
    for i in range(120):
        label = ("late", "early")[i % 2]
        share = np.arange(1, 65) if label == "late" else np.arange(64, 0, -1)
        words = rng.choice(vocabulary, size=40, p=share / share.sum())
        docs.append(
            {"client": f"c{i % 4}", "label": label, "text": " ".join([*words, f"Rare{'abcdefghij'[i // 12]}x"])}
        )
    write(tmp_path / "webkb4", docs)
    return tmp_path, docs


def write(folder, docs):
    folder.mkdir(exist_ok=True)
    with gzip.open(folder / "docs.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(d) + "\n" for d in docs)


def test_entries_are_one_plus_the_logarithm_of_the_count(tmp_path):
    docs = [
        {"client": "b", "label": "y", "text": "Dog dog DOG the cat a1b ox"},
        {"client": "a", "label": "x", "text": ""},
    ]
    write(tmp_path / "webkb4", docs)
    data = load("webkb4", data_home=tmp_path)
    assert isinstance(data.X, sp.csr_array) and data.X.dtype == np.float64
    assert data.feature_names == ("cat", "dog") and data.class_names == ("x", "y") and data.recipe == "tfidf"
    assert_allclose(data.X.todense(), [[1, 1 + np.log(3)], [0, 0]])
    assert_array_equal(data.y, [1, 0])
    assert_array_equal(data.clients, ["b", "a"])
    hashed = load("webkb4", data_home=tmp_path, words="hashed", n_buckets=32)
    assert hashed.name == "webkb4-hashed" and hashed.feature_names[-1] == "bucket31"
    assert_array_equal(hashed.X.toarray(), hashed_counts([d["text"] for d in docs], n_buckets=32).toarray())
    assert load("webkb4", data_home=tmp_path, words="hashed").X.shape == (2, 2**18)


def halves(data, **how):
    """Numbers of the training and test rows of a split."""
    numbers = np.arange(len(data.y))[:, None]
    rows = FederatedDataset("rows", numbers, data.y, data.clients, ("row",), data.class_names)
    return tuple(half.X[:, 0] for half in rows.split(**how))


def test_split_learns_from_training_rows_alone(corpus):
    """Columns and weights are those of scikit-learn's vectorizer fitted on the training texts."""
    home, docs = corpus
    data = load("webkb4", data_home=home)
    train, test = data.split(test_size=0.25, seed=3)
    in_train, in_test = halves(data, test_size=0.25, seed=3)
    reference = TfidfVectorizer(
        token_pattern=module.WORD, stop_words="english", sublinear_tf=True, min_df=2, max_df=0.5
    )
    expected = reference.fit_transform([docs[i]["text"] for i in in_train])
    assert train.feature_names == test.feature_names == tuple(reference.get_feature_names_out())
    assert_allclose(train.X.toarray(), expected.toarray(), rtol=1e-12)
    assert_allclose(test.X.toarray(), reference.transform([docs[i]["text"] for i in in_test]).toarray(), rtol=1e-12)


def test_a_word_of_test_rows_alone_is_no_column(corpus):
    home, docs = corpus
    rows = load("webkb4", data_home=home)
    _, in_test = halves(rows, seed=5)
    for i in in_test:
        docs[i]["text"] += " onlyintests"
    write(home / "webkb4", docs)
    data = load("webkb4", data_home=home)
    train, test = data.split(seed=5)
    assert "onlyintests" in data.feature_names and "onlyintests" in data.prepared().feature_names
    assert "onlyintests" not in train.feature_names + test.feature_names
    before, _ = rows.split(seed=5)
    assert_array_equal(train.X.toarray(), before.X.toarray())


def test_hashed_weights_come_from_sums_over_clients(corpus):
    """Document frequencies of silos add up: no silo sees the words of another."""
    home, _ = corpus
    data = load("webkb4", data_home=home, words="hashed", n_buckets=512)
    train, test = data.split(seed=1)
    in_train, in_test = halves(data, seed=1)
    silos = data.take(in_train).by_client().values()
    summed = tfidf(sum(len(s.y) for s in silos), sum(document_counts(s.X) for s in silos), 2000)
    assert train.feature_names == tuple(f"bucket{j}" for j in summed.keep)
    assert_array_equal(train.X.toarray(), summed.apply(data.X[in_train]).toarray())
    assert_array_equal(test.X.toarray(), summed.apply(data.X[in_test]).toarray())


@pytest.fixture
def stories(tmp_path):
    docs = [{"label": c, "text": f"word {c} {c}"} for c in ("sport", "business", "tech") for _ in range(30)]
    write(tmp_path / "bbcnews", docs)
    return tmp_path


def test_bbc_stories_are_dealt_out_with_the_seed_in_the_name(stories):
    data = load("bbcnews", data_home=stories)
    assert data.name == "bbcnews-skew5-seed0" and data.client_ids == ["silo1", "silo2", "silo3", "silo4"]
    assert min(n for row in data.class_counts().values() for n in row.values()) >= 3
    other = load("bbcnews", data_home=stories, n_clients=3, concentration=0.5, seed=7, words="hashed")
    assert other.name == "bbcnews-skew0.5-seed7-hashed" and len(other.client_ids) == 3
    assert "3 clients, concentration 0.5, seed 7" in other.provenance
    assert "single class" in data.provenance
    assert_array_equal(data.clients, load("bbcnews", data_home=stories).clients)
    assert (data.clients != load("bbcnews", data_home=stories, seed=1).clients).any()


def test_damaged_files_are_told_from_missing_ones(tmp_path):
    write(tmp_path / "webkb4", [{"client": "a", "label": "x"}])
    with pytest.raises(DatasetError, match=r"docs\.jsonl\.gz .*text"):
        load("webkb4", data_home=tmp_path)
    write(tmp_path / "webkb4", [])
    with pytest.raises(DatasetError, match=r"docs\.jsonl\.gz "):
        load("webkb4", data_home=tmp_path)
    path = tmp_path / "webkb4" / "docs.jsonl.gz"
    write(tmp_path / "webkb4", [{"client": "a", "label": "x", "text": "fish " * i} for i in range(99)])
    for content in (b"no gzip", path.read_bytes()[:-20], gzip.compress(b"{no json\n"), gzip.compress(b"\xff\n")):
        path.write_bytes(content)
        with pytest.raises(DatasetError, match=r"docs\.jsonl\.gz "):
            load("webkb4", data_home=tmp_path)


def test_options_are_checked(corpus):
    home, _ = corpus
    with pytest.raises(InputError, match='"vocabulary" or "hashed"'):
        load("webkb4", data_home=home, words="letters")
    with pytest.raises(InputError, match=r"n_buckets .*0$"):
        load("webkb4", data_home=home, words="hashed", n_buckets=0)
    with pytest.raises(TypeError, match=r"webkb4 .*headers"):
        load("webkb4", data_home=home, headers=True)
    assert f"{N_BUCKETS} by default" in module.WORDS_OPTIONS["n_buckets"]


# ------------------------------------------------------------------------------------------------------- what is known


@pytest.mark.parametrize("source", module.SOURCES, ids=NAMES)
def test_sources_tell_where_they_come_from(source):
    for said in (source.licence, source.citation, source.provenance):
        assert said.endswith(".") and "\n" not in said and "  " not in said
    assert source.modality == "text"
    assert len(source.archives) == (6 if source.name == "enron_spam" else 1)
    for archive in source.archives:
        assert archive.url.startswith(("http://", "https://"))
        assert archive.sha256 is None or len(bytes.fromhex(archive.sha256)) == 32


def test_tasks_share_no_group_and_no_topic():
    groups = [g for task in module.NEWS_POSTS.values() for g in task]
    for i, task in enumerate(module.NEWS_POSTS.values()):
        assert [g.partition(".")[0] for g in task] == module.NEWS_CLASSES
        for group in task:
            hierarchy = sorted(g for g in groups if g.partition(".")[0] == group.partition(".")[0])
            assert hierarchy[i] == group
    topics = [t for task in module.REUTERS_TOPICS.values() for family in task.values() for t in family.split()]
    assert len(topics) == len(set(topics)) == len(module.REUTERS_CELLS)


TABLES = {
    "webkb4": {
        "cornell": [44, 34, 20, 128],
        "texas": [38, 46, 20, 148],
        "washington": [77, 31, 21, 126],
        "wisconsin": [85, 42, 25, 156],
    },
    "20newsgroups": {
        "task1": [973, 990, 991, 910],
        "task2": [985, 996, 984, 940],
        "task3": [982, 994, 990, 775],
        "task4": [963, 999, 987, 628],
    },
    "reuters": {"task1": [361, 408, 143, 99], "task2": [246, 46, 122, 108], "task3": [372, 73, 223, 134]},
    "bbcnews": [510, 386, 417, 511, 401],
    "bbcsport": [101, 124, 265, 147, 100],
    "enron_spam": {client: list(sizes) for client, sizes in module.MAILBOXES.items()},
}


@needs_data
@pytest.mark.parametrize("name", NAMES)
def test_real_counts(name):
    data = load(name, data_home=HOME)
    counts = {client: list(row.values()) for client, row in data.class_counts().items()}
    known = TABLES[name]
    if isinstance(known, dict):
        assert counts == known
    else:
        assert np.sum(list(counts.values()), axis=0).tolist() == known and min(min(row) for row in counts.values()) >= 3


@needs_data
def test_real_topics_are_grouped_as_in_the_shared_list():
    shared = json.loads((Path(HOME) / "reuters21578" / "task_topics.json").read_text())
    ours = {c: {label: topics.split() for label, topics in f.items()} for c, f in module.REUTERS_TOPICS.items()}
    assert ours == shared


@needs_data
def test_real_pages_survive_the_way_through_an_archive(tmp_path):
    """Packed as CMU packs them and converted: no warning, the same rows, nearly the same words."""
    with gzip.open(Path(HOME) / "webkb4" / "docs.jsonl.gz", "rt", encoding="utf-8") as lines:
        docs = [json.loads(line) for line in lines]
    path = pack(tmp_path / "a.tar.gz", {f"webkb/{d['id']}": d["html"].encode("latin-1") for d in reversed(docs)})
    SOURCES["webkb4"].convert((path,), tmp_path / "webkb4")
    ours, theirs = load("webkb4", data_home=tmp_path), load("webkb4", data_home=HOME)
    assert_array_equal(ours.clients, theirs.clients)
    assert_array_equal(ours.y, theirs.y)
    (a, _), (b, _) = ours.split(), theirs.split()
    assert len(set(a.feature_names) & set(b.feature_names)) > 0.98 * len(b.feature_names)
