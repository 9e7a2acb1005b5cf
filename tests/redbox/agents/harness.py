"""Real agents for tests: of the user who runs the tests, and of an unprivileged one if that is root."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentUnavailable, CommandDetached
from redbox.agents.pool import AgentPool, AgentRole
from redbox.agents.protocol.answers import RecordedCommandState
from redbox.agents.protocol.connection import AgentProcess
from redbox.agents.transports.base import is_agent_refusal
from redbox.agents.transports.bootstrap import ARGV, bootstrap_preamble
from redbox.agents.transports.process import ChildProcess
from redbox.core.domain import UnixUser

NOBODY = 65534
PYTHON = os.environ.get("REDBOX_AGENT_PYTHON", ARGV[0])  # to try the agent with another one


def tests_user() -> UnixUser:
    """The account that agents of tests run as."""
    return UnixUser("nobody", NOBODY) if os.geteuid() == 0 else UnixUser("tester", os.geteuid())


async def until(condition: Callable[[], Awaitable[bool] | bool]) -> None:
    """Wait for what no event tells: another process's doing."""
    async with asyncio.timeout(60):
        while not (  # noqa: ASYNC110
            outcome if isinstance(outcome := condition(), bool) else await outcome
        ):
            await asyncio.sleep(0.01)


async def available(pool: AgentPool, user: UnixUser, role: AgentRole = "commands") -> AgentClient:
    """Return the user's agent, as a client that repeats its request gets it."""
    found: list[AgentClient] = []

    async def is_found() -> bool:
        with suppress(AgentUnavailable):
            found.append(await pool.agent(user, role))
        return bool(found)

    await until(is_found)
    return found[0]


async def run_until_detached(
    agent: AgentClient, argv: Sequence[str], identity: str, *, replaces: str | None = None
) -> None:
    """Have a recorded command run on without its caller.

    On a busy machine a short deadline may pass before the command begins, which then it never does.
    """
    for deadline in (0.2, 2, 20):
        with suppress(CommandDetached):
            await agent.run(argv, keep=identity, deadline=deadline, replaces=replaces)
        if (await agent.recall(identity)).state is RecordedCommandState.RUNNING:
            return
    raise AssertionError(f"{argv[0]} does not run on")


class LaunchedTransport:
    """Starts the real agent as `tests_user`, and remembers each process."""

    name = "launched"

    def __init__(self, *, python: str = PYTHON, preamble: bytes | None = None) -> None:
        self.python = python
        self.preamble = bootstrap_preamble() if preamble is None else preamble
        self.started: list[ChildProcess] = []

    def argv(self, user: UnixUser) -> list[str]:
        drop = ["/usr/bin/setpriv", f"--reuid={user.uid}", f"--regid={user.uid}", "--clear-groups", "--"]
        return [*(drop if os.geteuid() == 0 else []), self.python, *ARGV[1:]]

    async def start(self, user: UnixUser) -> AgentProcess:
        self.started.append(await ChildProcess.start(self.argv(user), preamble=self.preamble))
        return self.started[-1]

    def credentials_expire_at(self) -> float | None:
        return None

    def is_refusal(self, status: int | None, stderr: str) -> bool:  # noqa: ARG002
        return is_agent_refusal(status)

    def end_all(self) -> None:
        for process in self.started:
            with suppress(ProcessLookupError):
                os.kill(process.pid, 9)
