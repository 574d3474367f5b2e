"""The one gate out of a client: an answer is checked against its declaration, recorded, and only then sent."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..artifacts.files import read_tensors, write_tensors
from ..errors import LimitError, TrustError, WithheldError
from ..protocol.base import Failure, Message, Phase, entries, is_count, pack, unpack, value_bytes, value_digest
from ..protocol.sums.masking import Masking
from .ledger import FAILURE, RELEASE, REPLAY, Ledger
from .rules import ASK, REFUSE, Finding, Rules

if TYPE_CHECKING:
    from .keys import Keys

Charge = Callable[[float, float], None]  # squared mu and delta of a release; raises `TrustError` where it is too much


class Payloads:
    """Answers as they left, in files, so that the same question gets the same bytes; one folder per run."""

    def __init__(self, folder: Path):
        self.folder = folder

    def _path(self, message: Message, asked: str) -> Path:
        return self.folder / f"{message.phase}-{message.round_no:05d}-{message.turn}-{asked[:16]}.safetensors"

    def write(self, message: Message, asked: str, answer: Any) -> None:
        """Keep an answer; those of rounds that the server has safely are not needed any more."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        flat = pack(answer)
        arrays = {name: value for name, value in flat.items() if isinstance(value, np.ndarray)}
        values = {name: value for name, value in flat.items() if name not in arrays}
        path = self._path(message, asked)
        write_tensors(path, arrays, {"values": values})
        os.chmod(path, 0o600)
        for old in self.folder.glob(f"{message.phase}-*.safetensors"):
            if int(old.name[len(message.phase) + 1 :].partition("-")[0]) < message.last_round:
                old.unlink(missing_ok=True)

    def read(self, message: Message, asked: str, phase: Phase) -> Any | None:
        """The answer that was given to this very question; None where there is none."""
        path = self._path(message, asked)
        if not path.exists():
            return None
        arrays, about = read_tensors(path)
        return unpack(phase.Answer, {**arrays, **about["values"]})


class Outbox:
    """Everything that leaves a client passes `release` or `fail`.

    Parameters
    ----------
    ledger : Ledger
        Where each answer is recorded before it is sent.
    client_id, run_id : str
    payloads : Payloads, optional
        Where answers are kept, so that a question that is asked again gets the bytes it got before. Without, an answer
        is computed again, and is a replay where it comes out the same.
    keys : Keys, optional
        Masks the answers of phases of which only the sum may be seen; without, such an answer cannot leave.
    charge : callable, optional
        Told what a private answer costs before it leaves; see `fmtc.privacy.budget`.
    rules : Rules, optional
        What is looked at before an answer leaves in the clear. By default only that no centre is a row.
    """

    def __init__(
        self,
        ledger: Ledger,
        client_id: str,
        run_id: str,
        payloads: Payloads | None = None,
        keys: Keys | None = None,
        charge: Charge | None = None,
        rules: Rules | None = None,
    ):
        self.ledger, self.client_id, self.run_id = ledger, client_id, run_id
        self.payloads, self.keys, self.charge, self.rules = payloads, keys, charge, rules or Rules()
        self._warned: set[str] = set()  # rules that have been spoken of in this process
        self._approved: set[tuple[str, str]] = set()  # phases and rules of answers that a person let pass
        self._given: dict[tuple[Any, ...], list[dict[str, Any]]] = {}  # question -> fields of its answer
        self._count: Counter[str] = Counter()  # different answers of each phase
        for line in ledger.lines():
            if line["run"] == run_id and line["kind"] == RELEASE:
                key = line["phase"], line["round"], line["turn"], line["asked"]
                self._given[key] = line["fields"]
                self._count[line["phase"]] += bool(line["fields"])

    def earlier(self, phase: Phase, message: Message, context: str = "") -> Any | None:
        """The answer that this question got before, where it is kept."""
        asked = self.question(message, context)
        return self._kept(phase, self._first_asked(phase, message, asked), asked)

    def _kept(self, phase: Phase, message: Message, asked: str) -> Any | None:
        if self.payloads is None or (*message.key, asked) not in self._given:
            return None
        return self.payloads.read(message, asked, phase)

    def _first_asked(self, phase: Phase, message: Message, asked: str) -> Message:
        """The question where it came first: one that comes again when a run resumes does not depend on the round."""
        if not (phase.rebuilds and phase.releases) or (*message.key, asked) in self._given:
            return message
        same = (message.phase, message.turn, asked)
        rounds = [number for name, number, turn, question in self._given if (name, turn, question) == same]
        return replace(message, round_no=min(rounds)) if rounds else message

    def question(self, message: Message, context: str) -> str:
        """Digest of a question and of what else its answer depends on; empty where no answer is kept for it."""
        return "" if self.payloads is None else value_digest(message.asked + context)

    def release(
        self,
        phase: Phase,
        message: Message,
        answer: Any,
        sizes: Mapping[str, int],
        settings: Any,
        context: str = "",
        client: Any = None,
    ) -> Any:
        """Let an answer leave: check it, record it, and return what is to be sent.

        Parameters
        ----------
        phase : Phase
        message : Message
            The question.
        answer : phase.Answer
        sizes : mapping of letter to int
            What the client knows of the sizes in shapes.
        settings : object
            Settings of the run, for the limit on answers.
        context : str
            Digest of what else the answer depends on; the same question in another context is another question.
        client : object, optional
            The client's state after it replied, for the rules.

        Returns
        -------
        phase.Answer
            The answer, or the one that was given to the same question before.
        """
        asked = self.question(message, context)
        message = self._first_asked(phase, message, asked)
        before, findings = self._kept(phase, message, asked), list[Finding]()
        if before is not None:
            answer = before
        elif phase.releases:
            if isinstance(phase, Masking):
                phase.inner.check_answer(answer, message.ask, sizes)
                answer = self._sealed(phase, message, answer, settings, context)
            else:
                phase.check_answer(answer, message.ask, sizes)
                answer = self.rules.protect(phase, answer, client)
                findings = self.rules.check(phase, answer, client, first=not self._count[phase.name])
        phase.check_answer(answer, message.ask, sizes)
        fields = [self._described(name, value) for name, value in pack(answer).items()]
        key = (*message.key, asked)
        same = self._given.get(key) == fields
        if isinstance(phase, Masking) and key in self._given and not same:
            raise TrustError(
                f"{phase.name!r} of round {message.round_no} left before with other numbers; a second answer under the "
                "same mask would show the difference. Start a new run"
            )
        if not same and fields:
            self._admit(phase, message, fields, findings, settings)
            if self.payloads is not None:
                self.payloads.write(message, asked, answer)
        self._record(message, asked, REPLAY if same else RELEASE, fields, findings)
        if not same:
            self._given[key] = fields
            self._count[phase.name] += bool(fields)
        return answer

    def _admit(
        self, phase: Phase, message: Message, fields: list[dict[str, Any]], findings: Sequence[Finding], settings: Any
    ) -> None:
        """Let a new answer pass: its number, the rules, the person, the budget."""
        limit = phase.limit(settings)
        if self._count[phase.name] >= limit:
            raise LimitError(
                f"silo {self.client_id!r} answers {phase.name!r} at most {limit} times in a run, and has done so"
            )
        self._obey(findings)
        self._ask_person(phase, message, fields, findings)
        cost = phase.charge(settings)
        if cost and self.charge is not None:  # on disk before anything leaves: a crash can only charge too much
            self.charge(cost, settings.privacy.delta)

    def _sealed(self, phase: Masking, message: Message, answer: Any, settings: Any, context: str) -> Any:
        """What may leave of an answer of which only the sum may be seen."""
        if self.keys is None:
            raise TrustError(f"silo {self.client_id!r} has no keys to mask {phase.name!r} with")
        return self.keys.seal(phase, message, answer, settings, context)

    def fail(self, message: Message | None, error: BaseException) -> Failure:
        """Let the kind of an error leave, and nothing else of it."""
        answer = Failure(error=type(error).__name__)
        fields = [self._described(name, value) for name, value in pack(answer).items()]
        self._record(placed(message), "", FAILURE, fields)
        return answer

    def _record(
        self, message: Message, asked: str, kind: str, fields: list[dict[str, Any]], findings: Sequence[Finding] = ()
    ) -> None:
        rules = {"rules": sorted({finding.rule for finding in findings})} if findings else {}
        self.ledger.append(
            {
                "client": self.client_id, "run": self.run_id, "phase": message.phase, "round": int(message.round_no),
                "turn": int(message.turn), "asked": asked, "kind": kind, "fields": fields, **rules,
            }
        )  # fmt: skip

    def _described(self, name: str, value: Any) -> dict[str, Any]:
        """One field of an answer as the ledger has it: never the value itself."""
        return {
            "field": name,
            "shape": list(np.shape(value)),
            "type": value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__,
            "bytes": value_bytes(value),
            "sha256": value_digest(value),
        }

    def _obey(self, findings: Sequence[Finding]) -> None:
        """Refuse what a rule refuses; warn of the rest, once for each rule."""
        for finding in findings:
            if finding.action == REFUSE:
                raise TrustError(f"silo {self.client_id!r} does not answer: {finding.sentence}")
            if finding.rule not in self._warned:
                self._warned.add(finding.rule)
                warnings.warn(f"before an answer left: {finding.sentence}", UserWarning, stacklevel=3)

    def _ask_person(
        self, phase: Phase, message: Message, fields: list[dict[str, Any]], findings: Sequence[Finding]
    ) -> None:
        """Wait for a person's yes before the first answer of a phase, and before the first that a rule asks about."""
        doubts = [one for one in findings if one.action == ASK and (phase.name, one.rule) not in self._approved]
        if not doubts and (not self.rules.always or self._count[phase.name]):
            return
        why = [finding.sentence for finding in doubts]
        if self.rules.ask is None:
            because = why[0] if why else "it is the first of its kind"
            raise WithheldError(f"the answer to {phase.name!r} waits for a yes, and there is nobody to ask: {because}")
        declared = entries(phase.Answer)
        shown = [
            entry | {"what": declared[entry["field"]].what, "tells": declared[entry["field"]].tells} for entry in fields
        ]
        about = {"run": self.run_id, "phase": phase.name, "round": message.round_no, "fields": shown}
        if not self.rules.ask(about | ({"why": why} if why else {})):
            raise WithheldError(f"the answer to {phase.name!r} was withheld")
        self._approved |= {(phase.name, finding.rule) for finding in doubts}


def placed(message: Message | None) -> Message:
    """Where in a run a failure happened; what a message says of that may be the very thing that is wrong with it."""
    if message is None:
        return Message("", None)
    named = isinstance(message.phase, str) and message.phase.isidentifier() and len(message.phase) < 100
    numbers = [value if is_count(value) else 0 for value in (message.round_no, message.turn)]
    return Message(message.phase if named else "", None, round_no=numbers[0], turn=numbers[1])
