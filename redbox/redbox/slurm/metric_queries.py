"""Slurm's metrics: one query of jobs, nodes and scheduler at most every 30 s, and none without a scrape.

Polls cannot serve them, as they show the users that have jobs here, or are probes. Under PrivateData there
are none, as with slurmctld's own: numbers of few jobs would show what it hides.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from redbox.core.gauges import FamilyOfGauges, MetricFamily
from redbox.core.ttl_cache import TtlCache
from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.cluster_queries import ClusterQueries
from redbox.slurm.command_runner import CommandRunner
from redbox.slurm.commands import counted_jobs, counted_nodes, scontrol, sdiag, squeue
from redbox.slurm.metrics.job_gauges import QueueCounts, job_gauges, user_and_account_gauges
from redbox.slurm.metrics.node_gauges import node_gauges, partition_gauges
from redbox.slurm.metrics.scheduler_gauges import scheduler_gauges
from redbox.slurm.text.record_format import ParseReport, RecordFormat

FAILURE_TTL_S = 5.0
AT_ONCE = 2000
"""Records that are parsed before other requests have their turn."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodesAndPartitions:
    """All nodes, and the names of all partitions."""

    nodes: tuple[counted_nodes.CountedNode, ...]
    partitions: tuple[str, ...]


class MetricQueries:
    """The metrics of one Slurm cluster."""

    def __init__(self, commands: CommandRunner, cluster: ClusterQueries) -> None:
        settings = commands.settings.metrics
        self._commands = commands
        self._cluster = cluster
        self._most = settings.values_of_a_label
        self.serves_users_accounts = settings.users_accounts
        self._json_from = float("-inf")  # later where sdiag wrote none: slurmctld may only have been away

        def cached(query: Callable[[], Awaitable[T]]) -> TtlCache[T]:
            return TtlCache(query, settings.every_s, failure_ttl_s=FAILURE_TTL_S, clock=commands.clock)

        self._queue = cached(self._query_queue)
        self._nodes = cached(self._query_nodes)
        self._scheduler = cached(self._query_scheduler)
        self._families: Mapping[MetricFamily, Callable[[], Awaitable[FamilyOfGauges]]] = {
            MetricFamily.JOBS: self._jobs,
            MetricFamily.NODES: self._of_nodes,
            MetricFamily.PARTITIONS: self._of_partitions,
            MetricFamily.SCHEDULER: self._of_scheduler,
            MetricFamily.USERS_ACCOUNTS: self._users_accounts,
        }

    async def family(self, name: MetricFamily) -> FamilyOfGauges:
        """The newest numbers; WorkloadManagerError where there are none, with the reason."""
        private = (await self._cluster.recent_configuration()).private_data
        if private:
            hidden = ", ".join(sorted(private))
            raise WorkloadManagerError(
                f"PrivateData ({hidden}) in slurm.conf hides data of users, so no metrics of Slurm are served"
            )
        return await self._families[name]()

    async def _jobs(self) -> FamilyOfGauges:
        return job_gauges((await self._queue.get()).cluster)

    async def _users_accounts(self) -> FamilyOfGauges:
        return user_and_account_gauges(await self._queue.get(), self._most)

    async def _of_nodes(self) -> FamilyOfGauges:
        shown = await self._nodes.get()
        return node_gauges({node.name: node for node in shown.nodes}, self._most)

    async def _of_partitions(self) -> FamilyOfGauges:
        queue, shown = await asyncio.gather(self._queue.get(), self._nodes.get())
        return partition_gauges(shown.partitions, shown.nodes, queue.partitions, self._most)

    async def _of_scheduler(self) -> FamilyOfGauges:
        return scheduler_gauges(await self._scheduler.get())

    # -- queries

    async def _query_queue(self) -> QueueCounts:
        record_format, report = RecordFormat.new(counted_jobs.FIELDS), ParseReport()
        env = squeue.environment(record_format)
        text = await self._commands.read(squeue.all_jobs_argv(), env=env)
        jobs = await counted(counted_jobs.read_jobs(text, record_format, report))
        report.refuse_incomplete("squeue")
        return QueueCounts.of(jobs)

    async def _query_nodes(self) -> NodesAndPartitions:
        report = ParseReport()
        text = await self._commands.read(counted_nodes.nodes_argv())
        nodes = await counted(counted_nodes.read_nodes(text, report))
        report.refuse_incomplete("scontrol show node")
        rows = scontrol.read_partitions(await self._commands.read(scontrol.partitions_argv()))
        return NodesAndPartitions(tuple(nodes), tuple(row.name for row in rows))

    async def _query_scheduler(self) -> Mapping[str, float]:
        settings, clock = self._commands.settings, self._commands.clock
        left_s, asks_json = settings.read_s, clock.monotonic() >= self._json_from
        if asks_json:
            completed = await self._commands.complete(self._commands.observer, sdiag.json_argv())
            numbers = (
                sdiag.read_json(completed.stdout.decode("utf-8", "replace")) if not completed.code else {}
            )
            if numbers:
                return numbers
            left_s = max(1.0, left_s - completed.took_s)  # both together keep within a scrape
        numbers = sdiag.read_text(await self._commands.read(sdiag.text_argv(), deadline=left_s))
        if not numbers:
            raise WorkloadManagerError("sdiag's output could not be parsed")
        if asks_json:
            self._json_from = clock.monotonic() + settings.facts_s
        return numbers


async def counted(records: Iterable[T]) -> Counter[T]:
    """How often each record comes; between pieces of a long output others have their turn."""
    found: Counter[T] = Counter()
    for number, record in enumerate(records, 1):
        found[record] += 1
        if not number % AT_ONCE:
            await asyncio.sleep(0)
    return found
