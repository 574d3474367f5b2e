"""What `fmtc coordinate` does: wait for silos, run, keep the consensus; and a run of its own to ask them something."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from ..advice import Advice, advice_of
from ..artifacts import runs
from ..artifacts.files import COUNT, new_folder, read_json, sweep, write_json
from ..artifacts.locks import locked
from ..describe.words import held_words
from ..errors import ClientError, DifferError, FederationError, UsageError, WriteError, listed
from ..estimator import FMTC
from ..protocol.advice import METHOD as ADVICE
from ..protocol.advice import advice_settings, range_of
from ..protocol.base import sent
from ..protocol.method import COMMON, view_method
from ..protocol.state import checked_weights
from ..runtime.conductor import LATE, RESULT, finished, read_record, unconfirmed
from ..runtime.events import EVENTS
from ..runtime.flare.enrol import Roster
from ..runtime.flare.kits import Kit
from ..runtime.flare.supervise import Coordinator, supervise
from ..runtime.spec import RunSpec
from ..settings import Settings
from ..tables import Finding
from .asking import show_roster
from .check import Comparison
from .federation import Leading
from .flags import free_path
from .live import Rounds
from .program import if_interrupted
from .words import Words, show_end

ORDER = "order.json"  # in the coordinator's folder of a run: its `RunSpec`
HOW_MANY = "asking the silos how many clusters there are"
CONSENSUS = "consensus.safetensors"  # in the folder that `coordinate` writes


def coordinator_of(path: Path) -> Coordinator:
    """The coordinator whose kit is in a folder, whole and unchanged."""
    kit = Kit.read(path, "coordinator")
    kit.check()
    return Coordinator(kit)


def ask_advice(words: Words, coordinator: Coordinator, model: FMTC, **how: Any) -> Advice:
    """The advice of a federation's silos, by a run of its own over an open coordinator.

    Parameters
    ----------
    words : Words
    coordinator : Coordinator
    model : FMTC
        Its `n_clusters` is "auto" or a range.
    **how
        Of `RunSpec`: min_clients, deadline, wait.
    """
    settings = advice_settings(model._settings(n_clusters=2), range_of(model.n_clusters))
    with tempfile.TemporaryDirectory() as folder, Rounds(words, HOW_MANY) as rounds:
        spec = RunSpec(secrets.token_hex(8), settings, Path(folder), method_name=ADVICE.name, **how)
        supervise(coordinator, spec, rounds.hear)
        result, _ = read_record(spec.folder / RESULT)
    return advice_of(result.common, result.client_ids)


def ask_columns(words: Words, coordinator: Coordinator, n_clusters: int, wait: float) -> Comparison:
    """Ask the silos of a federation for their columns, compare them, and tell each how its own differ."""
    found: list[Finding] = []

    def listen(event: Mapping[str, Any]) -> None:
        if event["event"] == "surveyed":
            found.extend(Finding(**finding) for finding in event["findings"])
        else:
            rounds.hear(event)

    plan, settings = coordinator.kit.plan, Settings(n_clusters=n_clusters)
    before = f"federation {plan.name!r}: starting the server"
    with tempfile.TemporaryDirectory() as folder, Rounds(words, before) as rounds, suppress(DifferError):
        spec = RunSpec(secrets.token_hex(8), settings, Path(folder), deadline=60.0, wait=wait, preflight="only")
        supervise(coordinator, spec, listen)
    return Comparison(plan.silos, found)


class Lead:
    """A run of a federation from the coordinator's command line, and what is left of an earlier one.

    Parameters
    ----------
    words : Words
    model : FMTC
        Not fitted.
    coordinator : Coordinator
        Not open yet.
    how : Leading
    settings : mapping
        What the flags of the model said.
    """

    def __init__(self, words: Words, model: FMTC, coordinator: Coordinator, how: Leading, settings: Mapping[str, Any]):
        self.words, self.model, self.coordinator, self.how = words, model, coordinator, how
        self.kit = kit = coordinator.kit
        self.as_published = settings["as_published"]
        self.waiting: dict[str, Any] = {"min_clients": how.min_clients, "deadline": how.deadline, "wait": how.wait}
        how.check(len(kit.plan.silos))
        if isinstance(model.clusters_per_silo, Mapping):
            if isinstance(model.n_clusters, str):
                raise click.UsageError(
                    "--clusters-per-silo SILO=NUMBER needs -k: how many clusters all silos have together"
                )
            model._check_names(kit.plan.silos)
        self.weights = checked_weights(settings["silo_weights"], kit.plan.silos)
        self.roster = Roster.read(kit.startup)
        self.written = how.resume and not how.force and is_consensus(how.out)
        self.force = how.force or self.written
        self.out = free_path(how.out, self.force, is_consensus)
        self.folder = self.out.parent.resolve() / f".{self.out.name}.checkpoint"
        self.folder.parent.mkdir(parents=True, exist_ok=True)

    def run(self, *, accept_units: bool) -> None:
        """Run, and write what it came to to `out`, unless nothing was left to do."""
        show_roster(self.words, self.roster)
        lock = self.folder.with_suffix(".lock")
        with self.coordinator, locked(lock, f"the run that goes to {self.out}"):
            self.how.keep(self.folder)
            run_id, n_clusters = self._interrupted()
            sweep(self.out)
            if self.written and self._is_complete(run_id):
                return
            if isinstance(self.model.n_clusters, str):
                self.model.n_clusters = n_clusters or self._advised()
            settings = replace(self.model._settings(), calibrate=self.how.calibrate)
            spec = RunSpec(
                run_id or secrets.token_hex(8), settings, self.folder, weights=self.weights,
                random_state=self.model.random_state, preflight="no" if self.how.no_preflight else "first",
                accept_units=accept_units, **self.waiting,
            )  # fmt: skip
            if_interrupted("; the same command with --resume continues from the last round")
            self._supervise(spec, is_new=run_id is None)
            waiting = unconfirmed(self.folder, finished(spec))
            report = self._finish(keep=bool(waiting))
        self.words.give({"out": str(self.out), **report, "history": read_json(self.out / "history.json")})
        if waiting:
            raise ClientError(
                f"{listed(waiting)} {'has' if len(waiting) == 1 else 'have'} not confirmed having labels. Have them "
                "join again, and run the same command with --resume; nothing is needed from the other silos. Where "
                "labels were ready, `fmtc join` writes them also without a coordinator."
            )

    def _interrupted(self) -> tuple[str | None, int | None]:
        """Name of the interrupted run to resume, and its number of clusters; None for those that are not known."""
        if not self.how.resume or not (self.folder / ORDER).exists():
            return None, None
        order = read_json(self.folder / ORDER, {"run": str, "settings?": {"n_clusters?": COUNT}})
        return order["run"], order.get("settings", {}).get("n_clusters")

    def _is_complete(self, run_id: str | None) -> bool:
        """Whether the run in `out` needs nothing more, also of silos; then what is left of it is removed."""
        about = read_record(self.out / CONSENSUS)[1]
        if run_id is not None and run_id != about["run"]:
            raise click.UsageError(f"{self.out} holds another run than {self.folder}; replace it with --force --resume")
        if run_id is not None and unconfirmed(self.folder, about):
            return False
        tidy(self.folder, keep=False)
        self.words.say(
            f"the run in {self.out} is complete, and all silos have their labels: there is nothing to resume", "green"
        )
        return True

    def _advised(self) -> int:
        """The number of clusters that the silos' rows speak for, by a run of its own before the run."""
        advice = ask_advice(self.words, self.coordinator, self.model, **self.waiting)
        self.words.note(str(advice))
        return advice.chosen

    def _supervise(self, spec: RunSpec, *, is_new: bool) -> None:
        """Run to the end, whatever happens on the way."""
        plan = self.kit.plan
        before = f"federation {plan.name!r} at {plan.host}:{plan.port}: starting the server"
        try:
            with Rounds(self.words, before, self.model.max_iter, self.model.tol) as rounds:
                self.coordinator.open()
                if is_new:  # not before the server is up: until then nothing of an earlier run is touched
                    if self.how.resume:
                        self.words.note("there is no interrupted run to resume; starting a new one")
                    shutil.rmtree(self.folder, ignore_errors=True)
                    self.folder.mkdir(parents=True, mode=0o700)
                    write_json(self.folder / ORDER, spec.to_dict())
                supervise(self.coordinator, spec, rounds.hear)
        except DifferError:
            shutil.rmtree(self.folder, ignore_errors=True)  # nothing was learnt
            raise
        except (ClientError, FederationError) as error:
            if finished(spec) is None:
                raise
            self.words.note(f"the run is over, but a silo may not know it: {error}")

    def _finish(self, *, keep: bool) -> dict[str, Any]:
        """Write the result to `out`, and tidy up but for what silos without labels need; the report."""
        roster = {"code": self.roster.code, "silos": self.roster.fingerprints}
        known = {"federation": self.kit.plan.name, "roster": roster}
        try:
            report = write_consensus(
                self.words, self.out, self.force, self.model, self.folder / RESULT, known, self.as_published
            )
        except WriteError as error:
            raise UsageError(
                f"{error}. The result is safe in {self.folder}: make room, and repeat the command with --resume"
            ) from None
        tidy(self.folder, keep=keep)
        show_end(self.words, report)
        drawn = ", atlas.json" if (self.out / runs.ATLAS).is_file() else ""
        self.words.say(
            f"wrote {self.out}: consensus.safetensors, history.json, report.json{drawn}; labels and models are with "
            "the silos"
        )
        return report


def tidy(folder: Path, *, keep: bool) -> None:
    """Remove the coordinator's folder of a run; with `keep`, all but what silos without labels need."""
    if not keep:
        return shutil.rmtree(folder, ignore_errors=True)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in (ORDER, RESULT, LATE, EVENTS):
            path.unlink()


def is_consensus(folder: Path) -> bool:
    """Whether `coordinate` wrote a folder."""
    return (folder / "report.json").is_file() and (folder / CONSENSUS).is_file()


def write_consensus(
    words: Words,
    out: Path,
    force: bool,
    model: FMTC,
    file: Path,
    known: Mapping[str, Any],
    as_published: bool = False,
) -> dict[str, Any]:
    """Write the folder of a run at the coordinator, consensus, history and report; returns the report.

    Parameters
    ----------
    words : Words
    out : Path
    force : bool
    model : FMTC
        Not fitted.
    file : Path
        The result of the run, of `fmtc.runtime.conductor.write_record`.
    known : mapping
        What else is known of the run: its federation, the roster.
    as_published : bool
        Whether the paper's settings were the defaults.
    """
    result, about = read_record(file)
    for silo in result.missing:
        words.note(f"silo {silo!r} was lost and has no model of this run")
    if result.held:
        words.note(held_words(result.held))
    report = {
        **runs.OF_COORDINATOR.head,
        "versions": runs.versions(),
        **known,
        "settings": model._params() | {"as_published": as_published},
        "seconds": words.seconds,
        "notes": words.notes,
        "sent": sent((*COMMON, *view_method(model.view, model.privacy).phases), result.received),
        **({"view": about["view"], "view_reason": about["why"]} if about.get("view") else {}),
        "coupling": result.shared and result.shared.coupling(model),
        **({"n_features": about["n_features"]} if about.get("n_features") else {}),
        "trust": runs.trust(result, result.client_ids, runs.mode_of(model)),
        **{name: about[name] for name in ("client_ids", "missing", "n_iter", "converged", "stopped_because")},
    }
    with new_folder(out, overwrite=force, private=True) as part:
        shutil.copyfile(file, part / CONSENSUS)
        write_json(part / "history.json", [asdict(record) for record in result.rounds])
        write_json(part / "report.json", report)
        if about.get("atlas"):
            runs.write_document(part / runs.ATLAS, about["atlas"])
    return report
