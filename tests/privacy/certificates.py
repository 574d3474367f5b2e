"""An authority, and kits with nothing in them but keys and certificates; FLARE is not needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@cache
def key_of(whose, size=2048):
    """A key for each name; made once, because it takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=size)


def named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Authority:
    """Signs what it is asked to, as somebody who holds the key can."""

    def __init__(self, whose="authority", begins=-1, ends=100):
        self.key, self.name = key_of(whose), named("study")
        self.certificate = self.sign("study", self.key, begins=begins, ends=ends, ca=True)
        self.pem = self.certificate.public_bytes(Encoding.PEM)

    def sign(self, name, key, *, begins=-1, ends=50, ca=False):
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(self.name, named(name), key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now + begins * DAY).not_valid_after(now + ends * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca, None), True)
        return builder.sign(self.key, hashes.SHA256())

    def revoke(self, *certificates, number=1):
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder(self.name, now, now + 90 * DAY)
        builder = builder.add_extension(x509.CRLNumber(number), False)
        for one in certificates:
            gone = x509.RevokedCertificateBuilder(one.serial_number, now).build()
            builder = builder.add_revoked_certificate(gone)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def kit(self, folder, name, *, key=None, certificate=None):
        """A folder with certificate, key and authority of a silo."""
        key = key or key_of(name)
        startup = folder / "startup"
        startup.mkdir(parents=True)
        certificate = certificate or self.sign(f"silo-{name}", key)
        (startup / "client.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        (startup / "client.key").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )
        (startup / "rootCA.pem").write_bytes(self.pem)
        return folder
