"""Starting one agent: within a deadline, with its hello checked, and with a word on why it failed.

A start that failed is not repeated at once: each in a row doubles the wait, for that user alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from redbox.agents.errors import AgentError, AgentRefused, AgentUnavailable, FrameError
from redbox.agents.protocol.answers import Hello
from redbox.agents.protocol.connection import AgentConnection, AgentProcess
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.base import Transport
from redbox.core.domain import UnixUser

LAST_WORDS_S = 1.0  # how long the exit status of a start that failed is waited for


class AgentLauncher:
    """Starts agents by a transport."""

    def __init__(self, transport: Transport, start_s: float) -> None:
        self._transport = transport
        self._start_s = start_s

    async def start(self, user: UnixUser) -> AgentProcess:
        """Start the process; raises AgentError."""
        try:
            async with asyncio.timeout(self._start_s):
                return await self._transport.start(user)
        except TimeoutError:
            raise AgentUnavailable(
                f"no agent for {user.name} was started within {self._start_s:g} s"
            ) from None
        except OSError as error:
            raise AgentUnavailable(f"no agent for {user.name} could be started: {error}") from error

    async def greet(self, user: UnixUser, process: AgentProcess) -> tuple[AgentConnection, Hello]:
        """Speak to the process; raises AgentError, and has it ended, when it is no agent of this user's."""
        connection = AgentConnection(process)
        try:
            async with asyncio.timeout(self._start_s):
                hello = await connection.greet()
        except TimeoutError:
            process.kill()
            raise AgentUnavailable(
                f"the agent of {user.name} said nothing within {self._start_s:g} s"
            ) from None
        except (FrameError, OSError) as error:
            raise await self._explain(user, process, error) from error
        except Exception:
            process.kill()
            raise
        if hello.uid != user.uid:
            process.kill()
            raise AgentRefused(
                f"the agent of {user.name} runs as uid {hello.uid}, not {user.uid}: check the accounts"
            )
        return connection, hello

    async def _explain(self, user: UnixUser, process: AgentProcess, error: Exception) -> AgentError:
        """Ask an agent that ended before its hello why it did."""
        status: int | None = None
        process.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    status = await process.wait()
            words = process.words()
        finally:
            process.kill()
        detail = f"the agent of {user.name} did not start: {words or error}"
        return AgentRefused(detail) if self._transport.is_refusal(status, words) else AgentUnavailable(detail)


@dataclass(frozen=True, slots=True)
class _Failures:
    last: AgentError
    count: int
    until: float


class StartBackoff:
    """Who has to wait before another start is tried."""

    def __init__(self, settings: PoolSettings, clock: Callable[[], float]) -> None:
        self._first_s, self._longest_s = settings.first_backoff_s, settings.longest_backoff_s
        self._clock = clock
        self._failures: dict[int, _Failures] = {}  # by uid

    def check(self, user: UnixUser) -> None:
        """Raise what the last start failed with, while it is too early for another."""
        failures = self._failures.get(user.uid)
        if failures is None or (left := failures.until - self._clock()) <= 0:
            return
        if isinstance(failures.last, AgentRefused):
            raise AgentRefused(failures.last.detail)
        raise AgentUnavailable(failures.last.detail, retry_after=left)

    def failed(self, user: UnixUser, error: AgentError) -> None:
        before = self._failures.get(user.uid)
        count = before.count + 1 if before else 1
        wait_s = min(self._longest_s, self._first_s * 2.0 ** (count - 1))
        self._failures[user.uid] = _Failures(error, count, self._clock() + wait_s)

    def succeeded(self, user: UnixUser) -> None:
        self._failures.pop(user.uid, None)

    def failing(self) -> int:
        """Return how many users wait."""
        return sum(failures.until > self._clock() for failures in self._failures.values())
