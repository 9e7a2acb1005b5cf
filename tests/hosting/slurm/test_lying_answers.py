"""Answers that are whole and wrong: an old one again, a node twice, nodes that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import SlurmUnknown
from tests.hosting.slurm.scripted_server import response, serving
from tests.hosting.slurm.test_client import JOB, NODE, asking, fails


def dated(*times: int, kind: str = "nodes") -> Callable[[str, str], bytes]:
    """One answer after the other, each as of slurmctld's time."""
    left = list(times)
    return lambda *_: response(
        {kind: [], "last_update": {"set": True, "infinite": False, "number": left.pop(0)}}
    )


async def test_an_old_answer_that_comes_again_is_unknown() -> None:
    async with asking(dated(100, 200, 100, 200)) as (client, _):
        await client.nodes()
        await client.nodes()
        with pytest.raises(SlurmUnknown, match="100 s older than an earlier one"):
            await client.nodes()
        await client.nodes()


async def test_two_answers_that_overtake_each_other_are_both_taken() -> None:
    """Only an answer that was there before the question was asked makes an older one late."""
    asked, first = asyncio.Event(), asyncio.Event()

    class Slow(SlurmrestdClient):
        async def _exchange(self, *request: Any) -> tuple[int, bytes]:
            answer = await super()._exchange(*request)
            if b"100" in answer[1]:
                asked.set()
                await first.wait()
            return answer

    async def token() -> str:
        return "token-1"

    async with serving(dated(100, 200)) as server:
        client = Slow(server.endpoint, token=token, version=42)
        early = asyncio.create_task(client.nodes())
        await asked.wait()
        await client.nodes()
        first.set()
        assert await early == ()


async def test_a_node_that_is_there_twice_is_no_answer() -> None:
    busy = {**NODE, "state": ["ALLOCATED"]}
    await fails(response({"nodes": [busy, NODE]}), SlurmUnknown)


@pytest.mark.parametrize("nodes", ["w-[0-99999999]", "w-[x]", "w-[0"])
async def test_a_job_whose_nodes_cannot_be_read_is_no_answer(nodes: str) -> None:
    """It could be on any of them."""
    await fails(response({"jobs": [{**JOB, "nodes": nodes}]}), SlurmUnknown, SlurmrestdClient.jobs)
