"""FLARE's inner parts: named in one module, and missed with a sentence when another version lacks one of them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import nvflare.lighter.impl.cert
import pytest
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.app_common.job_launcher import process_launcher
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
from nvflare.fuel.flare_api.flare_api import Session
from nvflare.lighter.constants import PropKey
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from fmtc.runtime.flare import compat, doctor, serve

ROOT = Path(__file__).parents[2]


def load_anew():
    """Import compat as a process does that has not yet imported it."""
    spec = importlib.util.spec_from_file_location("compat_anew", compat.__file__)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_the_installed_flare_has_it_all():
    assert compat.missing() == []
    load_anew()
    assert metadata.version("nvflare") in compat.VERIFIED


def renamed(manager, connection, data):
    """A method whose parameters have other names."""


MISSING = {
    "ConnManager.update_endpoint": lambda patch: patch.delattr(ConnManager, "update_endpoint"),
    "ConnManager.update_endpoint(sfm_conn, data)": lambda patch: patch.setattr(ConnManager, "update_endpoint", renamed),
    "SfmConnection.send_handshake": lambda patch: patch.delattr(SfmConnection, "send_handshake"),
    "SfmConnection.last_activity": lambda patch: patch.setattr(SfmConnection, "__init__", lambda self, conn: None),
    "WFCommServer.client_is_active": lambda patch: patch.setattr(WFCommServer, "client_is_active", None),
    "WFCommServer._cleanup_inflight_tensor_downloads": lambda patch: patch.delattr(
        WFCommServer, "_cleanup_inflight_tensor_downloads"
    ),
    "process_launcher.spawn_process": lambda patch: patch.delattr(process_launcher, "spawn_process"),
    "Session.submit_job": lambda patch: patch.setattr(Session, "submit_job", None),
    "ClientRequestProcessors.DeployProcessor": lambda patch: patch.setattr(
        ClientRequestProcessors,
        "request_processors",
        [p for p in ClientRequestProcessors.request_processors if type(p).__name__ != "DeployProcessor"],
    ),
    "nvflare.lighter.impl.cert.CertBuilder": lambda patch: patch.delattr(nvflare.lighter.impl.cert, "CertBuilder"),
    "CONN_SECURITY": lambda patch: patch.delattr(PropKey, "CONN_SECURITY"),
    "nvflare.fuel.f3.sfm.constants": lambda patch: patch.setitem(sys.modules, "nvflare.fuel.f3.sfm.constants", None),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_part_that_is_missing_is_named_at_import(monkeypatch, name):
    MISSING[name](monkeypatch)
    with pytest.raises(ImportError) as caught:
        load_anew()
    said = str(caught.value)
    assert type(caught.value).__name__ == "UnknownFlareError"
    assert name in said
    for version in (*compat.VERIFIED, f"nvflare {compat.SERIES}.x", metadata.version("nvflare")):
        assert version in said
    assert said.count(". ") == 1  # what is missing, and what to do


def test_lines_and_keys_that_flare_no_longer_has(monkeypatch):
    monkeypatch.setitem(compat.WORDS, "nvflare.private.fed.client.fed_client_base", ("Welcome, client",))
    monkeypatch.setitem(compat.WORDS, "nvflare.private.fed.client.moved", ("anything",))
    monkeypatch.setattr(compat, "TEMPLATE_KEYS", ("no_such_key",))
    assert compat.missing() == [
        "'no_such_key' in master_template.yml",
        "'Welcome, client' in nvflare.private.fed.client.fed_client_base",
        "nvflare.private.fed.client.moved",
    ]
    with pytest.raises(compat.UnknownFlareError, match="Welcome, client"):
        compat.check()


@pytest.mark.parametrize("version", ["2.8.3", "2.10.0", "3.0"])
def test_another_series_is_refused(monkeypatch, version):
    monkeypatch.setattr(metadata, "version", lambda package: version)
    with pytest.raises(ImportError, match=f"this is nvflare {re.escape(version)}"):
        load_anew()


@pytest.mark.parametrize("package", ["nvflare", "psutil", "cryptography"])
def test_without_the_extra_one_sentence_says_how_to_install_it(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "for name in ('adapter', 'kits', 'local', 'membership', 'supervise'):\n"
        "    try:\n"
        "        __import__(f'fmtc.runtime.flare.{name}')\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    sentence = "a federation of processes needs nvflare: pip install 'fmtc[federation]'"
    assert done.stdout.splitlines() == 5 * [sentence], done.stderr


def test_versions_are_pinned_alike():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["federation"]
    major, minor = map(int, compat.SERIES.split("."))
    assert f"nvflare>={compat.SERIES},<{major}.{minor + 1}" in extra
    (pinned,) = re.findall(r"^nvflare==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned in compat.VERIFIED
    assert (major, minor) == doctor.FLARE


def test_no_other_module_imports_flare():
    imports = re.compile(r"^\s*(from|import) nvflare", re.MULTILINE)
    found = {path.name for path in (ROOT / "src").rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))}
    assert found == {"compat.py"}


def test_a_process_of_flare_checks_it_without_loading_fmtc():
    code = (
        "import runpy, sys\n"
        f"serve = runpy.run_path({serve.__file__!r})\n"
        "flare = serve['load_compat']()\n"
        "print(flare.SERIES, [name for name in sys.modules if name.startswith('fmtc')])\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == f"{compat.SERIES} []", done.stderr
