"""The cluster's keys and certificates: authorities, who is certified by which, and the files that hold them.

Made when missing and kept: a second `up` finds the same cluster and running pods' tokens stay valid. Who
needs which identity is decided in `conf`; `kube_cluster` brings the files to the hosts.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from redbox_bed.core.whole_files import write_whole

# A clock that is a little behind the issuer's must still accept a new certificate.
_BACKDATED = dt.timedelta(minutes=5)
_AUTHORITY_LIFE = dt.timedelta(days=3650)
_IDENTITY_LIFE = dt.timedelta(days=365)


@dataclass(frozen=True)
class Identity:
    """A certificate that `authority` issues: to whom, and what it may be used for."""

    name: str
    authority: str
    common_name: str
    organization: str = ""
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    usages: tuple[str, ...] = ("client",)


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its key, as read from its files."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def ensure_pki(
    folder: Path, authorities: Iterable[str], identities: Iterable[Identity], now: dt.datetime
) -> None:
    """Make what is missing: authorities' `NAME-ca.crt`, identities' `NAME.crt`, `service-accounts.key`."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    trusted = {name: _ensure_authority(folder, name, now) for name in authorities}
    for identity in identities:
        if not _issued_by(folder / f"{identity.name}.crt", trusted[identity.authority]):
            _issue(folder, identity, trusted[identity.authority], now)
    if not (folder / "service-accounts.key").exists():
        # RSA, since RS256 is what the tokens of nearly all clusters are signed with.
        signing_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        write_whole(folder / "service-accounts.pub", _public_pem(signing_key.public_key()), 0o644)
        write_whole(folder / "service-accounts.key", _private_pem(signing_key), 0o600)


def _ensure_authority(folder: Path, name: str, now: dt.datetime) -> Authority:
    certificate_file, key_file = folder / f"{name}-ca.crt", folder / f"{name}-ca.key"
    if not (certificate_file.exists() and key_file.exists()):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}-ca")])
        certificate = (
            _builder(subject, key.public_key(), subject, key.public_key())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + _AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_whole(key_file, _private_pem(key), 0o600)
        write_whole(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return Authority(x509.load_pem_x509_certificate(certificate_file.read_bytes()), _load_key(key_file))


def _load_key(file: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{file} is not a key that the bed made; remove its folder")
    return key


def _issued_by(certificate_file: Path, authority: Authority) -> bool:
    if not (certificate_file.exists() and certificate_file.with_suffix(".key").exists()):
        return False
    certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    return _key_identifier(certificate) == _key_identifier(authority.certificate)


def _key_identifier(certificate: x509.Certificate) -> bytes | None:
    """The key that signed this certificate, as the certificate itself says."""
    return certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier


def _issue(folder: Path, identity: Identity, authority: Authority, now: dt.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.subject
    builder = (
        _builder(_subject(identity), key.public_key(), issuer, authority.key.public_key())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _IDENTITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USAGES[usage] for usage in identity.usages]), critical=False)
    )
    if alternatives := _alternatives(identity):
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    write_whole(folder / f"{identity.name}.key", _private_pem(key), 0o600)
    write_whole(folder / f"{identity.name}.crt", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


_USAGES = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}


def _subject(identity: Identity) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, identity.common_name)]
    if identity.organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.organization))
    return x509.Name(attributes)


def _alternatives(identity: Identity) -> list[x509.GeneralName]:
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in identity.addresses]
    return [*(x509.DNSName(name) for name in identity.dns_names), *addresses]


def _builder(
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public_pem(key: rsa.RSAPublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
