"""All relays: one for each job, node and caller, started for the first session and ended after the last.

A relay starts through the user's own agent, which runs srun. Its source goes with it, so that nothing is
installed on a node.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from redbox.agents.errors import AgentError
from redbox.agents.pool import AgentPool
from redbox.core.domain import UnixUser
from redbox.core.owned_tasks import OwnedTasks
from redbox.core.workload_manager import WorkloadManagerError
from redbox.relay.program_source import relay_command, relay_source
from redbox.sessions.errors import SessionEnded
from redbox.sessions.relay_connection import RELAY_LOST, RelayConnection, relay_lost
from redbox_shared.backoff import Backoff

log = structlog.get_logger(__name__)
LINGER_S = 45.0
"""After its last session a relay is kept for so long; without a server it ends itself a little later."""
EXPECTED_S = 15.0
"""For a session that is about to be requested: its client has 10 s for that."""
LIVES_S = 60.0
"""A relay that lasted for so long did not fail to start."""
PAUSES = Backoff(2.0, 300.0)
FORGOTTEN_S = 600.0
StepCommand = Callable[[UnixUser, str, str, str, Sequence[str]], Awaitable[list[str]]]
"""From user, job id, node, step name and program to the command that starts a step."""
JobCheck = Callable[[UnixUser, str, str], Awaitable[None]]
"""Raises WorkloadManagerError unless this user's job of this id has this mark."""


@dataclass(frozen=True, slots=True)
class RelayKey:
    """One relay."""

    user: UnixUser
    caller: str
    job_id: str
    mark: str
    node: str
    run: int


@dataclass(eq=False)
class _Relay:
    opened: asyncio.Future[RelayConnection]
    """Its streams may be opened: it reads what was sent once it has started."""
    is_suspended: Callable[[], bool]
    """Whether its job is: Slurm stops the relay with it."""
    task: asyncio.Task[None] | None = None
    connection: RelayConnection | None = None
    users: int = 0
    linger: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class _Failures:
    """In a row, of relays of one key that ended soon."""

    error: SessionEnded
    count: int
    until: float


class RelayPool(OwnedTasks):
    """Owns the relays and the tasks that serve them. An async context manager."""

    def __init__(
        self,
        agents: AgentPool,
        step_command: StepCommand,
        check_job: JobCheck,
        *,
        environment: Mapping[str, str],
        linger_s: float = LINGER_S,
    ) -> None:
        """`environment` is that of Slurm's commands, beside the account's own."""
        super().__init__()
        self._agents = agents
        self._step_command = step_command
        self._check_job = check_job
        self._environment = environment
        self._linger_s = linger_s
        self._failures: dict[RelayKey, _Failures] = {}
        self._relays: dict[RelayKey, _Relay] = {}

    async def __aexit__(self, *_: object) -> None:
        for relay in self._relays.values():
            if relay.linger is not None:
                relay.linger.cancel()
        await super().__aexit__()

    @property
    def count(self) -> int:
        return len(self._relays)

    @asynccontextmanager
    async def relay(self, key: RelayKey, is_suspended: Callable[[], bool]) -> AsyncIterator[RelayConnection]:
        """Use the relay of this key, which is started if necessary; SessionEnded if it cannot be.

        While `is_suspended`, which Slurm stops it for, it may be silent.
        """
        relay = self._relays.get(key)
        if relay is None:
            self._check_failures(key)
        if relay is None or (relay.connection is not None and relay.connection.failure is not None):
            relay = self._start(key, is_suspended)
        relay.users += 1
        if relay.linger is not None:
            relay.linger.cancel()
            relay.linger = None
        try:
            yield await asyncio.shield(relay.opened)
        finally:
            relay.users -= 1
            if not relay.users:
                self._end_later(key, relay, self._linger_s)

    def expect(self, key: RelayKey, is_suspended: Callable[[], bool]) -> None:
        """Start the relay for a session that is about to be requested, unless one runs or has failed.

        The session itself is audited only then. If the relay fails before, that counts as its first failure.
        """
        if key not in self._relays and key not in self._failures:
            log.info("relay of an expected session", caller=key.caller, job_id=key.job_id, node=key.node)
            self._end_later(key, self._start(key, is_suspended), min(EXPECTED_S, self._linger_s))

    def _end_later(self, key: RelayKey, relay: _Relay, linger_s: float) -> None:
        """Unless a session begins before."""
        if relay.task is not None and not relay.task.done():
            loop = asyncio.get_running_loop()
            relay.linger = loop.call_later(linger_s, self._end_unused, key, relay, relay.task)

    def _end_unused(self, key: RelayKey, relay: _Relay, task: asyncio.Task[None]) -> None:
        """A session that begins in the same turn gets another relay."""
        if self._relays.get(key) is relay:
            del self._relays[key]
        task.cancel()

    def _check_failures(self, key: RelayKey) -> None:
        """A relay is a step, of which Slurm allows a job so many: one that fails repeatedly has pauses."""
        failed, now = self._failures.get(key), asyncio.get_running_loop().time()
        if failed is not None and now < failed.until:
            again = f"It is tried again in {failed.until - now:.0f} s at the earliest."
            raise SessionEnded(failed.error.reason, f"{failed.error.message} {again}")

    def _note_end(self, key: RelayKey, began: float, error: SessionEnded | None) -> None:
        now = asyncio.get_running_loop().time()
        before = self._failures.pop(key, None)
        for old in [old for old, failed in self._failures.items() if failed.until + FORGOTTEN_S < now]:
            del self._failures[old]
        if error is not None and now - began < LIVES_S:
            count = before.count + 1 if before else 1
            pause = PAUSES.full_pause_s(count - 1) if count > 1 else 0.0
            self._failures[key] = _Failures(error, count, now + pause)

    def _start(self, key: RelayKey, is_suspended: Callable[[], bool]) -> _Relay:
        relay = self._relays[key] = _Relay(asyncio.get_running_loop().create_future(), is_suspended)
        relay.task = self._spawn(self._run(key, relay))
        return relay

    async def _run(self, key: RelayKey, relay: _Relay) -> None:
        """A relay's life. Its faults are its sessions', never the server's."""
        failure = SessionEnded(RELAY_LOST, "The relay of this session has been ended by red-box.")
        began, fault = asyncio.get_running_loop().time(), None
        try:
            await self._serve(key, relay)
            fault = relay.connection.failure if relay.connection is not None else None
        except SessionEnded as error:
            failure = fault = error
        except AgentError as error:
            failure = fault = relay_lost(key.node, "could not begin", str(error))
        except WorkloadManagerError as error:
            failure = fault = SessionEnded(RELAY_LOST, f"No session can begin now: {error}.")
        except Exception:
            log.exception("a relay could not be served", job_id=key.job_id, node=key.node)
            failure = fault = SessionEnded(RELAY_LOST, "Internal error of red-box; see its log.")
        finally:
            self._note_end(key, began, fault)
            if self._relays.get(key) is relay:
                del self._relays[key]
            if not relay.opened.done():
                relay.opened.set_exception(failure)
                relay.opened.exception()  # read here: there may be no other reader

    async def _serve(self, key: RelayKey, relay: _Relay) -> None:
        agent = await self._agents.agent(key.user, "sessions")
        name = f"rbx-{secrets.token_hex(8)}"
        argv = await self._step_command(key.user, key.job_id, key.node, name, relay_command())
        job = key.job_id.partition("+")[0]
        step = agent.open_step(argv, relay_source(), job=job, name=name, env=self._environment)
        async with step as pipe:
            await self._check_job(key.user, key.job_id, key.mark)  # while the step starts
            relay.connection = connection = RelayConnection(pipe, key.node, name, relay.is_suspended)
            if not relay.opened.done():
                relay.opened.set_result(connection)
            await connection.serve()
