"""What happens to every request: an id, bounds on its body, a line in the log, a count.

Pure ASGI, because followed logs and watches are streams of days, and a middleware that wraps responses would
hold them in memory.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

import structlog

from redbox.http.answers.problems import TooLarge, TooSlow, problem_response
from redbox.http.middleware.body_budget import BodyBudget
from redbox.observability.request_id import request_id

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = structlog.get_logger(__name__)
ID_KEY = "redbox.observability.request_id"
STAGES_IN = re.compile(r"PUT /v1/jobs/[^/]+/files/").match
"""Files that are staged in have no limit but their disk's: they are never held in memory."""
GRACE_S = 30.0
SLOWEST = 65_536  # bytes a second
"""A body is waited for so long in all, and a second more for each so many bytes that it already has."""


class RequestCounter(Protocol):
    """Where finished requests are counted."""

    def request_done(self, method: str, route: str, status: int, took_s: float) -> None:
        """One more request is answered."""
        ...


class Seen:
    """Gives each request its id, refuses bodies that are too large, and counts the answer."""

    def __init__(self, app: App, *, counter: RequestCounter, body_limit: int, budget: BodyBudget) -> None:
        self._app = app
        self._counter = counter
        self._body_limit = body_limit
        self._budget = budget

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
        if limit is None:
            await self._app(scope, _Body(receive), answer)
            return
        body = _HeldBody(receive, limit, self._budget, scope)
        try:
            await self._app(scope, body, answer)
        finally:
            body.let_go()

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


class _Body:
    """Passes a request's body on, as long as it is not too slow.

    What counts is the time that its sender is waited for, not what is done meanwhile with what came.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._taken = 0
        self._waited_s = 0.0
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:  # what comes next is that the caller has left, whenever that may be
            return await self._receive()
        began, may_take_s = time.monotonic(), GRACE_S + self._taken / SLOWEST
        try:
            async with asyncio.timeout(may_take_s - self._waited_s):
                message = await self._receive()
        except TimeoutError:
            raise TooSlow(
                f"only {self._taken} bytes of the request's body came in {may_take_s:.0f} s: send it faster"
            ) from None
        self._waited_s += time.monotonic() - began
        self._take(len(message.get("body", b"")))
        self._is_whole = not message.get("more_body", False)
        return message

    def _take(self, count: int) -> None:
        self._taken += count


class _HeldBody(_Body):
    """One that is held whole by whoever reads it: neither too large, nor one of too many."""

    def __init__(self, receive: Receive, limit: int, budget: BodyBudget, scope: Scope) -> None:
        super().__init__(receive)
        self._limit = limit
        self._budget = budget
        self._scope = scope
        self._caller = ""
        self._held = 0

    def _take(self, count: int) -> None:
        super()._take(count)
        if self._taken > self._limit:
            raise _too_large(self._limit)
        if not count:
            return
        self._caller = self._caller or self._scope["state"]["caller"].name  # who is known before it is read
        self._budget.take(self._caller, count)
        self._held += count

    def let_go(self) -> None:
        """The request is answered."""
        if self._held:
            self._budget.give_back(self._caller, self._held)
            self._held = 0
