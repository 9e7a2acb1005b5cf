"""The serving certificate is renewed by the real signer, and no client that checks it meets a break.

The API server gives none for less than ten minutes: `ROTATION=1` has it wait for the seven until the renewal.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from kubernetes.aio import client, config

from redbox_bed.bed import Bed
from redbox_kube.api.objects import Object, ObjectClient
from redbox_resourced.kubelet.authorization import Authorizer
from redbox_resourced.kubelet.listener import KubeletListener
from redbox_resourced.kubelet.server import KubeletApi
from redbox_resourced.kubelet.serving_certificate import Key, ServingCertificate
from redbox_resourced.pods.reconciler import PodReconciler
from tests.e2e.harness.client_certificate import ClientCertificate, signed
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.virtual_delivery import approve

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not os.environ.get("ROTATION"), reason="ROTATION=1 takes eight minutes"),
]
ADDRESS = "127.0.0.1"
LASTS_S = 600  # the API server's shortest
WITHIN_S = 900.0


class ShortLived(ServingCertificate):
    """Asks for one that ends soon."""

    def _request(self, name: str, key: Key) -> Object:
        request = super()._request(name, key)
        request["spec"]["expirationSeconds"] = LASTS_S
        return request


async def test_a_certificate_is_renewed_before_it_ends_without_a_break(bed: Bed, tmp_path: Path) -> None:
    kubernetes = Kubernetes(bed)
    client_certificate = signed(kubernetes, tmp_path, "e2e-rotation", ["e2e"])
    context = checking(bed, client_certificate)
    async with asyncio.timeout(WITHIN_S), serving(bed, tmp_path) as port:
        first = await until_signed(kubernetes, context, port)
        second = first
        while second.serial_number == first.serial_number:
            await asyncio.sleep(1)
            await asyncio.to_thread(approve, kubernetes)
            second = await shown(context, port)  # raises where it is not the cluster's, or has ended
    assert second.not_valid_after_utc > first.not_valid_after_utc
    assert second.public_key() != first.public_key()


async def until_signed(kubernetes: Kubernetes, context: ssl.SSLContext, port: int) -> x509.Certificate:
    while True:
        await asyncio.to_thread(approve, kubernetes)
        try:
            return await shown(context, port)
        except ssl.SSLCertVerificationError:  # self-signed, until the signer has seen the approval
            await asyncio.sleep(1)


async def shown(context: ssl.SSLContext, port: int) -> x509.Certificate:
    """What is served to a client that checks it, as the API server does."""
    async with asyncio.timeout(30):
        _, writer = await asyncio.open_connection(ADDRESS, port, ssl=context)
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(certificate)


def checking(bed: Bed, shows: ClientCertificate) -> ssl.SSLContext:
    cluster = yaml.safe_load(bed.places.kubeconfig.read_text())["clusters"][0]["cluster"]
    context = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    context.load_cert_chain(shows.file, shows.key)
    return context


@asynccontextmanager
async def serving(bed: Bed, folder: Path) -> AsyncIterator[int]:
    """resourced's listener with its certificate, and none of the rest."""
    await config.load_kube_config(config_file=str(bed.places.kubeconfig))  # type: ignore[no-untyped-call]
    objects = ObjectClient(client.ApiClient(), "e2e")
    with socket.create_server((ADDRESS, 0)) as found:
        port = int(found.getsockname()[1])
    pods = PodReconciler(objects, None, None, ADDRESS)  # type: ignore[arg-type]
    api = KubeletApi(pods, None, None, Authorizer(objects))  # type: ignore[arg-type]
    runner = api.runner()
    await runner.setup()
    listener = KubeletListener(objects, runner, ADDRESS, port)
    certificate = ShortLived(objects, ADDRESS, folder=folder / "kept", given=None, changed=listener.use)
    running = [asyncio.create_task(part.run()) for part in (listener, certificate)]
    try:
        await listener.serves.wait()
        yield port
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await runner.cleanup()
        await objects.close()
