"""A virtual Node that somebody deletes is back at once: Kubernetes deletes its pods after 40 s."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_resourced.nodes import reconciler
from redbox_resourced.nodes.gateways import GatewayNodes
from redbox_resourced.nodes.manifest import KubeletAddress, ServingStatus
from redbox_resourced.nodes.reconciler import NodeReconciler
from redbox_resourced.nodes.server_side_apply import NodeApplier
from redbox_resourced.nodes.virtual_nodes import VirtualNodes
from redbox_resourced.partitions.overrides import OverridesFile
from redbox_resourced.partitions.partition_feed import PartitionFeed
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.pod_view import has_job
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import followed, partition

DEBUG = ResourcePath(kinds.NODE, "hpc1.debug")
POD = {
    "metadata": {"creationTimestamp": "2026-11-21T13:00:00Z"},
    "spec": {
        "nodeName": DEBUG.name,
        "containers": [{"name": "main"}],
        "tolerations": [{"key": "redbox.dev/slurm", "operator": "Exists"}],
    },
    "status": {"phase": "Running"},
}


@asynccontextmanager
async def reconciling(api: FakeApiServer, feed: PartitionFeed) -> AsyncIterator[None]:
    """resourced's loop over all Nodes, with one SlurmCluster."""
    clusters = SimpleNamespace(on_change=[], synced=True, followed={"hpc1": feed}, invalid={}, names={"hpc1"})
    applier = NodeApplier(api.client)
    nodes = NodeReconciler(
        api.client,
        cast("ClusterRegistry", clusters),
        overrides=OverridesFile(None),
        virtual=VirtualNodes(
            api.client,
            applier,
            KubeletAddress("10.0.0.1", 10250),
            ServingStatus,
            has_job,
            gone_after_s=600.0,
            old_keys=False,
        ),
        gateways=GatewayNodes(applier, old_keys=False),
        node_limit=20,
        registry=CollectorRegistry(),
    )
    task = asyncio.create_task(nodes.run())
    async with asyncio.timeout(60):
        yield
    task.cancel()
    await asyncio.wait({task})


async def exists(api: FakeApiServer, *, uid_but: str = "") -> str:
    """The Node's uid, as soon as there is one that is not this."""
    while api.objects.get(DEBUG, {"metadata": {"uid": uid_but}})["metadata"]["uid"] == uid_but:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return str(api.objects[DEBUG]["metadata"]["uid"])


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reconciliation follows each change, and nothing else: the resync is not what brings a Node back."""
    monkeypatch.setattr(reconciler, "PAUSE_S", 0.0)
    monkeypatch.setattr(reconciler, "RESYNC_S", 3600.0)


async def test_a_deleted_node_is_created_again_as_soon_as_its_deletion_is_seen() -> None:
    api = FakeApiServer()
    async with reconciling(api, followed(partition("debug"))):
        first = await exists(api)
        api.remove(DEBUG)
        assert await exists(api, uid_but=first) != first


async def test_so_is_one_whose_partition_red_box_does_not_report_now() -> None:
    api = FakeApiServer()
    feed = followed(partition("debug"))
    api.put(ResourcePath(kinds.POD, "p", "alice"), POD)
    async with reconciling(api, feed):
        first = await exists(api)
        feed.all_partitions.clear()
        api.remove(DEBUG)
        assert await exists(api, uid_but=first) != first
