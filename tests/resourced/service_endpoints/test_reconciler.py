"""EndpointSlices follow pods and Services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from redbox_api.models import Job
from redbox_api.pod_report import PodReport
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiUnreachable, Object, ResourcePath
from redbox_resourced.pods.pod_view import BoundPod, read_pod
from redbox_resourced.service_endpoints import reconciler
from redbox_resourced.service_endpoints.reconciler import ServiceEndpoints
from redbox_resourced.service_endpoints.slices import MANAGED_BY, MANAGER
from tests.kube.fakes import FakeApiServer, Request
from tests.resourced.factories import slurm_cluster
from tests.resourced.pods.factories import pod_job

POD = ResourcePath(kinds.POD, "web-1", "alice")
LOOK = Request("get", POD)
SERVICE = ResourcePath(kinds.SERVICE, "web", "alice")
SELECTS: Object = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}
ROUTED, ELSEWHERE = (slurm_cluster(pods={"enabled": True, "routed": routed}) for routed in (True, False))
PORTS = [{"name": "http", "containerPort": 8080}]


def stored_pod(
    api: FakeApiServer, *, phase: str = "Running", name: str = "web-1", namespace: str = "alice"
) -> BoundPod:
    body: Object = {
        "metadata": {"labels": {"app": "web"}, "creationTimestamp": "2026-11-28T00:00:00Z"},
        "spec": {"nodeName": "hpc1.debug", "containers": [{"name": "web", "ports": PORTS}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return read_pod(api.put(ResourcePath(kinds.POD, name, namespace), body))


def job(node_port: int = 23456) -> Job:
    ports = [{"port": 8080, "nodePort": node_port}]
    report = {"at": "2026-11-28T00:00:00Z", "hostIP": "10.0.0.1", "ports": ports}
    return pod_job(pod=PodReport.model_validate(report))


@asynccontextmanager
async def running(api: FakeApiServer) -> AsyncIterator[ServiceEndpoints]:
    endpoints = ServiceEndpoints(api.client)
    task = asyncio.create_task(endpoints.run())
    try:
        async with asyncio.timeout(60):
            yield endpoints
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until(holds: Callable[[], Any]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0)


def numbers(api: FakeApiServer) -> list[int]:
    return [port["port"] for body in api.of_kind("EndpointSlice") for port in body["ports"]]


async def test_a_slice_comes_with_the_pod_and_goes_with_its_end() -> None:
    api = FakeApiServer()
    api.put(SERVICE, spec=SELECTS)
    async with running(api) as endpoints:
        pod = stored_pod(api)
        endpoints.pod_shown(pod, job(), ROUTED)
        await until(lambda: numbers(api) == [23456])
        stored_pod(api, phase="Failed")
        endpoints.pod_shown(pod, job(), ROUTED)
        await until(lambda: not numbers(api))


async def test_a_slice_comes_and_goes_with_its_service() -> None:
    api = FakeApiServer()
    async with running(api) as endpoints:
        endpoints.pod_shown(stored_pod(api), job(), ROUTED)
        api.put(SERVICE, spec=SELECTS)
        await until(lambda: numbers(api) == [23456])
        api.put(SERVICE, spec=SELECTS | {"selector": {"app": "other"}})
        await until(lambda: not numbers(api))


async def test_a_slice_that_somebody_deletes_is_written_again() -> None:
    api = FakeApiServer()
    api.put(SERVICE, spec=SELECTS)
    async with running(api) as endpoints:
        endpoints.pod_shown(stored_pod(api), job(), ROUTED)
        await until(lambda: numbers(api) == [23456])
        await until(lambda: endpoints._slices.items)
        api.remove(next(where for where in api.objects if where.kind == kinds.ENDPOINT_SLICE))
        await until(lambda: numbers(api) == [23456])


async def test_a_slice_from_before_a_restart_stays_until_its_pods_job_is_read() -> None:
    api = FakeApiServer()
    pod = stored_pod(api)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    metadata = {"labels": {MANAGED_BY: MANAGER}, "ownerReferences": [owner]}
    old = ResourcePath(kinds.ENDPOINT_SLICE, f"web-{pod.uid}", "alice")
    api.put(old, {"metadata": metadata, "ports": [{"port": 1}], "endpoints": []})
    async with running(api) as endpoints:
        await until(lambda: ("get", POD) in api.requests)
        assert numbers(api) == [1]
        api.put(SERVICE, spec=SELECTS)
        endpoints.pod_shown(pod, job(), ROUTED)
        await until(lambda: numbers(api) == [23456])


async def test_a_pod_whose_node_is_not_reached_has_none() -> None:
    api = FakeApiServer()
    api.put(SERVICE, spec=SELECTS)
    async with running(api) as endpoints:
        pod = stored_pod(api)
        endpoints.pod_shown(pod, job(), ROUTED)
        await until(lambda: numbers(api) == [23456])
        endpoints.pod_shown(pod, job(), ELSEWHERE)
        await until(lambda: not numbers(api))


async def test_a_write_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "RETRY_S", 0.0)
    api = FakeApiServer()
    api.put(SERVICE, spec=SELECTS)
    api.fail(ApiUnreachable("it does not answer"), verb="apply", kind="EndpointSlice", times=2)
    async with running(api) as endpoints:
        endpoints.pod_shown(stored_pod(api), job(), ROUTED)
        await until(lambda: numbers(api) == [23456])


async def test_ports_that_change_without_an_end_are_written_at_a_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "BURST", 10)
    monkeypatch.setattr(reconciler, "REFILL_S", 3600.0)
    api = FakeApiServer()
    api.put(SERVICE, spec=SELECTS)
    async with running(api) as endpoints:
        pod = stored_pod(api)
        ports = [20000 + number for number in range(10)]
        for node_port in ports:
            endpoints.pod_shown(pod, job(node_port), ROUTED)
            await until(partial(is_written, api, node_port))
        looks = api.requests.count(LOOK)
        for _ in range(10):
            endpoints.pod_shown(pod, job(), ROUTED)
            await settled(endpoints)
        assert api.requests.count(LOOK) == looks
        assert numbers(api) == ports[-1:]


async def test_each_write_of_a_namespace_counts_and_another_namespace_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "BURST", 20)
    monkeypatch.setattr(reconciler, "REFILL_S", 3600.0)
    api = FakeApiServer()
    put_services(api, 10)
    api.put(replace(SERVICE, namespace="bob"), spec=SELECTS)
    async with running(api) as endpoints:
        for number in range(5):
            endpoints.pod_shown(stored_pod(api, name=f"web-{number}"), job(), ROUTED)
        await settled(endpoints)
        assert written(api, "alice") == 20
        endpoints.pod_shown(stored_pod(api, namespace="bob"), job(), ROUTED)
        await until(lambda: written(api, "bob") == 1)


async def test_all_that_wait_for_the_pace_are_written_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "BURST", 2)
    monkeypatch.setattr(reconciler, "REFILL_S", 0.001)
    api = FakeApiServer()
    put_services(api, 10)
    async with running(api) as endpoints:
        for number in range(3):
            endpoints.pod_shown(stored_pod(api, name=f"web-{number}"), job(), ROUTED)
        await until(lambda: written(api, "alice") == 30)


async def test_writes_of_one_namespace_that_hang_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApiServer()
    for namespace in ("alice", "bob"):
        api.put(replace(SERVICE, namespace=namespace), spec=SELECTS)
    apply = api.apply

    async def hanging(where: ResourcePath, body: Object, **options: Any) -> Object:
        if where.namespace == "alice":
            await asyncio.Event().wait()
        return await apply(where, body, **options)

    monkeypatch.setattr(api, "apply", hanging)
    async with running(api) as endpoints:
        for number in range(20):
            endpoints.pod_shown(stored_pod(api, name=f"web-{number}"), job(), ROUTED)
        endpoints.pod_shown(stored_pod(api, namespace="bob"), job(), ROUTED)
        await until(lambda: written(api, "bob") == 1)


async def test_a_pod_has_sixteen_slices_and_an_event_says_so() -> None:
    api = FakeApiServer()
    put_services(api, 20)
    async with running(api) as endpoints:
        pod = stored_pod(api)
        endpoints.pod_shown(pod, job(), ROUTED)
        await until(lambda: written(api, "alice") == 16)
        names = api.names("EndpointSlice")
        api.put(replace(SERVICE, name="another"), spec=SELECTS)
        await until(lambda: "another" in endpoints._services_of["alice"])
        endpoints.pod_shown(pod, job(), ROUTED)
        await settled(endpoints)
        assert api.names("EndpointSlice") == names
        (event,) = api.events
        assert (event["reason"], event["involvedObject"]["uid"]) == ("TooManyServices", pod.uid)
        api.remove(replace(SERVICE, name="web-0"))
        await until(lambda: any(name.startswith("another") for name in api.names("EndpointSlice")))
        assert written(api, "alice") == 16


async def test_an_event_that_cannot_be_written_keeps_no_slice_away() -> None:
    api = FakeApiServer()
    put_services(api, 20)
    api.fail(ApiUnreachable("it does not answer"), verb="create", kind="Event")
    async with running(api) as endpoints:
        endpoints.pod_shown(stored_pod(api), job(), ROUTED)
        await until(lambda: written(api, "alice") == 16)


async def test_a_change_of_a_service_that_slices_do_not_depend_on_costs_nothing() -> None:
    api = FakeApiServer()
    api.put(SERVICE, spec=SELECTS)
    async with running(api) as endpoints:
        endpoints.pod_shown(stored_pod(api), job(), ROUTED)
        await until(lambda: numbers(api) == [23456])
        await settled(endpoints)
        looks = api.requests.count(LOOK)
        for number in range(5):
            api.put(SERVICE, spec=SELECTS, metadata={"annotations": {"n": str(number)}})
            await settled(endpoints)
        assert api.requests.count(LOOK) == looks
        api.put(SERVICE, spec=SELECTS | {"publishNotReadyAddresses": True})
        await until(lambda: api.requests.count(LOOK) > looks)


async def test_what_is_kept_of_pods_and_services_goes_with_them() -> None:
    api = FakeApiServer()
    put_services(api, 20)
    async with running(api) as endpoints:
        pod = stored_pod(api)
        endpoints.pod_shown(pod, job(), ROUTED)
        await until(lambda: written(api, "alice") == 16)
        await settled(endpoints)
        api.remove(POD)
        endpoints.pod_deleted(pod)
        await until(lambda: not numbers(api))
        for number in range(20):
            api.remove(replace(SERVICE, name=f"web-{number}"))
        await until(lambda: not endpoints._services_of)
        await settled(endpoints)
        kept = (endpoints._pods, endpoints._warned, endpoints._index.of(pod.place))
        assert not any(kept)


def put_services(api: FakeApiServer, count: int) -> None:
    for number in range(count):
        api.put(replace(SERVICE, name=f"web-{number}"), spec=SELECTS)


def written(api: FakeApiServer, namespace: str) -> int:
    return sum(body["metadata"]["namespace"] == namespace for body in api.of_kind("EndpointSlice"))


async def settled(endpoints: ServiceEndpoints) -> None:
    """All events have arrived and are worked on."""
    for _ in range(50):
        await asyncio.sleep(0)
    await until(lambda: not endpoints._queue.unfinished)


def is_written(api: FakeApiServer, node_port: int) -> bool:
    return numbers(api) == [node_port]
