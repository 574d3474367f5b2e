"""The doctor against real sockets and real kits: what is wrong is named, and nothing else is."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from datetime import UTC, datetime, timedelta
from importlib import metadata

import pytest
from click.testing import CliRunner
from tests.clock import ManualClock

from fmtc.cli import main_group
from fmtc.runtime.flare import doctor
from fmtc.runtime.flare.authority import enrol
from fmtc.runtime.flare.doctor import Check, examine, greet, port, reachable, refusal
from fmtc.runtime.flare.kits import EXECUTOR, Kit, flare_files
from fmtc.runtime.flare.plan import Plan
from fmtc.runtime.flare.processes import free_port

from .papers import change, copied, dial, https, listening, new_key, sign

QUICK = 0.5  # seconds to wait for a port that says nothing
PATIENT = 60.0  # for one that answers, on a machine that may be busy


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Kits of one federation, and those of another with the same names."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("kits", "strangers"):
        enrol(Plan("study", "localhost", 4711, ("north", "south")), folder / name)
    return folder


@pytest.fixture
def north(home, tmp_path):
    return copied(Kit.read(home / "kits" / "north"), tmp_path)


@pytest.fixture
def coordinator(home, tmp_path):
    kit = copied(Kit.read(home / "kits" / "coordinator"), tmp_path)
    change(kit.path / "kit.json", ["plan", "port"], free_port())
    kit = Kit.read(kit.path)
    shutil.copy(flare_files(kit.plan, kit.role, "", tmp_path) / "startup/fed_server.json", kit.startup)
    return kit


def failed(checks):
    return [check.name for check in checks if not check.ok]


def refused(kit):
    return refusal(kit, PATIENT, clock=ManualClock())


def last(kit, timeout=PATIENT):
    """The check that failed; the last one where none has."""
    checks = greet(kit, timeout)
    return next((check for check in checks if not check.ok), checks[-1])


def doctor_says(*args, **env):
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
    return CliRunner().invoke(main_group, ["doctor", *map(str, args)], prog_name="fmtc", env=plain | env)


# ------------------------------------------------------------------------------------------------------ the command


def test_without_a_kit_only_this_machine_is_looked_at():
    done = doctor_says("--json")
    assert done.exit_code == 0, done.output
    checks = json.loads(done.stdout)
    assert [check["name"] for check in checks] == ["versions", "disk for the output"]
    assert all(set(check) == {"name", "ok", "found", "advice"} and check["ok"] for check in checks)
    assert "✓ versions: Python 3." in done.stderr
    assert "2 checks: all is well" in done.stderr


def test_a_healthy_silo_and_a_healthy_coordinator(home, north, coordinator, tmp_path):
    with listening(https(home / "kits/coordinator/server/startup")) as port:
        dial(north, port)
        done = doctor_says("--kit", north.path, "--out", tmp_path / "new", "--json")
    assert done.exit_code == 0, done.output
    names = [check["name"] for check in json.loads(done.stdout)]
    assert names == [
        "versions", "kit", "expiry", "permissions", "policy", "roster", "salt", "proxy", "address", "port", "trust",
        "clock", "disk of the kit", "disk for the output",
    ]  # fmt: skip
    assert f"✓ trust: localhost:{port} is the coordinator, and accepts our certificate" in done.stderr
    assert "at the coordinator" in next(line for line in done.stderr.splitlines() if "clock" in line)
    done = doctor_says("--kit", coordinator.path, "--json")
    assert done.exit_code == 0, done.output
    names = [check["name"] for check in json.loads(done.stdout)]
    assert names[4:] == ["policy", "roster", "port", "disk of the kit", "disk for the output"]


def test_a_failed_check_has_advice_and_exit_code_1(north):
    done = doctor_says("--kit", dial(north, free_port()).path)
    assert done.exit_code == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("✗ port: nobody listens at localhost:"))
    assert lines[place + 1].startswith("  the coordinator may not have started yet")
    assert lines[-1] == "12 checks: 1 failed"
    assert not any(line.startswith("✓ trust") for line in lines)


def test_warnings_are_told_but_do_not_fail(home, north):
    sign(home / "kits" / "authority", north.startup / "client.crt", ends=12)
    with listening(https(home / "kits/coordinator/server/startup")) as port:
        done = doctor_says("--kit", dial(north, port).path)
    assert done.exit_code == 0, done.output
    assert "! expiry: our certificate ends first" in done.stderr
    assert done.stderr.endswith(": none failed, 1 warning\n")


def test_the_doctor_does_not_need_flare(home):
    """It is there for machines on which something is missing."""
    code = (
        "import sys; sys.modules['nvflare'] = None; sys.argv = ['fmtc', 'doctor', '--kit', sys.argv[1]]\n"
        "from fmtc.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, home / "kits/north"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "✗ kit: cannot be checked: a federation of processes needs nvflare" in done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------------------------------------------- this machine


@pytest.mark.parametrize(
    ("flare", "ok", "advice"),
    [("2.9.0", True, ""), ("2.9.3rc1", False, "2.9.0"), ("2.8.1", False, "2.9"), ("2.90.0", False, "2.9"),
     (None, False, "pip install 'fmtc[federation]'")],
)  # fmt: skip
def test_versions(monkeypatch, flare, ok, advice):
    def version(package):
        if package == "nvflare" and flare is None:
            raise metadata.PackageNotFoundError
        return flare if package == "nvflare" else "1.2.3"

    monkeypatch.setattr(metadata, "version", version)
    check = doctor.versions()
    assert check.ok is ok and advice in check.advice
    assert doctor.versions(federation=False).ok is (ok or flare is None)
    assert "fmtc 1.2.3" in check.found


@pytest.mark.parametrize(("free", "ok", "advised"), [(5e9, True, False), (5e8, True, True), (5e7, False, True)])
def test_disk(monkeypatch, tmp_path, free, ok, advised):
    asked = []

    def usage(folder):
        asked.append(folder)
        return namedtuple("Usage", "free")(int(free))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    check = doctor.disk("disk", tmp_path / "not" / "yet")
    assert (check.ok, bool(check.advice)) == (ok, advised)
    assert asked == [tmp_path]


def test_the_salt(north, home):
    words = [doctor.salt(kit).found for kit in (north, Kit.read(home / "kits/south"))]
    assert words[0] == words[1]
    assert "check word" in words[0] and north.salt not in words[0]
    for content in ("", "short", 64 * "x"):
        (north.path / "salt").write_text(content)
        assert "is damaged" in doctor.salt(north).found
    (north.path / "salt").unlink()
    assert failed([doctor.salt(north)]) == ["salt"]


def test_a_time_of_no_zone_is_that_of_greenwich():
    now = datetime.now(UTC)
    (check,) = doctor._clock(f"HTTP/1.1 404\r\nDate: {now:%a, %d %b %Y %H:%M:%S} -0000\r\n".encode())
    assert (check.name, check.ok) == ("clock", True)


def test_clock_against_the_coordinator(home, north):
    for ahead, words in ((3600, "behind it"), (-3600, "ahead of it"), (60, "")):
        with listening(https(home / "kits/coordinator/server/startup", ahead=ahead)) as port:
            check = greet(dial(north, port))[-1]
        assert (check.name, check.ok) == ("clock", words == "")
        assert check.found.endswith(words or "at the coordinator")


# --------------------------------------------------------------------------------------------------------- the kit


def test_a_folder_that_is_no_kit(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        checks = list(examine(path))
        assert failed(checks) == ["kit"]
        assert checks[1].found.startswith(str(path))


def test_a_kit_that_is_mixed_up(home, north, tmp_path):
    startup = north.startup
    whole = {path: path.read_bytes() for path in startup.iterdir()}

    def wrong():
        check, kit = doctor.open_kit(north.path)
        for path, content in whole.items():
            path.write_bytes(content)
        assert kit is None and not check.ok and "new one" in check.found
        return check.found

    (startup / "client.key").unlink()
    assert "client.key is missing" in wrong()
    new_key(startup / "client.key")
    assert "client.key is not the key of client.crt" in wrong()
    (startup / "client.crt").write_bytes(b"-----BEGIN CERTIFICATE-----\nnothing\n")
    assert "is damaged" in wrong()
    for name in ("client.crt", "client.key"):
        shutil.copy(home / "strangers" / "north" / "startup" / name, startup)
    assert "is of another federation" in wrong()
    for name in ("client.crt", "client.key"):
        shutil.copy(home / "kits" / "south" / "startup" / name, startup)
    assert "is for 'silo-south', this is the kit of 'silo-north'" in wrong()
    assert doctor.open_kit(north.path)[0].ok


def test_a_coordinator_that_cannot_log_in(coordinator):
    (coordinator.path / "admin/startup/client.key").unlink()
    check, kit = doctor.open_kit(coordinator.path)
    assert kit is None and "admin/startup/client.key is missing" in check.found


def test_a_kit_that_dials_elsewhere_is_told(north):
    change(north.startup / "fed_client.json", ["servers", 0, "service", "target"], "127.0.0.1:8002")
    check, kit = doctor.open_kit(north.path)
    assert check.ok and check.advice == "its fed_client.json was changed to dial 127.0.0.1:8002"
    assert "127.0.0.1:8002" in port(kit).found


@pytest.mark.parametrize(
    ("ends", "ok", "advised"), [(200, True, False), (31, True, False), (29, True, True), (-0.5, False, True)]
)
def test_expiry(home, north, ends, ok, advised):
    sign(home / "kits" / "authority", north.startup / "client.crt", begins=-5, ends=ends)
    check = doctor.expiry(north)
    assert (check.ok, bool(check.advice)) == (ok, advised)
    assert f"{datetime.now(UTC) + timedelta(days=ends):%Y-%m-%d}" in check.found


def test_expiry_of_the_authority_and_of_the_log_in(home, north, coordinator):
    sign(home / "kits" / "authority", north.startup / "rootCA.pem", ends=20)
    assert "authority" in doctor.expiry(north).found and "init" in doctor.expiry(north).advice
    sign(home / "kits" / "authority", coordinator.path / "admin/startup/client.crt", begins=-3, ends=-1)
    assert "log-in expired" in doctor.expiry(coordinator).found and not doctor.expiry(coordinator).ok


@pytest.mark.parametrize("name", ["startup/client.key", "salt", "."])
def test_permissions(north, name, monkeypatch):
    assert doctor.permissions(north).ok
    (north.path / name).chmod(0o750 if name == "." else 0o640)
    check = doctor.permissions(north)
    assert not check.ok
    assert str(north.path / name) in check.found and ("0750" if name == "." else "0640") in check.found
    assert f"chmod -R go= {north.path}" in check.advice
    subprocess.run(["chmod", "-R", "go=", north.path], check=True)
    assert doctor.permissions(north).ok
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert f"belongs to user {mine}" in doctor.permissions(north).found


# ------------------------------------------------------------------------------------------------------ the policy

LOGS = {"id": "logs", "path": "nvflare.app_common.logging.site_log_streamer.SiteLogStreamer", "args": {}}
ADMIN = ["permissions", "project_admin"]


@pytest.mark.parametrize(
    ("file", "place", "value", "words"),
    [
        ("resources.json", ["class_allow_list"], [EXECUTOR, "os.system"], "class_allow_list in"),
        ("resources.json", ["class_list_enforcement_mode"], "warn", "class_list_enforcement_mode in"),
        ("resources.json", ["allow_log_streaming"], True, "allow_log_streaming in"),
        ("resources.json", ["components", 0], LOGS, "components in"),
        ("resources.json", ["components"], None, "components in"),
        ("authorization.json", [*ADMIN, "byoc"], "any", "permissions in"),
        ("authorization.json", ["permissions", "lead"], "any", "permissions in"),
        ("../startup/fed_client.json", ["client", "connection_security"], "clear", "client in"),
        ("../startup/fed_client.json", ["servers", 0, "identity"], "north", "servers in"),
        ("comm_config.json", ["internal", "resources", "connection_security"], "clear", "internal in"),
    ],
)  # fmt: skip
def test_a_tampered_policy(north, file, place, value, words):
    assert doctor.policy(north).ok
    change(north.path / "local" / file, place, value)
    check = doctor.policy(north)
    changed = (north.path / "local" / file).resolve()
    assert not check.ok and check.found == f"{words} {changed} changed"


def test_a_tampered_policy_of_the_coordinator(coordinator):
    assert doctor.policy(coordinator).ok
    local = coordinator.workspace / "local"
    change(local / "resources.template.json", ["class_allow_list"], ["mine.Controller"])
    change(coordinator.startup / "fed_server.json", ["servers", 0, "connection_security"], "tls")
    found = doctor.policy(coordinator).found
    assert "class_allow_list in" in found and "servers in" in found


def test_code_beside_the_policy_and_a_policy_that_is_gone(north):
    (north.path / "local" / "custom").mkdir()
    assert "holds code" in doctor.policy(north).found
    (north.path / "local" / "authorization.json").unlink()
    assert not doctor.policy(north).ok and "authorization.json" in doctor.policy(north).found


# -------------------------------------------------------------------------------------------------- the connection


def test_proxies_are_not_used_and_said_so(monkeypatch):
    assert doctor.proxy({}) == Check("proxy", True, "none in the environment")
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy"):
        check = doctor.proxy({name: "http://proxy.example:3128"})
        assert check.ok and check.found == f"{name} set, not used: a federation connects directly"
        assert doctor.proxy({name: ""}).found == "none in the environment"
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert "https_proxy set" in doctor.proxy().found


def test_a_name_nobody_knows(north):
    kit = dial(north, 8002, "coordinator.invalid")
    check = last(kit)
    assert (check.name, check.ok) == ("address", False)
    assert "'coordinator.invalid'" in check.found
    assert reachable(kit) == check.sentence and refusal(kit) == ""
    change(kit.startup / "fed_client.json", ["servers", 0, "service", "target"], "coordinator..invalid:8002")
    assert "'coordinator..invalid'" in last(kit).found


def test_a_name_server_that_is_away(north, monkeypatch):
    def away(*_, **__):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    assert "no name server answers" in last(north).found


def test_a_closed_port(north):
    kit = dial(north, free_port())
    check = last(kit)
    assert (check.name, check.ok) == ("port", False) and "nobody listens" in check.found
    assert refusal(kit) == "" and "nobody listens" in reachable(kit)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError("timed out"), "a firewall may drop"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "there is no way to"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "there is no way to"),
        (OSError(errno.EACCES, "Permission denied"), "cannot be reached (Permission denied)"),
    ],
)
def test_other_ways_not_to_arrive(north, monkeypatch, error, words):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    check = last(north)
    assert (check.name, check.ok) == ("port", False) and words in check.sentence


def test_a_port_that_never_speaks(north):
    with listening() as port:
        kit = dial(north, port)
        check = last(kit, QUICK)
        assert (check.name, check.ok) == ("tls", False) and "accepts connections, but says nothing" in check.found
        assert refusal(kit, QUICK) == "" and "says nothing" in reachable(kit, QUICK)


def test_a_port_that_speaks_something_else(north):
    with listening(lambda connection: connection.sendall(b"220 mail.example ESMTP\r\n")) as port:
        check = last(dial(north, port))
    assert (check.name, check.ok) == ("tls", False) and "does not speak TLS" in check.found
    with listening(lambda connection: connection.close()) as port:
        check = last(dial(north, port))
    assert (check.name, check.ok) == ("tls", False) and "does not speak TLS" in check.found


def test_a_server_of_another_federation(home, north):
    startup = home / "strangers/coordinator/server/startup"
    with listening(https(startup)) as port:
        kit = dial(north, port)
        check = last(kit)
        assert (check.name, check.ok) == ("trust", False)
        assert "a certificate of another federation, signed by CN=study" in check.found
        assert "another federation" in refused(kit) and reachable(kit, PATIENT) == ""


@pytest.mark.parametrize(("begins", "ends", "words"), [(-9, -1, "has expired"), (3, 9, "is not valid yet")])
def test_a_server_out_of_its_days(home, north, coordinator, begins, ends, words):
    sign(home / "kits" / "authority", coordinator.startup / "server.crt", begins=begins, ends=ends)
    with listening(https(coordinator.startup)) as port:
        check = last(dial(north, port))
    assert (check.name, check.ok) == ("trust", False) and check.found.endswith(words)


def test_a_silo_that_plays_the_coordinator(home, north):
    """South's certificate is of our authority; it is still not the coordinator's."""
    with listening(https(home / "kits/south/startup", name="client")) as port:
        check = last(dial(north, port))
    assert (check.name, check.ok) == ("trust", False) and "is 'silo-south', not the coordinator" in check.found


def test_a_certificate_for_another_host(home, north, coordinator):
    sign(home / "kits" / "authority", coordinator.startup / "server.crt", host="old.example.org")
    with listening(https(coordinator.startup)) as port:
        kit = dial(north, port)
        *_, check, time = greet(kit)
        assert (check.name, check.ok, time.name) == ("host name", False, "clock")
        assert "is for old.example.org, not for localhost" in check.found
        assert refused(kit) == "" == reachable(kit, PATIENT)  # FLARE goes by the coordinator's name alone


def test_a_host_that_is_an_address(tmp_path):
    """Its certificate has it as an address, not as a name."""
    kits = enrol(Plan("study", "127.0.0.1", 4711, ("north",)), tmp_path / "kits")
    with listening(https(kits[0].startup)) as port:
        assert last(dial(kits[1], port)).ok


def test_a_server_that_does_not_take_our_certificate(home, north):
    startup = home / "kits/coordinator/server/startup"
    strange = home / "strangers/north/startup"
    with listening(https(startup)) as port:
        for spoil in (
            lambda: sign(home / "kits" / "authority", north.startup / "client.crt", begins=-9, ends=-1),
            lambda: [shutil.copy(strange / name, north.startup) for name in ("client.crt", "client.key")],
        ):
            spoil()
            kit = dial(north, port)
            check = last(kit)
            assert (check.name, check.ok) == ("trust", False) and "does not accept the certificate" in check.found
            assert "does not accept" in refused(kit)


def test_a_server_that_was_just_stopping_is_no_refusal(home, north):
    """The first connection is cut after the handshake, as by a process that ends; the next finds it well."""
    startup, connections = home / "kits/coordinator/server/startup", []

    def answer(connection):
        connections.append(connection)
        https(startup, answers=len(connections) > 2)(connection)  # one looks at the port, the next shakes hands

    with listening(answer) as port:
        assert refused(dial(north, port)) == ""
        assert len(connections) == 4
        connections.clear()
        assert not last(dial(north, port)).ok


# ------------------------------------------------------------------------------------------------- the coordinator


def test_the_port_of_the_coordinator(home, coordinator):
    assert "is free here" in doctor.own_port(coordinator).found
    with listening() as port:
        change(coordinator.path / "kit.json", ["plan", "port"], port)
        check = doctor.own_port(Kit.read(coordinator.path), QUICK)
    assert not check.ok and f"another program listens at port {port}" in check.found
    with listening(https(home / "strangers/coordinator/server/startup")) as port:
        change(coordinator.path / "kit.json", ["plan", "port"], port)
        assert "another program listens" in doctor.own_port(Kit.read(coordinator.path)).found
    with listening(https(coordinator.startup)) as port:
        change(coordinator.path / "kit.json", ["plan", "port"], port)
        check = doctor.own_port(Kit.read(coordinator.path))
    assert check.ok and "taken by a server of this federation" in check.found


def test_a_port_for_administrators(coordinator, monkeypatch):
    def bind(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", bind)
    check = doctor.own_port(coordinator)
    assert not check.ok and "above 1023" in check.advice
