"""The SlurmClusters that there are, by name: to each a link, or why there can be none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from redbox_operator.api.problems import StatusProblem
from redbox_operator.slurmcluster.job_feed import RedboxLink


@dataclass
class RedboxLinks:
    """Shared by those who make links and those who use them."""

    by_name: dict[str, RedboxLink] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)  # of those that no link can be made to

    def names(self) -> Collection[str]:
        """Of all SlurmClusters, also those without a link."""
        return [*self.by_name, *self.troubles]

    def get(self, name: str | None) -> RedboxLink | None:
        """The link to this one, if there is one."""
        return self.by_name.get(name or "")

    def problem_of(self, name: str | None) -> StatusProblem:
        """Why there is no link to it, though a SlurmJob has gone there or names it."""
        trouble = self.troubles.get(name or "")
        if trouble is None:
            words = f"SlurmCluster {name} is gone: create it again, and this goes on"
            return StatusProblem("NoSuchCluster", words)
        words = f"SlurmCluster {name} cannot be used ({trouble}): ask its administrator to mend it"
        return StatusProblem("ClusterMisconfigured", words)
