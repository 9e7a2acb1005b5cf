"""One SlurmCluster's partitions, kept current: a list, then red-box's watch of what changes in it.

While red-box is away its last partitions stay, marked as old: a partition is not gone because red-box does
not answer. `unreachable` is set only after 15 s, since a red-box that is restarted is back within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase

import structlog

from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError
from redbox_api.feed import Feed, Resume
from redbox_api.models import Partition, PartitionEvent
from redbox_clusters.slurm_cluster import PartitionFilter, SlurmCluster
from redbox_kube.api.objects import ApiError
from redbox_shared.backoff import Backoff

log = structlog.get_logger(__name__)
UNREACHABLE_AFTER_S = 15.0
BACKOFF = Backoff(0.5, 10.0)


@dataclass
class PartitionFeed:
    """The partitions of one SlurmCluster; `changed` is called whenever anything here has changed."""

    cluster: SlurmCluster
    client: RedboxClient
    changed: Callable[[], None]
    all_partitions: dict[str, Partition] = field(default_factory=dict)
    """Whatever the SlurmCluster's filter says."""
    listed: bool = False
    version: str = ""
    stale_since: datetime | None = None
    fault: str = "red-box has not answered yet"
    failing_since: float | None = None

    @property
    def partitions(self) -> Mapping[str, Partition]:
        """Those that the SlurmCluster's filter lets through."""
        passes = self.cluster.spec.partitions
        return {name: found for name, found in self.all_partitions.items() if _passes(name, passes)}

    @property
    def is_settled(self) -> bool:
        """Whether red-box has listed its partitions, or is known to be unreachable."""
        return self.listed or bool(self.unreachable)

    @property
    def unreachable(self) -> str:
        """Why red-box cannot be reached; empty while it can, and for its first 15 s away."""
        if self.failing_since is None:
            return ""
        return self.fault if _now() - self.failing_since >= UNREACHABLE_AFTER_S else ""

    def lacks(self, partition: str) -> bool:
        """Whether Slurm itself answers with partitions, and not this one; PrivateData may hide them all."""
        is_fresh = self.listed and not self.fault and self.stale_since is None
        return is_fresh and bool(self.all_partitions) and partition not in self.all_partitions

    def adopt(self, cluster: SlurmCluster) -> bool:
        """Go on with the changed SlurmCluster; False where its red-box has to be connected again."""
        old, new = self.cluster.spec, cluster.spec
        same = (old.endpoint, old.ca_bundle, old.audience) == (new.endpoint, new.ca_bundle, new.audience)
        if same:
            self.cluster = cluster
        return same

    async def run(self) -> None:
        """Follow red-box's partitions until cancelled; only a list comes with Slurm's version."""
        feed: Feed[PartitionEvent] = Feed(
            self._list,
            self.client.watch_partitions,
            self._on_event,
            self._on_failure,
            backoff=BACKOFF,
            retry_on=(ApiError, ValueError),
            resume=Resume.NEVER,
            share=self.client.share,
        )
        async with self.client:
            await feed.run()

    async def _list(self) -> str:
        listing = await self.client.partitions()
        with contextlib.suppress(RedboxError):
            self.version = (await self.client.cluster()).version
        self.all_partitions = {partition.name: partition for partition in listing.items}
        self.listed = True
        self._answered(listing.stale_since)
        return listing.revision

    def _on_event(self, event: PartitionEvent) -> None:
        if event.type == "bookmark":
            self._answered(event.stale_since)
        elif event.partition is not None:
            if event.type == "gone":
                self.all_partitions.pop(event.partition.name, None)
            else:
                self.all_partitions[event.partition.name] = event.partition
            self._answered(self.stale_since)

    def _answered(self, stale_since: datetime | None) -> None:
        self.stale_since = stale_since
        self.fault, self.failing_since = "", None
        self.changed()

    def _on_failure(self, why: str) -> None:
        if why != self.fault:
            log.warning("partitions unknown", cluster=self.cluster.name, error=why)
        self.fault = why
        self.failing_since = self.failing_since or _now()
        self.changed()


def _passes(name: str, passes: PartitionFilter) -> bool:
    included = not passes.include or any(fnmatchcase(name, pattern) for pattern in passes.include)
    return included and not any(fnmatchcase(name, pattern) for pattern in passes.exclude)


def _now() -> float:
    return asyncio.get_running_loop().time()
