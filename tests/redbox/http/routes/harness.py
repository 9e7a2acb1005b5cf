"""Sessions of tests: a running job, a command or a server in it, and a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError
from redbox_api.sessions.client import JobSession, SessionData, open_exec
from redbox_api.sessions.forward import PortConnection
from redbox_api.sessions.parts import ExecRequest, SessionStatus
from tests.redbox.http.harness import Stand


async def running(stand: Stand, key: str = "k1", **request: Any) -> str:
    job_id = await stand.submitted(key, **request)
    stand.slurm.start(job_id)
    await stand.until(key, lambda job: job["phase"] == "Running")
    return job_id


async def collect(session: JobSession | PortConnection) -> tuple[bytes, bytes, SessionStatus]:
    outputs = {1: b"", 2: b""}
    async with asyncio.timeout(60):
        while isinstance(event := await session.receive(), SessionData):
            outputs[event.channel] += event.data
    return outputs[1], outputs[2], event


async def run(client: RedboxClient, *command: str, **options: Any) -> tuple[bytes, bytes, SessionStatus]:
    request = ExecRequest(command=command, **{"stdin": False, **options})
    async with open_exec(client, "k1", request) as session:
        return await collect(session)


async def refusal(client: RedboxClient, key: str = "k1") -> RedboxError:
    with pytest.raises(RedboxError) as caught:
        async with open_exec(client, key, ExecRequest(command=("true",))):
            pass
    return caught.value


@asynccontextmanager
async def serving(client: RedboxClient, program: str) -> AsyncIterator[int]:
    """A server in the job, as its user and with its variable: its port."""
    job = await client.get_job("k1")
    request = ExecRequest(
        command=("/usr/bin/env", f"SLURM_JOB_ID={job.job_id}", "/usr/bin/python3", "-c", program)
    )
    async with open_exec(client, "k1", request) as session:
        event = await session.receive()
        assert isinstance(event, SessionData), event
        yield int(event.data)
