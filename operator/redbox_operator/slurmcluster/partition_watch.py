"""The partitions of one red-box, and when the status of its SlurmCluster has to be written.

A status is written when a partition, a limit or a node's state changes, and at most every 30 s for what jobs
alone change: an object that is written at each start of a job would cost every watcher of it, and etcd.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

import structlog

from redbox_api.client import RedboxClient
from redbox_api.feed import Feed, Resume
from redbox_api.models import Partition, PartitionEvent
from redbox_kube.api.objects import ApiError
from redbox_operator.api.partition_status import bounded, is_name
from redbox_shared.backoff import Backoff
from redbox_shared.printable import printable

log = structlog.get_logger(__name__)
USE_EVERY_S = 30.0
STATES_EVERY_S = 2.0
"""A red-box that reports changes without an end must not have a status written for each."""
KEPT_AT_MOST = 2048
"""Of a red-box that reports new ones without an end; each has a bounded number of bytes."""
LONGEST_FAILURE = 500
BACKOFF = Backoff(1.0, 30.0)


class PartitionWatch:
    """A list, then red-box's watch of what changes; `changed` is called after each change."""

    def __init__(self, cluster: str, client: RedboxClient, changed: Callable[[], None]) -> None:
        """`cluster` is the name of the SlurmCluster, for the log."""
        self._cluster = cluster
        self._client = client
        self._changed = changed
        self._partitions: dict[str, Partition] | None = None
        self._written_at: float | None = None
        self._failure = ""

    @property
    def partitions(self) -> Sequence[Partition] | None:
        """The newest ones, also while red-box is away; None before its first list."""
        return None if self._partitions is None else list(self._partitions.values())

    @property
    def use_due_in_s(self) -> float:
        """In how many seconds changes by jobs alone may be written; 0: now."""
        if self._written_at is None:
            return 0.0
        return max(0.0, self._written_at + USE_EVERY_S - asyncio.get_running_loop().time())

    def written(self) -> None:
        """The newest partitions are in the status."""
        self._written_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Follow red-box's partitions until cancelled; the client is open."""
        feed: Feed[PartitionEvent] = Feed(
            self._list,
            self._client.watch_partitions,
            self._on_event,
            self._on_failure,
            backoff=BACKOFF,
            retry_on=(ApiError,),
            resume=Resume.NEVER,
            share=self._client.share,
        )
        await feed.run()

    async def _list(self) -> str:
        listing = await self._client.partitions()
        named = (partition for partition in listing.items if is_name(partition.name))
        with self._client.share.charged():
            self._partitions = {
                partition.name: bounded(partition) for partition in islice(named, KEPT_AT_MOST)
            }
        self._answered()
        return listing.revision

    def _on_event(self, event: PartitionEvent) -> None:
        changed, kept = event.partition, self._partitions
        if changed is not None and kept is not None:
            if event.type == "gone":
                kept.pop(changed.name, None)
            elif changed.name in kept or (is_name(changed.name) and len(kept) < KEPT_AT_MOST):
                kept[changed.name] = bounded(changed)
            self._answered()

    def _answered(self) -> None:
        self._failure = ""
        self._changed()

    def _on_failure(self, why: str) -> None:
        """The status keeps the last ones; the job feed decides whether red-box is reachable."""
        why = printable(why[:LONGEST_FAILURE])
        if why != self._failure:
            log.info("partitions unknown", slurmcluster=self._cluster, error=why)
        self._failure = why
