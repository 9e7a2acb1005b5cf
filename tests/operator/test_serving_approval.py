"""The operator approves what resourced requests for its own pods, and nothing else."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from prometheus_client import CollectorRegistry

from redbox_clusters.serving_requests import USER, signing_request, spec_of, subject
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.controller.controller import run_controllers
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_operator.serving_approval import ServingApproval, ServingRequest, waiting_request
from tests.kube.fakes import FakeApiServer

NAMESPACE, ADDRESS = "redbox-system", "10.244.1.7"
KEY = ec.generate_private_key(ec.SECP256R1())
LABELS = {"app.kubernetes.io/name": "redbox-resourced"}


def where(name: str) -> ResourcePath:
    return ResourcePath(kinds.CERTIFICATE_SIGNING_REQUEST, name)


def request(name: str = "redbox-resourced-1", address: str = ADDRESS, **spec: Any) -> Object:
    written = {**spec_of(signing_request(KEY, address)), "username": USER, **spec}
    return {"metadata": {"name": name}, "spec": written, "status": {}}


def put(api: FakeApiServer, body: Object) -> None:
    api.put(where(body["metadata"]["name"]), body)


def put_pod(api: FakeApiServer, name: str, address: str, **metadata: Any) -> None:
    pod = ResourcePath(kinds.POD, name, metadata.pop("namespace", NAMESPACE))
    api.put(pod, {"metadata": {"labels": LABELS, **metadata}, "status": {"podIPs": [{"ip": address}]}})


def verdicts(api: FakeApiServer, name: str = "redbox-resourced-1") -> list[str]:
    return [row["type"] for row in api.objects[where(name)]["status"].get("conditions", [])]


async def approving(api: FakeApiServer) -> None:
    metrics = ControllerMetrics(CollectorRegistry())
    await run_controllers([ServingApproval(api.client, NAMESPACE).controller(metrics)])


async def approved(api: FakeApiServer, name: str = "redbox-resourced-1") -> None:
    task = asyncio.create_task(approving(api))
    try:
        async with asyncio.timeout(30):
            while not verdicts(api, name):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)
    finally:
        task.cancel()


async def test_a_request_for_the_address_of_a_pod_of_resourced_is_approved() -> None:
    api = FakeApiServer()
    put_pod(api, "resourced-a", ADDRESS)
    put(api, request())
    await approved(api)
    assert verdicts(api) == ["Approved"]


async def test_a_request_waits_until_the_api_server_shows_its_pods_address() -> None:
    api = FakeApiServer()
    put(api, request())
    waiting = asyncio.create_task(approved(api))
    while api.asked.count("watch Pod") + api.asked.count("watch CertificateSigningRequest") < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert verdicts(api) == []
    put_pod(api, "resourced-a", ADDRESS)
    await waiting


async def test_the_address_of_anything_else_is_left_to_the_administrator() -> None:
    api = FakeApiServer()
    put_pod(api, "resourced-a", ADDRESS)
    put_pod(api, "a-tenants", "10.244.9.9", namespace="alice")
    put_pod(api, "other", "10.244.8.8", labels={"app.kubernetes.io/name": "redbox-operator"})
    for number, address in enumerate(("10.244.9.9", "10.244.8.8", "192.0.2.1"), 2):
        put(api, request(f"redbox-resourced-{number}", address))
    put(api, request())
    await approved(api)
    assert [verdicts(api, f"redbox-resourced-{number}") for number in (2, 3, 4)] == [[], [], []]


async def test_a_request_of_a_pod_that_is_gone_costs_nothing() -> None:
    """It waits until it is collected, for a day, and anybody may change it meanwhile."""
    api = FakeApiServer()
    put(api, request())
    task = asyncio.create_task(approving(api))
    async with asyncio.timeout(30):
        while "watch Pod" not in api.asked or "watch CertificateSigningRequest" not in api.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        asked = len(api.asked)
        for number in range(20):
            put(api, {**request(), "change": number})
        put_pod(api, "resourced-b", "10.244.1.8")
        put(api, request("redbox-resourced-2", "10.244.1.8"))
        while not verdicts(api, "redbox-resourced-2"):  # noqa: ASYNC110 (all before it is worked off then)
            await asyncio.sleep(0.01)
    task.cancel()
    assert api.asked[asked:] == ["merge CertificateSigningRequest"]


async def test_a_missing_right_is_no_end_of_the_operator() -> None:
    api = FakeApiServer()
    put_pod(api, "resourced-a", ADDRESS)
    put(api, request())
    api.fail(ApiRefused(403, "may not approve"), verb="merge", times=3)
    await approved(api)


def csr(*extensions: x509.ExtensionType, name: x509.Name | None = None) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(name or subject())
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


def address_names(*names: x509.GeneralName) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(names)


IP = x509.IPAddress(ipaddress.ip_address(ADDRESS))
OTHER = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:k1")])


@pytest.mark.parametrize(
    "body",
    [
        request("csr-of-a-kubelet"),
        request(username="system:node:k1"),
        request(signerName="kubernetes.io/kube-apiserver-client"),
        request(usages=["client auth"]),
        request(usages=None),
        request(request="not base64"),
        request(request="bm90IGEgcmVxdWVzdA=="),
        request(**spec_of(csr())),
        request(**spec_of(csr(address_names(IP, x509.DNSName("kubernetes.default"))))),
        request(**spec_of(csr(address_names(x509.DNSName("kubernetes.default"))))),
        request(**spec_of(csr(address_names(IP), name=OTHER))),
        request(**spec_of(csr(address_names(IP), x509.BasicConstraints(ca=True, path_length=None)))),
        {**request(), "status": {"conditions": [{"type": "Denied"}]}},
    ],
)
def test_what_resourced_does_not_write_is_no_request_of_its(body: Object) -> None:
    assert waiting_request(request()) == ServingRequest("redbox-resourced-1", ADDRESS)
    assert waiting_request(body) is None
