"""Keys and certificates: issued for what they are for, and kept."""

import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from redbox_bed.core.plan import Options, make_plan
from redbox_bed.kube.conf import AUTHORITIES, identities
from redbox_bed.kube.pki import Identity, ensure_pki

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
SERVER = Identity(
    "server", "kubernetes", "server", dns_names=("k0",), addresses=("10.0.0.1",), usages=("server",)
)
CLIENT = Identity("client", "kubernetes", "alice", organization="people")


def certificate(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


def test_a_certificate_says_for_whom_it_is_and_what_for(tmp_path: Path) -> None:
    ensure_pki(tmp_path, ["kubernetes"], [SERVER, CLIENT], NOW)
    client, server = certificate(tmp_path, "client"), certificate(tmp_path, "server")
    assert client.subject.rfc4514_string() == "CN=alice,O=people"
    usage = x509.ExtendedKeyUsage
    assert list(client.extensions.get_extension_for_class(usage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert list(server.extensions.get_extension_for_class(usage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["k0"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    client.verify_directly_issued_by(certificate(tmp_path, "kubernetes-ca"))


def test_what_is_there_is_kept_and_what_is_missing_is_made(tmp_path: Path) -> None:
    ensure_pki(tmp_path, ["kubernetes"], [SERVER, CLIENT], NOW)
    (tmp_path / "client.key").unlink()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    ensure_pki(tmp_path, ["kubernetes"], [SERVER, CLIENT], NOW)
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"client.key", "client.crt"}


def test_certificates_of_an_authority_that_is_gone_are_issued_anew(tmp_path: Path) -> None:
    ensure_pki(tmp_path, ["kubernetes"], [CLIENT], NOW)
    (tmp_path / "kubernetes-ca.key").unlink()
    ensure_pki(tmp_path, ["kubernetes"], [CLIENT], NOW)
    certificate(tmp_path, "client").verify_directly_issued_by(certificate(tmp_path, "kubernetes-ca"))


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    ensure_pki(tmp_path, ["kubernetes"], [SERVER, CLIENT], NOW)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("*.key")} == {0o600}


def test_a_certificate_fits_its_key(tmp_path: Path) -> None:
    ensure_pki(tmp_path, AUTHORITIES, identities(make_plan(Options())), NOW)
    for file in tmp_path.glob("*.crt"):
        if not file.stem.endswith("-ca"):
            ssl.create_default_context().load_cert_chain(file, file.with_suffix(".key"))


@pytest.mark.parametrize("name", ["k1", "k2"])
def test_a_node_is_a_client_that_the_node_authorizer_knows(name: str) -> None:
    named = {identity.name: identity for identity in identities(make_plan(Options()))}
    kubelet = named[f"kubelet-{name}"]
    assert (kubelet.common_name, kubelet.organization) == (f"system:node:{name}", "system:nodes")
    assert "client" not in named[f"kubelet-{name}-serving"].usages
