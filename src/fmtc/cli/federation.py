"""Commands that run a federation: coordinate and join; `fit --processes`. `kits` has those that set one up."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
import numpy as np
from rich.console import Group as Stack
from rich.filesize import decimal
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ..artifacts import runs
from ..artifacts.files import new_folder, read_json, sweep, write_json
from ..errors import (
    ChangedError,
    ClientError,
    DataError,
    DifferError,
    FederationError,
    FileError,
    TrustError,
    UsageError,
    WriteError,
    listed,
)
from ..privacy.floor import Floor
from ..privacy.ledger import LEDGER, MemoryLedger, read_lines, totals
from ..protocol.base import plain
from ..schema import Schema
from ..tables.reading import Reading
from .check import show_findings
from .kits import ask_roster, confirmed, show_roster
from .options import (
    SILO,
    accept_units_option,
    deadline_option,
    free_path,
    min_clients_option,
    n_clusters_option,
    out_option,
    quiet_option,
    random_state_option,
    reading_options,
)
from .program import Option, main_group
from .settings import bind_bounds, build_model, model_options
from .words import (
    Words,
    most_rounds,
    new_table,
    note_table,
    plural,
    print_json,
    show,
    show_end,
    show_indented,
    show_run,
    size_of,
)

if TYPE_CHECKING:
    from ..estimator import FMTC
    from ..privacy.rules import Policy
    from ..runtime.driver import RoundRecord, RunRecord
    from ..runtime.kitclient import ClientSource, KeptResult
    from ..tables import Silo

SHOWN_ROUNDS = 8


# --------------------------------------------------------------------------------------------------- events of a run


class View:
    """Shows the events of a run: one live table on a terminal, a line each elsewhere, nothing when quiet."""

    def __init__(self, words: Words, max_iter: int, names: Mapping[str, str], before: str):
        self.words, self.max_iter, self.names = words, max_iter, names
        self.live = words.console.is_terminal and not words.console.is_dumb_terminal and not words.quiet
        self.records: deque[RoundRecord] = deque(maxlen=SHOWN_ROUNDS)
        self.seconds: list[float] = []
        self.status = before
        self.screen = Live(console=words.console, refresh_per_second=8, transient=True, get_renderable=self._draw)
        if not self.live:
            words.say(before)

    def __enter__(self) -> Self:
        if self.live:
            self.screen.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.screen.stop()

    def site(self, event: Mapping[str, Any]) -> str:
        """The silo an event is about, in the user's words."""
        name = str(event.get("site", "")).removeprefix("silo-")
        return self.names.get(name, name)

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event in."""
        kind = event["event"]
        silos = ", ".join(self.names.get(silo, silo) for silo in event.get("silos", event.get("missing", ())))
        sentences = {
            "waiting": f"waiting for {silos}",
            "submitted": f"starting with {silos}",
            "started": "silos prepare their rows",
            "done": "finding clusters",
            "over": f"the run is over; waiting for {silos} to confirm having labels",
        }
        notes = {
            "away": f"{self.site(event)} was lost",
            "silo back": f"{silos} is back; resuming from the last round",
            "job gone": f"{event.get('why')}; resuming from the last round",
            "server lost": "the server process was lost; starting it again and resuming from the last round",
            "lost": f"{event.get('why')}; resuming from the last round",
            "refused": f"a message of {self.site(event)} was refused: {event.get('why')}",
            "second party": f"somebody else tried to join as {event.get('silo')!r}, with a copy of its kit, and was "
            "refused: ask that silo whether it knows of it",
        }
        if kind in sentences:
            self.status = sentences[kind]
            if not self.live:
                self.words.say(self.status)
        elif kind in notes:
            self.words.note(notes[kind])
        elif kind == "surveyed" and event["findings"]:
            from ..tables import Finding

            show_findings(self.words, event["silos"], [Finding(**finding) for finding in event["findings"]])
        elif kind == "round":
            from ..runtime.driver import RoundRecord

            record = RoundRecord.from_dict(event["record"])
            self.records.append(record)
            self.seconds.append(record.seconds)
            self.status = record.title
            if not self.live:
                away = f", without {', '.join(record.missing)}" if record.missing else ""
                self.words.say(
                    f"{record.title}: {record.standing}, {decimal(record.bytes_up)} up, "
                    f"{decimal(record.bytes_down)} down, {record.seconds:.1f} s{away}"
                )

    def _draw(self) -> Stack:
        table = new_table()
        for title in ("round", "standing", "answered", "up", "down", "seconds"):
            table.add_column(title, justify="left" if title == "standing" else "right")
        for record in self.records:
            there = len(self.names) - len(record.missing)
            answered = f"{there} of {len(self.names)}"
            if record.missing:
                answered += f" (without {', '.join(record.missing)})"
            table.add_row(
                record.title.replace(" round", ""), record.standing, answered,
                decimal(record.bytes_up), decimal(record.bytes_down), f"{record.seconds:.2f}",
            )  # fmt: skip
        left = ""
        if self.records:
            last = self.records[-1]
            rounds = most_rounds(last, self.max_iter) - last.step
            usual = float(np.median(self.seconds[-10:]))
            of = "mixture" if last.in_mixture else "graph"  # where the view is chosen, the other may follow
            if rounds * usual >= 1:
                left = f", at most {timedelta(seconds=round(rounds * usual))} left for the {of} rounds"
        return Stack(Spinner("dots", Text(self.status + left)), *([table] if self.records else []))


# ------------------------------------------------------------------------------------------------- on this machine


def fit_by_processes(
    words: Words,
    model: FMTC,
    silos: Sequence[Silo],
    files: Sequence[Path],
    reading: Reading,
    **how: Any,
) -> tuple[list[Silo], list[str]]:
    """Fit a model by a federation on this machine; the silos that have one, and the names of those that were lost.

    Makes keys and certificates in a temporary place, starts a server and one process per file, which talk over mutual
    TLS on the loopback interface, runs, and stops them all.

    Parameters
    ----------
    words : Words
    model : FMTC
        Is fitted.
    silos : sequence of Silo
        Read from the files.
    files : sequence of Path
    reading : Reading
        How they were read.
    **how
        Of the run: min_clients, deadline.
    """
    from ..estimator import advised
    from ..runtime.flare.local import LocalFederation
    from ..runtime.kitclient import ClientSource
    from ..tables.formats import stem_of

    types = silos[0].schema
    if types is not None:
        model.schema_ = types
    _check_numbers(model, [silo.name for silo in silos])
    weights = model._weights(silo.name for silo in silos)
    places = {stem_of(path): str(path.resolve()) for path in files}
    reading = replace(reading, columns=(), as_types={}, judge=False, schema=types)
    sources = [
        ClientSource(silo.name, places[silo.name], replace(reading, id_column=silo.id_name), reading.salt)
        for silo in silos
    ]
    names = {str(place): silo.name for place, silo in enumerate(silos, start=1)}
    with (
        View(words, model.max_iter, names, f"{size_of(silos)}: starting processes") as view,
        LocalFederation(sources) as fed,
    ):
        lines, before = advised(model, fed, listen=view, **how)
        outcome = fed.run(model.settings(), weights=weights, listen=view, **how)
    for cid in outcome.missing:
        words.note(f"silo {cid!r} was lost and has no model")
    silos = [silo for silo in silos if silo.name in outcome.kept]
    for silo in silos:
        outcome.kept[silo.name].check(silo, places[silo.name])
    adopt(words, model, outcome, outcome.kept, silos)
    model.received_ = [*before, *model.received_]
    model._ledgers = {cid: MemoryLedger([*lines.get(cid, ()), *own]) for cid, own in outcome.ledgers.items()}
    return silos, list(outcome.missing)


def check_count(flag: str, value: int | None, most: int) -> None:
    """Refuse a number of silos that is none, or more than there are."""
    if value is not None and not 1 <= value <= most:
        raise click.UsageError(f"{flag} must lie between 1 and the {most} silos there are, got {value}")


def adopt(
    words: Words,
    model: FMTC,
    result: RunRecord,
    kept: Mapping[str, KeptResult],
    silos: Sequence[Silo],
    n_iter: int | None = None,
) -> None:
    """Make an estimator of what the silos kept, as if it had been fitted here, and repeat their notes."""
    for silo in silos:
        for note in kept[silo.name].notes:
            words.note(note)
    clients = {silo.name: kept[silo.name].client for silo in silos}
    model._adopt(result, clients, n_features=silos[0].X.shape[1], n_iter=n_iter)


# ------------------------------------------------------------------------------------------------------- many sites


kit_option = click.option("--kit", "kit_path", type=click.Path(path_type=Path), required=True, cls=Option,
                          help="Your kit: `fmtc federation request` made it; the coordinator's, `init`.")  # fmt: skip


@main_group.command(
    short_help="Lead a federation: start the server, run, keep the consensus.",
    epilog="""\b
Examples:
  fmtc coordinate --kit coordinator -k 4 --out run
  fmtc coordinate --kit coordinator -k 4 --out run --min-clients 3 --wait 300
  fmtc coordinate --kit coordinator -k 4 --out run --resume""",
)
@kit_option
@n_clusters_option
@out_option
@random_state_option
@min_clients_option
@deadline_option
@click.option("--wait", type=float, default=600.0, show_default=True, cls=Option,
              help="Seconds to wait for silos that are not there.")  # fmt: skip
@click.option("--no-preflight", is_flag=True, cls=Option, help="Do not compare the silos' columns first.")
@accept_units_option
@click.option("--force", is_flag=True, cls=Option, help="Replace --out, and forget an interrupted run.")
@click.option("--resume", is_flag=True, cls=Option, help="Resume an interrupted run of the same command.")
@click.option("--schema", type=click.Path(path_type=Path), cls=Option,
              help="The schema.toml of the silos, where columns are categories.")  # fmt: skip
@quiet_option
@model_options
@click.pass_context
def coordinate(
    ctx: click.Context,
    /,
    kit_path: Path,
    out: Path,
    min_clients: int | None,
    deadline: float,
    wait: float,
    no_preflight: bool,
    accept_units: bool,
    force: bool,
    resume: bool,
    schema: Path | None,
    quiet: bool,
    as_published: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Lead a federation: start the server, wait for the silos, run, survive what happens on the way.

    A silo that is lost, or a process that dies, does not end the run: it resumes from the last round when enough
    silos are back. Writes to --out: consensus.safetensors, history.json and report.json; no row comes here.

    Ends with exit code 5 where a silo has not confirmed that it has its labels. --resume then serves that silo when it
    joins again; nothing is needed from the others.
    """
    from ..artifacts.locks import held
    from ..runtime.conductor import RESULT, finished, unconfirmed
    from ..runtime.flare.enrol import Roster
    from ..runtime.flare.kits import Kit
    from ..runtime.flare.supervise import Coordinator, supervise
    from ..runtime.spec import RunSpec

    started = time.perf_counter()
    words = Words(quiet)
    model = build_model(settings, as_published, advises=True)
    if schema is not None:
        model.schema_ = Schema.read(schema)
        bind_bounds(model, settings["bounds"], model.schema_)
    kit = Kit.read(kit_path, "coordinator")
    kit.check()
    plan = kit.plan
    check_count("--min-clients", min_clients, len(plan.silos))
    _check_numbers(model, plan.silos)
    weights = model._weights(plan.silos)
    roster = Roster.read(kit.startup)
    written = resume and not force and _is_consensus(out)
    out = free_path(out, force or written, _is_consensus)
    folder = out.parent.resolve() / f".{out.name}.checkpoint"
    folder.parent.mkdir(parents=True, exist_ok=True)
    names = {silo: silo for silo in plan.silos}
    show_roster(words, roster)
    before = f"federation {plan.name!r} at {plan.host}:{plan.port}: starting the server"
    with Coordinator(kit) as coordinator, held(folder.with_suffix(".lock"), f"the run that goes to {out}"):
        run_id, advised = _run_to_resume(folder, resume, force)
        sweep(out)
        if written and _is_complete(words, out, folder, run_id):
            return
        if isinstance(model.n_clusters, str):
            model.n_clusters = advised or _ask_how_many(words, coordinator, model, names, min_clients, deadline, wait)
        spec = RunSpec(
            run_id or secrets.token_hex(8), model.settings(), folder, min_clients, weights, deadline, wait,
            preflight="no" if no_preflight else "first", accept_units=accept_units, random_state=model.random_state,
        )  # fmt: skip
        ctx.meta["fmtc.interrupted"] = "; the same command with --resume continues from the last round"
        try:
            with View(words, model.max_iter, names, before) as view:
                coordinator.open()
                if run_id is None:  # not before the server is up: until then nothing of an earlier run is touched
                    if resume:
                        words.note("there is no interrupted run to resume; starting a new one")
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir(parents=True, mode=0o700)
                    write_json(folder / ORDER, spec.to_dict())
                supervise(coordinator, spec, view)
        except DifferError:
            shutil.rmtree(folder, ignore_errors=True)  # nothing was learnt
            raise
        except (ClientError, FederationError) as error:
            if finished(spec) is None:
                raise
            words.note(f"the run is over, but a silo may not know it: {error}")
        about = finished(spec)
        assert about is not None
        members = {"code": roster.code, "silos": roster.fingerprints}
        waiting = unconfirmed(folder, about)
        try:
            report = _write_consensus(
                words, out, force or written, model, as_published, plan.name, folder / RESULT, started, members
            )
        except WriteError as error:
            raise UsageError(
                f"{error}. The result is safe in {folder}: make room, and repeat the command with --resume"
            ) from None
        _tidy(folder, keep=bool(waiting))
    show_end(words, report)
    drawn = ", atlas.json" if (out / runs.ATLAS).is_file() else ""
    words.say(
        f"wrote {out}: consensus.safetensors, history.json, report.json{drawn}; labels and models are with the silos"
    )
    if as_json:
        print_json({"out": str(out), **report, "history": read_json(out / "history.json")})
    if waiting:
        raise ClientError(
            f"{listed(waiting)} {'has' if len(waiting) == 1 else 'have'} not confirmed having labels. Have them join "
            "again, and run the same command with --resume; nothing is needed from the other silos. Where labels were "
            "ready, `fmtc join` writes them also without a coordinator."
        )


def _is_complete(words: Words, out: Path, folder: Path, run_id: str | None) -> bool:
    """Whether a run that was written to `out` needs nothing more, also of silos; then what is left of it is removed."""
    from ..runtime.conductor import read_record, unconfirmed

    about = read_record(out / CONSENSUS)[1]
    if run_id is not None and run_id != about["run"]:
        raise click.UsageError(f"{out} holds another run than {folder}; replace it with --force --resume")
    if run_id is not None and unconfirmed(folder, about):
        return False
    _tidy(folder, keep=False)
    words.say(f"the run in {out} is complete, and all silos have their labels: there is nothing to resume", "green")
    return True


def _tidy(folder: Path, *, keep: bool) -> None:
    """Remove the coordinator's folder of a run; with `keep`, all but what silos without labels need."""
    from ..runtime.conductor import LATE, RESULT
    from ..runtime.events import EVENTS

    if not keep:
        return shutil.rmtree(folder, ignore_errors=True)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in (ORDER, RESULT, LATE, EVENTS):
            path.unlink()


def _check_numbers(model: FMTC, silos: Iterable[str]) -> None:
    """Refuse numbers of clusters that leave out a silo, or the number of concepts, which nobody can propose here."""
    if isinstance(model.n_clusters, Mapping):
        if model.n_concepts is None:
            raise click.UsageError("-k SILO=NUMBER needs --concepts: how many clusters all silos have together")
        model._check_names(silos)


ORDER = "order.json"  # in the coordinator's folder of a run: its `RunSpec`
CONSENSUS = "consensus.safetensors"  # in the folder that `coordinate` writes


def _ask_how_many(words: Words, coordinator: Any, model: FMTC, names: Mapping[str, str], *how: Any) -> int:
    """The number of clusters that the silos' rows speak for, by a run of its own before the run."""
    from .advice import ask_silos

    waiting = dict(zip(("min_clients", "deadline", "wait"), how, strict=True))
    with (
        tempfile.TemporaryDirectory() as folder,
        View(words, 0, names, "asking the silos how many clusters there are") as view,
    ):
        advice = ask_silos(coordinator, model, Path(folder), view, **waiting)
    words.note(advice.text)
    return advice.chosen


def _run_to_resume(folder: Path, resume: bool, force: bool) -> tuple[str | None, int | None]:
    """Name of the interrupted run to resume, and its number of clusters.

    None to start a new one, which needs --force if there is an old one.
    """
    if folder.exists() and not (resume or force):
        raise click.UsageError(
            f"{folder} holds an interrupted run; resume it with --resume, or start again with --force"
        )
    if not resume or not (folder / ORDER).exists():
        return None, None
    document = read_json(folder / ORDER)
    if not isinstance(document, dict) or not isinstance(document.get("run"), str):
        raise FileError(f"{folder / ORDER} is damaged: it does not name a run; start again with --force")
    settings = document.get("settings", document)  # an earlier fmtc had the number of clusters beside the name
    k = settings.get("n_clusters") if isinstance(settings, dict) else None
    return str(document["run"]), k if type(k) is int and k > 0 else None


def _write_consensus(
    words: Words,
    out: Path,
    force: bool,
    model: FMTC,
    as_published: bool,
    federation: str,
    file: Path,
    started: float,
    roster: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The folder of a run at the coordinator: consensus, history and report."""
    from ..describe import held_words
    from ..protocol.method import view_method
    from ..runtime.conductor import read_record

    result, about = read_record(file)
    for silo in result.missing:
        words.note(f"silo {silo!r} was lost and has no model of this run")
    if result.held:
        words.note(held_words(result.held))
    report = {
        "kind": "fmtc consensus report",
        "schema": runs.REPORT_FORMAT,
        "versions": runs.versions(),
        "federation": federation,
        **({"roster": roster} if roster is not None else {}),
        "settings": model._params() | {"as_published": as_published},
        "seconds": time.perf_counter() - started,
        "notes": words.notes,
        "sent": view_method(model.view, model.privacy).sent(result.received),
        **({"view": about["view"], "view_reason": about["why"]} if about.get("view") else {}),
        "coupling": result.shared and result.shared.coupling(model),
        **({"n_features": about["n_features"]} if about.get("n_features") else {}),
        "trust": {"mode": _mode(model.privacy), "roster": about.get("roster", ""), "promise": None, "heads": {}}
        | runs.trust(result.client_ids, result.rounds, result.common.get("influence"), result.held, {}),
        **{name: about[name] for name in ("client_ids", "missing", "n_iter", "converged", "stopped_because")},
    }
    with new_folder(out, overwrite=force, private=True) as part:
        shutil.copyfile(file, part / CONSENSUS)
        write_json(part / "history.json", [asdict(record) for record in result.rounds])
        write_json(part / "report.json", report)
        if about.get("atlas"):
            runs.write_atlas(part, about["atlas"])
    return report


def _mode(privacy: Any) -> str:
    return "clear" if privacy is None else "sums" if privacy == "sums" else "private"


def _is_consensus(folder: Path) -> bool:
    return (folder / "report.json").is_file() and (folder / CONSENSUS).is_file()


@main_group.command(
    short_help="Take part in a federation with your rows, which stay here.",
    epilog="""\b
Examples:
  fmtc join --kit north --data ours.parquet --id-column patient --out ours
  fmtc join --kit north --data ours.parquet --out ours --max-k 10 --min-rows 20
  fmtc join --kit north --data ours.parquet --out ours --hold
  fmtc join --kit north --data ours.parquet --out ours --stay --max-runs 2
  fmtc join --kit north --data ours.parquet --out ours --accept-roster 1f0c-77a2-93be-04d5""",
)
@kit_option
@click.option("--data", type=click.Path(path_type=Path), required=True, cls=Option, help="Your rows.")
@out_option
@click.option("-k", "--n-clusters", type=click.IntRange(1), cls=Option,
              help="Clusters of your silo, where the run lets each have its own.  [default: as asked]")  # fmt: skip
@click.option("--stay", is_flag=True, cls=Option, help="Wait for the next run after one has ended.")
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
@click.option("--discard", is_flag=True, cls=Option,
              help="Give up labels of an earlier run that could not be written.")  # fmt: skip
@click.option("--max-k", type=click.IntRange(1), cls=Option, section="Limits",
              help="Most clusters a run may ask for; any number by default.")  # fmt: skip
@click.option("--min-rows", type=click.IntRange(1), default=5, show_default=True, cls=Option, section="Limits",
              help="Fewest rows for each cluster a run may ask for, on average.")  # fmt: skip
@click.option("--max-runs", type=click.IntRange(1), default=24, show_default=True, cls=Option, section="Limits",
              help="Most runs within 24 hours, comparisons of columns included.")  # fmt: skip
@click.option(
    "--epsilon-budget",
    type=click.FloatRange(0, min_open=True),
    cls=Option,
    section="Limits",
    help="Most privacy that your rows may spend in private runs, all together; see `fmtc outbox budget`.",
)
@click.option(
    "--privacy-floor",
    metavar="FLOOR",
    cls=Option,
    section="Limits",
    help="Least privacy of a run: sums, or noise as in epsilon=2,delta=1e-5,colluding=1 (the last two by default): at "
    "most this epsilon at this delta, though so many silos help the coordinator. A run below is refused.",
)
@click.option(
    "--accept-difference",
    is_flag=True,
    cls=Option,
    section="Limits",
    help="Allow sums over other silos than before, though the difference may show one of them.",
)
@click.option("--accept-roster", metavar="CODE", cls=Option, section="Limits",
              help="Accept the silos of a roster code that you have compared; otherwise you are asked.")  # fmt: skip
@click.option("--hold", is_flag=True, cls=Option, section="Limits",
              help="Ask you before the first answer of each kind leaves; needs a terminal.")  # fmt: skip
@click.option("--rules", type=click.Path(path_type=Path), cls=Option, section="Limits",
              help="Your policy on small clusters and single records.  [default: rules.toml of the kit]")  # fmt: skip
@quiet_option
@reading_options(*SILO)
def join(
    kit_path: Path,
    data: Path,
    out: Path,
    n_clusters: int | None,
    stay: bool,
    force: bool,
    discard: bool,
    max_k: int | None,
    min_rows: int,
    max_runs: int,
    epsilon_budget: float | None,
    privacy_floor: str | None,
    accept_difference: bool,
    accept_roster: str | None,
    hold: bool,
    rules: Path | None,
    quiet: bool,
    reading: Reading,
    as_json: bool,
) -> None:
    """Take part in a federation with your rows, which stay here.

    Dials the coordinator, waits for a run, and shows what it asks for before it answers. When the run has ended, writes
    to --out what `fmtc fit` would: your labels, your model, a report. Then ends, unless --stay is given.

    Labels go to the rows they were computed from and to no others: where --data has changed since the run began,
    nothing is written and the exit code is 3. The labels stay in the kit until the next run; bring the file back and
    join again to have them.

    The first time you are shown who takes part: names, codes of their keys, and a roster code to compare with
    them by telephone. Later a silo with another key is refused with exit code 4, before anything leaves.
    """
    words = Words(quiet)
    if hold and not sys.stdin.isatty():
        raise click.UsageError("--hold asks before answers leave, and there is no terminal to ask at")
    from ..runtime.flare.enrol import Roster
    from ..runtime.flare.kits import Kit
    from ..runtime.flare.membership import Membership
    from ..runtime.kitclient import ClientSource

    Floor.read(privacy_floor)
    kit = Kit.read(kit_path, "silo")
    kit.check()
    out = free_path(out, force or stay, runs.is_run)
    source = ClientSource(
        kit.name, str(data.resolve()), replace(reading, schema=reading.known_schema()),
        max_k=max_k, min_rows=min_rows, max_runs=max_runs, shown=True, hold=hold,
        epsilon_budget=epsilon_budget, n_clusters=n_clusters,
        floor=None if privacy_floor in (None, "none") else privacy_floor, accept_difference=accept_difference,
        rules=policy_of(rules, kit.path, sys.stdin.isatty()).to_dict(),
    )  # fmt: skip
    with words.warnings_as_notes():
        size = _look(words, source, kit.path)
    ask_roster(words, kit, Roster.read(kit.startup), accept_roster, dialled=False)
    plan = kit.plan
    words.say(f"silo {kit.name!r} of federation {plan.name!r}: {size}; dialling {plan.host}:{plan.port}")
    written: list[dict[str, Any]] = []
    with words.console.status("") as status, Membership(kit, source) as member:
        if discard:
            member.discard()
        if member.unfinished:
            words.say(
                "the labels of the last run are in the kit; waiting for the coordinator's last word, for at most "
                f"{plan.lost_after:g} seconds if nobody answers"
            )
        for event in member.watch():
            kind = event["event"]
            if kind == "connected":
                words.say("connected; waiting for the coordinator to start a run")
                status.update("waiting")
            elif kind == "trouble":
                words.note((event["why"] or "the coordinator does not accept us yet") + "; trying again")
            elif kind == "refused":
                raise DataError(event["why"])
            elif kind == "second party":
                words.note(
                    f"somebody else tried to join as {kit.name!r}, with a copy of this kit, and was refused; if that "
                    "was none of yours, have new kits made"
                )
            elif kind == "roster":
                status.stop()
                ask_roster(words, kit, event["roster"], accept_roster)
                status.start()
            elif kind == "restarted":
                words.note(f"our process ended and is started again; {event['log']} may say why")
            elif kind == "asked":
                words.say(_in_words(event))
            elif kind == "held":
                status.stop()
                answer_held(words, event, member.decide)
                status.start()
            elif kind == "error":
                if event.get("kind") == TrustError.__name__ and not stay:
                    raise TrustError(f"{event['why']}. Nothing was sent.")
                words.note(f"we could not answer: {event['why']}")
            elif kind == "preflight":
                for sentence in (*(f"{error} (this stops a run)" for error in event["error"]), *event["note"]):
                    words.note(f"compared with the other silos, ours {sentence}")
                if not (event["error"] or event["note"]):
                    words.say("our columns match those of the other silos", "green")
            elif kind == "round":
                status.update(f"round {event['round']}")
            elif kind == "confirmed":
                words.say("the coordinator knows now that this silo has its labels", "green")
                if not stay:
                    break
            elif kind == "ended":
                place = out.with_name(f"{out.name}-{event['run'][:8]}") if event["earlier"] else out
                if event.get("alone"):
                    words.note(_ended_alone(event["earlier"], place))
                try:
                    with words.warnings_as_notes():
                        report = _write_silo(words, source, kit.path, event, place, force or stay)
                except ChangedError as error:
                    why = f"{error} The labels stay in the kit until the next run"
                    if not stay:
                        raise ChangedError(
                            f"{why}: bring the file back and join again, or give them up with --discard."
                        ) from None
                    words.note(f"{why}.")
                    continue
                except WriteError as error:
                    why = f"{error}. The labels are safe in the kit until the next run"
                    if not stay:
                        raise UsageError(f"{why}: make room, or join again with another --out.") from None
                    words.note(f"{why}.")
                    continue
                member.deliver(event["run"])
                written.append({"out": str(place), **report})
                show_run(words, report, place)
                if not (stay or event["earlier"]):
                    break
    if as_json and written:
        print_json(written[-1])


def _ended_alone(earlier: bool, out: Path) -> str:
    """Why labels are written without the coordinator's last word, and what they lack."""
    what = f"an earlier run, which goes to {out}" if earlier else "this run"
    return (
        f"the coordinator's last word about {what} did not come. Labels and model are complete; whether the run "
        "converged, and which clusters other silos share, is not known here"
    )


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
    from ..privacy.rules import RULES, WARN, Policy

    if path is None and (kit / RULES).exists():
        path = kit / RULES
    if path is None:
        return Policy() if terminal else Policy(dominance=WARN)
    policy = Policy.read(path)
    if policy.asks and not terminal:
        raise click.UsageError(
            f'{path} holds answers until you say yes, and there is no terminal to ask at; use "warn" or "refuse"'
        )
    return policy


def _in_words(event: Mapping[str, Any]) -> str:
    """What a coordinator asks for, in a sentence."""
    if event["preflight"] == "only":
        return "the coordinator compares the silos' columns, and asks for nothing else"
    settings, first = event["settings"], "" if event["preflight"] == "no" else " after a comparison of columns"
    if "lowest" in settings:
        numbers = f"from {settings['lowest']} to {settings['n_clusters']}"
        return f"the coordinator asks how many clusters there are, {numbers}{first}; no model leaves"
    asked = f"the coordinator asks for {plural(settings['n_clusters'], 'cluster')}"
    if settings.get("own_clusters") is not None:
        asked = f"the coordinator asks for clusters of your own, among {plural(settings['n_clusters'], 'concept')}"
    if not event.get("method", "fmtc").startswith("fmtc"):
        return f"{asked} by the method {event['method']}{first}"
    solver = settings["solver"]
    views = {"graph": "the graph view", "mixture": "the mixture view", "auto": "the view that suits the rows"}
    units = "" if solver["rho"] is None else ", in the paper's absolute units"
    return (
        f"{asked} in at most {plural(settings['max_iter'], 'round')}{first}: {views[settings['view']]}, coupling "
        f"{settings['coupling']}, scale {settings['scale']}{units}; {privacy_in_words(settings.get('privacy'))}"
    )


def privacy_in_words(privacy: Any) -> str:
    """What the coordinator will see, in a few words."""
    if privacy is None:
        return "no privacy: the coordinator sees our answers"
    if privacy == "sums":
        return "privacy by sums: the coordinator sees sums over all silos only"
    return f"differential privacy, epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g}"


def answer_held(
    words: Words,
    event: Mapping[str, Any],
    decide: Callable[[str, str, bool], None],
    ask: Callable[[str], bool] | None = None,
) -> None:
    """Show an answer that waits for the person at a silo, ask whether it may leave, and pass on what the person says.

    Parameters
    ----------
    words : Words
    event : mapping
        With the run, the phase and the fields of the answer: name, shape, bytes, what each is and what it can tell.
    decide : callable
        Gets the run, the phase and whether the answer may leave: `Membership.decide`.
    ask : callable, optional
        Asks the person: a question in, yes or no out. By default a question at the terminal.
    """
    table = new_table()
    for title in ("field", "shape", "bytes", "what it is", "what it can tell"):
        table.add_column(title, justify="right" if title == "bytes" else "left")
    for field in event["fields"]:
        shape = " × ".join(map(str, field["shape"])) or "a value"
        told = (Text(plain(field[name])) for name in ("what", "tells"))
        table.add_row(field["field"], shape, f"{field['bytes']:,}", *told)
    why = event.get("why", ())
    which = "an answer" if why else "the first answer"
    show(words.console, Text(f"{which} of the phase {event['phase']} wants to leave:"))
    for sentence in why:
        show_indented(words.console, Text.assemble(("held: ", "yellow"), sentence))
    show(words.console, table)
    allowed = (ask or confirmed)("Send it, and later answers of this phase in this run?")
    decide(event["run"], event["phase"], allowed)
    if not allowed:
        words.note(f"the answer to {event['phase']} stays here; the coordinator learns only that it was withheld")


def _look(words: Words, source: ClientSource, kit: Path) -> str:
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


def _write_silo(
    words: Words, source: ClientSource, kit: Path, event: Mapping[str, Any], out: Path, force: bool
) -> dict[str, Any]:
    """The folder of a run for one silo: what `fmtc fit` writes, of this silo alone."""
    from ..describe import held_words
    from ..estimator import read_settings
    from ..protocol.graph.round import ROUND
    from ..protocol.mixture.em import EM
    from ..protocol.private.view import LOOPS
    from ..runtime.driver import Received, RunRecord
    from ..settings import Privacy

    kept: KeptResult = event["result"]
    silo = replace(source.rows(kit), name=source.client_id)
    kept.check(silo, source.data)
    model = read_settings(kit, kept.settings)
    lines = [line for line in read_lines(kit / LEDGER) if line["run"] == kept.run]
    loop = {"mixture": EM}.get(kept.client.model.kind, ROUND)
    names = [loop.name] if not isinstance(model.privacy, Privacy) else [phase.name for phase in LOOPS]
    n_iter = len({line["round"] for line in lines if line["phase"] in names})  # those that this silo was there for
    rounds = plural(n_iter, "round")
    why = f"settled after {rounds}" if event["converged"] else f"{rounds} done"
    received = tuple(Received(one.phase, one.field, one.shape, one.times, one.bytes) for one in totals(lines))
    result = RunRecord((), event["converged"], why, received=received)
    adopt(words, model, result, {silo.name: kept}, [silo], n_iter)
    if (recipe := source.reading_in(kit).recipe) is not None:
        model.text_recipe_ = recipe
    if event.get("held"):
        model.held_ = [silo.name]
        words.note(held_words(model.held_, model.choice_))
    if told := event.get("told"):
        model._told = {silo.name: list(zip(told["cosine"], told["flags"], strict=True))}
    results = runs.results(model, [silo])
    report = runs.report(
        model, results, files=[Path(source.data)], as_published=False, seconds=kept.seconds, notes=words.notes
    )
    trust = report["trust"] | {"roster": kept.roster, "heads": {silo.name: lines[-1]["hash"]} if lines else {}}
    if trust["mode"] == "alone":
        trust["mode"] = "clear"  # a run of several silos, of which we know one
    if trust["mode"] == "private":
        trust["budget"] = _budget(source, kit, kept.data)
    report |= {"trust": trust}
    runs.write_run(out, force, model, results, report)
    return report


def _budget(source: ClientSource, kit: Path, rows: str) -> dict[str, Any]:
    """What the silo's rows have spent in all private runs so far, and what is left."""
    from ..privacy.budget import BUDGET, Budget

    budget = Budget(kit / BUDGET, source.epsilon_budget)
    spent = budget.spent(rows)
    return {"spent": spent.epsilon, "delta": spent.delta, "left": budget.left(rows)}
