"""Commands of a federation of several machines.

For the organiser: init, admit, revoke and renew. For a silo: request and accept. For both: doctor, which looks for what
may keep a machine from it; then coordinate and join, which run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..artifacts.files import read_json, write_json
from ..errors import plural
from ..privacy.accounting import Plan
from ..privacy.floor import Floor
from ..schema import Schema
from ..tables.reading import Reading
from . import flags
from .asking import roster_document, show_codes, show_roster
from .flags import PATH, SILO, Course, Output, Patience, free_path, given
from .program import main_group
from .settings import bind_bounds, build_model, model_options
from .words import Words, new_table

if TYPE_CHECKING:
    from ..runtime.flare.doctor import Check
    from .organising import Organiser

PLAN = """\b
A plan is a TOML file:
  name  = "study"                        # letters, digits, - and _
  host  = "coordinator.example.org"      # where the silos reach the coordinator
  port  = 8002                           # one port, open at the coordinator only
  silos = ["north", "south", "west"]
  lost_after = 30                        # optional: seconds of silence after which a silo counts as lost"""

CODES = """\b
Exit codes:
  0    done
  2    it would overwrite or disturb something
  3    a file that cannot be used
  4    trust refused: a file that was changed, or is not of whom it says"""
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


@main_group.group(short_help="Set up a federation of several machines.")
def federation() -> None:
    """Set up a federation of several machines.

    The organiser makes it (init). Each silo makes its own key and sends a request (request), the organiser signs it
    (admit), and the silo takes the answer in (accept). No private key ever travels.
    """


command = partial(federation.command, epilog=CODES)
folder_option = flags.option("--kit", "folder", type=PATH, required=True, help="Folder of your kit.")


@dataclass(frozen=True)
class Office:
    """What the organiser works with."""

    authority: Path = given("--authority", type=PATH, required=True,
                            help="Folder authority/ that `fmtc federation init` made.")  # fmt: skip
    coordinator: Path | None = given(
        "--coordinator", type=PATH,
        help="The coordinator's kit, which gets the new roster.  [default: coordinator/ beside the authority]",
    )  # fmt: skip

    def open(self, words: Words) -> Organiser:
        """The organiser at work."""
        from .organising import Organiser

        return Organiser(words, self.authority, self.coordinator)


@dataclass(frozen=True)
class Answers(Office):
    """Files that go back to the silos."""

    out: Path = given("--out", type=PATH, default=".",
                      help="Folder for the files that go back.  [default: the current one]")  # fmt: skip


@dataclass(frozen=True)
class Admission(Answers):
    """Requests that are signed."""

    names: tuple[str, ...] = given(
        "--name", multiple=True, help="Which silo the request is of, once for each request; those they name by default."
    )
    add: bool = given("--add", is_flag=True, help="Add silos that the plan lacks.")
    codes: tuple[str, ...] = given(
        "--accept-key", multiple=True, metavar="CODE",
        help="Code of a key that you have compared, once for each request; else you are asked.",
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------- the organiser


@federation.command("init", short_help="Make a federation: authority and coordinator.", epilog=PLAN)
@click.argument("plan", type=PATH)
@flags.option("--out", type=PATH, default="kits", show_default=True, help="Folder to write.")
def federation_init(plan: Path, out: Path, words: Words) -> None:
    """Make a federation: the authority that signs certificates, and the kit of the coordinator.

    Silos make their own keys, with `fmtc federation request`; you sign them with `fmtc federation admit`. PLAN is a
    TOML file, see below.

    Examples:
      fmtc federation init federation.toml --out kits
    """
    from ..runtime.flare.authority import found
    from ..runtime.flare.plan import read_plan

    out = free_path(out, False, lambda folder: False)
    kit = found(read_plan(plan), out)
    table = new_table("<who", "<where", "<there, run")
    run = "fmtc coordinate --kit coordinator -k 4 --out run"
    table.add_row(f"the coordinator ({kit.plan.host})", str(out / "coordinator"), run)
    for silo in kit.plan.silos:
        table.add_row(f"silo {silo}", "makes its own", f"fmtc federation request --name {silo} --kit {silo}")
    words.say(table)
    words.say("")
    words.say(f"{out / 'authority'} signs certificates: keep it offline. It is needed for the requests of the silos:")
    words.say(f"  fmtc federation admit *.request --authority {out / 'authority'}")
    words.say("The coordinator's kit holds private keys: send it to nobody else, by a way that keeps a secret.")
    words.give({
        "out": str(out), "authority": str(out / "authority"), "coordinator": str(out / "coordinator"),
        "host": kit.plan.host, "port": kit.plan.port, "silos": list(kit.plan.silos),
        "expires": kit.expires.isoformat(),
    })  # fmt: skip


@command("admit", short_help="Sign the requests of silos.")
@click.argument("requests", nargs=-1, required=True, metavar="REQUEST...", type=PATH)
@flags.takes(admission=Admission)
def federation_admit(requests: tuple[Path, ...], admission: Admission, words: Words) -> None:
    """Sign the requests of silos, and write one file for each that goes back: NAME.admitted.

    First shows the code of each key, and asks. Ask each silo by telephone for the code that it sees: a request may have
    been exchanged on its way. Nothing is signed until you say that the codes are the same. The file that goes back
    holds no secret that others could read: the silos' common secret in it is encrypted for this silo.

    Examples:
      fmtc federation admit north.request south.request --authority kits/authority
      fmtc federation admit request.json --name north --authority kits/authority
      fmtc federation admit north.request --authority kits/authority --accept-key 1f0c-77a2-93be-04d5
      fmtc federation admit east.request --add --authority kits/authority
    """
    admission.open(words).admit(requests, admission)


@command("revoke", short_help="Have certificates count no more.")
@flags.option("--name", required=True, help="The silo; or coordinator.")
@flags.takes(office=Office)
@flags.switch("--remove", help="Runs no longer wait for this silo either.")
def federation_revoke(name: str, office: Office, remove: bool, words: Words) -> None:
    """Have all certificates of a silo count no more; its key is never signed again.

    The coordinator refuses it from its next connection on, also while a run goes on. The other silos learn it when they
    connect. The silo may come back with a new key: `fmtc federation request`, then `fmtc federation admit`.

    Examples:
      fmtc federation revoke --name north --authority kits/authority
      fmtc federation revoke --name north --remove --authority kits/authority
    """
    office.open(words).revoke(name, remove=remove)


@command("renew", short_help="New certificates for the same keys.")
@flags.option("--name", "names", multiple=True, help="A silo, or coordinator; may be given many times.  [default: all]")
@flags.takes(answers=Answers)
def federation_renew(names: tuple[str, ...], answers: Answers, words: Words) -> None:
    """Sign new certificates for the keys that silos and coordinator have, and write one file for each: NAME.admitted.

    Pins and roster code stay as they are, because the keys do. The old certificates stay valid until they expire. A
    silo that wants a new key makes a new request (`fmtc federation request --kit FOLDER`); revoke the old one first.

    Examples:
      fmtc federation renew --authority kits/authority --out renewed
      fmtc federation renew --name north --authority kits/authority
    """
    answers.open(words).renew(names, answers.out)


@dataclass(frozen=True)
class Sizes:
    """What decides which epsilons there are rows enough for."""

    rows: int = given("--rows", type=click.IntRange(1), required=True, help="Rows of all silos together.")
    silos: int = given("--silos", type=click.IntRange(1), required=True, help="Number of silos.")
    features: int = given("--features", type=click.IntRange(1), required=True,
                          help="Columns: numbers, and levels of categories.")  # fmt: skip
    n_clusters: int = given("-k", "--n-clusters", type=click.IntRange(1), required=True, help="Number of clusters.")
    delta: float = given(
        "--delta", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=1e-5, show_default=True,
        help="Chance that the bound fails; below 1/rows of every silo.",
    )  # fmt: skip
    colluding: int = given("--colluding", type=click.IntRange(0), default=1, show_default=True,
                           help="Silos that may work together.")  # fmt: skip


@federation.command("epsilon", short_help="List the epsilons that so many rows can support.")
@flags.takes(sizes=Sizes)
def federation_epsilon(sizes: Sizes, words: Words) -> None:
    """List the epsilons that so many rows can support: yes, weak (a silo alone may do better) or no (noise only).

    The rule was found on ten data sets: rows times mu of (epsilon, delta) must reach max(120 k, 1.7 features^1.5).

    Examples:
      fmtc federation epsilon --rows 5000 --silos 10 --features 64 -k 10
      fmtc federation epsilon --rows 5000 --silos 10 --features 64 -k 10 --json
    """
    needed = max(3, sizes.colluding + 1)
    lines = []
    for epsilon in EPSILONS:
        plan = Plan(sizes.rows, sizes.features, sizes.n_clusters, epsilon, sizes.delta)
        verdict = plan.verdict if sizes.silos >= needed else "no"
        lines.append({"epsilon": epsilon, "mu": plan.mu, "rows_times_mu": sizes.rows * plan.mu, "need": plan.need,
                      "ratio": plan.ratio, "verdict": verdict})  # fmt: skip
    if words.give(asdict(sizes) | {"plans": lines}):
        return
    if sizes.silos < needed:
        words.show(f"{plural(sizes.silos, 'silo')} cannot hide a record: at least {needed} are needed")
    table = new_table(">epsilon", ">mu", ">rows × mu", ">needed", "<enough")
    for line in lines:
        cells = f"{line['epsilon']:g}", f"{line['mu']:.3f}", f"{line['rows_times_mu']:,.0f}", f"{line['need']:,.0f}"
        table.add_row(*cells, str(line["verdict"]))
    words.show(table)


# ----------------------------------------------------------------------------------------------------------- a silo


@command("request", short_help="Make your own key, and a request to sign it.")
@folder_option
@flags.option("--name", default="", help="Your name in the plan; the organiser may say it instead.")
@flags.option("--out", type=PATH, help="File to send to the organiser.  [default: the name of the kit, with .request]")
@flags.switch("--force", help="Make another key where a request waits for its answer.")
def federation_request(folder: Path, name: str, out: Path | None, force: bool, words: Words) -> None:
    """Make your own key, which stays in the folder --kit, and a request to have it signed.

    Send the request to the organiser; it holds no secret. Tell the organiser by telephone the code that you see.
    A kit that you have goes on as it is until you take the answer in.

    Examples:
      fmtc federation request --name north --kit north
      fmtc federation request --kit north                (a new key for a kit that you have)
    """
    from ..runtime.flare.enrol import Request, check_waiting, request

    if not force:
        check_waiting(folder)
    file = free_path(out or folder.with_name(f"{folder.resolve().name}.request"), force)
    document = request(folder, name, force=force)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, document)
    asked = Request.check(document, file)
    words.say(f"made a key in {folder}; it stays there, keep it to yourself")
    words.say(f"send {file} to the organiser, and tell them the code of the key by telephone:")
    show_codes(words, {name or "our key": asked.code})
    words.say(f"then: fmtc federation accept FILE --kit {folder}")
    words.give({
        "kit": str(folder), "request": str(file), "name": asked.name, "fingerprint": asked.fingerprint,
        "code": asked.code,
    })  # fmt: skip


@command("accept", short_help="Take in what the organiser signed.")
@click.argument("file", type=PATH)
@folder_option
def federation_accept(file: Path, folder: Path, words: Words) -> None:
    """Take in what the organiser made: the answer to your request, a renewed certificate, or a new roster.

    Checks that it belongs to the key in the kit and was not changed. Makes the policy of the kit here: fmtc's own
    classes only, no code that travels with a job, no shell.

    Examples:
      fmtc federation accept north.admitted --kit north
      fmtc federation accept roster.json --kit coordinator
    """
    from ..privacy.identity import fingerprint_of, key_code, load_certificate
    from ..runtime.flare.enrol import Roster, accept

    kit = accept(read_json(file), folder, file)
    roster = Roster.read(kit.startup)
    own = fingerprint_of(load_certificate(kit.credentials[0]))
    whose = "the coordinator" if kit.role == "coordinator" else f"silo {kit.name!r}"
    words.say(f"{folder} is the kit of {whose} of federation {kit.plan.name!r}, valid until {kit.expires:%Y-%m-%d}")
    words.say(f"the code of our key is {key_code(own)}")
    show_roster(words, roster)
    words.give({
        "kit": str(folder), "role": kit.role, "name": kit.name, "federation": kit.plan.name,
        "host": kit.plan.host, "port": kit.plan.port, "expires": kit.expires.isoformat(), "fingerprint": own,
        **roster_document(roster),
    })  # fmt: skip


# ------------------------------------------------------------------------------------------------- before it begins


@main_group.command(short_help="Look for what may keep this machine from a federation.")
@flags.option("--kit", "kit_path", type=PATH,
        help="Folder that `fmtc federation init` made for you; left out, only this machine.")  # fmt: skip
@flags.option("--out", type=PATH, default=".",
        help="Folder you are going to write: is there room?  [default: the current one]")  # fmt: skip
def doctor(kit_path: Path | None, out: Path, words: Words) -> None:
    """Look for what may keep this machine from a federation, and say what to do about it.

    Versions, certificates, permissions, policy, proxies, the way to the coordinator, clock and disk. Changes nothing.
    `fmtc check` looks at your rows.

    Examples:
      fmtc doctor
      fmtc doctor --kit north
      fmtc doctor --kit coordinator --json

    Exit codes:
      0    all is well, or there are warnings only
      1    a check failed
    """
    from ..runtime.flare.doctor import examine

    checks = []
    with words.warnings_as_notes():
        for check in examine(kit_path, out=out):
            checks.append(check)
            _show(words, check)
    failed = sum(not check.ok for check in checks)
    warnings = sum(check.ok and check.advice != "" for check in checks)
    ending, style = "all is well", "green"
    if warnings:
        ending, style = f"none failed, {plural(warnings, 'warning')}", "yellow"
    if failed:
        ending, style = f"{failed} failed", "bold red"
    words.tell("")
    words.tell(f"{plural(len(checks), 'check')}: {ending}", style)
    words.give([asdict(check) for check in checks])
    raise click.exceptions.Exit(1 if failed else 0)


def _show(words: Words, check: Check) -> None:
    """A mark, what was looked at and what was found; below it what to do."""
    plain = not words.console.encoding.startswith("utf")
    if not check.ok:
        mark, style = "x" if plain else "✗", "bold red"
    else:
        mark, style = ("!", "yellow") if check.advice else ("+" if plain else "✓", "green")
    words.tell(Text.assemble((f"{mark} ", style), (check.name, "bold"), f": {check.found}"))
    if check.advice:
        words.tell(check.advice, style, by=2)


# --------------------------------------------------------------------------------------------------------------- a run


kit_option = flags.option("--kit", "kit_path", type=PATH, required=True,
                    help="Your kit: `fmtc federation request` made it; the coordinator's, `init`.")  # fmt: skip


@dataclass(frozen=True)
class Leading(Patience, Course):
    """How a coordinator leads a run."""

    wait: float = given("--wait", type=float, default=600.0, show_default=True,
                        help="Seconds to wait for silos that are not there.")  # fmt: skip
    no_preflight: bool = given("--no-preflight", is_flag=True, help="Do not compare the silos' columns first.")
    calibrate: bool = given("--calibrate", is_flag=True,
                            help="Let every silo calibrate its model, as `fmtc fit --calibrate`.")  # fmt: skip
    schema: Path | None = given("--schema", type=PATH,
                                help="The schema.toml of the silos, where columns are categories.")  # fmt: skip


@main_group.command(short_help="Lead a federation: start the server, run, keep the consensus.")
@kit_option
@flags.n_clusters
@flags.random_state
@flags.takes(how=Leading)
@flags.accept_units
@flags.quiet
@model_options
def coordinate(kit_path: Path, how: Leading, accept_units: bool, words: Words, **settings: Any) -> None:
    """Lead a federation: start the server, wait for the silos, run, survive what happens on the way.

    A silo that is lost, or a process that dies, does not end the run: it resumes from the last round when enough
    silos are back. Writes to --out: consensus.safetensors, history.json and report.json; no row comes here.

    Ends with exit code 5 where a silo has not confirmed that it has its labels. --resume then serves that silo when it
    joins again; nothing is needed from the others.

    Examples:
      fmtc coordinate --kit coordinator -k 4 --out run
      fmtc coordinate --kit coordinator -k 4 --out run --min-silos 3 --wait 300
      fmtc coordinate --kit coordinator -k 4 --out run --resume
    """
    model = build_model(settings)
    if how.schema is not None:
        model.schema_ = Schema.read(how.schema)
        bind_bounds(model, settings["bounds"], model.schema_)
    from .leading import Lead, coordinator_of  # loads NVIDIA FLARE

    Lead(words, model, coordinator_of(kit_path), how, settings).run(accept_units=accept_units)


def _read_floor(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    Floor.read(text)
    return None if text == "none" else text


_limit = partial(given, section="Limits")


@dataclass(frozen=True)
class Limits:
    """What a silo allows a run: for `ClientSource`."""

    max_k: int | None = _limit("--max-k", type=click.IntRange(1),
                               help="Most clusters a run may ask for; any number by default.")  # fmt: skip
    min_rows: int = _limit("--min-rows", type=click.IntRange(1), default=5, show_default=True,
                           help="Fewest rows for each cluster a run may ask for, on average.")  # fmt: skip
    max_runs: int = _limit("--max-runs", type=click.IntRange(1), default=24, show_default=True,
                           help="Most runs within 24 hours, comparisons of columns included.")  # fmt: skip
    epsilon_budget: float | None = _limit(
        "--epsilon-budget", type=click.FloatRange(0, min_open=True),
        help="Most privacy that your rows may spend in private runs, all together; see `fmtc outbox budget`.",
    )  # fmt: skip
    floor: str | None = _limit(
        "--privacy-floor", metavar="FLOOR", callback=_read_floor,
        help="Least privacy of a run: sums, or noise as in epsilon=2,delta=1e-5,colluding=1 (the last two by default): "
        "at most this epsilon at this delta, though so many silos help the coordinator. A run below is refused.",
    )  # fmt: skip
    accept_difference: bool = _limit(
        "--accept-difference", is_flag=True,
        help="Allow sums over other silos than before, though the difference may show one of them.",
    )  # fmt: skip


@dataclass(frozen=True)
class Taking(Output):
    """How a silo takes part, and what its person wants to be asked."""

    data: Path = given("--data", type=PATH, required=True, help="Your rows.")
    n_clusters: int | None = given(
        "--clusters", type=click.IntRange(1),
        help="Clusters of your silo, where the run lets each have its own.  [default: as asked]",
    )  # fmt: skip
    stay: bool = given("--stay", is_flag=True, help="Wait for the next run after one has ended.")
    discard: bool = given("--discard", is_flag=True, help="Give up labels of an earlier run that could not be written.")
    accept_roster: str | None = _limit(
        "--accept-roster", metavar="CODE",
        help="Accept the silos of a roster code that you have compared; otherwise you are asked.",
    )  # fmt: skip
    ask: bool = _limit("--ask", is_flag=True,
                       help="Ask you before the first answer of each kind leaves; needs a terminal.")  # fmt: skip
    rules: Path | None = _limit(
        "--rules", type=PATH, help="Your policy on small clusters and single records.  [default: rules.toml of the kit]"
    )


@main_group.command(short_help="Take part in a federation with your rows, which stay here.")
@kit_option
@flags.takes(taking=Taking, limits=Limits)
@flags.quiet
@flags.reading(*SILO)
def join(kit_path: Path, taking: Taking, limits: Limits, reading: Reading, words: Words) -> None:
    """Take part in a federation with your rows, which stay here.

    Dials the coordinator, waits for a run, and shows what it asks for before it answers. When the run has ended, writes
    to --out what `fmtc fit` would: your labels, your model, a report. Then ends, unless --stay is given.

    Labels go to the rows they were computed from and to no others: where --data has changed since the run began,
    nothing is written and the exit code is 3. The labels stay in the kit until the next run; bring the file back and
    join again to have them.

    The first time you are shown who takes part: names, codes of their keys, and a roster code to compare with
    them by telephone. Later a silo with another key is refused with exit code 4, before anything leaves.

    Examples:
      fmtc join --kit north --data ours.parquet --id-column patient --out ours
      fmtc join --kit north --data ours.parquet --out ours --max-k 10 --min-rows 20
      fmtc join --kit north --data ours.parquet --out ours --ask
      fmtc join --kit north --data ours.parquet --out ours --stay --max-runs 2
      fmtc join --kit north --data ours.parquet --out ours --accept-roster 1f0c-77a2-93be-04d5
    """
    from .joining import take_part  # loads NVIDIA FLARE

    take_part(words, kit_path, taking, limits, reading)
