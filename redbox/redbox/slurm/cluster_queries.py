"""What the cluster is: its configuration, nodes, partitions, MPI kinds, and who may charge which account."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Generic, TypeVar

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.command_runner import CommandRunner
from redbox.slurm.commands import sacctmgr, scontrol, sinfo, srun
from redbox.slurm.text.record_format import ParseReport, RecordFormat
from redbox.slurm.views.partitions import build_partitions, count_states
from redbox_api.models import Cluster, Partition

T = TypeVar("T")
HIDES_NODES = frozenset({"nodes", "partitions"})  # of PrivateData: sinfo is refused to all but operators
NODES_HIDDEN = (
    "PrivateData hides nodes and partitions from the account of red-box: jobs run, and no partition can be "
    "shown. `sacctmgr modify user NAME set AdminLevel=Operator` for that account shows them."
)


class CachedAnswer(Generic[T]):
    """A value that is asked for again after a while; a failure leaves it to the next who asks."""

    def __init__(self, ask: Callable[[], Awaitable[T]], keep_s: float, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._keep_s = keep_s
        self._clock = clock
        self._known: tuple[float, T] | None = None

    @property
    def last(self) -> T | None:
        """As it was when it was last asked for."""
        return self._known[1] if self._known else None

    async def get(self) -> T:
        now = self._clock()
        if self._known is None or now - self._known[0] >= self._keep_s:
            self._known = (now, await self._ask())
        return self._known[1]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What decides how this cluster is asked, as slurmctld says it: what runs must not depend on slurmdbd."""

    configuration: scontrol.SlurmConfiguration
    federation: str | None = None


class ClusterQueries:
    """Asks for what seldom changes, and remembers it for a while."""

    def __init__(self, calls: CommandRunner, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        keep_s = calls.settings.facts_s
        self._facts = CachedAnswer(self._ask_facts, keep_s, clock)
        self._is_history_private = CachedAnswer(self._ask_is_history_private, keep_s, clock)
        self._mpi_kinds = CachedAnswer(self._ask_mpi_kinds, keep_s, clock)

    async def facts(self) -> ClusterFacts:
        return await self._facts.get()

    def appends(self) -> bool:
        """Whether a run writes behind what is in its output file, where a job does not say."""
        facts = self._facts.last
        return facts is not None and facts.configuration.appends

    async def is_history_private(self) -> bool:
        """Whether slurmdbd shows each user only the own jobs."""
        return await self._is_history_private.get()

    async def mpi_kinds(self) -> frozenset[str]:
        return await self._mpi_kinds.get()

    async def _ask_facts(self) -> ClusterFacts:
        configuration = scontrol.read_configuration(await self._calls.read(scontrol.show_configuration()))
        if not configuration.accounting:  # a federation is made in the accounting database
            return ClusterFacts(configuration)
        federation = scontrol.read_federation(await self._calls.read(scontrol.show_federation()))
        return ClusterFacts(configuration, federation)

    async def _ask_is_history_private(self) -> bool:
        """Slurmdbd has a PrivateData of its own; while it is down nothing is read there anyway."""
        if not (await self.facts()).configuration.accounting:
            return False
        deadline = self._calls.settings.accounting_s
        argv = sacctmgr.show_configuration()
        completed = await self._calls.complete(self._calls.observer, argv, deadline=deadline)
        return sacctmgr.hides_jobs(completed.stdout.decode("utf-8", "replace"))

    async def _ask_mpi_kinds(self) -> frozenset[str]:
        completed = await self._calls.complete(self._calls.observer, srun.mpi_kinds())
        text = (completed.stdout + b"\n" + completed.stderr).decode(
            "utf-8", "replace"
        )  # older ones list on stderr
        return srun.read_mpi_kinds(text)

    async def cluster(self) -> Cluster:
        facts = await self.facts()
        nodes = await self._seen_nodes(facts)
        hidden = [] if nodes is not None else [NODES_HIDDEN]
        return Cluster(
            name=facts.configuration.cluster_name,
            workload_manager="slurm",
            version=facts.configuration.version,
            redbox_version=version("red-box"),
            accounting=facts.configuration.accounting,
            nodes=count_states(nodes or ()),
            warnings=hidden + warnings_of(facts, allow_federation=self._calls.settings.allow_federation),
        )

    async def partitions(self) -> tuple[Partition, ...]:
        facts = await self.facts()
        nodes = await self._seen_nodes(facts)
        if nodes is None:
            raise WorkloadManagerError(NODES_HIDDEN)
        return build_partitions(
            scontrol.read_partitions(await self._calls.read(scontrol.show_partitions())), nodes
        )

    async def _seen_nodes(self, facts: ClusterFacts) -> tuple[sinfo.NodeRow, ...] | None:
        """None where they are hidden from red-box; its account may be an operator's, so it asks."""
        try:
            return await self._nodes()
        except WorkloadManagerError as fault:
            if fault.timed_out or not facts.configuration.private_data & HIDES_NODES:
                raise
            return None

    async def _nodes(self) -> tuple[sinfo.NodeRow, ...]:
        frame, tally = RecordFormat.new(sinfo.FIELDS), ParseReport()
        nodes = sinfo.read_rows(await self._calls.read(sinfo.all_nodes(frame)), frame, tally)
        if not tally.complete:
            raise WorkloadManagerError(
                f"sinfo's answer could not be read whole: {tally.dropped} records dropped"
            )
        return nodes

    async def associations(self, user: UnixUser) -> dict[str, tuple[str, ...]]:
        """Empty where there is no accounting: then no account is needed either."""
        if not (await self.facts()).configuration.accounting:
            return {}
        deadline = self._calls.settings.accounting_s
        return sacctmgr.read_associations(
            await self._calls.read(sacctmgr.associations(user.name), user=user, deadline=deadline)
        )


def warnings_of(facts: ClusterFacts, *, allow_federation: bool) -> list[str]:
    """What an administrator should know of this configuration."""
    configuration = facts.configuration
    found = []
    if facts.federation is not None and not allow_federation:
        found.append(
            f"The cluster is in federation {facts.federation}: its jobs may run elsewhere, so none is "
            "submitted. Set slurm.allow_federation to submit all the same."
        )
    if "jobs" in configuration.private_data:
        found.append("PrivateData hides jobs: they are looked for through each user's own agent.")
    if configuration.stores_environment:
        found.append(
            "AccountingStoreFlags holds job_env or job_script: what callers pass as env is kept in the "
            "accounting database."
        )
    if not configuration.accounting:
        found.append("There is no accounting: the outcome of a job that slurmctld has forgotten is unknown.")
    return found
