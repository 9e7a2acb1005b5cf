"""Certificate authorities, and certificates of theirs for localhost or for a client, as Secrets have them."""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PEM = serialization.Encoding.PEM
KEY_USAGE = {
    "digital_signature": True,
    **dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False),
    "encipher_only": False,
    "decipher_only": False,
}
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(key, signed(name, key, name, key, ca=True))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(PEM)

    def issue(self, folder: Path, name: str, usage: x509.ObjectIdentifier, *trusted: Authority) -> Path:
        """Write tls.crt, tls.key and, with those whom it trusts, ca.crt."""
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        certificate = signed(name, key, str(issuer), self.key, usage=usage)
        (folder / "tls.crt").write_bytes(certificate.public_bytes(PEM))
        (folder / "tls.key").write_bytes(
            key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        (folder / "ca.crt").write_bytes(b"".join(each.pem for each in (trusted or (self,))))
        return folder


def signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuers_key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool = False,
    usage: x509.ObjectIdentifier | None = None,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        # Clients on Python 3.13, which the images have, refuse certificates without these three.
        .add_extension(x509.KeyUsage(**KEY_USAGE, key_cert_sign=ca, crl_sign=ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers_key.public_key()), critical=False
        )
    )
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return builder.sign(issuers_key, hashes.SHA256())


def client_context(server: Authority, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=server.pem.decode())
    if certificate:
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
    return context
