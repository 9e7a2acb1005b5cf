"""A stream lasts only as long as its request would be authorized again.

A followed log or a watch has no end of its own, but a token expires or is revoked, a rule changes, a user is
removed. So each stream's request is authenticated again every minute, when its token expires, and as soon as
the rules change. A reader sends its request again after any end, and then receives the reason. A session
cannot be taken up again: its client sends a newer token meanwhile, in a request that names the session's id:
in the session itself it would wait behind input that no command reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog
from starlette.requests import HTTPConnection

from redbox.callers.authenticator import Authenticator
from redbox.callers.errors import (
    AuthenticationError,
    AuthenticationUnavailable,
    TokenFault,
    Unauthenticated,
)
from redbox.core.clock import Clock
from redbox.core.domain import Caller

log = structlog.get_logger(__name__)
EVERY_S = 60.0
TICK_S = 1.0
CONCURRENT_CHECKS = 256  # each may wait some seconds for an API server or a directory server


@dataclass(eq=False)
class _Stream:
    opened_by: HTTPConnection
    connection: HTTPConnection  # with the token that counts now
    caller: Caller
    has_end: bool
    term: asyncio.Timeout
    due: float
    identifier: str | None


class StreamReauthorization:
    """The open streams; `run` checks them."""

    def __init__(
        self,
        authenticator: Authenticator,
        clock: Clock,
        *,
        every_s: float = EVERY_S,
        tick_s: float = TICK_S,
    ) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._every_s = every_s
        self._tick_s = tick_s
        self._streams: set[_Stream] = set()
        self._rules = authenticator.rules_in_force()
        self._is_stopping = False

    def end_all(self) -> None:
        """The server stops: streams without an end of their own end cleanly, and so do those that begin now.

        uvicorn would cancel them after its grace. Sessions see the stop themselves, and downloads may finish.
        """
        self._is_stopping = True
        for stream in self._streams:
            if self._ends_with_server(stream):
                stream.term.reschedule(0)

    def _ends_with_server(self, stream: _Stream) -> bool:
        return self._is_stopping and not stream.has_end and stream.opened_by.scope["type"] == "http"

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            await self.check_due()

    @asynccontextmanager
    async def guard(
        self, connection: HTTPConnection, caller: Caller, *, has_end: bool, identifier: str | None = None
    ) -> AsyncIterator[Callable[[], bool]]:
        """End the body when the caller is no longer authorized; the yielded function returns whether it did.

        A stream that `has_end` (a download) may finish though the token of its request expires meanwhile. One
        with an `identifier` can be renewed by it.
        """
        term = asyncio.timeout(None)
        due = self._next_check(caller)
        stream = _Stream(connection, connection, caller, has_end, term, due, identifier)
        try:
            async with term:
                self._streams.add(stream)
                if self._ends_with_server(stream):
                    term.reschedule(0)
                try:
                    yield term.expired
                finally:
                    self._streams.discard(stream)
        except TimeoutError:
            if not term.expired():
                raise

    def renew(self, identifier: str, caller: Caller, token: bytes) -> bool:
        """Authorize the stream by the token of a request from now on; False if it is not this caller's.

        The request has been authenticated by this token. One that expires sooner than the one that counts
        changes nothing.
        """
        stream = next((stream for stream in self._streams if stream.identifier == identifier), None)
        if stream is None:
            return False
        if caller != stream.caller:
            log.info("a newer token was refused", caller=stream.caller.identity, why="it is another caller's")
            return False
        if caller.until >= stream.caller.until:
            stream.connection = _with_token(stream.opened_by, token)
            stream.caller = caller
            stream.due = self._next_check(caller)
        return True

    async def check_due(self) -> None:
        """Check the streams that are due; after a change of the rules, all of them."""
        rules = self._authenticator.rules_in_force()
        changed, self._rules = rules is not self._rules, rules
        now = self._now()
        due = [stream for stream in self._streams if changed or stream.due <= now]
        for begin in range(0, len(due), CONCURRENT_CHECKS):
            await asyncio.gather(*map(self._check, due[begin : begin + CONCURRENT_CHECKS]))

    async def _check(self, stream: _Stream) -> None:
        checked = stream.connection
        reason = await self._rejection(stream)
        if stream not in self._streams or stream.connection is not checked:
            return  # it has ended, or a newer token counts by now, or is being checked itself
        if reason is None:
            stream.due = self._next_check(stream.caller)
            return
        self._streams.discard(stream)
        stream.term.reschedule(0)
        log.info(
            "stream ended: its caller is no longer authorized", caller=stream.caller.identity, why=reason
        )

    async def _rejection(self, stream: _Stream) -> str | None:
        checked = stream.connection
        try:
            caller = await self._authenticator.authenticate(checked)
        except AuthenticationUnavailable:
            return self._rejection_by_last_proof(stream)
        except Unauthenticated as error:
            return None if stream.has_end and error.fault is TokenFault.EXPIRED else str(error)
        except AuthenticationError as error:
            return str(error)
        except Exception:
            log.exception("a stream could not be reauthorized", caller=stream.caller.identity)
            return self._rejection_by_last_proof(stream)
        if caller != stream.caller:
            return "the rules now map its caller differently"
        if stream.connection is checked:
            stream.caller = caller  # its token may last longer
        return None

    def _rejection_by_last_proof(self, stream: _Stream) -> str | None:
        """While nothing can be checked, the last proof of identity holds until it expires."""
        return None if stream.has_end or self._now() < stream.caller.until else "its token has expired"

    def _next_check(self, caller: Caller) -> float:
        """At the regular time or when the token expires; a stream may outlive its token only by `has_end`."""
        now = self._now()
        regular = now + self._every_s
        return min(regular, caller.until) if caller.until > now else regular

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _with_token(connection: HTTPConnection, token: bytes) -> HTTPConnection:
    """The same request, if it were sent with this token."""
    headers = [header for header in connection.scope["headers"] if header[0] != b"authorization"]
    headers.append((b"authorization", b"Bearer " + token))
    return HTTPConnection({**connection.scope, "headers": headers})
