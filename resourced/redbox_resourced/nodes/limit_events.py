"""Reports partitions without a virtual node because a SlurmCluster has more than are allowed.

A line in the log for each change, and an event of the SlurmCluster for `kubectl describe`: events live for an
hour, so a new one is written every hour while the limit is exceeded.
"""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from redbox_clusters.slurm_cluster import SLURM_CLUSTERS, SlurmCluster
from redbox_kube.api.events import WARNING, Event
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_kube.status.event_writer import EventWriter
from redbox_resourced.nodes.node_view import MANAGER

log = structlog.get_logger(__name__)
REASON = "TooManyPartitions"


class NodeLimitEvents:
    """Remembers what was reported for each SlurmCluster."""

    def __init__(self, objects: ObjectClient) -> None:
        self._writer = EventWriter(objects)
        self._logged: dict[str, int] = {}
        self._events: dict[str, str] = {}

    async def report(self, cluster: SlurmCluster, without_node: int, limit: int) -> None:
        """Report the number of partitions without a node; most often it is 0."""
        before, self._logged[cluster.name] = self._logged.get(cluster.name, 0), without_node
        if without_node not in {0, before}:
            log.warning("too many partitions", cluster=cluster.name, without_node=without_node, most=limit)
        if not without_node:
            return
        event = limit_event(cluster, without_node, limit, datetime.now(UTC))
        if self._events.get(cluster.name) == event.name:
            return
        self._events[cluster.name] = event.name
        await self._writer.publish(event)


def limit_event(cluster: SlurmCluster, without_node: int, limit: int, now: datetime) -> Event:
    """One event for this number and hour."""
    return Event(
        about=ResourcePath(SLURM_CLUSTERS, cluster.name),
        uid=str(cluster.metadata["uid"]),
        change=f"{without_node}|{limit}|{now:%Y-%m-%dT%H}",
        severity=WARNING,
        reason=REASON,
        message=(
            f"{without_node} of its partitions have no virtual node, since {limit} nodes are allowed: "
            "raise resourced.virtualNodes of the chart, or name the partitions in spec.partitions"
        ),
        action="Publish",
        component=MANAGER,
    )
