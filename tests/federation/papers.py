"""Certificates that are not as they should be, servers that are not the coordinator, and kits to try them on."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from fmtc.artifacts.files import read_json, write_json
from fmtc.runtime.flare.kits import Kit

DAY = timedelta(days=1)


def sign(authority, path, *, begins=-1, ends=1, host=None, name=None):
    """Sign the certificate in a file anew with the key of `authority`: other days, counted from now, host or name."""
    root = read_json(authority / "cert.json")
    issuer = x509.load_pem_x509_certificate(root["root_cert"].encode())
    key = load_pem_private_key(root["root_pri_key"].encode(), None)
    old = x509.load_pem_x509_certificate(path.read_bytes())
    now = datetime.now(UTC)
    names = old.subject if name is None else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder(issuer.subject, names, old.public_key(), old.serial_number + 1)
        .not_valid_before(now + begins * DAY)
        .not_valid_after(now + ends * DAY)
    )
    for extension in old.extensions:
        value = extension.value
        if host is not None and isinstance(value, x509.SubjectAlternativeName):
            value = x509.SubjectAlternativeName([x509.DNSName(host)])
        builder = builder.add_extension(value, extension.critical)
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))


def new_key(path):
    """Replace a private key by another."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))


def copied(kit, folder):
    """A kit of one's own, to spoil."""
    return Kit.read(shutil.copytree(kit.path, folder / kit.path.name))


def dial(kit, port, host=None):
    """The same kit, which dials elsewhere."""
    about = read_json(kit.path / "kit.json")
    about["plan"] |= {"port": port, "host": host or kit.plan.host}
    write_json(kit.path / "kit.json", about)
    change(kit.startup / "fed_client.json", ["servers", 0, "service", "target"], f"{about['plan']['host']}:{port}")
    return Kit.read(kit.path)


def change(path, place, value):
    """Another value in a JSON file."""
    document = read_json(path)
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    path.write_text(json.dumps(document), encoding="utf-8")


@contextmanager
def listening(answer=lambda connection: None):
    """A port of this machine at which each connection is handed to `answer`, and held open until the end."""
    held = []

    def accept():
        with contextlib.suppress(OSError):
            while True:
                held.append(listener.accept()[0])
                with contextlib.suppress(OSError):
                    answer(held[-1])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for connection in held:
                connection.close()


def https(startup, *, name="server", ahead=0.0, answers=True):
    """What FLARE's server does when asked for a page it does not have: mutual TLS, then an answer with its time."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(startup / "rootCA.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(startup / f"{name}.crt", startup / f"{name}.key")

    def answer(connection):
        connection.settimeout(5)
        with context.wrap_socket(connection, server_side=True) as secure:
            date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead), usegmt=True)
            if answers and secure.recv(4096):
                secure.sendall(f"HTTP/1.1 404 Not Found\r\nDate: {date}\r\n\r\n".encode())

    return answer
