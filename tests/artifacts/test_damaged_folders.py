"""Any damage to any file of a kit, of what travels, or of a run ends in a sentence and a documented exit code."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from tests.clock import ManualClock
from tests.runtime.kits import KitTransport

from fmtc import FMTC
from fmtc.artifacts.files import write_json
from fmtc.cli import main_group
from fmtc.privacy import identity
from fmtc.privacy.budget import BUDGET, Budget
from fmtc.privacy.rules import RULES
from fmtc.protocol.base import Message
from fmtc.protocol.common import END
from fmtc.protocol.method import view_method
from fmtc.runtime.driver import run
from fmtc.runtime.flare import doctor, membership, supervise
from fmtc.runtime.flare.authority import Authority, enrol
from fmtc.runtime.flare.enrol import request
from fmtc.runtime.flare.kits import Kit
from fmtc.runtime.flare.plan import Plan
from fmtc.runtime.kitclient import ClientSource

SHAPES = (None, [], {}, 5, "x", ["x"], [[1]], {"x": 5}, True, 10**30)  # in place of a document, and of its parts
TRIES = 4  # damaged forms of each file, besides those that every file has; raise it to look for more
EACH = False  # try each damage with every command that reads the file, and not with one in turn


def fmtc(*words: Any) -> Any:
    return CliRunner().invoke(main_group, [str(word) for word in words], env={"FMTC_DEBUG": None, "COLUMNS": "200"})


class Idle:
    """FLARE's process of a silo, which does nothing."""

    def __init__(self, kit: Kit, party: str = ""):
        self.log, self.alive = kit.path / "console.log", True

    def stop(self) -> None:
        pass

    finish_jobs = stop


class Impatient:
    """A clock at which somebody interrupts the first wait."""

    time, monotonic = staticmethod(lambda: 1e9), staticmethod(lambda: 1e9)

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A federation with requests on their way, a silo whose run has ended, a run of `fmtc fit`, a published kit."""
    home = tmp_path_factory.mktemp("original")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3)) + 5 * np.eye(3)[np.arange(90) % 3]
    table = pl.DataFrame(X, schema=["a", "b", "c"])
    for place, name in enumerate(("north", "south", "west")):
        table[30 * place : 30 * (place + 1)].write_csv(home / f"{name}.csv")
    kits = home / "kits"
    enrol(Plan("study", "localhost", 4711, ("north", "south")), kits)
    model = FMTC(3, view="mixture", max_iter=2, random_state=0)
    for name in ("north", "south"):
        ClientSource(name, str(home / f"{name}.csv")).write(kits / name)
    both = {name: kits / name for name in ("north", "south")}
    transport = KitTransport(both, model._settings(), method=view_method("mixture").name, clock=ManualClock(now=1e9))
    run(transport, model._settings(), method=view_method("mixture"))
    transport.tell("north", Message(END.name, END.Ask(converged=True)))
    Budget(kits / "north" / BUDGET).charge("rows", mu2=0.1, delta=1e-5)
    (kits / "north" / RULES).write_text('small_cluster = "warn"\nfew_rows = "warn"\ndominance = "warn"\n')
    # a request for a new key waits in north; what answers it, a renewal, and requests of newcomers travel
    for name, file in (("east", "east.request"), ("north", "north.request")):
        write_json(home / file, request(kits / name, name))
    authority = Authority.read(kits / "authority")
    renewed = authority.renew(["north", "coordinator"])
    for name, document in renewed.items():
        write_json(home / f"{name}.renewed", document)
    shutil.copy(kits / "authority" / "roster.json", home / "roster.json")
    files = [home / f"{name}.csv" for name in ("north", "south", "west")]
    done = fmtc("fit", *files, "-k", 3, "--max-iter", 2, "--set", "n_init=1", "--out", home / "run")
    assert done.exit_code == 0, done.output
    assert fmtc("publish", home / "run", "--out", home / "published").exit_code == 0
    return home


# Files, and the commands that read them. A command that changes its folder is the last of its file.
CODE = "0123-4567-89ab-cdef"  # of every key and roster here
ADMIT = ("federation", "admit", "east.request", "--add", "--authority", "kits/authority", "--out", "new", "--json",
         "--accept-key", CODE)  # fmt: skip
REVOKE = ("federation", "revoke", "--name", "south", "--authority", "kits/authority")
RENEW = ("federation", "renew", "--name", "south", "--authority", "kits/authority", "--out", "new")
RENEW_ALL = ("federation", "renew", "--authority", "kits/authority", "--out", "new")
ACCEPT = ("federation", "accept", "north.renewed", "--kit", "kits/north")
ROSTER = ("federation", "accept", "roster.json", "--kit", "kits/north")
AGAIN = ("federation", "request", "--kit", "kits/north", "--out", "again.request", "--force")
ACCEPT_HERE = ("federation", "accept", "coordinator.renewed", "--kit", "kits/coordinator")
JOIN = ("join", "--kit", "kits/north", "--data", "north.csv", "--out", "ours", "--json")
COORDINATE = ("coordinate", "--kit", "kits/coordinator", "-k", "3", "--out", "led", "--wait", "1")
DOCTOR, DOCTOR_HERE = ("doctor", "--kit", "kits/north"), ("doctor", "--kit", "kits/coordinator")
SHOW, VERIFY, SPENT = (("outbox", what, "kits/north") for what in ("show", "verify", "budget"))
RENAME = ("explain", "run", "--rename", "0=ill")
PREDICT = ("predict", "run", "west.csv", "--silo", "west")
REPORT = ("report", "run", "--out", "page.html")
UPDATE = ("update", "run", "north.csv", "--out", "second")
LATER = ("join-later", "--kit", "published", "--data", "north.csv", "--out", "later")

SILO: dict[str, list[tuple[str, ...]]] = {
    "kit.json": [JOIN, DOCTOR, AGAIN, ACCEPT],
    "waiting.json": [AGAIN, ACCEPT],
    "salt": [DOCTOR, JOIN, ACCEPT],
    "silos.toml": [DOCTOR, JOIN, ROSTER],
    "rules.toml": [JOIN],
    "startup/client.crt": [JOIN, DOCTOR, ROSTER, ACCEPT],
    "startup/client.key": [JOIN, DOCTOR, ACCEPT],
    "startup/rootCA.pem": [JOIN, DOCTOR, ROSTER, ACCEPT],
    "startup/roster.json": [JOIN, DOCTOR, ROSTER, ACCEPT],
    "startup/roster.accepted": [JOIN],
    "startup/revoked.pem": [JOIN, DOCTOR, ACCEPT],
    "startup/next.key": [ACCEPT],
    "startup/fed_client.json": [DOCTOR],
    "local/resources.json": [DOCTOR],
    "local/authorization.json": [DOCTOR],
    "local/comm_config.json": [DOCTOR],
    "local/fmtc.json": [SPENT],
    "outbox.jsonl": [SHOW, VERIFY, JOIN],
    "outbox.head": [SHOW, VERIFY],
    "budget.json": [SPENT],
    "events.jsonl": [JOIN],
    "fmtc/r/result.safetensors": [JOIN],
}
FILES: dict[str, list[tuple[str, ...]]] = {
    **{f"kits/north/{name}": commands for name, commands in SILO.items()},
    "kits/authority/cert.json": [ADMIT],
    "kits/authority/members.json": [REVOKE, RENEW, ADMIT],
    "kits/authority/roster.json": [REVOKE, RENEW, ADMIT],
    "kits/authority/rootCA.pem": [ADMIT],
    "kits/authority/revoked.pem": [RENEW, ADMIT],
    "kits/authority/salt": [ADMIT],
    "kits/coordinator/kit.json": [COORDINATE, DOCTOR_HERE, ADMIT, RENEW_ALL, ACCEPT_HERE],
    "kits/coordinator/server/startup/roster.json": [COORDINATE, DOCTOR_HERE, ADMIT],
    "kits/coordinator/server/startup/rootCA.pem": [COORDINATE, DOCTOR_HERE, ADMIT],
    "kits/coordinator/server/startup/server.crt": [COORDINATE, DOCTOR_HERE, ACCEPT_HERE],
    "kits/coordinator/server/startup/server.key": [COORDINATE, DOCTOR_HERE, ACCEPT_HERE],
    "kits/coordinator/server/startup/revoked.pem": [COORDINATE, DOCTOR_HERE],
    "kits/coordinator/server/startup/fed_server.json": [DOCTOR_HERE],
    "kits/coordinator/server/local/resources.template.json": [COORDINATE, DOCTOR_HERE],
    "kits/coordinator/admin/startup/client.crt": [DOCTOR_HERE, RENEW_ALL],
    "kits/coordinator/admin/startup/client.key": [RENEW_ALL],
    "east.request": [ADMIT],
    "north.renewed": [ACCEPT],
    "coordinator.renewed": [ACCEPT_HERE],
    "roster.json": [ROSTER],
    "run/labels/north.csv": [("explain", "--show", "labels", "run"), ("explain", "run", "--join", "north.csv"), RENAME],
    "run/explanation.json": [("explain", "run"), PREDICT, ("publish", "run", "--out", "again"), REPORT, RENAME],
    "run/atlas.json": [("explain", "run", "--show", "atlas"), REPORT],
    "run/history.json": [REPORT],
    "run/schema.toml": [("check", "north.csv", "south.csv", "--schema", "run/schema.toml")],
    "run/report.json": [
        ("explain", "--show", "labels", "run"), ("explain", "run", "--show", "influence"), REPORT,
        ("explain", "run", "--silo", "north", "--row", "3"),
    ],
    "run/outbox/north.jsonl": [("outbox", "show", "run"), ("outbox", "verify", "run"), REPORT],
    "run/outbox/north.head": [("outbox", "verify", "run")],
    "run/model/model.json": [PREDICT, UPDATE],
    "run/model/north.safetensors": [PREDICT, ("export", "run", "--silo", "north", "--onnx", "n.onnx")],
    "run/model/common.tensors": [PREDICT, UPDATE],
    "published/join.json": [LATER],
    "published/join.safetensors": [LATER],
}  # fmt: skip


# What is written before a command may refuse: what a roster revokes counts at once, whatever else is wrong in the kit.
# The coordinator's other keys are looked at when a renewal is taken in.
KEY = "kits/coordinator/admin/startup/client.key"


@pytest.fixture(scope="module")
def copy(original, tmp_path_factory) -> Path:
    return shutil.copytree(original, tmp_path_factory.mktemp("copy") / "home")


@pytest.fixture
def home(original, copy, monkeypatch) -> Iterator[Path]:
    """The same, to spoil, and whole again afterwards; no process is started and no connection is made."""
    monkeypatch.setattr(membership, "Membership", partial(membership.Membership, clock=Impatient(), start=Idle))
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(supervise, "Process", interrupted)
    monkeypatch.setattr(supervise, "check_port", lambda *_, **__: None)
    monkeypatch.setattr(doctor, "greet", lambda kit: [])
    monkeypatch.setattr(identity, "roster_code", lambda prints: CODE)  # which is slow on purpose
    monkeypatch.chdir(copy)
    whole = state_of(copy)
    yield copy
    bring_back(copy, original, whole)


def damages(path: Path, rng: random.Random) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names of damages, and what does each to a file."""
    whole = path.read_bytes()

    def write(content: bytes) -> Callable[[], Any]:
        return lambda: path.write_bytes(content)

    yield "empty", write(b"")
    yield "cut", write(whole[: len(whole) // 2])
    yield "random", write(rng.randbytes(300))
    yield "UTF-16", write(whole.decode("latin-1").encode("utf-16"))
    yield "Latin-1", write("déjà vu\n".encode("latin-1") + whole)
    if path.suffix in (".crt", ".pem", ".key"):
        for _ in range(2):  # base64 of something else
            spot = rng.randrange(40, len(whole) - 40)
            other = b"A" if whole[spot : spot + 1] != b"A" else b"B"
            yield f"byte {spot}", write(whole[:spot] + other + whole[spot + 1 :])
    yield "gone", lambda: path.unlink()
    yield "folder", lambda: (path.unlink(), path.mkdir())
    yield "endless link", lambda: (path.unlink(), path.symlink_to(path.name))
    if os.geteuid():
        yield "not readable", lambda: path.chmod(0)
    others = [(f"{shape!r}"[:20], json.dumps(shape).encode()) for shape in SHAPES]
    if path.suffix in (".json", ".jsonl", ".head", ".request", ".renewed"):
        first, *rest = whole.splitlines(keepends=True) if path.suffix == ".jsonl" else [whole]
        others += parts(json.loads(first))
    elif path.suffix == ".csv":
        table = whole.decode()
        for old, new in (("cluster", "club"), ("\n", "\nx,"), (",0,", ",many,"), (",0,", ",99999999999999999999,")):
            others.append((f"{old!r} {new!r}", table.replace(old, new).encode()))
    for name, content in rng.sample(others, min(TRIES, len(others))):
        whole_line = content if isinstance(content, bytes) else b"".join([json.dumps(content).encode() + b"\n", *rest])
        yield name, write(whole_line)


def parts(document: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """The document with one part of another form, or without it."""
    for key in document if isinstance(document, dict) else range(min(2, len(document))):
        for shape in SHAPES:
            other = document.copy()
            other[key] = shape
            yield f"{above}{key} = {shape!r}"[:60], other
        if isinstance(document, dict):
            yield f"no {above}{key}", {name: part for name, part in document.items() if name != key}
        if isinstance(document[key], dict | list):
            for name, part in parts(document[key], f"{above}{key}."):
                other = document.copy()
                other[key] = part
                yield name, other


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    """When each file was written, and how long it is."""
    found, waiting, start = {}, [str(folder)], len(str(folder)) + 1
    while waiting:
        for entry in os.scandir(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            else:
                facts = entry.stat(follow_symlinks=False)
                found[entry.path[start:]] = (facts.st_mtime_ns, facts.st_size)
    return found


def bring_back(home: Path, original: Path, whole: dict[str, tuple[int, int]]) -> None:
    """Bring back the files that were damaged, changed or removed, and remove what is new."""
    for path in home.iterdir():
        if path.is_dir() and not (original / path.name).exists():
            shutil.rmtree(path)
    now = state_of(home)
    for path in [home / name for name in {*now, *whole} if now.get(name) != whole.get(name)]:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        if (before := original / path.relative_to(home)).exists():
            shutil.copy2(before, path)


def test_whole_files_are_read(home, original):
    """The commands below work, or fail for want of processes alone."""
    bad, whole = {}, state_of(home)
    for words in dict.fromkeys(words for commands in FILES.values() for words in commands):
        bring_back(home, original, whole)
        if (done := fmtc(*words)).exit_code not in (0, 130):
            bad[words] = done.output
    assert set(bad) <= {DOCTOR, DOCTOR_HERE}, bad


@pytest.mark.filterwarnings("ignore")  # of values that are odd and no damage
@pytest.mark.parametrize("file", FILES)
def test_any_damage_ends_in_a_sentence(file, home, original):
    path, rng = home / file, random.Random(file)
    wrong, whole = [], state_of(home)
    for place, (what, spoil) in enumerate(damages(path, rng)):
        for words in FILES[file] if EACH else [FILES[file][place % len(FILES[file])]]:
            spoil()
            before = state_of(home)
            done = fmtc(*words)
            after = state_of(home)
            sentence = " ".join(done.stderr.split())
            codes = (0, 1, 3, 4) if words[0] == "doctor" else (0, 3, 4, 130)
            codes += (2,) if file.endswith("rules.toml") else ()  # the default asks at a terminal
            codes += (2,) if what == "folder" else ()  # where a file cannot be written
            if done.exit_code not in codes or "internal error" in sentence or "Traceback" in sentence:
                wrong.append((what, " ".join(words), done.exit_code, sentence[-300:]))
            changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
            whole_written = what not in ("folder", "endless link")  # which keep a file from being replaced
            may_change = words is ROSTER or words[0] == "join" or (words, file) == (RENEW_ALL, KEY)
            if changed and whole_written and done.exit_code in (3, 4) and not may_change:
                wrong.append((what, " ".join(words), done.exit_code, "changed", *changed, sentence[-200:]))
            bring_back(home, original, whole)
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("name", ["n" * 300, "n" * 250, "é" * 130, f"new/{'n' * 300}/run", "x/" * 2100 + "run"])
@pytest.mark.parametrize("command", [
    ("fit", "north.csv", "south.csv", "-k", "3", "--max-iter", "1", "-q", "--out"),
    ("update", "run", "north.csv", "-q", "--out"),
    ("join-later", "--kit", "published", "--data", "north.csv", "-q", "--out"),
    ("predict", "run", "west.csv", "--out"),
    ("explain", "--show", "labels", "run", "--out"),
    ("publish", "run", "--out"),
    ("report", "run", "--out"),
    ("explain",),
    ("predict", "run", "--silo", "north"),
    ("federation", "request", "--name", "east", "--kit"),
    ("federation", "admit", "east.request", "--add", "--authority", "kits/authority", "--accept-key", CODE, "--out"),
    ("coordinate", "--kit", "kits/coordinator", "-k", "3", "--out"),
    ("join", "--kit", "kits/north", "--data", "north.csv", "--out"),
    ("doctor", "--kit"),
], ids=lambda command: " ".join(command[:2]))  # fmt: skip
def test_names_that_are_too_long(command, name, home):
    """They are refused in a sentence, before anything is written; or, where the system takes them, used."""
    before = state_of(home)
    done = fmtc(*command, name)
    assert "internal error" not in done.stderr
    if done.exit_code not in (0, 130):
        assert done.exit_code in (2, 3) or command[0] == "doctor", done.output
        assert state_of(home) == before
    assert done.exit_code != 0 or len(name) == 250
