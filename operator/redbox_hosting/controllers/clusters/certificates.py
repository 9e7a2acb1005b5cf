"""The authority of one cluster, and the certificates that it issues: of servers, and of the operator.

An authority is replaced in time, and for a day both are trusted by all. Servers get certificates of the new
one immediately. The operator keeps one of the former until it goes: a server into whose pod the kubelet has
not projected the new files yet accepts no other.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.controllers.clusters.secret_files import SecretFiles
from redbox_kube.controller.steps import StepFailed

PEM = serialization.Encoding.PEM
BACKDATED = timedelta(minutes=5)
"""The clock of another machine may be behind."""
AUTHORITY_LIFE, CERTIFICATE_LIFE = timedelta(days=3650), timedelta(days=90)
OVERLAP = timedelta(days=1)
"""For which the former authority is trusted."""
RENEWED_AT = 0.6
"""Of its life."""
FORMER = "former"
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True)
class ClusterAuthority:
    """Certifies the endpoints of one cluster, and the operator as their only client."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    former: ClusterAuthority | None = None

    @classmethod
    def make(cls, name: str, now: datetime) -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        builder = _builder(subject, key.public_key(), subject, key.public_key(), now, AUTHORITY_LIFE)
        return cls(key, _limited(builder, authority=True).sign(key, hashes.SHA256()))

    @classmethod
    def read(cls, files: Mapping[str, bytes]) -> Self:
        """From the files of `files`; raises StepFailed."""
        own = _read_pair(files, "ca")
        former = cls(*_read_pair(files, FORMER)) if files.get(f"{FORMER}.crt") else None
        return cls(*own, former)

    @property
    def files(self) -> dict[str, bytes]:
        """Those of a former one are empty if there is none: a file that is left out would stay."""
        former = self.former
        return {
            "ca.crt": _pem(self.certificate),
            "ca.key": _private(self.key),
            f"{FORMER}.crt": _pem(former.certificate) if former else b"",
            f"{FORMER}.key": _private(former.key) if former else b"",
        }

    @property
    def trusted(self) -> bytes:
        """The ca.crt of servers and clients."""
        former = self.former
        return _pem(self.certificate) + (_pem(former.certificate) if former else b"")

    def renewed(self, name: str, now: datetime) -> ClusterAuthority | None:
        """The one that is to take its place now, if any."""
        if self.former is not None:
            is_over = now >= self.certificate.not_valid_before_utc + OVERLAP
            return ClusterAuthority(self.key, self.certificate) if is_over else None
        if not _is_old(self.certificate, now):
            return None
        return replace(ClusterAuthority.make(name, now), former=self)

    def issue(
        self, name: str, hosts: Sequence[str], now: datetime, life: timedelta = CERTIFICATE_LIFE
    ) -> dict[str, bytes]:
        """tls.crt, tls.key and ca.crt; of a server if it has hosts, else of a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self if hosts or self.former is None else self.former
        builder = _builder(
            _named(name),
            key.public_key(),
            issuer.certificate.subject,
            issuer.key.public_key(),
            now,
            life,
        )
        usage = x509.ExtendedKeyUsage([SERVER if hosts else CLIENT])
        builder = _limited(builder, authority=False).add_extension(usage, critical=False)
        if hosts:
            alternatives = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(issuer.key, hashes.SHA256())
        return {"tls.crt": _pem(certificate), "tls.key": _private(key), "ca.crt": self.trusted}

    def is_due(self, files: Mapping[str, bytes], now: datetime) -> bool:
        """Whether these of a server are to be replaced: unreadable, of another authority, or old."""
        try:
            certificate = x509.load_pem_x509_certificate(files["tls.crt"])
            certificate.verify_directly_issued_by(self.certificate)
        except Exception:  # noqa: BLE001 (whatever is wrong with it, a new one helps)
            return True
        return _is_old(certificate, now) or files.get("ca.crt") != self.trusted


async def ensure_authority(
    secrets: SecretFiles, controller: SlurmController, now: datetime
) -> tuple[ClusterAuthority, str]:
    """Of its Secret, made or renewed if that is due; and what was done."""
    name, subject = names.authority_name(controller.name), f"{controller.name}.{controller.namespace}"
    files, did = await secrets.ensure(controller, name, lambda: ClusterAuthority.make(subject, now).files)
    authority = ClusterAuthority.read(files)
    if renewed := authority.renewed(subject, now):
        _, did = await secrets.ensure(controller, name, lambda: renewed.files, lambda found: found == files)
        return renewed, did
    return authority, did


def client_context(files: Mapping[str, bytes]) -> ssl.SSLContext:
    """Of a client with this certificate, which trusts its authority alone."""
    context = ssl.create_default_context(cadata=files["ca.crt"].decode())
    with tempfile.TemporaryDirectory() as folder:  # ssl reads certificates from files only
        for name in ("tls.crt", "tls.key"):
            path = Path(folder, name)
            path.touch(mode=0o600)
            path.write_bytes(files[name])
        context.load_cert_chain(Path(folder, "tls.crt"), Path(folder, "tls.key"))
    return context


def _read_pair(files: Mapping[str, bytes], name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        key = serialization.load_pem_private_key(files[f"{name}.key"], None)
        certificate = x509.load_pem_x509_certificate(files[f"{name}.crt"])
    except (KeyError, ValueError) as error:
        raise StepFailed(
            f"the Secret of the cluster's authority cannot be read, delete it: {error}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StepFailed("the Secret of the cluster's authority has no key of the operator's, delete it")
    return key, certificate


def _is_old(certificate: x509.Certificate, now: datetime) -> bool:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begins + (ends - begins) * RENEWED_AT


def _builder(  # noqa: PLR0917 (as they stand in a certificate)
    subject: x509.Name,
    public: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    issuers: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers), critical=False)
    )


def _limited(builder: x509.CertificateBuilder, *, authority: bool) -> x509.CertificateBuilder:
    """Python from 3.13 on refuses chains without key usage and authority key identifier."""
    used = {"key_cert_sign", "crl_sign"} if authority else {"digital_signature"}
    usage = x509.KeyUsage(**{name: name in used for name in USAGES})
    constraints = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
    return builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
