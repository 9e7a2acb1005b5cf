"""The client of red-box's sessions: what opens, what is refused, and what is not red-box."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from redbox_api.client import RedboxClient
from redbox_api.errors import Busy, NotAllowed, Unreachable
from redbox_api.requests.sender import Deadlines, TokenSource
from redbox_api.sessions import client as sessions_client
from redbox_api.sessions.client import (
    CONNECTION_LOST,
    SessionData,
    open_session,
)
from redbox_api.sessions.parts import (
    ExecRequest,
    SessionChannel,
    SessionStatus,
    TerminalSize,
)
from redbox_shared.backoff import Backoff
from redbox_shared.wire import EXEC_PROTOCOL, STREAM_HEADER

SUCCESS = b'{"status": "Success"}'
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def redbox(
    handler: Handler, deadlines: Deadlines | None = None, token: TokenSource | None = None
) -> AsyncIterator[RedboxClient]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with RedboxClient(endpoint, token=token, deadlines=deadlines) as client:
            yield client
    finally:
        await runner.cleanup()


def refusing(status: int, **headers: str) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        problem = {"type": "https://redbox.dev/problems/x", "title": "No", "status": status, "detail": "why"}
        return web.json_response(problem, status=status, headers=headers)

    return answer


async def websocket(request: web.Request, protocol: str) -> web.WebSocketResponse:
    opened = web.WebSocketResponse(protocols=(protocol,))
    await opened.prepare(request)
    return opened


async def test_a_session_speaks_the_channels_of_the_contract() -> None:
    received: list[str | bytes] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        opened = await websocket(request, EXEC_PROTOCOL)
        received.extend([(await opened.receive()).data for _ in range(4)])
        for message in (b"\1out", b"\2err", b"\x63unknown", b"\xff\1", b"\3" + SUCCESS):
            await opened.send_bytes(message)
        return opened

    async with redbox(serve) as client:
        session = await open_session(client, "a/b")
        await session.start(ExecRequest(command=("sh",), tty=True, size=TerminalSize()))
        await session.send(b"in")
        await session.resize(TerminalSize(columns=100, rows=30))
        await session.close_input()
        got = [await session.receive() for _ in range(4)]
        assert got == [
            SessionData(SessionChannel.STDOUT, b"out"),
            SessionData(SessionChannel.STDERR, b"err"),
            SessionData(SessionChannel.STDOUT, b""),
            SessionStatus(status="Success"),
        ]
        end = await session.receive()
        assert isinstance(end, SessionStatus)
        assert (end.reason, "without a status" in end.message) == (CONNECTION_LOST, True)
        await session.close()
    assert json.loads(received[0])["size"] == {"columns": 80, "rows": 24}
    assert received[1:] == [b"\0in", b'\4{"Width":100,"Height":30}', b"\xff\0"]


class RenewingRedbox:
    """It gives its sessions an id, and answers their renewals with these statuses; 0: not in time."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.messages: list[object] = []
        self.renewals: list[tuple[str, str]] = []
        self.is_renewed = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return await self._renew(request)
        opened = web.WebSocketResponse(protocols=(EXEC_PROTOCOL,))
        opened.headers[STREAM_HEADER] = "an/id"
        await opened.prepare(request)
        async for message in opened:
            self.messages.append(message.data)
        return opened

    async def _renew(self, request: web.Request) -> web.StreamResponse:
        self.renewals.append((request.raw_path, request.headers["authorization"]))
        status = self._statuses.pop(0)
        if not status:
            await asyncio.Future()
        if status >= 400:
            return await refusing(status)(request)
        self.is_renewed.set()
        return web.Response(status=status)


def renewing_soon(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens of a client that looks for a newer one at once; the last one counts."""
    monkeypatch.setattr(sessions_client, "RENEW_S", 0.05)
    monkeypatch.setattr(sessions_client, "RENEW_WITHIN_S", 0.1)
    monkeypatch.setattr(sessions_client, "RENEW_BACKOFF", Backoff(0.01, 0.01))
    return ["first"]


@pytest.mark.timeout(60)
async def test_a_renewal_that_fails_is_repeated_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = renewing_soon(monkeypatch)
    server = RenewingRedbox(503, 0, 401, 204)

    async def newest() -> str:
        return tokens[-1]

    async with redbox(server.serve, token=newest) as client:
        session = await open_session(client, "k")
        tokens.append("newer")
        await server.is_renewed.wait()
        await asyncio.sleep(0.2)  # for one more, which there is not
        assert server.renewals == [("/v1/streams/an%2Fid/renew", "Bearer newer")] * 4
        await session.send(b"in")
        await session.close()
    assert server.messages == [b"\0in"]


@pytest.mark.timeout(60)
async def test_a_refusal_is_raised_as_for_any_request() -> None:
    async with redbox(refusing(403)) as client:
        with pytest.raises(NotAllowed, match="why"):
            await open_session(client, "k")


async def test_a_refusal_says_when_to_retry() -> None:
    async with redbox(refusing(503, **{"Retry-After": "7"})) as client:
        with pytest.raises(Busy) as raised:
            await open_session(client, "k")
        assert raised.value.retry_after == 7


async def test_an_upgrade_to_another_protocol_is_no_session() -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        return await websocket(request, "chat")

    async with redbox(serve) as client:
        with pytest.raises(Unreachable, match=EXEC_PROTOCOL):
            await open_session(client, "k")


@pytest.mark.parametrize("body", ["x" * 2_000_000, "<html>"])
async def test_a_page_of_a_proxy_is_no_refusal_of_redbox(body: str) -> None:
    async def serve(_: web.Request) -> web.Response:
        return web.Response(status=403, text=body)

    async with redbox(serve) as client:
        with pytest.raises(Unreachable):
            await open_session(client, "k")


async def test_a_redbox_that_is_silent_is_unreachable() -> None:
    async def serve(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with redbox(serve, Deadlines(answer=0.05)) as client:
        with pytest.raises(Unreachable, match="no answer"):
            await open_session(client, "k")


@pytest.mark.parametrize(("text", "code"), [("3", 3), ("\u00b2", None), ("\u0663", None), ("1" * 99, None)])
def test_an_exit_code_has_the_digits_of_one(text: str, code: int | None) -> None:
    causes = [{"reason": "ExitCode", "message": text}]
    assert SessionStatus(status="Failure", details={"causes": causes}).exit_code == code
