"""Writers beside each other on one SlurmCluster: operators limited to some namespaces each, and resourced."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_clusters.redbox_token import ServiceAccountName
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.constants import CLUSTER_FINALIZER, cluster_finalizer
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import CompanionStatus, SlurmJobStatus
from redbox_operator.metrics import OperatorMetrics
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from redbox_operator.slurmcluster.registry import RedboxLinks
from tests.kube.fakes import FakeApiServer
from tests.operator.factories import slurm_cluster, slurm_job
from tests.operator.harness import DELETED

WHERE = ResourcePath(SLURM_CLUSTERS, "hpc1")
FIRST = cluster_finalizer("team-a", limited=True)
SECOND = cluster_finalizer("team-b", limited=True)


class Beside:
    """One operator of several, on the same SlurmCluster."""

    def __init__(self, api: FakeApiServer, namespace: str, *, jobs: int) -> None:
        self._api = api
        self.cache = ObjectCache()
        for number in range(jobs):
            self.cache.update_job(running(f"{namespace}-{number}", namespace))
        self.clusters = SlurmClusters(
            StatusWriter(api.client, OperatorMetrics().writes),
            ServiceAccountName(namespace, "redbox-operator"),
            self.cache,
            RedboxLinks(troubles={"hpc1": "not reachable"}),
            wake_uid=print,
            wake_cluster=print,
            limited=True,
        )
        self.clusters.jobs_listed()

    async def looks(self) -> None:
        self.clusters.updated(self._api.objects[WHERE])
        await self.clusters._reconcile("hpc1")


def running(name: str, namespace: str) -> SlurmJob:
    job = slurm_job(name)
    companion = CompanionStatus(name=f"{name}-job", uid=name, attempt=1)
    status = SlurmJobStatus(cluster="hpc1", phase="Running", job_id="7", companion=companion)
    metadata = {**job.metadata, "namespace": namespace, "uid": name, "resourceVersion": "1"}
    return job.model_copy(update={"metadata": metadata, "status": status})


@pytest.fixture
def api() -> FakeApiServer:
    api = FakeApiServer()
    spec: dict[str, Any] = slurm_cluster().spec.model_dump(mode="json", by_alias=True, exclude={"ca_bundle"})
    api.put(WHERE, {"metadata": {"name": "hpc1"}, "spec": {**spec, "caBundle": "eA=="}})
    return api


def finalizers(api: FakeApiServer) -> list[str]:
    there: Object = api.objects[WHERE]
    return sorted(there["metadata"].get("finalizers", []))


async def test_what_one_writes_does_not_have_the_other_write_for_ever(api: FakeApiServer) -> None:
    """Each counts its own SlurmJobs, and neither is wrong."""
    operators = [Beside(api, "team-a", jobs=3), Beside(api, "team-b", jobs=1)]
    for _ in range(3):
        for operator in operators:
            await operator.looks()
    writes = api.writes
    for _ in range(5):
        for operator in operators:
            await operator.looks()
    assert api.writes == writes
    operators[0].cache.update_job(running("another", "team-a"))
    await operators[0].looks()
    assert api.objects[WHERE]["status"]["jobs"] == {"Running": 4}


async def test_a_deleted_slurmcluster_stays_while_jobs_of_either_are_unfinished(api: FakeApiServer) -> None:
    idle, busy = Beside(api, "team-a", jobs=0), Beside(api, "team-b", jobs=1)
    for operator in (idle, busy):
        await operator.looks()
    assert finalizers(api) == sorted([FIRST, SECOND])
    there = api.objects[WHERE]
    api.put(WHERE, {**there, "metadata": {**there["metadata"], **DELETED}})
    for operator in (idle, busy):
        await operator.looks()
    assert finalizers(api) == [SECOND]


async def test_the_finalizer_of_an_earlier_release_is_taken_over(api: FakeApiServer) -> None:
    there = api.objects[WHERE]
    api.put(WHERE, {**there, "metadata": {**there["metadata"], "finalizers": [CLUSTER_FINALIZER, "x/y"]}})
    await Beside(api, "team-a", jobs=0).looks()
    assert finalizers(api) == sorted(["x/y", FIRST])


def condition(api: FakeApiServer, kind: str) -> Object | None:
    conditions: list[Object] = api.objects[WHERE]["status"]["conditions"]
    return next((item for item in conditions if item["type"] == kind), None)


def enable_pods(api: FakeApiServer) -> None:
    there = api.objects[WHERE]
    api.put(WHERE, {**there, "spec": {**there["spec"], "pods": {"enabled": True}}})


async def test_until_resourced_has_reported_pods_are_not_ready(api: FakeApiServer) -> None:
    operator = Beside(api, "team-a", jobs=0)
    await operator.looks()
    assert condition(api, "PodsReady") is None
    enable_pods(api)
    await operator.looks()
    written = condition(api, "PodsReady")
    assert written is not None
    assert (written["status"], written["reason"]) == ("False", "NotReported")
    assert "resourced.pods.enabled" in written["message"]


async def test_that_pods_were_disabled_is_not_said_of_pods_that_are_enabled(api: FakeApiServer) -> None:
    operator = Beside(api, "team-a", jobs=0)
    await operator.looks()
    there = api.objects[WHERE]
    disabled = {"type": "PodsReady", "status": "False", "reason": "Disabled", "message": "it is false"}
    disabled["lastTransitionTime"] = "2026-11-21T13:00:00Z"
    conditions = [*there["status"]["conditions"], disabled]
    api.put(WHERE, {**there, "status": {**there["status"], "conditions": conditions}})
    await operator.looks()
    assert condition(api, "PodsReady") == disabled
    enable_pods(api)
    await operator.looks()
    written = condition(api, "PodsReady")
    assert written is not None
    assert written["reason"] == "NotReported"


async def test_what_resourced_has_reported_is_left_alone(api: FakeApiServer) -> None:
    enable_pods(api)
    operator = Beside(api, "team-a", jobs=0)
    await operator.looks()
    there = api.objects[WHERE]
    others = [item for item in there["status"]["conditions"] if item["type"] != "PodsReady"]
    served = {"type": "PodsReady", "status": "True", "reason": "Served", "message": ""}
    served["lastTransitionTime"] = "2026-11-21T13:00:00Z"
    api.put(WHERE, {**there, "status": {**there["status"], "conditions": [*others, served]}})
    writes = api.writes
    await operator.looks()
    assert api.writes == writes
    assert condition(api, "PodsReady") == served
