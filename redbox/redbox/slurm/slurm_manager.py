"""Slurm as red-box's workload manager: what `jobs` asks, passed to the parts that know."""

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
    QueueSnapshot,
    StepUsage,
    Submission,
    SubmitOutcome,
)
from redbox.slurm.cluster_facts import Inventory
from redbox.slurm.command_runner import Agents, Calls, OnCall
from redbox.slurm.commands.squeue import Wanted
from redbox.slurm.job_actions import Acts
from redbox.slurm.own_account_commands import OwnCommands
from redbox.slurm.queries import Reads
from redbox.slurm.settings import SlurmSettings
from redbox.slurm.submit.sbatch_runner import Submits
from redbox.slurm.text.states import JOB_STATES
from redbox_api.models import Check, Cluster, Partition


class SlurmManager:
    """A `WorkloadManager`.

    `observer` is the account that reads the queue and the accounting: red-box's own where it runs on a login
    node, else one that it has an agent of.
    """

    name = "slurm"
    states = JOB_STATES

    def __init__(
        self,
        agents: Agents,
        observer: UnixUser,
        settings: SlurmSettings | None = None,
        *,
        on_call: OnCall | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        own = OwnCommands() if observer.uid == os.geteuid() else None
        calls = Calls(
            agents, observer, settings or SlurmSettings(), own=own, on_call=on_call, clock=monotonic
        )
        self._inventory = Inventory(calls, monotonic)
        self._reads = Reads(calls, self._inventory, now=now, monotonic=monotonic)
        self._acts = Acts(calls, self._reads, sleep)
        self._submits = Submits(calls, self._inventory)

    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        return await self._submits.submit(user, submission)

    async def check(self, user: UnixUser, submission: Submission) -> Check:
        return await self._submits.check(user, submission)

    async def act(self, handle: JobHandle, act: JobAction, *, signal: str | None = None) -> ActionResult:
        return await self._acts.act(handle, act, signal)

    async def tidy(self, user: UnixUser, mark: str, working_directory: str) -> None:
        await self._submits.tidy(user, mark, working_directory)

    async def poll(
        self, *, users: Collection[UnixUser] | None = None, wanted: Wanted | None = None
    ) -> QueueSnapshot:
        """`wanted` says by id and comment which records can matter: the rest costs no more than its text."""
        return await self._reads.poll(users, wanted)

    async def glance(self, job_ids: Collection[str]) -> int | None:
        return await self._reads.glance(job_ids)

    async def find_live(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> FoundJobs:
        return await self._reads.find_live(job_ids, users)

    async def history(
        self, job_ids: Collection[str], *, since: datetime, users: Collection[UnixUser] | None = None
    ) -> AccountingSnapshot:
        """By id, whenever it was: `since` is not needed, for ids are never too old for sacct -j."""
        del since
        return await self._reads.history(job_ids, users)

    async def history_of(self, user: UnixUser, *, since: datetime) -> AccountingSnapshot:
        return await self._reads.history_of(user, since)

    async def usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[StepUsage, ...]:
        return await self._reads.usage(user, job_ids)

    async def submitting(self, user: UnixUser, mark: str) -> bool:
        return await self._submits.submitting(user, mark)

    def appends(self) -> bool:
        return self._inventory.appends()

    async def cluster(self) -> Cluster:
        return await self._inventory.cluster()

    async def partitions(self) -> tuple[Partition, ...]:
        return await self._inventory.partitions()

    async def associations(self, user: UnixUser) -> Mapping[str, tuple[str, ...]]:
        return await self._inventory.associations(user)
