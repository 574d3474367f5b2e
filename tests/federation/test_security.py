"""Who may take part and what may run: kits, certificates, jobs, and what a federation tells the world around it."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import socket
import ssl
import stat
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest
from click.testing import CliRunner
from cryptography import x509

from fmtc.artifacts import files as wire
from fmtc.artifacts.files import read_json
from fmtc.cli import main_group
from fmtc.errors import KitError, RefusedError
from fmtc.runtime.flare import kits as kits_module
from fmtc.runtime.flare.authority import enrol
from fmtc.runtime.flare.enrol import Roster
from fmtc.runtime.flare.kits import ADMIN, Kit
from fmtc.runtime.flare.local import LocalFederation
from fmtc.runtime.flare.plan import Plan, is_loopback, read_plan
from fmtc.runtime.flare.processes import Process, free_port
from fmtc.runtime.flare.supervise import Coordinator, write_job
from fmtc.runtime.kitclient import ClientSource, KitClient
from fmtc.runtime.spec import RunSpec
from fmtc.settings import Settings
from fmtc.tables import Reading

from .commands import wait_until
from .conftest import FAULTS, none_left
from .papers import change, copied, listening, sign

# FLARE 2.9 calls aiohttp in a way that aiohttp is going to drop; its session runs in this process
pytestmark = pytest.mark.filterwarnings("ignore:ssl_context is deprecated:DeprecationWarning")

PLAN = 'name = "study"\nhost = "localhost"\nport = 8002\nsilos = ["north", "south"]\n'


def fmtc(*args, **env):
    """Run a command in this process: exit code, standard output and standard error apart."""
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
    return CliRunner().invoke(main_group, [str(a) for a in args], prog_name="fmtc", env=plain | env)


def refused(done, code=3):
    """What a refused command said: one sentence, no data, no traceback."""
    assert done.exit_code == code, done.output
    assert done.stdout == "" and "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Kits of a federation, and those of another with the same names."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("kits", "strangers"):
        enrol(Plan("study", "localhost", 4711, ("north", "south")), folder / name)
    return folder


def write_rows(path):
    """Rows whose numbers are easily found again, and names nobody should read."""
    rng = np.random.default_rng(7)
    X = 4 * np.eye(2, 3)[np.arange(40) % 2] + rng.normal(size=(40, 3))
    X[0, 0] = 123456.789
    frame = pl.DataFrame(X, schema=["a", "b", "c"])
    frame.with_columns(pl.Series("id", [f"patient-{4711 + i}" for i in range(40)])).write_csv(path)
    return X


# ------------------------------------------------------------------------------------------------------------ plans


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('silos = ["no rth"]', "silo 'no rth'"),
        ('silos = ["nörd"]', "silo 'nörd'"),
        ('silos = ["north/south"]', "silo 'north/south'"),
        ('silos = [".."]', "silo '..'"),
        ('silos = [""]', "silo ''"),
        ('silos = ["north\\n"]', r"silo 'north\n'"),
        (f'silos = ["{"n" * 51}"]', "nnn'"),
        ('silos = ["north", "North"]', "silo 'North', 'north' is named more than once"),
        ('silos = ["north", "south", "south"]', "silo 'south' is named more than once"),
        ('silos = ["coordinator"]', "silo 'coordinator'"),
        ('silos = ["Authority"]', "silo 'Authority'"),
        ("silos = []", "no silo is named"),
        ('silos = "north"', "silos must be a list"),
        ("silos = [1, 2]", "silo 1"),
        ("silos = [true]", "silo True"),
        ("port = 0", "port must be a whole number from 1 to 65535, got 0"),
        ("port = 65536", "got 65536"),
        ("port = true", "got True"),
        ('port = "8002"', "got '8002'"),
        ("port = 80.5", "got 80.5"),
        ('host = "a b"', "host 'a b' is neither"),
        ('host = "-x"', "host '-x' is neither"),
        ('host = "a..b"', "host 'a..b' is neither"),
        (f'host = "{"a" * 64}.org"', "is neither"),
        ("host = 7", "host 7 is neither"),
        ('name = "a study"', "name 'a study'"),
        ("name = 5", "name 5"),
        ("lost_after = 1", "lost_after must be a number of at least 5"),
        ("lost_after = true", "lost_after must be"),
        ("lost_after = nan", "lost_after must be"),
        ("lost_after = inf", "lost_after must be"),
        ("silo = 3", "unknown silo"),
    ],
)
def test_a_plan_that_is_refused(tmp_path, line, words):
    key = line.partition(" ")[0]
    lines = [old for old in PLAN.splitlines() if not old.startswith(f"{key} ")]
    (tmp_path / "plan.toml").write_text("\n".join([*lines, line]), encoding="utf-8")
    done = fmtc("federation", "init", tmp_path / "plan.toml", "--out", tmp_path / "kits")
    assert words in refused(done)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]


def test_files_that_are_no_plan(tmp_path):
    plan = tmp_path / "plan.toml"
    init = ("federation", "init", plan, "--out", tmp_path / "kits")
    assert "plan.toml does not exist" in refused(fmtc(*init))
    for content in (b"name = study", b"\xff\xfe\x00", b'name = "a"\nname = "b"'):
        plan.write_bytes(content)
        assert "plan.toml is not TOML" in refused(fmtc(*init))
    plan.write_text("")
    assert "lacks host, name, port, silos" in refused(fmtc(*init))
    plan.write_text(PLAN.replace('host = "localhost"\n', "") + "sites = 3\n")
    assert "lacks host and has the unknown sites" in refused(fmtc(*init))
    plan.unlink()
    plan.mkdir()
    assert "plan.toml" in refused(fmtc(*init))


def test_names_that_look_like_something_else_work(tmp_path):
    """FLARE takes a number, a truth value or "server" for what it is; a silo may be called so all the same."""
    silos = ("1", "007", "1e3", "true", "null", "server", "-", "n" * 50)
    (tmp_path / "plan.toml").write_text(PLAN.replace('["north", "south"]', json.dumps(silos)))
    plan = read_plan(tmp_path / "plan.toml")
    first, *kits = enrol(plan, tmp_path / "kits")
    assert [kit.name for kit in kits] == list(silos)
    for kit in kits:
        kit.check()
        assert kit.path == (tmp_path / "kits" / kit.name).resolve()
        certificate = x509.load_pem_x509_certificate((kit.startup / "client.crt").read_bytes())
        assert certificate.subject.rfc4514_string().endswith(f"CN=silo-{kit.name}")
    first.check()


# ------------------------------------------------------------------------------------------------------------- kits


def secrets_of(kits):
    """The private keys and salts of a folder of kits, by file: lines that appear in no other place."""
    found = {}
    for path in kits.rglob("*.key"):
        found[path] = path.read_text().splitlines()[5]
    for path in kits.rglob("salt"):
        found[path] = path.read_text().strip()
    root = read_json(kits / "authority" / "cert.json")
    found[kits / "authority" / "cert.json"] = root["root_pri_key"].splitlines()[5]
    assert all(len(secret) >= 60 for secret in found.values())
    return found


def files_with(folder, needle):
    return {path for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()}


def test_kits_are_for_their_owner_alone(tmp_path):
    before = os.umask(0o002)
    try:
        enrol(Plan("study", "localhost", 4711, ("north",)), tmp_path / "kits")
    finally:
        os.umask(before)
    for path in (tmp_path / "kits", *(tmp_path / "kits").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_each_secret_is_with_its_owner_only(home):
    kits = home / "kits"
    secrets = secrets_of(kits)
    names = {str(path.relative_to(kits)) for path in secrets}
    assert names == {
        "authority/cert.json", "authority/salt", "coordinator/server/startup/server.key",
        "coordinator/admin/startup/client.key", "north/salt", "north/startup/client.key", "south/salt",
        "south/startup/client.key",
    }  # fmt: skip
    salt = secrets[kits / "north" / "salt"]
    for path, secret in secrets.items():
        if secret == salt:  # the silos' common secret, which the coordinator does not have
            assert files_with(kits, secret.encode()) == {kits / who / "salt" for who in ("authority", "north", "south")}
        else:
            inside = json.dumps(secret)[1:-1].encode()
            assert files_with(kits, secret.encode()) | files_with(kits, inside) == {path}
    assert len(set(secrets.values())) == len(secrets) - 2


def test_two_federations_share_nothing(home):
    ours, theirs = (set(secrets_of(home / name).values()) for name in ("kits", "strangers"))
    assert not ours & theirs


def test_init_says_what_goes_where_and_until_when(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    done = fmtc("federation", "init", tmp_path / "plan.toml", "--out", tmp_path / "kits", "--json")
    assert done.exit_code == 0, done.output
    for words in ("kits/coordinator", "the coordinator (localhost)", "fmtc coordinate --kit coordinator", "silo north",
                  "fmtc federation request --name south --kit south", "kits/authority signs"):  # fmt: skip
        assert words in done.stderr, words
    told = json.loads(done.stdout)
    assert (told["silos"], told["port"]) == (["north", "south"], 8002)
    assert sorted(path.name for path in (tmp_path / "kits").iterdir()) == ["authority", "coordinator"]
    assert 300 < (datetime.fromisoformat(told["expires"]) - datetime.now(UTC)).days < 400
    for secret in secrets_of(tmp_path / "kits").values():
        assert secret not in done.output
    again = fmtc("federation", "init", tmp_path / "plan.toml", "--out", tmp_path / "kits")
    assert "exists; choose another name" in refused(again, 2)


@pytest.mark.parametrize("place", ["_flare_kits", "_set_policy", "write_json", "tighten"])
def test_kits_that_cannot_be_finished_leave_nothing(tmp_path, monkeypatch, place):
    module = wire if place == "tighten" else kits_module
    real, calls = getattr(module, place), []

    def fail(*args, **kwargs):
        calls.append(args)
        if place != "write_json" or len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(module, place, fail)
    (tmp_path / "plan.toml").write_text(PLAN)
    done = fmtc("federation", "init", tmp_path / "plan.toml", "--out", tmp_path / "kits")
    assert "No space left on device" in refused(done, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]
    assert calls


def trusted(authority, certificate):
    """Whether OpenSSL finds a certificate to be signed by an authority, as each side does in a handshake."""
    roots, shown = x509.load_pem_x509_certificates(authority.read_bytes()), certificate.read_bytes()
    try:
        x509.load_pem_x509_certificate(shown).verify_directly_issued_by(roots[0])
    except Exception:
        return False
    return True


def test_a_renewed_certificate_is_of_the_same_key_and_works_beside_the_old_one(home, tmp_path):
    kits = shutil.copytree(home / "kits", tmp_path / "kits")
    before = {path: path.read_bytes() for path in kits.rglob("*") if path.is_file()}
    done = fmtc("federation", "renew", "--authority", kits / "authority", "--out", tmp_path / "new", "--json")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["north.admitted", "south.admitted"]
    assert json.loads(done.stdout)["code"] == Roster.read(Kit.read(home / "kits/north").startup).code
    done = fmtc("federation", "accept", tmp_path / "new/north.admitted", "--kit", kits / "north")
    assert done.exit_code == 0, done.output
    changed = {str(path.relative_to(kits)) for path, content in before.items() if path.read_bytes() != content}
    certificates = {"coordinator/server/startup/server.crt", "coordinator/admin/startup/client.crt",
                    "north/startup/client.crt"}  # fmt: skip
    assert {name for name in changed if name.endswith((".crt", ".key", "salt", ".toml"))} == certificates
    for name in ("coordinator", "north", "south"):
        Kit.read(kits / name).check()
    strangers = home / "strangers"
    for ours in (kits, home / "kits"):  # and in a handshake: old and new with each other
        for theirs in (kits, home / "kits"):
            assert trusted(ours / "north/startup/rootCA.pem", theirs / "coordinator/server/startup/server.crt")
            assert greeting(theirs / "coordinator/server/startup", ours / "north/startup") == b"hello"
        assert greeting(ours / "coordinator/server/startup", strangers / "north/startup") != b"hello"


def greeting(server, client):
    """What a client hears from a server that asks for its certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(server / "rootCA.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(server / "server.crt", server / "server.key")

    def answer(connection):
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.sendall(b"hello")

    with listening(answer) as port:
        return heard(port, client, b"")


def heard(port, startup, request, certificate=True, patience=5.0):
    """The first bytes after a handshake with a kit's files; None for silence, the error where it did not come to it."""
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    context.check_hostname = False
    if certificate:
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.settimeout(patience)
            secure.sendall(request)
            try:
                return secure.recv(100)
            except TimeoutError:
                return None
    except OSError as error:
        return error


def test_renew_without_an_authority(home, tmp_path):
    renew = ("federation", "renew", "--out", tmp_path / "new", "--authority")
    assert "is not the authority/ folder" in refused(fmtc(*renew, tmp_path))
    assert "is not the authority/ folder" in refused(fmtc(*renew, tmp_path / "nowhere"))
    old = shutil.copytree(home / "kits/authority", tmp_path / "old")
    (old / "members.json").unlink()
    assert "is not the authority/ folder" in refused(fmtc(*renew, old))


@pytest.mark.parametrize(
    ("host", "target"),
    [("localhost", "localhost:4711"), ("127.0.0.1", "127.0.0.1:4711"), ("coordinator.example.org", "server:4711")],
)
def test_a_coordinator_on_this_machine_listens_to_this_machine_only(tmp_path, host, target):
    first, _ = enrol(Plan("study", host, 4711, ("north",)), tmp_path / "kits")
    assert read_json(first.startup / "fed_server.json")["servers"][0]["service"]["target"] == target
    dialled = read_json(first.path / "admin/startup/fed_admin.json")["admin"]["host"]
    assert dialled == ("127.0.0.1" if "example" in host else host)  # the coordinator's own session
    assert is_loopback(host) is ("example" not in host)
    assert is_loopback("127.example.org") is False


# ----------------------------------------------------------------------------------------- who is not let in: quick


def spoilt(home, folder, how):
    """North's kit, with something wrong about its certificate."""
    kit = copied(Kit.read(home / "kits" / "north"), folder)
    if how == "none":
        (kit.startup / "client.crt").unlink()
    elif how == "no key":
        (kit.startup / "client.key").unlink()
    elif how == "foreign":
        for name in ("client.crt", "client.key"):
            shutil.copy(home / "strangers/north/startup" / name, kit.startup)
    elif how == "another silo's":
        for name in ("client.crt", "client.key"):
            shutil.copy(home / "kits/south/startup" / name, kit.startup)
    else:
        begins, ends = {"expired": (-9, -2), "not yet": (2, 9)}[how]
        sign(home / "kits" / "authority", kit.startup / "client.crt", begins=begins, ends=ends)
    return kit


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("none", "client.crt is missing"),
        ("no key", "client.key is missing"),
        ("foreign", "client.crt in .* is of another federation"),
        ("another silo's", "client.crt in .* is for 'silo-south', this is the kit of 'silo-north'"),
        ("expired", "the certificate of 'north' expired on .* ask the organiser to renew it"),
        ("not yet", "the certificate of 'north' is valid from .* set the clock"),
    ],
)
def test_join_refuses_a_kit_that_nobody_would_accept(home, tmp_path, how, words):
    kit = spoilt(home, tmp_path, how)
    write_rows(tmp_path / "rows.csv")
    done = fmtc(
        "join", "--kit", kit.path, "--data", tmp_path / "rows.csv", "--id-column", "id", "--out", tmp_path / "o"
    )
    assert re.search(words, refused(done))
    assert not (kit.path / "console.log").exists()  # no process was started


def test_kits_are_not_mixed_up(home, tmp_path):
    coordinator, north = home / "kits/coordinator", home / "kits/north"
    done = fmtc("join", "--kit", coordinator, "--data", tmp_path / "rows.csv", "--out", tmp_path / "out")
    assert "is the kit of a coordinator, not of a silo" in refused(done)
    done = fmtc("coordinate", "--kit", north, "-k", 2, "--out", tmp_path / "out")
    assert "is the kit of a silo, not of a coordinator" in refused(done)
    with pytest.raises(KitError, match="is not a folder"):
        Kit.read(tmp_path / "nowhere")


# ------------------------------------------------------------------------------- who is not let in: a real coordinator


@dataclass
class Study:
    """A coordinator that means ill, one silo that is there, and two that should not get in."""

    coordinator: Coordinator
    kits: Path
    processes: dict[str, Process]
    join: subprocess.Popen


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The coordinator has lifted its own policy, and tells silos not to ask theirs: each is on its own."""
    folder = tmp_path_factory.mktemp("study")
    plan = Plan("study", "localhost", free_port(), ("north", "south", "west"), 10.0)
    write_rows(folder / "rows.csv")
    for name in ("kits", "strangers"):
        enrol(plan, folder / name)
    kits = folder / "kits"
    first, north, south, west = (Kit.read(kits / name) for name in ("coordinator", *plan.silos))
    local = first.workspace / "local"
    rights = dict.fromkeys(read_json(local / "authorization.json")["permissions"]["project_admin"], "any")
    change(local / "authorization.json", ["permissions", "project_admin"], rights)
    change(local / "resources.template.json", ["class_allow_list"], ["*"])
    sign(kits / "authority", west.startup / "client.crt", begins=-9, ends=-2)
    for name in ("client.crt", "client.key"):
        shutil.copy(folder / "strangers/south/startup" / name, south.startup)
    ClientSource("north", str(folder / "rows.csv"), Reading(id_column="id")).write(north.path)
    with contextlib.ExitStack() as stack:
        coordinator = stack.enter_context(Coordinator(first))
        with pytest.MonkeyPatch.context() as patch:  # its software is not what it should be, either
            patch.setenv("PYTHONPATH", str(FAULTS), prepend=os.pathsep)
            patch.setenv("FMTC_TEST_LAWLESS", "1")
            coordinator.open()
        processes = {}
        for kit in (north, south, west):
            processes[kit.name] = Process(kit)
            stack.callback(processes[kit.name].stop)
        command = [
            sys.executable, "-m", "fmtc.cli", "join", "--kit", folder / "strangers/north", "--data",
            folder / "rows.csv", "--id-column", "id", "--out", folder / "out",
        ]  # fmt: skip
        join = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(lambda: (join.kill(), join.communicate()))
        end = time.monotonic() + 60
        while "north" not in coordinator.present():
            assert time.monotonic() < end, "north did not come"
            time.sleep(0.2)
        yield Study(coordinator, kits, processes, join)
    assert none_left(folder)


@pytest.mark.federation
def test_the_server_talks_to_nobody_without_our_certificate(study):
    port, request = study.coordinator.kit.plan.port, b"GET / HTTP/1.0\r\n\r\n"
    assert heard(port, study.kits / "north/startup", request).startswith(b"HTTP/1.")
    for startup, certificate in (
        (study.kits / "north/startup", False),
        (study.kits / "south/startup", True),  # of another federation
        (study.kits / "west/startup", True),  # expired
    ):
        answer = heard(port, startup, request, certificate)
        assert answer == b"" or isinstance(answer, OSError)
    with socket.create_connection(("127.0.0.1", port), 5) as plain:  # nor without TLS
        plain.sendall(request)
        with contextlib.suppress(ConnectionError):
            assert not plain.recv(100).startswith(b"HTTP")


@pytest.mark.federation
def test_processes_of_one_machine_talk_to_nobody_else_on_it(study):
    """Those of a silo, and those of the coordinator, meet at ports that every user of the machine can dial."""
    startup = study.kits / "north/startup"
    for process in (study.processes["north"], study.coordinator.server):
        sockets = psutil.Process(process.process.pid).net_connections("tcp")
        listening = {c.laddr.port for c in sockets if c.status == psutil.CONN_LISTEN}
        (port,) = listening - {study.coordinator.kit.plan.port}
        assert heard(port, startup, b"", patience=1.0) is None  # it waits for us to speak
        answer = heard(port, startup, b"", certificate=False)
        assert answer == b"" or isinstance(answer, ssl.SSLError)


@pytest.mark.federation
def test_silos_with_a_foreign_or_an_expired_certificate_never_show_up(study):
    """Next to one that came in seconds; and the command of a silo of another federation gives up and says why."""

    def given_up():
        assert study.coordinator.present() == {"north"}
        return study.join.poll() is not None

    wait_until(given_up)
    logs = {name: process.log.read_text(errors="replace") for name, process in study.processes.items()}
    registered = {name for name, said in logs.items() if "Successfully registered" in said}
    assert registered == {"north"} and set(logs) == {"north", "south", "west"}
    _, said = study.join.communicate()
    assert study.join.returncode == 3, said
    assert "has a certificate of another federation" in " ".join(said.split())
    assert study.coordinator.present() == {"north"}


MARK = "ran"


@pytest.fixture(scope="module")
def jobs(study, tmp_path_factory):
    """Jobs that would do harm, handed in together: name -> (how it ended, FLARE's words about it, its mark)."""
    folder = tmp_path_factory.mktemp("jobs")
    plan = study.coordinator.kit.plan
    ids = {}
    for name in ("code", "component", "executor"):
        job = write_job(folder / name, RunSpec(name, Settings(n_clusters=2, max_iter=2), folder), plan, {"north"})
        (client,) = job.rglob("config_fed_client.json")
        mark = str(folder / f"{name}-{MARK}")
        executor = read_json(client)["executors"][0]["executor"]
        if name == "code":
            custom = client.parents[1] / "custom"
            custom.mkdir()
            (custom / "foreign.py").write_text(
                f"open({mark!r}, 'w').close()\nfrom fmtc.runtime.flare.adapter import FmtcExecutor as Foreign\n"
            )
            change(client, ["executors", 0, "executor"], executor | {"path": "foreign.Foreign"})
        elif name == "component":
            change(client, ["components"], [{"id": "x", "path": "subprocess.Popen", "args": {"args": ["touch", mark]}}])
        else:
            path = "nvflare.app_common.executors.init_final_component_executor.InitFinalComponentExecutor"
            change(client, ["executors", 0, "executor"], {"path": path, "args": {}})
        ids[name] = study.coordinator.session.submit_job(str(job))
    end = time.monotonic() + 90
    statuses = {}
    while time.monotonic() < end and not all(status.startswith("FINISHED") for status in statuses.values() or [""]):
        time.sleep(0.5)
        statuses = {name: study.coordinator.status(job) for name, job in ids.items()}
    metas = {name: study.coordinator.session.get_job_meta(job) for name, job in ids.items()}
    logs = {name: (study.kits / "north" / job / "log.txt") for name, job in ids.items()}
    return {
        name: (statuses[name], str(metas[name].get("job_deploy_detail")), logs[name], folder / f"{name}-{MARK}")
        for name in ids
    }


@pytest.mark.federation
def test_a_silo_runs_no_code_that_travels_with_a_job(jobs):
    status, detail, log, mark = jobs["code"]
    assert status == "FINISHED:FAILED_TO_RUN"
    assert "silo-north: NVFLARE_ERROR: BYOC not permitted" in detail
    assert not log.exists() and not mark.exists()


@pytest.mark.federation
@pytest.mark.parametrize("name", ["component", "executor"])
def test_a_silo_runs_no_class_but_ours(jobs, name):
    status, _, log, mark = jobs[name]
    assert status in ("FINISHED:ABNORMAL", "FINISHED:EXECUTION_EXCEPTION")
    said = log.read_text(errors="replace")
    assert "not authorized" in said
    assert {"component": "subprocess.Popen", "executor": "InitFinalComponentExecutor"}[name] in said
    assert not mark.exists()


@pytest.mark.parametrize("run_id", ["../../..", "..", ".", "", "a/b", "a\\b", "/tmp", "a" * 65, "ü", "run\n", None, 5])
def test_a_silo_takes_no_name_of_a_run_for_a_path(tmp_path, run_id):
    """It names a folder of the silo, and what is beside it is thrown away."""
    (tmp_path / "local").mkdir()
    ClientSource("north", "rows.npy").write(tmp_path)
    with pytest.raises(RefusedError):
        KitClient(tmp_path, RunSpec(run_id, Settings(2)))
    KitClient(tmp_path, RunSpec("0123456789abcdef", Settings(2)))


@pytest.mark.federation
def test_a_silo_lets_nobody_look_into_its_folder(study):
    """FLARE's client would ask the silo's policy only where the server says so, and this one does not."""
    for command in ("ls", "pwd", "cat local/fmtc.json", "head kit.json", "tail log.txt", "grep a log.txt"):
        word, _, rest = command.partition(" ")
        answer = study.coordinator.session.do_command(f"{word} silo-north {rest}".strip())
        assert answer["data"] == [{"type": "string", "data": "invalid_request"}], command


def test_a_silo_answers_what_a_run_needs_and_no_more():
    """In a process of its own, as the list is FLARE's."""
    code = (
        "from fmtc.runtime.flare import compat, serve\n"
        "serve.answer_only(compat, compat.ANSWERED)\n"
        "known = compat.ClientRequestProcessors.request_processors\n"
        "print(*sorted(topic for processor in known for topic in processor.get_topics()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == [
        "scheduler.cancel_resource", "scheduler.check_resource", "train.abort", "train.check_status", "train.deploy",
        "train.notify_job_status", "train.start_job",
    ]  # fmt: skip


# ---------------------------------------------------------------------------- what the world around it gets to know


@dataclass
class Watch:
    """Samples every process below this one: command lines and sockets."""

    commands: set[str] = field(default_factory=set)
    sockets: set[tuple] = field(default_factory=set)
    samples: int = 0

    def __enter__(self):
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        me, known, looked = psutil.Process(), [], 0.0
        while not self._stop.wait(0.05):
            if time.monotonic() - looked > 0.3:
                known, looked = [me, *me.children(recursive=True)], time.monotonic()
            for process in known:
                with contextlib.suppress(psutil.Error):
                    if process != me:
                        self.commands.add(" ".join(process.cmdline()))
                    for c in process.net_connections("inet"):
                        self.sockets.add((process == me, c.type, c.status, c.laddr, c.raddr))
            self.samples += 1


@dataclass
class Observed:
    """What a whole run showed to the outside."""

    port: int
    watch: Watch
    asked: list[tuple[str, object, str]]  # of the network: event, what it was about, and the kind of socket
    processes: set[int]  # that wrote these lines
    proxied: int  # connections to the proxy of the environment
    rows: list[np.ndarray]
    files: dict[str, bytes]  # all files of all kits and of the run, by name below the folder
    secrets: dict[str, str]
    outcome: object


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """Two silos and a coordinator, watched from their first process to their last."""
    folder = tmp_path_factory.mktemp("watched")
    rows = [write_rows(folder / f"{name}.csv") for name in ("north", "south")]
    sources = [ClientSource(name, str(folder / f"{name}.csv"), Reading(id_column="id")) for name in ("north", "south")]
    record, connections = folder / "record.jsonl", []
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(listening(connections.append))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in ("http_proxy", "https_proxy", "ws_proxy", "wss_proxy", "all_proxy"):
            for spelling in (name, name.upper()):
                patch.setenv(spelling, f"http://127.0.0.1:{proxy}")
        for name in ("no_proxy", "NO_PROXY"):
            patch.delenv(name, raising=False)
        patch.setenv("PYTHONPATH", str(FAULTS), prepend=os.pathsep)
        patch.setenv("FMTC_TEST_RECORD", str(record))
        for name in ("getaddrinfo", "gethostbyname"):  # in this process, where the coordinator's session is
            patch.setattr(socket, name, recorded(getattr(socket, name), f"socket.{name}", record))
        watch = stack.enter_context(Watch())
        fed = stack.enter_context(LocalFederation(sources))
        outcome = fed.run(Settings(n_clusters=2, max_iter=4, tol=0))
        place, kits, port = fed.folder, fed.folder / "kits", fed.coordinator.kit.plan.port
        secrets = {str(path.relative_to(place)): secret for path, secret in secrets_of(kits).items()}
        files = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert none_left(place)
    assert not place.exists()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    asked = [(event, what, kind) for event, what, kind, _ in lines]
    return Observed(port, watch, asked, {pid for *_, pid in lines}, len(connections), rows, files, secrets, outcome)


def recorded(function, event, record):
    def asking(host, *args, **kwargs):
        with record.open("a") as stream:
            stream.write(json.dumps([event, host, "", os.getpid()], default=repr) + "\n")
        return function(host, *args, **kwargs)

    return asking


NOWHERE = "10.255.255.255"  # FLARE asks the kernel for its own address with a datagram socket, and sends nothing


def loopback(address):
    return ipaddress.ip_address(address).is_loopback


@pytest.mark.federation
def test_a_local_federation_talks_to_the_loopback_only(observed):
    """Sockets as the kernel shows them, whichever library opened them."""
    watch = observed.watch
    theirs = {(kind, status, here, there) for mine, kind, status, here, there in watch.sockets if not mine}
    listeners = {here.ip for _, status, here, _ in theirs if status == psutil.CONN_LISTEN}
    assert listeners == {"127.0.0.1"}
    assert observed.port in {here.port for _, status, here, _ in theirs if status == psutil.CONN_LISTEN}
    remote = {there.ip for kind, *_, there in theirs if there and kind == socket.SOCK_STREAM}
    assert remote and all(map(loopback, remote)), remote
    assert {there.ip for kind, *_, there in theirs if there and kind == socket.SOCK_DGRAM} <= {NOWHERE}
    dialled = {there.ip for mine, *_, there in watch.sockets if mine and there and there.port == observed.port}
    assert dialled and all(map(loopback, dialled))
    assert watch.samples > 20 and observed.outcome.history


@pytest.mark.federation
def test_a_local_federation_asks_for_no_name_but_its_own(observed):
    """What all its processes asked of the network through Python."""
    own = {"localhost", socket.gethostname(), socket.getfqdn(), None, ""}
    dials = [(what[0], kind) for event, what, kind in observed.asked if event == "socket.connect"]
    dialled = {name: {host for host, kind in dials if kind == name} for name in ("SOCK_STREAM", "SOCK_DGRAM")}
    assert dialled["SOCK_STREAM"] and all(name == "localhost" or loopback(name) for name in dialled["SOCK_STREAM"])
    assert dialled["SOCK_DGRAM"] <= {NOWHERE}
    assert not [what for event, what, _ in observed.asked if event == "socket.sendto"]
    names = {what for event, what, _ in observed.asked if "host" in event or "addr" in event}
    names = {name for name in names if not (name and is_address(name) and loopback(name))}
    assert "localhost" in names
    assert names <= own, names - own
    assert len(observed.processes) >= 7  # three of FLARE, three of the job, and this one


def is_address(name):
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@pytest.mark.federation
def test_nothing_binds_to_other_interfaces(observed):
    """A port is tried on all interfaces before it is taken, by FLARE; it is listened at on the loopback only."""
    bound = {tuple(what)[:2] for event, what, _ in observed.asked if event == "socket.bind" and isinstance(what, list)}
    assert {host for host, port in bound if port == observed.port} == {"127.0.0.1"}


@pytest.mark.federation
def test_proxies_of_the_environment_are_not_used(observed):
    assert observed.proxied == 0


@pytest.mark.federation
def test_no_secret_is_on_a_command_line_or_in_a_log(observed):
    commands = observed.watch.commands
    assert any("worker_process" in command for command in commands)
    assert any("runner_process" in command for command in commands)
    for owner, secret in observed.secrets.items():
        assert not any(secret in command for command in commands)
        inside = {name for name, content in observed.files.items() if secret.encode() in content}
        assert inside - {"kits/authority/cert.json"} <= {
            name for name, other in observed.secrets.items() if other == secret
        }, owner
    logs = {name for name in observed.files if re.search(r"(log[^/]*\.(txt|json)|console\.log|audit\.log)$", name)}
    for part in ("console.log", "error_log.txt", "audit.log", "log.txt", "log.json"):
        for kit in ("1", "2", "coordinator"):
            assert any(name.startswith(f"kits/{kit}/") and name.endswith(part) for name in logs), (kit, part)
    for name in logs:
        assert b"PRIVATE KEY" not in observed.files[name]


@pytest.mark.federation
def test_no_row_is_in_a_log_or_with_the_coordinator(observed):
    words = [b"123456.789", b"123456.78", b"patient-"]
    cells = {struct.pack(kind, value) for X in observed.rows for value in X.ravel() for kind in ("<d", "<f", ">d")}
    seen = set()
    for name, content in observed.files.items():
        if name.startswith(("kits/coordinator/", "run-")):
            assert not any(cell in content for cell in cells if len(cell) == 8), name
            seen.add(name.partition("/")[0])
        if not re.fullmatch(r"kits/\d/fmtc/.*", name):  # a silo's own results are its own
            assert not any(word in content for word in words), name
    assert len(seen) == 2
    assert not any(word.decode() in command for command in observed.watch.commands for word in words)


@pytest.mark.federation
def test_the_admin_key_stays_with_the_coordinator(observed):
    """The right to hand in jobs is the coordinator's."""
    keys = {name for name in observed.files if name.endswith(".key")}
    assert {name for name in keys if "/admin/" in name} == {"kits/coordinator/admin/startup/client.key"}
    assert not any(ADMIN.encode() in content for name, content in observed.files.items() if name.endswith("kit.json"))
