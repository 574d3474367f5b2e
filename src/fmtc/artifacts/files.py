"""Files that are complete or not there: JSON and safetensors (never pickle), new folders, names, checks of content."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as tensors_to_bytes

from ..errors import FileError, FmtcError, InputError, WriteError

Array = np.ndarray
Content = TypeVar("Content")


class Kind(NamedTuple):
    """What a document says of itself: what it is, in which format; the oldest that is read."""

    name: str
    version: int
    oldest: int | None = None

    @property
    def head(self) -> dict[str, Any]:
        """What a document of this kind begins with."""
        return {"kind": self.name, "schema": self.version}


def file_name(client_id: str) -> str:
    """A client's id as a file name that is safe on every system, short, and different for different ids."""
    name = quote(client_id, safe="")
    if len(name) > 100:
        name = name[:80] + _short_hash(client_id)
    return name.replace(".", "%2E") if set(name) == {"."} else name


def file_names(client_ids: Iterable[str]) -> dict[str, str]:
    """`file_name` of each id; ids that differ only in case get a suffix, for file systems that ignore case."""
    names = {cid: file_name(cid) for cid in client_ids}
    count = Counter(name.casefold() for name in names.values())
    return {cid: name + _short_hash(cid) if count[name.casefold()] > 1 else name for cid, name in names.items()}


def _short_hash(client_id: str) -> str:
    return "-" + hashlib.sha256(client_id.encode()).hexdigest()[:16]


def write_file(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Write under a temporary name in the same folder, then rename: the file is complete or not there.

    Only the owner can read a `secret` file.
    """
    with new_file(path, secret=secret) as temporary, temporary.open("wb") as stream:
        stream.write(content)


@contextmanager
def new_file(path: Path, *, secret: bool = False) -> Iterator[Path]:
    """An empty file that is renamed to `path` when the block succeeds, and deleted when it fails."""
    with _blamed(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path))
        temporary = Path(name)
        try:
            yield temporary
            os.fsync(handle)
            os.chmod(temporary, 0o600 if secret else 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


# The system refuses to write, for a reason that the person who named the file can mend.
REFUSED = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EISDIR,
    errno.ENOTDIR,
)  # fmt: skip


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    """Turn what the system refuses to write, here or in our temporary folder, into a `WriteError` that names the path.

    Other errors of the system that do not know the file get its name.
    """
    try:
        yield
    except OSError as error:
        names = [os.path.abspath(name) for name in (error.filename, error.filename2) if name is not None]
        place = path.absolute()
        ours = any(name.startswith(str(place.parent / _prefix(path))) for name in names)
        if error.errno in REFUSED and (not names or ours or Path(names[0]) in (place, *place.parents)):
            raise WriteError(error.errno, error.strerror, str(path)) from error
        if not names and error.strerror:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _prefix(path: Path) -> str:
    return f".{path.name[:50]}-"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def tighten(folder: Path) -> None:
    """Make a folder and its content readable by their owner only."""
    folder.chmod(0o700)
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


@contextmanager
def new_folder(path: Path, *, overwrite: bool = False, private: bool = False) -> Iterator[Path]:
    """A temporary folder that is renamed to `path` when the block succeeds, and deleted when it fails.

    With `private`, only its owner can read it.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; choose another name or allow overwriting")
    with _blamed(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=_prefix(path)))
        try:
            yield temporary
            tighten(temporary) if private else os.chmod(temporary, 0o777 & ~_umask())
            if path.exists():
                old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{_prefix(path)}old-"))
                os.replace(path, old / "was")
                os.replace(temporary, path)
                shutil.rmtree(old)
            else:
                os.replace(temporary, path)
        finally:
            if temporary.exists():
                shutil.rmtree(temporary, ignore_errors=True)


def sweep(path: Path) -> None:
    """Remove what a `new_folder` left that was killed while it wrote; nobody else may be writing to `path` now."""
    old = "(old-)?" if path.exists() else ""  # killed between two renames: the old folder is all there is
    left = re.compile(rf"\.{re.escape(path.name[:50])}-{old}[a-z0-9_]{{8}}")  # names of tempfile.mkdtemp
    for folder in path.parent.glob(".*"):
        if left.fullmatch(folder.name) and folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)


def write_json(path: Path, content: Any, *, secret: bool = False) -> None:
    """Readable JSON, written completely or not at all; NaN and infinity become null. `secret` as in `write_file`."""
    write_file(path, (json.dumps(jsonable(content), indent=1, ensure_ascii=False) + "\n").encode(), secret=secret)


def jsonable(value: Any) -> Any:
    """The same value in the types of JSON: lists, dicts, strings, finite numbers and null."""
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value


def read_file(
    path: Path, parse: Callable[[bytes], Content], what: str = "is damaged", error: type[InputError] = FileError
) -> Content:
    """Return what a parser makes of the content of a file, or raise an error that names the file.

    All files of kits and runs are read here, so that damage to any of them ends in one sentence and exit code 3.

    Parameters
    ----------
    path : Path
    parse : callable
        Gets the bytes of the file. Whatever it raises means that the content is not what it should be.
    what : str
        What the file is then said to be.
    error : class
        What is raised.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "number"
    >>> _ = path.write_text("seven")
    >>> try:
    ...     read_file(path, int)
    ... except FileError as error:
    ...     print(str(error).replace(str(path), "number"))
    number is damaged: invalid literal for int() with base 10: b'seven'
    """
    try:
        return parse(path.read_bytes())
    except (FmtcError, MemoryError):
        raise
    except FileNotFoundError:
        raise error(f"{path} is missing") from None
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror or failure}") from None
    except RecursionError:
        raise error(f"{path} {what}: it is nested too deeply") from None
    except Exception as failure:
        raise error(f"{path} {what}: {(str(failure) or type(failure).__name__).splitlines()[0]}") from None


def read_json(path: Path, form: Any = None, *, kind: Kind | None = None) -> Any:
    """Content of a JSON file, or a `FileError` that says what is wrong with it; `form` as in `check_form`."""
    content = read_file(path, lambda content: json.loads(content.decode("utf-8")))
    if kind is not None:
        check_schema(path, content, *kind)
    if form is not None:
        check_form(path, content, form)
    return content


def read_json_lines(path: Path, form: Any) -> list[Any]:
    """Documents of a file with one on each line, each of a form; none where there is no file."""
    if not path.exists():
        return []
    lines = read_file(path, lambda content: [json.loads(line) for line in content.decode("utf-8").splitlines()])
    for place, line in enumerate(lines, start=1):
        check_form(path, line, form, f"line {place}")
    return lines


def write_tensors(path: Path, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
    """Arrays and a small description that JSON can hold, in one safetensors file."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described: dict[str, Any] = jsonable(about)
    words = json.dumps(described | {"sha256": _digest(whole, described)})
    write_file(path, tensors_to_bytes(whole, metadata={"fmtc": words}))


def _digest(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about).encode())
    for name, array in sorted(arrays.items()):
        digest.update(repr((name, str(array.dtype), array.shape)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def read_tensors(path: Path, kind: Kind | None = None) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and description of `write_tensors`, or a `FileError` that says what is wrong."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("fmtc", "null"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise FileError(f"{path} is missing") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError, TypeError, RecursionError) as error:
        raise FileError(f"{path} is damaged or truncated: {error}") from None
    if not isinstance(about, dict):
        raise FileError(f"{path} is a safetensors file, but fmtc did not write it")
    if about.pop("sha256", None) != _digest(arrays, about):
        raise FileError(f"{path} is damaged: its checksum differs")
    if kind is not None:
        check_schema(path, about, *kind)
    return arrays, about


def check_schema(path: Path, about: Any, kind: str, version: int, oldest: int | None = None) -> None:
    """Raise `FileError` for a file of another kind, or in a format that this fmtc does not read."""
    if not isinstance(about, Mapping):
        raise FileError(f"{path} is damaged: it does not hold a {kind}")
    if about.get("kind") != kind:
        raise FileError(f"{path} holds {about.get('kind')!r}, not {kind!r}")
    found, oldest = about.get("schema"), version if oldest is None else oldest
    if not isinstance(found, int) or not oldest <= found <= version:
        older = isinstance(found, int) and found < oldest
        advice = "Make it anew: it is of an older fmtc." if older else "Upgrade fmtc to read it."
        raise FileError(f"{path} was written in format {found}; this fmtc reads format {version}. {advice}")


@contextmanager
def well_formed(path: Path) -> Iterator[None]:
    """What goes wrong in the block, with the content of a file, is a `FileError` that names the file."""
    try:
        yield
    except FmtcError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, StopIteration) as error:
        raise FileError(f"{path} is damaged: {type(error).__name__} {error}") from None


# ------------------------------------------------------------------------------------------- the form of a document

COUNT = range(2**53)  # a form: an integer of at least 0
NUMBER = (float, None)  # a form: a number, or null if it was not finite
_WORDS = {str: "a string", bool: "true or false", int: "an integer", float: "a number", dict: "a table", None: "null"}


def check_form(path: Path | str, value: Any, form: Any, where: str = "") -> None:
    """Raise `FileError` unless a document that was read from JSON has the form its reader relies on.

    Parameters
    ----------
    path : Path or str
        The file, for the message.
    value : object
        What `read_json` returned, or a part of it.
    form : type, None, range, tuple, list or dict
        ``str``, ``bool``, ``int``, ``float`` (finite; an integer is accepted), ``dict`` or None: a value of this type.
        A range: an integer in it. A tuple: one of several forms. A list of one form: a list of such values. A dict of
        ``str`` to a form: a table of such values under any names. Any other dict: a table with these names; those that
        end in "?" are optional, and further names are allowed.
    where : str
        Position of the value in the document, for the message.

    Raises
    ------
    FileError
        With the position, the value found and the form expected.

    Examples
    --------
    >>> from fmtc.artifacts.files import check_form
    >>> check_form("a.json", {"rows": 3, "names": ["x"]}, {"rows": int, "names": ([str], None), "note?": str})
    >>> check_form("a.json", {"rows": 3, "names": ["x", 5]}, {"rows": int, "names": ([str], None)})
    Traceback (most recent call last):
    ...
    fmtc.errors.FileError: a.json is damaged: names[1] is 5, not a string
    """
    suited = [one for one in (form if isinstance(form, tuple) else (form,)) if _is_like(value, one)]
    if not suited:
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}…"
        raise FileError(f"{path} is damaged: {where or 'its content'} is {shown}, not {_named(form)}")
    if isinstance(suited[0], list):
        for place, item in enumerate(value):
            check_form(path, item, suited[0][0], f"{where}[{place}]")
    elif isinstance(suited[0], dict):
        _check_table(path, value, suited[0], f"{where}." if where else "")


def _check_table(path: Path | str, table: Mapping[str, Any], form: Mapping[Any, Any], above: str) -> None:
    """`check_form` of the parts of a table."""
    lacking = [name for name in form if name is not str and not name.endswith("?") and name not in table]
    if lacking:
        raise FileError(f"{path} is damaged: it lacks {', '.join(above + name for name in lacking)}")
    for name, item in table.items():
        inner = form.get(name, form.get(f"{name}?", form.get(str, ...)))
        if inner is not ...:
            check_form(path, item, inner, f"{above}{name}")


def form_of(kind: Any) -> Any:
    """The form of what JSON has of a dataclass, from its type hints; fields with a default may be missing.

    Examples
    --------
    >>> from fmtc.artifacts.files import form_of
    >>> from fmtc.describe import Histogram
    >>> form_of(Histogram)["inside"], form_of(Histogram)["levels?"]
    ([range(0, 9007199254740992)], [<class 'str'>])
    """
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        given = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
        return {name if name in given else f"{name}?": form_of(hints[name]) for name in (f.name for f in fields(kind))}
    parts = [form_of(part) for part in get_args(kind) if part is not ...]
    if get_origin(kind) is tuple:
        return parts[:1]
    if get_origin(kind) is dict:
        return {str: parts[1]}
    return tuple(parts) or {int: COUNT, NoneType: None}.get(kind, kind)


def _is_like(value: Any, form: Any) -> bool:
    """Whether a value has the type of a form, whatever it contains."""
    if form is None:
        return value is None
    if isinstance(form, list | dict):
        return isinstance(value, type(form))
    if isinstance(form, range):
        return type(value) is int and value in form
    if form is float:  # no integer beyond those of arrays: they would make an array of objects
        return type(value) in (int, float) and abs(value) < (1e308 if type(value) is float else 2**63)
    return type(value) is form


def _named(form: Any) -> str:
    if isinstance(form, tuple):
        return " or ".join(map(_named, form))
    if isinstance(form, range):
        return f"an integer from {form.start} to {form.stop - 1}" if form != COUNT else "an integer of at least 0"
    return "a list" if isinstance(form, list) else _WORDS[dict if isinstance(form, dict) else form]


def fingerprint(X: Any, ids: Sequence[str | None] | None = None) -> str:
    """Tells whether two matrices are the same to the last bit, and the identifiers of their rows, if they have any."""
    parts = (X.data, X.indices, X.indptr) if hasattr(X, "indptr") else (X,)
    digest = hashlib.blake2b(repr((X.shape, str(X.dtype))).encode(), digest_size=16)
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    if ids is not None:
        digest.update(json.dumps(list(ids)).encode())
    return digest.hexdigest()
