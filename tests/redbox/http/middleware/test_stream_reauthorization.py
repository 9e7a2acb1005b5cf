"""Streams end when the request that began them would not be let in any more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.requests import HTTPConnection

from redbox.callers.authenticator import Authenticator
from redbox.callers.errors import TokenFault, Unauthenticated
from redbox.callers.tokens.opaque_tokens import TokenStore
from redbox.core.clock import SystemClock
from redbox.core.domain import Caller, Owner
from redbox.http.middleware.stream_reauthorization import StreamReauthorization
from tests.redbox.callers.factories import claims, token
from tests.redbox.http.harness import Stand, eventually

ENDLESS = ["/v1/jobs/k1/logs/stdout?follow=true", "/v1/jobs?watch=true", "/v1/partitions?watch=true"]
MORE_THAN_BUFFERS_HOLD = 64 << 20


@asynccontextmanager
async def streaming(http: httpx.AsyncClient, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
    async with asyncio.timeout(60), http.stream("GET", path) as answer:
        assert answer.status_code == 200
        yield answer.aiter_raw()


async def drain(pieces: AsyncIterator[bytes]) -> int:
    return sum([len(piece) async for piece in pieces])


def revoke(stand: Stand, holder: str) -> None:
    """As `redbox token revoke` does, in another process."""
    identifier = stand.tokens[holder].split("_")[1]
    TokenStore(stand.directory / "tokens.json", SystemClock()).revoke(identifier)


def change_rules(stand: Stand, user: str) -> None:
    settings = json.loads(stand.settings.read_text())
    settings["mapping"]["rules"][-1]["user"] = user
    stand.settings.write_text(json.dumps(settings))


@pytest.mark.parametrize("path", ENDLESS)
async def test_a_revoked_token_ends_its_streams_cleanly(stand: Stand, path: str) -> None:
    await stand.writing("k1", b"a line\n")
    async with stand.by_token("alice") as http:
        async with streaming(http, path) as pieces:
            assert await anext(pieces)
            revoke(stand, "alice")
            await drain(pieces)
        assert (await http.get(path)).status_code == 401


@pytest.mark.parametrize("path", ENDLESS[1:])
async def test_a_stream_ends_cleanly_with_its_token(stand: Stand, path: str) -> None:
    async with stand.by_token(token(payload=claims(now=time.time()))) as http:
        async with streaming(http, path) as pieces:
            assert await anext(pieces)
            stand.callers_clock.ahead_s = 7200
            await drain(pieces)
        assert (await http.get(path)).status_code == 401


async def test_other_rules_end_the_streams_that_they_change_and_no_others(stand: Stand) -> None:
    _, written = await stand.writing("k1", b"a line\n")
    account = stand.by_token(token(payload=claims(now=time.time())))
    async with account, stand.at_socket() as alice, streaming(alice, ENDLESS[0]) as log:
        assert await anext(log)
        async with streaming(account, "/v1/jobs?watch=true") as changed:
            assert await anext(changed)
            change_rules(stand, "bob")
            await drain(changed)
        assert (await account.get("/v1/whoami")).json()["user"] == "bob"
        with written.open("ab") as file:
            file.write(b"another\n")
        assert await anext(log) == b"another\n"


async def test_a_download_is_let_come_to_its_end_though_its_token_expires(stand: Stand) -> None:
    await stand.writing("k1")
    (stand.home / "big").write_bytes(bytes(MORE_THAN_BUFFERS_HOLD))
    expiring = token(payload=claims(now=time.time()))
    async with stand.by_token(expiring) as http:
        await http.put("/v1/jobs/k2", json={"batch": "#!/bin/sh\n", "workingDirectory": str(stand.home)})
        async with streaming(http, "/v1/jobs/k2/files/big") as pieces:
            begun = len(await anext(pieces))
            stand.callers_clock.ahead_s = 7200
            assert (await http.get("/v1/whoami")).status_code == 401
            for stream in stand.services.reauthorization._streams:
                stream.due = 0
            await stand.services.reauthorization.check_due()
            assert begun + await drain(pieces) == MORE_THAN_BUFFERS_HOLD


async def test_a_download_of_a_revoked_token_breaks_off(stand: Stand) -> None:
    await stand.writing("k1")
    (stand.home / "big").write_bytes(bytes(MORE_THAN_BUFFERS_HOLD))
    async with stand.by_token("alice") as http, streaming(http, "/v1/jobs/k1/files/big") as pieces:
        assert await anext(pieces)
        revoke(stand, "alice")
        await eventually(lambda: not stand.services.streams.held)
        with pytest.raises(httpx.RemoteProtocolError):
            await drain(pieces)


REQUEST = HTTPConnection({"type": "http", "headers": []})
CALLER = Caller("uid:2001", Owner("local", "users", "alice"), frozenset())


class ScriptedAuthenticator(Authenticator):
    """Without keys; its rules change with each look."""

    def __init__(self) -> None:
        """Nothing of the real one's."""

    def rules_in_force(self) -> object:
        return object()


class BrokenAuthenticator(ScriptedAuthenticator):
    """Fails with an unexpected exception."""

    async def authenticate(self, connection: HTTPConnection) -> Caller:  # noqa: ARG002
        raise RuntimeError("can't start new thread")


class SlowAuthenticator(ScriptedAuthenticator):
    """Refuses a request without a token, late; and takes one with a token at once."""

    def __init__(self) -> None:
        self.asked, self.refuses = asyncio.Event(), asyncio.Event()

    async def authenticate(self, connection: HTTPConnection) -> Caller:
        if not connection.headers:
            self.asked.set()
            await self.refuses.wait()
            raise Unauthenticated(TokenFault.EXPIRED, "it has expired")
        return CALLER


async def test_a_refusal_of_the_token_before_does_not_end_a_stream_that_has_a_newer_one() -> None:
    authenticator = SlowAuthenticator()
    reauthorization = StreamReauthorization(authenticator, SystemClock())
    goes_on = False
    async with reauthorization.guard(REQUEST, CALLER, has_end=False, identifier="id"):
        check = asyncio.create_task(reauthorization.check_due())
        await authenticator.asked.wait()
        assert reauthorization.renew("id", CALLER, b"newer")
        authenticator.refuses.set()
        await check
        await asyncio.sleep(0.01)
        goes_on = True
    assert goes_on  # else the block was left at the end of the stream


async def test_a_check_that_fails_unexpectedly_ends_neither_the_stream_nor_the_server() -> None:
    reauthorization = StreamReauthorization(BrokenAuthenticator(), SystemClock())
    goes_on = False
    async with reauthorization.guard(REQUEST, CALLER, has_end=False):
        await reauthorization.check_due()
        await asyncio.sleep(0.01)
        goes_on = True
    assert goes_on


@pytest.mark.parametrize("path", ENDLESS)
async def test_a_stop_ends_streams_cleanly_also_those_that_begin_then(stand: Stand, path: str) -> None:
    """What uvicorn cancels after its grace is a traceback in the log."""
    await stand.writing("k1", b"a line\n")
    async with stand.by_token("alice") as http:
        async with streaming(http, path) as pieces:
            assert await anext(pieces)
            stand.services.reauthorization.end_all()
            await drain(pieces)
        async with streaming(http, path) as pieces:
            await drain(pieces)
