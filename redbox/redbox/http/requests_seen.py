"""What happens to every request: an id, a bound on its body, a line in the log, a count.

Pure ASGI, because followed logs and watches are streams of days, and a middleware that wraps responses would
hold them in memory.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Protocol

import structlog

from redbox.http.problems import TooLarge

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

request_id: ContextVar[str] = ContextVar("request_id", default="-")
log = structlog.get_logger(__name__)


class RequestCounter(Protocol):
    """Where finished requests are counted."""

    def request_done(self, method: str, route: str, status: int, took_s: float) -> None:
        """One more request is answered."""
        ...


class Seen:
    """Gives each request its id, refuses bodies that are too large, and counts the answer."""

    def __init__(self, app: App, *, counter: RequestCounter, body_limit: int) -> None:
        self._app = app
        self._counter = counter
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        identifier = secrets.token_hex(8)
        token = request_id.set(identifier)
        answer = _Answer(send, identifier)
        started = time.monotonic()
        try:
            await self._app(scope, _bounded(receive, self._limit_of(scope)), answer)
        finally:
            request_id.reset(token)
            self._done(scope, answer.status, time.monotonic() - started)

    def _limit_of(self, scope: Scope) -> int | None:
        """Files that are staged in have a limit of their own, where they are written."""
        return None if scope["method"] == "PUT" and scope["path"].endswith("/files") else self._body_limit

    def _done(self, scope: Scope, status: int, took_s: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        self._counter.request_done(scope["method"], route, status, took_s)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.warning(
                "request", method=scope["method"], route=route, status=status, took_s=round(took_s, 4)
            )


class _Answer:
    """Passes an answer on and remembers its status."""

    def __init__(self, send: Send, identifier: str) -> None:
        self._send = send
        self._identifier = identifier.encode()
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), (b"x-request-id", self._identifier)]
        await self._send(message)


def _bounded(receive: Receive, limit: int | None) -> Receive:
    if limit is None:
        return receive
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise TooLarge(f"the request is larger than {limit} bytes; ask the administrator for limits.body")
        return message

    return receive_some
