"""Red-box's own CA and the certificate that it signs, judged by a real TLS handshake."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from redbox.server.certificates import (
    BadCertificate,
    CertificateAndKey,
    facts_of,
    fits,
    is_issued_by,
    issue_server,
    make_authority,
)
from tests.redbox.callers.factories import rsa_key

NOW = dt.datetime.now(dt.UTC)


def shake_hands(server: CertificateAndKey, authority: bytes, name: str, directory: Path) -> str | None:
    """Connect as a client that trusts this CA alone; None if it is content, else what it says."""
    (directory / "crt").write_bytes(server.certificate)
    (directory / "key").write_bytes(server.key)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(directory / "crt", directory / "key")
    trusting = ssl.create_default_context(cadata=authority.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    here, there = socket.socketpair()
    for end in (here, there):
        end.settimeout(60)

    def serve() -> None:
        try:
            with serving.wrap_socket(there, server_side=True) as secured:
                secured.recv(1)
        except OSError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with trusting.wrap_socket(here, server_hostname=name):
            return None
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        here.close()
        thread.join(60)


def test_a_client_that_trusts_the_ca_accepts_the_server_by_name_and_by_address(tmp_path: Path) -> None:
    authority = make_authority("hpc1", NOW)
    server = issue_server(authority, ["login.example"], ["10.77.0.10", "fd00::10"], NOW)
    for name in ("login.example", "10.77.0.10", "fd00::10"):
        assert shake_hands(server, authority.certificate, name, tmp_path) is None
    assert "mismatch" in str(shake_hands(server, authority.certificate, "other.example", tmp_path))


def test_a_client_that_trusts_another_ca_does_not(tmp_path: Path) -> None:
    server = issue_server(make_authority("hpc1", NOW), ["login.example"], [], NOW)
    another = make_authority("hpc1", NOW)
    assert shake_hands(server, another.certificate, "login.example", tmp_path) is not None
    assert not is_issued_by(server.certificate, another.certificate)


def test_a_certificate_tells_its_names_and_times() -> None:
    authority = make_authority("hpc1", NOW)
    facts = facts_of(issue_server(authority, ["login.example"], ["10.77.0.10"], NOW).certificate)
    assert (facts.names, facts.addresses) == (("login.example",), ("10.77.0.10",))
    assert facts.not_before < NOW < facts.not_after <= NOW + dt.timedelta(days=397)
    assert not facts.is_authority
    assert facts_of(authority.certificate).is_authority


def test_a_certificate_does_not_outlive_its_ca() -> None:
    authority = make_authority("hpc1", NOW - dt.timedelta(days=3649))
    server = issue_server(authority, ["login.example"], [], NOW)
    assert facts_of(server.certificate).not_after == facts_of(authority.certificate).not_after


def sites_authority(
    key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey, *, identified: bool = True
) -> CertificateAndKey:
    name = x509.Name.from_rfc4514_string("CN=The site's CA")
    usage = dict.fromkeys(
        [
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
            *("key_agreement", "encipher_only", "decipher_only"),
        ],
        False,
    )
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(NOW - dt.timedelta(days=1))
        .not_valid_after(NOW + dt.timedelta(days=1000))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
    )
    if identified:
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    made = builder.sign(key, hashes.SHA256() if isinstance(key, rsa.RSAPrivateKey) else None)
    encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return CertificateAndKey(made.public_bytes(Encoding.PEM), encoded)


@pytest.mark.parametrize("key", [rsa_key(), ed25519.Ed25519PrivateKey.generate()], ids=["RSA", "Ed25519"])
def test_a_sites_own_ca_signs_too(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey, tmp_path: Path) -> None:
    authority = sites_authority(key)
    server = issue_server(authority, ["login.example"], [], NOW)
    assert shake_hands(server, authority.certificate, "login.example", tmp_path) is None


def test_a_ca_that_cannot_sign_says_why_and_how_to_replace_it() -> None:
    for authority, now, why in (
        (make_authority("hpc1", NOW), NOW + dt.timedelta(days=3650), "the CA expired on 20"),
        (sites_authority(rsa_key(), identified=False), NOW, "the CA has no subject key identifier"),
    ):
        with pytest.raises(BadCertificate, match=rf"{why}.*: remove its folder"):
            issue_server(authority, ["login.example"], [], now)


def test_a_key_fits_its_own_certificate_only() -> None:
    authority = make_authority("hpc1", NOW)
    server = issue_server(authority, ["login.example"], [], NOW)
    assert fits(server)
    assert not fits(CertificateAndKey(server.certificate, authority.key))
    site_key = rsa_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert not fits(CertificateAndKey(server.certificate, site_key))


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_says_so(content: bytes) -> None:
    with pytest.raises(BadCertificate, match="not a certificate in PEM form"):
        facts_of(content)
    with pytest.raises(BadCertificate, match="not a private key"):
        fits(CertificateAndKey(make_authority("hpc1", NOW).certificate, content))
