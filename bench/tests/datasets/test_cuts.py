"""New cuts of the text collections: which texts, which class, which silo."""

import gzip
import json

import pytest

from fmtc_bench.datasets import SOURCES, load
from fmtc_bench.datasets.cuts import MONTHS, NEWS_GROUPS, STORY_TOPICS, sender_of
from fmtc_bench.datasets.text import NEWS_POSTS, REUTERS_CELLS


def collection(home, name, documents):
    folder = home / SOURCES[name].folder
    folder.mkdir(parents=True)
    with gzip.open(folder / "docs.jsonl.gz", "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(d) + "\n" for d in documents)


@pytest.mark.parametrize(
    ("line", "kind"),
    [("From: a@b.EDU (A)", "edu"), ("From: A B <a.b@c.d.com>", "com"), ("From: a@x.uk", "abroad"),
     ("From: a@city.ca.us", "other"), ("From: a@jpl.nasa.gov", "other"), ("From: a@b.uucp", "other"),
     ("Subject: x", "other")],
)  # fmt: skip
def test_kind_of_sender(line, kind):
    assert sender_of(f"Subject: re\n{line}\n\nFrom: quoted@other.edu\n") == kind


def test_posts_of_a_cut_with_sender_as_silo(tmp_path):
    def post(group, host, words):
        text = f"From: me@{host}\nSubject: secret\n\n> quoted\n{words}\n"
        return {"group": group, "label": None, "client": None, "text": text}

    groups = NEWS_GROUPS["news_other"]
    posts = [post(groups[0], "a.edu", "gods"), post(groups[1], "b.com", "window"), post("rec.autos", "c.edu", "motor")]
    collection(tmp_path, "news_other", posts)
    data = load("news_other", data_home=tmp_path)
    assert data.client_ids == ["com", "edu"] and data.class_names == tuple(groups[:2])
    assert data.feature_names == ("gods", "window")  # no header, no quote, no other group


def test_stories_of_one_unused_topic_by_month(tmp_path):
    def story(date, *topics):
        return {"date": date, "topics": topics, "title": "TITLE", "text": topics[0] + "words", "label": None}

    stories = [
        story("26-FEB-1987 15:01:01.79", "acq"), story("1-MAR-1987", "earn"), story("9-OCT-1987", "ship"),
        story("1-APR-1987", "acq", "earn"), story("1-APR-1987", "crude"), story("1-APR-1988", "acq"),
    ]  # fmt: skip
    collection(tmp_path, "reuters_months", stories)
    data = load("reuters_months", data_home=tmp_path)
    assert data.clients.tolist() == ["1987-03", "1987-03", "1987-10"]
    assert [data.class_names[k] for k in data.y] == ["acq", "earn", "ship"]
    assert set(data.client_ids) < set(MONTHS.values())


def test_no_story_and_no_post_of_the_new_groups_was_used_before():
    assert not set(STORY_TOPICS) & set(REUTERS_CELLS)
    used = {group for task in NEWS_POSTS.values() for group in task}
    assert not set(NEWS_GROUPS["news_other"]) & used
    assert all(set(NEWS_GROUPS[name]) <= used for name in ("news_rec", "news_sci", "news_talk"))
    assert set(NEWS_GROUPS["news_comp"]) <= used | set(NEWS_GROUPS["news_other"])  # single groups, never together
