"""The EndpointSlice of a Service and a pod whose ports were chosen on the node."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_kube.api.objects import Object
from redbox_resourced.service_endpoints.slices import PodAddress, ServiceView, endpoint_slice, read_service

AT = PodAddress("uid-1", "10.0.0.1", {8080: 23456, 9000: 24000})
PORTS = [{"name": "http", "containerPort": 8080}, {"containerPort": 9000}]


def pod(*, ready: str = "True", **metadata: Any) -> Object:
    return {
        "metadata": {"name": "web-1", "namespace": "alice", "uid": "uid-1", **metadata},
        "spec": {"nodeName": "hpc1.debug", "containers": [{"name": "web", "ports": PORTS}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def service(*ports: Object, **spec: Any) -> ServiceView:
    view = read_service({"spec": {"selector": {"app": "web"}, "ports": list(ports), **spec}})
    assert view is not None
    return view


def made(service: ServiceView, pod: Object, at: PodAddress = AT) -> Object:
    body = endpoint_slice("web", service, pod, at)
    assert body is not None
    return body


@pytest.mark.parametrize(
    ("port", "number"),
    [
        ({"port": 80, "targetPort": "http"}, 23456),
        ({"port": 80, "targetPort": 9000}, 24000),
        ({"port": 8080}, 23456),
        ({"port": 80, "targetPort": 7000}, 7000),
    ],
    ids=["by name", "by number", "the same number", "not declared"],
)
def test_the_chosen_port_takes_the_declared_ones_place(port: Object, number: int) -> None:
    body = made(service({"name": "front", **port}), pod())
    assert body["ports"] == [{"name": "front", "port": number, "protocol": "TCP"}]
    assert body["endpoints"][0]["addresses"] == ["10.0.0.1"]


def test_it_is_of_the_service_and_belongs_to_the_pod() -> None:
    metadata = made(service({"port": 8080}), pod())["metadata"]
    assert metadata["labels"]["kubernetes.io/service-name"] == "web"
    assert metadata["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "uid-1"}
    ]


@pytest.mark.parametrize(
    ("given", "spec", "ready"),
    [
        (pod(), {}, True),
        (pod(ready="False"), {}, False),
        (pod(ready="False"), {"publishNotReadyAddresses": True}, True),
        (pod(deletionTimestamp="2026-11-28T00:00:00Z"), {}, False),
    ],
)
def test_it_is_ready_as_its_pod_is(given: Object, spec: Object, *, ready: bool) -> None:
    (endpoint,) = made(service({"port": 8080}, **spec), given)["endpoints"]
    assert endpoint["conditions"]["ready"] is ready


def test_an_address_of_ipv6_is_one() -> None:
    at = PodAddress("uid-1", "fd00::1", AT.ports)
    assert made(service({"port": 8080}), pod(), at)["addressType"] == "IPv6"


def test_a_pod_without_the_services_port_is_not_in_it() -> None:
    assert endpoint_slice("web", service({"port": 80, "targetPort": "other"}), pod(), AT) is None


@pytest.mark.parametrize("spec", [{}, {"selector": {}}, {"selector": {"a": "b"}, "type": "ExternalName"}])
def test_a_service_that_selects_nothing_is_none_of_ours(spec: Object) -> None:
    assert read_service({"spec": spec}) is None
