"""The serving certificate is asked for, kept, and renewed before it ends."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from redbox_clusters.serving_requests import GROUP, USER
from redbox_kube.api.objects import Object, ResourcePath
from redbox_resourced.kubelet.serving_certificate import (
    ServingCertificate,
    ServingKeyPair,
    key_pem,
    make_key,
)

ADDRESS = "127.0.0.1"
SHORT, LONG = timedelta(seconds=2), timedelta(days=365)


class Cluster:
    """Signs requests that are approved, for as long as it likes."""

    def __init__(self, *lifetimes: timedelta) -> None:
        self.lifetimes = list(lifetimes)
        self.asked_as: list[tuple[str, str]] = []
        self.requests: dict[str, Object] = {}
        self.verdict = ""
        self._key = make_key()

    def impersonating(self, user: str, group: str) -> Self:
        self.asked_as.append((user, group))
        return self

    async def get(self, where: ResourcePath) -> Object | None:
        return self.requests.get(where.name)

    async def create(self, _: ResourcePath, body: Object) -> Object:
        request = x509.load_pem_x509_csr(base64.b64decode(body["spec"]["request"]))
        signed = base64.b64encode(self._sign(request, self.lifetimes.pop(0))).decode()
        status: Object = {"certificate": signed}
        if self.verdict:
            status = {"conditions": [{"type": self.verdict, "status": "True", "message": "not today"}]}
        self.requests[body["metadata"]["name"]] = {**body, "status": status}
        return body

    async def close(self) -> None:
        """Nothing is open."""

    def _sign(self, request: x509.CertificateSigningRequest, lifetime: timedelta) -> bytes:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(request.subject).issuer_name(request.subject)
        builder = builder.public_key(request.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now).not_valid_after(now + lifetime)
        for extension in request.extensions:
            builder = builder.add_extension(extension.value, critical=extension.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


async def served(
    cluster: Cluster, folder: Path, until: Callable[[list[ServingKeyPair]], bool]
) -> list[ServingKeyPair]:
    """The certificates that the cluster signed, one after the other, as they came to be served."""
    signed: list[ServingKeyPair] = []
    enough = asyncio.Event()

    def changed(pair: ServingKeyPair) -> None:
        read = x509.load_pem_x509_certificate(pair.certificate)
        if read.not_valid_after_utc - read.not_valid_before_utc in {SHORT, LONG}:  # not one of our own
            signed.append(pair)
        if until(signed):
            enough.set()

    certificate = ServingCertificate(
        cast("Any", cluster), ADDRESS, folder=folder, given=None, changed=changed
    )
    running = asyncio.create_task(certificate.run())
    try:
        async with asyncio.timeout(60):
            await enough.wait()
    finally:
        running.cancel()
        await asyncio.wait({running})
    return signed


async def test_it_is_renewed_with_a_new_key_before_it_ends(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.serving_certificate.POLL_S", 0.05)
    cluster = Cluster(SHORT, LONG)
    first, second = await served(cluster, tmp_path, lambda pairs: len(pairs) == 2)
    assert first.key != second.key
    assert second.is_for(ADDRESS)
    assert set(cluster.asked_as) == {(USER, GROUP)}
    assert (tmp_path / "serving.crt").read_bytes() == second.certificate


async def test_a_restart_goes_on_with_the_one_that_there_is(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.serving_certificate.POLL_S", 0.05)
    cluster = Cluster(LONG)
    before = await served(cluster, tmp_path, bool)
    assert await served(cluster, tmp_path, bool) == before
    assert len(cluster.requests) == 1


async def test_one_that_is_due_is_not_served_after_a_restart(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.serving_certificate.POLL_S", 0.05)
    [short] = await served(Cluster(SHORT), tmp_path, bool)
    await asyncio.sleep(max(0.0, (short.renewal() - datetime.now(UTC)).total_seconds()) + 0.1)
    [new] = await served(Cluster(LONG), tmp_path, bool)
    assert new != short


@pytest.mark.parametrize("damage", ["another key", "half a file"])
async def test_a_pair_of_which_one_file_was_written_is_not_served(
    tmp_path: Path, monkeypatch: Any, damage: str
) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.serving_certificate.POLL_S", 0.05)
    [old] = await served(Cluster(LONG), tmp_path, bool)
    if damage == "another key":
        (tmp_path / "serving.key").write_bytes(key_pem(make_key()))
    else:
        (tmp_path / "serving.crt").write_bytes(old.certificate[:200])
    cluster = Cluster(LONG)
    [new] = await served(cluster, tmp_path, bool)
    assert new.belong_together()
    assert len(cluster.requests) == 1


async def test_a_renewal_that_waits_says_until_when_the_certificate_lasts(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.serving_certificate.POLL_S", 0.05)
    cluster = Cluster(SHORT, LONG)

    def changed(_: ServingKeyPair) -> None:
        if len(cluster.requests) == 1:
            cluster.verdict = "Approved"  # and the next one is not issued

    certificate = ServingCertificate(cast("Any", cluster), ADDRESS, tmp_path, None, changed)
    running = asyncio.create_task(certificate.run())
    async with asyncio.timeout(60):
        while "waits for the cluster's signer" not in certificate.note:  # noqa: ASYNC110 (it sets no event)
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    assert "the serving certificate ends at" in certificate.note


async def test_a_denied_request_says_how_another_one_is_made(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.serving_certificate.POLL_S", 0.05)
    cluster = Cluster(LONG, LONG)
    cluster.verdict = "Denied"
    certificate = ServingCertificate(
        cast("Any", cluster), ADDRESS, folder=tmp_path, given=None, changed=lambda _: None
    )
    running = asyncio.create_task(certificate.run())
    async with asyncio.timeout(60):
        while "denied" not in certificate.note:  # noqa: ASYNC110 (a note sets no event)
            await asyncio.sleep(0.01)
        [name] = cluster.requests
        assert f"kubectl delete csr {name}" in certificate.note
        cluster.verdict = ""
        del cluster.requests[name]
        while certificate.note:  # noqa: ASYNC110 (the same)
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})


def test_no_node_can_have_the_name_of_the_user_that_asks_for_it() -> None:
    """As the user of a Node that exists, resourced could read what the pods on it refer to."""
    node = USER.removeprefix("system:node:")
    assert node != USER
    assert re.fullmatch("[a-z0-9]([a-z0-9.-]*[a-z0-9])?", node) is None, "a Node may have this name"
