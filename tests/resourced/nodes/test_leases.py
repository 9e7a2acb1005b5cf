"""Leases of many nodes, where the API server is away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from redbox_kube.api.objects import ApiUnreachable, Object, ObjectClient
from redbox_resourced.nodes import leases
from redbox_resourced.nodes.leases import NodeLeases
from tests.resourced.factories import node

NODES = 200


class ApiServer:
    """Away until `is_away` is reset."""

    def __init__(self) -> None:
        self.is_away = True
        self.asked = 0

    async def create(self, *_: Any) -> Object:
        self.asked += 1
        if self.is_away:
            raise ApiUnreachable("the API server does not answer: refused")
        return {}

    async def merge(self, *_: Any) -> Object:
        return await self.create()


class Keeps(ApiServer):
    """Has a Lease already, and takes what is said of it."""

    def __init__(self) -> None:
        super().__init__()
        self.created: list[Object] = []
        self.merged: list[Object] = []

    async def create(self, _: Any, body: Object) -> None:  # type: ignore[override]
        self.created.append(body)

    async def merge(self, _: Any, body: Object) -> Object:
        self.merged.append(body)
        return body


async def test_a_lease_is_labelled_also_where_an_older_release_made_it() -> None:
    server = Keeps()
    nodes = [node("debug")]
    running = asyncio.create_task(NodeLeases(cast("ObjectClient", server), lambda: nodes).run())
    await until(lambda: server.merged)
    running.cancel()
    await asyncio.wait({running})
    for lease in (*server.created, *server.merged):
        assert lease["metadata"]["labels"] == {"redbox.dev/virtual": "true"}


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def test_an_api_server_that_is_away_is_told_once_for_all_nodes_and_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "PERIOD_S", 0.5)
    server = ApiServer()
    nodes = [node(f"n{number}") for number in range(NODES)]
    leases_of_nodes = NodeLeases(cast("ObjectClient", server), lambda: nodes)
    with capture_logs() as lines:
        running = asyncio.create_task(leases_of_nodes.run())
        await until(lambda: server.asked >= 3 * NODES)
        server.is_away = False
        await until(lambda: len(lines) == 2)
        running.cancel()
        await asyncio.wait({running})
    assert [(line["event"], line["count"]) for line in lines] == [
        ("node Leases not renewed", NODES),
        ("node Leases not renewed: over", NODES),
    ]
