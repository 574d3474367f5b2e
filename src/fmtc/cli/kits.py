"""Commands that set up a federation: init, admit, revoke and renew for the organiser, request and accept for a silo."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..artifacts.files import read_json, write_json
from ..errors import KitError, TrustError, UsageError, listed
from ..privacy.accounting import Plan
from .options import free_path
from .program import Option, main_group
from .words import Words, new_console, new_table, plural, print_json, show

if TYPE_CHECKING:
    from ..runtime.flare.authority import Authority
    from ..runtime.flare.enrol import Request, Roster
    from ..runtime.flare.kits import Kit

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


authority_option = click.option("--authority", type=click.Path(path_type=Path), required=True, cls=Option,
                                help="Folder authority/ that `fmtc federation init` made.")  # fmt: skip
coordinator_option = click.option(
    "--coordinator", type=click.Path(path_type=Path), cls=Option,
    help="The coordinator's kit, which gets the new roster.  [default: coordinator/ beside the authority]",
)  # fmt: skip
kit_option = click.option("--kit", "folder", type=click.Path(path_type=Path), required=True, cls=Option,
                          help="Folder of your kit.")  # fmt: skip


# --------------------------------------------------------------------------------------------------- the organiser


@federation.command(
    "init",
    short_help="Make a federation: authority and coordinator.",
    epilog=PLAN
    + """

\b
Examples:
  fmtc federation init federation.toml --out kits""",
)
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default="kits", show_default=True, cls=Option,
              help="Folder to write.")  # fmt: skip
def federation_init(plan: Path, out: Path, as_json: bool) -> None:
    """Make a federation: the authority that signs certificates, and the kit of the coordinator.

    Silos make their own keys, with `fmtc federation request`; you sign them with `fmtc federation admit`. PLAN is a
    TOML file, see below.
    """
    from ..runtime.flare.authority import found
    from ..runtime.flare.plan import read_plan

    words = Words()
    out = free_path(out, False, lambda folder: False)
    kit = found(read_plan(plan), out)
    table = new_table()
    for title in ("who", "where", "there, run"):
        table.add_column(title)
    table.add_row(
        f"the coordinator ({kit.plan.host})", Text(str(out / "coordinator")),
        "fmtc coordinate --kit coordinator -k 4 --out run",
    )  # fmt: skip
    for silo in kit.plan.silos:
        table.add_row(f"silo {silo}", "makes its own", Text(f"fmtc federation request --name {silo} --kit {silo}"))
    words.say(table)
    words.say("")
    words.say(f"{out / 'authority'} signs certificates: keep it offline. It is needed for the requests of the silos:")
    words.say(f"  fmtc federation admit *.request --authority {out / 'authority'}")
    words.say("The coordinator's kit holds private keys: send it to nobody else, by a way that keeps a secret.")
    if as_json:
        print_json({
            "out": str(out), "authority": str(out / "authority"), "coordinator": str(out / "coordinator"),
            "host": kit.plan.host, "port": kit.plan.port, "silos": list(kit.plan.silos),
            "expires": kit.expires.isoformat(),
        })  # fmt: skip


@federation.command(
    "admit",
    short_help="Sign the requests of silos.",
    epilog=CODES
    + """

\b
Examples:
  fmtc federation admit north.request south.request --authority kits/authority
  fmtc federation admit request.json --name north --authority kits/authority
  fmtc federation admit north.request --authority kits/authority --accept-key 1f0c-77a2-93be-04d5
  fmtc federation admit east.request --add --authority kits/authority""",
)
@click.argument("requests", nargs=-1, required=True, metavar="REQUEST...", type=click.Path(path_type=Path))
@click.option("--name", "names", multiple=True, cls=Option,
              help="Which silo the request is of, once for each request; those they name by default.")  # fmt: skip
@authority_option
@click.option("--out", type=click.Path(path_type=Path), default=".", cls=Option,
              help="Folder for the files that go back.  [default: the current one]")  # fmt: skip
@click.option("--add", is_flag=True, cls=Option, help="Add silos that the plan lacks.")
@click.option("--accept-key", "codes", multiple=True, metavar="CODE", cls=Option,
              help="Code of a key that you have compared, once for each request; else you are asked.")  # fmt: skip
@coordinator_option
def federation_admit(
    requests: tuple[Path, ...],
    names: tuple[str, ...],
    authority: Path,
    out: Path,
    add: bool,
    codes: tuple[str, ...],
    coordinator: Path | None,
    as_json: bool,
) -> None:
    """Sign the requests of silos, and write one file for each that goes back: NAME.admitted.

    First shows the code of each key, and asks. Ask each silo by telephone for the code that it sees: a request may have
    been exchanged on its way. Nothing is signed until you say that the codes are the same. The file that goes back
    holds no secret that others could read: the silos' common secret in it is encrypted for this silo.
    """
    from ..runtime.flare.authority import Authority
    from ..runtime.flare.enrol import SUFFIX, Request, receive

    if names and len(names) != len(requests):
        raise click.UsageError(f"{plural(len(names), '--name')} for {plural(len(requests), 'request')}: one for each")
    found = [Request.check(read_json(path), path) for path in requests]
    called = names or tuple(one.name for one in found)
    for path, name in zip(requests, called, strict=True):
        if not name:
            raise click.UsageError(f"{path} names no silo; say which it is of with --name")
    if len(set(called)) < len(called):
        raise UsageError(f"two requests for one name: {listed(sorted({n for n in called if called.count(n) > 1}))}")
    words, signer, named = Words(), Authority.read(authority), dict(zip(called, found, strict=True))
    kit = _coordinators_kit(signer, coordinator)
    files = {name: free_path(out / f"{name}{SUFFIX}", False) for name in called}
    signer.check(named, add=add)
    ask_keys(words, named, codes)
    with signer.held():
        admitted = signer.admit(named, add=add)
        out.mkdir(parents=True, exist_ok=True)
        for name, document in admitted.items():
            write_json(files[name], document)
        if kit is not None:
            receive(kit, signer.roster.document)
    _show_admitted(words, signer, files, kit, as_json)


def ask_keys(
    words: Words, requests: Mapping[str, Request], codes: Sequence[str], ask: Callable[[str], bool] | None = None
) -> None:
    """Have the organiser accept the keys of requests; raises `TrustError` where one is not accepted.

    Parameters
    ----------
    words : Words
    requests : mapping of str to Request
        By the name of the silo.
    codes : sequence of str
        Codes that the organiser has compared and accepts; given, nobody is asked.
    ask : callable, optional
        As in `ask_roster`.
    """
    from ..privacy.identity import same_code

    _show_codes(words, {name: one.code for name, one in requests.items()})
    if codes:
        for name, one in requests.items():
            if not any(same_code(code, one.code) for code in codes):
                raise TrustError(f"the key of silo {name!r} has the code {one.code}, which --accept-key does not give")
        return
    if ask is None and not sys.stdin.isatty():
        flags = " ".join(f"--accept-key {one.code}" for one in requests.values())
        raise TrustError(
            f"there is no terminal to ask at. Compare the code of each silo with it by telephone, then give {flags}"
        )
    if not (ask or confirmed)("Compare each code with the silo by telephone. Are they the same there?"):
        raise TrustError(f"the key of silo {listed(list(requests))} was not accepted; nothing was signed")


def _show_codes(words: Words, codes: Mapping[str, str], remarks: Mapping[str, str] | None = None) -> None:
    """A line for each silo. The code comes first and is never cut, however narrow the terminal."""
    for name, code in codes.items():
        remark = f" ({remarks[name]})" if remarks else ""
        show(words.console, Text(f"  {code}  {name}{remark}"))


def _show_admitted(words: Words, signer: Authority, files: Mapping[str, Path], kit: Kit | None, as_json: bool) -> None:
    roster = signer.roster
    for name, file in files.items():
        words.say(f"wrote {file}: send it back to {name!r}")
    words.say("There: fmtc federation accept FILE --kit FOLDER")
    show_roster(words, roster)
    _say_told(words, signer, kit)
    if as_json:
        print_json({
            "files": {name: str(file) for name, file in files.items()}, **_roster_json(roster),
            "coordinator": None if kit is None else str(kit.path),
        })  # fmt: skip


def _roster_json(roster: Roster) -> dict[str, Any]:
    waiting = [name for name in roster.planned if name not in roster.silos]
    return {"number": roster.number, "code": roster.code, "silos": roster.fingerprints, "waiting": waiting}


def _coordinators_kit(signer: Authority, folder: Path | None) -> Kit | None:
    """The coordinator's kit, which gets the new roster, if it is here; whatever is wrong with it, before we sign."""
    from ..privacy.identity import AUTHORITY, load_certificate
    from ..runtime.flare.enrol import Roster, newer
    from ..runtime.flare.kits import Kit

    beside = signer.folder.resolve().parent / "coordinator"
    if folder is None and not beside.is_dir():
        return None
    kit = Kit.read(folder or beside, "coordinator")
    if load_certificate(kit.startup / AUTHORITY) != signer.certificate:
        raise KitError(f"{kit.path} is the kit of another federation: {signer.folder} did not sign its certificates")
    if newer(signer.roster, Roster.read(kit.startup)):
        raise KitError(f"{kit.path} has a newer roster than {signer.folder}, which seems to be an old copy")
    return kit


def _say_told(words: Words, signer: Authority, kit: Kit | None) -> None:
    if kit is None:
        words.say(
            f"Take {signer.folder / 'roster.json'} to the coordinator: fmtc federation accept roster.json --kit FOLDER"
        )


@federation.command(
    "revoke",
    short_help="Have certificates count no more.",
    epilog=CODES
    + """

\b
Examples:
  fmtc federation revoke --name north --authority kits/authority
  fmtc federation revoke --name north --remove --authority kits/authority""",
)
@click.option("--name", required=True, cls=Option, help="The silo; or coordinator.")
@authority_option
@click.option("--remove", is_flag=True, cls=Option, help="Runs no longer wait for this silo either.")
@coordinator_option
def federation_revoke(name: str, authority: Path, remove: bool, coordinator: Path | None, as_json: bool) -> None:
    """Have all certificates of a silo count no more; its key is never signed again.

    The coordinator refuses it from its next connection on, also while a run goes on. The other silos learn it when they
    connect. The silo may come back with a new key: `fmtc federation request`, then `fmtc federation admit`.
    """
    from ..runtime.flare.authority import Authority
    from ..runtime.flare.enrol import receive

    words, signer = Words(), Authority.read(authority)
    kit = _coordinators_kit(signer, coordinator)
    with signer.held():
        roster = signer.revoke(name, remove=remove)
        if kit is not None:
            receive(kit, roster.document)
    words.say(f"certificates of {name!r} count no more; roster {roster.number} says so")
    show_roster(words, roster)
    _say_told(words, signer, kit)
    if as_json:
        print_json({"revoked": name, "coordinator": None if kit is None else str(kit.path), **_roster_json(roster)})


@federation.command(
    "renew",
    short_help="New certificates for the same keys.",
    epilog=CODES
    + """

\b
Examples:
  fmtc federation renew --authority kits/authority --out renewed
  fmtc federation renew --name north --authority kits/authority""",
)
@click.option("--name", "names", multiple=True, cls=Option,
              help="A silo, or coordinator; may be given many times.  [default: all]")  # fmt: skip
@authority_option
@click.option("--out", type=click.Path(path_type=Path), default=".", cls=Option,
              help="Folder for the files that go back.  [default: the current one]")  # fmt: skip
@coordinator_option
def federation_renew(
    names: tuple[str, ...], authority: Path, out: Path, coordinator: Path | None, as_json: bool
) -> None:
    """Sign new certificates for the keys that silos and coordinator have, and write one file for each: NAME.admitted.

    Pins and roster code stay as they are, because the keys do. The old certificates stay valid until they expire. A
    silo that wants a new key makes a new request (`fmtc federation request --kit FOLDER`); revoke the old one first.
    """
    from ..runtime.flare.authority import Authority
    from ..runtime.flare.enrol import COORDINATOR, SUFFIX, accept, receive

    words, signer = Words(), Authority.read(authority)
    wanted = names or (COORDINATOR, *signer.roster.silos)
    kit = _coordinators_kit(signer, coordinator)
    here = kit if COORDINATOR in wanted else None  # takes its own in
    files = {name: free_path(out / f"{name}{SUFFIX}", False) for name in wanted if here is None or name != COORDINATOR}
    if here is not None:
        with here.held():  # nobody works with it
            pass
    with signer.held():
        renewed = signer.renew(names)
        out.mkdir(parents=True, exist_ok=True)
        for name, file in files.items():
            write_json(file, renewed[name])
        if here is not None:
            accept(renewed[COORDINATOR], here.path)
        if kit is not None:
            receive(kit, signer.roster.document)
    if here is not None:
        words.say(f"renewed the certificates in {here.path}")
    _show_admitted(words, signer, files, kit, as_json)


@federation.command(
    "epsilon",
    short_help="List the epsilons that so many rows can support.",
    epilog="""\b
Examples:
  fmtc federation epsilon --rows 5000 --silos 10 --features 64 -k 10
  fmtc federation epsilon --rows 5000 --silos 10 --features 64 -k 10 --json""",
)
@click.option("--rows", type=click.IntRange(1), required=True, cls=Option, help="Rows of all silos together.")
@click.option("--silos", type=click.IntRange(1), required=True, cls=Option, help="Number of silos.")
@click.option("--features", type=click.IntRange(1), required=True, cls=Option,
              help="Columns: numbers, and levels of categories.")  # fmt: skip
@click.option("-k", "--n-clusters", "n_clusters", type=click.IntRange(1), required=True, cls=Option,
              help="Number of clusters.")  # fmt: skip
@click.option("--delta", type=float, default=1e-5, show_default=True, cls=Option,
              help="Chance that the bound fails; below 1/rows of every silo.")  # fmt: skip
@click.option("--colluding", type=click.IntRange(0), default=1, show_default=True, cls=Option,
              help="Silos that may work together.")  # fmt: skip
def federation_epsilon(
    rows: int, silos: int, features: int, n_clusters: int, delta: float, colluding: int, as_json: bool
) -> None:
    """List the epsilons that so many rows can support: yes, weak (a silo alone may do better) or no (noise only).

    The rule was found on ten data sets: rows times mu of (epsilon, delta) must reach max(120 k, 1.7 features^1.5).
    """
    if not 0 < delta < 1:
        raise click.UsageError(f"--delta must lie between 0 and 1, got {delta:g}")
    plans = [Plan(rows, features, n_clusters, epsilon, delta) for epsilon in EPSILONS]
    enough = silos >= max(3, colluding + 1)
    lines = [
        {
            "epsilon": plan.epsilon, "mu": plan.mu, "rows_times_mu": rows * plan.mu, "need": plan.need,
            "ratio": plan.ratio, "verdict": plan.verdict if enough else "no",
        }
        for plan in plans
    ]  # fmt: skip
    if as_json:
        print_json({"rows": rows, "silos": silos, "features": features, "n_clusters": n_clusters, "delta": delta,
                    "plans": lines})  # fmt: skip
        return
    console = new_console()
    if not enough:
        show(
            console, Text(f"{plural(silos, 'silo')} cannot hide a record: at least {max(3, colluding + 1)} are needed")
        )
    table = new_table()
    for title in ("epsilon", "mu", "rows × mu", "needed", "enough"):
        table.add_column(title, justify="right" if title != "enough" else "left")
    for line in lines:
        cells = f"{line['epsilon']:g}", f"{line['mu']:.3f}", f"{line['rows_times_mu']:,.0f}", f"{line['need']:,.0f}"
        table.add_row(*cells, str(line["verdict"]))
    console.print(table)


# ----------------------------------------------------------------------------------------------------------- a silo


@federation.command(
    "request",
    short_help="Make your own key, and a request to sign it.",
    epilog=CODES
    + """

\b
Examples:
  fmtc federation request --name north --kit north
  fmtc federation request --kit north                (a new key for a kit that you have)""",
)
@kit_option
@click.option("--name", default="", cls=Option, help="Your name in the plan; the organiser may say it instead.")
@click.option("--out", type=click.Path(path_type=Path), cls=Option,
              help="File to send to the organiser.  [default: the name of the kit, with .request]")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, help="Make another key where a request waits for its answer.")
def federation_request(folder: Path, name: str, out: Path | None, force: bool, as_json: bool) -> None:
    """Make your own key, which stays in the folder --kit, and a request to have it signed.

    Send the request to the organiser; it holds no secret. Tell the organiser by telephone the code that you see.
    A kit that you have goes on as it is until you take the answer in.
    """
    from ..runtime.flare.enrol import Request, check_waiting, request

    words = Words()
    if not force:
        check_waiting(folder)
    file = free_path(out or folder.with_name(f"{folder.resolve().name}.request"), force)
    document = request(folder, name, force=force)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, document)
    asked = Request.check(document, file)
    words.say(f"made a key in {folder}; it stays there, keep it to yourself")
    words.say(f"send {file} to the organiser, and tell them the code of the key by telephone:")
    _show_codes(words, {name or "our key": asked.code})
    words.say(f"then: fmtc federation accept FILE --kit {folder}")
    if as_json:
        print_json({
            "kit": str(folder), "request": str(file), "name": asked.name, "fingerprint": asked.fingerprint,
            "code": asked.code,
        })  # fmt: skip


@federation.command(
    "accept",
    short_help="Take in what the organiser signed.",
    epilog=CODES
    + """

\b
Examples:
  fmtc federation accept north.admitted --kit north
  fmtc federation accept roster.json --kit coordinator""",
)
@click.argument("file", type=click.Path(path_type=Path))
@kit_option
def federation_accept(file: Path, folder: Path, as_json: bool) -> None:
    """Take in what the organiser made: the answer to your request, a renewed certificate, or a new roster.

    Checks that it belongs to the key in the kit and was not changed. Makes the policy of the kit here: fmtc's own
    classes only, no code that travels with a job, no shell.
    """
    from ..privacy.identity import fingerprint_of, key_code, load_certificate
    from ..runtime.flare.enrol import Roster, accept

    words = Words()
    kit = accept(read_json(file), folder, file)
    roster = Roster.read(kit.startup)
    own = fingerprint_of(load_certificate(kit.credentials[0]))
    whose = "the coordinator" if kit.role == "coordinator" else f"silo {kit.name!r}"
    words.say(f"{folder} is the kit of {whose} of federation {kit.plan.name!r}, valid until {kit.expires:%Y-%m-%d}")
    words.say(f"the code of our key is {key_code(own)}")
    show_roster(words, roster)
    if as_json:
        print_json({
            "kit": str(folder), "role": kit.role, "name": kit.name, "federation": kit.plan.name,
            "host": kit.plan.host, "port": kit.plan.port, "expires": kit.expires.isoformat(), "fingerprint": own,
            **_roster_json(roster),
        })  # fmt: skip


# --------------------------------------------------------------------------------------------------------- rosters


def show_roster(words: Words, roster: Roster) -> None:
    """Say who is a member, in one line with the code that people compare."""
    waiting = [name for name in roster.planned if name not in roster.silos]
    later = f"; not admitted yet: {', '.join(waiting)}" if waiting else ""
    words.say(f"roster code {roster.code}: {', '.join(sorted(roster.silos)) or 'nobody'}{later}")


def ask_roster(
    words: Words,
    kit: Kit,
    roster: Roster,
    code: str | None,
    ask: Callable[[str], bool] | None = None,
    *,
    dialled: bool = True,
) -> None:
    """Have the person at a silo accept the silos that are new to it, and pin their keys.

    Parameters
    ----------
    words : Words
    kit : Kit
        The silo's.
    roster : Roster
    code : str, optional
        The roster code that the person has compared and accepts; given, nobody is asked.
    ask : callable, optional
        Asks the person: a question in, yes or no out. By default a question at the terminal.
    dialled : bool
        Whether the coordinator has handed us this roster; before, another code may be that of a newer one.

    Raises
    ------
    TrustError
        Where a key has changed, the code is another one, or the person does not accept.
    """
    from ..privacy.identity import key_code, same_code
    from ..runtime.flare.enrol import pin, strangers

    new = strangers(kit, roster)
    if code is not None and not same_code(code, roster.code):
        if not dialled:
            return
        raise TrustError(f"the roster code is {roster.code}, not {code}: these are not the silos that were accepted")
    show_roster(words, roster)
    if new and code is None:
        keys = sorted(roster.fingerprints.items())
        remarks = {
            name: "new to us" if name in new else "ourselves" if name == kit.name else "known" for name, _ in keys
        }
        _show_codes(words, {name: key_code(found) for name, found in keys}, remarks)
        if ask is None and not sys.stdin.isatty():
            raise TrustError(
                f"silo {listed(new)} is new to us, and there is no terminal to ask at. Compare the roster code "
                f"{roster.code} with the other silos by telephone, then give --accept-roster {roster.code}"
            )
        question = f"Compare the code {roster.code} with the other silos by telephone. Is it the same there?"
        if not (ask or confirmed)(question):
            raise TrustError(f"the key of silo {listed(new)} was not accepted; nothing was sent")
    pin(kit, roster)
    if new:
        words.say(f"pinned the key of {', '.join(new)} in {kit.path / 'silos.toml'}")


def confirmed(question: str) -> bool:
    """Yes or no from the terminal; what was typed before the question does not count."""
    import termios  # of POSIX, as federations are

    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    return click.confirm(question, err=True)
