"""A request that is left when red-box stops: uvicorn cancels it, and logs a traceback of what it raises."""

from __future__ import annotations

import asyncio
import json

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from redbox.callers.connection_limits import ConnectionLimiter
from redbox.http.metrics import ServerMetrics
from redbox.http.middleware.caller_budget import bodies_budget
from redbox.http.middleware.request_middleware import RequestMiddleware
from redbox.server.listeners import WEBSOCKETS, Listener, bound_port


@pytest.mark.parametrize("begins", [False, True])
async def test_what_is_left_at_a_stop_is_answered_or_broken_without_a_traceback(
    caplog: pytest.LogCaptureFixture, *, begins: bool
) -> None:
    has_begun = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        has_begun.set()
        await asyncio.Event().wait()

    middleware = RequestMiddleware(app, counter=ServerMetrics(), body_limit=1, budget=bodies_budget(1))
    bound = bound_port("127.0.0.1", 0)
    port = bound.getsockname()[1]
    config = uvicorn.Config(
        middleware, log_config=None, lifespan="off", timeout_graceful_shutdown=0, **WEBSOCKETS
    )
    listener = Listener(config, bound, ConnectionLimiter())
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(listener.listen())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await has_begun.wait()
        listener.should_exit = True
        try:
            received = await reader.read()
        except ConnectionResetError:
            received = b""
        writer.close()
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if "ASGI" in record.message]
    if begins:
        assert not received.endswith(b"0\r\n\r\n")
    else:
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert json.loads(body)["detail"] == "red-box stops, and is usually restarted"
