"""Masks that cancel in a sum: the keys of one client in one run, whom it shares them with, and how it masks an answer.

Every two clients of a run agree on a secret (X25519) that the server cannot know. For each answer they draw from it the
same stream of numbers (HKDF-SHA256, AES-256-CTR). One adds the stream to its answer, the other subtracts it, so that
the sum over all clients is that of the answers. docs/reference/secure-sums.md has the protocol byte by byte.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..artifacts.files import jsonable, read_file, read_json_lines, write_file
from ..artifacts.lines import last_of, put
from ..errors import RefusedError, TrustError
from ..linalg import fixed
from ..protocol.base import Message, pack, value_digest
from ..protocol.method import method_of
from ..protocol.sums.cards import CODE, Card
from ..protocol.sums.masking import FEWEST, Masked, Masking, encoded, layout_of
from .accounting import honest
from .floor import Floor
from .identity import Identity
from .noise import draw

Array = np.ndarray

CARD, MASK, ROSTER = b"fmtc-card-1", b"fmtc-mask-1", b"fmtc-roster-1"
WORDS = np.dtype("<u8")

Noise = Callable[[float, int], Array]  # standard deviation in units of the last place, how many -> int64


def joined(*parts: bytes | str) -> bytes:
    """Parts in one string that only these parts give: each behind its length in four bytes."""
    each = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in each)


def settings_digest(method: str, settings: Any) -> str:
    """What tells one run's method and settings from another's; all clients of a run must have been told the same.

    Settings that a resumed run may change, such as `max_iter`, do not count.
    """
    free = method_of(method).changeable
    decided = {name: value for name, value in jsonable(asdict(settings)).items() if name not in free}
    return hashlib.sha256(json.dumps({"method": method, "settings": decided}, sort_keys=True).encode()).hexdigest()


def pair_stream(secret: bytes, run_id: str, info: bytes, n_words: int) -> Array:
    """The numbers that two clients share for one answer; (n_words,) of uint64."""
    key = HKDF(SHA256(), length=32, salt=run_id.encode(), info=info).derive(secret)
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(WORDS.itemsize * n_words)), WORDS)


def mask(words: Array, own: str, secrets: Mapping[str, bytes], run_id: str, roster: str, label: Sequence[str]) -> Array:
    """Words with the masks of all pairs that a client is part of.

    Parameters
    ----------
    words : array of uint64 of shape (n, limbs)
    own : str
        Name of the client.
    secrets : mapping of client to bytes
        What it shares with each of the others.
    run_id, roster : str
    label : sequence of str
        What makes this answer another than all others of the run.

    Returns
    -------
    array of uint64 of shape (n, limbs)
    """
    total = np.ascontiguousarray(words)
    for other, secret in sorted(secrets.items()):
        lower, higher = sorted((own, other), key=str.encode)
        info = joined(MASK, roster, *label, lower, higher)
        stream = pair_stream(secret, run_id, info, total.size).reshape(total.shape)
        total = fixed.added(total, stream if own == lower else fixed.negated(stream))
    return total


def isolates(rosters: Iterable[Iterable[str]]) -> str | None:
    """A client whose own part sums over these rosters would show, because they differ by it; None: there is none.

    The sums over two rosters that differ by one client differ by that client's part. In general, a client shows where
    its indicator is a combination of those of the rosters.

    Examples
    --------
    >>> from fmtc.privacy.keys import isolates
    >>> isolates([{"a", "b", "c", "d"}, {"a", "b", "c"}])
    'd'
    >>> isolates([{"a", "b", "c", "d"}, {"c", "d", "e", "f"}]) is None
    True
    """
    sets = [set(roster) for roster in rosters]
    names = sorted(set().union(*sets))
    if not names:
        return None
    A = np.array([[name in roster for name in names] for roster in sets], dtype=float)
    shown = np.diag(np.linalg.pinv(A) @ A)  # how much of each indicator lies in the space of the rosters
    return next((name for name, part in zip(names, shown, strict=True) if part > 1 - 1e-9), None)


class Rosters:
    """Whom a client has been summed with, over which rows: a file of its kit.

    Parameters
    ----------
    path : path
    run_id : str
    fingerprint : callable
        Of the client's rows.
    accept : bool
        A person has said that sums may differ by one client; it is recorded.
    """

    def __init__(self, path: Path, run_id: str, fingerprint: Callable[[], str], accept: bool = False):
        self.path, self.run_id, self.fingerprint, self.accept = path, run_id, fingerprint, accept

    def lines(self) -> list[dict[str, Any]]:
        """All rosters so far, with run and fingerprint of the rows."""
        return read_json_lines(self.path, {"run": str, "data": str, "clients": [str]})

    def admit(self, names: Sequence[str]) -> None:
        """Record a roster, or raise `TrustError` where its sums and those of before would show a single client."""
        data = self.fingerprint()
        earlier = [line for line in self.lines() if line["data"] == data]
        names = sorted(names)
        if any(line["run"] == self.run_id and line["clients"] != names for line in earlier):
            raise TrustError("the silos of a run with privacy never change; start a new run")
        shown = isolates([*(line["clients"] for line in earlier), names])
        if shown is not None and not self.accept:
            raise TrustError(
                f"sums over these silos, with those of earlier runs over the same rows, would show {shown!r} alone: "
                "the rosters differ by it. Run with the silos of before, or with at least two fewer or more; "
                "--accept-difference overrides it"
            )
        line = {"run": self.run_id, "data": data, "clients": names, "accepted": shown}
        if line not in earlier:
            with last_of(self.path) as (handle, _):
                put(handle, line)
                os.fsync(handle)


class Keys:
    """The keys of one client in one run. Replies to the phases `cards` and `roster`, and masks what leaves after them.

    Parameters
    ----------
    identity : Identity
        Signs the client's card, and knows whom to trust.
    run_id : str
    method : str
    client_id : str
        The client's name in the run.
    folder : path, optional
        Keeps the key of the run, for a client that is started again; without, it lives as long as this object.
    rosters : Rosters, optional
        Whom the client has been summed with before; left out, nobody.
    floor : Floor, optional
        The least privacy that the client asks for, now that it is known how many share the noise.
    """

    def __init__(
        self,
        identity: Identity,
        run_id: str,
        method: str,
        client_id: str,
        folder: Path | None = None,
        rosters: Rosters | None = None,
        floor: Floor | None = None,
    ):
        self.identity, self.run_id, self.method, self.client_id = identity, run_id, method, client_id
        self.rosters, self.floor = rosters, floor or Floor()
        self._path = None if folder is None else folder / "key.json"
        self.names: tuple[str, ...] = ()  # of the roster
        self.roster = ""  # its hash
        self.secrets: dict[str, bytes] = {}  # shared with each other client
        self._private: bytes | None = None

    def sizes(self, settings: Any) -> dict[str, int]:
        """Nothing of the sizes is known."""
        return {}

    # ------------------------------------------------------------------------------------------------------- keys

    def private(self) -> bytes:
        """The client's key for this run: the one that it has, or a new one of the operating system's randomness."""
        if self._private is None and self._path is not None and self._path.exists():
            self._private = read_file(self._path, lambda content: bytes.fromhex(json.loads(content)["key"]))
        if self._private is None:
            self.restore(os.urandom(32))
        assert self._private is not None
        return self._private

    def restore(self, private: bytes) -> None:
        """Go on with a key of before."""
        self._private = private
        if self._path is not None:
            write_file(self._path, json.dumps({"key": private.hex()}).encode(), secret=True)

    def _signed(self, name: str, settings: Any, key: bytes) -> bytes:
        return joined(CARD, self.run_id, settings_digest(self.method, settings), name, key)

    def card(self, settings: Any) -> tuple[bytes, bytes, bytes]:
        """Public key for the run, certificate, and a signature of the key."""
        key = X25519PrivateKey.from_private_bytes(self.private()).public_key().public_bytes_raw()
        return key, self.identity.certificate, self.identity.sign(self._signed(self.client_id, settings, key))

    def accept(self, cards: Mapping[str, Card], settings: Any) -> str:
        """Check everybody's card; the code of the roster.

        Raises
        ------
        TrustError
            If a card is not to be trusted, clients are too few, or sums over this roster would show a single client.
        """
        own = X25519PrivateKey.from_private_bytes(self.private())
        if len(cards) < FEWEST:
            raise TrustError(
                f"a sum over {len(cards)} silo{'s' if len(cards) > 1 else ''} hides nothing: each knows the other's "
                f"part. privacy needs at least {FEWEST} silos"
            )
        self.floor.check(settings, len(cards))
        mine = cards.get(self.client_id)
        if mine is None or mine.key != own.public_key().public_bytes_raw():
            raise TrustError(f"the card of {self.client_id!r} is missing or changed: somebody stands in its place")
        parts = [joined(self.run_id, settings_digest(self.method, settings))]
        secrets: dict[str, bytes] = {}
        for name, card in sorted(cards.items()):
            signed = self._signed(name, settings, card.key)
            fingerprint = self.identity.verify(name, card.certificate, signed, card.signature)
            parts.append(joined(name, fingerprint, card.key))
            if name != self.client_id:
                try:
                    secrets[name] = own.exchange(X25519PublicKey.from_public_bytes(card.key))
                except ValueError:
                    raise TrustError(f"the card of {name!r} holds no usable key") from None
        if len({card.key for card in cards.values()}) < len(cards):
            raise TrustError("two cards hold the same key")
        if self.rosters is not None:
            self.rosters.admit(list(cards))
        self.names, self.secrets = tuple(sorted(cards)), secrets
        self.roster = hashlib.sha256(joined(ROSTER, *parts)).hexdigest()
        return self.code

    @property
    def code(self) -> str:
        """The roster in short, to be compared by telephone; empty before it is accepted."""
        return self.roster[:CODE]

    # ------------------------------------------------------------------------------------------------------ masking

    def seal(
        self,
        phase: Masking,
        message: Message,
        answer: Any,
        settings: Any,
        context: str = "",
        noise: Noise = draw,
    ) -> Masked:
        """An answer in the form in which it may leave: noise where the phase asks for it, then masks.

        Parameters
        ----------
        phase : Masking
        message : Message
            The question.
        answer : phase.inner.Answer
        settings : object
        context : str
            Digest of what else the answer depends on; the same at all clients.
        noise : callable
            Draws noise.
        """
        if not self.secrets:
            raise RefusedError(f"phase {phase.name!r} came before the roster")
        words = encoded(phase.inner, answer, len(self.names))
        wanted = phase.noise(message.ask, settings)
        if wanted:
            words = self._noisy(words, phase, answer, wanted, settings, noise)
        label = (phase.name, str(message.round_no), str(message.turn), value_digest(message.asked + context))
        words = mask(words, self.client_id, self.secrets, self.run_id, self.roster, label)
        return Masked(words=words.ravel(), layout=json.dumps(layout_of(answer)))

    def _noisy(
        self, words: Array, phase: Masking, answer: Any, wanted: Mapping[str, float], settings: Any, noise: Noise
    ) -> Array:
        """Words with this client's part of the noise; the last word, which checks the masks, has none."""
        left, parts = honest(len(self.names), settings.privacy.colluding), []
        for name, value in pack(answer).items():
            spread = wanted[name] / np.sqrt(left) * 2.0**phase.inner.fraction
            parts.append(noise(float(spread), int(np.size(value))))
        drawn = np.concatenate([*parts, np.zeros(1, np.int64)]).astype(np.int64)
        return fixed.added(words, fixed.from_integers(drawn, phase.inner.limbs))
