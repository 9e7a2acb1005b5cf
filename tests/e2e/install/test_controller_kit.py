"""The kit of the controllers on a real API server: the docs' example, and what is no difference there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from kubernetes.aio import client, config
from prometheus_client import CollectorRegistry, Counter

from redbox_bed.bed import Bed
from redbox_kube.api.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, STATEFUL_SET
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.controller.controller import run_controllers
from redbox_kube.controller.kube_object import read_object
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.owned import DesiredObject, OwnedObjects
from redbox_kube.install.crd_upgrade import upgrade_crds
from redbox_kube.schemas.crd import crd_of
from redbox_kube.status.status_writer import StatusWriter
from tests.kube.controller.greetings import GREETINGS, Greeting, Greetings

HELLO = ResourcePath(GREETINGS, "hello", "default")
TEXT = ResourcePath(CONFIG_MAP, "hello-text", "default")
WITHIN_S = 60.0


@pytest.fixture
async def objects(bed: Bed) -> AsyncIterator[ObjectClient]:
    """With the CRD of Greetings."""
    await config.load_kube_config(config_file=str(bed.places.kubeconfig))  # type: ignore[no-untyped-call]
    objects = ObjectClient(client.ApiClient(), "greetings")
    crd = crd_of(GREETINGS, "A greeting.")
    await upgrade_crds(objects, [crd])
    yield objects
    await objects.delete(ResourcePath(CUSTOM_RESOURCE_DEFINITION, crd["metadata"]["name"]))
    await objects.close()


def writer_of(objects: ObjectClient) -> StatusWriter:
    return StatusWriter(objects, Counter("writes", "Writes.", ("kind", "verb"), registry=None))


async def until(objects: ObjectClient, where: ResourcePath, check: Callable[[Object], bool]) -> Object:
    async with asyncio.timeout(WITHIN_S):
        while not check(found := await objects.get(where) or {}):  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.1)
    return found


async def test_the_example_keeps_its_config_map(objects: ObjectClient) -> None:
    controller = Greetings(writer_of(objects), ControllerMetrics(CollectorRegistry())).controller
    task = asyncio.create_task(run_controllers([controller]))
    await objects.apply(HELLO, {"spec": {"text": "good day"}})
    shown = await until(objects, HELLO, lambda found: bool(found.get("status", {}).get("configMap")))
    (condition,) = shown["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("ConfigMap", "True")
    await objects.merge(TEXT, {"data": {"text": "by hand"}})
    await until(objects, TEXT, lambda found: found.get("data") == {"text": "good day"})
    await objects.delete(HELLO)
    await until(objects, TEXT, lambda found: not found)
    task.cancel()


async def test_what_the_api_server_adds_or_writes_in_another_form_is_no_difference(
    objects: ObjectClient,
) -> None:
    greeting = read_object(Greeting, await objects.apply(HELLO, {"spec": {"text": "good day"}}))
    labels = {"app": "greeting"}
    container = {
        "name": "pause",
        "image": "registry.invalid/pause",
        "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "serviceName": "g", "selector": {"matchLabels": labels}, "template": template}
    desired = DesiredObject(STATEFUL_SET, "hello", {"spec": spec})
    owned = OwnedObjects(writer_of(objects), GREETINGS, [STATEFUL_SET], namespaces=["default"])
    ((watched, _),) = owned.watches
    task = asyncio.create_task(watched.run())
    await watched.listed()
    assert await owned.apply(greeting, [desired]) == "StatefulSet hello created"
    async with asyncio.timeout(WITHIN_S):  # its controller writes the status
        while not (watched.get(("default", "hello")) or {}).get("status", {}).get("observedGeneration"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert await owned.apply(greeting, [desired]) == ""
    assert await owned.apply(greeting, []) == "StatefulSet hello deleted"
    task.cancel()
