"""Phases `cards` and `roster`: clients make keys for one run and agree on who takes part, before anything is summed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import RefusedError, TrustError
from ...privacy.protection import Protection
from ..base import Answers, Array, Content, Nothing, Phase, array, number
from ..state import Cards, become

CODE = 16  # hexadecimal digits of a roster code


class MakeCards(Phase):
    """A key of each client for this run, signed with the key of its certificate."""

    name = "cards"
    doing = "making a key for the run"
    protect = Protection("Nothing about rows: a key, and who signs it.")
    subject = "keys"

    class Answer(Content):
        """A card."""

        key: Array = array("32", "public key for this run only", "Nothing about rows.", kind="uint8")
        certificate: Array = array("b", "the silo's certificate", "Who it is.", kind="uint8")
        signature: Array = array(
            "u", "of the run, its settings, the silo's name and the key, by the key of the certificate",
            "That the silo itself made the key.", kind="uint8",
        )  # fmt: skip

    def reply(self, keys: Any, ask: Nothing, settings: Any, round_no: int) -> tuple[Any, Answer]:
        """Make a key and sign it."""
        key, certificate, signature = (np.frombuffer(part, np.uint8) for part in keys.card(settings))
        return keys, self.Answer(key=key, certificate=certificate, signature=signature)

    def reduce(self, server: Any, answers: Answers, settings: Any) -> Any:
        """Keep the cards, to be shown to everybody."""
        said = [answers[cid] for cid in sorted(answers)]
        cards = Cards(
            names=tuple(sorted(answers)),
            keys=np.array([answer.key for answer in said]),
            certificates=np.concatenate([answer.certificate for answer in said]),
            signatures=np.concatenate([answer.signature for answer in said]),
            lengths=np.array([(len(answer.certificate), len(answer.signature)) for answer in said], np.int64),
        )
        return replace(server, cards=cards)


class Roster(Phase):
    """Everybody's card to everybody; who does not know one of them, or misses its own, ends the run."""

    name = "roster"
    doing = "checking who takes part"
    protect = Protection("Nothing about rows: a hash of what all were shown.")
    subject = "keys"
    rebuilds = True

    class Ask(Content):
        """All cards."""

        names: str = number("names of the silos, in order", "Who takes part.", kind="word")
        keys: Array = array("m 32", "their keys for this run", "Nothing about rows.", kind="uint8")
        certificates: Array = array("b", "their certificates, one after the other", "Who they are.", kind="uint8")
        signatures: Array = array("u", "their signatures, one after the other", "Nothing about rows.", kind="uint8")
        lengths: Array = array(
            "m 2", "how long each certificate and each signature is", "Nothing about rows.", kind="int64"
        )

    class Answer(Content):
        """What the client makes of it."""

        code: str = number(
            "16 digits of a hash of run, settings, names, certificates and keys",
            "Whether all silos were shown the same cards.", kind="word",
            check=lambda v, _: None if len(v) == CODE and set(v) <= set("0123456789abcdef") else "is no roster code",
        )  # fmt: skip

    def ask(self, server: Any, settings: Any) -> Ask:
        """All cards."""
        return become(server.cards, self.Ask, names=json.dumps(server.cards.names))

    def reply(self, keys: Any, ask: Ask, settings: Any, round_no: int) -> tuple[Any, Answer]:
        """Check every card."""
        return keys, self.Answer(code=keys.accept(shown_cards(ask), settings))

    def reduce(self, server: Any, answers: Answers, settings: Any) -> Any:
        """One code for all."""
        codes = {answer.code for answer in answers.values()}
        if len(codes) != 1:
            raise TrustError("silos were shown different cards; start a new run")
        return replace(server, cards=replace(server.cards, code=codes.pop()))


@dataclass(frozen=True)
class Card:
    """What a client shows of itself in one run."""

    key: bytes
    certificate: bytes
    signature: bytes


def shown_cards(ask: Any) -> Mapping[str, Card]:
    """The cards in a question, by name."""
    try:
        names = json.loads(ask.names)
    except ValueError:
        names = None
    parts, sizes = (ask.certificates, ask.signatures), ask.lengths.T.tolist()
    fits = isinstance(names, list) and all(isinstance(name, str) for name in names)
    fits = fits and len(names) == len(ask.keys) == len(ask.lengths) > 0
    if not fits or any(min(size) < 1 or sum(size) != len(part) for part, size in zip(parts, sizes, strict=True)):
        raise RefusedError("roster: the cards cannot be read")
    if sorted(set(names)) != names:
        raise RefusedError("roster: names are not in order, or one is there twice")
    each = (np.split(part, np.cumsum(size)[:-1]) for part, size in zip(parts, sizes, strict=True))
    return {name: Card(*(part.tobytes() for part in card)) for name, *card in zip(names, ask.keys, *each, strict=True)}


CARDS, ROSTER = MakeCards(), Roster()
