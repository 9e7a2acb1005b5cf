"""The login node as the observer's agent shows it: what `redbox check` reads from red-box's own host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from redbox.agents.errors import AgentError, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import CommandResult
from redbox.core.domain import UnixUser
from redbox.server.login_accounts import LoginNodeLookup, run_as_observer
from redbox.server.observer import find_observer
from redbox.server.transports import transport_of
from redbox.settings import RedboxSettings
from redbox.setup.checks.machine import ProcessOutput

Answer = TypeVar("Answer")
MAX_FILE = 1024 * 1024
DATE = ("date", "--utc", "+%s.%N")


class ObservedNode(LoginNodeLookup):
    """A login node, asked through agents; raises OSError where it gives no answer."""

    where = "the login node"

    def __init__(self, runner: asyncio.Runner, pool: AgentPool, observer: UnixUser) -> None:
        super().__init__(self._as_observer)
        self._runner = runner
        self._pool = pool
        self._observer = observer

    def now(self) -> datetime:
        return datetime.fromtimestamp(float(self._as_observer(DATE).stdout), UTC)

    def read(self, path: Path) -> bytes | None:
        async def read() -> bytes:
            agent = await self._pool.agent(self._observer)
            return (await agent.read(str(path), limit=MAX_FILE)).data

        try:
            return self._answer(read())
        except OSError:
            return None

    def find_tool(self, name: str, directories: str) -> str | None:
        async def is_there(path: str) -> bool:
            agent = await self._pool.agent(self._observer)
            try:
                return (await agent.stat(path)).kind == "file"
            except SystemCallFailed:
                return False

        paths = (f"{directory}/{name}" for directory in directories.split(":"))
        return next((path for path in paths if self._answer(is_there(path))), None)

    def run(
        self, argv: Sequence[str], deadline_s: float, environment: Mapping[str, str] | None = None
    ) -> ProcessOutput:
        async def run() -> CommandResult:
            agent = await self._pool.agent(self._observer)
            assigned = [f"{name}={value}" for name, value in (environment or {}).items()]
            return await agent.run(["env", "LC_ALL=C.UTF-8", *assigned, *argv], deadline=deadline_s)

        try:
            ended = self._answer(run())
        except OSError as error:
            return ProcessOutput(None, stderr=str(error))
        if ended.timed_out:
            return ProcessOutput(None, stderr=f"no answer within {deadline_s:g} s")
        return ProcessOutput(
            ended.code, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace")
        )

    def agent_error(self, user: UnixUser) -> str | None:
        """Start an agent as this user; return the reason where none starts."""
        try:
            self._answer(self._pool.agent(user))
        except OSError as error:
            return str(error)
        return None

    def _as_observer(self, argv: Sequence[str]) -> CommandResult:
        return self._answer(run_as_observer(self._pool, self._observer, argv))

    def _answer(self, question: Awaitable[Answer]) -> Answer:
        async def ask() -> Answer:
            return await question

        try:
            return self._runner.run(ask())
        except AgentError as error:
            raise OSError(error.detail) from error


@contextmanager
def observed_node(settings: RedboxSettings) -> Iterator[ObservedNode]:
    """Log in as the observer; raises AgentError where the login node does not let it."""
    transport = transport_of(settings.agents, settings.jobs.journal)
    with asyncio.Runner() as runner:
        observer = runner.run(find_observer(settings, transport))
        opened: asyncio.Future[AgentPool] = runner.get_loop().create_future()
        ended = asyncio.Event()

        async def hold() -> None:
            async with AgentPool(transport, settings.agents.pool) as pool:
                opened.set_result(pool)
                await ended.wait()

        async def leave() -> None:
            ended.set()
            await holder

        holder = runner.get_loop().create_task(hold())
        try:
            yield ObservedNode(runner, runner.run(_result(opened)), observer)
        finally:
            runner.run(leave())


async def _result(future: asyncio.Future[Answer]) -> Answer:
    return await future
