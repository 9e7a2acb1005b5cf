"""The kit of the controllers on a real API server: the docs' example, and what is no difference there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kubernetes.aio import client, config
from prometheus_client import CollectorRegistry, Counter

from redbox_bed.bed import Bed
from redbox_kube.api.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, POD, STATEFUL_SET
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.controller.controller import run_controllers
from redbox_kube.controller.kube_object import read_object
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.owned import DesiredObject, ManagedKinds, OwnedObjects
from redbox_kube.controller.watched import WatchedKind
from redbox_kube.install.crd_upgrade import upgrade_crds
from redbox_kube.schemas.crd import crd_of
from redbox_kube.status.status_writer import StatusWriter
from tests.kube.controller.greetings import GREETINGS, Greeting, Greetings

HELLO = ResourcePath(GREETINGS, "hello", "default")
TEXT = ResourcePath(CONFIG_MAP, "hello-text", "default")
POD_OF_SET = ResourcePath(POD, "hello-0", "default")
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


def stateful_set(*, replicas: int = 1, service: str = "g") -> DesiredObject:
    """Its pod never starts."""
    labels = {"app": "greeting"}
    container = {
        "name": "pause",
        "image": "registry.invalid/pause",
        "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    selector = {"matchLabels": labels}
    spec = {"replicas": replicas, "serviceName": service, "selector": selector, "template": template}
    return DesiredObject(STATEFUL_SET, "hello", {"spec": spec})


@asynccontextmanager
async def owned_sets(objects: ObjectClient) -> AsyncIterator[tuple[OwnedObjects, WatchedKind[Object]]]:
    managed = ManagedKinds(objects, ["default"])
    owned = OwnedObjects(
        writer_of(objects), GREETINGS, [STATEFUL_SET], managed=managed, replaced=[STATEFUL_SET]
    )
    ((watched, _),) = owned.watches
    task = asyncio.create_task(watched.run())
    await watched.listed()
    yield owned, watched
    task.cancel()


async def shown(watched: WatchedKind[Object], check: Callable[[Object], object]) -> Object:
    async with asyncio.timeout(WITHIN_S):
        while not check(found := watched.get(("default", "hello")) or {}):  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.1)
    return found


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
    desired = stateful_set(replicas=0)
    async with owned_sets(objects) as (owned, watched):
        assert await owned.apply(greeting, [desired]) == "StatefulSet hello created"
        await shown(watched, lambda found: found.get("status", {}).get("observedGeneration"))
        assert await owned.apply(greeting, [desired]) == ""
        assert await owned.apply(greeting, []) == "StatefulSet hello deleted"


async def test_a_stateful_set_is_replaced_for_a_field_that_never_changes_and_its_pod_stays(
    objects: ObjectClient,
) -> None:
    greeting = read_object(Greeting, await objects.apply(HELLO, {"spec": {"text": "good day"}}))
    async with owned_sets(objects) as (owned, watched):
        await owned.apply(greeting, [stateful_set()])
        before = await until(objects, POD_OF_SET, bool)
        await shown(watched, lambda found: found.get("status", {}).get("replicas"))
        wanted = stateful_set(service="another")
        assert "deleted, because such a change is refused" in await owned.apply(greeting, [wanted])
        await shown(watched, lambda found: not found)
        assert await owned.apply(greeting, [wanted]) == "StatefulSet hello created"
        uid = (await shown(watched, bool))["metadata"]["uid"]
        adopted = await until(
            objects,
            POD_OF_SET,
            lambda found: [each["uid"] for each in found["metadata"].get("ownerReferences", [])] == [uid],
        )
        assert adopted["metadata"]["uid"] == before["metadata"]["uid"]
        await owned.apply(greeting, [])
    await until(objects, POD_OF_SET, lambda found: not found)
