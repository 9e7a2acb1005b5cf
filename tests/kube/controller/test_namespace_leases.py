"""A namespace belongs to one installation, and an older release deletes nothing of a newer one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from redbox_kube.api import lease as lease_module
from redbox_kube.api.kinds import LEASE
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller import namespace_leases as module
from redbox_kube.controller.namespace_leases import NamespaceLeases
from tests.kube.fakes import FakeApiServer

FORMAT = "redbox.dev/object-format"


@asynccontextmanager
async def held(
    api: FakeApiServer, object_format: int, changes: asyncio.Queue[str] | None = None
) -> AsyncIterator[NamespaceLeases]:
    """Once the namespace alice is held."""
    leases = NamespaceLeases(api.client, ["alice", "bob"], "hosting", object_format=object_format)
    changed = changes or asyncio.Queue[str]()
    task = asyncio.create_task(leases.run(changed.put_nowait))
    async with asyncio.timeout(30):
        while not leases.may_write("alice"):
            await changed.get()
    yield leases
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


def lease(namespace: str) -> ResourcePath:
    return ResourcePath(LEASE, "hosting", namespace)


async def test_a_namespace_of_another_installation_is_left_alone() -> None:
    api = FakeApiServer()
    api.put(lease("bob"), spec={"holderIdentity": "theirs", "renewTime": "now", "leaseDurationSeconds": 3600})
    async with held(api, 1) as leases:
        assert not leases.why_not_delete("alice")
        assert not leases.may_write("bob")
        assert leases.why_not_delete("bob")
        assert "not served" in leases.why_not("carol")


async def test_a_lease_that_somebody_takes_stops_the_writes_of_its_namespace_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_module, "EVERY_S", 0.001)
    monkeypatch.setattr(module, "AGAIN_S", 0.001)
    api, changes = FakeApiServer(), asyncio.Queue[str]()

    async def until(*, held_by_us: bool) -> None:
        async with asyncio.timeout(30):
            while leases.may_write("bob") is not held_by_us:
                await changes.get()

    async with held(api, 1, changes) as leases:
        await until(held_by_us=True)
        ours = api.objects[lease("bob")]
        theirs = {"holderIdentity": "theirs", "renewTime": "now", "leaseDurationSeconds": 3600}
        api.put(lease("bob"), {**ours, "spec": theirs})
        await until(held_by_us=False)
        assert "held by theirs" in leases.why_not("bob")
        assert not leases.why_not_delete("alice")
        api.put(lease("bob"), {**ours, "spec": {}})
        await until(held_by_us=True)


async def test_an_older_release_deletes_nothing_of_a_newer_one() -> None:
    api = FakeApiServer()
    async with held(api, 2) as newer:
        assert not newer.why_not_delete("alice")
    async with held(api, 1) as older:
        assert older.may_write("alice")
        assert older.why_not_delete("alice")
    assert api.objects[lease("alice")]["metadata"]["annotations"] == {FORMAT: "2"}
    assert api.objects[lease("alice")]["spec"]["holderIdentity"] == ""


async def test_a_format_that_somebody_scribbled_is_none() -> None:
    api = FakeApiServer()
    api.put(lease("alice"), metadata={"name": "hosting", "annotations": {FORMAT: "9e99"}}, spec={})
    async with held(api, 1) as leases:
        assert not leases.why_not_delete("alice")
