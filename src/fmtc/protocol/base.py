"""What a phase is: the declaration of a question and its answer, and everything that is derived from it.

A phase is one exchange between server and clients. It is declared once, as a subclass of `Phase`: what is asked, what
is answered (`Ask` and `Answer`, dataclasses whose fields are made with `array` and `number`), how a client replies and
how the server reduces the answers. The checks of messages, their packed form, byte counts, the privacy table in the
documentation, the report's "what left" and ``fmtc explain --show wire`` all read these declarations.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, dataclass_transform

import numpy as np

from ..errors import RefusedError
from ..privacy.protection import Protection

Array = np.ndarray
Answers = MutableMapping[str, Any]  # by client; a phase that needs memory takes out what it has used
Weights = Mapping[str, float] | None  # of clients; None: all alike
Check = Callable[[Any, Mapping[str, int]], str | None]  # a value and the sizes -> what is wrong with it, or None
REPEATS = 3  # answers to a phase that comes once: a server that was lost may ask again, with other clients
RESTARTS = 8  # answers to a loop phase beyond its rounds: a run that has not completed one may be started again
LARGEST_COUNT = 2**53  # no number of rows or rounds is larger, and all of them are exact in JSON

DTYPES = {  # kinds of array that a field may hold, and what is accepted for each
    "float": ("float32", "float64"),
    "int": ("int32", "int64", "uint32", "uint64"),
    "real": ("float32", "float64", "int32", "int64", "uint32", "uint64"),
    "int8": ("int8",),
    "uint8": ("uint8",),
    "int64": ("int64",),
    "uint64": ("uint64",),
    "float64": ("float64",),
}

LETTERS = {  # in the shapes of fields
    "D": "columns of the file",
    "d": "columns that the model uses",
    "c": "columns that are kept",
    "k": "clusters of the silo",
    "K": "clusters of all silos",
    "f": "findings about columns",
    "p": "coordinates of a start: numbers, then levels of categories",
    "r": "coordinates of the mixture",
    "h": "entries on and below the diagonal of an r × r matrix",
    "q": "categories",
    "l": "levels of all categories",
    "s": "starts that are still compared",
    "w": "words of 64 bits",
    "b": "bytes of certificates",
    "u": "bytes of signatures",
    "t": "numbers that are added up",
    "a": "anchors, or clusters of a private mixture",
    "m": "silos",
    "g": "frames that are compared",
    "e": "eigenvalues: one more than the largest number of clusters that is compared",
    "v": "numbers of clusters that are compared",
}


# ------------------------------------------------------------------------------------------------- declaring fields


@dataclass(frozen=True)
class Entry:
    """Declaration of one field of a message."""

    what: str  # what the field holds, in a few words
    tells: str  # what a reader of the message can learn from it: one sentence
    shape: tuple[str, ...] | None  # sizes in letters: d, k, m, ...; None: one number
    kind: str  # a key of `DTYPES` for arrays; "float", "count", "flag" or "word" for one value
    when: str  # where a field may be left out, when it is there; empty: always
    check: Check | None  # further condition

    @property
    def size(self) -> str:
        """The shape in words."""
        if self.shape is None:
            return {"word": "a word", "flag": "yes or no"}.get(self.kind, "a number")
        return " × ".join(self.shape)


def array(
    shape: str, what: str, tells: str = "", *, kind: str = "float", when: str = "", check: Check | None = None
) -> Any:
    """A field that holds a finite array; `shape` is given in letters, such as ``"d k"``.

    A letter stands for the same size in the whole message. Sizes that both sides know (d, k) are checked against them.
    """
    entry = Entry(what, tells, tuple(shape.split()), kind, when, check)
    return field(default=None if when else MISSING, metadata={"entry": entry})


def number(what: str, tells: str = "", *, kind: str = "float", when: str = "", check: Check | None = None) -> Any:
    """A field that holds one value: a finite number ("float"), a whole number ("count"), a "flag" or a "word"."""
    entry = Entry(what, tells, None, kind, when, check)
    return field(default=None if when else MISSING, metadata={"entry": entry})


def above(limit: float) -> Check:
    """Accept numbers, or arrays of numbers, above a limit."""
    return lambda value, sizes: None if np.all(np.asarray(value) > limit) else f"is not above {limit:g}"


_ENTRIES: dict[type, dict[str, Entry]] = {}  # asked for with every message


def entries(kind: type) -> dict[str, Entry]:
    """Declarations of the fields of a message, by name."""
    if kind not in _ENTRIES:
        _ENTRIES[kind] = {f.name: f.metadata["entry"] for f in fields(kind)}
    return _ENTRIES[kind]


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Content:
    """What a message holds: a subclass is a frozen dataclass, whose fields are made with `array` and `number`."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class Nothing(Content):
    """A question or an answer without content."""


class Failure(Content):
    """The answer of a client that cannot answer, in any phase."""

    error: str = number(
        "kind of error, such as MemoryError",
        "That something went wrong, and roughly what; the sentence stays with the silo.",
        kind="word", check=lambda v, _: None if v.isidentifier() and len(v) < 100 else "is not the name of an error",
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- a phase


class Phase:
    """One exchange of a method. Subclasses declare it; the one instance of each is stateless.

    A method's author writes `ask` (or `asks`, where clients are asked different questions), `reply` and `reduce`, and
    beside an `Answer` `protect`; all else has a default.
    """

    name: ClassVar[str]
    doing: ClassVar[str]  # for messages: "client 'north' failed while {doing}"
    Ask: ClassVar[type] = Nothing
    Answer: ClassVar[type] = Nothing
    protect: ClassVar[Protection]  # what covers an answer on its way out; declared beside every `Answer` of any content
    subject: ClassVar[str] = "client"  # who replies: "client" (its rows), "table" (its file) or "run" (the process)
    resumes: ClassVar[bool] = False  # replies from the state after a numbered round, which the message names
    persists: ClassVar[bool] = False  # the client's state is saved before the answer leaves
    pure: ClassVar[bool] = False  # a reply leaves the client's state as it is
    rebuilds: ClassVar[bool] = False  # asked again when a run resumes: it makes what a client does not save
    parallel: ClassVar[bool] = True  # clients of one process may reply at the same time
    threads: ClassVar[bool] = False  # a reply uses several cores by itself
    concludes: ClassVar[bool] = False  # the client has its model after this phase, whether or not it is the last
    sums: ClassVar[bool] = False  # the server needs only the sum of the answers: `reduce` adds them up, and no more
    turns: ClassVar[int] = 1  # how often it comes in a row
    limbs: ClassVar[int] = 2  # words of 64 bits for each number, where only the sum may be seen: `protocol.sums`
    fraction: ClassVar[int] = 64  # bits after the point of such a number

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        answer = own.get("Answer", Nothing)
        if "protect" not in own and (not is_dataclass(answer) or fields(answer)):
            raise TypeError(
                f"phase {cls.__qualname__} releases an answer and does not declare `protect`: say beside it which "
                "rule, mask or noise covers it, or in a `Protection` why nothing has to; see fmtc.privacy.rules"
            )

    def times(self, server: Any, settings: Any) -> int:
        """How often the phase comes in a row, by what the server knows so far; 0 omits it."""
        return self.turns

    def limit(self, settings: Any) -> int:
        """How many different answers a client releases in one run, at most; the same question is not a new one."""
        return settings.max_iter + RESTARTS if self.resumes and self.persists else REPEATS * self.turns

    def asks(self, server: Any, settings: Any) -> Mapping[str, Any]:
        """What each client is asked."""
        return dict.fromkeys(server.client_ids, self.ask(server, settings))

    def ask(self, server: Any, settings: Any) -> Any:
        """What all clients are asked."""
        return self.Ask()

    def reply(self, client: Any, ask: Any, settings: Any, round_no: int) -> tuple[Any, Any]:
        """The client's next state and its answer."""
        raise NotImplementedError

    def reduce(self, server: Any, answers: Answers, settings: Any) -> Any:
        """The server's next state; a loop phase returns the state and a `RoundReport`."""
        return server

    def noise(self, ask: Any, settings: Any) -> Mapping[str, float]:
        """Standard deviation of the noise in the sum over clients, by field; empty: none is added."""
        return {}

    def charge(self, settings: Any) -> float:
        """What one release costs of the privacy budget, as a squared mu of Gaussian differential privacy."""
        return 0.0

    def impossible(self, server: Any, client_id: str, answer: Any, settings: Any) -> str | None:
        """Why no honest client can have said this, or None; the server drops such answers and reduces the rest."""
        return None

    def check_ask(self, ask: Any, sizes: Mapping[str, int]) -> None:
        """Raise `RefusedError` where a question does not fit its declaration."""
        check(ask, self.Ask, self.name, dict(sizes))

    def check_answer(self, answer: Any, ask: Any, sizes: Mapping[str, int]) -> None:
        """Raise `RefusedError` where an answer does not fit its declaration, or the question."""
        kind = Failure if isinstance(answer, Failure) else self.Answer
        check(answer, kind, self.name, bind(ask, dict(sizes)))

    @property
    def releases(self) -> bool:
        """Whether an answer has any content."""
        return bool(fields(self.Answer))


@dataclass(frozen=True)
class Message:
    """One question to one client, with its place in the run."""

    phase: str
    ask: Any
    round_no: int = 0  # of the server; in a loop phase, of the round that is asked for
    last_round: int = 0  # the client's last answer that the server has; a phase that `resumes` starts from there
    turn: int = 0  # tells one question from the next where a phase comes several times

    @property
    def key(self) -> tuple[str, int, int]:
        """What makes this question another one than those before in a run."""
        return self.phase, self.round_no, self.turn

    @cached_property
    def asked(self) -> str:
        """Digest of the question; arrays are read once, however often it is needed."""
        return digest(self.ask)


class Summed(dict[str, Any]):
    """Answers of clients of which only the sum is known: one entry, and how many were added."""

    def __init__(self, total: Any, count: int):
        super().__init__({"*": total})  # nobody said it alone
        self.count = count


def how_many(answers: Mapping[str, Any]) -> int:
    """How many clients answered, also where only the sum of their answers is known."""
    return answers.count if isinstance(answers, Summed) else len(answers)


# ---------------------------------------------------------------------------------------------------------- checking


def bind(message: Any, sizes: dict[str, int]) -> dict[str, int]:
    """Sizes of the letters, with those that a message gives."""
    for name, entry in entries(type(message)).items():
        value = getattr(message, name)
        if entry.shape is not None and isinstance(value, np.ndarray) and value.ndim == len(entry.shape):
            for letter, size in zip(entry.shape, value.shape, strict=True):
                sizes.setdefault(letter, size)
    return sizes


def check(message: Any, kind: type, phase: str, sizes: dict[str, int]) -> None:
    """Raise `RefusedError` unless a message is what its declaration says; binds new letters in `sizes`."""
    if type(message) is not kind:
        raise RefusedError(f"{phase}: got {type(message).__name__}, which is not what this phase carries")
    for name, entry in entries(kind).items():
        value = getattr(message, name)
        if value is None:
            if not entry.when:
                raise RefusedError(f"{phase} lacks {name}")
            continue
        wrong = _wrong_value(value, entry) if entry.shape is None else _wrong_array(value, entry, sizes)
        if wrong is None and entry.check is not None:
            wrong = entry.check(value, sizes)
        if wrong is not None:
            raise RefusedError(f"{phase}: {name} {wrong}")
    wrong = message.wrong() if hasattr(message, "wrong") else None
    if wrong is not None:
        raise RefusedError(f"{phase}: {wrong}")


def _wrong_value(value: Any, entry: Entry) -> str | None:
    if entry.kind == "word":
        return None if isinstance(value, str) else "is not a word"
    if entry.kind == "flag":
        return None if isinstance(value, bool) else "is neither true nor false"
    if entry.kind == "count":
        return None if is_count(value) else "is not a whole number of at least 0"
    value = value.item() if isinstance(value, np.floating) else value
    real = isinstance(value, float | int) and not isinstance(value, bool)
    return None if real and abs(value) <= sys.float_info.max else "is not a finite number"


def is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 0, and one that can be the number of something."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) < LARGEST_COUNT


def _wrong_array(value: Any, entry: Entry, sizes: dict[str, int]) -> str | None:
    assert entry.shape is not None
    if not isinstance(value, np.ndarray):
        return "is not an array"
    if value.dtype.name not in DTYPES[entry.kind]:
        return f"holds {value.dtype}, not {entry.kind}"
    if value.ndim != len(entry.shape):
        return f"has shape {value.shape}, not ({', '.join(entry.shape)})"
    for letter, size in zip(entry.shape, value.shape, strict=True):
        expected = int(letter) if letter.isdigit() else sizes.setdefault(letter, size)
        if size != expected:
            return f"has shape {value.shape}, but {letter} is {expected}"
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        return "holds NaN or infinity"
    return None


def dropped(phase: Phase, server: Any, answers: Mapping[str, Any], settings: Any) -> dict[str, str]:
    """Answers that the server must not use, by client, with one sentence each.

    Whether an answer has the declared form, its sender and its transport have checked. A hostile sender does not check.
    """
    found = {}
    for cid, answer in answers.items():
        for name, value in pack(answer).items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
                found[cid] = f"{phase.name}: {name} holds NaN or infinity"
        with np.errstate(over="ignore", invalid="ignore"):  # numbers whose squares are not finite are no rows' either
            why = None if cid in found else phase.impossible(server, cid, answer, settings)
        if why is not None:
            found[cid] = f"{phase.name}: what came {why}"
    return found


# ------------------------------------------------------------------------------------------------- packing, counting


def pack(message: Any) -> dict[str, Any]:
    """Fields of a message that are filled, by name: arrays and single values of Python, nothing nested."""
    values = ((name, getattr(message, name)) for name in message.__dataclass_fields__)
    return {
        name: value.item() if isinstance(value, np.generic) else value for name, value in values if value is not None
    }


def unpack(kind: type, flat: Mapping[str, Any]) -> Any:
    """Undo `pack`; a field that is unknown, or a required one that is missing, is refused."""
    known = entries(kind)
    if unknown := sorted(set(flat) - set(known)):
        raise RefusedError(f"{kind.__qualname__} has no field {', '.join(unknown)}")
    if lacking := sorted(name for name, entry in known.items() if not entry.when and name not in flat):
        raise RefusedError(f"{kind.__qualname__} lacks {', '.join(lacking)}")
    return kind(**flat)


def value_bytes(value: Any) -> int:
    """Payload of one field: an array at its size, a number at 8 bytes, a word at its length."""
    return int(value.nbytes) if isinstance(value, np.ndarray) else len(value) if isinstance(value, str) else 8


def nbytes(message: Any) -> int:
    """Payload of a message."""
    return sum(value_bytes(value) for value in pack(message).values())


def message_bytes(message: Message) -> int:
    """Payload of a question with its place in the run: the name of the phase and two numbers of rounds."""
    return len(message.phase) + 16 + nbytes(message.ask)


def digest(message: Any) -> str:
    """Tells whether two messages are the same to the last bit."""
    found = hashlib.sha256(type(message).__qualname__.encode())
    for name, value in sorted(pack(message).items()):
        found.update(name.encode() + value_digest(value).encode())
    return found.hexdigest()


def value_digest(value: Any) -> str:
    """Digest of one field, with its type and shape."""
    if isinstance(value, np.ndarray):
        found = hashlib.sha256(repr((value.dtype.str, value.shape)).encode())
        found.update(np.ascontiguousarray(value).data)
        return found.hexdigest()
    return hashlib.sha256(repr((type(value).__name__, value)).encode()).hexdigest()


# ------------------------------------------------------------------------------------------------------- documenting


def declared(phases: Iterable[Phase]) -> list[dict[str, Any]]:
    """The declarations of some phases in what JSON knows: what ``fmtc explain --show wire`` prints."""

    def listed(kind: type) -> list[dict[str, Any]]:
        return [
            {
                "name": name, "shape": entry.size, "type": entry.kind, "what": plain(entry.what),
                "tells": plain(entry.tells), "when": plain(entry.when) or "always",
            }
            for name, entry in entries(kind).items()
        ]  # fmt: skip

    return [
        {"phase": phase.name, "doing": phase.doing, "asks": listed(phase.Ask), "answers": listed(phase.Answer)}
        for phase in phases
    ]


def plain(text: str) -> str:
    """A sentence of a declaration without the marks of Markdown, and without pointers into docs/privacy.md.

    Examples
    --------
    >>> from fmtc.protocol.base import plain
    >>> plain("The rest of `n_samples`; see [Centres](#centres).")
    'The rest of n_samples.'
    """
    return re.sub(r";? see \[[^]]*\]\([^)]*\)", "", text).replace("`", "")


def sent(phases: Iterable[Phase], totals: Iterable[Any]) -> list[dict[str, Any]]:
    """What left, for a reader: each total with the declaration of its field, in what JSON knows.

    Parameters
    ----------
    phases : iterable of Phase
        Whose declarations are looked up. A field that none of them has is listed without words.
    totals : iterable
        `privacy.ledger.Total`: phase, field, shape, times and bytes.

    Examples
    --------
    >>> from fmtc.privacy.ledger import Total
    >>> from fmtc.protocol.base import sent
    >>> from fmtc.protocol.graph.opening import HELLO
    >>> (row,) = sent([HELLO], [Total("hello", "n_samples", (), 3, 24)])
    >>> row["what"], row["shape"], row["times"], row["bytes"]
    ('number of rows', 'a number', 3, 24)
    """
    known = {(phase.name, name): entry for phase in phases for name, entry in entries(phase.Answer).items()}
    for phase in phases:
        if hasattr(phase, "inner"):  # what the masked words hold
            whole = ", ".join(entries(phase.inner.Answer))
            known[phase.name, "words"] = replace(known[phase.name, "words"], what=f"{whole}: masked, to be added up")
    rows = []
    for total in totals:
        entry = entries(Failure)["error"] if total.field == "error" else known.get((total.phase, total.field))
        rows.append(
            {
                "phase": total.phase,
                "field": total.field,
                "what": plain(entry.what) if entry else "",
                "tells": plain(entry.tells) if entry else "",
                "shape": entry.size if entry else " × ".join(map(str, total.shape)) or "a value",
                "size": list(total.shape),
                "times": total.times,
                "bytes": total.bytes,
            }
        )
    return rows
