"""Every request gets an id, bounds on its body, and a count in the metrics; a 5xx gets a line in the log.

Pure ASGI, because followed logs and watches are streams of days, and a middleware that wraps responses would
hold them in memory.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Iterator
from http import HTTPStatus

import structlog
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from redbox.callers.peers import connection_in
from redbox.http.answers.problems import (
    ContentTooLargeProblem,
    RequestTimeoutProblem,
    UnavailableProblem,
    problem_response,
)
from redbox.http.metrics import ServerMetrics
from redbox.http.middleware.caller_budget import CallerBudget

log = structlog.get_logger(__name__)
ID_KEY = "redbox.observability.request_id"
is_upload = re.compile(r"PUT /v1/jobs/[^/]+/files/").match
"""Uploads have no limit of size but their disk's: they are never held in memory."""
BODY_GRACE_S = 30.0
MIN_BYTES_PER_S = 65_536
"""A body may keep red-box waiting for the grace period, and a second more for each so many bytes received."""
READ_GRACE_S = 60.0
"""For a client to read what is already sent; and a second more for each MIN_BYTES_PER_S of the rest."""
PIECE = 65_536
STOPS_S = 5.0
"""Within which a stopped red-box is usually back."""
STREAMS = "/v1/streams/"


class RequestMiddleware:
    """Assigns request ids, rejects bodies that are too large or too slow, and counts responses."""

    def __init__(
        self, app: ASGIApp, *, counter: ServerMetrics, body_limit: int, budget: CallerBudget
    ) -> None:
        self._app = app
        self._counter = counter
        self._body_limit = body_limit
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._upgrade(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        identifier = scope[ID_KEY] = secrets.token_hex(8)
        response = _Response(send, scope)
        started = time.monotonic()
        with bound_contextvars(request_id=identifier):
            try:
                await self._handle(scope, receive, response)
            except asyncio.CancelledError:  # uvicorn's only, after its grace: it would log a traceback
                log.warning("request ended: red-box stops", method=scope["method"], path=scope["path"])
                await _end_response(scope, receive, response)
            finally:
                self._record(scope, response.status, time.monotonic() - started)

    async def _upgrade(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sessions: their messages have limits of their own."""
        identifier = scope[ID_KEY] = secrets.token_hex(8)
        response = _Response(send, scope)
        started = time.monotonic()
        with bound_contextvars(request_id=identifier):
            try:
                await self._app(scope, receive, response)
            finally:
                status = response.status or HTTPStatus.INTERNAL_SERVER_ERROR
                self._record({**scope, "method": "GET"}, status, time.monotonic() - started)

    async def _handle(self, scope: Scope, receive: Receive, response: _Response) -> None:
        if is_upload(scope["method"] + " " + scope["path"]):
            await self._app(scope, _TimedBody(receive), response)
        elif _content_length(scope) > self._body_limit:
            problem = problem_response(_too_large(self._body_limit), scope[ID_KEY])
            await problem(scope, receive, response)
        else:
            body = _BudgetedBody(receive, self._body_limit, self._budget, scope)
            try:
                await self._app(scope, body, response)
            finally:
                body.release()

    def _record(self, scope: Scope, status: int, took_s: float) -> None:
        status = status or HTTPStatus.INTERNAL_SERVER_ERROR  # 0: a defect, answered further out
        route = getattr(scope.get("route"), "path", "unmatched")
        self._counter.request_done(scope["method"], route, status, took_s)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.warning(
                "request", method=scope["method"], route=route, status=int(status), took_s=round(took_s, 4)
            )


class _Response:
    """Forwards a response with the request's id, in pieces, and records its status.

    A client that does not read it is disconnected: a connection holds its responses until they are read, and
    without a bound one caller would fill red-box's memory with them.
    """

    def __init__(self, send: Send, scope: Scope) -> None:
        self._send = send
        self._scope = scope
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            identifier = (b"x-request-id", self._scope[ID_KEY].encode())
            message["headers"] = [*message.get("headers", []), identifier]
        elif message["type"] == "websocket.accept":
            self.status = HTTPStatus.SWITCHING_PROTOCOLS
        connection = connection_in(self._scope)
        if self._scope["type"] != "http" or connection is None:
            await self._send(message)
            return
        try:
            async with asyncio.timeout(READ_GRACE_S + len(message.get("body", b"")) / MIN_BYTES_PER_S):
                for piece in _pieces(message):
                    await self._send(piece)
        except TimeoutError:
            log.warning("slow reader disconnected", why="it did not read its response in time")
            connection.end()  # a close would wait for it to read the rest


async def _end_response(scope: Scope, receive: Receive, response: _Response) -> None:
    """Where it has not begun, it is a problem; else no reader takes the broken connection for its end."""
    if not response.status:
        problem = UnavailableProblem("red-box stops, and is usually restarted", retry_after=STOPS_S)
        await problem_response(problem, scope[ID_KEY])(scope, receive, response)
    elif (connection := connection_in(scope)) is not None:
        connection.end()
        await asyncio.sleep(0)  # uvicorn sees then that the connection is lost


def _pieces(message: Message) -> Iterator[Message]:
    """The server waits before each one until the client has read most of those before."""
    body = message.get("body", b"")
    for start in range(0, len(body) - PIECE, PIECE):
        yield {**message, "body": body[start : start + PIECE], "more_body": True}
    yield {**message, "body": body[(len(body) - 1) // PIECE * PIECE :]} if len(body) > PIECE else message


def logged_path(connection: HTTPConnection) -> str:
    """The path for the log and the audit, without the id by which a client renews its stream."""
    path = connection.url.path
    return f"{STREAMS}..." if path.startswith(STREAMS) else path


def request_id_of(scope: Scope) -> str:
    """Return the request's id, also for handlers that run outside the request's context."""
    return str(scope.get(ID_KEY, "-"))


def _content_length(scope: Scope) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0


def _too_large(limit: int) -> ContentTooLargeProblem:
    return ContentTooLargeProblem(
        f"the request is larger than {limit} bytes, which is limits.body_bytes of this red-box: "
        "stage large data as files"
    )


class _TimedBody:
    """A request's body with a minimum rate.

    Only the time spent waiting for the sender counts, not the time in which the bytes are processed.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received = 0
        self._waited_s = 0.0
        self._is_complete = False

    async def __call__(self) -> Message:
        if self._is_complete:  # the next message is the disconnect, whenever that may be
            return await self._receive()
        started, allowed_s = time.monotonic(), BODY_GRACE_S + self._received / MIN_BYTES_PER_S
        try:
            async with asyncio.timeout(allowed_s - self._waited_s):
                message = await self._receive()
        except TimeoutError:
            raise RequestTimeoutProblem(
                f"only {self._received} bytes of the request's body arrived in {allowed_s:.0f} s: "
                "send it faster"
            ) from None
        self._waited_s += time.monotonic() - started
        self._add(len(message.get("body", b"")))
        self._is_complete = not message.get("more_body", False)
        return message

    def _add(self, count: int) -> None:
        self._received += count


class _BudgetedBody(_TimedBody):
    """A body that its handler holds in memory: limited in size, and counted in the budget."""

    def __init__(self, receive: Receive, limit: int, budget: CallerBudget, scope: Scope) -> None:
        super().__init__(receive)
        self._limit = limit
        self._budget = budget
        self._scope = scope
        self._caller = ""
        self._held = 0

    def _add(self, count: int) -> None:
        super()._add(count)
        if self._received > self._limit:
            raise _too_large(self._limit)
        if not count:
            return
        self._caller = self._caller or self._scope["state"]["caller"].name  # authenticated before any read
        self._budget.take(self._caller, count)
        self._held += count

    def release(self) -> None:
        if self._held:
            self._budget.give_back(self._caller, self._held)
            self._held = 0
