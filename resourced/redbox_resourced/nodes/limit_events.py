"""Tells an administrator of partitions beyond the number of virtual nodes allowed, and what to do about it.

In the log once for each change, and as an event of the SlurmCluster, for `kubectl describe`: events live for
an hour, so there is a new one every hour as long as it is so.
"""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from redbox_kube.api.events import WARNING, Event
from redbox_kube.api.objects import ApiError, ObjectClient, ResourcePath
from redbox_kube.names import API_VERSION
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_resourced.nodes.node_view import MANAGER

log = structlog.get_logger(__name__)
REASON = "TooManyPartitions"


class NodeLimitEvents:
    """What was told of each SlurmCluster."""

    def __init__(self, objects: ObjectClient) -> None:
        self._objects = objects
        self._logged: dict[str, int] = {}
        self._events: dict[str, str] = {}

    async def tell(self, cluster: SlurmCluster, without_node: int, most: int) -> None:
        """So many of its partitions have no node now; most often none."""
        before, self._logged[cluster.name] = self._logged.get(cluster.name, 0), without_node
        if without_node not in {0, before}:
            log.warning("too many partitions", cluster=cluster.name, without_node=without_node, most=most)
        if without_node:
            now = datetime.now(UTC)
            await self._tell_kubernetes(event_of(cluster, without_node, most, now), now)

    async def _tell_kubernetes(self, event: Event, now: datetime) -> None:
        about = event.about.name
        if self._events.get(about) == event.name:
            return
        self._events[about] = event.name
        try:
            await self._objects.create(event.where, event.body(now))  # None: told before
        except ApiError as error:
            log.warning("event not written", cluster=about, error=str(error))


def event_of(cluster: SlurmCluster, without_node: int, most: int, now: datetime) -> Event:
    """One for this number, of this hour."""
    return Event(
        about=ResourcePath("SlurmCluster", cluster.name, api_version=API_VERSION),
        uid=str(cluster.metadata["uid"]),
        change=f"{without_node}|{most}|{now:%Y-%m-%dT%H}",
        severity=WARNING,
        reason=REASON,
        message=(
            f"{without_node} of its partitions have no virtual node, since {most} nodes are allowed: "
            "raise resourced.virtualNodes of the chart, or name the partitions in spec.partitions"
        ),
        action="Publish",
        component=MANAGER,
    )
