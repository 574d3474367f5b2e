"""What `fmtc join` does: take part with the rows of a silo, ask its person, and write what a run came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.status import Status

from ..artifacts import runs
from ..errors import ChangedError, DataError, TrustError, UsageError, WriteError, plural
from ..loading import read_settings
from ..privacy.budget import BUDGET, Budget
from ..privacy.ledger import LEDGER, read_lines, totals
from ..privacy.rules import RULES, WARN, Policy
from ..protocol.graph.round import ROUND
from ..protocol.mixture.em import EM
from ..protocol.private.view import LOOPS
from ..runtime.driver import RunRecord
from ..runtime.flare import membership
from ..runtime.flare.enrol import Roster
from ..runtime.flare.kits import Kit
from ..runtime.kitclient import ClientSource, KeptResult
from ..settings import Privacy
from ..tables.reading import Reading
from . import asking
from .federation import Limits, Taking
from .flags import Output, free_path
from .predict import word_lookup
from .words import Words, note_table, show_run, size_of

VIEWS = {"graph": "the graph view", "mixture": "the mixture view", "auto": "the view that suits the rows"}
ALONE = (  # labels are written without the coordinator's last word
    "the coordinator's last word about {what} did not come. Labels and model are complete; whether the run converged, "
    "and which clusters other silos share, is not known here"
)


def take_part(words: Words, kit_path: Path, taking: Taking, limits: Limits, reading: Reading) -> None:
    """Wait for runs and take part in them, until one has ended or, with --stay, for ever."""
    if taking.ask and not asking.at_terminal():
        raise click.UsageError("--ask is about answers that are to leave, and there is no terminal to ask at")
    kit = Kit.read(kit_path, "silo")
    kit.check()
    force = taking.force or taking.stay
    taking = replace(taking, out=free_path(taking.out, force, runs.is_run), force=force)
    source = ClientSource(
        kit.name, str(taking.data.resolve()), replace(reading, schema=reading.known_schema()),
        shown=True, ask=taking.ask, n_clusters=taking.n_clusters, **asdict(limits),
        rules=asdict(policy_of(taking.rules, kit.path, asking.at_terminal())),
    )  # fmt: skip
    with words.warnings_as_notes():
        size = look(words, source, kit.path)
    asking.ask_roster(words, kit, Roster.read(kit.startup), taking.accept_roster, dialled=False)
    plan = kit.plan
    words.say(f"silo {kit.name!r} of federation {plan.name!r}: {size}; dialling {plan.host}:{plan.port}")
    with words.console.status("") as status, membership.Membership(kit, source) as member:
        if taking.discard:
            member.discard()
        if member.unfinished:
            words.say(
                "the labels of the last run are in the kit; waiting for the coordinator's last word, for at most "
                f"{plan.lost_after:g} seconds if nobody answers"
            )
        joined = Joined(words, member, status, taking)
        for event in member.watch():
            joined.hear(event)
            if joined.done:
                break
    if joined.report is not None:
        words.give(joined.report)


def look(words: Words, source: ClientSource, kit: Path) -> str:
    """The size of the silo; rows that no run can use are noted, but do not keep it from a comparison of columns."""
    columns = source.columns()
    for question in columns.questions:
        words.note(question)
    try:
        silo = source.rows(kit)
    except DataError as error:
        words.note(f"{error} Until that is fixed no run can use these rows; joining for a comparison of columns only.")
        return f"{plural(columns.n_rows, 'row')}, {plural(columns.width, 'column')}"
    if source.reading.recipe is None:
        note_table(words, [silo], scaled=True)
    return size_of([silo]).partition(", ")[2]


def policy_of(path: Path | None, kit: Path, terminal: bool) -> Policy:
    """The rules of a silo: of a file, of its kit, or the default; who cannot be asked gets warnings by default.

    Parameters
    ----------
    path : Path, optional
        What --rules says.
    kit : Path
    terminal : bool
        Whether there is somebody to ask.
    """
    if path is None and not (kit / RULES).exists():
        return Policy() if terminal else Policy(dominance=WARN)
    path = path or kit / RULES
    policy = Policy.read(path)
    if policy.asks and not terminal:
        raise click.UsageError(
            f'{path} has you asked before answers leave, and there is no terminal to ask at; use "warn" or "refuse"'
        )
    return policy


class Joined:
    """A silo that takes part: shows what happens, asks its person, and writes what runs came to.

    Parameters
    ----------
    words : Words
    member : Membership
    status : Status
        Of the terminal.
    taking : Taking
    """

    def __init__(self, words: Words, member: membership.Membership, status: Status, taking: Taking):
        self.words, self.member, self.status, self.taking = words, member, status, taking
        self.report: dict[str, Any] | None = None  # of the last run
        self.done = False

    def hear(self, event: Mapping[str, Any]) -> None:
        """Show an event, and do what it asks for; afterwards `done` says whether to go on."""
        words = self.words
        match event["event"]:
            case "connected":
                words.say("connected; waiting for the coordinator to start a run")
                self.status.update("waiting")
            case "trouble":
                words.note(f"{event.get('why') or 'the coordinator does not accept us yet'}; trying again")
            case "restarted":
                words.note(f"our process ended and is started again; {event['log']} may say why")
            case "second party":
                words.note(
                    f"somebody else tried to join as {self.member.kit.name!r}, with a copy of this kit, and was "
                    "refused; if that was none of yours, have new kits made"
                )
            case "round":
                self.status.update(f"round {event['round']}")
            case "asked":
                words.say(in_words(event))
            case "roster" | "to leave":
                self.status.stop()
                self._ask(event)
                self.status.start()
            case "refused":
                raise DataError(event["why"])
            case "error":
                self._error(event)
            case "preflight":
                self._compared(event)
            case "confirmed":
                words.say("the coordinator knows now that this silo has its labels", "green")
                self.done = not self.taking.stay
            case "ended":
                self._ended(event)

    def _ask(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "to leave":
            asking.ask_answer(self.words, event, self.member.decide)
        else:
            asking.ask_roster(self.words, self.member.kit, event["roster"], self.taking.accept_roster)

    def _error(self, event: Mapping[str, Any]) -> None:
        if event.get("kind") == TrustError.__name__ and not self.taking.stay:
            raise TrustError(f"{event['why']}. Nothing was sent.")
        self.words.note(f"we could not answer: {event['why']}")

    def _compared(self, event: Mapping[str, Any]) -> None:
        sentences = [*(f"{error} (this stops a run)" for error in event["error"]), *event["note"]]
        for sentence in sentences:
            self.words.note(f"compared with the other silos, ours {sentence}")
        if not sentences:
            self.words.say("our columns match those of the other silos", "green")

    def _ended(self, event: Mapping[str, Any]) -> None:
        earlier, out = event["earlier"], self.taking.out
        if earlier:
            out = out.with_name(f"{out.name}-{event['run'][:8]}")
        if event.get("alone"):
            self.words.note(ALONE.format(what=f"an earlier run, which goes to {out}" if earlier else "this run"))
        member = self.member
        try:
            with self.words.warnings_as_notes():
                report = write_silo(self.words, member.source, member.kit.path, event, replace(self.taking, out=out))
        except (ChangedError, WriteError) as error:
            return self._not_written(error)
        member.deliver(event["run"])
        self.report = {"out": str(out), **report}
        show_run(self.words, report, out)
        self.done = not (self.taking.stay or earlier)

    def _not_written(self, error: Exception) -> None:
        """The labels stay in the kit; without --stay, the command ends."""
        if isinstance(error, ChangedError):
            why = f"{error} The labels stay in the kit until the next run"
            ending: Exception = ChangedError(
                f"{why}: bring the file back and join again, or give them up with --discard."
            )
        else:
            why = f"{error}. The labels are safe in the kit until the next run"
            ending = UsageError(f"{why}: make room, or join again with another --out.")
        if not self.taking.stay:
            raise ending from None
        self.words.note(f"{why}.")


def in_words(event: Mapping[str, Any]) -> str:
    """What a coordinator asks for, in a sentence."""
    if event["preflight"] == "only":
        return "the coordinator compares the silos' columns, and asks for nothing else"
    settings, first = event["settings"], "" if event["preflight"] == "no" else " after a comparison of columns"
    if "lowest" in settings:
        numbers = f"from {settings['lowest']} to {settings['n_clusters']}"
        return f"the coordinator asks how many clusters there are, {numbers}{first}; no model leaves"
    asked = f"the coordinator asks for {plural(settings['n_clusters'], 'cluster')}"
    if settings.get("clusters_per_silo") is not None:
        of_all = plural(settings["n_clusters"], "cluster")
        asked = f"the coordinator asks for clusters of your own, out of {of_all} of all silos"
    if not event.get("method", "fmtc").startswith("fmtc"):
        return f"{asked} by the method {event['method']}{first}"
    units = "" if settings["rho"] is None else ", in the paper's absolute units"
    return (
        f"{asked} in at most {plural(settings['max_iter'], 'round')}{first}: {VIEWS[settings['view']]}, coupling "
        f"{settings['coupling']}, scale {settings['scale']}{units}; {_privacy_in_words(settings.get('privacy'))}"
    )


def _privacy_in_words(privacy: Any) -> str:
    """What the coordinator will see, in a few words."""
    if privacy is None:
        return "no privacy: the coordinator sees our answers"
    if privacy == "sums":
        return "privacy by sums: the coordinator sees sums over all silos only"
    return f"differential privacy, epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g}"


# --------------------------------------------------------------------------------------------- what a run came to


def write_silo(
    words: Words, source: ClientSource, kit: Path, event: Mapping[str, Any], output: Output
) -> dict[str, Any]:
    """Write the folder of a run for one silo, what `fmtc fit` writes, of this silo alone; returns the report."""
    kept: KeptResult = event["result"]
    silo = replace(source.rows(kit), name=source.client_id)
    kept.check(silo, source.data)
    for note in kept.notes:
        words.note(note)
    model = read_settings(kit, kept.settings)
    lines = [line for line in read_lines(kit / LEDGER) if line["run"] == kept.run]
    n_iter = _rounds_of(kept, lines, model.privacy)
    rounds = plural(n_iter, "round")
    why = f"settled after {rounds}" if event["converged"] else f"{rounds} done"
    held = (silo.name,) if event.get("held") else ()
    result = RunRecord((), event["converged"], why, received=tuple(totals(lines)), held=held)
    model.n_features_in_ = silo.X.shape[1]
    model._adopt(result, {silo.name: kept.client}, n_iter=n_iter)
    reading = source.reading_in(kit)
    if reading.recipe is not None:
        model.text_recipe_ = reading.recipe
    if told := event.get("told"):
        told = {silo.name: list(zip(told["cosine"], told["flags"], strict=True))}
        model._fitted = replace(model._fitted, told=told)
    results = runs.results(model, [silo])
    report = runs.report(
        model, results, files=[Path(source.data)], as_published=False, seconds=kept.seconds, notes=words.notes,
        reading=replace(source.reading, schema=None),
    )  # fmt: skip
    heads = {silo.name: lines[-1]["hash"]} if lines else {}
    report["trust"] |= {"mode": runs.mode_of(model), "roster": kept.roster, "heads": heads}
    if isinstance(model.privacy, Privacy):
        report["trust"]["budget"] = _budget(source, kit, kept.data)
    word = word_lookup([Path(source.data)], reading)
    runs.write_run(output.out, output.force, model, results, report, words=word)
    return report


def _rounds_of(kept: KeptResult, lines: list[dict[str, Any]], privacy: Any) -> int:
    """How many rounds a silo was there for."""
    loop = EM if kept.client.model.kind == "mixture" else ROUND
    names = [phase.name for phase in (LOOPS if isinstance(privacy, Privacy) else [loop])]
    return len({line["round"] for line in lines if line["phase"] in names})


def _budget(source: ClientSource, kit: Path, rows: str) -> dict[str, Any]:
    """What the silo's rows have spent in all private runs so far, and what is left."""
    budget = Budget(kit / BUDGET, source.epsilon_budget)
    spent = budget.spent(rows)
    return {"spent": spent.epsilon, "delta": spent.delta, "left": budget.left(rows)}
