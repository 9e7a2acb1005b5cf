"""What happens to every request: an id, a bound on its body, a line in the log, a count.

Pure ASGI, because followed logs and watches are streams of days, and a middleware that wraps responses would
hold them in memory.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

import structlog

from redbox.http.problems import TooLarge, problem_response
from redbox.request_id import request_id

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = structlog.get_logger(__name__)
ID_KEY = "redbox.request_id"
STAGES_IN = re.compile(r"PUT /v1/jobs/[^/]+/files/").match
"""Files that are staged in have no limit but their disk's: they are never held in memory."""


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
        identifier = scope[ID_KEY] = secrets.token_hex(8)
        token = request_id.set(identifier)
        answer = _Answer(send, identifier)
        started = time.monotonic()
        try:
            await self._bounded(scope, receive, answer)
        finally:
            self._done(scope, answer.status, time.monotonic() - started)
            request_id.reset(token)

    async def _bounded(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        limit = None if STAGES_IN(scope["method"] + " " + scope["path"]) else self._body_limit
        if limit is not None and _announced(scope) > limit:
            refusal = problem_response(_too_large(limit), scope[ID_KEY])
            await refusal(scope, receive, answer)
            return
        await self._app(scope, receive if limit is None else _at_most(limit, receive), answer)

    def _done(self, scope: Scope, status: int, took_s: float) -> None:
        """Count it; 0 is a request whose defect is answered further out, as 500."""
        status = status or HTTPStatus.INTERNAL_SERVER_ERROR
        route = getattr(scope.get("route"), "path", "unmatched")
        self._counter.request_done(scope["method"], route, status, took_s)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.warning(
                "request", method=scope["method"], route=route, status=int(status), took_s=round(took_s, 4)
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


def id_of(scope: Scope) -> str:
    """The request's id, also where the context in which it was seen is left already."""
    return str(scope.get(ID_KEY, "-"))


def _announced(scope: Scope) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the request is larger than {limit} bytes, which is limits.body_bytes of this red-box: "
        "stage large data as files"
    )


def _at_most(limit: int, receive: Receive) -> Receive:
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise _too_large(limit)
        return message

    return receive_some
