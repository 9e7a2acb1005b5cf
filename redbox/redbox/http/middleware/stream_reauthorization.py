"""A stream goes on only as long as the request that began it would be let in again.

A followed log or a watch has no end of its own, but a token expires or is revoked, a rule changes, a user is
removed. So each stream's request is judged anew every minute, at the end of its proof, and as soon as other
rules are in force. A reader asks again after any end, and is told then why it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import structlog
from starlette.requests import HTTPConnection

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
AT_ONCE = 256  # each may wait some seconds for an API server or a directory server


class Door(Protocol):
    """Proves who is at the other end."""

    async def authenticate(self, connection: HTTPConnection) -> Caller:
        """The caller; raises the errors of `callers`."""
        ...

    def rules_in_force(self) -> object:
        """Another object each time that rules were read."""
        ...


@dataclass(eq=False)
class _Stream:
    connection: HTTPConnection
    caller: Caller
    has_end: bool
    term: asyncio.Timeout
    due: float


class Renewals:
    """The open streams. Entered, it looks after them until it is left."""

    def __init__(self, door: Door, clock: Clock, *, every_s: float = EVERY_S, tick_s: float = TICK_S) -> None:
        self._door = door
        self._clock = clock
        self._every_s = every_s
        self._tick_s = tick_s
        self._streams: set[_Stream] = set()
        self._rules = door.rules_in_force()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._watching = self._group.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.cancel()
        await self._group.__aexit__(None, None, None)

    @asynccontextmanager
    async def lasting(
        self, connection: HTTPConnection, caller: Caller, *, has_end: bool
    ) -> AsyncIterator[Callable[[], bool]]:
        """Run the body as long as the caller is let in; what is given tells whether it was ended before.

        What has an end of its own (a download) is let come to it though the token of its request expires.
        """
        term = asyncio.timeout(None)
        stream = _Stream(connection, caller, has_end, term, self._next(caller))
        try:
            async with term:
                self._streams.add(stream)
                try:
                    yield term.expired
                finally:
                    self._streams.discard(stream)
        except TimeoutError:
            if not term.expired():
                raise

    async def review(self) -> None:
        """Judge those that are due; all, where other rules are in force."""
        rules = self._door.rules_in_force()
        changed, self._rules = rules is not self._rules, rules
        now = self._now()
        due = [stream for stream in self._streams if changed or stream.due <= now]
        for begin in range(0, len(due), AT_ONCE):
            await asyncio.gather(*map(self._judge, due[begin : begin + AT_ONCE]))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            await self.review()

    async def _judge(self, stream: _Stream) -> None:
        why = await self._why_not(stream)
        if stream not in self._streams:
            return
        if why is None:
            stream.due = self._next(stream.caller)
            return
        self._streams.discard(stream)
        stream.term.reschedule(0)
        log.info("a stream was ended", caller=stream.caller.identity, why=why)

    async def _why_not(self, stream: _Stream) -> str | None:
        try:
            caller = await self._door.authenticate(stream.connection)
        except AuthenticationUnavailable:
            return self._why_not_untold(stream)
        except Unauthenticated as refusal:
            return None if stream.has_end and refusal.fault is TokenFault.EXPIRED else str(refusal)
        except AuthenticationError as refusal:
            return str(refusal)
        except Exception:
            log.exception("a stream could not be judged", caller=stream.caller.identity)
            return self._why_not_untold(stream)
        return None if caller == stream.caller else "the rules make something else of its caller now"

    def _why_not_untold(self, stream: _Stream) -> str | None:
        """What holds while nobody can tell: the proof that there was."""
        return None if stream.has_end or self._now() < stream.caller.until else "its token has expired"

    def _next(self, caller: Caller) -> float:
        """At the end of the proof; later than that only for what may outlive it."""
        now = self._now()
        regular = now + self._every_s
        return min(regular, caller.until) if caller.until > now else regular

    def _now(self) -> float:
        return self._clock.now().timestamp()
