"""All agent processes of this server: started on demand, shared, replaced when dead, ended when idle.

Each active user has one agent per role, so that a hanging file server never delays scancel. A user has at
most `most_per_user` processes and one for sessions, unreaped ones included. An agent that its user stops or
traces is abandoned when it misses a ping. One more is started then, which ends the abandoned ones: red-box
may not signal them. A user who stops that one too gets AgentUnavailable until they have ended, without an
effect on others. Agents for sessions are busy for as long as their users like: they take at most half of the
pool, so that submits and cancels of others find an agent. Starts are in `startup`. An unexpected exception
costs one user an agent, never the server.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import structlog

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentError, AgentUnavailable
from redbox.agents.protocol.answers import Hello
from redbox.agents.protocol.connection import END_S, AgentConnection, AgentProcess
from redbox.agents.settings import PoolSettings
from redbox.agents.startup import AgentLauncher, StartBackoff
from redbox.agents.transports.base import Transport
from redbox.core.domain import UnixUser
from redbox.core.owned_tasks import OwnedTasks
from redbox.core.turns import ShareKind, Shares, work_for

AgentRole = Literal["commands", "files", "sessions"]
MAX_ABANDONED = 8  # of one user
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AgentPoolState:
    """The pool's counts, for metrics and health."""

    agents: int
    busy: int
    starting: int
    processes: int  # agents, and closed ones that have not been reaped
    failing_users: int


@dataclass(frozen=True, slots=True)
class _PoolKey:
    user: UnixUser
    role: AgentRole


@dataclass(slots=True)
class _PooledAgent:
    agent: AgentClient
    connection: AgentConnection
    used_at: float


class AgentPool(OwnedTasks):
    """Owns the agents and the tasks that serve them. An async context manager."""

    def __init__(
        self,
        transport: Transport,
        settings: PoolSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        shares: Shares | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings or PoolSettings()
        self._clock = clock
        self._shares = shares or Shares()
        self._launcher = AgentLauncher(transport, self._settings.start_s)
        self._backoff = StartBackoff(self._settings, clock)
        self._pooled: dict[_PoolKey, _PooledAgent] = {}
        self._starting: dict[_PoolKey, asyncio.Task[AgentClient | AgentError]] = {}
        self._processes: Counter[_PoolKey] = Counter()
        self._abandoned: dict[UnixUser, deque[Hello]] = defaultdict(lambda: deque(maxlen=MAX_ABANDONED))
        self._reaped = asyncio.Event()
        self._is_open = False

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._is_open = True
        self._spawn(self._close_idle())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all agents and wait briefly for them: recorded commands continue without the server."""
        self._is_open = False
        for pooled in self._pooled.values():
            pooled.connection.close()
        await self._wait_until_reaped()
        await super().__aexit__()

    async def agent(self, user: UnixUser, role: AgentRole = "commands") -> AgentClient:
        """Return the user's agent, which is started if necessary. Raises AgentUnavailable or AgentRefused."""
        key = _PoolKey(user, role)
        pooled = self._pooled.get(key)
        if pooled and pooled.agent.is_alive:
            pooled.used_at = self._clock()
            return pooled.agent
        start = self._starting.get(key)
        if start is None:
            self._admit(key)
            with work_for(self._shares.of(ShareKind.CALLER, user.name)):  # also at an operator's request
                start = self._starting[key] = self._spawn(self._start(key))
        # Shielded: others may wait for the same start, which continues if this caller is cancelled.
        outcome = await asyncio.shield(start)
        if isinstance(outcome, AgentError):
            raise outcome
        return outcome

    def state(self) -> AgentPoolState:
        return AgentPoolState(
            agents=sum(pooled.agent.is_alive for pooled in self._pooled.values()),
            busy=sum(pooled.connection.is_busy for pooled in self._pooled.values()),
            starting=len(self._starting),
            processes=self._processes.total(),
            failing_users=self._backoff.failing_users(),
        )

    def _admit(self, key: _PoolKey) -> None:
        """Count one more process for its user; raises AgentError if it may not be started."""
        user = key.user
        if not self._is_open:
            raise AgentUnavailable("red-box is stopping")
        self._backoff.check(user)
        for_sessions = _PoolKey(user, "sessions")
        has_sessions = for_sessions in (key, *self._pooled, *self._starting)
        of_user = self._count(lambda other: other.user.uid == user.uid)
        if of_user >= self._settings.most_per_user + has_sessions + self._has_abandoned(user):
            raise AgentUnavailable(
                f"{user.name} has {of_user} agent processes that have not ended: red-box kills them within "
                f"{END_S:.0f} s; end the processes that stop or trace them"
            )
        most = self._settings.most_agents
        if self._processes.total() >= most:
            self._make_room(self._idle())
            raise AgentUnavailable(f"all {most} agents are in use", retry_after=1.0)
        most_for_sessions = max(1, most // 2)
        if (
            key.role == "sessions"
            and self._count(lambda other: other.role == "sessions") >= most_for_sessions
        ):
            self._make_room([idle for idle in self._idle() if idle.role == "sessions"])
            raise AgentUnavailable(f"all {most_for_sessions} agents for sessions are in use", retry_after=1.0)
        self._processes[key] += 1

    def _count(self, counts: Callable[[_PoolKey], bool]) -> int:
        return sum(number for key, number in self._processes.items() if counts(key))

    def _make_room(self, idle: list[_PoolKey]) -> None:
        for key in idle[:1]:
            self._close(key)

    async def _start(self, key: _PoolKey) -> AgentClient | AgentError:
        """Start an agent; return the error, since several callers may wait for it."""
        failure: AgentError
        try:
            pooled = await self._launch(key)
        except AgentError as error:
            failure = error
        except Exception as error:
            log.exception("an agent could not be started", user=key.user.name)
            failure = AgentUnavailable(f"the agent of {key.user.name} could not be started: {error}")
        else:
            self._backoff.succeeded(key.user)
            self._pooled[key] = pooled
            self._starting.pop(key, None)
            self._spawn(self._serve(key, pooled))
            for abandoned in self._abandoned.pop(key.user, ()):
                await self._end_abandoned(key.user, abandoned, pooled.agent)
            return pooled.agent
        self._backoff.failed(key.user, failure)
        self._starting.pop(key, None)
        return failure

    async def _launch(self, key: _PoolKey) -> _PooledAgent:
        """Start and greet a process, which counts until it is reaped even if the start fails."""
        try:
            process = await self._launcher.start(key.user)
        except BaseException:
            self._ended(key)
            raise
        self._spawn(self._reap(key, process))
        connection, hello = await self._launcher.greet(key.user, process)
        return _PooledAgent(AgentClient(connection, hello), connection, self._clock())

    async def _serve(self, key: _PoolKey, pooled: _PooledAgent) -> None:
        try:
            await pooled.connection.serve()
        except Exception:
            log.exception("an agent could not be served", user=key.user.name)
            pooled.connection.die("internal error of red-box; see its log")
        finally:
            if self._pooled.get(key) is pooled:
                del self._pooled[key]
            if pooled.connection.is_abandoned and pooled.agent.hello.start:
                self._abandoned[key.user].append(pooled.agent.hello)

    def _has_abandoned(self, user: UnixUser) -> bool:
        return user in self._abandoned or any(
            key.user == user and pooled.connection.is_abandoned for key, pooled in self._pooled.items()
        )

    async def _end_abandoned(self, user: UnixUser, abandoned: Hello, agent: AgentClient) -> None:
        try:
            await agent.end_agent(abandoned)
        except AgentError:
            self._abandoned[user].append(abandoned)

    async def _reap(self, key: _PoolKey, process: AgentProcess) -> None:
        try:
            await process.wait()
        except Exception:
            log.exception("an agent could not be reaped", user=key.user.name)
        finally:
            self._ended(key)
            self._reaped.set()

    def _ended(self, key: _PoolKey) -> None:
        self._processes[key] -= 1
        if not self._processes[key]:
            del self._processes[key]

    async def _wait_until_reaped(self) -> None:
        try:
            async with asyncio.timeout(self._settings.leave_s):
                while self._processes.total():
                    self._reaped.clear()
                    await self._reaped.wait()
        except TimeoutError:
            return  # the others exit by themselves, or their users hold them stopped

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(self._settings.idle_check_s)
            before = self._clock() - self._settings.idle_s
            for key in self._idle():
                if self._pooled[key].used_at <= before:
                    self._close(key)

    def _idle(self) -> list[_PoolKey]:
        """Return agents without a request, the least recently used first."""
        idle = [key for key, pooled in self._pooled.items() if not pooled.connection.is_busy]
        return sorted(idle, key=lambda key: self._pooled[key].used_at)

    def _close(self, key: _PoolKey) -> None:
        self._pooled.pop(key).connection.close()
