"""Tells an administrator of partitions beyond the number of virtual nodes allowed, and what to do about it.

In the log once for each change, and as an event of the SlurmCluster, for `kubectl describe`: events live for
an hour, so there is a new one every hour as long as it is so.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import structlog

from redbox_kube.names import API_VERSION
from redbox_kube.objects import ApiError, Object, Objects, Where
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_resourced.seen_nodes import MANAGER

log = structlog.get_logger(__name__)
REASON = "TooManyPartitions"
NAMESPACE = "default"
"""Where events of kinds are that no namespace holds."""


class LeftOut:
    """What was told of each SlurmCluster."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._logged: dict[str, int] = {}
        self._events: dict[str, str] = {}

    async def tell(self, cluster: SlurmCluster, without_node: int, most: int) -> None:
        """So many of its partitions have no node now; most often none."""
        before, self._logged[cluster.name] = self._logged.get(cluster.name, 0), without_node
        if without_node not in {0, before}:
            log.warning("too many partitions", cluster=cluster.name, without_node=without_node, most=most)
        if without_node:
            await self._tell_kubernetes(event_of(cluster, without_node, most, datetime.now(UTC)))

    async def _tell_kubernetes(self, event: Object) -> None:
        about, name = event["involvedObject"]["name"], event["metadata"]["name"]
        if self._events.get(about) == name:
            return
        self._events[about] = name
        try:
            await self._objects.create(Where("Event", namespace=NAMESPACE), event)  # None: told before
        except ApiError as error:
            log.warning("event not written", cluster=about, error=str(error))


def event_of(cluster: SlurmCluster, without_node: int, most: int, now: datetime) -> Object:
    """One for this number, of this hour."""
    uid = str(cluster.metadata["uid"])
    digest = hashlib.sha256(f"{uid}|{without_node}|{most}|{now:%Y-%m-%dT%H}".encode()).hexdigest()[:16]
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{cluster.name}.{digest}", "namespace": NAMESPACE},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": "SlurmCluster",
            "name": cluster.name,
            "uid": uid,
        },
        "type": "Warning",
        "reason": REASON,
        "message": (
            f"{without_node} of its partitions have no virtual node, since {most} nodes are allowed: "
            "raise resourced.virtualNodes of the chart, or name the partitions in spec.partitions"
        ),
        "action": "Publish",
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": MANAGER,
    }
