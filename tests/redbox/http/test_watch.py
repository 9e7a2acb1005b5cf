"""Watches: what changed, line by line, resumable, and free for others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from redbox_api.models import Amounts, Partition
from tests.redbox.http.fakes import SCRIPT
from tests.redbox.http.harness import Stand, problem, standing, until_streams_are

Event = dict[str, Any]
NOTHING = Amounts(nodes=0, cpus=0, mem_mb=0)


@asynccontextmanager
async def watching(
    http: httpx.AsyncClient, path: str = "/v1/jobs", **query: str
) -> AsyncIterator[AsyncIterator[Event]]:
    async with http.stream("GET", path, params={"watch": "true", **query}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/x-ndjson"
        yield (json.loads(line) async for line in answer.aiter_lines())


async def first(events: AsyncIterator[Event], kind: str = "job") -> Event:
    async with asyncio.timeout(60):
        while (event := await anext(events))["type"] != kind:
            pass
    return event


async def test_a_change_is_sent_as_it_happens(stand: Stand, alice: httpx.AsyncClient) -> None:
    job_id = await stand.submitted()
    await stand.until("k1", lambda job: job.get("state"))
    since = (await alice.get("/v1/jobs")).json()["revision"]
    async with watching(alice, since=since) as events:
        stand.slurm.start(job_id)
        event = await first(events)
    assert (event["job"]["key"], event["job"]["phase"]) == ("k1", "Running")
    assert event["revision"] == event["job"]["revision"]


async def test_a_resumed_watch_sends_what_was_missed_and_nothing_twice(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    await stand.submitted("k1")
    await stand.until("k1", lambda job: job.get("state"))
    async with watching(alice) as events:
        event = await first(events)
    await stand.submitted("k2")
    async with watching(alice, since=event["revision"]) as events:
        missed = await first(events)
    assert missed["job"]["key"] == "k2"


async def test_bookmarks_come_though_nothing_happens_and_are_where_to_resume(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    await stand.submitted("k1")
    await stand.until("k1", lambda job: job.get("state"))
    async with watching(alice) as events:
        bookmark = await first(events, "bookmark")
    async with watching(alice, since=bookmark["revision"]) as events:
        assert (await anext(events))["type"] == "bookmark"


async def test_a_revision_of_another_journal_is_gone(alice: httpx.AsyncClient) -> None:
    for since in ("0123456789ab.1", "nonsense", "x" * 64):
        answer = await alice.get("/v1/jobs", params={"watch": "true", "since": since})
        assert answer.status_code == 410
        assert "list the jobs" in problem(answer)["detail"]


async def test_nobody_watches_anothers_jobs(
    stand: Stand, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    async with watching(bob) as events:
        await stand.submitted("k1")
        await bob.put("/v1/jobs/k2", json={"batch": SCRIPT})
        assert (await first(events))["job"]["key"] == "k2"
    async with watching(alice) as events:
        assert (await first(events))["job"]["key"] == "k1"


async def test_an_operator_watches_all_with_their_owners(stand: Stand) -> None:
    async with stand.by_token("operator") as operator, watching(operator) as events:
        await stand.submitted("k1")
        owner = (await first(events))["job"]["owner"]
    assert owner == {"cluster": "local", "namespace": "users", "account": "alice"}


async def test_a_reader_watches_partitions_and_resumes(stand: Stand) -> None:
    debug = Partition(name="debug", state="UP", total=NOTHING, free=NOTHING)
    stand.slurm.partitions_now = [debug]
    async with stand.by_token("reader") as reader:
        async with watching(reader, "/v1/partitions") as events:
            event = await first(events, "partition")
            assert event["partition"]["name"] == "debug"
        async with watching(reader, "/v1/partitions", since=event["revision"]) as events:
            assert (await anext(events))["type"] == "bookmark"


async def test_a_revision_of_partitions_that_means_nothing_is_gone(alice: httpx.AsyncClient) -> None:
    for since in ("0123456789ab.1", "nonsense", "x" * 64):
        answer = await alice.get("/v1/partitions", params={"watch": "true", "since": since})
        assert answer.status_code == 410
        assert "list the partitions" in problem(answer)["detail"]


class SilentReader:
    """Asks for a watch and then reads nothing, or as late as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def asks(cls, stand: Stand) -> SilentReader:
        reader, writer = await asyncio.open_unix_connection(str(stand.socket), limit=1)
        writer.write(b"GET /v1/jobs?watch=true HTTP/1.1\r\nhost: redbox\r\n\r\n")
        await writer.drain()
        return cls(reader, writer)

    async def begins(self) -> None:
        """Take one byte, so that the stream has begun; it may be over already."""
        async with asyncio.timeout(60):
            await self.reader.readexactly(1)

    async def rest(self) -> bytes:
        """All that comes until the connection ends."""
        async with asyncio.timeout(60):
            return await self.reader.read()

    async def answer(self) -> bytes:
        """All that comes until the answer ends as it should."""
        received = b""
        async with asyncio.timeout(60):
            while not received.endswith(b"\r\n0\r\n\r\n"):
                received += await self.reader.read(65536)
        return received

    def leaves(self) -> None:
        self.writer.close()


async def fill_table(alice: httpx.AsyncClient) -> None:
    """More to tell of than the buffers between server and reader can hold."""
    long = "/" + "/".join(["d" * 200] * 19)
    for number in range(150):
        answer = await alice.put(f"/v1/jobs/k{number}", json={"batch": SCRIPT, "workingDirectory": long})
        assert answer.status_code == 201


async def test_a_watcher_who_takes_nothing_is_cut_off_and_holds_up_nobody() -> None:
    async with standing(stall_s=0.2) as stand, stand.at_socket() as alice:
        await fill_table(alice)
        silent = await SilentReader.asks(stand)
        await until_streams_are(stand, 1)
        revision = (await alice.get("/v1/jobs", params={"limit": 1})).json()["revision"]
        async with watching(alice, since=revision) as events:
            assert (await first(events, "bookmark"))["type"] == "bookmark"
        await until_streams_are(stand, 0)
        received = await silent.rest()
        assert received.startswith(b"HTTP/1.1 200")
        assert not received.endswith(b"\r\n0\r\n\r\n")  # broken off, not ended
        silent.leaves()


async def test_a_slow_watcher_gets_an_error_and_is_dropped() -> None:
    async with standing(slow_watcher_s=0.01) as stand, stand.at_socket() as alice:
        await fill_table(alice)
        slow = await SilentReader.asks(stand)
        await slow.begins()
        for _ in range(10):
            assert (await alice.get("/v1/jobs")).status_code == 200
        received = await slow.answer()
        assert b'"type":"error"' in received
        assert b"Too slow" in received
        slow.leaves()
