"""What the code touches of libraries without their promise: a release that lacks it fails here, by its name.

`pyproject.toml` admits the releases that have it.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import base_events, sslproto

import aiohttp
import pytest
from aiohttp import web_protocol
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import Server, ServerState


def assigned(function: object) -> str:
    """The source, which names the attributes that exist only once it ran."""
    return inspect.getsource(function)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "method",
    [
        "connection_made", "connection_lost", "data_received", "on_message_begin", "on_header",
        "on_headers_complete", "on_message_complete", "on_response_complete", "send_400_response",
    ],
)  # fmt: skip
def test_uvicorns_http_protocol_calls_what_we_extend(method: str) -> None:
    assert callable(getattr(HttpToolsProtocol, method))


@pytest.mark.parametrize(
    "method",
    [
        "connection_made", "connection_lost", "data_received", "receive", "send", "send_keepalive_ping",
        "handle_ping", "handle_cont", "shutdown", "stop_keepalive",
    ],
)  # fmt: skip
def test_uvicorns_websocket_protocol_calls_what_we_extend(method: str) -> None:
    assert callable(getattr(WebSocketsSansIOProtocol, method))


def test_uvicorns_protocols_have_the_state_that_we_read() -> None:
    http, websocket = HttpToolsProtocol.__init__, WebSocketsSansIOProtocol.__init__
    for name in ("app_state", "loop", "transport", "pipeline"):
        assert f"self.{name}" in assigned(http)
    for name in (
        *("app_state", "loop", "transport", "conn", "writable", "queue", "read_paused"),
        *("close_timeout", "close_sent", "handshake_complete", "frames"),
    ):
        assert f"self.{name}" in assigned(WebSocketsSansIOProtocol), name
    for protocol in (http, websocket):
        assert list(inspect.signature(protocol).parameters)[1:4] == ["config", "server_state", "app_state"]


def test_uvicorns_server_leaves_listening_to_us() -> None:
    assert list(inspect.signature(Server.startup).parameters) == ["self", "sockets"]
    assert list(inspect.signature(Server.shutdown).parameters) == ["self", "sockets"]
    assert "ssl_context_factory" in inspect.signature(Config).parameters
    assert ServerState().connections == set()
    assert hasattr(Server, "capture_signals")


async def test_aiohttp_has_the_answer_to_an_upgrade_and_a_factory_of_protocols() -> None:
    assert "self._response = response" in assigned(aiohttp.ClientWebSocketResponse.__init__)
    async with aiohttp.TCPConnector() as connector:
        assert callable(connector._factory)


def test_aiohttps_server_gives_a_connection_to_another_parser() -> None:
    assert list(inspect.signature(web_protocol.RequestHandler.set_parser).parameters)[:2] == [
        "self",
        "parser",
    ]


def test_asyncio_has_what_the_fair_loop_and_the_shared_buffers_use() -> None:
    loop = asyncio.new_event_loop()
    try:
        handle = loop.call_soon(int)
        assert callable(handle._run)
        assert handle._context is not None  # type: ignore[attr-defined]
    finally:
        loop.close()
    for name in ("_add_callback", "_run_once"):
        assert hasattr(base_events.BaseEventLoop, name)
    assert isinstance(sslproto.SSLProtocol, type)
