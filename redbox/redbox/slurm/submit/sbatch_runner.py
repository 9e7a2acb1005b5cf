"""Runs sbatch at most once for a mark.

A submit is never killed. Each sbatch is a kept command of the user's agent, whose outcome outlives caller and
agent, under the names MARK.1, MARK.2, ...:

    MARK.1 is free                  run sbatch as MARK.1
    an earlier one runs             unknown
    an earlier one made a job       that job
    an earlier one is unknown       unknown; the held retry of it runs sbatch under the next name
    the last certainly made no job  run sbatch in its place
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentError, AgentUnavailable, RequestFailed, SystemCallFailed
from redbox.agents.protocol.answers import CommandResult, RecordedCommand, RecordedCommandState
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import (
    SubmitAccepted,
    SubmitOutcome,
    SubmitRejected,
    SubmitUnavailable,
    SubmitUnknown,
    WorkloadManagerError,
)
from redbox.slurm.command_runner import CommandRunner
from redbox.slurm.commands import sbatch
from redbox.slurm.commands.sbatch import SbatchCall
from redbox.slurm.text.error_messages import words_of

MOST_TRIES = 20  # runs of sbatch for one mark whose outcomes are unknown


class SbatchRunner:
    """Runs sbatch through a user's agent."""

    def __init__(self, commands: CommandRunner) -> None:
        self._commands = commands

    async def submit(
        self, agent: AgentClient, call: SbatchCall, mark: str, *, held_retry: bool
    ) -> SubmitOutcome:
        """Run sbatch, unless an earlier one for this mark made a job, or may have."""
        outcome = await self._submit_as(kept_name(mark, 1), agent, call)
        if outcome is not None:
            return outcome
        try:
            earlier = await self._recall_all(agent, mark)
        except AgentError as error:
            return SubmitUnknown(error.detail)
        for kept in earlier:
            outcome = earlier_outcome(kept, held_retry=held_retry)
            if outcome is not None:
                return outcome
        return await self._submit_again(agent, call, mark, earlier)

    async def _submit_again(
        self, agent: AgentClient, call: SbatchCall, mark: str, earlier: Sequence[RecordedCommand]
    ) -> SubmitOutcome:
        """Run sbatch in place of the last one if that certainly made no job, else under the next name.

        Only the last is replaced: `_recall_all` reads from the first name to one that was never used.
        """
        replaces = earlier[-1].outcome_id if earlier and certainly_made_no_job(earlier[-1]) else None
        count = len(earlier) + (replaces is None)
        if count > MOST_TRIES:
            return SubmitUnavailable(
                f"The outcomes of {MOST_TRIES} submits of this job are unknown. "
                "Wait a day, or use another key."
            )
        outcome = await self._submit_as(kept_name(mark, count), agent, call, replaces)
        return outcome or SubmitUnknown("another submit of this job started at the same time")

    async def _submit_as(
        self, name: str, agent: AgentClient, call: SbatchCall, replaces: str | None = None
    ) -> SubmitOutcome | None:
        """The outcome, or None where another sbatch has this name."""
        try:
            completed = await self._run(
                agent, call, {}, self._commands.settings.submit_s, keep=name, replaces=replaces
            )
        except RequestFailed as failed:
            if isinstance(failed, SystemCallFailed) and failed.errno == errno.EEXIST:
                return None
            return SubmitUnavailable(f"sbatch could not be run: {failed.detail}")
        except AgentUnavailable as busy:
            return SubmitUnavailable(busy.detail)
        except AgentError as lost:
            return SubmitUnknown(lost.detail)
        return outcome_of(completed)

    async def check(self, agent: AgentClient, call: SbatchCall) -> CommandResult:
        return await self._run(agent, call, sbatch.CHECK_ENVIRONMENT, self._commands.settings.read_s)

    async def _run(
        self,
        agent: AgentClient,
        call: SbatchCall,
        env: Mapping[str, str],
        deadline: float,
        *,
        keep: str | None = None,
        replaces: str | None = None,
    ) -> CommandResult:
        completed = None
        try:
            completed = await agent.run(
                call.argv,
                stdin=call.script,
                env={**self._commands.settings.environment, **env},
                deadline=deadline,
                inherit={call.placeholder: call.export},
                keep=keep,
                replaces=replaces,
            )
            return completed
        finally:
            took_s = completed.took_s if completed else deadline
            self._commands.on_call("sbatch", took_s, completed is not None)

    async def is_running(self, agent: AgentClient, user: UnixUser, mark: str) -> bool:
        """By the kept commands, and by the list of processes: an agent without a record may have died."""
        if any(kept.state is RecordedCommandState.RUNNING for kept in await self._recall_all(agent, mark)):
            return True
        argv = ["ps", "-ww", "-u", str(user.uid), "-o", "args="]
        completed = await agent.run(argv, env={}, deadline=self._commands.settings.read_s)
        if completed.timed_out:
            raise WorkloadManagerError("ps gave no answer", timed_out=True)
        if f"--comment={mark}".encode() in completed.stdout:
            return True
        if completed.truncated or completed.code != 0:  # without the mark, half a list shows nothing
            words = words_of(completed.stderr) or f"exit code {completed.code}"
            why = "wrote too much" if completed.truncated else f"failed ({words})"
            raise WorkloadManagerError(
                f"whether a submit of {user.name} is still under way could not be found out: ps {why}"
            )
        return False

    async def _recall_all(self, agent: AgentClient, mark: str) -> list[RecordedCommand]:
        """Every sbatch for this mark that the user's host has a record of, the last one last."""
        found: list[RecordedCommand] = []
        while len(found) < MOST_TRIES:
            kept = await agent.recall(kept_name(mark, len(found) + 1))
            if kept.state is RecordedCommandState.NOT_RECORDED:
                break
            found.append(kept)
        return found


def kept_name(mark: str, count: int) -> str:
    return f"{mark}.{count}"


def earlier_outcome(kept: RecordedCommand, *, held_retry: bool) -> SubmitOutcome | None:
    """The outcome of an earlier sbatch: None where another one may run.

    That is where the earlier one certainly made no job, and, for a held retry, where its outcome is unknown.
    """
    if kept.state is RecordedCommandState.RUNNING:
        return SubmitUnknown("an earlier submit of this job is still under way")
    if certainly_made_no_job(kept):
        return None
    if kept.completed is None:
        return None if held_retry else SubmitUnknown("the end of an earlier submit of this job is unknown")
    outcome = outcome_of(kept.completed)
    return None if held_retry and isinstance(outcome, SubmitUnknown) else outcome


def certainly_made_no_job(kept: RecordedCommand) -> bool:
    return kept.completed is not None and isinstance(
        outcome_of(kept.completed), SubmitRejected | SubmitUnavailable
    )


def outcome_of(completed: CommandResult) -> SubmitOutcome:
    outcome = sbatch.read_submit(completed.code, completed.stdout, completed.stderr)
    if completed.timed_out and not isinstance(outcome, SubmitAccepted):
        return SubmitUnknown(f"sbatch gave no answer within {completed.took_s:.0f} s.")
    return outcome
