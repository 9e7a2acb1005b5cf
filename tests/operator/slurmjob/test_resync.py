"""Differences that a resync finds, which no watch has shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from redbox_api.feed import RowKey
from redbox_api.models import FINAL_PHASES, Job, OwnerRef, Phase
from redbox_clusters.names import API_VERSION, SLURM_JOBS
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS, OrphanPolicy
from redbox_kube.api import kinds
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import ApiRefused, ApiUnreachable, Object, ResourcePath
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.constants import CLUSTER_FINALIZER, FINALIZER
from redbox_operator.api.decode import RESOURCES
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.companion_pods.builder import CompanionProgram
from redbox_operator.companion_pods.plan import companion_of
from redbox_operator.metrics import OperatorMetrics
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmcluster.job_feed import RedboxLink, Row
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from redbox_operator.slurmcluster.registry import NO_SUCH_ENDPOINT, RedboxLinks
from redbox_operator.slurmcluster.status_lag import StatusLag
from redbox_operator.slurmjob import resync as resync_module
from redbox_operator.slurmjob.reconciler import Reconciler
from redbox_operator.slurmjob.resync import Resync
from tests.kube.fakes import FakeApiServer
from tests.operator.factories import slurm_cluster, slurm_job

JOB = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
OTHER = "8d444840-9dc0-11d1-b245-5ffdce74fad2"


CLUSTER_PATH = ResourcePath(SLURM_CLUSTERS, "hpc1")
CLUSTER: Object = {
    "metadata": {"name": "hpc1", "uid": "c", "resourceVersion": "1"},
    "spec": {
        **slurm_cluster().spec.model_dump(mode="json", by_alias=True, exclude={"ca_bundle"}),
        "caBundle": "eA==",
    },
}


class Link:
    """A red-box with some living jobs."""

    def __init__(self) -> None:
        self.cluster = slurm_cluster()
        self.synced, self.reachable = True, True
        self.rows: dict[RowKey, Row] = {}
        self.lag = StatusLag()
        self.cancelled: list[str] = []

    def active_rows(self) -> Iterator[tuple[RowKey, Row]]:
        return ((key, row) for key, row in self.rows.items() if row.phase not in FINAL_PHASES)

    def forget(self, done: RowKey) -> None:
        self.rows.pop(done, None)
        self.lag.end(done)

    async def cancel(self, wanted: RowKey, *, all_attempts: bool) -> list[Job]:
        assert all_attempts
        self.cancelled.append(wanted.key)
        return []


class Stand:
    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.api, self.link, self.cache, metrics = FakeApiServer(), Link(), ObjectCache(), OperatorMetrics()
        self.api.unserved = {resource.api_version for resource in RESOURCES[1:]}
        self.api.put(CLUSTER_PATH, CLUSTER)
        self.metrics = metrics
        writer = StatusWriter(self.api.client, metrics.writes)
        links = RedboxLinks()
        self.reconciler = Reconciler(writer, self.cache, links, CompanionProgram("image"), metrics)
        clusters = SlurmClusters(
            writer,
            ServiceAccountName("redbox-system", "redbox-operator"),
            self.cache,
            links,
            wake_uid=print,
            wake_cluster=print,
        )
        clusters.updated(CLUSTER)
        links.by_name["hpc1"] = cast("RedboxLink", self.link)
        self.clusters = clusters
        self.resync = Resync(self.api.client, self.reconciler, clusters, metrics, namespaces)

    def put(self, body: Object, kind: Kind = SLURM_JOBS) -> None:
        metadata = body["metadata"]
        self.api.put(ResourcePath(kind, metadata["name"], metadata["namespace"]), body)

    @property
    def lifted(self) -> list[str]:
        """Deleted objects whose finalizers were lifted, so that they are gone."""
        asked = [where for verb, where in self.api.requests if verb == "finalizers"]
        return [where.name for where in asked if where not in self.api.objects]

    def job(self, version: str = "5", **metadata: Any) -> Object:
        made = slurm_job()
        metadata = {**made.metadata, "uid": JOB, "resourceVersion": version, **metadata}
        spec = made.spec.model_dump(by_alias=True, exclude_defaults=True)
        return {"metadata": metadata, "spec": spec}

    def row(
        self,
        key: str,
        digest: str | None = "sha256:1",
        phase: Phase = Phase.RUNNING,
        namespace: str = "farm",
    ) -> None:
        owner = OwnerRef(cluster="kube", namespace=namespace, account="default")
        row = Job(key=key, attempt=1, owner=owner, user="alice", phase=phase, job_id="7")
        row = row.model_copy(update={"spec_digest": digest})
        self.link.rows[RowKey(key, 1, namespace, "default")] = Row.of(row)

    async def run(self) -> None:
        await self.resync.resync()

    @property
    def orphans(self) -> list[str]:
        return self.clusters._entries["hpc1"].orphans


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync_module, "WATCH_GRACE_S", 0.0)


async def test_one_that_no_watch_has_told_of_is_read() -> None:
    stand = Stand()
    stand.put(stand.job())
    await stand.run()
    assert [ref.name for ref in stand.cache.jobs] == ["cow"]
    assert len(stand.reconciler.queue) == 1


async def test_what_is_known_in_its_newest_version_is_not_read() -> None:
    stand = Stand()
    stand.put(stand.job())
    stand.cache.update_job(SlurmJob.model_validate(stand.job()))
    await stand.run()
    assert "get SlurmJob" not in stand.api.asked


async def test_one_that_cannot_be_taken_in_keeps_nobody_from_the_others() -> None:
    stand = Stand()
    for name, uid in (("bad", OTHER), ("cow", JOB)):
        stand.put(stand.job(name=name, uid=uid))
        stand.put(companion(f"{name}-job", uid=f"pod-{uid}", resourceVersion="6"), kinds.POD)
    for name in ("bad", "bad-job"):
        stand.api.fail(RecursionError("maximum recursion depth exceeded"), verb="get", name=name)
    await stand.run()
    assert [ref.name for ref in stand.cache.jobs] == ["cow"]
    assert [name for _, name in stand.cache.companions] == ["cow-job"]
    counted = stand.metrics.registry.get_sample_value("redbox_operator_errors_total", {"cause": "defect"})
    assert counted == 2


async def test_an_api_server_that_does_not_answer_is_no_fault_of_one_object() -> None:
    stand = Stand()
    stand.put(stand.job())
    stand.api.fail(ApiUnreachable("cow"), verb="get")
    with pytest.raises(ApiUnreachable):
        await stand.run()


async def test_a_change_that_was_missed_is_read() -> None:
    stand = Stand()
    stand.cache.update_job(SlurmJob.model_validate(stand.job()))
    stand.put(stand.job(version="6", finalizers=["x"]))
    await stand.run()
    (cached,) = stand.cache.jobs.values()
    assert cached.unpacked().finalizers == ["x"]


async def test_a_deleted_slurmcluster_stays_until_all_slurmjobs_have_been_listed() -> None:
    """A new process knows none at first: to it, no SlurmCluster seems to be in use."""
    stand = Stand()
    deletion = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [CLUSTER_FINALIZER]}
    deleted = {**CLUSTER, "metadata": {**CLUSTER["metadata"], **deletion, "resourceVersion": "5"}}
    stand.api.remove(CLUSTER_PATH)
    stand.api.put(CLUSTER_PATH, deleted)
    stand.clusters.updated(deleted)
    await stand.clusters._reconcile("hpc1")
    assert stand.lifted == []
    await stand.run()
    stand.clusters.updated(deleted)
    await stand.clusters._reconcile("hpc1")
    assert stand.lifted == ["hpc1"]


async def test_a_slurmcluster_that_is_created_during_the_list_is_not_missing() -> None:
    stand = Stand()
    new = {**CLUSTER, "metadata": {"name": "hpc2", "uid": "d", "resourceVersion": "7"}}
    listing = stand.api.list_all

    async def list_all(where: ResourcePath, *given: Any) -> AsyncIterator[Object]:
        async for raw in listing(where, *given):
            yield raw
        if where.kind is SLURM_CLUSTERS:
            stand.clusters.updated(new)  # the watch is faster than the list

    stand.api.list_all = list_all  # type: ignore[method-assign]
    await stand.resync.list_clusters()
    assert stand.clusters.names() == {"hpc1", "hpc2"}


async def test_a_list_does_not_bring_an_older_slurmcluster_back() -> None:
    stand = Stand()
    newer = {**CLUSTER["spec"], "endpoint": "https://moved.example:8443"}
    stand.clusters.updated({"metadata": {**CLUSTER["metadata"], "resourceVersion": "10"}, "spec": newer})
    await stand.resync.list_clusters()
    assert stand.clusters._entries["hpc1"].cluster.spec.endpoint == "https://moved.example:8443"
    moved = {**CLUSTER["spec"], "endpoint": "https://again.example:8443"}
    stand.api.put(CLUSTER_PATH, {"metadata": CLUSTER["metadata"], "spec": moved})
    await stand.resync.list_clusters()
    assert stand.clusters._entries["hpc1"].cluster.spec.endpoint == "https://again.example:8443"


async def test_what_went_while_nobody_watched_is_forgotten() -> None:
    stand = Stand()
    stand.cache.update_job(SlurmJob.model_validate(stand.job()))
    pod = {"metadata": {"namespace": "farm", "name": "cow-job", "uid": "p", "labels": {}}}
    stand.cache.update_companion(companion_of(pod))
    await stand.run()
    assert (stand.cache.jobs, stand.cache.companions) == ({}, {})


async def test_jobs_whose_slurmjob_is_gone_are_reported() -> None:
    stand = Stand()
    stand.put(stand.job())
    stand.row(JOB)
    stand.row(OTHER)
    await stand.run()
    assert stand.orphans == ["7"]
    assert stand.link.cancelled == []


async def test_they_are_cancelled_where_the_slurmcluster_says_so() -> None:
    stand = Stand()
    spec = stand.link.cluster.spec.model_copy(update={"orphan_policy": OrphanPolicy.CANCEL})
    stand.link.cluster = stand.link.cluster.model_copy(update={"spec": spec})
    stand.row(OTHER)
    await stand.run()
    assert stand.link.cancelled == [OTHER]


async def test_a_namespace_that_lets_nobody_in_keeps_no_other_from_being_looked_at() -> None:
    """Its administrator may delete the RoleBinding of an operator that is limited to some."""
    stand = Stand(namespaces=("shut", "farm"))
    cached = stand.job(name="old", uid=OTHER, namespace="shut")
    stand.cache.update_job(SlurmJob.model_validate(cached))
    pod = {"metadata": {"namespace": "shut", "name": "old-job", "uid": "p", "labels": {}}}
    stand.cache.update_companion(companion_of(pod))
    for job in (cached, stand.job()):
        stand.put(job)
    stand.api.fail(ApiRefused(403, "cannot list resource"), verb="list", namespace="shut")
    stand.row(OTHER, namespace="shut")
    await stand.run()
    assert {ref.name for ref in stand.cache.jobs} == {"old", "cow"}
    assert [name for _, name in stand.cache.companions] == ["old-job"]
    assert stand.orphans == []
    assert stand.clusters._jobs_listed
    # Jobs of a SlurmEndpoint that is gone would be abandoned.
    reasons = [stand.clusters.links.problem_of(f"{namespace}/mine").reason for namespace in ("shut", "farm")]
    assert reasons == ["ClusterMisconfigured", NO_SUCH_ENDPOINT]
    stand.api.recover()
    stand.api.remove(ResourcePath(SLURM_JOBS, "old", "shut"))
    await stand.run()
    assert {ref.name for ref in stand.cache.jobs} == {"cow"}
    assert stand.orphans == ["7"]


async def test_an_operator_of_all_namespaces_that_may_not_list_them_has_looked_at_nothing() -> None:
    stand = Stand()
    stand.api.fail(ApiRefused(403, "cannot list resource"), verb="list", kind="SlurmJob")
    with pytest.raises(ApiRefused):
        await stand.run()


async def test_an_operator_of_some_namespaces_cancels_no_orphans() -> None:
    stand = Stand(namespaces=("farm",))
    spec = stand.link.cluster.spec.model_copy(update={"orphan_policy": OrphanPolicy.CANCEL})
    stand.link.cluster = stand.link.cluster.model_copy(update={"spec": spec})
    stand.row(OTHER)
    await stand.run()
    assert stand.link.cancelled == []


@pytest.mark.parametrize(("key", "digest"), [("my-own-key", "sha256:1"), (OTHER, None)])
async def test_jobs_that_somebody_submitted_without_kubernetes_are_no_orphans(
    key: str, digest: str | None
) -> None:
    stand = Stand()
    stand.row(key, digest)
    await stand.run()
    assert stand.orphans == []


async def test_rows_of_ended_jobs_whose_slurmjob_is_gone_are_not_kept() -> None:
    """Red-box tells of each end, and remembers it for a month."""
    stand = Stand()
    stand.put(stand.job())
    stand.row(JOB, phase=Phase.SUCCEEDED)
    stand.row(OTHER, phase=Phase.SUCCEEDED)
    stand.row("my-own-key", phase=Phase.FAILED)
    for key in (JOB, OTHER, "of-a-link-before-this-one"):
        stand.link.lag.begin(RowKey(key, 1, "farm", "default"))
    await stand.run()
    assert [key.key for key in stand.link.rows] == [JOB]
    assert [key.key for key in stand.link.lag.rows()] == [JOB]
    assert stand.orphans == []


async def test_before_all_slurmclusters_were_seen_none_is_taken_for_missing() -> None:
    stand = Stand()
    raw = stand.job(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=[FINALIZER])
    stand.put(raw)
    job = SlurmJob.model_validate(raw)
    stand.clusters.links.by_name.clear()
    stand.reconciler.job_updated(job)
    await stand.reconciler.reconcile(job.ref)
    assert stand.lifted == []  # its SlurmCluster may yet come, and its job has to be cancelled then
    await stand.resync.list_clusters()
    assert len(stand.reconciler.queue) == 1
    stand.clusters.links.by_name.clear()
    await stand.reconciler.reconcile(job.ref)
    assert stand.lifted == ["cow"]


def companion(name: str, **metadata: Any) -> Object:
    labels = {"redbox.dev/slurmjob-uid": JOB}
    given = {"namespace": "farm", "name": name, "uid": name, "resourceVersion": "5", "labels": labels}
    return {"metadata": {**given, **metadata}}


async def test_objects_that_cannot_be_read_keep_no_others_from_being_read() -> None:
    stand = Stand()
    stand.put(stand.job(name="a", generation=10**400, creationTimestamp=object()))
    stand.put(stand.job(name="b", uid=OTHER))
    stand.put(companion("a", deletionTimestamp="soon"), kinds.POD)
    stand.put(companion("b"), kinds.POD)
    await stand.run()
    assert [ref.name for ref in stand.cache.jobs] == ["b"]
    assert [name for _, name in stand.cache.companions] == ["b"]
    assert stand.resync._unreadable == {"SlurmJob/farm/a", "Pod/farm/a"}
    for name in ("a", "b"):
        stand.api.remove(ResourcePath(SLURM_JOBS, name, "farm"))
    stand.api.remove(ResourcePath(kinds.POD, "a", "farm"))
    stand.put(companion("a"), kinds.POD)
    await stand.run()
    assert stand.resync._unreadable == set()
    assert len(stand.cache.companions) == 2


async def test_a_slurmjob_that_cannot_be_read_is_not_gone() -> None:
    stand = Stand()
    stand.put(stand.job(creationTimestamp=object()))
    stand.row(JOB)
    await stand.run()
    assert stand.orphans == []


async def test_a_404_in_the_place_of_the_slurmjobs_makes_no_job_an_orphan() -> None:
    stand = Stand()
    stand.reconciler.job_updated(SlurmJob.model_validate(stand.job()))
    stand.row(JOB)
    stand.api.unserved.add(API_VERSION)
    with pytest.raises(ApiRefused):
        await stand.run()
    assert (stand.orphans, len(stand.cache.jobs)) == ([], 1)
