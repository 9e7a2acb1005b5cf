"""Queries for the cluster: its configuration, nodes, partitions, kinds of MPI, and a user's accounts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.metadata import version

from redbox.core.domain import UnixUser
from redbox.core.ttl_cache import TtlCache
from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.command_runner import CommandRunner
from redbox.slurm.commands import sacctmgr, scontrol, sinfo, srun
from redbox.slurm.text.record_format import ParseReport, RecordFormat, decode
from redbox.slurm.views.partitions import build_partitions, count_states
from redbox_api.models import Cluster, Partition

HIDES_NODES = frozenset({"nodes", "partitions"})  # in PrivateData: Slurm rejects sinfo of all but operators
RECENT_S = 30.0  # two RPCs a minute
NODES_HIDDEN = (
    "PrivateData hides nodes and partitions from red-box's account: jobs run, but no partition can be shown. "
    "Run `sacctmgr modify user NAME set AdminLevel=Operator` for that account."
)


class ClusterQueries:
    """Queries whose answers seldom change are kept for `facts_s`."""

    def __init__(self, commands: CommandRunner) -> None:
        self._commands = commands
        self._node_fields: tuple[str, ...] = sinfo.FIELDS
        self._newest: scontrol.SlurmConfiguration | None = None  # without its federation
        cache = partial(TtlCache, ttl_s=commands.settings.facts_s, clock=commands.clock)
        self._configuration = cache(self._ask_configuration)
        self.is_history_private = cache(self._ask_is_history_private).get
        self.mpi_kinds = cache(self._ask_mpi_kinds).get
        recent = TtlCache(self._read_configuration, RECENT_S, clock=commands.clock)
        self.recent_configuration, self.expire_boot_time = recent.get, recent.expire

    async def configuration(self) -> scontrol.SlurmConfiguration:
        """From slurmctld alone: submits and polls must not depend on slurmdbd."""
        return await self._configuration.get()

    def appends(self) -> bool:
        """Whether a run appends to its output file where the job does not say."""
        return self._newest is not None and self._newest.appends

    async def are_jobs_private(self) -> bool:
        """By the newest answer: where an administrator turns that on, red-box sees no jobs from then on."""
        newest = await self.recent_configuration()
        return "jobs" in (self._newest or newest).private_data

    async def boot_time(self) -> str:
        return (await self._read_configuration()).boot_time

    async def recent_boot_time(self) -> str:
        return (await self.recent_configuration()).boot_time

    async def _read_configuration(self) -> scontrol.SlurmConfiguration:
        text = await self._commands.read(scontrol.configuration_argv())
        self._newest = scontrol.read_configuration(text)
        return self._newest

    async def _ask_configuration(self) -> scontrol.SlurmConfiguration:
        configuration = await self._read_configuration()
        if not configuration.accounting:  # a federation is made in the accounting database
            return configuration
        federation = scontrol.read_federation(await self._commands.read(scontrol.federation_argv()))
        return replace(configuration, federation=federation)

    async def _ask_is_history_private(self) -> bool:
        """Whether slurmdbd shows each user only the user's own jobs; raises while slurmdbd is down.

        By the PrivateData of slurmdbd, not of slurm.conf.
        """
        if not (await self.configuration()).accounting:
            return False
        deadline = self._commands.settings.accounting_s
        text = await self._commands.read(sacctmgr.configuration_argv(), deadline=deadline)
        return sacctmgr.hides_jobs(text)

    async def _ask_mpi_kinds(self) -> frozenset[str]:
        completed = await self._commands.complete(self._commands.observer, srun.mpi_kinds_argv())
        # Older releases list on stderr.
        return srun.read_mpi_kinds(decode(completed.stdout + b"\n" + completed.stderr))

    async def cluster(self) -> Cluster:
        configuration, nodes = await self.configuration(), await self._visible_nodes()
        warnings = warnings_of(configuration, allow_federation=self._commands.settings.allow_federation)
        return Cluster(
            name=configuration.cluster_name,
            workload_manager="slurm",
            version=configuration.version,
            redbox_version=version("red-box"),
            accounting=configuration.accounting,
            nodes=count_states(nodes or ()),
            warnings=warnings if nodes is not None else [NODES_HIDDEN, *warnings],
        )

    async def partitions(self) -> tuple[Partition, ...]:
        nodes = await self._visible_nodes()
        if nodes is None:
            raise WorkloadManagerError(NODES_HIDDEN)
        rows = scontrol.read_partitions(await self._commands.read(scontrol.partitions_argv()))
        return build_partitions(rows, nodes)

    async def _visible_nodes(self) -> tuple[sinfo.NodeRow, ...] | None:
        """None where PrivateData hides them, unless red-box's account is an operator's: so sinfo decides."""
        private = (await self.configuration()).private_data & HIDES_NODES
        try:
            return await self._nodes()
        except WorkloadManagerError as error:
            if error.timed_out or not private:
                raise
            return None

    async def _nodes(self) -> tuple[sinfo.NodeRow, ...]:
        nodes = await self._read_nodes()
        if self._node_fields is sinfo.FIELDS and any(not node.base for node in nodes):
            self._node_fields = sinfo.FIELDS_BEFORE_21_08
            nodes = await self._read_nodes()
        return nodes

    async def _read_nodes(self) -> tuple[sinfo.NodeRow, ...]:
        record_format, report = RecordFormat.new(self._node_fields), ParseReport()
        text = await self._commands.read(sinfo.nodes_argv(record_format))
        nodes = sinfo.read_rows(text, record_format, report)
        report.refuse_incomplete("sinfo")
        return nodes

    async def associations(self, user: UnixUser) -> dict[str, tuple[str, ...]]:
        """QOS by account; empty without accounting, where jobs need no account."""
        if not (await self.configuration()).accounting:
            return {}
        deadline = self._commands.settings.accounting_s
        return sacctmgr.read_associations(
            await self._commands.read(sacctmgr.associations_argv(user.name), user=user, deadline=deadline)
        )


def warnings_of(configuration: scontrol.SlurmConfiguration, *, allow_federation: bool) -> list[str]:
    found = []
    if configuration.federation is not None and not allow_federation:
        found.append(
            f"The cluster is in federation {configuration.federation}: its jobs may run on other clusters, "
            "so no job is submitted. Set slurm.allow_federation to submit anyway."
        )
    if "jobs" in configuration.private_data:
        found.append("PrivateData hides jobs: they are read through each user's own agent.")
    if configuration.stores_environment:
        found.append(
            "AccountingStoreFlags holds job_env or job_script: what callers pass as env is stored in the "
            "accounting database."
        )
    if not configuration.accounting:
        found.append("There is no accounting: the outcome of a job that slurmctld has purged is unknown.")
    return found
