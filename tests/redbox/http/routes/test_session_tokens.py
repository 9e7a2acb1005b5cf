"""A session outlives its first token by newer ones of the same caller, and by no others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from redbox_api.client import RedboxClient
from redbox_api.sessions import client as sessions_client
from redbox_api.sessions.client import JobSession, SessionData, open_exec
from redbox_api.sessions.forward import open_forward
from redbox_api.sessions.parts import ExecRequest, SessionChannel
from tests.redbox.callers.factories import claims, token
from tests.redbox.http.harness import Stand, eventually
from tests.redbox.http.routes.harness import collect


def token_that_lives(seconds: float) -> str:
    return token(payload=claims(now=time.time(), lives_s=seconds))


async def outlive(stand: Stand, first: str) -> None:
    """Let the first token expire, once the newer one was sent, and check the session anew."""
    streams = stand.services.reauthorization._streams
    await eventually(lambda: any(stream.connection is not stream.opened_by for stream in streams))
    stand.callers_clock.ahead_s = 1800
    async with stand.by_token(first) as http:
        assert (await http.get("/v1/whoami")).status_code == 401
    for stream in streams:
        stream.due = 0
    await stand.services.reauthorization.check_due()


@asynccontextmanager
async def client_by_tokens(stand: Stand, *sources: str) -> AsyncIterator[RedboxClient]:
    """Of a service account that has a running job; it has these tokens, one after the other."""
    left = list(sources)

    async def current() -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    async with stand.by_token(sources[0]) as http:
        body = {"batch": "#!/bin/sh\ntrue\n", "workingDirectory": str(stand.home)}
        stand.slurm.start((await http.put("/v1/jobs/k1", json=body)).json()["jobID"])
        async with asyncio.timeout(60):
            while (await http.get("/v1/jobs/k1")).json()["phase"] != "Running":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    async with RedboxClient(stand.endpoint, token=current, ca_bundle=stand.authority) as client:
        left[:0] = [sources[0]]  # for the request; and what the session has sent
        yield client


@asynccontextmanager
async def session_by_tokens(stand: Stand, *sources: str) -> AsyncIterator[JobSession]:
    """`cat` in that job."""
    async with (
        client_by_tokens(stand, *sources) as client,
        open_exec(client, "k1", ExecRequest(command=("cat",))) as session,
    ):
        yield session


async def test_a_session_outlives_its_first_token_by_a_newer_one(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_client, "RENEW_S", 0.2)
    first, newer = token_that_lives(600), token_that_lives(3600)
    async with session_by_tokens(stand, first, newer) as session:
        await outlive(stand, first)
        await session.send(b"still here")
        assert await session.receive() == SessionData(SessionChannel.STDOUT, b"still here")


async def test_a_forward_outlives_its_first_token_by_a_newer_one(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_client, "RENEW_S", 0.2)
    first, newer = token_that_lives(600), token_that_lives(3600)
    async with client_by_tokens(stand, first, newer) as client, open_forward(client, "k1") as forward:
        await outlive(stand, first)
        _, _, status = await collect(await forward.connect(1))
    assert status.reason == "PortRefused"


async def test_without_a_newer_token_a_session_ends_with_its_own_and_the_audit_says_so(stand: Stand) -> None:
    async with session_by_tokens(stand, token_that_lives(600)) as session:
        await session.send(b"it runs")
        await session.receive()
        stand.callers_clock.ahead_s = 1800
        _, _, status = await collect(session)
    assert status.reason == "NotAuthorized"
    assert "NotAuthorized" in stand.audited[-1].detail


async def test_without_a_newer_token_a_forward_ends_with_its_own(stand: Stand) -> None:
    async with (
        client_by_tokens(stand, token_that_lives(600)) as client,
        open_forward(client, "k1") as forward,
    ):
        stand.callers_clock.ahead_s = 1800
        await eventually(lambda: forward.failure is not None)
        assert forward.failure is not None
        assert forward.failure.reason == "NotAuthorized"


@pytest.mark.parametrize("foreign", ["rbt_no_token", token(payload=claims(account="other"))])
async def test_a_token_that_is_not_the_callers_ends_the_session(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    monkeypatch.setattr(sessions_client, "RENEW_S", 0.2)
    async with session_by_tokens(stand, token_that_lives(3600), foreign) as session:
        _, _, status = await collect(session)
    assert status.reason == "NotAuthorized"


async def test_tokens_in_quick_succession_end_the_session(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_client, "RENEW_S", 0.2)
    tokens = [token_that_lives(3600 - extra) for extra in range(3)]
    async with session_by_tokens(stand, *tokens) as session:
        _, _, status = await collect(session)
    assert status.reason == "Invalid"
