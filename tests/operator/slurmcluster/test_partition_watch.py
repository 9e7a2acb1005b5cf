"""The partitions of a red-box on their way into the status of its SlurmCluster."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from redbox_api.models import Amounts
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS
from redbox_kube.api.objects import ResourcePath
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.metrics import OperatorMetrics
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmcluster import partition_watch, reconciler
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from redbox_operator.slurmcluster.registry import RedboxLinks
from tests.bench.scripted_redbox import ScriptedRedbox
from tests.kube.fakes import FakeApiServer
from tests.operator.factories import partition, slurm_cluster

WHERE = ResourcePath(SLURM_CLUSTERS, "hpc1")


class Status:
    """One SlurmCluster, its status kept by the operator's part for SlurmClusters."""

    def __init__(self, api: FakeApiServer, redbox: ScriptedRedbox) -> None:
        self.api = api
        self.redbox = redbox
        self.clusters = SlurmClusters(
            StatusWriter(api.client, OperatorMetrics().writes),
            ServiceAccountName("redbox-system", "redbox-operator"),
            ObjectCache(),
            RedboxLinks(),
            wake_uid=lambda _: None,
            wake_cluster=lambda _: None,
        )
        self.clusters.jobs_listed()

    def put(self, **fields: Any) -> None:
        spec = slurm_cluster().spec.model_dump(mode="json", by_alias=True, exclude={"ca_bundle"})
        bundle = base64.b64encode(self.redbox.ca).decode()
        spec = {**spec, "endpoint": self.redbox.endpoint, "caBundle": bundle}
        self.api.put(WHERE, {"metadata": {"name": "hpc1"}, "spec": spec, **fields})
        self.shown()

    def shown(self) -> None:
        """The watch of SlurmClusters shows its newest version."""
        self.clusters.updated(self.api.objects[WHERE])

    @property
    def free(self) -> dict[str, int]:
        listed = self.api.objects[WHERE].get("status", {}).get("partitions", [])
        return {} if isinstance(listed, int) else {item["name"]: item["free"]["cpus"] for item in listed}

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self.shown()
                await asyncio.sleep(0.01)


@pytest.fixture
async def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Status]:
    for module in (partition_watch, reconciler):
        monkeypatch.setattr(module, "STATES_EVERY_S", 0.01)
    redbox = ScriptedRedbox()
    redbox.put_partition(partition())
    async with redbox.serving(tmp_path):
        made = Status(FakeApiServer(), redbox)
        running = asyncio.create_task(made.clusters.run())
        yield made
        running.cancel()
        await asyncio.wait({running})


async def test_free_resources_are_in_the_status_and_follow_slurm(
    status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_watch, "USE_EVERY_S", 0.05)
    status.put()
    await status.until(lambda: status.free == {"debug": 4})
    status.redbox.put_partition(partition(free=1))
    await status.until(lambda: status.free == {"debug": 1})


async def test_between_two_writes_only_a_change_of_state_is_written(status: Status) -> None:
    status.put()
    await status.until(lambda: status.free == {"debug": 4})
    status.redbox.put_partition(partition(free=1))
    link = status.clusters.links.by_name["hpc1"]
    await status.until(lambda: link.partition_watch.partitions == [partition(free=1)])
    await status.clusters._reconcile("hpc1")
    assert status.free == {"debug": 4}
    status.redbox.put_partition(partition("long", free=3))
    await status.until(lambda: status.free == {"debug": 1, "long": 3})
    status.redbox.remove_partition("long")
    await status.until(lambda: status.free == {"debug": 1})


async def test_a_bounded_number_of_partitions_is_kept(
    status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_watch, "KEPT_AT_MOST", 2)
    for name in ("a", "b", "c"):
        status.redbox.put_partition(partition(name))
    status.put()
    await status.until(lambda: status.free)
    assert len(status.free) == 2


async def test_of_a_hostile_partition_only_what_is_shown_is_kept(
    status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand of a mebibyte each would be more memory than the operator may have."""
    monkeypatch.setattr(partition_watch, "KEPT_AT_MOST", 3)
    long = "x" * 10_000
    hostile = partition("listed").model_copy(
        update={
            "state": long,
            "reason": long,
            "features": [long],
            "node_states": {f"{number}{long}": 1 for number in range(99)},
            "total": Amounts(nodes=1, cpus=10**400, mem_mb=1, gres={long: 1}),
        }
    )
    for name in ("listed", long, "also", "third", "fourth"):
        status.redbox.put_partition(hostile.model_copy(update={"name": name}))
    status.put()
    await status.until(lambda: len(status.free) == 3)
    link = status.clusters.links.by_name["hpc1"]
    status.redbox.put_partition(hostile.model_copy(update={"name": "later"}))
    status.redbox.put_partition(hostile.model_copy(update={"name": "debug", "is_default": True}))
    await status.until(lambda: any(kept.is_default for kept in link.partition_watch.partitions or ()))
    kept = link.partition_watch.partitions or ()
    assert len(kept) == 3
    assert all(len(one.model_dump_json()) < 3000 for one in kept)
