"""Commands that set up a federation: init, admit, revoke and renew for the organiser, request and accept for a silo."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..artifacts.files import read_json, write_json
from ..errors import TrustError, UsageError, listed
from .options import free_path
from .program import Option, main_group
from .words import Words, new_table, plural, print_json, show

if TYPE_CHECKING:
    from ..runtime.flare.authority import Authority
    from ..runtime.flare.enrol import Roster
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
  fmtc federation admit east.request --add --authority kits/authority""",
)
@click.argument("requests", nargs=-1, required=True, metavar="REQUEST...", type=click.Path(path_type=Path))
@click.option("--name", "names", multiple=True, cls=Option,
              help="Which silo the request is of, once for each request; those they name by default.")  # fmt: skip
@authority_option
@click.option("--out", type=click.Path(path_type=Path), default=".", cls=Option,
              help="Folder for the files that go back.  [default: the current one]")  # fmt: skip
@click.option("--add", is_flag=True, cls=Option, help="Add silos that the plan lacks.")
@coordinator_option
def federation_admit(
    requests: tuple[Path, ...],
    names: tuple[str, ...],
    authority: Path,
    out: Path,
    add: bool,
    coordinator: Path | None,
    as_json: bool,
) -> None:
    """Sign the requests of silos, and write one file for each that goes back: NAME.admitted.

    Ask each silo by telephone for the fingerprint that it sees, and compare it with the one shown here: a request may
    have been exchanged on its way. The file holds no secret that others could read: the silos' common secret in it is
    encrypted for this silo.
    """
    from ..runtime.flare.authority import Authority
    from ..runtime.flare.enrol import SUFFIX, Request

    if names and len(names) != len(requests):
        raise click.UsageError(f"{plural(len(names), '--name')} for {plural(len(requests), 'request')}: one for each")
    found = [Request.check(read_json(path), path) for path in requests]
    called = names or tuple(one.name for one in found)
    for path, name in zip(requests, called, strict=True):
        if not name:
            raise click.UsageError(f"{path} names no silo; say which it is of with --name")
    if len(set(called)) < len(called):
        raise UsageError(f"two requests for one name: {listed(sorted({n for n in called if called.count(n) > 1}))}")
    signer = Authority.read(authority)
    out.mkdir(parents=True, exist_ok=True)
    files = {name: free_path(out / f"{name}{SUFFIX}", False) for name in called}
    with signer.held():
        admitted = signer.admit(dict(zip(called, found, strict=True)), add=add)
        for name, document in admitted.items():
            write_json(files[name], document)
        told = _tell_coordinator(signer, coordinator)
    _show_admitted(Words(), signer.roster, files, told, authority, as_json)


def _show_admitted(
    words: Words, roster: Roster, files: Mapping[str, Path], told: Path | None, authority: Path, as_json: bool
) -> None:
    table = new_table()
    for title in ("silo", "fingerprint of its key", "goes back to it"):
        table.add_column(title)
    for name, file in files.items():
        table.add_row(name, roster.fingerprints.get(name, ""), Text(str(file)))
    words.say(table)
    words.say("")
    words.say("Compare the fingerprints with the silos by telephone. There: fmtc federation accept FILE --kit FOLDER")
    show_roster(words, roster)
    _say_told(words, told, authority)
    if as_json:
        print_json({
            "files": {name: str(file) for name, file in files.items()}, **_roster_json(roster),
            "coordinator": None if told is None else str(told),
        })  # fmt: skip


def _roster_json(roster: Roster) -> dict[str, Any]:
    waiting = [name for name in roster.planned if name not in roster.silos]
    return {"number": roster.number, "code": roster.code, "silos": roster.fingerprints, "waiting": waiting}


def _tell_coordinator(signer: Authority, folder: Path | None) -> Path | None:
    """Put the newest roster into the coordinator's kit, if that is here; its folder."""
    from ..runtime.flare.enrol import receive
    from ..runtime.flare.kits import Kit

    beside = signer.folder.resolve().parent / "coordinator"
    if folder is None and not beside.is_dir():
        return None
    kit = Kit.read(folder or beside, "coordinator")
    receive(kit, signer.roster.document)
    return folder or beside


def _say_told(words: Words, told: Path | None, authority: Path) -> None:
    if told is None:
        words.say(
            f"Take {authority / 'roster.json'} to the coordinator: fmtc federation accept roster.json --kit FOLDER"
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

    words, signer = Words(), Authority.read(authority)
    with signer.held():
        roster = signer.revoke(name, remove=remove)
        told = _tell_coordinator(signer, coordinator)
    words.say(f"certificates of {name!r} count no more; roster {roster.number} says so")
    show_roster(words, roster)
    _say_told(words, told, authority)
    if as_json:
        print_json({"revoked": name, "coordinator": None if told is None else str(told), **_roster_json(roster)})


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
    from ..runtime.flare.enrol import SUFFIX, accept

    signer = Authority.read(authority)
    wanted = names or ("coordinator", *signer.roster.silos)
    out.mkdir(parents=True, exist_ok=True)
    files = {name: free_path(out / f"{name}{SUFFIX}", False) for name in wanted}
    beside = coordinator or signer.folder.resolve().parent / "coordinator"
    with signer.held():
        renewed = signer.renew(names)
        here = "coordinator" in renewed and beside.is_dir()
        if here:
            accept(renewed["coordinator"], beside)
            del files["coordinator"]
        for name, file in files.items():
            write_json(file, renewed[name])
        told = _tell_coordinator(signer, coordinator)
    words = Words()
    if here:
        words.say(f"renewed the certificates in {beside}")
    _show_admitted(words, signer.roster, files, told, authority, as_json)


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

    Send the request to the organiser; it holds no secret. Tell the organiser by telephone the fingerprint that you see.
    A kit that you have goes on as it is until you take the answer in.
    """
    from ..runtime.flare.enrol import Request, request

    words = Words()
    file = free_path(out or folder.with_name(f"{folder.resolve().name}.request"), force)
    document = request(folder, name, force=force)
    write_json(file, document)
    fingerprint = Request.check(document, file).fingerprint
    words.say(f"made a key in {folder}; it stays there, keep it to yourself")
    words.say(f"send {file} to the organiser, and tell them the fingerprint by telephone: {fingerprint}")
    words.say(f"then: fmtc federation accept FILE --kit {folder}")
    if as_json:
        print_json({"kit": str(folder), "request": str(file), "name": document["name"], "fingerprint": fingerprint})


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
    from ..privacy.identity import fingerprint_of, load_certificate
    from ..runtime.flare.enrol import Roster, accept

    words = Words()
    kit = accept(read_json(file), folder, file)
    roster = Roster.read(kit.startup)
    own = fingerprint_of(load_certificate(kit.credentials[0]))
    whose = "the coordinator" if kit.role == "coordinator" else f"silo {kit.name!r}"
    words.say(f"{folder} is the kit of {whose} of federation {kit.plan.name!r}, valid until {kit.expires:%Y-%m-%d}")
    words.say(f"the fingerprint of our key is {own}")
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
    from ..privacy.identity import same_code
    from ..runtime.flare.enrol import pin, strangers

    new = strangers(kit, roster)
    if code is not None and not same_code(code, roster.code):
        if not dialled:
            return
        raise TrustError(f"the roster code is {roster.code}, not {code}: these are not the silos that were accepted")
    show_roster(words, roster)
    if new and code is None:
        table = new_table()
        for title in ("silo", "fingerprint of its key", ""):
            table.add_column(title)
        for name, found in sorted(roster.fingerprints.items()):
            table.add_row(name, found, "new to us" if name in new else "ourselves" if name == kit.name else "known")
        show(words.console, table)
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
