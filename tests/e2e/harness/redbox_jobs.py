"""What callers of red-box do over and over: ask until a job is so, and read a log to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from redbox_api.client import RedboxClient
from redbox_api.errors import Busy, Unreachable
from redbox_api.models import FINAL_PHASES, Job, JobRequest, Phase
from tests.e2e.harness.waiting import pause_s

PATIENCE_S = 90.0
PAUSE_S = 0.2
NOTHING_MORE = 204


def new_key() -> str:
    return str(uuid4())


def script(*lines: str, **fields: Any) -> JobRequest:
    """A job that is a script of sh."""
    return JobRequest.model_validate({"batch": "\n".join(["#!/bin/sh", *lines, ""]), **fields})


async def submit(client: RedboxClient, *lines: str, **fields: Any) -> str:
    """Submit a script under a key of its own."""
    key = new_key()
    await client.put_job(key, script(*lines, **fields))
    return key


async def until(
    client: RedboxClient, key: str, what: Callable[[Job], bool], *, within_s: float = PATIENCE_S
) -> Job:
    """The job, as soon as it is so."""
    began = time.monotonic()
    while not what(job := await client.get_job(key)):
        waited_s = time.monotonic() - began
        assert waited_s < within_s, f"it did not come to that in {within_s:.0f} s: {job}"
        await asyncio.sleep(pause_s(waited_s))
    return job


async def ended(client: RedboxClient, key: str, *, within_s: float = PATIENCE_S) -> Job:
    """The job, as soon as it is final."""
    return await until(client, key, lambda job: job.phase in FINAL_PHASES, within_s=within_s)


async def started(client: RedboxClient, key: str) -> Job:
    return await until(client, key, lambda job: job.phase is Phase.RUNNING)


@dataclass
class Reader:
    """Reads a log as a companion does: from where it stands, again and again, until there is nothing more."""

    client: RedboxClient
    key: str
    stream: str = "stdout"
    task: int | None = None
    attempt: int = 1
    generation: str = ""
    content: bytearray = field(default_factory=bytearray)  # of this generation
    copied: bytearray = field(default_factory=bytearray)  # of all of them: what a companion has written

    async def whole(self) -> bytes:
        """All of it; the answers may break off, and the server may be away in between."""
        while True:
            try:
                if await self.more():
                    return bytes(self.content)
            except (Unreachable, Busy):
                await asyncio.sleep(PAUSE_S)

    async def until(self, content: bytes) -> None:
        """Wait for whoever reads it to have read this."""
        give_up_at = time.monotonic() + PATIENCE_S
        while bytes(self.content) != content:
            assert time.monotonic() < give_up_at, f"read was {bytes(self.content[-1000:])!r}"
            await asyncio.sleep(PAUSE_S)

    async def until_begins(self, content: bytes) -> None:
        """Read until it begins so, and no further."""
        query = {"follow": "true", "limit": len(content)}
        async with self.client.stream("GET", f"/v1/jobs/{self.key}/logs/{self.stream}", query) as answer:
            assert await answer.read() == content

    async def more(self) -> bool:
        """Read one answer to its end; True when the job is final and no byte is left."""
        query: dict[str, Any] = {"follow": "true", "offset": len(self.content)}
        query |= {"generation": self.generation} if self.generation else {}
        query |= {} if self.task is None else {"task": self.task}
        query |= {} if self.attempt == 1 else {"attempt": self.attempt}
        path = f"/v1/jobs/{self.key}/logs/{self.stream}"
        async with self.client.stream("GET", path, query) as answer:
            self._begin(answer.headers["redbox-generation"], int(answer.headers["redbox-offset"]))
            if answer.status == NOTHING_MORE:
                return True
            async for piece in answer.content.iter_any():
                self.content += piece
                self.copied += piece
        return False

    def _begin(self, generation: str, offset: int) -> None:
        if generation != self.generation:
            self.generation = generation
            self.content.clear()
        assert offset == len(self.content), f"it goes on at {offset}, and {len(self.content)} bytes were read"


async def log_of(client: RedboxClient, key: str, stream: str = "stdout", *, task: int | None = None) -> str:
    """A whole log, followed to its end."""
    async with asyncio.timeout(PATIENCE_S):
        return (await Reader(client, key, stream, task).whole()).decode()
