"""Runs Slurm's commands as a user, within a deadline and a limit of output.

Every failure to get an answer is a WorkloadManagerError. The argument lists and the meaning of the answers
are in `commands`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from redbox.agents.errors import AgentError, AgentTimeout, AgentUnavailable
from redbox.agents.protocol.answers import CommandResult, FileAttributes, GlobResult, RecordedCommand
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.own_account_commands import OwnAccountCommands
from redbox.slurm.settings import SlurmSettings
from redbox.slurm.text.error_messages import words_of
from redbox.slurm.text.record_format import decode

OUTPUT_LIMIT = 256 * 1024 * 1024  # a squeue of some hundred thousand jobs
USER_LIMIT = 4 * 1024 * 1024  # of an agent, whose user decides what it answers
USER_LIST_LIMITS = {"squeue": 32 * 1024 * 1024, "sacct": 32 * 1024 * 1024}
"""The limits for lists of one user's own jobs, which are read as that user where PrivateData hides them."""


class SlurmAgent(Protocol):
    """The part of a user's agent that is used here."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        inherit: Mapping[str, bytes] | None = None,
        keep: str | None = None,
        replaces: str | None = None,
        output_limit: int = ...,
    ) -> CommandResult: ...

    async def recall(self, keep: str) -> RecordedCommand: ...

    async def make_directory(self, path: str, *, mode: int = 0o777) -> tuple[FileAttributes, bool]: ...

    async def write(self, path: str, chunks: bytes, *, mode: int = 0o644) -> FileAttributes: ...

    async def glob(self, directory: str, patterns: Sequence[str], *, limit: int = ...) -> GlobResult: ...

    async def remove(self, path: str, *, recursive: bool = False) -> None: ...


class SlurmAgents(Protocol):
    """The pool of the users' agents."""

    async def agent(self, user: UnixUser, role: Literal["commands", "files"] = "commands") -> SlurmAgent: ...


OnCall = Callable[[str, float, bool], None]
"""Called after each command with its name, how long it took, and whether an answer came."""


class CommandRunner:
    """Runs Slurm's commands, as a user or as the observer.

    `own` runs those of the observer where that is the account of this process; else its agent does.
    """

    def __init__(
        self,
        agents: SlurmAgents,
        observer: UnixUser,
        settings: SlurmSettings,
        *,
        own: OwnAccountCommands | None = None,
        on_call: OnCall | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.agents = agents
        self._own = own
        self.observer = observer
        self.settings = settings
        self._on_call = on_call
        self._clock = clock

    async def complete(
        self,
        user: UnixUser,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> CommandResult:
        """Run a command that may safely run twice, to its end, whatever its exit code."""
        started, limit = self._clock(), self._limit(user, argv[0])
        completed = None
        try:
            completed = await (await self._runner(user)).run(
                argv,
                env={**self.settings.environment, **(env or {})},
                deadline=deadline or self.settings.read_s,
                output_limit=limit,
            )
        except AgentError as error:
            raise no_answer(error, argv[0]) from error
        finally:
            answered = completed is not None and not completed.timed_out
            self.report_call(argv[0], self._clock() - started, answered=answered)
        if completed.timed_out:
            raise WorkloadManagerError(
                f"{argv[0]} gave no answer within {completed.took_s:.0f} s", timed_out=True
            )
        if completed.truncated:
            raise WorkloadManagerError(f"{argv[0]} wrote more than {limit} bytes")
        return completed

    def _limit(self, user: UnixUser, command: str) -> int:
        return OUTPUT_LIMIT if user == self.observer else USER_LIST_LIMITS.get(command, USER_LIMIT)

    async def _runner(self, user: UnixUser) -> OwnAccountCommands | SlurmAgent:
        if self._own is not None and user == self.observer:
            return self._own
        return await self.agents.agent(user)

    async def read(
        self,
        argv: Sequence[str],
        *,
        user: UnixUser | None = None,
        env: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> str:
        """What a command prints; WorkloadManagerError with Slurm's words where it fails."""
        completed = await self.complete(user or self.observer, argv, env=env, deadline=deadline)
        if completed.code != 0:
            words = words_of(completed.stderr) or f"exit code {completed.code}"
            raise WorkloadManagerError(f"{argv[0]} failed: {words}")
        return decode(completed.stdout)

    def report_call(self, command: str, took_s: float, *, answered: bool) -> None:
        if self._on_call is not None:
            self._on_call(command, took_s, answered)


def no_answer(error: AgentError, command: str) -> WorkloadManagerError:
    slow = isinstance(error, AgentTimeout)
    why = "" if isinstance(error, AgentUnavailable) else f"{command}: "
    return WorkloadManagerError(f"{why}{error.detail}", timed_out=slow)
