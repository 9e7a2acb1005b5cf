"""A process that leads: nothing is done without the Lease, and it is free when the process ends."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from redbox_kube.api import lease as lease_module
from redbox_kube.api.kinds import LEASE
from redbox_kube.api.lease import Lease, LeaseLost
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_kube.controller import process as module
from redbox_kube.controller.process import LeaderProcess, run_until_sigterm
from tests.kube.fakes import FakeApiServer

WHERE = ResourcePath(LEASE, "example", "system")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApiServer:
    api = FakeApiServer()

    class Client:
        @staticmethod
        async def connect(_: str) -> ObjectClient:
            return api.client

    monkeypatch.setattr(module, "ObjectClient", cast("type[ObjectClient]", Client))
    return api


async def test_sigterm_ends_the_work_and_frees_the_lease(api: FakeApiServer) -> None:
    holders = []

    async def work() -> None:
        holders.append(api.objects[WHERE]["spec"]["holderIdentity"])
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async def lead(objects: ObjectClient) -> None:
        lease = Lease(objects, "system", "example", holder="pod-1")
        await LeaderProcess(lease, CollectorRegistry(), 0).run(work)

    await asyncio.create_task(run_until_sigterm("example", lead))
    assert holders == ["pod-1"]
    assert api.objects[WHERE]["spec"]["holderIdentity"] == ""
    assert api.closed


async def test_a_lost_lease_ends_the_process(api: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "EVERY_S", 0.001)

    async def work() -> None:
        spec = {**api.objects[WHERE]["spec"], "holderIdentity": "pod-2"}
        api.put(WHERE, {**api.objects[WHERE], "spec": spec})
        await asyncio.Event().wait()

    async def lead(objects: ObjectClient) -> None:
        lease = Lease(objects, "system", "example", holder="pod-1")
        await LeaderProcess(lease, CollectorRegistry(), 0).run(work)

    with pytest.raises(SystemExit) as ended:
        await run_until_sigterm("example", lead)
    assert ended.value.code == 1


async def test_any_other_fault_is_not_taken_for_a_lost_lease(api: FakeApiServer) -> None:
    async def lead(_: ObjectClient) -> None:
        raise ExceptionGroup("faults", [LeaseLost("x"), KeyError("y")])

    with pytest.raises(ExceptionGroup):
        await run_until_sigterm("example", lead)
    assert api.closed


async def test_a_replica_that_waits_for_the_lease_is_ready() -> None:
    lease = Lease(FakeApiServer().client, "system", "example")
    process = LeaderProcess(lease, CollectorRegistry(), 0, unready=lambda: "not listed yet")
    assert process.why_unready() == "the Lease has not been read yet"
    lease.leader = "another"
    assert process.why_unready() is None
    process.leads = True
    assert process.why_unready() == "not listed yet"
