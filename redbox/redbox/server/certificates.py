"""Certificates for sites that have no CA: red-box's own CA, and the server's certificate signed by it.

Pure: keys and times come in, PEM goes out. `setup` decides where the files are, and when they are renewed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIVES = timedelta(days=3650)
SERVER_LIVES = timedelta(days=397)
_PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

NEW_AUTHORITY = "remove its folder, run redbox init again, and apply the new SlurmCluster in every cluster"
BACKDATED = timedelta(minutes=5)
"""For clients whose clocks are a little behind."""


class BadCertificate(Exception):
    """A certificate or key cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class CertificateAndKey:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The contents of a certificate."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    is_authority: bool


def make_authority(name: str, now: datetime) -> CertificateAndKey:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"red-box CA of {name}")
    builder = (
        _builder(subject, key.public_key(), now, AUTHORITY_LIVES)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _pair(_sign(builder, key), key)


def issue_server(
    authority: CertificateAndKey, names: Sequence[str], addresses: Sequence[str], now: datetime
) -> CertificateAndKey:
    issuer, issuer_key = _certificate(authority.certificate), _private_key(authority.key)
    if issuer.not_valid_after_utc <= now:
        raise BadCertificate(f"the CA expired on {issuer.not_valid_after_utc:%Y-%m-%d}: {NEW_AUTHORITY}")
    key = ec.generate_private_key(ec.SECP256R1())
    lives = min(SERVER_LIVES, issuer.not_valid_after_utc - now)
    alternatives = [
        *(x509.DNSName(name) for name in names),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
    ]
    builder = (
        _builder(_name("red-box"), key.public_key(), now, lives)
        .issuer_name(issuer.subject)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_identifier_of(issuer), critical=False)
    )
    return _pair(_sign(builder, issuer_key), key)


def facts_of(certificate: bytes) -> CertificateFacts:
    """Read the first certificate of a PEM file."""
    read = _certificate(certificate)
    try:
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    try:
        is_authority = read.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    return CertificateFacts(
        names=tuple(names.get_values_for_type(x509.DNSName)),
        addresses=tuple(str(address) for address in names.get_values_for_type(x509.IPAddress)),
        not_before=read.not_valid_before_utc,
        not_after=read.not_valid_after_utc,
        is_authority=is_authority,
    )


def fits(pair: CertificateAndKey) -> bool:
    """Whether the private key is the certificate's."""
    encoding = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    theirs = _certificate(pair.certificate).public_key().public_bytes(*encoding)
    return _private_key(pair.key).public_key().public_bytes(*encoding) == theirs


def is_issued_by(certificate: bytes, authority: bytes) -> bool:
    try:
        _certificate(certificate).verify_directly_issued_by(_certificate(authority))
    except (BadCertificate, ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise BadCertificate(f"not a certificate in PEM form: {error}") from error


def _private_key(pem: bytes) -> _PrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise BadCertificate(f"not a private key in PEM form without a password: {error}") from error
    if not isinstance(key, _PrivateKey):
        raise BadCertificate(f"a key of kind {type(key).__name__} cannot be used for TLS")
    return key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lives: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lives)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _identifier_of(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        raise BadCertificate(f"the CA has no subject key identifier: {NEW_AUTHORITY}") from None
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: x509.CertificateBuilder, key: _PrivateKey) -> x509.Certificate:
    return builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> CertificateAndKey:
    return CertificateAndKey(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
