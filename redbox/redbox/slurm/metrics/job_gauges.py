"""Jobs by state, of the cluster, of each partition, user and account.

As slurmctld counts: waiting tasks of an array one by one in `jobs`, `pending` and `hold`, everything else by
record. squeue shows one state of a job, a flag in place of the base: of a job that is completing its end is
not known yet, so that it counts as completing, finished and started.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from redbox.core.gauges import FamilyOfGauges, NamedGauge, first_by, number
from redbox.slurm.commands.counted_jobs import ALLOCATED, CountedJob
from redbox.slurm.text.states import is_waiting
from redbox_api.hostlists import expand

STATES: Mapping[str, tuple[str, ...]] = {
    "PENDING": (),
    "RUNNING": ("running", "started"),
    "SUSPENDED": ("suspended", "started"),
    "STOPPED": ("running", "started"),
    "CONFIGURING": ("configuring", "running", "started"),
    "POWER_UP_NODE": ("powerup_node",),
    "RESIZING": ("resizing", "running", "started"),
    "SIGNALING": ("signaling", "running", "started"),
    "EXPEDITING": ("expediting",),
    "REQUEUED": ("requeued",),
    "REQUEUE_FED": ("fed_requeued",),
    "REVOKED": ("revoked",),
    "COMPLETING": ("completing", "finished", "started"),
    "STAGE_OUT": ("stageout", "finished", "started"),
    "COMPLETED": ("completed", "finished", "started"),
    "CANCELLED": ("cancelled", "finished", "started"),
    "FAILED": ("failed", "finished", "started"),
    "TIMEOUT": ("timeout", "finished", "started"),
    "NODE_FAIL": ("node_failed", "finished", "started"),
    "PREEMPTED": ("preempted", "finished", "started"),
    "BOOT_FAIL": ("bootfail", "finished", "started"),
    "DEADLINE": ("deadline", "finished", "started"),
    "OUT_OF_MEMORY": ("outofmemory", "finished", "started"),
}
ENDED = frozenset(state for state, names in STATES.items() if "finished" in names) - {"COMPLETING"}
"""slurmctld leaves these out of a partition's number of jobs."""
WAITING_BETWEEN_RUNS = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})
HELP: Mapping[str, str] = {
    "bootfail": "Number of jobs in BootFail state",
    "cancelled": "Number of jobs in Cancelled state",
    "completed": "Number of jobs in Completed state",
    "completing": "Number of jobs in Completing state",
    "configuring": "Number of jobs in Configuring state",
    "cpus_alloc": "Total number of CPUs allocated by jobs",
    "deadline": "Number of jobs in Deadline state",
    "expediting": "Number of jobs in Expediting state",
    "failed": "Number of jobs in Failed state",
    "fed_requeued": "Number of jobs requeued in a federation",
    "finished": "Number of finished jobs",
    "gpus_alloc": "Total number of GPUs allocated by jobs",
    "hold": "Number of jobs in Hold state",
    "memory_alloc": "Total memory allocated by jobs, in MB as slurmctld has it",
    "node_failed": "Number of jobs in Node Failed state",
    "nodes_alloc": "Total number of nodes allocated by jobs",
    "outofmemory": "Number of jobs in Out of Memory state",
    "pending": "Number of jobs in Pending state, held ones included",
    "powerup_node": "Number of jobs in PowerUp Node state",
    "preempted": "Number of jobs in Preempted state",
    "requeued": "Number of jobs in Requeued state",
    "resizing": "Number of jobs in Resizing state",
    "revoked": "Number of revoked jobs",
    "running": "Number of jobs in Running state",
    "signaling": "Number of jobs being signaled",
    "stageout": "Number of jobs in StageOut state",
    "started": "Number of started jobs",
    "suspended": "Number of jobs in Suspended state",
    "timeout": "Number of jobs in Timeout state",
}
OF_PARTITIONS: Mapping[str, str] = {
    "max_job_nodes": "Most nodes that any pending job may use",
    "max_job_nodes_nohold": "Most nodes that any pending job that is not held may use",
    "min_job_nodes": "Most nodes that any pending job needs",
    "min_job_nodes_nohold": "Most nodes that any pending job that is not held needs",
    "wait_part_node_limit": "Number of jobs that wait for the partition's limit on nodes",
}


@dataclass
class JobCounts:
    """The numbers of one cluster, partition, user or account."""

    records: int = 0
    tasks: int = 0
    unended: int = 0
    by_name: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    hostlists: set[str] = field(default_factory=set)

    def add(self, job: CountedJob, times: int) -> None:
        """So many jobs that are counted alike."""
        self.records += times
        self.tasks += times * job.tasks
        self.unended += 0 if job.state in ENDED else times
        for name in STATES.get(job.state, ()):
            self.by_name[name] += times
        if job.state in ALLOCATED:
            self.by_name["cpus_alloc"] += times * job.cpus
            self.by_name["memory_alloc"] += times * job.mem_mb
            self.by_name["gpus_alloc"] += times * job.gpus
            self.hostlists.add(job.nodes)
        elif is_waiting(job.state) or job.state in WAITING_BETWEEN_RUNS:
            self._add_waiting(job, times)

    def _add_waiting(self, job: CountedJob, times: int) -> None:
        self.by_name["pending"] += times * job.tasks
        self.by_name["hold"] += times * job.tasks if job.held else 0
        self.by_name["wait_part_node_limit"] += times if job.node_limit else 0
        sizes = {"max_job_nodes": job.max_nodes, "min_job_nodes": job.min_nodes}
        if not job.held:
            sizes |= {f"{name}_nohold": size for name, size in sizes.items()}
        for name, size in sizes.items():
            self.most[name] = max(self.most[name], size)

    @property
    def nodes(self) -> int:
        return len({name for hostlist in self.hostlists for name in names_of(hostlist)})


@dataclass
class QueueCounts:
    """One answer of the queue, counted."""

    cluster: JobCounts = field(default_factory=JobCounts)
    partitions: dict[str, JobCounts] = field(default_factory=lambda: defaultdict(JobCounts))
    users: dict[str, JobCounts] = field(default_factory=lambda: defaultdict(JobCounts))
    accounts: dict[str, JobCounts] = field(default_factory=lambda: defaultdict(JobCounts))

    @classmethod
    def of(cls, jobs: Mapping[CountedJob, int]) -> QueueCounts:
        counts = cls()
        for job, times in jobs.items():
            for part in (
                counts.cluster,
                counts.partitions[job.partition],
                counts.users[job.user],
                counts.accounts[job.account],
            ):
                part.add(job, times)
        return counts


@lru_cache(maxsize=4096)
def names_of(hostlist: str) -> tuple[str, ...]:
    return tuple(expand(hostlist))


def job_gauges(counts: JobCounts) -> FamilyOfGauges:
    """`/metrics/jobs`."""
    values = {**counts.by_name, "nodes_alloc": counts.nodes}
    gauges = [number(f"slurm_jobs_{name}", text, values.get(name, 0)) for name, text in HELP.items()]
    return FamilyOfGauges((number("slurm_jobs", "Total number of jobs", counts.tasks), *gauges), {})


def user_and_account_gauges(queue: QueueCounts, most: int) -> FamilyOfGauges:
    """`/metrics/jobs-users-accts`: those with most jobs, where there are too many."""
    users, more_users = first_by(queue.users, most, lambda name: queue.users[name].records)
    named = [
        account for account in queue.accounts if account
    ]  # slurmctld labels no sample with an empty text
    accounts, more_accounts = first_by(named, most, lambda name: queue.accounts[name].records)
    gauges = [
        *_labelled("slurm_user_jobs", "username", {name: queue.users[name] for name in users}),
        *_labelled("slurm_account_jobs", "account", {name: queue.accounts[name] for name in accounts}),
    ]
    return FamilyOfGauges(tuple(gauges), {"username": more_users, "account": more_accounts})


def _labelled(prefix: str, label: str, counts: Mapping[str, JobCounts]) -> Iterable[NamedGauge]:
    yield NamedGauge(prefix, "Total number of jobs", {key: of.records for key, of in counts.items()}, label)
    for name, text in HELP.items():
        samples = {key: of.nodes if name == "nodes_alloc" else of.by_name[name] for key, of in counts.items()}
        yield NamedGauge(f"{prefix}_{name}", text, samples, label)


def partition_job_gauges(counts: Mapping[str, JobCounts]) -> Iterable[NamedGauge]:
    """The part of `/metrics/partitions` that is about jobs; partitions without jobs included."""

    def gauge(name: str, text: str, values: Mapping[str, float]) -> NamedGauge:
        return NamedGauge(f"slurm_partition_jobs{name}", text, values, "partition")

    yield gauge("", "Number of jobs in this partition", {key: of.unended for key, of in counts.items()})
    for name, text in {**HELP, **OF_PARTITIONS}.items():
        if name != "nodes_alloc":
            values = {key: of.by_name[name] + of.most[name] for key, of in counts.items()}
            yield gauge(f"_{name}", text, values)
