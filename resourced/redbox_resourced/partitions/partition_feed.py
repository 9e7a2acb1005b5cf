"""One SlurmCluster's partitions, kept new: a list, then red-box's watch of what changes in it.

What is known stays when red-box is away, and is said to be old: a partition is not gone because nobody
answers. `unreachable` is said only after some patience, since a red-box that is restarted is back in seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase

import structlog

from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError, Unreachable
from redbox_api.models import Partition
from redbox_kube.slurm_cluster import PartitionFilter, SlurmCluster
from redbox_resourced.partitions.retry_forever import keep_on

log = structlog.get_logger(__name__)
PATIENCE_S = 15.0


class Followed:
    """What is known of one SlurmCluster."""

    def __init__(self, cluster: SlurmCluster, client: RedboxClient, changed: Callable[[], None]) -> None:
        self.cluster = cluster
        self.client = client
        self.version = ""
        self.stale_since: datetime | None = None
        self.fault = "red-box was not asked yet"
        self._all: dict[str, Partition] = {}
        self._changed = changed
        self._failing_since: float | None = None
        self._listed = False

    @property
    def partitions(self) -> Mapping[str, Partition]:
        """Those that the SlurmCluster's filter lets through."""
        passes = self.cluster.spec.partitions
        return {name: one for name, one in self._all.items() if _passes(name, passes)}

    @property
    def fresh(self) -> bool:
        """Whether Slurm itself was heard: only then is a partition that is not listed gone."""
        return self._listed and not self.fault and self.stale_since is None

    @property
    def told(self) -> bool:
        """Whether there is anything to say: red-box named its partitions, or could not be reached."""
        return self._listed or bool(self.unreachable)

    @property
    def names_any(self) -> bool:
        """Whether red-box named partitions, be it some time ago; a PrivateData that hides them shows none."""
        return bool(self._all)

    @property
    def unreachable(self) -> str:
        """Why red-box cannot be reached; empty where it can, or could a moment ago."""
        if self._failing_since is None:
            return ""
        return self.fault if _now() - self._failing_since >= PATIENCE_S else ""

    def lacks(self, partition: str) -> bool:
        """Whether Slurm, heard just now, has partitions and this is none of them."""
        return self.fresh and bool(self._all) and partition not in self._all

    def has(self, partition: str) -> bool:
        """Whether Slurm had it when it was last heard, whatever the SlurmCluster's filter says."""
        return partition in self._all

    def takes(self, cluster: SlurmCluster) -> bool:
        """Go on with the SlurmCluster as it is written now; False where it must be connected anew."""
        old, new = self.cluster.spec, cluster.spec
        same = (old.endpoint, old.ca_bundle, old.audience) == (new.endpoint, new.ca_bundle, new.audience)
        if same:
            self.cluster = cluster
        return same

    async def run(self) -> None:
        """Follow until cancelled."""
        async with self.client:
            await keep_on(self._follow, self._failed, first_pause_s=0.5)

    async def _follow(self) -> None:
        """List, then watch from there until the watch ends."""
        listing = await self.client.partitions()
        with contextlib.suppress(RedboxError):
            self.version = (await self.client.cluster()).version
        self._all = {one.name: one for one in listing.items}
        self._listed = True
        self._heard(listing.stale_since)
        async for event in self.client.watch_partitions(listing.revision):
            if event.type == "error":
                raise Unreachable(event.message or "the watch of partitions failed")
            if event.partition is not None:
                self._take(event.partition, gone=event.type == "gone")
            else:
                self._heard(event.stale_since)

    def _take(self, partition: Partition, *, gone: bool) -> None:
        if gone:
            self._all.pop(partition.name, None)
        else:
            self._all[partition.name] = partition
        self._heard(self.stale_since)

    def _heard(self, stale_since: datetime | None) -> None:
        self.stale_since = stale_since
        self.fault = ""
        self._failing_since = None
        self._changed()

    def _failed(self, why: str) -> None:
        if why != self.fault:
            log.warning("partitions unknown", cluster=self.cluster.name, error=why)
        self.fault = why
        self._failing_since = self._failing_since or _now()
        self._changed()


def _passes(name: str, passes: PartitionFilter) -> bool:
    included = not passes.include or any(fnmatchcase(name, one) for one in passes.include)
    return included and not any(fnmatchcase(name, one) for one in passes.exclude)


def _now() -> float:
    return asyncio.get_running_loop().time()
