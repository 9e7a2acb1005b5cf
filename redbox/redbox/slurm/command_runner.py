"""Runs Slurm's commands as a user, within a deadline and a limit of output.

Every failure to get an answer is a WorkloadManagerError. The argument lists and the meaning of the answers
are in `commands`.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping, Sequence

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentError, AgentTimeout, AgentUnavailable
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import CommandResult
from redbox.core.clock import Clock
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.own_account_commands import OwnAccountCommands
from redbox.slurm.settings import SlurmSettings
from redbox.slurm.text.error_messages import words_of
from redbox.slurm.text.record_format import decode

MIB = 1024 * 1024
OUTPUT_LIMIT = 256 * MIB  # a squeue of some hundred thousand jobs
USER_LIMIT = 4 * MIB  # of an agent, whose user decides what it answers
USER_LIMITS = {"squeue": 32 * MIB, "sacct": 32 * MIB, "sstat": MIB, "sacctmgr": MIB // 2}
"""Of lists of one user's own jobs, which are read as that user where PrivateData hides them. A caller may ask
for the last two at any time, and each line takes microseconds of the event loop."""


CHANGES_OUTPUT = ("SACCT_", "SINFO_", "SQUEUE_")
"""What variables begin with that choose what is printed: settings may have them for jobs."""
OnCall = Callable[[str, float, bool], None]
"""Called after each command with its name, how long it took, and whether an answer came."""


class OutputTooLong(WorkloadManagerError):
    """A command wrote more than its limit."""


class CommandRunner:
    """Runs Slurm's commands as a user or as the observer: without an agent where that is its own account."""

    def __init__(
        self,
        agents: AgentPool,
        observer: UnixUser,
        settings: SlurmSettings,
        clock: Clock,
        on_call: OnCall = lambda *_: None,
    ) -> None:
        self.agents = agents
        self.observer = observer
        self.settings = settings
        self.clock = clock
        self.on_call = on_call
        self._environment = {
            name: value for name, value in settings.environment.items() if not name.startswith(CHANGES_OUTPUT)
        }
        self._own = OwnAccountCommands() if _is_own_account(observer) else None

    async def complete(
        self,
        user: UnixUser,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        deadline: float | None = None,
        of_user: int | None = None,
    ) -> CommandResult:
        """Run a command that may safely run twice, to its end, whatever its exit code.

        `of_user` is the limit of its output where a user's agent answers.
        """
        started, limit = self.clock.monotonic(), self._limit(user, argv[0], of_user)
        completed = None
        try:
            completed = await (await self._runner(user)).run(
                argv,
                env={**self._environment, **(env or {})},
                deadline=deadline or self.settings.read_s,
                output_limit=limit,
            )
        except AgentError as error:
            where = "" if isinstance(error, AgentUnavailable) else f"{argv[0]}: "
            timed_out = isinstance(error, AgentTimeout)
            raise WorkloadManagerError(f"{where}{error.detail}", timed_out=timed_out) from error
        except OSError as error:  # of this host: too many processes, or files
            raise WorkloadManagerError(f"{argv[0]} could not be run: {error.strerror}") from error
        finally:
            answered = completed is not None and not completed.timed_out
            self.on_call(argv[0], self.clock.monotonic() - started, answered)
        if completed.timed_out:
            raise WorkloadManagerError(
                f"{argv[0]} gave no answer within {completed.took_s:.0f} s", timed_out=True
            )
        if completed.truncated:
            raise OutputTooLong(f"{argv[0]} wrote more than {limit} bytes")
        return completed

    def _limit(self, user: UnixUser, command: str, of_user: int | None) -> int:
        if user == self.observer:
            return OUTPUT_LIMIT
        return of_user or USER_LIMITS.get(command, USER_LIMIT)

    async def _runner(self, user: UnixUser) -> OwnAccountCommands | AgentClient:
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
        """What a command prints, as text."""
        return decode(await self.output(argv, user=user, env=env, deadline=deadline))

    async def output(
        self,
        argv: Sequence[str],
        *,
        user: UnixUser | None = None,
        env: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> bytes:
        """What a command prints; WorkloadManagerError with Slurm's words where it fails."""
        completed = await self.complete(user or self.observer, argv, env=env, deadline=deadline)
        if completed.code != 0:
            words = words_of(completed.stderr) or f"exit code {completed.code}"
            raise WorkloadManagerError(f"{argv[0]} failed: {words}")
        return completed.stdout


def _is_own_account(observer: UnixUser) -> bool:
    """By name and uid: in a pod, an account of the login node may have the uid of this process."""
    try:
        own = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return observer == UnixUser(own, os.geteuid())
