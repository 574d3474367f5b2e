"""Archives that cannot be trusted, and downloads from a server that behaves badly."""

import gzip
import hashlib
import io
import json
import ssl
import stat
import struct
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fmtc.errors import DatasetError, DownloadError
from fmtc_bench.datasets import download as module
from fmtc_bench.datasets.base import Archive, Source
from fmtc_bench.datasets.download import download, fetch_archives, import_archives, members

BODY = np.random.default_rng(0).bytes(200_000)
OTHER = np.random.default_rng(1).bytes(200_000)
SHA = hashlib.sha256(BODY).hexdigest()
FILES = {"set/a/one.txt": b"first", "set/b/two.txt": b"second" * 300, "set/b/none.txt": b""}


# --------------------------------------------------------------------------------------------------------- archives


def make_zip(path, files=FILES, **infos):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("set/", "")
        for name, content in files.items():
            archive.writestr(infos.get(name, name), content, zipfile.ZIP_DEFLATED)
    return path


def make_tar(path, files=FILES, mode="w", extra=()):
    with tarfile.open(path, mode) as archive:
        folder = tarfile.TarInfo("set")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return path


MAKERS = {
    "set.zip": make_zip,
    "set.tar": make_tar,
    "set.tar.gz": lambda path, files=FILES: make_tar(path, files, "w:gz"),
    "set.gtar.gz": lambda path, files=FILES: make_tar(path, files, "w:gz"),
}


@pytest.fixture(params=MAKERS)
def make(request, tmp_path):
    return lambda files=FILES: MAKERS[request.param](tmp_path / request.param, files)


def refused(path, **options):
    """The message of the `DatasetError` about an archive, which names it."""
    with pytest.raises(DatasetError) as error:
        list(members(path, **options))
    text = str(error.value)
    assert str(path) in text and "\n" not in text
    return text


def test_members_come_in_order_and_nothing_is_written(make, tmp_path):
    path = make()
    assert list(members(path)) == list(FILES.items())
    assert list(tmp_path.iterdir()) == [path]


def test_wanted_chooses(make):
    assert [name for name, _ in members(make(), wanted=lambda name: "/b/" in name)] == list(FILES)[1:]


def test_members_are_read_one_at_a_time(make):
    """A reader may stop: what is damaged further on is not looked at."""
    assert next(members(make()))[0] == "set/a/one.txt"


@pytest.mark.parametrize("name", ["../out", "set/../../out", "/etc/out", "set\\..\\out", "\\\\host\\out", "C:\\out"])
def test_names_that_lead_out_are_refused(make, name):
    assert repr(name)[1:-1] in refused(make({"set/a": b"a", name: b"b"}))
    assert repr(name)[1:-1] in refused(make({"set/a": b"a", name: b"b"}), wanted=lambda n: n == "set/a")


def test_dots_inside_a_name_are_fine(make):
    files = {"set/http:^^www.cs.edu^..^~ada..html": b"page"}
    assert dict(members(make(files))) == files


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    info = tarfile.TarInfo("set/odd")
    info.type, info.linkname = kind, "/etc/passwd"
    assert "a link, a device" in refused(make_tar(tmp_path / "a.tar", extra=[info]))


def test_files_with_holes_are_refused(tmp_path):
    """A few bytes can stand for any number of zeros, which never pass through the counter."""
    info = tarfile.TarInfo("set/holes")
    info.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(10**12), "GNU.sparse.numblocks": "1"}
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    assert "holes" in refused(tmp_path / "a.tar")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR])
def test_links_and_devices_in_a_zip_are_refused(tmp_path, kind):
    info = zipfile.ZipInfo("set/a/one.txt")
    info.external_attr = (kind | 0o777) << 16
    assert "a link or device" in refused(make_zip(tmp_path / "a.zip", **{"set/a/one.txt": info}))


def test_encrypted_zips_are_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"one": b"first"})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert "encrypted" in refused(path)


def test_unknown_compression_is_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"one": b"first"})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 10] = 97
    path.write_bytes(content)
    assert "cannot unpack" in refused(path)


def test_limit_counts_what_was_unpacked(make):
    path = make({"a": bytes(100_000), "b": bytes(100_000)})
    assert len(list(members(path, limit=300_000))) == 2
    assert "150,000 bytes" in refused(path, limit=150_000)


def test_limit_does_not_believe_the_header(tmp_path):
    """A zip that declares a small size is cut at it and its checksum fails; it never gives more than declared."""
    path = make_zip(tmp_path / "a.zip", {"a": bytes(1_000_000)})
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = content.rindex(mark) + place
        content[at : at + 4] = struct.pack("<I", 1000)
    path.write_bytes(content)
    assert "CRC" in refused(path, limit=2000)


def test_tar_counts_what_is_skipped(tmp_path):
    path = make_tar(tmp_path / "a.tar.gz", {"a": bytes(500_000), "b": b"b"}, "w:gz")
    assert "100,000 bytes" in refused(path, wanted=lambda name: name == "b", limit=100_000)


def test_bombs_are_refused(make, monkeypatch):
    monkeypatch.setattr(module, "BOMB_BYTES", 10**6)
    assert len(list(members(make({"a": bytes(900_000)})))) == 1
    path = make({"a": bytes(20_000_000)})
    if path.suffix == ".tar":
        assert len(list(members(path))) == 1
    else:
        assert "bomb" in refused(path)


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.6, 0.95])
def test_what_is_cut_short_is_refused(make, share):
    path = make({f"set/{i}": np.random.default_rng(i).bytes(3000) for i in range(20)})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * 20 * 3000)])
    assert refused(path)
    assert refused(path, wanted=lambda name: False)


def test_a_tar_cut_between_two_files_is_refused(tmp_path):
    path = make_tar(tmp_path / "a.tar", {"a": b"x" * 512, "b": b"y" * 512})
    path.write_bytes(path.read_bytes()[: 512 * 3])  # folder, header of a, content of a
    assert refused(path)


@pytest.mark.parametrize("name", ["set.zip", "set.tar.gz"])  # a plain tar has no checksum of its content
def test_a_flipped_bit_is_refused(tmp_path, name):
    path = MAKERS[name](tmp_path / name, {"a": b"".join(b"%d" % i for i in range(20_000))})
    content = path.read_bytes()
    for place in np.linspace(0.2, 0.8, 20):
        damaged = bytearray(content)
        damaged[int(place * len(content))] ^= 8
        path.write_bytes(damaged)
        assert refused(path)


@pytest.mark.parametrize(
    "content", [b"", b"<html>not found</html>", gzip.compress(b"no tar", mtime=0), b"PK\x03\x04" + bytes(99)]
)
def test_what_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    assert ".zip, .tar or .tar.gz" in refused(path)


# ------------------------------------------------------------------------------------------------------- the server


class Site:
    """Serves `body` with ranges and versions; one misdeed of `script` for each request, as long as there are any."""

    def __init__(self):
        self.body, self.etag, self.script, self.asked, self.paths = BODY, '"v1"', [], [], []
        self.stop = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.asked.append(dict(self.headers))
                site.paths.append(self.path)
                (site.script.pop(0) if site.script else Site.well)(site, self)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # the client went away

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/data"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.stop.set()
        self.server.shutdown()
        self.server.server_close()

    def archive(self, **known):
        return Archive(f"{self.url}/set.bin", **known)

    def head(self, handler, status=200, length=None, **headers):
        handler.send_response(status)
        if length is not None:
            handler.send_header("Content-Length", str(length))
        if self.etag:
            handler.send_header("ETag", self.etag)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    def well(self, handler, upto=None, if_range=True):
        wanted = handler.headers.get("Range", "")
        start = int(wanted[6:-1]) if wanted and (not if_range or handler.headers["If-Range"] == self.etag) else 0
        size = len(self.body)
        if start >= size:
            return self.head(handler, 416, 0)
        if start:
            self.head(handler, 206, size - start, Content_Range=f"bytes {start}-{size - 1}/{size}")
        else:
            self.head(handler, 200, size)
        handler.wfile.write(self.body[start : None if upto is None else start + upto])

    def cut(self, handler):
        self.well(handler, upto=70_000)

    def ignores_range(self, handler):
        self.head(handler, 200, len(self.body))
        handler.wfile.write(self.body)

    def ignores_if_range(self, handler):
        self.well(handler, if_range=False)

    def other_part(self, handler):
        self.head(handler, 206, 10, Content_Range=f"bytes 5-14/{len(self.body)}")
        handler.wfile.write(self.body[5:15])

    def slow(self, handler):
        self.head(handler, 200, len(self.body))
        for at in range(0, len(self.body), 50_000):
            handler.wfile.write(self.body[at : at + 50_000])
            self.stop.wait(0.03)

    def silent(self, handler):
        self.head(handler, 200, len(self.body))
        handler.wfile.write(self.body[:40_000])
        handler.wfile.flush()
        self.stop.wait(5)

    def deaf(self, handler):
        self.stop.wait(5)

    def too_long(self, handler):
        self.head(handler, 200, len(self.body) + 1000)
        handler.wfile.write(self.body)

    def too_short(self, handler):
        self.head(handler, 200, len(self.body) - 1000)
        handler.wfile.write(self.body)

    def endless(self, handler):
        self.head(handler)
        while not self.stop.is_set():
            handler.wfile.write(bytes(2**16))

    def no_length(self, handler):
        self.head(handler)
        handler.wfile.write(self.body)

    def broken_chunks(self, handler):
        handler.protocol_version = "HTTP/1.1"
        self.head(handler, Transfer_Encoding="chunked")
        handler.wfile.write(b"10000\r\n" + self.body[:1000])
        handler.close_connection = True

    def nonsense(self, handler):
        handler.wfile.write(b"what?\r\n\r\n")


def status(code):
    return lambda site, handler: site.head(handler, code, 0)


def redirect(to):
    return lambda site, handler: site.head(handler, 302, 0, Location=to)


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.001)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    site = Site()
    yield site
    site.close()


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def get(site, folder, **options):
    known = {name: options.pop(name) for name in ("size", "sha256") if name in options}
    return download(site.archive(**known), folder, timeout=0.3, **options)


# -------------------------------------------------------------------------------------------------------- downloads


@pytest.mark.parametrize("known", [{}, {"size": len(BODY)}, {"sha256": SHA}, {"size": len(BODY), "sha256": SHA}])
def test_a_file_is_downloaded_and_nothing_else_is_left(site, tmp_path, known):
    seen = []
    path = get(site, tmp_path / "new", progress=lambda *a: seen.append(a), **known)
    assert path.read_bytes() == BODY
    assert left(tmp_path / "new") == ["set.bin"]
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (len(BODY), len(BODY))


def test_a_file_that_is_here_is_not_asked_for(site, tmp_path):
    get(site, tmp_path, sha256=SHA)
    get(site, tmp_path, sha256=SHA)
    assert len(site.asked) == 1
    (tmp_path / "set.bin").write_bytes(OTHER)
    assert get(site, tmp_path, sha256=SHA).read_bytes() == BODY
    assert len(site.asked) == 2
    (tmp_path / "set.bin").write_bytes(OTHER[:9])
    assert get(site, tmp_path, size=len(BODY)).read_bytes() == BODY


@pytest.mark.parametrize(
    "misdeed",
    [Site.cut, Site.silent, Site.deaf, Site.broken_chunks, Site.nonsense, status(500), status(503), status(429)],
)
def test_one_failure_is_mended(site, tmp_path, misdeed):
    site.script = [misdeed]
    assert get(site, tmp_path, sha256=SHA).read_bytes() == BODY
    assert len(site.asked) == 2
    assert left(tmp_path) == ["set.bin"]


def test_a_slow_server_is_waited_for(site, tmp_path):
    site.script = [Site.slow]
    assert get(site, tmp_path).read_bytes() == BODY
    assert len(site.asked) == 1


def test_resume_asks_for_the_rest_of_the_same_version(site, tmp_path):
    site.script = [Site.cut, Site.cut]
    assert get(site, tmp_path).read_bytes() == BODY
    assert [asked.get("Range") for asked in site.asked] == [None, "bytes=70000-", "bytes=140000-"]
    assert [asked.get("If-Range") for asked in site.asked] == [None, '"v1"', '"v1"']


def test_resume_in_a_later_call(site, tmp_path):
    site.script = [Site.cut]
    with pytest.raises(DownloadError, match=r"70,000 of 200,000 bytes.* 1 attempts"):
        get(site, tmp_path, attempts=1)
    assert left(tmp_path) == ["set.bin.part", "set.bin.part.tag"]
    seen = []
    assert get(site, tmp_path, progress=lambda *a: seen.append(a)).read_bytes() == BODY
    assert seen[0][0] > 70_000
    assert site.asked[1]["Range"] == "bytes=70000-"
    assert left(tmp_path) == ["set.bin"]


def test_a_part_from_elsewhere_is_not_continued(site, tmp_path):
    site.script = [Site.cut]
    with pytest.raises(DownloadError):
        get(site, tmp_path, attempts=1)
    assert get(site, tmp_path, base_url=f"{site.url}/mirror/").read_bytes() == BODY
    assert "Range" not in site.asked[1]
    assert site.paths[1] == "/data/mirror/set.bin"


@pytest.mark.parametrize("etag", ["", 'W/"v1"'])
def test_without_a_version_it_starts_over(site, tmp_path, etag):
    site.etag, site.script = etag, [Site.cut]
    assert get(site, tmp_path).read_bytes() == BODY
    assert "Range" not in site.asked[1]


def test_a_server_that_ignores_ranges(site, tmp_path):
    site.script = [Site.cut, Site.ignores_range]
    assert get(site, tmp_path).read_bytes() == BODY
    assert site.asked[1]["Range"] == "bytes=70000-"


@pytest.mark.parametrize("second", [Site.well, Site.ignores_if_range])
def test_a_file_that_changes_between_two_parts(site, tmp_path, second):
    def cut_then_change(site, handler):
        site.cut(handler)
        site.body, site.etag = OTHER, '"v2"'

    site.script = [cut_then_change, second]
    assert get(site, tmp_path).read_bytes() == OTHER


def test_a_file_that_shrinks_between_two_parts(site, tmp_path):
    def cut_then_shrink(site, handler):
        site.cut(handler)
        site.body = OTHER[:1000]

    site.script = [cut_then_shrink]
    assert get(site, tmp_path).read_bytes() == OTHER[:1000]


def test_another_part_than_asked_for_is_not_appended(site, tmp_path):
    site.script = [Site.cut, Site.other_part]
    assert get(site, tmp_path).read_bytes() == BODY


def test_a_length_that_is_too_long(site, tmp_path):
    site.script = [Site.too_long] * 3
    with pytest.raises(DownloadError, match=r"200,000 of 201,000 bytes"):
        get(site, tmp_path, attempts=1)
    with pytest.raises(DatasetError, match=r"201,000 bytes.* 200,000"):
        get(site, tmp_path, size=len(BODY))


def test_a_length_that_is_too_short(site, tmp_path):
    site.script = [Site.too_short] * 2
    with pytest.raises(DatasetError, match=r"199,000 bytes.* 200,000"):
        get(site, tmp_path, size=len(BODY))
    with pytest.raises(DatasetError, match=r"SHA-256"):
        get(site, tmp_path, sha256=SHA)
    assert left(tmp_path) == []


def test_wrong_bytes(site, tmp_path):
    site.body = OTHER
    with pytest.raises(DatasetError) as error:
        get(site, tmp_path, size=len(BODY), sha256=SHA)
    assert SHA in str(error.value) and hashlib.sha256(OTHER).hexdigest() in str(error.value)
    assert left(tmp_path) == []


def test_a_damaged_part_is_found_in_the_end(site, tmp_path):
    site.script = [Site.cut]
    with pytest.raises(DownloadError):
        get(site, tmp_path, attempts=1)
    part = tmp_path / "set.bin.part"
    part.write_bytes(bytes(part.stat().st_size))
    with pytest.raises(DatasetError, match="SHA-256"):
        get(site, tmp_path, sha256=SHA)
    assert left(tmp_path) == []


@pytest.mark.parametrize("size", [None, 300_000])
def test_a_stream_that_never_ends(site, tmp_path, monkeypatch, size):
    monkeypatch.setattr(module, "LARGEST", 300_000)
    site.script = [Site.endless]
    with pytest.raises(DatasetError, match=r"300,000 bytes"):
        get(site, tmp_path, size=size)
    assert left(tmp_path) == []


def test_no_length_at_all(site, tmp_path):
    site.script = [Site.no_length]
    assert get(site, tmp_path).read_bytes() == BODY
    site.script, site.body = [Site.no_length], BODY[:5000]
    with pytest.raises(DownloadError, match=r"5,000 of 200,000"):
        get(site, tmp_path / "b", size=len(BODY), attempts=1)


def test_two_programs_at_once(site, tmp_path):
    """Another writer of the same part is noticed, and the file is whole in the end."""
    first = []

    def meddle(*_):
        if not first:
            first.append(1)
            with (tmp_path / "set.bin.part").open("ab") as file:
                file.write(b"mine")

    assert get(site, tmp_path, progress=meddle).read_bytes() == BODY


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_a_clear_no_is_not_asked_again(site, tmp_path, code):
    site.script = [status(code)]
    with pytest.raises(DownloadError, match=rf"\b{code} ") as error:
        get(site, tmp_path)
    assert isinstance(error.value, OSError) and error.value.strerror == str(error.value)
    assert len(site.asked) == 1
    assert get(site, tmp_path).read_bytes() == BODY


def test_no_content_is_no_file(site, tmp_path):
    site.script = [status(204)]
    with pytest.raises(DownloadError, match=r"http://\S+: "):
        get(site, tmp_path)


def test_attempts_end(site, tmp_path):
    site.script = [status(500)] * 9
    with pytest.raises(DownloadError, match=r"500 .* 3 attempts"):
        get(site, tmp_path, attempts=3)
    assert len(site.asked) == 3


def test_attempts_count_those_that_get_no_further(site, tmp_path, monkeypatch):
    site.body = BODY * 20
    site.script = [lambda site, handler: site.well(handler, upto=1_200_000)] * 3
    assert get(site, tmp_path, attempts=2).read_bytes() == site.body
    site.script = [lambda site, handler: site.well(handler, upto=1_000)] * 3
    with pytest.raises(DownloadError, match="2 attempts"):
        get(site, tmp_path / "b", attempts=2)


def test_nobody_listens(site, tmp_path):
    site.close()
    with pytest.raises(DownloadError, match="refused"):
        get(site, tmp_path, attempts=2)


def test_redirects_are_followed_to_http_alone(site, tmp_path):
    site.script = [redirect("/elsewhere/set.bin")]
    assert get(site, tmp_path).read_bytes() == BODY
    assert site.paths[-1] == "/elsewhere/set.bin"
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for to in (f"file://{secret}", "ftp://127.0.0.1/set.bin", "data:text/plain,secret", "/data/set.bin"):
        site.script = [redirect(to)] * 20
        with pytest.raises(DatasetError, match=r"http\S+: "):
            get(site, tmp_path / "b", sha256=SHA)
        assert left(tmp_path / "b") == []


def test_https_is_not_left_by_a_redirect():
    request = module.Request("https://example.org/a")
    handler = module._Redirects()
    assert handler.redirect_request(request, None, 302, "Found", {}, "https://example.net/a").type == "https"
    with pytest.raises(module.HTTPError, match="not allowed") as error:
        handler.redirect_request(request, None, 302, "Found", {}, "http://example.org/a")
    error.value.close()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/a", "/etc/passwd", "data:,a"])
def test_other_addresses_are_refused(tmp_path, url):
    with pytest.raises(DatasetError, match="https://"):
        download(Archive(url), tmp_path)
    with pytest.raises(DatasetError, match="https://"):
        download(Archive("https://example.org/a"), tmp_path, base_url=url)


def test_a_bad_certificate_is_not_asked_again(monkeypatch, tmp_path):
    calls = []

    def refuse(self, *_, **__):
        calls.append(1)
        error = ssl.SSLCertVerificationError(1, "bad")
        error.verify_message = "self-signed certificate"
        raise module.URLError(error)

    monkeypatch.setattr(module.OpenerDirector, "open", refuse)
    with pytest.raises(DownloadError, match="self-signed certificate"):
        download(Archive("https://example.org/a"), tmp_path)
    assert len(calls) == 1


def test_a_full_disk_is_not_taken_for_the_network(site, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        get(site, tmp_path, progress=full)
    assert len(site.asked) == 1


# ------------------------------------------------------------------------------------------------ fetch and import


def convert(paths, new):
    """Join the files of all archives in one."""
    (new / "rows.txt").write_bytes(b"".join(content for path in paths for _, content in members(path)))


def make_source(site=None, convert=convert, **known):
    archives = () if site is None else (Archive(f"{site.url}/set.zip", **known),)
    return Source(
        "toy", "A toy", "toys", ("rows.txt",), "text", "shop", "2 kinds", "https://example.org/toys", "Play only.", "-",
        "Made up", read=lambda *_: None, convert=convert, archives=archives,
    )  # fmt: skip


@pytest.fixture
def toys(site, tmp_path, monkeypatch):
    """A site that has the archive of the source."""
    monkeypatch.delenv("FMTC_DATA", raising=False)
    monkeypatch.setattr(module, "cache_home", lambda: tmp_path / "cache")
    monkeypatch.setattr("fmtc_bench.datasets.base.cache_home", lambda: tmp_path / "cache")
    site.body = make_zip(tmp_path / "toys.zip").read_bytes()
    return site


ROWS = b"".join(FILES.values())


@pytest.mark.parametrize("given", [True, False])
def test_fetch_downloads_converts_and_tidies_up(toys, tmp_path, given):
    home = tmp_path / "home" if given else tmp_path / "cache"
    digest = hashlib.sha256(toys.body).hexdigest()
    order = []

    def notice(text):
        order.append(text)
        assert toys.asked == []

    folder = fetch_archives(make_source(toys, sha256=digest), home if given else None, notice=notice)
    assert folder == home / "toys"
    assert (folder / "rows.txt").read_bytes() == ROWS
    assert order == ["Play only."]
    assert left(home) == ["downloads", "toys"] and left(home / "downloads") == []
    origin = json.loads((folder / "origin.json").read_text())
    assert origin["archives"] == {"set.zip": {"bytes": len(toys.body), "sha256": digest}}


def test_fetch_of_what_is_there_asks_nobody(toys, tmp_path, monkeypatch):
    source = make_source(toys)
    folder = fetch_archives(source, tmp_path)
    assert fetch_archives(source, tmp_path) == folder
    assert len(toys.asked) == 1
    monkeypatch.setenv("FMTC_DATA", str(tmp_path))
    assert fetch_archives(source) == folder
    assert len(toys.asked) == 1
    fetch_archives(source, tmp_path, force=True)
    assert len(toys.asked) == 2


def test_the_first_digest_is_kept_and_compared(toys, tmp_path):
    source = make_source(toys)
    fetch_archives(source, tmp_path)
    sums = tmp_path / "downloads" / "SHA256SUMS"
    digest = hashlib.sha256(toys.body).hexdigest()
    assert sums.read_text() == f"{digest}  set.zip\n"
    fetch_archives(source, tmp_path, force=True)
    toys.body = make_zip(tmp_path / "other.zip", {"set/a": b"another"}).read_bytes()
    with pytest.raises(DatasetError, match=rf"{digest}.*SHA256SUMS"):
        fetch_archives(source, tmp_path, force=True)
    assert (tmp_path / "toys" / "rows.txt").read_bytes() == ROWS
    sums.write_text(f"{'0' * 64}  other.zip\n")
    fetch_archives(source, tmp_path, force=True)
    assert (tmp_path / "toys" / "rows.txt").read_bytes() == b"another"
    assert [line[66:] for line in sums.read_text().splitlines()] == ["other.zip", "set.zip"]


def test_a_digest_is_not_kept_of_what_could_not_be_used(toys, tmp_path):
    whole, toys.body = toys.body, b"<html>try later</html>"
    with pytest.raises(DatasetError, match=r"set\.zip"):
        fetch_archives(make_source(toys), tmp_path)
    assert left(tmp_path / "downloads") == []
    toys.body = whole
    fetch_archives(make_source(toys), tmp_path)


def test_a_checked_archive_survives_a_converter_that_fails(toys, tmp_path):
    digest = hashlib.sha256(toys.body).hexdigest()

    def fails(paths, new):
        (new / "rows.txt").write_text("half")
        raise DatasetError("no")

    with pytest.raises(DatasetError, match="no"):
        fetch_archives(make_source(toys, fails, sha256=digest), tmp_path)
    assert left(tmp_path) == ["downloads", "toys.zip"]
    fetch_archives(make_source(toys, sha256=digest), tmp_path)
    assert len(toys.asked) == 1


def test_a_converter_that_forgets_a_file(toys, tmp_path):
    with pytest.raises(DatasetError, match=r"set\.zip .*rows\.txt"):
        fetch_archives(make_source(toys, lambda paths, new: None), tmp_path)
    assert not (tmp_path / "toys").exists()


def test_a_folder_with_other_things_in_it_is_not_replaced(toys, tmp_path):
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "rows.txt").write_text("old")
    fetch_archives(make_source(toys), tmp_path, force=True)
    (tmp_path / "toys" / "origin.json").unlink()
    (tmp_path / "toys" / "thesis.tex").write_text("mine")
    for call in (
        lambda: fetch_archives(make_source(toys), tmp_path, force=True),
        lambda: import_archives(make_source(), (tmp_path / "toys.zip",), tmp_path, force=True),
    ):
        with pytest.raises(DatasetError, match=r"toys .*'thesis\.tex'"):
            call()
    assert len(toys.asked) == 1
    assert (tmp_path / "toys" / "thesis.tex").exists()


def test_fetch_of_what_no_program_can_download(tmp_path):
    with pytest.raises(DatasetError, match=r"https://example\.org/toys .*fmtc-bench data import toy"):
        fetch_archives(make_source(), tmp_path)


def test_import_converts(tmp_path):
    path = make_zip(tmp_path / "mine.zip")
    source = make_source()
    folder = import_archives(source, (path, path), tmp_path / "home")
    assert (folder / "rows.txt").read_bytes() == ROWS + ROWS
    assert path.exists()
    assert import_archives(source, (path,), tmp_path / "home") == folder
    assert (folder / "rows.txt").read_bytes() == ROWS + ROWS
    import_archives(source, (path,), tmp_path / "home", force=True)
    assert (folder / "rows.txt").read_bytes() == ROWS


def test_import_refuses(tmp_path):
    path = make_zip(tmp_path / "mine.zip")
    for source, paths, words in (
        (make_source(), (tmp_path / "none.zip",), "none.zip"),
        (make_source(), (tmp_path,), tmp_path.name),
        (make_source(), (), "toy"),
        (make_source(convert=None), (path,), "toy .*Made up"),
    ):
        with pytest.raises(DatasetError, match=words):
            import_archives(source, paths, tmp_path / "home")
    assert not Path(tmp_path / "home").exists()


def test_pauses_grow(site, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(module, "PAUSE", 0.5)
    monkeypatch.setattr(time, "sleep", pauses.append)
    site.script = [status(500)] * 9
    with pytest.raises(DownloadError):
        get(site, tmp_path, attempts=7)
    assert pauses == [0.5, 1, 2, 4, 8, 10]
