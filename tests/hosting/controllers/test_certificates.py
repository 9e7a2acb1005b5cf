"""Certificates of a cluster's endpoints, as ssl checks them."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redbox_hosting.api import names
from redbox_hosting.controllers.clusters.certificates import (
    AUTHORITY_LIFE,
    OVERLAP,
    ClusterAuthority,
    client_context,
    ensure_authority,
)
from redbox_hosting.controllers.clusters.secret_files import SecretFiles
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller.steps import StepFailed
from tests.hosting.controllers.cluster_bench import context_at, controller
from tests.kube.fakes import FakeApiServer

HOST = "slurm-control.hpc.svc"
NOW = datetime.now(UTC)
NO_CHECK_TIME = 0x200000
"""OpenSSL's flag X509_V_FLAG_NO_CHECK_TIME, which Python does not name."""


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


def test_a_new_authority_is_trusted_by_all_before_the_former_goes(tmp_path: Path) -> None:
    """In each phase with servers that have the files of that phase, and with those of the phase before."""
    at = [NOW, NOW + AUTHORITY_LIFE * 0.7]
    at.append(at[1] + OVERLAP)
    phases = [ClusterAuthority.make("slurm.hpc", NOW)]
    for now in at[1:]:
        renewed = phases[-1].renewed("slurm.hpc", now)
        assert renewed is not None
        phases.append(ClusterAuthority.read(renewed.files))
    servers = []
    for number, (phase, now) in enumerate(zip(phases, at, strict=True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        servers.append(server_context(folder, phase.issue("slurm-control", [HOST], now)))
        client = client_context(phase.issue("redbox-hosting", (), now))
        for server in servers[-2:]:
            for context in (client, server):
                context.verify_flags |= ssl.VERIFY_X509_STRICT
                context.verify_flags |= NO_CHECK_TIME
            shake_hands(client, server, HOST)
    newest = client_context(phases[-1].issue("redbox-hosting", (), at[-1]))
    with pytest.raises(ssl.SSLError):
        shake_hands(newest, servers[0], HOST)


def test_servers_get_certificates_in_each_phase_of_a_change() -> None:
    first = ClusterAuthority.make("slurm.hpc", NOW)
    assert first.renewed("slurm.hpc", NOW + AUTHORITY_LIFE * 0.5) is None
    later = NOW + AUTHORITY_LIFE * 0.7
    both = first.renewed("slurm.hpc", later)
    assert both is not None
    assert both.renewed("slurm.hpc", later + OVERLAP / 2) is None
    alone = both.renewed("slurm.hpc", later + OVERLAP)
    assert alone is not None
    assert both.is_due(first.issue("slurm-control", [HOST], later), later)
    assert alone.is_due(both.issue("slurm-control", [HOST], later), later)
    assert not both.is_due(both.issue("slurm-control", [HOST], later), later)
    assert alone.files["former.key"] == b""


async def test_the_secret_of_an_authority_is_renewed_in_place() -> None:
    api = FakeApiServer()
    context = context_at(api)
    secrets = SecretFiles(context.writer, context.owned_objects(names.CONTROLLERS, ()))
    secret = ResourcePath(kinds.SECRET, "slurm-authority", "hpc")
    later = NOW + AUTHORITY_LIFE * 0.7
    first, _ = await ensure_authority(secrets, controller(), NOW)
    for now, former in ((NOW, None), (later, first), (later + OVERLAP, None)):
        authority, _ = await ensure_authority(secrets, controller(), now)
        assert (authority.former and authority.former.files) == (former and former.files)
        stored = {name: base64.b64decode(text) for name, text in api.objects[secret]["data"].items()}
        assert stored == authority.files
        assert (authority.certificate == first.certificate) == (now == NOW)


def test_an_authority_that_cannot_be_read_is_one_sentence() -> None:
    with pytest.raises(StepFailed, match="delete it"):
        ClusterAuthority.read({"ca.crt": b"x", "ca.key": b"y"})
