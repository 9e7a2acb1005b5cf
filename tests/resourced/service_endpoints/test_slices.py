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
    ],
    ids=["by name", "by number", "the same number"],
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


@pytest.mark.parametrize("target", ["other", 22, 7000, "udp"])
def test_a_service_leads_to_no_port_of_the_node_that_was_not_chosen(target: str | int) -> None:
    body = pod()
    body["spec"]["containers"][0]["ports"] = [*PORTS, {"name": "udp", "containerPort": 53, "protocol": "UDP"}]
    assert endpoint_slice("web", service({"port": 80, "targetPort": target}), body, AT) is None
    ports = made(service({"port": 80, "targetPort": target}, {"name": "web", "port": 8080}), body)["ports"]
    assert [port["port"] for port in ports] == [23456]


@pytest.mark.parametrize(("policy", "numbers"), [("Always", [25000]), (None, [])])
def test_a_named_port_of_a_sidecar_is_one_of_the_pod(policy: str | None, numbers: list[int]) -> None:
    body = pod()
    proxy = {"name": "proxy", "restartPolicy": policy, "ports": [{"name": "proxy", "containerPort": 3128}]}
    body["spec"]["initContainers"] = [proxy]
    at = PodAddress(AT.uid, AT.address, {**AT.ports, 3128: 25000})
    found = endpoint_slice("web", service({"port": 80, "targetPort": "proxy"}), body, at)
    assert [port["port"] for port in (found or {"ports": []})["ports"]] == numbers


def test_the_first_container_of_a_port_name_counts() -> None:
    body = pod()
    second = {"name": "http", "containerPort": 9000}
    body["spec"]["containers"].append({"name": "second", "ports": [second]})
    ports = made(service({"port": 80, "targetPort": "http"}), body)["ports"]
    assert [port["port"] for port in ports] == [23456]


@pytest.mark.parametrize("spec", [{}, {"selector": {}}, {"selector": {"a": "b"}, "type": "ExternalName"}])
def test_a_service_that_selects_nothing_is_none_of_ours(spec: Object) -> None:
    assert read_service({"spec": spec}) is None
