"""Every agent process of this server: started when needed, shared, replaced when dead, let go when idle.

There is one for each active user and role, so that a file server that hangs never stands before scancel. No
user has more than two processes, ended ones that are not reaped included: a user who stops or traces agents
gets AgentUnavailable, and nobody else notices. How one is started, and how a start fails, is in `starting`.
What nobody thought of costs one user an agent too, never the server.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import structlog

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentError, AgentUnavailable
from redbox.agents.protocol.connection import AgentConnection, AgentProcess
from redbox.agents.settings import PoolSettings
from redbox.agents.startup import AgentLauncher, StartBackoff
from redbox.agents.transports.base import Transport
from redbox.core.domain import UnixUser

AgentRole = Literal["commands", "files"]
Result = TypeVar("Result")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AgentPoolState:
    """What the pool holds, for metrics and health."""

    agents: int
    busy: int
    starting: int
    processes: int  # agents, and those that were told to end and have not been reaped
    failing_users: int


@dataclass(frozen=True, slots=True)
class _Key:
    user: UnixUser
    role: AgentRole


@dataclass(slots=True)
class _Member:
    agent: AgentClient
    connection: AgentConnection
    used_at: float


class AgentPool:
    """Owns agents, and every task that serves one. An async context manager."""

    def __init__(
        self,
        transport: Transport,
        settings: PoolSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or PoolSettings()
        self._clock = clock
        self._launcher = AgentLauncher(transport, self._settings.start_s)
        self._backoff = StartBackoff(self._settings, clock)
        self._members: dict[_Key, _Member] = {}
        self._starting: dict[_Key, asyncio.Task[AgentClient | AgentError]] = {}
        self._processes: Counter[int] = Counter()  # by uid
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reaped = asyncio.Event()
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._is_open = True
        self._spawn(self._sweep())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Let all agents leave, and wait a little for them: what is kept goes on without the server."""
        self._is_open = False
        for member in self._members.values():
            member.connection.leave()
        await self._wait_until_reaped()
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)  # what was raised in the block is passed on as it is

    async def agent(self, user: UnixUser, role: AgentRole = "commands") -> AgentClient:
        """Return the user's agent, started if there is none. Raises AgentUnavailable or AgentRefused."""
        key = _Key(user, role)
        member = self._members.get(key)
        if member and member.agent.is_alive:
            member.used_at = self._clock()
            return member.agent
        start = self._starting.get(key)
        if start is None:
            self._admit(user)
            start = self._starting[key] = self._spawn(self._start(key))
        # Shielded: others may wait for the same start, and what was begun is finished for the next who asks.
        outcome = await asyncio.shield(start)
        if isinstance(outcome, AgentError):
            raise outcome
        return outcome

    def state(self) -> AgentPoolState:
        members = self._members.values()
        return AgentPoolState(
            agents=sum(member.agent.is_alive for member in members),
            busy=sum(member.connection.is_busy for member in members),
            starting=len(self._starting),
            processes=self._processes.total(),
            failing_users=self._backoff.failing(),
        )

    def _admit(self, user: UnixUser) -> None:
        """Raise unless one more process may be started for this user, and count it."""
        if not self._is_open:
            raise AgentUnavailable("red-box is stopping")
        self._backoff.check(user)
        if self._processes[user.uid] >= self._settings.most_per_user:
            raise AgentUnavailable(
                f"{user.name} has {self._processes[user.uid]} agent processes that have not ended: "
                f"end what stops or traces them"
            )
        if self._processes.total() >= self._settings.most_agents:
            for key in self._idle()[:1]:
                self._let_go(key)
            raise AgentUnavailable(f"all {self._settings.most_agents} agents are in use", retry_after=1.0)
        self._processes[user.uid] += 1

    async def _start(self, key: _Key) -> AgentClient | AgentError:
        """Start an agent, or return why there is none."""
        try:
            return await self._begin(key)
        except AgentError as error:
            return self._start_failed(key, error)
        except Exception as error:
            log.exception("an agent could not be started", user=key.user.name)
            failure = AgentUnavailable(f"no agent for {key.user.name} could be started: {error}")
            return self._start_failed(key, failure)

    async def _begin(self, key: _Key) -> AgentClient:
        """The process is counted until it is reaped, whatever becomes of the start."""
        try:
            process = await self._launcher.start(key.user)
        except BaseException:
            self._processes[key.user.uid] -= 1
            raise
        self._spawn(self._reap(key.user, process))
        connection, hello = await self._launcher.greet(key.user, process)
        member = _Member(AgentClient(connection, hello), connection, self._clock())
        self._backoff.succeeded(key.user)
        self._members[key] = member
        self._starting.pop(key, None)
        self._spawn(self._serve(key, member))
        return member.agent

    def _start_failed(self, key: _Key, error: AgentError) -> AgentError:
        self._backoff.failed(key.user, error)
        self._starting.pop(key, None)
        return error

    async def _serve(self, key: _Key, member: _Member) -> None:
        try:
            await member.connection.serve()
        except Exception:
            log.exception("an agent could not be served", user=key.user.name)
            member.connection.die("red-box could not serve it")
        finally:
            if self._members.get(key) is member:
                del self._members[key]

    async def _reap(self, user: UnixUser, process: AgentProcess) -> None:
        try:
            await process.wait()
        except Exception:
            log.exception("an agent's end could not be seen", user=user.name)
        finally:
            self._processes[user.uid] -= 1
            self._reaped.set()

    async def _wait_until_reaped(self) -> None:
        try:
            async with asyncio.timeout(self._settings.leave_s):
                while self._processes.total():
                    self._reaped.clear()
                    await self._reaped.wait()
        except TimeoutError:
            return  # what was not reaped by now leaves by itself, or is stopped by its user

    async def _sweep(self) -> None:
        """Let go of agents that nobody has used for a while."""
        while True:
            await asyncio.sleep(self._settings.sweep_s)
            before = self._clock() - self._settings.idle_s
            for key in self._idle():
                if self._members[key].used_at <= before:
                    self._let_go(key)

    def _idle(self) -> list[_Key]:
        """Return whose agents have nothing to do, the longest unused first."""
        idle = [key for key, member in self._members.items() if not member.connection.is_busy]
        return sorted(idle, key=lambda key: self._members[key].used_at)

    def _let_go(self, key: _Key) -> None:
        self._members.pop(key).connection.leave()

    def _spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
