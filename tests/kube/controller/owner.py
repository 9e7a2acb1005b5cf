"""An owner, and what it owns, at the API server of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from prometheus_client import Counter

from redbox_kube.api.kinds import CONFIG_MAP, POD, STATEFUL_SET, Kind
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller.kube_object import KubeObject, read_object
from redbox_kube.controller.owned import DesiredObject, OwnedObjects
from redbox_kube.status.status_writer import StatusWriter
from tests.kube.fakes import FakeApiServer

FARMS = Kind("example.dev", "v1", "farms", "Farm", model=KubeObject)
FARM = ResourcePath(FARMS, "cows", "alice")


def owner(uid: str = "farm-1") -> KubeObject:
    return read_object(KubeObject, {"metadata": {"name": "cows", "namespace": "alice", "uid": uid}})


def config_map(name: str = "a", text: str = "moo") -> DesiredObject:
    return DesiredObject(CONFIG_MAP, name, {"data": {"text": text}})


def at(name: str) -> ResourcePath:
    return ResourcePath(CONFIG_MAP, name, "alice")


def status_writer(api: FakeApiServer) -> StatusWriter:
    return StatusWriter(api.client, Counter("writes", "Writes.", ("kind", "verb"), registry=None))


@asynccontextmanager
async def owned_objects(api: FakeApiServer, *, replaced: Iterable[Kind] = ()) -> AsyncIterator[OwnedObjects]:
    """With their watches."""
    owned = OwnedObjects(status_writer(api), FARMS, [CONFIG_MAP, POD, STATEFUL_SET], replaced=replaced)
    tasks = [asyncio.create_task(watched.run()) for watched, _ in owned.watches]
    for watched, _ in owned.watches:
        await watched.listed()
    yield owned
    for task in tasks:
        task.cancel()


async def shown(owned: OwnedObjects, api: FakeApiServer) -> None:
    """Until the watches have shown what is stored."""
    watched = {kind: watch for watch, _ in owned.watches for kind in [watch.kind]}
    async with asyncio.timeout(30):
        while any(  # noqa: ASYNC110 (nothing tells)
            (found := watched[where.kind].get((where.namespace, where.name))) is None
            or found["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]
            for where, body in api.objects.items()
            if where.kind in watched and body["metadata"].get("labels")
        ) or any(
            ResourcePath(kind, place[1], place[0]) not in api.objects
            for kind, watch in watched.items()
            for place, _ in watch.items()
        ):
            await asyncio.sleep(0.001)
