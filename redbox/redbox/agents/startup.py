"""Starting one agent: within a deadline, with its hello checked, and with the reason where a start fails.

A failed start is not repeated at once: each consecutive failure doubles the pause, for that user alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from redbox.agents.errors import AgentError, AgentRefused, AgentUnavailable, FrameError, UserRefused
from redbox.agents.protocol.answers import Hello
from redbox.agents.protocol.connection import AgentConnection, AgentProcess
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.base import Transport, is_agent_refusal
from redbox.core.domain import UnixUser
from redbox_shared.backoff import Backoff

COMMAND_NOT_FOUND = 127
NOT_OUR_INPUT = "invalid literal for int()"
"""Of the command that reads the agent's source, where something else has read the beginning of it."""
EXIT_STATUS_S = 1.0  # wait for the exit status of a failed start
UNKNOWN_UID = 2**32 - 1  # (uid_t)-1, which no account has


class AgentLauncher:
    """Starts agents by a transport."""

    def __init__(self, transport: Transport, start_s: float) -> None:
        self._transport = transport
        self._start_s = start_s

    async def start(self, user: UnixUser) -> AgentProcess:
        try:
            async with asyncio.timeout(self._start_s):
                return await self._transport.start(user)
        except TimeoutError:
            raise AgentUnavailable(
                f"the agent of {user.name} did not start within {self._start_s:g} s"
            ) from None
        except OSError as error:
            raise AgentUnavailable(f"the agent of {user.name} could not be started: {error}") from error

    async def greet(self, user: UnixUser, process: AgentProcess) -> tuple[AgentConnection, Hello]:
        """Exchange hellos; where the process is not this user's agent, kill it and raise AgentError."""
        connection, hello = await self._exchange_hellos(user, process)
        if hello.uid != user.uid:
            process.kill()
            raise AgentRefused(
                f"the agent of {user.name} runs as uid {hello.uid}, not {user.uid}: check the accounts"
            )
        return connection, hello

    async def find_user(self, name: str) -> UnixUser:
        """Log in as this account, whose uid only the login node has, and return it with its uid."""
        unknown = UnixUser(name, UNKNOWN_UID)
        process = await self.start(unknown)
        try:
            _, hello = await self._exchange_hellos(unknown, process)
        finally:
            process.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_STATUS_S):
                    await process.wait()
        return UnixUser(name, hello.uid)

    async def _exchange_hellos(self, user: UnixUser, process: AgentProcess) -> tuple[AgentConnection, Hello]:
        connection, who = AgentConnection(process), f"the agent of {user.name}"
        try:
            async with asyncio.timeout(self._start_s):
                hello = await connection.greet()
        except TimeoutError:
            process.kill()
            raise AgentUnavailable(
                f"{who} sent no hello within {self._start_s:g} s{_in_its_place(connection)}"
            ) from None
        except (FrameError, OSError) as error:
            raise await self._start_error(user, process, connection, error) from error
        except Exception:
            process.kill()
            raise
        return connection, hello

    async def _start_error(
        self, user: UnixUser, process: AgentProcess, connection: AgentConnection, error: Exception
    ) -> AgentError:
        """Explain an end before the hello by the exit status and stderr of the process."""
        status: int | None = None
        process.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_STATUS_S):
                    status = await process.wait()
            stderr = process.stderr_text()
        finally:
            process.kill()
        kind: type[AgentError] = AgentUnavailable
        if self._transport.is_refusal(status, stderr):
            is_certain = is_agent_refusal(status) or status == COMMAND_NOT_FOUND
            kind = AgentRefused if is_certain else UserRefused
        reason = stderr or str(error)
        if NOT_OUR_INPUT in reason:
            reason = (
                "the account's shell, or a start file as .bashrc, has read the input that is for the agent"
            )
        if status == COMMAND_NOT_FOUND:
            reason += ": the host needs Python 3.6 or newer as /usr/bin/python3"
        return kind(f"the agent of {user.name} did not start: {reason}{_in_its_place(connection)}")


def _in_its_place(connection: AgentConnection) -> str:
    """The line that came in place of a hello: of a ForceCommand, of nologin, of a shell's question."""
    if not connection.printed:
        return ""
    return (
        f"; printed was {connection.printed!r}: sshd's ForceCommand or the account's shell must run "
        "red-box's command, and the shell's start files must neither end it nor wait for input"
    )


@dataclass(frozen=True, slots=True)
class _Failures:
    last: AgentError
    count: int
    until: float


class StartBackoff:
    """Pauses of the users whose agent failed to start."""

    def __init__(self, settings: PoolSettings, clock: Callable[[], float]) -> None:
        self._backoff = Backoff(settings.first_backoff_s, settings.longest_backoff_s, jitter=0.0)
        self._clock = clock
        self._failures: dict[int, _Failures] = {}  # by uid

    def check(self, user: UnixUser) -> None:
        """During the user's pause, raise the error of the last start."""
        failures = self._failures.get(user.uid)
        if failures is None or (left := failures.until - self._clock()) <= 0:
            return
        if isinstance(failures.last, AgentRefused):
            raise type(failures.last)(failures.last.detail)
        raise AgentUnavailable(failures.last.detail, retry_after=left)

    def failed(self, user: UnixUser, error: AgentError) -> None:
        last = self._failures.get(user.uid)
        count = last.count + 1 if last else 1
        self._failures[user.uid] = _Failures(error, count, self._clock() + self._backoff.pause_s(count))

    def succeeded(self, user: UnixUser) -> None:
        self._failures.pop(user.uid, None)

    def failing_users(self) -> int:
        return sum(failures.until > self._clock() for failures in self._failures.values())
