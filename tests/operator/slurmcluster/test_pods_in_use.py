"""A SlurmCluster that is being deleted stays while pods run there as jobs, and names them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox_clusters.redbox_token import ServiceAccountName
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.constants import CLUSTER_FINALIZER
from redbox_operator.metrics import OperatorMetrics
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from redbox_operator.slurmcluster.registry import RedboxLinks
from tests.clusters.virtual_pods import has_node, has_pod
from tests.kube.fakes import FakeApiServer
from tests.operator.factories import slurm_cluster
from tests.operator.slurmcluster.test_reconciler import WHERE, running


class Deleted:
    """A SlurmCluster that is being deleted, and the operator of all namespaces."""

    def __init__(self, *, since: datetime | None = None, **spec: Any) -> None:
        self.api = FakeApiServer()
        has_node(self.api, "hpc1.debug", "hpc1")
        self.cache = ObjectCache()
        given = slurm_cluster().spec.model_dump(mode="json", by_alias=True, exclude={"ca_bundle"})
        at = (since or datetime(2026, 1, 1, tzinfo=UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"name": "hpc1", "deletionTimestamp": at, "finalizers": [CLUSTER_FINALIZER]}
        enabled = {"pods": {"enabled": True}}
        self.api.put(WHERE, {"metadata": metadata, "spec": {**given, "caBundle": "eA==", **enabled, **spec}})
        self.clusters = SlurmClusters(
            StatusWriter(self.api.client, OperatorMetrics().writes),
            ServiceAccountName("redbox-system", "redbox-operator"),
            self.cache,
            RedboxLinks(troubles={"hpc1": "not reachable"}),
            wake_uid=print,
            wake_cluster=print,
        )
        self.clusters.jobs_listed()

    async def look(self) -> None:
        self.clusters.updated(self.api.objects[WHERE])
        await self.clusters._reconcile("hpc1")

    @property
    def exists(self) -> bool:
        return WHERE in self.api.objects

    @property
    def in_use(self) -> Object:
        conditions: list[Object] = self.api.objects[WHERE]["status"]["conditions"]
        return next(item for item in conditions if item["type"] == "InUse")


async def test_it_stays_while_a_pod_runs_there_and_names_its_job() -> None:
    cluster = Deleted()
    has_pod(cluster.api, "train")
    await cluster.look()
    assert cluster.exists
    assert cluster.in_use["reason"] == "PodsUnfinished"
    assert "farm/train: Slurm job 7 of alice" in cluster.in_use["message"]
    has_pod(cluster.api, "train", phase="Succeeded")
    await cluster.look()
    assert not cluster.exists


async def test_slurmjobs_and_pods_are_named_beside_each_other() -> None:
    cluster = Deleted()
    has_pod(cluster.api, "train")
    cluster.cache.update_job(running("cow", "farm"))
    await cluster.look()
    assert cluster.in_use["reason"] == "SlurmJobsUnfinished"
    assert "farm/cow and pods that run there as jobs: farm/train" in cluster.in_use["message"]


async def test_abandon_jobs_lets_go_of_its_pods() -> None:
    cluster = Deleted(abandonJobs=True)
    has_pod(cluster.api, "train")
    await cluster.look()
    assert not cluster.exists


@pytest.mark.parametrize(("enabled", "stays"), [(True, True), (False, False)])
async def test_a_submit_that_was_under_way_has_time_to_show_its_job(*, enabled: bool, stays: bool) -> None:
    just_now = datetime.now(UTC) + timedelta(minutes=1)
    cluster = Deleted(since=just_now, pods={"enabled": enabled})
    await cluster.look()
    assert cluster.exists is stays


async def test_pods_of_another_cluster_keep_it_not() -> None:
    cluster = Deleted()
    has_node(cluster.api, "hpc2.debug", "hpc2")
    has_pod(cluster.api, "train", node="hpc2.debug")
    await cluster.look()
    assert not cluster.exists
    assert ResourcePath(kinds.POD, "train", "farm") in cluster.api.objects
