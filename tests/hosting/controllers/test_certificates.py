"""Certificates of a cluster's endpoints, as ssl checks them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redbox_hosting.controllers.clusters.certificates import ClusterAuthority, client_context
from redbox_kube.controller.steps import StepFailed

HOST = "slurm-control.hpc.svc"
NOW = datetime.now(UTC)


def server_context(folder: Path, files: dict[str, bytes]) -> ssl.SSLContext:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    """In memory; raises ssl.SSLError where one side refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_the_operator_and_an_endpoint_of_its_cluster_trust_each_other(tmp_path: Path) -> None:
    authority = ClusterAuthority.read(ClusterAuthority.make("slurm.hpc", NOW).files)
    client = client_context(authority.issue("redbox-hosting", (), NOW))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = server_context(tmp_path, authority.issue("slurm-control", [HOST], NOW))
    shake_hands(client, server, HOST)
    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        shake_hands(client, server, "other.hpc.svc")
    other = ClusterAuthority.make("slurm.hpc", NOW)
    with pytest.raises(ssl.SSLError):
        shake_hands(client_context(other.issue("redbox-hosting", (), NOW)), server, HOST)


def test_a_certificate_is_due_after_three_fifths_of_its_life_or_with_another_authority() -> None:
    authority = ClusterAuthority.make("slurm.hpc", NOW)
    files = authority.issue("slurm-control", [HOST], NOW)
    assert not authority.is_due(files, NOW + timedelta(days=53))
    assert authority.is_due(files, NOW + timedelta(days=55))
    assert ClusterAuthority.make("slurm.hpc", NOW).is_due(files, NOW)
    assert authority.is_due({**files, "tls.crt": b"nonsense"}, NOW)


def test_an_authority_that_cannot_be_read_is_one_sentence() -> None:
    with pytest.raises(StepFailed, match="delete it"):
        ClusterAuthority.read({"ca.crt": b"x", "ca.key": b"y"})
