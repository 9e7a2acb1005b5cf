"""A session outlives its first token by newer ones of the same caller, and by no others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection

from redbox.core.domain import Caller
from redbox.observability.job_audit import AuditEntry
from redbox_api.client import RedboxClient
from redbox_api.connections import upgrade_header
from redbox_api.sessions import client as sessions_client
from redbox_api.sessions.client import JobSession, SessionData, open_exec
from redbox_api.sessions.forward import open_forward
from redbox_api.sessions.parts import ExecRequest, SessionChannel
from redbox_shared.wire import STREAM_HEADER
from tests.redbox.callers.factories import claims, token
from tests.redbox.http.harness import Stand, eventually, problem
from tests.redbox.http.routes.harness import collect, running

MORE_THAN_BUFFERS_HOLD = 50_000_000


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


@pytest.fixture
def renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions look often for a newer token."""
    monkeypatch.setattr(sessions_client, "RENEW_S", 0.2)


@asynccontextmanager
async def client_by_tokens(stand: Stand, *sources: str) -> AsyncIterator[RedboxClient]:
    """Of a service account that has a running job; it has these tokens, one after the other."""
    left = list(sources)

    async def current() -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    async with client_by(stand, current, sources[0]) as client:
        left[:0] = [sources[0]]  # for the request; and what the session has sent
        yield client


@asynccontextmanager
async def client_by(
    stand: Stand, current: Callable[[], Awaitable[str]], first: str
) -> AsyncIterator[RedboxClient]:
    """Of a service account that has a running job, whose token is `first`."""
    async with stand.by_token(first) as http:
        body = {"batch": "#!/bin/sh\ntrue\n", "workingDirectory": str(stand.home)}
        stand.slurm.start((await http.put("/v1/jobs/k1", json=body)).json()["jobID"])
        async with asyncio.timeout(60):
            while (await http.get("/v1/jobs/k1")).json()["phase"] != "Running":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    async with RedboxClient(stand.endpoint, token=current, ca_bundle=stand.authority) as client:
        yield client


@asynccontextmanager
async def session_by_tokens(stand: Stand, *sources: str) -> AsyncIterator[JobSession]:
    """`cat` in that job."""
    async with (
        client_by_tokens(stand, *sources) as client,
        open_exec(client, "k1", ExecRequest(command=("cat",))) as session,
    ):
        yield session


def stream_of(session: JobSession) -> str:
    return upgrade_header(session._socket.socket, STREAM_HEADER)


async def renewal(stand: Stand, bearer: str, stream: str) -> httpx.Response:
    async with stand.by_token(bearer) as http:
        return await http.post(f"/v1/streams/{stream}/renew")


async def goes_on(session: JobSession) -> bool:
    await session.send(b"still here")
    return await session.receive() == SessionData(SessionChannel.STDOUT, b"still here")


@pytest.mark.usefixtures("renewed")
async def test_a_session_outlives_its_first_token_by_a_newer_one(stand: Stand) -> None:
    first, newer = token_that_lives(600), token_that_lives(3600)
    async with session_by_tokens(stand, first, newer) as session:
        await outlive(stand, first)
        assert await goes_on(session)


async def test_a_session_whose_command_reads_nothing_outlives_its_first_token(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_client, "RENEW_S", 0.2)
    tokens = [first := token_that_lives(600)]
    go = stand.home / "go"
    waits = f"until [ -e {go} ]; do sleep 0.1; done; echo still here"

    async def newest() -> str:
        return tokens[-1]

    request = ExecRequest(command=("/bin/sh", "-c", waits))
    async with client_by(stand, newest, first) as client, open_exec(client, "k1", request) as session:
        flood = asyncio.create_task(session.send(bytes(MORE_THAN_BUFFERS_HOLD)))
        socket: Any = session._socket.socket
        await eventually(lambda: socket._conn.transport.get_write_buffer_size() > 0)
        await asyncio.sleep(0.5)  # until red-box reads no more
        tokens.append(token_that_lives(3600))
        await outlive(stand, first)
        go.touch()
        stdout, _, status = await collect(session)
        flood.cancel()
    assert (stdout, status.exit_code) == (b"still here\n", 0)


@pytest.mark.usefixtures("renewed")
async def test_a_forward_outlives_its_first_token_by_a_newer_one(stand: Stand) -> None:
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


async def test_an_older_token_does_not_shorten_a_session(stand: Stand) -> None:
    first, newer = token_that_lives(600), token_that_lives(3600)
    async with session_by_tokens(stand, first) as session:
        for bearer in (newer, first):
            assert (await renewal(stand, bearer, stream_of(session))).status_code == 204
        await outlive(stand, first)
        assert await goes_on(session)


async def test_a_check_that_is_under_way_leaves_a_renewal_in_force(stand: Stand) -> None:
    """It finds the older token in order, and then says nothing of when the newer one ends."""
    first, newer = token_that_lives(600), token_that_lives(3600)
    async with session_by_tokens(stand, first) as session:
        streams = stand.services.reauthorization
        (stream,) = streams._streams
        authenticate = stand.services.authenticator.authenticate

        async def slowly(connection: HTTPConnection) -> Caller:
            caller = await authenticate(connection)
            stand.services.authenticator.authenticate = authenticate  # type: ignore[method-assign]
            assert (await renewal(stand, newer, stream_of(session))).status_code == 204
            return caller

        stand.services.authenticator.authenticate = slowly  # type: ignore[method-assign]
        await streams._check(stream)
        assert stream.caller.until > time.time() + 1800


@pytest.mark.parametrize("stranger", ["alice", token(payload=claims(now=time.time(), account="other"))])
async def test_a_strangers_token_renews_nothing_and_does_no_harm(stand: Stand, stranger: str) -> None:
    async with session_by_tokens(stand, token_that_lives(3600)) as session:
        answer = await renewal(stand, stranger, stream_of(session))
        unknown = await renewal(stand, stranger, "unknown")
        assert answer.status_code == unknown.status_code == 404
        assert problem(answer)["detail"] == problem(unknown)["detail"]
        assert await goes_on(session)


async def test_a_token_that_is_not_valid_does_no_harm_and_the_audit_has_no_id(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited: list[AuditEntry] = []
    monkeypatch.setattr(stand.services.rejections, "_write", audited.append)
    async with session_by_tokens(stand, token_that_lives(3600)) as session:
        assert (await renewal(stand, "rbt_no_token", stream_of(session))).status_code == 401
        assert await goes_on(session)
    assert audited[-1].detail.startswith("POST /v1/streams/... from 127.0.0.1: ")


async def test_a_session_that_has_ended_is_renewed_no_more(stand: Stand) -> None:
    async with session_by_tokens(stand, own := token_that_lives(3600)) as session:
        stream = stream_of(session)
        assert (await renewal(stand, own, stream)).status_code == 204
    await eventually(lambda: not stand.services.reauthorization._streams)
    assert (await renewal(stand, own, stream)).status_code == 404


async def test_a_session_without_a_token_has_nothing_to_renew(stand: Stand) -> None:
    await running(stand)
    request = ExecRequest(command=("cat",))
    async with (
        stand.client() as client,
        open_exec(client, "k1", request) as session,
        stand.at_socket() as http,
    ):
        path = f"/v1/streams/{stream_of(session)}/renew"
        answer = await http.post(path)
        assert (answer.status_code, "has no token" in problem(answer)["detail"]) == (422, True)
        answer = await http.post(path, headers={"authorization": f"Bearer {stand.tokens['alice']}"})
        assert answer.status_code == 404
        assert await goes_on(session)


async def test_a_token_may_come_by_the_unix_socket(stand: Stand) -> None:
    first, newer = token_that_lives(600), token_that_lives(3600)
    async with session_by_tokens(stand, first) as session, stand.at_socket() as http:
        path = f"/v1/streams/{stream_of(session)}/renew"
        assert (await http.post(path, headers={"authorization": f"Bearer {newer}"})).status_code == 204
        await outlive(stand, first)
        assert await goes_on(session)
