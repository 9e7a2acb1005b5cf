"""Slurm as red-box's workload manager: each method of the seam, passed to the part that does it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import (
    AccountingSnapshot,
    ActionResult,
    FoundJobs,
    JobAction,
    JobHandle,
    JobOutput,
    QueueSnapshot,
    StepUsage,
    Submission,
    SubmitOutcome,
)
from redbox.slurm.cluster_queries import ClusterQueries
from redbox.slurm.command_runner import CommandRunner, OnCall, SlurmAgents
from redbox.slurm.commands.squeue import RecordFilter
from redbox.slurm.job_actions import SlurmActions
from redbox.slurm.job_queries import JobQueries
from redbox.slurm.own_account_commands import OwnAccountCommands
from redbox.slurm.settings import SlurmSettings
from redbox.slurm.submit.submitter import SlurmSubmitter
from redbox.slurm.text.states import JOB_STATES
from redbox_api.models import Check, Cluster, Partition


class SlurmManager:
    """A `WorkloadManager`.

    `observer` is the account that reads the queue and the accounting: red-box's own on a login node, else an
    account that red-box has an agent for.
    """

    name = "slurm"
    states = JOB_STATES

    def __init__(
        self,
        agents: SlurmAgents,
        observer: UnixUser,
        settings: SlurmSettings | None = None,
        *,
        on_call: OnCall | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        own = OwnAccountCommands() if observer.uid == os.geteuid() else None
        commands = CommandRunner(
            agents, observer, settings or SlurmSettings(), own=own, on_call=on_call, clock=monotonic
        )
        self._cluster = ClusterQueries(commands, monotonic)
        self._queries = JobQueries(commands, self._cluster, now=now, monotonic=monotonic)
        self._actions = SlurmActions(commands, self._queries, sleep)
        self._submitter = SlurmSubmitter(commands, self._cluster)

    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        return await self._submitter.submit(user, submission)

    async def check(self, user: UnixUser, submission: Submission) -> Check:
        return await self._submitter.check(user, submission)

    async def act(self, handle: JobHandle, act: JobAction, *, signal: str | None = None) -> ActionResult:
        return await self._actions.act(handle, act, signal)

    async def depend(self, handle: JobHandle, dependencies: Collection[str]) -> ActionResult:
        return await self._actions.depend(handle, dependencies)

    async def tidy(self, user: UnixUser, mark: str, working_directory: str) -> None:
        await self._submitter.tidy(user, mark, working_directory)

    async def poll(
        self, *, users: Collection[UnixUser] | None = None, wanted: RecordFilter | None = None
    ) -> QueueSnapshot:
        """Records that `wanted` rejects by id and comment are never parsed."""
        return await self._queries.poll(users, wanted)

    async def glance(self, job_ids: Collection[str]) -> int | None:
        return await self._queries.glance(job_ids)

    async def find_live(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> FoundJobs:
        return await self._queries.find_live(job_ids, users)

    async def history(
        self, job_ids: Collection[str], *, since: datetime, users: Collection[UnixUser] | None = None
    ) -> AccountingSnapshot:
        """`since` is not needed: sacct -j finds an id of any age."""
        del since
        return await self._queries.history(job_ids, users)

    async def history_of(self, user: UnixUser, *, since: datetime) -> AccountingSnapshot:
        return await self._queries.history_of(user, since)

    async def usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[StepUsage, ...]:
        return await self._queries.usage(user, job_ids)

    async def submitting(self, user: UnixUser, mark: str) -> bool:
        return await self._submitter.is_submitting(user, mark)

    async def boot_time(self) -> str:
        return await self._cluster.ask_boot_time()

    async def output_exists(self, output: JobOutput) -> bool:
        return await self._submitter.output_exists(output)

    def appends(self) -> bool:
        return self._cluster.appends()

    async def cluster(self) -> Cluster:
        return await self._cluster.cluster()

    async def partitions(self) -> tuple[Partition, ...]:
        return await self._cluster.partitions()

    async def associations(self, user: UnixUser) -> Mapping[str, tuple[str, ...]]:
        return await self._cluster.associations(user)
