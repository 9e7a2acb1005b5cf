"""All SlurmClusters and SlurmEndpoints by key: each with a link to its red-box, or why it has none."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_clusters.slurm_endpoint import is_endpoint, namespace_of, title_of
from redbox_kube.status.problems import StatusProblem
from redbox_operator.api.slurmcluster_status import SlurmClusterStatus
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmcluster.status_lag import StatusLag

NO_SUCH_ENDPOINT = "NoSuchEndpoint"
NOT_CONNECTED = "it is not connected yet"


@dataclass
class ClusterEntry:
    """One SlurmCluster or SlurmEndpoint, and the link to its red-box if its spec allows one."""

    cluster: SlurmCluster
    link: RedboxLink | None = None
    task: asyncio.Task[None] | None = None
    lag: StatusLag = field(default_factory=StatusLag)  # of all its links
    orphans: list[str] = field(default_factory=list)
    written: SlurmClusterStatus | None = None  # by this operator; another one may have written since


@dataclass
class RedboxLinks:
    """Links and failures, written by the SlurmCluster reconciler and read by that of SlurmJobs."""

    by_name: dict[str, RedboxLink] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)  # of those without a link: why
    unlisted: frozenset[str] = frozenset()  # namespaces whose SlurmEndpoints may not be listed

    def names(self) -> Collection[str]:
        """Keys of all, also of those without a link."""
        return [*self.by_name, *self.troubles]

    def get(self, name: str | None) -> RedboxLink | None:
        """The link to the red-box of this key, if there is one."""
        return self.by_name.get(name or "")

    def problem_of(self, name: str | None) -> StatusProblem:
        """Why there is no link, for the status of a SlurmJob that was submitted there or names it."""
        key = name or ""
        trouble, title = self.troubles.get(key), title_of(key)
        if trouble is None and is_endpoint(key) and namespace_of(key) in self.unlisted:
            trouble = "the operator may not list the SlurmEndpoints of its namespace"
        if trouble is None:
            message = f"{title} is gone. Create it again; this SlurmJob then continues"
            return StatusProblem(NO_SUCH_ENDPOINT if is_endpoint(key) else "NoSuchCluster", message)
        cure = "fix it" if is_endpoint(key) else "ask its administrator to fix it"
        message = f"{title} cannot be used ({trouble}): {cure}"
        return StatusProblem("ClusterMisconfigured", message)
