"""From a submission to sbatch's answer.

1. The working directory becomes absolute.
2. The call is built: script, environment and argument list (`container_script`, `pod_script`,
   `commands.sbatch`).
3. The working directory is created, and in it the private folder of a pod, or of registry credentials.
4. sbatch runs as the user, at most once for the submission's mark (`sbatch_runner`).
5. Its answer is accepted, rejected, unavailable or unknown (`commands.sbatch`, `text.error_messages`).
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import secrets
from dataclasses import replace
from functools import partial

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentError, AgentRefused, SystemCallFailed
from redbox.agents.protocol.answers import Hello
from redbox.core.domain import UnixUser
from redbox.core.output_patterns import RUNNER_LOG, PatternValues, resolve_unless_array
from redbox.core.turns import in_thread_of
from redbox.core.workload_manager import (
    ActionResult,
    ReportPiece,
    ReportPosition,
    Submission,
    SubmitAccepted,
    SubmitOutcome,
    SubmitRejected,
    SubmitUnavailable,
    SubmitUnknown,
    WorkloadManagerError,
)
from redbox.slurm.cluster_queries import ClusterQueries
from redbox.slurm.command_runner import CommandRunner
from redbox.slurm.commands import sbatch
from redbox.slurm.commands.srun import check_mpi_kind
from redbox.slurm.errors import RequestRefused
from redbox.slurm.submit import container_script, pod_files, pod_reports, pod_updates
from redbox.slurm.submit.output_lookup import OutputLookup, home_of
from redbox.slurm.submit.pod_check import check_pod
from redbox.slurm.submit.pod_script import build_pod_script
from redbox.slurm.submit.private_folder import (
    credentials_path_of,
    private_folder,
    private_folder_of,
    remove_private_folder,
)
from redbox.slurm.submit.refusal_policy import RefusalPolicy
from redbox.slurm.submit.sbatch_runner import SbatchRunner
from redbox_api.models import Check
from redbox_api.pod_parts import PodProgram, PodUpdate
from redbox_shared.keyed_semaphores import KeyedSemaphores

PRINT_ENVIRONMENT = ("/usr/bin/env", "-0")
LONGEST_ENVIRONMENT = 64 * 1024  # it has six variables; what the user's agent answers is kept
CHECKS_IN_PARALLEL = 1  # of one user: each is a process on the login node, and others' submits are, too
TEMPORARY = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT})


class SlurmSubmitter:
    """Submits and checks jobs, each through its user's own agent."""

    def __init__(self, commands: CommandRunner, cluster: ClusterQueries) -> None:
        self._commands = commands
        self._cluster = cluster
        self._sbatch = SbatchRunner(commands)
        self._checks = KeyedSemaphores[UnixUser](CHECKS_IN_PARALLEL)
        self._refusals = RefusalPolicy(commands.clock.monotonic)
        self._account_env: dict[UnixUser, tuple[Hello, dict[str, str]]] = {}
        """With the agent that has shown it: the next one may have another home."""
        self.find_outputs = OutputLookup(commands.agents).find

    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        """Rejected and Unavailable: certainly no job was made. Every other failure is Unknown."""
        try:
            boot_time = await self._cluster.recent_boot_time()
            submission = await self._resolve_directory(user, submission)
            call = await self._build_call(user, submission)
            await self._create_files(user, submission)
            agent = await self._commands.agents.agent(user)
        except RequestRefused as refused:
            return SubmitRejected(refused.detail)
        except AgentRefused as refused:
            return self._refusals.outcome_of(user, refused)
        except (AgentError, WorkloadManagerError) as fault:
            return SubmitUnavailable(fault.detail)
        self._refusals.note_agent(user)
        outcome = await self._sbatch.submit(agent, call, submission.mark, held_retry=submission.held)
        if isinstance(outcome, SubmitAccepted):
            directory = submission.working_directory
            values = PatternValues(outcome.job_id, user.name, submission.job_name, directory)
            return replace(
                outcome,
                working_directory=directory,
                stdout=resolve_unless_array(call.stdout, values, is_array=call.is_array),
                stderr=resolve_unless_array(call.stderr, values, is_array=call.is_array),
                boot_time=boot_time,
            )
        if not isinstance(outcome, SubmitUnknown):
            await self._discard_private_folder(user, submission)
        return outcome

    async def check(self, user: UnixUser, submission: Submission) -> Check:
        try:
            submission = await self._resolve_directory(user, submission)
            call = sbatch.build_check_call(await self._build_call(user, submission))
            agent = await self._commands.agents.agent(user)
            async with self._checks.of(user):
                completed = await self._sbatch.check(agent, call)
        except RequestRefused as refused:
            return Check(valid=False, detail=refused.detail)
        except AgentError as error:
            raise WorkloadManagerError(error.detail) from error
        if completed.timed_out:
            raise WorkloadManagerError("sbatch gave no answer", timed_out=True)
        return sbatch.read_check(completed.code, completed.stderr)

    async def tidy(self, user: UnixUser, mark: str, working_directory: str) -> None:
        """Remove the private folder of a job that has ended."""
        try:
            agent = await self._commands.agents.agent(user, "files")
            folder = private_folder(working_directory.replace("{home}", home_of(agent)), mark)
            await remove_private_folder(self._commands.agents, user, folder)
        except (AgentError, TimeoutError) as error:
            raise WorkloadManagerError(f"a job's private folder could not be removed: {error}") from error

    async def report(
        self, user: UnixUser, mark: str, working_directory: str, since: ReportPosition | None
    ) -> ReportPiece:
        """Read on in what the runner of a pod reports."""
        try:
            agent = await self._commands.agents.agent(user, "files")
            folder = private_folder(working_directory.replace("{home}", home_of(agent)), mark)
            return await pod_reports.read_report(agent, posixpath.join(folder, pod_reports.FILE), since)
        except AgentError as error:
            raise WorkloadManagerError(f"a pod's report could not be read: {error}") from error

    async def update_pod(
        self, user: UnixUser, mark: str, working_directory: str, update: PodUpdate
    ) -> ActionResult:
        """Write what has changed of a pod into its private folder."""
        try:
            archive = await in_thread_of(user.name, partial(pod_updates.pack_update, update))  # up to 8 MiB
            agent = await self._commands.agents.agent(user, "files")
            folder = private_folder(working_directory.replace("{home}", home_of(agent)), mark)
            await pod_updates.write_update(agent, folder, archive)
        except RequestRefused as refused:
            return ActionResult(done=False, detail=refused.detail)
        except AgentError as error:
            raise WorkloadManagerError(f"its files could not be written: {error}") from error
        return ActionResult(done=True)

    async def submitting(self, user: UnixUser, mark: str) -> bool:
        """Whether an sbatch with this mark runs on the user's host, whichever agent started it."""
        try:
            agent = await self._commands.agents.agent(user)
            return await self._sbatch.is_running(agent, user, mark)
        except AgentError as error:
            raise WorkloadManagerError(error.detail) from error

    async def _resolve_directory(self, user: UnixUser, submission: Submission) -> Submission:
        """The submission with an absolute working directory; refused where jobs may run elsewhere."""
        federation = (await self._cluster.configuration()).federation
        if federation is not None and not self._commands.settings.allow_federation:
            raise RequestRefused(
                f"This cluster is in federation {federation}, whose jobs may run on clusters that red-box "
                "does not watch. Its administrator can set slurm.allow_federation."
            )
        home = await self._home(user)
        directory = submission.working_directory.replace("{home}", home)
        if not directory.startswith("/"):
            raise RequestRefused(f"workingDirectory: {directory!r} is not an absolute path.")
        return replace(submission, working_directory=directory)

    async def _build_call(self, user: UnixUser, submission: Submission) -> sbatch.SbatchCall:
        """Changes nothing; RequestRefused where the request cannot become a job."""
        account_env = await self._account_environment(user)
        script = submission.request.batch or ""
        if submission.request.container is not None:
            submission, script = await self._container_job(user, submission)
        elif submission.request.pod is not None:
            submission, script = await self._pod_job(user, submission)
        return sbatch.build_call(submission, script, account_env, f"{{export-{secrets.token_hex(8)}}}")

    async def _home(self, user: UnixUser) -> str:
        return home_of(await self._commands.agents.agent(user))

    async def _container_job(self, user: UnixUser, submission: Submission) -> tuple[Submission, str]:
        """The submission of a container as sbatch gets it, and its script."""
        request, settings = submission.request, self._commands.settings
        if request.container is not None and request.container.options.mpi is not None:
            check_mpi_kind(request.container.options.mpi, await self._cluster.mpi_kinds())
        paths = container_script.ContainerPaths(
            image_cache=await self._image_cache(user),
            credentials=credentials_path_of(submission),
            setup=settings.container_setup,
            keep_days=settings.images_days,
        )
        env = container_script.container_environment(request.env)
        changed = replace(submission, request=request.model_copy(update={"env": env}))
        return changed, container_script.build_container_script(request, paths)

    async def _pod_job(self, user: UnixUser, submission: Submission) -> tuple[Submission, str]:
        """The submission of a pod as sbatch gets it, and its script."""
        request = submission.request
        await in_thread_of(user.name, partial(check_pod, request))  # up to 8 MiB
        if request.pod is not None and request.pod.mpi is not None:
            check_mpi_kind(request.pod.mpi, await self._cluster.mpi_kinds(), "pod.mpi")
        runner = pod_files.runner_path(await self._image_cache(user))
        folder = private_folder(submission.working_directory, submission.mark)
        script = build_pod_script(runner, folder, self._commands.settings.container_setup)
        output = request.output or RUNNER_LOG
        return replace(submission, request=request.model_copy(update={"output": output})), script

    async def _image_cache(self, user: UnixUser) -> str:
        home = await self._home(user)
        return self._commands.settings.image_cache.replace("{home}", home).replace("{user}", user.name)

    async def _account_environment(self, user: UnixUser) -> dict[str, str]:
        """HOME, USER, LOGNAME, SHELL, PATH and LANG of the account, and what Slurm's tools need here."""
        agent = await self._commands.agents.agent(user)
        shown_by, env = self._account_env.get(user, (None, {}))
        if shown_by != agent.hello:
            completed = await agent.run(
                PRINT_ENVIRONMENT,
                deadline=self._commands.settings.read_s,
                output_limit=LONGEST_ENVIRONMENT,
            )
            if completed.timed_out or completed.truncated or completed.code != 0:
                raise WorkloadManagerError(
                    f"the environment of {user.name} could not be read: {PRINT_ENVIRONMENT[0]} "
                    + ("gave no answer" if completed.timed_out else f"failed with code {completed.code}"),
                    timed_out=completed.timed_out,
                )
            entries = completed.stdout.decode("utf-8", "replace").split("\0")
            pairs = (entry.partition("=") for entry in entries)
            env = {name: value for name, equals, value in pairs if equals}
            self._account_env[user] = agent.hello, env
        return {**env, **self._commands.settings.environment}

    async def _create_files(self, user: UnixUser, submission: Submission) -> None:
        """Make the working directory, and in it what only the user can read."""
        agent = await self._commands.agents.agent(user, "files")
        directory, container = submission.working_directory, submission.request.container
        try:
            if submission.request.pod is not None:
                await self._lay_out_pod(user, agent, submission, submission.request.pod)
                return
            await agent.make_directory(directory)
            credentials = credentials_path_of(submission)
            if credentials is not None and container is not None and container.registry is not None:
                await agent.make_directory(posixpath.dirname(credentials), mode=0o700)
                content = container_script.credentials_file(container.registry)
                await agent.write(credentials, content, mode=0o600)
        except SystemCallFailed as fault:
            detail = f"workingDirectory: {directory} cannot be made or written: {fault.detail}."
            if fault.errno in TEMPORARY:
                raise WorkloadManagerError(detail) from fault
            raise RequestRefused(detail) from fault

    async def _lay_out_pod(
        self, user: UnixUser, agent: AgentClient, submission: Submission, pod: PodProgram
    ) -> None:
        settings, cache = self._commands.settings, await self._image_cache(user)
        directory = submission.working_directory
        paths = pod_files.PodPaths(
            logs=directory,
            cache=cache,
            keep_days=settings.images_days,
            images_within_s=settings.images_within_s,
        )
        folder = private_folder(directory, submission.mark)
        try:
            archive = await in_thread_of(user.name, partial(pod_files.pack, pod, paths))  # 4,000 files: 0.3 s
            await pod_files.lay_out(agent, folder, archive, pod_files.runner_path(cache))
        except (AgentError, WorkloadManagerError):
            await self._discard_private_folder(user, submission)
            raise

    async def _discard_private_folder(self, user: UnixUser, submission: Submission) -> None:
        """After a submit that made no job; a held retry shares it with the first submit, which may have."""
        folder = private_folder_of(submission)
        if folder is not None and not submission.held:
            with contextlib.suppress(AgentError, TimeoutError):  # it stays where only the user reads it
                await remove_private_folder(self._commands.agents, user, folder)
