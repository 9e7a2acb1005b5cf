"""Leases of many nodes, where the API server is away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiUnreachable, ResourcePath
from redbox_resourced.nodes import leases
from redbox_resourced.nodes.leases import NodeLeases
from redbox_resourced.nodes.virtual_nodes import LEASES
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import node

NODES = 200


@pytest.mark.parametrize("exists", [True, False])
async def test_a_lease_is_labelled_also_where_an_older_release_made_it(*, exists: bool) -> None:
    api, debug = FakeApiServer(), node("debug")
    lease = ResourcePath(kinds.LEASE, debug.name, LEASES)
    if exists:
        api.put(lease)
    running = asyncio.create_task(NodeLeases(api.client, lambda: [debug]).run())
    await until(lambda: lease in api.objects and "labels" in api.objects[lease]["metadata"])
    running.cancel()
    await asyncio.wait({running})
    assert api.objects[lease]["metadata"]["labels"] == {"redbox.dev/virtual": "true"}


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def test_an_api_server_that_is_away_is_told_once_for_all_nodes_and_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "PERIOD_S", 0.5)
    api = FakeApiServer()
    api.fail(ApiUnreachable("the API server does not answer: refused"), kind="Lease")
    nodes = [node(f"n{number}") for number in range(NODES)]
    leases_of_nodes = NodeLeases(api.client, lambda: nodes)
    with capture_logs() as lines:
        running = asyncio.create_task(leases_of_nodes.run())
        await until(lambda: len(api.requests) >= 3 * NODES)
        api.recover()
        await until(lambda: len(lines) == 2)
        running.cancel()
        await asyncio.wait({running})
    assert [(line["event"], line["count"]) for line in lines] == [
        ("node Leases not renewed", NODES),
        ("node Leases not renewed: over", NODES),
    ]
