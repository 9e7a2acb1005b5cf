"""Brings a request to sbatch: directory made, credentials laid ready, sbatch called once as the user.

A submit is never killed and never begun twice: sbatch is a kept command of the user's agent, named by the
mark and a count. A name is used again only where its last sbatch surely made no job. What sbatch says is
judged in `sbatch` and `refusals`.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from redbox.agents.errors import AgentError, AgentRefused, AgentUnavailable, RequestFailed, SystemFault
from redbox.agents.protocol.answers import Completed, Kept, KeptState
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import (
    Submission,
    SubmitAccepted,
    SubmitOutcome,
    SubmitRejected,
    SubmitUnavailable,
    SubmitUnknown,
    WorkloadManagerError,
)
from redbox.slurm.cluster_queries import ClusterQueries
from redbox.slurm.command_runner import CommandRunner, SlurmAgent
from redbox.slurm.commands import sbatch
from redbox.slurm.commands.sbatch import SbatchCall
from redbox.slurm.commands.srun import check_mpi_kind
from redbox.slurm.errors import RequestRefused
from redbox.slurm.submit import container_script
from redbox.slurm.submit.registry_credentials import credentials_path, remove_credentials
from redbox_api.models import Check

ENVIRONMENT_OF = ("/usr/bin/env", "-0")
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT})
MOST_TRIES = 20  # submits under one mark of which nobody knows what became


@dataclass(frozen=True, slots=True)
class Ready:
    """A submission whose paths are known, and the files that it left on its way."""

    submission: Submission
    call: SbatchCall
    credentials: str | None = None


class SbatchRunner:
    """All submits, through each user's own agent."""

    def __init__(self, calls: CommandRunner, inventory: ClusterQueries) -> None:
        self._calls = calls
        self._inventory = inventory
        self._account_env: dict[UnixUser, dict[str, str]] = {}

    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        """What surely did not reach Slurm is Refused or Unavailable; all else that failed is Unknown."""
        try:
            ready = await self._prepare(user, submission)
            await self._lay_ready(user, ready)
            agent = await self._calls.agents.agent(user)
        except RequestRefused as refused:
            return SubmitRejected(refused.detail)
        except AgentRefused as refused:
            return SubmitRejected(refused.detail)
        except (AgentError, WorkloadManagerError) as fault:
            return SubmitUnavailable(fault.detail)
        outcome = await self._run(agent, ready)
        if isinstance(outcome, SubmitAccepted):
            return replace(outcome, working_directory=ready.submission.working_directory)
        if ready.credentials is not None and not isinstance(outcome, SubmitUnknown):
            with contextlib.suppress(AgentError, TimeoutError):  # they stay where only the user reads them
                await remove_credentials(self._calls.agents, user, ready.credentials)
        return outcome

    async def check(self, user: UnixUser, submission: Submission) -> Check:
        try:
            ready = await self._prepare(user, submission)
            call = sbatch.plan_check(ready.call)
            agent = await self._calls.agents.agent(user)
            completed = await self._call(
                agent, call, sbatch.CHECK_ENVIRONMENT, self._calls.settings.read_s, keep=None
            )
        except RequestRefused as refused:
            return Check(valid=False, detail=refused.detail)
        except AgentError as error:
            raise WorkloadManagerError(error.detail) from error
        if completed.timed_out:
            raise WorkloadManagerError("sbatch gave no answer", timed_out=True)
        return sbatch.read_check(completed.code, completed.stderr)

    async def tidy(self, user: UnixUser, mark: str, working_directory: str) -> None:
        """Remove the credentials of a job that has ended."""
        try:
            home = (await self._environment_of(user)).get("HOME", "/")
            path = credentials_path(working_directory.replace("{home}", home), mark)
            await remove_credentials(self._calls.agents, user, path)
        except (AgentError, TimeoutError) as error:
            raise WorkloadManagerError(f"credentials could not be removed: {error}") from error

    # ------------------------------------------------------------------------------------------ before sbatch
    async def _prepare(self, user: UnixUser, submission: Submission) -> Ready:
        """All that can be told without changing anything."""
        facts = await self._inventory.facts()
        if facts.federation is not None and not self._calls.settings.allow_federation:
            raise RequestRefused(
                f"This cluster is in federation {facts.federation}, whose jobs may run where red-box does "
                "not look. Its administrator can set slurm.allow_federation."
            )
        account_env = await self._environment_of(user)
        home = account_env.get("HOME", "/")
        directory = submission.working_directory.replace("{home}", home)
        if not directory.startswith("/"):
            raise RequestRefused(f"workingDirectory: {directory!r} is no absolute path.")
        submission = replace(submission, working_directory=directory)
        if submission.request.container is None:
            call = self._plan(submission, submission.request.batch or "", account_env)
            return Ready(submission, call)
        return await self._prepare_container(user, submission, account_env)

    async def _prepare_container(
        self, user: UnixUser, submission: Submission, account_env: Mapping[str, str]
    ) -> Ready:
        request = submission.request
        container = request.container
        if container is not None and container.options.mpi is not None:
            check_mpi_kind(container.options.mpi, await self._inventory.mpi_kinds())
        asked = container is not None and container.registry is not None
        credentials = credentials_path(submission.working_directory, submission.mark) if asked else None
        cache = self._calls.settings.image_cache.replace("{home}", account_env.get("HOME", "/"))
        places = container_script.ContainerPaths(
            image_cache=cache.replace("{user}", user.name),
            credentials=credentials,
            setup=self._calls.settings.container_setup,
            keep_days=self._calls.settings.images_days,
        )
        script = container_script.build_container_script(request, places)
        handed_on = request.model_copy(update={"env": container_script.container_environment(request.env)})
        call = self._plan(replace(submission, request=handed_on), script, account_env)
        return Ready(submission, call, credentials)

    def _plan(self, submission: Submission, script: str, account_env: Mapping[str, str]) -> SbatchCall:
        return sbatch.plan_submit(submission, script, account_env, f"{{export-{secrets.token_hex(8)}}}")

    async def _environment_of(self, user: UnixUser) -> dict[str, str]:
        """HOME, USER, LOGNAME, SHELL, PATH and LANG of the account, and what Slurm's tools need here."""
        if user not in self._account_env:
            agent = await self._calls.agents.agent(user)
            completed = await agent.run(ENVIRONMENT_OF, deadline=self._calls.settings.read_s)
            pairs = (
                entry.partition("=") for entry in completed.stdout.decode("utf-8", "replace").split("\0")
            )
            self._account_env[user] = {name: value for name, equals, value in pairs if equals}
        return {**self._account_env[user], **self._calls.settings.environment}

    async def _lay_ready(self, user: UnixUser, ready: Ready) -> None:
        """Make the working directory, and write the credentials where only the user can read them."""
        agent = await self._calls.agents.agent(user, "files")
        directory = ready.submission.working_directory
        try:
            await agent.make_directory(directory)
            container = ready.submission.request.container
            if ready.credentials is not None and container is not None and container.registry is not None:
                await agent.make_directory(posixpath.dirname(ready.credentials), mode=0o700)
                await agent.write(
                    ready.credentials, container_script.credentials_file(container.registry), mode=0o600
                )
        except SystemFault as fault:
            words = f"workingDirectory: {directory} cannot be made or written: {fault.detail}."
            if fault.errno in FULL:
                raise WorkloadManagerError(words) from fault
            raise RequestRefused(words) from fault

    # ------------------------------------------------------------------------------------------ sbatch
    async def _run(self, agent: SlurmAgent, ready: Ready) -> SubmitOutcome:
        """Call sbatch, unless an earlier submit of this mark made a job, or may have."""
        mark = ready.submission.mark
        outcome = await self._run_as(agent, ready, kept_name(mark, 1))
        if outcome is not None:
            return outcome
        try:
            earlier = await self._earlier(agent, mark)
        except AgentError as error:
            return SubmitUnknown(error.detail)
        for kept in earlier:
            outcome = what_became_of(kept, retry=ready.submission.held)
            if outcome is not None:
                return outcome
        return await self._run_after(agent, ready, earlier)

    async def _run_after(self, agent: SlurmAgent, ready: Ready, earlier: Sequence[Kept]) -> SubmitOutcome:
        """Call sbatch in place of the last submit if that surely made no job, else under the next name.

        Only the last may give way: whoever looks for a submit that is under way looks from the first name to
        one that was never used.
        """
        replaces = earlier[-1].outcome_id if earlier and surely_made_no_job(earlier[-1]) else None
        count = len(earlier) + (replaces is None)
        if count > MOST_TRIES:
            return SubmitUnavailable(
                f"What became of {MOST_TRIES} submits of this job is not known. "
                "Wait a day, or use another key."
            )
        outcome = await self._run_as(agent, ready, kept_name(ready.submission.mark, count), replaces)
        return outcome or SubmitUnknown("another submit of this job was begun at the same moment")

    async def _run_as(
        self, agent: SlurmAgent, ready: Ready, keep: str, replaces: str | None = None
    ) -> SubmitOutcome | None:
        """Its outcome, or None where another submit has this name."""
        try:
            completed = await self._call(
                agent, ready.call, {}, self._calls.settings.submit_s, keep=keep, replaces=replaces
            )
        except RequestFailed as failed:
            if isinstance(failed, SystemFault) and failed.errno == errno.EEXIST:
                return None
            return SubmitUnavailable(f"sbatch could not be run: {failed.detail}")
        except AgentUnavailable as busy:
            return SubmitUnavailable(busy.detail)
        except AgentError as lost:
            return SubmitUnknown(lost.detail)
        return outcome_of(completed)

    async def _earlier(self, agent: SlurmAgent, mark: str) -> list[Kept]:
        """All submits of this mark that the user's host knows, the last one last."""
        known: list[Kept] = []
        while len(known) < MOST_TRIES:
            kept = await agent.recall(kept_name(mark, len(known) + 1))
            if kept.state is KeptState.UNHEARD:
                break
            known.append(kept)
        return known

    async def _call(
        self,
        agent: SlurmAgent,
        call: SbatchCall,
        env: Mapping[str, str],
        deadline: float,
        *,
        keep: str | None,
        replaces: str | None = None,
    ) -> Completed:
        completed = None
        try:
            completed = await agent.run(
                call.argv,
                stdin=call.script,
                env={**self._calls.settings.environment, **env},
                deadline=deadline,
                inherit={call.placeholder: call.export},
                keep=keep,
                replaces=replaces,
            )
            return completed
        finally:
            self._calls.note(
                "sbatch", completed.took_s if completed else deadline, answered=completed is not None
            )

    async def submitting(self, user: UnixUser, mark: str) -> bool:
        """Whether an sbatch with this mark runs on the user's host, whichever agent began it."""
        try:
            agent = await self._calls.agents.agent(user)
            if any(kept.state is KeptState.RUNNING for kept in await self._earlier(agent, mark)):
                return True
            return await self._is_listed(agent, user, mark)
        except AgentError as error:
            raise WorkloadManagerError(error.detail) from error

    async def _is_listed(self, agent: SlurmAgent, user: UnixUser, mark: str) -> bool:
        """By the list of processes: an agent that could keep no record may have died over its sbatch."""
        argv = ["ps", "-ww", "-u", str(user.uid), "-o", "args="]
        completed = await agent.run(argv, env={}, deadline=self._calls.settings.read_s)
        if completed.timed_out:
            raise WorkloadManagerError("ps gave no answer", timed_out=True)
        return f"--comment={mark}".encode() in completed.stdout


def kept_name(mark: str, count: int) -> str:
    return f"{mark}.{count}"


def what_became_of(kept: Kept, *, retry: bool) -> SubmitOutcome | None:
    """The outcome of an earlier submit: None where sbatch is to be called once more.

    That is where it surely made no job; and where nobody knows, if this is the held retry of it.
    """
    if kept.state is KeptState.RUNNING:
        return SubmitUnknown("an earlier submit of this job is still under way")
    if surely_made_no_job(kept):
        return None
    if kept.completed is None:
        return None if retry else SubmitUnknown("nobody saw the end of an earlier submit of this job")
    outcome = outcome_of(kept.completed)
    return None if retry and isinstance(outcome, SubmitUnknown) else outcome


def surely_made_no_job(kept: Kept) -> bool:
    return kept.completed is not None and isinstance(
        outcome_of(kept.completed), SubmitRejected | SubmitUnavailable
    )


def outcome_of(completed: Completed) -> SubmitOutcome:
    outcome = sbatch.read_submit(completed.code, completed.stdout, completed.stderr)
    if completed.timed_out and not isinstance(outcome, SubmitAccepted):
        return SubmitUnknown(f"sbatch gave no answer within {completed.took_s:.0f} s.")
    return outcome
