"""What the organiser of a federation works with: the authority that signs, and the coordinator's kit if it is here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..artifacts.files import read_json, write_json
from ..errors import KitError, UsageError, listed, plural
from ..privacy.identity import AUTHORITY, load_certificate
from ..runtime.flare.authority import Authority
from ..runtime.flare.enrol import COORDINATOR, SUFFIX, Request, Roster, accept, newer, receive
from ..runtime.flare.kits import Kit
from .asking import ask_keys, roster_document, show_roster
from .federation import Admission
from .flags import free_path
from .words import Words


class Organiser:
    """Signs, and hands every new roster to the coordinator's kit if it is here.

    Parameters
    ----------
    words : Words
    authority : Path
        The folder of the authority.
    coordinator : Path, optional
        The coordinator's kit; by default the folder of that name beside the authority, if there is one.
    """

    def __init__(self, words: Words, authority: Path, coordinator: Path | None):
        self.words, self.signer = words, Authority.read(authority)
        beside = authority.resolve().parent / "coordinator"
        folder = coordinator or (beside if beside.is_dir() else None)
        self.kit = None if folder is None else self._checked(folder)

    def _checked(self, folder: Path) -> Kit:
        """The coordinator's kit; whatever is wrong with it is said before we sign."""
        kit = Kit.read(folder, "coordinator")
        if load_certificate(kit.startup / AUTHORITY) != self.signer.certificate:
            raise KitError(
                f"{kit.path} is the kit of another federation: {self.signer.folder} did not sign its certificates"
            )
        if newer(self.signer.roster, Roster.read(kit.startup)):
            raise KitError(f"{kit.path} has a newer roster than {self.signer.folder}, which seems to be an old copy")
        return kit

    def admit(self, paths: Sequence[Path], how: Admission) -> None:
        """Sign requests, once the organiser has compared the keys, and write the files that go back."""
        requests = _named(paths, how.names)
        files = _free(how.out, requests)
        self.signer.check(requests, add=how.add)
        ask_keys(self.words, requests, how.codes)
        with self.signer.locked():
            _write(files, self.signer.admit(requests, add=how.add))
            self._hand_on()
        self._tell(files=files)

    def revoke(self, name: str, *, remove: bool) -> None:
        """Have the certificates of a silo count no more."""
        with self.signer.locked():
            roster = self.signer.revoke(name, remove=remove)
            self._hand_on()
        self.words.say(f"certificates of {name!r} count no more; roster {roster.number} says so")
        self._tell(revoked=name)

    def renew(self, names: Sequence[str], out: Path) -> None:
        """Sign new certificates for the keys there are, and write the files that go back."""
        wanted = names or (COORDINATOR, *self.signer.roster.silos)
        here = self.kit if COORDINATOR in wanted else None  # takes its own in
        files = _free(out, [name for name in wanted if here is None or name != COORDINATOR])
        if here is not None:
            with here.locked():  # nobody works with it
                pass
        with self.signer.locked():
            renewed = self.signer.renew(names)
            _write(files, renewed)
            if here is not None:
                accept(renewed[COORDINATOR], here.path)
            self._hand_on()
        if here is not None:
            self.words.say(f"renewed the certificates in {here.path}")
        self._tell(files=files)

    def _hand_on(self) -> None:
        if self.kit is not None:
            receive(self.kit, self.signer.roster.document)

    def _tell(self, files: Mapping[str, Path] | None = None, **done: Any) -> None:
        """Say what goes where now, and give the same to machines with what was done."""
        words, roster = self.words, self.signer.roster
        if files is not None:
            done = {"files": {name: str(file) for name, file in files.items()}}
            for name, file in files.items():
                words.say(f"wrote {file}: send it back to {name!r}")
            words.say("There: fmtc federation accept FILE --kit FOLDER")
        show_roster(words, roster)
        if self.kit is None:
            file = self.signer.folder / "roster.json"
            words.say(f"Take {file} to the coordinator: fmtc federation accept roster.json --kit FOLDER")
        words.give(done | roster_document(roster) | {"coordinator": None if self.kit is None else str(self.kit.path)})


def _named(paths: Sequence[Path], names: Sequence[str]) -> dict[str, Request]:
    """Requests by the name of the silo, as the organiser says or as they say themselves."""
    if names and len(names) != len(paths):
        raise click.UsageError(f"{plural(len(names), '--name')} for {plural(len(paths), 'request')}: one for each")
    found = [Request.check(read_json(path), path) for path in paths]
    called = names or [one.name for one in found]
    for path, name in zip(paths, called, strict=True):
        if not name:
            raise click.UsageError(f"{path} names no silo; say which it is of with --name")
    if twice := {name for name in called if called.count(name) > 1}:
        raise UsageError(f"two requests for one name: {listed(sorted(twice))}")
    return dict(zip(called, found, strict=True))


def _free(out: Path, names: Iterable[str]) -> dict[str, Path]:
    return {name: free_path(out / f"{name}{SUFFIX}", False) for name in names}


def _write(files: Mapping[str, Path], documents: Mapping[str, Any]) -> None:
    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, documents[name])
