"""All SlurmClusters by name: each with a link to its red-box, or the reason for its absence."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from redbox_operator.api.problems import StatusProblem
from redbox_operator.slurmcluster.job_feed import RedboxLink


@dataclass
class RedboxLinks:
    """Links and failures, written by the SlurmCluster reconciler and read by that of SlurmJobs."""

    by_name: dict[str, RedboxLink] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)  # of those without a link: why

    def names(self) -> Collection[str]:
        """Names of all SlurmClusters, also of those without a link."""
        return [*self.by_name, *self.troubles]

    def get(self, name: str | None) -> RedboxLink | None:
        """The link to this SlurmCluster's red-box, if there is one."""
        return self.by_name.get(name or "")

    def problem_of(self, name: str | None) -> StatusProblem:
        """Why there is no link, for the status of a SlurmJob that was submitted there or names it."""
        trouble = self.troubles.get(name or "")
        if trouble is None:
            message = f"SlurmCluster {name} is gone. Create it again; this SlurmJob then continues"
            return StatusProblem("NoSuchCluster", message)
        message = f"SlurmCluster {name} cannot be used ({trouble}): ask its administrator to fix it"
        return StatusProblem("ClusterMisconfigured", message)
